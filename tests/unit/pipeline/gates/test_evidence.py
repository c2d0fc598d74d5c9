"""A gate judges a report together with the files it speaks of: deleted, replaced and moved ones fail it."""

import hashlib
import os
import re
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ltp_pipeline
from ltp_pipeline.errors import InputError
from ltp_pipeline.gates.evidence import check_files
from ltp_pipeline.results.read_write import read
from ltp_pipeline.system.files import write_json
from ltp_pipeline.system.hashing import write_checksums
from tests.support.cli import Result, invoke
from tests.support.finished import SMALL, lay_out
from tests.support.sample_report import report_of, sample

SPARSE, DATA, PACKED = "model.sparse.onnx", "model.sparse.onnx.data", "model.packed.onnx"
BASELINE, ENTRY, ORIGINAL = "model.baseline.packed.onnx", "trail/003.onnx", "model.onnx"
POINT = "baseline/2/model.packed.onnx"
Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files") / "run"
    lay_out(folder)
    return folder


@pytest.fixture
def run(laid_out: Path, tmp_path: Path) -> Iterator[Path]:
    """A finished run; a test that waits for a pipe to be written is stopped."""
    shutil.copytree(laid_out, tmp_path / "run")
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("the gate hangs"))
    signal.alarm(20)
    yield tmp_path / "run"
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def judged(capsys: Any, folder: Path, *options: object) -> Result:
    return invoke(capsys, "gate", folder / "report.json", "--max-drop", "0.5", *options)


def remove(*names: str) -> Change:
    return lambda folder: [(folder / name).unlink() for name in names]


