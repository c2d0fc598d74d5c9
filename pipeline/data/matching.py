"""Columns of the data that feed the inputs of the model, and the column of the target."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile

from ltp_pipeline.data.dataset import X_COLUMN, Y_COLUMN, DataColumn, NonNumericColumn, Part
from ltp_pipeline.data.sequences import RaggedSamples
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import TaskSettings

TARGET_NAMES = (Y_COLUMN, "label", "labels")  # names of a target that no setting names
MASK_WORD = "mask"  # in the name of an input that takes a mask
PADDING_WORD = "pad"  # in the name of a mask that marks padding instead of values


class UnusedColumnError(InputError):
    """Columns that no input takes; `names` are those that may be the target, if none is known."""

    def __init__(self, message: str, hint: str, names: tuple[str, ...]) -> None:
        super().__init__(message, hint)
        self.names = names


@dataclass(frozen=True)
class ColumnMatch:
    """Columns that feed the inputs, and inputs that are masks of others."""

    inputs: Mapping[str, str]  # columns
    target: str | None  # column
    masks: Mapping[str, str] = field(default_factory=dict)  # inputs whose masks are computed
    unused: tuple[str, ...] = ()  # columns


def match_columns(
    part: Part, inputs: Sequence[TensorInfo], task: TaskSettings, allow_unused: bool = False
) -> ColumnMatch:
    """Match columns to inputs by name; x feeds the one input that has no column of its name.

    Args:
        part: Columns of the data.
        inputs: Inputs of the model.
        task: Name of the target, if it is set.
        allow_unused: Accept columns that no input takes.

    Raises:
        InputError: If an input has no column, or a column is text.
    """
    target = _find_target(part, inputs, task)
    columns = [name for name in part if name != target]
    matches = {info.name: info.name for info in inputs if info.name in columns}
    masks = _match_masks(part, matches, inputs)
    missing = _find_missing(inputs, matches, masks)
    if X_COLUMN in columns and X_COLUMN not in matches and missing:
        first = next((info for info in missing if not _is_mask(info)), missing[0])
        matches[first.name] = X_COLUMN
        masks = masks or _match_masks(part, matches, inputs)
        missing = _find_missing(inputs, matches, masks)
    for name, column in matches.items():
        _check_numeric(
            part[column],
            f"the model's input {name!r}",
            "store what the model takes as numbers, for example tokens instead of words",
        )
    if missing:
        _raise_missing_columns(part, missing, inputs)
    unused = tuple(name for name in columns if name not in matches.values())
    if unused and not allow_unused and task.target is None:
        raise UnusedColumnError(
            f"no input of the model takes {_join_names(unused)} of the data; the inputs are"
            f" {_join_names(info.name for info in inputs)}",
            f'remove it or, if it is the target, set target = "{unused[0]}" in [task]',
            unused if target is None else (),
        )
    return ColumnMatch(matches, target, masks, unused)


def _find_target(part: Part, inputs: Sequence[TensorInfo], task: TaskSettings) -> str | None:
    """Return the name of the target's column; None without labels, or if they are not needed."""
    name = _name_target(part, inputs, task.target)
    if name is None:
        return None
    if task.kind == "distillation" and isinstance(part[name].samples, NonNumericColumn):
        return None
    _check_numeric(
        part[name],
        "the target",
        "replace each text by the number that the class has in the model, in pandas with"
        f" table[{name!r}].map({{'…': 0, '…': 1}}), or set target in [task] to another column",
    )
    return name


def _name_target(part: Part, inputs: Sequence[TensorInfo], setting: str | None) -> str | None:
    """Return the name of the target's column, by the setting or by its usual names."""
    if setting is not None:
        if setting not in part:
            raise InputError(
                f"the data have no column {setting!r}, but {_join_names(part)}",
                "set target in [task] to a column of the data",
            )
        return setting
    input_names = {info.name for info in inputs}
    names = [name for name in TARGET_NAMES if name in part and name not in input_names]
    if len(names) > 1:
        raise InputError(
            f"the data have several columns that may be the target: {_join_names(names)}",
            f'set target in [task], for example target = "{names[0]}"',
        )
    if names:
        return names[0]
    return None


def _check_numeric(column: DataColumn, consumer: str, hint: str) -> None:
    """Raise InputError if a column that something needs is not numeric."""
    if isinstance(column.samples, NonNumericColumn):
        raise InputError(
            f"{column.origin} holds {column.samples.type_name}, but {consumer} must be numbers",
            hint,
        )


def _raise_missing_columns(
    part: Part, missing: Sequence[TensorInfo], inputs: Sequence[TensorInfo]
) -> None:
    """Raise InputError: inputs of the model have no column."""
    hint = "add it"
    if len(inputs) > 1 or X_COLUMN not in part:
        names = ", ".join(f"{info.name}_train" for info in inputs)
        hint = f"name the arrays after the inputs: {names}"
    raise InputError(
        f"the data have no column for the model's input {_join_names(i.name for i in missing)},"
        f" but {_join_names(part)}",
        hint,
    )


def _match_masks(
    part: Part, matches: Mapping[str, str], inputs: Sequence[TensorInfo]
) -> dict[str, str]:
    """Return the input of sequences for each input that takes their mask and has no column."""
    dims = {info.name: info.shape[1] for info in inputs if info.shape and len(info.shape) > 1}
    sequences = [
        name for name, column in matches.items() if isinstance(part[column].samples, RaggedSamples)
    ]

    def compare(name: str, mask: str) -> tuple[bool, int]:
        """Rank an input: it shares a dimension with the mask, or begins with the same letters."""
        shares_dimension = dims.get(mask) is not None and dims.get(mask) == dims.get(name)
        letters = zip(mask, matches[name], strict=False)
        return shares_dimension, len(list(takewhile(lambda pair: pair[0] == pair[1], letters)))

    masks = {}
    for info in inputs:
        if sequences and _is_mask(info) and info.name not in matches:
            masks[info.name] = max(sequences, key=partial(compare, mask=info.name))
    return masks


def _find_missing(inputs: Sequence[TensorInfo], *matches: Mapping[str, str]) -> list[TensorInfo]:
    """Return the inputs that have no match."""
    matched: set[str] = set().union(*matches)
    return [info for info in inputs if info.name not in matched]


def _is_mask(info: TensorInfo) -> bool:
    """Return whether an input takes a mask, by its name and its axes."""
    return MASK_WORD in info.name.lower() and len(info.shape or (0, 0)) == 2


def _join_names(names: Iterable[str]) -> str:
    """Return names in quotes."""
    return ", ".join(map(repr, names))
