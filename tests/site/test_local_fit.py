"""A site's own fit: the moments are those of its rows, in raw coordinates, wherever the rows are kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from consilience.data import shards
from consilience.fit import Specification, fit_mixture
from consilience.fit.criteria import bic, log_likelihood
from consilience.messages import FailureCode, FitSite, LocalFit, SiteError, encode
from consilience.model import Groups, Rows, expect
from consilience.model.information import coefficient_slice
from consilience.model.summary import column_summary
from consilience.numerics.arrays import unpack
from consilience.site import Site, answer
from consilience.site.local_fit import gate_covariates, local_fit
from families import SIZED
from sharded import write_rows
from simulated import FAMILIES, Simulated, simulated
from strategies import unweighted

GATES = ("softmax", "constant")
NO_RIDGE = {"gate_ridge": 0.0, "expert_ridge": 0.0}


def fitted(rows: Rows, specification: Specification, *, orders: tuple[int, ...] = (), **options: object) -> LocalFit:
    question = FitSite(specification, orders or (specification.K,), seed=0, **options)
    return local_fit(question, Site("here", rows))


def of(case: Simulated, rows: Rows | None = None, **options: object) -> LocalFit:
    return fitted(case.rows if rows is None else rows, case.specification, start=case.truth, **options)


def assert_same_model(a: LocalFit, b: LocalFit, tolerance: float) -> None:
    one, two = a.model, b.model
    for name in ("label_counts", "mass", "second", "precision", "weight", "log_likelihood", "exposure"):
        assert_allclose(getattr(one, name), getattr(two, name), rtol=tolerance, atol=tolerance, err_msg=name)
    free = (model.mixture.experts.free_coefficients() for model in (one, two))
    assert_allclose(*free, rtol=tolerance, atol=tolerance)
    assert a.stop is b.stop


# ---------------------------------------------------------------------- moments


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weights", [False, True])
def test_second_moments_are_those_of_raw_covariates(gate: str, intercept: bool, weights: bool) -> None:
    case = simulated(gate=gate, n=500, intercept=intercept, weights=weights, seed=2)
    rows, model = case.rows, of(case).model
    assert model.mixture.design.is_raw
    panel, w = model.mixture.design.panel(rows.X), np.ones(500) if rows.weight is None else rows.weight
    tau = model.mixture.responsibilities(rows).T * w
    assert_allclose(unpack(model.second), np.einsum("kn,an,bn->kab", tau, panel, panel), rtol=1e-8, atol=1e-8)
    assert_allclose(model.mass, tau.sum(axis=1), rtol=1e-8)
    assert_allclose(model.label_counts, model.mass)
    assert model.weight == pytest.approx(w.sum())
    assert model.log_likelihood == pytest.approx(log_likelihood(model.mixture, rows), rel=1e-9)


def test_units_and_places_of_covariates_are_those_of_the_rows() -> None:
    case = simulated(n=500, seed=2)
    X = 1e3 * case.X + np.array([5e3, -200.0])
    model = fitted(Rows(X, case.rows.Y), case.specification, n_init=2).model
    tau = model.mixture.responsibilities(Rows(X, case.rows.Y)).T
    panel = model.mixture.design.panel(X)
    assert_allclose(unpack(model.second), np.einsum("kn,an,bn->kab", tau, panel, panel), rtol=1e-6)
    assert_allclose(model.covariates.moments()[0], X.mean(axis=0), rtol=1e-9)


@pytest.mark.parametrize("family", ["categorical", "poisson"])
def test_other_families_send_no_second_moments(family: str) -> None:
    case = simulated(family, n=400, exposure=family in SIZED, seed=2)
    model = of(case).model
    assert model.second.shape == (0, 0)
    assert_allclose(model.mass.sum(), 400)
    assert model.covariates is not None
    assert model.exposure == pytest.approx(1.0 if case.rows.exposure is None else case.rows.exposure.mean())


def test_what_nothing_needs_is_not_sent() -> None:
    assert of(simulated(gate="constant", n=300)).model.covariates is None
    assert of(simulated("poisson", gate="constant", n=300)).model.covariates is not None
    assert of(simulated(gate="constant", n=300, d=0)).model.covariates is None


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("family", FAMILIES)
def test_precision_is_the_inverse_of_the_block_of_the_inverse_information(family: str, gate: str) -> None:
    case = simulated(family, gate=gate, n=1_200, exposure=family in SIZED, seed=6)
    question = FitSite(replace(case.specification, **NO_RIDGE), (2,), seed=0, start=case.truth)
    model = local_fit(question, Site("here", case.rows)).model
    J = expect(model.mixture, case.rows, information=True).information
    at = coefficient_slice(model.mixture)
    covariance = np.linalg.inv(J)[at, at]
    f = len(covariance) // 2
    for k in range(2):
        own = slice(k * f, (k + 1) * f)
        expected = np.linalg.inv(covariance[own, own])
        assert_allclose(unpack(model.precision)[k], expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_the_precision_of_a_coefficient_that_the_site_does_not_identify_is_that_of_its_columns() -> None:
    """The second column is constant: the site knows the sum of its coefficient and the intercept only."""
    case = simulated(n=300)
    X = np.column_stack([case.X[:, 0], np.ones(300)])
    model = fitted(Rows(X, case.rows.Y), case.specification, n_init=2).model
    precision = unpack(model.precision)
    np.testing.assert_allclose(precision[:, 2], precision[:, 0], rtol=1e-9)
    assert np.all(model.mixture.experts.B[:, 0, 2] == 0)


def test_experts_stand_by_their_share() -> None:
    for seed in range(3):
        model = of(simulated(n=400, seed=seed)).model
        assert np.all(np.diff(model.label_counts) <= 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_weight_is_a_repetition(family: str) -> None:
    case = simulated(family, n=600, weights=True, exposure=family in SIZED, seed=3)
    assert_same_model(of(case), of(case, unweighted(case.rows)), 1e-6)


def test_the_summary_is_that_of_the_columns() -> None:
    case = simulated(n=300, q=2)
    summary = of(case).summary
    expected = column_summary(case.rows)
    assert encode(summary) == encode(expected)


# ---------------------------------------------------------------------- groups


def test_of_groups_the_gate_reads_the_means() -> None:
    rng = np.random.default_rng(0)
    X, groups, weight = rng.normal(size=(9, 2)), np.array([3, 1, 1, 2, 3, 3, 2, 2, 2]), rng.uniform(0, 2, 9)
    weight[[1, 2]] = 0.0  # the group 1 has no weight
    means, present = gate_covariates(Rows(X, np.zeros((9, 1)), None, None, Groups.of(groups)))
    assert_allclose(means, [X[groups == g].mean(axis=0) for g in (1, 2, 3)])
    assert_allclose(present, 1.0)
    means, present = gate_covariates(Rows(X, np.zeros((9, 1)), weight, None, Groups.of(groups)))
    assert_allclose(means[1:], [np.average(X[groups == g], axis=0, weights=weight[groups == g]) for g in (2, 3)])
    assert_allclose(present, [0.0, 1.0, 1.0])


@pytest.mark.parametrize("gate", GATES)
def test_of_groups_labels_and_rows_are_counted_apart(gate: str) -> None:
    case = simulated(gate=gate, n=900, group_size=3, seed=1)
    model = of(case).model
    assert model.weight == pytest.approx(300)
    assert_allclose(model.label_counts.sum(), 300)
    assert_allclose(model.mass.sum(), 900)
    if gate == "softmax":
        means = np.add.reduceat(case.X, np.arange(0, 900, 3), axis=0) / 3
        assert_allclose(model.covariates.moments()[0], means.mean(axis=0), atol=1e-9)
        assert_allclose(model.covariates.moments()[1], means.var(axis=0), rtol=1e-5)


# ---------------------------------------------------------------------- where rows are kept


CASES = [
    pytest.param({"family": "gaussian"}, id="gaussian"),
    pytest.param({"family": "gaussian", "group_size": 4}, id="groups"),
    pytest.param({"family": "poisson", "exposure": True, "weights": True}, id="poisson"),
    pytest.param({"family": "categorical", "gate": "constant"}, id="categorical"),
]


@pytest.mark.slow
@pytest.mark.parametrize("options", CASES)
def test_rows_in_a_file_give_the_fit_of_rows_in_memory(
    options: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "CHUNK", 500)
    case = simulated(n=1_600, seed=4, **options)
    (streamed,) = write_rows(tmp_path, case, 1)
    kept = replace(streamed, keep=True)
    assert len(list(streamed.chunks())) == (1 if case.rows.groups else 4)
    question = FitSite(case.specification, (2,), seed=0, start=case.truth)
    here = local_fit(question, Site("here", case.rows))
    for site in (streamed, kept, streamed.loaded()):
        there = local_fit(question, site)
        assert_same_model(there, here, 1e-9)
        if here.model.covariates is not None:
            assert_allclose(there.model.covariates.means, here.model.covariates.means, rtol=1e-12, atol=1e-12)


def test_starts_of_its_own_are_the_same_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "CHUNK", 1_500)
    case = simulated(n=4_000, seed=4)  # more than a start looks at
    (streamed,) = write_rows(tmp_path, case, 1)
    question = FitSite(case.specification, (2,), seed=3, n_init=1)
    assert_same_model(local_fit(question, streamed), local_fit(question, Site("here", case.rows)), 1e-7)


# ---------------------------------------------------------------------- orders, seeds, starts


@pytest.mark.slow
@pytest.mark.parametrize("truth", [1, 2])
def test_of_several_orders_the_one_with_the_least_bic_is_sent(truth: int) -> None:
    case = simulated(n=500, seed=5)
    rows = case.rows if truth == 2 else Rows(case.X, case.X[:, :1] + np.random.default_rng(0).normal(size=(500, 1)))
    found = fitted(rows, case.specification, orders=(3, 1, 2), n_init=2)
    assert truth == found.model.mixture.K
    values = {}
    for K in (1, 2):
        fit = fit_mixture(rows, replace(case.specification, K=K), rng=np.random.default_rng(0), n_init=2)
        values[K] = bic(fit.log_likelihood, fit.mixture.parameter_count, 500)
    assert min(values, key=values.__getitem__) == truth


def test_a_seed_gives_the_same_bits_again() -> None:
    case = simulated(n=300, seed=5)
    question = FitSite(case.specification, (2,), seed=11, n_init=2)
    one, two, asked = (local_fit(question, Site("a", case.rows)) for _ in range(3))
    assert encode(one) == encode(two) == encode(answer(question, Site("b", case.rows)))
    assert encode(asked) == encode(one)


def test_a_start_is_taken_for_fits_of_its_order() -> None:
    case = simulated(n=300, seed=5)
    late = of(case, max_iter=1)  # one step from the truth
    assert str(late.stop).startswith("stopped")
    assert np.abs(late.model.mixture.experts.B - case.truth.experts.B).max() < 0.5
    other = fitted(case.rows, replace(case.specification, K=1), start=case.truth)
    assert other.model.mixture.K == 1


# ---------------------------------------------------------------------- rows that cannot be fitted


@pytest.mark.parametrize("gate", GATES)
def test_a_site_without_more_labels_than_parameters_has_no_model(gate: str) -> None:
    case = simulated(gate=gate, n=300)
    count = case.truth.parameter_count
    for n in (2, count):
        found = of(case, case.rows.take(np.arange(n)))
        assert found.model is None
        assert found.stop is None
        assert found.summary.weight == n
    assert of(case, case.rows.take(np.arange(4 * count))).model is not None


def test_groups_are_the_labels_that_are_counted() -> None:
    case = simulated(n=300, group_size=30)
    assert of(case).model is None


@pytest.mark.parametrize("n", [300, 1, 0])
def test_responses_that_do_not_vary_are_no_trouble(n: int) -> None:
    case = simulated(n=300)
    assert of(case, Rows(case.X[:n], np.ones((n, 1)))).model is None


@pytest.mark.parametrize(
    ("family", "value", "sentence"),
    [("categorical", 3.0, "one of the classes of the study"), ("poisson", 0.5, "counts 0, 1, 2")],
)
def test_responses_out_of_the_familys_range_are_named(family: str, value: float, sentence: str) -> None:
    case = simulated(family, n=200)
    Y = case.rows.Y.copy()
    Y[17] = value
    with pytest.raises(SiteError, match=sentence) as caught:
        answer(FitSite(case.specification, (2,), seed=0), Site("here", Rows(case.X, Y)))
    assert caught.value.code is FailureCode.OUT_OF_RANGE


def test_other_columns_than_asked_for_are_a_named_trouble() -> None:
    case = simulated(n=200)
    with pytest.raises(SiteError) as caught:
        answer(FitSite(case.specification, (2,), seed=0, columns=(3, 1)), Site("here", case.rows))
    assert caught.value.code is FailureCode.OTHER_COLUMNS
    found = answer(FitSite(case.specification, (2,), seed=0, start=case.truth, columns=(2, 1)), Site("here", case.rows))
    assert found.model is not None
