"""What it costs to prepare rows with text and gaps: against a plain table, in one run.

Run ``python benchmarks/prepared.py`` for 5,000 reference and 1,000 new rows of 10 columns, in CSV
files, through ``reconform detect`` with kNN or another detector and jackknife+ or another method;
asked for is at most twice the time of the plain command. A second pair of files has missing numbers
and a category as well. The commands take turns, each in a process
of its own; the first turn, which fills the cache of compiled code, is not counted. Most of that
time is the start of Python, so fitting and ranking alone, in one process, are timed as well.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

COLUMNS = 10


def write(folder: Path, reference: int, new: int) -> None:
    """Write the files: columns of one unit, so that both search alike; with gaps and a category."""
    rng = np.random.default_rng(0)
    for name, count in {"normal": reference, "new": new}.items():
        X = rng.normal(size=(count, COLUMNS))
        frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(COLUMNS)])
        frame.to_csv(folder / f"{name}.csv", index=False)
        gaps = frame.mask(rng.random(X.shape) < [0.02] * 5 + [0.0] * 5)
        gaps["colour"] = rng.choice(["red", "green", "blue", None], count, p=[0.5, 0.3, 0.19, 0.01])
        gaps.loc[:9, "colour"] = [f"{name}{k}" for k in range(10)]  # labels of one row each
        gaps.to_csv(folder / f"{name}_mixed.csv", index=False)


def seconds(folder: Path, suffix: str, *options: str) -> float:
    """Time of one command."""
    command = ["detect", str(folder / f"normal{suffix}.csv"), str(folder / f"new{suffix}.csv")]
    output = ["--output", str(folder / "out.csv"), "--overwrite", "--seed", "0"]
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "reconform", *command, *output, *options],
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - start


def seconds_inside(folder: Path, suffix: str, detector: str, method: str) -> float:
    """Time of fitting and ranking alone."""
    from reconform import ConformalDetector
    from reconform.detectors.prepare import prepared
    from reconform.files import open_batches, read_reference

    reference = read_reference(folder / f"normal{suffix}.csv")
    file, prepares = folder / f"new{suffix}.csv", reference.prepared
    with open_batches(file, reference.features, allow_missing=prepares) as batches:
        new = np.vstack(list(batches))
    chosen = prepared(detector, reference.features) if prepares else detector
    start = time.perf_counter()
    cad = ConformalDetector(chosen, method, random_state=0, n_jobs=-1).fit(reference.frame)
    cad.rank(new, checked=True)
    return time.perf_counter() - start


def main() -> None:
    """Take turns and print medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--detector", default="knn")
    parser.add_argument("--method", default="jackknife+")
    parser.add_argument("--reference", type=int, default=5_000)
    parser.add_argument("--new", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    options = ["--detector", asked.detector, "--method", asked.method]
    ways = {"plain": "", "missing values and a category": "_mixed"}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    inside: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write(folder, asked.reference, asked.new)
        for turn in range(asked.repeats + 1):
            for name, suffix in ways.items():
                time_taken = seconds(folder, suffix, *options)
                alone = seconds_inside(folder, suffix, asked.detector, asked.method)
                if turn:
                    taken[name].append(time_taken)
                    inside[name].append(alone)
    print(f"{asked.detector}, {asked.method}, {asked.reference:,} and {asked.new:,} rows")
    for title, figures in {"the command": taken, "fitting and ranking": inside}.items():
        print(f"{title}:")
        plain = statistics.median(figures["plain"])
        for name, times in figures.items():
            middle = statistics.median(times)
            print(
                f"  {name:40} {middle:6.2f} s (from {min(times):.2f} to {max(times):.2f}), "
                f"{middle / plain:.2f} times plain"
            )


if __name__ == "__main__":
    main()
