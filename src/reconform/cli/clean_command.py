"""`reconform clean`: a reference that may hold anomalies."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ..cleaning import BUDGET, PROVEN, most_leaving, review, to_look_at
from ..files import Layout, Table, check_output
from ..files.formats import is_standard, layout_like
from ..files.review import NOTE, leave_out, read_marks, review_table
from ..files.writing import open_output
from ..tables.cells import to_python
from .declare import PATH, Command, family, file, in_options, share
from .detect import facts_of, fit_detector, read_rows
from .judging import CAPTION, MOST_SHOWN, Flagged, words_about
from .options import (
    OVERWRITE,
    Columns,
    Files,
    Fitting,
    columns_options,
    files_options,
    fitting_family,
    parallel,
    voice_options,
)
from .output import Voice, check_separate


@dataclass(frozen=True)
class Cleaning:
    """What is written, and what may leave."""

    output: str | None
    marks: str | None
    keep: str | None
    budget: float
    overwrite: bool

    def __post_init__(self) -> None:
        if (self.keep is None) != (self.marks is None):
            raise click.UsageError(
                "--keep goes with --marks: --marks names the rows to leave out, --keep the file "
                "for the others."
            )
        if self.marks is not None and self.output is not None:
            raise click.UsageError("--output writes a review file: leave it out with --marks.")
        if self.keep is not None and is_standard(self.keep):
            raise click.UsageError("--keep must be the name of a file; got '-'.")

    def written_with(self, files: Files, reference: str, layout: Layout, path: str) -> Layout:
        """How an output is laid out."""
        return files.output_layout(path) or layout_like(reference, layout, path)

    def check(self, voice: Voice, files: Files, layout: Layout, **inputs: str) -> None:
        """Refuse what cannot be written, or would replace an input, before any work is done."""
        if self.marks is not None:
            inputs["--marks"] = self.marks
        check_separate({"--output": self.output, "--keep": self.keep}, inputs)
        if self.output is not None and is_standard(self.output):
            voice.leave_stdout_to_data()
        reference = inputs["REFERENCE"]
        for path in filter(None, (self.output, self.keep)):
            written = self.written_with(files, reference, layout, path)
            check_output(path, layout=written, overwrite=self.overwrite)


cleaning_options = family(
    "cleaning",
    "Review",
    Cleaning,
    [
        file(
            "--output",
            "Write a review file: the most unusual reference rows, with an empty column "
            "'anomaly' for a person to fill in.",
        ),
        file(
            "--marks",
            "Read a review file that a person has filled in: yes beside a row means that it "
            "is an anomaly.",
        ),
        file(
            "--keep", "Write the reference without the rows that --marks names, all else as it was."
        ),
        share(
            "--budget",
            BUDGET,
            "Leave out at most this share of the reference, rounded up to whole rows; choose it "
            "before you look at the rows.",
        ),
        OVERWRITE,
    ],
)


@click.command(
    cls=Command,
    help=(
        "Review the most unusual rows of REFERENCE, which may be anomalies.\n\n"
        "Every reference row is scored by models that have not seen it. Rows leave "
        "the reference only if a person has marked them in a review file. Anomalies hide each "
        "other: review the cleaned file again, until no further one is found."
    ),
    examples=[
        "reconform clean normal.csv --output review.csv",
        "reconform clean normal.csv --marks review.csv --keep cleaned.csv",
    ],
)
@click.argument("reference", type=PATH)
@cleaning_options
@fitting_family("knn", "jackknife+")
@columns_options
@files_options
@voice_options
def clean(
    reference: str,
    cleaning: Cleaning,
    fitting: Fitting,
    columns: Columns,
    files: Files,
    voice: Voice,
) -> None:
    """Review the most unusual rows of a reference; leave out those that a person has marked."""
    if is_standard(reference) or Path(reference).is_fifo():
        raise click.UsageError(
            "REFERENCE must be a file: it is read more than once, and later with --marks."
        )
    if fitting.method == "split":
        raise click.UsageError(
            "--method split scores its calibration rows only; give jackknife+ or full, which score "
            "every row."
        )
    if cleaning.keep is not None:
        _apply_marks(voice, reference, cleaning, files)
        return
    (known,) = files.layouts(reference)
    cleaning.check(voice, files, known, REFERENCE=reference)
    table = read_rows(voice, reference, known, files.id_columns, columns)
    cad = fit_detector(voice, table, fitting, columns)
    with voice.last_words(), parallel(fitting.jobs):
        seen = review(cad)
        written = 0 if cleaning.output is None else most_leaving(len(table), cleaning.budget)
        look = to_look_at(seen, table.X)[: max(MOST_SHOWN, written)]
        unusual = words_about(table.X[look], table)
        shown = Flagged(
            rows=(look[:MOST_SHOWN] + 1).tolist(),
            ids=_ids(table, look[:MOST_SHOWN]),
            numbers={"score": seen.scores[look], "p-value": seen.p_values[look]},
        )
        _tell_rows(voice, fitting, shown, len(table), unusual)
        if cleaning.output is not None:
            rows = review_table(reference, known, seen, look, unusual)
            layout = cleaning.written_with(files, reference, known, cleaning.output)
            # A person opens it in a spreadsheet.
            with open_output(
                cleaning.output,
                rows.schema,
                layout=layout,
                overwrite=cleaning.overwrite,
                safe_cells=True,
            ) as write:
                write(rows)
            _tell_review(voice, cleaning, len(table), len(look), rows.column_names[1])
        elif not Path("review.csv").exists():
            voice.say(in_options("Next: `reconform clean --output review.csv`"))
        voice.finish(
            {
                "command": "clean",
                "reference": facts_of(table),
                "detector": fitting.detector,
                "method": fitting.method,
                "seed": fitting.seed,
                "budget": cleaning.budget,
                "most_leaving": most_leaving(len(table), cleaning.budget),
                "unusual": shown.records(most_unusual=unusual),
                "output": cleaning.output,
                "proven": PROVEN,
            }
        )


def _ids(table: Table, positions: Any) -> dict[str, list[Any]]:
    if table.ids is None:
        return {}
    taken = table.ids.take(positions)
    return {name: to_python(taken.column(name)) for name in taken.column_names}


def _tell_rows(
    voice: Voice, fitting: Fitting, shown: Flagged, rows: int, unusual: Sequence[str]
) -> None:
    """Show the rows to look at."""
    voice.say(
        f"The {len(shown):,} most unusual of {rows:,} reference rows "
        f"({fitting.detector}, {fitting.method})",
        style="bold",
    )
    voice.say()
    voice.show(shown.table(unusual, counted=True))
    voice.say()
    voice.say(CAPTION, style="dim")


def _tell_review(voice: Voice, cleaning: Cleaning, rows: int, written: int, mark: str) -> None:
    if cleaning.output is None or is_standard(cleaning.output):
        return
    voice.say()
    marks = shlex.quote(cleaning.output)
    voice.say(
        f"Review file: {cleaning.output} ({written:,} rows). In its column {mark!r}, write yes for "
        f"every anomaly (at most {most_leaving(rows, cleaning.budget):,}) and no for the others."
    )
    voice.say(in_options(f"Next: `reconform clean --marks {marks} --keep cleaned.csv`"))


def _apply_marks(voice: Voice, reference: str, cleaning: Cleaning, files: Files) -> None:
    """Write the reference without the marked rows."""
    assert cleaning.marks is not None
    assert cleaning.keep is not None
    known, filled = files.layouts(reference, cleaning.marks)
    cleaning.check(voice, files, known, REFERENCE=reference)
    with voice.last_words():
        cleaned = leave_out(
            reference,
            read_marks(cleaning.marks, filled),
            cleaning.keep,
            budget=cleaning.budget,
            layout=known,
            output_layout=cleaning.written_with(files, reference, known, cleaning.keep),
            overwrite=cleaning.overwrite,
        )
        left = len(cleaned.marked)
        voice.say(
            f"{left:,} of {cleaned.rows:,} reference rows {'is' if left == 1 else 'are'} marked as "
            f"anomalies and left out; {cleaned.kept:,} stay.",
            style="bold",
        )
        voice.say(
            "If the marked rows were exactly its anomalies, all promises hold as for a clean "
            "reference; otherwise they are measured, not proven."
        )
        voice.say(
            f"Reference: {cleaning.keep}. Keep {Path(cleaning.keep).name}{NOTE} beside it: it "
            f"notes that {left + cleaned.before:,} rows left."
        )
        voice.finish(
            {
                "command": "clean",
                "reference": {"path": reference, "rows": cleaned.rows},
                "marks": {"path": cleaning.marks, "rows": cleaned.reviewed},
                "budget": cleaning.budget,
                "left_out": (cleaned.marked + 1).tolist(),
                "kept": cleaned.kept,
                "keep": cleaning.keep,
                "proven": PROVEN,
            }
        )
