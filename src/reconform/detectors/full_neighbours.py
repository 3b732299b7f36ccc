"""Full-conformal kNN: every one of n + 1 rows is scored by its nearest other rows.

Adding a new row x to D gives x a score, by its neighbours in D, and changes the scores of those
rows of D that x is nearer to than their last neighbour. These are few. So the rank of x is one
look-up of its score among the leave-one-out scores of D, corrected for them. They are found
without measuring all distances, by a tree that knows how far the neighbourhoods in each of its
branches reach; for metrics without a tree, all distances to x are measured, once.

Nothing is random and every row is treated alike, so P(p <= α) <= α holds exactly.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from ..aggregation import FloatArray
from ..kernels.full_knn import correct_by_rows, correct_by_tree, score_neighbours
from ..pvalues import BLOCK_BYTES, Calibration, RankArray, Ranks, ranks_among
from ..threads import run_blocks
from ..transductive import reference_calibration
from .knn_ensembles import KNNModel
from .neighbours import PairwiseSearch, Search, TreeSearch, WideSearch, worthwhile_jobs


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
        Reduced distances of the rows of D to their neighbours in D, sorted. Infinite where D has
        one row too few; the new row fills the gap.
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
        """Tabulate the neighbours of every row of D.

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
        >>> from reconform.detectors.neighbours import make_search
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
        # What is shown stays finite: if need be, scores by as many neighbours as there are.
        there = near[:, : max(width, 1)]
        shown = score_neighbours(there, min(model.low, there.shape[1]), root)
        calibration = reference_calibration(shown)
        return cls(calibration, search, root, near, model.low, model.n_jobs)
