"""What a run writes can be removed, and nothing else."""

from pathlib import Path

from ltp_pipeline.run_directory.names import remove_run

OURS = (
    "manifest.json",
    "log.jsonl",
    "report.json",
    "SHA256SUMS",
    "model.sparse.onnx",
    "model.deploy.packed.rounded-int8.onnx.data",
    "state/learn.safetensors",
    "state/finetune-012.safetensors",
    "state/baseline-spared-3.safetensors",
    "weights/pruned.safetensors",
    "trail/trail.json",
    "trail/012.onnx.data",
    "baseline/2/model.dense.onnx",
    "handoff/HANDOFF.md",
    "tensorboard/learn/events.out.tfevents.1.host",
    "pick-003/state/finetune-003.safetensors",
    "pick-003/manifest.json",
    ".manifest.json.abcd1234",
)
THEIRS = (
    "thesis.tex",
    "model.onnx",
    "state/ours.safetensors",
    "state/learn.safetensors/notes.txt",
    "weights/thesis.tex",
    "trail/trail.json.bak",
    "handoff/notes.md",
    "pick-003/notes.md",
    "pick-final/manifest.json",
    "baseline/results.csv",
)


def fill(root: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_remove_run_removes_its_files_and_empty_folders(tmp_path: Path):
    fill(tmp_path, OURS)
    remove_run(tmp_path)
    assert not any(tmp_path.iterdir())


def test_remove_run_keeps_other_files(tmp_path: Path):
    fill(tmp_path, THEIRS)
    fill(tmp_path, tuple(name for name in OURS if name != "state/learn.safetensors"))
    remove_run(tmp_path)
    assert files(tmp_path) == set(THEIRS)


def test_remove_run_does_not_follow_links(tmp_path: Path):
    fill(tmp_path, ("elsewhere/learn.safetensors", "elsewhere/precious.json", "run/log.jsonl"))
    (tmp_path / "run" / "state").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "run" / "manifest.json").symlink_to(tmp_path / "elsewhere" / "precious.json")
    remove_run(tmp_path / "run")
    assert files(tmp_path / "elsewhere") == {"learn.safetensors", "precious.json"}
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["state"]


def test_remove_run_removes_the_manifest_last(tmp_path: Path, monkeypatch):
    fill(tmp_path, OURS)
    removed: list[str] = []
    unlink = Path.unlink
    monkeypatch.setattr(
        Path, "unlink", lambda self, **kwargs: (removed.append(self.name), unlink(self, **kwargs))
    )
    remove_run(tmp_path)
    assert removed[-1] == "manifest.json"
