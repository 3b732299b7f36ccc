"""The command line: thin commands over functions that return data, and its exit codes.

====  ====================================================================
0     all is well
1     the input is at fault: one sentence on standard error says how
2     the command was used in a way it cannot be: click says how
3     rows are flagged, and --fail-on (or `check` by itself) asked for this code
4     the assumption looks broken or doubtful, and --fail-on (or `check`) asked for this code
70    a bug: the traceback is shown
130   interrupted by Ctrl-C; nothing is half written
====  ====================================================================
"""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any

import click

from ..display import GLOSSARY
from ..errors import ReconformError
from .declare import in_options, write_examples
from .output import complain, prepare_streams, settle_streams

INPUT, BUG, INTERRUPTED = 1, 70, 130

# The words of the help of all commands.
HELPFUL = ("reference", "p-value", "q-value", "false discovery rate", "exchangeable")
MORE = "docs/glossary.md explains all words, docs/cli.md all options."


def blames_input(error: Exception) -> bool:
    """Whether an error is a sentence for the user, or an accident that needs a traceback.

    Everything that the library raises on purpose is a `ReconformError`. An `OSError` is one of a
    file or a disk that the user named.

    Examples
    --------
    >>> from reconform import ConformalDetector
    >>> def error_of(call):
    ...     try:
    ...         call()
    ...     except Exception as error:
    ...         return error
    >>> blames_input(error_of(lambda: ConformalDetector("no-such").fit([[1.0], [2.0]])))
    True
    >>> blames_input(error_of(lambda: int("x")))
    False
    """
    return isinstance(error, ReconformError | OSError)


def _follows_interrupt(error: BaseException | None) -> bool:
    """Whether it is Ctrl-C, or what a library raised while it ended because of that."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def sentence_of(error: Exception) -> str:
    """Say an error without its type.

    Examples
    --------
    >>> sentence_of(PermissionError(13, "Permission denied", "normal.csv"))
    'normal.csv: permission denied.'
    """
    if isinstance(error, OSError) and error.strerror:
        what = f"{error.strerror[0].lower()}{error.strerror[1:]}."
        return what if error.filename is None else f"{error.filename}: {what}"
    return in_options(" ".join([str(error), *getattr(error, "__notes__", ())]))


def _home(name: str) -> ModuleType:
    """Import the module of a command, and all that it needs.

    That makes some hundred thousand objects that stay. Looking for garbage among them, meanwhile
    and again and again later, took a fifth of a short run.
    """
    if name in sys.modules or not gc.isenabled():
        return import_module(name)
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        gc.enable()


class Commands(click.Group):
    """A group whose commands end with the exit codes above, each imported when it is needed.

    Parameters
    ----------
    homes : mapping from str to (str, str)
        The module of each command and its line in the help, in the order of use.
    **attributes
        Of `click.Group`.
    """

    examples = ("reconform detect normal.csv new.csv --fdr 0.1 --output flagged.csv",)

    def __init__(self, *, homes: Mapping[str, tuple[str, str]], **attributes: Any) -> None:
        super().__init__(**attributes)
        self.homes = homes

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of that name."""
        if cmd_name not in self.homes:
            return None
        module, _ = self.homes[cmd_name]
        command: click.Command = getattr(_home(f"{__package__}.{module}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.homes.items()])

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description and an example."""
        super().format_help_text(ctx, formatter)
        write_examples(formatter, self.examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Explain the words that everybody needs, and say where the others are."""
        with formatter.section("Words"):
            formatter.write_dl([(word, GLOSSARY[word]) for word in HELPFUL])
        with formatter.section("More"):
            formatter.write_text(MORE)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of use, not of the alphabet."""
        return list(self.homes)

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run on standard streams that may be closed, full, or without a reader."""
        prepare_streams()
        try:
            return super().main(*arguments, **options)
        except OSError as error:  # of the help
            complain(sentence_of(error))
            sys.exit(INPUT)
        finally:
            settle_streams()

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; turn what goes wrong into a sentence and an exit code."""
        from ..files.source import opened_once  # and Arrow with it, which no help needs

        try:
            with opened_once():
                return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise  # click knows what to do
        except (KeyboardInterrupt, Exception) as error:
            if not isinstance(error, Exception) or _follows_interrupt(error):
                notes = getattr(error, "__notes__", ())
                complain(" ".join(["No file is half written.", *notes]), label="Interrupted. ")
                ctx.exit(INTERRUPTED)
            if blames_input(error):
                complain(sentence_of(error))
                ctx.exit(INPUT)
            with suppress(OSError):
                traceback.print_exc()
            complain("this is a bug in reconform; please report it with the lines above.")
            ctx.exit(BUG)


# Every command in the order of use: its module, imported when the command is asked for, and
# its line in the help.
HOMES = {
    "detect": ("detect", "Find the anomalies in NEW, given normal rows in REFERENCE."),
    "clean": ("feedback_command", "Review the most unusual rows of REFERENCE, and leave some out."),
    "fit": ("model_commands", "Fit a detector to the normal rows in REFERENCE and save it."),
    "score": ("model_commands", "Find the anomalies in NEW with a saved MODEL."),
    "check": ("model_commands", "Check NEW with a saved MODEL, for a schedule."),
    "stream": ("stream_command", "Decide about rows as they arrive on standard input."),
    "update": ("feedback_command", "Fit a saved MODEL again, by marks and more normal rows."),
    "record": ("feedback_command", "Say whether the promise was kept, by the LOG of checks."),
    "inspect": ("model_commands", "Say what is in a saved MODEL."),
    "demo": ("detect", "Find malignant tumours among benign ones: no files are needed."),
    "warm": ("model_commands", "Compile ahead what the defaults run, for images and first starts."),
}


@click.group(
    cls=Commands,
    homes=HOMES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="reconform")
def main() -> None:
    """Find anomalies in tables, at a false discovery rate that you choose.

    Exit codes: 0 all is well, 1 the input is at fault, 2 usage.
    """
