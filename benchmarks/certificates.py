"""The numbers of docs/guarantees.md: how sharp the certificates are, and what they take.

    python benchmarks/certificates.py                  # everything, about a minute of work
    python benchmarks/certificates.py coverage fdp     # some parts
    python benchmarks/certificates.py --quick          # fewer sizes and batches, for a look

``coverage`` and ``tables`` are about calibration-conditional p-values, ``fdp`` about the bound on
the false discovery proportion, ``times`` about what its simulation takes. Prints Markdown, as it
stands in the document.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
from exact_coverage import coverage, passed
from scipy import optimize, special

from reconform.statistics import bounds as fdp_bounds
from reconform.statistics.bounds import false_discovery_table, fdp_bound, null_envelope
from reconform.statistics.thresholds import conditional_table, rank_grid

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

CONDITIONAL = ("simes", "montecarlo")


def line(cells: Sequence[object]) -> str:
    """One row of a Markdown table; empty cells stay narrow."""
    return "|" + "|".join(f" {cell} " if cell != "" else " " for cell in cells) + "|"


def head(cells: Sequence[object]) -> str:
    return line(cells) + "\n|" + "---|" * len(cells)


# --- calibration-conditional p-values ------------------------------------------------------------


def print_coverage(quick: bool) -> None:
    """How many calibration sets have an inflated level, exactly; bold where too many."""
    print(head(["n", "nominal", *CONDITIONAL]))
    for n in (100, 1_000) if quick else (100, 1_000, 3_000):
        cells = [f"{n:,}", "0.10 / 0.01"]
        for kind in CONDITIONAL:
            shown = []
            for confidence, digits in ((0.9, 3), (0.99, 4)):
                miss = 1 - coverage(conditional_table(n, kind, confidence)[1:-1])
                mark = "**" if miss > 1 - confidence + 1e-9 else ""
                shown.append(f"{mark}{miss:.{digits}f}{mark}")
            cells.append(" / ".join(shown))
        print(line(cells))


def print_tables(quick: bool) -> None:
    """What conditional p-values cost, rank by rank; and what comparing fewer ranks costs."""
    n, ranks = 1_000, [1, 2, 5, 10, 20, 50, 100, 200, 400]
    print(head(["rank", *ranks]))
    for kind in CONDITIONAL:
        worth = n * conditional_table(n, kind, 0.9)[ranks]
        print(line([kind, *(f"{value:.1f}" for value in worth)]))
    print("\nMargins b_r - r/n of montecarlo with the grid of ranks, against comparing all ranks:")
    for n in (1_000,) if quick else (1_000, 3_000, 10_000):
        print(f"n = {n:,}: {len(rank_grid(n))} ranks, {margin_of_the_grid(n) - 1:.1%} wider")


def margin_of_the_grid(n: int) -> float:
    """The mean ratio of margins in the lower half, both bands of coverage 0.9 exactly."""
    every = np.arange(1, n // 2 + 1)
    margins = []
    for ranks in (every, rank_grid(n)):
        critical = optimize.brentq(
            lambda c, r=ranks: coverage(band(n, r, c)) - 0.9, 2, 6, xtol=1e-3
        )
        margins.append(band(n, ranks, critical)[every - 1] - every / n)
    return float((margins[1] / margins[0]).mean())


def band(n: int, ranks: IntArray, critical: float) -> FloatArray:
    """The u with n KL((r - 1/2)/n, u) = c at some ranks; ranks between take the next one's."""
    share = (ranks - 0.5) / n
    low, high = share, np.ones(len(ranks))
    for _ in range(60):
        middle = (low + high) / 2
        far = special.rel_entr(share, middle) + special.rel_entr(1 - share, 1 - middle)
        low, high = np.where(n * far > critical, [low, middle], [middle, high])
    bounds = np.ones(n)
    bounds[: ranks[-1]] = high[np.searchsorted(ranks, np.arange(1, ranks[-1] + 1))]
    return bounds


# --- the bound on the false discovery proportion -------------------------------------------------


