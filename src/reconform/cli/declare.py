"""How commands and their options are declared: help in sections, options in families."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])
Given = tuple[tuple[str, ...], dict[str, Any]]


class Option(click.Option):
    """An option that knows its section of the help."""

    def __init__(self, *declarations: Any, section: str = "Options", **attributes: Any) -> None:
        super().__init__(*declarations, **attributes)
        self.section = section

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Convert a value; refuse bytes that are no text, except in names of files."""
        for text in value if isinstance(value, tuple | list) else (value,):
            if isinstance(text, str) and not isinstance(self.type, click.Path):
                _check_text(text, ctx, self)
        return super().type_cast_value(ctx, value)


def _check_text(text: str, ctx: click.Context, option: Option) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        shown = os.fsencode(text)
        raise click.BadParameter(f"{shown!r} is not UTF-8 text.", ctx, option) from error


class Command(click.Command):
    """A command whose help has an example, and lists the options in sections."""

    def __init__(self, *arguments: Any, examples: Sequence[str], **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.examples = examples

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


def option(*declarations: str, **attributes: Any) -> Given:
    """Write an option down, for a `family`."""
    return declarations, attributes


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
            values[parameter] = kind(**{name: values.pop(name) for name in names})
            return command(*arguments, **values)

        return call  # type: ignore[return-value]

    return decorate
