"""The result of judging a file: rows with their results, and what was found."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from mmap import ACCESS_READ, mmap
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ..arrays import BoolArray, FloatArray, IndexArray, RankArray
from ..atomic import in_temporary_files
from ..discoveries import USUAL_FIRST, BaseDiscoveries, CountedDiscoveries, Discoveries
from ..errors import InputError, ReconformError
from ..explain import Explainer, Explanation, Judged, explainer_for
from ..statistics.fdr import Decision
from ..tables.cells import PIECE_BYTES, labels_in, to_python
from ..units import UnitRows
from .formats import FORMATS, Layout
from .reading import Batches, ReadOptions
from .source import SPILL_BYTES, row_sizes
from .writing import CERTIFIED_NAMES, RESULT_NAMES, WriteOptions, add_results, open_output

if TYPE_CHECKING:
    from .judge import FileScan, Progress

# A result keeps no more flagged rows, and the numbers of every row only for files of at most so
# many rows.
MOST_FLAGGED = 10_000
MOST_DISCOVERIES = 1_000_000


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of a file.

    Attributes
    ----------
    positions : int array
        Of the rows in the file, from 0.
    table : pyarrow.Table
        The columns of the file, and the results as the last four; without an output, and where
        the file has columns of such names, these begin with ``result_``.
    X : float array
        The features, as the detector saw them.
    """

    positions: IndexArray
    table: Any
    X: FloatArray

    def __len__(self) -> int:
        return len(self.positions)

    def head(self, rows: int) -> Rows:
        """The first of them."""
        return Rows(self.positions[:rows], self.table.slice(0, rows), self.X[:rows])


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FileDiscoveries(CountedDiscoveries):
    """The decision on the rows of a file, and what a report of it needs.

    Attributes
    ----------
    path : str
    output : str or None
    listed : Rows
        The rows that come first (`first`), in this order: at most 10,000 of the discoveries, and
        others after them if the rows asked for, or 10, are more.
    wanted : Rows
        Those that were asked for by `ReadOptions.wanted`, in this order.
    rows : Rows or None
        All rows, where these were asked for and are few enough. Of the columns of the file the
        table has only those of labels.
    missing, unseen : dict
        By column, where there are any: values that are missing, and labels that the reference
        does not have.
    fingerprint : str
        Of the new rows, as `Table.fingerprint` of the reference.
    units : UnitRows or None
        What the rows are made of, where they are units.
    decision, rank_counts, certified, guarantee, provenance, warning, ...
        As in every list of discoveries that was decided by counts.
    """

    path: str
    output: str | None
    listed: Rows
    wanted: Rows
    rows: Rows | None
    missing: dict[str, int]
    unseen: dict[str, int]
    fingerprint: str
    _numbers: tuple[RankArray, FloatArray] | None
    _index: list[Any] | None
    _explainer: Explainer | None = None
    units: UnitRows | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_explainer": None}

    @property
    def flagged(self) -> Rows:
        """The most anomalous discoveries, in this order; at most 10,000, fewer if they are long."""
        return self.listed.head(min(self.count, MOST_FLAGGED))

    def _shown(self) -> list[str]:
        return [] if self.output is None else [f"written to {self.output}"]

    def explain(self, row: Any = None, *, position: int | None = None) -> Explanation:
        """Explain why a row stands out, or does not; see `Explanation`.

        Parameters
        ----------
        row : object, optional
            The identifier of the row, where there is an identifier column; otherwise its position
            in the file, from 0. By default the row that comes first.
        position : int, optional
            Instead of `row`: its position in the file, from 0.

        Returns
        -------
        Explanation

        Notes
        -----
        Rows can be explained that were kept: those that come first (`listed`), those that
        `ReadOptions.wanted` asked for, and all where `rows` are there.
        """
        if row is None and position is None and len(self.listed):
            position = int(self.listed.positions[0])
        if self._numbers is not None or self.certified is not None:
            return self.to_discoveries().explain(row, position=position)
        if position is None:
            position = row
        return self._explained(position)

    def _explained(self, position: Any) -> Explanation:
        """Explain a row of a file of which the numbers of every row were not kept."""
        for some in (self.listed, self.wanted):
            at = np.flatnonzero(some.positions == position)
            if len(at) and self._explainer is not None:
                cells = some.table.slice(int(at[0]), 1).columns[-4:]
                _, p_value, q_value, mask = (cell[0].as_py() for cell in cells)
                judged = Judged(str(position), bool(mask), p_value, (self.q_name, q_value))
                place = self._explainer.place(int(position))
                assert place is not None  # both are among the rows that it has
                return self._explainer.explain([place], [judged])[0]
        raise ReconformError(
            f"the row {position!r} of {self.path} was not kept: of so many rows only those that "
            "come first are. Name it in `ReadOptions(wanted=...)`, or give it to cad.explain(row)."
        )

    @property
    def events(self) -> list[Any]:
        """Flagged windows of a time series that are neighbours, as one event each."""
        return [] if self.units is None else self.to_discoveries().events

    def to_discoveries(self) -> Discoveries:
        """Return every row's numbers, as `ConformalDetector.discover` does; up to a million rows.

        The identifier column, if there is one, labels the rows.
        """
        if self.certified is not None:
            found = replace(
                self.certified,
                index=self._index,
                compared=self.compared,
                explainer=self._explainer,
            )
            return self._judged_alike(found)
        if self._numbers is None:
            raise ReconformError(
                f"{self.path} has {self.tested:,} rows, and the numbers of every row are kept for "
                f"at most {MOST_DISCOVERIES:,}; use rank_counts and flagged."
            )
        ranks, scores = self._numbers
        shared = {each.name: getattr(self, each.name) for each in fields(BaseDiscoveries)}
        found = Discoveries(
            **shared,
            decision=self.decision,
            mask=self.decision.mask(ranks),
            p_values=self.decision.grid.values(ranks),
            q_values=self.decision.q_values(ranks),
            scores=scores,
            ranks=ranks,
            index=self._index,
            explainer=self._explainer,
            row_groups=self._row_groups(ranks),
            units=self.units,
        )
        return self._judged_alike(found)

    def _row_groups(self, ranks: RankArray) -> Any:
        """The group of every row, where there are groups."""
        if not self.groups:
            return None
        names = np.array([group.name for group in self.groups], dtype=object)
        joint = self.provenance.joint
        return names[np.zeros(len(ranks), np.intp) if joint is None else joint.apart(ranks)[0]]

    def _judged_alike(self, found: Discoveries) -> Discoveries:
        """Hand the verdict on to the same list in another form: it is worked out once."""
        vars(found)["verdict"] = self.verdict
        return found


