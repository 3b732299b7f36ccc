"""Rows that arrive as lines: objects of JSON, or CSV, in blocks as large as what is there.

A line is judged by itself, whatever block it comes in, and one that cannot be used does not stop
the others: it comes out as an `InputError` in the place of a row.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
import pyarrow as pa

from ..arrays import BoolArray, FloatArray
from ..errors import InputError, listed, nearest, warn_once
from ..frames import calendar_part, label_code, rounded_sentence
from ..tables import Feature, Written
from ..tables.cells import EXACT, MISSING, NUMBER, WHOLE, seconds
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


A_NUMBER, TRUTH = re.compile(NUMBER), {"true": 1.0, "false": 0.0}

# What stands between the columns of lines that are no JSON.
DELIMITERS = {"csv": ",", "tsv": "\t"}


class _LineError(Exception):
    """A line that cannot be used; says why."""


class LineReader:
    """Reads lines as rows: one JSON object per line, or text, the first line with the names.

    Examples
    --------
    >>> reader = LineReader([Feature("flow"), Feature("valve", ("open", "shut"))], ["id"])
    >>> block = reader.read([(1, b'{"id": 7, "valve": "shut", "flow": 2.5}'), (2, b"oops")])
    >>> block.X[:, 0].tolist(), block.carried
    ([2.5], [{'id': 7}])
    >>> print(block.errors[0])
    standard input, line 2: it is not a JSON object: Expecting value at character 1.
    >>> reader = LineReader([Feature("flow")], ["id"], format="csv")
    >>> block = reader.read([(1, b"id,flow"), (2, b"A7,2.5"), (3, b"A8,high"), (4, b"A9")])
    >>> block.X.tolist(), block.carried
    ([[2.5]], [{'id': 'A7'}])
    >>> print(block.errors[1])
    standard input, line 4: it has 1 field, and the header has 2.
    """

    def __init__(
        self,
        features: Sequence[Feature],
        id_columns: Sequence[str] = (),
        *,
        format: str = "jsonl",
        allow_missing: bool = False,
    ) -> None:
        self.features = tuple(features)
        self.id_columns = tuple(id_columns)
        self.allow_missing = allow_missing
        self._delimiter = DELIMITERS.get(format)
        self._header: list[str] | None = None  # of text
        self._needed = [*dict.fromkeys(feature.column for feature in features), *id_columns]

    def read(self, lines: Sequence[NumberedLine]) -> Block:
        """Read a block of lines."""
        rows: list[tuple[int, dict[str, Any]]] = []
        values: list[list[float]] = []
        written: list[list[Any]] = []
        errors: list[InputError] = []
        for line, raw in lines:
            try:
                row = _object(raw) if self._delimiter is None else self._record(raw)
                if row is None:
                    continue
                try:
                    cells = [row[feature.column] for feature in self.features]
                    carried = {name: row[name] for name in self.id_columns}
                except KeyError:
                    self._check_names(list(row), "key")
                    raise
                values.append(list(map(_number, self.features, cells)))
                rows.append((line, carried))
                written.append(cells)
            except _LineError as error:
                errors.append(InputError(LABEL, str(error), line=line))
                if self._delimiter is not None and self._header is None:
                    raise errors[0] from error  # without a header there is nothing to go on with
        X = np.array(values, dtype=np.float64).reshape(-1, len(self.features))
        self._tell_rounded(X, written)
        return self._checked(X, rows, errors)

    def _tell_rounded(self, X: FloatArray, written: Sequence[Sequence[Any]]) -> None:
        """Say once which columns have whole numbers, as they were written, that are rounded."""
        large = np.abs(X) >= EXACT
        names = [
            feature.name
            for j, feature in enumerate(self.features)
            if feature.labels is None
            and any(_is_rounded(written[i][j]) for i in np.flatnonzero(large[:, j]).tolist())
        ]
        if names:
            warn_once(self, "rounded", f"{LABEL}: {rounded_sentence(names)}", UserWarning)

    def _checked(
        self, X: FloatArray, rows: list[tuple[int, dict[str, Any]]], errors: list[InputError]
    ) -> Block:
        """Take out rows with numbers that no detector can use."""
        may_miss = [self.allow_missing or feature.is_category for feature in self.features]
        usable = np.isfinite(X) | (np.isnan(X) & may_miss)
        keep: BoolArray = np.asarray(usable.all(axis=1))
        for i in np.flatnonzero(~keep).tolist():
            j = int(np.argmin(usable[i]))
            what = f"is {X[i, j]}, which is no finite number"
            if np.isnan(X[i, j]):
                what = "is missing; a model that was fitted with `prepare` imputes it"
            errors.append(InputError(LABEL, f"{self.features[j].name!r} {what}.", line=rows[i][0]))
        errors.sort(key=lambda error: error.line or 0)
        rows = [row for row, good in zip(rows, keep, strict=True) if good]
        return Block(X[keep], [line for line, _ in rows], [carried for _, carried in rows], errors)

    def _check_names(self, have: Sequence[str], what: str) -> None:
        """Refuse a row, or a header, that does not have all columns."""
        gone = [name for name in self._needed if name not in have]
        if gone:
            ids = set(gone) <= set(self.id_columns)
            whose = "that `id_columns` names" if ids else "of the reference"
            raise _LineError(
                f"it lacks the {what}{'s' * (len(gone) > 1)} {listed(gone)} {whose}."
                f"{nearest(gone[0], have)} It has {listed(have)}."
            )

    def _record(self, raw: bytes) -> dict[str, Any] | None:
        """A line of text as a row; nothing of the first, which is the header."""
        try:
            text = raw.decode("utf-8-sig" if self._header is None else "utf-8").rstrip("\r")
            fields = next(csv.reader([text], delimiter=self._delimiter or ",", strict=True))
        except UnicodeDecodeError as error:
            raise _LineError("it is not UTF-8 text.") from error
        except csv.Error as error:
            raise _LineError(f"{error}; a cell of a stream ends on its line.") from error
        if self._header is None:
            twice = sorted({name for name in fields if fields.count(name) > 1})
            if any(name in twice for name in self._needed):
                raise _LineError(f"two columns are called {listed(twice)}.")
            self._check_names(fields, "column")
            self._header = fields
            return None
        if len(fields) != len(self._header):
            got = f"{len(fields)} field{'s' * (len(fields) != 1)}"
            raise _LineError(f"it has {got}, and the header has {len(self._header)}.")
        row: dict[str, Any] = dict(zip(self._header, fields, strict=True))
        ids = {name: row[name] for name in self.id_columns}
        return row | {f.column: _parsed(f, row[f.column]) for f in self.features} | ids


def _object(raw: bytes) -> dict[str, Any]:
    """A line of JSON as a row."""
    try:
        row = json.loads(raw)
    except UnicodeDecodeError as error:
        raise _LineError("it is not UTF-8 text.") from error
    except json.JSONDecodeError as error:
        raise _LineError(
            f"it is not a JSON object: {error.msg} at character {error.pos + 1}."
        ) from error
    except (ValueError, RecursionError) as error:
        raise _LineError(f"it cannot be read ({error}).") from error
    if not isinstance(row, dict):
        names = {list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
        kind = names.get(type(row), "a number")
        raise _LineError(f"it is {kind} and not a JSON object; write one per line.")
    return row


def _parsed(feature: Feature, cell: str) -> Any:
    """A cell of text as JSON would have it, by the rules for files."""
    cell = cell.strip()
    if not feature.is_category and not feature.made and A_NUMBER.match(cell):
        return int(cell) if WHOLE.fullmatch(cell) else float(cell)
    if cell in MISSING:
        return None
    return cell if feature.is_category or feature.made else TRUTH.get(cell.lower(), cell)


def _is_rounded(value: Any) -> bool:
    """Whether a whole number is another one as floating point."""
    return type(value) is int and value != int(float(value))


def _number(feature: Feature, value: Any) -> float:
    """A cell of JSON as a detector sees it."""
    if type(value) is float and feature.labels is None:
        return value
    if value is None:
        return float("nan")
    if isinstance(value, list | dict):
        kind = "a list" if isinstance(value, list) else "an object"
        raise _LineError(f"{feature.name!r} is {kind}; write one value.")
    if feature.made is not None:
        _, written, part = feature.made
        read, bad = seconds(pa.chunked_array([[str(value)]]), written, Written())
        if bad.any():
            raise _LineError(f"{feature.column!r} is {str(value)[:40]!r}, and should be a date.")
        return float(calendar_part(read, part)[0])
    if feature.labels is not None:
        return label_code(value if isinstance(value, str) else json.dumps(value))
    if isinstance(value, str):
        raise _LineError(
            f"{feature.name!r} is the text {value[:40]!r}, where the reference has numbers."
        )
    try:
        return float(value)
    except OverflowError:
        raise _LineError(f"{feature.name!r} is a number that is too large.") from None
