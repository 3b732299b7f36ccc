"""The report on a file: `reconform.report` with everything that a file can tell it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..files import InputError, Layout, Table, open_batches
from ..judge import Judgement
from ..report import report
from .flagged import labelled
from .output import Voice

# All features of the new rows are in memory while a report is made, up to this many cells.
MOST_CELLS = 10_000_000


def write_page(
    voice: Voice,
    judgement: Judgement,
    target: str,
    *,
    path: str,
    layout: Layout,
    ids: Sequence[str],
    reference: Table | None,
    overwrite: bool,
) -> None:
    """Write the page; say what it could not be given."""
    rows = None
    if reference is not None:
        why = _no_features(judgement, path, reference)
        if why:
            voice.warn(f"The report names no unusual features: {why}.")
        else:
            rows = _read_features(judgement, path, layout, reference)
    found = judgement.to_discoveries()
    labels: Any = found.index
    if labels is None:
        labels = range(1, judgement.tested + 1)
    elif len(ids) > 1:
        labels = [", ".join(map(str, several)) for several in labels]
    report(
        found,
        target,
        rows=rows,
        reference=None if reference is None else labelled(reference.X, reference.features),
        ids=labels,
        title=f"Anomalies in {Path(judgement.path).name}",
        overwrite=overwrite,
    )


def _no_features(judgement: Judgement, path: str, reference: Table) -> str | None:
    if not Path(path).is_file():
        return f"{judgement.path} can be read only once"
    cells = judgement.tested * len(reference.features)
    if cells > MOST_CELLS:
        return f"{judgement.path} has {cells:,} cells, and at most {MOST_CELLS:,} are looked at"
    return None


def _read_features(judgement: Judgement, path: str, layout: Layout, reference: Table) -> Any:
    """Read the features of all new rows, for a third and last time."""
    with open_batches(path, reference.features, layout=layout) as batches:
        tables = [
            labelled(batches.matrix(table)[0], reference.features, table)
            for table in batches.tables(reference.names)
        ]
    rows = pa.concat_tables(tables)
    if rows.num_rows != judgement.tested:
        raise InputError(path, "the file changed while it was judged; run again.")
    return rows
