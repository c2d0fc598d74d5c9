"""Shards in WebDataset layout: tar files with KEY.jpg and KEY.cls side by side, read by index and never unpacked.

Nothing but images and class numbers is ever read from them: WebDataset's other endings (.pyd, .pth) hold pickles.
"""

import os
import re
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ltp_pipeline.data import limits
from ltp_pipeline.data.dataset import LoadOptions, RawDataset
from ltp_pipeline.data.formats.image_folder import SPLITS, find_splits
from ltp_pipeline.data.images.collection import (
    EXTENSIONS,
    THREADS,
    ImageList,
    hash_files,
    open_images,
)
from ltp_pipeline.data.images.decode import ImageSource
from ltp_pipeline.errors import InputError

NAMES = {name for names in SPLITS.values() for name in names}
PACKED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
LONGEST_NUMBER = 16  # bytes of a .cls member
# What tarfile raises on bytes that were never written by a tar program; RecursionError on headers about headers.
BROKEN = (
    tarfile.TarError,
    EOFError,
    ValueError,
    OverflowError,
    LookupError,
    TypeError,
    RecursionError,
)
Sample = tuple[ImageSource, int | None]


def can_read(path: Path) -> bool:
    """Say whether this is a tar file, or a folder with tar files and no folders, or split folders of that kind."""
    if path.is_file():
        return path.suffix == ".tar"
    return bool(_tars(path)) or any(
        _tars(folder) for folder in path.iterdir() if folder.name in NAMES
    )


def read_dataset(path: Path, wanted: LoadOptions) -> RawDataset:
    """Index every shard, and open the images in them."""
    splits, notes = _splits(path)
    files = limits.inspect_files(shard for shards in splits.values() for shard in shards)
    limits.check_size(path, files, wanted.max_bytes)
    notes = (*notes, *files.notes)
    listed = {}
    for name, shards in splits.items():
        folder = path if path.is_file() else shards[0].parent
        with ThreadPoolExecutor(THREADS) as pool:  # waiting for a disk or a network is most of it
            samples = [sample for found in pool.map(index, shards) for sample in found]
        if not samples:
            raise InputError(
                f"the shards in {folder} hold no samples",
                "write KEY.jpg and KEY.cls for each sample",
            )
        listed[name] = ImageList(
            [source for source, _ in samples],
            _labels(samples),
            f"shards in {folder}",
            f".cls members in {folder}",
        )
        if listed[name].labels is None:
            notes = (*notes, f"the samples in {folder} have no .cls, and so no labels")
    made_of = hash_files(
        [(f"{name}/{s.name}", os.fspath(s)) for name, shards in splits.items() for s in shards]
    )
    parts, more = open_images(listed, wanted)
    return RawDataset(parts, made_of, "NHWC", (*notes, *more))


def _splits(path: Path) -> tuple[dict[str, list[Path]], tuple[str, ...]]:
    """Tell the shards of each split by the folder they are in, or by their names."""
    if path.is_file():
        return {"all": [path]}, ()
    if not _tars(path):
        folders, notes = find_splits(path, lambda folder: bool(_tars(folder)))
        return {name: _shards(folder) for name, folder in folders.items()}, notes
    named: dict[str, list[Path]] = {}
    for shard in _shards(path):
        words = set(re.findall("[a-z]+", shard.name.lower()))
        named.setdefault(
            next((split for split, names in SPLITS.items() if words & {*names}), "all"), []
        ).append(shard)
    if len(named) == 1:
        return {"all": next(iter(named.values()))}, ()
    if "all" in named or "train" not in named:
        one, other = (shards[0].name for shards in list(named.values())[:2])
        raise InputError(
            f"shards in {path} do not seem to be of one split: {one}, {other}",
            "put the shards of each split into a folder of its own: train, val, test",
        )
    said = ", ".join(f"{len(shards)} {name}" for name, shards in named.items())
    return named, (f"shards were divided by their names: {said}",)


