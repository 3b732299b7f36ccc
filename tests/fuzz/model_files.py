"""Throw mutated and resealed model files at `load`, and look for what must never happen.

Run ``python tests/fuzz/model_files.py --seconds 60 --seed 0``, or ``make fuzz``; see `worker`. A
mutant is a model file of our own detectors with changed JSON or arrays, whose sums are all right
again, as if an attacker had written it; what is of others is not made without trust, and not tried
here. It is loaded and asked to score; it must be refused with `ModelFileError`, or score. A finding
is any other exception while it is loaded, and any while it scores; a worker that dies (a crash in
compiled code); more than 60 seconds; memory that grows by more than 1 GB, or an attempt at it;
anything written or executed: the mutants name a folder, and carry pickles that write to it.
"""

from __future__ import annotations

import copy
import io
import itertools
import json
import os
import pickle
import random
import resource
import shutil
import sys
import tempfile
import traceback
import warnings
import zipfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the mutants are small, and threads take time

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from worker import MOST_MEGABYTES, forget_the_peak, fuzz, megabytes, serve

from forge import as_npy, forge, members_of

HERE = Path(__file__).parent

BACKSTOP_BYTES = 6 << 30  # of addresses, to spare the machine

FINGERPRINT = "resealed"  # what every calibration has in the worker: an attacker can compute it


class Planted:
    """Leaves a folder behind if it is ever unpickled."""

    def __reduce__(self):
        return os.mkdir, ("executed",)


# --- originals -----------------------------------------------------------------------------------


def fitted(X: np.ndarray):
    """Every ensemble; choices, groups, known anomalies, gaps and labels."""
    from ensembles_of_ours import ENSEMBLES
    from reconform import ConformalDetector
    from reconform.detectors import INNE, KDE, KNN, LOF, Contrast, IForest
    from reconform.detectors.prepared import Prepared

    some = [KNN(n_neighbors=3), LOF(n_neighbors=4), IForest(4, max_samples=8)]
    groups = np.where(X[:, 2] > 0, "a", "b")
    far = X[:3] + 9

    def model(detector, method, *, groups=None, anomalies=None, **options):
        cad = ConformalDetector(detector, method, **{"random_state": 0, **options})
        return cad.fit(X, groups=groups, anomalies=anomalies)

    for name, (detector, method, options) in ENSEMBLES.items():
        yield name, model(detector, method, **options)
    inner = KNN(n_neighbors=3), INNE(4, max_samples=4, share=True), KDE()
    for detector, method in itertools.product(inner, ("full", "jackknife+", "split")):
        name = type(detector).__name__
        yield f"gaps-{name}-{method}", model(Prepared(detector, (0, 0, 3)), method)
    yield "unseeded", model(some[0], "cv+", random_state=None)
    yield "seeded", model(some[0], "split", random_state=np.random.SeedSequence(1))
    yield "auto-full", model(some, "full")
    yield "auto-split", model(some, "split")
    yield "auto-by-size", model("auto", "auto")
    yield "auto-anomalies", model([*some, Contrast((1, 3))], "full", anomalies=far)
    yield "contrast-anomalies", model(Contrast((1, 3)), "full", anomalies=far)
    yield "groups", model(some[0], "split", groups=groups)
    yield "groups-full", model(some[2], "full", groups=groups)
    own = {"groups": groups, "group_models": True}
    yield "group-models", model(some[1], "full", **own)
    yield "group-models-auto", model(some, "full", **own)
    yield "jab", model(KNN(n_neighbors=3), "jab+")
    yield "jab-forest", model(IForest(4, max_samples=8), "jab+")


def originals() -> list[tuple[str, dict[str, bytes]]]:
    """A file of every kind of model, and the golden one."""
    from reconform.models import save

    golden = HERE.parent / "data" / "models" / "iforest-full.rcad"
    made = [(golden.stem, members_of(golden))]
    X = np.random.default_rng(0).normal(size=(24, 3)).round(1)
    X[:, 2] = np.arange(24) % 3  # numbers to most detectors, labels to some
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.rcad")
        for name, cad in fitted(X):
            save(cad, path, overwrite=True)
            made.append((name, members_of(path)))
    return made


# --- mutations -----------------------------------------------------------------------------------

