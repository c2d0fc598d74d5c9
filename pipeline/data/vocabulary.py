"""Tokens that a model has no row for: found before anything is trained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from ltp_pipeline.data.checks import iter_chunks, sample_of
from ltp_pipeline.data.dataset import DatasetSplits
from ltp_pipeline.data.sequences import RaggedSamples
from ltp_pipeline.errors import InputError
from ltp_pipeline.system.arrays import Array

if TYPE_CHECKING:
    from onnx import GraphProto


def find_table_sizes(graph: GraphProto) -> Mapping[str, int]:
    """For each input that picks rows of a table, how many rows that has: the fewest, where there are several."""
    from ltp_pipeline.graph.nodes import (  # reading data needs no onnx
        VIEW_OPERATORS,
        get_attribute,
        is_standard,
    )
    from ltp_pipeline.graph.tensors import collect_stored_tensors
    from ltp_pipeline.graph.view import iter_uses

    tables = collect_stored_tensors(graph)
    names = {
        i.name for i in graph.input if i.name not in tables
    }  # others have a default and need no data
    found: dict[str, int] = {}
    for node, slot, name in iter_uses(graph, through=VIEW_OPERATORS):
        if slot == 1 and name in names and is_standard(node, "Gather") and node.input[0] in tables:
            rows = tables[node.input[0]].dims[get_attribute(node, "axis", 0)]
            found[name] = min(rows, found.get(name, rows))
    return found


def check_tokens(rows: Mapping[str, int], data: DatasetSplits) -> None:
    """Refuse tokens outside the table of their input, whose rows are counted."""
    for name, size in rows.items():
        for samples in {
            id(s.inputs[name].samples): s.inputs[name].samples for s in data.splits
        }.values():
            if isinstance(samples, RaggedSamples) and not -size <= samples.pad < size:
                raise InputError(
                    f"input {name!r} is filled up with {samples.pad:g}, and the model's vocabulary has {size} "
                    f"(0..{size - 1})",
                    f"set padding_value under [data.inputs.{json.dumps(name)}] to the token that the model was trained with",
                )
            for start, chunk in iter_chunks(samples) if samples.dtype.kind != "b" else ():
                place = find_unknown_token(chunk, size)
                if place is not None:
                    raise_unknown_token(
                        name, chunk[place], sample_of(samples, start + int(place[0])), size
                    )


def find_unknown_token(tokens: Array, size: int) -> tuple[int, ...] | None:
    """The place of the first token that is no row of a table of this size; negative ones count from its end."""
    if not tokens.size or (tokens.min() >= -size and tokens.max() < size):
        return None
    return tuple(int(i) for i in np.argwhere((tokens < -size) | (tokens >= size))[0])


def raise_unknown_token(name: str, token: int, sample: int, size: int) -> NoReturn:
    """Say which token of which sample a table of this size has no row for."""
    raise InputError(
        f"sample {sample} of input {name!r} holds token {int(token)}, and the model's table has {size} rows "
        f"(0..{size - 1})",
        "make the tokens with the tokenizer that the model was trained with",
    )
