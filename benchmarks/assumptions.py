"""How often the checks of the assumption speak up: the table of docs/assumptions.md.

    python benchmarks/assumptions.py                           # everything, 200 draws each
    python benchmarks/assumptions.py wbc musk --draws 50       # some data sets, fewer draws

Draws are those of the paper's protocol (half of the normal rows are the reference, batches of
min(1000, n / 3) rows) with other anomaly rates, detector kNN with full. Every number is a share of
draws; a batch has 10 % anomalies where nothing else is said. Where a data set has too few
anomalies, batch and reference get fewer.

broken, doubtful   the verdict; doubtful: or worse
noticed            the verdict, or a note about unusual reference rows; and the same among draws
                   in which dirt costs at least half of a list of three rows or more
cost               seconds of the checks over those of fit and discover, medians
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean, median

import numpy as np

from reconform import ConformalDetector
from reconform.study.datasets import REGISTRY, Dataset, load
from reconform.study.protocol import name_key

CLEAN = [("clean", rate) for rate in (0.0, 0.05, 0.1, 0.2)]
SHIFTS = [(which, size) for which in ("shift of all", "shift of one") for size in (0.25, 0.5, 0.7)]
DIRT = [("dirt", share) for share in (0.005, 0.01, 0.02, 0.05)]
IDS = [("id that goes on", 0.0), ("shuffled id", 0.0)]
DIRTY = ("dirty reference", "reference extremes")


@dataclass(frozen=True)
class Outcome:
    """What one run said."""

    word: str
    dirty: bool
    flagged: int
    seconds: float
    check_seconds: float


def draw(
    data: Dataset, j: int, rate: float, dirt: float, m: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Reference and batch; dirt takes the place of normal reference rows."""
    rng = np.random.default_rng(np.random.SeedSequence(15, spawn_key=(name_key(data.name), j)))
    normal, outliers = rng.permutation(data.normal), rng.permutation(data.outliers)
    n = len(normal) // 2
    m = min(1000, n // 3) if m is None else m
    bad = min(round(dirt * n), len(outliers) // 2)
    some = min(round(rate * m), len(outliers) - bad)
    reference = np.concatenate([normal[: n - bad], outliers[len(outliers) - bad :]])
    new = np.concatenate([normal[n : n + m - some], outliers[:some]])
    return data.X[rng.permutation(reference)], data.X[rng.permutation(new)]


def situation(
    data: Dataset, what: str, size: float, j: int, m: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Reference and batch of one draw."""
    rate = size if what == "clean" else 0.1
    D, T = draw(data, j, rate, size if what == "dirt" else 0.0, m)
    rng = np.random.default_rng(j)
    spread = D.std(axis=0)
    if what == "shift of all":
        T = T + size * spread
    elif what == "shift of one":
        column = rng.choice(np.flatnonzero(spread > 0))
        T[:, column] += size * spread[column]
    elif "id" in what:
        ids = np.arange(float(len(D) + len(T)))
        ids = rng.permutation(ids) if what == "shuffled id" else ids
        D, T = np.column_stack([D, ids[: len(D)]]), np.column_stack([T, ids[len(D) :]])
    return D, T


def judge(D: np.ndarray, T: np.ndarray) -> Outcome:
    """Fit, discover, check."""
    start = time.perf_counter()
    found = ConformalDetector("knn", "full", n_jobs=2).fit(D).discover(T, fdr=0.1)
    middle = time.perf_counter()
    verdict = found.verdict
    end = time.perf_counter()
    dirty = any(finding.check in DIRTY for finding in verdict.findings)
    return Outcome(verdict.word, dirty, found.count, middle - start, end - middle)


def rows(data: Dataset, m: int | None, draws: int, clean: int) -> Iterator[str]:
    """A line per situation."""
    known: list[int] = []
    for what, size in [*CLEAN, *SHIFTS, *IDS, *DIRT]:
        count = clean if what == "clean" else draws
        outcomes = [judge(*situation(data, what, size, j, m)) for j in range(count)]
        if (what, size) == ("clean", 0.1):
            known = [outcome.flagged for outcome in outcomes]
        broken = mean(o.word == "broken" for o in outcomes)
        doubtful = mean(o.word != "holds" for o in outcomes)
        noticed = mean(o.dirty or o.word != "holds" for o in outcomes)
        harmed = [
            o
            for o, before in zip(outcomes, known, strict=False)
            if what == "dirt" and before >= 3 and o.flagged <= before / 2
        ]
        among = mean(o.dirty or o.word != "holds" for o in harmed) if harmed else float("nan")
        cost = median(o.check_seconds for o in outcomes) / median(o.seconds for o in outcomes)
        label = what if "id" in what else f"{what} {size:g}"
        cells = [data.name, label, count, f"{broken:.3f}", f"{doubtful:.3f}", f"{noticed:.2f}"]
        cells += [f"{among:.2f} ({len(harmed)})" if harmed else "", f"{cost:.2f}"]
        yield "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", default=list(REGISTRY))
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--clean", type=int, help="draws of clean batches; as many by default")
    parser.add_argument("--rows", type=int, help="rows of a batch; min(1000, n / 3) by default")
    options = parser.parse_args()
    heads = ["data set", "situation", "draws", "broken", "doubtful", "noticed", "harmed: noticed"]
    print("| " + " | ".join([*heads, "cost"]) + " |\n" + "|---" * (len(heads) + 1) + "|")
    for name in options.names:
        for line in rows(load(name), options.rows, options.draws, options.clean or options.draws):
            print(line, flush=True)


if __name__ == "__main__":
    main()
