"""Quantization-aware training computes what the int8 file computes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto, numpy_helper

from ltp_pipeline.exporters.graphs import int8
from ltp_pipeline.exporters.graphs.graph import BuiltGraph, GraphContext
from ltp_pipeline.exporters.int8.dynamic import LARGEST_STEPS
from ltp_pipeline.exporters.int8.layers import QuantizableLayer
from ltp_pipeline.exporters.int8.search import FileEvaluation
from ltp_pipeline.exporters.int8.training_graph import FakeQuantGraph, QatResult
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages import finetune_qat, prepare
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.measure.any_file import make_evaluator
from ltp_pipeline.stages.measure.session import Session
from ltp_pipeline.stages.tools import quantize
from ltp_pipeline.stages.train import loop
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.system.arrays import StateDict
from tests.support.models import (
    Graph,
    conv_bn_classifier,
    mlp,
    prune,
    random_inputs,
    run_onnxruntime,
)
from tests.support.runs import skip_slow_parts
from tests.support.sequence_models import vision_transformer

SAMPLES = 640


def make_context(model: ModelProto, folder: Path, **train: Any) -> RunContext:
    """A context on random samples, labelled as the model labels them."""
    folder.mkdir(exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    feeds = random_inputs(model, batch=SAMPLES)
    labels = run_onnxruntime(model, feeds)[0].argmax(-1)
    rows = {"train": slice(0, 384), "val": slice(384, 512), "test": slice(512, SAMPLES)}
    arrays = {f"x_{split}": feeds["x"][part] for split, part in rows.items()}
    arrays |= {f"y_{split}": labels[part] for split, part in rows.items()}
    np.savez(folder / "data.npz", **arrays)
    train_settings = {
        "epochs": 2,
        "finetune_epochs": 4,
        "batch_size": 64,
        "quantization_aware": True,
        "threads": 1,
        **train,
    }
    settings = Settings.model_validate(
        {
            "data": {"path": folder / "data.npz"},
            "train": train_settings,
            "export": {"formats": ["int8"]},
        }
    )
    run_directory = RunDirectory(folder / "run")
    run_directory.begin_run({})
    return prepare.prepare_run(read_model_file(folder / "model.onnx"), settings, run_directory)[0]


class Run:
    """A trained int8 graph and the network it was made of.

    Every graph has the value 1 on the validation split, except a trained one, which has `after`.
    """

    trained: QatResult | None = None

    def __init__(self, context: RunContext, after: float = 1.0, trains: bool = True) -> None:
        self.context, self.after, self.trains = context, after, trains
        self.built = self._make(context)

    def _make(self, context: RunContext) -> BuiltGraph:
        file, settings = context.network.file, context.settings
        assert file.path is not None
        session = Session(file.path)
        graph = file.model.graph
        evaluator, data = make_evaluator(
            context.data, graph, session, session, settings.task, "auto", None
        )
        calibration = quantize.make_calibration(file.inputs, data, evaluator, settings.export)
        kernels = [kernel.name for kernel in context.network.layer_weights]
        weights = {name: file.model.get_array(name) for name in kernels}
        feeds = dict(context.data.test.read_first(4).inputs)
        judge = calibration.evaluate

        def valued(path: Path) -> FileEvaluation:
            return judge(path)._replace(value=1.0 if self.trained is None else self.after)

        calibration = replace(
            calibration, evaluate=valued, train=self._train if self.trains else None
        )
        return int8.build_graph(GraphContext(file.model, weights, kernels, feeds, calibration))

    def _train(self, training: FakeQuantGraph, layers: list[QuantizableLayer]) -> QatResult:
        self.training, self.layers = training, layers
        self.trained = finetune_qat.run(self.context, "pruned", training, layers)
        return self.trained

    @property
    def rounding(self) -> finetune_qat.QatRounding:
        axes = {layer.weight_name: layer.axis for layer in self.layers}
        return finetune_qat.QatRounding(
            self.training, axes, LARGEST_STEPS[self.context.settings.export.int8_weight_bits]
        )

    @property
    def state(self) -> StateDict:
        return {name: torch.from_numpy(array) for name, array in self.trained.float_tensors.items()}

    def outputs(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the network in torch, and of the graph in onnxruntime, on the test split."""
        network, _ = finetune_qat.build_network(self.context.network, self.training)
        inputs = dict(self.context.data.test.read_first(SAMPLES).inputs)
        with torch.inference_mode():
            tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
            ours = network.forward(
                tensors, {**self.state, **self.rounding.round_weights(self.state)}
            )[0].numpy()
        return ours, run_onnxruntime(self.built.model.to_proto(), inputs)[0]

    def last_step(self) -> float:
        """How far a step of the last rounded activation moves an output."""
        place, layer = self.training.points[-1], self.layers[-1]
        weight = float(np.abs(self.trained.float_tensors[layer.weight_name]).max())
        if not place.is_dynamic:
            return weight * float(self.trained.int8_tensors[place.scale])
        network, _ = finetune_qat.build_network(self.context.network, self.training)
        seen: list[torch.Tensor] = []
        steps = network.forward.program.instructions
        index = max(
            i
            for i, s in enumerate(steps)
            if s.function is finetune_qat.fake.round_dynamic_activation
        )
        steps[index] = replace(
            steps[index], function=lambda x: seen.append(x) or x, uses_training=False
        )
        tensors = {
            n: torch.from_numpy(a)
            for n, a in self.context.data.test.read_first(SAMPLES).inputs.items()
        }
        network.forward(tensors, {**self.state, **self.rounding.round_weights(self.state)})
        return weight * float(finetune_qat.fake.compute_scale_and_zero(*seen[0].aminmax())[0])


