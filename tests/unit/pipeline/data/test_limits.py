"""Files are looked at before they are opened: what they are, what they are called, how much they hold."""

import os
import socket
from pathlib import Path

import pytest

from ltp_pipeline.data import limits
from ltp_pipeline.data.limits import (
    FREE_BYTES,
    MOST_TIMES,
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


def told(*paths: Path) -> str:
    with pytest.raises(InputError) as caught:
        inspect_files(paths)
    return caught.value.message


def test_plain_files_are_counted(tmp_path: Path) -> None:
    assert inspect_files([put(tmp_path / "a"), put(tmp_path / "b")]) == FileSizes(10, 10)


def test_links_to_files_are_followed_and_noted(tmp_path: Path) -> None:
    put(tmp_path / "a")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "c").symlink_to("b")
    found = inspect_files([tmp_path / "a", tmp_path / "b"])
    assert (found.bytes, found.notes) == (10, ("1 file of the data is a link and was followed",))
    assert inspect_files([tmp_path / "b", tmp_path / "c"]).notes == (
        "2 files of the data are links and were followed",
    )


def test_a_pipe_is_told_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x")
    assert told(tmp_path / "x").endswith("is a pipe, no file")


def test_a_link_to_a_device_is_told(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to("/dev/zero")
    assert told(tmp_path / "x").endswith("is a device, no file")


def test_a_socket_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("x")
        assert told(Path("x")) == "x is a socket, no file"


@pytest.mark.parametrize("target", ["gone", "x"])
def test_a_link_that_leads_nowhere_is_told(tmp_path: Path, target: str) -> None:
    (tmp_path / "x").symlink_to(target)
    assert "cannot be read" in told(tmp_path / "x")


def test_of_a_file_with_holes_what_is_on_disk_is_counted(tmp_path: Path) -> None:
    file = put(tmp_path / "x")
    os.truncate(file, 2**40)
    found = inspect_files([file])
    assert found.bytes == 2**40
    assert found.on_disk < 2**20
    with pytest.raises(InputError, match="says that it holds 1,099,511,627,776"):
        check_size("x", found, None)


@pytest.mark.parametrize(
    ("on_disk", "unpacked", "limit", "fits"),
    [
        (1, FREE_BYTES, None, True),
        (1, FREE_BYTES + 1, None, False),
        (10**7, 10**7 * MOST_TIMES, None, True),
        (10**7, 10**7 * MOST_TIMES + 1, None, False),
        (1, FREE_BYTES + 1, FREE_BYTES + 1, True),
        (10, 11, 10, False),
        (11, None, 10, False),
    ],
)
def test_data_hold_no_more_than_the_rule_or_the_setting_says(
    on_disk: int, unpacked: int | None, limit: int | None, fits: bool
) -> None:
    files = FileSizes(on_disk, on_disk)
    if fits:
        check_size("x", files, limit, unpacked)
        return
    with pytest.raises(InputError) as caught:
        check_size("x", files, limit, unpacked)
    assert "max_bytes" in caught.value.hint


def test_what_is_loaded_has_to_fit_in_memory_and_what_is_mapped_need_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "get_memory_limit", lambda: 1000)
    files = FileSizes(2000, 2000)
    check_size("x", files, None)
    with pytest.raises(InputError, match="at most 1,000 are read"):
        check_size("x", files, None, unpacked=2000)


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = limits.get_memory_limit()
    for said, found in ((f"{2**20}\n", 2**20), ("max\n", whole), (f"{2**62}\n", whole)):
        monkeypatch.setattr(limits, "_GROUP_LIMIT", put(tmp_path / "memory.max", said.encode()))
        assert limits.get_memory_limit() == found


def test_names_are_text() -> None:
    check_name_encoding("größe", "class")
    with pytest.raises(InputError) as caught:
        check_name_encoding("a\udcff", "class")
    assert caught.value.message == "class a? has a name that is no UTF-8"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a", "b", "a"], "is there twice"),
        (["/a"], "leads out"),
        (["../a"], "leads out"),
        (["b/../../a"], "leads out"),
        (["\udcff"], "no UTF-8"),
    ],
)
def test_members_that_are_not_plainly_inside_are_refused(names: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_member_names(names, Path("x.npz"))


def test_names_with_slashes_and_dots_inside_are_fine() -> None:
    check_member_names(["model/input:0", "a..b", ".a"], Path("x.npz"))
