"""Forecasts of rows from the rows before them and from the calendar.

What is left of a row when its forecast is taken away is far less like its neighbours than the row
itself. A column's forecast is what is usual at this time of the day or week, where that helps, and
a ridge regression of the rest on its own last values; how many, at most 10, the BIC says. Columns
do not forecast each other: one that drifts out of what was seen would take the others along.

A forecast of a row that it was fitted on is too good. So the reference is cut into thirds, and
every third is forecast by the other two: all rows calibrate, and a column that drifts shows by how
much it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..arrays import FloatArray, IndexArray
from ..assumption.order import DAY, EPOCH

MOST_LAGS = 10
PARTS = 3
RIDGE = 1.0
# Rows that a fit looks at; of more every k-th, with the rows before it.
MOST_FITTED = 100_000
# What is usual is known for parts of a day that are not shorter than this, in seconds.
SHORTEST_BIN = 1_800
# Days that the reference must have for a usual day, and for a usual week.
FOR_DAYS, FOR_WEEKS = 3, 21
# A bin with so many rows believes its own mean by half.
SHRINKAGE = 4


@dataclass(frozen=True)
class Clock:
    """The parts of a week that rows fall into: `per_day` times seven; 0 without a calendar."""

    per_day: int

    @classmethod
    def of(cls, seconds: FloatArray, step: float) -> Clock:
        """How finely rows that come so often can tell the time."""
        real = len(seconds) and EPOCH[0] <= seconds.min() and seconds.max() < EPOCH[1]
        if not real or not 0 < step <= DAY or np.ptp(seconds) < FOR_DAYS * DAY:
            return cls(0)
        return cls(max(1, round(DAY / max(step, SHORTEST_BIN))))

    def bins(self, seconds: FloatArray) -> IndexArray:
        """The part of the week of every time.

        Examples
        --------
        >>> Clock(24).bins(np.array([1.7e9, 1.7e9 + 3_600.0])).tolist()
        [142, 143]
        """
        if not self.per_day:
            return np.zeros(len(seconds), dtype=np.intp)
        return np.floor(seconds / DAY * self.per_day).astype(np.intp) % (7 * self.per_day)

    def usual(self, z: FloatArray, bins: IndexArray, weekly: bool) -> FloatArray:
        """What is usual in every part of the week: the mean of the time of day, or also its own."""
        daily = _means(z, bins % self.per_day, self.per_day)
        usual: FloatArray = np.tile(daily, 7)
        return usual + _means(z - usual[bins], bins, len(usual)) if weekly else usual


@dataclass(frozen=True, eq=False)
class Forecast:
    """A fitted forecast of rows whose columns are centred and scaled.

    Attributes
    ----------
    clock : Clock
    usual : float array of shape (7 * per_day, d)
        By the part of the week; zeros where the calendar does not help.
    weights : float array of shape (11, d)
        Of the last 10 values, and a constant.
    """

    clock: Clock
    usual: FloatArray
    weights: FloatArray

    def errors(self, Z: FloatArray, starts: IndexArray, seconds: FloatArray) -> FloatArray:
        """What the forecasts of rows miss.

        Parameters
        ----------
        Z : float array of shape (n, d)
            In the order of time, without missing values.
        starts : int array of shape (n,)
            The first row of the stretch that a row is in; where there are too few rows before one,
            the first stands for them.
        seconds : float array of shape (n,)
        """
        bins, made, rows = self.clock.bins(seconds), np.empty_like(Z), np.arange(len(Z))
        for j, z in enumerate(np.ascontiguousarray(Z.T)):
            rest = z - self.usual[bins, j] if self.clock.per_day else z
            made[:, j] = _missed(rest, starts, self.weights[:, j], rows)
        return made


def fit_forecast(
    Z: FloatArray, starts: IndexArray, seconds: FloatArray, parts: IndexArray, step: float
) -> tuple[Forecast, FloatArray]:
    """Fit a forecast, and say what forecasts that were fitted without its part miss of each row.

    Parameters
    ----------
    Z, starts, seconds
        As in `Forecast.errors`.
    parts : int array of shape (n,)
        Which part of the reference a row is in, from 0 to `PARTS` - 1.
    step : float
        Seconds from row to row.

    Returns
    -------
    Forecast
    float array of shape (n, d)

    Examples
    --------
    >>> z = np.sin(np.arange(600.0) / 5)[:, None]
    >>> parts = np.arange(600) * PARTS // 600
    >>> _, errors = fit_forecast(z, np.zeros(600, dtype=int), np.arange(600.0), parts, 1.0)
    >>> bool(errors[10:].std() < 0.1 * z.std())
    True
    """
    n, d = Z.shape
    clock = Clock.of(seconds, step)
    bins, weekly = clock.bins(seconds), bool(np.ptp(seconds) >= FOR_WEEKS * DAY)
    rows = np.arange(0, n, -(-n // MOST_FITTED))
    usual, weights = np.zeros((7 * clock.per_day, d)), np.zeros((MOST_LAGS + 1, d))
    errors = np.empty_like(Z)
    own = [np.flatnonzero(parts == part) for part in range(PARTS)]
    for j, z in enumerate(np.ascontiguousarray(Z.T)):
        means = list(_profiles(clock, z, bins, parts, weekly))
        order = None
        for part in (PARTS, *range(PARTS)):  # all rows first; what they are is then part PARTS
            rest = z - means[part][bins] if clock.per_day else z
            used = rows[parts[rows] != part]
            found = _regress(rest, starts, used, order)
            if part == PARTS:
                usual[:, j], weights[:, j] = means[part], found
                order = int(np.flatnonzero(found[:-1]).max(initial=0)) + 1
            else:
                errors[own[part], j] = _missed(rest, starts, found, own[part])
    return Forecast(clock, usual, weights), errors


def _profiles(
    clock: Clock, z: FloatArray, bins: IndexArray, parts: IndexArray, weekly: bool
) -> Iterator[FloatArray]:
    """What is usual by the rows outside of each part, and by all: as much as forecasts better."""
    if not clock.per_day:
        yield from [np.zeros(0)] * (PARTS + 1)
        return
    outside = [parts != part for part in range(PARTS + 1)]
    ways = [[np.zeros(7 * clock.per_day)] * (PARTS + 1)]
    ways += [
        [clock.usual(z[some], bins[some], own) for some in outside]
        for own in ((False, True) if weekly else (False,))
    ]
    missed = [
        sum(
            float(((z - one[bins])[~some] ** 2).sum())
            for one, some in zip(way, outside, strict=True)
        )
        for way in ways
    ]
    yield from ways[int(np.argmin(missed))]


def _means(z: FloatArray, bins: IndexArray, count: int) -> FloatArray:
    sums = np.bincount(bins, z, minlength=count)
    return np.asarray(sums / (np.bincount(bins, minlength=count) + SHRINKAGE))


def _regress(z: FloatArray, starts: IndexArray, rows: IndexArray, order: int | None) -> FloatArray:
    """Regress rows on the values before them; on how many, the BIC says unless that is known."""
    before = [z[np.maximum(rows - lag, starts[rows])] for lag in range(1, MOST_LAGS + 1)]
    F = np.column_stack([np.ones(len(rows)), *before])
    y = z[rows]
    gram, target, total = F.T @ F, F.T @ y, float(y @ y)
    best, found = np.inf, np.zeros(MOST_LAGS + 1)
    for lags in range(1, MOST_LAGS + 1) if order is None else [order]:
        some = slice(0, lags + 1)
        ridge = np.diag([1e-6, *[RIDGE] * lags])
        weights = np.linalg.solve(gram[some, some] + ridge, target[some])
        missed = total - 2 * weights @ target[some] + weights @ gram[some, some] @ weights
        worth = len(y) * np.log(max(missed, 1e-9 * len(y)) / len(y)) + lags * np.log(len(y))
        if worth < best:
            best, found = worth, np.zeros(MOST_LAGS + 1)
            found[:lags], found[-1] = weights[1:], weights[0]
    return found


def _missed(z: FloatArray, starts: IndexArray, weights: FloatArray, rows: IndexArray) -> FloatArray:
    """Take from the values of rows what the last values before, and a constant, forecast."""
    made, first = z[rows] - weights[-1], starts[rows]
    for lag in np.flatnonzero(weights[:-1]) + 1:
        made -= weights[lag - 1] * z[np.maximum(rows - lag, first)]
    return np.asarray(made)
