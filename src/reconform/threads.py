"""Compiled kernels release the GIL; joblib's threads run them on blocks of work.

No thread pool of our own and none of numba's: the caller's ``n_jobs`` and ``parallel_config``
decide, nothing breaks after a fork, and kernels compile quickly.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from joblib import Parallel, delayed, effective_n_jobs


def run_blocks(
    kernel: Callable[[int, int], object], total: int, *, n_jobs: int | None, per_job: int = 4
) -> None:
    """Call ``kernel(start, stop)`` on contiguous blocks that cover ``range(total)``.

    The kernel writes its own part of an output array, so neither the number of blocks nor their
    order changes a number.

    Examples
    --------
    >>> import numpy as np
    >>> squares = np.zeros(5)
    >>> def kernel(start, stop):
    ...     squares[start:stop] = np.arange(start, stop) ** 2
    >>> run_blocks(kernel, 5, n_jobs=2)
    >>> squares
    array([ 0.,  1.,  4.,  9., 16.])
    """
    jobs = effective_n_jobs(n_jobs)
    if jobs == 1 or total <= 1:
        if total:
            kernel(0, total)
        return
    blocks = min(total, jobs * per_job)
    edges = [total * b // blocks for b in range(blocks + 1)]
    Parallel(n_jobs=jobs, require="sharedmem")(
        delayed(kernel)(start, stop) for start, stop in pairwise(edges)
    )
