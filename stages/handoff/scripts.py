"""preprocess.py and verify.py of a handoff: scripts for machines that have never seen this program."""

import textwrap
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

from ltp_pipeline.data.columns import OFFSETS, offsets_of
from ltp_pipeline.data.images.collection import DECODED
from ltp_pipeline.data.images.decode import DECODERS
from ltp_pipeline.data.recipe import Recipe, numbers
from ltp_pipeline.stages.handoff.example import ModelInputs
from ltp_pipeline.stages.report.inputs import span

_CHECKED = '''
def checked(samples, kind, shape):
    """Stored samples, one or several along a first axis, as an array with that axis."""
    x = np.asarray(samples)
    x = x[None] if x.shape == shape else x
    if x.shape[1:] != shape or x.dtype.newbyteorder('=') != kind:
        raise ValueError(f'samples are {x.dtype} of shape {x.shape[1:]}, stored ones were {kind} of shape {shape}')
    return x

'''
_PADDED = '''
def padded(sequences, kind, shape, pad, width=None):
    """Sequences of any length as one array, filled up at their ends; without a width, to the longest of them."""
    rows = [np.asarray(row, None if hasattr(row, 'dtype') else kind) for row in sequences]
    for row in rows:
        if row.ndim == 0 or row.shape[1:] != shape or row.dtype.newbyteorder('=') != kind:
            raise ValueError(f'a sequence is {row.dtype} of shape {row.shape}, stored ones were {kind}, each {shape}')
    inside = mask(rows, width)
    x = np.full((*inside.shape, *shape), pad, kind)
    for values, row in zip(x, rows):
        values[: len(row)] = row
    return x

'''
_MASK = '''
def mask(sequences, width=None):
    """True where sequences have values once they are filled up."""
    lengths = np.array([len(row) for row in sequences], np.int64)
    longest = max(1, lengths.max(initial=0))
    if width is not None and longest > width:
        raise ValueError(f'a sequence has length {longest}, and the model takes {width}')
    return np.arange(longest if width is None else width) < lengths[:, None]

'''
_RESIZE = '''
def resize(x, height, width):
    """Resize the last two of four axes, bilinear, one plane after the other; bytes stay bytes."""
    kind = np.uint8 if x.dtype == np.uint8 else np.float32
    planes = np.ascontiguousarray(x, kind).reshape(-1, *x.shape[2:])
    made = [np.asarray(Image.fromarray(plane).resize((width, height), Image.Resampling.BILINEAR)) for plane in planes]
    return np.array(made, kind).reshape(*x.shape[:2], height, width)

'''
_CROP = """
tall, wide = {tall}, {wide}  # the image, as it is shaped, just covers this; only what is cut out is computed
if tall * image.width >= wide * image.height:
    wide = tall * image.width // image.height
else:
    tall = wide * image.height // image.width
left, top = round((wide - {columns}) / 2), round((tall - {rows}) / 2)
x, y = image.width / wide, image.height / tall
right, bottom = min((left + {columns}) * x, image.width), min((top + {rows}) * y, image.height)
image = image.resize(({columns}, {rows}), Image.Resampling.BILINEAR, box=(left * x, top * y, right, bottom))
"""
_ARCHIVE = """
SAMPLES.npz holds the stored samples of each input under its name."""
_SEQUENCES = """ Of sequences of uneven length it holds all
values, and under NAME_offsets where each sequence begins and the last one ends."""
_CLASH = """
Where an input is called NAME_offsets itself, the offsets are NAME_offsets_."""


def verify() -> str:
    """The text of verify.py, which is the same for every model."""
    return (
        resources.files("ltp_pipeline.stages.handoff")
        .joinpath("verify.py")
        .read_text(encoding="utf-8")
    )


