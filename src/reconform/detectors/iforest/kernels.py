"""Isolation trees on flat arrays: draw the rows, grow the trees, walk them.

A tree of depth D is a heap. Node 1 is the root, node k splits at ``thresholds[k]`` in
``features[k]`` and has the children 2k (x <= threshold) and 2k + 1; after D steps every walk ends
at a node 2**D + j, whose path length is ``lengths[j]``. A leaf above the bottom is continued by
nodes that send every row to the left (threshold +inf). So a node needs no pointer, all walks in a
tree take the same number of steps, and the processor overlaps the walks of many rows, because no
branch depends on the data.

Path lengths are integers in units of 2**-32: their sums are exact in any order.

Randomness is counter-based (`reconform.randomness`), and keyed by node: the split of a node is a
function of the tree's key, the node's number and the node's rows. So a tree is a function of its
key and of its rows, in whatever order, and two trees with one key differ only at nodes whose rows
differ: leaving out a row, or putting one in its place, changes little.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays import ByteArray, FloatArray, Int32Array, IntArray, UInt32Array, UInt64Array
from ...compiled import njit
from ...randomness import GOLDEN, mix, uniform

# A block of rows that meets one tree after the other stays in the first-level cache.
WALK_BYTES = 1 << 15

_ONE = np.uint64(1)
_NODE = np.uint64(0xD1B54A32D192ED03)

# After so many features that turned out constant, the node looks at all of them.
PATIENCE = 8

# How the rows of a node differ from those of the node whose place it takes.
CAME, LEFT, ALL = 1, 2, 4

# In place of the row that leaves a tree: it only gains one, or it is grown from nothing.
NONE, FRESH = -1, -2


class Trees(NamedTuple):
    """Heaps, of shape (trees, 2 ** depth); or one of them, without the first dimension."""

    thresholds: FloatArray
    features: UInt32Array
    lengths: IntArray


class Draws(NamedTuple):
    """What trees are grown from: their keys, features and sizes, and what a leaf of k rows adds."""

    keys: UInt64Array
    features: Int32Array
    sizes: IntArray
    leaf_lengths: IntArray


class PartedRows(NamedTuple):
    """The rows of a tree as they are parted among its nodes, and room to do that."""

    X: FloatArray
    here: IntArray
    aside: IntArray
    values: FloatArray
    order: IntArray  # features, those that are constant in a node first
    place: IntArray
    stack: IntArray


@njit(cache=True, nogil=True)
def _tree(trees: Trees, t: int) -> Any:
    """One of the trees."""
    return Trees(trees.thresholds[t], trees.features[t], trees.lengths[t])


@njit(cache=True, nogil=True)
def draw_features(keys: UInt64Array, size: int, out: Int32Array) -> None:
    """Draw ``out.shape[1]`` of `size` features for every tree, by Floyd's algorithm."""
    count = out.shape[1]
    seen = np.zeros(size, np.uint8)
    for t in range(len(keys)):
        state = keys[t]
        for c in range(count):
            state += GOLDEN
            most = size - count + c + 1
            feature = int(uniform(state) * most)  # < most: 53 bits times an integer below 2**53
            if seen[feature]:
                feature = most - 1
            seen[feature] = 1
            out[t, c] = feature
        for c in range(count):
            seen[out[t, c]] = 0


@njit(cache=True, nogil=True)
def _range_in_node(rows: PartedRows, start: int, stop: int, column: int) -> Any:
    """Smallest and largest value of a column in a node; all of them are written to `values`."""
    X, here, values = rows.X, rows.here, rows.values  # numba counts references of fields
    low = high = X[here[start], column]
    values[0] = low
    for j in range(1, stop - start):
        x = X[here[start + j], column]
        values[j] = x
        low = x if x < low else low
        high = x if x > high else high
    return low, high


@njit(cache=True, nogil=True)
def _set_aside(rows: PartedRows, constant: int, f: int) -> None:
    """Swap feature f to position `constant` of the order."""
    other, at = rows.order[constant], rows.place[f]
    rows.order[at], rows.place[other] = other, at
    rows.order[constant], rows.place[f] = f, constant


@njit(cache=True, nogil=True)
def cut_between(low: float, high: float, state: Any) -> Any:
    """Draw the threshold of a node: from `low` on and below `high`."""
    # Halved, so that the range of a column cannot overflow.
    cut = 2.0 * (0.5 * low + uniform(state) * (0.5 * high - 0.5 * low))
    return cut if low <= cut < high else low


