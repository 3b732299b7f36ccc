"""Rows that arrive as lines: objects of JSON, or CSV, in blocks as large as what is there.

A line is judged by itself, whatever block it comes in, and one that cannot be used does not stop
the others: it comes out as an `InputError` in the place of a row.
"""

from __future__ import annotations

import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import IO, Any

import numpy as np
import pyarrow as pa

from ..arrays import BoolArray, FloatArray
from ..detectors.prepare import Feature
from ..errors import InputError, listed, nearest, warn_once
from ..frames import label_code, rounded_sentence
from .cells import EXACT, WHOLE, codes, numbers
from .formats import Layout
from .text import LONGEST_ROW

LABEL = "standard input"

# What is asked for at once, and the longest line that is read.
READ_BYTES = 1 << 17
LONGEST_LINE = LONGEST_ROW

NumberedLine = tuple[int, bytes]


@dataclass(frozen=True, eq=False)
class Block:
    """Some lines, in their order.

    Attributes
    ----------
    X : float array of shape (rows, features)
        The lines that are rows, as a detector sees them.
    lines : list of int
        Where these stand, from 1.
    carried : list of dict
        Their identifiers.
    errors : list of InputError
        What is wrong with the other lines.
    """

    X: FloatArray = field(repr=False)
    lines: list[int]
    carried: list[dict[str, Any]] = field(repr=False)
    errors: list[InputError]

    def before(self, line: int) -> Block:
        """Only the rows that stand before a line."""
        count = sum(number < line for number in self.lines)
        return Block(self.X[:count], self.lines[:count], self.carried[:count], [])


def blocks_of_lines(stream: IO[bytes]) -> Iterator[list[NumberedLine]]:
    """Read lines with their numbers, as many at a time as are there; wait only if there are none.

    Examples
    --------
    >>> import io
    >>> list(blocks_of_lines(io.BytesIO(b"a" + bytes([10, 10]) + b"b")))
    [[(1, b'a')], [(3, b'b')]]
    """
    number, rest = 0, b""
    while True:
        chunk = stream.read1(READ_BYTES)  # type: ignore[attr-defined]
        if not chunk:
            break
        rest += chunk
        if b"\n" not in chunk:
            if len(rest) > LONGEST_LINE:
                raise InputError(
                    LABEL, f"it is longer than {LONGEST_LINE:,} bytes.", line=number + 1
                )
            continue
        *whole, rest = rest.split(b"\n")
        lines = [(number + i, line) for i, line in enumerate(whole, 1) if line.strip()]
        number += len(whole)
        yield lines
    if rest.strip():
        yield [(number + 1, rest)]


class LineReader(ABC):
    """Reads lines as rows."""

    def __init__(
        self,
        features: Sequence[Feature],
        id_columns: Sequence[str] = (),
        *,
        allow_missing: bool = False,
        layout: Layout | None = None,
    ) -> None:
        self.features = tuple(features)
        self.id_columns = tuple(id_columns)
        self.allow_missing = allow_missing
        self.layout = layout or Layout()

    @abstractmethod
    def read(self, lines: Sequence[NumberedLine]) -> Block:
        """Read a block of lines."""

    def _lacks(self, gone: Sequence[str], have: Sequence[str], line: int, what: str) -> InputError:
        """The sentence for columns that are not there."""
        ids = [name for name in gone if name in self.id_columns]
        whose = "that `id_columns` names" if ids == list(gone) else "of the reference"
        return InputError(
            LABEL,
            f"it lacks the {what}{'s' * (len(gone) > 1)} {listed(gone)} {whose}."
            f"{nearest(gone[0], have)} It has {listed(have)}.",
            line=line,
        )

    def _tell_rounded(self, X: FloatArray, columns: Iterable[Sequence[Any]]) -> None:
        """Say once which columns have whole numbers, as they were written, that are rounded."""
        large: list[bool] = np.any(np.abs(X) >= EXACT, axis=0).tolist()
        if not any(large):
            return
        names = []
        for feature, is_large, cells in zip(self.features, large, columns, strict=True):
            digits = map(str.strip, map(str, cells)) if is_large and feature.labels is None else ()
            if any(WHOLE.fullmatch(cell) and int(cell) != int(float(cell)) for cell in digits):
                names.append(feature.name)
        if names:
            warn_once(self, "rounded", f"{LABEL}: {rounded_sentence(names)}", UserWarning)

    def _checked(
        self, X: FloatArray, rows: Sequence[tuple[int, dict[str, Any]]], errors: list[InputError]
    ) -> Block:
        """Take out rows with numbers that no detector can use."""
        plain = [j for j, feature in enumerate(self.features) if not feature.is_category]
        usable = np.isfinite(X[:, plain])
        if self.allow_missing:
            usable |= np.isnan(X[:, plain])
        keep: BoolArray = np.asarray(usable.all(axis=1))
        for i in np.flatnonzero(~keep).tolist():
            j = plain[int(np.flatnonzero(~usable[i])[0])]
            what = "is missing" if np.isnan(X[i, j]) else f"is {X[i, j]}"
            fix = (
                "; a model that was fitted with `prepare=True` imputes it"
                if np.isnan(X[i, j])
                else ", which is no finite number"
            )
            errors.append(
                InputError(LABEL, f"{self.features[j].name!r} {what}{fix}.", line=rows[i][0])
            )
        errors.sort(key=lambda error: error.line or 0)
        if not keep.all():
            X, rows = X[keep], [row for row, good in zip(rows, keep, strict=True) if good]
        return Block(X, [line for line, _ in rows], [carried for _, carried in rows], errors)


