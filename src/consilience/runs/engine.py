"""Interface between a run and the sites: engines that carry questions and answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol


@dataclass(frozen=True)
class Reply:
    """Reply of a site, or of several sites whose answers were added on the way.

    Parameters
    ----------
    number : int
        Number of the round.
    sites : tuple of str
        The sites that answered. Several sites are a complete subtree (:mod:`consilience.runs.tree_sum`).
    message : bytes
        An encoded answer, or an encoded :class:`Failure`.
    digests : tuple of bytes
        BLAKE2b digest of each site's own answer, computed at the site.
    seconds : float
        Time spent on answering.

    Examples
    --------
    >>> from consilience.runs import Reply
    >>> Reply(1, ("north",), b"", (b"",), 0.1).sites
    ('north',)
    """

    number: int
    sites: tuple[str, ...]
    message: bytes
    digests: tuple[bytes, ...]
    seconds: float


def digest(message: bytes) -> bytes:
    """Compute the BLAKE2b digest of a site's answer, 16 bytes, for the journal.

    Examples
    --------
    >>> from consilience.runs import digest
    >>> len(digest(b"an answer"))
    16
    """
    return blake2b(message, digest_size=16).digest()


class EngineOverSites(Protocol):
    """An engine over the sites of a run: carries encoded questions to them and returns encoded replies.

    ``over`` of an :class:`~consilience.Engine` returns one. It does not raise for failures of sites.

    Examples
    --------
    An engine for one site, without threads, deadlines or a network:

    >>> from consilience.runs import Reply
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
    ...
    ...     def close(self):
    ...         pass
    >>> def mean():
    ...     return (yield Total(Summarise(d=0, q=1))).y_mean
    >>> run(mean(), Alone()).value
    array([1.5])
    """

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of all sites, in the order of summation."""

    def ask(
        self, number: int, question: bytes, sites: Sequence[str], *, total: bool, timeout: float | None
    ) -> Iterator[list[Reply]]:
        """Send a question to ``sites``; yield replies as they arrive, until all have replied or ``timeout`` is over.

        Parameters
        ----------
        number : int
            Number of the round. A reply to an earlier round may arrive too; it carries its own number.
        question : bytes
        sites : sequence of str
            Sites in the order of :attr:`sites`.
        total : bool
            Whether only the sum is needed, so that subtrees may be added on the way.
        timeout : float or None
            Maximum time in seconds.
        """

    def close(self) -> None:
        """End what ``over`` started for these sites; the engine itself stays open."""
