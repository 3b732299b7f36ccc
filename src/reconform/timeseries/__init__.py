"""Windows of time series: rows that follow each other are judged together, by what is left of them.

A window is a unit (`reconform.units`) that is cut by time. What it is like is said of what the
forecasts of its rows miss (`reconform.timeseries.forecast`): for every column the level, their sum
over the root of their number, and the extreme, the largest; both without a sign.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..arrays import BoolArray, FloatArray, IndexArray, ObjectArray
from ..assumption.order import EPOCH, seconds_of
from ..detector import ConformalDetector
from ..detectors.extreme import far_out
from ..detectors.prepare import Prepare
from ..errors import ReconformError, listed
from ..frames import frame_as_it_is, opened
from ..grouping import label_of
from ..tables import Feature
from ..units import MOST_SHOWN, UnitFeatures, UnitRows, keys_of, numbers_in
from .forecast import MOST_LAGS, PARTS, Forecast, fit_forecast

# Windows of 10 rows, and of more where there are so many rows that 500 windows remain.
SHORTEST, LONGEST, ENOUGH = 10, 60, 500
LEAST_WINDOWS = 20
# Up to so many windows are left out one by one.
MOST_LEFT_OUT = 1_000
# Flagged windows with so many others between them are one event.
JOINED = 2
# A column carries an event if it is at least half as far out as the farthest one.
CARRIES = 0.5
# What the column of windows is called in outputs, and times that are the order of the rows.
WINDOW, IN_ROWS = "window", "rows"


@dataclass(frozen=True)
class Event:
    """Flagged windows that are neighbours, as one.

    Attributes
    ----------
    series : str
        Empty where there is one.
    begin, end, peak : str
        The times of its first and its last row, and where the most unusual window begins.
    columns : tuple of str
        Those that are far out at the peak, the farthest first.
    windows : int
        Flagged ones.
    p_value : float
        The smallest.
    rows : tuple of int
        The positions of its first and its last row in the order of time.
    """

    series: str
    begin: str
    end: str
    peak: str
    columns: tuple[str, ...]
    windows: int
    p_value: float
    rows: tuple[int, int] = field(repr=False)

    @property
    def window(self) -> str:
        """The most unusual window, by its name in the list: `explain` takes it."""
        return f"{self.series}, {self.peak}" if self.series else self.peak

    @property
    def sentence(self) -> str:
        """The event in words."""
        where = f"{self.series}, " if self.series else ""
        most = f", most at {self.peak}" if self.peak != self.begin else ""
        return f"{where}{self.begin} to {self.end}{most}: {listed(self.columns)}"


@dataclass(frozen=True, eq=False)
class WindowFeatures(UnitFeatures):
    """How rows become features of their windows, as the reference has it.

    Attributes
    ----------
    columns, missing, keys
        As in `UnitFeatures`.
    centres, scales : float arrays
        Of the features over all windows of the reference; see `reconform.detectors.extreme`.
    time, by : str
        The columns of times and of series; `by` is empty where there is one series.
    length : int
        Rows of a window.
    step : float
        Seconds from row to row.
    series : tuple of str
    levels, spreads : float arrays of shape (series, columns)
        What the columns of every series are centred and scaled by.
    forecast : Forecast
    noise : float array
        How much forecasts usually miss, by column.
    span : float array of shape (series, 2)
        When every series begins and ends.
    tail, tail_times : float arrays of shape (series, 10, columns) and (series, 10)
        The last rows of every series, by which new rows that follow them are forecast.
    """

    called = "window"

    time: str
    by: str
    length: int
    step: float
    series: tuple[str, ...]
    levels: FloatArray = field(repr=False)
    spreads: FloatArray = field(repr=False)
    forecast: Forecast = field(repr=False)
    noise: FloatArray = field(repr=False)
    span: FloatArray = field(repr=False)
    tail: FloatArray = field(repr=False)
    tail_times: FloatArray = field(repr=False)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        kinds = [f"{one.name} {what}" for what in ("level", "extreme") for one in self.columns]
        return (*kinds, *(f"{name} missing" for name in self.missing))

    @cached_property
    def of_columns(self) -> IndexArray:
        """The column of every feature."""
        every = np.arange(len(self.columns))
        gone = [k for k, one in enumerate(self.columns) if one.name in self.missing]
        return np.concatenate([every, every, np.array(gone, dtype=np.intp)])

    @property
    def reach(self) -> float:
        """Seconds after which rows do not follow each other any more."""
        return self.length * self.step

    @property
    def near(self) -> float:
        """Seconds within which flagged windows are one event."""
        return (JOINED * self.length + 1.5) * self.step

    @property
    def windows(self) -> Windows:
        """How rows were cut."""
        return Windows(self.time, self.by or None, self.length)

    def after(self, rows: WindowRows) -> WindowFeatures:
        """The same once these rows are past: the last of them forecast what comes next."""
        span, tail, times = self.span.copy(), self.tail.copy(), self.tail_times.copy()
        ordered = rows.X[rows.order]
        for k in np.unique(rows.series):
            mine = np.flatnonzero(rows.series == k)
            span[k, 1] = max(span[k, 1], rows.seconds[mine[-1]])
            last = np.concatenate([tail[k], ordered[mine]])[-MOST_LAGS:]
            tail[k], times[k] = last, np.append(times[k], rows.seconds[mine])[-MOST_LAGS:]
        return replace(self, span=span, tail=tail, tail_times=times)

    def moved(self, rows: WindowRows, features: FloatArray) -> WindowFeatures:
        """As `after`, with the features of a reference that these rows have joined."""
        keys = np.append(self.keys, keys_of(rows.names.tolist()))[-len(features) :]
        centres, scales = far_out(features)
        return replace(self.after(rows), keys=keys, centres=centres, scales=scales)


@dataclass(frozen=True, eq=False)
class WindowRows(UnitRows):
    """Rows, and the windows that they are cut into.

    Attributes
    ----------
    X, codes, names, units
        As in `UnitRows`; the units are windows.
    order : int array of shape (n,)
        The rows by series and time. What follows is in this order.
    seconds, series : arrays of shape (n,)
    errors : float array of shape (n, d)
        What forecasts miss, in units of what they usually miss; NaN where a value is missing.
    """

    units: WindowFeatures
    order: IndexArray = field(repr=False)
    seconds: FloatArray = field(repr=False)
    series: IndexArray = field(repr=False)
    errors: FloatArray = field(repr=False)

    @cached_property
    def edges(self) -> IndexArray:
        """Where every window begins in the order of time, and the number of rows."""
        first = np.flatnonzero(np.diff(self.codes[self.order], prepend=-1))
        return np.append(first, len(self.order))

    @cached_property
    def features(self) -> FloatArray:
        """One row of features per window."""
        return _features(self.errors, self.edges, self.units.columns, self.units.missing)

    def begins(self, times: FloatArray | None) -> FloatArray | None:
        """When every window begins."""
        return np.asarray(self.seconds[self.edges[:-1]])

    def forecasts(self) -> FloatArray:
        """What was expected of every row, in the order of time."""
        units = self.units
        missed = self.errors * units.noise * units.spreads[self.series]
        return np.asarray(self.X[self.order] - missed)

    def within(self, name: Any, most: int = MOST_SHOWN) -> list[dict[str, Any]]:
        """Say which rows of a window their forecasts miss most; `strength` is by how much."""
        at = self.place(name)
        rows = np.arange(*self.edges[at : at + 2])
        return self.standing_out(self.order[rows], self.errors[rows], self.units.columns, most)

    def events(self, mask: BoolArray, p_values: FloatArray) -> list[Event]:
        """Join flagged windows that are neighbours; the windows in between belong to the event.

        Parameters
        ----------
        mask, p_values : arrays of shape (w,)
            Which windows are flagged, and their p-values.
        """
        flagged = np.flatnonzero(mask)
        if not len(flagged):
            return []
        first, last = self.edges[:-1][flagged], self.edges[1:][flagged] - 1
        far = self.seconds[first[1:]] - self.seconds[last[:-1]] > self.units.near
        cuts = np.flatnonzero(far | (np.diff(self.series[first]) != 0)) + 1
        return [self.event(some, p_values) for some in np.split(flagged, cuts)]

    def event(self, windows: IndexArray, p_values: FloatArray) -> Event:
        """Make an event of some windows."""
        units = self.units
        far = np.abs(self.features[windows] - units.centres) / units.scales
        k = int(np.lexsort((-far.max(axis=1), p_values[windows]))[0])
        by_column = np.zeros(len(units.columns))
        np.maximum.at(by_column, units.of_columns, far[k])
        carrying = np.argsort(-by_column, kind="stable")
        carrying = carrying[by_column[carrying] >= CARRIES * by_column.max()]
        rows = int(self.edges[windows[0]]), int(self.edges[windows[-1] + 1]) - 1
        begin, end, peak = (_said(self.seconds[i]) for i in (*rows, self.edges[windows[k]]))
        return Event(
            units.series[self.series[rows[0]]] if units.by else "",
            begin,
            end,
            peak,
            tuple(units.columns[j].name for j in carrying.tolist()),
            len(windows),
            float(p_values[windows].min()),
            rows,
        )


@dataclass(frozen=True)
class Windows:
    """How a frame of rows in time is cut into windows: `units` of a `ConformalDetector`.

    Parameters
    ----------
    time : str
        The column of times: dates, times, text that is one, or numbers in any unit; or ``"rows"``,
        where there is no such column, if rows stand in the order of time.
    series : str, optional
        The column that tells several series apart.
    length : int, optional
        Rows of a window: by default 10, and as many as leave 500 windows, but at most 60.
    """

    time: str
    series: str | None = None
    length: int | None = None

    def rows(self, X: Any, known: WindowFeatures | None = None) -> WindowRows:
        """Cut rows into windows: of a reference, or of new rows by what the reference taught.

        Examples
        --------
        >>> import pandas as pd
        >>> t = np.arange(400.0)
        >>> frame = pd.DataFrame({"when": t, "x": np.sin(t)})
        >>> rows = Windows("when").rows(frame)
        >>> rows.units.length, len(rows.names), rows.names[1], rows.units.names
        (10, 40, '10', ('x level', 'x extreme'))
        """
        columns = None if known is None else known.columns
        return cut(*self.read(X, columns), self, known)

    def read(
        self, X: Any, columns: Sequence[Feature] | None = None
    ) -> tuple[FloatArray, Sequence[Feature], FloatArray | None, list[Any] | None]:
        """Read a frame as numbers, their columns, times in seconds and the series of every row."""
        X = frame_as_it_is(X)
        frame, timed = opened(X), None
        given = () if frame is None else frame.columns
        for column in filter(None, (self.time, self.series)):
            if column not in given and column != IN_ROWS:
                raise ReconformError(
                    f"`Windows` names a column {column!r} that X does not have; it has "
                    f"{listed(given)}."
                )
        labels: Any = None
        if frame is not None:
            labels = None if self.series is None else frame[self.series].to_list()
            timed = frame[self.time].to_list() if self.time in given else None
            X = frame.drop([one for one in given if one in (self.time, self.series)]).to_native()
        columns = Prepare("knn").features_of(X) if columns is None else columns
        seconds = None if timed is None else seconds_of(np.asarray(timed), len(X))
        named = None if labels is None else [*map(label_of, labels)]
        return numbers_in(X, columns), columns, seconds, named


def cut(
    X: FloatArray,
    columns: Sequence[Feature],
    seconds: FloatArray | None,
    labels: Sequence[Any] | None,
    how: Windows,
    known: WindowFeatures | None = None,
) -> WindowRows:
    """Cut rows into windows.

    Parameters
    ----------
    X : float array of shape (n, d)
    columns : sequence of Feature
        Of X; those of labels are left out.
    seconds : float array of shape (n,), optional
        When every row was taken; without, rows stand in the order of time.
    labels : sequence of length n, optional
        The series of every row.
    how : Windows
    known : WindowFeatures, optional
        Of the reference; without, these are its rows.
    """
    numbers = [j for j, one in enumerate(columns) if one.labels is None and one.made is None]
    if not numbers:
        raise ReconformError("windows are made of numbers, and no column has any.")
    columns, X = tuple(columns[j] for j in numbers), np.ascontiguousarray(X[:, numbers])
    codes, series = codes_of_series(labels, len(X), None if known is None else known.series)
    if seconds is None:
        after = 0.0 if known is None else known.span.max() + 1.0
        seconds = after + np.arange(float(len(X)))
    if known is None:
        return _reference(X, columns, seconds, codes, series, how)
    _refuse_overlap(known, seconds, codes)
    return _new(X, seconds, codes, known)


def codes_of_series(
    labels: Sequence[Any] | None, rows: int, known: Sequence[str] | None = None
) -> tuple[IndexArray, tuple[str, ...]]:
    """Number the series of rows, in the order of the reference or in which they come first.

    Examples
    --------
    >>> codes_of_series(["b", "a", "b"], 3)
    (array([0, 1, 0]), ('b', 'a'))
    """
    named: Sequence[str | None] = [""] * rows if labels is None else labels
    if None in named:
        raise ReconformError(
            f"row {named.index(None) + 1:,} has no series; leave such rows out, or name theirs."
        )
    names = [*map(str, named)]
    places = {name: k for k, name in enumerate(dict.fromkeys(names) if known is None else known)}
    strange = sorted({*names} - {*places})
    if strange:
        raise ReconformError(
            f"the reference has no rows of the series {listed(strange)}, and a series is judged by "
            "its own past; leave its rows out."
        )
    return np.array([places[name] for name in names], dtype=np.intp), tuple(places)


def _reference(
    X: FloatArray,
    columns: tuple[Feature, ...],
    seconds: FloatArray,
    codes: IndexArray,
    series: tuple[str, ...],
    how: Windows,
) -> WindowRows:
    """Cut a reference, and learn from it."""
    order = np.lexsort((seconds, codes))
    rows, times, inside = X[order], seconds[order], codes[order]
    steps = np.diff(times)[np.diff(inside) == 0]
    step = float(np.median(steps[steps > 0])) if (steps > 0).any() else 1.0
    length = how.length or int(np.clip(len(X) // ENOUGH, SHORTEST, LONGEST))
    starts = _stretches(times, inside, length * step)
    edges = _cut(starts, np.ones(len(X), dtype=bool), length)
    _refuse_few(len(X), length, len(edges) - 1)
    first = np.flatnonzero(np.diff(inside, prepend=-1))
    sizes = np.diff(np.append(first, len(X)))
    levels, spreads = _levels_and_spreads(np.split(rows, first[1:]))
    Z, gone = _filled(rows, starts, levels[inside], spreads[inside])
    parts = (np.arange(len(X)) - first[inside]) * PARTS // sizes[inside]
    forecast, errors = fit_forecast(Z, starts, times, parts, step)
    errors[gone] = np.nan
    noise = np.sqrt(np.nanmean(errors**2, axis=0))
    noise = np.where(noise > 0, noise, 1.0)
    errors /= noise
    last = (first + sizes)[:, None] - np.arange(MOST_LAGS, 0, -1)
    lacking = last < first[:, None]
    missing = tuple(columns[j].name for j in np.flatnonzero(gone.any(axis=0)))
    centres, scales = far_out(_features(errors, edges, columns, missing))
    names = _names(times, inside, edges, series if how.series else ())
    units = WindowFeatures(
        columns=columns,
        missing=missing,
        centres=centres,
        scales=scales,
        keys=keys_of(names.tolist()),
        time=how.time,
        by=how.series or "",
        length=length,
        step=step,
        series=series,
        levels=levels,
        spreads=spreads,
        forecast=forecast,
        noise=noise,
        span=np.column_stack([times[first], times[first + sizes - 1]]),
        tail=np.where(lacking[:, :, None], np.nan, rows[last]),
        tail_times=np.where(lacking, np.nan, times[last]),
    )
    return _rows(X, order, edges, names, units, times, inside, errors)


def _refuse_few(rows: int, length: int, windows: int) -> None:
    """Refuse a reference of too few windows, with the length that it has enough of."""
    most = rows // LEAST_WINDOWS
    if windows < LEAST_WINDOWS:
        advice = f"take `window={most}` at most, or give" if most > 1 else "give"
        raise ReconformError(
            f"{rows:,} rows in windows of {length} are {windows} windows, and a list needs at "
            f"least {LEAST_WINDOWS} that are normal: {advice} more rows."
        )


def _levels_and_spreads(series: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """The median and the standard deviation of the columns of every series."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column without any value
        levels = np.array([np.nanmedian(rows, axis=0) for rows in series])
        spreads = np.array([np.nanstd(rows, axis=0) for rows in series])
    return np.nan_to_num(levels), np.where(spreads > 0, spreads, 1.0)


