"""Isolation by nearest-neighbour ensembles (INNE): build spheres, add up scores.

A *set* is a few spheres around rows of D; a *model* is `sets` consecutive sets. The spheres of
set t are ``edges[t]:edges[t + 1]`` of flat arrays: `centre`, a row of the `table` of all distinct
centres; `radius`, the squared distance to the nearest other centre; `ratio`, in units of
``1 / UNIT``. They stand by decreasing radius, so that the last one that covers a row is the
smallest.

Every squared distance is the plain sum over the features in their order, so the same two rows
are equally far apart whichever kernel asks. Ratios are integers, so sums do not depend on the
order of their terms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import (
    BoolArray,
    FloatArray,
    IndexArray,
    Int32Array,
    IntArray,
    UInt32Array,
    UInt64Array,
)
from ...compiled import njit
from ...content.kernels import compare
from ...statistics.kernels import count_up_to

# One, in the fixed point of ratios and of their sums.
UNIT = 1 << 40

# What PyOD adds to both radii of a ratio.
_EPSILON = float(np.finfo(np.float64).eps)


@njit(cache=True, nogil=True)
def _squared(X: FloatArray, a: Any, b: Any) -> float:
    squared = 0.0
    for f in range(X.shape[1]):
        gap = X[a, f] - X[b, f]
        squared += gap * gap
    return squared


@njit(cache=True, nogil=True)
def measure_pairs(
    X: FloatArray, columns: FloatArray, pairs: FloatArray, start: int, stop: int
) -> None:
    """Fill rows `start` to `stop` of the squared distances between all rows of X.

    `columns` are those of X: one pair after the other would wait for each addition of its sum.
    """
    for a in range(start, stop):
        to = pairs[a]
        to[:] = 0.0
        for f in range(X.shape[1]):
            at, column = X[a, f], columns[f]
            for b in range(len(X)):
                gap = column[b] - at
                to[b] += gap * gap


@njit(cache=True, nogil=True)
def build_spheres(
    X: FloatArray,
    pairs: FloatArray,
    rows: IndexArray,
    edges: IntArray,
    radius: FloatArray,
    ratio: IntArray,
    start: int,
    stop: int,
) -> None:
    """Build sets `start` to `stop` around `rows` of X, and order each by decreasing radius.

    `pairs` has what `measure_pairs` made, or nothing. Among equal radii the first drawn stands
    last: PyOD takes the first of the smallest.
    """
    known = len(pairs) > 0
    widest = 0
    for t in range(start, stop):
        widest = max(widest, edges[t + 1] - edges[t])
    own = np.empty(widest)
    nearest = np.empty(widest, np.int64)
    drawn = np.empty(widest, np.int64)
    order = np.empty(widest, np.int64)
    for t in range(start, stop):
        first = edges[t]
        size = edges[t + 1] - first
        for a in range(size):
            drawn[a] = rows[first + a]
            own[a] = np.inf
            nearest[a] = -1
        # Pairs in this order show every centre the others as they were drawn, so the first of
        # equally near ones is kept.
        for a in range(size):
            for b in range(a + 1, size):
                left, right = drawn[a], drawn[b]
                squared = pairs[left, right] if known else _squared(X, left, right)
                if squared < own[a]:
                    own[a], nearest[a] = squared, b
                if squared < own[b]:
                    own[b], nearest[b] = squared, a
        for a in range(size):
            place = a
            while place > 0 and own[order[place - 1]] <= own[a]:
                order[place] = order[place - 1]
                place -= 1
            order[place] = a
        for place in range(size):
            a = order[place]
            rows[first + place] = drawn[a]
            radius[first + place] = own[a]
            # A centre with no other at a finite distance is isolated; PyOD divides inf by inf.
            share = 0.0
            if nearest[a] >= 0:
                share = (own[nearest[a]] + _EPSILON) / (own[a] + _EPSILON)
            ratio[first + place] = np.int64((1.0 - share) * UNIT + 0.5)


@njit(cache=True, nogil=True)
def _measure(
    columns: FloatArray, table: FloatArray, u: Any, width: int, distance: FloatArray
) -> None:
    """Squared distances from centre `u` to a block of rows (`columns`, features first)."""
    to = distance[u]
    for i in range(width):
        to[i] = 0.0
    for f in range(table.shape[1]):
        at, column = table[u, f], columns[f]
        for i in range(width):
            gap = column[i] - at
            to[i] += gap * gap


@njit(cache=True, nogil=True)
def measure_new(
    columns: FloatArray,
    table: FloatArray,
    centre: UInt32Array,
    first: int,
    last: int,
    width: int,
    measured: BoolArray,
    distance: FloatArray,
) -> int:
    """Measure the centres of spheres `first` to `last` that were not yet; return how many."""
    count = 0
    for c in range(first, last):
        u = centre[c]
        if not measured[u]:
            _measure(columns, table, u, width, distance)
            measured[u] = True
            count += 1
    return count


@njit(cache=True, nogil=True)
def add_sets(
    distance: FloatArray,
    centre: UInt32Array,
    radius: FloatArray,
    ratio: IntArray,
    edges: IntArray,
    first: int,
    last: int,
    width: int,
    value: IntArray,
    total: IntArray,
) -> None:
    """Sum over sets `first` to `last`: for each row of the block, the smallest sphere's ratio.

    The inner loops run over the rows of the block and do not branch, so they become vector code.
    """
    for i in range(width):
        total[i] = 0
    for t in range(first, last):
        for i in range(width):
            value[i] = UNIT
        for c in range(edges[t], edges[t + 1]):
            to, reach, own = distance[centre[c]], radius[c], ratio[c]
            for i in range(width):
                value[i] = own if to[i] <= reach else value[i]
        for i in range(width):
            total[i] += value[i]


@njit(cache=True, nogil=True)
def all_sums(
    table: FloatArray,
    centre: UInt32Array,
    radius: FloatArray,
    ratio: IntArray,
    edges: IntArray,
    sets: int,
    X: FloatArray,
    lanes: int,
    sums: IntArray,
    start: int,
    stop: int,
) -> None:
    """Sum for every model, into ``sums[model, row]``, over blocks `start` to `stop` of X.

    A block is `lanes` rows. Its distances to all centres are measured once; every set of every
    model only reads them.
    """
    distance = np.empty((table.shape[0], lanes))
    columns = np.empty((table.shape[1], lanes))
    value = np.empty(lanes, np.int64)
    total = np.empty(lanes, np.int64)
    for block in range(start, stop):
        first = block * lanes
        width = min(lanes, X.shape[0] - first)
        for i in range(width):
            for f in range(X.shape[1]):
                columns[f, i] = X[first + i, f]
        for u in range(table.shape[0]):
            _measure(columns, table, u, width, distance)
        for k in range(sums.shape[0]):
            a, b = k * sets, (k + 1) * sets
            add_sets(distance, centre, radius, ratio, edges, a, b, width, value, total)
            for i in range(width):
                sums[k, first + i] = total[i]


@njit(cache=True, nogil=True)
def chosen_sums(
    table: FloatArray,
    centre: UInt32Array,
    radius: FloatArray,
    ratio: IntArray,
    edges: IntArray,
    sets: int,
    X: FloatArray,
    rows: IndexArray,
    indptr: IndexArray,
    models: Int32Array,
    order: IndexArray,
    lanes: int,
    sums: IntArray,
    start: int,
    stop: int,
) -> None:
    """Sum for chosen models: row ``rows[j]`` of X under ``models[indptr[j]:indptr[j + 1]]``.

    `models` increase within a row, and `sums` stand beside them. The j are taken in `order`, in
    blocks of `lanes`. A model that no row of a block asks for is passed over, and distances are
    measured when the first model needs them.
    """
    distance = np.empty((table.shape[0], lanes))
    columns = np.empty((table.shape[1], lanes))
    value = np.empty(lanes, np.int64)
    total = np.empty(lanes, np.int64)
    cursor = np.empty(lanes, np.int64)
    end = np.empty(lanes, np.int64)
    measured = np.empty(table.shape[0], np.bool_)
    for block in range(start, stop):
        first = block * lanes
        width = min(lanes, order.shape[0] - first)
        for i in range(width):
            j = order[first + i]
            cursor[i], end[i] = indptr[j], indptr[j + 1]
            for f in range(X.shape[1]):
                columns[f, i] = X[rows[j], f]
        measured[:] = False
        missing = table.shape[0]
        while True:
            k = -1
            for i in range(width):
                if cursor[i] < end[i] and (k < 0 or models[cursor[i]] < k):
                    k = models[cursor[i]]
            if k < 0:
                break
            a, b = k * sets, (k + 1) * sets
            if missing > 0:
                missing -= measure_new(
                    columns, table, centre, edges[a], edges[b], width, measured, distance
                )
            add_sets(distance, centre, radius, ratio, edges, a, b, width, value, total)
            for i in range(width):
                if cursor[i] < end[i] and models[cursor[i]] == k:
                    sums[cursor[i]] = total[i]
                    cursor[i] += 1


@njit(cache=True, nogil=True)
def _value(
    X: FloatArray,
    i: int,
    table: FloatArray,
    centre: IntArray,
    radius: FloatArray,
    ratio: IntArray,
    a: int,
    b: int,
) -> Any:
    """Ratio of the smallest of spheres a to b that covers row i of X, or one."""
    for c in range(b - 1, a - 1, -1):  # by decreasing radius
        squared = 0.0
        for f in range(X.shape[1]):
            gap = X[i, f] - table[centre[c], f]
            squared += gap * gap
        if squared <= radius[c]:
            return ratio[c]
    return UNIT


@njit(cache=True, nogil=True)
def _enter(
    words: UInt64Array,
    drawn: Int32Array,
    hashes: UInt64Array,
    new_words: UInt64Array,
    new_hashes: UInt64Array,
    j: int,
    t: int,
    centres: IndexArray,
) -> None:
    """Insert new row j into base set t by its hash; the rows that find no room drop out.

    In `centres` the new row is number ``len(words) + j``.
    """
    k = 0
    placed = False
    for place in range(len(centres)):
        mine = False
        if not placed:
            mine = k >= drawn.shape[1] or new_hashes[j, t] < hashes[t, k]
            if not mine and new_hashes[j, t] == hashes[t, k]:
                mine = compare(new_words, j, words, drawn[t, k]) < 0
        centres[place] = len(words) + j if mine else drawn[t, k]
        placed = placed or mine
        k += 0 if mine else 1


@njit(cache=True, nogil=True)
def enter_sets(
    words: UInt64Array,
    drawn: Int32Array,
    hashes: UInt64Array,
    new_words: UInt64Array,
    new_hashes: UInt64Array,
    entering: IntArray,
    sets: IntArray,
    centres: IndexArray,
) -> None:
    """Find the centres of base sets ``sets[k]`` that new rows ``entering[k]`` enter.

    Parameters
    ----------
    words, drawn, hashes, new_words, new_hashes
        As in `count_entered`.
    entering, sets : int arrays of shape (pairs,)
    centres : int array of shape (pairs, psi)
        Filled in with rows by increasing hash: of the reference, or new ones, which count from n.
    """
    for k in range(len(sets)):
        _enter(words, drawn, hashes, new_words, new_hashes, entering[k], sets[k], centres[k])


@njit(cache=True, nogil=True)
def count_entered(
    reference: FloatArray,
    words: UInt64Array,
    order: IntArray,
    sums: IntArray,
    drawn: Int32Array,
    hashes: UInt64Array,
    psi: int,
    table: FloatArray,
    centre: IntArray,
    radius: FloatArray,
    ratio: IntArray,
    edges: IntArray,
    X: FloatArray,
    new_words: UInt64Array,
    enters: BoolArray,
    new_hashes: UInt64Array,
    own: IntArray,
    at_least: IntArray,
    above: IntArray,
) -> None:
    """Count for every new row the reference rows whose sum is at least, or above, its own.

    The sums are those of a model on the reference and the new row: the base sets, but for those
    that it enters.

    Parameters
    ----------
    reference, words : arrays of shape (n, d)
    order, sums : int arrays of shape (n,)
        Reference rows by increasing sum over the base sets, and these sums.
    drawn, hashes : arrays of shape (sets, size)
        Base sets: rows by increasing hash.
    psi : int
        Centres of a set that the new row enters.
    table, centre, radius, ratio, edges
        The base sets, as `Spheres`.
    X, new_words : arrays of shape (m, d)
    enters, new_hashes : arrays of shape (m, sets)
    own : int array of shape (m,)
        Sums of the new rows over the base sets; over their own sets afterwards.
    at_least, above : int arrays of shape (m,)
        Filled in.
    """
    d = X.shape[1]
    most = 0
    for j in range(len(X)):
        most = max(most, enters[j].sum())
    centres = np.empty(psi, np.int64)
    points = np.empty((max(1, most) * psi, d))
    spheres = np.empty(max(1, most) * psi, np.int64)
    reach, share = np.empty(len(spheres)), np.empty(len(spheres), np.int64)
    each = np.arange(max(1, most) + 1) * psi
    unknown = np.empty((0, 0))  # no pairs are measured beforehand
    for j in range(len(X)):
        count = 0
        for t in range(enters.shape[1]):
            if not enters[j, t]:
                continue
            _enter(words, drawn, hashes, new_words, new_hashes, j, t, centres)
            for place in range(psi):
                at, row = count * psi + place, centres[place]
                spheres[at] = at
                for f in range(d):
                    points[at, f] = reference[row, f] if row < len(reference) else X[j, f]
            own[j] -= _value(X, j, table, centre, radius, ratio, edges[t], edges[t + 1])
            count += 1
        build_spheres(points, unknown, spheres, each, reach, share, 0, count)
        for e in range(count):
            own[j] += _value(X, j, points, spheres, reach, share, each[e], each[e + 1])
        # A set adds or takes at most UNIT: rows further away cannot change their side.
        low = count_up_to(sums, own[j] - count * UNIT, strictly=True)
        high = count_up_to(sums, own[j] + count * UNIT + 1, strictly=True)
        at_least[j] = above[j] = len(sums) - high
        for p in range(low, high):
            i = order[p]
            total = sums[p]
            e = 0
            for t in range(enters.shape[1]):
                if enters[j, t]:
                    a, b = edges[t], edges[t + 1]
                    total -= _value(reference, i, table, centre, radius, ratio, a, b)
                    total += _value(
                        reference, i, points, spheres, reach, share, each[e], each[e + 1]
                    )
                    e += 1
            at_least[j] += total >= own[j]
            above[j] += total > own[j]
