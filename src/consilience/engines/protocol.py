"""Interface of an engine: who carries the questions of a federation to its sites."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from consilience.runs import EngineOverSites
from consilience.site import Site

T = TypeVar("T")
R = TypeVar("R")


@runtime_checkable
class Engine(Protocol):
    """Carries questions to sites, and work on files to where they are read.

    Any object with these methods can be passed as ``engine`` to :class:`~consilience.Federation`; it need not inherit
    from this class. ``over`` returns an object that asks the sites of a run
    (:class:`~consilience.runs.EngineOverSites`: ``sites``, ``ask`` and ``close``).

    Examples
    --------
    >>> from consilience import Engine, InProcess
    >>> isinstance(InProcess(), Engine)
    True
    """

    def over(self, sites: Iterable[Site], *, in_memory: bool = False) -> EngineOverSites:
        """Return the engine over the sites of a run.

        Parameters
        ----------
        sites : iterable of Site
            In the order of summation.
        in_memory : bool
            Whether the rows of files are kept in memory once they have been read.
        """
        ...

    def each(self, work: Callable[[T, bytes], R], items: Sequence[T], shared: bytes) -> Iterator[tuple[int, R | None]]:
        """Yield the position of each item with ``work(item, shared)``, as they end; None if its workers were lost.

        Parameters
        ----------
        work : callable
            A function of a module, which can be sent to another process; so can the items and the results.
        items : sequence
        shared : bytes
            What all items need, to be sent once to each worker.
        """
        ...

    def close(self) -> None:
        """End what the engine started: processes, connections. A second call does nothing."""
        ...
