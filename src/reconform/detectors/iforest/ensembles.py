"""Isolation forests on shared trees: all leave-one-out models, and one model per new row.

A forest is a function of its seed and of the multiset of its rows (`model`). Hence

- the forest on D without row i differs from that on D only in trees that took i: in each of these
  the row with the next hash takes its place. All n of them together have (1 + psi) times the trees
  of one, whatever n is;
- the forest on D and a new row x differs only in trees whose last row has a larger hash than x:
  there x takes the place of that row. Of a hundred trees these are some 100 psi / (n + 1).

Both are what `fit_forest` gives on these rows, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ...arrays import FloatArray, IndexArray, Int32Array, IntArray, UInt64Array
from ...content import Contents, draw_rows
from ...ensemble import ResampledEnsemble, reference_calibration
from ...errors import ReconformError
from ...methods import Plan
from ...parallel import run_blocks
from ...statistics.ranks import Calibration
from ..one_more import EnteredEnsemble
from .kernels import sums_with_replaced
from .model import (
    DRAWN_AT_ONCE,
    GROWTH,
    WALK,
    Forest,
    Recipe,
    TreeDraws,
    conformity,
    fit_forest,
    pieces,
)

# Models whose sums are held at once by a thread.
CHUNK_MODELS = 64

# Nodes of the entered trees that a thread holds at once: some megabytes.
CHUNK_NODES = 1 << 18

# Reference rows of all worlds for which lists are made anew, for one new row.
MOST_ROWS = 3000


# --- leave-one-out -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Variants:
    """Which base trees are replaced by others in the models without a row.

    Sorted by row: the model without row ``rows[a]`` replaces base trees
    ``trees[indptr[a]:indptr[a + 1]]``. All other models are the base forest. Of equal rows the
    last is listed, and they have one model.

    Attributes
    ----------
    rows : int array of shape (affected,)
    indptr : int array of shape (affected + 1,)
    trees : int array of shape (replaced,)
    model : int array of shape (n,)
        For every row of D the position of its model in `rows`; -1 where that is the base forest.
    """

    rows: IndexArray
    indptr: IndexArray
    trees: IndexArray
    model: IndexArray

    @classmethod
    def of(
        cls, drawn: Int32Array, sizes: IntArray, contents: Contents
    ) -> tuple[Variants, IndexArray]:
        """Find the trees that took the last of each content, and the place where they did."""
        last = contents.last
        is_last = last == np.arange(len(last))
        width = drawn.shape[1]
        taken = (np.arange(width) < sizes[:, None]) & is_last[drawn]
        flat = np.flatnonzero(taken)
        left_out = drawn.ravel()[flat]
        order = np.argsort(left_out, kind="stable")
        rows, first = np.unique(left_out[order], return_index=True)
        at = np.full(len(last), -1, dtype=np.intp)
        at[rows] = np.arange(len(rows))
        flat = flat[order]
        indptr = np.append(first, len(flat))
        return cls(rows.astype(np.intp), indptr, flat // width, at[last]), flat % width

    def __len__(self) -> int:
        return len(self.trees)


@dataclass(eq=False)
class LeaveOneOutForests(ResampledEnsemble):
    """Every forest on D without a row, with one seed: each equals `fit_forest` on these rows.

    Attributes
    ----------
    plan : Plan
    calibration : Calibration
    full : Forest
        A(D).
    other_base : Forest or None
        The trees that a model has unless they took its row; None where they are those of A(D), as
        they are unless n and n - 1 rows give trees of different sizes.
    recipe : Recipe
        That of every model.
    variants : Variants
    regrown : Forest or None
        The trees that replace others, in the order of `variants`; None after a basic fit.
    path_sums : int array of shape (n,)
        c_i before it is turned into a score: for every i the sum of the path lengths of X_i in
        the trees of the model without row i.
    n_jobs : int or None
        Threads for scoring.
    """

    plan: Plan
    calibration: Calibration
    full: Forest
    other_base: Forest | None
    recipe: Recipe
    variants: Variants
    regrown: Forest | None
    path_sums: IntArray
    n_jobs: int | None = None

    @property
    def base(self) -> Forest:
        """The trees that a model has where they did not draw its row."""
        return self.full if self.other_base is None else self.other_base

    @property
    def retained(self) -> bool:
        """Whether the trees that replace others are kept."""
        return self.regrown is not None

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of every leave-one-out model, (n, rows)."""
        if self.regrown is None:
            raise ReconformError(
                "a basic fit keeps only the forest fitted on all rows; fit with variant='plus' for "
                "the scores of every model."
            )
        regrown, some, base = self.regrown, self.variants, self.base
        leaves = base.leaves(X)
        total = base.lengths_at(leaves).sum(axis=0)
        sums = np.empty((len(some.rows) + 1, len(X)), dtype=np.int64)
        sums[-1] = total  # model -1

        def add(start: int, stop: int) -> None:
            for low, high in pieces(start, stop, CHUNK_MODELS):
                indptr = some.indptr[low : high + 1]
                trees = slice(indptr[0], indptr[-1])
                own, replaced = regrown.only(trees).arrays, some.trees[trees]
                known = base.arrays, leaves, total, X
                sums_with_replaced(own, indptr - indptr[0], replaced, *known, sums[low:high])

        run_blocks(add, len(some.rows), n_jobs=self.n_jobs, work=len(some) * len(X) * WALK)
        return conformity(sums[some.model], len(base), base.psi)

    def full_scores(self, X: FloatArray) -> FloatArray:
        """Scores of A(D)."""
        return self.full.scores(X, n_jobs=self.n_jobs)


