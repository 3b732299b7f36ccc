"""Isolation forests whose draws go by position: for model files of format 1 only.

Before draws were keyed by content, a tree drew positions among its training rows, and its splits
from one stream. Full-conformal ranks, and refits of a detector inside another, need these draws
again when such a file is used: it keeps its numbers, and what was proven of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from ...arrays import FloatArray, IndexArray, Int32Array, IntArray, UInt32Array, UInt64Array
from ...counter import GOLDEN, uniform
from ...ensemble import Ensemble
from ...methods import Plan
from ...parallel import run_blocks
from ...records.checks import require, within
from ...statistics.ranks import Calibration, Ranks
from .ensembles import LeaveOneOutForests, Variants
from .kernels import add_path_lengths, count_below, draw_positions, range_of_lengths
from .model import (
    FEATURES_STREAM,
    ROWS_STREAM,
    Forest,
    Recipe,
    conformity,
    leaf_lengths,
    tree_keys,
    walks_to_grow,
    worth,
)


@dataclass(frozen=True, eq=False)
class ForestDraws:
    """All that chance decides about a forest.

    Attributes
    ----------
    samples : int array of shape (trees, psi)
        For every tree its positions among the training rows. Drawn with replacement, a position
        counts once, as in scikit-learn; -1 fills the row up.
    features : int array of shape (trees, features) or (1, d)
        The features that a tree may split; one row of it if every tree may split all.
    keys : uint64 array of shape (trees,)
        The key of the stream from which a tree's splits are drawn.
    """

    samples: Int32Array
    features: Int32Array
    keys: UInt64Array


def draw(recipe: Recipe, keys: UInt64Array, n_rows: int, n_columns: int) -> ForestDraws:
    """Draw the rows and features of every tree from its key.

    Parameters
    ----------
    recipe : Recipe
        Its number of trees is not looked at: there is a tree for every key.
    keys : uint64 array of shape (trees,)
    n_rows, n_columns : int
        Shape of the training data.

    Returns
    -------
    ForestDraws
    """
    samples = np.empty((len(keys), recipe.psi), dtype=np.int32)
    draw_positions(keys ^ ROWS_STREAM, n_rows, recipe.replace, samples)
    if recipe.n_features == n_columns:
        features = np.arange(n_columns, dtype=np.int32)[None, :]
    else:
        features = np.empty((len(keys), recipe.n_features), dtype=np.int32)
        draw_positions(keys ^ FEATURES_STREAM, n_columns, False, features)
    return ForestDraws(samples, features, keys)


def fit_forest(X: FloatArray, recipe: Recipe, seed: np.random.SeedSequence) -> Forest:
    """Fit one forest on all rows of X."""
    forest = Forest.empty(recipe.n_trees, recipe.psi)
    draws = draw(recipe, tree_keys(seed, recipe.n_trees), *X.shape)
    grow_trees(
        X,
        draws.samples,
        draws.features,
        draws.keys,
        leaf_lengths(recipe.psi),
        forest.thresholds,
        forest.features,
        forest.lengths,
    )
    return forest


@dataclass(eq=False)
class FullForest(Ensemble):
    """A forest on D and x for every new row x; it equals `fit_forest` on both, bit for bit.

    Attributes
    ----------
    calibration : Calibration
        Scores of D in the same forest grown without any new row; the ranks do not use them.
    recipe : Recipe
        That of a forest on n + 1 rows.
    shared : Forest
        The trees that did not draw the new row.
    sums : int array of shape (n,)
        Path lengths of the rows of D in the shared trees, added up, in increasing order.
    reference : float array of shape (n, d)
        D, in that order; without any rows if all trees are shared.
    drawn : float array of shape (k, d)
        The rows of D that the other trees drew.
    draws : ForestDraws
        Those of the other trees. Its samples are positions in `drawn`; k stands for the new row.
    n_jobs : int or None
        Threads for ranking.
    """

    calibration: Calibration
    recipe: Recipe
    shared: Forest
    sums: IntArray
    reference: FloatArray
    drawn: FloatArray
    draws: ForestDraws
    n_jobs: int | None = None

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank every new row x among D in the forest on D and x; there are no variants.

        Sums of path lengths are compared as they are, in integers.
        """
        X = np.ascontiguousarray(X, dtype=np.float64)
        totals = self.shared.path_sums(X, n_jobs=self.n_jobs)
        if len(self.draws.keys):
            below, at_most = self._rank_with_regrown(X, totals)
        else:
            below = 1 + np.searchsorted(self.sums, totals, side="left")
            at_most = 1 + np.searchsorted(self.sums, totals, side="right")
        scores = conformity(totals, self.recipe.n_trees, self.recipe.psi)
        return Ranks(at_most, below if strictly else None, scores)

    def _rank_with_regrown(self, X: FloatArray, totals: IntArray) -> tuple[IntArray, IntArray]:
        """Ranks of X, strict and not; adds the path lengths in the grown trees to `totals`."""
        below, at_most = np.empty_like(totals), np.empty_like(totals)
        lengths_of_leaves = leaf_lengths(self.recipe.psi)

        def rank(start: int, stop: int) -> None:
            some = slice(start, stop)
            rows = np.vstack([self.drawn, np.empty_like(X[:1])])
            trees = Forest.empty(len(self.draws.keys), self.recipe.psi)
            rank_with_regrown(
                rows,
                self.draws.samples,
                self.draws.features,
                self.draws.keys,
                lengths_of_leaves,
                trees.thresholds,
                trees.features,
                trees.lengths,
                self.reference,
                self.sums,
                X[some],
                totals[some],
                below[some],
                at_most[some],
            )

        n_trees = len(self.draws.keys)
        walks = walks_to_grow(n_trees, self.recipe.psi) + n_trees * len(self.sums)
        run_blocks(rank, len(X), n_jobs=worth(self.n_jobs, len(X) * walks))
        return below, at_most


