"""Is the whole batch shifted against the reference? A test that tolerates a share of anomalies.

The one idea: anomalies can add rows anywhere, but they cannot make normal rows disappear. Of m new
rows at least m0 are normal. If these come from the same process as the n reference rows, the
number of new rows at or below the r-th smallest reference value is at least a beta-binomial number
(m0 trials, parameters r and n + 1 - r), whatever the other rows are. Too few rows of the
reference's kind are evidence against the assumption; too many of another kind never are.

The test is exact at every size, for every statistic of a row that does not know whether the row
is a reference or a normal new row. The proof is in docs/assumptions. Such statistics are here

- every column;
- every column given the others (residuals of the pooled normal scores), and the direction in
  which all columns move together;
- a direction learned on one half of both files, for the other half, and the other way round;
- the rank of the detector's score, from the counts of all new rows.
"""

from __future__ import annotations

import csv
import io
import shlex
import warnings
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import gammaln, ndtri

from ..arrays import FloatArray, IndexArray, IntArray
from ..statistics.chances import log_factorials
from ..weights import Weights
from .verdict import Finding

# The share of anomalies among new rows that must not raise an alarm.
TOLERATED = 0.2
# Where the reference is cut: about this share of its rows on the side that is looked at.
LEVELS = (1 / 2, 1 / 4, 1 / 8)
# False-alarm rates, over all tests of a batch together.
BROKEN = 0.004
DOUBTFUL = 0.02
# How finely the number of normal rows in a sample is looked at.
BINS = 12
# Terms of a sum over new rows that are worked out at a time.
PART = 1 << 20
# Columns beyond this are not combined; each is still tested on its own.
MOST_COMBINED = 200
MOST_NAMED = 3
FAMILIES = ("column", "given the others", "together", "learned")
ADVICE = (
    "Check units, sensors and the time the rows were taken; take a reference from the same "
    "process, or leave out columns that move by nature with `drop`."
)
# Ridge of the covariance of normal scores, whose variances are about 1.
RIDGE = 0.02


@dataclass(frozen=True)
class Shortfall:
    """One test: how many new rows lie where a known share of the reference lies.

    Attributes
    ----------
    family : str
        "column", "given the others", "together", "learned" or "detector".
    what : str
        Column or statistic.
    side : str
        "low" if new rows are missing among small values (the batch is too high), or "high".
    expected, seen : float
        The share of the reference and that of the new rows on this side of the cut.
    p : float
        Of this test alone.
    corrected : float
        Times the number of tests, over the weight of the family; the sum of all families' false
        alarms at level a is at most a.
    """

    family: str
    what: str
    side: str
    expected: float
    seen: float
    p: float
    corrected: float

    def sentence(self) -> str:
        """Say it in plain words."""
        if self.family == "detector":
            return (
                f"only {self.seen:.0%} of the new rows are as ordinary to the detector as the most "
                f"ordinary {self.expected:.0%} of the reference"
            )
        place = {
            "column": f"in column {self.what!r}",
            "given the others": f"in column {self.what!r} given the other columns",
        }.get(self.family, "in a combination of the columns")
        side = "lowest" if self.side == "low" else "highest"
        return (
            f"{place} only {self.seen:.0%} of the new rows lie in the {side} {self.expected:.0%} "
            "of the reference"
        )


def normal_rows_at_least(m: int, tolerated: float = TOLERATED) -> int:
    """Smallest number of normal rows among m new rows; one anomaly more by rounding is allowed.

    Examples
    --------
    >>> normal_rows_at_least(37), normal_rows_at_least(494)
    (29, 395)
    """
    return int(np.floor((1 - tolerated) * m + 1e-9))