# What stays in memory of labels and identifiers.
MOST_KEPT = 1 << 28

FOUND = np.dtype([("position", "<i8"), ("score", "<f8"), ("p", "<f8"), ("plain", "?")])


Numbers = tuple[FloatArray, FloatArray, BoolArray]


@dataclass(frozen=True)
class Marks:
    """What the second pass writes beside every row.

    `numbers` gives p-values, q-values and the mask, of rows from some position on.
    """

    count: int
    tested: int
    names: tuple[str, ...]
    numbers: Callable[[int, RankArray], Numbers]


def by_rank(decision: Decision) -> Marks:
    """Results from a decision on ranks: what every rank is worth."""

    def numbers(start: int, ranks: RankArray) -> Numbers:
        return decision.grid.values(ranks), decision.q_values(ranks), decision.mask(ranks)

    return Marks(decision.count, decision.tested, RESULT_NAMES, numbers)


def by_row(found: Discoveries) -> Marks:
    """Results from a list in memory, which has them for every row."""

    def numbers(start: int, ranks: RankArray) -> Numbers:
        rows = slice(start, start + len(ranks))
        return found.p_values[rows], found.q_values[rows], found.mask[rows]

    names = RESULT_NAMES if found.e_values is None else CERTIFIED_NAMES
    return Marks(found.count, found.tested, names, numbers)


