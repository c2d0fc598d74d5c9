"""Positions of nonzeros as bytes: gaps of 4, 8 or 16 bits, or a bitmask. Pure numpy; knows nothing of ONNX.

Two kinds of gap code. *Valued* ("v"): a code is the distance to the position before; a distance over the largest code
is bridged by entries that write an explicit zero. *Free* ("f"): a code below the largest one is the number of zeros
before a nonzero; the largest code bridges that many zeros and has no value of its own. Free bridges cost less room,
valued ones fewer nodes to decode. Free codes and masks keep a zero before their values, for all that is not there.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ltp_pipeline.exporters.tensors import Array

WIDTHS = {"4f": 4, "4o": 4, "8f": 8, "8v": 8, "16f": 16, "16v": 16}  # "4o": free, with an odd number of codes
MASK = "m"
KINDS = (*WIDTHS, MASK)


def top(kind: str) -> int:
    """The largest code of a width."""
    return int(2 ** WIDTHS[kind] - 1)


@dataclass(frozen=True)
class Candidate:
    """One way to write positions: what it takes, and how to do it."""

    kind: str
    code_bytes: int
    values: int  # how many are stored
    make: Callable[[Array], tuple[Array, Array]]  # nonzero values in; codes and stored values out


def candidates(where: Array, size: int) -> list[Candidate]:
    """Every way to write these ascending positions within `size`; cheap until `make` is called."""
    found = [Candidate(MASK, -(-size // 8), where.size + 1, lambda values: (_mask(where, size), _after_zero(values)))]
    if not where.size:
        return found
    zeros = (np.diff(where, prepend=-1) - 1).astype(np.int32)
    gaps = zeros + 1
    gaps[0] -= 1
    for width in (8, 16):
        entries = where.size + int(_bridges(gaps, f"{width}v").sum())
        found.append(Candidate(f"{width}v", entries * width // 8, entries, _valued(gaps, f"{width}v")))
    for width in (4, 8, 16):
        entries = where.size + int(_bridges(zeros, f"{width}f").sum())
        kind = "4o" if width == 4 and entries % 2 else f"{width}f"
        found.append(Candidate(kind, -(-entries * width // 8), where.size + 1, _free(zeros, kind)))
    return found


def _bridges(steps: Array, kind: str) -> Array:
    """How many bridges each step needs; a valued step must not end on its last bridge, which writes a zero there."""
    bridges: Array = np.maximum(steps - 1, 0) // top(kind) if kind.endswith("v") else steps // top(kind)
    return bridges


def _valued(gaps: Array, kind: str) -> Callable[[Array], tuple[Array, Array]]:
    def make(values: Array) -> tuple[Array, Array]:
        codes, ends = _codes(gaps, kind)
        stored = np.zeros(codes.size, values.dtype)
        stored[ends] = values
        return codes, stored

    return make


def _free(zeros: Array, kind: str) -> Callable[[Array], tuple[Array, Array]]:
    def make(values: Array) -> tuple[Array, Array]:
        codes, _ = _codes(zeros, kind)
        return (_nibbles(codes) if WIDTHS[kind] == 4 else codes), _after_zero(values)

    return make


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


def _nibbles(codes: Array) -> Array:
    """Two codes per byte: the first half of them in the low nibbles, the second in the high ones."""
    half = -(-codes.size // 2)
    packed: Array = codes[:half].copy()
    packed[: codes.size - half] |= codes[half:] << 4
    return packed


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
    if codes.ndim != 1 or values.ndim != 1 or codes.dtype != (np.uint16 if kind.startswith("16") else np.uint8):
        raise ValueError("has codes or values of the wrong type or shape")
    if kind == MASK:
        where, values = _from_mask(codes, values, size)
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
    if WIDTHS[kind] == 4:
        codes = np.concatenate([codes & 15, (codes if kind == "4f" else codes[:-1]) >> 4])
    steps = codes.astype(np.int64)
    real = np.ones(steps.size, bool) if kind.endswith("v") else steps < top(kind)
    where = np.cumsum(steps) if kind.endswith("v") else np.cumsum(steps + real) - 1
    if where.size and where[-1] >= size:
        raise ValueError("has gaps that run past the end")
    if kind.endswith("v"):
        if values.size != where.size:
            raise ValueError(f"has {values.size} values for {where.size} gaps")
        return where, values
    return where[real], _checked(values, int(real.sum()))


def _checked(values: Array, count: int) -> Array:
    """The values after the leading zero."""
    if values.size != count + 1 or values[:1].tobytes().strip(b"\0"):
        raise ValueError(f"has {values.size} values, where a zero and {count} are needed")
    return values[1:]
