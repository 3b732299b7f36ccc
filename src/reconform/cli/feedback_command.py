"""`reconform clean`, `update` and `record`: rows that a person marks, and what follows from it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from .. import models
from ..atomic import check_place
from ..cleaning import review, to_look_at
from ..detector import ConformalDetector
from ..display import percent
from ..errors import ReconformError
from ..files import Table, check_output
from ..files.formats import is_standard, layout_like, open_output
from ..files.marks import read_marks, reference_rows, review_table, rows_with_keys
from ..frames import stacked
from ..reporting import write_page
from ..reporting.record import record as record_of_runs
from ..reporting.record import render_record
from ..tables import Feature
from ..tables.cells import to_python
from ..updating import Looked, reference_of, updated
from . import options
from .declare import PATH, Command, count, family, file, flag, in_options
from .detect import facts_of, fit_detector, read_rows
from .judging import CAPTION, MOST_SHOWN, Flagged, words_about
from .model_commands import loading_options, remembered
from .options import Columns, Files, Fitting, parallel
from .output import Voice, check_separate

IN_ORDER = (
    "They stand in the order in which to look at them: rows that are far from the others come "
    "early, as anomalies of one kind give each other ordinary scores."
)

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
        options.OVERWRITE,
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
@options.fitting_family("knn", "jackknife+")
@options.reviewed
@options.files
@options.voice
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
    output, over, layout = reviewing["output"], reviewing["overwrite"], None
    inputs = {"REFERENCE": reference, **{f"--marks {path}": path for path in columns.marks}}
    check_separate({"--output": output}, inputs)
    if output is not None:
        if is_standard(output):
            voice.leave_stdout_to_data()
        layout = files.output_layout(output) or layout_like(reference, known, output)
        check_output(output, layout=layout, overwrite=over)
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
        for said in ("", CAPTION, IN_ORDER):
            voice.say(said, style="dim")
        if output is not None:
            written = review_table(reference, known, rows, {**numbers, "most_unusual": unusual})
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
        elif output is None:
            names = (f"review{more}.csv" for more in ("", *(f"-{i}" for i in range(2, 100))))
            free = next((name for name in names if not Path(name).exists()), "FILE")
            voice.say(in_options(f"Next: `reconform clean --output {free}`"))
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


@dataclass(frozen=True)
class Updating:
    """What an update is made of, and where the new model goes."""

    marks: tuple[str, ...]
    rows: tuple[str, ...]
    normal: tuple[str, ...]
    reference: str | None
    add_false: bool
    keep: int | None
    output: str

    def __post_init__(self) -> None:
        if self.rows and len(self.rows) != len(self.marks):
            raise click.UsageError("--rows names one file for each --marks, in the same order.")
        if not self.marks and not self.normal and self.keep is None:
            raise click.UsageError("give --marks, --normal or --keep: what is to change?")
        if is_standard(self.output):
            raise click.UsageError("--output must be the name of a file; got '-'.")

    @property
    def inputs(self) -> dict[str, str]:
        """The files that are read, by option."""
        named = (("--marks", self.marks), ("--rows", self.rows), ("--normal", self.normal))
        return {f"{name} {path}": path for name, paths in named for path in paths}


updating_options = family(
    "updating",
    "Update",
    Updating,
    [
        file("--marks", "Read this mark file, which a report has saved or a person has written: "
             "real, false, unsure or nothing for every row. May be repeated.", multiple=True),
        file("--rows", "Find the marked rows in this file, where a mark file has neither their "
             "columns nor the name of the file; one for each --marks.", multiple=True),
        file("--normal", "Let the rows of this file join the reference, but for those that a mark "
             "file calls real. May be repeated.", multiple=True),
        file("--reference", "Take the rows of the reference from here; by default from the model, "
             "or from the file that it was fitted to."),
        flag("--add-false", "Let flagged rows join the reference that were false alarms, too."),
        count("--keep", "all rows", "Keep the newest N rows of the reference.", least=2),
        file("--output", "Save the new model here; it must not exist.", required=True),
    ],
)  # fmt: skip


@click.command(
    cls=Command,
    help=(
        "Fit a saved MODEL again, by marks and more normal rows, and save it as another one.\n\n"
        "Rows that are marked real shape later scores; rows of the random sample that are marked "
        "false join the reference, flagged or not. It says what changed, and what the lists of the "
        "new model promise."
    ),
    examples=["reconform update plant.rcad --marks monday.csv --output plant-2.rcad"],
)
@click.argument("model", type=PATH)
@updating_options
@loading_options
@options.voice
def update(model: str, updating: Updating, loading: dict[str, Any], voice: Voice) -> None:
    """Fit a saved model again by marks."""
    check_separate({"--output": updating.output}, {"MODEL": model, **updating.inputs})
    if os.path.lexists(updating.output):
        raise ReconformError(
            f"{updating.output}: it exists already, and an update overwrites nothing; choose "
            "another name."
        )
    check_place(updating.output, overwrite=False)
    info = models.inspect(model)
    known = remembered(info)
    with voice.last_words(), parallel(loading["jobs"]):
        cad = models.load(model, trusted=loading["trust_objects"])
        features, ids = known.features, known.id_columns
        looked = Looked.merged(
            [
                read_marks(path).looked_at(cad, features=features, id_columns=ids, rows=rows)
                for path, rows in zip(
                    updating.marks, updating.rows or [None] * len(updating.marks), strict=True
                )
            ]
        )
        normal, left_out = _normal(cad, updating, looked, features, ids)
        reference = None
        if updating.reference is not None or reference_of(cad) is None:
            source = updating.reference or known.reference
            reference = reference_rows(cad, source, features)
        voice.step("Fitting")
        with voice.gathering_warnings():
            again = updated(
                cad,
                looked,
                normal=normal,
                left_out=left_out,
                add_false=updating.add_false,
                keep=updating.keep,
                reference=reference,
            )
        models.save(again, updating.output, extras=info.extras)
        change = again.state_.updates[-1]
        voice.say(str(change), style="bold")
        rule = known.deciding.rule.resolved(again)
        level = percent(float(rule.level)) if rule.false_alarms is None else f"{rule.level}"
        claim = rule.claim(again)
        voice.say(claim.promise(level, "the flagged rows"))
        voice.say(in_options(claim.full))
        voice.say(f"Model: {updating.output}")
        voice.finish(
            {
                "command": "update",
                "model": model,
                "update": change.to_dict(),
                "sentence": str(change),
                "updates": len(again.state_.updates),
                "guarantee": in_options(claim.full),
                "output": updating.output,
            }
        )


def _normal(
    cad: ConformalDetector,
    updating: Updating,
    looked: Looked | None,
    features: Sequence[Feature] | None,
    ids: Sequence[str],
) -> tuple[Any, int]:
    """The rows that join as they come, without those that marks speak of; how many are real."""
    rows, left_out = None, 0
    for path in updating.normal:
        X, keys, _ = rows_with_keys(cad, path, features, ids)
        if looked is not None:
            joins = (looked.marks == "false") & (looked.sampled | updating.add_false)
            real = np.isin(keys, looked.keys[looked.marks == "real"])
            X = X[~real & ~np.isin(keys, looked.keys[joins])]  # these join by their marks
            left_out += int(real.sum())
        rows = X if rows is None else stacked(rows, X)
    return rows, left_out


@click.command(
    cls=Command,
    help=(
        "Say whether the promise was kept: runs, flagged rows, how many of them were false, and "
        "when to fit again.\n\nLOG has the lines of 'reconform check ... >> LOG', MARKS are mark "
        "files of their lists. With --output it is a page."
    ),
    examples=["reconform record checks.jsonl marks/*.csv --output record.html"],
)
@click.argument("log", type=PATH)
@click.argument("marks", type=PATH, nargs=-1)
@family("page", "Results", dict, [file("--output", "Write a page (HTML)."), options.OVERWRITE])
@options.voice
def record(log: str, marks: tuple[str, ...], page: Mapping[str, Any], voice: Voice) -> None:
    """Say whether the promise was kept."""
    output = page["output"]
    if output is not None:
        if is_standard(output):
            raise click.UsageError("--output writes a page: give the name of a file.")
        named = {f"MARKS {path}": path for path in marks}
        check_separate({"--output": output}, {"LOG": log, **named})
        check_place(output, overwrite=page["overwrite"])
    told = record_of_runs(log, [read_marks(path) for path in marks])
    with voice.last_words():
        if output is not None:
            draw = partial(render_record, told, Path(log).name)
            write_page(Path(output), draw, overwrite=page["overwrite"])
        for sentence in told.sentences:
            voice.say(sentence)
        if output is not None:
            voice.say(f"Page: {output}")
        voice.finish({"command": "record", "log": log, **told.to_dict(), "output": output})
