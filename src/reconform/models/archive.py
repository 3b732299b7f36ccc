"""The container of a model: a zip of a manifest and members, written whole and read with limits.

The manifest lists the size and SHA-256 of every member, and the comment of the zip holds the
SHA-256 of the manifest, so that any change is noticed. That is a guard against accidents, not a
signature: whoever can write a file can write matching sums. What protects from malice is that
nothing is trusted: names, counts and sizes are checked before anything is read, a member is never
larger in memory than it says, and no byte of it is ever executed.

Arrays are plain ``.npy``: numbers only, little-endian, rows first. No pickle, no evaluation.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo, is_zipfile

import numpy as np

from ..arrays import AnyArray, ByteArray
from ..atomic import atomic_file, blamed_on
from ..display import printable
from ..errors import ModelFileError, ReconformError
from ..records import require

FORMAT = "reconform model"
FORMAT_VERSION = 1

MANIFEST = "manifest.json"
SEAL = "reconform model, sha256 of manifest.json: "

# A zip of more members, or one that grows by more than this when it is read, is refused; small
# files may grow as they like. Ours are far from it: what would compress better is not compressed.
MOST_MEMBERS = 1 << 16
MOST_GROWTH = 10
SMALL_BYTES = 1 << 16
MOST_TEXT_BYTES = 1 << 24  # parsed, JSON may take thirty times the memory
MOST_DIGITS = 1000  # of an integer; numerator and denominator of any float have fewer

_NAME = re.compile(r"[A-Za-z0-9_]+(/[A-Za-z0-9_]+)*\.(json|npy|skops)")
_CHUNK = 1 << 20

Pieces = Sequence[bytes | memoryview]


@contextmanager
def refusing(path: str | Path, what: str) -> Iterator[None]:
    """Turn whatever goes wrong inside, on bytes that anyone may have written, into a refusal."""
    try:
        yield
    except (ModelFileError, ImportError):
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise ModelFileError(f"{path}: {what} ({reason.rstrip('.')}).") from error


def parse_json(text: bytes) -> Any:
    """Parse JSON proper: no NaN, no infinity, no endless number, no name twice in an object."""

    def refuse(constant: str) -> None:
        raise ReconformError(f"{constant} is not JSON")

    def integer(digits: str) -> int:
        if len(digits) > MOST_DIGITS:  # the work grows with the square of them
            raise ReconformError(f"a number has {len(digits):,} digits")
        return int(digits)

    def number(digits: str) -> float:
        if not math.isfinite(value := float(digits)):
            raise ReconformError(f"{digits[:40]} is larger than any number")
        return value

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in items}) < len(items):
            raise ReconformError("a name occurs twice in a JSON object")
        return dict(items)

    return json.loads(
        text, parse_constant=refuse, parse_int=integer, parse_float=number, object_pairs_hook=pairs
    )


def as_json(value: Any, *, indent: int | None = None) -> bytes:
    """Write JSON proper."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, indent=indent)
    return text.encode("utf-8", "surrogatepass")  # any str may be the name of a column


# --- limits --------------------------------------------------------------------------------------


def grows_too_much(sizes: Sequence[int], file_size: int) -> bool:
    """Whether members of these sizes are more than a zip of this size may hold.

    Examples
    --------
    >>> grows_too_much([1 << 15], 2000), grows_too_much([1 << 40], 1 << 30)
    (False, True)
    """
    return sum(sizes) > max(SMALL_BYTES, MOST_GROWTH * file_size)


