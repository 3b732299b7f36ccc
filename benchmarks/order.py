"""Rows in time order: the numbers of docs/time.md.

Run ``python benchmarks/order.py`` (all) or with names: wrong, level, power, sorted, cost, units,
days, decay, valves. Repetitions are few by default; ``--repeats N`` for more. The valves need the
data of SKAB (``--valves FOLDER``).
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.csv

from reconform import ConformalDetector
from reconform.assumption.history import change_since, seen_in
from reconform.assumption.order import order_of
from reconform.stream import DecayingMemory, FalseAlarmBudget

Array = npt.NDArray[Any]


def ar(rng: np.random.Generator, n: int, d: int, rho: float) -> Array:
    """A stationary autoregression in every column."""
    X = rng.normal(size=(n, d))
    for i in range(1, n):
        X[i] = rho * X[i - 1] + np.sqrt(1 - rho**2) * X[i]
    return X


def in_bursts(rng: np.random.Generator) -> Array:
    X = rng.normal(size=(400, 4))
    for start in rng.integers(0, 380, 4):  # up to 80 of 400 rows
        X[start : start + 20] += 4
    return X


EXCHANGEABLE: dict[str, Callable[[np.random.Generator], Array]] = {
    "plain": lambda rng: rng.normal(size=(400, 4)),
    "ties": lambda rng: rng.integers(0, 3, size=(400, 4)).astype(float),
    "copies": lambda rng: rng.normal(size=(40, 4))[rng.integers(0, 40, 400)],
    "20 % anomalies": lambda rng: rng.normal(size=(400, 4)) + 4 * (rng.random((400, 1)) < 0.2),
}


def wrong(repeats: int) -> Iterator[str]:
    """How often rows in time order without anomalies have a list, with kNN and full."""
    for rho in (0.0, 0.8, 0.9, 0.95):
        rng, lists = np.random.default_rng(0), 0
        for _ in range(8 * repeats):
            rows = ar(rng, 1200, 4, rho)
            found = ConformalDetector("knn", "full").fit(rows[:1000]).discover(rows[1000:])
            lists += found.count > 0
        yield f"AR(1) without anomalies, ρ = {rho}: {lists} of {8 * repeats} batches have a list"


def level(repeats: int) -> Iterator[str]:
    """How often exchangeable rows are called alike: reference, new rows, and either of both."""
    for name, draw in {**EXCHANGEABLE, "anomalies in bursts": in_bursts}.items():
        rng, hits = np.random.default_rng(0), np.zeros(3)
        for _ in range(20 * repeats):
            clean = EXCHANGEABLE.get(name, EXCHANGEABLE["plain"])
            ours, theirs = order_of(clean(rng)).alike, order_of(draw(rng), halve=True).alike
            hits += (ours, theirs, ours or theirs)
        shares = ", ".join(f"{hit / (20 * repeats):.2%}" for hit in hits)
        yield f"{name}: reference, new rows, either: {shares} of {20 * repeats:,}"


def power(repeats: int) -> Iterator[str]:
    """How often dependent rows are noticed, by the reference alone."""
    rng = np.random.default_rng(1)
    for rho in (0.2, 0.3, 0.5, 0.8):
        for d in (1, 4, 30):
            hits = sum(order_of(ar(rng, 400, d, rho)).alike for _ in range(4 * repeats))
            yield f"AR(1), rho = {rho}, n = 400, {d} columns: {hits} of {4 * repeats}"
    day = np.sin(2 * np.pi * np.arange(336) / 24)[:, None]
    for d in (1, 4):
        found = (order_of(day + rng.normal(size=(336, d))).alike for _ in range(4 * repeats))
        yield f"a daily season, hourly rows, two weeks, {d} columns: {sum(found)} of {4 * repeats}"
    for turns in (2, 5, 10):
        series = (
            np.stack([ar(rng, 400 // turns, 2, 0.9) for _ in range(turns)], axis=1).reshape(-1, 2)
            for _ in range(repeats)
        )
        hits = sum(order_of(X).alike for X in series)
        yield f"{turns} AR(1) series in turn, rho = 0.9, not told apart: {hits} of {repeats}"


def by_customer(repeats: int) -> Iterator[str]:
    """What is said of rows that are sorted by customer."""
    rng, words = np.random.default_rng(2), []
    for _ in range(repeats):
        customer = rng.normal(size=(60, 3))
        X, T = (
            np.repeat(some, 10, axis=0) + 0.5 * rng.normal(size=(10 * len(some), 3))
            for some in (customer[:40], customer[40:])
        )
        found = ConformalDetector("knn", "split", random_state=0).fit(X).discover(T)
        words += [one.level for one in found.verdict.findings if one.check == "order"]
    counts = {word: words.count(word) for word in ("doubtful", "broken")}
    yield f"rows sorted by customer, 40 + 20 of 10 rows each: {counts} of {repeats}"


def cost(repeats: int) -> Iterator[str]:
    """What part of the default three lines the test of the order takes."""
    rng = np.random.default_rng(3)
    for name, draw in {
        "exchangeable": lambda n: rng.normal(size=(n, 8)),
        "AR(1)": lambda n: ar(rng, n, 8, 0.8),
    }.items():
        for n, m in ((300, 200), (2_000, 500)):
            X, T = draw(n), draw(m)
            took, tested = [], []
            for _ in range(max(3, repeats // 10)):
                start = time.perf_counter()
                str(ConformalDetector(random_state=0).fit(X).discover(T))
                took.append(time.perf_counter() - start)
                start = time.perf_counter()
                if not order_of(X[:512]).alike:
                    order_of(T[:512], halve=True)
                tested.append(time.perf_counter() - start)
            run, test = np.median(took), np.median(tested)
            said = f"{test * 1e3:.1f} ms of {run:.2f} s, {test / run:.1%}"
            yield f"{name}, {n:,} + {m:,} rows: {said}"


def units(repeats: int) -> Iterator[str]:
    """A million rows in 20,000 units, and the level of units of dependent rows."""
    rng = np.random.default_rng(4)
    X, names = rng.normal(size=(1_000_000, 10)), rng.integers(0, 20_000, 1_000_000)
    start = time.perf_counter()
    cad = ConformalDetector(random_state=0).fit(X, units=names)
    yield f"fit, 1,000,000 rows of 10 columns in 20,000 units: {time.perf_counter() - start:.1f} s"
    start = time.perf_counter()
    cad.discover(X, units=names + 20_000)
    yield f"discover, as many: {time.perf_counter() - start:.1f} s"
    small = []
    for _ in range(10 * repeats):
        walks = rng.normal(size=(61, 1, 2)) + 0.3 * np.cumsum(rng.normal(size=(61, 20, 2)), axis=1)
        rows, of = walks.reshape(-1, 2), np.repeat(np.arange(61), 20)
        cad = ConformalDetector("knn", "full").fit(rows[:1_200], units=of[:1_200])
        small.append(cad.discover(rows[1_200:], units=of[1_200:], validity="nominal").p_values[0])
    share = np.mean(np.array(small) <= 0.1)
    yield f"random walks of 20 rows, 60 units, P(p <= 0.1): {share:.3f} ({10 * repeats} times)"


def month(seed: int, drift: float, size: float, rho: float, broke: int = 20) -> list[bool]:
    """On which of 30 days `check --before` would end with 4, if all are unlike the reference."""
    rng, runs, found = np.random.default_rng(seed), [], []
    for day in range(30):
        X = ar(rng, 400, 4, rho) if rho else rng.normal(size=(400, 4))
        X[:, 0] += drift * (day + 10)
        X[:, 1] += size * (day >= broke)
        seen = seen_in(X, "abcd", 400)
        found.append(not change_since(seen, ["shift"], runs).as_before)
        runs.append({"seen": seen, "broken": ["shift"]})
    return found


def days(repeats: int) -> Iterator[str]:
    """A month of checks of a drifting process with a break on day 20; 50 repetitions."""
    for drift, size, rho in ((0.05, 1.5, 0), (0.2, 1.5, 0), (0.05, 2, 0.8), (0.05, 0.7, 0)):
        months = [month(seed, drift, size, rho) for seed in range(50)]
        wrong = [sum(one[:20]) for one in months]
        yield (
            f"drift {drift}, break {size}, rho {rho}: false exits 4 {np.mean(wrong):.2f}, at most "
            f"2 in {np.mean(np.array(wrong) <= 2):.0%}, found in "
            f"{np.mean([any(one[20:22]) for one in months]):.0%}"
        )


def valves(repeats: int, folder: str = "") -> Iterator[str]:
    """What is said of real experiments: the first 400 rows are the reference."""
    words: dict[str, int] = {}
    for path in sorted(Path(folder).glob("*_*.csv")):
        how = pyarrow.csv.ParseOptions(delimiter=";")
        table = pyarrow.csv.read_csv(path, parse_options=how)
        names = [n for n in table.column_names if n not in ("datetime", "anomaly", "changepoint")]
        X = np.column_stack([table[name].to_numpy() for name in names])
        when = table["datetime"].to_numpy()
        alike = order_of(X[:400], times=np.arange(400.0)).alike
        cad = ConformalDetector("knn", "split", random_state=0).fit(X[:400], times=when[:400])
        verdict = cad.discover(X[400:], times=when[400:]).verdict.word
        word = f"order of the reference {'noticed' if alike else 'not noticed'}, verdict {verdict}"
        words[word] = words.get(word, 0) + 1
    yield f"valves: {words}"


def decay(repeats: int) -> Iterator[str]:
    """What streams find: 2,000 calibration rows, 1 % anomalies, 3,000 rows; 20 streams."""
    ways = {
        "decaying memory": lambda cad: DecayingMemory(cad, 0.1),
        "budget, 1 in 1,000 rows": lambda cad: FalseAlarmBudget(cad, 1, 1_000),
    }
    for name, make in ways.items():
        found = []
        for seed in range(20):
            rng = np.random.default_rng(seed)
            cad = ConformalDetector("knn", "split", random_state=seed)
            cad.fit(rng.normal(size=(4_000, 3)))
            X, bad = rng.normal(size=(3_000, 3)), rng.random(3_000) < 0.01
            X[bad] += 4
            mask = make(cad).update(X).mask
            found.append((mask[bad].mean(), mask[~bad].sum() / max(1, mask.sum())))
        power, false = np.mean(found, axis=0)
        yield f"{name}: found {power:.2f}, false share {false:.2f}"


PARTS: dict[str, Callable[..., Iterator[str]]] = {
    "wrong": wrong, "level": level, "power": power, "sorted": by_customer, "cost": cost,
    "units": units, "days": days, "decay": decay, "valves": valves,
}  # fmt: skip

if __name__ == "__main__":
    warnings.simplefilter("ignore", UserWarning)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--valves", default="")
    asked = parser.parse_args()
    for part in asked.parts or [name for name in PARTS if name != "valves" or asked.valves]:
        more = {"folder": asked.valves} if part == "valves" else {}
        for line in PARTS[part](asked.repeats, **more):
            print(f"{part}: {line}", flush=True)