NUMBERS = (
    0, 1, -1, 2, 3, 7, 23, 24, 25, 255, 4096, 1 << 16, 900_000, 1 << 24, (1 << 31) - 1, 1 << 31,
    1 << 32, (1 << 63) - 1, 1 << 63, 1 << 64, 10**30, -(10**30), 10**400,
)  # fmt: skip
WORDS = (
    "", "cache", "./cache", "full", "split", "train", "held out", "leave-one-out", "plus", "basic",
    "pooled", "median", "inf", "-inf", "nan", "knn", "iforest", "inne", "score_samples",
    "decision_function", "fit", "__class__", "euclidean", "mahalanobis", "cosine", "precomputed",
    "brute", "kd_tree", "ball_tree", "randomized", "x" * 5000,
)  # fmt: skip
VALUES = (
    None, True, False, 0.0, -1.5, 1e-300, 1e300, [], {}, [[]],
    {"fraction": ["1e50000000"]}, {"fraction": [1, 10]}, {"float": "inf"}, {"float": "1e999"},
    {"tuple": [1, 2]}, {"dict": [["memory", "cache"]]}, {"seed": [1, [], 4]},
    {"seed": [1, {"tuple": []}, 1 << 30]}, {"scalar": ["<f8", 1.0]}, {"scalar": ["<i8", [1, 2]]},
)  # fmt: skip
PARAMETERS = {
    "memory": "cache", "n_jobs": 24, "keep": "cache", "verbose": 9, "n_estimators": 10**6,
    "cache_size": 10**6, "device": "cuda", "callback": "os.system", "leaf_size": 1 << 40,
    "metric": "mahalanobis", "kernel": "precomputed", "_impl": "c_svc", "_sparse": True,
    "n_features_in_": 30, "algorithm": "brute", "novelty": False, "support_": [1],
}  # fmt: skip


def any_value(rng: random.Random) -> Any:
    kind = rng.random()
    choices = NUMBERS if kind < 0.45 else WORDS if kind < 0.7 else VALUES
    return copy.deepcopy(rng.choice(choices))


