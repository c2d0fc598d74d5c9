"""The run directory: whose it is, what survives, who else is in it."""

import errno
import os
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from ltp_pipeline.config import Settings
from ltp_pipeline.errors import InputError
from ltp_pipeline.metric import Metric
from ltp_pipeline.workspace import Workspace, check_writable


def opened(folder: Path, **identity: object) -> Workspace:
    workspace = Workspace(folder)
    if not workspace.holds(identity):
        workspace.begin(identity)
    return workspace


def test_the_same_run_goes_on(tmp_path: Path):
    opened(tmp_path / "run", model="a")
    assert Workspace(tmp_path / "run").holds({"model": "a"})


def test_another_run_is_refused_and_the_change_is_named(tmp_path: Path):
    opened(tmp_path / "run", settings={"train": {"lr": 0.1}})
    with pytest.raises(InputError, match=r"settings\.train\.lr was 0\.1, is now 0\.2"):
        opened(tmp_path / "run", settings={"train": {"lr": 0.2}})


def test_other_data_and_another_model_are_named_without_their_hashes(tmp_path: Path):
    opened(tmp_path / "run", model="0abc", data="1def")
    with pytest.raises(InputError, match=r"holds another run: its data were another; its model was another$"):
        opened(tmp_path / "run", model="2abc", data="3def")


def test_fresh_empties_a_run(tmp_path: Path):
    workspace = opened(tmp_path / "run", model="a")
    workspace.save_state("learn", {"x": torch.ones(2)}, {"steps": 1})
    again = Workspace(tmp_path / "run")
    again.begin({"model": "b"})
    assert again.load_state("learn") is None


def test_fresh_does_not_touch_a_folder_that_holds_no_run(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="holds no run"):
        Workspace(tmp_path).begin({})
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_what_an_interrupted_write_left_does_not_stand_in_the_way(tmp_path: Path):
    (tmp_path / ".manifest.json.k2j3").write_text("{")
    Workspace(tmp_path).begin({})
    assert Workspace(tmp_path).is_run


def test_two_processes_cannot_work_in_one_directory(tmp_path: Path):
    with (
        Workspace(tmp_path / "run").held(),
        pytest.raises(InputError, match="another process"),
        Workspace(tmp_path / "run").held(),
    ):
        pass
    with Workspace(tmp_path / "run").held():
        pass


@pytest.mark.parametrize(("number", "said"), [(errno.ENOLCK, None), (errno.EACCES, "cannot write")])
def test_a_file_system_without_locks_is_taken_and_one_without_rights_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str | None
):
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("filelock.FileLock.acquire", fail)
    told = nullcontext() if said is None else pytest.raises(InputError, match=said)
    with told, Workspace(tmp_path / "run").held():
        pass


def test_state_comes_back_as_it_was(tmp_path: Path):
    workspace = opened(tmp_path / "run")
    tensors = {"a/b.c": torch.arange(6.0).reshape(2, 3).t(), "flag": torch.tensor(True), "half": torch.ones(2).half()}
    workspace.save_state("learn", tensors, {"steps": 7})
    found, meta = workspace.load_state("learn")
    assert meta == {"steps": 7}
    assert all(torch.equal(found[n], t) and found[n].dtype == t.dtype for n, t in tensors.items())


def test_a_damaged_checkpoint_is_named(tmp_path: Path):
    workspace = opened(tmp_path / "run")
    workspace.save_state("learn", {"a": torch.ones(2)}, {})
    (path,) = (tmp_path / "run" / "state").iterdir()
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(InputError, match="damaged"):
        workspace.load_state("learn")


def test_a_damaged_manifest_is_named(tmp_path: Path):
    opened(tmp_path / "run")
    (tmp_path / "run" / "manifest.json").write_text("[1, 2")
    with pytest.raises(InputError, match="damaged"):
        opened(tmp_path / "run")


def test_steps_done_twice_stand_in_the_log_once_and_a_torn_line_is_passed_over(tmp_path: Path):
    workspace = opened(tmp_path / "run")
    for loss in (0.5, 0.4):
        workspace.log({"key": "learn", "step": 3, "loss": loss})
    with (tmp_path / "run" / "log.jsonl").open("a") as file:
        file.write('{"key": "learn", "st')
    assert workspace.read_log() == [{"key": "learn", "step": 3, "loss": 0.4}]


def test_a_damaged_trail_is_named(tmp_path: Path):
    from ltp_pipeline.stages.learn_thresholds import trail

    workspace = opened(tmp_path / "run")
    workspace.trail_index.parent.mkdir()
    workspace.trail_index.write_text('[{"entry": 1')
    with pytest.raises(InputError, match=r"trail\.json is damaged"):
        trail.read(workspace)


def test_a_file_in_place_of_the_folder_is_told(tmp_path: Path):
    (tmp_path / "model.onnx").touch()
    with pytest.raises(InputError, match="is a file"):
        check_writable(tmp_path / "model.onnx")


def test_a_folder_name_that_is_too_long_cannot_be_written(tmp_path: Path):
    with pytest.raises(InputError, match="cannot be written"):
        check_writable(tmp_path / ("x" * 300))


def test_the_metric_of_a_run_is_kept(tmp_path: Path):
    metric = Metric("MAE", "°C", higher_is_better=False, share=False)
    opened(tmp_path / "run").remember_inputs(tmp_path / "model.onnx", Settings(), metric)
    again = Workspace(tmp_path / "run")
    again.inputs()
    assert again.metric == metric


def test_a_metric_that_is_none_is_a_damaged_manifest(tmp_path: Path):
    workspace = opened(tmp_path / "run")
    workspace.remember_inputs(tmp_path / "model.onnx", Settings(), Metric())
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"name": "top-1"', '"name": {}'))
    workspace.inputs()
    with pytest.raises(InputError, match="is damaged"):
        _ = workspace.metric
