"""Every kind of task from init over run to gate, and custom tasks."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

import ltp_pipeline
from ltp_pipeline.errors import InputError
from ltp_pipeline.stages.train import loop
from tests.support import kinds
from tests.support.cli import invoke, start
from tests.support.models import Graph
from tests.support.paths import ROOT

SHORT = (
    "--target-compression",
    2,
    "--epochs",
    1,
    "--finetune-epochs",
    1,
    "--baseline",
    "quick",
    "--threads",
    1,
)
TASK = """
import numpy as np
from ltp_pipeline import Metric

metric = Metric("MAE", unit="mm", higher_is_better=False, is_fraction=False)
arrays = dict(np.load(__file__.replace("my_task.py", "data.npz")))
rows = {"train": range(200), "val": range(200, 250), "test": range(250, 300)}


def dataset(split):
    return [{"x": arrays["x"][i], "target": arrays["y"][i]} for i in rows[split]]


def loss(outputs, batch):
    (y,) = outputs.values()
    return (y - batch["target"]).abs().mean()


def score(outputs, batch):
    (y,) = outputs.values()
    return (y - batch["target"]).abs().mean(1)
"""


@pytest.mark.parametrize(
    ("kind", "metric", "extra", "decision"),
    [
        ("regression", "R²", "root mean squared error", None),
        ("multilabel", "mean average precision", "per-label accuracy", "scores > 0.5"),
        ("binary", "top-1", None, "scores > 0.5"),
        ("squeezed", "top-1", None, "scores > 0.5"),
        ("one-hot", "top-1", None, "scores.argmax(axis=1)"),
        ("masks", "mIoU", "pixel accuracy", "scores > 0.5"),
        ("segmentation", "mIoU", "pixel accuracy", "scores.argmax(axis=1)"),
        ("positions", "top-1", None, "scores.argmax(axis=2)"),
    ],
)
def test_init_run_and_gate_of_each_kind_of_task(
    tmp_path: Path, capsys, monkeypatch, kind, metric, extra, decision
) -> None:
    kinds.write_kind(kind, tmp_path)
    monkeypatch.chdir(tmp_path)
    initialized = invoke(capsys, "init", "model.onnx", "--data", "data.npz")
    assert initialized.code == 0, initialized.err
    pruned = invoke(capsys, "run", "model.onnx", *SHORT, "--json")
    assert pruned.code == 0, pruned.err
    report = json.loads((tmp_path / "model-ltp" / "report.json").read_text())
    assert report["metric"]["name"] == metric
    assert report["original"]["accuracy"]["value"] > 0.8
    names = [metric["name"] for metric in report["pruned"]["accuracy"]["extra_metrics"]]
    assert names == ([extra] if extra else [])
    low, high = report["pruned"]["drop_interval"]
    assert low <= report["pruned"]["drop"] <= high
    gates = ("--max-drop", 0.99, "--min-compression", 1.9)
    checked = invoke(capsys, "gate", "model-ltp/report.json", *gates, "--data", "data.npz")
    assert checked.code == 0, checked.err
    (now, then), *_ = re.findall(r"ltp measured again: (.*), the report says (.*)", checked.err)
    assert now == then
    page = Path("model-ltp/handoff/HANDOFF.md").read_text()
    assert re.findall(r"`(scores[.> ].*?)`", page) == ([decision] if decision else [])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    kinds.write_kind("regression", tmp_path)
    (tmp_path / "my_task.py").write_text(TASK)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_run_custom_task_reports_its_metric(folder: Path, capsys) -> None:
    pruned = invoke(capsys, "run", "model.onnx", "--task", "my_task.py", *SHORT)
    assert pruned.code == 0, pruned.err
    report = json.loads(Path("model-ltp/report.json").read_text())
    x, y = (np.load("data.npz")[name][250:] for name in ("x", "y"))
    model, _ = kinds.regress(np.random.default_rng(0))
    expected = float(np.abs(kinds.compute_answers(model, x=x) - y).mean())
    assert report["metric"] == {
        "name": "MAE",
        "unit": "mm",
        "higher_is_better": False,
        "is_fraction": False,
    }
    assert report["original"]["accuracy"]["value"] == pytest.approx(expected, rel=1e-5)
    assert report["pruned"]["drop"] > 0
    low, high = report["pruned"]["drop_interval"]
    assert low <= report["pruned"]["drop"] <= high
    gate = ("gate", "model-ltp/report.json", "--max-drop", 99)
    checked = invoke(capsys, *gate, "--task", "my_task.py")
    assert (checked.code, "ltp measured again" in checked.err) == (0, True), checked.err
    Path("my_task.py").write_text(TASK + "\n")
    for option in (("--task", "my_task.py"), ("--data", "data.npz")):
        assert invoke(capsys, *gate, *option).code == 3


@pytest.mark.parametrize(
    "command",
    [
        ("run", "model.onnx"),
        ("pick", "model-ltp", 1),
        ("export", "model-ltp", "--format", "dense"),
        ("validate", "model-ltp/model.sparse.onnx"),
        ("handoff", "model-ltp", "--example-samples", 3),
    ],
    ids=lambda command: command[0],
)
def test_commands_on_a_custom_run_require_its_task(folder: Path, capsys, command) -> None:
    assert invoke(capsys, "run", "model.onnx", "--task", "my_task.py", *SHORT).code == 0
    options = SHORT if command[0] == "run" else ()
    rejected = invoke(capsys, *command, *options)
    assert rejected.code == 3
    assert "--task FILE.py" in rejected.err.splitlines()[-1]
    assert invoke(capsys, *command, *options, "--task", "my_task.py").code == 0


def test_run_changed_task_file_requires_fresh(folder: Path, capsys) -> None:
    assert invoke(capsys, "run", "model.onnx", "--task", "my_task.py", *SHORT).code == 0
    with Path("my_task.py").open("a") as file:
        file.write("# changed\n")
    other = invoke(capsys, "run", "model.onnx", "--task", "my_task.py", *SHORT)
    assert other.code == 3
    assert "--fresh" in other.err


def test_commands_on_a_custom_run_reject_another_task(folder: Path, capsys) -> None:
    assert invoke(capsys, "run", "model.onnx", "--task", "my_task.py", *SHORT).code == 0
    Path("other.py").write_text(TASK.replace("my_task.py", "other.py"))
    for command in (
        ("validate", "model-ltp/model.sparse.onnx"),
        ("handoff", "model-ltp", "--example-samples", 3),
        ("export", "model-ltp", "--format", "dense"),
        ("pick", "model-ltp", 1),
    ):
        rejected = invoke(capsys, *command, "--task", "other.py")
        assert rejected.code == 3, rejected
        assert "other.py" in rejected.err


def test_handoff_of_custom_run_names_its_task_and_contains_samples(folder: Path, capsys) -> None:
    assert invoke(capsys, "run", "model.onnx", "--task", "my_task.py", *SHORT).code == 0
    command = ("handoff", "model-ltp", "--example-samples", 3, "--task", "my_task.py")
    assert invoke(capsys, *command).code == 0
    digest = hashlib.sha256(TASK.encode()).hexdigest()
    page = Path("model-ltp/handoff/HANDOFF.md").read_text()
    assert f"`my_task.py` (SHA-256 `{digest}`)" in page
    assert "ltp-pipeline validate model.packed.onnx --task my_task.py" in page
    assert "--data" not in page
    example = np.load("model-ltp/handoff/example.npz")
    np.testing.assert_array_equal(example["samples/x"], np.load("data.npz")["x"][250:253])
    assert json.loads(Path("model-ltp/report.json").read_text())["custom_task"]["sha256"] == digest
    assert digest in Path("model-ltp/report.html").read_text()


def test_validate_accepts_a_task_but_not_also_data(folder: Path) -> None:
    result = ltp_pipeline.validate("model.onnx", ltp_pipeline.DataSettings(), task="my_task.py")
    assert result.metric.name == "MAE"
    with pytest.raises(InputError) as caught:
        ltp_pipeline.validate("model.onnx", "data.npz", task="my_task.py")
    assert "my_task.py" in caught.value.message
    assert "data.npz" in caught.value.message


def test_run_object_without_fingerprint_cannot_resume(folder: Path) -> None:
    class Task:
        def dataset(self, _split: str):
            arrays = np.load("data.npz")
            return [{"x": x} for x in arrays["x"][:60]]

    settings = {
        "budget": {"target_compression": 2},
        "train": {"epochs": 1, "finetune_epochs": 0},
        "baseline": {"mode": "none"},
    }
    ltp_pipeline.run("model.onnx", task=Task(), **settings)
    with pytest.raises(InputError) as caught:
        ltp_pipeline.run("model.onnx", task=Task(), **settings)
    assert "fingerprint" in caught.value.hint


RANDOM = """
import random
import time

