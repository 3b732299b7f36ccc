"""Columns of labels: labels that the reference does not have, and labels that are gone.

Both tests are Fisher's, on a property of a row that is fixed before the rows are compared: to have
one label, or one of the labels of half of the reference. They are exact for reference rows and
normal new rows that are exchangeable, with at most a stated share of anomalies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..arrays import FloatArray
from ..frames import label_code
from .columns import level_of, lost, missing_findings
from .verdict import Finding

MOST_NAMED = 3
UNSEEN_ADVICE = (
    "If they are only written differently, correct them; if they are normal, take a reference that "
    "has them: until then rows are unusual for their label alone."
)


@dataclass(frozen=True)
class Category:
    """What is known of a column of labels beside the codes of its rows.

    Attributes
    ----------
    labels : tuple of str
        Those of the reference; empty if only codes are known.
    unseen : mapping
        Labels that the reference does not have, some of them if they are very many, and in how
        many rows of the whole batch each is; empty if only codes are known.
    rows : int
        Rows of the whole batch with such a label.
    """

    labels: tuple[str, ...] = ()
    unseen: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0


def label_findings(
    name: str,
    category: Category,
    reference: FloatArray,
    new: FloatArray,
    *,
    normal: int,
    of: int,
    columns: int = 1,
) -> list[Finding]:
    """Look at a column of labels in both files.

    Parameters
    ----------
    name : str
    category : Category
    reference, new : float arrays of shape (n,), (m,)
        Codes of samples, in an order that has nothing to do with what the rows hold; NaN where no
        label is given.
    normal : int
        How many of the new rows in the sample are normal at least; 0 if there are too few rows to
        test anything.
    of : int
        Rows of the whole batch.
    columns : int
        How many columns of labels are looked at: the rates of false alarms are for all of them.

    Returns
    -------
    list of Finding

    Examples
    --------
    >>> import numpy as np
    >>> known, seen = np.arange(100.0) % 2, np.where(np.arange(40) < 30, 7.0, 1.0)
    >>> colour = Category(("blue", "red"), {"mauve": 30}, rows=30)
    >>> print(*label_findings("colour", colour, known, seen, normal=32, of=40))
    Column 'colour' has labels that the reference does not have, in 30 of 40 new rows: 'mauve'
    (30). If they are only written differently, correct them; if they are normal, take a reference
    that has them: until then rows are unusual for their label alone.
    """
    found = missing_findings(name, reference, new, normal, columns) if normal else []
    absent = int(np.isnan(new).sum())
    known, seen = reference[~np.isnan(reference)], new[~np.isnan(new)]
    # Which rows have a label at all is given; those that have none may be normal.
    trials = max(0, normal - absent)
    unseen = _unseen(name, category, known, seen, trials, of, columns)
    if unseen is not None:
        return [*found, unseen]
    gone = _gone(name, category, known, seen, trials, columns)
    return found if gone is None else [*found, gone]


def _unseen(
    name: str,
    category: Category,
    known: FloatArray,
    seen: FloatArray,
    trials: int,
    of: int,
    columns: int,
) -> Finding | None:
    of_reference = [label_code(label) for label in category.labels] or known
    rows = category.rows or int((~np.isin(seen, of_reference)).sum())
    if not rows:
        return None
    # Labels that only new rows have were chosen by looking at them. So a label counts as known if
    # half of the reference has it: a property that the other half and normal new rows share.
    half = len(known) // 2
    listed, others = known[:half], known[half:]
    a, b = int(np.isin(others, listed).sum()), int(np.isin(seen, listed).sum())
    level = level_of(columns * lost(a, len(others), b, trials)) if trials else None
    named = sorted(category.unseen.items(), key=lambda item: (-item[1], item[0]))
    said = ", ".join(f"{label[:40]!r} ({count:,})" for label, count in named[:MOST_NAMED])
    more = " and others" if len(named) > MOST_NAMED else ""
    sentence = (
        f"Column {name!r} has labels that the reference does not have, in {rows:,} of {of:,} new "
        f"rows{': ' if said else ''}{said}{more}."
    )
    return Finding("new labels", level or "note", sentence, UNSEEN_ADVICE)


def _gone(
    name: str,
    category: Category,
    known: FloatArray,
    seen: FloatArray,
    trials: int,
    columns: int,
) -> Finding | None:
    """The label of the reference that is missing most among the new rows."""
    if not trials or not len(known):
        return None
    codes, times = np.unique(known, return_counts=True)
    here = (seen[:, None] == codes).sum(axis=0)
    n, m = len(known), len(seen)
    chances = [lost(a, n, b, trials) for a, b in zip(times.tolist(), here.tolist(), strict=True)]
    worst = int(np.argmin(chances))
    level = level_of(columns * len(codes) * chances[worst])
    if level is None:
        return None
    words = {label_code(label): repr(label[:40]) for label in category.labels}
    label = words.get(float(codes[worst]), f"label {codes[worst]:g}")
    sentence = (
        f"Column {name!r} is {label} in {here[worst]:,} of {m:,} new rows, and in "
        f"{times[worst]:,} of {n:,} reference rows."
    )
    advice = "Find out why; take a reference that was taken under the same conditions."
    return Finding("labels", level, sentence, advice)
