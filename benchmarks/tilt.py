"""A covariate shift of known strength: false discovery rates with and without weights.

    python benchmarks/tilt.py                      # the table of docs/shift.md
    python benchmarks/tilt.py --draws 50           # a look

Reference rows are standard normal in three columns. Normal new rows are tilted: their density is
proportional to exp(t x1) times that of the reference, which moves the first column by t and leaves
what is normal as it is. A tenth of the new rows are anomalies, 4 away in the other two columns.
Level 0.1, kNN. Lists: without weights; Benjamini-Hochberg on weighted p-values, with true weights,
with weights estimated from all columns, and from the column that moved; and, with true weights, the
list with a theorem. FDR is the mean share of false ones, ± its standard error; power the mean share
of anomalies found; size the effective size of the reference.
"""

from __future__ import annotations

import argparse
import warnings
from statistics import mean, stdev

import numpy as np

from reconform import ConformalDetector, Weights

LEVEL = 0.1
KINDS = ("unweighted", "weighted", "estimated", "column that moved", "proven")
STRENGTHS = (0.0, 0.5, 1.0, 1.5, 2.0)


def draw(rng: np.random.Generator, n: int, m: int, t: float) -> tuple[np.ndarray, np.ndarray]:
    """Reference rows and new rows; the first tenth of the latter are anomalies."""
    normal, new = rng.normal(size=(n, 3)), rng.normal(size=(m, 3))
    new[:, 0] += t
    new[: m // 10, 1:] += 4 * np.array([1.0, -1.0]) / np.sqrt(2)
    return normal, new


def weights(kind: str, normal: np.ndarray, new: np.ndarray, t: float) -> Weights | None:
    if kind == "unweighted":
        return None
    if kind == "estimated":
        return Weights.estimate(normal, new)
    if kind == "column that moved":
        return Weights.estimate(normal[:, :1], new[:, :1])
    return Weights(np.exp(t * normal[:, 0]), np.exp(t * new[:, 0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--rows", type=int, nargs=2, default=(600, 200), help="n and m")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    n, m = options.rows
    heads = ["tilt", "method", *(f"{kind}: FDR, power" for kind in KINDS), "size"]
    print(f"n = {n:,}, m = {m:,}, {options.draws} draws, level {LEVEL}\n")
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|", flush=True)
    for t in STRENGTHS:
        for method in ("split", "full"):
            cells, sizes = [], []
            for kind in KINDS:
                false, power = [], []
                for j in range(options.draws):
                    rng = np.random.default_rng([17, j])
                    normal, new = draw(rng, n, m, t)
                    cad = ConformalDetector("knn", method, random_state=j, n_jobs=1).fit(normal)
                    given = weights(kind, normal, new, t)
                    validity = "proven" if kind == "proven" else "nominal"
                    found = cad.discover(new, LEVEL, weights=given, validity=validity).mask
                    true = int(found[: m // 10].sum())
                    false.append((found.sum() - true) / max(1, found.sum()))
                    power.append(true / (m // 10))
                    if kind == "weighted":
                        sizes.append(given.effective_size if given is not None else n)
                error = stdev(false) / len(false) ** 0.5
                cells.append(f"{mean(false):.3f} ± {error:.3f}, {mean(power):.2f}")
            cells = [f"{t:g}", method, *cells, f"{mean(sizes):,.0f}"]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
