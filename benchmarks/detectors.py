"""Our detectors against their own refits: one table, measured in one run.

    python benchmarks/detectors.py                          # all rows, n = 5,000, m = 1,000, d = 10
    python benchmarks/detectors.py kde mahalanobis          # some rows
    python benchmarks/detectors.py knn --n 100000 --d 5 --refits 0

Fit and p-values with two threads. Every row runs in a process of its own: once to warm up, then
three times, of which the median and the spread are reported, with the processor seconds of the
median run and the peak memory of the process. After that a few refits are timed by the general
road, one model per new row (full) or per reference row (jackknife+), and multiplied: the ratio is
an estimate, and `refits` says of how many. For full their ranks are compared with ours.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness import THREADS, Contender, measure

METHODS = ("jackknife+", "full")
COLUMNS = ("seconds", "asked", "processor", "peak", "refits", "ratio", "ranks")


@dataclass(frozen=True)
class Row:
    """A detector of the table: its class in `reconform.detectors`, its parameters, what is asked.

    Attributes
    ----------
    kind : str
    parameters : mapping
    asked : mapping of str to float
        Seconds for n = 5,000, m = 1,000, d = 10, by method.
    methods : tuple of str
    together : bool
        New rows are ranked as one batch, for a list. What stands for a refit is the definition of
        contrast for one new row: the neighbours of all rows, looked up with that row there.
    """

    kind: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    asked: Mapping[str, float] = field(default_factory=dict)
    methods: tuple[str, ...] = METHODS
    together: bool = False


ROWS = {
    "knn": Row("KNN"),
    "knn mean": Row("KNN", {"method": "mean"}),
    "knn squared mean": Row("KNN", {"method": "mean", "metric": "sqeuclidean"}),
    "knn robust": Row("KNN", {"scale": "robust"}),
    "inne": Row("INNE"),
    "inne robust": Row("INNE", {"scale": "robust"}),
    "iforest": Row("IForest"),
    "lof": Row("LOF", asked={"full": 10.0}, methods=("full",)),
    "lof robust": Row("LOF", {"scale": "robust"}, asked={"full": 10.0}, methods=("full",)),
    "contrast": Row("Contrast", asked={"full": 2.0}, methods=("full",), together=True),
    "contrast robust": Row(
        "Contrast", {"scale": "robust"}, {"full": 2.0}, methods=("full",), together=True
    ),
    "mahalanobis": Row("Mahalanobis", asked={"full": 0.5}, methods=("full",)),
    "mahalanobis robust": Row("Mahalanobis", {"scale": "robust"}, {"full": 0.5}, methods=("full",)),
    "kde": Row("KDE", asked={"full": 2.0}, methods=("full",)),
    "kde fixed": Row("KDE", {"bandwidth": 0.5}, {"full": 2.0}, methods=("full",)),
    "kde robust": Row("KDE", {"scale": "robust"}, {"full": 2.0}, methods=("full",)),
}


@dataclass(frozen=True)
class Sizes:
    """How many rows and columns, and how many refits are timed."""

    n: int
    m: int
    d: int
    refits: int


@dataclass(frozen=True)
class Run:
    """The row of a table in a process of its own; `harness.measure` takes it there."""

    row: Row
    method: str
    sizes: Sizes

    def prepare(self) -> tuple[Any, Any]:
        """Make normal rows."""
        import numpy as np

        rng = np.random.default_rng(0)
        d = self.sizes.d
        return rng.normal(size=(self.sizes.n, d)), rng.normal(size=(self.sizes.m, d))

    def work(self, data: tuple[Any, Any]) -> dict[str, Any]:
        """Run ours three times, after a warm-up, and a few refits."""
        X, new = data
        detector = self._detector()
        self._fit(detector, X[:200], new[:20])
        ranks = self._fit(detector, X, new)
        seconds, processor = [], []
        for _ in range(3):
            wall, cpu = time.perf_counter(), time.process_time()
            ranks = self._fit(detector, X, new)
            seconds.append(time.perf_counter() - wall)
            processor.append(time.process_time() - cpu)
        middle = seconds.index(statistics.median(seconds))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        answer = {"seconds": seconds, "processor": processor[middle], "gigabytes": peak}
        if self.sizes.refits:
            refits = self._full_refits if self.method == "full" else self._plus_refits
            refits = self._batch_refits if self.row.together else refits
            answer |= refits(detector, X, new, ranks)
        return answer

    def _detector(self) -> Any:
        from reconform import detectors

        return getattr(detectors, self.row.kind)(**self.row.parameters)

    def _fit(self, detector: Any, X: Any, new: Any) -> Any:
        from reconform import ConformalDetector

        cad = ConformalDetector(detector, self.method, random_state=0, n_jobs=THREADS).fit(X)
        cad.rank(new, together=self.row.together)
        return cad

    def _full_refits(self, detector: Any, X: Any, new: Any, cad: Any) -> dict[str, Any]:
        """One fit per new row; the seed is that of ours, so that ranks are the same."""
        import numpy as np

        from reconform.ensemble.refitting import FullRefit
        from reconform.randomness import Streams, root_seed

        some = new[: self.sizes.refits]
        seed = Streams(root_seed(0).spawn(3)[1], cad.plan_.n_models + 1)[-1]
        slow = FullRefit(_algorithm(detector), X, seed, cad.calibration_, THREADS)
        slow.ranks(some[:1])
        started = time.perf_counter()
        expected = slow.ranks(some).at_most
        each = (time.perf_counter() - started) / len(some)
        same = bool(np.array_equal(expected, cad.ranks(some)))
        return {"estimate": each * len(new), "same": same}

    def _batch_refits(self, detector: Any, X: Any, new: Any, cad: Any) -> dict[str, Any]:
        """Contrast by its definition, one new row at a time; it has one k, and no clusters."""
        import numpy as np

        units = detector._units()
        started, expected = time.perf_counter(), []
        for j in range(self.sizes.refits):
            every, others = np.vstack([X, new[j]]), np.delete(new, j, axis=0)
            if units is not None:
                exponents = units.of(every)
                every, others = (units.measure(rows, exponents) for rows in (every, others))
            scores = _contrast(every, others, detector.n_neighbors)
            expected.append(int((scores <= scores[-1]).sum()))
        each = (time.perf_counter() - started) / self.sizes.refits
        got = cad.rank(new, together=True)
        same = got.at_most[: self.sizes.refits].tolist() == expected and not got.clustered.any()
        return {"estimate": each * len(new), "same": same}

    def _plus_refits(self, detector: Any, X: Any, new: Any, cad: Any) -> dict[str, Any]:
        """One fit per reference row, and the scores of all new rows by it."""
        import numpy as np

        from reconform.ensemble.refitting import refit

        some = np.linspace(0, len(X) - 1, self.sizes.refits).astype(np.intp)
        plan = cad.plan_.part(some)
        seeds = np.random.SeedSequence(0).spawn(len(some) + 1)
        algorithm = _algorithm(detector)
        algorithm.fit_model(X, seeds[0]).score_samples(new)
        started = time.perf_counter()
        refit(algorithm, X, plan, seeds, n_jobs=THREADS).scores(new)
        # One of the fits is that of A(D).
        each = (time.perf_counter() - started) / (len(some) + 1)
        return {"estimate": each * len(X)}


def _contrast(every: Any, others: Any, k: int) -> Any:
    """Contrast of the reference rows and a new one with the other new rows."""
    import numpy as np

    from reconform.detectors.knn.search import make_search, nearest_of_own

    search, new = (make_search(rows, metric="sqeuclidean") for rows in (every, others))
    squares = nearest_of_own(search, k, n_jobs=THREADS)[0][:, -1]
    return np.sqrt(new.nearest(every, k, n_jobs=THREADS)[0][:, -1]) / squares


def _algorithm(detector: Any) -> Any:
    """The general road: a fit per model, in the units of its rows where the detector scales."""
    from reconform.detectors.scaled import ScaledAlgorithm

    return detector if detector._units() is None else ScaledAlgorithm(detector)


def measure_row(name: str, method: str, sizes: Sizes) -> dict[str, Any]:
    """Measure one row in a process of its own."""
    run = Run(ROWS[name], method, sizes)
    contender = Contender(name, run.prepare, run.work, repeats=1, warm_up=False)
    answer: dict[str, Any] = measure(contender)[0].answer
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"rows of the table: {', '.join(ROWS)}")
    parser.add_argument("--method", action="append", choices=METHODS)
    parser.add_argument("--n", type=int, default=5_000, help="reference rows")
    parser.add_argument("--m", type=int, default=1_000, help="new rows")
    parser.add_argument("--d", type=int, default=10, help="columns")
    parser.add_argument("--refits", type=int, default=8, help="refits to time; 0 for none")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(ROWS)
    if unknown:
        parser.error(f"no row is called {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    sizes = Sizes(arguments.n, arguments.m, arguments.d, arguments.refits)
    usual = (sizes.n, sizes.m, sizes.d) == (5_000, 1_000, 10)
    print(
        f"n = {sizes.n:,}, m = {sizes.m:,}, d = {sizes.d}, {THREADS} threads, fit and p-values; "
        f"refits: {sizes.refits} timed and multiplied"
    )
    print(line("detector", "method", *COLUMNS), line(*["---"] * (len(COLUMNS) + 2)), sep="\n")
    for name in arguments.names or ROWS:
        for method in arguments.method or METHODS:
            if method not in ROWS[name].methods:
                continue
            asked = ROWS[name].asked.get(method) if usual else None
            cells = cells_of(measure_row(name, method, sizes), asked)
            print(line(name, method, *cells), flush=True)


def cells_of(got: Mapping[str, Any], asked: float | None) -> list[str]:
    """What a measurement says, column by column."""
    seconds, slow = got["seconds"], got.get("estimate")
    middle = statistics.median(seconds)
    late = "" if asked is None or middle < asked else " MISSED"
    return [
        f"{middle:.3f} ({min(seconds):.3f} to {max(seconds):.3f})",
        "" if asked is None else f"< {asked:g}{late}",
        f"{got['processor']:.3f}",
        f"{got['gigabytes']:.2f} GB",
        "" if slow is None else f"{slow:,.0f} s",
        "" if slow is None else f"{slow / middle:,.0f}x",
        {None: "", True: "equal", False: "DIFFERENT"}[got.get("same")],
    ]


def line(*cells: str) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