@njit(cache=True, nogil=True)
def _part(rows: PartedRows, start: int, stop: int, cut: float) -> Any:
    """Order the rows of a node: those that go left, then the others. Return where these begin."""
    here, aside, values = rows.here, rows.aside, rows.values
    left, right = start, 0
    for j in range(stop - start):
        row = here[start + j]
        goes_right = 1 if values[j] > cut else 0
        here[left] = row
        aside[right] = row
        left += 1 - goes_right
        right += goes_right
    for j in range(right):
        here[left + j] = aside[j]
    return left


@njit(cache=True, nogil=True, forceinline=True)
def _split_node(
    rows: PartedRows, start: int, stop: int, subset: Int32Array, state: Any, constant: int
) -> Any:
    """Draw feature and threshold of a node; feature -1 where all its rows are equal.

    A feature is drawn uniformly until one is not constant in the node; after `PATIENCE` failures
    the rest is drawn among those that are not. Either way it is uniform among these, and depends
    on nothing but the state, the node's rows and the subset: ``order[:constant]``, the features
    that are known to be constant, only saves looking at them. Their number is returned as well.
    """
    here, place = rows.here, rows.place
    # Copies of one row are constant in every feature: X need not be looked at.
    copies = True
    for j in range(start + 1, stop):
        if here[j] != here[start]:
            copies = False
            break
    if copies:
        return -1, np.inf, constant
    width = len(subset)
    chosen = -1
    low = high = 0.0
    failures = 0
    while constant < width and failures < PATIENCE:
        state += GOLDEN
        f = int(uniform(state) * width)
        if place[f] >= constant:
            low, high = _range_in_node(rows, start, stop, subset[f])
            if low < high:
                chosen = subset[f]
                break
            _set_aside(rows, constant, f)
            constant += 1
        failures += 1
    if chosen < 0 and constant < width:
        for f in range(width):
            if place[f] >= constant:
                low, high = _range_in_node(rows, start, stop, subset[f])
                if not low < high:
                    _set_aside(rows, constant, f)
                    constant += 1
        if constant < width:
            state += GOLDEN
            ahead = int(uniform(state) * (width - constant))
            for f in range(width):  # by number: `order` depends on what came before
                if place[f] >= constant:
                    if ahead == 0:
                        chosen = subset[f]
                        break
                    ahead -= 1
            low, high = _range_in_node(rows, start, stop, chosen)
    if chosen < 0:
        return -1, np.inf, constant
    return chosen, cut_between(low, high, state + GOLDEN), constant


@njit(cache=True, nogil=True)
def _clear_below(tree: Trees, node: int, below: int) -> None:
    """Make a node with `below` levels below it an empty one."""
    for level in range(below):
        tree.thresholds[node << level : (node + 1) << level] = np.inf
        tree.features[node << level : (node + 1) << level] = 0
    bottom = len(tree.lengths)
    tree.lengths[(node << below) - bottom : ((node + 1) << below) - bottom] = 0


@njit(cache=True, nogil=True)
def _rows_in_node(here: IntArray, start: int, stop: int, copies: IntArray) -> Any:
    """Count the rows of a node: every row as often as `copies` says, or once if that is empty."""
    if len(copies) == 0:
        return stop - start
    count = 0
    for j in range(start, stop):
        count += copies[here[j]]
    return count


