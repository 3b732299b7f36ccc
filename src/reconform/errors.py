"""Errors of one shape: what must hold, what was got, and the way out.

Everything that the library raises on purpose derives from `ReconformError`: what was given is at
fault, and the sentence says what to do. Any other exception is a bug, apart from the `OSError` of
a disk or a file.
"""

from __future__ import annotations

import difflib
import numbers
import sys
import warnings
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeGuard

MOST_LISTED = 6
LONGEST_NAME = 80


class ReconformError(ValueError):
    """What was given is at fault; the message says what is wrong, where, and what to do."""


class BatchDependenceError(ReconformError):
    """A detector whose score of a row depends on the other rows of the batch."""


class ModelFileError(ReconformError):
    """A file that is no model, or one that cannot be loaded safely; the message says why."""


class ExtraImportError(ReconformError, ImportError):
    """A package that is not needed by all, and not installed; the message says how to get it."""


class InputError(ReconformError):
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
        self, path: str | Path, message: str, *, line: int | None = None, column: str | None = None
    ) -> None:
        where = f"{path}" if line is None else f"{path}, line {line:,}"
        super().__init__(f"{where}: {message}")
        self.path = str(path)
        self.line = line
        self.column = column


class UnlabelledRowWarning(UserWarning):
    """Smoothed p-values of single rows that nothing tells apart are not independent."""


class ReferenceWarning(UserWarning):
    """The reference tells less than it might: it is too small, or some of it never changes."""


# Who was warned of what already. Python's own memory of warnings is lost whenever any library
# changes the filters, as scikit-learn does in every call.
_TOLD: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def warn_once(whom: Any, topic: str, sentence: str, category: type[Warning]) -> None:
    """Warn the caller of the package; for every object and topic once.

    Parameters
    ----------
    whom : object
        What the warning is about; None to warn always.
    topic : str
        What tells warnings about it apart.
    sentence : str
    category : type of warning
    """
    if whom is not None:
        told = _TOLD.setdefault(whom, set())
        if topic in told:
            return
        told.add(topic)
    warnings.warn(sentence, category, stacklevel=_level_of_caller())


def _level_of_caller() -> int:
    """The ``stacklevel`` of the line outside this package that asked."""
    package = __name__.partition(".")[0]
    level, frame = 1, sys._getframe(1)
    while (
        frame.f_back is not None
        and str(frame.f_globals.get("__name__")).partition(".")[0] == package
    ):
        level, frame = level + 1, frame.f_back
    return level


@contextmanager
def blame_input() -> Iterator[None]:
    """Turn the `ValueError` of another library into ours: its sentence is about what was given.

    Only around calls whose ValueErrors are such sentences: the checks of scikit-learn, and the
    `fit` and scores of somebody else's detector.

    Examples
    --------
    >>> with blame_input():
    ...     raise ValueError("Input X contains NaN.")
    Traceback (most recent call last):
        ...
    reconform.errors.ReconformError: Input X contains NaN.
    """
    try:
        yield
    except ValueError as error:
        # scikit-learn's NotFittedError, which is an AttributeError too, is left as it is.
        if isinstance(error, ReconformError | AttributeError):
            raise
        raise ReconformError(str(error)) from error


def unknown_choice(argument: str, value: object, choices: Iterable[str]) -> ReconformError:
    """Build the error for a name that is not among the known ones, with the nearest as a hint.

    Examples
    --------
    >>> unknown_choice("method", "jacknife", ["jackknife", "split"]).args[0]
    "method must be one of 'jackknife', 'split'; got 'jacknife'. Did you mean 'jackknife'?"
    """
    names = list(choices)
    message = f"{argument} must be one of {', '.join(map(repr, names))}; got {value!r}."
    return ReconformError(message + nearest(str(value), names, cutoff=0.5))


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a real number, and not True or False, which Python counts among them.

    Examples
    --------
    >>> is_number(2.5), is_number(True), is_number("2.5")
    (True, False, False)
    """
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_probability(argument: str, value: object) -> float:
    """Return `value` as a float strictly between 0 and 1, or say what is wrong with it."""
    if not is_number(value) or not 0 < float(value) < 1:
        raise ReconformError(
            f"{argument} must be a number strictly between 0 and 1; got {value!r}."
        )
    return float(value)


def check_count(argument: str, value: object, *, least: int) -> int:
    """Return `value` as an int of at least `least`, or say what is wrong with it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < least:
        raise ReconformError(f"{argument} must be an integer of at least {least}; got {value!r}.")
    return int(value)


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


def nearest(name: str, names: Sequence[str], cutoff: float = 0.6) -> str:
    """Return a hint at the name that was probably meant, or nothing.

    Examples
    --------
    >>> nearest("Presure", ["pressure", "time"])
    " Did you mean 'pressure'?"
    """
    plain = {other.strip().lower(): other for other in reversed(names)}
    close = difflib.get_close_matches(name.strip().lower(), list(plain), n=1, cutoff=cutoff)
    return f" Did you mean {plain[close[0]]!r}?" if close else ""
