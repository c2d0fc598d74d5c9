"""Samples whose inputs and labels are not of one length are found before training."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ltp_pipeline.data.open import open_data
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import DataSettings, TaskSettings

LENGTHS = [3, 1, 2, 4, 2, 3]
IDS = TensorInfo("ids", "INT64", ("N", "S"))
TAGS = TensorInfo("tags", "FLOAT", ("N", "S", 7))


def ragged(name: str, lengths: list[int], kind: str = "int64") -> dict[str, np.ndarray]:
    return {name: np.ones(sum(lengths), kind), f"{name}_offsets": np.cumsum([0, *lengths])}


def opened(
    folder: Path,
    inputs: list[TensorInfo],
    outputs: Any = (),
    task: Any = None,
    **arrays: np.ndarray,
) -> Any:
    np.savez(folder / "data.npz", **arrays)
    return open_data(
        DataSettings(path=folder / "data.npz"), inputs, 0, task or TaskSettings(), outputs
    )


def changed(place: int, length: int) -> list[int]:
    return [*LENGTHS[:place], length, *LENGTHS[place + 1 :]]


def test_inputs_that_share_a_dimension_have_one_length_in_each_sample(tmp_path: Path):
    inputs = [IDS, TensorInfo("kinds", "INT64", ("N", "S"))]
    opened(tmp_path, inputs, **ragged("ids", LENGTHS), **ragged("kinds", LENGTHS))
    said = "sample 3 has 4 values in ids of data.npz and 5 in kinds of data.npz; .* share the dimension 'S'"
    with pytest.raises(InputError, match=said):
        opened(tmp_path, inputs, **ragged("ids", LENGTHS), **ragged("kinds", changed(3, 5)))


def test_inputs_of_other_dimensions_may_differ(tmp_path: Path):
    inputs = [IDS, TensorInfo("kinds", "INT64", ("N", "T"))]
    assert opened(tmp_path, inputs, **ragged("ids", LENGTHS), **ragged("kinds", changed(3, 5)))


def test_a_name_that_the_batch_has_too_promises_nothing(tmp_path: Path):
    inputs = [TensorInfo(name, "INT64", ("any", "any")) for name in ("ids", "kinds")]
    assert opened(tmp_path, inputs, **ragged("ids", LENGTHS), **ragged("kinds", changed(3, 5)))


def test_arrays_that_share_a_dimension_have_one_size(tmp_path: Path):
    inputs = [
        TensorInfo("a", "FLOAT", ("N", 3, "H", "W")),
        TensorInfo("b", "FLOAT", ("N", "H", "W")),
    ]
    a = np.zeros((6, 3, 4, 5), np.float32)
    opened(tmp_path, inputs, a=a, b=a[:, 0])
    with pytest.raises(
        InputError, match=r"sample 0 has 5 values in a of data.npz and 4 in b .* dimension 'W'"
    ):
        opened(tmp_path, inputs, a=a, b=a[:, 0, :, :4])


@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize(
    ("ids", "tags"),
    [
        (IDS, TAGS),
        (
            TensorInfo("ids", "INT64", ("N", None)),
            TensorInfo("tags", "FLOAT", None),
        ),  # told by most of the samples
        (TensorInfo("ids", "INT64", ("N", 8)), TensorInfo("tags", "FLOAT", ("N", 8, 7))),
    ],
)
def test_a_sample_has_one_label_for_each_value(
    tmp_path: Path, ids: TensorInfo, tags: TensorInfo, length: int
):
    arrays = ragged("ids", LENGTHS)
    opened(tmp_path, [ids], [tags], **arrays, **ragged("y", LENGTHS))
    said = f"sample 4 has {length} labels? in y of data.npz and 2 values in ids of data.npz"
    with pytest.raises(InputError, match=said):
        opened(tmp_path, [ids], [tags], **arrays, **ragged("y", changed(4, length)))


def test_labels_of_an_output_that_is_shorter_than_the_input_are_taken(tmp_path: Path):
    halves = [(n + 1) // 2 for n in LENGTHS]
    shorter = TensorInfo("tags", "FLOAT", ("N", "S_out", 7))
    assert opened(tmp_path, [IDS], [shorter], **ragged("ids", LENGTHS), **ragged("y", halves))


def test_labels_may_be_those_of_any_input_that_an_output_is_for(tmp_path: Path):
    inputs = [IDS, TensorInfo("answer", "INT64", ("N", "T"))]
    outputs = [
        TensorInfo("encoded", "FLOAT", ("N", "S", 9)),
        TensorInfo("tags", "FLOAT", ("N", "T", 7)),
    ]
    arrays = {**ragged("ids", LENGTHS), **ragged("answer", LENGTHS[::-1])}
    assert opened(tmp_path, inputs, outputs, **arrays, **ragged("y", LENGTHS[::-1]))
    with pytest.raises(
        InputError, match=r"sample 1 has 2 labels in y of data.npz and 1 value in ids"
    ):
        opened(
            tmp_path,
            inputs,
            outputs,
            TaskSettings(output="encoded"),
            **arrays,
            **ragged("y", LENGTHS[::-1]),
        )


def test_arrays_may_have_fewer_labels_but_not_more(tmp_path: Path):
    ids = np.ones((6, 4), np.int64)
    assert opened(tmp_path, [IDS], [TAGS], ids=ids, **ragged("y", LENGTHS))
    with pytest.raises(
        InputError, match=r"sample 2 has 5 labels in y of data.npz and 4 values in ids"
    ):
        opened(tmp_path, [IDS], [TAGS], ids=ids, **ragged("y", changed(2, 5)))


def test_labels_of_any_type_are_filled_up_with_the_ignored_one(tmp_path: Path):
    for kind in ("uint8", "bool", "int16", "int64"):
        data = opened(
            tmp_path, [IDS], [TAGS], **ragged("ids", LENGTHS), **ragged("y", LENGTHS, kind)
        )
        found = data.train.read_first(4).targets["target"]
        assert (found.dtype, sorted(set(found.ravel()))) == (np.int64, [-100, 1])
