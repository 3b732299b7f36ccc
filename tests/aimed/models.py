"""Model files made to break `load` and scoring: each asks for far more than it holds.

Every row of `AIMED` writes a file of reconform's own detectors, with all sums right, as an attacker
would. `models/test_aimed_models` lets a child process load each, and score with it, within limits
of memory and time: it must be refused, with the words that stand beside it, or score.

``python tests/aimed/models.py FOLDER`` writes them all.
"""

import io
import json
import os
import resource
import sys
import time
import traceback
import warnings
import zipfile
from contextlib import suppress
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "fuzz"))

from worker import forget_the_peak, megabytes, serve

from forge import array, as_npy, forge, members_of, put, says, state

MOST_SECONDS = 10  # of the processor
MOST_MEGABYTES = 1_000
BACKSTOP_BYTES = 1_500 << 20  # of addresses, beyond those that the process has before

NEW_ROWS = 1_000
FINGERPRINT = "resealed"  # what every calibration has in the child: an attacker can compute it

TOO_MUCH = "far more memory or time"


def native(detector, method="split", n=30, *, edit, compressed=False, **options):
    """What writes the file of a small model, after `edit(model, members)` has changed it."""

    def make(path):
        from reconform import ConformalDetector
        from reconform.models import save

        made = detector() if callable(detector) else detector
        X = np.random.default_rng(5).normal(size=(n, 3)).round(3)
        X[:, 2] = np.arange(n) % 3
        groups = np.where(X[:, 0] > 0, "a", "b") if options.get("group_models") else None
        cad = ConformalDetector(made, method, random_state=7, **options)
        save(cad.fit(X, groups=groups), path, overwrite=True)
        members = members_of(path)
        manifest = {**json.loads(members["manifest.json"]), "fingerprint": FINGERPRINT}
        model = json.loads(members["model.json"])
        edit(model, members)
        members["model.json"] = json.dumps(model).encode()
        forge(path, members, manifest)
        if _grows_too_much(path) and not compressed:
            # An attacker would not compress it, either.
            forge(path, members, manifest, compression=zipfile.ZIP_STORED)

    return make


def _grows_too_much(path):
    with zipfile.ZipFile(path) as file:
        size = sum(info.file_size for info in file.infolist())
    return size > max(1 << 16, 10 * path.stat().st_size)


def made_of(name, *arguments, **options):
    """A detector of ours, by name, when it is needed."""

    def make():
        from reconform import detectors

        return getattr(detectors, name)(*arguments, **options)

    return make


