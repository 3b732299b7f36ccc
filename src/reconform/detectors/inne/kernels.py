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

from typing import Any, NamedTuple

import numpy as np

from ...arrays import FloatArray, IndexArray, Int32Array, IntArray, UInt32Array, UInt64Array
from ...compiled import njit
from ...content import compare

# One, in the fixed point of ratios and of their sums.
UNIT = 1 << 40

# What PyOD adds to both radii of a ratio.
_EPSILON = float(np.finfo(np.float64).eps)


class Sets(NamedTuple):
    """The spheres of models, `sets` sets each; see above."""

    table: FloatArray
    centre: UInt32Array
    radius: FloatArray
    ratio: IntArray
    edges: IntArray
    sets: int


class BlockOfRows(NamedTuple):
    """A block of rows, feature by feature, its distances to all centres, and room for its sums."""

    columns: FloatArray
    distance: FloatArray
    value: IntArray
    total: IntArray


@njit(cache=True, nogil=True)
def _room(spheres: Sets, lanes: int) -> Any:
    """Room for blocks of so many rows."""
    centres, d = spheres.table.shape
    value, total = np.empty(lanes, np.int64), np.empty(lanes, np.int64)
    return BlockOfRows(np.empty((d, lanes)), np.empty((centres, lanes)), value, total)


@njit(cache=True, nogil=True)
def _squared(X: FloatArray, a: Any, b: Any) -> float:
    squared = 0.0
    for f in range(X.shape[1]):
        gap = X[a, f] - X[b, f]
        squared += gap * gap
    return squared


@njit(cache=True, nogil=True)
def build_spheres(
    X: FloatArray,
    rows: IndexArray,
    edges: IntArray,
    radius: FloatArray,
    ratio: IntArray,
    start: int,
    stop: int,
) -> None:
    """Build sets `start` to `stop` around `rows` of X, and order each by decreasing radius.

    Among equal radii the first drawn stands last: PyOD takes the first of the smallest.
    """
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
                squared = _squared(X, drawn[a], drawn[b])
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
def _measure(spheres: Sets, room: BlockOfRows, width: int) -> None:
    """Squared distances from all centres to a block of rows."""
    table, columns, distance = spheres.table, room.columns, room.distance
    for u in range(len(table)):
        to = distance[u]
        for i in range(width):
            to[i] = 0.0
        for f in range(table.shape[1]):
            at, column = table[u, f], columns[f]
            for i in range(width):
                gap = column[i] - at
                to[i] += gap * gap


@njit(cache=True, nogil=True)
def _add_model(spheres: Sets, room: BlockOfRows, k: int, width: int) -> None:
    """Sum over the sets of model k: for each row of the block, the smallest sphere's ratio.

    The inner loops run over the rows of the block and do not branch, so they become vector code.
    """
    centre, radius, ratio, edges = spheres.centre, spheres.radius, spheres.ratio, spheres.edges
    distance, value, total = room.distance, room.value, room.total
    for i in range(width):
        total[i] = 0
    for t in range(k * spheres.sets, (k + 1) * spheres.sets):
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
    spheres: Sets, X: FloatArray, lanes: int, sums: IntArray, start: int, stop: int
) -> None:
    """Sum for every model, into ``sums[model, row]``, over blocks `start` to `stop` of X.

    A block is `lanes` rows. Its distances to all centres are measured once; every set of every
    model only reads them.
    """
    room = _room(spheres, lanes)
    for block in range(start, stop):
        first = block * lanes
        width = min(lanes, X.shape[0] - first)
        for i in range(width):
            for f in range(X.shape[1]):
                room.columns[f, i] = X[first + i, f]
        _measure(spheres, room, width)
        for k in range(sums.shape[0]):
            _add_model(spheres, room, k, width)
            for i in range(width):
                sums[k, first + i] = room.total[i]


@njit(cache=True, nogil=True)
def chosen_sums(
    spheres: Sets,
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
    blocks of `lanes`. A model that no row of a block asks for is passed over.
    """
    room = _room(spheres, lanes)
    cursor, end = np.empty(lanes, np.int64), np.empty(lanes, np.int64)
    for block in range(start, stop):
        first = block * lanes
        width = min(lanes, order.shape[0] - first)
        for i in range(width):
            j = order[first + i]
            cursor[i], end[i] = indptr[j], indptr[j + 1]
            for f in range(X.shape[1]):
                room.columns[f, i] = X[rows[j], f]
        _measure(spheres, room, width)
        while True:
            k = -1
            for i in range(width):
                if cursor[i] < end[i] and (k < 0 or models[cursor[i]] < k):
                    k = models[cursor[i]]
            if k < 0:
                break
            _add_model(spheres, room, k, width)
            for i in range(width):
                if cursor[i] < end[i] and models[cursor[i]] == k:
                    sums[cursor[i]] = room.total[i]
                    cursor[i] += 1


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
    """Find the centres of base sets ``sets[k]`` that new rows ``entering[k]`` enter, by their hash.

    ``centres[k]`` are rows of the reference, or new ones, which count from n; a row of the base set
    that finds no room drops out.
    """
    for e in range(len(sets)):
        j, t, k = entering[e], sets[e], 0
        placed = False
        for place in range(centres.shape[1]):
            mine = False
            if not placed:
                mine = k >= drawn.shape[1] or new_hashes[j, t] < hashes[t, k]
                if not mine and new_hashes[j, t] == hashes[t, k]:
                    mine = compare(new_words, j, words, drawn[t, k]) < 0
            centres[e, place] = len(words) + j if mine else drawn[t, k]
            placed = placed or mine
            k += 0 if mine else 1
