"""The most anomalous rows: as a table for a person, and as records for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable
from rich.text import Text

from ..arrays import BoolArray, FloatArray
from ..explaining.explanation import IN_BRACKETS
from ..explaining.feature_columns import labelled
from ..explaining.features import Unusual, unusual_features
from ..files import Table
from ..files.cells import labels_in, to_python
from ..files.judge import FileDiscoveries
from ..reporting.safe_text import shorten
from .output import printable

LONGEST_CELL = 40
CAPTION = f"{IN_BRACKETS} This describes the row; it is not the detector's reason."


@dataclass(frozen=True, eq=False)
class Flagged:
    """Rows that come first, the most anomalous first: those that are flagged, or some more.

    Attributes
    ----------
    rows : list of int
        Their numbers in the file, from 1.
    ids : dict of str to list
        Columns that name them.
    scores, p_values : float arrays
    letter, evidence : str and float array
        "q" and the q-values, or "e" and the e-values of a certified list.
    mask : bool array, optional
        Which of them are flagged, if that is not all of them.
    """

    rows: list[int]
    ids: dict[str, list[Any]]
    scores: FloatArray
    p_values: FloatArray
    letter: str
    evidence: FloatArray
    mask: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def records(self) -> list[dict[str, Any]]:
        """One dict of plain data per row; an infinite score is None, since JSON has none."""
        return [
            {
                "row": row,
                "id": {name: plain(values[i]) for name, values in self.ids.items()},
                "score": plain(float(self.scores[i])),
                "p_value": float(self.p_values[i]),
                f"{self.letter}_value": float(self.evidence[i]),
                **({} if self.mask is None else {"anomaly": bool(self.mask[i])}),
            }
            for i, row in enumerate(self.rows)
        ]

    def table(self, unusual: Sequence[str] = ()) -> RichTable:
        """Lay the rows out, with what is unusual about each of them if that is known."""
        numbers = {
            "score": self.scores,
            "p-value": self.p_values,
            f"{self.letter}-value": self.evidence,
        }
        flagged = None if self.mask is None else ["yes" if one else "" for one in self.mask]
        rows = {} if self.ids else {"row": self.rows}
        return rows_table(rows, self.ids, numbers, unusual, flagged)


def rows_table(
    counted: Mapping[str, Sequence[int]],
    ids: Mapping[str, Sequence[Any]],
    numbers: Mapping[str, FloatArray],
    unusual: Sequence[str] = (),
    flagged: Sequence[str] | None = None,
) -> RichTable:
    """Lay rows out: whole numbers, columns that name the rows, numbers, and words about each."""
    made = RichTable(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in counted:
        made.add_column(name, justify="right", no_wrap=True)
    for name in ids:
        made.add_column(_cell(name), no_wrap=True)
    for name in numbers:
        made.add_column(name, justify="right", no_wrap=True)
    if flagged is not None:
        made.add_column("flagged", no_wrap=True)
    if unusual:
        made.add_column("most unusual")
    for i in range(len(next(iter(numbers.values())))):
        # In a narrow window it is the words about the row that are cut, not the numbers.
        words = unusual[i : i + 1]
        made.add_row(
            *(f"{values[i]:,}" for values in counted.values()),
            *(_cell(values[i]) for values in ids.values()),
            *(f"{values[i]:.4g}" for values in numbers.values()),
            *([] if flagged is None else [flagged[i]]),
            *(Text(printable(said), no_wrap=True, overflow="ellipsis") for said in words),
        )
    return made


def take_flagged(judgement: FileDiscoveries, ids: Sequence[str], most: int) -> Flagged:
    """Take the most anomalous of the rows that a judgement has flagged."""
    return replace(take_first(judgement, ids, min(most, judgement.count)), mask=None)


def take_first(judgement: FileDiscoveries, ids: Sequence[str], most: int) -> Flagged:
    """Take the rows that come first, flagged or not."""
    rows = judgement.listed.head(most)
    table = rows.table
    # The results are the last columns, whatever they are called.
    scores, p_values, evidence, mask = (table.column(i).to_numpy() for i in range(-4, 0))
    return Flagged(
        rows=(rows.positions + 1).tolist(),
        ids={name: to_python(table.column(name)) for name in ids},
        scores=scores,
        p_values=p_values,
        letter=judgement.letter,
        evidence=evidence,
        mask=mask,
    )


def unusual_words(judgement: FileDiscoveries, reference: Table, most: int) -> list[str]:
    """Say for the rows that come first which features are most unusual against the reference."""
    rows = judgement.listed.head(most)
    return words_about(rows.X, reference, rows.table)


def words_about(X: FloatArray, reference: Table, cells: Any = None) -> list[str]:
    """Say for rows which of their features are most unusual against the reference."""
    features, names = reference.features, reference.names
    rows = labelled(X, features, None if cells is None else labels_in(cells))
    describe = unusual_features(rows, labelled(reference.X, features))
    return [", ".join(_said(u, names) for u in row) for row in describe(range(rows.rows))]


def _said(unusual: Unusual, names: Sequence[str]) -> str:
    name, value = (
        shorten(names[unusual.feature], LONGEST_CELL),
        shorten(unusual.value, LONGEST_CELL),
    )
    return f"{name} {value} ({unusual.note or format(unusual.strength, '+.1f')})"


def _cell(value: object) -> str:
    return shorten(printable("" if value is None else value), LONGEST_CELL)


def plain(value: Any) -> Any:
    """What JSON can hold: numbers and words as they are, everything else as it prints."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