def preprocess(inputs: ModelInputs) -> str:
    """The text of preprocess.py: the steps of this data set, and no others.

    With several inputs there is a function for each, and one above them. Names may be any text; they are literals.
    """
    recipes = [inputs.recipes[tensor.name] for tensor in inputs.tensors]
    alone = len(recipes) == 1
    resizes, sequences = any(map(_resizes, recipes)), any(recipe.lengths for recipe in recipes)
    pillow = resizes or any(recipe.form for recipe in recipes)
    archive = not alone or sequences
    clash = sequences and any(
        offsets_of(name, inputs.recipes) != name + OFFSETS for name in inputs.recipes
    )
    given = "SAMPLES.npz" if archive else "IMAGE..." if recipes[0].form else "SAMPLES.npy"
    lines = [
        f'"""From samples as they are stored to the model\'s {"input" if alone else "inputs"}, as it was done when'
        " the model was measured.",
        "",
        f"    python preprocess.py {given} {'INPUT.npy' if alone else 'INPUTS.npz'}",
        *((_ARCHIVE + _SEQUENCES * sequences + _CLASH * clash).splitlines() if archive else []),
        "",
        f"It needs numpy{' and Pillow' if pillow else ''}.",
        '"""',
        "",
        "import sys",
        *([] if alone else ["import zipfile"]),
        "",
        "import numpy as np",
        *(["from PIL import Image"] if pillow else []),
        "",
        *(
            _CHECKED.splitlines()
            if any(r.lengths is None and r.mask_of is None for r in recipes)
            else []
        ),
        *((_PADDED + _MASK).splitlines() if sequences else []),
        *(_RESIZE.splitlines() if resizes else []),
    ]
    for place, (tensor, recipe) in enumerate(zip(inputs.tensors, recipes, strict=True)):
        lines += _function(
            "" if alone else f"_{place}", tensor.name, recipe, inputs.type_of(tensor)
        )
    lines += [] if alone else _all_inputs(inputs)
    lines += ["", 'if __name__ == "__main__":', *(f"    {line}" for line in _main(inputs, archive))]
    return "\n".join(lines) + "\n"


def _function(suffix: str, name: str, recipe: Recipe, input_type: str) -> Iterator[str]:
    """The code for one input."""
    if recipe.form:
        yield from _load(recipe, suffix)
    yield from ("", f"def prepare{suffix}(samples):{f'  # {name!a}' * bool(suffix)}")
    if recipe.mask_of is not None:
        marked = "what is filled up" if recipe.marks_padding else "the values"
        yield f'    """Mark {marked} of stored sequences."""'
        taken = f"{'~' * recipe.marks_padding}mask(samples{_width(recipe)})"
    elif recipe.lengths is not None:
        yield '    """Turn stored sequences into the model\'s input."""'
        pad = repr(recipe.pad or 0.0) if recipe.dtype.kind == "f" else int(recipe.pad or 0)
        taken = (
            f"padded(samples, {recipe.dtype.name!r}, {recipe.shape[1:]!r}, {pad}{_width(recipe)})"
        )
    else:
        yield '    """Turn stored samples, one or several along a first axis, into the model\'s input."""'
        taken = f"checked(samples, {recipe.dtype.name!r}, {recipe.shape!r})"
    values = (
        ""
        if recipe.mask_of is not None
        else f"  # values were {span(recipe.dtype.name, recipe.low, recipe.high)}"
    )
    yield f"    x = {taken}{values}"
    yield from (f"    {line}" for line in _steps(recipe, input_type))
    yield from ("    return np.ascontiguousarray(x)", "")


def _width(recipe: Recipe) -> str:
    return "" if recipe.shape[0] is None else f", {recipe.shape[0]}"


def _all_inputs(inputs: ModelInputs) -> Iterator[str]:
    """The function above those of the inputs."""
    yield from ("", "def prepare(samples):")
    yield '    """Turn stored samples, by the names of their inputs, into all that the model takes, by name as well.'
    yield ""
    yield '    Sequences of uneven length are given as a list; masks are made, and need no samples."""'
    yield "    return {"
    for place, tensor in enumerate(inputs.tensors):
        source = inputs.recipes[tensor.name].mask_of or tensor.name
        yield f"        {tensor.name!a}: prepare_{place}(samples[{source!a}]),"
    yield from ("    }", "")


