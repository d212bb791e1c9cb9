"""Stores of letters keep whole files under their names, and say what they cannot do."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from consilience.couriers import letter_stores
from consilience.couriers.letter_stores import FolderStore, LetterStore, WebStore, store_at
from consilience.errors import InvalidInputError, StoreError
from consilience.kit.enrolment import SERVER, enrol_sites
from letter_servers import (
    connecting_proxy,
    free_port,
    needs_nginx,
    nginx,
    roster_of,
    served,
    site_keys,
    wait_for,
    wrong_server,
)

ANSWER = "round-01.answer.ash.json"


def keeps_whole_files(store: LetterStore, *, wait: float = 0.0) -> None:
    """Write, list, read and replace files."""
    assert store.names("to/ash") == {}
    store.write("to/ash", "run.json", b"one")
    store.write("to/ash", "study.toml", b"")
    first = store.names("to/ash")
    assert set(first) == {"run.json", "study.toml"}
    assert store.read("to/ash", "run.json") == b"one"
    assert store.read("to/ash", "study.toml") == b""
    time.sleep(wait)
    store.write("to/ash", "run.json", b"two")
    second = store.names("to/ash")
    assert store.read("to/ash", "run.json") == b"two"
    assert second["run.json"] != first["run.json"]
    assert second["study.toml"] == first["study.toml"]
    assert store.names("to/birch") == {}
    with pytest.raises(StoreError):
        store.read("to/ash", "absent.json")


def test_a_folder_keeps_whole_files(tmp_path) -> None:
    keeps_whole_files(store_at(str(tmp_path)))


def test_a_folder_lists_plain_files_only_and_follows_no_link(tmp_path) -> None:
    store, place = FolderStore(tmp_path), tmp_path / "from/ash"
    (place / "folder").mkdir(parents=True)
    (place / ".half").write_text("")
    (place / "name with spaces").write_text("")
    (tmp_path / "elsewhere").write_text("secret")
    (place / "link").symlink_to(tmp_path / "elsewhere")
    (place / ANSWER).write_text("")
    assert set(store.names("from/ash")) == {ANSWER}
    with pytest.raises(InvalidInputError, match="link cannot be read"):
        store.read("from/ash", "link")


def test_no_store_takes_or_gives_more_than_a_letter(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(letter_stores, "MOST_LETTER", 10)
    store = FolderStore(tmp_path)
    with pytest.raises(InvalidInputError, match="more than 10 bytes"):
        store.write("from/ash", ANSWER, bytes(11))
    assert store.names("from/ash") == {}
    store.write("from/ash", ANSWER, bytes(10))
    (tmp_path / "from/ash" / ANSWER).write_bytes(bytes(11))
    with pytest.raises(InvalidInputError, match="more than 10 bytes"):
        store.read("from/ash", ANSWER)


def test_an_address_of_no_store_is_refused() -> None:
    for address in ("http://host", "ftp://host/x", "https://user@host", "https://host/x?y=1", "https://", "file:///x"):
        with pytest.raises(InvalidInputError):
            store_at(address)
    with pytest.raises(InvalidInputError, match="environment"):
        store_at("s3://key:secret@bucket/run")


# ---------------------------------------------------------------- objects


@pytest.mark.slow
def test_a_store_of_objects_keeps_whole_files(tmp_path, monkeypatch) -> None:
    pytest.importorskip("moto")
    boto3, port = pytest.importorskip("boto3"), free_port()
    for name in [name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(port, lambda: process.poll() is None)
        boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1").create_bucket(
            Bucket="letters"
        )
        query = f"?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        keeps_whole_files(store_at(f"s3://letters/run{query}"), wait=1.0)  # times have whole seconds
        with pytest.raises(StoreError):
            store_at(f"s3://none/run{query}").write("to/ash", "run.json", b"")
    finally:
        process.terminate()
        process.wait()
    with pytest.raises(StoreError, match="cannot be listed"):
        store_at(f"s3://letters/run{query}").names("to/ash")


# ---------------------------------------------------------------- web


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory) -> Any:
    """Folder of the coordinator, keys of the sites, and the text of the authority."""
    path = tmp_path_factory.mktemp("own")
    keys, own = site_keys(path, ("ash", "birch")), path / "own"
    found = enrol_sites(own, roster_of(keys), "https://localhost:1", ["ash"])
    for name, each in found.items():
        (path / f"{name}.crt").write_text(each.certificate)
    return own, {name: (path / f"{name}.crt", key) for name, key in keys.items()}, found["ash"]


@needs_nginx
def test_nginx_keeps_whole_files_of_a_site_with_a_certificate_or_a_password(enrolled, tmp_path) -> None:
    own, pairs, enrolment = enrolled
    with nginx(own, tmp_path / "store", free_port()) as address:
        authority = enrolment.authority
        by_certificate = WebStore(address, authority=authority, certificate=pairs["ash"][0], key=pairs["ash"][1])
        by_password = WebStore(address, authority=authority, password=enrolment.password)
        inside = FolderStore(tmp_path / "store")
        for number, web in enumerate((by_certificate, by_password), 1):
            name = f"round-{number:02d}.answer.ash.json"
            web.write("from/ash", name, b"answer")
            assert inside.read("from/ash", name) == b"answer"
            web.write("from/ash", name, bytes(200_000))  # of more than one buffer
            assert inside.read("from/ash", name) == bytes(200_000)
            question = f"round-{number:02d}.question.json"
            inside.write("to/ash", question, b"question")
            assert question in web.names("to/ash")
            assert web.read("to/ash", question) == b"question"
            with pytest.raises(StoreError, match="another site"):
                web.names("to/birch")
            web.close()
        stranger = WebStore(address, authority=authority, password="ash:guess")
        with pytest.raises(StoreError, match="does not know who asks"):
            stranger.names("to/ash")
        stranger.close()
        with pytest.raises(StoreError, match="certificate verify failed"):
            store_at(address).names("to/ash")  # with the authorities of the system
    with pytest.raises(StoreError, match="cannot be reached"):
        by_certificate.names("to/ash")


@needs_nginx
def test_letters_pass_a_proxy_with_connect(enrolled, tmp_path, monkeypatch) -> None:
    own, pairs, enrolment = enrolled
    seen: list[tuple[str, str]] = []
    with nginx(own, tmp_path / "store", free_port()) as address, served(connecting_proxy(seen)) as port:
        access = {"authority": enrolment.authority, "certificate": pairs["ash"][0], "key": pairs["ash"][1]}
        for proxy in (f"127.0.0.1:{port}", f"http://user:p%40ss@127.0.0.1:{port}"):
            store = WebStore(address, proxy=proxy, **access)
            store.write("from/ash", ANSWER, b"answer")
            store.close()
        goal = address.removeprefix("https://")
        assert seen == [(goal, ""), (goal, "Basic dXNlcjpwQHNz")]
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "")
        store = WebStore(address, **access)
        assert store.names("to/ash") == {}
        store.close()
        assert len(seen) == 3
        store = WebStore(address, proxy="none", **access)
        assert store.names("to/ash") == {}
        store.close()
        assert len(seen) == 3


def say(status: int, body: bytes = b"", stated: int | None = None, **headers: str) -> Any:
    """An answer as it should be, but for what it says; it may state another length than it has."""

    def write(handler: Any) -> None:
        handler.send_response(status)
        for name, value in ({"Content-Length": str(len(body) if stated is None else stated)} | headers).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)
        handler.close_connection = stated is not None

    return write


def hang_up(handler: Any) -> None:
    """Close the connection without an answer."""
    handler.close_connection = True


@pytest.fixture
def wrong(enrolled) -> Any:
    """A store over a server that answers wrongly, and the list of its answers."""
    own, _, enrolment = enrolled
    tls, answers = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), []
    tls.load_cert_chain(own / SERVER / "server.crt", own / SERVER / "server.key")
    with served(wrong_server(answers), tls) as port:
        store = WebStore(f"https://localhost:{port}", enrolment.authority, proxy="none")
        yield store, answers
        store.close()


def test_what_a_server_answers_wrongly_is_an_error_and_never_a_letter(wrong, monkeypatch) -> None:
    store, answers = wrong
    for answer, reason in (
        (say(302, Location="https://elsewhere/"), "status 302"),
        (say(500, b"letter"), "status 500"),
        (say(403), "another site"),
        (say(799), "status 799"),
        (say(200, b"half", stated=8), "cannot be reached"),
        (hang_up, "cannot be reached"),
    ):
        store.close()
        answers[:] = [answer]
        with pytest.raises(StoreError, match=reason):
            store.read("to/ash", "run.json")
        assert answers == []
    for body in (b"", b"[1]", b'{"a": 1}', b'[{"type": "file"}]', b"\xff", b"null"):
        answers[:] = [say(200, body)]
        with pytest.raises(StoreError, match="is none"):
            store.names("to/ash")
    answers[:] = [say(200, b'[{"type": "file", "name": "../../x", "size": 1, "mtime": ""}]')]
    assert store.names("to/ash") == {}
    monkeypatch.setattr(letter_stores, "MOST_LETTER", 10)
    answers[:] = [say(200, bytes(11)), say(200, bytes(10))]
    with pytest.raises(InvalidInputError, match="more than 10 bytes"):
        store.read("to/ash", "run.json")
    assert store.read("to/ash", "run.json") == bytes(10)


def test_a_kept_connection_that_was_closed_is_opened_again(wrong) -> None:
    store, answers = wrong
    answers[:] = [say(200, b"one"), hang_up, say(200, b"two")]
    assert store.read("to/ash", "run.json") == b"one"
    assert store.read("to/ash", "run.json") == b"two"
    assert answers == []


def test_a_server_that_is_silent_or_slow_does_not_hold_a_courier(wrong, monkeypatch) -> None:
    store, answers = wrong
    monkeypatch.setattr(letter_stores, "SECONDS", 0.2)

    def silent(handler: Any) -> None:
        time.sleep(0.6)
        handler.close_connection = True

    def slow(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        for _ in range(20):
            try:
                handler.wfile.write(b"x")
            except OSError:
                break
            time.sleep(0.05)
        handler.close_connection = True

    answers[:] = [silent]
    began = time.monotonic()
    with pytest.raises(StoreError, match="timed out"):
        store.read("to/ash", "run.json")
    assert time.monotonic() - began < 0.55
    monkeypatch.setattr(letter_stores, "MOST_SECONDS", 0.2)
    answers[:] = [slow]
    with pytest.raises(StoreError, match=r"more than 0 s"):
        store.read("to/ash", "run.json")


def test_a_password_is_not_shown() -> None:
    store = store_at("https://localhost:1", password="ash:word", proxy="http://me:secret@127.0.0.1:9")
    assert "word" not in repr(store)
    assert "secret" not in repr(store)


def test_the_settings_of_the_system_name_the_proxy(monkeypatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert letter_stores._proxy_of("", "host") is None
    monkeypatch.setenv("https_proxy", "http://proxy:8080")
    assert urllib.request.getproxies()["https"] == "http://proxy:8080"
    assert letter_stores._proxy_of("", "host") == ("proxy", 8080, {})
    monkeypatch.setenv("no_proxy", "host")
    assert letter_stores._proxy_of("", "host") is None
    for wrong_proxy in ("https://proxy:1", "socks5://proxy:1", "http://"):
        with pytest.raises(InvalidInputError, match="proxy"):
            letter_stores._proxy_of(wrong_proxy, "host")


def test_a_key_that_does_not_fit_is_named(tmp_path) -> None:
    (tmp_path / "site.crt").write_text("nothing")
    with pytest.raises(InvalidInputError, match="cannot be used"):
        store_at("https://localhost:1", certificate=tmp_path / "site.crt", key=Path("absent"))
