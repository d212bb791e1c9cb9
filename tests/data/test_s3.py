"""Shards in a store that speaks the S3 API: moto's server, in a process of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal
from pyarrow import csv, fs, parquet

from consilience import Federation, MixtureOfRegressions
from consilience.data.file_columns import Columns
from consilience.data.shards import CHUNK, Shard, column_names_in, distinct_values
from consilience.data.stores import expand
from consilience.errors import InvalidInputError, RoundStoppedError
from consilience.messages.failures import FailureCode, SiteError

pytest.importorskip("moto")
boto3 = pytest.importorskip("boto3")
pytest.importorskip("flask")  # of moto[server]
pytestmark = pytest.mark.slow

COLUMNS = Columns(("a", "b"), ("y",))


@dataclass(frozen=True)
class Keys:
    access: str = "testing"
    secret: str = "testing"

    def put(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", self.access)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", self.secret)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def server(**environment: str) -> Iterator[str]:
    """A store of its own; its address without the scheme."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        env=os.environ | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/moto-api/", process)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def wait_for(url: str, process: subprocess.Popen) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(300):
        try:
            with direct.open(url, timeout=2):
                return
        except (urllib.error.URLError, ConnectionError):
            assert process.poll() is None, "the server ended"
            time.sleep(0.05)
    pytest.fail("the server did not answer in time")


def store(endpoint: str, keys: Keys) -> fs.S3FileSystem:
    return fs.S3FileSystem(
        endpoint_override=endpoint,
        scheme="http",
        region="us-east-1",
        access_key=keys.access,
        secret_key=keys.secret,
        allow_bucket_creation=True,
    )


