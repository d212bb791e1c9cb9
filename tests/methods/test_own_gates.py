"""Common experts with a gate of each site: the likelihood, its maximum, standard errors, shares and the test."""

import warnings
from functools import reduce
from operator import add

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp
from scipy.stats import norm

from consilience import FederatedEM, Federation, GaussianMixture, MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.errors import InvalidInputError
from consilience.fit import Problem, Specification, infer
from consilience.methods.own_gates import climb_gates, climb_own_gates, own_parameters
from consilience.model import Design, GaussianExperts, Mixture, Penalty, Rows, SoftmaxGate, expect
from consilience.model.summary import column_summary

SHARES = {"a": 0.3, "b": 0.5, "c": 0.95}


def draw(n, share, rng, slope=0.0):
    x = rng.normal(size=(n, 1))
    first = rng.random(n) < 1 / (1 + np.exp(-np.log(share / (1 - share)) - slope * x[:, 0]))
    return x, np.where(first, 1.5 * x[:, 0], 3 - x[:, 0]) + 0.6 * rng.normal(size=n)


@pytest.fixture(scope="module")
def sites():
    rng = np.random.default_rng(0)
    return {
        name: draw(300, share, rng, slope) for (name, share), slope in zip(SHARES.items(), (0, 0.8, 0), strict=True)
    }


