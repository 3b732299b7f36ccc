"""Which rows a study consists of, what they will take, and how one of them is computed."""

from __future__ import annotations

import pickle
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from itertools import product
from typing import Any

import numpy as np
from joblib import effective_n_jobs

from ..detector import ConformalDetector
from ..detectors import ForeignDetector, resolve_detector
from ..detectors.prepare import prepared
from ..errors import ReconformError
from ..fitter import method_for_rows
from ..methods import BySize, Full, Jackknife, Split
from .datasets import Dataset
from .protocol import MODELS, Draw, Protocol, Sizes, conditional_fdr_and_power, name_key
from .store import Cost, Identity, Key, Result, Store, StoredResult, check_identity
from .subjects import Labelled, Reading, describe, method_to_fit, name_of

# What cannot be run, as data set, detector and method; and why.
LeftOut = dict[tuple[str, str, str], str]


@dataclass(frozen=True, eq=False)
class Task:
    """All that is missing of one draw of one data set: what to fit, and what to read from it."""

    protocol: Protocol
    dataset: Dataset
    j: int
    families: list[tuple[Labelled, list[Reading]]]
    store: Store

    def run(self) -> list[StoredResult]:
        """Fit, judge, and put every row into the store as soon as it is finished."""
        draw = self.protocol.draw(self.dataset, self.j)
        finished = []
        for detector, family in self.families:
            rows = run_family(self.protocol, self.dataset, self.j, draw, detector, family)
            try:
                for part in rows:
                    self.store.put(part)
                    finished.append(part)
            except Exception as error:
                error.add_note(
                    f"While the study ran data set {self.dataset.name!r}, detector "
                    f"{detector.label!r}, methods {[reading.label for reading in family]}, draw "
                    f"{self.j}. Finished rows are kept; the next run continues here."
                )
                raise
        return finished


@dataclass(frozen=True, eq=False)
class Schedule:
    """The parameters of a study, resolved and checked.

    `fallback` is the method of a detector that none of the others can do.
    """

    protocol: Protocol
    datasets: list[Dataset]
    detectors: list[Labelled]
    readings: list[Reading]
    fallback: Reading | None = None
    left_out: LeftOut = field(default_factory=dict)

    @cached_property
    def sizes(self) -> dict[str, Sizes]:
        """Rows of a draw of every data set; an error if one is too small."""
        return {
            data.name: self.protocol.sizes(len(data.normal), len(data.outliers), data.name)
            for data in self.datasets
        }

    def readings_of(self, dataset: Dataset) -> list[Reading]:
        """Methods that are run on a data set: all, or all but leave-one-out on a large one."""
        limit = self.protocol.jackknife_limit
        if limit is None or self.sizes[dataset.name].train < limit:
            return self.readings
        return [r for r in self.readings if not isinstance(r.method, Jackknife)]

    def readings_for(self, dataset: Dataset, detector: Labelled) -> list[Reading]:
        """Methods that are run on a data set with a detector.

        What "auto" stands for is not run a second time, and what cannot be run is left out.
        """
        distinct = self._distinct(dataset, detector, self.readings_of(dataset))
        last_resort = [] if self.fallback is None else [self.fallback]
        return self._possible(dataset, detector, distinct) or self._possible(
            dataset, detector, last_resort
        )

    def _possible(
        self, dataset: Dataset, detector: Labelled, given: list[Reading]
    ) -> list[Reading]:
        return [r for r in given if (dataset.name, detector.label, r.label) not in self.left_out]

    def _distinct(
        self, dataset: Dataset, detector: Labelled, given: list[Reading]
    ) -> list[Reading]:
        if not any(isinstance(reading.method, BySize) for reading in given):
            return given
        resolved = resolve_detector(detector_for(detector, dataset))
        meant = describe(method_for_rows(BySize(), resolved, self.sizes[dataset.name].train))
        return [reading for reading in given if describe(reading.method) != meant]

    def select(self, parts: Mapping[Key, StoredResult]) -> list[StoredResult]:
        """Rows of this study among those of a store, in the study's order.

        A row that has the right labels and comes from another study is refused.
        """
        mine = []
        for detector in self.detectors:
            for dataset in self.datasets:
                for reading in self.readings_for(dataset, detector):
                    expected = identity(self.protocol, dataset, detector, reading)
                    for j in range(self.protocol.draws):
                        part = parts.get((dataset.name, detector.label, reading.label, j))
                        if part is not None:
                            check_identity(part, expected)
                            mine.append(part)
        return mine

    def missing(
        self, parts: Mapping[Key, StoredResult], store: Store, *, share: bool
    ) -> Iterator[Task]:
        """Tasks that are left to do.

        Draw by draw, the largest data set first: so the time left can be told from the tasks that
        are done, all data sets have results early, and no large task is left for the end.
        """
        self.select(parts)
        ordered = sorted(self.datasets, key=lambda data: data.X.size, reverse=True)
        for j in range(self.protocol.draws):
            for dataset in ordered:
                families = [
                    (detector, family)
                    for detector in self.detectors
                    for family in families_of(
                        [
                            reading
                            for reading in self.readings_for(dataset, detector)
                            if (dataset.name, detector.label, reading.label, j) not in parts
                        ],
                        share,
                    )
                ]
                if families:
                    yield Task(self.protocol, dataset, j, families, store)


