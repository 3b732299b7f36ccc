"""Compiled kernels release the GIL; a few threads run them on blocks of work.

The caller's ``n_jobs`` and ``parallel_config`` decide how many. Neither numba's thread pool, which
breaks after a fork and compiles slowly, nor joblib's threads, which poll for results and so cost
some 10 ms per call: a call here is over in less.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from joblib import effective_n_jobs


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
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        for _ in pool.map(lambda block: kernel(*block), pairwise(edges)):
            pass  # an exception in a block is raised here
