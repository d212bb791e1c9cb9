"""What is said of each site: of the large, the influential and the copied a remark, of the others nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from combining import fitted_model, fitted_models
from consilience.aggregate import Combination, SiteEvidence, SiteModel, combine_models
from consilience.aggregate.combine.pool import to_common_coordinates
from consilience.model import Design
from consilience.numerics.arrays import unpack
from simulated import Simulated, simulated

pytestmark = pytest.mark.usefixtures("few_points")


@cache
def case_of(n: int, gate: str = "softmax") -> Simulated:
    return simulated(gate=gate, n=n, seed=3)


@cache
def models_of_sizes(*sizes: int) -> dict[str, SiteModel]:
    """Sites with rows of one truth, as many as said."""
    case, ends = case_of(sum(sizes)), np.cumsum(sizes)
    parts = [case.rows.take(np.arange(end - n, end)) for n, end in zip(sizes, ends, strict=True)]
    return {f"site {i}": fitted_model(rows, case.specification, case.truth) for i, rows in enumerate(parts)}


def evidence(combination: Combination) -> dict[str, SiteEvidence]:
    return {site.name: site for site in combination.sites}


def combined(models: dict[str, SiteModel]) -> Combination:
    return combine_models(models, 2, design=Design.raw(2))


# ---------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("experts", "gate", "status"),
    [
        ((True, True), True, "used"),
        ((True, True), False, "used in part"),
        ((True, False), True, "used in part"),
        ((True, False), False, "used in part"),
        ((False, False), True, "set aside"),
        ((False,), False, "set aside"),
        ((), False, "no model"),
    ],
)
def test_the_status_says_how_much_was_used(experts: tuple[bool, ...], gate: bool, status: str) -> None:
    site = SiteEvidence("north", 900.0, -1.4, 0.01, 0.3, experts, gate)
    assert site.status == status
    assert str(site) == f"north: {status}"


def test_a_site_without_a_model_has_its_name_its_weight_and_a_reason() -> None:
    site = SiteEvidence.without_model("south", 12.0)
    assert (site.name, site.weight, site.status, site.copy_of) == ("south", 12.0, "no model", None)
    assert "too few rows for a fit of its own" in site.reasons[0]
    assert str(site) == f"south: no model: {site.reasons[0]}"
    assert np.isnan([site.log_likelihood_per_row, site.distance, site.pull]).all()


# ---------------------------------------------------------------------- large sites


def test_a_site_with_most_of_the_rows_is_used() -> None:
    combination = combined(models_of_sizes(700, 300, 250))
    assert all(site.remarks == () for site in combination.sites)
    assert {site.status for site in combination.sites} == {"used"}
    assert combination.set_aside == {}
    assert combination.named == {}


def test_half_of_the_rows_is_not_most_of_them() -> None:
    assert combined(models_of_sizes(600, 300, 300)).named == {}


@pytest.mark.parametrize("sizes", [(900, 300), (300, 900)])
def test_of_two_sites_one_always_has_most_and_nothing_is_said(sizes: tuple[int, int]) -> None:
    assert combined(models_of_sizes(*sizes)).named == {}


def test_a_single_site_is_all_there_is_and_nothing_is_said() -> None:
    assert combined(models_of_sizes(900)).named == {}


# ---------------------------------------------------------------------- influential sites


@cache
def many_rows() -> dict[str, SiteModel]:
    """Sites so large that a fifth of a standard deviation of the noise is many standard errors."""
    return fitted_models(case_of(48_000, "constant"), 8)


def shifted(model: SiteModel, by: float) -> SiteModel:
    """The model with all intercepts moved, in standard deviations of the noise."""
    experts = model.mixture.experts
    B = experts.B.copy()
    B[:, :, 0] += by * np.sqrt(experts.variances)
    return replace(model, mixture=replace(model.mixture, experts=replace(experts, B=B)))


def test_a_site_that_moves_the_result_far_is_named_and_used() -> None:
    models = many_rows()
    combination = combined({**models, "site 2": shifted(models["site 2"], 0.25)})
    site = evidence(combination)["site 2"]
    assert site.status == "used"
    assert site.remarks[0].startswith("leaving it out changes an expert by ")
    assert combination.set_aside == {}
    assert set(combination.named) == {"site 2"}
    others = [each.pull for each in combination.sites if each.name != "site 2"]
    assert site.pull > 2 * max(others)


def test_honest_sites_of_any_size_move_the_result_as_far_as_is_usual() -> None:
    assert combined(many_rows()).named == {}
    assert combined(models_of_sizes(2_000, 200, 1_500, 400, 900)).named == {}


def test_the_distance_is_what_the_combined_experts_cost_a_row() -> None:
    models = dict(many_rows())
    models["site 2"] = shifted(models["site 2"], 0.25)
    combination = combined(models)
    there = combination.mixture.experts
    for name, site in evidence(combination).items():
        model = to_common_coordinates(models[name], Design.raw(2))
        here, labels = model.mixture.experts, combination.plan[name]
        ratio, gap = here.variances / there.variances[labels], (here.B - there.B[labels])[:, 0]
        moved = np.einsum("ka,kab,kb->k", gap, unpack(model.second), gap) / there.variances[labels, 0]
        cost = 0.5 * (model.mass * (ratio - 1 - np.log(ratio))[:, 0] + moved)
        assert site.distance == pytest.approx(cost.sum() / model.mass.sum(), rel=1e-6)
        assert (site.distance > 0.01) == (name == "site 2")


# ---------------------------------------------------------------------- copies


def test_a_copy_says_whose_it_is() -> None:
    models = models_of_sizes(700, 300, 250)
    said = evidence(combined({**models, "double": models["site 2"]}))
    extra = next(site for site in said.values() if site.copy_of is not None)
    kept = said[extra.copy_of]
    assert {extra.name, kept.name} == {"double", "site 2"}
    assert (extra.status, kept.status) == ("set aside", "used")
    assert extra.reasons == (f"its model is identical to that of {kept.name}: only one is kept",)
    assert "other sites sent an identical model: only one is kept" in kept.remarks
    assert kept.copy_of is None
