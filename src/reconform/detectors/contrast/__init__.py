"""Contrast: a row is unusual if it is far from reference rows, and near to other new rows.

Model files have the rows; neighbours are looked up again when they are first needed.

Full-conformal ranks by contrast: a row against the reference and against the other new rows.

For new row x_j let E be D and x_j, and T the other new rows. A row e of E has the score

    s(e) = log d_k(e; T) - 2 log d_k(e; E without e),       small = anomalous,

with d_k the distance to the k-th nearest; for several k they are added up. Scores of E do not
depend on which of its rows is new, so P(p <= α) <= α holds exactly if D and x_j are exchangeable
*given the other new rows*. Nothing is fitted for a row: x_j is a neighbour to some rows of D, and
is taken out of the neighbours among the new rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Self

import numpy as np

from ...arrays import FloatArray, IndexArray, RankArray
from ...ensemble import AugmentedScores, Ensemble, blocks_of, reference_calibration
from ...errors import ReconformError, check_count
from ...methods import Plan
from ...parallel import run_blocks
from ...records import JOBS, ROWS, SUMS, DetectorRecord, Record, ascending, check_reference, require
from ...statistics.chances import guard_limits
from ...statistics.ranks import Calibration, Ranks
from ..base import Attribution, ModelDetector, by_differences, nearest, nth_nearest
from ..knn.search import Search, make_search, nearest_of_own
from .kernels import augmented_batch, rank_alone, rank_batch


@dataclass(eq=False)
class ContrastModel:
    """The reference rows, and which neighbours matter.

    Attributes
    ----------
    X : float array of shape (n, d)
    ks : int array
        In increasing order; the last is at most n.
    n_jobs : int or None
        Threads; never changes a number.
    """

    X: FloatArray
    ks: RankArray
    n_jobs: int | None

    @property
    def width(self) -> int:
        """The last neighbour that matters."""
        return int(self.ks[-1])

    @cached_property
    def search(self) -> Search:
        """D, by squared distances."""
        return make_search(self.X, metric="sqeuclidean")

    @cached_property
    def near(self) -> FloatArray:
        """Squared distances of the rows of D to their neighbours in D; infinity beyond the last."""
        near = np.full((len(self.X), self.width), np.inf)
        found = min(self.width, len(self.X) - 1)
        if found:
            near[:, :found], _ = nearest_of_own(self.search, found, n_jobs=self.n_jobs)
        return near

    def neighbours(self, X: FloatArray) -> FloatArray:
        """Squared distances of new rows to their neighbours in D."""
        return self.search.nearest(X, self.width, n_jobs=self.n_jobs)[0]

    def score(self, squares: FloatArray) -> FloatArray:
        """Minus the distance to the k-th neighbour; for several k, their geometric mean.

        Examples
        --------
        >>> import numpy as np
        >>> ContrastModel(np.zeros((3, 1)), np.array([1, 3]), None).score(np.array([[1.0, 4, 16]]))
        array([-2.])
        """
        distances = np.sqrt(squares[:, self.ks - 1])
        if len(self.ks) == 1:
            return np.asarray(-distances[:, 0])
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.exp(np.log(distances).mean(axis=1))
        return np.asarray(-np.where((distances == 0).any(axis=1), 0.0, mean))

    def score_samples(self, X: FloatArray) -> FloatArray:
        """Score rows, small = anomalous."""
        return self.score(self.neighbours(X))

    def training_scores(self, X: FloatArray) -> FloatArray:
        """Score the rows of D, each among the others; by those that there are."""
        short = self.near if len(self.X) > self.width else self.near[:, :-1]
        if not short.shape[1]:
            return np.zeros(len(self.X))
        ks = np.unique(np.minimum(self.ks, short.shape[1]))
        return ContrastModel(self.X, ks, self.n_jobs).score(short)


# What the kernels take: new rows and D feature by feature, and four tables of squared distances.
Tables = tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]


@dataclass(eq=False)
class FullContrast(Ensemble):
    """Scores of D and x for every new row x, without fitting any model.

    Attributes
    ----------
    calibration : Calibration
        Scores of D without any new row, for showing.
    model : ContrastModel
        D.
    """

    calibration: Calibration
    model: ContrastModel
    # With fewer there are seldom enough anomalies for one to have several among its neighbours.
    enough_new = 300

    @property
    def ranks_rows(self) -> str:
        """The rank of a row in a list depends on the other new rows."""
        return "batch"

    @classmethod
    def fit(cls, X: FloatArray, ks: RankArray, n_jobs: int | None = None) -> Self:
        """Look up the neighbours of every row of D.

        Parameters
        ----------
        X : float array of shape (n, d)
            D.
        ks : int array
            In increasing order; the last is at most n.
        n_jobs : int, optional

        Returns
        -------
        FullContrast

        Examples
        --------
        >>> import numpy as np
        >>> contrast = FullContrast.fit(np.arange(10.0)[:, None], np.array([1]))
        >>> new = np.array([[4.5], [12.0], [12.1], [0.5]])
        >>> contrast.batch_ranks(new).at_most
        array([10,  1,  1, 10])
        """
        model = ContrastModel(X, ks, n_jobs)
        return cls(reference_calibration(model.training_scores(X)), model)

    @cached_property
    def _by_feature(self) -> FloatArray:
        return np.ascontiguousarray(self.model.X.T)

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank every new row by itself, by its distance to reference rows."""
        model, reference = self.model, self._by_feature
        queries, squares = np.ascontiguousarray(X), model.neighbours(X)
        at_most, below = np.empty((2, len(X)), dtype=np.int64)
        known = reference, model.near, squares, model.ks
        run_blocks(
            partial(rank_alone, queries, *known, at_most, below), len(X), n_jobs=model.n_jobs
        )
        return Ranks(at_most, below if strictly else None, model.score(squares))

    def batch_ranks(
        self, X: FloatArray, *, rows: IndexArray | None = None, strictly: bool = False
    ) -> Ranks:
        """Rank new rows by contrast, or each by itself if there are no more of them than `width`.

        Scores are those of `ranks`, by the distance to reference rows.
        """
        wanted = np.arange(len(X)) if rows is None else rows
        if len(X) <= self.model.width:
            return self.ranks(X[wanted], strictly=strictly)
        limits = guard_limits(len(self.model.X), len(X), self.model.width)
        return self.rank_batch(X, wanted, limits, strictly)

    def rank_batch(
        self, X: FloatArray, rows: IndexArray, limits: FloatArray, strictly: bool
    ) -> Ranks:
        """Rank some rows of a batch of at least `width` + 1 rows.

        Parameters
        ----------
        X : float array of shape (m, d)
            The batch.
        rows : int array
        limits : float array of shape (width, m + 1)
            Of the guard; without rows for no guard.
        strictly : bool

        Returns
        -------
        Ranks
        """
        X = np.ascontiguousarray(X)
        tables = self._tables(X)
        at_most, below = np.empty((2, len(rows)), dtype=np.int64)
        clustered = np.empty(len(rows), dtype=np.bool_)
        found = at_most, below, clustered
        kernel = partial(rank_batch, X, rows, *tables, self.model.ks, limits, *found)
        run_blocks(kernel, len(rows), n_jobs=self.model.n_jobs)
        scores = self.model.score(tables[3][rows])
        return Ranks(at_most, below if strictly else None, scores, clustered=clustered)

    def _tables(self, X: FloatArray) -> Tables:
        """Rows by feature, and squared distances to neighbours: of D in D, T in D, D in T, T in T.

        Infinity where there are fewer new rows than neighbours.
        """
        model, width = self.model, self.model.width
        d_in_t, t_in_t = (np.full((rows, width + 1), np.inf) for rows in (len(model.X), len(X)))
        others = make_search(np.ascontiguousarray(X), metric="sqeuclidean")
        found, n_jobs = min(width + 1, len(X)), model.n_jobs
        d_in_t[:, :found] = others.nearest(model.X, found, n_jobs=n_jobs)[0]
        found = min(width + 1, len(X) - 1)
        if found:
            t_in_t[:, :found] = nearest_of_own(others, found, n_jobs=n_jobs)[0]
        by_feature = np.ascontiguousarray(X.T), self._by_feature
        return *by_feature, model.near, model.neighbours(X), d_in_t, t_in_t

    def augmented_scores(self, X: FloatArray, rows: IndexArray) -> Iterator[AugmentedScores]:
        """Score all rows by contrast, x_j standing among D and not among the other new rows."""
        X = np.ascontiguousarray(X)
        m, (n, _), ks = len(X), self.model.X.shape, self.model.ks
        use, tables = m > self.model.width, self._tables(X)
        limits = guard_limits(n, m, self.model.width) if use else np.empty((0, m + 1))
        for block in blocks_of(rows, n + m):
            own, others = np.empty((len(block), n + 1)), np.empty((len(block), m))
            clustered = np.empty(len(block), dtype=np.bool_)
            found = own, others, clustered
            kernel = partial(augmented_batch, X, block, *tables, ks, limits, use, *found)
            run_blocks(kernel, len(block), n_jobs=self.model.n_jobs)
            yield AugmentedScores(block, own, others, clustered)


