"""The decision as a value: which rows are flagged, at which level, and what is promised of it.

`ConformalDetector.discover`, files, Dask, streams and the command line make one `Rule` and pass it
on. It checks itself when it is made, so that nothing is read before a mistake in it is found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import numpy.typing as npt

from .errors import ReconformError, check_count, unknown_choice
from .methods import BySize, resolve_method
from .statistics.certificates import CERTIFIED, VALIDITY, BatchRule, Claim
from .statistics.exact import Grid, exact_fraction, exact_number, from_floats, usual
from .statistics.fdr import (
    PROCEDURES,
    Decision,
    Outcome,
    Procedure,
    RankCounts,
    checked_p_values,
    counting_procedure,
    named_procedures,
)
from .statistics.joint import JointGrid, JointRanks, check_lambda
from .statistics.thresholds import BANDS, conditional_table
from .weights import Weights

if TYPE_CHECKING:
    from .detector import ConformalDetector

NUMBERS = ("fdr", "storey_lambda", "confidence")
USUAL = "bh"
WITHIN_ALARMS = "false-alarms"


class RuleOptions(TypedDict, total=False):
    """The fields of a `Rule` but `fdr`, as keywords of `ConformalDetector.discover`."""

    procedure: str
    storey_lambda: float | Fraction
    validity: str
    conditional: str | None
    confidence: float | Fraction
    alpha_bh: float | Fraction | None
    false_alarms: float | Fraction | None
    top: int | None
    sample: int | None


# What goes with conditional p-values and e-BH, whatever was asked for.
ONE_SPLIT = "use one detector on a split, such as `detector='knn'` with `method='split'`"


@dataclass(frozen=True)
class Rule:
    """How a list is decided: the level, the procedure, and the p-values it uses.

    Parameters
    ----------
    fdr : float or Fraction, default=0.1
        False discovery rate aimed at: the share of false ones among the discoveries, on average
        over repetitions. A float is read as the decimal number it prints as.
    procedure : {"bh", "by", "storey", "ebh"}, default="bh"
        A row of `reconform.statistics.PROCEDURES`.
    storey_lambda : float, default=0.5
        Storey's λ, fixed beforehand; for ``"storey"``.
    validity : {"auto", "nominal", "proven"}, default="auto"
        With ``"proven"``, p-values for which P(p <= α) <= α is a theorem, and only lists whose
        false discovery rate is one. With ``"nominal"``, those of the paper. ``"auto"`` stands for
        one of them, see `resolved`.
    conditional : {"simes", "montecarlo"}, optional
        For split and prefit: p-values that are valid given the calibration set, for all but a
        share 1 - `confidence` of calibration sets.
    confidence : float, default=0.9
        The confidence of `conditional`.
    alpha_bh : float, optional
        For ``"ebh"``: the level inside each split.
    false_alarms : float, int or Fraction, optional
        Instead of `fdr` and `procedure`: flag p-values of at most `false_alarms` / m, so that the
        expected number of false alarms in a batch of m rows is at most this number.
    top : int, optional
        How many rows a person can look at: the list says what is known of the rows that come
        first, flagged or not (`first`), and a file writes these. It changes no decision.
    sample : int, optional
        Draw so many rows at random to look at beside the list, by their contents and before
        anything is judged. It changes no decision.

    See Also
    --------
    ConformalDetector.discover : The same parameters, explained.

    Examples
    --------
    >>> rule = Rule(fdr=0.05, procedure="by")
    >>> rule.level
    Fraction(1, 20)
    >>> rule.smallest_list(n_calibration=1000, m=100)
    11
    >>> Rule(procedure="byy")
    Traceback (most recent call last):
        ...
    reconform.errors.ReconformError: procedure must be one of 'bh', 'by', 'storey', 'ebh'; got
    'byy'. Did you mean 'by'?
    >>> Rule(false_alarms=2).procedure
    'false-alarms'
    """

    fdr: float | Fraction = 0.1
    procedure: str = USUAL
    storey_lambda: float | Fraction = 0.5
    validity: str = "auto"
    conditional: str | None = None
    confidence: float | Fraction = 0.9
    alpha_bh: float | Fraction | None = None
    false_alarms: float | Fraction | None = None
    top: int | None = None
    sample: int | None = None

    def __post_init__(self) -> None:
        if self.false_alarms is not None:
            exact_number("false_alarms", self.false_alarms)
            self._decide_by_alarms()
        elif self.procedure == WITHIN_ALARMS:
            raise ReconformError(
                f"procedure={WITHIN_ALARMS!r} needs their number; give `false_alarms`."
            )
        for name in NUMBERS:
            exact_fraction(name, getattr(self, name))
        if self.alpha_bh is not None:
            exact_fraction("alpha_bh", self.alpha_bh)
        for name in ("top", "sample"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), least=1)
        if self.procedure not in PROCEDURES:
            raise unknown_choice("procedure", self.procedure, named_procedures())
        if self.validity not in VALIDITY:
            raise unknown_choice("validity", self.validity, VALIDITY)
        if self.conditional is not None and self.conditional not in BANDS:
            raise unknown_choice("conditional", self.conditional, BANDS)

    def _decide_by_alarms(self) -> None:
        """A number of false alarms is a decision of its own, and needs no other choice."""
        if self.fdr != type(self).fdr:
            raise ReconformError(
                "`false_alarms` and `fdr` are two ways to say how long a list may be; give one."
            )
        if self.procedure not in (USUAL, WITHIN_ALARMS):
            raise ReconformError(
                f"`false_alarms` decides by itself; leave out `procedure={self.procedure!r}`."
            )
        object.__setattr__(self, "procedure", WITHIN_ALARMS)

    @property
    def level(self) -> Fraction:
        """The level, exactly: the false discovery rate, or the number of false alarms."""
        if self.false_alarms is not None:
            return exact_number("false_alarms", self.false_alarms)
        return exact_fraction("fdr", self.fdr)

    @property
    def row(self) -> Procedure:
        """The procedure's row of the table."""
        return PROCEDURES[self.procedure]

    @property
    def options(self) -> dict[str, Any]:
        """The fields that belong to its procedure, by name."""
        return {name: getattr(self, name) for name in self.row.options}

    # --- what it can be used with ---

    def resolved(self, cad: ConformalDetector, weights: Weights | None = None) -> Rule:
        """Settle what "auto" stands for: proven where that is at hand, and nominal elsewhere.

        With ``method="auto"`` on full, or with known weights, the list of Benjamini-Hochberg is
        certified. On a split it is proven as it is, and methods asked for by name do what the paper
        does.

        Parameters
        ----------
        cad : ConformalDetector
            Fitted, and the one that judges the rows (`ConformalDetector.for_rows`).
        weights : Weights, optional
        """
        if self.validity != "auto":
            return self
        proven = isinstance(resolve_method(cad.method), BySize)
        if weights is not None and not weights.constant:
            proven &= weights.known and self.procedure == CERTIFIED
        else:
            proven &= cad.guarantee_.certifies(self.procedure, "proven") and cad.plan_.row.augments
            proven &= self.conditional is None and cad.ties != "randomized" and cad.can_certify
        return replace(self, validity="proven" if proven else "nominal")

    def grid(self, cad: ConformalDetector, *, together: bool = False) -> Grid:
        """Tabulate the p-value of each rank of a fitted detector; refuse what cannot be computed.

        Parameters
        ----------
        cad : ConformalDetector
            Fitted.
        together : bool
            For ranks of a whole batch, which may depend on the other new rows.

        Returns
        -------
        Grid
        """
        if self.row.objection is not None:
            why = self.row.objection(cad.plan_, self.validity, self.conditional)
            if why is not None:
                raise ReconformError(why)
        if self.conditional is not None and cad.plan_.row.fits_batch:
            raise ReconformError(
                f"`conditional={self.conditional!r}` needs calibration scores that are known "
                f"before new rows are, and {cad.plan_.row.fits_batch}; {ONE_SPLIT}."
            )
        alone = self.conditional is not None or self.row.on_batch is not None
        if cad.joint is not None and alone:
            what = "`conditional`" if self.conditional is not None else "`procedure='ebh'`"
            raise ReconformError(
                f"{what} cannot be used with `groups`; use `procedure='bh'`, 'by' or 'storey' "
                "without `conditional`, or one detector and one list per group."
            )
        if together and cad.ranks_rows == "pool" and self.conditional is not None:
            raise ReconformError(
                "conditional p-values need calibration scores that are known before new rows are, "
                f"and here the detector is chosen by these; {ONE_SPLIT}."
            )
        if together and cad.ranks_rows == "batch" and alone and not cad.plan_.row.fits_batch:
            what = "conditional p-values" if self.conditional is not None else "e-BH"
            raise ReconformError(
                f"{what} need ranks that do not depend on the other new rows, and this detector "
                f"compares these; {ONE_SPLIT}."
            )
        if cad.ties == "randomized" and (self.validity == "proven" or self.conditional is not None):
            raise ReconformError(
                "proven and calibration-conditional p-values are corrections of ranks, and "
                "smoothed p-values have none; use ties='conservative'."
            )
        if cad.joint is not None:
            return self._joint_grid(cad, cad.joint)
        if self.conditional is None:
            return VALIDITY[self.validity].grid(cad.plan_, cad.guarantee_, cad.n_calibration_)
        if not cad.plan_.one_model:
            how = "leave out `repeats`" if len(cad.plan_.repeats) > 1 else "use `method='split'`"
            raise ReconformError(
                f"`conditional={self.conditional!r}` needs one model and calibration rows it has "
                f"not seen; {how}."
            )
        return from_floats(conditional_table(cad.n_calibration_, self.conditional, self.confidence))

    def _joint_grid(self, cad: ConformalDetector, joint: JointRanks) -> JointGrid:
        """Tabulate the p-value of each rank within several groups."""
        grid_of = VALIDITY[self.validity].grid
        by_size = {n: grid_of(cad.plan_, cad.guarantee_, n) for n in set(joint.sizes.tolist())}
        grids = [by_size[n] for n in joint.sizes.tolist()]
        if "storey_lambda" in self.row.options and cad.ties != "randomized":
            check_lambda(grids, self.storey_lambda)
        return JointGrid.of(grids)

    def counting_grid(self, cad: ConformalDetector, where: str, rows: str = "parts") -> Grid:
        """Return the `grid`; refuse what counts of ranks cannot decide, before any row is read.

        Parameters
        ----------
        cad : ConformalDetector
            Fitted.
        where : str
            What is judged, for the message: "a file".
        rows : {"alone", "parts", "whole"}
            How rows are ranked: each by itself, as by `p_values`; in parts; or all in memory.
        """
        counting_procedure(self.procedure)
        if cad.ties == "randomized":
            raise ReconformError(
                f"{where} is judged by counting ranks, and smoothed p-values have none; use "
                "ties='conservative'."
            )
        if rows == "alone" and cad.plan_.row.fits_batch:
            raise ReconformError(
                f"{where} is judged row by row, and {cad.plan_.row.fits_batch}; use "
                "discover(X) with all rows in memory, judge_file, or `method='split'`."
            )
        if rows == "parts" and cad.ranks_rows == "batch":
            raise ReconformError(
                f"{where} is judged in parts, and this detector compares the new rows of a batch "
                "with each other; use discover(X) with all rows in memory, judge_file, or "
                "`detector='knn'`."
            )
        if self.whole_batch(cad) is not None:
            raise ReconformError(
                f"{where} is judged by counting ranks, and `validity={self.validity!r}` with "
                f"method={cad.method!r} needs the whole batch in memory; use discover(X)."
            )
        return self.grid(cad, together=rows != "alone")

    # --- decisions ---

    def decide_counts(self, counts: RankCounts, grid: Grid) -> Decision:
        """Decide for all rows that were counted, exactly as if they had been judged at once."""
        row = counting_procedure(self.procedure)
        return row.decide(counts, grid, self.level, self.options)

    def decide_p_values(self, p_values: npt.ArrayLike, n_calibration: int | None = None) -> Outcome:
        """Decide on p-values from anywhere.

        Parameters
        ----------
        p_values : array-like of float in [0, 1]
        n_calibration : int, optional
            For p-values on the grid r / (n_calibration + 1), as `reconform.statistics.p_values_of`
            gives them: they are read as ranks, and the decision is exact. Otherwise they are taken
            as floats.

        Returns
        -------
        Outcome
            `mask` and `q_values`.

        Examples
        --------
        >>> Rule(fdr=0.1).decide_p_values([0.001, 0.6, 0.03, 0.9]).mask
        array([ True, False,  True, False])
        """
        p = checked_p_values(p_values)
        if n_calibration is None:
            q_values = self.row.adjust(p, self.options)
            return Outcome(np.asarray(q_values <= float(self.level)), q_values)
        ranks = np.rint(p * (n_calibration + 1)).astype(np.int64)
        if not np.array_equal(ranks / (n_calibration + 1), p):
            raise ReconformError(
                f"n_calibration={n_calibration} says that p-values are multiples of "
                f"1/{n_calibration + 1}, and some are not; leave it out for p-values off this grid."
            )
        counts = RankCounts(n_calibration, "").add(ranks)
        decision = self.decide_counts(counts, usual(n_calibration))
        return Outcome.of(decision, ranks)

    def whole_batch(self, cad: ConformalDetector) -> BatchRule | None:
        """What decides a whole batch instead of the grid, under this validity; None if nothing."""
        if self.conditional is not None:
            return None
        on_batch = VALIDITY[self.validity].on_batch
        return None if on_batch is None else on_batch(cad.guarantee_, self.procedure)

    # --- what is said about it ---

    def claim(self, cad: ConformalDetector) -> Claim:
        """Say what holds for the false discovery rate, or the false alarms, of its lists."""
        return cad.guarantee_.claim(
            self.procedure,
            validity=self.validity,
            conditional=self.conditional,
            smoothed=cad.ties == "randomized",
            level=self.level,
        )

    def smallest_list(
        self, n_calibration: int, m: int, *, smallest_p: Fraction | None = None
    ) -> int | None:
        """Count the fewest rows that can be flagged among m: k >= m / (fdr (n + 1)).

        Parameters
        ----------
        n_calibration, m : int
            Calibration scores, and new rows.
        smallest_p : Fraction, optional
            By default 1 / (n_calibration + 1).

        Returns
        -------
        int or None
            Larger than m if nothing can be flagged at all. None if the procedure has no such
            number before the p-values are known.

        Examples
        --------
        >>> Rule(fdr=0.1).smallest_list(100, 5_000)
        496
        """
        p = Fraction(1, n_calibration + 1) if smallest_p is None else smallest_p
        if self.false_alarms is not None:
            return 1 if p * m <= self.level else m + 1
        if self.row.least_factor is None:
            return None
        return math.ceil(m * self.row.least_factor(m) * p / self.level)

    def warning(
        self,
        n_calibration: int,
        m: int,
        *,
        n_reference: int | None = None,
        smallest_p: Fraction | None = None,
        rows: str = "reference rows",
        instead: str | None = None,
    ) -> str | None:
        """Say how many anomalies there must be for any to be flagged, if one is not enough.

        Parameters
        ----------
        n_calibration, m : int
            Calibration scores, and new rows.
        n_reference : int, optional
            Rows of the reference, where they are more than the calibration scores.
        smallest_p : Fraction, optional
            By default 1 / (n_calibration + 1).
        rows : str
            What calibrates, in words.
        instead : str, optional
            A method that calibrates on all reference rows, and that can be had here.

        Returns
        -------
        str or None
            None if a single anomaly can be flagged.

        Examples
        --------
        >>> print(Rule(fdr=0.1).warning(100, 5_000))
        With 100 reference rows and 5,000 new ones, at least 496 rows must stand out before any can
        be flagged at 10%: no p-value is below 1/101. Use more reference rows (with 49,999 a single
        anomaly can be flagged), fewer new rows at a time, or a higher `fdr`.
        """
        fewest = self.smallest_list(n_calibration, m, smallest_p=smallest_p)
        if fewest is None or fewest <= 1:
            return None
        plain = Fraction(1, n_calibration + 1)
        p = plain if smallest_p is None else smallest_p
        part = n_reference is not None and n_reference > n_calibration
        few = (
            "no row can"
            if fewest > m
            else f"at least {fewest:,} rows must stand out before any can"
        )
        floor = f"{p.numerator}/{p.denominator:,}" if p.numerator < 10 else f"{float(p):.3g}"
        more = ""
        if p == plain and (self.false_alarms or fewest == math.ceil(m * p / self.level)):
            needed = math.ceil(m / self.level) - 1
            purpose = " for calibration" if part else ""
            more = f" (with {needed:,}{purpose} a single anomaly can be flagged)"
        method = ""
        if part and instead is not None:
            method = f"`method={instead!r}`, which calibrates on all of them, "
        level, higher = f"at {float(100 * self.level):g}%", "a higher `fdr`"
        if self.false_alarms is not None:
            level = f"with {false_alarms_in_words(self.level)} allowed"
            higher = "more `false_alarms`"
        return (
            f"With {n_calibration:,} {'calibration rows' if part else rows} and {m:,} new "
            f"ones, {few} be flagged {level}: no p-value is below {floor}. Use {method}more "
            f"reference rows{more}, fewer new rows at a time, or {higher}."
        )


def false_alarms_in_words(number: float | Fraction) -> str:
    """Name a number of false alarms.

    Examples
    --------
    >>> false_alarms_in_words(1), false_alarms_in_words(Fraction(5, 2))
    ('1 false alarm', '2.5 false alarms')
    """
    return f"{float(number):g} false alarm" + ("" if number == 1 else "s")
