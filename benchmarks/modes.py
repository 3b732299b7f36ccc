"""Weighted and grouped lists, ours and nonconform's, on the same rows: level, power, time.

    python benchmarks/modes.py                     # needs nonconform 2.0.0 (`make bench` has it)
    python benchmarks/modes.py --draws 10          # a look

Weighted: the rows of benchmarks/tilt.py, tilted by 0.5 and 1; weights are estimated by logistic
regression from all columns (nonconform takes no others) and, ours, also from the column that moved.
nonconform splits the reference in half and makes the list by weighted conformalized selection; ours
are Benjamini-Hochberg on weighted p-values of split and full. Grouped: two machine types of
different scale, one level; ranks within the group. Both use PyOD's KNN with 5 neighbours where the
other library is concerned, and our own of the same score. Level 0.1; FDR is the mean share of false
ones, ± its standard error.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from statistics import mean, median, stdev

import numpy as np
from tilt import LEVEL, draw

from reconform import ConformalDetector, Weights

List = Callable[..., np.ndarray]


def peer(groups: bool, weighted: bool) -> List:
    """Nonconform's list."""
    from nonconform import ConformalDetector as Theirs
    from nonconform import Split, logistic_weight_estimator
    from pyod.models.knn import KNN

    def find(normal: np.ndarray, new: np.ndarray, seed: int, *labels: np.ndarray) -> np.ndarray:
        estimator = logistic_weight_estimator() if weighted else None
        cad = Theirs(KNN(), Split(n_calib=0.5), weight_estimator=estimator, seed=seed)
        ours, theirs = ({"groups": label} for label in labels) if groups else ({}, {})
        cad.fit(normal, **ours)
        return np.asarray(cad.select(new, alpha=LEVEL, **theirs))

    return find


def ours(method: str, columns: slice | None, *, grouped: bool = False) -> List:
    """Our list, with weights estimated from some columns, or ranks within groups."""

    def find(normal: np.ndarray, new: np.ndarray, seed: int, *labels: np.ndarray) -> np.ndarray:
        cad = ConformalDetector("knn", method, random_state=seed, n_jobs=1)
        if grouped:
            cad.fit(normal, groups=labels[0])
            return np.asarray(cad.discover(new, LEVEL, groups=labels[1]).mask)
        cad.fit(normal)
        weights = None
        if columns is not None:
            weights = Weights.estimate(normal[:, columns], new[:, columns])
        return np.asarray(cad.discover(new, LEVEL, weights=weights).mask)

    return find


def machines(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Two machine types: reference, new rows (the first tenth anomalies), and both labels."""
    kinds = [rng.integers(0, 2, size) for size in (600, 200)]
    scale = [np.where(kind == 0, 1.0, 4.0)[:, None] for kind in kinds]
    normal, new = (rng.normal(size=(len(s), 3)) * s for s in scale)
    new[:20, 1] += 6 * scale[1][:20, 0]
    return normal, new, *kinds


def measure(
    title: str, find: Callable[..., np.ndarray], make: Callable[..., tuple], draws: int
) -> None:
    """Print a row of the table."""
    false, power, seconds = [], [], []
    for j in range(draws):
        normal, new, *labels = make(np.random.default_rng([17, j]))
        start = time.perf_counter()
        found = find(normal, new, j, *labels)
        seconds.append(time.perf_counter() - start)
        true = int(found[:20].sum())
        false.append((found.sum() - true) / max(1, found.sum()))
        power.append(true / 20)
    error = stdev(false) / len(false) ** 0.5
    cells = [title, f"{mean(false):.3f} ± {error:.3f}", f"{mean(power):.2f}"]
    print("| " + " | ".join([*cells, f"{median(seconds):.3f}"]) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--draws", type=int, default=100)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| list | FDR | power | s |\n|---|---|---|---|", flush=True)
    theirs = find_spec("nonconform") is not None
    for t in (0.5, 1.0):

        def make(rng: np.random.Generator, t: float = t) -> tuple:
            return draw(rng, 600, 200, t)

        rows = {"split, unweighted": ours("split", None), "full, unweighted": ours("full", None)}
        if theirs:
            rows["nonconform, split"] = peer(False, True)
        for method in ("split", "full"):
            rows[f"{method}, all columns"] = ours(method, slice(None))
            rows[f"{method}, column that moved"] = ours(method, slice(1))
        for title, find in rows.items():
            measure(f"tilt {t:g}: {title}", find, make, options.draws)
    rows = {"split, no groups": ours("split", None), "full, no groups": ours("full", None)}
    if theirs:
        rows["nonconform, split, groups"] = peer(True, False)
    for method in ("split", "full"):
        rows[f"{method}, groups"] = ours(method, None, grouped=True)
    for title, find in rows.items():
        measure(f"two machine types: {title}", find, machines, options.draws)


if __name__ == "__main__":
    main()
