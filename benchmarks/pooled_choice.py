"""The choice from the pool on a split, against every candidate alone: power and FDR of BH at 0.1.

    python benchmarks/pooled_choice.py                    # all sets, 1 % and 5 % anomalies
    python benchmarks/pooled_choice.py musk local --draws 2
    python benchmarks/pooled_choice.py --small            # n = 200, m = 5,000: split against full

Real sets as far as they reach: 65 % of the normal rows are the reference, the others are new, with
as many anomalies as the share asks for. Made-up ones have 50,000 + 20,000 rows in 10 columns from
five Gaussian clusters. A detector alone has the split that ``method="auto"`` gives it.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from papers import load

from reconform import ConformalDetector, Split
from reconform.detectors.auto import names_of
from reconform.detectors.registry import offered
from reconform.methods import MOST_LEARNING

REAL = ("satellite", "mammography", "musk", "thyroid")
MADE = ("local", "clustered", "scaled", "subspace", "dependency", "between")
CLUSTERS, COLUMNS = 5, 10

Draw = tuple[np.ndarray, np.ndarray, np.ndarray]  # reference, new rows, which are anomalies


class Mixture:
    """Rows from Gaussian clusters of different sizes and shapes."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.means = 4 * rng.normal(size=(CLUSTERS, COLUMNS))
        self.factors = []
        for _ in range(CLUSTERS):
            spread = np.exp(rng.normal(size=COLUMNS) / 2) * np.exp(rng.normal() / 2)
            turn = np.linalg.qr(rng.normal(size=(COLUMNS, COLUMNS)))[0]
            self.factors.append(spread[:, None] * turn)

    def rows(self, n: int, wider: float = 1.0) -> np.ndarray:
        """Draw rows, of clusters that are so much wider."""
        which, X = self.rng.integers(0, CLUSTERS, n), np.empty((n, COLUMNS))
        for k in range(CLUSTERS):
            mine = which == k
            noise = self.rng.normal(size=(mine.sum(), COLUMNS))
            X[mine] = self.means[k] + wider * noise @ self.factors[k]
        return X

    def anomalies(self, kind: str, a: int) -> np.ndarray:
        """Draw anomalies of a kind."""
        rng = self.rng
        if kind == "local":  # around the same clusters, twice as far away
            return self.rows(a, wider=2.0)
        if kind == "clustered":  # close to each other, where normal rows are common
            return self.rows(1) + rng.normal(size=(a, COLUMNS)) / 4
        if kind == "between":  # on lines between the clusters
            i, j = rng.integers(0, CLUSTERS, (2, a))
            w = rng.random((a, 1))
            X = self.means[i] * w + self.means[j] * (1 - w)
            return X + 0.3 * rng.normal(size=(a, COLUMNS))
        X = self.rows(a)
        if kind == "dependency":  # every column as usual, but independent of the others
            return np.column_stack([rng.permutation(column) for column in X.T])
        if kind == "subspace":  # unusual in two columns
            far = self.means[:, 0].max() + 2, self.means[:, 1].min() - 2
            X[:, :2] = far + 0.3 * rng.normal(size=(a, 2))
        if kind == "scaled":  # unusual in the column with the smallest numbers
            X[:, 0] += 12 * rng.choice([-1, 1], a)
        return X


def made(kind: str, share: float, seed: int, n: int = 50_000, m: int = 20_000) -> Draw:
    """Draw a made-up set."""
    rng = np.random.default_rng([sum(map(ord, kind)), seed])
    mixture, a = Mixture(rng), round(share * m)
    units = np.exp(np.linspace(0, 6, COLUMNS)) if kind == "scaled" else np.ones(COLUMNS)
    normal, new = mixture.rows(n), np.vstack([mixture.rows(m - a), mixture.anomalies(kind, a)])
    return normal * units, new * units, np.arange(m) >= m - a