@njit(cache=True, nogil=True)
def _grow(
    rows: PartedRows,
    copies: IntArray,
    count: int,
    leaving: int,
    subset: Int32Array,
    key: Any,
    leaf_lengths: IntArray,
    tree: Trees,
) -> None:
    """Grow one tree on the first `count` rows that are here, or change one of nearly these rows.

    A row that is `leaving` was there when the tree was grown, and the last of the rows was not. A
    node keeps what is below it where its rows are the same; where they are not but it splits as
    before, only one or two of its descendants per level differ.
    """
    X, here, stack = rows.X, rows.here, rows.stack
    bottom, depth, new = len(tree.lengths), len(stack) - 1, here[count - 1]
    for f in range(len(subset)):
        rows.order[f] = rows.place[f] = f
    # Left children first; what waits on the stack are right children.
    start, stop, node, level, constant = 0, count, 1, 0, 0
    differs = ALL if leaving == FRESH else CAME if leaving == NONE else CAME | LEFT
    waiting = 0
    while True:
        # order[:constant] are features known to be constant in this node. Its descendants swap
        # behind that point only, so the prefix is still there for the right child.
        chosen, cut = -1, np.inf
        if level < depth:
            state = mix(key ^ (np.uint64(node) * _NODE))
            chosen, cut, constant = _split_node(rows, start, stop, subset, state, constant)
            as_before = cut == tree.thresholds[node] and max(chosen, 0) == tree.features[node]
            if differs != ALL and not as_before:
                _clear_below(tree, node, depth - level)
                differs = ALL
        to_left = to_right = 0
        if chosen >= 0:
            tree.thresholds[node] = cut
            tree.features[node] = chosen
            to_left = to_right = ALL
            if differs != ALL:
                came, left = differs & CAME, differs & LEFT
                to_right = came if X[new, chosen] > cut else 0
                to_right |= left if left and X[leaving, chosen] > cut else 0
                to_left = differs & ~to_right
            middle = _part(rows, start, stop, cut)
            if to_right:
                stack[waiting, 0], stack[waiting, 1] = middle, stop
                stack[waiting, 2], stack[waiting, 3] = 2 * node + 1, level + 1
                stack[waiting, 4], stack[waiting, 5] = constant, to_right
                waiting += 1
            if to_left:
                stop, node, level, differs = middle, 2 * node, level + 1, to_left
                continue
        else:
            below = depth - level
            size = _rows_in_node(here, start, stop, copies)
            tree.lengths[(node << below) - bottom] = (level << 32) + leaf_lengths[size]
        if waiting == 0:
            break
        waiting -= 1
        start, stop, node = stack[waiting, 0], stack[waiting, 1], stack[waiting, 2]
        level, constant, differs = stack[waiting, 3], stack[waiting, 4], stack[waiting, 5]


@njit(cache=True, nogil=True)
def depth_of(bottom: int) -> Any:
    """Depth of a tree with so many places at the bottom."""
    depth = 0
    while (1 << depth) < bottom:
        depth += 1
    return depth


@njit(cache=True, nogil=True)
def grow_trees(
    X: FloatArray,
    copies: IntArray,
    rows: Int32Array,
    leaving: IntArray,
    draws: Draws,
    trees: Trees,
    start: int,
    stop: int,
) -> None:
    """Grow tree t on the first ``sizes[t]`` rows of ``rows[t]``, or change it to be so.

    Where ``leaving[t]`` is not `FRESH`, the tree was grown on the same rows, but for the last one,
    in whose place row ``leaving[t]`` was, if any. Row i counts ``copies[i]`` times; once, where
    `copies` is empty.
    """
    psi, width = rows.shape[1], draws.features.shape[1]
    stack = np.empty((depth_of(trees.lengths.shape[1]) + 1, 6), np.int64)
    here, aside = np.empty(psi, np.int64), np.empty(psi, np.int64)
    order, place = np.empty(width, np.int64), np.empty(width, np.int64)
    room = PartedRows(X, here, aside, np.empty(psi), order, place, stack)
    for t in range(start, stop):
        tree = _tree(trees, t)
        if leaving[t] == FRESH:
            tree.thresholds[:], tree.features[:], tree.lengths[:] = np.inf, 0, 0
        count = draws.sizes[t]
        for j in range(count):
            here[j] = rows[t, j]
        subset = draws.features[t if len(draws.features) > 1 else 0]
        _grow(room, copies, count, leaving[t], subset, draws.keys[t], draws.leaf_lengths, tree)


