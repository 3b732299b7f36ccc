"""What is proven about each method: one table that everything else reads from.

A method lists what its p-values and e-values offer to a proof (`Guarantee.supports`), and a
procedure says what its proof asks for (`Procedure.proof`), so neither has to know the other. The
estimator (`guarantee_`), every `Discoveries`, the documents and the report render
this table, so that they can never disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ReconformError, unknown_choice
from .conditional_calibration import certify
from .exact import Grid, usual
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
from .ranks import RankedBatch

if TYPE_CHECKING:
    from ..methods import Plan  # plans use the aggregation of this package

_MEASURED_P = "measured only: no finite-sample theorem; near α in most experiments, not in all"

# The procedure whose lists can be certified, and what is said of them.
CERTIFIED = "bh"
_CERTIFICATE = "proven (conditional calibration)"

# What a promise is conditional on, in short; every sentence that promises says it in full.
ALONE = "exchangeable row by row"
GIVEN_ANOMALIES = "exchangeable given the anomalies"
GIVEN_OTHERS = "exchangeable given the other new rows"
CONDITIONS = {
    ALONE: "if each normal new row is exchangeable with the reference rows",
    GIVEN_ANOMALIES: "if normal new rows are exchangeable with the reference rows given the "
    "anomalies",
    GIVEN_OTHERS: "if each normal new row is exchangeable with the reference rows given the other "
    "new rows (independent rows are, copies and repeated measurements are not)",
}
_DRAWN = (
    "if reference rows and normal new rows are independent draws from one process, and independent "
    "of the anomalies"
)
_RIGHT_MARKS = "these are all of its anomalies, and no normal rows"
_SPLITS = "on average over random splits"


# Said of a list that is not proven, where another one would be.
CERTIFIABLE = " `validity='proven'` gives a proven list."


# What everybody reads of a condition.
SAME = "normal new rows come from the same process as the reference"
PROVEN, MEASURED = "proven", "measured, not proven"
GIVEN_CALIBRATION = "proven for all but the stated share of calibration sets"


@dataclass(frozen=True)
class Claim:
    """What holds for a list: in one sentence for everybody (`promise`), and in full.

    Attributes
    ----------
    full : str
        The theorem with its exact condition, or that there is none.
    status : str
        "proven" or "measured, not proven", and why, where that is special.
    condition : str
        In plain words.
    """

    full: str = ""
    status: str = MEASURED
    condition: str = SAME

    def promise(self, level: str, of: str = "them") -> str:
        """Say what share of the flagged rows, or how many of them, are false alarms.

        Examples
        --------
        >>> print(Claim(status=PROVEN).promise("10%"))
        On average at most 10% of them are false alarms (proven, if normal new rows come from the
        same process as the reference).
        """
        are, false = ("is", "a false alarm") if level == "1" else ("are", "false alarms")
        are = are if self.status.startswith(PROVEN) else "should be"
        how = f"{self.status}{';' if ':' in self.status else ','} if {self.condition}"
        return f"On average at most {level} of {of} {are} {false} ({how})."


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
        Of a bounded kind: what is proven of the number of false alarms where p-values up to v/m are
        flagged; ``{}`` stands for 2v.
    each : str
        The condition for one p-value, for procedures that ask for no more, and for false alarms.
        That for the other procedures is `GIVEN_ANOMALIES`, for a certified list `GIVEN_OTHERS`.
    also : str
        What every condition ends with.
    over : str
        What the promise is an average over, beside the data.
    cleaned : str
        What is said of marks that void the theorem; empty where there are none.
    granted : str
        What would have to hold for the theorem to stand.
    """

    name: str
    kind: str
    p_value: str
    supports: tuple[str, ...] = ()
    needs_correction: bool = False
    certified: bool = False
    refuted: Mapping[str, str] = field(default_factory=dict)
    alarms: str = ""
    each: str = ALONE
    also: str = ""
    over: str = ""
    cleaned: str = ""
    granted: str = ""

    def __str__(self) -> str:
        fdr = replace(self, refuted={}).fdr
        return f"{self.name}: one p-value is {self.p_value}; the false discovery rate: {fdr}."

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
        by_condition: dict[str, list[str]] = {}
        for procedure, reason in proven.items():
            by_condition.setdefault(self._asked(reason), []).append(procedure.upper())
        on = " on the corrected p-value" if self.needs_correction else ""
        said = [f"{', '.join(names)}{on} proven ({c})" for c, names in by_condition.items()]
        if self.certified:
            asked = f"conditional calibration; {GIVEN_OTHERS}"
            said += [f"{CERTIFIED.upper()} proven with `validity='proven'` ({asked})"]
        said += [f"{name.upper()} false in general ({r})" for name, r in self.refuted.items()]
        return "; ".join(said if len(proven) >= 3 else [*said, "otherwise measured"])

    def after_cleaning(self, said: Claim) -> Claim:
        """What is left of a promise where a person's marks changed the detector; all, if none."""
        if not self.cleaned:
            return said
        full = f"Measured, not proven: {self.cleaned}. (If {self.granted}: {said.full})"
        return replace(said, full=full, status=f"{MEASURED}: {self.cleaned}")

    def _asked(self, reason: str) -> str:
        return self.each if reason == ANY else GIVEN_ANOMALIES

    def condition(self, asked: str) -> str:
        """What a promise is conditional on, as the end of a sentence."""
        # Certificates of jackknife+ and cv+ hold given the seed, their p-values over it.
        over = "" if asked == GIVEN_OTHERS and self.kind == "bounded" else self.over
        return f"{over + ', ' if over else ''}{CONDITIONS[asked]}{self.also}"

    def certifies(self, procedure: str, validity: str) -> bool:
        """Whether a list is proven by conditional calibration, and by nothing simpler."""
        return (
            self.certified
            and validity == "proven"
            and procedure == CERTIFIED
            and procedure not in self.proven
        )

    def sentence(self, procedure: str, **options: Any) -> str:
        """Say in full what holds; see `claim`."""
        return self.claim(procedure, **options).full

    def claim(
        self,
        procedure: str,
        *,
        validity: str = "nominal",
        conditional: str | None = None,
        smoothed: bool = False,
        level: Fraction | None = None,
    ) -> Claim:
        """Say what holds for the false discovery rate, or the false alarms, of one procedure.

        Parameters
        ----------
        procedure : str
        validity : {"auto", "nominal", "proven"}
            Of a rule that was not resolved, "auto" is nominal.
        conditional : str, optional
            The kind of calibration-conditional p-values, where those are used.
        smoothed : bool
            Whether p-values are smoothed.
        level : Fraction, optional
            The number of false alarms, for a procedure that is about these.

        Examples
        --------
        >>> print(guarantee("split").sentence("bh"))
        FDR proven for BH on split, on average over random splits, if normal new rows are
        exchangeable with the reference rows given the anomalies.
        >>> guarantee("jackknife+").sentence("bh")
        "FDR measured, not proven, for BH on jackknife+. `validity='proven'` gives a proven list."
        >>> print(guarantee("full").sentence("bh"))
        FDR measured, not proven, for BH on full, and false in general: there is a symmetric
        detector on which it is about twice the level. `validity='proven'` gives a proven list.
        >>> print(guarantee("full").sentence("bh", validity="proven"))
        FDR proven (conditional calibration) for the list certified from full, if each normal new
        row is exchangeable with the reference rows given the other new rows (independent rows are,
        copies and repeated measurements are not).
        >>> print(guarantee("full").sentence("false-alarms", level=Fraction(2)))
        Expected number of false alarms at most 2, proven for full, if each normal new row is
        exchangeable with the reference rows.
        """
        if PROCEDURES[procedure].controls == ALARMS:
            assert level is not None
            status, full = self._alarms(level, validity, conditional, smoothed)
        else:
            status, full = self._rate(procedure, validity, conditional, smoothed)
        condition = SAME + self.also.replace(_EACH_GROUP, ", group by group")
        return self.after_cleaning(Claim(full, status, condition))

    def _rate(
        self, procedure: str, validity: str, conditional: str | None, smoothed: bool
    ) -> tuple[str, str]:
        """Say what holds for the false discovery rate."""
        if conditional is not None and PROCEDURES[procedure].proof not in _OF_INDEPENDENT:
            return MEASURED, (
                f"FDR measured, not proven, for {procedure.upper()} on {conditional} conditional "
                "p-values."
            )
        if conditional is not None:
            return GIVEN_CALIBRATION, (
                f"FDR proven for {procedure.upper()} given the calibration set, for all but the "
                f"stated share of calibration sets ({conditional} conditional p-values), {_DRAWN}."
            )
        reason = self.proven.get(procedure)
        if smoothed and reason == FIXED_LAMBDA:  # which is on the grid
            reason = None
        if self.certifies(procedure, validity):
            said = f"FDR {_CERTIFICATE} for the list certified from {self.name}"
            return PROVEN, f"{said}, {self.condition(GIVEN_OTHERS)}."
        if reason is not None and (not self.needs_correction or validity == "proven"):
            under = self.condition(self._asked(reason))
            more = ", and λ is fixed beforehand" if reason == FIXED_LAMBDA else ""
            return PROVEN, f"FDR proven for {procedure.upper()} on {self.name}, {under}{more}."
        said = f"FDR measured, not proven, for {procedure.upper()} on {self.name}"
        if procedure in self.refuted:
            said += f", and false in general: {self.refuted[procedure]}"
        certifiable = self.certifies(procedure, "proven")
        return MEASURED, f"{said}.{CERTIFIABLE}" if certifiable else f"{said}."

    def _alarms(
        self, level: Fraction, validity: str, conditional: str | None, smoothed: bool
    ) -> tuple[str, str]:
        """Say what holds for the number of false alarms where p-values up to v/m are flagged.

        A normal row is flagged with probability at most v/m if its p-value is exact, and there are
        at most m of them: no more is needed.
        """
        said = f"Expected number of false alarms at most {float(level):g}"
        if conditional is not None:
            return GIVEN_CALIBRATION, (
                f"{said} given the calibration set, proven for all but the stated share of "
                f"calibration sets ({conditional} conditional p-values), {_DRAWN}."
            )
        if self.kind == "exact":
            return PROVEN, f"{said}, proven for {self.name}, {self.condition(self.each)}."
        if self.needs_correction and validity == "proven":
            said += f", proven on the corrected p-values of {self.name}"
            return PROVEN, f"{said}, {self.condition(self.each)}."
        proven = self.alarms.format(f"{float(2 * level):g}") if not smoothed else ""
        only = f"; proven is only: {proven}, {self.condition(self.each)}" if proven else ""
        return MEASURED, f"{said} measured, not proven, for {self.name}{only}."


