"""What marks are worth: a month of daily checks, and how often the record's interval is right.

    python benchmarks/feedback.py month              a simulated month, ten repetitions
    python benchmarks/feedback.py interval           the record's interval, 2,000 simulated records

A month has 30 days of 1,000 rows, of which a twentieth are anomalies of five kinds, and 1,000
reference rows. Every day a third of the flagged rows, drawn at random, is marked, and the detector
is updated. Without marks, the same detector judges the same days. "5 % wrong": so many marks say
the opposite.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

from reconform import ConformalDetector
from reconform.reporting.record import Run, TrackRecord

DAYS, ROWS, KINDS, COLUMNS, SHARE, MARKED, LAST, FDR = 30, 1_000, 5, 8, 0.05, 1 / 3, 10, 0.1
FAR, WIDE = 4.0, 0.7  # how far the kinds are from the middle, and how wide each is


def a_month(seed: int):
    """The reference, and every day's rows with their kinds (0 is normal)."""
    rng = np.random.default_rng(seed)
    kinds = rng.normal(size=(KINDS, COLUMNS))
    kinds *= FAR / np.linalg.norm(kinds, axis=1)[:, None]
    days = []
    for _ in range(DAYS):
        which = np.where(rng.random(ROWS) < SHARE, rng.integers(1, KINDS + 1, ROWS), 0)
        X = rng.normal(size=(ROWS, COLUMNS))
        bad = which > 0
        X[bad] = kinds[which[bad] - 1] + WIDE * rng.normal(size=(bad.sum(), COLUMNS))
        days.append((X, which))
    return rng.normal(size=(1_000, COLUMNS)), days


def lived(cad, days, seed: int, *, wrong: float | None):
    """Judge the days, with marks unless `wrong` is None: power and false share per day, runs."""
    rng = np.random.default_rng(seed)
    powers, shares, runs = [], [], []
    for X, which in days:
        found = cad.discover(X, FDR)
        flagged, bad = found.mask, which > 0
        powers.append((flagged & bad).sum() / bad.sum())
        shares.append((flagged & ~bad).sum() / max(flagged.sum(), 1))
        if wrong is None:
            continue
        looked = np.flatnonzero(flagged & (rng.random(ROWS) < MARKED))
        says = bad[looked] ^ (rng.random(len(looked)) < wrong)
        runs.append(
            Run("", "", "", ROWS, found.count, FDR, "holds", {}, frozenset(),
                real=int(says.sum()), false=int((~says).sum()))
        )  # fmt: skip
        marks = np.full(ROWS, "", dtype=object)
        marks[looked] = np.where(says, "real", "false")
        cad = cad.update(X, marks)
    return np.array(powers), np.array(shares), TrackRecord(tuple(runs))


def month(detector: str, method: str, repetitions: int) -> None:
    """Power on the last ten days and the false discovery rate, with marks and without."""
    rows = []
    for seed in range(repetitions):
        reference, days = a_month(seed)
        cad = ConformalDetector(detector, method, random_state=0).fit(reference)
        without = lived(cad, days, seed, wrong=None)
        row = [without[0][-LAST:].mean(), without[1].mean()]
        for wrong in (0.0, 0.05):
            powers, shares, told = lived(cad, days, seed, wrong=wrong)
            mean, low, high = told.running[-1]
            row += [powers[-LAST:].mean(), shares.mean(), low <= shares.mean() <= high, mean]
        rows.append(row)
        print(f"repetition {seed}:", " ".join(f"{value:.3f}" for value in row), flush=True)
    mean = np.mean(rows, axis=0)
    print(f"{detector}, {method}; {repetitions} months; level {FDR}")
    print(f"without marks: power on the last {LAST} days {mean[0]:.3f}, FDR {mean[1]:.3f}")
    for name, at in (("with marks", 2), ("with marks, 5 % wrong", 6)):
        times = mean[at] / mean[0]
        print(
            f"{name}: power {mean[at]:.3f} ({times:.2f} times), FDR {mean[at + 1]:.3f}; the record "
            f"says {mean[at + 3]:.3f}, its interval covers the mean of the month in "
            f"{mean[at + 2]:.0%}"
        )


def interval(repetitions: int = 2_000) -> None:
    """Of many records, how often the interval holds after every run, and after the last."""
    rng = np.random.default_rng(0)
    for rate in (0.02, 0.1, 0.3):
        for length in (3, 30):
            last = always = 0
            for _ in range(repetitions):
                sizes = rng.poisson(length, DAYS) * (rng.random(DAYS) < 0.8)
                looked = rng.binomial(sizes, MARKED)
                false = rng.binomial(looked, rng.beta(4 * rate, 4 * (1 - rate), DAYS))
                runs = [
                    Run("", "", "", ROWS, n, FDR, "holds", {}, frozenset(), real=k - v, false=v)
                    for n, k, v in zip(*map(np.ndarray.tolist, (sizes, looked, false)), strict=True)
                ]
                truth = rate * 0.8 * (1 - np.exp(-length))
                now = np.array(TrackRecord(tuple(runs)).running)
                inside = (now[:, 1] <= truth) & (truth <= now[:, 2])
                last, always = last + inside[-1], always + inside.all()
            always, last = always / repetitions, last / repetitions
            print(
                f"FDR {rate}, lists of {length}: covered after 30 runs in {last:.1%}, after every "
                f"one of them in {always:.1%}"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("month", "interval"))
    parser.add_argument("--detector", default="contrast")
    parser.add_argument("--method", default="full")
    parser.add_argument("--repetitions", type=int, default=10)
    asked = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if asked.what == "month":
            month(asked.detector, asked.method, asked.repetitions)
        else:
            interval()
