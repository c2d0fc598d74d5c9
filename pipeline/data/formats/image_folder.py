"""Folders of images: a folder for each class, or images alone; folders train, val and test."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ltp_pipeline.data import limits
from ltp_pipeline.data.dataset import LoadOptions, RawDataset
from ltp_pipeline.data.images.collection import EXTENSIONS, ImageList, hash_files, open_images
from ltp_pipeline.data.images.decode import ImageSource
from ltp_pipeline.errors import InputError

SPLIT_NAMES = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}


class ImageFolder(NamedTuple):
    """The images of one split, and the class of each; no classes without class folders."""

    folder: Path
    files: list[str]
    classes: list[str] | None


def can_read(path: Path) -> bool:
    """Return whether a path is a folder with folders or images."""
    return path.is_dir() and (bool(_list_folders(path)) or bool(_list_images(path)))


def read_dataset(path: Path, options: LoadOptions) -> RawDataset:
    """List the images of all splits and open them."""
    folders, notes = _find_images(path)
    sizes = limits.inspect_files(file for part in folders.values() for file in part.files)
    limits.check_size(path, sizes, options.settings.max_bytes)
    names = _list_classes(path, folders)
    numbers = {name: number for number, name in enumerate(names)}
    lists = {}
    for split, part in folders.items():
        labels = None
        if part.classes is not None:
            labels = [numbers[name] for name in part.classes]
        sources = [ImageSource(file) for file in part.files]
        lists[split] = ImageList(
            sources, labels, f"images in {part.folder}", f"classes in {part.folder}"
        )
    prefix = len(os.fspath(path)) + 1
    named_files = []
    for part in folders.values():
        for file in part.files:
            named_files.append((file[prefix:], file))
    fingerprint = hash_files(named_files)
    parts, image_notes = open_images(lists, options)
    all_notes = (*notes, *sizes.notes, *image_notes)
    return RawDataset(parts, fingerprint, "NHWC", all_notes, tuple(names) or None)


def _list_classes(path: Path, folders: dict[str, ImageFolder]) -> list[str]:
    """Return the names of the classes by number; check that all splits have the same ones."""
    training = folders["train" if "train" in folders else "all"]
    names = sorted(set(training.classes or ()))
    if len(names) == 1:
        raise InputError(
            f"all training images in {path} are of one class, {names[0]}",
            "make a folder for each class; for data without labels, put the images into one folder",
        )
    for name in names:
        limits.check_name_encoding(name, f"a class folder of {path},")
    for part in folders.values():
        unknown = sorted(set(part.classes or ()) - set(names))
        if unknown:
            raise InputError(
                f"{part.folder} has class {unknown[0]}, which the training images do not have",
                "make the same class folders for all splits",
            )
    return names


def find_split(name: str) -> str | None:
    """Return the split that a word names; None for another word."""
    return next((split for split, names in SPLIT_NAMES.items() if name in names), None)


def group_by_split(path: Path, names: Mapping[Path, str]) -> dict[str, list[Path]]:
    """Return files by the split that a word in their names tells, or as `all` without splits."""
    splits: dict[str, list[Path]] = {}
    for file, name in names.items():
        words = {find_split(word) for word in re.findall("[a-z]+", name.lower())}
        split = next((split for split in SPLIT_NAMES if split in words), "all")
        splits.setdefault(split, []).append(file)
    if len(splits) == 1:
        return {"all": list(names)}
    if "all" in splits or "train" not in splits:
        first, second = [files[0].name for files in splits.values()][:2]
        raise InputError(
            f"files in {path} belong to different splits by their names: {first}, {second}",
            "name files or folders train, val, test, after the split that they belong to",
        )
    return splits


def find_split_folders(
    path: Path, is_split: Callable[[Path], bool]
) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Return the folders of splits, and a note for each other folder; nothing without a split.

    Args:
        path: Folder to search.
        is_split: Function that tells whether a folder of the right name is a split.
    """
    folders = {folder.name: folder for folder in _list_folders(path)}
    splits = [name for name in folders if find_split(name) and is_split(folders[name])]
    if not splits:
        return {}, ()
    if "train" not in splits:
        raise InputError(
            f"{path} has a folder {splits[0]}, but no folder train of the same kind", "add train"
        )
    split_folders = {}
    for split, names in SPLIT_NAMES.items():
        present = [folders.pop(name) for name in names if name in folders]
        if len(present) > 1:
            raise InputError(
                f"{path} has both {present[0].name} and {present[1].name}", "keep one of the two"
            )
        if present:
            split_folders[split] = present[0]
    return split_folders, tuple(f"folder {name} next to train is not used" for name in folders)


