"""The version of the kit is in what a site records and sends, and people hear of it where sites differ."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from consilience import __version__
from consilience.cli.app import app
from consilience.datasets.hospitals import STUDY
from consilience.estimators.saving import load
from consilience.files.site_file import SiteFile
from consilience.kit import ledger, release
from consilience.kit.folder import SiteFolder
from consilience.kit.letters import RUN, RunFile
from consilience.kit.mail_folder import status_of
from consilience.kit.policy.policy import Policy
from consilience.kit.release import release_fit
from consilience.kit.roster import Roster, check_signature
from consilience.kit.site_fit import fit_at_site
from consilience.kit.study import Study
from consilience.kit.versions import kits_of, kits_text, say_kits
from mail_office import TABLES, Office, study_with

OLDER = "0.0.9"
RUNNER = CliRunner()
pytestmark = pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")


@pytest.fixture
def folder(tmp_path):
    return SiteFolder.init("ash", Policy.of_profile("hospital").to_text(), tmp_path / "sites")


def released(folder, kit=__version__):
    """Fit with a kit of some version, and release with this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "__version__", kit)
        fit_at_site(folder, Study.from_text(STUDY), TABLES["ash"])
    return SiteFile.from_text(release_fit(folder, "A. Person").decode())


def test_entries_and_the_file_state_the_version_and_the_signature_covers_it(folder):
    file = released(folder)
    assert {entry.kind: entry.details["kit"] for entry in folder.entries} == dict.fromkeys(
        ("init", "fit", "release"), __version__
    )
    assert file.envelope["kit"] == __version__
    roster = Roster.from_tables(
        {"format": Roster.kind, "version": 1, "sites": [{"name": "ash", "key": folder.public_key}]}
    )
    assert check_signature(file, roster).status == "signed"
    other = replace(file, envelope={**file.envelope, "kit": OLDER})
    assert check_signature(other, roster).status == "refused"


def test_a_file_states_the_version_that_fitted_also_after_an_upgrade(folder):
    file = released(folder, OLDER)
    assert file.envelope["kit"] == OLDER
    assert folder.entries[-1].details["kit"] == __version__  # who released


def test_a_fit_of_a_kit_that_stated_no_version_is_still_released(folder):
    def without_version(kind, details, *more):
        return as_now(kind, {name: value for name, value in details.items() if name != "kit"}, *more)

    as_now = ledger.line_of
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "line_of", without_version)
        fit_at_site(folder, Study.from_text(STUDY), TABLES["ash"])
    assert "kit" not in folder.entries[-1].details
    file = SiteFile.from_text(release_fit(folder, "A. Person").decode())
    assert "kit" not in file.envelope
    assert kits_of([file]) == {"ash": "not stated"}


def test_combining_says_in_one_sentence_that_sites_differ_and_model_and_report_have_the_versions(tmp_path):
    study, policy = Study.from_text(STUDY), Policy.of_profile("open").to_text()
    (tmp_path / "study.toml").write_text(STUDY)
    for name, kit in (("ash", OLDER), ("birch", __version__)):
        folder = SiteFolder.init(name, policy, tmp_path / "sites")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ledger, "__version__", kit)
            fit_at_site(folder, study, TABLES[name])
        (tmp_path / f"{name}.json").write_bytes(release_fit(folder, "A. Person"))
    paths = [str(tmp_path / each) for each in ("study.toml", "ash.json", "birch.json")]
    out = ["-o", str(tmp_path / "model.json"), "--report", str(tmp_path / "report.html"), "--json"]
    found = RUNNER.invoke(app, ["combine", *paths, *out])
    assert found.exit_code == 0, found.output
    said = f"The sites used different versions of consilience: {OLDER} (ash); {__version__} (birch)."
    assert found.stderr.count(said) == 1
    assert json.loads(found.stdout)["kits"] == {"ash": OLDER, "birch": __version__}
    assert load(tmp_path / "model.json").provenance_["kits"] == f"{OLDER}, {__version__}"
    load(tmp_path / "model.json").save(tmp_path / "again.json")
    assert load(tmp_path / "again.json").provenance_["kits"] == f"{OLDER}, {__version__}"
    report = (tmp_path / "report.html").read_text()
    assert f"{OLDER} (ash); {__version__} (birch)" in report
    assert report.count(f">{OLDER}<") == 1  # in the table of files
    again = RUNNER.invoke(app, ["combine", *paths[:2], "-o", str(tmp_path / "one.json")])
    assert "different versions" not in again.stderr


def answer_with(office, name, kit):
    """Answer as a site whose kit has some version."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release, "__version__", kit)
        office.answer(name)


def test_a_run_by_files_states_the_version_of_the_coordinator_and_of_each_site(tmp_path):
    tables = {name: TABLES[name] for name in ("ash", "birch")}
    office = Office(tmp_path, study_with('name = "OneShot", refine = 1'), tables=tables)
    assert office.advance() is None
    text = (office.mail / RUN).read_text()
    assert RunFile.read(office.mail).kit == __version__
    without = {name: value for name, value in json.loads(text).items() if name != "kit"}
    assert RunFile.from_text(json.dumps(without)) == RunFile.from_text(text)  # of an earlier version: the same run
    for name, kit in (("ash", OLDER), ("birch", __version__)):
        answer_with(office, name, kit)
    assert office.folders["birch"].entries[-1].kind == "answer"
    assert office.folders["birch"].entries[-1].details["kit"] == __version__
    assert status_of(office.mail, identity=office.identity).kits == {"ash": OLDER, "birch": __version__}
    assert office.to_the_end() is not None  # ash was upgraded after the first round
    assert office.notices == []
    (tmp_path / "study.toml").write_text(office.study.to_text())
    office.identity.store(tmp_path / "key.pem")
    folders = ["--mailbox", str(office.mail), "--own", str(office.own), "--key", str(tmp_path / "key.pem")]
    ended = RUNNER.invoke(app, ["run", str(tmp_path / "study.toml"), *folders, "-o", str(tmp_path / "model.json")])
    assert ended.exit_code == 0, ended.output
    assert ended.stderr.count("The sites used different versions of consilience") == 1
    assert load(tmp_path / "model.json").provenance_["kits"] == f"{OLDER} and {__version__}, {__version__}"


def test_a_version_is_text_of_bounded_length():
    files = [SimpleNamespace(site="ash", envelope={"kit": each}) for each in (3, "x" * 1000)]
    (said,) = kits_of(files).values()
    assert len(said) < 100
    assert kits_text({"ash": __version__, "birch": __version__}) == __version__
    assert say_kits(kits_of(files))  # two answers of one site that differ
    assert say_kits({"ash": __version__, "birch": __version__}) == ""
