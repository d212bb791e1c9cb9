"""Rounding of a file: no exact digits, and no more lost than a small part of a standard error."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.files.site_file import SiteFile
from consilience.kit.policy.rounding import errors_in, round_correlated, round_fit, round_moments, round_number
from consilience.kit.policy.rules import complete_precision, flatten_precision, flattened_experts
from consilience.kit.site_fit import question_of
from consilience.kit.study import Study
from consilience.messages import LocalFit
from consilience.model import Rows
from consilience.numerics.arrays import Array, unpack
from consilience.site import Site
from consilience.site.local_fit import local_fit
from policy_cases import rows_from, study_of

RESPONSES = {
    "gaussian": lambda eta, rng: eta + rng.normal(size=len(eta)),
    "student": lambda eta, rng: eta + rng.standard_t(5, len(eta)),
    "gamma": lambda eta, rng: rng.gamma(3.0, np.exp(eta / 4) / 3),
    "poisson": lambda eta, rng: rng.poisson(np.exp(eta / 4)).astype(float),
    "negative_binomial": lambda eta, rng: rng.negative_binomial(3, 3 / (3 + np.exp(eta / 4))).astype(float),
}


def site_of(family: str, n: int, *, gate: str = "softmax", collinear: bool = False) -> tuple[Study, Rows, LocalFit]:
    """Two regressions on a year, a number, and a column that is nearly the year."""
    rng = np.random.default_rng(n)
    year, b = rng.normal(2000, 3, n), rng.normal(size=n)
    c = year + 0.01 * rng.normal(size=n) if collinear else rng.normal(size=n)
    eta = np.where(rng.random(n) < 1 / (1 + np.exp(-b)), 3 + 0.5 * (year - 2000) + b, -3 + 2 * b)
    study = study_of(["a", "b", "c"], gate=gate, family=family)
    rows = rows_from(study, y=RESPONSES[family](eta, rng), a=year, b=b, c=c)
    return study, rows, local_fit(question_of(study), Site("north", rows))


def distance(one: Array, other: Array, precision: Array) -> Array:
    """Distance of the coefficients of each expert in standard errors, root mean square over coefficients."""
    gap = (one - other).reshape(len(precision), -1)
    return np.sqrt(np.einsum("kf,kfg,kg->k", gap, precision, gap) / gap.shape[1])


@pytest.mark.parametrize("collinear", [False, True])
@pytest.mark.parametrize("n", [100, 400, 20_000])
def test_what_is_lost_is_a_small_part_of_a_standard_error(n: int, collinear: bool) -> None:
    _, rows, fit = site_of("gaussian", n, collinear=collinear)
    found = round_fit(fit)
    most = errors_in(n / 2)  # at most 2.5 units, of which rounding loses 0.29
    before, after = fit.model.mixture, found.model.mixture
    gap = distance(before.experts.free_coefficients(), after.experts.free_coefficients(), complete_precision(fit.model))
    assert gap.max() < most
    lost = before.log_density(rows).sum() - after.log_density(rows).sum()
    assert lost < before.parameter_count * most**2
    errors = [
        1 / np.sqrt(np.diagonal(np.linalg.inv(unpack(m.precision)), axis1=1, axis2=2)) for m in (fit.model, found.model)
    ]
    np.testing.assert_allclose(errors[0], errors[1], rtol=3 * most / np.sqrt(n / 2) + 0.02 * (n < 200))
    deviation = np.sqrt(fit.summary.x_variance / n)
    assert np.all(np.abs(found.summary.x_mean - fit.summary.x_mean) < most * deviation)


@pytest.mark.parametrize("gate", ["softmax", "constant"])
@pytest.mark.parametrize("family", list(RESPONSES))
def test_a_rounded_fit_of_every_family_is_a_valid_file_with_few_digits(family: str, gate: str) -> None:
    study, _, fit = site_of(family, 400, gate=gate)
    found = round_fit(fit)
    file = SiteFile(study.identity, "north", ("(intercept)", *study.covariates.terms), found)
    assert SiteFile.from_text(file.to_text()).hash == file.hash
    for value in [*found.model.mixture.experts.B.ravel(), *found.model.mass, found.model.log_likelihood]:
        assert float(f"{value:.7g}") == pytest.approx(value, rel=1e-13)
    assert round_fit(fit).model.mixture.to_vector().tolist() == found.model.mixture.to_vector().tolist()


def test_a_small_change_of_the_rows_leaves_most_numbers_as_they_are() -> None:
    _, rows, fit = site_of("gaussian", 400)
    other = Rows(rows.X, rows.Y * (1 + 1e-9))
    again = local_fit(question_of(study_of(["a", "b", "c"], gate="softmax")), Site("north", other))
    one, two = round_fit(fit).model, round_fit(again).model
    assert np.mean(one.mixture.experts.B == two.mixture.experts.B) > 0.8
    assert np.mean(fit.model.mixture.experts.B == again.model.mixture.experts.B) < 0.2


def test_a_flattened_precision_stays_flat() -> None:
    _, _, fit = site_of("gaussian", 400)
    flat = LocalFit(fit.summary, flatten_precision(fit.model, [1]), fit.stop)
    assert flattened_experts(round_fit(flat).model).tolist() == [False, True]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(0, 10**6), st.sampled_from([0.0, 1e-6, 1e-3, 1.0]))
def test_rounded_moments_stay_near_and_semidefinite(p: int, seed: int, last: float) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, p)) + 10 * rng.normal(size=p)
    if p > 1:
        X[:, -1] = X[:, 0] + last * X[:, -1]
    moments = X.T @ X
    found = round_moments(moments, 300)
    scale = np.sqrt(np.outer(np.diagonal(moments), np.diagonal(moments)))
    assert np.linalg.eigvalsh(found / scale).min() > -1e-12
    assert np.abs((found - moments) / scale).max() < 2.5 * p * errors_in(300) / np.sqrt(300)


def test_zeros_stay_and_each_number_is_a_multiple_of_a_unit() -> None:
    A = np.random.default_rng(0).normal(size=(40, 3))
    values = np.array([0.123456, 0.0, -4.56789])
    found = round_correlated(values, A.T @ A, 0.1)
    assert found[1] == 0
    assert all(f"{value:g}" == repr(value) for value in found[[0, 2]].tolist())
    assert round_number(found[0], 0.1 / 7) == pytest.approx(found[0], abs=0.02)
