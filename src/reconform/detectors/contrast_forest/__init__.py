"""Contrast forest: a row is unusual if trees that tell new rows from reference rows call it new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays import FloatArray
from ...ensemble import Ensemble
from ...errors import check_count
from ...methods import Plan
from ...records import INT, DetectorRecord, Plain, Record, check_reference, require
from ..base import Attribution, ModelDetector
from ..contrast import MODEL, Contrast
from ..contrast.ensembles import ContrastModel, FullContrast
from .ensembles import FullContrastForest

# More trees than this a file does not ask for.
MOST_TREES = 1 << 16


class ContrastForest(ModelDetector):
    """A forest that learns to tell the new rows from the reference, for ``method="full"``.

    Anomalies that have something in common can be learned: trees grow to separate reference rows
    from new ones, and rows that they call new are anomalous. Normal new rows look like reference
    rows and cannot be told apart. Every row is scored by trees that did not draw it.

    Parameters
    ----------
    contamination : float, default=0.1
        Share of the training rows that `predict` of the detector itself calls outliers. Has no
        influence on conformal p-values.
    n_estimators : int, default=200
        Trees.
    scale : {"none", "robust", "direction"}, default="robust"
        Units in which distances are measured where there is no forest (see Notes); as in `KNN`.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the trees. Inside a `ConformalDetector` its own counts.
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
    reconform.detectors.Contrast : By distances; better where new rows are few.

    Notes
    -----
    Only `ConformalDetector.discover` has a batch to learn from. `p_values`, `score_samples` and
    `predict` judge every row alone, as `Contrast` does. So does `discover` for fewer than 20 new
    or 40 reference rows, and where normal new rows seem to come in clusters.

    The p-values of `discover` are exact, P(p <= α) <= α, if reference rows and the row are
    exchangeable *given the other new rows* (independent rows are). What is learned is the same
    whichever of the reference rows and the row is the new one, and no tree scores a row it drew.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform import ConformalDetector
    >>> rng = np.random.default_rng(0)
    >>> normal, new = rng.normal(size=(400, 8)), rng.normal(size=(200, 8))
    >>> new[:20, :2] = rng.uniform(1.8, 2.5, size=(20, 2))  # not far away, in two columns of eight
    >>> for detector in ("knn", "contrast-forest"):
    ...     cad = ConformalDetector(detector, method="full", random_state=0).fit(normal)
    ...     print(cad.discover(new, fdr=0.2).mask[:20].sum())
    4
    19
    """

    uses_batch = True

    def __init__(
        self,
        contamination: float = 0.1,
        n_estimators: int = 200,
        *,
        scale: str = "robust",
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.contamination = contamination
        self.n_estimators = n_estimators
        self.scale = scale
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit_together(
        self, X: FloatArray, plan: Plan, seeds: Sequence[np.random.SeedSequence], verbose: int
    ) -> Ensemble:
        trees = check_count("n_estimators", self.n_estimators, least=1)
        contrast = FullContrast.fit(X, self._contrast(len(X))._counts(len(X)), self.n_jobs)
        return FullContrastForest(contrast.calibration, contrast.model, trees, seeds[-1])

    def _contrast(self, n: int) -> Contrast:
        """What ranks rows where there is no forest."""
        return Contrast(n_neighbors=min(5, n), n_jobs=self.n_jobs)

    def _carried(self, x: FloatArray, rows: FloatArray) -> Attribution | None:
        return self._contrast(len(rows))._carried(x, rows)

    def _model(self, X: FloatArray) -> ContrastModel:
        return self._contrast(len(X))._model(X)


def _check_full(ensemble: FullContrastForest, d: int) -> None:
    check_reference(len(ensemble.model.X), ensemble)
    require(0 < ensemble.trees <= MOST_TREES, "a forest has too many trees")


def _cost(ensemble: FullContrastForest) -> int:
    """Every tree draws from all rows."""
    return ensemble.trees * len(ensemble.model.X)


CONTRAST_FOREST_RECORD = DetectorRecord(
    "ContrastForest",
    {"_fitted": MODEL},
    ensembles=(
        Record(
            "FullContrastForest",
            FullContrastForest,
            {"model": MODEL, "trees": INT, "seed": Plain()},
            _check_full,
            cost=_cost,
        ),
    ),
)
