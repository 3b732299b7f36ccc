"""A file far larger than memory allows: peak memory and time of judging it.

Run ``python benchmarks/files.py`` for 20 million rows of 10 columns (1.6 GB of Parquet); asked for
is a peak below 1 GB with iforest and split. Everything but the rows is an option; ``--help``.

Run ``python benchmarks/files.py --wide`` for the other extreme: 20 rows of 10,000 columns, through
the command line, by itself and with an output and a report. Asked for is less than 5 seconds each,
from a warm cache.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS = 10
ANOMALOUS = 100  # one new row in so many lies far away


def rows(start: int, count: int, anomalous: bool = True) -> Any:
    """Rows of the file from a position on: normal ones, and a few far away."""
    import pyarrow as pa

    rng = np.random.default_rng([start, anomalous])
    X = rng.normal(size=(count, COLUMNS))
    if anomalous:
        X[rng.random(count) < 1 / ANOMALOUS] += 6
    return pa.table({f"x{j}": X[:, j] for j in range(COLUMNS)})


def write(path: Path, total: int, group: int, anomalous: bool) -> None:
    """Write the file, a row group or batch at a time."""
    from reconform.files import open_output

    with open_output(path, rows(0, 1).schema) as put:
        for start in range(0, total, group):
            put(rows(start, min(group, total - start), anomalous))


def judge(folder: Path, suffix: str, detector: str, method: str, only: bool) -> dict[str, Any]:
    """Fit, judge the file, and say what it took; runs in a process of its own."""
    from reconform import ConformalDetector
    from reconform.files import read_reference
    from reconform.files.judge import WriteOptions, judge_file

    base = peak_megabytes()
    start = time.perf_counter()
    reference = read_reference(folder / f"normal{suffix}")
    cad = ConformalDetector(detector, method, random_state=0, n_jobs=-1).fit(reference.frame)
    fitted = time.perf_counter()
    marks = {"ranking": fitted, "writing": fitted}

    def progress(stage: str, done: int, total: int | None) -> None:
        marks[stage] = time.perf_counter()

    out = folder / f"out{suffix}"
    found = judge_file(
        cad,
        folder / f"new{suffix}",
        out,
        write=WriteOptions(only_anomalies=only),
        progress=progress,
    )
    end = time.perf_counter()
    return {
        "rows": found.tested,
        "flagged": found.count,
        "new file, MB": round((folder / f"new{suffix}").stat().st_size / 1e6),
        "output, MB": round(out.stat().st_size / 1e6),
        "seconds: fit": round(fitted - start, 1),
        "seconds: rank": round(marks["ranking"] - fitted, 1),
        "seconds: write": round(end - marks["ranking"], 1),
        "MB after the imports": round(base),
        "peak MB (asked: < 1000)": round(peak_megabytes()),
    }


def wide(rows: int, columns: int, suffix: str) -> None:
    """Say what tables of few rows and many columns take, with every detector."""
    import pyarrow as pa

    from reconform.files import open_output

    rng = np.random.default_rng(0)
    names = [f"x{j}" for j in range(columns)]
    with tempfile.TemporaryDirectory() as name:
        for which in ("normal", "new"):
            table = pa.table(list(rng.normal(size=(columns, rows)).round(6)), names=names)
            with open_output(Path(name, which + suffix), table.schema) as put:
                put(table)
        inputs = [f"normal{suffix}", f"new{suffix}"]
        outputs = ["--output", f"out{suffix}", "--report", "report.html", "--overwrite"]
        command = [sys.executable, "-m", "reconform", "detect", *inputs, "--quiet", "--detector"]
        for detector, more in product(("auto", "iforest", "knn", "inne"), ([], outputs)):
            taken = []
            for _ in range(4):  # the first fills the caches
                start = time.perf_counter()
                subprocess.run([*command, detector, *more], check=True, cwd=name)
                taken.append(time.perf_counter() - start)
            said = ", ".join(f"{seconds:.1f}" for seconds in taken[1:])
            what = f"{detector}, output and report" if more else detector
            print(f"{rows} x {columns:,} {suffix}, {what}: {said} s (asked: < 5)", flush=True)


def peak_megabytes() -> float:
    """Largest resident size of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():  # of this program alone, whoever started it
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) / 1e3
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="?", type=int, default=20_000_000)
    parser.add_argument("--reference", type=int, default=10_000)
    parser.add_argument("--suffix", default=".parquet", help=".parquet, .csv, .arrow, ...")
    parser.add_argument("--group", type=int, default=1_000_000, help="rows of a row group")
    parser.add_argument("--detector", default="iforest")
    parser.add_argument("--method", default="split")
    parser.add_argument("--only-anomalies", action="store_true")
    parser.add_argument("--wide", action="store_true", help="few rows, many columns")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.wide:
        wide(20, 10_000, options.suffix)
        return
    arguments = (options.suffix, options.detector, options.method, options.only_anomalies)
    if options.folder is not None:
        print(json.dumps(judge(options.folder, *arguments), indent=1))
        return
    with tempfile.TemporaryDirectory() as name:
        write(Path(name, f"normal{options.suffix}"), options.reference, options.reference, False)
        write(Path(name, f"new{options.suffix}"), options.rows, options.group, True)
        subprocess.run([sys.executable, *sys.argv, "--folder", name], check=True, stdout=sys.stdout)


if __name__ == "__main__":
    main()
