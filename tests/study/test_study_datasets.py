"""Data sets: the user's own, those of the paper, and what goes wrong."""

import shutil
from pathlib import Path

import numpy as np
import paper_data
import pytest
from paper_data import REGISTRY, load

from reconform.study.subjects import make_dataset, resolve_datasets
from refusals import refused

# rows, features, outliers: as listed beside the files.
SHAPES = {
    "wbc": (223, 9, 10),
    "ionosphere": (351, 32, 126),
    "wdbc": (367, 30, 10),
    "breast": (683, 9, 239),
    "musk": (3062, 166, 97),
    "thyroid": (3772, 6, 93),
    "satellite": (6435, 36, 2036),
    "mammography": (11183, 6, 260),
}

X = np.array([[1.0, 2.0], [3.0, 4.5], [9.0, -1.0]])
Y = np.array([0, 0, 1])


@pytest.fixture
def served(data_folder, tmp_path, monkeypatch):
    """A file in place of those of GitHub, an empty home, and no folder that is named."""
    monkeypatch.delenv("RECONFORM_DATA", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    shutil.copy(data_folder / "42_WBC.npz", tmp_path)
    monkeypatch.setattr(paper_data, "BASE_URL", f"{tmp_path.as_uri()}/")
    return tmp_path / "42_WBC.npz"


@pytest.mark.parametrize("name", REGISTRY)
def test_the_papers_data_sets(name, data_folder):
    data = load(name)
    assert (data.name, *data.X.shape, data.y.sum()) == (name, *SHAPES[name])
    assert (data.X.dtype, data.y.dtype) == (np.float64, bool)
    assert np.isfinite(data.X).all()


def test_a_download_is_checked_and_kept(served):
    digest = load("wbc").digest
    served.chmod(0o644)
    served.write_bytes(b"not the file")
    assert load("wbc").digest == digest
    (Path.home() / ".cache" / "reconform" / "42_WBC.npz").unlink()
    refused(r"42_WBC\.npz is not the file .* SHA-256 sum is", load, "wbc", error=SystemExit)
    assert not list(Path.home().rglob("*.npz"))


def test_a_folder_without_the_file(tmp_path, monkeypatch):
    monkeypatch.setenv("RECONFORM_DATA", str(tmp_path))
    refused(r"there is no .*25_musk\.npz", load, "musk", error=SystemExit)
    refused("none of the paper's data sets: wbc", load, "tyroid", error=SystemExit)


def test_addresses_are_pinned():
    assert paper_data.BASE_URL.startswith("https://raw.githubusercontent.com/Minqi824/ADBench/")
    assert paper_data.COMMIT in paper_data.BASE_URL
    assert all(len(digest) == 64 for _, digest in REGISTRY.values())


def test_bad_sources():
    for call, told in (
        (lambda: resolve_datasets([7]), "got int"),
        (lambda: resolve_datasets([("mine", X, Y)] * 2), "'mine' more than once"),
        (lambda: resolve_datasets(["a.csv"]), r"must be \(name, X, y\).*; got str"),
        (lambda: make_dataset("mine", X, Y[:2]), "X has 3 rows and y has shape"),
        (lambda: make_dataset("mine", X[:, 0], Y), r"two dimensions.* got shape \(3,\)"),
        (lambda: make_dataset("mine", X, [0, 2, 1]), "got 0, 1, 2"),
        (lambda: make_dataset("mine", X, ["good", "good", "bad"]), "got 'bad', 'good'"),
        (lambda: make_dataset("mine", X, Y * 0), "two normal rows and one outlier; got 3 and 0"),
        (lambda: make_dataset("mine", [["a"], ["b"], ["c"]], Y), "X must be numbers"),
    ):
        refused(told, call)
    data = make_dataset("bytes", np.array([[1], [3], [255]], dtype=np.uint8), Y)
    assert data.X[0, 0] - data.X[1, 0] == -2.0  # small integers become floats
