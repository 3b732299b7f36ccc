"""`reconform detect`: from two files to the anomalies in the second."""

from __future__ import annotations

import click

from ..files.formats import titles_in_words
from ..files.judge import ReadOptions
from . import fitting as fits
from .declare import Command
from .judging import ReferenceRows, check_beforehand, check_header, judge
from .options import (
    PATH,
    Columns,
    Deciding,
    Files,
    Fitting,
    Writing,
    compared_options,
    deciding_options,
    files_options,
    fitting_options,
    parallel,
    voice_options,
    writing_options,
)
from .output import Voice


@click.command(
    cls=Command,
    help=(
        "Find the anomalies in NEW, given normal rows in REFERENCE.\n\n"
        f"Both are tables: {titles_in_words()}; '-' is standard input. Columns are matched by "
        "name. Without --output the most unusual rows are shown."
    ),
    examples=[
        "reconform detect normal.csv new.csv --fdr 0.1 --output flagged.csv --report report.html"
    ],
)
@click.argument("reference", type=PATH)
@click.argument("new", type=PATH)
@deciding_options
@writing_options
@fitting_options
@compared_options
@files_options
@voice_options
def detect(
    reference: str,
    new: str,
    deciding: Deciding,
    writing: Writing,
    fitting: Fitting,
    columns: Columns,
    files: Files,
    voice: Voice,
) -> None:
    """Find the anomalies in one file, given normal rows in another."""
    if reference == new == "-":
        raise click.UsageError("REFERENCE and NEW cannot both be standard input.")
    writing.check(voice, REFERENCE=reference, NEW=new, **fitting.inputs)
    known, unknown = files.layouts(reference, new)
    table = fits.read(voice, reference, known, files.id_columns, columns)
    reference_rows = ReferenceRows(table, columns.shift)
    check_header(new, table.features, unknown, files, writing, columns=columns)
    check = check_beforehand(new, reference_rows, unknown, files, deciding)
    cad = fits.fit(voice, table, fitting, columns, check=check)
    read = ReadOptions(
        table.features,
        files.id_columns,
        unknown,
        group_column=columns.group,
    )
    with voice.last_words(), parallel(fitting.jobs):
        facts = judge(
            voice,
            cad,
            new,
            read,
            files=files,
            deciding=deciding,
            writing=writing,
            known=reference_rows,
        )
        voice.finish({"command": "detect", "reference": fits.facts_of(table), **facts})
