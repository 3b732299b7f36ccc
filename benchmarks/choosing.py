"""Rules by which ``"auto"`` could choose a detector, side by side: power and FDR of their lists.

    python benchmarks/choosing.py                              # the four small sets, 25 draws
    python benchmarks/choosing.py thyroid satellite --draws 12 --batches 1

Every rule keeps p-values exact; lists are made by Benjamini-Hochberg at 0.1. A margin "a, b" asks
of another detector to find more than the first by a roots of what that finds plus b, on average
over the levels 0.05, 0.1, 0.15, 0.2; without a margin the longest list at 0.1 decides.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import numpy as np
from papers import load

from reconform import ConformalDetector
from reconform.ensemble.choosing import LEVELS, stands_first, weigh
from reconform.rule import Rule
from reconform.statistics.conditional_calibration import step_up_limits
from reconform.statistics.exact import usual
from reconform.statistics.fdr import RankCounts
from reconform.study.protocol import Protocol, name_key

SMALL = ("wbc", "ionosphere", "wdbc", "breast")
MARGINS = ((1.0, 1), (1.5, 1), (1.0, 16), (1.25, 16), (2.0, 4))

Batch = tuple[ConformalDetector, np.ndarray, int]

# From evidence (levels, detectors, m), and which detector stands first, to a choice (m,).
Choose = Callable[[np.ndarray, int], np.ndarray]


def batches(
    name: str, draws: int, count: int
) -> Iterator[tuple[ConformalDetector, np.ndarray, int]]:
    """Fitted detectors and new rows of the paper's sizes, the anomalies last; and their number."""
    data = load(name)
    sizes = Protocol().sizes(len(data.normal), len(data.outliers))
    for j in range(draws):
        rng = np.random.default_rng([name_key(name), j, 99])
        normal = data.X[rng.permutation(data.normal)].astype(float)
        reference, pool = normal[: sizes.train], normal[sizes.train :]
        cad = ConformalDetector("auto", "full", random_state=j).fit(reference)
        for _ in range(count):
            some = rng.choice(len(pool), sizes.test - sizes.outliers, replace=False)
            bad = rng.choice(len(data.outliers), sizes.outliers, replace=False)
            outliers = data.X[data.outliers[bad]].astype(float)
            yield cad, np.vstack([pool[some], outliers]), sizes.outliers


def seen(cad: ConformalDetector, new: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Evidence by level and detector, the ranks by detector, and which one stands first."""
    n, m, fitted = cad.n_calibration_, len(new), cad.ensemble_.fitted
    evidence = np.empty((len(LEVELS), len(fitted), m), dtype=np.int64)
    ranks = np.empty((len(fitted), m), dtype=np.int64)
    pooled = [one.for_pool(new) for one in fitted]
    for k, (ensemble, measured) in enumerate(pooled):
        for augmented in ensemble.augmented_scores(measured, np.arange(m)):
            for level, q in enumerate(LEVELS):
                limits = step_up_limits(q, n, m)[None]
                found, own = np.empty((2, len(augmented.rows)), dtype=np.int64)
                weigh(
                    augmented.own,
                    augmented.others,
                    augmented.rows,
                    limits,
                    0,
                    len(found),
                    found,
                    own,
                )
                evidence[level, k, augmented.rows], ranks[k, augmented.rows] = found, own
    return evidence, ranks, stands_first([one.enough_new for one, _ in pooled], m)


def with_margin(factor: float, more: int) -> Choose:
    """Return the rule with a margin."""

    def choose(evidence: np.ndarray, first: int) -> np.ndarray:
        found = evidence.mean(axis=0)
        gain = found - found[first]
        clear = (gain > 0) & (gain > factor * np.sqrt(found[first] + more))
        best = np.where(clear, gain, 0).argmax(axis=0)
        return np.where(clear.any(axis=0), best, first)

    return choose


def rules(names: tuple[str, ...]) -> dict[str, Choose]:
    """Every detector alone, and the rules."""
    alone = {
        f"{name} alone": lambda evidence, _, k=k: np.full(evidence.shape[2], k)
        for k, name in enumerate(names)
    }
    usual_margin = with_margin(1.25, 16)
    margins = {f"margin {a}, {b}": with_margin(a, b) for a, b in MARGINS}
    longest = {"longest list at 0.1, no margin": lambda evidence, _: evidence[1].argmax(axis=0)}
    first = {"the one that stands first": lambda e, first: np.full(e.shape[2], first)}
    others = {
        f"margin 1.25, 16, {name} first": lambda e, _, k=k: usual_margin(e, k)
        for k, name in enumerate(names)
        if name in ("knn", "contrast", "contrast-forest")
    }
    return {**alone, **first, **longest, **margins, **others}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--draws", type=int, default=25)
    parser.add_argument("--batches", type=int, default=4)
    arguments = parser.parse_args()
    names, table = arguments.names or SMALL, {}
    for name in names:
        for cad, new, anomalies in batches(name, arguments.draws, arguments.batches):
            evidence, ranks, first = seen(cad, new)
            ensemble, m, n = cad.ensemble_, len(new), cad.n_calibration_
            for rule, choose in rules(ensemble.names).items():
                mine = ranks[choose(evidence, first), np.arange(m)]
                decision = Rule(fdr=0.1).decide_counts(RankCounts(n, "").add(mine), usual(n))
                mask = decision.mask(mine)
                true = mask[-anomalies:].sum()
                line = (true / anomalies, (mask.sum() - true) / max(1, mask.sum()))
                table.setdefault(rule, {}).setdefault(name, []).append(line)
    print("| rule | " + " | ".join(names) + " | mean |")
    print("|---" * (len(names) + 2) + "|")
    for rule, by_name in table.items():
        means = [np.mean(by_name[name], axis=0) for name in names]
        cells = [f"{power:.3f} / {fdr:.2f}" for power, fdr in [*means, np.mean(means, axis=0)]]
        print(f"| {rule} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
