"""A gate of each site from one exchange: the gates of the sites' own fits, written in the combined experts."""

import warnings

import numpy as np
import pytest

from consilience import FederatedEM, Federation, MixtureOfExpertsRegressor, MixtureOfRegressions, OneShot
from consilience.aggregate import SiteModel
from consilience.errors import InvalidInputError
from consilience.methods.one_shot.site_gates import combined_experts, count_labels, site_mixtures
from consilience.model import Design, GaussianExperts, Mixture, Penalty, SoftmaxGate

SHARES = {"a": 0.3, "b": 0.5, "c": 0.9}


def draw(n, share, rng, slope):
    x = rng.normal(size=(n, 1))
    first = rng.random(n) < 1 / (1 + np.exp(-np.log(share / (1 - share)) - slope * x[:, 0]))
    return x, np.where(first, 1.5 * x[:, 0], 3 - x[:, 0]) + 0.6 * rng.normal(size=n)


@pytest.fixture(scope="module")
def sites():
    rng = np.random.default_rng(1)
    slopes = (0.0, 0.8, 0.0)
    return {name: draw(600, share, rng, slope) for (name, share), slope in zip(SHARES.items(), slopes, strict=True)}


def fit(sites, kind, method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Federation(sites).fit(kind(2, random_state=0, n_init=2), method=method)


def first_shares(result):
    """Return the share of the regression with the positive slope at each site."""
    k = int(np.argmax(result.model.mixture_.experts.B[:, 0, 1]))
    table = result.fit.shares()
    return {site: share for site, expert, share in zip(*list(table.values())[:3], strict=True) if expert == k}


@pytest.mark.parametrize("kind", [MixtureOfRegressions, MixtureOfExpertsRegressor])
@pytest.mark.parametrize("per_site", ["gate", "shares"])
def test_one_exchange_gives_each_site_its_shares(sites, kind, per_site):
    result = fit(sites, kind, OneShot(refine=0, per_site=per_site))
    exact = first_shares(fit(sites, kind, FederatedEM(per_site=per_site)))
    assert len(result.record.rounds) == 1
    assert first_shares(result) == pytest.approx(exact, abs=0.03)  # 1.5 standard errors
    first, *others = (model.mixture_.experts.B for model in result.models.values())
    assert all(np.array_equal(first, other) for other in others)
    assert np.isnan(result.fit.shares()["lower"]).all()
    assert "refinement" in next(iter(result.models.values())).inference_.withheld["gate"]
    assert np.isnan(result.fit.test.p_value)
    assert "after a round of refinement" in repr(result)


@pytest.mark.parametrize("per_site", ["gate", "shares"])
def test_one_step_is_near_the_maximum(sites, per_site):
    exact = fit(sites, MixtureOfExpertsRegressor, FederatedEM(per_site=per_site)).fit
    one, more = (
        fit(sites, MixtureOfExpertsRegressor, OneShot(refine=steps, per_site=per_site)).fit for steps in (1, 8)
    )
    assert exact.log_likelihood - 0.2 < one.log_likelihood < exact.log_likelihood + 1e-6
    assert more.log_likelihood == pytest.approx(exact.log_likelihood, abs=1e-4)
    assert more.test.statistic == pytest.approx(exact.test.statistic, rel=1e-3)
    assert one.test.p_value < 1e-6
    for name in ("share", "lower", "upper"):
        assert one.shares()[name] == pytest.approx(exact.shares()[name], abs=0.01)
    assert one.inference.kind == exact.inference.kind


def test_no_gate_is_foreign_where_each_site_has_its_own(sites):
    rng = np.random.default_rng(3)
    many = {str(m): draw(600, 0.5, rng, 0.0) for m in range(4)} | {"other": draw(600, 0.97, rng, 0.0)}
    result = fit(many, MixtureOfExpertsRegressor, OneShot(refine=0, per_site="gate"))
    assert not [reason for site in result.sites for reason in site.reasons if "gate" in reason]


def model_of(mixture, counts):
    none = np.empty((0, 0))
    counts = np.asarray(counts, dtype=float)
    return SiteModel(mixture, counts.sum(), counts, counts, none, -100.0, none)


class Normal:
    def sample(self, n, rng):
        return rng.standard_normal((n, 1))


class Planned:
    """What the gates of sites need of a combination."""

    def __init__(self, mixture, plan):
        self.mixture, self.plan = mixture, plan


def test_gates_of_experts_that_are_one_are_added():
    B = np.array([[0.0, 1.0], [0.2, 1.1], [5.0, -1.0]])
    own = Mixture(
        Design.raw(1),
        SoftmaxGate(np.array([[0.4, 0.3], [0.1, 0.3], [-0.5, -0.6]])),
        GaussianExperts(B[:, None], np.ones((3, 1, 1))),
    )
    common = Mixture(Design.raw(1), SoftmaxGate(np.zeros((2, 2))), GaussianExperts(B[[0, 2], None], np.ones((2, 1, 1))))
    models, labels = {"s": model_of(own, [400, 300, 300])}, np.array([0, 0, 1])
    found = site_mixtures(
        Planned(common, {"s": labels}), models, {"s": Normal()}, per_site="gate", penalty=Penalty(), seed=0
    )["s"]
    panel = np.vstack([np.ones(50), np.linspace(-2, 2, 50)])
    expected = own.gate.evaluate(panel)[1]
    assert found.gate.evaluate(panel)[1][0] == pytest.approx(expected[:2].sum(axis=0), abs=0.01)
    assert count_labels(models["s"], labels, 2).tolist() == [700, 300]


def test_an_expert_that_was_not_used_is_the_one_that_is_left():
    B = np.array([[0.0, 1.0], [5.0, -1.0]])
    experts = GaussianExperts(B[:, None], np.ones((2, 1, 1)))
    common = Mixture(Design.raw(1), SoftmaxGate(np.zeros((2, 2))), experts)
    other = Mixture(
        Design.raw(1), SoftmaxGate(np.zeros((2, 2))), GaussianExperts(B[::-1, None] + 0.3, np.ones((2, 1, 1)))
    )
    assert combined_experts(model_of(other, [50, 50]), np.array([1, -1]), common).tolist() == [1, 0]


def test_wrong_settings_are_answered_with_a_sentence():
    with pytest.raises(InvalidInputError, match="per_site"):
        OneShot(per_site="expert")
