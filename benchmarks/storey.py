"""Is Storey's procedure worth a default with ``"auto"``? Power and FDR beside Benjamini-Hochberg.

    python benchmarks/storey.py                          # the eight data sets, 10 draws each
    python benchmarks/storey.py wbc thyroid --draws 25

Draws are those of the paper's protocol (a tenth of the new rows are anomalies), one batch each; the
level is 0.1, λ is 1/2.
"""

from __future__ import annotations

import argparse
from statistics import mean

import numpy as np
from papers import REGISTRY, load

from reconform import ConformalDetector
from reconform.study.protocol import Protocol


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--draws", type=int, default=10)
    arguments = parser.parse_args()
    protocol, every = Protocol(test_sets=1), []
    print("| data set | BH: power | BH: FDR | Storey: power | Storey: FDR |")
    print("|---|---|---|---|---|")
    for name in arguments.names or REGISTRY:
        data, found = load(name), []
        for j in range(arguments.draws):
            draw = protocol.draw(data, j)
            X = data.X.astype(np.float64)
            new = X[draw.pool[draw.test_sets[0]]]
            cad = ConformalDetector(method="full", random_state=j, n_jobs=2).fit(X[draw.train])
            line = []
            for procedure in ("bh", "storey"):
                mask = cad.discover(new, fdr=0.1, procedure=procedure).mask
                true = int(mask[-draw.outliers :].sum())
                line += [true / draw.outliers, (mask.sum() - true) / max(1, mask.sum())]
            found.append(line)
        every.append([mean(column) for column in zip(*found, strict=True)])
        print(f"| {name} | " + " | ".join(f"{value:.3f}" for value in every[-1]) + " |", flush=True)
    means = [mean(column) for column in zip(*every, strict=True)]
    print("| **mean** | " + " | ".join(f"{value:.3f}" for value in means) + " |")


if __name__ == "__main__":
    main()
