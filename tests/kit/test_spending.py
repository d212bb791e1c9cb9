"""The budget of a site in its ledger, and folders that were restored from an older copy."""

from __future__ import annotations

import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from consilience.datasets.hospitals import STUDY, hospitals
from consilience.errors import InvalidInputError, RefusedError
from consilience.kit import ledger
from consilience.kit.folder import LEDGER, SiteFolder
from consilience.kit.letters import QuestionLetter, RunFile
from consilience.kit.mail_folder import question_name
from consilience.kit.mail_run import draft_answer
from consilience.kit.mailbox import HEADS
from consilience.kit.policy.policy import Policy
from consilience.kit.release import release_fit
from consilience.kit.site_fit import fit_at_site
from consilience.kit.site_rounds import keep_prepared
from consilience.kit.spending import (
    budget_document,
    budget_text,
    charge,
    charges_in,
    check_spending,
    check_study,
    spent_in,
)
from consilience.kit.study import PrivacyTerms, Study
from consilience.numerics.budget import epsilon_of, rho_of
from mail_office import Office, study_with

RULES = Policy.of_profile("hospital").privacy
THREE = rho_of(3.0, 1e-6)


def folder_in(path: Path) -> SiteFolder:
    return SiteFolder.init("ash", Policy.of_profile("hospital").to_text(), path)


