"""Keeps the numbers of every public path, and says which of them a change has moved.

    python benchmarks/frozen.py store FILE      # before a change that should move no number
    python benchmarks/frozen.py compare FILE    # after it: exit 1, and the names of what moved

Methods x detectors x rules x sources on small made-up rows, with fixed seeds. Numbers only: texts
may change. Not a test: nothing is pinned for good, and a change that is meant to move numbers
stores them anew.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.neighbors import LocalOutlierFactor
from sklearn.svm import OneClassSVM

import reconform
from reconform import (
    Bootstrap,
    ConformalDetector,
    CrossValidation,
    Jackknife,
    Prepare,
    Resampling,
    Split,
    Weights,
)

NATIVE = ("knn", "iforest", "inne", "lof", "mahalanobis", "kde")
METHODS: dict[str, Any] = {
    "split": "split",
    "split 3 times": Split(calibration=0.4, repeats=3),
    "jackknife": "jackknife",
    "jackknife+": "jackknife+",
    "cv": "cv",
    "cv+": CrossValidation(folds=5, variant="plus"),
    "cv pooled": CrossValidation(folds=5, variant="pooled"),
    "jab": Bootstrap(draws=20, variant="basic"),
    "jab+": Bootstrap(draws=20, variant="plus"),
    "jab+ mean": Bootstrap(draws=20, aggregate="mean", variant="plus"),
    "jackknife pooled": Jackknife(variant="pooled"),
    "full": "full",
    "batch": "batch",
}
RULES: dict[str, dict[str, Any]] = {
    "bh": {},
    "bh 0.2": {"fdr": 0.2},
    "by": {"procedure": "by", "fdr": 0.3},
    "storey": {"procedure": "storey"},
    "proven": {"validity": "proven", "fdr": 0.2},
    "false alarms": {"false_alarms": 2},
    "ebh": {"procedure": "ebh", "fdr": 0.3},
    "simes": {"conditional": "simes"},
}


def rows() -> dict[str, tuple[Any, Any]]:
    """Reference and new rows of a few kinds."""
    rng = np.random.default_rng(5)
    plain = rng.normal(size=(80, 3)), rng.normal(size=(40, 3))
    plain[1][35:] += 5
    ties = np.round(plain[0]), np.round(plain[1])
    return {"plain": plain, "ties": ties}


def mixed() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Frames with gaps and text."""
    rng = np.random.default_rng(6)
    frames = []
    for m in (80, 40):
        frame = pd.DataFrame(rng.normal(size=(m, 3)), columns=["a", "b", "c"])
        frame["kind"] = rng.choice(["red", "green", "blue"], size=m)
        frame.loc[rng.integers(0, m, 5), "b"] = np.nan
        frames.append(frame)
    frames[1].loc[35:, "a"] += 6
    frames[1].loc[39, "kind"] = "violet"
    return frames[0], frames[1]


def digest(value: Any) -> str:
    """A short name of numbers, exact to the last bit."""
    if value is None:
        return "none"
    array = np.ascontiguousarray(value)
    if array.dtype == object or array.dtype.kind in "US":
        data = json.dumps([str(v) for v in array.ravel()]).encode()
    else:
        data = array.tobytes()
    told = f"{array.dtype.kind}{array.shape}".encode() + data
    return hashlib.sha256(told).hexdigest()[:16]


def of_list(found: Any) -> Iterator[tuple[str, Any]]:
    """The numbers of a list."""
    yield "count", found.count
    for name in ("mask", "p_values", "q_values", "scores", "e_values"):
        if getattr(found, name, None) is not None:
            yield name, digest(getattr(found, name))
    yield (
        "verdict",
        found.verdict.word if hasattr(found.verdict, "word") else str(found.verdict)[:9],
    )


