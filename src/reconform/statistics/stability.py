"""How far one model in production decides like all of them (the paper's stability remark)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import RankArray
from .grid import usual


@dataclass(frozen=True, eq=False)
class Stability:
    """How far basic and plus ranks of the same rows lie apart.

    Attributes
    ----------
    basic, plus : int arrays
        Ranks of the two variants.
    n_calibration : int
    alpha : float
        Level of the per-row test.
    """

    basic: RankArray
    plus: RankArray
    n_calibration: int
    alpha: float

    @property
    def typical(self) -> float:
        """Median of |p_basic - p_plus|."""
        return float(np.median(self._apart())) if len(self.basic) else 0.0

    @property
    def largest(self) -> float:
        """Largest |p_basic - p_plus|."""
        return float(self._apart().max(initial=0.0))

    @property
    def shift(self) -> float:
        """Mean of p_basic - p_plus; negative if one model raises more alarms than all."""
        if not len(self.basic):
            return 0.0
        return float((self.basic - self.plus).mean() / (self.n_calibration + 1))

    @property
    def changed(self) -> float:
        """Share of rows whose per-row decision at `alpha` changes."""
        if not len(self.basic):
            return 0.0
        p_values = usual(self.n_calibration).values
        p_basic, p_plus = p_values(self.basic), p_values(self.plus)
        return float(((p_basic <= self.alpha) != (p_plus <= self.alpha)).mean())

    @property
    def verdict(self) -> str:
        """``"stable"``, ``"borderline"`` or ``"unstable"``.

        Stable: at most 1% of the decisions change and the typical difference is at most 0.01.
        Unstable: more than 5% change, or the typical difference exceeds 0.05.
        """
        if self.changed <= 0.01 and self.typical <= 0.01:
            return "stable"
        if self.changed > 0.05 or self.typical > 0.05:
            return "unstable"
        return "borderline"

    def _apart(self) -> np.typing.NDArray[np.float64]:
        return np.asarray(np.abs(self.basic - self.plus) / (self.n_calibration + 1))

    def __repr__(self) -> str:
        advice = {
            "stable": "one model (variant='basic') in production is as good as all of them here.",
            "borderline": "one model in production decides a little differently; look at the rows "
            "that change before you rely on it.",
            "unstable": "one model in production is not safe here; keep variant='plus'.",
        }[self.verdict]
        return (
            f"Stability: {self.verdict} on {len(self.basic):,} rows. p-values of basic and plus "
            f"differ by {self.typical:.2g} typically and {self.largest:.2g} at most (mean shift "
            f"{self.shift:+.2g}); {self.changed:.1%} of the decisions at alpha={self.alpha:g} "
            f"change. In words: {advice}"
        )
