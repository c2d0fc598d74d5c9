"""BatchNormalization that an exporter folded away: restored for training, folded again in the files."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

import ltp_pipeline
from benchmarks.restore_bn import folded
from ltp_pipeline.config import KernelSettings, Settings, TrainSettings, load_settings
from ltp_pipeline.data.samples import Data, Split
from ltp_pipeline.progress import SilentReporter
from ltp_pipeline.runner import run
from ltp_pipeline.stages import export
from ltp_pipeline.stages.import_model import restore_bn
from ltp_pipeline.stages.import_model.network import Network
from ltp_pipeline.stages.lower import lift, lower
from ltp_pipeline.stages.train import Job, loop
from ltp_pipeline.stages.train.statistics import refreshed
from ltp_pipeline.task import Output
from ltp_pipeline.tasks import Classification
from ltp_pipeline.workspace import Workspace
from tests.support.cli import invoke
from tests.support.imported import Imported, imported
from tests.support.models import Graph, conv_bn_classifier
from tests.support.samples import only, split_of

CPU = torch.device("cpu")


def split(*shape: int, count: int = 64, dtype: type = np.float32) -> Split:
    samples = np.random.default_rng(1).standard_normal((count, *shape)).astype(dtype)
    return split_of(samples, np.zeros(count, np.int64))


def restored(model: ModelProto, data: Split | None = None, kernels: KernelSettings | None = None) -> Imported:
    network, state = ltp_pipeline.import_model(model, kernels)
    return Imported(*restore_bn.run(network, state, data or split(1, 8, 8), 16, CPU))


def outputs(network: Imported, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return network(x)[0]


def job_of(network: Network, folder: Path) -> Job:
    """What training of a network on the samples of `split` starts from."""
    data = Data(split(1, 8, 8), split(1, 8, 8), split(1, 8, 8), 5, "")
    task = Classification(Output(0, "logits", "scores"), 5)
    return Job(network, task, data, Settings(train=TrainSettings(batch_size=16)), Workspace(folder), CPU)


def stored(model: ModelProto) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def nodes(graph: onnx.GraphProto) -> list[NodeProto]:
    return [NodeProto.FromString(n.SerializeToString()) for n in graph.node]


def test_the_function_is_unchanged_and_the_norms_have_the_statistics_of_the_samples():
    model = folded(conv_bn_classifier())
    before, after = imported(model), restored(model)
    assert [n.kernel for n in after.norms] == ["conv1.weight", "conv2.weight"]
    x = torch.from_numpy(only(split(1, 8, 8).first(64)))
    assert torch.allclose(outputs(before, x), outputs(after, x), rtol=1e-5, atol=1e-5)
    # with the statistics of the batch in place of the stored ones it is the same function too
    with torch.no_grad():
        assert torch.allclose(after(x, training=True)[0], outputs(before, x), rtol=1e-3, atol=1e-3)
    assert after.kernels == before.kernels
    assert any("2 folded BatchNormalization restored" in note for note in after.notes)


def test_running_statistics_are_refreshed_as_those_of_any_norm(tmp_path: Path):
    network, state = restored(folded(conv_bn_classifier()))
    norm = network.norms[0]
    spoiled = {**state, norm.mean: state[norm.mean] + 1, norm.variance: state[norm.variance] * 2}
    found = refreshed(job_of(network, tmp_path), spoiled)
    assert torch.allclose(found[norm.mean], state[norm.mean], atol=1e-5)
    assert torch.allclose(found[norm.variance], state[norm.variance], rtol=0.02)


def test_untrained_it_folds_back_to_the_weights_of_the_file():
    model = folded(conv_bn_classifier())
    arrays = lower(*restored(model))
    expected = stored(model)
    assert arrays.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(arrays[name], value, rtol=1e-6, atol=1e-6)


def test_trained_it_folds_to_the_same_function_and_zeros_stay_zeros(tmp_path: Path):
    network, tensors = result = restored(folded(conv_bn_classifier()))
    with torch.no_grad():
        for norm in network.norms:
            tensors[norm.kernel][:, :, ::2] = 0.0
            tensors[norm.scale].mul_(-torch.linspace(0.1, 3, 8))
            tensors[norm.mean].add_(0.3)
    arrays = lower(network, tensors)
    for norm in network.norms:
        assert np.array_equal(arrays[norm.kernel] == 0, (tensors[norm.kernel] == 0).numpy())
        assert not np.signbit(arrays[norm.kernel][arrays[norm.kernel] == 0]).any()
    export.write(network.file, arrays, [k.name for k in network.kernels], "sparse", tmp_path / "model.onnx")
    x = torch.randn(4, 1, 8, 8)
    assert torch.allclose(outputs(imported(tmp_path / "model.onnx"), x), outputs(result, x), atol=1e-4)


def test_lifting_the_weights_of_the_original_gives_the_same_state_again(tmp_path: Path):
    model = folded(conv_bn_classifier())
    network, state = restored(model)
    again = lift(job_of(network, tmp_path), stored(model))
    assert list(again) == list(state)
    assert all(torch.equal(again[name], tensor) for name, tensor in state.items())


def test_convs_that_never_had_a_norm_or_have_it_still_are_left_alone():
    g = Graph()
    x = g.batch_norm(g.conv("x", "normed", 1, 4, bias=True), "bn", 4)
    x = g.add("Relu", g.conv(x, "folded", 4, 4, bias=True))
    squeezed = g.add("Sigmoid", g.conv(g.add("GlobalAveragePool", x), "excite", 4, 4, 1, bias=True))
    x = g.conv(g.add("Mul", x, squeezed), "plain", 4, 4)
    x = g.add("Add", g.conv(x, "tied", 4, 4, bias=True), g.add("Conv", x, "tied.weight", "tied.bias", pads=[1] * 4))
    g.add("Identity", g.conv(x, "last", 4, 5, bias=True), outputs=("logits",))
    g.add("Transpose", g.conv(x, "patches", 4, 5, bias=True), outputs=("tokens",), perm=[0, 2, 3, 1])
    network = restored(g.model({"x": ("N", 1, 8, 8)}, ["logits", "tokens"]))
    assert [n.kernel for n in network.norms] == ["folded.weight"]


def test_without_anything_to_restore_the_model_is_as_it_was():
    network, state = ltp_pipeline.import_model(conv_bn_classifier())
    assert restore_bn.run(network, state, split(1, 8, 8), 16, CPU) == (network, state)


def test_a_dead_channel_and_an_excluded_kernel_are_restored_too():
    model = folded(conv_bn_classifier())
    for tensor in model.graph.initializer:
        if tensor.name == "conv1.weight":
            value = numpy_helper.to_array(tensor).copy()
            value[0] = 0
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    network, tensors = result = restored(model, kernels=KernelSettings(exclude=("conv1*",)))
    norm = network.norms[0]
    assert norm.kernel == "conv1.weight"
    assert tensors[norm.variance][0] == 0
    x = torch.randn(4, 1, 8, 8)
    assert torch.allclose(outputs(result, x), outputs(imported(model), x), atol=1e-5)
    assert all(t.isfinite().all() for t in tensors.values())


def test_half_precision_is_restored_in_single_and_written_back_as_it_was():
    g = Graph()
    x = g.add("Flatten", g.add("GlobalAveragePool", g.add("Relu", g.conv("x", "conv", 1, 4, bias=True))))
    g.gemm(x, "fc", 4, 3)
    g.nodes[-1].output[0] = "logits"
    for tensor in g.tensors:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
    types = {"x": TensorProto.FLOAT16, "logits": TensorProto.FLOAT16}
    network, state = restored(g.model({"x": ("N", 1, 8, 8)}, ["logits"], types=types))
    assert len(network.norms) == 1
    assert state[network.norms[0].scale].dtype == torch.float32
    assert {a.dtype for a in lower(network, state).values()} == {np.dtype(np.float16)}


def test_a_model_whose_outputs_would_change_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(restore_bn, "TOLERANCE", -1.0)
    network = restored(folded(conv_bn_classifier()))
    assert not network.norms
    assert "not restored" in network.notes[-1]


@pytest.fixture
def folded_example(example: Path) -> Path:
    path = example / "model.onnx"
    onnx.save(folded(onnx.load(path)), path)
    return path


def settings_for(path: Path) -> Settings:
    options = {
        "train": {"epochs": 2, "finetune_epochs": 1},
        "export": {"formats": ["dense"]},
        "model": {"restore_bn": True},
    }
    return load_settings(path, options=options)


def test_a_run_through_the_command_line_exports_the_nodes_of_the_file(
    folded_example: Path, capsys: pytest.CaptureFixture[str]
):
    out = folded_example.parent / "run"
    quick = ("--epochs", 2, "--finetune-epochs", 1, "--set", "gates.max_drop=0.9", "--export", "dense")
    asked = ("--set", "model.restore_bn=true", "--target-compression", 10, *quick)
    result = invoke(capsys, "run", folded_example, *asked, "--out", out)
    assert result.code == 0, result.err
    original, exported = onnx.load(folded_example).graph, onnx.load(out / "model.dense.onnx").graph
    assert nodes(exported) == nodes(original)
    assert [t.name for t in exported.initializer] == [t.name for t in original.initializer]
    report = json.loads((out / "report.json").read_text())
    assert any("BatchNormalization restored" in note for note in report["notes"])
    assert report["pruned"]["compression"] == pytest.approx(10, abs=0.05)
    assert report["pruned"]["accuracy"]["top1"] > 0.5


def test_interrupted_and_gone_on_with_it_gives_the_same_bytes(folded_example: Path, monkeypatch: pytest.MonkeyPatch):
    folder = folded_example.parent
    run(folded_example, settings_for(folded_example), folder / "whole", SilentReporter())
    taken, original = 0, loop._step

    def step(*arguments):
        nonlocal taken
        taken += 1
        if taken in (25, 45, 80):  # in learning, in fine-tuning, in the baseline
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(loop, "_step", step)
    arguments = (folded_example, settings_for(folded_example), folder / "parts", SilentReporter())
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            run(*arguments)
    run(*arguments)
    for name in ("model.dense.onnx", "baseline/model.dense.onnx", "trail/001.onnx", "trail/002.onnx"):
        assert (folder / "parts" / name).read_bytes() == (folder / "whole" / name).read_bytes(), name