def families_of(readings: list[Reading], share: bool) -> list[list[Reading]]:
    """Readings that one fit answers."""
    if not share:
        return [[reading] for reading in readings]
    families: dict[str, list[Reading]] = {}
    for reading in readings:
        families.setdefault(reading.family, []).append(reading)
    return list(families.values())


# --- one family of methods on one draw ---


def detector_for(detector: Labelled, dataset: Dataset) -> Any:
    """Return the detector as it is fitted: prepared for the columns, if the study prepares."""
    if dataset.features is None:
        return detector.detector
    return prepared(detector.detector, dataset.features)


def run_family(
    protocol: Protocol,
    dataset: Dataset,
    j: int,
    draw: Draw,
    detector: Labelled,
    family: Sequence[Reading],
) -> Iterator[StoredResult]:
    """Fit the models of a family on D_j and yield one finished row per reading.

    The seed of the models depends on data set, draw and kind of method, not on the detector or on
    what else is run: every detector gets the same folds and the same bootstrap samples.
    """
    chosen = detector_for(detector, dataset)
    # What "auto" stands for has the seeds of that method: they are one and the same.
    method = method_for_rows(method_to_fit(family), resolve_detector(chosen), len(draw.train))
    seed = protocol.stream(dataset.name, j, MODELS, name_key(name_of(type(method))))
    start = time.perf_counter()
    cad = ConformalDetector(chosen, method, random_state=seed)
    cad.fit(dataset.X[draw.train])
    fit_seconds = time.perf_counter() - start
    model_bytes = pickled_size(cad.ensemble_)
    pool = dataset.X[draw.pool]
    for reading in family:
        start = time.perf_counter()
        if cad.ranks_rows != "alone":  # a test set is a batch
            tests = [cad.rank(pool[rows], together=True).at_most for rows in draw.test_sets]
            ranks = np.array(tests)
        else:
            ranks = cad.rank(pool, variant=reading.variant).at_most[draw.test_sets]
        score_seconds = time.perf_counter() - start
        cfdr, cpower = conditional_fdr_and_power(
            ranks, cad.n_calibration_, draw, Fraction(protocol.fdr)
        )
        yield StoredResult(
            Result(dataset.name, detector.label, reading.label, j, cfdr, cpower),
            Cost(
                fitted=repr(method),
                fit_seconds=fit_seconds,
                score_seconds=score_seconds,
                model_bytes=model_bytes,
                versions=versions(detector.detector),
            ),
            identity(protocol, dataset, detector, reading),
        )


# How detectors draw rows: another way would have the same law, and other numbers.
DRAWS = "by content"


def identity(
    protocol: Protocol, dataset: Dataset, detector: Labelled, reading: Reading
) -> Identity:
    """Write down everything that the numbers of a row depend on, besides j."""
    return {
        "draws": DRAWS,
        "fdr": str(protocol.fdr),
        "test_sets": protocol.test_sets,
        "anomaly_rate": str(protocol.anomaly_rate),
        "test_size": protocol.test_size,
        "train_share": str(protocol.train_share),
        "seed": protocol.seed,
        "data": dataset.digest,
        "detector": describe(detector_for(detector, dataset)),
        "method": describe(reading.method),
    }


def pickled_size(thing: object) -> int | None:
    """Count the bytes of a pickle; arrays are counted, not copied.

    Examples
    --------
    >>> import numpy as np
    >>> 8_000 < pickled_size(np.zeros(1_000)) < 8_500
    True
    """
    arrays: list[pickle.PickleBuffer] = []
    try:
        rest = pickle.dumps(thing, protocol=5, buffer_callback=arrays.append)
    except Exception:  # someone's detector that cannot be pickled may still be studied
        return None
    return len(rest) + sum(array.raw().nbytes for array in arrays)


def versions(detector: Any) -> str:
    """Name the versions that made a row: Python, our packages, and the detector's own."""
    resolved = resolve_detector(detector)
    origin = type(getattr(resolved, "template", resolved)).__module__.split(".")[0]
    return _versions(origin)


