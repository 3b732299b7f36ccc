"""Averages over the draws, the ranking of all detectors and methods, and what it recommends.

Every detector and method sees the same draws, so differences are taken draw by draw. That makes
them far more certain than the spread of either: a hard draw is hard for both. The
first of the ranking is recommended, in a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit  # Student's t quantile

from ..arrays import FloatArray
from ..errors import ReconformError


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

    @classmethod
    def of(cls, values: npt.ArrayLike) -> Estimate:
        """Average values, one per draw."""
        x = np.asarray(values, dtype=np.float64)
        return cls(*mean_and_sd(x), draws=len(x))

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
        fdrs, powers = map(Estimate.of, np.array(values).T)
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


# Of those that are as good as the best one, so many are named.
MOST_NAMED = 3

# With so much confidence whoever is told apart from the best is worse, all of them together.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Ranked:
    """A detector with a method, in a ranking.

    Attributes
    ----------
    detector, method : str
    power, fdr : Estimate
        Over the draws; with several data sets, of their mean.
    behind : Estimate
        By how much its power is below that of the best one, draw by draw.
    worse : bool
        Whether that is more than chance, or its FDR is above the level: it is told apart from the
        best one.
    violation : bool
        Whether there is evidence that its FDR is above the level.
    """

    detector: str
    method: str
    power: Estimate
    fdr: Estimate
    behind: Estimate
    worse: bool
    violation: bool


@dataclass(frozen=True)
class Ranking(Sequence[Ranked]):
    """All detectors and methods of a study, the most powerful first.

    Those whose false discovery rate is above the level come last: their power is bought with it.

    Attributes
    ----------
    rows : tuple of Ranked
    level : float
        The false discovery rate that was aimed at.
    draws : int
    datasets : tuple of str
    partial : tuple of (detector, method)
        Not ranked, since they did not run on every data set.
    """

    rows: tuple[Ranked, ...]
    level: float
    draws: int
    datasets: tuple[str, ...]
    partial: tuple[tuple[str, str], ...] = ()

    def __getitem__(self, place: Any) -> Any:
        return self.rows[place]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def best(self) -> Ranked | None:
        """The first that keeps its level and finds something; None if there is none."""
        first = self.rows[0]
        return None if first.violation or not first.power.mean else first

    @property
    def equals(self) -> tuple[Ranked, ...]:
        """Those that cannot be told apart from the best one, besides itself."""
        return tuple(row for row in self.rows[1:] if not row.worse)

    def to_markdown(self) -> str:
        """Write the ranking as a table.

        Returns
        -------
        str
        """
        lines = ["| | detector | method | power | FDR | behind the best |", "|---" * 6 + "|"]
        for place, row in enumerate(self.rows, start=1):
            behind = "" if place == 1 else _with_error(row.behind)
            if place > 1 and not row.worse:
                behind += " ="
            fdr = _with_error(row.fdr) + (" †" if row.violation else "")
            lines.append(
                f"| {place} | {row.detector} | {row.method} | {_with_error(row.power)} | {fdr} | "
                f"{behind} |"
            )
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        return "\n".join([self.to_markdown(), *self.notes(), "", self.recommendation])

    @property
    def recommendation(self) -> str:
        """What to use, and what it is worth; or why nothing is recommended."""
        best, first = self.best, self.rows[0]
        if best is None and first.violation:
            return (
                "Nothing is recommended: the false discovery rate of each was above "
                f"{self.level:g}, by more than chance. Anomalies that are labelled as normal would "
                "explain it, or rows that depend on each other; look at some false alarms."
            )
        if best is None:
            return (
                "Nothing is recommended: no anomaly was found by any of them. The columns may not "
                "show what is wrong with the anomalies, or the reference is too small for the "
                "level: try more rows or a larger `fdr`."
            )
        sentence = (
            f"Recommended: {best.detector} with {best.method}, which found {best.power.mean:.0%} "
            f"of the anomalies at a false discovery rate of {best.fdr.mean:.1%}."
        )
        if not self.equals:
            return sentence
        shown = [f"{row.detector} with {row.method}" for row in self.equals[:MOST_NAMED]]
        more = len(self.equals) - len(shown)
        others = ", ".join(shown) + (f" and {more} more" if more else "")
        return f"{sentence} It cannot be told apart from {others}."

    def notes(self) -> list[str]:
        """Say in sentences what the columns are, and what is not in them."""
        where = self.datasets[0] if len(self.datasets) == 1 else f"{len(self.datasets)} data sets"
        notes = [
            f"Means over {self.draws} draws from {where}, ± standard errors. Power: the share of "
            f"anomalies found. FDR: the share of false alarms, aimed at {self.level:g}."
        ]
        if self.draws < 2:
            notes.append("One draw has no standard error: no difference can be tested.")
        elif self.equals:
            notes.append(
                f"= cannot be told apart from the best one ({CONFIDENCE:.0%} confidence, draw by "
                "draw, for all comparisons together)."
            )
        if any(row.violation for row in self.rows):
            notes.append("† the FDR is above the level by more than chance, so it is ranked last.")
        if self.partial:
            pairs = ", ".join(f"{detector} with {method}" for detector, method in self.partial)
            notes.append(f"Not ranked, as they did not run on every data set: {pairs}.")
        notes.append(
            "The standard errors describe other draws from the same rows; other kinds of anomalies "
            "may give other results."
        )
        return notes


def rank(results: Any, *, fdr: float) -> Ranking:
    """Rank the detectors and methods of a study.

    Parameters
    ----------
    results : table
        As `Study.results_`: a pyarrow table, a frame, or a mapping of arrays.
    fdr : float
        The level that was asked for.

    Returns
    -------
    Ranking

    Examples
    --------
    >>> rows = {"dataset": ["mine"] * 4, "detector": ["knn", "knn", "lof", "lof"],
    ...         "method": ["full"] * 4, "draw": [0, 1, 0, 1], "cfdr": [0.1] * 4,
    ...         "cpower": [0.5, 0.6, 0.7, 0.8]}
    >>> [(row.detector, row.worse) for row in rank(rows, fdr=0.1)]
    [('lof', False), ('knn', True)]
    """
    power, false = (_by_candidate(results, name) for name in ("cpower", "cfdr"))
    if not power:
        raise ReconformError("there is nothing to rank: the study has no finished draw.")
    most = max(map(len, power.values()))
    whole = {pair: values for pair, values in power.items() if len(values) == most}
    datasets = tuple(dict.fromkeys(dataset for dataset, _ in next(iter(whole.values()))))
    level = float(fdr)

    def order(pair: tuple[str, str]) -> tuple[bool, float]:
        return _violates(_drawn(false[pair]), level), -float(_drawn(power[pair]).mean())

    ordered = sorted(whole, key=order)  # equals stay in the order in which they were given
    best = _drawn(power[ordered[0]])
    critical = _critical(len(best), len(ordered))
    rows = []
    for pair in ordered:
        powers, fdrs = _drawn(power[pair]), _drawn(false[pair])
        behind = Estimate.of(best - powers)
        violation = _violates(fdrs, level)
        behind_by_more = behind.mean > critical * behind.standard_error
        rows.append(
            Ranked(
                *pair,
                power=Estimate.of(powers),
                fdr=Estimate.of(fdrs),
                behind=behind,
                worse=violation or bool(behind_by_more),
                violation=violation,
            )
        )
    partial = tuple(pair for pair in power if pair not in whole)
    return Ranking(tuple(rows), level, len(best), datasets, partial)


Values = dict[tuple[str, int], float]


def _by_candidate(table: Any, name: str) -> dict[tuple[str, str], Values]:
    """Values by detector and method, then by data set and draw."""
    columns = ("detector", "method", "dataset", "draw", name)
    found: dict[tuple[str, str], Values] = {}
    for detector, method, dataset, draw, value in zip(
        *(np.asarray(table[one]).tolist() for one in columns), strict=True
    ):
        found.setdefault((detector, method), {})[dataset, draw] = value
    return found


def _drawn(values: Mapping[tuple[str, int], float]) -> FloatArray:
    """Return the mean over the data sets of every draw, in the order of the draws."""
    draws: dict[int, list[float]] = {}
    for (_, draw), value in values.items():
        draws.setdefault(draw, []).append(value)
    return np.array([np.mean(draws[draw]) for draw in sorted(draws)])


def _violates(fdrs: FloatArray, level: float) -> bool:
    return lower_bound(*mean_and_sd(fdrs), len(fdrs)) > level


def _critical(draws: int, candidates: int) -> float:
    """Student's quantile for comparisons with the best one, by Bonferroni.

    Which one is the best is seen from the same draws, so every ordered pair counts.
    """
    if draws < 2 or candidates < 2:
        return float("inf")
    return float(stdtrit(draws - 1, 1 - (1 - CONFIDENCE) / (candidates * (candidates - 1))))


def _with_error(estimate: Estimate) -> str:
    if estimate.draws < 2:
        return f"{estimate.mean:.3f}"
    return f"{estimate.mean:.3f} ± {estimate.standard_error:.3f}"
