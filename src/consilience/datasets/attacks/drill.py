"""An engine with attacking sites."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from consilience.datasets.attacks.answers import attacked
from consilience.datasets.attacks.lies import Attack
from consilience.engines.inprocess import InProcess
from consilience.engines.protocol import Engine
from consilience.errors import InvalidInputError
from consilience.messages.codec import fingerprint_of
from consilience.messages.questions import question_for
from consilience.messages.table import decode, encode
from consilience.runs.engine import EngineOverSites, Reply, digest
from consilience.site.site import Site

T = TypeVar("T")
R = TypeVar("R")


class Drill:
    """Engine in which some sites attack.

    Parameters
    ----------
    attacks : mapping of str to Attack
        Attack of each attacking site.
    engine : Engine, optional
        Engine that carries the questions; in-process by default. It is closed with the drill.

    Examples
    --------
    >>> import warnings
    >>> from consilience import Federation, GaussianMixture, SharedCentre
    >>> from consilience.datasets.attacks import Blown
    >>> rng = np.random.default_rng(0)
    >>> def rows():
    ...     return np.r_[rng.normal(0, 1, (60, 2)), rng.normal(6, 1, (40, 2))]
    >>> sites = Federation({name: (rows(),) for name in "abcde"}, engine=Drill({"b": Blown()}))
    >>> with warnings.catch_warnings(action="ignore"):  # that b is not used
    ...     result = sites.fit(GaussianMixture(2, random_state=0), method=SharedCentre(), on_drop="continue")
    >>> [site.name for site in result.sites if site.reasons]
    ['b']
    """

    def __init__(self, attacks: Mapping[str, Attack], engine: Engine | None = None) -> None:
        self.attacks = dict(attacks)
        self.engine: Engine = InProcess() if engine is None else engine

    def over(self, sites: Iterable[Site], *, in_memory: bool = False) -> Attacked:
        """Return the engine for ``sites``."""
        return Attacked(self.engine.over(sites, in_memory=in_memory), self.attacks)

    def each(self, work: Callable[[T, bytes], R], items: Sequence[T], shared: bytes) -> Iterator[tuple[int, R | None]]:
        """Yield ``work(item, shared)`` of each item with its position, as they end."""
        return self.engine.each(work, items, shared)

    def close(self) -> None:
        """Close the engine that carries the questions."""
        self.engine.close()


class Attacked:
    """Wraps an engine and changes the replies of some sites.

    Parameters
    ----------
    engine : EngineOverSites
    attacks : mapping of str to Attack

    Examples
    --------
    >>> from consilience.datasets.attacks import sign_flip
    >>> from consilience.engines import InProcess
    >>> from consilience.model import Rows
    >>> sites = [Site("north", Rows(np.zeros((5, 2)), np.zeros((5, 1))))]
    >>> Attacked(InProcess().over(sites), {"north": sign_flip}).sites
    ('north',)
    """

    def __init__(self, engine: EngineOverSites, attacks: Mapping[str, Attack]) -> None:
        unknown = sorted(set(attacks) - set(engine.sites))
        if unknown:
            raise InvalidInputError(f"attacks: unknown sites {', '.join(unknown)}")
        self._engine, self._attacks = engine, attacks
        self._places = {site: place for place, site in enumerate(engine.sites)}

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in the order of summation."""
        return self._engine.sites

    def ask(
        self, number: int, question: bytes, sites: Sequence[str], *, total: bool, timeout: float | None
    ) -> Iterator[list[Reply]]:
        """Yield replies of single sites as they arrive: sums are formed after the attack."""
        asked = decode(question)
        for replies in self._engine.ask(number, question, sites, total=False, timeout=timeout):
            yield [self._changed(asked, reply) if reply.number == number else reply for reply in replies]

    def close(self) -> None:
        """Close the engine over these sites."""
        self._engine.close()

    def _changed(self, asked: Any, reply: Reply) -> Reply:
        site = reply.sites[0]
        if site not in self._attacks:
            return reply
        question, honest = question_for(asked, self._places[site]), decode(reply.message)
        with np.errstate(invalid="ignore", over="ignore"):
            message = encode(attacked(self._attacks[site], question, honest), fingerprint_of(reply.message))
        return replace(reply, message=message, digests=(digest(message),))
