"""ConformalDetector: the estimator that wires plan, ensemble, ranks and FDR control together."""

from __future__ import annotations

import logging
import numbers
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any, Self, Unpack

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, OutlierMixin, clone
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import _num_samples, check_is_fitted

from .arrays import FloatArray, IndexArray, IntArray, RankArray, UInt64Array
from .assumption.columns import warn_of_columns, warn_of_scores
from .assumption.order import Order, calendar_of, in_runs, order_of, season_of, seconds_of
from .assumption.sample import LookedUp, reference_positions
from .content import Contents, digests_of
from .deciding import (
    NewRows,
    Observed,
    check_weighted,
    decided_by_counts,
    decided_in_memory,
    provenance_of,
)
from .detectors import NativeDetector, resolve_detector
from .detectors.prepare import Prepare
from .discoveries import CountedDiscoveries, Discoveries, Provenance
from .display import details, facts_html, one_line
from .ensemble import Ensemble
from .ensemble.grouped import GroupedEnsemble, refuse_copies
from .errors import (
    ReconformError,
    ReferenceWarning,
    check_count,
    check_probability,
    unknown_choice,
    warn_once,
)
from .explain import MOST_CELLS, NO_REFERENCE, Explanation, Judged, Known, explainer_for, label_in
from .fitter import Fitter, guarantee_of_fit, method_for_rows, plan_for, what_fits, with_anomalies
from .frames import frame_as_it_is, package_of, without_calendar
from .grouping import Grouping, ReferenceGroups, check_groupable, labels_of, warn_of_small_groups
from .intake import Frames, Intake, preparing, taken_in
from .methods import BySize, Full, Method, Plan, Prefit, resolve_method
from .randomness import root_seed
from .rule import Rule, RuleOptions
from .scan import RowsPart
from .statistics.certificates import Guarantee
from .statistics.exact import Grid
from .statistics.fdr import RankCounts
from .statistics.joint import JointRanks
from .statistics.ranks import Calibration, Ranks, smoothed_p_values
from .statistics.scores import row_labels, tie_uniforms, warn_if_unlabelled
from .statistics.thresholds import ScoreThreshold, score_threshold
from .tables import Feature
from .units import MEAN, CutsRows, UnitFeatures, UnitRows, unit_rows
from .updating import Looked, Update, apart_from, marks_of, reasons, row_keys, updated
from .weights import Weights

_LOG = logging.getLogger(__name__)

TIES = ("conservative", "randomized")


@dataclass(eq=False)
class FittedState:
    """What a fit keeps beside its models; a model file has all of it but `known`.

    Attributes
    ----------
    intake : Intake
        How rows are read.
    tie_key : int
        What the uniform numbers of smoothed p-values are drawn by.
    accepts_nan : bool
        Whether rows may have missing numbers.
    reference : float array of shape (n, d), optional
        All rows, where another method may have to be fitted on them; see `for_rows`.
    groups : int array of shape (n,), optional
        The groups of the reference rows.
    sample_groups : int array of shape (s,), optional
        Those of `reference_sample_`.
    looked_up : LookedUp, optional
        Which new rows can be looked up among all reference rows, where there is only a sample.
    known : Known, optional
        The reference rows that rows are explained by, as `fit` saw them.
    order : Order
        Whether reference rows that stand next to each other are alike, by a test of their order.
    units : UnitFeatures, optional
        How rows become features of their units, where units are judged.
    updates : tuple of Update
        What `update` changed so far, the last one last.
    rows : float array of shape (n, d), optional
        All rows, where `reference` does not have them and an update brought some.
    origins, joined : uint64 arrays, optional
        Which rows of which batches became known anomalies (0 for one from elsewhere), and which
        joined the reference (`row_keys`).
    """

    intake: Intake
    tie_key: int
    accepts_nan: bool
    reference: FloatArray | None = None
    groups: IndexArray | None = None
    sample_groups: IndexArray | None = None
    looked_up: LookedUp | None = None
    known: Known | None = None
    order: Order = field(default_factory=Order)
    units: UnitFeatures | None = None
    updates: tuple[Update, ...] = ()
    rows: FloatArray | None = None
    origins: UInt64Array | None = None
    joined: UInt64Array | None = None

    @property
    def by_marks(self) -> Sequence[tuple[str, str]]:
        """What updates did that no theorem allows, and what would have to hold for one."""
        return reasons(self.updates)


