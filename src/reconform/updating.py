"""Updates: what marks, and more normal rows, change in a detector, and what is then still proven.

Rows that a person confirmed as anomalies shape later scores and never calibrate. Rows of a random
sample, drawn before anything was judged, join the reference if they were marked normal, flagged or
not: these are new normal rows like any others. Of other rows the score has a say in who is looked
at, and so whoever joins or leaves by a mark makes the promise a measured one; a model remembers it.
"""

from __future__ import annotations

import copy
import hashlib
import numbers
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from sklearn.base import clone

from .arrays import BoolArray, UInt64Array
from .content import Contents
from .detectors.prepare import Prepare
from .ensemble import Ensemble, RepeatedSplit
from .ensemble.batch import LearnedScores, Pooled
from .ensemble.grouped import GroupedEnsemble, WithAnomalies
from .errors import ReconformError, ReferenceWarning, warn_once
from .fitter import guarantee_of_fit
from .frames import stacked
from .randomness import mix_array
from .units import UnitRows

if TYPE_CHECKING:
    from .detector import ConformalDetector

Fitted = TypeVar("Fitted", bound="ConformalDetector")

MARKS = ("real", "false", "unsure", "")
# What the mark files of a report have; `flagged` and `sample` are yes or nothing.
MARK_COLUMNS = ("batch", "file", "row", "id", "flagged", "sample", "mark", "comment")
# What people write besides: the second word of each line is what it means.
_MEANT = {
    **dict.fromkeys(("real", "yes", "y", "1", "1.0", "true", "x", "anomaly"), "real"),
    **dict.fromkeys(("false", "false alarm", "no", "n", "0", "0.0", "normal"), "false"),
    **dict.fromkeys(("unsure", "?", "maybe"), "unsure"),
    **dict.fromkeys(("", "nan", "none"), ""),
}


def marks_of(said: Sequence[Any]) -> Any:
    """Read marks as people write them.

    Examples
    --------
    >>> marks_of(["real", "False alarm", None, True, "?"]).tolist()
    ['real', 'false', '', 'real', 'unsure']
    """
    plain = ["" if one is None else str(one).strip().lower() for one in said]
    for one in plain:
        if one not in _MEANT:
            raise ReconformError(
                f"a mark must be real, false, unsure or nothing; got {one[:40]!r}."
            )
    return np.array([_MEANT[one] for one in plain], dtype=object)


@dataclass(frozen=True, eq=False)
class Looked:
    """Rows that a person looked at, as the detector sees them.

    Attributes
    ----------
    X : float array of shape (k, d)
    marks : array of str
        One of `MARKS` for every row.
    sampled : bool array of shape (k,)
        Whether the row is one of a random sample, drawn before anything was judged.
    keys : uint64 array of shape (k,)
        Which row of which batch it is, see `row_keys`.
    """

    X: Any
    marks: Any
    sampled: BoolArray
    keys: UInt64Array

    @classmethod
    def merged(cls, several: Sequence[Looked]) -> Looked | None:
        """All rows of several; those that come a second time are left out."""
        if not several:
            return None
        X = several[0].X
        for one in several[1:]:
            X = stacked(X, one.X)
        names = ("marks", "sampled", "keys")
        marks, sampled, keys = (np.concatenate([getattr(o, n) for o in several]) for n in names)
        first = np.zeros(len(keys), dtype=bool)
        first[np.unique(keys, return_index=True)[1]] = True
        first |= keys == 0
        return cls(X[first], marks[first], sampled[first], keys[first])


