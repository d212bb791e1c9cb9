import os
import subprocess
import sys
import threading
import time

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from consilience.numerics.threads import in_order, jobs, one_ahead, one_blas_thread, processors


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@pytest.fixture
def two_threads():
    with threadpool_limits(limits=2, user_api="blas"):
        yield blas_threads()  # a library without threads may still have one


def test_products_use_one_thread(two_threads):
    with one_blas_thread():
        assert set(blas_threads()) <= {1}
    assert blas_threads() == two_threads


def test_threads_come_back_after_an_error(two_threads):
    with pytest.raises(RuntimeError, match="inside"), one_blas_thread():
        raise RuntimeError("inside")
    assert blas_threads() == two_threads


def test_users_that_overlap_leave_the_threads_as_they_were(two_threads):
    first, second = one_blas_thread(), one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert set(blas_threads()) <= {1}
    second.__exit__(None, None, None)
    assert blas_threads() == two_threads


@pytest.mark.parametrize("number", [1, 2, 5])
def test_results_come_in_the_order_of_their_items(number):
    def slower_first(item):
        time.sleep(0.002 * (9 - item))
        return item

    with jobs(number):
        assert list(in_order(slower_first, range(10))) == list(range(10))


def test_jobs_work_at_the_same_time():
    together = threading.Barrier(2, timeout=10)
    with jobs(2):
        assert sorted(in_order(lambda _: together.wait(), range(2))) == [0, 1]


def test_an_error_of_a_job_is_raised_where_its_result_is_read():
    def failing(item):
        if item == 3:
            raise ValueError("the third")
        return item

    with jobs(2), pytest.raises(ValueError, match="the third"):
        list(in_order(failing, range(6)))


def test_few_results_wait_for_their_turn():
    taken = []
    with jobs(2):
        results = in_order(str, (taken.append(i) or i for i in range(100)))
        assert next(results) == "0"
        assert len(taken) <= 5
        results.close()


def test_one_ahead_reads_while_the_caller_works():
    read = []

    def items():
        for i in range(4):
            read.append(i)
            yield i

    ahead = one_ahead(items())
    assert next(ahead) == 0
    until = time.monotonic() + 10
    while len(read) < 2 and time.monotonic() < until:
        time.sleep(0.001)
    assert read == [0, 1]


def test_a_reader_that_hangs_does_not_keep_the_process_from_ending():
    code = """
import time
from consilience.numerics.threads import one_ahead
ahead = one_ahead(time.sleep(seconds) for seconds in (0, 600))
next(ahead)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_one_item_is_computed_without_another_thread():
    with jobs(2):
        assert list(in_order(lambda _: threading.current_thread(), [1])) == [threading.current_thread()]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_processors_are_those_that_the_process_may_use():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert processors() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_one_ahead_raises_the_error_of_the_reader_in_its_place():
    def items():
        yield 1
        raise OSError("the disk is gone")

    ahead = one_ahead(items())
    assert next(ahead) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(ahead)
