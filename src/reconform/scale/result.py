"""What both roads share: the decision from merged counts, and the result."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from ..detector import ConformalDetector
from ..discoveries import Provenance
from ..errors import ReconformError, unknown_choice
from ..statistics.exact import exact_fraction
from ..statistics.fdr import PROCEDURES, Decision, RankCounts
from ..statistics.grid import Grid
from ..statistics.smallest import smallest_batch_warning

RESULTS = {"score": "float64", "p_value": "float64", "q_value": "float64", "anomaly": "bool"}


@dataclass(frozen=True, eq=False)
class ScaledDiscoveries:
    """The decision on rows that need not fit in memory.

    Attributes
    ----------
    frame : dask.dataframe.DataFrame
        Lazy: ``score``, ``p_value``, ``q_value`` and ``anomaly`` of every row, in the partitions
        and under the row labels of the input.
    decision : Decision
        The rule on ranks, from the counts of all rows.
    rank_counts : RankCounts
        How many rows got each rank: every other level's decision.
    guarantee : str
        What holds, in a sentence.
    provenance : Provenance
    warning : str or None
        A sentence if the reference is too small to flag few anomalies among so many rows.
    output : Path or None
        The folder that was written, if a folder was judged.
    """

    frame: Any = field(repr=False)
    decision: Decision
    rank_counts: RankCounts
    guarantee: str
    provenance: Provenance = field(repr=False)
    warning: str | None = None
    output: Path | None = None

    @property
    def count(self) -> int:
        """Number of discoveries."""
        return self.decision.count

    @property
    def tested(self) -> int:
        """Number of rows."""
        return self.decision.tested

    def __len__(self) -> int:
        return self.tested

    def __repr__(self) -> str:
        lines = [
            f"ScaledDiscoveries: {self.count:,} of {self.tested:,} rows flagged at FDR "
            f"{float(self.decision.fdr):g} ({self.decision.procedure.upper()})",
            self.guarantee,
        ]
        if self.output is not None:
            lines.append(f"written to {self.output}")
        if self.warning is not None:
            lines.append(self.warning)
        return "\n".join(lines)


@dataclass(frozen=True)
class Question:
    """What is asked of the rows: checked before any of them is touched.

    Attributes
    ----------
    cad : ConformalDetector
    level : Fraction
    procedure, storey_lambda, validity, conditional
        As in `ConformalDetector.discover`.
    grid : Grid
    """

    cad: ConformalDetector
    level: Fraction
    procedure: str
    storey_lambda: float | Fraction
    validity: str
    conditional: str | None
    grid: Grid

    @classmethod
    def check(
        cls,
        cad: ConformalDetector,
        fdr: float | Fraction,
        procedure: str,
        storey_lambda: float | Fraction,
        validity: str,
        conditional: str | None,
        confidence: float,
    ) -> Question:
        """Refuse what cannot be decided from counts."""
        level = exact_fraction("fdr", fdr)
        if procedure not in PROCEDURES:
            raise unknown_choice("procedure", procedure, PROCEDURES)
        check_is_fitted(cad, "ensemble_")
        if cad.ties == "randomized":
            raise ReconformError(
                "rows in many parts are judged by counting ranks, and smoothed p-values have "
                "none; use ties='conservative'."
            )
        grid = cad.grid(validity=validity, conditional=conditional, confidence=confidence)
        return cls(cad, level, procedure, storey_lambda, validity, conditional, grid)

    def decide(self, counts: RankCounts) -> Decision:
        """Decide for all rows, exactly as if they had been judged at once."""
        return counts.decide(
            self.level,
            procedure=self.procedure,
            storey_lambda=self.storey_lambda,
            grid=self.grid,
        )

    def answer(
        self, counts: RankCounts, decision: Decision, frame: Any, output: Path | None = None
    ) -> ScaledDiscoveries:
        """Put the result together."""
        return ScaledDiscoveries(
            frame=frame,
            decision=decision,
            rank_counts=counts,
            guarantee=self.cad.guarantee_.sentence(
                self.procedure, validity=self.validity, conditional=self.conditional
            ),
            provenance=self.cad.provenance(),
            warning=smallest_batch_warning(
                self.cad.n_calibration_,
                decision.tested,
                self.level,
                procedure=self.procedure,
                n_reference=self.cad.plan_.n,
                smallest_p=Fraction(int(self.grid.numerators[1]), self.grid.denominator),
            ),
            output=output,
        )
