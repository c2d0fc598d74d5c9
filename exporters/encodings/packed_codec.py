"""Store the positions of nonzeros as bytes: deltas of 4 to 16 bits, or a bitmask.

This module uses numpy only and knows nothing of ONNX.

A *delta* is the distance of a nonzero to the nonzero before it. Each kind of codes has a largest
code. A delta above the largest code is stored as several entries: *bridges*, which hold the largest
code, and one entry for the rest. There are three kinds of codes:

- *Valued* deltas ("4v" to "16v", where the number is the bits of a code). A code is a distance, and
  every entry has a value. The value of a bridge is an explicit zero.
- *Free* deltas ("4f", "8f"). A code below the largest is the number of zeros before a nonzero. The
  largest code stands for that many zeros and has no value.
- A mask ("m") has one bit for each element.

Free bridges take fewer bytes, valued bridges take far less time to decode. Free deltas and masks
store a zero before their values, which decoding reads for all elements without a value.

Codes of 5 to 7 bits, and free codes of 4 bits, are stored k + 1 in k bytes: each byte has a code in
its low bits, and the last code is spread over the high bits. Valued codes of 4 bits are stored two
in a byte, as its remainders divided by 15 and by 17, so that a runtime gets both from a single Mod.
The first half of all codes are the remainders by 15, the second half those by 17.

For example, four of twelve weights are not zero. A delta is the distance to the nonzero before:

    >>> weights = np.array([0, 0, 0.5, 0, 0, 0, 0, -1, 2, 0, 0, 0.25], np.float32)
    >>> positions = np.flatnonzero(weights)
    >>> deltas = compute_deltas(positions)
    >>> positions.tolist(), deltas.tolist()
    ([2, 7, 8, 11], [2, 5, 1, 3])
    >>> [codes], [values] = encode("6v", [deltas], [weights[positions]], [12])
    >>> codes.tolist(), values.tolist()
    ([2, 5, 1, 3], [0.5, -1.0, 2.0, 0.25])

Four codes of 6 bits take three bytes. The first three codes are the low bits of a byte each. The
last code is 3, in bits 000011. Its two lowest bits, 11, are the high bits of the first byte, which
is 64 · 3 + 2 = 194. Its other bits are zero, so the other bytes are 5 and 1. In 4 bits, the same
codes take two bytes, because 137 leaves 2 divided by 15 and 1 divided by 17, and 20 leaves 5 and 3:

    >>> pack("6v", codes).tolist()
    [[194], [5], [1]]
    >>> pack("4v", codes).tolist()
    [[137, 20]]

So 3 bytes of codes and 16 bytes of values replace 48 bytes of weights. Decoding restores them:

    >>> decode("6v", unpack("6v", pack("6v", codes)), values, 12).tolist() == weights.tolist()
    True

A delta of 300 needs more than 8 bits. A bridge of the largest code, 255, covers most of it and
writes a zero; 45 remain:

    >>> [codes], [values] = encode("8v", [np.array([300])], [np.array([0.5], np.float32)], [301])
    >>> codes.tolist(), values.tolist()
    ([255, 45], [0.0, 0.5])
"""

import bisect
from collections.abc import Sequence

import numpy as np

from ltp_pipeline.system.arrays import Array

LOW_ROWS = {4: 1, 5: 2, 6: 3, 7: 7}  # by bits of a code: the k of "k + 1 codes in k bytes"
WIDTHS = {"4v": 4, "5v": 5, "6v": 6, "7v": 7, "8v": 8, "16v": 16, "4f": 4, "8f": 8}  # in bits
DELTA_KINDS = tuple(WIDTHS)
VALUED_KINDS = tuple(kind for kind in DELTA_KINDS if kind.endswith("v"))  # fast to decode
MASK = "m"
KINDS = (*DELTA_KINDS, MASK)
PAIRS = "4v"
PAIR_DIVISORS = np.array([[15], [17]], np.uint8)
PAIR_TOPS = (14, 16)  # largest codes of the first and the second half of PAIRS
_SMALLEST_TOP = 14  # smallest of the largest codes of all kinds


def largest_code(kind: str) -> int:
    """Return the largest code of a kind."""
    return int(2 ** WIDTHS[kind] - 1)


