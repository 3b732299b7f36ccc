"""Kernels of draws keyed by content: digest rows, number equal ones, take the smallest hashes.

Everything here is a function of the *contents* of rows. A place in an array decides nothing: equal
hashes are put in order by content, and rows of equal content can stand for each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import BoolArray, Int32Array, IntArray, UInt64Array
from ..compiled import njit
from ..randomness import GOLDEN, mix, uniform

_MINUS_ZERO = np.uint64(0x8000000000000000)
_MAGNITUDE = np.uint64(0x7FFFFFFFFFFFFFFF)
_INFINITY = np.uint64(0x7FF0000000000000)
_NAN = np.uint64(0x7FF8000000000000)
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_LARGEST = np.uint64(0xFFFFFFFFFFFFFFFF)
_DIGEST = np.uint64(0x3C6EF372FE94F82B)

# Hashes are computed so many at a time, which becomes vector code.
BLOCK = 512


@njit(cache=True, nogil=True)
def canonical(word: Any) -> Any:
    """Bits of a double, such that equal numbers have equal bits: one zero, one NaN."""
    if word == _MINUS_ZERO:
        return _ZERO
    if word & _MAGNITUDE > _INFINITY:
        return _NAN
    return word


@njit(cache=True, nogil=True)
def digest_rows(words: UInt64Array, out: UInt64Array, start: int, stop: int) -> None:
    """Digest rows `start` to `stop` of a matrix of doubles, seen as 64-bit words."""
    d = words.shape[1]
    for i in range(start, stop):
        state = _DIGEST + np.uint64(d)
        for f in range(d):
            state = mix((state ^ canonical(words[i, f])) + GOLDEN)
        out[i] = state


@njit(cache=True, nogil=True)
def compare(words: UInt64Array, i: int, others: UInt64Array, j: int) -> Any:
    """-1, 0 or 1: the order of two rows by their canonical bits; 0 if they are equal."""
    for f in range(words.shape[1]):
        mine, other = canonical(words[i, f]), canonical(others[j, f])
        if mine != other:
            return -1 if mine < other else 1
    return 0


@njit(cache=True, nogil=True)
def number_contents(
    words: UInt64Array, digests: UInt64Array, order: IntArray, group: IntArray
) -> int:
    """Give rows of equal content one number; return how many contents there are.

    `order` sorts the digests, so equal rows are in one run of it. Different rows with one digest
    get different numbers all the same.
    """
    count = 0
    first = 0  # of the run
    for k in range(len(order)):
        i = order[k]
        if k == first or digests[i] != digests[order[first]]:
            first = k
            group[i] = count
            count += 1
            continue
        group[i] = -1
        for back in range(k - 1, first - 1, -1):  # the row before is nearly always equal
            if compare(words, i, words, order[back]) == 0:
                group[i] = group[order[back]]
                break
        if group[i] < 0:
            group[i] = count
            count += 1
    return count


@njit(cache=True, nogil=True)
def count_equal(
    words: UInt64Array,
    digests: UInt64Array,
    others: UInt64Array,
    sorted_digests: UInt64Array,
    order: IntArray,
    out: IntArray,
) -> None:
    """Count, for every row of `words`, the rows of `others` that have its content."""
    for i in range(len(words)):
        low, high = 0, len(sorted_digests)
        while low < high:
            middle = (low + high) // 2
            if sorted_digests[middle] < digests[i]:
                low = middle + 1
            else:
                high = middle
        out[i] = 0
        while low < len(order) and sorted_digests[low] == digests[i]:
            out[i] += compare(words, i, others, order[low]) == 0
            low += 1


@njit(cache=True, nogil=True)
def key_of(digest: Any, occurrence: int) -> Any:
    """Key of a row: its digest, and how many rows of equal content were counted before it."""
    return mix(digest ^ (np.uint64(occurrence) * GOLDEN))


@njit(cache=True, nogil=True)
def multiset_keys(
    digests: UInt64Array, group: IntArray, rows: Int32Array, contents: int, keys: UInt64Array
) -> None:
    """Keys of the rows of a multiset; the occurrence is counted within it."""
    seen = np.zeros(contents, np.int64)
    for k in range(len(rows)):
        i = rows[k]
        keys[k] = key_of(digests[i], seen[group[i]])
        seen[group[i]] += 1


@njit(cache=True, nogil=True)
def _later(hash_a: Any, row_a: int, hash_b: Any, row_b: int, words: UInt64Array) -> Any:
    """Whether a comes after b: by hash, and among equal hashes by content."""
    if hash_a != hash_b:
        return hash_a > hash_b
    return compare(words, row_a, words, row_b) > 0


@njit(cache=True, nogil=True)
def _gate(size: int, n: int) -> Any:
    """A hash below which there are `size` of n hashes almost surely, and few more."""
    share = (size + 6.0 * np.sqrt(size) + 16.0) / n
    return _LARGEST if share >= 1.0 else np.uint64(share * 2.0**64)


@njit(cache=True, nogil=True)
def _sort_by_hash(
    hashes: UInt64Array,
    rows: Int32Array,
    count: int,
    gate: Any,
    words: UInt64Array,
    ends: IntArray,
    room: UInt64Array,
) -> None:
    """Sort candidates by hash, and by content among equal hashes.

    Hashes are uniform up to the gate, so that they nearly are where they belong once each is put
    into one of `count` buckets.
    """
    scale = count / (np.float64(gate) + 1.0)
    ends[: count + 1] = 0
    for k in range(count):
        ends[min(int(np.float64(hashes[k]) * scale), count - 1) + 1] += 1
    for k in range(count):
        ends[k + 1] += ends[k]
    for k in range(count):
        bucket = min(int(np.float64(hashes[k]) * scale), count - 1)
        room[0, ends[bucket]] = hashes[k]
        room[1, ends[bucket]] = np.uint64(rows[k])
        ends[bucket] += 1
    for k in range(count):
        own, row = room[0, k], int(room[1, k])
        place = k
        while place > 0 and _later(hashes[place - 1], rows[place - 1], own, row, words):
            hashes[place], rows[place] = hashes[place - 1], rows[place - 1]
            place -= 1
        hashes[place], rows[place] = own, row


@njit(cache=True, nogil=True)
def smallest_hashes(
    streams: UInt64Array,
    keys: UInt64Array,
    train: Int32Array,
    words: UInt64Array,
    rows: Int32Array,
    hashes: UInt64Array,
) -> None:
    """For every stream the rows with the smallest ``mix(key ^ stream)``, in that order.

    Parameters
    ----------
    streams : uint64 array of shape (sets,)
    keys, train : arrays of shape (n,)
        The key of every training row, and where in `words` it is.
    words : uint64 array of shape (rows, d)
        The bits of all rows, which break ties.
    rows : int array of shape (sets, size)
        Filled in with rows of `words`; size is at most n.
    hashes : uint64 array of shape (sets, size)
        Filled in with their hashes.
    """
    size, n = rows.shape[1], len(keys)
    block = np.empty(BLOCK, np.uint64)
    # Candidates, and a block more that may all be candidates.
    room = min(n, 2 * size + 64) + BLOCK
    found, found_rows = np.empty(room, np.uint64), np.empty(room, np.int32)
    ends, sorting = np.empty(room + 1, np.int64), np.empty((2, room), np.uint64)
    for t in range(len(streams)):
        stream = streams[t]
        gate = _gate(size, n)
        count = 0
        while True:
            count = start = 0
            while start < n and count + BLOCK <= room:
                width = min(BLOCK, n - start)
                passing = 0
                for k in range(width):
                    block[k] = mix(keys[start + k] ^ stream)
                    passing += block[k] <= gate
                for k in range(width if passing else 0):  # most blocks have none if n is large
                    if block[k] <= gate:
                        found[count], found_rows[count] = block[k], train[start + k]
                        count += 1
                start += width
            if start == n and count >= size:
                break
            # Too few or too many: an accident of one in millions, or keys that are equal.
            if start == n:
                gate = _LARGEST if gate > _LARGEST >> _ONE else gate << _ONE
            room = n + BLOCK
            found, found_rows = np.empty(room, np.uint64), np.empty(room, np.int32)
            ends, sorting = np.empty(room + 1, np.int64), np.empty((2, room), np.uint64)
        _sort_by_hash(found, found_rows, count, gate, words, ends, sorting)
        for k in range(size):
            rows[t, k], hashes[t, k] = found_rows[k], found[k]


@njit(cache=True, nogil=True)
def distinct_counts(streams: UInt64Array, size: int, draws: int, out: IntArray) -> None:
    """How many of `size` positions are met by so many draws with replacement, per stream."""
    seen = np.full(size, -1, np.int64)
    for t in range(len(streams)):
        state = streams[t]
        out[t] = 0
        for _ in range(draws):
            state += GOLDEN
            position = int(uniform(state) * size)
            if seen[position] != t:
                seen[position] = t
                out[t] += 1


@njit(cache=True, nogil=True)
def entries(
    streams: UInt64Array,
    limits: UInt64Array,
    last: Int32Array,
    words: UInt64Array,
    keys: UInt64Array,
    new_words: UInt64Array,
    enters: BoolArray,
    hashes: UInt64Array,
) -> None:
    """Whether new row j comes before row ``last[t]``, whose hash is ``limits[t]``; its hash.

    A stream whose `last` is -1 takes every row.
    """
    for j in range(len(keys)):
        for t in range(len(streams)):
            own = mix(keys[j] ^ streams[t])
            hashes[j, t] = own
            before = last[t] < 0 or own < limits[t]
            if own == limits[t] and last[t] >= 0:
                before = compare(new_words, j, words, last[t]) < 0
            enters[j, t] = before
