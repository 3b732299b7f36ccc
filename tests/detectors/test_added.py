"""Detectors of other packages: an entry point, and their name works everywhere."""

import os
import subprocess
import sys

import numpy as np
import pytest

from reconform import ConformalDetector
from reconform.detectors.registry import ADDED, make_detector
from refusals import refused

MODULE = '''
class Farthest:
    """The largest of a row's numbers, without a sign."""

    def __init__(self, power=1):
        self.power = power

    def get_params(self, deep=True):
        return {"power": self.power}

    def set_params(self, **params):
        self.power = params["power"]
        return self

    def fit(self, X, y=None):
        return self

    def score_samples(self, X):
        return -abs(X).max(axis=1) ** self.power
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package as pip leaves it."""
    (tmp_path / "far_detectors.py").write_text(MODULE)
    about = tmp_path / "far_detectors-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: far-detectors\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{ADDED}]\nfarthest = far_detectors:Farthest\n")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_its_name_is_one_of_a_detector(package, rng):
    X, new = rng.normal(size=(300, 2)), np.vstack([rng.normal(size=(20, 2)), [[9, 9]] * 3])
    found = ConformalDetector("farthest", "split", random_state=0).fit(X).discover(new, 0.2)
    assert found.mask[20:].all()
    assert make_detector("farthest", {"power": 2}).power == 2
    refused("farther", ConformalDetector("farther", "split").fit, X)


def test_the_command_line_knows_it(package, rng):
    for name, rows in (("a.csv", 300), ("b.csv", 30)):
        np.savetxt(package / name, rng.normal(size=(rows, 2)), delimiter=",", header="x,y")
    command = [sys.executable, "-m", "reconform", "detect", "a.csv", "b.csv", "--detector"]
    done = subprocess.run(
        [*command, "farthest", "--method", "split"],
        cwd=package,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(package)},
    )
    assert done.returncode == 0, done.stderr