def places(json_value: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON value: what holds it, and its key."""
    found, waiting = [], [json_value]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])
    return found


def mutate_json(rng: random.Random, value: Any) -> None:
    """Change one thing in a JSON value, in place."""
    everywhere = places(value)
    if not everywhere:
        return
    holder, key = rng.choice(everywhere)
    other, place = rng.choice(everywhere)
    match rng.randrange(8):
        case 0 | 1 | 2:
            holder[key] = any_value(rng)
        case 3 if isinstance(holder[key], int) and not isinstance(holder[key], bool):
            holder[key] = rng.choice([holder[key] + 1, holder[key] - 1, 2 * holder[key], 0])
        case 3 | 4:
            holder[key], other[place] = (copy.deepcopy(other[place]), copy.deepcopy(holder[key]))
        case 5 if isinstance(holder, dict):
            holder[rng.choice([*PARAMETERS, *holder])] = holder.pop(key)
        case 5 | 6:
            del holder[key]
        case _:
            if isinstance(holder, list):
                holder.extend(copy.deepcopy(holder[key]) for _ in range(rng.choice([1, 5, 400])))
            else:
                name = rng.choice(list(PARAMETERS))
                holder[name] = PARAMETERS[name]


def mutate_parameters(rng: random.Random, model: Any) -> None:
    """Set a parameter somewhere, as it is written."""
    lists = [h[k] for h, k in places(model) if k == "dict" and isinstance(h[k], list)]
    if lists:
        name = rng.choice(list(PARAMETERS))
        value = PARAMETERS[name] if rng.random() < 0.5 else any_value(rng)
        pairs = rng.choice(lists)
        known = [pair for pair in pairs if isinstance(pair, list) and pair]
        if known and rng.random() < 0.6:
            rng.choice(known)[-1] = value
        else:
            pairs.append([name, value])


def mutate_array(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """Change the contents, the shape or the type of an array."""
    array = array.copy()
    flat = array.reshape(-1) if array.dtype.names is None else array[rng.choice(array.dtype.names)]
    kind = rng.randrange(12)
    if kind < 5 and flat.size:
        for _ in range(rng.choice([1, 1, 3, flat.size])):
            value = rng.choice([*NUMBERS[:-3], -5, 200, float("nan"), float("inf"), 1e308, -1e308])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    flat[rng.randrange(flat.size)] = value
                except (OverflowError, ValueError):
                    continue
        return array
    if kind == 5 and array.ndim:
        return array[::-1].copy()
    if kind == 6 and array.ndim:
        axis = rng.randrange(array.ndim)
        size = rng.randrange(array.shape[axis] + 1)
        return np.take(array, range(size), axis=axis)
    if kind == 7 and array.ndim and array.size:
        return np.concatenate([array] * rng.choice([2, 3, 50]), axis=rng.randrange(array.ndim))
    if kind == 8:
        return np.ascontiguousarray(array.T) if array.ndim > 1 else array.reshape(-1, 1)
    if kind == 9 and array.dtype.names is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return array.astype(rng.choice(["f8", "i8", "u1", "u4", "i4", "f4", "?", "i8"]))
    if kind == 10:
        shape = rng.choice([(0,), (0, 3), (1 << 20, 0), (0, 1 << 24), (1,), (900_000,), (3, 3)])
        return np.zeros(shape, dtype=array.dtype)
    return array[..., :1] if array.ndim else array.reshape(1)


def mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    """Change a member without understanding it."""
    changed = bytearray(data)
    match rng.randrange(6):
        case 0:
            return pickle.dumps(Planted())
        case 1:
            stream = io.BytesIO()
            np.save(stream, np.array([Planted()], dtype=object), allow_pickle=True)
            return stream.getvalue()
        case 2:
            return bytes(changed[: rng.randrange(len(changed) + 1)])
        case 3:
            size = str(rng.choice(NUMBERS[:-3])).encode()
            return bytes(changed).replace(b"'shape': (", b"'shape': (" + size + b", ", 1)
    for _ in range(rng.choice([1, 2, 8])):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def mutate_npy(rng: random.Random, data: bytes) -> bytes:
    if rng.random() < 0.1:
        return mutate_bytes(rng, data)
    try:
        return as_npy(mutate_array(rng, np.load(io.BytesIO(data), allow_pickle=False)))
    except Exception:  # bytes that a mutation before this one has changed
        return mutate_bytes(rng, data)


def make(seed: int, number: int, pool: list[tuple[str, dict[str, bytes]]], path: Path) -> str:
    """Write mutant `number` of a seed; return what it was made from."""
    rng = random.Random(f"{seed} {number}")
    name_of_original, original = rng.choice(pool)
    members = dict(original)
    manifest = json.loads(members.pop("manifest.json"))
    manifest["fingerprint"] = FINGERPRINT
    model = json.loads(members["model.json"])
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        kind = rng.random()
        arrays = [name for name in members if name.endswith(".npy")]
        if kind < 0.4 and arrays:
            name = rng.choice(arrays)
            members[name] = mutate_npy(rng, members[name])
        elif kind < 0.75:
            mutate_json(rng, model)
        elif kind < 0.85:
            mutate_parameters(rng, model)
        elif kind < 0.9:
            mutate_json(rng, manifest)
        elif kind < 0.95:
            source = rng.choice(pool)[1]
            name = rng.choice([name for name in source if name != "manifest.json"])
            members[name] = source[name]
        else:
            name = rng.choice(list(members))
            members[name] = mutate_bytes(rng, members[name])
    text = json.dumps(model).encode()
    if members["model.json"] == original["model.json"]:
        members["model.json"] = text
    compression = rng.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
    forge(path, {**members, "manifest.json": b"{}"}, manifest, compression=compression)
    return name_of_original


# --- the worker ----------------------------------------------------------------------------------


def try_one(path: Path) -> dict[str, Any]:
    """Load a mutant and let it score; say how it ended."""
    from reconform.models import ModelFileError, load

    new = np.random.default_rng(1).normal(size=(3, 64))
    try:
        cad = load(path)
    except ModelFileError as error:
        if isinstance(error.__cause__, MemoryError):
            return {"end": "memory", "finding": "an attempt at more memory than there is"}
        return {"end": "refused"}
    except Exception:
        return {"end": "load", "finding": traceback.format_exc(limit=-6)}
    try:
        if cad.n_features_in_ > new.shape[1]:
            return {"end": "too wide to score"}
        rows = new[:, : cad.n_features_in_]
        known = cad.grouping_
        groups = None if known is None else [known.names[0], known.names[-1]]
        if cad.ranks_rows == "alone":
            cad.p_values(rows[:1], groups=groups and groups[:1])  # a fit per row for some
        cad.discover(rows[1:], groups=groups)
    except Exception as error:
        told = traceback.format_exc(limit=-6)
        return {"end": f"{type(error).__name__} while scoring", "finding": told}
    return {"end": "scored"}


def work() -> None:
    warnings.simplefilter("ignore")
    from reconform.statistics.ranks import Calibration

    pool = originals()
    Calibration.fingerprint = property(lambda self: FINGERPRINT)  # type: ignore[assignment]
    resource.setrlimit(resource.RLIMIT_AS, (BACKSTOP_BYTES,) * 2)
    path = Path("mutant.rcad")

    def answer(seed: int, number: int) -> dict[str, Any]:
        name = make(seed, number, pool, path)
        before = forget_the_peak()
        said = {**try_one(path), "original": name}
        grown = megabytes() - before
        if grown > MOST_MEGABYTES:
            said["finding"] = f"memory grew by {grown:,.0f} MB"
        if os.listdir() != [path.name]:
            said["finding"] = f"something was written: {sorted(os.listdir())}"
            shutil.rmtree(folder)
            os.mkdir(folder)
            os.chdir(folder)
        return said

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        serve(answer)


def judged(said: dict[str, Any]) -> tuple[str, list[str]]:
    finding = said.get("finding")
    return said["end"], [said["original"], finding] if finding else []


def keep(seed: int, number: int, folder: Path) -> None:
    make(seed, number, originals(), folder / f"{seed}-{number}.rcad")


if __name__ == "__main__":
    sys.exit(fuzz(__file__, "mutated model files", work, judged, keep))
