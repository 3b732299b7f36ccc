"""Auto: several detectors are tried, and new rows are judged by those that are chosen for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone

from ...arrays import FloatArray
from ...ensemble import Ensemble, ResampledEnsemble
from ...ensemble.choosing import FullChoice
from ...ensemble.split_choice import (
    CLASSIFIERS,
    ENOUGH_TO_LEARN,
    FEWEST_ROWS,
    SplitChoice,
    held_back,
    plan_of_one,
    trained_on,
)
from ...errors import ReconformError
from ...methods import Plan
from ...parallel import track
from ...records import Detector, DetectorRecord
from ..base import NativeDetector
from ..foreign import FittedDetector
from ..prepared import Labels, Prepared


class Auto(NativeDetector):
    """Several detectors, of which one is chosen for every new row; with "full" and "split".

    No detector is good for all data, and keeping the longest of several lists breaks every
    promise. With "full" every new row x_j is judged by the detector under which most *other* new
    rows would be found if x_j were a reference row. That does not know whether x_j is new or a
    reference row, and so p-values stay exact. With "split" one detector is chosen for all rows,
    from calibration and new rows together: that does not know which of them are new.

    Parameters
    ----------
    candidates : sequence of detectors, optional
        Names, detectors of ours or of other libraries, as `ConformalDetector` takes them; by
        default those that the registry offers, as they are and on rescaled columns. The first one
        judges rows alone.
    classifier : bool, optional
        Whether on a split two classifiers are candidates, too, which learn what tells new rows from
        the reference; by default where `candidates` are not given.
    labels : sequence of int or tuple, optional
        For every column the codes of its labels, 0 for numbers, as `Prepared` takes them: every
        candidate is then prepared for missing values and categories.
    contamination : float, default=0.1
        Share of the training rows that `predict` of the detector itself calls outliers. Has no
        influence on conformal p-values.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the candidates that draw. Inside a `ConformalDetector` its own counts.
    n_jobs : int or None, default=None
        Threads, as in joblib. Inside a `ConformalDetector` its own `n_jobs` counts, if it has one.

    Attributes
    ----------
    fitted_ : estimator
        The first candidate, fitted.
    offset_ : float
        `score_samples` below it is an outlier.
    n_features_in_ : int
    feature_names_in_ : array of str

    Notes
    -----
    Only `ConformalDetector.discover` chooses, and the p-values that it used are in its result, as
    is what was chosen (`Discoveries.choice`). `p_values`, `score_samples` and `predict` judge every
    row alone, by the first candidate (by default kNN).

    With "full" p-values are exact, P(p <= α) <= α, if reference rows and the row are exchangeable
    *given the other new rows* (independent rows are). The false discovery rate of a list is proven
    with ``method="auto"``, and with ``validity="proven"``. With "split" it is proven as it is, if
    reference rows and normal new rows are exchangeable given the anomalies.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform import ConformalDetector
    >>> rng = np.random.default_rng(0)
    >>> normal, new = rng.normal(size=(300, 2)), rng.normal(size=(100, 2))
    >>> normal[:, 1] *= 1000  # the second column drowns the first, unless it is rescaled
    >>> new[:, 1] *= 1000
    >>> new[:10, 0] += 8
    >>> for detector in ("knn", ["knn", "mahalanobis"]):
    ...     cad = ConformalDetector(detector, method="full").fit(normal)
    ...     print(cad.discover(new).mask[:10].sum())
    0
    10
    """

    uses_batch = True
    chooses = True

    def __init__(
        self,
        candidates: Sequence[Any] | None = None,
        contamination: float = 0.1,
        *,
        classifier: bool | None = None,
        labels: Labels | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.candidates = candidates
        self.classifier = classifier
        self.labels = labels
        self.contamination = contamination
        self.random_state = random_state
        self.n_jobs = n_jobs

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Leave the codes of labels out: nobody wrote them, and they may be thousands."""
        if self.labels is not None:
            return repr(clone(self).set_params(labels=None))
        return str(super().__repr__(N_CHAR_MAX))

    def resolved(self, augments: bool = True, n: int = 0) -> list[Any]:
        """Return the candidates as what fits plans; refuse what are none.

        Parameters
        ----------
        augments : bool
            Whether the plan has a model for each new row.
        n : int
            Reference rows.
        """
        from .. import resolve_detector  # which imports this module
        from ..prepare import prepared_by
        from ..registry import offered

        if self.candidates is None:
            own: list[Any] = list(offered(augments, n))
            if self.labels is None:
                return own
            # Units differ from column to column: what rescales them judges rows alone.
            own.sort(key=lambda one: name_of(one) != "scaled knn")
            return [prepared_by(one, self.labels) for one in own]
        if isinstance(self.candidates, str) or not isinstance(self.candidates, Sequence):
            raise ReconformError(
                "`candidates` must be a list of detectors, such as ['knn', 'lof']; got "
                f"{self.candidates!r}."
            )
        if not self.candidates:
            raise ReconformError("`candidates` must be a list of detectors; got an empty one.")
        made = [resolve_detector(one) for one in self.candidates]
        if self.labels is not None:
            made = [resolve_detector(prepared_by(one, self.labels)) for one in made]
        for one in made:
            if isinstance(one, Auto):
                raise ReconformError("`candidates` of Auto must be other detectors than Auto.")
            if getattr(one, "frozen", False):
                raise ReconformError(
                    f"`candidates` are fitted on the reference, and {one.name} is frozen; give it "
                    "as it was before it was fitted."
                )
        batchwise = [one for one in made if getattr(one, "uses_batch", False)]
        if augments or not batchwise:
            return made
        raise ReconformError(
            f"candidate {batchwise[0].name} compares new rows with each other, which only "
            "`method='full'` can do."
        )

    @property
    def accepts_nan(self) -> bool:  # type: ignore[override]
        """Whether all candidates do."""
        if self.labels is not None:
            return True
        return self.candidates is not None and all(one.accepts_nan for one in self.resolved())

    def _fit_together(
        self, X: FloatArray, plan: Plan, seeds: Sequence[np.random.SeedSequence], verbose: int
    ) -> Ensemble:
        """Fit every candidate."""
        augments, fewest = plan.row.augments, plan.n
        if not augments:
            if len(plan.train[0]) < 2:
                raise ReconformError(
                    "a detector is chosen by a part of the training rows that none is fitted on, "
                    "and there is only 1 training row; give more reference rows."
                )
            (held,), (some, others) = plan.held_out, held_back(X, plan, seeds[-1])
            trained, selecting, calibrating = X[some], X[others], X[held]
            fewest = len(trained)
        if self.candidates is None and fewest < FEWEST_ROWS:
            raise ReconformError(
                f"`detector='auto'` tries detectors that look at several neighbours, and needs at "
                f"least {FEWEST_ROWS} rows to train them; got n_samples = {fewest}. Give more "
                "reference rows, or a list of detectors that are content with fewer."
            )
        candidates = self.resolved(augments, plan.n)
        names = names_of(candidates)

        total, label = len(candidates), "fitting detectors"
        if augments:
            several = track(candidates, total=total, label=label, verbose=verbose)
            every = [one.fit_plan(X, plan, seeds, n_jobs=self.n_jobs) for one in several]
            for one in every if self.candidates is not None else ():
                assert len(one.calibration)  # what is wrong with a candidate is said now
            return FullChoice(every[0].calibration, names, every, self.n_jobs, verbose)
        every_row = np.vstack([trained, selecting])

        def fit_on(one: Any, size: int) -> ResampledEnsemble:
            rows, own = np.vstack([every_row[:size], calibrating]), plan_of_one(size, len(held))
            made = one.fit_plan(rows, own, seeds, n_jobs=self.n_jobs)
            assert isinstance(made, ResampledEnsemble)
            return made

        tried, fitted = [], []
        for one in track(candidates, total=total, label=label, verbose=verbose):
            counts_all = getattr(one, "counts_all", False)
            few, many = trained_on(len(trained), len(selecting), counts_all)
            tried.append(fit_on(one, few))
            fitted.append(tried[-1] if few == many else fit_on(one, many))
        learns = self.candidates is None if self.classifier is None else self.classifier
        more = CLASSIFIERS if learns and len(selecting) >= ENOUGH_TO_LEARN else ()
        return SplitChoice(
            replace(fitted[0].calibration, rows=held),
            names + more,
            fitted,
            tried,
            trained,
            selecting,
            calibrating,
            seeds[-1],
        )

    def _fit_rows(self, X: FloatArray, seed: np.random.SeedSequence) -> None:
        first = self.resolved()[0]
        if isinstance(first, NativeDetector):
            self.fitted_ = clone(first)
            if hasattr(first, "random_state"):
                self.fitted_.random_state = int(seed.generate_state(1)[0])
            self.fitted_.fit(X)
        else:
            self.fitted_ = first.fit_model(X, seed).model

    def _score_rows(self, X: FloatArray) -> FloatArray:
        if isinstance(self.fitted_, NativeDetector):
            return self.fitted_.score_samples(X)
        first = self.resolved()[0]
        model = FittedDetector(self.fitted_, first.score_name, first.sign, first.name)
        return model.score_samples(X)


