"""Who may approve what leaves: named accounts, as many as the policy says, and never the one who prepared it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from consilience.cli.app import app
from consilience.datasets.hospitals import STUDY
from consilience.errors import InvalidInputError, RefusedError
from consilience.files.json_text import bytes_hash
from consilience.kit import approvals
from consilience.kit.folder import SiteFolder
from consilience.kit.letters import RunFile
from consilience.kit.mail_run import Draft, approve_answer, draft_answer, finish_answer, prepare_answer
from consilience.kit.policy.policy import Policy
from consilience.kit.release import approve_fit, is_approved, keep_bytes, last_fit, release_fit
from consilience.kit.site_fit import fit_at_site
from consilience.kit.study import Study
from mail_office import PRIVATE, TABLES, Office, start, study_with

PLAN = Study.from_text(STUDY)
ASH = TABLES["ash"]
As = Callable[[str], None]


@pytest.fixture
def act_as(monkeypatch: pytest.MonkeyPatch) -> As:
    """Let the commands that follow run under another account."""
    return lambda account: monkeypatch.setattr(approvals, "own_account", lambda: account)


def policy(approvers: str = "[]", needed: int = 1) -> str:
    text = Policy.of_profile("hospital").to_text()
    text = text.replace("approvers = []", f"approvers = {approvers}")
    return text.replace("approvals = 1", f"approvals = {needed}")


def fitted(place: Path, act_as: As, approvers: str, needed: int) -> SiteFolder:
    act_as("analyst")
    folder = SiteFolder.init("ash", policy(approvers, needed), place)
    fit_at_site(folder, PLAN, ASH)
    return folder


def test_only_a_named_account_that_did_not_fit_may_approve(tmp_path: Path, act_as: As) -> None:
    folder = fitted(tmp_path, act_as, '["officer", "analyst"]', 1)
    for account, reason in (
        ("analyst", "whoever did so may not approve it: ask one of officer, analyst"),
        ("visitor", "the policy lets officer, analyst approve, and this account is visitor"),
    ):
        act_as(account)
        with pytest.raises(RefusedError, match=reason):
            approve_fit(folder, "Officer", last_fit(folder))
        with pytest.raises(RefusedError, match="1 approvals by officer or analyst, and there are 0"):
            release_fit(folder, "Officer")
    assert [entry.kind for entry in folder.entries] == ["init", "fit"]
    act_as("officer")
    assert approve_fit(folder, "Dr. A", last_fit(folder)) == 0
    act_as("analyst")
    data = release_fit(folder, "anybody")
    *_, approval, release = folder.entries
    assert (approval.kind, approval.details["account"], approval.details["approved_by"]) == (
        "approval", "officer", "Dr. A",
    )  # fmt: skip
    assert (release.details["approved_by"], release.details["account"]) == ("officer", "analyst")
    assert release.details["file"] == bytes_hash(data)
    assert folder.entries[1].details["fitted_by"] == "analyst"


@pytest.mark.parametrize("approvers", ["[]", '["one", "two", "three"]'])
def test_two_approve_where_the_policy_says_so(tmp_path: Path, act_as: As, approvers: str) -> None:
    folder = fitted(tmp_path, act_as, approvers, 2)
    act_as("one")
    assert approve_fit(folder, "One", last_fit(folder)) == 1
    with pytest.raises(RefusedError, match="one has approved this already"):
        approve_fit(folder, "Two", last_fit(folder))
    with pytest.raises(RefusedError, match="2 approvals"):
        release_fit(folder, "One")
    assert not is_approved(folder, last_fit(folder))
    act_as("two")
    assert approve_fit(folder, "Two", last_fit(folder)) == 0
    release_fit(folder, "nobody")
    assert folder.entries[-1].details["approved_by"] == "one, two"


def test_approvals_are_of_one_fit_and_count_under_the_policy_as_it_is_now(tmp_path: Path, act_as: As) -> None:
    folder = fitted(tmp_path, act_as, '["one", "two"]', 1)
    first = last_fit(folder)
    act_as("one")
    approve_fit(folder, "One", first)
    changed = policy('["two"]', 1)
    (folder.path / "policy.toml").write_text(changed)
    with pytest.raises(RefusedError, match="policy was changed"):
        release_fit(folder, "One")
    act_as("analyst")
    fit_at_site(folder, PLAN, ASH)
    with pytest.raises(RefusedError, match="another fit"):
        approve_fit(folder, "One", first)
    assert not is_approved(folder, last_fit(folder))
    with pytest.raises(RefusedError, match="approvals by two, and there are 0"):
        release_fit(folder, "One")


def test_without_the_rule_whoever_releases_approves(tmp_path: Path, act_as: As) -> None:
    folder = fitted(tmp_path, act_as, "[]", 1)
    with pytest.raises(RefusedError, match="names no approvers"):
        approve_fit(folder, "A", last_fit(folder))
    release_fit(folder, "A. Person")
    assert folder.entries[-1].details["approved_by"] == "A. Person"
    assert folder.entries[-1].details["account"] == "analyst"


def test_a_policy_without_the_rule_has_the_identity_that_it_had(tmp_path: Path) -> None:
    usual = Policy.of_profile("hospital")
    older = "\n".join(
        line for line in usual.to_text().splitlines() if not line.startswith(("[approval]", "approvers", "approvals"))
    )
    assert Policy.from_text(older).identity == usual.identity
    assert Policy.from_text(policy('["one"]')).identity != usual.identity
    assert Policy.from_text(policy(needed=2)).profile_text == "hospital"  # it is stricter
    with pytest.raises(InvalidInputError, match="fewer approvers than must approve"):
        Policy.from_text(policy('["one", "one"]', 2))


def test_the_account_is_the_operating_systems_and_not_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    before = approvals.own_account()
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "SUDO_USER"):
        monkeypatch.setenv(name, "officer")
    assert approvals.own_account() == before != "officer"


def test_the_commands_collect_approvals_and_write_the_file_after_the_last(
    tmp_path: Path, act_as: As, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = fitted(tmp_path, act_as, '["one", "two"]', 2)

    def run(*arguments: str, answer: str | None = None) -> tuple[int, str]:
        found = CliRunner().invoke(app, ["site", *arguments], input=answer)
        said = "" if found.exception is None else str(getattr(found.exception, "said", ""))
        return found.exit_code, found.output + said

    release = ("release", "ash", "-o", "ash.json")
    assert "this account is analyst: ask one of them" in run(*release, answer="y\n")[1]
    act_as("one")
    assert run("approve", "ash", answer="n\n")[0] != 0
    status, said = run("approve", "ash", "--by", "Dr. One", answer="y\n")
    assert (status, "1 more must approve" in said) == (6, True)
    assert "What would leave ash" in said  # who is asked has seen it
    assert "one has approved this already" in run(*release, answer="y\n")[1]
    act_as("two")
    assert "without the question" in run(*release, "--no-input")[1]
    assert not (tmp_path / "ash.json").exists()
    assert run("approve", "ash", answer="y\n")[0] == 0
    act_as("analyst")
    assert run(*release, "--no-input")[0] == 0  # two people have decided
    assert (tmp_path / "ash.json").exists()
    kinds = [entry.kind for entry in folder.entries]
    assert kinds == ["init", "fit", "decline", "approval", "approval", "release"]


# ---------------------------------------------------------------- rounds


def asked(place: Path, act_as: As, study: Study, given: object = None) -> tuple[Office, SiteFolder]:
    """A run whose first question is open, and a site of which two approve."""
    act_as("analyst")
    office = Office(place, study, tables={name: TABLES[name].slice(0, 300) for name in ("ash", "oak")}, start=given)
    folder = office.folders["ash"]
    text = folder.policy.replace("approvers = []", 'approvers = ["one", "two", "analyst"]')
    (folder.path / "policy.toml").write_text(text.replace("approvals = 1", "approvals = 2"))
    office.advance()
    return office, folder


def drafted(office: Office, name: str = "ash") -> Draft:
    letter, run = office.latest(name), RunFile.read(office.mail)
    return draft_answer(office.folders[name], office.study, office.tables[name], run, letter, approved_by="somebody")


@pytest.mark.parametrize("way", ["coordinator", "noise"])
def test_an_answer_in_a_round_leaves_when_two_have_approved_it(tmp_path: Path, act_as: As, way: str) -> None:
    study, given = (PRIVATE, start()) if way == "noise" else (study_with('name = "OneShot", refine = 1'), None)
    office, folder = asked(tmp_path, act_as, study, given)
    shown = drafted(office)
    with pytest.raises(RefusedError, match="2 approvals by one or two or analyst, and there are 0"):
        finish_answer(folder, shown)
    assert prepare_answer(folder, shown)[0]
    with pytest.raises(RefusedError, match="analyst prepared this"):
        approve_answer(folder, shown, "A")
    act_as("one")
    assert approve_answer(folder, drafted(office), "One") == 1
    with pytest.raises(RefusedError, match="there are 1"):
        finish_answer(folder, drafted(office))
    assert not [entry for entry in folder.entries if entry.kind in ("charge", "run", "answer")]
    act_as("two")
    last = drafted(office)
    assert approve_answer(folder, last, "Two") == 0
    data = finish_answer(folder, last).encode()
    entry = folder.entries[-1]
    assert (entry.kind, entry.details["approved_by"], entry.details["account"]) == ("answer", "one, two", "two")
    assert (entry.details["file"], entry.details["bytes"]) == (bytes_hash(data), len(data))
    if way == "coordinator":
        assert data == shown.file  # what the first was shown is what leaves
    act_as("visitor")
    assert finish_answer(folder, drafted(office)).encode() == data  # the same bytes again


def test_approvals_of_an_answer_do_not_count_for_another_one(tmp_path: Path, act_as: As) -> None:
    office, folder = asked(tmp_path, act_as, study_with('name = "FederatedEM"'))
    prepare_answer(folder, drafted(office))
    for account in ("one", "two"):
        act_as(account)
        approve_answer(folder, drafted(office), account)
    office.tables["ash"] = TABLES["ash"].slice(0, 299)
    with pytest.raises(RefusedError, match="there are 0"):
        finish_answer(folder, drafted(office))


def test_the_command_to_answer_prepares_collects_approvals_and_writes(tmp_path: Path, act_as: As) -> None:
    office, folder = asked(tmp_path, act_as, study_with('name = "FederatedEM"'))
    pq.write_table(office.tables["ash"], tmp_path / "ash.parquet")
    command = ["site", "answer", "ash", str(office.mail), "--in", str(tmp_path / "sites")]

    def run(*more: str) -> tuple[int, str]:
        found = CliRunner().invoke(app, [*command, *more], input="y\n")
        return found.exit_code, found.output + str(getattr(found.exception, "said", ""))

    status, said = run("--table", str(tmp_path / "ash.parquet"))
    assert (status, "Prepared" in said) == (6, True)
    assert "analyst prepared this" in run()[1]
    act_as("one")
    assert "without the question" in run("--no-input")[1]
    assert run()[0] == 6
    act_as("two")
    assert run()[0] == 0
    kinds = [entry.kind for entry in folder.entries]
    assert kinds == ["init", "draft", "approval", "approval", "run", "answer"]
    (path,) = office.mail.glob("*answer.ash.json")
    assert folder.entries[-1].details["file"] == bytes_hash(path.read_bytes())


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
def test_files_in_a_folder_of_a_group_are_the_groups(tmp_path: Path) -> None:
    folder = SiteFolder.init("ash", policy(), tmp_path)
    assert stat.S_IMODE((folder.path / "policy.toml").stat().st_mode) == 0o600
    (folder.path / "fits").chmod(0o2770)
    kept = folder.path / "fits" / keep_bytes(folder.path / "fits", b"{}").replace("sha256:", "")
    assert stat.S_IMODE(kept.with_suffix(".json").stat().st_mode) == 0o660


WALK = """
import os, sys
from pathlib import Path
import pyarrow.parquet as pq
from consilience.errors import RefusedError
from consilience.kit.folder import SiteFolder
from consilience.kit.release import approve_fit, last_fit, release_fit
from consilience.kit.site_fit import fit_at_site, site_file
from consilience.kit.study import Study
study, table = Study.read("study.toml"), pq.read_table("ash.parquet")
site_file(study, "ash", table)  # all modules are loaded now: the account may not be able to read them
os.setgroups([])
os.setgid(int(sys.argv[3]))
os.setuid(int(sys.argv[2]))
os.umask(0o022)
what, folder = sys.argv[1], SiteFolder.open("ash")
try:
    if what == "fit":
        fit_at_site(folder, study, table)
    elif what == "approve":
        approve_fit(folder, "somebody else", last_fit(folder))
    else:
        release_fit(folder, "somebody else")
