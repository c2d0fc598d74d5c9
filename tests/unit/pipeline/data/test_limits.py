"""Limits on files that are checked before the files are opened."""

import os
import re
import socket
from pathlib import Path

import pytest

from ltp_pipeline.data import limits
from ltp_pipeline.data.limits import (
    FREE_BYTES,
    MAX_UNPACKING,
    FileSizes,
    check_member_names,
    check_name_encoding,
    check_size,
    inspect_files,
)
from ltp_pipeline.errors import InputError


def put(file: Path, content: bytes = b"12345") -> Path:
    file.write_bytes(content)
    return file


def inspect_error(*paths: Path) -> str:
    with pytest.raises(InputError) as caught:
        inspect_files(paths)
    return caught.value.message


def test_inspect_files_sums_sizes(tmp_path: Path) -> None:
    assert inspect_files([put(tmp_path / "a"), put(tmp_path / "b")]) == FileSizes(10, 10)


def test_inspect_files_links_are_followed_and_noted(tmp_path: Path) -> None:
    put(tmp_path / "a")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "c").symlink_to("b")
    sizes = inspect_files([tmp_path / "a", tmp_path / "b"])
    assert sizes.bytes == 10
    assert sizes.notes[0].startswith("1 file ")
    (note,) = inspect_files([tmp_path / "b", tmp_path / "c"]).notes
    assert note.startswith("2 files ")


def test_inspect_files_pipe_raises_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x")
    assert "a pipe" in inspect_error(tmp_path / "x")


def test_inspect_files_link_to_a_device_raises(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to("/dev/zero")
    assert "a device" in inspect_error(tmp_path / "x")


def test_inspect_files_socket_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("x")
        assert "a socket" in inspect_error(Path("x"))


@pytest.mark.parametrize("target", ["gone", "x"])
def test_inspect_files_dead_link_raises(tmp_path: Path, target: str) -> None:
    (tmp_path / "x").symlink_to(target)
    assert str(tmp_path / "x") in inspect_error(tmp_path / "x")


def test_inspect_files_holes_are_not_counted_as_on_disk(tmp_path: Path) -> None:
    file = put(tmp_path / "x")
    os.truncate(file, 2**40)
    sizes = inspect_files([file])
    assert sizes.bytes == 2**40
    assert sizes.on_disk < 2**20
    with pytest.raises(InputError) as caught:
        check_size(file, sizes, None)
    assert "1,099,511,627,776" in caught.value.message


@pytest.mark.parametrize(
    ("on_disk", "unpacked", "limit", "fits"),
    [
        (1, FREE_BYTES, None, True),
        (1, FREE_BYTES + 1, None, False),
        (10**7, 10**7 * MAX_UNPACKING, None, True),
        (10**7, 10**7 * MAX_UNPACKING + 1, None, False),
        (1, FREE_BYTES + 1, FREE_BYTES + 1, True),
        (10, 11, 10, False),
        (11, None, 10, False),
    ],
)
def test_check_size_limit_is_the_setting_or_a_rule(
    on_disk: int, unpacked: int | None, limit: int | None, fits: bool
) -> None:
    files = FileSizes(on_disk, on_disk)
    if fits:
        check_size(Path("x"), files, limit, unpacked)
        return
    with pytest.raises(InputError) as caught:
        check_size(Path("x"), files, limit, unpacked)
    assert "max_bytes" in caught.value.hint


def test_check_size_only_loaded_data_must_fit_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "get_memory_limit", lambda: 1000)
    files = FileSizes(2000, 2000)
    check_size(Path("x"), files, None)
    with pytest.raises(InputError) as caught:
        check_size(Path("x"), files, None, unpacked=2000)
    assert re.search(r"\b1,000 bytes\b.*\b2,000\b", caught.value.message)


def test_get_memory_limit_container_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = limits.get_memory_limit()
    for content, sizes in ((f"{2**20}\n", 2**20), ("max\n", whole), (f"{2**62}\n", whole)):
        monkeypatch.setattr(limits, "_MEMORY_LIMIT", put(tmp_path / "memory.max", content.encode()))
        assert limits.get_memory_limit() == sizes


def test_check_name_encoding_surrogates_raise() -> None:
    check_name_encoding("größe", "class")
    with pytest.raises(InputError) as caught:
        check_name_encoding("a\udcff", "class")
    assert "a?" in caught.value.message


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a", "b", "a"], "twice"),
        (["/a"], "outside"),
        (["../a"], "outside"),
        (["b/../../a"], "outside"),
        (["\udcff"], "UTF-8"),
    ],
)
def test_check_member_names_invalid_names_raise(names: list[str], text: str) -> None:
    with pytest.raises(InputError) as caught:
        check_member_names(names, Path("x.npz"))
    assert text in caught.value.message


def test_check_member_names_slashes_and_dots_are_accepted() -> None:
    check_member_names(["model/input:0", "a..b", ".a"], Path("x.npz"))
