"""How often the checks of the assumption speak up, what `clean` wins back, what the checks cost.

    python benchmarks/assumptions.py rates                    # the table of docs/assumptions.md
    python benchmarks/assumptions.py rates wbc musk --draws 50 --clean 100
    python benchmarks/assumptions.py rates musk --only dirt   # some of its cells
    python benchmarks/assumptions.py clean                    # power after `clean`, over before
    python benchmarks/assumptions.py cost                     # seconds of the checks, by detector
    python benchmarks/assumptions.py copies --draws 1500      # of references of over 2,000 rows

Draws are those of the paper's protocol (half of the normal rows are the reference, batches of
min(1000, n / 3) rows) with other anomaly rates, level 0.1. Every number is a share of draws; a
batch has 10 % anomalies where nothing else is said. Where a data set has too few anomalies, batch
and reference get fewer. One process; OMP_NUM_THREADS=1 keeps it to one core.

rates   kNN with full. The verdict on clean batches; on shifted ones, in all columns or in one; with
        an id left in; and whether dirt is noticed (the verdict, or a note about unusual reference
        rows) in the draws in which it costs half of a list of three rows or more
clean   a reference with dirt; a person looks at the rows that `reconform clean` shows (20, or the
        budget of 5 %) and marks those that are anomalies; then at the next ones, without these,
        three times in all or until no further one is shown; the marked ones leave. Mean power of
        the default detector with the cleaned reference over that with the clean one, which has
        normal rows in place of the dirt
cost    CPU seconds of the verdict over those of fit and discover, at n = 1500, m = 500, d = 20
copies  how often copies are said to be among 300 new rows, of which none, 5 or 30 % are: looked up
        in all reference rows, and in the sample of them alone. In data sets of over 2,300 normal
        rows, and in three columns of these with two digits, where copies are common
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import mean

import numpy as np
from papers import REGISTRY, load

from reconform import ConformalDetector, review
from reconform.assumption.closeness import copy_findings
from reconform.assumption.sample import LookedUp, reference_positions
from reconform.cleaning import to_look_at
from reconform.content import Contents
from reconform.study import Dataset
from reconform.study.protocol import name_key

# Another one than that of the draws by which the limits of the notes were chosen (15).
SEED = 16
ANOMALIES = (0.0, 0.05, 0.1, 0.2)
# Where nothing else is said.
DEFAULT = 0.1
SHIFTS = (0.25, 0.5, 0.7)
DIRT = (0.005, 0.01, 0.02, 0.05)
IDS = ("id that goes on", "shuffled id")
CELLS = ("clean", "shift", "id", "dirt")
# New rows of `copies`, and how many normal rows a data set must have, and of how many use is made.
NEW_ROWS, LEAST_NORMAL, MOST_NORMAL = 300, 2_400, 6_300
DIRTY = ("contamination", "reference extremes")
# Rows of the reference that `reconform clean` shows at least.
SHOWN = 20
# How often a person looks at the next rows.
ROUNDS = 3
# CPU time of a check is the smallest of so many.
REPEATS = 7


@dataclass(frozen=True)
class Draw:
    """Reference and batch, and which rows are anomalies."""

    D: np.ndarray
    T: np.ndarray
    dirt: np.ndarray
    anomalous: np.ndarray


def draw(data: Dataset, j: int, rate: float, dirt: float) -> Draw:
    """Reference and batch; dirt takes the place of normal reference rows."""
    rng = np.random.default_rng(np.random.SeedSequence(SEED, spawn_key=(name_key(data.name), j)))
    normal, outliers = rng.permutation(data.normal), rng.permutation(data.outliers)
    n, m = sizes(data)
    bad = min(round(dirt * n), len(outliers) // 2)
    some = min(round(rate * m), len(outliers) - bad)
    reference = np.concatenate([normal[: n - bad], outliers[len(outliers) - bad :]])
    new = np.concatenate([normal[n : n + m - some], outliers[:some]])
    first, second = rng.permutation(n), rng.permutation(m)
    return Draw(data.X[reference[first]], data.X[new[second]], first >= n - bad, second >= m - some)


def sizes(data: Dataset) -> tuple[int, int]:
    """Reference rows and new rows."""
    n = len(data.normal) // 2
    return n, min(1000, n // 3)


def situation(data: Dataset, what: str, size: float, j: int) -> Draw:
    """Draw number j of something that happened."""
    drawn = draw(data, j, size if what == "clean" else DEFAULT, size if what == "dirt" else 0.0)
    D, T = drawn.D, drawn.T
    rng = np.random.default_rng(j)
    spread = D.std(axis=0)
    if what == "all":
        T = T + size * spread
    elif what == "one":
        column = rng.choice(np.flatnonzero(spread > 0))
        T[:, column] += size * spread[column]
    elif what in IDS:
        ids = np.arange(float(len(D) + len(T)))
        ids = rng.permutation(ids) if what == "shuffled id" else ids
        D, T = np.column_stack([D, ids[: len(D)]]), np.column_stack([T, ids[len(D) :]])
    return Draw(D, T, drawn.dirt, drawn.anomalous)


# --- rates ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What one run said."""

    word: str
    dirty: bool
    flagged: int

    @property
    def noticed(self) -> bool:
        """Whether dirt would be looked for."""
        return self.dirty or self.word != "holds"


