"""Model files made to break `load` and scoring: each asks for far more than it holds.

Every generator writes one file of reconform's own detectors, with all sums right, as an attacker
would. `models/test_aimed_models` lets a child process load each, and score with it, within limits
of memory and time: it must be refused, with the words that stand beside the generator, or score.

``python tests/aimed/models.py FOLDER`` writes them all.
"""

from __future__ import annotations

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

from forge import as_npy, forge, members_of, put

MOST_SECONDS = 10  # of the processor
MOST_MEGABYTES = 1_000
BACKSTOP_BYTES = 1_500 << 20  # of addresses, beyond those that the process has before

NEW_ROWS = 1_000
FINGERPRINT = "resealed"  # what every calibration has in the child: an attacker can compute it

TOO_MUCH = "far more memory or time"

AIMED = {}


def aimed(match):
    """Keep a generator, by its name and what is said about its file; "" if it may also score."""

    def keep(make):
        AIMED[make.__name__] = match, make
        return make

    return keep


def native(detector, method="split", n=30, *, compressed=False, **options):
    """A generator's start: `edit(model, members)` changes the file of this small model."""

    def decorate(edit):
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
            if "model.json" in members:
                members["model.json"] = json.dumps(model).encode()
            forge(path, members, manifest)
            if _grows_too_much(path) and not compressed:
                # An attacker would not compress it, either.
                forge(path, members, manifest, compression=zipfile.ZIP_STORED)

        make.__name__ = edit.__name__
        return make

    return decorate


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


def plan_of(model, members, n, sets, padding=0):
    """Sets that train on nothing, so that each holds out all n rows."""
    model["plan"].update(n=n, sets="train", steps=False)
    members["plan/rows.npy"] = zeros(0, dtype=np.int64)
    members["plan/sizes.npy"] = zeros(sets, dtype=np.int64)
    if padding:
        members["reference_sample.npy"] = noise(padding)


@aimed(f"times as many|{TOO_MUCH}")
@native("iforest", CV, compressed=True)
def plan_of_415_kilobytes(model, members):
    """Padding that compresses well: 41 MB of it."""
    plan_of(model, members, 400_000, 400)
    noise_and_zeros = np.zeros((1_700_000, 3))
    noise_and_zeros[:10_000] = np.random.default_rng(0).normal(size=(10_000, 3))
    members["reference_sample.npy"] = as_npy(noise_and_zeros)


@aimed(TOO_MUCH)
@native("iforest", CV)
def plan_with_padding_that_does_not_compress(model, members):
    plan_of(model, members, 400_000, 400, 400_000)


@aimed(TOO_MUCH)
@native("iforest", CV)
def plan_of_a_megabyte(model, members):
    plan_of(model, members, 1_000_000, 400, 1_100_000)


@aimed("another number of scores")
@native("iforest", CV)
def plan_that_is_just_allowed(model, members):
    plan_of(model, members, 60_000, 100, 1_100_000)


@aimed(TOO_MUCH)
@native("iforest", CV)
def plan_of_very_many_sets(model, members):
    plan_of(model, members, 30, 150_000, 200_000)
    model["plan"]["sets"] = "held out"


@aimed(TOO_MUCH)
@native("knn", "jackknife+")
def plan_of_a_number_without_end(model, members):
    model["plan"]["n"] = 10**18


@aimed(TOO_MUCH)
@native("knn", "jackknife+", group_models=True)
def plans_of_groups_by_the_thousand(model, members):
    model["ensemble"]["plans"] = [
        {**model["ensemble"]["plans"][0], "n": 500_000} for _ in range(5_000)
    ]


@aimed("add up")
@native("iforest", CV)
def plan_whose_sizes_overflow(model, members):
    put(members, "plan/sizes.npy", lambda sizes: sizes.astype(np.int64) + (1 << 62))


@aimed("a row does not exist")
@native("iforest", CV)
def plan_of_negative_rows(model, members):
    put(members, "plan/rows.npy", lambda rows: -1 - rows.astype(np.int64))


@aimed("")
@native(made_of("KNN", n_neighbors=3, scale="robust"), CV)
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


