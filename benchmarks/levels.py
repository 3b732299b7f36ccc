"""Levels that are not kept: where "measured" ends, and where a claim is false.

    python benchmarks/levels.py musk      # P(p <= α) of normal rows, by detector and method
    python benchmarks/levels.py full      # a detector on which BH after full exceeds its level
    python benchmarks/levels.py contrast  # normal new rows that come in clusters, and the guard
    python benchmarks/levels.py batch     # batch, learned and known anomalies, without anomalies
    python benchmarks/levels.py choice    # every candidate of "auto", all, and 50 of noise

What `docs/guarantees.md` and `docs/methods.md` quote. The data sets are found as in
`results/paper_data.py`: in the folder `RECONFORM_DATA`, or downloaded once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from papers import load
from scipy.stats import binom
from sklearn.base import BaseEstimator

from reconform import ConformalDetector, Learned, RankCounts
from reconform.detectors.auto import name_of
from reconform.detectors.contrast import FullContrast
from reconform.detectors.registry import offered
from reconform.study.protocol import MODELS, Protocol

FloatArray = npt.NDArray[np.float64]

DETECTORS = ("inne", "iforest", "knn")
METHODS = ("jab", "jab+")
ALPHAS = (0.01, 0.02, 0.1)


def musk(draws: int = 25) -> None:
    """Print P(p <= α) over the normal rows that are left, and its standard error over draws."""
    data, protocol = load("musk"), Protocol()
    print(f"musk, {draws} draws of the paper's protocol; ± is the standard error over draws")
    print("| detector | method | " + " | ".join(f"P(p <= {a})" for a in ALPHAS) + " |")
    print("|---" * (2 + len(ALPHAS)) + "|")
    for detector in DETECTORS:
        for method in METHODS:
            shares = []
            for j in range(draws):
                draw = protocol.draw(data, j)
                normal = np.setdiff1d(draw.pool, data.outliers, assume_unique=True)
                seed = int(protocol.stream("musk", j, MODELS).generate_state(1)[0])
                cad = ConformalDetector(detector, method, random_state=seed, n_jobs=2)
                p = cad.fit(data.X[draw.train]).p_values(data.X[normal])
                shares.append([np.mean(p <= alpha) for alpha in ALPHAS])
            mean, spread = np.mean(shares, axis=0), np.std(shares, axis=0, ddof=1)
            cells = [
                f"{m:.4f} ± {s:.4f}" for m, s in zip(mean, spread / np.sqrt(draws), strict=True)
            ]
            print(f"| {detector} | {method} | " + " | ".join(cells) + " |", flush=True)


# --- BH on full is not true in general -----------------------------------------------------------

NEW, LEVEL, REFERENCE = 10, 0.1, 999
ROWS_PER_LEVEL = round(LEVEL * (REFERENCE + 1) / NEW)


def _mix(z: Any) -> Any:
    """Hash 64 bits to 64 bits (the last steps of SplitMix64); overflow is meant."""
    with np.errstate(over="ignore"):
        z = np.asarray(z, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _unit(h: Any) -> FloatArray:
    return (h >> np.uint64(11)).astype(float) / 2**53


def _level_probabilities() -> FloatArray:
    chosen = []
    for k in range(1, NEW + 1):
        a = np.linspace(0.3 if k == 1 else 0.5 * k, NEW, 400)
        chosen.append(a[(binom.sf(k - 1, NEW, np.minimum(a / NEW, 1)) / a).argmax()])
    return np.cumsum([LEVEL / a for a in chosen])


CUMULATIVE = _level_probabilities()


def counterexample(X: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """A detector as a function fit(X) -> score(X); large = normal; rows of one number in [0, 1).

    It scores the rows that it is fitted on, and does not look at their order. A hash of all the
    *other* rows sends a row to one of ten levels, or to none; in level k the ten rows with the
    smallest second hash get the score k. For a new row the others are the reference, so all new
    rows land in the same level: together, which is what BH rewards. Each p-value is exact.
    """

    def score(rows: FloatArray) -> FloatArray:
        h = _mix(np.ascontiguousarray(rows[:, 0]).view(np.uint64))
        everything = np.bitwise_xor.reduce(h)
        level = np.searchsorted(CUMULATIVE, _unit(_mix(everything ^ h)), side="right") + 1
        second = _unit(_mix(_mix(everything + np.uint64(7)) ^ h))
        scores = np.full(len(rows), 100.0)
        for k in range(1, NEW + 1):
            here = np.flatnonzero(level == k)
            scores[here[np.argsort(second[here])[:ROWS_PER_LEVEL]]] = k
        return scores

    return score


def measure_full(repetitions: int, seed: int) -> tuple[float, float]:
    """P(p <= 0.1), and how often BH at 0.1 finds anything among ten normal rows: the FDR."""
    rng = np.random.default_rng(seed)
    cad = ConformalDetector(counterexample, "full", larger_is="normal")
    small = found = 0
    for _ in range(repetitions):
        rows = rng.random((REFERENCE + NEW, 1))
        discoveries = cad.fit(rows[:REFERENCE]).discover(rows[REFERENCE:], LEVEL)
        small += int((discoveries.p_values <= LEVEL).sum())
        found += bool(discoveries.count)
    return small / (NEW * repetitions), found / repetitions


def full(repetitions: int = 4_000) -> None:
    """Print the level of one p-value and of the list."""
    share, rate = measure_full(repetitions, 0)
    print(
        f"{repetitions:,} batches of {NEW} normal rows, {REFERENCE} reference rows, level {LEVEL}"
    )
    print(f"P(p <= {LEVEL}) = {share:.3f} (exact: at most {LEVEL})")
    print(f"FDR of BH on full = {rate:.3f} ± {np.sqrt(rate * (1 - rate) / repetitions):.3f}")


# --- contrast, and normal rows that come in clusters ---------------------------------------------

SIZES = ((30, 18), (100, 20), (300, 60), (1000, 200))


def contrast(batches: int = 200) -> None:
    """Print P(p <= 0.1) of normal new rows in clusters, without and with the guard."""
    print(f"P(p <= 0.1) of normal rows in {batches} batches, without guard -> with; ranked alone")
    print("| reference, batch | k | single rows | pairs | triples |")
    print("|---|---|---|---|---|")
    for n, m in SIZES:
        for k in (1, 5):
            cells = [
                _levels(n, m // cluster * cluster, k, cluster, batches) for cluster in (1, 2, 3)
            ]
            said = [f"{a:.3f} -> {b:.3f}; {off:.0%}" for a, b, off in cells]
            print(f"| {n}, {m} | {k} | " + " | ".join(said) + " |", flush=True)


def _levels(n: int, m: int, k: int, cluster: int, batches: int) -> tuple[float, float, float]:
    every, none = np.arange(m), np.empty((0, 0))
    unguarded, guarded, off = [], [], []
    for seed in range(batches):
        rng = np.random.default_rng(seed)
        ensemble = FullContrast.fit(rng.normal(size=(n, 3)), np.array([k]))
        new = np.repeat(rng.normal(size=(m // cluster, 3)), cluster, axis=0)
        new += 1e-3 * rng.normal(size=new.shape)
        plain = ensemble.rank_batch(new, every, none, False).at_most
        ranks = ensemble.batch_ranks(new)
        assert ranks.clustered is not None
        unguarded.append(np.mean(plain <= 0.1 * (n + 1)))
        guarded.append(np.mean(ranks.at_most <= 0.1 * (n + 1)))
        off.append(np.mean(ranks.clustered))
    return float(np.mean(unguarded)), float(np.mean(guarded)), float(np.mean(off))


# --- methods that fit the new rows, too; known anomalies that are none ---------------------------


def batch(batches: int = 400) -> None:
    """Print the FDR of lists of normal rows, and its standard error."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(max_depth=4)
    linear = LogisticRegression()
    cases: list[tuple[str, Any, Any, bool]] = [
        ("batch, knn", "knn", "batch", False),
        ("batch, iforest", "iforest", "batch", False),
        ("batch, mahalanobis", "mahalanobis", "batch", False),
        ("learned, tree", "auto", Learned(tree, calibration=149), False),
        ("learned, tree, one fold", "auto", Learned(tree, calibration=149, folds=1), False),
        ("learned, logistic regression", "auto", Learned(linear, calibration=149), False),
        ("contrast, with anomalies", "contrast", "full", True),
        ("knn, mahalanobis or contrast, with anomalies", ["knn", "mahalanobis", "contrast"],
         "full", True),
        ("learned, logistic regression, with anomalies", "auto", Learned(linear, calibration=149),
         True),
    ]  # fmt: skip
    # With 149 calibration rows and 15 new ones both levels lie on the grid: they are used up.
    print(f"All rows normal: 149 calibration rows, 15 new ones, 10 'anomalies'; {batches} batches")
    print("| | FDR at 0.1 | FDR at 0.2 |")
    print("|---|---|---|")
    for label, detector, method, known in cases:
        rng, false = np.random.default_rng(0), np.zeros(2)
        for run in range(batches):
            n = 249 if isinstance(method, Learned) else 149
            reference, new, others = (rng.normal(size=(size, 3)) for size in (n, 15, 10))
            cad = ConformalDetector(detector, method=method, random_state=run)
            cad.fit(reference, anomalies=others if known else None)
            ranks = cad.rank(new, together=True).at_most
            counts = RankCounts(cad.n_calibration_, "").add(ranks)
            false += [counts.decide(level).count > 0 for level in (0.1, 0.2)]
        shares = false / batches
        errors = np.sqrt(shares * (1 - shares) / batches)
        said = [f"{share:.3f} ± {error:.3f}" for share, error in zip(shares, errors, strict=True)]
        print(f"| {label} | " + " | ".join(said) + " |", flush=True)


