"""Data sets: the user's own, those of the paper, and what goes wrong."""

import shutil
from pathlib import Path

import numpy as np
import paper_data
import pytest
from paper_data import REGISTRY, load

from reconform.study.datasets import make_dataset, read, resolve_datasets
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


def test_three_formats_are_the_same_data(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    np.savez(tmp_path / "a.npz", X=X, y=Y)
    (tmp_path / "b.csv").write_text("u,fault,v\n1,0,2\n3,0,4.5\n9,1,-1\n")
    table = pa.table({"u": [1, 3, 9], "v": [2.0, 4.5, -1.0], "fault": [False, False, True]})
    parquet.write_table(table, tmp_path / "c.parquet")
    sources = [tmp_path / "a.npz", str(tmp_path / "b.csv"), tmp_path / "c.parquet", ("d", X, Y)]
    found = resolve_datasets(sources, label="fault")
    assert [data.name for data in found] == ["a", "b", "c", "d"]
    assert len({data.digest for data in found}) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("u,label\n1,0\n3,\n9,1\n", "1 rows have no label"),
        ("u,label\n1,0\n3,2\n9,1\n", "got '0', '1', '2'"),
        ("u,label\n1,good\n3,good\n9,bad\n", "got 'bad', 'good'"),
        ("u,label\n1,0\n3,0\n", "two normal rows and one outlier; got 2 and 0"),
        ("label\n0\n0\n1\n", "no column is left to use"),
        ("u,label\n1,0\n3\n", "line 3"),
    ],
)
def test_bad_tables(tmp_path, text, told):
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ValueError) as error:
        read(tmp_path / "a.csv")
    assert told in str(error.value)


def test_missing_values_are_kept(tmp_path):
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    (tmp_path / "a.csv").write_text("u,v,label\n1,1,0\n,2,0\n9,3,1\n")
    X = read(tmp_path / "a.csv").X
    assert np.isnan(X).tolist() == [[False, False], [True, False], [False, False]]


def test_bad_npz(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, X=X, labels=Y)
    refused("must hold the arrays 'X' and 'y'; it holds X, labels", read, path)
    path.write_bytes(b"PK damaged")
    refused(r"a\.npz' cannot be read", read, path)
    np.savez(path, X=np.array([[print]] * 3, dtype=object), y=Y)  # pickled: not executed
    refused("cannot be read", read, path)


def test_bad_sources(tmp_path):
    for name in ("a.csv", "a.npz"):
        with pytest.raises((FileNotFoundError, ValueError), match="no such file"):
            resolve_datasets([tmp_path / name])
    (tmp_path / "b.csv").write_text("u,fault\n1,0\n3,0\n9,1\n")
    for call, told in (
        (lambda: read(tmp_path / "a.docx"), r"must be an \.npz file, or a table"),
        (lambda: read(tmp_path / "b.csv", label="faulty"), r"no column 'faulty'.*mean 'fault'\?"),
        (lambda: resolve_datasets([7]), "got int"),
        (lambda: resolve_datasets([("mine", X, Y)] * 2), "'mine' more than once"),
        (lambda: resolve_datasets("a.csv"), r"Say datasets=\['a.csv'\]"),
        (lambda: make_dataset("mine", X, Y[:2]), "X has 3 rows and y has shape"),
        (lambda: make_dataset("mine", X[:, 0], Y), r"two dimensions.* got shape \(3,\)"),
        (lambda: make_dataset("mine", [["a"], ["b"], ["c"]], Y), "X must be numbers"),
    ):
        refused(told, call)
    data = make_dataset("bytes", np.array([[1], [3], [255]], dtype=np.uint8), Y)
    assert data.X[0, 0] - data.X[1, 0] == -2.0  # small integers become floats
