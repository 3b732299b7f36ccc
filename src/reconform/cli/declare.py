"""How commands and their options are declared: help in sections, options in families.

A message of the library names a parameter as Python does, in backquotes: `` `drop` ``, or
`` `overwrite=True` ``. Here, and nowhere else, it becomes the option, as this was declared; an
option that the command does not have is named with one that has it. A command in backquotes,
`` `reconform clean` ``, is completed with the files and options of the run, so that it can be
pasted.
"""

from __future__ import annotations

import ast
import csv
import io
import os
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, TypeVar

import click

from ..errors import ReconformError

Function = TypeVar("Function", bound=Callable[..., Any])
Given = tuple[tuple[str, ...], dict[str, Any]]


TYPED, MODEL = "reconform.typed", "reconform.model"


class Option(click.Option):
    """An option that knows its section of the help."""

    def __init__(self, *declarations: Any, section: str = "Options", **attributes: Any) -> None:
        super().__init__(*declarations, **attributes)
        self.section = section

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Convert a value; refuse bytes that are no text, except in names of files."""
        for text in value if isinstance(value, tuple | list) else (value,):
            if isinstance(text, str) and not isinstance(self.type, click.Path):
                try:
                    text.encode()
                except UnicodeEncodeError as error:
                    said = f"{os.fsencode(text)!r} is not UTF-8 text."
                    raise click.BadParameter(said, ctx, self) from error
        return super().type_cast_value(ctx, value)


class Command(click.Command):
    """A command whose help has an example, and lists the options in sections."""

    def __init__(self, *arguments: Any, examples: Sequence[str], **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.examples = examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words as they were typed, for commands that are advised."""
        ctx.meta[TYPED] = list(args)
        return super().parse_args(ctx, args)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description and the examples."""
        super().format_help_text(ctx, formatter)
        write_examples(formatter, self.examples)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a list per section, in the order of the options."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and not isinstance(parameter, click.Argument):
                sections.setdefault(getattr(parameter, "section", "Options"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    """Write commands as they are, in lines that are not broken."""
    with formatter.section("Example" if len(examples) == 1 else "Examples"):
        for example in examples:
            formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


class WholeNumber(click.IntRange):
    """A whole number within limits, called so where a value is none."""

    name = "whole number"


class Number(click.FloatRange):
    """A number within limits, called so where a value is none."""

    name = "number"


# The options that each parameter of the library has on the command line: one in most commands.
SPELLED: dict[str, list[str]] = {}

# Parameters of methods, which `--set` takes.
SET_BY = ("folds", "draws", "calibration", "repeats")


def option(
    *declarations: str, library: str | Sequence[str] | None = None, **attributes: Any
) -> Given:
    """Declare an option of a `family`.

    Parameters
    ----------
    *declarations : str
        The option and, where the name of the value is another, that name.
    library : str or sequence of str, optional
        What the parameter is called in Python, where it has yet another name, or several: messages
        of the library name it, and the command line spells it as this option.
    **attributes
        As `click.option` takes them.
    """
    own = declarations[-1].removeprefix("--").replace("-", "_")
    for name in [own, library] if isinstance(library, str) else [own, *(library or ())]:
        SPELLED.setdefault(name, []).append(declarations[0])
    return declarations, attributes


PATH = click.Path(path_type=str, allow_dash=True)


def flag(name: str, help: str, *, library: str | None = None) -> Given:
    """Declare an option without a value."""
    return option(name, library=library, is_flag=True, help=help)


def file(name: str, help: str, **attributes: Any) -> Given:
    """Declare an option that takes the name of a file."""
    return option(name, type=PATH, metavar="FILE", help=help, **attributes)


def count(
    name: str,
    default: int | str,
    help: str,
    *,
    least: int = 1,
    library: str | None = None,
    parameter: str | None = None,
) -> Given:
    """Declare an option that takes a whole number.

    Parameters
    ----------
    name : str
        Such as ``"--folds"``.
    default : int or str
        The value without it; a text says what happens then, and the value is None.
    help : str
    least : int
        The smallest number that is taken.
    library : str, optional
        As in `option`.
    parameter : str, optional
        The name of the value, where that of the option cannot be one.
    """
    return option(
        *((name,) if parameter is None else (name, parameter)),
        library=library,
        type=WholeNumber(least),
        metavar="N",
        help=help,
        **_default(default),
    )


def choice(
    name: str, choices: Iterable[str], default: str | None, help: str, *, library: str | None = None
) -> Given:
    """Declare an option that takes one of a few words."""
    return option(
        name,
        library=library,
        type=click.Choice(list(choices)),
        default=default,
        show_default=default is not None,
        help=help,
    )


def _default(default: float | str) -> dict[str, Any]:
    if isinstance(default, str):
        return {"show_default": default}
    return {"default": default, "show_default": True}


def family(
    parameter: str, section: str, kind: Callable[..., Any], options: Sequence[Given]
) -> Callable[[Function], Function]:
    """Make a decorator that hands a command one value instead of many options.

    Parameters
    ----------
    parameter : str
        Of the command.
    section : str
        Of the help.
    kind : dataclass
        With a field for each of the options.
    options : sequence of `option`
    """

    def decorate(command: Function) -> Function:
        decorated = command
        for declarations, attributes in reversed(options):
            add = click.option(*declarations, cls=Option, section=section, **attributes)
            decorated = add(decorated)
        added = decorated.__click_params__[-len(options) :]  # type: ignore[attr-defined]
        names = [one.name for one in added]

        @wraps(decorated)
        def call(*arguments: Any, **values: Any) -> Any:
            try:
                values[parameter] = kind(**{name: values.pop(name) for name in names})
            except ReconformError as error:
                raise click.UsageError(in_options(str(error))) from error
            return command(*arguments, **values)

        return call  # type: ignore[return-value]

    return decorate


PARAMETER = re.compile(r"`([a-z_]+)(?:=([^`]*))?`")
COMMAND = re.compile(r"`reconform ([a-z]+)((?: [^`]*)?)`")


def in_options(message: str) -> str:
    """Spell the parameters in a message as options.

    Examples
    --------
    >>> in_options("leave it out with `drop`, or call it missing with `prepare=True`.")
    'leave it out with --drop, or call it missing with --prepare.'
    >>> in_options("give `delimiter=';'` or `format='tsv'`, or carry `id_columns=['a', 'b']`.")
    "give --delimiter ';' or --format tsv, or carry --id a,b."

    What has no option is still named:

    >>> in_options("`n_neighbors=5` needs at least 5 rows.")
    'n_neighbors (5) needs at least 5 rows.'
    """
    return COMMAND.sub(_complete, PARAMETER.sub(_spell, message))


def _spell(found: re.Match[str]) -> str:
    name, value = found[1], found[2]
    running = _command()
    if name in SET_BY and (running is None or not _takes(running[1], f"--{name}")):
        return f"--set {name}" if value is None else f"--set {name}={value}"
    if name not in SPELLED:
        return name if value is None else f"{name} ({value})"
    taken = (one for one in SPELLED[name] if running is not None and _takes(running[1], one))
    option = next(taken, SPELLED[name][0])
    home = _home_of(option)
    option = option if home is None else f"reconform {home} {option}"
    return option if value in (None, "True") else f"{option} {_word(value)}"


def _command() -> tuple[click.Context, click.Command] | None:
    """The command that runs, or has just failed."""
    ctx = click.get_current_context(silent=True)
    if ctx is None:
        return None
    if not isinstance(ctx.command, click.Group):
        return ctx, ctx.command
    name = ctx.invoked_subcommand
    command = None if name is None else ctx.command.get_command(ctx, name)
    return None if command is None else (ctx, command)


def _home_of(option: str) -> str | None:
    """The command that has an option, where the one that runs has not."""
    running = _command()
    if running is None or _takes(running[1], option):
        return None
    root = running[0].find_root()
    group = root.command
    assert isinstance(group, click.Group)
    # With a model, what is otherwise given to `detect` was given to `fit`.
    first = "fit" if _takes(running[1], "model") else "detect"
    for name in (first, "detect", "fit", "score", "stream"):
        command = group.get_command(root, name)
        if command is not None and _takes(command, option):
            return name
    return None


def _takes(command: click.Command, option: str) -> bool:
    return any(option in one.opts for one in command.params)


# Which options of a run an advised command takes over: those of these sections of the help. The
# same command takes over all but its results.
CARRIED = {
    "detect": ("Decision", "Detector and method", "Columns", "Files"),
    "clean": ("Columns", "Files"),
    "score": ("Decision", "Model", "Files"),
}
RESULTS = ("output", "overwrite", "report", "quiet", "json", "explain")


def _complete(found: re.Match[str]) -> str:
    """Complete an advised command with the files and options of the run."""
    name, more = found[1], shlex.split(found[2])
    running = _command()
    if running is None or running[0].command is not running[1]:
        return found[0]
    ctx, command = running
    root = ctx.find_root()
    assert isinstance(root.command, click.Group)
    target = root.command.get_command(root, name)
    assert target is not None
    # As it was typed; a run with a model has the reference, and how it was read, from there.
    parsed, _, _ = command.make_parser(ctx).parse_args(args=list(ctx.meta[TYPED]))
    typed: dict[str, Any] = {
        name: one for name, one in parsed.items() if isinstance(one, str | list | bool)
    }
    if name != "score":  # which has it from the model, too
        typed |= ctx.meta.get(MODEL, {})
    words = ["reconform", name]
    for one in target.params:
        given = typed.get(str(one.name))
        if one.opts[0] in more:  # advised in another way
            continue
        if isinstance(one, click.Argument):
            words.append(str(one.name).upper() if given in (None, "-") else given)
        elif given is not None and (
            one.name not in RESULTS
            if command is target
            else getattr(one, "section", "") in CARRIED.get(name, CARRIED["detect"])
        ):
            for value in given if isinstance(given, list) else [given]:
                if "--method" in more and str(value).startswith(SET_BY):
                    continue  # gone with the method
                words += [one.opts[0]] if value is True else [one.opts[0], value]
    taken = {one.name for one in target.params}
    for aside in ("label", "group"):  # columns that are no features
        if aside not in taken and aside in typed and "columns" not in typed:
            words += ["--drop", names_typed([str(typed[aside])])]
    return f"`{shlex.join([*words, *more])}`"


def names_typed(names: Sequence[str]) -> str:
    """Names of columns with commas between them, as options read them."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(names)
    return line.getvalue()


def _word(literal: str) -> str:
    """A value as it is typed, from what Python would write."""
    try:
        value = ast.literal_eval(literal)
    except (SyntaxError, ValueError):  # a placeholder such as ...
        return literal
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if re.fullmatch(r"[\w.,+-]*[\w+-][\w.,+-]*", text) else repr(text)
