"""Beyond one machine: the ranking step, the price of chunks, and a cluster of two workers.

Run ``python benchmarks/dask_rows.py`` (20 million rows, about 4 GB of disk), or with ``--rows
2e6``. It prints every number of docs/distributed.md, and with ``--chart docs/distributed.svg``
draws the growth curves.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from reconform import Bootstrap, ConformalDetector, CrossValidation, RankCounts
from reconform.statistics.ranks import Calibration, calibrate, ranks_among, ranks_paired, reduction

Array = npt.NDArray[Any]

COLUMNS = [f"x{j}" for j in range(8)]
FILE_ROWS = 500_000
REFERENCE_ROWS = 20_000
ANOMALOUS = 0.002
MB = 1e6


def seconds_of(job: Callable[[], Any], repeats: int = 5) -> float:
    """Median seconds of a job, after one warm-up."""
    job()
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        job()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


# --- the ranking step ----------------------------------------------------------------------------


def ranking(n: int = 10_000, m: int = 41_000) -> dict[str, float]:
    """Rows per second of one core, from scores to ranks."""
    rng = np.random.default_rng(0)
    c, t = np.sort(rng.normal(size=n)), rng.normal(size=1_000_000)
    speed = {"split and basic": len(t) / seconds_of(partial(ranks_among, c, t))}
    for label, method in [
        ("10 models (cv)", CrossValidation(10)),
        ("100 models (jab)", Bootstrap(100)),
    ]:
        plan = method.plan(n, random_state=0)
        rows, median = rng.normal(size=n), reduction("median")
        held_out = [rows[H_k] + 0.3 * rng.normal(size=len(H_k)) for H_k in plan.held_out]
        calibration = calibrate(plan, held_out, median)
        scores = rng.normal(size=m) + 0.3 * rng.normal(size=(plan.n_models, m))
        pooled = partial(ranks_pooled, calibration, scores)
        plus = partial(ranks_paired, calibration, scores, "median", n_jobs=1)
        speed[f"pooled, {label}"] = m / seconds_of(pooled)
        speed[f"plus, {label}"] = m / seconds_of(plus, repeats=3)
    return speed


def ranks_pooled(calibration: Calibration, scores: Array) -> Array:
    return ranks_among(calibration.sorted_scores, reduction("median")(scores))


def reference_sizes(sizes: tuple[int, ...], m: int = 1_000_000) -> list[dict[str, float]]:
    """What a larger reference costs: ranking, counting, merging, deciding, and bytes of state."""
    rng = np.random.default_rng(0)
    found = []
    for n in sizes:
        c, t = np.sort(rng.normal(size=n)), rng.normal(size=m)
        ranks = ranks_among(c, t)
        counts = RankCounts(n, "").add(ranks)
        found.append(
            {
                "n": n,
                "rank": seconds_of(partial(ranks_among, c, t)),
                "count": seconds_of(partial(RankCounts(n, "").add, ranks)),
                "merge": seconds_of(partial(counts.merge, counts)),
                "decide": seconds_of(partial(counts.decide, 0.1)),
                "bytes": counts.counts.nbytes,
            }
        )
    return found


# --- the price of chunks -------------------------------------------------------------------------


def chunks(m: int = 1_000_000) -> dict[str, dict[str, float]]:
    """Ranks of a batch in chunks, against scoring it whole and ranking it whole; one core."""
    rng = np.random.default_rng(0)
    reference, new = rng.normal(size=(REFERENCE_ROWS, 8)), rng.normal(size=(m, 8))
    result = {}
    for detector in ("iforest", "knn", "inne"):
        rows = new if detector == "iforest" else new[: m // 10]
        cad = ConformalDetector(detector, "split", random_state=0, n_jobs=1).fit(reference)
        ensemble, c = cad.ensemble_, cad.calibration_.sorted_scores
        cad.ranks(rows[:100])
        scoring, whole, chunked, batched = [], [], [], []
        for _ in range(3):  # one beside the other, so that both see the same machine
            start = time.perf_counter()
            scores = ensemble.full_scores(rows)
            scoring.append(time.perf_counter() - start)
            ranks = ranks_among(c, scores)
            whole.append(time.perf_counter() - start)
            start = time.perf_counter()
            same = ensemble.ranks(rows).at_most
            chunked.append(time.perf_counter() - start)
            assert np.array_equal(same, ranks)
            start = time.perf_counter()
            for first in range(0, len(rows), 1 << 16):  # the batches of files
                ensemble.ranks(rows[first : first + (1 << 16)])
            batched.append(time.perf_counter() - start)
        once = statistics.median(scoring)
        result[detector] = {
            "rows": len(rows),
            "scoring": once,
            "chunks": (statistics.median(chunked) - statistics.median(whole)) / once,
            "batches": (statistics.median(batched) - statistics.median(whole)) / once,
        }
    return result


# --- a cluster of two workers --------------------------------------------------------------------


def write_files(folder: Path, rows: int) -> list[Path]:
    """Parquet files of half a million rows, a few of them anomalous."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, start in enumerate(range(0, rows, FILE_ROWS)):
        rng = np.random.default_rng([1, number])
        X = rng.normal(size=(min(FILE_ROWS, rows - start), len(COLUMNS)))
        X[rng.random(len(X)) < ANOMALOUS] += 4.0
        paths.append(folder / f"{number:05d}.parquet")
        pd.DataFrame(X, columns=COLUMNS).to_parquet(paths[-1])
    return paths


