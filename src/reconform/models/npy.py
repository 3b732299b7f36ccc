"""Arrays as plain ``.npy``: numbers only, little-endian, rows first. No pickle, no evaluation."""

from __future__ import annotations

import io
import math
import re

import numpy as np

from ..arrays import AnyArray, ByteArray
from ..errors import ReconformError
from .archive import Pieces

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
    if len(start) < len(_MAGIC) + 2 or not start.startswith(_MAGIC):
        raise ReconformError("an array does not begin like one")
    end = len(start) + int.from_bytes(start[-2:], "little")
    match = _HEADER.fullmatch(buffer[len(start) : end].tobytes())
    if match is None or end % _ALIGNMENT:
        raise ReconformError("an array has a header that we never write")
    dtype = np.dtype(match[1].decode())
    shape = tuple(int(part) for part in (match[2] or b"").decode().rstrip(",").split(", ") if part)
    if math.prod(shape) * dtype.itemsize != len(buffer) - end:
        raise ReconformError(f"an array of shape {shape} is not as large as that")
    if math.prod(max(size, 1) for size in shape) > max(MOST_EMPTY, math.prod(shape)):
        raise ReconformError(f"an array has the shape {shape}")
    array: AnyArray = buffer[end:].view(dtype)
    return array.astype(dtype.newbyteorder("="), copy=False).reshape(shape)
