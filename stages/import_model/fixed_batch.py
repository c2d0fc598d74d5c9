"""Batches of another size than the one a file is written for.

Most graphs can run on them once Reshapes no longer spell the size out. A graph that still cannot, because a class
token or a mask was stored once per sample, is run on parts of a batch that have the file's size.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from onnx import GraphProto, NodeProto, shape_inference
from torch import Tensor

from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.view import iter_uses

_SMALL = 1 << 12  # bytes of a tensor whose values may tell a shape

Run = Callable[[Mapping[str, Tensor]], tuple[Any, ...]]


def get_declared_batch(graph: GraphProto) -> int | None:
    """The batch size that a file fixes: the first dimension of most of its inputs."""
    stored = {t.name for t in graph.initializer}
    shapes = [i.type.tensor_type.shape.dim for i in graph.input if i.name not in stored]
    sizes = [dims[0].dim_value for dims in shapes if dims]
    if not sizes:
        return None
    size, _ = Counter(sizes).most_common(1)[0]
    return size if size > 0 else None


def relax_batch_size(model: OnnxModel, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Let Reshapes that spell out a fixed batch size infer or copy it, so that training can use another.

    For the size the file fixes nothing changes: -1, or 0 where -1 is taken, then stands for the same number.
    """
    batch = get_declared_batch(model.graph)
    if batch is None:
        return tensors
    uses: dict[str, list[tuple[NodeProto, int]]] = defaultdict(list)
    for node, slot, name in iter_uses(model.graph):
        uses[name].append((node, slot))
    first: dict[str, int] | None = None
    for name, shape in tensors.items():
        only = uses[name] and all(
            (node.op_type, slot) == ("Reshape", 1) for node, slot in uses[name]
        )
        if not only or shape.dim() != 1 or shape.numel() < 2 or int(shape[0]) != batch:
            continue
        if bool((shape > 0).all()):
            tensors[name] = torch.cat([shape.new_tensor([-1]), shape[1:]])
        elif bool((shape != 0).all()):
            first = _first_dims(model) if first is None else first
            if all(
                first.get(node.input[0]) == batch and not _zero_is_zero(node)
                for node, _ in uses[name]
            ):
                tensors[name] = torch.cat([shape.new_tensor([0]), shape[1:]])
    return tensors


def _zero_is_zero(reshape: NodeProto) -> bool:
    return any(a.name == "allowzero" and a.i for a in reshape.attribute)


def _first_dims(model: OnnxModel) -> dict[str, int]:
    """First dimensions of the graph's values, as far as they can be inferred."""
    try:
        graph = shape_inference.infer_shapes(model.to_proto(max_bytes=_SMALL)).graph
    except Exception:  # noqa: BLE001 - the graph has a flaw that is told elsewhere
        return {}
    values = [*graph.input, *graph.value_info, *graph.output]
    return {
        v.name: v.type.tensor_type.shape.dim[0].dim_value
        for v in values
        if v.type.tensor_type.shape.dim
    }


def run_in_chunks(run: Run, inputs: Mapping[str, Tensor], size: int) -> tuple[Any, ...]:
    """Run on parts of `size` samples and put the results together; the last part repeats its last sample.

    Inputs that have as many rows as there are samples are parted.
    """
    samples = _samples(inputs)
    if samples == size:
        return run(inputs)
    rows = torch.split(torch.arange(-(-samples // size) * size).clamp_(max=samples - 1), size)
    parts = [
        run(
            {
                n: x[part.to(x.device)] if x.dim() and len(x) == samples else x
                for n, x in inputs.items()
            }
        )
        for part in rows
    ]
    return tuple(_joined(results, size, samples) for results in zip(*parts, strict=True))


def _joined(results: Sequence[Any], size: int, samples: int) -> Any:
    """One output of all parts: their rows, or what is the same for each part."""
    first = results[0]
    if isinstance(first, Tensor) and first.shape[:1] == (size,):
        return torch.cat(list(results))[:samples]
    if all(
        isinstance(r, Tensor) and r.shape == first.shape and torch.equal(r, first) for r in results
    ):
        return first
    raise ValueError(
        f"the graph only runs on {size} samples at a time, and an output has not one row for each"
    )


def _samples(inputs: Mapping[str, Tensor]) -> int:
    sizes = Counter(len(x) for x in inputs.values() if x.dim())
    return sizes.most_common(1)[0][0] if sizes else 0


def supports_any_batch(
    run: Run, inputs: Mapping[str, Tensor], size: int, same: Callable[[Any, Any], bool]
) -> bool:
    """Whether a graph written for `size` samples gives the same for each sample of a batch of one more.

    The one more is the first with its values in reverse, which are as valid.
    """
    batched = {name for name, x in inputs.items() if x.dim() and len(x) == size}
    other = {n: x.flip(-1) if n in batched and x.dim() > 1 else x for n, x in inputs.items()}
    more = {n: torch.cat([x, other[n][:1]]) if n in batched else x for n, x in inputs.items()}
    try:
        found, parts = run(more), (run(inputs), run(other))
    except Exception:  # noqa: BLE001 - whatever it is, the graph does not run on such a batch
        return False
    return all(
        same(together, torch.cat([first, second[:1]]))
        for together, first, second in zip(found, *parts, strict=True)
        if isinstance(first, Tensor) and first.shape[:1] == (size,)
    )
