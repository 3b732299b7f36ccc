"""Array types: one name for each kind of NumPy array that the package passes around."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

AnyArray = npt.NDArray[Any]
BoolArray = npt.NDArray[np.bool_]
ByteArray = npt.NDArray[np.uint8]
FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]
Int32Array = npt.NDArray[np.int32]
IntArray = npt.NDArray[np.int64]
ObjectArray = npt.NDArray[np.object_]
RankArray = npt.NDArray[np.int64]
UInt32Array = npt.NDArray[np.uint32]
UInt64Array = npt.NDArray[np.uint64]