import numpy as np
import torch

table = np.random.randn(64, 12).astype("f4")  # drawn while the file is loaded


class Noisy:
    def __init__(self, split):
        self.rows = np.random.permutation(64)[:48]  # drawn when the data set is made

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        noise = 0.3 * torch.randn(12).numpy() + 0.1 * np.random.rand() + 0.1 * random.random()
        time.sleep(0.0005)  # lets other threads come in between
        return {"x": table[self.rows[i]] + noise}


def dataset(split):
    return Noisy(split)


def loss(outputs, batch):
    (y,) = outputs.values()
    return (y * (1 + 0.1 * np.random.rand() + 0.1 * torch.rand(1))).square().mean()


def score(outputs, batch):
    (y,) = outputs.values()
    return -(y + 0.1 * np.random.rand() + 0.1 * torch.rand(1)).square().mean(1)
"""


@pytest.fixture
def run_random(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Mapping[str, bytes]]:
    """Run a network with Dropout on a task that uses random numbers; return the files."""
    g = Graph()
    g.random("first", 12, 32, scale=0.4)
    g.random("second", 32, 2, scale=0.4)
    y = g.add("MatMul", g.add("Dropout", g.add("Relu", g.add("MatMul", "x", "first"))), "second")
    onnx.save(g.model({"x": ("N", 12)}, [y]), tmp_path / "model.onnx")
    (tmp_path / "my_task.py").write_text(RANDOM)
    monkeypatch.chdir(tmp_path)
    options = {
        "train": {"epochs": 2, "finetune_epochs": 1, "batch_size": 8},
        "budget": {"target_compression": 2},
        "baseline": {"mode": "none"},
        "export": {"formats": ["dense"]},
    }

    def run(out: str, num_workers: int = 0) -> Mapping[str, bytes]:
        ltp_pipeline.run(
            "model.onnx", out=out, task="my_task.py", data={"num_workers": num_workers}, **options
        )
        report = json.loads(Path(out, "report.json").read_text())
        names = ("model.dense.onnx", "trail/001.onnx")
        files = {name: Path(out, name).read_bytes() for name in names}
        accuracies = [report[network]["accuracy"] for network in ("original", "pruned")]
        return {**files, "accuracy": json.dumps(accuracies).encode()}

    return run


def test_run_random_task_repeats_with_any_number_of_workers(run_random) -> None:
    assert run_random("first") == run_random("second") == run_random("third", num_workers=2)


def test_run_random_task_resumes_to_equal_bytes(
    run_random, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run_random("whole")
    train_step = loop._train_step
    num_steps = 0

    def interrupt_step(*arguments):
        nonlocal num_steps
        num_steps += 1
        if num_steps == 9:  # within the second epoch of threshold learning
            raise KeyboardInterrupt
        return train_step(*arguments)

    monkeypatch.setattr(loop, "_train_step", interrupt_step)
    monkeypatch.setattr(loop, "SAVE_EVERY_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        run_random("interrupted")
    assert run_random("interrupted") == expected


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.usefixtures("run_random")
def test_worker_processes_end_silently_with_the_run(tmp_path: Path, number: int) -> None:
    command = (
        "run",
        "model.onnx",
        "--task",
        "my_task.py",
        "--set",
        "data.num_workers=2",
        "--epochs",
        1000,
    )
    process = start(
        *command, "--target-compression", 2, "--out", "run", cwd=tmp_path, own_group=True
    )
    while not list(tmp_path.glob("run/state/*")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    if number == signal.SIGKILL:
        process.kill()
    else:
        os.killpg(process.pid, number)
    # The end of the pipe is reached when all processes that could write to it have ended.
    err = process.communicate(timeout=60)[1]
    assert "Traceback" not in err
    if number != signal.SIGKILL:
        assert process.returncode == 130
        assert err.splitlines()[-1].startswith("interrupted")


def test_run_failing_loss_shows_the_users_line(folder: Path, capsys) -> None:
    Path("my_task.py").write_text(
        TASK.replace('batch["target"]).abs().mean()', 'batch["wnated"]).abs().mean()')
    )
    failed = invoke(capsys, "run", "model.onnx", "--task", "my_task.py", *SHORT)
    assert failed.code == 3
    assert 'batch["wnated"]' in failed.err
    assert "loss of my_task.py" in failed.err
    assert not Path("model-ltp").exists()


@pytest.mark.parametrize(
    ("before", "after", "part"),
    [
        ("return (y - batch", "return (y.detach() - batch", "loss of my_task.py"),
        (
            ".abs().mean(1)",
            ".abs().mean().item()",
            "score of my_task.py",
        ),
        ('"target": ', '"name": "text", "target": ', "<U4"),
        (
            "import numpy",
            "raise SystemExit(0)\nimport numpy",
            "SystemExit: 0",
        ),
    ],
)
def test_run_unusable_task_has_message_and_hint(
    folder: Path, capsys, before: str, after: str, part: str
) -> None:
    Path("my_task.py").write_text(TASK.replace(before, after, 1))
    failed = invoke(capsys, "run", "model.onnx", "--task", "my_task.py", *SHORT)
    assert failed.code == 3
    *_, message, hint = failed.err.splitlines()
    assert part in message
    assert hint.startswith("  ")
    assert not Path("model-ltp").exists()


def test_init_keeps_an_existing_file_without_force(folder: Path, capsys) -> None:
    Path("ltp.toml").write_text("# mine\n")
    rejected = invoke(capsys, "init", "model.onnx", "--data", "data.npz")
    assert rejected.code == 3
    assert Path("ltp.toml").read_text() == "# mine\n"
    assert invoke(capsys, "init", "model.onnx", "--data", "data.npz", "--force").code == 0
    assert 'kind = "regression"' in Path("ltp.toml").read_text()


def test_init_without_data_names_the_arrays(folder: Path, capsys) -> None:
    assert invoke(capsys, "init", "model.onnx").code == 0
    assert "x_train and y_train" in Path("ltp.toml").read_text()
    assert invoke(capsys, "run", "model.onnx").code == 3


def read_documented_task() -> tuple[str, list[str]]:
    """Return the file and the command of docs/how-to/custom-task.md."""
    page = (ROOT / "docs" / "how-to" / "custom-task.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(# my_task.py\n.*?)```", page, re.DOTALL)
    (command,) = re.findall(
        r"^    ltp-pipeline (run model.onnx --task my_task.py.*)$", page, re.MULTILINE
    )
    return code, command.split()


def test_run_documented_task_works(tmp_path: Path, capsys, monkeypatch) -> None:
    g, rng = Graph(), np.random.default_rng(0)
    g.random("first", 12, 32, scale=0.4)
    g.random("second", 32, 1, scale=0.4)
    g.add("MatMul", g.add("Relu", g.add("MatMul", "x", "first")), "second", outputs=("y",))
    model, arrays = g.model({"x": ("N", 12)}, ["y"]), {}
    for split, count in (("train", 200), ("val", 50), ("test", 50)):
        x = rng.standard_normal((count, 12)).astype(np.float32)
        arrays |= {f"x_{split}": x, f"size_{split}": kinds.compute_answers(model, x=x)[:, 0] + 0.1}
    onnx.save(model, tmp_path / "model.onnx")
    np.savez(tmp_path / "arrays.npz", **arrays)
    code, command = read_documented_task()
    (tmp_path / "my_task.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    initialized = invoke(capsys, "init", "model.onnx", "--task", "my_task.py")
    assert initialized.code == 0, initialized.err
    assert "MAE 0.1 mm" in initialized.out
    assert "ltp-pipeline run model.onnx --task my_task.py" in initialized.out
    options = ("--epochs", 1, "--finetune-epochs", 1, "--no-baseline", "--threads", 1)
    pruned = invoke(capsys, *command, *options)
    assert pruned.code == 0, pruned.err
    report = json.loads(Path("model-ltp/report.json").read_text())
    assert report["metric"] == {
        "name": "MAE",
        "unit": "mm",
        "higher_is_better": False,
        "is_fraction": False,
    }
    assert report["original"]["accuracy"]["value"] == pytest.approx(0.1, rel=1e-4)
