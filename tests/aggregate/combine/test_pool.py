"""The models of all sites in common coordinates: what belongs to a site is found without a search."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from combining import fitted_models, soft_models
from consilience.aggregate import combine_models
from consilience.aggregate.combine.components import SupportComponents
from consilience.aggregate.combine.pool import Pool
from consilience.aggregate.combine.site_model import SiteModel
from consilience.model import Design, SoftmaxGate
from simulated import simulated


def pool_of(models: dict[str, SiteModel], d: int) -> Pool:
    return Pool.of(models, Design.raw(d), "summaries", np.random.default_rng(0))


def test_the_components_of_a_site_are_where_its_number_is() -> None:
    models = soft_models(2, 300) | {"two": soft_models(1, 300, K=2)["site 00"]}
    pool = pool_of(models, 4)
    assert [len(pool.coefficients[own]) for own in pool.own] == [model.mixture.K for model in pool.models]
    for m, own in enumerate(pool.own):
        np.testing.assert_array_equal(np.arange(len(pool.owner))[own], np.flatnonzero(pool.owner == m))


@pytest.mark.slow
def test_the_points_of_a_site_are_those_drawn_for_it() -> None:
    models = soft_models(70, 60, K=2, d=2)  # in three groups
    pool = pool_of(models, 2)
    assert len(pool.points) == 3
    for m in range(pool.M):
        (part,) = (part for part in pool.points if m in part.members)
        panel, weight = pool.points_of(m)
        np.testing.assert_array_equal(panel, pool.design.panel(part.X[part.owner == m]))
        np.testing.assert_array_equal(weight, part.weight[part.owner == m])


def test_components_on_a_support_are_taken_from_their_parts() -> None:
    case = simulated("poisson", n=900, seed=0)
    components = pool_of(fitted_models(case, 3), case.rows.X.shape[1]).components
    assert isinstance(components, SupportComponents)
    index = np.array([0, 4, 5])  # of three sites with two experts each
    taken = components.taken(index)
    expected = components.costs(case.truth.experts)[index]
    np.testing.assert_allclose(taken.costs(case.truth.experts), expected, rtol=1e-12)
    np.testing.assert_array_equal(taken.mass, components.mass[index])


def scattered(model: SiteModel, rng: np.random.Generator) -> SiteModel:
    """The model of another site with rows of the same kind."""
    mixture = model.mixture
    experts = replace(mixture.experts, B=mixture.experts.B + 0.05 * rng.standard_normal(mixture.experts.B.shape))
    gate = SoftmaxGate(mixture.gate.alpha + 0.05 * rng.standard_normal(mixture.gate.alpha.shape))
    return replace(model, mixture=replace(mixture, experts=experts, gate=gate))


@pytest.mark.long
def test_the_cost_of_a_site_does_not_grow_with_their_number() -> None:
    first, rng = soft_models(1, 200, K=2, d=2)["site 00"], np.random.default_rng(0)
    seconds = []
    for count in (1000, 8000):
        models = {str(m): scattered(first, rng) for m in range(count)}
        began = time.process_time()
        combine_models(models, 2, design=Design.raw(2))
        seconds.append(time.process_time() - began)
    assert seconds[1] < 2 * 8 * seconds[0]
