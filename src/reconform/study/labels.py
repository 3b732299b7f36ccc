"""Rows of the results are told apart by labels, so every list of things has different ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def as_list(argument: str, given: Iterable[Any]) -> list[Any]:
    """Return a list, and refuse the string that was meant to be in one.

    Examples
    --------
    >>> as_list("methods", "cv")
    Traceback (most recent call last):
    ...
    ValueError: methods must be a list; got 'cv'. Say methods=['cv'].
    """
    if isinstance(given, str):
        raise ValueError(f"{argument} must be a list; got {given!r}. Say {argument}=[{given!r}].")
    return list(given)


def unpack(given: Any) -> tuple[str | None, Any]:
    """Take a ``(label, thing)`` pair apart; a thing on its own has no label yet."""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        return given
    return None, given


def check_labels(argument: str, labels: list[str]) -> None:
    """Refuse an empty list, and labels that occur twice."""
    if not labels:
        raise ValueError(f"{argument} must have at least one entry; got none.")
    twice = [label for label in labels if labels.count(label) > 1]
    if twice:
        raise ValueError(
            f"{argument} must have different labels; got {twice[0]!r} more than once. Put a label "
            "of your own in front, (label, ...), to tell them apart."
        )
