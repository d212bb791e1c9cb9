"""A Dask cluster, started here or reached by its address."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Self

from consilience.engines.dask.connection import (
    CONNECT_SECONDS,
    NEVER,
    check_security,
    check_workers,
    checked_address,
    connected,
    dask,
    distributed,
    quiet,
)
from consilience.engines.dask.sites import DaskSites
from consilience.errors import EngineError, InvalidInputError
from consilience.site.site import Site

# None takes a variable out: with the low trim threshold that Dask sets, a pass gives memory back after every block.
ENVIRONMENT = {"MALLOC_TRIM_THRESHOLD_": None, "OMP_NUM_THREADS": 1, "MKL_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1}
SETTINGS = {
    "distributed.nanny.pre-spawn-environ": ENVIRONMENT,
    # No pages about the cluster, to whoever reads the ports of this machine.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # A process that waits should cost nothing: these watch it every 20 ms and 500 ms, and sample its stack every 10 ms.
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.worker.profile.enabled": False,
}
# A worker's place is given up when it is empty 15 s after a loss, be it because of another loss a moment ago.
PATIENCE = {"distributed.deploy.lost-worker-timeout": "1 day"}


class DaskCluster:
    """Workers of a Dask cluster, as an engine: sites are files that every worker can read.

    Workers are started, or the scheduler is reached, and all versions are checked when the object is made. Close it, or
    use it in a ``with`` statement.

    Parameters
    ----------
    address : str or None
        Of a running scheduler, as in ``"tls://scheduler:8786"``. Dask runs the code of whoever reaches its port, so
        that plain ``tcp://`` is refused beyond this machine.
    n_workers : int or None
        Without an address: processes to start on this machine, listening on 127.0.0.1; as many as there are
        processors by default. They import the script that starts them: its work must be under
        ``if __name__ == "__main__":``.
    security : distributed.Security or None
        Certificates. With workers of this machine, True makes certificates for as long as they live: other users of
        the machine then cannot reach them.
    insecure : bool
        Use a plain ``tcp://`` address beyond this machine all the same.

    Raises
    ------
    EngineError
        The scheduler cannot be reached, must not be used as it is, or has other versions; in one sentence.
    ImportError
        Dask is not installed.

    Notes
    -----
    Dask pickles the tasks it carries. What it carries here is addresses of files, encoded questions and encoded
    answers; rows do not leave the workers. What lost workers held is read again by others. Traces of sites that could
    not answer are in the logs of the workers.

    With a deadline, workers go on without sites that have not answered when 0.9 of it is over; a site has all of it
    where each is a task of its own. An answer that comes after the deadline is dropped with its task, and so is not in
    the record as late.

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
            raise InvalidInputError("address and n_workers: got both; workers are started, or found at an address")
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
                self._open.callback(self._client.close)
            self._checked: set[str] = set()
            self._threads()
        except BaseException:
            self._open.close()
            raise

    def over(self, sites: Iterable[Site], *, in_memory: bool = False) -> DaskSites:
        """The engine that carries questions to ``sites``.

        Parameters
        ----------
        sites : iterable of Site
            Each with a :class:`~consilience.site.Shard` at an address that means the same on every worker.
        in_memory : bool
            Whether workers keep the rows in memory; otherwise they read the files at every question.
        """
        if self._client.status != "running":
            raise EngineError("the cluster is closed: make another DaskCluster")
        return DaskSites(self._client, self._threads(), sites, in_memory=in_memory)

    def close(self) -> None:
        """Leave the cluster; workers that were started here end."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _threads(self) -> dict[str, int]:
        """Threads of each worker; workers that were not there before are checked first."""
        try:
            self._client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError:
            raise EngineError(f"the scheduler has no workers after {CONNECT_SECONDS} s: start some") from None
        threads: dict[str, int] = self._client.nthreads()
        if threads.keys() - self._checked:
            check_workers(self._client)
            self._checked |= threads.keys()
        return threads


@contextmanager
def local_client(n_workers: int, security: Any) -> Iterator[Any]:
    """A client of workers that are started on this machine, and end with it."""
    before = {name: os.environ.get(name) for name in (*ENVIRONMENT, "PYTHONHASHSEED", "__DASK_PARENT_PID")}
    with ExitStack() as stack:
        stack.callback(restore, before)
        stack.enter_context(dask().config.set(PATIENCE))
        cluster = stack.enter_context(local_workers(n_workers, security))
        restore(before)
        yield stack.enter_context(distributed().Client(cluster, set_as_default=False, direct_to_workers=True))


def restore(environment: dict[str, str | None]) -> None:
    """Take back what Dask sets in this process whenever it starts a worker."""
    for name, value in environment.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def local_workers(n_workers: int, security: Any) -> Any:
    """One process and one thread for each worker, on the loopback address."""
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