@njit(cache=True, nogil=True)
def _rows_at_once(X: FloatArray) -> Any:
    """Count the rows that meet one tree after the other while they stay in the nearest cache."""
    return max(64, min(512, WALK_BYTES // (8 * X.shape[1])))


@njit(cache=True, nogil=True)
def _walk(tree: Trees, X: FloatArray, low: int, high: int, leaf: UInt64Array) -> None:
    """Walk rows low to high through one tree; ``leaf`` says where each of them ends.

    Level by level, so that the processor works on many independent rows at once. The arithmetic
    is unsigned, because numba would check signed indices for being negative.
    """
    threshold, feature, bottom = tree.thresholds, tree.features, len(tree.lengths)
    leaf[: high - low] = _ONE
    level = 1
    while level < bottom:
        for r in range(high - low):
            node = leaf[r]
            right = np.uint64(X[np.uint64(low + r), feature[node]] > threshold[node])
            leaf[r] = (node << _ONE) | right
        level *= 2
    for r in range(high - low):
        leaf[r] -= np.uint64(bottom)


@njit(cache=True, nogil=True)
def add_path_lengths(trees: Trees, X: FloatArray, out: IntArray, start: int, stop: int) -> None:
    """Walk rows `start` to `stop` through every tree: ``out[r] += length``."""
    step, lengths = _rows_at_once(X), trees.lengths
    leaf = np.empty(step, np.uint64)
    for low in range(start, stop, step):
        high = min(stop, low + step)
        for t in range(len(lengths)):
            _walk(_tree(trees, t), X, low, high, leaf)
            for r in range(high - low):
                out[low + r] += lengths[t, leaf[r]]


@njit(cache=True, nogil=True)
def path_lengths_of_pairs(
    trees: Trees, which: IntArray, X: FloatArray, rows: IntArray, out: IntArray
) -> None:
    """Walk row ``rows[j]`` through tree ``which[j]``."""
    leaf = np.empty(1, np.uint64)
    for j in range(len(out)):
        _walk(_tree(trees, which[j]), X, rows[j], rows[j] + 1, leaf)
        out[j] = trees.lengths[which[j], leaf[0]]


@njit(cache=True, nogil=True)
def leaves_of(trees: Trees, X: FloatArray, out: UInt32Array) -> None:
    """Say at which position of the bottom level every row ends, in every tree."""
    step = _rows_at_once(X)
    leaf = np.empty(step, np.uint64)
    for low in range(0, len(X), step):
        high = min(len(X), low + step)
        for t in range(len(out)):
            _walk(_tree(trees, t), X, low, high, leaf)
            for r in range(high - low):
                out[t, low + r] = leaf[r]


@njit(cache=True, nogil=True)
def _find_gains(tree: Trees, base: Trees, moved: ByteArray, gain: IntArray) -> None:
    """Say what a row that ends at a position gains where this tree takes the place of another.

    Below a node that splits otherwise, rows may end elsewhere (`moved`): there the gain is without
    the path in this tree.
    """
    threshold, feature, length = tree
    base_threshold, base_feature, base_length = base
    bottom = len(gain)
    moved[1] = 0
    for node in range(1, bottom):
        here = moved[node]
        if threshold[node] != base_threshold[node] or feature[node] != base_feature[node]:
            here = 1
        moved[2 * node] = moved[2 * node + 1] = here
    for b in range(bottom):
        gain[b] = (0 if moved[bottom + b] else length[b]) - base_length[b]


@njit(cache=True, nogil=True)
def _add_gains(
    tree: Trees,
    moved: ByteArray,
    gain: IntArray,
    leaf: UInt32Array,
    X: FloatArray,
    walkers: UInt64Array,
    node: UInt64Array,
    sums: IntArray,
) -> None:
    """Add to the sums of rows what they gain: `leaf` is where they ended.

    Those that may end elsewhere walk, level by level as in `_walk`.
    """
    threshold, feature, length = tree
    bottom = len(gain)
    ends_elsewhere = moved[bottom:]
    count = 0
    for r in range(len(sums)):
        at = np.uint64(leaf[r])
        sums[r] += gain[at]
        walkers[count] = r
        node[count] = _ONE
        count += ends_elsewhere[at]
    level = 1
    while level < bottom and count:
        for k in range(count):
            at = node[k]
            right = np.uint64(X[walkers[k], feature[at]] > threshold[at])
            node[k] = (at << _ONE) | right
        level *= 2
    for k in range(count):
        sums[walkers[k]] += length[node[k] - np.uint64(bottom)]


@njit(cache=True, nogil=True)
def sums_with_replaced(
    trees: Trees,
    indptr: IntArray,
    replaced: IntArray,
    base: Trees,
    leaves: UInt32Array,
    total: IntArray,
    X: FloatArray,
    out: IntArray,
) -> None:
    """Sum the path lengths of models that share all but a few of their trees: (models, rows).

    Model i is the base forest, in which the trees ``replaced[indptr[i]:indptr[i + 1]]`` gave way
    to the trees of the same numbers in `trees`. These split like the trees whose place they take
    nearly everywhere, so most rows end where they ended, ``leaves[tree, row]``: only the others
    walk. `total` are the sums in the base trees.
    """
    bottom = trees.lengths.shape[1]
    moved = np.zeros(2 * bottom, np.uint8)
    gain = np.empty(bottom, np.int64)
    walkers, node = np.empty(len(X), np.uint64), np.empty(len(X), np.uint64)
    for i in range(len(out)):
        out[i] = total
        for j in range(indptr[i], indptr[i + 1]):
            tree = _tree(trees, j)
            _find_gains(tree, _tree(base, replaced[j]), moved, gain)
            _add_gains(tree, moved, gain, leaves[replaced[j]], X, walkers, node, out[i])
