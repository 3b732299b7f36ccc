"""From p-values to discoveries at a false discovery rate: counts of ranks, and the procedures.

Decisions are made in integers and exact fractions. All p-values of one calibration lie on the
grid r / (n + 1), so n + 1 counts say everything about a batch that a step-up procedure asks; the
counts of batches add up (`RankCounts`), and so a batch, a file or a cluster get the same decision.

`PROCEDURES` is the one table of procedures: a row says how it decides, what it is called, and what
its proof rests on. Checks, help texts, documents and guarantees read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..arrays import BoolArray, FloatArray, RankArray
from ..errors import ReconformError, unknown_choice
from .evalues import INNER_LEVEL, average_e_values, closed_e_bh, closed_q_values, conformal_e_values
from .exact import Grid, exact_fraction, harmonic_number, usual
from .ranks import RankedBatch

if TYPE_CHECKING:
    from ..methods import Plan  # plans use the aggregation of this package

Bounds = tuple[Fraction, Fraction]

# What the level of a procedure is.
FDR = "fdr"
ALARMS = "false alarms"


# --- counts of ranks ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Decision:
    """What a procedure decided, as a rule on integer ranks.

    Attributes
    ----------
    rank_threshold : int
        Rows of at most this rank are discoveries; 0 if there are none.
    count : int
        Number of discoveries.
    tested : int
        Number of rows, m.
    grid : Grid
        The p-value of each rank.
    fdr : Fraction
        The level, exactly; of ``"false-alarms"`` their number.
    procedure : str
    q_table : float array of shape (n_calibration + 2,)
        The q-value of every rank (entry 0 is unused).
    """

    rank_threshold: int
    count: int
    tested: int
    grid: Grid
    fdr: Fraction
    procedure: str
    q_table: FloatArray = field(repr=False)

    @property
    def p_threshold(self) -> float:
        """The largest p-value that is a discovery; 0.0 if there is none."""
        return float(self.grid.table[self.rank_threshold])

    def mask(self, ranks: RankArray) -> BoolArray:
        """Which of these rows are discoveries."""
        return np.asarray(ranks <= self.rank_threshold)

    def q_values(self, ranks: RankArray) -> FloatArray:
        """Adjust p-values: the smallest level at which each row would be a discovery."""
        return np.asarray(self.q_table[ranks])


class RankCounts:
    """How many rows got each rank: all that FDR control needs to know of a batch.

    Counts of any partition of a batch merge to the counts of the batch, and the decision is
    exactly the one that the whole batch would have got.

    Parameters
    ----------
    n_calibration : int
        Ranks lie in 1 .. n_calibration + 1.
    fingerprint : str
        Says which calibration the ranks come from; only counts with the same one merge.

    Examples
    --------
    >>> counts = RankCounts(9, "plant-7").add([1, 1, 8])
    >>> both = counts.merge(RankCounts(9, "plant-7").add([1, 10]))
    >>> both
    RankCounts(rows=5, n_calibration=9)
    >>> both.decide(fdr=0.2).count
    3
    """

    def __init__(self, n_calibration: int, fingerprint: str) -> None:
        self.n_calibration = n_calibration
        self.fingerprint = fingerprint
        self.counts = np.zeros(n_calibration + 2, dtype=np.int64)

    def __repr__(self) -> str:
        return f"RankCounts(rows={self.rows}, n_calibration={self.n_calibration})"

    @property
    def rows(self) -> int:
        """Number of rows counted."""
        return int(self.counts.sum())

    def add(self, ranks: npt.ArrayLike) -> RankCounts:
        """Count the ranks of some rows, in place.

        Parameters
        ----------
        ranks : array-like of int
            As `ConformalDetector.ranks` returns them. Smoothed p-values are off the grid and have
            no rank; they are refused.
        """
        array = np.asarray(ranks)
        if array.size and not np.issubdtype(array.dtype, np.integer):
            raise ReconformError(
                f"ranks must be integers; got {array.dtype}. p-values, and smoothed ones in "
                "particular, cannot be counted: use ranks(X) with ties='conservative'."
            )
        if array.size and (array.min() < 1 or array.max() > self.n_calibration + 1):
            raise ReconformError(
                f"ranks must lie in 1 .. {self.n_calibration + 1}; got {array.min()} .. "
                f"{array.max()}. Do they come from another calibration?"
            )
        self.counts += np.bincount(array.astype(np.int64).ravel(), minlength=self.n_calibration + 2)
        return self

    def merge(self, other: RankCounts) -> RankCounts:
        """Add up two counts from the same calibration."""
        if (self.n_calibration, self.fingerprint) != (other.n_calibration, other.fingerprint):
            raise ReconformError(
                "rank counts merge only if they come from the same calibration; got fingerprints "
                f"{self.fingerprint[:12]!r} (n={self.n_calibration}) and "
                f"{other.fingerprint[:12]!r} (n={other.n_calibration})."
            )
        merged = RankCounts(self.n_calibration, self.fingerprint)
        merged.counts = self.counts + other.counts
        return merged

    def decide(
        self,
        fdr: float | Fraction = 0.1,
        *,
        procedure: str = "bh",
        storey_lambda: float | Fraction = 0.5,
        grid: Grid | None = None,
    ) -> Decision:
        """Apply a step-up procedure, exactly.

        A row of rank r is a discovery iff for some r' >= r, with k rows of rank at most r',
        r' m den <= num k (n + 1), where num / den is the level (divided by the harmonic number
        for BY, by Storey's estimate of the share of nulls for Storey).

        Parameters
        ----------
        fdr : float or Fraction
            Target level; a float is read as the decimal number it prints as.
        procedure : {"bh", "by", "storey"}
            A procedure of the table that decides on counts.
        storey_lambda : float
            Storey's λ, fixed beforehand; rounded up to the grid of p-values.
        grid : Grid, optional
            The p-value of each rank; by default r / (n + 1).

        Returns
        -------
        Decision
        """
        row = counting_procedure(procedure)
        if row.controls != FDR:
            raise ReconformError(
                f"procedure={procedure!r} has no false discovery rate; use "
                "Rule(false_alarms=...).decide_counts(counts, grid)."
            )
        options = {"storey_lambda": storey_lambda}
        grid = usual(self.n_calibration) if grid is None else grid
        return row.decide(self, grid, exact_fraction("fdr", fdr), options)


# --- procedures ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a procedure decided about the rows of a batch in memory.

    Attributes
    ----------
    mask : bool array
        Which rows are discoveries.
    q_values : float array
        The smallest level at which each row would be one.
    decision : Decision or None
        The same as a rule on ranks, where the counts of the ranks decided.
    e_values : float array or None
        Of a certified list; its q-values are those of the procedure without a certificate.
    plain : bool array or None
        For a certified list, what the procedure finds at the same level without a certificate.
    """

    mask: BoolArray
    q_values: FloatArray
    decision: Decision | None = None
    e_values: FloatArray | None = None
    plain: BoolArray | None = None

    @classmethod
    def of(cls, decision: Decision, ranks: RankArray) -> Outcome:
        """Apply a decision on ranks to the rows that have them."""
        return cls(decision.mask(ranks), decision.q_values(ranks), decision)


