"""Does the order of rows matter? An exact test, by permutations.

If rows are exchangeable, every order of them is equally likely. So a statistic of the order, such
as how alike neighbours are, is compared with its values in random orders: that it is the largest
of 400 has a chance of at most 1/400, whatever the rows hold (ties, copies, missing values).
Neighbours in time are alike, and no theorem on exchangeable rows speaks of them.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.stats import rankdata

from ..arrays import AnyArray, FloatArray, IndexArray
from ..errors import ReconformError
from .verdict import Finding

# Of each test; those of a list are the reference and the new rows, and with a time the calendar.
DRAWS = 399
LEVEL = 1 / (DRAWS + 1)
# Fewer rows say nothing.
LEAST_ROWS = 20
# Rows are looked at in runs of neighbours, spread over all of them.
RUN, MOST_RUNS = 64, 8
MOST_COLUMNS = 32
# Rows are compared with those up to so many places after them: several series may take turns.
LAGS = 16
# Sums of so many rows in a row see slow changes that single rows hide.
WIDTHS = (8, 32)
# A column of few values, each in so many rows on average, may say which series a row is of.
ROWS_PER_SERIES = 16
# The calendar has one column, and can look at more rows.
MOST_SCORES = 4_096
# How days and clocks are written, beside the usual way.
DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y")
CLOCKS = (" %H:%M:%S", " %H:%M", "")
HOUR, DAY = 3_600, 86_400
# Periods that times are cut into, and how NumPy writes them.
PERIODS = {"month": "M", "week": "W", "day": "D", "hour": "h", "minute": "m"}
# Periods are advised as units where the reference has so many; more are better.
ENOUGH_UNITS, FEWEST_UNITS = 50, 20
# Numbers that can be seconds since 1970: from 1973 to 2286. Others have no calendar.
EPOCH = (1e8, 1e10)
CALENDAR = {"hour of the day": (HOUR, 24), "day of the week": (DAY, 7)}

NEIGHBOURS = "Rows that follow each other in time are alike:"
QUESTION = "Neighbouring rows are alike: are they in time order?"
ANSWER = "If they are, {0}; if they are only sorted, by customer for example, ignore this."
# What to do where rows have a time, in Python and on the command line.
ADVICE = {
    "units": (
        "Judge whole {0}s: give `times` and `units={0!r}` to `fit` and to `discover`.",
        "Judge whole {0}s: `reconform detect --unit {1}`.",
    ),
    "windows": (
        "Judge windows of the series, with `reconform.timeseries.fit`.",
        "Judge windows of the series: `reconform detect --time {1} --window 10`.",
    ),
    "ranking": (
        "Use the list as a ranking, without a promise: give `top=20` to `discover`.",
        "Use the list as a ranking, without a promise: `reconform detect --top 20`.",
    ),
}

# With fewer reference rows a list of windows (`reconform.timeseries`) is not possible.
ENOUGH_FOR_WINDOWS = 200


@dataclass(frozen=True)
class Order:
    """What the order of some rows shows.

    Attributes
    ----------
    rows : int
        How many were looked at; too few were not tested.
    alike : bool
        Whether neighbours are alike, at a level of 1/400.
    correlation : float
        The rank correlation of rows that are `lag` places apart, where it is largest.
    column, lag : int
        In which column, and at which distance; -1 if it is the distance from the middle of all
        columns.
    series : int
        The column that tells series apart, where rows are alike within these; or -1.
    timed : bool
        Whether the order is that of time.
    season : str
        What of the calendar the scores depend on, at a level of 1/400; may be empty.
    first, last : float
        The first and the last time; 0 without a calendar.
    periods : str
        Periods that could be units, the best first, with spaces between them; may be empty.
    """

    rows: int = 0
    alike: bool = False
    correlation: float = 0.0
    column: int = -1
    lag: int = 1
    series: int = -1
    timed: bool = False
    season: str = ""
    first: float = 0.0
    last: float = 0.0
    periods: str = ""


def in_runs(rows: int) -> IndexArray:
    """Say which of so many rows are looked at: runs of 64 neighbours, at most 8, far apart.

    Examples
    --------
    >>> in_runs(1_000)[[0, 63, 64, -1]].tolist()
    [0, 63, 128, 959]
    """
    return np.flatnonzero(np.arange(rows) // RUN % _step(rows) == 0)


def _step(rows: int) -> int:
    """Every how many-th run is looked at; a power of 2, so that those of fewer rows remain."""
    step = 1
    while -(-rows // (RUN * step)) > MOST_RUNS:
        step *= 2
    return step


@dataclass(frozen=True, eq=False)
class InOrder:
    """New rows in their order, as few as are looked at; see `order_of`."""

    X: FloatArray
    scores: FloatArray | None = None
    times: FloatArray | None = None
    groups: IndexArray | None = None
    # Of a file, or one that could be it; 'rows' if there is none.
    time_column: str | None = None
    of_scores: bool = False

    @property
    def by_scores(self) -> InOrder:
        """The same for rows of which only the scores matter, such as windows."""
        if self.scores is None:
            return self
        return replace(self, X=self.scores[:, None], of_scores=True)

    @cached_property
    def order(self) -> Order:
        """What their order shows."""
        found = order_of(
            self.X, scores=self.scores, halve=True, times=self.times, groups=self.groups
        )
        found = replace(found, column=-1) if self.of_scores else found
        season = "" if self.scores is None else season_of(self.scores, self.times, halve=True)
        return replace(found, season=season, **calendar_of(self.times))


class Runs:
    """The rows that `in_runs` names, of rows that come in parts and are not counted before.

    Examples
    --------
    >>> runs = Runs()
    >>> for part in np.split(np.arange(1_000.0)[:, None], 4):
    ...     runs.add(part)
    >>> bool((runs.positions == in_runs(1_000)).all()), runs.rows.shape
    (True, (512, 1))
    """

    def __init__(self) -> None:
        self.seen = 0
        self._places: list[IndexArray] = []
        self._rows: list[AnyArray] = []

    def add(self, X: AnyArray) -> None:
        """Show the next part."""
        places = np.arange(self.seen, self.seen + len(X))
        self.seen += len(X)
        step = _step(self.seen)
        taken = places // RUN % step == 0
        self._places, self._rows = [*self._places, places[taken]], [*self._rows, X[taken]]
        if len(self._places) > MOST_RUNS:
            kept = self.positions // RUN % step == 0
            self._places, self._rows = [self.positions[kept]], [self.rows[kept]]

    @property
    def positions(self) -> IndexArray:
        """Where the rows stand."""
        places = np.concatenate([np.empty(0, dtype=np.intp), *self._places])
        return np.asarray(places[places // RUN % _step(self.seen) == 0])

    @property
    def rows(self) -> Any:
        """The rows."""
        places = np.concatenate([np.empty(0, dtype=np.intp), *self._places])
        return np.asarray(np.concatenate(self._rows)[places // RUN % _step(self.seen) == 0])


def seconds_of(times: Any, rows: int) -> FloatArray:
    """Read the times of rows: dates, times, text that is one, or numbers, in any unit.

    Parameters
    ----------
    times : array-like of shape (rows,)
    rows : int

    Returns
    -------
    float array of shape (rows,)
        Seconds since the beginning of 1970, in UTC where there is a time zone; numbers as they are.

    Examples
    --------
    >>> seconds_of(["1970-01-01 00:01", "1970-01-02"], 2).tolist()
    [60.0, 86400.0]
    """
    if not isinstance(times, pa.ChunkedArray):
        times = np.asarray(times)
        times = times.astype("datetime64[us]") if times.dtype.kind == "M" else times
    cells = times if isinstance(times, pa.ChunkedArray) else pa.array(times)
    if len(cells) != rows:
        raise ReconformError(
            f"`times` must have one time per row: {rows:,} rows, {len(cells):,} times."
        )
    kind = cells.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        cells = _parsed(pc.utf8_trim_whitespace(cells))
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        cells = cells.cast(pa.timestamp("us"), safe=False)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise ReconformError(f"`times` must be dates, times or numbers; got {kind}.")
    if pa.types.is_timestamp(cells.type):
        cells = pc.divide(cells.cast(pa.int64()).cast(pa.float64()), 1e6)
    made: FloatArray = cells.cast(pa.float64()).to_numpy(zero_copy_only=False)
    lost = ~np.isfinite(made)
    if lost.any():
        raise ReconformError(
            f"`times`: {int(lost.sum()):,} rows have no time, the first is row "
            f"{int(lost.argmax()) + 1:,}; leave them out."
        )
    return made


def _parsed(cells: Any) -> Any:
    """Read text as times by the first way that reads all of it."""
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.float64()):
        try:
            return cells.cast(kind)
        except pa.ArrowInvalid:
            pass
    for day in DAYS:
        for clock in CLOCKS:
            read = pc.strptime(cells, format=day + clock, unit="us", error_is_null=True)
            if read.null_count == cells.null_count:
                return read
    raise ReconformError(
        f"`times`: {cells[0].as_py()!r} and the rest cannot all be read as times; "
        "write them as 2024-05-31 13:45:00, or as numbers."
    )


def order_of(
    X: FloatArray,
    *,
    scores: FloatArray | None = None,
    halve: bool = False,
    times: FloatArray | None = None,
    groups: IndexArray | None = None,
) -> Order:
    """Test whether rows that stand next to each other are alike.

    Parameters
    ----------
    X : float array of shape (n, d)
        In their order; NaN where a value is missing.
    scores : float array of shape (n,), optional
        Small = anomalous.
    halve : bool
        Look at the more normal half of the rows only, by `scores`, or else by the distance from
        the middle: bursts of anomalies say nothing of normal rows. It is selected by value, so
        that the test stays exact.
    times : float array of shape (n,), optional
        Seconds; the order is then that of time.
    groups : int array of shape (n,), optional
        Series: rows are compared within theirs.

    Returns
    -------
    Order

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> order_of(rng.normal(size=(400, 3))).alike
    False
    >>> order_of(np.cumsum(rng.normal(size=(400, 3)), axis=0)).alike
    True
    """
    codes = np.zeros(len(X), dtype=np.intp) if groups is None else np.asarray(groups)
    arranged = np.lexsort((codes,) if times is None else (times, codes))
    X, codes = np.asarray(X, dtype=np.float64)[arranged], codes[arranged]
    found = Order(len(X), timed=times is not None)
    if halve and len(X):
        ranked = _ranked(X, codes)
        worth = -(ranked**2).sum(axis=1) if scores is None else scores[arranged]
        normal = worth >= np.median(worth)
        X, codes = X[normal], codes[normal]
    if len(X) < LEAST_ROWS:
        return found
    best, series = found, _series_in(X)
    # Rows as they come, and then those of every series by themselves, together at one level.
    for column in [-1] if series < 0 else [-1, series]:
        if column >= 0:
            codes = np.unique(np.column_stack([codes, X[:, column]]), axis=0, return_inverse=True)[
                1
            ]
            together = np.argsort(codes, kind="stable")
            X, codes = X[together], codes[together]
        Z, columns = _features(X, codes)
        draws = (DRAWS + 1) * (1 if series < 0 else 2) - 1
        seen = _likeness(Z, np.arange(len(Z))[None])[0] if len(columns) else np.zeros(0)
        if len(columns) and _is_largest(seen, partial(_likeness, Z), codes, draws=draws):
            at = range(1, min(LAGS, len(Z) - 1) + 1)
            pairs = [np.einsum("ij,ij->j", Z[:-k], Z[k:]) / (len(Z) - k) for k in at]
            lag, most = np.unravel_index(int(np.argmax(pairs)), (len(pairs), len(columns)))
            here = replace(
                found,
                alike=True,
                correlation=round(float(min(pairs[lag][most], 1.0)), 3),
                column=int(columns[most]),
                lag=int(lag) + 1,
                series=column,
            )
            best = max(best, here, key=lambda one: (one.alike, one.correlation))
    return best


def _series_in(X: FloatArray) -> int:
    """The column that may tell series apart: few values, and most of those that have few; or -1.

    It is chosen by what rows hold, whatever their order, so that the test stays exact.
    """
    if X.shape[1] < 2:
        return -1
    ordered = np.sort(X, axis=0)
    values = 1 + (np.diff(ordered, axis=0) > 0).sum(axis=0)
    values[np.isnan(X).any(axis=0) | (values > len(X) // ROWS_PER_SERIES)] = 1
    best = int(values.argmax())
    return best if values[best] > 1 else -1


def calendar_of(times: FloatArray | None) -> dict[str, Any]:
    """Say from when to when rows were taken, and which periods could be units.

    Examples
    --------
    >>> calendar_of(1.7e9 + 1_800 * np.arange(48.0 * 60))["periods"]
    'day hour'
    """
    if times is None or not len(times) or not EPOCH[0] <= times.min() <= times.max() < EPOCH[1]:
        return {}
    counts = {period: len(np.unique(begun(times, period))) for period in PERIODS}
    usable = [one for one, count in counts.items() if FEWEST_UNITS <= count <= len(times) / 2]
    usable.sort(key=lambda one: counts[one] < ENOUGH_UNITS)
    span = {"first": float(times.min()), "last": float(times.max())}
    return {**span, "periods": " ".join(usable)}


def begun(times: FloatArray, period: str) -> AnyArray:
    """The period that every time, in seconds, lies in."""
    return np.floor(times).astype("datetime64[s]").astype(f"datetime64[{PERIODS[period]}]")


def unit_for(reference: Order, new: Order | None) -> str:
    """The period to judge as a unit: the best of which none is in the reference and new; or ''."""
    for period in reference.periods.split():
        if new is None or not new.last:
            return period
        ours, theirs = (begun(np.array([o.first, o.last]), period) for o in (reference, new))
        if ours[1] < theirs[0] or theirs[1] < ours[0]:
            return period
    return ""


def season_of(scores: FloatArray, times: FloatArray | None, *, halve: bool = False) -> str:
    """Say what of the calendar the scores of rows depend on: the hour, the weekday, or nothing.

    Parameters
    ----------
    scores : float array of shape (n,)
        Small = anomalous.
    times : float array of shape (n,), optional
        Seconds since the beginning of 1970, which was a Thursday.
    halve : bool
        As in `order_of`.

    Examples
    --------
    >>> hours = 1.7e9 + np.arange(336.0) * 3_600
    >>> season_of(np.random.default_rng(0).normal(size=336) + (hours / 3_600 % 24 < 8), hours)
    'hour of the day'
    """
    if times is None or not len(times) or not EPOCH[0] <= times.min() <= times.max() < EPOCH[1]:
        return ""
    used = np.isfinite(scores) & np.isfinite(times)
    if halve and used.any():
        used &= scores >= np.median(scores[used])
    places = np.flatnonzero(used)
    places = places[:: -(-len(places) // MOST_SCORES) or 1]
    if len(places) < LEAST_ROWS:
        return ""
    codes = np.zeros(len(places), dtype=np.intp)
    z = _ranked(scores[places][:, None], codes)[:, 0]
    for name, (unit, count) in CALENDAR.items():
        when = (times[places] // unit).astype(np.int64) % count
        rows = np.bincount(when, minlength=count)
        shares = (when[:, None] == np.flatnonzero(rows)) / np.sqrt(rows[rows > 0])
        if shares.shape[1] < 2 or rows.max() < 2 or not z.any():
            continue

        def spread(orders: IndexArray, shares: FloatArray = shares) -> FloatArray:
            sums: FloatArray = ((z[orders] @ shares) ** 2).sum(axis=1, keepdims=True)
            return sums

        # The two together have the level of one test.
        draws = len(CALENDAR) * (DRAWS + 1) - 1
        if _is_largest(spread(np.arange(len(z))[None])[0], spread, codes, draws=draws):
            return name
    return ""


def order_findings(
    reference: Order, new: InOrder | None, names: Sequence[str], units: str = ""
) -> list[Finding]:
    """Say what the order of rows shows: a question, or with a time that the assumption is broken.

    Both are tested apart; the new rows say no more where the reference says it already.

    Parameters
    ----------
    reference : Order
    new : InOrder, optional
    names : sequence of str
        Of the columns; may be empty.
    units : str
        What the rows are, if they are no rows, as in `Verdict`.
    """
    times = None if new is None else new.times
    timed = reference.timed or times is not None
    theirs = Order() if new is None or reference.alike else new.order
    period = unit_for(reference, replace(theirs, **calendar_of(times))) if timed else ""
    file = None if new is None else new.time_column
    column, enough = shlex.quote(file or ""), reference.rows >= ENOUGH_FOR_WINDOWS
    what = "units" if period else "windows" if enough and not units else "ranking"
    unit = shlex.quote(f"{file}:{period}") if period else column
    advice = ADVICE[what][file is not None].format(period, unit)
    for whose, order in (("reference", reference), ("new", theirs)):
        if not order.alike:
            continue
        name = [names[j] if names else str(j) for j in (order.column, order.series)]
        which = "the distance from the middle" if order.column < 0 else f"the column {name[0]!r}"
        one = f"one {whose} row" + (f" of the same {name[1]!r}" if order.series >= 0 else "")
        said = (
            f"from {one} to the {'next' if order.lag == 1 else f'one {order.lag} places later'}, "
            f"the rank correlation of {which} is {order.correlation:.2g}, the largest of "
            f"{DRAWS + 1} orders."
        )
        if timed:
            return [Finding("order", "broken", f"{NEIGHBOURS} {said}", advice)]
        by_time = "give `times` to `fit` and to `discover`, such as `times=range(len(X))`"
        if file is not None:
            by_time = f"say so: `reconform detect --time {column}`"
            if not enough:
                by_time = f"say so: `reconform detect --time {column} --window 1`"
        said = f"{QUESTION} {said[0].upper()}{said[1:]}"
        return [Finding("order", "doubtful", said, ANSWER.format(by_time))]
    for whose, order in (("reference", reference), ("new", theirs)):
        if order.season:
            said = f"How unusual {whose} rows look depends on the {order.season}."
            return [Finding("season", "doubtful", said, advice)]
    return []


def _ranked(X: FloatArray, codes: IndexArray) -> FloatArray:
    """Ranks within groups, of mean 0 and variance 1; ties share theirs, and NaN is the smallest."""
    ranks = rankdata(np.where(np.isnan(X), -np.inf, X), axis=0)
    if codes.any():
        ranks = rankdata(ranks + (codes * (len(X) + 1.0))[:, None], axis=0)
    sizes = np.maximum(np.bincount(codes), 1)[:, None]

    def mean(values: FloatArray) -> FloatArray:
        sums = np.zeros((len(sizes), X.shape[1]))
        np.add.at(sums, codes, values)
        return np.asarray((sums / sizes)[codes])

    centred = ranks - mean(ranks)
    scale = np.sqrt(mean(centred**2))
    made: FloatArray = np.divide(centred, scale, out=np.zeros_like(centred), where=scale > 0)
    return made


def _features(X: FloatArray, codes: IndexArray) -> tuple[FloatArray, IndexArray]:
    """What is looked at of rows, in ranks, and in which columns it stands; -1 for all together."""
    Z = _ranked(X, codes)
    columns = np.flatnonzero(Z.any(axis=0))
    apart = (Z**2).sum(axis=1)[:, None]
    more = [apart]
    if len(columns) > MOST_COLUMNS:
        signs = np.random.default_rng(0x0DE5).choice([-1.0, 1.0], size=(Z.shape[1], 4))
        more.append(Z @ signs)
        columns = columns[np.linspace(0, len(columns) - 1, MOST_COLUMNS).astype(int)]
    rest = _ranked(np.hstack(more), codes)
    rest = rest[:, rest.any(axis=0)]
    named = np.concatenate([columns, np.full(rest.shape[1], -1)])
    return np.hstack([Z[:, columns], rest]), named


def _likeness(Z: FloatArray, orders: IndexArray) -> FloatArray:
    """How alike rows are to those near them, in every order, by column: the most of a few."""
    n, rows = len(Z), np.ascontiguousarray(Z.T)[:, orders]
    pairs = [
        np.vecdot(rows[..., :-lag], rows[..., lag:]) / np.sqrt(n - lag)
        for lag in range(1, min(LAGS, n // 2) + 1)
    ]
    found: FloatArray = np.max(pairs, axis=0)
    for width in WIDTHS:
        blocks = n // width
        if blocks >= 4:
            parts = rows[..., : blocks * width].reshape(*rows.shape[:2], blocks, width)
            sums = ((parts @ np.ones(width)) ** 2).sum(axis=-1) / width
            # Cube roots of sums of squares are nearly normal, as the likeness of neighbours is.
            even = (np.cbrt(sums / blocks) - 1 + 2 / (9 * blocks)) / np.sqrt(2 / (9 * blocks))
            np.maximum(found, even, out=found)
    return np.asarray(found.T)


def _is_largest(
    seen: FloatArray,
    statistic: Callable[[IndexArray], FloatArray],
    codes: IndexArray,
    *,
    draws: int = DRAWS,
) -> bool:
    """Whether the largest of some statistics is larger than in all random orders within groups.

    It stops at the first that is as large, and then nearly always soon: the decision is the same.
    """
    random = np.random.default_rng(0x0DE4)
    done = 0
    while done < draws:
        step = min(max(8, 3 * done), draws - done, max(1, (1 << 17) // (len(codes) * seen.size)))
        orders = np.argsort(codes + random.random((step, len(codes))), axis=1)
        if (statistic(orders).max(axis=1) >= seen.max() - 1e-9 * abs(seen.max())).any():
            return False
        done += step
    return True
