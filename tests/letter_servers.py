"""Servers of letters on 127.0.0.1: Debian's nginx, a proxy with CONNECT, and one that answers wrongly."""

from __future__ import annotations

import os
import select
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from consilience.kit.enrolment import nginx_configuration
from consilience.kit.folder import SiteIdentity
from consilience.kit.roster import Roster

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
needs_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is missing: apt-get install nginx-light")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def site_keys(path: Path, names: tuple[str, ...]) -> dict[str, Path]:
    """New private keys of sites, each in a file."""
    found = {name: path / f"{name}.pem" for name in names}
    for each in found.values():
        SiteIdentity.new().store(each)
    return found


def roster_of(keys: dict[str, Path]) -> Roster:
    sites = [{"name": name, "key": SiteIdentity.load(path).public_key} for name, path in keys.items()]
    return Roster.from_tables({"format": Roster.kind, "version": 1, "sites": sites})


@contextmanager
def nginx(own: Path, store: Path, port: int) -> Iterator[str]:
    """Debian's nginx with our configuration; the address of the server."""
    store.mkdir(exist_ok=True)
    user = "root" if os.geteuid() == 0 else ""
    text = nginx_configuration(own, store, f"127.0.0.1:{port}", user)
    (store / "nginx.conf").write_text(text)
    process = subprocess.Popen([str(NGINX), "-c", store / "nginx.conf", "-g", "daemon off;"], stderr=subprocess.DEVNULL)
    try:
        wait_for(port, lambda: process.poll() is None)
        yield f"https://localhost:{port}"
    finally:
        process.terminate()
        process.wait(10)


def wait_for(port: int, is_alive: Callable[[], bool]) -> None:
    for _ in range(1000):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert is_alive(), "the server ended"
            time.sleep(0.02)
    pytest.fail("the server did not answer in time")


@contextmanager
def served(handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """A server of this process; its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def wrong_server(answers: list[Callable[[Any], None]]) -> type[BaseHTTPRequestHandler]:
    """A server that gives these answers in turn, each a function that writes to the connection."""

    class Wrong(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answers.pop(0)(self)

        def do_PUT(self) -> None:
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            pass

    return Wrong


def connecting_proxy(seen: list[tuple[str, str]]) -> type[BaseHTTPRequestHandler]:
    """A proxy that knows CONNECT alone; it notes where to, and with which credentials."""

    class Proxy(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            seen.append((self.path, self.headers.get("Proxy-Authorization", "")))
            host, _, port = self.path.partition(":")
            with socket.create_connection((host, int(port)), 10) as far:
                self.send_response(200)
                self.end_headers()
                self.wfile.flush()
                back = threading.Thread(target=pump, args=(far, self.connection))
                back.start()
                pump(self.connection, far)
                back.join()
            self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    return Proxy


def inspecting_proxy(certificate: Path, key: Path, authority: Path, seen: list[bytes]) -> type[BaseHTTPRequestHandler]:
    """A proxy that ends TLS with a certificate of its own, and reads what passes; it has none towards the server."""
    near = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    near.load_cert_chain(certificate, key)
    far = ssl.create_default_context(cafile=authority)

    class Proxy(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            host, _, port = self.path.partition(":")
            self.send_response(200)
            self.end_headers()
            self.wfile.flush()
            with (
                near.wrap_socket(self.connection, server_side=True) as site,
                far.wrap_socket(socket.create_connection((host, int(port)), 10), server_hostname=host) as server,
            ):
                pump_tls(site, server, seen)
            self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    return Proxy


def pump_tls(one: ssl.SSLSocket, other: ssl.SSLSocket, seen: list[bytes]) -> None:
    """Copy what is decrypted both ways, by one thread, until a side closes."""
    goals = {one: other, other: one}
    while True:
        for source in [each for each in goals if each.pending()] or select.select([*goals], [], [], 60)[0]:
            source.settimeout(0)
            try:
                data = source.recv(2**16)
            except ssl.SSLWantReadError:  # a record of TLS itself
                continue
            finally:
                source.settimeout(60)
            if not data:
                return
            seen.append(data)
            goals[source].sendall(data)


def pump(source: socket.socket, goal: socket.socket) -> None:
    """Copy bytes until one side closes."""
    try:
        while data := source.recv(2**16):
            goal.sendall(data)
        goal.shutdown(socket.SHUT_WR)
    except OSError:
        pass
