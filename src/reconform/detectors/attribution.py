"""Which features carry the score of a row: a description of the row, not a theorem about it.

A detector of ours that adds up something over the features says how much each adds
(`NativeDetector.attribution`). For every other one, features are replaced one at a time by what is
typical near the row, and the score says which of them matter (`by_replacing`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import FloatArray, IndexArray


@dataclass(frozen=True, eq=False)
class Attribution:
    """How much of the score of one row each feature carries.

    Attributes
    ----------
    shares : float array of shape (d,)
        They add up to 1; all 0 where no feature alone makes a difference.
    how : str
        What they are shares of, to follow "Shares are of ".
    """

    shares: FloatArray
    how: str


def in_shares(parts: FloatArray, how: str) -> Attribution | None:
    """Divide parts that are not negative by their sum; None where that is no number.

    Examples
    --------
    >>> in_shares(np.array([3.0, 1.0]), "the distance").shares
    array([0.75, 0.25])
    """
    largest = parts.max(initial=0.0)
    if not np.isfinite(largest) or np.isnan(parts).any():
        return None
    if largest > 0:
        parts = parts / largest  # sums of large numbers overflow
        parts = parts / parts.sum()
    return Attribution(np.asarray(parts), how)


def nearest(x: FloatArray, rows: FloatArray, count: int, power: float = 2.0) -> IndexArray:
    """Find the rows that are nearest to a row, the nearest first.

    Examples
    --------
    >>> nearest(np.array([0.0, 0.0]), np.array([[3.0, 0.0], [1.0, 1.0], [9.0, 9.0]]), 2)
    array([1, 0])
    """
    with np.errstate(over="ignore"):
        far = (np.abs(rows - x) ** power).sum(axis=1)
    first = np.argpartition(far, min(count, len(far)) - 1)[:count]
    return np.asarray(first[np.argsort(far[first], kind="stable")])


def by_differences(
    x: FloatArray, rows: FloatArray, how: str, power: float = 2.0
) -> Attribution | None:
    """Share out the distances of a row to others, raised to a power, among the features."""
    differences = np.abs(rows - x)
    with np.errstate(invalid="ignore"):
        scaled = differences / max(float(differences.max(initial=0.0)), np.finfo(np.float64).tiny)
    return in_shares((scaled**power).sum(axis=0), how)


def distance_in_words(power: float) -> str:
    """Name the sum over features that a Minkowski distance is a root of.

    Examples
    --------
    >>> distance_in_words(2.0), distance_in_words(1.0), distance_in_words(3.0)
    ('the squared distance', 'the distance', 'the distance to the power of 3')
    """
    words = {1.0: "the distance", 2.0: "the squared distance"}
    return words.get(float(power), f"the distance to the power of {power:g}")


def nth_nearest(k: int) -> str:
    """Name a neighbour.

    Examples
    --------
    >>> nth_nearest(1), nth_nearest(2), nth_nearest(11), nth_nearest(23)
    ('the nearest', 'the 2nd nearest', 'the 11th nearest', 'the 23rd nearest')
    """
    if k == 1:
        return "the nearest"
    ending = {1: "st", 2: "nd", 3: "rd"}.get(k % 10, "th") if k % 100 not in (11, 12, 13) else "th"
    return f"the {k}{ending} nearest"


REPLACED = (
    "what the score rises by when one feature alone is set to its median among the nearest normal "
    "rows"
)


def by_replacing(as_it_is: float, replaced: FloatArray) -> Attribution | None:
    """Share out the rise of a score among the features that were replaced one at a time.

    Parameters
    ----------
    as_it_is : float
        Score of the row, small = anomalous.
    replaced : float array of shape (d,)
        Its score with each feature replaced; `as_it_is` where a feature is typical already.

    Returns
    -------
    Attribution or None
        Features without which the row would score lower still have no share. None where scores
        are infinite.

    Examples
    --------
    >>> by_replacing(-9.0, np.array([-3.0, -7.0, -9.5])).shares
    array([0.75, 0.25, 0.  ])
    """
    with np.errstate(invalid="ignore"):
        rises = replaced - as_it_is
    return in_shares(np.maximum(rises, 0.0), REPLACED)
