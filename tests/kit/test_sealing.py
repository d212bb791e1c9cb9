from dataclasses import replace

import pyarrow as pa
import pytest

from consilience.columns import Column
from consilience.errors import InvalidInputError
from consilience.files.site_file import SiteFile
from consilience.kit import folder as folders
from consilience.kit import ledger
from consilience.kit.examination import UsedRows
from consilience.kit.folder import LEDGER, SiteFolder
from consilience.kit.release import earlier_of, read_release, record_release, seal_file, verify_ledger
from consilience.kit.roster import Roster, RosterSite, check_signature
from consilience.messages.questions import LocalFit
from consilience.model.summary import ColumnSummary

STUDY = f"sha256:{64 * '0'}"
TABLE = pa.table({"age": list(range(40))})


def site_file(name="north"):
    return SiteFile(STUDY, name, ("(intercept)", "age"), LocalFit(ColumnSummary.unit(1, 1), None, None))


@pytest.fixture
def folder(tmp_path):
    return SiteFolder.init("north", "", tmp_path)


def released(folder, rows=TABLE):
    file = seal_file(folder, site_file(), folder.entries[-1])
    used = UsedRows.of(rows, [Column("age")], folder.secret)
    return file, record_release(
        folder, "release", STUDY, used.tags, file.to_text().encode(), details={"approved_by": "A. Person"}
    )


def test_a_sealed_file_is_signed_for_the_roster_and_its_content_is_as_before(folder):
    file = seal_file(folder, site_file(), folder.entries[-1])
    roster = Roster(
        format="consilience-roster", version=1, sites=[RosterSite(name="north", key=folder.public_key)]
    )  # fmt: skip
    assert check_signature(SiteFile.from_text(file.to_text()), roster, require_signatures=True).status == "signed"
    assert file.hash == site_file().hash
    assert file.envelope["ledger"] == {"entry": 1, "hash": folder.entries[0].hash}
    with pytest.raises(InvalidInputError, match="the folder of 'north'"):
        seal_file(folder, site_file("south"), folder.entries[-1])


def test_without_a_key_the_file_is_marked_unsigned(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "is_available", lambda: False)
    folder = SiteFolder.init("north", "", tmp_path)
    file = seal_file(folder, site_file(), folder.entries[-1])
    assert '"signature": null' in file.to_text()
    assert SiteFile.from_text(file.to_text()).envelope["signature"] is None


def test_releases_name_a_ledger_that_was_cut_or_written_anew(folder):
    path = folder.path / LEDGER
    start = path.read_bytes()
    ledger.append(path, "fit", {"study": STUDY})
    released(folder)
    whole = path.read_bytes()
    assert verify_ledger(folder).is_whole
    path.write_bytes(start)
    assert "was cut" in str(verify_ledger(folder))
    ledger.append(path, "fit", {"study": "other"})
    assert (verify_ledger(folder).line, "fork" in str(verify_ledger(folder))) == (2, True)
    path.write_bytes(whole)
    assert verify_ledger(folder).is_whole


def test_two_files_that_contradict_each_other_show_a_fork(folder):
    file, _ = released(folder)
    other = replace(file, envelope={**file.envelope, "ledger": {"entry": 1, "hash": STUDY}})
    assert "two files state different hashes" in str(verify_ledger(folder, [other]))
    for ignored in ({}, {"ledger": 3}, {"ledger": {"entry": "1", "hash": 2}}, {"ledger": {"entry": -1, "hash": STUDY}}):
        assert verify_ledger(folder, [replace(file, envelope=ignored)]).is_whole


def test_an_entry_says_who_approved_and_which_rows_were_used(folder):
    file, entry = released(folder)
    assert entry.details["approved_by"] == "A. Person"
    (earlier,) = earlier_of(folder)
    assert (earlier.rows, earlier.columns, earlier.load().n) == (40, ("age",), 40)
    assert read_release(folder, entry.number) == file.to_text().encode()
    with pytest.raises(InvalidInputError, match="entry 1 of the ledger is not a release"):
        read_release(folder, 1)


def test_the_same_rows_are_kept_once(folder):
    released(folder)
    record_release(folder, "run", STUDY, UsedRows.of(TABLE, [Column("age")], folder.secret).tags)
    assert len(list((folder.path / "tags").iterdir())) == 1
    with pytest.raises(InvalidInputError, match="has bytes that are kept"):
        record_release(folder, "release", STUDY, UsedRows.of(TABLE, [Column("age")], folder.secret).tags)


@pytest.mark.parametrize(
    "details", [{}, {"study": STUDY, "columns": ["age"], "rows": "x", "tags": ""}, {"columns": 3, "rows": 1}]
)
def test_a_release_without_its_rows_stops_everything(folder, details):
    ledger.append(folder.path / LEDGER, "release", details)
    with pytest.raises(InvalidInputError, match="entry 2 of the ledger does not say which rows it used"):
        earlier_of(folder)


def test_the_ledger_cannot_name_a_file_elsewhere(folder):
    details = {"study": STUDY, "columns": ["age"], "rows": 1, "tags": "sha256:../../secret", "file": "../secret.key"}
    ledger.append(folder.path / LEDGER, "release", details)
    with pytest.raises(InvalidInputError, match="something else than its hash"):
        earlier_of(folder)[0].load()
    with pytest.raises(InvalidInputError, match="something else than its hash"):
        read_release(folder, 2)
