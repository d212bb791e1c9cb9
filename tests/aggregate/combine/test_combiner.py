"""Combining: one site or equal sites give back their model, honest ones the pooled fit; names do not matter."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from combining import (
    common_design,
    fitted_model,
    fitted_models,
    in_errors_of_pooled,
    model_at,
    parted,
    relabelled,
    soft_models,
    soft_sites,
    soft_truth,
    softly_categorical,
)
from consilience.aggregate import Combination, SiteEvidence, combine_models, combine_orders
from consilience.aggregate.combine.components import SupportComponents
from consilience.aggregate.combine.points import draw_points
from consilience.aggregate.combine.pool import Pool, to_common_coordinates
from consilience.aggregate.combine.site_model import SiteModel
from consilience.aggregate.combine.trust import influences
from consilience.errors import InvalidInputError
from consilience.fit import Specification, fit_mixture
from consilience.fit.criteria import log_likelihood
from consilience.model import ConstantGate, Design, GaussianExperts, Mixture, Penalty, Rows, SoftmaxGate
from consilience.model.mixture import alignment
from consilience.numerics.arrays import Array, unpack
from families import SIZED
from simulated import Simulated, simulated
from strategies import Shape, shapes

NO_RIDGE = Penalty(0.0, 0.0)
PLANS = ("expert", "row")

pytestmark = pytest.mark.usefixtures("few_points")


def aligned(combination: Combination, reference: Mixture) -> Mixture:
    return combination.mixture.permuted(alignment(combination.mixture, reference)).in_coordinates(reference.design)


def assert_same_mixture(ours: Mixture, theirs: Mixture, experts: float = 1e-8, gate: float = 1e-6) -> None:
    np.testing.assert_allclose(ours.experts.B, theirs.experts.B, rtol=experts, atol=experts)
    if isinstance(theirs.experts, GaussianExperts):
        assert ours.experts.structure == theirs.experts.structure
        np.testing.assert_allclose(ours.experts.covariance, theirs.experts.covariance, rtol=experts, atol=experts)
    assert type(ours.gate) is type(theirs.gate)
    if isinstance(theirs.gate, SoftmaxGate):
        np.testing.assert_allclose(ours.gate.alpha, theirs.gate.alpha, rtol=gate, atol=gate)


def assert_same_bits(a: Combination, b: Combination) -> None:
    for one, two in (
        (a.mixture.experts.B, b.mixture.experts.B),
        (getattr(a.mixture.experts, "covariance", 0), getattr(b.mixture.experts, "covariance", 0)),
        (a.mixture.gate_weights(PLACES), b.mixture.gate_weights(PLACES)),
        (a.shares, b.shares),
        (a.precision, b.precision),
        (a.heterogeneity.Q, b.heterogeneity.Q),
        (a.trace, b.trace),
    ):
        np.testing.assert_array_equal(one, two)
    assert a.log_likelihood == b.log_likelihood


PLACES = np.random.default_rng(0).normal(size=(5, 2))

# ---------------------------------------------------------------------- one site, equal sites


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
@given(shape=shapes(labels="row", weights=None, d=st.integers(1, 3), K=st.integers(1, 3), n=st.integers(60, 90)))
@settings(max_examples=15)
def test_one_site_gives_back_its_model(plan: str, shape: Shape) -> None:
    mixture, rows = shape.problem()
    combination = combine_models(
        {"only": model_at(mixture, rows)}, shape.K, design=mixture.design, penalty=NO_RIDGE, plan=plan
    )
    ours = aligned(combination, mixture)
    gaussian = shape.family.startswith("gaussian")
    assert_same_mixture(ours, mixture, experts=1e-8 if gaussian and plan == "expert" else 1e-5)
    assert [site.status for site in combination.sites] == ["used"]
    assert combination.weight == rows.n


def test_the_ridge_moves_the_gate_by_little() -> None:
    mixture, rows = Shape(K=3, n=500).problem()
    models, start = {"only": model_at(mixture, rows)}, mixture.gate.alpha
    moves = []
    for ridge in (1e-3, 1e-2):
        ours = aligned(combine_models(models, 3, design=mixture.design, penalty=Penalty(ridge, 0.0)), mixture)
        moves.append(np.abs(ours.gate.alpha - start).max())
    assert moves[0] < 1e-4
    assert moves[1] == pytest.approx(10 * moves[0], rel=0.01)


@pytest.mark.slow
@given(shapes(labels="row", weights=None, d=st.integers(1, 2), K=st.integers(1, 3), n=st.integers(60, 90)))
@settings(max_examples=8)
def test_copies_count_once_and_are_named(shape: Shape) -> None:
    mixture, rows = shape.problem()
    model = model_at(mixture, rows)
    copies = {"a": model, "b": relabelled(model, np.arange(shape.K)[::-1]), "c": model}
    combination = combine_models(copies, shape.K, design=mixture.design, penalty=NO_RIDGE)
    assert_same_mixture(aligned(combination, mixture), mixture, experts=1e-5)
    kept, *others = combination.sites
    assert [site.status for site in combination.sites] == ["used", "set aside", "set aside"]
    assert "other sites sent an identical model" in str(kept)
    for site in others:
        assert f"its model is identical to that of {kept.name}" in str(site)


def test_sites_with_nearly_the_same_model_give_back_that_model() -> None:
    mixture, _ = Shape(K=2, seed=4).problem()
    models = {}
    for m in range(4):
        _, rows = Shape(n=300, seed=m).problem()
        B = mixture.experts.B + 1e-7 * np.random.default_rng(m).normal(size=mixture.experts.B.shape)
        models[f"site {m}"] = model_at(replace(mixture, experts=replace(mixture.experts, B=B)), rows)
    combination = combine_models(models, 2, design=mixture.design, penalty=NO_RIDGE)
    assert combination.set_aside == {}
    assert_same_mixture(aligned(combination, mixture), mixture, experts=1e-6)


# ---------------------------------------------------------------------- what does not matter


@cache
def case_of(family: str = "gaussian", gate: str = "softmax", n: int = 3_000, **options: object) -> Simulated:
    return simulated(family, gate=gate, n=n, seed=1, exposure=family in SIZED, **options)


@cache
def models_of(sites: int = 4, **options: object) -> dict[str, SiteModel]:
    return fitted_models(case_of(**options), sites)


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_names_of_experts_and_the_order_and_names_of_sites_do_not_matter(family: str, plan: str) -> None:
    models = models_of(family=family)
    design = common_design(parted(case_of(family).rows, 4), case_of(family).specification)
    here = combine_models(models, 2, design=design, plan=plan)
    turned = {name: relabelled(model, np.array([1, 0])) for name, model in models.items()}
    shuffled = dict(reversed(models.items()))
    renamed = {f"clinic {9 - i}": model for i, model in enumerate(models.values())}
    for other in (turned, shuffled, renamed):
        assert_same_bits(combine_models(other, 2, design=design, plan=plan), here)


def test_the_design_does_not_matter_without_a_ridge() -> None:
    models = models_of()
    one = combine_models(models, 2, design=Design.raw(2), penalty=NO_RIDGE)
    two = combine_models(models, 2, design=Design(np.array([3.0, -1.0]), np.array([0.5, 4.0])), penalty=NO_RIDGE)
    assert_same_mixture(aligned(two, one.mixture), one.mixture, experts=1e-8, gate=1e-5)
    np.testing.assert_allclose(one.heterogeneity.Q, two.heterogeneity.Q, rtol=1e-6)


@pytest.mark.usefixtures("more_points")
def test_the_seed_draws_the_points_and_little_depends_on_it() -> None:
    one, same, other = (combine_models(models_of(), 2, design=Design.raw(2), seed=seed) for seed in (0, 0, 1))
    assert_same_bits(one, same)
    assert not np.array_equal(one.mixture.gate.alpha, other.mixture.gate.alpha)
    assert_same_mixture(aligned(other, one.mixture), one.mixture, gate=0.01)


# ---------------------------------------------------------------------- honest sites


KINDS: dict[str, dict[str, object]] = {
    "gaussian": {},
    "full": {"q": 2},
    "diag": {"q": 2, "structure": "diag"},
    "spherical": {"q": 2, "structure": "spherical"},
    "tied": {"q": 2, "structure": "tied"},
    "poisson": {"family": "poisson"},
    "without intercept": {"intercept": False},
}


@pytest.mark.slow
@pytest.mark.usefixtures("more_points")
@pytest.mark.parametrize("gate", ["softmax", "constant"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_models_of_honest_sites_make_the_pooled_fit(kind: str, gate: str) -> None:
    options = {"gate": gate, "n": 6_000, **KINDS[kind]}
    case, models = case_of(**options), models_of(**options)
    design = common_design(parted(case.rows, 4), case.specification)
    combination = combine_models(models, 2, design=design, penalty=Penalty())
    assert combination.set_aside == {}
    distance, _ = in_errors_of_pooled(combination, case)
    assert distance.max() < 0.3
    assert combination.weight == case.rows.n
    assert combination.shares.sum() == pytest.approx(case.rows.n)
    reached = log_likelihood(combination.mixture, case.rows)
    P = combination.mixture.parameter_count
    below = 2 * P if gate == "constant" else P  # with the cost of shares it is a bound from below, on average
    assert reached - below <= combination.log_likelihood <= reached + P


@pytest.mark.usefixtures("more_points")
@pytest.mark.slow
@pytest.mark.parametrize("gate", ["softmax", "constant"])
@pytest.mark.parametrize("C", [2, 3])
def test_categorical_experts_of_honest_sites_make_the_pooled_fit(
    C: int, gate: str, request: pytest.FixtureRequest
) -> None:
    """Classes say little about experts; the likelihood that is lost is that of a fraction of a parameter each."""
    case = softly_categorical(C, gate, 24_000)
    models = {name: fitted_model(rows, case.specification, case.truth) for name, rows in parted(case.rows, 4).items()}
    design = common_design(parted(case.rows, 4), case.specification)
    combination = combine_models(models, 2, design=design, penalty=Penalty())
    pooled = fit_mixture(case.rows, case.specification, rng=np.random.default_rng(0), start=case.truth)
    lost = pooled.log_likelihood - log_likelihood(combination.mixture, case.rows)
    if (C, gate) == (3, "softmax"):
        request.applymarker(pytest.mark.xfail(reason="experts that each site knows badly lose more than that"))
    assert combination.set_aside == {}
    assert lost < 0.5 * pooled.mixture.parameter_count


@pytest.mark.parametrize("C", [2, 3])
@pytest.mark.parametrize("plan", PLANS)
def test_categorical_experts_are_combined(C: int, plan: str) -> None:
    case = softly_categorical(C, "softmax", 1_500)
    truth = case.truth
    models = {}
    for name, rows in parted(case.rows, 3).items():
        step = 0.01 * np.random.default_rng(rows.n).normal(size=len(truth.experts.free_coefficients()))
        models[name] = model_at(replace(truth, experts=truth.experts.moved(step, np.empty(0))), rows)
    combination = combine_models(models, 2, design=truth.design, penalty=NO_RIDGE, plan=plan)
    assert_same_mixture(aligned(combination, truth), truth, experts=0.05, gate=0.05)


@pytest.mark.usefixtures("more_points")
def test_sites_whose_covariates_lie_apart_make_the_pooled_fit_too() -> None:
    parts, truth = soft_sites(5, 2_000, apart=1.0), soft_truth()
    models = soft_models(5, 2_000, apart=1.0)
    rows = Rows(np.concatenate([r.X for r in parts.values()]), np.concatenate([r.Y for r in parts.values()]))
    case = Simulated(rows, truth, Specification(K=3), np.empty(0))
    combination = combine_models(models, 3, design=common_design(parts, case.specification))
    assert combination.set_aside == {}
    distance, _ = in_errors_of_pooled(combination, case)
    assert distance.max() < 0.8


def test_the_weight_of_a_constant_gate_is_that_of_the_labels() -> None:
    models = models_of(gate="constant")
    combination = combine_models(models, 2, design=Design.raw(2))
    assert isinstance(combination.mixture.gate, ConstantGate)
    total = np.zeros(2)
    for name, model in models.items():
        common = to_common_coordinates(model, Design.raw(2))
        np.add.at(total, combination.plan[name], common.label_counts)
    np.testing.assert_allclose(combination.shares, total)
    np.testing.assert_allclose(combination.mixture.gate.probabilities, total / total.sum())


# ---------------------------------------------------------------------- other numbers of experts


def with_halved_expert(model: SiteModel) -> SiteModel:
    """The same density with its first expert written as two, each with half of the rows."""
    mixture, halves = model.mixture, np.array([0, 0, *range(1, model.mixture.K)])
    alpha = mixture.gate.alpha[halves]
    alpha[:2, 0] -= np.log(2)
    experts = replace(mixture.experts, B=mixture.experts.B[halves], covariance=mixture.experts.covariance[halves])
    share = np.where(np.arange(len(halves)) < 2, 0.5, 1.0)
    return replace(
        model,
        mixture=Mixture(mixture.design, SoftmaxGate(alpha - alpha.mean(axis=0)), experts),
        label_counts=share * model.label_counts[halves],
        mass=share * model.mass[halves],
        second=share[:, None] * model.second[halves],
        precision=share[:, None] * model.precision[halves],
    )


def test_a_site_with_one_expert_in_two_pieces_says_the_same() -> None:
    models = models_of()
    first = next(iter(models))
    here = combine_models(models, 2, design=Design.raw(2), penalty=NO_RIDGE)
    there = combine_models(
        {**models, first: with_halved_expert(models[first])}, 2, design=Design.raw(2), penalty=NO_RIDGE
    )
    assert there.set_aside == {}
    assert sorted(there.plan[first].tolist()) in ([0, 0, 1], [0, 1, 1])
    assert_same_mixture(aligned(there, here.mixture), here.mixture, experts=1e-8, gate=0.03)
    np.testing.assert_allclose(np.sort(there.heterogeneity.Q), np.sort(here.heterogeneity.Q), rtol=1e-6)


def test_several_orders_are_those_that_are_combined_one_by_one() -> None:
    models = models_of()
    both = combine_orders(models, (1, 3, 2), design=Design.raw(2))
    for K, one in zip((1, 3, 2), both, strict=True):
        assert one.mixture.K == K
        assert_same_bits(one, combine_models(models, K, design=Design.raw(2)))
    assert both[0].trace[-1] > both[2].trace[-1] >= both[1].trace[-1] - 1e-9


def test_one_expert_has_the_moments_of_all_rows() -> None:
    case, models = case_of(), models_of()
    one = combine_models(models, 1, design=Design.raw(2))
    pooled = fit_mixture(case.rows, replace(case.specification, K=1), rng=np.random.default_rng(0))
    np.testing.assert_allclose(one.mixture.experts.B, pooled.mixture.experts.B, atol=0.02)
    np.testing.assert_allclose(one.mixture.experts.covariance, pooled.mixture.experts.covariance, rtol=0.02)
    np.testing.assert_array_equal(one.mixture.gate_weights(PLACES), np.ones((5, 1)))


# ---------------------------------------------------------------------- supports


def test_rows_that_sites_give_and_public_ones_make_about_the_same_gate() -> None:
    case, models = case_of(n=6_000), models_of(n=6_000)
    given = {name: rows.X for name, rows in parted(case.rows, 4).items()}
    for support in (given, np.random.default_rng(5).normal(size=(4_000, 2))):
        combination = combine_models(models, 2, design=Design.raw(2), support=support)
        distance, _ = in_errors_of_pooled(combination, case)
        assert distance.max() < 0.5


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_public_points_do_where_sites_describe_nothing(family: str) -> None:
    models = {name: replace(model, covariates=None) for name, model in models_of(family=family).items()}
    X = np.random.default_rng(5).normal(size=(500, 2))
    combination = combine_models(models, 2, design=Design.raw(2), support=X)
    ours = aligned(combination, case_of(family).truth)
    assert np.abs(ours.gate.alpha - case_of(family).truth.gate.alpha).max() < 0.25


def test_a_plan_per_row_behind_a_constant_gate_needs_a_support() -> None:
    models, X = models_of(gate="constant"), np.random.default_rng(0).normal(size=(50, 2))
    with pytest.raises(InvalidInputError, match="the sites sent no summaries: pass a support"):
        combine_models(models, 2, design=Design.raw(2), plan="row")
    assert combine_models(models, 2, design=Design.raw(2), plan="row", support=X).mixture.K == 2


def test_a_support_without_one_of_the_sites_is_refused_by_name() -> None:
    models = models_of()
    with pytest.raises(InvalidInputError, match="site 3"):
        combine_models(models, 2, design=Design.raw(2), support={name: np.zeros((5, 2)) for name in list(models)[:3]})


def test_a_support_of_other_columns_is_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="support"):
        combine_models(models_of(), 2, design=Design.raw(2), support=np.zeros((5, 3)))


def test_a_support_without_points_is_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="support"):
        combine_models(models_of(), 2, design=Design.raw(2), support=np.zeros((0, 2)))


# ---------------------------------------------------------------------- evidence


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_influence_is_what_leaving_an_expert_out_does(family: str) -> None:
    models = models_of(family=family, sites=5)
    design = Design.raw(2)
    commons = tuple(to_common_coordinates(model, design) for model in models.values())
    pool = Pool(tuple(models), commons, design, ())
    order = alignment(commons[0].mixture, commons[0].mixture)
    labels = np.concatenate([np.argsort(alignment(m.mixture, commons[0].mixture)) for m in commons])
    assert order.tolist() == [0, 1]
    used = np.ones(10, dtype=bool)
    used[3] = False
    J, b = unpack(pool.precision), pool.coefficients
    influence, expected = influences(pool, labels, used, 2, J)

    def mean_of(members: Array) -> Array:
        total = J[members].sum(axis=0)
        return np.linalg.solve(total, np.einsum("lab,lb->a", J[members], b[members]))

    for l in range(10):
        members = np.flatnonzero(used & (labels == labels[l]))
        if not used[l]:
            assert np.isnan(influence[l])
            continue
        moved = mean_of(members) - mean_of(members[members != l])
        total, f = J[members].sum(axis=0), b.shape[1]
        assert influence[l] == pytest.approx(np.sqrt(moved @ total @ moved / f), rel=1e-6)
        share = np.trace(np.linalg.solve(total, J[l])) / f
        assert expected[l] == pytest.approx(np.sqrt(share / (1 - share)), rel=1e-6)


def test_the_plan_sends_every_expert_to_the_nearest() -> None:
    models = models_of()
    combination = combine_models(models, 2, design=Design.raw(2))
    for name, model in models.items():
        B = to_common_coordinates(model, Design.raw(2)).mixture.experts.B
        gap = np.sum((B[:, None] - combination.mixture.experts.B) ** 2, axis=(2, 3))
        np.testing.assert_array_equal(combination.plan[name], gap.argmin(axis=1))


def test_the_precision_of_sites_that_are_alike_is_nearly_that_of_their_sum() -> None:
    models = models_of()
    combination = combine_models(models, 2, design=Design.raw(2))
    total = np.zeros((2, 3, 3))
    for name, model in models.items():
        np.add.at(total, combination.plan[name], unpack(to_common_coordinates(model, Design.raw(2)).precision))
    for ours, theirs in zip(combination.precision, total, strict=True):
        ratio = np.diagonal(np.linalg.inv(ours)) / np.diagonal(np.linalg.inv(theirs))
        np.testing.assert_allclose(ratio, 1.0, atol=0.2)


def test_a_site_without_information_does_not_count_in_the_heterogeneity() -> None:
    models = models_of()
    first = next(iter(models))
    silent = {**models, first: replace(models[first], precision=np.empty((0, 0)))}
    combination = combine_models(silent, 2, design=Design.raw(2))
    assert np.all(combination.heterogeneity.df == 2)
    assert np.isnan({site.name: site.pull for site in combination.sites}[first])


def test_evidence_reads_as_a_sentence() -> None:
    site = SiteEvidence("north", 900.0, -1.4, 0.01, 0.3, (True, False), True, ("this",), ("that",))
    assert str(site) == "north: used in part: this; that"
    assert str(replace(site, experts=(True, True), reasons=(), remarks=())) == "north: used"
    assert replace(site, experts=(True, True), gate=False).status == "used in part"
    assert replace(site, experts=(False, False)).status == "set aside"


# ---------------------------------------------------------------------- what cannot be combined


def test_no_models_are_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="no site has sent a model"):
        combine_models({}, 2, design=Design.raw(2))


def test_fewer_experts_than_asked_for_are_refused_by_name() -> None:
    mixture, rows = Shape(K=2, n=60).problem()
    with pytest.raises(InvalidInputError, match="2 experts of sites can be used: too few for 3"):
        combine_models({"only": model_at(mixture, rows)}, 3, design=mixture.design)
    with pytest.raises(InvalidInputError, match="too few for 3"):  # copies do not count
        combine_models({"a": model_at(mixture, rows), "b": model_at(mixture, rows)}, 3, design=mixture.design)


@pytest.mark.parametrize(
    ("family", "gate"),
    [
        ("gaussian-full", "constant"),
        ("gaussian-full", "softmax"),
        ("categorical", "constant"),
        ("poisson", "constant"),
        ("poisson", "softmax"),
    ],
)
def test_sites_without_covariates_are_combined(family: str, gate: str) -> None:
    models = {}
    for m in range(3):
        mixture, rows = Shape(family=family, gate=gate, d=0, n=80, seed=m).problem()
        models[f"site {m}"] = model_at(mixture, rows)
    assert combine_models(models, 2, design=Design.raw(0)).mixture.K == 2


def test_components_on_a_support_carry_the_exposure() -> None:
    models = models_of(family="poisson")
    design = Design.raw(2)
    commons = tuple(to_common_coordinates(model, design) for model in models.values())
    pool = Pool(tuple(models), commons, design, draw_points(commons, np.random.default_rng(0)))
    assert isinstance(pool.components, SupportComponents)
    expected = sum(model.weight * model.exposure for model in models.values())
    assert pool.components.mass.sum() == pytest.approx(expected)
