"""Files are written and verified, and removed if verification fails."""

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import ModelProto, helper

from ltp_pipeline.errors import ExportFailed, InputError
from ltp_pipeline.exporters import encodings
from ltp_pipeline.exporters.files.count import count_file_sparsity
from ltp_pipeline.exporters.files.decode import read_tensors
from ltp_pipeline.exporters.files.labels import read_metadata
from ltp_pipeline.exporters.graphs import deploy
from ltp_pipeline.exporters.sparse_ops import library
from ltp_pipeline.graph import storage
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.storage import read_model
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.schema import ExportSettings
from ltp_pipeline.stages import export, import_model
from ltp_pipeline.stages.export import ExportResult
from ltp_pipeline.stages.write_back import to_file_weights
from tests.support.kernels import needs_kernels, raise_missing
from tests.support.models import conv_bn_classifier, prune, random_inputs

ENCODINGS = ("sparse", "packed", "dense")
KERNELS = ("conv1.weight", "conv2.weight", "fc.weight")


def exported(tmp_path: Path, settings: ExportSettings, model: ModelProto | None = None) -> list:
    return export_of(tmp_path, settings, model).files


def export_of(
    tmp_path: Path, settings: ExportSettings, model: ModelProto | None = None
) -> ExportResult:
    network, state = import_model.import_model(prune(model or conv_bn_classifier(channels=24)))
    kernels = [k.name for k in network.layer_weights]
    feeds = random_inputs(network.file.model.proto, batch=4)
    return export.run(
        network.file,
        to_file_weights(network, state),
        kernels,
        settings,
        RunDirectory(tmp_path),
        feeds,
    )


def test_run_writes_deploy_files_with_same_counts(tmp_path: Path, without_onnxsim: None):
    files = exported(
        tmp_path, ExportSettings(formats=(*ENCODINGS, *(f"deploy-{e}" for e in ENCODINGS)))
    )
    assert [f.result.name for f in files[3:]] == ["deploy-sparse", "deploy-packed", "deploy-dense"]
    assert [(f.result.graph, f.result.encoding) for f in files[3:]] == [
        ("deploy", encoding) for encoding in ENCODINGS
    ]
    assert [f.result.path for f in files[3:]] == [f"model.deploy.{f}.onnx" for f in ENCODINGS]
    counts = [count_file_sparsity(f.path, KERNELS) for f in files]
    assert all((c.layers, c.nonzeros) == (counts[0].layers, counts[0].nonzeros) for c in counts)
    assert [c.model for c in counts] == [counts[0].model] * 3 + [counts[3].model] * 3
    assert counts[3].model.nonzeros < counts[0].model.nonzeros  # the norms are gone
    assert read_metadata(read_model(files[4].path))["graph"] == "deploy"
    assert "nodes became" in files[4].notes[0]


@pytest.mark.parametrize("values", ["fp16", "int8"])
def test_run_writes_rounded_files_with_labels(tmp_path: Path, without_onnxsim: None, values: str):
    files = exported(
        tmp_path,
        ExportSettings(
            formats=("sparse", "packed", "deploy-sparse", "deploy"), weight_storage=values
        ),
    )
    assert [f.result.weight_storage for f in files] == 2 * ["exact", "exact", values]
    names = ("sparse", "packed", f"packed.rounded-{values}")
    assert [f.result.path for f in files] == [
        f"model.{graph}{n}.onnx" for graph in ("", "deploy.") for n in names
    ]
    for exact, rounded in (files[1:3], files[4:]):
        a, b = (read_tensors(read_model(f.path), KERNELS) for f in (exact, rounded))
        assert (a["conv2.weight"] != b["conv2.weight"]).any()
        np.testing.assert_allclose(
            a["conv2.weight"], b["conv2.weight"], atol=0.01 * np.abs(a["conv2.weight"]).max()
        )
        model = read_model(rounded.path)
        assert read_metadata(model)["values"] == values
        assert rounded.result.bytes < 1.05 * exact.result.bytes


