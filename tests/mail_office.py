"""A coordinator and the sites of a study, each with its own folder, and a folder of files between them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from consilience.datasets.hospitals import STUDY, hospitals
from consilience.errors import AwaitedError
from consilience.kit.folder import SiteFolder, SiteIdentity
from consilience.kit.letters import AnswerLetter, QuestionLetter, RunFile
from consilience.kit.mail_folder import MailFolder, answer_name
from consilience.kit.mail_run import (
    advance_by_files,
    begin_by_files,
    draft_answer,
    finish_answer,
    is_answered,
    open_question,
    start_bytes,
)
from consilience.kit.policy.policy import Policy
from consilience.kit.sealed_answers import SealedAnswer, open_answer
from consilience.kit.site_fit import site_file
from consilience.kit.study import Study

TABLES = hospitals()


def study_with(method: str = "", more: str = "", text: str = STUDY) -> Study:
    """The hospitals' study with a method, such as ``name = "OneShot", refine = 1``, and other entries of the model."""
    if more:
        text = text.replace('gate = "softmax"\n', f'gate = "softmax"\n{more}\n')
    return Study.from_text(text.replace("[model]", f"{f'method = {{{method}}}' if method else ''}\n[model]"))


class Office:
    """The people of a run by files, in one process."""

    def __init__(
        self,
        path: Path,
        study: Study,
        profile: str = "open",
        start: Any = None,
        tables: dict[str, pa.Table] | None = None,
        on_drop: Any = "stop",
    ) -> None:
        self.path, self.study, self.start, self.on_drop = path, study, start, on_drop
        self.tables = dict(TABLES if tables is None else tables)
        self.mail, self.own = path / "mail", path / "coordinator"
        text = Policy.of_profile(profile).to_text()
        text = text.replace('allow = ["noise", "limits"]', 'allow = ["noise", "limits", "coordinator"]')
        self.folders = {name: SiteFolder.init(name, text, path / "sites") for name in sorted(self.tables)}
        self.notices: list[tuple[str, str]] = []
        self.days: float | None = None
        self.identity: SiteIdentity | None = SiteIdentity.new()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sites."""
        return tuple(self.folders)

    def wanted(self) -> RunFile:
        """The run that the coordinator wants."""
        keys = {name: key for name, folder in self.folders.items() if (key := folder.public_key)}
        return RunFile(self.study.identity, self.names, keys, "", start_bytes(self.start))

    def advance(self) -> Any:
        """Run as far as the answers in the folder allow; the result, or None."""
        wanted = self.wanted()
        told = begin_by_files(
            self.study,
            self.mail,
            self.own,
            sites=wanted.sites,
            keys=wanted.keys,
            start=self.start,
            identity=self.identity,
        )
        notice = lambda name, why: self.notices.append((name, why))  # noqa: E731
        try:
            done = advance_by_files(
                self.study,
                self.mail,
                self.own,
                told,
                days=self.days,
                on_drop=self.on_drop,
                notice=notice,
                identity=self.identity,
            )
        except AwaitedError:
            return None
        return done.best

    def questions(self) -> list[Path]:
        """Files of questions, the latest last."""
        return sorted(self.mail.glob("*.question*.json"))

    def latest(self, name: str) -> QuestionLetter:
        """The latest question to a site."""
        found = open_question(MailFolder(self.mail), RunFile.read(self.mail), name)
        assert found is not None
        return found

    def signed(self, letter: QuestionLetter) -> QuestionLetter:
        """A question that was changed, signed again with the coordinator's key."""
        assert self.identity is not None
        return replace(letter, envelope={**letter.envelope, "signature": self.identity.sign(letter.signed_hash)})

    def answer(self, name: str, table: pa.Table | None = None) -> Path:
        """Answer the latest question to a site; the path of the answer."""
        letter, rows = self.latest(name), self.tables[name] if table is None else table
        draft = draft_answer(self.folders[name], self.study, rows, RunFile.read(self.mail), letter)
        path = self.mail / answer_name(letter.number, name)
        path.write_text(finish_answer(self.folders[name], draft))
        return path

    def opened(self, sent: Path | str) -> AnswerLetter:
        """The letter of an answer, in a file or as its text."""
        text = sent.read_text() if isinstance(sent, Path) else sent
        if self.identity is None:
            return AnswerLetter.from_text(text)
        return open_answer(SealedAnswer.from_text(text), self.identity)

    def asked(self) -> list[str]:
        """Sites that the latest round asks and that have not answered it."""
        mail, run = MailFolder(self.mail), RunFile.read(self.mail)
        latest = {name: open_question(mail, run, name) for name in self.names}
        number = max(each.number for each in latest.values() if each)
        asked = {name: each for name, each in latest.items() if each and each.number == number}
        return [name for name, each in asked.items() if not is_answered(self.folders[name], mail, each)]

    def to_the_end(self) -> Any:
        """Let all sites answer until the run ends; the result."""
        for _ in range(400):
            if (done := self.advance()) is not None:
                return done
            for name in self.asked():
                self.answer(name)
        raise AssertionError("the run does not end")


# ---------------------------------------------------------------- studies with noise

NOISE = 'trust = "noise"\nmethod = {name = "PrivateScoring"}\nprivacy = {epsilon = 3.0}\n'


def with_noise(privacy: str = "epsilon = 3.0", text: str = STUDY) -> Study:
    """The hospitals' study with noise."""
    return Study.from_text(text.replace("[model]", NOISE.replace("epsilon = 3.0", privacy) + "[model]", 1))


PRIVATE = with_noise()


@cache
def start() -> Any:
    """The fit of one hospital, which may release it."""
    model = site_file(Study.from_text(STUDY), "oak", TABLES["oak"]).fit.model
    assert model is not None
    return model.mixture
