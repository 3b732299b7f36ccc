"""Isolation by nearest-neighbour ensembles (INNE): draw centres, build spheres, add up scores.

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
import numpy.typing as npt
from numba import njit

from .random import integer_below, refusals

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Positions = npt.NDArray[np.intp]
Centres = npt.NDArray[np.uint32]

# One, in the fixed point of ratios and of their sums.
UNIT = 1 << 40

# What PyOD adds to both radii of a ratio.
_EPSILON = float(np.finfo(np.float64).eps)


@njit(cache=True, nogil=True)
def draw_samples(key: np.uint64, size: int, samples: Positions) -> None:
    """Fill every row of `samples` with positions out of ``range(size)``, without replacement.

    A stream of splitmix64 from `key` drives the first steps of a Fisher-Yates shuffle. The pool
    need not be restored between rows: whatever its order, the next sample is uniform.
    """
    sets, psi = samples.shape
    pool = np.arange(size)
    span = np.empty(psi, np.uint64)
    refused = np.empty(psi, np.uint64)
    for j in range(psi):
        span[j] = size - j
        refused[j] = refusals(span[j])
    state = key
    for t in range(sets):
        for j in range(psi):
            state, ahead = integer_below(state, span[j], refused[j])
            other = j + ahead
            pool[j], pool[other] = pool[other], pool[j]
            samples[t, j] = pool[j]


@njit(cache=True, nogil=True)
def _squared(X: Floats, a: Any, b: Any) -> float:
    squared = 0.0
    for f in range(X.shape[1]):
        gap = X[a, f] - X[b, f]
        squared += gap * gap
    return squared


@njit(cache=True, nogil=True)
def measure_pairs(X: Floats, pairs: Floats, start: int, stop: int) -> None:
    """Fill rows `start` to `stop` of the squared distances between all rows of X."""
    for a in range(start, stop):
        for b in range(len(X)):
            pairs[a, b] = _squared(X, a, b)


@njit(cache=True, nogil=True)
def build_spheres(
    X: Floats,
    pairs: Floats,
    rows: Positions,
    edges: Ints,
    radius: Floats,
    ratio: Ints,
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
def _measure(columns: Floats, table: Floats, u: Any, width: int, distance: Floats) -> None:
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
def _measure_new(
    columns: Floats,
    table: Floats,
    centre: Centres,
    first: int,
    last: int,
    width: int,
    measured: npt.NDArray[np.bool_],
    distance: Floats,
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
def _add_sets(
    distance: Floats,
    centre: Centres,
    radius: Floats,
    ratio: Ints,
    edges: Ints,
    first: int,
    last: int,
    width: int,
    value: Ints,
    total: Ints,
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
    table: Floats,
    centre: Centres,
    radius: Floats,
    ratio: Ints,
    edges: Ints,
    sets: int,
    X: Floats,
    lanes: int,
    sums: Ints,
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
            _add_sets(distance, centre, radius, ratio, edges, a, b, width, value, total)
            for i in range(width):
                sums[k, first + i] = total[i]


@njit(cache=True, nogil=True)
def chosen_sums(
    table: Floats,
    centre: Centres,
    radius: Floats,
    ratio: Ints,
    edges: Ints,
    sets: int,
    X: Floats,
    rows: Positions,
    indptr: Positions,
    models: npt.NDArray[np.int32],
    order: Positions,
    lanes: int,
    sums: Ints,
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
                missing -= _measure_new(
                    columns, table, centre, edges[a], edges[b], width, measured, distance
                )
            _add_sets(distance, centre, radius, ratio, edges, a, b, width, value, total)
            for i in range(width):
                if cursor[i] < end[i] and models[cursor[i]] == k:
                    sums[cursor[i]] = total[i]
                    cursor[i] += 1


@njit(cache=True, nogil=True)
def count_strange(
    table: Floats,
    centre: Centres,
    radius: Floats,
    ratio: Ints,
    edges: Ints,
    sets: int,
    X: Floats,
    order: Positions,
    known: Ints,
    low: Positions,
    high: Positions,
    own: Ints,
    lanes: int,
    at_least: Ints,
    above: Ints,
    start: int,
    stop: int,
) -> None:
    """Count, for models `start` to `stop`, the rows whose sum is at least, or above, ``own[k]``.

    Row ``order[p]`` of X brings ``known[p]`` along, its sum over sets that are not here; model k
    looks at ``low[k] <= p < high[k]``. Rows are taken in blocks of `lanes`, and their distances
    to a centre serve all models that have it.
    """
    distance = np.empty((table.shape[0], lanes))
    columns = np.empty((table.shape[1], lanes))
    value = np.empty(lanes, np.int64)
    total = np.empty(lanes, np.int64)
    measured = np.empty(table.shape[0], np.bool_)
    lowest, highest = order.shape[0], 0
    for k in range(start, stop):
        at_least[k] = above[k] = 0
        if low[k] < high[k]:
            lowest, highest = min(lowest, low[k]), max(highest, high[k])
    for first in range(lowest, highest, lanes):
        width = min(lanes, highest - first)
        for i in range(width):
            for f in range(X.shape[1]):
                columns[f, i] = X[order[first + i], f]
        measured[:] = False
        for k in range(start, stop):
            begin, end = max(low[k] - first, 0), min(high[k] - first, width)
            if begin >= end:
                continue
            a, b = k * sets, (k + 1) * sets
            _measure_new(columns, table, centre, edges[a], edges[b], width, measured, distance)
            _add_sets(distance, centre, radius, ratio, edges, a, b, width, value, total)
            for i in range(begin, end):
                reached = known[first + i] + total[i]
                at_least[k] += reached >= own[k]
                above[k] += reached > own[k]
