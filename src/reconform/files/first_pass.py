"""The first pass over a file of new rows: rank every batch, count the ranks, note what is odd.

Rows that somebody named, to be explained, are found here, or refused (`Wanted`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arrays import FloatArray, IndexArray, ObjectArray
from ..assumption import Category, Reservoir
from ..detector import ConformalDetector
from ..detectors.prepare import Feature
from ..discoveries import CountedDiscoveries, Discoveries
from ..errors import InputError, ReconformError
from ..rule import Rule
from ..statistics.choice import ChoiceCounts
from ..statistics.fdr import RankCounts
from ..statistics.ranks import Ranks
from ..steps.deciding import Observed
from ..weights import Weights
from . import judged
from .beforehand import has_more_rows, too_many
from .cells import Fingerprint
from .column_types import to_python
from .reading import Batches, ReadOptions, missing_counts
from .spill import ScoreSpill, Spill


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

# The labels of rows, where there is a column of groups.
Groups = ObjectArray | None

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
    counts : RankCounts
    fingerprint : str
    missing : Counter
        Missing values by name of the column.
    unseen : dict
        By position of the column.
    kept : list of float arrays, or None
        The features of all rows in batches, where they stay in memory.
    sample : Reservoir
    together : Ranks or None
        Where all rows were ranked at once.
    choice : ChoiceCounts or None
        Where a detector is chosen for every row.
    wanted : int array
        Positions of the rows that `ReadOptions.wanted` names.
    chosen : callable, optional
        From positions and features of rows to the detectors that ranked them.
    sample_groups : int array or None
        The groups of the sample, where the detector was fitted with groups.
    weights : float array or None
        Of all rows, where a column has them.
    """

    cad: ConformalDetector
    columns: Sequence[Feature]
    counts: RankCounts
    fingerprint: str
    missing: Counter[str]
    unseen: dict[int, Unseen]
    kept: list[FloatArray] | None
    sample: Reservoir
    together: Ranks | None = None
    choice: ChoiceCounts | None = None
    wanted: IndexArray = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    chosen: Callable[[IndexArray, FloatArray], IndexArray] | None = None
    sample_groups: IndexArray | None = None
    weights: FloatArray | None = None

    def decide(self, rule: Rule) -> CountedDiscoveries:
        """Decide for the whole file by the counts of ranks."""
        seen = Observed(
            sample=self.sample.rows,
            together=self.together,
            choice=self.choice,
            categories=self._categories(),
            monotone=self.sample.monotone,
            sample_groups=self.sample_groups,
        )
        return self.cad.decide_counts(self.counts, rule, seen)

    def certify(
        self,
        rule: Rule,
        spill: Spill,
        most_cells: int,
        weights: Callable[[FloatArray], Weights] | None = None,
    ) -> Discoveries:
        """Decide by all features, which were kept; drop them if they are too many."""
        assert self.kept is not None
        ranks, scores = spill.everything()
        X = np.concatenate(self.kept)
        if X.size > most_cells:
            self.kept = None
        ranked = self.together or Ranks(ranks, None, scores)
        known = None if weights is None else weights(X if self.weights is None else self.weights)
        return self.cad.decide_ranked(X, ranked, rule, known)

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


# Of rows that are ranked in parts after all of them were seen, only what they share is kept.
_NONE = np.empty(0, dtype=np.int64)


