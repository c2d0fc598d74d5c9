"""The run directory: whose it is, what survives, who else is in it."""

import re
import shutil
from hashlib import sha256
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from ltp_pipeline.errors import InputError
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.run_directory.hashed_files import CorruptFileError
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.schema import Settings


def opened(folder: Path, **identity: object) -> RunDirectory:
    run_directory = RunDirectory(folder)
    if not run_directory.has_same_run(identity):
        run_directory.begin_run(identity)
    return run_directory


def test_begin_run_same_settings_resumes(tmp_path: Path):
    opened(tmp_path / "run", model="a")
    assert RunDirectory(tmp_path / "run").has_same_run({"model": "a"})


def test_begin_run_changed_setting_raises_with_its_name(tmp_path: Path):
    opened(tmp_path / "run", settings={"train": {"lr": 0.1}})
    with pytest.raises(InputError, match=r"settings\.train\.lr .*\b0\.1\b.*\b0\.2\b"):
        opened(tmp_path / "run", settings={"train": {"lr": 0.2}})


def test_begin_run_changed_data_and_model_are_named_without_hashes(tmp_path: Path):
    opened(tmp_path / "run", model="0abc", data="1def")
    with pytest.raises(InputError, match=r"\bdata\b.*\bmodel\b") as caught:
        opened(tmp_path / "run", model="2abc", data="3def")
    assert re.search("0abc|1def|2abc|3def", caught.value.message) is None


def test_begin_run_fresh_removes_the_run(tmp_path: Path):
    run_directory = opened(tmp_path / "run", model="a")
    run_directory.save_state("learn", {"x": torch.ones(2)}, {"steps": 1})
    again = RunDirectory(tmp_path / "run")
    again.begin_run({"model": "b"})
    assert again.load_state("learn") is None


def test_begin_run_fresh_in_a_foreign_folder_raises(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=re.escape(str(tmp_path))):
        RunDirectory(tmp_path).begin_run({})
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_begin_run_ignores_leftovers_of_a_write(tmp_path: Path):
    (tmp_path / ".manifest.json.k2j3").write_text("{")
    RunDirectory(tmp_path).begin_run({})
    assert RunDirectory(tmp_path).is_run


def test_load_state_returns_the_saved_state(tmp_path: Path):
    run_directory = opened(tmp_path / "run")
    tensors = {
        "a/b.c": torch.arange(6.0).reshape(2, 3).t(),
        "flag": torch.tensor(True),
        "half": torch.ones(2).half(),
    }
    run_directory.save_state("learn", tensors, {"steps": 7})
    restored, meta = run_directory.load_state("learn")
    assert meta == {"steps": 7}
    assert all(
        torch.equal(restored[n], t) and restored[n].dtype == t.dtype for n, t in tensors.items()
    )


def test_run_directory_stores_the_metric(tmp_path: Path):
    metric = Metric("MAE", "°C", higher_is_better=False, is_fraction=False)
    opened(tmp_path / "run").save_inputs(tmp_path / "model.onnx", Settings(), metric)
    again = RunDirectory(tmp_path / "run")
    again.load_inputs()
    assert again.manifest.metric == metric


def test_load_state_damaged_is_noted_and_unused(tmp_path: Path):
    notes: list[str] = []
    run_directory = opened(tmp_path / "run")
    run_directory.progress = Mock(say=notes.append)
    run_directory.save_state("learn", {"a": torch.ones(2)}, {})
    (path,) = (tmp_path / "run" / "state").iterdir()
    path.write_bytes(path.read_bytes()[:20])
    assert run_directory.load_state("learn") is None
    (note,) = notes
    assert note.startswith(f"Note: {path} is damaged: ")
    assert note.endswith("this phase starts again")


def test_load_weights_damaged_are_noted_and_unused(tmp_path: Path):
    notes: list[str] = []
    run_directory = opened(tmp_path / "run")
    run_directory.progress = Mock(say=notes.append)
    run_directory.save_weights("pruned", {"a": torch.ones(2)}, {"nonzeros": 2})
    (tmp_path / "run" / "weights" / "pruned.safetensors").unlink()
    assert run_directory.load_weights("pruned") is None
    assert run_directory.load_weights_metadata("pruned") is None
    assert notes == [
        f"Note: {tmp_path}/run/weights/pruned.safetensors is damaged: it is missing; "
        "these weights are computed again"
    ]


def test_load_state_of_another_run_is_ignored(tmp_path: Path):
    opened(tmp_path / "other").save_state("learn", {"a": torch.zeros(2)}, {})
    run_directory = opened(tmp_path / "run")
    shutil.copytree(tmp_path / "other" / "state", tmp_path / "run" / "state")
    assert run_directory.load_state("learn") is None


def test_has_same_run_changed_trail_raises(tmp_path: Path):
    run_directory = opened(tmp_path / "run")
    run_directory.trail_path(1).parent.mkdir()
    run_directory.trail_path(1).write_bytes(b"network")
    run_directory.save_trail_entry(1, (sha256(b"network").hexdigest(), None), [{"entry": 1}])
    assert RunDirectory(tmp_path / "run").has_same_run({})
    run_directory.trail_path(1).write_bytes(b"netw0rk")
    with pytest.raises(CorruptFileError, match=r"trail/001\.onnx ") as caught:
        RunDirectory(tmp_path / "run").has_same_run({})
    assert "--fresh" in caught.value.hint


def test_has_same_run_ignores_an_entry_being_rewritten(tmp_path: Path):
    run_directory = opened(tmp_path / "run")
    run_directory.trail_path(1).parent.mkdir()
    run_directory.save_trail_entry(1, ("0" * 64, None), [])
    run_directory.forget_trail_entry(1)
    assert RunDirectory(tmp_path / "run").has_same_run({})


def test_save_in_removed_directory_raises(tmp_path: Path):
    run_directory = opened(tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    for write in (
        lambda: run_directory.save_state("learn", {}, {}),
        lambda: run_directory.update_manifest(learned=True),
    ):
        with pytest.raises(InputError, match=re.escape(str(tmp_path / "run"))):
            write()
    assert not (tmp_path / "run").exists()


def test_inherit_weights_copies_once_and_rejects_damage(tmp_path: Path):
    parent = opened(tmp_path / "run")
    parent.save_weights("baseline", {"a": torch.ones(2)}, {"nonzeros": 2})
    picked = RunDirectory(tmp_path / "run" / "pick-001", parent=parent)
    picked.begin_run({})
    picked.inherit_weights("baseline")
    assert picked.load_weights_metadata("baseline") == {"nonzeros": 2}
    (tmp_path / "run" / "weights" / "baseline.safetensors").write_bytes(b"")
    picked.inherit_weights("baseline")
    other = RunDirectory(tmp_path / "run" / "pick-002", parent=parent)
    other.begin_run({})
    with pytest.raises(CorruptFileError, match=r"run/weights/baseline\.safetensors "):
        other.inherit_weights("baseline")


def test_read_log_notes_unreadable_lines(tmp_path: Path):
    notes: list[str] = []
    run_directory = opened(tmp_path / "run")
    run_directory.progress = Mock(say=notes.append)
    run_directory.append_log({"key": "learn", "step": 3, "loss": 0.5})
    with (tmp_path / "run" / "log.jsonl").open("ab") as file:
        file.write(b"\xff\xfe[1")
    assert run_directory.read_log() == [{"key": "learn", "step": 3, "loss": 0.5}]
    assert notes == [f"Note: 1 line of {tmp_path}/run/log.jsonl cannot be read and is skipped"]
