"""ConformalDetector: the estimator that wires plan, ensemble, ranks and FDR control together."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, OutlierMixin, clone
from sklearn.utils.validation import _num_samples, check_is_fitted

from .arrays import BoolArray, FloatArray, IntArray, RankArray
from .assumption import (
    Category,
    Compared,
    monotone_columns,
    new_sample,
    reference_sample,
    unused_batch,
)
from .assumption.reference import warn_of_columns, warn_of_scores
from .content import Contents, RowStreams, by_content
from .detectors import Auto, ForeignDetector, NativeDetector, resolve_detector
from .detectors.auto.ensembles import ChoiceEnsemble, SplitChoice, Tally
from .detectors.prepared import Prepared, category_columns
from .discoveries import CountedDiscoveries, Discoveries, Provenance
from .ensemble import Ensemble, RepeatedSplit
from .errors import (
    ReconformError,
    ReferenceWarning,
    check_probability,
    unknown_choice,
    warn_once,
)
from .frames import frame_as_it_is, library_of
from .intake import Intake, Numbers, taken_in
from .keep import MEMORY, check_keep
from .methods import BySize, Full, Method, Plan, Prefit, resolve_method
from .parallel import track
from .prepare import Feature, Prepare
from .randomness import Streams, root_seed
from .refitting import OneModel
from .rule import Rule
from .statistics.certificates import Guarantee, guarantee_of
from .statistics.choice import Choice, ChoiceCounts, with_mask
from .statistics.fdr import RankCounts
from .statistics.grid import Grid, usual
from .statistics.ranks import RankedBatch, Ranks, smoothed_p_values
from .statistics.stability import Stability
from .statistics.thresholds import ScoreThreshold, score_threshold
from .statistics.worlds import StepUp, Worlds, cost_sentence
from .ties import row_labels, tie_uniforms, warn_if_unlabelled

TIES = ("conservative", "randomized")


class ConformalDetector(OutlierMixin, BaseEstimator):
    """Any anomaly detector, with conformal p-values and lists at a chosen false discovery rate.

    What is proven of them depends on the method: `guarantee_` says it, and so does every list. By
    default every p-value is exact, and the false discovery rate of a list is measured; with
    ``discover(..., validity="proven")`` it is proven, too.

    Parameters
    ----------
    detector : str, estimator, callable, or a list of these, default="auto"
        ``"auto"``, which tries several and chooses one for every new row (see
        `reconform.detectors.Auto`), or a list to choose from; ``"knn"``, ``"iforest"``,
        ``"inne"``, ``"lof"``, ``"mahalanobis"``, ``"kde"``, ``"contrast"`` (with
        ``method="full"``; see `reconform.detectors.Contrast`); a scikit-learn outlier detector or a
        pipeline ending in one; a PyOD detector; an object with ``fit`` and ``score_samples``; or a
        function ``fit(X) -> score(X)``, optionally ``fit(X, random_state)``.
    method : str or Method, default="auto"
        ``"auto"``, which is ``"full"`` where that is cheap and ``"split"`` where rows are many
        (`reconform.methods.BySize`); ``"split"``, ``"jackknife"``, ``"jackknife+"``, ``"cv"``,
        ``"cv+"``, ``"jab"``, ``"jab+"``, ``"full"``, ``"prefit"``, or a method object such as
        ``Bootstrap(draws=50)``.
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
        bare function must state it.
    random_state : int, RandomState, Generator or None, default=None
        One seed for everything: the plan, and the draws of the models. What is drawn depends on the
        contents of the rows and not on their order. Any ``random_state`` inside the detector is
        replaced.
    n_jobs : int, optional
        Number of joblib jobs; ``joblib.parallel_config`` chooses the backend.
    verbose : int, default=0
        With 1, show a progress bar.
    keep : "memory" or path of a folder, default="memory"
        Where the resampled models of a detector from elsewhere stay. In a folder they are a cache
        that lives as long as the fitted object, and one at a time is loaded to score; the native
        detectors are small and stay in memory.

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
    offset_ : float
        The smallest p-value that is not an outlier in `predict`.
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

    # The reference rows of a fit that another method may have to be fitted on; see `for_rows`.
    _reference: FloatArray | None = None
    _large: ConformalDetector | None = None
    _intake: Intake = Numbers()

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
        keep: str | Path = MEMORY,
    ) -> None:
        self.detector = detector
        self.method = method
        self.alpha = alpha
        self.ties = ties
        self.larger_is = larger_is
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.keep = keep

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if isinstance(self.detector, Prepare):
            tags.input_tags.allow_nan = True
            return tags
        try:
            tags.input_tags.allow_nan = resolve_detector(self.detector, self.larger_is).accepts_nan
        except (ImportError, ValueError):  # fit will say what is wrong
            tags.input_tags.allow_nan = False
        return tags

    def fit(
        self, X: npt.ArrayLike, y: object = None, *, groups: npt.ArrayLike | None = None
    ) -> ConformalDetector:
        """Fit and calibrate on normal rows.

        Parameters
        ----------
        X : array-like or frame of shape (n, d)
            Normal rows, exchangeable with the normal rows to come.
        y : ignored
            Present for scikit-learn's convention.
        groups : array-like of shape (n,), optional
            For `Resampling` with a splitter that keeps groups together.

        Returns
        -------
        ConformalDetector
            Itself.
        """
        method = resolve_method(self.method)
        refit = not isinstance(method, Prefit)
        detector, intake = taken_in(self.detector, X, self.larger_is, refit=refit)
        check_probability("alpha", self.alpha)
        if self.ties not in TIES:
            raise unknown_choice("ties", self.ties, TIES)
        check_keep(self.keep)
        if groups is not None and not method.uses_groups:
            raise ReconformError(
                f"method={self.method!r} does not look at groups, and rows of one group would be "
                "torn apart; leave `groups` out, or use a method that keeps groups together, such "
                "as Resampling(GroupKFold(10))."
            )
        self._intake = intake
        X = self._validate(X, reset=True)
        self._reference = None
        if isinstance(method, BySize):
            method = method.method_for(
                len(X), refits=not _fits_at_once(detector), uses_batch=isinstance(detector, Auto)
            )
            if isinstance(method, Full):
                self._reference = X  # a batch of very many rows wants a split of these
        if groups is not None and len(np.asarray(groups)) != len(X):
            raise ReconformError(
                f"groups must have one label per row: {len(X)} rows, {len(np.asarray(groups))} "
                "labels."
            )

        plan_seed, model_seed, tie_seed = root_seed(self.random_state).spawn(3)
        contents = Contents.of(X, n_jobs=self.n_jobs)
        draws: dict[str, Any] = {"shuffle": by_content(contents)} if method.shuffles else {}
        plan = method.plan(len(X), groups=groups, random_state=plan_seed, **draws)
        if detector.frozen and plan.scheme != "prefit":
            raise ReconformError(
                f"method={self.method!r} would fit the detector again, and {detector.name} is "
                "frozen; use method='prefit' to calibrate a model as it is."
            )
        # Nothing is drawn by the place of a row: the order of the reference does not matter.
        seeds: Sequence[np.random.SeedSequence]
        if plan.leaves_one_out:
            seeds = RowStreams(model_seed, contents)
        else:
            seeds = Streams(model_seed, plan.n_models + 1)
        with intake.explained(detector, X):
            ensemble = self._fit_ensemble(detector, X, plan, seeds)

        self._adopt(plan, ensemble)
        no_way_of_its_own = (
            type(ensemble).worlds is Ensemble.worlds
            and type(ensemble).see_with_each is Ensemble.see_with_each
        )
        if self.guarantee_.certified and no_way_of_its_own and ensemble.by_refitting is None:
            ensemble.by_refitting = OneModel(detector, X, seeds[-1], self.n_jobs)
        # p = alpha is an outlier, and scikit-learn calls a row normal where p - offset_ >= 0.
        self.offset_ = float(np.nextafter(float(self.alpha), 2.0))
        self._tie_key = int(tie_seed.generate_state(1, np.uint64)[0])
        self.reference_sample_ = reference_sample(X, contents)
        warn_of_columns(np.asarray(X), self._names(), ensemble)
        warn_of_scores(ensemble.calibration.scores, detector.name, ensemble)
        return self

    def _adopt(self, plan: Plan, ensemble: Ensemble) -> None:
        """Set what follows from fitted models: `fit` makes them, `load` reads them.

        Parameters
        ----------
        plan : Plan
        ensemble : Ensemble
        """
        self.plan_ = plan
        self.ensemble_ = ensemble
        self._large = None
        self.calibration_ = ensemble.calibration
        # a repeated split has a calibration set per split, and ranks within one
        self.n_calibration_ = len(ensemble.calibration) // len(plan.repeats)
        self.guarantee_ = guarantee_of(
            plan,
            shares_draws=ensemble.shares_draws,
            plus_is_full=ensemble.plus_is_full,
            uses_batch=ensemble.uses_batch,
        )

    def for_rows(self, m: int) -> ConformalDetector:
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
        if self._reference is None or m <= BySize().most_rows(len(self._reference)):
            return self
        if self._large is None:
            split = clone(self).set_params(method=BySize().method_for(self.plan_.n, m))
            if not isinstance(self.random_state, numbers.Integral):
                # A fit has one seed, whoever asks and however often, from a model file too.
                split.set_params(random_state=self._tie_key)
            if isinstance(self.detector, Prepare):  # the rows are coded already
                split.set_params(detector=self.detector.for_features(self.features))
            self._large = split.fit(getattr(self._reference, "frame", self._reference))
            self._large._intake = self._intake
            if self._names():
                self._large.feature_names_in_ = self.feature_names_in_
        return self._large

    @property
    def most_rows(self) -> int | None:
        """The largest batch that this object itself judges, see `for_rows`; None for any."""
        if self._reference is None:
            return None
        return BySize().most_rows(len(self._reference))

    def tally(self) -> Tally | None:
        """Return what ranks rows in two passes over parts of a batch, if that can be done.

        A choice of detectors on a split needs no more of the other new rows than their scores.
        For everything else None: rows are ranked by `rank`.
        """
        check_is_fitted(self, "ensemble_")
        return Tally(self.ensemble_) if isinstance(self.ensemble_, SplitChoice) else None

    def candidate_scores(self, X: npt.ArrayLike, *, checked: bool = False) -> FloatArray:
        """Score new rows by every detector that `discover` chooses from, on a split.

        Parameters
        ----------
        X : array-like or frame of shape (m, d)
        checked : bool
            As in `rank`.

        Returns
        -------
        float array of shape (detectors, m)
            For `tally`; small = anomalous.
        """
        check_is_fitted(self, "ensemble_")
        if not isinstance(self.ensemble_, SplitChoice):
            raise ReconformError(
                "candidate_scores needs several detectors on a split; use detector='auto' and "
                "method='split'."
            )
        return self.ensemble_.scores(self._of_file(np.asarray(X)) if checked else self._rows(X))

    @property
    def chooses(self) -> bool:
        """Whether `discover` chooses one of several detectors for every new row.

        `p_values`, `score_samples` and `predict` judge rows alone, by the first of them.
        """
        check_is_fitted(self, "ensemble_")
        return isinstance(self.ensemble_, ChoiceEnsemble)

    @property
    def guarantee_alone(self) -> Guarantee:
        """What is known of p-values of rows alone; `guarantee_` is about lists, too."""
        ensemble = self.ensemble_
        if isinstance(ensemble, ChoiceEnsemble):
            ensemble = ensemble.fitted[0]
        return guarantee_of(
            self.plan_,
            shares_draws=ensemble.shares_draws,
            plus_is_full=ensemble.plus_is_full,
            uses_batch=ensemble.uses_batch,
        )

    @property
    def uses_batch(self) -> bool:
        """Whether `discover` ranks a row by the other new rows, too: ``"auto"``, ``"contrast"``.

        `p_values`, `score_samples` and `predict` judge every row by itself, whatever the detector.
        """
        check_is_fitted(self, "ensemble_")
        return self.ensemble_.uses_batch

    def rank(
        self,
        X: npt.ArrayLike,
        *,
        variant: str | None = None,
        checked: bool = False,
        together: bool = False,
    ) -> Ranks:
        """Rank and score new rows: all that is known about them before a decision.

        Parameters
        ----------
        X : array-like or frame of shape (m, d)
        variant : {"plus", "basic", "pooled"}, optional
            A comparison other than the method's, where the models for it are kept.
        checked : bool
            X is a float array with the columns of the fit in their order, as a reader of files
            makes it; it is not checked again.
        together : bool
            X is a whole batch, and its rows are ranked as `discover` does it. It makes a
            difference where `uses_batch`.

        Returns
        -------
        Ranks
            `at_most`: 1 + #{i : c_i <= t_i}, from 1 (most anomalous) to n_calibration_ + 1;
            `below`: the same for <, with ``ties="randomized"``; `scores`: one raw score per row,
            small = anomalous.
        """
        check_is_fitted(self, "ensemble_")
        rows = self._of_file(np.asarray(X)) if checked else self._rows(X)
        return self._rank(rows, variant=variant, together=together)

    def _rank(
        self, rows: FloatArray, *, variant: str | None = None, together: bool = False
    ) -> Ranks:
        strictly = self.ties == "randomized"
        if together:
            return self.ensemble_.batch_ranks(rows, strictly=strictly)
        return self.ensemble_.ranks(rows, variant=variant, strictly=strictly)

    def ranks(self, X: npt.ArrayLike) -> RankArray:
        """Return the ranks of new rows alone: 1 + #{i : c_i <= t_i}; see `rank`.

        Parameters
        ----------
        X : array-like or frame of shape (m, d)

        Returns
        -------
        int array of shape (m,)
        """
        return self.rank(X).at_most

    def p_values(
        self,
        X: npt.ArrayLike,
        *,
        validity: str = "nominal",
        conditional: str | None = None,
        confidence: float = 0.9,
    ) -> FloatArray:
        """Conformal p-values of new rows.

        Parameters
        ----------
        X : array-like or frame of shape (m, d)
        validity : {"nominal", "proven"}, default="nominal"
            With ``"proven"``, p-values for which P(p <= α) <= α is a theorem:
            (2r - 1) / (n + 1) for rank r of jackknife+, a little more for cv+, unchanged for split,
            prefit and full, refused for methods that are only measured.
        conditional : {"simes", "dkw", "montecarlo", "asymptotic"}, optional
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
        return self._judge(X, rule.grid(self))[1]

    def score_samples(self, X: npt.ArrayLike) -> FloatArray:
        """Return `p_values`, under scikit-learn's name: small = anomalous."""
        return self.p_values(X)

    def decision_function(self, X: npt.ArrayLike) -> FloatArray:
        """Return p-values minus `offset_`: negative for outliers at level `alpha`."""
        return self.p_values(X) - self.offset_

    def predict(self, X: npt.ArrayLike) -> IntArray:
        """Test every row on its own at level `alpha`: +1 normal, -1 outlier.

        Decisions that look at the whole batch, and aim at a share of false alarms among the
        alarms, are made by `discover`.
        """
        return np.where(self.decision_function(X) >= 0, 1, -1).astype(np.int64)

    def discover(
        self,
        X: npt.ArrayLike,
        fdr: float | Fraction = 0.1,
        *,
        procedure: str = "bh",
        storey_lambda: float | Fraction = 0.5,
        validity: str = "nominal",
        conditional: str | None = None,
        confidence: float = 0.9,
        alpha_bh: float | Fraction | None = None,
        false_alarms: float | Fraction | None = None,
        top: int | None = None,
    ) -> Discoveries:
        """Find anomalies in a batch, aiming at a false discovery rate.

        Whether the rate is proven to be at most `fdr` depends on method and procedure, and
        ``Discoveries.guarantee`` says it. For the defaults (Benjamini-Hochberg on ``"jab+"``) it
        is measured only; it is proven for ``"split"`` and ``"prefit"``. With
        ``validity="proven"`` it is proven for ``"full"``, ``"jackknife+"`` and ``"cv+"`` as well.

        Parameters
        ----------
        X : array-like or frame of shape (m, d)
            The batch. Where `uses_batch`, its rows are compared with each other, and their
            p-values are not those of `p_values`, which judges every row by itself.
        fdr : float, default=0.1
            False discovery rate aimed at: the share of false ones among the discoveries, on
            average over repetitions.
        procedure : {"bh", "by", "storey", "ebh"}, default="bh"
            Benjamini-Hochberg, Benjamini-Yekutieli (any dependence), Benjamini-Hochberg with
            Storey's estimate of the share of normal rows, or e-BH on the e-values of a split,
            averaged over its repeats (Bashari et al. 2023).
        storey_lambda : float, default=0.5
            Storey's λ.
        validity : {"nominal", "proven"}, default="nominal"
            With ``"proven"``, a list whose false discovery rate is at most `fdr` by a theorem, for
            every sample size; refused where there is none. ``"split"`` and ``"prefit"`` need
            nothing for that. For ``"full"``, ``"jackknife+"`` and ``"cv+"`` the list is certified
            by conditional calibration (docs/guarantees): exactly for ``"knn"``, and for every
            other detector by one more model per row that may be flagged. Such a list has
            `e_values` and no q-values, and says what the certificate cost.
        conditional, confidence
            Which p-values to use, as in `p_values`.
        alpha_bh : float, optional
            For ``"ebh"``: the level of the threshold inside each split; it affects power, not
            validity. By default 0.05, which suits an `fdr` of 0.1; half of `fdr` is a good choice
            for others. For one split it is by default `fdr` itself, and e-BH is then
            Benjamini-Hochberg.
        false_alarms : float, optional
            Instead of `fdr` and `procedure`: flag p-values of at most `false_alarms` / m. The
            expected number of false alarms in the batch is then at most this number: a theorem for
            any dependence between new rows wherever one p-value is exact (docs/guarantees).
        top : int, optional
            How many rows a person can look at. The list then says what is known of the rows that
            come first, flagged or not: `Discoveries.first`. It changes no decision.

        Returns
        -------
        Discoveries
        """
        rule = Rule(
            fdr=fdr,
            procedure=procedure,
            storey_lambda=storey_lambda,
            validity=validity,
            conditional=conditional,
            confidence=confidence,
            alpha_bh=alpha_bh,
            false_alarms=false_alarms,
            top=top,
        )
        return self.decide(X, rule)

    def decide(self, X: npt.ArrayLike, rule: Rule) -> Discoveries:
        """Find anomalies in a batch by a rule; `discover` makes one from its parameters.

        Parameters
        ----------
        X : array-like or frame of shape (m, d)
            The batch.
        rule : Rule

        Returns
        -------
        Discoveries
        """
        check_is_fitted(self, "ensemble_")
        suited = self.for_rows(_num_samples(X))
        if suited is not self:
            return suited.decide(X, rule)
        grid = rule.grid(self, together=True)
        rule.whole_batch(self)  # refuses what has no theorem before any row is ranked
        ranks, p_values = self._judge(X, grid, together=True)
        index = getattr(X, "index", None) if hasattr(X, "iloc") else None
        library = library_of(frame_as_it_is(X))
        whose = None if library is None else library.package
        found = self._decide(
            partial(self._rows, X),
            ranks,
            p_values,
            grid,
            rule,
            index,
            whose,
            self._intake.categories(self, X) or None,
        )
        if found.warning is not None and not found.count:
            warn_once(self.ensemble_, "too small", found.warning, ReferenceWarning)
        return found

    def decide_ranked(self, X: FloatArray, ranks: Ranks, rule: Rule) -> Discoveries:
        """Decide for a batch that has been ranked already, and read by a reader of files.

        Parameters
        ----------
        X : float array of shape (m, d)
            As for `rank` with `checked`.
        ranks : Ranks
            What that gave.
        rule : Rule

        Returns
        -------
        Discoveries
        """
        grid = rule.grid(self, together=True)
        rows = partial(self._of_file, X)
        return self._decide(rows, ranks, grid.values(ranks.at_most), grid, rule, None)

    def _decide(
        self,
        rows: Callable[[], FloatArray],
        ranks: Ranks,
        p_values: FloatArray,
        grid: Grid,
        rule: Rule,
        index: Any,
        library: str | None = None,
        categories: Mapping[int, Category] | None = None,
    ) -> Discoveries:
        smoothed = self.ties == "randomized"
        batch = RankedBatch(
            ranks,
            p_values,
            grid,
            self.calibration_,
            self.n_calibration_,
            smoothed,
            partial(self._worlds, rows, ranks.choice),
        )
        outcome = rule.decide_batch(batch, self)
        X = rows()
        monotone = monotone_columns(np.asarray(X))
        facts = self._facts(
            rule, grid, len(p_values), new_sample(X), ranks, categories, monotone=monotone
        )
        if outcome.plain is not None:
            facts["claim"] += " " + cost_sentence(outcome.mask, outcome.plain)
        if ranks.choice is not None:
            counts = ChoiceCounts(ranks.choice.names, self.n_calibration_).add(ranks.choice)
            tried = counts.candidates(0, partial(self._alone, rule))
            facts["choice"] = with_mask(tried, ranks.choice, outcome.mask)
        return Discoveries(
            mask=outcome.mask,
            p_values=p_values,
            q_values=outcome.q_values,
            scores=ranks.scores,
            ranks=None if smoothed else ranks.at_most,
            index=index,
            library=library,
            decision=outcome.decision,
            e_values=outcome.e_values,
            plain_mask=outcome.plain,
            p_threshold=float(p_values[outcome.mask].max(initial=0.0)),
            **facts,
        )

    def _alone(self, rule: Rule, by_rank: RankArray) -> int:
        """Count what a plain list of rows would have, of which so many have rank 0, 1, ..."""
        counts = RankCounts(self.n_calibration_, "").add_counts(by_rank)
        plain = replace(rule, validity="nominal", conditional=None)
        return plain.decide_counts(counts, usual(self.n_calibration_)).count

    def _worlds(
        self,
        rows: Callable[[], FloatArray],
        choice: Choice | None,
        candidates: RankArray,
        step: StepUp,
    ) -> Iterator[tuple[int, Worlds]]:
        """`Ensemble.worlds` of new rows, with a bar where it was asked for."""
        if choice is not None and isinstance(self.ensemble_, ChoiceEnsemble):
            every = self.ensemble_.worlds_of_choice(rows(), candidates, step, choice)
        else:
            every = self.ensemble_.worlds(rows(), candidates, step)
        return track(every, total=len(candidates), label="certifying", verbose=self.verbose)

    def decide_counts(
        self,
        counts: RankCounts,
        rule: Rule,
        *,
        new: FloatArray | None = None,
        together: Ranks | None = None,
        choice: ChoiceCounts | None = None,
        categories: Mapping[int, Category] | None = None,
        monotone: BoolArray | None = None,
    ) -> CountedDiscoveries:
        """Decide for all rows whose ranks were counted, exactly as if they had been one batch.

        Parameters
        ----------
        counts : RankCounts
            From `rank_counts`, of one batch or merged.
        rule : Rule
        new : float array of shape (t, d), optional
            A sample of the rows (`reconform.assumption.Reservoir`), to check the assumption by.
        together : Ranks, optional
            What was counted, if it is one batch that was ranked together.
        choice : ChoiceCounts, optional
            Which detectors were chosen, where one is for every row.
        categories : mapping, optional
            By position, what a reader of files knows of the columns that hold labels.
        monotone : bool array of shape (d,), optional
            Which columns only rise or only fall from row to row.

        Returns
        -------
        CountedDiscoveries
        """
        check_is_fitted(self, "ensemble_")
        as_one = together is not None or choice is not None
        grid = rule.counting_grid(self, "what is merged", together=as_one)
        decision = rule.decide_counts(counts, grid)
        facts = self._facts(rule, grid, decision.tested, new, together, categories, monotone)
        if choice is not None:
            alone = partial(self._alone, rule)
            facts["choice"] = choice.candidates(decision.rank_threshold, alone)
        return CountedDiscoveries(
            decision=decision,
            rank_counts=counts,
            p_threshold=decision.p_threshold,
            **facts,
        )

    def _facts(
        self,
        rule: Rule,
        grid: Grid,
        m: int,
        new: FloatArray | None,
        ranks: Ranks | None,
        categories: Mapping[int, Category] | None = None,
        monotone: BoolArray | None = None,
    ) -> dict[str, Any]:
        """What every list says of itself, whatever the source of the rows; `new` is a sample."""
        if categories is None:
            categories = self._intake.categories() or {
                j: Category() for j in category_columns(self.detector)
            }
        # A certified list is made from ranks, whatever the p-values beside it are worth.
        by_ranks = rule.whole_batch(self) is not None
        found = () if ranks is None else unused_batch(ranks.clumped)
        return {
            "procedure": rule.procedure,
            "fdr": None if rule.false_alarms is not None else float(rule.level),
            "false_alarms": None if rule.false_alarms is None else float(rule.level),
            "top": rule.top,
            "claim": rule.sentence(self),
            "compared": Compared(
                self.reference_sample_, new, self._names(), found, categories, monotone
            ),
            "provenance": self.provenance(),
            "warning": rule.warning(
                self.n_calibration_,
                m,
                n_reference=self.plan_.n,
                smallest_p=None if by_ranks else grid.smallest,
            ),
        }

    def rank_counts(self, X: npt.ArrayLike) -> RankCounts:
        """Count the ranks of a batch; the counts of batches merge, and decide like the whole.

        Parameters
        ----------
        X : array-like or frame of shape (m, d)

        Returns
        -------
        RankCounts
        """
        if self.ties == "randomized":
            raise ReconformError(
                "smoothed p-values are off the grid of ranks and cannot be counted; "
                "use ties='conservative'."
            )
        if self.chooses:
            raise ReconformError(
                "the counts of batches are merged, and which detector is chosen for a row depends "
                "on all new rows; use discover(X) with all rows, judge_file or "
                "reconform.scale.discover for rows that come in parts, or a single detector such "
                "as 'knn'."
            )
        if self.uses_batch:
            raise ReconformError(
                "the counts of batches are merged, and this detector compares the new rows of a "
                "batch with each other; use discover(X) with all rows."
            )
        counts = RankCounts(self.n_calibration_, self.calibration_.fingerprint)
        return counts.add(self.rank(X).at_most)

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
        if self.plan_.scheme not in ("split", "prefit") or self.plan_.n_models > 1:
            raise ReconformError(
                "threshold needs one model and calibration rows it has not seen; use "
                f"method='split' or 'prefit' instead of {self.method!r}."
            )
        limit = score_threshold(self.calibration_.scores, false_alarm_rate, confidence)
        inner = self.detector.detector if isinstance(self.detector, Prepare) else self.detector
        own = resolve_detector(inner, self.larger_is, refit=False)
        return limit if isinstance(own, NativeDetector) or own.sign > 0 else limit.turned()

    def stability(self, X: npt.ArrayLike) -> Stability:
        """Compare basic with plus ranks of the same rows (the paper's stability remark).

        Non-retaining variants rely on the model fitted on all rows being close to the resampled
        ones. This says how close they are for this detector and these data.

        Parameters
        ----------
        X : array-like or frame of shape (m, d)
            Rows like those in production.

        Returns
        -------
        Stability
            Numbers, and a verdict in words.
        """
        check_is_fitted(self, "ensemble_")
        if self.plan_.scheme in ("split", "prefit", "full"):
            raise ReconformError(
                f"stability compares resampled models with one on all rows, and "
                f"method={self.method!r} has none; use it with jackknife+, cv+, jab+ or Resampling."
            )
        X = self._validate(X, reset=False)
        return Stability(
            basic=self.ensemble_.ranks(X, variant="basic").at_most,
            plus=self.ensemble_.ranks(X, variant="plus").at_most,
            n_calibration=self.n_calibration_,
            alpha=float(self.alpha),
        )

    def _validate(self, X: npt.ArrayLike, *, reset: bool) -> FloatArray:
        """Rows as the detector sees them: an array, or `FrameRows`, which stand in for one."""
        finite = "allow-nan" if self.__sklearn_tags__().input_tags.allow_nan else True
        rows: FloatArray = self._intake.read(
            self, X, reset=reset, least=2 if reset else 1, finite=finite
        )
        return rows

    def _rows(self, X: npt.ArrayLike) -> FloatArray:
        check_is_fitted(self, "ensemble_")
        if _num_samples(frame_as_it_is(X)) == 0:
            raise ReconformError("X has no rows; give at least one row to judge.")
        return self._validate(X, reset=False)

    @property
    def features(self) -> tuple[Feature, ...]:
        """The columns as files are read for the detector; none if the reference had no names.

        With `Prepare` they have the categories of the reference.
        """
        check_is_fitted(self, "ensemble_")
        return self._intake.features(self._names())

    def _of_file(self, X: FloatArray) -> FloatArray:
        """Numbers that a reader of files made, as the detector sees them."""
        rows: FloatArray = self._intake.of_file(X, self._names())
        return rows

    def _judge(
        self, X: npt.ArrayLike, grid: Grid, *, together: bool = False
    ) -> tuple[Ranks, FloatArray]:
        """Ranks and p-values."""
        if self.ties != "randomized":
            ranks = self.rank(X, together=together)
            return ranks, grid.values(ranks.at_most)
        rows = self._rows(X)
        ranks = self._rank(rows, together=together)
        labels = row_labels(X)
        warn_if_unlabelled(labels, len(rows), self)
        uniforms = tie_uniforms(self._tie_key, rows, labels)
        return ranks, smoothed_p_values(ranks, self.n_calibration_, uniforms)

    def _fit_ensemble(
        self,
        detector: ForeignDetector | NativeDetector,
        X: FloatArray,
        plan: Plan,
        seeds: Sequence[np.random.SeedSequence],
    ) -> Ensemble:
        fit_plan: Callable[..., Ensemble] = partial(detector.fit_plan, n_jobs=self.n_jobs)
        if isinstance(detector, ForeignDetector):
            fit_plan = partial(fit_plan, keep=self.keep)
        if len(plan.repeats) == 1:
            return fit_plan(X, plan, seeds, verbose=self.verbose)
        if isinstance(detector, Auto):
            raise ReconformError(
                "a detector is chosen on one split, and Split(repeats=...) has several; use "
                "repeats=1, `method='full'`, or one detector such as 'knn'."
            )
        splits = track(plan.repeats, total=len(plan.repeats), label="splits", verbose=self.verbose)
        return RepeatedSplit(
            [
                fit_plan(X, split, [seed, seeds[-1]])
                for split, seed in zip(splits, seeds[:-1], strict=True)
            ]
        )

    def _names(self) -> tuple[str, ...]:
        return tuple(map(str, getattr(self, "feature_names_in_", ())))

    def provenance(self) -> Provenance:
        """Where decisions of this detector come from: method, detector, sizes, seed, version."""
        check_is_fitted(self, "ensemble_")
        return Provenance(
            detector=repr(self.detector),
            method=repr(self.method),
            scheme=self.plan_.scheme,
            variant=self.plan_.variant,
            n_reference=self.plan_.n,
            n_calibration=self.n_calibration_,
            n_features=self.n_features_in_,
            calibration_scores=self.calibration_.scores,
            calibration_fingerprint=self.calibration_.fingerprint,
            feature_names=self._names(),
            random_state=repr(self.random_state),
            version=version("reconform"),
            one_split=self.plan_.scheme in ("split", "prefit")
            and self.plan_.n_models == 1
            and not self.uses_batch,
        )


def _fits_at_once(detector: ForeignDetector | NativeDetector) -> bool:
    """Whether full-conformal ranks need no fit per new row."""
    if isinstance(detector, Auto):
        return all(map(_fits_at_once, detector.resolved()))
    if isinstance(detector, Prepared):
        return _fits_at_once(detector.detector)
    return isinstance(detector, NativeDetector) and detector.has_shortcut()
