"""Messages of the library in the words of the command line.

A message of the library names a parameter as Python does, in backquotes: `` `drop` ``, or
`` `overwrite=True` ``. Here, and nowhere else, it becomes the option.
"""

from __future__ import annotations

import ast
import re

# Parameters of the library whose options have other names, or values.
RENAMED = {
    "categories": "category",
    "id_columns": "id",
    "kind": "conditional",
    "n_jobs": "jobs",
    "random_state": "seed",
    "trusted": "trust",
}

# All others with an option have its name, but for the underscores.
SAME = (
    "anomaly_rate",
    "calibration",
    "columns",
    "conditional",
    "confidence",
    "data",
    "decimal",
    "delimiter",
    "detector",
    "draws",
    "drop",
    "fdr",
    "folds",
    "format",
    "label",
    "method",
    "missing",
    "overwrite",
    "prefix",
    "prepare",
    "procedure",
    "repeats",
    "storey_lambda",
    "test_size",
    "train_share",
    "validity",
)

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
    option = RENAMED.get(name, name if name in SAME else "")
    if not option:
        return name if value is None else f"{name} ({value})"
    option = f"--{option.replace('_', '-')}"
    return option if value in (None, "True") else f"{option} {_word(value)}"


def _word(literal: str) -> str:
    """A value as it is typed, from what Python would write."""
    try:
        value = ast.literal_eval(literal)
    except (SyntaxError, ValueError):  # a placeholder such as ...
        return literal
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if re.fullmatch(r"[\w.,+-]*[\w+-][\w.,+-]*", text) else repr(text)