class ConformalDetector(OutlierMixin, BaseEstimator):
    """Any anomaly detector, with conformal p-values and lists at a chosen false discovery rate.

    What is proven of them depends on the method: `guarantee_` says it, and so does every list. By
    default every p-value is exact, and the false discovery rate of a list is proven.

    Parameters
    ----------
    detector : str, estimator, callable, or a list of these, default="auto"
        ``"auto"``, which tries several and chooses one for every new row (see
        `reconform.detectors.Auto`), or a list to choose from; ``"knn"``, ``"iforest"``,
        ``"inne"``, ``"lof"``, ``"mahalanobis"``, ``"kde"``, ``"rarity"``, ``"extreme"``,
        ``"contrast"`` or ``"contrast-forest"`` (with ``method="full"``; see
        `reconform.detectors.Contrast`); a scikit-learn outlier detector or a pipeline ending in
        one; a PyOD detector; an object with ``fit`` and ``score_samples``; or a function
        ``fit(X) -> score(X)``, optionally ``fit(X, random_state)``.
    method : str or Method, default="auto"
        ``"auto"``, which is ``"full"`` where that is cheap and ``"split"`` where rows are many
        (`reconform.methods.BySize`); ``"split"``, ``"jackknife"``, ``"jackknife+"``, ``"cv"``,
        ``"cv+"``, ``"jab"``, ``"jab+"``, ``"full"``, ``"batch"``, ``"learned"`` (see
        `reconform.Learned`), ``"prefit"``, or a method object such as ``Bootstrap(draws=50)``.
    alpha : float, default=0.1
        Level of the per-row test in `predict`: a row with p <= alpha is an outlier.
    ties : {"conservative", "randomized"}, default="conservative"
        Count tied scores against the row as in the paper, or smooth the p-values with a uniform
        number per row. That number is keyed by the seed, the content of the row and its index label
        in a frame, so it does not depend on the order of the rows or on the batch. Rows without
        labels (an array, a frame with pandas' default index) that are equal are numbered within
        the call; give labels if you judge rows one by one, or their numbers are not independent
        (`UnlabelledRowWarning`).
    larger_is : {"anomalous", "normal"}, optional
        What a large score of the detector means. By default this follows from its interface; a
        bare function must state it; of a list it is said of the functions in it.
    random_state : int, RandomState, Generator or None, default=None
        One seed for everything: the plan, and the draws of the models. What is drawn depends on the
        contents of the rows and not on their order. Any ``random_state`` inside the detector is
        replaced.
    n_jobs : int, optional
        Number of joblib jobs; ``joblib.parallel_config`` chooses the backend.
    verbose : int, default=0
        With 1, show a progress bar.
    group_models : bool, default=False
        Where `fit` is given groups: fit a detector for every group, on its rows alone, instead of
        one on all rows. Rows are ranked within their group either way.

    Attributes
    ----------
    plan_ : Plan
        The training and held-out rows of every model.
    calibration_ : Calibration
        The calibration scores c_i, small = anomalous.
    ensemble_ : Ensemble
        The fitted models.
    n_calibration_ : int
        Number of calibration scores; rows that no model held out do not count.
    guarantee_ : Guarantee
        What is known about this method's p-values and lists: proven, or only measured.
    left_out_ : int
        How many marked rows have left the reference, as `fit` was told.
    offset_ : float
        The smallest p-value that is not an outlier in `predict`.
    grouping_ : Grouping or None
        The groups of the reference, where `fit` was given them.
    n_features_in_ : int
    feature_names_in_ : array of str
        Only if `fit` was given a frame with column names.
    reference_sample_ : float array of shape (s, d) or None
        At most 2,000 reference rows, which new rows are compared with to check the assumption;
        None in models that were saved without.

    See Also
    --------
    reconform.Split, reconform.Jackknife, reconform.CrossValidation, reconform.Bootstrap,
    reconform.Resampling

    Notes
    -----
    `predict` tests every row on its own at level `alpha`. A batch of m normal rows then has about
    alpha m false alarms; for a list in which few of the alarms are false use `discover`.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform import ConformalDetector
    >>> rng = np.random.default_rng(0)
    >>> normal = rng.normal(size=(200, 2))
    >>> new = np.vstack([rng.normal(size=(95, 2)), rng.normal(6, 1, size=(5, 2))])
    >>> cad = ConformalDetector("knn", method="jackknife+", random_state=0).fit(normal)
    >>> found = cad.discover(new, fdr=0.1)
    >>> found.count
    5
    >>> np.flatnonzero(found.mask)
    array([95, 96, 97, 98, 99])
    """

    plan_: Plan
    ensemble_: Ensemble
    calibration_: Calibration
    n_calibration_: int
    n_features_in_: int
    guarantee_: Guarantee
    left_out_: int
    reference_sample_: FloatArray | None
    feature_names_in_: Any
    grouping_: Grouping | None = None
    state_: FittedState
    # Fitted on a split, for batches of very many rows; see `for_rows`.
    _large: Self | None = None

    def __init__(
        self,
        detector: Any = "auto",
        method: str | Method = "auto",
        *,
        alpha: float = 0.1,
        ties: str = "conservative",
        larger_is: str | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        group_models: bool = False,
    ) -> None:
        self.detector = detector
        self.method = method
        self.alpha = alpha
        self.ties = ties
        self.larger_is = larger_is
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.group_models = group_models

    def _html_repr(self) -> str:
        """Scikit-learn's diagram, and below it what was fitted and what is known of its lists."""
        diagram: str = estimator_html_repr(self)
        if not hasattr(self, "ensemble_"):
            return diagram
        method, scheme = one_line(self.method), self.plan_.scheme
        if method == "auto":
            method = f"auto: {scheme}, by the number of rows"
        facts = [
            ("detector", one_line(self.detector)),
            ("method", method),
            ("reference", f"{self.plan_.n:,} rows of {self.n_features_in_:,} features"),
            (
                "calibration",
                f"{self.n_calibration_:,} scores; no p-value below 1/{self.n_calibration_ + 1:,}",
            ),
        ]
        known = details("What is proven, and what is measured", [str(self.guarantee_)])
        return f"{diagram}<p><strong>Fitted</strong></p>{facts_html(facts)}{known}"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True  # as an array
        if hasattr(self, "state_") or isinstance(self.detector, Prepare):
            tags.input_tags.allow_nan = not hasattr(self, "state_") or self.state_.accepts_nan
            return tags
        try:
            resolved = resolve_detector(self.detector, self.larger_is)
            fits = what_fits(resolve_method(self.method), self.detector, resolved)
            tags.input_tags.allow_nan = fits.accepts_nan
        except (ImportError, ValueError):  # fit will say what is wrong
            tags.input_tags.allow_nan = False
        return tags

    def fit(
        self,
        X: npt.ArrayLike,
        y: object = None,
        *,
        groups: npt.ArrayLike | None = None,
        blocks: npt.ArrayLike | None = None,
        anomalies: npt.ArrayLike | None = None,
        left_out: int = 0,
        times: npt.ArrayLike | None = None,
        units: str | npt.ArrayLike | CutsRows | UnitFeatures | None = None,
    ) -> ConformalDetector:
        """Fit and calibrate on normal rows.

        Parameters
        ----------
        X : array-like or frame of shape (n, d)
            Normal rows, exchangeable with the normal rows to come.
        y : ignored
            Present for scikit-learn's convention.
        groups : array-like of shape (n,), optional
            The group of every row, such as the type of machine. New rows, whose groups are then
            given too, are ranked within their group, and all groups are decided together
            (docs/groups). For split, full, jackknife+, cv+ and prefit.
        blocks : array-like of shape (n,), optional
            Labels of rows that belong together, for `Resampling` with a splitter that keeps them
            together, such as scikit-learn's GroupKFold.
        anomalies : array-like or frame of shape (a, d), optional
            Anomalies from elsewhere, no rows of the reference. They shape the scores of
            ``"contrast"`` and ``"learned"`` and the choice of ``"auto"``, and never calibrate.
        left_out : int, default=0
            How many rows of the reference were marked as anomalies and are not in `X`; see
            `reconform.review`. Lists say it.
        times : array-like of shape (n,), optional
            When every row was taken (docs/time): dates, times or numbers, or an index of times.
        units : str, array-like of shape (n,) or `reconform.timeseries.Windows`, optional
            What every row is part of: a column of X, names, or a period of `times` (``"day"``).

        Returns
        -------
        ConformalDetector
        """
        if units is not None and not isinstance(units, UnitFeatures):
            return self._fit_units(X, units, groups, times, left_out, anomalies)
        self._check_settings(left_out)
        X = frame_as_it_is(X)
        method = resolve_method(self.method)
        refit = not isinstance(method, Prefit)
        resolved, intake = taken_in(self.detector, X, self.larger_is, refit=refit)
        prepare = preparing(self.detector, None, intake)
        detector = what_fits(method, prepare or self.detector, resolved)
        accepts_nan = prepare is not None or detector.accepts_nan
        *seeds, tie_seed = root_seed(self.random_state).spawn(3)
        tie_key = int(tie_seed.generate_state(1, np.uint64)[0])
        self.state_ = FittedState(intake, tie_key, accepts_nan, units=units)
        labels, when = index_of(X), _times(X, times)
        X = self._validate(X, reset=True)
        known = None if anomalies is None else self._given(anomalies, X)
        suited = method_for_rows(method, resolved, len(X))
        if suited is not method and isinstance(suited, Full):
            self.state_.reference = X  # a batch of very many rows wants a split of these
        asked = self._groups_of_reference(groups, blocks, method, len(X))
        contents = Contents.of(X, n_jobs=self.n_jobs)
        plan = plan_for(suited, contents, blocks if asked is None else asked.codes, seeds[0])
        fitter = Fitter(detector, self.n_jobs, self.verbose)
        with intake.explained(detector, X):
            if asked is None or asked.single:
                ensemble = fitter.fit(X, plan, contents, seeds[1])
            else:
                check_groupable(plan, self.method, anomalies is not None)
                ensemble = fitter.fit_in_groups(X, suited, plan, contents, seeds, asked)
        if known is not None:
            ensemble = with_anomalies(ensemble, known, f"{detector.name} with {self.method!r}")
        self.adopt(plan, ensemble, asked, int(left_out))
        self._keep_sample(X, contents, labels)
        if self.judges_windows:
            self.state_.rows = X  # the oldest may leave, see `updating.moved`
        self._look_at_order(X, when)
        self._warn_of_reference(X, detector.name)
        return self

    def _check_settings(self, left_out: int) -> None:
        check_probability("alpha", self.alpha)
        check_count("left_out", left_out, least=0)
        if self.ties not in TIES:
            raise unknown_choice("ties", self.ties, TIES)

    def _fit_units(
        self, X: Any, units: Any, groups: Any, times: Any, left_out: int, anomalies: Any
    ) -> ConformalDetector:
        """Fit on one row of features per unit."""
        if anomalies is not None:
            raise ReconformError(
                "`anomalies` are rows, and here units are judged; leave `anomalies` or `units` out."
            )
        when = _times(X, times)
        rows = unit_rows(X, units, times=when)
        if len(rows.names) < 2:
            raise ReconformError("a reference needs at least 2 units; got 1.")
        self.fit(
            rows.frame,
            groups=rows.one_each(groups, "groups"),
            times=rows.begins(when),
            units=rows.units,
            left_out=left_out,
        )
        return self.name_reference(rows.names.tolist())

    def units_in(
        self, X: Any, units: str | npt.ArrayLike | CutsRows, times: Any = None
    ) -> UnitRows:
        """Read new rows and their units: `frame` has one row of features per unit.

        Parameters
        ----------
        X : array-like or frame of shape (m, d)
        units : str or array-like of shape (m,)
            As in `fit`. A unit of the reference is refused.
        times : array-like of shape (m,), optional
            As in `fit`.

        Returns
        -------
        UnitRows
        """
        check_is_fitted(self, "ensemble_")
        known = self.state_.units
        if known is None:
            raise ReconformError(
                "this detector was fitted on rows and not on units; leave `units` out, or give "
                "those of the reference rows: fit(X, units=...)."
            )
        rows = unit_rows(X, units, known, _times(X, times))
        known.refuse_known(rows.names.tolist())
        return rows

    def _warn_of_reference(self, X: FloatArray, detector: str) -> None:
        ensemble = self.ensemble_
        rows, names = np.asarray(X), self.names
        if (
            self.state_.units is not None
        ):  # counts that are the same in all units are as they should be
            kept = [j for j, name in enumerate(names) if name.endswith(MEAN)]
            rows, names = rows[:, kept], tuple(names[j].removesuffix(MEAN) for j in kept)
        warn_of_columns(rows, names, ensemble)
        if not self.plan_.row.learns:  # which has no scores before there is a batch
            warn_of_scores(ensemble.calibration.scores, detector, ensemble)
        if self.joint is not None and self.grouping_ is not None:
            warn_of_small_groups(self.grouping_, ensemble)

    def _keep_sample(self, X: FloatArray, contents: Contents, labels: Any) -> None:
        """Keep some reference rows, to check the assumption by and to explain rows by."""
        rows, kept = reference_positions(contents), self.state_
        self.reference_sample_ = np.array(X[rows])
        kept.looked_up = LookedUp.of(contents, rows)
        if kept.groups is not None:
            kept.sample_groups = kept.groups[rows]
        kept.known = Known(X, len(X), np.arange(len(X)), labels)
        if X.shape[0] * X.shape[1] > MOST_CELLS:
            kept.known = Known(X[rows], len(X), rows, labels)

    def _given(self, anomalies: npt.ArrayLike, reference: FloatArray) -> FloatArray:
        """Known anomalies as the detector sees them; refuse those of the reference itself."""
        known = self._validate(anomalies, reset=False)
        refuse_copies(known, reference)
        return known

    def _groups_of_reference(
        self, groups: npt.ArrayLike | None, blocks: npt.ArrayLike | None, method: Method, n: int
    ) -> ReferenceGroups | None:
        """Check both kinds of labels; read those to rank within."""
        if blocks is not None and not method.uses_groups:
            raise ReconformError(
                f"method={self.method!r} ignores blocks, and would separate rows of one block; "
                "leave `blocks` out, or use a method that keeps them together, such as "
                "Resampling(GroupKFold(10))."
            )
        if blocks is not None and len(np.asarray(blocks)) != n:
            raise ReconformError(
                f"`blocks` must have one label per row: {n} rows, {len(np.asarray(blocks))} labels."
            )
        if groups is None:
            if self.group_models:
                raise ReconformError(
                    "`group_models` fits a detector for every group; give `groups`, one label per "
                    "row, or leave it out."
                )
            return None
        return ReferenceGroups.of(groups, n, models=bool(self.group_models))

    @property
    def judges_windows(self) -> bool:
        """Whether windows of time series are judged."""
        return self.state_.units is not None and self.state_.units.called == "window"

    def _look_at_order(self, X: FloatArray, times: FloatArray | None) -> None:
        """Test whether reference rows that stand next to each other are alike."""
        groups, scored = self.state_.groups, self.calibration_
        if self.judges_windows:  # neighbours share levels, and p-values know scores only
            X = np.asarray(scored.scores)[:, None]
            times = None if times is None else times[scored.rows]
        seen = in_runs(len(X))
        when = times if times is None or self.judges_windows else times[scored.rows]
        if times is not None:  # which says what comes first
            seen = np.argsort(times, kind="stable")[seen]
        names = () if self.judges_windows else self.names
        order = order_of(
            without_calendar(np.asarray(X[seen]), names),
            times=None if times is None else times[seen],
            groups=None if groups is None else groups[seen],
        )
        self.state_.order = replace(
            order,
            column=-1 if self.judges_windows else order.column,
            season="" if times is None else season_of(scored.scores, when),
            **calendar_of(times),
        )

    def adopt(
        self,
        plan: Plan,
        ensemble: Ensemble,
        groups: ReferenceGroups | None = None,
        left_out: int = 0,
    ) -> None:
        """Set what follows from fitted models: `fit` makes them, `reconform.load` reads them."""
        self.left_out_ = left_out
        self.grouping_ = self.state_.groups = None
        if groups is not None:
            self.grouping_ = groups.calibrated(ensemble.calibration.rows)
            self.state_.groups = groups.codes
        self.plan_ = plan
        self.ensemble_ = ensemble
        self._large = None
        self.calibration_ = ensemble.calibration
        # a repeated split has a calibration set per split, and ranks within one
        self.n_calibration_ = len(ensemble.calibration) // len(plan.repeats)
        self.guarantee_ = guarantee_of_fit(self)
        # p = alpha is an outlier, and scikit-learn calls a row normal where p - offset_ >= 0.
        self.offset_ = float(np.nextafter(float(self.alpha), 2.0))

    @property
    def guarantee_alone(self) -> Guarantee:
        """What is known of p-values of rows alone; `guarantee_` is about lists, too."""
        return guarantee_of_fit(self, alone=True)

    @property
    def joint(self) -> JointRanks | None:
        """The joint ranks of several groups; None where ranks are those of one calibration."""
        grouping = self.grouping_
        return None if grouping is None or grouping.single else grouping.joint

    def no_counts(self) -> RankCounts:
        """Counts of no ranks yet, to add ranks of this detector to.

        Ranks lie in 1 .. n_calibration_ + 1; with one more for every further group.
        """
        highest = self.n_calibration_ + 1 if self.joint is None else self.joint.highest
        return RankCounts(highest - 1, self.calibration_.fingerprint)

    def for_rows(self, m: int) -> Self:
        """Return the detector that judges a batch of m rows: this one, or one fitted on a split.

        With ``method="auto"``, full-conformal ranks take too long for very many rows, and a split
        of the same reference rows takes their place; it is fitted when it is asked for first.

        Parameters
        ----------
        m : int

        Returns
        -------
        ConformalDetector
        """
        check_is_fitted(self, "ensemble_")
        most = self.most_rows
        if most is None or m <= most:
            return self
        if self._large is None:
            chooses = bool(self.ensemble_.bare.candidates)
            method = BySize().method_for(self.plan_.n, m, uses_batch=chooses)
            split = clone(self).set_params(method=method)
            _LOG.info("%d new rows are too many for full: fitting %r instead", m, split.method)
            if not isinstance(self.random_state, numbers.Integral):
                # A fit has one seed, whoever asks and however often, from a model file too.
                split.set_params(random_state=self.state_.tie_key)
            prepare = preparing(self.detector, None, self.state_.intake)
            if prepare is not None:  # the rows are coded already
                split.set_params(detector=prepare.for_features(self.features))
            known = self.ensemble_.anomalies
            groups = None
            if self.grouping_ is not None:
                groups = np.array(self.grouping_.names)[self.state_.groups]
            self._large = split.fit(
                getattr(self.state_.reference, "frame", self.state_.reference),
                groups=groups,
                anomalies=getattr(known, "frame", known),
                left_out=self.left_out_,
            )
            for name in ("order", "intake", "known", "updates", "origins"):
                setattr(self._large.state_, name, getattr(self.state_, name))
            self._large.guarantee_ = guarantee_of_fit(self._large)
            if self.names:
                self._large.feature_names_in_ = self.feature_names_in_
        return self._large

    @property
    def can_certify(self) -> bool:
        """Whether certificates can be had for every row; model files may lack what they take."""
        one = self.ensemble_
        if isinstance(one, GroupedEnsemble):
            one = one.first()
        own = type(one).e_values is not Ensemble.e_values
        own = own or type(one).augmented_scores is not Ensemble.augmented_scores
        return own or one.by_refitting is not None

    @property
    def most_rows(self) -> int | None:
        """The largest batch that this object itself judges, see `for_rows`; None for any."""
        kept = self.state_.reference
        return None if kept is None else BySize().most_rows(len(kept))

    @property
    def ranks_rows(self) -> str:
        """How `discover` ranks a row: ``"alone"``, ``"pool"`` or ``"batch"``.

        ``"alone"``: as `p_values` does. ``"pool"``: by what is known of all new rows, which may
        come in parts. ``"batch"``: with all new rows in memory. `p_values`, `score_samples` and
        `predict` judge every row by itself, whatever the detector; one that chooses among several
        leaves it to the first of them.
        """
        check_is_fitted(self, "ensemble_")
        return self.ensemble_.ranks_rows

    def rank(
        self,
        X: npt.ArrayLike,
        *,
        groups: npt.ArrayLike | None = None,
        variant: str | None = None,
        checked: bool = False,
        together: bool = False,
    ) -> Ranks:
        """Rank and score new rows: all that is known about them before a decision.

        Parameters
        ----------
        X : array-like or frame of shape (m, d)
        groups : array-like of shape (m,), optional
            The group of every row, where the detector was fitted with groups. Ranks are then joint
            ranks (`joint`).
        variant : {"plus", "basic", "pooled"}, optional
            A comparison other than the method's, where the models for it are kept.
        checked : bool
            X is a float array with the columns of the fit in their order, as a reader of files
            makes it; it is not checked again.
        together : bool
            X is a whole batch, and its rows are ranked as `discover` does it (`ranks_rows`).

        Returns
        -------
        Ranks
            `at_most`: 1 + #{i : c_i <= t_i}, from 1 (most anomalous) to n_calibration_ + 1;
            `below`: the same for <, with ``ties="randomized"``; `scores`: one raw score per row,
            small = anomalous.
        """
        rows = self.part_of(X, groups, checked=checked)
        return self.rank_rows(rows, variant=variant, together=together)

    def part_of(
        self, X: npt.ArrayLike, groups: npt.ArrayLike | None = None, *, checked: bool = False
    ) -> RowsPart:
        """Check new rows and their groups; return both as the detector sees them."""
        check_is_fitted(self, "ensemble_")
        rows = self.of_file(np.asarray(X)) if checked else self._rows(X)
        return RowsPart(rows, self.codes_of(groups, len(rows)))

    def codes_of(self, groups: npt.ArrayLike | None, rows: int) -> IndexArray | None:
        """Look up the groups of new rows; refuse labels where there are none, and the reverse.

        Parameters
        ----------
        groups : array-like of shape (rows,) or None
        rows : int
        """
        if self.grouping_ is None:
            if groups is not None:
                raise ReconformError(
                    "this detector was fitted without groups; leave `groups` out, or give those of "
                    "the reference rows: fit(X, groups=...)."
                )
            return None
        if groups is None:
            raise ReconformError(
                "this detector was fitted with groups, and ranks rows within them; give `groups`, "
                "one label per row."
            )
        return self.grouping_.codes(labels_of(groups, rows))

    def rank_rows(
        self, rows: RowsPart, *, variant: str | None = None, together: bool = False
    ) -> Ranks:
        """Rank rows as the detector sees them; see `rank`."""
        strictly, X = self.ties == "randomized", rows.X
        if isinstance(self.ensemble_, GroupedEnsemble):
            assert rows.groups is not None
            assert self.joint is not None
            if variant is not None:
                raise ReconformError("other comparisons are not made within groups.")
            within = self.ensemble_.ranks_in(X, rows.groups, together=together, strictly=strictly)
            return within.in_groups(rows.groups, self.joint)
        if together:
            return self.ensemble_.batch_ranks(X, strictly=strictly)
        return self.ensemble_.ranks(X, variant=variant, strictly=strictly)

    def ranks(self, X: npt.ArrayLike, *, groups: npt.ArrayLike | None = None) -> RankArray:
        """Return the ranks of new rows alone: 1 + #{i : c_i <= t_i}; see `rank`.

        Parameters
        ----------
        X : array-like or frame of shape (m, d)
        groups : array-like of shape (m,), optional
            As in `rank`.

        Returns
        -------
        int array of shape (m,)
        """
        return self.rank(X, groups=groups).at_most

    def rank_counts(self, X: npt.ArrayLike, *, groups: npt.ArrayLike | None = None) -> RankCounts:
        """Count the ranks of a batch; the counts of batches merge, and decide like the whole.

        Parameters
        ----------
        X : array-like or frame of shape (m, d)
        groups : array-like of shape (m,), optional
            As in `rank`.

        Returns
        -------
        RankCounts
        """
        if self.ties == "randomized":
            raise ReconformError(
                "smoothed p-values are off the grid of ranks and cannot be counted; "
                "use ties='conservative'."
            )
        if self.ranks_rows != "alone":
            raise ReconformError(
                "the counts of batches are merged, and here the rank of a row depends on all new "
                "rows; use discover(X) with all rows, judge_file or reconform.distributed.discover "
                "for rows that come in parts, or a single detector such as 'knn'."
            )
        return self.no_counts().add(self.rank(X, groups=groups).at_most)

    @property
    def features(self) -> tuple[Feature, ...]:
        """The columns as files are read for the detector; none if the reference had no names.

        With `Prepare` they have the categories of the reference.
        """
        check_is_fitted(self, "ensemble_")
        return self.state_.intake.features(self.names)

    def _validate(self, X: npt.ArrayLike, *, reset: bool) -> FloatArray:
        """RowsPart as the detector sees them: an array, or `FrameRows`, which stand in for one."""
        finite = "allow-nan" if self.state_.accepts_nan else True
        rows: FloatArray = self.state_.intake.read(
            self, X, reset=reset, least=2 if reset else 1, finite=finite
        )
        return rows

    def _rows(self, X: npt.ArrayLike) -> FloatArray:
        check_is_fitted(self, "ensemble_")
        if _num_samples(frame_as_it_is(X)) == 0:
            raise ReconformError("X has no rows; give at least one row to judge.")
        return self._validate(X, reset=False)

    def of_file(self, X: FloatArray) -> FloatArray:
        """Numbers that a reader of files made, as the detector sees them."""
        rows: FloatArray = self.state_.intake.of_file(X, self.names)
        return rows

    def of_records(self, records: Any) -> Any:
        """Make a frame, as the detector reads it, of rows that are dicts.

        Parameters
        ----------
        records : dict or sequence of dicts
            One row, or rows; each must have every column of the reference, None where a value is
            missing. Other keys are not looked at.

        Returns
        -------
        frame of Arrow, or of the library that a pipeline was fitted with

        Examples
        --------
        >>> import numpy as np
        >>> import pyarrow as pa
        >>> from reconform import ConformalDetector
        >>> frame = pa.table({"flow": np.arange(20.0), "level": np.arange(20.0) % 7})
        >>> cad = ConformalDetector("knn", "split", random_state=0).fit(frame)
        >>> cad.of_records({"level": 2, "flow": 9.5, "id": "A7"}).to_pydict()
        {'flow': [9.5], 'level': [2.0]}
        """
        check_is_fitted(self, "ensemble_")
        return self.state_.intake.of_records(records, self.names)

    def _judge(
        self, X: npt.ArrayLike, rows: RowsPart, grid: Grid, *, together: bool = False
    ) -> tuple[Ranks, FloatArray]:
        """Ranks and p-values of rows, which were given as `X`."""
        ranks = self.rank_rows(rows, together=together)
        if self.ties != "randomized":
            return ranks, grid.values(ranks.at_most)
        labels = row_labels(X)
        warn_if_unlabelled(labels, len(rows.X), self)
        uniforms = tie_uniforms(self.state_.tie_key, rows.X, labels)
        if self.joint is None:
            return ranks, smoothed_p_values(ranks, self.n_calibration_, uniforms)
        return ranks, smoothed_p_values(*self.joint.within(ranks), uniforms)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns; none if the reference had none."""
        return tuple(map(str, getattr(self, "feature_names_in_", ())))

    def p_values(
        self,
        X: npt.ArrayLike,
        *,
        groups: npt.ArrayLike | None = None,
        validity: str = "nominal",
        conditional: str | None = None,
        confidence: float = 0.9,
    ) -> FloatArray:
        """Conformal p-values of new rows.

        Parameters
        ----------
        X : array-like or frame of shape (m, d)
        groups : array-like of shape (m,), optional
            The group of every row, where `fit` was given groups: p-values are then
            r / (n_g + 1), by the rank within the group.
        validity : {"nominal", "proven"}, default="nominal"
            With ``"proven"``, p-values for which P(p <= α) <= α is a theorem:
            (2r - 1) / (n + 1) for rank r of jackknife+, a little more for cv+, unchanged for split,
            prefit and full, refused for methods that are only measured.
        conditional : {"simes", "montecarlo"}, optional
            For split and prefit: p-values that are valid given the calibration set, for all but a
            share 1 - `confidence` of calibration sets (Bates et al. 2023).
        confidence : float, default=0.9
            The confidence of `conditional`.

        Returns
        -------
        float array of shape (m,)
            In [1 / (n_calibration_ + 1), 1]; with ``ties="randomized"`` in (0, 1]. With
            ``Split(repeats=...)`` twice the median over the splits.
        """
        check_is_fitted(self, "ensemble_")
        rule = Rule(validity=validity, conditional=conditional, confidence=confidence)
        grid = rule.grid(self)
        return self._judge(X, self.part_of(X, groups), grid)[1]

    def score_samples(self, X: npt.ArrayLike, *, groups: npt.ArrayLike | None = None) -> FloatArray:
        """Return `p_values`, under scikit-learn's name: small = anomalous."""
        return self.p_values(X, groups=groups)

    def decision_function(
        self, X: npt.ArrayLike, *, groups: npt.ArrayLike | None = None
    ) -> FloatArray:
        """Return p-values minus `offset_`: negative for outliers at level `alpha`."""
        return self.p_values(X, groups=groups) - self.offset_

    def predict(self, X: npt.ArrayLike, *, groups: npt.ArrayLike | None = None) -> IntArray:
        """Test every row on its own at level `alpha`: +1 normal, -1 outlier.

        Decisions that look at the whole batch, and aim at a share of false alarms among the
        alarms, are made by `discover`.
        """
        return np.where(self.decision_function(X, groups=groups) >= 0, 1, -1).astype(np.int64)

    def discover(
        self,
        X: npt.ArrayLike,
        fdr: float | Fraction = 0.1,
        *,
        weights: Weights | None = None,
        groups: npt.ArrayLike | None = None,
        times: npt.ArrayLike | None = None,
        units: str | npt.ArrayLike | CutsRows | None = None,
        **rule: Unpack[RuleOptions],
    ) -> Discoveries:
        """Find anomalies in a batch, aiming at a false discovery rate.

        Whether the rate is proven to be at most `fdr` depends on method and procedure, and
        ``Discoveries.guarantee`` says it. For the defaults it is, if normal new rows come from the
        same process as the reference; it is for ``"split"`` and ``"prefit"`` with one detector, and
        for ``"batch"`` and ``"learned"``. ``"full"``, ``"jackknife+"`` and ``"cv+"``, asked for by
        name, do what the paper does; with ``validity="proven"`` their lists are proven as well.
        All keywords are fields of a `Rule`; `decide` takes one.

        Parameters
        ----------
        X : array-like or frame of shape (m, d)
            The batch. Where `uses_batch`, its rows are compared with each other, and their
            p-values are not those of `p_values`, which judges every row by itself.
        fdr : float, default=0.1
            False discovery rate aimed at: the share of false ones among the discoveries, on
            average over repetitions.
        weights : Weights, optional
            For normal new rows that come in other proportions than the reference rows (a covariate
            shift): how much more often, row by row. P-values are then weighted, and exact for true
            weights; ``validity="proven"`` makes the list by weighted conformal selection. For
            ``"full"`` and ``"split"``.
        groups : array-like of shape (m,), optional
            The group of every row, where `fit` was given groups. Rows are ranked within their
            group, and one list is made of all groups: `Discoveries.groups` says what became of
            each.
        times, units : array-like of shape (m,), optional
            As in `fit`; with units, the list is one of units.
        procedure : {"bh", "by", "storey", "ebh"}, default="bh"
            Benjamini-Hochberg, Benjamini-Yekutieli (any dependence), Benjamini-Hochberg with
            Storey's estimate of the share of normal rows, or e-BH on the e-values of a split,
            averaged over its repeats (Bashari et al. 2023).
        storey_lambda : float, default=0.5
            Storey's λ.
        validity : {"auto", "nominal", "proven"}, default="auto"
            ``"auto"`` is ``"proven"`` for ``method="auto"`` where that is full, and ``"nominal"``
            elsewhere: plain Benjamini-Hochberg, or what `procedure` says.
            With ``"proven"``, a list whose false discovery rate is at most `fdr` by a theorem, for
            every sample size; refused where there is none. ``"split"`` and ``"prefit"`` need
            nothing for that. For ``"full"``, ``"jackknife+"`` and ``"cv+"`` the list is certified
            by conditional calibration (docs/guarantees): exactly for ``"knn"``, and for every
            other detector by one more model per row that may be flagged. Such a list has
            `e_values`, its q-values are nominal, and it says what the certificate cost.
        conditional, confidence
            Which p-values to use, as in `p_values`.
        alpha_bh : float, optional
            For ``"ebh"``: the level of the threshold inside each split; it affects power, not
            validity. By default 0.05, which suits an `fdr` of 0.1; half of `fdr` is a good choice
            for others. For one split it is by default `fdr`: Benjamini-Hochberg, then.
        false_alarms : float, optional
            Instead of `fdr` and `procedure`: flag p-values of at most `false_alarms` / m. The
            expected number of false alarms in the batch is then at most this number: a theorem for
            any dependence between new rows wherever one p-value is exact (docs/guarantees).
        top : int, optional
            How many rows a person can look at; see `Discoveries.first`.
        sample : int, optional
            Draw so many rows at random, to look at beside the list: `Discoveries.sample`.

        Returns
        -------
        Discoveries
        """
        if units is None:
            return self.decide(X, Rule(fdr, **rule), weights, groups=groups, times=times)
        rows = self.units_in(X, units, times)
        groups, times = rows.one_each(groups, "groups"), rows.begins(_times(X, times))
        found = self.decide(rows.frame, Rule(fdr, **rule), weights, groups=groups, times=times)
        library = package_of(frame_as_it_is(X))
        return replace(found, index=rows.names.tolist(), library=library, units=rows)

    def decide(
        self,
        X: npt.ArrayLike,
        rule: Rule,
        weights: Weights | None = None,
        *,
        groups: npt.ArrayLike | None = None,
        times: npt.ArrayLike | None = None,
    ) -> Discoveries:
        """Find anomalies in a batch by a rule; `discover` makes one from its parameters.

        Parameters
        ----------
        X : array-like or frame of shape (m, d)
            The batch.
        rule : Rule
        weights : Weights, optional
        groups : array-like of shape (m,), optional
            As in `discover`.

        Returns
        -------
        Discoveries
        """
        check_is_fitted(self, "ensemble_")
        X = frame_as_it_is(X)
        suited = self.for_rows(_num_samples(X))
        if suited is not self:
            return suited.decide(X, rule, weights, groups=groups, times=times)
        when = _times(X, times)
        if weights is not None:
            check_weighted(self, rule, weights, _num_samples(X))
        rule = rule.resolved(self, weights)
        grid = rule.grid(self, together=True)
        rule.whole_batch(self)  # refuses what has no theorem before any row is ranked
        rows = self.part_of(X, groups)
        if self.state_.origins is not None:
            apart = apart_from(self, digests_of(rows.X)[1], index_of(X))
            if apart is not self:
                return apart.decide(X, rule, weights, groups=groups, times=times)
        ranks, p_values = self._judge(X, rows, grid, together=True)
        new = NewRows(
            rows.X,
            partial(self._rows, X),
            ranks,
            p_values,
            index_of(X),
            package_of(X),
            self.state_.intake.categories(self, X) or None,
            partial(label_in, X),
            when,
        )
        found = decided_in_memory(self, rule, grid, new, weights)
        if found.warning is not None and not found.count:
            warn_once(self.ensemble_, "too small", found.warning, ReferenceWarning)
        return found

    def decide_ranked(
        self, X: FloatArray, ranks: Ranks, rule: Rule, weights: Weights | None = None
    ) -> Discoveries:
        """Decide for a batch that has been ranked already, and read by a reader of files.

        Parameters
        ----------
        X : float array of shape (m, d)
            As for `rank` with `checked`.
        ranks : Ranks
            What that gave.
        rule : Rule
        weights : Weights, optional

        Returns
        -------
        Discoveries
        """
        rule = rule.resolved(self, weights)
        grid = rule.grid(self, together=True)
        if self.joint is not None and ranks.groups is None:
            ranks = replace(ranks, groups=self.joint.apart(ranks.at_most)[0])
        read = partial(self.of_file, X)
        new = NewRows(read(), read, ranks, grid.values(ranks.at_most))
        return decided_in_memory(self, rule, grid, new, weights)

    def decide_counts(
        self, counts: RankCounts, rule: Rule, seen: Observed | None = None
    ) -> CountedDiscoveries:
        """Decide for all rows whose ranks were counted, exactly as if they had been one batch.

        Parameters
        ----------
        counts : RankCounts
            From `rank_counts`, of one batch or merged.
        rule : Rule
        seen : Observed, optional
            What else is known of the rows, such as a sample to check the assumption by.

        Returns
        -------
        CountedDiscoveries
        """
        check_is_fitted(self, "ensemble_")
        return decided_by_counts(self, rule, counts, Observed() if seen is None else seen)

    def explain(self, X: npt.ArrayLike) -> Explanation:
        """Explain one row, judged by itself as `p_values` does it.

        `Discoveries.explain` explains the rows of a list.

        Parameters
        ----------
        X : array-like or frame of shape (1, d)

        Returns
        -------
        Explanation

        Examples
        --------
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> cad = ConformalDetector("knn", "split", random_state=0).fit(X)
        >>> told = cad.explain([[0.0, 9.0, 0.0]])
        >>> told.features[0].name, told.features[0].place
        ('feature 1', 'above all 200')
        """
        check_is_fitted(self, "ensemble_")
        if _num_samples(X) != 1:
            raise ReconformError(
                f"explain takes one row; got {_num_samples(X)}. A list of rows explains any of "
                "them: discover(X).explain(row)."
            )
        p_value = float(self.p_values(X)[0])
        explainer = explainer_for(
            self,
            partial(self._rows, X),
            choose=lambda: np.zeros(1, dtype=np.intp),
            unlisted=partial(label_in, X),
        )
        if explainer is None:
            raise ReconformError(NO_REFERENCE)
        index = index_of(X)
        label = "0" if index is None else str(index[0])
        return explainer.explain([0], [Judged(label, None, p_value)])[0]

    def name_reference(self, labels: Sequence[Any]) -> ConformalDetector:
        """Name the reference rows, for explanations; a pandas index is taken without that.

        Parameters
        ----------
        labels : sequence of length n
            One for every row that was given to `fit`.

        Returns
        -------
        ConformalDetector
            Itself.
        """
        check_is_fitted(self, "ensemble_")
        if self.known_rows is not None:
            self.state_.known = self.known_rows.named(labels)
        return self

    @property
    def known_rows(self) -> Known | None:
        """The reference rows that are kept: those of the fit, or what a model file has."""
        kept, n, sample = self.state_, self.plan_.n, self.reference_sample_
        if kept.known is not None or (kept.reference is None and sample is None):
            return kept.known
        if kept.reference is not None:
            return Known(kept.reference, n, np.arange(n))
        assert sample is not None
        frames = isinstance(kept.intake, Frames) and not kept.intake.text
        return Known(self.of_file(sample) if frames else sample, n)

    def threshold(
        self, false_alarm_rate: float = 0.01, *, confidence: float = 0.95
    ) -> ScoreThreshold:
        """Find a raw score cut-off for production, with a bounded false-alarm rate.

        For split and prefit: with probability `confidence` over the calibration set, at most a
        share `false_alarm_rate` of future normal rows scores *strictly* beyond the cut-off.

        Parameters
        ----------
        false_alarm_rate : float, default=0.01
        confidence : float, default=0.95

        Returns
        -------
        ScoreThreshold
            In the polarity of the detector's own scores, which `larger_is` states; `flags` applies
            it. With too few calibration rows nothing is flagged, and it says how many are needed.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.ensemble import IsolationForest
        >>> X = np.random.default_rng(0).normal(size=(2000, 2))
        >>> model = IsolationForest(random_state=0).fit(X[:1000])
        >>> limit = ConformalDetector(model, "prefit").fit(X[1000:]).threshold(0.01)
        >>> int(limit.flags(model.score_samples([[0, 0], [9, 9]])).sum())
        1
        """
        check_is_fitted(self, "ensemble_")
        if self.joint is not None:
            raise ReconformError(
                "threshold is one cut-off for all rows, and this detector ranks rows within "
                "groups; fit one without `groups` for each of them."
            )
        if not self.plan_.one_model:
            raise ReconformError(
                "threshold needs one model and calibration rows it has not seen; use "
                f"method='split' or 'prefit' instead of {self.method!r}."
            )
        limit = score_threshold(self.calibration_.scores, false_alarm_rate, confidence)
        inner = self.detector.detector if isinstance(self.detector, Prepare) else self.detector
        own = resolve_detector(inner, self.larger_is, refit=False)
        return limit if isinstance(own, NativeDetector) or own.sign > 0 else limit.turned()

    def update(
        self,
        X: npt.ArrayLike | None = None,
        marks: Sequence[Any] = (),
        *,
        sample: npt.ArrayLike | None = None,
        normal: npt.ArrayLike | None = None,
        left_out: int = 0,
        add_false: bool = False,
        keep: int | None = None,
    ) -> Self:
        """Fit again by what a person said of rows, and with more rows (docs/feedback).

        Parameters
        ----------
        X : array-like or frame of shape (m, d), optional
            A batch that was judged, all of it. The same rows, by their content, are never judged
            by what was said of them in it.
        marks : sequence of length m
            For every row ``"real"`` (an anomaly), ``"false"`` (a normal row), ``"unsure"`` or
            nothing. Anomalies shape the scores of ``"contrast"`` and ``"learned"`` and the choice
            of ``"auto"``, and never calibrate.
        sample : int array, optional
            The positions of the random sample (`Discoveries.sample`): its normal rows join the
            reference, flagged or not.
        normal : array-like or frame of shape (k, d), optional
            Other rows that join it.
        left_out : int, default=0
            How many rows that are marked as real were taken out of `normal`; never take out all
            flagged rows.
        add_false : bool, default=False
            Let flagged rows join that were false alarms, too: conservative where scores stay as
            they are, and measured where models are fitted again.
        keep : int, optional
            Keep so many rows of the reference, the newest.

        Returns
        -------
        ConformalDetector
            A new one; ``state_.updates`` says what each update changed. This one stays as it is.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> day = np.vstack([rng.normal(size=(180, 2)), rng.normal(3, 0.2, size=(20, 2))])
        >>> cad = ConformalDetector("contrast", "full").fit(rng.normal(size=(200, 2)))
        >>> found = cad.discover(day, sample=10)
        >>> marks = ["real" if flag and i >= 180 else "" for i, flag in enumerate(found.mask)]
        >>> newer = cad.update(day, marks)
        >>> print(newer.state_.updates[-1])
        20 known anomalies were added; the reference has 200 rows now.
        """
        check_is_fitted(self, "ensemble_")
        check_count("left_out", left_out, least=0)
        looked = None
        if X is not None:
            rows, said, drawn = self._rows(X), marks_of(marks), np.zeros(_num_samples(X), bool)
            if len(said) != len(drawn):
                raise ReconformError(
                    f"`marks` must be one per row: {len(drawn)} rows, {len(said)} marks."
                )
            if sample is not None:
                drawn[np.asarray(sample)] = True
            looked = Looked(rows, said, drawn, row_keys(digests_of(rows)[1], index_of(X)))
        more = None if normal is None else self._rows(normal)
        return updated(self, looked, normal=more, left_out=left_out, add_false=add_false, keep=keep)

    def provenance(self) -> Provenance:
        """Where decisions of this detector come from: method, detector, sizes, seed, version."""
        check_is_fitted(self, "ensemble_")
        return provenance_of(self)


def index_of(X: Any) -> Any:
    """The labels of the rows of a pandas frame; None for anything else."""
    return getattr(X, "index", None) if hasattr(X, "iloc") else None


def _times(X: Any, times: Any) -> FloatArray | None:
    """When rows were taken: as it was said, or by an index of times; None if nobody knows."""
    index = index_of(X)
    if times is None and getattr(getattr(index, "dtype", None), "kind", "") == "M":
        times = index
    return None if times is None else seconds_of(times, _num_samples(X))
