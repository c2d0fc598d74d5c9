"""Positions of nonzeros as bytes: gaps of 4 to 16 bits, or a bitmask. Pure numpy; knows nothing of ONNX.

*Valued* gaps ("v"): a code is the distance to the position before; a distance over the largest code is bridged by
entries that write an explicit zero. *Free* gaps ("f"): a code below the largest is the number of zeros before a
nonzero; the largest code bridges that many zeros and has no value of its own. Free bridges take less room, valued ones
far less time to decode. Free gaps and masks keep a zero before their values, for all that is not there.

Codes of 4 to 7 bits are stored k + 1 in k bytes: k of them in the low bits, one spread over the high bits.
"""

import numpy as np

from ltp_pipeline.exporters.tensors import Array

ROWS = {4: 1, 5: 2, 6: 3, 7: 7}  # bits of a code: the k above
WIDTHS = {"4v": 4, "5v": 5, "6v": 6, "7v": 7, "8v": 8, "16v": 16, "4f": 4, "4o": 4, "8f": 8}
MASK = "m"
KINDS = (*WIDTHS, MASK)
QUICK = ("4v", "5v", "6v", "7v", "8v", "16v")  # to decode
CHOICES = (*QUICK, "4f", "8f")  # an odd number of codes turns 4f into 4o


def top(kind: str) -> int:
    """The largest code of a width."""
    return int(2 ** WIDTHS[kind] - 1)


def sizes(where: Array, size: int) -> dict[str, tuple[float, int]]:
    """For each kind, the bytes of codes and the number of values that these ascending positions within `size` take."""
    found: dict[str, tuple[float, int]] = {MASK: (size / 8, where.size)}
    steps = _steps(where)
    for kind in CHOICES:
        entries = where.size + int(_bridges(steps[kind[-1]], kind).sum())
        found[kind] = (entries * _bits(kind) / 8, entries if kind in QUICK else where.size)
    return found


def make(kind: str, where: Array, values: Array, size: int) -> tuple[str, Array, Array]:
    """The kind as it came out, the codes and the stored values."""
    if kind == MASK:
        return kind, _mask(where, size), _after_zero(values)
    width = WIDTHS[kind]
    codes, ends = _codes(_steps(where)[kind[-1]], kind)
    if kind not in QUICK:
        if width == 4 and codes.size % 2:
            kind, codes = "4o", np.append(codes, codes.dtype.type(0))
        return kind, (_spread(codes, width) if width in ROWS else codes), _after_zero(values)
    stored = np.zeros(codes.size, values.dtype)
    stored[ends] = values
    if width not in ROWS:
        return kind, codes, stored
    spare = -codes.size % (ROWS[width] + 1)
    if spare:  # explicit zeros within the longest gap fill the last bytes up
        longest = int(codes.argmax()) if codes.size else 0
        if not codes.size or codes[longest] <= spare:
            return make("8v", where, values, size)
        codes[longest] -= spare
        codes = np.insert(codes, longest, [1] * spare)
        stored = np.insert(stored, longest, [0] * spare)
    return kind, _spread(codes, width), stored


def _bits(kind: str) -> float:
    rows = ROWS.get(WIDTHS[kind])
    return 8 * rows / (rows + 1) if rows else WIDTHS[kind]


def _steps(where: Array) -> dict[str, Array]:
    """What valued and free codes count: distances, and the zeros between."""
    gaps = np.diff(where.astype(np.int32), prepend=np.int32(0))
    zeros = gaps - 1
    zeros[:1] += 1
    return {"v": gaps, "f": zeros}


def _bridges(steps: Array, kind: str) -> Array:
    """How many bridges each step needs; a valued step must not end on its last bridge, which writes a zero there."""
    if not steps.size or steps.max() < top(kind):
        return np.zeros(1, steps.dtype)
    bridges: Array = np.maximum(steps - 1, 0) // top(kind) if kind.endswith("v") else steps // top(kind)
    return bridges


