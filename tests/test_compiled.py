"""Compiled code where its cache cannot be written, is damaged, or does not fit on the disk."""

import os
import pickle
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import reconform

SOURCE = Path(reconform.__file__).parent

# Imports what the commonest command needs, runs a kernel, and asks for help.
PROGRAM = """
import logging, resource, signal, sys
if len(sys.argv) > 1:  # files that are larger fail with an OSError, as on a full disk
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
logging.basicConfig(format="LOG %(message)s", stream=sys.stdout)
import reconform.cli.detect
from reconform.randomness import mix, uniform
print("result", mix(10), uniform(12345))
reconform.cli.main(["--help"])
"""


def run(source, *arguments, **variables):
    """Run the program on a copy of the package; return the result and the lines of its log."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(source), "HOME": "/dev/null"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**environment, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: " in done.stdout
    lines = done.stdout.splitlines()
    of = {kind: [one for one in lines if one.startswith(kind)] for kind in ("result ", "LOG ")}
    return of["result "], of["LOG "]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the package whose folders have no place for a cache."""
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(SOURCE, copy / "reconform", ignore=lambda *_: ["__pycache__"])
    for folder in [*copy.rglob("*/"), copy]:
        (folder / "__pycache__").touch()
    return copy


@pytest.fixture(scope="module")
def good(copy, tmp_path_factory):
    """What it prints with a good cache, and that cache."""
    cache = tmp_path_factory.mktemp("cache")
    result, log = run(copy, NUMBA_CACHE_DIR=str(cache))
    assert not log
    assert list(cache.rglob("*.nbc"))
    return result, cache


def test_no_place_for_a_cache(copy, good):
    result, log = run(copy)
    assert (result, len(log)) == (good[0], 1)
    assert "NUMBA_CACHE_DIR" in log[0]


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_cache_files_that_are_cut_short(copy, good, tmp_path, suffix, share):
    result, cache = good
    place = shutil.copytree(cache, tmp_path / "cache")
    whole = {file: file.stat().st_size for file in place.rglob(f"*.{suffix}")}
    for file, size in whole.items():
        os.truncate(file, int(share * size))
    assert run(copy, NUMBA_CACHE_DIR=str(place)) == (result, [])
    assert {file: file.stat().st_size for file in whole} == whole, "they are whole again"


@pytest.mark.parametrize("other", ["version of Numba", "processor"])
def test_a_cache_of_another_machine(copy, good, tmp_path, other):
    """It is neither used nor in the way: an image that was warmed elsewhere, an upgrade."""
    result, cache = good
    place = shutil.copytree(cache, tmp_path / "cache")
    for index in place.rglob("*.nbi"):
        with index.open("rb") as file:
            version, rest = pickle.load(file), file.read()
        stamp, overloads = pickle.loads(rest)
        if other == "processor":
            old = ("x86_64", "old", "-avx2")
            overloads = {(key[0], old, *key[2:]): "gone" for key in overloads}
            rest = pickle.dumps((stamp, overloads))
        else:
            version = "0.1"
        index.write_bytes(pickle.dumps(version) + rest)
    assert run(copy, NUMBA_CACHE_DIR=str(place)) == (result, [])


@pytest.mark.slow
def test_many_processes_fill_one_cache_at_once(copy, good, tmp_path):
    def start(_):
        return run(copy, NUMBA_CACHE_DIR=str(tmp_path))

    with ThreadPoolExecutor(4) as together:
        assert list(together.map(start, range(4))) == [(good[0], [])] * 4
    assert run(copy, NUMBA_CACHE_DIR=str(tmp_path)) == (good[0], [])
    assert not list(tmp_path.rglob("*.tmp.*"))


def test_a_home_that_nobody_set(copy, good):
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(copy)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert good[0][0] in done.stdout


def test_a_full_disk(copy, good, tmp_path):
    result, log = run(copy, "100", NUMBA_CACHE_DIR=str(tmp_path))
    assert (result, len(log)) == (good[0], 1)
    assert not list(tmp_path.rglob("*.tmp.*"))


def test_no_other_module_has_a_cache_that_raises():
    for path in SOURCE.rglob("*.py"):
        if path.name != "compiled.py":
            assert not re.search(r"from numba import .*jit|numba\.n?jit", path.read_text()), path


@pytest.mark.slow
def test_what_is_compiled_ahead_is_not_compiled_again(tmp_path):
    """After `reconform warm`, an ordinary list adds nothing to the cache."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-m", "reconform", "warm"], env=environment, check=True)
    kept = sorted(tmp_path.rglob("*.nb?"))
    assert kept
    program = "import numpy as np; from reconform import ConformalDetector; "
    program += "X = np.random.default_rng(1).normal(size=(400, 6)); "
    program += "ConformalDetector(random_state=0).fit(X[:300]).discover(X[300:])"
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], env=environment, check=True)
    assert sorted(tmp_path.rglob("*.nb?")) == kept
