"""A run over a store of letters has the bits of one process, and each ledger one answer for each round.

Every method goes over every transport; the lane of every change takes one method over all, and all over a folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.couriers.letter_stores import FolderStore, LetterStore, WebStore, store_at
from consilience.engines.inprocess import InProcess
from consilience.kit.combination import run_study, simulate_study, sites_of
from consilience.kit.enrolment import AUTHORITY_FILE, SERVER, SERVER_FILE, SERVER_KEY, Enrolment, enrol_sites
from consilience.kit.folder import KEY
from consilience.kit.mail_folder import MailFolder
from consilience.kit.private_files import slug
from letter_servers import (
    connecting_proxy,
    free_port,
    inspecting_proxy,
    needs_nginx,
    nginx,
    roster_of,
    served,
    wait_for,
)
from live_office import LiveOffice
from mail_office import PRIVATE, TABLES, start, study_with

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")]
FEW = {name: TABLES[name].slice(0, TABLES[name].num_rows // 3) for name in list(TABLES)[:3]}
STUDY = study_with('name = "OneShot", refine = 1')
EXACT = {
    "OneShot": STUDY,
    "FederatedEM": study_with('name = "FederatedEM", n_climbs = 1'),
    "SharedCentre": study_with('name = "SharedCentre", rounds = 6'),
}
Draws = list[tuple[tuple[Any, int], list[int]]]


@cache
def simulation(method: str = "OneShot") -> Any:
    """What the study ends with in one process."""
    return simulate_study(EXACT[method], FEW).best


def assert_same(done: Any, expected: Any) -> None:
    """Both have the same bits, of the models of sites too."""
    np.testing.assert_array_equal(done.fit.log_likelihood, expected.fit.log_likelihood)  # noise has none
    assert done.fit.mixture.to_vector().tolist() == expected.fit.mixture.to_vector().tolist()
    assert done.models.keys() == expected.models.keys()
    for name, model in done.models.items():
        np.testing.assert_array_equal(model.mixture_.to_vector(), expected.models[name].mixture_.to_vector())


def assert_answered_once(office: LiveOffice) -> None:
    """Each ledger has one answer to each question of the site, and nothing was refused."""
    for name in office.names:
        asked = {each.number for _, each in MailFolder(office.mail).questions() if each.is_for(name)}
        assert office.rounds_in_ledger(name) == sorted(asked)
        assert set(office.post.store.names(f"to/{slug(name)}")) >= {"run.json", "study.toml", "finished.json"}
    assert office.post.refused == {}
    assert office.notices == []


# ---------------------------------------------------------------- transports


class Reach:
    """How sites reach the store of a run, by the name of a transport; what it opened is closed at the end."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.monkeypatch = path, monkeypatch
        self.seen: list[Any] = []
        """What a proxy saw: where to, and the bytes that it could read."""

    def over(self, transport: str) -> Callable[..., AbstractContextManager[LiveOffice]]:
        return {"folder": self.folder, "S3": self.objects}.get(transport) or self._by_nginx(transport)

    @contextmanager
    def folder(self, study: Any, **more: Any) -> Iterator[LiveOffice]:
        store = FolderStore(self.path / "store")
        yield LiveOffice(self.path, study, lambda _: store, tables=FEW, **more)

    @contextmanager
    def objects(self, study: Any, **more: Any) -> Iterator[LiveOffice]:
        pytest.importorskip("moto")
        boto3, port = pytest.importorskip("boto3"), free_port()
        for name in [name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")]:
            self.monkeypatch.delenv(name)
        for name, value in {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "HOME": str(self.path)}.items():
            self.monkeypatch.setenv(name, value)
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(port, lambda: process.poll() is None)
            server = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1")
            server.create_bucket(Bucket="run")
            address = f"s3://run/hospitals?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
            yield LiveOffice(self.path, study, lambda _: store_at(address), tables=FEW, **more)
        finally:
            process.terminate()
            process.wait()

    def _by_nginx(self, transport: str) -> Callable[..., AbstractContextManager[LiveOffice]]:
        @contextmanager
        def office(study: Any, **more: Any) -> Iterator[LiveOffice]:
            with self.folder(study, **more) as found:
                port = free_port()
                self.keys = {name: folder.path / KEY for name, folder in found.folders.items()}
                roster, own = roster_of(self.keys), self.path / "own"
                enrolled = enrol_sites(own, roster, f"https://localhost:{port}", tuple(self.keys))
                access = {"nginx": self._direct, "CONNECT": self._connected, "inspected": self._inspected}[transport]
                with nginx(own, self.path / "store", port), access() as reach:
                    found.stores = {name: reach(name, enrolled[slug(name)]) for name in found.names}
                    yield found
                    for store in found.stores.values():
                        store.close()

        return office

    def _certified(self, name: str, enrolment: Enrolment, proxy: str = "none") -> LetterStore:
        (path := self.path / f"{slug(name)}.crt").write_text(enrolment.certificate)
        access: dict[str, Any] = {"certificate": path, "key": self.keys[name]}
        return WebStore(enrolment.address, enrolment.authority, proxy=proxy, **access)

    @contextmanager
    def _direct(self) -> Iterator[Any]:
        yield self._certified

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        with served(connecting_proxy(self.seen)) as port:
            yield lambda name, enrolment: self._certified(name, enrolment, f"127.0.0.1:{port}")

    @contextmanager
    def _inspected(self) -> Iterator[Any]:
        """A proxy with an authority of its own, which ends TLS and loses the certificate of the site."""
        enrol_sites(self.path / "proxy", roster_of(self.keys), "https://localhost:1")
        mine, server = self.path / "proxy" / SERVER, self.path / "own" / SERVER
        authority = (mine / AUTHORITY_FILE).read_text()
        handler = inspecting_proxy(mine / SERVER_FILE, mine / SERVER_KEY, server / AUTHORITY_FILE, self.seen)
        with served(handler) as port:
            proxy = f"127.0.0.1:{port}"
            yield lambda _, each: WebStore(each.address, authority, password=each.password, proxy=proxy)


@pytest.fixture
def reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reach:
    return Reach(tmp_path, monkeypatch)


OVER_NGINX = ("nginx", "CONNECT", "inspected")
TRANSPORTS = ("folder", *OVER_NGINX, "S3")
CASES = [
    pytest.param(
        *(method, transport),
        marks=[
            *([needs_nginx] if transport in OVER_NGINX else []),
            *([] if method == "OneShot" or (method, transport) == ("FederatedEM", "folder") else [pytest.mark.long]),
        ],
    )
    for method in EXACT
    for transport in TRANSPORTS
]


@pytest.mark.parametrize(("method", "transport"), CASES)
def test_a_live_run_has_the_bits_of_one_process(method: str, transport: str, reach: Reach) -> None:
    with reach.over(transport)(EXACT[method]) as office:
        assert_same(office.to_the_end(), simulation(method))
        assert_answered_once(office)
    if transport == "nginx":
        log = (reach.path / "store/nginx-access.log").read_text().splitlines()
        answers = sum(map(len, map(office.rounds_in_ledger, office.names)))
        assert sum(" status=201 PUT /from/" in line for line in log) == answers
        assert not [line for line in log if " status=4" in line and " status=404 GET /to/" not in line]
    if transport == "CONNECT":
        assert len(reach.seen) >= 3  # one for each site, and another one where the server closed it
        assert len({goal for goal, _ in reach.seen}) == 1
    if transport == "inspected":
        read = b"".join(reach.seen)
        assert read.count(b"Authorization: Basic ") > 0
        assert read.count(b'"consilience sealed answer"') == sum(map(len, map(office.rounds_in_ledger, office.names)))
        assert b'"consilience answer"' not in read


@pytest.mark.parametrize(
    "transport",
    [
        pytest.param(each, marks=[*([needs_nginx] if each in OVER_NGINX else []), pytest.mark.long])
        for each in TRANSPORTS
    ],
)
def test_a_live_run_with_noise_has_the_bits_of_one_process_with_the_noise_that_was_drawn(
    transport: str, reach: Reach
) -> None:
    drawing = sys.modules["consilience.site.answer"]
    drawn, real = Draws(), drawing.discrete_gaussian  # type: ignore[attr-defined]

    def stored(variance: Any, size: int) -> list[int]:
        drawn.append(((variance, size), found := real(variance, size)))
        return found

    with reach.monkeypatch.context() as patched, reach.over(transport)(PRIVATE, start=start()) as office:
        patched.setattr(drawing, "discrete_gaussian", stored)
        done = office.to_the_end()
        assert_answered_once(office)
    left = iter(drawn)

    def again(variance: Any, size: int) -> list[int]:
        wanted, found = next(left)
        assert wanted == (variance, size)
        return found

    with reach.monkeypatch.context() as patched:
        patched.setattr(drawing, "discrete_gaussian", again)
        engine = InProcess(threads=1).over(sites_of(PRIVATE, FEW))
        assert_same(done, run_study(PRIVATE, engine, start=start()).best)
    assert next(left, None) is None


# ---------------------------------------------------------------- a drive


class Late:
    """A shared drive: a file is seen as half of it first, and whole when it is written again."""

    def __init__(self, inner: FolderStore) -> None:
        self.inner, self.halves = inner, set[str]()
        self.names, self.read = inner.names, inner.read

    def write(self, folder: str, name: str, data: bytes) -> None:
        if folder.startswith("from") and (place := f"{folder}/{name}") not in self.halves:
            self.halves.add(place)
            self.inner.write(folder, name, data[: len(data) // 2])
        else:
            self.inner.write(folder, name, data)


def test_half_an_answer_is_refused_by_name_and_the_whole_one_taken(tmp_path) -> None:
    store = Late(FolderStore(tmp_path / "store"))
    office = LiveOffice(tmp_path, STUDY, lambda _: store, tables=FEW)
    for _ in range(8):
        if (done := office.advance()) is not None:
            break
        office.post.step()
        for name in office.names:
            office.serve(name)
        office.post.step()
        assert office.advance() is None
        for name in office.names:
            for path in (tmp_path / "at" / slug(name)).glob("*.answer.*"):
                store.write(f"from/{slug(name)}", path.name, path.read_bytes())  # the drive is done
        office.post.step()
    assert done is not None
    assert done.fit.log_likelihood == simulation().fit.log_likelihood
    assert len({name for name, reason in office.notices if "half of a file" in reason}) == 9
    assert all(office.rounds_in_ledger(name) == [1, 2, 3] for name in office.names)
