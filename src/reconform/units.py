"""Units: rows of one run, one day, one charge, one patient are one thing, and judged as one.

Rows of a unit may depend on each other in any way. If units are exchangeable, so are rows of
features of units, and all that holds for rows holds for them: a unit becomes one row, of how many
rows it has and, for every column, level, spread and extremes, or how often each label occurs. Only
whole units are exchangeable: one that is in the reference and among the new ones is refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
from sklearn.utils.validation import _num_samples

from .arrays import AnyArray, BoolArray, FloatArray, IndexArray, ObjectArray, UInt64Array
from .assumption.order import PERIODS, begun, seconds_of
from .detectors.prepare import Prepare
from .errors import ReconformError, listed
from .frames import columns_of, frame_as_it_is, label_code, names_of, opened
from .grouping import label_of
from .tables import Feature
from .tables.uses import rows_of_frame

# Labels of a column that are counted by name; the others together.
MOST_LABELS = 20
# What the name of the first feature of a column of numbers ends in.
MEAN = " mean"
# Rows of a unit that are shown.
MOST_SHOWN = 3
# What a number of false windows says of events.
OF_EVENTS = "False events are at most as many: each has at least one false window."
# What finds more where windows are too few for a list.
ONE_ALARM = "Or allow one false alarm: `reconform detect --false-alarms 1`."
BY_TIME = re.compile(rf"(.+):({'|'.join(PERIODS)})")


@dataclass(frozen=True, eq=False)
class UnitFeatures:
    """How rows become features of their units, as the reference has it.

    Attributes
    ----------
    columns : tuple of Feature
        Of the rows; of labels those that are counted by name.
    missing : tuple of str
        Columns of which missing values are counted: those that miss some in the reference.
    centres, scales : float arrays
        The median and the spread of every column over all reference rows; of labels unused.
    keys : int array
        Digests of the names of the reference's units, in order.
    """

    # What one is called where all of them are spoken of.
    called: ClassVar[str] = "unit"

    columns: tuple[Feature, ...]
    missing: tuple[str, ...]
    centres: FloatArray = field(repr=False)
    scales: FloatArray = field(repr=False)
    keys: UInt64Array = field(repr=False)

    @classmethod
    def of(cls, columns: Sequence[Feature], X: FloatArray, names: Sequence[str]) -> UnitFeatures:
        """Look at the rows of a reference, and at the names of its units."""
        kept = []
        for j, feature in enumerate(columns):
            labels = feature.labels
            if labels is not None and len(labels) > MOST_LABELS:
                rows = [-int((X[:, j] == label_code(label)).sum()) for label in labels]
                most = np.argsort(rows, kind="stable")[:MOST_LABELS]
                labels = tuple(sorted(labels[k] for k in most))
            kept.append(Feature(feature.name, labels))
        gone = np.asarray(np.isnan(X).any(axis=0))
        low, mid, high = (_quantile(X, share) for share in (0.25, 0.5, 0.75))
        far = np.nanmax(np.abs(X - mid), axis=0, initial=0.0)
        scales = np.where(high > low, (high - low) / 1.349, np.where(far > 0, far, 1.0))
        return cls(
            tuple(kept),
            tuple(one.name for one, some in zip(columns, gone, strict=True) if some),
            mid,
            scales,
            np.sort(keys_of(names)),
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        found = ["rows"]
        for one in self.columns:
            if one.labels is None:
                found += [f"{one.name} {what}" for what in ("mean", "spread", "lowest", "highest")]
            else:
                found += [f"{one.name} = {label}" for label in (*one.labels, "others")]
            found += [f"{one.name} missing"] if one.name in self.missing else []
        return tuple(found)

    def features(self, X: FloatArray, codes: IndexArray, count: int) -> FloatArray:
        """Make one row per unit; the same numbers whatever the order of its rows.

        Parameters
        ----------
        X : float array of shape (n, d)
        codes : int array of shape (n,)
            The unit of every row, from 0 to `count` - 1; none is empty.
        count : int

        Returns
        -------
        float array of shape (count, len(names))
        """
        sizes = np.bincount(codes, minlength=count)
        made = [sizes.astype(np.float64)]
        for j, one in enumerate(self.columns):
            values = X[:, j]
            here = ~np.isnan(values)
            if one.labels is None:
                made += _summary(values[here], codes[here], count)
            else:
                known = [values == label_code(label) for label in one.labels]
                known.append(here & ~np.any(known, axis=0) if known else here)
                made += [np.bincount(codes[some], minlength=count).astype(float) for some in known]
            if one.name in self.missing:
                made.append(np.bincount(codes[~here], minlength=count).astype(float))
        return np.column_stack(made)

    def moved(self, rows: Any, features: FloatArray) -> UnitFeatures:
        """What is known of a reference that these rows have joined, of windows of time series."""
        raise ReconformError(
            "a reference moves with its rows or with windows of a time series; fit again, on old "
            "and new units together."
        )

    def refuse_known(self, names: Sequence[str]) -> None:
        """Refuse new units that are in the reference, too."""
        found = np.isin(keys_of(names), self.keys)
        if found.any():
            both = [str(name) for name, known in zip(names, found, strict=True) if known]
            are = "unit is" if len(both) == 1 else "units are"
            raise ReconformError(
                f"{len(both):,} {are} in the reference and among the new rows: {listed(both)}. A "
                "unit is judged as a whole; leave its rows out of one of the two."
            )


@dataclass(frozen=True, eq=False)
class UnitRows:
    """Rows, and the units that they belong to.

    Attributes
    ----------
    X : float array of shape (n, d)
        The rows, with codes of labels.
    codes : int array of shape (n,)
        The unit of every row.
    names : object array of shape (u,)
        Of the units, in the order in which they come first.
    units : UnitFeatures
    """

    X: FloatArray = field(repr=False)
    codes: IndexArray = field(repr=False)
    names: ObjectArray = field(repr=False)
    units: UnitFeatures

    @cached_property
    def features(self) -> FloatArray:
        """One row of features per unit."""
        return self.units.features(self.X, self.codes, len(self.names))

    @property
    def frame(self) -> Any:
        """The features as an Arrow table."""
        return pa.table(dict(zip(self.units.names, self.features.T, strict=True)))

    @cached_property
    def firsts(self) -> IndexArray:
        """The first row of every unit."""
        return np.unique(self.codes, return_index=True)[1]

    def one_each(self, values: Any, what: str) -> AnyArray | None:
        """Return what all rows of a unit share, such as its group; refuse what they do not."""
        if values is None:
            return None
        labels = np.asarray(values, dtype=object)
        if len(labels) != len(self.codes):
            raise ReconformError(
                f"`{what}` must have one label per row: {len(self.codes):,} rows, {len(labels):,} "
                "labels."
            )
        mine: AnyArray = labels[self.firsts]
        differs = labels != mine[self.codes]
        if differs.any():
            name = self.names[self.codes[int(differs.argmax())]]
            raise ReconformError(
                f"the rows of unit {str(name)!r} have several `{what}`; a unit has one."
            )
        return mine

    def begins(self, times: FloatArray | None) -> FloatArray | None:
        """When every unit begins."""
        if times is None:
            return None
        first = np.full(len(self.names), np.inf)
        np.minimum.at(first, self.codes, times)
        return first

    def events(self, mask: BoolArray, p_values: FloatArray) -> list[Any]:
        """Join flagged units that follow each other: only windows of a time series do."""
        return []

    def within(self, name: Any, most: int = MOST_SHOWN) -> list[dict[str, Any]]:
        """Say which rows of a unit stand out most against the rows of the reference.

        Returns
        -------
        list of dict
            ``row`` (its position, from 0), ``column``, ``value`` and ``strength``, in spreads of
            the reference. A description: no decision depends on it.
        """
        rows, units = np.flatnonzero(self.codes == self.place(name)), self.units
        numbers = [j for j, one in enumerate(units.columns) if one.labels is None]
        strength = (self.X[rows] - units.centres)[:, numbers] / units.scales[numbers]
        return self.standing_out(rows, strength, [units.columns[j] for j in numbers], most)

    def place(self, name: Any) -> int:
        """Find a unit by its name."""
        at = np.flatnonzero(self.names == str(name))
        if not len(at):
            called = self.units.called
            raise ReconformError(
                f"there is no {called} {str(name)!r}; there are {listed(self.names)}."
            )
        return int(at[0])

    def standing_out(
        self, rows: IndexArray, strength: FloatArray, columns: Sequence[Feature], most: int
    ) -> list[dict[str, Any]]:
        """Describe the rows that stand out most, by their most unusual column of some."""
        if not columns:
            return []
        size = np.nan_to_num(np.abs(strength))
        best, names = size.argmax(axis=1), [one.name for one in self.units.columns]
        shown = np.argsort(-size.max(axis=1), kind="stable")[:most]
        return [
            {
                "row": int(rows[k]),
                "column": columns[best[k]].name,
                "value": float(self.X[rows[k], names.index(columns[best[k]].name)]),
                "strength": round(float(strength[k, best[k]]), 2),
            }
            for k in shown.tolist()
            if size[k, best[k]] > 0
        ]


class CutsRows(Protocol):
    """What cuts rows into units by itself, such as `reconform.timeseries.Windows`."""

    def rows(self, X: Any, known: Any = None) -> UnitRows:
        """Read rows and cut them: of a reference, or new ones."""


def unit_rows(
    X: Any, units: Any, known: UnitFeatures | None = None, times: FloatArray | None = None
) -> UnitRows:
    """Read rows and the unit of each.

    Parameters
    ----------
    X : array-like or frame of shape (n, d)
    units : str or array-like of shape (n,)
        The column of a frame that names the unit, which is then no feature, or the names; or a
        period that `times` are cut into, such as ``"day"``.
    known : UnitFeatures, optional
        Of the reference; without, these are its rows.
    times : float array of shape (n,), optional
        Seconds.
    """
    if hasattr(units, "rows"):
        cuts: CutsRows = units
        return cuts.rows(X, known)
    X = frame_as_it_is(X)
    if isinstance(units, str):
        frame = opened(X)
        if frame is not None and units in frame.columns:
            X, units = frame.drop(units).to_native(), frame[units].to_list()
        elif units in PERIODS and times is not None:
            units = begun(times, units).astype(str)
        else:
            raise ReconformError(
                f"`units` names a column {units!r} that X does not have; give one of its columns, "
                f"one name per row, or {listed(PERIODS)} beside `times`."
            )
    codes, names = codes_of_units(units, _num_samples(X))
    columns = Prepare("knn").features_of(X) if known is None else known.columns
    rows = numbers_in(X, columns)
    made = UnitFeatures.of(columns, rows, names.tolist()) if known is None else known
    return UnitRows(rows, codes, names, made)


def numbers_in(X: Any, columns: Sequence[Feature]) -> FloatArray:
    """Rows as numbers and codes of labels."""
    cells = columns_of(X)
    if not cells:
        rows = np.asarray(X, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(columns):
            raise ReconformError(
                f"X must have {len(columns)} columns, as the reference; got shape {rows.shape}."
            )
        return rows
    gone = [one.column for one in columns if one.column not in (names_of(X) or ())]
    if gone:
        raise ReconformError(f"X lacks {listed(gone)} of the reference.")
    return rows_of_frame(X, columns)


def codes_of_units(units: Any, rows: int) -> tuple[IndexArray, ObjectArray]:
    """Number the units of rows in the order in which they come first; refuse a missing name.

    Examples
    --------
    >>> codes, names = codes_of_units(["b", "a", "b"], 3)
    >>> codes.tolist(), names.tolist()
    ([0, 1, 0], ['b', 'a'])
    """
    if not isinstance(units, pa.ChunkedArray):
        units = pa.chunked_array([pa.array(units, from_pandas=True)])
    if len(units) != rows:
        raise ReconformError(
            f"`units` must have one name per row: {rows:,} rows, {len(units):,} names."
        )
    coded = units.combine_chunks().dictionary_encode()
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    # 3, 3.0 and "3" are one unit, whichever way a table was read.
    named = [label_of(value) for value in coded.dictionary.to_pylist()]
    places: dict[str | None, int] = {}
    again = np.array([places.setdefault(name, len(places)) for name in named], dtype=np.intp)
    codes = np.asarray(coded.indices.fill_null(len(named)).to_numpy(zero_copy_only=False))
    lost = codes == len(named)
    if None in places:
        lost |= np.append(again, -1)[codes] == places[None]
    if lost.any():
        raise ReconformError(
            f"`units`: {int(lost.sum()):,} rows have no unit, the first is row "
            f"{int(lost.argmax()) + 1:,}; leave them out, or give them a unit."
        )
    names = np.array(list(places), dtype=object)
    return again[codes], names


def by_time(spec: str, columns: Sequence[str]) -> tuple[str, str] | None:
    """Read ``when:day`` as the column of times and the period that it is cut into.

    Examples
    --------
    >>> by_time("when:day", ["when", "x"]), by_time("run", ["run"])
    (('when', 'day'), None)
    """
    found = BY_TIME.fullmatch(spec)
    if spec in columns or found is None or found[1] not in columns:
        return None
    return found[1], found[2]


def periods(times: Any, rows: int, period: str) -> list[str]:
    """Name the day, hour, ... of every time.

    Examples
    --------
    >>> periods(["2024-05-31 13:45", "2024-06-01 00:10"], 2, "day")
    ['2024-05-31', '2024-06-01']
    """
    return [str(one) for one in begun(seconds_of(times, rows), period).astype(str)]


def keys_of(names: Sequence[str]) -> UInt64Array:
    """Digests of names of units, by which a model knows those of its reference."""
    digests = [hashlib.blake2b(str(name).encode(), digest_size=8).digest() for name in names]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def _summary(values: FloatArray, codes: IndexArray, count: int) -> list[FloatArray]:
    """Mean, spread, lowest and highest value of every unit; NaN where it has no value."""
    order = np.lexsort((values, codes))  # sums then do not depend on the order of rows
    values, codes = values[order], codes[order]
    sizes = np.bincount(codes, minlength=count)
    has = sizes > 0
    starts = (np.cumsum(sizes) - sizes)[has]
    found = np.full((4, count), np.nan)
    if len(values):
        mean = np.add.reduceat(values, starts) / sizes[has]
        # Rounding must not take a mean out of the range of its values.
        mean = np.clip(mean, values[starts], values[starts + sizes[has] - 1])
        apart = (values - np.repeat(mean, sizes[has])) ** 2
        found[0, has] = mean
        found[1, has] = np.sqrt(np.add.reduceat(apart, starts) / sizes[has])
        found[2, has] = values[starts]
        found[3, has] = values[starts + sizes[has] - 1]
    return list(found)


def _quantile(X: FloatArray, share: float) -> FloatArray:
    """A quantile of every column without its missing values; 0 where it has no other."""
    ordered, counts = np.sort(X, axis=0), (~np.isnan(X)).sum(axis=0)
    places = np.maximum((share * (counts - 1)).round().astype(np.intp), 0)
    found: FloatArray = np.nan_to_num(np.take_along_axis(ordered, places[None], axis=0)[0])
    return found
