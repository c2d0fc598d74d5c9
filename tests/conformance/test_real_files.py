"""Real topologies: the nine light models of the onnx wheel, and what torch's own exporter writes."""

import io
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from ltp_pipeline.stages.import_model.roles import TensorRole
from tests.support.imported import import_network
from tests.support.models import random_inputs
from tests.support.round_trip import check_gradients, check_round_trip, check_write_back

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


@pytest.mark.long
@pytest.mark.parametrize("path", sorted(LIGHT.glob("*.onnx")), ids=lambda p: p.stem)
def test_light_models(path: Path) -> None:
    model = onnx.load(path)
    result = import_network(path)
    assert result.parity is not None
    constant_outputs = {n.output[0] for n in model.graph.node if n.op_type == "ConstantOfShape"}
    weights = {n for n, role in result.forward.roles.items() if role is not TensorRole.CONSTANT}
    assert constant_outputs <= weights
    feeds = random_inputs(model)
    check_gradients(result, feeds)
    written = check_write_back(result, model, feeds)
    names = [n.name or n.output[0] for n in model.graph.node if n.output[0] not in constant_outputs]
    assert [n.name or n.output[0] for n in written.graph.node] == names


class Net(nn.Module):
    """Convolution, norm, depthwise, squeeze-excite, attention-like product and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish()
        )
        self.depthwise = nn.Sequential(
            nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False), nn.BatchNorm2d(8), nn.ReLU6()
        )
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.Hardsigmoid())
        self.norm = nn.LayerNorm(8)
        self.mix = nn.Linear(8, 8)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(8, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Class scores of a batch of images."""
        y = self.depthwise(self.stem(x))
        y = (y * self.squeeze(y)).flatten(2).transpose(1, 2)
        y = y + nn.functional.gelu(self.mix(self.norm(y)))
        scores: torch.Tensor = self.head(y.mean(1))
        return scores


@pytest.mark.long
@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("mode", [torch.onnx.TrainingMode.EVAL, torch.onnx.TrainingMode.PRESERVE])
@pytest.mark.parametrize("opset", [13, 17])
def test_exports_of_torch(opset: int, mode: torch.onnx.TrainingMode, fold: bool) -> None:
    torch.manual_seed(0)
    net = Net().eval() if mode is torch.onnx.TrainingMode.EVAL else Net().train()
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net,
            (torch.randn(2, 3, 16, 16),),
            buffer,
            opset_version=opset,
            training=mode,
            do_constant_folding=fold,
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": {0: "N"}, "y": {0: "N"}},
            dynamo=False,
        )
    model = onnx.load_model_from_string(buffer.getvalue())
    result = check_round_trip(model)
    assert len(result.layer_weights) == 5
    wider = np.random.default_rng(1).standard_normal((5, 3, 16, 16)).astype(np.float32)
    assert result(torch.from_numpy(wider))[0].shape == (5, 5)
