"""The last lines of Algorithm 1: from scores to integer ranks.

Arrays in, arrays out; nothing here knows of detectors. Scores follow the paper's convention,
small = anomalous. Ranks are integers, r = 1 + #{i : c_i <= t_i}, so that p = r / (n + 1) is exact.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import BoolArray, FloatArray, IndexArray, Int32Array, IntArray, RankArray
from ..errors import ReconformError, is_number, unknown_choice
from ..parallel import run_blocks
from . import kernels as paired
from .exact import Grid

if TYPE_CHECKING:
    from ..methods import Plan  # plans use the aggregation of this package
    from .joint import JointRanks  # which are decided by what needs ranks

Kernel = Callable[[int, int], object]
Aggregate = str | float | Callable[..., Any]
Reduction = Callable[[FloatArray], FloatArray]

# A block of scores that is compared at once stays about this large, whatever n and m are.
BLOCK_BYTES = 1 << 25

# The quantiles that have names; half of a sum is not quite the quantile 0.5.
LEVELS = {"min": 0.0, "max": 1.0, "median": None}


@dataclass(frozen=True, eq=False)
class Calibration:
    """The scores c_i, and which models held out row i. Arrays only.

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
        For a repeated split: which of the splits each score belongs to.
    """

    scores: FloatArray
    rows: IndexArray
    indptr: IndexArray
    models: Int32Array
    groups: IndexArray | None = None

    def __len__(self) -> int:
        return len(self.scores)

    @cached_property
    def sorted_scores(self) -> FloatArray:
        """The scores in increasing order."""
        return np.sort(self.scores)

    def part(self, members: IndexArray) -> Calibration:
        """Some of the scores, at these positions, as a calibration of their own.

        Examples
        --------
        >>> import numpy as np
        >>> of_four = np.arange(4)
        >>> every = Calibration(np.array([3.0, 1.0, 2.0, 0.0]), of_four, np.arange(5), of_four)
        >>> every.part(np.array([0, 3])).models
        array([0, 3])
        """
        sizes = np.diff(self.indptr)[members]
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        flat = np.arange(indptr[-1]) + np.repeat(self.indptr[members] - indptr[:-1], sizes)
        return Calibration(self.scores[members], self.rows[members], indptr, self.models[flat])

    @property
    def scores_by_split(self) -> list[FloatArray]:
        """The scores of each split of a repeated split; otherwise all of them, once."""
        if self.groups is None:
            return [self.scores]
        return [self.scores[self.groups == split] for split in np.unique(self.groups)]

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
        One raw score per row (small = anomalous): that of the model fitted on all rows, or of the
        only model where there is one.
    splits : tuple of Ranks
        The same for every split where there are several (for e-values); otherwise empty.
    clustered : bool array or None
        Where ranks use the batch: rows that were ranked by themselves, as the other new rows come
        in clusters.
    choice : Choice or None
        Where a detector was chosen for every row.
    against : float array or None
        The calibration scores that these ranks are among, where they depend on the new rows.
    groups : int array or None
        Where rows are ranked within several groups: those of the rows. Ranks are joint ranks.
    learned : bool
        Whether what ranks rows was learned from all of them: then ranks are not independent.
    """

    at_most: RankArray
    below: RankArray | None
    scores: FloatArray
    splits: tuple[Ranks, ...] = ()
    clustered: BoolArray | None = None
    choice: Choice | None = None
    against: FloatArray | None = None
    groups: IndexArray | None = None
    learned: bool = False

    @classmethod
    def joined(cls, m: int, parts: Iterable[tuple[IndexArray, Ranks]]) -> Ranks:
        """Put the ranks of parts of m rows in their places."""
        at_most, below = np.ones((2, m), dtype=np.int64)
        scores, clustered = np.empty(m), np.zeros(m, dtype=np.bool_)
        strictly = clusters = False
        for rows, part in parts:
            at_most[rows], scores[rows] = part.at_most, part.scores
            if part.below is not None:
                strictly, below[rows] = True, part.below
            if part.clustered is not None:
                clusters, clustered[rows] = True, part.clustered
        return cls(
            at_most, below if strictly else None, scores, clustered=clustered if clusters else None
        )

    def in_groups(self, groups: IndexArray, joint: JointRanks) -> Ranks:
        """Turn ranks within groups into joint ranks."""
        choice = self.choice
        if choice is not None:
            choice = replace(choice, ranks=joint.joined(groups, choice.ranks))
        return replace(
            self,
            at_most=joint.joined(groups, self.at_most),
            below=None if self.below is None else joint.joined(groups, self.below),
            choice=choice,
            groups=groups,
        )

    def taken(self, rows: IndexArray) -> Ranks:
        """Return the ranks of some of the rows, which were not made of several splits."""
        return Ranks(
            self.at_most[rows],
            None if self.below is None else self.below[rows],
            self.scores[rows],
            clustered=None if self.clustered is None else self.clustered[rows],
            choice=None if self.choice is None else self.choice.taken(rows),
            against=self.against,
        )


