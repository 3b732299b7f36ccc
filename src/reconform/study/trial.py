"""What a study will take, and which detectors cannot go with which methods: tried on one draw.

A detector of ours is fitted and ranks one test set. One of others is fitted a few times, and what a
method costs is the number of its models times that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from joblib import effective_n_jobs

from ..detector import ConformalDetector
from ..detectors import ForeignDetector, resolve_detector
from ..errors import ReconformError
from ..fitter import method_for_rows
from ..forecast import duration, speaking
from ..methods import Full, Split
from .datasets import Dataset
from .families import detector_for
from .protocol import MODELS, Protocol
from .schedule import LeftOut, Schedule, families_of
from .store import Key
from .subjects import Labelled, Reading, method_to_fit

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
    """Estimate what `run_family` takes on one draw.

    Raises
    ------
    ReconformError
        If the detector cannot go with the method, or with this data.
    """
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

    Parameters
    ----------
    schedule : Schedule
    parts : mapping
        Rows that are finished.
    share : bool
        Whether methods share models.
    n_jobs : int or None

    Raises
    ------
    ReconformError
        If nothing can be run.
    """
    left_out: LeftOut = {}
    able = replace(schedule, left_out=left_out)
    refused: list[ReconformError] = []
    seconds, waiting, current = 0.0, set(), ""
    jobs = max(1, min(effective_n_jobs(n_jobs), schedule.protocol.draws))

    def so_far() -> str:
        known = f"; more than {duration(seconds / jobs)} in all by now" if seconds else ""
        return f"Trying on one draw what all of them will take: {current}{known}."

    pairs = list(product(schedule.datasets, schedule.detectors))
    with speaking(so_far):
        for dataset, detector in pairs:
            tried: set[str] = set()
            # What is refused changes what is there to be tried: the last resort comes at the end.
            while fresh := [
                r for r in able.readings_for(dataset, detector) if r.label not in tried
            ]:
                for family in families_of(fresh, share):
                    tried |= {reading.label for reading in family}
                    draws = _missing(schedule.protocol, dataset, detector, family, parts)
                    if not draws:
                        continue
                    current = f"{detector.label} with {family[0].label} on {dataset.name}"
                    try:
                        each = seconds_per_draw(
                            schedule.protocol, dataset, draws[0], detector, family
                        )
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
