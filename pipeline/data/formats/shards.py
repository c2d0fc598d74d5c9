"""Shards in WebDataset layout: tar files with KEY.jpg and KEY.cls, read by index, never unpacked.

Only images and class numbers are read: other members of WebDataset (.pyd, .pth) hold pickles.
"""

import os
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from ltp_pipeline.data import limits
from ltp_pipeline.data.dataset import NUM_THREADS, LoadOptions, RawDataset
from ltp_pipeline.data.formats.image_folder import (
    find_split,
    find_split_folders,
    group_by_split,
)
from ltp_pipeline.data.images.collection import EXTENSIONS, ImageList, hash_files, open_images
from ltp_pipeline.data.images.decode import ImageSource
from ltp_pipeline.errors import InputError

COMPRESSED_SUFFIXES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
MAX_LABEL_BYTES = 16  # of a .cls member
# Exceptions of tarfile for bytes that no tar program wrote; RecursionError for nested headers.
TAR_ERRORS = (
    tarfile.TarError,
    EOFError,
    ValueError,
    OverflowError,
    LookupError,
    TypeError,
    RecursionError,
)
Members = dict[str, ImageSource]  # members of a sample by the ending of their names


class ShardSample(NamedTuple):
    """Place of an image in a shard, and its class number."""

    image: ImageSource
    label: int | None


def can_read(path: Path) -> bool:
    """Return whether a path is a tar file, a folder of tar files, or split folders of them."""
    if path.is_file():
        return path.suffix == ".tar"
    if _list_tar_files(path):
        return True
    return any(_list_tar_files(folder) for folder in path.iterdir() if find_split(folder.name))


def read_dataset(path: Path, options: LoadOptions) -> RawDataset:
    """Index all shards and open the images in them."""
    splits, split_notes = _find_shards(path)
    all_shards = list(chain.from_iterable(splits.values()))
    sizes = limits.inspect_files(all_shards)
    limits.check_size(path, sizes, options.settings.max_bytes)
    notes = [*split_notes, *sizes.notes]
    lists = {}
    for name, shards in splits.items():
        folder = path if path.is_file() else shards[0].parent
        # Waiting for a disk or a network takes most of the time, so threads help.
        with ThreadPoolExecutor(NUM_THREADS) as pool:
            samples = list(chain.from_iterable(pool.map(index_shard, shards)))
        if not samples:
            raise InputError(
                f"the shards in {folder} hold no samples",
                "write KEY.jpg and KEY.cls for each sample",
            )
        labels = _collect_labels(samples)
        if labels is None:
            notes.append(f"the samples in {folder} have no .cls, and so no labels")
        images = [sample.image for sample in samples]
        lists[name] = ImageList(images, labels, f"shards in {folder}", f".cls members in {folder}")
    named_files = []
    for name, shards in splits.items():
        for shard in shards:
            named_files.append((f"{name}/{shard.name}", os.fspath(shard)))
    fingerprint = hash_files(named_files)
    parts, image_notes = open_images(lists, options)
    return RawDataset(parts, fingerprint, "NHWC", (*notes, *image_notes))


def _find_shards(path: Path) -> tuple[dict[str, list[Path]], tuple[str, ...]]:
    """Return the shards of each split, by their folders or by their names, and notes."""
    if path.is_file():
        return {"all": [path]}, ()
    if not _list_tar_files(path):
        folders, notes = find_split_folders(path, lambda folder: bool(_list_tar_files(folder)))
        return {name: _list_shards(folder) for name, folder in folders.items()}, notes
    splits = group_by_split(path, {shard: shard.name for shard in _list_shards(path)})
    if "all" in splits:
        return splits, ()
    counts = ", ".join(f"{len(shards)} {name}" for name, shards in splits.items())
    return splits, (f"shards were divided by their names: {counts}",)


def index_shard(shard: Path) -> list[ShardSample]:
    """Return the samples of a shard: the place of each image and its class number.

    Raises:
        InputError: If the shard is not a tar file with one image for each sample.
    """
    samples: list[ShardSample] = []
    try:
        for key, members in _iter_samples(shard):
            images = [source for ending, source in members.items() if f".{ending}" in EXTENSIONS]
            if len(images) != 1:
                raise InputError(
                    f"sample {key} of {shard} must have one image, but has {len(images)}"
                    f" ({', '.join(members)})",
                    "write one image for each sample, its members side by side",
                )
            label = None
            if "cls" in members:
                label = _read_label(members["cls"])
            samples.append(ShardSample(images[0], label))
    except TAR_ERRORS as error:
        raise InputError(
            f"{shard} is not a readable tar file: {error}", "write or copy the shard again"
        ) from None
    return samples