except RefusedError as error:
    sys.exit(str(error))
"""


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become other accounts")
def test_accounts_that_share_a_folder_by_their_group_cannot_approve_for_each_other(tmp_path: Path) -> None:
    analyst, officer, group = 61_001, 61_002, 61_000
    place = tmp_path / "site"
    place.mkdir()
    (place / "study.toml").write_text(STUDY)
    pq.write_table(ASH, place / "ash.parquet")
    SiteFolder.init("ash", policy(f'["user {officer}"]'), place)
    for path in [tmp_path, place, *place.rglob("*")]:
        os.chown(path, analyst, group)
        path.chmod(0o2770 if path.is_dir() else 0o660)
    for parent in tmp_path.parents:
        if parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o001)

    def run(user: int, what: str) -> str:
        command = [sys.executable, "-c", WALK, what, str(user), str(group)]
        environment = {**os.environ, "LOGNAME": f"user {officer}", "USER": f"user {officer}"}
        done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
        return done.stderr.strip()

    assert run(analyst, "fit") == ""
    assert f"this account is user {analyst}" in run(analyst, "approve")
    assert "there are 0" in run(analyst, "release")
    assert run(officer, "approve") == ""
    assert run(analyst, "release") == ""
    entries = SiteFolder.open(place / "ash").entries
    assert [entry.kind for entry in entries] == ["init", "fit", "approval", "release"]
    assert entries[-1].details["approved_by"] == f"user {officer}"
