"""Feature tables, read column by column: arrays and frames of any library alike."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import AnyArray, BoolArray, FloatArray
from ..detectors.prepare import Feature
from ..errors import ReconformError, is_number
from ..frames import columns_of, frame_as_it_is, is_missing, label_code, package_of
from ..inputs import unmasked

# A label that the reference does not have, where nobody knows how it is spelt.
UNKNOWN = "a label of its own"


@dataclass(frozen=True, eq=False)
class FeatureColumn:
    """One feature.

    Attributes
    ----------
    name : str
    values : array
        float64 if `numeric`; otherwise str, and None where missing.
    numeric : bool
    """

    name: str
    values: AnyArray
    numeric: bool

    @property
    def missing(self) -> BoolArray:
        """Where there is no value."""
        if self.numeric:
            return np.asarray(np.isnan(self.values))
        return np.array([value is None for value in self.values], dtype=bool)


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Features in columns of equal length.

    Attributes
    ----------
    columns : tuple of FeatureColumn
    rows : int
    named : bool
        Whether the names are the data's own.
    """

    columns: tuple[FeatureColumn, ...]
    rows: int
    named: bool

    def select(self, names: Sequence[str]) -> FeatureTable:
        """Keep the columns of these names, in this order."""
        by_name = {column.name: column for column in self.columns}
        return FeatureTable(tuple(by_name[name] for name in names), self.rows, self.named)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of names and values: equal for equal data, whatever frame it came in."""
        digest = hashlib.sha256(f"{self.rows}".encode())
        for column in self.columns:
            digest.update(repr(column.name).encode("utf-8", "backslashreplace"))
            if column.numeric:
                digest.update((column.values + 0.0).tobytes())
            else:
                text = "\0".join(map(repr, column.values))
                digest.update(text.encode("utf-8", "backslashreplace"))
        return digest.hexdigest()

    def digests(self) -> list[bytes]:
        """One digest per row: equal for equal rows."""
        codes = np.empty((self.rows, len(self.columns)), dtype=np.float64)
        for j, column in enumerate(self.columns):
            if column.numeric:
                codes[:, j] = column.values + 0.0  # -0.0 is 0.0
            else:
                codes[:, j] = [_text_code(value) for value in column.values]
        return [row.tobytes() for row in np.ascontiguousarray(codes)]


def read_table(argument: str, data: Any, *, names: Sequence[str] = ()) -> FeatureTable:
    """Read a frame or a two-dimensional array.

    Parameters
    ----------
    argument : str
        What to call it in messages.
    data : array-like, pandas or polars DataFrame, Arrow table, or a table that was read already
    names : sequence of str
        For an array, which has none of its own.

    Returns
    -------
    FeatureTable

    Examples
    --------
    >>> table = read_table("rows", [[1, 2], [3, 4]])
    >>> [column.name for column in table.columns], table.rows
    (['feature 0', 'feature 1'], 2)
    """
    if isinstance(data, FeatureTable):
        return data
    data = frame_as_it_is(data)
    if package_of(data) is not None:
        columns = [feature_column(str(name), x.to_numpy()) for name, x in columns_of(data).items()]
        return FeatureTable(tuple(columns), len(columns[0].values) if columns else 0, True)
    array = np.asarray(unmasked(data))
    if array.ndim != 2:
        raise ReconformError(
            f"{argument} must be a table of two dimensions, one row per row; got shape "
            f"{array.shape}."
        )
    named = len(names) == array.shape[1]
    labels = names if named else [f"feature {j}" for j in range(array.shape[1])]
    columns = [feature_column(name, array[:, j]) for j, name in enumerate(labels)]
    return FeatureTable(tuple(columns), len(array), named)


def matched(
    rows: FeatureTable, reference: FeatureTable, used: Sequence[str] = ()
) -> tuple[FeatureTable, FeatureTable]:
    """Keep the columns that both tables have; of those only the `used` ones, if they are there.

    Tables without names are matched by position.
    """
    if not (rows.named and reference.named):
        if len(rows.columns) != len(reference.columns):
            raise ReconformError(
                f"rows has {len(rows.columns)} columns and reference {len(reference.columns)}; "
                "give both with the same columns, or as frames, whose columns match by name."
            )
        return rows, reference
    in_rows = {column.name for column in rows.columns}
    common = [column.name for column in reference.columns if column.name in in_rows]
    if not common:
        raise ReconformError(
            "rows and reference have no column name in common: "
            f"{_some(rows)} against {_some(reference)}."
        )
    if set(used) <= set(common) and used:
        common = list(used)
    return rows.select(common), reference.select(common)


def _some(table: FeatureTable) -> str:
    names = [column.name for column in table.columns]
    return ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")


def feature_column(name: str, values: Any) -> FeatureColumn:
    """Read a column: numbers, or else text."""
    array = np.asarray(values)
    if array.dtype.kind in "iuf":
        return FeatureColumn(name, array.astype(np.float64), True)
    cells = [None if is_missing(value) else value for value in array.tolist()]
    if array.dtype.kind == "O" and all(c is None or is_number(c) for c in cells):
        return FeatureColumn(name, np.array(cells, dtype=np.float64), True)
    texts = np.array([None if cell is None else str(cell) for cell in cells], dtype=object)
    return FeatureColumn(name, texts, False)


def _text_code(value: str | None) -> float:
    """A number that stands for a text: 52 bits of its digest."""
    if value is None:
        return np.nan
    digest = hashlib.sha256(value.encode("utf-8", "backslashreplace")).digest()
    return float(int.from_bytes(digest[:6], "big"))


Words = Callable[[int, str], str | None]


def labelled(
    X: FloatArray, features: Sequence[Feature], unlisted: Words | None = None
) -> FeatureTable:
    """Write features as columns with labels instead of codes.

    Parameters
    ----------
    X : float array
    features : sequence of Feature
        Of its columns.
    unlisted : callable, optional
        From the position of a row and the name of a column to a label that the reference does not
        have.

    Examples
    --------
    >>> X = np.array([[0.5, label_code("red")], [0.7, np.nan]])
    >>> table = labelled(X, [Feature("flow"), Feature("colour", ("blue", "red"))])
    >>> {column.name: column.values.tolist() for column in table.columns}
    {'flow': [0.5, 0.7], 'colour': ['red', None]}
    """
    columns = [
        FeatureColumn(feature.name, X[:, j], True)
        if feature.labels is None
        else feature_column(feature.name, _labels(X[:, j], feature, unlisted))
        for j, feature in enumerate(features)
    ]
    return FeatureTable(tuple(columns), len(X), True)


def _labels(codes: FloatArray, feature: Feature, unlisted: Words | None) -> AnyArray:
    assert feature.labels is not None
    known = {label_code(label): label for label in feature.labels}
    values = np.array([known.get(code) for code in codes.tolist()], dtype=object)
    for i in np.flatnonzero(~np.isnan(codes)).tolist():
        if values[i] is None:
            word = None if unlisted is None else unlisted(i, feature.name)
            values[i] = UNKNOWN if word is None else word
    return values
