"""Sequences, as Python lists of tensors. An empty optional is None."""

# ruff: noqa: ARG001 - every attribute of the standard is a keyword, also where it changes nothing here

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import to_ints
from ltp_pipeline.stages.import_model.registry import op


@op("SequenceEmpty", since=11)
def sequence_empty(*, dtype: int = 1) -> list[Tensor]:
    return []


@op("SequenceConstruct", since=11)
def sequence_construct(*inputs: Tensor) -> list[Tensor]:
    return list(inputs)


@op("SequenceAt", since=11, constants=(1,))
def sequence_at(sequence: list[Tensor], position: Tensor) -> Tensor:
    return sequence[int(position)]


@op("SequenceInsert", since=11, constants=(2,))
def sequence_insert(
    sequence: list[Tensor], tensor: Tensor, position: Tensor | None = None
) -> list[Tensor]:
    where = len(sequence) if position is None else int(position)
    return [*sequence[:where], tensor, *sequence[where:]]


@op("SequenceErase", since=11, constants=(1,))
def sequence_erase(sequence: list[Tensor], position: Tensor | None = None) -> list[Tensor]:
    where = range(len(sequence))[-1 if position is None else int(position)]
    return [*sequence[:where], *sequence[where + 1 :]]


@op("SequenceLength", since=11)
def sequence_length(sequence: list[Tensor]) -> Tensor:
    return torch.tensor(len(sequence))


@op("SequenceMap", since=17)
def sequence_map(
    sequence: list[Any], *others: Any, body: Callable[..., tuple[Any, ...]], n_outputs: int = 1
) -> tuple[list[Any], ...]:
    rows = [
        body(item, *(o[i] if isinstance(o, list) else o for o in others))
        for i, item in enumerate(sequence)
    ]
    return tuple([row[k] for row in rows] for k in range(n_outputs))


@op("SplitToSequence", since=11, constants=(1,))
def split_to_sequence(
    x: Tensor, split: Tensor | None = None, *, axis: int = 0, keepdims: int = 1
) -> list[Tensor]:
    if split is None:
        return list(
            torch.split_with_sizes(x, [1] * x.shape[axis], axis) if keepdims else x.unbind(axis)
        )
    sizes = to_ints(split)
    if split.dim() == 0:
        whole, rest = divmod(x.shape[axis], sizes[0])
        sizes = [sizes[0]] * whole + [rest] * (rest > 0)
    return list(torch.split_with_sizes(x, sizes, axis))


@op("ConcatFromSequence", since=11)
def concat_from_sequence(sequence: list[Tensor], *, axis: int, new_axis: int = 0) -> Tensor:
    return torch.stack(sequence, axis) if new_axis else torch.cat(sequence, axis)


@op("Optional", since=15)
def optional(value: Any = None, *, type: Any = None) -> Any:
    return value


@op("OptionalHasElement", since=15)
def optional_has_element(value: Any = None) -> Tensor:
    return torch.tensor(value is not None)


@op("OptionalGetElement", since=15)
def optional_get_element(value: Any) -> Any:
    if value is None:
        raise ValueError("the optional is empty")
    return value