@aimed("one model")
@native(made_of("INNE", 5, max_samples=4), CV)
def inne_of_very_many_models(model, members):
    spheres = model["ensemble"]["models"]["full"]
    spheres["models"] = 7_000
    sphere_sets(members, "ensemble/full", 7_000)


def _fitted_inne():
    from reconform.detectors import INNE

    return INNE(5, max_samples=4, random_state=0).fit(np.random.default_rng(0).normal(size=(30, 3)))


def _many_models(model, members):
    (entry,) = [one for one in model["estimators"] if "fitted" in one]
    at = entry["fitted"]["_spheres"]["edges"].rpartition("/")[0]
    entry["fitted"]["_spheres"]["models"] = 120_000
    sphere_sets(members, at, 120_000)


@aimed("one model|times as many")
@native(_fitted_inne, "prefit", compressed=True)
def inne_of_8_kilobytes(model, members):
    _many_models(model, members)


@aimed("one model")
@native(_fitted_inne, "prefit")
def inne_of_a_megabyte(model, members):
    _many_models(model, members)


@aimed("")
@native(made_of("INNE", 5, max_samples=4, share=True), "jackknife+")
def inne_with_more_sets_than_slots(model, members):
    models, extra = model["ensemble"]["models"], 6_000
    models["slots"]["_sets"] += extra
    models["slots"]["_spheres"]["models"] += extra
    at = "ensemble/slots/spheres/edges.npy"
    put(members, at, lambda edges: np.concatenate([np.zeros(extra, np.int64), edges]))
    put(members, "ensemble/full/edges.npy", lambda e: np.concatenate([np.zeros(extra, "i8"), e]))


@aimed("more than it can have")
@native(made_of("INNE", 5, max_samples=4), "full")
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


@aimed(f"more than it can have|{TOO_MUCH}")
@native(made_of("IForest", 5, max_samples=8), "full", n=4_000)
def forest_whose_trees_every_row_enters(model, members):
    trees = 2_000
    for name in list(members):
        base = name.startswith(("ensemble/base/", "ensemble/samples"))
        each = name.startswith(("ensemble/draws/keys", "ensemble/draws/sizes", "ensemble/last"))
        if base or each:
            put(members, name, lambda array: np.repeat(array[:1], trees, axis=0))
    members["ensemble/limits.npy"] = as_npy(np.full(trees, (1 << 64) - 1, np.uint64))
    model["ensemble"]["models"]["recipe"]["n_trees"] = trees


@aimed(TOO_MUCH)
@native(made_of("KNN", n_neighbors=3), "jackknife+", n=40_000)
def neighbours_without_end(model, members):
    model["ensemble"]["models"]["full"].update(low=1, high=39_999)


@aimed("")
@native(made_of("KNN", n_neighbors=3), "split", n=20_000)
def neighbours_that_are_just_allowed(model, members):
    model["ensemble"]["models"]["full"].update(low=1, high=9_000)


@aimed(TOO_MUCH)
@native(made_of("LOF", n_neighbors=3), "full", n=8_000)
def neighbourhoods_of_everything(model, members):
    model["ensemble"]["models"]["k"] = 7_999


@aimed(TOO_MUCH)
@native(made_of("Contrast", n_neighbors=(1, 3)), "full", n=8_000)
def contrast_with_everything(model, members):
    members["ensemble/model/ks.npy"] = as_npy(np.arange(1, 8_001))


@aimed(TOO_MUCH)
@native(made_of("KNN", n_neighbors=3), "split", n=60)
def leaves_larger_than_their_rows(model, members):
    search = model["ensemble"]["models"]["full"]["search"]
    search["leaf_size"] = 1 << 24


@aimed(TOO_MUCH)
@native(made_of("KNN", n_neighbors=3), CV, n=40, larger_is="anomalous")
def many_leaves_of_a_middling_size(model, members):
    """Each is as large as one may be; together they are not."""
    for entry in model["estimators"]:
        if "fitted" in entry:
            entry["fitted"]["_fitted"]["search"]["leaf_size"] = 1 << 20