class _Ranking:
    """Ranks rows as they come: batch by batch, or after the last of them.

    Parameters
    ----------
    cad : ConformalDetector
    spill : Spill
    in_memory : bool
        All rows are kept anyway; a choice of detectors is then made, and kept, for all at once.
    """

    def __init__(self, cad: ConformalDetector, spill: Spill, *, in_memory: bool) -> None:
        self._spill = spill
        self._in_memory = in_memory
        self.choice: ChoiceCounts | None = None
        self.together: Ranks | None = None
        self._use(cad)

    def _use(self, cad: ConformalDetector) -> None:
        self.cad = cad
        self.counts = cad.no_counts()
        self._tally = None if self._in_memory else cad.tally()
        self._two_passes = cad.two_passes()
        self._scores = None if self._tally is None else ScoreSpill(len(self._tally.names))

    @property
    def waits(self) -> bool:
        """Whether rows have to be kept until all of them are there."""
        return self.cad.uses_batch and self._tally is None and self._two_passes is None

    def prepare(self, batches: Batches, progress: Progress | None) -> None:
        """Go through all rows once before they are ranked, where these take two passes."""
        if self._two_passes is None:
            return
        rows = 0
        for _, X in batches.read():
            self._two_passes.add(X)
            rows += len(X)
            if progress is not None:
                progress("learning", rows, batches.source.rows)

    def add(self, X: FloatArray, groups: Groups) -> None:
        """Take some rows and their groups; where it `waits`, they are ranked by `finish`."""
        if self._tally is not None:
            assert self._scores is not None
            scores = self._tally.scores(X)
            self._tally.add(scores)
            self._scores.add(scores)
        elif self._two_passes is not None:
            found = self._two_passes.ranks(X)
            self.together = Ranks(_NONE, None, np.empty(0), against=found.against)
            self._put(found)
        elif not self.waits:
            self._put(self.cad.rank(X, groups=groups, checked=True))

    def outgrown(self, rows: int, before: list[tuple[FloatArray, Groups]]) -> bool:
        """Say whether rows became too many for the detector; then another one takes over."""
        most = self.cad.most_rows
        if not self.waits or most is None or rows <= most:
            return False
        self._use(self.cad.for_rows(rows))
        for X, groups in before:
            self.add(X, groups)
        return True

    def finish(self, kept: list[tuple[FloatArray, Groups]] | None, batch_rows: int) -> None:
        """Rank what has waited."""
        if self.waits:
            assert kept is not None
            X = np.concatenate([X for X, _ in kept])
            groups = None
            if self.cad.grouping_ is not None:
                groups = np.concatenate([some for _, some in kept if some is not None])
            self.together = self.cad.rank(X, groups=groups, checked=True, together=True)
            self._put(self.together)
        elif self._tally is not None:
            assert self._scores is not None
            with self._scores:
                for scores in self._scores.batches(batch_rows):
                    self._put(self._tally.ranks(scores))

    def chosen(self, positions: IndexArray, X: FloatArray) -> IndexArray:
        """Say which detectors ranked some of the rows, after `finish`."""
        choice = None if self.together is None else self.together.choice
        if choice is not None:
            return choice.chosen[positions]
        assert self._tally is not None
        again = self._tally.ranks(self._tally.scores(X)).choice
        assert again is not None
        return again.chosen

    def _put(self, ranks: Ranks) -> None:
        self.counts.add(ranks.at_most)
        self._spill.add(ranks.at_most, ranks.scores)
        if ranks.choice is not None:
            if self.choice is None:
                self.choice = ChoiceCounts(ranks.choice.names, self.cad.highest_rank - 1)
            self.choice.add(ranks.choice)


def rank_rows(
    cad: ConformalDetector,
    batches: Batches,
    spill: Spill,
    read: ReadOptions,
    progress: Progress | None,
    *,
    keep_all: bool,
) -> Seen:
    """Rank all rows; keep their features up to `most_cells`, or with `keep_all` of all rows."""
    wanted, most_cells = Wanted(read.wanted, read.id_columns), read.most_cells
    ranking = _Ranking(cad.for_rows(batches.source.rows or 0), spill, in_memory=keep_all)
    if (keep_all or ranking.waits) and has_more_rows(batches):
        raise too_many(batches, uses_batch=ranking.waits)
    ranking.prepare(batches, progress)
    fingerprint = Fingerprint(batches.features)
    missing: Counter[str] = Counter()
    unseen: defaultdict[int, Unseen] = defaultdict(Unseen)
    features: list[tuple[FloatArray, Groups]] | None = []
    sample, of_sample = Reservoir(), Reservoir()  # which take the same rows
    rows = 0
    of_rows, column = [], read.weight_column
    for table, X in batches.read([*wanted.columns, *([] if column is None else [column])]):
        wanted.add(table, rows)
        if column is not None:
            of_rows.append(batches.weights(table, column, rows))
        groups = batches.groups(table, rows)
        rows += len(X)
        sample.add(X)
        codes = cad.codes_of(groups, len(X))
        if codes is not None:
            of_sample.add(codes[:, None].astype(np.float64))
        if not ranking.outgrown(rows, [*(features or []), (X, groups)]):
            ranking.add(X, groups)
        fingerprint.add(X)
        missing.update(missing_counts(X, batches.features))
        for j, labels in batches.unseen(table, X).items():
            unseen[j].add(labels)
        if features is not None:
            features.append((X, groups))
            if keep_all or ranking.waits:
                _check_few(batches, rows, ranking.waits)
            elif rows * X.shape[1] > most_cells:
                features = None
        if progress is not None:
            progress("ranking", rows, batches.source.rows)
    positions = wanted.found(batches.source.label, rows)
    ranking.finish(features, batches.batch_rows)
    if not keep_all and rows * len(batches.features) > most_cells:
        features = None
    return Seen(
        ranking.cad,
        batches.features,
        ranking.counts,
        fingerprint.hexdigest(),
        missing,
        unseen,
        None if features is None else [X for X, _ in features],
        sample,
        ranking.together,
        ranking.choice,
        positions,
        ranking.chosen,
        None if of_sample.rows is None else of_sample.rows[:, 0].astype(np.intp),
        None if column is None else np.concatenate(of_rows),
    )


def _check_few(batches: Batches, rows: int, uses_batch: bool) -> None:
    """Refuse a file of which not all rows can be kept."""
    if rows > judged.MOST_DISCOVERIES:
        raise too_many(batches, uses_batch=uses_batch)
