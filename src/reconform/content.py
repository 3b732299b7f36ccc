"""Draws keyed by content: which rows are drawn depends on what they hold, not on where they stand.

A row's key is a 64-bit digest of its numbers (as doubles, with one zero and one NaN) and its
occurrence number among equal rows. A draw takes the rows with the smallest hashes of seed and key.
So it is a deterministic function of the seed and of the *multiset* of rows: equal rows can stand
for each other, whichever of them has which number, and rows with equal hashes are put in order by
content. Over the seed, with the hash as a random function, it is a uniform draw without
replacement, independent of the data.

Two different rows with one digest (probability about n**2 / 2**65: 1e-8 for a million rows) meet
the same hashes everywhere, so that one of them is drawn only after the other; the draws are still
symmetric, and only their law is off.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from .arrays import BoolArray, FloatArray, IndexArray, Int32Array, IntArray, UInt64Array
from .compiled import njit
from .frames import FrameRows
from .parallel import run_blocks
from .randomness import GOLDEN, Streams, mix, mix_array, uniform

# Rows are put in order by so many columns first.
FIRST_COLUMNS = 4


# --- compiled: a place in an array decides nothing, equal hashes are put in order by content ---

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
    start_stream: int,
    stop_stream: int,
) -> None:
    """For some streams the rows with the smallest ``mix(key ^ stream)``, in that order.

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
    for t in range(start_stream, stop_stream):
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


# --- rows ---


@dataclass(frozen=True, eq=False)
class Contents:
    """Rows, their digests, and which of them are equal.

    Attributes
    ----------
    words : uint64 array of shape (n, d)
        The rows' doubles, as words.
    digests : uint64 array of shape (n,)
    group : int array of shape (n,)
        The number of a row's content: equal for equal rows.
    count : int
        Different contents.

    Examples
    --------
    >>> import numpy as np
    >>> contents = Contents.of(np.array([[0.0, 1.0], [2.0, 3.0], [-0.0, 1.0]]))
    >>> contents.count, bool(contents.group[0] == contents.group[2])
    (2, True)
    """

    words: UInt64Array
    digests: UInt64Array
    group: IntArray
    count: int

    @classmethod
    def of(cls, X: FloatArray, *, n_jobs: int | None = 1) -> Contents:
        """Digest rows, and find equal ones; what `remembering` knows is not found out again."""
        known = _KNOWN.get()
        if known is not None and known[0] is X:
            return known[1]
        words, digests = digests_of(X, n_jobs=n_jobs)
        ordered = np.sort(digests)
        if (ordered[1:] != ordered[:-1]).all():  # all rows are different, as numbers mostly are
            return cls(words, digests, np.arange(len(X), dtype=np.int64), len(X))
        group = np.empty(len(X), dtype=np.int64)
        count = int(number_contents(words, digests, np.argsort(digests), group))
        return cls(words, digests, group, count)

    def __len__(self) -> int:
        return len(self.digests)

    def keys(self, train: npt.NDArray[np.integer] | None = None) -> UInt64Array:
        """Keys of the rows of a multiset, all rows by default; equal rows are numbered within it.

        Examples
        --------
        >>> import numpy as np
        >>> contents = Contents.of(np.array([[1.0], [2.0], [1.0]]))
        >>> a, b = contents.keys(np.array([0, 1])), contents.keys(np.array([1, 2]))
        >>> set(a.tolist()) == set(b.tolist())
        True
        """
        if train is None and self.count == len(self):
            return mix_array(self.digests)  # every row is the first of its kind
        rows = np.arange(len(self), dtype=np.int32) if train is None else train.astype(np.int32)
        keys = np.empty(len(rows), dtype=np.uint64)
        multiset_keys(self.digests, self.group, rows, self.count, keys)
        return keys

    def keys_of_new(self, X: FloatArray) -> tuple[UInt64Array, UInt64Array]:
        """Words and keys of rows that join these rows, each by itself."""
        words, digests = digests_of(X)
        occurrence = np.empty(len(X), dtype=np.int64)
        count_equal(words, digests, self.words, *self._by_digest, occurrence)
        # As `key_of`.
        return words, mix_array(digests ^ (occurrence.astype(np.uint64) * GOLDEN))

    @cached_property
    def first(self) -> Int32Array:
        """For every row the first equal row, which may stand for it."""
        if self.count == len(self):
            return np.arange(len(self), dtype=np.int32)
        first = np.empty(self.count, dtype=np.int32)
        first[self.group[::-1]] = np.arange(len(self), dtype=np.int32)[::-1]
        return first[self.group]

    @cached_property
    def last(self) -> IndexArray:
        """For every row the equal row with the largest occurrence number.

        The multiset without row i is the one without that row: equal rows have one model.
        """
        if self.count == len(self):
            return np.arange(len(self))
        last = np.empty(self.count, dtype=np.intp)
        last[self.group] = np.arange(len(self))  # the last assignment stays
        return last[self.group]

    @cached_property
    def _by_digest(self) -> tuple[UInt64Array, IndexArray]:
        order = np.argsort(self.digests)
        return self.digests[order], order