def real(name: str, share: float, seed: int) -> Draw:
    """Draw from a real set."""
    data, rng = load(name), np.random.default_rng([sum(map(ord, name)), seed])
    normal = data.X[rng.permutation(data.normal)].astype(float)
    m = int(0.35 * len(normal))
    a = min(len(data.outliers), max(1, round(share * m / (1 - share))))
    bad = data.X[rng.permutation(data.outliers)[:a]].astype(float)
    return normal[m:], np.vstack([normal[:m], bad]), np.arange(m + a) >= m


def judged(cad: ConformalDetector, draw: Draw) -> tuple[float, float, str]:
    """Power, share of false ones among the flagged, and what was chosen."""
    reference, new, bad = draw
    found = cad.fit(reference).discover(new, fdr=0.1)
    false = float(found.mask[~bad].sum() / max(1, found.count))
    return float(found.mask[bad].mean()), false, found.choice[0].name if found.choice else ""


def compare(name: str, share: float, draws: int) -> tuple[dict[str, list[float]], float]:
    """Mean power and false share of all, and the seconds of the choice."""
    results: dict[str, list[tuple[float, float, str]]] = {}
    seconds = 0.0
    for seed in range(draws):
        draw = real(name, share, seed) if name in REAL else made(name, share, seed)
        start = time.perf_counter()
        split = Split(None, training=MOST_LEARNING)
        one = judged(ConformalDetector("auto", split, random_state=seed), draw)
        seconds += time.perf_counter() - start
        results.setdefault("choice", []).append(one)
        single = offered(False, len(draw[0]))
        for label, detector in zip(names_of(single), single, strict=True):
            alone = ConformalDetector(detector, Split(None), random_state=seed)
            results.setdefault(label, []).append(judged(alone, draw))
    chosen = sorted({one[2] for one in results["choice"]})
    print(f"  {name} {share:.0%}: chosen {', '.join(chosen)}; {seconds / draws:.1f} s", flush=True)
    means = {k: np.mean([one[:2] for one in v], axis=0).tolist() for k, v in results.items()}
    return means, seconds / draws


def small(draws: int) -> None:
    """Few reference rows and very many new ones, by split and by full."""
    for kind in MADE:
        rows = []
        for method in ("split", "full"):
            each = []
            for seed in range(draws):
                draw = made(kind, 0.05, seed, 200, 5_000)
                each.append(judged(ConformalDetector("auto", method, random_state=seed), draw)[:2])
            rows.append("{} {:.2f} ({:.2f})".format(method, *np.mean(each, axis=0)))
        print(f"{kind}: power (false share) of {', '.join(rows)}", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*REAL, *MADE])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.small:
        small(given.draws)
        return
    cells = {
        (name, share): compare(name, share, given.draws)[0]
        for share in (0.01, 0.05)
        for name in given.names
    }
    print(f"{'set':<18}{'choice':>12}{'best single':>28}")
    for (name, share), means in cells.items():
        best = max((k for k in means if k != "choice"), key=lambda k: means[k][0])
        power, false = means["choice"]
        said = f"{best} {means[best][0]:.2f} ({means[best][1]:.2f})"
        print(f"{name + f' {share:.0%}':<18}{f'{power:.2f} ({false:.2f})':>12}{said:>28}")
    common = set.intersection(*(set(means) for means in cells.values())) - {"choice"}
    ours = np.mean([means["choice"] for means in cells.values()], axis=0)
    single = {k: np.mean([means[k] for means in cells.values()], axis=0) for k in sorted(common)}
    best = max(single, key=lambda k: single[k][0])
    of_each = np.mean([max(v[0] for k, v in c.items() if k != "choice") for c in cells.values()])
    print(f"mean: choice {ours[0]:.3f} ({ours[1]:.3f}); {best}, the best single detector over all "
          f"sets, {single[best][0]:.3f} ({single[best][1]:.3f}): {ours[0] / single[best][0]:.2f} "
          f"times; the best of each set {of_each:.3f}: {ours[0] / of_each:.2f} times")  # fmt: skip
    for name, (power, false) in single.items():
        print(f"  {name:<16}{power:.3f} ({false:.3f})")


if __name__ == "__main__":
    main()
