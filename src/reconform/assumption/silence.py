"""Why nothing is flagged: the reasons, in the order of the evidence."""

from __future__ import annotations

from ..arrays import IntArray
from ..statistics.chances import at_least_before
from .verdict import Verdict

# Shares of the reference, the most unusual rows, beyond which new rows are counted.
SHARES = (0.01, 0.03, 0.1, 0.2)
# As many beyond one of them have this chance, or less, if all new rows are normal.
CHANCE = 0.1
# The same, of rows beyond all reference rows.
BEYOND = 0.05

BLIND = (
    "The p-values are flat: no more new rows are unusual than chance explains. Either there are no "
    "anomalies, or this detector does not see them; another `detector` may. More reference rows "
    "would not help."
)
MASKED = (
    "Or the reference holds many anomalies of their kind, which make them look normal: see "
    "`reconform clean`."
)
WEAK = (
    "More new rows are unusual than chance explains, but not unusual enough for a list at this "
    "level. What helps: another `detector`, or a higher level."
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


def lies_beyond(counts: IntArray) -> bool:
    """Whether more new rows are more unusual than all reference rows than chance explains.

    Parameters
    ----------
    counts : int array of shape (n + 2,)
        How many new rows have each rank, 1 to n + 1.

    Examples
    --------
    >>> import numpy as np
    >>> lies_beyond(np.bincount([1] * 5 + [50] * 5, minlength=102))
    True
    >>> lies_beyond(np.bincount([1] + [50] * 9, minlength=102))
    False
    """
    n, m, beyond = len(counts) - 2, int(counts.sum()), int(counts[1])
    return bool(at_least_before(beyond, m, 1, n) <= BEYOND)


def why_nothing(counts: IntArray | None, verdict: Verdict, warning: str | None) -> str:
    """Say why no row is flagged: a dirty reference, a blind detector, too small a reference.

    Parameters
    ----------
    counts : int array, optional
        How many new rows have each rank.
    verdict : Verdict
    warning : str, optional
        What is said of a reference that is too small.

    Returns
    -------
    str
    """
    flat = counts is not None and len(counts) > 2 and looks_flat(counts)
    # Rows beyond all reference rows are held back by nothing but the size of the reference.
    too_small = counts is not None and warning is not None and lies_beyond(counts)
    for finding in verdict.findings:
        # Where the p-values are flat, a few extreme reference rows are no reason.
        if finding.check == "dirty reference" or (
            finding.check == "reference extremes" and not flat and not too_small
        ):
            return str(finding)
    if flat:
        extremes = any(finding.check == "reference extremes" for finding in verdict.findings)
        return f"{BLIND} {MASKED}" if extremes else BLIND
    return warning or WEAK
