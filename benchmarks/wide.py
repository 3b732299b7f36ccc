"""What was tried for wide rows: more columns than a third of the reference rows.

    python benchmarks/wide.py                               # made-up sets
    python benchmarks/wide.py --files a.npz b.npz           # with X, and y = 1 for anomalies
    python benchmarks/wide.py --draws 12 --only auto        # in the choice of "auto"

Half of the normal rows are the reference; the rest and a tenth of anomalies are new. Prints power
and FDR of Benjamini-Hochberg at 0.1 and 0.2, and the area under the ROC curve, of full-conformal
lists by each candidate alone, all learned from the pool of reference and new rows.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.covariance import ledoit_wolf
from sklearn.metrics import roc_auc_score

from reconform import ConformalDetector
from reconform.detectors import KNN, Mahalanobis
from reconform.detectors.registry import offered
from reconform.detectors.scaling import rescale, scale_exponents, spreads

FloatArray = npt.NDArray[np.float64]
Draw = tuple[FloatArray, FloatArray, npt.NDArray[np.bool_]]
LEVELS = (0.1, 0.2)
NORMAL, ANOMALIES = 330, 18


def low_rank(rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Twelve factors and noise in 500 columns; anomalies have three factors of their own."""
    shared, own = rng.normal(size=(12, 500)) / 3, rng.normal(size=(3, 500)) / 3
    rows = rng.normal(size=(NORMAL + ANOMALIES, 12)) @ shared
    rows += rng.normal(size=rows.shape) / 2
    return rows[ANOMALIES:], rows[:ANOMALIES] + rng.normal(size=(ANOMALIES, 3)) @ own


