"""The paper's eight data sets, one that ships with scikit-learn, and anyone's own.

The eight are files of ADBench at a pinned commit. They are downloaded when asked for, checked
against their SHA-256 sums and kept; or taken from a local folder, and checked just the same.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from ..arrays import BoolArray, FloatArray, IndexArray
from ..detectors.prepare import Prepare
from ..errors import InputError, ReconformError, unknown_choice
from ..extras import extra
from ..files import Layout, TableOptions, read_labelled
from ..files.reading import AS_THEY_ARE
from ..frames import frame_as_it_is, package_of
from ..intake import Coded
from ..tables import Feature
from .subjects import as_list, check_labels

COMMIT = "3dac8221081e190f157d78e93bfa8867f90d0965"
BASE_URL = (
    f"https://raw.githubusercontent.com/Minqi824/ADBench/{COMMIT}/adbench/datasets/Classical/"
)

# Name in the paper, file, SHA-256; in the order of the paper's Table I.
_FILES = """
wbc 42_WBC.npz 650f9dcb129248f67a291be0974f533ef259fcbde50fce5c8ad2a1cb2652d03b
ionosphere 18_Ionosphere.npz bca46cb0cfd1bf9ddef6cde5ad2215d54fb0189508d0d4c4eb98e788cad69001
wdbc 43_WDBC.npz 78d4606a1ab516f5b60b00c196497f3bbd6bd5e4548fd04cf5f2475209b34b85
breast 4_breastw.npz 4f37ce07dbc25ddad8178fdc6d664ab46d2d0000ee28c2787c3c7ff3c03ef9f6
musk 25_musk.npz 2ed3f4392197b76a1e59116ff880c7720a4b026cf4842073a53b56fdea265017
thyroid 38_thyroid.npz 8de161b3f235b7647bb0b39a836d983ff61d67bf234edac461da2d71e889cb87
satellite 30_satellite.npz 1f048f5686f1b8c16a227fdfa3c81a62cd9a92715714a6b24c69b1c5ad96b46e
mammography 23_mammography.npz a0308ac9712d78321073b1c2dc98dc37665c0f35c1cc33019416fe8f8d7de7ea
"""
REGISTRY: dict[str, tuple[str, str]] = {
    name: (file, digest) for name, file, digest in map(str.split, _FILES.split("\n")[1:-1])
}

# Inside scikit-learn: no download at all.
BUILT_IN = "breast_cancer"


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled rows: what a study draws from.

    Attributes
    ----------
    name : str
    X : float array of shape (n, d)
    y : bool array of shape (n,)
        True for outliers.
    features : tuple of Feature or None
        What the columns are, if detectors are to be prepared for them.
    """

    name: str
    X: FloatArray
    y: BoolArray
    features: tuple[Feature, ...] | None = None

    @property
    def normal(self) -> IndexArray:
        """Positions of the normal rows."""
        return np.flatnonzero(~self.y)

    @property
    def outliers(self) -> IndexArray:
        """Positions of the outliers."""
        return np.flatnonzero(self.y)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of shape, rows and labels: equal exactly when two data sets are the same."""
        digest = hashlib.sha256(str(self.X.shape).encode())
        digest.update(self.X.tobytes())
        digest.update(self.y.tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        rows, features = self.X.shape
        return f"Dataset({self.name!r}, rows={rows}, features={features}, outliers={self.y.sum()})"


def make_dataset(
    name: str,
    X: Any,
    y: npt.ArrayLike,
    *,
    prepare: bool = False,
    categories: Sequence[str | int] = (),
) -> Dataset:
    """Check rows and labels, and turn them into float64 and bool.

    Parameters
    ----------
    name : str
    X : array-like or frame of shape (n, d)
        Numbers of any type. They become float64: ADBench stores some as uint8, and differences
        of those wrap around.
    y : array-like of shape (n,)
        1 or True for outliers, 0 or False for normal rows.
    prepare : bool
        Take text in a frame as categories and let values be missing, as `reconform.Prepare` does.
    categories : sequence
        Columns of numbers that are only labels; with `prepare`.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> make_dataset("mine", [[1, 2], [3, 4], [90, 90]], [0, 0, 1])
    Dataset('mine', rows=3, features=2, outliers=1)
    """
    features = None
    if prepare:
        X = frame_as_it_is(X)
        features = Prepare("knn", categories=categories).features_of(X)
        coded = Coded(features)
        X = coded.read(BaseEstimator(), X, reset=True, least=2, finite="allow-nan")
    try:
        rows = np.ascontiguousarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        way_out = " Use `prepare=True` for text." if package_of(X) is not None else ""
        raise ReconformError(f"data set {name!r}: X must be numbers; {error}.{way_out}") from error
    labels = np.asarray(y)
    if rows.ndim != 2 or not rows.shape[1]:
        raise ReconformError(
            f"data set {name!r}: X must have two dimensions, rows and features; got shape "
            f"{rows.shape}."
        )
    if labels.shape != (len(rows),):
        raise ReconformError(
            f"data set {name!r}: y must have one label per row; X has {len(rows)} rows and y has "
            f"shape {labels.shape}."
        )
    values = np.unique(labels)
    if not set(values.tolist()) <= {0, 1}:  # False == 0 and True == 1
        shown = ", ".join(map(repr, values[:5].tolist())) + (", ..." if len(values) > 5 else "")
        raise ReconformError(
            f"data set {name!r}: labels must be 0 or False for normal rows and 1 or True for "
            f"outliers; got {shown}."
        )
    outliers = labels.astype(bool)
    if len(outliers) - outliers.sum() < 2 or not outliers.any():
        raise ReconformError(
            f"data set {name!r}: a study needs at least two normal rows and one outlier; got "
            f"{int((~outliers).sum())} and {int(outliers.sum())}."
        )
    return Dataset(name, rows, outliers, features)


def load(name: str, data: str | os.PathLike[str] | None = None) -> Dataset:
    """Load one of the paper's data sets, or scikit-learn's ``"breast_cancer"``.

    Parameters
    ----------
    name : str
        ``"wbc"``, ``"ionosphere"``, ``"wdbc"``, ``"breast"``, ``"musk"``, ``"thyroid"``,
        ``"satellite"``, ``"mammography"``; or ``"breast_cancer"`` (benign = normal), which needs
        no file.
    data : path, optional
        Folder with the files. Without it, the folder that the environment variable
        ``RECONFORM_DATA`` names; without that, the files are downloaded once and kept.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> load("breast_cancer")
    Dataset('breast_cancer', rows=569, features=30, outliers=212)
    """
    if name == BUILT_IN:
        from sklearn.datasets import load_breast_cancer

        X, y = load_breast_cancer(return_X_y=True)
        return make_dataset(name, X, y == 0)
    if name not in REGISTRY:
        raise unknown_choice("data set", name, [*REGISTRY, BUILT_IN])
    folder = data if data is not None else os.environ.get("RECONFORM_DATA") or None
    path = _local(name, Path(folder)) if folder is not None else _download(name)
    return _read_npz(path, name)


def read(
    path: str | os.PathLike[str],
    *,
    label: str = "label",
    name: str | None = None,
    options: TableOptions = AS_THEY_ARE,
) -> Dataset:
    r"""Read a data set of the user's own.

    Parameters
    ----------
    path : path
        An ``.npz`` file with ``X`` and ``y``, or a table (CSV, TSV, Parquet, Arrow) with
        a label column; every other column is a feature.
    label : str
        Name of the label column: 1 or True for outliers, 0 or False for normal rows.
    name : str, optional
        What to call it; the file's name by default.
    options : TableOptions
        Which columns are used, and how.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "pumps.csv")
    ...     _ = path.write_text("pressure,label\n1.0,0\n1.1,0\n9.9,1\n")
    ...     read(path)
    Dataset('pumps', rows=3, features=1, outliers=1)
    """
    path = Path(path)
    name = path.name.split(".")[0] if name is None else name
    if path.suffix == ".npz":
        if not path.is_file():
            raise FileNotFoundError(f"data set {str(path)!r}: there is no such file.")
        _check_unused(options, name)
        return _read_npz(path, name, prepare=bool(options.prepare))
    if not _is_table(path, options.layout):
        raise ReconformError(
            f"data set {str(path)!r} must be an .npz file, or a table whose name ends in .csv, "
            ".tsv, .parquet or .arrow."
        )
    return _read_table(path, label, name, options)


def resolve_datasets(
    sources: Iterable[Any],
    data: str | os.PathLike[str] | None = None,
    label: str = "label",
    *,
    options: TableOptions = AS_THEY_ARE,
) -> list[Dataset]:
    """Turn whatever names data sets into them: names, paths, ``(name, X, y)``, `Dataset` objects.

    Examples
    --------
    >>> resolve_datasets([("mine", [[1], [2], [90]], [0, 0, 1])])
    [Dataset('mine', rows=3, features=1, outliers=1)]
    """
    datasets = [_resolve(source, data, label, options) for source in as_list("datasets", sources)]
    check_labels("datasets", [dataset.name for dataset in datasets])
    return datasets


def _resolve(
    source: Any, data: str | os.PathLike[str] | None, label: str, options: TableOptions
) -> Dataset:
    if isinstance(source, Dataset):
        return source
    if isinstance(source, os.PathLike):
        return read(source, label=label, options=options)
    if isinstance(source, str):
        if source.endswith(".npz") or _is_table(source, options.layout):
            return read(source, label=label, options=options)
        _check_unused(options, source)
        known = load(source, data)
        if not options.prepare:
            return known
        return make_dataset(known.name, known.X, known.y, prepare=True)
    if isinstance(source, Sequence) and len(source) == 3 and isinstance(source[0], str):
        return make_dataset(*source, prepare=bool(options.prepare), categories=options.categories)
    raise ReconformError(
        "a data set must be a name such as 'wbc', the path of an .npz, .csv or .parquet file, or "
        f"(name, X, y); got {type(source).__name__}."
    )


def table_path(source: Any, layout: Layout | None) -> str | None:
    """Return the path of a table, if that is what a data set was given as."""
    if not isinstance(source, str | os.PathLike) or str(source).endswith(".npz"):
        return None
    return str(source) if _is_table(source, layout) else None


def _is_table(path: str | os.PathLike[str], layout: Layout | None) -> bool:
    """Whether the name is that of a table, and not of a data set that we know."""
    if str(path) in (*REGISTRY, BUILT_IN):
        return False
    try:
        (layout or Layout()).format_of(os.fspath(path))
    except InputError:
        return False
    return True


def _local(name: str, folder: Path) -> Path:
    file, expected = REGISTRY[name]
    path = folder / file
    if not path.is_file():
        raise _not_there(name, f"{path} does not exist")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != expected:
        raise _corrupted(
            path, f"its SHA-256 sum is {found[:16]}... and should be {expected[:16]}..."
        )
    return path


def _download(name: str) -> Path:
    pooch = extra("pooch", "study", f"Downloading the data set {name!r}")
    file, expected = REGISTRY[name]
    url, cache = BASE_URL + file, pooch.os_cache("reconform")
    try:
        path = pooch.retrieve(url, known_hash=f"sha256:{expected}", fname=file, path=cache)
    except ValueError as error:  # pooch's word for a sum that does not match
        raise _corrupted(url, str(error)) from error
    except Exception as error:  # whatever the network does, the way out is the same
        raise _not_there(
            name, f"it is not in {cache}, and {url} could not be read ({error})"
        ) from error
    return Path(path)


def _not_there(name: str, reason: str) -> FileNotFoundError:
    file, _ = REGISTRY[name]
    return FileNotFoundError(
        f"data set {name!r} needs the file {file}: {reason}. Either put the file into a folder "
        "and name the folder (`data`, or the environment variable RECONFORM_DATA), or unset it and "
        f"connect to the network once, so that it can be downloaded from {BASE_URL}{file}."
    )


def _corrupted(source: object, reason: str) -> ReconformError:
    return ReconformError(
        f"{source} is not the file that the study knows: {reason}. Replace it by the original "
        f"from {BASE_URL}, or give it to the study as a data set of your own, under its path."
    )


def _read_npz(path: Path, name: str, *, prepare: bool = False) -> Dataset:
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [key for key in ("X", "y") if key not in file.files]
            if missing:
                raise ReconformError(
                    f"it must hold the arrays 'X' and 'y'; it holds {', '.join(file.files)}"
                )
            X, y = file["X"], file["y"]
    except Exception as error:  # numpy raises half a dozen kinds for a damaged file
        raise ReconformError(f"data set {str(path)!r} cannot be read: {error}.") from error
    return make_dataset(name, X, y, prepare=prepare)


def _read_table(path: str | Path, label: str, name: str, options: TableOptions) -> Dataset:
    # Some detectors can do with missing values; the others will say it.
    table, anomalous = read_labelled(path, label, options, allow_missing=True)
    checked = make_dataset(name, table.X, anomalous)
    features = table.features if options.prepare else None
    return Dataset(name, checked.X, checked.y, features)


def _check_unused(options: TableOptions, name: str) -> None:
    """Refuse the names of columns for data that has none."""
    given = [n for n in ("columns", "drop", "id_columns", "categories") if getattr(options, n)]
    if given:
        raise ReconformError(
            f"data set {name!r} has no column names for `{given[0]}` to name: it is for tables in "
            "files."
        )
