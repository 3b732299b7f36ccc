"""What windows of time series find: `python benchmarks/timeseries.py valves|simulated|million`.

`valves FOLDER`: experiments with one anomaly each, first 400 rows as reference. `simulated`: how
often stationary series without anomalies have a list at 0.1, and how often a shift of 4 standard
deviations over 60 rows is found. `million`: seconds and memory.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.signal import lfilter

from reconform.timeseries import Windows, fit

TRAIN = 400
# Denominators of the filters; a season is added to the last.
SERIES = {
    **{f"AR(1), {rho:g}": [1, -rho] for rho in (0.0, 0.5, 0.8, 0.9, 0.95)},
    "AR(2), waves": [1, -1.6, 0.8],
    "AR(2), slow": [1, -1.2, 0.25],
    "season and AR(1), 0.7": [1, -0.7],
}


def experiments(folder: Path) -> Iterator[tuple[str, pd.DataFrame, np.ndarray]]:
    """Those whose anomaly is not in the reference."""
    for path in sorted(folder.glob("*.csv")):
        frame = pd.read_csv(path, sep=";")
        if "anomaly" in frame and not frame["anomaly"][:TRAIN].any():
            labels = frame["anomaly"].to_numpy(dtype=bool)
            yield path.stem, frame.drop(columns=["anomaly", "changepoint"]), labels[TRAIN:]


def valves(folder: Path, window: int | None) -> None:
    """F1, false alarms and missed rows, pooled; events; what lists hold where the verdict does."""
    windows, marks, truth, found_, false, shares = (
        Windows("datetime", length=window),
        [],
        [],
        0,
        0,
        [],
    )
    for name, frame, labels in experiments(folder):
        found = fit(frame[:TRAIN], windows, random_state=0).discover(frame[TRAIN:], units=windows)
        flagged = np.zeros(len(labels), dtype=bool)
        hits = []
        for event in found.events:
            here = slice(event.rows[0], event.rows[1] + 1)
            flagged[here] = True
            hits.append(bool(labels[here].any()))
        listed = found.mask[found.units.codes]
        share = (listed & ~labels).sum() / max(listed.sum(), 1)
        shares += [share] if found.verdict.word == "holds" else []
        found_, false = found_ + any(hits), false + hits.count(False)
        print(
            f"{name}: {(flagged & labels).mean() / labels.mean():.2f} of the anomalous rows, "
            f"{(flagged & ~labels).mean() / (~labels).mean():.2f} of the normal ones; "
            f"{found.verdict.word}, false share {share:.2f}"
        )
        marks.append(flagged)
        truth.append(labels)
    flagged, labels = np.concatenate(marks), np.concatenate(truth)
    hit, wrong, missed = (
        (flagged & labels).sum(),
        (flagged & ~labels).sum(),
        (~flagged & labels).sum(),
    )
    print(
        f"F1 {2 * hit / (2 * hit + wrong + missed):.3f}, "
        f"false alarms {wrong / (~labels).sum():.3f}, "
        f"missed {missed / labels.sum():.3f}; events found in {found_} of {len(marks)}, "
        f"{false / len(marks):.2f} false ones each; holds in {len(shares)}, false share "
        f"{np.mean(shares or [0]):.3f}"
    )


def simulated(n: int, m: int, repeats: int) -> None:
    """Lists without anomalies, and shifts that are found."""
    windows = Windows("rows")
    for name, weights in SERIES.items():
        rng, lists, hits, alarms = np.random.default_rng(0), 0, 0, 0
        for _ in range(repeats):
            x = lfilter([1], weights, rng.normal(size=n + m + 300))[300:]
            x += 4 * np.sin(np.arange(n + m) * 2 * np.pi / 24) * name.startswith("season")
            cad = fit(pd.DataFrame({"x": x[:n]}), windows, random_state=0)
            lists += bool(cad.discover(pd.DataFrame({"x": x[n:]}), units=windows).count)
            a = (m - 60) // 2
            x[n + a : n + a + 60] += 4 * x[:n].std()
            found = cad.discover(pd.DataFrame({"x": x[n:]}), units=windows)
            allowed = cad.discover(pd.DataFrame({"x": x[n:]}), units=windows, false_alarms=1)
            hit, too = (
                any(e.rows[0] < a + 60 and e.rows[1] >= a for e in one.events)
                for one in (found, allowed)
            )
            hits, alarms = hits + hit, alarms + too
        print(
            f"{name}: lists in {lists} of {repeats}, shifts found in {hits}; with false_alarms=1 "
            f"in {alarms}",
            flush=True,
        )


def million(rows: int) -> None:
    """Rows of 20 columns: half of them the reference."""
    x = lfilter([1], [1, -0.9], np.random.default_rng(0).normal(size=(rows, 20)), axis=0)
    frame = pd.DataFrame(x, columns=[f"c{j}" for j in range(20)])
    frame.insert(0, "when", pd.date_range("2024-01-01", periods=rows, freq="s"))
    windows, start = Windows("when", length=60), time.perf_counter()
    cad = fit(frame[: rows // 2], windows, random_state=0)
    found = cad.discover(frame[rows // 2 :], units=windows)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    seconds = time.perf_counter() - start
    print(f"{rows:,} rows: {seconds:.1f} s, {peak:.2f} GB, {found.count} of {found.tested} flagged")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("valves")
    one.add_argument("folder", type=Path)
    one.add_argument("--window", type=int)
    one = commands.add_parser("simulated")
    for name, default in (("--n", 1_000), ("--m", 200), ("--repeats", 50)):
        one.add_argument(name, type=int, default=default)
    commands.add_parser("million").add_argument("--rows", type=int, default=1_000_000)
    given = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if given.command == "valves":
            valves(given.folder, given.window)
        elif given.command == "simulated":
            simulated(given.n, given.m, given.repeats)
        else:
            million(given.rows)


if __name__ == "__main__":
    main()
