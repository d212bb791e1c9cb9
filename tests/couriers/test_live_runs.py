"""A run over a store of letters has the bits of one process, and each ledger one answer for each round."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from consilience.couriers.letter_stores import FolderStore, WebStore, store_at
from consilience.kit.combination import simulate_study
from consilience.kit.enrolment import enrol_sites
from consilience.kit.folder import KEY
from consilience.kit.private_files import slug
from letter_servers import connecting_proxy, free_port, needs_nginx, nginx, roster_of, served, wait_for
from live_office import LiveOffice
from mail_office import TABLES, study_with

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")]
FEW = {name: TABLES[name].slice(0, TABLES[name].num_rows // 3) for name in list(TABLES)[:3]}
STUDY = study_with('name = "OneShot", refine = 1')


@cache
def simulation() -> Any:
    """What the study ends with in one process."""
    return simulate_study(STUDY, FEW).best


def same_bits(office: LiveOffice) -> None:
    """Run to the end and compare with one process."""
    done, expected = office.to_the_end(), simulation()
    assert done.fit.log_likelihood == expected.fit.log_likelihood
    np.testing.assert_array_equal(done.fit.mixture.coefficients, expected.fit.mixture.coefficients)
    for name in office.names:
        assert office.rounds_in_ledger(name) == [1, 2, 3]
        assert set(office.post.store.names(f"to/{slug(name)}")) >= {"run.json", "study.toml", "finished.json"}
    assert office.post.refused == {}
    assert office.notices == []


def test_over_a_folder(tmp_path) -> None:
    store = FolderStore(tmp_path / "store")
    same_bits(LiveOffice(tmp_path, STUDY, lambda _: store, tables=FEW))


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


def test_over_objects(tmp_path, monkeypatch) -> None:
    pytest.importorskip("moto")
    boto3, port = pytest.importorskip("boto3"), free_port()
    for name in [name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, lambda: process.poll() is None)
        boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1").create_bucket(Bucket="run")
        address = f"s3://run/hospitals?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        same_bits(LiveOffice(tmp_path, STUDY, lambda _: store_at(address), tables=FEW))
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def reach(tmp_path) -> Iterator[Callable[..., LiveOffice]]:
    """An office over nginx; sites reach it with what is passed."""
    opened: list[WebStore] = []
    store = FolderStore(tmp_path / "store")
    port = free_port()
    office = LiveOffice(tmp_path, STUDY, lambda _: store, tables=FEW)
    keys = {name: folder.path / KEY for name, folder in office.folders.items()}
    found = enrol_sites(tmp_path / "own", roster_of(keys), f"https://localhost:{port}", tuple(keys))

    def make(*, by_password: bool = False, proxy: str = "none") -> LiveOffice:
        for name in office.names:
            mine = found[slug(name)]
            (path := tmp_path / f"{slug(name)}.crt").write_text(mine.certificate)
            access: dict[str, Any] = {"certificate": path, "key": keys[name]}
            access = {"password": mine.password} if by_password else access
            opened.append(WebStore(mine.address, mine.authority, proxy=proxy, **access))
            office.stores[name] = opened[-1]
        return office

    with nginx(tmp_path / "own", tmp_path / "store", port):
        yield make
        for each in opened:
            each.close()


@needs_nginx
def test_over_nginx_with_certificates(reach, tmp_path) -> None:
    same_bits(reach())
    log = (tmp_path / "store/nginx-access.log").read_text().splitlines()
    assert sum(" status=201 PUT /from/" in line for line in log) == 9
    assert not [line for line in log if " status=4" in line and " status=404 GET /to/" not in line]


@needs_nginx
def test_over_nginx_through_a_proxy(reach) -> None:
    seen: list[tuple[str, str]] = []
    with served(connecting_proxy(seen)) as port:
        office = reach(proxy=f"127.0.0.1:{port}")
        same_bits(office)
        for store in office.stores.values():
            store.close()
    assert len(seen) == 3  # one connection for each site


@needs_nginx
@pytest.mark.long  # test_letter_stores.py has the same requests
def test_over_nginx_with_passwords(reach) -> None:
    same_bits(reach(by_password=True))
