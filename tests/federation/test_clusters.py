"""Clusters of rows: sums of scores by their formula, one table and sites alike, and what is said about few of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience import FederatedEM, Federation, GaussianMixture, MixtureOfRegressions, OneShot, load
from consilience.errors import InvalidInputError
from consilience.model import Rows, expect
from consilience.model.expectation import score_products
from consilience.model.rows import Groups
from simulated import simulated

pytestmark = pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
PATIENTS, VISITS, SITES = 24, 10, 3


@cache
def visits(patients: int = PATIENTS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of patients: a covariate of the visit, one of the patient, and an effect of the patient on the response."""
    rng = np.random.default_rng(0)
    code = np.repeat(np.arange(patients), VISITS)
    X = np.column_stack([rng.normal(size=len(code)), rng.normal(size=patients)[code]])
    upper = rng.random(len(code)) < 0.5
    noise = 0.5 * rng.normal(size=patients)[code] + 0.4 * rng.normal(size=len(code))
    return X, np.where(upper, 4 + X[:, 0], -X[:, 0]) + noise, code


def estimator() -> MixtureOfRegressions:
    return MixtureOfRegressions(2, random_state=0, n_init=2)


@cache
def pooled() -> MixtureOfRegressions:
    X, y, code = visits()
    return estimator().fit(X, y, clusters=code)


def sites(part: str = "clusters") -> dict[str, dict[str, Any]]:
    X, y, code = visits()
    places = {f"s{m}": code % SITES == m for m in range(SITES)}
    return {name: {"X": X[i], "y": y[i], part: code[i]} for name, i in places.items()}


def errors(inference: Any) -> np.ndarray:
    return np.asarray(np.sqrt(np.diagonal(inference.covariance)))


def test_scores_are_summed_within_clusters_and_those_without_weight_do_not_count() -> None:
    case = simulated(n=60, weights=True, group_size=2)
    single = case.rows.take(np.arange(60))
    codes = np.arange(60) // 6
    rows = Rows(single.X, single.Y, single.weight, None, single.groups, Groups.of(codes))
    second = expect(case.truth, rows).experts.second
    parts = [single.take(np.flatnonzero(codes == c)) for c in range(10)]
    S = [score_products(case.truth, Rows(p.X, p.Y, p.weight, None, p.groups, Groups.of(np.zeros(6)))) for p in parts]
    found = score_products(case.truth, rows, second)
    np.testing.assert_allclose(found.products, sum(each.products for each in S), rtol=1e-9, atol=1e-9)
    assert found.clusters == 10
    assert np.linalg.matrix_rank(S[0].products) == 1
    empty = np.where(codes == 0, 0.0, single.weight)
    assert score_products(case.truth, Rows(rows.X, rows.Y, empty, None, rows.groups, rows.clusters)).clusters == 9


def test_a_cluster_for_each_row_is_no_cluster() -> None:
    X, y, _ = visits()
    model, n = pooled(), len(y)
    found = model.infer(X, y, kind="sandwich", clusters=np.arange(n))
    rows = model.rows(X, y)
    plain = score_products(model._fit_result.ascent.mixture, rows).products
    clustered = score_products(model._fit_result.ascent.mixture, model.rows(X, y, clusters=np.arange(n))).products
    np.testing.assert_allclose(clustered, plain, rtol=1e-9, atol=1e-9 * np.abs(plain).max())
    assert found.clusters == n


def test_one_regression_has_the_cluster_robust_errors_of_the_textbook() -> None:
    X, y, code = visits()
    model = MixtureOfRegressions(1, random_state=0).fit(X, y, clusters=code)
    F, G, n = np.column_stack([np.ones(len(X)), X]), PATIENTS, len(y)
    bread = np.linalg.inv(F.T @ F)
    residual = y - F @ (bread @ F.T @ y)
    S = np.array([F[code == g].T @ residual[code == g] for g in range(G)])
    expected = np.sqrt(np.diag(bread @ S.T @ S @ bread) * G / (G - 1) * n / (n - 3))
    found = model.infer(X, y, kind="sandwich", clusters=code)
    np.testing.assert_allclose(found.standard_errors().experts[0, 0], expected, rtol=1e-6)
    assert np.all(found.degrees_of_freedom().flat() <= G - 1)


