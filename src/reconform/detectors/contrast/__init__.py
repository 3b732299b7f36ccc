"""Contrast: a row is unusual if it is far from reference rows, and near to other new rows.

Model files have the rows; neighbours are looked up again when they are first needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import FloatArray, RankArray
from ...ensemble import Ensemble
from ...errors import ReconformError, check_count
from ...methods import Plan
from ...records import JOBS, ROWS, SUMS, DetectorRecord, Record, ascending, check_reference, require
from ..base import Attribution, ModelDetector, by_differences, nearest, nth_nearest
from .ensembles import ContrastModel, FullContrast


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
