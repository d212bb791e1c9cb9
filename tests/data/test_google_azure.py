"""Shards in the stores of Google and Azure: the file systems that addresses stand for, and local emulators."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from socket import socket
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, fs, parquet

from consilience import Federation, MixtureOfRegressions
from consilience.data.file_columns import Columns
from consilience.data.shards import CHUNK, Shard
from consilience.data.stores import expand, open_store, show_address
from consilience.errors import InvalidInputError
from consilience.messages.failures import FailureCode, SiteError

COLUMNS = Columns(("a", "b"), ("y",))
# The account and the key of Azurite, which are in its documentation.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
azure = pytest.mark.skipif(not hasattr(fs, "AzureFileSystem"), reason="this pyarrow has no Azure")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of this machine's own."""
    beginnings = ("AZURE_", "GOOGLE_", "STORAGE_EMULATOR", "CLOUDSDK_")
    for name in [name for name in os.environ if name.startswith(beginnings) or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def options_of(store: fs.FileSystem) -> dict[str, Any]:
    """Return the options of a file system, as it is sent to other processes."""
    _, (given,) = store.__reduce__()
    return dict(given)


# ---------------------------------------------------------------- addresses


def test_an_address_at_google_is_its_file_system() -> None:
    store, path = open_store("gs://lake/year%202024/a.parquet")
    assert (store.type_name, path) == ("gcs", "lake/year 2024/a.parquet")
    own = options_of(store)
    assert (own["anonymous"], own["endpoint_override"], own["retry_time_limit"].seconds) == (False, "", 10)


@pytest.mark.parametrize("by", ["address", "environment"])
def test_an_emulator_of_google_is_asked_without_keys(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    query = "?endpoint_override=127.0.0.1:4443&scheme=http"
    if by == "environment":
        query = ""
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:4443")
    own = options_of(open_store(f"gs://lake/a.parquet{query}")[0])
    assert (own["anonymous"], own["endpoint_override"], own["scheme"]) == (True, "127.0.0.1:4443", "http")


@azure
@pytest.mark.parametrize("scheme", ["abfs", "abfss"])
def test_an_address_at_azure_is_its_account_and_container(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"{scheme}://lake@hospital.dfs.core.windows.net/year%202024/a.parquet"
    store, path = open_store(address)
    assert (store.type_name, path) == ("abfs", "lake/year 2024/a.parquet")
    own = options_of(store)
    assert (own["account_name"], own["account_key"] or "") == ("hospital", "")
    assert show_address(address) == address
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "clinic")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    store, path = open_store(f"{scheme}://lake/a.parquet?endpoint_override=127.0.0.1:1&scheme=http")
    own = options_of(store)
    assert (own["account_name"], own["account_key"], path) == ("clinic", KEY, "lake/a.parquet")
    for service in ("blob", "dfs"):
        assert own[f"{service}_storage_authority"] == "127.0.0.1:1"
        assert own[f"{service}_storage_scheme"] == "http"


@pytest.mark.parametrize(
    ("address", "code", "said"),
    [
        ("gs://hidden@lake/a.parquet", FailureCode.NO_CREDENTIALS, "gs://lake/a.parquet: keys belong"),
        ("abfs://lake:hidden@x.dfs.core.windows.net/a.parquet", FailureCode.NO_CREDENTIALS, "abfs://lake@x.dfs"),
        ("gs://lake/a.parquet?region=eu", FailureCode.DATA_NOT_FOUND, "has options region"),
        ("abfs://lake/a.parquet", FailureCode.DATA_NOT_FOUND, "names no account"),
        (
            "hdfs://lake/a.parquet",
            FailureCode.DATA_NOT_FOUND,
            "expected a local path, file://, s3://, gs:// or abfs://",
        ),
    ],
)
def test_addresses_that_cannot_be_opened(address: str, code: FailureCode, said: str) -> None:
    with pytest.raises(SiteError, match=said) as caught:
        open_store(address)
    assert caught.value.code is code
    assert "hidden" not in str(caught.value)


# ---------------------------------------------------------------- emulators


def table(n: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({name: rng.standard_normal(n) for name in "aby"})


def fill(store: fs.FileSystem) -> None:
    """Put shards into a new bucket."""
    store.create_dir("lake")
    for name, content in {"a": table(CHUNK + 100), **{f"part {i}": table(60, i) for i in range(3)}}.items():
        with store.open_output_stream(f"lake/year=2024/{name}.parquet") as stream:
            parquet.write_table(content, stream)
    with store.open_output_stream("lake/rows.csv") as stream:
        csv.write_csv(table(50), stream)


@contextmanager
def started(command: list[str], port: int, folder: Path) -> Iterator[str]:
    """Start an emulator on a port of this machine."""
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=folder, **quiet)
    try:
        for _ in range(600):
            assert process.poll() is None, "the emulator ended"
            with socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


Lake = Callable[[str], str]
"""Returns the address of a path in the bucket."""


@pytest.fixture(scope="module", params=["google", "azure"])
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A bucket with shards in an emulator."""
    port, folder = free_port(), tmp_path_factory.mktemp("emulator")
    if request.param == "google":
        if find_spec("gcp_storage_emulator") is None:
            pytest.skip("pip install --group referee")
        script = "from gcp_storage_emulator.__main__ import main; main()"
        command = [sys.executable, "-c", script, "start", "--host", "127.0.0.1", "--port", str(port), "--in-memory"]
        with started(command, port, folder) as endpoint:
            query = f"?endpoint_override={endpoint}&scheme=http"
            fill(fs.GcsFileSystem(anonymous=True, scheme="http", endpoint_override=endpoint, project_id="any"))
            yield lambda path: f"gs://lake/{path}{query}"
        return
    program = shutil.which("azurite-blob")
    if program is None or not hasattr(fs, "AzureFileSystem"):
        pytest.skip("npm install --global azurite")
    command = [program, "--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    command += ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with started(command, port, folder) as endpoint, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
        address = f"abfs://lake@{ACCOUNT}.dfs.core.windows.net/{{}}?endpoint_override={endpoint}&scheme=http"
        fill(open_store(address.format(""))[0])
        yield address.format


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch, environment: None, request: pytest.FixtureRequest) -> None:
    if "lake" in request.fixturenames:
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)


def code(uri: str) -> FailureCode:
    with pytest.raises(SiteError) as caught:
        list(Shard(uri, COLUMNS).chunks())
    return caught.value.code


@pytest.mark.slow
def test_shards_are_read_to_the_bit_and_listed(lake: Lake) -> None:
    for path, content in {"year=2024/a.parquet": table(CHUNK + 100), "rows.csv": table(50)}.items():
        chunks = list(Shard(lake(path), COLUMNS).chunks())
        X = np.concatenate([rows.X for rows in chunks])
        np.testing.assert_array_equal(X, np.stack([content["a"].to_numpy(), content["b"].to_numpy()], axis=1))
    assert expand(lake("year=2024/part%20*.parquet")) == tuple(lake(f"year=2024/part%20{i}.parquet") for i in range(3))
    assert expand(lake("rows.csv")) == (lake("rows.csv"),)
    with pytest.raises(InvalidInputError, match="no file matches"):
        expand(lake("none/*.parquet"))


@pytest.mark.slow
def test_a_fit_and_its_scores_are_those_of_local_files(lake: Lake, tmp_path: Path) -> None:
    for i in range(3):
        parquet.write_table(table(60, i), tmp_path / f"part {i}.parquet")
    features: dict[str, Any] = {"target": "y", "features": ["a", "b"]}
    stored = Federation.from_parquet(lake("year=2024/part%20*.parquet"), **features)
    ours = stored.fit(MixtureOfRegressions(2, random_state=0)).model
    local = Federation.from_parquet(str(tmp_path / "*.parquet"), **features)
    assert np.array_equal(ours.coef_, local.fit(MixtureOfRegressions(2, random_state=0)).model.coef_)
    assert stored.predict(ours, lake("scores")).rows == 180
    files, path = open_store(lake("scores"))
    names = sorted(info.path for info in files.get_file_info(fs.FileSelector(path)))
    assert names == [f"lake/scores/part {i}.parquet" for i in range(3)]
    files.delete_file(names[0])
    again = stored.predict(ours, lake("scores"))
    assert (again.rows, again.were_there) == (60, 2)


@pytest.mark.slow
def test_what_is_wrong_with_a_store_is_said(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert code(lake("none.parquet")) is FailureCode.DATA_NOT_FOUND
    assert code(lake("none.csv")) is FailureCode.DATA_NOT_FOUND
    assert code(f"{lake('rows.csv')}&retries=9") is FailureCode.DATA_NOT_FOUND
    down = lake("a.parquet").split("?")[0] + f"?endpoint_override=127.0.0.1:{free_port()}&scheme=http"
    assert code(down) is FailureCode.NO_STORE
    if down.startswith("abfs"):
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "AAAA" + KEY[4:])
        assert code(lake("year=2024/a.parquet")) is FailureCode.NO_CREDENTIALS
        monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
        assert code(lake("year=2024/a.parquet")) is FailureCode.NO_CREDENTIALS
