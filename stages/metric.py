"""The one definition of accuracy: right answers where the data have labels, agreement with the original where not.

What computes the outputs, torch or onnxruntime, is a function from a batch to arrays; so both are judged alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from ltp_pipeline.config import Imitate
from ltp_pipeline.data import Split, batches
from ltp_pipeline.errors import InputError
from ltp_pipeline.records import Accuracy

if TYPE_CHECKING:
    from onnx import GraphProto

    from ltp_pipeline.records import Array

    Run = Callable[[Array], Sequence[Array]]

Kind = Literal["scores", "values"]
BATCH = 64
# An output of these nodes is no score among others, whatever its shape
_SQUASHED = ("Sigmoid", "Tanh", "HardSigmoid")
_SAME_VALUES = ("Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Cast")


@dataclass(frozen=True)
class Output:
    """An output that is judged: class scores, whose largest counts, or values, whose distance counts."""

    position: int
    name: str
    kind: Kind


@dataclass(frozen=True)
class Metric:
    """What is asked of a network's outputs; "top-1" looks at the first one and needs labels, "agreement" at all."""

    name: Literal["top-1", "agreement"]
    outputs: tuple[Output, ...]

    @property
    def positions(self) -> tuple[int, ...]:
        """Of the outputs that are judged."""
        return tuple(o.position for o in self.outputs)


def is_score(shape: Sequence[int], samples: int) -> bool:
    """Whether an output of this shape can be class scores: one row per sample, two classes at least."""
    return len(shape) >= 2 and shape[0] == samples and shape[1] >= 2 and all(d == 1 for d in shape[2:])


def makers(graph: GraphProto) -> list[str]:
    """For each output, the kind of node that computes it; nodes that only move values are looked through."""
    nodes = {name: node for node in graph.node for name in node.output}
    found = []
    for output in graph.output:
        node = nodes.get(output.name)
        while node is not None and node.op_type in _SAME_VALUES:
            node = nodes.get(node.input[0])
        found.append(node.op_type if node is not None else "")
    return found


def top1(graph: GraphProto, shapes: Sequence[tuple[int, ...] | None], samples: int) -> tuple[Metric, int]:
    """For labelled data: the first output must score classes; also how many."""
    shape, name = shapes[0], graph.output[0].name
    if shape is None or not is_score(shape, samples):
        raise InputError(
            f"output {name!r} of shape {shape} for {samples} samples is no class score",
            "give a classifier whose first output is (batch, classes), or data without labels to learn from the "
            "original's own outputs",
        )
    return Metric("top-1", (Output(0, name, "scores"),)), shape[1]


def agreement(
    graph: GraphProto, shapes: Sequence[tuple[int, ...] | None], samples: int, imitate: Imitate = "auto"
) -> Metric:
    """For data without labels: every output of floating point (others have no shape here) with a row per sample."""
    made = makers(graph)
    found = []
    for position, shape in enumerate(shapes):
        name = graph.output[position].name
        if shape is None or not shape or shape[0] != samples:
            continue
        kind: Kind = "scores" if is_score(shape, samples) and made[position] not in _SQUASHED else "values"
        if imitate == "scores" and not is_score(shape, samples):
            raise InputError(f"output {name!r} of shape {shape} is no class score", 'set train.imitate to "auto"')
        found.append(Output(position, name, kind if imitate == "auto" else imitate))
    if not found:
        raise InputError(
            "no output of the model is a tensor of numbers with one row per sample",
            "cut the graph before the nodes that select or sort (such as NonMaxSuppression)",
        )
    return Metric("agreement", tuple(found))


