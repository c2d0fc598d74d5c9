"""ONNX files: reading, writing, external data, and damaged files."""

import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.files.decode import read_tensors
from ltp_pipeline.exporters.files.labels import read_metadata, write_metadata
from ltp_pipeline.exporters.files.read_back import verify_weights
from ltp_pipeline.graph import storage
from ltp_pipeline.graph.storage import read_model, read_model_with_data, write_model
from ltp_pipeline.graph.tensors import iter_tensors
from ltp_pipeline.system import files
from tests.support.encoded import make_described, model_of
from tests.support.models import sparse_array


def external(tmp_path, array=None, **entries):
    """Write a model file with its weight in weights.bin."""
    array = sparse_array() if array is None else array
    model = make_described(array)
    tensor = model.graph.initializer[0]
    (tmp_path / "weights.bin").write_bytes(b"head" * 16 + tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    external_entries = {"location": "weights.bin", "offset": 64, "length": array.nbytes} | entries
    for key, value in external_entries.items():
        tensor.external_data.add(key=key, value=str(value))
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("format_", list(ENCODINGS))
def test_write_model_keeps_everything_but_the_weights(tmp_path, format_):
    model = model_of(sparse_array())
    encoded = ENCODINGS[format_].encode(model, ["w"])
    encoded = write_metadata(encoded, format=format_, nonzeros=7)
    write_model(encoded, tmp_path / "m.onnx")
    read_back = read_model(tmp_path / "m.onnx")
    proto = read_back.to_proto()
    assert proto.SerializeToString() == encoded.to_proto().SerializeToString()
    assert proto.producer_name == "me"
    assert proto.graph.doc_string == "graph"
    assert proto.graph.node[-1].SerializeToString() == model.graph.node[0].SerializeToString()
    assert {e.key: e.value for e in proto.metadata_props} == {
        "key": "value",
        "ltp.format": format_,
        "ltp.nonzeros": "7",
    }
    assert read_metadata(read_back) == {"format": format_, "nonzeros": "7"}
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def outputs_of_every_format(model, folder, outside):
    """Write the model in every encoding and return the distinct outputs as bytes."""
    x = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
    runs = set()
    for format_ in ENCODINGS.values():
        path = folder / f"model.{format_.name}.onnx"
        write_model(format_.encode(model, ["w"]), path, outside)
        verify_weights(path, {"w": sparse_array()}, format_.name)
        runs.add(
            ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            .run(None, {"x": x})[0]
            .tobytes()
        )
    return runs


def test_model_with_external_data_is_written_as_one_file(tmp_path):
    model, data = read_model_with_data(external(tmp_path))
    assert data == [tmp_path.resolve() / "weights.bin"]
    assert (read_tensors(model, ["w"])["w"] == sparse_array()).all()
    assert len(outputs_of_every_format(model, tmp_path / "out", outside=False)) == 1
    files = {p.name for p in (tmp_path / "out").iterdir()}
    assert files == {f"model.{f.name}.onnx" for f in ENCODINGS.values()}
    for name in files:
        written = onnx.load(tmp_path / "out" / name, load_external_data=False)
        assert not any(tensor.external_data for tensor in iter_tensors(written))
        onnx.checker.check_model(str(tmp_path / "out" / name))


def test_external_data_are_written_on_request(tmp_path):
    assert (
        len(outputs_of_every_format(model_of(sparse_array()), tmp_path / "out", outside=True)) == 1
    )
    assert (tmp_path / "out" / "model.dense.onnx.data").stat().st_size >= sparse_array().nbytes
    assert not (
        tmp_path / "out" / "model.sparse.onnx.data"
    ).exists()  # nothing in it is large enough
    written = onnx.load(tmp_path / "out" / "model.sparse.onnx", load_external_data=False)
    assert not any(tensor.external_data for tensor in iter_tensors(written))


def test_large_packed_parts_are_written_as_external_data(tmp_path):
    array = sparse_array((256, 256), 0.1)
    model = read_model(external(tmp_path, array))
    path = tmp_path / "packed.onnx"
    write_model(ENCODINGS["packed"].encode(model, ["w"]), path, external=True)
    assert path.with_name("packed.onnx.data").exists()
    verify_weights(path, {"w": array}, "packed")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    assert [n.op_type for n in onnx.load(tmp_path / "optimized.onnx").graph.node] == ["MatMul"]


def test_model_over_the_limit_is_written_with_external_data(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "MAX_BYTES", storage.MARGIN + 1000)
    write_model(model_of(sparse_array()), tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx.data").exists()
    verify_weights(tmp_path / "m.onnx", {"w": sparse_array()}, "dense")


@pytest.mark.parametrize(
    "entries",
    [
        {"location": "/etc/hostname"},
        {"location": "../weights.bin"},
        {"location": "a/../../weights.bin"},
        {"location": "C:\\weights.bin"},
        {"location": "..\\weights.bin"},
        {"location": ""},
        {"location": "."},
        {"location": "missing.bin"},
        {"location": "link.bin"},
        {"location": "near.bin"},
        {"location": "weights.bin\0"},
        {"location": "w" * 4000},
        {"location": "w/" * 3000},
        {"offset": "x"},
        {"offset": -1},
        {"offset": 2**40},
        {"length": 3},
        {"length": 2**40},
    ],
    ids=str,
)
def test_external_data_outside_the_folder_or_file_is_rejected(tmp_path, entries):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "weights.bin").write_bytes(bytes(1 << 16))
    path = external(folder, **entries)
    (folder / "link.bin").symlink_to(tmp_path / "weights.bin")
    (folder / "near.bin").symlink_to(folder / "weights.bin")
    with pytest.raises(InputError, match="'w'"):
        read_model(path)


def test_external_data_of_impossible_size_is_rejected(tmp_path):
    path = external(tmp_path)
    model = onnx.ModelProto.FromString(path.read_bytes())
    for dims in ([2**40, 2**40], [-4, 4]):
        model.graph.initializer[0].dims[:] = dims
        path.write_bytes(model.SerializeToString())
        with pytest.raises(InputError, match="'w'"):
            read_model(path)


def test_damaged_files_are_rejected(tmp_path):
    good = make_described(sparse_array()).SerializeToString()
    contents = {
        "empty": b"",
        "jpeg": b"\xff\xd8\xff\xe0\x00\x10JFIF" + os.urandom(500),
        "text": b"hello, I am no model\n" * 20,
        "truncated": good[: len(good) // 2],
        "nearly nothing": good[:3],
        "zeros": bytes(100),
    }
    for name, content in contents.items():
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(content)
        with pytest.raises(InputError) as caught:
            read_model(path)
        assert caught.value.hint
        assert caught.value.exit_code == 3
    for path in (tmp_path, tmp_path / "nowhere.onnx", tmp_path / "empty.onnx" / "x.onnx"):
        with pytest.raises(InputError):
            read_model(path)


def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    write_model(model_of(sparse_array()), path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(InputError, match=r"/m\.onnx.*\bspace\b"):
        write_model(model_of(sparse_array() * 2), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_device_is_rejected() -> None:
    with pytest.raises(InputError, match="/dev/zero"):
        read_model(Path("/dev/zero"))
