"""Two types of machine with different laws: one joint list, two separate lists, no groups at all.

    python benchmarks/groups.py                   # power and false discovery rate, 200 repetitions
    python benchmarks/groups.py levels            # the same without anomalies

Type A is N(0, 1) in four columns, type B N(6, 9). A reference has 300 rows of A and 240 of B, a
batch 150 of A and 50 of B; a tenth of each is shifted by 3.5 of its own standard deviations in
every column. The level is 0.1 (levels: 0.1 and 0.2). Errors are standard errors of the mean.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from reconform import ConformalDetector

REFERENCE, NEW, SHARE, SHIFT = (300, 240), (150, 50), 0.1, 3.5
LAWS = ((0.0, 1.0), (6.0, 3.0))


def batch(rng: np.random.Generator, share: float) -> tuple[np.ndarray, ...]:
    """Reference rows, their groups, new rows, their groups, and which are anomalies."""
    X, new, anomalous = [], [], []
    for (centre, spread), n, m in zip(LAWS, REFERENCE, NEW, strict=True):
        odd = np.arange(m) < round(share * m)
        X.append(centre + spread * rng.normal(size=(n, 4)))
        new.append(centre + spread * (rng.normal(size=(m, 4)) + SHIFT * odd[:, None]))
        anomalous.append(odd)
    groups, theirs = (np.repeat(["A", "B"], sizes) for sizes in (REFERENCE, NEW))
    return np.vstack(X), groups, np.vstack(new), theirs, np.concatenate(anomalous)


def lists(
    method: str, level: float, data: tuple[np.ndarray, ...], validity: str
) -> Iterator[tuple[str, np.ndarray]]:
    """What every way of judging flags."""
    X, groups, new, theirs, _ = data
    for models in (True, False):
        cad = ConformalDetector("knn", method, random_state=0, group_models=models)
        found = cad.fit(X, groups=groups).discover(new, level, groups=theirs, validity=validity)
        yield "one list, " + ("a detector per type" if models else "one detector"), found.mask
    apart = np.zeros(len(new), dtype=bool)
    for group in np.unique(groups):
        mine = theirs == group
        cad = ConformalDetector("knn", method, random_state=0).fit(X[groups == group])
        apart[mine] = cad.discover(new[mine], level, validity=validity).mask
    yield "two lists, each at the level", apart
    cad = ConformalDetector("knn", method, random_state=0).fit(X)
    yield "no groups", cad.discover(new, level, validity=validity).mask


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=["power", "levels"], default="power")
    parser.add_argument("--repetitions", type=int, default=200)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    share = SHARE if arguments.what == "power" else 0.0
    ways = (("split", "nominal"), ("full", "nominal"), ("full", "proven"))
    print("| method | level | way | power | power on B | false discovery rate |")
    print("|---|---|---|---|---|---|")
    for level in (0.1,) if share else (0.1, 0.2):
        for method, validity in ways:
            said = method if validity == "nominal" else f"{method}, proven"
            seen = defaultdict(list)
            for repetition in range(arguments.repetitions):
                data = batch(np.random.default_rng([repetition, int(100 * level)]), share)
                odd, of_b = data[4], data[3] == "B"
                for way, mask in lists(method, level, data, validity):
                    hits = mask & odd
                    seen[way].append(
                        (
                            hits.sum() / max(1, odd.sum()),
                            hits[of_b].sum() / max(1, odd[of_b].sum()),
                            (mask & ~odd).sum() / max(1, mask.sum()),
                        )
                    )
            for way, rows in seen.items():
                each = np.array(rows)
                mean, error = each.mean(axis=0), each.std(axis=0) / np.sqrt(len(each))
                cells = [f"{m:.3f} ± {e:.3f}" for m, e in zip(mean, error, strict=True)]
                print(f"| {said} | {level} | {way} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
