"""`reconform study`: which detector and method to use, by labelled rows; the paper's evaluation."""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict
from typing import Any

import click

from ..detectors.registry import detectors_with, written
from ..files import Layout
from ..methods import Method, named
from ..study import (
    OWN_DETECTORS,
    OWN_METHODS,
    Cell,
    Protocol,
    Ranked,
    Recommendation,
    Study,
)
from .declare import PATH, Command, count, family, in_options, names_typed, option, share
from .options import (
    LABEL_HELP,
    OWNERS,
    SEED,
    SET,
    Columns,
    Files,
    columns_options,
    files_options,
    jobs_option,
    voice_options,
)
from .output import Voice

# Draws matter more than test sets, in each of which "auto" chooses anew.
TEST_SETS = 20


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
            required=True,
            metavar="FILE",
            help="Draw from this data set: a table with a column of labels, or an .npz file (X, "
            "y); may be repeated.",
        ),
        option(
            "--detector",
            "detectors",
            multiple=True,
            metavar="NAME",
            show_default=", ".join(OWN_DETECTORS),
            help="Score the rows with this detector, as in 'reconform fit'; may be repeated.",
        ),
        SET,
        option(
            "--method",
            "methods",
            multiple=True,
            metavar="NAME",
            show_default=", ".join(OWN_METHODS),
            help="Calibrate the scores by this method, as in 'reconform fit', or cv-pooled, "
            "jab-pooled, jackknife-pooled; may be repeated.",
        ),
        option(
            "--label",
            default="label",
            show_default=True,
            metavar="COL",
            help=f"Read labels from this column: {LABEL_HELP}.",
        ),
    ],
)

protocol_options = family(
    "protocol",
    "Protocol",
    dict,
    [
        count("--draws", 25, "Draw N training sets from each data set."),
        count("--test-sets", TEST_SETS, "Draw N test sets for each of them."),
        share(
            "--fdr",
            0.1,
            "Aim at this false discovery rate, by Benjamini-Hochberg.",
            metavar="LEVEL",
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
            metavar="FOLDER",
            help="Keep finished draws here: a run that was stopped continues there.",
        ),
        jobs_option("1", "Do N draws at a time; -1 stands for as many as there are processors."),
    ],
)


@click.command(
    cls=Command,
    examples=[
        "reconform study --dataset pumps.csv --label broken --id machine",
        "reconform study --dataset pumps.csv --store runs/pumps --jobs 2",
    ],
)
@what_options
@run_options
@columns_options
@files_options
@protocol_options
@voice_options
def study(
    what: dict[str, Any],
    run: dict[str, Any],
    columns: Columns,
    files: Files,
    protocol: dict[str, Any],
    voice: Voice,
) -> None:
    """Compare detectors and methods on rows with labels, and recommend one.

    Training sets of normal rows and test sets with anomalies are drawn from the data again and
    again. All detectors and methods are ranked by their power, the share of anomalies that they
    find at the false discovery rate that was asked for (FDR).

    With --store what is finished is kept; the same command continues where it was stopped.
    """
    planned = _planned(what, protocol, columns, files)
    try:
        with voice.gathering_warnings():
            planned.run(run["store"], n_jobs=run["jobs"], verbose=int(voice.shows_progress))
    except KeyboardInterrupt as error:
        if run["store"] is None:
            error.add_note("Nothing was kept; --store FOLDER keeps finished draws.")
        else:
            error.add_note(f"Finished draws are in {run['store']}; the same command continues.")
        raise
    advice = planned.recommendation()
    if voice.talks:
        _say(voice, planned, advice)
    with voice.last_words():
        voice.finish(
            {
                "command": "study",
                "store": run["store"],
                "cells": [_facts(cell) for cell in planned.cells()],
                "ranking": [_facts(row) for row in planned.ranking()],
                "recommendation": _advice_facts(advice, planned),
                "left_out": [
                    {"dataset": dataset, "detector": detector, "method": method, "reason": reason}
                    for (dataset, detector, method), reason in planned.left_out_.items()
                ],
            }
        )