def blocks(rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Thirty blocks of ten columns that go together; in anomalies six of them do not."""
    rows = np.repeat(rng.normal(size=(NORMAL + ANOMALIES, 30)), 10, axis=1)
    rows = 0.9 * rows + 0.45 * rng.normal(size=rows.shape)
    for row in rows[:ANOMALIES]:
        for block in rng.choice(30, 6, replace=False):
            row[10 * block : 10 * block + 10] *= rng.choice([-1, 1], 10)
    return rows[ANOMALIES:], rows[:ANOMALIES]


def counts(rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Sparse counts of 600 words from eight topics; a third of an anomaly is from three others."""
    topics, others = (rng.dirichlet(np.full(600, 0.05), k) for k in (8, 3))
    shares = rng.dirichlet(np.full(8, 0.5), NORMAL + ANOMALIES) @ topics
    odd = rng.dirichlet(np.full(3, 0.5), ANOMALIES) @ others
    shares[:ANOMALIES] = 0.7 * shares[:ANOMALIES] + 0.3 * odd
    rows = rng.poisson(60 * shares).astype(float)
    return rows[ANOMALIES:], rows[:ANOMALIES]


MADE_UP = {"low rank": low_rank, "blocks": blocks, "counts": counts}


def drawn(normal: FloatArray, odd: FloatArray, rng: np.random.Generator) -> Draw:
    """Draw a reference, new rows, and which of these are anomalies."""
    normal, half = rng.permutation(normal), len(normal) // 2
    odd = rng.permutation(odd)[: round((len(normal) - half) / 9)]
    new = np.vstack([normal[half:], odd])
    return normal[:half], new, np.arange(len(new)) >= len(normal) - half


def whitened(D: FloatArray, T: FloatArray, most: int) -> tuple[FloatArray, FloatArray]:
    """See rows by the largest components of the pool, all with variance 1."""
    pool = np.vstack([D, T])
    mean, n = pool.mean(axis=0), len(pool)
    _, sizes, directions = np.linalg.svd(pool - mean, full_matrices=False)
    seen = (pool - mean) @ (directions[:most].T / sizes[:most]) * np.sqrt(n)
    return seen[: len(D)], seen[len(D) :]


def robust(D: FloatArray, T: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Divide by the scales of the pool."""
    exponents = scale_exponents(spreads(np.vstack([D, T])))
    return rescale(D, exponents), rescale(T, exponents)


def directions(D: FloatArray, T: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Divide rows by their lengths."""
    both = [rows / np.maximum(np.linalg.norm(rows, axis=1), 1e-300)[:, None] for rows in (D, T)]
    return both[0], both[1]


def shrunk(D: FloatArray, T: FloatArray, part: float = 1.0) -> tuple[Any, FloatArray, FloatArray]:
    """Ledoit and Wolf's shrinkage of the pool as a ridge of the scatter of D and each new row."""
    pool = np.vstack([D, T])
    share = float(np.clip(ledoit_wolf(pool)[1], 1e-6, 1 - 1e-6))
    ridge = part * (len(D) + 1) * share / (1 - share) * pool.var(axis=0).mean()
    return Mahalanobis(ridge=float(np.clip(ridge, 1e-9, 1e12))), D, T


def candidates(D: FloatArray, T: FloatArray) -> Iterator[tuple[str, Any, FloatArray, FloatArray]]:
    """Candidates by name, and both kinds of rows as they see them."""
    yield "knn", KNN(), D, T
    yield "knn, cosine", KNN(metric="cosine"), D, T
    for most in (30, 50, (len(D) + len(T)) // 3):
        yield f"knn, {most} whitened components", KNN(), *whitened(D, T, most)
    yield "mahalanobis, ridge 1", Mahalanobis(), D, T
    yield "mahalanobis, shrunk", *shrunk(D, T)
    yield "mahalanobis, shrunk, scaled", *shrunk(*robust(D, T))
    yield "mahalanobis, a quarter of that", *shrunk(*robust(D, T), part=0.25)
    yield "mahalanobis, shrunk, directions", *shrunk(*directions(D, T))
    yield "mahalanobis, shrunk, scaled directions", *shrunk(*directions(*robust(D, T)))


def choices(D: FloatArray, T: FloatArray) -> Iterator[tuple[str, Any, FloatArray, FloatArray]]:
    """The default, and few and all candidates with those for wide rows."""
    few = [KNN(), Mahalanobis()]
    wide = [Mahalanobis("auto", "robust"), Mahalanobis("auto", "direction")]
    yield "auto", "auto", D, T
    yield "auto and shrunk", [*offered(True, len(D)), *wide], D, T
    yield "knn or mahalanobis", few, D, T
    yield "one of these, or shrunk", [*few, wide[0]], D, T
    yield "one of these, or shrunk directions", [*few, wide[1]], D, T
    yield "any of these", few + wide, D, T


def main() -> None:
    """Print a line per data set and candidate."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", nargs="*", default=[])
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--only", choices=("alone", "auto"), default="alone")
    given = parser.parse_args()
    sets: dict[str, Callable[[np.random.Generator], tuple[FloatArray, FloatArray]]]
    sets = {} if given.files else dict(MADE_UP)
    for path in map(Path, given.files):
        data = np.load(path)
        X, y = data["X"].astype(float), data["y"].astype(bool)
        sets[path.stem] = lambda rng, X=X, y=y: (X[~y], X[y])
    warnings.simplefilter("ignore")
    tried = candidates if given.only == "alone" else choices
    print("| data | candidate | power, 0.1 | FDR | power, 0.2 | FDR | AUC |")
    print("|---" * 7 + "|")
    for name, rows in sets.items():
        found: dict[str, list[list[float]]] = {}
        for j in range(given.draws):
            rng = np.random.default_rng(j)
            D, T, odd = drawn(*rows(rng), rng)
            for label, detector, own, new in tried(D, T):
                cad = ConformalDetector(detector, "full", random_state=j).fit(own)
                line: list[float] = []
                for level in LEVELS:
                    mask = cad.discover(new, fdr=level, validity="nominal").mask
                    line += [mask[odd].mean(), (mask & ~odd).sum() / max(mask.sum(), 1)]
                found.setdefault(label, []).append(
                    [*line, roc_auc_score(odd, -cad.ensemble_.raw_scores(new))]
                )
        for label, lines in found.items():
            said = " | ".join(f"{value:.2f}" for value in np.mean(lines, axis=0))
            print(f"| {name} | {label} | {said} |", flush=True)


if __name__ == "__main__":
    main()