@dataclass(frozen=True, eq=False)
class Totals:
    """What a step-up procedure may look at to choose its factor.

    Attributes
    ----------
    rows : int
        Number of p-values.
    at_least : callable
        Counts the p-values of at least some share; returns the share that was used, too, or None.
    """

    rows: int
    at_least: Callable[[Fraction], tuple[int, Fraction] | None]


@dataclass(frozen=True)
class Procedure:
    """A row of the table of procedures.

    One of `factor`, `on_counts` and `on_batch` says how it decides.

    Attributes
    ----------
    name : str
        What users write; the key of the row.
    title : str
        What people call it.
    about : str
        When to use it, as the end of a sentence.
    proof : str or None
        What its proof asks of the p-values: one of the reasons below, which the methods in
        `certificates` say they support. None if nothing is proven.
    options : tuple of str
        The fields of `Rule` that belong to this procedure alone. They are handed to its functions
        as keywords.
    factor : callable, optional
        For a step-up procedure: bounds on what the p-values are multiplied by, from a `Totals`.
    settle : callable, optional
        Where those bounds differ: whether the factor for m rows is at most a number, exactly.
    on_counts : callable, optional
        For any other procedure that needs no more than counts: from the counts, the grid and the
        level to a `Decision`.
    on_p_values : callable, optional
        For the same, from plain p-values to adjusted ones.
    on_batch : callable, optional
        For a procedure that needs the whole batch in memory: from a `RankedBatch` and the level to
        an `Outcome`. Files, clusters and streams refuse it.
    objection : callable, optional
        From the plan, the validity and the conditional p-values asked for to a sentence that says
        why it cannot be used with them, or None.
    least_factor : callable, optional
        From m to a lower bound on the factor that is known before the p-values are: it tells how
        short a list can be.
    controls : {"fdr", "false alarms"}
        What its level is: a false discovery rate, or a number of false alarms. Users choose among
        the former by name; the latter is chosen by giving the number.

    Examples
    --------
    >>> PROCEDURES["by"].title
    'Benjamini-Yekutieli'
    """

    name: str
    title: str
    about: str
    proof: str | None = None
    options: tuple[str, ...] = ()
    factor: Callable[..., Bounds] | None = None
    settle: Callable[[int, Fraction], bool] | None = None
    on_counts: Callable[..., Decision] | None = None
    on_p_values: Callable[..., FloatArray] | None = None
    on_batch: Callable[..., Outcome] | None = None
    objection: Callable[[Plan, str, str | None], str | None] | None = None
    least_factor: Callable[[int], Fraction] | None = None
    controls: str = "fdr"

    @property
    def counts(self) -> bool:
        """Whether counts of ranks are enough for it."""
        return self.factor is not None or self.on_counts is not None

    def decide(
        self, counts: RankCounts, grid: Grid, level: Fraction, options: Mapping[str, Any]
    ) -> Decision:
        """Decide on counts, exactly."""
        own = {name: options[name] for name in self.options}
        if self.on_counts is not None:
            return grid.decide(counts, partial(self.on_counts, level=level, **own))
        return grid.decide(counts, partial(_step_up, level=level, row=self, own=own))

    def adjust(self, p_values: FloatArray, options: Mapping[str, Any]) -> FloatArray:
        """Adjust plain p-values, in floating point."""
        own = {name: options[name] for name in self.options}
        if self.on_p_values is not None:
            return self.on_p_values(p_values, **own)
        if self.factor is None:
            raise ReconformError(
                f"procedure={self.name!r} does not work on plain p-values; use one of "
                f"{', '.join(repr(name) for name in counted_names())}."
            )
        totals = Totals(len(p_values), lambda share: (int((p_values >= float(share)).sum()), share))
        return _step_up_plain(p_values, float(self.factor(totals, **own)[1]))


