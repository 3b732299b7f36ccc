"""How values become JSON and arrays, and back; what is saved of a class is described by these.

`specs` has the descriptions. The functions here check what must
hold for values from a file, before compiled code relies on it. Each detector describes itself in
its folder; `reconform.models` collects the descriptions from the registry of
detectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import AnyArray
from ..errors import ReconformError


def require(holds: object, what: str) -> None:
    """Raise an error with this message unless the condition holds."""
    if not holds:
        raise ReconformError(what)


def within(array: AnyArray, low: int, high: int) -> bool:
    """Whether low <= x < high for all entries."""
    return not array.size or bool(low <= array.min() and array.max() < high)


def increasing(indptr: AnyArray, last: int) -> bool:
    """Whether an array of bounds runs from 0 to `last` and never back."""
    ends = bool(len(indptr)) and indptr[0] == 0 and indptr[-1] == last
    return bool(ends and (np.diff(indptr) >= 0).all())


def ascending(array: AnyArray, *, strictly: bool = False) -> bool:
    """Whether entries never fall, or always rise."""
    before, after = array[:-1], array[1:]
    return bool((before < after).all() if strictly else (before <= after).all())


def check_models(models: int, ensemble: Any) -> None:
    """Refuse an ensemble with another number of resampled models than its plan keeps."""
    plan = ensemble.plan
    wanted = plan.n_models if plan.full and plan.variant != "basic" else 0
    require(models == wanted, "the ensemble has another number of models than its plan")


def check_kept(kept: Any, plan: Any) -> None:
    """Refuse an ensemble that has what only other variants keep, or lacks what its own does."""
    retained = plan.variant != "basic"
    require((kept is not None) == retained, "the ensemble does not suit the variant of its plan")


def check_reference(n: int, ensemble: Any) -> None:
    """Refuse a full-conformal ensemble whose reference does not have n rows."""
    require(n == len(ensemble.calibration), "the reference has another size than its scores")


def expected_entries(limits: AnyArray, every: AnyArray | bool) -> float:
    """Count the trees or sets that a new row enters on average: all, or by the limits of hashes."""
    return float(np.where(every, 1.0, limits.astype(np.float64) / 2.0**64).sum())


def check_entries(entered: float, drawn: int, n: int) -> None:
    """Refuse limits of hashes that let a new row enter more than n rows and `drawn` draws of them.

    A limit is the largest of the smallest hashes. Among hashes as they fall, the sum of limits is
    near to its mean: three times as much, and one more, never comes.
    """
    require(entered <= 3 * drawn / (n + 1) + 1, "a new row would enter more than it can have")
