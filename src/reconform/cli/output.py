"""What a command prints: results on standard output, everything else on standard error.

Data on standard output (``--output -``) sends the results to standard error as well. Bars and
colours are for terminals; what is piped is plain text in lines that are not broken.

Results are held back until a command is about to succeed, and then written at once: a command that
fails has said nothing on standard output. Standard error is for whoever reads it; that it is closed
or full stops no command.
"""

from __future__ import annotations

import io
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from ..atomic import atomic_group, blamed_on
from ..display import printable as printable
from ..errors import ReconformError
from .declare import in_options

# So many columns are assumed where there is no terminal, so that no table is cut.
PIPED_WIDTH = 2_000

Passes = Callable[[str, int, int | None], None]


STDOUT = "standard output"


class _Held(io.StringIO):
    """Text for a standard stream, held back until a command is about to succeed."""

    encoding: Any = None


def console(stream: Any = None, held: _Held | None = None) -> Console:
    """A console of a standard stream for text from files: nothing in it is markup.

    Lines are broken on a terminal only, and not in a pipe that colours were forced on.
    """
    stream = sys.stderr if held is None else stream
    watched = stream is not None and stream.isatty()
    return Console(
        file=held,
        stderr=held is None,
        width=None if watched else PIPED_WIDTH,
        soft_wrap=not watched,
        force_terminal=watched or None,
        markup=False,
        emoji=False,
        highlight=False,
    )


def one_line(representation: str) -> str:
    r"""Write what `repr` gave, of a name or of an estimator, on one line.

    Examples
    --------
    >>> one_line("'knn'"), one_line("Pipeline(steps=[('scale',\n    StandardScaler())])")
    ('knn', "Pipeline(steps=[('scale', StandardScaler())])")
    """
    return " ".join(representation.strip("'").split())


class Voice:
    """Prints what a command has to say: in words, as JSON, or errors only.

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
    talks : bool
        Whether results are said in words.
    shows_progress : bool
        Whether progress is shown: standard error is a terminal, and not `quiet`.
    """

    def __init__(self, *, json: bool = False, quiet: bool = False) -> None:
        self.json = json
        self.quiet = quiet
        self.talks = not (json or quiet)
        self.warnings: list[str] = []
        self._stderr = console()
        self.shows_progress = self._stderr.soft_wrap is False and not quiet
        self._hold("stdout")
        if sys.stdout is None and not quiet:
            raise OSError(f"{STDOUT}: it is closed, so results cannot be printed; give --quiet.")

    def _hold(self, name: str) -> None:
        """Hold results back for a standard stream."""
        stream, self._to, self._held = getattr(sys, name), name, _Held()
        self._held.encoding = getattr(stream, "encoding", None)
        self._results = console(stream, self._held)

    def leave_stdout_to_data(self) -> None:
        """Send results to standard error: data goes to standard output."""
        if self.json:
            raise click.UsageError("--json and '--output -' both use standard output: give one.")
        if sys.stdout is None:
            raise OSError(f"{STDOUT}: it is closed, so '--output -' cannot be written.")
        self._hold("stderr")

    def say(self, text: str = "", style: str = "") -> None:
        """Say a sentence of the result."""
        if self.talks:
            _print(self._results, Text(printable(text), style=style))

    def show(self, thing: RenderableType) -> None:
        """Show a table; on anything but a terminal without spaces at the ends of lines."""
        if not self.talks:
            return
        if not self._results.soft_wrap:
            _print(self._results, thing)
            return
        with self._results.capture() as captured:
            self._results.print(thing, soft_wrap=False)
        lines = (line.rstrip() for line in captured.get().splitlines())
        self._results.out("\n".join(lines), highlight=False)

    def warn(self, text: str) -> None:
        """Say a warning, once, in the words of the command line."""
        text = in_options(text)
        if text not in self.warnings:
            self.warnings.append(text)
            if self.talks:
                _print(self._stderr, Text.assemble(("Warning: ", "yellow"), printable(text)))

    def note(self, text: str) -> None:
        """Say a sentence on standard error, at once: for commands that go on for long."""
        if self.talks:
            _print(self._stderr, Text(printable(text)))

    def step(self, text: str) -> None:
        """Say what is being done, where progress is shown."""
        if self.shows_progress:
            _print(self._stderr, Text(printable(text), style="dim"))

    def finish(self, facts: dict[str, Any], *, in_a_line: bool = False) -> None:
        """Say everything as JSON, if that was asked for."""
        if self.json:
            said = {"reconform": version("reconform"), **facts, "warnings": self.warnings}
            indent = None if in_a_line else 2
            self._held.write(json.dumps(said, indent=indent, allow_nan=False) + "\n")

    @contextmanager
    def last_words(self) -> Iterator[None]:
        """Let outputs appear, and results be printed, at the end of a block: together or not.

        What is printed goes first: if it cannot be, no output appears. On standard error, where it
        accompanies data, it goes last.
        """
        with atomic_group():
            yield
            if self._to == "stdout":
                with blamed_on(STDOUT):
                    self._release()
        with suppress(OSError):
            self._release()

    def _release(self) -> None:
        text, stream = self._held.getvalue(), getattr(sys, self._to)
        self._held.seek(0)
        self._held.truncate()
        if text and stream is not None:
            stream.write(text)
            stream.flush()

    @contextmanager
    def gathering_warnings(self) -> Iterator[None]:
        """Print warnings of the library like those of the command, without lines of code."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)  # whatever the environment says of them
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
    _print(console(), Text.assemble((label, "bold red"), printable(text)))


def _print(where: Console, thing: RenderableType) -> None:
    with suppress(OSError):  # of standard error; what is held back writes nothing yet
        where.print(thing)


# --- the streams ---------------------------------------------------------------------------------


def prepare_streams() -> None:
    """See to it that standard streams can be written to, or are known to be closed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Otherwise the next file that is opened would get the number, and what some library
            # prints would go into it. Python keeps its own stream at None.
            os.open(os.devnull, os.O_RDWR)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # names of files may be any bytes


def settle_streams() -> None:
    """Drop what could not be written to standard output, so that Python ends with our exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


# --- files that are not tables -------------------------------------------------------------------


def check_separate(outputs: Mapping[str, str | None], inputs: Mapping[str, str | None]) -> None:
    """Refuse outputs that would replace an input, or each other; paths come by their options."""
    from ..files.formats import check_separate as apart  # Arrow is not needed to say the version

    try:
        apart(outputs, inputs)
    except ReconformError as error:
        raise click.UsageError(str(error)) from error
