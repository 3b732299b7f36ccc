"""Which rows a study consists of, and which of them are still to be computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ..detectors import resolve_detector
from ..fitter import method_for_rows
from ..methods import BySize, Jackknife
from .datasets import Dataset
from .families import detector_for, identity, run_family
from .protocol import Protocol, Sizes
from .store import Key, Store, StoredResult, check_identity
from .subjects import Labelled, Reading, describe

# What cannot be run, as data set, detector and method; and why.
LeftOut = dict[tuple[str, str, str], str]


@dataclass(frozen=True, eq=False)
class Task:
    """All that is missing of one draw of one data set.

    Attributes
    ----------
    protocol : Protocol
    dataset : Dataset
    j : int
        The draw.
    families : list of (Labelled, list of Reading)
        What to fit, and what to read from it.
    store : Store
    """

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

    Attributes
    ----------
    protocol : Protocol
    datasets : list of Dataset
    detectors : list of Labelled
    readings : list of Reading
    fallback : Reading or None
        The method of a detector that none of the others can do.
    left_out : dict
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
