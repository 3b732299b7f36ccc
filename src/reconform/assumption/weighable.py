"""Whether weights may help against a shift: what the check of the assumption says about it."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from ..arrays import FloatArray
from ..weights import Weights
from .verdict import Finding


def with_weights(finding: Finding | None, reference: FloatArray, new: FloatArray) -> Finding | None:
    """Add to the finding of a shift whether weights could make up for it.

    Parameters
    ----------
    finding : Finding or None
        None where nothing was found.
    reference, new : float arrays of shape (s, d), (t, d)
        Samples.

    Returns
    -------
    Finding or None
    """
    if finding is None:
        return None
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            weights = Weights.estimate(reference, new)
    except ValueError:  # numbers that no classifier takes, such as infinite ones
        return finding
    if weights.usable:
        size = f"{weights.effective_size:,.0f} of {len(reference):,} reference rows"
        more = (
            "If what is normal has not changed, and only comes in another mix, `weights` that are "
            f"estimated from the columns that moved make up for it: {size} would be left."
        )
    else:
        more = "No `weights` can make up for it: too few reference rows are like the new ones."
    return replace(finding, advice=f"{finding.advice} {more}".lstrip())
