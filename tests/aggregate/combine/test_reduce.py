"""Reduction: the objective never rises, barycentres are stationary, equal sites give back their model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.aggregate.combine.components import MomentComponents, SupportComponents, SupportPart
from consilience.aggregate.combine.reduce import reduce_components, spread_start
from consilience.model import GaussianExperts, Mixture, Rows
from families import GAUSSIAN
from strategies import Shape, shapes


def components_of(mixture: Mixture, rows: Rows) -> MomentComponents:
    panel, tau = mixture.design.panel(rows.X), mixture.responsibilities(rows).T
    return MomentComponents(mixture.experts, tau.sum(axis=1), np.einsum("kn,an,bn->kab", tau, panel, panel))


@st.composite
def pools(draw: st.DrawFn) -> tuple[MomentComponents, GaussianExperts, np.random.Generator]:
    """Components of one to four sites, and a start with one to three experts in a structure of its own."""
    shape = draw(shapes(family=st.sampled_from(GAUSSIAN), labels="row", weights=None, max_n=14))
    shape = shape.but(n=max(shape.n, 8))
    sites = [shape.but(seed=shape.seed + m).problem() for m in range(draw(st.integers(1, 4)))]
    design = sites[0][0].design
    pool = MomentComponents.joined([components_of(m.in_coordinates(design), rows) for m, rows in sites])
    start, _ = shape.but(seed=shape.seed + 99, K=draw(st.integers(1, 3))).problem()
    return pool, start.experts, np.random.default_rng(shape.seed)


@given(pools())
def test_the_objective_never_rises(pool) -> None:
    components, start, _ = pool
    reduction = reduce_components(components, start)
    assert np.all(np.diff(reduction.trace) <= 1e-9 * (1 + abs(reduction.trace[0])))
    assert reduction.experts.structure == start.structure


@given(pools())
def test_barycentres_are_stationary(pool) -> None:
    components, start, rng = pool
    labels = rng.integers(0, start.K, len(components.mass))
    middle = components.barycentres(labels, start)
    here = components.costs(middle)[np.arange(len(labels)), labels].sum()
    for _ in range(4):
        step = 1e-4 * rng.standard_normal(middle.B.size)
        shape = 1e-4 * rng.standard_normal(middle.shape_parameters)
        moved = middle.moved(step, shape)
        assert components.costs(moved)[np.arange(len(labels)), labels].sum() >= here - 1e-9 * (1 + abs(here))


@given(shapes(family="gaussian-full", labels="row", weights=None, max_n=14), st.integers(1, 5))
def test_equal_sites_give_back_their_model(shape: Shape, sites: int) -> None:
    mixture, rows = shape.but(n=60).problem()
    one = components_of(mixture, rows)
    reduction = reduce_components(MomentComponents.joined([one] * sites), mixture.experts)
    np.testing.assert_allclose(reduction.experts.B, mixture.experts.B, atol=1e-8)
    np.testing.assert_allclose(reduction.experts.covariance, mixture.experts.covariance, atol=1e-8)
    assert reduction.objective == pytest.approx(0.0, abs=1e-6)


@given(pools())
def test_labels_and_the_order_of_components_do_not_matter(pool) -> None:
    components, start, rng = pool
    order, turn = rng.permutation(len(components.mass)), np.arange(start.K)[::-1]
    shuffled = MomentComponents(components.experts.permuted(order), components.mass[order], components.second[order])
    here, there = reduce_components(components, start), reduce_components(shuffled, start.permuted(turn))
    assert there.objective == pytest.approx(here.objective, rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(there.experts.B, here.experts.permuted(turn).B, rtol=1e-6, atol=1e-8)


def test_starts_that_are_spread_find_the_groups() -> None:
    B = np.repeat([0.0, 10.0, 20.0], 5)[:, None, None] + 0.01 * np.arange(15)[:, None, None]
    components = MomentComponents(GaussianExperts(B, np.ones((15, 1, 1))), np.ones(15), np.ones((15, 1, 1)))
    for seed in range(20):
        chosen = spread_start(components, 3, np.random.default_rng(seed))
        reduction = reduce_components(components, components.experts.permuted(chosen))
        assert sorted(np.bincount(reduction.labels)) == [5, 5, 5]


def test_more_experts_than_differ_are_chosen_all_the_same() -> None:
    components = MomentComponents(
        GaussianExperts(np.zeros((3, 1, 1)), np.ones((3, 1, 1))), np.ones(3), np.ones((3, 1, 1))
    )
    assert len(spread_start(components, 3, np.random.default_rng(0))) == 3


# ---------------------------------------------------------------------- any family, on a support


def support_of(mixture: Mixture, rows: Rows, *, per_row: bool = False) -> SupportComponents:
    part = SupportPart(mixture.experts, mixture.design.panel(rows.X), mixture.gate_weights(rows.X).T)
    return SupportComponents((part,), per_row=per_row)


@given(shapes(labels="row", weights=None, max_n=14), st.integers(1, 3), st.booleans())
def test_the_objective_never_rises_on_a_support(shape: Shape, K: int, per_row: bool) -> None:
    mixture, rows = shape.but(K=4, n=30).problem()
    start, _ = shape.but(seed=shape.seed + 9, K=K).problem()
    reduction = reduce_components(
        support_of(mixture, rows, per_row=per_row), start.in_coordinates(mixture.design).experts
    )
    assert np.all(np.diff(reduction.trace) <= 1e-8 * (1 + abs(reduction.trace[0])))


@given(shapes(labels="row", weights=None, max_n=14))
def test_barycentres_on_a_support_are_stationary(shape: Shape) -> None:
    mixture, rows = shape.but(K=4, n=40).problem()
    components, rng = support_of(mixture, rows), np.random.default_rng(shape.seed)
    start, _ = shape.but(seed=shape.seed + 9, K=2).problem()
    labels = rng.integers(0, 2, 4)
    middle = components.barycentres(labels, start.experts)
    here = components.costs(middle)[np.arange(4), labels].sum()
    for _ in range(4):
        step = 1e-4 * rng.standard_normal(middle.free_coefficients().size)
        moved = middle.moved(step, 1e-4 * rng.standard_normal(middle.shape_parameters))
        assert components.costs(moved)[np.arange(4), labels].sum() >= here - 1e-7 * (1 + abs(here))


@given(shapes(family=st.sampled_from(GAUSSIAN), labels="row", weights=None, max_n=14))
def test_a_support_of_the_rows_is_as_good_as_their_moments(shape: Shape) -> None:
    mixture, rows = shape.but(K=4, n=40).problem()
    panel, tau = mixture.design.panel(rows.X), mixture.responsibilities(rows).T
    moments, support = components_of(mixture, rows), SupportComponents((SupportPart(mixture.experts, panel, tau),))
    labels = np.array([0, 1, 0, 1])
    start, _ = shape.but(seed=shape.seed + 9, K=2).problem()
    one, two = (components.barycentres(labels, start.experts) for components in (moments, support))
    np.testing.assert_allclose(one.B, two.B, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(one.covariance, two.covariance, rtol=1e-6, atol=1e-8)
