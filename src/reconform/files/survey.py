"""What a table holds column by column, and the sentences that refuse it.

A survey reads the whole table, so that one message names every column at fault, with counts. A
reference is always surveyed; of new rows only those of a table that is about to be refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow.compute as pc

from ..detectors.prepare import FEW_LABELS, Feature
from ..errors import MOST_LISTED, InputError
from .cells import all_numbers, kind_of, texts, words
from .columnar import Source
from .formats import Layout

# Cells that are no numbers, and what they seem to be.
TIME = (
    r"^\d{4}-\d{1,2}-\d{1,2}([T ].*)?$|^\d{1,2}[/.]\d{1,2}[/.]\d{2,4}( .*)?$"
    r"|^\d{4}/\d{1,2}/\d{1,2}( .*)?$|^\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?$"
)
# All labels of a reference together.
LABEL_BYTES = 1 << 26
COMMA = r"^[+-]?\d+(\.\d{3})*,\d+([eE][+-]?\d+)?$"


@dataclass
class ColumnSurvey:
    """What one column holds, counted over batches.

    Attributes
    ----------
    name : str
    rows, missing, infinite, unreadable : int
        Rows; of them without a value, infinite, and neither missing nor a number.
    first : dict
        The first row (from 0) that is ``"missing"``, ``"infinite"`` or ``"unreadable"``.
    seems : Counter
        What the unreadable cells seem to be: ``"text"``, ``"time"``, ``"comma"`` or ``"other"``.
    example : str
        The first unreadable cell.
    """

    name: str
    rows: int = 0
    missing: int = 0
    infinite: int = 0
    unreadable: int = 0
    first: dict[str, int] = field(default_factory=dict)
    seems: Counter[str] = field(default_factory=Counter)
    example: str = ""

    def look_at(self, cells: Any, layout: Layout, *, parse: bool) -> None:
        """Note what unreadable cells seem to be."""
        kind = kind_of(cells.type)
        self.example = self.example or str(words(cells.slice(0, 1))[0])[:40]
        times = commas = 0
        if kind == "text":
            cells = texts(cells, layout, parse=parse)
            times = pc.sum(pc.match_substring_regex(cells, TIME)).as_py()
            commas = pc.sum(pc.match_substring_regex(cells, COMMA)).as_py()
        self.seems.update({"time": times, "comma": commas, kind: len(cells) - times - commas})

    @property
    def is_odd(self) -> bool:
        """Whether some cell is missing, infinite or unreadable: in few of very many columns."""
        return bool(self.first)

    @property
    def present(self) -> int:
        """Rows with a value."""
        return self.rows - self.missing

    @property
    def nature(self) -> str:
        """What the column is: ``"number"``, or what most of its unreadable cells seem to be.

        Text in a column that is otherwise numbers is ``"stray"``.
        """
        if not self.unreadable:
            return "number"
        most = self.seems.most_common(1)[0][0]
        if most == "text" and 2 * self.unreadable <= self.present:
            return "stray"
        return most


def too_many_rows(source: Source, most: int) -> InputError:
    """Say that a reference does not fit into memory."""
    return InputError(
        source.label,
        f"it has more than {most:,} rows, and is too large: a reference takes at most a quarter of "
        "the memory of the machine. Take a random sample of its rows, or fewer columns (`columns`, "
        "`drop`).",
    )


def survey(
    source: Source, columns: Sequence[str], layout: Layout, rows: int, *, most: int | None = None
) -> dict[str, ColumnSurvey]:
    """Count what the columns of a table hold; refuse one of more than `most` rows."""
    surveys = {name: ColumnSurvey(name) for name in columns}
    seen = 0
    for table in source.tables(columns, rows):
        seen += table.num_rows
        if most is not None and seen > most:
            raise too_many_rows(source, most)
        cells, every = [table.column(name) for name in surveys], list(surveys.values())
        values, unreadable = all_numbers(cells, layout, parse=source.is_text)
        for what, marks in (
            ("missing", np.isnan(values) & ~unreadable),
            ("infinite", np.isinf(values)),
            ("unreadable", unreadable),
        ):
            for j in np.flatnonzero(marks.any(axis=1)).tolist():
                found = every[j]
                setattr(found, what, getattr(found, what) + int(marks[j].sum()))
                found.first.setdefault(what, found.rows + int(marks[j].argmax()))
                if what == "unreadable":
                    found.look_at(cells[j].filter(marks[j]), layout, parse=source.is_text)
        for found in every:
            found.rows += table.num_rows
    return surveys


def labels_of(
    source: Source, columns: Sequence[str], layout: Layout, rows: int
) -> dict[str, tuple[str, ...]]:
    """Collect the different labels of some columns, in order."""
    labels: dict[str, set[str]] = {name: set() for name in columns}
    size = 0
    if labels:
        for table in source.tables(columns, rows):
            for name, known in labels.items():
                cells = texts(table.column(name), layout, parse=source.is_text)
                found = set(pc.unique(cells.drop_null()).to_pylist()) - known
                size += sum(map(len, found))
                if size > LABEL_BYTES:
                    raise InputError(
                        source.label,
                        f"the column {name!r} has very many or very long texts. Identifiers and "
                        "free text are no categories: carry them through unused with `id_columns`, "
                        "or leave them out with `drop`.",
                        column=name,
                    )
                known |= found
    return {name: tuple(sorted(known)) for name, known in labels.items()}


def refuse_reference(
    source: Source,
    surveys: dict[str, ColumnSurvey],
    labels: dict[str, tuple[str, ...]],
    *,
    prepare: bool,
    allow_missing: bool,
) -> None:
    """Refuse a reference with a sentence for every kind of trouble in it."""
    plain = [found for name, found in surveys.items() if name not in labels]
    odd = [found for found in plain if found.is_odd]
    categories = [found for name, found in surveys.items() if name in labels]
    complaints = _Complaints(source)
    complaints.add(
        "text",
        [s for s in odd if s.nature == "text"],
        "Encode text as categories with `prepare=True`, carry a column through unused with "
        "`id_columns`, or leave it out with `drop`.",
    )
    also = "" if prepare else "`prepare=True` and "
    complaints.add(
        "text among numbers",
        [s for s in odd if s.nature == "stray"],
        f"Correct these cells, call them missing with {also}`missing`, or leave the column out "
        f"with `drop`; if its numbers are only labels, say so with {also}`categories`.",
    )
    impute = "Impute missing values with `prepare=True`, or leave the columns out with `drop`."
    complaints.add_common(odd, None if allow_missing else impute)
    complaints.add(
        "a different text in most rows",
        [s for s in categories if len(labels[s.name]) > max(FEW_LABELS, s.present / 2)],
        "Identifiers are no categories: carry them through unused with `id_columns`, or leave "
        "them out with `drop`.",
        count="present",
    )
    complaints.refuse()


def refuse_new(
    source: Source,
    surveys: dict[str, ColumnSurvey],
    features: Sequence[Feature],
    *,
    allow_missing: bool,
) -> None:
    """Refuse new rows with a sentence for every kind of trouble in them."""
    plain = [surveys[f.name] for f in features if not f.is_category and f.made is None]
    odd = [found for found in plain if found.is_odd]
    dates = {f.column: surveys[f.column] for f in features if f.made is not None}
    complaints = _Complaints(source)
    complaints.add(
        "something else than dates, or dates written otherwise than in the reference,",
        [s for s in dates.values() if s.unreadable],
        "Correct these cells, or leave the column out with `drop`.",
    )
    complaints.add(
        "text where the reference has numbers",
        [s for s in odd if s.nature in ("text", "stray")],
        "Correct these cells, or call them missing with `missing` and fit with `prepare=True`.",
    )
    refit = "Fit with `prepare=True`, which imputes them, or without these columns (`drop`)."
    complaints.add_common(odd, None if allow_missing else refit)
    complaints.refuse()


class _Complaints:
    """Sentences about columns, gathered to be said at once."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.sentences: list[str] = []
        self.columns: list[str] = []
        self.lines: list[int | None] = []

    def add(
        self, what: str, surveys: Sequence[ColumnSurvey], remedy: str, count: str = "unreadable"
    ) -> None:
        """Add a sentence about columns of one kind; `count` is the attribute that says how many."""
        if not surveys:
            return
        parts: list[str] = []
        for survey in surveys[:MOST_LISTED]:
            part = f"{getattr(survey, count):,} of {survey.rows:,} rows"
            # To find a line the file is read up to it: for the first column only.
            where = self._where(survey.first[count]) if count in survey.first and not parts else ""
            if count == "unreadable":
                part += f", such as {survey.example!r}{where}"
            elif where:
                part += f", first{where}"
            parts.append(f"{survey.name!r} ({part})")
        rest = len(surveys) - len(parts)
        more = f" and {rest} more" if rest else ""
        noun = "column" if len(surveys) == 1 else "columns"
        sentence = f"{what} in {len(surveys)} {noun}: {', '.join(parts)}{more}. {remedy}"
        if self.sentences:
            sentence = sentence[0].upper() + sentence[1:]
        self.sentences.append(sentence)
        self.columns += [survey.name for survey in surveys]

    def add_common(self, surveys: Sequence[ColumnSurvey], missing_remedy: str | None) -> None:
        """Complain of what no detector can use; of missing values only with a remedy for them."""
        aside = "Carry such a column through unused with `id_columns`, or leave it out with `drop`."
        for nature, what, remedy in (
            ("time", "dates or times", aside),
            ("comma", "numbers with decimal commas", "Read them with `decimal=','`."),
            ("other", "neither numbers nor text", aside),
        ):
            self.add(what, [s for s in surveys if s.nature == nature], remedy)
        numeric = [s for s in surveys if s.nature in ("number", "stray")]
        if missing_remedy is not None:
            missing = [s for s in numeric if s.missing]
            self.add("missing values", missing, missing_remedy, count="missing")
        self.add(
            "infinite values",
            [s for s in numeric if s.infinite],
            "Replace them by numbers, or leave the columns out with `drop`.",
            count="infinite",
        )

    def _where(self, row: int) -> str:
        line = self.source.line(row)
        self.lines.append(line)
        return f" in row {row + 1:,}" if line is None else f" on line {line:,}"

    def refuse(self) -> None:
        """Raise everything that was complained of."""
        if not self.sentences:
            return
        one = len(self.columns) == 1
        error = InputError(
            self.source.label, " ".join(self.sentences), column=self.columns[0] if one else None
        )
        error.line = self.lines[0] if one and self.lines else None
        raise error