@dataclass(frozen=True, eq=False)
class Replacements:
    """Trees that replaced others, by the row that they were grown without."""

    rows: IndexArray
    indptr: IndexArray
    trees: IndexArray
    left_out: IndexArray
    keys: UInt64Array


@dataclass(frozen=True, eq=False)
class SharedForestEnsemble:
    """Leave-one-out forests that shared all trees but those that drew the row."""

    full: Forest
    recipe: Recipe
    replacements: Replacements
    regrown: Forest | None
    path_sums: IntArray
    n_jobs: int | None

    def now(self, plan: Plan, calibration: Calibration) -> LeaveOneOutForests:
        """Return what it is today."""
        some = self.replacements
        require(within(some.rows, 0, plan.n), "a row does not exist")
        model = np.full(plan.n, -1, dtype=np.intp)
        model[some.rows] = np.arange(len(some.rows))
        variants = Variants(some.rows, some.indptr, some.trees, model)
        return LeaveOneOutForests(
            plan,
            calibration,
            self.full,
            None,
            self.recipe,
            variants,
            self.regrown,
            self.path_sums,
            shares_draws=True,
            n_jobs=self.n_jobs,
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
            shortest, longest = range_of_lengths(lengths[t])
            least += shortest
            most += longest
        # Whatever the grown trees add, rows before `first` end below, and those from `stop` on
        # above; only the rows between them have to be walked.
        first = count_below(sums, total - most)
        stop = count_below(sums, total - least + 1)
        between = sums[first:stop].copy().reshape(1, -1)
        add_path_lengths(thresholds, features, lengths, reference[first:stop], False, between)
        smaller = equal = 0
        for other in between[0]:
            smaller += other < total
            equal += other == total
        totals[j] = total
        below[j] = 1 + first + smaller
        at_most[j] = 1 + first + smaller + equal