def unfolded_norm() -> ModelProto:
    """A norm that the deploy graph keeps, before a Conv, and a constant that is quantized too."""
    g = Graph(3)
    x = g.add("Relu", g.batch_norm("x", "bn", 2))
    x = g.add("Add", g.conv(x, "conv", 2, 8, bias=True), g.random("offset", 1, 8, 1, 1))
    x = g.add("Relu", g.conv(x, "conv2", 8, 8, bias=True))
    g.gemm(g.add("Flatten", g.add("GlobalAveragePool", x)), "fc", 8, 4)
    g.nodes[-1].output[0] = "logits"
    return g.model({"x": ("N", 2, 6, 6)}, ["logits"])


NETWORKS = {
    "convolutions": lambda: prune(conv_bn_classifier(channels=16), 0.7),
    "products": lambda: prune(mlp(12, 32, 6), 0.5),
    "transformer": vision_transformer,
    "norm that is not folded": unfolded_norm,
}


@pytest.fixture(scope="module", autouse=True)
def onnxsim_here() -> Iterator[None]:
    """No process for onnxsim."""
    with skip_slow_parts():
        yield


@pytest.fixture(scope="module", params=NETWORKS)
def done(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(make_context(NETWORKS[request.param](), tmp_path_factory.mktemp("int8") / "context"))


def test_build_graph_discards_training_that_made_it_worse(tmp_path: Path) -> None:
    done = Run(make_context(NETWORKS["products"](), tmp_path / "context"), after=0.9)
    assert done.built.quantization is not None
    assert done.built.quantization.trained_epochs == 0
    assert any("was discarded" in note for note in done.built.notes)
    untrained = Run(done.context, trains=False).built
    assert (
        done.built.model.to_proto().SerializeToString()
        == untrained.model.to_proto().SerializeToString()
    )


def test_trained_file_matches_torch_outputs(done: Run) -> None:
    ours, theirs = done.outputs()
    assert (np.abs(ours - theirs) <= done.last_step()).mean() >= 0.99
    assert (ours.argmax(-1) == theirs.argmax(-1)).mean() >= 0.995


def test_run_trains_weights_and_keeps_zeros(done: Run) -> None:
    before = done.training.model
    for layer in done.layers:
        mask = before.get_array(layer.weight_name) != 0
        after = done.trained.float_tensors[layer.weight_name]
        assert not after[~mask].any()
        assert (after != before.get_array(layer.weight_name))[mask].any()
        assert not done.built.weights[f"{layer.weight_name}_quantized"][~mask].any()


def test_run_moves_ranges_of_file(done: Run) -> None:
    initial = {
        t.name: numpy_helper.to_array(t) for t in done.built.model.to_proto().graph.initializer
    }
    scales = {float(a) for a in initial.values() if a.dtype == np.float32 and a.size == 1}
    for name, start in done.training.ranges.items():
        assert float(done.trained.int8_tensors[name]) in scales
        followed = [
            place.extremes_fraction for place in done.training.points if place.scale == name
        ]
        if any(followed):
            assert done.trained.float_tensors[name].tolist() != pytest.approx(list(start), rel=1e-9)


def test_run_notes_number_of_epochs(done: Run) -> None:
    assert done.built.quantization is not None
    assert done.built.quantization.trained_epochs == 2
    assert "trained in 8 bits for 2 epochs" in done.built.notes[-1]


@pytest.mark.parametrize("done", ["norm that is not folded"], indirect=True)
def test_run_keeps_statistics_of_norms(done: Run) -> None:
    (norm,) = (
        node for node in done.training.model.graph.node if node.op_type == "BatchNormalization"
    )
    for name in norm.input[3:5]:
        assert np.array_equal(done.trained.float_tensors[name], done.training.model.get_array(name))


def test_run_resumed_gives_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = NETWORKS["products"]()
    whole = (
        Run(make_context(model, tmp_path / "whole"))
        .built.model.to_proto()
        .SerializeToString(deterministic=True)
    )
    context, num_steps, step = make_context(model, tmp_path / "stopped"), 0, loop._train_step

    def stopping(*arguments: Any) -> None:
        nonlocal num_steps
        num_steps += 1
        if num_steps == 9:  # in the second epoch
            raise KeyboardInterrupt
        step(*arguments)

    monkeypatch.setattr(loop, "_train_step", stopping)
    with pytest.raises(KeyboardInterrupt):
        Run(context)
    assert Run(context).built.model.to_proto().SerializeToString(deterministic=True) == whole
    steps = num_steps
    assert Run(context).built.model.to_proto().SerializeToString(deterministic=True) == whole
    assert num_steps == steps  # resumed from the saved weights
