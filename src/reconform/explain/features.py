"""Features of rows, column by column, and which values of a row are unusual.

A description of the row: no decision depends on it, and it is not the detector's reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from ..arrays import AnyArray, BoolArray, FloatArray
from ..frames import label_code
from ..tables import Feature

# A label that the reference does not have, where nobody knows how it is spelt.
UNKNOWN = "a label that the reference lacks"


@dataclass(frozen=True, eq=False)
class FeatureColumn:
    """One feature.

    Attributes
    ----------
    name : str
    values : array
        float64 if `numeric`; otherwise str, and None where missing.
    numeric : bool
    """

    name: str
    values: AnyArray
    numeric: bool

    @property
    def missing(self) -> BoolArray:
        """Where there is no value."""
        if self.numeric:
            return np.asarray(np.isnan(self.values))
        return np.array([value is None for value in self.values], dtype=bool)


Words = Callable[[int, str], str | None]


def labelled(
    X: FloatArray, features: Sequence[Feature], unlisted: Words | None = None
) -> tuple[FeatureColumn, ...]:
    """Write features as columns with labels instead of codes.

    Parameters
    ----------
    X : float array
    features : sequence of Feature
        Of its columns.
    unlisted : callable, optional
        From the position of a row and the name of a column to a label that the reference does not
        have.

    Examples
    --------
    >>> X = np.array([[0.5, label_code("red")], [0.7, np.nan]])
    >>> table = labelled(X, [Feature("flow"), Feature("colour", ("blue", "red"))])
    >>> {column.name: column.values.tolist() for column in table}
    {'flow': [0.5, 0.7], 'colour': ['red', None]}
    """
    columns = []
    for j, feature in enumerate(features):
        if feature.labels is None:
            columns.append(FeatureColumn(feature.name, X[:, j], True))
            continue
        known = {label_code(label): label for label in feature.labels}
        values = np.array([known.get(code) for code in X[:, j].tolist()], dtype=object)
        for i in np.flatnonzero(~np.isnan(X[:, j])).tolist():
            if values[i] is None:
                word = None if unlisted is None else unlisted(i, feature.name)
                values[i] = UNKNOWN if word is None else word
        columns.append(FeatureColumn(feature.name, values, False))
    return tuple(columns)


# Factors that make each measure of spread estimate a normal distribution's standard deviation.
MAD, IQR, MEAN_DEVIATION = 1.4826, 1 / 1.349, 1.2533

# A feature is mentioned from here on: about one normal value in 80 lies so far out.
LEAST_STRENGTH = 2.5
MOST_FEATURES = 3
# What never happens in the reference comes before all else.
NEVER = np.inf


@dataclass(frozen=True)
class Unusual:
    """One unusual feature of one row.

    Attributes
    ----------
    feature : int
        Which column.
    value : str
    strength : float
        Robust z for a number, signed; for a category or a missing value the z that is as rare;
        infinite for what the reference never has.
    note : str
        Said instead of the strength, where it is not a z.
    """

    feature: int
    value: str
    strength: float
    note: str = ""


def robust_scale(values: FloatArray) -> tuple[float, float]:
    """Median and spread: MAD, or where that is 0 the interquartile range, or the mean deviation.

    All are scaled to the standard deviation of normal data. A spread of 0 means constant.

    Examples
    --------
    >>> import numpy as np
    >>> median, spread = robust_scale(np.array([1.0, 2.0, 3.0, 4.0, 1000.0]))
    >>> median, round(spread, 4)
    (3.0, 1.4826)
    >>> robust_scale(np.array([5.0, 5.0]))
    (5.0, 0.0)
    """
    medians, spreads = robust_scales(values[None])
    return float(medians[0]), float(spreads[0])


def robust_scales(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Medians and spreads, as of `robust_scale`, of every row of an array."""
    medians, spreads = np.full(len(rows), np.nan), np.zeros(len(rows))
    known = np.isfinite(rows)
    whole = known.all(axis=1) & (rows.shape[1] > 0)
    for i in np.flatnonzero(known.any(axis=1) & ~whole).tolist():
        medians[i], spreads[i] = robust_scale(rows[i, known[i]])
    values = rows[whole]
    if not len(values):
        return medians, spreads
    with np.errstate(over="ignore", invalid="ignore"):  # numbers near the largest there are
        centres = np.median(values, axis=1)
        distances = np.abs(values - centres[:, None])
        low, high = np.quantile(values, [0.25, 0.75], axis=1)
        measures = [MAD * np.median(distances, axis=1), IQR * (high - low)]
        measures.append(MEAN_DEVIATION * distances.mean(axis=1))
        medians[whole] = centres
        spreads[whole] = np.select([measure > 0 for measure in measures], measures, 0.0)
    return medians, spreads


