"""Engine over a folder that people or a sync service carry: questions and answers are files.

The coordinator writes ``round-02.question.json``, or one file per site where questions differ; sites answer with files
of their own, in any order and at any time. A file that is not a right answer is refused by name and never counted. The
coordinator keeps a copy of each question, so that one which was deleted or changed in the folder is written again.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from consilience.errors import AwaitedError, EngineError, InvalidInputError
from consilience.files.json_text import bytes_hash, parse_json, read_text, write_json
from consilience.kit.folder import SiteIdentity
from consilience.kit.ledger import read_time, time_text
from consilience.kit.letters import RUN, AnswerLetter, QuestionLetter, RunFile, as_head, as_place
from consilience.kit.mail_folder import MailFolder, question_name, write_whole
from consilience.kit.release import COVERS
from consilience.kit.roster import check_signature
from consilience.kit.sealed_answers import AnyAnswer, SealedAnswer, answer_box, opened_or_why
from consilience.messages import decode, encode, question_for
from consilience.messages.questions import Bundle
from consilience.messages.site_names import site_names
from consilience.runs import Journal, Reply, digest

POLL = 2.0
"""Seconds from one look at the folder to the next."""
SECRET, COPIES, HEADS, SITES = "coordinator.key", "questions", "heads.json", "sites.json"
Seen = tuple[tuple[int, str], tuple[str, int]]
"""The entry of a ledger that the last answer of a site states, and run and round of this answer."""


def begin_folder(folder: Path, own: Path, run: RunFile, identity: SiteIdentity | None = None) -> RunFile:
    """Begin a run in a folder, or go on with it; raise an error if the folder is of another run or coordinator.

    Parameters
    ----------
    folder : Path
        Folder that the sites see.
    own : Path
        Folder of the coordinator, with a secret by which another coordinator is told apart; both are made.
    run : RunFile
        The run, with any ``coordinator`` and signer.
    identity : SiteIdentity, optional
        Key with which the coordinator signs the run and its questions.
    """
    names = [question_name(1, site) for site in site_names(run.sites)]
    if len(set(names)) < len(names):
        raise InvalidInputError("the names of two sites give the same name of a file: change one of them")
    mine = replace(run, coordinator=_mark(folder, own))
    if identity is not None:
        mine = replace(mine, signer=identity.public_key, box=answer_box(identity))
        mine = replace(mine, signature=identity.sign(mine.identity))
    if not (folder / RUN).exists():
        if MailFolder(folder).questions():
            raise EngineError(f"{folder.name} has questions and no {RUN}: restore it, or use an empty folder")
        write_whole(own / SITES, write_json({"sites": list(mine.sites), "keys": dict(mine.keys)}))
        write_whole(folder / RUN, mine.to_text())
    there = RunFile.read(folder)
    if there.former:
        mine = replace(mine, former=True, signer="", box="", signature="")
    if there.coordinator != mine.coordinator:
        raise EngineError(f"{folder.name} is of another coordinator: use another folder, or stop that run")
    if there.signer != mine.signer:
        raise EngineError(f"{folder.name} is of a run that was signed with another key, or with none: name that key")
    if there.identity != mine.identity:
        raise EngineError(f"{folder.name} is of a run of another study, start or other sites: use another folder")
    return replace(mine, kit=there.kit)


def read_run(folder: Path, own: Path) -> RunFile:
    """Read the run of a folder, with the names of its sites where the coordinator's own folder has them."""
    run, path = RunFile.read(folder), own / SITES
    if run.sites or not path.is_file():
        return run
    found = parse_json(read_text(path, "the sites of a run"), path.name)
    try:
        named = replace(run, sites=tuple(found["sites"]), keys=dict(found["keys"]), listed=None)
        if named.identity == run.identity:
            return named
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError(f"{path} is damaged: restore it") from error
    raise EngineError(
        f"{path} has the sites of another run than {folder.name}: name the coordinator's folder of this run"
    )


