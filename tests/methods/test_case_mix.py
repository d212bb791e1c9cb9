"""Honest sites with the same experts in other shares are used; a site that harms the others is left out by name."""

import warnings

import numpy as np
import pytest

from consilience import FederatedEM, Federation, MixtureOfExpertsRegressor, MixtureOfRegressions, OneShot


def draw(n, share, rng):
    x = rng.normal(size=(n, 1))
    first = rng.random(n) < share
    return x, np.where(first, 1.5 * x[:, 0], 3 - x[:, 0]) + 0.6 * rng.normal(size=n)


def fit(sites, method, K=2, kind=MixtureOfRegressions):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Federation(sites).fit(kind(K, random_state=0, n_init=2), method=method)


def with_last(share, seed=50):
    rng = np.random.default_rng(seed)
    return {f"s{i}": draw(300, 0.5, rng) for i in range(4)} | {"last": draw(300, share, rng)}


@pytest.mark.parametrize("method", [FederatedEM(), OneShot(refine=1)], ids=["FederatedEM", "OneShot"])
@pytest.mark.parametrize("share", [0.85, 0.95])
def test_a_site_with_other_shares_is_used_and_not_accused(share, method):
    result = fit(with_last(share), method)
    assert not any(site.reasons for site in result.sites)
    assert result.fit.survey.suspicions == {}
    assert result.fit.doubts == ()
    assert result.fit.ascent.statistics.weight == 1500


def test_its_remark_says_that_it_has_other_cases():
    said = [str(site) for site in fit(with_last(0.95), FederatedEM()).sites]
    assert 'other shares of the experts than the other sites (FederatedEM(per_site="gate")' in said[-1]
    assert not any("shares" in each for each in said[:-1])


def test_the_published_share_is_that_of_all_rows():
    result = fit(with_last(0.95), FederatedEM())
    first = int(np.argmax(result.model.mixture_.experts.B[:, 0, 1]))
    assert result.model.weights_[first] == pytest.approx((4 * 0.5 + 0.95) / 5, abs=0.04)


def test_a_site_that_codes_missing_responses_as_99_is_left_out_by_name():
    sites = with_last(0.5)
    x, y = sites["last"]
    sites["last"] = (x, np.where(np.random.default_rng(0).random(len(y)) < 0.02, 99.0, y))
    result = fit(sites, FederatedEM())
    assert [site.name for site in result.sites if site.reasons] == ["last"]
    assert "with all sites" in result.sites[-1].reasons[-1]
    assert "standard errors apart" in result.sites[-1].reasons[-1]
    assert repr(result).splitlines()[1].split()[:3] == ["left", "out", "last:"]
    alone = fit({name: rows for name, rows in sites.items() if name != "last"}, FederatedEM())
    assert result.fit.log_likelihood == pytest.approx(alone.fit.log_likelihood, rel=1e-9)


def draw_softmax(n, intercept, rng):
    X = rng.standard_normal((n, 2))
    first = rng.random(n) < 1 / (1 + np.exp(-(intercept + 0.8 * X[:, 0] + 0.8 * X[:, 1])))
    B = np.where(first[:, None], [0.0, 1.5, -0.5], [3.0, -1.0, 0.5])
    return X, np.sum(np.c_[np.ones(n), X] * B, axis=1) + 0.7 * rng.standard_normal(n)


def test_sites_with_gates_far_from_the_joint_one_are_used():
    rng = np.random.default_rng(0)
    odds = np.log([0.95, 0.05, 0.95, 0.02, 0.05, 0.5]) - np.log([0.05, 0.95, 0.05, 0.98, 0.95, 0.5])
    sites = {f"s{i}": draw_softmax(400, each, rng) for i, each in enumerate(odds)}
    result = fit(sites, FederatedEM(), kind=MixtureOfExpertsRegressor)
    assert [site.status for site in result.sites] == ["used"] * 6
    assert not result.fit.survey.suspicions


def test_a_site_that_has_most_of_one_expert_is_used():
    rng = np.random.default_rng(2)
    B = np.array([[0.0, 1.5], [3.0, -1.0], [-3.0, 0.5]])

    def site(shares):
        x, z = rng.normal(size=(200, 1)), rng.choice(3, 200, p=shares)
        return x, B[z, 0] + B[z, 1] * x[:, 0] + 0.7 * rng.normal(size=200)

    few, most = [0.05, 0.475, 0.475], [0.85, 0.075, 0.075]
    result = fit({"a": site(few), "b": site(most), "c": site(few)}, FederatedEM(), 3)
    assert [site.status for site in result.sites] == ["used"] * 3


@pytest.mark.parametrize("method", [FederatedEM(), OneShot(refine=1)], ids=["FederatedEM", "OneShot"])
def test_sites_with_other_noise_are_used_and_raise_no_doubt(method):
    rng = np.random.default_rng(4)

    def site(noise):
        x, first = rng.normal(size=(600, 1)), rng.random(600) < 0.5
        return x, np.where(first, 1.5 * x[:, 0], 5 - x[:, 0]) + noise * rng.normal(size=600)

    result = fit({"a": site(0.5), "b": site(1.2), "c": site(0.5), "d": site(1.2)}, method)
    assert [site.status for site in result.sites] == ["used"] * 4
    assert not result.fit.survey.suspicions
    assert result.fit.doubts == ()
    assert "other residual variances" in str(result.sites[0])