@contextmanager
def two_workers() -> Iterator[Any]:
    from distributed import Client, LocalCluster

    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        yield client


def peak_memory(client: Any) -> list[float]:
    """Most megabytes that each worker has had; Linux only.

    Not ru_maxrss: that begins with the size of the process that started the worker.
    """
    status = client.run(Path("/proc/self/status").read_text)
    peaks = [re.search(r"VmHWM:\s+(\d+) kB", text) for text in status.values()]
    return [int(peak[1]) * 1024 / MB for peak in peaks if peak]


def moved(client: Any) -> int:
    """Bytes that the workers have sent to each other, as far as Dask knows: data and counts."""
    sent = client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total)
    return int(sum(sent.values()))


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


def cluster(rows: int, folder: Path) -> dict[str, Any]:
    """On two workers, against one process; every row compared."""
    import dask.dataframe as dd

    from reconform.distributed import discover

    paths = write_files(folder / "new", rows)
    rng = np.random.default_rng(0)
    reference = pd.DataFrame(rng.normal(size=(REFERENCE_ROWS, len(COLUMNS))), columns=COLUMNS)
    cad = ConformalDetector("iforest", "split", random_state=0).fit(reference)
    cad.ranks(reference[:100])

    # One process, all rows at once.
    X = np.empty((rows, len(COLUMNS)))
    for path, start in zip(paths, range(0, rows, FILE_ROWS), strict=True):
        X[start : start + FILE_ROWS] = pd.read_parquet(path).to_numpy()
    start = time.perf_counter()
    whole = cad.discover(pd.DataFrame(X, columns=COLUMNS, copy=False), fdr=0.1)
    one_process = time.perf_counter() - start
    expected = whole.to_frame(order="input")
    del X, whole

    def same(frame: pd.DataFrame, first: int) -> bool:
        part = expected.iloc[first : first + len(frame)]
        return all(np.array_equal(frame[name], part[name]) for name in expected.columns)

    result: dict[str, Any] = {
        "rows": rows,
        "files": len(paths),
        "n_calibration": cad.n_calibration_,
        "one process": one_process,
        "discoveries": int(expected["anomaly"].sum()),
        "detector bytes": len(pickle.dumps(cad)),
        "input bytes per row": size_of(folder / "new") / rows,
    }
    with two_workers() as client:
        client.run(cad.ranks, reference[:100])  # workers import and compile
        discover(cad, dd.read_parquet([str(path) for path in paths[:2]]))
        before = moved(client)
        growth = []
        for count in sorted({max(1, len(paths) // part) for part in (20, 10, 4, 2, 1)}):
            some = [str(path) for path in paths[:count]]
            start = time.perf_counter()
            found = discover(cad, dd.read_parquet(some))
            decided = time.perf_counter() - start
            start = time.perf_counter()
            flagged = int(found.frame["anomaly"].sum().compute())
            marked = time.perf_counter() - start
            assert flagged == found.count
            growth.append({"rows": found.tested, "decided": decided, "marked": marked})
        result["growth"] = growth
        result["moved"] = moved(client) - before
        result["ranked"] = sum(point["rows"] for point in growth)
        result["count"] = found.count
        first, equal = 0, True
        for part in found.frame.partitions:
            frame = part.compute()
            equal &= same(frame, first)
            first += len(frame)
        result["frame"] = {
            "seconds": growth[-1]["decided"] + growth[-1]["marked"],
            "equal": bool(equal and first == rows and found.count == result["discoveries"]),
            "peak megabytes": peak_memory(client),
        }
    return result


# --- words and pictures --------------------------------------------------------------------------


def told(result: dict[str, Any]) -> Iterator[str]:
    """Say the results in lines."""
    if "ranking" in result:
        yield "ranking step, million rows per second per core (n = 10,000):"
        for label, speed in result["ranking"].items():
            yield f"  {label:28} {speed / 1e6:8.2f}"
    if "chunks" in result:
        yield "overhead of chunks, as a share of scoring time (one core, split):"
        for detector, found in result["chunks"].items():
            yield (
                f"  {detector:10} {found['rows']:>10,} rows scored in {found['scoring']:.2f} s; "
                f"chunks {found['chunks']:+.1%}, batches of 65,536 rows {found['batches']:+.1%}"
            )
    if "reference" in result:
        yield "a larger reference (seconds for a million rows; bytes of counts):"
        for found in result["reference"]:
            yield (
                f"  n = {found['n']:>9,}: rank {found['rank']:.3f}, count {found['count']:.3f}, "
                f"merge {found['merge']:.4f}, decide {found['decide']:.3f}; "
                f"{found['bytes']:,} bytes"
            )
    if "cluster" in result:
        yield from _told_cluster(result["cluster"])


def _told_cluster(found: dict[str, Any]) -> Iterator[str]:
    rows = found["rows"]
    yield (
        f"{rows:,} rows in {found['files']} Parquet files, iforest with split, "
        f"{found['n_calibration']:,} calibration scores: {found['discoveries']:,} discoveries"
    )
    yield f"  one process, rows in memory: {found['one process']:.1f} s"
    peak = max(found["frame"]["peak megabytes"])
    same = "equal row for row" if found["frame"]["equal"] else "NOT EQUAL"
    yield (
        f"  two workers: {found['frame']['seconds']:.1f} s, {same}, "
        f"at most {peak:,.0f} MB per worker"
    )
    for point in found["growth"]:
        speed = point["rows"] / (point["decided"] + point["marked"]) / 2
        yield (
            f"  {point['rows']:>12,} rows: decided in {point['decided']:.2f} s, marked in "
            f"{point['marked']:.2f} s; {speed / 1e3:,.0f} thousand rows/s per worker"
        )
    last = found["growth"][-1]
    per_worker = last["rows"] / (last["decided"] + last["marked"]) / 2
    state = 8 * (found["n_calibration"] + 2)
    yield f"  per row: {found['input bytes per row']:.1f} bytes read, 12 kept"
    yield (
        f"  counts sent from worker to worker for {found['ranked']:,} rows: {found['moved']:,} "
        f"bytes; merged state: {state:,} bytes; detector, once per worker: "
        f"{found['detector bytes']:,} bytes"
    )
    reads = found["input bytes per row"] * per_worker / MB
    for workers in (2, 20, 100):
        yield (
            f"  a billion rows on {workers} such workers: {1e9 / per_worker / workers:,.0f} s, if "
            f"{workers * reads:,.0f} MB/s can be read"
        )


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw rows against time, and size of the reference against time."""
    import altair as alt

    points = [
        {"rows": point["rows"], "seconds": point[stage], "stage": label}
        for point in result["cluster"]["growth"]
        for stage, label in [("decided", "pass one: ranks"), ("marked", "pass two: marks")]
    ]
    sizes = [
        {"n": found["n"], "seconds": found[step], "step": step}
        for found in result["reference"]
        for step in ("rank", "count", "merge", "decide")
    ]
    log = alt.Scale(type="log")
    colour = alt.Scale(range=["#0072B2", "#E69F00", "#009E73", "#000000"])
    rows = alt.Chart(alt.Data(values=points), title="Rows, on two workers")
    left = rows.mark_line(point=True).encode(
        x=alt.X("rows:Q", scale=log, title="new rows"),
        y=alt.Y("seconds:Q", scale=log, title="seconds"),
        color=alt.Color("stage:N", scale=colour, title=None),
    )
    reference = alt.Chart(alt.Data(values=sizes), title="Reference, for a million rows on one core")
    right = reference.mark_line(point=True).encode(
        x=alt.X("n:Q", scale=log, title="calibration scores"),
        y=alt.Y("seconds:Q", scale=log, title="seconds"),
        color=alt.Color("step:N", scale=colour, title=None),
    )
    alt.hconcat(left, right).resolve_scale(color="independent").save(path)
    path.write_text(path.read_text().rstrip() + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=20_000_000)
    parser.add_argument("--only", nargs="*", default=["ranking", "chunks", "reference", "cluster"])
    parser.add_argument("--folder", type=Path, help="where to put the files; by default temporary")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--chart", type=Path)
    options = parser.parse_args()
    result: dict[str, Any] = {"cores": os.cpu_count()}
    if "ranking" in options.only:
        result["ranking"] = ranking()
    if "chunks" in options.only:
        result["chunks"] = chunks()
    if "reference" in options.only:
        result["reference"] = reference_sizes((1_000, 10_000, 100_000, 1_000_000))
    if "cluster" in options.only:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            result["cluster"] = cluster(options.rows, Path(folder))
    print("\n".join(told(result)))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))
    if options.chart:
        draw(result, options.chart)


if __name__ == "__main__":
    main()
