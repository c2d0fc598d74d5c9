"""Run graphs that were exported for one batch size on batches of any size.

Most such graphs run on other batches once their Reshapes no longer spell the size out. A graph
that still cannot, because a class token or a mask was stored once for each sample, is run on parts
of a batch that have the file's size.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from onnx import GraphProto, NodeProto
from torch import Tensor

from ltp_pipeline.graph.infer_shapes import infer_shapes
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.nodes import collect_names, get_attribute
from ltp_pipeline.graph.view import iter_uses
from ltp_pipeline.stages.import_model.validity import SMALL_TENSOR_BYTES

RunFunction = Callable[[Mapping[str, Tensor]], tuple[Any, ...]]


def get_declared_batch(graph: GraphProto) -> int | None:
    """Return the batch size that a graph fixes: the first dimension of most of its inputs."""
    stored = collect_names(graph.initializer)
    sizes: list[int] = []
    for value in graph.input:
        dims = value.type.tensor_type.shape.dim
        if value.name not in stored and dims:
            sizes.append(dims[0].dim_value)
    size = _find_most_common(sizes)
    if size > 0:
        return size
    return None


def _find_most_common(sizes: Sequence[int]) -> int:
    if not sizes:
        return 0
    return Counter(sizes).most_common(1)[0][0]


def relax_batch_size(model: OnnxModel, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Let Reshapes that spell out a fixed batch size infer or copy it.

    The size becomes -1, or 0 if a -1 is there already. For the file's own batch size both stand
    for the same number. The tensors by name are changed and returned.
    """
    batch = get_declared_batch(model.graph)
    if batch is None:
        return tensors
    uses: dict[str, list[tuple[NodeProto, int]]] = defaultdict(list)
    for node, slot, name in iter_uses(model.graph):
        uses[name].append((node, slot))
    infer_first_dims = cache(partial(_infer_first_dims, model))
    for name, shape in tensors.items():
        readers = uses[name]
        is_shape = readers and all((n.op_type, slot) == ("Reshape", 1) for n, slot in readers)
        if not is_shape or shape.dim() != 1 or shape.numel() < 2 or int(shape[0]) != batch:
            continue
        if bool((shape > 0).all()):
            tensors[name] = torch.cat([shape.new_tensor([-1]), shape[1:]])
        elif bool((shape != 0).all()) and all(
            _copies_batch(node, batch, infer_first_dims()) for node, _ in readers
        ):
            tensors[name] = torch.cat([shape.new_tensor([0]), shape[1:]])
    return tensors


def _copies_batch(reshape: NodeProto, batch: int, first_dims: Mapping[str, int]) -> bool:
    """Return True if a Reshape to 0 would copy the batch size from its input."""
    has_batch = first_dims.get(reshape.input[0]) == batch
    return has_batch and not get_attribute(reshape, "allowzero", 0)


def _infer_first_dims(model: OnnxModel) -> dict[str, int]:
    """Return the first dimensions of the values of a graph, as far as onnx can infer them."""
    try:
        graph = infer_shapes(model.to_proto(max_bytes=SMALL_TENSOR_BYTES)).graph
    except Exception:  # noqa: BLE001 - the graph has a flaw that is reported elsewhere
        return {}
    first_dims: dict[str, int] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if dims:
            first_dims[value.name] = dims[0].dim_value
    return first_dims


def run_in_chunks(run: RunFunction, inputs: Mapping[str, Tensor], size: int) -> tuple[Any, ...]:
    """Run a function on parts of a batch and join the results.

    The last part is filled up with copies of the last sample. Inputs with another number of rows
    than there are samples are passed to every part as they are.

    Raises:
        ValueError: If an output has neither one row for each sample nor the same value for all
            parts.
    """
    num_samples = _find_most_common([len(x) for x in inputs.values() if x.dim()])
    if num_samples == size:
        return run(inputs)
    num_rows = -(-num_samples // size) * size
    rows = torch.arange(num_rows).clamp_(max=num_samples - 1)
    parts: list[tuple[Any, ...]] = []
    for part in torch.split(rows, size):
        part_inputs: dict[str, Tensor] = {}
        for name, x in inputs.items():
            part_inputs[name] = x
            if x.dim() and len(x) == num_samples:
                part_inputs[name] = x[part.to(x.device)]
        parts.append(run(part_inputs))
    return tuple(_join_parts(results, size, num_samples) for results in zip(*parts, strict=True))


def _join_parts(results: Sequence[Any], size: int, num_samples: int) -> Any:
    """Return one output for all samples from that of each part."""
    first = results[0]
    if isinstance(first, Tensor) and first.shape[:1] == (size,):
        return torch.cat(list(results))[:num_samples]
    for result in results:
        is_same = isinstance(result, Tensor) and result.shape == first.shape
        if not is_same or not torch.equal(result, first):
            raise ValueError(
                f"the graph only runs on {size} samples at a time, and an output does not have "
                "one row for each"
            )
    return first


def supports_any_batch(
    run: RunFunction,
    inputs: Mapping[str, Tensor],
    size: int,
    is_equal: Callable[[Any, Any], bool],
) -> bool:
    """Return True if a graph for `size` samples gives the same results in a larger batch.

    The batch has one sample more: the first one with its values in reverse, which are as valid.
    """
    batched = {name for name, x in inputs.items() if x.dim() and len(x) == size}
    reversed_inputs: dict[str, Tensor] = {}
    larger_inputs: dict[str, Tensor] = {}
    for name, x in inputs.items():
        reversed_inputs[name] = larger_inputs[name] = x
        if name in batched:
            if x.dim() > 1:
                reversed_inputs[name] = x.flip(-1)
            larger_inputs[name] = torch.cat([x, reversed_inputs[name][:1]])
    try:
        larger_outputs = run(larger_inputs)
        outputs = run(inputs)
        reversed_outputs = run(reversed_inputs)
    except Exception:  # noqa: BLE001 - whatever it is, the graph does not run on such a batch
        return False
    for larger, first, second in zip(larger_outputs, outputs, reversed_outputs, strict=True):
        has_rows = isinstance(first, Tensor) and first.shape[:1] == (size,)
        if has_rows and not is_equal(larger, torch.cat([first, second[:1]])):
            return False
    return True
