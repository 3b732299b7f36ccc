"""Trees that tell reference rows from new ones, grown once for all worlds: compiled code.

A tree draws rows of the pool by hashes of its key and their content, without looking which are
new. So every world draws the same rows, and world j differs from the forest of D against T in one
label: x_j, which counts as new there, counts as a reference row. Only trees that drew x_j can
change, and of those only what lies below the first split that its label decides otherwise; the
rest is counts. Gains are compared in whole steps, so that one label seldom decides.

A row is scored by the trees that did not draw it. Votes are integers: sums agree bit for bit
whichever way a forest was grown.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import BoolArray, FloatArray, IndexArray, Int32Array, IntArray, UInt64Array
from ...compiled import njit
from ...randomness import GOLDEN, mix, uniform

# What a node stores: its split (-1 for a leaf), its first child (the other follows), its drawn and
# other rows, drawn reference and new rows; then for every split that was tried its feature (-1 if
# it cannot be used) and the reference and new rows to its left.
SPLIT, CHILD, DRAWN, DRAWN_END, REST, REST_END, OLD, NEW, TRIED = range(9)

# A leaf votes by the share of new rows, in so many steps; gains are told apart in so many.
VOTES, STEPS = float(1 << 20), 32.0

_LEFT, _RIGHT = np.uint64(0x8CB92BA72F3D8DD7), np.uint64(0xAAF2E1D9C1B4A6F3)


@njit(cache=True, nogil=True)
def vote_of(old: int, new: int, weights: FloatArray) -> int:
    """Say how much a leaf speaks for new rows; a leaf of few rows speaks softly."""
    a, b = weights[0] * old + weights[2], weights[1] * new + weights[2]
    return int(VOTES * b / (a + b))


@njit(cache=True, nogil=True)
def _gain(left_old: int, left_new: int, old: int, new: int, weights: FloatArray) -> float:
    """How pure a split leaves its two sides (one minus Gini's impurity), in whole steps."""
    a, b = weights[0] * left_old, weights[1] * left_new
    c, d = weights[0] * (old - left_old), weights[1] * (new - left_new)
    purity = (a * a + b * b) / (a + b) + (c * c + d * d) / (c + d)
    return float(np.floor(STEPS * (purity / (a + b + c + d))))


@njit(cache=True, nogil=True)
def _best(
    node: Int32Array, cuts: FloatArray, x: FloatArray, moved: int, weights: FloatArray
) -> int:
    """Choose among the splits of a node, the first of the best; with `moved` = 1, x is old."""
    best, chosen = -1.0, -1
    old, new = node[OLD] + moved, node[NEW] - moved
    for k in range(len(cuts)):
        at = TRIED + 3 * k
        if node[at] < 0:
            continue
        left = moved if moved and x[node[at]] <= cuts[k] else 0
        gain = _gain(node[at + 1] + left, node[at + 2] - left, old, new, weights)
        if gain > best:
            best, chosen = gain, k
    return chosen


@njit(cache=True, nogil=True)
def _cut(X: FloatArray, rows: Int32Array, start: int, stop: int, feature: int, cut: float) -> int:
    """Put the rows up to a cut first; return where the others begin."""
    middle = start
    for r in range(start, stop):
        if X[rows[r], feature] <= cut:
            rows[middle], rows[r] = rows[r], rows[middle]
            middle += 1
    return middle


@njit(cache=True, nogil=True)
def _try_splits(
    X: FloatArray, is_new: BoolArray, drawn: Int32Array, node: Int32Array, cuts: FloatArray,
    state: Any, least: int,
) -> None:  # fmt: skip
    """Try random cuts of random features that leave `least` drawn rows on either side."""
    start, stop = node[DRAWN], node[DRAWN_END]
    k = 0
    for _ in range(2 * len(cuts)):  # features that are constant here do not count
        state += GOLDEN
        feature = np.int64(mix(state) % np.uint64(X.shape[1]))
        state += GOLDEN
        share = uniform(state)
        low = high = X[drawn[start], feature]
        for r in range(start + 1, stop):
            value = X[drawn[r], feature]
            low, high = min(low, value), max(high, value)
        if low == high:
            continue
        cut = low + share * (high - low)
        if not cut < high:
            cut = low
        left = left_new = 0
        for r in range(start, stop):
            if X[drawn[r], feature] <= cut:
                left += 1
                left_new += is_new[drawn[r]]
        if left >= least and stop - start - left >= least:
            node[TRIED + 3 * k] = feature
            node[TRIED + 3 * k + 1] = left - left_new
            node[TRIED + 3 * k + 2] = left_new
            cuts[k] = cut
        k += 1
        if k == len(cuts):
            return


@njit(cache=True, nogil=True)
def _grow(
    X: FloatArray, is_new: BoolArray, drawn: Int32Array, rest: Int32Array, key: Any, least: int,
    weights: FloatArray, nodes: Int32Array, cuts: FloatArray, keys: UInt64Array, votes: Int32Array,
) -> None:  # fmt: skip
    """Grow a tree from drawn rows, and write its votes for the rest of the rows.

    Both arrays of rows are put in the order of the leaves.
    """
    count, at = 1, 0
    keys[0] = key
    nodes[0, DRAWN], nodes[0, DRAWN_END] = 0, len(drawn)
    nodes[0, REST], nodes[0, REST_END] = 0, len(rest)
    while at < count:
        node = nodes[at]
        start, stop, first, last = node[DRAWN], node[DRAWN_END], node[REST], node[REST_END]
        new = 0
        for r in range(start, stop):
            new += is_new[drawn[r]]
        node[OLD], node[NEW], node[SPLIT] = stop - start - new, new, -1
        if stop - start >= 2 * least:
            node[TRIED::3] = -1
            _try_splits(X, is_new, drawn, node, cuts[at], keys[at], least)
            node[SPLIT] = _best(node, cuts[at], X[0], 0, weights)
        split = node[SPLIT]
        if split < 0:
            vote = vote_of(node[OLD], node[NEW], weights)
            for r in range(first, last):
                votes[rest[r]] = vote
        else:
            feature, cut = node[TRIED + 3 * split], cuts[at, split]
            middle = _cut(X, drawn, start, stop, feature, cut)
            between = _cut(X, rest, first, last, feature, cut)
            node[CHILD] = count
            left, right = nodes[count], nodes[count + 1]
            left[DRAWN], left[DRAWN_END], left[REST], left[REST_END] = start, middle, first, between
            right[DRAWN], right[DRAWN_END], right[REST], right[REST_END] = (
                middle,
                stop,
                between,
                last,
            )
            keys[count], keys[count + 1] = mix(keys[at] ^ _LEFT), mix(keys[at] ^ _RIGHT)
            count += 2
        at += 1


@njit(cache=True, nogil=True)
def grow_trees(
    X: FloatArray, is_new: BoolArray, order: Int32Array, sizes: IntArray, seeds: UInt64Array,
    least: int, weights: FloatArray, nodes: Int32Array, cuts: FloatArray, keys: UInt64Array,
    votes: Int32Array, start: int, stop: int,
) -> None:  # fmt: skip
    """Grow trees ``start`` to ``stop``.

    `order` has the drawn rows of every tree first, `sizes` of them; all else is written.
    """
    for t in range(start, stop):
        size = sizes[t]
        _grow(
            X, is_new, order[t, :size], order[t, size:], seeds[t], least, weights, nodes[t],
            cuts[t], keys[t], votes[t],
        )  # fmt: skip


@njit(cache=True, nogil=True)
def votes_in_worlds(
    X: FloatArray, is_new: BoolArray, hit: BoolArray, order: Int32Array, sizes: IntArray,
    least: int, weights: FloatArray, nodes: Int32Array, cuts: FloatArray, keys: UInt64Array,
    votes: Int32Array, sums: IntArray, rows: IndexArray, out: IntArray, start: int, stop: int,
) -> None:  # fmt: skip
    """Write the votes for all rows in the worlds of ``rows[start:stop]``: (rows, pool).

    `hit` says which rows each tree drew, `sums` are the votes of D against T.
    """
    labels = is_new.copy()
    own_nodes, own_cuts, own_keys = nodes[0].copy(), cuts[0].copy(), keys[0].copy()
    drawn, rest = np.empty(len(X), dtype=np.int32), np.empty(len(X), dtype=np.int32)
    own_votes = np.empty(len(X), dtype=np.int32)
    for r in range(start, stop):
        j, mine = rows[r], out[r]
        x = X[j]
        labels[j] = False
        mine[:] = sums
        for t in range(len(hit)):
            if not hit[t, j]:
                continue
            size, at = sizes[t], 0
            split = _best(nodes[t, 0], cuts[t, 0], x, 1, weights) if nodes[t, 0, SPLIT] >= 0 else -1
            while split >= 0 and split == nodes[t, at, SPLIT]:
                node = nodes[t, at]
                right = x[node[TRIED + 3 * split]] > cuts[t, at, split]
                at = node[CHILD] + (1 if right else 0)
                leaf = nodes[t, at, SPLIT] < 0
                split = -1 if leaf else _best(nodes[t, at], cuts[t, at], x, 1, weights)
            node = nodes[t, at]
            first, last = size + node[REST], size + node[REST_END]
            if node[SPLIT] < 0:
                vote = vote_of(node[OLD] + 1, node[NEW] - 1, weights)
                for i in order[t, first:last]:
                    mine[i] += vote - votes[t, i]
                continue
            below, count = node[DRAWN_END] - node[DRAWN], last - first
            drawn[:below] = order[t, node[DRAWN] : node[DRAWN_END]]
            rest[:count] = order[t, first:last]
            _grow(
                X, labels, drawn[:below], rest[:count], keys[t, at], least, weights, own_nodes,
                own_cuts, own_keys, own_votes,
            )  # fmt: skip
            for i in rest[:count]:
                mine[i] += own_votes[i] - votes[t, i]
        labels[j] = is_new[j]