# What names say of the scale.
MEASURED = {"none": "", "robust": "scaled ", "direction": "directional "}


def name_of(detector: Any) -> str:
    """Name a candidate for people: ``"knn"``, ``"scaled knn"``, or as the detector says.

    Examples
    --------
    >>> from reconform.detectors import KNN
    >>> name_of(KNN()), name_of(KNN(scale="robust"))
    ('knn', 'scaled knn')
    """
    from ..registry import entry_of

    if isinstance(detector, Prepared):
        return name_of(detector.detector)
    entry = entry_of(detector)
    if entry is None:
        return str(detector.name)
    usual = getattr(entry.kind(), "scale", "none")  # which a name does not mention
    scale = getattr(detector, "scale", "none")
    # Of a file it may be anything; a fit refuses what it does not know.
    return (MEASURED.get(str(scale), "") if scale != usual else "") + entry.name


def names_of(detectors: Sequence[Any]) -> tuple[str, ...]:
    """Name candidates, all differently: those of one name as they are written, or by a number.

    Examples
    --------
    >>> from reconform.detectors import KNN
    >>> names_of([KNN(), KNN(n_neighbors=1), KNN(n_neighbors=1)])
    ('KNN()', 'KNN(n_neighbors=1)', 'KNN(n_neighbors=1) (2)')
    """
    names = [name_of(one) for one in detectors]
    counts = Counter(names)
    names = [
        name if counts[name] == 1 else " ".join(repr(getattr(one, "template", one)).split())
        for name, one in zip(names, detectors, strict=True)
    ]
    seen: Counter[str] = Counter()
    for k, name in enumerate(names):
        seen[name] += 1
        names[k] = name if seen[name] == 1 else f"{name} ({seen[name]})"
    return tuple(names)


# Its ensembles are those of the candidates, which have records themselves.
AUTO_RECORD = DetectorRecord("Auto", {"fitted_": Detector(fitted=True)})