_KNOWN: ContextVar[tuple[Any, Contents] | None] = ContextVar("known contents", default=None)


@contextmanager
def remembering(X: Any, contents: Contents) -> Iterator[None]:
    """Let `Contents.of` this very array be known inside: several detectors are fitted on it.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0], [2.0]])
    >>> contents = Contents.of(X)
    >>> with remembering(X, contents):
    ...     Contents.of(X) is contents, Contents.of(X.copy()) is contents
    (True, False)
    """
    token = _KNOWN.set((X, contents))
    try:
        yield
    finally:
        _KNOWN.reset(token)


def digests_of(X: FloatArray, *, n_jobs: int | None = 1) -> tuple[UInt64Array, UInt64Array]:
    """Words and digests of rows."""
    words = np.ascontiguousarray(X, dtype=np.float64).view(np.uint64)
    digests = np.empty(len(words), dtype=np.uint64)
    run_blocks(partial(digest_rows, words, digests), len(words), n_jobs=n_jobs, work=words.size)
    return words, digests


def hashes_of(keys: UInt64Array, seed: np.random.SeedSequence) -> UInt64Array:
    """Hashes of rows, from their keys: what `canonical_order` and `first_rows` go by."""
    return mix_array(keys ^ seed.generate_state(1, np.uint64)[0])


@dataclass(frozen=True, eq=False)
class Drawn:
    """For every stream the rows with the smallest hashes, in their order.

    Attributes
    ----------
    rows : int array of shape (sets, size)
    hashes : uint64 array of shape (sets, size)
    """

    rows: Int32Array
    hashes: UInt64Array


def draw_rows(
    contents: Contents,
    streams: UInt64Array,
    size: int,
    train: npt.NDArray[np.integer] | None = None,
    *,
    n_jobs: int | None = 1,
) -> Drawn:
    """Draw `size` rows of a multiset for every stream, without replacement.

    Parameters
    ----------
    contents : Contents
    streams : uint64 array of shape (sets,)
    size : int
        At most the number of rows.
    train : int array, optional
        The multiset, as rows of `contents`; by default every row once.
    n_jobs : int, optional
        Threads.

    Returns
    -------
    Drawn

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(10.0)[:, None]
    >>> streams = np.array([1, 2], dtype=np.uint64)
    >>> here = draw_rows(Contents.of(X), streams, 3).rows
    >>> there = draw_rows(Contents.of(X[::-1]), streams, 3).rows
    >>> bool((X[here] == X[::-1][there]).all())
    True
    """
    rows = np.arange(len(contents), dtype=np.int32) if train is None else train.astype(np.int32)
    drawn = np.empty((len(streams), size), dtype=np.int32)
    hashes = np.empty((len(streams), size), dtype=np.uint64)
    kernel = partial(
        smallest_hashes, streams, contents.keys(train), rows, contents.words, drawn, hashes
    )
    run_blocks(kernel, len(streams), n_jobs=n_jobs, work=len(streams) * len(rows))
    return Drawn(drawn, hashes)


def canonical_order(contents: Contents, seed: np.random.SeedSequence) -> IndexArray:
    """All rows in the order of their hashes: a random order that only the multiset decides.

    What draws positions (folds, splits, bootstrap samples) draws them out of this order.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(10.0)[:, None]
    >>> seed = np.random.SeedSequence(0)
    >>> here = canonical_order(Contents.of(X), seed)
    >>> there = canonical_order(Contents.of(X[::-1]), seed)
    >>> bool((X[here] == X[::-1][there]).all())
    True
    """
    hashes = hashes_of(contents.keys(), seed)
    order = np.argsort(hashes, kind="stable")
    tied = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    if len(tied):  # two contents with one digest, or an accident of 64 bits: order by content
        by_content = np.lexsort((*canonical_words(contents.words).T[::-1], hashes))
        return np.asarray(by_content, dtype=np.intp)
    return np.asarray(order, dtype=np.intp)