@dataclass(frozen=True)
class Update:
    """What one update changed.

    Attributes
    ----------
    parent : str
        The calibration of the detector that was updated, by its fingerprint.
    real : int
        Known anomalies that were added; of these `drawn` were found in a random sample.
    drawn : int
    unused : int
        Confirmed anomalies that shape nothing: the detector knows no use for them, or they have
        the features of a reference row.
    sampled : int
        Rows of a random sample that joined the reference.
    unmarked : int
        Rows of these samples that nobody marked, or that nobody was sure about.
    false : int
        Flagged rows that joined it, since they were false alarms.
    normal : int
        Other rows that joined it.
    left_out : int
        Rows that did not join since they were marked as real.
    forgotten : int
        The oldest rows, which left it.
    reference : int
        Rows of the reference after that.

    Examples
    --------
    >>> print(Update("", real=23, sampled=48, unmarked=2, reference=1048))
    23 known anomalies were added; 48 rows of the random sample joined the reference (2 of it are
    not marked); the reference has 1,048 rows now.
    """

    parent: str
    real: int = 0
    drawn: int = 0
    unused: int = 0
    sampled: int = 0
    unmarked: int = 0
    false: int = 0
    normal: int = 0
    left_out: int = 0
    forgotten: int = 0
    reference: int = 0

    def __str__(self) -> str:
        unmarked = f" ({self.unmarked:,} of it are not marked)" if self.unmarked else ""
        counted = (
            (self.real, "known {} {} added", "anomaly", "anomalies"),
            (self.unused, "confirmed {} {} of no use to this detector", "anomaly", "anomalies"),
            (
                self.sampled,
                "{} of the random sample joined the reference" + unmarked,
                "row",
                "rows",
            ),
            (self.false, "flagged {} that {} false joined it", "row", "rows"),
            (self.normal, "more normal {} joined it", "row", "rows"),
            (self.left_out, "{} marked as real did not join it", "row", "rows"),
            (self.forgotten, "of the oldest {} left it", "row", "rows"),
        )
        said = [
            f"{n:,} " + text.format(one if n == 1 else many, "was" if n == 1 else "were")
            for n, text, one, many in counted
            if n
        ]
        said = said or ["Nothing was added"]
        return f"{'; '.join(said)}; the reference has {self.reference:,} rows now."

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


def reasons(updates: Sequence[Update]) -> list[tuple[str, str]]:
    """Say what updates did that no theorem allows, and what would have to hold for one.

    Examples
    --------
    >>> reasons([Update("", real=3, drawn=1, false=2)])[0][0]
    '2 known anomalies were marked on lists by this reference'
    """
    met = sum(one.real - one.drawn for one in updates)
    unmarked = sum(one.unmarked for one in updates if one.sampled)
    false = sum(one.false for one in updates)
    told = (
        (
            met,
            "known {} marked on lists by this reference",
            ("anomaly was", "anomalies were"),
            "the known anomalies were independent of it",
        ),
        (
            false,
            "flagged {} the reference, as false alarms",
            ("row joined", "rows joined"),
            "who was flagged had been drawn at random",
        ),
        (
            unmarked,
            "{} not marked",
            ("row of the random sample was", "rows of the random sample were"),
            "that had nothing to do with what these rows are",
        ),
    )
    return [
        (f"{count:,} {text.format(forms[count > 1])}", needed)
        for count, text, forms, needed in told
        if count
    ]


# --- which row is which ---


def row_keys(
    digests: UInt64Array, labels: Sequence[Any] | None, *, whole: bool = True
) -> UInt64Array:
    """Say which row of which batch every row is: by its label and content, or by the batch.

    Rows of one content are other rows if their labels are, and if they came in another batch. A
    row without a label, in a batch of which the rest is not here (`whole` is False), has none: 0.
    """
    if labels is not None:
        each = (hashlib.blake2b(str(label).encode("utf-8", "replace"), digest_size=8).digest()
                for label in labels)  # fmt: skip
        own = np.frombuffer(b"".join(each), dtype="<u8").astype(np.uint64)
        return mix_array(digests ^ own)
    if not whole:
        return np.zeros(len(digests), dtype=np.uint64)
    return mix_array(digests ^ mix_array(digests.sum(dtype=np.uint64)[None]))


