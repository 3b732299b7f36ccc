"""Parameters of detectors that draw rows: how many (`max_samples`), and whether models share."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from ..errors import ReconformError, check_count, unknown_choice

# Up to this many rows separate leave-one-out fits are cheap, and they vary less from seed to seed.
SHARE_ABOVE = 1000


def rows_drawn(max_samples: Any, n_rows: int, *, auto: int) -> int:
    """Work out how many of `n_rows` rows `max_samples` asks for: never more than there are.

    Examples
    --------
    >>> [rows_drawn(given, 100, auto=8) for given in ("auto", 500, 0.255)]
    [8, 100, 25]
    """
    if isinstance(max_samples, str):
        if max_samples != "auto":
            raise unknown_choice("max_samples", max_samples, ["auto"])
        return min(auto, n_rows)
    if isinstance(max_samples, numbers.Integral):
        return min(check_count("max_samples", max_samples, least=1), n_rows)
    if not isinstance(max_samples, numbers.Real) or not 0 < float(max_samples) <= 1:
        raise ReconformError(
            "max_samples must be 'auto', a number of rows, or a share in (0, 1]; "
            f"got {max_samples!r}."
        )
    drawn = int(float(max_samples) * n_rows)
    if drawn < 1:
        raise ReconformError(
            f"max_samples={max_samples!r} of {n_rows} training rows is less than one row; "
            "give a larger share, or a number of rows."
        )
    return drawn


def wants_sharing(share: Any, n_rows: int) -> bool:
    """Say whether leave-one-out models on so many rows are to share their draws.

    Examples
    --------
    >>> wants_sharing("auto", 1000), wants_sharing("auto", 1001), wants_sharing(True, 10)
    (False, True, True)
    """
    if isinstance(share, bool | np.bool_):
        return bool(share)
    if not isinstance(share, str) or share != "auto":
        raise ReconformError(f"share must be 'auto', True or False; got {share!r}.")
    return n_rows > SHARE_ABOVE
