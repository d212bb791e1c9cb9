"""The coordinator of a region, which is one site of another run: it asks its own sites what it is asked, and adds.

The sites of a region answer a run of the region, whose file names the run that it serves. Their answers are checked,
opened and added as in any run by files; upward goes one answer, the sum. So only methods are relayed that ask for
nothing but sums over all sites. Sums have the bits of one run over all sites if regions are whole subtrees of the order
of summation: 2ʲ sites each, but for the last.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import add
from pathlib import Path
from typing import Any

import numpy as np

from consilience.couriers.inbox import Inbox
from consilience.couriers.letter_stores import LetterStore
from consilience.errors import AwaitedError, InvalidInputError, RefusedError, StoreError
from consilience.files.json_text import parse_json, read_text
from consilience.kit.folder import SiteIdentity
from consilience.kit.letters import RUN, AnswerLetter, QuestionLetter, RunFile
from consilience.kit.mail_folder import END, STUDY, MailFolder, answer_name, end_text, is_over, write_whole
from consilience.kit.mail_run import check_signed, open_question, read_mail
from consilience.kit.mailbox import Mailbox, begin_folder
from consilience.kit.policy.policy import RunRules
from consilience.kit.private_files import slug
from consilience.kit.release import coordinator_envelope
from consilience.kit.sealed_answers import seal_answer
from consilience.kit.serving import AGAIN, ANSWERED, FINISHED, LINK, NO_RUN, REFUSED, WAITS, State
from consilience.kit.study import Study
from consilience.kit.study_model import method_of
from consilience.messages import Failure, FailureCode, decode, encode
from consilience.messages.codec import message_fingerprint
from consilience.methods import FederatedEM, PrivateScoring
from consilience.runs.consistency import sum_of
from consilience.runs.tree_sum import RunningSum

ROWS, SENT = "rows.json", "sent"
"""In the own folder of a region: fingerprints of the rows of its sites, and the answers that went upward."""


def check_relayed(study: Study) -> None:
    """Raise an error if a method asks for more than sums over all sites."""
    method = method_of(study)
    is_sums = isinstance(method, FederatedEM) and method.totals_only
    is_noisy = isinstance(method, PrivateScoring) and method.masked is None and not study.is_noisy_file
    if not is_sums and not is_noisy:
        raise InvalidInputError(
            "a region adds the answers of its sites: the method must ask for sums alone, such as FederatedEM with "
            "totals_only = true, or PrivateScoring in rounds without masks"
        )


@dataclass
class Relay:
    """A region in one run.

    Parameters
    ----------
    name : str
        Name of the region in the roster of the run that it serves.
    upper : Path
        Folder with the letters of that run.
    coordinator : str
        Public key of its coordinator, as the region was told it.
    mail, own : Path
        Folder of the region's own run, and the region's private folder.
    sites : mapping of str to str
        Names of the region's sites and their public keys.
    identity : SiteIdentity
        Key with which the region signs, downward and upward.
    """

    name: str
    upper: Path
    coordinator: str
    mail: Path
    own: Path
    sites: Mapping[str, str]
    identity: SiteIdentity
    _box: Mailbox | None = field(default=None, init=False, repr=False)
    _known: tuple[list[tuple[int, int]], RunFile, Study] | None = field(default=None, init=False, repr=False)

    @property
    def refused(self) -> dict[str, str]:
        """Files of the region's sites that were not used, and why."""
        return {} if self._box is None else self._box.refused

    def read(self) -> tuple[RunFile, Study]:
        """Read the run above and its study, once for each version of their files.

        Raises
        ------
        AwaitedError
            If one of them is not there as a whole.
        InvalidInputError
            If the method asks for more than sums.
        """
        states = [path.stat() for name in (RUN, STUDY) if (path := self.upper / name).exists()]
        marks = [(state.st_size, state.st_mtime_ns) for state in states]
        if not (self.upper / RUN).exists():
            raise AwaitedError(f"there is no {RUN} for this region yet", ())
        if self._known is None or self._known[0] != marks:
            run, study = read_mail(self.upper)
            check_relayed(study)
            self._known = marks, run, study
        return self._known[1:]

    def step(self) -> tuple[str, str] | None:
        """Ask the region's sites the latest question, or answer it; return name and text of the answer upward.

        None is returned if there is no question yet. When the run above is finished, so is that of the region.

        Raises
        ------
        AwaitedError
            If sites of the region have not answered yet.
        RefusedError
            If the run or its question is not signed by the coordinator.
        """
        run, study = self.read()
        letter = open_question(MailFolder(self.upper), run, self.name)
        if letter is None:
            return None
        check_signed(RunRules(signed_by=self.coordinator, allow_unsigned=False), run, letter)
        if is_over(self.upper, run):
            self._end(letter.number)
        sent = self.own / SENT / f"{letter.hash.removeprefix('sha256:')}.letter"
        if not sent.exists():
            text = self._sealed(run, letter, self._asked(run, study, letter))
            sent.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(sent, text)
        return answer_name(letter.number, self.name), read_text(sent, "an answer")

    def _end(self, rounds: int) -> None:
        """Mark the end of the region's own run."""
        if (self.mail / RUN).exists() and not (self.mail / END).exists():
            write_whole(self.mail / END, end_text(RunFile.read(self.mail), rounds))

    def _asked(self, run: RunFile, study: Study, letter: QuestionLetter) -> bytes:
        """Return the encoded sum of the answers of the region's sites to a question."""
        box, names = self._begun(run, study), tuple(sorted(self.sites))
        total, marks, failed = RunningSum[Any](len(names), add), dict[str, int](), False
        for replies in box.ask(letter.number, letter.question, names, total=True, timeout=None):
            for reply in replies:
                value, place = decode(reply.message), names.index(reply.sites[0])
                failed |= isinstance(value, Failure)
                if not isinstance(value, Failure):
                    with np.errstate(over="ignore", invalid="ignore"):  # the coordinator judges what it gets
                        total.put((place, place + 1), value)
                    marks[reply.sites[0]] = message_fingerprint(reply.message)
        if failed or len(marks) < len(names):
            return encode(Failure(FailureCode.REFUSED))
        if not self._same_rows(marks):
            return encode(Failure(FailureCode.DATA_CHANGED))
        return encode(total.value(), sum_of(marks.values()))

    def _begun(self, run: RunFile, study: Study) -> Mailbox:
        """Begin the region's own run, or go on with it; its letters are read and checked once."""
        names, serves = tuple(sorted(self.sites)), (run.identity, run.signer)
        wanted = RunFile(study.identity, names, dict(self.sites), "", run.start, parent=serves, wave=run.wave)
        if self._box is None or self._box.run.parent != serves:
            lower = begin_folder(self.mail, self.own, wanted, self.identity)
            if not (self.mail / STUDY).exists():
                write_whole(self.mail / STUDY, study.to_text())
            self._box = Mailbox(
                self.mail, self.own, lower, identity=self.identity, require_signatures=True, patience=0.0
            )
        return self._box

    def _same_rows(self, marks: Mapping[str, int]) -> bool:
        """Return whether the rows of the region's sites are those of its first answer, by their fingerprints."""
        path, now = self.own / ROWS, {site: str(mark) for site, mark in sorted(marks.items())}
        if not path.exists():
            write_whole(path, json.dumps(now, indent=1) + "\n")
        return bool(parse_json(read_text(path, "fingerprints"), path.name) == now)

    def _sealed(self, run: RunFile, letter: QuestionLetter, answer: bytes) -> str:
        """Return the text of the region's answer, signed and sealed as a site's is."""
        found = AnswerLetter(letter.run, letter.study, letter.number, self.name, letter.hash, answer)
        signed = replace(found, envelope=coordinator_envelope(self.identity, found.hash))
        return (seal_answer(signed, run.box) if run.box else signed).to_text()