def replace(name: str, content: bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(content)


def edit(name: str, change: Callable[[bytes], bytes]) -> Change:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def move(name: str, to: str) -> Change:
    def change(folder: Path) -> None:
        (folder / to).parent.mkdir(exist_ok=True)
        (folder / name).rename(folder / to)

    return change


def swap(a: str, b: str) -> Change:
    def change(folder: Path) -> None:
        first, second = ((folder / name).read_bytes() for name in (a, b))
        (folder / a).write_bytes(second)
        (folder / b).write_bytes(first)

    return change


def link(name: str, to: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(to)

    return change


def put(name: str, make: Callable[[Path], object]) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return change


def several(*changes: Change) -> Change:
    return lambda folder: [change(folder) for change in changes]


def bind_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's name may not be long
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


SPOILED: dict[str, tuple[Change, str]] = {
    "all deleted": (remove(SPARSE, DATA, PACKED), PACKED),
    "one deleted": (remove(PACKED), PACKED),
    "the model deleted, its data there": (remove(SPARSE), SPARSE),
    "the data deleted, their model there": (remove(DATA), DATA),
    "replaced": (replace(PACKED, b"another model"), PACKED),
    "data replaced": (replace(DATA, b"other weights"), DATA),
    "emptied": (replace(PACKED, b""), PACKED),
    "cut off": (edit(PACKED, lambda content: content[:-1]), PACKED),
    "longer by a byte": (edit(PACKED, lambda content: content + b"\0"), PACKED),
    "one bit changed": (
        edit(PACKED, lambda content: bytes([content[0] ^ 1, *content[1:]])),
        PACKED,
    ),
    "two swapped": (swap(SPARSE, PACKED), SPARSE),
    "model and data swapped": (swap(SPARSE, DATA), DATA),
    "moved below": (move(PACKED, f"models/{PACKED}"), PACKED),
    "moved above": (move(PACKED, f"../{PACKED}"), PACKED),
    "renamed": (move(PACKED, f"{PACKED}.bak"), PACKED),
    "another case": (move(PACKED, "Model.packed.onnx"), PACKED),
    "a folder in its place": (put(PACKED, Path.mkdir), PACKED),
    "a pipe in its place": (put(PACKED, os.mkfifo), PACKED),
    "a pipe in the place of its data": (put(DATA, os.mkfifo), DATA),
    "a socket in its place": (put(PACKED, bind_socket), PACKED),
    "a link to nowhere": (link(PACKED, "gone.onnx"), PACKED),
    "a link to itself": (link(PACKED, PACKED), PACKED),
    "a link to another file": (link(PACKED, SPARSE), PACKED),
    "a link to a device": (link(PACKED, "/dev/zero"), PACKED),
    "a baseline that was replaced": (replace(BASELINE, b"another model"), BASELINE),
    "a baseline that is a pipe": (put(BASELINE, os.mkfifo), BASELINE),
    "a point of the curve that was replaced": (replace(POINT, b"another model"), POINT),
    "an entry of the trail that was replaced": (replace(ENTRY, b"another model"), ENTRY),
    "an original that was replaced": (replace(ORIGINAL, b"another model"), ORIGINAL),
}


@pytest.mark.parametrize("way", SPOILED)
def test_gate_deleted_replaced_or_moved_file_fails(run: Path, capsys: Any, way: str) -> None:
    change, name = SPOILED[way]
    assert judged(capsys, run).code == 0
    change(run)
    result = judged(capsys, run)
    assert result.code == 7
    assert f"file {name}: " in result.err
    assert "passed  max_drop" in result.out
    alone = judged(capsys, run, "--report-only")
    assert (alone.code, "only the report was checked" in alone.err) == (0, True)
    assert "file" not in alone.out


ALLOWED: dict[str, Change] = {
    "without the original": remove(ORIGINAL),
    "without the baseline": remove(BASELINE),
    "without the curve": remove(POINT),
    "without the trail": lambda folder: shutil.rmtree(folder / "trail"),
    "a link to the same content": several(
        move(PACKED, "../cache"), lambda folder: (folder / PACKED).symlink_to("../cache")
    ),
    "more files": replace("notes.txt", b"mine"),
}


@pytest.mark.parametrize("way", ALLOWED)
def test_gate_with_shipped_files_only_passes(run: Path, capsys: Any, way: str) -> None:
    ALLOWED[way](run)
    result = judged(capsys, run)
    assert result.code == 0, result.err
    assert all(f"passed  file {name}: " in result.out for name in (SPARSE, DATA, PACKED))


def test_gate_report_moved_without_its_files_fails(run: Path, capsys: Any) -> None:
    moved = run.rename(run.parent / "elsewhere")
    assert judged(capsys, moved).code == 0
    shutil.copy(moved / "report.json", moved.parent)
    result = judged(capsys, moved.parent)
    assert result.code == 7
    assert "--report-only" in result.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_gate_unreadable_file_fails(run: Path, capsys: Any) -> None:
    (run / PACKED).chmod(0)
    assert f"file {PACKED}: " in judged(capsys, run).err


def changed(run: Path, **file: Any) -> list[str]:
    """What fails where the report says something else of its packed file."""
    report = lay_out(run)
    report["pruned"]["files"][1] |= file
    write_json(run / "report.json", report)
    return [v.line for v in check_files(report_of(report), run / "report.json") if not v.passed]


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "/etc/passwd",
        "models/../../secret",
        "a\0b",
        "",
        ".",
        "..",
        "a\\b",
        "n" * 300,
        "n/" * 600 + "n",
        "a\nb",
    ],
)
@pytest.mark.parametrize("where", ["pruned", "baseline", "curve", "trail"])
def test_gate_file_name_outside_the_folder_is_rejected(
    tmp_path: Path, capsys: Any, where: str, name: str
) -> None:
    report = sample(shapes=SMALL)[0]
    listed, key = {
        "pruned": (report["pruned"]["files"], "path"),
        "baseline": (report["baseline"]["files"], "path"),
        "curve": (report["baseline"]["curve"], "path"),
        "trail": (report["trail"], "file"),
    }[where]
    if where == "trail" and name == "../secret":
        return  # the trail of an entry that was picked lies in the folder around
    listed[0][key] = name
    write_json(tmp_path / "report.json", report)
    result = judged(capsys, tmp_path)
    assert result.code == 3, result.err
    assert "Traceback" not in result.err
    assert len(result.err) < 1000


SUMS = "SHA256SUMS"


def listed(run: Path) -> dict[str, str]:
    """Write the list of hashes beside a report, and return it."""
    report = report_of(lay_out(run))
    hashes = {
        **report.hashes,
        "report.json": hashlib.sha256((run / "report.json").read_bytes()).hexdigest(),
    }
    write_checksums(run / SUMS, hashes)
    return {name: digest or "" for name, digest in hashes.items()}


def test_gate_matching_checksums_pass(run: Path, capsys: Any) -> None:
    listed(run)
    result = judged(capsys, run)
    assert (result.code, f"passed  file {SUMS}: it agrees" in result.out) == (0, True), result.err


@pytest.mark.parametrize("name", [PACKED, BASELINE, POINT, DATA, "report.json"])
def test_gate_other_checksum_fails(run: Path, capsys: Any, name: str) -> None:
    write_checksums(run / SUMS, {**listed(run), name: "0" * 64})
    result = judged(capsys, run)
    assert result.code == 7
    assert re.search(rf"\bfile {SUMS}: .*\bhash\b.*{re.escape(name)}", result.err)


@pytest.mark.parametrize("name", [PACKED, DATA, "report.json"])
def test_gate_checksums_without_a_shipped_file_fail(run: Path, capsys: Any, name: str) -> None:
    hashes = listed(run)
    del hashes[name]
    write_checksums(run / SUMS, hashes)
    result = judged(capsys, run)
    assert (result.code, bool(re.search(rf"\bfile {SUMS}: .*{re.escape(name)}", result.err))) == (
        7,
        True,
    )


