"""Set up a worker that is started on this machine: Ctrl-C in the terminal is for the coordinator alone.

The terminal, and a notebook, send the signal to all processes of the session. Dask calls ``dask_setup`` when a worker
starts or is started again.
"""

from __future__ import annotations

import signal
import threading


def dask_setup(worker: object) -> None:  # noqa: ARG001 - Dask's signature
    """Have the process of a worker ignore the interrupt; it ends with the cluster."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
