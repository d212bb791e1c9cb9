from dataclasses import replace

import pytest

from consilience.errors import InvalidInputError
from consilience.files.site_file import SiteFile
from consilience.kit.folder import SiteIdentity
from consilience.kit.roster import Roster, RosterSite, check_signature
from consilience.messages.questions import LocalFit
from consilience.model.summary import ColumnSummary

NORTH, SOUTH = SiteIdentity.new(), SiteIdentity.new()
STUDY = f"sha256:{64 * '0'}"


def roster(*sites):
    return Roster(format="consilience-roster", version=1, sites=[RosterSite(name=name, key=key) for name, key in sites])


ROSTER = roster(("north", NORTH.public_key), ("south", SOUTH.public_key), ("west", None))


def site_file(name="north", key=NORTH, rows=1.0):
    summary = replace(ColumnSummary.unit(1, 1), weight=rows)
    file = SiteFile(STUDY, name, ("(intercept)", "age"), LocalFit(summary, None, None))
    return file if key is None else replace(file, envelope={"signature": key.sign(file.hash)})


def test_a_signed_file_is_signed_also_after_writing_and_reading():
    assert check_signature(site_file(), ROSTER, require_signatures=True).status == "signed"
    again = SiteFile.from_text(site_file().to_text())
    assert check_signature(again, ROSTER, require_signatures=True).status == "signed"


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (replace(site_file(rows=2.0), envelope=site_file().envelope), "does not fit its content"),
        (replace(site_file(), envelope={"signature": "ed25519:AAAA"}), "does not fit its content"),
        (replace(site_file(), envelope={"signature": ["x"]}), "does not fit its content"),
        (site_file(key=None), "has no signature although the roster has a key"),
        (replace(site_file(), envelope={"signature": None}), "has no signature although the roster has a key"),
        (site_file(key=SOUTH), "was signed with the key of 'south'"),
        (site_file(key=SiteIdentity.new()), "signed with another key"),
        (replace(site_file("south", SOUTH), site="north"), "does not fit its content"),
        (site_file("east"), "'east' is not in the roster: add it"),
        (site_file("n\u043erth"), "a name that looks alike is"),
        (site_file("North"), "a name that looks alike is"),
    ],
)
@pytest.mark.parametrize("require", [True, False])
def test_what_does_not_come_from_the_site_is_refused_with_a_sentence(file, said, require):
    found = check_signature(file, ROSTER, require_signatures=require)
    assert found.status == "refused"
    assert said in found.said


def test_files_of_sites_without_a_key_are_unsigned_and_refused_on_demand():
    for file, listed in ((site_file("west", None), ROSTER), (site_file("west"), ROSTER), (site_file(), None)):
        assert check_signature(file, listed).status == "unsigned"
        found = check_signature(file, listed, require_signatures=True)
        assert found.status == "refused"
        assert "Signatures are required" in found.said


def test_text_and_file_round_trip(tmp_path):
    (tmp_path / "roster.toml").write_text(ROSTER.to_text(), encoding="utf-8")
    assert Roster.read(tmp_path / "roster.toml") == ROSTER


def test_sites_may_have_an_institution():
    text = ROSTER.to_text().replace('name = "west"', 'name = "west"\ninstitution = "clinic"')
    text = text.replace('name = "south"', 'name = "south"\ninstitution = "clinic"')
    found = Roster.from_text(text)
    assert ROSTER.institutions == {}
    assert found.institutions == {"south": "clinic", "west": "clinic"}
    assert Roster.from_text(found.to_text()) == found


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "west"', 'name = "west"\ninstitution = "north"', "is also the name of a site that is not part of it"),
        ('name = "west"', 'name = "west"\ninstitution = "a\\u200bb"', "cannot be seen"),
        ('name = "south"', 'name = "n\u043erth"', "cannot be told apart"),
        ('name = "south"', 'name = "NORTH"', "cannot be told apart"),
        ('name = "south"', 'name = "so\\u200buth"', "cannot be seen"),
        ('name = "south"', 'name = " south"', "not in normal form"),
        ('name = "south"', 'name = ""', "at least 1 character"),
        (f'key = "{SOUTH.public_key}"', f'key = "{NORTH.public_key}"', "have the same key"),
        (f'key = "{SOUTH.public_key}"', 'key = "ed25519:AAAA"', "the key of site 'south': expected ed25519:"),
        (f'key = "{SOUTH.public_key}"', "key = 3", "sites.1.key"),
        (f'key = "{SOUTH.public_key}"', 'path = "../x"', "sites.1 has 'path', which is not a field of it"),
        ("version = 1", "version = 2", "install a newer one"),
        ('format = "consilience-roster"', 'format = "x"', "format"),
    ],
    ids=range(13),  # keys are drawn anew in every process and cannot be names of tests
)
def test_what_is_wrong_in_a_roster_is_refused(old, new, said):
    text = ROSTER.to_text()
    assert old in text
    with pytest.raises(InvalidInputError) as error:
        Roster.from_text(text.replace(old, new))
    assert said in str(error.value)
