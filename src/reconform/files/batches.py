"""New rows in batches of a bounded number (`open_batches`), and units made of rows."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..arrays import FloatArray, ObjectArray
from ..assumption.order import seconds_of
from ..errors import InputError, ReconformError, check_count, listed, nearest, warn_once
from ..frames import label_code, rounded_sentence
from ..grouping import label_of
from ..tables import Feature, Source, TableSource, Written
from ..tables.cells import all_numbers, kind_of, matrix, rounded, texts, to_python
from ..tables.uses import check_known, refuse_new, survey, too_many_rows
from ..timeseries import WindowFeatures, Windows, cut
from ..units import UnitFeatures, UnitRows, by_time, codes_of_units, periods
from .formats import Layout
from .source import CachedSource, open_source

# A batch is at most this many rows, and about this many cells; and bytes, where cells are long.
BATCH_ROWS = 1 << 16
BATCH_CELLS = 1 << 21
BATCH_BYTES = 1 << 26


# In the place of a column of times: rows stand in their order.
IN_ROWS = "rows"


@dataclass(frozen=True)
class ReadOptions:
    """How the new rows are read.

    Attributes
    ----------
    features : sequence of Feature, optional
        The columns that the detector was fitted on (`Table.features`); by default numbers under
        the names that it was fitted with.
    id_columns : sequence of str
        Columns that name the rows.
    layout : Layout, optional
        How the file is laid out, where its name does not say it.
    batch_rows : int, optional
        Rows of a batch. It changes no number.
    most_cells : int
        Keep the features of all rows, as `FileDiscoveries.rows`, if they are no more cells than
        this.
    wanted : sequence of int or str
        Rows to keep for `FileDiscoveries.explain`, wherever they come in the list: positions in the
        file, from 0, or identifiers (several columns joined by ", "). Refused, before anything is
        written, if the file does not have them.
    group_column : str, optional
        The column with the group of every row, where the detector was fitted with groups.
    time_column : str, optional
        The column with the time of every row, to test their order by; ``"rows"``, where no column
        has this name, if rows stand in the order of time.
    unit_column : str, optional
        The column that names the unit of every row, where the detector was fitted on units; or a
        column of times and a period, ``"when:day"``.
    """

    features: Sequence[Feature] | None = None
    id_columns: Sequence[str] = ()
    layout: Layout | None = None
    batch_rows: int | None = None
    most_cells: int = 0
    wanted: Sequence[int | str] = ()
    group_column: str | None = None
    time_column: str | None = None
    unit_column: str | None = None


class Batches:
    """New rows in batches of a bounded number, which can be gone through more than once.

    Iterating yields the matrix of every batch, with the columns of the features whatever their
    order in the file. `tables` yields the same batches as they are in the file.

    Attributes
    ----------
    source : Source
    features : tuple of Feature
    batch_rows : int
    group_column, time_column : str or None
    units : UnitRows or None
        What the rows are made of, where they are units.
    """

    units: UnitRows | None = None

    def __init__(
        self,
        source: Source,
        features: Sequence[Feature],
        allow_missing: bool,
        batch_rows: int,
        group_column: str | None = None,
    ) -> None:
        self.source = source
        self.features = tuple(features)
        self.allow_missing = allow_missing
        self.batch_rows = batch_rows
        self.group_column = group_column
        self.time_column: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All columns of the file."""
        return tuple(self.source.schema.names)

    def __iter__(self) -> Iterator[FloatArray]:
        for _, X in self.read():
            yield X

    def read(self, more: Sequence[str] = ()) -> Iterator[tuple[Any, FloatArray]]:
        """Yield the columns of the features as they are in the file, and their matrix."""
        used = list(dict.fromkeys(feature.column for feature in self.features))
        also = (self.group_column, self.time_column)
        read = [*used, *(name for name in also if name is not None and name not in used)]
        plain = [j for j, feature in enumerate(self.features) if not feature.is_category]
        empty = exact = True
        for table in self.tables([*read, *(name for name in more if name not in read)]):
            X, unreadable = self.matrix(table)
            fit = np.isfinite(X[:, plain])
            if self.allow_missing:
                fit |= np.isnan(X[:, plain])
            if unreadable or not fit.all():
                surveys = survey(self.source, used, self.batch_rows)
                allows = self.allow_missing
                refuse_new(self.source, surveys, self.features, allow_missing=allows)
            if exact:
                names = rounded(table, self.features, X, self.source.layout)
                exact = not names
                if names:
                    tell_rounded(self.source, names, self)
            empty = False
            yield table, X
        if empty:
            raise InputError(self.source.label, "it has no rows.")

    def timed_by(self, column: str | None) -> None:
        """Read the time of every row along, where a column has it."""
        if column is not None and not in_row_order(column, self.names):
            check_known(self.source, "times", [column], self.names)
            self.time_column = column

    def matrix(self, table: Any) -> tuple[FloatArray, bool]:
        """Read the features of a table; and whether some cell is neither a number nor missing."""
        return matrix(table, self.features, self.source.layout)

    @cached_property
    def _codes(self) -> dict[int, list[float]]:
        """The codes of all labels of the reference, by position of their column."""
        return {
            j: [label_code(label) for label in feature.labels]
            for j, feature in enumerate(self.features)
            if feature.labels is not None
        }

    def unseen(self, table: Any, X: FloatArray) -> dict[int, Counter[str]]:
        """Count labels that the reference does not have, by position of their column."""
        found = {}
        for j, feature in enumerate(self.features):
            if feature.labels is None:
                continue
            unseen = ~np.isnan(X[:, j]) & ~np.isin(X[:, j], self._codes[j])
            if unseen.any():
                column = table.column(feature.name).filter(unseen)
                cells = texts(column, self.source.layout)
                found[j] = Counter(cells.to_pylist())
        return found

    def typed(self, table: Any) -> Any:
        """Turn the numbers of a text file into numbers, for a format that has types.

        Only the features are known to be numbers; all other columns stay the text that they are.
        """
        if not self.source.is_text:
            return table
        columns, names = list(table.columns), table.column_names
        plain = {f.name for f in self.features if not f.is_category and not f.made}
        where = [j for j, name in enumerate(names) if name in plain]
        values, _ = all_numbers([columns[j] for j in where], self.source.layout)
        for j, cells in zip(where, values, strict=True):
            columns[j] = pa.array(cells, from_pandas=True)  # NaN is written as missing
        return pa.table(columns, names=names)

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield Arrow tables of `batch_rows` rows; fewer in the last, and where cells are long."""
        names = list(self.names if columns is None else columns)
        pending: list[Any] = []
        count = size = 0
        for whole in self.source.tables(names, self.batch_rows):
            table, start = whole.select(names), 0
            while start < table.num_rows:
                piece = table.slice(start, self.batch_rows - count)
                pending.append(piece)
                start += piece.num_rows
                count += piece.num_rows
                size += piece.nbytes
                if count == self.batch_rows or size > BATCH_BYTES:
                    yield pa.concat_tables(pending)
                    pending, count, size = [], 0, 0
        if pending:
            yield pa.concat_tables(pending)


@contextmanager
def open_batches(
    path: str | Path,
    features: Sequence[Feature],
    *,
    id_columns: Sequence[str] = (),
    allow_missing: bool = False,
    batch_rows: int | None = None,
    layout: Layout | None = None,
    remember: bool = False,
    group_column: str | None = None,
) -> Iterator[Batches]:
    r"""Open a file of new rows, of any size.

    Parameters
    ----------
    path : str or Path
        ``-`` for standard input, which is spooled to disk so that it can be read twice; or
        several files, as in `read_reference`.
    features : sequence of Feature
        Of the reference. They are matched by name; other columns are carried through unused.
    id_columns : sequence of str
        Must be there.
    allow_missing : bool
        Whether values may be missing: where the detector can handle that.
    batch_rows : int, optional
        Rows of a batch; by default 65,536, and fewer in wide tables.
    layout : Layout, optional
    remember : bool
        Keep a small file (16 MB) in memory, so that a second pass does not read it again.
    group_column : str, optional
        The column with the group of every row; it must be there.

    Yields
    ------
    Batches

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "new.csv")
    >>> _ = path.write_text("b,a,note\n1,2,x\n3,4,y\n")
    >>> with open_batches(path, [Feature("a"), Feature("b")], batch_rows=1) as batches:
    ...     for X in batches:
    ...         print(X)
    [[2. 1.]]
    [[4. 3.]]
    >>> folder.cleanup()
    """
    with open_source(path, layout or Layout()) as source:
        names = source.schema.names
        known = set(names)
        gone = list(dict.fromkeys(f.column for f in features if f.column not in known))
        if gone:
            # Names that are numbers, with digits behind a point, are cells, perhaps.
            cells = any(re.fullmatch(r"[+-]?\d*\.\d+", name) for name in gone)
            row = " Is the first line a row? Then give `no_header`." if cells else ""
            raise InputError(
                source.label,
                f"it lacks {'columns' if len(gone) > 1 else 'the column'} {listed(gone)} of the "
                f"reference.{nearest(gone[0], names)} It has {listed(names)}.{row}",
                column=gone[0] if len(gone) == 1 else None,
            )
        if id_columns:
            check_known(source, "id_columns", id_columns, names)
        if group_column is not None:
            check_known(source, "group", [group_column], names)
            check_labels(source, [group_column])
        labelled = [feature.name for feature in features if feature.is_category]
        if labelled:
            check_labels(source, labelled)
        if batch_rows is None:
            encoded = sum(len(feature.labels or ()) for feature in features)
            batch_rows = default_batch_rows(len(names) + encoded)
        batch_rows = check_count("batch_rows", batch_rows, least=1)
        kept = CachedSource(source, names) if remember else source
        yield Batches(kept, features, allow_missing, batch_rows, group_column)


def group_labels(
    column: Any, name: str, layout: Written, path: str | Path, *, before: int = 0
) -> ObjectArray:
    """Read a column of group labels as text; refuse the first that is missing."""
    cells = texts(column, layout).to_pylist()
    labels = [label_of(value) for value in cells]
    if None in labels:
        raise InputError(
            path,
            f"the group of row {before + labels.index(None) + 1:,} in column {name!r} is missing; "
            "leave such rows out, or give them a group of their own.",
            column=name,
        )
    return np.array(labels, dtype=object)


def missing_counts(X: FloatArray, features: Sequence[Feature]) -> dict[str, int]:
    """Count missing values by column, where there are any."""
    counts = np.isnan(X).sum(axis=0)
    return {f.name: int(c) for f, c in zip(features, counts, strict=True) if c}


def tell_rounded(source: Source, names: Sequence[str], whom: Any = None) -> None:
    """Warn that whole numbers of some columns are rounded."""
    said = f"{rounded_sentence(names)} Identifiers are carried through exactly with `id_columns`."
    warn_once(whom, "rounded", f"{source.label}: {said}", UserWarning)


def default_batch_rows(columns: int) -> int:
    """Choose the rows of a batch so that it stays small however wide the table is.

    Examples
    --------
    >>> default_batch_rows(10), default_batch_rows(5_000)
    (65536, 419)
    """
    return max(1, min(BATCH_ROWS, BATCH_CELLS // max(1, columns)))


def most_rows(source: Source, columns: int) -> int:
    """Rows of a reference that fit into a quarter of the memory; refuse a file that says more."""
    found = [1 << 36]
    with suppress(OSError, ValueError, AttributeError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):  # of a container; "max" where there is no limit
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    most = max(2, min(size for size in found if size > 0) // (4 * 8 * columns))
    if source.rows is not None and source.rows > most:
        raise too_many_rows(source, most)
    return most


@contextmanager
def blaming(label: str, column: str) -> Iterator[None]:
    """Say which column of which file an error is about."""
    try:
        yield
    except InputError:
        raise
    except ReconformError as error:
        raise InputError(label, f"column {column!r}: {error}", column=column) from error


def in_row_order(time: str, names: Sequence[str]) -> bool:
    """Whether no column has the times, because rows stand in the order of time."""
    return time == IN_ROWS and IN_ROWS not in names


def check_labels(source: Source, names: Sequence[str]) -> None:
    """Refuse columns whose cells cannot be labels."""
    for name in names:
        type = source.schema.field(name).type
        if kind_of(type) == "other":
            raise InputError(
                source.label,
                f"the column {name!r} should hold labels, and holds cells of type {type}.",
                column=name,
            )


@contextmanager
def open_units(
    path: str | Path, known: UnitFeatures, read: ReadOptions, *, allow_missing: bool
) -> Iterator[Batches]:
    """Open a file of new rows as units: all its rows are read, and one row made of each unit."""
    unit = str(read.unit_column)
    ids = [name for name in read.id_columns if name != unit]
    group, windows = read.group_column, None
    if isinstance(known, WindowFeatures):
        windows = Windows(known.time, known.by or None, known.length)
    opened = open_batches(
        path,
        known.columns,
        id_columns=ids,
        allow_missing=True,
        layout=read.layout,
        group_column=group,
    )
    with opened as raw:
        raw.timed_by(read.time_column if windows is None else windows.time)
        cutting = [(by_time(unit, raw.names) or (unit,))[0]]
        if windows is not None:
            cutting = [windows.series] if windows.series else []
        check_known(raw.source, "units", cutting, raw.names)
        aside = [*cutting, *ids, *(name for name in (group, raw.time_column) if name)]
        most = most_rows(raw.source, len(known.columns))
        tables, parts, seen = [], [], 0
        for table, X in raw.read(aside):
            tables.append(table.select(list(dict.fromkeys(aside))))
            parts.append(X)
            seen += len(X)
            if seen > most:
                raise too_many_rows(raw.source, most)
        carried = pa.concat_tables(tables)
        X = np.concatenate(parts)
        with blaming(raw.source.label, unit if windows is None else windows.time):
            rows = units_of_rows(carried, X, known.columns, unit, windows, known)
            known.refuse_known(rows.names.tolist())
            made = of_units(rows, carried, unit, group)
        for name, values in zip(known.names, rows.features.T, strict=True):
            made = made.append_column(name, pa.array(values))
        features = [Feature(name) for name in known.names]
        batch_rows = read.batch_rows or default_batch_rows(len(made.column_names))
        source = TableSource(made, raw.source.label, raw.source.path)
        batches = Batches(source, features, allow_missing, batch_rows, group)
        batches.units = rows
        yield batches


def units_of_rows(
    cells: Any,
    X: FloatArray,
    columns: Sequence[Feature],
    unit: str,
    how: Windows | None,
    known: UnitFeatures | None = None,
) -> UnitRows:
    """Put rows into the units that a column beside them names, or cut them into windows."""
    if how is None:
        codes, units = codes_of_units(unit_cells(cells, unit, len(X)), len(X))
        return UnitRows(X, codes, units, known or UnitFeatures.of(columns, X, units.tolist()))
    assert known is None or isinstance(known, WindowFeatures)
    names = () if cells is None else cells.column_names
    for column in filter(None, (how.time, how.series)):
        if column not in names and not in_row_order(column, names):
            raise ReconformError(f"there is no column {column!r}.{nearest(column, names)}")
    timed = how.time in names
    seconds = seconds_of(cells.column(how.time), len(X)) if timed else None
    series = None if how.series is None else [*map(label_of, to_python(cells.column(how.series)))]
    return cut(X, columns, seconds, series, how, known)


def unit_cells(table: Any, unit: str, rows: int) -> Any:
    """The name of the unit of every row: a column, or periods of one of times."""
    names = [] if table is None else table.column_names
    timed = by_time(unit, names)
    if timed is not None:
        return periods(table.column(timed[0]), rows, timed[1])
    if unit not in names:
        raise ReconformError(f"there is no such column to name units by.{nearest(unit, names)}")
    return table.column(unit)


def of_units(rows: UnitRows, table: Any, unit: str, group: str | None) -> Any:
    """What is carried through of units: their names, and the cells of their first rows."""
    if group is not None and group in table.column_names:
        rows.one_each(to_python(table.column(group)), "groups")
    first = pa.array(rows.firsts)
    given = [] if table is None else table.column_names
    rest = {name: table.column(name).take(first) for name in given if name != unit}
    return pa.table({unit: pa.array(rows.names.tolist(), pa.string()), **rest})
