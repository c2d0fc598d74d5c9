"""Interrupted at any point, the same command goes on, and the files are those of a run that never stopped."""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch

from ltp_pipeline.runner.run import run
from ltp_pipeline.settings.load import load_settings
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages.train import loop
from ltp_pipeline.system.progress import SilentReporter
from tests.support.cli import invoke, start

SLOW = pytest.mark.slow
OPTIONS = {
    "train": {"epochs": 2, "finetune_epochs": 1},
    "export": {"formats": ["sparse", "dense"]},
    "baseline": {"mode": "quick"},
}
FILES = (
    "model.sparse.onnx",
    "model.dense.onnx",
    "baseline/model.sparse.onnx",
    "trail/001.onnx",
    "trail/002.onnx",
)


def settings_for(folder: Path) -> Settings:
    return load_settings(folder / "model.onnx", options=OPTIONS)


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def wait_for(path: Path, process: "subprocess.Popen[str]") -> None:
    """Wait until the first epoch has left its mark."""
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


@pytest.fixture(scope="module")
def uninterrupted(shared: Path) -> dict[str, bytes]:
    return files(shared / "run")


def stop_and_go_on(
    example: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop_after: int,
    settings: Settings | None = None,
) -> dict[str, bytes]:
    """The files of a run that is interrupted after so many steps and taken up again."""
    num_steps = 0
    original = loop._train_step

    def step(self, *arguments):
        nonlocal num_steps
        num_steps += 1
        if num_steps == stop_after:
            raise KeyboardInterrupt
        return original(self, *arguments)

    monkeypatch.setattr(loop, "_train_step", step)
    arguments = (
        example / "model.onnx",
        settings or settings_for(example),
        example / "run",
        SilentReporter(),
    )
    with pytest.raises(KeyboardInterrupt):
        run(*arguments)
    assert not (example / "run" / "report.json").exists()
    run(*arguments)
    return files(example / "run")


@pytest.mark.parametrize(
    "stop_after", [25, *(pytest.param(step, marks=SLOW) for step in (1, 45, 80))]
)
def test_run_resumed_in_any_phase_gives_the_same_bytes(
    example: Path, uninterrupted: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, stop_after: int
):
    """Stops are counted in steps: within learning, at its second epoch, in fine-tuning, in the baseline."""
    assert stop_and_go_on(example, monkeypatch, stop_after) == uninterrupted


def test_run_resumed_within_an_epoch_starts_at_its_step(
    example: Path, uninterrupted: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(loop, "SAVE_EVERY_SECONDS", 0.0)
    assert stop_and_go_on(example, monkeypatch, 12) == uninterrupted


@pytest.mark.slow
@pytest.mark.parametrize("stop_after", [25, 45, 80])
def test_run_resumed_with_adamw_gives_the_same_bytes(
    example: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int
):
    train = {**OPTIONS["train"], "optimizer": "adamw", "lr": 1e-3}
    settings = load_settings(example / "model.onnx", options={**OPTIONS, "train": train})
    run(example / "model.onnx", settings, example / "whole", SilentReporter())
    assert stop_and_go_on(example, monkeypatch, stop_after, settings) == files(example / "whole")


@pytest.mark.slow
def test_run_resumed_uses_its_first_number_of_threads(
    example: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Also where fewer cores are left; only an explicit number changes it, and is kept from then on."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    seen: list[int] = []
    original = loop._train_step

    def step(self, *arguments):
        seen.append(torch.get_num_threads())
        if len(seen) in (5, 15):
            raise KeyboardInterrupt
        return original(self, *arguments)

    monkeypatch.setattr(loop, "_train_step", step)
    command = (
        "run",
        example / "model.onnx",
        "--out",
        example / "run",
        "--epochs",
        1,
        "--finetune-epochs",
        1,
    )
    command += ("--max-drop", 0.9)
    assert invoke(capsys, *command, "--threads", 3).code == 130
    going_on = invoke(capsys, *command, "--no-baseline")
    assert going_on.code == 130
    assert going_on.err.count(" 3 threads") == 1
    changed = invoke(capsys, *command, "--no-baseline", "--threads", 2)
    assert changed.code == 0, changed.err
    assert changed.err.count(" 2 threads") == 1
    assert " left, full run " in changed.err
    assert (set(seen[:15]), set(seen[15:])) == ({3}, {2})
    report = json.loads((example / "run" / "report.json").read_text())
    assert report["environment"]["threads"] == 2
    assert json.loads((example / "run" / "manifest.json").read_text())["threads"] == 2
    picked = invoke(capsys, "pick", example / "run", 1)
    assert picked.code == 0, picked.err
    assert (
        json.loads((example / "run" / "pick-001" / "report.json").read_text())["environment"][
            "threads"
        ]
        == 2
    )


COMMAND = (
    "run",
    "model.onnx",
    "--out",
    "run",
    "--epochs",
    2,
    "--finetune-epochs",
    1,
    "--max-drop",
    0.9,
)
COMMAND += ("--export", "sparse", "--export", "dense", "--baseline", "quick")


@pytest.mark.slow
@pytest.mark.parametrize(
    "mark",
    ["manifest.json", "trail/001.onnx", "state/finetune-002.safetensors", "model.sparse.onnx"],
)
def test_run_resumed_after_a_kill_gives_the_same_bytes(
    example: Path, uninterrupted: dict[str, bytes], mark: str
):
    """Killed before the first epoch ends, between epochs, after fine-tuning, and between two exports."""
    process = start(*COMMAND, cwd=example)
    wait_for(example / "run" / mark, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (example / "run" / "report.json").exists()
    again = start(*COMMAND, cwd=example)
    _, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    assert "Resuming the run" in err
    assert files(example / "run") == uninterrupted


@pytest.mark.slow
def test_run_resumes_after_a_full_disk(example: Path, uninterrupted: dict[str, bytes]):
    """A limit on the size of files stands in for the disk: checkpoints do not fit, the manifest does."""
    process = start(*COMMAND, cwd=example, largest_file=100_000)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 3, err
    assert "free some space" in err
    assert "Traceback" not in err
    again = start(*COMMAND, cwd=example)
    _, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    assert files(example / "run") == uninterrupted


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=SLOW),
        pytest.param(signal.SIGHUP, marks=SLOW),
    ],
)
def test_run_signals_exit_with_130_and_keep_progress(example: Path, number: signal.Signals):
    process = start("run", "model.onnx", "--out", "run", cwd=example)
    wait_for(example / "run" / "trail" / "001.onnx", process)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command resumes" in err
    assert "Traceback" not in err
