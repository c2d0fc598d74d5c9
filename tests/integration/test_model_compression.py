"""A model with most of its weights outside kernels: what it is called compressed by, and what a gate says to it."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from ltp_pipeline.demo import copy_to
from tests.support.cli import Result, invoke

OPTIONS = ("--epochs", 1, "--finetune-epochs", 1, "--target-compression", 5, "--no-baseline", "--export", "dense")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with a large table, of which one row of nothing is added to the scores."""
    made = tmp_path_factory.mktemp("table")
    copy_to(made)
    model = onnx.load(made / "model.onnx")
    table = np.random.default_rng(0).normal(0, 1e-6, (20_000, 10)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(table, "table"))
    model.graph.initializer.append(numpy_helper.from_array(np.array([7]), "row"))
    scores = model.graph.output[0].name
    for node in model.graph.node:
        node.output[:] = ["before" if name == scores else name for name in node.output]
    model.graph.node.append(helper.make_node("Gather", ["table", "row"], ["more"], name="gather"))
    model.graph.node.append(helper.make_node("Add", ["before", "more"], [scores], name="add"))
    onnx.save(model, made / "model.onnx")
    return made


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    import contextlib
    import io
    import sys

    from ltp_pipeline import cli

    before, sys.argv = sys.argv, ["ltp-pipeline", "run", *map(str, (folder / "model.onnx", "--out", folder / "run", *OPTIONS))]
    out, err = io.StringIO(), io.StringIO()
    return folder / "run"


def gate(capsys: pytest.CaptureFixture[str], folder: Path, *options: object) -> Result:
    return invoke(capsys, "gate", folder / "run" / "report.json", *options)