def apart_from(cad: Fitted, digests: UInt64Array, labels: Sequence[Any] | None) -> Fitted:
    """Return a detector as it is for this batch: without known anomalies that are rows of it.

    Rows that were marked in a batch would vouch for themselves if it were judged again. `digests`
    are those of all rows of the batch (`reconform.content`).
    """
    origins = cad.state_.origins
    if origins is None or not len(origins):
        return cad
    here = row_keys(digests, None)
    if labels is not None:
        here = np.concatenate([here, row_keys(digests, labels)])
    stay = ~np.isin(origins, here)
    if stay.all():
        return cad
    count = int((~stay).sum())
    rows = "1 known anomaly was" if count == 1 else f"{count:,} known anomalies were"
    warn_once(
        None, "", f"{rows} marked in this very batch, and set aside for it.", ReferenceWarning
    )
    apart = copy.copy(cad)
    apart.ensemble_ = _with(cad.ensemble_, stay)
    apart.state_ = replace(cad.state_, origins=origins[stay])
    return apart


def _with(ensemble: Ensemble, stay: BoolArray) -> Ensemble:
    """An ensemble beside which only some of the known anomalies stand."""
    if isinstance(ensemble, RepeatedSplit):
        return RepeatedSplit([_with(one, stay) for one in ensemble.splits])
    if isinstance(ensemble, LearnedScores):
        left = ensemble.anomalies[stay] if stay.any() and ensemble.anomalies is not None else None
        return replace(ensemble, anomalies=left)
    assert isinstance(ensemble, WithAnomalies)
    return replace(ensemble, anomalies=ensemble.anomalies[stay]) if stay.any() else ensemble.inner


def _uses_anomalies(ensemble: Ensemble) -> bool:
    if isinstance(ensemble, RepeatedSplit):
        return _uses_anomalies(ensemble.splits[0])
    if isinstance(ensemble, GroupedEnsemble | Pooled):
        return False
    return isinstance(ensemble, LearnedScores) or ensemble.ranks_rows != "alone"


# --- the update ---


def reference_of(cad: ConformalDetector) -> Any:
    """All rows of a reference, in their order; None where a model does not have them."""
    kept = cad.state_
    if kept.reference is not None or kept.rows is not None:
        return kept.rows if kept.reference is None else kept.reference
    known = kept.known
    return known.rows if known is not None and len(known.rows) == cad.plan_.n else None


def updated(
    cad: Fitted,
    looked: Looked | None = None,
    *,
    normal: Any = None,
    left_out: int = 0,
    add_false: bool = False,
    keep: int | None = None,
    reference: Any = None,
) -> Fitted:
    """Fit a detector again, by marks and more rows; all rows as the detector sees them.

    `reference` are its rows, where the model does not keep them; the others are parameters of
    `ConformalDetector.update`.
    """
    known: Any = cad.ensemble_.anomalies
    rows = _reference(cad, reference)
    before = 0 if known is None else len(known)
    origins = cad.state_.origins
    origins = np.zeros(before, dtype=np.uint64) if origins is None else origins
    joined = _NONE if cad.state_.joined is None else cad.state_.joined
    drawn, counted = np.zeros(before, dtype=bool), {"left_out": left_out}
    if looked is not None:
        fresh = (looked.keys == 0) | ~np.isin(looked.keys, np.concatenate([origins, joined]))
        real, false = (fresh & (looked.marks == mark) for mark in ("real", "false"))
        joins, open_ = false & (looked.sampled | add_false), np.isin(looked.marks, ("unsure", ""))
        rows = stacked(rows, looked.X[joins]) if joins.any() else rows
        known = looked.X[real] if known is None else stacked(known, looked.X[real])
        joined = np.concatenate([joined, looked.keys[joins]])
        origins = np.concatenate([origins, looked.keys[real]])
        drawn = np.concatenate([drawn, looked.sampled[real]])
        counted["sampled"] = int((joins & looked.sampled).sum())
        counted["false"] = int((joins & ~looked.sampled).sum())
        counted["unmarked"] = int((looked.sampled & open_).sum())
    if normal is not None and len(normal):
        rows, counted["normal"] = stacked(rows, normal), len(normal)
    if keep is not None and len(rows) > keep:
        counted["forgotten"], rows = len(rows) - keep, rows[len(rows) - keep :]
    new = np.arange(len(origins)) >= before
    stay = np.zeros(len(origins), dtype=bool)
    if len(origins) and _uses_anomalies(cad.ensemble_):
        stay = _elsewhere(known, rows)
    counted["real"] = int((stay & new).sum())
    counted["drawn"] = int((stay & new & drawn).sum())
    counted["unused"] = int((~stay & new).sum())
    left = cad.left_out_ + left_out
    again = _fitted_again(cad, rows, known[stay] if stay.any() else None, left)
    state, parent = again.state_, cad.calibration_.fingerprint
    state.updates = (*cad.state_.updates, Update(parent, reference=len(rows), **counted))
    state.origins, state.joined = origins[stay], joined
    state.rows = None if state.reference is not None else rows
    again.guarantee_ = guarantee_of_fit(again)
    return again


