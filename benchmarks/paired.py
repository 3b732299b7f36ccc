"""The plus comparison alone: our kernels against a loop that takes NumPy medians.

Run ``python benchmarks/paired.py``. Both sides get the same scores of the same bootstrap plan
and must give the same ranks. Two kinds of scores: "related", where the models roughly agree about
a row, as models of one detector do; and "unrelated", independent noise, where every comparison is
close and has to be counted. The ratio that is reported is that of the worse one.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from reconform.methods import Bootstrap
from reconform.statistics.ranks import Calibration, calibrate, ranks_paired, reduction

Array = npt.NDArray[Any]

# How much models differ about a row, where rows differ by about 1.
DISAGREEMENT = {"related": 0.3, "unrelated": 100.0}


def comparison(
    kind: str, n: int, m: int, n_models: int, seed: int = 0
) -> tuple[Calibration, Array]:
    """Make the calibration and the test scores of one bootstrap plan."""
    rng = np.random.default_rng(seed)
    plan = Bootstrap(draws=n_models).plan(n, random_state=seed)
    noise, rows = DISAGREEMENT[kind], rng.normal(size=n)
    held_out = [rows[H_k] + noise * rng.normal(size=len(H_k)) for H_k in plan.held_out]
    scores = rng.normal(size=m) + noise * rng.normal(size=(n_models, m))
    return calibrate(plan, held_out, reduction("median")), scores


def ranks_by_medians(calibration: Calibration, scores: Array) -> Array:
    """Algorithm 1 as one would write it with NumPy: t_i for all test rows at once, i by i."""
    ranks = np.ones(scores.shape[1], dtype=np.int64)
    for i, c in enumerate(calibration.scores):
        K_i = calibration.models[calibration.indptr[i] : calibration.indptr[i + 1]]
        ranks += c <= np.median(scores[K_i], axis=0)
    return ranks


def seconds_of(job: Callable[[], Array], repeats: int) -> tuple[list[float], Array]:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        ranks = job()
        seconds.append(time.perf_counter() - start)
    return seconds, ranks


def measure(
    n: int = 5461, m: int = 1000, n_models: int = 100, *, n_jobs: int = 2, repeats: int = 5
) -> dict[str, Any]:
    """Time both ways on the same scores, alternately, after one warm-up of ours.

    Returns
    -------
    dict
        For each kind of scores the median, least and largest seconds of both, the ratio of
        medians, and whether the ranks are equal; and over both kinds the smallest ``ratio`` and
        ``equal``.
    """
    result: dict[str, Any] = {"n": n, "m": m, "models": n_models, "n_jobs": n_jobs}
    for kind in DISAGREEMENT:
        calibration, scores = comparison(kind, n, m, n_models)
        ways = {
            "numpy": partial(ranks_by_medians, calibration, scores),
            "ours": partial(ranks_paired, calibration, scores, "median", n_jobs=n_jobs),
        }
        ways["ours"]()
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        ranks: dict[str, Array] = {}
        for _ in range(repeats):
            for way, job in ways.items():
                # Ours is short: several runs between two of the other see the same machine.
                took, ranks[way] = seconds_of(job, 1 if way == "numpy" else 5)
                seconds[way] += took
        middle = {way: statistics.median(took) for way, took in seconds.items()}
        result[kind] = {
            "seconds": middle,
            "range": {way: [min(took), max(took)] for way, took in seconds.items()},
            "ratio": middle["numpy"] / middle["ours"],
            "equal": bool(np.array_equal(ranks["numpy"], ranks["ours"])),
        }
    result["ratio"] = min(result[kind]["ratio"] for kind in DISAGREEMENT)
    result["equal"] = all(result[kind]["equal"] for kind in DISAGREEMENT)
    return result


def main() -> None:
    result = measure()
    print("n = {n}, m = {m}, K = {models}, {n_jobs} threads".format(**result))
    for kind in DISAGREEMENT:
        for way, label in [("numpy", "NumPy medians"), ("ours", "reconform")]:
            low, high = result[kind]["range"][way]
            middle = result[kind]["seconds"][way]
            print(f"{kind:>10} {label:>14}: {middle:8.4f} s  ({low:.4f} to {high:.4f})")
        same = "equal" if result[kind]["equal"] else "NOT EQUAL"
        print(f"{kind:>10} {'ratio':>14}: {result[kind]['ratio']:8.0f} x  ranks {same}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