def would_read_folder(path: Path, folder: Path) -> bool:
    """Return whether a new folder at a place would be read as a class or a split."""
    splits, _ = _find_splits(path)
    roots = splits.values() or [path]
    return any(folder.resolve().is_relative_to(root.resolve()) for root in roots)


def _find_splits(path: Path) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Find the folders of splits, which a class may be named like: a class may be called train."""
    names = [folder.name for folder in _list_folders(path)]
    # A folder of images is a split only if there are no folders but splits.
    has_splits_only = "train" in names and all(find_split(name) for name in names)
    splits, notes = find_split_folders(
        path, lambda folder: bool(_list_folders(folder)) or has_splits_only
    )
    test = splits.get("test")
    if test and not _list_folders(test) and _list_images(test) and _list_folders(splits["train"]):
        # ImageNet has such a folder.
        del splits["test"]
        notes = (*notes, f"{test} has no class folders, and so no labels, and is not used")
    return splits, notes


def _find_images(path: Path) -> tuple[dict[str, ImageFolder], tuple[str, ...]]:
    """Return the images of each split, and notes."""
    if not _list_folders(path):
        return {"all": ImageFolder(path, _list_images(path), None)}, ()
    splits, notes = _find_splits(path)
    if not splits:
        return {"all": _read_class_folders(path)}, ()
    has_classes = any(_list_folders(folder) for folder in splits.values())
    folders = {}
    for name, folder in splits.items():
        if has_classes:
            folders[name] = _read_class_folders(folder)
        else:
            folders[name] = ImageFolder(folder, _list_images(folder), None)
        if not folders[name].files:
            raise InputError(
                f"{folder} has no images ({', '.join(EXTENSIONS)})", "add images, or remove it"
            )
    return folders, notes


def _read_class_folders(folder: Path) -> ImageFolder:
    """Return the images in the class folders of a folder."""
    files: list[str] = []
    classes: list[str] = []
    class_folders = _list_folders(folder)
    loose_images = _list_images(folder)
    if loose_images and class_folders:
        raise InputError(
            f"{folder} has images ({loose_images[0]}) next to folders of images",
            "put every image into the folder of its class, or, for data without labels, all into"
            " one folder",
        )
    for class_folder in class_folders:
        if not class_folder.resolve().is_relative_to(folder.resolve()):
            raise InputError(
                f"class folder {class_folder} is a link to a place outside of {folder}",
                "put the images themselves there",
            )
        images = sorted(_iter_images_below(class_folder))
        if not images:
            raise InputError(
                f"class folder {class_folder} has no images ({', '.join(EXTENSIONS)})",
                "add images, or remove the folder",
            )
        files.extend(images)
        classes.extend([class_folder.name] * len(images))
    if not files:
        raise InputError(
            f"{folder} has no class folders", "put the images of each class into its own folder"
        )
    return ImageFolder(folder, files, classes)


def _iter_images_below(class_folder: Path) -> Iterator[str]:
    """Iterate over the images in a folder and in the folders below."""
    for parent, folders, names in os.walk(class_folder):
        for name in folders:
            place = os.path.join(parent, name)  # noqa: PTH118 - as for the images
            if os.path.islink(place):  # noqa: PTH114 - as for the images
                raise InputError(
                    f"{place} is a link to a folder", "put the images themselves there"
                )
        for name in names:
            if _is_image(name):
                yield os.path.join(parent, name)  # noqa: PTH118 - a million Path objects take a minute


def _list_folders(path: Path) -> list[Path]:
    """Return the folders in a folder, without hidden ones."""
    with os.scandir(path) as entries:
        return sorted(Path(e.path) for e in entries if not e.name.startswith(".") and e.is_dir())


def _list_images(path: Path) -> list[str]:
    """Return the images in a folder, without hidden ones."""
    with os.scandir(path) as entries:
        return sorted(e.path for e in entries if _is_image(e.name) and not e.is_dir())


def _is_image(name: str) -> bool:
    """Return whether a file is an image by its name."""
    return not name.startswith(".") and name.lower().endswith(EXTENSIONS)
