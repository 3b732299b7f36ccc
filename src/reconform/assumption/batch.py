"""Lists that compare new rows with each other: what is said where the guard switched that off."""

from __future__ import annotations

from ..arrays import BoolArray
from .verdict import Finding


def unused_batch(clumped: BoolArray | None) -> tuple[Finding, ...]:
    """Say that the batch was not used for some rows, and why.

    Parameters
    ----------
    clumped : bool array of shape (m,) or None
        `Ranks.clumped`.

    Returns
    -------
    tuple of Finding
        None or one: a note if no row was ranked by the others, so that the list is that of a
        detector that looks at reference rows only; doubt if some were.

    Examples
    --------
    >>> import numpy as np
    >>> print(*unused_batch(np.ones(60, dtype=bool)))
    New rows are not compared with each other for any of the 60 rows: too many of them lie closer to
    each other than to every reference row, in places where reference rows are common (copies,
    repeated measurements), and would be flagged for that alone. These rows are ranked by reference
    rows only.
    """
    if clumped is None or not clumped.any():
        return ()
    count, m = int(clumped.sum()), len(clumped)
    which = f"any of the {m:,} rows" if count == m else f"{count:,} of the {m:,} rows"
    said = (
        f"New rows are not compared with each other for {which}: too many of them lie closer to "
        "each other than to every reference row, in places where reference rows are common "
        "(copies, repeated measurements), and would be flagged for that alone. These rows are "
        "ranked by reference rows only."
    )
    if count == m:
        return (Finding("batch", "note", said),)
    advice = (
        "What is promised of the p-values of the others rests on an assumption that looks broken; "
        "use a detector that looks at reference rows only, such as 'knn'."
    )
    return (Finding("batch", "doubtful", said, advice),)