class JsonLines(LineReader):
    """One JSON object per line.

    Examples
    --------
    >>> reader = JsonLines([Feature("flow"), Feature("valve", ("open", "shut"))], ["id"])
    >>> block = reader.read([(1, b'{"id": 7, "valve": "shut", "flow": 2.5}'), (2, b"oops")])
    >>> block.X[:, 0].tolist(), block.carried
    ([2.5], [{'id': 7}])
    >>> print(block.errors[0])
    standard input, line 2: it is no JSON object: Expecting value at character 1.
    """

    def read(self, lines: Sequence[NumberedLine]) -> Block:
        """Read a block of lines."""
        names = [feature.name for feature in self.features]
        needed = [*names, *self.id_columns]
        pick = itemgetter(*names) if len(names) > 1 else lambda row: (row[names[0]],)
        rows: list[tuple[int, dict[str, Any]]] = []
        cells: list[tuple[Any, ...]] = []
        errors: list[InputError] = []
        for number, raw in lines:
            try:
                row = json.loads(raw)
                picked = pick(row)
                carried = {name: row[name] for name in self.id_columns}
            except (ValueError, TypeError, KeyError, RecursionError):
                errors.append(self._explain(raw, number, needed))
                continue
            rows.append((number, carried))
            cells.append(picked)
        X, good = self._numbers(cells, rows, errors)
        self._tell_rounded(X, zip(*cells, strict=True))
        return self._checked(X, good, errors)

    def _explain(self, raw: bytes, number: int, needed: Sequence[str]) -> InputError:
        try:
            row = json.loads(raw)
        except UnicodeDecodeError:
            return InputError(LABEL, "it is not UTF-8 text.", line=number)
        except json.JSONDecodeError as problem:
            return InputError(
                LABEL,
                f"it is no JSON object: {problem.msg} at character {problem.pos + 1}.",
                line=number,
            )
        except (ValueError, RecursionError) as problem:
            return InputError(LABEL, f"it cannot be read ({problem}).", line=number)
        if not isinstance(row, dict):
            return InputError(
                LABEL, f"it is {_kind(row)} and no JSON object; write one per line.", line=number
            )
        gone = [name for name in needed if name not in row]
        return self._lacks(gone, list(row), number, "key")

    def _numbers(
        self,
        cells: list[tuple[Any, ...]],
        rows: list[tuple[int, dict[str, Any]]],
        errors: list[InputError],
    ) -> tuple[FloatArray, list[tuple[int, dict[str, Any]]]]:
        """The matrix, and the rows that are in it."""
        shape = (len(cells), len(self.features))
        if not cells:
            return np.empty(shape), rows
        if not any(feature.is_category for feature in self.features):
            try:
                quick = np.array(cells)
            except (ValueError, OverflowError):  # some cell is a list
                quick = np.array(None)
            if quick.dtype.kind in "bif" and quick.shape == shape:
                return quick.astype(np.float64), rows
        found, good = [], []
        for row, values in zip(rows, cells, strict=True):
            try:
                numbered = [
                    _number(feature, value)
                    for feature, value in zip(self.features, values, strict=True)
                ]
            except _CellError as error:
                errors.append(InputError(LABEL, str(error), line=row[0]))
                continue
            found.append(numbered)
            good.append(row)
        return np.array(found, dtype=np.float64).reshape(-1, shape[1]), good


class _CellError(Exception):
    """A cell that is no number, and no label."""


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


