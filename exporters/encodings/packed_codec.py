"""Positions of nonzeros as bytes: gaps of 4 to 16 bits, or a bitmask. Pure numpy; knows nothing of ONNX.

*Valued* gaps ("v"): a code is the distance to the position before; a distance over the largest code is bridged by
entries that write an explicit zero. *Free* gaps ("f"): a code below the largest is the number of zeros before a
nonzero; the largest code bridges that many zeros and has no value of its own. Free bridges take less room, valued ones
far less time to decode. Free gaps and masks keep a zero before their values, for all that is not there.

Codes of 5 to 7 bits, and free ones of 4, are stored k + 1 in k bytes: k of them in the low bits, one spread over the
high bits. Valued codes of 4 bits are the remainders of a byte divided by 15 and by 17, the first half of all codes the
former and the second half the latter: a runtime gets both from a single Mod.

An example: of twelve weights, four are not zero. Valued gaps say how far each is from the one before:

    >>> weights = np.array([0, 0, 0.5, 0, 0, 0, 0, -1, 2, 0, 0, 0.25], np.float32)
    >>> where = np.flatnonzero(weights)
    >>> gaps = compute_deltas(where)
    >>> where.tolist(), gaps.tolist()
    ([2, 7, 8, 11], [2, 5, 1, 3])
    >>> [codes], [values] = encode("6v", [gaps], [weights[where]], [12])
    >>> codes.tolist(), values.tolist()
    ([2, 5, 1, 3], [0.5, -1.0, 2.0, 0.25])

In 6 bits each, four codes take three bytes. The fourth code, 3, is 000011: its two low bits stand above the 2 in the
first byte (64 · 3 + 2 = 194), the next two above the 5, the last two above the 1. In 4 bits they take two bytes:

    >>> pack("6v", codes).tolist()
    [[194], [5], [1]]
    >>> pack("4v", codes).tolist()  # 137 % 15, 20 % 15 = 2, 5, and 137 % 17, 20 % 17 = 1, 3
    [[137, 20]]

So 3 bytes of codes and 16 of values stand for 48 bytes of weights. Back again:

    >>> decode("6v", unpack("6v", pack("6v", codes)), values, 12).tolist() == weights.tolist()
    True

A gap of 300 is more than 8 bits hold. The largest code, 255, bridges most of it, and writes a zero there:

    >>> [codes], [values] = encode("8v", [np.array([300])], [np.array([0.5], np.float32)], [301])
    >>> codes.tolist(), values.tolist()
    ([255, 45], [0.0, 0.5])
"""

import bisect
from collections.abc import Sequence

import numpy as np

from ltp_pipeline.system.arrays import Array

LOW_ROWS = {4: 1, 5: 2, 6: 3, 7: 7}  # bits of a code: the k above
WIDTHS = {"4v": 4, "5v": 5, "6v": 6, "7v": 7, "8v": 8, "16v": 16, "4f": 4, "8f": 8}
DELTA_KINDS = tuple(WIDTHS)
VALUED_KINDS = tuple(kind for kind in DELTA_KINDS if kind.endswith("v"))  # to decode
MASK = "m"
KINDS = (*DELTA_KINDS, MASK)
PAIRS = "4v"
PAIR_DIVISORS = np.array([[15], [17]], np.uint8)  # of PAIRS
PAIR_TOPS = (14, 16)
_SMALLEST_TOP = 14  # of all kinds


def largest_code(kind: str) -> int:
    """The largest code of a width."""
    return int(2 ** WIDTHS[kind] - 1)


def compute_deltas(where: Array) -> Array:
    """The distance of each ascending position to the one before, of the first to zero."""
    gaps = np.empty(where.size, np.int32)
    gaps[:1] = where[:1]
    np.subtract(where[1:], where[:-1], out=gaps[1:], casting="unsafe")
    return gaps


def join_deltas(gaps: Sequence[Array], sizes: Sequence[int]) -> Array:
    """The gaps of several arrays one after another as those of a single one."""
    if len(gaps) == 1:
        return gaps[0]
    parts, before = list[Array](), 0
    for part, size in zip(gaps, sizes, strict=True):
        if part.size:
            parts.append(part.copy())
            parts[-1][0] += before
            before = -int(part.sum())
        before += size
    return np.concatenate([gaps[0][:0], *parts])


