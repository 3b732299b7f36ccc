"""kNN: a row is unusual if its nearest reference rows are far away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from ...arrays import FloatArray
from ...ensemble import Ensemble
from ...errors import ReconformError, check_count, unknown_choice
from ...methods import Plan
from ...records import (
    FLOAT,
    INT,
    JOBS,
    ROWS,
    Array,
    DetectorRecord,
    Maybe,
    Named,
    OneOf,
    Record,
    ascending,
    check_kept,
    check_reference,
    require,
)
from ..base import (
    Attribution,
    ModelDetector,
    by_differences,
    distance_in_words,
    nearest,
    nth_nearest,
)
from .ensembles import (
    FullNeighbours,
    KNNModel,
    LeaveOneOut,
    OneTable,
    neighbours_averaged,
    score_table,
    tabulate,
)
from .search import (
    FORMULAS,
    Formula,
    TreeSearch,
    WideSearch,
    _directions,
    make_search,
    neighbours_among,
    tree_of,
)

METHODS = ("largest", "mean", "median")

# Metrics that are roots of a sum over features of differences, raised to a power.
POWERS = {"euclidean": 2.0, "l2": 2.0, "sqeuclidean": 2.0}
POWERS |= {"manhattan": 1.0, "cityblock": 1.0, "l1": 1.0}


class KNN(ModelDetector):
    """Distance to the nearest neighbours (PyOD's ``KNN``), with all models from one search.

    Parameters
    ----------
    contamination : float, default=0.1
        Share of the training rows that `predict` calls outliers. Has no influence on conformal
        p-values.
    n_neighbors : int, default=5
        Neighbours to look at.
    method : {"largest", "mean", "median"}, default="largest"
        How their distances become one number.
    algorithm : {"auto", "kd_tree", "ball_tree", "brute"}, default="auto"
        How neighbours are searched: by a tree, or by a matrix product for wide Euclidean data
        (``"brute"``; ``"auto"`` chooses). Changes the time, never a number.
    leaf_size : int, default=30
        Rows in a leaf of the tree. Changes the time, never a number.
    metric : str, default="minkowski"
        "minkowski", "euclidean", "sqeuclidean", "manhattan", "chebyshev" or "cosine"; also "l1",
        "l2", "cityblock" and "infinity". For any other give PyOD's ``KNN`` as the detector.
    p : float, default=2
        Power of the Minkowski distance.
    scale : {"none", "robust", "direction"}, default="none"
        With ``"robust"`` every feature is divided by a power of two near to its spread among the
        rows of a model (the distance of the quartiles), so that its unit hardly matters.
        With ``"direction"`` every row is then divided by its length.
    n_jobs : int or None, default=None
        Threads, as in joblib. Inside a `ConformalDetector` its own `n_jobs` counts, if it has one.

    Attributes
    ----------
    offset_ : float
        `score_samples` below it is an outlier. As in PyOD, taken from training rows that are not
        their own neighbours.
    n_features_in_ : int
    feature_names_in_ : array of str

    See Also
    --------
    reconform.ConformalDetector

    Notes
    -----
    `score_samples` is minus the distance: small = anomalous. Nothing is random. Two rows of zeros
    are at cosine distance 0 from each other (1 in PyOD), and 1 from all other rows.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform.detectors.knn import KNN
    >>> knn = KNN(n_neighbors=2).fit([[0.0], [1.0], [2.0], [4.0]])
    >>> knn.score_samples([[1.5], [9.0]])
    array([-0.5, -7. ])
    """

    def __init__(
        self,
        contamination: float = 0.1,
        n_neighbors: int = 5,
        method: str = "largest",
        *,
        algorithm: str = "auto",
        leaf_size: int = 30,
        metric: str = "minkowski",
        p: float = 2,
        scale: str = "none",
        n_jobs: int | None = None,
    ) -> None:
        self.contamination = contamination
        self.n_neighbors = n_neighbors
        self.method = method
        self.algorithm = algorithm
        self.leaf_size = leaf_size
        self.metric = metric
        self.p = p
        self.scale = scale
        self.n_jobs = n_jobs

    in_threads = True

    @classmethod
    def takes(cls, detector: Any) -> bool:
        """Say whether an object is PyOD's KNN, with a metric for which `from_pyod` is its twin.

        Parameters
        ----------
        detector : object

        Returns
        -------
        bool

        Examples
        --------
        >>> from sklearn.neighbors import LocalOutlierFactor
        >>> KNN.takes(LocalOutlierFactor())
        False
        """
        # By name: PyOD is optional. Exactly: a subclass may compute something else.
        kind = type(detector)
        if (kind.__module__, kind.__name__) != ("pyod.models.knn", "KNN"):
            return False
        known = isinstance(detector.metric, str) and detector.metric in {*FORMULAS, "minkowski"}
        return known and not detector.metric_params

    @classmethod
    def from_pyod(cls, detector: Any) -> Self:
        """Make the native twin of a ``pyod.models.knn.KNN`` object: same parameters and numbers.

        Parameters
        ----------
        detector : pyod.models.knn.KNN
            Only its parameters are read, fitted or not. The numbers are the same for the metrics
            that `takes` accepts.

        Returns
        -------
        KNN
        """
        if type(detector).__module__ != "pyod.models.knn":
            raise ReconformError(
                f"detector must be a pyod.models.knn.KNN object; got {detector!r}."
            )
        return super().from_pyod(detector)

    def _among(self, n: int, m: int) -> Self:
        """With enough neighbours that anomalies do not make each other normal."""
        count = neighbours_among(self.n_neighbors, n, m)
        among: Self = clone(self).set_params(n_neighbors=count)
        return among

    def _fit_together(
        self, X: FloatArray, plan: Plan, seeds: Sequence[np.random.SeedSequence], verbose: int
    ) -> Ensemble | None:
        if plan.row.augments:
            self._check_rows(plan.n, "the reference")
            return FullNeighbours.fit(self._model(X))
        if plan.left_out is not None:
            self._check_rows(plan.n - 1, "every model, fitted on all rows but one,")
            return LeaveOneOut.fit(self._model(X), X, plan)
        for k, train in enumerate(plan.train):
            self._check_rows(len(train), f"model {k}")
        if plan.full:
            full = self._model(X)
            multiplicity, width = tabulate(plan, full.high)
            # Searching on their own, the models would look up this many neighbours together.
            if width <= full.high * plan.n_models:
                return OneTable.fit(full, X, plan, multiplicity, width)
        return None  # one model, or many on very small sets

    def _carried(self, x: FloatArray, rows: FloatArray) -> Attribution | None:
        """By the distances to the neighbours that the score is the mean of, if they are sums."""
        powers = {"minkowski": self.p, **POWERS}
        power = powers.get(self.metric)
        if power is None or not np.isfinite(power):
            return None
        low, high = neighbours_averaged(self.method, min(self.n_neighbors, len(rows)))
        near = rows[nearest(x, rows, high, power)[low - 1 :]]
        which = f"{nth_nearest(high)} reference row"
        if low < high:
            which = f"{len(near)} of the nearest reference rows"
        return by_differences(x, near, f"{distance_in_words(power)} to {which}", power)

    def _model(self, X: FloatArray) -> KNNModel:
        count = check_count("n_neighbors", self.n_neighbors, least=1)
        if self.method not in METHODS:
            raise unknown_choice("method", self.method, METHODS)
        search = make_search(
            X,
            metric=self.metric,
            p=self.p,
            algorithm=self.algorithm,
            leaf_size=check_count("leaf_size", self.leaf_size, least=1),
        )
        return KNNModel(search, *neighbours_averaged(self.method, count), self.n_jobs)

    def _check_rows(self, n: int, whose: str) -> None:
        count = check_count("n_neighbors", self.n_neighbors, least=1)
        if n < count:
            raise ReconformError(
                f"`n_neighbors={count}` needs at least {count} training rows, and {whose} has "
                f"n_samples = {n}. Use fewer neighbours, or larger training sets."
            )

    def _fit_rows(self, X: FloatArray, seed: np.random.SeedSequence) -> None:
        self._check_rows(len(X), "this model")
        super()._fit_rows(X, seed)

    def training_scores(self, model: Any, X: FloatArray) -> FloatArray:
        """Score the rows that a model was fitted on, each by its nearest other rows."""
        # A row among n has n - 1 neighbours; a model of n_neighbors rows is one short for its own.
        low, high = neighbours_averaged(self.method, min(self.n_neighbors, len(X) - 1))
        own = np.arange(len(X), dtype=np.int32)
        distances, _ = model.search.nearest(X, high, own=own, n_jobs=self.n_jobs)
        return score_table(distances, low, high)


# --- neighbours ----------------------------------------------------------------------------------


def _check_formula(formula: Formula, d: int) -> None:
    require(formula.power > 0 and formula.root > 0, "the power of a distance must be positive")


def _check_tree(search: TreeSearch, d: int) -> None:
    columns = d if search.formula.embed is None else d + 1
    require(len(search.rows) and search.rows.shape[1] == columns, "rows have the wrong shape")
    # Among distances that are no numbers there are not as many nearest ones as were asked for.
    require(np.isfinite(search.rows).all(), "a row is not finite")
    require(search.leaf_size > 0, f"leaf_size is {search.leaf_size}")


def _tree_cost(search: TreeSearch) -> int:
    """The last leaf is filled up to its size."""
    return search.leaf_size * int(search.rows.shape[1])


def _check_wide(search: WideSearch, d: int) -> None:
    require(search.exact.formula.power == 2, "only squared distances can be proposed by a product")
    require(len(search.middle) == search.exact.rows.shape[1], "the middle has the wrong shape")
    require(np.isfinite(search.middle).all(), "the middle is not finite")


FORMULA = Record(
    "Formula",
    Formula,
    {"power": FLOAT, "root": FLOAT, "embed": Maybe(Named(directions=_directions))},
    _check_formula,
)
TREE = Record(
    "TreeSearch",
    TreeSearch,
    {"formula": FORMULA, "rows": Array("f8", ndim=2), "leaf_size": INT},
    _check_tree,
    cost=_tree_cost,
)
WIDE = Record("WideSearch", WideSearch, {"exact": TREE, "middle": Array("f8", ndim=1)}, _check_wide)
SEARCH = OneOf(TREE, WIDE)


def _check_knn(model: KNNModel, d: int) -> None:
    enough = 1 <= model.low <= model.high <= len(tree_of(model.search).rows)
    require(enough, "a model looks at more neighbours than it has rows")


def _knn_cost(model: KNNModel) -> int:
    """Neighbours are put in order one after the other, and moved by blocks."""
    return model.high * model.high // 16


KNN_MODEL = Record(
    "KNNModel",
    KNNModel,
    {"search": SEARCH, "low": INT, "high": INT, "n_jobs": JOBS},
    _check_knn,
    cost=_knn_cost,
)


def _check_leave_one_out(ensemble: LeaveOneOut, d: int) -> None:
    n = len(tree_of(ensemble.full.search).rows)
    one = ensemble.plan.left_out is not None
    require(one and n == ensemble.plan.n, "a row has no model")
    require(ensemble.full.high < n, "a model looks at more neighbours than it has rows")


def _check_table(ensemble: OneTable, d: int) -> None:
    n, table = len(tree_of(ensemble.full.search).rows), ensemble.multiplicity
    check_kept(table, ensemble.plan)
    require(n == ensemble.plan.n and 1 <= ensemble.width <= n, "the table has the wrong size")
    if table is not None:
        require(table.shape == (n, ensemble.plan.n_models), "the table has the wrong shape")
        counts = table.sum(axis=0, dtype="u8")
        require((counts >= ensemble.full.high).all(), "a model has too few neighbours")


def _check_full_neighbours(ensemble: FullNeighbours, d: int) -> None:
    n, high = ensemble.near.shape
    check_reference(n, ensemble)
    require(n == len(tree_of(ensemble.search).rows), "a row has no neighbours")
    require(1 <= ensemble.low <= high <= n, "rows have the wrong number of neighbours")
    require(ensemble.root > 0 and (ensemble.near >= 0).all(), "a distance is not one")
    require(ascending(ensemble.near.T), "neighbours are not in order")


KNN_RECORD = DetectorRecord(
    "KNN",
    {"_fitted": KNN_MODEL},
    models=(KNN_MODEL,),
    ensembles=(
        Record(
            "LeaveOneOut",
            LeaveOneOut,
            {"full": KNN_MODEL},
            _check_leave_one_out,
            cost=lambda ensemble: ensemble.full.high**2,  # each neighbour is left out in turn
        ),
        Record(
            "OneTable",
            OneTable,
            {"full": KNN_MODEL, "multiplicity": Maybe(Array("u1", "u4", ndim=2)), "width": INT},
            _check_table,
        ),
        Record(
            "FullNeighbours",
            FullNeighbours,
            {"search": SEARCH, "root": FLOAT, "near": ROWS, "low": INT, "n_jobs": JOBS},
            _check_full_neighbours,
        ),
    ),
)