def _iter_samples(shard: Path) -> Iterator[tuple[str, Members]]:
    """Iterate over samples: neighbors with the same name up to the first dot, as in WebDataset."""
    key = ""
    members: Members = {}
    for member in _iter_members(shard):
        folder, slash, name = member.name.rpartition("/")
        stem, dot, ending = name.partition(".")
        if not stem or not dot:
            continue
        if folder + slash + stem != key:
            if members:
                yield key, members
            key, members = folder + slash + stem, {}
        if ending.lower() in members:
            raise tarfile.ReadError(f"{member.name} exists twice")
        members[ending.lower()] = ImageSource(
            os.fspath(shard), member.offset_data, member.size, member.name
        )
    if members:
        yield key, members


def _iter_members(shard: Path) -> Iterator[tarfile.TarInfo]:
    """Iterate over the files in a shard; raise tarfile.ReadError for a corrupt shard."""
    size = shard.stat().st_size
    last_offset = -1
    with tarfile.open(shard, "r:") as tar:
        for member in tar:
            if member.offset <= last_offset or member.size < 0:
                # tarfile would read the same headers forever.
                raise tarfile.ReadError(f"the header of {member.name} leads back")
            last_offset = member.offset
            tar.members = []  # type: ignore[attr-defined]  # tarfile would keep every member
            if member.isdir():
                continue
            _check_plain_file(member, shard)
            if member.offset_data + member.size > size:
                raise tarfile.ReadError(f"it ends within {member.name}")
            yield member
        _check_end(shard, tar.offset)


def _check_plain_file(member: tarfile.TarInfo, shard: Path) -> None:
    """Raise InputError for links, which lead elsewhere, and sparse files, which hold any size."""
    limits.check_member_names([member.name], shard)
    is_file = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE)
    if is_file and not member.issparse():
        return
    kind = "a device or a pipe"
    if member.issparse():
        kind = "a sparse file"
    elif member.islnk() or member.issym():
        kind = "a link"
    raise InputError(
        f"member {member.name} of {shard} must be a plain file, but is {kind}",
        "write the shard with plain files only",
    )


def _check_end(shard: Path, offset: int) -> None:
    """Raise tarfile.ReadError if there is no end mark where tarfile stopped.

    tarfile takes garbage between two members for the end.
    """
    with shard.open("rb") as file:
        file.seek(offset)
        if file.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
            raise tarfile.ReadError(f"there is neither a member nor an end at byte {offset}")


def _read_label(source: ImageSource) -> int:
    """Read a class number."""
    with Path(source.file).open("rb") as file:
        file.seek(source.offset)
        text = file.read(min(source.length, MAX_LABEL_BYTES + 1)).strip()
    if not text.isdigit() or len(text) > MAX_LABEL_BYTES:
        raise InputError(
            f"{source.name} must hold a class number, but holds {text!r}",
            "write the number in digits, from 0",
        )
    return int(text)


def _collect_labels(samples: Sequence[ShardSample]) -> list[int] | None:
    """Return the class numbers of all samples, or None if no sample has one."""
    labels = [sample.label for sample in samples if sample.label is not None]
    if labels and len(labels) < len(samples):
        unlabeled = next(sample.image for sample in samples if sample.label is None)
        raise InputError(
            f"{unlabeled.name} has no .cls next to it, but other samples have",
            "label all samples, or none",
        )
    return labels or None


def _list_shards(folder: Path) -> list[Path]:
    """Return the shards in a folder; raise InputError if there are none, or a compressed one."""
    shards = _list_tar_files(folder)
    for shard in shards:
        if shard.name.endswith(COMPRESSED_SUFFIXES):
            raise InputError(
                f"shard {shard} is compressed", "unpack it to .tar: images hardly become smaller"
            )
    if not shards:
        raise InputError(f"{folder} has no shards (.tar)", "add shards, or remove the folder")
    return shards


def _list_tar_files(folder: Path) -> list[Path]:
    """Return the tar files in a folder; none if there are folders, which may be their contents."""
    if not folder.is_dir():
        return []
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    if any(entry.is_dir() for entry in entries):
        return []
    return sorted(e for e in entries if e.name.endswith((".tar", *COMPRESSED_SUFFIXES)))
