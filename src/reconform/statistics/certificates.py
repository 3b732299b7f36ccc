"""What is proven about each method: one table that everything else reads from.

A method lists what its p-values and e-values offer to a proof (`Guarantee.supports`), and a
procedure says what its proof asks for (`Procedure.proof`), so neither has to know the other. The
estimator (`guarantee_`), every `Discoveries`, the documents and the report render
this table, so that they can never disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ReconformError, unknown_choice
from .conditional import BANDS
from .fdr import (
    ALARMS,
    ANY,
    E_VALUES,
    FDR,
    FIXED_LAMBDA,
    POSITIVE,
    PROCEDURES,
    Outcome,
    named_procedures,
)
from .grid import Grid, usual
from .ranks import RankedBatch
from .worlds import certify

if TYPE_CHECKING:
    from ..plan import Plan  # plans use the aggregation of this package

_MEASURED_P = "measured only: no finite-sample theorem; near α in most experiments, not in all"

# The procedure whose lists can be certified, and what is said of them.
CERTIFIED = "bh"
_CERTIFICATE = "proven (conditional calibration)"


# Said of a list that is not proven, where another one would be.
CERTIFIABLE = " `validity='proven'` gives a proven list."


@dataclass(frozen=True)
class Guarantee:
    """What is known about a method, for a new normal row exchangeable with the reference.

    Attributes
    ----------
    name : str
        The method, as a user writes it.
    kind : {"exact", "bounded", "measured"}
        A theorem at the nominal level, a theorem at a larger level, or experience only.
    p_value : str
        The statement about one p-value.
    supports : tuple of str
        What its p-values and e-values offer to a proof; see `Procedure.proof`.
    needs_correction : bool
        Whether those proofs are about the corrected p-values of ``validity="proven"``.
    certified : bool
        Whether ``validity="proven"`` certifies the list of Benjamini-Hochberg, row by row, by
        conditional calibration.
    refuted : mapping of str to str
        The procedures for which a counterexample is known, and what it is: no theorem will come.
    alarms : str
        Of the number of false alarms where p-values up to v/m are flagged: what an exact kind needs
        beyond exchangeable rows; what is proven of a bounded kind, where ``{}`` stands for 2v.
    """

    name: str
    kind: str
    p_value: str
    supports: tuple[str, ...] = ()
    needs_correction: bool = False
    certified: bool = False
    refuted: Mapping[str, str] = field(default_factory=dict)
    alarms: str = ""

    def __str__(self) -> str:
        return f"{self.name}: one p-value is {self.p_value}; the false discovery rate: {self.fdr}."

    @property
    def proven(self) -> dict[str, str]:
        """The procedures with a proof, and on what it rests."""
        return {
            name: row.proof
            for name, row in PROCEDURES.items()
            if row.proof is not None and row.proof in self.supports
        }

    @property
    def fdr(self) -> str:
        """The statement about the false discovery rate, for all procedures."""
        proven = {n: reason for n, reason in self.proven.items() if PROCEDURES[n].controls == FDR}
        if not proven and not self.certified:
            return "measured"
        by_reason: dict[str, list[str]] = {}
        for procedure, reason in proven.items():
            by_reason.setdefault(reason, []).append(procedure.upper())
        on = " on the corrected p-value" if self.needs_correction else ""
        said = [f"{', '.join(names)}{on} proven ({r})" for r, names in by_reason.items()]
        said += [f"{CERTIFIED.upper()} under `validity='proven'` {_CERTIFICATE}"] * self.certified
        said += [f"{name.upper()} false in general ({r})" for name, r in self.refuted.items()]
        return "; ".join(said if len(proven) >= 3 else [*said, "otherwise measured"])

    def certifies(self, procedure: str, validity: str) -> bool:
        """Whether a list is proven by conditional calibration, and by nothing simpler."""
        return (
            self.certified
            and validity == "proven"
            and procedure == CERTIFIED
            and procedure not in self.proven
        )

    def sentence(
        self,
        procedure: str,
        *,
        validity: str = "nominal",
        conditional: str | None = None,
        smoothed: bool = False,
        level: Fraction | None = None,
    ) -> str:
        """Say what holds for the false discovery rate, or the false alarms, of one procedure.

        Parameters
        ----------
        procedure : str
        validity : {"nominal", "proven"}
        conditional : str, optional
            The kind of calibration-conditional p-values, where those are used.
        smoothed : bool
            Whether p-values are smoothed: then only what needs no dependence is claimed.
        level : Fraction, optional
            The number of false alarms, for a procedure that is about these.

        Examples
        --------
        >>> guarantee("split").sentence("bh")
        'FDR proven for BH on split (conformal p-values are positively dependent).'
        >>> guarantee("jackknife+").sentence("bh")
        "FDR measured, not proven, for BH on jackknife+. `validity='proven'` gives a proven list."
        >>> print(guarantee("full").sentence("bh"))
        FDR measured, not proven, for BH on full, and false in general: there is a symmetric
        detector on which it is about twice the level. `validity='proven'` gives a proven list.
        >>> guarantee("full").sentence("bh", validity="proven")
        'FDR proven (conditional calibration) for the list certified from full.'
        >>> print(guarantee("full").sentence("false-alarms", level=Fraction(2)))
        Expected number of false alarms at most 2, proven for full, whatever the dependence between
        new rows.
        """
        if PROCEDURES[procedure].controls == ALARMS:
            assert level is not None
            return self._alarms(level, validity, conditional, smoothed)
        if conditional is not None and PROCEDURES[procedure].proof not in _OF_INDEPENDENT:
            return (
                f"FDR measured, not proven, for {procedure.upper()} on {conditional} conditional "
                "p-values."
            )
        if conditional is not None and not BANDS[conditional].proven:
            return (
                f"FDR of {procedure.upper()} holds given the calibration set only approximately: "
                f"the band behind {conditional} conditional p-values is a large-sample one."
            )
        if conditional is not None:
            return (
                f"FDR proven for {procedure.upper()} given the calibration set, for all but the "
                f"stated share of calibration sets ({conditional} conditional p-values, which are "
                "independent given it)."
            )
        reason = self.proven.get(procedure)
        if smoothed and reason not in (ANY, E_VALUES):
            reason = None
        if self.certifies(procedure, validity):
            return f"FDR {_CERTIFICATE} for the list certified from {self.name}."
        if reason is not None and (not self.needs_correction or validity == "proven"):
            return f"FDR proven for {procedure.upper()} on {self.name} ({reason})."
        said = f"FDR measured, not proven, for {procedure.upper()} on {self.name}"
        if procedure in self.refuted:
            said += f", and false in general: {self.refuted[procedure]}"
        certifiable = self.certifies(procedure, "proven")
        return f"{said}.{CERTIFIABLE}" if certifiable else f"{said}."

    def _alarms(
        self, level: Fraction, validity: str, conditional: str | None, smoothed: bool
    ) -> str:
        """Say what holds for the number of false alarms where p-values up to v/m are flagged.

        A normal row is flagged with probability at most v/m if its p-value is exact, and there are
        at most m of them: no more is needed, so that nothing is asked of their dependence.
        """
        said = f"Expected number of false alarms at most {float(level):g}"
        if conditional is not None and not BANDS[conditional].proven:
            return (
                f"{said} given the calibration set only approximately: the band behind "
                f"{conditional} conditional p-values is a large-sample one."
            )
        if conditional is not None:
            return (
                f"{said} given the calibration set, proven for all but the stated share of "
                f"calibration sets ({conditional} conditional p-values)."
            )
        if self.kind == "exact":
            under = self.alarms or "whatever the dependence between new rows"
            return f"{said}, proven for {self.name}, {under}."
        if self.needs_correction and validity == "proven":
            return (
                f"{said}, proven on the corrected p-values of {self.name}, whatever the dependence "
                "between new rows."
            )
        proven = self.alarms.format(f"{float(2 * level):g}") if not smoothed else ""
        only = f"; proven is only: {proven}" if proven else ""
        return f"{said} measured, not proven, for {self.name}{only}."


# What p-values that are valid and independent, as conditional ones are, offer to a proof.
_OF_INDEPENDENT = (POSITIVE, FIXED_LAMBDA, ANY)

TABLE: tuple[Guarantee, ...] = (
    Guarantee(
        "split",
        "exact",
        "exact: P(p <= α) <= α, over the data and the seed",
        (POSITIVE, FIXED_LAMBDA, ANY, E_VALUES),
    ),
    Guarantee(
        "repeated split",
        "exact",
        "exact: P(p <= α) <= α for twice the median over the splits, over the data and the seed",
        (ANY, E_VALUES),
    ),
    Guarantee(
        "prefit",
        "exact",
        "exact: P(p <= α) <= α, if the model never saw the calibration rows",
        (POSITIVE, FIXED_LAMBDA, ANY),
    ),
    Guarantee(
        "full",
        "exact",
        "exact: P(p <= α) <= α given the seed, as every detector is made to depend on the multiset "
        "of its rows only; in model files of format 1 over the seed, for a symmetric detector",
        (ANY,),
        certified=True,
        refuted={"bh": "there is a symmetric detector on which it is about twice the level"},
    ),
    Guarantee(
        "full with the batch",
        "exact",
        "exact: P(p <= α) <= α given the seed, if the reference and the row are exchangeable "
        "*given the other new rows*, as independent rows are; broken by normal new rows in clumps "
        "that the reference does not have, such as copies and repeated measurements",
        (ANY,),
        alarms="if the reference and each normal row are exchangeable given the other new rows",
        certified=True,
        refuted={"bh": "there is a symmetric detector on which it is about twice the level"},
    ),
    Guarantee(
        "split with the batch",
        "exact",
        "exact: P(p <= α) <= α over the data and the seed, if the calibration rows and the row are "
        "exchangeable *given the other new rows*, as independent rows are",
        (ANY,),
        alarms="if the calibration rows and each normal row are exchangeable given the other new "
        "rows",
        certified=True,
    ),
    Guarantee(
        "batch",
        "exact",
        "exact: P(p <= α) <= α given the seed, if the reference and the normal new rows are "
        "exchangeable given the anomalies, as independent rows are",
        (POSITIVE, FIXED_LAMBDA, ANY, E_VALUES),
        alarms="if the reference and the normal new rows are exchangeable given the anomalies",
    ),
    Guarantee(
        "learned",
        "exact",
        "exact: P(p <= α) <= α over the data and the seed, if the calibration rows and the normal "
        "new rows are exchangeable given the anomalies and the other reference rows, as "
        "independent rows are",
        (POSITIVE, FIXED_LAMBDA, ANY, E_VALUES),
        alarms="if the reference and the normal new rows are exchangeable given the anomalies",
    ),
    Guarantee(
        "repeated learned",
        "exact",
        "exact: P(p <= α) <= α for twice the median over the partitions, as for learned",
        (ANY, E_VALUES),
        alarms="if the reference and the normal new rows are exchangeable given the anomalies",
    ),
    Guarantee(
        "jackknife+",
        "bounded",
        "bounded: P(p <= α) < 2α given the seed, where all models have one (shared models, "
        "detectors that draw nothing), and over the seed where each has its own",
        (ANY,),
        needs_correction=True,
        certified=True,
        alarms="at most {}",
    ),
    Guarantee(
        "jackknife+ as full",
        "exact",
        "exact: P(p <= α) <= α, as jackknife+ has the ranks of full for this detector (mahalanobis "
        "and kde, with scales and a bandwidth that are fixed beforehand)",
        (ANY,),
        certified=True,
    ),
    Guarantee(
        "cv+",
        "bounded",
        "bounded: P(p <= α) <= 2α + (K-2)/(n+K) for K folds, and for n/K = m rows in every fold "
        "also <= 2α + (m-2)/(n+m) if m-1 further rows exchangeable with these could be had, as for "
        "independent rows; both over the data and the seed",
        (ANY,),
        needs_correction=True,
        certified=True,
        alarms="at most {} and a fold term of (K-2)/(n+K) for every new row",
    ),
    Guarantee(
        "jab+",
        "measured",
        _MEASURED_P
        + " (2α is proven only if the number of draws is itself random, Kim et al. 2020)",
    ),
    Guarantee(
        "shared draws",
        "measured",
        _MEASURED_P + " (jackknife+ models that shared draws by position, saved with format 1)",
    ),
    Guarantee("basic", "measured", _MEASURED_P),
    Guarantee("pooled", "measured", _MEASURED_P),
    Guarantee("resampling", "measured", _MEASURED_P),
)


# What is added to the name of a method, and to its condition, where ranks are made within groups.
WITHIN = " within groups"
_IN_GROUPS = (
    "; in every group by itself, if its reference rows and its normal new rows are exchangeable "
    "given all rows of the other groups"
)


def within_groups(row: Guarantee) -> Guarantee:
    """What is left of a guarantee where ranks are made within groups and decided together.

    Examples
    --------
    >>> within_groups(guarantee("split")).sentence("bh")
    'FDR proven for BH on split within groups (conformal p-values are positively dependent).'
    """
    return replace(
        row,
        name=row.name + WITHIN,
        p_value=row.p_value + _IN_GROUPS,
        supports=tuple(reason for reason in row.supports if reason != E_VALUES),
    )


def pooled_rows(row: Guarantee, rows: int, *, certified: bool) -> tuple[Guarantee, str]:
    """What is left where rows of unknown groups were ranked against all reference rows.

    Returns
    -------
    Guarantee, str
        Without proofs that need more than one exact p-value at a time; and a sentence.
    """
    if certified:
        return row, f" No certificate covers the {rows:,} rows of unknown groups: none is flagged."
    kept = tuple(reason for reason in row.supports if reason == ANY)
    said = (
        f" {rows:,} rows of unknown groups were ranked against all reference rows: exact only for "
        "rows that are exchangeable with all of these, and not for rows of a new kind."
    )
    return replace(row, supports=kept), said


TABLE += tuple(
    within_groups(row) for row in TABLE if row.name in ("split", "full", "jackknife+", "cv+")
)


def guarantee(name: str) -> Guarantee:
    """Look up a row of the table.

    Examples
    --------
    >>> guarantee("split").kind, guarantee("jab+").kind
    ('exact', 'measured')
    """
    for row in TABLE:
        if row.name == name:
            return row
    raise unknown_choice("method", name, [row.name for row in TABLE])


def guarantee_of(
    plan: Plan,
    *,
    shares_draws: bool = False,
    plus_is_full: bool = False,
    uses_batch: bool = False,
    grouped: bool = False,
) -> Guarantee:
    """Look up what holds for a plan.

    Parameters
    ----------
    plan : Plan
    shares_draws : bool
        Whether the models share random draws that go by position; see `Ensemble`.
    plus_is_full : bool
        Whether leave-one-out ranks are full-conformal ones by a theorem; see `Ensemble`.
    uses_batch : bool
        Whether lists rank a row by the other new rows, too.
    grouped : bool
        Whether rows are ranked within several groups.
    """
    if grouped:
        plain = guarantee_of(
            plan, shares_draws=shares_draws, plus_is_full=plus_is_full, uses_batch=uses_batch
        )
        return within_groups(plain)
    if plan.fits_batch:
        return guarantee("repeated learned" if len(plan.repeats) > 1 else plan.scheme)
    if uses_batch:
        return guarantee("full with the batch" if plan.scheme == "full" else "split with the batch")
    if plan.scheme == "split" and plan.n_models > 1:
        return guarantee("repeated split")
    if plan.scheme in ("split", "prefit", "full"):
        return guarantee(plan.scheme)
    if plan.variant != "plus":
        return guarantee(plan.variant)
    if shares_draws:
        return guarantee("shared draws")
    if plus_is_full and plan.leaves_one_out:
        return guarantee("jackknife+ as full")
    return guarantee(plan.scheme if plan.scheme == "resampling" else f"{plan.scheme}+")


def proven_grid(plan: Plan, row: Guarantee, n_calibration: int) -> Grid:
    """The p-values for which P(p <= α) <= α is a theorem, as a grid over the ranks.

    Exact methods need no correction. Jackknife+ gets (2r - 1) / (n + 1) (a tournament argument,
    Barber et al. 2021; docs/guarantees). CV+ takes the smaller of twice the mean of the folds'
    exact p-values (Vovk and Wang 2020, made a little sharper) and of the tournament bound.

    Parameters
    ----------
    plan : Plan
    row : Guarantee
        What `guarantee_of` says of the plan.
    n_calibration : int
    """
    ranks = np.arange(n_calibration + 2, dtype=np.int64)
    n = n_calibration
    if row.kind == "exact":
        return usual(n)
    name = row.name.removesuffix(WITHIN)
    if name == "jackknife+":
        corrected = np.minimum(2 * ranks - 1, n + 1)
        corrected[0] = 0  # stands for no rank
        return Grid(corrected, n + 1)
    if name == "cv+":
        # Within groups, folds hold rows of other groups, too: the tournament is not theirs.
        sizes = {len(held) for held in plan.held_out} if name == row.name else set()
        folds = plan.n_models
        # (2 r + K - 2) / (n + K): holds for any folds and any detector.
        merged, denominator = 2 * ranks + folds - 2, n + folds
        if len(sizes) == 1:  # the tournament needs folds of one size, m
            m = sizes.pop()
            merged = np.minimum(merged * (n + m), (2 * ranks + m - 2) * denominator)
            denominator *= n + m
        merged = np.minimum(merged, denominator)
        merged[0] = 0
        return Grid(merged, denominator)
    raise ReconformError(
        f"`validity='proven'` asks for a theorem, and none is known for {row.name}; use 'split', "
        "'full', 'jackknife+' or 'cv+', or `validity='nominal'`."
    )


BatchRule = Callable[[RankedBatch, Fraction], Outcome]


def certificate(row: Guarantee, procedure: str) -> BatchRule | None:
    """Return what makes the list of a procedure proven; None where nothing more is needed.

    Examples
    --------
    >>> certificate(guarantee("split"), "bh"), certificate(guarantee("full"), "by")
    (None, None)
    >>> certificate(guarantee("full"), "bh").__name__
    'certify'
    """
    if procedure in row.proven:
        return None
    if row.certifies(procedure, "proven"):
        return certify
    usable = [
        name for name in named_procedures() if name in row.proven or row.certifies(name, "proven")
    ]
    instead = f"use `procedure={usable[0]!r}`" if usable else "use 'split', 'full' or 'jackknife+'"
    raise ReconformError(
        f"`validity='proven'` asks for a theorem on the false discovery rate, and none is known "
        f"for {procedure.upper()} on {row.name}; {instead}, or `validity='nominal'`."
    )


@dataclass(frozen=True)
class Validity:
    """A row of the table of validities: which p-values a rule uses, and how strong they are.

    Attributes
    ----------
    about : str
        What it gives, as the end of a sentence.
    grid : callable
        What each rank is worth, from the plan, its guarantee and the number of calibration scores.
    on_batch : callable, optional
        From a guarantee and the name of a procedure to the function that decides a whole batch in
        memory (from a `RankedBatch` and the level to an `Outcome`), or to None where the grid is
        enough. Files, clusters and streams refuse what needs the whole batch.
    """

    about: str
    grid: Callable[[Plan, Guarantee, int], Grid]
    on_batch: Callable[[Guarantee, str], BatchRule | None] | None = None


VALIDITY: dict[str, Validity] = {
    "nominal": Validity("the p-values of the paper", lambda plan, row, n: usual(n)),
    "proven": Validity(
        "p-values and lists that a theorem covers, where there is one", proven_grid, certificate
    ),
}


def markdown() -> str:
    """Render the table for the documents."""
    lines = ["| method | one p-value | false discovery rate |", "|---|---|---|"]
    lines += [f"| {row.name} | {row.p_value} | {row.fdr} |" for row in TABLE]
    return "\n".join(lines)