# What p-values that are valid and independent, as conditional ones are, offer to a proof.
_OF_INDEPENDENT = (POSITIVE, FIXED_LAMBDA, ANY)

TABLE: tuple[Guarantee, ...] = (
    Guarantee(
        "split",
        "exact",
        "exact: P(p <= α) <= α, over the data and the seed",
        (POSITIVE, FIXED_LAMBDA, ANY, E_VALUES),
        over=_SPLITS,
    ),
    Guarantee(
        "repeated split",
        "exact",
        "exact: P(p <= α) <= α for twice the median over the splits, over the data and the seed",
        (ANY, E_VALUES),
        over=_SPLITS,
    ),
    Guarantee(
        "prefit",
        "exact",
        "exact: P(p <= α) <= α, if the model never saw the calibration rows",
        (POSITIVE, FIXED_LAMBDA, ANY),
        also=", and the model never saw these rows",
    ),
    Guarantee(
        "full",
        "exact",
        "exact: P(p <= α) <= α given the seed, as every detector is made to depend on the multiset "
        "of its rows only",
        (ANY,),
        certified=True,
        refuted={"bh": "there is a symmetric detector on which it is about twice the level"},
    ),
    Guarantee(
        "full with the batch",
        "exact",
        "exact: P(p <= α) <= α given the seed, if the reference and the row are exchangeable "
        "*given the other new rows* (independent rows are); broken by normal new rows in "
        "clusters that the reference does not have, such as copies and repeated measurements",
        (ANY,),
        certified=True,
        each=GIVEN_OTHERS,
        refuted={"bh": "there is a symmetric detector on which it is about twice the level"},
    ),
    Guarantee(
        "split with the batch",
        "exact",
        "exact: P(p <= α) <= α over the data and the seed, as for learned",
        (POSITIVE, FIXED_LAMBDA, ANY, E_VALUES),
        each=GIVEN_ANOMALIES,
        over=_SPLITS,
    ),
    Guarantee(
        "batch",
        "exact",
        "exact: P(p <= α) <= α given the seed, if the reference and the normal new rows are "
        "exchangeable given the anomalies (independent rows are)",
        (POSITIVE, FIXED_LAMBDA, ANY, E_VALUES),
        each=GIVEN_ANOMALIES,
    ),
    Guarantee(
        "learned",
        "exact",
        "exact: P(p <= α) <= α over the data and the seed, if the calibration rows and the normal "
        "new rows are exchangeable given the anomalies and the other reference rows (independent "
        "rows are)",
        (POSITIVE, FIXED_LAMBDA, ANY, E_VALUES),
        each=GIVEN_ANOMALIES,
        over=_SPLITS,
    ),
    Guarantee(
        "repeated learned",
        "exact",
        "exact: P(p <= α) <= α for twice the median over the partitions, as for learned",
        (ANY, E_VALUES),
        each=GIVEN_ANOMALIES,
        over=_SPLITS,
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
        over="on average over random seeds",
    ),
    Guarantee(
        "cv+",
        "bounded",
        "bounded: P(p <= α) <= 2α + (K-2)/(n+K) for K folds, and for n/K = m rows in every fold "
        "also <= 2α + (m-2)/(n+m) if m-1 further rows exchangeable with these could be had (for "
        "independent rows they can); both over the data and the seed",
        (ANY,),
        needs_correction=True,
        certified=True,
        alarms="at most {} and a fold term of (K-2)/(n+K) for every new row",
        over="on average over random folds",
    ),
    Guarantee(
        "jab+",
        "measured",
        _MEASURED_P
        + " (2α is proven only if the number of draws is itself random, Kim et al. 2020)",
    ),
    Guarantee("basic", "measured", _MEASURED_P),
    Guarantee("pooled", "measured", _MEASURED_P),
    Guarantee("resampling", "measured", _MEASURED_P),
)


