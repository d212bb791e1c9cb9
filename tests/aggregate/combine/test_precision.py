"""Precision at the combined mixture: spurious tight experts claim nothing, and small ones count by their deviation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from combining import soft_models
from consilience.aggregate import combine_models
from consilience.aggregate.combine.heterogeneity import Stated, combined_precision
from consilience.aggregate.combine.pool import Pool, to_common_coordinates
from consilience.aggregate.combine.site_model import SiteModel
from consilience.model import Design
from consilience.model.mixture import alignment
from consilience.numerics.arrays import Array, IntArray

pytestmark = pytest.mark.usefixtures("few_points")
DESIGN = Design.raw(4)


def pooled(models: dict[str, SiteModel]) -> tuple[Pool, IntArray]:
    commons = tuple(to_common_coordinates(model, DESIGN) for model in models.values())
    labels = np.concatenate([np.argsort(alignment(m.mixture, commons[0].mixture)) for m in commons])
    return Pool(tuple(models), commons, DESIGN, ()), labels


def errors(models: dict[str, SiteModel]) -> Array:
    pool, labels = pooled(models)
    used = np.ones(len(labels), dtype=bool)
    experts = pool.models[0].mixture.experts
    precision = combined_precision(pool, labels, used, experts, Stated.of(pool, labels, used, experts))
    return np.array([np.sqrt(np.diagonal(np.linalg.inv(J))) for J in precision])


def with_tight_experts(model: SiteModel, times: float) -> SiteModel:
    """The model with variances divided by ``times`` and the precision that such residuals would have."""
    experts = model.mixture.experts
    tight = replace(model.mixture, experts=replace(experts, covariance=experts.covariance / times))
    return replace(model, mixture=tight, precision=model.precision * times)


def test_an_expert_that_fits_its_rows_too_closely_claims_no_more_than_its_rows() -> None:
    models = soft_models(4, 1_000)
    last = list(models)[-1]
    tight = {**models, last: with_tight_experts(models[last], 400.0)}
    np.testing.assert_allclose(errors(tight), errors(models), rtol=0.02)


def test_a_small_site_counts_by_its_deviation_and_not_by_what_it_claims() -> None:
    models = soft_models(4, 1_000)
    last = list(models)[-1]
    small = replace(models[last], mass=models[last].mass * 0.04, second=models[last].second * 0.04)
    far = replace(
        small,
        mixture=replace(
            small.mixture, experts=replace(small.mixture.experts, B=small.mixture.experts.B + 20.0 * np.eye(5)[0])
        ),
    )
    near, away = errors({**models, last: small}), errors({**models, last: far})
    assert np.all(away[:, 0] > 1.5 * near[:, 0])  # the intercept is moved, and its standard error says so
    np.testing.assert_allclose(
        near, errors({**models, last: replace(small, precision=small.precision * 100)}), rtol=1e-6
    )


def test_where_most_rows_are_at_small_sites_there_is_no_precision() -> None:
    models = soft_models(4, 1_000)
    small = {name: replace(m, mass=m.mass * 0.04, second=m.second * 0.04) for name, m in models.items()}
    pool, labels = pooled(small)
    used = np.ones(len(labels), dtype=bool)
    experts = pool.models[0].mixture.experts
    assert not combined_precision(pool, labels, used, experts, Stated.of(pool, labels, used, experts)).any()


def test_noise_that_differs_between_sites_is_seen_in_the_variances() -> None:
    models = soft_models(6, 1_000)
    alike = combine_models(models, 3, design=DESIGN)
    assert alike.shape_heterogeneity.I2.shape == (3, 1)
    assert alike.shape_heterogeneity.p_value.min() > 1e-4
    noisy = {name: with_tight_experts(model, 1.0 + i) for i, (name, model) in enumerate(models.items())}
    found = combine_models(noisy, 3, design=DESIGN).shape_heterogeneity
    assert found.I2.min() > 0.9
    assert found.between_variance.min() > 0


def test_an_expert_that_some_sites_lack_is_seen_in_the_gates() -> None:
    models = soft_models(6, 1_000)
    alike = combine_models(models, 3, design=DESIGN).gate_heterogeneity
    assert alike.I2.shape == (3, 1)
    assert alike.p_value.min() > 1e-3
    uneven = {
        name: replace(model, label_counts=model.label_counts * ([1.6, 0.5, 1.0] if i % 2 else [0.6, 1.4, 1.0]))
        for i, (name, model) in enumerate(models.items())
    }
    assert combine_models(uneven, 3, design=DESIGN).gate_heterogeneity.I2.max() > 0.9
