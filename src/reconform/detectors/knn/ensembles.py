"""All models of a plan from one search: leave-one-out, any plan, and one model per new row.

A resampled model of `KNN` is only a way to count the rows of D, so its score for a row follows
from the row's neighbours in D. Distances are taken from the same search and added up in the same
order as a separate fit would, so the scores are the same to the last bit.

Full-conformal: every one of n + 1 rows is scored by its nearest other rows. A new row x has a score
by its neighbours in D. It changes the scores of those rows of D that it is nearer to than their
last neighbour, and they are few. So the rank of x is one look-up of its score among the
leave-one-out scores of D, corrected for these rows. A tree that knows how far the neighbourhoods in
each of its branches reach finds them without measuring all distances; for metrics without a tree
every distance to x is measured, once. Nothing is random and every row is treated alike, so
P(p <= α) <= α holds exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ...arrays import BoolArray, FloatArray, IndexArray, Int32Array, RankArray
from ...ensemble import (
    AugmentedScores,
    Ensemble,
    ResampledEnsemble,
    augmented_blocks,
    blocks_of,
    ranked_in_parts,
    reference_calibration,
)
from ...methods import Plan
from ...parallel import run_blocks
from ...statistics.ranks import (
    BLOCK_BYTES,
    Calibration,
    Ranks,
    calibrate,
    calibrate_beside,
    ranks_among,
    reduction,
)
from .kernels import augmented_scores, correct_by_tree, score_neighbours, walk
from .search import (
    SPARED,
    Search,
    TreeSearch,
    WideSearch,
    nearest_of_own,
    reach_in_tree,
    tree_of,
    without_root,
)

Multiplicity = npt.NDArray[np.unsignedinteger[Any]]

# Cells of the reference rows of all worlds for which lists are made anew, for one new row.
MOST_CELLS = 300_000


def neighbours_averaged(method: str, n_neighbors: int) -> tuple[int, int]:
    """Say the mean of which distances, from the low-th to the high-th smallest, is the score.

    Examples
    --------
    >>> [neighbours_averaged(method, 4) for method in ("largest", "mean", "median")]
    [(4, 4), (1, 4), (2, 3)]
    """
    if method == "largest":
        return n_neighbors, n_neighbors
    if method == "mean":
        return 1, n_neighbors
    return (n_neighbors + 1) // 2, n_neighbors // 2 + 1


def score_table(distances: FloatArray, low: int, high: int) -> FloatArray:
    """Score rows from the sorted distances to their neighbours, small = anomalous.

    Examples
    --------
    >>> import numpy as np
    >>> score_table(np.array([[1.0, 2.0, 6.0]]), 1, 3)
    array([-3.])
    """
    total = np.zeros(len(distances))
    for t in range(low - 1, high):  # in order: NumPy's own sum depends on the shape
        total += distances[:, t]
    return -(total / (high - low + 1))


def score_without_each(distances: FloatArray, low: int, high: int) -> FloatArray:
    """Score rows without their first, second, ... high-th neighbour: (rows, high).

    Examples
    --------
    >>> import numpy as np
    >>> score_without_each(np.array([[1.0, 2.0, 6.0]]), 1, 2)
    array([[-4. , -3.5]])
    """
    without = np.arange(high)
    total = np.zeros((len(distances), high))
    for t in range(low - 1, high):
        total += np.where(without <= t, distances[:, t + 1, None], distances[:, t, None])
    return -(total / (high - low + 1))


@dataclass(frozen=True, eq=False)
class KNNModel:
    """One model: rows to search in, and which distances make the score."""

    search: Search
    low: int
    high: int
    n_jobs: int | None

    in_threads = True

    def score_samples(self, X: FloatArray) -> FloatArray:
        """Score rows, small = anomalous."""
        scores = np.empty(len(X))
        for some in blocks_of(np.arange(len(X)), 2 * self.high):
            distances, _ = self.search.nearest(X[some], self.high, n_jobs=self.n_jobs)
            scores[some] = score_table(distances, self.low, self.high)
        return scores


class NeighbourEnsemble(ResampledEnsemble):
    """Models whose rows are counted in a search of A(D), from which D and a new row follow, too."""

    full: KNNModel

    @cached_property
    def _with_each(self) -> FullNeighbours:
        return FullNeighbours.fit(self.full)

    def augmented_scores(self, X: FloatArray, rows: IndexArray) -> Iterator[AugmentedScores]:
        """Score all rows with each new row among D, without fitting any model."""
        return self._with_each.augmented_scores(X, rows)


@dataclass(eq=False)
class LeaveOneOut(NeighbourEnsemble):
    """All leave-one-out models, or some of them, in one search.

    Without row i a test row has another score only if i is one of its neighbours, and then it is
    the score with the next neighbour in its place. So ranks are one look-up and a few corrections.

    Attributes
    ----------
    plan : Plan
    calibration : Calibration
    full : KNNModel
        A(D), which has all that the other models need: they are kept whatever the variant.
    """

    plan: Plan
    calibration: Calibration
    full: KNNModel

    @classmethod
    def fit(cls, full: KNNModel, X: FloatArray, plan: Plan) -> Self:
        """Score every row that is left out by its neighbours other than itself."""
        assert plan.left_out is not None
        rows = X if plan.leaves_one_out else X[plan.left_out]
        own = plan.left_out.astype(np.int32)
        distances, _ = full.search.nearest(rows, full.high, own=own, n_jobs=full.n_jobs)
        scores = score_table(distances, full.low, full.high)
        return cls(plan, calibrate_beside(plan, scores, reduction(plan.aggregate)), full)

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of every resampled model, (models, rows)."""
        t, rows, without = self._scores(X)
        scores = np.tile(t, (self.plan.n, 1))
        np.put_along_axis(scores, rows.T, without.T, axis=0)
        return scores if self.plan.leaves_one_out else scores[self.plan.left_out]

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank new rows by one look-up of their score, corrected for their neighbours."""
        variant = self.plan.variant if variant is None else variant
        # The median over all models is the score that all but a few of them share.
        shared = self.plan.aggregate == "median" and self.plan.n_models > 2 * self.full.high
        if variant == "pooled" and not shared:
            return super().ranks(X, variant=variant, strictly=strictly)
        width = 4 * self.full.high
        return ranked_in_parts(X, width, lambda some: self._ranks(some, variant, strictly))

    def _ranks(self, X: FloatArray, variant: str, strictly: bool) -> Ranks:
        t, rows, without = self._scores(X)
        c = self._by_row[rows]

        def count(strictly: bool) -> RankArray:
            ranks = ranks_among(self.calibration.sorted_scores, t, strictly=strictly)
            if variant == "plus":
                compare = np.less if strictly else np.less_equal
                ranks -= compare(c, t[:, None]).sum(axis=1)
                ranks += compare(c, without).sum(axis=1)
            return ranks

        return Ranks(count(False), count(True) if strictly else None, t)

    @cached_property
    def _by_row(self) -> FloatArray:
        """Scores by row of D; NaN, which is not smaller than anything, where there is no model."""
        scores = np.full(self.plan.n, np.nan)
        scores[self.calibration.rows] = self.calibration.scores
        return scores

    def _scores(self, X: FloatArray) -> tuple[FloatArray, Int32Array, FloatArray]:
        """Scores by A(D), the neighbours that matter, and the scores without each of them."""
        low, high = self.full.low, self.full.high
        distances, rows = self.full.search.nearest(X, high + 1, n_jobs=self.full.n_jobs)
        t = score_table(distances, low, high)
        return t, rows[:, :high], score_without_each(distances, low, high)


def tabulate(plan: Plan, high: int) -> tuple[Multiplicity, int]:
    """Write the models of a plan as multiplicities, and guess how many neighbours they need.

    Parameters
    ----------
    plan : Plan
    high : int
        A model's score depends on this many neighbours; so no row counts more often.

    Returns
    -------
    multiplicity : unsigned int array of shape (n, K)
    width : int
        Among so many neighbours nearly every model finds enough: the sum of their multiplicities
        is `high` even three standard deviations below its mean.
    """
    dtype = np.uint8 if high < 256 else np.uint32
    multiplicity: Multiplicity = np.empty((plan.n, plan.n_models), dtype=dtype)
    width = 0.0
    for k in range(plan.n_models):
        counts = np.minimum(plan.multiplicity(k), high)
        multiplicity[:, k] = counts
        mean, spread = float(counts.mean()), 3.0 * float(counts.std())
        root = (spread + np.sqrt(spread**2 + 4.0 * mean * high)) / (2.0 * mean)
        width = max(width, root**2)
    return multiplicity, min(int(np.ceil(width)), plan.n - 1)


@dataclass(eq=False)
class OneTable(NeighbourEnsemble):
    """All models of a plan, from one table of neighbours in D.

    Attributes
    ----------
    plan : Plan
    calibration : Calibration
    full : KNNModel
        A(D).
    multiplicity : unsigned int array of shape (n, K), or None
        How often each model has each row; None after a basic fit, which needs A(D) only.
    width : int
        Neighbours to look up at first.
    """

    plan: Plan
    calibration: Calibration
    full: KNNModel
    multiplicity: Multiplicity | None
    width: int

    @classmethod
    def fit(
        cls, full: KNNModel, X: FloatArray, plan: Plan, multiplicity: Multiplicity, width: int
    ) -> Self:
        """Score every row by the models that held it out."""
        own = np.arange(plan.n, dtype=np.int32)
        scores = _score_by_table(full, X, own, multiplicity, width)
        held_out = [scores[held, k] for k, held in enumerate(plan.held_out)]
        calibration = calibrate(plan, held_out, reduction(plan.aggregate))
        return cls(
            plan, calibration, full, None if plan.variant == "basic" else multiplicity, width
        )

    @property
    def retained(self) -> bool:
        """Whether the multiplicities of the models are kept."""
        return self.multiplicity is not None

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of every resampled model, (models, rows)."""
        assert self.multiplicity is not None
        nobody = np.full(len(X), -1, dtype=np.int32)
        return _score_by_table(self.full, X, nobody, self.multiplicity, self.width).T


