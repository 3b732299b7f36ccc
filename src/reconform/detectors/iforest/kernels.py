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

from typing import Any

import numpy as np

from ...arrays import (
    BoolArray,
    ByteArray,
    FloatArray,
    Int32Array,
    IntArray,
    UInt32Array,
    UInt64Array,
)
from ...compiled import njit
from ...randomness import GOLDEN, mix, uniform
from ...statistics.kernels import count_up_to

# A block of rows that meets one tree after the other stays in the first-level cache.
WALK_BYTES = 1 << 15

_ONE = np.uint64(1)
_NODE = np.uint64(0xD1B54A32D192ED03)

# After so many features that turned out constant, the node looks at all of them.
PATIENCE = 8

# How the rows of a node differ from those of the node whose place it takes.
CAME, LEFT, ALL = 1, 2, 4


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
def range_in_node(
    X: FloatArray, here: IntArray, start: int, stop: int, column: int, values: FloatArray
) -> Any:
    """Smallest and largest value of a column in a node; `values` are those of its rows."""
    low = high = X[here[start], column]
    values[0] = low
    for j in range(1, stop - start):
        x = X[here[start + j], column]
        values[j] = x
        low = x if x < low else low
        high = x if x > high else high
    return low, high


@njit(cache=True, nogil=True)
def _set_aside(order: IntArray, place: IntArray, constant: int, f: int) -> None:
    """Swap feature f to position `constant` of the order."""
    other, at = order[constant], place[f]
    order[at], place[other] = other, at
    order[constant], place[f] = f, constant


@njit(cache=True, nogil=True)
def cut_between(low: float, high: float, state: Any) -> Any:
    """Draw the threshold of a node: from `low` on and below `high`."""
    # Halved, so that the range of a column cannot overflow.
    cut = 2.0 * (0.5 * low + uniform(state) * (0.5 * high - 0.5 * low))
    return cut if low <= cut < high else low


@njit(cache=True, nogil=True)
def part_rows(
    here: IntArray, aside: IntArray, values: FloatArray, start: int, stop: int, cut: float
) -> Any:
    """Order the rows of a node: those that go left, then the others. Return where these begin."""
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


@njit(cache=True, nogil=True)
def let_wait(
    stack: IntArray,
    waiting: int,
    start: int,
    stop: int,
    node: int,
    level: int,
    constant: int,
    differs: int,
) -> None:
    """Put a node on the stack, behind the `waiting` ones that are there."""
    stack[waiting, 0] = start
    stack[waiting, 1] = stop
    stack[waiting, 2] = node
    stack[waiting, 3] = level
    stack[waiting, 4] = constant
    stack[waiting, 5] = differs


@njit(cache=True, nogil=True, forceinline=True)
def _split_node(
    X: FloatArray,
    here: IntArray,
    start: int,
    stop: int,
    subset: Int32Array,
    state: Any,
    constant: int,
    values: FloatArray,
    order: IntArray,
    place: IntArray,
) -> Any:
    """Draw feature and threshold of a node; feature -1 where all its rows are equal.

    A feature is drawn uniformly until one is not constant in the node; after `PATIENCE` failures
    the rest is drawn among those that are not. Either way it is uniform among these, and depends
    on nothing but the state, the node's rows and the subset: ``order[:constant]``, the features
    that are known to be constant, only saves looking at them. Their number is returned as well.
    """
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
            low, high = range_in_node(X, here, start, stop, subset[f], values)
            if low < high:
                chosen = subset[f]
                break
            _set_aside(order, place, constant, f)
            constant += 1
        failures += 1
    if chosen < 0 and constant < width:
        for f in range(width):
            if place[f] >= constant:
                low, high = range_in_node(X, here, start, stop, subset[f], values)
                if not low < high:
                    _set_aside(order, place, constant, f)
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
            low, high = range_in_node(X, here, start, stop, chosen, values)
    if chosen < 0:
        return -1, np.inf, constant
    return chosen, cut_between(low, high, state + GOLDEN), constant