def too_few(n: int, r: int, trials: int) -> FloatArray:
    """P(K <= k), k = 0..trials, for K the normal rows at or below the r-th of n reference values.

    K is beta-binomial (negative hypergeometric): of the rows in random order, how many come before
    the r-th reference row.

    Examples
    --------
    >>> too_few(1, 1, 2)  # one reference row, two new ones: 0, 1 or 2 below, equally likely
    array([0.33333333, 0.66666667, 1.        ])
    """
    logs = log_factorials((n + trials).bit_length())
    k = np.arange(trials + 1)
    log = (
        (logs[k + r - 1] - logs[k] - logs[r - 1])
        + (logs[trials - k + n - r] - logs[trials - k] - logs[n - r])
        - (logs[n + trials] - logs[trials] - logs[n])
    )
    return np.asarray(np.minimum(np.cumsum(np.exp(log)), 1.0))


@lru_cache(maxsize=64)
def too_few_in_sample(n: int, r: int, drawn: int, m: int, normal: int) -> FloatArray:
    """The same where `drawn` of m new rows are looked at, of which at least `normal` are normal.

    How many normal rows were drawn is hypergeometric. Its values are put into `BINS` bins and
    each taken for the smallest of its bin, which makes the result a little too large, never too
    small.

    Examples
    --------
    >>> bool(np.allclose(too_few_in_sample(9, 3, 20, 20, 16)[:17], too_few(9, 3, 16)))
    True
    """
    if drawn == m:
        found = np.ones(drawn + 1)
        found[: normal + 1] = too_few(n, r, normal)
        return found
    logs = log_factorials(m.bit_length())
    j = np.arange(max(0, drawn - (m - normal)), min(drawn, normal) + 1)
    law = np.exp(
        (logs[normal] - logs[j] - logs[normal - j])
        + (logs[m - normal] - logs[drawn - j] - logs[m - normal - drawn + j])
        - (logs[m] - logs[drawn] - logs[m - drawn])
    )
    cumulated = np.cumsum(law)
    least, most = np.searchsorted(cumulated, [1e-9, 0.99])
    starts = np.unique(np.linspace(least, min(most, len(j) - 1), BINS).astype(int))
    below = np.where(starts > 0, cumulated[starts - 1], 0.0)
    weights = np.diff(np.append(below, 1.0))
    starts = j[starts]
    found = np.full(drawn + 1, below[0])  # fewer than the least: no evidence at all
    for trials, weight in zip(starts.tolist(), weights, strict=True):
        found[: trials + 1] += weight * too_few(n, r, trials)
        found[trials + 1 :] += weight
    return np.minimum(found, 1.0)


