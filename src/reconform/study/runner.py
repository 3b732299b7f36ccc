"""Study: any data sets, any detectors, any methods, under the paper's protocol.

A store is a folder with one small JSON file per (data set, detector, method, draw), each written
whole or not at all: a run that follows a killed one computes only what is missing.
"""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator

from ..atomic import write_atomic
from ..detector import ConformalDetector
from ..detectors import resolve_detector
from ..detectors.prepare import prepared
from ..errors import ReconformError, ReferenceWarning
from ..fitter import method_for_rows
from ..methods import BySize, Jackknife
from ..parallel import track
from .protocol import MODELS, Protocol, Sizes, conditional_fdr_and_power, name_key
from .ranked import Cell, Ranking, rank, summarise
from .subjects import (
    Dataset,
    Labelled,
    Reading,
    describe,
    method_to_fit,
    name_of,
    resolve_datasets,
    resolve_detectors,
    resolve_readings,
)

PAPER_PROTOCOL = Protocol()
# What is compared on data of one's own: all that has a name, and methods that a command can use.
OWN_DETECTORS = ("auto", "knn", "iforest", "inne", "lof", "mahalanobis", "kde")
OWN_METHODS = ("auto", "split", "cv+", "jab+")


Identity = dict[str, Any]

# What cannot be run, as data set, detector and method; and why.
LeftOut = dict[tuple[str, str, str], str]


class Key(NamedTuple):
    """What tells the results of a study apart."""

    dataset: str
    detector: str
    method: str
    draw: int


@dataclass(frozen=True)
class StoredResult:
    """Mean FDP and mean power over the test sets of a draw, and all that they depend on."""

    key: Key
    cfdr: float
    cpower: float
    identity: Identity


class Store:
    """A folder of finished results.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(folder)
    ...     store.put(StoredResult(Key("wbc", "knn", "cv+", 0), 0.1, 0.5, {"seed": 0}))
    ...     list(store.results())
    [Key(dataset='wbc', detector='knn', method='cv+', draw=0)]
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder, "parts")

    def put(self, result: StoredResult) -> None:
        """Write one result, whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        content = json.dumps(asdict(result), indent=1, sort_keys=True)
        name = f"{name_key(repr(result.key)):016x}.json"  # which says nothing: the content does
        write_atomic(self.folder / name, content.encode(), overwrite=True)

    def results(self) -> dict[Key, StoredResult]:
        """Read every finished result, in the order of the keys."""
        found = [self._read(path) for path in self.folder.glob("*.json")]
        return {result.key: result for result in sorted(found, key=lambda result: result.key)}

    def _read(self, path: Path) -> StoredResult:
        try:
            content = json.loads(path.read_bytes())
            return StoredResult(**{**content, "key": Key(*content["key"])})
        except (ValueError, TypeError, KeyError) as error:
            raise ReconformError(
                f"{path} is not a finished row of a study ({error!r}). Delete it and run again: "
                "only this row is computed anew."
            ) from error


@dataclass(frozen=True, eq=False)
class Task:
    """All that is missing of one draw of one data set: what to fit, and what to read from it."""

    protocol: Protocol
    dataset: Dataset
    j: int
    families: list[tuple[Labelled, list[Reading]]]
    store: Store

    def run(self) -> tuple[list[StoredResult], LeftOut]:
        """Fit and judge; store every result as soon as it is there, and say what was refused."""
        finished: list[StoredResult] = []
        refused: LeftOut = {}
        for detector, family in self.families:
            try:
                for result in self._results(detector, family):
                    self.store.put(result)
                    finished.append(result)
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

    def _results(self, detector: Labelled, family: Sequence[Reading]) -> Iterator[StoredResult]:
        """Fit the models of a family on D_j, and yield a result per reading.

        The seed of the models depends on data set, draw and kind of method, not on the detector or
        on what else is run: every detector gets the same folds and the same bootstrap samples.
        """
        dataset, protocol, chosen = self.dataset, self.protocol, fitted_as(detector, self.dataset)
        draw = protocol.draw(dataset, self.j)
        # What "auto" stands for has the seeds of that method: they are one and the same.
        method = method_for_rows(method_to_fit(family), resolve_detector(chosen), len(draw.train))
        seed = protocol.stream(dataset.name, self.j, MODELS, name_key(name_of(type(method))))
        cad = ConformalDetector(chosen, method, random_state=seed).fit(dataset.X[draw.train])
        pool = dataset.X[draw.pool]
        for reading in family:
            if cad.ranks_rows != "alone":  # a test set is a batch
                tests = [cad.rank(pool[rows], together=True).at_most for rows in draw.test_sets]
                ranks = np.array(tests)
            else:
                ranks = cad.rank(pool, variant=reading.variant).at_most[draw.test_sets]
            yield StoredResult(
                Key(dataset.name, detector.label, reading.label, self.j),
                *conditional_fdr_and_power(ranks, cad.n_calibration_, draw, Fraction(protocol.fdr)),
                identity(protocol, dataset, detector, reading),
            )