@njit(cache=True, nogil=True)
def _clear_below(
    node: int, below: int, threshold: FloatArray, feature: UInt32Array, length: IntArray
) -> None:
    """Make a node with `below` levels below it an empty one."""
    for level in range(below):
        threshold[node << level : (node + 1) << level] = np.inf
        feature[node << level : (node + 1) << level] = 0
    bottom = len(length)
    length[(node << below) - bottom : ((node + 1) << below) - bottom] = 0


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
    X: FloatArray,
    copies: IntArray,
    rows: Int32Array,
    count: int,
    leaving: int,
    differs: int,
    subset: Int32Array,
    key: Any,
    leaf_lengths: IntArray,
    threshold: FloatArray,
    feature: UInt32Array,
    length: IntArray,
    here: IntArray,
    aside: IntArray,
    values: FloatArray,
    order: IntArray,
    place: IntArray,
    stack: IntArray,
) -> None:
    """Grow one tree on the first `count` of `rows`, or change one that has nearly these rows.

    Where `copies` is not empty, each of `rows` is listed once and stands for ``copies[row]`` rows.
    `differs` says how the tree's rows differ from those that `threshold`, `feature` and `length`
    were grown on: `ALL`, or a sum of `CAME` (the last of `rows` was not there) and `LEFT` (row
    `leaving` was there). A node keeps what is below it where its rows are the same; where they
    are not but it splits as before, only one or two of its descendants per level differ.
    """
    bottom = len(length)
    depth = len(stack) - 1
    new = rows[count - 1]
    for j in range(count):
        here[j] = rows[j]
    for f in range(len(subset)):
        order[f] = place[f] = f
    # Left children first; what waits on the stack are right children.
    start, stop, node, level, constant = 0, count, 1, 0, 0
    waiting = 0
    while True:
        # order[:constant] are features known to be constant in this node. Its descendants swap
        # behind that point only, so the prefix is still there for the right child.
        chosen, cut = -1, np.inf
        if level < depth:
            state = mix(key ^ (np.uint64(node) * _NODE))
            chosen, cut, constant = _split_node(
                X, here, start, stop, subset, state, constant, values, order, place
            )
            if differs != ALL and (cut != threshold[node] or max(chosen, 0) != feature[node]):
                _clear_below(node, depth - level, threshold, feature, length)
                differs = ALL
        to_left = to_right = 0
        if chosen >= 0:
            threshold[node] = cut
            feature[node] = chosen
            to_left = to_right = ALL
            if differs != ALL:
                came, left = differs & CAME, differs & LEFT
                to_right = came if X[new, chosen] > cut else 0
                to_right |= left if left and X[leaving, chosen] > cut else 0
                to_left = differs & ~to_right
            middle = part_rows(here, aside, values, start, stop, cut)
            if to_right:
                let_wait(stack, waiting, middle, stop, 2 * node + 1, level + 1, constant, to_right)
                waiting += 1
            if to_left:
                stop, node, level, differs = middle, 2 * node, level + 1, to_left
                continue
        else:
            below = depth - level
            size = _rows_in_node(here, start, stop, copies)
            length[(node << below) - bottom] = (level << 32) + leaf_lengths[size]
        if waiting == 0:
            break
        waiting -= 1
        start, stop = stack[waiting, 0], stack[waiting, 1]
        node, level, constant = stack[waiting, 2], stack[waiting, 3], stack[waiting, 4]
        differs = stack[waiting, 5]


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
    sizes: IntArray,
    subsets: Int32Array,
    keys: UInt64Array,
    leaf_lengths: IntArray,
    thresholds: FloatArray,
    features: UInt32Array,
    lengths: IntArray,
) -> None:
    """Grow tree t on the first ``sizes[t]`` rows of ``rows[t]``, within ``subsets[t]``.

    Row i counts ``copies[i]`` times; once, where `copies` is empty.
    """
    psi, width = rows.shape[1], subsets.shape[1]
    here, aside = np.empty(psi, np.int64), np.empty(psi, np.int64)
    values = np.empty(psi, np.float64)
    order, place = np.empty(width, np.int64), np.empty(width, np.int64)
    stack = np.empty((depth_of(lengths.shape[1]) + 1, 6), np.int64)
    for t in range(len(keys)):
        thresholds[t], features[t], lengths[t] = np.inf, 0, 0
        _grow(
            X,
            copies,
            rows[t],
            sizes[t],
            -1,
            ALL,
            subsets[t if len(subsets) > 1 else 0],
            keys[t],
            leaf_lengths,
            thresholds[t],
            features[t],
            lengths[t],
            here,
            aside,
            values,
            order,
            place,
            stack,
        )