def judge(drawn: Draw) -> Outcome:
    """Fit, discover, check."""
    found = ConformalDetector("knn", "full", n_jobs=1).fit(drawn.D).discover(drawn.T, fdr=0.1)
    dirty = any(finding.check in DIRTY for finding in found.verdict.findings)
    return Outcome(found.verdict.word, dirty, found.count)


def outcomes(data: Dataset, what: str, size: float, count: int) -> list[Outcome]:
    """What is said of so many draws, and a line about it."""
    some = [judge(situation(data, what, size, j)) for j in range(count)]
    broken, dirty = mean(o.word == "broken" for o in some), mean(o.dirty for o in some)
    said = f"{what} {size:g}: broken {broken:.3f}, doubtful or broken {doubted(some)}"
    print(f"{data.name}, {said}, dirt {dirty:.3f} ({count:,})", file=sys.stderr, flush=True)
    return some


def doubted(some: list[Outcome]) -> str:
    """The share of draws that are not said to hold."""
    return f"{mean(o.word != 'holds' for o in some):.3f}"


def dirt_cells(data: Dataset, draws: int, known: list[Outcome]) -> str:
    """How often dirt is noticed where it does harm: half of the list of the clean reference."""
    cells = []
    for share in DIRT:
        some = outcomes(data, "dirt", share, draws)
        harmed = [
            o.noticed
            for o, before in zip(some, known, strict=False)
            if before.flagged >= 3 and o.flagged <= before.flagged / 2
        ]
        print(f"noticed {sum(harmed)} of {len(harmed)} that it harms", file=sys.stderr, flush=True)
        cells.append(f"{mean(harmed):.2f} ({len(harmed)})" if harmed else "–")
    return " ".join(cells)


def rates(data: Dataset, draws: int, clean: int, only: list[str]) -> str:
    """A row of the table; cells that are not asked for are empty."""

    def shares(what: str, sizes: tuple[float, ...]) -> str:
        return "/".join(doubted(outcomes(data, what, size, draws)) for size in sizes)

    kinds = ANOMALIES if "clean" in only else (DEFAULT,) if "dirt" in only else ()
    known = {rate: outcomes(data, "clean", rate, clean) for rate in kinds}
    n, m = sizes(data)
    cells = [f"{data.name} ({n:,}, {m:,})", *[""] * 7, f"{draws:,} ({clean:,})"]
    if "clean" in only:
        broken = (f"{mean(o.word == 'broken' for o in some):.3f}" for some in known.values())
        cells[1:3] = "/".join(broken), "/".join(doubted(some) for some in known.values())
    if "dirt" in only:
        cells[6] = dirt_cells(data, draws, known[DEFAULT])
    if DEFAULT in known:
        cells[7] = f"{mean(o.dirty for o in known[DEFAULT]):.2f}"
    if "shift" in only:
        cells[3:5] = shares("all", SHIFTS), shares("one", SHIFTS)
    if "id" in only:
        cells[5] = "/".join(doubted(outcomes(data, what, 0.0, draws)) for what in IDS)
    return "| " + " | ".join(cells) + " |"