def fitted_as(detector: Labelled, dataset: Dataset) -> Any:
    """Return the detector as it is fitted: prepared for the columns, if the study prepares."""
    if dataset.features is None:
        return detector.detector
    return prepared(detector.detector, dataset.features)


def identity(
    protocol: Protocol, dataset: Dataset, detector: Labelled, reading: Reading
) -> Identity:
    """Write down everything that the numbers of a result depend on, besides j."""
    names = ("fdr", "test_sets", "anomaly_rate", "test_size", "train_share", "seed")
    return {
        **{name: getattr(protocol, name) for name in names},
        **{name: str(getattr(protocol, name)) for name in ("fdr", "anomaly_rate", "train_share")},
        "data": dataset.digest,
        "detector": describe(fitted_as(detector, dataset)),
        "method": describe(reading.method),
    }


@dataclass(frozen=True, eq=False)
class Schedule:
    """The parameters of a study, resolved and checked; what is left to do of it."""

    protocol: Protocol
    datasets: list[Dataset]
    detectors: list[Labelled]
    readings: list[Reading]
    left_out: LeftOut = field(default_factory=dict)
    sizes: dict[str, Sizes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for data in self.datasets:
            sizes = self.protocol.sizes(len(data.normal), len(data.outliers), data.name)
            self.sizes[data.name] = sizes
            for reading in self._readings_of(data):
                # Planning is cheap, and says what does not fit: more folds than rows, say.
                reading.method.plan(sizes.train, random_state=0)

    def _readings_of(self, dataset: Dataset) -> list[Reading]:
        """Methods that are run on a data set: all, or all but leave-one-out on a large one."""
        limit = self.protocol.jackknife_limit
        if limit is None or self.sizes[dataset.name].train < limit:
            return self.readings
        return [r for r in self.readings if not isinstance(r.method, Jackknife)]

    def readings_for(self, dataset: Dataset, detector: Labelled) -> list[Reading]:
        """Methods that are run on a data set with a detector.

        What "auto" stands for is not run a second time, and what cannot be run is left out.
        """
        given = self._readings_of(dataset)
        if any(isinstance(reading.method, BySize) for reading in given):
            resolved = resolve_detector(fitted_as(detector, dataset))
            meant = describe(method_for_rows(BySize(), resolved, self.sizes[dataset.name].train))
            given = [reading for reading in given if describe(reading.method) != meant]
        labels = dataset.name, detector.label
        return [reading for reading in given if (*labels, reading.label) not in self.left_out]

    def select(self, there: Mapping[Key, StoredResult]) -> list[StoredResult]:
        """Results of this study among those of a store, in the study's order.

        One that has the right labels and comes from another study is refused.
        """
        mine = []
        for detector in self.detectors:
            for dataset in self.datasets:
                for reading in self.readings_for(dataset, detector):
                    expected = identity(self.protocol, dataset, detector, reading)
                    for j in range(self.protocol.draws):
                        key = Key(dataset.name, detector.label, reading.label, j)
                        if key in there:
                            _check_identity(there[key], expected)
                            mine.append(there[key])
        return mine

    def missing(self, there: Mapping[Key, StoredResult], store: Store) -> Iterator[Task]:
        """Tasks that are left to do.

        Draw by draw, the largest data set first: so the time left can be told from the tasks that
        are done, all data sets have results early, and no large task is left for the end.
        """
        ordered = sorted(self.datasets, key=lambda data: data.X.size, reverse=True)
        for j in range(self.protocol.draws):
            for dataset in ordered:
                families = []
                for detector in self.detectors:
                    by_fit: dict[str, list[Reading]] = {}  # one fit answers a family of readings
                    for reading in self.readings_for(dataset, detector):
                        if (dataset.name, detector.label, reading.label, j) not in there:
                            by_fit.setdefault(reading.family, []).append(reading)
                    families += [(detector, family) for family in by_fit.values()]
                if families:
                    yield Task(self.protocol, dataset, j, families, store)


def _check_identity(result: StoredResult, expected: Identity) -> None:
    for name, now in expected.items():
        before = result.identity.get(name, "not written down")
        if before != now:
            dataset, detector, method, _ = result.key
            raise ReconformError(
                f"the store already has rows of data set {dataset!r}, detector {detector!r}, "
                f"method {method!r} from another study: {name} was {before} and is {now}. Use "
                "another folder, or other labels."
            )


def results_table(results: Iterable[StoredResult]) -> pa.Table:
    """Arrange results in a table."""
    kinds = [*[(name, pa.string()) for name in Key._fields[:3]], ("draw", pa.int64())]
    schema = pa.schema([*kinds, ("cfdr", pa.float64()), ("cpower", pa.float64())])
    rows = [{**one.key._asdict(), "cfdr": one.cfdr, "cpower": one.cpower} for one in results]
    return pa.Table.from_pylist(rows, schema)


class Study(BaseEstimator):
    """The paper's evaluation, for any data, any detector and any method.

    Parameters
    ----------
    datasets : sequence
        ``(name, X, y)`` each: rows as an array or a frame, and 1 or True for every outlier.
        Detectors are prepared for frames with text, dates or missing values.
    detectors : sequence, optional
        Whatever `ConformalDetector` takes, or ``(label, detector)`` pairs. By default
        ``"auto"`` and six others of ours.
    methods : sequence, optional
        Names as in `ConformalDetector`, ``"jackknife-pooled"``, ``"cv-pooled"``,
        ``"jab-pooled"``, method objects, or ``(label, method)`` pairs. By default ``"auto"``,
        ``"split"``, ``"cv+"`` and ``"jab+"``.
    protocol : Protocol, optional
        Levels, sizes, draws and the seed; by default the paper's.

    Attributes
    ----------
    left_out_ : dict of (data set, detector, method) to str
        Why a detector cannot go with a method.
    results_ : pyarrow.Table
        One row per (data set, detector, method, draw), with ``cfdr`` and ``cpower``.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> mine = ("mine", X, y == 0)
    >>> study = Study([mine], ["knn"], ["split", "cv+"], Protocol(draws=2, test_sets=5))
    >>> with tempfile.TemporaryDirectory() as store:
    ...     study.run(store).results_.column_names
    ['dataset', 'detector', 'method', 'draw', 'cfdr', 'cpower']
    >>> [(cell.method, cell.power.draws) for cell in study.cells()]
    [('split', 2), ('cv+', 2)]
    """

    results_: pa.Table

    def __init__(
        self,
        datasets: Sequence[Any],
        detectors: Sequence[Any] | None = None,
        methods: Sequence[Any] | None = None,
        protocol: Protocol = PAPER_PROTOCOL,
    ) -> None:
        self.datasets = datasets
        self.detectors = detectors
        self.methods = methods
        self.protocol = protocol

    def run(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> Self:
        """Compute what the store does not have yet, and read the rest from it.

        A detector that cannot go with a method is left out with a warning.

        Parameters
        ----------
        store : path, optional
            Folder of finished results. A run that was killed continues
            where it was, and other methods, detectors, data sets and more draws may be added.
            Without it, nothing is kept.
        n_jobs : int, optional
            Draws at a time, as in joblib; ``joblib.parallel_config`` chooses the backend.
        verbose : int
            With 1, show a progress bar.

        Returns
        -------
        Study
            Itself, with `results_`.
        """
        if store is None:
            with tempfile.TemporaryDirectory(prefix="reconform-") as own:
                return self.run(own, n_jobs=n_jobs, verbose=verbose)
        schedule, folder = self._schedule(), Store(store)
        there = folder.results()
        schedule.select(there)
        tasks = list(schedule.missing(there, folder))
        several = track(
            Parallel(n_jobs, return_as="generator_unordered")(
                delayed(task.run)() for task in tasks
            ),
            total=len(tasks),
            label="fits and draws of the study",
            verbose=verbose,
        )
        for finished, refused in several:
            schedule.left_out.update(refused)
            there.update((result.key, result) for result in finished)
        self.left_out_ = schedule.left_out
        found = schedule.select(there)
        if self.left_out_ and not found:
            raise ReconformError(next(iter(self.left_out_.values())))
        if self.methods is not None:  # nobody asked for a method that is not named
            for sentence in _left_out(self.left_out_):
                warnings.warn(sentence, ReferenceWarning, stacklevel=2)
        self.results_ = results_table(found)
        return self

    def cells(self) -> list[Cell]:
        """Summarise the draws: one cell per data set, detector and method, in the study's order."""
        self._check_run()
        return summarise(self.results_, fdr=float(self.protocol.fdr))

    def ranking(self) -> Ranking:
        """Rank all detectors with all methods, by power; say which differ by more than chance.

        Returns
        -------
        Ranking

        Examples
        --------
        >>> from sklearn.datasets import load_breast_cancer
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> protocol, mine = Protocol(draws=5, test_sets=5), ("mine", X, y == 0)
        >>> study = Study([mine], ["knn", "mahalanobis"], ["split", "cv+"], protocol)
        >>> ranking = study.run().ranking()
        >>> len(ranking), ranking[0].worse, ranking[0].power.mean >= ranking[3].power.mean
        (4, False, True)
        """
        self._check_run()
        return rank(self.results_, fdr=float(self.protocol.fdr))

    def _check_run(self) -> None:
        if not hasattr(self, "results_"):
            raise ReconformError("this study has no results yet; call run(store).")

    def _schedule(self) -> Schedule:
        """Resolve and check every parameter before anything is run."""
        methods = OWN_METHODS if self.methods is None else self.methods
        return Schedule(
            self.protocol,
            resolve_datasets(self.datasets),
            resolve_detectors(OWN_DETECTORS if self.detectors is None else self.detectors),
            resolve_readings(
                methods, folds=self.protocol.folds, bootstrap_draws=self.protocol.bootstrap_draws
            ),
        )


def _left_out(refused: LeftOut) -> list[str]:
    """Sentences for what is left out; methods that are refused for one reason are one sentence."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for (_, detector, method), reason in refused.items():
        methods = reasons.setdefault((detector, reason), [])
        if method not in methods:
            methods.append(method)
    return [
        f"{detector} is left out with {', '.join(methods)}: {reason}"
        for (detector, reason), methods in reasons.items()
    ]
