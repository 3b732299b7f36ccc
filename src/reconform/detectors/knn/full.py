"""Full-conformal kNN: every one of n + 1 rows is scored by its nearest other rows.

A new row x has a score by its neighbours in D. It changes the scores of those rows of D that it is
nearer to than their last neighbour, and they are few. So the rank of x is one look-up of its score
among the leave-one-out scores of D, corrected for these rows. A tree that knows how far the
neighbourhoods in each of its branches reach finds them without measuring all distances; for
metrics without a tree every distance to x is measured, once.

Nothing is random and every row is treated alike, so P(p <= α) <= α holds exactly.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from ...arrays import FloatArray, RankArray
from ...parallel import run_blocks
from ...statistics.ranks import BLOCK_BYTES, Calibration, Ranks, ranks_among
from ...transductive import reference_calibration
from .ensembles import KNNModel
from .full_kernels import correct_by_rows, correct_by_tree, score_neighbours
from .search import PairwiseSearch, Search, TreeSearch, WideSearch, worthwhile_jobs

# 1 + #{s_i <= t}, 1 + #{s_i < t}, t.
Ranked = tuple[RankArray, RankArray, FloatArray]


@dataclass(eq=False)
class FullNeighbours:
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

    shares_draws = False

    @classmethod
    def fit(cls, model: KNNModel, X: FloatArray) -> Self:
        """Look up the neighbours of every row of D.

        Parameters
        ----------
        model : KNNModel
            A(D).
        X : float array of shape (n, d)
            D.

        Returns
        -------
        FullNeighbours

        Examples
        --------
        >>> import numpy as np
        >>> from reconform.detectors.knn.search import make_search
        >>> X = np.array([[0.0], [1.0], [3.0], [4.0]])
        >>> full = FullNeighbours.fit(KNNModel(make_search(X), 2, 2, None), X)
        >>> full.calibration.scores
        array([-3., -2., -2., -3.])
        >>> full.ranks(np.array([[2.0], [9.0]])).at_most
        array([5, 1])
        """
        n, high = len(X), model.high
        search, root = _without_root(model.search)
        near = np.full((n, high), np.inf)
        width = min(high, n - 1)
        if width:
            own = np.arange(n, dtype=np.int32)
            near[:, :width], _ = search.nearest(X, width, own=own, n_jobs=model.n_jobs)
        # What is shown are scores by as many neighbours as there are: they are finite.
        shown = np.ascontiguousarray(near[:, : max(width, 1)])
        scores = score_neighbours(shown, min(model.low, shown.shape[1]), root)
        return cls(
            reference_calibration(scores), search, root, near, model.low, n_jobs=model.n_jobs
        )

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
        ids = _tree_of(self.search).tree[1]
        of_rows = np.where(ids >= 0, self.near[ids, -1], -np.inf)
        of_leaves = of_rows.max(axis=1)
        of_nodes = np.empty(2 * len(ids) - 1)
        nodes = [(0, 0, len(ids))]
        while nodes:  # numbered as in `build_tree`
            node, first, last = nodes.pop()
            of_nodes[node] = of_leaves[first:last].max()
            if last - first > 1:
                middle = (first + last) // 2
                nodes.append((node + 1, first, middle))
                nodes.append((node + 2 * (middle - first), middle, last))
        return of_rows, of_nodes

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank every new row x among D, all of them scored with x there; there are no variants."""
        at_most, below = np.empty((2, len(X)), dtype=np.int64)
        t = np.empty(len(X))
        n, high = self.near.shape
        if isinstance(self.search, PairwiseSearch):
            road, width = self._rank_by_rows, n
            jobs = worthwhile_jobs(self.n_jobs, len(X) * self.search.rows.size)
        else:
            road, width = self._rank_by_tree, high
            jobs = 1  # a block has threads of its own
        step = max(1, BLOCK_BYTES // (8 * width))

        def rank(start: int, stop: int) -> None:
            for first in range(start, stop, step):
                rows = slice(first, min(first + step, stop))
                at_most[rows], below[rows], t[rows] = road(X[rows], first)

        run_blocks(rank, len(X), n_jobs=jobs)
        return Ranks(at_most, below if strictly else None, t)

    def _rank_by_tree(self, X: FloatArray, first: int) -> Ranked:
        """Rank a block of new rows, the tree finding the rows of D that they change."""
        near, _ = self.search.nearest(X, self.near.shape[1], n_jobs=self.n_jobs)
        at_most, below, t = self._look_up(near)
        exact = _tree_of(self.search)
        power, root, low = exact.formula.power, self.root, self.low
        queries, tree, reach = exact.embed(X), exact.tree, self.reach
        known = self.near, self.scores

        def kernel(start: int, stop: int) -> None:
            correct_by_tree(
                queries, t, *tree, *reach, *known, low, power, root, start, stop, at_most, below
            )

        run_blocks(kernel, len(X), n_jobs=worthwhile_jobs(self.n_jobs, len(X) * exact.rows.size))
        return at_most, below, t

    def _rank_by_rows(self, X: FloatArray, first: int) -> Ranked:
        """Rank a block of new rows, the first of which is row `first`, by all its distances."""
        search, high = self.search, self.near.shape[1]
        assert isinstance(search, PairwiseSearch)
        distances = search._measure(search._prepare(X), first)
        near = np.sort(np.partition(distances, high - 1, axis=1)[:, :high], axis=1)
        at_most, below, t = self._look_up(near)
        if callable(search.metric):
            # It need not be the same both ways; the row that is scored comes first.
            new = PairwiseSearch(X, search.metric, search.parameters)
            distances = np.ascontiguousarray(new._measure(search.rows, 0).T)
        correct_by_rows(distances, t, self.near, self.scores, self.low, at_most, below)
        return at_most, below, t

    def _look_up(self, near: FloatArray) -> Ranked:
        """Score new rows by their neighbours; rank them as if they changed no other score."""
        t, c = score_neighbours(near, self.low, self.root), self.sorted_scores
        return ranks_among(c, t), ranks_among(c, t, strictly=True), t


def _without_root(search: Search) -> tuple[Search, float]:
    """Search in reduced distances, and the root that was left out."""
    if isinstance(search, PairwiseSearch):
        return search, 1.0
    reduced = copy.copy(_tree_of(search))
    root = reduced.formula.root
    reduced.formula = replace(reduced.formula, root=1.0)
    return WideSearch(reduced) if isinstance(search, WideSearch) else reduced, root


def _tree_of(search: Search) -> TreeSearch:
    """The tree that answers, or that answers where a matrix product is in doubt."""
    tree = search.exact if isinstance(search, WideSearch) else search
    assert isinstance(tree, TreeSearch)
    return tree
