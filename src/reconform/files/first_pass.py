"""The first pass over a file of new rows: rank every batch, count the ranks, note what is odd.

Part that somebody named, to be explained, are found here, or refused (`Wanted`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeVar

import numpy as np

from ..arrays import FloatArray, IndexArray, RankArray
from ..assumption import Category, Reservoir
from ..detector import ConformalDetector
from ..detectors.prepare import Feature
from ..discoveries import CountedDiscoveries, Discoveries
from ..errors import InputError, ReconformError
from ..listing import Observed
from ..rule import Rule
from ..scan import Part, Scanned, scan
from ..statistics.ranks import Ranks
from ..weights import Weights
from . import judged
from .beforehand import has_more_rows, too_many
from .cells import Fingerprint
from .column_types import to_python
from .reading import Batches, ReadOptions, missing_counts
from .spill import Spill

T = TypeVar("T")


class Wanted:
    """Finds rows by their positions or identifiers.

    Parameters
    ----------
    wanted : sequence of int or str
        Positions from 0, or identifiers.
    ids : sequence of str
        The columns that identifiers stand in.
    """

    def __init__(self, wanted: Sequence[int | str], ids: Sequence[str]) -> None:
        self._wanted, self._ids = wanted, ids
        self._named: dict[str, list[int]] = {one: [] for one in wanted if isinstance(one, str)}
        if self._named and not ids:
            raise ReconformError(
                "`wanted` names rows by identifiers, and no column has them: give `id_columns`, or "
                "positions."
            )

    @property
    def columns(self) -> Sequence[str]:
        """Columns to read along."""
        return self._ids if self._named else ()

    def add(self, table: Any, start: int) -> None:
        """Look at a batch."""
        if not self._named:
            return
        columns = [to_python(table.column(name)) for name in self._ids]
        for i, cells in enumerate(zip(*columns, strict=True)):
            name = ", ".join(map(str, cells))
            if name in self._named:
                self._named[name].append(start + i)

    def found(self, label: str, rows: int) -> IndexArray:
        """Return the positions; refuse what is not there."""
        positions = []
        for one in self._wanted:
            if not isinstance(one, str):
                if not 0 <= one < rows:
                    raise InputError(label, f"it has {rows:,} rows, and row {one + 1:,} is none.")
                positions.append(int(one))
                continue
            places = self._named[one]
            if len(places) != 1:
                many = "no row" if not places else f"{len(places):,} rows"
                raise InputError(label, f"{many} with the identifier {one!r}; one is needed.")
            positions.append(places[0])
        return np.array(positions, dtype=np.intp)


Progress = Callable[[str, int, int | None], None]

# Labels that the reference does not have are kept by name up to so many per column, if short.
MOST_LABELS = 1_000
LONGEST_LABEL = 1_000


@dataclass
class Unseen:
    """Labels of a column that the reference does not have: rows, and some labels by name."""

    rows: int = 0
    labels: Counter[str] = field(default_factory=Counter)

    def add(self, labels: Counter[str]) -> None:
        """Count the labels of a batch."""
        self.rows += labels.total()
        for label in [label for label in labels if len(label) > LONGEST_LABEL]:
            del labels[label]
        room = MOST_LABELS - len(self.labels)
        new = [label for label in labels if label not in self.labels]
        for label in new[max(0, room) :]:
            del labels[label]
        self.labels.update(labels)


@dataclass
class Seen:
    """What the first pass found; the ranks and scores of the rows are in a `Spill`.

    Attributes
    ----------
    cad : ConformalDetector
        The one that ranked the rows.
    columns : sequence of Feature
    scanned : Scanned
        The ranks of all rows, and their counts.
    fingerprint : str
    missing : Counter
        Missing values by name of the column.
    unseen : dict
        By position of the column.
    kept : list of float arrays, or None
        The features of all rows in batches, where they stay in memory.
    sample : Reservoir
    wanted : int array
        Positions of the rows that `ReadOptions.wanted` names.
    sample_groups : int array or None
        The groups of the sample, where the detector was fitted with groups.
    weights : float array or None
        Of all rows, where a column has them.
    """

    cad: ConformalDetector
    columns: Sequence[Feature]
    scanned: Scanned
    fingerprint: str
    missing: Counter[str]
    unseen: dict[int, Unseen]
    kept: list[FloatArray] | None
    sample: Reservoir
    wanted: IndexArray
    sample_groups: IndexArray | None = None
    weights: FloatArray | None = None

    def decide(self, rule: Rule) -> CountedDiscoveries:
        """Decide for the whole file by the counts of ranks."""
        seen = Observed(
            sample=self.sample.rows,
            together=self.scanned.together,
            choice=self.scanned.counted.choice,
            categories=self._categories(),
            monotone=self.sample.monotone,
            sample_groups=self.sample_groups,
        )
        return self.cad.decide_counts(self.scanned.counted.ranks, rule, seen)

    def certify(
        self,
        rule: Rule,
        most_cells: int,
        weights: Callable[[FloatArray], Weights] | None = None,
    ) -> Discoveries:
        """Decide by all features, which were kept; drop them if they are too many."""
        assert self.kept is not None
        X = np.concatenate(self.kept)
        if X.size > most_cells:
            self.kept = None
        together = self.scanned.together
        if together is None or not len(together.at_most):
            at_most, scores = self.everything()
            together = Ranks(at_most, None, scores)
        known = None if weights is None else weights(X if self.weights is None else self.weights)
        return self.cad.decide_ranked(X, together, rule, known)

    @property
    def ranked(self) -> Spill:
        """Ranks and scores of all rows, by batches of the file."""
        assert isinstance(self.scanned.ranked, Spill)
        return self.scanned.ranked

    def everything(self) -> tuple[RankArray, FloatArray]:
        """Ranks and scores of all rows."""
        parts = list(self.ranked)
        at_most = np.concatenate([part.at_most for part in parts])
        return at_most, np.concatenate([part.scores for part in parts])

    def _categories(self) -> dict[int, Category]:
        """What is known of the columns that hold labels."""
        none = Unseen()
        return {
            j: Category(
                feature.labels, self.unseen.get(j, none).labels, self.unseen.get(j, none).rows
            )
            for j, feature in enumerate(self.columns)
            if feature.labels is not None
        }


class _FileRows:
    """The rows of a file as a source of parts, and what is noticed on the way through them.

    Parameters
    ----------
    cad : ConformalDetector
        The one that ranks the rows.
    batches : Batches
    read : ReadOptions
    progress : callable or None
    keep_all : bool
        All rows have to be in memory; otherwise as many as `read` allows.
    """

    def __init__(
        self,
        cad: ConformalDetector,
        batches: Batches,
        read: ReadOptions,
        progress: Progress | None,
        *,
        keep_all: bool,
    ) -> None:
        self.cad, self.batches, self.read, self.progress = cad, batches, read, progress
        self.keep_all = keep_all
        self.wanted = Wanted(read.wanted, read.id_columns)
        self.fingerprint = Fingerprint(batches.features)
        self.missing: Counter[str] = Counter()
        self.unseen: defaultdict[int, Unseen] = defaultdict(Unseen)
        self.kept: list[Part] | None = []
        self.sample, self.of_sample = Reservoir(), Reservoir()  # which take the same rows
        self.weights: list[FloatArray] = []
        self.sizes: list[int] = []

    def _parts(self) -> Iterator[Part]:
        """Read the rows; the first time all that is to be known of them is noticed."""
        notice = not self.sizes
        column = self.read.weight_column
        more = [*self.wanted.columns, *([] if column is None else [column])] if notice else []
        rows = 0
        for table, X in self.batches.read(more):
            codes = self.cad.codes_of(self.batches.groups(table, rows), len(X))
            part = Part(X, codes)
            if notice:
                self._notice(table, part, rows)
            rows += len(X)
            yield part._replace(X=self.cad.of_file(X))
            if self.progress is not None:
                self.progress("ranking", rows, self.batches.source.rows)

    def _notice(self, table: Any, part: Part, before: int) -> None:
        X, codes = part
        self.wanted.add(table, before)
        self.sizes.append(len(X))
        if self.read.weight_column is not None:
            self.weights.append(self.batches.weights(table, self.read.weight_column, before))
        self.sample.add(X)
        if codes is not None:
            self.of_sample.add(codes[:, None].astype(np.float64))
        self.fingerprint.add(X)
        self.missing.update(missing_counts(X, self.batches.features))
        for j, labels in self.batches.unseen(table, X).items():
            self.unseen[j].add(labels)
        if self.kept is not None:
            self.kept.append(part)
            rows = before + len(X)
            if self.keep_all:
                if rows > judged.MOST_DISCOVERIES:
                    raise too_many(self.batches, uses_batch=self.cad.ranks_rows == "batch")
            elif rows * X.shape[1] > self.read.most_cells:
                self.kept = None

    @property
    def in_memory(self) -> bool:
        """Whether all rows are kept anyway."""
        return self.keep_all

    def each(self, work: Callable[[Part], Any]) -> Spill:
        """As `Parts` has it."""
        spill = Spill()
        for part in self._parts():
            spill.add(work(part))
        return spill

    def total(self, work: Callable[[Part], T], merge: Callable[[T, T], T]) -> T:
        """As `Parts` has it."""
        return reduce(merge, map(work, self._parts()))

    def whole(self) -> Part:
        """All rows, which are kept."""
        for _ in self._parts():
            pass
        assert self.kept is not None
        codes = [part.groups for part in self.kept if part.groups is not None]
        X = np.concatenate([part.X for part in self.kept])
        return Part(self.cad.of_file(X), np.concatenate(codes) if codes else None)

    def cut(self, ranks: Ranks) -> Spill:
        """The ranks of all rows, by batches of the file."""
        spill = Spill()
        for stop, size in zip(np.cumsum(self.sizes), self.sizes, strict=True):
            spill.add(ranks.taken(np.arange(stop - size, stop)))
        return spill


def rank_rows(
    cad: ConformalDetector,
    batches: Batches,
    read: ReadOptions,
    progress: Progress | None,
    *,
    keep_all: bool,
) -> Seen:
    """Rank all rows; keep their features up to `most_cells`, or with `keep_all` of all rows."""
    if cad.most_rows is not None and has_more_rows(batches, cad.most_rows):
        cad = cad.for_rows(cad.most_rows + 1)
    waits = cad.ranks_rows == "batch"
    if (keep_all or waits) and has_more_rows(batches):
        raise too_many(batches, uses_batch=waits)
    rows = _FileRows(cad, batches, read, progress, keep_all=keep_all or waits)
    scanned = scan(cad, rows)
    tested = sum(rows.sizes)
    kept = rows.kept
    if not keep_all and tested * len(batches.features) > read.most_cells:
        kept = None
    return Seen(
        cad,
        batches.features,
        scanned,
        rows.fingerprint.hexdigest(),
        rows.missing,
        rows.unseen,
        None if kept is None else [part.X for part in kept],
        rows.sample,
        rows.wanted.found(batches.source.label, tested),
        None if rows.of_sample.rows is None else rows.of_sample.rows[:, 0].astype(np.intp),
        np.concatenate(rows.weights) if rows.weights else None,
    )