def _main(inputs: ModelInputs, archive: bool) -> Iterator[str]:
    """What is done from a shell."""
    alone, first = len(inputs.tensors) == 1, inputs.recipes[inputs.tensors[0].name]
    yield f"if len(sys.argv) {'!=' if archive else '<'} 3:"
    yield "    sys.exit(__doc__)"
    if not archive:
        yield f"samples = {'[load(file) for file in sys.argv[1:-1]]' if first.form else 'np.load(sys.argv[1])'}"
    else:
        yield "stored = np.load(sys.argv[1])"
    if archive and alone:
        yield f"samples = {_read(inputs.tensors[0].name, inputs.recipes)}"
    if alone:
        yield "np.save(sys.argv[-1], prepare(samples))"
        return
    yield "samples = {"
    for name, recipe in inputs.recipes.items():
        if recipe.mask_of is None:
            yield f"    {name!a}: {_read(name, inputs.recipes)},"
    yield "}"
    yield "with zipfile.ZipFile(sys.argv[2], 'w') as file:  # as np.savez does it, whatever the names are"
    yield "    for name, x in prepare(samples).items():"
    yield "        with file.open(name + '.npy', 'w', force_zip64=True) as member:"
    yield "            np.save(member, x)"


def _read(name: str, recipes: Mapping[str, Recipe]) -> str:
    """The stored samples of an input, from an archive."""
    values, offsets = f"stored[{name!a}]", offsets_of(name, recipes)
    return (
        values
        if recipes[name].lengths is None
        else f"np.split({values}, stored[{offsets!a}][1:-1])"
    )


def _resizes(recipe: Recipe) -> bool:
    """Whether arrays are resized; images are decoded to their size."""
    shape = recipe.shape[:2] if recipe.prepare.channels_to_front else recipe.shape[-2:]
    return recipe.prepare.resize not in (None, shape)


def _load(recipe: Recipe, suffix: str) -> Iterator[str]:
    form: Any = recipe.form
    (rows, columns), crop = form.size, form.crop
    yield from ("", f"def load{suffix}(file):")
    yield f'    """Decode an image (a path or an open file) to {DECODED[form.mode]}, 0 to 255, and bring it to size."""'
    yield f"    with Image.open(file, formats={DECODERS!r}) as image:"
    yield "        if image.mode[0] in 'IF':"
    yield "            raise ValueError(f'{file} has more than 8 bits per channel')"
    yield f"        image = image.convert({form.mode!r})"
    if crop is None:
        yield f"        image = image.resize(({columns}, {rows}), Image.Resampling.BILINEAR)"
    else:
        values = {
            "tall": round(rows / crop),
            "wide": round(columns / crop),
            "rows": rows,
            "columns": columns,
        }
        yield from textwrap.indent(_CROP.strip().format(**values), "        ").splitlines()
    yield f"        return np.asarray(image).reshape({recipe.shape!r})"
    yield ""


def _steps(recipe: Recipe, input_type: str) -> Iterator[str]:
    """One line of code for each step, in the order and the precision in which Preparation does them."""
    steps, kind = recipe.prepare, repr(recipe.prepare.dtype.name)
    if steps.add_channel:
        yield "x = x[:, None]  # add a channel axis in front"
    if steps.channels_to_front:
        yield "x = np.moveaxis(x, -1, 1)  # bring the channels to the front"
    if steps.resize is not None and _resizes(recipe):
        height, width = steps.resize
        resized = f"resize(x, {height}, {width})"
        yield f"x = {resized if steps.dtype.kind == 'f' else f'np.rint({resized})'}"
    yield f"x = x.astype({kind})"
    if steps.scale is not None:
        yield f"x *= np.{steps.dtype.name}({steps.scale!r})"
    for sign, name, values in (("-", "mean", steps.mean), ("/", "std", steps.std)):
        if values is not None:
            shape = ", ".join(["-1"] + ["1"] * (values.ndim - 1))
            yield f"x {sign}= np.array({numbers(values)!r}, {kind}).reshape({shape})  # {name}, per channel"
    if steps.channels_to_back:
        yield "x = np.moveaxis(x, 1, -1)  # bring the channels to the last axis"
    if steps.flatten:
        yield "x = x.reshape(len(x), -1)  # row by row"
    if input_type != steps.dtype.name:
        yield f"x = x.astype({input_type!r})"
