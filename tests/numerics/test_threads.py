import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from consilience.numerics.threads import SINGLE_UP_TO, threads_for


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@pytest.fixture
def two_threads():
    with threadpool_limits(limits=2, user_api="blas"):
        yield blas_threads()  # a library without threads may still have one


@pytest.mark.parametrize("p", [1, SINGLE_UP_TO])
def test_small_products_use_one_thread(p, two_threads):
    with threads_for(p):
        assert set(blas_threads()) <= {1}
    assert blas_threads() == two_threads


def test_large_products_use_all_threads(two_threads):
    with threads_for(SINGLE_UP_TO + 1):
        assert blas_threads() == two_threads


def test_threads_come_back_after_an_error(two_threads):
    with pytest.raises(RuntimeError, match="inside"), threads_for(1):
        raise RuntimeError("inside")
    assert blas_threads() == two_threads


def test_users_that_overlap_leave_the_threads_as_they_were(two_threads):
    first, second = threads_for(1), threads_for(1)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert set(blas_threads()) <= {1}
    second.__exit__(None, None, None)
    assert blas_threads() == two_threads
