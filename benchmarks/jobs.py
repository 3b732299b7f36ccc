"""The jobs of the benchmark: what is asked for, and against whom."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import THREADS, Contender, Job, Timed

FILES = {
    "thyroid": "38_thyroid.npz",
    "breast": "4_breastw.npz",
    "mammography": "23_mammography.npz",
}


def halves(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Half the inliers as reference; the rest and the outliers, at most 1,000, as test rows."""
    folder = os.environ.get("RECONFORM_DATA")
    if not folder:
        raise SystemExit("set RECONFORM_DATA to the folder with the paper's data sets")
    with np.load(Path(folder) / FILES[name]) as data:
        X, y = data["X"].astype(np.float64), data["y"]
    rng = np.random.default_rng(0)
    normal = rng.permutation(X[y == 0])
    n = len(normal) // 2
    test = rng.permutation(np.vstack([normal[n:], X[y == 1]]))[:1000]
    return normal[:n], test


def gaussian(n: int, m: int, d: int = 10) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, d)), rng.normal(size=(m, d))


# --- contenders ------------------------------------------------------------


def reconform(data: Any, detector: Any, method: Any, pooled: bool = False) -> np.ndarray:
    from reconform import ConformalDetector

    cad = ConformalDetector(detector, method, random_state=0, n_jobs=THREADS).fit(data[0])
    if pooled:  # the same models, the comparison that nonconform makes
        ranks = cad.rank(data[1], variant="pooled").at_most
        return np.asarray(ranks / (cad.n_calibration_ + 1))
    return cad.p_values(data[1])


def refit_pyod(data: Any, module: str, name: str, method: str) -> np.ndarray:
    """Our own refit ensemble with the PyOD detector: the slow way."""
    from reconform.detectors import adapt
    from reconform.methods import resolve_method
    from reconform.randomness import Streams

    plan = resolve_method(method).plan(len(data[0]), random_state=0)
    seeds = Streams(np.random.SeedSequence(0), plan.n_models + 1)
    ensemble = adapt(pyod(module, name)).fit_plan(data[0], plan, seeds, n_jobs=THREADS)
    return np.asarray(ensemble.ranks(data[1]).at_most / (len(ensemble.calibration) + 1))


def pyod(module: str, name: str) -> Any:
    import importlib

    return getattr(importlib.import_module(f"pyod.models.{module}"), name)()


def nonconform(data: Any, module: str, name: str, method: str) -> np.ndarray:
    import logging

    from nonconform import ConformalDetector, CrossValidation, JackknifeBootstrap

    logging.getLogger("nonconform").setLevel(logging.ERROR)
    detector = pyod(module, name)
    if "n_jobs" in detector.get_params():
        detector.set_params(n_jobs=THREADS)
    if method == "jab+":
        strategy = JackknifeBootstrap(n_bootstraps=100, aggregation_method="median")
        keywords = {"n_jobs": THREADS}
    else:
        strategy, keywords = CrossValidation.jackknife(mode="plus"), {}
    cad = ConformalDetector(detector, strategy=strategy, aggregation="median", seed=0)
    cad.fit(data[0], **keywords)
    return np.asarray(cad.compute_p_values(data[1]))


def neighbours(data: Any) -> None:
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=6, n_jobs=THREADS).fit(data[0])
    search.kneighbors(data[0])
    search.kneighbors(data[1])


def sklearn_forest(data: Any) -> np.ndarray:
    from sklearn.ensemble import IsolationForest

    return np.asarray(
        IsolationForest(random_state=0, n_jobs=THREADS).fit(data[0]).score_samples(data[0])
    )


def native_forest(data: Any) -> np.ndarray:
    from reconform.detectors import IForest

    return IForest(random_state=0, n_jobs=THREADS).fit(data[0]).score_samples(data[0])


def separate_forests(data: Any) -> np.ndarray:
    """The native forest, fitted and walked n + 1 times."""
    from reconform.detectors import IForest

    X, new = data
    n = len(X)
    ranks = np.ones(len(new), dtype=np.int64)
    for i in range(n):
        train = np.delete(X, i, axis=0)
        forest = IForest(random_state=i, n_jobs=THREADS)
        forest.fit(train)
        scores = forest.score_samples(np.vstack([X[i], new]))
        ranks += scores[0] <= scores[1:]
    IForest(random_state=n, n_jobs=THREADS).fit(X).score_samples(new)
    return ranks / (n + 1)


# --- do the answers agree? ------------------------------------------------------------


