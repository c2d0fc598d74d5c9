"""preprocess.py and verify.py of a handoff: scripts for machines that have never seen this program."""

import textwrap
from collections.abc import Iterator
from importlib import resources
from typing import Any

from ltp_pipeline.data.decoding import DECODERS
from ltp_pipeline.data.images import DECODED
from ltp_pipeline.data.recipe import Recipe, numbers

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


def verify() -> str:
    """The text of verify.py, which is the same for every model."""
    return resources.files("ltp_pipeline.stages.handoff").joinpath("verify.py").read_text(encoding="utf-8")


def preprocess(recipe: Recipe, input_type: str) -> str:
    """The text of preprocess.py: the steps of this data set, and no others; `input_type` is the model's, for numpy."""
    resizes = _resizes(recipe)
    pillow = resizes or recipe.form is not None
    stored = f"np.dtype({recipe.dtype.name!r}), {recipe.shape!r}"
    given = "IMAGE..." if recipe.form else "SAMPLES.npy"
    lines = [
        '"""From samples as they are stored to the model\'s input, as it was done when the model was measured.',
        "",
        f"    python preprocess.py {given} INPUT.npy",
        "",
        f"It needs numpy{' and Pillow' if pillow else ''}.",
        '"""',
        "",
        "import sys",
        "",
        "import numpy as np",
        *(["from PIL import Image"] if pillow else []),
        "",
        f"STORED_TYPE, STORED_SHAPE = {stored}  # of one sample; its values are {span(recipe)}",
        "",
        *(_RESIZE.splitlines() if resizes else []),
        *(_load(recipe) if recipe.form else []),
        "",
        "def prepare(samples):",
        '    """Turn stored samples, one or several along a first axis, into the model\'s input."""',
        "    x = np.asarray(samples)",
        "    x = x[None] if x.shape == STORED_SHAPE else x",
        "    if x.shape[1:] != STORED_SHAPE or x.dtype.newbyteorder('=') != STORED_TYPE:",
        "        given, wanted = f'{x.dtype} of shape {x.shape[1:]}', f'{STORED_TYPE} of shape {STORED_SHAPE}'",
        "        raise ValueError(f'samples are {given}, stored ones were {wanted}')",
        *(f"    {line}" for line in _steps(recipe, input_type)),
        "    return np.ascontiguousarray(x)",
        "",
        "",
        'if __name__ == "__main__":',
        "    if len(sys.argv) < 3:",
        "        sys.exit(__doc__)",
        f"    samples = {'[load(file) for file in sys.argv[1:-1]]' if recipe.form else 'np.load(sys.argv[1])'}",
        "    np.save(sys.argv[-1], prepare(samples))",
    ]
    return "\n".join(lines) + "\n"


def span(recipe: Recipe) -> str:
    """The range of stored values, in words."""
    if recipe.dtype.kind == "b":
        return "False or True"
    low, high = (f"{n:.6g}" if recipe.dtype.kind == "f" else str(n) for n in (recipe.low, recipe.high))
    return f"from {low} to {high}"


def _resizes(recipe: Recipe) -> bool:
    """Whether arrays are resized; images are decoded to their size."""
    shape = recipe.shape[:2] if recipe.prepare.channels_to_front else recipe.shape[-2:]
    return recipe.prepare.resize not in (None, shape)


def _load(recipe: Recipe) -> Iterator[str]:
    form: Any = recipe.form
    (rows, columns), crop = form.size, form.crop
    yield from ("", "def load(file):")
    yield f'    """Decode an image (a path or an open file) to {DECODED[form.mode]}, 0 to 255, and bring it to size."""'
    yield f"    with Image.open(file, formats={DECODERS!r}) as image:"
    yield "        if image.mode[0] in 'IF':"
    yield "            raise ValueError(f'{file} has more than 8 bits per channel')"
    yield f"        image = image.convert({form.mode!r})"
    if crop is None:
        yield f"        image = image.resize(({columns}, {rows}), Image.Resampling.BILINEAR)"
    else:
        values = {"tall": round(rows / crop), "wide": round(columns / crop), "rows": rows, "columns": columns}
        yield from textwrap.indent(_CROP.strip().format(**values), "        ").splitlines()
    yield "        return np.asarray(image).reshape(STORED_SHAPE)"
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