def estimate_sizes(gaps: Array, size: int) -> dict[str, tuple[float, int]]:
    """For each kind, the bytes of codes and the number of values that nonzeros with these gaps take (PAIRS: about)."""
    found: dict[str, tuple[float, int]] = {MASK: (size / 8, gaps.size + 1)}
    # No code bridges anything shorter, which is nearly all there is.
    long = gaps[
        np.flatnonzero(gaps >= _SMALLEST_TOP)
    ]  # a boolean index takes several times as long
    first = int(
        bool(long.size and gaps[0] >= _SMALLEST_TOP)
    )  # it has one zero more before it than the others
    steps, times = np.unique(long[first:], return_counts=True)
    for kind in DELTA_KINDS:
        tops = PAIR_TOPS if kind == PAIRS else (largest_code(kind),)
        bridges = sum(
            int(_count_bridges(steps if kind in VALUED_KINDS else steps - 1, kind, t) @ times)
            for t in tops
        )
        entries = gaps.size + (
            bridges + sum(int(_count_bridges(long[:first], kind, t).sum()) for t in tops)
        ) // len(tops)
        rows = LOW_ROWS.get(WIDTHS[kind])
        bits = 8 * rows / (rows + 1) if rows else WIDTHS[kind]
        found[kind] = (entries * bits / 8, entries if kind in VALUED_KINDS else gaps.size + 1)
    return found


def encode(
    kind: str, gaps: Sequence[Array], values: Sequence[Array], sizes: Sequence[int]
) -> tuple[list[Array], list[Array]]:
    """For each array, one code for each entry (eight elements, for a mask), and the values to store.

    What is encoded together has to be packed together.
    """
    if kind == MASK:
        return [_encode_mask(g, size) for g, size in zip(gaps, sizes, strict=True)], [
            _prepend_zero(v) for v in values
        ]
    if kind in VALUED_KINDS:
        coded = (
            _encode_pairs(gaps)
            if kind == PAIRS
            else [_encode_steps(g, _find_long_steps(g), kind, largest_code(kind)) for g in gaps]
        )
        return [codes for codes, _ in coded], [
            _insert_entries(v, at, 0) for v, (_, at) in zip(values, coded, strict=True)
        ]
    steps = [g - 1 for g in gaps]
    for step in steps:
        step[:1] += 1
    return [_encode_steps(s, _find_long_steps(s), kind, largest_code(kind))[0] for s in steps], [
        _prepend_zero(v) for v in values
    ]


def _encode_mask(gaps: Array, size: int) -> Array:
    present = np.zeros(size, bool)
    present[np.cumsum(gaps)] = True
    return np.packbits(present, bitorder="little")


def _find_long_steps(steps: Array) -> Array:
    """Which steps may need bridges."""
    return np.flatnonzero(steps >= _SMALLEST_TOP)


def _encode_steps(steps: Array, long: Array, kind: str, top: int) -> tuple[Array, Array]:
    """Codes with each step preceded by its bridges, and before which steps these went."""
    codes = steps.astype(np.uint16 if WIDTHS[kind] == 16 else np.uint8)
    bridges = _count_bridges(steps[long], kind, top)
    codes[long] = steps[long] - bridges * top
    bridged = np.repeat(long, bridges)
    return _insert_entries(codes, bridged, top), bridged


def _encode_pairs(gaps: Sequence[Array]) -> list[tuple[Array, Array]]:
    """The same for PAIRS: the first half of all codes (one more, if they are odd) has another top than the second."""
    longs = [_find_long_steps(g) for g in gaps]
    counts = [
        [g.size + int(_count_bridges(g[n], PAIRS, t).sum()) for t in PAIR_TOPS]
        for g, n in zip(gaps, longs, strict=True)
    ]
    coded, before, after = list[tuple[Array, Array]](), 0, sum(second for _, second in counts)
    for steps, long, (first, second) in zip(gaps, longs, counts, strict=True):
        after -= second
        if before + first <= after + 1:
            coded.append(_encode_steps(steps, long, PAIRS, PAIR_TOPS[0]))
            before += first
        elif before >= after + second:
            coded.append(_encode_steps(steps, long, PAIRS, PAIR_TOPS[1]))
        else:
            coded.append(_encode_across_halves(steps, long, before, after))
            before = (before + after + coded[-1][0].size + 1) // 2
    return coded


def _encode_across_halves(
    steps: Array, long: Array, before: int, after: int
) -> tuple[Array, Array]:
    """The same where the halves meet, with so many codes before and after these."""
    first, second = PAIR_TOPS
    more = [np.append(0, np.cumsum(_count_bridges(steps[long], PAIRS, t))) for t in PAIR_TOPS]

    def halves(at: int) -> tuple[int, int]:
        """The codes of the steps before one, and of the others."""
        n = int(np.searchsorted(long, at))
        return before + at + int(more[0][n]), after + steps.size - at + int(
            more[1][-1] - more[1][n]
        )

    at = bisect.bisect_right(range(steps.size), 0, key=lambda n: halves(n)[0] - halves(n)[1]) - 1
    # The step at the border may have its first bridges in one half and the rest in the other.
    moved = np.arange(int(_count_bridges(steps[at], PAIRS, first)) + 1)
    rest = 1 + _count_bridges(steps[at] - first * moved, PAIRS, second) + halves(at + 1)[1]
    enough = np.flatnonzero(halves(at)[0] + moved >= rest)
    bridges = int(enough[0]) if enough.size else 0
    at += not enough.size
    back = steps[at:].copy()
    back[:1] -= bridges * first
    codes, bridged = _encode_steps(steps[:at], long[long < at], PAIRS, first)
    others, others_bridged = _encode_steps(back, _find_long_steps(back), PAIRS, second)
    codes = np.concatenate([codes, np.full(bridges, first, np.uint8), others])
    return codes, np.concatenate([bridged, np.full(bridges, at), others_bridged + at])


