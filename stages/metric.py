"""What a network is judged by: right answers where the data have labels, nearness to the original where not.

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
Name = Literal["top-1", "agreement", "explained"]
BATCH = 64
FARTHEST = 1e6  # error of a sample, in variances; more, or no number at all, counts as this
# Only these say that an output scores classes: the shape of scores is that of any vector of values
_SCORING = ("Softmax", "LogSoftmax")
# An output of these nodes is no score among others, whatever its shape
_SQUASHED = ("Sigmoid", "Tanh", "HardSigmoid")
_SAME_VALUES = ("Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Cast")


@dataclass(frozen=True)
class Output:
    """An output that is judged: class scores, whose largest counts, or values, whose distance counts."""

    position: int
    name: str
    kind: Kind
    maybe_scores: bool = False  # its shape is that of class scores, whatever it is taken for

    @property
    def has_argmax(self) -> bool:
        """Whether the place of its largest number may mean a class."""
        return self.kind == "scores" or self.maybe_scores


@dataclass(frozen=True)
class Metric:
    """What is asked of a network's outputs; "top-1" looks at the first one and needs labels, the others at all.

    "agreement" is the share of samples with the same class as the original's, where all outputs are scores;
    "explained" the share of the variance of the original's outputs that is met, where any is values.
    """

    name: Name
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


def without_labels(
    graph: GraphProto, shapes: Sequence[tuple[int, ...] | None], samples: int, imitate: Imitate = "auto"
) -> Metric:
    """Judge every output of floating point (others have no shape here) with a row per sample."""
    made = makers(graph)
    found = []
    for position, shape in enumerate(shapes):
        name = graph.output[position].name
        if shape is None or not shape or shape[0] != samples:
            continue
        shaped = is_score(shape, samples)
        meant = imitate == "scores" or (imitate == "auto" and made[position] in _SCORING)
        kind: Kind = "scores" if shaped and meant else "values"
        found.append(Output(position, name, kind, shaped and made[position] not in _SQUASHED))
    if not found:
        raise InputError(
            "no output of the model is a tensor of numbers with one row per sample",
            "cut the graph before the nodes that select or sort (such as NonMaxSuppression)",
        )
    if imitate == "scores" and all(output.kind == "values" for output in found):
        named = ", ".join(repr(output.name) for output in found)
        raise InputError(f"no output has the shape of class scores: {named}", 'set train.imitate to "auto"')
    return Metric("explained" if any(o.kind == "values" for o in found) else "agreement", tuple(found))


class Judge:
    """Judges networks on splits; without labels, by how near they are to `reference`, the original."""

    def __init__(self, metric: Metric, reference: Run | None = None) -> None:
        self.metric = metric
        self._reference = reference
        self._spreads: dict[str, list[float]] = {}

    def __call__(self, run: Run, split: Split, rows: Array | None = None) -> tuple[Accuracy, Array]:
        """Judge by all samples of a split, or by some `rows`; also how each sample did, 1 at best."""
        if self.metric.name == "top-1":
            return _top1(run, split, rows)
        assert self._reference is not None  # noqa: S101 - whoever asks for nearness says to what
        outputs, explained = self.metric.outputs, self.metric.name == "explained"
        spreads = self._spreads_of(split) if explained else []
        met, same = [], []
        for x, _ in batches(split, BATCH, rows):
            found, wanted = run(x), self._reference(x)
            classes = _same_class(found, wanted, outputs)
            same.append(classes)
            met.append(_explained(found, wanted, spreads) if explained else classes)
        each, equal = np.concatenate(met), np.concatenate(same)
        share = float(equal.mean()) if explained and equal.size else None
        return Accuracy(max(float(each.mean()), 0.0), None, None, len(each), split.name, share), each

    def of_the_original(self, run: Run, split: Split) -> tuple[Accuracy, Array]:
        """The original is the nearest to itself; that needs no measuring."""
        if self.metric.name == "top-1":
            return self(run, split)
        explained, outputs = self.metric.name == "explained", self.metric.outputs
        same = 1.0 if explained and any(o.has_argmax for o in outputs) else None
        whole = not explained and len(outputs) == 1
        return Accuracy(1.0, None, None, len(split), split.name, same), np.ones(len(split), bool if whole else float)

    def _spreads_of(self, split: Split) -> list[float]:
        """For every output, how far the original's rows lie from their mean, squared and averaged."""
        if split.name not in self._spreads:
            assert self._reference is not None  # noqa: S101 - checked by the caller
            self._spreads[split.name] = _spreads(self._reference, split, len(self.metric.outputs))
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
    value = float(correct.mean())
    return Accuracy(value, value, top5, len(correct), split.name), correct


def _same_class(found: Sequence[Array], wanted: Sequence[Array], outputs: Sequence[Output]) -> Array:
    """For each sample, whether the largest score is the original's; the mean over outputs that could be scores."""
    parts: list[Array] = []
    for y, original, output in zip(found, wanted, outputs, strict=True):
        if output.has_argmax:
            flat, goal = (a.reshape(len(a), -1) for a in (y, original))
            parts.append((flat.argmax(1) == goal.argmax(1)) & ~np.isnan(flat).any(1))
    if len(parts) == 1:
        return parts[0]
    return np.stack(parts).mean(0, dtype=np.float64) if parts else np.empty(0)


def _explained(found: Sequence[Array], wanted: Sequence[Array], spreads: Sequence[float]) -> Array:
    """For each sample, what it adds to the share of the original's variance that is met; the mean over outputs.

    Over all samples the mean of these is 1 - squared error / variance, the coefficient of determination.
    """
    parts: list[Array] = []
    for y, original, spread in zip(found, wanted, spreads, strict=True):
        flat, goal = (a.reshape(len(a), -1).astype(np.float64) for a in (y, original))
        missed = np.square(flat - goal).sum(1) / max(spread, 1e-30)
        parts.append(1 - np.where(np.isfinite(missed), np.minimum(missed, FARTHEST), FARTHEST))
    mean: Array = np.stack(parts).mean(0)
    return mean


def _spreads(reference: Run, split: Split, count: int) -> list[float]:
    sums: list[Array | float] = [0.0] * count
    squares = [0.0] * count
    for outputs in _flat(reference, split):
        for i, y in enumerate(outputs):
            sums[i] = sums[i] + y.sum(0)
            squares[i] += float(np.square(y).sum())
    energies = [square / len(split) for square in squares]
    # an output that is the same for all samples has no variance to explain: then rounding errors are forgiven
    return [
        max(energy - float(np.square(total / len(split)).sum()), 1e-6 * energy)
        for energy, total in zip(energies, sums, strict=True)
    ]


def _flat(reference: Run, split: Split) -> Iterator[list[Array]]:
    for x, _ in batches(split, BATCH):
        yield [y.reshape(len(y), -1).astype(np.float64) for y in reference(x)]