# --- refits --------------------------------------------------------------------------------------


def set_parameter(model, name, value):
    for entry in model["estimators"]:
        for pair in entry.get("parameters", {}).get("dict", []):
            if pair[0] == name:
                pair[1] = value


@aimed(TOO_MUCH)
@native(made_of("IForest", 5, max_samples=8), "full", larger_is="anomalous")
def refits_of_a_billion_trees(model, members):
    set_parameter(model, "n_estimators", 10**9)


@aimed(TOO_MUCH)
@native(made_of("INNE", 5, max_samples=4), "full", n=3_000, larger_is="anomalous")
def refits_of_spheres_around_all_rows(model, members):
    set_parameter(model, "n_estimators", 5_000)
    set_parameter(model, "max_samples", 1.0)


@aimed(TOO_MUCH)
@native(made_of("IForest", 5, max_samples=8), "auto")
def refits_for_many_rows(model, members):
    set_parameter(model, "n_estimators", 10**8)


@aimed(TOO_MUCH)
@native(made_of("LOF", n_neighbors=3, scale="robust"), "full", n=6_000)
def refits_with_all_neighbours(model, members):
    set_parameter(model, "n_neighbors", 5_999)


def _labelled():
    from reconform.detectors import KNN
    from reconform.detectors.prepared import Prepared

    return Prepared(KNN(n_neighbors=3), (0, 0, 3))


@aimed(TOO_MUCH)
@native(_labelled, "full")
def labels_by_the_million(model, members):
    for entry in model["estimators"]:
        if "labels" in entry:
            entry["labels"] = [0, 0, 1 << 23]


# --- detectors in detectors ----------------------------------------------------------------------


def replace_detector(model, entries):
    """Let the detector be the last of these, numbered after those that there are."""
    first = len(model["estimators"])
    model["estimators"] += [entry(first + k) for k, entry in enumerate(entries)]
    model["detector"] = {"estimator": len(model["estimators"]) - 1}


KNN_ENTRY = {"native": "KNN", "parameters": {"dict": []}}


@aimed(r"sklearn.pipeline.Pipeline.*trusted=True")
@native(made_of("KNN", n_neighbors=3), "full", larger_is="anomalous")
def pipelines_that_share_their_steps(model, members):
    steps = {"parameters": {"dict": []}}
    twice = [lambda k: {"pipeline": [["a", k - 1], ["b", k - 1]], **steps}] * 45
    replace_detector(model, [lambda k: KNN_ENTRY, *twice])
    model["ensemble"]["models"]["algorithm"]["template"] = model["detector"]["estimator"]


@aimed("too many parts")
@native("knn")
def choices_that_share_their_candidates(model, members):
    plain = {"native": "Auto", "parameters": {"dict": []}}
    twice = [lambda k: {**plain, "candidates": [k - 1, k - 1]}] * 45
    replace_detector(model, [lambda k: KNN_ENTRY, *twice])


@aimed("no array 'none'|too many parts")
@native("knn")
def prepared_that_share_what_they_prepare(model, members):
    fit = {"units": "none", "offset": 0.0, "n_features": 3, "feature_names": None}
    twice = [
        lambda k: {"prepared": k - 1, "labels": [0, 0, 0], "contamination": 0.1,
                   "fit": {**fit, "detector": k - 1}}
    ] * 45  # fmt: skip
    replace_detector(model, [lambda k: KNN_ENTRY, *twice])


@aimed("recursion|too many parts")
@native("knn")
def frozen_in_frozen(model, members):
    replace_detector(model, [lambda k: KNN_ENTRY, *[lambda k: {"frozen": k - 1}] * 20_000])


@aimed("recursion|too many parts")
@native("knn")
def prepare_in_prepare(model, members):
    one = [lambda k: {"prepare": k - 1, "categories": [], "distance_based": None}]
    replace_detector(model, [lambda k: KNN_ENTRY, *one * 900])


@aimed("no known kind")
@native("knn")
def a_detector_in_itself(model, members):
    replace_detector(model, [lambda k: {"frozen": k}])


