"""The coordinator's authority signs the keys of the roster: nobody sends a secret, and nothing changes without need."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from consilience.errors import InvalidInputError
from consilience.kit import enrolment
from consilience.kit.enrolment import SERVER, Enrolment, enrol_sites, nginx_configuration
from consilience.kit.folder import SiteIdentity
from consilience.kit.roster import encode_key
from letter_servers import roster_of, site_keys

ADDRESS = "https://letters.example.org:8443"


def test_a_certificate_is_of_the_key_in_the_roster_and_names_the_site_alone(tmp_path) -> None:
    keys = site_keys(tmp_path, ("North Hospital", "south"))
    found = enrol_sites(tmp_path / "own", roster_of(keys), ADDRESS)
    assert set(found) == {"north-hospital", "south"}
    for (name, each), path in zip(found.items(), keys.values(), strict=True):
        read = x509.load_pem_x509_certificate(each.certificate.encode())
        assert encode_key(read.public_key().public_bytes_raw()) == SiteIdentity.load(path).public_key
        assert read.subject.rfc4514_string() == f"CN={name}"
        assert not read.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        assert 795 < (read.not_valid_after_utc - datetime.now(UTC)).days < 801
        assert each.password == ""
        assert Enrolment.read(tmp_path / "own/enrol" / f"{name}.json") == each
        assert "PRIVATE" not in each.to_text()


def test_enrolling_again_changes_nothing_but_what_has_to_change(tmp_path, monkeypatch) -> None:
    keys, own = site_keys(tmp_path, ("ash", "birch")), tmp_path / "own"

    def written() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in own.rglob("*") if path.is_file()}

    enrol_sites(own, roster_of(keys), ADDRESS, ["ash"])
    before = written()
    assert enrol_sites(own, roster_of(keys), ADDRESS, ["ash"])["ash"].password.startswith("ash:")
    assert written() == before
    without = enrol_sites(own, roster_of(keys), ADDRESS)
    assert without["ash"].password == ""
    assert (own / SERVER / "passwords.map").read_text() == ""
    enrol_sites(own, roster_of(keys), "https://elsewhere.example.org")
    changed = {Path(name).name for name, data in written().items() if data != before[name]}
    assert changed == {"ash.json", "birch.json", "server.crt", "passwords.map"}
    monkeypatch.setattr(enrolment, "RENEWED", 10_000)
    assert enrol_sites(own, roster_of(keys), ADDRESS)["ash"].certificate != without["ash"].certificate


def test_secrets_are_readable_by_their_owner_alone(tmp_path) -> None:
    own = tmp_path / "own"
    enrol_sites(own, roster_of(site_keys(tmp_path, ("ash",))), ADDRESS, ["ash"])
    secret = ["authority.pem", "server/server.key", "server/passwords.map", "enrol/ash.json"]
    assert {stat.S_IMODE((own / name).stat().st_mode) for name in secret} == {0o600}
    assert stat.S_IMODE((own / SERVER).stat().st_mode) == 0o700


def test_what_cannot_be_enrolled_is_named(tmp_path) -> None:
    keys, own = site_keys(tmp_path, ("ash", "birch")), tmp_path / "own"
    roster = roster_of(keys)
    for address in ("http://host", "https://", "https://host/x", "https://host:0x1", "https://me@host", "host"):
        with pytest.raises(InvalidInputError, match="expected an address"):
            enrol_sites(own, roster, address)
    with pytest.raises(InvalidInputError, match="cedar gets a password"):
        enrol_sites(own, roster, ADDRESS, ["cedar"])
    keyless = roster.model_copy(update={"sites": [roster.sites[0], roster.sites[1].model_copy(update={"key": None})]})
    with pytest.raises(InvalidInputError, match="no key of birch"):
        enrol_sites(own, keyless, ADDRESS)
    twins = site_keys(tmp_path, ("north east", "north.east"))
    with pytest.raises(InvalidInputError, match="same name of a folder"):
        enrol_sites(own, roster_of(twins), ADDRESS)
    with pytest.raises(InvalidInputError, match="no site was enrolled"):
        nginx_configuration(own, tmp_path, "8443")
    assert not (own / SERVER).exists()


def test_an_authority_whose_key_is_not_of_its_certificate_is_refused(tmp_path) -> None:
    own = tmp_path / "own"
    roster = roster_of(site_keys(tmp_path, ("ash",)))
    enrol_sites(own, roster, ADDRESS)
    (own / "authority.pem").unlink()
    with pytest.raises(InvalidInputError, match="restore both"):
        enrol_sites(own, roster, ADDRESS)


def test_the_configuration_takes_no_words_that_nginx_would_read_as_its_own(tmp_path) -> None:
    own = tmp_path / "own"
    enrol_sites(own, roster_of(site_keys(tmp_path, ("ash",))), ADDRESS)
    assert f"root {tmp_path}/store;" in nginx_configuration(own, tmp_path / "store", "127.0.0.1:8443")
    for store, listen, user in (("a b", "1", ""), ("s;", "1", ""), ("s", "1; include x", ""), ("s", "1", "a;b")):
        with pytest.raises(InvalidInputError, match="without spaces"):
            nginx_configuration(own, tmp_path / store, listen, user)


def test_a_file_that_is_no_enrolment_is_refused(tmp_path) -> None:
    path = tmp_path / "ash.json"
    for text in ("", "[]", "{}", '{"format": "consilience enrolment", "version": 2}'):
        path.write_text(text)
        with pytest.raises(InvalidInputError):
            Enrolment.read(path)
    path.write_text('{"format": "consilience enrolment", "version": 1, "site": 1}')
    with pytest.raises(InvalidInputError, match="ask the coordinator"):
        Enrolment.read(path)
