"""Several processes started by torchrun do what one does with the same global batch."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ltp_pipeline.exporters.files.decode import read_tensors
from ltp_pipeline.graph.storage import read_model
from tests.support.cli import start

pytestmark = pytest.mark.slow
OPTIONS = (
    "--epochs",
    2,
    "--finetune-epochs",
    1,
    "--target-compression",
    6,
    "--max-drop",
    0.9,
    "--export",
    "dense",
)
OPTIONS += ("--baseline", "quick")


def torchrun(
    folder: Path, *arguments: object, processes: int = 2
) -> "subprocess.CompletedProcess[str]":
    launch = (
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        processes,
        "-m",
        "ltp_pipeline",
    )
    return subprocess.run(
        [sys.executable, *map(str, (*launch, *arguments))],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "CI": "true", "OMP_NUM_THREADS": "1"},
    )


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The example pruned by one process, and by two."""
    from ltp_pipeline.demo import copy_example

    folder = tmp_path_factory.mktemp("ranks")
    copy_example(folder)
    single = start("run", "model.onnx", "--out", "one", *OPTIONS, cwd=folder)
    _, err = single.communicate(timeout=300)
    assert single.returncode == 0, err
    two = torchrun(folder, "run", "model.onnx", "--out", "two", *OPTIONS)
    assert two.returncode == 0, two.stderr
    (folder / "two.out").write_text(two.stdout)
    return {"one": folder / "one", "two": folder / "two"}


def test_ranks_have_the_losses_of_one_process(both: dict[str, Path]):
    lines = [
        [json.loads(line) for line in (both[name] / "log.jsonl").read_text().splitlines()]
        for name in ("one", "two")
    ]
    assert len(lines[0]) == len(lines[1])
    for first, second in zip(*lines, strict=True):
        assert (first["key"], first["step"], first["lr"]) == (
            second["key"],
            second["step"],
            second["lr"],
        )
        if first["key"] == "learn":
            assert second["loss"] == pytest.approx(first["loss"], rel=2e-2)
        for name, tau in (first.get("thresholds") or {}).items():
            assert second["thresholds"][name] == pytest.approx(tau, rel=2e-2)


def test_ranks_have_the_first_trail_network_of_one_process(both: dict[str, Path]):
    models = [read_model(both[name] / "trail" / "001.onnx") for name in ("one", "two")]
    names = [row["name"] for row in json.loads((both["one"] / "report.json").read_text())["layers"]]
    for name in names:
        first, second = (read_tensors(m, [name])[name] for m in models)
        apart = np.abs(first - second) > 1e-3 * np.abs(first).max()
        assert apart.mean() < 0.005, name


def test_ranks_have_the_report_of_one_process(both: dict[str, Path]):
    single, two = (json.loads((both[name] / "report.json").read_text()) for name in ("one", "two"))
    assert two["pruned"]["nonzeros"] == single["pruned"]["nonzeros"]
    for part in ("pruned", "baseline"):
        assert two[part]["accuracy"]["top1"] == pytest.approx(
            single[part]["accuracy"]["top1"], abs=0.02
        )


def test_ranks_only_the_main_process_writes(both: dict[str, Path]):
    shown = (both["two"].parent / "two.out").read_text()
    assert shown.count("report.html") == 1
    assert sorted(p.name for p in both["two"].iterdir()) == sorted(
        p.name for p in both["one"].iterdir()
    )


def test_ranks_finished_run_ends_everywhere(both: dict[str, Path]):
    again = torchrun(both["two"].parent, "run", "model.onnx", "--out", "two", *OPTIONS)
    assert again.returncode == 0, again.stderr
    assert again.stderr.count(" is finished already") == 1


def test_ranks_measure_the_curve_together(both: dict[str, Path]):
    """Not asked for by name: the leader's clock decides for all."""
    shutil.copytree(both["two"], both["two"].with_name("three"))
    process = torchrun(both["two"].parent, "run", "model.onnx", "--out", "three", *OPTIONS[:-2])
    assert process.returncode == 0, process.stderr
    assert process.stderr.count("more points are measured") == 1
    report = json.loads((both["two"].with_name("three") / "report.json").read_text())
    assert len(report["baseline"]["curve"]) > 1
    assert report["baseline"]["gain"] is not None


