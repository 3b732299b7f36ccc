"""Samples of rows that checks look at: enough to see what matters, few enough to cost nothing."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from ..arrays import FloatArray, IndexArray, UInt64Array
from ..content import Contents, first_rows, hashes_of
from ..randomness import GOLDEN, mix_array

MOST_REFERENCE = 2_000
MOST_NEW = 3_000

# The draws have nothing to do with those of a method, whatever its seed is.
_REFERENCE, _NEW = (np.random.SeedSequence([0x5A3B, purpose]) for purpose in (0, 1))


def reference_positions(contents: Contents) -> IndexArray:
    """Draw the reference rows that new rows are compared with, by content; at most 2,000.

    Examples
    --------
    >>> X = np.arange(9.0)[:, None]
    >>> here, there = (reference_positions(Contents.of(rows)) for rows in (X, X[::-1]))
    >>> bool((X[here] == X[::-1][there]).all())
    True
    """
    return first_rows(contents, _REFERENCE, MOST_REFERENCE)


@dataclass(frozen=True)
class Occurrences:
    """How often rows occur twice.

    Attributes
    ----------
    rows, twins : int
        Rows, and those of them that have a copy.
    contents, repeated : int
        Different rows, and those of them that occur more than once.
    """

    rows: int
    twins: int
    contents: int
    repeated: int

    @classmethod
    def of(cls, times: Mapping[Hashable, int]) -> Self:
        """Count them: `times` says how often every different row occurs.

        Examples
        --------
        >>> Occurrences.of({"a": 3, "b": 1})
        Occurrences(rows=4, twins=3, contents=2, repeated=1)
        """
        several = [count for count in times.values() if count > 1]
        return cls(sum(times.values()), sum(several), len(times), len(several))


@dataclass(frozen=True)
class LookedUp:
    """Rows whose copies in a reference of any size are all in its sample.

    The sample has the rows with the smallest hashes. A row whose own hash is not larger is in it,
    if it is in the reference at all: of such a new row one knows whether it is a copy.

    Attributes
    ----------
    limit : int
        The largest hash in the sample.
    occurrences : Occurrences
        Of all reference rows whose content has no larger hash.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(50_000.0)[:, None]
    >>> contents = Contents.of(X)
    >>> known = LookedUp.of(contents, reference_positions(contents))
    >>> known.occurrences
    Occurrences(rows=2000, twins=0, contents=2000, repeated=0)
    >>> new = Contents.of(X[:20_000] + 40_000).digests  # half of them are copies
    >>> told = np.isin(known.among(new), contents.digests)
    >>> len(told), int(told.sum())
    (766, 363)
    """

    limit: int
    occurrences: Occurrences

    @classmethod
    def of(cls, contents: Contents, sampled: IndexArray) -> Self | None:
        """Look at the sample of a reference; None where that has all of its rows."""
        if len(sampled) == len(contents):
            return None
        limit = int(hashes_of(contents.keys()[sampled[-1:]], _REFERENCE)[0])
        inside = _first_hashes(contents.digests[sampled]) <= np.uint64(limit)
        groups = np.unique(contents.group[sampled[inside]])
        times = np.ones(len(groups), dtype=np.int64)
        if contents.count < len(contents):
            times = np.bincount(contents.group, minlength=contents.count)[groups]
        return cls(limit, Occurrences.of(dict(enumerate(times.tolist()))))

    def among(self, digests: UInt64Array) -> UInt64Array:
        """Those of the digests whose copies in the reference are known."""
        return np.asarray(digests[_first_hashes(digests) <= np.uint64(self.limit)])


def _first_hashes(digests: UInt64Array) -> UInt64Array:
    """Hashes of rows that are the first of their content."""
    return hashes_of(mix_array(digests), _REFERENCE)


def new_rows(X: FloatArray) -> IndexArray:
    """Say which new rows are looked at; at most 3,000."""
    return first_rows(Contents.of(X), _NEW, MOST_NEW)


def drawn_rows(X: FloatArray, seed: int, most: int) -> IndexArray:
    """Draw rows for a person to look at; return positions, in the order of the draw.

    It depends on the seed and on what rows hold, and so on nothing that is said of them.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(50.0)[:, None] % 7  # with copies
    >>> here, turned = drawn_rows(X, 1, 5), drawn_rows(X[::-1], 1, 5)
    >>> bool((X[here] == X[::-1][turned]).all())
    True
    """
    return drawn_digests(Contents.of(X).digests, seed, most)


def drawn_digests(digests: UInt64Array, seed: int, most: int) -> IndexArray:
    """As `drawn_rows`, of the digests of all rows; those of one content are numbered."""
    order = np.argsort(digests, kind="stable")
    sorted_ = digests[order]
    starts = np.r_[True, sorted_[1:] != sorted_[:-1]]
    place = np.arange(len(digests))
    occurrence = place - np.maximum.accumulate(np.where(starts, place, 0))
    keys = np.empty_like(digests)
    keys[order] = mix_array(sorted_ ^ (occurrence.astype(np.uint64) * GOLDEN))
    hashes = hashes_of(keys, np.random.SeedSequence([0x5A3B, 2, seed]))
    return np.argsort(hashes, kind="stable")[:most]


def alike_in_groups(
    reference: FloatArray, theirs: IndexArray, new: FloatArray, groups: IndexArray
) -> tuple[FloatArray, FloatArray]:
    """Of two samples, take equally many rows of every group: all of the scarcer one.

    Where rows are ranked within groups, nothing is assumed of how often a group occurs, and a
    check must not mistake a change of that for a change of the rows.

    Parameters
    ----------
    reference, new : float arrays
    theirs, groups : int arrays
        The groups of both.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(6.0)[:, None]
    >>> alike_in_groups(X, np.array([0, 0, 0, 0, 1, 1]), X[:3], np.array([0, 1, 1]))
    (array([[0.],
           [4.],
           [5.]]), array([[0.],
           [1.],
           [2.]]))
    """
    ours, others = [], []
    for group in np.unique(theirs):
        old, now = np.flatnonzero(theirs == group), np.flatnonzero(groups == group)
        both = min(len(old), len(now))
        ours.append(old[:both])
        others.append(now[:both])
    return reference[np.concatenate(ours)], new[np.concatenate(others)]


class Reservoir:
    """A sample of rows that come in batches, each row with the same chance.

    Every row has a random number, by its place in the file; those with the smallest stay.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Reservoir()
    >>> for batch in np.split(np.arange(12_000.0)[:, None], 4):
    ...     rows.add(batch)
    >>> rows.rows.shape, rows.seen
    ((3000, 1), 12000)
    """

    def __init__(self, most: int = MOST_NEW) -> None:
        self.most = most
        self.seen = 0
        self._random = np.random.default_rng(_NEW)
        self._keys = np.empty(0)
        self.rows: FloatArray | None = None  # the sample; None if nothing was shown

    def add(self, X: FloatArray) -> None:
        """Show a batch."""
        keys = self._random.random(len(X))
        self.seen += len(X)
        if self.rows is not None and len(self._keys) == self.most:
            near = keys < self._keys.max()
            keys, X = keys[near], X[near]
        keys = np.concatenate([self._keys, keys])
        rows = np.array(X) if self.rows is None else np.concatenate([self.rows, X])
        if len(keys) > self.most:
            keep = np.sort(np.argpartition(keys, self.most - 1)[: self.most])
            keys, rows = keys[keep], rows[keep]
        self._keys, self.rows = keys, rows
