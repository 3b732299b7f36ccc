"""Which detectors ``"auto"`` should try, and by which margin it should choose: power and FDR.

    python benchmarks/choosing.py                              # all sets, 6 draws
    python benchmarks/choosing.py thyroid "heavy tails" --draws 12

Every rule keeps p-values exact; lists are made by Benjamini-Hochberg at 0.1. A margin "a, b" asks
of another detector to find more than the first by a/4 roots of what that finds plus b, on average
over the levels 0.05, 0.1, 0.15, 0.2. Sets are the paper's, two that scikit-learn brings, and
made-up ones of six kinds and several sizes; a tenth of the new rows are anomalies.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from papers import REGISTRY, load
from sklearn.datasets import load_digits, load_wine

from reconform import ConformalDetector
from reconform.detectors import INNE, Contrast
from reconform.detectors.registry import offered
from reconform.ensemble import choosing
from reconform.rule import Rule
from reconform.statistics.exact import usual
from reconform.statistics.fdr import RankCounts
from reconform.study.protocol import Protocol

KINDS = ("shifted", "between clusters", "heavy tails", "broken relation", "units", "two densities")
# What was tried and is not offered.
MORE = (INNE(), INNE(scale="robust"), Contrast(scale="robust"))
MARGINS = ((5, 16), (4, 12), (3, 8), (2, 4))
Rows = tuple[np.ndarray, np.ndarray, int]  # reference, new rows with the anomalies last, how many


def made(kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal rows and anomalies of a kind."""
    rng = np.random.default_rng([KINDS.index(kind), seed])
    d, n, a = int(rng.choice([4, 10, 30])), 1200, 300
    if kind == "shifted":
        turn = rng.normal(size=(d, d)) / np.sqrt(d)
        return rng.normal(size=(n, d)) @ turn, rng.normal(size=(a, d)) @ turn + 2.5 * turn[0]
    if kind == "between clusters":
        centres = 6 * rng.normal(size=(5, d))
        normal = centres[rng.integers(0, 5, n)] + rng.normal(size=(n, d))
        return normal, centres[rng.integers(0, 5, a)] / 2 + rng.normal(size=(a, d))
    if kind == "heavy tails":
        return rng.standard_t(3, size=(n, d)), 2.5 * rng.standard_t(3, size=(a, d))
    if kind == "broken relation":
        normal = rng.normal(size=(n, d))
        normal[:, 1] = normal[:, 0] + 0.2 * rng.normal(size=n)
        return normal, rng.normal(size=(a, d))
    if kind == "units":
        units = 10.0 ** rng.integers(-2, 3, d)
        return rng.poisson(3, size=(n, d)) * units, rng.poisson(6, size=(a, d)) * units
    centres, which = 8 * rng.normal(size=(2, d)), rng.integers(0, 2, n)
    normal = centres[which] + np.array([0.3, 3.0])[which, None] * rng.normal(size=(n, d))
    return normal, centres[0] + 1.2 * rng.normal(size=(a, d))


def draws_of(name: str, draws: int) -> Iterator[Rows]:
    """Draw reference and new rows of a set."""
    for j in range(draws):
        if name in REGISTRY:
            data, protocol = load(name), Protocol(test_sets=1, draws=draws)
            draw = protocol.draw(data, j)
            yield data.X[draw.train], data.X[draw.pool][draw.test_sets[0]], draw.outliers
            continue
        rng = np.random.default_rng(j)
        if name in KINDS:
            normal, bad = made(name, j)
            n = (150, 300, 600)[j % 3]
            m = n // 3 if j % 2 else 2 * n // 3
        else:
            X, y = {"digits": load_digits, "wine": load_wine}[name](return_X_y=True)
            normal, bad = rng.permutation(X[y != 0]), rng.permutation(X[y == 0])
            n, m = len(normal) // 2, len(normal) // 6
        a = max(1, round(m / 10))
        yield normal[:n], np.vstack([normal[n : n + m - a], bad[:a]]), a


@dataclass
class Seen:
    """What all detectors see of one batch: evidence and ranks (detectors, m)."""

    n: int
    anomalies: int
    names: list[str]
    first: str
    evidence: np.ndarray
    ranks: np.ndarray

    def found(self, names: list[str], margin: tuple[int, int]) -> tuple[float, float]:
        """Power and false share of a choice among some of the detectors."""
        choosing.MARGIN, choosing.FEW = margin
        which = [self.names.index(name) for name in names]
        first = self.first if self.first in names else names[0]
        chosen = choosing.choose(self.evidence[which], names.index(first))
        mine = self.ranks[which][chosen, np.arange(self.ranks.shape[1])]
        counts = RankCounts(self.n, "").add(mine)
        mask = Rule(fdr=0.1).decide_counts(counts, usual(self.n)).mask(mine)
        true = int(mask[-self.anomalies :].sum())
        return true / self.anomalies, float((mask.sum() - true) / max(1, mask.sum()))


def seen(rows: Rows, seed: int) -> Seen:
    """Ask all detectors."""
    reference, new, anomalies = rows
    tried = [*offered(True), *MORE]
    cad = ConformalDetector(tried, "full", random_state=seed, n_jobs=2).fit(reference)
    choice = cad.ensemble_
    pooled, m = choice._pooled(new), len(new)
    limits = choosing.limits_for(len(reference), m)
    evidence, ranks = np.empty((2, len(pooled), m), dtype=np.int64)
    for k, (ensemble, measured) in enumerate(pooled):
        for part in ensemble.augmented_scores(measured, np.arange(m)):
            evidence[k, part.rows], ranks[k, part.rows] = choosing._weighed(part, limits, 2)
    first = choosing.stands_first([one.enough_new for one, _ in pooled], m)
    names = list(choice.names)
    return Seen(len(reference), anomalies, names, names[first], evidence, ranks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=[*REGISTRY, "digits", "wine", *KINDS])
    parser.add_argument("--draws", type=int, default=6)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    table: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for name in arguments.names:
        for j, rows in enumerate(draws_of(name, arguments.draws)):
            batch = seen(rows, j)
            ours = batch.names[: len(offered(True))]
            more = batch.names[len(ours) :]
            rules = {f"offered, margin {a}, {b}": (ours, (a, b)) for a, b in MARGINS}
            rules |= {f"and {one}": ([*ours, one], MARGINS[0]) for one in more}
            rules |= {
                f"without {one}": ([other for other in ours if other != one], MARGINS[0])
                for one in ours
            }
            rules |= {f"{one} alone": ([one], MARGINS[0]) for one in batch.names}
            for rule, settings in rules.items():
                table[rule][name].append(batch.found(*settings))
    print("| rule | " + " | ".join(arguments.names) + " | mean |")
    print("|---" * (len(arguments.names) + 2) + "|")
    for rule, by_name in table.items():
        means = [np.mean(by_name[name], axis=0) for name in arguments.names]
        cells = [f"{power:.2f}" for power, _ in means]
        power, fdr = np.mean(means, axis=0)
        print(f"| {rule} | " + " | ".join(cells) + f" | {power:.3f} / {fdr:.3f} |")


if __name__ == "__main__":
    main()