def _say(voice: Voice, planned: Study, advice: Recommendation) -> None:
    """Say the results: the ranking, and what it recommends."""
    ranking = planned.ranking()
    if voice.on_terminal:
        from rich.markdown import Markdown  # when needed: every command loads this module

        voice.show(Markdown(ranking.to_markdown()))
    else:
        voice.say(ranking.to_markdown())
    for note in ranking.notes():
        voice.say(note)
    voice.say()
    voice.say(in_options(in_words(advice, planned)))


def _planned(
    what: dict[str, Any], protocol: dict[str, Any], columns: Columns, files: Files
) -> Study:
    given = {name: value for name, value in what.items() if value}
    settings = dict(given.pop("settings", ()))
    if settings or "detectors" in given:
        names = given.get("detectors", OWN_DETECTORS)
        given["detectors"] = detectors_with(names, settings)
    layouts = files.layouts(*what["datasets"])
    given["tables"] = columns.reading(files.id_columns, layouts[0] if layouts else None)
    return Study(**given, protocol=Protocol(**protocol))


def _facts(row: Cell | Ranked) -> dict[str, Any]:
    """A line of a table as plain data; of one draw there is no standard deviation."""
    facts = asdict(row)
    for name in ("fdr", "power", "behind"):
        if name in facts:
            mean, sd = facts[name]["mean"], facts[name]["sd"]
            facts[name] = {"mean": mean, "sd": None if math.isnan(sd) else sd}
    return {**facts, "draws": row.fdr.draws, "violation": row.violation}


def _advice_facts(advice: Recommendation, planned: Study) -> dict[str, Any]:
    chosen = advice.chosen
    return {
        "detector": None if chosen is None else chosen.detector,
        "method": None if chosen is None else chosen.method,
        "sentence": in_options(advice.sentence),
        "command": command_of(advice, planned),
        "python": advice.python,
    }


# Files whose names the reader has to put in.
REFERENCE, NEW = "normal.csv", "new.csv"


def command_of(advice: Recommendation, study: Study) -> str | None:
    """Write the command that does what is recommended; None where there is none.

    Of a study of one table, the normal rows of this table are the reference.
    """
    if advice.method is None:
        return None
    detector, method = written(advice.detector), _method(advice.method)
    if detector is None or method is None:
        return None
    path = study.table_path
    tables = study.tables
    words = ["reconform", "detect", path or REFERENCE, NEW]
    if path is not None:
        words += ["--label", study.label]
        for option, names in (
            ("--id", tables.id_columns),
            ("--drop", [name for name in tables.drop if name != study.label]),
            ("--columns", tables.columns or ()),
        ):
            words += [option, names_typed(names)] if names else []
        words += _layout(tables.layout or Layout())
    words += ["--prepare"] if tables.prepare else []
    words += ["--category", names_typed(tables.categories)] if tables.categories else []
    name, settings = detector
    words += ["--detector", name]
    for key, value in settings.items():
        words += ["--set", f"{key}={value}"]
    return shlex.join([*words, *method, "--fdr", f"{float(study.protocol.fdr):g}"])


def in_words(advice: Recommendation, study: Study) -> str:
    """Say what is recommended, with the command or else with the line of Python."""
    command = command_of(advice, study)
    if command is None:
        return str(advice)
    files = f"{NEW} stands for your new rows"
    if study.table_path is None:
        files = f"{REFERENCE} and {NEW} stand for your files"
    return f"{advice.sentence} Paste this; {files}:\n\n    {command}"


def _method(method: Method) -> list[str] | None:
    """The options for a method; None where there are none."""
    known = named(method)
    if known is None or not set(known[1]) <= set(OWNERS):
        return None
    name, changed = known
    words = ["--method", name]
    for key, value in changed.items():
        words += ["--set", f"{key}={value}"]
    return words


def _layout(layout: Layout) -> list[str]:
    words = []
    for name in ("format", "delimiter"):
        value = getattr(layout, name)
        words += [] if value is None else [f"--{name}", "tab" if value == "\t" else value]
    words += ["--decimal", layout.decimal] if layout.decimal != "." else []
    for text in layout.missing:
        words += ["--missing", text]
    return words
