"""How few anomalies a reference can show: no p-value is below 1 / (n + 1)."""

from __future__ import annotations

import math
from fractions import Fraction

from ..errors import unknown_choice
from .exact import exact_fraction, harmonic_number


def smallest_count(
    n_calibration: int,
    m: int,
    fdr: float | Fraction,
    *,
    procedure: str = "bh",
    smallest_p: Fraction | None = None,
) -> int:
    """Fewest rows that Benjamini-Hochberg can flag among m: k >= m / (fdr (n + 1)).

    Parameters
    ----------
    n_calibration, m : int
        Calibration scores, and new rows.
    fdr : float or Fraction
    procedure : {"bh", "by"}
    smallest_p : Fraction, optional
        By default 1 / (n_calibration + 1).

    Returns
    -------
    int
        Larger than m if nothing can be flagged at all.

    Examples
    --------
    >>> smallest_count(100, 5_000, 0.1)
    496
    """
    if procedure not in ("bh", "by"):
        raise unknown_choice("procedure", procedure, ("bh", "by"))
    # The lower bound of the harmonic number: what is said to be impossible is.
    factor = harmonic_number(m)[0] if procedure == "by" else Fraction(1)
    p = Fraction(1, n_calibration + 1) if smallest_p is None else smallest_p
    return math.ceil(p * m * factor / exact_fraction("fdr", fdr))


def smallest_batch_warning(
    n_calibration: int,
    m: int,
    fdr: float | Fraction,
    *,
    procedure: str = "bh",
    n_reference: int | None = None,
    smallest_p: Fraction | None = None,
) -> str | None:
    """Say how many anomalies there must be for any to be flagged, if one is not enough.

    Parameters
    ----------
    n_calibration, m : int
        Calibration scores, and new rows.
    fdr : float or Fraction
    procedure : {"bh", "by", "storey"}
        For Storey's there is no such number beforehand.
    n_reference : int, optional
        Rows of the reference, where they are more than the calibration scores.
    smallest_p : Fraction, optional
        By default 1 / (n_calibration + 1).

    Returns
    -------
    str or None
        None if a single anomaly can be flagged.

    Examples
    --------
    >>> print(smallest_batch_warning(100, 5_000, 0.1))
    With 100 reference rows and 5,000 new ones, fewer than 496 anomalies cannot be flagged at 10%:
    no p-value is below 1/101. What helps: more reference rows (49,999 let a single anomaly be
    flagged), fewer new rows at a time, or a higher `fdr`.
    """
    if procedure == "storey":
        return None
    fewest = smallest_count(n_calibration, m, fdr, procedure=procedure, smallest_p=smallest_p)
    if fewest <= 1:
        return None
    usual = Fraction(1, n_calibration + 1)
    p = usual if smallest_p is None else smallest_p
    part = n_reference is not None and n_reference > n_calibration
    what = "nothing can" if fewest > m else f"fewer than {fewest:,} anomalies cannot"
    floor = f"{p.numerator}/{p.denominator:,}" if p.numerator < 10 else f"{float(p):.3g}"
    more = ""
    if p == usual and procedure == "bh":
        needed = smallest_count(0, m, fdr) - 1
        purpose = " for calibration" if part else ""
        more = f" ({needed:,}{purpose} let a single anomaly be flagged)"
    method = ", a method that calibrates on all of them (jackknife+, cv+, jab+)" if part else ""
    return (
        f"With {n_calibration:,} {'calibration' if part else 'reference'} rows and {m:,} new ones, "
        f"{what} be flagged at {float(100 * exact_fraction('fdr', fdr)):g}%: no p-value is below "
        f"{floor}. What helps: more reference rows{more}{method}, fewer new rows at a time, or a "
        "higher `fdr`."
    )
