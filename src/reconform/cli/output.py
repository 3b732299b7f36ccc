"""Where a command speaks: results on standard output, everything else on standard error.

Data on standard output (``--output -``) sends the results to standard error as well. Bars and
colours are for terminals; what is piped is plain text in lines that are not broken.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from ..files import Layout, check_output
from .spelling import in_options

# Wide enough that no table is cut where nobody looks at it through a window.
PIPED_WIDTH = 2_000

Passes = Callable[[str, int, int | None], None]


def console(*, stderr: bool = False) -> Console:
    """A console for text that comes from files: nothing in it is markup."""
    made = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not is_watched(made):
        made.width = PIPED_WIDTH
    return made


def is_watched(where: Console) -> bool:
    """Whether a console is a terminal, and not a pipe that colours were forced on."""
    return where.file.isatty()


def printable(text: object) -> str:
    r"""Replace what a terminal might obey instead of show.

    Examples
    --------
    >>> printable("pump \x1b[2J 7")
    'pump �[2J 7'
    """
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in str(text))


def one_line(representation: str) -> str:
    r"""Write what `repr` gave, of a name or of an estimator, on one line.

    Examples
    --------
    >>> one_line("'knn'"), one_line("Pipeline(steps=[('scale',\n    StandardScaler())])")
    ('knn', "Pipeline(steps=[('scale', StandardScaler())])")
    """
    return " ".join(representation.strip("'").split())


class Voice:
    """What a command says, in the tone that was asked for.

    Parameters
    ----------
    json : bool
        Say nothing but one JSON object at the end.
    quiet : bool
        Say nothing but errors.

    Attributes
    ----------
    warnings : list of str
        Said so far, each once.
    """

    def __init__(self, *, json: bool = False, quiet: bool = False) -> None:
        self.json = json
        self.quiet = quiet
        self.warnings: list[str] = []
        self._stderr = console(stderr=True)
        self._results = console()

    def leave_stdout_to_data(self) -> None:
        """Send results to standard error: data goes to standard output."""
        if self.json:
            raise click.UsageError("--json and '--output -' both write to standard output.")
        self._results = self._stderr

    @property
    def talks(self) -> bool:
        """Whether results are said in words."""
        return not (self.json or self.quiet)

    @property
    def shows_progress(self) -> bool:
        """Whether somebody is watching."""
        return is_watched(self._stderr) and not self.quiet

    @property
    def on_terminal(self) -> bool:
        """Whether results go to a terminal."""
        return is_watched(self._results)

    def say(self, text: str = "", style: str = "") -> None:
        """Say a sentence of the result."""
        if self.talks:
            _print(self._results, Text(printable(text), style=style))

    def show(self, thing: RenderableType) -> None:
        """Show a table; without the spaces that end its lines where nobody sees them."""
        if not self.talks:
            return
        if self.on_terminal:
            self._results.print(thing)
            return
        with self._results.capture() as captured:
            self._results.print(thing)
        lines = (line.rstrip() for line in captured.get().splitlines())
        self._results.out("\n".join(lines), highlight=False)

    def warn(self, text: str) -> None:
        """Say a warning, once, in the words of the command line."""
        text = in_options(text)
        if text not in self.warnings:
            self.warnings.append(text)
            if self.talks:
                _print(self._stderr, Text.assemble(("Warning: ", "yellow"), printable(text)))

    def step(self, text: str) -> None:
        """Say what is being done, to those who watch."""
        if self.shows_progress:
            self._stderr.print(Text(printable(text), style="dim"))

    def finish(self, facts: dict[str, Any]) -> None:
        """Say everything as JSON, if that was asked for."""
        if self.json:
            said = {"reconform": version("reconform"), **facts, "warnings": self.warnings}
            click.echo(json.dumps(said, indent=2, allow_nan=False))

    @contextmanager
    def gathering_warnings(self) -> Iterator[None]:
        """Say the warnings of the library as our own, without their code."""
        with warnings.catch_warnings(record=True) as caught:
            yield
        for warning in caught:
            self.warn(str(warning.message))

    @contextmanager
    def passes(self) -> Iterator[Passes]:
        """Draw a bar for each pass over a file."""
        if not self.shows_progress:
            yield lambda stage, done, total: None
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f} rows"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self._stderr, transient=True) as bar:
            tasks: dict[str, Any] = {}

            def advance(stage: str, done: int, total: int | None) -> None:
                if stage not in tasks:
                    for task in bar.tasks:  # those before it are done, however many rows
                        bar.update(task.id, total=task.completed)
                    tasks[stage] = bar.add_task(stage, total=total)
                bar.update(tasks[stage], completed=done, total=total)

            yield advance


def complain(text: str, *, label: str = "Error: ") -> None:
    """Say what is wrong, on standard error."""
    _print(console(stderr=True), Text.assemble((label, "bold red"), printable(text)))


def _print(where: Console, text: Text) -> None:
    where.print(text, soft_wrap=not is_watched(where))


# --- files that are not tables -------------------------------------------------------------------


def check_place(path: str | Path, *, overwrite: bool) -> None:
    """Refuse to write to a place before any work is done for it."""
    check_output(path, pa.schema([]), layout=Layout("csv"), overwrite=overwrite)