class Contrast(ModelDetector):
    """Distance to reference rows against distance to the other new rows, for ``method="full"``.

    Anomalies that resemble each other stand out: a row is anomalous if its k-th nearest reference
    row is far, and the more so if its k-th nearest other new row is near. `discover` compares
    log d_k(row; other new rows) - 2 log d_k(row; reference rows), which is small for anomalies;
    for several k the sum over k.

    Parameters
    ----------
    contamination : float, default=0.1
        Share of the training rows that `predict` of the detector itself calls outliers. Has no
        influence on conformal p-values.
    n_neighbors : int or sequence of int, default=5
        k, or several.
    scale : {"none", "robust", "direction"}, default="none"
        With ``"robust"`` every feature is divided by a power of two near to its spread among the
        reference rows and the row that is ranked (the distance of the quartiles), so that its unit
        hardly matters.
        With ``"direction"`` every row is then divided by its length.
    n_jobs : int or None, default=None
        Threads, as in joblib. Inside a `ConformalDetector` its own `n_jobs` counts, if it has one.

    Attributes
    ----------
    offset_ : float
        `score_samples` below it is an outlier.
    n_features_in_ : int
    feature_names_in_ : array of str

    See Also
    --------
    reconform.detectors.KNN : Without the other new rows.

    Notes
    -----
    Only `ConformalDetector.discover` uses the batch, and the p-values that it used are in its
    result. `p_values`, `score_samples` and `predict` judge every row alone, and a row alone has no
    other new rows: they are those of `KNN` (for several k, of the product of the distances), and
    so is `discover` for batches of at most k rows. The scores that are shown beside p-values
    are minus the distance to the k-th reference row, too (for several k, the geometric mean).

    The p-values of `discover` are exact, P(p <= α) <= α, if reference rows and the row are
    exchangeable *given the other new rows*, as independent rows are. Normal new rows that come in
    clusters which the reference does not have (copies, repeated measurements of one thing) break
    that, and contrast would flag them. So a guard, fixed beforehand, looks for new rows that lie
    closer to each other than to any reference row, in places where reference rows are common;
    where it finds more than chance and 5% explain, rows are ranked as by `KNN`, and
    `Discoveries.verdict` says so. Clusters below that share are not seen.

    Distances are Euclidean. Time grows as m (n + m) for n reference and m new rows.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform import ConformalDetector
    >>> rng = np.random.default_rng(0)
    >>> normal, new = rng.normal(size=(200, 2)), rng.normal(size=(50, 2))
    >>> new[:10] = rng.normal(1.6, 0.05, size=(10, 2))  # not far away, and alike
    >>> for detector in ("knn", "contrast"):
    ...     cad = ConformalDetector(detector, method="full").fit(normal)
    ...     print(cad.discover(new, fdr=0.2).mask[:10].sum())
    0
    10
    """

    def __init__(
        self,
        contamination: float = 0.1,
        n_neighbors: int | Sequence[int] = 5,
        *,
        scale: str = "none",
        n_jobs: int | None = None,
    ) -> None:
        self.contamination = contamination
        self.n_neighbors = n_neighbors
        self.scale = scale
        self.n_jobs = n_jobs

    uses_batch = True

    def _fit_together(
        self, X: FloatArray, plan: Plan, seeds: Sequence[np.random.SeedSequence], verbose: int
    ) -> Ensemble:
        return FullContrast.fit(X, self._counts(len(X)), self.n_jobs)

    def _carried(self, x: FloatArray, rows: FloatArray) -> Attribution | None:
        """By the distance to reference rows; the other new rows only say how much it counts."""
        counts = self._counts(len(rows))
        near = rows[nearest(x, rows, int(counts[-1]))[counts - 1]]
        which = " and ".join(nth_nearest(int(k)) for k in counts)
        how = f"the squared distance to {which} reference row"
        return by_differences(x, near, how)

    def _counts(self, n: int) -> RankArray:
        """The numbers of neighbours, in order; refuse what n rows cannot have."""
        given = self.n_neighbors
        several = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
        counts = sorted({check_count("n_neighbors", k, least=1) for k in several})
        if not counts:
            raise ReconformError("n_neighbors must be a number or some numbers; got none.")
        if counts[-1] > n:
            raise ReconformError(
                f"`n_neighbors={given}` needs at least {counts[-1]} reference rows; got "
                f"n_samples = {n}. Use fewer neighbours, or a larger reference."
            )
        return np.array(counts, dtype=np.int64)

    def _model(self, X: FloatArray) -> ContrastModel:
        return ContrastModel(X, self._counts(len(X)), self.n_jobs)


def _check_model(model: ContrastModel, d: int) -> None:
    require(len(model.X) and model.X.shape[1] == d, "rows have the wrong shape")
    require(np.isfinite(model.X).all(), "a row is not finite")
    require(len(model.ks) and ascending(model.ks, strictly=True), "neighbours are not in order")
    enough = model.ks[0] >= 1 and model.ks[-1] <= len(model.X)
    require(enough, "a model looks at more neighbours than it has rows")


def _check_full(ensemble: FullContrast, d: int) -> None:
    check_reference(len(ensemble.model.X), ensemble)


def _cost(model: ContrastModel) -> int:
    """Every row has a table of its neighbours."""
    return 2 * len(model.X) * int(model.ks.max(initial=0))


MODEL = Record(
    "ContrastModel",
    ContrastModel,
    {"X": ROWS, "ks": SUMS, "n_jobs": JOBS},
    _check_model,
    cost=_cost,
)

CONTRAST_RECORD = DetectorRecord(
    "Contrast",
    {"_fitted": MODEL},
    models=(MODEL,),
    ensembles=(Record("FullContrast", FullContrast, {"model": MODEL}, _check_full),),
)
