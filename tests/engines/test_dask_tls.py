"""Dask clusters in other processes: certificates on both sides, versions, and a scheduler that dies."""

from __future__ import annotations

import datetime as dt
import os
import runpy
import shutil
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import consilience
from consilience.engines import DaskCluster, InProcess
from consilience.engines.dask import connection
from consilience.errors import EngineError
from consilience.runs import run
from sharded import totals, write_sites

distributed = pytest.importorskip("distributed")
x509 = pytest.importorskip("cryptography.x509")
from cryptography.hazmat.primitives import hashes, serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec  # noqa: E402

pytestmark = pytest.mark.slow
SOURCE = Path(consilience.__file__).parent


# ---------------------------------------------------------------- certificates


@dataclass(frozen=True)
class Member:
    """A certificate authority, and a certificate that it signed."""

    ca: str
    cert: str
    key: str

    @property
    def arguments(self) -> tuple[str, ...]:
        return "--tls-ca-file", self.ca, "--tls-cert", self.cert, "--tls-key", self.key


def make_member(directory: Path, name: str) -> Member:
    now = dt.datetime.now(dt.UTC)
    day = dt.timedelta(days=1)

    def certificate(subject: str, public: Any, signer: Any, *, ca: bool) -> bytes:
        builder = x509.CertificateBuilder(
            issuer_name=x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]),
            subject_name=x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, subject)]),
            public_key=public,
            serial_number=x509.random_serial_number(),
            not_valid_before=now - day,
            not_valid_after=now + day,
        )
        builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    authority, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    contents = {
        "ca.pem": certificate(name, authority.public_key(), authority, ca=True),
        "cert.pem": certificate(f"{name} member", own.public_key(), authority, ca=False),
        "key.pem": own.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    }
    paths = []
    for file, content in contents.items():
        paths.append(directory / f"{name}-{file}")
        paths[-1].write_bytes(content)
    return Member(*map(str, paths))


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> tuple[Member, Member]:
    directory = tmp_path_factory.mktemp("certificates")
    return make_member(directory, "ours"), make_member(directory, "theirs")


@pytest.fixture(scope="module")
def tls_address(clusters: Any, members: tuple[Member, Member]) -> str:
    return clusters.start(workers=2, options=members[0].arguments, protocol="tls")


def security(ca: Member, own: Member, key: Member | None = None) -> Any:
    return distributed.Security(
        tls_ca_file=ca.ca, tls_client_cert=own.cert, tls_client_key=(key or own).key, require_encryption=True
    )


def test_a_cluster_with_certificates_gives_the_bits_of_the_reference(
    tls_address: str, members: tuple[Member, Member], tmp_path: Path
) -> None:
    ours, _ = members
    sites, mixture = write_sites(tmp_path, 5, 2_000)
    with DaskCluster(tls_address, security=security(ours, ours)) as cluster:
        cluster._client.wait_for_workers(2, timeout=20)
        got = run(totals(mixture, 2), cluster.over(sites, in_memory=True))
    assert tls_address.startswith("tls://127.0.0.1:")
    assert got.value == run(totals(mixture, 2), InProcess().over(sites)).value


def test_the_lines_of_the_page_connect(
    tls_address: str, members: tuple[Member, Member], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "cluster" / "secure.py"
    for file, name in zip(
        (members[0].ca, members[0].cert, members[0].key), ("ca.pem", "me.pem", "me.key"), strict=True
    ):
        shutil.copy(file, tmp_path / name)
    lines = page.read_text(encoding="utf-8").replace("tls://scheduler.example:8786", tls_address)
    (tmp_path / "secure.py").write_text(lines, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with runpy.run_path("secure.py")["cluster"] as cluster:
        assert cluster._client.scheduler.address == tls_address


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("no security", "needs certificates: pass security="),
        ("no certificate", "needs a certificate of this client: security has no tls_ca_file or no tls_client_cert"),
        ("a certificate of another authority", "it refuses our certificate, which must be signed by the authority"),
        ("another authority", "its certificate is not signed by the tls_ca_file of security"),
        ("all of another authority", "its certificate is not signed by the tls_ca_file of security"),
        ("another key", "tls_client_key is not the key of tls_client_cert"),
        ("a missing file", "the certificates in security cannot be used: a file named in it was not found"),
    ],
)
def test_each_wrong_certificate_is_one_sentence(
    tls_address: str, members: tuple[Member, Member], case: str, message: str
) -> None:
    ours, theirs = members
    security_of = {
        "no security": None,
        "no certificate": distributed.Security(tls_ca_file=ours.ca, require_encryption=True),
        "a certificate of another authority": security(ours, theirs),
        "another authority": security(theirs, ours),
        "all of another authority": security(theirs, theirs),
        "another key": security(ours, ours, key=theirs),
        "a missing file": distributed.Security(tls_ca_file="no.pem", tls_client_cert="no.pem"),
    }
    began = time.monotonic()
    with pytest.raises(EngineError, match=message) as refused:
        DaskCluster(tls_address, security=security_of[case])
    assert "\n" not in str(refused.value)
    assert time.monotonic() - began < connection.CONNECT_SECONDS + 2