def check_directory(members: Sequence[ZipInfo], file_size: int) -> None:
    """Refuse what a zip may say of its members and ours never does, before any is read."""
    few = len(members) <= MOST_MEMBERS
    require(few, f"it has {len(members):,} members, and at most {MOST_MEMBERS:,} may be")
    names = [member.orig_filename for member in members]
    require(len(set(names)) == len(names), "two members have the same name")
    for name, member in zip(names, members, strict=True):
        ours = _NAME.fullmatch(name) and name == member.filename
        require(ours, f"a member is called {name[:80]!r}")
        plain = stat.S_IFMT(member.external_attr >> 16) in (0, stat.S_IFREG)
        require(plain, f"member {name} is not a plain file")
        usual = member.compress_type in (ZIP_STORED, ZIP_DEFLATED) and not member.flag_bits & 0x1
        require(usual, f"member {name} is encrypted, or compressed in a way we never use")
        small = not name.endswith(".json") or member.file_size <= MOST_TEXT_BYTES
        require(small, f"{name} is larger than {MOST_TEXT_BYTES:,} bytes")
    apart = sum(member.compress_size for member in members) <= file_size
    require(apart, "members overlap")
    grows = grows_too_much([member.file_size for member in members], file_size)
    require(not grows, f"{file_size:,} bytes would become more than {MOST_GROWTH} times as many")


# --- reading -------------------------------------------------------------------------------------


class Archive:
    """A container that passed the checks of its directory and of its manifest.

    Attributes
    ----------
    path : str or Path
    file_bytes : int
    manifest : dict
    sizes : dict of str to (int, int)
        Bytes of every member in memory, and in the file.
    """

    def __init__(self, path: str | Path, file: BinaryIO) -> None:
        self.path = path
        with refusing(path, "this is not a reconform model, or it is damaged"):
            self.file_bytes = size = file.seek(0, os.SEEK_END)
            file.seek(0)
            cut_short = file.read(4) == b"PK\x03\x04"
            require(
                is_zipfile(file), "it was cut short" if cut_short else "it is not a zip archive"
            )
            self._zip = ZipFile(file)
            self._members = {member.orig_filename: member for member in self._zip.infolist()}
            check_directory(self._zip.infolist(), size)
            self.manifest = self._read_manifest()

    def read(self, name: str) -> ByteArray:
        """Read a member that the manifest lists, and check its sum."""
        with refusing(self.path, "the file is damaged or was altered"):
            listed = self.manifest["members"][name]
            buffer = self._read(name)
            same = hashlib.sha256(buffer.data).hexdigest() == listed["sha256"]
            require(same, f"the SHA-256 of {name} is not the one in the manifest")
            return buffer

    def _read(self, name: str) -> ByteArray:
        # The directory says how large it is, and that was checked; not a byte more is read.
        buffer = np.empty(self._members[name].file_size, dtype=np.uint8)
        view, filled = buffer.data, 0
        with self._zip.open(self._members[name]) as stream:
            while filled < len(buffer):
                piece = stream.read(min(_CHUNK, len(buffer) - filled))
                require(piece, f"{name} is shorter than it says")
                view[filled : filled + len(piece)] = piece
                filled += len(piece)
            require(not stream.read(1), f"{name} is longer than it says")
        return buffer

    def _read_manifest(self) -> dict[str, Any]:
        require(MANIFEST in self._members, f"it has no {MANIFEST}")
        text = self._read(MANIFEST).tobytes()
        manifest = parse_json(text)
        ours = isinstance(manifest, dict) and manifest.get("format") == FORMAT
        require(ours, f"its {MANIFEST} is not one of ours")
        self._check_version(manifest)
        sealed = self._zip.comment == (SEAL + hashlib.sha256(text).hexdigest()).encode()
        require(sealed, f"its {MANIFEST} was altered")
        listed = manifest["members"]
        whole = set(listed) == set(self._members) - {MANIFEST}
        require(whole, "its members are not those that the manifest lists")
        for name, entry in listed.items():
            same = entry["bytes"] == self._members[name].file_size
            require(same, f"the size of {name} is not the one in the manifest")
        return dict(manifest)

    def _check_version(self, manifest: dict[str, Any]) -> None:
        version: Any = manifest.get("format_version")
        known = type(version) is int and version >= 1
        require(known, f"its format version is {version!r}")
        if version > FORMAT_VERSION:
            raise ModelFileError(
                f"{self.path}: this model has format version {version}, written by reconform "
                f"{manifest.get('reconform')}, and the installed reconform reads up to "
                f"{FORMAT_VERSION}; install a newer reconform."
            )


@contextmanager
def open_archive(path: str | Path) -> Iterator[Archive]:
    """Open a container for reading; refuse it here if anything about it is wrong."""
    with open(path, "rb") as file:
        yield Archive(path, file)