def table(n: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({name: rng.standard_normal(n) for name in "aby"} | {"g": [f"g{i % 3}" for i in range(n)]})


def write(files: fs.FileSystem, path: str, content: pa.Table) -> None:
    with files.open_output_stream(path, compression="gzip" if path.endswith(".gz") else None) as stream:
        (csv.write_csv if ".csv" in path else parquet.write_table)(content, stream)


@pytest.fixture(scope="module")
def open_store() -> Iterator[str]:
    """A store that asks for no keys, with some shards."""
    with server() as endpoint:
        files = store(endpoint, Keys())
        files.create_dir("lake")
        write(files, "lake/year=2024/a.parquet", table(CHUNK + 100))
        for i in range(3):
            write(files, f"lake/year=2024/part {i}.parquet", table(50, seed=i))
        write(files, "lake/year=2025/part 0.csv.gz", table(50))
        write(files, "lake/text.parquet", table(5))
        with files.open_output_stream("lake/broken.parquet") as stream:
            stream.write(b"not a Parquet file")
        yield endpoint


@pytest.fixture(scope="module")
def guarded_store() -> Iterator[tuple[str, Keys]]:
    """A store that checks signatures and rights, with one shard and the keys to it."""
    with server(INITIAL_NO_AUTH_ACTION_COUNT="3") as endpoint:
        admin = boto3.client(
            "iam",
            endpoint_url=f"http://{endpoint}",
            region_name="us-east-1",
            aws_access_key_id="any",
            aws_secret_access_key="any",
        )
        admin.create_user(UserName="reader")
        made = admin.create_access_key(UserName="reader")["AccessKey"]
        allowed = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
        admin.put_user_policy(UserName="reader", PolicyName="all", PolicyDocument=policy)  # the third and last free one
        keys = Keys(made["AccessKeyId"], made["SecretAccessKey"])
        files = store(endpoint, keys)
        files.create_dir("lake")
        write(files, "lake/a.parquet", table(100))
        yield endpoint, keys


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """No setting of this machine's own; the keys of the open store."""
    for name in [name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    Keys().put(monkeypatch)


def query(endpoint: str) -> str:
    return f"?endpoint_override={endpoint}&scheme=http&region=us-east-1"


def code(uri: str) -> FailureCode:
    with pytest.raises(SiteError) as caught:
        list(Shard(uri, COLUMNS).chunks())
    return caught.value.code


def assert_same_bits(shard: Shard, content: pa.Table) -> None:
    chunks = list(shard.chunks())
    assert sum(rows.n for rows in chunks) == shard.count() == len(content)
    X = np.concatenate([rows.X for rows in chunks])
    assert_array_equal(X, np.stack([content["a"].to_numpy(), content["b"].to_numpy()], axis=1))
    assert_array_equal(np.concatenate([rows.Y for rows in chunks])[:, 0], content["y"].to_numpy())


def test_endpoint_in_the_address(open_store):
    uri = f"s3://lake/year=2024/a.parquet{query(open_store)}"
    assert_same_bits(Shard(uri, COLUMNS), table(CHUNK + 100))
    assert column_names_in(uri) == ("a", "b", "y", "g")
    assert distinct_values(uri, "g") == ["g0", "g1", "g2"]
    (rows,) = Shard(uri, Columns(("a",), ("y",), groups="g")).chunks()
    assert len(rows.groups.bounds) == 4


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_endpoint_in_the_environment(open_store, monkeypatch, name):
    monkeypatch.setenv(name, f"http://{open_store}/")
    assert_same_bits(Shard("s3://lake/year=2024/a.parquet", COLUMNS), table(CHUNK + 100))
    assert_same_bits(Shard("s3://lake/year=2025/part%200.csv.gz", COLUMNS), table(50))


def test_the_address_wins_over_the_environment(open_store, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert Shard(f"s3://lake/year=2024/a.parquet{query(open_store)}", COLUMNS).count() == CHUNK + 100


def test_expand_lists_the_store(open_store):
    q = query(open_store)
    found = expand(f"s3://lake/year=2024/part%20*.parquet{q}")
    assert [uri.removesuffix(q) for uri in found] == [f"s3://lake/year=2024/part%20{i}.parquet" for i in range(3)]
    for i, uri in enumerate(found):
        assert_same_bits(Shard(uri, COLUMNS), table(50, seed=i))
    assert len(expand(f"s3://lake/year=*/part*{q}")) == 4
    assert len(expand(f"s3://lake/*.parquet{q}")) == 2
    assert expand(f"s3://lake/text.parquet{q}") == (f"s3://lake/text.parquet{q}",)
    for pattern in ("lake/nowhere/*.parquet", "lake/*.pq", "lake/none.parquet", "lake", "ocean/*", "ocean/a/*"):
        with pytest.raises(InvalidInputError, match=r"no file matches 's3://[lo]") as caught:
            expand(f"s3://{pattern}{q}")
        assert "endpoint" not in str(caught.value)


def test_what_is_not_there_or_not_readable(open_store):
    q = query(open_store)
    assert code(f"s3://lake/none.parquet{q}") is FailureCode.DATA_NOT_FOUND
    assert code(f"s3://lake/none.csv{q}") is FailureCode.DATA_NOT_FOUND
    assert code(f"s3://ocean/none.parquet{q}") is FailureCode.DATA_NOT_FOUND
    assert code(f"s3://lake/broken.parquet{q}") is FailureCode.DATA_UNREADABLE


def test_right_keys(guarded_store, monkeypatch):
    endpoint, keys = guarded_store
    keys.put(monkeypatch)
    uri = f"s3://lake/a.parquet{query(endpoint)}"
    assert_same_bits(Shard(uri, COLUMNS), table(100))
    assert expand(f"s3://lake/*{query(endpoint)}") == (uri,)


@pytest.mark.parametrize("wrong", ["access", "secret"])
def test_wrong_keys(guarded_store, monkeypatch, wrong):
    endpoint, keys = guarded_store
    Keys(**(vars(keys) | {wrong: "AKIAIOSFODNN7EXAMPLE"})).put(monkeypatch)
    assert code(f"s3://lake/a.parquet{query(endpoint)}") is FailureCode.NO_CREDENTIALS
    for ask in (lambda uri: Shard(uri, COLUMNS).count(), column_names_in, expand):
        with pytest.raises(SiteError) as caught:
            ask(f"s3://lake/a.parquet{query(endpoint)}")
        assert caught.value.code is FailureCode.NO_CREDENTIALS
    with pytest.raises(SiteError) as caught:
        expand(f"s3://lake/*.parquet{query(endpoint)}")
    assert caught.value.code is FailureCode.NO_CREDENTIALS


def test_keys_in_an_address_are_refused_and_not_shown(open_store):
    with pytest.raises(SiteError) as caught:
        list(Shard(f"s3://key:hidden@lake/text.parquet{query(open_store)}", COLUMNS).chunks())
    assert caught.value.code is FailureCode.NO_CREDENTIALS
    assert "hidden" not in str(caught.value)


def test_unknown_options_are_refused(open_store):
    assert code(f"s3://lake/text.parquet{query(open_store)}&retries=9") is FailureCode.DATA_NOT_FOUND


def test_a_store_that_is_down_is_given_up_soon():
    start = time.monotonic()
    assert code(f"s3://lake/a.parquet{query(f'127.0.0.1:{free_port()}')}") is FailureCode.NO_STORE
    assert time.monotonic() - start < 30


def test_a_fit_over_a_store_is_the_fit_over_files(open_store, tmp_path):
    for i in range(3):
        parquet.write_table(table(50, seed=i), tmp_path / f"part {i}.parquet")
    features = {"target": "y", "features": ["a", "b"]}
    stored = Federation.from_parquet(f"s3://lake/year=2024/part%20*.parquet{query(open_store)}", **features)
    local = Federation.from_parquet(str(tmp_path / "*.parquet"), **features)
    ours, theirs = (table_.fit(MixtureOfRegressions(2, random_state=0)) for table_ in (stored, local))
    assert_array_equal(ours.model.coef_, theirs.model.coef_)
    assert ours.record.sites == tuple(f"part%20{i}.parquet" for i in range(3))


def test_a_fit_with_wrong_keys_names_the_credentials(guarded_store, monkeypatch):
    endpoint, keys = guarded_store
    keys.put(monkeypatch)
    shards = Federation.from_parquet(f"s3://lake/*{query(endpoint)}", target="y", features=["a", "b"])
    Keys(keys.access, "AKIAIOSFODNN7EXAMPLE").put(monkeypatch)
    with pytest.raises(RoundStoppedError, match=r"a\.parquet: the data store refused the credentials") as caught:
        shards.fit(MixtureOfRegressions(2, random_state=0))
    assert "AKIA" not in str(caught.value)


def test_scores_are_written_to_the_store_and_resumed(open_store, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{open_store}")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    shards = Federation.from_parquet("s3://lake/year=2024/part*.parquet", target="y", features=["a", "b"])
    model = shards.fit(MixtureOfRegressions(1, random_state=0)).model
    assert shards.predict(model, "s3://lake/scores").rows == 150
    files = store(open_store, Keys())
    found = [info.path for info in files.get_file_info(fs.FileSelector("lake/scores"))]
    assert sorted(found) == [f"lake/scores/part {i}.parquet" for i in range(3)]
    files.delete_file(found[0])
    again = shards.predict(model, "s3://lake/scores")
    assert (again.rows, again.were_there) == (50, 2)
    with pytest.raises(InvalidInputError, match="would be among the inputs"):
        shards.predict(model, "s3://lake/year=2024", overwrite=True)
