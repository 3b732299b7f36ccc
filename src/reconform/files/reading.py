"""All rows of a file (`read_reference`, `read_labelled`), new rows in batches (`open_batches`)."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..arrays import BoolArray, FloatArray, IndexArray, ObjectArray
from ..assumption.order import seconds_of
from ..detectors.prepare import too_many_labels
from ..errors import InputError, ReconformError, check_count, listed, nearest, warn_once
from ..frames import label_code, rounded_sentence
from ..grouping import label_of
from ..tables import Feature, Source, TableSource
from ..tables.cells import (
    Fingerprint,
    all_numbers,
    kind_of,
    matrix,
    numbers,
    rounded,
    texts,
    to_python,
)
from ..tables.uses import (
    ColumnSurvey,
    Use,
    refuse_new,
    refuse_reference,
    survey,
    too_many_rows,
    uses_of,
)
from ..timeseries import WindowFeatures, Windows, cut
from ..units import UnitFeatures, UnitRows, by_time, codes_of_units, periods
from .formats import FORMATS, Layout
from .source import CachedSource, open_source, opened_once

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


# Identifiers that name a row.
MOST_NAMES = 2


@dataclass(frozen=True, eq=False)
class Table:
    """A reference in memory.

    Attributes
    ----------
    path : str
    X : float array of shape (rows, features)
        Numbers, and the codes of categories; NaN where a value is missing.
    features : tuple of Feature
        The columns of X: what `open_batches` needs to read new rows the same way.
    ids : pyarrow.Table or None
        The identifier columns that this table has, as they are in the file.
    missing : dict
        Number of missing values by column, where there are any.
    fingerprint : str
        SHA-256 of what the detector sees: names, kinds and values.
    uses : tuple of Use
        What every column is used as, where that was to be found out.
    prepared : bool
        Whether the detector has to be prepared: for categories, dates or missing values.
    units : UnitFeatures or None
        How rows became features of units, where the rows of X are units.
    stay : int array or None
        Positions of the rows in the file, where others were left out.
    left_out : int
        Rows that were left out since a person marked them as anomalies.
    """

    path: str
    X: FloatArray = field(repr=False)
    features: tuple[Feature, ...]
    ids: Any = field(repr=False)
    missing: dict[str, int]
    fingerprint: str
    uses: tuple[Use, ...] = ()
    prepared: bool = False
    units: UnitFeatures | None = None
    stay: IndexArray | None = field(default=None, repr=False)
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.X)

    @property
    def name_columns(self) -> tuple[str, ...]:
        """Identifiers that were found, and name the rows."""
        return tuple(use.name for use in self.uses if use.names_rows)[:MOST_NAMES]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(feature.name for feature in self.features)

    @property
    def frame(self) -> Any:
        """X as an Arrow table: `fit` takes it like any frame and remembers the names."""
        return pa.table({name: self.X[:, j] for j, name in enumerate(self.names)})


@dataclass(frozen=True)
class TableOptions:
    """Which columns of a table are used, and how: what `read_reference` takes, as a value.

    What nobody said is found out: text is taken as categories, values may be missing, dates become
    features, identifiers and empty columns are left out.

    Attributes
    ----------
    columns : sequence of str or None
        Use these columns only.
    drop : sequence of str
        Leave these columns out.
    id_columns : sequence of str
        Identifiers or times: never used.
    categories : sequence of str
        Columns of numbers that are only labels.
    elapsed : sequence of str
        Dates of which the time that has passed is a feature.
    layout : Layout or None
        How text files are written, where their names do not say it.
    """

    columns: Sequence[str] | None = None
    drop: Sequence[str] = ()
    id_columns: Sequence[str] = ()
    categories: Sequence[str] = ()
    layout: Layout | None = None
    elapsed: Sequence[str] = ()


def read_reference(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    id_columns: Sequence[str] = (),
    categories: Sequence[str] = (),
    layout: Layout | None = None,
) -> Table:
    r"""Read a file of normal rows; refuse what no detector could use.

    Parameters
    ----------
    path : str or Path
        ``-`` for standard input; a folder or a pattern such as ``"lake/*.parquet"``, for files.
    columns : sequence of str, optional
        Use these columns only.
    drop : sequence of str
        Leave these columns out.
    id_columns : sequence of str
        Identifiers or times: never used. The reference need not have them.
    categories : sequence of str
        Columns whose numbers are only labels.
    layout : Layout, optional

    Returns
    -------
    Table

    Raises
    ------
    InputError
        With a sentence that says what is wrong, where, and what to do.

    Notes
    -----
    What every column is used as is found out (`Table.uses`): text is taken as categories, values
    may be missing, dates become features, identifiers and empty columns are left out. A table that
    needs it (`Table.prepared`) is for a detector made by `reconform.detectors.prepare.prepared`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "normal.csv")
    >>> _ = path.write_text("id,flow,valve\nA1,3.5,true\nA2,3.75,false\n")
    >>> table = read_reference(path, id_columns=["id"])
    >>> table.names
    ('flow', 'valve')
    >>> table.X
    array([[3.5 , 1.  ],
           [3.75, 0.  ]])
    >>> folder.cleanup()
    """
    return read_table(path, TableOptions(columns, drop, id_columns, categories, layout))


def read_table(
    path: str | Path,
    how: TableOptions,
    beside: tuple[str | Path, Layout] | None = None,
) -> Table:
    """Read a reference; beside new rows, what columns are is decided from both files."""
    layout = how.layout or Layout()
    with open_source(path, layout) as file, ExitStack() as stack:
        other = None
        if beside is not None and os.path.isfile(beside[0]):
            other = stack.enter_context(open_source(*beside))
        names = _select(file, how, () if other is None else other.schema.names)
        ids = [name for name in how.id_columns if name in file.schema.names]
        source = CachedSource(file, [*names, *ids])
        for parameter, said in (("categories", how.categories), ("elapsed", how.elapsed)):
            if said:
                _check_known(source, parameter, said, names)
        if how.categories:
            _check_labels(source, how.categories)
        rows = default_batch_rows(len(source.schema.names))
        surveys = survey(source, names, layout, rows, most=_most_rows(source, len(names)))
        count = surveys[names[0]].rows
        if count < 2:
            raise InputError(
                source.label,
                f"it has {'only 1 row' if count else 'no rows'}; a reference needs at least two.",
            )
        uses, gaps = _uses(source, other, names, how, surveys, rows)
        ids += [use.name for use in uses if use.names_rows][:MOST_NAMES]
        names = [use.name for use in uses if use.features]
        if not names:
            said = ", ".join(f"{use.name!r} ({use.said})" for use in uses[:MOST_SHOWN])
            raise InputError(source.label, f"no column is left to use: {said}.")
        features = _features(source, surveys, uses)
        X = np.empty((count, len(features)))
        kept, inexact, start = [], set(), 0
        for table in source.tables([*names, *ids], rows):
            stop = start + table.num_rows
            X[start:stop], _ = matrix(table, features, layout, parse=source.is_text)
            inexact.update(rounded(table, features, X[start:stop], parse=source.is_text))
            kept.append(table.select(ids))
            start = stop
        if inexact:
            _tell_rounded(source, [name for name in names if name in inexact])
        return Table(
            path=file.label,
            X=X,
            features=features,
            ids=pa.concat_tables(kept) if ids else None,
            missing=missing_counts(X, features),
            fingerprint=Fingerprint(features).add(X).hexdigest(),
            uses=uses,
            prepared=gaps or any(f.is_category or f.made for f in features),
        )


def _uses(
    source: Source,
    other: Source | None,
    names: list[str],
    how: TableOptions,
    surveys: dict[str, ColumnSurvey],
    rows: int,
) -> tuple[tuple[Use, ...], bool]:
    """Find out what columns are, from the reference and the new rows, and whether values miss."""
    layout, sources, looked = how.layout or Layout(), [source], [surveys]
    if other is not None:
        shared = [name for name in names if name in other.schema.names]
        sources.append(CachedSource(other, shared))
        looked.append(survey(sources[1], shared, layout, rows) if shared else {})
    uses = uses_of(
        sources,
        looked,
        layout,
        rows,
        categories=how.categories,
        elapsed=how.elapsed,
        named=how.columns is not None,
    )
    if other is not None:  # rows are named alike everywhere
        uses = [replace(use, names_rows=use.names_rows and use.name in looked[1]) for use in uses]
    used = [use.name for use in uses if use.features]
    gaps = any(found[name].missing for found in looked for name in used if name in found)
    return tuple(uses), gaps


def _features(
    source: Source, surveys: dict[str, ColumnSurvey], uses: Sequence[Use]
) -> tuple[Feature, ...]:
    """The features that columns are used as; refuse what no detector could use."""
    features = tuple(feature for use in uses for feature in use.features)
    refuse_reference(
        source, [surveys[f.name] for f in features if not f.is_category and not f.made]
    )
    labelled = any(f.is_category for f in features)
    many = too_many_labels(features, surveys[features[0].column].rows) if labelled else None
    if many is not None:
        raise InputError(source.label, many)
    return features


def _most_rows(source: Source, columns: int) -> int:
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


def _tell_rounded(source: Source, names: Sequence[str], whom: Any = None) -> None:
    said = f"{rounded_sentence(names)} Identifiers are carried through exactly with `id_columns`."
    warn_once(whom, "rounded", f"{source.label}: {said}", UserWarning)


def group_labels(
    column: Any, name: str, layout: Layout, path: str | Path, *, parse: bool, before: int = 0
) -> ObjectArray:
    """Read a column of group labels as text; refuse the first that is missing."""
    cells = texts(column, layout, parse=parse).to_pylist()
    labels = [label_of(value) for value in cells]
    if None in labels:
        raise InputError(
            path,
            f"the group of row {before + labels.index(None) + 1:,} in column {name!r} is missing; "
            "leave such rows out, or give them a group of their own.",
            column=name,
        )
    return np.array(labels, dtype=object)


def times_of(table: Table, column: str) -> FloatArray:
    """Read when the rows of a reference were taken, by a column that is no feature."""
    if in_row_order(column, () if table.ids is None else table.ids.column_names):
        return np.arange(float(len(table)))
    if table.ids is None or column not in table.ids.column_names:
        raise InputError(table.path, f"it has no column {column!r} of times.", column=column)
    with blaming(table.path, column):
        return seconds_of(table.ids.column(column), len(table))


def plain_time(table: Table, unit: str | None = None) -> str | None:
    """Find an identifier that is plainly a time: dates or times in every row, and no numbers."""
    for name in [] if table.ids is None else table.ids.column_names:
        if name == unit:
            continue
        kind = table.ids.column(name).type
        if kind_of(kind) != "number" and table.ids.column(name).null_count == 0:
            with suppress(pa.ArrowException):
                table.ids.column(name).cast(pa.float64())
                continue
            with suppress(InputError):
                times_of(table, name)
                return str(name)
    return None


def without_dates(table: Table) -> Table:
    """Leave the hours and weekdays of rows out: they say nothing of a unit of many rows."""
    kept = [j for j, feature in enumerate(table.features) if feature.made is None]
    features = tuple(table.features[j] for j in kept)
    if not features:
        raise InputError(table.path, "it has dates only, and no column to describe units by.")
    dates = {feature.column for feature in table.features if feature.made}
    said = "date: left out of what describes a unit"
    uses = (Use(one.name, said) if one.name in dates else one for one in table.uses)
    return replace(table, X=table.X[:, kept], features=features, uses=tuple(uses))


def in_units(
    table: Table, unit: str, *, group: str | None, windows: Windows | None = None
) -> Table:
    """Make one row of features of every unit of a reference, or of every window."""
    with blaming(table.path, unit):
        if windows is not None:
            rows = _in_windows(table.ids, table.X, table.features, windows)
        else:
            codes, names = codes_of_units(_unit_cells(table.ids, unit, len(table)), len(table))
            rows = UnitRows(
                table.X, codes, names, UnitFeatures.of(table.features, table.X, names.tolist())
            )
        if len(rows.names) < 2:
            raise ReconformError(f"it has {len(rows.names)} unit; a reference needs at least two.")
        ids = _of_units(rows, table.ids, unit, group)
    units = rows.units
    features = tuple(Feature(name) for name in units.names)
    return replace(
        table,
        X=rows.features,
        features=features,
        ids=ids,
        missing=missing_counts(rows.features, features),
        fingerprint=Fingerprint(features).add(rows.features).hexdigest(),
        units=units,
    )


def _in_windows(
    cells: Any,
    X: FloatArray,
    columns: Sequence[Feature],
    how: Windows,
    known: WindowFeatures | None = None,
) -> UnitRows:
    """Cut rows into windows by the columns beside them."""
    names = () if cells is None else cells.column_names
    for column in filter(None, (how.time, how.series)):
        if column not in names and not in_row_order(column, names):
            raise ReconformError(f"there is no column {column!r}.{nearest(column, names)}")
    timed = how.time in names
    seconds = seconds_of(cells.column(how.time), len(X)) if timed else None
    series = None if how.series is None else [*map(label_of, to_python(cells.column(how.series)))]
    return cut(X, columns, seconds, series, how, known)


def whole_units(table: Table, unit: str, anomalous: BoolArray) -> BoolArray:
    """Mark all rows of units that have a marked row."""
    with blaming(table.path, unit):
        codes, names = codes_of_units(_unit_cells(table.ids, unit, len(table)), len(table))
    marked: BoolArray = np.bincount(codes, anomalous, minlength=len(names)) > 0
    return np.asarray(marked[codes])


def _unit_cells(table: Any, unit: str, rows: int) -> Any:
    """The name of the unit of every row: a column, or periods of one of times."""
    names = [] if table is None else table.column_names
    timed = by_time(unit, names)
    if timed is not None:
        return periods(table.column(timed[0]), rows, timed[1])
    if unit not in names:
        raise ReconformError(f"there is no such column to name units by.{nearest(unit, names)}")
    return table.column(unit)


def _of_units(rows: UnitRows, table: Any, unit: str, group: str | None) -> Any:
    """What is carried through of units: their names, and the cells of their first rows."""
    if group is not None and group in table.column_names:
        rows.one_each(to_python(table.column(group)), "groups")
    first = pa.array(rows.firsts)
    given = [] if table is None else table.column_names
    rest = {name: table.column(name).take(first) for name in given if name != unit}
    return pa.table({unit: pa.array(rows.names.tolist(), pa.string()), **rest})


@contextmanager
def open_units(
    path: str | Path, known: UnitFeatures, read: ReadOptions, *, allow_missing: bool
) -> Iterator[Batches]:
    """Open a file of new rows as units: all its rows are read, and one row made of each unit."""
    unit, layout = str(read.unit_column), read.layout or Layout()
    ids = [name for name in read.id_columns if name != unit]
    group, windows = read.group_column, None
    if isinstance(known, WindowFeatures):
        windows = Windows(known.time, known.by or None, known.length)
    opened = open_batches(
        path,
        known.columns,
        id_columns=ids,
        allow_missing=True,
        layout=layout,
        group_column=group,
    )
    with opened as raw:
        raw.timed_by(read.time_column if windows is None else windows.time)
        cutting = [(by_time(unit, raw.names) or (unit,))[0]]
        if windows is not None:
            cutting = [windows.series] if windows.series else []
        _check_known(raw.source, "units", cutting, raw.names)
        aside = [*cutting, *ids, *(name for name in (group, raw.time_column) if name)]
        most = _most_rows(raw.source, len(known.columns))
        tables, parts, seen = [], [], 0
        for table, X in raw.read(aside):
            tables.append(table.select(list(dict.fromkeys(aside))))
            parts.append(X)
            seen += len(X)
            if seen > most:
                raise too_many_rows(raw.source, most)
        carried = pa.concat_tables(tables)
        X = np.concatenate(parts)
        with blaming(raw.source.label, unit):
            if isinstance(known, WindowFeatures) and windows is not None:
                rows = _in_windows(carried, X, known.columns, windows, known)
            else:
                codes, names = codes_of_units(_unit_cells(carried, unit, seen), seen)
                rows = UnitRows(X, codes, names, known)
            known.refuse_known(rows.names.tolist())
            made = _of_units(rows, carried, unit, group)
        for name, values in zip(known.names, rows.features.T, strict=True):
            made = made.append_column(name, pa.array(values))
        features = [Feature(name) for name in known.names]
        batch_rows = read.batch_rows or default_batch_rows(len(made.column_names))
        source = TableSource(made, raw.source.label, raw.source.path)
        batches = Batches(source, features, layout, allow_missing, batch_rows, group)
        batches.units = rows
        yield batches


def missing_counts(X: FloatArray, features: Sequence[Feature]) -> dict[str, int]:
    """Count missing values by column, where there are any."""
    counts = np.isnan(X).sum(axis=0)
    return {f.name: int(c) for f, c in zip(features, counts, strict=True) if c}


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
        layout: Layout,
        allow_missing: bool,
        batch_rows: int,
        group_column: str | None = None,
    ) -> None:
        self.source = source
        self.features = tuple(features)
        self.layout = layout
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
                surveys = survey(self.source, used, self.layout, self.batch_rows)
                allows = self.allow_missing
                refuse_new(self.source, surveys, self.features, self.layout, allow_missing=allows)
            if exact:
                names = rounded(table, self.features, X, parse=self.source.is_text)
                exact = not names
                if names:
                    _tell_rounded(self.source, names, self)
            empty = False
            yield table, X
        if empty:
            raise InputError(self.source.label, "it has no rows.")

    def timed_by(self, column: str | None) -> None:
        """Read the time of every row along, where a column has it."""
        if column is not None and not in_row_order(column, self.names):
            _check_known(self.source, "times", [column], self.names)
            self.time_column = column

    def matrix(self, table: Any) -> tuple[FloatArray, bool]:
        """Read the features of a table; and whether some cell is neither a number nor missing."""
        return matrix(table, self.features, self.layout, parse=self.source.is_text)

    def groups(self, table: Any, name: str, before: int) -> ObjectArray:
        """Read the group of rows, which so many come before."""
        column, label = table.column(name), self.source.label
        parse = self.source.is_text
        return group_labels(column, name, self.layout, label, parse=parse, before=before)

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
                cells = texts(column, self.layout, parse=self.source.is_text)
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
        values, _ = all_numbers([columns[j] for j in where], self.layout, parse=True)
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
    layout = layout or Layout()
    with open_source(path, layout) as source:
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
            _check_known(source, "id_columns", id_columns, names)
        if group_column is not None:
            _check_known(source, "group", [group_column], names)
            _check_labels(source, [group_column])
        labelled = [feature.name for feature in features if feature.is_category]
        if labelled:
            _check_labels(source, labelled)
        if batch_rows is None:
            encoded = sum(len(feature.labels or ()) for feature in features)
            batch_rows = default_batch_rows(len(names) + encoded)
        batch_rows = check_count("batch_rows", batch_rows, least=1)
        kept = CachedSource(source, names) if remember else source
        yield Batches(kept, features, layout, allow_missing, batch_rows, group_column)


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


def default_batch_rows(columns: int) -> int:
    """Choose the rows of a batch so that it stays small however wide the table is.

    Examples
    --------
    >>> default_batch_rows(10), default_batch_rows(5_000)
    (65536, 419)
    """
    return max(1, min(BATCH_ROWS, BATCH_CELLS // max(1, columns)))


def _select(source: Source, how: TableOptions, more: Sequence[str] = ()) -> list[str]:
    """Names of the columns to use, in the order of the file; others may be in the new rows."""
    names, columns = source.schema.names, how.columns
    dropped = [name for name in how.drop if name not in more]
    for parameter, said in (("columns", columns or ()), ("drop", dropped)):
        if said:
            _check_known(source, parameter, said, names)
    unused = {*how.drop, *how.id_columns}
    both = [name for name in columns or () if name in unused]
    if both:
        raise InputError(
            source.label, f"`columns` names {listed(both)}, and so does `drop` or `id_columns`."
        )
    wanted = set(names if columns is None else columns)
    used = [name for name in names if name in wanted and name not in unused]
    if not used:
        raise InputError(source.label, f"no column is left to use; it has {listed(names)}.")
    return used


def _check_known(
    source: Source, parameter: str, wanted: Sequence[str], names: Sequence[str]
) -> None:
    known = set(names)
    for name in wanted:
        if name not in known:
            raise InputError(
                source.label,
                f"`{parameter}` names a column {name!r} that is not there.{nearest(name, names)} "
                f"There are {listed(names)}.",
                column=name,
            )


def _check_labels(source: Source, names: Sequence[str]) -> None:
    for name in names:
        type = source.schema.field(name).type
        if kind_of(type) == "other":
            raise InputError(
                source.label,
                f"the column {name!r} should hold labels, and holds cells of type {type}.",
                column=name,
            )


MOST_SHOWN = 5


USUAL = TableOptions()


def read_labelled(
    path: str | Path,
    label: str,
    options: TableOptions = USUAL,
    *,
    beside: tuple[str | Path, Layout] | None = None,
) -> tuple[Table, BoolArray]:
    r"""Read a file of rows with labels; the labels are no feature.

    Parameters
    ----------
    path : str or Path
    label : str
        The column of labels: 1 or true for anomalies, 0 or false for normal rows.
    options : TableOptions
    beside : pair of path and Layout, optional
        The new rows, as in `read_reference`.

    Returns
    -------
    table : Table
        All rows.
    anomalous : bool array of shape (rows,)

    Raises
    ------
    InputError
        With a sentence that says what is wrong, where, and what to do.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "pumps.csv")
    >>> _ = path.write_text("flow,broken\n3.5,0\n3.75,0\n9.5,1\n")
    >>> table, anomalous = read_labelled(path, "broken")
    >>> table.names, anomalous.tolist()
    (('flow',), [False, False, True])
    >>> len(normal_rows(table, anomalous))
    2
    >>> folder.cleanup()
    """
    layout = options.layout or Layout()
    with opened_once():
        with open_source(path, layout) as source:
            names = source.schema.names
            if label not in names:
                raise InputError(
                    source.label,
                    f"it has no column {label!r} of labels; `label` names the column."
                    f"{nearest(label, names)} It has {listed(names)}.",
                    column=label,
                )
        drop = [name for name in options.drop if name != label]
        how = replace(options, drop=drop, id_columns=[*options.id_columns, label])
        table = read_table(path, how, beside)
    return table, _anomalous(table, label, layout, FORMATS[layout.format_of(path)].is_text)


def normal_rows(table: Table, anomalous: BoolArray) -> Table:
    """Keep the normal rows, as if there were no others in the file.

    Parameters
    ----------
    table : Table
    anomalous : bool array of shape (rows,)

    Returns
    -------
    Table
    """
    X = table.X[~anomalous]
    features = list(table.features)
    for j, feature in enumerate(features):
        if feature.labels is not None:  # a label that only anomalies have is not known
            there = set(X[:, j].tolist())
            labels = tuple(label for label in feature.labels if label_code(label) in there)
            features[j] = replace(feature, labels=labels)
    return replace(
        table,
        X=X,
        features=tuple(features),
        ids=None if table.ids is None else table.ids.filter(~anomalous),
        missing=missing_counts(X, features),
        fingerprint=Fingerprint(features).add(X).hexdigest(),
        stay=np.flatnonzero(~anomalous),
    )


def _anomalous(table: Table, label: str, layout: Layout, is_text: bool) -> BoolArray:
    cells = table.ids[label]
    values, unreadable = numbers(cells, layout, parse=is_text)
    missing = np.isnan(values) & ~unreadable
    if missing.any():
        raise InputError(
            table.path,
            f"{int(missing.sum()):,} rows have no label in column {label!r}; label them or leave "
            "them out.",
            column=label,
        )
    if unreadable.any() or not np.isin(values, (0, 1)).all():
        found = texts(cells, layout, parse=is_text).unique().to_pylist()
        shown = ", ".join(map(repr, sorted(found)[:MOST_SHOWN]))
        shown += ", ..." if len(found) > MOST_SHOWN else ""
        raise InputError(
            table.path,
            f"column {label!r}: labels must be 0 or false for normal rows and 1 or true for "
            f"anomalies; got {shown}.",
            column=label,
        )
    anomalous: BoolArray = values == 1
    if (~anomalous).sum() < 2:
        raise InputError(
            table.path,
            f"{int((~anomalous).sum())} of its rows are labelled normal in column {label!r}, and "
            "at least two are needed.",
            column=label,
        )
    return anomalous
