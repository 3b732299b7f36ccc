"""The report on a file: `reconform.report` with everything that a file can tell it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..files import Table
from ..files.judge import FileDiscoveries
from ..report import report
from .flagged import labelled
from .output import Voice

# All features of the new rows are in memory while a report is made, up to this many cells.
MOST_CELLS = 10_000_000


def write_page(
    voice: Voice,
    judgement: FileDiscoveries,
    target: str,
    *,
    ids: Sequence[str],
    reference: Table | None,
    overwrite: bool,
) -> None:
    """Write the page; say what it could not be given."""
    rows = None
    if reference is not None:
        if judgement.rows is None:
            cells = judgement.tested * len(reference.features)
            voice.warn(
                f"The report names no unusual features: {judgement.path} has {cells:,} cells, and "
                f"at most {MOST_CELLS:,} are looked at."
            )
        else:
            rows = labelled(judgement.rows.X, reference.features, judgement.rows.table)
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
