"""From a method and reference rows to fitted models: the plan, the seeds, the ensemble."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from .arrays import FloatArray
from .content import Contents, RowStreams, canonical_order, remembering
from .detectors import Auto, ForeignDetector, NativeDetector
from .detectors.prepare import prepared_classifier
from .detectors.prepared import Prepared
from .ensemble import Ensemble, RepeatedSplit
from .ensemble.batch import LearnedScores, Learning, Pooled
from .ensemble.choosing import FullChoice
from .ensemble.grouped import (
    GroupedEnsemble,
    OneForAll,
    OnePerGroup,
    WithAnomalies,
    joined_calibration,
)
from .ensemble.refitting import OneModel
from .ensemble.split_choice import SplitChoice
from .errors import ReconformError
from .grouping import ReferenceGroups
from .methods import BySize, Learned, Method, Plan
from .parallel import track
from .randomness import Streams
from .statistics.certificates import Guarantee, after_marks, beside_anomalies, guarantee_of

_LOG = logging.getLogger(__name__)

Detecting = ForeignDetector | NativeDetector | Learning


def method_for_rows(method: Method, detector: ForeignDetector | NativeDetector, n: int) -> Method:
    """Return the method for n reference rows: ``"auto"`` decides by their number."""
    if not isinstance(method, BySize):
        return method
    refits = not _fits_at_once(detector)
    return method.method_for(n, refits=refits, uses_batch=isinstance(detector, Auto))


def plan_for(
    method: Method, contents: Contents, groups: npt.ArrayLike | None, seed: np.random.SeedSequence
) -> Plan:
    """Plan for rows of these contents: what is drawn does not depend on their order."""
    shuffle = partial(canonical_order, contents)
    plan = method.plan(len(contents), groups=groups, random_state=seed, shuffle=shuffle)
    _LOG.info("%d reference rows, method %r", plan.n, method)
    _LOG.debug(
        "plan: scheme %s, variant %s, %d resampled models", plan.scheme, plan.variant, plan.n_models
    )
    return plan


def with_anomalies(ensemble: Ensemble, anomalies: FloatArray, who: str) -> Ensemble:
    """Let known anomalies shape the scores or the choice of models; refuse where they do not."""
    if isinstance(ensemble, RepeatedSplit):
        return RepeatedSplit([with_anomalies(one, anomalies, who) for one in ensemble.splits])
    if isinstance(ensemble, LearnedScores):
        return replace(ensemble, anomalies=anomalies)
    if ensemble.ranks_rows == "alone" or isinstance(ensemble, Pooled):
        raise ReconformError(
            f"`anomalies` shape the scores of `detector='contrast'` and `method='learned'`, and "
            f"the choice of `detector='auto'`; {who} does not use them. Use one of these, or "
            "leave `anomalies` out."
        )
    return WithAnomalies(ensemble, anomalies)


def guarantee_for(plan: Plan, ensemble: Ensemble, *, alone: bool = False) -> Guarantee:
    """Look up what holds for fitted models.

    Rows that are judged `alone`, one by one, are left to the first of a choice of detectors.
    """
    given = ensemble.first() if isinstance(ensemble, GroupedEnsemble) else ensemble
    one = given.bare
    if alone and isinstance(one, FullChoice | SplitChoice):
        one = one.fitted[0]
    found = guarantee_of(
        plan, uses_batch=one.ranks_rows != "alone", grouped=isinstance(ensemble, GroupedEnsemble)
    )
    return found if given.anomalies is None or alone else beside_anomalies(found)


def guarantee_of_fit(cad: Any, *, alone: bool = False) -> Guarantee:
    """What is left of that for a detector, after all that marks did to it."""
    found = guarantee_for(cad.plan_, cad.ensemble_, alone=alone)
    if not (cad.left_out_ or cad.state_.updates):
        return found
    return after_marks(found, cad.left_out_, cad.plan_.n, cad.state_.by_marks)


def what_fits(method: Method, detector: Any, resolved: Detecting) -> Detecting:
    """Return what fits the plans of a method: the detector, or a classifier in its place."""
    if not isinstance(method, Learned):
        return resolved
    learning = Learning(method)
    classifier = learning.classifier()  # refuses anything else
    if detector == "auto":
        return learning
    classifier = prepared_classifier(classifier, resolved)
    if classifier is None:
        raise ReconformError(
            "`method='learned'` learns its scores with a classifier and takes no detector; leave "
            f"`detector` out (got {resolved.name}). In Python, Learned(classifier) takes another "
            "classifier."
        )
    return Learning(clone(method).set_params(classifier=classifier))


@dataclass(frozen=True)
class Fitter:
    """Fits all models of a plan.

    Attributes
    ----------
    detector : detector
        Ours, or one from elsewhere, as `resolve_detector` gives it.
    n_jobs, verbose
        As in `ConformalDetector`.
    """

    detector: Detecting
    n_jobs: int | None
    verbose: int

    def fit(
        self,
        X: FloatArray,
        plan: Plan,
        contents: Contents,
        seed: np.random.SeedSequence,
        *,
        grouped: bool = False,
    ) -> Ensemble:
        """Fit the models, each with draws of its own from the seed.

        With `grouped`, for ranks within groups: certificates then look at all rows by models on
        the reference and one new row, whatever else the ensemble knows.
        """
        if self.detector.frozen and not plan.row.frozen:
            raise ReconformError(
                f"`method={plan.scheme!r}` would fit the detector again, and {self.detector.name} "
                "is frozen; use `method='prefit'` to calibrate a model as it is."
            )
        # Nothing is drawn by the place of a row: the order of the reference does not matter.
        seeds: Sequence[np.random.SeedSequence]
        if plan.leaves_one_out:
            seeds = RowStreams(seed, contents)
        else:
            seeds = Streams(seed, plan.n_models + 1)
        with remembering(X, contents):
            ensemble = (
                self._fit_splits(X, plan, seeds)
                if len(plan.repeats) > 1
                else (
                    self.detector.fit_plan(X, plan, seeds, n_jobs=self.n_jobs, verbose=self.verbose)
                )
            )
        no_way_of_its_own = (grouped or type(ensemble).e_values is Ensemble.e_values) and type(
            ensemble
        ).augmented_scores is Ensemble.augmented_scores
        certified = guarantee_for(plan, ensemble).certified
        if certified and no_way_of_its_own and ensemble.by_refitting is None:
            assert not isinstance(self.detector, Learning)  # which certifies nothing
            ensemble.by_refitting = OneModel(self.detector, X, seeds[-1], self.n_jobs)
        return ensemble

    def fit_in_groups(
        self,
        X: FloatArray,
        method: Method,
        plan: Plan,
        contents: Contents,
        seeds: Sequence[np.random.SeedSequence],
        groups: ReferenceGroups,
    ) -> GroupedEnsemble:
        """Fit for ranks within groups; `method` plans for each that has a detector of its own."""
        if not groups.models:
            ensemble = self.fit(X, plan, contents, seeds[1], grouped=True)
            codes = groups.codes[ensemble.calibration.rows]
            return OneForAll(ensemble.calibration, ensemble, codes)
        plans, ensembles, places = [], [], []
        for g, name in enumerate(groups.names):
            rows = np.flatnonzero(groups.codes == g)
            with _blaming(name):
                if len(rows) < 2:
                    raise ReconformError("a detector of its own needs at least 2 reference rows.")
                theirs = Contents.of(X[rows], n_jobs=self.n_jobs)
                plans.append(plan_for(method, theirs, None, seeds[0]))
                ensembles.append(self.fit(X[rows], plans[-1], theirs, seeds[1], grouped=True))
            places.append(rows)
        calibration = joined_calibration([one.calibration for one in ensembles], places)
        return OnePerGroup(calibration, plans, ensembles)

    def _fit_splits(
        self, X: FloatArray, plan: Plan, seeds: Sequence[np.random.SeedSequence]
    ) -> Ensemble:
        """Fit the splits of a repeated split, one after the other."""
        if isinstance(self.detector, Auto):
            raise ReconformError(
                f"a detector is chosen on one split, and these are {len(plan.repeats)}; use "
                "`repeats=1`, or one detector such as `detector='knn'`."
            )
        splits = track(plan.repeats, total=len(plan.repeats), label="splits", verbose=self.verbose)
        return RepeatedSplit(
            [
                self.detector.fit_plan(X, split, [seed, seeds[-1]], n_jobs=self.n_jobs)
                for split, seed in zip(splits, seeds[:-1], strict=True)
            ]
        )


@contextmanager
def _blaming(group: str) -> Iterator[None]:
    """Say which group an error is about."""
    try:
        yield
    except ReconformError as error:
        raise ReconformError(f"group {group!r}: {error}") from error


def _fits_at_once(detector: ForeignDetector | NativeDetector) -> bool:
    """Whether full-conformal ranks need no fit per new row."""
    if isinstance(detector, Auto):
        return all(map(_fits_at_once, detector.resolved()))
    if isinstance(detector, Prepared):
        return _fits_at_once(detector.detector)
    return isinstance(detector, NativeDetector) and detector.has_shortcut()
