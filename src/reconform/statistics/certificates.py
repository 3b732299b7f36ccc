"""What holds, said in words and numbers: one table that everything else reads from.

The estimator (`guarantee_`), every `Discoveries`, the documents and the report render this table,
so that they can never disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..errors import ReconformError, unknown_choice
from ..methods import Plan
from .grid import Grid, usual

VALIDITY = ("nominal", "proven")

_MEASURED_P = "measured only: no finite-sample theorem; near α in most experiments, not in all"


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
    proven : mapping of str to str
        The procedures with a proven false discovery rate, and on what it rests.
    needs_correction : bool
        Whether those proofs are about the corrected p-values of ``validity="proven"``.
    refuted : mapping of str to str
        The procedures for which a counterexample is known, and what it is: no theorem will come.
    """

    name: str
    kind: str
    p_value: str
    proven: Mapping[str, str]
    needs_correction: bool = False
    refuted: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}: one p-value is {self.p_value}; the false discovery rate: {self.fdr}."

    @property
    def fdr(self) -> str:
        """The statement about the false discovery rate, for all procedures."""
        if not self.proven:
            return "measured"
        by_reason: dict[str, list[str]] = {}
        for procedure, reason in self.proven.items():
            by_reason.setdefault(reason, []).append(procedure.upper())
        on = " on the corrected p-value" if self.needs_correction else ""
        said = [f"{', '.join(names)}{on} proven ({r})" for r, names in by_reason.items()]
        said += [f"{name.upper()} false in general ({r})" for name, r in self.refuted.items()]
        return "; ".join(said if len(self.proven) >= 3 else [*said, "otherwise measured"])

    def sentence(
        self,
        procedure: str,
        *,
        validity: str = "nominal",
        conditional: str | None = None,
        smoothed: bool = False,
    ) -> str:
        """Say what holds for the false discovery rate of one procedure.

        Parameters
        ----------
        procedure : str
        validity : {"nominal", "proven"}
        conditional : str, optional
            The kind of calibration-conditional p-values, where those are used.
        smoothed : bool
            Whether p-values are smoothed: then only what needs no dependence is claimed.

        Examples
        --------
        >>> guarantee("split").sentence("bh")
        'FDR proven for BH on split (conformal p-values are positively dependent).'
        >>> guarantee("jackknife+").sentence("bh")
        'FDR measured, not proven, for BH on jackknife+.'
        >>> print(guarantee("full").sentence("bh"))
        FDR measured, not proven, for BH on full, and false in general: there is a symmetric
        detector on which it is about twice the level.
        """
        if conditional == "asymptotic":
            return (
                f"FDR of {procedure.upper()} holds given the calibration set only approximately: "
                "the band behind asymptotic conditional p-values is a large-sample one."
            )
        if conditional is not None:
            return (
                f"FDR proven for {procedure.upper()} given the calibration set, for all but the "
                f"stated share of calibration sets ({conditional} conditional p-values, which are "
                "independent given it)."
            )
        reason = self.proven.get(procedure)
        if smoothed and reason not in (_ANY, _E_VALUES):
            reason = None
        if reason is not None and (not self.needs_correction or validity == "proven"):
            return f"FDR proven for {procedure.upper()} on {self.name} ({reason})."
        if procedure in self.refuted:
            return (
                f"FDR measured, not proven, for {procedure.upper()} on {self.name}, and false in "
                f"general: {self.refuted[procedure]}."
            )
        return f"FDR measured, not proven, for {procedure.upper()} on {self.name}."


_PRDS = "conformal p-values are positively dependent"
_FIXED_LAMBDA = "at a λ fixed beforehand, on the grid of p-values"
_ANY = "any dependence"
_E_VALUES = "the e-values of the nulls add up to at most m in expectation"

_SPLIT_FDR = {"bh": _PRDS, "storey": _FIXED_LAMBDA, "by": _ANY, "ebh": _E_VALUES}

TABLE: tuple[Guarantee, ...] = (
    Guarantee("split", "exact", "exact: P(p <= α) <= α", _SPLIT_FDR),
    Guarantee(
        "repeated split",
        "exact",
        "exact: P(p <= α) <= α for twice the median over the splits",
        {"by": _ANY, "ebh": _E_VALUES},
    ),
    Guarantee(
        "prefit",
        "exact",
        "exact: P(p <= α) <= α, if the model never saw the calibration rows",
        {k: v for k, v in _SPLIT_FDR.items() if k != "ebh"},
    ),
    Guarantee(
        "full",
        "exact",
        "exact: P(p <= α) <= α over the data and the detector's draws, for a detector that treats "
        "its rows symmetrically",
        {"by": _ANY},
        refuted={"bh": "there is a symmetric detector on which it is about twice the level"},
    ),
    Guarantee(
        "jackknife+",
        "bounded",
        "bounded: P(p <= α) < 2α for a symmetric detector with independent draws per model",
        {"by": _ANY},
        needs_correction=True,
    ),
    Guarantee(
        "cv+",
        "bounded",
        "bounded: P(p <= α) <= 2α + (K-2)/(n+K) for K folds, and for n/K = m rows in every fold "
        "also <= 2α + (m-2)/(n+m) if the detector is symmetric with independent draws per model, "
        "and m-1 further rows exchangeable with these could be had, as for independent rows",
        {"by": _ANY},
        needs_correction=True,
    ),
    Guarantee(
        "jab+",
        "measured",
        _MEASURED_P
        + " (2α is proven only if the number of draws is itself random, Kim et al. 2020)",
        {},
    ),
    Guarantee("shared draws", "measured", _MEASURED_P, {}),
    Guarantee("basic", "measured", _MEASURED_P, {}),
    Guarantee("pooled", "measured", _MEASURED_P, {}),
    Guarantee("resampling", "measured", _MEASURED_P, {}),
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


def guarantee_of(plan: Plan, *, shares_draws: bool = False) -> Guarantee:
    """Look up what holds for a plan.

    Parameters
    ----------
    plan : Plan
    shares_draws : bool
        Whether the models share random draws to save work.
    """
    if plan.scheme == "split" and plan.n_models > 1:
        return guarantee("repeated split")
    if plan.scheme in ("split", "prefit", "full"):
        return guarantee(plan.scheme)
    if plan.variant != "plus":
        return guarantee(plan.variant)
    if shares_draws:
        return guarantee("shared draws")
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
    if row.name == "jackknife+":
        corrected = np.minimum(2 * ranks - 1, n + 1)
        corrected[0] = 0  # stands for no rank
        return Grid(corrected, n + 1)
    if row.name == "cv+":
        sizes = {len(held) for held in plan.held_out}
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


def markdown() -> str:
    """Render the table for the documents."""
    lines = ["| method | one p-value | false discovery rate |", "|---|---|---|"]
    lines += [f"| {row.name} | {row.p_value} | {row.fdr} |" for row in TABLE]
    return "\n".join(lines)
