"""Threads, jobs and progress; jobs that run side by side divide the cores among them.

A detector may bring parallelism of its own: joblib inside scikit-learn, OpenMP, BLAS. Next to other
jobs that would start more threads than there are cores, or, with Dask, send the inner work around
the cluster. So a job that runs beside others has its inner joblib work done in sequence, and gives
OpenMP and BLAS its share of the cores; a job that runs alone is left alone.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any, TypeVar

from joblib import Parallel, cpu_count, delayed, effective_n_jobs, parallel_config
from threadpoolctl import ThreadpoolController

# It takes some 10 ms to hand out work: fewer simple steps than this are done sooner by one thread.
LEAST_WORK = 1 << 22

# Work is cut into more blocks than there are threads, so that all have something to do to the end.
BLOCKS_PER_JOB = 4


def run_jobs(
    function: Callable[..., Any],
    calls: Iterable[tuple[Any, ...]],
    *,
    total: int,
    n_jobs: int | None,
    prefer: str | None = None,
) -> Iterable[Any]:
    """Call a function on every tuple of arguments, through the caller's joblib backend.

    Arrays should be arguments of their own and not hide in other objects: joblib maps those into
    memory, or scatters them over a cluster, once for all calls.

    Parameters
    ----------
    function : callable
    calls : iterable of tuples
    total : int
        Number of calls.
    n_jobs : int or None
        As in joblib; ``parallel_config`` chooses the backend.
    prefer : {"threads", "processes"}, optional
        Where the caller has not chosen.

    Returns
    -------
    iterable
        Results in order, one by one where the backend can do that.

    Examples
    --------
    >>> list(run_jobs(pow, [(2, 3), (3, 2)], total=2, n_jobs=1))
    [8, 9]
    """
    job = delayed(Share(function, min(effective_n_jobs(n_jobs), total)))
    try:
        parallel = Parallel(n_jobs=n_jobs, prefer=prefer, return_as="generator")
    except ValueError:  # multiprocessing hands back everything at the end
        parallel = Parallel(n_jobs=n_jobs, prefer=prefer)
    results: Iterable[Any] = parallel(job(*arguments) for arguments in calls)
    return results


_compiled: ContextVar[int | None] = ContextVar("jobs of compiled code", default=None)


@contextmanager
def compiled_code_on(jobs: int) -> Iterator[None]:
    """Let compiled code use so many threads inside, where nobody has chosen a number.

    Threads of compiled code take no memory and start at once, so a program that has the machine
    to itself may use all processors. Processes for other libraries' detectors are another matter.

    Examples
    --------
    >>> with compiled_code_on(2):
    ...     threads_for(None), threads_for(1)
    (2, 1)
    """
    token = _compiled.set(jobs)
    try:
        yield
    finally:
        _compiled.reset(token)


def threads_for(n_jobs: int | None) -> int:
    """How many threads compiled code may use; 1 inside of another thread's share."""
    jobs: int = effective_n_jobs(_compiled.get() if n_jobs is None else n_jobs)
    return jobs