# --- the candidates of auto ----------------------------------------------------------------------


def null_rows(rng: np.random.Generator, kind: str, n: int) -> FloatArray:
    """Rows that are alike: numbers, numbers with many ties and copies, or wide rows."""
    if kind == "wide":
        return rng.normal(size=(n, 3)) @ rng.normal(size=(3, 40)) + rng.normal(size=(n, 40))
    rows = rng.normal(size=(n, 4))
    return rng.permutation(np.vstack([rows, rows])[:n].round()) if kind == "ties" else rows


class Noise(BaseEstimator):
    """A detector that learns nothing."""

    def __init__(self, kind: int = 0) -> None:
        self.kind = kind

    def fit(self, X: FloatArray, y: object = None) -> Noise:
        """Take note of nothing."""
        self.n_features_in_ = X.shape[1]
        return self

    def score_samples(self, X: FloatArray) -> FloatArray:
        """Score rows by a wave in some direction."""
        return np.sin(9.0 * X @ np.random.default_rng(self.kind).normal(size=X.shape[1]))


def choice(batches: int = 40) -> None:
    """Print P(p <= α) and how often a certified list at 0.1 finds something, without anomalies."""
    noise = [Noise(k) for k in range(50)]
    print(f"All rows normal, {batches} batches of 40 new rows; ± is the standard error")
    print("| rows | reference | candidates | " + " | ".join(f"P(p <= {a})" for a in ALPHAS), end="")
    print(" | lists |")
    print("|---" * (4 + len(ALPHAS)) + "|")
    for kind, n in (("numbers", 60), ("ties", 60), ("wide", 60), ("numbers", 20), ("numbers", 200)):
        alone = {} if n != 60 else {name_of(d): [d] for d in offered(True, n)}
        for label, detector in {**alone, "all": "auto", "50 of noise": noise}.items():
            small, lists = [], 0
            for run in range(batches):
                rng = np.random.default_rng(run)
                rows = null_rows(rng, kind, n + 40)
                cad = ConformalDetector(detector, "full", random_state=run).fit(rows[:n])
                found = cad.discover(rows[n:], fdr=0.1)
                small.append([(found.p_values <= alpha).mean() for alpha in ALPHAS])
                lists += found.count > 0
            error = np.std(small, axis=0) / np.sqrt(batches)
            pairs = zip(np.mean(small, axis=0), error, strict=True)
            said = " | ".join(f"{mean:.4f} ± {one:.4f}" for mean, one in pairs)
            print(f"| {kind} | {n} | {label} | {said} | {lists / batches:.3f} |", flush=True)


if __name__ == "__main__":
    {"musk": musk, "full": full, "contrast": contrast, "batch": batch, "choice": choice}[
        sys.argv[1]
    ]()
