"""Record of a run: questions asked, data sent by each site, and the outcome of each exchange."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from html import escape
from typing import Any

from consilience.runs.consistency import UNLIMITED, Limits

ANSWERED = "answered"
FROM_JOURNAL = "from the journal: answered before the run was resumed"
LATE = "late: recorded, not used"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One site's exchange in a round, or that of several sites whose answers were added on the way.

    Examples
    --------
    >>> from consilience.runs import Exchange
    >>> Exchange(("north",), 120, 300, 0.01, "answered").sites
    ('north',)
    """

    sites: tuple[str, ...]
    bytes_sent: int
    bytes_received: int
    seconds: float
    outcome: str


@dataclass(frozen=True)
class Round:
    """One question and its exchanges.

    Examples
    --------
    >>> from consilience.runs import Round
    >>> Round(1, "Total", "Summarise", "means", ()).question
    'Summarise'
    """

    number: int
    request: str
    question: str
    discloses: str
    exchanges: tuple[Exchange, ...]


@dataclass(frozen=True)
class Record:
    """All rounds of a run.

    Parameters
    ----------
    rounds : tuple of Round
    dropped : dict of str to str
        Sites that were left out, with the reason.
    limits : Limits
        How many rows, and what share of all rows, a site was allowed to state.

    Examples
    --------
    >>> from consilience.runs import Exchange, Record, Round
    >>> rounds = (Round(1, "Total", "Summarise", "means", (Exchange(("north",), 120, 300, 0.01, "answered"),)),)
    >>> print(Record(rounds, {}))
    1 round, 1 site, 120 bytes sent, 300 bytes received
      1 × Total(Summarise): means
    """

    rounds: tuple[Round, ...]
    dropped: dict[str, str]
    limits: Limits = UNLIMITED

    @property
    def bytes_sent(self) -> int:
        """Number of bytes sent to sites."""
        return sum(exchange.bytes_sent for r in self.rounds for exchange in r.exchanges)

    @property
    def bytes_received(self) -> int:
        """Number of bytes received from sites."""
        return sum(exchange.bytes_received for r in self.rounds for exchange in r.exchanges)

    @property
    def sites(self) -> tuple[str, ...]:
        """All participating sites, sorted."""
        return tuple(sorted({site for r in self.rounds for exchange in r.exchanges for site in exchange.sites}))

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one row per round and site; bytes and seconds of answers summed on the way are divided evenly."""
        return [
            {
                "round": r.number,
                "site": site,
                "request": r.request,
                "question": r.question,
                "discloses": r.discloses,
                "bytes_sent": exchange.bytes_sent / len(exchange.sites),
                "bytes_received": exchange.bytes_received / len(exchange.sites),
                "seconds": exchange.seconds / len(exchange.sites),
                "outcome": exchange.outcome,
                "added_with": len(exchange.sites) - 1,
            }
            for r in self.rounds
            for exchange in r.exchanges
            for site in exchange.sites
        ]

    @property
    def _kinds(self) -> Counter[tuple[str, str]]:
        """How often each question was asked, with what its answers disclose."""
        return Counter((f"{r.request}({r.question})", r.discloses) for r in self.rounds)

    @property
    def _size(self) -> str:
        size = f"{self.bytes_sent:,} bytes sent, {self.bytes_received:,} bytes received"
        return f"{_count(len(self.rounds), 'round')}, {_count(len(self.sites), 'site')}, {size}"

    def _repr_html_(self) -> str:
        left = 'style="padding:2px 10px;text-align:left;vertical-align:top"'
        rows = [("times", "question", "what its answers disclose")]
        rows += [(str(times), kind, what) for (kind, what), times in self._kinds.items()]
        table = "".join(f"<tr>{''.join(f'<td {left}>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        notes = [f"left out: {site} ({reason})" for site, reason in self.dropped.items()]
        notes += [f"allowed: {said}" for said in self.limits.sentences()]
        listed = f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in notes)}</ul>" if notes else ""
        head = f"<strong>Record of the run</strong><div>{escape(self._size)}</div>"
        return f"<div>{head}<table>{table}</table>{listed}</div>"

    def __str__(self) -> str:
        lines = [self._size, *(f"  {times} × {kind}: {what}" for (kind, what), times in self._kinds.items())]
        lines += [f"  left out: {site} ({reason})" for site, reason in self.dropped.items()]
        lines += [f"  allowed: {said}" for said in self.limits.sentences()]
        return "\n".join(lines)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"
