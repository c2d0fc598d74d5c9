"""Which column of a data set goes to which input of the model, and which one says what outputs should be."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ltp_pipeline.data.ragged import RaggedSamples
from ltp_pipeline.data.samples import Part, X, Y
from ltp_pipeline.errors import InputError
from ltp_pipeline.records import TensorInfo

TARGETS = (Y, "label", "labels")  # what a column of labels is called where nothing is said
MASK = "mask"


@dataclass(frozen=True)
class Match:
    """Columns by the input they go to; masks by the ragged column they are made of; the target's column."""

    inputs: Mapping[str, str]
    target: str | None
    masks: Mapping[str, str] = field(default_factory=dict)
    unused: tuple[str, ...] = ()


def match(part: Part, inputs: Sequence[TensorInfo], target: str | None, spare: bool = False) -> Match:
    """Match by name; the short form x is the one input that has no column of its own.

    `spare` columns are left aside where a format holds whatever a table has; else they are an error.
    """
    labels = _target(part, inputs, target)
    free = [name for name in part if name != labels]
    found = {info.name: info.name for info in inputs if info.name in free}
    lacking = [info for info in inputs if info.name not in found]
    masks = _masks(part, found, lacking)
    lacking = [info for info in lacking if info.name not in masks]
    if X in free and X not in found.values() and lacking:
        found[lacking[0].name] = X
        masks |= _masks(part, {X: X}, lacking[1:])
        lacking = [info for info in lacking[1:] if info.name not in masks]
    if lacking:
        raise InputError(
            f"the model's input {', '.join(repr(info.name) for info in lacking)} has no data; {_shown(part)}",
            "name the arrays after the inputs: " + ", ".join(f"{info.name}_train" for info in inputs)
            if len(inputs) > 1 or X not in part
            else "add it",
        )
    unused = tuple(name for name in free if name not in found.values())
    if unused and not spare:
        raise InputError(
            f"the data have {', '.join(map(repr, unused))}, which no input of the model takes; its inputs are "
            f"{', '.join(repr(info.name) for info in inputs)}",
            f'leave it out, or, if it says what outputs should be, write target = "{unused[0]}" under [task]',
        )
    return Match(found, labels, masks, unused)


def _target(part: Part, inputs: Sequence[TensorInfo], given: str | None) -> str | None:
    if given is not None:
        if given not in part:
            raise InputError(f"there is no {given!r} in the data; {_shown(part)}", "correct target under [task]")
        return given
    taken = {info.name for info in inputs}
    found = [name for name in TARGETS if name in part and name not in taken]
    if len(found) > 1:
        raise InputError(
            f"the data have {' and '.join(map(repr, found))}", 'say which are the labels: target = "…" under [task]'
        )
    return found[0] if found else None


def _masks(part: Part, found: Mapping[str, str], lacking: Collection[TensorInfo]) -> dict[str, str]:
    """For each input that is called a mask and has no data: the ragged column whose name begins most like its own."""
    ragged = [column for column in found.values() if isinstance(part[column].samples, RaggedSamples)]
    masks = [info.name for info in lacking if MASK in info.name.lower() and len(info.shape or (0, 0)) == 2]
    return {name: max(ragged, key=lambda column: _alike(name, column)) for name in masks if ragged}


def _alike(one: str, other: str) -> int:
    """With how many letters in common two names begin."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _shown(part: Part) -> str:
    return f"the data have {', '.join(map(repr, part))}"