def compute_deltas(positions: Array) -> Array:
    """Return the distance of each ascending position to the one before; the first one to zero."""
    deltas = np.empty(positions.size, np.int32)
    deltas[:1] = positions[:1]
    np.subtract(positions[1:], positions[:-1], out=deltas[1:], casting="unsafe")
    return deltas


def join_deltas(deltas: Sequence[Array], sizes: Sequence[int]) -> Array:
    """Return the deltas of the concatenation of several arrays."""
    if len(deltas) == 1:
        return deltas[0]
    parts = [deltas[0][:0]]
    distance = 0  # from the last nonzero to the start of the next array
    for part, size in zip(deltas, sizes, strict=True):
        if part.size:
            joined = part.copy()
            joined[0] += distance
            parts.append(joined)
            distance = -int(part.sum())
        distance += size
    return np.concatenate(parts)


def estimate_sizes(deltas: Array, size: int) -> dict[str, tuple[float, int]]:
    """Return the bytes of codes and the number of values that each kind would take.

    The sizes are exact except for PAIRS.
    """
    sizes: dict[str, tuple[float, int]] = {MASK: (size / 8, deltas.size + 1)}
    # Only long deltas need bridges, and nearly all are short. A boolean index takes several times
    # as long as flatnonzero.
    long = deltas[np.flatnonzero(deltas >= _SMALLEST_TOP)]
    # The first delta has one more zero before its nonzero than others of the same length.
    num_first = int(bool(long.size and deltas[0] >= _SMALLEST_TOP))
    lengths, counts = np.unique(long[num_first:], return_counts=True)
    for kind in DELTA_KINDS:
        tops = PAIR_TOPS if kind == PAIRS else (largest_code(kind),)
        is_valued = kind in VALUED_KINDS
        num_bridges = 0
        for top in tops:
            bridges = _count_bridges(lengths if is_valued else lengths - 1, kind, top)
            first_bridges = _count_bridges(long[:num_first], kind, top)
            num_bridges += int(bridges @ counts) + int(first_bridges.sum())
        num_codes = deltas.size + num_bridges // len(tops)
        rows = LOW_ROWS.get(WIDTHS[kind])
        bits = 8 * rows / (rows + 1) if rows else WIDTHS[kind]
        sizes[kind] = (num_codes * bits / 8, num_codes if is_valued else deltas.size + 1)
    return sizes


def encode(
    kind: str, deltas: Sequence[Array], values: Sequence[Array], sizes: Sequence[int]
) -> tuple[list[Array], list[Array]]:
    """Encode arrays whose codes are packed together.

    Args:
        kind: One of KINDS.
        deltas: Deltas of each array.
        values: Nonzeros of each array.
        sizes: Number of elements of each array.

    Returns:
        Codes of each array, one per entry (for a mask, one per eight elements), and the values to
        store.
    """
    if kind == MASK:
        return list(map(_encode_mask, deltas, sizes)), list(map(_prepend_zero, values))
    if kind == PAIRS:
        encoded = _encode_pairs(deltas)
    elif kind in VALUED_KINDS:
        encoded = [_encode_steps(part, kind, largest_code(kind)) for part in deltas]
    else:
        codes = []
        for part in deltas:
            steps = part - 1  # zeros before each nonzero
            steps[:1] += 1
            codes.append(_encode_steps(steps, kind, largest_code(kind))[0])
        return codes, list(map(_prepend_zero, values))
    codes = []
    stored_values = []
    for part, (part_codes, bridged) in zip(values, encoded, strict=True):
        codes.append(part_codes)
        stored_values.append(_insert_entries(part, bridged, 0))
    return codes, stored_values


def _encode_mask(deltas: Array, size: int) -> Array:
    """Return a bitmask, eight elements a byte."""
    mask = np.zeros(size, bool)
    mask[np.cumsum(deltas)] = True
    return np.packbits(mask, bitorder="little")


def _find_long_steps(steps: Array) -> Array:
    """Return the indices of steps that may need bridges."""
    return np.flatnonzero(steps >= _SMALLEST_TOP)


def _encode_steps(steps: Array, kind: str, top: int) -> tuple[Array, Array]:
    """Encode steps as codes, with bridges of the code `top` before long steps.

    Returns:
        Codes, and for each bridge the index of the step that it comes before.
    """
    long = _find_long_steps(steps)
    codes = steps.astype(np.uint16 if WIDTHS[kind] == 16 else np.uint8)
    bridges = _count_bridges(steps[long], kind, top)
    codes[long] = steps[long] - bridges * top
    bridged = np.repeat(long, bridges)
    return _insert_entries(codes, bridged, top), bridged


