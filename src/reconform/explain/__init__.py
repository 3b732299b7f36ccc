"""Why a row stands out: its unusual features, the nearest normal rows, what carries its score.

The reference rows that it compares with (`Known`) are all of them, or a sample.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..arrays import FloatArray, IndexArray
from ..assumption.closeness import in_units
from ..assumption.verdict import of_units
from ..detectors import NativeDetector, resolve_detector
from ..detectors.auto import name_of
from ..detectors.base import Attribution, by_replacing, in_shares
from ..detectors.prepared import category_columns
from ..display import html_table, text_table
from ..ensemble import Ensemble
from ..ensemble.choosing import FullChoice
from ..ensemble.grouped import GroupedEnsemble
from ..ensemble.split_choice import SplitChoice
from ..errors import ReconformError
from ..frames import columns_of, frame_as_it_is, mixed, package_of, read_column, stacked
from ..intake import preparing
from ..tables import Feature
from .features import FeatureColumn, Unusual, Words, labelled, robust_scale, unusual_features

IN_BRACKETS = "In brackets: robust standard deviations from the reference's median."
CAVEAT = "This describes the row; it does not prove a cause."

if TYPE_CHECKING:
    from ..detector import ConformalDetector


@dataclass(frozen=True)
class Judged:
    """What a list says of a row; see `Explanation`."""

    row: str
    flagged: bool | None
    p_value: float
    evidence: tuple[str, float] | None = None


@dataclass(frozen=True)
class SeenFeature:
    """One feature of the row, against the reference.

    Attributes
    ----------
    name, value : str
    typical : str
        The range of the reference from its 5% to its 95% quantile; of labels, the most common.
    place : str
        Where the value lies among those of the reference, in words.
    strength : float or None
        Robust standard deviations from the reference's median; None for labels and missing values.
    unusual : bool
        Whether the value is unusual by itself.
    share : float or None
        Of the score, as `Explanation.carried_by` says; None where that is not known.
    """

    name: str
    value: str
    typical: str
    place: str
    strength: float | None
    unusual: bool
    share: float | None


@dataclass(frozen=True)
class NormalRow:
    """One of the reference rows that are nearest to the row.

    Attributes
    ----------
    label : str or None
        Of the row in the reference; None where it is not known.
    distance : float
        In units of the reference's spread (the distance of the quartiles), over all features.
    differs : tuple of (str, str, str)
        The features in which it differs most: name, value of the row, value of the normal row.
    """

    label: str | None
    distance: float
    differs: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Explanation:
    """Why a row stands out, or does not.

    Attributes
    ----------
    row : str
        Its label, or its position.
    flagged : bool or None
        None for a row that was judged by itself.
    p_value : float
    evidence : tuple of (str, float) or None
        The q-value, ``("q", 0.03)``; ``("nominal q", 0.03)`` beside a certified list.
    detector : str
        The one that ranked the row; with ``"auto"`` the one that was chosen for it.
    features : tuple of SeenFeature
        Those that carry most of the score, and those that are unusual by themselves.
    carried_by : str
        What shares are shares of, in a sentence.
    nearest : tuple of NormalRow
        The nearest first.
    compared_with : str
        Which reference rows it was compared with, in a sentence.
    units : str
        What it is, if it is no row: "unit" or "window".

    Notes
    -----
    It is a description, not a theorem, and says nothing about causes: features that go together
    share what one of them may have done alone.
    """

    row: str
    flagged: bool | None
    p_value: float
    evidence: tuple[str, float] | None
    detector: str
    features: tuple[SeenFeature, ...]
    carried_by: str
    nearest: tuple[NormalRow, ...]
    compared_with: str
    units: str = field(default="", repr=False)

    @property
    def headline(self) -> str:
        """The row and the decision, in a line."""
        decision = {True: "flagged", False: "not flagged", None: "judged by itself"}[self.flagged]
        numbers = f"p = {self.p_value:.4g}"
        if self.evidence is not None:
            numbers += f", {self.evidence[0]} = {self.evidence[1]:.4g}"
        what = (self.units or "row").capitalize()
        return f"{what} {self.row}: {decision} ({numbers}), ranked by {self.detector}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What the numbers are, in sentences."""
        unusual = any(one.unusual for one in self.features)
        far = any(one.strength is not None for one in self.features)
        said = ("" if unusual else NOTHING_UNUSUAL, IN_BRACKETS if far else "", self.carried_by)
        last = of_units(f"{self.compared_with} {CAVEAT}", self.units or "row")
        return (*filter(None, said), last)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as what JSON can hold: an infinite number is None."""
        made: dict[str, Any] = _finite(asdict(self))
        made["evidence"] = None if self.evidence is None else dict([made["evidence"]])
        for one in made["nearest"]:
            keys = ("name", "here", "there")
            one["differs"] = [dict(zip(keys, cells, strict=True)) for cells in one["differs"]]
        return made

    def __str__(self) -> str:
        lines = [self.headline, ""]
        lines += text_table([FEATURE_HEAD, *map(feature_cells, self.features)])
        if self.nearest:
            what = self.units or "row"
            lines += ["", f"Nearest normal {what}s"]
            lines += text_table([(what, *NEAREST_HEAD[1:]), *map(nearest_cells, self.nearest)])
        return "\n".join([*lines, "", *self.notes])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return (
            f"<p><strong>{escape(self.headline)}</strong></p>"
            + html_table(FEATURE_HEAD, map(feature_cells, self.features))
            + (
                "<p>Nearest normal rows</p>"
                + html_table(NEAREST_HEAD, map(nearest_cells, self.nearest))
                if self.nearest
                else ""
            )
            + notes
        )


NOTHING_UNUSUAL = "No feature is unusual by itself; if anything, their combination is."
FEATURE_HEAD = ("feature", "value", "typical (5% to 95%)", "among the reference", "carries")
NEAREST_HEAD = ("row", "distance", "differs most in")


def feature_cells(one: SeenFeature) -> tuple[str, ...]:
    """Write a feature as the cells of a table.

    Examples
    --------
    >>> feature_cells(SeenFeature("flow", "41", "1.2 to 8.9", "above all 300",
    ...                           12.34, True, 0.713))
    ('flow', '41', '1.2 to 8.9', 'above all 300 (+12)', '71%')
    """
    far = "" if one.strength is None else f" ({one.strength:+.2g})"
    share = "" if one.share is None else f"{one.share:.0%}"
    return one.name, one.value, one.typical, one.place + far, share


def nearest_cells(one: NormalRow) -> tuple[str, ...]:
    """Write a normal row as the cells of a table."""
    differs = ", ".join(f"{name} {there} (here {here})" for name, here, there in one.differs)
    return one.label or "?", f"{one.distance:.3g}", differs or "nothing"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# A fitted detector keeps all its reference rows for explanations up to so many cells (16 MB).
MOST_CELLS = 2_000_000


@dataclass(frozen=True, eq=False)
class Known:
    """Reference rows, as the detector sees them.

    Attributes
    ----------
    rows : float array of shape (s, d), or FrameRows
    of : int
        Rows that the reference has in all.
    positions : int array of shape (s,), or None
        Which of them these are; None where that is not known, as in a model file.
    labels : sequence of length `of`, or None
        What to call all of them; by default their positions.
    """

    rows: Any
    of: int
    positions: IndexArray | None = None
    labels: Sequence[Any] | None = None

    def named(self, labels: Sequence[Any]) -> Known:
        """Return the same rows under other names: one for every row of the reference."""
        if len(labels) != self.of:
            raise ReconformError(
                f"`labels` must be one for every reference row: there are {self.of:,} rows, and "
                f"{len(labels):,} labels."
            )
        return replace(self, labels=labels)

    def label(self, i: int) -> str | None:
        """What to call row i; None where that is not known."""
        if self.positions is None:
            return None
        position = int(self.positions[i])
        return clean(str(position if self.labels is None else self.labels[position]))

    @property
    def sentence(self) -> str:
        """Say which rows these are."""
        if len(self.rows) == self.of:
            return f"Compared with all {self.of:,} reference rows."
        return (
            f"Compared with {len(self.rows):,} of the {self.of:,} reference rows, a sample: the "
            "others were not kept."
        )


QUANTILES = (0.05, 0.5, 0.95)
# The nearest normal rows that typical values are medians of, and those that are shown.
NEIGHBOURS, SHOWN = 5, 3
MOST_FEATURES, MOST_UNUSUAL, MOST_DIFFERENT, MOST_LABELS = 6, 4, 3, 3
# Features with a smaller share of the score, or that differ less, are not worth a line.
LEAST_SHARE, LEAST_DIFFERENCE = 0.05, 0.25
# One at a time, no more features than these are replaced, in rows of no more cells in all: those
# that differ most.
MOST_REPLACED, MOST_REPLACED_CELLS = 500, 200_000
LONGEST = 60

NOT_KNOWN = "Which features carry the score is not known here."
NO_FEATURE = (
    "No feature alone makes a difference to the score: setting any one to its median among the "
    "nearest normal rows does not raise it."
)
BATCH = " The other new rows mattered too; no share includes them."


class Near(NamedTuple):
    """The reference rows that are nearest to a row.

    Attributes
    ----------
    rows : int array of shape (k,)
    distances : float array of shape (k,)
    apart : float array of shape (k, d)
        How far they are apart, feature by feature.
    """

    rows: IndexArray
    distances: FloatArray
    apart: FloatArray


Cells = Sequence[FeatureColumn]


class BothSides(NamedTuple):
    """What is compared with what, worked out when the first row is to be explained.

    Attributes
    ----------
    rows : array of rows
        Those of the list.
    chosen : int array or None
        Which of several detectors ranked each of them.
    reference : float array
    normal : sequence of FeatureColumn
        The reference in words.
    ensemble : Ensemble or None
        What scores rows; None where every group has models of its own.
    candidates : list
        The detectors of a choice.
    """

    rows: Any
    chosen: IndexArray | None
    reference: FloatArray
    normal: Cells
    ensemble: Ensemble | None
    candidates: list[Any]


@dataclass(eq=False)
class Explainer:
    """Explains the rows of one list.

    Attributes
    ----------
    known : Known
        The reference rows.
    ensemble : Ensemble
    detector : NativeDetector or ForeignDetector
        What was fitted.
    features : tuple of Feature
    read : callable
        Returns the rows as the detector sees them; called when the first is to be explained.
    choose : callable, optional
        Returns for every one of these rows which of several detectors ranked it.
    positions : int array, optional
        Which rows of the list these are, in increasing order, if not all.
    unlisted : callable, optional
        As `labelled` wants it, for these rows.
    units : str
        What they are, if they are no rows.
    """

    known: Known
    ensemble: Ensemble
    detector: Any
    features: tuple[Feature, ...]
    read: Callable[[], Any]
    choose: Callable[[], IndexArray] | None = None
    positions: IndexArray | None = None
    unlisted: Words | None = None
    units: str = ""

    def place(self, position: int) -> int | None:
        """Say where a row of the list is among the rows that are there; None if it is not."""
        if self.positions is None:
            return position
        at = int(np.searchsorted(self.positions, position))
        here = at < len(self.positions) and self.positions[at] == position
        return at if here else None

    def explain(self, places: Sequence[int], judged: Sequence[Judged]) -> list[Explanation]:
        """Explain some of the rows.

        Parameters
        ----------
        places : sequence of int
            Which, as `place` says.
        judged : sequence of Judged
            What the list says of each.

        Returns
        -------
        list of Explanation
        """
        which = np.asarray(places, dtype=np.intp)
        rows = self._all.rows[which]
        cells = self._cells(which)
        found = unusual_features(cells, self._all.normal, most=len(self.features))
        return [
            self._one(int(at), rows[i : i + 1], cells, i, found[i], judged[i], near)
            for i, (at, near) in enumerate(zip(which, self._near(rows), strict=True))
        ]

    def unusual(self, positions: Sequence[int]) -> list[list[Unusual]]:
        """The most unusual features of rows of the list; none of rows that are not there."""
        places = [self.place(position) for position in positions]
        here = np.array([place for place in places if place is not None], dtype=np.intp)
        if not len(here):
            return [[] for _ in places]
        found = iter(unusual_features(self._cells(here), self._all.normal))
        return [[] if place is None else next(found) for place in places]

    @cached_property
    def _all(self) -> BothSides:
        """What is compared with what."""
        chosen = None if self.choose is None else self.choose()
        reference, candidates = np.asarray(self.known.rows), []
        ensemble: Ensemble | None = self.ensemble
        if isinstance(ensemble, GroupedEnsemble):  # rows are scored whatever their groups
            ensemble = ensemble.for_all()
        if isinstance(ensemble, FullChoice | SplitChoice):
            candidates = self.detector.resolved(isinstance(ensemble, FullChoice), self.known.of)
        normal = labelled(reference, self.features)
        return BothSides(self.read(), chosen, reference, normal, ensemble, candidates)

    def _cells(self, which: IndexArray) -> Cells:
        look_up, words = self.unlisted, None
        if look_up is not None:
            words = lambda i, name: look_up(int(which[i]), name)  # noqa: E731
        return labelled(np.asarray(self._all.rows[which]), self.features, words)

    def _one(
        self,
        at: int,
        row: Any,
        cells: Cells,
        i: int,
        unusual: list[Unusual],
        judged: Judged,
        near: Near,
    ) -> Explanation:
        chosen = self._all.chosen
        k = 0 if chosen is None else int(chosen[at])
        attribution, name, note = self._attribution(row, near, k, at)
        shares = None if attribution is None else attribution.shares
        if attribution is None:
            carried = NOT_KNOWN
        elif not attribution.shares.any():
            carried = NO_FEATURE
        else:
            carried = f"Carries: shares of {attribution.how}.{note}"
        nearest = []
        for normal, distance, apart in zip(
            near.rows[:SHOWN].tolist(), near.distances.tolist(), near.apart, strict=False
        ):
            order = np.argsort(-apart, kind="stable")[:MOST_DIFFERENT]
            differs = tuple(
                (clean(cells[j].name), _word(cells[j], i), _word(self._all.normal[j], normal))
                for j in order
                if apart[j] >= LEAST_DIFFERENCE
            )
            nearest.append(NormalRow(self.known.label(normal), distance, differs))
        return Explanation(
            row=clean(judged.row),
            flagged=judged.flagged,
            p_value=judged.p_value,
            evidence=judged.evidence,
            detector=name,
            features=tuple(self._features(cells, i, unusual, shares, near.apart[0])),
            carried_by=carried,
            nearest=tuple(nearest),
            compared_with=self.known.sentence,
            units=self.units,
        )

    # --- the nearest normal rows -----------------------------------------------------------------

    def _near(self, rows: Any) -> list[Near]:
        """For every row the nearest reference rows."""
        X, reference = np.asarray(rows), self._all.reference
        categories = [j for j, feature in enumerate(self.features) if feature.is_category]
        numbers = [j for j in range(X.shape[1]) if j not in set(categories)]
        known, new = in_units(reference[:, numbers], X[:, numbers])
        labels = reference[:, categories], X[:, categories]
        found = []
        for x, codes in zip(new, labels[1], strict=True):
            apart = np.empty(reference.shape)
            apart[:, numbers] = np.abs(known - x)
            same = (labels[0] == codes) | (np.isnan(labels[0]) & np.isnan(codes))
            apart[:, categories] = ~same
            squares = (apart**2).sum(axis=1)
            near = np.argsort(squares, kind="stable")[:NEIGHBOURS]
            found.append(Near(near, np.sqrt(squares[near]), apart[near]))
        return found

    # --- what carries the score ------------------------------------------------------------------

    def _attribution(
        self, row: Any, near: Near, k: int, at: int
    ) -> tuple[Attribution | None, str, str]:
        """Shares of the features, the detector that they are about, and what is left out."""
        ensemble, detector = self._all.ensemble, self.detector
        if ensemble is None:  # a detector for each group, and the row does not say which
            return None, name_of(detector), ""
        if ensemble.ranked_by is not None:
            return None, ensemble.ranked_by, ""
        if isinstance(ensemble, FullChoice | SplitChoice):
            name = ensemble.names[k]
            if k >= len(ensemble.fitted):  # a classifier that learned from the batch
                return None, name, ""
            ensemble, detector = ensemble.fitted[k], self._all.candidates[k]
        else:
            name = name_of(detector)
        note = "" if ensemble.ranks_rows == "alone" else BATCH
        found = None
        if note and self.positions is None:  # all rows of the list are there
            learned = ensemble.carried(np.asarray(self._all.rows), at)
            if learned is not None:
                return in_shares(np.maximum(learned[0], 0.0), learned[1]), name, ""
        if isinstance(detector, NativeDetector):
            found = detector.attribution(np.asarray(row)[0], self._all.reference)
        if found is None:
            found = self._by_replacing(ensemble, row, near.rows, near.apart)
        return found, name, note

    def _by_replacing(
        self, ensemble: Ensemble, row: Any, near: IndexArray, differences: FloatArray
    ) -> Attribution | None:
        """Replace one feature at a time by what is typical among the nearest normal rows."""
        if not isinstance(self.known.rows, type(row)):
            return None  # a model file keeps no frames
        d = len(self.features)
        together = stacked(row, self.known.rows[near])
        typical = self._typical(np.asarray(self.known.rows[near]))
        order = np.argsort(-np.median(differences, axis=0), kind="stable")
        replaced = order[: min(MOST_REPLACED, max(MOST_FEATURES, MOST_REPLACED_CELLS // d))]
        picks = np.zeros((1 + len(replaced), d), dtype=np.intp)
        picks[1 + np.arange(len(replaced)), replaced] = 1 + typical[replaced]
        scores = ensemble.raw_scores(mixed(together, picks))
        every = np.full(d, scores[0])
        every[replaced] = scores[1:]
        return by_replacing(float(scores[0]), every)

    def _typical(self, near: FloatArray) -> IndexArray:
        """For every feature, which of the nearest rows has the median; of labels, the commonest."""
        order = np.argsort(near, axis=0, kind="stable")  # missing numbers last
        present = (~np.isnan(near)).sum(axis=0)
        middle = np.maximum(present - 1, 0) // 2
        typical = order[middle, np.arange(near.shape[1])]
        for j in (j for j, feature in enumerate(self.features) if feature.is_category):
            codes = np.where(np.isnan(near[:, j]), np.inf, near[:, j]).tolist()
            typical[j] = codes.index(Counter(codes).most_common(1)[0][0])
        return np.asarray(typical)

    # --- features --------------------------------------------------------------------------------

    def _features(
        self,
        cells: Cells,
        i: int,
        unusual: list[Unusual],
        shares: FloatArray | None,
        apart: FloatArray,
    ) -> list[SeenFeature]:
        """Those that carry the score, those that are unusual; else the most different one."""
        strength = {one.feature for one in unusual}
        chosen: list[int] = []
        if shares is not None and shares.any():
            order = np.argsort(-shares, kind="stable")[:MOST_FEATURES]
            chosen = [int(j) for j in order if shares[j] >= LEAST_SHARE][:MOST_FEATURES]
        room = max(1, MOST_FEATURES - len(chosen))
        more = [one.feature for one in unusual[:MOST_UNUSUAL] if one.feature not in chosen]
        chosen += more[:room]
        if not chosen:
            chosen = [int(np.argmax(apart))]
        seen = []
        for j in chosen:
            column, known = cells[j], self._all.normal[j]
            numeric = column.numeric and known.numeric
            far = None
            if column.missing[i]:
                place = f"missing in {_percent(float(known.missing.mean()))}"
            elif numeric:
                place, far = _among(float(column.values[i]), known.values)
            else:
                place = _how_common(str(column.values[i]), known)
            seen.append(
                SeenFeature(
                    name=clean(column.name),
                    value=_word(column, i),
                    typical=_usual(known.values) if numeric else _common(known),
                    place=place,
                    strength=far,
                    unusual=j in strength,
                    share=None if shares is None else float(shares[j]),
                )
            )
        return seen


def clean(text: str) -> str:
    r"""Make a text fit for a line: what a terminal might obey is replaced, and what is long cut.

    Examples
    --------
    >>> clean("pump \x1b[2J 7")
    'pump \ufffd[2J 7'
    """
    shown = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def _word(column: FeatureColumn, i: int) -> str:
    value = column.values[i]
    if value is None or value != value:
        return "missing"
    return f"{value:.4g}" if column.numeric else clean(str(value))


def _usual(values: FloatArray) -> str:
    """Where most numbers of the reference lie."""
    present = values[~np.isnan(values)]
    if not len(present):
        return "always missing"
    with np.errstate(over="ignore", invalid="ignore"):
        low, middle, high = np.quantile(present, QUANTILES).tolist()
    return f"always {low:.4g}" if low == high else f"{low:.4g} to {high:.4g}, median {middle:.4g}"


def _among(value: float, values: FloatArray) -> tuple[str, float | None]:
    """Where a number lies among those of the reference, and how far from their median."""
    present = values[~np.isnan(values)]
    if not len(present):
        return "never in the reference", None
    median, spread = robust_scale(values)
    side, beyond = ("above", present < value) if value >= median else ("below", present > value)
    count = int(beyond.sum())
    where = (
        f"{side} all {len(present):,}"
        if count == len(present)
        else (f"{side} {_percent(count / len(present))}")
    )
    if value == median:
        where = "the median"
    with np.errstate(over="ignore"):
        far = (value - median) / spread if spread > 0 else None
    return where, far


def _percent(share: float) -> str:
    """Write a share in percent; what is not all and not none is not rounded to it.

    Examples
    --------
    >>> _percent(0.123), _percent(0.9994), _percent(0.0001), _percent(1.0)
    ('12%', '99.9%', '0.1%', '100%')
    """
    if share in (0.0, 1.0) or 0.01 <= share <= 0.99:
        return f"{share:.0%}"
    return f"{min(max(share, 0.001), 0.999):.1%}"


def _common(known: FeatureColumn) -> str:
    """The most common labels of the reference."""
    counts = Counter("missing" if v is None else clean(str(v)) for v in known.values)
    several = counts.most_common(MOST_LABELS)
    return ", ".join(f"{label} {_percent(n / len(known.values))}" for label, n in several)


def _how_common(value: str, known: FeatureColumn) -> str:
    share = float(np.mean([str(one) == value for one in known.values]))
    return f"in {_percent(share)} of rows" if share else "never in the reference"


def explainer_for(
    cad: ConformalDetector,
    read: Callable[[], Any],
    *,
    choose: Callable[[], IndexArray] | None = None,
    positions: IndexArray | None = None,
    features: Sequence[Feature] | None = None,
    unlisted: Words | None = None,
) -> Explainer | None:
    """Make what explains rows that a detector has judged.

    Parameters
    ----------
    cad : ConformalDetector
    read, choose, positions, unlisted
        As in `Explainer`.
    features : sequence of Feature, optional
        The columns, as a reader of files knows them.

    Returns
    -------
    Explainer or None
        None where no reference rows are kept.
    """
    known = cad.known_rows
    if known is None:
        return None
    detector = cad.detector
    prepare = preparing(detector, None, cad.state_.intake)
    if prepare is not None:
        detector = prepare.for_features(cad.features)
    resolved = resolve_detector(detector, cad.larger_is, refit=not cad.plan_.row.frozen)
    columns: tuple[Feature, ...] = tuple(features or ())
    columns = columns or getattr(cad.state_.intake, "columns", ())
    if not columns:
        names = cad.names or [f"feature {j}" for j in range(cad.n_features_in_)]
        labels = set(category_columns(cad.detector))
        columns = tuple(Feature(name, () if j in labels else None) for j, name in enumerate(names))
    chosen = choose if cad.ensemble_.candidates else None
    units = "" if cad.state_.units is None else cad.state_.units.called
    detectors = known, cad.ensemble_, resolved, columns
    return Explainer(*detectors, read, chosen, positions, unlisted, units)


def label_in(X: Any, i: int, name: str) -> str | None:
    """Look up the label of a row in a frame; None for an array, which has none."""
    frame = frame_as_it_is(X)
    if package_of(frame) is None:
        return None
    cells = {str(column): cells for column, cells in columns_of(frame).items()}[name]
    return next(iter(read_column(cells[i : i + 1]).words), None)


NO_REFERENCE = (
    "explanations compare a row with the reference rows, and this model was saved without them; "
    "explain with the detector as it was fitted."
)