def test_charges_add_over_studies_and_runs_and_stop_at_the_limit(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    most = rho_of(RULES.max_epsilon_ever, RULES.max_delta)
    spent = Fraction(0)
    for number in range(5):
        entry = charge(folder, RULES, THREE, {"study": f"sha256:{number}", "run": "r"})
        spent += THREE
        assert entry.kind == "charge"
        assert Fraction(entry.details["spent"]) == spent == spent_in(SiteFolder.open(folder.path))
    assert most - spent < THREE
    before = folder.entries
    with pytest.raises(RefusedError, match="max_epsilon_ever"):
        charge(folder, RULES, THREE, {"study": "sha256:9", "run": "r"})
    assert folder.entries == before  # refused before it is charged
    charge(folder, RULES, most - spent, {"study": "sha256:9", "run": "r"})  # exactly the rest
    with pytest.raises(RefusedError):
        charge(folder, RULES, Fraction(1, 2**40), {"study": "sha256:9", "run": "r"})
    assert len(charges_in(folder)) == 6


def test_a_charge_is_positive_and_a_damaged_one_is_no_zero(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError):
        check_spending(RULES, Fraction(0), Fraction(0))
    with pytest.raises(InvalidInputError):
        check_spending(RULES, Fraction(1), Fraction(-1, 2))
    for wrong in ({}, {"rho": "1/0"}, {"rho": "-1/3"}, {"rho": None}):
        folder = SiteFolder.init("ash", Policy.of_profile().to_text(), tmp_path / str(wrong).replace("/", "_"))
        ledger.append(folder.path / LEDGER, "charge", wrong)
        with pytest.raises(InvalidInputError, match="entry 2"):
            charge(folder, RULES, THREE, {})


def test_a_study_within_the_limits_of_the_site(tmp_path: Path) -> None:
    check_study(RULES, PrivacyTerms(epsilon=3.0))
    for wanted, said in (
        (PrivacyTerms(epsilon=3.1), "epsilon = 3.1.*max_epsilon"),
        (PrivacyTerms(epsilon=1.0, delta=1e-5), "delta = 1e-05.*max_delta"),
    ):
        with pytest.raises(RefusedError, match=said):
            check_study(RULES, wanted)


def test_two_programs_do_not_spend_the_same_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_in(tmp_path)
    whole = rho_of(RULES.max_epsilon_ever, RULES.max_delta)
    real = check_spending

    def another_first(*args: object) -> None:
        monkeypatch.setattr("consilience.kit.spending.check_spending", real)
        charge(folder, RULES, whole, {"study": "a", "run": "r"})  # while the first one still decides

    monkeypatch.setattr("consilience.kit.spending.check_spending", another_first)
    with pytest.raises(InvalidInputError, match="decide again"):
        charge(folder, RULES, whole, {"study": "b", "run": "r"})
    assert spent_in(folder) == whole


def test_two_programs_do_not_charge_the_same_part_of_a_run(tmp_path: Path) -> None:
    """Each would draw noise of its own, and the site would send more about the study than the study says."""
    folder = folder_in(tmp_path)
    charge(folder, RULES, THREE / 8, {"study": "a", "run": "r", "place": 0})
    with pytest.raises(RefusedError, match="charged before"):
        charge(folder, RULES, THREE / 8, {"study": "a", "run": "r", "place": 0})
    charge(folder, RULES, THREE / 8, {"study": "a", "run": "r", "place": 1})
    charge(folder, RULES, THREE / 8, {"study": "a", "run": "s", "place": 0})
    assert spent_in(folder) == 3 * THREE / 8


def test_the_budget_says_what_was_spent_what_is_left_and_what_it_does_not_cover(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    charge(folder, RULES, THREE / 2, {"study": "sha256:one", "run": "r1"})
    charge(folder, RULES, THREE / 2, {"study": "sha256:one", "run": "r1"})
    found = budget_document(folder, RULES)
    assert found["epsilon"] == pytest.approx(3.0)
    assert [(each["study"], each["answers"]) for each in found["spent_on"]] == [("sha256:one", 2)]
    left = rho_of(found["left"], RULES.max_delta) + THREE
    assert epsilon_of(left, RULES.max_delta) == pytest.approx(RULES.max_epsilon_ever, rel=1e-6)
    assert found["not_covered"] == []
    assert "not covered" not in budget_text(found)
    fit_at_site(folder, Study.from_text(STUDY), hospitals()["ash"])
    release_fit(folder, "A. Person")
    said = budget_text(budget_document(folder, RULES))
    assert "These releases are not covered by the budget" in said
    assert "release for study" in said


# ---------------------------------------------------------------- restored folders


def two_rounds(path: Path) -> tuple[Office, Path]:
    """A run that waits for the answers of its third round, and a copy of a site's folder from before the first."""
    office = Office(path, study_with('name = "OneShot", refine = 1'))
    office.advance()
    copied = path / "copy"
    shutil.copytree(office.folders["ash"].path, copied)
    for _ in range(2):
        for name in office.asked():
            office.answer(name)
        office.advance()
    return office, copied


def test_a_folder_that_was_restored_from_an_older_copy_answers_nothing(tmp_path: Path) -> None:
    office, copied = two_rounds(tmp_path)
    letter = office.latest("ash")
    entries = office.folders["ash"].entries
    assert letter.number == 3
    assert letter.head_of("ash") == (len(entries) - 1, entries[-2].hash)  # the file is made before it is recorded
    assert letter.answered == (letter.run, 2)
    assert letter.to == "ash"  # and no other site is named
    assert not any(name in letter.to_text() for name in office.names if name != "ash")
    folder = office.folders["ash"].path
    shutil.rmtree(folder)
    shutil.copytree(copied, folder)
    with pytest.raises(RefusedError, match="restored from an older copy"):
        office.answer("ash")
    ledger.append(folder / LEDGER, "preview", {"fit": 1})  # a ledger that has grown again is another one
    while len(SiteFolder.open(folder).entries) <= len(entries):
        ledger.append(folder / LEDGER, "preview", {"fit": 1})
    with pytest.raises(RefusedError, match="restored from an older copy"):
        office.answer("ash")
    office.answer("birch")


@pytest.mark.parametrize("approved", [False, True], ids=["answered at once", "drafted and answered later"])
def test_a_copy_from_just_before_the_last_answer_is_noticed_at_the_next_question(
    tmp_path: Path, approved: bool
) -> None:
    """Under contract the answer's file is made before it is recorded, and states an entry that such a copy has."""
    office, copied = two_rounds(tmp_path)
    shutil.rmtree(copied)
    folder, letter = office.folders["ash"], office.latest("ash")
    if approved:
        run = RunFile.read(office.mail)
        draft = draft_answer(folder, office.study, office.tables["ash"], run, letter)
        keep_prepared(folder, draft.subject, "", draft.reply, draft.file)  # of which people are shown the file
        ledger.append(folder.path / LEDGER, "preview", {"fit": 1})
    shutil.copytree(folder.path, copied)
    for name in office.asked():
        office.answer(name)
    again = Office.__new__(Office)
    vars(again).update(vars(office) | {"mail": tmp_path / "mail2", "own": tmp_path / "coordinator2"})
    assert office.advance() is not None
    assert again.advance() is None
    seen = again.latest("ash")
    assert seen.head_of("ash") <= (len(SiteFolder.open(copied).entries), seen.head_of("ash")[1])  # the copy has it
    assert seen.answered == (letter.run, 3)
    shutil.rmtree(folder.path)
    shutil.copytree(copied, folder.path)
    with pytest.raises(RefusedError, match=r"answer of round 3 .*restored from an older copy"):
        again.answer("ash")
    again.answer("birch")


def test_without_the_head_that_the_coordinator_returns_nobody_notices(tmp_path: Path) -> None:
    office, copied = two_rounds(tmp_path)
    folder = office.folders["ash"].path
    shutil.rmtree(folder)
    shutil.copytree(copied, folder)
    path = office.mail / question_name(3, "ash")
    letter = replace(QuestionLetter.from_text(path.read_text()), head=None, answered=None)
    path.write_text(letter.to_text())
    with pytest.raises(RefusedError, match="not signed by the coordinator"):
        office.answer("ash")
    signature = office.identity.sign(letter.signed_hash)
    path.write_text(replace(letter, envelope={**letter.envelope, "signature": signature}).to_text())
    office.answer("ash")


def test_the_next_run_of_a_coordinator_returns_the_heads_of_sites_that_sign(tmp_path: Path) -> None:
    office, copied = two_rounds(tmp_path)
    assert (office.own / HEADS).is_file()
    folder = office.folders["ash"].path
    shutil.rmtree(folder)
    shutil.copytree(copied, folder)
    again = Office.__new__(Office)
    vars(again).update(vars(office) | {"mail": tmp_path / "mail2", "own": tmp_path / "coordinator2"})
    again.advance()
    with pytest.raises(RefusedError, match="restored from an older copy"):
        again.answer("ash")


def test_letters_without_heads_keep_their_hash_and_wrong_heads_are_no_letter() -> None:
    letter = QuestionLetter(f"sha256:{64 * '1'}", f"sha256:{64 * '2'}", 1, "ash", "sums", b"question")
    assert "head" not in letter.content
    assert QuestionLetter.from_text(letter.to_text()).hash == letter.hash
    told = replace(letter, head=(3, f"sha256:{64 * '3'}"))
    assert QuestionLetter.from_text(told.to_text()).head_of("ash") == told.head
    assert told.head_of("birch") is None
    assert told.hash != letter.hash
    placed = replace(told, answered=(f"sha256:{64 * '4'}", 2))
    assert QuestionLetter.from_text(placed.to_text()).answered == placed.answered
    assert placed.hash != told.hash
    for wrong in (("none", 2), (f"sha256:{64 * '4'}", 0)):
        with pytest.raises(InvalidInputError):
            QuestionLetter.from_text(replace(letter, answered=wrong).to_text())
    for wrong in ((0, f"sha256:{64 * '3'}"), (3, "none"), (True, f"sha256:{64 * '3'}")):
        with pytest.raises(InvalidInputError):
            QuestionLetter.from_text(replace(letter, head=wrong).to_text())
