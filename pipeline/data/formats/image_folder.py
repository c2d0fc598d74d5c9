"""A folder of class folders with images, or of images alone; train, val and test above them where there are."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ltp_pipeline.data import limits
from ltp_pipeline.data.dataset import LoadOptions, RawDataset
from ltp_pipeline.data.images.collection import EXTENSIONS, ImageList, hash_files, open_images
from ltp_pipeline.data.images.decode import ImageSource
from ltp_pipeline.errors import InputError

SPLITS = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}


class Found(NamedTuple):
    """The images of one split and the class of each; no classes where they lie in no class folders."""

    folder: Path
    files: list[str]
    classes: list[str] | None


def can_read(path: Path) -> bool:
    """Say whether this is a folder with folders or images in it."""
    return path.is_dir() and (bool(_folders(path)) or bool(_images(path)))


def read_dataset(path: Path, wanted: LoadOptions) -> RawDataset:
    """List the images, and open them."""
    found, notes = _find(path)
    files = limits.inspect_files(file for part in found.values() for file in part.files)
    limits.check_size(path, files, wanted.max_bytes)
    names = sorted(set(found["train" if "train" in found else "all"].classes or ()))
    if len(names) == 1:
        raise InputError(
            f"all training images in {path} are of one class, {names[0]}",
            "give a folder for each class; for data without labels, put the images into one folder",
        )
    for name in names:
        limits.check_name_encoding(name, f"a class folder of {path},")
    number = {name: i for i, name in enumerate(names)}
    for part in found.values():
        unknown = sorted(set(part.classes or ()) - number.keys())
        if unknown and names:
            raise InputError(
                f"{part.folder} has class {unknown[0]}, which the training images do not have",
                "give every split the same class folders",
            )
    listed = {
        name: ImageList(
            [ImageSource(file) for file in part.files],
            None if part.classes is None else [number.get(c, 0) for c in part.classes],
            f"images in {part.folder}",
            f"classes in {part.folder}",
        )
        for name, part in found.items()
    }
    skip = len(os.fspath(path)) + 1
    made_of = hash_files([(file[skip:], file) for part in found.values() for file in part.files])
    parts, more = open_images(listed, wanted)
    return RawDataset(parts, made_of, "NHWC", (*notes, *files.notes, *more), tuple(names) or None)


def find_splits(
    path: Path, is_split: Callable[[Path], bool]
) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Find the folders train, val and test, and say which others stand beside them; nothing where there are none."""
    folders = {folder.name: folder for folder in _folders(path)}
    splits = [
        name
        for names in SPLITS.values()
        for name in names
        if name in folders and is_split(folders[name])
    ]
    if not splits:
        return {}, ()
    if "train" not in splits:
        raise InputError(
            f"{path} has a folder {splits[0]} but no folder train of the same kind", "add train"
        )
    found = {}
    for split, names in SPLITS.items():
        present = [folders.pop(name) for name in names if name in folders]
        if len(present) > 1:
            raise InputError(
                f"{path} has both {present[0].name} and {present[1].name}", "keep one of the two"
            )
        if present:
            found[split] = present[0]
    return found, tuple(f"folder {name} stands beside train and is left out" for name in folders)


def would_read_folder(path: Path, folder: Path) -> bool:
    """Whether a folder made at that place would be taken for one of images."""
    splits, _ = _splits(path)
    return any(
        folder.resolve().is_relative_to(root.resolve()) for root in splits.values() or [path]
    )


def _splits(path: Path) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Tell splits from classes: a class may itself be called "train"."""
    folders = [folder.name for folder in _folders(path)]
    # Only a folder of folders is a split, or one among nothing but splits.
    only = "train" in folders and all(any(f in s for s in SPLITS.values()) for f in folders)
    splits, notes = find_splits(path, lambda folder: bool(_folders(folder)) or only)
    test = splits.get("test")
    if (
        test and _images(test) and not _folders(test) and _folders(splits["train"])
    ):  # as ImageNet comes
        del splits["test"]
        notes = (*notes, f"{test} has no class folders, so no labels, and is left out")
    return splits, notes


def _find(path: Path) -> tuple[dict[str, Found], tuple[str, ...]]:
    if not _folders(path):
        return {"all": Found(path, _images(path), None)}, ()
    splits, notes = _splits(path)
    if not splits:
        return {"all": _classes(path)}, ()
    flat = not any(_folders(folder) for folder in splits.values())
    found = {
        name: Found(f, _images(f), None) if flat else _classes(f) for name, f in splits.items()
    }
    for part in found.values():
        if not part.files:
            raise InputError(
                f"{part.folder} has no images ({', '.join(EXTENSIONS)})", "add images, or remove it"
            )
    return found, notes


def _classes(folder: Path) -> Found:
    files: list[str] = []
    classes: list[str] = []
    loose = _images(folder)
    if loose and _folders(folder):
        raise InputError(
            f"{folder} has images ({loose[0]}) beside folders of images",
            "put every image into the folder of its class, or, for data without labels, all into one folder",
        )
    for class_folder in _folders(folder):
        if not class_folder.resolve().is_relative_to(folder.resolve()):
            raise InputError(
                f"class folder {class_folder} is a link to a place outside {folder}",
                "put the images themselves there",
            )
        images = sorted(_images_below(class_folder))
        if not images:
            raise InputError(
                f"class folder {class_folder} has no images ({', '.join(EXTENSIONS)})",
                "add images, or remove the folder",
            )
        files.extend(images)
        classes.extend([class_folder.name] * len(images))
    if not files:
        raise InputError(
            f"{folder} has no class folders", "put the images of each class in a folder of its own"
        )
    return Found(folder, files, classes)


def _images_below(class_folder: Path) -> Iterator[str]:
    for where, folders, names in os.walk(class_folder):
        for name in folders:
            if os.path.islink(place := os.path.join(where, name)):  # noqa: PTH114, PTH118 - as below
                raise InputError(
                    f"{place} is a link to a folder", "put the images themselves there"
                )
        for name in names:
            if _is_image(name):
                yield os.path.join(where, name)  # noqa: PTH118 - a million Path objects take a minute


def _folders(path: Path) -> list[Path]:
    with os.scandir(path) as entries:
        return sorted(Path(e.path) for e in entries if not e.name.startswith(".") and e.is_dir())


def _images(path: Path) -> list[str]:
    with os.scandir(path) as entries:
        return sorted(e.path for e in entries if _is_image(e.name) and not e.is_dir())


def _is_image(name: str) -> bool:
    return not name.startswith(".") and name.lower().endswith(EXTENSIONS)
