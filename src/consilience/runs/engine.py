"""Who carries the questions: the one interface between a run and the sites."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol


@dataclass(frozen=True)
class Reply:
    """What came back from a site, or from several whose answers were added on the way.

    Parameters
    ----------
    number : int
        Number of the round it answers.
    sites : tuple of str
        Whose answer it is. Several sites are a whole branch of the tree (:mod:`consilience.runs.tree_sum`).
    message : bytes
        An encoded answer, or an encoded :class:`Failure`.
    digests : tuple of bytes
        BLAKE2b of each site's own answer, taken where it was given.
    seconds : float
        Spent on answering.

    Examples
    --------
    >>> Reply(1, ("north",), b"", (b"",), 0.1).sites
    ('north',)
    """

    number: int
    sites: tuple[str, ...]
    message: bytes
    digests: tuple[bytes, ...]
    seconds: float


def digest(message: bytes) -> bytes:
    """BLAKE2b of a site's answer, 16 bytes: what the journal keeps of it when a round closes.

    Examples
    --------
    >>> len(digest(b"an answer"))
    16
    """
    return blake2b(message, digest_size=16).digest()


class Engine(Protocol):
    """Carries an encoded question to sites and brings encoded replies back; never raises for what a site does.

    Examples
    --------
    An engine for one site, without threads, deadlines or a network:

    >>> import numpy as np
    >>> from consilience.model import Rows
    >>> from consilience.messages import Summarise, Total
    >>> from consilience.runs import run
    >>> from consilience.site import Site, respond
    >>> class Alone:
    ...     site = Site("north", Rows(np.empty((2, 0)), np.array([[1.0], [2.0]])))
    ...     sites = ("north",)
    ...
    ...     def ask(self, number, question, sites, *, total, timeout):
    ...         yield [Reply(number, self.sites, respond(question, self.site), (b"",), 0.0)]
    >>> def mean():
    ...     return (yield Total(Summarise(d=0, q=1))).y_mean
    >>> run(mean(), Alone()).value
    array([1.5])
    """

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of all sites, in the order of every sum."""
        ...

    def ask(
        self, number: int, question: bytes, sites: Sequence[str], *, total: bool, timeout: float | None
    ) -> Iterator[list[Reply]]:
        """Put a question to ``sites``; replies as they come, until all have replied or ``timeout`` seconds are over.

        Parameters
        ----------
        number : int
            Of the round. A reply to an earlier round may come with the others: it says so.
        question : bytes
        sites : sequence of str
            In the order of :attr:`sites`.
        total : bool
            Whether only the sum matters, so that whole branches of the tree may be added on the way.
        timeout : float or None
        """
        ...
