"""`reconform detect` and `reconform demo`: from normal rows to the anomalies among new ones."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from sklearn.utils import get_tags

from ..arrays import BoolArray, ObjectArray
from ..atomic import check_place
from ..detector import ConformalDetector
from ..detectors.prepare import prepared
from ..discoveries import Discoveries
from ..display import percent
from ..errors import InputError, listed
from ..files import Layout, Table, normal_rows, open_batches, read_labelled
from ..files.batches import group_labels
from ..files.formats import is_standard, titles_in_words
from ..files.judge import ReadOptions
from ..files.marks import marked_rows
from ..files.reading import (
    in_units,
    plain_time,
    read_reference,
    times_of,
    whole_units,
    without_dates,
)
from ..files.source import opened_once
from ..metrics import false_discovery_proportion, power
from ..reporting import render, write_page
from ..tables import Written
from ..tables.cells import to_python
from ..timeseries import WindowFeatures
from . import options
from .declare import PATH, Command, family, in_options
from .judging import check_header, judge, weighing
from .options import Columns, Deciding, Files, Fitting, Writing, parallel
from .output import Voice


def read_rows(
    voice: Voice,
    path: str,
    layout: Layout,
    ids: tuple[str, ...],
    columns: Columns,
    beside: tuple[str, Layout] | None = None,
) -> Table:
    """Read the reference, and say what its columns are used as."""
    voice.step(f"Reading {path}")
    unit = columns.unit
    read = columns.reading(ids, layout)
    with voice.gathering_warnings(), opened_once():
        if columns.label is None:
            table = read_reference(path, read, beside=beside)
            gone = np.zeros(len(table), dtype=bool)
        else:
            table, gone = read_labelled(path, columns.label, read, beside=beside)
        marked = np.zeros(len(table), dtype=bool)
        if columns.marks:
            marked = marked_rows(columns.marks, table, layout, ids or table.name_columns)
        gone |= marked
        gone = gone if unit is None or not gone.any() else whole_units(table, unit, gone)
        if columns.label is not None or columns.marks:
            voice.step(f"Leaving out {gone.sum():,} rows that are known to be anomalies")
            table = replace(normal_rows(table, gone), left_out=int(marked.sum()))
    if unit is not None:
        table = without_dates(table)
    for said in said_of_columns(table):
        voice.say(in_options(said))
    if unit is not None:
        table = in_units(table, unit, group=columns.group, windows=columns.windows)
        return replace(table, prepared=columns.prepare or bool(table.missing))
    return replace(table, prepared=table.prepared or columns.prepare)


def said_of_columns(table: Table) -> list[str]:
    """Say in a line per column what it is used as; columns that are alike share one."""
    alike: dict[str, list[str]] = {}
    for use in table.uses:
        alike.setdefault(use.said, []).append(use.name)
    plain = alike.pop("number", [])
    if not alike:
        return []
    lines = [f"{_columns(names)}: {said}." for said, names in alike.items()]
    return [*lines, f"{_columns(plain)}: number{'s' * (len(plain) > 1)}."] if plain else lines


def _columns(names: list[str]) -> str:
    return f"Column {names[0]!r}" if len(names) == 1 else f"{len(names):,} columns {listed(names)}"


def fit_detector(
    voice: Voice, reference: Table, fitting: Fitting, group: str | None, time: str | None
) -> ConformalDetector:
    """Fit and calibrate the detector that was asked for; of windows the one that is advised.

    Explanations call the reference rows by their identifiers, or by number from 1.
    """
    if isinstance(reference.units, WindowFeatures):
        fitting = fitting.for_windows(len(reference))
    detector = fitting.made
    cad = ConformalDetector(
        prepared(detector, reference.features) if reference.prepared else detector,
        fitting.how,
        random_state=fitting.seed,
        # A full-conformal detector fits while it judges, and that has a bar of its own.
        verbose=int(voice.shows_progress and fitting.method != "full"),
    )
    voice.step(f"Fitting {fitting.detector}, {fitting.method}, on {len(reference):,} rows")
    known = groups = None
    if fitting.anomalies is not None:
        voice.step(f"Reading {fitting.anomalies}")
        known = _rows_like(reference, fitting.anomalies, bool(get_tags(cad).input_tags.allow_nan))
    if group is not None:
        groups = _groups(reference, group)
    with voice.gathering_warnings(), parallel(fitting.jobs):
        cad.fit(
            reference.frame,
            groups=groups,
            anomalies=known,
            left_out=reference.left_out,
            times=None if time is None else times_of(reference, time),
            units=reference.units,
        )
    named = [] if reference.ids is None else reference.ids.column_names
    ids = [to_python(reference.ids.column(name)) for name in named if name != group]
    names = [", ".join(dict.fromkeys(map(str, cells))) for cells in zip(*ids, strict=True)]
    cad.name_reference(names or range(1, len(reference) + 1))
    cad.set_params(verbose=0)
    if fitting.method == "auto":
        voice.step(f"The method is {cad.plan_.scheme}, by the number of rows")
    return cad


def _rows_like(reference: Table, path: str, allow_missing: bool) -> Any:
    """Read all rows of a file with the columns of the reference, as `Table.frame` has them."""
    with open_batches(path, reference.features, allow_missing=allow_missing) as batches:
        X = np.concatenate([np.empty((0, len(reference.features))), *batches])
    return replace(reference, X=X).frame


def _groups(reference: Table, column: str) -> ObjectArray:
    """Read the groups of the reference rows."""
    if reference.ids is None or column not in reference.ids.column_names:
        raise InputError(reference.path, f"it has no column {column!r} of groups.", column=column)
    cells = reference.ids.column(column)
    labels: ObjectArray = group_labels(cells, column, Written(), reference.path)
    return labels


def facts_of(reference: Table) -> dict[str, Any]:
    """Say what was read, as plain data."""
    return {
        "path": reference.path,
        "rows": len(reference),
        "features": list(reference.names),
        "columns": {use.name: in_options(use.said) for use in reference.uses},
        "sha256": reference.fingerprint,
        "missing": reference.missing,
        "left_out": reference.left_out,
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
@options.deciding
@options.writing
@options.fitting
@options.compared
@options.files
@options.voice
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
    writing.check(voice, files, REFERENCE=reference, NEW=new, **{"--anomalies": fitting.anomalies})
    known, unknown = files.layouts(reference, new)
    table = read_rows(voice, reference, known, files.id_columns, columns, (new, unknown))
    ids, time = files.id_columns or table.name_columns, columns.time
    if columns.unit is not None:  # which name themselves
        ids = tuple(dict.fromkeys((columns.unit, *ids)))
    weights = weighing(table, columns.shift) if columns.shift else None
    if time is None:
        time = plain_time(table, columns.unit)
    read = ReadOptions(
        table.features,
        ids,
        unknown,
        wanted=writing.wanted(ids) if writing.explain else (),
        group_column=columns.group,
        time_column=time,
        unit_column=columns.unit,
    )
    check_header(new, table, read, writing)
    cad = fit_detector(voice, table, fitting, columns.group, time)
    with voice.last_words(), parallel(fitting.jobs):
        _, facts = judge(
            voice,
            cad,
            new,
            read,
            deciding=deciding,
            writing=writing,
            reference=table,
            weights=weights,
        )
        if voice.json:
            voice.finish({"command": "detect", "reference": facts_of(table), **facts()})


@click.command(cls=Command, examples=["reconform demo --report demo.html"])
@family("asked", "Options", dict, [options.REPORT, options.OVERWRITE])
@options.voice
def demo(asked: dict[str, Any], voice: Voice) -> None:
    """Find malignant tumours among benign ones: no files are needed."""
    report, overwrite = asked["report"], asked["overwrite"]
    if report is not None:
        if is_standard(report):
            raise click.UsageError("--report must be the name of a file; got '-'.")
        check_place(report, overwrite=overwrite)
    with voice.gathering_warnings():
        found, truth = run_demo()
    facts = {
        "tested": len(found),
        "malignant": int(truth.sum()),
        "flagged": found.count,
        "power": power(found, truth),
        "false_share": false_discovery_proportion(found, truth),
    }
    with voice.last_words():
        if report is not None:
            page = partial(render, found, title="Tumours", spell=in_options)
            write_page(Path(report), page, overwrite=overwrite)
        voice.say(
            f"Breast cancer data: benign rows as reference, {len(found)} new rows, of which "
            f"{truth.sum()} are malignant."
        )
        voice.say()
        voice.say(found.headline, style="bold")
        for said in filter(None, (found.promise, found.verdict.sentence, found.ranked_by)):
            voice.say(said)
        voice.say(
            f"The truth, which the detector never saw: {facts['power']:.0%} of the malignant rows "
            f"are flagged, and {facts['false_share']:.0%} of the flagged rows are benign (at most "
            f"{percent(found.level)} were allowed on average)."
        )
        if report is not None:
            voice.say(f"Report: {report}")
        elif not Path("demo.html").exists():
            voice.say("Next: `reconform demo --report demo.html`")
        guarantee = in_options(found.guarantee)
        voice.finish({"command": "demo", **facts, "guarantee": guarantee, "report": report})


def run_demo() -> tuple[Discoveries, BoolArray]:
    """Fit on half of the benign rows, and judge the rest mixed with malignant ones."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    rng = np.random.default_rng(0)
    benign = rng.permutation(X[y == 1])
    malignant = rng.permutation(X[y == 0])[:50]
    reference, rest = benign[:178], benign[178:]
    new = np.vstack([rest, malignant])
    order = rng.permutation(len(new))
    truth = np.r_[np.zeros(len(rest), bool), np.ones(len(malignant), bool)][order]
    return ConformalDetector(random_state=0).fit(reference).discover(new[order]), truth