def _score_by_table(
    full: KNNModel, X: FloatArray, own: Int32Array, multiplicity: Multiplicity, width: int
) -> FloatArray:
    """Score rows by every model that was not fitted on them: (rows, models).

    Where the table ends too early for some model, say because all rows near a row were held out
    together, the row is completed from a table twice as wide.
    """
    scores = np.empty((len(X), multiplicity.shape[1]))
    step = max(1, BLOCK_BYTES // (16 * width))
    for first in range(0, len(X), step):
        block = slice(first, first + step)
        table = full.search.nearest(X[block], width, own=own[block], n_jobs=full.n_jobs)
        short = _walk(full, table, own[block], multiplicity, scores[block])
        left = first + np.flatnonzero(short)
        if len(left):
            widest = len(multiplicity) - int((own[left] >= 0).any())
            scores[left] = _score_by_table(
                full, X[left], own[left], multiplicity, min(2 * width, widest)
            )
    return scores


def _walk(
    full: KNNModel,
    table: tuple[FloatArray, Int32Array],
    own: Int32Array,
    multiplicity: Multiplicity,
    scores: FloatArray,
) -> BoolArray:
    """Write the scores of one block of rows; return where the table was too short."""
    short = np.zeros(len(scores), dtype=np.bool_)
    kernel = partial(walk, *table, own, multiplicity, full.low, full.high, scores, short)
    work = scores.size * table[0].shape[1] / SPARED
    run_blocks(kernel, len(scores), n_jobs=full.n_jobs, work=work)
    return short


# --- full-conformal ------------------------------------------------------------------------------


@dataclass(eq=False)
class FullNeighbours(Ensemble):
    """A model on D and x for every new row x, without fitting any.

    Attributes
    ----------
    calibration : Calibration
        Leave-one-out scores of D without any new row, for showing.
    search : Search
        D, searched in reduced distances: before the root is taken.
    root : float
        A distance is its reduced form to this power.
    near : float array of shape (n, high)
        Reduced distances of the rows of D to their neighbours in D, sorted. Infinity where D is
        one row short; the new row fills the gap.
    low : int
        A score is minus the mean of the low-th to the high-th distance.
    n_jobs : int or None
        Threads; never changes a number.
    """

    calibration: Calibration
    search: Search
    root: float
    near: FloatArray
    low: int
    n_jobs: int | None = None

    @classmethod
    def fit(cls, model: KNNModel) -> Self:
        """Look up the neighbours of every row of D.

        Parameters
        ----------
        model : KNNModel
            A(D), which has the rows of D.

        Returns
        -------
        FullNeighbours

        Examples
        --------
        >>> import numpy as np
        >>> from reconform.detectors.knn.search import make_search
        >>> X = np.array([[0.0], [1.0], [3.0], [4.0]])
        >>> full = FullNeighbours.fit(KNNModel(make_search(X), 2, 2, None))
        >>> full.calibration.scores
        array([-3., -2., -2., -3.])
        >>> full.ranks(np.array([[2.0], [9.0]])).at_most
        array([5, 1])
        """
        search, root = without_root(model.search)
        n, high = len(tree_of(search).rows), model.high
        near = np.full((n, high), np.inf)
        width = min(high, n - 1)
        if width:
            near[:, :width], _ = nearest_of_own(search, width, n_jobs=model.n_jobs)
        # What is shown are scores by as many neighbours as there are: they are finite.
        shown = np.ascontiguousarray(near[:, : max(width, 1)])
        scores = score_neighbours(shown, min(model.low, shown.shape[1]), root)
        return cls(
            reference_calibration(scores), search, root, near, model.low, n_jobs=model.n_jobs
        )

    @property
    def fitted_on(self) -> FloatArray | None:
        """D, unless rows are searched as something else."""
        tree = tree_of(self.search)
        return tree.rows if tree.formula.embed is None else None

    def refits_for(self, within: int) -> int:
        """All if their references have few cells; else none, and the list of one model will do."""
        return within if within * tree_of(self.search).rows.size <= MOST_CELLS else 0

    def on(self, reference: FloatArray) -> FullNeighbours:
        """Search in other rows."""
        tree = tree_of(self.search)
        rooted = TreeSearch(reference, replace(tree.formula, root=self.root), tree.leaf_size)
        search = rooted if tree is self.search else WideSearch(rooted)
        return FullNeighbours.fit(KNNModel(search, self.low, self.high, self.n_jobs))

    @property
    def high(self) -> int:
        """The last neighbour that a score depends on."""
        return int(self.near.shape[1])

    @cached_property
    def scores(self) -> FloatArray:
        """Leave-one-out scores of D; -inf where D is one row short."""
        return score_neighbours(self.near, self.low, self.root)

    @cached_property
    def sorted_scores(self) -> FloatArray:
        """The scores in increasing order."""
        return np.sort(self.scores)

    @cached_property
    def reach(self) -> tuple[FloatArray, FloatArray]:
        """How far neighbourhoods reach: (leaves, leaf_size) of rows, (nodes,) the largest."""
        return reach_in_tree(tree_of(self.search).tree[1], self.near[:, -1])

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank every new row x among D, all of them scored with x there; there are no variants."""
        at_most, below = np.empty((2, len(X)), dtype=np.int64)
        t = np.empty(len(X))
        for rows in blocks_of(np.arange(len(X)), self.high):
            at_most[rows], below[rows], t[rows] = self._rank_block(X[rows])
        return Ranks(at_most, below if strictly else None, t)

    def augmented_scores(self, X: FloatArray, rows: IndexArray) -> Iterator[AugmentedScores]:
        """Score all rows with each new row among D, without fitting any model."""
        near, _ = self.search.nearest(X, self.high, n_jobs=self.n_jobs)
        t = score_neighbours(near, self.low, self.root)
        exact = tree_of(self.search)
        new, power = exact.embed(X), exact.formula.power
        by_feature = np.ascontiguousarray(exact.rows.T), np.ascontiguousarray(new.T)
        tables = *by_feature, self.near, self.scores, near, t, self.low, power, self.root
        return augmented_blocks(
            partial(augmented_scores, new, *tables),
            rows,
            len(self.scores),
            len(X),
            n_jobs=self.n_jobs,
            work_per_row=(exact.rows.size + new.size) / SPARED,
        )

    def _rank_block(self, X: FloatArray) -> tuple[RankArray, RankArray, FloatArray]:
        """1 + #{s_i <= t}, 1 + #{s_i < t} and t; the tree finds the rows of D that change."""
        near, _ = self.search.nearest(X, self.high, n_jobs=self.n_jobs)
        # Ranked as if new rows changed no other score, and then corrected.
        t, c = score_neighbours(near, self.low, self.root), self.sorted_scores
        at_most, below = ranks_among(c, t), ranks_among(c, t, strictly=True)
        exact = tree_of(self.search)
        power, root, low = exact.formula.power, self.root, self.low
        queries, tree, reach = exact.embed(X), exact.tree, self.reach
        known = self.near, self.scores
        kernel = partial(
            correct_by_tree, queries, t, *tree, *reach, *known, low, power, root, at_most, below
        )
        work = len(X) * exact.rows.size / SPARED
        run_blocks(kernel, len(X), n_jobs=self.n_jobs, work=work)
        return at_most, below, t
