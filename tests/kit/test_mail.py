"""Runs by files in a folder: the same bits as in one process, and files that are not right answers."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience.datasets.hospitals import STUDY
from consilience.engines import DaskCluster
from consilience.errors import (
    AwaitedError,
    EngineError,
    InvalidInputError,
    RefusedError,
    RoundStoppedError,
    SetAsideWarning,
)
from consilience.kit.combination import combine_files, run_over_files, simulate_study
from consilience.kit.folder import SiteFolder, SiteIdentity
from consilience.kit.letters import QuestionLetter, RunFile
from consilience.kit.mail_folder import MailFolder, answer_name, question_name, status_of
from consilience.kit.mail_run import (
    advance_by_files,
    draft_answer,
    finish_answer,
    open_question,
    read_mail,
    start_bytes,
)
from consilience.kit.mailbox import SECRET, Mailbox, begin_folder, read_run
from consilience.kit.release import envelope_of
from consilience.kit.site_fit import site_file
from consilience.kit.study import Study
from consilience.kit.study_model import method_of
from mail_office import TABLES, Office, study_with

PLAN = study_with()
TOTALS = study_with('name = "FederatedEM", totals_only = true')
FEW = {name: table.slice(0, table.num_rows // 3) for name, table in TABLES.items()}  # where as few rounds are enough
WITH_CLIENTS = {
    name: table.append_column("clinic", pa.array([f"{name}-{i // 30}" for i in range(table.num_rows)]))
    for name, table in TABLES.items()
}
CONTRACT = STUDY.replace("[model]", 'trust = "coordinator"\n[model]', 1)
CONSTANT = ('gate_columns = ["age", "severity"]\n', "")


@cache
def start_of_files() -> Any:
    """The model of the sites' files, from which runs by totals start."""
    files = [site_file(PLAN, name, table) for name, table in TABLES.items()]
    (found,) = combine_files(PLAN, files).fits
    return found.fit.mixture


def clustered() -> Study:
    text = study_with('name = "ClusteredClients"', 'clients = "clinic"').to_text()
    text = text.replace('gate = "softmax"', 'gate = "constant"').replace(*CONSTANT)
    return Study.from_text(text.replace("rows_per_expert = 10", "rows_per_expert = 1"))


CASES = {
    "one exchange": (study_with('name = "OneShot", refine = 0', text=CONTRACT), FEW, False),
    "one refinement": (study_with('name = "OneShot", refine = 1'), FEW, False),
    "EM": (study_with('name = "FederatedEM", n_climbs = 2'), TABLES, False),
    "EM by totals": (TOTALS, TABLES, True),
    "one centre": (study_with('name = "SharedCentre", rounds = 6'), FEW, False),  # three rounds alike, three apart
    "clients": (clustered(), WITH_CLIENTS, False),
}


@cache
def simulation(case: str) -> Any:
    """What the study of a case ends with in one process."""
    study, tables, has_start = CASES[case]
    return simulate_study(study, tables, start=start_of_files() if has_start else None).best


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
@pytest.mark.parametrize(
    "case",
    [  # one exchange is the first half of one refinement; tests of faults compare runs by totals
        pytest.param(case, marks=pytest.mark.long if case in {"one exchange", "EM by totals"} else ()) for case in CASES
    ],
)
def test_a_run_by_files_has_the_bits_of_a_simulation(case: str, tmp_path: Path) -> None:
    study, tables, has_start = CASES[case]
    start = start_of_files() if has_start else None
    done = Office(tmp_path, study, start=start, tables=tables).to_the_end()
    expected = simulation(case)
    assert done.fit.log_likelihood == expected.fit.log_likelihood
    np.testing.assert_array_equal(done.fit.mixture.coefficients, expected.fit.mixture.coefficients)
    assert done.models.keys() == expected.models.keys()
    for name, model in done.models.items():
        np.testing.assert_array_equal(model.mixture_.coefficients, expected.models[name].mixture_.coefficients)


@pytest.fixture(scope="module")
def cluster() -> Any:
    pytest.importorskip("distributed")
    with DaskCluster(n_workers=2) as found:
        yield found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
@pytest.mark.parametrize(
    "case",
    ["one refinement", "one centre", *(pytest.param(case, marks=pytest.mark.long) for case in ("EM", "clients"))],
)
def test_a_run_on_a_cluster_has_the_bits_of_a_simulation(case: str, cluster: Any, tmp_path: Path) -> None:
    study, tables, _ = CASES[case]
    for name, table in tables.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
    done = run_over_files(study, str(tmp_path / "*.parquet"), cluster).best
    expected = simulation(case)
    np.testing.assert_array_equal(done.fit.mixture.coefficients, expected.fit.mixture.coefficients)
    for name, model in done.models.items():
        np.testing.assert_array_equal(model.mixture_.coefficients, expected.models[name].mixture_.coefficients)


