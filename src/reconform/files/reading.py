"""References in memory: all rows of a file (`read_reference`, `read_labelled`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..arrays import BoolArray, FloatArray, IndexArray
from ..assumption.order import seconds_of
from ..detectors.prepare import too_many_labels
from ..errors import InputError, ReconformError, listed, nearest
from ..frames import label_code
from ..tables import Feature, Source, Written
from ..tables.cells import Fingerprint, kind_of, matrix, numbers, rounded, texts
from ..tables.uses import ColumnSurvey, Use, check_known, refuse_reference, survey, uses_of
from ..timeseries import Windows
from ..units import UnitFeatures, codes_of_units
from .batches import (
    blaming,
    check_labels,
    default_batch_rows,
    in_row_order,
    missing_counts,
    most_rows,
    of_units,
    tell_rounded,
    unit_cells,
    units_of_rows,
)
from .formats import Layout
from .source import CachedSource, is_remote, open_source, opened_once

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


USUAL = TableOptions()


def read_reference(
    path: str | Path,
    how: TableOptions = USUAL,
    *,
    beside: tuple[str | Path, Layout] | None = None,
) -> Table:
    r"""Read a file of normal rows; refuse what no detector could use.

    Parameters
    ----------
    path : str or Path
        ``-`` for standard input; a folder or a pattern such as ``"lake/*.parquet"``, for files; or
        where it is in an object store, ``"s3://bucket/normal.parquet"``.
    how : TableOptions
    beside : pair of path and Layout, optional
        The new rows: what columns are is then decided from both files.

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
    >>> table = read_reference(path, TableOptions(id_columns=["id"]))
    >>> table.names
    ('flow', 'valve')
    >>> table.X
    array([[3.5 , 1.  ],
           [3.75, 0.  ]])
    >>> folder.cleanup()
    """
    with open_source(path, how.layout or Layout()) as file, ExitStack() as stack:
        other = None
        if beside is not None and (is_remote(beside[0]) or os.path.isfile(beside[0])):
            other = stack.enter_context(open_source(*beside))
        return _table_of(file, other, how)


def _table_of(file: Source, other: Source | None, how: TableOptions) -> Table:
    """Read a reference that is open, beside new rows that may be."""
    names = _select(file, how, () if other is None else other.schema.names)
    ids = [name for name in how.id_columns if name in file.schema.names]
    source = CachedSource(file, [*names, *ids])
    for parameter, said in (("categories", how.categories), ("elapsed", how.elapsed)):
        if said:
            check_known(source, parameter, said, names)
    if how.categories:
        check_labels(source, how.categories)
    rows = default_batch_rows(len(source.schema.names))
    surveys = survey(source, names, rows, most=most_rows(source, len(names)))
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
        X[start:stop], _ = matrix(table, features, source.layout)
        inexact.update(rounded(table, features, X[start:stop], source.layout))
        kept.append(table.select(ids))
        start = stop
    if inexact:
        tell_rounded(source, [name for name in names if name in inexact])
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
    sources, looked = [source], [surveys]
    if other is not None:
        shared = [name for name in names if name in other.schema.names]
        sources.append(CachedSource(other, shared))
        looked.append(survey(sources[1], shared, rows) if shared else {})
    uses = uses_of(
        sources,
        looked,
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
    with blaming(table.path, unit if windows is None else windows.time):
        rows = units_of_rows(table.ids, table.X, table.features, unit, windows)
        if len(rows.names) < 2:
            raise ReconformError(f"it has {len(rows.names)} unit; a reference needs at least two.")
        ids = of_units(rows, table.ids, unit, group)
    features = tuple(Feature(name) for name in rows.units.names)
    return _with_rows(table, rows.features, features, ids=ids, units=rows.units)


def _with_rows(table: Table, X: FloatArray, features: Sequence[Feature], **more: Any) -> Table:
    """The table with other rows and columns."""
    return replace(
        table,
        X=X,
        features=tuple(features),
        missing=missing_counts(X, features),
        fingerprint=Fingerprint(features).add(X).hexdigest(),
        **more,
    )


def whole_units(table: Table, unit: str, anomalous: BoolArray) -> BoolArray:
    """Mark all rows of units that have a marked row."""
    with blaming(table.path, unit):
        codes, names = codes_of_units(unit_cells(table.ids, unit, len(table)), len(table))
    marked: BoolArray = np.bincount(codes, anomalous, minlength=len(names)) > 0
    return np.asarray(marked[codes])


def _select(source: Source, how: TableOptions, more: Sequence[str] = ()) -> list[str]:
    """Names of the columns to use, in the order of the file; others may be in the new rows."""
    names, columns = source.schema.names, how.columns
    dropped = [name for name in how.drop if name not in more]
    for parameter, said in (("columns", columns or ()), ("drop", dropped)):
        if said:
            check_known(source, parameter, said, names)
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


MOST_SHOWN = 5


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
    with opened_once():
        with open_source(path, options.layout or Layout()) as source:
            names, layout = source.schema.names, source.layout
            if label not in names:
                raise InputError(
                    source.label,
                    f"it has no column {label!r} of labels; `label` names the column."
                    f"{nearest(label, names)} It has {listed(names)}.",
                    column=label,
                )
        drop = [name for name in options.drop if name != label]
        how = replace(options, drop=drop, id_columns=[*options.id_columns, label])
        table = read_reference(path, how, beside=beside)
    return table, _anomalous(table, label, layout)


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
    ids = None if table.ids is None else table.ids.filter(~anomalous)
    return _with_rows(table, X, features, ids=ids, stay=np.flatnonzero(~anomalous))


def _anomalous(table: Table, label: str, layout: Written) -> BoolArray:
    cells = table.ids[label]
    values, unreadable = numbers(cells, layout)
    missing = np.isnan(values) & ~unreadable
    if missing.any():
        raise InputError(
            table.path,
            f"{int(missing.sum()):,} rows have no label in column {label!r}; label them or leave "
            "them out.",
            column=label,
        )
    if unreadable.any() or not np.isin(values, (0, 1)).all():
        found = texts(cells, layout).unique().to_pylist()
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
