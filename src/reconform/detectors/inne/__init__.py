"""INNE: a row is unusual if it lies outside the spheres around randomly drawn rows."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays import FloatArray, IndexArray
from ...content import Contents
from ...ensemble import Ensemble
from ...errors import check_count
from ...methods import Plan
from ...records import (
    INT,
    JOBS,
    ROWS,
    SUMS,
    Array,
    DetectorRecord,
    Maybe,
    Record,
    Spec,
    ascending,
    check_entries,
    check_kept,
    check_models,
    check_reference,
    expected_entries,
    increasing,
    require,
    within,
)
from ..base import NativeDetector, rows_drawn, wants_sharing
from .ensembles import EnteredINNE, LeaveOneOutINNE, SeparateINNE, Slots, Spheres, draw_centres
from .kernels import UNIT

# PyOD's choice of centres per set for max_samples="auto".
AUTO_SAMPLES = 8


class INNE(NativeDetector):
    """Isolation by nearest-neighbour ensembles.

    A set of spheres is centred at a few random rows; each reaches to the nearest other centre. A
    row is isolated by the smallest sphere that covers it, the more so the larger that sphere is
    next to its neighbour's, and fully so if none covers it. The score averages over many sets.

    Parameters
    ----------
    n_estimators : int, default=200
        Number of sets.
    max_samples : "auto", int or float, default="auto"
        Centres per set: min(8, n), a number, or a share of the training rows.
    contamination : float, default=0.1
        Share of the training rows that `predict` calls outliers.
    random_state : int, SeedSequence, RandomState, Generator or None, default=None
        Source of the draws.
    n_jobs : int, optional
        Threads, as in joblib: one by default, unless a ``joblib.parallel_config`` says otherwise.
        Inside a `ConformalDetector` its own `n_jobs` counts, if it has one.
    share : {"auto", True, False}, default="auto"
        Whether the models of a leave-one-out plan have one seed, and so share their sets; "auto"
        shares above 1,000 rows. See Notes.
    scale : {"none", "robust", "direction"}, default="none"
        With ``"robust"`` every feature is divided by a power of two near to its spread among the
        rows of a model (the distance of the quartiles), so that its unit hardly matters.
        With ``"direction"`` every row is then divided by its length.

    Attributes
    ----------
    max_samples_ : int
        Centres per set.
    centres_ : int array of shape (n_estimators, max_samples_)
        The training rows that are centres.
    offset_ : float
        `score_samples` below it is an outlier.
    n_features_in_ : int
    feature_names_in_ : array of str

    See Also
    --------
    pyod.models.inne.INNE : The same detector, one model at a time.

    Notes
    -----
    Given the same centres the scores are those of PyOD with the sign turned, up to 2**-41, except
    for a row whose distance from a centre equals the radius up to rounding: distances here are
    sums of squared differences, PyOD's come from dot products. Sets of a single centre isolate
    every row fully, where PyOD's scores are NaN.

    A model is a function of its seed and of the multiset of its rows: their order does not matter.

    Leave-one-out models that share their sets have one seed, and each equals `fit` on the other
    rows. All together cost as many sets as `max_samples` + 1 models, whatever n is: a set that did
    not take row i belongs to the model without it too, and in the others one row takes its place.
    They depend on each other more than models with seeds of their own, so p-values vary more from
    seed to seed, which shows on small data.

    Full-conformal ranks (``method="full"``) need no refits: a new row enters about
    ``n_estimators * max_samples / n`` sets, and only these are built anew for it. It is then
    ranked exactly as by `fit` on D and the row together, with the same seed for every row.

    References
    ----------
    Bandaragoda et al. (2018), "Isolation-based anomaly detection using nearest-neighbor
    ensembles", Computational Intelligence 34(4).

    Examples
    --------
    >>> import numpy as np
    >>> from reconform.detectors.inne import INNE
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = INNE(random_state=0).fit(X)
    >>> model.predict([[0.0, 0.0], [6.0, 6.0]])
    array([ 1, -1])
    """

    def __init__(
        self,
        n_estimators: int = 200,
        max_samples: str | float = "auto",
        contamination: float = 0.1,
        random_state: Any = None,
        n_jobs: int | None = None,
        share: str | bool = "auto",
        scale: str = "none",
    ) -> None:
        self.n_estimators = n_estimators
        self.max_samples = max_samples
        self.contamination = contamination
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.share = share
        self.scale = scale

    def _fit_together(
        self, X: FloatArray, plan: Plan, seeds: Sequence[np.random.SeedSequence], verbose: int
    ) -> Ensemble:
        n_jobs, sets = self.n_jobs, self.n_estimators
        if plan.row.augments:  # the new row makes one training row more
            self._check_parameters(plan.n + 1)
            psi = self._psi(plan.n + 1)
            return EnteredINNE.fit(X, psi, sets, seeds[-1], n_jobs=n_jobs, verbose=verbose)
        self._check_parameters(plan.n)
        if plan.left_out is not None and wants_sharing(self.share, plan.n):
            return LeaveOneOutINNE.fit(
                X, plan, self._psi, sets, seeds[-1], n_jobs=n_jobs, verbose=verbose
            )
        contents = Contents.of(X, n_jobs=n_jobs)

        def centres(train: IndexArray | None, seed: np.random.SeedSequence) -> IndexArray:
            psi = self._psi(plan.n if train is None else len(train))
            return draw_centres(contents, psi, sets, seed, train, n_jobs=n_jobs)

        models = [centres(train, seed) for train, seed in zip(plan.train, seeds, strict=False)]
        full = centres(None, seeds[-1]) if plan.full else None
        return SeparateINNE.fit(X, plan, models, full, n_jobs=n_jobs, verbose=verbose)

    def _fit_rows(self, X: FloatArray, seed: np.random.SeedSequence) -> None:
        self._check_parameters(len(X))
        psi, sets = self._psi(len(X)), self.n_estimators
        self.centres_ = draw_centres(Contents.of(X), psi, sets, seed, n_jobs=self.n_jobs)
        self.max_samples_ = psi
        self._spheres = Spheres.around(X, [self.centres_], n_jobs=self.n_jobs)

    def _score_rows(self, X: FloatArray) -> FloatArray:
        return np.asarray(self._spheres.scores(X, n_jobs=self.n_jobs)[0])

    def _psi(self, size: int) -> int:
        """Count the centres per set of a model with `size` training rows."""
        return rows_drawn(self.max_samples, size, auto=AUTO_SAMPLES)

    def _check_parameters(self, n: int) -> None:
        check_count("n_estimators", self.n_estimators, least=1)
        wants_sharing(self.share, n)  # only to refuse what is neither
        self._psi(n)
        if isinstance(self.max_samples, numbers.Integral) and self.max_samples > n:
            warnings.warn(
                f"`max_samples={self.max_samples}` is more than the {n} training rows; all of "
                "them are centres of every set.",
                UserWarning,
                stacklevel=4,
            )


def _check_spheres(spheres: Spheres, d: int) -> None:
    count = len(spheres.centre)
    require(len(spheres.radius) == len(spheres.ratio) == count, "a sphere has no radius or ratio")
    require(increasing(spheres.edges, count), "the sets of spheres are not in order")
    sets = len(spheres.edges) - 1
    require(
        1 <= spheres.models <= max(1, sets) and sets % spheres.models == 0,
        "models must have equally many sets",
    )
    require(within(spheres.ratio, 0, UNIT + 1), "a ratio is not one")
    require(spheres.table.shape[1] == d, "centres have the wrong shape")
    require(np.isfinite(spheres.table).all(), "a centre is not finite")
    require(within(spheres.centre, 0, len(spheres.table)), "a sphere has no centre")


def check_sets(spheres: Spheres, d: int) -> None:
    """Refuse arrays that do not form spheres, and models without any sets."""
    _check_spheres(spheres, d)
    require(spheres.sets, "a model has no sets")


def check_one_model(spheres: Spheres, d: int) -> None:
    """Refuse spheres of several models: each of them would score every row."""
    check_sets(spheres, d)
    require(spheres.models == 1, "a detector is one model")


def _check_slots(slots: Slots, d: int) -> None:
    require(len(slots._starts) == len(slots.rows) > 0, "every row has its slots")
    require(ascending(slots.rows, strictly=True), "the rows of slots are not in order")
    require(
        slots._starts[0] == 0 and ascending(slots._starts, strictly=True), "slots are not in order"
    )
    require(slots._sets >= 1, "A(D) has no sets")
    require(within(slots._starts, 0, len(slots.replaced)), "a row has no slots")
    require(slots._spheres.sets == 1, "slots are scored set by set")
    require(slots._spheres.models == slots._sets + len(slots.replaced), "a slot has no set")
    require(within(slots.replaced, 0, slots._sets), "a slot replaces a set that does not exist")


_SETS: Mapping[str, Spec] = {
    "table": Array("f8", ndim=2),
    "centre": Array("u4", ndim=1),
    "radius": Array("f8", ndim=1),
    "ratio": Array("i8", ndim=1),
    "edges": Array("i8", ndim=1),
    "models": INT,
}
SPHERES = Record("Spheres", Spheres, _SETS, check_sets)
ONE_MODEL = Record("Spheres", Spheres, _SETS, check_one_model)
SLOTS = Record(
    "Slots",
    Slots,
    {
        **dict.fromkeys(("rows", "replaced", "_starts"), Array("i8", ndim=1)),
        "_sets": INT,
        "_spheres": SPHERES,
    },
    _check_slots,
)


def _check_separate(ensemble: SeparateINNE, d: int) -> None:
    check_models(0 if ensemble.models is None else ensemble.models.models, ensemble)
    require(ensemble.full.models == 1, "A(D) is one model")


def _check_leave_one_out_inne(ensemble: LeaveOneOutINNE, d: int) -> None:
    n, slots = ensemble.plan.n, ensemble.slots
    one = ensemble.plan.left_out is not None
    require(one and ensemble.full.models == 1, "a row has no model")
    check_kept(slots, ensemble.plan)
    affected = n if slots is None else len(slots.rows)
    fits = len(ensemble.model) == ensemble.plan.n_models and within(ensemble.model, -1, affected)
    require(fits, "a row has no model")
    if slots is not None:
        require(within(slots.rows, 0, n), "a row does not exist")
        require(slots._sets == ensemble.full.sets, "models have other numbers of sets")


def _check_entered_inne(ensemble: EnteredINNE, d: int) -> None:
    n, sets, psi = len(ensemble.reference), len(ensemble.streams), ensemble.psi
    check_reference(n, ensemble)
    require(ensemble.reference.shape[1] == d, "the reference has the wrong shape")
    require(np.isfinite(ensemble.reference).all(), "a row is not finite")
    require(1 <= psi <= n + 1, "sets draw more rows than there are")
    shapes = {ensemble.drawn.shape, ensemble.hashes.shape}
    require(shapes == {(sets, min(psi, n))}, "a set has no centres")
    require(ensemble.base.models == 1 and ensemble.base.sets == sets, "a set is missing")
    require(within(ensemble.drawn, 0, n), "a set drew a row that does not exist")
    require(len(ensemble.totals) == n, "a row has no sum")
    check_entries(_entered(ensemble), sets * psi, n)


def _entered(ensemble: EnteredINNE) -> float:
    every = ensemble.psi > len(ensemble.reference)
    return expected_entries(ensemble.hashes.max(axis=1, initial=0), every)


def _entered_cost(ensemble: EnteredINNE) -> int:
    """A new row enters the sets in which its hash is small enough, and these are made again."""
    n, d = ensemble.reference.shape
    entered = _entered(ensemble)
    return int(entered * (ensemble.psi**2 + n) * d) // 64  # an honest file may take as long


INNE_RECORD = DetectorRecord(
    "INNE",
    {"max_samples_": INT, "centres_": Array("i8", ndim=2), "_spheres": ONE_MODEL},
    ensembles=(
        Record(
            "SeparateINNE",
            SeparateINNE,
            {"full": SPHERES, "models": Maybe(SPHERES), "n_jobs": JOBS},
            _check_separate,
        ),
        Record(
            "LeaveOneOutINNE",
            LeaveOneOutINNE,
            {"full": SPHERES, "slots": Maybe(SLOTS), "model": SUMS, "n_jobs": JOBS},
            _check_leave_one_out_inne,
        ),
        Record(
            "EnteredINNE",
            EnteredINNE,
            {
                "reference": ROWS,
                "streams": Array("u8", ndim=1),
                "psi": INT,
                "drawn": Array("i4", ndim=2),
                "hashes": Array("u8", ndim=2),
                "base": SPHERES,
                "totals": SUMS,
                "n_jobs": JOBS,
            },
            _check_entered_inne,
            cost=_entered_cost,
        ),
    ),
)
