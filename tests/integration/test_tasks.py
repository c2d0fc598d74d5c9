"""Every kind of task from the lines that a user begins with: init, run, gate; and a task of the user's own."""

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
    return [{"x": arrays["x"][i], "wanted": arrays["y"][i]} for i in rows[split]]


def loss(outputs, batch):
    (y,) = outputs.values()
    return (y - batch["wanted"]).abs().mean()


def score(outputs, batch):
    (y,) = outputs.values()
    return (y - batch["wanted"]).abs().mean(1)
"""


@pytest.mark.parametrize(
    ("kind", "metric", "beside", "answer"),
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
def test_a_kind_of_task_from_init_to_gate(
    tmp_path: Path, capsys, monkeypatch, kind, metric, beside, answer
) -> None:
    kinds.write(kind, tmp_path)
    monkeypatch.chdir(tmp_path)
    begun = invoke(capsys, "init", "model.onnx", "--data", "data.npz")
    assert begun.code == 0, begun.err
    ran = invoke(capsys, "run", "model.onnx", *SHORT, "--json")
    assert ran.code == 0, ran.err
    report = json.loads((tmp_path / "model-ltp" / "report.json").read_text())
    assert report["metric"]["name"] == metric
    assert report["original"]["accuracy"]["value"] > 0.8
    assert [figure["name"] for figure in report["pruned"]["accuracy"]["extra_metrics"]] == (
        [beside] if beside else []
    )
    low, high = report["pruned"]["drop_interval"]
    assert low <= report["pruned"]["drop"] <= high
    gates = ("--max-drop", 0.99, "--min-compression", 1.9)
    judged = invoke(capsys, "gate", "model-ltp/report.json", *gates, "--data", "data.npz")
    assert judged.code == 0, judged.err
    (now, then), *_ = re.findall(r"ltp measured again: (.*), the report says (.*)", judged.err)
    assert now == then
    page = Path("model-ltp/handoff/HANDOFF.md").read_text()
    assert re.findall(r"`(scores[.> ].*?)`", page) == ([answer] if answer else [])


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    kinds.write("regression", tmp_path)
    (tmp_path / "my_task.py").write_text(TASK)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_task_of_the_users_own(own: Path, capsys) -> None:
    ran = invoke(capsys, "run", "model.onnx", "--task", "my_task.py", *SHORT)
    assert ran.code == 0, ran.err
    report = json.loads(Path("model-ltp/report.json").read_text())
    x, y = (np.load("data.npz")[name][250:] for name in ("x", "y"))
    wanted = float(
        np.abs(kinds.answers(kinds.regress(np.random.default_rng(0))[0], x=x) - y).mean()
    )
    assert report["metric"] == {
        "name": "MAE",
        "unit": "mm",
        "higher_is_better": False,
        "is_fraction": False,
    }
    assert report["original"]["accuracy"]["value"] == pytest.approx(wanted, rel=1e-5)
    assert report["pruned"]["drop"] > 0
    low, high = report["pruned"]["drop_interval"]
    assert low <= report["pruned"]["drop"] <= high
    judged = invoke(
        capsys, "gate", "model-ltp/report.json", "--max-drop", 99, "--task", "my_task.py"
    )
    assert (judged.code, "ltp measured again" in judged.err) == (0, True), judged.err
    Path("my_task.py").write_text(TASK + "\n")
    for given in (("--task", "my_task.py"), ("--data", "data.npz")):
        assert invoke(capsys, "gate", "model-ltp/report.json", "--max-drop", 99, *given).code == 3


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
def test_a_run_with_a_task_is_refused_without_it_and_goes_on_with_it(
    own: Path, capsys, command
) -> None:
    assert invoke(capsys, "run", "model.onnx", "--task", "my_task.py", *SHORT).code == 0
    more = SHORT if command[0] == "run" else ()
    without = invoke(capsys, *command, *more)
    assert without.code == 3
    assert "was made with a task of its own" in without.err
    assert "--task FILE.py" in without.err
    assert invoke(capsys, *command, *more, "--task", "my_task.py").code == 0


def test_another_task_file_is_another_run(own: Path, capsys) -> None:
    assert invoke(capsys, "run", "model.onnx", "--task", "my_task.py", *SHORT).code == 0
    with Path("my_task.py").open("a") as file:
        file.write("# changed\n")
    other = invoke(capsys, "run", "model.onnx", "--task", "my_task.py", *SHORT)
    assert other.code == 3
    assert "--fresh" in other.err


def test_a_task_of_another_hash_is_refused_by_all_that_take_the_run(own: Path, capsys) -> None:
    assert invoke(capsys, "run", "model.onnx", "--task", "my_task.py", *SHORT).code == 0
    Path("other.py").write_text(TASK.replace("my_task.py", "other.py"))
    for command in (
        ("validate", "model-ltp/model.sparse.onnx"),
        ("handoff", "model-ltp", "--example-samples", 3),
        ("export", "model-ltp", "--format", "dense"),
        ("pick", "model-ltp", 1),
    ):
        refused = invoke(capsys, *command, "--task", "other.py")
        assert refused.code == 3, refused
        assert "was made with another task than other.py" in refused.err


def test_a_handoff_names_the_task_file_and_holds_real_samples(own: Path, capsys) -> None:
    assert invoke(capsys, "run", "model.onnx", "--task", "my_task.py", *SHORT).code == 0
    assert (
        invoke(capsys, "handoff", "model-ltp", "--example-samples", 3, "--task", "my_task.py").code
        == 0
    )
    digest = hashlib.sha256(TASK.encode()).hexdigest()
    page = Path("model-ltp/handoff/HANDOFF.md").read_text()
    assert f"`my_task.py` (SHA-256 `{digest}`)" in page
    assert "ltp-pipeline validate model.packed.onnx --task my_task.py" in page
    assert "--data" not in page
    example = np.load("model-ltp/handoff/example.npz")
    np.testing.assert_array_equal(example["samples/x"], np.load("data.npz")["x"][250:253])
    assert json.loads(Path("model-ltp/report.json").read_text())["custom_task"]["sha256"] == digest
    assert (
        f"samples and metric are those of my_task.py (SHA-256 {digest})"
        in Path("model-ltp/report.html").read_text()
    )


def test_validate_takes_a_task_beside_settings_of_data(own: Path) -> None:
    found = ltp_pipeline.validate("model.onnx", ltp_pipeline.DataSettings(), task="my_task.py")
    assert found.metric.name == "MAE"
    with pytest.raises(InputError, match=r"both a task \(my_task.py\) and data \(data.npz\)"):
        ltp_pipeline.validate("model.onnx", "data.npz", task="my_task.py")


def test_an_object_without_a_fingerprint_cannot_go_on(own: Path) -> None:
    class Task:
        def dataset(self, _split: str):
            arrays = np.load("data.npz")
            return [{"x": x} for x in arrays["x"][:60]]

    settings = {"budget": {"target_compression": 2}, "train": {"epochs": 1, "finetune_epochs": 0}}
    ltp_pipeline.run("model.onnx", task=Task(), baseline={"mode": "none"}, **settings)
    with pytest.raises(InputError, match="has no fingerprint"):
        ltp_pipeline.run("model.onnx", task=Task(), baseline={"mode": "none"}, **settings)


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
def drawing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Mapping[str, bytes]]:
    """Runs of a network with Dropout on a task that draws random numbers wherever it can: the files, by workers."""
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

    def files(out: str, workers: int = 0) -> Mapping[str, bytes]:
        ltp_pipeline.run(
            "model.onnx", out=out, task="my_task.py", data={"num_workers": workers}, **options
        )
        report = json.loads(Path(out, "report.json").read_text())
        found = {
            name: Path(out, name).read_bytes() for name in ("model.dense.onnx", "trail/001.onnx")
        }
        return {
            **found,
            "accuracy": json.dumps(
                [report[n]["accuracy"] for n in ("original", "pruned")]
            ).encode(),
        }

    return files


def test_what_a_task_draws_at_random_is_the_same_in_every_run_whoever_reads(drawing) -> None:
    assert drawing("first") == drawing("second") == drawing("third", workers=2)


def test_a_task_that_draws_at_random_goes_on_to_the_same_bytes(
    drawing, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, taken, step = drawing("whole"), 0, loop._train_step

    def stopped(*given):
        nonlocal taken
        taken += 1
        if taken == 9:  # within the second epoch of learning
            raise KeyboardInterrupt
        return step(*given)

    monkeypatch.setattr(loop, "_train_step", stopped)
    monkeypatch.setattr(loop, "SAVE_EVERY_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        drawing("stopped")
    assert drawing("stopped") == whole


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_worker_processes_say_nothing_when_stopped_and_end_with_the_run(
    drawing, tmp_path: Path, how: int
) -> None:
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
    if how == signal.SIGKILL:
        process.kill()
    else:
        os.killpg(process.pid, how)
    said = process.communicate(timeout=60)[1]  # until all that could write there have ended
    assert "Traceback" not in said
    if how != signal.SIGKILL:
        assert process.returncode == 130
        assert said.endswith("interrupted; what is done is kept, the same command goes on\n")


def test_an_error_in_the_users_code_is_shown_as_theirs(own: Path, capsys) -> None:
    Path("my_task.py").write_text(
        TASK.replace('batch["wanted"]).abs().mean()', 'batch["wnated"]).abs().mean()')
    )
    failed = invoke(capsys, "run", "model.onnx", "--task", "my_task.py", *SHORT)
    assert failed.code == 3
    assert 'batch["wnated"]' in failed.err
    assert "error: loss of my_task.py failed: KeyError" in failed.err
    assert not Path("model-ltp").exists()


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("return (y - batch", "return (y.detach() - batch", "loss of my_task.py has no gradient"),
        (
            ".abs().mean(1)",
            ".abs().mean().item()",
            "score of my_task.py returns shape () for 2 samples",
        ),
        ('"wanted": ', '"name": "text", "wanted": ', "of my_task.py holds <U4, not numbers"),
        (
            "import numpy",
            "raise SystemExit(0)\nimport numpy",
            "my_task.py cannot be loaded: SystemExit: 0",
        ),
    ],
)
def test_what_a_task_cannot_mean_is_two_lines_and_exit_3(
    own: Path, capsys, before: str, after: str, said: str
) -> None:
    Path("my_task.py").write_text(TASK.replace(before, after, 1))
    failed = invoke(capsys, "run", "model.onnx", "--task", "my_task.py", *SHORT)
    assert failed.code == 3
    *_, what, remedy = failed.err.splitlines()
    assert said in what
    assert remedy.startswith("  ")
    assert not Path("model-ltp").exists()


def test_init_leaves_a_file_that_is_there_alone(own: Path, capsys) -> None:
    Path("ltp.toml").write_text("# mine\n")
    refused = invoke(capsys, "init", "model.onnx", "--data", "data.npz")
    assert refused.code == 3
    assert Path("ltp.toml").read_text() == "# mine\n"
    assert invoke(capsys, "init", "model.onnx", "--data", "data.npz", "--force").code == 0
    assert 'kind = "regression"' in Path("ltp.toml").read_text()


def test_init_without_data_says_what_arrays_are_wanted(own: Path, capsys) -> None:
    assert invoke(capsys, "init", "model.onnx").code == 0
    assert "x_train and y_train" in Path("ltp.toml").read_text()
    assert invoke(capsys, "run", "model.onnx").code == 3


def documented_task() -> tuple[str, list[str]]:
    """The file that docs/how-to/custom-task.md shows, and the command beneath it."""
    page = (ROOT / "docs" / "how-to" / "custom-task.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(# my_task.py\n.*?)```", page, re.DOTALL)
    (command,) = re.findall(
        r"^    ltp-pipeline (run model.onnx --task my_task.py.*)$", page, re.MULTILINE
    )
    return code, command.split()


def test_the_documented_task_runs_as_it_is_written(tmp_path: Path, capsys, monkeypatch) -> None:
    g, rng = Graph(), np.random.default_rng(0)
    g.random("first", 12, 32, scale=0.4)
    g.random("second", 32, 1, scale=0.4)
    g.add("MatMul", g.add("Relu", g.add("MatMul", "x", "first")), "second", outputs=("y",))
    model, arrays = g.model({"x": ("N", 12)}, ["y"]), {}
    for split, count in (("train", 200), ("val", 50), ("test", 50)):
        x = rng.standard_normal((count, 12)).astype(np.float32)
        arrays |= {f"x_{split}": x, f"size_{split}": kinds.answers(model, x=x)[:, 0] + 0.1}
    onnx.save(model, tmp_path / "model.onnx")
    np.savez(tmp_path / "arrays.npz", **arrays)
    code, command = documented_task()
    (tmp_path / "my_task.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    begun = invoke(capsys, "init", "model.onnx", "--task", "my_task.py")
    assert begun.code == 0, begun.err
    assert "the original has MAE 0.1 mm" in begun.out
    assert "then: ltp-pipeline run model.onnx --task my_task.py" in begun.out
    ran = invoke(
        capsys, *command, "--epochs", 1, "--finetune-epochs", 1, "--no-baseline", "--threads", 1
    )
    assert ran.code == 0, ran.err
    report = json.loads(Path("model-ltp/report.json").read_text())
    assert report["metric"] == {
        "name": "MAE",
        "unit": "mm",
        "higher_is_better": False,
        "is_fraction": False,
    }
    assert report["original"]["accuracy"]["value"] == pytest.approx(0.1, rel=1e-4)