def test_clusters_widen_the_error_of_what_is_constant_in_them() -> None:
    X, y, _ = visits()
    plain = estimator().fit(X, y)
    ratio = pooled().inference_.standard_errors().experts / plain.inference_.standard_errors().experts
    assert np.all(ratio[:, 0, 2] > 1.2)  # the covariate of the patient
    assert "sandwich over 24 clusters" in pooled().summary()
    assert "clusters" not in plain.summary()


@pytest.mark.parametrize("method", [FederatedEM(screen=False), FederatedEM(totals_only=True), OneShot(refine=8)])
def test_sites_have_the_errors_of_one_table(method: Any) -> None:
    model = estimator().set_params(mixture_init=pooled().mixture_)
    result = Federation(sites()).fit(model, method=method)
    assert result.model.inference_.clusters == PATIENTS
    found, expected = result.infer("larger"), model.fit(*visits()[:2], clusters=visits()[2]).inference_
    close = 1e-6 if isinstance(method, OneShot) else 1e-8  # refinement ends a little before the maximum
    np.testing.assert_allclose(errors(found), errors(expected), rtol=close)
    np.testing.assert_allclose(found.degrees, expected.degrees, rtol=close)


def test_files_of_sites_have_a_column_of_clusters(tmp_path: Path) -> None:
    X, y, code = visits()
    names = np.array([f"patient {c:03d}" for c in code])
    for m in range(SITES):
        i = code % SITES == m
        pq.write_table(pa.table({"a": X[i, 0], "b": X[i, 1], "y": y[i], "who": names[i]}), tmp_path / f"{m}.parquet")
    table = Federation.from_parquet(str(tmp_path / "*.parquet"), target="y", clusters="who")
    model = estimator().set_params(mixture_init=pooled().mixture_)
    result = table.fit(model)
    assert list(result.model.feature_names_in_) == ["a", "b"]
    np.testing.assert_allclose(errors(result.infer("larger")), errors(pooled().inference_), rtol=1e-6)


def test_a_site_may_be_a_cluster_from_twenty_sites_on() -> None:
    X, y, code = visits()
    each = {f"p{c}": (X[code == c], y[code == c]) for c in range(PATIENTS)}
    model = estimator().set_params(mixture_init=pooled().mixture_)
    found = Federation(each).fit(model, method=FederatedEM(screen=False)).infer("clustered by site")
    np.testing.assert_allclose(errors(found), errors(pooled().infer(X, y, kind="sandwich", clusters=code)), rtol=1e-6)
    few = Federation(sites("groups")).fit(model)
    with pytest.raises(InvalidInputError, match="scores of 3 sites are known, and at least 20"):
        few.infer("clustered by site")


def test_few_clusters_are_said_and_one_has_no_intervals(tmp_path: Path) -> None:
    X, y, code = visits()
    model = pooled()
    few = estimator().fit(X, y, clusters=code % 5)
    assert "sandwich over 5 clusters" in few.summary()
    assert "Fewer than 10 clusters" in few.summary()
    few.save(tmp_path / "few.json")
    assert load(tmp_path / "few.json").summary() == few.summary()
    one = model.infer(X, y, clusters=np.zeros(len(y)))
    assert "all rows are in one cluster" in one.withheld["experts"]
    assert np.isnan(one.standard_errors().flat()).all()


def test_wrong_clusters_are_named() -> None:
    X, y, code = visits()
    with pytest.raises(InvalidInputError, match=r"clusters has shape \(3,\) for 240 rows"):
        estimator().fit(X, y, clusters=[1, 2, 3])
    with pytest.raises(InvalidInputError, match="a group has rows in two clusters"):
        estimator().fit(X, y, groups=code, clusters=np.arange(len(y)) % 7)
    mixed = sites()
    del mixed["s0"]["clusters"]
    with pytest.raises(InvalidInputError, match="some sites have clusters"):
        Federation(mixed)


def test_other_kinds_are_of_what_the_sites_have_sent() -> None:
    result = Federation(sites()).fit(estimator(), method=OneShot(refine=0))
    with pytest.raises(InvalidInputError, match="not asked for products of scores"):
        result.infer("sandwich")
    with pytest.raises(InvalidInputError, match="kind='jackknife': expected one of"):
        result.infer("jackknife")


def test_a_gaussian_mixture_has_clusters_too() -> None:
    X, _, code = visits()
    assert GaussianMixture(1, random_state=0).fit(X, clusters=code).inference_.clusters == PATIENTS
