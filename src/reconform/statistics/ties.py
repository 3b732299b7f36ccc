"""The uniform number of every new row that smooths its p-value where scores tie.

Numbers of different rows must be independent of each other, in one call or in many, and the number
of a row must not depend on the batch it comes in. So a number is keyed by the seed, the content of
the row and its label. Rows with the same content and label are told apart by counting them within
the call; that is as far as one gets without remembering earlier calls.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from itertools import repeat
from typing import Any

import numpy as np

from ..arrays import FloatArray
from ..errors import UnlabelledRowWarning, warn_once

# What rows without labels are called.
NO_LABEL = ""

_DIGEST_BYTES = 16


def tie_uniforms(key: int, rows: FloatArray, labels: Iterable[object] | None = None) -> FloatArray:
    """Uniforms in (0, 1], one per row, keyed by seed, content, label and occurrence.

    Parameters
    ----------
    key : int
        64 bits from the seed.
    rows : float array of shape (m, d)
        What the rows hold; 0.0 and -0.0 are the same, and so are all NaN.
    labels : iterable of m labels, optional
        What the rows are called. Labels that print alike are the same, so that 7 and "7", read
        from a file as a number or as text, give one row the same number.

    Returns
    -------
    float array of shape (m,)

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[0.0, 1.0], [2.0, 3.0], [0.0, 1.0]])
    >>> together = tie_uniforms(7, rows, ["a", "b", "c"])
    >>> bool((tie_uniforms(7, rows[1:], ["b", "c"]) == together[1:]).all())
    True
    >>> len(set(tie_uniforms(7, rows[[0, 0, 0]]).tolist()))
    3
    """
    content = np.array(rows, dtype="<f8", order="C") + 0.0
    content[np.isnan(content)] = np.nan
    width = content.shape[1] * content.itemsize
    data = memoryview(content.tobytes())
    keyed = hashlib.blake2b(digest_size=_DIGEST_BYTES, key=key.to_bytes(8, "little"))
    seen: Counter[bytes] = Counter()
    bits = np.empty(len(content), dtype=np.uint64)
    named = repeat(NO_LABEL, len(content)) if labels is None else labels
    for j, label in zip(range(len(content)), named, strict=True):
        row = keyed.copy()
        row.update(data[j * width : (j + 1) * width])
        row.update(_text(label).encode("utf-8", "surrogatepass"))
        same = row.digest()
        row.update(b"\0" + seen[same].to_bytes(8, "little"))
        seen[same] += 1
        bits[j] = int.from_bytes(row.digest()[:8], "little")
    # 1 - u lies in (0, 1]: a smoothed p-value is never zero.
    return np.asarray(1.0 - (bits >> np.uint64(11)) * 2.0**-53)


def row_labels(X: Any) -> Any:
    """The row labels of a frame; None for an array, or where pandas made up 0, 1, 2, ....

    Parameters
    ----------
    X : array-like or frame of shape (m, d)

    Examples
    --------
    >>> import pandas as pd
    >>> list(row_labels(pd.DataFrame({"x": [1.0, 2.0]}, index=["a", "b"])))
    ['a', 'b']
    >>> row_labels(pd.DataFrame({"x": [1.0, 2.0]})) is None
    True
    """
    index: Any = X.index if hasattr(X, "iloc") else None
    # The default index was not chosen by the user. It says no more than the order of the rows
    # does, and an array of the same rows must get the same numbers.
    made_up = type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1
    return None if made_up else index


def warn_if_unlabelled(labels: Any, count: int, judge: object) -> None:
    """Warn where a single row has nothing to tell it by; once for every judge.

    Parameters
    ----------
    labels : sequence or None
        From `row_labels`.
    count : int
        Number of rows.
    judge : object
        Who judges the rows.
    """
    if count > 1 or labels is not None:
        return
    warn_once(
        judge,
        "labels",
        "ties='randomized' draws a number per row from its content and its label, and a single row "
        "without a label shares its number with every equal row of other calls: their p-values are "
        "then not independent. Judge rows in batches, or pass a frame whose index says which row "
        "it is, or use ties='conservative'.",
        UnlabelledRowWarning,
    )


def _text(label: object) -> str:
    """Print a label so that it is the same whether it was read from a file or a frame."""
    if isinstance(label, tuple):  # of a MultiIndex
        parts = [_text(part) for part in label]
        return "".join(f"{len(part)}:{part}" for part in parts)
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return str(label)
