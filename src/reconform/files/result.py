"""The result of judging a file: rows with their results, and what was found."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from functools import partial
from mmap import ACCESS_READ, mmap
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa

from ..arrays import BoolArray, FloatArray, IndexArray, IntArray, RankArray
from ..atomic import in_temporary_files
from ..discoveries import USUAL_FIRST, BaseDiscoveries, CountedDiscoveries, Discoveries
from ..errors import InputError, ReconformError
from ..explain import Explainer, Explanation, Judged, explainer_for
from ..tables.cells import PIECE_BYTES, labels_in, to_python
from ..units import UnitRows
from .batches import Batches, ReadOptions
from .formats import (
    CERTIFIED_NAMES,
    FORMATS,
    RESULT_NAMES,
    Layout,
    WriteOptions,
    add_results,
    open_output,
)
from .source import SPILL_BYTES, row_sizes

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
            vars(found)["verdict"] = self.verdict  # which is worked out once
            return found
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
            row_groups=self._row_groups(ranks) if self.groups else None,
            units=self.units,
        )
        vars(found)["verdict"] = self.verdict
        return found

    def _row_groups(self, ranks: RankArray) -> Any:
        """The group of every row."""
        names = np.array([group.name for group in self.groups], dtype=object)
        joint = self.provenance.joint
        return names[np.zeros(len(ranks), np.intp) if joint is None else joint.apart(ranks)[0]]


# What stays in memory of labels and identifiers.
MOST_KEPT = 1 << 28

FOUND = np.dtype([("position", "<i8"), ("score", "<f8"), ("p", "<f8"), ("plain", "?")])

# What a certified list says in place of the counted one.
_SHARED = ("p_threshold", "claim", "warning", "choice", "weights", "groups")


@dataclass
class SecondPass:
    """The second pass over a file, after the decision: it writes, and keeps some of the rows."""

    batches: Batches
    first: FileScan
    found: CountedDiscoveries
    certified: Discoveries | None
    read: ReadOptions
    write: WriteOptions
    before: os.stat_result
    progress: Progress | None
    top: int | None
    chosen: _Chosen = field(init=False)

    def run(self, output: str | Path | None) -> FileDiscoveries:
        """Write the output, and put together what was found."""
        first, certified, batches = self.first, self.certified, self.batches
        said = self.found if certified is None else certified
        listed = min(max(said.count, self.top or USUAL_FIRST), MOST_FLAGGED)
        written = self.top or (said.count if self.write.only_anomalies else 0)
        only = output is not None and (self.top is not None or self.write.only_anomalies)
        if only and written > MOST_DISCOVERIES:
            raise InputError(
                batches.source.label,
                f"{written:,} rows would be written in order, and at most {MOST_DISCOVERIES:,} can "
                "be. Leave out `only_anomalies`, and the rows are written as they come.",
            )
        order = self._first(max(listed, written) if only else listed)
        labels, ids = self._pass(output, order, only, written)
        every = None
        if first.kept is not None:
            positions = np.arange(self.found.tested, dtype=np.intp)
            every = Rows(positions, pa.concat_tables(labels), np.concatenate(first.kept))
        listed_rows, wanted = self._some(order[:listed]), self._some(first.wanted)
        columns = [to_python(column) for column in pa.concat_tables(ids).columns] if ids else []
        index = list(zip(*columns, strict=True)) if len(columns) > 1 else next(iter(columns), None)
        shared = {name: getattr(said, name) for name in _SHARED}
        compared = self.found.compared
        if said.weights is not None and compared is not None and said.compared is not None:
            shared["compared"] = replace(compared, found=said.compared.found, weighted=True)
        return FileDiscoveries(
            **{**vars(self.found), **shared, "certified": certified},
            path=batches.source.label,
            output=None if output is None else str(output),
            listed=listed_rows,
            wanted=wanted,
            rows=every,
            missing=dict(first.missing),
            unseen={batches.features[j].name: new.rows for j, new in sorted(first.unseen.items())},
            fingerprint=first.digest.hexdigest(),
            _numbers=first.everything() if self.found.tested <= MOST_DISCOVERIES else None,
            _index=index,
            _explainer=self._explainer(every, listed_rows, wanted),
            units=batches.units,
        )

    def _pass(
        self, output: str | Path | None, order: IndexArray, only: bool, written: int
    ) -> tuple[list[Any], list[Any]]:
        """Go through the file; return the labels and the identifiers of all rows, if they are few.

        Some rows, by their positions, wait in `chosen` until they are taken in their order.
        """
        layout = self.write.layout or Layout()
        typed = output is not None and not FORMATS[layout.format_of(output)].is_text
        nothing = pa.Table.from_batches([], self.batches.source.schema)
        schema = self._judged(nothing, 0, np.empty(0, dtype=np.int64), np.empty(0), typed).schema
        features = [one.name for one in self.batches.features if one.is_category]
        names = self.read.id_columns if self.found.tested <= MOST_DISCOVERIES else ()
        labels: list[Any] = []
        ids: list[Any] = []
        size = 0
        with ExitStack() as stack:
            write = None
            if output is not None:
                overwrite, safe = self.write.overwrite, self.write.safe_cells
                write = stack.enter_context(
                    open_output(output, schema, layout=layout, overwrite=overwrite, safe_cells=safe)
                )
            self.chosen = _Chosen(np.unique(np.concatenate([order, self.first.wanted])), schema)
            for start, table, ranks, scores in self._joined():
                complete = self._judged(table, start, ranks, scores, typed)
                if write is not None and not only:
                    write(complete)
                self.chosen.add(complete, start)
                kept = [(labels, features)] if self.first.kept is not None else []
                for some, columns in (*kept, *([(ids, names)] if names else [])):
                    some.append(table.select(columns))
                    size += some[-1].nbytes
                if size > MOST_KEPT:  # long cells, of which no report or list is made
                    self.first.kept, names, labels, ids, size = None, (), [], [], 0
                if self.progress is not None:
                    self.progress("writing", start + table.num_rows, self.found.tested)
            if write is not None and only:
                for _, piece in self.chosen.pieces(order[:written]):
                    write(piece)
        return labels, ids

    def _some(self, positions: IndexArray) -> Rows:
        """Rows that were chosen; fewer where their cells are long."""
        some, table = next(self.chosen.pieces(positions))
        return Rows(some, table, self.batches.matrix(table)[0])

    def _numbers(self, start: int, ranks: RankArray) -> tuple[FloatArray, FloatArray, BoolArray]:
        """p-values, q-values and the mask of rows from some position on."""
        if self.certified is not None:
            rows = slice(start, start + len(ranks))
            found = self.certified
            return found.p_values[rows], found.q_values[rows], found.mask[rows]
        decision = self.found.decision
        return decision.grid.values(ranks), decision.q_values(ranks), decision.mask(ranks)

    def _first(self, most: int) -> IndexArray:
        """Positions: the flagged rows, then the others, by p-value, raw score and position."""
        best = np.empty(0, dtype=FOUND)
        worst = np.inf  # a row with a larger p-value that is not flagged cannot be among them
        start = 0
        for part in self.first.ranked:
            ranks, scores = part.at_most, part.scores
            p_values, _, mask = self._numbers(start, ranks)
            here = np.flatnonzero(mask | (p_values <= worst))
            found = np.empty(len(here), dtype=FOUND)
            found["position"] = here + start
            found["score"] = scores[here]
            found["p"] = p_values[here]
            found["plain"] = ~mask[here]
            best = np.concatenate([best, found])
            start += len(ranks)
            if len(best) > 2 * most or start == self.found.tested:
                keys = [best[name] for name in ("position", "score", "p", "plain")]
                best = best[np.lexsort(keys)][:most]
                if len(best) == most:
                    worst = best["p"][-1] if best["plain"][-1] else -np.inf
        return np.asarray(best["position"], dtype=np.intp)

    def _joined(self) -> Iterator[tuple[int, Any, RankArray, FloatArray]]:
        """Batches of the file beside their ranks and scores."""
        start = 0
        ranked, tested = self.first.ranked, self.found.tested
        for table in self.batches.tables():
            stop = start + table.num_rows
            if stop > tested:
                start = stop
                break
            part = ranked.part(start, stop)
            yield start, table, part.at_most, part.scores
            start = stop
        after = os.stat(self.batches.source.path)
        then, now = ((s.st_size, s.st_mtime_ns) for s in (self.before, after))
        if start != tested or then != now:
            raise InputError(
                self.batches.source.label,
                "the file changed while it was judged; run again when nothing writes to it.",
            )

    def _judged(
        self, table: Any, start: int, ranks: RankArray, scores: FloatArray, typed: bool
    ) -> Any:
        certified = self.certified is not None and self.certified.e_values is not None
        return add_results(
            self.batches.typed(table) if typed else table,
            scores,
            *self._numbers(start, ranks),
            names=CERTIFIED_NAMES if certified else RESULT_NAMES,
        )

    def _explainer(self, rows: Rows | None, listed: Rows, wanted: Rows) -> Explainer | None:
        """Make what explains the rows that were kept."""
        positions = None
        if rows is None:
            positions, at = np.unique(
                np.concatenate([listed.positions, wanted.positions]), return_index=True
            )
            table = pa.concat_tables([listed.table, wanted.table]).take(pa.array(at))
            rows = Rows(positions, table, np.vstack([listed.X, wanted.X])[at])
        cad, scanned = self.first.cad, self.first.scanned
        return explainer_for(
            cad,
            partial(cad.of_file, rows.X),
            choose=partial(scanned.chosen, rows.positions),
            positions=positions,
            features=self.batches.features,
            unlisted=labels_in(rows.table),
        )


class _Chosen:
    """Rows by their positions, which wait in a file, and in memory while they are few."""

    def __init__(self, positions: IndexArray, schema: Any) -> None:
        self.positions, self.schema = positions, schema
        self.file: BinaryIO = SpooledTemporaryFile(SPILL_BYTES)  # type: ignore[assignment]  # noqa: SIM115
        weakref.finalize(self, self.file.close)  # gives up the disk
        self.writer = pa.ipc.new_stream(self.file, schema)
        self.sizes: list[IntArray] = [np.empty(0, dtype=np.int64)]
        self.batches: list[Any] | None = None  # all of them, when the last was added

    def add(self, table: Any, start: int) -> None:
        """Look at the rows of a batch, which so many come before."""
        low, high = np.searchsorted(self.positions, (start, start + table.num_rows))
        if low < high:
            taken = table.take(self.positions[low:high] - start).combine_chunks()
            self.sizes.append(row_sizes(taken))
            with in_temporary_files(self.file.tell(), "what is written in order"):
                self.writer.write_table(taken)

    def pieces(self, positions: IndexArray) -> Iterator[tuple[IndexArray, Any]]:
        """Yield rows and their positions, in this order, in tables of bounded size."""
        if self.batches is None:
            with in_temporary_files(self.file.tell(), "what is written in order"):
                self.writer.close()
                large = self.file.tell() > SPILL_BYTES
                self.file.seek(0)
                content = (
                    mmap(self.file.fileno(), 0, access=ACCESS_READ) if large else self.file.read()
                )
            self.batches = list(pa.ipc.open_stream(pa.py_buffer(content)))
        places = np.searchsorted(self.positions, positions)
        full = np.cumsum(np.concatenate(self.sizes)[places]) // PIECE_BYTES
        edges = np.cumsum([0, *map(len, self.batches)])
        for rows in np.split(places, np.flatnonzero(np.diff(full)) + 1):
            # Batch by batch, for a table is copied before rows are taken.
            order = np.argsort(rows)
            cuts = np.split(rows[order], np.searchsorted(rows[order], edges[1:]))
            parts = zip(self.batches, cuts, edges, strict=False)  # none behind the last
            taken = [batch.take(pa.array(some - edge)) for batch, some, edge in parts if len(some)]
            table = pa.Table.from_batches(taken, self.schema)
            in_order = (np.diff(rows) >= 0).all()
            yield self.positions[rows], table if in_order else table.take(np.argsort(order))
