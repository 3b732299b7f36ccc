"""What each way to decide in a stream finds, on public data.

Run ``python benchmarks/streams.py`` (all) or with names of data sets. A stream is drawn from the
labelled rows: 1, 5 or 10 % anomalies in random places, and the reference is all normal rows that
are not in the stream. The offline list is Benjamini-Hochberg on all rows of the stream at once. For
each way: how many anomalies it finds and how many normal rows it flags, means over the
repetitions. The tables are those of docs/stream.md.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from papers import load

from reconform import ConformalDetector
from reconform.stream import DecayingMemory, FalseAlarmBudget, MicroBatches

Array = npt.NDArray[Any]

# Rows of a stream: a tenth of them are to be different anomalies.
ROWS = {"thyroid": 800, "musk": 800, "satellite": 2_000}
DETECTORS = {"thyroid": "iforest", "musk": "knn", "satellite": "iforest"}
SHARES = (0.01, 0.05, 0.10)
REPEATS = 20
METHOD, FDR = "split", 0.1


def by_windows(cad: ConformalDetector, X: Array, **options: Any) -> Array:
    stream = MicroBatches(cad, 200, **options)
    return np.concatenate([window.mask for window in [*stream.update(X), *stream.flush()]])


WAYS: dict[str, Callable[[ConformalDetector, Array], Array]] = {
    "offline list, all rows at once": lambda cad, X: cad.discover(X, fdr=FDR).mask,
    "micro-batches of 200 rows": lambda cad, X: by_windows(cad, X, fdr=FDR),
    "micro-batches, 1 false alarm each": lambda cad, X: by_windows(cad, X, false_alarms=1),
    "budget, 1 in 1,000 rows": lambda cad, X: FalseAlarmBudget(cad, 1, 1_000).update(X).mask,
    "decaying memory": lambda cad, X: DecayingMemory(cad, FDR).update(X).mask,
    "budget, 5 in 1,000 rows": lambda cad, X: FalseAlarmBudget(cad, 5, 1_000).update(X).mask,
}


def measure(name: str, share: float) -> dict[str, tuple[float, float]]:
    """Mean numbers of anomalies found and of normal rows flagged, by way."""
    data, m = load(name), ROWS[name]
    normal, anomalous = data.X[data.normal], data.X[data.outliers]
    k = round(share * m)
    found: dict[str, list[tuple[int, int]]] = {way: [] for way in WAYS}
    for seed in range(REPEATS):
        rng = np.random.default_rng(seed)
        rows, others = rng.permutation(len(normal)), rng.permutation(len(anomalous))
        reference = normal[rows[m:]]  # of the same size whatever the share
        X = np.concatenate([normal[rows[: m - k]], anomalous[others[:k]]])
        order = rng.permutation(m)
        X, bad = X[order], (np.arange(m) >= m - k)[order]
        cad = ConformalDetector(DETECTORS[name], METHOD, random_state=seed).fit(reference)
        for way, decide in WAYS.items():
            mask = decide(cad, X)
            found[way].append((int(mask[bad].sum()), int(mask[~bad].sum())))
    return {way: tuple(np.mean(pairs, axis=0).tolist()) for way, pairs in found.items()}


def table(name: str) -> str:
    """Render the table of a data set."""
    data, m = load(name), ROWS[name]
    n = len(data.normal) - m
    columns = {share: measure(name, share) for share in SHARES}
    heads = [f"{share:.0%}: {round(share * m)} anomalies" for share in SHARES]
    what = f"{name}, {DETECTORS[name]}: {n:,} reference rows, stream of {m:,}"
    lines = [
        f"| {what} | {' | '.join(heads)} |",
        "|---|" + "---|" * len(SHARES),
    ]
    for way in WAYS:
        cells = [f"{columns[share][way][0]:.1f} / {columns[share][way][1]:.1f}" for share in SHARES]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    warnings.simplefilter("ignore", UserWarning)
    print(f"Found / false, means over {REPEATS} streams; {METHOD}, fdr = {FDR}\n")
    for name in sys.argv[1:] or ROWS:
        print(table(name) + "\n", flush=True)