def _number(feature: Feature, value: Any) -> float:
    """A cell of JSON as a detector sees it."""
    if value is None:
        return float("nan")
    if isinstance(value, list | dict):
        kind = "a list" if isinstance(value, list) else "an object"
        raise _CellError(f"{feature.name!r} is {kind}; write one value.")
    if feature.labels is not None:
        return label_code(value if isinstance(value, str) else json.dumps(value))
    if isinstance(value, str):
        raise _CellError(
            f"{feature.name!r} is the text {value[:40]!r}, where the reference has numbers."
        )
    try:
        return float(value)
    except OverflowError:
        raise _CellError(f"{feature.name!r} is a number that is too large.") from None


class CsvLines(LineReader):
    """One row per line, the first line has the names of the columns; no cell breaks a line.

    Examples
    --------
    >>> reader = CsvLines([Feature("flow")], ["id"])
    >>> block = reader.read([(1, b"id,flow"), (2, b"A7,2.5"), (3, b"A8,high"), (4, b"A9")])
    >>> block.X.tolist(), block.carried
    ([[2.5]], [{'id': 'A7'}])
    >>> print(block.errors[1])
    standard input, line 4: it has 1 field, and the header has 2.
    """

    _names: list[str] | None = None

    def read(self, lines: Sequence[NumberedLine]) -> Block:
        """Read a block of lines; the first of all is the header."""
        rows: list[tuple[int, list[str]]] = []
        errors: list[InputError] = []
        for number, raw in lines:
            try:
                fields = self._fields(raw, number)
                if self._names is None:
                    self._take_header(fields, number)
                    continue
                if len(fields) != len(self._names):
                    noun = "field" if len(fields) == 1 else "fields"
                    raise InputError(
                        LABEL,
                        f"it has {len(fields)} {noun}, and the header has {len(self._names)}.",
                        line=number,
                    )
            except InputError as error:
                if self._names is None:
                    raise  # without a header there is nothing to go on with
                errors.append(error)
                continue
            rows.append((number, fields))
        return self._table(rows, errors)

    def _fields(self, raw: bytes, number: int) -> list[str]:
        try:
            text = raw.decode("utf-8-sig" if self._names is None else "utf-8")
            delimiter = self.layout.delimiter
            if delimiter is None:
                delimiter = "\t" if self.layout.format == "tsv" else ","
            return next(csv.reader([text.rstrip("\r")], delimiter=delimiter, strict=True))
        except UnicodeDecodeError as error:
            raise InputError(LABEL, "it is not UTF-8 text.", line=number) from error
        except csv.Error as error:
            raise InputError(
                LABEL, f"{error}; a cell of a stream ends on its line.", line=number
            ) from error

    def _take_header(self, names: list[str], number: int) -> None:
        twice = sorted({name for name in names if names.count(name) > 1})
        needed = [*(feature.name for feature in self.features), *self.id_columns]
        if any(name in twice for name in needed):
            raise InputError(LABEL, f"two columns are called {listed(twice)}.", line=number)
        gone = [name for name in needed if name not in names]
        if gone:
            raise self._lacks(gone, names, number, "column")
        self._names = names

    def _table(self, rows: list[tuple[int, list[str]]], errors: list[InputError]) -> Block:
        names = self._names or []
        at = {name: j for j, name in enumerate(names)}
        X = np.empty((len(rows), len(self.features)))
        unreadable = np.zeros(X.shape, dtype=bool)
        if rows:
            for j, feature in enumerate(self.features):
                place = at[feature.name]
                column = pa.chunked_array([[fields[place] for _, fields in rows]])
                if feature.labels is not None:
                    X[:, j] = codes(column, self.layout, parse=True)
                else:
                    X[:, j], unreadable[:, j] = numbers(column, self.layout, parse=True)
        self._tell_rounded(X, ([fields[at[f.name]] for _, fields in rows] for f in self.features))
        keep: BoolArray = np.asarray(~unreadable.any(axis=1))
        good = []
        for i, (number, fields) in enumerate(rows):
            if keep[i]:
                good.append((number, {name: fields[at[name]] for name in self.id_columns}))
                continue
            name = self.features[int(unreadable[i].argmax())].name
            errors.append(
                InputError(
                    LABEL,
                    f"{name!r} is the text {fields[at[name]][:40]!r}, where the reference has "
                    "numbers.",
                    line=number,
                )
            )
        return self._checked(X[keep], good, errors)


LINES: dict[str, type[LineReader]] = {"jsonl": JsonLines, "csv": CsvLines, "tsv": CsvLines}
