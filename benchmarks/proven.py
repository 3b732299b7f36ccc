"""Lists whose false discovery rate is a theorem: what they find, on the paper's protocol.

    python benchmarks/proven.py                        # every contender on all eight data sets
    python benchmarks/proven.py --only knn --sets 4    # some contenders, more test sets per draw
    python benchmarks/proven.py --draws 2              # a look
    python benchmarks/proven.py --json proven.json     # and the cells in a file
    python benchmarks/proven.py --page                 # and in the table of results/proven.md

Contenders see the same draws: reference rows, new rows of which a tenth are anomalies, level 0.1,
and a seed that is the number of the draw. Rows marked * have no theorem for the list and stand
there to compare with: full with Benjamini-Hochberg, 10 folds of nonconform 2.0.0, and what PyOD
calls an outlier at its own threshold (a tenth of the reference). Split is half of the reference in
nonconform; detectors are PyOD's. Contenders of fcnd 0.1.2 take one fit on
reference and new rows together ("in-sample"), with the settings of its README, its own learners
and ours wrapped. Packages that are not installed are left out, with a word (`make bench` has them).
A cell is the mean over draws of power and of the false discovery proportion; ± is the standard
error of the latter. Seconds are those of one list, fit included; a plain list under full is made
with the certified one.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, median, stdev

import numpy as np
from papers import REGISTRY, load

from reconform import ConformalDetector
from reconform.study.protocol import Protocol

PAGE = Path(__file__).resolve().parent.parent / "results" / "proven.md"
LEVEL = 0.1
Mask = np.ndarray
Contender = Callable[[np.ndarray, np.ndarray, int], Mask]


# --- ours ----------------------------------------------------------------------------------------


# Full lists that were made already: a certified list has the plain one beside it.
FOUND: dict[tuple[object, ...], tuple[Mask, Mask]] = {}


def ours(detector: str, method: str, validity: str) -> Contender:
    def find(reference: np.ndarray, new: np.ndarray, seed: int) -> Mask:
        key = detector, method, seed, reference.tobytes(), new.tobytes()
        if key not in FOUND:
            cad = ConformalDetector(detector, method, random_state=seed, n_jobs=2).fit(reference)
            found = cad.discover(new, fdr=LEVEL, validity="proven")
            plain = found.mask if found.plain_mask is None else found.plain_mask
            FOUND[key] = np.asarray(plain), np.asarray(found.mask)
        return FOUND[key][validity == "proven"]

    return find


# --- fcnd ----------------------------------------------------------------------------------------


def learners(names: list[str], seed: int) -> dict[str, object]:
    """The package's own learners, and ours in the form that it asks for."""
    from fcnd import BaseLearner, IsoForestLearner, OneClassSVMLearner

    from reconform.detectors import DETECTORS

    class Ours(BaseLearner):  # type: ignore[misc]
        def __init__(self, name: str) -> None:
            self.name = name

        def reset(self) -> Ours:
            self.model = DETECTORS[self.name].kind()
            if "random_state" in self.model.get_params():
                self.model.set_params(random_state=seed)
            return self

        def fit(self, X: np.ndarray, **_: object) -> Ours:
            self.reset()
            self.rows = X
            self.model.fit(X)
            return self

        def score(self, X: np.ndarray) -> np.ndarray:
            if X is self.rows:  # a row is not its own neighbour
                return -np.asarray(self.model._training_scores(X))
            return -self.model.score_samples(X)

    made: dict[str, object] = {
        "IsoForestLearner": IsoForestLearner(random_state=seed, n_estimators=100),
        "OneClassSVMLearner": OneClassSVMLearner(nu=0.05, kernel="rbf", gamma="auto"),
    }
    return {name: made[name] if name in made else Ours(name) for name in names}


def fcnd(kind: str, names: list[str]) -> Contender:
    def find(reference: np.ndarray, new: np.ndarray, seed: int) -> Mask:
        import fcnd as package

        chosen = learners(names, seed)
        if kind == "FCND":
            (learner,) = chosen.values()
            found = package.FCND(learner).detect(reference, new, alpha=LEVEL, method="ebh")
        else:
            detector = package.MSFCND(chosen, alpha=LEVEL, K=10, random_state=seed)
            found = detector.detect(reference, new, method="ebh")
        return np.asarray(found.rejection_mask)

    return find


# --- nonconform and PyOD -------------------------------------------------------------------------


def pyod(name: str, seed: int) -> object:
    from importlib import import_module

    kind = getattr(import_module(f"pyod.models.{name.lower()}"), name)
    return kind(random_state=seed) if name == "IForest" else kind()


