"""The record: what became of the promise, by the lines that `check` prints and the marks.

The false discovery rate is a mean over runs, where an empty list counts as 0; the share of false
ones among all rows that were looked at is another quantity, in which long lists count more. The
interval of the rate holds whenever one looks and however often (a confidence sequence by betting:
Waudby-Smith and Ramdas 2024, Theorem 3); it takes runs for independent, and the rows that were
looked at for all rows of a list, or a part that has nothing to do with what they are.

As a page it is one glance for the person who pays: no script, no network.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from html import escape
from importlib.resources import files
from itertools import takewhile
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from ..arrays import FloatArray
from ..assumption.history import are_quantiles
from ..assumption.verdict import LEVELS
from ..display import percent
from ..errors import InputError
from ..files.marks import MarkFile
from . import policy
from .words import counted, shorten

CONFIDENCE = 0.95
# Of the means that an interval is made of.
GRID = np.linspace(0.0, 1.0, 1001)
# So many runs in a row with a broken assumption are a reason to fit again.
BROKEN_RUNS = 2
# Longer lines than these are none that `check` prints, and more runs are not read.
LONGEST_LINE, MOST_RUNS = 1 << 24, 100_000


@dataclass(frozen=True)
class Run:
    """One run of `check`, and what a person said of its list.

    Attributes
    ----------
    time : str
        ISO 8601; empty where the line does not say it.
    batch : str
        The digest of the new rows.
    path : str
        Their file.
    rows, flagged : int
    level : float or None
        The false discovery rate that was promised; None where it was another promise.
    verdict : str
        "holds", "doubtful" or "broken".
    seen : mapping of str to sequence of float
        Quantiles of the columns, see `reconform.assumption.history`.
    listed : frozenset of str
        Numbers and identifiers of the flagged rows.
    real, false, unsure : int
        What a person said of flagged rows.
    """

    time: str
    batch: str
    path: str
    rows: int
    flagged: int
    level: float | None
    verdict: str
    seen: Mapping[str, Sequence[float]] = field(repr=False)
    listed: frozenset[str] = field(repr=False)
    real: int = 0
    false: int = 0
    unsure: int = 0

    @property
    def looked(self) -> int:
        """How many flagged rows somebody could judge."""
        return self.real + self.false

    @property
    def share(self) -> float | None:
        """The share of false ones on the list, 0 on an empty one; None where nobody looked."""
        if not self.flagged:
            return 0.0
        return self.false / self.looked if self.looked else None

    @property
    def day(self) -> str:
        """When it was, in words."""
        try:
            when = datetime.fromisoformat(self.time)
        except ValueError:
            return "an unknown day"
        return f"{when.day} {when:%B %Y}"

    def marked(self, marks: MarkFile) -> Run:
        """Count the marks of its flagged rows."""
        said = Counter(
            mark
            for mark, flagged, names in zip(
                marks.marks.tolist(), marks.flagged.tolist(), _names(marks), strict=True
            )
            if flagged and (not self.listed or not names or names & self.listed)
        )
        added = {kind: getattr(self, kind) + said[kind] for kind in ("real", "false", "unsure")}
        return replace(self, **added)


def _names(marks: MarkFile) -> Iterable[frozenset[str]]:
    """What the rows of a mark file are called; nothing where it has only their features."""
    rows = ("" for _ in marks.marks) if marks.rows is None else map(str, marks.rows)
    ids = ("" for _ in marks.marks) if marks.ids is None else marks.ids
    return (
        frozenset((f"row {row}" if row else "", name)) - {""}
        for row, name in zip(rows, ids, strict=True)
    )


def read_log(path: str | Path) -> tuple[list[Run], int]:
    """Read the lines of `reconform check`; return the runs, and how many have failed.

    Rows that were judged again count once, as they were judged last.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    runs : list of Run
        In the order of the file.
    failed : int
    """
    runs: dict[str, Run] = {}
    failed = lines = 0
    with open(path, encoding="utf-8", errors="replace") as file:
        while line := file.readline(LONGEST_LINE):
            lines += bool(line.strip())
            try:
                said = json.loads(line) if line.strip() else None
            except (ValueError, RecursionError):
                continue
            if not isinstance(said, dict) or said.get("command") != "check":
                continue
            failed += "error" in said
            run = None if "error" in said else _run(said)
            if run is not None:
                key = run.batch or str(len(runs))
                runs.pop(key, None)
                runs[key] = run
            if len(runs) > MOST_RUNS:
                raise InputError(path, f"it has more than {MOST_RUNS:,} runs; give a part of it.")
    if not runs and not failed:
        raise InputError(
            path,
            "it holds no lines of reconform check; give the file that they are appended to: "
            "reconform check ... >> checks.jsonl."
            if lines
            else "it is empty; reconform check ... >> checks.jsonl appends a line per run.",
        )
    return list(runs.values()), failed


def _run(said: Mapping[str, Any]) -> Run | None:
    """Read one line; None if it lacks what a record needs."""
    new, decision, verdict, seen = (
        _object(said.get(name)) for name in ("new", "decision", "assumption", "seen")
    )
    rows, flagged, word = new.get("rows"), said.get("flagged"), verdict.get("verdict")
    if type(rows) is not int or type(flagged) is not int:
        return None
    if not 0 <= flagged <= rows < 1 << 53:
        return None
    if word not in ("holds", *LEVELS[1:]):
        return None
    level, listed = decision.get("fdr"), said.get("anomalies")
    found = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return Run(
        time=_text(said.get("time")),
        batch=_text(new.get("sha256")),
        path=_text(new.get("path")),
        rows=rows,
        flagged=flagged,
        level=level if type(level) is float and 0 < level < 1 else None,
        verdict=word,
        seen={
            str(name): quantiles
            for name, quantiles in _object(seen.get("columns")).items()
            if are_quantiles(quantiles)
        },
        # Only the first of a long list are in the line: then the mark file has to say it.
        listed=frozenset().union(*map(_called, found)) if len(found) >= flagged else frozenset(),
    )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _called(row: Mapping[str, Any]) -> frozenset[str]:
    """What a flagged row is called in a line: by number and by identifier."""
    ids = row.get("id")
    named = ", ".join(map(str, ids.values())) if isinstance(ids, dict) else ""
    return frozenset((f"row {row.get('row')}", named)) - {""}


@dataclass(frozen=True)
class TrackRecord:
    """Runs and what is known of them.

    Attributes
    ----------
    runs : tuple of Run
    failed : int
        Runs that ended with an error.
    """

    runs: tuple[Run, ...]
    failed: int = 0

    @property
    def counted(self) -> list[Run]:
        """The runs that the rate is about: something was promised, and somebody looked.

        Where only a part of the lists was looked at, as large a part of the empty ones counts.
        """
        promised = [run for run in self.runs if run.verdict != "broken"]
        found = [run for run in promised if run.flagged]
        looked = sum(run.share is not None for run in found)
        empty = len(promised) - len(found)
        taken = round(empty * looked / len(found)) if found else empty
        counted, place = [], 0
        for run in promised:
            if run.flagged:
                counted += [run] if run.share is not None else []
                continue
            place += 1  # evenly over time
            if place * taken // empty > (place - 1) * taken // empty:
                counted.append(run)
        return counted

    @cached_property
    def running(self) -> list[tuple[float, float, float]]:
        """The mean and its interval after every counted run."""
        shares = np.array([run.share for run in self.counted], dtype=np.float64)
        means = np.cumsum(shares) / np.arange(1, len(shares) + 1)
        low, high = mean_interval(shares)
        return list(zip(means.tolist(), low.tolist(), high.tolist(), strict=True))

    @property
    def promised(self) -> float | None:
        """The rate that was promised, the mean over the counted runs; None if it was another."""
        levels = [run.level for run in self.counted if run.level is not None]
        return math.fsum(levels) / len(levels) if levels else None

    def total(self, name: str) -> int:
        """A count over all runs: flagged, looked, real, false or unsure."""
        return sum(getattr(run, name) for run in self.runs)

    @property
    def pooled(self) -> float | None:
        """The share of false ones among all rows that were looked at."""
        looked = self.total("looked")
        return self.total("false") / looked if looked else None

    @cached_property
    def drift(self) -> list[float]:
        """How far the columns are from where they were in the first run, in quartile ranges."""
        return [_moved(self.runs[0].seen, run.seen) for run in self.runs]

    @property
    def broken_since(self) -> Run | None:
        """The first of the last runs, in all of which the assumption looked broken."""
        last = list(takewhile(lambda run: run.verdict == "broken", reversed(self.runs)))
        return last[-1] if len(last) >= BROKEN_RUNS else None

    @property
    def sentences(self) -> list[str]:
        """The record in words: what happened, the rate, the pooled share, whether to fit again."""
        if not self.runs:
            return [f"{counted(self.failed, 'run')} failed, and no other is there."]
        first, last = self.runs[0].day, self.runs[-1].day
        when = f"on {first}" if first == last else f"from {first} to {last}"
        failed = f"; {counted(self.failed, 'other run')} failed" if self.failed else ""
        unsure = f", and unsure about {self.total('unsure'):,}" if self.total("unsure") else ""
        happened = (
            f"{counted(len(self.runs), 'run')} {when}{failed}: {self.total('flagged'):,} of "
            f"{self.total('rows'):,} rows flagged, {self.total('looked'):,} of them judged by a "
            f"person, who calls {self.total('false'):,} false{unsure}."
        )
        return [happened, self._rate(), *self._pooled(), self._verdicts(), self.advice]

    def _rate(self) -> str:
        if not self.running or not self.total("looked"):
            return "Nobody has marked a flagged row yet, and so nothing is known of the rate."
        mean, low, high = self.running[-1]
        said = (
            f"Observed false discovery rate: {_percent(mean)}, the mean over "
            f"{counted(len(self.counted), 'run')} (between {_percent(low)} and {_percent(high)} "
            f"with {percent(CONFIDENCE)} confidence, if whom one looked at does not depend on what "
            "they are)"
        )
        if self.promised is None:
            return f"{said}."
        kept = (
            "more than was promised"
            if low > self.promised
            else "the promise is kept"
            if high <= self.promised
            else "nothing contradicts the promise"
        )
        return f"{said}; promised: at most {_percent(self.promised)}. So far {kept}."

    def _pooled(self) -> list[str]:
        if self.pooled is None:
            return []
        return [
            f"Of all judged rows together {_percent(self.pooled)} are false: the pooled share, "
            "another quantity, in which long lists count more."
        ]

    def _verdicts(self) -> str:
        words = Counter(run.verdict for run in self.runs)
        broken = words["broken"]
        lists = "; these promised nothing, and are not part of the rate" if broken else ""
        return (
            f"The assumption looked unbroken in {words['holds']:,} runs, doubtful in "
            f"{words['doubtful']:,}, broken in {broken:,}{lists}."
        )

    @property
    def advice(self) -> str:
        """When to fit again."""
        since = self.broken_since
        if since is not None:
            return (
                f"The reference no longer fits since {since.day}. Take newer normal rows: "
                "`reconform update MODEL --normal FILE --output MODEL2`."
            )
        if self.running and self.promised is not None and self.running[-1][1] > self.promised:
            return (
                "There are more false alarms than promised, and no check sees why. Let rows that "
                "are normal join the reference: `reconform update`."
            )
        return "There is no reason to fit again."

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        mean, low, high = self.running[-1] if self.running else (None, None, None)
        since = self.broken_since
        return {
            "runs": len(self.runs),
            "failed": self.failed,
            **{name: self.total(name) for name in ("flagged", "looked", "real", "false", "unsure")},
            "observed_fdr": mean,
            "interval": [low, high],
            "confidence": CONFIDENCE,
            "counted_runs": len(self.counted),
            "promised": self.promised,
            "pooled_share": self.pooled,
            "verdicts": dict(Counter(run.verdict for run in self.runs)),
            "broken_since": None if since is None else since.time,
            "sentences": self.sentences,
        }


def record(log: str | Path, marks: Sequence[MarkFile] = ()) -> TrackRecord:
    """Bring the runs of a log and the marks of their lists together.

    Parameters
    ----------
    log : str or Path
        The lines of `reconform check`.
    marks : sequence of MarkFile
        Each is about the run that judged the same rows or, if it does not say which, the same file.

    Returns
    -------
    TrackRecord
    """
    runs, failed = read_log(log)
    for some in marks:
        at = [
            i
            for i, run in enumerate(runs)
            if (run.batch == some.batch if some.batch else run.path and run.path == some.file)
        ]
        if not at:
            raise InputError(
                some.path,
                f"no run of {log} judged the rows that it marks: their digest (column 'batch') or "
                "file (column 'file') is in none of its lines.",
            )
        runs[at[-1]] = runs[at[-1]].marked(some)
    return TrackRecord(tuple(runs), failed)


def mean_interval(
    values: FloatArray, confidence: float = CONFIDENCE
) -> tuple[FloatArray, FloatArray]:
    """Bound the mean of numbers from 0 to 1 after each of them, at all times at once.

    Two gamblers bet on every candidate mean, one that it is too small and one that it is too
    large; a mean against which somebody has won more than 1/(1 - confidence) is left out.

    Examples
    --------
    >>> low, high = mean_interval(np.r_[np.zeros(90), np.ones(10)][::7] * 0.5)
    >>> bool(low[-1] < 0.05 < high[-1]), len(low)
    (True, 15)
    """
    x = np.asarray(values, dtype=np.float64)
    if not len(x):
        return x, x
    limit = math.log(2 / (1 - confidence))
    small, large = np.zeros_like(GRID), np.zeros_like(GRID)  # what either gambler has won, in logs
    stays, total, squares = np.ones(len(GRID), dtype=bool), 0.1, 0.03
    low, high = np.empty(len(x)), np.empty(len(x))
    with np.errstate(divide="ignore"):
        most = 0.9 / GRID, 0.9 / (1 - GRID)
    for k, value in enumerate(x.tolist(), start=1):
        # The variance before is squares / k: a bet is made before the number is seen.
        bet = math.sqrt(2 * limit / (squares * math.log1p(k)))
        small += np.log1p(np.minimum(bet, most[0]) * (value - GRID))
        large += np.log1p(-np.minimum(bet, most[1]) * (value - GRID))
        stays &= np.maximum(small, large) < limit
        total += value
        squares += (value - total / (k + 1)) ** 2
        inside = GRID[stays] if stays.any() else np.array([total / (k + 1)])
        low[k - 1] = max(inside[0] - GRID[1], 0.0)
        high[k - 1] = min(inside[-1] + GRID[1], 1.0)
    return low, high


def _moved(first: Mapping[str, Sequence[float]], now: Mapping[str, Sequence[float]]) -> float:
    """The largest distance of a quantile from where it was, in quartile ranges of that time."""
    found = [0.0]
    for name, then in first.items():
        spread = then[3] - then[1]
        if name in now and spread > 0:
            found += [abs(a - b) / spread for a, b in zip(then, now[name], strict=True)]
    return min(max(found), 1e6)


def _percent(share: float) -> str:
    """Round for reading."""
    return percent(round(share, 3))


# --- the page -------------------------------------------------------------------------------------

WIDTH, LEFT, RIGHT = 720, 52, 700
# The panels of the chart: where they begin and end, from above.
RATE, LISTS, DRIFT = (16, 156), (196, 276), (316, 376)
HEIGHT = 404
# A dot, a bar and a date each, up to so many runs; of more, the newest.
MOST_DRAWN, DATES = 400, 5


def render_record(record: TrackRecord, title: str) -> str:
    """Make the page as a text."""
    web = files(__package__) / "web"
    style = (web / "style.css").read_text("utf-8")
    happened, *said = record.sentences
    rate = record.running[-1][0] if record.running and record.total("looked") else None
    shown = ("none" if one is None else _percent(one) for one in (rate, record.promised))
    numbers = (
        *zip(shown, ("observed false discovery rate", "promised at most"), strict=True),
        (f"{len(record.runs):,}", "runs"),
        (f"{record.total('flagged'):,}", "rows flagged"),
        (f"{record.total('looked'):,}", "of them judged"),
        (f"{record.total('false'):,}", "of these false"),
    )
    return Template((web / "record.html").read_text("utf-8")).substitute(
        policy=policy(style),
        style=style,
        title=escape(shorten(title, 200)),
        tone=" warns" if record.broken_since else "",
        advice=escape(record.advice.replace("`", "")),
        numbers="\n".join(
            f"<div><dd>{escape(number)}</dd><dt>{escape(name)}</dt></div>"
            for number, name in numbers
        ),
        happened=escape(happened),
        said="\n".join(f"<p>{escape(one.replace('`', ''))}</p>" for one in said[:-1]),
        chart=_chart(record) if record.runs else "",
    )


def _chart(record: TrackRecord) -> str:
    """Three panels over the runs: the rate so far, the lists by verdict, and drift."""
    runs = record.runs[-MOST_DRAWN:]
    first = len(record.runs) - len(runs)
    step = (RIGHT - LEFT) / max(len(runs), 1)
    places = {id(run): LEFT + step * (k + 0.5) for k, run in enumerate(runs)}
    drawn = [
        *_rates(record, places),
        *_lists(runs, places, step),
        *_drift(record.drift[first:], [places[id(run)] for run in runs]),
    ]
    for k in sorted({round(j * (len(runs) - 1) / (DATES - 1)) for j in range(DATES)}):
        drawn.append(_label(places[id(runs[k])], HEIGHT - 8, runs[k].time[:10], "middle"))
    said = f"The observed rate, the lists and the drift of {len(runs):,} runs, the newest last"
    return (
        f'<svg role="img" aria-label="{said}" viewBox="0 0 {WIDTH} {HEIGHT}" class="chart">'
        f"{''.join(drawn)}</svg>"
    )


def _rates(record: TrackRecord, places: dict[int, float]) -> list[str]:
    counted = list(zip(record.counted, record.running, strict=True))
    shown = [(places[id(run)], run, now) for run, now in counted if id(run) in places]
    top = max([0.2, record.promised or 0.0, *(now[0] for _, _, now in shown)]) * 1.5
    top = min(1.0, top)

    def y(value: float) -> float:
        return RATE[1] - (RATE[1] - RATE[0]) * min(value, top) / top

    drawn = _axis(
        RATE, "Observed false discovery rate so far, and its interval", percent(round(top, 2))
    )
    if shown:
        high = " ".join(f"{x:.1f},{y(now[2]):.1f}" for x, _, now in shown)
        low = " ".join(f"{x:.1f},{y(now[1]):.1f}" for x, _, now in reversed(shown))
        mean = " ".join(f"{x:.1f},{y(now[0]):.1f}" for x, _, now in shown)
        drawn.append(f'<polygon class="band" points="{high} {low}"/>')
        drawn.append(f'<polyline class="flag-line" points="{mean}"/>')
        drawn += [
            f'<circle class="flag" cx="{x:.1f}" cy="{y(run.share or 0.0):.1f}" r="2">'
            f"<title>{escape(run.day)}: {run.false:,} of {run.looked:,} judged rows false</title>"
            "</circle>"
            for x, run, _ in shown
            if run.flagged
        ]
    if record.promised is not None:
        at = y(record.promised)
        drawn.append(f'<line class="even" x1="{LEFT}" x2="{RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        drawn.append(_label(RIGHT, at - 4, f"promised {_percent(record.promised)}", "end"))
    return drawn


def _lists(runs: tuple[Run, ...], places: dict[int, float], step: float) -> list[str]:
    most = max(1, *(run.flagged for run in runs))
    drawn = _axis(LISTS, "Rows flagged, by what the assumption looked like", f"{most:,}")
    for run in runs:
        high = (LISTS[1] - LISTS[0]) * run.flagged / most
        wide, x = max(0.5, 0.8 * step), places[id(run)]
        told = f"{escape(run.day)}: {run.flagged:,} of {run.rows:,} flagged, {run.verdict}"
        for height, foot in ((high, LISTS[1]), (4, LISTS[1] + 6)):  # a bar, and a cell below it
            drawn.append(
                f'<rect class="{run.verdict}" x="{x - wide / 2:.1f}" y="{foot - height:.1f}" '
                f'width="{wide:.1f}" height="{height:.1f}"><title>{told}</title></rect>'
            )
    return drawn


def _drift(drift: list[float], places: list[float]) -> list[str]:
    top = max(0.5, *drift)
    drawn = _axis(
        DRIFT, "How far columns moved since the first run, in quartile ranges", f"{top:.1f}"
    )
    points = " ".join(
        f"{x:.1f},{DRIFT[1] - (DRIFT[1] - DRIFT[0]) * moved / top:.1f}"
        for x, moved in zip(places, drift, strict=True)
    )
    return [*drawn, f'<polyline class="known" points="{points}"/>']


def _axis(panel: tuple[int, int], name: str, top: str) -> list[str]:
    low, high = panel[1], panel[0]
    return [
        f'<line class="axis" x1="{LEFT}" x2="{RIGHT}" y1="{low}" y2="{low}"/>',
        _label(LEFT - 6, low + 4, "0", "end"),
        _label(LEFT - 6, high + 8, top, "end"),
        _label(LEFT, high - 4, name, "start"),
    ]


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