def test_plain_connections_to_a_cluster_with_certificates_are_refused(
    tls_address: str, members: tuple[Member, Member]
) -> None:
    plain = tls_address.replace("tls://", "tcp://")
    with pytest.raises(EngineError, match="if it requires TLS, use tls:// and pass security="):
        DaskCluster(plain)
    with pytest.raises(EngineError, match="is not encrypted, which security requires"):
        DaskCluster(plain, security=security(members[0], members[0]))


def test_certificates_for_workers_of_this_machine(tmp_path: Path) -> None:
    sites, mixture = write_sites(tmp_path, 2, 200)
    with DaskCluster(n_workers=1, security=True) as cluster:
        assert all(address.startswith("tls://127.0.0.1:") for address in cluster._client.nthreads())
        assert (
            run(totals(mixture, 1), cluster.over(sites)).value == run(totals(mixture, 1), InProcess().over(sites)).value
        )


# ---------------------------------------------------------------- versions


def copy_of_package(directory: Path) -> Path:
    shutil.copytree(SOURCE, directory / "consilience", ignore=shutil.ignore_patterns("__pycache__"))
    return directory / "consilience"


def test_another_version_on_a_worker_names_both(clusters: Any, tmp_path: Path) -> None:
    (copy_of_package(tmp_path) / "_version.py").write_text('__version__ = "9.9.9"\n')
    address = clusters.start(path=str(tmp_path))
    ours = consilience.__version__.replace(".", r"\.")
    with pytest.raises(
        EngineError, match=rf"worker tcp://\S+ has consilience 9\.9\.9, this process has {ours}: install"
    ):
        DaskCluster(address)


@pytest.mark.parametrize("where", [pytest.param("__init__.py", marks=pytest.mark.long), "site/answer.py"])
def test_a_worker_that_cannot_import_us_is_named(clusters: Any, tmp_path: Path, where: str) -> None:
    (copy_of_package(tmp_path) / where).write_text("raise ModuleNotFoundError(\"No module named 'numpy'\")\n")
    address = clusters.start(path=str(tmp_path))
    said = r"worker tcp://\S+ cannot import consilience \(ModuleNotFoundError: No module named 'numpy'\): install"
    with pytest.raises(EngineError, match=said):
        DaskCluster(address)


def test_workers_that_come_later_are_checked_when_they_are_used(clusters: Any, tmp_path: Path) -> None:
    (copy_of_package(tmp_path) / "_version.py").write_text('__version__ = "9.9.9"\n')
    address = clusters.start()
    sites, _ = write_sites(tmp_path, 2, 100)
    with DaskCluster(address) as cluster:
        cluster.over(sites)
        clusters.join(address, path=str(tmp_path))
        cluster._client.wait_for_workers(2, timeout=20)
        with pytest.raises(EngineError, match=r"has consilience 9\.9\.9"):
            cluster.over(sites)


def test_another_python_on_a_worker_names_both() -> None:
    found = {"the scheduler": "3.11.7.final.0", "worker tcp://10.0.0.7:1": "3.14.0.final.0"}
    with pytest.raises(EngineError, match=r"worker tcp://10\.0\.0\.7:1 runs Python 3\.14, this process Python 3\.11"):
        connection.check_pythons(found, "3.11.7")


def test_a_scheduler_without_workers_is_said(clusters: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.engines.dask.cluster.CONNECT_SECONDS", 1)
    with pytest.raises(EngineError, match="the scheduler has no workers after 1 s"):
        DaskCluster(clusters.start(workers=0))


# ---------------------------------------------------------------- the scheduler dies


def test_a_lost_scheduler_is_an_error_of_the_run(
    clusters: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 3)
    sites, mixture = write_sites(tmp_path, 4, 100_000)
    address = clusters.start()
    with DaskCluster(address) as cluster:
        pid = cluster._client.run_on_scheduler(os.getpid)
        threading.Timer(0.5, os.kill, (pid, signal.SIGKILL)).start()
        with pytest.raises(
            EngineError, match=r"scheduler was lost|connection to the cluster is closed|scheduler has not answered"
        ):
            run(totals(mixture, 1_000), cluster.over(sites), deadline=30)