def print_fdp(quick: bool) -> None:
    """The bound against the truth, in simulated batches."""
    levels = [0.002, 0.005, 0.01, 0.02, 0.05]
    cases = [(1_000, 1_000, 950), (1_000, 1_000, 900), (1_000, 1_000, 500), (5_000, 1_000, 950)]
    if not quick:
        cases.append((10_000, 10_000, 9_900))
    print(head(["n", "m", "m0", "", f"p ≤ {levels[0]}", *levels[1:], "bound on m0"]))
    for n, m, nulls in cases:
        shares, most = fdp_means(n, m, nulls, levels, batches=20 if quick else 200)
        first = [f"{n:,}", f"{m:,}", f"{nulls:,}"]
        for name, share in shares.items():
            bound = f"{most[name]:,.0f}" if name in most else ""
            print(line([*first, name, *(f"{value:.2f}" for value in share), bound]))
            first = ["", "", ""]
    print_sharpness()


def fdp_means(
    n: int, m: int, nulls: int, levels: list[float], batches: int
) -> tuple[dict[str, FloatArray], dict[str, float]]:
    """Means of the true proportion and of the bound, and of the bound on m0."""
    rng = np.random.default_rng(np.random.SeedSequence([n, m, nulls]))
    shares = {name: np.zeros(len(levels)) for name in ("true FDP", "bound")}
    most = {"bound": 0.0}
    for _ in range(batches):
        scores = rng.normal(size=n + m)
        scores[n + nulls :] -= 4
        ranks = ranks_of(scores, n)
        counts = np.bincount(ranks, minlength=n + 2)
        flagged = ranks / (n + 1) <= np.array(levels)[:, np.newaxis]
        false = flagged[:, :nulls].sum(axis=1)
        shares["true FDP"] += false / np.maximum(flagged.sum(axis=1), 1) / batches
        shares["bound"] += fdp_bound(ranks, n, levels, 0.95) / batches
        most["bound"] += false_discovery_table(counts, 0.95)[-1] / batches
    return shares, most


def ranks_of(scores: FloatArray, n: int) -> IntArray:
    """Ranks of the later scores among the first n."""
    return np.asarray(1 + np.searchsorted(np.sort(scores[:n]), scores[n:], side="right"))


def print_sharpness() -> None:
    """The exact probability that the curve is passed."""
    n = 1_000
    print(f"\nExact probability that the curve is passed at n = s = {n:,}, nominal 0.05: ", end="")
    print(f"{passed(null_envelope(n, n), n, n):.3f}")


# --- times ---------------------------------------------------------------------------------------


def print_times(quick: bool) -> None:
    """Seconds of processor time for a first bound, and for a second one of the same sizes."""
    print(head(["n = m", "anomalies", "first bound, s", "the next, s"]))
    cases = [(1_000, 0.05), (100_000, 0.05), (1_000_000, 0.05), (100_000, 0.5)]
    for n, share in cases[:1] if quick else cases:
        rng = np.random.default_rng(n)
        anomalies = int(share * n)
        scores = rng.normal(size=2 * n)
        scores[2 * n - anomalies :] -= 6
        job = partial(fdp_bound, ranks_of(scores, n), n, 0.01)
        fdp_bounds._montecarlo.cache_clear()
        seconds = [processor_seconds(job) for _ in range(2)]
        print(line([f"{n:,}", f"{share:.0%}", *(f"{s:.2g}" for s in seconds)]))


def processor_seconds(job: Callable[[], object]) -> float:
    """What one core takes; a busy machine makes it no longer."""
    start = time.process_time()
    job()
    return time.process_time() - start


PARTS: dict[str, Callable[[bool], None]] = {
    "coverage": print_coverage,
    "tables": print_tables,
    "fdp": print_fdp,
    "times": print_times,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    choices = [*PARTS, "all"]
    parser.add_argument("parts", nargs="*", default=["all"], metavar="part", help=str(choices))
    parser.add_argument("--quick", action="store_true", help="fewer sizes and batches")
    arguments = parser.parse_args()
    for part in arguments.parts:
        if part not in choices:
            parser.error(f"part must be one of {', '.join(choices)}; got {part!r}")
    chosen = PARTS if "all" in arguments.parts else arguments.parts
    for part in chosen:
        print(f"\n## {part}\n")
        PARTS[part](arguments.quick)


if __name__ == "__main__":
    main()