# --- JSON ----------------------------------------------------------------------------------------


@aimed("recursion|damaged")
@native("knn")
def values_in_values(model, members):
    value = 1
    for _ in range(400):
        value = {"tuple": [value]}
    model["parameters"] = {"dict": [["random_state", value]]}


def text_of(name, text):
    """Write this text as a member, whatever stood there."""

    def make(path):
        native("knn")(lambda model, members: None)(path)
        members = members_of(path)
        forge(
            path,
            {**members, name: text()},
            json.loads(members["manifest.json"]),
            compression=zipfile.ZIP_STORED,
        )

    return make


AIMED["deep_brackets"] = "recursion|damaged", text_of("model.json", lambda: b"[" * 300_000)
AIMED["very_many_lists"] = (
    "times as many|damaged",
    text_of("model.json", lambda: b"[" + b"[]," * 5_000_000 + b"[]]"),
)
AIMED["lists_that_are_just_allowed"] = (
    "damaged",
    text_of(
        "model.json",
        lambda: b"[" + b"[],{}," * 600_000 + b'"' + os.urandom(400_000).hex().encode() + b'"]',
    ),
)
AIMED["a_number_of_a_million_digits"] = (
    "digits",
    text_of("model.json", lambda: b'{"n": ' + b"9" * 50_000 + b"}"),
)
AIMED["a_number_beyond_all"] = "larger than", text_of("model.json", lambda: b'{"n": 1e999}')
AIMED["no_number"] = "is not JSON", text_of("model.json", lambda: b'{"n": NaN}')
AIMED["text_that_is_none"] = "damaged", text_of("model.json", lambda: b"\xff\xfe\x00")
AIMED["a_name_twice"] = "twice", text_of("model.json", lambda: b'{"n": 1, "n": 2}')


@aimed("seed is too long|pool of a seed|damaged")
@native("knn")
def a_seed_of_very_many_words(model, members):
    seed = {"seed": [[1] * 100_000, {"tuple": []}, 4]}
    model["parameters"] = {"dict": [["random_state", seed]]}


@aimed("pool of a seed")
@native("knn")
def a_seed_with_a_large_pool(model, members):
    model["parameters"] = {"dict": [["random_state", {"seed": [1, {"tuple": []}, 1 << 30]}]]}


@aimed("number of features|damaged")
@native("knn")
def features_by_the_billion(model, members):
    model["n_features"] = 1 << 40


@aimed("to read")
@native("knn")
def an_array_in_two_places(model, members):
    model["reference_sample"] = model["ensemble"]["calibration"]


@aimed("no array")
@native("knn")
def an_array_of_another_file(model, members):
    model["reference_sample"] = "../../etc/passwd"


# --- arrays --------------------------------------------------------------------------------------


def header(text, data=b"", length=None):
    """An array with any header."""
    body = text.encode("latin-1")
    body += b" " * (-(len(body) + 11) % 64) + b"\n"
    size = len(body) if length is None else length
    return b"\x93NUMPY\x01\x00" + size.to_bytes(2, "little") + body + data


def array_of(make_array):
    def edit(model, members):
        members["reference_sample.npy"] = make_array()

    return native("knn")(edit)


def described(descr, shape, data=b"", order="False"):
    return lambda: header(
        f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}", data
    )


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
    "a_header_without_end": lambda: header("{" + " " * 60_000, length=65_535),
    "a_hollow_array": lambda: zeros(1 << 40, 0),
    "bytes_that_are_no_array": lambda: b"\x80\x04\x95" + bytes(100),
    "nothing": lambda: b"",
}
for name, make_array in ARRAYS.items():
    AIMED[name] = "damaged", array_of(make_array)


@aimed(f"{TOO_MUCH}|damaged")
@native("iforest", "jackknife+")
def hollow_arrays_by_the_dozen(model, members):
    hollow = zeros(1 << 24, 0)
    model["parameters"] = {"dict": [[f"p{k}", {"array": f"hollow/{k}.npy"}] for k in range(50)]}
    members.update((f"hollow/{k}.npy", hollow) for k in range(50))


