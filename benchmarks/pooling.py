"""What was tried for ``method="batch"``: how many neighbours, and a second fit without the worst.

    python benchmarks/pooling.py            # all eight data sets
    python benchmarks/pooling.py wbc musk   # some

Prints the power and the FDR of Benjamini-Hochberg at 0.1 over four draws of four test sets each, of
one model on reference and batch: as it is, and fitted again without the most unusual 5% of all
rows. `docs/methods.md` quotes it.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from papers import REGISTRY, load

from reconform.content import scores_by_content, sorted_by_content
from reconform.detectors import INNE, KDE, KNN, LOF, IForest, Mahalanobis
from reconform.detectors.scaled import algorithm_of
from reconform.statistics.ranks import ranks_among
from reconform.study import Protocol
from reconform.study.protocol import bh_masks

FloatArray = npt.NDArray[np.float64]

PROTOCOL = Protocol(draws=4, test_sets=4)
LEVEL = Fraction(1, 10)
SEED = np.random.SeedSequence(1)


def settings(m: int) -> dict[str, Any]:
    """Detectors by name, for m new rows."""
    few: dict[str, Any] = {}
    for label, count in {"5": 5, "m/10": max(5, m // 10), "m/5": max(5, m // 5)}.items():
        few[f"knn, {label} neighbours"] = KNN(n_neighbors=count)
        few[f"knn, scaled, {label} neighbours"] = KNN(n_neighbors=count, scale="robust")
    for label, count in {"20": 20, "m/5": max(20, m // 5)}.items():
        few[f"lof, {label} neighbours"] = LOF(n_neighbors=count)
    few |= {"mahalanobis": Mahalanobis(), "iforest": IForest(), "inne": INNE()}
    return few | {"kde, scaled": KDE(scale="robust")}


def scores_of(detector: Any, pool: FloatArray, *, again: bool) -> FloatArray:
    """Score all rows by a model on them, or by one without the most unusual 5% of them."""
    rows, order = sorted_by_content(pool)
    algorithm = algorithm_of(detector)
    scores = algorithm.training_scores(algorithm.fit_model(rows, SEED), rows)
    if again:
        first = scores_by_content(rows, np.arange(len(rows)), scores)
        stay = first >= np.sort(first)[int(0.05 * len(rows))]
        model = algorithm.fit_model(rows[stay], SEED)
        scores = np.empty(len(rows))
        scores[stay] = algorithm.training_scores(model, rows[stay])
        if not stay.all():
            scores[~stay] = model.score_samples(rows[~stay])
    return scores_by_content(pool, order, scores)


def main() -> None:
    """Print a line per data set and setting."""
    print("| data set | | power | FDR | power, fitted again | FDR, fitted again |")
    print("|---|---|---|---|---|---|")
    for name in sys.argv[1:] or REGISTRY:
        data = load(name)
        found: dict[str, list[tuple[float, ...]]] = {}
        for j in range(PROTOCOL.draws):
            draw = PROTOCOL.draw(data, j)
            D, left = data.X[draw.train], data.X[draw.pool]
            for rows in draw.test_sets:
                pool = np.vstack([D, left[rows]])
                for label, detector in settings(len(rows)).items():
                    both: tuple[float, ...] = ()
                    for again in (False, True):
                        scores = scores_of(detector, pool, again=again)
                        ranks = ranks_among(np.sort(scores[: len(D)]), scores[len(D) :])
                        mask = bh_masks(ranks[None], len(D), LEVEL)[0]
                        true = mask[-draw.outliers :].sum()
                        false = (mask.sum() - true) / max(mask.sum(), 1)
                        both += (float(true / draw.outliers), float(false))
                    found.setdefault(label, []).append(both)
        for label, values in found.items():
            said = " | ".join(f"{value:.3f}" for value in np.mean(values, axis=0))
            print(f"| {name} | {label} | {said} |", flush=True)


if __name__ == "__main__":
    main()
