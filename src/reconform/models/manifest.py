"""What a model file says about itself: written for people and programs, read without the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy
import sklearn

from ..detector import ConformalDetector
from ..display import printable
from ..errors import ReconformError
from ..records import require
from .archive import FORMAT, FORMAT_VERSION, Archive, as_json, open_archive, parse_json, refusing


@dataclass(frozen=True)
class Part:
    """A part of a model file.

    Attributes
    ----------
    name : str
    bytes : int
        In memory.
    stored : int
        In the file.
    """

    name: str
    bytes: int
    stored: int


@dataclass(frozen=True)
class ModelInfo:
    """The facts in a model's manifest, and how large its parts are.

    Attributes
    ----------
    path : str
    file_bytes : int
    format_version : int
    reconform : str
        Version that wrote the file.
    created : str
        Time of writing, UTC, ISO 8601.
    detector, method : str
        By name, or as they print.
    scheme, variant : str
        Of the plan.
    parameters : dict of str to str
        The others, as they print.
    n_features : int
    feature_names : tuple of str or None
        If the reference had column names.
    feature_type : str
        Type of all features.
    n_reference, n_calibration, n_models : int
        Rows of the reference, calibration scores, resampled models of the plan.
    fingerprint : str
        Of the calibration.
    guarantee : str
        What was known about the p-values when the file was written.
    versions : dict of str to str
        Libraries at that time.
    foreign_types : tuple of str
        Types and functions of other libraries in it: `load` makes them only for a caller who
        trusts the file.
    extras : dict
        What `save` was given to carry along.
    parts : tuple of Part
        The largest first.
    """

    path: str
    file_bytes: int
    format_version: int
    reconform: str
    created: str
    detector: str
    method: str
    scheme: str
    variant: str
    parameters: Mapping[str, str]
    n_features: int
    feature_names: tuple[str, ...] | None
    feature_type: str
    n_reference: int
    n_calibration: int
    n_models: int
    fingerprint: str
    guarantee: str
    versions: Mapping[str, str]
    foreign_types: tuple[str, ...]
    extras: Mapping[str, Any] = field(repr=False)
    parts: tuple[Part, ...] = field(repr=False)

    def __str__(self) -> str:
        lines = [
            f"{self.path}: {self.detector}, method {self.method}",
            f"  {self.n_reference:,} reference rows, {self.n_features:,} features, "
            f"{self.n_calibration:,} calibration scores",
            f"  {self.guarantee}",
            f"  written {self.created} by reconform {self.reconform} "
            f"(format {self.format_version}), {self.file_bytes:,} bytes",
        ]
        if self.foreign_types:
            lines.append(f"  contains objects of others: {', '.join(self.foreign_types)}")
        lines += [f"  {part.stored:>12,} bytes  {part.name}" for part in self.parts]
        # A file may say anything of itself: a terminal shows it, and obeys none of it.
        return "\n".join(printable(line.replace("\n", " ")) for line in lines)


def inspect(path: str | Path) -> ModelInfo:
    """Read the facts of a saved model without loading it.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    ModelInfo

    Raises
    ------
    ModelFileError
        If the file is no model, or a damaged one.

    See Also
    --------
    save, load

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from reconform import ConformalDetector
    >>> from reconform.models import inspect, save
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> cad = ConformalDetector("knn", method="jackknife+").fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "plant.rcad")
    ...     save(cad, path)
    ...     info = inspect(path)
    >>> info.detector, info.method, info.n_calibration
    ('knn', 'jackknife+', 50)
    >>> sorted(part.name for part in info.parts)
    ['ensemble/calibration', 'ensemble/full', 'manifest', 'model', 'reference_sample']
    """
    with open_archive(path) as archive, refusing(path, "the manifest is not one of ours"):
        return _info(archive)


def facts_of(
    cad: ConformalDetector, extras: Mapping[str, Any], foreign_types: list[str]
) -> dict[str, Any]:
    """Collect the facts of a model for its manifest."""
    parameters = cad.get_params(deep=False)
    names = getattr(cad, "feature_names_in_", None)
    guarantee = cad.guarantee_
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "reconform": version("reconform"),
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "detector": _shown(parameters.pop("detector")),
        "method": _shown(parameters.pop("method")),
        "scheme": cad.plan_.scheme,
        "variant": cad.plan_.variant,
        "parameters": {name: repr(value) for name, value in parameters.items()},
        "n_features": cad.n_features_in_,
        "feature_names": None if names is None else [str(name) for name in names],
        "feature_type": "float64",
        "n_reference": cad.plan_.n,
        "n_calibration": cad.n_calibration_,
        "n_models": cad.plan_.n_models,
        "fingerprint": cad.calibration_.fingerprint,
        "guarantee": str(guarantee),
        "versions": {"numpy": numpy.__version__, "scikit-learn": sklearn.__version__},
        "foreign_types": foreign_types,
        "extras": _checked(extras),
    }


def _shown(choice: Any) -> str:
    return choice if isinstance(choice, str) else repr(choice)


def _checked(extras: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse extras that would not come back as they are."""
    try:
        if parse_json(as_json(dict(extras))) == extras:
            return dict(extras)
    except (TypeError, ValueError):
        pass
    raise ReconformError(
        "extras must be a dict of plain JSON data: words, finite numbers, true, false, None, "
        f"lists, and dicts with words as keys; got {extras!r}."
    )


# Facts that are taken over as they are, with their types.
_WORDS = (
    "reconform", "created", "detector", "method", "scheme", "variant", "feature_type",
    "fingerprint", "guarantee",
)  # fmt: skip
_NUMBERS = ("format_version", "n_features", "n_reference", "n_calibration", "n_models")
_TABLES = ("parameters", "versions", "extras")


def _info(archive: Archive) -> ModelInfo:
    said = archive.manifest
    for names, kind in ((_WORDS, str), (_NUMBERS, int), (_TABLES, dict)):
        for name in names:
            require(type(said[name]) is kind, f"{name} is {said[name]!r}")
    columns, types = said["feature_names"], said["foreign_types"]
    for words in (columns or [], types):
        require(all(isinstance(word, str) for word in words), "a name is no word")
    return ModelInfo(
        path=str(archive.path),
        file_bytes=Path(archive.path).stat().st_size,
        feature_names=None if columns is None else tuple(columns),
        foreign_types=tuple(types),
        parts=_parts(archive.sizes),
        **{name: said[name] for name in (*_WORDS, *_NUMBERS, *_TABLES)},
    )


def _parts(sizes: Mapping[str, tuple[int, int]]) -> tuple[Part, ...]:
    """Add members up to parts: by folder, and those of the ensemble by what it consists of."""
    totals: dict[str, list[int]] = {}
    for name, size in sizes.items():
        folder, *rest = name.rsplit(".", 1)[0].split("/")
        part = f"{folder}/{rest[0]}" if folder == "ensemble" else folder
        total = totals.setdefault(part, [0, 0])
        total[0] += size[0]
        total[1] += size[1]
    parts = [Part(name, *total) for name, total in totals.items()]
    return tuple(sorted(parts, key=lambda part: (-part.stored, part.name)))