def _mark(folder: Path, own: Path) -> str:
    """Make both folders and the secret, where they are missing; return the hash of the secret."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (own / COPIES).mkdir(parents=True, exist_ok=True, mode=0o700)
        secret = own / SECRET
        if not secret.exists():
            secret.touch(mode=0o600)
        if not secret.read_bytes():
            secret.write_text(secrets.token_hex(32))
        return bytes_hash(secret.read_bytes())
    except OSError as error:
        raise EngineError(f"a folder of the run cannot be used: {error.strerror}") from error


@dataclass
class Mailbox:
    """Engine of a run in a folder.

    Parameters
    ----------
    folder : Path
        Folder that the sites see.
    own : Path
        Folder of the coordinator.
    run : RunFile
    journal : Journal or None
        Journal of the run, by which an answer to a closed round that was not used is told from one that was.
    identity : SiteIdentity or None
        Key with which questions are signed and sealed answers are opened.
    require_signatures : bool
    days : float or None
        Time for the answers to a question, by the clock of the coordinator; None for no limit.
    until : datetime or None
        Another end for the question that is open now; later questions have ``days``.
    patience : float or None
        Seconds after which :class:`~consilience.errors.AwaitedError` is raised; None to wait as long as it takes.
    poll : float
        Seconds from one look at the folder to the next.
    notice : callable or None
        Called with the name of a file that is refused, and why, once for each.
    """

    folder: Path
    own: Path
    run: RunFile
    journal: Journal | None = None
    identity: SiteIdentity | None = None
    require_signatures: bool = False
    days: float | None = None
    until: datetime | None = None
    patience: float | None = None
    poll: float = POLL
    notice: Callable[[str, str], None] | None = None
    refused: dict[str, str] = field(default_factory=dict, init=False)
    """Names of files that were refused, and why."""

    def __post_init__(self) -> None:
        self._mail, self._places = MailFolder(self.folder), {site: i for i, site in enumerate(self.run.sites)}
        self._checked: dict[str, tuple[AnswerLetter, str]] = {}
        self._opened: dict[str, tuple[SealedAnswer, AnswerLetter | str]] = {}

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of all sites, in the order of summation."""
        return self.run.sites

    def ask(
        self, number: int, question: bytes, sites: Sequence[str], *, total: bool, timeout: float | None
    ) -> Iterator[list[Reply]]:
        """Write the question, and yield answers as their files arrive.

        It ends when all are there, when the time of the question or ``timeout`` is over, and with an error when the
        coordinator's patience is.
        """
        if number == 0:  # the question for the rows of a run that is resumed: each site compares its own answers
            return
        letters, began, missing = self._written(number, question, sites), time.monotonic(), list(sites)
        due = min((each for each in map(due_of, letters.values()) if each is not None), default=None)
        while True:
            found = self._answers(number, letters)
            new = [found[site] for site in missing if site in found]
            if new:
                self._keep_heads(new)
                missing = [site for site in missing if site not in found]
                yield [Reply(number, (each.site,), each.answer, (digest(each.answer),), 0.0) for each in new]
            waited = time.monotonic() - began
            if not missing or (due is not None and datetime.now(UTC) >= due):
                return
            if timeout is not None and waited >= timeout:
                return
            if self.patience is not None and waited >= self.patience:
                raise AwaitedError(_awaited(number, missing, due), tuple(missing))
            left = [each - waited for each in (timeout, self.patience) if each is not None]
            time.sleep(max(0.0, min([self.poll, *left])))

    def close(self) -> None:
        """Do nothing: the folder stays as it is, and the run can go on later."""

    # ------------------------------------------------------------------ questions

    def _written(self, number: int, question: bytes, sites: Sequence[str]) -> dict[str, QuestionLetter]:
        """Write the question of a round, unless it is there; return the question to each site."""
        value, seen = decode(question), self._heads()
        is_one = (self.own / COPIES / question_name(number)).exists() or (not seen and len(sites) == len(self.sites))
        if isinstance(value, Bundle) or not is_one:
            parts = {site: question_for(value, self._places[site]) for site in sites}
        else:
            parts = {"": question_for(value, 0)}
        found: dict[str, QuestionLetter] = {}
        for site, part in parts.items():
            head, asks = (self.run.identity, self.run.study, number), part.disclosed
            letter = QuestionLetter(*head, site, asks, encode(part), *seen.get(site, ()))
            found[site] = self._kept(question_name(number, site), letter)
        return dict.fromkeys(sites, found[""]) if "" in found else found

    def _kept(self, name: str, letter: QuestionLetter) -> QuestionLetter:
        """Return the coordinator's copy of a question, which is made if there is none, and put it into the folder."""
        copy, public = self.own / COPIES / name, self.folder / name
        if copy.exists():
            kept = QuestionLetter.from_text(read_text(copy, "a question"))
            if (kept.run, kept.question) != (letter.run, letter.question):
                raise EngineError(f"{copy} asks something else: it is of another run; give another folder")
            letter = kept
            if self.until is not None:
                letter = self._signed(replace(kept, envelope=_times(kept, self.until)))
                write_whole(copy, letter.to_text())
        else:
            due = None if self.days is None else datetime.now(UTC) + timedelta(days=self.days)
            letter = self._signed(replace(letter, envelope=_times(letter, due)))
            write_whole(copy, letter.to_text())
        there = None
        with suppress(InvalidInputError):
            there = QuestionLetter.from_text(read_text(public, "a question")) if public.exists() else letter
        if there is None or there.hash != letter.hash:
            self._refuse(name, "it was changed or damaged in the folder: it is written again")
        if not public.exists() or there is None or (there.hash, there.envelope) != (letter.hash, letter.envelope):
            write_whole(public, letter.to_text())
        return letter

    def _signed(self, letter: QuestionLetter) -> QuestionLetter:
        """Return a question with the coordinator's signature of all that it says, until when it is open included."""
        if self.identity is None:
            return letter
        said = replace(letter, envelope={**letter.envelope, "covers": COVERS})
        return replace(said, envelope={**said.envelope, "signature": self.identity.sign(said.signed_hash)})

    # ------------------------------------------------------------------ ledgers of the sites

    def _heads(self) -> dict[str, Seen]:
        """Return the last answer of each site that was seen; of sites that sign, also in other runs."""
        found: dict[str, Seen] = {}
        for path in (self.own / HEADS, *self.own.parent.glob(f"*/{HEADS}")):
            for site, (key, seen) in read_heads(path).items():
                is_mine = path.parent == self.own or (key and key == self.run.keys.get(site))
                if is_mine and (site not in found or seen[0] > found[site][0]):
                    found[site] = seen
        return found

    def _keep_heads(self, letters: Sequence[AnswerLetter]) -> None:
        """Keep the entries that answers state, each with run and round; the signatures were checked."""
        stated = {each.site: (head, (each.run, each.number)) for each in letters if (head := stated_head(each))}
        if not stated:
            return
        known = read_heads(self.own / HEADS)
        for site, seen in stated.items():
            before = known[site][1] if site in known else seen
            known[site] = self.run.keys.get(site, ""), max(seen, before, key=lambda each: each[0])
        write_whole(self.own / HEADS, json.dumps(known, indent=1) + "\n")

    # ------------------------------------------------------------------ answers

    def _answers(self, number: int, asked: Mapping[str, QuestionLetter]) -> dict[str, AnswerLetter]:
        """Return the right answers to a round that are in the folder; others are refused by name."""
        found: dict[str, AnswerLetter] = {}
        doubtful: set[str] = set()
        for path, sent in self._mail.answers():
            letter = self._open(path.name, sent) if sent.number == number else sent
            if isinstance(letter, str):
                self._refuse(path.name, letter)
            elif reason := self._reason(number, path.name, letter, asked):
                self._refuse(path.name, reason)
            elif letter.number != number or letter.site not in asked:
                continue  # of a round that is closed, or already in the journal
            elif isinstance(letter, AnswerLetter) and found.setdefault(letter.site, letter).hash != letter.hash:
                self._refuse(path.name, f"there is another answer of {letter.site} to the same question: ask it")
                doubtful.add(letter.site)
        for name, reason in self._mail.unreadable.items():
            self._refuse(name, f"{reason} (half of a file, if it is still being copied)")
        return {site: letter for site, letter in found.items() if site not in doubtful}

    def _open(self, name: str, sent: AnyAnswer) -> AnswerLetter | str:
        """Return the letter of an answer, or why it does not open; each file is opened once."""
        if isinstance(sent, AnswerLetter):
            return sent
        known, found = self._opened.get(name, (None, ""))
        if known is not sent:
            found = opened_or_why(sent, self.identity)
            self._opened[name] = sent, found
        return found

    def _reason(self, number: int, name: str, letter: AnyAnswer, asked: Mapping[str, QuestionLetter]) -> str:
        """Return why a file cannot be used in this run; empty if it can, or if it was used in an earlier round."""
        if letter.run != self.run.identity:
            return "it is of another run"
        if letter.site not in self._places:
            return "it is of a site that is not in this run"
        if letter.number != number:
            return self._of_other_round(number, letter)
        if letter.site not in asked:
            return ""
        if letter.asked != asked[letter.site].hash:
            return "it answers another question than the one of this round"
        return self._forgery(name, letter) if isinstance(letter, AnswerLetter) else ""

    def _forgery(self, name: str, letter: AnswerLetter) -> str:
        """Return why the signature of an answer is refused; it is verified once, however often the folder is read."""
        known, said = self._checked.get(name, (None, ""))
        if known is not letter:
            signature = check_signature(letter, self.run.roster, self.require_signatures)
            said = signature.said if signature.status == "refused" else ""
            self._checked[name] = letter, said
        return said

    def _of_other_round(self, number: int, letter: AnyAnswer) -> str:
        """Return why an answer to another round cannot be used; empty if it was used, or if no journal says."""
        if letter.number > number:
            return "it is of a round that has not begun"
        rounds = [] if self.journal is None else self.journal.rounds
        if letter.number > len(rounds):
            return ""
        used = {site for sites, _ in rounds[letter.number - 1].answers for site in sites}
        late = f"round {letter.number} was closed without it: it came too late, or could not be used"
        return "" if letter.site in used else late

    def _refuse(self, name: str, reason: str) -> None:
        if self.refused.get(name) != reason:
            self.refused[name] = reason
            if self.notice is not None:
                self.notice(name, reason)