class Judge:
    """Judges networks on splits; agreement is with `reference`, the original."""

    def __init__(self, metric: Metric, reference: Run | None = None) -> None:
        self.metric = metric
        self._reference = reference
        self._spreads: dict[str, list[float]] = {}

    def __call__(self, run: Run, split: Split, rows: Array | None = None) -> tuple[Accuracy, Array]:
        """Judge by all samples of a split, or by some `rows`; also how each sample did, from 0 to 1."""
        if self.metric.name == "top-1":
            return _top1(run, split, rows)
        assert self._reference is not None  # noqa: S101 - whoever asks for agreement says with what
        spreads = self._spreads_of(split)
        found = []
        for x, _ in batches(split, BATCH, rows):
            found.append(_agreements(run(x), self._reference(x), self.metric.outputs, spreads))
        each = np.concatenate(found)
        return Accuracy(float(each.mean()), None, len(each), split.name), each

    def of_the_original(self, run: Run, split: Split) -> tuple[Accuracy, Array]:
        """The original agrees with itself; that needs no measuring."""
        if self.metric.name == "top-1":
            return self(run, split)
        return Accuracy(1.0, None, len(split), split.name), np.ones(len(split), self._dtype)

    @property
    def _dtype(self) -> type:
        return bool if _whole(self.metric.outputs) else float

    def _spreads_of(self, split: Split) -> list[float]:
        """For every output of values, how far the original's rows lie from their mean, squared and averaged."""
        if split.name not in self._spreads:
            assert self._reference is not None  # noqa: S101 - checked by the caller
            wanted = [i for i, o in enumerate(self.metric.outputs) if o.kind == "values"]
            self._spreads[split.name] = _spreads(self._reference, split, wanted, len(self.metric.outputs))
        return self._spreads[split.name]


def _top1(run: Run, split: Split, rows: Array | None) -> tuple[Accuracy, Array]:
    right, right5 = [], []
    for x, y in batches(split, BATCH, rows):
        assert y is not None  # noqa: S101 - top-1 is for labelled data
        scores = run(x)[0].reshape(len(x), -1)
        of_label = np.take_along_axis(scores, y[:, None], axis=1)
        # A tie counts by position, as argmax does; NaN never wins.
        better = (scores > of_label).sum(1) + ((scores == of_label) & (np.arange(scores.shape[1]) < y[:, None])).sum(1)
        better = np.where(np.isnan(of_label[:, 0]), scores.shape[1], better)
        right.append(better == 0)
        right5.append(better < 5)
        classes = scores.shape[1]
    correct = np.concatenate(right)
    top5 = float(np.concatenate(right5).mean()) if classes > 5 else None
    return Accuracy(float(correct.mean()), top5, len(correct), split.name), correct


def _agreements(
    found: Sequence[Array], wanted: Sequence[Array], outputs: Sequence[Output], spreads: Sequence[float]
) -> Array:
    """For each sample: same class, or how much of the original's variance is explained; the mean over outputs."""
    parts: list[Array] = []
    for y, original, output, spread in zip(found, wanted, outputs, spreads, strict=True):
        flat, goal = (a.reshape(len(a), -1) for a in (y, original))
        if output.kind == "scores":
            parts.append((flat.argmax(1) == goal.argmax(1)) & ~np.isnan(flat).any(1))
            continue
        missed = np.square(flat.astype(np.float64) - goal).sum(1) / max(spread, 1e-30)
        parts.append(np.where(np.isfinite(missed), np.clip(1 - missed, 0, 1), 0.0))
    if _whole(outputs):
        return parts[0]
    mean: Array = np.mean([p.astype(np.float64) for p in parts], axis=0)
    return mean


def _whole(outputs: Sequence[Output]) -> bool:
    """Whether a sample either agrees or does not."""
    return len(outputs) == 1 and outputs[0].kind == "scores"


def _spreads(reference: Run, split: Split, wanted: Sequence[int], count: int) -> list[float]:
    result = [1.0] * count
    if not wanted:
        return result
    sums: dict[int, Array] = {}
    squares = dict.fromkeys(wanted, 0.0)
    for outputs in _flat(reference, split):
        for i in wanted:
            sums[i] = sums.get(i, 0.0) + outputs[i].sum(0)
            squares[i] += float(np.square(outputs[i]).sum())
    for i in wanted:
        energy = squares[i] / len(split)
        # an output that is the same for all samples has no variance to explain: then rounding errors are forgiven
        result[i] = max(energy - float(np.square(sums[i] / len(split)).sum()), 1e-6 * energy)
    return result


def _flat(reference: Run, split: Split) -> Iterator[list[Array]]:
    for x, _ in batches(split, BATCH):
        yield [y.reshape(len(y), -1).astype(np.float64) for y in reference(x)]
