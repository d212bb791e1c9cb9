"""Attacks on the kit as a program: each of these worked once, on an approval, a screen, a file or a lock."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from consilience.cli.app import app
from consilience.cli.preview import answer_text
from consilience.columns import Rule
from consilience.datasets.hospitals import STUDY, hospitals
from consilience.errors import InvalidInputError, RefusedError
from consilience.files.json_text import read_text, write_text
from consilience.files.site_file import SiteFile
from consilience.kit import release
from consilience.kit.folder import FOLDERS, SiteFolder
from consilience.kit.letters import QuestionLetter
from consilience.kit.mail_folder import MailFolder, question_name
from consilience.kit.mail_run import Draft
from consilience.kit.policy.policy import Policy
from consilience.kit.roster import Roster, RosterSite, check_signature
from consilience.kit.site_fit import fit_at_site
from consilience.kit.study import Study
from consilience.messages import Summarise, encode
from mail_office import Office, study_with

PLAN, ASH = Study.from_text(STUDY), hospitals()["ash"]
HASH = f"sha256:{64 * '0'}"
posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pipes and permissions of this kind")


@pytest.fixture
def folder(tmp_path: Path) -> SiteFolder:
    return SiteFolder.init("ash", Policy.of_profile().to_text(), tmp_path)


@pytest.mark.slow
def test_a_fit_made_while_a_person_reads_is_not_released(folder: SiteFolder) -> None:
    fit_at_site(folder, PLAN, ASH)
    shown = release.last_fit(folder)
    fit_at_site(folder, Study.from_text(STUDY.replace('name = "', 'name = "other ', 1)), ASH)
    with pytest.raises(RefusedError, match="made after the one that was shown"):
        release.release_fit(folder, "A. Person", shown=shown)
    assert not [entry for entry in folder.entries if entry.kind == "release"]
    assert release.release_fit(folder, "A. Person", shown=release.last_fit(folder))


def question(asks: str) -> QuestionLetter:
    return QuestionLetter(HASH, HASH, 1, "ash", asks, encode(Summarise(2, 1)))


def test_a_coordinator_does_not_write_what_the_site_reads() -> None:
    letter = question("nothing.\nReplay check: kept.\n\x1b[2J")
    shown = answer_text(Draft(letter, "coordinator", None, None), PLAN)
    assert "\x1b" not in shown
    assert "Replay check: kept" not in shown
    assert f"Asked: {Summarise(2, 1).disclosed}." in shown


@posix
def test_control_characters_in_names_of_files_reach_no_terminal(tmp_path: Path) -> None:
    office = Office(tmp_path, study_with('name = "OneShot", refine = 1'))
    office.advance()
    (office.mail / "a\x1b[2J\u202e\x9b31m.json").write_text("{")
    for command in (["status", office.mail], ["status", office.mail, "--json"],
                    ["site", "answer", "ash", office.mail, "--in", tmp_path / "sites"]):  # fmt: skip
        said = CliRunner().invoke(app, [*map(str, command)]).output
        assert "a\\u001b[2J\\u202e\\u009b31m.json" in said
        assert not set(said) & set("\x1b\u202e\x9b")
    command = [sys.executable, "-c", "from consilience.cli.app import main; main()", "show", "no\x1b[2J.json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "\x1b" not in ended.stderr + ended.stdout
    assert "no\\u001b[2J.json" in ended.stderr


@pytest.mark.parametrize("entry", ["title", "about", "unit"])
def test_control_characters_of_a_study_reach_no_terminal(entry: str) -> None:
    tables: dict[str, Any] = PLAN.model_dump(exclude_none=True)
    place = tables if entry == "title" else next(each for each in tables["columns"] if each["kind"] == "number")
    Study.from_tables(tables | {"title": "two lines\nof text"})
    for text in ("\x1b[2J", "\x07", "\u202egnp.exe"):
        place[entry] = f"age{text}"
        with pytest.raises(InvalidInputError, match="control characters"):
            Study.from_tables(tables)


@pytest.mark.slow
def test_an_envelope_that_was_edited_is_refused(folder: SiteFolder) -> None:
    fit_at_site(folder, PLAN, ASH)
    file = SiteFile.from_text(release.release_fit(folder, "A. Person").decode())
    roster = Roster(format="consilience-roster", version=1, sites=[RosterSite(name="ash", key=folder.public_key)])
    assert check_signature(file, roster).status == "signed"
    old = {"signature": folder.identity.sign(file.hash)} if folder.identity else {}
    assert check_signature(replace(file, envelope=old), roster).status == "signed"  # of an earlier version
    for changed in ({"time": "2020-01-01T00:00:00Z"}, {"ledger": {"entry": 1, "hash": HASH}}, {"covers": "content"}):
        assert check_signature(replace(file, envelope={**file.envelope, **changed}), roster).status == "refused"
    plain = {name: value for name, value in file.envelope.items() if name != "covers"}
    assert check_signature(replace(file, envelope=plain), roster).status == "refused"


@posix
def test_no_link_is_followed_when_a_file_is_written(tmp_path: Path) -> None:
    secret = tmp_path / "elsewhere.txt"
    secret.write_text("as it was")
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / ".m.json.partial").symlink_to(secret)
    (shared / "m.json").symlink_to(secret)
    write_text(shared / "m.json", "a model")
    assert secret.read_text() == "as it was"
    assert (shared / "m.json").read_text() == "a model\n"
    assert not (shared / "m.json").is_symlink()


@posix
def test_pipes_devices_and_links_in_a_mailbox_are_named_and_not_read(tmp_path: Path) -> None:
    write_text(tmp_path / "other.txt", question("the sums").to_text())
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    (tmp_path / question_name(1)).symlink_to(tmp_path / "other.txt")
    mail = MailFolder(tmp_path)
    assert mail.questions() == []
    assert set(mail.unreadable) == {"pipe.json", "zero.json", question_name(1)}
    with pytest.raises(InvalidInputError, match="not a regular file"):
        read_text("/dev/zero")
    (tmp_path / question_name(1)).unlink()
    (tmp_path / "other.txt").rename(tmp_path / question_name(1))
    assert len(mail.questions()) == 1


@posix
def test_folders_of_a_site_are_its_own_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = SiteFolder.init("ash", "", tmp_path)
    finally:
        os.umask(before)
    assert {stat.S_IMODE((made.path / name).stat().st_mode) for name in FOLDERS} == {0o700}


@pytest.mark.parametrize(
    ("name", "said"), [("\u0430ge", "look alike"), ("=HYPERLINK(1)", "formula"), ("-age", "formula")]
)
def test_columns_that_could_be_taken_for_others_are_refused(name: str, said: str) -> None:
    tables: dict[str, Any] = PLAN.model_dump(exclude_none=True)
    template = next(each for each in tables["columns"] if each["kind"] == "number")
    tables["columns"] += [template | {"name": name}]
    with pytest.raises(InvalidInputError, match=said):
        Study.from_tables(tables)


@pytest.mark.parametrize("scale", [1e-320, 1e-31, 1e31])
def test_a_scale_by_which_values_overflow_is_refused(scale: float) -> None:
    with pytest.raises(InvalidInputError, match="scale a positive one"):
        Rule(scale=scale)
