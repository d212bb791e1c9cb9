"""Where gates are compared: every point stands for rows, every gate has its share of it, sites alike count alike."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from combining import model_at, relabelled
from consilience.aggregate.combine.points import (
    ENOUGH,
    LEAST,
    PER_ROW,
    TOGETHER,
    beyond_chance,
    confidence,
    draw_points,
    given_points,
    merge_points,
    public_points,
)
from consilience.aggregate.combine.pool import Pool, canonical_order, to_common_coordinates
from consilience.aggregate.combine.site_model import SiteModel, covariate_summary
from consilience.model import Design, Rows, SoftmaxGate
from consilience.model.summary import column_summary
from consilience.numerics.arrays import Array, unpack
from strategies import FAMILIES, Shape, shapes

pytestmark = pytest.mark.usefixtures("few_points")


@cache
def site(n: int, place: float = 0.0, scale: float = 1.0, seed: int = 0, **shape: object) -> SiteModel:
    """A model of ``n`` rows whose covariates lie around ``place``."""
    mixture, _ = Shape(**shape).problem()
    _, rows = Shape(**shape, n=n, seed=seed).problem()
    return model_at(mixture, Rows(place + scale * rows.X, rows.Y, exposure=rows.exposure), seed)


def sites(number: int, n: int = 300, apart: float = 0.0) -> list[SiteModel]:
    return [site(n + 10 * i, apart * i, seed=i + 1) for i in range(number)]


@pytest.mark.parametrize(("rows", "expected"), [(857, ENOUGH), (4_000, 4_000 * PER_ROW), (10**6, 100_000)])
def test_few_rows_are_described_by_few_points(monkeypatch: pytest.MonkeyPatch, rows: int, expected: int) -> None:
    models = [replace(model, weight=rows / 5) for model in sites(5)]
    size = models[0].mixture.K * models[0].mixture.design.p
    monkeypatch.setattr("consilience.aggregate.combine.points.NUMBERS", size * 100_000)
    drawn = sum(len(part.X) for part in draw_points(models, np.random.default_rng(0)))
    assert drawn == pytest.approx(expected, abs=len(models))


SUPPORTS = {
    "drawn": lambda models: draw_points(models, np.random.default_rng(0)),
    "given": lambda models: given_points(models, [np.full((7 + i, 2), float(i)) for i in range(len(models))]),
    "public": lambda models: (public_points(models, np.random.default_rng(0).normal(size=(50, 2))),),
    "pooled": lambda models: (merge_points(draw_points(models, np.random.default_rng(0)), models),),
}


@pytest.mark.slow
@pytest.mark.parametrize("support", SUPPORTS)
@pytest.mark.parametrize("apart", [0.0, 0.3, 50.0])
@pytest.mark.parametrize("number", [1, 3, 34])
def test_shares_sum_to_one_and_points_stand_for_all_rows(support: str, number: int, apart: float) -> None:
    models = sites(number, 60, apart)
    parts = SUPPORTS[support](models)
    for part in parts:
        assert np.all(part.share >= 0)
        np.testing.assert_allclose(part.share.sum(axis=0), 1.0, rtol=1e-12)
        assert part.share.shape == (len(part.members), len(part.X))
        assert part.X.shape[1:] == (2,)
    assert sum(part.weight.sum() for part in parts) == pytest.approx(sum(m.weight for m in models))
    assert sorted(m for part in parts for m in part.members) == list(range(number))


@pytest.mark.parametrize("support", SUPPORTS)
def test_the_points_of_a_site_weigh_what_its_rows_do(support: str) -> None:
    models = sites(4)
    parts = SUPPORTS[support](models)
    for m, model in enumerate(models):
        part = next(part for part in parts if m in part.members)
        at, weight = part.places(m)
        X = part.X[at]
        assert weight.sum() == pytest.approx(model.weight)
        assert len(X) == len(weight)


def test_own_points_lie_where_the_rows_of_the_site_do() -> None:
    models = sites(3, 500, apart=100.0)
    (part,) = draw_points(models, np.random.default_rng(0))
    for m in range(3):
        X = part.X[part.places(m)[0]]
        assert np.all(np.abs(X.mean(axis=0) - 100.0 * m) < 1.0)


def test_many_sites_are_asked_in_groups() -> None:
    models = sites(1) * (2 * TOGETHER + 1)
    parts = draw_points(models, np.random.default_rng(0))
    assert len(parts) == 3
    assert max(len(part.members) for part in parts) <= TOGETHER
    for part in parts:
        assert set(part.owner) == set(part.members)


def test_sites_have_points_by_their_weight_and_small_ones_some() -> None:
    models = [replace(site(300), weight=weight) for weight in (1.0, 1000.0, 3000.0)]
    (part,) = draw_points(models, np.random.default_rng(0))
    counts = np.bincount(part.owner)
    assert counts[0] == LEAST
    assert counts[2] == pytest.approx(3 * counts[1], abs=2)


def test_a_seed_draws_the_same_points_again() -> None:
    one, two = (draw_points(sites(3), np.random.default_rng(5))[0] for _ in range(2))
    np.testing.assert_array_equal(one.X, two.X)
    np.testing.assert_array_equal(one.share, two.share)


# ---------------------------------------------------------------------- how much sites differ beyond chance


def test_equal_sites_do_not_differ() -> None:
    assert beyond_chance([site(300)] * 5) == 0.0
    assert beyond_chance([site(300)]) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("n", [100, 600])
def test_sites_of_one_distribution_hardly_ever_differ_beyond_chance(n: int) -> None:
    found = [beyond_chance([site(n, seed=100 * trial + i) for i in range(8)]) for trial in range(8)]
    assert np.median(found) == 0.0
    assert max(found) < 0.3


def test_sites_far_apart_differ_beyond_chance() -> None:
    assert beyond_chance(sites(5, 1_000, apart=3.0)) > 0.95
    assert beyond_chance([site(1_000, scale=s, seed=i) for i, s in enumerate((1.0, 1.0, 4.0))]) > 0.9


def test_the_farther_apart_the_more_and_never_above_one() -> None:
    found = [beyond_chance(sites(5, 300, apart)) for apart in (0.0, 0.05, 0.1, 0.3, 1.0, 1e6)]
    assert np.all(np.diff(found) >= 0)
    assert found[0] == 0.0
    assert 0.9 < found[-1] <= 1.0


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.1, 1.0]))
def test_order_and_units_do_not_matter(seed: int, apart: float) -> None:
    rng = np.random.default_rng(seed)
    models = sites(4, 80, apart)
    here = beyond_chance(models)
    assert beyond_chance([models[i] for i in rng.permutation(4)]) == pytest.approx(here, rel=1e-9, abs=1e-12)
    moved = [
        replace(m, covariates=replace(s, means=8 * s.means, covariances=64 * s.covariances))
        for m in models
        if (s := m.covariates)
    ]
    assert beyond_chance(moved) == pytest.approx(here, rel=1e-9, abs=1e-12)


def test_without_every_summary_nothing_is_said() -> None:
    models = sites(3, apart=3.0)
    assert beyond_chance([*models[:2], replace(models[2], covariates=None)]) == 0.0


def test_columns_that_vary_nowhere_do_not_count() -> None:
    rng = np.random.default_rng(0)
    models = []
    for i in range(3):
        X = np.column_stack([rng.normal(size=200), np.full(200, 4.0)])
        models.append(replace(site(200, seed=i), covariates=covariate_summary(X, np.ones(200), rng)))
    assert 0.0 <= beyond_chance(models) < 0.5


def test_where_sites_are_alike_all_gates_are_asked_by_their_weight() -> None:
    models = [replace(site(300), weight=weight) for weight in (100.0, 300.0)]
    (part,) = draw_points(models, np.random.default_rng(0))
    np.testing.assert_allclose(part.share, np.repeat([[0.25], [0.75]], len(part.X), axis=1))


def test_where_sites_lie_apart_a_gate_is_asked_where_its_site_has_rows() -> None:
    models = sites(3, 500, apart=30.0)
    (part,) = draw_points(models, np.random.default_rng(0))
    own = part.share[part.owner, np.arange(len(part.owner))]
    assert own.min() > 0.99


def test_given_points_ask_only_the_gate_of_their_own_site() -> None:
    parts = given_points(sites(2), [np.zeros((3, 2)), np.ones((5, 2))])
    assert [part.members.tolist() for part in parts] == [[0], [1]]
    assert all(np.all(part.share == 1.0) for part in parts)
    assert [part.owner.tolist() for part in parts] == [[0] * 3, [1] * 5]


def test_public_points_are_nobodys() -> None:
    part = public_points(sites(3), np.zeros((4, 2)))
    assert np.all(part.owner == -1)
    at, weight = part.places(1)
    X = part.X[at]
    assert len(X) == 4
    assert weight.sum() == pytest.approx(sites(3)[1].weight)


# ---------------------------------------------------------------------- the pool


def pool_of(models: list[SiteModel], support: str = "drawn", design: Design | None = None) -> Pool:
    design = Design(np.array([0.5, -1.0]), np.array([2.0, 0.5])) if design is None else design
    names = tuple(f"site {m}" for m in range(len(models)))
    return Pool(names, tuple(to_common_coordinates(m, design) for m in models), design, SUPPORTS[support](models))


@pytest.mark.parametrize("family", ["gaussian-full", "poisson"])
@pytest.mark.parametrize("some", [(True, True, True, True), (True, False, True, True)], ids=["all", "three of four"])
def test_targets_on_rows_of_the_sites_sum_to_the_weight_of_those_used(family: str, some: tuple[bool, ...]) -> None:
    models = [site(100 + 50 * i, 0.5 * i, seed=i, family=family, K=3) for i in range(4)]
    pool, used = pool_of(models, "given"), np.array(some)
    panel, target = pool.targets(np.arange(12) % 2, 2, used)
    assert panel.shape == (3, target.shape[1])
    weights = np.concatenate([part.weight for part, use in zip(pool.points, used, strict=True) if use])
    np.testing.assert_allclose(target.sum(axis=0), weights)
    assert target.sum() == pytest.approx(sum(m.weight for m, use in zip(models, some, strict=True) if use))


@pytest.mark.parametrize("support", ["drawn", "public", "pooled"])
@pytest.mark.parametrize("some", [(True, True, True, True), (True, False, True, True)], ids=["all", "three of four"])
def test_elsewhere_they_sum_to_less_as_far_as_gates_are_unsure(support: str, some: tuple[bool, ...]) -> None:
    used, labels = np.array(some), np.arange(12) % 2
    lost = []
    for n in (100, 3_000):
        models = [site(n + 50 * i, 0.5 * i, seed=i, K=3) for i in range(4)]
        pool = pool_of(models, support)
        panel, target = pool.targets(labels, 2, used)
        kept = [(part.owner < 0) | used[part.owner] for part in pool.points]
        weight = np.concatenate([part.weight[mine] for part, mine in zip(pool.points, kept, strict=True)])
        assert panel.shape == (3, len(weight))
        assert np.all(target >= 0)
        assert np.all(target.sum(axis=0) <= weight * (1 + 1e-9))
        lost.append(1 - target.sum() / weight.sum())
    assert lost[0] < 0.4
    assert lost[1] < 0.03  # large sites are sure


def curvature(pi: Array, panel: Array, mass: float) -> Array:
    return np.einsum("ks,as,bs->kab", mass * pi * (1 - pi), panel, panel)


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_confidence_is_a_share_that_grows_with_the_rows(seed: int, K: int) -> None:
    mixture, rows = Shape(K=K, n=40, seed=seed).problem()
    panel = mixture.design.panel(rows.X)
    pi = mixture.gate.evaluate(panel)[1]
    few, many, endless = (confidence(pi, curvature(pi, panel, mass), panel) for mass in (1.0, 9.0, 1e12))
    assert np.all((few > 0) & (few <= many + 1e-12) & (many <= 1))
    np.testing.assert_allclose(endless, 1.0, atol=1e-9)
    turned = confidence(pi[::-1], curvature(pi[::-1], panel, 1.0), panel)
    np.testing.assert_allclose(turned, few, rtol=1e-6)


def test_between_two_experts_it_is_the_leverage_of_a_logistic_regression() -> None:
    mixture, rows = Shape(K=2, n=50).problem()
    panel = mixture.design.panel(rows.X)
    pi = mixture.gate.evaluate(panel)[1]
    w = pi[0] * pi[1]
    v = np.einsum("as,ab,bs->s", panel, np.linalg.inv((panel * w) @ panel.T), panel)
    np.testing.assert_allclose(confidence(pi, curvature(pi, panel, 1.0), panel), (1 + w * v) ** -3, rtol=1e-9)


def test_a_gate_that_is_certain_counts_in_full() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([np.where(np.arange(60) % 2 == 0, -9.0, 9.0) + rng.normal(size=60), rng.normal(size=60)])
    X[:20] /= 9
    sharp = SoftmaxGate(np.array([[0.0, 2.0, 0.0], [0.0, -2.0, 0.0]]))
    panel = Design.raw(2).panel(X)
    pi = sharp.evaluate(panel)[1]
    sure = confidence(pi, curvature(pi, panel, 1.0), panel)
    certain = np.abs(X[:, 0]) > 7
    assert sure[certain].min() > 0.999
    assert sure[~certain].min() < 0.95


def test_a_gate_that_is_not_used_has_no_say() -> None:
    models = sites(3)
    strange = replace(models[1], mixture=Shape(seed=77).problem()[0].raw())
    used, labels = np.array([True, False, True]), np.array([0, 1, 0, 1, 1, 0])
    one, two = (pool_of([models[0], m, models[2]], "drawn").targets(labels, 2, used) for m in (models[1], strange))
    np.testing.assert_allclose(one[1], two[1])


def test_the_target_of_one_site_is_its_gate() -> None:
    model = site(300, K=3)
    pool = pool_of([model])
    panel, target = pool.targets(np.arange(3), 3, np.ones(1, dtype=bool))
    np.testing.assert_allclose(target / target.sum(axis=0), pool.models[0].mixture.gate.evaluate(panel)[1], rtol=1e-10)


@given(shapes(labels="row", weights=None, max_n=20))
def test_a_model_in_common_coordinates_is_the_same_model(shape: Shape) -> None:
    shape = shape.but(n=shape.n + 10)
    mixture, rows = shape.problem()
    design = column_summary(rows).design(shape.intercept)
    model, common = model_at(mixture, rows), to_common_coordinates(model_at(mixture, rows), design)
    np.testing.assert_allclose(common.mixture.log_density(rows), model.mixture.log_density(rows), rtol=1e-9, atol=1e-9)
    assert sorted(common.label_counts) == sorted(model.label_counts)
    assert np.all(np.diff(common.label_counts) <= 0)
    panel, tau = design.panel(rows.X), common.mixture.responsibilities(rows).T
    if len(model.second):
        expected = np.einsum("kn,an,bn->kab", tau, panel, panel)
        np.testing.assert_allclose(unpack(common.second), expected, rtol=1e-7, atol=1e-9)


@given(shapes(labels="row", weights=None, max_n=20, K=3), st.permutations(range(3)))
def test_the_names_of_experts_do_not_matter(shape: Shape, order: list[int]) -> None:
    mixture, rows = shape.but(n=30).problem()
    design = column_summary(rows).design(shape.intercept)
    one = to_common_coordinates(model_at(mixture, rows), design)
    two = to_common_coordinates(relabelled(model_at(mixture, rows), np.array(order)), design)
    for a, b in ((one.mixture.experts.B, two.mixture.experts.B), (one.second, two.second), (one.mass, two.mass)):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.precision, two.precision)


def quadratic(J: Array, b: Array) -> Array:
    return np.einsum("ka,kab,kb->k", b, J, b)


@given(shapes(labels="row", weights=None, max_n=20))
def test_precision_goes_with_its_coefficients(shape: Shape) -> None:
    mixture, rows = shape.but(n=30).problem()
    model = model_at(mixture, rows)
    raw, common = (
        to_common_coordinates(model, d)
        for d in (Design.raw(shape.d, shape.intercept), column_summary(rows).design(shape.intercept))
    )
    values = []
    for one in (raw, common):
        b = one.mixture.experts.free_coefficients().reshape(shape.K, -1)
        values.append(quadratic(unpack(one.precision), b))
    np.testing.assert_allclose(values[0], values[1], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_components_stand_one_site_after_the_other(family: str) -> None:
    models = [site(60, seed=1, family=family, K=2), site(80, seed=2, family=family, K=3)]
    pool = pool_of(models)
    assert pool.owner.tolist() == [0, 0, 1, 1, 1]
    assert pool.components.experts.K == 5
    assert pool.coefficients.shape[0] == pool.precision.shape[0] == 5
    if family.startswith("gaussian"):
        np.testing.assert_allclose(np.bincount(pool.owner, pool.components.mass), [60, 80])
    else:
        sizes = [model.weight * model.exposure for model in pool.models]
        np.testing.assert_allclose(np.bincount(pool.owner, pool.components.mass), sizes, rtol=1e-9)


def test_a_site_without_precision_has_none_in_the_pool() -> None:
    models = sites(2)
    pool = pool_of([models[0], replace(models[1], precision=np.empty((0, 0)))])
    assert np.isfinite(pool.precision[pool.owner == 0]).all()
    assert np.isnan(pool.precision[pool.owner == 1]).all()


@given(st.permutations(range(5)))
def test_the_order_of_sites_is_that_of_their_models(order: list[int]) -> None:
    models = [site(50 + 10 * (i % 3), seed=i) for i in range(5)]
    names = [f"site {i}" for i in range(5)]
    here = [names[i] for i in canonical_order(names, models)]
    shuffled = [names[i] for i in order]
    there = canonical_order(shuffled, [models[i] for i in order])
    assert [shuffled[i] for i in there] == here
    other = canonical_order([f"x{9 - i}" for i in range(5)], models)  # other names
    assert [names[i] for i in other] == here
