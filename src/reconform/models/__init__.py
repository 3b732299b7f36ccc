"""Models as files: one zip of JSON and plain arrays. Loading it executes nothing.

`archive` is the container and what it says about itself; `estimators` and `ensembles` say how the
parts of a model are written and read, by the descriptions in `reconform.records` and in the folders
of the detectors; here it comes together.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy
import sklearn
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from ..assumption.order import CALENDAR, EPOCH, PERIODS, Order
from ..assumption.sample import LookedUp, Occurrences
from ..atomic import check_place
from ..detector import TIES, ConformalDetector, FittedState
from ..detectors import NativeDetector, resolve_detector
from ..detectors.foreign import LARGER_IS
from ..detectors.prepare import Prepare
from ..ensemble.grouped import GroupedEnsemble
from ..errors import ModelFileError, ReconformError, check_probability
from ..frames import PACKAGES, FrameRows
from ..intake import Coded, Frames, Intake, Numbers
from ..methods import METHODS, MOST_REFERENCE, recorded_methods, resolve_method
from ..records import (
    ROWS,
    SCORES,
    Array,
    Budget,
    Json,
    Many,
    Maybe,
    OneOf,
    Plain,
    Reader,
    Record,
    Scalar,
    Spec,
    Writer,
    record_of,
    require,
)
from ..tables import describe, restore
from ..timeseries import WindowFeatures
from ..timeseries.forecast import MOST_LAGS, Clock, Forecast
from ..units import UnitFeatures
from ..updating import Update
from . import archive, ensembles, estimators
from .archive import Archive, ModelInfo, Pieces, inspect

__all__ = ["ModelFileError", "ModelInfo", "inspect", "load", "save"]

MODEL = "model.json"


def save(
    cad: ConformalDetector,
    path: str | Path,
    *,
    overwrite: bool = False,
    extras: Mapping[str, Any] | None = None,
) -> None:
    """Save a fitted detector to one file.

    The file is a zip of JSON and plain arrays; `load` runs no code from it. Ranks, p-values,
    scores and decisions of the loaded detector are the same to the last bit. The file appears
    whole or not at all.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted. Detectors of scikit-learn, PyOD and others need skops
        (``pip install 'reconform[skops]'``); bare functions cannot be saved.
    path : str or Path
        By custom with the ending ``.rcad``.
    overwrite : bool, default=False
        Replace a file that exists.
    extras : dict, optional
        Plain JSON data to carry along; `inspect` gives it back.

    Raises
    ------
    FileExistsError
        If the file exists and `overwrite` is false.
    ReconformError
        If something cannot be saved; the message names it.

    See Also
    --------
    load, inspect

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from reconform import ConformalDetector
    >>> from reconform.models import load, save
    >>> rng = np.random.default_rng(0)
    >>> X, new = rng.normal(size=(100, 2)), rng.normal(size=(5, 2))
    >>> cad = ConformalDetector("iforest", method="jackknife+", random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "plant.rcad")
    ...     save(cad, path)
    ...     again = load(path)
    >>> bool((again.p_values(new) == cad.p_values(new)).all())
    True
    """
    if type(cad) is not ConformalDetector:
        raise ReconformError(f"only a ConformalDetector can be saved; got {type(cad).__name__}.")
    check_is_fitted(cad, "ensemble_")
    check_can_be_saved(cad.plan_.scheme)
    check_place(path, overwrite=overwrite)
    ensemble = cad.ensemble_
    fitted = ensemble.first() if isinstance(ensemble, GroupedEnsemble) else ensemble
    kept = (getattr(fitted, name, None) for name in ("reference", "anomalies"))
    if any(isinstance(rows, FrameRows) for rows in kept):
        raise ReconformError(
            "`method='full'` keeps the reference rows, and a frame has no place in a model file; "
            "use another method, such as 'cv+', or Prepare(detector), which keeps numbers."
        )
    detectors = estimators.DetectorsOut()
    out = detectors.out = Writer(detectors, cad.n_features_in_)
    model = archive.as_json({**_write_model(cad, out), "estimators": detectors.entries})
    members: dict[str, Pieces] = {MODEL: [model]}
    members.update((name, archive.npy_pieces(array)) for name, array in out.arrays.items())
    members.update((_dump_name(k), [dump]) for k, dump in enumerate(detectors.dumps))
    facts = facts_of(cad, extras or {}, sorted(detectors.types))
    archive.write_archive(path, facts, members, overwrite=overwrite, fits=out.budget.allows)


def check_can_be_saved(method: str) -> None:
    """Refuse methods that have no model before the new rows are there."""
    row = METHODS.get(method)
    if row is not None and row.fits_batch:
        raise ReconformError(
            f"{row.fits_batch}, so that before these are there no model exists that could be "
            "saved; keep the reference rows, and fit again when new rows come."
        )


def load(path: str | Path, *, trusted: bool = False) -> ConformalDetector:
    """Load a saved detector.

    Parameters
    ----------
    path : str or Path
    trusted : bool, default=False
        Make the objects of other libraries in the file, too: detectors of scikit-learn and PyOD,
        pipelines, classes of your own. They are as safe as the person who made them. Without it a
        file with such objects is refused, with their types; a model of reconform's own detectors
        may come from anybody.

    Returns
    -------
    ConformalDetector
        Fitted, with the same numbers as the one that was saved. What belongs to the machine and
        not to the model comes back at its default: `n_jobs`, `verbose`, and a generator as
        `random_state`, which the fit has used up.

    Raises
    ------
    ModelFileError
        If the file is no model, was cut short or altered, has a newer format, would take far more
        memory or time than its size, has arrays that do not fit together, or contains objects of
        other libraries and is not trusted.

    See Also
    --------
    save, inspect

    Notes
    -----
    A sum over every part guards against accidents, not against malice: it is no signature.

    Examples
    --------
    >>> import os, tempfile
    >>> from reconform.models import load
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "plant.rcad")
    ...     with open(path, "w") as file:
    ...         _ = file.write("something else")
    ...     load(path)
    Traceback (most recent call last):
    ...
    reconform.errors.ModelFileError: ...plant.rcad: this is not a reconform model, or it is
    damaged (it is not a zip archive).
    """
    if type(trusted) is not bool:
        raise ReconformError(f"`trusted` is True or False; got {trusted!r}.")
    with (
        archive.open_archive(path) as container,
        archive.refusing(path, "the file is damaged, or was not written by reconform"),
    ):
        return _read_model(container, trusted)


def _dump_name(k: int) -> str:
    return f"foreign/{k}.skops"


# --- the estimator -------------------------------------------------------------------------------


# At most 2,000 reference rows, to check the assumption by. And all of them
# where a batch of very many rows may need another fit.
_SAMPLE = Maybe(Array("f8", ndim=2))


def _check_occurrences(value: Occurrences, n_features: int) -> None:
    single = value.contents - value.repeated
    fits = 0 <= value.repeated <= value.contents and value.rows == value.twins + single
    fits = fits and 2 * value.repeated <= value.twins and (value.repeated > 0 or value.twins == 0)
    require(fits, "the copies among the reference rows are miscounted")


def _check_looked_up(value: LookedUp, n_features: int) -> None:
    require(0 <= value.limit < 1 << 64, "the sample of the reference has no limit")


_LOOKED_UP = Maybe(
    record_of(
        "LookedUp",
        LookedUp,
        _check_looked_up,
        occurrences=record_of("Occurrences", Occurrences, _check_occurrences),
    )
)


def _check_order(value: Order, n_features: int) -> None:
    fits = all(-1 <= one < n_features for one in (value.column, value.series))
    fits = fits and value.season in ("", *CALENDAR) and value.lag >= 1
    fits = fits and value.rows >= 0 and -1 <= value.correlation <= 1
    fits = fits and set(value.periods.split()) <= set(PERIODS)
    fits = fits and all(
        time == 0 or EPOCH[0] <= time < EPOCH[1] for time in (value.first, value.last)
    )
    require(fits, "the order of the reference is another one")


_ORDER = record_of("Order", Order, _check_order)


def _check_update(value: Update, n_features: int) -> None:
    numbers = [one for name, one in value.to_dict().items() if name != "parent"]
    fits = all(0 <= one < 1 << 40 for one in numbers) and value.drawn <= value.real
    require(fits and len(value.parent) <= 64, "an update is miscounted")


_UPDATES = Many(record_of("Update", Update, _check_update))
_KEYS = Maybe(Array("u8", ndim=1))


def _check_units(value: UnitFeatures, n_features: int) -> None:
    same = len(value.columns) == len(value.centres) == len(value.scales)
    require(same and len(value.names) == n_features, "the units have other columns")
    require(set(value.missing) <= {one.name for one in value.columns}, "the units miss a column")
    require(bool((value.scales > 0).all()), "a spread is not above 0")


class RowColumns:
    """Columns of rows, with their labels."""

    def write(self, value: Any, at: str, out: Writer) -> Json:
        """Write them as plain data."""
        return describe(value)

    def read(self, json: Json, source: Reader) -> Any:
        """Read and check them."""
        return restore(json)


ROW_COLUMNS = RowColumns()

_OF_UNITS: dict[str, Spec] = {
    "columns": ROW_COLUMNS,
    "missing": Plain(),
    "centres": SCORES,
    "scales": SCORES,
    "keys": Array("u8", ndim=1),
}


def _check_windows(value: WindowFeatures, n_features: int) -> None:
    d, some, forecast = len(value.columns), len(value.series), value.forecast
    width = 2 * d + len(value.missing)
    require(width == n_features == len(value.centres) == len(value.scales), "other features")
    require(bool((value.scales > 0).all() and (value.noise > 0).all()), "a spread is not above 0")
    require(value.length > 0 and value.step > 0, "the windows have no length")
    shapes = {
        (some, d): (value.levels, value.spreads),
        (some, MOST_LAGS, d): (value.tail,),
        (some, MOST_LAGS): (value.tail_times,),
        (some, 2): (value.span,),
        (d,): (value.noise,),
        (MOST_LAGS + 1, d): (forecast.weights,),
        (7 * forecast.clock.per_day, d): (forecast.usual,),
    }
    fits = all(array.shape == shape for shape, arrays in shapes.items() for array in arrays)
    require(fits, "the windows are of other series")


_FORECAST = record_of(
    "Forecast", Forecast, clock=record_of("Clock", Clock), usual=ROWS, weights=ROWS
)
_WINDOWS = record_of(
    "Windows",
    WindowFeatures,
    _check_windows,
    **_OF_UNITS,
    **dict.fromkeys(("levels", "spreads", "span", "tail_times"), ROWS),
    series=Plain(),
    forecast=_FORECAST,
    noise=SCORES,
    tail=Array("f8", ndim=3),
)
_UNITS = Maybe(OneOf(Record("Units", UnitFeatures, _OF_UNITS, _check_units), _WINDOWS))


def _write_model(cad: ConformalDetector, out: Writer) -> Json:
    plan = ensembles.write_plan(cad.plan_, out)
    parameters = estimators.neutral(ConformalDetector, cad.get_params(deep=False))
    detector, method = parameters.pop("detector"), parameters.pop("method")
    if isinstance(detector, (list, tuple)):
        detector = resolve_detector(detector)
    if not isinstance(detector, str):
        fitted = cad.plan_.row.frozen
        detector = {"estimator": out.estimators.write(detector, fitted=fitted)}
    kept = cad.state_
    if kept.reference is not None:
        out.budget.spend(estimators.refit_units(cad.detector, *kept.reference.shape), "a fit")
    return {
        "detector": detector,
        "method": _write_method(method, out),
        "parameters": Plain().write(parameters, "parameters", out),
        "n_features": cad.n_features_in_,
        "feature_names": estimators.names_in(cad),
        "offset": Scalar(float).write(cad.offset_, "offset_", out),
        "tie_key": kept.tie_key,
        "left_out": cad.left_out_,
        "plan": plan,
        "ensemble": ensembles.write_fitted(cad, out),
        "reference": _SAMPLE.write(kept.reference, "reference", out),
        "reference_sample": _SAMPLE.write(cad.reference_sample_, "reference_sample", out),
        "looked_up": _LOOKED_UP.write(kept.looked_up, "looked_up", out),
        "order": _ORDER.write(kept.order, "order", out),
        "units": _UNITS.write(kept.units, "units", out),
        "updates": _UPDATES.write(kept.updates, "updates", out),
        "rows": _SAMPLE.write(None if isinstance(kept.rows, FrameRows) else kept.rows, "rows", out),
        "origins": _KEYS.write(kept.origins, "origins", out),
        "joined": _KEYS.write(kept.joined, "joined", out),
        **ensembles.write_groups(cad, out),
        **_write_intake(kept.intake),
    }


def _write_intake(intake: Intake) -> dict[str, Json]:
    """Say how rows are read, if not as numbers."""
    if isinstance(intake, Coded):
        return {"features": describe(intake.columns)}
    if isinstance(intake, Frames):
        return {"features": describe(intake.columns), "frames": intake.package}
    return {}


def _read_intake(json: Json, cad: ConformalDetector) -> Intake:
    own = isinstance(cad.detector, str | list | tuple | NativeDetector)
    prepares, package = isinstance(cad.detector, Prepare), json.get("frames")
    if "features" not in json:
        require(not prepares and package is None, "the features are missing")
        return Numbers()
    columns = restore(json["features"])
    require(len(columns) == cad.n_features_in_, "the features are of another number")
    if package is None:
        require(prepares or own, "the features do not fit the detector")
        return Coded(columns)
    require(not prepares and package in PACKAGES, "the frames are of no known kind")
    return Frames(columns, package)


def _read_model(container: Archive, trusted: bool) -> ConformalDetector:
    json = archive.parse_json(container.read(MODEL).tobytes())
    entries = json["estimators"]
    names = [name for name in container.manifest["members"] if name.endswith(".skops")]
    dumps = [container.read(_dump_name(k)).tobytes() for k in range(len(names))]
    if not trusted:
        types = {name for data in dumps for name in estimators.types_in(data)}
        if dumps:
            estimators.refuse_foreign(sorted(types), path=container.path)
    detectors = estimators.DetectorsIn(entries, estimators.make_foreign(dumps))
    arrays = {name for name in container.manifest["members"] if name.endswith(".npy")}
    source = detectors.source = Reader(
        lambda name: archive.read_npy(container.read(name)),
        Budget(container.file_bytes),
        detectors,
        json["n_features"],
        unread=arrays,
    )
    plan = ensembles.read_plan(json["plan"], source)

    detector = json["detector"]
    if not isinstance(detector, str):
        detector = detectors.read(detector["estimator"])
    parameters = estimators.neutral(ConformalDetector, Plain().read(json["parameters"], source))
    cad = ConformalDetector(detector, _read_method(json["method"], source), **parameters)
    _check_parameters(cad)
    estimators.restore_columns(cad, json["n_features"], json["feature_names"])
    tie_key = Scalar(int).read(json["tie_key"], source)
    require(0 <= tie_key < 1 << 64, "the key of ties is out of range")
    accepts_nan = bool(get_tags(cad).input_tags.allow_nan)
    cad.state_ = kept = FittedState(_read_intake(json, cad), tie_key, accepts_nan)
    groups, kept.sample_groups = ensembles.read_groups(json, cad, plan, source)
    left_out = Scalar(int).read(json["left_out"], source)
    require(left_out >= 0, "the number of rows that were left out is below 0")
    kept.updates = tuple(_UPDATES.read(json.get("updates", []), source))
    cad.adopt(plan, ensembles.read_fitted(json["ensemble"], plan, groups, source), groups, left_out)
    cad.offset_ = Scalar(float).read(json["offset"], source)
    kept.reference = rows = _SAMPLE.read(json["reference"], source)
    fits = rows is None or rows.shape == (plan.n, cad.n_features_in_)
    require(fits and (rows is None or len(rows) <= MOST_REFERENCE), "the reference is another one")
    if rows is not None:  # a batch of very many rows fits again
        source.budget.spend(estimators.refit_units(cad.detector, *rows.shape), "a fit")
    _read_sample(cad, json, source)
    _read_marked(cad, json, source)
    require(not source.unread, f"nothing needs {sorted(source.unread)[:3]}")
    same = cad.calibration_.fingerprint == container.manifest["fingerprint"]
    require(same, "the calibration is not the one in the manifest")
    return cad


def _read_sample(cad: ConformalDetector, json: Json, source: Reader) -> None:
    """Read the reference rows that new rows are compared with."""
    kept, codes = cad.state_, cad.state_.sample_groups
    cad.reference_sample_ = sample = _SAMPLE.read(json["reference_sample"], source)
    fits = sample is None or sample.shape[1] == cad.n_features_in_
    require(fits, "the sample of the reference has other columns")
    fits = (sample is None or kept.groups is None) == (codes is None)
    fits = fits and (sample is None or codes is None or len(sample) == len(codes))
    if "order" in json:
        kept.order = _ORDER.read(json["order"], source)
        kept.units = _UNITS.read(json["units"], source)
    kept.looked_up = _LOOKED_UP.read(json["looked_up"], source)
    if kept.looked_up is not None:
        known = kept.looked_up.occurrences
        fits = fits and sample is not None and known.contents <= len(sample)
        fits = fits and known.rows <= cad.plan_.n
    require(fits, "the sample of the reference has other rows")


def _read_marked(cad: ConformalDetector, json: Json, source: Reader) -> None:
    """Read what updates brought: rows, and which rows of which batches they were."""
    kept, known = cad.state_, cad.ensemble_.anomalies
    kept.rows = _SAMPLE.read(json.get("rows"), source)
    kept.origins, kept.joined = (_KEYS.read(json.get(n), source) for n in ("origins", "joined"))
    fits = kept.rows is None or kept.rows.shape == (cad.plan_.n, cad.n_features_in_)
    fits &= kept.origins is None or len(kept.origins) == (0 if known is None else len(known))
    require(fits, "the marked rows are other ones")


def _check_parameters(cad: ConformalDetector) -> None:
    """Refuse parameters that `fit` would have refused."""
    check_probability("alpha", cad.alpha)
    require(cad.ties in TIES, f"ties is {cad.ties!r}")
    require(cad.larger_is in (None, *LARGER_IS), f"larger_is is {cad.larger_is!r}")
    resolve_method(cad.method)
    if isinstance(cad.detector, str):
        resolve_detector(cad.detector, cad.larger_is)


def _write_method(method: Any, out: Writer) -> Json:
    if isinstance(method, str):
        return method
    if type(method) not in recorded_methods().values():
        own = ", ".join(recorded_methods())
        raise ReconformError(f"method {method!r} cannot be saved; use one of these: {own}.")
    parameters = Plain().write(method.get_params(deep=False), "method", out)
    return {"method": type(method).__name__, "parameters": parameters}


def _read_method(json: Json, source: Reader) -> Any:
    if isinstance(json, str):
        return json
    return recorded_methods()[json["method"]](**Plain().read(json["parameters"], source))


# --- the facts of its manifest ---


def facts_of(
    cad: ConformalDetector, extras: Mapping[str, Any], foreign_types: list[str]
) -> dict[str, Any]:
    """Collect the facts of a model for its manifest."""
    parameters = cad.get_params(deep=False)
    return {
        "format": archive.FORMAT,
        "format_version": archive.FORMAT_VERSION,
        "reconform": version("reconform"),
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "detector": _shown(parameters.pop("detector")),
        "method": _shown(parameters.pop("method")),
        "scheme": cad.plan_.scheme,
        "variant": cad.plan_.variant,
        "parameters": {name: repr(value) for name, value in parameters.items()},
        "n_features": cad.n_features_in_,
        "feature_names": estimators.names_in(cad),
        "n_reference": cad.plan_.n,
        "n_calibration": cad.n_calibration_,
        "n_models": cad.plan_.n_models,
        "fingerprint": cad.calibration_.fingerprint,
        "guarantee": str(cad.guarantee_),
        "updates": [f"from {one.parent[:12]}: {one}" for one in cad.state_.updates],
        "versions": {"numpy": numpy.__version__, "scikit-learn": sklearn.__version__},
        "foreign_types": foreign_types,
        "extras": _checked(extras),
    }


def _shown(choice: Any) -> str:
    return choice if isinstance(choice, str) else repr(choice)


def _checked(extras: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse extras that would not come back as they are."""
    try:
        if archive.parse_json(archive.as_json(dict(extras))) == extras:
            return dict(extras)
    except (TypeError, ValueError):
        pass
    raise ReconformError(
        "extras must be a dict of plain JSON data: words, finite numbers, true, false, None, "
        f"lists, and dicts with words as keys; got {extras!r}."
    )