def correlation(peer: np.ndarray, ours: np.ndarray) -> str:
    from scipy.stats import spearmanr

    return f"rank correlation {spearmanr(peer, ours).statistic:.3f}"


def identical(peer: np.ndarray, ours: np.ndarray) -> str:
    different = int((np.abs(peer - ours) > 1e-12).sum())
    return "identical" if different == 0 else f"{different} of {len(peer)} p-values differ"


def peers() -> list[Job]:
    """The table of the issue: time is taken with plus, agreement is checked pooled on pooled."""
    asked = [
        ("iforest", "IForest", "jab+", "thyroid", 30),
        ("iforest", "IForest", "jackknife+", "breast", 150),
        ("inne", "INNE", "jab+", "thyroid", 80),
        ("inne", "INNE", "jackknife+", "breast", 200),
        ("knn", "KNN", "jackknife+", "breast", 30),
        ("knn", "KNN", "jab+", "thyroid", 15),
    ]
    jobs = []
    for module, name, method, dataset, ratio in asked:
        data = partial(halves, dataset)
        ours = Contender("reconform", data, partial(reconform, detector=module, method=method), 7)
        theirs = Contender(
            "nonconform 2.0.0",
            data,
            partial(nonconform, module=module, name=name, method=method),
            repeats=3,
        )
        pooled = partial(reconform, detector=module, method=method, pooled=True)
        check = identical if (module, method) == ("knn", "jackknife+") else correlation
        jobs.append(
            Job(
                "peers",
                f"{module}, {method}, {dataset}, against nonconform",
                theirs,
                ours,
                at_least=ratio,
                agree=lambda peer, _, data=data, pooled=pooled, check=check: (
                    "pooled: " + check(peer, pooled(data()))
                ),
            )
        )
        slow = Contender(
            "refit PyOD", data, partial(refit_pyod, module=module, name=name, method=method), 1
        )
        jobs.append(
            Job(
                "peers",
                f"{module}, {method}, {dataset}, against our refit of PyOD's",
                slow,
                ours,
                agree=identical if (module, method) == ("knn", "jackknife+") else correlation,
            )
        )
    return jobs


def scale() -> list[Job]:
    large = partial(gaussian, 100_000, 10_000)
    million = partial(gaussian, 1_000_000, 1_000)
    hundred = partial(gaussian, 100_000, 1_000)
    middle = partial(gaussian, 5_000, 1_000)
    plus = partial(reconform, method="jackknife+")
    forest = partial(plus, detector="iforest")
    return [
        Job(
            "scale",
            "knn, jackknife+, n=100,000, m=10,000, against one search",
            Contender("scikit-learn NearestNeighbors", large, neighbours, 3),
            Contender("reconform", large, partial(plus, detector="knn"), 3),
            at_most=3,
            most_gigabytes=2,
        ),
        Job(
            "scale",
            "iforest, jackknife+, n=5,000, m=1,000, against n+1 fits",
            Contender("separate native fits", middle, separate_forests, 1, warm_up=False),
            Contender("reconform", middle, forest, 5),
            at_least=8,
            most_gigabytes=2,
            agree=correlation,
        ),
        Job(
            "scale",
            "iforest, jackknife+, n=1,000,000 less scoring it, against n=100,000",
            Contender("n=100,000", hundred, partial(without_scoring, forest), 9),
            Contender("n=1,000,000", million, partial(without_scoring, forest), 9),
            at_most=1.5,
            most_gigabytes=4,
        ),
    ]


def without_scoring(work: Any, data: Any) -> Timed:
    """Do the work, but give back the time of scoring the reference once."""
    from reconform.detectors import IForest

    start = time.perf_counter()
    answer = work(data)
    whole = time.perf_counter() - start
    forest = IForest(random_state=0, n_jobs=THREADS).fit(data[0][:1000])
    start = time.perf_counter()
    forest.score_samples(data[0])
    return Timed(whole - (time.perf_counter() - start), answer)


def single() -> list[Job]:
    return [
        Job(
            "single",
            f"one isolation forest, fit and score, n={n:,}",
            Contender("scikit-learn", partial(gaussian, n, 1), sklearn_forest, 5),
            Contender("reconform", partial(gaussian, n, 1), native_forest, 5),
            at_least=ratio,
            agree=correlation,
        )
        for n, ratio in ((2_000, 5), (200_000, 1))
    ]


# --- full-conformal -----------------------------------------------------------

SEEDS = range(20)