def run_threads(
    function: Callable[..., Any],
    calls: Iterable[tuple[Any, ...]],
    *,
    total: int,
    n_jobs: int | None,
) -> Iterable[Any]:
    """Like `run_jobs`, always in threads of this process: for compiled code.

    Many calls are spread over the threads; few calls run one after the other, and each may use
    threads of its own.

    Examples
    --------
    >>> list(run_threads(pow, [(2, 3), (3, 2)], total=2, n_jobs=2))
    [8, 9]
    """
    jobs = threads_for(n_jobs)
    if jobs == 1 or total < BLOCKS_PER_JOB * jobs:
        for arguments in calls:
            yield function(*arguments)
        return

    context = copy_context()

    def run(block: list[tuple[Any, ...]], stop: threading.Event) -> list[Any]:
        context_of_all = context.copy()
        context_of_all.run(_stop.set, stop)
        results = []
        with share_of(jobs):
            for arguments in block:
                _check_not_stopped(stop)
                results.append(context_of_all.copy().run(function, *arguments))
        return results

    waiting, size = iter(calls), -(-total // (BLOCKS_PER_JOB * jobs))
    for results in _spread(run, iter(lambda: list(islice(waiting, size)), []), jobs):
        yield from results


# Compiled code runs no longer than this at a time: Python sees Ctrl-C between two calls.
SECONDS_AT_A_TIME = 0.2

_stop: ContextVar[threading.Event | None] = ContextVar("work that nobody waits for", default=None)


def _check_not_stopped(stop: threading.Event | None) -> None:
    if stop is not None and stop.is_set():
        raise KeyboardInterrupt


def _spread(
    function: Callable[[Any, threading.Event], Any], items: Iterable[Any], jobs: int
) -> Iterator[Any]:
    """Call a function on items in threads; where the caller stops, so do they."""
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        try:
            yield from pool.map(lambda item: function(item, stop), items)
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


@dataclass(frozen=True)
class Share:
    """A function that stays within its share when `jobs` run at a time."""

    function: Callable[..., Any]
    jobs: int

    def __call__(self, *arguments: Any) -> Any:
        """Call the function within its share."""
        with share_of(self.jobs):
            return self.function(*arguments)


@contextmanager
def share_of(jobs: int) -> Iterator[None]:
    """Stay within the share of one of so many jobs, in this thread.

    Examples
    --------
    >>> from joblib import effective_n_jobs
    >>> with share_of(1000):
    ...     effective_n_jobs(8)
    1
    """
    if jobs <= 1:
        yield
        return
    threads = max(1, cpu_count() // jobs)
    controller = _controller(len(sys.modules))
    with (
        parallel_config(backend="sequential"),
        controller.select(user_api="openmp").limit(limits=threads),  # a setting of each thread
        _blas.limited(controller.select(user_api="blas"), threads),
    ):
        yield


@lru_cache(maxsize=1)
def _controller(modules: int) -> ThreadpoolController:
    """Look for the libraries that have threads, which takes milliseconds; once per import."""
    return ThreadpoolController()


class _ProcessWide:
    """A limit that all threads of a process share: set by the first, taken back by the last.

    Were each thread to restore what it found, the last one out would leave the limit behind.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._limiter: Any = None

    @contextmanager
    def limited(self, controller: ThreadpoolController, threads: int) -> Iterator[None]:
        with self._lock:
            if not self._holders:
                self._limiter = controller.limit(limits=threads)
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if not self._holders:
                    self._limiter.restore_original_limits()


_blas = _ProcessWide()


def run_blocks(
    kernel: Callable[[int, int], object], total: int, *, n_jobs: int | None, work: float = math.inf
) -> None:
    """Call ``kernel(start, stop)`` on contiguous blocks that cover ``range(total)``.

    The kernel writes its own part of an output array, so neither the number of blocks nor their
    order changes a number. With little `work`, in simple steps, there is one thread.

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
    jobs = threads_for(n_jobs) if work >= LEAST_WORK else 1
    if jobs == 1 or total <= 1:
        _run_in_steps(kernel, (0, total), _stop.get())
        return
    blocks = min(total, jobs * BLOCKS_PER_JOB)
    edges = [total * b // blocks for b in range(blocks + 1)]
    for _ in _spread(lambda block, stop: _run_in_steps(kernel, block, stop), pairwise(edges), jobs):
        pass  # an exception in a block is raised here


def _run_in_steps(
    kernel: Callable[[int, int], object], block: tuple[int, int], stop: threading.Event | None
) -> None:
    """Call a kernel on steps as long as `SECONDS_AT_A_TIME` allows, by what the last one took."""
    start, end = block
    size = 1
    while start < end:
        _check_not_stopped(stop)
        began = time.perf_counter()
        kernel(start, min(start + size, end))
        start += size
        allowed = SECONDS_AT_A_TIME / max(time.perf_counter() - began, 1e-9)
        size = max(1, int(size * min(allowed, 8)))


T = TypeVar("T")


def track(items: Iterable[T], *, total: int, label: str, verbose: int) -> Iterator[T]:
    """Yield from `items`; with `verbose`, draw a bar on standard error meanwhile."""
    if not verbose:
        yield from items
        return
    from rich.console import Console
    from rich.progress import track as with_bar

    yield from with_bar(items, label, total=total, console=Console(stderr=True))
