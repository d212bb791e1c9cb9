"""What a site was asked so far over the same rows, and what it refused."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from consilience.errors import InvalidInputError, RefusedError
from consilience.files.json_text import canonical_bytes, parse_json
from consilience.fit import Expect
from consilience.kit.policy.rounds.leverage import Span, Weighting, weightings_of
from consilience.messages import decode, encode
from consilience.messages.table import decode_question
from consilience.model import Mixture


class RefusedQuestionError(RefusedError):
    """Raised if a question breaks a rule of the site. The rule and the reason never leave the site.

    Parameters
    ----------
    rule : str
        Name of the rule, as in the policy.
    reason : str
        What was found, and what to do, for the people at the site.
    """

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule, self.reason = rule, reason


# ---------------------------------------------------------------- asked

FORMAT, VERSION = "consilience-rounds", 1


@dataclass(frozen=True)
class Asked:
    """What was asked over the rows of a site.

    Parameters
    ----------
    questions : tuple of bytes
        All questions that were answered, encoded, in this run and in earlier ones.
    fits : tuple of bytes
        Mixtures that the site fitted itself and sent, as encoded questions.
    rounds : int
        Number of questions that were answered in this run.
    totals : tuple of bytes
        Totals of the run that the site was shown.
    ended : bool
        Whether the run has ended, by a refusal.
    refusals : int
        Number of refusals in all runs.
    fingerprint : int or None
        Fingerprint of the rows of this run; None before its first answer.
    span : Span or None
        Span of all weights so far. It is computed from the questions and not stored; None if it is not known.
    """

    questions: tuple[bytes, ...] = ()
    fits: tuple[bytes, ...] = ()
    rounds: int = 0
    totals: tuple[bytes, ...] = ()
    ended: bool = False
    refusals: int = 0
    fingerprint: int | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    def next_run(self) -> Asked:
        """Return the state before the first question of another run over the same rows."""
        return replace(self, rounds=0, totals=(), ended=False, fingerprint=None)

    def with_fits(self, fits: Sequence[bytes]) -> Asked:
        """Return the state with mixtures of the site's own that were sent in another way, such as in a file."""
        new = tuple(fit for fit in dict.fromkeys(fits) if fit not in self.fits)
        return replace(self, fits=self.fits + new, span=None) if new else self

    def refused(self) -> Asked:
        """Return the state after a refusal, which ends the run; in a run that has ended nothing changes."""
        return self if self.ended else replace(self, ended=True, refusals=self.refusals + 1)

    def answered(self, question: bytes, totals: Sequence[bytes], fits: Sequence[Mixture], span: Span | None) -> Asked:
        """Return the state after an answer, with the mixtures that the site fitted itself in it."""
        return replace(
            self,
            questions=(*self.questions, question),
            fits=(*self.fits, *(encode(Expect(mixture, information=True)) for mixture in fits)),
            rounds=self.rounds + 1,
            totals=tuple(totals),
            span=span,
        )

    def told(self, totals: Sequence[bytes]) -> Sequence[bytes]:
        """Return the totals of the run; raise an error if they are not one for each round, or differ from before."""
        if tuple(totals[: len(self.totals)]) != self.totals or len(totals) != self.rounds:
            raise RefusedQuestionError(
                "replay_check", "the totals that were shown are not those of the rounds of this run"
            )
        return totals

    @property
    def weightings(self) -> tuple[Weighting, ...]:
        """All weightings so far."""
        asked = tuple(each for question in self.questions for each in weightings_of(decode_question(question)))
        return asked + tuple(each for fit in self.fits for each in own_weightings(decode(fit).mixture))

    def to_text(self) -> str:
        """Return the state as JSON text, for a file that stays at the site."""
        return canonical_bytes(
            {
                "format": FORMAT,
                "version": VERSION,
                "questions": _texts(self.questions),
                "fits": _texts(self.fits),
                "rounds": self.rounds,
                "totals": _texts(self.totals),
                "ended": self.ended,
                "refusals": self.refusals,
                "fingerprint": None if self.fingerprint is None else str(self.fingerprint),
            }
        ).decode()

    @classmethod
    def from_text(cls, text: str) -> Asked:
        """Return the state of JSON text; raise an error if it is damaged."""
        found = parse_json(text, "what a site was asked")
        try:
            if found["format"] != FORMAT or found["version"] != VERSION:
                raise InvalidInputError("the file is not what a site was asked, in a version that this library reads")
            stated = found["fingerprint"]
            return cls(
                _bytes(found["questions"]),
                _bytes(found["fits"]),
                int(found["rounds"]),
                _bytes(found["totals"]),
                bool(found["ended"]),
                int(found["refusals"]),
                None if stated is None else int(stated),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError("what a site was asked is damaged: restore the file; answer nothing") from error


def own_weightings(mixture: Mixture) -> tuple[Weighting, ...]:
    """Return the weights of a site's own fit that its answer shows: no sums over gate weights are in it.

    Products of responsibilities are in the precision of its coefficients, which is no sum over rows: it has rules of
    its own (:mod:`consilience.kit.policy.rules`).
    """
    return (Weighting(mixture, gate=False),)


def _texts(messages: Sequence[bytes]) -> list[str]:
    return [b64encode(message).decode() for message in messages]


def _bytes(texts: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(b64decode(text, validate=True) for text in texts)
