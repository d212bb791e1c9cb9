"""A Dask cluster, started here or connected to by its address."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Self

from consilience.engines.dask.connection import (
    CLOSE_SECONDS,
    CONNECT_SECONDS,
    NEVER,
    answered,
    check_security,
    check_versions,
    checked_address,
    close_within,
    connected,
    quiet,
    within,
)
from consilience.engines.dask.library import dask, distributed
from consilience.engines.dask.sites import DaskSites
from consilience.errors import EngineError, InvalidInputError
from consilience.site.site import Site

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
# By default Dask gives up the slot of a worker that is still empty 15 s after a loss, even after repeated losses.
PATIENCE = {"distributed.deploy.lost-worker-timeout": "1 day"}


class DaskCluster:
    """Engine on the workers of a Dask cluster: sites are files that every worker can read.

    Workers are started, or the scheduler is connected to, and all versions are checked when the object is created.
    Close it, or use it in a ``with`` statement.

    Parameters
    ----------
    address : str or None
        Address of a running scheduler, as in ``"tls://scheduler:8786"``. Dask runs the code of anyone who can reach its
        port, so plain ``tcp://`` is refused beyond this machine.
    n_workers : int or None
        Without an address: number of processes to start on this machine, listening on 127.0.0.1; by default the number
        of processors. They import the script that starts them: its work must be under
        ``if __name__ == "__main__":``.
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
    >>> import tempfile
    >>> import pyarrow as pa
    >>> from pyarrow import parquet
    >>> from consilience.messages import Summarise, Total
    >>> from consilience.runs import run
    >>> from consilience.site import Columns, Shard, Site
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
        self, address: str | None = None, *, n_workers: int | None = None, security: Any = None, insecure: bool = False
    ) -> None:
        if address is not None and n_workers is not None:
            raise InvalidInputError("got both address and n_workers: pass one of them; workers are started or found")
        if n_workers is not None and n_workers < 1:
            raise InvalidInputError(f"n_workers={n_workers!r}: expected a whole number >= 1")
        distributed()
        check_security(security, address)
        self._open = ExitStack()
        try:
            self._open.enter_context(quiet())
            if address is None:
                self._client = self._open.enter_context(local_client(n_workers or os.cpu_count() or 1, security))
            else:
                address = checked_address(address, security, insecure=insecure)
                self._client = connected(address, security)
                self._open.callback(close_within, CLOSE_SECONDS, self._client)
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
            Each with a :class:`~consilience.site.Shard` at an address that is valid on every worker.
        in_memory : bool
            Whether workers keep the rows in memory; otherwise they read the files at every question.
        """
        if self._client.status != "running":
            raise EngineError("the cluster is closed: create another DaskCluster")
        return DaskSites(self._client, self._threads(), sites, in_memory=in_memory)

    def close(self) -> None:
        """Disconnect from the cluster; workers that were started here end."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _threads(self) -> dict[str, int]:
        """Return the number of threads of each worker; new workers are checked first."""
        threads: dict[str, int] = answered(self._client, CONNECT_SECONDS, self._client.nthreads)
        if not threads:
            threads = self._first_workers()
        if new := threads.keys() - self._checked:
            check_versions(self._client, new)
            self._checked |= new
        return threads

    def _first_workers(self) -> dict[str, int]:
        """Wait for a worker, and return the threads of those that are there."""
        try:
            within(self._client, CONNECT_SECONDS + 1, self._client.wait_for_workers, 1, CONNECT_SECONDS)
        except TimeoutError:
            raise EngineError(f"the scheduler has no workers after {CONNECT_SECONDS} s: start some") from None
        threads: dict[str, int] = answered(self._client, CONNECT_SECONDS, self._client.nthreads)
        return threads


@contextmanager
def local_client(n_workers: int, security: Any) -> Iterator[Any]:
    """Yield a client of workers started on this machine, which end with it."""
    before = {name: os.environ.get(name) for name in (*ENVIRONMENT, "PYTHONHASHSEED", "__DASK_PARENT_PID")}
    with ExitStack() as stack:
        stack.callback(restore, before)
        stack.enter_context(dask().config.set(PATIENCE))
        cluster = local_workers(n_workers, security)
        stack.callback(close_within, CLOSE_SECONDS, cluster)
        restore(before)
        client = distributed().Client(cluster, set_as_default=False, direct_to_workers=True)
        stack.callback(close_within, CLOSE_SECONDS, client)
        yield client


def restore(environment: dict[str, str | None]) -> None:
    """Undo the environment variables that Dask sets in this process when it starts a worker."""
    for name, value in environment.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def local_workers(n_workers: int, security: Any) -> Any:
    """Start one process with one thread for each worker, on the loopback address."""
    try:
        with dask().config.set(SETTINGS):
            return distributed().LocalCluster(
                n_workers=n_workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address=None,
                scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # not 8787, which may be taken
                silence_logs=NEVER,
                security=security,
            )
    except RuntimeError as error:
        raise EngineError(
            "the workers did not start: they import the script that starts them, which must be a file with its work "
            "under if __name__ == '__main__':"
        ) from error
