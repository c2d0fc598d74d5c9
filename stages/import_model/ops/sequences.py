"""Sequences, as Python lists of tensors. An empty optional is None."""

from typing import Any

import torch
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import to_ints
from ltp_pipeline.stages.import_model.ops.control_flow import Branch
from ltp_pipeline.stages.import_model.registry import op


@op("SequenceEmpty")
def sequence_empty(*, dtype: int = 1) -> list[Tensor]:
    return []


@op("SequenceConstruct")
def sequence_construct(*inputs: Tensor) -> list[Tensor]:
    return list(inputs)


@op("SequenceAt", constants=(1,))
def sequence_at(sequence: list[Tensor], position: Tensor) -> Tensor:
    return sequence[int(position)]


@op("SequenceInsert", constants=(2,))
def sequence_insert(
    sequence: list[Tensor], tensor: Tensor, position: Tensor | None = None
) -> list[Tensor]:
    longer = list(sequence)
    index = len(longer) if position is None else int(position)
    longer.insert(index, tensor)
    return longer


@op("SequenceErase", constants=(1,))
def sequence_erase(sequence: list[Tensor], position: Tensor | None = None) -> list[Tensor]:
    shorter = list(sequence)
    shorter.pop(-1 if position is None else int(position))
    return shorter


@op("SequenceLength")
def sequence_length(sequence: list[Tensor]) -> Tensor:
    return torch.tensor(len(sequence))


@op("SequenceMap")
def sequence_map(
    sequence: list[Any],
    *others: Any,
    body: Branch,
    n_outputs: int = 1,
) -> tuple[list[Any], ...]:
    outputs: tuple[list[Any], ...] = tuple([] for _ in range(n_outputs))
    for i, item in enumerate(sequence):
        arguments = [other[i] if isinstance(other, list) else other for other in others]
        results = body(item, *arguments)
        for output, result in zip(outputs, results, strict=True):
            output.append(result)
    return outputs


@op("SplitToSequence", constants=(1,))
def split_to_sequence(
    x: Tensor,
    split: Tensor | None = None,
    *,
    axis: int = 0,
    keepdims: int = 1,
) -> list[Tensor]:
    if split is not None:
        sizes = to_ints(split) if split.dim() else int(split)
        parts = torch.split(x, sizes, axis)
    elif keepdims:
        parts = torch.split(x, 1, axis)
    else:
        parts = x.unbind(axis)
    return list(parts)


@op("ConcatFromSequence")
def concat_from_sequence(sequence: list[Tensor], *, axis: int, new_axis: int = 0) -> Tensor:
    if new_axis:
        return torch.stack(sequence, axis)
    return torch.cat(sequence, axis)


@op("Optional")
def optional(value: Any = None, *, type: Any = None) -> Any:
    return value


@op("OptionalHasElement")
def optional_has_element(value: Any = None) -> Tensor:
    return torch.tensor(value is not None)


@op("OptionalGetElement")
def optional_get_element(value: Any) -> Any:
    if value is None:
        raise ValueError("the optional is empty")
    return value