def unusual_features(
    rows: Sequence[FeatureColumn], reference: Sequence[FeatureColumn], *, most: int = MOST_FEATURES
) -> list[list[Unusual]]:
    """Name the unusual features of every row, the most unusual first, and no more than `most`.

    Examples
    --------
    >>> features = [Feature("flow"), Feature("site")]
    >>> reference = labelled(np.array([[1.0, 5], [2, 5], [3, 5], [4, 5]]), features)
    >>> rows = labelled(np.array([[2.0, 5], [40, 5], [3, 6]]), features)
    >>> found = unusual_features(rows, reference)
    >>> [[(u.feature, u.value, round(u.strength, 1)) for u in row] for row in found]
    [[], [(0, '40', 25.3)], [(1, '6', inf)]]
    """
    pairs = list(zip(rows, reference, strict=True))
    numeric = [j for j, (column, known) in enumerate(pairs) if column.numeric and known.numeric]
    judged = np.zeros((len(rows[0].values), len(pairs)))
    if numeric:
        judged[:, numeric] = _judge_numbers([pairs[j] for j in numeric])
    for j in sorted({*range(len(pairs))} - {*numeric}):
        judged[:, j] = _judge_texts(*pairs[j])
    strengths = np.abs(judged)
    # Stable, so that equally unusual features keep the order of the columns.
    top = np.argsort(-strengths, axis=1, kind="stable")[:, :most]
    return [
        [
            _unusual(int(j), rows[j], i, judged[i, j], reference[j])
            for j in top[i]
            if strengths[i, j] >= LEAST_STRENGTH
        ]
        for i in range(len(judged))
    ]


def _judge_numbers(pairs: Sequence[tuple[FeatureColumn, FeatureColumn]]) -> FloatArray:
    """How far numbers lie from those of the reference, in robust standard deviations."""
    cells = np.stack([column.values for column, _ in pairs], axis=1)
    values = np.stack([known.values for _, known in pairs])
    medians, spreads = robust_scales(values)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        z = (cells - medians) / spreads
    # A constant reference: 0 / 0 is the constant itself, anything else is infinitely far.
    z = np.where(np.isnan(z), np.where(np.isnan(medians), NEVER, 0.0), z)
    gaps = np.array([_rarity(share) for share in np.isnan(values).mean(axis=1).tolist()])
    return np.where(np.isnan(cells), gaps, z)


def _judge_texts(column: FeatureColumn, known: FeatureColumn) -> FloatArray:
    """How rare labels are in the reference."""
    values, counts = np.unique([str(v) for v in known.values], return_counts=True)
    shares = dict(zip(values.tolist(), (counts / len(known.values)).tolist(), strict=True))
    return np.array([_rarity(shares.get(str(cell), 0.0)) for cell in column.values])


def _rarity(share: float) -> float:
    """The z that is as rare, on both sides together."""
    return float(-ndtri(share / 2)) if share > 0 else NEVER


def never_seen(reference: FeatureColumn, *, missing: bool = False) -> str:
    """Say that the reference never has a value, and what it has if that is always the same.

    Examples
    --------
    >>> never_seen(FeatureColumn("fault", np.zeros(1200), True))
    'it was 0 in all 1,200 reference rows'
    """
    values = reference.values
    first = values[0] if len(values) else None
    if missing or first is None or first != first or not (values == first).all():
        return "never in the reference"
    shown = f"{first:.5g}" if reference.numeric else str(first)
    return f"it was {shown} in all {len(values):,} reference rows"


def _unusual(
    feature: int, column: FeatureColumn, row: int, strength: float, reference: FeatureColumn
) -> Unusual:
    cell = column.values[row]
    missing = cell is None or cell != cell
    value = "missing" if missing else f"{cell:.5g}" if column.numeric else str(cell)
    if np.isinf(strength):
        note = never_seen(reference, missing=bool(missing))
    elif missing or not (column.numeric and reference.numeric):
        note = f"{200 * float(ndtr(-strength)):.2g}% of the reference"
    else:
        note = ""
    return Unusual(feature, value, float(strength), note)
