"""`reconform check`: a saved model and today's file, for cron and other schedules."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import click

from .. import models
from ..files.address import query_of
from ..files.formats import is_standard
from ..whole import Together
from .declare import Command, family, option
from .judging import exit_code
from .model_commands import judge_with, judging_options, load_model
from .options import (
    PATH,
    Deciding,
    Files,
    Writing,
    checking_options,
    deciding_options,
    files_options,
    parallel,
)
from .output import Voice, check_separate
from .run_log import RunLog, fingerprint_of

PLACEHOLDER = re.compile(r"\{(\w*)\}")
# What stands in the names of outputs, in the time zone of the machine.
PLACEHOLDERS = {"date": "%Y-%m-%d", "time": "%H%M%S"}


def dated(option: str, name: str | None, now: datetime) -> str | None:
    """Fill in the placeholders in the name of an output.

    Examples
    --------
    >>> dated("--output", "found-{date}.csv", datetime(2026, 11, 16, 6, 30))
    'found-2026-11-16.csv'
    """
    if name is None:
        return None

    def fill(found: re.Match[str]) -> str:
        if found[1] not in PLACEHOLDERS:
            known = " and ".join(f"{{{word}}}" for word in PLACEHOLDERS)
            raise click.UsageError(f"{option}: {found[0]} is not known; {known} are.")
        return now.strftime(PLACEHOLDERS[found[1]])

    return PLACEHOLDER.sub(fill, name)


def _voice(quiet: bool) -> Voice:
    return Voice(json=not quiet, quiet=quiet)


@click.command(
    cls=Command,
    help=(
        "Check NEW with a saved MODEL, for a schedule: one JSON object on standard output, and an "
        "exit code that says it all.\n\n"
        "Exit codes: 0 nothing is flagged, 3 anomalies, 4 the assumption looks broken (as "
        "--fail-on says), 1 the input is at fault, 2 usage. Identifiers, prefix and level are "
        "those that the model was fitted with, unless they are given. In the names of --output "
        "and --report, {date} and {time} are those of the run."
    ),
    examples=[
        "reconform check plant.rcad new.csv --output 'flagged-{date}.csv' --only-anomalies "
        "--log checks.jsonl"
    ],
)
@click.argument("model", type=PATH)
@click.argument("new", type=PATH)
@checking_options
@family(
    "log",
    "Results",
    dict,
    [
        option(
            "--log",
            type=PATH,
            metavar="FILE",
            help="Append one line of JSON about this run: what was found, and the fingerprints of "
            "model, input and outputs.",
        )
    ],
)
@deciding_options
@files_options
@judging_options
@family(
    "voice",
    "Messages",
    _voice,
    [option("--quiet", is_flag=True, help="Say nothing but errors; the exit code remains.")],
)
def check(
    model: str,
    new: str,
    writing: Writing,
    log: dict[str, str | None],
    deciding: Deciding,
    files: Files,
    loading: dict[str, Any],
    voice: Voice,
) -> None:
    """Check a file with a saved model, for a schedule."""
    started = datetime.now(UTC)
    here = started.astimezone()
    writing = replace(
        writing,
        output=dated("--output", writing.output, here),
        report=dated("--report", writing.report, here),
    )
    path = log["log"]
    if path is not None and is_standard(path):
        raise click.UsageError("--log must be the name of a file; got '-'.")
    check_separate(
        {"--log": path, "--output": writing.output, "--report": writing.report},
        {"MODEL": model, "NEW": new},
    )
    asked = {"command": "check", "model": {"path": model}, "new": {"path": new}}
    journal = RunLog(path, started, asked)
    journal.check()
    with journal.noting_failures():
        writing.check(voice, MODEL=model, NEW=new)
        info = models.inspect(model)
        with voice.last_words() as written, parallel(loading["jobs"]):
            seal = None if path is None else fingerprint_of(model)
            cad = load_model(info, loading["trust"])
            facts = judge_with(
                voice,
                cad,
                info,
                new,
                files=files,
                deciding=deciding,
                writing=writing,
                group=loading["group"],
            )
            code = exit_code(facts, writing.fail_on)
            voice.finish({"command": "check", "model": model, **facts, "exit": code})
            if path is not None:
                about = {"path": model, "sha256": seal, "calibration": info.fingerprint}
                journal.add(code, {"model": about, **_noted(facts, written), **_said(voice)})
    if code:
        sys.exit(code)


def _noted(facts: Mapping[str, Any], written: Together) -> dict[str, Any]:
    """What the log has of a run: the numbers, and fingerprints of what was read and written."""
    return {
        "new": facts["new"],
        "flagged": facts["flagged"],
        "p_threshold": facts["p_threshold"],
        "decision": facts["decision"],
        "verdict": facts["assumption"]["verdict"],
        "guarantee": facts["guarantee"],
        **{
            name: None
            if facts[name] is None
            else {"path": facts[name], "sha256": _seal(facts[name], written)}
            for name in ("output", "report")
        },
    }


def _seal(path: str, written: Together) -> str | None:
    """The fingerprint of an output; a table of a database has none."""
    return None if query_of(path) is not None else fingerprint_of(written.draft_of(path))


def _said(voice: Voice) -> dict[str, Any]:
    return {"warnings": voice.warnings}
