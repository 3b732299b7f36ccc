"""Weighted and grouped lists, ours and nonconform's, on the same rows: level, power, time.

    python benchmarks/modes.py                     # needs nonconform 2.0.0 (`make bench` has it)
    python benchmarks/modes.py --draws 10          # a look

Weighted: the rows of benchmarks/tilt.py, tilted by 0.5 and 1; each library estimates the weights by
its own logistic regression, from all columns and from the column that moved (nonconform by a
pipeline that selects it). nonconform splits the reference in half and makes the list by weighted
conformalized selection; ours are Benjamini-Hochberg on weighted p-values of split and full.
Grouped: two machine types of different scale, one level; ranks within the group, one list.
nonconform has PyOD's KNN, and we have our own: 5 neighbours, the distance to the last of them.
Level 0.1; FDR is the mean share of false ones, ± its standard error; time is the median of the
processor's seconds for fit and list.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from statistics import mean, median, stdev

import numpy as np
from tilt import LEVEL, draw

from reconform import ConformalDetector, Weights

List = Callable[..., np.ndarray]


def peer(columns: list[int] | None, *, groups: bool = False) -> List:
    """Nonconform's list, with weights estimated from some columns, or ranks within groups."""
    from nonconform import ConformalDetector as Theirs
    from nonconform import Split
    from nonconform.weighting import SklearnWeightEstimator
    from pyod.models.knn import KNN
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def classifier() -> object:
        # As nonconform.logistic_weight_estimator, with the columns selected.
        scaled = ColumnTransformer([("used", StandardScaler(), columns)])
        return make_pipeline(scaled, LogisticRegression(max_iter=1000, class_weight="balanced"))

    def find(normal: np.ndarray, new: np.ndarray, seed: int, *labels: np.ndarray) -> np.ndarray:
        estimator = None
        if columns is not None:
            estimator = SklearnWeightEstimator(base_estimator=classifier(), clip_quantile=0.05)
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
        start = time.process_time()
        found = find(normal, new, j, *labels)
        seconds.append(time.process_time() - start)
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
    logging.disable(logging.WARNING)
    os.environ["TQDM_DISABLE"] = "1"
    print("| list | FDR | power | CPU s |\n|---|---|---|---|", flush=True)
    theirs = find_spec("nonconform") is not None
    for t in (0.5, 1.0):

        def make(rng: np.random.Generator, t: float = t) -> tuple:
            return draw(rng, 600, 200, t)

        rows = {"split, unweighted": ours("split", None), "full, unweighted": ours("full", None)}
        if theirs:
            rows["nonconform, split, all columns"] = peer([0, 1, 2])
            rows["nonconform, split, column that moved"] = peer([0])
        for method in ("split", "full"):
            rows[f"{method}, all columns"] = ours(method, slice(None))
            rows[f"{method}, column that moved"] = ours(method, slice(1))
        for title, find in rows.items():
            measure(f"tilt {t:g}: {title}", find, make, options.draws)
    rows = {"split, no groups": ours("split", None), "full, no groups": ours("full", None)}
    if theirs:
        rows["nonconform, split, groups"] = peer(None, groups=True)
    for method in ("split", "full"):
        rows[f"{method}, groups"] = ours(method, None, grouped=True)
    for title, find in rows.items():
        measure(f"two machine types: {title}", find, machines, options.draws)


if __name__ == "__main__":
    main()
