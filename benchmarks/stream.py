"""Streams: false alarms, delays and speed.

Run ``python benchmarks/stream.py`` (all) or with the names of parts: ``alarms``, ``delays``,
``changes``, ``speed``, ``pipe``. Scores are normal or uniform numbers; no detector
is fitted, so what is measured is the statistics and our own time; ``pipe`` is the command line with
an isolation forest. What procedures find on public data is in ``benchmarks/streams.py``.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reconform import ConformalDetector, save
from reconform.stream import Change, ChangeMonitor, ExchangeabilityMonitor
from reconform.stream.monitor import OrderedScores, SimpleJumper

Array = npt.NDArray[Any]


class FirstColumn:
    """A fitted model: the score of a row is its first column."""

    fitted_ = True

    def fit(self, X: Array) -> FirstColumn:
        """Do nothing."""
        return self

    def score_samples(self, X: Array) -> Array:
        """Take the first column."""
        return np.asarray(X[:, 0])


def calibrated(scores: Array) -> ConformalDetector:
    return ConformalDetector(FirstColumn(), "prefit").fit(scores.reshape(-1, 1))


def p_among_all(c: Array, x: Array, u: Array) -> Array:
    """Rank each score among the calibration and the stream so far: what the monitor does."""
    below, equal = OrderedScores(c).rank_and_insert(x)
    return np.asarray((below + u * (equal + 1)) / (len(c) + 1 + np.arange(len(x))))


def p_among_calibration(c: Array, x: Array, u: Array) -> Array:
    """The shortcut that is refused: every score against the same calibration set."""
    below = np.searchsorted(np.sort(c), x)
    return np.asarray((below + u) / (len(c) + 1))


def alarms(n: int = 500, rows: int = 10_000, streams: int = 1_000) -> dict[str, Any]:
    """Rate of false alarms at alpha = 0.05 over normal streams, and its standard error."""
    count: dict[str, int] = {}
    for seed in range(streams):
        rng = np.random.default_rng(seed)
        c, x, u = rng.normal(size=n), rng.normal(size=rows), 1 - rng.random(rows)
        for way, p in (
            ("calibration and stream", p_among_all(c, x, u)),
            ("calibration only (refused)", p_among_calibration(c, x, u)),
        ):
            count[way] = count.get(way, 0) + bool(SimpleJumper().advance(p).max() >= math.log(20))
    return {
        "n": n,
        "rows": rows,
        "streams": streams,
        "asked for": 0.05,
        **{
            way: f"{k / streams:.3f} ± {math.sqrt(k * (streams - k) / streams**3):.3f}"
            for way, k in count.items()
        },
    }


def delays(n: int = 500, streams: int = 100) -> dict[str, Any]:
    """Median number of rows from a shift to the alarm at alpha = 0.05, after a normal beginning."""
    table: dict[str, Any] = {}
    for shift in (-1.0, -0.5, 0.5):
        for before in (0, 1_000, 10_000):
            waited: list[float] = []
            for seed in range(streams):
                rng = np.random.default_rng(seed)
                x = np.concatenate([rng.normal(size=before), rng.normal(shift, size=5_000)])
                p = p_among_all(rng.normal(size=n), x, 1 - rng.random(len(x)))
                reached = np.flatnonzero(SimpleJumper().advance(p)[before:] >= math.log(20))
                waited.append(float(reached[0]) + 1 if len(reached) else math.inf)
            rows = statistics.median(waited)
            table[f"shift of {shift:g} sd after {before:,} rows"] = (
                "none in 5,000" if math.isinf(rows) else rows
            )
    return table


def changes(n: int = 500, limit: int = 1_000, streams: int = 200) -> dict[str, Any]:
    """Alarms that go on, at a run length of 1,000: false ones, delays, and when a change began."""
    table: dict[str, Any] = {"n": n, "run length": limit, "streams": streams}
    rng = np.random.default_rng(0)
    false = [
        len(changed(rng.normal(size=n), rng.normal(size=5_000), limit, s)) for s in range(streams)
    ]
    error = statistics.stdev(false) / math.sqrt(streams)
    row: dict[str, Any] = {
        "false alarms in 5,000 rows, at most 5": f"{statistics.mean(false):.2f} ± {error:.2f}"
    }
    for shift, before in (
        (-1.0, 0),
        (-1.0, 1_000),
        (-1.0, 10_000),
        (-0.5, 1_000),
        (0.5, 1_000),
    ):
        delay, off = [], []
        for seed in range(100):
            rng = np.random.default_rng(seed)
            x = np.concatenate([rng.normal(size=before), rng.normal(shift, size=1_000)])
            alarms = changed(rng.normal(size=n), x, limit, seed)
            after = [one for one in alarms if one.row >= before]
            delay.append(after[0].row - before + 1 if after else math.inf)
            off.append(after[0].began - before if after else math.inf)
        low, middle, high = np.quantile(off, [0.1, 0.5, 0.9])
        row[f"shift of {shift:g} sd after {before:,} rows"] = {
            "rows until the alarm, median": statistics.median(delay),
            "estimate of its beginning, off by": f"{middle:.0f} ({low:.0f} to {high:.0f})",
        }
    table |= row
    return table


def changed(c: Array, x: Array, limit: float, seed: int) -> list[Change]:
    monitor = ChangeMonitor(calibrated(c), limit, random_state=seed)
    monitor.update(x.reshape(-1, 1))
    return monitor.changes


def pipe(rows: int = 50_000, columns: int = 10, single: int = 500) -> dict[str, Any]:
    """``reconform stream``, iforest and split: rows per second, milliseconds for one row."""
    names = [f"x{j}" for j in range(columns)]
    rng = np.random.default_rng(0)
    table: dict[str, Any] = {"rows": rows, "columns": columns}
    with tempfile.TemporaryDirectory() as place:
        model = str(Path(place, "model.rcad"))
        frame = pa.table({name: rng.normal(size=20_000) for name in names})
        save(ConformalDetector("iforest", "split", random_state=0).fit(frame), model)
        lines = [
            json.dumps(dict(zip(names, row, strict=True))).encode() + b"\n"
            for row in rng.normal(size=(rows, columns)).round(4).tolist()
        ]
        for title, options in (
            ("budget", []),
            ("budget, journal", ["--journal", str(Path(place, "journal"))]),
            ("windows of 200 rows", ["--by", "windows"]),
        ):
            with started(model, options) as process:
                process.stdin.write(b"".join(lines[:200]))  # a window, for the start of Python
                process.stdin.flush()
                for _ in range(200):
                    process.stdout.readline()
                waited = []
                for line in lines[:single] if "windows" not in title else []:
                    start = time.perf_counter()
                    process.stdin.write(line)
                    process.stdin.flush()
                    process.stdout.readline()
                    waited.append(1e3 * (time.perf_counter() - start))
                start = time.perf_counter()
                feeding = threading.Thread(target=feed, args=(process.stdin, lines))
                feeding.start()
                answers = sum(1 for _ in process.stdout)
                seconds = time.perf_counter() - start
                feeding.join()
            assert answers == rows
            table[title] = {"rows per second": round(rows / seconds)}
            if waited:
                warm = waited[50:]
                table[title]["ms for one row, median"] = round(statistics.median(warm), 2)
                table[title]["ms for one row, 99%"] = round(float(np.quantile(warm, 0.99)), 2)
    return table


def started(model: str, options: list[str]) -> Any:
    command = [sys.executable, "-m", "reconform", "stream", model, "--quiet", *options]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def feed(pipe: Any, lines: list[bytes]) -> None:
    pipe.write(b"".join(lines))
    pipe.close()


def microseconds(job: Callable[[], Any], rows: int, repeats: int = 3) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        job()
        seconds.append(time.perf_counter() - start)
    return round(1e6 * min(seconds) / rows, 2)


def by_sorted_arrays(c: Array, x: Array) -> tuple[Array, float]:
    """Ranks among c and what came before, and the seconds that x took."""
    ordered = OrderedScores(c)
    start = time.perf_counter()
    below, _ = ordered.rank_and_insert(x)
    return below, time.perf_counter() - start


def by_sorted_list(c: Array, x: Array) -> tuple[Array, float]:
    """The peer: sortedcontainers, which comes with the test environment."""
    from sortedcontainers import SortedList

    ordered, below = SortedList(c.tolist()), []
    start = time.perf_counter()
    for score in x.tolist():
        below.append(ordered.bisect_left(score))
        ordered.bisect_right(score)
        ordered.add(score)
    return np.array(below), time.perf_counter() - start


def speed() -> dict[str, Any]:
    """Microseconds per row."""
    rng = np.random.default_rng(0)
    table: dict[str, Any] = {}
    for held in (10_000, 100_000, 1_000_000):
        c, x = rng.normal(size=held), rng.normal(size=held // 4)
        (ours, our_seconds), (theirs, their_seconds) = by_sorted_arrays(c, x), by_sorted_list(c, x)
        table[f"rank among {held:,} and insert"] = {
            "sorted arrays": round(1e6 * our_seconds / len(x), 2),
            "sortedcontainers": round(1e6 * their_seconds / len(x), 2),
            "ratio": round(their_seconds / our_seconds, 1),
            "same ranks": np.array_equal(ours, theirs),
        }
    cad, X = calibrated(rng.normal(size=10_000)), rng.normal(size=(100_000, 1))
    table["monitor"] = microseconds(lambda: ExchangeabilityMonitor(cad).update(X), len(X))
    return table


PARTS = {
    "alarms": alarms,
    "delays": delays,
    "changes": changes,
    "speed": speed,
    "pipe": pipe,
}

if __name__ == "__main__":
    warnings.simplefilter("ignore", UserWarning)
    for part in sys.argv[1:] or PARTS:
        print(json.dumps({part: PARTS[part]()}, indent=1, ensure_ascii=False))