# What is added to the name of a method, and to its condition, where ranks are made within groups.
WITHIN = " within groups"
_EACH_GROUP = ", in every group given all rows of the others"
_IN_GROUPS = (
    "; in every group by itself, if its reference rows and its normal new rows are exchangeable "
    "given all rows of the other groups"
)


def beside_anomalies(row: Guarantee) -> Guarantee:
    """What is left of a guarantee where known anomalies shape the scores or the choice of models.

    Examples
    --------
    >>> print(beside_anomalies(guarantee("learned")).sentence("by"))
    FDR proven for BY on learned, on average over random splits, if normal new rows are exchangeable
    with the reference rows given the anomalies, and the known anomalies are independent of the
    reference and of normal new rows.
    """
    also = ", and the known anomalies are independent of the reference and of normal new rows"
    return replace(row, p_value=row.p_value + also, also=row.also + also)


def after_marks(
    row: Guarantee, left_out: int, n: int, more: Sequence[tuple[str, str]] = ()
) -> Guarantee:
    """What is left of a guarantee where a person marked rows, which left a reference of n others.

    Of other things that marks did, `more` says what, and what would have to hold.

    Examples
    --------
    >>> print(after_marks(guarantee("split"), 15, 285).sentence("bh"))
    Measured, not proven: 15 of 300 reference rows were marked as anomalies and left out. (If these
    are all of its anomalies, and no normal rows: FDR proven for BH on split, on average over random
    splits, if normal new rows are exchangeable with the reference rows given the anomalies.)
    """
    found = list(more)
    if left_out:
        gone = (
            f"{left_out:,} of {left_out + n:,} reference rows were marked as anomalies and left out"
        )
        found.insert(0, (gone, _RIGHT_MARKS))
    if not found:
        return row
    said, granted = "; ".join(what for what, _ in found), ", and ".join(if_ for _, if_ in found)
    p_value = f"{row.p_value}; all of it if the marks were right: {said}"
    return replace(row, cleaned=said, granted=granted, p_value=p_value)


