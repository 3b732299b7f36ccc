"""The last lines of Algorithm 1: from scores to integer ranks, from ranks to p-values.

Arrays in, arrays out; nothing here knows of detectors. Scores follow the paper's convention,
small = strange. Ranks are integers, r = 1 + #{i : c_i <= t_i}, so that p = r / (n + 1) is exact.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .aggregation import FloatArray, Reduction
from .methods import IndexArray, Plan

RankArray = npt.NDArray[np.int64]

# A block of scores that is compared at once stays about this large, whatever n and m are.
BLOCK_BYTES = 1 << 25


@dataclass(frozen=True, eq=False)
class Calibration:
    """The scores c_i, and who was held out where. Arrays only.

    Attributes
    ----------
    scores : float array of shape (n_calibration,)
        c_i for every row of D that some model held out.
    rows : int array of shape (n_calibration,)
        Which row of D each score belongs to.
    indptr, models : int arrays
        K_i in compressed form: row ``rows[j]`` was held out by
        ``models[indptr[j]:indptr[j + 1]]``.
    groups : int array of shape (n_calibration,), optional
        A group id per score, for p-values within groups.
    """

    scores: FloatArray
    rows: IndexArray
    indptr: IndexArray
    models: npt.NDArray[np.int32]
    groups: IndexArray | None = None

    def __len__(self) -> int:
        return len(self.scores)

    @cached_property
    def sorted_scores(self) -> FloatArray:
        """The scores in increasing order."""
        return np.sort(self.scores)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of every array: equal exactly when two calibrations are the same."""
        digest = hashlib.sha256()
        for name in ("scores", "rows", "indptr", "models", "groups"):
            array = getattr(self, name)
            digest.update(name.encode())
            if array is not None:
                digest.update(str(array.dtype).encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Ranks:
    """What an ensemble says about new rows.

    Attributes
    ----------
    at_most : int array
        1 + #{i : c_i <= t_i}: the paper's, conservative rank.
    below : int array or None
        1 + #{i : c_i < t_i}, where it was asked for (smoothed p-values need it).
    scores : float array
        One raw score per row (small = strange): that of the model fitted on all rows, or of the
        only model where there is one.
    """

    at_most: RankArray
    below: RankArray | None
    scores: FloatArray


def calibrate(plan: Plan, held_out_scores: Sequence[FloatArray], phi: Reduction) -> Calibration:
    """Lines 8-11 of Algorithm 1: c_i = φ({s_k(X_i) : k in K_i}).

    Parameters
    ----------
    plan : Plan
    held_out_scores : sequence of float arrays
        For every model its scores on ``plan.held_out[k]``, in that order.
    phi : callable
        φ, from (models, rows) to (rows,).

    Returns
    -------
    Calibration
        Rows that no model held out are left out of it.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform.methods import Resampling
    >>> plan = Resampling([[0], [0, 1], [1, 2]]).plan(3)
    >>> scores = [np.array([1.0, 2.0]), np.array([4.0]), np.array([7.0])]
    >>> calibrate(plan, scores, lambda s: s.mean(axis=0)).scores
    array([7., 1., 3.])
    """
    rows, indptr, models = plan.membership
    held_rows = np.concatenate([np.asarray(held) for held in plan.held_out])
    flat = np.concatenate(held_out_scores)[np.argsort(held_rows, kind="stable")]
    scores = np.empty(len(rows))
    for block, members in _by_size(indptr, len(rows)):
        scores[block] = phi(flat[members])
    return Calibration(scores, rows, indptr, models)


def _by_size(
    indptr: IndexArray, n_rows: int, most: int | None = None
) -> list[tuple[IndexArray, IndexArray]]:
    """Group rows whose K_i are equally large; positions in the flat array as (|K_i|, rows)."""
    sizes = np.diff(indptr)
    blocks = []
    for size in np.unique(sizes):
        same = np.flatnonzero(sizes == size)
        step = len(same) if most is None else max(1, most // int(size))
        for start in range(0, len(same), step):
            block = same[start : start + step]
            blocks.append((block, indptr[block] + np.arange(size)[:, None]))
    return blocks


def ranks_among(sorted_scores: FloatArray, t: FloatArray, *, strictly: bool = False) -> RankArray:
    """1 + #{i : c_i <= t} (or < t), where one test score meets every c_i: basic and pooled.

    Examples
    --------
    >>> import numpy as np
    >>> ranks_among(np.array([1.0, 2.0, 2.0]), np.array([0.0, 2.0, 9.0]))
    array([1, 4, 4])
    """
    below = np.searchsorted(sorted_scores, t, side="left" if strictly else "right")
    return np.asarray(1 + below, dtype=np.int64)


def ranks_paired(
    calibration: Calibration, scores: FloatArray, phi: Reduction, *, strictly: bool = False
) -> RankArray:
    """1 + #{i : c_i <= t_i} with t_i from the models that held row i out: plus.

    Parameters
    ----------
    calibration : Calibration
    scores : float array of shape (models, rows)
        Test scores of every model.
    phi : callable
        φ.
    strictly : bool
        Count c_i < t_i instead.

    Returns
    -------
    int array of shape (rows,)
    """
    compare = np.less if strictly else np.less_equal
    ranks = np.ones(scores.shape[1], dtype=np.int64)
    most = max(1, BLOCK_BYTES // (8 * max(1, scores.shape[1])))
    for block, members in _by_size(calibration.indptr, len(calibration), most):
        models = calibration.models[members]
        t = scores[models[0]] if len(models) == 1 else _aggregate_block(scores, models, phi)
        ranks += compare(calibration.scores[block, None], t).sum(axis=0)
    return ranks


def _aggregate_block(
    scores: FloatArray, models: npt.NDArray[np.int32], phi: Reduction
) -> FloatArray:
    size, count = models.shape
    flat = scores[models].reshape(size, -1)
    return phi(flat).reshape(count, -1)


def to_p_values(ranks: RankArray, n_calibration: int) -> FloatArray:
    """Divide: p = r / (n + 1).

    Examples
    --------
    >>> import numpy as np
    >>> to_p_values(np.array([1, 5]), 4)
    array([0.2, 1. ])
    """
    return ranks / (n_calibration + 1)


def smoothed_p_values(ranks: Ranks, n_calibration: int, uniforms: FloatArray) -> FloatArray:
    """Smooth: p = (#{c_i < t_i} + u (1 + #{c_i = t_i})) / (n + 1), uniform under the null."""
    if ranks.below is None:
        raise ValueError("smoothed p-values need ranks with `below`; ask for them strictly too.")
    ties = ranks.at_most - ranks.below + 1
    return (ranks.below - 1 + uniforms * ties) / (n_calibration + 1)


def row_uniforms(key: int, start: int, count: int) -> FloatArray:
    """Uniforms of rows ``start`` to ``start + count``, keyed by seed and position.

    Counter-based, so that the uniform of a position is the same whatever batch it comes in.

    Examples
    --------
    >>> import numpy as np
    >>> bool(np.all(row_uniforms(7, 0, 10)[4:6] == row_uniforms(7, 4, 2)))
    True
    """
    # Philox makes four 64-bit numbers per step of its counter.
    skip = start % 4
    bits = np.random.Philox(key=key)
    bits.advance(start // 4)
    # 1 - u lies in (0, 1]: a smoothed p-value is never zero.
    return np.asarray(1.0 - np.random.Generator(bits).random(count + skip)[skip:])
