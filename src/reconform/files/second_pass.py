"""The second pass over a file of new rows: write every row with its results."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..arrays import BoolArray, FloatArray, IndexArray, RankArray
from ..discoveries import USUAL_FIRST, CountedDiscoveries, Discoveries
from ..errors import InputError
from ..explain import Explainer, explainer_for
from ..statistics.fdr import Decision
from . import judged
from .column_types import labels_in, to_python
from .first_pass import Progress, Seen
from .formats import FORMATS, Layout
from .judged import FileDiscoveries, Rows
from .reading import Batches, ReadOptions
from .spill import RowStore
from .writing import CERTIFIED_NAMES, RESULT_NAMES, WriteOptions, add_results, open_output

# What stays in memory of labels and identifiers.
MOST_KEPT = 1 << 28

FOUND = np.dtype([("position", "<i8"), ("score", "<f8"), ("p", "<f8"), ("plain", "?")])


class Marks(ABC):
    """What the second pass writes beside every row."""

    count: int
    tested: int
    names = RESULT_NAMES

    @abstractmethod
    def numbers(self, start: int, ranks: RankArray) -> tuple[FloatArray, FloatArray, BoolArray]:
        """P-values, q-values or e-values, and the mask, of rows from `start` on."""


class ByRank(Marks):
    """Results from a decision on ranks."""

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self.count, self.tested = decision.count, decision.tested

    def numbers(self, start: int, ranks: RankArray) -> tuple[FloatArray, FloatArray, BoolArray]:
        """What every rank is worth."""
        decision = self.decision
        return decision.grid.values(ranks), decision.q_values(ranks), decision.mask(ranks)


class ByRow(Marks):
    """Results from a list in memory, which has them for every row."""

    def __init__(self, found: Discoveries) -> None:
        self.found = found
        self.names = RESULT_NAMES if found.e_values is None else CERTIFIED_NAMES
        self.count, self.tested = found.count, found.tested

    def numbers(self, start: int, ranks: RankArray) -> tuple[FloatArray, FloatArray, BoolArray]:
        """What the list says of these rows."""
        rows, found = slice(start, start + len(ranks)), self.found
        return found.p_values[rows], found.evidence[1][rows], found.mask[rows]


@dataclass
class SecondPass:
    """The second pass over a file, after the decision."""

    batches: Batches
    marks: Marks
    first: Seen
    read: ReadOptions
    write: WriteOptions
    before: os.stat_result
    progress: Progress | None
    top: int | None

    def run(self, output: str | Path | None) -> tuple[Rows, Rows, Rows | None, list[Any] | None]:
        """Write the output; return first rows, wanted rows, all rows, and the identifiers."""
        marks = self.marks
        listed = min(max(marks.count, self.top or USUAL_FIRST), judged.MOST_FLAGGED)
        written = self.top or (marks.count if self.write.only_anomalies else None)
        only = written is not None and output is not None
        order = self._first(max(listed, written or 0) if only else listed)
        layout = self.write.layout or Layout()
        typed = output is not None and not FORMATS[layout.format_of(output)].is_text
        nothing = pa.Table.from_batches([], self.batches.source.schema)
        schema = self._judged(nothing, 0, *_NOTHING, typed).schema
        inside = np.unique(np.concatenate([order, self.first.wanted]))
        with ExitStack() as stack:
            write: Callable[[Any], None] | None = None
            if output is not None:
                overwrite, safe = self.write.overwrite, self.write.safe_cells
                write = stack.enter_context(
                    open_output(output, schema, layout=layout, overwrite=overwrite, safe_cells=safe)
                )
            store = stack.enter_context(RowStore(schema))
            kept = _Kept(self)
            for start, table, ranks, scores in self._joined():
                stop = start + table.num_rows
                complete = self._judged(table, start, ranks, scores, typed)
                if write is not None and not only:
                    write(complete)
                here = _between(inside, start, stop)
                if len(here):
                    store.add(complete.take(here))
                kept.add(table)
                if self.progress is not None:
                    self.progress("writing", stop, self.marks.tested)
            if write is not None and only:
                for piece in store.pieces(np.searchsorted(inside, order[:written])):
                    write(piece)
            rows, wanted = (
                self._taken(store, inside, which) for which in (order[:listed], self.first.wanted)
            )
        return rows, wanted, kept.rows(), kept.index()

    def _taken(self, store: RowStore, inside: IndexArray, positions: IndexArray) -> Rows:
        """Rows by position; fewer where their cells are so long that not all fit into memory."""
        table = next(store.pieces(np.searchsorted(inside, positions)))
        return Rows(positions[: len(table)], table, self.batches.matrix(table)[0])

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
            prefix=self.write.prefix,
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
    kept = second.read.most_rows or judged.MOST_DISCOVERIES
    first, said = second.first, found if certified is None else certified
    shared = {name: getattr(said, name) for name in _SHARED}
    if said.weights is not None and found.compared is not None and said.compared is not None:
        shared["compared"] = replace(found.compared, found=said.compared.found, weighted=True)
    return FileDiscoveries(
        **{**vars(found), **shared},
        path=path,
        output=None if output is None else str(output),
        listed=listed,
        wanted=wanted,
        rows=rows,
        missing=dict(first.missing),
        unseen={
            second.batches.features[j].name: found.rows for j, found in sorted(first.unseen.items())
        },
        fingerprint=first.fingerprint,
        certified=certified,
        _numbers=first.everything() if found.tested <= kept else None,
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
        choose=partial(scanned.chosen, cad, rows.positions, rows.X),
        positions=positions,
        features=second.batches.features,
        unlisted=labels_in(rows.table),
    )


class _Kept:
    """What stays in memory of every row: labels for a report, and identifiers."""

    def __init__(self, second: SecondPass) -> None:
        self._first, self._tested = second.first, second.marks.tested
        features = second.batches.features
        self._labels = [feature.name for feature in features if feature.is_category]
        keeps_ids = self._tested <= judged.MOST_DISCOVERIES
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


def _between(positions: IndexArray, start: int, stop: int) -> IndexArray:
    """Those of the sorted positions that lie in a batch, counted from its start."""
    low, high = np.searchsorted(positions, (start, stop))
    return positions[low:high] - start
