"""Study: any data sets, any detectors, any methods, under the paper's protocol."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

from joblib import Parallel, delayed
from sklearn.base import BaseEstimator

from ..errors import ReconformError, ReferenceWarning
from ..files import TableOptions
from ..files.reading import AS_THEY_ARE
from ..methods import Full
from ..parallel import track
from .datasets import REGISTRY, resolve_datasets, table_path
from .protocol import Protocol
from .ranked import Cell, Ranking, Recommendation, rank, recommend, summarise
from .schedule import Key, LeftOut, Schedule, Store, StoredResult, costs_table, results_table
from .subjects import Reading, resolve_detectors, resolve_readings

PAPER_DATASETS = tuple(REGISTRY)
PAPER_DETECTORS = ("knn", "iforest", "inne")
# The paper's tables, in our reading: its retaining columns look like pooling (see the design).
PAPER_METHODS = (
    "split",
    "jab-pooled",
    "cv-pooled",
    "jackknife-pooled",
    "jab",
    "cv",
    "jackknife",
)
PAPER_PROTOCOL = Protocol()
# What is compared on data of one's own: all that has a name, and methods that a command can use.
OWN_DETECTORS = ("auto", "knn", "iforest", "inne", "lof", "mahalanobis", "kde")
OWN_METHODS = ("auto", "split", "cv+", "jab+")


# Of a detector that none of the methods of our own can do: it takes all of them.
FALLBACK = Reading("full", Full())


class Study(BaseEstimator):
    """The paper's evaluation, for any data, any detector and any method.

    Parameters
    ----------
    datasets : sequence
        Names of the paper's data sets, ``"breast_cancer"`` (inside scikit-learn), paths of
        ``.npz``, ``.csv`` or ``.parquet`` files, or ``(name, X, y)``. By default the paper's
        eight.
    detectors : sequence, optional
        Whatever `ConformalDetector` takes, or ``(label, detector)`` pairs. By default the paper's
        three for its data sets, and on other data ``"auto"`` and six others of ours.
    methods : sequence, optional
        Names as in `ConformalDetector`, ``"jackknife-pooled"``, ``"cv-pooled"``,
        ``"jab-pooled"``, method objects, or ``(label, method)`` pairs. By default the paper's
        seven columns for its data sets, its retaining ones read as pooled; on other data
        ``"auto"``, ``"split"``, ``"cv+"`` and ``"jab+"``, and ``"full"`` for a detector that
        none of these can do.
    protocol : Protocol, optional
        Levels, sizes, draws and the seed; by default the paper's.
    share_models : bool, default=True
        Fit once what several methods can share. Without it every method is fitted on its own:
        the results are the same, and the costs are those of each method alone.
    data : path, optional
        Folder with the paper's data sets; see `reconform.study.load`.
    label : str, default="label"
        Label column of tables in files: 1 for outliers, 0 for normal rows.
    tables : TableOptions, optional
        Which columns of tables are used, and how (`reconform.files.TableOptions`). With
        ``TableOptions(prepare=True)`` values may be missing, text is taken as categories and
        columns are brought to one scale, as `reconform.Prepare` does, inside every model; in files
        and in frames.

    Attributes
    ----------
    left_out_ : dict of (data set, detector, method) to str
        Why a detector cannot go with a method.
    results_ : pyarrow.Table
        One row per (data set, detector, method, draw), with ``cfdr`` and ``cpower``.
    costs_ : pyarrow.Table
        Seconds, bytes and versions of the same rows.

    Examples
    --------
    >>> import tempfile
    >>> protocol = Protocol(draws=2, test_sets=5)
    >>> study = Study(["breast_cancer"], ["knn"], ["split", "cv+"], protocol)
    >>> with tempfile.TemporaryDirectory() as store:
    ...     study.run(store).results_.column_names
    ['dataset', 'detector', 'method', 'draw', 'cfdr', 'cpower']
    >>> [(cell.method, cell.power.draws) for cell in study.cells()]
    [('split', 2), ('cv+', 2)]
    """

    results_: Any
    costs_: Any

    def __init__(
        self,
        datasets: Sequence[Any] = PAPER_DATASETS,
        detectors: Sequence[Any] | None = None,
        methods: Sequence[Any] | None = None,
        protocol: Protocol = PAPER_PROTOCOL,
        *,
        share_models: bool = True,
        data: str | os.PathLike[str] | None = None,
        label: str = "label",
        tables: TableOptions = AS_THEY_ARE,
    ) -> None:
        self.datasets = datasets
        self.detectors = detectors
        self.methods = methods
        self.protocol = protocol
        self.share_models = share_models
        self.data = data
        self.label = label
        self.tables = tables

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
            Folder of finished rows; see `reconform.study.schedule`. A run that was killed continues
            where it was, and other methods, detectors, data sets and more draws may be added.
            Without it, nothing is kept.
        n_jobs : int, optional
            Draws at a time, as in joblib; ``joblib.parallel_config`` chooses the backend.
        verbose : int
            With 1, show a progress bar.

        Returns
        -------
        Study
            Itself, with `results_` and `costs_`.
        """
        if store is None:
            with tempfile.TemporaryDirectory(prefix="reconform-") as own:
                return self.run(own, n_jobs=n_jobs, verbose=verbose)
        schedule, folder = self._schedule(), Store(store)
        folder.remove_leftovers()
        there = folder.parts_by_key()
        schedule.select(there)
        # What is refused changes what there is to be run: the last resort comes in a second round.
        while tasks := list(schedule.missing(there, folder, share=self.share_models)):
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
                there.update((part.result.key, part) for part in finished)
                folder.write_tables(there.values())
        self.left_out_ = schedule.left_out
        if self.left_out_ and not schedule.select(there):
            raise ReconformError(next(iter(self.left_out_.values())))
        if self.methods is not None:  # nobody asked for a method that is not named
            for sentence in _left_out(self.left_out_):
                warnings.warn(sentence, ReferenceWarning, stacklevel=2)
        # Once more from the folder itself: the tables say what the parts say, and nothing else.
        there = folder.parts_by_key()
        folder.write_tables(there.values())
        return self._keep(schedule, there)

    def read(self, store: str | os.PathLike[str]) -> Self:
        """Read what a store has of this study, without running anything.

        Parameters
        ----------
        store : path

        Returns
        -------
        Study
            Itself, with `results_` and `costs_`.
        """
        schedule, there = self._schedule(), Store(store).parts_by_key()
        known = {key[:3] for key in there}
        for dataset in schedule.datasets:
            for detector in schedule.detectors:
                for reading in schedule.readings_for(dataset, detector):
                    key = (dataset.name, detector.label, reading.label)
                    if key not in known:
                        schedule.left_out[key] = "it is not in the store"
        return self._keep(schedule, there)

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
        >>> protocol = Protocol(draws=5, test_sets=5)
        >>> study = Study(["breast_cancer"], ["knn", "mahalanobis"], ["split", "cv+"], protocol)
        >>> ranking = study.run().ranking()
        >>> len(ranking), ranking[0].worse, ranking[0].power.mean >= ranking[3].power.mean
        (4, False, True)
        """
        self._check_run()
        return rank(self.results_, self.costs_, fdr=float(self.protocol.fdr))

    def recommendation(self) -> Recommendation:
        """Say what to use: the first of the ranking, in a sentence and as a line of Python.

        Returns
        -------
        Recommendation
        """
        return recommend(
            self.ranking(),
            resolve_detectors(self._detectors),
            [*self._readings(), FALLBACK],
            prepare=bool(self.tables.prepare),
        )

    @property
    def table_path(self) -> str | None:
        """The table that the study is about, if it is about one in a file."""
        tables = [table_path(source, self.tables.layout) for source in self.datasets]
        return tables[0] if len(tables) == 1 else None

    def _check_run(self) -> None:
        if not hasattr(self, "results_"):
            raise ReconformError(
                "this study has no results yet; call run(store), or read(store) for those that a "
                "store has already."
            )

    def _schedule(self) -> Schedule:
        """Resolve and check every parameter before anything is run."""
        schedule = Schedule(
            self.protocol,
            resolve_datasets(self.datasets, self.data, self.label, options=self.tables),
            resolve_detectors(self._detectors),
            self._readings(),
            fallback=FALLBACK if self.methods is None else None,
        )
        for dataset in schedule.datasets:
            for reading in schedule.readings_of(dataset):
                # Planning is cheap, and says what does not fit: more folds than rows, say.
                reading.method.plan(schedule.sizes[dataset.name].train, random_state=0)
        return schedule

    @property
    def _of_the_paper(self) -> bool:
        return all(isinstance(name, str) and name in REGISTRY for name in self.datasets)

    @property
    def _detectors(self) -> Sequence[Any]:
        if self.detectors is not None:
            return self.detectors
        return PAPER_DETECTORS if self._of_the_paper else OWN_DETECTORS

    @property
    def _methods(self) -> Sequence[Any]:
        if self.methods is not None:
            return self.methods
        return PAPER_METHODS if self._of_the_paper else OWN_METHODS

    def _readings(self) -> list[Reading]:
        return resolve_readings(
            self._methods,
            folds=self.protocol.folds,
            bootstrap_draws=self.protocol.bootstrap_draws,
        )

    def _keep(self, schedule: Schedule, there: Mapping[Key, StoredResult]) -> Self:
        parts = schedule.select(there)
        self.results_ = results_table(part.result for part in parts)
        self.costs_ = costs_table(parts)
        return self


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
