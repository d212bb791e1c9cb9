"""Rivals of a combined mixture: a result is not below them in silence."""

from __future__ import annotations

import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm

from consilience import Federation, MixtureOfExpertsRegressor, OneShot
from consilience.datasets import soft
from consilience.errors import ConsilienceWarning, UntrustedWarning
from consilience.fit import Specification, fit_mixture
from consilience.messages import FitSite
from consilience.methods.one_shot.refinement import Contest, Rivals, regression_of_moments, unrefined_rivals
from consilience.model import Rows, expect
from consilience.model.summary import ColumnSummary
from consilience.site import Site, answer

pytestmark = pytest.mark.usefixtures("few_points")


def strangers(seed: int, sites: int = 4, n: int = 150) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Sites with the same slope and intercepts far apart: no mixture of two experts fits them all."""
    rng = np.random.default_rng(seed)
    parts = {}
    for m in range(sites):
        X = rng.normal(3.0 * m, 1.0, (n, 3))
        parts[f"site {m}"] = (X, X @ [1.0, -1.0, 0.5] + rng.normal(0, 0.3, n))
    return parts


def quiet_fit(parts, method):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = Federation(parts).fit(MixtureOfExpertsRegressor(2, random_state=0, n_init=2), method=method)
    return result, [w for w in said if issubclass(w.category, ConsilienceWarning)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_one_regression_is_evaluated_exactly(seed: int) -> None:
    parts = strangers(seed)
    result, _ = quiet_fit(parts, OneShot(refine=1))
    rows = Rows(np.vstack([X for X, _ in parts.values()]), np.concatenate([y for _, y in parts.values()])[:, None])
    one = fit_mixture(rows, Specification(K=1), rng=np.random.default_rng(0))
    assert result.fit.rivals.one_regression == pytest.approx(one.log_likelihood, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("refine", [1, 3])
def test_what_is_shown_is_of_the_returned_mixture_and_above_its_rivals(refine: int) -> None:
    parts = strangers(2)
    result, _ = quiet_fit(parts, OneShot(refine=refine))
    true = sum(result.model.log_density(X, y).sum() for X, y in parts.values())
    assert result.fit.log_likelihood == pytest.approx(true, rel=1e-9)
    rivals = result.fit.rivals
    assert result.fit.log_likelihood >= rivals.unrefined - 1e-9
    assert result.fit.log_likelihood >= rivals.carried_over - 1e-6 or np.isnan(rivals.carried_over)
    assert result.fit.log_likelihood >= rivals.one_regression or result.fit.doubts


def test_below_one_regression_is_a_doubt_with_figures() -> None:
    (doubt,) = Rivals(one_regression=-80.0).doubts(-85.0)
    assert "-80 against -85" in doubt
    assert Rivals(one_regression=-80.0).doubts(-79.0) == ()
    assert Rivals().doubts(-79.0) == ()


def test_a_model_carried_over_has_its_experts_in_the_order_of_the_combined_ones() -> None:
    """Evidence on sites is in the order of the combined experts, also where refinement starts from a site's model."""
    data = soft(400, n_experts=3, n_features=2, random_state=0)
    combined, rows = data.truth, Rows(data.X, data.y[:, None])
    other = SimpleNamespace(mixture=combined.permuted(np.array([2, 0, 1])))
    opened = SimpleNamespace(totals={"north": 1e9}, compared={"north": other}, explains=True)
    contest = Contest.of(combined, expect(combined, rows), opened)
    np.testing.assert_allclose(contest.starts[1][0].coefficients, combined.coefficients, rtol=1e-12)


def test_a_model_carried_over_is_said_to_be_one() -> None:
    (doubt,) = Rivals(best_site="north", carried_over=-1.0, from_site=True).doubts(-1.0)
    assert "site north" in doubt
    assert issubclass(UntrustedWarning, ConsilienceWarning)


@pytest.mark.slow
def test_without_refinement_a_mixture_is_held_against_the_distribution_of_the_responses() -> None:
    parts = strangers(0)
    result, said = quiet_fit(parts, OneShot(refine=0))
    y = np.concatenate([y for _, y in parts.values()])
    constant = norm.logpdf(y, y.mean(), y.std()).sum()
    assert result.fit.rivals.constant == pytest.approx(constant, rel=1e-9)
    assert (result.fit.log_likelihood < constant) == any("without covariates" in str(w.message) for w in said)
    assert "without covariates" in Rivals(constant=-80.0).doubts(-85.0)[0]
    assert not Rivals(constant=-80.0).doubts(-75.0)


def test_the_distribution_of_the_responses_is_no_rival_of_one_regression_or_of_counts() -> None:
    summary = ColumnSummary(9.0, np.zeros(1), np.eye(1), np.zeros(1), np.eye(1))
    for K, family in ((1, "gaussian"), (2, "poisson")):
        mixture = Specification(K=K, family=family).blank(summary)
        found = unrefined_rivals(SimpleNamespace(mixture=mixture, weight=9.0), summary)
        assert np.isnan(found.constant)


def test_one_regression_follows_from_the_moments_of_the_sites() -> None:
    data = soft(1500, n_experts=2, n_features=3, random_state=1)
    X, y = data.X + np.array([4.0, 0.0, -2.0]), data.y
    parts = [Site(str(i), Rows(X[i::3], y[i::3, None])) for i in range(3)]
    question = FitSite(Specification(K=2, expert_columns=(0, 2)), (2,), seed=0)
    fits = {site.name: answer(question, site) for site in parts}
    design = np.column_stack([np.ones(len(y)), X[:, [0, 2]]])
    residual = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    exact = -0.5 * (np.log(2 * np.pi * np.mean(residual**2)) + 1)
    assert abs(regression_of_moments(fits, (0, 2)) - exact) < 1e-6
    assert np.isnan(regression_of_moments({**fits, "none": replace(fits["0"], model=None)}, (0, 2)))
