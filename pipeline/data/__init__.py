"""Reading samples: one module per format, one table of them, the same checks for all."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ltp_pipeline.config import DataSettings
from ltp_pipeline.data import idx, image_folder, npz, shards
from ltp_pipeline.data.augmentation import augmented, check_crop
from ltp_pipeline.data.checks import check_labels, check_samples, checked_labels
from ltp_pipeline.data.classes import names_by_number, renumbered
from ltp_pipeline.data.division import divide
from ltp_pipeline.data.images import ImageSamples
from ltp_pipeline.data.prefetch import batches
from ltp_pipeline.data.preparation import Preparation, plan, wanted
from ltp_pipeline.data.samples import Data, Input, Part, Split, Stored, Wanted
from ltp_pipeline.data.stand_ins import resilient
from ltp_pipeline.errors import InputError
from ltp_pipeline.records import TensorInfo
from ltp_pipeline.task import LABEL

__all__ = ["Data", "Split", "batches", "check_labels", "open_data", "takes_in"]


class Format(NamedTuple):
    """A way to store samples: how to recognise it, how to read it."""

    name: str
    recognises: Callable[[Path], bool]
    read: Callable[[Path, Wanted], Stored]


FORMATS = (
    Format("a .npz file", npz.recognises, npz.read),
    Format("a folder with IDX files (train-images-idx3-ubyte, ...)", idx.recognises, idx.read),
    Format("a folder of WebDataset shards (.tar)", shards.recognises, shards.read),
    Format("a folder of class folders with images", image_folder.recognises, image_folder.read),
)


def takes_in(path: Path, folder: Path) -> bool:
    """Whether a folder made at that place would be taken for one of samples."""
    found = next((f for f in FORMATS if f.recognises(path)), None) if path.is_dir() else None
    return found is not None and found.read is image_folder.read and image_folder.takes_in(path, folder)


def open_data(settings: DataSettings, model_input: TensorInfo, seed: int) -> Data:
    """Find the samples, check them against the model, and divide them into three splits."""
    stored = _read(settings.path, wanted(settings, model_input))
    labels = {
        name: renumbered(checked_labels(part), stored.class_names, settings.classes, part.labels_origin)
        for name, part in stored.parts.items()
    }
    known = [part for part in labels.values() if part is not None]
    _check_alike(stored.parts)
    prepare = {
        name: plan(part.origin, part.samples.shape, stored.layout or settings.layout, settings, model_input)
        for name, part in stored.parts.items()
    }
    for name, part in stored.parts.items():
        check_samples(part, prepare[name])
        check_crop(part, settings.crop)
    groups = {n: np.zeros(len(stored.parts[n].samples), np.int64) if y is None else y for n, y in labels.items()}
    rows, notes = divide(groups, settings.validation_share, seed)
    splits = {}
    for name, (source, chosen) in rows.items():
        samples = resilient(stored.parts[source].samples, chosen, labels[source])
        layout = stored.layout or settings.layout
        augment = augmented(stored.parts[source], samples, layout) if settings.augment and name == "train" else None
        targets = {} if (given := labels[source]) is None else {LABEL: given}
        splits[name] = Split(name, {model_input.name: Input(samples, prepare[source], augment)}, targets, chosen)
    if rows["test"] is rows["val"]:
        splits["test"] = splits["val"]
    digest = hashlib.sha256(stored.fingerprint.encode())
    for name in ("train", "val", "test"):
        digest.update(f"{name} {rows[name][0]} ".encode() + splits[name].rows.tobytes())
    return Data(
        **splits,
        classes=1 + max(int(part.max()) for part in known) if known else None,
        fingerprint=digest.hexdigest(),
        notes=(*stored.notes, *notes),
        class_names=names_by_number(settings.classes) if settings.classes else stored.class_names,
        steps=_steps(stored, prepare),
    )


def _steps(stored: Stored, prepare: Mapping[str, Preparation]) -> tuple[str, ...]:
    name, part = next(iter(stored.parts.items()))
    decoded = part.samples.steps if isinstance(part.samples, ImageSamples) else ()
    return *decoded, *prepare[name].steps


def _read(path: Path | None, want: Wanted) -> Stored:
    if path is None:
        raise InputError(
            "no data given",
            "give --data PATH, or path under [data] in an ltp.toml beside the model, or --config FILE with it; "
            "`ltp-pipeline demo` needs none",
        )
    try:
        if not path.exists():
            raise InputError(f"there is no data at {path}", "check --data, or path under [data]")
        for candidate in FORMATS:
            if candidate.recognises(path):
                return candidate.read(path, want)
    except OSError as error:
        raise InputError(
            f"cannot read data {path}: {error.strerror or error}", "check the file and its rights"
        ) from None
    except MemoryError:
        raise InputError(
            f"data {path} does not fit in memory", "give fewer samples, or images in class folders"
        ) from None
    raise InputError(f"{path} is no data format known here", "give " + ", or ".join(f.name for f in FORMATS))


def _check_alike(parts: Mapping[str, Part]) -> None:
    first, *others = parts.values()
    for part in others:
        if (part.labels is None) != (first.labels is None):
            bare = part if part.labels is None else first
            raise InputError(f"{bare.origin} has no labels and other splits have", "give all splits labels, or none")
        if part.samples.shape != first.samples.shape:
            raise InputError(
                f"samples of {first.origin} have shape {first.samples.shape}, of {part.origin} {part.samples.shape}",
                "give all splits samples of one shape",
            )