# --- writing -------------------------------------------------------------------------------------


def write_archive(
    path: str | Path,
    manifest: Mapping[str, Any],
    members: Mapping[str, Pieces],
    *,
    overwrite: bool = False,
    fits: Callable[[int], bool] = lambda size: True,
) -> None:
    """Write a container, whole or not at all.

    Parameters
    ----------
    path : str or Path
    manifest : mapping
        Plain JSON data; the list of members is added.
    members : mapping of str to sequence of bytes-like
        The pieces of every member, one after the other.
    overwrite : bool
        Replace a file that exists.
    fits : callable
        Whether a file of so many bytes may hold this; if not, it is not compressed.
    """
    with atomic_file(path, overwrite=overwrite) as draft, blamed_on(path, draft):
        sizes = _write(draft, manifest, members, ZIP_DEFLATED)
        if grows_too_much(sizes, draft.stat().st_size) or not fits(draft.stat().st_size):
            _write(draft, manifest, members, ZIP_STORED)
        if not fits(draft.stat().st_size):
            raise ReconformError(
                "this model cannot be saved: using it would take far more memory or time than a "
                "file of its size may ask for. Fit with fewer models, trees or neighbours."
            )
        with draft.open("rb") as file:
            try:
                Archive(path, file)
            except ModelFileError as error:  # what would be refused is not written
                raise ReconformError(f"this model cannot be saved in one file: {error}") from error


def _write(
    path: Path, manifest: Mapping[str, Any], members: Mapping[str, Pieces], compression: int
) -> list[int]:
    """Write a zip; return the sizes of its members."""
    listed = {}
    # Trees shrink to a sixth, and hardly further at higher levels, which take three times as long.
    with ZipFile(path, "w", compression, compresslevel=1) as archive:
        for name, pieces in members.items():
            listed[name] = _write_member(archive, name, pieces)
        text = as_json({**manifest, "members": listed}, indent=1)
        seal = _write_member(archive, MANIFEST, [text])["sha256"]
        archive.comment = (SEAL + seal).encode()
    return [len(text), *(entry["bytes"] for entry in listed.values())]


def _write_member(archive: ZipFile, name: str, pieces: Pieces) -> dict[str, Any]:
    digest, size = hashlib.sha256(), sum(map(len, pieces))
    # Opened by name, a member gets a date of 1980: equal models have equal bytes.
    with archive.open(name, "w", force_zip64=size >= 1 << 31) as stream:
        for piece in pieces:
            digest.update(piece)
            stream.write(piece)
    return {"bytes": size, "sha256": digest.hexdigest()}


# The only header that we write, and the only one that we read: matched, not evaluated.
_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '([<|][biuf][1248])', 'fortran_order': False, "
    rb"'shape': \(((?:\d{1,18}, )*\d{1,18},?)?\), \} *\n"
)
_ALIGNMENT = 64

# An array without entries takes no bytes, whatever its shape says; code may rely on that shape.
MOST_EMPTY = 1 << 24


def npy_pieces(array: AnyArray) -> Pieces:
    """Write an array of numbers as the pieces of a ``.npy`` file.

    Examples
    --------
    >>> import numpy as np
    >>> header, data = npy_pieces(np.array([1.5]))
    >>> header[10:69].decode(), len(data)
    ("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }   ", 8)
    """
    if array.dtype.kind not in "biuf":
        raise ReconformError(f"only arrays of numbers can be saved; got one of type {array.dtype}.")
    little = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(little))
    return stream.getvalue(), little.reshape(-1).view(np.uint8).data


