"""How coefficients change without a site, after every method, against fits without it."""

import warnings

import numpy as np
import pytest

from consilience import (
    ClusteredClients,
    FederatedEM,
    Federation,
    GradientEM,
    MixtureOfRegressions,
    OneShot,
    SharedCentre,
)
from consilience.errors import InfluentialSiteWarning, InvalidInputError

B = np.array([[0, 1.5, -1.0], [3, -1, 1.0]])
LIAR = "s2"
METHODS = {
    "FederatedEM": FederatedEM(screen=False),
    "own gates": FederatedEM(screen=False, per_site="gate"),
    "OneShot(0)": OneShot(refine=0),
    "OneShot(1)": OneShot(refine=1),
    "SharedCentre": SharedCentre(),
    "ClusteredClients": ClusteredClients(),
}


def draw(n, rng, lie=0.0, times=1):
    X, clients = rng.standard_normal((n, 2)), np.arange(n) // 20
    z = (rng.random(n // 20) < 0.35).astype(int)[clients]
    y = np.sum(np.c_[np.ones(n), X] * B[z], axis=1) + lie * X[:, 0] * (z == 0) + 0.6 * rng.standard_normal(n)
    return {"X": np.tile(X, (times, 1)), "y": np.tile(y, times), "groups": np.arange(n * times) // 20}


def sites(lie=0.0, times=1, number=8):
    rng = np.random.default_rng(3)
    return {f"s{m}": draw(400, rng, lie * (m == 2), times if m == 2 else 1) for m in range(number)}


def fit(data, method="FederatedEM", **known):
    if method != "ClusteredClients":
        data = {name: {part: rows for part, rows in site.items() if part != "groups"} for name, site in data.items()}
    estimator = MixtureOfRegressions(2, random_state=0, n_init=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = Federation(data, **known).fit(estimator, method=METHODS.get(method, method))
    return result, [str(each.message) for each in caught if each.category is InfluentialSiteWarning]


def changes_of(result, unit):
    table = result.influence()
    table = table.to_pydict() if hasattr(table, "to_pydict") else dict(table)
    rows = zip(table["site"], table["part"], table["change"], strict=True)
    return np.array([change for site, part, change in rows if (site, part) == (unit, "expert")])


def exact_changes(data, gone, method):
    result, _ = fit(data, method)
    without, _ = fit({name: rows for name, rows in data.items() if name not in gone}, method)
    left = result.fit.left_out
    errors = result.model.inference_.standard_errors().flat() if left.errors is None else left.errors
    gate = result.model.inference_.estimates.gate.size
    estimates = [each.model.inference_.estimates.experts.ravel() for each in (without, result)]
    return result, (estimates[0] - estimates[1]) / errors[gate : gate + len(estimates[0])]


@pytest.mark.parametrize("method", METHODS)
def test_the_change_is_close_to_that_of_a_fit_without_the_site(method):
    data = sites(lie=0.1)
    result, exact = exact_changes(data, {LIAR}, method)
    assert np.abs(exact).max() > 0.5
    np.testing.assert_allclose(changes_of(result, LIAR), exact, atol=0.25 * np.abs(exact).max())


def test_one_exchange_without_a_site_is_exact_at_the_same_plan():
    result, exact = exact_changes(sites(lie=0.1), {LIAR}, "OneShot(0)")
    np.testing.assert_allclose(changes_of(result, LIAR), exact, atol=0.02 * np.abs(exact).max())


@pytest.mark.parametrize("method", METHODS)
def test_honest_sites_are_not_influential(method):
    result, warned = fit(sites(), method)
    assert result.influential == {}
    assert warned == []
    assert "influence       largest: " in repr(result)
    assert all(site.influence is not None for site in result.sites)


@pytest.mark.parametrize("method", ["FederatedEM", "own gates", "ClusteredClients"])
@pytest.mark.parametrize("data", [sites(lie=0.6), sites(lie=0.3, times=8)], ids=["one coefficient", "many rows"])
def test_a_site_that_moves_a_coefficient_is_named_with_it(data, method):
    result, (warned,) = fit(data, method)
    assert list(result.influential) == [LIAR]
    assert f"{LIAR}: without it x0 of component" in warned
    assert f"influence       {LIAR}: without it" in repr(result)
    (site,) = (each for each in result.sites if each.name == LIAR)
    assert site.influence.of.startswith("x0 of component")
    assert abs(site.influence.change) > 2


@pytest.mark.parametrize("method", ["OneShot(0)", "OneShot(1)"])
def test_a_site_that_differs_does_not_hide_in_the_variance_between_sites(method):
    result, (_,) = fit(sites(lie=0.2, times=8), method)
    assert list(result.influential) == [LIAR]
    shown = result.model.inference_.standard_errors().experts.ravel()
    gate = result.model.inference_.estimates.gate.size
    assert np.any(shown > 1.2 * result.fit.left_out.errors[gate : gate + len(shown)])


@pytest.mark.parametrize("method", ["OneShot(0)", "OneShot(1)", "SharedCentre"])
def test_honest_sites_are_not_blamed_for_one_that_was_not_used(method):
    result, _ = fit(sites(lie=0.3, times=4), method)
    assert [site.name for site in result.sites if site.reasons] == ([] if method == "OneShot(1)" else [LIAR])
    assert set(result.influential) <= {LIAR}


def test_a_site_that_refinement_takes_back_is_named_by_its_influence():
    result, _ = fit(sites(lie=0.3, times=4), "OneShot(1)")
    assert "experts" in result.model.inference_.withheld  # after one step, intervals are not yet right
    assert list(result.influential) == [LIAR]


@pytest.mark.parametrize("method", [GradientEM(), FederatedEM(totals_only=True)])
def test_a_method_that_cannot_know_says_so(method):
    result, _ = fit(sites(number=3), method)
    assert result.influential == {}
    with pytest.raises(InvalidInputError, match="not known here: FederatedEM, OneShot"):
        result.influence()


# ---------------------------------------------------------------------- institutions


def test_the_sites_of_an_institution_are_left_out_together():
    data, institutions = sites(lie=0.1), {"s2": "clinic", "s5": "clinic"}
    for method in ("FederatedEM", "OneShot(0)", "SharedCentre"):
        result, _ = fit(data, method, institutions=institutions)
        _, exact = exact_changes(data, set(institutions), method)
        np.testing.assert_allclose(changes_of(result, "clinic"), exact, atol=0.3 * np.abs(exact).max())
        assert len({site.influence for site in result.sites if site.name in institutions}) == 1


def test_three_registrations_of_one_institution_are_one():
    rng = np.random.default_rng(3)
    data = {f"s{m}": draw(400, rng, 0.4 * (m < 3)) for m in range(10)}
    result, (warned,) = fit(data, institutions=dict.fromkeys(["s0", "s1", "s2"], "clinic"))
    assert list(result.influential) == ["clinic"]
    assert "clinic (s0, s1, s2): without it x0 of component" in warned


@pytest.mark.parametrize(
    ("institutions", "said"),
    [
        ({"t": "clinic"}, "there is no site 't'"),
        ({"s0": "s1"}, "'s1' is also the name of a site"),
        ({"s0": ""}, "expected the name of an institution"),
    ],
)
def test_institutions_are_checked(institutions, said):
    with pytest.raises(InvalidInputError, match=said):
        Federation(
            {"s0": (np.ones((3, 1)), np.ones(3)), "s1": (np.ones((3, 1)), np.ones(3))}, institutions=institutions
        )
