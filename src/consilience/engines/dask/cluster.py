"""A Dask cluster, started here or connected to by its address."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import uuid4

from consilience.engines.blocks import in_file
from consilience.engines.dask import connection
from consilience.engines.dask.connection import CLOSE_SECONDS, CONNECT_SECONDS
from consilience.engines.dask.dask_round import DaskRound, is_loss
from consilience.engines.dask.submit import BlockTasks, keep
from consilience.engines.dask.watch import Watch
from consilience.errors import EngineError, InvalidInputError
from consilience.numerics.threads import processors
from consilience.runs import Reply
from consilience.site import Site

T = TypeVar("T")
R = TypeVar("R")
# None unsets a variable: with Dask's low trim threshold, a pass would return memory to the system after every block.
ENVIRONMENT = {"MALLOC_TRIM_THRESHOLD_": None, "OMP_NUM_THREADS": 1, "MKL_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1}
SETTINGS = {
    "distributed.nanny.pre-spawn-environ": ENVIRONMENT,
    # No dashboard, which anyone with access to the ports of this machine could read.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # Reduce the cost of idle processes: these poll every 20 ms and 500 ms, and sample the stack every 10 ms.
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.worker.profile.enabled": False,
}
POLL_SECONDS, WATCH_SECONDS, LONELY_SECONDS = 0.02, 1.0, 60
"""Seconds between looks for results and for workers, and without any worker after which work is given up."""
LEAST_MEMORY = 100_000_000
"""Memory in bytes below which a worker cannot even import this package."""
# By default Dask gives up the slot of a worker that is still empty 15 s after a loss, even after repeated losses.
PATIENCE = {"distributed.deploy.lost-worker-timeout": "1 day"}


class DaskCluster:
    """Engine on the workers of a Dask cluster: sites are files that every worker can read.

    Workers are started, or the scheduler is connected to, and all versions are checked when the object is created.
    Close it, or use it in a ``with`` statement.

    Parameters
    ----------
    address : str, distributed.Client, cluster or None
        A running cluster: the address of its scheduler, as in ``"tls://scheduler:8786"``, a client, or a cluster object
        such as ``distributed.LocalCluster``, which stay open. Dask runs the code of anyone who can reach its port, so
        plain ``tcp://`` is refused beyond this machine.
    n_workers : int or None
        Without an address: number of processes to start on this machine, listening on 127.0.0.1; by default the number
        of processors. They import the script that starts them: its work must be under
        ``if __name__ == "__main__":``.
    memory_limit : str or int, optional
        Without an address: memory of each process that is started, as in ``"2GB"``; a process that exceeds it is ended
        and started again, and its files are read again. By default the memory of the machine, divided evenly.
    security : distributed.Security or None
        Certificates. With workers of this machine, True creates temporary certificates, so that other users of the
        machine cannot connect to them.
    insecure : bool
        Whether to allow a plain ``tcp://`` address beyond this machine.

    Raises
    ------
    EngineError
        If the scheduler cannot be reached, is not allowed, or has other versions.
    ImportError
        If Dask is not installed.

    Notes
    -----
    Dask pickles the tasks it sends. They contain addresses of files, encoded questions and encoded answers; rows do not
    leave the workers. Data of lost workers are read again by others, and so are data that wait for a worker without
    heartbeats. Tracebacks of sites that failed are in the logs of the workers.

    With a deadline, workers continue without sites that have not answered after 0.9 of it (a second before its end,
    if it is short); a site has all of it if each site is a task of its own. An answer after the deadline is dropped
    with its task, and is not recorded as late. A scheduler that does not answer at the deadline is an ``EngineError``.

    Examples
    --------
    >>> from consilience import DaskCluster
    >>> import tempfile
    >>> import pyarrow as pa
    >>> from pyarrow import parquet
    >>> from consilience.messages import Summarise, Total
    >>> from consilience.runs import run
    >>> from consilience.data import Columns, Shard
    >>> from consilience.site import Site
    >>> def mean_response():
    ...     summary = yield Total(Summarise(d=0, q=1))
    ...     return summary.y_mean
    >>> with tempfile.TemporaryDirectory() as directory, DaskCluster(n_workers=1) as cluster:
    ...     path = f"{directory}/north.parquet"
    ...     parquet.write_table(pa.table({"y": [1.0, 5.0]}), path)
    ...     run(mean_response(), cluster.over([Site("north", Shard(path, Columns((), ("y",))))])).value
    array([3.])
    """

    def __init__(
        self,
        address: Any = None,
        *,
        n_workers: int | None = None,
        memory_limit: str | int | None = None,
        security: Any = None,
        insecure: bool = False,
    ) -> None:
        if address is not None and not (n_workers is None and memory_limit is None):
            raise InvalidInputError(
                "n_workers and memory_limit are for workers that are started here: with an address or a cluster, leave "
                "them out"
            )
        if n_workers is not None and n_workers < 1:
            raise InvalidInputError(f"n_workers={n_workers!r}: expected a whole number >= 1")
        connection.distributed()
        connection.check_security(security, address)
        self._open = ExitStack()
        try:
            self._open.enter_context(connection.quiet())
            if address is None:
                started = local_client(n_workers or processors(), security, validate_memory(memory_limit))
                self._client = self._open.enter_context(started)
            elif isinstance(address, str):
                address = connection.validate_address(address, security, insecure=insecure)
                self._client = connection.connect(address, security)
                self._open.callback(connection.close_within, CLOSE_SECONDS, self._client)
            else:
                self._client = self._open.enter_context(given_client(address, insecure=insecure))
            self._checked: set[str] = set()
            self._threads()
        except BaseException:
            self._open.close()
            raise

    def over(self, sites: Iterable[Site], *, in_memory: bool = False) -> DaskSites:
        """Return the engine for ``sites``.

        Parameters
        ----------
        sites : iterable of Site
            Each with a :class:`~consilience.data.Shard` at an address that is valid on every worker.
        in_memory : bool
            Whether workers keep the rows in memory; otherwise they read the files at every question.
        """
        self._check_open()
        return DaskSites(self._client, self._threads(), sites, in_memory=in_memory)

    def each(self, work: Callable[[T, bytes], R], items: Sequence[T], shared: bytes) -> Iterator[tuple[int, R | None]]:
        """Yield ``work(item, shared)`` of each item with its position, as they end; lost workers cost time only.

        An item whose workers were lost again and again is yielded with None.
        """
        self._check_open()
        self._threads()
        key = f"consilience-{uuid4().hex}"
        once = self._client.submit(keep, shared, key=f"{key}-shared", pure=False)
        keys = [f"{key}-{i}" for i in range(len(items))]
        futures = self._client.map(work, items, [once] * len(items), key=keys, pure=False)
        places = {future.key: i for i, future in enumerate(futures)}
        ended = connection.distributed().as_completed(futures, self._client.loop, with_results=True, raise_errors=False)
        try:
            while not ended.is_empty():
                for future, result in self._next_results(ended):
                    yield places[future.key], self._result(future, result)
        finally:  # what no one holds, the scheduler forgets: done or not
            for future in (*futures, once):
                future.release()

    def _next_results(self, ended: Any) -> list[tuple[Any, Any]]:
        """Wait for results; raise an error if the cluster is closed, does not answer, or has no worker for a while."""
        last_worker = time.monotonic()
        checked = last_worker
        while not (found := ended.next_batch(block=False)):
            time.sleep(POLL_SECONDS)
            self._check_open()
            now = time.monotonic()
            if now - checked > WATCH_SECONDS:
                checked = now
                if self._workers():
                    last_worker = now
            if now - last_worker > LONELY_SECONDS:
                raise EngineError(f"all workers were lost, and none has come in {LONELY_SECONDS} s: start some again")
        return list(found)

    def _result(self, future: Any, result: Any) -> Any:
        """Return the result of a task, or None if its workers were lost; raise any other error."""
        if future.status == "finished":
            return result
        error: BaseException = result[1] if future.status == "error" else result
        if not is_loss(error):
            raise error
        return None

    def _check_open(self) -> None:
        if self._client.status != "running":
            raise EngineError("the cluster is closed, or its scheduler was lost: create another DaskCluster")

    def close(self) -> None:
        """Disconnect from the cluster; workers that were started here end, a client or cluster that was given stays."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _threads(self) -> dict[str, int]:
        """Return the number of threads of each worker; new workers are checked first."""
        threads = self._workers() or self._first_workers()
        if new := threads.keys() - self._checked:
            connection.check_versions(self._client, new)
            self._checked |= new
        return threads

    def _first_workers(self) -> dict[str, int]:
        """Wait for a worker, and return the threads of those that are there."""
        try:
            wait = self._client.wait_for_workers
            connection.run_within(self._client, CONNECT_SECONDS + 1, wait, 1, CONNECT_SECONDS)
        except TimeoutError:
            raise EngineError(f"the scheduler has no workers after {CONNECT_SECONDS} s: start some") from None
        return self._workers()

    def _workers(self) -> dict[str, int]:
        """Return the number of threads of each worker that is there."""
        found: dict[str, int] = connection.call_cluster(self._client, CONNECT_SECONDS, self._client.nthreads)
        return found