def shortfalls(
    reference: FloatArray,
    new: FloatArray,
    batch: int,
    normal: int,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Test statistics (columns) of both files, both sides, at several cuts.

    Parameters
    ----------
    reference, new : float arrays of shape (n, c), (m, c)
        Missing numbers count as larger than every number.
    batch, normal : int
        The number of rows of the whole batch, and how many of them are normal at least.

    Returns
    -------
    p, expected, seen : float arrays of shape (2, len(LEVELS), c)
        p-values, and the share of the reference and of the new rows at or beyond the cut; low
        side first.
    """
    n, m = len(reference), len(new)
    cuts = [min(max(round((n + 1) * level), 1), n) for level in LEVELS]
    # Column by column in memory: sorting and counting along the last axis is much faster.
    ours, theirs = _by_column(reference), _by_column(new)
    ordered = np.sort(ours, axis=1)  # faster than a partition at six places
    shape = 2, len(cuts), len(ours)
    p, expected, seen = np.empty(shape), np.empty(shape), np.empty(shape)
    for level, r in enumerate(cuts):
        table = too_few_in_sample(n, r, m, batch, normal)
        low, high = ordered[:, r - 1, None], ordered[:, n - r, None]
        for side, (known, count) in enumerate(
            [(ours <= low, theirs <= low), (ours >= high, theirs >= high)]
        ):
            number = np.count_nonzero(count, axis=1)
            p[side, level] = table[number]
            expected[side, level] = np.count_nonzero(known, axis=1) / n
            seen[side, level] = number / m
    return p, expected, seen


def _by_column(values: FloatArray) -> FloatArray:
    filled = np.ascontiguousarray(values.T)
    return np.where(np.isnan(filled), np.inf, filled)


def normal_scores(pooled: FloatArray) -> FloatArray:
    """Turn each column into normal scores by its ranks; equal values get equal scores.

    Examples
    --------
    >>> import numpy as np
    >>> normal_scores(np.array([[3.0, 1.0], [1.0, 1.0], [2.0, 5.0]])).round(2)
    array([[ 0.97, -0.43],
           [-0.97, -0.43],
           [ 0.  ,  0.97]])
    """
    columns = _by_column(pooled)
    order = np.argsort(columns, axis=1)
    ordered = np.take_along_axis(columns, order, axis=1)
    rows = len(pooled)
    first = np.ones(columns.shape, dtype=bool)  # of its equals
    np.not_equal(ordered[:, 1:], ordered[:, :-1], out=first[:, 1:])
    starts = np.flatnonzero(first)
    equals = np.diff(starts, append=first.size)
    # Equal values share the mean of their places; by halves, from 0.
    table = ndtri((np.arange(2 * rows) / 2 + 0.5) / rows)
    scores = np.empty_like(columns)
    np.put_along_axis(
        scores,
        order,
        np.repeat(table[2 * (starts % rows) + equals - 1], equals).reshape(columns.shape),
        axis=1,
    )
    return np.ascontiguousarray(scores.T)


def given_the_others(scores: FloatArray) -> FloatArray:
    """Residuals of every column of pooled normal scores given the others, up to scale.

    Column j of scores @ inverse covariance is the residual of column j regressed on the rest,
    divided by its variance. A last column is the sum of them: the direction in which a common shift
    of all columns is easiest to see. Pooled over both files, so no row knows whether it is new.
    """
    centred = scores - scores.mean(axis=0)
    covariance = centred.T @ centred / len(scores)
    precision = np.linalg.inv(covariance + RIDGE * np.eye(len(covariance)))
    residuals = centred @ precision
    both = np.column_stack([residuals, residuals.sum(axis=1)])
    # Equal rows may differ in the last bits, as a product of matrices goes by blocks.
    return np.round(both, 9)


def learned(scores: FloatArray, n: int, order: IndexArray) -> list[tuple[FloatArray, FloatArray]]:
    """Directions learned on one half of both files, and where the rows of the other half lie.

    Linear discriminant with the covariance of all rows; then once more without the share of
    rows of each file that lies farthest on the new side, as those may be anomalies.

    Parameters
    ----------
    scores : float array of shape (n + m, d)
        Pooled normal scores, reference first.
    n : int
    order : int array
        The rows in an order that has nothing to do with files or positions: every other
        reference row and every other new row in it form a half.

    Returns
    -------
    list of (reference values, new values), two pairs
        Large = like the new rows that were learned from.
    """
    centred = scores - scores.mean(axis=0)
    covariance = centred.T @ centred / len(scores) + RIDGE * np.eye(scores.shape[1])
    ours, theirs = order[order < n], order[order >= n]
    pairs = []
    for first in (0, 1):
        train = ours[first::2], theirs[first::2]
        test = ours[1 - first :: 2], theirs[1 - first :: 2]
        kept = train
        for _ in range(2):
            gap = centred[kept[1]].mean(axis=0) - centred[kept[0]].mean(axis=0)
            weights = np.linalg.solve(covariance, gap)
            values = centred @ weights
            kept = _without_top(train[0], values), _without_top(train[1], values)
        values = np.round(centred @ weights, 9)
        pairs.append((values[test[0]], values[test[1]]))
    return pairs


def _without_top(rows: IndexArray, values: FloatArray) -> IndexArray:
    keep = max(1, round((1 - TOLERATED) * len(rows)))
    return rows[np.argpartition(values[rows], keep - 1)[:keep]]


def rank_shortfall(counts: IntArray, normal: int) -> tuple[float, float, float]:
    """Test whether too few new rows are as ordinary as reference rows, from counts of ranks.

    Ties with reference rows count as ordinary, so the test is careful with them.

    Parameters
    ----------
    counts : int array of shape (n + 2,)
        How many new rows have each rank, 1 to n + 1.
    normal : int
        How many of them are normal at least.

    Returns
    -------
    p, expected, seen : float
        Of the most striking cut; p is not corrected for their number.
    """
    n, m = len(counts) - 2, int(counts.sum())
    found = []
    for level in LEVELS:
        r = min(max(round((n + 1) * level), 1), n)
        count = int(counts[n - r + 2 :].sum())
        found.append((_at_most_before(count, n, r, normal), r / n, count / m))
    return min(found)


def _at_most_before(most: int, n: int, r: int, trials: int) -> float:
    """P(K <= most), as of `too_few`; in parts, as its table takes gigabytes for very many rows."""
    if most > trials:
        return 1.0

    def log(k: Any) -> Any:
        a, b = k + 1.0, trials - k + 1.0
        return (
            (gammaln(a + (r - 1)) - gammaln(a) - gammaln(float(r)))
            + (gammaln(b + (n - r)) - gammaln(b) - gammaln(n - r + 1.0))
            - (gammaln(n + trials + 1.0) - gammaln(trials + 1.0) - gammaln(n + 1.0))
        )

    mode = trials * (r - 1) // max(1, n - 1)
    first = bisect_left(range(min(most, mode) + 1), -746.0, key=log)  # those before are 0
    total = 0.0
    for start in range(first, most + 1, PART):
        terms = np.exp(log(np.arange(start, min(start + PART, most + 1))))
        total = float(np.cumsum(np.append(total, terms))[-1])
    return min(total, 1.0)


def shift_tests(
    reference: FloatArray | None,
    new: FloatArray | None,
    *,
    names: Sequence[str],
    of: int,
    counts: IntArray | None = None,
) -> list[Shortfall]:
    """Run all tests, most striking first.

    Parameters
    ----------
    reference, new : float arrays of shape (n, d), (m, d), or None
        Samples, in an order that has nothing to do with what the rows hold. Without them only
        ranks are tested.
    names : sequence of str
        Of the columns.
    of : int
        Rows of the batch that `new` is a sample of.
    counts : int array, optional
        How many rows of the whole batch have each rank.

    Returns
    -------
    list of Shortfall
        The smallest `corrected` first; one per statistic.
    """
    normal = normal_rows_at_least(of)
    found: list[Shortfall] = []
    families = 0 if counts is None else 1
    if reference is not None and new is not None:
        # One column is not combined with others, nor are very many.
        single = reference.shape[1] == 1 or reference.shape[1] > MOST_COMBINED
        used = FAMILIES[:1] if single else FAMILIES
        families += len(used)
        for family, what, ours, theirs, sides in _statistics(reference, new, names, used):
            p, expected, seen = shortfalls(ours, theirs, of, normal)
            p = p[sides]
            tests = p.size * families * (2 if family == "learned" else 1)
            # The most striking cut of every column, for all columns at once.
            sides_at, levels_at = np.unravel_index(
                p.reshape(-1, len(what)).argmin(axis=0), p.shape[:2]
            )
            at = sides_at, levels_at, np.arange(len(what))
            numbers = (values[at].tolist() for values in (p, expected, seen))
            columns = zip(what, sides_at.tolist(), *numbers, strict=True)
            found += [
                Shortfall(family, name, ("low", "high")[side], e, s, q, min(1.0, q * tests))
                for name, side, q, e, s in columns
            ]
    if counts is not None:
        q, e, s = rank_shortfall(counts, normal)
        corrected = min(1.0, q * (len(LEVELS) * families))
        found.append(Shortfall("detector", "score", "high", e, s, q, corrected))
    return sorted(found, key=lambda test: test.corrected)


def _statistics(
    reference: FloatArray, new: FloatArray, names: Sequence[str], used: Sequence[str]
) -> Iterator[tuple[str, Sequence[str], FloatArray, FloatArray, slice]]:
    """Every family of statistics: its names, values of reference and new rows, and the sides."""
    n, d = reference.shape
    both = slice(0, 2)
    yield "column", names, reference, new, both
    if "learned" not in used:
        return
    scores = normal_scores(np.concatenate([reference, new]))
    residuals = given_the_others(scores)
    yield "given the others", names, residuals[:n, :d], residuals[n:, :d], both
    yield "together", ["all"], residuals[:n, d:], residuals[n:, d:], both
    order = np.random.default_rng(0).permutation(len(scores))
    for ours, theirs in learned(scores, n, order):
        yield "learned", ["direction"], ours[:, None], theirs[:, None], slice(0, 1)


def shift_finding(tests: Sequence[Shortfall]) -> Finding | None:
    """Say in one finding what the tests saw; None if nothing beyond chance."""
    striking = [test for test in tests if test.corrected <= DOUBTFUL]
    if not striking:
        return None
    worst = striking[0]
    level = "broken" if worst.corrected <= BROKEN else "doubtful"
    columns = [test for test in striking if test.family == "column"]
    seen = _columns_sentence(columns) if columns else worst.sentence()
    sentence = (
        f"The new rows as a whole do not look like the reference: {seen}. Even with up to "
        f"{TOLERATED:.0%} anomalies among them, this happens in fewer than "
        f"{chance(worst.corrected)} batches."
    )
    return Finding("shift", level, sentence, ADVICE)


def moved_columns(tests: Sequence[Shortfall], names: Sequence[str]) -> list[str]:
    """The columns that moved, in their order; all where only a combination of them did."""
    moved = {t.what for t in tests if t.corrected <= DOUBTFUL and t.family == "column"}
    return [name for name in names if name in moved] or list(names)


def with_weights(
    finding: Finding, moved: Sequence[str], reference: FloatArray, new: FloatArray, names: list[str]
) -> Finding:
    """Add to the finding of a shift whether weights could make up for it.

    Parameters
    ----------
    finding : Finding
    moved : sequence of str
        The columns that weights are estimated from.
    reference, new : float arrays of shape (s, d), (t, d)
        Samples.
    names : list of str
        Of the columns.

    Returns
    -------
    Finding
    """
    used = [names.index(name) for name in moved]
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            weights = Weights.estimate(reference[:, used], new[:, used])
    except ValueError:  # numbers that no classifier takes, such as infinite ones
        return finding
    if weights.usable:
        more = (
            "If only the mix of normal rows has changed, weight the reference rows accordingly: "
            f"`reconform detect --shift {_typed(moved, names)}` (Weights.estimate in Python); they "
            f"would then count as {weights.effective_size:,.0f} of {len(reference):,}."
        )
    else:
        more = "Weighting the reference rows would not help: too few of them are like the new ones."
    return replace(finding, advice=f"{finding.advice} {more}".lstrip())


def _typed(moved: Sequence[str], names: Sequence[str]) -> str:
    """Names of columns as the command takes them."""
    if len(moved) == len(names) or len(moved) > MOST_NAMED:
        return "all"
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(moved)
    return shlex.quote(line.getvalue())


def _columns_sentence(columns: Sequence[Shortfall]) -> str:
    """Say of the most striking columns together what `Shortfall.sentence` says of one."""
    first = columns[0]
    if len(columns) == 1:
        return first.sentence()
    alike = [t for t in columns if (t.side, t.expected) == (first.side, first.expected)]
    named = ", ".join(f"{test.what!r} ({test.seen:.0%})" for test in alike[:MOST_NAMED])
    more = len(columns) - len(alike[:MOST_NAMED])
    side = "lowest" if first.side == "low" else "highest"
    return (
        f"too few of them lie in the {side} {first.expected:.0%} of the reference in "
        f"{'column' if len(alike) == 1 else 'columns'} {named}"
        + (f", and {more:,} more columns are off" if more else "")
    )


def chance(p: float) -> str:
    """Say a small probability as one in so many.

    Examples
    --------
    >>> chance(0.02), chance(1e-12)
    ('1 in 50', '1 in a million')
    """
    if p <= 1e-6:
        return "1 in a million"
    digits = 10 ** max(0, int(np.log10(1 / p)) - 1)
    return f"1 in {int(1 / p) // digits * digits:,}"