@dataclass
class SecondPass:
    """The second pass over a file, after the decision."""

    batches: Batches
    marks: Marks
    first: FileScan
    read: ReadOptions
    write: WriteOptions
    before: os.stat_result
    progress: Progress | None
    top: int | None

    def run(self, output: str | Path | None) -> tuple[Rows, Rows, Rows | None, list[Any] | None]:
        """Write the output; return first rows, wanted rows, all rows, and the identifiers."""
        marks = self.marks
        listed = min(max(marks.count, self.top or USUAL_FIRST), MOST_FLAGGED)
        written = self.top or (marks.count if self.write.only_anomalies else 0)
        only = output is not None and (self.top is not None or self.write.only_anomalies)
        if only and written > MOST_DISCOVERIES:
            raise InputError(
                self.batches.source.label,
                f"{written:,} rows would be written in order, and at most {MOST_DISCOVERIES:,} can "
                "be. Leave out `only_anomalies`, and the rows are written as they come.",
            )
        order = self._first(max(listed, written) if only else listed)
        layout = self.write.layout or Layout()
        typed = output is not None and not FORMATS[layout.format_of(output)].is_text
        nothing = pa.Table.from_batches([], self.batches.source.schema)
        schema = self._judged(nothing, 0, *_NOTHING, typed).schema
        with ExitStack() as stack:
            write: Callable[[Any], None] | None = None
            if output is not None:
                overwrite, safe = self.write.overwrite, self.write.safe_cells
                write = stack.enter_context(
                    open_output(output, schema, layout=layout, overwrite=overwrite, safe_cells=safe)
                )
            file = stack.enter_context(SpooledTemporaryFile(SPILL_BYTES))
            chosen = _Chosen(file, schema, np.concatenate([order, self.first.wanted]))
            kept = _Kept(self)
            for start, table, ranks, scores in self._joined():
                stop = start + table.num_rows
                complete = self._judged(table, start, ranks, scores, typed)
                if write is not None and not only:
                    write(complete)
                chosen.add(complete, start)
                kept.add(table)
                if self.progress is not None:
                    self.progress("writing", stop, self.marks.tested)
            if write is not None and only:
                for _, piece in chosen.pieces(order[:written]):
                    write(piece)
            rows, wanted = (  # fewer where their cells are long
                Rows(some, table, self.batches.matrix(table)[0])
                for some, table in (
                    next(chosen.pieces(which)) for which in (order[:listed], self.first.wanted)
                )
            )
        return rows, wanted, kept.rows(), kept.index()

    def _first(self, most: int) -> IndexArray:
        """Positions: the flagged rows, then the others, by p-value, raw score and position."""
        best = np.empty(0, dtype=FOUND)
        worst = np.inf  # a row with a larger p-value that is not flagged cannot be among them
        start = 0
        for part in self.first.ranked:
            ranks, scores = part.at_most, part.scores
            p_values, _, mask = self.marks.numbers(start, ranks)
            here = np.flatnonzero(mask | (p_values <= worst))
            found = np.empty(len(here), dtype=FOUND)
            found["position"] = here + start
            found["score"] = scores[here]
            found["p"] = p_values[here]
            found["plain"] = ~mask[here]
            best = np.concatenate([best, found])
            if len(best) > 2 * most:
                best = _sorted(best)[:most]
                worst = best["p"][-1] if best["plain"][-1] else -np.inf
            start += len(ranks)
        return np.asarray(_sorted(best)[:most]["position"], dtype=np.intp)

    def _joined(self) -> Iterator[tuple[int, Any, RankArray, FloatArray]]:
        """Batches of the file beside their ranks and scores."""
        start = 0
        take = self.first.ranked.ranks()
        for table in self.batches.tables():
            ranks, scores = take(table.num_rows)
            if len(ranks) != table.num_rows:
                raise self._changed()
            yield start, table, ranks, scores
            start += table.num_rows
        after = os.stat(self.batches.source.path)
        then, now = ((s.st_size, s.st_mtime_ns) for s in (self.before, after))
        if start != self.marks.tested or then != now:
            raise self._changed()

    def _changed(self) -> InputError:
        return InputError(
            self.batches.source.label,
            "the file changed while it was judged; run again when nothing writes to it.",
        )

    def _judged(
        self, table: Any, start: int, ranks: RankArray, scores: FloatArray, typed: bool
    ) -> Any:
        return add_results(
            self.batches.typed(table) if typed else table,
            scores,
            *self.marks.numbers(start, ranks),
            names=self.marks.names,
        )


# What a certified list says in place of the counted one.
_SHARED = ("p_threshold", "claim", "warning", "choice", "weights", "groups")


def result_of(
    found: CountedDiscoveries,
    certified: Discoveries | None,
    second: SecondPass,
    path: str,
    output: str | Path | None,
) -> FileDiscoveries:
    """Write the output, and put together what was found."""
    listed, wanted, rows, index = second.run(output)
    first, said = second.first, found if certified is None else certified
    shared = {name: getattr(said, name) for name in _SHARED}
    if said.weights is not None and found.compared is not None and said.compared is not None:
        shared["compared"] = replace(found.compared, found=said.compared.found, weighted=True)
    return FileDiscoveries(
        **{**vars(found), **shared, "certified": certified},
        path=path,
        output=None if output is None else str(output),
        listed=listed,
        wanted=wanted,
        rows=rows,
        missing=dict(first.missing),
        unseen={
            second.batches.features[j].name: found.rows for j, found in sorted(first.unseen.items())
        },
        fingerprint=first.digest.hexdigest(),
        _numbers=first.everything() if found.tested <= MOST_DISCOVERIES else None,
        _index=index,
        _explainer=_explainer(second, rows, listed, wanted),
    )


