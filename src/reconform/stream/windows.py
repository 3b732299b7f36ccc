"""Micro-batches: a list for every window of rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np

from ..detector import ConformalDetector
from ..errors import ReconformError, check_count
from ..rule import Rule, RuleOptions
from ..statistics.fdr import RankCounts
from .state import Content, DecidedRows, DecisionStream


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowDecisions(DecidedRows):
    """The list of one window.

    Attributes
    ----------
    window : int
        Number of the window, from 0.
    row : int
        Position of its first row in the stream, from 0.
    mask : bool array
        Which of its rows are flagged.
    p_values : float array
    level : float
        The largest p-value that is flagged; 0.0 if nothing is.
    guarantee : str
        What holds, in words.
    """

    window: int


class MicroBatches(DecisionStream):
    """Collect rows in windows, and decide about a window as a whole when it is complete.

    A row waits no longer than its window. Windows do not depend on the batches in which rows
    arrive.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted, with ``ties="conservative"``. Rows are ranked one by one, as by `p_values`: with
        ``detector="auto"`` by the first candidate.
    rows : int, default=200
        Rows of a window.
    fdr : float, default=0.1
        Target false discovery rate of the list of each window.
    journal : str or Path, optional
        Write the decisions of every batch to this file before they are returned. If the file
        exists, go on where it ends.
    **rule
        `procedure`, `storey_lambda`, `validity`, `conditional`, `confidence` and `false_alarms`, as
        in `ConformalDetector.discover`. `false_alarms` are those of one window: p-values of at most
        `false_alarms` / m are flagged in a window of m rows.

    Attributes
    ----------
    guarantee : str
        What holds, in words.
    outlook : str
        What can be found in a window with this reference, in words.
    waiting : int
        Rows whose window is not complete.
    windows, batches, rows, discoveries : int
        How many there were so far; `batches` is also the number of the next batch.

    Warns
    -----
    UserWarning
        Once, if a single anomaly in a window cannot be found, and with it what helps.

    See Also
    --------
    FalseAlarmBudget : Decides about a row when it arrives.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform import ConformalDetector
    >>> from reconform.stream import MicroBatches
    >>> rng = np.random.default_rng(0)
    >>> cad = ConformalDetector("knn", "split", random_state=0).fit(rng.normal(size=(10_000, 2)))
    >>> windows = MicroBatches(cad, rows=4, fdr=0.1)
    >>> windows.update([[0.3, 0.1], [9.0, 9.0]])
    []
    >>> for window in windows.update([[0.0, -1.0], [8.0, -9.0], [0.5, 0.5]]):
    ...     print(window.row, window.mask)
    0 [False  True False  True]
    >>> windows.waiting
    1
    """

    kind: ClassVar[str] = "micro-batches"

    def __init__(
        self,
        cad: ConformalDetector,
        rows: int = 200,
        *,
        fdr: float | Fraction = 0.1,
        journal: str | Path | None = None,
        **rule: Unpack[RuleOptions],
    ) -> None:
        super().__init__(cad)
        for name in ("top", "alpha_bh"):
            if name in rule:
                raise ReconformError(f"`{name}` is not for windows; leave it out.")
        self._size = check_count("rows", rows, least=1)
        self._rule = Rule(fdr, **rule)
        self._grid = self._rule.counting_grid(cad, "a stream", "alone")
        self.discoveries = 0
        self.windows = 0
        self._pending: list[int] = []  # ranks of the rows whose window is not complete
        self._decided = 0  # rows of complete windows
        self.guarantee = self._promise()
        names = ("fdr", "false_alarms", "procedure", "storey_lambda", "validity", "conditional")
        told = {name: getattr(self._rule, name) for name in (*names, "confidence")}
        plain = {name: None if value is None else str(value) for name, value in told.items()}
        self._begin(journal, {"rows": self._size, **plain})

    @property
    def waiting(self) -> int:  # type: ignore[override]
        """Rows whose window is not complete."""
        return len(self._pending)

    # --- what is said ---

    def _promise(self) -> str:
        rule = self._rule
        claim = self.cad.guarantee_alone.claim(
            rule.procedure, validity=rule.validity, conditional=rule.conditional, level=rule.level
        )
        if rule.false_alarms is not None:
            return f"{claim.full} It holds in each window, and adds up over windows."
        level = f"{float(100 * rule.level):g}%"
        return (
            f"{claim.promise(level, 'the rows flagged in a window')} For all windows together it "
            "is measured, and where most windows have no anomaly it is higher."
        )

    @property
    def _floor(self) -> str:
        n, smallest = self.cad.n_calibration_, float(self._grid.smallest)
        return f"no p-value of {n:,} calibration rows is below {smallest:.3g}"

    def _reach(self, m: int) -> tuple[str, bool]:
        """What can be found in a window of m rows, and whether a single anomaly can be."""
        fewest = self._rule.smallest_list(0, m, smallest_p=self._grid.smallest)
        if fewest is None:
            return "what can be found depends on the p-values", True
        if fewest <= 1:
            return "a single anomaly can be found", True
        if fewest > m:
            return "nothing can be found", False
        return f"fewer than {fewest:,} anomalies cannot be found", False

    @property
    def outlook(self) -> str:
        """What can be found in a window with this reference, in words."""
        return f"In a window of {self._size:,} rows {self._reach(self._size)[0]}: {self._floor}."

    def _warn(self) -> None:
        found, single = self._reach(self._size)
        if single:
            return
        other = "more `false_alarms`" if self._rule.false_alarms is not None else "a higher `fdr`"
        warnings.warn(
            f"in a window of {self._size:,} rows {found}: {self._floor}. Use more "
            f"reference rows, smaller windows, or {other}.",
            UserWarning,
            stacklevel=4,
        )

    # --- rows ---

    def update(self, X: Any, *, batch: int | None = None) -> list[WindowDecisions]:
        """Add the next rows; return the lists of all windows that are complete with them.

        Parameters
        ----------
        X : array-like or frame of shape (m, d), dict, or list of dicts
        batch : int, optional
            The number of the batch, from 0. A batch that was added before gets the same lists again
            and changes nothing. Without a number, X is taken for new rows.

        Returns
        -------
        list of WindowDecisions
        """
        return self._lists(self._submit(self.given(X), batch))

    def flush(self, *, batch: int | None = None) -> list[WindowDecisions]:
        """Decide about the rows that wait, as a window of their own; a batch without rows.

        Parameters
        ----------
        batch : int, optional
            As in `update`.

        Returns
        -------
        list of WindowDecisions
            Empty if no row waits.
        """
        if batch is None and not self._pending:
            return []
        return self._lists(self._submit([], batch))

    # --- the decisions ---

    def _decide(self, given: list[int]) -> Content:
        closed: list[Content] = []
        if not given and self._pending:
            closed.append(self._close())
        for rank in given:
            self._pending.append(rank)
            if len(self._pending) == self._size:
                closed.append(self._close())
        return {"windows": closed}

    def _close(self) -> Content:
        """Decide about the rows that wait."""
        ranks = np.array(self._pending, dtype=np.int64)
        counts = RankCounts(self.cad.n_calibration_, self.cad.calibration_.fingerprint)
        last = self._rule.decide_counts(counts.add(ranks), self._grid).rank_threshold
        content = {
            "window": self.windows,
            "row": self._decided,
            "last_rank": int(last),
            "ranks": self._pending,
        }
        self._decided += len(ranks)
        self.discoveries += int((ranks <= last).sum())
        self.windows += 1
        self._pending = []
        return content

    def _lists(self, record: Content) -> list[WindowDecisions]:
        return [
            WindowDecisions(
                window=window["window"],
                row=window["row"],
                mask=np.array(window["ranks"]) <= window["last_rank"],
                p_values=self._grid.values(np.array(window["ranks"])),
                level=float(self._grid.table[window["last_rank"]]) if window["last_rank"] else 0.0,
                guarantee=self.guarantee,
            )
            for window in record["found"]["windows"]
        ]

    def told(self, record: Content) -> list[Content]:
        """Say what a recorded batch decided, row by row, as plain data."""
        return [
            {
                "row": row,
                "window": window["window"],
                "p_value": p,
                "anomaly": window["ranks"][row - window["row"]] <= window["last_rank"],
            }
            for window in record["found"]["windows"]
            for row, p in enumerate(
                self._grid.values(np.array(window["ranks"])).tolist(), start=window["row"]
            )
        ]