def test_gate_checksums_without_a_renamed_report_pass(run: Path) -> None:
    listed(run)
    copied = (run / "report.json").rename(run / "copied.json")
    assert [v.line for v in check_files(read(copied), copied) if not v.passed] == []


SPOILED_LISTS: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a link to nowhere": lambda path: path.symlink_to("gone"),
    "no text": lambda path: path.write_bytes(b"\xff\xfe"),
    "no hashes": lambda path: path.write_text("hello\n"),
    "a name twice": lambda path: path.write_text(f"{'0' * 64}  a\n{'1' * 64}  a\n"),
    "empty": lambda path: path.write_text(""),
}


@pytest.mark.parametrize("way", SPOILED_LISTS)
def test_gate_damaged_checksums_fail(run: Path, capsys: Any, way: str) -> None:
    SPOILED_LISTS[way](run / SUMS)
    result = judged(capsys, run)
    assert (result.code, f"file {SUMS}: " in result.err) == (7, True)


def test_gate_file_without_hash_fails(run: Path) -> None:
    assert changed(run, sha256=None) == [f"file {PACKED}: the report has no hash for this file"]


@pytest.mark.parametrize("part", [{"pruned": {"files": []}}, {"pruned": {}}, {}])
def test_gate_report_without_files_fails(run: Path, part: dict[str, Any]) -> None:
    report = {key: value for key, value in lay_out(run).items() if key != "pruned"} | part
    assert [
        v.line for v in check_files(report_of(report), run / "report.json") if not v.passed
    ] == ["files: the report names no exported file"]


def test_gate_of_picked_entry_ignores_the_trail(run: Path, capsys: Any) -> None:
    """It is that of the run which the entry was picked from."""
    report = lay_out(run)
    for entry in report["trail"]:
        entry["file"] = f"../{entry['file']}"
    write_json(run / "report.json", report)
    result = judged(capsys, run)
    assert (result.code, "trail" in result.out) == (0, False), result.err


def test_gate_ignores_neighboring_files(run: Path) -> None:
    (run.parent / "elsewhere.onnx").write_bytes(b"another file")
    report = lay_out(run)
    report["trail"][2]["file"] = report["model"]["path"] = "../elsewhere.onnx"
    assert report["trail"][2]["sha256"]
    results = check_files(report_of(report), run / "report.json")
    assert [v.name for v in results if not v.passed or "elsewhere" in v.name] == []


def test_hash_of_original_covers_its_external_data(run: Path) -> None:
    report = lay_out(run)
    (run / "weights.bin").write_bytes(b"weights")
    parts = [
        hashlib.sha256((run / name).read_bytes()).hexdigest() for name in (ORIGINAL, "weights.bin")
    ]
    report["model"] |= {
        "data": ["weights.bin"],
        "sha256": hashlib.sha256("".join(parts).encode()).hexdigest(),
    }
    assert all(v.passed for v in check_files(report_of(report), run / "report.json"))
    for spoil in (replace("weights.bin", b"others"), remove("weights.bin")):
        spoil(run)
        assert [
            v.name for v in check_files(report_of(report), run / "report.json") if not v.passed
        ] == [f"file {ORIGINAL}"]


def test_original_named_like_a_shipped_file_is_distinct(run: Path) -> None:
    report = lay_out(run)
    report["model"]["path"] = PACKED
    assert all(v.passed for v in check_files(report_of(report), run / "report.json"))


def test_gate_function_checks_files_unless_report_only(run: Path) -> None:
    (run / PACKED).unlink()
    path = run / "report.json"
    assert [v.name for v in ltp_pipeline.gate(path, max_drop=0.5) if not v.passed] == [
        f"file {PACKED}"
    ]
    assert [v.name for v in ltp_pipeline.gate(str(path), max_drop=0.5, report_only=True)] == [
        "max_drop"
    ]
    with pytest.raises(InputError, match="memory") as caught:
        ltp_pipeline.gate(report_of(lay_out(run)), max_drop=0.5)
    assert "report_only=True" in caught.value.hint
    assert ltp_pipeline.gate(report_of(lay_out(run)), max_drop=0.5, report_only=True)[0].passed


def test_missing_changed_and_failed_each_have_a_remedy_of_their_own(run: Path, capsys: Any) -> None:
    (run / PACKED).write_bytes(b"changed")
    result = judged(capsys, run)
    assert ("restore the files" in result.err, "--report-only" in result.err) == (
        True,
        False,
    )
    (run / PACKED).unlink()
    result = judged(capsys, run)
    assert ("restore the files" in result.err, "--report-only" in result.err) == (
        False,
        True,
    )
    both = judged(capsys, run, "--min-compression", 100)
    assert "--report-only" in both.err
    assert "--target-compression 100" in both.err