@pytest.fixture(scope="module")
def start() -> Any:
    return start_of_files()


@pytest.fixture
def office(tmp_path: Path, start: Any) -> Office:
    """A run whose first question is out: the summary of all columns."""
    found = Office(tmp_path, TOTALS, start=start)
    assert found.advance() is None
    return found


def test_the_same_question_has_the_same_reply_and_is_charged_once(office: Office) -> None:
    first = office.opened(office.answer("ash"))
    entries = len(office.folders["ash"].entries)
    again = office.opened(office.answer("ash"))
    assert first.answer == again.answer
    assert len(office.folders["ash"].entries) == entries


def test_a_draft_charges_nothing(office: Office) -> None:
    folder = office.folders["ash"]
    run = RunFile.read(office.mail)
    for _ in range(2):
        assert draft_answer(folder, TOTALS, TABLES["ash"], run, office.latest("ash")).is_new
    assert [entry.kind for entry in folder.entries] == ["init"]


def test_copies_with_other_names_do_no_harm_and_half_a_file_waits(office: Office) -> None:
    for name in office.names:
        office.answer(name)
    whole = office.mail / answer_name(1, "ash")
    shutil.copy(whole, office.mail / "round-01.answer.ash (1).json")
    text = whole.read_text()
    whole.write_text(text[: len(text) // 2])
    (office.mail / "round-01.answer.ash (1).json").unlink()
    assert office.advance() is None
    assert any("ash" in name and "half" in why for name, why in office.notices)
    (office.mail / "Kopie von ash.json").write_text(text)  # the name does not matter
    assert office.advance() is None
    assert office.latest("ash").number == 2


def test_half_a_run_or_study_is_waited_for_and_a_changed_run_is_refused(office: Office) -> None:
    run, study = office.mail / "run.json", office.mail / "study.toml"
    whole, text = run.read_text(), study.read_text()
    assert read_mail(office.mail)[1].identity == office.study.identity
    for cut in range(1, len(text), 97):  # some of these are valid studies
        study.write_text(text[:cut])
        with pytest.raises(AwaitedError, match="not whole"):
            read_mail(office.mail)
    study.unlink()
    with pytest.raises(AwaitedError, match="not whole"):
        read_mail(office.mail)
    study.write_text(text)
    run.write_text(whole[: len(whole) // 2])
    with pytest.raises(AwaitedError, match="not whole"):
        read_mail(office.mail)
    run.write_text(whole.replace('"number": 5', '"number": 6'))
    with pytest.raises(InvalidInputError, match="changed or damaged"):
        read_mail(office.mail)


def test_two_different_answers_of_a_site_are_refused(office: Office) -> None:
    for name in office.names:
        office.answer(name)
    letter = office.opened(office.mail / answer_name(1, "ash"))
    other = office.opened(office.mail / answer_name(1, "birch"))
    second = replace(letter, answer=other.answer)
    second = replace(second, envelope=envelope_of(office.folders["ash"], second.hash))
    (office.mail / "round-01.answer.ash.second.json").write_text(second.to_text())
    office.advance()
    assert any("another answer of ash" in why for _, why in office.notices)
    assert office.latest("ash").number == 1


def test_stale_foreign_and_altered_answers_are_refused_by_name(office: Office) -> None:
    letter = office.opened(office.answer("ash"))
    good = letter.to_text()
    cases = {
        "altered": good.replace('"site": "ash"', '"site": "elm"'),
        "stale": replace(letter, asked="sha256:" + 64 * "0").to_text(),
        "foreign": replace(letter, run="sha256:" + 64 * "0").to_text(),
        "unknown": replace(letter, site="willow").to_text(),
        "early": replace(letter, number=7).to_text(),
    }
    (office.mail / answer_name(1, "ash")).unlink()
    for name, text in cases.items():
        (office.mail / f"round-01.answer.{name}.json").write_text(text)
    assert office.advance() is None
    said = dict(office.notices)
    assert "hash" in said["round-01.answer.altered.json"]
    assert "another question" in said["round-01.answer.stale.json"]
    assert "another run" in said["round-01.answer.foreign.json"]
    assert "not in this run" in said["round-01.answer.unknown.json"]
    assert "has not begun" in said["round-01.answer.early.json"]


def test_a_site_that_nobody_invited_is_told_beforehand_and_refused_by_name(office: Office, tmp_path: Path) -> None:
    folder = SiteFolder.init("willow", office.folders["ash"].policy, tmp_path / "uninvited")
    run = RunFile.read(office.mail)
    letter = open_question(MailFolder(office.mail), run, "willow")
    assert letter is not None
    assert letter.to == ""  # a question to all
    draft = draft_answer(folder, TOTALS, TABLES["oak"], run, letter)
    assert "if its coordinator has asked this site to take part" in " ".join(draft.said)
    name = answer_name(1, "willow")
    (office.mail / name).write_text(finish_answer(folder, draft))
    for each in office.names:
        office.answer(each)
    assert office.advance() is None
    assert dict(office.notices) == {name: "it is of a site that is not in this run"}
    assert office.latest("ash").number == 2  # the others are not held up


def test_another_coordinator_is_noticed(office: Office, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="another coordinator"):
        begin_folder(office.mail, tmp_path / "theirs", office.wanted())
    with pytest.raises(EngineError, match="another study, start or other sites"):
        begin_folder(office.mail, office.own, replace(office.wanted(), start=b""), office.identity)
    for other in (SiteIdentity.new(), None):
        with pytest.raises(EngineError, match="signed with another key, or with none"):
            begin_folder(office.mail, office.own, office.wanted(), other)
    (office.mail / "run.json").unlink()
    with pytest.raises(EngineError, match=r"questions and no run\.json"):
        begin_folder(office.mail, tmp_path / "theirs", office.wanted())
    assert (office.own / SECRET).stat().st_mode & 0o77 == 0


def test_a_question_that_was_changed_or_deleted_in_the_folder_is_written_again(office: Office) -> None:
    path = office.mail / question_name(1)
    text = path.read_text()
    path.write_text(replace(QuestionLetter.from_text(text), asks="something else").to_text())
    assert office.advance() is None
    assert any("changed" in why for _, why in office.notices)
    assert path.read_text() == text
    path.unlink()
    assert office.advance() is None
    assert path.read_text() == text


def test_two_questions_of_one_round_are_not_answered(office: Office) -> None:
    run, letter = RunFile.read(office.mail), office.latest("ash")
    other = replace(letter, asks="something else")
    (office.mail / "other.json").write_text(other.to_text())
    with pytest.raises(RefusedError, match="different questions of round 1"):
        open_question(MailFolder(office.mail), run, "ash")
    (office.mail / "other.json").unlink()
    office.answer("ash")
    with pytest.raises(RefusedError, match="another question of round 1 was answered"):
        draft_answer(office.folders["ash"], TOTALS, TABLES["ash"], run, office.signed(other))


def test_a_question_for_others_or_of_another_study_is_not_answered(office: Office) -> None:
    run, letter, folder = RunFile.read(office.mail), office.latest("ash"), office.folders["ash"]
    for wrong, said in (
        (replace(letter, to="birch"), "not for 'ash'"),
        (replace(letter, study="sha256:" + 64 * "0"), "another study"),
        (replace(letter, run="sha256:" + 64 * "0"), "another run"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            draft_answer(folder, TOTALS, TABLES["ash"], run, wrong)
    with pytest.raises(InvalidInputError, match="another study"):
        draft_answer(folder, PLAN, TABLES["ash"], run, letter)
    assert [entry.kind for entry in folder.entries] == ["init"]


def test_rows_that_change_in_a_run_end_it(office: Office) -> None:
    for name in office.names:
        office.answer(name)
    office.advance()
    with pytest.raises(RefusedError, match="not those with which the run"):
        office.answer("ash", TABLES["ash"].slice(300))


def test_a_deadline_stops_or_drops_and_can_be_moved(tmp_path: Path, start: Any) -> None:
    office = Office(tmp_path, TOTALS, start=start)
    office.days = -1e-6
    with pytest.raises(RoundStoppedError, match="elm"):
        office.advance()
    for name in office.names[:-1]:
        office.answer(name)
    with pytest.raises(RoundStoppedError, match=office.names[-1]):
        office.advance()
    told = RunFile.read(office.mail)
    later = datetime.now(UTC) + timedelta(days=3)
    box = Mailbox(office.mail, office.own, told, until=later, patience=0)
    letter = office.latest("ash")
    with pytest.raises(EngineError, match=f"waits for {office.names[-1]}, until {later:%Y-%m-%d %H:%M}"):
        list(box.ask(1, letter.question, [office.names[-1]], total=True, timeout=None))
    assert office.latest("ash").hash == letter.hash


@pytest.mark.slow
def test_a_late_answer_is_not_counted(tmp_path: Path, start: Any) -> None:
    office = Office(tmp_path, TOTALS, start=start, on_drop="continue")
    assert office.advance() is None
    late = office.names[-1]
    for name in office.names[:-1]:
        office.answer(name)
    copies = list((office.own / "questions").iterdir())
    for path in copies:
        over = replace(QuestionLetter.from_text(path.read_text()), envelope={"due": "2020-01-01T00:00:00Z"})
        path.write_text(office.signed(over).to_text())
    assert office.advance() is None
    assert office.latest("ash").number == 2
    assert office.latest("ash").to == "ash"
    assert office.latest(late).number == 1
    letter = QuestionLetter.from_text((office.mail / question_name(1)).read_text())
    draft = draft_answer(office.folders[late], TOTALS, TABLES[late], RunFile.read(office.mail), letter)
    (office.mail / answer_name(1, late)).write_text(finish_answer(office.folders[late], draft))
    with pytest.warns(SetAsideWarning, match=late):
        done = office.to_the_end()
    assert done.record.dropped.keys() == {late}
    reason = "round 1 was closed without it: it came too late, or could not be used"
    assert office.notices.count((answer_name(1, late), reason)) >= 1
    assert {name for name, _ in office.notices} == {answer_name(1, late)}


def test_another_end_is_of_the_open_question_only(tmp_path: Path, start: Any) -> None:
    office = Office(tmp_path, TOTALS, start=start)
    assert office.advance() is None
    for name in office.names:
        office.answer(name)
    with pytest.raises(AwaitedError, match="round 2 waits"):
        advance_by_files(
            TOTALS,
            office.mail,
            office.own,
            read_run(office.mail, office.own),
            until=datetime(2020, 1, 1, tzinfo=UTC),
            identity=office.identity,
        )
    assert "due" not in office.latest("ash").envelope


def test_status_counts_answers_to_the_question_that_is_there(tmp_path: Path, start: Any) -> None:
    office = Office(tmp_path, TOTALS, start=start)
    assert office.advance() is None
    letter = office.opened(office.answer("ash"))
    assert status_of(office.mail).rounds[0].answered == ("ash",)
    (office.mail / answer_name(1, "ash")).write_text(replace(letter, asked="sha256:" + 64 * "0").to_text())
    assert status_of(office.mail).rounds[0].answered == ()


def test_a_folder_with_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Any) -> None:
    office = Office(tmp_path, TOTALS, start=start)
    assert office.advance() is None
    office.answer("ash")
    monkeypatch.setattr("consilience.kit.mail_folder.MOST_FILES", 2)
    with pytest.raises(EngineError, match="more than 2 files"):
        office.advance()


def test_the_answer_of_one_site_for_another_is_refused_in_signed_runs(tmp_path: Path, start: Any) -> None:
    pytest.importorskip("cryptography")
    office = Office(tmp_path, TOTALS, start=start)
    assert office.advance() is None
    assert read_run(office.mail, office.own).roster is not None
    letter = office.opened(office.answer("ash"))
    (office.mail / answer_name(1, "ash")).unlink()
    (office.mail / "forged.json").write_text(replace(letter, site="birch").to_text())
    (office.mail / "unsigned.json").write_text(
        replace(letter, envelope={**letter.envelope, "signature": None}).to_text()
    )
    office.advance()
    said = dict(office.notices)
    assert said["forged.json"]
    assert said["unsigned.json"]


def test_settings_of_methods_are_checked() -> None:
    assert method_of(PLAN).refine == 0
    for method in ("FederatedEM", "OneShot"):
        assert method_of(study_with(f'name = "{method}", per_site = "gate"')).per_site == "gate"
    for method, said in (
        ('name = "OneShot", plan = 3', "another type"),
        ('name = "OneShot", path = "x"', "no setting"),
        ('name = "FederatedEM", n_climbs = 0', "n_climbs"),
        ('name = "FederatedEM", screen = 1', "another type"),
        ('name = "ClusteredClients"', "model.clients"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            method_of(study_with(method))
    for method in ('name = "eval"', "refine = 1", 'name = "OneShot", support = [1]'):
        with pytest.raises(InvalidInputError):
            study_with(method)


def test_a_start_is_part_of_the_run(start: Any) -> None:
    run = RunFile(PLAN.identity, ("a",), {}, "sha256:" + 64 * "0", start_bytes(start))
    assert RunFile.from_text(run.to_text()).identity == run.identity != replace(run, start=b"").identity
    for text in (
        run.to_text().replace(PLAN.identity[:20], "sha256:" + 13 * "0"),
        run.to_text().replace('"version": 2', '"version": 3'),
        "[]",
    ):
        with pytest.raises(InvalidInputError):
            RunFile.from_text(text)
