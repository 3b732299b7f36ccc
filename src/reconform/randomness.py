"""One `random_state` for everything; independent streams for all that draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from .errors import ReconformError


def root_seed(random_state: Any) -> np.random.SeedSequence:
    """Turn what scikit-learn calls a ``random_state`` into a seed sequence to spawn from.

    Parameters
    ----------
    random_state : None, int, SeedSequence, RandomState or Generator
        The last two are advanced by one draw.

    Examples
    --------
    >>> root_seed(7).entropy
    7
    """
    if isinstance(random_state, np.random.SeedSequence):
        # A copy that has spawned nothing yet: the same seed gives the same children every time.
        return np.random.SeedSequence(
            random_state.entropy, spawn_key=random_state.spawn_key, pool_size=random_state.pool_size
        )
    if isinstance(random_state, np.random.RandomState):
        return np.random.SeedSequence(random_state.randint(0, 2**31, size=4).tolist())
    if isinstance(random_state, np.random.Generator):
        return np.random.SeedSequence(random_state.integers(0, 2**32, size=4).tolist())
    try:
        return np.random.SeedSequence(random_state)
    except (TypeError, ValueError) as error:
        raise ReconformError(
            "random_state must be None, a non-negative integer, a RandomState or a Generator; "
            f"got {random_state!r}."
        ) from error


class Streams(Sequence[np.random.SeedSequence]):
    """The children that ``seed.spawn(count)`` would give, made when asked for.

    A leave-one-out plan has a stream per row; a million of them should cost nothing.

    Parameters
    ----------
    seed : SeedSequence
    count : int

    Examples
    --------
    >>> import numpy as np
    >>> spawned = np.random.SeedSequence(7).spawn(3)[2]
    >>> Streams(np.random.SeedSequence(7), 3)[-1].spawn_key == spawned.spawn_key
    True
    """

    def __init__(self, seed: np.random.SeedSequence, count: int) -> None:
        self._seed, self._count = seed, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, k: int) -> np.random.SeedSequence: ...
    @overload
    def __getitem__(self, k: slice) -> list[np.random.SeedSequence]: ...
    def __getitem__(self, k: int | slice) -> np.random.SeedSequence | list[np.random.SeedSequence]:
        if isinstance(k, slice):
            return [self[j] for j in range(*k.indices(self._count))]
        if not -self._count <= k < self._count:
            raise IndexError(f"there are {self._count} streams; got index {k}.")
        return np.random.SeedSequence(
            self._seed.entropy,
            spawn_key=(*self._seed.spawn_key, *self._key(int(k) % self._count)),
            pool_size=self._seed.pool_size,
        )

    def _key(self, k: int) -> tuple[int, ...]:
        """What stream k has in its spawn key, after that of the seed."""
        return (k,)
