"""What the histogram of p-values says, in plain words.

Normal rows have uniform p-values: a flat histogram. Anomalies add a peak at the left. Every
other shape means that something is off, and each rule below looks where anomalies are not:

- *drifted*: among p > 1/5 the mean is too small, so ordinary rows are more unusual than the
  reference;
- *cautious*: that mean is too large, so new rows are more ordinary than the reference;
- *duplicates*: among p > 1/2 too many are above 9/10, while those below 9/10 do not lean right; or
  many new rows equal reference rows;
- *reference too small*: nothing is flagged, rows have the smallest p-value there is, more of them
  than chance would have or than a common share of anomalies, and yet too few to make a list.

A rule needs an effect that matters and one that chance does not explain. Flat is not assumed but
compared: with the p-values that calibration scores have among themselves, so tied scores do not
look like drift.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..arrays import FloatArray
from ..rule import shortest_list
from ..statistics.exact import exact_fraction
from .safe_text import percent

# Shapes are read from this many p-values on each side.
LEAST_NEW, LEAST_REFERENCE = 40, 20
BULK = 0.2
UPPER, NEAR_ONE = 0.5, 0.9
# By chance alone a shape is misread about once in 1,000 histograms (once in 300 for 60 rows).
STANDARD_ERRORS = 3.5
LEAN = 0.05  # of the width of the bulk
HEAP = 1.5  # times as many as expected
COPIES, TWINS = 0.01, 2.0
# Rows below all calibration scores are more than chance; a list must be longer than usual ones.
CHANCE, USUAL_LIST = 0.05, 0.05


@dataclass(frozen=True)
class Diagnosis:
    """One conclusion from the histogram.

    Attributes
    ----------
    kind : str
        "healthy", "drifted", "cautious", "duplicates", "reference too small", "too few rows" or
        "not uniform by design".
    title, text : str
        In words.
    rule : str
        The numbers and the thresholds behind it.
    """

    kind: str
    title: str
    text: str
    rule: str

    @property
    def doubtful(self) -> bool:
        """Whether it is a reason to doubt the result."""
        return self.kind in ("drifted", "cautious", "duplicates", "reference too small")


def read_p_values(
    p_values: FloatArray,
    *,
    fdr: float | Fraction | None = 0.1,
    count: int = 0,
    n_calibration: int | None = None,
    calibration_scores: FloatArray | None = None,
    nature: str = "conservative",
    line: float | None = None,
    copies: tuple[int, float] = (0, 0.0),
) -> tuple[Diagnosis, ...]:
    """Read the histogram of a batch.

    Parameters
    ----------
    p_values : float array
    fdr : float or None
        None if the list was not made for one: then the size of the reference is not judged by it.
    count : int
        Discoveries at that level.
    n_calibration : int, optional
    calibration_scores : float array, optional
        For the p-values that reference rows have among themselves; uniform if not given.
    nature : str
        As `p_value_nature` says.
    line : float, optional
        As `step_up_line` gives it; the number of rows by default.
    copies : tuple
        How many new rows equal a reference row, and the share of reference rows with a twin.

    Returns
    -------
    tuple of Diagnosis
        What needs attention first; healthy only on its own.

    Examples
    --------
    >>> import numpy as np
    >>> flat = np.arange(1, 1001) / 1000
    >>> [diagnosis.kind for diagnosis in read_p_values(flat, n_calibration=999)]
    ['healthy']
    >>> [diagnosis.kind for diagnosis in read_p_values(flat**2, count=38, n_calibration=999)]
    ['drifted']
    """
    diagnoses = []
    if nature == "conservative" and n_calibration is not None and fdr is not None:
        diagnoses += _reference_size(p_values, fdr, count, n_calibration, line)
    diagnoses += _copies(copies, len(p_values))
    if nature == "corrected":
        return (*diagnoses, _CORRECTED)
    expected = _expected(n_calibration, calibration_scores if nature == "conservative" else None)
    shape = _shape(p_values, expected)
    if any(diagnosis.kind == "duplicates" for diagnosis in diagnoses):
        shape = [diagnosis for diagnosis in shape if diagnosis.kind != "duplicates"]
    return tuple(diagnoses + shape) or (_healthy(count, _lean(p_values, expected)),)


def _expected(n_calibration: int | None, scores: FloatArray | None) -> FloatArray:
    """p-values of normal rows: those of the calibration scores among themselves, or uniform."""
    n = 1000 if n_calibration is None else n_calibration
    if scores is None or len(scores) != n:
        return np.arange(1, n + 1) / n
    return np.asarray(np.searchsorted(np.sort(scores), scores, side="right") / n)


def _shape(p: FloatArray, expected: FloatArray) -> list[Diagnosis]:
    new, known = (p > BULK).sum(), (expected > BULK).sum()
    if new < LEAST_NEW or known < LEAST_REFERENCE:
        return [
            Diagnosis(
                "too few rows",
                "Too few rows to read the shape",
                "With so few p-values, chance alone makes any shape. The decision stands; the "
                "histogram can neither confirm nor question it.",
                f"{new:,} new and {known:,} reference rows have p > {BULK:g}; "
                f"{LEAST_NEW} and {LEAST_REFERENCE} are needed.",
            )
        ]
    share, usual, error = _heap(p, expected)
    heaped = share > HEAP * usual and share - usual > STANDARD_ERRORS * error
    if heaped and _leans(_lean(p, expected, below=NEAR_ONE)) <= 0:
        return [
            Diagnosis(
                "duplicates",
                "A heap near 1: copies of reference rows?",
                "Too many new rows look more normal than the reference itself, as rows do that a "
                "model has already seen. Check the new data for rows that are also in the "
                "reference: they can hide anomalies, and say nothing about new ones.",
                f"Of the p-values above {UPPER:g}, {share:.0%} are above {NEAR_ONE:g}; {usual:.0%} "
                f"± {error:.0%} are usual (rule: {HEAP:g} times, {STANDARD_ERRORS:g} errors).",
            )
        ]
    lean = _lean(p, expected)
    return [_leaning(*lean)] if _leans(lean) else []


def _heap(p: FloatArray, expected: FloatArray) -> tuple[float, float, float]:
    """The share of p-values near 1 among those above a half, what is usual, and its error."""
    upper, known = p[p > UPPER], expected[expected > UPPER]
    if not len(upper) or not len(known):
        return 0.0, 1.0, 0.0
    usual = float((known > NEAR_ONE).mean())
    spread = math.sqrt(usual * (1 - usual) * (1 / len(upper) + 1 / len(known)))
    return float((upper > NEAR_ONE).mean()), usual, spread


def _lean(p: FloatArray, expected: FloatArray, below: float = 1.0) -> tuple[float, float, float]:
    """The mean of the p-values in the bulk, what is usual, and its error."""
    bulk, known = (values[(values > BULK) & (values <= below)] for values in (p, expected))
    if not len(bulk) or not len(known):
        return 0.0, 0.0, 0.0
    spread = float(known.std()) * math.sqrt(1 / len(bulk) + 1 / len(known))
    return float(bulk.mean()), float(known.mean()), spread


def _leans(lean: tuple[float, float, float]) -> int:
    """-1 to the left, 1 to the right, 0 for neither."""
    mean, usual, error = lean
    enough = abs(mean - usual) > max(LEAN * (1 - BULK), STANDARD_ERRORS * error)
    return (1 if mean > usual else -1) if enough else 0


def _lean_rule(mean: float, usual: float, error: float) -> str:
    return (
        f"The p-values above {BULK:g} have mean {mean:.3f}; {usual:.3f} ± {error:.3f} is usual "
        f"(rule: off by {LEAN * (1 - BULK):g}, and by {STANDARD_ERRORS:g} errors)."
    )


def _leaning(mean: float, usual: float, error: float) -> Diagnosis:
    rule = _lean_rule(mean, usual, error)
    if mean < usual:
        return Diagnosis(
            "drifted",
            "The whole histogram leans left: drifted?",
            "Not only a few rows are unusual: ordinary new rows are more unusual than the "
            "reference too. Either the process has moved since the reference was taken, or a large "
            "part of the new rows is mildly unusual. If it is drift, what is said of false alarms "
            "does not hold: take a new reference.",
            rule,
        )
    return Diagnosis(
        "cautious",
        "The histogram leans right: new rows are more ordinary than the reference",
        "The reference is more varied than the new rows, or has anomalies in it. False alarms "
        "are rarer than stated, and anomalies harder to find: a cleaner reference would help.",
        rule,
    )


def _reference_size(
    p: FloatArray, fdr: float | Fraction, count: int, n: int, line: float | None
) -> list[Diagnosis]:
    m, line = len(p), float(len(p)) if line is None else line
    least = shortest_list(line, Fraction(1, n + 1), fdr)
    beyond = int((p * (n + 1) < 1.5).sum())
    chance = _chance_below_all(beyond, m, n)
    hidden = beyond and (least > USUAL_LIST * m or chance <= CHANCE)
    if count or least < 2 or not (least > m or hidden):
        return []
    seen = f"{beyond:,} new row" + (" is" if beyond == 1 else "s are")
    enough = math.ceil(Fraction(line) / exact_fraction("fdr", fdr)) - 1
    return [
        Diagnosis(
            "reference too small",
            "The reference is too small for this batch",
            f"With {n:,} calibration scores and {m:,} new rows, fewer than {least:,} anomalies "
            f"cannot be flagged at {percent(float(fdr))}. {seen} more unusual than every reference "
            f"row. What helps: more reference rows (from {enough:,} calibration scores on, a "
            "single row can be flagged), fewer new rows at a time, or a higher level.",
            f"The smallest p-value is 1/{n + 1:,}. Normal rows alone would have {beyond:,} or "
            f"more there with probability {chance:.2g} (rule: up to {CHANCE:g}, or the "
            f"shortest list is above {USUAL_LIST:.0%} of the rows).",
        )
    ]


def _chance_below_all(k: int, m: int, n: int) -> float:
    """The probability that k of m normal rows or more lie below all n scores."""
    # All orders are equally likely; in these, the k smallest of n + m are all new.
    return float(np.prod([(m - i) / (n + m - i) for i in range(k)]))


def _copies(copies: tuple[int, float], m: int) -> list[Diagnosis]:
    number, twins = copies
    if number <= max(COPIES, TWINS * twins) * m:
        return []
    return [
        Diagnosis(
            "duplicates",
            "Reference rows are in the new data",
            f"{number:,} of {m:,} new rows are exact copies of reference rows. The detector has "
            "already seen them, so their p-values say nothing: leave them out and run again.",
            f"{number / m:.1%} of the new rows are copies; {twins:.1%} of the reference rows have "
            f"a twin in the reference (rule: above {COPIES:.0%}, and above {TWINS:g} times that).",
        )
    ]


_CORRECTED = Diagnosis(
    "not uniform by design",
    "Corrected p-values: the shape is not read",
    "These p-values were made larger, so that a theorem holds for them. Their histogram is not "
    "flat even if every row is normal, so its shape says nothing about the data.",
    "The p-values are not on the grid r/(n+1).",
)


def _healthy(count: int, lean: tuple[float, float, float]) -> Diagnosis:
    shape = (
        "Flat, with a peak at the left: some anomalies among rows that look like the reference."
        if count
        else "Flat: the new rows look like the reference."
    )
    text = f"{shape} This is what the method assumes, and nothing here speaks against it."
    return Diagnosis("healthy", "The histogram looks healthy", text, _lean_rule(*lean))
