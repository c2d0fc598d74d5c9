"""Model files, their external data, and damaged files."""

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto, TensorProto

from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.storage import write_model
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.write_back import to_file_weights
from tests.support.imported import import_network
from tests.support.models import Graph, conv_bn_classifier, mlp, random_inputs, run_onnxruntime


def test_read_model_file_sorts_nodes() -> None:
    model = conv_bn_classifier()
    expected = [node.name or node.output[0] for node in model.graph.node]
    nodes = list(model.graph.node)[::-1]
    mixed = ModelProto()
    mixed.CopyFrom(model)
    del mixed.graph.node[:]
    mixed.graph.node.extend(nodes)
    file = read_model_file(mixed)
    assert [node.name or node.output[0] for node in file.model.graph.node] == expected
    assert [node.name or node.output[0] for node in mixed.graph.node] == expected[::-1]


def test_cycle_of_nodes_is_rejected() -> None:
    g = Graph()
    g.add("Add", "x", "b", outputs=["a"])
    g.add("Relu", "a", outputs=["b"])
    with pytest.raises(InputError, match="input 'b'"):
        read_model_file(g.model({"x": ("N", 6)}, ["b"]))


def test_external_data_is_read_and_written_into_the_file(tmp_path) -> None:
    model = conv_bn_classifier(channels=32)
    onnx.save(
        model,
        tmp_path / "model.onnx",
        save_as_external_data=True,
        location="w.bin",
        size_threshold=512,
    )
    result = import_network(tmp_path / "model.onnx")
    assert result.parity is not None
    with torch.no_grad():
        result.state["conv2.weight"].mul_(2)
    write_model(
        result.file.model.with_weights(to_file_weights(*result)), tmp_path / "out" / "new.onnx"
    )
    raw = onnx.load(tmp_path / "out" / "new.onnx", load_external_data=False)
    assert not {
        t.name
        for t in raw.graph.initializer
        if t.data_location == TensorProto.EXTERNAL or t.external_data
    }
    feeds = random_inputs(model)
    actual = result(torch.from_numpy(feeds["x"]))[0].detach().numpy()
    assert np.allclose(
        actual, run_onnxruntime(str(tmp_path / "out" / "new.onnx"), feeds)[0], atol=1e-5
    )
    assert result.file.num_bytes > (tmp_path / "w.bin").stat().st_size


def test_hash_depends_on_the_data_file(tmp_path) -> None:
    onnx.save(
        conv_bn_classifier(32),
        tmp_path / "a.onnx",
        save_as_external_data=True,
        location="w",
        size_threshold=512,
    )
    first = import_network(tmp_path / "a.onnx").file.sha256
    data = bytearray((tmp_path / "w").read_bytes())
    data[3] ^= 1
    (tmp_path / "w").write_bytes(data)
    assert import_network(tmp_path / "a.onnx").file.sha256 != first


def test_model_over_the_limit_of_a_message_is_imported(tmp_path, monkeypatch) -> None:
    from ltp_pipeline.graph import storage

    monkeypatch.setattr(storage, "MAX_BYTES", 20_000 + storage.MARGIN)
    model = conv_bn_classifier(channels=32)
    result = import_network(model)
    assert result.parity is not None
    write_model(result.file.model.with_weights(to_file_weights(*result)), tmp_path / "large.onnx")
    assert (tmp_path / "large.onnx.data").is_file()
    assert import_network(tmp_path / "large.onnx").parity is not None


def save_external(model: ModelProto, folder, location: str = "w.bin") -> None:
    onnx.save(
        model,
        folder / "model.onnx",
        save_as_external_data=True,
        location=location,
        size_threshold=64,
    )


@pytest.mark.parametrize(
    "where", ["../w.bin", "/etc/hostname", "missing.bin", "", "sub/../../w.bin", "C:\\w.bin"]
)
def test_external_data_outside_the_folder_is_rejected(tmp_path, where: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    save_external(mlp(), folder)
    (tmp_path / "w.bin").write_bytes((folder / "w.bin").read_bytes())
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = where
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match=r"fc1\.weight"):
        read_model_file(folder / "model.onnx")


@pytest.mark.parametrize("inside", [True, False])
def test_external_data_behind_a_link_is_rejected(tmp_path, inside: bool) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    save_external(mlp(), folder)
    target = (folder if inside else tmp_path) / "real.bin"
    (folder / "w.bin").rename(target)
    (folder / "w.bin").symlink_to(target)
    with pytest.raises(InputError, match=r"fc1\.weight"):
        read_model_file(folder / "model.onnx")


def test_damaged_or_missing_file_is_rejected(tmp_path) -> None:
    content = conv_bn_classifier().SerializeToString()
    for name, part in {
        "empty": b"",
        "jpeg": b"\xff\xd8\xff\xe0JFIF" * 50,
        "half": content[: len(content) // 2],
    }.items():
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(part)
        with pytest.raises(InputError, match=name):
            read_model_file(path)
    for path in (tmp_path / "missing.onnx", tmp_path):
        with pytest.raises(InputError):
            read_model_file(path)
