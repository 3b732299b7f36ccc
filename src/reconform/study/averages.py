"""Mean and standard deviation over the draws; when an FDR counts as violated (section VI)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit  # Student's t quantile


@dataclass(frozen=True)
class Estimate:
    """Mean and standard deviation over the draws.

    Attributes
    ----------
    mean, sd : float
    draws : int
    """

    mean: float
    sd: float
    draws: int

    @property
    def standard_error(self) -> float:
        """Standard error of the mean."""
        return self.sd / float(np.sqrt(self.draws))

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.sd:.3f}"


@dataclass(frozen=True)
class Cell:
    """One data set, detector and method over all draws.

    Attributes
    ----------
    dataset, detector, method : str
    fdr, power : Estimate
    target : float
        The FDR level that was asked for.
    """

    dataset: str
    detector: str
    method: str
    fdr: Estimate
    power: Estimate
    target: float

    @property
    def lower_bound(self) -> float:
        """One-sided 95% lower bound on the marginal FDR."""
        return lower_bound(self.fdr.mean, self.fdr.sd, self.fdr.draws)

    @property
    def violation(self) -> bool:
        """Whether there is evidence that the marginal FDR exceeds the level."""
        return self.lower_bound > self.target


def summarise(results: Any, *, fdr: float) -> list[Cell]:
    """Average over the draws.

    Parameters
    ----------
    results : table
        Columns ``dataset, detector, method, draw, cfdr, cpower``: a pyarrow table, a frame, or a
        mapping of arrays.
    fdr : float
        The level that was asked for.

    Returns
    -------
    list of Cell
        In the order in which they first appear.

    Examples
    --------
    >>> rows = {"dataset": ["wbc"] * 2, "detector": ["knn"] * 2, "method": ["cv+"] * 2,
    ...         "cfdr": [0.0, 0.1], "cpower": [0.5, 0.7]}
    >>> [cell] = summarise(rows, fdr=0.1)
    >>> print(cell.fdr, "and", cell.power)
    0.050 ± 0.071 and 0.600 ± 0.141
    """
    names = ("dataset", "detector", "method", "cfdr", "cpower")
    rows = zip(*(np.asarray(results[name]).tolist() for name in names), strict=True)
    cells: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for dataset, detector, method, cfdr, cpower in rows:
        cells.setdefault((dataset, detector, method), []).append((cfdr, cpower))
    summary = []
    for labels, values in cells.items():
        fdrs, powers = (Estimate(*mean_and_sd(x), draws=len(values)) for x in np.array(values).T)
        summary.append(Cell(*labels, fdrs, powers, float(fdr)))
    return summary


def mean_and_sd(values: npt.ArrayLike) -> tuple[float, float]:
    """Mean and s_X over the draws; the latter is NaN for a single draw.

    Examples
    --------
    >>> mean_and_sd([0.1, 0.3])
    (0.2, 0.1414213562373095)
    """
    x = np.asarray(values, dtype=np.float64)
    return float(x.mean()), float(x.std(ddof=1)) if len(x) > 1 else float("nan")


def lower_bound(mean: float, sd: float, draws: int) -> float:
    """Bound the marginal FDR from below, one-sided, at 95%: mFDR - t_{0.95, J-1} s_X / sqrt(J).

    A violation of the level is only claimed where this exceeds it.

    Examples
    --------
    >>> round(lower_bound(0.189, 0.102, 25), 3)  # INNE with JaB on musk: a violation at 0.1
    0.154
    """
    return float(mean - stdtrit(draws - 1, 0.95) * sd / np.sqrt(draws)) if draws > 1 else -np.inf
