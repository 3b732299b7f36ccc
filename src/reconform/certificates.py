"""What holds, said in words: one table that the estimator, the results and the docs read from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Guarantee:
    """What is known about the p-values of a method.

    Attributes
    ----------
    kind : {"exact", "bounded", "measured"}
        A theorem at the nominal level, a theorem at a larger level, or experience only.
    p_value : str
        The statement about one p-value, under exchangeability of reference and new normal rows.
    """

    kind: str
    p_value: str

    def __str__(self) -> str:
        return self.p_value


_EXACT = Guarantee("exact", "Exact: P(p <= α) <= α for a new normal row, for every sample size.")
_MEASURED = Guarantee(
    "measured", "Measured only: close to P(p <= α) <= α in experiments, no finite-sample theorem."
)
_TABLE: dict[tuple[str, str], Guarantee] = {
    ("split", "plus"): _EXACT,
    ("prefit", "plus"): Guarantee(
        "exact",
        "Exact: P(p <= α) <= α for a new normal row, if the model never saw the calibration rows.",
    ),
    ("jackknife", "plus"): Guarantee(
        "bounded",
        "Bounded: P(p <= α) < 2α for a symmetric detector with independent draws per model; "
        "close to α in experiments.",
    ),
}


def guarantee(scheme: str, variant: str) -> Guarantee:
    """Look up what holds for a scheme and a variant.

    Examples
    --------
    >>> print(guarantee("split", "plus"))
    Exact: P(p <= α) <= α for a new normal row, for every sample size.
    >>> guarantee("jab", "plus").kind
    'measured'
    """
    return _TABLE.get((scheme, variant), _MEASURED)
