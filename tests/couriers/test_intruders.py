"""What the printed configuration of nginx lets a site do, and whom it lets in at all: requests by curl's rules."""

from __future__ import annotations

import http.client
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from consilience.couriers.letter_stores import MOST_LETTER, FolderStore
from consilience.kit.enrolment import Authority, Enrolment, _issued, enrol_sites
from consilience.kit.folder import SiteIdentity
from letter_servers import free_port, needs_nginx, nginx, roster_of, site_keys

pytestmark = needs_nginx
NAMES = ("ash", "birch", "cedar-2")
QUESTION, ANSWER = "round-01.question.json", "round-77.answer.ash.json"


@dataclass
class Case:
    """A server, and what each site has."""

    path: Path
    keys: dict[str, Path]
    found: dict[str, Enrolment]
    address: str = ""

    @property
    def own(self) -> Path:
        return self.path / "own"

    def enrol(self, names: tuple[str, ...] = NAMES) -> None:
        keys = {name: self.keys[name] for name in names}
        self.found = enrol_sites(self.own, roster_of(keys), "https://localhost:1", ["birch"])

    def context(self, certificate: str = "", key: Path | None = None) -> ssl.SSLContext:
        tls = ssl.create_default_context(cadata=self.found["ash"].authority)
        if certificate:
            file = self.path / "now.crt"
            file.write_text(certificate)
            tls.load_cert_chain(file, key)
        return tls

    def own_context(self, name: str) -> ssl.SSLContext:
        return self.context(self.found[name].certificate, self.keys[name])

    def status(self, tls: ssl.SSLContext, method: str, path: str, body: Any = None, **headers: str) -> int:
        """Status of one request, whose path is sent as it is; 0 if the connection fails."""
        host, _, port = self.address.removeprefix("https://").partition(":")
        connection = http.client.HTTPSConnection(host, int(port), timeout=20, context=tls)
        try:
            connection.request(method, path, body, headers)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()


@contextmanager
def serving(case: Case) -> Iterator[None]:
    with nginx(case.own, case.path / "store", free_port()) as case.address:
        yield


@pytest.fixture
def case(tmp_path) -> Case:
    found = Case(tmp_path, site_keys(tmp_path, NAMES), {})
    found.enrol()
    store = FolderStore(tmp_path / "store")
    for name in NAMES:
        store.write(f"to/{name}", QUESTION, b"question")
        store.write(f"from/{name}", f"round-01.answer.{name}.json", b"answer")
    return found


REQUESTS: tuple[tuple[int, str, str], ...] = (  # of ash, with its own certificate
    (200, "GET", "/to/ash/"),
    (200, "GET", f"/to/ash/{QUESTION}"),
    (200, "HEAD", f"/to/ash/{QUESTION}"),
    (201, "PUT", f"/from/ash/{ANSWER}"),
    (204, "PUT", f"/from/ash/{ANSWER}"),  # again
    (403, "GET", "/to/birch/"),
    (403, "GET", f"/to/birch/{QUESTION}"),
    (404, "GET", "/"),
    (404, "GET", "/to/"),
    (404, "GET", "/from/"),
    (404, "GET", "/from/ash/"),
    (403, "GET", "/from/ash/round-01.answer.ash.json"),
    (403, "GET", "/from/birch/round-01.answer.birch.json"),
    (403, "PUT", "/from/birch/round-77.answer.birch.json"),
    (403, "PUT", "/from/ash/round-77.answer.birch.json"),
    (403, "PUT", "/from/birch/round-77.answer.ash.json"),
    (404, "PUT", "/from/ash/run.json"),
    (404, "PUT", "/from/ash/round-1234567.answer.ash.json"),
    (404, "PUT", "/from/ash/x/round-77.answer.ash.json"),
    (403, "PUT", "/to/ash/round-99.question.json"),
    (403, "DELETE", f"/to/ash/{QUESTION}"),
    (403, "DELETE", f"/from/ash/{ANSWER}"),
    (403, "COPY", f"/from/ash/{ANSWER}"),
    (403, "MOVE", f"/from/ash/{ANSWER}"),
    (404, "MKCOL", "/from/ash/x/"),
    (403, "POST", f"/from/ash/{ANSWER}"),
    (403, "GET", "/to/ash/../birch/"),
    (403, "GET", f"/to/ash/%2e%2e/birch/{QUESTION}"),
    (403, "GET", "/to/ash%2f..%2fbirch/"),
    (404, "GET", "/to/ash/../../nginx.conf"),
    (404, "GET", "/to/ash/.hidden"),
    (404, "GET", "/to/ASH/"),
    (404, "GET", "/nginx-access.log"),
)


