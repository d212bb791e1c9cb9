"""Who carries, stores or forges letters of a live run: what they try is refused by name, and the run has its bits.

``docs/how-to/live-runs.rst`` says what each of them can still do.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from consilience.couriers.letter_stores import FolderStore, WebStore
from consilience.errors import InvalidInputError, StoreError
from consilience.kit import serving
from consilience.kit.combination import simulate_study
from consilience.kit.enrolment import enrol_sites
from consilience.kit.folder import KEY, SiteIdentity
from consilience.kit.letters import RUN, AnswerLetter, QuestionLetter, RunFile
from consilience.kit.mail_folder import STUDY as STUDY_FILE
from consilience.kit.mail_folder import MailFolder, answer_name, question_name
from consilience.kit.mail_watch import watch_run
from consilience.kit.mailbox import read_run
from consilience.kit.release import envelope_of
from consilience.kit.sealed_answers import SealedAnswer, seal_answer
from consilience.messages import Summarise, encode
from letter_servers import free_port, needs_nginx, nginx, roster_of
from mail_office import TABLES, study_with
from serving_office import ServingOffice

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")]
FEW = {name: TABLES[name].slice(0, TABLES[name].num_rows // 3) for name in list(TABLES)[:3]}
PLAN = study_with('name = "OneShot", refine = 1')
FIRST, ANSWER = question_name(1), answer_name(1, "ash")


@cache
def expected() -> Any:
    """What the study ends with in one process."""
    return simulate_study(PLAN, FEW).best.fit.mixture.to_vector().tolist()


def office_at(path: Path) -> ServingOffice:
    store = FolderStore(path / "store")
    return ServingOffice(path, PLAN, lambda _: store, tables=FEW)


def begun(path: Path) -> ServingOffice:
    """A run whose first question lies in the store."""
    office = office_at(path)
    assert office.advance() is None
    office.post.step()
    return office


def check_end(office: ServingOffice, done: Any) -> None:
    """The run has the bits of one process, and each ledger one answer for each round."""
    assert done.fit.mixture.to_vector().tolist() == expected()
    for name in office.names:
        assert office.rounds_in_ledger(name) == [1, 2, 3]


# ---------------------------------------------------------------- who asks

Letters = dict[str, str]


class Forger:
    """Who can write into the store, and has read all that lies there."""

    def __init__(self, office: ServingOffice) -> None:
        self.office, self.run, self.key = office, RunFile.read(office.mail), SiteIdentity.new()
        self.letter = QuestionLetter.from_text((office.mail / FIRST).read_text())

    def signed(self, letter: QuestionLetter) -> QuestionLetter:
        return replace(letter, envelope={**letter.envelope, "signature": self.key.sign(letter.signed_hash)})

    def own_run(self) -> Letters:
        """A whole run of the forger, well signed with a key of its own."""
        mine = replace(self.run, signer=self.key.public_key)
        mine = replace(mine, signature=self.key.sign(mine.identity))
        return {RUN: mine.to_text(), FIRST: self.signed(replace(self.letter, run=mine.identity)).to_text()}

    def stripped(self) -> Letters:
        """The run without keys and signatures, as runs were before they were signed."""
        bare = replace(self.run, signer="", box="", signature="")
        return {RUN: bare.to_text(), FIRST: replace(self.letter, run=bare.identity, envelope={}).to_text()}

    def another_box(self) -> Letters:
        """The run with a key of the forger, for whom answers would be sealed."""
        mine = replace(self.run, box=self.run.box[:7] + "A" + self.run.box[8:])
        return {RUN: mine.to_text(), FIRST: replace(self.letter, run=mine.identity).to_text()}

    def with_envelope(self, **said: object) -> Letters:
        return {FIRST: replace(self.letter, envelope={**self.letter.envelope, **said}).to_text()}

    def asking(self, **changes: Any) -> Letters:
        """A changed question with the signature of the right one."""
        return {FIRST: replace(self.letter, **changes).to_text()}

    def coordinator(self, **changes: Any) -> Letters:
        """Another question of the coordinator itself, well signed."""
        return {FIRST: self.office.signed(replace(self.letter, **changes)).to_text()}


FORGED: dict[str, tuple[Callable[[Forger], Letters], str, str]] = {
    "other words": (lambda who: who.asking(asks="nothing"), "refused", "question of round 1 is not signed"),
    "another question": (
        lambda who: who.asking(question=encode(Summarise(10, 1))),
        "refused",
        "question of round 1 is not signed",
    ),
    "no signature": (lambda who: who.asking(envelope={}), "refused", "question of round 1 is not signed"),
    "another key": (
        lambda who: {FIRST: who.signed(who.letter).to_text()},
        "refused",
        "question of round 1 is not signed",
    ),
    "another deadline": (lambda who: who.with_envelope(due="2030-01-01T00:00:00Z"), "refused", "is not signed"),
    "the run of a stranger": (Forger.own_run, "refused", "the run is of another coordinator"),
    "keys stripped": (Forger.stripped, "refused", "the run is not signed"),
    "answers for another key": (Forger.another_box, "refused", "run.json is not signed with the key that it names"),
    "the run signed by another": (
        lambda who: {RUN: replace(who.run, signature=who.key.sign(who.run.identity)).to_text()},
        "refused",
        "run.json is not signed with the key that it names",
    ),
    "the letter of another site": (lambda who: who.coordinator(to="birch"), "waits", ""),
    "the letter of another run": (lambda who: who.coordinator(run=f"sha256:{64 * '1'}"), "waits", ""),
    "another study": (lambda _: {STUDY_FILE: study_with('name = "OneShot", refine = 0').to_text()}, "no-run", "whole"),
    "half a run": (lambda who: {RUN: who.run.to_text()[:300]}, "no-run", "whole"),
    "junk": (lambda _: {FIRST: "\x00junk"}, "waits", ""),
    "a coordinator who asks another kind": (
        lambda who: who.coordinator(question=encode(Summarise(10, 1))),
        "refused",
        "the mandate does not list Summarise",
    ),
    "a coordinator who asks for another study": (
        lambda who: who.coordinator(study=f"sha256:{64 * '1'}"),
        "refused",
        "another study",
    ),
}


def test_what_somebody_else_asks_or_the_coordinator_outside_of_the_mandate_is_not_answered(tmp_path) -> None:
    office = begun(tmp_path)
    who, store, wrong = Forger(office), office.post.store, []
    for name, (make, word, said) in FORGED.items():
        forged = make(who)
        for file, text in forged.items():
            store.write("to/ash", file, text.encode())
        state = office.step("ash")
        if state.word != word or said not in str(state.said.get("reason", "")):
            wrong.append((name, str(state)))
        for file in forged:
            store.write("to/ash", file, (office.mail / file).read_bytes())
    assert wrong == []
    assert store.names("from/ash") == {}
    assert office.rounds_in_ledger("ash") == []
    check_end(office, office.to_the_end())


def test_an_operator_who_replays_withholds_and_reorders_gets_no_second_answer(tmp_path) -> None:
    office = begun(tmp_path)
    store, place = office.post.store, tmp_path / "store"
    assert office.step("ash").word == "answered"
    first = store.read("to/ash", FIRST)
    assert [office.round(), office.round()] == [None, None]  # the second question is answered
    entries = len(office.folders["ash"].entries)
    latest = question_name(2, "ash")
    second = store.read("to/ash", latest)
    for name, data in ((latest, first), (FIRST, second), (question_name(9), first)):
        store.write("to/ash", name, data)
        state = office.step("ash")
        assert state.word == "waits" or state.said["new"] is False  # the stored bytes, once more
    (place / "to/ash" / latest).unlink()
    (place / "from/birch" / answer_name(1, "birch")).rename(place / "from/birch" / answer_name(3, "birch"))
    assert office.step("ash").said.get("new") is not True
    assert len(office.folders["ash"].entries) == entries
    check_end(office, office.to_the_end())


def test_who_withholds_letters_delays_the_run_and_is_named_by_whom_it_waits_for(tmp_path) -> None:
    office = begun(tmp_path)
    for name in office.names:
        assert office.step(name).word == "answered"
    (tmp_path / "store/from/ash" / ANSWER).rename(tmp_path / "withheld")
    for _ in range(3):
        office.post.step()
        assert office.advance() is None
    assert watch_run(MailFolder(office.mail), read_run(office.mail, office.own), office.identity).awaited == ("ash",)
    (tmp_path / "withheld").rename(tmp_path / "store/from/ash" / ANSWER)
    check_end(office, office.to_the_end())


# ---------------------------------------------------------------- who answers


class Impostor:
    """Who can write answers into the store, knows the run and all that lies there, and has keys of their own."""

    def __init__(self, office: ServingOffice) -> None:
        self.office, self.run = office, RunFile.read(office.mail)
        self.asked = QuestionLetter.from_text((office.mail / FIRST).read_text())
        self.ash = SealedAnswer.from_text((office.post.store.read("from/ash", ANSWER)).decode())

    def answer(self, site: str, key: SiteIdentity | None, by: str = "ash", **changes: Any) -> str:
        """An answer in the name of a site, sealed for the coordinator, and signed with a key."""
        letter = AnswerLetter(self.run.identity, self.run.study, 1, site, self.asked.hash, b"sums of nobody")
        said = envelope_of(self.office.folders[by], letter.hash)
        letter = replace(letter, **changes)
        signature = None if key is None else key.sign(letter.hash)
        envelope = {name: each for name, each in said.items() if name not in ("signature", "covers")}
        signed = {} if signature is None else {"signature": signature}
        return seal_answer(replace(letter, envelope={**envelope, **signed}), self.run.box).to_text()


def ash_key(who: Impostor) -> SiteIdentity:
    return SiteIdentity.load(who.office.folders["ash"].path / KEY)


IMPOSTORS: dict[str, tuple[Callable[[Impostor], str], str]] = {
    "nobody's signature": (lambda who: who.answer("birch", None), "has no signature"),
    "a stranger's signature": (lambda who: who.answer("birch", SiteIdentity.new()), "signature"),
    "ash for birch, with its own key": (lambda who: who.answer("birch", ash_key(who)), "signed with the key of 'ash'"),
    "a site that nobody knows": (lambda who: who.answer("mole", SiteIdentity.new()), "not in this run"),
    "of another run": (
        lambda who: who.answer("birch", SiteIdentity.new(), run=f"sha256:{64 * '1'}"),
        "it is of another run",
    ),
    "to another question": (
        lambda who: who.answer("birch", SiteIdentity.new(), asked=f"sha256:{64 * '1'}"),
        "answers another question",
    ),
    "of a round that has not begun": (lambda who: who.answer("birch", SiteIdentity.new(), number=2), "has not begun"),
    "the letter of ash, renamed": (lambda who: replace(who.ash, site="birch").to_text(), "does not open"),
    "the letter of ash, of another round": (lambda who: replace(who.ash, number=2).to_text(), "has not begun"),
    "half a letter": (lambda who: who.ash.to_text()[:500], "half of a file"),
    "junk": (lambda _: "\x00junk", "half of a file"),
}


def test_an_answer_that_is_not_the_sites_own_is_refused_by_name(tmp_path) -> None:
    office = begun(tmp_path)
    assert office.step("ash").word == "answered"
    who, store, wrong = Impostor(office), office.post.store, []
    name = answer_name(1, "birch")
    for what, (make, said) in IMPOSTORS.items():
        office.notices.clear()
        store.write("from/birch", name, make(who).encode())
        office.post.step()
        assert office.advance() is None
        if not any(said in why for _, why in office.notices):
            wrong.append((what, office.notices[:]))
        for path in office.mail.glob("*.answer.birch*"):
            path.unlink()
    assert wrong == []
    check_end(office, office.to_the_end())


def test_an_answer_among_those_of_another_site_or_another_round_is_not_taken(tmp_path) -> None:
    office = begun(tmp_path)
    assert office.step("ash").word == "answered"
    store = office.post.store
    whole = store.read("from/ash", ANSWER)
    for name in (ANSWER, answer_name(2, "birch"), RUN, FIRST):
        store.write("from/birch", name, whole)
    office.post.step()
    reasons = {name.removeprefix("from/birch/"): why for name, why in office.post.refused.items()}
    assert set(reasons) == {ANSWER, answer_name(2, "birch"), RUN, FIRST}
    assert "an answer of ash, and lies in the folder of birch" in reasons[ANSWER]
    assert "was not asked" in reasons[answer_name(2, "birch")]
    check_end(office, office.to_the_end())


# ---------------------------------------------------------------- who reaches the server


@needs_nginx
def test_a_stolen_enrolment_is_nothing_and_a_stolen_password_neither_asks_nor_answers(tmp_path, monkeypatch) -> None:
    port, office = free_port(), office_at(tmp_path)
    keys = {name: folder.path / KEY for name, folder in office.folders.items()}
    found = enrol_sites(tmp_path / "own", roster_of(keys), f"https://localhost:{port}", ("birch",))
    (certificate := tmp_path / "stolen.crt").write_text(found["ash"].certificate)
    SiteIdentity.new().store(tmp_path / "thief.pem")
    assert "PRIVATE" not in json.dumps(vars(found["ash"]), default=str)
    assert not found["ash"].password
    with pytest.raises(InvalidInputError, match="certificate or key cannot be used"):
        WebStore(found["ash"].address, found["ash"].authority, certificate, tmp_path / "thief.pem", proxy="none")
    monkeypatch.setattr(serving, "AGAIN", 0.0)  # not to wait ten minutes

    def overwrite() -> None:
        for name in store.names("from/birch"):
            thief.write("from/birch", name, b"junk")

    store = FolderStore(tmp_path / "store")
    with nginx(tmp_path / "own", tmp_path / "store", port):
        nobody = WebStore(found["ash"].address, found["ash"].authority, proxy="none")
        thief = WebStore(found["birch"].address, found["birch"].authority, password=found["birch"].password)
        assert (office.advance(), office.post.step()[1]) == (None, 0)
        asked = thief.read("to/birch", FIRST)  # what it can see
        assert office.step("birch").word == "answered"
        answer = answer_name(1, "birch")
        for who, call in (
            (nobody, lambda who: who.names("to/ash")),
            (nobody, lambda who: who.write("from/ash", ANSWER, b"junk")),
            (thief, lambda who: who.write("to/birch", FIRST, asked)),
            (thief, lambda who: who.read("from/birch", answer)),
            (thief, lambda who: who.names("to/ash")),
            (thief, lambda who: who.write("from/ash", ANSWER, b"junk")),
        ):
            with pytest.raises(StoreError, match=r"who asks|another site"):
                call(who)
        for _ in range(20):
            office.round(overwrite)
            for name in office.names:
                office.step(name)  # they deliver again
            office.post.step()
            if (done := office.advance()) is not None:
                break
        for each in (nobody, thief):
            each.close()
    assert any("birch" in name and "half of a file" in why for name, why in office.notices)
    check_end(office, done)
