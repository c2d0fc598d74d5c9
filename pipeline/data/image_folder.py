"""A folder of class folders with images; train, val and test above them where there are."""

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ltp_pipeline.data.images import EXTENSIONS, ImageSamples, choose_form, scan
from ltp_pipeline.data.samples import ArraySamples, Part, Samples, Stored, Wanted
from ltp_pipeline.errors import InputError

SPLITS = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}
KEEP_BYTES = 256 * 2**20  # folders that decode to less are decoded once, and so checked to the last pixel


class Found(NamedTuple):
    """The images of one split and the class of each."""

    folder: Path
    files: list[Path]
    classes: list[str]


def recognises(path: Path) -> bool:
    """Say whether this is a folder with folders in it."""
    return path.is_dir() and bool(_folders(path))


def read(path: Path, wanted: Wanted) -> Stored:
    """List the images, look at every header, and decode now or later depending on how much there is."""
    found, notes = _find(path)
    names = sorted(set(found["train" if "train" in found else "all"].classes))
    number = {name: i for i, name in enumerate(names)}
    for part in found.values():
        unknown = sorted(set(part.classes) - number.keys())
        if unknown:
            raise InputError(
                f"{part.folder} has class {unknown[0]}, which the training images do not have",
                "give every split the same class folders",
            )
    files = [file for part in found.values() for file in part.files]
    headers = scan(files)
    form = choose_form(headers, wanted)
    if any(h.size != form.size for h in headers):
        notes = (*notes, f"images are resized to {form.size[0]}×{form.size[1]} (height×width)")
    keep = len(files) * form.bytes <= KEEP_BYTES
    parts = {}
    for name, part in found.items():
        samples: Samples = ImageSamples(part.files, form)
        if keep:
            samples = ArraySamples(samples.take(np.arange(len(samples))))
        labels = np.array([number[c] for c in part.classes], np.int64)
        parts[name] = Part(samples, labels, f"images in {part.folder}", f"classes in {part.folder}")
    return Stored(parts, _fingerprint(path, found), "NHWC", notes, tuple(names))


def _find(path: Path) -> tuple[dict[str, Found], tuple[str, ...]]:
    folders = {folder.name: folder for folder in _folders(path)}
    # A class may itself be called "train": only a folder of folders is a split.
    splits = [name for names in SPLITS.values() for name in names if name in folders and _folders(folders[name])]
    if not splits:
        return {"all": _classes(path)}, ()
    if "train" not in splits:
        raise InputError(f"{path} has a folder {splits[0]} but no folder train with classes in it", "add train")
    found = {}
    for split, names in SPLITS.items():
        present = [folders.pop(name) for name in names if name in folders]
        if len(present) > 1:
            raise InputError(f"{path} has both {present[0].name} and {present[1].name}", "keep one of the two")
        if present:
            found[split] = _classes(present[0])
    return found, tuple(f"folder {name} stands beside train and is left out" for name in folders)


def _classes(folder: Path) -> Found:
    found = Found(folder, [], [])
    for class_folder in _folders(folder):
        if not class_folder.resolve().is_relative_to(folder.resolve()):
            raise InputError(
                f"class folder {class_folder} is a link to a place outside {folder}", "put the images themselves there"
            )
        images = sorted(
            Path(where, name)
            for where, _, names in os.walk(class_folder)
            for name in names
            if not name.startswith(".") and Path(name).suffix.lower() in EXTENSIONS
        )
        if not images:
            raise InputError(
                f"class folder {class_folder} has no images ({', '.join(EXTENSIONS)})",
                "add images, or remove the folder",
            )
        found.files.extend(images)
        found.classes.extend([class_folder.name] * len(images))
    if not found.files:
        raise InputError(f"{folder} has no class folders", "put the images of each class in a folder of its own")
    return found


def _folders(path: Path) -> list[Path]:
    return sorted(f for f in path.iterdir() if f.is_dir() and not f.name.startswith("."))


def _fingerprint(root: Path, found: dict[str, Found]) -> str:
    """Hash names, sizes and times of change: reading every byte of a large folder would take too long."""
    digest = hashlib.sha256()
    for part in found.values():
        for file in part.files:
            status = file.stat()
            digest.update(
                f"{file.relative_to(root)}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="replace")
            )
    return digest.hexdigest()
