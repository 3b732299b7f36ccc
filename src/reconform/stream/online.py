"""Discoveries as rows arrive, at a false discovery rate aimed at beforehand."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from ..arrays import BoolArray, FloatArray
from ..detector import ConformalDetector
from ..errors import unknown_choice
from ..rule import Rule
from ..statistics.fdr import RankCounts
from ..statistics.thresholds import BANDS
from .journal import Content
from .procedures import (
    MOST_ROWS,
    PROCEDURES,
    make_test,
    next_level,
    promise,
    restore_test,
    rows_until_blind,
)
from .state import DecidedRows, DecisionStream, Shape, fraction_of, is_count, is_finite

# A procedure that can find nothing after so many rows without a discovery says so at the start.
SOON = 1_000


class OutlookWarning(UserWarning):
    """Said before the first row: what a procedure can find with this reference."""


@dataclass(frozen=True, eq=False)
class StreamDecisions(DecidedRows):
    """The decisions on one batch of a stream.

    Attributes
    ----------
    batch : int
        Number of the batch, from 0.
    row : int
        Position of its first row in the stream, from 0.
    mask : bool array
        Which rows are discoveries.
    p_values : float array
    levels : float array
        The level at which each row was tested: a discovery has a p-value of at most that. With
        "batch-bh" the largest p-value that is a discovery, and 0.0 if there is none.
    procedure : str
    fdr : float or None
        None where the promise is a number of false alarms.
    guarantee : str
        What holds, in words.
    """

    batch: int
    row: int
    mask: BoolArray = field(repr=False)
    p_values: FloatArray = field(repr=False)
    levels: FloatArray = field(repr=False)
    procedure: str
    fdr: float | None
    guarantee: str


class OnlineDiscoveries(DecisionStream):
    """Decide about rows as they arrive, for good, aiming at a false discovery rate.

    `guarantee` says whether it is proven for the procedure, or measured.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted, with ``ties="conservative"``. Rows are judged one by one, as by `p_values`: with
        ``detector="auto"`` by the first candidate.
    fdr : float, default=0.1
        Target false discovery rate.
    procedure : {"lond", "lord", "saffron", "addis", "batch-bh"}, default="lond"
        The first four test row after row, at levels that depend on the rows before (LORD is
        LORD++). ``"batch-bh"`` is Benjamini-Hochberg on every batch by itself.
    conditional : {"simes", "dkw", "montecarlo", "asymptotic"}, optional
        Use p-values that are valid given the calibration set, as in `ConformalDetector.p_values`.
        LORD and SAFFRON are proven only with these.
    confidence : float, default=0.9
        The confidence of `conditional`.
    journal : str or Path, optional
        Write the decisions of every batch to this file before they are returned. The file must not
        exist: after a crash use `resume`.

    Attributes
    ----------
    guarantee : str
        What holds, in words.
    outlook : str
        What can be found with this reference, in words.
    batches, rows, discoveries : int
        How many there were so far; `batches` is also the number of the next batch.

    Warns
    -----
    OutlookWarning
        At the start, if after fewer than 1,000 rows without a discovery nothing can be found any
        more: the sentence of `outlook`.
    UserWarning
        As soon as the next level lies below the smallest p-value that there is, so that nothing
        can be found, and with it how many reference rows would be needed.

    See Also
    --------
    FalseAlarmBudget : At most so many false alarms in so many rows; the plain choice.
    MicroBatches : A list for every window of rows or of seconds.
    ConformalDetector.discover : A batch that is there as a whole.
    ExchangeabilityMonitor : Whether the reference still describes the stream.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform import ConformalDetector
    >>> from reconform.stream import OnlineDiscoveries
    >>> rng = np.random.default_rng(0)
    >>> cad = ConformalDetector("knn", "split", random_state=0).fit(rng.normal(size=(20_000, 2)))
    >>> online = OnlineDiscoveries(cad, fdr=0.1)
    >>> decided = online.update([[0.3, 0.1], [9.0, 9.0], [0.0, -1.0], [8.0, -9.0]])
    >>> decided.mask
    array([False,  True, False,  True])
    >>> decided.levels.round(5)
    array([0.00535, 0.00116, 0.00198, 0.00165])
    """

    kind: ClassVar[str] = "online discoveries"

    def __init__(
        self,
        cad: ConformalDetector,
        fdr: float | Fraction = 0.1,
        procedure: str = "lond",
        *,
        conditional: str | None = None,
        confidence: float = 0.9,
        journal: str | Path | None = None,
    ) -> None:
        self._set_up(cad, fdr, procedure, conditional, confidence)
        if journal is not None:
            self._begin_journal(journal)
        self._warn()
        if self._test is not None and not self._blind and self._soon_blind():
            warnings.warn(self.outlook, OutlookWarning, stacklevel=2)

    def _soon_blind(self) -> bool:
        return rows_until_blind(self._test, self._grid.smallest, most=SOON) is not None

    def _set_up(
        self,
        cad: ConformalDetector,
        fdr: float | Fraction,
        procedure: str,
        conditional: str | None,
        confidence: float,
    ) -> None:
        super().__init__(cad)
        if procedure not in PROCEDURES:
            raise unknown_choice("procedure", procedure, PROCEDURES)
        # What "batch-bh" decides by; the others take their p-values from it.
        self._rule = Rule(fdr, conditional=conditional, confidence=confidence)
        # Rows are ranked one by one: of several detectors to choose from, by the first.
        self._grid = self._rule.counting_grid(cad, "a stream", "alone")
        self.fdr = float(self._rule.level)
        self.procedure = procedure
        self.conditional = conditional
        self.confidence = float(confidence)
        self.discoveries = 0
        self.guarantee = promise(procedure, cad.guarantee_alone, self._rule)
        self._test = None if procedure == "batch-bh" else make_test(procedure, self.fdr)
        self._blind = False

    @property
    def outlook(self) -> str:
        """What can be found with this reference, in words."""
        if self._test is None:
            return (
                "Benjamini-Hochberg on every batch by itself: in a batch of m rows a single "
                f"anomaly can be found if m is at most {self._largest_batch():,}."
            )
        name, smallest = self.procedure.upper(), self._grid.smallest
        rows = rows_until_blind(self._test, smallest)
        if rows is None:
            return (
                f"{name} can find something for more than {MOST_ROWS:,} rows without a discovery; "
                "every discovery raises its levels."
            )
        return (
            f"{name} with {self.cad.n_calibration_:,} calibration rows: after "
            f"{'' if self.procedure in ('lond', 'lord') else 'about '}{rows:,} rows without a "
            f"discovery no p-value can be small enough (none is below {float(smallest):.3g}), and "
            "nothing will be found any more. Every discovery before that raises the levels again. "
            "For rare anomalies use a false-alarm budget or micro-batches."
        )

    def _largest_batch(self) -> int:
        return int(self._rule.level / self._grid.smallest)

    def update(self, X: Any, *, batch: int | None = None) -> StreamDecisions:
        """Decide about the next rows, in their order and for good.

        Parameters
        ----------
        X : array-like or frame of shape (m, d), dict, or list of dicts
        batch : int, optional
            The number of the batch, from 0. A batch that was decided before gets the same
            decisions again and spends nothing, so after a crash a batch can safely be sent once
            more. Without a number, X is taken for new rows.

        Returns
        -------
        StreamDecisions
        """
        record = self._submit(self.given(X), batch)
        self._warn()
        return StreamDecisions(
            batch=record["batch"],
            row=record["row"],
            mask=np.array(record["found"]["mask"], dtype=bool),
            p_values=self._grid.values(np.array(record["given"])),
            levels=np.array(record["found"]["levels"], dtype=np.float64),
            procedure=self.procedure,
            fdr=self.fdr,
            guarantee=self.guarantee,
        )

    # --- the decisions ---

    def told(self, record: Content) -> list[Content]:
        """Say what a recorded batch decided, row by row, as plain data."""
        p_values = self._grid.values(np.array(record["given"])).tolist()
        found = record["found"]
        return [
            {"row": row, "p_value": p, "level": level, "anomaly": flagged}
            for row, (p, level, flagged) in enumerate(
                zip(p_values, found["levels"], found["mask"], strict=True), start=record["row"]
            )
        ]

    def _decide(self, given: list[int]) -> Content:
        ranks = np.array(given, dtype=np.int64)
        if self._test is None:
            counts = RankCounts(self.cad.n_calibration_, self.cad.calibration_.fingerprint)
            decision = self._rule.decide_counts(counts.add(ranks), self._grid)
            mask = decision.mask(ranks).tolist()
            levels = [decision.p_threshold] * len(given)
        else:
            mask, levels = [], []
            for p in self._grid.values(ranks).tolist():
                mask.append(bool(self._test.test_one(p)))
                levels.append(float(self._test.last_test_level))
        self.discoveries += sum(mask)
        return {"mask": mask, "levels": levels}

    def _warn(self) -> None:
        """Warn when it begins that nothing, or no single anomaly, can be found."""
        if self._test is not None:
            # A level rises only after a discovery: once none can be made, this stays so.
            level = Fraction(0 if self._blind else next_level(self._test))
            name = self.procedure.upper()
            what = (
                f"nothing can be found from here on: the next row ({self.rows:,}) is tested at "
                f"level {float(level):.3g}, and the levels of {name} rise only with discoveries"
            )
            other = "a higher `fdr`, a false-alarm budget, or micro-batches"
        elif self._last is not None:
            m = len(self._last["given"])
            fewest = self._rule.smallest_list(0, m, smallest_p=self._grid.smallest)
            level = self._rule.level / m
            what = f"in a batch of {m:,} rows fewer than {fewest:,} anomalies cannot be found"
            other = "smaller batches, or a higher `fdr`"
        else:
            return
        blind = level < self._grid.smallest
        if blind and not self._blind:
            warnings.warn(
                f"{what}. No p-value of {self.cad.n_calibration_:,} calibration rows is below "
                f"{float(self._grid.smallest):.3g}. What helps: {self._rows_needed(level)}, "
                f"{other}.",
                UserWarning,
                stacklevel=3,
            )
        self._blind = blind

    def _rows_needed(self, level: Fraction) -> str:
        """Say how many calibration rows have a p-value as small as `level`."""
        have = self.cad.n_calibration_
        if self.conditional is None:
            needed, about = math.ceil(1 / level) - 1, "at least"
        else:  # the smallest p-value falls like 1/n, with "dkw" like its square root
            power = BANDS[self.conditional].power
            needed = math.ceil(have * (self._grid.smallest / level) ** power)
            about = "about"
        reference = math.ceil(needed * self.cad.plan_.n / have)
        of = f", that is {reference:,} reference rows" if reference > needed else ""
        return f"{about} {needed:,} calibration rows{of}"

    # --- what `ResumableStream` asks for ---

    @classmethod
    def _make(cls, cad: ConformalDetector, settings: Content) -> Self:
        stream = cls.__new__(cls)
        stream._set_up(cad, **{**settings, "fdr": fraction_of(settings["fdr"])})
        return stream

    def _settings(self) -> Content:
        return {
            "fdr": str(self._rule.level),
            "procedure": self.procedure,
            "conditional": self.conditional,
            "confidence": self.confidence,
        }

    def _snapshot(self) -> Content:
        test = None if self._test is None else self._test.snapshot()
        return {"discoveries": self.discoveries, "test": test}

    def _restore(self, snapshot: Content) -> None:
        self.discoveries = snapshot["discoveries"]
        if self._test is not None:
            self._test = restore_test(self.procedure, snapshot["test"])

    def _shapes(self) -> tuple[Shape, Shape, Shape]:
        found = {"mask": [lambda value: type(value) is bool], "levels": [is_finite]}
        return self._is_rank, found, {"discoveries": is_count, "test": lambda value: True}
