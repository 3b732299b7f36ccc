"""`read_labelled`: a table with a column that says which rows are anomalies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..arrays import BoolArray
from ..detectors.prepare import Feature
from ..errors import InputError, ReconformError, listed, nearest
from ..frames import label_code
from .cells import Fingerprint, numbers, texts
from .formats import FORMATS, Layout
from .reading import Table, missing_counts, read_reference
from .source import open_source, opened_once

MOST_SHOWN = 5


@dataclass(frozen=True)
class TableOptions:
    """Which columns of a table are used, and how: what `read_reference` takes, as a value.

    Attributes
    ----------
    columns : sequence of str or None
        Use these columns only.
    drop : sequence of str
        Leave these columns out.
    id_columns : sequence of str
        Identifiers or times: never used.
    prepare : bool
        Take text as categories and let values be missing; see `reconform.Prepare`.
    categories : sequence of str
        Columns of numbers that are only labels; with `prepare`.
    layout : Layout or None
        How text files are written, where their names do not say it.
    """

    columns: Sequence[str] | None = None
    drop: Sequence[str] = ()
    id_columns: Sequence[str] = ()
    prepare: bool = False
    categories: Sequence[str] = ()
    layout: Layout | None = None

    def __post_init__(self) -> None:
        if self.categories and not self.prepare:
            raise ReconformError("`categories` are encoded by `prepare=True`: give it too.")


AS_THEY_ARE = TableOptions()


def read_labelled(
    path: str | Path,
    label: str,
    options: TableOptions = AS_THEY_ARE,
    *,
    allow_missing: bool | None = None,
) -> tuple[Table, BoolArray]:
    r"""Read a file of rows with labels; the labels are no feature.

    Parameters
    ----------
    path : str or Path
    label : str
        The column of labels: 1 or true for anomalies, 0 or false for normal rows.
    options : TableOptions
    allow_missing : bool, optional
        Whether missing values may pass; by default with `prepare` only.

    Returns
    -------
    table : Table
        All rows.
    anomalous : bool array of shape (rows,)

    Raises
    ------
    InputError
        With a sentence that says what is wrong, where, and what to do.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "pumps.csv")
    >>> _ = path.write_text("flow,broken\n3.5,0\n3.75,0\n9.5,1\n")
    >>> table, anomalous = read_labelled(path, "broken")
    >>> table.names, anomalous.tolist()
    (('flow',), [False, False, True])
    >>> len(normal_rows(table, anomalous))
    2
    >>> folder.cleanup()
    """
    layout = options.layout or Layout()
    with opened_once():  # a query runs once
        with open_source(path, layout) as source:
            names = source.schema.names
            if label not in names:
                raise InputError(
                    source.label,
                    f"it has no column {label!r} of labels; `label` names the column."
                    f"{nearest(label, names)} It has {listed(names)}.",
                    column=label,
                )
        table = read_reference(
            path,
            columns=options.columns,
            drop=[name for name in options.drop if name != label],
            id_columns=[*options.id_columns, label],
            prepare=options.prepare,
            categories=options.categories,
            allow_missing=allow_missing,
            layout=layout,
        )
    return table, _anomalous(table, label, layout, FORMATS[layout.format_of(path)].is_text)


def normal_rows(table: Table, anomalous: BoolArray) -> Table:
    """Keep the normal rows, as if there were no others in the file.

    Parameters
    ----------
    table : Table
    anomalous : bool array of shape (rows,)

    Returns
    -------
    Table
    """
    X = table.X[~anomalous]
    features = list(table.features)
    for j, feature in enumerate(features):
        if feature.labels is not None:  # a label that only anomalies have is not known
            there = set(X[:, j].tolist())
            labels = tuple(label for label in feature.labels if label_code(label) in there)
            features[j] = Feature(feature.name, labels)
    return replace(
        table,
        X=X,
        features=tuple(features),
        ids=None if table.ids is None else table.ids.filter(~anomalous),
        missing=missing_counts(X, features),
        fingerprint=Fingerprint(features).add(X).hexdigest(),
    )


def _anomalous(table: Table, label: str, layout: Layout, is_text: bool) -> BoolArray:
    cells = table.ids[label]
    values, unreadable = numbers(cells, layout, parse=is_text)
    missing = np.isnan(values) & ~unreadable
    if missing.any():
        raise InputError(
            table.path,
            f"{int(missing.sum()):,} rows have no label in column {label!r}; label them or leave "
            "them out.",
            column=label,
        )
    if unreadable.any() or not np.isin(values, (0, 1)).all():
        found = texts(cells, layout, parse=is_text).unique().to_pylist()
        shown = ", ".join(map(repr, sorted(found)[:MOST_SHOWN]))
        shown += ", ..." if len(found) > MOST_SHOWN else ""
        raise InputError(
            table.path,
            f"column {label!r}: labels must be 0 or false for normal rows and 1 or true for "
            f"anomalies; got {shown}.",
            column=label,
        )
    anomalous: BoolArray = values == 1
    if (~anomalous).sum() < 2:
        raise InputError(
            table.path,
            f"{int((~anomalous).sum())} of its rows are labelled normal in column {label!r}, and "
            "at least two are needed.",
            column=label,
        )
    return anomalous
