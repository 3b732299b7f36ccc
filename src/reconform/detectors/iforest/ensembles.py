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

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...arrays import (
    BoolArray,
    FloatArray,
    IndexArray,
    Int32Array,
    IntArray,
    RankArray,
    UInt32Array,
    UInt64Array,
)
from ...content import Contents, draw_rows
from ...content.kernels import entries
from ...ensemble import (
    AugmentedScores,
    Ensemble,
    ResampledEnsemble,
    blocks_of,
    ranked_in_parts,
    reference_calibration,
)
from ...errors import ReconformError
from ...methods import Plan
from ...parallel import run_blocks
from ...statistics.ranks import BLOCK_BYTES, Calibration, Ranks
from .kernels import grow_entered, grow_without, rank_with_entered, sums_with_replaced
from .model import (
    DRAWN_AT_ONCE,
    WALKS_PER_GROWTH,
    Forest,
    Recipe,
    TreeDraws,
    conformity,
    fit_forest,
    grow_forest,
    leaf_lengths,
    pieces,
    worth,
)

# Rows that are ranked at once, and models whose sums are held at once meanwhile.
CHUNK_ROWS = 4096
CHUNK_MODELS = 64

# Nodes of the entered trees that a thread holds at once: some megabytes.
CHUNK_NODES = 1 << 18


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

    @cached_property
    def _sums_of_unaffected(self) -> IntArray:
        """Sorted path sums of the rows whose model is the base forest."""
        return np.sort(self.path_sums[self.variants.model < 0])

    @cached_property
    def _copies(self) -> IntArray:
        """How many rows of D have each of the other models."""
        model = self.variants.model
        return np.bincount(model[model >= 0], minlength=len(self.variants.rows))

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of every leave-one-out model, (n, rows)."""
        leaves = self.base.leaves(X)
        total = self.base.lengths_at(leaves).sum(axis=0)
        affected = np.empty((len(self.variants.rows) + 1, len(X)), dtype=np.int64)
        affected[-1] = total  # model -1

        def replace(start: int, stop: int) -> None:
            for low, high in pieces(start, stop, CHUNK_MODELS):
                affected[low:high] = self._sums(X, leaves, total, low, high)

        self._run(replace, len(X))
        return conformity(affected[self.variants.model], len(self.base), self.base.psi)

    def full_scores(self, X: FloatArray) -> FloatArray:
        """Scores of A(D)."""
        return self.full.scores(X, n_jobs=self.n_jobs)

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank new rows; plus by one look-up for all models that are the base forest.

        All forests have equally many trees and the same psi, so sums of path lengths are compared
        as they are, in integers.
        """
        variant = self.plan.variant if variant is None else variant
        if variant != "plus" or not self.retained:
            return super().ranks(X, variant=variant, strictly=strictly)
        at_most = np.empty(len(X), dtype=np.int64)
        below = np.empty(len(X), dtype=np.int64) if strictly else None
        totals = np.empty(len(X), dtype=np.int64)
        step = max(1, min(CHUNK_ROWS, BLOCK_BYTES // (8 * len(self.base))))
        for low, high in pieces(0, len(X), step):
            chunk = slice(low, high)
            totals[chunk], at_most[chunk], strict = self._paired_ranks(X[chunk], strictly)
            if below is not None:
                below[chunk] = strict
        if self.other_base is not None:
            return Ranks(at_most, below, self.full_scores(X))
        return Ranks(at_most, below, conformity(totals, len(self.full), self.full.psi))

    def _paired_ranks(self, X: FloatArray, strictly: bool) -> tuple[IntArray, RankArray, RankArray]:
        leaves = self.base.leaves(X)
        total = self.base.lengths_at(leaves).sum(axis=0)
        at_most = 1 + np.searchsorted(self._sums_of_unaffected, total, side="right")
        below = 1 + np.searchsorted(self._sums_of_unaffected, total, side="left")
        c = self.path_sums[self.variants.rows, None]
        counts: list[tuple[RankArray, RankArray | int]] = []

        def count(start: int, stop: int) -> None:
            for low, high in pieces(start, stop, CHUNK_MODELS):
                t, copies = self._sums(X, leaves, total, low, high), self._copies[low:high]
                strict = copies @ (c[low:high] < t) if strictly else 0
                counts.append((copies @ (c[low:high] <= t), strict))

        self._run(count, len(X))
        for lax, strict in counts:  # integers: the order of the threads does not matter
            at_most += lax
            below += strict
        return total, at_most, below

    def _sums(
        self, X: FloatArray, leaves: UInt32Array, total: IntArray, start: int, stop: int
    ) -> IntArray:
        """Path sums of rows X in affected models start to stop."""
        if self.regrown is None:
            raise ReconformError(
                "a basic fit keeps only the forest fitted on all rows; fit with variant='plus' for "
                "the scores of every model."
            )
        indptr = self.variants.indptr[start : stop + 1]
        first, last = int(indptr[0]), int(indptr[-1])
        trees = self.regrown.part(first, last)
        sums = np.empty((stop - start, len(X)), dtype=np.int64)
        sums_with_replaced(
            *trees.arrays,
            indptr - first,
            self.variants.trees[first:last],
            *self.base.arrays,
            leaves,
            total,
            X,
            sums,
        )
        return sums

    def _run(self, kernel: Callable[[int, int], None], n_rows: int) -> None:
        jobs = worth(self.n_jobs, len(self.variants) * n_rows)
        run_blocks(kernel, len(self.variants.rows), n_jobs=jobs)


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
    base = grow_forest(rows, recipe, samples, draws, n_jobs)
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

    def regrow(start: int, stop: int) -> None:
        for low, high in pieces(start, stop, max(1, DRAWN_AT_ONCE // recipe.psi)):
            some, place = variants.trees[low:high], places[low:high]
            size = high - low
            trees = Forest.empty(size, recipe.psi) if regrown is None else regrown.part(low, high)
            how = draws.sizes, draws.features, draws.keys, leaf_lengths(recipe.psi)
            grow_without(rows, samples, *how, *base.arrays, some, place, *trees.arrays)
            left_out = samples[some, place].astype(np.intp)
            gains[low:high] = trees.paired_lengths(np.arange(size), rows, left_out)
            gains[low:high] -= base.paired_lengths(some, rows, left_out)

    run_blocks(regrow, len(variants), n_jobs=worth(n_jobs, len(variants) * WALKS_PER_GROWTH))
    path_sums = base.path_sums(X, n_jobs=n_jobs)
    if len(variants):
        gain = np.append(np.add.reduceat(gains, variants.indptr[:-1]), 0)  # 0 for model -1
        path_sums += gain[variants.model]
    scores = conformity(path_sums, recipe.n_trees, recipe.psi)
    calibration = Calibration(scores, *plan.membership)
    return LeaveOneOutForests(
        plan,
        calibration,
        full,
        other_base,
        recipe,
        variants,
        regrown,
        path_sums,
        n_jobs=n_jobs,
    )


# --- full-conformal ------------------------------------------------------------------------------


@dataclass(eq=False)
class EnteredForest(Ensemble):
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
        Hash and row, as a position in `drawn`, of the last row of a tree, which x must come before
        to enter; -1 where every row enters.
    reference : float array of shape (n, d)
        D, by increasing sum.
    sums : int array of shape (n,)
        Path lengths of the rows of D in the base trees, added up, in increasing order.
    drawn : float array of shape (k, d)
        The rows of D that trees took.
    samples : int array of shape (trees, min(psi, n))
        Positions in `drawn`, in the order of hashes.
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
    sums: IntArray
    drawn: FloatArray
    samples: Int32Array
    n_jobs: int | None = None

    @cached_property
    def contents(self) -> Contents:
        """Those of D; a new row's key counts the equal rows among them."""
        return Contents.of(self.reference, n_jobs=self.n_jobs)

    def enters(self, X: FloatArray) -> BoolArray:
        """Which trees every new row enters, (m, trees)."""
        words, keys = self.contents.keys_of_new(X)
        enters = np.empty((len(X), len(self.limits)), dtype=bool)
        hashes = np.empty(enters.shape, dtype=np.uint64)
        limits = self.draws.row_streams, self.limits, self.last, self.drawn.view(np.uint64)
        entries(*limits, keys, words, enters, hashes)
        return enters

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank every new row x among D in the forest on D and x; there are no variants.

        Sums of path lengths are compared as they are, in integers.
        """
        X = np.ascontiguousarray(X, dtype=np.float64)
        return ranked_in_parts(X, 2 * len(self.limits), lambda some: self._ranks(some, strictly))

    def _ranks(self, X: FloatArray, strictly: bool) -> Ranks:
        totals = self.base.path_sums(X, n_jobs=self.n_jobs)
        below, at_most = np.empty_like(totals), np.empty_like(totals)
        enters = self.enters(X)
        trees = self.base.arrays

        def rank(start: int, stop: int) -> None:
            some = slice(start, stop)
            rank_with_entered(
                *self._to_grow(),
                *trees,
                enters[some],
                self.reference,
                self.sums,
                X[some],
                totals[some],
                below[some],
                at_most[some],
            )

        walks = int(enters.sum()) * (WALKS_PER_GROWTH + 2 * len(self.sums))
        run_blocks(rank, len(X), n_jobs=worth(self.n_jobs, walks))
        scores = conformity(totals, self.recipe.n_trees, self.recipe.psi)
        return Ranks(at_most, below if strictly else None, scores)

    def augmented_scores(self, X: FloatArray, rows: IndexArray) -> Iterator[AugmentedScores]:
        """Score all rows in the forest on D and each of some new rows, as `Ensemble` says."""
        X = np.ascontiguousarray(X, dtype=np.float64)
        n, everything = len(self.sums), np.vstack([self.reference, X])
        totals = np.append(self.sums, self.base.path_sums(X, n_jobs=self.n_jobs))
        for block in blocks_of(rows, len(everything)):
            sums = self._sums_with(X[block], everything, totals)
            scores = conformity(sums, self.recipe.n_trees, self.recipe.psi)
            mine = scores[np.arange(len(block)), n + block]
            own = np.column_stack([scores[:, :n], mine])
            yield AugmentedScores(block, own, scores[:, n:], order=self._order)

    @cached_property
    def _order(self) -> IndexArray:
        """Which rows of D those of `reference` are: scores grow with the sums."""
        return np.argsort(self.calibration.scores, kind="stable")

    def _sums_with(self, new: FloatArray, X: FloatArray, totals: IntArray) -> IntArray:
        """Path sums of rows X in the forests on D and a new row, (new, X).

        `totals` are their sums in the base trees: those that a new row enters are replaced.
        """
        models, trees = np.nonzero(self.enters(new))
        indptr = np.searchsorted(models, np.arange(len(new) + 1))
        used, replaced = np.unique(trees, return_inverse=True)
        base = self.base.only(used)
        leaves = base.leaves(X)
        sums = np.empty((len(new), len(X)), dtype=np.int64)
        most = int(np.diff(indptr).max(initial=1))
        step = max(1, CHUNK_NODES // (most * self.base.lengths.shape[1]))

        def add(start: int, stop: int) -> None:
            draws = self._to_grow()
            for low, high in pieces(start, stop, step):
                pairs = slice(indptr[low], indptr[high])
                own = Forest.empty(pairs.stop - pairs.start, self.recipe.psi)
                grow_entered(
                    *draws, *self.base.arrays, new, models[pairs], trees[pairs], *own.arrays
                )
                sums_with_replaced(
                    *own.arrays,
                    indptr[low : high + 1] - pairs.start,
                    replaced[pairs],
                    *base.arrays,
                    leaves,
                    totals,
                    X,
                    sums[low:high],
                )

        walks = len(trees) * (WALKS_PER_GROWTH + len(X))
        run_blocks(add, len(new), n_jobs=worth(self.n_jobs, walks))
        return sums

    def _to_grow(
        self,
    ) -> tuple[FloatArray, Int32Array, IntArray, Int32Array, UInt64Array, IntArray]:
        """What `grow_entered` grows trees from; every thread needs its own."""
        draws = self.draws
        rows = np.vstack([self.drawn, np.empty_like(self.drawn[:1])])
        table = leaf_lengths(self.recipe.psi)
        return rows, self.samples, draws.sizes, draws.features, draws.keys, table


def fit_full_forest(
    X: FloatArray, recipe: Recipe, seed: np.random.SeedSequence, *, n_jobs: int | None = None
) -> EnteredForest:
    """Grow and score the base forest, by the recipe of a forest on n + 1 rows.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(99, 2))
    >>> recipe = Recipe(n_trees=100, psi=20, n_features=2)
    >>> full = fit_full_forest(X, recipe, np.random.SeedSequence(0))
    >>> full.ranks(np.array([[5.0, 5.0]])).at_most
    array([1])
    """
    n, d = X.shape
    contents = Contents.of(X, n_jobs=n_jobs)
    draws = TreeDraws.of(recipe, seed, n + 1, d)
    taken = draw_rows(contents, draws.row_streams, min(recipe.psi, n), n_jobs=n_jobs)
    rows = contents.first[taken.rows]
    sizes = np.minimum(draws.sizes, n)
    base = grow_forest(X, recipe, rows, TreeDraws(draws.keys, draws.features, sizes), n_jobs)
    sums = base.path_sums(X, n_jobs=n_jobs)
    order = np.argsort(sums, kind="stable")
    used, places = np.unique(rows, return_inverse=True)
    samples: Int32Array = places.reshape(rows.shape).astype(np.int32)
    each = np.arange(len(sizes))
    return EnteredForest(
        reference_calibration(conformity(sums, recipe.n_trees, recipe.psi)),
        recipe,
        base,
        draws,
        taken.hashes[each, sizes - 1],
        np.where(draws.sizes > n, -1, samples[each, sizes - 1]).astype(np.int32),
        X[order],
        sums[order],
        X[used],
        samples,
        n_jobs,
    )
