"""Array types, and sequences whose items are computed when they are asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, overload

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

T = TypeVar("T")


class LazySequence(Sequence[T]):
    """Items that are computed when asked for, so that a million of them cost nothing."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    @abstractmethod
    def _item(self, k: int) -> T:
        """Return item k, from 0."""

    @overload
    def __getitem__(self, k: int) -> T: ...
    @overload
    def __getitem__(self, k: slice) -> list[T]: ...
    def __getitem__(self, k: int | slice) -> T | list[T]:
        if isinstance(k, slice):
            return [self._item(j) for j in range(*k.indices(self._count))]
        if not -self._count <= k < self._count:
            raise IndexError(f"there are {self._count} of them; got index {k}.")
        return self._item(int(k) % self._count)

    def __iter__(self) -> Iterator[T]:
        return map(self._item, range(self._count))
