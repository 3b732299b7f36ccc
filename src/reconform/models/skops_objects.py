"""Objects of scikit-learn, PyOD and others, through skops: audited by name before they are made.

skops stores an object as JSON and arrays, and says which types it would have to make. What is not
known to be harmless is made only if the caller trusts it by name.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from zipfile import ZIP_STORED, ZipFile

from .archive import ModelFileError, grows_too_much
from .kinds import require

# Harmless, and not on the list of skops: a type of numbers, and plain descriptions of splits.
TRUSTED = frozenset(
    {
        "numpy.dtype",
        *(
            f"sklearn.model_selection._split.{name}"
            for name in (
                "GroupKFold", "GroupShuffleSplit", "KFold", "LeaveOneGroupOut", "LeaveOneOut",
                "LeavePGroupsOut", "LeavePOut", "PredefinedSplit", "RepeatedKFold",
                "RepeatedStratifiedKFold", "ShuffleSplit", "StratifiedGroupKFold",
                "StratifiedKFold", "StratifiedShuffleSplit", "TimeSeriesSplit",
            )
        ),
    }
)  # fmt: skip


def _skops(doing: str) -> ModuleType:
    try:
        import skops.io
    except ImportError as error:
        raise ImportError(
            f"{doing} a model with objects of scikit-learn, PyOD or others needs skops: "
            "pip install 'reconform[skops]'."
        ) from error
    return skops.io  # type: ignore[no-any-return]


def dump(thing: Any) -> tuple[bytes, list[str]]:
    """Write an object; refuse one that could not be found again by the names of its types.

    Parameters
    ----------
    thing : object

    Returns
    -------
    data : bytes
        In the format of skops, not compressed.
    types : list of str
        Those that need the trust of whoever loads it.
    """
    io_ = _skops("saving")
    name = type(thing).__name__
    try:
        data: bytes = io_.dumps(thing)
        types = io_.get_untrusted_types(data=data)
    except Exception as error:
        raise ValueError(f"{name} cannot be saved: {error}") from error
    lost = [known for known in types if not _can_be_found(known)]
    if lost:
        raise ValueError(
            f"{name} cannot be saved: it contains {_listed(lost)}, which cannot be found again by "
            "name. Lambdas, and functions and classes made inside a function, have no place in a "
            "file that is safe to load; define them in a module."
        )
    return data, [known for known in types if known not in TRUSTED]


def _can_be_found(name: str) -> bool:
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        thing: Any = sys.modules.get(".".join(parts[:cut]))
        if thing is not None:
            for part in parts[cut:]:
                thing = getattr(thing, part, None)
            return thing is not None
    return False


def construct(dumps: Sequence[bytes], trusted: Iterable[str], *, path: str | Path) -> list[Any]:
    """Make the objects of the dumps, if all their types are trusted.

    Parameters
    ----------
    dumps : sequence of bytes
    trusted : iterable of str
        Types that the caller trusts, by name.
    path : str or Path
        For the message.

    Returns
    -------
    list of objects
    """
    if not dumps:
        return []
    io_ = _skops("loading")
    found: set[str] = set()
    for data in dumps:
        _check_zip(data)
        found.update(io_.get_untrusted_types(data=data))  # which makes nothing
    names = {*trusted, *TRUSTED}
    refused = sorted(found - names)
    if refused:
        raise ModelFileError(
            f"{path}: the model contains {_listed(refused)}, which reconform does not make from a "
            "file unless you trust it by name. If you know where the file comes from: "
            f"load(path, trusted={refused!r})."
        )
    return [io_.loads(data, trusted=sorted(names)) for data in dumps]


def _check_zip(data: bytes) -> None:
    """Refuse a dump that would be larger than it looks: a zip in the zip, and zips in that."""
    with ZipFile(io.BytesIO(data)) as dumped:
        members = dumped.infolist()
        require(
            all(member.compress_type == ZIP_STORED for member in members)
            and sum(member.file_size for member in members) <= len(data)
            and len({member.filename for member in members}) == len(members),
            "an object is not stored as skops does it",
        )
        for member in members:
            if member.filename.endswith(".npz"):  # sparse matrices
                packed = dumped.read(member)
                with ZipFile(io.BytesIO(packed)) as inner:
                    sizes = [array.file_size for array in inner.infolist()]
                require(not grows_too_much(sizes, len(packed)), "a sparse matrix is too large")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