def tell_rates(names: list[str], draws: int, clean: int, only: list[str]) -> None:
    """Print the table."""
    heads = [
        "data set (n, m)",
        "clean: broken, 0/5/10/20 % anomalies",
        "clean: doubtful or broken",
        "shift of all, 0.25/0.5/0.7 sd",
        "shift of one",
        "id goes on/shuffled",
        "dirt of 0.5, 1, 2, 5 % noticed (draws that it harms)",
        "clean, 10 %: the same note",
        "draws (clean)",
    ]
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|", flush=True)
    for name in names:
        print(rates(load(name), draws, clean, only), flush=True)


# --- what cleaning wins back ---------------------------------------------------------------------


def power(D: np.ndarray, drawn: Draw, detector: str) -> float:
    """The share of the anomalies that are flagged."""
    found = ConformalDetector(detector, "full", random_state=0, n_jobs=1).fit(D).discover(drawn.T)
    return float(found.mask[drawn.anomalous].mean())


def cleaned(drawn: Draw) -> np.ndarray:
    """The reference without the anomalies that somebody sees among the rows that are shown."""
    most = -(-len(drawn.D) // 20)
    marked, seen = np.empty(0, dtype=int), np.zeros(len(drawn.D), dtype=bool)
    for _ in range(ROUNDS):
        stay = np.delete(np.arange(len(drawn.D)), marked)
        cad = ConformalDetector("knn", "jackknife+", n_jobs=1).fit(drawn.D[stay])
        order = stay[to_look_at(review(cad), drawn.D[stay])]
        shown = order[~seen[order]][: max(SHOWN, most)]
        seen[shown] = True
        found = shown[drawn.dirt[shown]][: most - len(marked)]
        if not len(found):
            break
        marked = np.concatenate([marked, found])
    return np.delete(drawn.D, marked, axis=0)


def tell_clean(names: list[str], draws: int, detectors: tuple[str, ...]) -> None:
    """Print mean powers, and their ratio."""
    heads = ["data set", "detector", "dirt", "power: dirty", "cleaned", "clean"]
    print("| " + " | ".join([*heads, "cleaned/clean", "draws"]) + " |\n" + "|---" * 8 + "|")
    for name in names:
        data = load(name)
        for detector in detectors:
            clean = [draw(data, j, 0.1, 0.0).D for j in range(draws)]
            for share in DIRT[-2:]:
                drawn = [draw(data, j, 0.1, share) for j in range(draws)]
                # Against the same new rows: dirt may leave fewer anomalies for them.
                before = [power(D, d, detector) for D, d in zip(clean, drawn, strict=True)]
                dirty = mean(power(d.D, d, detector) for d in drawn)
                after = mean(power(cleaned(d), d, detector) for d in drawn)
                ratio = after / mean(before) if mean(before) else float("nan")
                said = [f"{dirty:.3f}", f"{after:.3f}", f"{mean(before):.3f}", f"{ratio:.3f}"]
                cells = [data.name, detector, f"{share:.0%}", *said, str(draws)]
                print("| " + " | ".join(cells) + " |", flush=True)


# --- what the checks cost ------------------------------------------------------------------------

COSTED = (
    ("auto", "full"),
    ("knn", "full"),
    ("knn", "jackknife+"),
    ("lof", "full"),
    ("kde", "full"),
    ("mahalanobis", "full"),
    ("inne", "full"),
    ("iforest", "full"),
    ("iforest", "jab+"),
    ("contrast", "full"),
)


def seconds(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """CPU time of this process, the smallest of several."""

    def times() -> Iterator[float]:
        for _ in range(repeats):
            start = time.process_time()
            work()
            yield time.process_time() - start

    work()
    return min(times())


def tell_cost() -> None:
    """Print a line per detector."""
    rng = np.random.default_rng(0)
    D, T = rng.normal(size=(1500, 20)), rng.normal(size=(500, 20))
    T[:50] += 3
    print("| detector, method | fit and discover, ms | checks, ms | share |\n|---|---|---|---|")
    for detector, method in COSTED:
        cad = ConformalDetector(detector, method, random_state=0, n_jobs=1)

        def run(cad: ConformalDetector = cad) -> object:
            return cad.fit(D).discover(T)

        whole = seconds(run, 2)
        found = [cad.discover(T) for _ in range(REPEATS + 1)]
        checks = seconds(lambda found=found: found.pop().verdict)
        print(f"| {detector}, {method} | {1e3 * whole:.0f} | {1e3 * checks:.1f} |", end="")
        print(f" {checks / whole:.0%} |", flush=True)


def tell_copies(names: list[str], draws: int) -> None:
    """Print a line per data set and share of copies."""
    print("| data set | have a copy | copies | said, looked up | said, in the sample |")
    print("|---|---|---|---|---|")
    for name in names:
        data = load(name)
        rows = data.X[data.y == 0]
        if len(rows) < LEAST_NORMAL:
            continue
        digits = np.round(rows[:, :3] / rows[:, :3].std(axis=0), 1)
        for title, X in ((name, rows), (f"{name}, rounded", digits)):
            for share in (0.0, 0.05, 0.3):
                said = np.array([copies_said(X, share, j) for j in range(draws)])
                twins, looked_up, sampled = said.mean(axis=0)
                print(f"| {title} | {twins:.2f} | {share:.2f} | {looked_up:.4f} | {sampled:.4f} |")


def copies_said(X: np.ndarray, share: float, j: int) -> tuple[float, bool, bool]:
    """Which share of the reference has a copy, and who speaks of copies among the new rows."""
    rows = np.random.default_rng([SEED, j]).permutation(len(X))[:MOST_NORMAL]
    new, reference = X[rows[:NEW_ROWS]].copy(), X[rows[NEW_ROWS:]]
    new[: round(share * NEW_ROWS)] = reference[: round(share * NEW_ROWS)]
    contents, digests = Contents.of(reference), Contents.of(new).digests.tolist()
    kept = reference_positions(contents)
    known, sample = LookedUp.of(contents, kept), contents.digests[kept].tolist()
    assert known is not None
    said = (copy_findings(sample, digests, looked_up=looked_up) for looked_up in (known, None))
    first, second = (any(finding.check == "copies" for finding in found) for found in said)
    return known.occurrences.twins / max(known.occurrences.rows, 1), first, second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("part", choices=("rates", "clean", "cost", "copies"))
    parser.add_argument("names", nargs="*", default=list(REGISTRY))
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--clean", type=int, help="draws of clean batches; as many by default")
    parser.add_argument("--only", nargs="+", choices=CELLS, default=CELLS, help="for `rates`")
    parser.add_argument("--detector", nargs="+", default=["auto"], help="for `clean`")
    options = parser.parse_args()
    if options.part == "rates":
        tell_rates(options.names, options.draws, options.clean or options.draws, options.only)
    elif options.part == "clean":
        tell_clean(options.names, options.draws, tuple(options.detector))
    elif options.part == "copies":
        tell_copies(options.names, options.draws)
    else:
        tell_cost()


if __name__ == "__main__":
    main()
