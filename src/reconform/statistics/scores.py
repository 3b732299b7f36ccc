"""Conformal p-values from scores that someone else computed: no detector, no fit.

Who has a model, and its scores of rows that it has not seen, needs no more than this and
`reconform.Rule`. The model may be anything; what the p-values are worth is what is proven for
``method="prefit"``.

Ties: The uniform number of every new row that smooths its p-value where scores tie.

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
import numpy.typing as npt

from ..arrays import FloatArray, RankArray
from ..errors import ReconformError, UnlabelledRowWarning, unknown_choice, warn_once
from .exact import usual
from .ranks import ranks_among

LARGER_IS = ("anomalous", "normal")


def ranks_of(
    calibration_scores: npt.ArrayLike, new_scores: npt.ArrayLike, *, larger_is: str
) -> RankArray:
    """Rank new scores among calibration scores, ties counted against the new row.

    Parameters
    ----------
    calibration_scores : array-like of float, shape (n,)
        Scores of normal rows that the model has not seen.
    new_scores : array-like of float, shape (m,)
    larger_is : {"anomalous", "normal"}
        What a large score means.

    Returns
    -------
    int array of shape (m,)
        From 1 (more anomalous than all calibration rows) to n + 1; for `RankCounts`, whose counts
        of any parts add up.

    Examples
    --------
    >>> ranks_of([1.0, 2.0, 3.0], [0.5, 2.0, 9.0], larger_is="anomalous")
    array([4, 3, 1])
    """
    if larger_is not in LARGER_IS:
        raise unknown_choice("larger_is", larger_is, LARGER_IS)
    sign = 1.0 if larger_is == "normal" else -1.0
    calibration = sign * given_scores("calibration_scores", calibration_scores)
    if not len(calibration):
        raise ReconformError("calibration_scores must hold at least one score; got none.")
    return ranks_among(np.sort(calibration), sign * given_scores("new_scores", new_scores))


def p_values_of(
    calibration_scores: npt.ArrayLike, new_scores: npt.ArrayLike, *, larger_is: str
) -> FloatArray:
    """Turn scores into conformal p-values: p = r / (n + 1), r from `ranks_of`.

    Parameters
    ----------
    calibration_scores : array-like of float, shape (n,)
        Scores of normal rows that the model has not seen.
    new_scores : array-like of float, shape (m,)
    larger_is : {"anomalous", "normal"}
        What a large score means.

    Returns
    -------
    float array of shape (m,)
        In [1 / (n + 1), 1]. P(p <= α) <= α for a new normal row, if its score and those of the
        calibration rows are exchangeable.

    See Also
    --------
    reconform.Rule.decide_p_values : From p-values to a list at a false discovery rate.

    Examples
    --------
    >>> from reconform import Rule
    >>> normal = [0.1, 0.4, 0.3, 0.2, 0.5, 0.6, 0.2, 0.3, 0.1]
    >>> p = p_values_of(normal, [0.3, 7.5, 9.1], larger_is="anomalous")
    >>> p
    array([0.6, 0.1, 0.1])
    >>> Rule(fdr=0.2).decide_p_values(p, n_calibration=len(normal)).mask
    array([False,  True,  True])
    """
    ranks = ranks_of(calibration_scores, new_scores, larger_is=larger_is)
    return usual(len(np.asarray(calibration_scores))).values(ranks)


def given_scores(argument: str, values: npt.ArrayLike) -> FloatArray:
    """Return scores that a caller gave as an array; refuse what cannot be ranked."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ReconformError(f"{argument} must be one-dimensional; got shape {array.shape}.")
    if np.isnan(array).any():
        raise ReconformError(f"{argument} must not contain NaN; drop the rows it comes from.")
    return array


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
