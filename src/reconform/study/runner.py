"""Study: any data sets, any detectors, any methods, under the paper's protocol."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator

from ..errors import ReconformError, unknown_choice
from ..parallel import track
from .averages import Cell, summarise
from .comparison import Comparison, compare_cells, read_reference
from .costs import format_costs, summarise_costs
from .datasets import REGISTRY, resolve_datasets
from .figures import comparison_chart, results_chart
from .layout import MethodColumn, columns_of, format_table
from .protocol import Protocol
from .schedule import Schedule
from .store import Key, Store, StoredResult, costs_table, results_table
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


class Study(BaseEstimator):
    """The paper's evaluation, for any data, any detector and any method.

    Parameters
    ----------
    datasets : sequence
        Names of the paper's data sets, ``"breast_cancer"`` (inside scikit-learn), paths of
        ``.npz``, ``.csv`` or ``.parquet`` files, or ``(name, X, y)``. By default the paper's
        eight.
    detectors : sequence
        Whatever `ConformalDetector` takes, or ``(label, detector)`` pairs. By default the paper's
        three.
    methods : sequence
        Names as in `ConformalDetector`, ``"jackknife-pooled"``, ``"cv-pooled"``,
        ``"jab-pooled"``, method objects, or ``(label, method)`` pairs. By default the paper's
        seven columns, its retaining ones read as pooled.
    protocol : Protocol, optional
        Levels, sizes, draws and the seed; by default the paper's.
    share_models : bool, default=True
        Fit once what several methods can share. Without it every method is fitted on its own:
        the results are the same, and the costs are those of each method alone.
    data : path, optional
        Folder with the paper's data sets; see `reconform.study.load`.
    label : str, default="label"
        Label column of CSV and Parquet files.

    Attributes
    ----------
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
        detectors: Sequence[Any] = PAPER_DETECTORS,
        methods: Sequence[Any] = PAPER_METHODS,
        protocol: Protocol = PAPER_PROTOCOL,
        *,
        share_models: bool = True,
        data: str | os.PathLike[str] | None = None,
        label: str = "label",
    ) -> None:
        self.datasets = datasets
        self.detectors = detectors
        self.methods = methods
        self.protocol = protocol
        self.share_models = share_models
        self.data = data
        self.label = label

    def run(
        self, store: str | os.PathLike[str], *, n_jobs: int | None = None, verbose: int = 0
    ) -> Self:
        """Compute what the store does not have yet, and read the rest from it.

        Parameters
        ----------
        store : path
            Folder of finished rows; see `reconform.study.store`. A run that was killed continues
            where it was, and other methods, detectors, data sets and more draws may be added.
        n_jobs : int, optional
            Draws at a time, as in joblib; ``joblib.parallel_config`` chooses the backend.
        verbose : int
            With 1, show a progress bar.

        Returns
        -------
        Study
            Itself, with `results_` and `costs_`.
        """
        schedule, folder = self._schedule(), Store(store)
        folder.remove_leftovers()
        there = folder.parts_by_key()
        tasks = list(schedule.missing(there, folder, share=self.share_models))
        results: Iterable[list[StoredResult]] = _parallel(n_jobs)(
            delayed(task.run)() for task in tasks
        )
        for finished in track(
            results, total=len(tasks), label="study", verbose=verbose if tasks else 0
        ):
            there.update((part.result.key, part) for part in finished)
            folder.write_tables(there.values())
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
        return self._keep(self._schedule(), Store(store).parts_by_key())

    def sweep(
        self,
        parameter: str,
        values: Iterable[Any],
        store: str | os.PathLike[str],
        *,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> Any:
        """Run the study once per value of a parameter of the protocol, each in its own folder.

        Parameters
        ----------
        parameter : str
            Of `Protocol`, such as ``"fdr"``, ``"test_size"``, ``"anomaly_rate"``, ``"folds"``.
        values : iterable
        store : path
            Folder of the folders.
        n_jobs, verbose : int
            As in `run`.

        Returns
        -------
        pyarrow.Table
            The results of all runs, with one more column, named like the parameter.
        """
        names = [field.name for field in fields(Protocol)]
        if parameter not in names:
            raise unknown_choice("parameter", parameter, names)
        tables = []
        for value in values:
            changed = replace(self.protocol, **{parameter: value})
            study = type(self)(**{**self.get_params(deep=False), "protocol": changed})
            study.run(Path(store, f"{parameter}={value}"), n_jobs=n_jobs, verbose=verbose)
            column = pa.array([value] * len(study.results_))
            tables.append(study.results_.append_column(parameter, column))
        return pa.concat_tables(tables)

    def cells(self) -> list[Cell]:
        """Summarise the draws: one cell per data set, detector and method, in the study's order."""
        self._check_run()
        return summarise(self.results_, fdr=float(self.protocol.fdr))

    def table(self, fmt: str = "markdown") -> str:
        """Lay the results out like the paper's tables.

        Parameters
        ----------
        fmt : {"markdown", "latex", "csv"}
            CSV has one line per cell and metric, like the paper's numbers that ship with us.

        Returns
        -------
        str
        """
        return format_table(self.cells(), self._columns(), fmt=fmt)

    def cost_table(self, fmt: str = "markdown") -> str:
        """Write fit time, scoring time and model size per method, medians over the draws.

        With ``share_models=False`` these are the costs of each method alone; otherwise methods
        that share models share their fit time and their size.

        Parameters
        ----------
        fmt : {"markdown", "csv"}

        Returns
        -------
        str
        """
        self._check_run()
        return format_costs(summarise_costs(self.costs_), fmt=fmt)

    def compare(
        self, reference: str | os.PathLike[str] = "paper", reading: Mapping[str, str] | None = None
    ) -> Comparison:
        """Compare with the paper's numbers, or with another table, in standard errors.

        Parameters
        ----------
        reference : str or path
            ``"paper"``, or a CSV file as `table` writes it.
        reading : mapping, optional
            Which of our methods is read against which of theirs. For the paper, pooled is read
            against its retaining columns; for other tables every method against its namesake.

        Returns
        -------
        Comparison
        """
        return compare_cells(self.cells(), read_reference(reference), reading)

    def chart(self, kind: str = "results") -> Any:
        """Draw the results.

        Parameters
        ----------
        kind : {"results", "paper"}
            FDR and power per data set and method with error bars; or ours against the paper's.

        Returns
        -------
        altair.Chart
            `reconform.study.save_chart` writes it to a file.
        """
        if kind == "results":
            return results_chart(self.cells(), self._columns())
        if kind == "paper":
            return comparison_chart(self.compare("paper"))
        raise unknown_choice("kind", kind, ("results", "paper"))

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
            resolve_datasets(self.datasets, self.data, self.label),
            resolve_detectors(self.detectors),
            self._readings(),
        )
        for dataset in schedule.datasets:
            for reading in schedule.readings_of(dataset):
                # Planning is cheap, and says what does not fit: more folds than rows, say.
                reading.method.plan(schedule.sizes[dataset.name].train, random_state=0)
        return schedule

    def _readings(self) -> list[Reading]:
        return resolve_readings(
            self.methods,
            folds=self.protocol.folds,
            bootstrap_draws=self.protocol.bootstrap_draws,
        )

    def _columns(self) -> list[MethodColumn]:
        variants = {reading.label: reading.variant for reading in self._readings()}
        return columns_of(variants, folds=self.protocol.folds)

    def _keep(self, schedule: Schedule, there: Mapping[Key, StoredResult]) -> Self:
        parts = schedule.select(there)
        self.results_ = results_table(part.result for part in parts)
        self.costs_ = costs_table(parts)
        return self


def _parallel(n_jobs: int | None) -> Parallel:
    """Results as they come, where the caller's joblib backend can do that."""
    try:
        return Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    except ValueError:  # multiprocessing hands back everything at the end
        return Parallel(n_jobs=n_jobs)