@dataclass(frozen=True, eq=False)
class RankedBatch:
    """A whole batch in memory, for procedures that need more of it than counts.

    Attributes
    ----------
    ranks : Ranks
    grid : Grid
        The p-value of each rank.
    calibration : Calibration
    n_calibration : int
        Ranks lie in 1 .. n_calibration + 1.
    e_values : callable, optional
        `Ensemble.e_values` of these rows, for a certificate.
    joint : JointRanks, optional
        Where ranks are joint ranks of several groups.
    """

    ranks: Ranks
    grid: Grid
    calibration: Calibration
    n_calibration: int
    e_values: Callable[[RankArray, Any], Iterator[tuple[int, Fraction]]] | None = None
    joint: JointRanks | None = None


def calibrate(
    plan: Plan, held_out_scores: Sequence[FloatArray] | FloatArray, phi: Reduction
) -> Calibration:
    """Lines 8-11 of Algorithm 1: c_i = φ({s_k(X_i) : k in K_i}).

    Parameters
    ----------
    plan : Plan
    held_out_scores : sequence of float arrays
        For every model its scores on ``plan.held_out[k]``, in that order. One array of shape
        (n, 1) is quickest for leave-one-out.
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
    if plan.left_out is not None:
        return calibrate_beside(plan, np.ravel(held_out_scores), phi)
    rows, indptr, _ = plan.membership
    flat = np.empty(indptr[-1])
    # Model after model in increasing order, so each score goes behind those already there.
    free = np.zeros(plan.n, dtype=np.intp)
    free[rows] = indptr[:-1]
    for held, scores in zip(plan.held_out, held_out_scores, strict=True):
        flat[free[held]] = scores
        free[held] += 1
    return calibrate_beside(plan, flat, phi)


def calibrate_beside(plan: Plan, flat: FloatArray, phi: Reduction) -> Calibration:
    """`calibrate` with the scores of held-out rows beside the models of ``plan.membership``."""
    rows, indptr, models = plan.membership
    scores = np.empty(len(rows))
    for block, members in _by_size(indptr, BLOCK_BYTES // 8):
        scores[block] = phi(flat[members])
    return Calibration(scores, rows, indptr, models)


def _by_size(indptr: IndexArray, most: int) -> Iterator[tuple[IndexArray, IndexArray]]:
    """JointRanks of rows whose K_i are equally large; positions in the flat array as (|K_i|, rows).

    A block holds no more than `most` positions, or else a single row.
    """
    sizes = np.diff(indptr)
    order = np.argsort(sizes, kind="stable")
    values, first = np.unique(sizes[order], return_index=True)
    # Without rows there are no sizes, though np.split still makes one (empty) part.
    for size, same in zip(values.tolist(), np.split(order, first[1:]), strict=False):
        step = max(1, most // size)
        for start in range(0, len(same), step):
            block = same[start : start + step]
            yield block, indptr[block] + np.arange(size)[:, None]


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
    calibration: Calibration,
    scores: FloatArray,
    aggregate: Aggregate,
    *,
    strictly: bool = False,
    n_jobs: int | None = None,
) -> RankArray:
    """1 + #{i : c_i <= t_i} with t_i from the models that held row i out: plus.

    Lines 13 and 20 of Algorithm 1. A callable φ is computed for every pair of rows; for the
    others compiled kernels make the same comparisons, bit for bit, much sooner.

    Parameters
    ----------
    calibration : Calibration
    scores : float array of shape (models, rows)
        Test scores of every model.
    aggregate : str, float or callable
        φ, the one that the calibration was made with.
    strictly : bool
        Count c_i < t_i instead.
    n_jobs : int or None
        Threads, as in joblib.

    Returns
    -------
    int array of shape (rows,)

    Examples
    --------
    >>> import numpy as np
    >>> from reconform.methods import Resampling
    >>> plan = Resampling([[0], [0, 1], [1, 2]]).plan(3)
    >>> held_out = [np.array([1.0, 2.0]), np.array([4.0]), np.array([7.0])]
    >>> calibration = calibrate(plan, held_out, lambda s: np.median(s, axis=0))
    >>> ranks_paired(calibration, np.array([[1.0, 0.0], [5.0, 5.0], [6.0, 8.0]]), "median")
    array([3, 2])
    """
    if callable(aggregate):
        return _ranks_gathered(calibration, scores, reduction(aggregate), strictly)
    ranks = np.ones(scores.shape[1], dtype=np.int64)
    if not len(calibration) or not len(ranks):
        return ranks
    scores = np.ascontiguousarray(scores, dtype=np.float64)
    if len(calibration.models) == len(calibration):
        kernel = _single(calibration, scores, strictly, ranks)
        if isinstance(aggregate, str):
            aggregate = "min"  # of one score, all the same
    elif aggregate == "mean":
        kernel = _means(calibration, scores, strictly, ranks)
    else:
        kernel = _ordered(calibration, scores, aggregate, strictly, ranks)
    run_blocks(kernel, len(ranks), n_jobs=n_jobs, work=len(calibration) * len(ranks))
    unbounded = _unbounded(scores, aggregate)
    if unbounded.any():
        ranks[unbounded] = _ranks_gathered(
            calibration, scores[:, unbounded], reduction(aggregate), strictly
        )
    return ranks


def _single(
    calibration: Calibration, scores: FloatArray, strictly: bool, ranks: RankArray
) -> Kernel:
    """Every row was held out by one model (cross-validation): a sorted list per model."""
    order = np.lexsort((calibration.scores, calibration.models))
    models, first = np.unique(calibration.models[order], return_index=True)
    edges = np.append(first, len(order))
    by_model = calibration.scores[order]
    return partial(paired.rank_single, by_model, edges, models, scores, strictly, ranks)


def _means(
    calibration: Calibration, scores: FloatArray, strictly: bool, ranks: RankArray
) -> Kernel:
    c, indptr, models = calibration.scores, calibration.indptr, calibration.models
    return partial(paired.rank_means, c, indptr, models, scores, strictly, ranks)


def _ordered(
    calibration: Calibration,
    scores: FloatArray,
    aggregate: str | float,
    strictly: bool,
    ranks: RankArray,
) -> Kernel:
    """Order statistics: count the models below c_i instead of computing t_i."""
    c, indptr, models = calibration.scores, calibration.indptr, calibration.models
    order = np.argsort(c)
    ordered = c[order]
    masks = paired.pack_members(indptr, models, order)
    level = LEVELS[aggregate] if isinstance(aggregate, str) else float(aggregate)
    lower, upper, weight = paired.order_statistics(np.diff(indptr)[order], level)

    def kernel(start: int, stop: int) -> None:
        by_row = np.ascontiguousarray(scores[:, start:stop].T)
        paired.rank_ordered(
            ordered,
            order,
            indptr,
            models,
            masks,
            lower,
            upper,
            weight,
            by_row,
            np.argsort(by_row, axis=1),
            strictly,
            ranks[start:stop],
        )

    return kernel


def _unbounded(scores: FloatArray, aggregate: str | float) -> BoolArray:
    """Test rows where a point between two scores may lie outside them: sums that overflow, NaN."""
    half = np.finfo(np.float64).max / 2
    if aggregate in ("mean", "min", "max") or np.abs([scores.min(), scores.max()]).max() <= half:
        return np.zeros(scores.shape[1], dtype=bool)
    large = np.abs(scores) > half
    if aggregate == "median":  # infinite scores are safe as long as all have the same sign
        highest, lowest = np.isposinf(scores), np.isneginf(scores)
        overflows = (large & ~highest & ~lowest).any(axis=0)
        return np.asarray(overflows | (highest.any(axis=0) & lowest.any(axis=0)))
    return np.asarray(large.any(axis=0))


def _ranks_gathered(
    calibration: Calibration, scores: FloatArray, phi: Reduction, strictly: bool
) -> RankArray:
    """Compute every t_i and compare: for any φ, and the reference for the kernels."""
    compare = np.less if strictly else np.less_equal
    ranks = np.ones(scores.shape[1], dtype=np.int64)
    if not len(ranks):
        return ranks
    for block, members in _by_size(calibration.indptr, BLOCK_BYTES // (8 * len(ranks))):
        t = _aggregate_block(scores, calibration.models[members], phi)
        ranks += compare(calibration.scores[block, None], t).sum(axis=0)
    return ranks


def _aggregate_block(scores: FloatArray, models: Int32Array, phi: Reduction) -> FloatArray:
    size, count = models.shape
    flat = scores[models].reshape(size, -1)
    return phi(flat).reshape(count, -1)


def smoothed_p_values(
    ranks: Ranks, n_calibration: int | IntArray, uniforms: FloatArray
) -> FloatArray:
    """Smooth: p = (#{c_i < t_i} + u (1 + #{c_i = t_i})) / (n + 1), uniform under the null."""
    if ranks.below is None:
        raise ReconformError(
            "smoothed p-values need ranks with `below`; ask for them strictly too."
        )
    ties = ranks.at_most - ranks.below + 1
    return (ranks.below - 1 + uniforms * ties) / (n_calibration + 1)


def row_uniforms(key: int, start: int, count: int) -> FloatArray:
    """Uniforms of rows ``start`` to ``start + count`` of a stream, keyed by seed and position.

    Counter-based, so that the uniform of a position is the same whatever batch it comes in. Rows
    that are not part of one stream are keyed by content and label instead; see `ties`.

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


@dataclass(frozen=True, eq=False)
class Choice:
    """Which of several detectors each new row was ranked by.

    Attributes
    ----------
    names : tuple of str
        The detectors.
    chosen : int array of shape (m,)
        For every row the detector.
    ranks : int array of shape (detectors, m)
        The ranks that each of them gives; of no detector where one was chosen for all rows.
    evidence : int array of shape (detectors,) or None
        Where it is the same for all rows.
    """

    names: tuple[str, ...]
    chosen: IndexArray
    ranks: RankArray
    evidence: RankArray | None = None

    def taken(self, rows: IndexArray) -> Choice:
        """Return the choice for some of the rows."""
        return Choice(self.names, self.chosen[rows], self.ranks[:, rows], self.evidence)


@dataclass(frozen=True)
class Chosen:
    """The one of several detectors that ranks all rows, and the evidence for each of them."""

    names: tuple[str, ...]
    index: int
    evidence: tuple[int, ...]

    def for_rows(self, m: int) -> Choice:
        """Write it down for every row."""
        every, nobody = np.full(m, self.index, dtype=np.intp), np.empty((0, m), dtype=np.int64)
        return Choice(self.names, every, nobody, np.array(self.evidence, dtype=np.int64))


@dataclass(frozen=True)
class Candidate:
    """What became of one detector that was tried.

    Attributes
    ----------
    name : str
    rows : int
        New rows that it was chosen for.
    flagged : int
        Those of them that are flagged.
    alone : int or None
        Rows that it would have flagged at the same level, had nothing else been tried; None where
        one detector was chosen for all rows.
    evidence : int or None
        There, how many anomalies it seems to tell from normal rows, by calibration and new rows
        together.
    """

    name: str
    rows: int
    flagged: int
    alone: int | None = None
    evidence: int | None = None


def by_evidence(
    names: tuple[str, ...], evidence: Sequence[int], rows: Sequence[int], flagged: Sequence[int]
) -> tuple[Candidate, ...]:
    """Say what became of detectors that were chosen from the pool, the chosen ones first."""
    pairs = zip(names, rows, flagged, evidence, strict=True)
    made = [Candidate(name, r, f, evidence=e) for name, r, f, e in pairs]
    return tuple(sorted(made, key=lambda one: (-one.rows, -(one.evidence or 0))))


def choice_sentence(candidates: tuple[Candidate, ...]) -> str:
    """Say in words which detectors were chosen.

    Examples
    --------
    >>> kde, knn = Candidate("kde", 90, 31, 33), Candidate("knn", 10, 0, 12)
    >>> print(choice_sentence((kde, knn, Candidate("lof", 0, 0, 4))))
    One of 3 detectors was chosen for each row: kde for 90 of 100 rows, another for the rest.
    """
    total = sum(one.rows for one in candidates)
    chosen = [one for one in candidates if one.rows]
    if not chosen:
        return ""
    name, others = chosen[0].name, len(chosen) - 1
    if not others:
        return f"Ranked by {name}, chosen among {len(candidates)} detectors."
    return (
        f"One of {len(candidates)} detectors was chosen for each row: {name} for "
        f"{chosen[0].rows:,} of {total:,} rows, {'another' if others == 1 else f'{others} others'} "
        "for the rest."
    )


# --- φ: how the scores of several models that held out a row become one ---------------------------

NAMES = ("median", "mean", "min", "max")


def _sequential_mean(scores: FloatArray) -> FloatArray:
    # np.mean changes its order of summation with the shape of the array, and so the last bit of
    # its result with the chunk size. One model after the other does not.
    total = scores[0].copy()
    for row in scores[1:]:
        total += row
    return np.asarray(total / scores.shape[0], dtype=np.float64)


def _median(scores: FloatArray) -> FloatArray:
    # Sorting short rows is several times quicker than the partition behind np.median. Where the
    # sum of two scores could overflow, np.median's own arithmetic is asked.
    models, rows = scores.shape
    if not np.abs(scores).max(initial=0.0) < np.finfo(np.float64).max / 4:  # also for NaN
        return np.asarray(np.median(scores, axis=0), dtype=np.float64)
    half = models // 2
    medians = np.empty(rows)
    for start in range(0, rows, 1024):
        block = slice(start, start + 1024)
        ordered = np.sort(np.ascontiguousarray(scores[:, block].T), axis=1)
        high = ordered[:, half]
        medians[block] = high if models % 2 else (ordered[:, half - 1] + high) / 2
    return medians


def check_aggregate(aggregate: Aggregate) -> None:
    """Raise unless `aggregate` names an aggregation, is a quantile in [0, 1], or is callable."""
    if isinstance(aggregate, str):
        if aggregate not in NAMES:
            raise unknown_choice("aggregate", aggregate, NAMES)
    elif is_number(aggregate):
        if not 0 <= float(aggregate) <= 1:
            raise ReconformError(f"aggregate as a quantile must lie in [0, 1]; got {aggregate!r}.")
    elif not callable(aggregate):
        raise ReconformError(
            "aggregate must be 'median', 'mean', 'min', 'max', a quantile in [0, 1], or a "
            f"callable; got {aggregate!r}."
        )


def reduction(aggregate: Aggregate) -> Reduction:
    """Return φ as a function from (models, rows) scores to (rows,) scores.

    A callable is either NumPy-like (it has an ``axis`` parameter, as `numpy.median` has) or takes
    the one-dimensional set of scores of one row and returns a number.

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.array([[1.0, 5.0], [2.0, 6.0], [9.0, 7.0]])
    >>> reduction("median")(scores)
    array([2., 6.])
    >>> reduction(0.0)(scores)
    array([1., 5.])
    >>> reduction(lambda s: s.max() - s.min())(scores)
    array([8., 2.])
    """
    check_aggregate(aggregate)
    if aggregate == "median":
        return _median
    if aggregate == "mean":
        return _sequential_mean
    if aggregate == "min":
        return lambda scores: np.asarray(scores.min(axis=0), dtype=np.float64)
    if aggregate == "max":
        return lambda scores: np.asarray(scores.max(axis=0), dtype=np.float64)
    if callable(aggregate):
        return _from_callable(aggregate)
    level = float(aggregate)
    return lambda scores: np.asarray(np.quantile(scores, level, axis=0), dtype=np.float64)


def _from_callable(function: Callable[..., Any]) -> Reduction:
    try:
        numpy_like = "axis" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # some built-ins have no signature
        numpy_like = False

    def reduce(scores: FloatArray) -> FloatArray:
        rows = scores.shape[1]
        if numpy_like:
            # NumPy sums a lone column in another order; beside a second one it does not.
            wide = np.ascontiguousarray(scores if rows != 1 else np.repeat(scores, 2, axis=1))
            result = np.asarray(function(wide, axis=0), dtype=np.float64)
        else:
            wide = scores
            result = np.array([function(column) for column in scores.T], dtype=np.float64)
        if result.shape != wide.shape[1:]:
            raise ReconformError(
                "aggregate must turn the scores of one row into one number; for an array of shape "
                f"{wide.shape} it returned shape {result.shape}, expected {wide.shape[1:]}."
            )
        return result[:rows]

    return reduce
