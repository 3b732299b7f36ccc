"""Labelled rows that a study draws from: arrays, frames, files and queries."""

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
from ..errors import InputError, ReconformError
from ..files import Layout, TableOptions, read_labelled
from ..files.reading import USUAL
from ..frames import frame_as_it_is
from ..intake import Coded, preparing
from ..tables import Feature
from .subjects import as_list, check_labels


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
    categories: Sequence[str | int] = (),
) -> Dataset:
    """Check rows and labels, and turn them into float64 and bool.

    Parameters
    ----------
    name : str
    X : array-like or frame of shape (n, d)
        Numbers of any type; in a frame also text, dates and missing values, for which detectors
        are prepared. They become float64: ADBench stores some as uint8, and differences of those
        wrap around.
    y : array-like of shape (n,)
        1 or True for outliers, 0 or False for normal rows.
    categories : sequence
        Columns of numbers that are only labels.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> make_dataset("mine", [[1, 2], [3, 4], [90, 90]], [0, 0, 1])
    Dataset('mine', rows=3, features=2, outliers=1)
    """
    features = None
    X = frame_as_it_is(X)
    prepare = Prepare("knn", categories=categories) if categories else preparing("knn", X)
    if prepare is not None:
        features = prepare.features_of(X)
        coded = Coded(features)
        X = coded.read(BaseEstimator(), X, reset=True, least=2, finite="allow-nan")
    try:
        rows = np.ascontiguousarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ReconformError(f"data set {name!r}: X must be numbers; {error}.") from error
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


def read(
    path: str | os.PathLike[str],
    *,
    label: str = "label",
    name: str | None = None,
    options: TableOptions = USUAL,
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
        _check_unused(options, name)
        if not path.is_file():
            raise FileNotFoundError(f"data set {str(path)!r}: there is no such file.")
        return _read_npz(path, name)
    if not _is_table(path, options.layout):
        raise ReconformError(
            f"data set {str(path)!r} must be an .npz file, or a table whose name ends in .csv, "
            ".tsv, .parquet or .arrow."
        )
    return _read_table(path, label, name, options)


def resolve_datasets(
    sources: Iterable[Any],
    label: str = "label",
    *,
    options: TableOptions = USUAL,
) -> list[Dataset]:
    """Turn whatever names data sets into them: paths, ``(name, X, y)``, `Dataset` objects.

    Examples
    --------
    >>> resolve_datasets([("mine", [[1], [2], [90]], [0, 0, 1])])
    [Dataset('mine', rows=3, features=1, outliers=1)]
    """
    datasets = [_resolve(source, label, options) for source in as_list("datasets", sources)]
    check_labels("datasets", [dataset.name for dataset in datasets])
    return datasets


def _resolve(source: Any, label: str, options: TableOptions) -> Dataset:
    if isinstance(source, Dataset):
        return source
    if isinstance(source, str | os.PathLike):
        return read(source, label=label, options=options)
    if isinstance(source, Sequence) and len(source) == 3 and isinstance(source[0], str):
        return make_dataset(*source, categories=options.categories)
    raise ReconformError(
        "a data set must be the path of an .npz, .csv or .parquet file, or (name, X, y); got "
        f"{type(source).__name__}."
    )


def _is_table(path: str | os.PathLike[str], layout: Layout | None) -> bool:
    """Whether the name is that of a table."""
    try:
        (layout or Layout()).format_of(os.fspath(path))
    except InputError:
        return False
    return True


def _read_npz(path: Path, name: str) -> Dataset:
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
    return make_dataset(name, X, y)


def _read_table(path: str | Path, label: str, name: str, options: TableOptions) -> Dataset:
    table, anomalous = read_labelled(path, label, options)
    checked = make_dataset(name, table.X, anomalous)
    features = table.features if table.prepared else None
    return Dataset(name, checked.X, checked.y, features)


def _check_unused(options: TableOptions, name: str) -> None:
    """Refuse the names of columns for data that has none."""
    given = [n for n in ("columns", "drop", "id_columns", "categories") if getattr(options, n)]
    if given:
        raise ReconformError(
            f"data set {name!r} has no column names for `{given[0]}` to name: it is for tables in "
            "files."
        )
