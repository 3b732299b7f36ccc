"""LOF: a row is unusual if the rows around it lie much closer together than it does to them.

Model files have the rows; who is near to whom is looked up again when it is first needed, with the
same result. So there are no indices in a file that compiled code would follow.

One model, and one per new row by local repairs of that on D.

A row that joins changes the neighbours of the rows it is near to; then the densities of these and
of rows that have them as neighbours; then the scores of these and of rows that have those as
neighbours. Everything else stays. What is repaired is added up in the order of a fit from scratch,
so scores are the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Self

import numpy as np
from sklearn.base import clone

from ...arrays import FloatArray, IndexArray, Int32Array, RankArray
from ...content import scores_by_content, sorted_by_content
from ...ensemble import AugmentedScores, Ensemble, augmented_blocks, reference_calibration
from ...errors import ReconformError, check_count
from ...methods import Plan
from ...parallel import run_blocks
from ...records import INT, JOBS, ROWS, SUMS, DetectorRecord, Record, check_reference, require
from ...statistics.ranks import BLOCK_BYTES, Calibration, Ranks
from ..base import Attribution, ModelDetector, by_differences, nearest
from ..knn.search import SPARED, Search, make_search, neighbours_among, over_nodes, tree_of
from . import kernels
from .kernels import Neighbours, New


@dataclass(frozen=True, eq=False)
class Graph:
    """D in the order of its contents, who is near to whom, and the scores of D.

    Attributes
    ----------
    X : float array of shape (n, d)
    k : int
        Neighbours that make a score.
    search : Search
        D, by squared distances.
    near : Neighbours
        The k nearest other rows of every row.
    n_jobs : int or None
        Threads; never changes a number.
    """

    X: FloatArray
    k: int
    search: Search
    near: Neighbours
    n_jobs: int | None

    @classmethod
    def of(cls, X: FloatArray, k: int, n_jobs: int | None = None) -> Self:
        """Look up k neighbours of every row of D, in order, and score it among the others.

        Examples
        --------
        >>> import numpy as np
        >>> Graph.of(np.array([[0.0], [1.0], [2.0], [9.0]]), 2).near.scores.round(2)
        array([-0.88, -1.33, -0.88, -4.37])
        """
        n = len(X)
        search = make_search(X, metric="sqeuclidean")
        squares, rows = np.full((n, k), np.inf), np.full((n, k), n, dtype=np.int32)
        found = min(k, n - 1)
        if found:
            own = np.arange(n, dtype=np.int32)
            table = nearest_settled(search, X, found, own=own, n_jobs=n_jobs)
            squares[:, :found], rows[:, :found] = table
        distances = np.sqrt(squares)
        by_neighbour = np.argsort(rows.ravel(), kind="stable")
        indptr = np.searchsorted(rows.ravel()[by_neighbour], np.arange(n + 1)).astype(np.int64)
        near_to = (by_neighbour[: indptr[-1]] // k).astype(np.int32)
        if found < k:
            fitted = np.zeros(n), np.zeros(n), np.zeros(n)
        else:
            fitted = kernels.fit_scores(rows, distances)
        near = Neighbours(squares, distances, rows, indptr, near_to, *fitted)
        return cls(X, k, search, near, n_jobs)

    def nearest(self, X: FloatArray, width: int) -> tuple[FloatArray, Int32Array]:
        """Squared distances of new rows to their neighbours in D, and which they are."""
        return nearest_settled(self.search, X, width, n_jobs=self.n_jobs)

    def score(self, X: FloatArray) -> FloatArray:
        """Score new rows by the model on D."""
        scores, near = np.empty(len(X)), self.near
        step = max(1, BLOCK_BYTES // (16 * self.k))
        for first in range(0, len(X), step):
            block = slice(first, first + step)
            squares, rows = self.nearest(X[block], self.k)
            found = rows, np.sqrt(squares), self.k
            scores[block] = kernels.score_new(*found, near.reach, near.density)
        return scores


def nearest_settled(
    search: Search,
    X: FloatArray,
    width: int,
    *,
    own: Int32Array | None = None,
    n_jobs: int | None = None,
) -> tuple[FloatArray, Int32Array]:
    """Find the nearest rows; among rows at one distance the first ones.

    Parameters
    ----------
    search : Search
        By squared distances, of rows in the order of their contents: then the choice among rows
        at one distance does not depend on how they came.
    X : float array of shape (m, d)
    width : int
        Not more than there are rows (besides the row itself).
    own : int array of shape (m,), optional
        For rows that are searched in: which one, so that a row is not its own neighbour.
    n_jobs : int, optional

    Returns
    -------
    squares, rows : arrays of shape (m, width)
        Sorted by distance, then by row.

    Examples
    --------
    >>> import numpy as np
    >>> search = make_search(np.array([[0.0], [2.0], [2.0], [4.0]]), metric="sqeuclidean")
    >>> nearest_settled(search, np.array([[2.0], [1.0]]), 1)[1]
    array([[1],
           [0]], dtype=int32)
    """
    exact = tree_of(search)
    look_up = min(width + 1, len(exact.rows) - (own is not None))
    squares, rows = search.nearest(X, look_up, own=own, n_jobs=n_jobs)
    if look_up == width:
        return squares, rows
    tied = np.flatnonzero(squares[:, width - 1] == squares[:, width])
    squares, rows = squares[:, :width].copy(), rows[:, :width].copy()
    if len(tied):
        queries = exact.embed(X)
        itself = np.full(len(X), -1, dtype=np.int32) if own is None else own
        tree, first = exact.tree, _first_rows(exact.tree[1])
        kernel = partial(kernels.settle, queries, itself, *tree, first, tied, squares, rows)
        work = len(tied) * exact.rows.size / SPARED
        run_blocks(kernel, len(tied), n_jobs=n_jobs, work=work)
    return squares, rows


def _first_rows(ids: Int32Array) -> RankArray:
    """The first row in every node of a tree; `ids` as in `build_tree`."""
    in_leaves = np.where(ids >= 0, ids, np.iinfo(np.int32).max).min(axis=1)
    return over_nodes(in_leaves.astype(np.int64), np.minimum)


@dataclass(eq=False)
class LOFModel:
    """One model.

    Attributes
    ----------
    X : float array of shape (n, d)
        The training rows, in the order of their contents.
    k : int
        Neighbours, fewer than there are rows.
    n_jobs : int or None
        Threads; never changes a number.
    """

    X: FloatArray
    k: int
    n_jobs: int | None

    in_threads = True

    @classmethod
    def of(cls, X: FloatArray, n_neighbors: int, n_jobs: int | None) -> Self:
        """Fit a model on rows in any order, with all neighbours that there are."""
        return cls(sorted_by_content(X)[0], min(n_neighbors, len(X) - 1), n_jobs)

    @cached_property
    def graph(self) -> Graph:
        """Neighbours and scores of the training rows."""
        return Graph.of(self.X, self.k, self.n_jobs)

    def score_samples(self, X: FloatArray) -> FloatArray:
        """Score rows, small = anomalous."""
        return self.graph.score(X)

    def training_scores(self, X: FloatArray) -> FloatArray:
        """Score the training rows, in whatever order they come, each among the others."""
        return scores_by_content(X, sorted_by_content(X)[1], self.graph.near.scores)


# --- full-conformal ------------------------------------------------------------------------------


@dataclass(eq=False)
class FullLOF(Ensemble):
    """A model on D and x for every new row x, as changes to the one on D.

    Attributes
    ----------
    calibration : Calibration
        Scores of D without any new row, for showing.
    X : float array of shape (n, d)
        D, in the order of its contents.
    k : int
        Neighbours, of n + 1 rows: at most n.
    order : int array of shape (n,)
        Where the rows of X stood in the reference.
    n_jobs : int or None
        Threads; never changes a number.
    """

    calibration: Calibration
    X: FloatArray
    k: int
    order: IndexArray
    n_jobs: int | None = None

    @classmethod
    def fit(cls, X: FloatArray, n_neighbors: int, n_jobs: int | None = None) -> Self:
        """Look up the neighbours of every row of D.

        Examples
        --------
        >>> import numpy as np
        >>> full = FullLOF.fit(np.array([[0.0], [1.0], [2.0], [4.0]]), 2)
        >>> full.ranks(np.array([[1.5], [9.0]])).at_most
        array([3, 1])
        """
        model = LOFModel.of(X, n_neighbors, n_jobs)
        k, order = min(n_neighbors, len(X)), sorted_by_content(X)[1]
        calibration = reference_calibration(model.training_scores(X))
        ensemble = cls(calibration, model.X, k, order, n_jobs)
        if k == model.k:
            ensemble.graph = model.graph
        return ensemble

    @cached_property
    def graph(self) -> Graph:
        """Neighbours in D, as many as a score among n + 1 rows needs."""
        return Graph.of(self.X, self.k, self.n_jobs)

    @cached_property
    def _by_feature(self) -> FloatArray:
        return np.ascontiguousarray(self.X.T)

    @cached_property
    def _ordered(self) -> FloatArray:
        return np.sort(self.graph.near.scores)

    def _new(self, X: FloatArray) -> New:
        squares, rows = self.graph.nearest(X, self.k)
        places = positions(self.X, X)
        return New(np.ascontiguousarray(X), places, squares, np.sqrt(squares), rows)

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank every new row x among D, all of them scored with x there; there are no variants."""
        at_most, below = np.empty((2, len(X)), dtype=np.int64)
        t, new = np.empty(len(X)), self._new(X)
        known = self._by_feature, self.graph.near, self._ordered
        kernel = partial(kernels.rank_full, new, *known, at_most, below, t)
        run_blocks(kernel, len(X), n_jobs=self.n_jobs)
        return Ranks(at_most, below if strictly else None, t)

    def augmented_scores(self, X: FloatArray, rows: IndexArray) -> Iterator[AugmentedScores]:
        """Score all rows with each of some new rows there, as refits do, bit for bit."""
        new, (starts, stops) = self._new(X), _runs(self.X)
        at = np.minimum(np.searchsorted(starts, new.positions), len(starts) - 1)
        equal = (self.X[starts[at]] == X).all(axis=1) & (starts[at] == new.positions)
        copies = np.where(equal, stops[at] - starts[at], 0)
        several = np.column_stack([starts, stops])[stops - starts > 1]
        known = np.ascontiguousarray(X.T), copies, several, self._by_feature, self.graph.near
        kernel = partial(kernels.augmented_full, new, *known)
        return augmented_blocks(
            kernel, rows, len(self.X), len(X), n_jobs=self.n_jobs, order=self.order
        )