def read_npy(buffer: ByteArray) -> AnyArray:
    """Read what `npy_pieces` wrote, in place: the array is a view of the buffer.

    Examples
    --------
    >>> import numpy as np
    >>> pieces = npy_pieces(np.arange(6).reshape(2, 3))
    >>> read_npy(np.frombuffer(b"".join(pieces), dtype=np.uint8))
    array([[0, 1, 2],
           [3, 4, 5]])
    """
    start = buffer[: len(_MAGIC) + 2].tobytes()
    begins = len(start) == len(_MAGIC) + 2 and start.startswith(_MAGIC)
    require(begins, "an array has no header")
    end = len(start) + int.from_bytes(start[-2:], "little")
    match = _HEADER.fullmatch(buffer[len(start) : end].tobytes())
    if match is None or end % _ALIGNMENT:
        raise ReconformError("an array has a header that we never write")
    dtype = np.dtype(match[1].decode())
    shape = tuple(int(part) for part in (match[2] or b"").decode().rstrip(",").split(", ") if part)
    fits = math.prod(shape) * dtype.itemsize == len(buffer) - end
    require(fits, f"an array of shape {shape} does not match its stored size")
    usual = math.prod(max(size, 1) for size in shape) <= max(MOST_EMPTY, math.prod(shape))
    require(usual, f"an array has the shape {shape}")
    array: AnyArray = buffer[end:].view(dtype)
    return array.astype(dtype.newbyteorder("="), copy=False).reshape(shape)


# --- what a file says about itself ----------------------------------------------------------------


# What is known of a p-value, by the kind of guarantee.
IN_SHORT = {
    "exact": "proven",
    "bounded": "proven at a larger level",
    "measured": "measured, not proven",
}


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
    n_reference, n_calibration, n_models : int
        Rows of the reference, calibration scores, resampled models of the plan.
    fingerprint : str
        Of the calibration.
    guarantee : str
        What was known about the p-values when the file was written.
    updates : tuple of str
        What every update changed, from the first ancestor on.
    versions : dict of str to str
        Libraries at that time.
    foreign_types : tuple of str
        Types and functions of other libraries in it: `load` makes them only for a caller who
        trusts the file.
    extras : dict
        What `save` was given to carry along.
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
    n_reference: int
    n_calibration: int
    n_models: int
    fingerprint: str
    guarantee: str
    updates: tuple[str, ...]
    versions: Mapping[str, str]
    foreign_types: tuple[str, ...]
    extras: Mapping[str, Any] = field(repr=False)

    def __str__(self) -> str:
        lines = [
            f"{self.path}: {self.detector}, method {self.method}",
            f"  {self.n_reference:,} reference rows, {self.n_features:,} features, "
            f"{self.n_calibration:,} calibration scores",
            *(f"  {said}" for said in self._in_short()),
            *(f"  updated {said}" for said in self.updates),
            f"  written {self.created} by reconform {self.reconform} "
            f"(format {self.format_version}), {self.file_bytes:,} bytes",
        ]
        if self.foreign_types:
            lines.append(f"  contains objects of other libraries: {', '.join(self.foreign_types)}")
        # A file may say anything of itself: a terminal shows it, and obeys none of it.
        return "\n".join(printable(line.replace("\n", " ")) for line in lines)

    def _in_short(self) -> Iterator[str]:
        """What `guarantee` says, without its theorems; and which marks it depends on."""
        of_one = self.guarantee.partition("one p-value is ")[2]
        for kind, said in IN_SHORT.items():
            if of_one.startswith(kind):
                yield f"p-values: {said}"
        marks = of_one.partition("if the marks were right: ")[2].partition("; the false disc")[0]
        if marks:
            yield marks


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
    """
    with open_archive(path) as archive, refusing(path, "the manifest is not one of ours"):
        return _info(archive)


def _info(archive: Archive) -> ModelInfo:
    said = archive.manifest
    kinds = {"str": str, "int": int, "Mapping": dict}
    facts = {one.name: kinds.get(str(one.type).split("[")[0]) for one in fields(ModelInfo)}
    taken = [name for name, kind in facts.items() if kind and name not in ("path", "file_bytes")]
    for name in taken:
        require(type(said[name]) is facts[name], f"{name} is {said[name]!r}")
    columns, types = said["feature_names"], said["foreign_types"]
    updates = said.get("updates", [])
    for words in (columns or [], types, updates):
        require(all(isinstance(word, str) for word in words), "a name is not text")
    return ModelInfo(
        path=str(archive.path),
        file_bytes=archive.file_bytes,
        feature_names=None if columns is None else tuple(columns),
        foreign_types=tuple(types),
        updates=tuple(updates),
        **{name: said[name] for name in taken},
    )
