"""``consilience doctor`` tells the truth about a site: a key is well only if it signs for the key in the ledger."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from consilience.cli.app import app
from consilience.errors import InvalidInputError
from consilience.kit import folder as folders
from consilience.kit.folder import KEY, SECRET_FILE, SiteFolder, SiteIdentity

RUNNER = CliRunner()


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert RUNNER.invoke(app, ["site", "init", "ash"]).exit_code == 0
    return tmp_path / "ash"


def examined(*options: str) -> dict[str, tuple[bool, str]]:
    """Return what doctor says of the site: whether it is a problem, and the words."""
    found = RUNNER.invoke(app, ["doctor", "--site", "ash", "--json", *options])
    said = {each["what"]: (each["is_problem"], each["said"]) for each in json.loads(found.stdout)["findings"]}
    assert (found.exit_code != 0) == any(is_problem for is_problem, _ in said.values())
    if found.exit_code:
        assert found.exception.problem.value.code == "CSL-133"
    return said


def test_a_whole_folder_is_well_and_its_key_signs(site):
    assert RUNNER.invoke(app, ["doctor"]).exit_code == 0
    found = examined()
    assert not any(is_problem for is_problem, _ in found.values())
    assert found["key"][1] == f"{SiteFolder.open(site).public_key} signs"
    assert "profile hospital" in found["policy"][1]


def test_a_lost_key_is_a_problem_with_a_remedy_that_works(site):
    before = SiteFolder.open(site).public_key
    (site / KEY).unlink()
    is_problem, said = examined()["key"]
    assert is_problem
    assert "identity.pem is missing" in said
    assert "'consilience site key NAME --new'" in said
    made = RUNNER.invoke(app, ["site", "key", "ash", "--new"])
    after = SiteFolder.open(site).public_key
    assert made.exit_code == 0
    assert made.stdout.strip() == after != before
    assert examined()["key"] == (False, f"{after} signs")
    kinds = [(entry.kind, entry.details["key"]) for entry in SiteFolder.open(site).entries]
    assert kinds == [("init", before), ("key", after)]


def test_a_key_that_is_there_is_never_replaced(site):
    data = (site / KEY).read_bytes()
    refused = RUNNER.invoke(app, ["site", "key", "ash", "--new"])
    assert refused.exception.problem.value.code == "CSL-112"
    assert "move it away first" in str(refused.exception)
    assert (site / KEY).read_bytes() == data


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.write_bytes(b"no key"), "not a private key"),
        (lambda path: (path.unlink(), SiteIdentity.new().store(path)), "is not the key that the ledger names"),
        (lambda path: (path.unlink(), path.mkdir()), "identity.pem is missing"),
    ],
)
def test_another_or_a_damaged_key_is_a_problem(site, damage, said):
    damage(site / KEY)
    problems = [text for is_problem, text in examined().values() if is_problem]
    assert len(problems) == 1
    assert said in problems[0]


def test_a_key_that_does_not_sign_for_the_ledger_is_a_problem(site, monkeypatch):
    monkeypatch.setattr(SiteFolder, "_check_key", lambda self: None)  # as if the folder were opened without a look
    (site / KEY).unlink()
    SiteIdentity.new().store(site / KEY)
    is_problem, said = examined()["key"]
    assert is_problem
    assert "identity.pem does not sign for ed25519:" in said


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("00\n")])
def test_a_lost_or_damaged_secret_is_a_problem(site, damage):
    damage(site / SECRET_FILE)
    is_problem, said = examined()["site"]
    assert is_problem
    assert SECRET_FILE in said
    assert "estore" in said


@pytest.mark.skipif(os.name != "posix", reason="needs permissions of POSIX")
@pytest.mark.parametrize("name", [KEY, SECRET_FILE])
def test_a_secret_that_others_can_read_is_a_problem(site, name):
    (site / name).chmod(0o640)
    is_problem, said = examined()["permissions"]
    assert is_problem
    assert f"chmod 600 ash/{name}" in said


def test_a_site_without_a_key_is_told_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(folders, "is_available", lambda: False)
    RUNNER.invoke(app, ["site", "init", "ash"])
    assert examined()["key"][0] is False
    assert "'consilience site key NAME'" in examined()["key"][1]
    policy = tmp_path / "ash" / "policy.toml"
    policy.write_text(policy.read_text().replace("require_signatures = false", "require_signatures = true"))
    assert examined()["key"][0] is True


def test_without_the_package_the_key_cannot_sign_and_the_command_that_installs_it_is_named(site, monkeypatch):
    def missing():
        raise ImportError(folders.NEEDED)

    monkeypatch.setattr(folders, "is_available", lambda: False)
    monkeypatch.setattr(folders, "_library", missing)
    is_problem, said = examined()["key"]
    assert is_problem
    assert "consilience[secure]" in said


def test_without_its_key_nothing_is_signed_and_the_error_says_what_to_do(site):
    (site / KEY).unlink()
    with pytest.raises(InvalidInputError, match="--new"):
        _ = SiteFolder.open(site).identity


def test_a_site_without_a_folder_is_a_problem(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "is not the folder of a site" in examined()["site"][1]
