"""Sites that answer a live run by themselves, within a mandate, over a store that is a folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from consilience.couriers.letter_stores import FolderStore
from consilience.datasets.hospitals import STUDY
from consilience.errors import InvalidInputError, RefusedError, StoreError
from consilience.kit import serving
from consilience.kit.approvals import own_account
from consilience.kit.folder import LEDGER, POLICY, SiteFolder, SiteIdentity
from consilience.kit.letters import RUN, QuestionLetter, RunFile
from consilience.kit.mail_folder import END, answer_name, question_name
from consilience.kit.mail_folder import STUDY as STUDY_FILE
from consilience.kit.mandate import (
    FILE,
    Mandate,
    answered_in,
    approve_question,
    check_mandate,
    draft_mandate,
    keep_draft,
    sign_mandate,
)
from consilience.kit.serving import PAUSE, STATE, Serving, State, serve
from mail_office import PRIVATE, TABLES, Office, start, study_with

CONTRACT = STUDY.replace("[model]", 'trust = "coordinator"\n[model]', 1)
PLAN = study_with('name = "OneShot", refine = 0', text=CONTRACT)
FEW = {name: table.slice(0, table.num_rows // 3) for name, table in TABLES.items()}


class Live:
    """A coordinator with its courier, and sites with a program each."""

    def __init__(self, path: Path, study: Any = PLAN, tables: Any = None, mode: Any = "mandate", **more: Any) -> None:
        self.office = Office(path, study, tables=FEW if tables is None else tables, **more)
        self.store = FolderStore(path / "store")
        self.sites = {}
        assert self.office.identity is not None
        for name, folder in self.office.folders.items():
            pq.write_table(self.office.tables[name], path / f"{name}.parquet")
            mandate = draft_mandate(study, self.office.identity.public_key, mode=mode)
            keep_draft(folder, mandate)
            sign_mandate(folder, mandate, "a data steward")
            self.sites[name] = Serving(folder, self.store, path / f"{name}.parquet")
            self.sites[name].place.mkdir()

    def post(self) -> None:
        """Carry letters between the folder of the coordinator and the store."""
        mail = self.office.mail
        for name in self.office.names:
            for path in mail.iterdir():
                own = ".question" in path.name and path.name.split(".")[2] in ("json", name)
                if path.name in (RUN, STUDY_FILE, END) or own:
                    self.store.write(f"to/{name}", path.name, path.read_bytes())
            for each in self.store.names(f"from/{name}"):
                (mail / each).write_bytes(self.store.read(f"from/{name}", each))

    def to_the_end(self) -> Any:
        for _ in range(60):
            done = self.office.advance()
            self.post()
            states = {name: site.step().word for name, site in self.sites.items()}
            if done is not None:
                return done, states
            self.post()
        raise AssertionError("the run does not end")

    def restart(self, name: str) -> Serving:
        self.sites[name] = Serving(SiteFolder.open(self.office.folders[name].path), self.store, self.sites[name].table)
        return self.sites[name]

    def change(self, name: str, **entries: object) -> Mandate:
        """Sign another mandate."""
        folder = self.office.folders[name]
        mandate = Mandate.read(folder.path / FILE).model_copy(update=entries)
        keep_draft(folder, mandate)
        sign_mandate(folder, mandate, "a data steward")
        return mandate


@pytest.fixture
def live(tmp_path: Path) -> Live:
    found = Live(tmp_path)
    assert found.office.advance() is None
    found.post()
    return found


@pytest.mark.slow
def test_a_live_run_has_the_bits_of_one_by_files_and_each_ledger_one_answer_a_round(tmp_path: Path) -> None:
    study = study_with('name = "OneShot", refine = 1')
    live, office = Live(tmp_path / "live", study), Office(tmp_path / "files", study, tables=FEW)
    done, states = live.to_the_end()
    assert set(states.values()) == {"finished"}
    assert done.model.mixture_.to_vector().tolist() == office.to_the_end().model.mixture_.to_vector().tolist()
    rounds = len(done.record.rounds)
    for folder in live.office.folders.values():
        assert [entry.kind for entry in folder.entries].count("answer") == rounds
        assert answered_in(folder, study.identity) == rounds
        answers = [entry for entry in folder.entries if entry.kind == "answer"]
        assert {entry.details["approved_by"] for entry in answers} == {own_account()}


@pytest.mark.slow
def test_a_live_run_with_noise_ends_and_spends_what_the_mandate_says(tmp_path: Path) -> None:
    live = Live(tmp_path, PRIVATE, TABLES, start=start())
    done, states = live.to_the_end()
    assert done.privacy.epsilon <= 3.0
    assert set(states.values()) == {"finished"}


def test_states_follow_each_other_and_a_restart_sends_the_same_bytes(live: Live) -> None:
    site, name = live.sites["ash"], answer_name(1, "ash")
    assert (site.step().word, site.step().word) == ("answered", "waits")
    first = live.store.read("from/ash", name)
    live.store.write("from/ash", name, b"junk")
    again = live.restart("ash").step()
    assert (again.word, again.said["new"]) == ("answered", False)
    assert live.store.read("from/ash", name) == first
    assert [entry.kind for entry in live.office.folders["ash"].entries].count("answer") == 1


def test_a_site_that_waits_does_not_read_its_ledger(live: Live, monkeypatch: Any) -> None:
    site = live.sites["ash"]
    site.step()
    monkeypatch.setattr(serving, "stored_file", None)
    monkeypatch.setattr(SiteFolder, "entries", None)
    assert site.step().word == "waits"


def test_an_answer_to_an_open_question_is_sent_again_after_some_time(live: Live, monkeypatch: Any) -> None:
    site = live.sites["ash"]
    site.step()
    live.store.write("from/ash", answer_name(1, "ash"), b"junk")
    monkeypatch.setattr(serving, "AGAIN", 0.0)
    assert site.step().word == "answered"
    assert live.store.read("from/ash", answer_name(1, "ash")) != b"junk"


def test_a_person_approves_each_question_or_has_time_to_stop_it(live: Live) -> None:
    live.change("ash", mode="ask")
    state = live.sites["ash"].step()
    assert state.word == "needs-approval"
    letter = live.office.latest("ash")
    assert letter.hash.removeprefix("sha256:").startswith(str(state.said["question"]))
    approve_question(live.office.folders["ash"], letter.hash, "a person")
    assert live.sites["ash"].step().word == "answered"
    live.change("birch", mode="hold", hold_minutes=60)
    assert live.sites["birch"].step().word == "held"
    assert live.restart("birch").step().word == "held"
    (seen,) = live.sites["birch"].place.glob("*.seen")
    os.utime(seen, (0, 0))
    assert live.sites["birch"].step().word == "answered"
    pause = live.sites["elm"].place / PAUSE
    pause.touch()
    assert live.sites["elm"].step().word == "paused"
    pause.unlink()
    assert live.sites["elm"].step().word == "answered"


OUTSIDE = {
    "study": ({"study": f"sha256:{64 * '1'}"}, "is for study"),
    "coordinator": ({"coordinator": SiteIdentity.new().public_key}, "another coordinator"),
    "day": ({"until": "2020-01-01"}, "ended on 2020-01-01"),
    "kind": ({"questions": ["Summarise"]}, "does not list"),
}


@pytest.mark.parametrize("limit", OUTSIDE)
def test_outside_of_the_mandate_nothing_is_answered(limit: str, live: Live) -> None:
    entries, said = OUTSIDE[limit]
    live.change("ash", **entries)
    state = live.sites["ash"].step()
    assert state.word == "refused"
    assert said in str(state.said["reason"])
    assert live.store.names("from/ash") == {}
    assert [entry.kind for entry in live.office.folders["ash"].entries].count("answer") == 0


def test_rounds_are_counted_over_restarts_and_runs(live: Live) -> None:
    folder, run = live.office.folders["ash"], RunFile.read(live.office.mail)
    assert live.sites["ash"].step().word == "answered"
    mandate = live.change("ash", rounds=1)
    with pytest.raises(RefusedError, match="the 1 rounds of the mandate are spent"):
        check_mandate(folder, mandate, PLAN, run, live.office.latest("ash"))


def test_the_budget_of_a_mandate_is_counted_in_the_ledger(tmp_path: Path) -> None:
    live = Live(tmp_path, PRIVATE, TABLES, start=start())
    live.office.advance()
    live.post()
    full = Mandate.read(live.office.folders["ash"].path / FILE)
    assert full.epsilon == pytest.approx(3.0, abs=0.01)
    live.change("ash", epsilon=1.0)
    assert live.sites["ash"].step().word == "answered"  # one part of eight
    small = live.change("ash", epsilon=0.5)
    run, letter = RunFile.read(live.office.mail), live.office.latest("ash")
    with pytest.raises(RefusedError, match=r"would spend more than epsilon 0\.5 of the mandate"):
        check_mandate(live.office.folders["ash"], small, PRIVATE, run, letter)


def test_a_mandate_that_nobody_signed_or_that_was_changed_does_not_count(live: Live) -> None:
    path = live.office.folders["ash"].path / FILE
    path.write_text(path.read_text().replace("rounds = 100", "rounds = 101"))
    state = live.sites["ash"].step()
    assert (state.word, "nobody has signed" in str(state.said["reason"])) == ("refused", True)
    path.unlink()
    assert live.sites["ash"].step().word == "refused"
    with pytest.raises(InvalidInputError, match="coordinator"):
        Mandate.from_text(Mandate.read(live.office.folders["elm"].path / FILE).to_text().replace("ed25519:", "rsa:"))


def test_a_policy_with_approvers_asks_another_account_to_sign(live: Live) -> None:
    folder = live.office.folders["ash"]
    text = folder.policy.replace("approvers = []", 'approvers = ["somebody-else"]')
    (folder.path / POLICY).write_text(text)
    with pytest.raises(RefusedError, match="somebody-else"):
        sign_mandate(folder, Mandate.read(folder.path / FILE), "me")
    assert live.sites["ash"].step().word == "refused"


def test_forged_and_half_letters(live: Live) -> None:
    mail, site = live.office.mail, live.sites["ash"]
    text = (mail / question_name(1)).read_text()
    letter = QuestionLetter.from_text(text)
    for junk in (text[: len(text) // 2], "{}"):
        live.store.write("to/ash", question_name(1), junk.encode())
        assert site.step().word == "waits"  # not a question yet
    changed = QuestionLetter.from_text(text.replace('"to": ""', '"to": ""'))
    object.__setattr__(changed, "asks", "nothing")
    vars(changed).pop("hash", None)
    live.store.write("to/ash", question_name(1), changed.to_text().encode())
    state = site.step()
    assert (state.word, "not signed by the coordinator" in str(state.said["reason"])) == ("refused", True)
    live.store.write("to/ash", STUDY_FILE, (mail / STUDY_FILE).read_bytes()[:200])
    assert site.step().word == "no-run"
    live.store.write("to/ash", RUN, b'{"format"')
    assert site.step().word == "no-run"
    for name in (RUN, STUDY_FILE, question_name(1)):
        live.store.write("to/ash", name, (mail / name).read_bytes())
    live.store.write("to/ash", "notes.exe", b"not fetched")
    assert site.step().word == "answered"
    assert not (site.place / "mail" / "notes.exe").exists()
    assert letter.hash == live.office.latest("ash").hash


class Broken(FolderStore):
    """A store that cannot be reached, or only read."""

    def __init__(self, root: Path, calls: Iterator[bool]) -> None:
        super().__init__(root)
        object.__setattr__(self, "calls", calls)

    def write(self, folder: str, name: str, data: bytes) -> None:
        if next(self.calls):  # type: ignore[attr-defined]
            raise StoreError("the store is full")
        super().write(folder, name, data)


def test_a_store_that_fails_is_tried_again_and_nothing_is_answered_twice(live: Live, monkeypatch: Any) -> None:
    store = Broken(live.store.root, iter([True, True, False, True]))
    site = Serving(live.office.folders["ash"], store, live.sites["ash"].table)
    waits: list[float] = []
    monkeypatch.setattr(serving.time, "sleep", waits.append)
    states: list[State] = []
    serve(site, poll=1.0, until=lambda state: states.append(state) or state.word == "waits")  # type: ignore[func-returns-value]
    assert [state.word for state in states] == ["link-down", "link-down", "answered", "waits"]
    assert [state.said.get("new") for state in states][2] is False  # it was recorded at the first try
    assert waits[1] > waits[0] > 1.0
    assert waits[2] == 0.0
    assert [entry.kind for entry in live.office.folders["ash"].entries].count("answer") == 1
    said = json.loads((site.place / STATE).read_text())
    assert (said["state"], said["pid"]) == ("waits", os.getpid())


def test_two_programs_do_not_serve_one_site_and_half_a_line_of_the_ledger_is_repaired(live: Live) -> None:
    site = live.sites["ash"]
    path = live.office.folders["ash"].path / LEDGER
    with path.open("a") as file:
        file.write('{"half')

    def second(state: State) -> bool:
        with pytest.raises(InvalidInputError, match="another process"):
            serve(site)
        return True

    assert serve(site, until=second).word == "answered"
    assert SiteFolder.open(path.parent).entries[-1].kind == "answer"


def test_what_cannot_be_used_is_a_state(live: Live) -> None:
    site = live.sites["ash"]
    table, site.table = site.table, Path("nowhere.parquet")
    assert serving._tried(site).word == "refused"
    site.table = table
    shutil.rmtree(site.place)  # its copy of the letters is fetched again
    assert serving._tried(site).word == "answered"