def _runs(ordered: FloatArray) -> tuple[RankArray, RankArray]:
    """Where rows that equal each other begin and end, of rows in the order of their contents."""
    first = np.ones(len(ordered), dtype=bool)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    starts = np.flatnonzero(first).astype(np.int64)
    return starts, np.append(starts[1:], len(ordered))


def positions(ordered: FloatArray, X: FloatArray) -> RankArray:
    """Say before which row each row of X belongs by its content: ahead of rows that equal it.

    Examples
    --------
    >>> import numpy as np
    >>> positions(np.array([[0.0], [2.0]]), np.array([[2.0], [-1.0], [3.0]]))
    array([1, 0, 2])
    """
    # The new rows come first and the sort is stable, so they are ahead of their equals.
    order = sorted_by_content(np.vstack([X, ordered]))[1]
    is_old = order >= len(X)
    before = np.empty(len(X), dtype=np.int64)
    before[order[~is_old]] = np.cumsum(is_old)[~is_old]
    return before


class LOF(ModelDetector):
    """Local outlier factor (scikit-learn's ``LocalOutlierFactor``), without refits for full.

    N(e) are the k nearest rows of e, and the reach of e is the distance of the last of them. The
    density of e is 1 / (mean over o in N(e) of max(distance, reach of o) + 1e-10). The score is
    minus the mean density of N(e) divided by that of e: about -1 for a row like its neighbours,
    small for one that lies apart from them.

    Parameters
    ----------
    contamination : float, default=0.1
        Share of the training rows that `predict` calls outliers. Has no influence on conformal
        p-values.
    n_neighbors : int, default=20
        k. Where a model has fewer other rows, all of them, as in scikit-learn.
    scale : {"none", "robust", "direction"}, default="none"
        With ``"robust"`` every feature is divided by a power of two near to its spread among the
        rows of a model (the distance of the quartiles), so that its unit hardly matters.
        With ``"direction"`` every row is then divided by its length.
    n_jobs : int or None, default=None
        Threads, as in joblib. Inside a `ConformalDetector` its own `n_jobs` counts, if it has one.

    Attributes
    ----------
    offset_ : float
        `score_samples` below it is an outlier. Taken from training rows that are not their own
        neighbours.
    n_features_in_ : int
    feature_names_in_ : array of str

    See Also
    --------
    sklearn.neighbors.LocalOutlierFactor : The same detector, one model at a time.

    Notes
    -----
    Distances are Euclidean. Without equal distances the scores are those of scikit-learn with
    ``novelty=True``, up to 1e-12. Of rows at equal distances the one with the smaller content
    comes first here, and in scikit-learn whichever its search meets first; so a model here is a
    function of the multiset of its rows, and their order changes no bit.

    Full-conformal ranks (``method="full"``) need no refits: a row that joins changes only rows
    within three steps from neighbour to neighbour, and these are scored anew. The numbers are those
    of separate fits, bit for bit.

    References
    ----------
    Breunig et al. (2000), "LOF: identifying density-based local outliers", SIGMOD.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform.detectors.lof import LOF
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> LOF().fit(X).predict([[0.0, 0.0], [6.0, 6.0]])
    array([ 1, -1])
    """

    def __init__(
        self,
        contamination: float = 0.1,
        n_neighbors: int = 20,
        *,
        scale: str = "none",
        n_jobs: int | None = None,
    ) -> None:
        self.contamination = contamination
        self.n_neighbors = n_neighbors
        self.scale = scale
        self.n_jobs = n_jobs

    in_threads = True

    def _among(self, n: int, m: int) -> Self:
        """With enough neighbours that anomalies do not make each other normal."""
        count = neighbours_among(self.n_neighbors, n, m)
        among: Self = clone(self).set_params(n_neighbors=count)
        return among

    def _fit_together(
        self, X: FloatArray, plan: Plan, seeds: Sequence[np.random.SeedSequence], verbose: int
    ) -> Ensemble | None:
        count = self._count()
        if plan.row.augments:
            return FullLOF.fit(X, count, self.n_jobs)
        return None

    def _carried(self, x: FloatArray, rows: FloatArray) -> Attribution | None:
        """By the distances to all neighbours, which the density of the row is made of."""
        near = rows[nearest(x, rows, min(self._count(), len(rows)))]
        how = f"the squared distances to the {len(near)} nearest reference rows"
        return by_differences(x, near, how)

    def _count(self) -> int:
        return check_count("n_neighbors", self.n_neighbors, least=1)

    def _model(self, X: FloatArray) -> LOFModel:
        count = self._count()
        if len(X) < 2:
            raise ReconformError(
                "LOF compares a row with its neighbours and needs at least 2 training rows, and a "
                f"model has n_samples = {len(X)}. Use larger training sets."
            )
        return LOFModel.of(X, count, self.n_jobs)