def stated_head(letter: AnswerLetter) -> tuple[int, str] | None:
    """Return number and hash of the last entry of its ledger that a site states; None if it states none."""
    stated = letter.envelope.get("ledger")
    try:
        return None if not isinstance(stated, dict) else as_head((stated.get("entry"), stated.get("hash")))
    except (TypeError, ValueError):
        return None


def read_heads(path: Path) -> dict[str, tuple[str, Seen]]:
    """Return key and last answer of each site that a coordinator has kept; none if there is no file."""
    if not path.is_file():
        return {}
    found = parse_json(read_text(path, "the entries of ledgers that were seen"), path.name)
    try:
        kept = {str(site): (str(key), as_head(head), as_place(place)) for site, (key, (head, place)) in found.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise EngineError(f"{path} is damaged: restore it, or delete it") from error
    return {site: (key, (head, place)) for site, (key, head, place) in kept.items()}


def _times(letter: QuestionLetter, due: datetime | None) -> dict[str, str]:
    """Return the envelope of a question: when it was written, and until when answers are taken."""
    written = letter.envelope.get("written", time_text())
    return {"written": str(written), **({} if due is None else {"due": time_text(due)})}


def due_of(letter: QuestionLetter) -> datetime | None:
    """Return until when answers to a question are taken; None if there is no limit."""
    stated = letter.envelope.get("due")
    try:
        return None if stated is None else read_time(str(stated))
    except ValueError as error:
        raise InvalidInputError("the time until which answers are taken is not a time") from error


def _awaited(number: int, missing: Sequence[str], due: datetime | None) -> str:
    until = "" if due is None else f", until {due.strftime('%Y-%m-%d %H:%M')} UTC"
    return f"round {number} waits for {', '.join(missing)}{until}"