def _insert_entries(entries: Array, before: Array, what: int) -> Array:
    """Entries with another put before some of them: np.insert without its care for unsorted places."""
    if not before.size:
        return entries
    kept = np.ones(entries.size + before.size, bool)
    kept[before + np.arange(before.size)] = False
    longer = np.full(kept.size, what, entries.dtype)
    longer[kept] = entries
    return longer


def _count_bridges(steps: Array, kind: str, top: int) -> Array:
    """How many bridges each step needs; a valued step must not end on its last bridge, which writes a zero there."""
    bridges: Array = np.maximum(steps - 1, 0) // top if kind in VALUED_KINDS else steps // top
    return bridges


def get_high_bit_weights(width: int) -> Array:
    """What the high bits of each row count in the code that is spread over them."""
    weights: Array = 1 << (8 - width) * np.arange(LOW_ROWS[width])
    return weights


def pack(kind: str, codes: Array) -> Array:
    """Codes as they are stored; narrow ones get zeros at the end to fill the last bytes."""
    width = WIDTHS.get(kind, 8)
    if width not in LOW_ROWS:
        return codes
    rows = np.append(codes, np.zeros(count_padding(kind, codes.size), np.uint8)).reshape(
        LOW_ROWS[width] + 1, -1
    )
    if kind == PAIRS:
        return _combine_remainders(*rows[:, None])
    packed: Array = rows[:-1].copy()
    for nth, row in enumerate(packed):
        row |= (
            rows[-1] >> nth * (8 - width) << width
        )  # what is shifted over the top is for the next row
    return packed


def _combine_remainders(by_15: Array, by_17: Array) -> Array:
    """The byte for each two remainders: 136 leaves 1 and 0, 120 leaves 0 and 1, and 255 nothing of both."""
    words: Array = by_15 * np.uint16(136)
    words += by_17 * np.uint16(120)
    for _ in range(2):  # 256 counts as 1
        words = (words & 255) + (words >> 8)
    return words.astype(np.uint8)


def count_padding(kind: str, codes: int) -> int:
    """How many zeros follow this many codes."""
    return -codes % (LOW_ROWS.get(WIDTHS.get(kind, 8), 0) + 1)


def unpack(kind: str, packed: Array) -> Array:
    """All codes, padding included; ValueError for what `pack` does not write."""
    width = WIDTHS.get(kind, 8)
    shape = (LOW_ROWS[width],) if width in LOW_ROWS else ()
    if (
        packed.dtype != (np.uint16 if width == 16 else np.uint8)
        or not packed.ndim
        or packed.shape[:-1] != shape
    ):
        raise ValueError("has codes of the wrong type or shape")
    if width not in LOW_ROWS:
        return packed
    if kind == PAIRS:
        return (packed % PAIR_DIVISORS).reshape(-1)
    last = get_high_bit_weights(width) @ (packed >> width).astype(np.int64)
    return np.concatenate([(packed & (1 << width) - 1).reshape(-1), last])


def _prepend_zero(values: Array) -> Array:
    stored = np.zeros(values.size + 1, values.dtype)
    stored[1:] = values
    return stored


def decode(kind: str, codes: Array, values: Array, size: int) -> Array:
    """The dense flat array; ValueError for codes and values that no encoder wrote."""
    where, count = _find_positions(kind, codes, size)
    if kind not in VALUED_KINDS:
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


def _find_positions(kind: str, codes: Array, size: int) -> tuple[Array, int]:
    if kind == MASK:
        if codes.size != -(-size // 8):
            raise ValueError(f"has a mask of {codes.size} bytes for {size} elements")
        where = np.flatnonzero(np.unpackbits(codes, bitorder="little").view(bool))
        last = where
    else:
        steps = codes.astype(np.int64)
        real = np.ones(steps.size, bool) if kind in VALUED_KINDS else steps < largest_code(kind)
        last = np.cumsum(steps) if kind in VALUED_KINDS else np.cumsum(steps + real) - 1
        where = last[real]
    if last.size and last[-1] >= size:
        raise ValueError("has positions that run past the end")
    return where, where.size
