"""Small networks that are trained in a second or two, for tests in which the original must know its task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import ModelProto, helper, numpy_helper

from tests.support.models import mlp

Array = np.ndarray[Any, Any]


def trained_mlp(
    x: Array, y: Array, hidden: int = 64, steps: int = 400, seed: int = 0
) -> ModelProto:
    """Return two Gemms with a ReLU between, fitted to class numbers (integers) or values (rows of floats)."""
    torch.manual_seed(seed)
    classes = y.dtype.kind != "f"
    width = int(y.max()) + 1 if classes else y.shape[1]
    network = torch.nn.Sequential(
        torch.nn.Linear(x.shape[1], hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, width)
    )
    loss = torch.nn.CrossEntropyLoss() if classes else torch.nn.MSELoss()
    optimizer = torch.optim.Adam(network.parameters(), 0.02)
    inputs, targets = torch.from_numpy(x), torch.from_numpy(y)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(network(inputs), targets).backward()
        optimizer.step()
    model = mlp(x.shape[1], hidden, width)
    names = ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")
    values = dict(zip(names, (p.detach().numpy() for p in network.parameters()), strict=True))
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(values[tensor.name], tensor.name))
    return model


def ending_in(op: str, model: ModelProto) -> ModelProto:
    """Return the model with another node behind its output."""
    model.graph.node.append(helper.make_node(op, ["logits"], ["y"], name="end"))
    model.graph.output[0].name = "y"
    return model


def make_regression(samples: int = 1500, seed: int = 0) -> tuple[Array, Array]:
    """Return samples of eight numbers and two values that depend on them; the first is mostly larger."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (samples, 8)).astype(np.float32)
    first = 12 + 4 * x[:, 0] * x[:, 1] + 3 * np.sin(2 * x[:, 2])
    second = -6 + 5 * x[:, 3] ** 2 + 3 * x[:, 4]
    return x, np.stack([first, second], 1).astype(np.float32)


LIGHT = ("dark", "dim", "light", "bright")  # in the order of the classes that `pictures` has


def make_pictures(samples: int = 800, seed: int = 0, opposite: bool = False) -> tuple[Array, Array]:
    """Return color images in bytes, channels first, whose class is the brightness of their red.

    With `opposite`, green is as bright as red is not, so that all channels together say nothing
    either.
    """
    rng = np.random.default_rng(seed)
    red, green, blue = rng.integers(8, 248, (3, samples))
    levels = np.stack([red, 255 - red if opposite else green, blue], 1)[:, :, None, None]
    x = np.clip(levels + rng.normal(0, 4, (samples, 3, 6, 6)), 0, 255).astype(np.uint8)
    return x, x[:, 0].mean((1, 2)).astype(np.int64) // 64


def brightness_model() -> ModelProto:
    """Return a classifier of `make_pictures` for bytes divided by 255, flattened by channel."""
    x, y = make_pictures()
    return trained_mlp(x.reshape(len(x), -1).astype(np.float32) / 255, y, hidden=32, steps=300)


def save_unlabelled(folder: Path, model: ModelProto, x: Array) -> Path:
    """Write model and samples without labels where `run` finds them; return the model's path."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    np.savez(folder / "data.npz", x=x)
    (folder / "ltp.toml").write_text('[data]\npath = "data.npz"\n')
    return folder / "model.onnx"
