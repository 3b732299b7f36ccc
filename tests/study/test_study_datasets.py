"""Data sets: the registry, local files, downloads, the user's own, and what goes wrong."""

from __future__ import annotations

import http.server
import shutil
import sys
import threading
from functools import partial

import numpy as np
import pytest

from reconform.study import datasets
from reconform.study.datasets import REGISTRY, load, make_dataset, read, resolve_datasets

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
def no_folder(monkeypatch, tmp_path):
    """Neither RECONFORM_DATA nor a cache from earlier."""
    monkeypatch.delenv("RECONFORM_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def server(data_folder, tmp_path, monkeypatch):
    """A server that has the files, in place of GitHub."""
    pytest.importorskip("pooch", reason="needs reconform[study]")
    files = tmp_path / "served"
    files.mkdir()
    shutil.copy(data_folder / "42_WBC.npz", files)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=files)
    ) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        monkeypatch.setattr(datasets, "BASE_URL", f"http://127.0.0.1:{running.server_port}/")
        yield files
        running.shutdown()


# --- the paper's eight --------------------------------------------------------------------------


@pytest.mark.parametrize("name", REGISTRY)
def test_the_papers_data_sets(name, data_folder):
    data = load(name, data_folder)
    assert (*data.X.shape, data.y.sum()) == SHAPES[name]
    assert data.X.dtype == np.float64
    assert data.y.dtype == bool
    assert np.isfinite(data.X).all()


def test_environment_names_the_folder(data_folder, monkeypatch):
    monkeypatch.setenv("RECONFORM_DATA", str(data_folder))
    assert load("wbc").digest == load("wbc", data_folder).digest


def test_scikit_learns_data_set_needs_no_file(no_folder):
    data = load("breast_cancer")
    assert (*data.X.shape, data.y.sum()) == (569, 30, 212)  # malignant = outlier


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(ValueError, match=r"got 'tyroid'\. Did you mean 'thyroid'\?"):
        load("tyroid")


def test_file_that_is_not_in_the_folder(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        load("musk", tmp_path)
    for told in ("'musk'", "25_musk.npz", str(tmp_path), "RECONFORM_DATA", "download"):
        assert told in str(error.value)


def test_local_file_with_another_sum(tmp_path):
    (tmp_path / "42_WBC.npz").write_bytes(b"not the file")
    with pytest.raises(ValueError, match=r"42_WBC\.npz is not the file .* SHA-256 sum is"):
        load("wbc", tmp_path)


# --- downloads ----------------------------------------------------------------------------------


def test_download_once_and_keep(server, no_folder, data_folder):
    assert load("wbc").digest == load("wbc", data_folder).digest
    (server / "42_WBC.npz").unlink()
    assert load("wbc").digest == load("wbc", data_folder).digest


def test_download_with_another_sum(server, no_folder):
    path = server / "42_WBC.npz"
    path.chmod(0o644)
    path.write_bytes(b"not the file")
    with pytest.raises(ValueError, match=r"42_WBC\.npz is not the file that the study knows"):
        load("wbc")
    assert not list(no_folder.rglob("42_WBC.npz"))


def test_no_network_and_no_file(no_folder, monkeypatch):
    pytest.importorskip("pooch", reason="needs reconform[study]")
    monkeypatch.setattr(datasets, "BASE_URL", "http://127.0.0.1:9/")  # nobody listens
    with pytest.raises(FileNotFoundError) as error:
        load("wbc")
    for told in ("42_WBC.npz", str(no_folder), "127.0.0.1:9", "RECONFORM_DATA", "network"):
        assert told in str(error.value)


def test_no_pooch(no_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match=r"'wbc' needs pooch: pip install 'reconform\[study\]'"):
        load("wbc")


def test_addresses_are_pinned():
    assert datasets.BASE_URL.startswith("https://raw.githubusercontent.com/Minqi824/ADBench/")
    assert datasets.COMMIT in datasets.BASE_URL
    assert all(len(digest) == 64 for _, digest in REGISTRY.values())


# --- the user's own -----------------------------------------------------------------------------


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
        ("u,v,label\n1,red,0\n3,blue,0\n9,red,1\n", "text in 1 column: 'v'"),
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
    assert np.isnan(read(tmp_path / "a.csv").X).tolist() == [
        [False] * 2,
        [True, False],
        [False] * 2,
    ]


def test_bad_npz(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, X=X, labels=Y)
    with pytest.raises(ValueError, match="must hold the arrays 'X' and 'y'; it holds X, labels"):
        read(path)
    path.write_bytes(b"PK damaged")
    with pytest.raises(ValueError, match=r"a\.npz' cannot be read"):
        read(path)
    np.savez(path, X=np.array([[print]] * 3, dtype=object), y=Y)  # pickled: not executed
    with pytest.raises(ValueError, match="cannot be read"):
        read(path)


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
        (lambda: resolve_datasets("wbc"), r"Say datasets=\['wbc'\]"),
        (lambda: make_dataset("mine", X, Y[:2]), "X has 3 rows and y has shape"),
        (lambda: make_dataset("mine", X[:, 0], Y), r"two dimensions.* got shape \(3,\)"),
        (lambda: make_dataset("mine", [["a"], ["b"], ["c"]], Y), "X must be numbers"),
    ):
        with pytest.raises(ValueError, match=told):
            call()
    data = make_dataset("bytes", np.array([[1], [3], [255]], dtype=np.uint8), Y)
    assert data.X[0, 0] - data.X[1, 0] == -2.0  # small integers become floats