@njit(cache=True, nogil=True)
def _rows_at_once(X: FloatArray) -> Any:
    """Count the rows that meet one tree after the other while they stay in the nearest cache."""
    return max(64, min(512, WALK_BYTES // (8 * X.shape[1])))


@njit(cache=True, nogil=True)
def _walk(
    threshold: FloatArray,
    feature: UInt32Array,
    bottom: int,
    X: FloatArray,
    low: int,
    high: int,
    leaf: UInt64Array,
) -> None:
    """Walk rows low to high through one tree; ``leaf`` says where each of them ends.

    Level by level, so that the processor works on many independent rows at once. The arithmetic
    is unsigned, because numba would check signed indices for being negative.
    """
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
def add_path_lengths(
    thresholds: FloatArray,
    features: UInt32Array,
    lengths: IntArray,
    X: FloatArray,
    out: IntArray,
) -> None:
    """Walk every row through every tree: ``out[r] += length``."""
    step = _rows_at_once(X)
    leaf = np.empty(step, np.uint64)
    for low in range(0, len(X), step):
        high = min(len(X), low + step)
        for t in range(len(lengths)):
            _walk(thresholds[t], features[t], lengths.shape[1], X, low, high, leaf)
            for r in range(high - low):
                out[low + r] += lengths[t, leaf[r]]


@njit(cache=True, nogil=True)
def path_lengths_of_pairs(
    thresholds: FloatArray,
    features: UInt32Array,
    lengths: IntArray,
    trees: IntArray,
    X: FloatArray,
    rows: IntArray,
    out: IntArray,
) -> None:
    """Walk row ``rows[j]`` through tree ``trees[j]``."""
    leaf = np.empty(1, np.uint64)
    for j in range(len(out)):
        t, r = trees[j], rows[j]
        _walk(thresholds[t], features[t], lengths.shape[1], X, r, r + 1, leaf)
        out[j] = lengths[t, leaf[0]]


@njit(cache=True, nogil=True)
def leaves_of(
    thresholds: FloatArray, features: UInt32Array, X: FloatArray, out: UInt32Array
) -> None:
    """Say at which position of the bottom level every row ends, in every tree."""
    step = _rows_at_once(X)
    leaf = np.empty(step, np.uint64)
    for low in range(0, len(X), step):
        high = min(len(X), low + step)
        for t in range(len(out)):
            _walk(thresholds[t], features[t], thresholds.shape[1], X, low, high, leaf)
            for r in range(high - low):
                out[t, low + r] = leaf[r]


@njit(cache=True, nogil=True)
def _find_moved(
    threshold: FloatArray,
    feature: UInt32Array,
    other_threshold: FloatArray,
    other_feature: UInt32Array,
    moved: ByteArray,
) -> None:
    """Mark the nodes, those at the bottom included, that have one above which splits otherwise."""
    bottom = len(threshold)
    moved[1] = 0
    for node in range(1, bottom):
        here = moved[node]
        if threshold[node] != other_threshold[node] or feature[node] != other_feature[node]:
            here = 1
        moved[2 * node] = moved[2 * node + 1] = here


@njit(cache=True, nogil=True)
def _find_gains(
    threshold: FloatArray,
    feature: UInt32Array,
    length: IntArray,
    base_threshold: FloatArray,
    base_feature: UInt32Array,
    base_length: IntArray,
    moved: ByteArray,
    gain: IntArray,
) -> None:
    """Say what a row that ends at a position gains where this tree takes the place of another.

    Where rows may end elsewhere (`moved`), that is without its path in this tree.
    """
    _find_moved(threshold, feature, base_threshold, base_feature, moved)
    bottom = len(length)
    for b in range(bottom):
        gain[b] = (0 if moved[bottom + b] else length[b]) - base_length[b]


@njit(cache=True, nogil=True)
def _add_gains(
    threshold: FloatArray,
    feature: UInt32Array,
    length: IntArray,
    moved: ByteArray,
    gain: IntArray,
    leaf: Any,
    X: FloatArray,
    low: int,
    walkers: UInt64Array,
    node: UInt64Array,
    sums: IntArray,
) -> None:
    """Add to the sums of rows, from row `low` of X on, what they gain: `leaf` is where they ended.

    Those that may end elsewhere walk, level by level as in `_walk`.
    """
    bottom = len(length)
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
            right = np.uint64(X[np.uint64(low) + walkers[k], feature[at]] > threshold[at])
            node[k] = (at << _ONE) | right
        level *= 2
    for k in range(count):
        sums[walkers[k]] += length[node[k] - np.uint64(bottom)]


@njit(cache=True, nogil=True)
def sums_with_replaced(
    thresholds: FloatArray,
    features: UInt32Array,
    lengths: IntArray,
    indptr: IntArray,
    replaced: IntArray,
    base_thresholds: FloatArray,
    base_features: UInt32Array,
    base_lengths: IntArray,
    leaves: UInt32Array,
    total: IntArray,
    X: FloatArray,
    out: IntArray,
) -> None:
    """Sum the path lengths of models that share all but a few of their trees.

    Model i is the base forest, in which the trees ``replaced[indptr[i]:indptr[i + 1]]`` gave way
    to the trees of the same numbers in `lengths`. These split like the trees whose place they
    take nearly everywhere, so most rows end where they ended: only the others walk.

    Parameters
    ----------
    thresholds, features, lengths : arrays of shape (trees, 2**depth)
        The trees that replace others.
    indptr : int array of shape (models + 1,)
    replaced : int array of shape (trees,)
    base_thresholds, base_features, base_lengths : arrays of shape (base trees, 2**depth)
    leaves : int array of shape (base trees, rows)
        Where the rows of X end in every base tree.
    total : int array of shape (rows,)
        The sums of their path lengths in the base trees.
    X : float array of shape (rows, d)
    out : int array of shape (models, rows)
        Filled in.
    """
    bottom = lengths.shape[1]
    moved = np.zeros(2 * bottom, np.uint8)
    gain = np.empty(bottom, np.int64)
    walkers, node = np.empty(len(X), np.uint64), np.empty(len(X), np.uint64)
    for i in range(len(out)):
        sums = out[i]
        sums[:] = total
        for j in range(indptr[i], indptr[i + 1]):
            t = replaced[j]
            tree = thresholds[j], features[j], lengths[j]
            before = base_thresholds[t], base_features[t], base_lengths[t]
            _find_gains(*tree, *before, moved, gain)
            _add_gains(*tree, moved, gain, leaves[t], X, 0, walkers, node, sums)


@njit(cache=True, nogil=True)
def range_of_lengths(length: IntArray) -> Any:
    """Shortest and longest path of one tree.

    A position that no walk reaches has length 0; a leaf has it only where it is the root.
    """
    longest = length.max()
    shortest = longest
    for one in length:
        if 0 < one < shortest:
            shortest = one
    return shortest, longest


@njit(cache=True, nogil=True)
def _add_walks(
    threshold: FloatArray,
    feature: UInt32Array,
    length: IntArray,
    X: FloatArray,
    sign: int,
    leaf: UInt64Array,
    out: IntArray,
) -> None:
    """Add the path lengths of rows X in one tree, or take them away."""
    step = len(leaf)
    for low in range(0, len(X), step):
        high = min(len(X), low + step)
        _walk(threshold, feature, len(length), X, low, high, leaf)
        for r in range(high - low):
            out[low + r] += sign * length[leaf[r]]


@njit(cache=True, nogil=True)
def grow_without(
    X: FloatArray,
    samples: Int32Array,
    sizes: IntArray,
    subsets: Int32Array,
    keys: UInt64Array,
    leaf_lengths: IntArray,
    base_thresholds: FloatArray,
    base_features: UInt32Array,
    base_lengths: IntArray,
    trees: IntArray,
    places: IntArray,
    thresholds: FloatArray,
    features: UInt32Array,
    lengths: IntArray,
) -> None:
    """Grow base tree ``trees[k]`` anew, without its row number ``places[k]``.

    What is below a node whose rows stay the same is taken from the base tree.

    Parameters
    ----------
    X : float array of shape (n, d)
    samples : int array of shape (trees, psi + 1)
        Of every base tree its rows, in the order of their hashes, and behind the ``sizes[t]`` of
        them that it has the one that takes the place of a row that leaves.
    sizes, subsets, keys, leaf_lengths
        As in `grow_trees`.
    base_thresholds, base_features, base_lengths : arrays of shape (trees, 2**depth)
        The base trees.
    trees, places : int arrays of shape (pairs,)
    thresholds, features, lengths : arrays of shape (pairs, 2**depth)
        Filled in.
    """
    psi, width = samples.shape[1] - 1, subsets.shape[1]
    here, aside = np.empty(psi, np.int64), np.empty(psi, np.int64)
    values = np.empty(psi, np.float64)
    order, place = np.empty(width, np.int64), np.empty(width, np.int64)
    stack = np.empty((depth_of(lengths.shape[1]) + 1, 6), np.int64)
    no_copies = np.empty(0, np.int64)
    grown = np.empty(psi, np.int32)
    for k in range(len(trees)):
        t = trees[k]
        for i in range(sizes[t]):
            grown[i] = samples[t, i if i < places[k] else i + 1]
        subset = subsets[t if len(subsets) > 1 else 0]
        own = thresholds[k], features[k], lengths[k]
        own[0][:], own[1][:], own[2][:] = base_thresholds[t], base_features[t], base_lengths[t]
        room = here, aside, values, order, place, stack
        how = sizes[t], samples[t, places[k]], CAME | LEFT, subset, keys[t], leaf_lengths
        _grow(X, no_copies, grown, *how, *own, *room)


@njit(cache=True, nogil=True)
def grow_entered(
    rows: FloatArray,
    samples: Int32Array,
    sizes: IntArray,
    subsets: Int32Array,
    keys: UInt64Array,
    leaf_lengths: IntArray,
    base_thresholds: FloatArray,
    base_features: UInt32Array,
    base_lengths: IntArray,
    X: FloatArray,
    entering: IntArray,
    trees: IntArray,
    thresholds: FloatArray,
    features: UInt32Array,
    lengths: IntArray,
) -> None:
    """Grow base tree ``trees[k]`` anew, with row ``entering[k]`` of X in it.

    What is below a node whose rows stay the same is taken from the base tree.

    Parameters
    ----------
    rows : float array of shape (drawn + 1, d)
        What the base trees are grown on. The last row is room for the one that enters.
    samples : int array of shape (trees, psi)
        Of every base tree its rows, in the order of their hashes.
    sizes : int array of shape (trees,)
        Rows of a tree that a row enters, itself included: it stands after the first
        ``sizes[t] - 1`` of them.
    subsets, keys, leaf_lengths
        As in `grow_trees`.
    base_thresholds, base_features, base_lengths : arrays of shape (trees, 2**depth)
        The base trees.
    X : float array of shape (m, d)
    entering, trees : int arrays of shape (pairs,)
    thresholds, features, lengths : arrays of shape (at least pairs, 2**depth)
        Filled in.
    """
    last = len(rows) - 1
    psi, width = samples.shape[1], subsets.shape[1]
    here, aside = np.empty(psi + 1, np.int64), np.empty(psi + 1, np.int64)
    values = np.empty(psi + 1, np.float64)
    order, place = np.empty(width, np.int64), np.empty(width, np.int64)
    stack = np.empty((depth_of(lengths.shape[1]) + 1, 6), np.int64)
    no_copies = np.empty(0, np.int64)
    grown = np.empty(psi + 1, np.int32)
    for k in range(len(trees)):
        t = trees[k]
        for f in range(X.shape[1]):  # a slice would take seconds more to compile
            rows[last, f] = X[entering[k], f]
        for i in range(sizes[t] - 1):
            grown[i] = samples[t, i]
        grown[sizes[t] - 1] = last
        # The base tree has one row more, unless it has all.
        leaving = samples[t, sizes[t] - 1] if sizes[t] <= psi else -1
        differs = CAME | LEFT if leaving >= 0 else CAME
        subset = subsets[t if len(subsets) > 1 else 0]
        own = thresholds[k], features[k], lengths[k]
        own[0][:], own[1][:], own[2][:] = base_thresholds[t], base_features[t], base_lengths[t]
        room = here, aside, values, order, place, stack
        how = sizes[t], leaving, differs, subset, keys[t], leaf_lengths
        _grow(rows, no_copies, grown, *how, *own, *room)


@njit(cache=True, nogil=True)
def ranks_behind(first: int, between: IntArray, total: int) -> Any:
    """Ranks of a sum, strict and not, behind `first` smaller sums and those in `between`."""
    smaller = equal = 0
    for other in between:
        smaller += other < total
        equal += other == total
    return 1 + first + smaller, 1 + first + smaller + equal


@njit(cache=True, nogil=True)
def rank_with_entered(
    rows: FloatArray,
    samples: Int32Array,
    sizes: IntArray,
    subsets: Int32Array,
    keys: UInt64Array,
    leaf_lengths: IntArray,
    thresholds: FloatArray,
    features: UInt32Array,
    lengths: IntArray,
    enters: BoolArray,
    reference: FloatArray,
    sums: IntArray,
    X: FloatArray,
    totals: IntArray,
    below: IntArray,
    at_most: IntArray,
) -> None:
    """Rank every row of X in a forest of its own: the base forest, but for trees that it enters.

    Parameters
    ----------
    rows, samples, sizes, subsets, keys, leaf_lengths
        As in `grow_entered`.
    thresholds, features, lengths : arrays of shape (trees, 2**depth)
        The base trees.
    enters : bool array of shape (m, trees)
        Which trees every row of X enters.
    reference : float array of shape (n, d)
        The rows to rank among, by increasing `sums`.
    sums : int array of shape (n,)
        Their path lengths in the base trees, added up.
    X : float array of shape (m, d)
    totals : int array of shape (m,)
        The sums of X in the base trees; those in its own trees afterwards.
    below, at_most : int arrays of shape (m,)
        Filled in with 1 + the number of reference rows whose sum is smaller, or not larger.
    """
    bottom = lengths.shape[1]
    most_trees = 0
    for j in range(len(X)):
        most_trees = max(most_trees, enters[j].sum())
    trees, entering = np.empty(most_trees, np.int64), np.empty(most_trees, np.int64)
    threshold = np.empty((most_trees, bottom))
    feature = np.empty((most_trees, bottom), np.uint32)
    length = np.empty((most_trees, bottom), np.int64)
    step = _rows_at_once(reference)
    leaf = np.empty(step, np.uint64)
    walkers, node = np.empty(step, np.uint64), np.empty(step, np.uint64)
    moved, gain = np.zeros(2 * bottom, np.uint8), np.empty(bottom, np.int64)
    mine = np.zeros(1, np.int64)
    for j in range(len(X)):
        count = 0
        for t in range(len(keys)):
            if enters[j, t]:
                trees[count], entering[count] = t, j
                count += 1
        draws = rows, samples, sizes, subsets, keys, leaf_lengths
        pairs = entering[:count], trees[:count]
        base = thresholds, features, lengths
        grow_entered(*draws, *base, X, *pairs, threshold, feature, length)
        mine[0] = totals[j]
        least = most = 0
        for k in range(count):
            t, x = trees[k], X[j : j + 1]
            _add_walks(threshold[k], feature[k], length[k], x, 1, leaf, mine)
            _add_walks(thresholds[t], features[t], lengths[t], x, -1, leaf, mine)
            shortest, longest = range_of_lengths(length[k])
            least_base, most_base = range_of_lengths(lengths[t])
            least += shortest - most_base
            most += longest - least_base
        total = mine[0]
        # However the entered trees differ from those they replace, rows before `first` end below,
        # and those from `stop` on above; only the rows between them have to be walked.
        first = count_up_to(sums, total - most, strictly=True)
        stop = count_up_to(sums, total - least + 1, strictly=True)
        between = sums[first:stop].copy()
        for k in range(count):
            t = trees[k]
            tree = threshold[k], feature[k], length[k]
            _find_gains(*tree, thresholds[t], features[t], lengths[t], moved, gain)
            for low in range(first, stop, step):
                high = min(stop, low + step)
                _walk(thresholds[t], features[t], bottom, reference, low, high, leaf)
                sums_here = between[low - first : high - first]
                _add_gains(*tree, moved, gain, leaf, reference, low, walkers, node, sums_here)
        totals[j] = total
        below[j], at_most[j] = ranks_behind(first, between, total)