def first_rows(contents: Contents, seed: np.random.SeedSequence, most: int) -> IndexArray:
    """The first rows of `canonical_order`, without sorting all of them.

    Examples
    --------
    >>> import numpy as np
    >>> contents = Contents.of(np.arange(50.0)[:, None])
    >>> seed = np.random.SeedSequence(0)
    >>> bool((first_rows(contents, seed, 7) == canonical_order(contents, seed)[:7]).all())
    True
    """
    if len(contents) <= most:
        return canonical_order(contents, seed)
    stream = np.asarray(seed.generate_state(1, np.uint64), dtype=np.uint64)
    return np.asarray(draw_rows(contents, stream, most).rows[0], dtype=np.intp)


class RowStreams(Streams):
    """A stream of randomness per row, keyed by its content, and a last one for A(D).

    For leave-one-out models with draws of their own: model i has stream i, wherever row i stands.
    Equal rows have one stream, hence one model.

    Parameters
    ----------
    seed : SeedSequence
    contents : Contents

    Examples
    --------
    >>> import numpy as np
    >>> seed = np.random.SeedSequence(0)
    >>> here = RowStreams(seed, Contents.of(np.array([[1.0], [2.0]])))
    >>> there = RowStreams(seed, Contents.of(np.array([[2.0], [1.0]])))
    >>> here[0].spawn_key == there[1].spawn_key, len(here)
    (True, 3)
    """

    def __init__(self, seed: np.random.SeedSequence, contents: Contents) -> None:
        super().__init__(seed, len(contents) + 1)
        self._digests = contents.digests

    def _key(self, k: int) -> tuple[int, ...]:
        # A row's part of the key has two words, that of A(D) one: they never meet.
        if k == len(self._digests):
            return (0,)
        word = int(self._digests[k])
        return word >> 32, word & 0xFFFFFFFF


def sorted_by_content(X: Any) -> tuple[Any, IndexArray]:
    """Rows in the order of their contents, the first column first, and that order.

    A detector that is given rows in this order is a function of their multiset, whatever it does.
    Zeros lose their sign, so that rows that compare equal are equal. `FrameRows` stay what they
    are, in the order of their numbers.

    Examples
    --------
    >>> import numpy as np
    >>> rows, order = sorted_by_content(np.array([[2.0, 0.0], [1.0, 5.0], [1.0, 3.0]]))
    >>> order
    array([2, 1, 0])
    """
    rows = np.asarray(X) + 0.0
    order = _lexical_order(rows)
    return (X if isinstance(X, FrameRows) else rows)[order], order


def _lexical_order(rows: FloatArray) -> IndexArray:
    """Sort rows, the first column first: ``np.lexsort(rows.T[::-1])``.

    The first columns nearly always decide. Only rows that are equal in them are sorted by more.
    """
    width = FIRST_COLUMNS
    order = np.lexsort(rows[:, :width].T[::-1]) if rows.shape[1] else np.arange(len(rows))
    run = np.zeros(len(rows), dtype=np.intp)  # rows that are equal so far, by their place in order
    first = 0
    while len(rows) > 1 and width < rows.shape[1]:
        here = rows[order, first:width]
        above, below = here[:-1], here[1:]
        equal = (above == below) | (np.isnan(above) & np.isnan(below))  # lexsort: a NaN is last
        new = np.ones(len(rows), dtype=bool)
        new[1:] = ~equal.all(axis=1) | (run[1:] != run[:-1])
        if new.all():
            break
        run = np.cumsum(new)
        alone = new & np.append(new[1:], True)
        places = np.flatnonzero(~alone)
        first, width = width, 4 * width
        some = order[places]
        again = np.lexsort((*rows[some, first:width].T[::-1], run[places]))
        order[places] = some[again]
    return np.asarray(order, dtype=np.intp)


def scores_by_content(X: FloatArray, order: IndexArray, scores: FloatArray) -> FloatArray:
    """Scores of training rows that stand in `order`, for X as it is; equal rows score alike.

    A detector may tell equal training rows apart, by their place or by ties among neighbours.
    All of them get their least score, so that it does not matter which of them is new.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0], [0.0], [1.0]])
    >>> scores_by_content(X, np.array([1, 0, 2]), np.array([0.5, 0.1, 0.2]))
    array([0.1, 0.5, 0.1])
    """
    back = np.empty(len(X))
    back[order] = scores
    contents = Contents.of(X)
    if contents.count < len(X):
        least = np.full(contents.count, np.inf)
        np.minimum.at(least, contents.group, back)
        back = least[contents.group]
    return back


def canonical_words(words: UInt64Array) -> UInt64Array:
    """Words with one zero and one NaN."""
    values = words.view(np.float64) + 0.0
    values[np.isnan(values)] = np.nan
    return values.view(np.uint64)