def test_run_with_rounding_writes_same_exact_file(tmp_path: Path, without_onnxsim: None):
    (plain,) = exported(tmp_path / "plain", ExportSettings(formats=("packed",)))
    exact, *rounded = exported(
        tmp_path / "both", ExportSettings(formats=("packed",), weight_storage=("int8", "fp16"))
    )
    assert (exact.result.sha256, exact.result.weight_storage) == (plain.result.sha256, "exact")
    assert [f.result.weight_storage for f in rounded] == ["int8", "fp16"]
    assert len({f.result.sha256 for f in (exact, *rounded)}) == 3


def test_run_without_packed_tensors_writes_no_rounded_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    packed = encodings.ENCODINGS["packed"]
    monkeypatch.setitem(
        encodings.ENCODINGS, "packed", replace(packed, find_encoded_names=lambda _: [])
    )
    files = exported(tmp_path, ExportSettings(formats=("packed",), weight_storage="int8"))
    assert [(f.result.path, f.result.weight_storage) for f in files] == [
        ("model.packed.onnx", "exact")
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["model.packed.onnx"]


def changed(monkeypatch: pytest.MonkeyPatch, change: Callable[[ModelProto], None]) -> None:
    """Let the packed format do something that its weights do not show."""
    packed = encodings.ENCODINGS["packed"]

    def wrong(model: OnnxModel, kernels: Collection[str]) -> OnnxModel:
        built = packed.encode(model, kernels).to_proto()
        change(built)
        return OnnxModel.from_proto(built)

    monkeypatch.setitem(encodings.ENCODINGS, "packed", replace(packed, encode=wrong))


def another_activation(model: ModelProto) -> None:
    next(n for n in model.graph.node if n.op_type == "Relu").op_type = "Softplus"


def test_run_removes_file_with_other_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    changed(monkeypatch, another_activation)
    with pytest.raises(ExportFailed, match=r"^model\.packed\.onnx ") as caught:
        exported(tmp_path, ExportSettings(formats=("packed",)))
    assert caught.value.exit_code == 6
    assert list(tmp_path.iterdir()) == []


def test_run_keeps_files_written_before_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write = storage.write_model

    def full_disk(model: OnnxModel, path: Path, external: bool) -> None:
        if path.name == "model.dense.onnx":
            raise InputError("the disk is full", "free some")
        write(model, path, external)

    monkeypatch.setattr(storage, "write_model", full_disk)
    with pytest.raises(InputError, match=r"^the disk is full$"):
        exported(tmp_path, ExportSettings(formats=("sparse", "packed", "dense")))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "model.packed.onnx",
        "model.sparse.onnx",
    ]


