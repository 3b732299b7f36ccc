"""Windows of time series as their rows arrive: each is decided when it is complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import BoolArray, FloatArray, IntArray
from ..detector import ConformalDetector
from ..errors import ReconformError
from ..timeseries import WindowFeatures, WindowRows, codes_of_series, cut
from ..units import OF_EVENTS
from .decisions import FalseAlarmBudget


@dataclass(frozen=True)
class DecidedWindow:
    """A window of a stream, and what was decided about it.

    Attributes
    ----------
    window, series : str
        When it begins, and of which series it is; `series` is empty where there is one.
    begin, end : str
        The times of its first and its last row.
    rows : int
    p_value : float
    flagged : bool
    event : int or None
        Flagged windows that are neighbours have one number.
    columns : tuple of str
        Those that are far out, the farthest first, where it is flagged.
    """

    window: str
    series: str
    begin: str
    end: str
    rows: int
    p_value: float
    flagged: bool
    event: int | None = None
    columns: tuple[str, ...] = ()


class WindowStream:
    """Judge windows of time series while their rows arrive, with a budget of false alarms.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted on windows (`reconform.timeseries.fit`).
    false_alarms : float, default=1
        How many false alarms may be expected ...
    per : int, default=100
        ... in so many windows.

    Attributes
    ----------
    guarantee, outlook : str
        What holds, and which windows are flagged, in words.
    waiting : int
        Rows whose window is not complete.
    events : int
        Events so far: runs of flagged windows with at most two others in between.

    Notes
    -----
    Windows are those of the whole series, forecast by the rows before them, whatever the batches
    in which rows arrive; a long gap ends a window early. Rows of a series arrive in the order of
    time. What holds is measured, as for windows of a file (docs/time).

    Examples
    --------
    >>> import pandas as pd
    >>> from reconform.timeseries import Windows, fit
    >>> rng = np.random.default_rng(4)
    >>> rows = pd.DataFrame({"hour": np.arange(2_000), "load": rng.normal(size=2_000)})
    >>> rows.loc[1_700:1_760, "load"] += 4
    >>> stream = WindowStream(fit(rows[:1_500], Windows("hour")), false_alarms=1, per=100)
    >>> told = [one for k in range(1_500, 2_000, 7) for one in stream.update(rows[k : k + 7])]
    >>> flagged = [one for one in told if one.flagged]
    >>> flagged[0].begin, flagged[-1].end, {one.event for one in flagged}
    ('1700', '1769', {1})
    """

    def __init__(self, cad: ConformalDetector, false_alarms: float = 1, per: int = 100) -> None:
        known = cad.state_.units
        if not isinstance(known, WindowFeatures):
            raise ReconformError(
                "WindowStream needs a detector that was fitted on windows of a time series; use "
                "reconform.timeseries.fit, or FalseAlarmBudget for single rows."
            )
        self._known, self._budget = known, FalseAlarmBudget(cad, false_alarms, per)
        in_rows, in_windows = f"{per:,} rows", f"{per:,} windows"
        self.guarantee = self._budget.promise.replace(in_rows, in_windows)
        if not self._budget.withdrawn:
            self.guarantee += f" {OF_EVENTS}"
        self.outlook = self._budget.outlook.replace("A row is", "A window is")
        self.events = 0
        # Of every series: the event of its last flagged window, and when that ended.
        self._last: dict[int, tuple[int, float]] = {}
        self._X: FloatArray = np.empty((0, len(known.columns)))
        self._seconds: FloatArray = np.empty(0)
        self._codes: IntArray = np.empty(0, dtype=np.int64)

    @property
    def waiting(self) -> int:
        """Rows whose window is not complete."""
        return len(self._X)

    def update(self, X: Any) -> list[DecidedWindow]:
        """Take the next rows; return the windows that they complete.

        Parameters
        ----------
        X : frame
            With the columns of the reference, those of times and of series among them.
        """
        rows, _, seconds, series = self._known.windows.read(X, self._known.columns)
        return self.add(rows, seconds, series)

    def add(
        self, X: FloatArray, seconds: FloatArray | None, series: Sequence[Any] | None
    ) -> list[DecidedWindow]:
        """Take rows as numbers, with their times and series, as `update` reads them from a frame.

        Parameters
        ----------
        X : float array of shape (m, d)
            In the columns of the windows.
        seconds : float array of shape (m,), optional
            When every row was taken; without, one step after the other.
        series : sequence of length m, optional
        """
        known = self._known
        if seconds is None:
            past = max([float(known.span.max()), *self._seconds.tolist()])
            seconds = past + known.step * np.arange(1, len(X) + 1)
        codes = np.zeros(len(X), dtype=np.int64)
        if known.by:
            codes, _ = codes_of_series(series, len(X), known.series)
        late = self._late(seconds, codes)
        if late.any():
            raise ReconformError(
                f"{int(late.sum()):,} rows are older than rows of their series that have arrived "
                "before; rows of a series arrive in the order of time."
            )
        self._X = np.concatenate([self._X, X])
        self._seconds = np.concatenate([self._seconds, seconds])
        self._codes = np.concatenate([self._codes, codes])
        return self._decide(self._complete())

    def flush(self) -> list[DecidedWindow]:
        """Decide about the rows that wait, in windows that may be short."""
        return self._decide(np.ones(len(self._X), dtype=np.bool_))

    def _late(self, seconds: FloatArray, codes: IntArray) -> BoolArray:
        newest = self._known.span[:, 1].copy()
        np.maximum.at(newest, self._codes, self._seconds)
        return np.asarray(seconds <= newest[codes])

    def _complete(self) -> BoolArray:
        """Mark rows of windows that no later row can join."""
        done, known = np.zeros(len(self._X), dtype=np.bool_), self._known
        for k in np.unique(self._codes):
            mine = np.flatnonzero(self._codes == k)
            mine = mine[np.argsort(self._seconds[mine], kind="stable")]
            gaps = np.flatnonzero(np.diff(self._seconds[mine]) > known.reach)
            open_from = int(gaps[-1]) + 1 if len(gaps) else 0
            whole = (len(mine) - open_from) // known.length * known.length
            done[mine[: open_from + whole]] = True
        return done

    def _decide(self, some: BoolArray) -> list[DecidedWindow]:
        if not some.any():
            return []
        known = self._known
        labels = [known.series[k] for k in self._codes[some]] if known.by else None
        rows = cut(self._X[some], known.columns, self._seconds[some], labels, known.windows, known)
        decided = self._budget.update(rows.frame)
        told = [
            self._told(rows, k, bool(decided.mask[k]), decided.p_values)
            for k in range(len(rows.names))
        ]
        self._known = known.after(rows)
        self._X, self._seconds = self._X[~some], self._seconds[~some]
        self._codes = self._codes[~some]
        return told

    def _told(self, rows: WindowRows, k: int, flagged: bool, p_values: FloatArray) -> DecidedWindow:
        event = rows.event(np.array([k]), p_values)
        first, last = event.rows
        series = int(rows.series[first])
        number, ended = self._last.get(series, (0, -np.inf))
        if flagged:
            if rows.seconds[first] - ended > self._known.near:
                self.events += 1
                number = self.events
            self._last[series] = number, float(rows.seconds[last])
        return DecidedWindow(
            str(rows.names[k]),
            event.series,
            event.begin,
            event.end,
            last - first + 1,
            float(p_values[k]),
            flagged,
            number if flagged else None,
            event.columns if flagged else (),
        )
