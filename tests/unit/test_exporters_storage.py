"""Files: what is put back and read, what external data may do, and what bad files get."""

import os

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from ltp_pipeline import exporters, files
from ltp_pipeline.errors import ExportFailed, InputError
from ltp_pipeline.exporters import tensors
from ltp_pipeline.graph import Model, every_tensor, read, read_with_data, storage, write


def model_of(array):
    return Model.of(proto_of(array))


def proto_of(array, name="w"):
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", name], ["y"], name="multiply", doc_string="node")],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, array.shape[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, array.shape[1]])],
        [numpy_helper.from_array(array, name), numpy_helper.from_array(np.float32([1]), "other")],
        doc_string="graph",
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8, producer_name="me")
    helper.set_model_props(model, {"key": "value"})
    return model


def pruned(shape=(64, 64), density=0.05):
    rng = np.random.default_rng(0)
    array = rng.standard_normal(shape).astype(np.float32)
    array[rng.random(shape) >= density] = 0
    return array


def external(tmp_path, array=None, **entries):
    """A model file with its weight in weights.bin."""
    array = pruned() if array is None else array
    model = proto_of(array)
    tensor = model.graph.initializer[0]
    (tmp_path / "weights.bin").write_bytes(b"head" * 16 + tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    given = {"location": "weights.bin", "offset": 64, "length": array.nbytes} | entries
    for key, value in given.items():
        tensor.external_data.add(key=key, value=str(value))
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_tensors_are_put_back_and_nothing_else_changes():
    model = model_of(pruned())
    new = np.ones((64, 64))
    copy = model.with_weights({"w": new})
    assert copy.graph.initializer[0].data_type == TensorProto.FLOAT
    assert (copy.array("w") == 1).all()
    back = copy.with_weights({"w": pruned()})
    assert back.filled().SerializeToString() == proto_of(pruned()).SerializeToString()


def test_tensors_stored_as_numbers_and_in_nested_places():
    proto = proto_of(pruned())
    proto.graph.initializer[0].CopyFrom(helper.make_tensor("w", TensorProto.FLOAT, [64, 64], pruned().reshape(-1)))
    copy = Model.of(proto).with_weights({"w": pruned() * 2})
    assert not copy.filled().graph.initializer[0].float_data
    assert (copy.array("w") == pruned() * 2).all()
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.zeros(3, np.float32)))
    proto.graph.node.insert(0, constant)
    model = Model.of(proto)
    copy = model.with_weights({"c": np.arange(3)})
    assert Model.of(copy.filled()).array("c").tolist() == [0, 1, 2]
    assert model.array("c").tolist() == [0, 0, 0]


def test_half_precision_is_kept():
    copy = model_of(pruned().astype(np.float16)).with_weights({"w": pruned()})
    assert copy.array("w").dtype == np.float16


def test_unknown_names_and_wrong_shapes_are_refused():
    with pytest.raises(ExportFailed, match="'v'"):
        model_of(pruned()).with_weights({"v": pruned()})
    with pytest.raises(ExportFailed, match="shape"):
        model_of(pruned()).with_weights({"w": pruned((4, 4))})
    with pytest.raises(InputError, match="'v'"):
        exporters.read_tensors(model_of(pruned()), ["v"])


def test_negative_zero_becomes_zero_in_kernels_only():
    array = np.full((64, 64), -0.0, np.float32)
    array[0, 0] = 1
    model = model_of(array).with_weights({"other": np.float32([-0.0])})
    for format_ in exporters.ENCODINGS.values():
        found = exporters.read_tensors(format_.encode(model, ["w"]), ["w", "other"])
        assert not np.signbit(found["w"]).any()
        assert np.signbit(found["other"]).all()
    assert np.signbit(model.array("w")).any()


@pytest.mark.parametrize("format_", list(exporters.ENCODINGS))
def test_all_else_survives(tmp_path, format_):
    model = model_of(pruned())
    encoded = exporters.ENCODINGS[format_].encode(model, ["w"])
    encoded = exporters.stamp(encoded, format=format_, nonzeros=7)
    write(encoded, tmp_path / "m.onnx")
    read_back = read(tmp_path / "m.onnx")
    found = read_back.filled()
    assert found.SerializeToString() == encoded.filled().SerializeToString()
    assert found.producer_name == "me"
    assert found.graph.doc_string == "graph"
    assert found.graph.node[-1].SerializeToString() == model.graph.node[0].SerializeToString()
    assert {e.key: e.value for e in found.metadata_props} == {
        "key": "value",
        "ltp.format": format_,
        "ltp.nonzeros": "7",
    }
    assert exporters.labels(read_back) == {"format": format_, "nonzeros": "7"}
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_stamping_twice_replaces():
    model = model_of(pruned())
    stamped = exporters.stamp(exporters.stamp(model, format="dense"), format="packed")
    assert exporters.labels(stamped) == {"format": "packed"}
    assert exporters.labels(model) == {}


def outputs_of_every_format(model, folder, outside):
    """Write the model in every format; the bytes of the distinct outputs."""
    x = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
    runs = set()
    for format_ in exporters.ENCODINGS.values():
        path = folder / f"model.{format_.name}.onnx"
        write(format_.encode(model, ["w"]), path, outside)
        exporters.verify(path, {"w": pruned()}, format_.name)
        runs.add(ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0].tobytes())
    return runs


