"""Messages of the library in the words of the command line.

A message of the library names a parameter as Python does, in backquotes: `` `drop` ``, or
`` `overwrite=True` ``. Here, and nowhere else, it becomes the option, as this was declared.
"""

from __future__ import annotations

import ast
import re

from .declare import SPELLED

PARAMETER = re.compile(r"`([a-z_]+)(?:=([^`]*))?`")


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
    return PARAMETER.sub(_spell, message)


def _spell(found: re.Match[str]) -> str:
    name, value = found[1], found[2]
    option = SPELLED.get(name)
    if option is None:
        return name if value is None else f"{name} ({value})"
    return option if value in (None, "True") else f"{option} {_word(value)}"


def _word(literal: str) -> str:
    """A value as it is typed, from what Python would write."""
    try:
        value = ast.literal_eval(literal)
    except (SyntaxError, ValueError):  # a placeholder such as ...
        return literal
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if re.fullmatch(r"[\w.,+-]*[\w+-][\w.,+-]*", text) else repr(text)