def _codes(steps: Array, kind: str) -> tuple[Array, Array | slice]:
    """Codes with each step preceded by its bridges, and where among them the steps end."""
    dtype = np.uint16 if WIDTHS[kind] == 16 else np.uint8
    bridges = _bridges(steps, kind)
    if not bridges.any():
        return steps.astype(dtype), slice(None)
    ends = np.cumsum(bridges + 1) - 1
    codes = np.full(ends[-1] + 1, top(kind), dtype)
    codes[ends] = steps - bridges * top(kind)
    return codes, ends


def high_weights(width: int) -> Array:
    """What the high bits of each row count in the code that is spread over them."""
    weights: Array = 1 << (8 - width) * np.arange(ROWS[width])
    return weights


def _spread(codes: Array, width: int) -> Array:
    rows = codes.reshape(ROWS[width] + 1, -1)
    high = rows[-1] // high_weights(width)[:, None] % (1 << (8 - width))
    packed: Array = rows[:-1] | (high << width).astype(np.uint8)
    return packed if ROWS[width] > 1 else packed.reshape(-1)


def _gathered(packed: Array, width: int) -> Array:
    if packed.shape[:-1] != (() if ROWS[width] == 1 else (ROWS[width],)):
        raise ValueError("has codes of the wrong shape")
    rows = packed.reshape(ROWS[width], -1)
    last = high_weights(width) @ (rows >> width).astype(np.int64)
    return np.concatenate([(rows & (1 << width) - 1).reshape(-1), last])


def _mask(where: Array, size: int) -> Array:
    present = np.zeros(size, bool)
    present[where] = True
    return np.packbits(present, bitorder="little")


def _after_zero(values: Array) -> Array:
    stored = np.zeros(values.size + 1, values.dtype)
    stored[1:] = values
    return stored


def decode(kind: str, codes: Array, values: Array, size: int) -> Array:
    """The dense flat array; ValueError for codes and values that no encoder wrote."""
    if not codes.ndim or values.ndim != 1 or codes.dtype != (np.uint16 if kind == "16v" else np.uint8):
        raise ValueError("has codes or values of the wrong type or shape")
    if kind == MASK:
        where, values = _from_mask(codes.reshape(-1), values, size)
    else:
        where, values = _from_gaps(kind, codes, values, size)
    if (where[1:] <= where[:-1]).any():
        raise ValueError("has duplicated positions")
    dense = np.zeros(size, values.dtype)
    dense[where] = values
    return dense


def _from_mask(codes: Array, values: Array, size: int) -> tuple[Array, Array]:
    if codes.size != -(-size // 8):
        raise ValueError(f"has a mask of {codes.size} bytes for {size} elements")
    where = np.flatnonzero(np.unpackbits(codes, bitorder="little").view(bool))
    if where.size and where[-1] >= size:
        raise ValueError("has a mask that runs past the end")
    return where, _checked(values, where.size)


def _from_gaps(kind: str, codes: Array, values: Array, size: int) -> tuple[Array, Array]:
    valued = kind.endswith("v")
    codes = _gathered(codes, WIDTHS[kind]) if WIDTHS[kind] in ROWS else codes.reshape(-1)
    steps = (codes[:-1] if kind == "4o" else codes).astype(np.int64)
    real = np.ones(steps.size, bool) if valued else steps < top(kind)
    where = np.cumsum(steps) if valued else np.cumsum(steps + real) - 1
    if where.size and where[-1] >= size:
        raise ValueError("has gaps that run past the end")
    if not valued:
        return where[real], _checked(values, int(real.sum()))
    if values.size != where.size:
        raise ValueError(f"has {values.size} values for {where.size} gaps")
    return where, values


def _checked(values: Array, count: int) -> Array:
    """The values after the leading zero."""
    if values.size != count + 1 or values[:1].tobytes().strip(b"\0"):
        raise ValueError(f"has {values.size} values, where a zero and {count} are needed")
    return values[1:]
