"""Reading samples: one module per format, one table of them, the same checks for all."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ltp_pipeline.data import limits
from ltp_pipeline.data.classes import names_by_number
from ltp_pipeline.data.dataset import (
    DatasetSplits,
    LoadOptions,
    NonNumericColumn,
    Part,
    RawDataset,
    Split,
)
from ltp_pipeline.data.formats import idx, image_folder, npy_folder, npz, shards, tables
from ltp_pipeline.data.lengths import check_inputs, check_labels
from ltp_pipeline.data.matching import match_columns
from ltp_pipeline.data.opening import open_part
from ltp_pipeline.data.prefetch import iter_batches
from ltp_pipeline.data.preprocessing import choose_load_options
from ltp_pipeline.data.splitting import divide_rows
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import DataSettings, TaskSettings
from ltp_pipeline.system.text import make_printable

__all__ = [
    "INFERRED_TASK",
    "DatasetSplits",
    "Split",
    "iter_batches",
    "open_data",
    "would_read_folder",
]

INFERRED_TASK = TaskSettings()  # what labels and outputs tell


class DataFormat(NamedTuple):
    """A way to store samples: how to recognise it, how to read it."""

    name: str
    can_read: Callable[[Path], bool]
    read: Callable[[Path, LoadOptions], RawDataset]


FORMATS = (
    DataFormat("a .npz file", npz.can_read, npz.read_dataset),
    DataFormat("a folder of .npy files", npy_folder.can_read, npy_folder.read_dataset),
    DataFormat(
        "a Parquet file, or a folder that `datasets` saved", tables.can_read, tables.read_dataset
    ),
    DataFormat(
        "a folder with IDX files (train-images-idx3-ubyte, ...)", idx.can_read, idx.read_dataset
    ),
    DataFormat("a folder of WebDataset shards (.tar)", shards.can_read, shards.read_dataset),
    DataFormat(
        "a folder of class folders with images", image_folder.can_read, image_folder.read_dataset
    ),
)


def would_read_folder(path: Path, folder: Path) -> bool:
    """Whether a folder made at that place would be taken for one of samples."""
    with _readable(path):
        found = next((f for f in FORMATS if f.can_read(path)), None) if path.is_dir() else None
        return (
            found is not None
            and found.read is image_folder.read_dataset
            and image_folder.would_read_folder(path, folder)
        )


def open_data(
    settings: DataSettings,
    inputs: Sequence[TensorInfo],
    seed: int,
    task: TaskSettings = INFERRED_TASK,
    outputs: Sequence[TensorInfo] = (),
) -> DatasetSplits:
    """Find the samples of each input, check them against the model, and divide them into three splits."""
    unknown = [name for name in settings.inputs if name not in {info.name for info in inputs}]
    if unknown:
        named = ", ".join(repr(info.name) for info in inputs)
        raise InputError(
            f"the model has no input {unknown[0]!r}",
            f"name one of its inputs under [data.inputs]: {named}",
        )
    stored = _read(settings.path, choose_load_options(settings, inputs))
    first_part = next(iter(stored.parts.values()))
    found = match_columns(first_part, inputs, task, spare=stored.is_table)
    _check_alike(stored.parts, [*found.inputs.values(), *([found.target] if found.target else [])])
    parts = {
        name: open_part(part, found, stored, settings, inputs, task)
        for name, part in stored.parts.items()
    }
    for part in parts.values():
        check_inputs(part, inputs)
        check_labels(
            part, inputs, [output for output in outputs if task.output in (None, output.name)]
        )
    rows, notes = divide_rows(
        {name: part.groups for name, part in parts.items()}, settings.validation_fraction, seed
    )
    splits = {}
    for name, (source, chosen) in rows.items():
        sources = parts[source].inputs_for(chosen, name == "train")
        splits[name] = Split(name, sources, parts[source].targets, chosen)
    if rows["test"] is rows["val"]:
        splits["test"] = splits["val"]
    digest = hashlib.sha256(stored.fingerprint.encode())
    for name in ("train", "val", "test"):
        digest.update(f"{name} {rows[name][0]} ".encode() + splits[name].rows.tobytes())
    numbers = [part.labels for part in parts.values() if part.labels is not None]
    first = next(iter(parts.values()))
    return DatasetSplits(
        **splits,
        num_classes=1 + max(int(y.max()) for y in numbers) if len(numbers) == len(parts) else None,
        fingerprint=digest.hexdigest(),
        notes=tuple(
            make_printable(note)
            for note in (*stored.notes, *_left_aside(first_part, found.unused), *notes)
        ),
        class_names=names_by_number(settings.classes) if settings.classes else stored.class_names,
        steps={name: source.steps for name, source in first.sources.items()},
    )


def _left_aside(part: Part, unused: Sequence[str]) -> list[str]:
    text = [name for name in unused if isinstance(part[name].samples, NonNumericColumn)]
    numbers = [name for name in unused if name not in text]
    said = {"hold no numbers": text, "no input takes": numbers}
    return [
        f"columns that {why} are left aside: {', '.join(names)}"
        for why, names in said.items()
        if names
    ]


def _read(path: Path | None, want: LoadOptions) -> RawDataset:
    if path is None:
        raise InputError(
            "no data given",
            "give --data PATH, or path under [data] in an ltp.toml beside the model, or --config FILE with it; "
            "`ltp-pipeline demo` needs none",
        )
    with _readable(path):
        if not path.exists():
            raise InputError(f"there is no data at {path}", "check --data, or path under [data]")
        for candidate in FORMATS:
            if candidate.can_read(path):
                stored = candidate.read(path, want)
                for column in {name for part in stored.parts.values() for name in part}:
                    limits.check_name_encoding(column, f"a column of {path},")
                return stored
    raise InputError(
        f"{path} is no data format known here", "give " + ", or ".join(f.name for f in FORMATS)
    )


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Tell what the system says of files that cannot be read."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot read data {path}: {error.strerror or error}", "check the file and its rights"
        ) from None
    except MemoryError:
        raise InputError(
            f"data {path} does not fit in memory", "give fewer samples, or images in class folders"
        ) from None


def _check_alike(parts: Mapping[str, Part], taken: Sequence[str]) -> None:
    first, *others = parts.values()
    for part in others:
        for name in taken:
            column, other = first[name], part.get(name)
            if other is None:
                raise InputError(
                    f"{column.origin} is in one split and not in all",
                    "give all splits the same columns",
                )
            if other.samples.shape != column.samples.shape:
                raise InputError(
                    f"samples of {column.origin} have shape {column.samples.shape}, of {other.origin} "
                    f"{other.samples.shape}",
                    "give all splits samples of one shape",
                )
