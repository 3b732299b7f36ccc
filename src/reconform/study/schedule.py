"""Which rows a study consists of, how one of them is computed, and the store that keeps them.

A store is a folder::

    parts/           one small JSON file per (data set, detector, method, draw)
    results.parquet  dataset, detector, method, draw, cfdr, cpower: the same bytes in every run
    costs.parquet    seconds, bytes and versions of the same rows: different in every run

Every file is written next to its place and then moved there in one step, so a reader, or a run
that follows a killed one, sees it whole or not at all. The tables are sorted and derived from the
parts alone; an interrupted and resumed study ends with the bytes that an undisturbed one writes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import platform
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, asdict, dataclass, field, fields
from fractions import Fraction
from functools import cached_property, lru_cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from ..atomic import sweep, write_atomic
from ..detector import ConformalDetector
from ..detectors import resolve_detector
from ..detectors.prepare import prepared
from ..errors import ReconformError
from ..fitter import method_for_rows
from ..methods import BySize, Jackknife
from .datasets import Dataset
from .protocol import MODELS, Draw, Protocol, Sizes, conditional_fdr_and_power, name_key
from .subjects import Labelled, Reading, describe, method_to_fit, name_of

Key = tuple[str, str, str, int]
Identity = dict[str, Any]


@dataclass(frozen=True)
class Result:
    """The result of one draw of one cell: all that the tables are made of.

    Attributes
    ----------
    dataset, detector, method : str
        Labels.
    draw : int
        j, from 0.
    cfdr, cpower : float
        Mean FDP and mean power over the test sets of the draw.
    """

    dataset: str
    detector: str
    method: str
    draw: int
    cfdr: float
    cpower: float

    @property
    def key(self) -> Key:
        """What tells rows apart."""
        return self.dataset, self.detector, self.method, self.draw


@dataclass(frozen=True)
class Cost:
    """Time and memory that a row took. Not part of the results, as it differs from run to run.

    Attributes
    ----------
    fitted : str
        The method that was fitted. If it is not the row's own, its models were shared, and the
        fit time and the bytes are those of the shared fit.
    fit_seconds, score_seconds : float
        Wall-clock time of fitting with calibration, and of ranking the whole pool.
    model_bytes : int or None
        Size of the fitted ensemble when pickled; None if it cannot be.
    versions : str
        Of the packages that made the row.
    """

    fitted: str
    fit_seconds: float
    score_seconds: float
    model_bytes: int | None
    versions: str


@dataclass(frozen=True)
class StoredResult:
    """A finished row, and what it is the result of.

    Attributes
    ----------
    result : Result
    cost : Cost
    identity : dict
        The protocol and descriptions of data, detector and method, in words and numbers.
    """

    result: Result
    cost: Cost
    identity: Identity


class Store:
    """A folder of finished rows.

    Parameters
    ----------
    folder : path
        Created when the first row is put into it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(folder)
    ...     result = Result("wbc", "knn", "cv+", 0, 0.1, 0.5)
    ...     store.put(StoredResult(result, Cost("cv+", 0.2, 0.1, 512, ""), {"seed": 0}))
    ...     list(store.parts_by_key())
    [('wbc', 'knn', 'cv+', 0)]
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def put(self, part: StoredResult) -> None:
        """Write one finished row, whole or not at all."""
        content = json.dumps(asdict(part), indent=1, sort_keys=True)
        self._write(f"parts/{_name(part.result.key)}", content.encode())

    def parts_by_key(self) -> dict[Key, StoredResult]:
        """Read every finished row."""
        found = map(self._read, (self.folder / "parts").glob("*.json"))
        return {part.result.key: part for part in found}

    def write_tables(self, parts: Iterable[StoredResult]) -> None:
        """Derive both tables from the parts."""
        ordered = sorted(parts, key=lambda part: part.result.key)
        for name, table in (
            ("results", results_table(part.result for part in ordered)),
            ("costs", costs_table(ordered)),
        ):
            buffer = io.BytesIO()
            pyarrow.parquet.write_table(table, buffer)
            self._write(f"{name}.parquet", buffer.getvalue())

    def remove_leftovers(self) -> None:
        """Delete temporary files of runs that were killed."""
        for folder in (self.folder, self.folder / "parts"):
            sweep(folder)

    def _write(self, name: str, content: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content, overwrite=True)

    def _read(self, path: Path) -> StoredResult:
        try:
            content = json.loads(path.read_bytes())
            return StoredResult(
                Result(**content["result"]), Cost(**content["cost"]), content["identity"]
            )
        except (ValueError, TypeError, KeyError) as error:
            raise ReconformError(
                f"{path} is not a finished row of a study ({error!r}). Delete it and run again: "
                "only this row is computed anew."
            ) from error


def check_identity(part: StoredResult, expected: Identity) -> None:
    """Refuse a row that has the right labels and comes from another study."""
    for name, now in expected.items():
        before = part.identity.get(name, "not written down")
        if before != now:
            dataset, detector, method, _ = part.result.key
            raise ReconformError(
                f"the store already has rows of data set {dataset!r}, detector {detector!r}, "
                f"method {method!r} from another study: {name} was {before} and is {now}. Use "
                "another folder, or other labels."
            )


def results_table(results: Iterable[Result]) -> Any:
    """Arrange results in a pyarrow table."""
    return _table(fields(Result), [asdict(result) for result in results])


def costs_table(parts: Iterable[StoredResult]) -> Any:
    """Arrange the costs of the same rows in a pyarrow table."""
    rows = [{**asdict(part.result), **asdict(part.cost)} for part in parts]
    return _table((*fields(Result)[:4], *fields(Cost)), rows)


def _table(columns: Sequence[Field[Any]], rows: list[dict[str, Any]]) -> Any:
    kinds = {"str": pa.string(), "int": pa.int64(), "float": pa.float64()}
    schema = [(one.name, kinds[str(one.type).removesuffix(" | None")]) for one in columns]
    return pa.Table.from_pylist(rows, pa.schema(schema))


def _name(key: Key) -> str:
    *labels, draw = key
    return f"{','.join(map(_safe, labels))},{draw:04d}.json"


def _safe(label: str) -> str:
    """A label as part of a file name: readable, and different for different labels."""
    quoted = quote(label, safe="+ ()=")
    if len(quoted) <= 60:
        return quoted
    return f"{quoted[:48]}~{hashlib.sha256(label.encode()).hexdigest()[:11]}"


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

    def run(self) -> tuple[list[StoredResult], LeftOut]:
        """Fit and judge; store every row as soon as it is finished, and say what was refused."""
        draw = self.protocol.draw(self.dataset, self.j)
        finished: list[StoredResult] = []
        refused: LeftOut = {}
        for detector, family in self.families:
            rows = run_family(self.protocol, self.dataset, self.j, draw, detector, family)
            try:
                for part in rows:
                    self.store.put(part)
                    finished.append(part)
            except ReconformError as error:  # this detector cannot go with these methods
                labels = self.dataset.name, detector.label
                refused |= {(*labels, reading.label): str(error) for reading in family}
            except Exception as error:
                error.add_note(
                    f"While the study ran data set {self.dataset.name!r}, detector "
                    f"{detector.label!r}, methods {[reading.label for reading in family]}, draw "
                    f"{self.j}. Finished rows are kept; the next run continues here."
                )
                raise
        return finished, refused


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
