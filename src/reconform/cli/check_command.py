"""`reconform check`: a saved model and today's file, for cron and other schedules.

A log has one JSON object per line, one line per run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from .. import models
from ..atomic import AtomicGroup, append_line
from ..errors import ReconformError
from ..files.formats import is_standard
from . import INPUT, sentence_of
from .declare import Command, family, option
from .judging import exit_code
from .model_commands import judge_with, judging_options
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


@dataclass(frozen=True)
class RunLog:
    """A file that every run appends a line to; nowhere if `path` is None.

    Attributes
    ----------
    path : str or None
    started : datetime
        Of this run.
    command : dict
        What was asked for: the command and its arguments.
    """

    path: str | None
    started: datetime
    command: Mapping[str, Any]

    def check(self) -> None:
        """Refuse a file that cannot be a log, before any work is done."""
        if self.path is None:
            return
        folder = os.path.dirname(os.path.realpath(self.path))
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"{self.path}: there is no folder {folder!r} to write to.")
        if not os.path.lexists(self.path):
            if not os.access(folder, os.W_OK):
                raise PermissionError(f"{self.path}: its folder cannot be written to.")
            return
        mode = os.stat(self.path).st_mode
        if not stat.S_ISREG(mode):
            raise ReconformError(f"{self.path}: a log must be a file; this is none.")
        if not os.access(self.path, os.R_OK | os.W_OK):
            raise PermissionError(f"{self.path}: it cannot be written to.")
        with open(self.path, "rb") as file:
            first = file.readline(1 << 20)
        if first and not _is_ours(first):
            raise ReconformError(
                f"{self.path}: it holds something else than a log of reconform, and lines appended "
                "to it would spoil it; give the name of a new file."
            )

    def add(self, code: int, facts: Mapping[str, Any]) -> None:
        """Append the line of this run: whole, or not at all."""
        if self.path is None:
            return
        line = {
            "time": self.started.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "seconds": round((datetime.now(UTC) - self.started).total_seconds(), 3),
            "reconform": version("reconform"),
            **self.command,
            "exit": code,
            **facts,
        }
        append_line(self.path, json.dumps(line, allow_nan=False))

    @contextmanager
    def noting_failures(self) -> Iterator[None]:
        """Note a run that ends with a sentence on what is wrong, too."""
        try:
            yield
        except (ReconformError, OSError) as error:
            with suppress(OSError):  # it may be this very file that cannot be written
                self.add(INPUT, {"error": sentence_of(error)})
            raise


def _is_ours(line: bytes) -> bool:
    try:
        said = json.loads(line)
    except ValueError:
        return False
    return isinstance(said, dict) and "reconform" in said and "exit" in said


def fingerprint_of(path: str | Path) -> str:
    """The SHA-256 of a file, as ``sha256sum`` gives it."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
            facts = judge_with(
                voice, info, new, files=files, deciding=deciding, writing=writing, loading=loading
            )
            code = exit_code(facts, writing.fail_on)
            voice.finish({"command": "check", "model": model, **facts, "exit": code})
            if path is not None:
                about = {"path": model, "sha256": seal, "calibration": info.fingerprint}
                journal.add(code, {"model": about, **_noted(facts, written), **_said(voice)})
    if code:
        sys.exit(code)


def _noted(facts: Mapping[str, Any], written: AtomicGroup) -> dict[str, Any]:
    """What the log has of a run: the numbers, and fingerprints of what was read and written."""
    return {
        "new": facts["new"],
        "flagged": facts["flagged"],
        "p_threshold": facts["p_threshold"],
        "decision": facts["decision"],
        "verdict": facts["assumption"]["verdict"],
        "guarantee": facts["guarantee"],
        "why_nothing": facts["why_nothing"],
        **{
            name: None
            if facts[name] is None
            else {"path": facts[name], "sha256": _seal(facts[name], written)}
            for name in ("output", "report")
        },
    }


def _seal(path: str, written: AtomicGroup) -> str:
    """The fingerprint of an output."""
    return fingerprint_of(written.draft_of(path))


def _said(voice: Voice) -> dict[str, Any]:
    return {"warnings": voice.warnings}
