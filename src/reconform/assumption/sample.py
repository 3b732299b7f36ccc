"""Samples of rows that checks look at: enough to see what matters, few enough to cost nothing."""

from __future__ import annotations

import numpy as np

from ..arrays import FloatArray
from ..content import Contents, first_rows

MOST_REFERENCE = 2_000
MOST_NEW = 3_000

# The draws have nothing to do with those of a method, whatever its seed is.
_REFERENCE, _NEW = (np.random.SeedSequence([0x5A3B, purpose]) for purpose in (0, 1))


def reference_sample(X: FloatArray, contents: Contents | None = None) -> FloatArray:
    """Draw the reference rows that new rows are compared with, by content.

    Parameters
    ----------
    X : float array of shape (n, d)
    contents : Contents, optional
        Of these rows, where they are known already.

    Returns
    -------
    float array of shape (min(n, 2000), d)

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(9.0)[:, None]
    >>> bool((reference_sample(X) == reference_sample(X[::-1])).all())
    True
    """
    return _drawn(X, MOST_REFERENCE, _REFERENCE, contents)


def new_sample(X: FloatArray) -> FloatArray:
    """Draw the new rows that are looked at; at most 3,000."""
    return _drawn(X, MOST_NEW, _NEW, None)


def _drawn(
    X: FloatArray, most: int, seed: np.random.SeedSequence, contents: Contents | None
) -> FloatArray:
    return np.array(X[first_rows(Contents.of(X) if contents is None else contents, seed, most)])


class Reservoir:
    """A sample of rows that come in batches, each row with the same chance.

    Every row has a random number, by its place in the file; those with the smallest stay.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Reservoir()
    >>> for batch in np.split(np.arange(12_000.0)[:, None], 4):
    ...     rows.add(batch)
    >>> rows.rows.shape, rows.seen
    ((3000, 1), 12000)
    """

    def __init__(self, most: int = MOST_NEW) -> None:
        self.most = most
        self.seen = 0
        self._random = np.random.default_rng(_NEW)
        self._keys = np.empty(0)
        self._rows: FloatArray | None = None

    def add(self, X: FloatArray) -> None:
        """Show a batch."""
        keys = self._random.random(len(X))
        self.seen += len(X)
        if self._rows is not None and len(self._keys) == self.most:
            near = keys < self._keys.max()
            keys, X = keys[near], X[near]
        keys = np.concatenate([self._keys, keys])
        rows = np.array(X) if self._rows is None else np.concatenate([self._rows, X])
        if len(keys) > self.most:
            keep = np.sort(np.argpartition(keys, self.most - 1)[: self.most])
            keys, rows = keys[keep], rows[keep]
        self._keys, self._rows = keys, rows

    @property
    def rows(self) -> FloatArray | None:
        """The sample; None if nothing was shown."""
        return self._rows
