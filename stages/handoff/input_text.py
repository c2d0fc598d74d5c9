"""What each input of the model is made of, in words: the same in every rendering."""

from collections.abc import Callable, Sequence

from ltp_pipeline.results.schema_parts import InputInfo, PreprocessingInfo, StoredSamplesInfo
from ltp_pipeline.stages.handoff.page_text import plain

Mark = Callable[[str], str]  # how names, types and shapes are set off


def stored(part: InputInfo, mark: Mark = str) -> str | None:
    """What samples of an input are before they are prepared; None where the report does not say."""
    recipe = part.preprocessing
    if recipe is None or recipe.stored is None:
        return None
    if recipe.mask_of is not None:
        value, padding = (0, 1) if recipe.marks_padding else (1, 0)
        of = mark(recipe.mask_of)
        return f"made, not stored: {value} where sequences of {of} have values, {padding} where they are filled up"
    kept = recipe.stored
    low, high = kept.range or (None, None)
    values = "" if low is None or high is None else f", values {span(kept.type or '', low, high)}"
    if kept.lengths is not None:
        return f"{_sequences(kept, mark)}{values}"
    return f"{'image files; decoded, a sample is ' if recipe.image else ''}{_array(kept, mark)}{values}"


def _array(kept: StoredSamplesInfo, mark: Mark) -> str:
    return f"{mark(kept.type or '?')} of shape {mark(shape(kept.shape))}"


def _sequences(kept: StoredSamplesInfo, mark: Mark) -> str:
    shortest, longest = kept.lengths or (0, 0)
    each = (kept.shape or ())[1:]
    inner = f", each of shape {mark(shape(each))}" if each else ""
    return f"sequences of {shortest} to {longest} {mark(kept.type or '?')}{inner}"


def span(kind: str, low: float, high: float) -> str:
    """The range of stored values of a type."""
    if kind == "bool":
        return "False or True"
    first, last = (f"{n:.6g}" if kind.startswith("float") else str(n) for n in (low, high))
    return f"from {first} to {last}"


def summary(part: InputInfo) -> str:
    """All that is known of an input in one line."""
    told = [words for words in (stored(part), *(steps(part) or ())) if words]
    return "; ".join([*told, f"taken as {shape(part.sample_shape)}"])


def shape(dims: Sequence[int | str | None] | None) -> str:
    """(3, None) → 3 × ?."""
    return (
        "any shape"
        if dims is None
        else " × ".join("?" if d is None else str(d) for d in dims) or "scalar"
    )


def steps(part: InputInfo) -> list[str] | None:
    """Every step from a stored sample to the input; None where the report does not say."""
    if part.preprocessing_steps is None:
        return None
    return [*part.preprocessing_steps, *(step for step, _ in _arithmetic(part.preprocessing))]


def formula(recipe: PreprocessingInfo | None) -> str:
    """What is done to each value; x where nothing is."""
    made = "x"
    for _, form in _arithmetic(recipe):
        made = form.format(made)
    return made


def _arithmetic(recipe: PreprocessingInfo | None) -> list[tuple[str, str]]:
    """Scale, mean and std, in words and as what is made of {}."""
    if recipe is None:
        return []
    found = []
    if recipe.scale is not None:
        found.append((f"multiply by {recipe.scale}", f"{{}} * {recipe.scale}"))
    if recipe.mean:
        found.append((f"subtract the mean {_each(recipe.mean)}", f"({{}} - {list(recipe.mean)})"))
    if recipe.std:
        found.append(
            (f"divide by the standard deviation {_each(recipe.std)}", f"{{}} / {list(recipe.std)}")
        )
    return found


def _each(values: Sequence[float]) -> str:
    return f"{plain(values)}{', one per channel' if len(values) > 1 else ''}"
