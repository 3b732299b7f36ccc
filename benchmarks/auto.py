"""What the defaults cost: ``detector="auto"``, ``method="auto"``.

    python benchmarks/auto.py             # batches in memory; two files by the command line
    python benchmarks/auto.py --large     # two million rows
    python benchmarks/auto.py --against TREE   # the two files, alternating with another checkout

Everything is warm: compiled code comes from the cache. Prints seconds (median and all), and the
peak memory of a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from statistics import median

import numpy as np

HERE = Path(__file__).parent.parent


def rows(n: int, d: int, anomalies: int, seed: int) -> np.ndarray:
    """Normal rows, the first few of them moved."""
    X = np.random.default_rng(seed).normal(size=(n, d))
    X[:anomalies] += 1.5
    return X


def batch(n: int, m: int, d: int) -> None:
    """Fit and discover, in a process of its own."""
    from reconform import ConformalDetector

    X, new = rows(n, d, 0, 0), rows(m, d, m // 10, 1)
    seconds, shares = [], []
    for repeat in range(4):
        start = time.perf_counter()
        cad = ConformalDetector(random_state=0, n_jobs=2).fit(X)
        fitted = time.perf_counter()
        found = cad.discover(new)
        if repeat:  # the first loads compiled code
            seconds.append(time.perf_counter() - start)
            shares.append(fitted - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    said = ", ".join(f"{s:.2f}" for s in seconds)
    print(
        f"n = {n:,}, m = {m:,}, d = {d}: {median(seconds):.2f} s ({said}; of which fit "
        f"{median(shares):.2f}), {peak:.2f} GB, {found.provenance.scheme}, {found.count} flagged"
    )


def files(other: Path | None = None) -> None:
    """``reconform detect`` and ``check`` on files of 1,000 x 20, from the cache."""
    import pandas as pd

    names = [f"x{j}" for j in range(20)]
    with tempfile.TemporaryDirectory() as folder:
        for name, anomalies in (("normal.csv", 0), ("new.csv", 40)):
            X = rows(1000, 20, anomalies, anomalies)
            pd.DataFrame(X, columns=names).to_csv(Path(folder, name), index=False)
        ours = [sys.executable, "-m", "reconform"]
        fit = [*ours, "fit", "normal.csv", "--model", "m.rcad", "--quiet"]
        subprocess.run(fit, check=True, cwd=folder, capture_output=True)
        commands = {
            "detect, two files of 1,000 x 20": ["detect", "normal.csv", "new.csv", "--json"],
            "check, a file of 1,000 x 20": ["check", "m.rcad", "new.csv", "--fail-on", "broken"],
        }
        trees = {"": None} if other is None else {" (here)": HERE, f" ({other})": other}
        for title, command in commands.items():
            taken: dict[str, list[float]] = {name: [] for name in trees}
            for _, (name, tree) in product(range(4 if other is None else 6), trees.items()):
                path = {} if tree is None else {"PYTHONPATH": str(tree.resolve() / "src")}
                start = time.perf_counter()
                ran = subprocess.run(
                    [*ours, *command], cwd=folder, capture_output=True, env={**os.environ, **path}
                )
                taken[name].append(time.perf_counter() - start)
            flagged = json.loads(ran.stdout)["flagged"]
            for name, seconds in taken.items():
                said = ", ".join(f"{s:.1f}" for s in seconds[1:])
                print(f"{title}{name}: {said} s; {flagged} flagged")


def large(reference: int, new: int, d: int) -> None:
    """Two million rows in a Parquet file, with the defaults."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as folder:
        for name, count, anomalies in (("normal", reference, 0), ("new", new, new // 100)):
            X = rows(count, d, anomalies, anomalies)
            table = pa.table({f"x{j}": X[:, j] for j in range(d)})
            pq.write_table(table, Path(folder, f"{name}.parquet"))
        inputs = ["normal.parquet", "new.parquet", "--output", "out.parquet", "--overwrite"]
        command = [sys.executable, "-m", "reconform", "detect", *inputs, "--jobs", "2", "--json"]
        for _ in range(2):
            start = time.perf_counter()
            ran = subprocess.run(command, check=True, cwd=folder, capture_output=True)
            seconds = time.perf_counter() - start
        said = json.loads(ran.stdout)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        print(
            f"detect, {reference:,} reference and {new:,} new rows, d = {d}: {seconds:.1f} s, "
            f"{peak:.2f} GB, {said['scheme']}, {said['flagged']:,} flagged"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--against", type=Path, metavar="TREE", help="another checkout")
    parser.add_argument("--batch", nargs=3, type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.batch:
        batch(*arguments.batch)
    elif arguments.against:
        files(arguments.against)
    elif arguments.large:
        large(100_000, 2_000_000, 10)
        large(1_000_000, 1_000_000, 10)
    else:
        wide = ((215, 71, 1000), (2000, 500, 128), (2000, 500, 768))
        for n, m, d in ((1500, 500, 20), (10_000, 1000, 20), *wide):
            call = [sys.executable, __file__, "--batch", str(n), str(m), str(d)]
            subprocess.run(call, check=True)
        files()


if __name__ == "__main__":
    main()