def fit(sites, estimator, per_site, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Federation(sites, **options).fit(estimator, method=FederatedEM(per_site=per_site))


def negative(theta, sites, own):
    """Compute minus the log-likelihood of two regressions with a gate of each site, written anew."""
    slopes = own == "gate"
    experts, log_sd, gates = theta[:4].reshape(2, 2), theta[4:6], theta[6:]
    total = 0.0
    for m, (x, y) in enumerate(sites.values()):
        a = gates[2 * m : 2 * m + 2] if slopes else (gates[m], 0.0 if own == "constant" else gates[-1])
        odds = a[0] + a[1] * x[:, 0]
        log_pi = log_softmax(np.stack([odds, np.zeros_like(odds)]), axis=0)
        means = experts[:, :1] + experts[:, 1:] * x[:, 0]
        total += logsumexp(log_pi + norm.logpdf(y, means, np.exp(log_sd)[:, None]), axis=0).sum()
    return -total


@pytest.mark.parametrize("own", ["constant", "shares", "gate"])
def test_the_likelihood_is_the_maximum_of_an_independent_optimiser(sites, own):
    kind = MixtureOfRegressions if own == "constant" else MixtureOfExpertsRegressor
    options = {} if own == "constant" else {"gate_ridge": 0.0}
    found = fit(sites, kind(2, random_state=0, n_init=2, **options), "shares" if own == "constant" else own)
    count = {"constant": 3, "shares": 4, "gate": 6}[own]
    start = np.r_[0, 1.5, 3, -1, np.log([0.6, 0.6]), np.zeros(count)]
    for _ in range(3):
        start = minimize(negative, start, (sites, own), method="BFGS", options={"gtol": 1e-9, "maxiter": 2000}).x
    best = -negative(start, sites, own)
    assert found.fit.log_likelihood == pytest.approx(best, abs=1e-8 * abs(best))
    assert found.fit.parameter_count == len(start)


@pytest.fixture(scope="module")
def derivatives(sites):
    """Return a fit, its order of experts, and the numerical Hessian and scores of rows in all parameters."""
    each = {name: {"X": x, "y": y, "clusters": np.arange(len(y))} for name, (x, y) in sites.items()}
    found = fit(each, MixtureOfRegressions(2, random_state=0, n_init=2), "shares")
    mixture = found.model.mixture_
    order = np.argsort(mixture.experts.B[:, 0, 0])
    gates = [np.log(m.mixture_.gate.probabilities[order]) for m in found.models.values()]
    theta = np.r_[
        mixture.experts.B[order, 0].ravel(),
        0.5 * np.log(mixture.experts.variances[order, 0]),
        [a - b for a, b in gates],
    ]
    step, P = 1e-4, len(theta)
    H = np.empty((P, P))
    for i in range(P):
        for j in range(P):
            at = [theta + step * (s * np.eye(P)[i] + t * np.eye(P)[j]) for s in (1, -1) for t in (1, -1)]
            a, b, c, d = (negative(each, sites, "constant") for each in at)
            H[i, j] = (a - b - c + d) / (4 * step**2)
    rows = [(site, i) for site, (_, y) in sites.items() for i in range(len(y))]
    scores = np.array([[slope(theta, e, sites, row) for e in 1e-5 * np.eye(P)] for row in rows])
    return found, order, H, scores


def slope(theta, step, sites, row):
    """Compute the derivative of the log density of one row."""
    site, i = row
    one = {name: (x[i : i + 1], y[i : i + 1]) if name == site else (x[:0], y[:0]) for name, (x, y) in sites.items()}
    return (negative(theta - step, one, "constant") - negative(theta + step, one, "constant")) / (2 * step.max())


def errors_of(inference, order):
    n = infer(inference[0], kind="observed").degrees_of_freedom().experts[:, 0] + 2
    errors = inference[1].standard_errors().experts[:, 0] / np.sqrt(n / (n - 2))  # corrected for two coefficients
    return errors[order].ravel()


def test_standard_errors_are_those_of_the_whole_information(derivatives):
    found, order, H, _ = derivatives
    expected = np.sqrt(np.diagonal(np.linalg.inv(H)))[:4]
    for each in (found.fit, *found.fit.fits.values()):
        assert errors_of((each, infer(each, kind="observed")), order) == pytest.approx(expected, rel=1e-4)


def test_the_sandwich_is_that_of_all_parameters(derivatives):
    found, order, H, scores = derivatives
    inverse, n = np.linalg.inv(H), len(scores)
    covariance = n / (n - 1) * inverse @ scores.T @ scores @ inverse
    for each in (found.fit, *found.fit.fits.values()):
        expected = np.sqrt(np.diagonal(covariance))[:4]
        assert errors_of((each, infer(each, kind="sandwich")), order) == pytest.approx(expected, rel=1e-3)
        assert each.inference.kind == "larger"
        assert each.inference.clusters == n
    shares = np.array([each.mixture.gate.probabilities[order[0]] for each in found.fit.fits.values()])
    spread = shares * (1 - shares)  # of a share, by the log odds
    own = [infer(each, kind="sandwich").standard_errors().gate[0, 0] for each in found.fit.fits.values()]
    assert own == pytest.approx(spread * np.sqrt(np.diagonal(covariance)[6:]), rel=1e-3)
    G = np.r_[np.zeros(6), spread / len(shares)]
    average = infer(found.fit, kind="sandwich").standard_errors().gate[0, 0]
    assert average == pytest.approx(np.sqrt(G @ covariance @ G), rel=1e-3)


def test_shares_have_intervals_and_equal_gates_are_rejected(sites):
    found = fit(sites, MixtureOfRegressions(2, random_state=0, n_init=2), "shares")
    table = found.fit.shares()
    first = {site: row for site, k, *row in zip(*table.values(), strict=True) if abs(row[0] - SHARES[site]) < 0.2}
    assert set(first) == set(SHARES)
    for site, (share, lower, upper) in first.items():
        assert 0 < lower < share < upper < 1
        assert lower < SHARES[site] < upper
    assert found.fit.test.degrees == 2
    assert found.fit.test.p_value < 1e-6
    assert "equal gates" in repr(found)
    assert "per_site" not in repr(found)
    assert np.isfinite(found.bic)


def test_alike_sites_do_not_reject_equal_gates():
    rng = np.random.default_rng(1)
    alike = {name: draw(300, 0.5, rng) for name in "abcd"}
    found = fit(alike, MixtureOfRegressions(2, random_state=0, n_init=2), "shares")
    assert found.fit.test.p_value > 0.01
    assert np.allclose(found.model.weights_.sum(), 1)


def test_a_site_that_leaves_has_no_part_in_the_result(sites):
    start = fit(sites, MixtureOfRegressions(2, random_state=0, n_init=2), None).fit
    rows = {site: Rows(x, y[:, None]) for site, (x, y) in sites.items()}
    problem = Problem(Specification(2, gate="constant"), reduce(add, map(column_summary, rows.values())))
    own = own_parameters(start.ascent.mixture, "gate")
    climbing = climb_own_gates(dict.fromkeys(rows, start.ascent.mixture), own, problem.penalty, problem.max_iter)
    request, asked = next(climbing), 0
    try:
        while True:
            asked += 1
            there = [site for site in request.sites if asked < 3 or site != "c"]
            request = climbing.send({s: expect(request.questions[s].mixture, rows[s], information=True) for s in there})
    except StopIteration as ended:
        end = ended.value
    assert asked > 3
    left = fit({site: sites[site] for site in "ab"}, MixtureOfRegressions(2, random_state=0, n_init=2), "gate")
    assert set(end.point.mixtures) == {"a", "b"}
    assert end.point.total.log_likelihood == pytest.approx(left.fit.log_likelihood, rel=1e-8)


def test_every_kind_of_model_has_a_gate_of_each_site(sites):
    rows = {site: (np.column_stack(data),) for site, data in sites.items()}
    found = fit(rows, GaussianMixture(2, random_state=0, n_init=2), "shares")
    assert set(found.models) == set(sites)
    assert found.fit.log_likelihood >= fit(rows, GaussianMixture(2, random_state=0, n_init=2), None).fit.log_likelihood


@pytest.mark.parametrize("wrong", [{"per_site": "expert"}, {"per_site": "gate", "totals_only": True}])
def test_wrong_settings_are_answered_with_a_sentence(wrong):
    with pytest.raises(InvalidInputError, match=r"per_site|gate of each site"):
        FederatedEM(**wrong)


def test_shares_of_another_method_are_answered_with_a_sentence(sites):
    with pytest.raises(InvalidInputError, match="per_site"):
        fit(sites, MixtureOfRegressions(2, random_state=0, n_init=2), None).shares()


@pytest.mark.parametrize("intercept", [-4.0, 0.0, 4.0])
def test_a_gate_far_from_that_of_a_site_climbs_to_it(intercept):
    x, y = draw(600, 0.9, np.random.default_rng(0), slope=1.0)
    rows = Rows(x, y[:, None])
    experts = GaussianExperts(np.array([[[0.0, 1.5]], [[3.0, -1.0]]]), np.full((2, 1, 1), 0.36))
    gate = SoftmaxGate(np.array([[intercept, -1.0], [-intercept, 1.0]]))
    climbing = climb_gates({"s": Mixture(Design.raw(1), gate, experts)}, Penalty())
    request = next(climbing)
    try:
        while True:
            request = climbing.send({"s": expect(request.questions["s"].mixture, rows)})
    except StopIteration as ended:
        reached = ended.value["s"][1].log_likelihood

    def minus(a):
        odds = a[0] + a[1] * x[:, 0]
        log_pi = log_softmax(np.stack([odds, np.zeros_like(odds)]), axis=0)
        return -logsumexp(log_pi + norm.logpdf(y, [1.5 * x[:, 0], 3 - x[:, 0]], 0.6), axis=0).sum()

    best = -minimize(minus, np.zeros(2)).fun
    assert best - 0.02 * len(y) < reached <= best + 1e-6