def _encode_pairs(deltas: Sequence[Array]) -> list[tuple[Array, Array]]:
    """Encode the deltas of each array as PAIRS, see `_encode_steps`.

    The first half of all codes (one more if their number is odd) has another largest code than the
    second half. So the number of codes depends on which half they are in.
    """
    counts = []  # codes of each array in the first half, and in the second half
    for part in deltas:
        long = part[_find_long_steps(part)]
        first, second = (int(_count_bridges(long, PAIRS, top).sum()) for top in PAIR_TOPS)
        counts.append((part.size + first, part.size + second))
    encoded = []
    num_before = 0
    num_after = sum(second for _, second in counts)
    for steps, (first, second) in zip(deltas, counts, strict=True):
        num_after -= second
        if num_before + first <= num_after + 1:
            encoded.append(_encode_steps(steps, PAIRS, PAIR_TOPS[0]))
            num_before += first
        elif num_before >= num_after + second:
            encoded.append(_encode_steps(steps, PAIRS, PAIR_TOPS[1]))
        else:
            encoded.append(_encode_across_halves(steps, num_before, num_after))
            num_codes = num_before + num_after + encoded[-1][0].size
            num_before = (num_codes + 1) // 2
    return encoded


def _encode_across_halves(steps: Array, num_before: int, num_after: int) -> tuple[Array, Array]:
    """Encode the array in which the two halves of PAIRS meet, see `_encode_steps`."""
    first_top, second_top = PAIR_TOPS
    long = _find_long_steps(steps)
    first_bridges, second_bridges = (
        np.append(0, np.cumsum(_count_bridges(steps[long], PAIRS, top))) for top in PAIR_TOPS
    )

    def count_halves(split: int) -> tuple[int, int]:
        """Return the number of codes in each half if steps from `split` on are in the second."""
        num_long = int(np.searchsorted(long, split))
        first = num_before + split + int(first_bridges[num_long])
        second_steps = steps.size - split
        second = num_after + second_steps + int(second_bridges[-1] - second_bridges[num_long])
        return first, second

    def get_difference(split: int) -> int:
        first, second = count_halves(split)
        return first - second

    split = bisect.bisect_right(range(steps.size), 0, key=get_difference) - 1
    # The step at the split may have its first bridges in one half and the rest in the other.
    num_moved = np.arange(int(_count_bridges(steps[split], PAIRS, first_top)) + 1)
    rest_bridges = _count_bridges(steps[split] - first_top * num_moved, PAIRS, second_top)
    num_second = 1 + rest_bridges + count_halves(split + 1)[1]
    enough = np.flatnonzero(count_halves(split)[0] + num_moved >= num_second)
    bridges = int(enough[0]) if enough.size else 0
    if not enough.size:
        split += 1
    rest = steps[split:].copy()
    rest[:1] -= bridges * first_top
    codes, bridged = _encode_steps(steps[:split], PAIRS, first_top)
    rest_codes, rest_bridged = _encode_steps(rest, PAIRS, second_top)
    middle_codes = np.full(bridges, first_top, np.uint8)
    return (
        np.concatenate([codes, middle_codes, rest_codes]),
        np.concatenate([bridged, np.full(bridges, split), rest_bridged + split]),
    )


def _insert_entries(entries: Array, before: Array, value: int) -> Array:
    """Insert a value before entries at ascending, repeatable indices; np.insert is slower."""
    if not before.size:
        return entries
    is_entry = np.ones(entries.size + before.size, bool)
    is_entry[before + np.arange(before.size)] = False
    result = np.full(is_entry.size, value, entries.dtype)
    result[is_entry] = entries
    return result


def _count_bridges(steps: Array, kind: str, top: int) -> Array:
    """Return how many bridges each step needs.

    A valued step must not end on its last bridge, because that would write a zero there.
    """
    bridges: Array = np.maximum(steps - 1, 0) // top if kind in VALUED_KINDS else steps // top
    return bridges


def get_high_bit_weights(width: int) -> Array:
    """Return the factor of each row's high bits in the code that is spread over them."""
    weights: Array = 1 << (8 - width) * np.arange(LOW_ROWS[width])
    return weights


