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
WIDTHS = {"4v": 4, "5v": 5, "6v": 6, "7v": 7, "8v": 8, "16v": 16, "4f": 4, "8f": 8}
GAPS = tuple(WIDTHS)
QUICK = tuple(kind for kind in GAPS if kind.endswith("v"))  # to decode
MASK = "m"
KINDS = (*GAPS, MASK)


def top(kind: str) -> int:
    """The largest code of a width."""
    return int(2 ** WIDTHS[kind] - 1)


def gaps_of(where: Array) -> Array:
    """The distance of each ascending position to the one before, of the first to zero."""
    narrow = where.astype(np.int32)
    gaps = np.empty_like(narrow)
    gaps[:1] = narrow[:1]
    np.subtract(narrow[1:], narrow[:-1], out=gaps[1:])
    return gaps


def sizes(gaps: Array, size: int) -> dict[str, tuple[float, int]]:
    """For each kind, the bytes of codes and the number of values that nonzeros with these gaps take."""
    found: dict[str, tuple[float, int]] = {MASK: (size / 8, gaps.size + 1)}
    # No code bridges anything shorter, which is nearly all there is.
    long = gaps[np.flatnonzero(gaps >= top("4f"))]  # a boolean index takes several times as long
    first = int(bool(long.size and gaps[0] >= top("4f")))  # it has one zero more before it than the others
    steps, times = np.unique(long[first:], return_counts=True)
    for kind in GAPS:
        entries = gaps.size + int(_bridges(steps if kind in QUICK else steps - 1, kind) @ times)
        entries += int(_bridges(long[:first], kind).sum())
        rows = ROWS.get(WIDTHS[kind])
        bits = 8 * rows / (rows + 1) if rows else WIDTHS[kind]
        found[kind] = (entries * bits / 8, entries if kind in QUICK else gaps.size + 1)
    return found


def encode(kind: str, gaps: Array, values: Array, size: int) -> tuple[Array, Array]:
    """One code for each entry (eight elements, for a mask), and the values to store."""
    if kind == MASK:
        present = np.zeros(size, bool)
        present[np.cumsum(gaps)] = True
        return np.packbits(present, bitorder="little"), _after_zero(values)
    if kind in QUICK:
        codes, bridged = _codes(gaps, kind)
        return codes, _with(values, bridged, 0)
    zeros = gaps - 1
    zeros[:1] += 1
    return _codes(zeros, kind)[0], _after_zero(values)


def _codes(steps: Array, kind: str) -> tuple[Array, Array]:
    """Codes with each step preceded by its bridges, and before which steps these went."""
    codes = steps.astype(np.uint16 if WIDTHS[kind] == 16 else np.uint8)
    long = np.flatnonzero(steps >= top(kind))
    bridges = _bridges(steps[long], kind)
    codes[long] = steps[long] - bridges * top(kind)
    bridged = np.repeat(long, bridges)
    return _with(codes, bridged, top(kind)), bridged


def _with(entries: Array, before: Array, what: int) -> Array:
    """Entries with another put before some of them: np.insert without its care for unsorted places."""
    if not before.size:
        return entries
    own = np.ones(entries.size + before.size, bool)
    own[before + np.arange(before.size)] = False
    longer = np.full(own.size, what, entries.dtype)
    longer[own] = entries
    return longer


def _bridges(steps: Array, kind: str) -> Array:
    """How many bridges each step needs; a valued step must not end on its last bridge, which writes a zero there."""
    bridges: Array = np.maximum(steps - 1, 0) // top(kind) if kind in QUICK else steps // top(kind)
    return bridges


def high_weights(width: int) -> Array:
    """What the high bits of each row count in the code that is spread over them."""
    weights: Array = 1 << (8 - width) * np.arange(ROWS[width])
    return weights


def pack(kind: str, codes: Array) -> Array:
    """Codes as they are stored; narrow ones get zeros at the end to fill the last bytes."""
    width = WIDTHS.get(kind, 8)
    if width not in ROWS:
        return codes
    rows = np.append(codes, np.zeros(padding(kind, codes.size), np.uint8)).reshape(ROWS[width] + 1, -1)
    packed: Array = rows[:-1].copy()
    for nth, row in enumerate(packed):
        row |= rows[-1] >> nth * (8 - width) << width  # what is shifted over the top is for the next row
    return packed


def padding(kind: str, codes: int) -> int:
    """How many zeros follow this many codes."""
    return -codes % (ROWS.get(WIDTHS.get(kind, 8), 0) + 1)


def unpack(kind: str, packed: Array) -> Array:
    """All codes, padding included; ValueError for what `pack` does not write."""
    width = WIDTHS.get(kind, 8)
    shape = (ROWS[width],) if width in ROWS else ()
    if packed.dtype != (np.uint16 if width == 16 else np.uint8) or not packed.ndim or packed.shape[:-1] != shape:
        raise ValueError("has codes of the wrong type or shape")
    if width not in ROWS:
        return packed
    last = high_weights(width) @ (packed >> width).astype(np.int64)
    return np.concatenate([(packed & (1 << width) - 1).reshape(-1), last])


def _after_zero(values: Array) -> Array:
    stored = np.zeros(values.size + 1, values.dtype)
    stored[1:] = values
    return stored


def decode(kind: str, codes: Array, values: Array, size: int) -> Array:
    """The dense flat array; ValueError for codes and values that no encoder wrote."""
    where, count = _positions(kind, codes, size)
    if kind not in QUICK:
        if values.shape != (count + 1,) or values[:1].tobytes().strip(b"\0"):
            raise ValueError(f"has {values.size} values, where a zero and {count} are needed")
        values = values[1:]
    elif values.shape != (count,):
        raise ValueError(f"has {values.size} values for {count} gaps")
    if (where[1:] <= where[:-1]).any():
        raise ValueError("has duplicated positions")
    dense = np.zeros(size, values.dtype)
    dense[where] = values
    return dense


def _positions(kind: str, codes: Array, size: int) -> tuple[Array, int]:
    if kind == MASK:
        if codes.size != -(-size // 8):
            raise ValueError(f"has a mask of {codes.size} bytes for {size} elements")
        where = np.flatnonzero(np.unpackbits(codes, bitorder="little").view(bool))
        last = where
    else:
        steps = codes.astype(np.int64)
        real = np.ones(steps.size, bool) if kind in QUICK else steps < top(kind)
        last = np.cumsum(steps) if kind in QUICK else np.cumsum(steps + real) - 1
        where = last[real]
    if last.size and last[-1] >= size:
        raise ValueError("has positions that run past the end")
    return where, where.size
