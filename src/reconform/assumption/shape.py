"""The shape of the histogram of p-values: where it leans, and whether it has a heap near 1.

Normal rows have uniform p-values: a flat histogram. Anomalies add a peak at the left. Each rule
looks where anomalies are not:

- *leans left*: among p > 1/5 the mean is too small, so ordinary rows are more unusual than the
  reference;
- *leans right*: that mean is too large, so new rows are more ordinary than the reference;
- *heap near 1*: among p > 1/2 too many are above 9/10, while those below 9/10 do not lean right:
  new rows that a model has seen, or nearly.

A rule needs an effect that matters and one that chance does not explain. Flat is not assumed but
compared: with the p-values that calibration scores have among themselves, so tied scores do not
look like drift. Mild anomalies lean left, too, so each is a note: `shift` has the test that
tolerates anomalies.
"""

from __future__ import annotations

import math

import numpy as np

from ..arrays import FloatArray, IntArray
from .verdict import Finding

# Shapes are read from this many p-values on each side.
LEAST_NEW, LEAST_KNOWN = 40, 20
BULK = 0.2
UPPER, NEAR_ONE = 0.5, 0.9
# By chance alone a shape is misread about once in 1,000 histograms (once in 300 for 60 rows).
STANDARD_ERRORS = 3.5
LEAN = 0.05  # of the width of the bulk
HEAP = 1.5  # times as many as expected

LEFT, RIGHT, HEAPED = "leans left", "leans right", "heap near 1"


def readable(counts: IntArray, known: FloatArray | None) -> bool:
    """Whether there are enough rows for any shape to be more than chance."""
    p, times, expected = _histogram(counts, known)
    enough = int(times[p > BULK].sum()) >= LEAST_NEW
    return enough and int((expected > BULK).sum()) >= LEAST_KNOWN


def shape_finding(counts: IntArray, known: FloatArray | None = None) -> Finding | None:
    """Read the histogram of a batch; None if it looks flat, or has too few rows.

    Parameters
    ----------
    counts : int array of shape (n + 2,)
        How many new rows have each rank, 1 to n + 1.
    known : float array of shape (n,), optional
        Calibration scores, for the p-values that reference rows have among themselves; uniform if
        they are not given, or not n.

    Returns
    -------
    Finding or None
        A note; `check` is "leans left", "leans right" or "heap near 1".

    Examples
    --------
    >>> import numpy as np
    >>> flat, squares = np.arange(1, 1001), np.ceil(np.arange(1, 1001) ** 2 / 1000).astype(int)
    >>> shape_finding(np.bincount(flat, minlength=1001))
    >>> shape_finding(np.bincount(squares, minlength=1001)).check
    'leans left'
    """
    if not readable(counts, known):
        return None
    p, times, expected = _histogram(counts, known)
    share, usual, error = _heap(p, times, expected)
    heaped = share > HEAP * usual and share - usual > STANDARD_ERRORS * error
    if heaped and _side(_lean(p, times, expected, below=NEAR_ONE)) <= 0:
        return Finding(
            HEAPED,
            "note",
            f"Too many new rows look more normal than the reference itself: of the p-values above "
            f"{UPPER:g}, {share:.0%} are above {NEAR_ONE:g}, where {usual:.0%} ± {error:.0%} are "
            "usual.",
            "Check the new rows for copies of reference rows, or rows that were made from them.",
        )
    mean, usual, error = lean = _lean(p, times, expected)
    side = _side(lean)
    if not side:
        return None
    said = (
        f"the p-values above {BULK:g} have mean {mean:.3f}, where {usual:.3f} ± {error:.3f} is "
        "usual."
    )
    if side < 0:
        return Finding(
            LEFT,
            "note",
            f"Ordinary new rows are more unusual than the reference, too: {said}",
            "Either the process has moved, and then what is said of false alarms does not hold, or "
            "many new rows are mildly unusual.",
        )
    return Finding(
        RIGHT,
        "note",
        f"New rows are more ordinary than the reference: {said}",
        "The reference is more varied than the new rows, or has anomalies in it: false alarms are "
        "rarer than stated, and anomalies harder to find.",
    )


def _histogram(
    counts: IntArray, known: FloatArray | None
) -> tuple[FloatArray, IntArray, FloatArray]:
    """p-values on the grid, how many new rows have each, and those of normal rows."""
    n = len(counts) - 2
    p = np.arange(n + 2) / (n + 1)
    if known is None or len(known) != n:
        return p, counts, np.arange(1, n + 1) / n
    return p, counts, np.asarray(np.searchsorted(np.sort(known), known, side="right") / n)


def _heap(p: FloatArray, times: IntArray, expected: FloatArray) -> tuple[float, float, float]:
    """The share of p-values near 1 among those above a half, what is usual, and its error."""
    upper, known = int(times[p > UPPER].sum()), expected[expected > UPPER]
    if not upper or not len(known):
        return 0.0, 1.0, 0.0
    usual = float((known > NEAR_ONE).mean())
    spread = math.sqrt(usual * (1 - usual) * (1 / upper + 1 / len(known)))
    return float(times[p > NEAR_ONE].sum() / upper), usual, spread


def _lean(
    p: FloatArray, times: IntArray, expected: FloatArray, below: float = 1.0
) -> tuple[float, float, float]:
    """The mean of the p-values in the bulk, what is usual, and its error."""
    bulk = (p > BULK) & (p <= below)
    known = expected[(expected > BULK) & (expected <= below)]
    rows = int(times[bulk].sum())
    if not rows or not len(known):
        return 0.0, 0.0, 0.0
    spread = float(known.std()) * math.sqrt(1 / rows + 1 / len(known))
    return float(times[bulk] @ p[bulk] / rows), float(known.mean()), spread


def _side(lean: tuple[float, float, float]) -> int:
    """-1 to the left, 1 to the right, 0 for neither."""
    mean, usual, error = lean
    enough = abs(mean - usual) > max(LEAN * (1 - BULK), STANDARD_ERRORS * error)
    return (1 if mean > usual else -1) if enough else 0