_NONE = np.empty(0, dtype=np.uint64)


def _reference(cad: ConformalDetector, given: Any) -> Any:
    """The rows to begin with; refuse a detector that cannot be fitted again."""
    if cad.plan_.row.frozen:
        raise ReconformError(
            "method='prefit' has a model that is not fitted again; calibrate it on all normal rows "
            "that you have: fit(X)."
        )
    if cad.grouping_ is not None or cad.state_.units is not None:
        raise ReconformError(
            "an update does not know the groups or units of rows; fit again, on old and new rows "
            "together."
        )
    rows = reference_of(cad) if given is None else given
    if rows is None:
        raise ReconformError(
            "this model does not keep the rows of its reference; give them by `reference`."
        )
    return rows


def moved(cad: Fitted, rows: UnitRows, keep: int, real: Sequence[str] = ()) -> Fitted:
    """Let windows of new rows join a reference of windows, and its oldest leave it.

    Windows that a person confirmed as `real` do not join, by their names. Never leave out all that
    were flagged: what remains would be more normal than the rows to come.
    """
    units, before = cad.state_.units, cad.state_.rows
    assert units is not None
    if before is None:
        raise ReconformError(
            "a reference moves with its rows or with windows of a time series; fit again, on old "
            "and new units together."
        )
    stay = ~np.isin(rows.names.astype(str), [str(name) for name in real])
    features = np.vstack([np.asarray(before), rows.features[stay]])
    forgotten = max(0, len(features) - keep)
    features = features[forgotten:]
    again: Fitted = clone(cad)
    if not isinstance(cad.random_state, numbers.Integral):
        again.set_params(random_state=cad.state_.tie_key)
    frame = pa.table(dict(zip(units.names, features.T, strict=True)))
    again.fit(frame, units=units.moved(rows, features), times=np.arange(float(len(features))))
    counted = {"normal": int(stay.sum()), "left_out": int((~stay).sum()), "forgotten": forgotten}
    update = Update(cad.calibration_.fingerprint, reference=len(features), **counted)
    again.state_.updates = (*cad.state_.updates, update)
    again.guarantee_ = guarantee_of_fit(again)
    return again


def _elsewhere(anomalies: Any, reference: Any) -> BoolArray:
    """Which anomalies are no copies of reference rows, from which nothing can tell these."""
    contents = Contents.of(np.vstack([np.asarray(reference), np.asarray(anomalies)]))
    n = len(reference)
    return ~np.isin(contents.group[n:], contents.group[:n])


def _fitted_again(cad: Fitted, rows: Any, anomalies: Any, left_out: int) -> Fitted:
    """Fit a detector like this one to rows that are read already."""
    again: Fitted = clone(cad)
    if not isinstance(cad.random_state, numbers.Integral):
        again.set_params(random_state=cad.state_.tie_key)
    if isinstance(cad.detector, Prepare):  # the rows are coded already
        again.set_params(detector=cad.detector.for_features(cad.features))
    again.fit(
        getattr(rows, "frame", rows),
        anomalies=getattr(anomalies, "frame", anomalies),
        left_out=left_out,
    )
    again.detector, again.state_.intake = cad.detector, cad.state_.intake
    if cad.names:
        again.feature_names_in_ = cad.feature_names_in_
    return again
