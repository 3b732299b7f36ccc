"""The log of scheduled runs: one JSON object per line, one line per run."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..errors import ReconformError
from ..whole import append_line
from .failures import INPUT, sentence_of


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
