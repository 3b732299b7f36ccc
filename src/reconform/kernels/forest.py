"""Isolation trees on flat arrays: draw the rows, grow the trees, walk them.

A tree of depth D is a heap. Node 1 is the root, node k splits at ``thresholds[k]`` in
``features[k]`` and has the children 2k (x <= threshold) and 2k + 1; after D steps every walk ends
at a node 2**D + j, whose path length is ``lengths[j]``. A leaf above the bottom is continued by
nodes that send every row to the left (threshold +inf). So a node needs no pointer, all walks in a
tree take the same number of steps, and the processor overlaps the walks of many rows, because no
branch depends on the data.

Path lengths are integers in units of 2**-32: their sums are exact in any order.

Randomness is counter-based (`kernels.random`). A tree is a function of its rows, in whatever order,
and its key, whoever grows it and whenever.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from .random import GOLDEN, uniform

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Positions = npt.NDArray[np.int32]
Nodes = npt.NDArray[np.uint32]
Keys = npt.NDArray[np.uint64]

# A block of rows that meets one tree after the other stays in the first-level cache.
WALK_BYTES = 1 << 15

_ONE = np.uint64(1)


@njit(cache=True, nogil=True)
def draw_positions(keys: Keys, size: int, replace: bool, out: Positions) -> None:
    """Draw ``out.shape[1]`` of `size` positions for every tree.

    Without replacement by Floyd's algorithm. With replacement, a position that was drawn before
    is not drawn again but marked with -1, at the end of the row.
    """
    count = out.shape[1]
    seen = np.zeros(size, np.uint8)
    for t in range(len(keys)):
        state = keys[t]
        kept = 0
        for c in range(count):
            state += GOLDEN
            most = size if replace else size - count + c + 1
            position = int(uniform(state) * most)  # < most: 53 bits times an integer below 2**53
            if seen[position]:
                if replace:
                    continue
                position = most - 1
            seen[position] = 1
            out[t, kept] = position
            kept += 1
        for c in range(kept):
            seen[out[t, c]] = 0
        out[t, kept:] = -1


@njit(cache=True, nogil=True)
def grow_trees(
    X: Floats,
    rows: Positions,
    subsets: Positions,
    keys: Keys,
    leaf_lengths: Ints,
    thresholds: Floats,
    features: Nodes,
    lengths: Ints,
) -> None:
    """Grow tree t on ``X[rows[t]]``, within the features ``subsets[t]``, from stream ``keys[t]``.

    Parameters
    ----------
    X : float array of shape (n, d)
    rows : int array of shape (trees, psi)
        Rows of X; -1 marks the end of a shorter list.
    subsets : int array of shape (trees or 1, features)
        One row of it serves all trees alike.
    keys : uint64 array of shape (trees,)
    leaf_lengths : int array of shape (psi + 1,)
        The length that a leaf with so many rows adds to its depth.
    thresholds, features, lengths : arrays of shape (trees, 2**depth)
        Filled in.
    """
    bottom = lengths.shape[1]
    depth = 0
    while (1 << depth) < bottom:
        depth += 1
    psi = rows.shape[1]
    width = subsets.shape[1]
    here, aside = np.empty(psi, np.int64), np.empty(psi, np.int64)
    values = np.empty(psi, np.float64)
    order = np.empty(width, np.int64)
    stack = np.empty((depth + 1, 5), np.int64)
    for t in range(len(keys)):
        threshold, feature, length = thresholds[t], features[t], lengths[t]
        threshold[:] = np.inf
        feature[:] = 0
        length[:] = 0
        count = 0
        while count < psi and rows[t, count] >= 0:
            here[count] = rows[t, count]
            count += 1
        subset = subsets[t if len(subsets) > 1 else 0]
        for f in range(width):
            order[f] = subset[f]
        state = keys[t]
        # Left children first; what waits on the stack are right children.
        start, stop, node, level, constant = 0, count, 1, 0, 0
        waiting = 0
        while True:
            # order[:constant] are features known to be constant in this node. Its descendants
            # swap behind that point only, so the prefix is still there for the right child.
            chosen = -1
            low = high = 0.0
            if level < depth and stop - start > 1:
                # Copies of one row, as a bootstrap draws them, are constant in every feature. All
                # numbers are drawn as if that were not known, but X is not looked at.
                copies = True
                for j in range(start + 1, stop):
                    copies = copies and here[j] == here[start]
                while constant < width:
                    state += GOLDEN
                    f = constant + int(uniform(state) * (width - constant))
                    column = order[f]
                    if copies:
                        order[f] = order[constant]
                        order[constant] = column
                        constant += 1
                        continue
                    low = high = X[here[start], column]
                    values[0] = low
                    for j in range(1, stop - start):
                        x = X[here[start + j], column]
                        values[j] = x
                        low = x if x < low else low
                        high = x if x > high else high
                    if low < high:
                        chosen = column
                        break
                    order[f] = order[constant]
                    order[constant] = column
                    constant += 1
            if chosen >= 0:
                state += GOLDEN
                # Halved, so that the range of a column cannot overflow.
                cut = 2.0 * (0.5 * low + uniform(state) * (0.5 * high - 0.5 * low))
                if not low <= cut < high:
                    cut = low
                threshold[node] = cut
                feature[node] = chosen
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
                stack[waiting, 0] = left
                stack[waiting, 1] = stop
                stack[waiting, 2] = 2 * node + 1
                stack[waiting, 3] = level + 1
                stack[waiting, 4] = constant
                waiting += 1
                stop, node, level = left, 2 * node, level + 1
                continue
            below = depth - level
            length[(node << below) - bottom] = (level << 32) + leaf_lengths[stop - start]
            if waiting == 0:
                break
            waiting -= 1
            start, stop = stack[waiting, 0], stack[waiting, 1]
            node, level, constant = stack[waiting, 2], stack[waiting, 3], stack[waiting, 4]


@njit(cache=True, nogil=True)
def _rows_at_once(X: Floats) -> Any:
    """Count the rows that meet one tree after the other while they stay in the nearest cache."""
    return max(64, min(512, WALK_BYTES // (8 * X.shape[1])))


@njit(cache=True, nogil=True)
def _walk(
    threshold: Floats, feature: Nodes, bottom: int, X: Floats, low: int, high: int, leaf: Keys
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
    thresholds: Floats, features: Nodes, lengths: Ints, X: Floats, apart: bool, out: Ints
) -> None:
    """Walk every row through every tree: ``out[t if apart else 0, r] += length``."""
    step = _rows_at_once(X)
    leaf = np.empty(step, np.uint64)
    for low in range(0, len(X), step):
        high = min(len(X), low + step)
        for t in range(len(lengths)):
            _walk(thresholds[t], features[t], lengths.shape[1], X, low, high, leaf)
            row = t if apart else 0
            for r in range(high - low):
                out[row, low + r] += lengths[t, leaf[r]]


@njit(cache=True, nogil=True)
def path_lengths_of_pairs(
    thresholds: Floats,
    features: Nodes,
    lengths: Ints,
    trees: Ints,
    X: Floats,
    rows: Ints,
    out: Ints,
) -> None:
    """Walk row ``rows[j]`` through tree ``trees[j]``."""
    leaf = np.empty(1, np.uint64)
    for j in range(len(out)):
        t, r = trees[j], rows[j]
        _walk(thresholds[t], features[t], lengths.shape[1], X, r, r + 1, leaf)
        out[j] = lengths[t, leaf[0]]


@njit(cache=True, nogil=True)
def leave_one_out_sums(
    thresholds: Floats,
    features: Nodes,
    lengths: Ints,
    indptr: Ints,
    replaced: Ints,
    base: Ints,
    total: Ints,
    X: Floats,
    out: Ints,
) -> None:
    """Sum the path lengths of models that share all but a few of their trees.

    Model i is the base forest, in which the trees ``replaced[indptr[i]:indptr[i + 1]]`` gave way
    to the trees of the same numbers in `lengths`.

    Parameters
    ----------
    thresholds, features, lengths : arrays of shape (trees, 2**depth)
        The trees that replace others.
    indptr : int array of shape (models + 1,)
    replaced : int array of shape (trees,)
    base : int array of shape (base trees, rows)
        Path lengths of the rows of X in every base tree.
    total : int array of shape (rows,)
        Their sum.
    X : float array of shape (rows, d)
    out : int array of shape (models, rows)
        Filled in.
    """
    step = _rows_at_once(X)
    leaf = np.empty(step, np.uint64)
    for low in range(0, len(X), step):
        high = min(len(X), low + step)
        for i in range(len(out)):
            for r in range(low, high):
                out[i, r] = total[r]
            for j in range(indptr[i], indptr[i + 1]):
                _walk(thresholds[j], features[j], lengths.shape[1], X, low, high, leaf)
                t = replaced[j]
                for r in range(high - low):
                    out[i, low + r] += lengths[j, leaf[r]] - base[t, low + r]


@njit(cache=True, nogil=True)
def _range_of_lengths(length: Ints) -> Any:
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
def _count_below(ordered: Ints, value: int) -> Any:
    """Count the entries of an increasing array that are smaller than `value`.

    As `np.searchsorted`, which takes numba seconds to compile.
    """
    low, high = 0, len(ordered)
    while low < high:
        middle = (low + high) // 2
        if ordered[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def rank_with_regrown(
    rows: Floats,
    samples: Positions,
    subsets: Positions,
    keys: Keys,
    leaf_lengths: Ints,
    thresholds: Floats,
    features: Nodes,
    lengths: Ints,
    reference: Floats,
    sums: Ints,
    X: Floats,
    totals: Ints,
    below: Ints,
    at_most: Ints,
) -> None:
    """Rank every row of X in a forest of its own: shared trees, and trees grown on it too.

    Parameters
    ----------
    rows : float array of shape (drawn + 1, d)
        What the trees are grown on. The last row is room for the row of X whose turn it is.
    samples, subsets, keys, leaf_lengths
        As in `grow_trees`.
    thresholds, features, lengths : arrays of shape (trees, 2**depth)
        Room for the trees.
    reference : float array of shape (n, d)
        The rows to rank among, by increasing `sums`.
    sums : int array of shape (n,)
        Their path lengths in the shared trees, added up.
    X : float array of shape (m, d)
    totals : int array of shape (m,)
        The sums of X in the shared trees; those in all trees afterwards.
    below, at_most : int arrays of shape (m,)
        Filled in with 1 + the number of reference rows whose sum is smaller, or not larger.
    """
    last = len(rows) - 1
    mine = np.zeros((1, 1), np.int64)
    for j in range(len(X)):
        for f in range(X.shape[1]):  # a slice would take seconds more to compile
            rows[last, f] = X[j, f]
        grow_trees(rows, samples, subsets, keys, leaf_lengths, thresholds, features, lengths)
        mine[0, 0] = totals[j]
        add_path_lengths(thresholds, features, lengths, rows[last:], False, mine)
        total = mine[0, 0]
        least = most = 0
        for t in range(len(keys)):
            shortest, longest = _range_of_lengths(lengths[t])
            least += shortest
            most += longest
        # Whatever the grown trees add, rows before `first` end below, and those from `stop` on
        # above; only the rows between them have to be walked.
        first = _count_below(sums, total - most)
        stop = _count_below(sums, total - least + 1)
        between = sums[first:stop].copy().reshape(1, -1)
        add_path_lengths(thresholds, features, lengths, reference[first:stop], False, between)
        smaller = equal = 0
        for other in between[0]:
            smaller += other < total
            equal += other == total
        totals[j] = total
        below[j] = 1 + first + smaller
        at_most[j] = 1 + first + smaller + equal
