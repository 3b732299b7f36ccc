"""Micro-batches: a list for every window of rows, or of seconds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np
import numpy.typing as npt

from ..detector import ConformalDetector
from ..errors import ReconformError, check_count, is_number
from ..rule import Rule, RuleOptions
from ..statistics.fdr import RankCounts
from .state import (
    Content,
    DecidedRows,
    DecisionStream,
    Shape,
    claim,
    fraction_of,
    is_count,
    is_finite,
    optional,
)

USUAL_ROWS = 200


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
    rows : int, optional
        Rows of a window; 200 if `seconds` is not given either.
    seconds : float, optional
        Instead of `rows`: a window opens with its first row, and holds all rows whose time is less
        than so many seconds later. `update` then needs `times`.
    fdr : float, default=0.1
        Target false discovery rate of the list of each window.
    journal : str or Path, optional
        Write the decisions of every batch to this file before they are returned. The file must not
        exist: after a crash use `resume`.
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
        rows: int | None = None,
        *,
        seconds: float | None = None,
        fdr: float | Fraction = 0.1,
        journal: str | Path | None = None,
        **rule: Unpack[RuleOptions],
    ) -> None:
        if "top" in rule or "alpha_bh" in rule:
            name = "top" if "top" in rule else "alpha_bh"
            raise ReconformError(f"`{name}` is not for windows; leave it out.")
        self._begin(cad, journal, rows=rows, seconds=seconds, rule=Rule(fdr, **rule))

    def _set_up(self, cad: ConformalDetector, settings: Content) -> None:
        super()._set_up(cad, settings)
        rows, seconds, rule = settings["rows"], settings["seconds"], settings["rule"]
        if not isinstance(rule, Rule):
            told: Content = {k: fraction_of(v) if k in _FRACTIONS else v for k, v in rule.items()}
            rule = Rule(**told)
        if rows is not None and seconds is not None:
            raise ReconformError(
                "`rows` and `seconds` are two ways to say where a window ends; give one."
            )
        self.seconds = None if seconds is None else _check_seconds("seconds", seconds)
        if self.seconds is None:
            rows = USUAL_ROWS if rows is None else check_count("rows", rows, least=1)
        self._size = rows
        self._rule = rule
        self._grid = rule.counting_grid(cad, "a stream", "alone")
        self.discoveries = 0
        self.windows = 0
        self._pending: list[int] = []  # ranks of the rows whose window is not complete
        self._opened: float | None = None  # when it was, for windows of seconds
        self.last_time: float | None = None  # the time of the last row
        self._decided = 0  # rows of complete windows
        self._warned = False
        self.guarantee = self._promise()

    @property
    def waiting(self) -> int:
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
        if self._size is None:
            most = int(self._rule.level / self._grid.smallest)
            where = f"A single anomaly can be found in a window of up to {most:,} rows"
        else:
            where = f"In a window of {self._size:,} rows {self._reach(self._size)[0]}"
        return f"{where}: {self._floor}."

    def _warn(self) -> None:
        m = self._size
        if m is None and self._last is not None and self._last["found"]["windows"]:
            m = len(self._last["found"]["windows"][-1]["ranks"])
        if self._warned or m is None:
            return
        found, single = self._reach(m)
        if single:
            return
        self._warned = True
        other = "more `false_alarms`" if self._rule.false_alarms is not None else "a higher `fdr`"
        warnings.warn(
            f"in a window of {m:,} rows {found}: {self._floor}. What helps: more reference rows, "
            f"smaller windows, or {other}.",
            UserWarning,
            stacklevel=4,
        )

    # --- rows ---

    def update(
        self,
        X: Any,
        *,
        times: float | Sequence[float] | npt.NDArray[Any] | None = None,
        batch: int | None = None,
    ) -> list[WindowDecisions]:
        """Add the next rows; return the lists of all windows that are complete with them.

        Parameters
        ----------
        X : array-like or frame of shape (m, d), dict, or list of dicts
        times : float or array-like of shape (m,), optional
            When the rows came, in seconds from anywhere, for windows of seconds; one number for all
            rows, or one for each. Times must not go back.
        batch : int, optional
            The number of the batch, from 0. A batch that was added before gets the same lists again
            and changes nothing. Without a number, X is taken for new rows.

        Returns
        -------
        list of WindowDecisions
        """
        return self._lists(self._submit(self.given(X, times=times, batch=batch), batch))

    def flush(self, *, now: float | None = None, batch: int | None = None) -> list[WindowDecisions]:
        """Decide about the rows that wait, as a window of their own.

        Parameters
        ----------
        now : float, optional
            For windows of seconds: only if the window is over at this time.
        batch : int, optional
            As in `update`: a flush is a batch without rows.

        Returns
        -------
        list of WindowDecisions
            Empty if no row waits.
        """
        if batch is None and not self.is_due(now):
            return []
        return self._lists(self._submit([], batch))

    def is_due(self, now: float | None = None) -> bool:
        """Whether rows wait whose window is over at this time; without a time, whether any wait."""
        return bool(self._pending) and (now is None or self.due is None or now >= self.due)

    @property
    def due(self) -> float | None:
        """When the window that is open will be over, for windows of seconds; None if none is."""
        waits = self.seconds is not None and self._opened is not None
        return self._opened + self.seconds if waits else None  # type: ignore[operator]

    def given(
        self,
        X: Any,
        *,
        checked: bool = False,
        times: float | Sequence[float] | npt.NDArray[Any] | None = None,
        batch: int | None = None,
    ) -> list[Any]:
        """What is recorded of rows: their ranks, with their times where windows go by these."""
        ranks = super().given(X, checked=checked)
        if self.seconds is None:
            if times is not None:
                raise ReconformError(
                    "`times` are for windows of `seconds`; these are windows of `rows`."
                )
            return ranks
        if times is None:
            raise ReconformError("windows of `seconds` need `times`, when the rows came.")
        known = np.asarray(times, dtype=np.float64)
        known = np.full(len(ranks), known) if known.ndim == 0 else known
        if known.shape != (len(ranks),):
            raise ReconformError(
                f"`times` must have one number per row: {len(ranks)} rows, shape {known.shape}."
            )
        again = batch is not None and batch < self.batches
        before = np.nan if self.last_time is None or again else self.last_time
        steps = np.diff(np.concatenate([[before], known]))
        if not np.isfinite(known).all() or (steps < 0).any():
            raise ReconformError(
                "`times` must be finite numbers that do not go back, also not from one batch to "
                "the next; sort the rows by time."
            )
        return [[rank, time] for rank, time in zip(ranks, known.tolist(), strict=True)]

    # --- the decisions ---

    def _decide(self, given: list[Any]) -> Content:
        closed: list[Content] = []
        if not given and self._pending:
            closed.append(self._close())
        for item in given:
            if self.seconds is None:
                rank = item
            else:
                rank, time = item
                if self._opened is not None and time >= self._opened + self.seconds:
                    closed.append(self._close())
                if self._opened is None:
                    self._opened = time
                self.last_time = time
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
        self._pending, self._opened = [], None
        return content

    def _lists(self, record: Content) -> list[WindowDecisions]:
        self._warn()
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

    # --- what `ResumableStream` asks for ---

    def _settings(self) -> Content:
        rule = self._rule
        level = {"false_alarms": str(rule.level)} if rule.false_alarms else {"fdr": str(rule.level)}
        usual = {} if rule.false_alarms else {"procedure": rule.procedure}
        return {
            "rows": self._size,
            "seconds": self.seconds,
            "rule": {
                **level,
                **usual,
                "storey_lambda": str(Fraction(str(rule.storey_lambda))),
                "validity": rule.validity,
                "conditional": rule.conditional,
                "confidence": str(Fraction(str(rule.confidence))),
            },
        }

    def _snapshot(self) -> Content:
        return {
            "discoveries": self.discoveries,
            "windows": self.windows,
            "pending": list(self._pending),
            "decided": self._decided,
            "opened": self._opened,
            "now": self.last_time,
        }

    def _restore(self, snapshot: Content) -> None:
        self.discoveries, self.windows = snapshot["discoveries"], snapshot["windows"]
        self._pending, self._decided = list(snapshot["pending"]), snapshot["decided"]
        self._opened, self.last_time = snapshot["opened"], snapshot["now"]
        claim(self._decided + self.waiting == self.rows, "rows are missing, or too many")
        claim(
            max(self.discoveries, self.windows) <= self._decided,
            "more is decided than there are rows",
        )
        number, row = self.windows, self._decided
        for window in reversed(self._last["found"]["windows"] if self._last else []):
            number, row = number - 1, row - len(window["ranks"])
            place = (window["window"], window["row"])
            claim(bool(window["ranks"]) and place == (number, row), "the last windows are others")
        claim(self._size is None or self.waiting < self._size, "a window that is complete waits")
        if self.seconds is None:
            claim(self._opened is None and self.last_time is None, "windows of rows have times")
            return
        claim((self._opened is None) == (not self._pending), "a window is open without rows")
        claim((self.last_time is None) == (not self.rows), "the last row has no time")
        if self._opened is not None and self.last_time is not None:
            over = self._opened + self.seconds
            claim(self._opened <= self.last_time < over, "a window that is over waits")

    def _shapes(self) -> tuple[Shape, Shape, Shape]:
        rank, most = self._is_rank, self.cad.n_calibration_ + 1
        window = {
            "window": is_count,
            "row": is_count,
            "last_rank": lambda value: is_count(value) and value <= most,
            "ranks": [rank],
        }
        state = {
            "discoveries": is_count,
            "windows": is_count,
            "pending": [rank],
            "decided": is_count,
            "opened": optional(is_finite),
            "now": optional(is_finite),
        }
        given = rank if self.seconds is None else (rank, is_finite)
        return given, {"windows": [window]}, state

    def _same(self, given: list[Any], recorded: list[Any]) -> bool:
        """The ranks must be the same; the times that count are those of the first delivery."""
        return _ranks(given) == _ranks(recorded)


_FRACTIONS = ("fdr", "false_alarms", "storey_lambda", "confidence")


def _ranks(given: list[Any]) -> list[int]:
    return [item[0] if isinstance(item, list) else item for item in given]


def _check_seconds(argument: str, value: object) -> float:
    if not is_number(value) or not 0 < float(value) < math.inf:
        raise ReconformError(f"`{argument}` must be a positive number of seconds; got {value!r}.")
    return float(value)