@dataclass
class RelayServing:
    """A region in a live run: it fetches the letters from above and delivers its answers, as a site does.

    The region's own run is a live run of its own, whose letters another courier carries.

    Parameters
    ----------
    relay : Relay
    store : LetterStore
        With the letters of the run above.
    """

    relay: Relay
    store: LetterStore
    _sent: tuple[str, float] = field(default=("", 0.0), init=False)

    def __post_init__(self) -> None:
        self._inbox = Inbox(self.store, slug(self.name), self.relay.upper)

    @property
    def name(self) -> str:
        """Name of the region in the roster of the run above."""
        return self.relay.name

    @property
    def place(self) -> Path:
        """Folder of the region's state."""
        return self.relay.own

    def begin(self) -> None:
        """Do nothing: letters and answers are whole files."""

    def step(self) -> State:
        """Do what can be done now, and return the state."""
        try:
            self._inbox.fetch()
            run, _ = self.relay.read()
        except StoreError as error:
            return State(LINK, {"reason": str(error)})
        except AwaitedError as error:
            return State(NO_RUN, {"reason": str(error)})
        except InvalidInputError as error:
            return State(REFUSED, {"reason": str(error)})
        about: dict[str, object] = {"run": run.identity[7:19]}
        try:
            return self._after(run, about)
        except StoreError as error:
            return State(LINK, {"reason": str(error)})
        except (RefusedError, InvalidInputError) as error:
            return State(REFUSED, {**about, "reason": str(error)})

    def _after(self, run: RunFile, about: dict[str, object]) -> State:
        """Ask below, or deliver the answer; the region's own run ends with the one above."""
        try:
            found = self.relay.step()
        except AwaitedError as error:
            return State(WAITS, {**about, "awaited": ",".join(error.sites), "unused": len(self.relay.refused)})
        if found is None:
            return State(WAITS, about)
        name, text = found
        if self._sent[0] == name and time.monotonic() - self._sent[1] < AGAIN:
            return State(FINISHED if is_over(self.relay.upper, run) else WAITS, about)
        self._inbox.deliver(name, text)
        self._sent = name, time.monotonic()
        return State(ANSWERED, {**about, "file": name, "bytes": len(text)})
