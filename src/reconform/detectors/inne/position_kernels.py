"""Compiled loops of INNE whose draws go by position; see `by_position`."""

from __future__ import annotations

import numpy as np

from ...arrays import FloatArray, IndexArray, IntArray, UInt32Array
from ...compiled import njit
from ...counter import integer_below, refusals
from .kernels import add_sets, measure_new


@njit(cache=True, nogil=True)
def draw_samples(key: np.uint64, size: int, samples: IndexArray) -> None:
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
def count_anomalous(
    table: FloatArray,
    centre: UInt32Array,
    radius: FloatArray,
    ratio: IntArray,
    edges: IntArray,
    sets: int,
    X: FloatArray,
    order: IndexArray,
    known: IntArray,
    low: IndexArray,
    high: IndexArray,
    own: IntArray,
    lanes: int,
    at_least: IntArray,
    above: IntArray,
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
            measure_new(columns, table, centre, edges[a], edges[b], width, measured, distance)
            add_sets(distance, centre, radius, ratio, edges, a, b, width, value, total)
            for i in range(begin, end):
                reached = known[first + i] + total[i]
                at_least[k] += reached >= own[k]
                above[k] += reached > own[k]