def test_a_site_reads_its_own_questions_and_writes_its_own_answers_alone(case) -> None:
    (case.path / "store/to/ash/.hidden").write_text("")
    with serving(case):
        tls = case.own_context("ash")
        found = []
        for expected, method, path in REQUESTS:
            body = b"{}" if method in ("PUT", "POST") else None
            goal = {"Destination": f"{case.address}/from/birch/x.json"} if method in ("COPY", "MOVE") else {}
            if (status := case.status(tls, method, path, body, **goal)) != expected:
                found.append((status, expected, method, path))
        assert found == []
        large = {"Content-Length": str(MOST_LETTER + 1)}
        assert case.status(tls, "PUT", f"/from/ash/{ANSWER}", None, **large) == 413
    store = FolderStore(case.path / "store")
    assert store.read("from/ash", ANSWER) == b"{}"
    for name in NAMES:
        assert store.read(f"from/{name}", f"round-01.answer.{name}.json") == b"answer"
        assert set(store.names(f"to/{name}")) == {QUESTION}
    assert set(store.names("from/birch")) == {"round-01.answer.birch.json"}


def test_who_has_no_certificate_or_password_of_the_run_is_not_let_in(case) -> None:
    (case.path / "stranger").mkdir()
    SiteIdentity.new().store(case.path / "stranger.pem")
    keys = {"ash": case.keys["ash"], "birch": case.keys["birch"], "stranger": case.path / "stranger.pem"}
    private = {name: private_key(path) for name, path in keys.items()}

    def issued(name: str, of: str, by: str) -> str:
        made = _issued(name, private[of].public_key(), private[by], "site")
        return made.public_bytes(Encoding.PEM).decode()

    other = Authority.of(case.path / "stranger").certify("ash", private["stranger"].public_key())
    forged = {
        "none": ("", "ash"),
        "of another authority": (other, "stranger"),
        "birch, issued by ash": (issued("birch", "ash", "ash"), "ash"),
        "birch, issued by itself": (issued("birch", "birch", "birch"), "birch"),
        "stranger for itself": (issued("birch", "stranger", "stranger"), "stranger"),
    }
    with serving(case):
        for what, (certificate, key) in forged.items():
            tls = case.context(certificate, keys[key])
            for path in ("/to/ash/", "/to/birch/"):
                assert case.status(tls, "GET", path) in (400, 401), what
        nobody = case.context()
        for word in (b"birch:guess", b"ash:guess", b":", b"", case.found["birch"].password[:-1].encode()):
            header = {"Authorization": f"Basic {b64encode(word).decode()}"}
            assert case.status(nobody, "GET", "/to/birch/", **header) == 401
        right = {"Authorization": f"Basic {b64encode(case.found['birch'].password.encode()).decode()}"}
        assert case.status(nobody, "GET", "/to/birch/", **right) == 200
        assert case.status(nobody, "GET", "/to/ash/", **right) == 403
        assert case.status(case.own_context("ash"), "GET", "/to/birch/", **right) == 403  # the certificate counts


def private_key(path: Path) -> Any:
    return load_pem_private_key(path.read_bytes(), None)


def test_a_site_that_left_the_roster_or_has_a_new_key_is_let_in_no_longer_with_its_old_certificate(case) -> None:
    before = {name: case.own_context(name) for name in NAMES}
    former = case.found
    case.keys["birch"].rename(case.path / "stolen.pem")
    SiteIdentity.new().store(case.keys["birch"])
    case.enrol(("ash", "birch"))
    assert case.found["ash"].certificate == former["ash"].certificate  # it stays
    assert case.found["birch"].password == former["birch"].password
    with serving(case):
        assert case.status(before["ash"], "GET", "/to/ash/") == 200
        assert case.status(before["birch"], "GET", "/to/birch/") == 401
        assert case.status(before["cedar-2"], "GET", "/to/cedar-2/") == 401
        assert case.status(case.own_context("birch"), "GET", "/to/birch/") == 200
