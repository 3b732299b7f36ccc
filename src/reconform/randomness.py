"""One `random_state` for everything; independent streams for all that draws."""

from __future__ import annotations

from typing import Any

import numpy as np


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
        raise ValueError(
            "random_state must be None, a non-negative integer, a RandomState or a Generator; "
            f"got {random_state!r}."
        ) from error
