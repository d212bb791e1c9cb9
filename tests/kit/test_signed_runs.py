"""Runs that the coordinator signs: what a site refuses to answer, and what the letters do not name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from consilience.errors import EngineError, InvalidInputError, RefusedError
from consilience.kit.folder import POLICY, SiteIdentity
from consilience.kit.letters import FormerQuestion, QuestionLetter, RunFile
from consilience.kit.mail_folder import MailFolder, question_name, status_of
from consilience.kit.mail_run import check_signed, draft_answer
from consilience.kit.mailbox import SITES, read_run
from consilience.kit.policy.policy import Policy, RunRules
from mail_office import TABLES, Office, study_with

STUDY = study_with('name = "OneShot", refine = 1')
STRICT = RunRules(signed_by="", allow_unsigned=False)
FORMER = Path(__file__).parent / "former_run" / "mail"
Pair = tuple[RunFile, QuestionLetter]


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Office:
    found = Office(tmp_path_factory.mktemp("office"), STUDY, "hospital")
    assert found.advance() is None
    return found


@pytest.fixture
def pair(office: Office) -> Pair:
    return RunFile.read(office.mail), office.latest("ash")


def with_envelope(letter: QuestionLetter, **said: object) -> QuestionLetter:
    return replace(letter, envelope={**letter.envelope, **said})


def signed_by_another(run: RunFile, letter: QuestionLetter) -> Pair:
    return run, with_envelope(letter, signature=SiteIdentity.new().sign(letter.signed_hash))


def stripped(run: RunFile, letter: QuestionLetter) -> Pair:
    """Neither run nor question has a key or a signature; the question names the changed run."""
    bare = replace(run, signer="", signature="")
    return bare, replace(letter, run=bare.identity, envelope={})


def forged_run(run: RunFile, letter: QuestionLetter) -> Pair:
    """The run of somebody who has another key, and names that of the coordinator."""
    other = replace(run, study=f"sha256:{64 * '1'}")
    return replace(other, signature=SiteIdentity.new().sign(other.identity)), letter


CHANGES: dict[str, tuple[Callable[[RunFile, QuestionLetter], Pair], str]] = {
    "other words": (lambda run, letter: (run, replace(letter, asks="nothing")), "question of round 1 is not signed"),
    "another reader": (lambda run, letter: (run, replace(letter, to="ash")), "question of round 1 is not signed"),
    "another round": (lambda run, letter: (run, replace(letter, number=2)), "question of round 2 is not signed"),
    "no signature": (lambda run, letter: (run, replace(letter, envelope={})), "question of round 1 is not signed"),
    "another key": (signed_by_another, "question of round 1 is not signed"),
    "another end": (lambda run, letter: (run, with_envelope(letter, due="2030-01-01T00:00:00Z")), "is not signed"),
    "no cover": (lambda run, letter: (run, with_envelope(letter, covers="")), "is not signed"),
    "keys stripped": (stripped, "the run is not signed"),
    "a forged run": (forged_run, "not signed with the key that it names"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_signed_by_the_coordinator_is_refused(change: str, pair: Pair) -> None:
    check_signed(STRICT, *pair)
    make, said = CHANGES[change]
    with pytest.raises(RefusedError, match=said):
        check_signed(STRICT, *make(*pair))


def test_a_site_that_names_its_coordinator_answers_no_other(pair: Pair) -> None:
    run, letter = pair
    check_signed(RunRules(signed_by=run.signer, allow_unsigned=False), run, letter)
    other = SiteIdentity.new()
    mine = replace(run, signer=other.public_key)
    mine = replace(mine, signature=other.sign(mine.identity))
    asked = replace(letter, run=mine.identity)
    asked = with_envelope(asked, signature=other.sign(asked.signed_hash))
    check_signed(STRICT, mine, asked)  # a stranger's run is signed perfectly well
    with pytest.raises(RefusedError, match="the run is of another coordinator"):
        check_signed(RunRules(signed_by=run.signer, allow_unsigned=False), mine, asked)
    with pytest.raises(RefusedError, match="the run is not signed"):  # whatever the policy says of unsigned runs
        check_signed(RunRules(signed_by=run.signer, allow_unsigned=True), *stripped(run, letter))


def test_unsigned_runs_are_answered_where_the_policy_allows_it(pair: Pair) -> None:
    check_signed(RunRules(signed_by="", allow_unsigned=True), *stripped(*pair))
    assert not Policy.of_profile("hospital").runs.allow_unsigned
    assert Policy.of_profile("open").runs.allow_unsigned
    with pytest.raises(InvalidInputError, match=r"runs\.signed_by"):
        Policy.from_text(Policy.of_profile("open").to_text().replace('signed_by = ""', 'signed_by = "a key"'))


def test_people_are_told_once_whose_key_signs(office: Office, pair: Pair) -> None:
    run, letter = pair
    folder = office.folders["birch"]
    told = " ".join(draft_answer(folder, STUDY, TABLES["birch"], run, letter).said)
    assert run.signer in told
    assert "compare this key" in told
    text = folder.policy.replace('signed_by = ""', f'signed_by = "{run.signer}"')
    (folder.path / POLICY).write_text(text)
    assert run.signer not in " ".join(draft_answer(folder, STUDY, TABLES["birch"], run, letter).said)


def test_what_the_sites_read_names_no_site(office: Office, tmp_path: Path) -> None:
    for path in (office.mail / "run.json", office.mail / question_name(1)):
        assert not any(f'"{name}"' in path.read_text() for name in office.names)
    assert RunFile.read(office.mail).number == len(office.names)
    assert read_run(office.mail, office.own).sites == office.names
    assert status_of(office.mail).missing == len(office.names)
    assert status_of(office.mail).awaited == ()
    assert status_of(office.mail, read_run(office.mail, office.own)).awaited == office.names
    (tmp_path / SITES).write_text('{"sites": ["ash", "mole"], "keys": {}}')
    with pytest.raises(EngineError, match="the sites of another run"):
        read_run(office.mail, tmp_path)


def test_letters_of_the_former_format_are_read_and_keep_their_hashes() -> None:
    run, mail = RunFile.read(FORMER), MailFolder(FORMER)
    assert (run.former, run.sites, run.signer) == (True, ("ash", "birch"), "")
    (one, two) = (letter for _, letter in mail.questions())
    assert isinstance(two, FormerQuestion)
    assert {answer.asked for _, answer in mail.answers()} == {one.hash}
    assert two.head_of("ash") != two.head_of("birch")
    assert [two.is_for(name) for name in ("ash", "birch", "elm")] == [True, True, False]
    assert QuestionLetter.from_text(two.to_text()).hash == two.hash
    assert RunFile.from_text(run.to_text()).identity == run.identity
    found = status_of(FORMER)
    assert [each.answered for each in found.rounds] == [("ash", "birch"), ()]
    assert found.awaited == ("ash", "birch")
    with pytest.raises(RefusedError, match="the run is not signed"):
        check_signed(STRICT, run, two)
