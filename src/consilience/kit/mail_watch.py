"""What a coordinator sees of a run that goes on: who was asked, who waits since when, and which answers are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from consilience.kit.folder import SiteIdentity
from consilience.kit.ledger import time_text
from consilience.kit.letters import AnswerLetter, QuestionLetter, RunFile
from consilience.kit.mail_folder import MailFolder
from consilience.kit.roster import check_signature
from consilience.kit.sealed_answers import AnyAnswer, SealedAnswer, opened_or_why


@dataclass(frozen=True)
class SiteWait:
    """Who waits for whom, at one site.

    Parameters
    ----------
    site : str
    number : int
        Number of the latest question to the site; 0 if it was not asked.
    asked, answered : str
        When the question was written, and when an answer that can be used came, by the clock of the coordinator; empty
        if neither.
    due : str
        Until when answers are taken; empty if there is no limit.
    """

    site: str
    number: int = 0
    asked: str = ""
    answered: str = ""
    due: str = ""


@dataclass(frozen=True)
class MailWatch:
    """What a coordinator sees of a run.

    Parameters
    ----------
    sites : tuple of SiteWait
    refused : mapping of str to str
        Files in the folder of the run that cannot be used, with the reason.
    """

    sites: tuple[SiteWait, ...]
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def awaited(self) -> tuple[str, ...]:
        """Sites that were asked and have not answered."""
        return tuple(each.site for each in self.sites if each.number and not each.answered)


def watch_run(mail: MailFolder, run: RunFile, identity: SiteIdentity | None = None) -> MailWatch:
    """Look at the folder of a run, with the names of its sites and the coordinator's key.

    Sealed answers are opened and signatures checked as the run itself does; nothing is written.
    """
    latest: dict[str, QuestionLetter] = {}
    for _, letter in mail.questions():
        if letter.run == run.identity and letter.number > _number(latest.get(letter.to)):
            latest[letter.to] = letter
    asked = {site: max(latest.get(site), latest.get(""), key=_number) for site in run.sites}
    answered: dict[str, str] = {}
    refused = dict(mail.unreadable)
    for path, sent in mail.answers():
        question = asked.get(sent.site)
        if sent.run != run.identity or question is None or sent.asked != question.hash:
            continue
        if reason := _fault(sent, run, identity):
            refused[path.name] = reason
        else:
            answered[sent.site] = time_text(datetime.fromtimestamp(path.stat().st_mtime, UTC))
    waits = (_wait_of(site, question, answered.get(site, "")) for site, question in asked.items())
    return MailWatch(tuple(waits), refused)


def _number(letter: QuestionLetter | None) -> int:
    return 0 if letter is None else letter.number


def _wait_of(site: str, question: QuestionLetter | None, answered: str) -> SiteWait:
    if question is None:
        return SiteWait(site)
    written, due = (str(question.envelope.get(name, "")) for name in ("written", "due"))
    return SiteWait(site, question.number, written, answered, due)


def _fault(sent: AnyAnswer, run: RunFile, identity: SiteIdentity | None) -> str:
    """Return why an answer cannot be used; empty if it can."""
    letter = opened_or_why(sent, identity) if isinstance(sent, SealedAnswer) else sent
    if not isinstance(letter, AnswerLetter):
        return letter
    signature = check_signature(letter, run.roster)
    return signature.said if signature.status == "refused" else ""