def within_groups(row: Guarantee) -> Guarantee:
    """What is left of a guarantee where ranks are made within groups and decided together.

    Examples
    --------
    >>> print(within_groups(guarantee("split")).sentence("bh"))
    FDR proven for BH on split within groups, on average over random splits, if normal new rows are
    exchangeable with the reference rows given the anomalies, in every group given all rows of the
    others.
    """
    return replace(
        row,
        name=row.name + WITHIN,
        p_value=row.p_value + _IN_GROUPS,
        also=_EACH_GROUP + row.also,
        supports=tuple(reason for reason in row.supports if reason != E_VALUES),
    )


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
    found = {row.name: row for row in TABLE}
    if name not in found:
        raise unknown_choice("method", name, found)
    return found[name]


def guarantee_of(plan: Plan, *, uses_batch: bool = False, grouped: bool = False) -> Guarantee:
    """Look up what holds for a plan.

    Parameters
    ----------
    plan : Plan
    uses_batch : bool
        Whether lists rank a row by the other new rows, too.
    grouped : bool
        Whether rows are ranked within several groups.
    """
    if grouped:
        return within_groups(guarantee_of(plan, uses_batch=uses_batch))
    method = plan.row
    if len(plan.repeats) > 1:
        return guarantee(method.repeated)
    if uses_batch and not method.fits_batch:
        return guarantee(method.with_batch)
    if method.resamples and plan.variant != "plus":
        return guarantee(plan.variant)
    return guarantee(method.guarantee)


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
        f"`validity='proven'` needs a theorem on the false discovery rate, and none is known for "
        f"{PROCEDURES[procedure].title} with {row.name}; {instead}, or `validity='nominal'`."
    )


@dataclass(frozen=True)
class Validity:
    """A row of the table of validities: which p-values a rule uses, and how strong they are.

    Attributes
    ----------
    about : str
        What it gives, as the end of a sentence.
    grid : callable
        The p-value of each rank, from the plan, its guarantee and the number of calibration scores.
    on_batch : callable, optional
        From a guarantee and the name of a procedure to the function that decides a whole batch in
        memory (from a `RankedBatch` and the level to an `Outcome`), or to None where the grid is
        enough. Files, clusters and streams refuse what needs the whole batch.
    """

    about: str
    grid: Callable[[Plan, Guarantee, int], Grid]
    on_batch: Callable[[Guarantee, str], BatchRule | None] | None = None


VALIDITY: dict[str, Validity] = {
    # What it stands for is settled with a fitted detector: `Rule.resolved`.
    "auto": Validity(
        "proven with method auto, otherwise as the paper has it", lambda plan, row, n: usual(n)
    ),
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
