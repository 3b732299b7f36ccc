"""Jobs beside others stay within their share; results and limits come back as they were."""

import threading

import pytest
from joblib import Parallel, cpu_count, delayed, effective_n_jobs, parallel_config
from threadpoolctl import threadpool_info

from reconform.parallel import run_jobs, share_of


def pools():
    return {(pool["user_api"], pool["filepath"]): pool["num_threads"] for pool in threadpool_info()}


def inner(k):
    """What a job sees: jobs of its own, and the threads of every library."""
    return k, effective_n_jobs(8), max(pools().values())


def inner_loop(k):
    """A job that starts jobs, as scikit-learn's forests do; where do they run?"""
    return set(Parallel(n_jobs=2)(delayed(threading.get_ident)() for _ in range(4)))


@pytest.mark.parametrize("backend", ["threading", "loky", "multiprocessing"])
def test_jobs_beside_others_have_one_level(backend):
    with parallel_config(backend, n_jobs=cpu_count()):
        seen = list(run_jobs(inner, ((k,) for k in range(6)), total=6, n_jobs=None))
    alone = 1 if cpu_count() > 1 else cpu_count()
    assert seen == [(k, alone, 1) for k in range(6)]


def test_inner_loops_run_in_the_job_itself():
    with parallel_config("threading", n_jobs=2):
        seen = list(run_jobs(inner_loop, ((k,) for k in range(4)), total=4, n_jobs=None))
    assert [len(threads) for threads in seen] == [1] * 4


def test_a_job_that_is_alone_is_left_alone():
    before = pools()
    with parallel_config("threading", n_jobs=2):
        ((_, jobs, _),) = run_jobs(inner, [(0,)], total=1, n_jobs=None)
    assert jobs > 1
    with share_of(1):
        assert pools() == before


def test_limits_come_back_however_threads_overlap():
    before = pools()
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))

    def first():
        with share_of(64):
            first_is_in.set()
            second_is_in.wait(10)
        first_is_out.set()

    def second():
        first_is_in.wait(10)
        with share_of(64):
            second_is_in.set()
            first_is_out.wait(10)
            blas = [threads for (api, _), threads in pools().items() if api == "blas"]
            assert set(blas) <= {1}  # still limited, though the first has left

    threads = [threading.Thread(target=job) for job in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert first_is_out.is_set()
    assert pools() == before
