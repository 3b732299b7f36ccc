"""The command ``detect``, and fitting as all commands that read a reference do it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import click
import numpy as np
from sklearn.utils import get_tags

from ..arrays import ObjectArray
from ..detector import ConformalDetector
from ..detectors.prepare import prepared
from ..errors import InputError
from ..files import (
    Layout,
    Table,
    normal_rows,
    open_batches,
    read_labelled,
    read_reference,
)
from ..files.address import label_of
from ..files.column_types import to_python
from ..files.formats import titles_in_words
from ..files.judge import ReadOptions
from ..files.reading import group_labels
from ..files.review import left_out_of
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


def read_rows(
    voice: Voice, path: str, layout: Layout, ids: tuple[str, ...], columns: Columns
) -> Table:
    """Read the reference."""
    voice.step(f"Reading {label_of(path)}")
    how = columns.reading(columns.unused(ids), layout)
    with voice.gathering_warnings():
        if columns.label is None:
            return read_reference(path, **vars(how))
        table, anomalous = read_labelled(path, columns.label, how)
    voice.step(f"Leaving out {anomalous.sum():,} rows that are labelled as anomalies")
    return normal_rows(table, anomalous)


def make(voice: Voice, reference: Table, fitting: Fitting, columns: Columns) -> ConformalDetector:
    """Make the detector that was asked for."""
    # A full-conformal detector fits while it judges, and that has a bar of its own.
    watched = voice.shows_progress and fitting.method != "full"
    detector = fitting.make_detector()
    return ConformalDetector(
        prepared(detector, reference.features) if columns.prepare else detector,
        fitting.make_method(),
        random_state=fitting.seed,
        verbose=int(watched),
        group_models=columns.group_models,
    )


def fit_detector(
    voice: Voice,
    reference: Table,
    fitting: Fitting,
    columns: Columns,
    *,
    check: Callable[[ConformalDetector], None] | None = None,
) -> ConformalDetector:
    """Fit and calibrate the detector that was asked for; `check` sees it before."""
    cad = make(voice, reference, fitting, columns)
    if check is not None:
        check(cad)
    voice.step(f"Fitting {fitting.detector}, {fitting.method}, on {len(reference):,} rows")
    known = None
    if fitting.anomalies is not None:
        voice.step(f"Reading {fitting.anomalies}")
        known = _rows_like(reference, fitting.anomalies, bool(get_tags(cad).input_tags.allow_nan))
    with voice.gathering_warnings(), parallel(fitting.jobs):
        cad.fit(
            reference.frame,
            groups=_groups(reference, columns.group),
            anomalies=known,
            left_out=left_out_of(reference.path),
        )
    cad.name_reference(_names(reference, columns.group))
    cad.set_params(verbose=0)
    if fitting.method == "auto":
        voice.step(f"The method is {cad.plan_.scheme}, by the number of rows")
    return cad


def _names(reference: Table, group: str | None) -> Sequence[Any]:
    """What explanations call the reference rows: by their identifiers, or by number from 1."""
    named = [] if reference.ids is None else reference.ids.column_names
    columns = [to_python(reference.ids.column(name)) for name in named if name != group]
    if not columns:
        return range(1, len(reference) + 1)
    return [", ".join(map(str, cells)) for cells in zip(*columns, strict=True)]


def _rows_like(reference: Table, path: str, allow_missing: bool) -> Any:
    """Read all rows of a file with the columns of the reference, as `Table.frame` has them."""
    with open_batches(path, reference.features, allow_missing=allow_missing) as batches:
        X = np.concatenate([np.empty((0, len(reference.features))), *batches])
    return replace(reference, X=X).frame


def _groups(reference: Table, column: str | None) -> ObjectArray | None:
    """Read the groups of the reference rows, if a column has them."""
    if column is None:
        return None
    if reference.ids is None or column not in reference.ids.column_names:
        raise InputError(reference.path, f"it has no column {column!r} of groups.", column=column)
    cells = reference.ids.column(column)
    labels: ObjectArray = group_labels(cells, column, Layout(), reference.path, parse=True)
    return labels


def facts_of(reference: Table) -> dict[str, Any]:
    """Say what was read, as plain data."""
    return {
        "path": reference.path,
        "rows": len(reference),
        "features": list(reference.names),
        "sha256": reference.fingerprint,
        "missing": reference.missing,
    }


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
    table = read_rows(voice, reference, known, files.id_columns, columns)
    reference_rows = ReferenceRows(table, columns.shift)
    check_header(new, table.features, unknown, files, writing, columns=columns)
    check = check_beforehand(new, reference_rows, unknown, files, deciding)
    cad = fit_detector(voice, table, fitting, columns, check=check)
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
        voice.finish({"command": "detect", "reference": facts_of(table), **facts})
