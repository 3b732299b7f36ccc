"""`reconform clean`: the most unusual rows of a reference, to be marked."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from ..cleaning import review, to_look_at
from ..files import Layout, Table, check_output
from ..files.formats import is_standard, layout_like
from ..files.marks import review_table
from ..files.writing import open_output
from ..tables.cells import to_python
from .declare import PATH, Command, count, family, file, in_options
from .detect import facts_of, fit_detector, read_rows
from .judging import CAPTION, MOST_SHOWN, Flagged, words_about
from .options import (
    OVERWRITE,
    Columns,
    Files,
    Fitting,
    files_options,
    fitting_family,
    parallel,
    reviewed_options,
    voice_options,
)
from .output import Voice, check_separate

reviewing_options = family(
    "reviewing",
    "Review",
    dict,
    [
        file(
            "--output",
            "Write a review file: these rows, with an empty column 'mark' for a person to fill in.",
        ),
        count("--top", f"{MOST_SHOWN}, or 5% of the rows", "Write the N most unusual rows."),
        OVERWRITE,
    ],
)


@click.command(
    cls=Command,
    help=(
        "Review the most unusual rows of REFERENCE, which may be anomalies.\n\n"
        "Every reference row is scored by models that have not seen it. Rows that a person marks "
        "as real anomalies are left out by --marks, here and in 'reconform detect' and 'reconform "
        "fit'. Anomalies hide each other: review again, until no further one is found."
    ),
    examples=[
        "reconform clean normal.csv --output review.csv",
        "reconform clean normal.csv --marks review.csv --output next.csv",
    ],
)
@click.argument("reference", type=PATH)
@reviewing_options
@fitting_family("knn", "jackknife+")
@reviewed_options
@files_options
@voice_options
def clean(
    reference: str,
    reviewing: dict[str, Any],
    fitting: Fitting,
    columns: Columns,
    files: Files,
    voice: Voice,
) -> None:
    """List the most unusual rows of a reference, for a person to mark."""
    if is_standard(reference) or Path(reference).is_fifo():
        raise click.UsageError(
            "REFERENCE must be a file: it is read more than once, and later with --marks."
        )
    if fitting.method == "split":
        raise click.UsageError(
            "--method split scores its calibration rows only; give jackknife+ or full, which score "
            "every row."
        )
    (known,) = files.layouts(reference)
    output, layout = (
        reviewing["output"],
        _checked(reference, known, reviewing, columns, files, voice),
    )
    table = read_rows(voice, reference, known, files.id_columns, columns)
    cad = fit_detector(voice, table, fitting, columns.group, columns.time)
    with voice.last_words(), parallel(fitting.jobs):
        seen = review(cad)
        look = to_look_at(seen, table.X)[
            : reviewing["top"] or max(MOST_SHOWN, -(-len(table) // 20))
        ]
        rows = look if table.stay is None else table.stay[look]
        unusual = words_about(table.X[look], table)
        numbers = {"score": seen.scores[look], "p_value": seen.p_values[look]}
        shown = Flagged(
            rows=(rows[:MOST_SHOWN] + 1).tolist(),
            ids=_ids(table, look[:MOST_SHOWN]),
            numbers={name.replace("_", "-"): known for name, known in numbers.items()},
        )
        voice.say(
            f"The {len(shown.rows):,} most unusual of {len(table):,} reference rows "
            f"({fitting.detector}, {fitting.method})",
            style="bold",
        )
        voice.say()
        voice.show(shown.table(unusual, counted=True))
        voice.say()
        voice.say(CAPTION, style="dim")
        if output is not None:
            written = review_table(reference, known, rows, {**numbers, "most_unusual": unusual})
            over = reviewing["overwrite"]
            # A person opens it in a spreadsheet.
            options = {"layout": layout, "overwrite": over, "safe_cells": True}
            with open_output(output, written.schema, **options) as write:
                write(written)
        if output is not None and not is_standard(output):
            voice.say()
            voice.say(
                f"Review file: {output} ({len(rows):,} rows). In its column 'mark', write real for "
                "every anomaly and false for the others. --marks leaves the real ones out."
            )
            marks = " ".join(f"--marks {shlex.quote(path)}" for path in (*columns.marks, output))
            voice.say(in_options(f"Next: `reconform clean {marks}`"))
        elif output is None and not Path("review.csv").exists():
            voice.say(in_options("Next: `reconform clean --output review.csv`"))
        voice.finish(
            {
                "command": "clean",
                "reference": facts_of(table),
                "detector": fitting.detector,
                "method": fitting.method,
                "seed": fitting.seed,
                "unusual": shown.records(most_unusual=unusual),
                "output": output,
            }
        )


def _ids(table: Table, positions: Any) -> dict[str, list[Any]]:
    names = [] if table.ids is None else table.ids.column_names
    return {name: to_python(table.ids.column(name).take(positions)) for name in names}


def _checked(
    reference: str,
    known: Layout,
    reviewing: dict[str, Any],
    columns: Columns,
    files: Files,
    voice: Voice,
) -> Layout | None:
    """Refuse what cannot be written, or would replace an input; say how the output is laid out."""
    output = reviewing["output"]
    inputs = {f"--marks {path}": path for path in columns.marks}
    check_separate({"--output": output}, {"REFERENCE": reference, **inputs})
    if output is None:
        return None
    if is_standard(output):
        voice.leave_stdout_to_data()
    layout = files.output_layout(output) or layout_like(reference, known, output)
    check_output(output, layout=layout, overwrite=reviewing["overwrite"])
    return layout
