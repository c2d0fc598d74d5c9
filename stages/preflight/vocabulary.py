"""Tokens that a model has no row for: found before anything is trained."""

from __future__ import annotations

import json
from collections.abc import Mapping

from onnx import GraphProto

from ltp_pipeline.data import Data
from ltp_pipeline.data.checks import chunks
from ltp_pipeline.data.ragged import RaggedSamples
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph import attribute, is_standard, reads, stored

_SAME_VALUES = ("Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten")


def sizes(graph: GraphProto) -> Mapping[str, int]:
    """For each input that picks rows of a table, how many rows that has: the fewest, where there are several."""
    tables, names = stored(graph), {i.name for i in graph.input}
    found: dict[str, int] = {}
    for node, slot, name in reads(graph, through=_SAME_VALUES):
        if slot == 1 and name in names and is_standard(node, "Gather") and node.input[0] in tables:
            rows = tables[node.input[0]].dims[attribute(node, "axis", 0)]
            found[name] = min(rows, found.get(name, rows))
    return found


def check(graph: GraphProto, data: Data) -> None:
    """Refuse tokens outside the table of their input."""
    for name, size in sizes(graph).items():
        for split in data.splits:
            samples = split.inputs[name].samples
            if isinstance(samples, RaggedSamples) and not -size <= samples.pad < size:
                raise InputError(
                    f"input {name!r} is filled up with {samples.pad:g}, and the model's vocabulary has {size} "
                    f"(0..{size - 1})",
                    f"set pad under [data.inputs.{json.dumps(name)}] to the token that the model was trained with",
                )
            for _, chunk in chunks(samples) if samples.dtype.kind in "iu" else ():
                if not chunk.size or (int(chunk.min()) >= -size and int(chunk.max()) < size):
                    continue
                worst = int(chunk.max()) if int(chunk.max()) >= size else int(chunk.min())
                rows = f"{size} rows (0..{size - 1})"
                raise InputError(
                    f"the data of input {name!r} hold token {worst}, and the model's table has {rows}",
                    "make the tokens with the tokenizer that the model was trained with",
                )
