"""Compiled loops of isolation forests whose draws go by position; see `by_position`."""

from __future__ import annotations

import numpy as np

from ...arrays import FloatArray, Int32Array, IntArray, UInt32Array, UInt64Array
from ...compiled import njit
from ...counter import GOLDEN, uniform
from ...statistics.paired_kernels import count_up_to
from .kernels import (
    add_path_lengths,
    cut_between,
    depth_of,
    let_wait,
    part_rows,
    range_in_node,
    range_of_lengths,
    ranks_behind,
)


@njit(cache=True, nogil=True)
def grow_trees(
    X: FloatArray,
    rows: Int32Array,
    subsets: Int32Array,
    keys: UInt64Array,
    leaf_lengths: IntArray,
    thresholds: FloatArray,
    features: UInt32Array,
    lengths: IntArray,
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
    depth = depth_of(bottom)
    psi = rows.shape[1]
    width = subsets.shape[1]
    here, aside = np.empty(psi, np.int64), np.empty(psi, np.int64)
    values = np.empty(psi, np.float64)
    order = np.empty(width, np.int64)
    stack = np.empty((depth + 1, 6), np.int64)
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
                    low, high = range_in_node(X, here, start, stop, column, values)
                    if low < high:
                        chosen = column
                        break
                    order[f] = order[constant]
                    order[constant] = column
                    constant += 1
            if chosen >= 0:
                state += GOLDEN
                threshold[node] = cut_between(low, high, state)
                feature[node] = chosen
                left = part_rows(here, aside, values, start, stop, threshold[node])
                let_wait(stack, waiting, left, stop, 2 * node + 1, level + 1, constant, 0)
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
def rank_with_regrown(
    rows: FloatArray,
    samples: Int32Array,
    subsets: Int32Array,
    keys: UInt64Array,
    leaf_lengths: IntArray,
    thresholds: FloatArray,
    features: UInt32Array,
    lengths: IntArray,
    reference: FloatArray,
    sums: IntArray,
    X: FloatArray,
    totals: IntArray,
    below: IntArray,
    at_most: IntArray,
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
    mine = np.zeros(1, np.int64)
    for j in range(len(X)):
        for f in range(X.shape[1]):  # a slice would take seconds more to compile
            rows[last, f] = X[j, f]
        grow_trees(rows, samples, subsets, keys, leaf_lengths, thresholds, features, lengths)
        mine[0] = totals[j]
        add_path_lengths(thresholds, features, lengths, rows[last:], mine)
        total = mine[0]
        least = most = 0
        for t in range(len(keys)):
            shortest, longest = range_of_lengths(lengths[t])
            least += shortest
            most += longest
        # Whatever the grown trees add, rows before `first` end below, and those from `stop` on
        # above; only the rows between them have to be walked.
        first = count_up_to(sums, total - most, strictly=True)
        stop = count_up_to(sums, total - least + 1, strictly=True)
        between = sums[first:stop].copy()
        add_path_lengths(thresholds, features, lengths, reference[first:stop], between)
        totals[j] = total
        below[j], at_most[j] = ranks_behind(first, between, total)