# --- the zip -------------------------------------------------------------------------------------


def small_file(path):
    native("knn")(lambda model, members: None)(path)
    return members_of(path), json.loads(members_of(path)["manifest.json"])


def bomb(path):
    members, manifest = small_file(path)
    forge(path, {**members, "bomb.npy": bytes(1 << 26)}, manifest)


def bomb_in_place(path):
    """Rows that compress a thousandfold, where rows belong."""
    members, manifest = small_file(path)
    forge(path, {**members, "reference_sample.npy": zeros(1 << 20, 3)}, manifest)


def too_many_members(path):
    members, manifest = small_file(path)
    many = {f"m/{k}.npy": b"" for k in range(70_000)}
    forge(path, {**members, **many}, manifest, compression=zipfile.ZIP_STORED)


def names(*more):
    def make(path):
        members, manifest = small_file(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            forge(path, members, manifest, more=[(name, b"1") for name in more])

    return make


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


def cut_short(path):
    small_file(path)
    path.write_bytes(path.read_bytes()[:-200])


def larger_than_it_says(path):
    """A member that is longer than the directory, and the manifest, say."""
    members, manifest = small_file(path)
    long = zeros(2_000, 3)
    members["reference_sample.npy"] = long
    forge(path, members, manifest)
    said = json.loads(members_of(path)["manifest.json"])
    said["members"]["reference_sample.npy"]["bytes"] = 100
    forge(path, members, said, sums=False)
    truth = len(long).to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace(truth, (100).to_bytes(4, "little")))


def manifest_without_end(path):
    members, manifest = small_file(path)
    forge(path, members, {**manifest, "extras": {"x": "y" * (1 << 25)}})


ZIPS = {
    bomb: "times as many",
    bomb_in_place: "times as many",
    too_many_members: "members",
    overlapping: "model",
    quoted: "no reconform model",
    cut_short: "no reconform model|ends too soon",
    larger_than_it_says: "damaged",
    manifest_without_end: "times as many|larger than",
}
for make in ZIPS:
    AIMED[make.__name__] = ZIPS[make], make
NAMES = {
    "a_name_that_climbs": ("../evil.npy",),
    "a_name_from_the_root": ("/etc/passwd.npy",),
    "a_name_in_other_letters": ("r\u0435ference.npy",),  # a Cyrillic e
    "a_name_that_turns_around": ("a\u202eypn.npy",),
    "a_name_with_a_nul": ("a\x00.npy",),
    "a_name_for_two": ("model.json", "model.json"),
    "a_name_without_end": ("a" * 60_000 + ".npy",),
}
for name, more in NAMES.items():
    AIMED[name] = "is called|same name|not those", names(*more)


# --- the child -----------------------------------------------------------------------------------


def kilobytes(line):
    with open("/proc/self/status") as status:
        return next(int(row.split()[1]) for row in status if row.startswith(line))


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
    """Answer numbers that come in, one line each: of the generators, in their order."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    warnings.simplefilter("ignore")
    from reconform.statistics.ranks import Calibration

    every = list(AIMED.values())
    path = Path(sys.argv[2]) / f"{os.getpid()}.rcad"
    fingerprint = Calibration.fingerprint
    for line in sys.stdin:
        _, number = map(int, line.split())
        Calibration.fingerprint = fingerprint
        every[number][1](path)
        Calibration.fingerprint = property(lambda self: FINGERPRINT)
        limit = (kilobytes("VmSize") << 10) + BACKSTOP_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        before, start = kilobytes("VmRSS"), time.process_time()
        try:
            said = try_one(path)
        except BaseException:
            said = {"end": "raised", "said": traceback.format_exc(limit=-6)}
        said["seconds"] = time.process_time() - start
        said["megabytes"] = (kilobytes("VmHWM") - before) / 1024
        said["bytes"] = path.stat().st_size
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
        print(json.dumps(said), file=answers, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        work()
    else:
        for name, (_, make) in AIMED.items():
            make(Path(sys.argv[1]) / f"{name}.rcad")