def _explainer(
    second: SecondPass, rows: Rows | None, listed: Rows, wanted: Rows
) -> Explainer | None:
    """Make what explains the rows that were kept."""
    positions = None
    if rows is None:
        positions, at = np.unique(
            np.concatenate([listed.positions, wanted.positions]), return_index=True
        )
        table = pa.concat_tables([listed.table, wanted.table]).take(pa.array(at))
        rows = Rows(positions, table, np.vstack([listed.X, wanted.X])[at])
    cad, scanned = second.first.cad, second.first.scanned
    return explainer_for(
        cad,
        partial(cad.of_file, rows.X),
        choose=partial(scanned.chosen, rows.positions),
        positions=positions,
        features=second.batches.features,
        unlisted=labels_in(rows.table),
    )


class _Chosen:
    """Rows by their positions, to be taken in any order after the last was added.

    They wait in a file, which is in memory while they are few.
    """

    def __init__(self, file: Any, schema: Any, positions: IndexArray) -> None:
        self._file, self._positions = file, np.unique(positions)
        self._writer = pa.ipc.new_stream(file, schema)
        self._sizes = [np.empty(0, dtype=np.int64)]

    def add(self, table: Any, start: int) -> None:
        """Look at the rows of a batch, which so many come before."""
        low, high = np.searchsorted(self._positions, (start, start + table.num_rows))
        if low < high:
            taken = table.take(self._positions[low:high] - start).combine_chunks()
            self._sizes.append(row_sizes(taken))
            with in_temporary_files(self._file.tell(), "what is written in order"):
                self._writer.write_table(taken)

    @cached_property
    def _stored(self) -> Any:
        """All rows, as they were added."""
        with in_temporary_files(self._file.tell(), "what is written in order"):
            self._writer.close()
            large = self._file.tell() > SPILL_BYTES
            self._file.seek(0)
            content = (
                mmap(self._file.fileno(), 0, access=ACCESS_READ) if large else self._file.read()
            )
        return pa.ipc.open_stream(pa.py_buffer(content)).read_all()

    def pieces(self, positions: IndexArray) -> Iterator[tuple[IndexArray, Any]]:
        """Yield rows and their positions, in this order, in tables of bounded size."""
        rows = np.searchsorted(self._positions, positions)
        full = np.cumsum(np.concatenate(self._sizes)[rows]) // PIECE_BYTES
        for part in np.split(rows, np.flatnonzero(np.diff(full)) + 1):
            yield self._positions[part], self._take(part)

    def _take(self, rows: IndexArray) -> Any:
        """Return rows by their places: batch by batch, for a table is copied before it is taken."""
        batches, order = self._stored.to_batches(), np.argsort(rows)
        edges = np.cumsum([0, *map(len, batches)])
        cuts = np.split(rows[order], np.searchsorted(rows[order], edges[1:]))
        parts = zip(batches, cuts, edges, strict=False)  # none behind the last
        taken = [batch.take(pa.array(some - edge)) for batch, some, edge in parts if len(some)]
        together = pa.Table.from_batches(taken, self._stored.schema)
        return together if (np.diff(rows) >= 0).all() else together.take(np.argsort(order))


class _Kept:
    """What stays in memory of every row: labels for a report, and identifiers."""

    def __init__(self, second: SecondPass) -> None:
        self._first, self._tested = second.first, second.marks.tested
        features = second.batches.features
        self._labels = [feature.name for feature in features if feature.is_category]
        keeps_ids = self._tested <= MOST_DISCOVERIES
        self._ids = list(second.read.id_columns) if keeps_ids else []
        self._bytes = 0
        self._label_tables: list[Any] = []
        self._id_tables: list[Any] = []

    def add(self, table: Any) -> None:
        if self._first.kept is not None:
            self._label_tables.append(table.select(self._labels))
        if self._ids:
            self._id_tables.append(table.select(self._ids))
        self._bytes += sum(
            some.nbytes for some in (*self._label_tables[-1:], *self._id_tables[-1:])
        )
        if self._bytes > MOST_KEPT:  # long cells, of which no report or list is made
            self._first.kept, self._ids = None, []
            self._label_tables, self._id_tables = [], []

    def rows(self) -> Rows | None:
        if self._first.kept is None:
            return None
        positions = np.arange(self._tested, dtype=np.intp)
        X = np.concatenate(self._first.kept)
        return Rows(positions, pa.concat_tables(self._label_tables), X)

    def index(self) -> list[Any] | None:
        if not self._ids:
            return None
        columns = [to_python(column) for column in pa.concat_tables(self._id_tables).columns]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _sorted(found: Any) -> Any:
    keys = [found[name] for name in ("position", "score", "p", "plain")]
    return found[np.lexsort(keys)]


_NOTHING = (np.empty(0, dtype=np.int64), np.empty(0))