def named_procedures() -> list[str]:
    """Names that users choose among: the procedures that aim at a false discovery rate."""
    return [name for name, row in PROCEDURES.items() if row.controls == FDR]


def counted_names() -> list[str]:
    """Those of the names that need no more than counts."""
    return [name for name in named_procedures() if PROCEDURES[name].counts]


def counting_procedure(name: str) -> Procedure:
    """Look up a procedure that decides on counts; others are refused."""
    row = PROCEDURES.get(name)
    if row is None or (row.factor is None and row.on_counts is None):
        raise unknown_choice("procedure", name, counted_names())
    return row


# --- step-up procedures: on counts, and on plain p-values ----------------------------------------


def _at_least(counts: RankCounts, grid: Grid, share: Fraction) -> tuple[int, Fraction] | None:
    # Rounded up to a p-value of the grid, or down where there is none below 1. Counting p > λ and
    # dividing by 1 - λ, as for continuous p-values, loses a little validity.
    numerators, denominator = grid.numerators, grid.denominator
    below_one = numerators[1:][numerators[1:] < denominator]
    if not len(below_one):
        return None
    first = int(np.searchsorted(below_one, -int(-(share * denominator) // 1)))
    cut = int(below_one[min(first, len(below_one) - 1)])
    return int(counts.counts[numerators >= cut].sum()), Fraction(cut, denominator)


def _step_up(
    counts: RankCounts, grid: Grid, level: Fraction, row: Procedure, own: Mapping[str, Any]
) -> Decision:
    assert row.factor is not None
    m = counts.rows
    low, high = row.factor(Totals(m, partial(_at_least, counts, grid)), **own)
    ranks = np.flatnonzero(counts.counts)
    upto = np.cumsum(counts.counts[ranks])
    numerators = grid.numerators[ranks]
    # p * factor <= level * k / m, multiplied out; Python's integers do not overflow.
    left_high = m * high.numerator * level.denominator
    right_high = grid.denominator * high.denominator * level.numerator
    left_low = m * low.numerator * level.denominator
    right_low = grid.denominator * low.denominator * level.numerator
    threshold, count = 0, 0
    columns = (ranks[::-1].tolist(), numerators[::-1].tolist(), upto[::-1].tolist())
    for r, w, k in zip(*columns, strict=True):
        if w * left_high <= k * right_high or (
            w * left_low <= k * right_low
            and row.settle is not None
            and row.settle(m, level * k * grid.denominator / (w * m))
        ):
            threshold, count = r, k
            break
    q_table = _q_table(counts, ranks, numerators, upto, high / grid.denominator)
    return Decision(threshold, count, m, grid, level, row.name, q_table)


def _q_table(
    counts: RankCounts, ranks: RankArray, numerators: RankArray, upto: RankArray, factor: Fraction
) -> FloatArray:
    table = np.ones(counts.n_calibration + 2)
    if not len(ranks):
        return table
    numerator, denominator = counts.rows * factor.numerator, factor.denominator
    if max(numerator * int(numerators[-1]), denominator * counts.rows) < 1 << 53:
        # both products are exact in a double, and one division rounds once
        raw = (numerators * float(numerator)) / (upto * float(denominator))
    else:
        pairs = zip(numerators.tolist(), upto.tolist(), strict=True)
        raw = np.array([(w * numerator) / (k * denominator) for w, k in pairs])
    q = np.minimum(np.minimum.accumulate(raw[::-1])[::-1], 1.0)
    # A rank that no row has takes the q-value of the next one that occurs.
    position = np.searchsorted(ranks, np.arange(counts.n_calibration + 2))
    inside = position < len(ranks)
    table[inside] = q[position[inside]]
    return table


def _step_up_plain(p: FloatArray, factor: float) -> FloatArray:
    m = len(p)
    order = np.argsort(p, kind="stable")
    raw = p[order] * (factor * m) / np.arange(1, m + 1)
    q = np.empty(m)
    q[order] = np.minimum(np.minimum.accumulate(raw[::-1])[::-1], 1.0)
    return q


def adjust(
    p_values: npt.ArrayLike, *, procedure: str = "bh", storey_lambda: float | Fraction = 0.5
) -> FloatArray:
    """Adjust plain p-values: weighted, smoothed, or anyone's.

    A row is a discovery at level fdr iff its adjusted p-value is at most fdr. Plain p-values are
    floats, and so is this arithmetic; `RankCounts` decides exactly.

    Parameters
    ----------
    p_values : array-like of float in [0, 1]
    procedure : {"bh", "by", "storey"}
        A procedure of the table that decides on counts.
    storey_lambda : float

    Returns
    -------
    float array
        q-values, in the order of the input.

    Examples
    --------
    >>> adjust([0.01, 0.04, 0.03, 0.5])
    array([0.04      , 0.05333333, 0.05333333, 0.5       ])
    """
    row = counting_procedure(procedure)
    return row.adjust(checked_p_values(p_values), {"storey_lambda": storey_lambda})


def checked_p_values(p_values: npt.ArrayLike) -> FloatArray:
    """Return p-values as an array; refuse anything else."""
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1:
        raise ReconformError(f"p_values must be one-dimensional; got shape {p.shape}.")
    if p.size and not (p.min() >= 0 and p.max() <= 1):  # also false for NaN
        raise ReconformError(f"p_values must lie in [0, 1]; got {p.min()} .. {p.max()}.")
    return p


# --- the table -----------------------------------------------------------------------------------

# What a proof may ask of the p-values or e-values. A method in `certificates` lists what it offers.
POSITIVE = "conformal p-values are positively dependent"
FIXED_LAMBDA = "at a λ fixed beforehand, on the grid of p-values"
ANY = "any dependence"
E_VALUES = "the e-values of normal rows add up to at most their number in expectation"


def _harmonic(tally: Totals) -> Bounds:
    return harmonic_number(tally.rows)


def _harmonic_below(m: int, bound: Fraction) -> bool:
    """H_m <= bound, for a bound that lies within 10^-30 of H_m: settled by the sum itself."""
    return sum((Fraction(1, i) for i in range(1, m + 1)), Fraction(0)) <= bound


def _storey(tally: Totals, storey_lambda: float | Fraction) -> Bounds:
    """(1 + #{p >= λ}) / (m (1 - λ)); not capped at 1, which the proof does not allow."""
    found = tally.at_least(exact_fraction("storey_lambda", storey_lambda))
    if found is None:
        return Fraction(1), Fraction(1)
    above, share = found
    factor = Fraction(1 + above, max(tally.rows, 1)) / (1 - share)
    return factor, factor


def _within_alarms(counts: RankCounts, grid: Grid, level: Fraction) -> Decision:
    """Flag p <= v / m, for v false alarms: each of at most m normal rows is flagged so often."""
    m = counts.rows
    numerators = grid.numerators[1:]
    # p <= v / m, multiplied out: w m den(v) <= num(v) D; Python's integers do not overflow.
    limit = level.numerator * grid.denominator // (level.denominator * max(m, 1))
    last = int(np.searchsorted(numerators, min(limit, grid.denominator), side="right"))
    occupied = np.flatnonzero(counts.counts[: last + 1])
    threshold = int(occupied[-1]) if len(occupied) else 0
    count = int(counts.counts[: last + 1].sum())
    q_table = np.array([w * m / grid.denominator for w in grid.numerators.tolist()])
    return Decision(threshold, count, m, grid, level, "false-alarms", q_table)


def _expected_alarms(p_values: FloatArray) -> FloatArray:
    """The smallest number of false alarms at which each row is flagged."""
    return len(p_values) * p_values


def _e_values(batch: RankedBatch, level: Fraction, alpha_bh: float | Fraction | None) -> Outcome:
    """Closed e-BH on the e-values of every split, averaged."""
    splits = batch.ranks.splits
    if not splits and alpha_bh is None:
        # On one split, with the level of the list inside it, this is Benjamini-Hochberg.
        counts = RankCounts(batch.n_calibration, batch.calibration.fingerprint)
        decision = counts.add(batch.ranks.at_most).decide(level, grid=batch.grid)
        return Outcome.of(decision, batch.ranks.at_most)
    inner = INNER_LEVEL if alpha_bh is None else alpha_bh
    e_values = average_e_values(
        [
            conformal_e_values(scores, found.scores, inner)
            for scores, found in zip(_calibrations(batch), splits or (batch.ranks,), strict=True)
        ]
    )
    return Outcome(closed_e_bh(e_values, level), closed_q_values(e_values))


def _calibrations(batch: RankedBatch) -> list[FloatArray]:
    """The calibration scores of every split; those that depend on new rows come with the ranks."""
    against = [found.against for found in batch.ranks.splits or (batch.ranks,)]
    known = [scores for scores in against if scores is not None]
    return known or batch.calibration.scores_by_split


def _e_values_objection(plan: Plan, validity: str, conditional: str | None) -> str | None:
    if validity == "proven" or conditional is not None:
        return (
            "procedure='ebh' works on e-values, which are proven as they are; leave validity and "
            "conditional at their defaults."
        )
    if not plan.row.e_values:
        return (
            "procedure='ebh' needs the e-values of splits; use method=Split(repeats=20) instead of "
            f"{plan.scheme!r}."
        )
    return None


_ROWS = (
    Procedure(
        "bh",
        "Benjamini-Hochberg",
        "the usual choice",
        POSITIVE,
        factor=lambda tally: (Fraction(1), Fraction(1)),
        least_factor=lambda m: Fraction(1),
    ),
    Procedure(
        "by",
        "Benjamini-Yekutieli",
        "for p-values with any dependence; finds less",
        ANY,
        factor=_harmonic,
        settle=_harmonic_below,
        # The lower bound, so that a list that is called impossible really is.
        least_factor=lambda m: harmonic_number(m)[0],
    ),
    Procedure(
        "storey",
        "Benjamini-Hochberg with Storey's estimate of the share of normal rows",
        "finds more where many rows are anomalies",
        FIXED_LAMBDA,
        options=("storey_lambda",),
        factor=_storey,
    ),
    Procedure(
        "ebh",
        "closed e-BH (Benjamini-Hochberg for e-values, and a little more)",
        "averages over repeated splits, so that less depends on the luck of one",
        E_VALUES,
        options=("alpha_bh",),
        on_batch=_e_values,
        objection=_e_values_objection,
    ),
    Procedure(
        "false-alarms",
        "p-values of at most v/m",
        "for a number of false alarms per batch, v, that is fixed beforehand: chosen by "
        "`false_alarms=v`",
        ANY,
        on_counts=_within_alarms,
        on_p_values=_expected_alarms,
        controls=ALARMS,
    ),
)

PROCEDURES: dict[str, Procedure] = {row.name: row for row in _ROWS}


def procedures_markdown() -> str:
    """Render the table for the documents."""
    lines = ["| `procedure=` | name | when | its proof asks for |", "|---|---|---|---|"]
    lines += [
        f"| `{row.name}` | {row.title} | {row.about} | {row.proof or 'none is known'} |"
        for row in PROCEDURES.values()
    ]
    return "\n".join(lines)