def test_what_came_with_external_data_is_written_as_one_file(tmp_path):
    model, data = read_with_data(external(tmp_path))
    assert data == [tmp_path.resolve() / "weights.bin"]
    assert (exporters.read_tensors(model, ["w"])["w"] == pruned()).all()
    assert len(outputs_of_every_format(model, tmp_path / "out", outside=False)) == 1
    files = {p.name for p in (tmp_path / "out").iterdir()}
    assert files == {f"model.{f.name}.onnx" for f in exporters.ENCODINGS.values()}
    for name in files:
        written = onnx.load(tmp_path / "out" / name, load_external_data=False)
        assert not any(tensor.external_data for tensor in every_tensor(written))
        onnx.checker.check_model(str(tmp_path / "out" / name))


def test_data_go_outside_where_that_is_asked_for(tmp_path):
    assert len(outputs_of_every_format(model_of(pruned()), tmp_path / "out", outside=True)) == 1
    assert (tmp_path / "out" / "model.dense.onnx.data").stat().st_size >= pruned().nbytes
    assert not (tmp_path / "out" / "model.sparse.onnx.data").exists()  # nothing in it is large enough
    written = onnx.load(tmp_path / "out" / "model.sparse.onnx", load_external_data=False)
    assert not any(tensor.external_data for tensor in every_tensor(written))


def test_large_packed_parts_go_outside_with_external_data(tmp_path):
    array = pruned((256, 256), 0.1)
    model = read(external(tmp_path, array))
    path = tmp_path / "packed.onnx"
    write(exporters.ENCODINGS["packed"].encode(model, ["w"]), path, external=True)
    assert path.with_name("packed.onnx.data").exists()
    exporters.verify(path, {"w": array}, "packed")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    assert [n.op_type for n in onnx.load(tmp_path / "optimized.onnx").graph.node] == ["MatMul"]


def test_a_model_over_the_limit_is_written_with_external_data(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "LARGEST", storage.MARGIN + 1000)
    write(model_of(pruned()), tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx.data").exists()
    exporters.verify(tmp_path / "m.onnx", {"w": pruned()}, "dense")


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
        {"offset": "x"},
        {"offset": -1},
        {"offset": 2**40},
        {"length": 3},
        {"length": 2**40},
    ],
    ids=str,
)
def test_external_data_that_leads_astray_is_refused(tmp_path, entries):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "weights.bin").write_bytes(bytes(1 << 16))
    path = external(folder, **entries)
    (folder / "link.bin").symlink_to(tmp_path / "weights.bin")
    (folder / "near.bin").symlink_to(folder / "weights.bin")
    with pytest.raises(InputError, match="'w'"):
        read(path)


def test_external_data_of_impossible_size_is_refused(tmp_path):
    path = external(tmp_path)
    model = onnx.ModelProto.FromString(path.read_bytes())
    for dims in ([2**40, 2**40], [-4, 4]):
        model.graph.initializer[0].dims[:] = dims
        path.write_bytes(model.SerializeToString())
        with pytest.raises(InputError, match="'w'"):
            read(path)


def test_bad_files(tmp_path):
    good = proto_of(pruned()).SerializeToString()
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
            read(path)
        assert caught.value.remedy
        assert caught.value.exit_code == 3
    for path in (tmp_path, tmp_path / "nowhere.onnx", tmp_path / "empty.onnx" / "x.onnx"):
        with pytest.raises(InputError):
            read(path)


def test_a_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    write(model_of(pruned()), path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(InputError, match="No space left"):
        write(model_of(pruned() * 2), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_a_tensor_that_does_not_fit_its_dims_is_named():
    proto = proto_of(pruned())
    proto.graph.initializer[0].raw_data = b"\0" * 10
    model = Model.of(proto)
    with pytest.raises(InputError, match="'w'"):
        exporters.read_tensors(model, ["w"])
    with pytest.raises(InputError, match="'w'"):
        exporters.ENCODINGS["sparse"].encode(model, ["w"])


def test_special_values_survive_bit_for_bit():
    array = pruned()
    array[0, :4] = [np.inf, -np.inf, np.float32(1e-42), np.nan]
    tensors.bits(array)[0, 4] = 0x7FC12345
    model = model_of(array)
    for format_ in exporters.ENCODINGS.values():
        encoded = format_.encode(model, ["w"])
        exporters.verify(encoded, {"w": array}, format_.name)


@pytest.mark.parametrize("format_", list(exporters.ENCODINGS))
def test_labels_that_lie_are_found(format_):
    array = pruned()
    encoded = exporters.ENCODINGS[format_].encode(model_of(array), ["w"])
    exporters.check_labels(encoded, ["w"])
    nonzeros = int(np.count_nonzero(array))
    encoded = exporters.stamp(encoded, format=format_, nonzeros=nonzeros, sparsity=round(1 - nonzeros / array.size, 6))
    exporters.check_labels(encoded, ["w"])
    for lie in ({"nonzeros": nonzeros - 1}, {"nonzeros": "many"}, {"sparsity": 0.5}):
        with pytest.raises(InputError, match="ltp"):
            exporters.check_labels(exporters.stamp(encoded, **lie), ["w"])


@pytest.mark.parametrize("format_", ["sparse", "packed"])
def test_an_encoded_file_that_calls_itself_dense_is_found(format_):
    encoded = exporters.ENCODINGS[format_].encode(model_of(pruned()), ["w"])
    encoded = exporters.stamp(encoded, format="dense")
    with pytest.raises(InputError, match=f"but it is {format_}"):
        exporters.check_labels(encoded, ["w"])
