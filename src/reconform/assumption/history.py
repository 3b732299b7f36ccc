"""Is it as it was in the last runs? A process that drifts is not like its reference on any day.

A check that cries every morning is not read. So a run notes what its rows look like, a few
quantiles of every column, and the next one compares: with the last run, and how much runs usually
differ from each other. What is said is measured, not proven.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from ..arrays import FloatArray

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
MOST_COLUMNS = 100
# So many runs are looked back on.
RUNS = 14
# A change counts if it is so many standard deviations of chance, and so many times a usual one.
LEAST_CHANGE, UNUSUAL = 6.0, 3.0
# Standard deviations of the quantiles and of the quartile range, in these ranges, times the root
# of the number of rows, if rows are normal; other laws and dependent rows have larger ones, which
# the usual changes then show.
NOISE, NOISE_OF_RANGE = (1.27, 1.01, 0.93, 1.01, 1.27), 1.17
# What a finding of another kind is about, quantiles do not show.
SHOWN = ("shift", "range", "identifier", "order", "season")

Seen = Mapping[str, Any]


def seen_in(new: FloatArray | None, names: Sequence[str], rows: int) -> dict[str, Any]:
    """Note what rows look like: quantiles of every column, as plain data.

    Parameters
    ----------
    new : float array of shape (t, d) or None
        Rows, or a sample of them.
    names : sequence of str
        Of the columns; may be empty.
    rows : int
        How many there are.

    Examples
    --------
    >>> seen_in(np.arange(11.0)[:, None], ["x"], 11)
    {'rows': 11, 'columns': {'x': [1.0, 2.5, 5.0, 7.5, 9.0]}}
    """
    if new is None or not len(new):
        return {"rows": rows, "columns": {}}
    columns = {}
    for j in range(min(new.shape[1], MOST_COLUMNS)):
        cells = new[np.isfinite(new[:, j]), j]
        if len(cells):
            quantiles = np.quantile(cells, SHARES).tolist()
            columns[names[j] if names else str(j)] = [float(f"{one:.6g}") for one in quantiles]
    return {"rows": min(rows, len(new)), "columns": columns}


@dataclass(frozen=True)
class SinceBefore:
    """How a run differs from those before it.

    Attributes
    ----------
    runs : int
        Those that it was compared with.
    as_before : bool
        Whether what breaks the assumption today did so before, and nothing changed since.
    sentence : str
    """

    runs: int
    as_before: bool
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"runs": self.runs, "as_before": self.as_before, "sentence": self.sentence}


def change_since(
    seen: Seen, broken: Sequence[str], earlier: Sequence[Mapping[str, Any]]
) -> SinceBefore:
    """Compare a run with earlier ones of the same model.

    Parameters
    ----------
    seen : mapping
        From `seen_in`.
    broken : sequence of str
        The checks that found the assumption broken.
    earlier : sequence of mapping
        ``seen`` and ``broken`` of earlier runs, the last one last.

    Examples
    --------
    >>> day = lambda x: {"rows": 400, "columns": {"x": [x - 1.28, x - 0.67, x, x + 0.67, x + 1.28]}}
    >>> runs = [{"seen": day(x), "broken": ["shift"]} for x in (2.0, 2.1, 2.15)]
    >>> change_since(day(2.25), ["shift"], runs).as_before
    True
    >>> change_since(day(4.0), ["shift"], runs).sentence
    "Something changed since the last run: the column 'x' moved 21 times as far as usual."
    """
    known = list(earlier)[-RUNS:]
    if not known:
        return SinceBefore(0, False, "There is no earlier run to compare with.")
    news = [name for name in broken if name not in SHOWN]
    news = [name for name in news if all(name not in run["broken"] for run in known)]
    pairs = zip(known[:-1], known[1:], strict=True)
    usual = [_largest(one["seen"], other["seen"])[0] for one, other in pairs]
    now, column = _largest(known[-1]["seen"], seen)
    often = median(usual) if usual else LEAST_CHANGE / UNUSUAL
    if news:
        said = f"Something changed since the last runs: {', '.join(news)} for the first time."
    elif now > max(LEAST_CHANGE, UNUSUAL * often):
        times = min(now / max(often, 1.0), 1e6)
        said = (
            f"Something changed since the last run: the column {column!r} moved {times:.0f} times "
            "as far as usual."
        )
    elif not any(run["broken"] for run in known):
        said = f"The assumption looked unbroken in the last {_runs(len(known))}."
    else:
        return SinceBefore(
            len(known), True, f"It is as it was in the last {_runs(len(known))}: nothing moved."
        )
    return SinceBefore(len(known), False, said)


def earlier_run(line: Any, calibrations: Collection[str]) -> dict[str, Any] | None:
    """Read what one line of an earlier check says; None if it is of another model, or failed."""
    if not isinstance(line, dict) or line.get("calibration") not in calibrations:
        return None
    seen, verdict = line.get("seen"), line.get("assumption")
    if not isinstance(seen, dict) or not isinstance(verdict, dict):
        return None
    columns, findings = seen.get("columns"), verdict.get("findings")
    if not isinstance(columns, dict) or not isinstance(findings, list):
        return None
    rows = seen.get("rows")
    if type(rows) is not int or rows < 1:
        return None
    kept = {name: numbers for name, numbers in columns.items() if are_quantiles(numbers)}
    levels = [one for one in findings if isinstance(one, dict) and one.get("level") == "broken"]
    return {
        "seen": {"rows": rows, "columns": kept},
        "broken": [str(one.get("check")) for one in levels],
    }


def are_quantiles(numbers: Any) -> bool:
    """Whether these are quantiles of a column, as `seen_in` notes them."""
    fits = isinstance(numbers, list) and len(numbers) == len(SHARES)
    return fits and all(type(n) in (int, float) and abs(n) <= sys.float_info.max for n in numbers)


def _runs(count: int) -> str:
    return "run" if count == 1 else f"{count:,} runs"


def _largest(one: Seen, other: Seen) -> tuple[float, str]:
    """The largest change from one run to another, in standard deviations of chance, and where."""
    root = math.sqrt(1 / one["rows"] + 1 / other["rows"])
    best, where = 0.0, ""
    for name, mine in one["columns"].items():
        theirs = other["columns"].get(name)
        if theirs is None:
            continue
        before, after = mine[3] - mine[1], theirs[3] - theirs[1]
        middle = (before + after) / 2
        moved = [abs(a - b) / noise for a, b, noise in zip(mine, theirs, NOISE, strict=True)]
        size = max(moved) / middle if middle > 0 else math.inf if max(moved) > 0 else 0.0
        if before > 0 and after > 0:
            size = max(size, abs(math.log(after / before)) / NOISE_OF_RANGE)
        if size / root > best:
            best, where = size / root, name
    return best, where