def over_seeds(data: Any, detector: str, seeds: range = SEEDS) -> Timed:
    """Mean time of full-conformal ranks over fixed seeds: how many trees drew x is chance."""
    from reconform import ConformalDetector

    start = time.perf_counter()
    for seed in seeds:
        cad = ConformalDetector(detector, "full", random_state=seed, n_jobs=THREADS).fit(data[0])
        p_values = cad.p_values(data[1])
    return Timed((time.perf_counter() - start) / len(seeds), p_values)


def distances_and_table(data: Any) -> None:
    """One distance matrix of the test rows, and the leave-one-out table of the reference."""
    from scipy.spatial.distance import cdist

    from reconform.detectors.knn.search import make_search

    cdist(data[1], data[0])
    rows = np.arange(len(data[0]))
    make_search(data[0]).nearest(data[0], 5, own=rows, n_jobs=THREADS)


def fits_with_each(data: Any) -> np.ndarray:
    """The native forest, fitted on D and x and walked by all n + 1 rows, for every x."""
    from joblib import Parallel, delayed

    from reconform.detectors import IForest

    def rank(x: np.ndarray) -> float:
        together = np.vstack([data[0], x])
        forest = IForest(random_state=0)
        forest.fit(together)
        scores = forest.score_samples(together)
        return float((1 + (scores[:-1] <= scores[-1]).sum()) / len(together))

    ranks = Parallel(n_jobs=THREADS, prefer="threads")(delayed(rank)(x) for x in data[1])
    return np.array(ranks)


def one_fit_one_scoring(data: Any) -> None:
    from reconform.detectors import IForest

    rows = np.vstack(data)
    forest = IForest(random_state=0, n_jobs=THREADS)
    forest._fit_rows(data[0], np.random.SeedSequence(0))
    forest._score_rows(rows)


def full() -> list[Job]:
    data = partial(halves, "mammography")
    million = partial(gaussian, 1_000_000, 1_000)
    return [
        Job(
            "full",
            "knn, full, mammography (n=5,461, m=1,000), against cdist + table",
            Contender("cdist and leave-one-out table", data, distances_and_table, 5),
            Contender("reconform", data, partial(reconform, detector="knn", method="full"), 5),
            at_most=4,
        ),
        Job(
            "full",
            "iforest, full, mammography, against m fits and walks",
            Contender("m native fits", data, fits_with_each, 1, warm_up=False),
            Contender("reconform, mean of 20 seeds", data, partial(over_seeds, detector="iforest")),
            at_least=12,
            agree=correlation,
        ),
        Job(
            "full",
            "iforest, full, n=1,000,000, m=1,000, against one fit and scoring",
            Contender("one native fit, one scoring of n+m", million, one_fit_one_scoring, 5),
            Contender(
                "reconform, mean of 20 seeds", million, partial(over_seeds, detector="iforest"), 1
            ),
            at_most=2,
        ),
    ]


# --- certified lists ---------------------------------------------------------------


def with_anomalies(n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal rows with ten features, and new rows of which a tenth lie far outside."""
    X, new = gaussian(n, m)
    new[-(m // 10) :] *= 4
    return X, new


def certified_list(data: Any, method: str) -> np.ndarray:
    from reconform import ConformalDetector

    cad = ConformalDetector("knn", method, random_state=0, n_jobs=THREADS).fit(data[0])
    return cad.discover(data[1], fdr=0.1, validity="proven").mask


def flagged(_: np.ndarray, ours: np.ndarray) -> str:
    return f"{int(ours.sum())} flagged"


def certified() -> list[Job]:
    """Certification against the p-values alone, fits included on both sides."""
    asked = [("full", 2_000, 600, 5.0, 2.0), ("jackknife+", 2_000, 600, 5.0, 2.0)]
    asked += [("full", 10_000, 1_000, None, 60.0), ("jackknife+", 10_000, 1_000, None, 60.0)]
    return [
        Job(
            "certified",
            f"knn, {method}, certified list, n={n:,}, m={m:,}, against p-values",
            Contender(
                "reconform, p-values",
                partial(with_anomalies, n, m),
                partial(reconform, detector="knn", method=method),
            ),
            Contender(
                "reconform, certified",
                partial(with_anomalies, n, m),
                partial(certified_list, method=method),
            ),
            at_most=ratio,
            or_seconds=seconds,
            most_gigabytes=2,
            agree=flagged,
        )
        for method, n, m, ratio, seconds in asked
    ]


def every() -> list[Job]:
    return [*peers(), *scale(), *single(), *full(), *certified()]
