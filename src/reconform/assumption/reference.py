"""What is said about a reference before any new row is judged by it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..arrays import FloatArray
from ..ensemble.refitting import LARGEST
from ..errors import ReferenceWarning, listed, warn_once

# A column that changes mostly does so within the first rows: only the others are read to the end.
LOOK_FIRST = 1000


def warn_of_columns(X: FloatArray, names: Sequence[str], whom: object) -> None:
    """Say which columns of a reference never change, unless none does.

    Such a column has no part in telling reference rows apart, whatever the detector. It is not
    taken out of the rows: a new row that differs there differs from everything that is known, and
    a theorem about D and a new row needs both to be treated alike.

    Parameters
    ----------
    X : float array of shape (n, d)
    names : sequence of str
        Of the columns; may be empty.
    whom : object
        Told once.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_of_columns(np.array([[1.0, 7.0], [2.0, 7.0]]), ["flow", "site"], None)
    >>> print(caught[0].message)
    the column 'site' never changes in the reference: it tells no normal rows apart, and a new row
    with another value looks unusual. Leave the column out if it is to play no part.
    """
    first = X[:LOOK_FIRST]
    same = (X[0] == first).all(axis=0) | np.isnan(first).all(axis=0)
    if len(X) > len(first) and same.any():
        at = np.flatnonzero(same)
        same[at] = (X[0, at] == X[:, at]).all(axis=0) | np.isnan(X[:, at]).all(axis=0)
    if not same.any() or same.all():
        return
    which = listed(names[j] if names else str(j) for j in np.flatnonzero(same).tolist())
    said = (
        f"the column {which} never changes in the reference: it tells no normal rows apart, and a "
        "new row with another value looks unusual. Leave the column out if it is to play no part."
        if same.sum() == 1
        else f"the columns {which} never change in the reference: they tell no normal rows apart, "
        "and a new row with another value looks unusual. Leave the columns out if they are to play "
        "no part."
    )
    warn_once(whom, "columns that never change", said, ReferenceWarning)


def warn_of_scores(scores: FloatArray, name: str, whom: object) -> None:
    """Say it if calibration scores say little: all equal, or beyond what a number can hold.

    Parameters
    ----------
    scores : float array of shape (n,)
        The calibration scores c_i.
    name : str
        Of the detector.
    whom : object
        Told once.
    """
    beyond = int((np.abs(scores) >= LARGEST).sum())
    if beyond:
        said = (
            f"detector {name} gives {beyond:,} of {len(scores):,} calibration rows a score that "
            "is too large for a number: such rows are not told apart, and no new row looks more "
            "unusual than they do. Divide columns of very large numbers by a constant, or use "
            "another detector."
        )
    elif len(scores) > 1 and (scores == scores[0]).all():
        said = (
            f"all {len(scores)} calibration scores are equal ({scores[0]:g}): detector {name} "
            "does not tell the reference rows apart, so only rows that score strictly lower can "
            "get a small p-value, and very likely nothing will be found. Check the reference for "
            "constant or duplicated rows, or use another detector."
        )
    else:
        return
    warn_once(whom, "scores", said, ReferenceWarning)