class DaskSites:
    """Engine that sends questions to sites on the workers of a Dask cluster.

    Neighbouring sites form blocks, about four for each thread, and a round is one task per block. Blocks are subtrees
    of the summation tree, so the total is bitwise equal to that of any other engine. Lost workers cost time only: Dask
    runs their tasks again, and reads their data again. So do workers that hang: a worker is silent after 30 s without a
    heartbeat, or after a quarter of the deadline if that is less, and its blocks are submitted to the others.

    With a deadline, a site alone in its block has all of it, and sites that share a block have 0.9 of it (or a second
    less than it, if it is short), reading into memory included, counted on each worker from its first task of the
    round: the rest is for returning the answers.
    Tasks end with their round, so late answers are dropped and not recorded.

    Parameters
    ----------
    client : distributed.Client
    threads : dict of str to int
        Threads of each worker.
    sites : iterable of Site
    in_memory : bool
    """

    def __init__(self, client: Any, threads: dict[str, int], sites: Iterable[Site], *, in_memory: bool) -> None:
        sites = list(sites)
        keep = in_memory or any(site.keep for site in sites)
        sites = [in_file(site) for site in sites]
        if not sites:
            raise InvalidInputError("no sites: pass at least one")
        if len({site.name for site in sites}) < len(sites):
            raise InvalidInputError("two sites have the same name: give each its own")
        self._tasks = BlockTasks(client, threads, sites, keep=keep)
        self._watch = Watch(client)

    def close(self) -> None:
        """Let the workers forget the rows that they keep in memory."""
        self._tasks.release()

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in the order of summation."""
        return self._tasks.names

    def ask(
        self, number: int, question: bytes, sites: Sequence[str], *, total: bool, timeout: float | None
    ) -> Iterator[list[Reply]]:
        """Yield replies as blocks finish; if no worker could answer for a block, its sites have failed."""
        asked = DaskRound(self._tasks, self._watch, number, question, frozenset(sites), total=total, timeout=timeout)
        yield from asked.replies()


@contextmanager
def given_client(given: Any, *, insecure: bool) -> Iterator[Any]:
    """Yield the client that was given, or a client of the cluster that was given; both stay open."""
    library = connection.distributed()
    if isinstance(given, library.Client):
        check_given(given, insecure=insecure)
        yield given
    elif isinstance(given, library.deploy.Cluster):
        if given.status.name != "running":
            raise EngineError(f"the {type(given).__name__} is {given.status.name}: start it before it is used")
        client = library.Client(given, set_as_default=False)
        with ExitStack() as stack:
            stack.callback(connection.close_within, CLOSE_SECONDS, client)
            check_given(client, insecure=insecure)
            yield client
    else:
        raise InvalidInputError(
            f"address: got a {type(given).__name__}, expected the address of a scheduler, a distributed.Client or a "
            "cluster such as distributed.LocalCluster"
        )


def check_given(client: Any, *, insecure: bool) -> None:
    """Raise an error for a client that cannot be used from here, or whose connection is not allowed."""
    if client.asynchronous:
        raise InvalidInputError("got an asynchronous Client: pass Client(address), which waits for its answers")
    if client.status != "running":
        raise EngineError("the client is closed: create another one")
    address = client.scheduler.address
    if not address.startswith("inproc://"):
        connection.validate_address(address, client.security, insecure=insecure)


def validate_memory(limit: Any) -> Any:
    """Return the memory of a worker as Dask reads it; raise an error if it is no size."""
    if limit is None:
        return "auto"
    size = 0
    if isinstance(limit, str | int):
        with suppress(ValueError):
            size = connection.dask().utils.parse_bytes(limit)
    if size < LEAST_MEMORY:
        raise InvalidInputError(f"memory_limit={limit!r}: expected the memory of a worker, as in '2GB'")
    return size


@contextmanager
def local_client(n_workers: int, security: Any, memory: Any = "auto") -> Iterator[Any]:
    """Yield a client of workers started on this machine, which end with it."""
    before = {name: os.environ.get(name) for name in (*ENVIRONMENT, "PYTHONHASHSEED", "__DASK_PARENT_PID")}
    with ExitStack() as stack:
        stack.callback(restore_environment, before)
        stack.enter_context(connection.dask().config.set(PATIENCE))
        cluster = local_workers(n_workers, security, memory)
        stack.callback(connection.close_within, CLOSE_SECONDS, cluster)
        restore_environment(before)
        client = connection.distributed().Client(cluster, set_as_default=False, direct_to_workers=True)
        stack.callback(connection.close_within, CLOSE_SECONDS, client)
        yield client


def restore_environment(environment: dict[str, str | None]) -> None:
    """Undo the environment variables that Dask sets in this process when it starts a worker."""
    for name, value in environment.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def local_workers(n_workers: int, security: Any, memory: Any = "auto") -> Any:
    """Start one process with one thread for each worker, on the loopback address."""
    try:
        with connection.dask().config.set(SETTINGS):
            return connection.distributed().LocalCluster(
                n_workers=n_workers,
                threads_per_worker=1,
                memory_limit=memory,
                preload="consilience.engines.dask.submit",
                processes=True,
                host="127.0.0.1",
                dashboard_address=None,
                scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # not 8787, which may be taken
                silence_logs=connection.NEVER,
                security=security,
            )
    except RuntimeError as error:
        raise EngineError(
            "the workers did not start: they import the script that starts them, which must be a file with its work "
            "under if __name__ == '__main__':"
        ) from error