def test_run_interrupted_removes_unverified_files(tmp_path: Path, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ltp_pipeline.exporters.files.run_proof.verify_outputs", interrupted)
    with pytest.raises(KeyboardInterrupt):
        exported(tmp_path, ExportSettings(formats=("sparse", "packed", "dense")))
    assert list(tmp_path.iterdir()) == []


def test_run_removes_files_after_failed_one(tmp_path: Path, monkeypatch):
    changed(monkeypatch, another_activation)
    with pytest.raises(ExportFailed, match=r"^model\.packed\.onnx "):
        exported(tmp_path, ExportSettings(formats=("sparse", "packed", "dense")))
    assert [path.name for path in tmp_path.iterdir()] == ["model.sparse.onnx"]


def test_run_removes_file_whose_decoding_is_not_folded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def late_node(model: ModelProto) -> None:
        first = next(i for i, n in enumerate(model.graph.node) if n.op_type == "Relu")
        name = model.graph.node[first].output[0]
        for node in model.graph.node[first + 1 :]:
            node.input[:] = ["ltp/late" if n == name else n for n in node.input]
        model.graph.node.insert(first + 1, helper.make_node("Abs", [name], ["ltp/late"]))

    changed(monkeypatch, late_node)
    with pytest.raises(ExportFailed, match=r"^model\.packed\.onnx .* \d+ nodes"):
        exported(tmp_path, ExportSettings(formats=("packed",)))
    assert list(tmp_path.iterdir()) == []


def test_run_with_other_deploy_outputs_raises_export_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def wrong(model: OnnxModel, kernels: object) -> tuple[OnnxModel, str]:
        return model.with_weights({"fc.bias": model.get_array("fc.bias") + np.float32(1e-3)}), ""

    monkeypatch.setattr(deploy, "rewrite_model", wrong)
    with pytest.raises(ExportFailed, match=r"deploy.* 0\.\d"):
        exported(tmp_path, ExportSettings(formats=("dense", "deploy-dense")))
    assert [p.name for p in tmp_path.iterdir()] == []


def test_run_with_deploy_only_writes_no_original_file(tmp_path: Path, without_onnxsim: None):
    (file,) = exported(tmp_path, ExportSettings(formats=("deploy",)))
    assert (file.result.graph, file.result.encoding, file.result.name, file.result.path) == (
        "deploy",
        "packed",
        "deploy-packed",
        "model.deploy.packed.onnx",
    )
    result = read_metadata(read_model(file.path))
    assert (result["format"], result["graph"]) == ("packed", "deploy")
    assert [path.name for path in tmp_path.iterdir()] == ["model.deploy.packed.onnx"]


def test_run_skips_fast_files_that_are_not_faster(
    tmp_path: Path, without_onnxsim: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "sparse_ops_library", raise_missing)
    exports = export_of(tmp_path, ExportSettings(formats=("packed", "fast", "fast-dense")))
    assert [f.result.name for f in exports.files] == ["packed"]
    assert set(exports.skipped) == {"fast-packed", "fast-dense"}
    assert "was not built" in exports.skipped["fast-packed"]
    assert sorted(p.name for p in tmp_path.glob("*.onnx")) == ["model.packed.onnx"]


def test_run_with_fast_only_falls_back_to_deploy(
    tmp_path: Path, without_onnxsim: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "sparse_ops_library", raise_missing)
    exports = export_of(tmp_path, ExportSettings(formats=("fast",)))
    assert [f.result.name for f in exports.files] == ["deploy-packed"]
    assert set(exports.skipped) == {"fast-packed"}


@needs_kernels
def test_run_verifies_fast_file_without_library(
    tmp_path: Path, without_onnxsim: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def changed(model: Path, feeds: dict) -> list:
        asked.append(model.name)
        return [np.full((1,), len(asked), np.float32)]

    settings = ExportSettings(formats=("fast",), accelerate_min_sparsity=0.0)
    assert [
        f.result.sparse_kernels is not None for f in export_of(tmp_path / "good", settings).files
    ] == [True]
    runner = SimpleNamespace(run_model=changed, FAILURES=())
    monkeypatch.setattr(export, "onnxruntime_child", runner)
    with pytest.raises(ExportFailed, match=r"^model\.fast\.packed\.onnx .*\blibrary\b"):
        export_of(tmp_path / "bad", settings)
    assert asked == ["model.fast.packed.onnx", "dense.onnx"]
    assert not list((tmp_path / "bad").glob("*.onnx"))


@pytest.mark.parametrize("with_data", [False, True])
def test_move_when_done_moves_file_with_data(tmp_path: Path, with_data: bool) -> None:
    target, data = tmp_path / "new" / "model.onnx", tmp_path / "new" / "model.onnx.data"
    target.parent.mkdir()
    target.write_text("older")
    data.write_text("of the older one")
    with export.move_when_done(target) as path:
        path.write_text("new")
        if with_data:
            path.with_name(data.name).write_text("of the new one")
        assert target.read_text() == "older"
    assert target.read_text() == "new"
    assert (data.read_text() if data.exists() else "") == ("of the new one" if with_data else "")
    assert len(list(target.parent.iterdir())) == 1 + with_data


def test_move_when_done_after_error_keeps_older_file(
    tmp_path: Path,
) -> None:
    target = tmp_path / "model.onnx"
    target.write_text("older")

    def fail() -> None:
        with export.move_when_done(target) as path:
            path.write_text("new")
            raise ExportFailed(f"cannot prove {path}", "ask")

    with pytest.raises(ExportFailed, match=r"^cannot prove .*/model\.onnx") as result:
        fail()
    assert str(target) in str(result.value)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["older"]
