"""Answers that only the coordinator can read."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from consilience.datasets.hospitals import STUDY
from consilience.errors import InvalidInputError
from consilience.kit.folder import SiteIdentity
from consilience.kit.letters import AnswerLetter
from consilience.kit.mail_folder import answer_name
from consilience.kit.sealed_answers import SealedAnswer, answer_box, open_answer, opened_or_why, seal_answer
from mail_office import TABLES, Office, study_with

CONTRACT = STUDY.replace("[model]", 'trust = "coordinator"\n[model]', 1)
HASH = f"sha256:{64 * '1'}"
LETTER = AnswerLetter(HASH, HASH, 3, "ash", f"sha256:{64 * '2'}", b"sums of rows", envelope={"time": "now"})
KEY = SiteIdentity.new()


def test_the_coordinator_opens_what_was_sealed_and_nobody_reads_it() -> None:
    sealed = seal_answer(LETTER, answer_box(KEY))
    found = open_answer(SealedAnswer.from_text(sealed.to_text()), KEY)
    assert (found.hash, found.answer, found.envelope) == (LETTER.hash, LETTER.answer, LETTER.envelope)
    assert base64.b64encode(LETTER.answer).decode() not in sealed.to_text()
    assert LETTER.answer not in sealed.box
    assert seal_answer(LETTER, answer_box(KEY)).box != sealed.box  # equal answers do not look alike
    assert len(sealed.box) == len(LETTER.to_text()) + 60
    with pytest.raises(InvalidInputError, match="does not open"):
        open_answer(sealed, SiteIdentity.new())
    assert "was not named" in str(opened_or_why(sealed, None))


CHANGES: dict[str, Callable[[SealedAnswer], SealedAnswer]] = {
    "another site": lambda sealed: replace(sealed, site="birch"),
    "another round": lambda sealed: replace(sealed, number=4),
    "another run": lambda sealed: replace(sealed, run=f"sha256:{64 * '3'}"),
    "another question": lambda sealed: replace(sealed, asked=HASH),
    "a changed byte": lambda sealed: replace(sealed, box=sealed.box[:-1] + bytes([sealed.box[-1] ^ 1])),
    "half of it": lambda sealed: replace(sealed, box=sealed.box[: len(sealed.box) // 2]),
    "a weak key": lambda sealed: replace(sealed, box=bytes(32) + sealed.box[32:]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_box_that_was_changed_or_moved_does_not_open(change: str) -> None:
    sealed = CHANGES[change](seal_answer(LETTER, answer_box(KEY)))
    with pytest.raises(InvalidInputError, match="does not open"):
        open_answer(sealed, KEY)


def test_what_is_said_inside_counts() -> None:
    """A site that seals an answer of another one is noticed."""
    inner = seal_answer(replace(LETTER, site="birch"), answer_box(KEY))
    assert open_answer(inner, KEY).site == "birch"
    with pytest.raises(InvalidInputError):
        open_answer(replace(inner, site="ash"), KEY)


@pytest.mark.parametrize(
    "change", [{"round": 0}, {"round": True}, {"box": "%"}, {"box": ""}, {"site": 3}, {"more": 1}, {"version": 2}]
)
def test_other_files_are_no_sealed_answers(change: dict[str, object]) -> None:
    document = json.loads(seal_answer(LETTER, answer_box(KEY)).to_text()) | change
    with pytest.raises(InvalidInputError):
        SealedAnswer.from_text(json.dumps(document))
    with pytest.raises(InvalidInputError, match="x25519"):
        seal_answer(LETTER, "x25519:short")


def test_answers_by_files_are_sealed_and_the_run_has_the_same_model(tmp_path: Path) -> None:
    tables = {name: table.slice(0, table.num_rows // 3) for name, table in TABLES.items()}
    study = study_with('name = "OneShot", refine = 0', text=CONTRACT)
    sealed, plain = (Office(tmp_path / each, study, tables=tables) for each in ("sealed", "plain"))
    plain.identity = None
    done = [office.to_the_end().model.mixture_.to_vector().tolist() for office in (sealed, plain)]
    assert done[0] == done[1]
    for office, kind in ((sealed, SealedAnswer), (plain, AnswerLetter)):
        for name in office.names:
            assert json.loads((office.mail / answer_name(1, name)).read_text())["format"] == kind.kind


def test_an_answer_that_was_overwritten_is_written_again_to_the_byte(tmp_path: Path) -> None:
    office = Office(tmp_path, study_with('name = "OneShot", refine = 0', text=CONTRACT))
    office.advance()
    path = office.answer("ash")
    first = path.read_text()
    assert "ash" not in office.asked()
    for junk in ("{}", seal_answer(LETTER, answer_box(KEY)).to_text(), office.opened(path).to_text()):
        path.write_text(junk)
        assert "ash" in office.asked()
    assert office.answer("ash").read_text() == first
    assert [entry.kind for entry in office.folders["ash"].entries].count("answer") == 1


def test_a_box_of_somebody_else_is_refused_by_name(tmp_path: Path) -> None:
    office = Office(tmp_path, study_with('name = "OneShot", refine = 0', text=CONTRACT))
    office.advance()
    path = office.answer("ash")
    mine = SealedAnswer.from_text(path.read_text())
    (office.mail / "moved.json").write_text(replace(mine, site="birch").to_text())
    office.advance()
    assert any(name == "moved.json" and "does not open" in why for name, why in office.notices)