def _check_loaded(X: FloatArray, d: int) -> None:
    require(len(X) >= 2 and X.shape[1] == d, "rows have the wrong shape")
    require(np.isfinite(X).all(), "a row is not finite")
    # Ties between neighbours are settled by the order of the rows.
    require((sorted_by_content(X)[1] == np.arange(len(X))).all(), "rows are not in order")


def _check_model(model: LOFModel, d: int) -> None:
    _check_loaded(model.X, d)
    require(1 <= model.k < len(model.X), "a model looks at more neighbours than it has rows")


def _check_full(ensemble: FullLOF, d: int) -> None:
    _check_loaded(ensemble.X, d)
    check_reference(len(ensemble.X), ensemble)
    require(1 <= ensemble.k <= len(ensemble.X), "rows have the wrong number of neighbours")
    n = len(ensemble.X)
    every = len(ensemble.order) == n and (np.sort(ensemble.order) == np.arange(n)).all()
    require(every, "a row has no place")


def _cost(some: LOFModel | FullLOF) -> int:
    """Every row has a table of its neighbours, their distances and who has it in turn."""
    return 3 * len(some.X) * some.k


LOF_MODEL = Record(
    "LOFModel", LOFModel, {"X": ROWS, "k": INT, "n_jobs": JOBS}, _check_model, cost=_cost
)

LOF_RECORD = DetectorRecord(
    "LOF",
    {"_fitted": LOF_MODEL},
    models=(LOF_MODEL,),
    ensembles=(
        Record(
            "FullLOF",
            FullLOF,
            {"X": ROWS, "k": INT, "order": SUMS, "n_jobs": JOBS},
            _check_full,
            cost=_cost,
        ),
    ),
)