def test_ranks_adamw_takes_the_steps_of_one_process(example: Path):
    options = (
        "--epochs",
        1,
        "--finetune-epochs",
        1,
        "--target-compression",
        6,
        "--max-drop",
        0.9,
        "--no-baseline",
    )
    options += ("--set", "train.optimizer=adamw", "--lr", 1e-3, "--export", "dense")
    single = start("run", "model.onnx", "--out", "one", *options, cwd=example)
    _, err = single.communicate(timeout=300)
    assert single.returncode == 0, err
    two = torchrun(example, "run", "model.onnx", "--out", "two", *options)
    assert two.returncode == 0, two.stderr
    logs = [
        [json.loads(line) for line in (example / name / "log.jsonl").read_text().splitlines()]
        for name in ("one", "two")
    ]
    assert [line["lr"] for line in logs[0]] == [line["lr"] for line in logs[1]]
    assert [line["loss"] for line in logs[1]] == pytest.approx(
        [line["loss"] for line in logs[0]], rel=5e-2
    )


def test_ranks_indivisible_batch_is_rejected_once(example: Path):
    process = torchrun(example, "run", "model.onnx", "--batch-size", 127, "--out", "run")
    assert process.returncode != 0
    (message,) = re.findall("error: (.*)", process.stderr)
    assert re.search(r"\b127\b.*\b2 processes\b", message)
    assert not (example / "run").exists()


def test_ranks_quantization_aware_is_rejected_once(example: Path):
    options = ("--export", "int8", "--set", "train.quantization_aware=true", "--out", "run")
    process = torchrun(example, "run", "model.onnx", *options)
    assert process.returncode != 0
    (message,) = re.findall("error: (.*)", process.stderr)
    assert "train.quantization_aware" in message
    assert not (example / "run").exists()


def test_ranks_error_names_its_rank(example: Path):
    """The second process loses its data in the middle of training."""
    code = """
import sys
from ltp_pipeline.cli import app as cli
from ltp_pipeline.system import distributed as ranks
from ltp_pipeline.errors import InputError
from ltp_pipeline.stages.train import loop
step = loop._train_step
def hurt(context, forward, phase, optimizer, at, *rest):
    if ranks.get_rank() == 1 and at.step == 3:
        raise InputError("image 7 cannot be read", "look at it")
    return step(context, forward, phase, optimizer, at, *rest)
loop._train_step = hurt
sys.argv = ["ltp-pipeline", "run", "model.onnx", "--out", "run"]
cli.main()
"""
    (example / "hurt.py").write_text(code)
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "hurt.py")
    process = subprocess.run(
        [sys.executable, *launch],
        cwd=example,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "CI": "true", "OMP_NUM_THREADS": "1"},
    )
    assert "rank 1: error: image 7 cannot be read" in process.stderr
    assert "RuntimeError" not in process.stderr


@pytest.mark.long
def test_ranks_agree_on_the_learning_rate(tmp_path: Path):
    from ltp_pipeline.demo import copy_example

    copy_example(tmp_path)
    settings = (tmp_path / "ltp.toml").read_text().splitlines()
    lines = [line for line in settings if not line.startswith("lr =")]
    (tmp_path / "ltp.toml").write_text("\n".join(lines))
    options = ["--epochs", 10, "--finetune-epochs", 4, "--batch-size", 16, "--baseline", "none"]
    options += ["--target-compression", 6, "--export", "dense"]
    finished = torchrun(tmp_path, "run", "model.onnx", "--out", "run", *options)
    assert finished.returncode == 0, finished.stderr
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    rate = report["pruned"]["learning_rate"]
    assert rate["source"] in ("searched", "default")
    assert len(rate["trials"]) >= 3
