"""Numbers without rounding: levels as they were written, and the harmonic number.

Decisions are made in integers and fractions; a float is for showing.
"""

from __future__ import annotations

import numbers
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from ..errors import ReconformError, check_probability, is_number


def exact_fraction(argument: str, value: float | Fraction) -> Fraction:
    """Read a level as the decimal number that was written: 0.1 is 1/10.

    Examples
    --------
    >>> exact_fraction("fdr", 0.1)
    Fraction(1, 10)
    """
    if isinstance(value, Fraction) and 0 < value < 1:
        return value
    return Fraction(repr(check_probability(argument, value)))


def exact_number(argument: str, value: float | Fraction) -> Fraction:
    """Read a positive number as the decimal number that was written: 2.5 is 5/2.

    Examples
    --------
    >>> exact_number("false_alarms", 2.5)
    Fraction(5, 2)
    """
    if not is_number(value) or not 0 < value < float("inf"):
        raise ReconformError(f"{argument} must be a positive number; got {value!r}.")
    if isinstance(value, numbers.Rational):  # integers, NumPy's included
        return Fraction(int(value.numerator), int(value.denominator))
    return Fraction(repr(float(value)))


# --- the harmonic number of Benjamini-Yekutieli, to any precision -------------------------------

_EULER_GAMMA = Decimal("0.57721566490153286060651209008240243104215933593992359880576723488487")
# 1/2m - sum of B_2j / (2j m^2j), alternating: the error is below the first term left out.
_BERNOULLI_TERMS = ((2, 12), (4, -120), (6, 252), (8, -240), (10, 132))
_EXACT_BELOW = 1_000


@lru_cache(maxsize=64)
def harmonic_number(m: int) -> tuple[Fraction, Fraction]:
    """Bounds on H_m = 1 + 1/2 + ... + 1/m: equal for small m, 10^-30 apart beyond.

    Examples
    --------
    >>> harmonic_number(4)
    (Fraction(25, 12), Fraction(25, 12))
    """
    if m < _EXACT_BELOW:
        exact = sum((Fraction(1, i) for i in range(1, m + 1)), Fraction(0))
        return exact, exact
    with localcontext() as context:
        context.prec = 60
        value = Decimal(m).ln() + _EULER_GAMMA + 1 / (2 * Decimal(m))
        for power, denominator in _BERNOULLI_TERMS:
            value -= 1 / (denominator * Decimal(m) ** power)
    middle = Fraction(value)
    return middle - Fraction(1, 10**30), middle + Fraction(1, 10**30)
