"""Picking the k largest magnitudes of a chunk in one pass, without copying or concatenating it.

A float's magnitude orders like its bits without the sign, so nothing is converted to a number. The pass keeps the
elements above a running bound in a buffer of about 2 k places; when it is full, the k largest stay and the least of
them is the new bound. Elements are met in index order and only those *above* the bound enter, so among equal
magnitudes the lowest index wins: the tie rule of this package. NaN ranks above infinity, infinity above the rest.

Both 16-bit types are compared and proved by their own bits. float32 is rounded to bfloat16 (nearest even) first, the
value that a proof then holds; see ``docs/toploc.md``.
"""

import numpy as np
import numpy.typing as npt

from toploc.kernels import inlined, kernel, words16, words32, words64

BFLOAT16, FLOAT16, FLOAT32 = 0, 1, 2

_LANES = np.uint64(0x0001_0001_0001_0001)
_MAGNITUDES = np.uint64(0x7FFF_7FFF_7FFF_7FFF)
_TOPS = np.uint64(0x8000_8000_8000_8000)
_BLOCK = 128  # elements tested at once against the bound
_PACKED = _BLOCK // 4  # words of 8 bytes in them
_COLUMNS = 512  # columns whose maxima give the first bound
_SAMPLE = 1 << 15  # elements that the first bound looks at


@inlined
def rounded32(bits):  # type: ignore[no-untyped-def]
    """bfloat16 bits nearest to float32 ``bits`` (int64), even on ties; NaN becomes 0x7FC0."""
    if (bits & 0x7FFFFFFF) > 0x7F800000:
        return 0x7FC0
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


@kernel
def _rank(bits, count, keep, histogram):  # type: ignore[no-untyped-def]
    """The ``keep``-th largest magnitude of the first ``count`` (at least as many), and how many are above it."""
    for i in range(256):
        histogram[i] = 0
    for i in range(count):
        histogram[(bits[i] & 0x7FFF) >> 7] += 1
    above = 0
    high = 255
    while above + histogram[high] < keep:
        above += histogram[high]
        high -= 1
    for i in range(128):
        histogram[i] = 0
    for i in range(count):
        magnitude = bits[i] & 0x7FFF
        if magnitude >> 7 == high:
            histogram[magnitude & 127] += 1
    low = 127
    while above + histogram[low] < keep:
        above += histogram[low]
        low -= 1
    return (high << 7) | low, above


@kernel
def _shrink(indices, bits, count, keep, histogram):  # type: ignore[no-untyped-def]
    """Keep the ``keep`` largest magnitudes of the first ``count`` in place and in order; returns the least kept."""
    if count <= keep:
        return -1
    bound, above = _rank(bits, count, keep, histogram)
    ties = keep - above
    kept = 0
    for i in range(count):
        magnitude = bits[i] & 0x7FFF
        take = magnitude > bound
        if magnitude == bound and ties > 0:
            ties -= 1
            take = True
        if take:
            indices[kept] = indices[i]
            bits[kept] = bits[i]
            kept += 1
    return bound


@kernel
def _column_maxima(data, maxima):  # type: ignore[no-untyped-def]
    """Raise ``maxima`` (one per column) by the magnitudes of 16-bit ``data``, read as rows of that many columns."""
    width = maxima.size
    for start in range(0, data.size, width):
        row = data[start : start + width]
        for j in range(row.size):
            magnitude = row[j] & np.uint16(0x7FFF)
            maxima[j] = max(maxima[j], magnitude)


@kernel
def _first_bound(addresses, lengths, keep, maxima, histogram):  # type: ignore[no-untyped-def]
    """A 16-bit magnitude that at least ``keep`` of the elements reach; 0 when nothing better is known.

    Each column's maximum is an element of its own, so the k-th largest maximum is reached by k elements.
    """
    if keep > maxima.size // 4:
        return 0
    for j in range(maxima.size):
        maxima[j] = 0
    left = _SAMPLE
    for segment in range(addresses.size):
        length = min(lengths[segment], left)
        _column_maxima(words16(addresses[segment], length), maxima)
        left -= length
        if left == 0:
            break
    return _rank(maxima, maxima.size, keep, histogram)[0]


@kernel
def _offer16(data, start, stop, base, keep, state, indices, bits, histogram):  # type: ignore[no-untyped-def]
    """Take ``data[start:stop]`` one by one."""
    count = state[0]
    bound = state[1]
    for i in range(start, stop):
        word = np.int64(data[i])
        if (word & 0x7FFF) > bound:
            indices[count] = base + i
            bits[count] = word
            count += 1
            if count == indices.size:
                bound = max(bound, _shrink(indices, bits, count, keep, histogram))
                count = keep
    state[0] = count
    state[1] = bound


