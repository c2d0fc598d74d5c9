"""Which column of a data set goes to which input of the model, and which one says what outputs should be."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ltp_pipeline.data.dataset import X_COLUMN, Y_COLUMN, DataColumn, NonNumericColumn, Part
from ltp_pipeline.data.sequences import RaggedSamples
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import TaskSettings

TARGETS = (Y_COLUMN, "label", "labels")  # what a column of labels is called where nothing is said
MASK = "mask"
PADDING = "pad"  # in the name of a mask: it marks where there is no value


class UnusedColumnError(InputError):
    """Columns that no input takes; `names` are those that may be the labels, where none are known."""

    def __init__(self, what: str, remedy: str, names: tuple[str, ...]) -> None:
        super().__init__(what, remedy)
        self.names = names


@dataclass(frozen=True)
class ColumnMatch:
    """Columns by the input they go to; masks by the ragged column they are made of; the target's column."""

    inputs: Mapping[str, str]
    target: str | None
    masks: Mapping[str, str] = field(default_factory=dict)
    unused: tuple[str, ...] = ()


def match_columns(
    part: Part, inputs: Sequence[TensorInfo], task: TaskSettings, spare: bool = False
) -> ColumnMatch:
    """Match by name; the short form x is the one input that has no column of its own.

    `spare` columns are left aside where a format holds whatever a table has; else they are an error.
    """
    labels = _target(part, inputs, task)
    free = [name for name in part if name != labels]
    found = {info.name: info.name for info in inputs if info.name in free}
    lacking = [info for info in inputs if info.name not in found]
    masks = _masks(part, found, lacking, inputs)
    lacking = [info for info in lacking if info.name not in masks]
    if X_COLUMN in free and X_COLUMN not in found.values() and lacking:
        first = next((info for info in lacking if not _is_mask(info)), lacking[0])
        found[first.name] = X_COLUMN
        lacking = [info for info in lacking if info is not first]
        masks |= _masks(part, {first.name: X_COLUMN}, lacking, inputs)
        lacking = [info for info in lacking if info.name not in masks]
    for name, column in found.items():
        _require_numbers(
            part[column],
            "store what the model takes as numbers, such as tokens in place of words",
            name,
        )
    if lacking:
        raise InputError(
            f"the model's input {', '.join(repr(info.name) for info in lacking)} has no data; {_shown(part)}",
            "name the arrays after the inputs: "
            + ", ".join(f"{info.name}_train" for info in inputs)
            if len(inputs) > 1 or X_COLUMN not in part
            else "add it",
        )
    unused = tuple(name for name in free if name not in found.values())
    if unused and not spare and task.target is None:
        raise UnusedColumnError(
            f"the data have {', '.join(map(repr, unused))}, which no input of the model takes; its inputs are "
            f"{', '.join(repr(info.name) for info in inputs)}",
            f'leave it out, or, if it says what outputs should be, write target = "{unused[0]}" under [task]',
            unused if labels is None else (),
        )
    return ColumnMatch(found, labels, masks, unused)


def _target(part: Part, inputs: Sequence[TensorInfo], task: TaskSettings) -> str | None:
    """The column of labels; what imitation needs not may be text."""
    found = _named_target(part, inputs, task.target)
    if found is None or (
        task.kind == "distillation" and isinstance(part[found].samples, NonNumericColumn)
    ):
        return None
    _require_numbers(
        part[found],
        f"replace each text by the number that the model has for that class: in pandas, table[{found!r}].map("
        "{'…': 0, '…': 1}); or name another column, target under [task]",
    )
    return found


def _require_numbers(column: DataColumn, remedy: str, wanted_by: str | None = None) -> None:
    if isinstance(column.samples, NonNumericColumn):
        who = (
            "labels are numbers"
            if wanted_by is None
            else f"the model's input {wanted_by!r} takes numbers"
        )
        raise InputError(f"{column.origin} holds {column.samples.type_name}, and {who}", remedy)


def _named_target(part: Part, inputs: Sequence[TensorInfo], given: str | None) -> str | None:
    if given is not None:
        if given not in part:
            raise InputError(
                f"there is no {given!r} in the data; {_shown(part)}", "correct target under [task]"
            )
        return given
    taken = {info.name for info in inputs}
    found = [name for name in TARGETS if name in part and name not in taken]
    if len(found) > 1:
        raise InputError(
            f"the data have {' and '.join(map(repr, found))}",
            'say which are the labels: target = "…" under [task]',
        )
    return found[0] if found else None


def _masks(
    part: Part,
    found: Mapping[str, str],
    lacking: Collection[TensorInfo],
    inputs: Sequence[TensorInfo],
) -> dict[str, str]:
    """For each input that is called a mask and has no data: the ragged column of an input that shares its dimension.

    Of several, or where dimensions have no names, the one whose name begins most like its own.
    """
    ragged = {
        name: column
        for name, column in found.items()
        if isinstance(part[column].samples, RaggedSamples)
    }
    widths = {
        info.name: info.shape[1]
        for info in inputs
        if info.shape is not None and len(info.shape) > 1
    }

    def nearness(mask: str, name: str) -> tuple[bool, int]:
        return widths.get(mask) is not None and widths.get(mask) == widths.get(name), _alike(
            mask, ragged[name]
        )

    return {
        info.name: ragged[max(ragged, key=lambda name: nearness(info.name, name))]
        for info in lacking
        if ragged and _is_mask(info)
    }


def _is_mask(info: TensorInfo) -> bool:
    return MASK in info.name.lower() and len(info.shape or (0, 0)) == 2


def _alike(one: str, other: str) -> int:
    """With how many letters in common two names begin."""
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


def _shown(part: Part) -> str:
    return f"the data have {', '.join(map(repr, part))}"
