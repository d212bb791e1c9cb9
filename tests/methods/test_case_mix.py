"""Honest sites with the same experts in other shares are used; a site that harms the others is left out by name."""

import warnings

import numpy as np
import pytest

from consilience import FederatedEM, Federation, MixtureOfRegressions, OneShot


def draw(n, share, rng):
    x = rng.normal(size=(n, 1))
    first = rng.random(n) < share
    return x, np.where(first, 1.5 * x[:, 0], 3 - x[:, 0]) + 0.6 * rng.normal(size=n)


def fit(sites, method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Federation(sites).fit(MixtureOfRegressions(2, random_state=0, n_init=2), method=method)


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
    alone = fit({name: rows for name, rows in sites.items() if name != "last"}, FederatedEM())
    assert result.fit.log_likelihood == pytest.approx(alone.fit.log_likelihood, rel=1e-9)