def index(shard: Path) -> list[Sample]:
    """List the samples of a shard: where each image lies, and its class number where it has one."""
    samples: list[Sample] = []
    try:
        for key, members in _groups(shard):
            images = [source for ending, source in members.items() if f".{ending}" in EXTENSIONS]
            if len(images) != 1:
                raise InputError(
                    f"sample {key} of {shard} has {len(images)} images ({', '.join(members)})",
                    "write one image for each sample, its members side by side",
                )
            label = _number(members["cls"]) if "cls" in members else None
            samples.append((images[0], label))
    except BROKEN as error:
        raise InputError(
            f"{shard} is not a readable tar file: {error}", "write or copy the shard again"
        ) from None
    return samples


def _groups(shard: Path) -> Iterator[tuple[str, dict[str, ImageSource]]]:
    """Go through the samples: neighbours whose names are the same up to the first dot, as WebDataset reads them."""
    size, last, file = shard.stat().st_size, -1, os.fspath(shard)
    key, members = "", dict[str, ImageSource]()
    with tarfile.open(shard, "r:") as tar:
        for member in tar:
            if member.offset <= last or member.size < 0:  # tarfile would go round for ever
                raise tarfile.ReadError(f"the header of {member.name} leads back")
            last = member.offset
            tar.members = []  # type: ignore[attr-defined]  # a list of all that were seen; shards have many
            if member.isdir():
                continue
            _require_plain(member, shard)
            folder, slash, name = member.name.rpartition("/")
            stem, dot, ending = name.partition(".")
            if not stem or not dot:
                continue
            if member.offset_data + member.size > size:
                raise tarfile.ReadError(f"it ends within {member.name}")
            if folder + slash + stem != key:
                if members:
                    yield key, members
                key, members = folder + slash + stem, {}
            if ending.lower() in members:
                raise tarfile.ReadError(f"{member.name} is there twice")
            members[ending.lower()] = ImageSource(
                file, member.offset_data, member.size, member.name
            )
        _check_end(shard, tar.offset)  # where tarfile stopped
    if members:
        yield key, members


def _require_plain(member: tarfile.TarInfo, shard: Path) -> None:
    """Refuse what is no file of its own: a link could lead elsewhere, and holes could make any size of nothing."""
    limits.check_member_names([member.name], shard)
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
        kind = (
            "sparse"
            if member.issparse()
            else "a link"
            if member.islnk() or member.issym()
            else "no file"
        )
        raise InputError(
            f"member {member.name} of {shard} is {kind}", "write the shard with plain files only"
        )


def _check_end(shard: Path, offset: int) -> None:
    """Refuse what is cut short or garbled between two members: tarfile takes it for the end."""
    with shard.open("rb") as file:
        file.seek(offset)
        if file.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
            raise tarfile.ReadError(f"no member and no end stands at byte {offset}")


def _number(source: ImageSource) -> int:
    with Path(source.file).open("rb") as file:
        file.seek(source.offset)
        text = file.read(min(source.length, LONGEST_NUMBER + 1)).strip()
    if not text.isdigit() or len(text) > LONGEST_NUMBER:
        raise InputError(
            f"{source.name} holds {text!r}, which is no class number", "write it in digits, from 0"
        )
    return int(text)


def _labels(samples: list[Sample]) -> list[int] | None:
    labels = [label for _, label in samples if label is not None]
    if labels and len(labels) < len(samples):
        bare = next(source for source, label in samples if label is None)
        raise InputError(
            f"{bare.name} has no .cls beside it and others have", "give all samples labels, or none"
        )
    return labels or None


def _shards(folder: Path) -> list[Path]:
    shards = _tars(folder)
    for shard in shards:
        if shard.name.endswith(PACKED):
            raise InputError(
                f"shard {shard} is compressed", "unpack it to .tar: images hardly become smaller"
            )
    if not shards:
        raise InputError(f"{folder} has no shards (.tar)", "add shards, or remove the folder")
    return shards


def _tars(folder: Path) -> list[Path]:
    """A tar file beside folders is what these were unpacked from."""
    if not folder.is_dir():
        return []
    there = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    if any(entry.is_dir() for entry in there):
        return []
    return sorted(entry for entry in there if entry.name.endswith((".tar", *PACKED)))
