"""Why nothing is flagged: the reasons, in the order of the evidence."""

from __future__ import annotations

from ..arrays import IntArray
from ..statistics.chances import at_least_before
from .verdict import Verdict

# Shares of the reference, the most unusual rows, beyond which new rows are counted.
SHARES = (0.01, 0.03, 0.1, 0.2)
# As many beyond one of them have this chance, or less, if all new rows are normal.
CHANCE = 0.1

FLAT = "The p-values are flat: no more new rows are unusual than chance explains."
BLIND = (
    "Either there are no anomalies, or this {judge} does not see them; another `{judge}` may. More "
    "reference rows would not help."
)
MASKED = (
    "Or the reference holds many anomalies of their kind, which make them look normal: see "
    "`reconform clean`."
)
WEAK = (
    "More new rows are unusual than chance explains, but not unusual enough for a list at this "
    "level. What helps: another `{judge}`, or a higher level."
)


def looks_flat(counts: IntArray) -> bool:
    """Whether no more new rows than by chance lie beyond the reference's most unusual rows.

    Parameters
    ----------
    counts : int array of shape (n + 2,)
        How many new rows have each rank, 1 to n + 1.

    Examples
    --------
    >>> import numpy as np
    >>> looks_flat(np.bincount(np.arange(1, 101), minlength=102))
    True
    >>> looks_flat(np.bincount([1, 1, 1, 1, 50, 60, 70, 80, 90, 99], minlength=102))
    False
    """
    n, m = len(counts) - 2, int(counts.sum())
    cuts = {max(1, round(share * (n + 1))) for share in SHARES}
    chances = [at_least_before(int(counts[: r + 1].sum()), m, r, n) for r in cuts]
    return bool(len(cuts) * min(chances) > CHANCE)


def why_nothing(
    counts: IntArray | None, verdict: Verdict, warning: str | None, judge: str = "detector"
) -> str:
    """Say why no row is flagged: too small a reference, a dirty one, a blind detector.

    Parameters
    ----------
    counts : int array, optional
        How many new rows have each rank.
    verdict : Verdict
    warning : str, optional
        What is said of a reference that is too small.
    judge : {"detector", "method"}
        What another one may find more by.

    Returns
    -------
    str
    """
    flat = counts is not None and len(counts) > 2 and looks_flat(counts)
    # Rows beyond all reference rows are held back by nothing but the size of the reference.
    if warning is not None and counts is not None and counts[1]:
        return f"{warning} {FLAT}" if flat else warning
    for finding in verdict.findings:
        # Where the p-values are flat, a few extreme reference rows are no reason.
        if finding.check == "dirty reference" or (
            finding.check == "reference extremes" and not flat
        ):
            return str(finding)
    if flat:
        extremes = any(finding.check == "reference extremes" for finding in verdict.findings)
        said = [FLAT, BLIND.format(judge=judge), *([MASKED] if extremes else [])]
        return " ".join(said)
    return warning or WEAK.format(judge=judge)