@lru_cache
def _versions(origin: str) -> str:
    names = ["reconform", "numpy", "scipy", "scikit-learn", "numba"]
    names += [name for name in packages_distributions().get(origin, [])[:1] if name not in names]
    shown = [f"python {platform.python_version()}"]
    for name in names:
        try:
            shown.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(shown)


# --- what it will take, and what cannot be done ---

# A first run may have code to load: what takes less is run again.
WARM_SECONDS = 0.5


@dataclass(frozen=True)
class Forecast:
    """What is left to do in a study, before it starts.

    Attributes
    ----------
    draws : int
        Draws that are not finished, over all data sets.
    seconds : float
        What they take by estimate, with the jobs that run at a time.
    left_out : dict of (data set, detector, method) to str
        Why a detector cannot go with a method.
    """

    draws: int
    seconds: float
    left_out: LeftOut


def seconds_per_draw(
    protocol: Protocol, dataset: Dataset, j: int, detector: Labelled, family: Sequence[Reading]
) -> float:
    """Estimate what `run_family` takes on one draw; refuse a detector that cannot do it."""
    draw = protocol.draw(dataset, j)
    train, pool = dataset.X[draw.train], dataset.X[draw.pool]
    test = pool[draw.test_sets[0]]
    chosen = detector_for(detector, dataset)
    resolved = resolve_detector(chosen)
    method = method_for_rows(method_to_fit(family), resolved, len(train))
    seed = protocol.stream(dataset.name, j, MODELS)
    refits = isinstance(resolved, ForeignDetector) and not resolved.frozen
    models = method.plan(len(train), random_state=0).n_models
    cad = ConformalDetector(chosen, method, random_state=seed)
    if refits and isinstance(method, Full):
        cad.fit(train)
        few = test[:2]
        return _timed(lambda: cad.rank(few)) / len(few) * len(pool)
    if refits and models > 1:
        one = ConformalDetector(chosen, Split(), random_state=seed)
        fitting = _timed(lambda: one.fit(train))
        ranking = _timed(lambda: one.rank(pool))
        return (models + 1) * fitting + models * ranking * len(family)
    fitting = _timed(lambda: cad.fit(train))
    ranking = _timed(lambda: cad.rank(test, together=cad.ranks_rows != "alone"))
    batches = len(draw.test_sets) if cad.ranks_rows != "alone" else len(pool) / len(test)
    return fitting + ranking * batches * len(family)


def _timed(work: Callable[[], Any]) -> float:
    for _ in range(2):
        start = time.perf_counter()
        work()
        seconds = time.perf_counter() - start
        if seconds > WARM_SECONDS:
            break
    return seconds


def try_out(
    schedule: Schedule, parts: Mapping[Key, object], *, share: bool, n_jobs: int | None
) -> tuple[Schedule, Forecast]:
    """Try on one draw what is missing; return what can be run, and what that will take.

    A detector of ours is fitted and ranks one test set. One of others is fitted a few times, and
    what a method costs is the number of its models times that. It is an error if nothing can be.
    """
    left_out: LeftOut = {}
    able = replace(schedule, left_out=left_out)
    refused: list[ReconformError] = []
    seconds, waiting = 0.0, set()
    pairs = list(product(schedule.datasets, schedule.detectors))
    for dataset, detector in pairs:
        tried: set[str] = set()
        # What is refused changes what is there to be tried: the last resort comes at the end.
        while fresh := [r for r in able.readings_for(dataset, detector) if r.label not in tried]:
            for family in families_of(fresh, share):
                tried |= {reading.label for reading in family}
                draws = _missing(schedule.protocol, dataset, detector, family, parts)
                if not draws:
                    continue
                try:
                    each = seconds_per_draw(schedule.protocol, dataset, draws[0], detector, family)
                except ReconformError as error:
                    refused.append(error)
                    for reading in family:
                        left_out[dataset.name, detector.label, reading.label] = str(error)
                    continue
                except Exception:  # the run will say where it happened
                    each = 0.0
                seconds += each * len(draws)
                waiting |= {(dataset.name, j) for j in draws}
    if refused and not any(able.readings_for(*pair) for pair in pairs):
        raise refused[0]
    jobs = max(1, min(effective_n_jobs(n_jobs), len(waiting)))
    return able, Forecast(len(waiting), seconds / jobs, left_out)


def _missing(
    protocol: Protocol,
    dataset: Dataset,
    detector: Labelled,
    family: Sequence[Reading],
    parts: Mapping[Key, object],
) -> list[int]:
    """Draws of which a family has not all rows."""
    return [
        j
        for j in range(protocol.draws)
        if any((dataset.name, detector.label, r.label, j) not in parts for r in family)
    ]