def pack(kind: str, codes: Array) -> Array:
    """Return codes as they are stored; narrow ones get zeros at the end to fill the last bytes."""
    width = WIDTHS.get(kind, 8)
    if width not in LOW_ROWS:
        return codes
    padded = np.append(codes, np.zeros(count_padding(kind, codes.size), np.uint8))
    rows = padded.reshape(LOW_ROWS[width] + 1, -1)
    if kind == PAIRS:
        return _combine_remainders(*rows[:, None])
    packed: Array = rows[:-1].copy()
    for i, row in enumerate(packed):
        # Bits that are shifted over the top belong to the next row.
        row |= rows[-1] >> i * (8 - width) << width
    return packed


def _combine_remainders(by_15: Array, by_17: Array) -> Array:
    """Return the byte that leaves each two remainders, divided by 15 and by 17.

    136 leaves 1 and 0, 120 leaves 0 and 1, and 255 is divisible by both.
    """
    bytes_: Array = by_15 * np.uint16(136)
    bytes_ += by_17 * np.uint16(120)
    for _ in range(2):  # 256 leaves the same as 1
        bytes_ = (bytes_ & 255) + (bytes_ >> 8)
    return bytes_.astype(np.uint8)


def count_padding(kind: str, num_codes: int) -> int:
    """Return how many zeros fill the last bytes after this number of codes."""
    return -num_codes % (LOW_ROWS.get(WIDTHS.get(kind, 8), 0) + 1)


def unpack(kind: str, packed: Array) -> Array:
    """Return all codes, padding included.

    Raises:
        ValueError: If `pack` does not write such an array.
    """
    width = WIDTHS.get(kind, 8)
    dtype = np.uint16 if width == 16 else np.uint8
    row_shape = (LOW_ROWS[width],) if width in LOW_ROWS else ()
    if packed.dtype != dtype or not packed.ndim or packed.shape[:-1] != row_shape:
        raise ValueError("has codes of an incorrect type or shape")
    if width not in LOW_ROWS:
        return packed
    if kind == PAIRS:
        return (packed % PAIR_DIVISORS).reshape(-1)
    low_codes = packed & (1 << width) - 1
    last_codes = get_high_bit_weights(width) @ (packed >> width).astype(np.int64)
    return np.concatenate([low_codes.reshape(-1), last_codes])


def _prepend_zero(values: Array) -> Array:
    """Return values with a zero before them."""
    stored = np.zeros(values.size + 1, values.dtype)
    stored[1:] = values
    return stored


def decode(kind: str, codes: Array, values: Array, size: int) -> Array:
    """Return the dense flat array.

    Args:
        kind: One of KINDS.
        codes: Codes of the array, without padding.
        values: Stored values of the array.
        size: Number of elements of the array.

    Raises:
        ValueError: If no encoder writes such codes and values.
    """
    positions = _find_positions(kind, codes, size)
    count = positions.size
    if kind not in VALUED_KINDS:
        if values.shape != (count + 1,) or values[:1].tobytes().strip(b"\0"):
            raise ValueError(f"must have a zero and {count} values, and has {values.size} values")
        values = values[1:]
    elif values.shape != (count,):
        raise ValueError(f"has {values.size} values for {count} deltas")
    if (positions[1:] <= positions[:-1]).any():
        raise ValueError("has duplicated positions")
    dense = np.zeros(size, values.dtype)
    dense[positions] = values
    return dense


def _find_positions(kind: str, codes: Array, size: int) -> Array:
    """Return the flat position of each value, ascending unless the codes are corrupt.

    Raises:
        ValueError: If there are too few bytes, or positions outside the array.
    """
    if kind == MASK:
        if codes.size != -(-size // 8):
            raise ValueError(f"has a mask of {codes.size} bytes for {size} elements")
        positions = np.flatnonzero(np.unpackbits(codes, bitorder="little").view(bool))
        ends = positions
    elif kind in VALUED_KINDS:
        positions = np.cumsum(codes.astype(np.int64))
        ends = positions
    else:
        steps = codes.astype(np.int64)
        has_value = steps < largest_code(kind)
        ends = np.cumsum(steps + has_value) - 1
        positions = ends[has_value]
    if ends.size and ends[-1] >= size:
        raise ValueError("has positions that run past the end")
    return positions
