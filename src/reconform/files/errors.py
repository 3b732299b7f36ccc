"""The one exception of the file layer, and how it lists columns."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

MOST_LISTED = 6
LONGEST_NAME = 80


class InputError(ValueError):
    """A file that cannot be used as it is, said in a sentence with the way out.

    Attributes
    ----------
    path : str
        The file, or "standard input".
    line : int or None
        Line of a text file, from 1, where it is known.
    column : str or None
        The column at fault, where there is exactly one.

    Examples
    --------
    >>> print(InputError("new.csv", "it has 3 fields, and the header has 4.", line=17))
    new.csv, line 17: it has 3 fields, and the header has 4.
    """

    def __init__(
        self,
        path: str | Path,
        message: str,
        *,
        line: int | None = None,
        column: str | None = None,
    ) -> None:
        where = f"{path}" if line is None else f"{path}, line {line:,}"
        super().__init__(f"{where}: {message}")
        self.path = str(path)
        self.line = line
        self.column = column


def listed(names: Iterable[str]) -> str:
    """Quote names for a sentence, and stop after a few.

    Examples
    --------
    >>> listed("abcdefgh")
    "'a', 'b', 'c', 'd', 'e', 'f' and 2 more"
    """
    quoted = [
        repr(name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…") for name in names
    ]
    shown = ", ".join(quoted[:MOST_LISTED])
    rest = len(quoted) - MOST_LISTED
    return f"{shown} and {rest} more" if rest > 0 else shown


def nearest(name: str, names: Sequence[str]) -> str:
    """Return a hint at the name that was probably meant, or nothing.

    Examples
    --------
    >>> nearest("Presure", ["pressure", "time"])
    " Did you mean 'pressure'?"
    """
    plain = {other.strip().lower(): other for other in reversed(names)}
    close = difflib.get_close_matches(name.strip().lower(), list(plain), n=1, cutoff=0.6)
    return f" Did you mean {plain[close[0]]!r}?" if close else ""
