"""`reconform study`: the paper's evaluation, and anyone's own."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from ..detectors.by_name import detectors_with
from ..study import (
    PAPER_DETECTORS,
    Cell,
    Comparison,
    Estimate,
    Protocol,
    Study,
    comparison_chart,
    read_reference,
    save_chart,
)
from ..whole import check_place, write_whole
from .declare import Command, count, family, option, share
from .options import JOBS, OVERWRITE, PATH, SEED, SET, voice_options
from .output import Voice, check_separate

TABLES = {"table.md": "markdown", "table.tex": "latex", "table.csv": "csv"}
COMPARISONS = ("comparison.md", "comparison.csv")
CHARTS = ("table.svg", "comparison.svg")

# The paper leaves leave-one-out methods out from here on.
PAPER_LIMIT = 500


def _limit(ctx: click.Context, param: click.Parameter, value: str | None) -> int | str | None:
    if value is None or value == "none":
        return value
    if value.isdecimal():
        return int(value)
    raise click.BadParameter(f"it must be a number or 'none'; got {value!r}.", ctx, param)


what_options = family(
    "what",
    "What is run",
    dict,
    [
        option(
            "--dataset",
            "datasets",
            type=PATH,
            multiple=True,
            metavar="NAME|FILE",
            show_default="the paper's eight",
            help="Draw from this data set: one of the paper, breast_cancer, or an .npz, .csv or "
            ".parquet file with labels; may be repeated.",
        ),
        option(
            "--detector",
            "detectors",
            multiple=True,
            metavar="NAME",
            show_default=", ".join(PAPER_DETECTORS),
            help="Score the rows with this detector, as in 'reconform fit'; may be repeated.",
        ),
        SET,
        option(
            "--method",
            "methods",
            multiple=True,
            metavar="NAME",
            show_default="the paper's seven",
            help="Calibrate the scores by this method, as in 'reconform fit', or cv-pooled, "
            "jab-pooled, jackknife-pooled; may be repeated.",
        ),
        option(
            "--data",
            type=click.Path(path_type=str),
            metavar="FOLDER",
            show_default="$RECONFORM_DATA, or they are downloaded",
            help="Look for the files of the paper's data sets in this folder.",
        ),
        option(
            "--label",
            default="label",
            show_default=True,
            metavar="COL",
            help="Read labels from this column: 1 for outliers and 0 for normal rows.",
        ),
    ],
)

protocol_options = family(
    "protocol",
    "Protocol",
    dict,
    [
        count("--draws", 25, "Draw N training sets from each data set."),
        count("--test-sets", 100, "Draw N test sets for each of them."),
        share(
            "--fdr",
            0.1,
            "Aim at this false discovery rate, by Benjamini-Hochberg.",
            metavar="LEVEL",
        ),
        count("--folds", 10, "Cut the reference into N folds, for cv and cv+.", least=2),
        count("--bootstrap-draws", 100, "Draw N bootstrap samples, for jab and jab+."),
        share("--anomaly-rate", 0.1, "Put this share of outliers into a test set."),
        count(
            "--test-size",
            "a third of the training rows, at most 1000",
            "Put N rows into a test set.",
            least=2,
        ),
        share(
            "--train-share", 0.5, "Use this share of the normal rows for training and calibration."
        ),
        option(
            "--jackknife-limit",
            callback=_limit,
            metavar="ROWS|none",
            show_default=f"the paper's {PAPER_LIMIT}; none if --method is given",
            help="Leave out leave-one-out methods from so many training rows on.",
        ),
        SEED,
    ],
)

run_options = family(
    "run",
    "Run",
    dict,
    [
        option(
            "--store",
            type=click.Path(path_type=str, file_okay=False),
            required=True,
            metavar="FOLDER",
            help="Keep finished draws here: a run that was stopped continues there.",
        ),
        JOBS,
        option(
            "--compare",
            type=PATH,
            metavar="paper|FILE",
            help="Compare with the paper, or with a table.csv of another study.",
        ),
        option(
            "--output",
            type=click.Path(path_type=str, file_okay=False),
            metavar="FOLDER",
            help="Write tables (Markdown, LaTeX, CSV), the comparison and charts.",
        ),
        OVERWRITE,
    ],
)


@click.command(
    cls=Command,
    examples=[
        "reconform study --store runs/paper --jobs 2 --compare paper --output results",
        "reconform study --store runs/mine --dataset pumps.csv --detector knn --method cv+",
    ],
)
@run_options
@what_options
@protocol_options
@voice_options
def study(
    run: dict[str, Any], what: dict[str, Any], protocol: dict[str, Any], voice: Voice
) -> None:
    """Measure FDR and power: the paper's study, or your own.

    FDR is the false discovery rate; power, the share of outliers that are found.

    What is finished is kept in the store; the same command continues where it was stopped.
    """
    reference, output = run["compare"], run["output"]
    if reference is not None:
        if protocol["draws"] < 2:
            raise click.UsageError("--compare needs standard errors, so at least --draws 2.")
        read_reference(reference)  # says now what is wrong with it, not after an hour
    if output is not None:
        _check_folder(Path(output), what["datasets"], reference, overwrite=run["overwrite"])
    planned = _planned(what, protocol)
    try:
        with voice.gathering_warnings():
            planned.run(run["store"], n_jobs=run["jobs"], verbose=int(voice.shows_progress))
    except KeyboardInterrupt as error:
        error.add_note(f"Finished draws are in {run['store']}; the same command continues.")
        raise
    comparison = None if reference is None else planned.compare(reference)
    if voice.talks:
        table = planned.table()
        if voice.on_terminal:
            # Imported when needed: every command loads this module.
            from rich.markdown import Markdown

            voice.show(Markdown(table))
        else:
            voice.say(table)
        if comparison is not None:
            voice.say(str(comparison))
    with voice.last_words():
        written = []
        if output is not None:
            written = _write(voice, planned, comparison, Path(output), run["overwrite"])
        for path in written:
            voice.say(f"Written: {path}")
        voice.finish(
            {
                "command": "study",
                "store": run["store"],
                "cells": [_cell_facts(cell) for cell in planned.cells()],
                "comparison": None if comparison is None else _comparison_facts(comparison),
                "written": written,
            }
        )


def _planned(what: dict[str, Any], protocol: dict[str, Any]) -> Study:
    limit = protocol["jackknife_limit"]
    if limit is None and not what["methods"]:
        limit = PAPER_LIMIT
    given = {name: value for name, value in what.items() if value}
    settings = dict(given.pop("settings", ()))
    if settings or "detectors" in given:
        names = given.get("detectors", PAPER_DETECTORS)
        given["detectors"] = detectors_with(names, settings)
    limited = {**protocol, "jackknife_limit": None if limit == "none" else limit}
    return Study(**given, protocol=Protocol(**limited))


def _check_folder(
    folder: Path, datasets: tuple[str, ...], reference: str | None, *, overwrite: bool
) -> None:
    if not folder.is_dir():
        return
    names = (*TABLES, *COMPARISONS, *CHARTS)
    inputs = {f"--dataset {k}": path for k, path in enumerate(datasets, start=1)}
    if reference is not None:
        inputs["--compare"] = reference
    check_separate({f"--output, {name}": str(folder / name) for name in names}, inputs)
    for name in names:
        check_place(folder / name, overwrite=overwrite)


def _write(
    voice: Voice, planned: Study, comparison: Comparison | None, folder: Path, overwrite: bool
) -> list[str]:
    """Write everything that there is to write."""
    files = {name: planned.table(fmt).encode() for name, fmt in TABLES.items()}
    charts: dict[str, Callable[[], Any]] = {"table.svg": planned.chart}
    if comparison is not None:
        files["comparison.md"] = comparison.to_markdown().encode()
        files["comparison.csv"] = comparison.to_csv().encode()
        charts["comparison.svg"] = partial(comparison_chart, comparison)
    try:
        with tempfile.TemporaryDirectory(prefix="reconform-") as drawn:
            for name, draw in charts.items():
                files[name] = save_chart(draw(), Path(drawn, name)).read_bytes()
    except ImportError as error:
        voice.warn(f"No charts are written: {error}")
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_whole(folder / name, content, overwrite=overwrite)
    return sorted(str(folder / name) for name in files)


def _cell_facts(cell: Cell) -> dict[str, Any]:
    return {
        "dataset": cell.dataset,
        "detector": cell.detector,
        "method": cell.method,
        "draws": cell.fdr.draws,
        "fdr": _estimate_facts(cell.fdr),
        "power": _estimate_facts(cell.power),
        "violation": cell.violation,
    }


def _estimate_facts(estimate: Estimate) -> dict[str, float | None]:
    return {"mean": estimate.mean, "sd": None if math.isnan(estimate.sd) else estimate.sd}


def _comparison_facts(comparison: Comparison) -> dict[str, Any]:
    return {
        "with": comparison.name,
        "cells": len(comparison.cells),
        "within_2": comparison.within(2),
        "within_3": comparison.within(3),
        "largest": max((abs(cell.z) for cell in comparison.cells), default=None),
        "missing": len(comparison.missing),
    }
