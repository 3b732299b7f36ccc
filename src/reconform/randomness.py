"""One `random_state` for everything; independent streams for all that draws.

Kernels draw counter-based random numbers (splitmix64). Number i of the stream `key` is ``mix(key +
i * GOLDEN)``. A kernel carries the state itself: it adds GOLDEN before every number. So what is
drawn depends on the key alone, whoever draws and when.

Kernels compile these functions into themselves, and numba's cache on disk looks at the caller's
file only: after a change here, save the files that import it too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import LazySequence, UInt64Array
from .compiled import njit
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


class Streams(LazySequence[np.random.SeedSequence]):
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
        super().__init__(count)
        self._seed = seed

    def _item(self, k: int) -> np.random.SeedSequence:
        """Return stream k."""
        key = (*self._seed.spawn_key, *self._key(k))
        return np.random.SeedSequence(
            self._seed.entropy, spawn_key=key, pool_size=self._seed.pool_size
        )

    def _key(self, k: int) -> tuple[int, ...]:
        """What tells stream k from the others."""
        return (k,)


GOLDEN = np.uint64(0x9E3779B97F4A7C15)

_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S11, _S27, _S30 = np.uint64(11), np.uint64(27), np.uint64(30)
_S31 = np.uint64(31)


@njit(cache=True, nogil=True)
def mix(state: Any) -> Any:
    """Scramble 64 bits: the finaliser of splitmix64."""
    z = (state ^ (state >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    return z ^ (z >> _S31)


def mix_array(words: UInt64Array) -> UInt64Array:
    """`mix` every word of an array, with little memory besides the result.

    Examples
    --------
    >>> words = np.array([1, 2**63], dtype=np.uint64)
    >>> [int(word) for word in mix_array(words)] == [mix(word) for word in words]
    True
    """
    z = words >> _S30
    z ^= words
    z *= _MIX_1
    shifted = z >> _S27
    z ^= shifted
    z *= _MIX_2
    np.right_shift(z, _S31, out=shifted)
    z ^= shifted
    return z


@njit(cache=True, nogil=True)
def uniform(state: Any) -> Any:
    """Turn a state of the stream into a uniform number of 53 bits in [0, 1)."""
    return np.float64(mix(state) >> _S11) * 2.0**-53