@kernel
def _scan16(address, length, base, keep, state, indices, bits, histogram):  # type: ignore[no-untyped-def]
    """Offer one segment of 16-bit floats to the buffer; ``state`` holds [count, bound]."""
    data = words16(address, length)
    # Words of 8 bytes hold four magnitudes; adding what lacks to 0x8000 sets the top bit of those above the bound.
    head = min(length, (-(address // 2)) & 3)
    if head > 0:
        _offer16(data, np.int64(0), head, base, keep, state, indices, bits, histogram)
    blocks = (length - head) // _BLOCK
    packed = words64(address + 2 * head, blocks * _PACKED)
    count = state[0]
    bound = state[1]
    add = np.uint64(0x7FFF - bound) * _LANES
    for block in range(blocks):
        words = packed[block * _PACKED : (block + 1) * _PACKED]
        hits = np.uint64(0)
        for j in range(words.size):
            hits |= (words[j] & _MAGNITUDES) + add
        if hits & _TOPS == 0:
            continue
        for j in range(_PACKED):
            if ((words[j] & _MAGNITUDES) + add) & _TOPS == 0:
                continue
            four = head + block * _BLOCK + 4 * j
            for i in range(four, four + 4):
                word = np.int64(data[i])
                if (word & 0x7FFF) > bound:
                    indices[count] = base + i
                    bits[count] = word
                    count += 1
                    if count == indices.size:
                        bound = max(bound, _shrink(indices, bits, count, keep, histogram))
                        count = keep
                        add = np.uint64(0x7FFF - bound) * _LANES
    state[0] = count
    state[1] = bound
    tail = head + blocks * _BLOCK
    if tail < length:
        _offer16(data, tail, length, base, keep, state, indices, bits, histogram)


@kernel
def _scan32(address, length, base, keep, state, indices, bits, histogram):  # type: ignore[no-untyped-def]
    """Offer one segment of float32 to the buffer; ``state`` holds [count, bound]."""
    count = state[0]
    bound = state[1]
    data = words32(address, length)
    # The least float32 magnitude that can round above the bound; rounding decides exactly afterwards.
    least = max(0, ((bound + 1) << 16) - 0x8000)
    for start in range(0, length, _BLOCK):
        stop = min(length, start + _BLOCK)
        block = data[start:stop]
        largest = np.uint32(0)
        for i in range(block.size):
            largest = max(largest, np.uint32(block[i] & np.uint32(0x7FFFFFFF)))
        if np.int64(largest) < least:
            continue
        for i in range(start, stop):
            word = np.int64(data[i])
            if (word & 0x7FFFFFFF) < least:
                continue
            value = rounded32(word)
            if (value & 0x7FFF) > bound:
                indices[count] = base + i
                bits[count] = value
                count += 1
                if count == indices.size:
                    bound = max(bound, _shrink(indices, bits, count, keep, histogram))
                    count = keep
                    least = max(0, ((bound + 1) << 16) - 0x8000)
    state[0] = count
    state[1] = bound


@kernel
def _select16(addresses, lengths, out_indices, out_bits):  # type: ignore[no-untyped-def]
    keep = out_indices.size
    indices = np.empty(keep + max(keep, 256), dtype=np.int64)
    bits = np.empty(indices.size, dtype=np.uint16)
    histogram = np.empty(256, dtype=np.int64)
    state = np.zeros(2, dtype=np.int64)
    maxima = np.empty(_COLUMNS, dtype=np.uint16)
    state[1] = _first_bound(addresses, lengths, keep, maxima, histogram) - 1
    base = np.int64(0)
    for segment in range(addresses.size):
        _scan16(addresses[segment], lengths[segment], base, keep, state, indices, bits, histogram)
        base += lengths[segment]
    return _hand_over(indices, bits, state[0], histogram, out_indices, out_bits)


@kernel
def _select32(addresses, lengths, out_indices, out_bits):  # type: ignore[no-untyped-def]
    keep = out_indices.size
    indices = np.empty(keep + max(keep, 256), dtype=np.int64)
    bits = np.empty(indices.size, dtype=np.uint16)
    histogram = np.empty(256, dtype=np.int64)
    state = np.zeros(2, dtype=np.int64)
    state[1] = -1
    base = np.int64(0)
    for segment in range(addresses.size):
        _scan32(addresses[segment], lengths[segment], base, keep, state, indices, bits, histogram)
        base += lengths[segment]
    return _hand_over(indices, bits, state[0], histogram, out_indices, out_bits)


@kernel
def _hand_over(indices, bits, count, histogram, out_indices, out_bits):  # type: ignore[no-untyped-def]
    keep = out_indices.size
    _shrink(indices, bits, count, keep, histogram)
    count = min(count, keep)
    for i in range(count):
        out_indices[i] = indices[i]
        out_bits[i] = bits[i]
    return count


def select(
    addresses: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    kind: int,
    out_indices: npt.NDArray[np.int64],
    out_bits: npt.NDArray[np.uint16],
) -> int:
    """The largest magnitudes of the segments, read one after the other as one chunk.

    Args:
        addresses: where each segment's first element lies; the memory must stay alive and unchanged.
        lengths: elements per segment.
        kind: BFLOAT16, FLOAT16 or FLOAT32.
        out_indices: receives positions in the chunk, ascending; as many are picked as it has places.
        out_bits: as long; receives the elements' bits, of float32 those of its rounding.

    Returns:
        How many were found: all places, or all elements when the chunk has fewer.
    """
    pick = _select32 if kind == FLOAT32 else _select16
    return int(pick(addresses, lengths, out_indices, out_bits))