def nonconform(name: str, method: str) -> Contender:
    def find(reference: np.ndarray, new: np.ndarray, seed: int) -> Mask:
        import logging

        from nonconform import ConformalDetector, CrossValidation, Split

        logging.getLogger("nonconform").setLevel(logging.ERROR)
        half = Split(n_calib=len(reference) // 2)
        strategy = half if method == "split" else CrossValidation(10, mode="plus")
        theirs = ConformalDetector(pyod(name, seed), strategy=strategy, seed=seed)
        return np.asarray(theirs.fit(reference).select(new, alpha=LEVEL))

    return find


def threshold(name: str) -> Contender:
    def find(reference: np.ndarray, new: np.ndarray, seed: int) -> Mask:
        fitted = pyod(name, seed).fit(reference)  # type: ignore[attr-defined]
        return np.asarray(fitted.predict(new)) == 1

    return find


CONTENDERS: dict[str, Contender] = {
    "auto, full, BH *": ours("auto", "full", "nominal"),
    "auto, full, certified": ours("auto", "full", "proven"),
    "knn, full, BH *": ours("knn", "full", "nominal"),
    "knn, full, certified": ours("knn", "full", "proven"),
    "knn, jackknife+, certified": ours("knn", "jackknife+", "proven"),
    "knn, split": ours("knn", "split", "proven"),
    "iforest, full, BH *": ours("iforest", "full", "nominal"),
    "iforest, full, certified": ours("iforest", "full", "proven"),
    "iforest, split": ours("iforest", "split", "proven"),
    "inne, full, BH *": ours("inne", "full", "nominal"),
    "inne, full, certified": ours("inne", "full", "proven"),
    "inne, split": ours("inne", "split", "proven"),
    "nonconform, KNN, split": nonconform("KNN", "split"),
    "nonconform, KNN, 10 folds *": nonconform("KNN", "folds"),
    "nonconform, IForest, split": nonconform("IForest", "split"),
    "PyOD, KNN, threshold *": threshold("KNN"),
    "PyOD, IForest, threshold *": threshold("IForest"),
    "FCND, its forest": fcnd("FCND", ["IsoForestLearner"]),
    "FCND, its SVM": fcnd("FCND", ["OneClassSVMLearner"]),
    "FCND, our knn": fcnd("FCND", ["knn"]),
    "FCND, our iforest": fcnd("FCND", ["iforest"]),
    "FCND, our inne": fcnd("FCND", ["inne"]),
    "MSFCND, its two": fcnd("MSFCND", ["IsoForestLearner", "OneClassSVMLearner"]),
    "MSFCND, our three": fcnd("MSFCND", ["knn", "iforest", "inne"]),
}


# --- cells ---------------------------------------------------------------------------------------


def cell(find: Contender, dataset: str, draws: int, sets: int) -> dict[str, object]:
    """Power, false discovery proportion and seconds, per draw of a data set."""
    data = load(dataset)
    protocol = Protocol(test_sets=sets, draws=draws)
    powers, shares, seconds = [], [], []
    for j in range(draws):
        draw = protocol.draw(data, j)
        pool = data.X[draw.pool]
        results = []
        for which in draw.test_sets:
            start = time.perf_counter()
            mask = find(data.X[draw.train], pool[which], j)
            seconds.append(time.perf_counter() - start)
            true = int(mask[-draw.outliers :].sum())
            results.append((true / draw.outliers, (mask.sum() - true) / max(1, mask.sum())))
        powers.append(mean(r[0] for r in results))
        shares.append(mean(float(r[1]) for r in results))
    error = stdev(shares) / len(shares) ** 0.5 if len(shares) > 1 else 0.0
    return {"power": mean(powers), "fdr": mean(shares), "error": error, "seconds": median(seconds)}


def measure(
    only: str = "", draws: int = 25, sets: int = 1, datasets: Sequence[str] = tuple(REGISTRY)
) -> dict[str, dict[str, object]]:
    """Go through contenders and data sets, and print a Markdown table row by row."""
    warnings.simplefilter("ignore")
    chosen = {title: find for title, find in CONTENDERS.items() if only in title}
    for package in ("nonconform", "pyod", "fcnd"):
        if find_spec(package) is None:
            others = {k: v for k, v in chosen.items() if package not in k.lower()}
            if others != chosen:
                print(f"{package} is not installed: left out {', '.join(chosen.keys() - others)}\n")
            chosen = others
    print(f"Power / FDR ± standard error; {draws} draws, {sets} test sets each, level {LEVEL}\n")
    heads = ["list", *datasets, "mean power", "mean FDR", "s per list, largest"]
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|", flush=True)
    cells: dict[str, dict[str, object]] = {}
    for title, find in chosen.items():
        cells[title] = {name: cell(find, name, draws, sets) for name in datasets}
        row = [dict(c) for c in cells[title].values()]  # type: ignore[call-overload]
        shown = [f"{c['power']:.2f} / {c['fdr']:.3f} ± {c['error']:.3f}" for c in row]
        tail = [f"{mean(c[key] for c in row):.3f}" for key in ("power", "fdr")]
        slowest = f"{max(c['seconds'] for c in row):.2g}"
        print("| " + " | ".join([title, *shown, *tail, slowest]) + " |", flush=True)
    return cells


def fill_page(cells: dict[str, dict[str, object]]) -> None:
    """Put these rows into the table of results/proven.md, by their titles."""
    text = PAGE.read_text(encoding="utf-8")
    for title, row in cells.items():
        old = next((line for line in text.splitlines() if line.startswith(f"| {title} |")), None)
        if old is None:
            raise SystemExit(f"{PAGE} has no row for {title!r}: add one")
        of = [dict(c) for c in row.values()]  # type: ignore[call-overload]
        shown = [f"{c['power']:.2f}" for c in of]
        shown += [f"{mean(c[key] for c in of):.3f}" for key in ("power", "fdr")]
        new = " | ".join([f"| {title}", *shown, f"{max(c['seconds'] for c in of):.2g} |"])
        text = text.replace(old, new)
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="contenders whose title contains this")
    parser.add_argument("--draws", type=int, default=25)
    parser.add_argument("--sets", type=int, default=1, help="test sets per draw")
    parser.add_argument("--datasets", default=",".join(REGISTRY))
    parser.add_argument("--json", type=Path, help="write the cells here")
    parser.add_argument("--page", action="store_true", help="fill the table of results/proven.md")
    arguments = parser.parse_args()
    datasets = arguments.datasets.split(",")
    if arguments.page and datasets != list(REGISTRY):
        parser.error("--page needs all data sets")
    cells = measure(arguments.only, arguments.draws, arguments.sets, datasets)
    if arguments.page:
        fill_page(cells)
    if arguments.json:
        arguments.json.write_text(json.dumps(cells, indent=1) + "\n")


if __name__ == "__main__":
    main()
