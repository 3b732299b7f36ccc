"""Messages of one shape: what must hold, what was got, and the way out."""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Iterable


class BatchDependenceError(ValueError):
    """A detector whose score of a row depends on the other rows of the batch."""


class UnlabelledRowWarning(UserWarning):
    """Smoothed p-values of single rows that nothing tells apart are not independent."""


def unknown_choice(argument: str, value: object, choices: Iterable[str]) -> ValueError:
    """Build the error for a name that is not among the known ones, with the nearest as a hint.

    Examples
    --------
    >>> unknown_choice("method", "jacknife", ["jackknife", "split"]).args[0]
    "method must be one of 'jackknife', 'split'; got 'jacknife'. Did you mean 'jackknife'?"
    """
    names = list(choices)
    message = f"{argument} must be one of {', '.join(map(repr, names))}; got {value!r}."
    near = difflib.get_close_matches(str(value).lower(), names, n=1, cutoff=0.5)
    return ValueError(message + (f" Did you mean {near[0]!r}?" if near else ""))


def check_probability(argument: str, value: object) -> float:
    """Return `value` as a float strictly between 0 and 1, or say what is wrong with it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < 1:
        raise ValueError(f"{argument} must be a number strictly between 0 and 1; got {value!r}.")
    return float(value)


def check_count(argument: str, value: object, *, least: int) -> int:
    """Return `value` as an int of at least `least`, or say what is wrong with it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < least:
        raise ValueError(f"{argument} must be an integer of at least {least}; got {value!r}.")
    return int(value)
