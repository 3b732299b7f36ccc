"""Streams: false alarms, delays, false discoveries and speed.

Run ``python benchmarks/stream.py`` (all) or with the names of parts: ``alarms``, ``delays``,
``discoveries``, ``speed``. Scores are normal or uniform numbers; no detector is fitted, so what is
measured is the statistics and our own time.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from reconform import ConformalDetector
from reconform.stream import ExchangeabilityMonitor, OnlineDiscoveries
from reconform.stream.martingales import MARTINGALES, make_martingale
from reconform.stream.order import OrderedScores

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


def evidence(name: str, p: Array) -> Array:
    return make_martingale(name, epsilon=0.92, jump=0.01).advance(p)


def alarms(n: int = 500, rows: int = 10_000, streams: int = 1_000) -> dict[str, Any]:
    """Rate of false alarms at alpha = 0.05 over normal streams, and its standard error."""
    count: dict[str, dict[str, int]] = {}
    for seed in range(streams):
        rng = np.random.default_rng(seed)
        c, x, u = rng.normal(size=n), rng.normal(size=rows), 1 - rng.random(rows)
        for way, p in (
            ("calibration and stream", p_among_all(c, x, u)),
            ("calibration only (refused)", p_among_calibration(c, x, u)),
        ):
            for name in MARTINGALES:
                alarm = bool(evidence(name, p).max() >= math.log(20))
                count.setdefault(way, dict.fromkeys(MARTINGALES, 0))[name] += alarm
    return {
        "n": n,
        "rows": rows,
        "streams": streams,
        "asked for": 0.05,
        **{
            way: {
                name: f"{k / streams:.3f} ± {math.sqrt(k * (streams - k) / streams**3):.3f}"
                for name, k in by_name.items()
            }
            for way, by_name in count.items()
        },
    }


def delays(n: int = 500, streams: int = 100) -> dict[str, Any]:
    """Median number of rows from a shift to the alarm at alpha = 0.05, after a normal beginning."""
    table: dict[str, Any] = {}
    for shift in (-1.0, -0.5, 0.5):
        for before in (0, 1_000, 10_000):
            waited: dict[str, list[float]] = {name: [] for name in MARTINGALES}
            for seed in range(streams):
                rng = np.random.default_rng(seed)
                x = np.concatenate([rng.normal(size=before), rng.normal(shift, size=5_000)])
                p = p_among_all(rng.normal(size=n), x, 1 - rng.random(len(x)))
                for name in MARTINGALES:
                    reached = np.flatnonzero(evidence(name, p)[before:] >= math.log(20))
                    waited[name].append(float(reached[0]) + 1 if len(reached) else math.inf)
            medians = {name: statistics.median(values) for name, values in waited.items()}
            table[f"shift of {shift:g} sd after {before:,} rows"] = {
                name: "none in 5,000" if math.isinf(rows) else rows
                for name, rows in medians.items()
            }
    return table


def discoveries(
    n: int = 20_000, rows: int = 1_000, streams: int = 200, fdr: float = 0.1
) -> dict[str, Any]:
    """Mean false discovery proportion and power; a tenth of the rows is clearly anomalous."""
    table: dict[str, Any] = {"n": n, "rows": rows, "streams": streams, "fdr": fdr}
    for procedure, conditional in (
        ("lond", None),
        ("lord", None),
        ("saffron", None),
        ("addis", None),
        ("lond", "simes"),
        ("lord", "simes"),
        ("saffron", "simes"),
        ("addis", "simes"),
        ("batch-bh", None),
    ):
        proportions, powers = [], []
        for seed in range(streams):
            rng = np.random.default_rng(seed)
            cad = calibrated(rng.normal(size=n))
            anomalous = rng.random(rows) < 0.1
            X = np.where(anomalous, rng.normal(-5, 1, size=rows), rng.normal(size=rows))
            online = OnlineDiscoveries(cad, fdr, procedure, conditional=conditional)
            step = 100 if procedure == "batch-bh" else rows
            mask = np.concatenate(
                [online.update(X[i : i + step, None]).mask for i in range(0, rows, step)]
            )
            proportions.append((mask & ~anomalous).sum() / max(1, mask.sum()))
            powers.append(mask[anomalous].mean())
        error = statistics.stdev(proportions) / math.sqrt(streams)
        table[f"{procedure}, {conditional or 'plain'} p-values"] = {
            "FDR": f"{statistics.mean(proportions):.4f} ± {error:.4f}",
            "power": round(statistics.mean(powers), 3),
        }
    return table


def microseconds(job: Callable[[], Any], rows: int, repeats: int = 3) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        job()
        seconds.append(time.perf_counter() - start)
    return round(1e6 * min(seconds) / rows, 2)


def by_skip_list(c: Array, x: Array) -> tuple[Array, float]:
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
    OrderedScores(np.zeros(2))  # compile
    for held in (10_000, 100_000, 1_000_000):
        c, x = rng.normal(size=held), rng.normal(size=held // 4)
        (ours, our_seconds), (theirs, their_seconds) = by_skip_list(c, x), by_sorted_list(c, x)
        table[f"rank among {held:,} and insert"] = {
            "skip list": round(1e6 * our_seconds / len(x), 2),
            "sortedcontainers": round(1e6 * their_seconds / len(x), 2),
            "ratio": round(their_seconds / our_seconds, 1),
            "same ranks": np.array_equal(ours, theirs),
        }
    cad, X = calibrated(rng.normal(size=10_000)), rng.normal(size=(100_000, 1))
    for name in MARTINGALES:
        table[f"monitor, {name}"] = microseconds(
            lambda name=name: ExchangeabilityMonitor(cad, martingale=name).update(X), len(X)
        )
    for procedure in ("lond", "lord", "saffron", "addis", "batch-bh"):
        table[f"online, {procedure}"] = microseconds(
            lambda procedure=procedure: OnlineDiscoveries(cad, procedure=procedure).update(X),
            len(X),
        )
    return table


PARTS = {"alarms": alarms, "delays": delays, "discoveries": discoveries, "speed": speed}

if __name__ == "__main__":
    warnings.simplefilter("ignore", UserWarning)
    for part in sys.argv[1:] or PARTS:
        print(json.dumps({part: PARTS[part]()}, indent=1, ensure_ascii=False))
