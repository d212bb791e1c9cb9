"""How coefficients change without a site: one step from the scores of the sites, against fits without it."""

import warnings

import numpy as np
import pytest

from consilience import FederatedEM, Federation, MixtureOfRegressions, OneShot
from consilience.errors import InfluentialSiteWarning

B = np.array([[0, 1.5, -1.0], [3, -1, 1.0]])


def draw(n, rng, lie=0.0, times=1):
    X = rng.standard_normal((n, 2))
    z = (rng.random(n) < 0.35).astype(int)
    y = np.sum(np.c_[np.ones(n), X] * B[z], axis=1) + lie * X[:, 0] * (z == 0) + 0.6 * rng.standard_normal(n)
    return np.tile(X, (times, 1)), np.tile(y, times)


def fit(sites, method=None):
    estimator = MixtureOfRegressions(2, random_state=0, n_init=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = Federation(sites).fit(estimator, method=FederatedEM(screen=False) if method is None else method)
    return result, [str(each.message) for each in caught if each.category is InfluentialSiteWarning]


def sites(lie=0.0, times=1, number=8):
    rng = np.random.default_rng(3)
    return {f"s{m}": draw(400, rng, lie * (m == 2), times if m == 2 else 1) for m in range(number)}


def test_one_step_is_close_to_a_fit_without_the_site():
    data = sites(lie=0.3)
    result, _ = fit(data)
    without, _ = fit({name: rows for name, rows in data.items() if name != "s2"})
    se = result.model.inference_.standard_errors().experts
    exact = (without.model.inference_.estimates.experts - result.model.inference_.estimates.experts) / se
    table = result.influence().to_pydict() if hasattr(result.influence(), "to_pydict") else dict(result.influence())
    rows = zip(table["site"], table["part"], table["change"], strict=True)
    changes = [change for site, part, change in rows if (site, part) == ("s2", "expert")]
    assert np.abs(exact).max() > 1
    np.testing.assert_allclose(changes, exact.ravel(), atol=0.25 * np.abs(exact).max())


def test_honest_sites_are_not_influential():
    result, warned = fit(sites())
    assert result.influential == {}
    assert warned == []


@pytest.mark.parametrize("data", [sites(lie=0.6), sites(lie=0.3, times=8)], ids=["one coefficient", "many rows"])
def test_a_site_that_moves_a_coefficient_is_named_with_it(data):
    result, (warned,) = fit(data)
    assert list(result.influential) == ["s2"]
    assert "s2: without it x0 of component" in warned
    assert "standard errors" in repr(result)


def test_a_method_without_scores_of_sites_has_an_empty_table():
    result, _ = fit(sites(number=3), OneShot(refine=0))
    assert len(result.influence()) == 0
