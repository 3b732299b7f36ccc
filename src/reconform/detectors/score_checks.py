"""What scores must be like: one number per row, and the same number in any batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from ..arrays import FloatArray
from ..ensemble.refitting import Model
from ..errors import BatchDependenceError, ReconformError

# Infinite scores become this, so that aggregates of them are numbers and keep their order.
LARGEST = float(np.finfo(np.float64).max) / 8

# The probe compares a few rows scored alone with the same rows in a batch of up to this many.
PROBE_BATCH = 512
PROBE_TOLERANCE = 1e-5


def checked_scores(scores: Any, n_rows: int, *, name: str) -> FloatArray:
    """Return scores as finite floats; refuse what is not one number per row.

    Examples
    --------
    >>> checked_scores([1, 2], 2, name="mine")
    array([1., 2.])
    """
    checked: FloatArray = np.asarray(scores, dtype=np.float64)
    if checked.shape == (n_rows, 1):
        checked = checked[:, 0]
    if checked.shape != (n_rows,):
        raise ReconformError(
            f"detector {name} must return one score per row; for {n_rows} rows it "
            f"returned an array of shape {checked.shape}."
        )
    if np.isnan(checked).any():
        row = int(np.flatnonzero(np.isnan(checked))[0])
        raise ReconformError(
            f"detector {name} returned NaN for {int(np.isnan(checked).sum())} of {n_rows} "
            f"rows (first at position {row}). A row without a score has no p-value: check the "
            "detector on these data, or scale or impute them in a pipeline."
        )
    return np.clip(checked, -LARGEST, LARGEST)


def probe_batch_dependence(model: Model, X: FloatArray, *, name: str) -> None:
    """Refuse a model whose score of a row depends on the other rows of the batch.

    A handful of rows is scored alone and within a larger batch. Equal up to rounding is all that
    conformal validity asks for; ECOD and its kin, which rank a batch against itself, differ by
    far more even on a large reference.

    Parameters
    ----------
    model : Model
    X : float array
        Rows to probe with; reference rows will do.
    name : str
        What to call the detector in the message.
    """
    batch = X[:PROBE_BATCH]
    together = model.score_samples(batch)
    finite = together[np.isfinite(together)]
    tolerance = PROBE_TOLERANCE * max(np.abs(finite).max(initial=0.0), np.finfo(float).tiny)
    for count in (1, 7):
        try:
            alone = model.score_samples(batch[:count])
        except NotFittedError:
            raise
        except Exception as error:
            raise _batch_dependence(
                name, f"it cannot score {count} row(s) alone ({error})"
            ) from error
        with np.errstate(invalid="ignore"):
            apart = np.where(alone == together[:count], 0.0, np.abs(alone - together[:count]))
        if not apart.max() <= tolerance:
            raise _batch_dependence(
                name,
                f"a row scored {_one(alone, apart):.6g} in a batch of {count} and "
                f"{_one(together[:count], apart):.6g} in a batch of {len(batch)}",
            )


def _one(scores: FloatArray, apart: FloatArray) -> float:
    return float(scores[int(np.nanargmax(apart))])


def _batch_dependence(name: str, evidence: str) -> BatchDependenceError:
    from .registry import named  # which imports the detectors, and they this module

    return BatchDependenceError(
        f"detector {name} cannot be used: its score of a row depends on the other rows of the "
        f"batch, or on chance ({evidence}). A conformal p-value compares scores of one fixed "
        "function; with this detector calibration and test rows would be scored by different "
        "ones, and no error rate would hold. Use a detector that scores rows one by one after "
        f"fitting, such as {named('or')}, or `method='full'`, which fits and scores all rows "
        "together, once per new row, or `method='batch'`, once for all of them."
    )