def attempt(key: str, work: Callable[[], Iterator[tuple[str, Any]]]) -> Iterator[tuple[str, Any]]:
    """All numbers of one path, or the kind of its refusal."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, value in work():
                yield f"{key}: {name}", value
    except reconform.ReconformError:
        yield f"{key}: refused", True
    except Exception as error:
        yield f"{key}: raised", type(error).__name__


def alone(cad: Any, X: Any, T: Any) -> Iterator[tuple[str, Any]]:
    cad.fit(X)
    yield "calibration", digest(cad.calibration_.scores)
    yield "ranks", digest(cad.ranks(T))
    yield "predict", digest(cad.predict(T))


def listed(
    cad: Any, X: Any, T: Any, given: dict[str, Any], **fit: Any
) -> Iterator[tuple[str, Any]]:
    yield from of_list(cad.fit(X, **fit).discover(T, **given))


def in_memory() -> Iterator[tuple[str, Any]]:
    data = rows()
    foreign = {"svm": OneClassSVM(), "lof of sklearn": LocalOutlierFactor(novelty=True)}
    for kind, (X, T) in data.items():
        for name in (*NATIVE, *foreign, "contrast", "auto"):
            detector = foreign.get(name, name)
            for method in METHODS:
                made = partial(ConformalDetector, detector, METHODS[method], random_state=3)
                key = f"{kind}, {name}, {method}"
                yield from attempt(key, partial(alone, made(), X, T))
                for rule, given in RULES.items():
                    if kind == "plain" or rule in ("bh", "proven"):
                        yield from attempt(f"{key}, {rule}", partial(listed, made(), X, T, given))
                if kind == "ties":
                    smoothed = made(ties="randomized")
                    yield from attempt(f"{key}, smoothed", partial(alone, smoothed, X, T))


def with_more() -> Iterator[tuple[str, Any]]:
    """Groups, weights, known anomalies, prepared tables, choices, learned, splitters."""
    X, T = rows()["plain"]
    rng = np.random.default_rng(8)
    of_X, of_T = rng.choice(list("ab"), 80), rng.choice(list("ab"), 40)
    w = Weights(np.exp(X[:, 0] / 2), np.exp(T[:, 0] / 2))
    known = rng.normal(size=(6, 3)) + 5
    for name in ("knn", "iforest", "kde", "auto"):
        for method in ("split", "full", "jackknife+", "cv+"):
            for each in (False, True):
                for rule in ("bh", "proven", "storey", "false alarms"):

                    def grouped(
                        n: str = name, m: str = method, e: bool = each, r: str = rule
                    ) -> Any:
                        cad = ConformalDetector(n, m, random_state=3, group_models=e)
                        found = cad.fit(X, groups=of_X).discover(T, groups=of_T, **RULES[r])
                        yield from of_list(found)

                    yield from attempt(f"groups, {name}, {method}, {each}, {rule}", grouped)
        for method in ("split", "full"):
            for rule in ("bh", "proven", "false alarms"):
                cad = ConformalDetector(name, method, random_state=3)
                given = {**RULES[rule], "weights": w}
                yield from attempt(
                    f"weights, {name}, {method}, {rule}", lambda c=cad, g=given: listed(c, X, T, g)
                )
    for name, method in (("contrast", "full"), ("auto", "full"), ("iforest", "learned")):
        for rule in ("bh", "proven"):
            cad = ConformalDetector(name, method, random_state=3)
            yield from attempt(
                f"known, {name}, {method}, {rule}",
                lambda c=cad, r=rule: listed(c, X, T, RULES[r], anomalies=known),
            )
    for rule in RULES:
        cad = ConformalDetector(method="learned", random_state=3)
        yield from attempt(f"learned, {rule}", lambda c=cad, r=rule: listed(c, X, T, RULES[r]))
    cad = ConformalDetector(["knn", "iforest", OneClassSVM()], "full", random_state=3)
    yield from attempt("a list of detectors", lambda: listed(cad, X, T, {}))
    plan = Resampling([np.arange(40), np.arange(20, 70)], aggregate="mean")
    yield from attempt("resampling", lambda: alone(ConformalDetector("knn", plan), X, T))
    A, B = mixed()
    for name in (*NATIVE, "contrast", "auto", OneClassSVM()):
        for method in ("split", "full", "jackknife+", "cv+"):
            cad = ConformalDetector(Prepare(name), method, random_state=3)
            for rule in ("bh", "proven"):
                yield from attempt(
                    f"prepared, {name}, {method}, {rule}",
                    lambda c=cad, r=rule: listed(c, A, B, RULES[r]),
                )
    for name in NATIVE:
        cad = ConformalDetector(name, "split", random_state=3).fit(X)
        yield from attempt(
            f"threshold, {name}", lambda c=cad: iter([("cutoff", c.threshold(0.1).cutoff)])
        )
        told = ConformalDetector(name, "full", random_state=3).fit(X).discover(T).explain(37)
        yield f"explain, {name}", [f.name for f in told.features]
    yield "review", digest(reconform.review(ConformalDetector("knn", "full").fit(X)).p_values)


def models() -> Iterator[tuple[str, Any]]:
    """Saved and loaded."""
    X, T = rows()["plain"]
    with tempfile.TemporaryDirectory() as folder:
        for name in (*NATIVE, "contrast", "auto"):
            for method in ("split", "full", "jackknife+", "cv+", "jab+"):

                def kept(n: str = name, m: str = method) -> Iterator[tuple[str, Any]]:
                    path = Path(folder) / "m.rcad"
                    cad = ConformalDetector(n, METHODS[m], random_state=3).fit(X)
                    reconform.save(cad, path)
                    loaded = reconform.load(path)
                    path.unlink()
                    yield from of_list(loaded.discover(T))

                yield from attempt(f"saved, {name}, {method}", kept)


def commands() -> Iterator[tuple[str, Any]]:
    """What the command line writes."""
    from reconform.__main__ import run

    X, T = rows()["plain"]
    A, B = mixed()
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        pd.DataFrame(X, columns=list("abc")).to_csv(at / "r.csv", index=False)
        pd.DataFrame(T, columns=list("abc")).to_csv(at / "n.csv", index=False)
        A.to_csv(at / "rm.csv", index=False)
        B.to_csv(at / "nm.csv", index=False)
        pd.DataFrame(T, columns=list("abc")).to_parquet(at / "n.parquet")

        def told(*words: str) -> Iterator[tuple[str, Any]]:
            out, old = StringIO(), sys.argv
            output = at / "out.csv"
            output.unlink(missing_ok=True)
            try:
                sys.argv = ["reconform", *words, "--output", str(output), "--quiet"]
                with redirect_stdout(out):
                    run()
            except SystemExit as error:
                yield "exit", error.code or 0
            finally:
                sys.argv = old
            if output.exists():
                frame = pd.read_csv(output)
                for column in frame.columns:
                    yield column, digest(frame[column].to_numpy())

        two = str(at / "r.csv"), str(at / "n.csv")
        for name in (*NATIVE, "contrast", "auto", "sklearn:OneClassSVM"):
            for method in ("split", "full", "jackknife+", "batch", "learned"):
                for more in ([], ["--validity", "proven"], ["--top", "5"], ["--only-anomalies"]):
                    words = ["detect", *two, "--detector", name, "--method", method, *more]
                    yield from attempt(" ".join(words[3:]), lambda w=words: told(*w))
        words = ["detect", two[0], str(at / "n.parquet")]
        yield from attempt("detect parquet", lambda: told(*words))
        words2 = ["detect", str(at / "rm.csv"), str(at / "nm.csv")]
        yield from attempt("detect, prepared", lambda: told(*words2))
        words3 = ["detect", *two, "--shift", "all"]
        yield from attempt("detect --shift all", lambda: told(*words3))


def parts() -> Iterator[tuple[str, Any]]:
    """Rows on Dask, streams, and a small study."""
    import dask.dataframe as dd
    from sklearn.datasets import load_breast_cancer

    from reconform import distributed
    from reconform.stream import (
        ChangeMonitor,
        ExchangeabilityMonitor,
        FalseAlarmBudget,
        MicroBatches,
    )
    from reconform.study import Protocol, Study

    X, T = (pd.DataFrame(rows, columns=list("abc")) for rows in rows()["plain"])
    for name in (*NATIVE, "auto"):
        for method in ("split", "full", "jackknife+", "learned"):
            for rule in ("bh", "storey", "false alarms", "proven"):

                def scaled(n: str = name, m: str = method, r: str = rule) -> Any:
                    cad = ConformalDetector(n, m, random_state=3).fit(X)
                    frame = dd.from_pandas(T, npartitions=3)
                    found = distributed.discover(cad, frame, **RULES[r])
                    yield "count", found.count
                    for column in ("p_value", "q_value", "score", "anomaly"):
                        yield column, digest(found.frame[column].compute().to_numpy())

                yield from attempt(f"dask, {name}, {method}, {rule}", scaled)

        def stream(n: str = name) -> Any:
            cad = ConformalDetector(n, "split", random_state=3).fit(X)
            yield "budget", digest(FalseAlarmBudget(cad, false_alarms=1, per=20).update(T).mask)
            windows = MicroBatches(cad, rows=13, fdr=0.3)
            for window in [*windows.update(T), *windows.flush()]:
                yield f"window {window.row}", digest(window.mask)
            for monitor in (
                ExchangeabilityMonitor(cad, random_state=0),
                ChangeMonitor(cad, random_state=0),
            ):
                monitor.update(T)
                yield type(monitor).__name__, digest(monitor.log10_evidence)

        yield from attempt(f"stream, {name}", stream)

    def study() -> Any:
        X, y = load_breast_cancer(return_X_y=True)
        made = Study(
            [("breast_cancer", X, y == 0)],
            ["knn", "iforest", "auto"],
            ["split", "cv+", "full"],
            Protocol(draws=2, test_sets=5),
        )
        with tempfile.TemporaryDirectory() as store:
            made.run(store)
        for cell in made.cells():
            yield f"{cell.detector}, {cell.method}", [cell.power.mean, cell.fdr.mean]

    yield from attempt("study", study)


def everything() -> dict[str, Any]:
    """All paths."""
    found: dict[str, Any] = {}
    for part in (in_memory, with_more, models, commands, parts):
        found.update(part())
        print(f"{part.__name__}: {len(found):,} numbers so far", file=sys.stderr, flush=True)
    return found


def main(what: str, path: str) -> int:
    """Store, or compare."""
    now = everything()
    if what == "store":
        Path(path).write_text(json.dumps(now, indent=0))
        return 0
    before = json.loads(Path(path).read_text())
    moved = [key for key in before if before[key] != now.get(key)]
    new = [key for key in now if key not in before]
    for key in moved[:200]:
        print(f"moved: {key}: {before[key]} -> {now.get(key)}")
    for key in new[:50]:
        print(f"new: {key}: {now[key]}")
    print(f"{len(before):,} numbers: {len(moved):,} moved, {len(new):,} new")
    return 1 if moved else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