def noise(size):
    """Bytes that do not compress, as numbers in rows of three."""
    return as_npy(np.random.default_rng(0).normal(size=(size // 24, 3)))


def zeros(*shape, dtype=np.float64):
    return as_npy(np.zeros(shape, dtype=dtype))


# --- plans ---------------------------------------------------------------------------------------

CV = "cv+"


def plan_of(n, count, padding=0, sets="train"):
    """Sets that train on nothing, so that each holds out all n rows."""

    def edit(model, members):
        model["plan"].update(n=n, sets=sets, steps=False)
        members["plan/rows.npy"] = zeros(0, dtype=np.int64)
        members["plan/sizes.npy"] = zeros(count, dtype=np.int64)
        if padding:
            members["reference_sample.npy"] = noise(padding)

    return edit


def plan_of_415_kilobytes(model, members):
    """Padding that compresses well: 41 MB of it."""
    plan_of(400_000, 400)(model, members)
    noise_and_zeros = np.zeros((1_700_000, 3))
    noise_and_zeros[:10_000] = np.random.default_rng(0).normal(size=(10_000, 3))
    members["reference_sample.npy"] = as_npy(noise_and_zeros)


def plans_of_groups_by_the_thousand(model, members):
    first = model["ensemble"]["plans"][0]
    model["ensemble"]["plans"] = [{**first, "n": 500_000} for _ in range(5_000)]


def groups_of_models_that_train_on_everything(model, members):
    """Two groups of models with other units, whose training sets are all but no rows of many."""
    n, sets = 2_000_000, 200
    model["plan"].update(n=n, sets="held out", steps=False)
    members["plan/rows.npy"] = as_npy(np.arange(sets))
    members["plan/sizes.npy"] = as_npy(np.ones(sets, dtype=np.int64))
    members["ensemble/calibration.npy"] = zeros(sets)
    group = model["ensemble"]["models"]["groups"][0]
    members[group["models"]] = as_npy(np.arange(100))


# --- what scoring a row takes --------------------------------------------------------------------


def sphere_sets(members, at, sets):
    """So many sets of spheres, without any."""
    for name in ("centre", "radius", "ratio"):
        put(members, f"{at}/{name}.npy", lambda array: array[:0])
    members[f"{at}/edges.npy"] = zeros(sets + 1, dtype=np.int64)


def inne_of_very_many_models(model, members):
    model["ensemble"]["models"]["full"]["models"] = 7_000
    sphere_sets(members, "ensemble/full", 7_000)


def fitted_inne():
    from reconform.detectors import INNE

    return INNE(5, max_samples=4, random_state=0).fit(np.random.default_rng(0).normal(size=(30, 3)))


def many_models(model, members):
    (entry,) = [one for one in model["estimators"] if "fitted" in one]
    at = entry["fitted"]["_spheres"]["edges"].rpartition("/")[0]
    entry["fitted"]["_spheres"]["models"] = 120_000
    sphere_sets(members, at, 120_000)


def inne_with_more_sets_than_slots(model, members):
    models, extra = model["ensemble"]["models"], 6_000
    models["slots"]["_sets"] += extra
    models["slots"]["_spheres"]["models"] += extra
    for at in ("slots/spheres", "full"):
        put(members, f"ensemble/{at}/edges.npy", lambda e: np.append(np.zeros(extra, "i8"), e))


def inne_whose_sets_every_row_enters(model, members):
    sets, n, psi = 10_000, 2_000, 4
    rng = np.random.default_rng(0)
    models = model["ensemble"]["models"]
    models["psi"] = psi
    models["base"]["models"] = 1
    model["plan"]["n"] = n
    members["ensemble/reference.npy"] = as_npy(rng.normal(size=(n, 3)))
    members["ensemble/streams.npy"] = as_npy(rng.integers(0, 1 << 63, sets).astype(np.uint64))
    members["ensemble/drawn.npy"] = as_npy(np.tile(np.arange(psi, dtype=np.int32), (sets, 1)))
    members["ensemble/hashes.npy"] = as_npy(np.full((sets, psi), (1 << 64) - 1, np.uint64))
    members["ensemble/totals.npy"] = zeros(n, dtype=np.int64)
    members["ensemble/calibration.npy"] = zeros(n)
    sphere_sets(members, "ensemble/base", sets)


def forest_whose_trees_every_row_enters(model, members):
    trees = 2_000
    for name in list(members):
        base = name.startswith(("ensemble/base/", "ensemble/samples"))
        each = name.startswith(("ensemble/draws/keys", "ensemble/draws/sizes", "ensemble/last"))
        if base or each:
            put(members, name, lambda array: np.repeat(array[:1], trees, axis=0))
    members["ensemble/limits.npy"] = as_npy(np.full(trees, (1 << 64) - 1, np.uint64))
    model["ensemble"]["models"]["recipe"]["n_trees"] = trees


def neighbours(count):
    return lambda model, _: model["ensemble"]["models"]["full"].update(low=1, high=count)


def many_leaves_of_a_middling_size(model, members):
    """Each is as large as one may be; together they are not."""
    for entry in model["estimators"]:
        if "fitted" in entry:
            entry["fitted"]["_fitted"]["search"]["leaf_size"] = 1 << 20


def parameters(**values):
    """Set these parameters of all estimators: what a refit takes."""

    def edit(model, members):
        for entry in model["estimators"]:
            for pair in entry.get("parameters", {}).get("dict", []):
                pair[1] = values.get(pair[0], pair[1])

    return edit


def labelled():
    from reconform.detectors import KNN
    from reconform.detectors.prepared import Prepared

    return Prepared(KNN(n_neighbors=3), (0, 0, 3))


labels_by_the_million = parameters(labels={"tuple": [0, 0, 1 << 23]})


def given(name, **values):
    """The entry of a detector with these parameters."""
    return {"native": name, "parameters": {"dict": [[key, one] for key, one in values.items()]}}


# --- detectors in detectors, JSON, arrays --------------------------------------------------------


def detector_of(times, entry, first=True):
    """Let the detector be the last of so many entries, each made from its number."""

    def edit(model, members):
        known = {"native": "KNN", "parameters": {"dict": []}}
        model["estimators"] += [known] if first else []
        for _ in range(times):
            model["estimators"].append(entry(len(model["estimators"])))
        last = len(model["estimators"]) - 1
        model["detector"] = {"estimator": last}
        if "algorithm" in model["ensemble"]["models"]:
            model["ensemble"]["models"]["algorithm"]["template"] = last

    return edit


NONE = {"parameters": {"dict": []}}


def deep_value():
    value = 1
    for _ in range(400):
        value = {"tuple": [value]}
    return value


def header(text, data=b"", length=None):
    """An array with any header."""
    body = text.encode("latin-1")
    body += b" " * (-(len(body) + 11) % 64) + b"\n"
    size = len(body) if length is None else length
    return b"\x93NUMPY\x01\x00" + size.to_bytes(2, "little") + body + data


def described(descr, shape, data=b"", order="False"):
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"
    return lambda: header(text, data)


def hollow_arrays_by_the_dozen(model, members):
    hollow = zeros(1 << 24, 0)
    model["parameters"] = {"dict": [[f"p{k}", {"array": f"hollow/{k}.npy"}] for k in range(50)]}
    members.update((f"hollow/{k}.npy", hollow) for k in range(50))


def lists_that_are_just_allowed():
    return b"[" + b"[],{}," * 600_000 + b'"' + os.urandom(400_000).hex().encode() + b'"]'


# --- the zip -------------------------------------------------------------------------------------


def small_file(path):
    native("knn", edit=lambda model, members: None)(path)
    return members_of(path), json.loads(members_of(path)["manifest.json"])


def zip_with(more, facts=(), **how):
    """A small file with other members, and other facts in its manifest."""

    def make(path):
        members, manifest = small_file(path)
        forge(path, {**members, **more()}, {**manifest, **dict(facts)}, **how)

    return make


def stored(name, content):
    return zip_with(lambda: {name: content()}, compression=zipfile.ZIP_STORED)


def overlapping(path):
    """Every entry of the directory points to the first member."""
    small_file(path)
    data = bytearray(path.read_bytes())
    where = data.find(b"PK\x01\x02")
    while where >= 0:
        data[where + 42 : where + 46] = (0).to_bytes(4, "little")
        where = data.find(b"PK\x01\x02", where + 1)
    path.write_bytes(data)


def quoted(path):
    """One long member in which all others lie, each read through to the end: a quine of a bomb."""
    kernel = zipfile.zlib.compressobj(9, zipfile.zlib.DEFLATED, -15)
    packed = kernel.compress(bytes(1 << 24)) + kernel.flush()
    sum_ = zipfile.zlib.crc32(bytes(1 << 24)).to_bytes(4, "little")
    start = io.BytesIO()
    size = len(packed).to_bytes(4, "little") + (1 << 24).to_bytes(4, "little")
    start.write(b"PK\x03\x04\x14\x00\x00\x00\x08\x00\x00\x00\x00\x00" + sum_ + size)
    start.write(b"\x05\x00\x00\x00a.npy" + packed)
    directory = b""
    for k in range(2_000):
        entry = b"PK\x01\x02\x14\x00\x14\x00\x00\x00\x08\x00\x00\x00\x00\x00" + sum_ + size
        name = f"{k}.npy".encode()
        directory += entry + len(name).to_bytes(2, "little") + bytes(12) + bytes(4) + name
    end = b"PK\x05\x06\x00\x00\x00\x00" + 2 * (2_000).to_bytes(2, "little")
    end += len(directory).to_bytes(4, "little") + start.tell().to_bytes(4, "little") + b"\x00\x00"
    path.write_bytes(start.getvalue() + directory + end)


KNN3, LOF3 = made_of("KNN", n_neighbors=3), made_of("LOF", n_neighbors=3)
FOREST, SPHERES = made_of("IForest", 5, max_samples=8), made_of("INNE", 5, max_samples=4)
SHARED_SPHERES = made_of("INNE", 5, max_samples=4, share=True)
TURNED = {"larger_is": "anomalous"}
LOST = "recursion|too many parts"

# Detector, method, how the file of this small model is changed, and what is said about it; "" if
# it may also score.
NATIVE = {
    "plan_of_415_kilobytes": (
        "iforest", CV, plan_of_415_kilobytes, f"times as many|{TOO_MUCH}", {"compressed": True}),
    "plan_with_padding_that_does_not_compress": (
        "iforest", CV, plan_of(400_000, 400, 400_000), TOO_MUCH),
    "plan_that_is_just_allowed": (
        "iforest", CV, plan_of(60_000, 100, 1_100_000), "another number of scores"),
    "plan_of_very_many_sets": (
        "iforest", CV, plan_of(30, 150_000, 200_000, sets="held out"), TOO_MUCH),
    "plan_of_a_number_without_end": ("knn", "jackknife+", says("plan", "n", 10**18), TOO_MUCH),
    "plans_of_groups_by_the_thousand": (
        "knn", "jackknife+", plans_of_groups_by_the_thousand, TOO_MUCH, {"group_models": True}),
    "plan_whose_sizes_overflow": (
        "iforest", CV, array("plan/sizes", lambda s: s.astype(np.int64) + (1 << 62)), "add up"),
    "groups_of_models_that_train_on_everything": (
        made_of("KNN", n_neighbors=3, scale="robust"), CV,
        groups_of_models_that_train_on_everything, ""),
    "inne_of_very_many_models": (SPHERES, CV, inne_of_very_many_models, "one model"),
    "inne_of_8_kilobytes": (
        fitted_inne, "prefit", many_models, "one model|times as many", {"compressed": True}),
    "inne_with_more_sets_than_slots": (
        SHARED_SPHERES, "jackknife+", inne_with_more_sets_than_slots, ""),
    "inne_whose_sets_every_row_enters": (
        SPHERES, "full", inne_whose_sets_every_row_enters, "too many trees or sets"),
    "forest_whose_trees_every_row_enters": (
        FOREST, "full", forest_whose_trees_every_row_enters, f"too many trees or sets|{TOO_MUCH}",
        {"n": 4_000}),
    "neighbours_without_end": (
        KNN3, "jackknife+", neighbours(39_999), TOO_MUCH,
        {"n": 40_000}),
    "neighbours_that_are_just_allowed": (
        KNN3, "split", neighbours(9_000), "", {"n": 20_000}),
    "neighbourhoods_of_everything": (
        LOF3, "full", says("ensemble", "models", "k", 7_999), TOO_MUCH, {"n": 8_000}),
    "contrast_with_everything": (
        made_of("Contrast", n_neighbors=(1, 3)), "full",
        array("ensemble/model/ks", lambda ks: np.arange(1, 8_001)), TOO_MUCH, {"n": 8_000}),
    "leaves_larger_than_their_rows": (
        KNN3, "split", says("ensemble", "models", "full", "search", "leaf_size", 1 << 24), TOO_MUCH,
        {"n": 60}),
    "many_leaves_of_a_middling_size": (
        KNN3, CV, many_leaves_of_a_middling_size, TOO_MUCH, {"n": 40, **TURNED}),
    "refits_of_a_billion_trees": (
        FOREST, "full", parameters(n_estimators=10**9), TOO_MUCH, TURNED),
    "refits_of_spheres_around_all_rows": (
        SPHERES, "full", parameters(n_estimators=5_000, max_samples=1.0), TOO_MUCH,
        {"n": 3_000, **TURNED}),
    "refits_for_many_rows": (FOREST, "auto", parameters(n_estimators=10**8), TOO_MUCH),
    "refits_with_all_neighbours": (
        made_of("LOF", n_neighbors=3, scale="robust"), "full", parameters(n_neighbors=5_999),
        TOO_MUCH, {"n": 6_000}),
    "labels_by_the_million": (labelled, "full", labels_by_the_million, TOO_MUCH),
    "pipelines_that_share_their_steps": (
        KNN3, "full", detector_of(45, lambda k: {"pipeline": [["a", k - 1], ["b", k - 1]], **NONE}),
        "no known kind", TURNED),
    "choices_that_share_their_candidates": (
        "knn", "split",
        detector_of(45, lambda k: given("Auto", candidates=[{"estimator": k - 1}] * 2)),
        "too many parts"),
    "prepared_that_share_what_they_prepare": (
        "knn", "split",
        detector_of(45, lambda k: {**given("Prepared", detector={"estimator": k - 1},
                                           labels={"tuple": [0, 0, 0]}),
                                   "n_features": 3, "feature_names": None,
                                   "fitted": {"units_": "none", "offset_": 0.0, "fitted_": k - 1}}),
        "no array 'none'|too many parts"),
    "frozen_in_frozen": ("knn", "split", detector_of(20_000, lambda k: {"frozen": k - 1}), LOST),
    "prepare_in_prepare": (
        "knn", "split",
        detector_of(900, lambda k: given("Prepare", detector={"estimator": k - 1})),
        LOST),
    "values_in_values": ("knn", "split", state(deep_value()), "recursion|damaged"),
    "hollow_arrays_by_the_dozen": (
        "iforest", "jackknife+", hollow_arrays_by_the_dozen, f"{TOO_MUCH}|damaged"),
}  # fmt: skip
TEXTS = {
    "deep_brackets": ("recursion|damaged", lambda: b"[" * 300_000),
    "very_many_lists": ("times as many|damaged", lambda: b"[" + b"[]," * 5_000_000 + b"[]]"),
    "lists_that_are_just_allowed": ("damaged", lists_that_are_just_allowed),
    "a_number_of_a_million_digits": ("digits", lambda: b'{"n": ' + b"9" * 50_000 + b"}"),
    "a_number_beyond_all": ("larger than", lambda: b'{"n": 1e999}'),
    "no_text": ("damaged", lambda: b""),
    "no_number": ("is not JSON", lambda: b'{"n": NaN}'),
    "text_that_is_none": ("damaged", lambda: b"\xff\xfe\x00"),
    "a_name_twice": ("twice", lambda: b'{"n": 1, "n": 2}'),
}
ARRAYS = {
    "an_array_of_objects": described("'|O'", "(1,)", bytes(8)),
    "an_array_of_fields": described("[('a', '<f8')]", "(1,)", bytes(8)),
    "an_array_of_text": described("'<U4'", "(1,)", bytes(16)),
    "an_array_of_halves": described("'<f2'", "(1, 3)", bytes(6)),
    "an_array_of_quads": described("'<f16'", "(1, 3)", bytes(48)),
    "an_array_the_other_way_round": described("'>f8'", "(1, 3)", bytes(24)),
    "an_array_by_columns": described("'<f8'", "(1, 3)", bytes(24), "True"),
    "a_shape_that_overflows": described("'<f8'", "(4294967296, 4294967296)"),
    "a_shape_whose_bytes_overflow": described("'<f8'", "(2305843009213693952, 1)"),
    "a_negative_shape": described("'<f8'", "(-1, 3)", bytes(24)),
    "a_shape_that_is_code": described("'<f8'", "(__import__('os').getpid(), 3)", bytes(24)),
    "no_dimensions": lambda: as_npy(np.array(1.0)),
    "very_many_dimensions": described("'<f8'", "(" + "1, " * 60 + "1)", bytes(8)),
    "an_array_of_more": lambda: header(
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 3), 'more': 1, }", bytes(24)
    ),
    "an_array_of_brackets": lambda: header("[" * 100),
    "a_header_without_end": lambda: header("{" + " " * 60_000, length=65_535),
    "a_hollow_array": lambda: zeros(1 << 40, 0),
    "bytes_that_are_no_array": lambda: b"\x80\x04\x95" + bytes(100),
    "nothing": lambda: b"",
}
ZIPS = {
    "too_many_members": (
        "members", zip_with(lambda: {f"m/{k}.npy": b"" for k in range(70_000)},
                            compression=zipfile.ZIP_STORED)),
    "overlapping": ("model", overlapping),
    "quoted": ("not a reconform model", quoted),
    "a_name_without_end": (
        "is called|not those|nothing needs", zip_with(lambda: {"a" * 60_000 + ".npy": b"1"})),
    "manifest_without_end": (
        "times as many|larger than", zip_with(dict, [("extras", {"x": "y" * (1 << 25)})])),
}  # fmt: skip
AIMED = {
    **{
        name: (match, native(detector, method, edit=edit, **dict(*options)))
        for name, (detector, method, edit, match, *options) in NATIVE.items()
    },
    **{name: (match, stored("model.json", text)) for name, (match, text) in TEXTS.items()},
    **{name: ("damaged", stored("reference_sample.npy", make)) for name, make in ARRAYS.items()},
    **ZIPS,
}


# --- the child -----------------------------------------------------------------------------------


def try_one(path):
    """Load a file and score rows with it; say how it ended."""
    from reconform.models import ModelFileError, inspect, load

    with suppress(ModelFileError):
        inspect(path)
    try:
        cad = load(path)
    except ModelFileError as error:
        memory = isinstance(error.__cause__, MemoryError)
        return {"end": "memory" if memory else "refused", "said": str(error)}
    rows = np.random.default_rng(1).normal(size=(NEW_ROWS, cad.n_features_in_))
    if cad.ranks_rows == "alone":
        cad.p_values(rows)
    cad.score_samples(rows[:100])
    return {"end": "scored", "said": ""}


def work():
    """Answer numbers that come in: of the rows of `AIMED`, in their order."""
    warnings.simplefilter("ignore")
    from reconform.statistics.ranks import Calibration

    every = list(AIMED.values())
    path = Path(sys.argv[2]) / f"{os.getpid()}.rcad"
    fingerprint = Calibration.fingerprint

    def answer(_, number):
        Calibration.fingerprint = fingerprint
        every[number][1](path)
        Calibration.fingerprint = property(lambda self: FINGERPRINT)
        limit = (int(megabytes("VmSize")) << 20) + BACKSTOP_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        before, start = forget_the_peak(), time.process_time()
        try:
            said = try_one(path)
        except BaseException:
            said = {"end": "raised", "said": traceback.format_exc(limit=-6)}
        said["seconds"] = time.process_time() - start
        said["megabytes"] = megabytes() - before
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
        return said

    serve(answer)


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        work()
    else:
        for name, (_, make) in AIMED.items():
            make(Path(sys.argv[1]) / f"{name}.rcad")