def _new(
    X: FloatArray, seconds: FloatArray, codes: IndexArray, known: WindowFeatures
) -> WindowRows:
    """Cut new rows; those that follow the reference closely are forecast by its last rows."""
    present = np.unique(codes)
    before = known.tail_times[present].ravel()
    there = ~np.isnan(before)
    past = known.tail[present].reshape(-1, X.shape[1])[there]
    rows = np.concatenate([past, X])
    times = np.concatenate([before[there], seconds])
    inside = np.concatenate([np.repeat(present, MOST_LAGS)[there], codes])
    new = np.arange(len(rows)) >= len(past)
    order = np.lexsort((times, inside))
    rows, times, inside, new = rows[order], times[order], inside[order], new[order]
    starts = _stretches(times, inside, known.reach)
    Z, gone = _filled(rows, starts, known.levels[inside], known.spreads[inside])
    errors = known.forecast.errors(Z, starts, times) / known.noise
    errors[gone] = np.nan
    edges = _cut(starts, new, known.length)
    times, inside = times[new], inside[new]
    names = _names(times, inside, edges, known.series if known.by else ())
    own = order[new] - len(past)
    return _rows(X, own, edges, names, known, times, inside, errors[new])


def _rows(
    X: FloatArray,
    order: IndexArray,
    edges: IndexArray,
    names: ObjectArray,
    units: WindowFeatures,
    *in_order: Any,
) -> WindowRows:
    codes = np.empty(len(X), dtype=np.intp)
    codes[order] = np.repeat(np.arange(len(names)), np.diff(edges))
    return WindowRows(X, codes, names, units, order, *in_order)