def gated_site(rng, noise, n=300, odds=(0, 0, 0)):
    """Rows of three experts with a gate, and other odds of the experts."""
    B, gate = (
        np.array([[0, 1.5, -0.5], [2, -1, 1.0], [-3, 0.5, 1.0]]),
        np.array([[0.3, 1, 0], [0, -1, 0.5], [-0.3, 0, -0.5]]),
    )
    x = rng.normal(size=(n, 2))
    design = np.c_[np.ones(n), x]
    pi = np.exp(design @ gate.T + odds)
    z = ((pi / pi.sum(axis=1, keepdims=True)).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return x, np.sum(design * B[z], axis=1) + noise * rng.normal(size=n)


def test_one_noisier_site_of_four_is_not_left_out():
    rng = np.random.default_rng(0)
    sites = {f"s{i}": gated_site(rng, noise) for i, noise in enumerate((0.5, 0.8, 0.5, 0.5))}
    result = fit(sites, FederatedEM(), 3, MixtureOfExpertsRegressor)
    assert not any(each.reasons for each in result.sites)
    assert result.fit.survey.suspicions == {}
    assert "with other residual variances" in str(result.sites[1])


def test_a_site_of_which_a_third_of_the_rows_is_shifted_is_not_taken_for_a_noisier_one():
    rng = np.random.default_rng(1)
    sites = {f"s{i}": gated_site(rng, 0.8, 1200) for i in range(4)}
    x, y = sites["s3"]
    sites["s3"] = x, y + 3 * (np.arange(1200) >= 800)
    result = fit(sites, FederatedEM(), 3, MixtureOfExpertsRegressor)
    assert set(result.fit.survey.suspicions) == {"s3"}
    assert "some of its rows may be wrong" in str(result.fit.survey.suspicions["s3"])


def test_one_precise_site_among_noisier_ones_is_not_accused_of_wrong_rows():
    rng = np.random.default_rng(1)
    sites = {f"s{i}": gated_site(rng, noise, 1000) for i, noise in enumerate((1.2, 0.5, 1.2, 1.2))}
    result = fit(sites, OneShot(refine=1), 3, MixtureOfExpertsRegressor)
    assert result.fit.survey.suspicions == {}
    assert "with other residual variances" in str(result.sites[1])


def test_a_site_whose_model_was_set_aside_is_judged_if_its_rows_are_used():
    rng = np.random.default_rng(3)
    sites = {f"s{i}": gated_site(rng, 0.8) for i in range(4)}
    x, y = sites["s3"]
    sites["s3"] = x, np.r_[y[:150], rng.permutation(y[150:])]
    result = fit(sites, OneShot(refine=1), 3, MixtureOfExpertsRegressor)
    assert "its rows were used, its own model was not the start as a whole" in str(result.sites[3])
    assert set(result.fit.survey.suspicions) == {"s3"}


def test_a_site_with_other_noise_and_other_shares_is_not_accused():
    rng = np.random.default_rng(0)
    sites = {f"s{i}": gated_site(rng, 0.8, 600) for i in range(3)}
    sites["s3"] = gated_site(rng, 1.3, 600, odds=(1.5, -1, 0))
    result = fit(sites, FederatedEM(), 3, MixtureOfExpertsRegressor)
    assert result.fit.survey.suspicions == {}
    assert "with other residual variances" in str(result.sites[3])


PATIENTS = ((0, 0, 0), (2.5, -1, 0), (-1, 2.5, 0.5), (0.5, 0.5, -12))
"""Log odds of three experts at four sites; the last one lacks an expert."""


@pytest.mark.parametrize("method", [FederatedEM(), OneShot(refine=1)], ids=["FederatedEM", "OneShot"])
def test_sites_with_other_gates_and_one_without_an_expert_are_used(method):
    rng = np.random.default_rng(1)
    sites = {f"s{i}": gated_site(rng, 0.6, 500, odds) for i, odds in enumerate(PATIENTS)}
    result = fit(sites, method, 3, MixtureOfExpertsRegressor)
    assert not any(site.reasons for site in result.sites)
    assert result.fit.survey.suspicions == {}
    assert any("other shares of the experts than the other sites" in str(site) for site in result.sites)


def test_refinement_over_sites_with_other_gates_does_not_cost_the_others():
    rng = np.random.default_rng(1)
    sites = {f"s{i}": gated_site(rng, 0.6, 500, odds) for i, odds in enumerate(PATIENTS)}
    new = [gated_site(rng, 0.6, 2000, odds) for odds in PATIENTS]
    density = []
    for refine in (0, 1, 8):
        model = fit(sites, OneShot(refine=refine), 3, MixtureOfExpertsRegressor).model
        density.append(np.mean([model.log_density(*each).mean() for each in new]))
    assert density[1] > density[0] - 0.002
    assert density[2] > density[1] - 0.002
