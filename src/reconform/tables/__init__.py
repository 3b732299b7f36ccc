"""Tables, wherever they come from: columns of a few plain types, and what they are used as.

    cells.py    the cells of columns as numbers, labels and times
    uses.py     what columns hold, what they are used as, and the sentences that refuse them

Files and frames are read by the same rules: a row has the same numbers wherever it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ReconformError
from ..frames import CALENDAR, ELAPSED


@dataclass(frozen=True)
class Written:
    """How numbers and gaps are written in cells of text.

    Attributes
    ----------
    decimal : {".", ","}
        The decimal sign.
    missing : tuple of str
        Cells that mean "missing", besides the usual ones.
    typed : bool
        Whether columns have types, so that text is meant as text, and never a number.
    """

    decimal: str = "."
    missing: tuple[str, ...] = field(default=())
    typed: bool = False


TYPED = Written(typed=True)


@dataclass(frozen=True)
class Feature:
    """A column that the detector looks at, and how it becomes a number.

    Attributes
    ----------
    name : str
    labels : tuple of str or None
        The categories of the reference; None for a column of numbers.
    made : tuple of str, optional
        For what is made of a date: its column, how dates are written there, and which part it is.

    Examples
    --------
    >>> Feature("colour", ("blue", "red")).is_category
    True
    """

    name: str
    labels: tuple[str, ...] | None = None
    made: tuple[str, str, str] | None = None

    @property
    def column(self) -> str:
        """The column of a table that it is read from."""
        return self.name if self.made is None else self.made[0]

    @property
    def is_category(self) -> bool:
        """Whether the column holds labels instead of numbers."""
        return self.labels is not None


# A column of text with more labels than this, most of them in a single row, is an identifier.
FEW_LABELS = 20


def describe(features: Sequence[Feature]) -> list[dict[str, Any]]:
    """Write features as plain data, for a saved model's manifest.

    Examples
    --------
    >>> describe([Feature("x"), Feature("colour", ("blue", "red"))])
    [{'name': 'x', 'kind': 'number'},
     {'name': 'colour', 'kind': 'category', 'labels': ['blue', 'red']}]
    """
    kinds = [
        {"kind": "date", "made": list(one.made)}
        if one.made is not None
        else {"kind": "number"}
        if one.labels is None
        else {"kind": "category", "labels": list(one.labels)}
        for one in features
    ]
    return [{"name": one.name, **kind} for one, kind in zip(features, kinds, strict=True)]


def dated(column: str, written: str, parts: Sequence[str]) -> tuple[Feature, ...]:
    """Make the features of a date: two for every part of the calendar, as on a clock.

    Examples
    --------
    >>> [feature.name for feature in dated("when", "iso", ["hour"])]
    ['when: hour (sin)', 'when: hour (cos)']
    """
    waves = [
        wave
        for part in parts
        for wave in ([part] if part == ELAPSED else [f"{part} (sin)", f"{part} (cos)"])
    ]
    return tuple(Feature(f"{column}: {wave}", made=(column, written, wave)) for wave in waves)


def restore(description: Sequence[Mapping[str, Any]]) -> tuple[Feature, ...]:
    """Read features back from what `describe` wrote; refuse anything else.

    Examples
    --------
    >>> features = (Feature("x"), Feature("colour", ("blue", "red")))
    >>> restore(describe(features)) == features
    True
    """
    features = []
    for entry in description:
        match dict(entry):
            case {"name": str(name), "kind": "number"} if len(entry) == 2:
                features.append(Feature(name))
                continue
            case {
                "name": str(name),
                "kind": "date",
                "made": [str(column), str(how), str(part)],
            } if part in CALENDAR and len(entry) == 3:
                features.append(Feature(name, made=(column, how, part)))
                continue
            case {"name": str(name), "kind": "category", "labels": list(labels)} if (
                len(entry) == 3
                and all(isinstance(label, str) for label in labels)
                and len(set(labels)) == len(labels)
            ):
                features.append(Feature(name, tuple(labels)))
                continue
        raise ReconformError(
            "a feature must have a name, a kind ('number', 'category' or 'date') and, for a "
            f"category, distinct labels; got {entry!r}."
        )
    names = [feature.name for feature in features]
    if len(set(names)) < len(names):
        raise ReconformError(f"features must have distinct names; got {names!r}.")
    return tuple(features)


class Source:
    """A table that can be read from its start any number of times.

    Attributes
    ----------
    path : Path
        Where it is read from: the file, or the spool of a pipe.
    label : str
        What to call it in messages.
    schema : pyarrow.Schema
    rows : int or None
        Number of rows, where the file tells it beforehand.
    layout : Written
        How its cells are read.
    """

    path: Path
    label: str
    schema: Any
    rows: int | None = None
    layout: Written = TYPED

    @property
    def is_text(self) -> bool:
        """Whether every cell is text that is yet to be read as a number."""
        return not self.layout.typed

    def tables(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield Arrow tables of about `rows` rows, with these columns at least."""
        raise NotImplementedError

    def line(self, row: int) -> int | None:
        """Line of a row (from 0) in a text file, from 1."""
        return None


class TableSource(Source):
    """A table of Arrow in memory."""

    def __init__(self, table: Any, label: str, path: Path = Path()) -> None:
        self.path, self.label, self.schema = path, label, table.schema
        self.rows, self._table = table.num_rows, table

    def tables(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield parts of the table."""
        for start in range(0, self.rows or 0, rows):
            yield self._table.slice(start, rows).select(list(columns))