def _refuse_overlap(known: WindowFeatures, seconds: FloatArray, codes: IndexArray) -> None:
    """Refuse new rows from the time of the reference: they would be judged by themselves."""
    first, last = known.span[codes].T
    within = (seconds >= first) & (seconds <= last)
    if within.any():
        raise ReconformError(
            f"{int(within.sum()):,} new rows are from the time of the reference, "
            f"{_said(known.span.min())} to {_said(known.span.max())}; leave them out of one of the "
            "two."
        )


def _stretches(seconds: FloatArray, series: IndexArray, reach: float) -> IndexArray:
    """The first row of the stretch of every row: rows of a series without a long gap."""
    begins = (np.diff(series, prepend=-1) != 0) | (np.diff(seconds, prepend=-np.inf) > reach)
    return np.maximum.accumulate(np.where(begins, np.arange(len(seconds)), 0))


def _cut(starts: IndexArray, judged: BoolArray, length: int) -> IndexArray:
    """Cut every stretch into windows of about so many rows; of the judged rows, where each begins.

    Examples
    --------
    >>> _cut(np.array([0] * 7 + [7] * 2), np.arange(9) > 0, 3).tolist()
    [0, 3, 6, 8]
    """
    stretch = starts[judged]
    first = np.flatnonzero(np.diff(stretch, prepend=-1))
    sizes = np.diff(np.append(first, len(stretch)))
    counts = np.maximum(sizes // length, 1)
    found = [a + np.arange(k) * size // k for a, size, k in zip(first, sizes, counts, strict=True)]
    return np.concatenate([*found, [len(stretch)]]).astype(np.intp)


def _filled(
    X: FloatArray, starts: IndexArray, levels: FloatArray, spreads: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """Centre and scale rows; a missing value is the last one before it, or else the level."""
    gone = np.isnan(X)
    Z = np.where(gone, 0.0, (X - levels) / spreads)
    for j in np.flatnonzero(gone.any(axis=0)):
        last = np.maximum.accumulate(np.where(gone[:, j], -1, np.arange(len(X))))
        known = gone[:, j] & (last >= starts)
        Z[known, j] = Z[last[known], j]
    return Z, gone


def _features(
    errors: FloatArray, edges: IndexArray, columns: Sequence[Feature], missing: Sequence[str]
) -> FloatArray:
    """The level and the extreme of every column, and the share of missing values of some."""
    gone, first = np.isnan(errors), edges[:-1]
    there = np.where(gone, 0.0, errors)
    sizes = np.diff(edges)[:, None]
    lost = np.add.reduceat(gone, first, axis=0, dtype=np.int64)
    level = np.add.reduceat(there, first, axis=0) / np.sqrt(np.maximum(sizes - lost, 1))
    extreme = np.maximum.reduceat(np.abs(there), first, axis=0)
    some = [j for j, one in enumerate(columns) if one.name in missing]
    return np.hstack([np.abs(level), extreme, (lost / sizes)[:, some]])


def _names(
    seconds: FloatArray, series: IndexArray, edges: IndexArray, called: Sequence[str]
) -> ObjectArray:
    """Windows are called by their series and when they begin."""
    first = edges[:-1]
    before = [f"{called[k]}, " if called else "" for k in series[first]]
    said = [name + _said(when) for name, when in zip(before, seconds[first], strict=True)]
    return np.array(said, dtype=object)


def _said(seconds: float) -> str:
    """A time in words: numbers that can be no times since 1970 as they are."""
    if not EPOCH[0] <= seconds < EPOCH[1]:
        return f"{seconds:.12g}"
    when = np.datetime64(round(float(seconds) * 1e3), "ms")
    return str(when if seconds % 1 else when.astype("datetime64[s]")).replace("T", " ")


def fit(X: Any, windows: Windows, *, random_state: Any = None) -> ConformalDetector:
    """Fit the detector that is advised for windows on normal rows of one or several series.

    Parameters
    ----------
    X : frame
        Rows with a column of times.
    windows : Windows
    random_state : int, optional

    Returns
    -------
    ConformalDetector
        ``discover(new, units=windows)`` judges the windows of new rows.

    Notes
    -----
    What holds is measured: windows of a stationary series, far enough apart, are nearly
    exchangeable, and neighbours only as far as the forecast leaves nothing that they share. The
    order of the windows is tested, and lists say what it shows (docs/time).

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> rng = np.random.default_rng(1)
    >>> rows = pd.DataFrame({"hour": np.arange(1_400), "load": rng.normal(size=1_400)})
    >>> rows.loc[1_100:1_160, "load"] += 4
    >>> windows = Windows("hour")
    >>> found = fit(rows[:1_000], windows).discover(rows[1_000:], units=windows)
    >>> [(event.begin, event.end, event.columns) for event in found.events]
    [('1100', '1159', ('load',))]
    """
    rows = windows.rows(X)
    return ConformalDetector(
        "extreme", advised_method(len(rows.names)), random_state=random_state
    ).fit(X, units=windows)


def advised_method(windows: int) -> str:
    """The method for so many windows of a reference."""
    return "jackknife" if windows <= MOST_LEFT_OUT else "cv"


__all__ = ["Event", "WindowFeatures", "WindowRows", "Windows", "fit"]
