"""Private scoring over files, in this process and on a Dask cluster: the noise is drawn where the rows are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from consilience import DaskCluster, Federation, MixtureOfExpertsRegressor
from consilience.errors import InvalidInputError
from consilience.methods import PrivateScoring
from consilience.model import Mixture, mixture_of_experts
from consilience.numerics.budget import rho_of

pytestmark = pytest.mark.slow


def truth() -> Mixture:
    return mixture_of_experts(np.array([[0.1, 0.5], [-0.1, -0.5]]), np.array([[-1.5, 0.8], [1.5, -0.2]]), 0.4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found, rng = tmp_path_factory.mktemp("shards"), np.random.default_rng(2)
    for i in range(3):
        x = rng.normal(size=(1000, 1))
        y = truth().sample(x, rng)[0][:, 0]
        parquet.write_table(pa.table({"x": x[:, 0], "y": y, "w": np.ones(1000)}), found / f"{i}.parquet")
    return found


def near() -> MixtureOfExpertsRegressor:
    return MixtureOfExpertsRegressor(2, random_state=0, mixture_init=truth())


def method(**how: object) -> PrivateScoring:
    X = np.random.default_rng(3).normal(size=(1500, 1))
    return PrivateScoring(8, covariates=X, rounds=2, **how)  # type: ignore[arg-type]


def check(federation: Federation) -> None:
    found = federation.fit(near(), method())
    assert found.settled
    assert found.privacy.rho == rho_of(8, 1e-6)
    assert abs(found.fit.ascent.statistics.weight - 3000) < 150
    assert found.fit.ascent.statistics.weight != 3000
    other = federation.fit(near(), method())
    assert not np.array_equal(found.model.coef_, other.model.coef_)  # the noise is not from a seed


def test_files_in_this_process(folder: Path) -> None:
    check(Federation.from_parquet(f"{folder}/*.parquet", target="y", features=["x"]))


def test_files_on_a_cluster(folder: Path) -> None:
    with DaskCluster(n_workers=2) as cluster:
        over = Federation.from_parquet(f"{folder}/*.parquet", target="y", features=["x"], engine=cluster)
        check(over)
        with pytest.raises(InvalidInputError, match="owner of all files"):
            over.fit(near(), method(sums="masked"))


def test_columns_that_are_not_served_are_refused_before_anything_is_asked(folder: Path) -> None:
    over = Federation.from_parquet(f"{folder}/*.parquet", target="y", features=["x"], weight="w")
    with pytest.raises(InvalidInputError, match="weights"):
        over.fit(near(), method())
