"""One family of methods on one draw: fit once, rank the pool once, judge every test set."""

from __future__ import annotations

import pickle
import platform
import time
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import Any

import numpy as np

from ..detector import ConformalDetector
from ..detectors import resolve_detector
from ..detectors.prepare import prepared
from ..fitter import method_for_rows
from .datasets import Dataset
from .protocol import MODELS, Draw, Protocol, conditional_fdr_and_power, name_key
from .store import Cost, Identity, Result, StoredResult
from .subjects import Labelled, Reading, describe, method_to_fit, name_of


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
    """Count the bytes of a pickle without keeping them; arrays are counted, not copied.

    Examples
    --------
    >>> import numpy as np
    >>> 8_000 < pickled_size(np.zeros(1_000)) < 8_500
    True
    """
    sink = _Counter()
    try:
        pickler = pickle.Pickler(
            sink, protocol=5, buffer_callback=lambda buffer: sink.add(buffer.raw().nbytes)
        )
        pickler.dump(thing)
    except Exception:  # someone's detector that cannot be pickled may still be studied
        return None
    return sink.size


class _Counter:
    """A file that only counts."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: bytes | memoryview) -> int:
        self.add(len(data))
        return len(data)

    def add(self, count: int) -> None:
        self.size += count


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
