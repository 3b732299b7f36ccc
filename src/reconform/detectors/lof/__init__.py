"""LOF: a row is unusual if the rows around it lie much closer together than it does to them.

Model files have the rows; who is near to whom is looked up again when it is first needed, with the
same result. So there are no indices in a file that compiled code would follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from sklearn.base import clone

from ...arrays import FloatArray
from ...content import sorted_by_content
from ...ensemble import Ensemble
from ...errors import ReconformError, check_count
from ...methods import Plan
from ...records import INT, JOBS, ROWS, SUMS, DetectorRecord, Record, check_reference, require
from ..base import Attribution, ModelDetector, by_differences, nearest
from ..knn.search import neighbours_among
from .ensembles import FullLOF, LOFModel


class LOF(ModelDetector):
    """Local outlier factor (scikit-learn's ``LocalOutlierFactor``), without refits.

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
