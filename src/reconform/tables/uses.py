"""What columns hold, what they are used as, and the sentences that refuse them.

A survey reads the whole table, so that one message names every column at fault, with counts. A
reference is always surveyed; of new rows only those of a table that is about to be refused.

Where nobody said it, numbers are used as they are, text as categories, dates by the hour, the
weekday and the month. Identifiers, free text and empty columns are left out. What is decided is
decided from the reference and the new rows together, where these are known: no row is special to
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..arrays import FloatArray
from ..assumption.columns import no_repeats
from ..errors import MOST_LISTED, InputError, listed, nearest
from ..frames import ELAPSED, calendar_parts
from . import FEW_LABELS, TYPED, Feature, Source, TableSource, Written, dated
from .cells import (
    DATE_FORMATS,
    TIMES,
    all_numbers,
    as_table,
    kind_of,
    matrix,
    seconds,
    texts,
    words,
)

T = TypeVar("T")

# Cells that are no numbers, and what they seem to be.
TIME = (
    r"^\d{4}-\d{1,2}-\d{1,2}([T ].*)?$|^\d{1,2}[/.]\d{1,2}[/.]\d{2,4}( .*)?$"
    r"|^\d{4}/\d{1,2}/\d{1,2}( .*)?$|^\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?$"
)
ROWS_AT_ONCE = 1 << 16
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

    def look_at(self, cells: Any, layout: Written) -> None:
        """Note what unreadable cells seem to be."""
        kind = kind_of(cells.type)
        self.example = self.example or str(words(cells.slice(0, 1))[0])[:40]
        times = commas = 0
        if kind == "text":
            cells = texts(cells, layout)
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
    source: Source, columns: Sequence[str], rows: int, *, most: int | None = None
) -> dict[str, ColumnSurvey]:
    """Count what the columns of a table hold; refuse one of more than `most` rows."""
    surveys = {name: ColumnSurvey(name) for name in columns}
    seen = 0
    for table in source.tables(columns, rows):
        seen += table.num_rows
        if most is not None and seen > most:
            raise too_many_rows(source, most)
        cells, every = [table.column(name) for name in surveys], list(surveys.values())
        values, unreadable = all_numbers(cells, source.layout)
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
                    found.look_at(cells[j].filter(marks[j]), source.layout)
        for found in every:
            found.rows += table.num_rows
    return surveys


def labels_of(source: Source, columns: Sequence[str], rows: int) -> dict[str, tuple[str, ...]]:
    """Collect the different labels of some columns, in order."""
    labels: dict[str, set[str]] = {name: set() for name in columns}
    size = 0
    for table in source.tables(columns, rows):
        for name, known in labels.items():
            cells = texts(table.column(name), source.layout)
            found = set(pc.unique(cells.drop_null()).to_pylist()) - known
            size += sum(map(len, found))
            if size > LABEL_BYTES:
                raise InputError(
                    source.label,
                    f"the column {name!r} has very many or very long texts. Identifiers and free "
                    "text are no categories: carry them through unused with `id_columns`, or leave "
                    "them out with `drop`.",
                    column=name,
                )
            known |= found
    return {name: tuple(sorted(known)) for name, known in labels.items()}


def check_known(
    source: Source, parameter: str, wanted: Sequence[str], names: Sequence[str]
) -> None:
    """Refuse columns that a parameter names and that are not there."""
    known = set(names)
    for name in wanted:
        if name not in known:
            raise InputError(
                source.label,
                f"`{parameter}` names a column {name!r} that is not there.{nearest(name, names)} "
                f"There are {listed(names)}.",
                column=name,
            )


def refuse_reference(source: Source, surveys: Sequence[ColumnSurvey]) -> None:
    """Refuse a reference with a sentence for every kind of trouble in its columns of numbers."""
    if not any(found.is_odd for found in surveys):
        return
    complaints = _Complaints(source)
    complaints.add(
        "text among numbers",
        [s for s in surveys if s.nature == "stray"],
        "Correct these cells, call them missing with `missing`, or leave the column out with "
        "`drop`; if its numbers are only labels, say so with `categories`.",
    )
    complaints.add_common(surveys, None)
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
    dates = {f.made[:2]: surveys[f.column] for f in features if f.made is not None}
    for (column, written), found in dates.items():  # which a survey takes for no numbers
        cells = (table.column(column) for table in source.tables([column], ROWS_AT_ONCE))
        wrong = [seconds(some, written, source.layout)[1].sum() for some in cells]
        found.unreadable = int(sum(wrong))
    complaints = _Complaints(source)
    complaints.add(
        "something else than dates, or dates written otherwise than in the reference,",
        [s for s in dates.values() if s.unreadable],
        "Correct these cells, or leave the column out with `drop`.",
    )
    complaints.add(
        "text where the reference has numbers",
        [s for s in odd if s.nature in ("text", "stray")],
        "Correct these cells, or call them missing with `missing` and fit with `prepare`.",
    )
    refit = "Fit with `prepare`, which imputes them, or without these columns (`drop`)."
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


# --- what columns are used as --------------------------------------------------------------------

# Chance below which whole numbers that never repeat are taken for an identifier.
RARE = 1e-3
# Cells that are read as dates before all are.
FEW_CELLS = 64
# Texts that are longer on average, and have words, are free text.
LONG_TEXT = 40
# A code for missing values fills this share of a column at least, and lies so far from the others.
LEAST_SHARE, FAR = 0.01, 0.5

FREE_TEXT = (
    "free text: left out (in Python, scikit-learn's TfidfVectorizer in a pipeline makes numbers of "
    "it)"
)


@dataclass(frozen=True)
class Use:
    """What a column is used as.

    Attributes
    ----------
    name : str
    said : str
        In a few words, for people.
    features : tuple of Feature
        None for a column that is left out.
    names_rows : bool
        Whether it is an identifier, which names the rows.
    """

    name: str
    said: str
    features: tuple[Feature, ...] = ()
    names_rows: bool = False


# Rows of each file by which columns are told apart; a large file says the same in its first rows.
MOST_LOOKED_AT, BYTES_LOOKED_AT = 200_000, 1 << 26


@dataclass(frozen=True, eq=False)
class _Both:
    """A column in the reference, and among the new rows if these are known."""

    name: str
    surveys: Sequence[ColumnSurvey]
    cells: Sequence[Any]
    layouts: Sequence[Written]
    values: Sequence[FloatArray]  # of a column of numbers

    def read(self, how: Callable[..., T]) -> list[T]:
        """Both, by what reads cells: as numbers, texts or times."""
        pairs = zip(self.cells, self.layouts, strict=True)
        return [how(cells, layout=layout) for cells, layout in pairs]


def _first_rows(source: Source, names: Sequence[str], rows: int) -> Any:
    tables: list[Any] = []
    seen = size = 0
    for table in source.tables(names, rows):
        tables.append(table.select(names))
        seen, size = seen + table.num_rows, size + tables[-1].nbytes
        if seen >= MOST_LOOKED_AT or size >= BYTES_LOOKED_AT:
            break
    return pa.concat_tables(tables or [source.schema.empty_table().select(names)])


def uses_of(
    sources: Sequence[Source],
    surveys: Sequence[dict[str, ColumnSurvey]],
    rows: int,
    *,
    categories: Sequence[str] = (),
    elapsed: Sequence[str] = (),
    named: bool = False,
) -> list[Use]:
    """Say what every column is used as.

    Parameters
    ----------
    sources : sequence of Source
        The reference, and the new rows if they are known.
    surveys : sequence of dict
        What their columns hold.
    rows : int
        Of a batch.
    categories, elapsed : sequence of str
        Columns that are labels, and dates of which the time that has passed is used.
    named : bool
        The columns were asked for by name: none is left out as an identifier.
    """
    looked = [
        _first_rows(source, list(found), rows)
        for source, found in zip(sources, surveys, strict=True)
    ]
    plain = {name for name, found in surveys[0].items() if found.nature == "number"}
    read = []  # all columns together: in wide tables a call for each is slow
    for table, source in zip(looked, sources, strict=True):
        some = [name for name in table.column_names if name in plain]
        values, _ = all_numbers([table.column(name) for name in some], source.layout)
        read.append(dict(zip(some, values, strict=True)))
    uses = []
    for name in surveys[0]:
        where = [k for k, found in enumerate(surveys) if name in found]
        column = _Both(
            name,
            [surveys[k][name] for k in where],
            [looked[k].column(name) for k in where],
            [sources[k].layout for k in where],
            [read[k][name] for k in where if name in read[k]],
        )
        uses.append(_use(column, name in categories, name in elapsed, named))
    # The labels of all reference rows, not of the first ones only.
    names = [use.name for use in uses if use.features and use.features[0].is_category]
    labels = labels_of(sources[0], names, rows) if names else {}
    return [
        replace(use, features=(Feature(use.name, labels[use.name]),)) if use.name in labels else use
        for use in uses
    ]


def _use(column: _Both, is_label: bool, elapsed: bool, named: bool) -> Use:
    name = column.name
    natures = {one.nature for one in column.surveys if one.present}
    if not natures:
        return Use(name, "empty: left out")
    if is_label:
        return _category(column, named=True)
    if natures <= {"number"} and not elapsed:
        return _number(column, named)
    dates = _date(column, elapsed)
    if dates is not None:
        return dates
    if column.surveys[0].nature == "text":
        return _category(column, named=named)
    if column.surveys[0].nature == "other":
        return Use(name, "neither numbers nor text: left out")
    return Use(name, "number", (Feature(name),))  # with cells that are refused


def _number(column: _Both, named: bool) -> Use:
    name, first = column.name, column.surveys[0]
    values = column.values
    known = [some[np.isfinite(some)] for some in values]
    every = np.concatenate(known)
    never_twice = max(map(no_repeats, known)) < RARE or no_repeats(every) < RARE
    if not named and not first.missing and len(every) > FEW_LABELS and never_twice:
        return Use(name, "id, different in every row: left out", names_rows=True)
    use = Use(name, "number", (Feature(name),))
    whole = first.rows == len(values[0])
    if whole and len(known[0]) and (known[0] == known[0][0]).all():
        return Use(name, f"constant, {known[0][0]:g} in every reference row", use.features)
    code = _code_for_missing(every)
    gaps = f"number, missing in {first.missing:,} rows" if first.missing else "number"
    if code is not None:
        times = int((every == code).sum())
        gaps += (
            f"; {code:g} in {times:,} rows, far from all others: a code for missing? If it is, say "
            f"`missing={code:g}`"
        )
    return Use(name, gaps, use.features)


def _code_for_missing(values: FloatArray) -> float | None:
    """Find a value that lies far from all others and is frequent, such as -200 or 9999."""
    different, counts = np.unique(values, return_counts=True)
    if len(different) < 4:
        return None
    for at, beside, far in ((0, 1, -1), (-1, -2, 0)):
        gap, rest = abs(different[at] - different[beside]), abs(different[beside] - different[far])
        share, code = counts[at] / len(values), float(different[at])
        alone = code < 0 <= different[beside] or set(f"{abs(code):.0f}") in ({"9"}, {"8"})
        frequent = LEAST_SHARE <= share <= 0.5 and counts[at] > 3 * counts[beside]
        if code.is_integer() and alone and frequent and gap >= FAR * rest:
            return code
    return None


def _date(column: _Both, elapsed: bool) -> Use | None:
    """Read a column as dates, if all its cells are; None otherwise."""
    kinds = {kind_of(cells.type) for cells in column.cells}
    if not kinds <= {"time", "text"}:
        return None
    if pa.types.is_duration(column.cells[0].type):
        return Use(column.name, "duration, in seconds", dated(column.name, "typed", [ELAPSED]))
    few = [cells.slice(0, FEW_CELLS) for cells in column.cells]
    formats = [
        one
        for one in (DATE_FORMATS if "text" in kinds else ("typed",))
        # Most columns of text are soon seen to be no dates.
        if all(
            not wrong.any()
            for some in (replace(column, cells=few), column)
            for _, wrong in some.read(partial(seconds, written=one))
        )
    ]
    if not formats:
        return None
    read = [values for values, _ in column.read(partial(seconds, written=formats[0]))]
    no_date = formats[0] in TIMES or pa.types.is_time(column.cells[0].type)
    parts = [ELAPSED] if elapsed else calendar_parts(read, dated=not no_date)
    if not parts:
        return Use(
            column.name,
            "date: left out, the files cover too short a time to compare hours or weekdays",
        )
    said = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    how = "" if formats[0] in ("iso", "typed") else f", written as {formats[0]}"
    return Use(column.name, f"date: {said}{how}", dated(column.name, formats[0], parts))


def _category(column: _Both, *, named: bool) -> Use:
    """A column of labels; one with a different text in most rows is an identifier, or free text."""
    name, cells = column.name, column.read(texts)
    every = [pc.unique(some.drop_null()).to_pylist() for some in cells]
    different, present = set().union(*every), sum(len(c) - c.null_count for c in column.cells)
    if not named and len(different) > max(FEW_LABELS, present / 2):
        words = [label for label in different if " " in label.strip()]
        long = sum(map(len, different)) > LONG_TEXT * len(different)
        if long and 2 * len(words) > len(different):
            return Use(name, FREE_TEXT)
        return Use(name, "id, different in most rows: left out", names_rows=True)
    labels = every[0]
    first = column.surveys[0]
    if len(labels) == 1 and not first.missing and first.rows == len(column.cells[0]):
        said = f"constant, {labels[0][:40]!r} in every reference row"
    else:
        said = f"category with {len(labels):,} label{'s' * (len(labels) != 1)}"
    return Use(name, said, (Feature(name, tuple(labels)),))


# --- frames --------------------------------------------------------------------------------------

FRAME = "X"


def uses_in_frame(frame: Any, categories: Sequence[str] = ()) -> list[Use]:
    """Say what every column of a frame is used as."""
    source = TableSource(as_table(frame), FRAME)
    names = source.schema.names
    check_known(source, "categories", categories, names)
    found = survey(source, names, ROWS_AT_ONCE)
    refuse_reference(source, [one for one in found.values() if one.nature in ("number", "stray")])
    return uses_of([source], [found], ROWS_AT_ONCE, categories=categories)


def rows_of_frame(frame: Any, features: Sequence[Feature]) -> FloatArray:
    """Read the features of a frame; refuse cells that are something else than in the reference."""
    table = as_table(frame)
    rows, unreadable = matrix(table, features, TYPED)
    if unreadable:
        source = TableSource(table, FRAME)
        found = survey(source, table.column_names, ROWS_AT_ONCE)
        refuse_new(source, found, features, allow_missing=True)
    return rows