def fit_leave_one_out(
    X: FloatArray,
    plan: Plan,
    recipe_for: Callable[[int], Recipe],
    seed: np.random.SeedSequence,
    *,
    n_jobs: int | None = None,
) -> LeaveOneOutForests:
    """Fit the forest on D without row i, for every i; all of them, and A(D), have one seed."""
    n, d = X.shape
    recipe, whole = recipe_for(n - 1), recipe_for(n)
    contents = Contents.of(X, n_jobs=n_jobs)
    draws, whole_draws = TreeDraws.of(recipe, seed, n - 1, d), TreeDraws.of(whole, seed, n, d)
    # One row more than a tree has: it takes the place of the row that is left out.
    drawn = draw_rows(contents, draws.row_streams, recipe.psi + 1, n_jobs=n_jobs).rows
    # Few of very many rows are drawn, and these are needed again and again: they lie together.
    used, at = np.unique(contents.first[drawn], return_inverse=True)
    rows, samples = X[used], at.reshape(drawn.shape).astype(np.int32)
    base = Forest.empty(recipe.n_trees, recipe.psi)
    base.grow(rows, samples, draws, n_jobs=n_jobs)
    if recipe == whole and np.array_equal(draws.sizes, whole_draws.sizes):
        full, other_base = base, None
    else:
        full = fit_forest(X, None, whole, seed, contents=contents, n_jobs=n_jobs)
        other_base = base

    variants, places = Variants.of(drawn, draws.sizes, contents)
    keep = plan.variant != "basic"
    regrown = Forest.empty(len(variants), recipe.psi) if keep else None
    # What X_i gains when model i replaces a tree: its path in the new one minus that in the old.
    gains = np.empty(len(variants), dtype=np.int64)

    columns = np.arange(recipe.psi)

    def regrow(start: int, stop: int) -> None:
        for low, high in pieces(start, stop, max(1, DRAWN_AT_ONCE // recipe.psi)):
            some, place = variants.trees[low:high], places[low:high]
            left_out = samples[some, place].astype(np.int64)
            others = samples[some[:, None], columns + (columns >= place[:, None])]
            trees = base.only(some)
            trees.grow(rows, others, draws.only(some), leaving=left_out)
            if regrown is not None:
                regrown.thresholds[low:high] = trees.thresholds
                regrown.features[low:high] = trees.features
                regrown.lengths[low:high] = trees.lengths
            gains[low:high] = trees.paired_lengths(np.arange(high - low), rows, left_out)
            gains[low:high] -= base.paired_lengths(some, rows, left_out)

    run_blocks(regrow, len(variants), n_jobs=n_jobs, work=len(variants) * GROWTH)
    path_sums = base.path_sums(X, n_jobs=n_jobs)
    if len(variants):
        gain = np.append(np.add.reduceat(gains, variants.indptr[:-1]), 0)  # 0 for model -1
        path_sums += gain[variants.model]
    scores = conformity(path_sums, recipe.n_trees, recipe.psi)
    calibration = Calibration(scores, *plan.membership)
    return LeaveOneOutForests(
        plan, calibration, full, other_base, recipe, variants, regrown, path_sums, n_jobs
    )


# --- full-conformal ------------------------------------------------------------------------------


@dataclass(eq=False)
class EnteredForest(EnteredEnsemble):
    """A forest on D and x for every new row x; it equals `fit_forest` on both, bit for bit.

    Attributes
    ----------
    calibration : Calibration
        Scores of D in the base forest; the ranks do not use them.
    recipe : Recipe
        That of a forest on n + 1 rows.
    base : Forest
        Trees on the rows of D with the smallest hashes: those that a new row enters give way.
    draws : TreeDraws
        Those of a forest on n + 1 rows.
    limits, last : arrays of shape (trees,)
        Hash and number of the last row of a tree, which x must come before to enter; -1 where
        every row enters.
    reference, totals : arrays of shape (n, d) and (n,)
        D, and its path lengths in the base trees, added up.
    samples : int array of shape (trees, min(psi, n))
        The rows of the trees, in the order of hashes.
    n_jobs : int or None
        Threads for ranking.
    """

    calibration: Calibration
    recipe: Recipe
    base: Forest
    draws: TreeDraws
    limits: UInt64Array
    last: Int32Array
    reference: FloatArray
    totals: IntArray
    samples: Int32Array
    n_jobs: int | None = None

    sign = 1

    @property
    def fitted_on(self) -> FloatArray:
        """D."""
        return self.reference

    def refits_for(self, within: int) -> int:
        """Some of them: anomalies in the model make lists of one model far too short."""
        return max(1, MOST_ROWS // len(self.reference))

    def on(self, reference: FloatArray) -> EnteredForest:
        """Grow trees on other rows, by the same draws."""
        return _grown_full(reference, self.recipe, self.draws, self.n_jobs)

    def limits_of_parts(self) -> tuple[UInt64Array, UInt64Array, Int32Array]:
        """Streams of the trees, and hash and number of their last rows."""
        return self.draws.row_streams, self.limits, self.last

    def sums_of(self, X: FloatArray) -> IntArray:
        """Path lengths in the base trees, added up."""
        return self.base.path_sums(X, n_jobs=self.n_jobs)

    def scores_of(self, sums: IntArray) -> FloatArray:
        """Scores from path sums."""
        return conformity(sums, self.recipe.n_trees, self.recipe.psi)

    def entered(self, together: FloatArray, rows: IndexArray, trees: IndexArray) -> Forest:
        """Tree ``trees[k]`` with row ``rows[k]`` in it; new rows are behind D in `together`."""
        draws, n_pairs = self.draws.only(trees), np.arange(len(trees))
        listed = np.zeros((len(trees), self.recipe.psi), dtype=np.int32)
        listed[:, : self.samples.shape[1]] = self.samples[trees]
        listed[n_pairs, draws.sizes - 1] = rows
        own = self.base.only(trees)
        own.grow(together, listed, draws, leaving=self.last[trees].astype(np.int64))
        return own

    def sums_with(self, new: FloatArray, X: FloatArray, totals: IntArray) -> IntArray:
        """Path sums of rows X in the forests on D and a new row, (new, X)."""
        models, trees = np.nonzero(self.entries(new)[1])
        indptr = np.searchsorted(models, np.arange(len(new) + 1))
        used, replaced = np.unique(trees, return_inverse=True)
        base, together = self.base.only(used), np.vstack([self.reference, new])
        known = base.arrays, base.leaves(X), totals, X
        sums = np.empty((len(new), len(X)), dtype=np.int64)
        most = int(np.diff(indptr).max(initial=1))
        step = max(1, CHUNK_NODES // (most * self.base.lengths.shape[1]))

        def add(start: int, stop: int) -> None:
            for low, high in pieces(start, stop, step):
                pairs = slice(indptr[low], indptr[high])
                own = self.entered(together, len(self.reference) + models[pairs], trees[pairs])
                indices, places = indptr[low : high + 1] - pairs.start, replaced[pairs]
                sums_with_replaced(own.arrays, indices, places, *known, sums[low:high])

        work = len(trees) * (GROWTH + len(X) * WALK)
        run_blocks(add, len(new), n_jobs=self.n_jobs, work=work)
        return sums


def fit_full_forest(
    X: FloatArray, recipe: Recipe, seed: np.random.SeedSequence, *, n_jobs: int | None = None
) -> EnteredForest:
    """Grow and score the base forest, by the recipe of a forest on n + 1 rows."""
    n, d = X.shape
    return _grown_full(X, recipe, TreeDraws.of(recipe, seed, n + 1, d), n_jobs)


def _grown_full(
    X: FloatArray, recipe: Recipe, draws: TreeDraws, n_jobs: int | None
) -> EnteredForest:
    n, contents = len(X), Contents.of(X, n_jobs=n_jobs)
    taken = draw_rows(contents, draws.row_streams, min(recipe.psi, n), n_jobs=n_jobs)
    samples = contents.first[taken.rows]
    sizes = np.minimum(draws.sizes, n)
    base = Forest.empty(recipe.n_trees, recipe.psi)
    base.grow(X, samples, replace(draws, sizes=sizes), n_jobs=n_jobs)
    totals, last = base.path_sums(X, n_jobs=n_jobs), (np.arange(len(sizes)), sizes - 1)
    limits, rows = taken.hashes[last], np.where(draws.sizes > n, -1, samples[last])
    calibration = reference_calibration(conformity(totals, recipe.n_trees, recipe.psi))
    known = recipe, base, draws, limits, rows.astype(np.int32)
    return EnteredForest(calibration, *known, X, totals, samples, n_jobs)
