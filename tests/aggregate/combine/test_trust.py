"""Which sites to believe: bad ones are named, whatever they send, honest ones are not, whoever their patients are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from combining import fitted_model, parted, soft_models, soft_sites, soft_truth
from consilience.aggregate import Combination, combine_models
from consilience.aggregate.combine.pool import Pool, to_common_coordinates
from consilience.aggregate.combine.site_model import SiteModel
from consilience.aggregate.combine.trust import copies, is_far, judge_sites
from consilience.fit import Specification
from consilience.model import ConstantGate, Design, Mixture, Rows, SoftmaxGate
from consilience.model.mixture import alignment
from simulated import simulated

SITES, BAD = 20, 6
honest_models = cache(soft_models)

Attack = Callable[[SiteModel, np.random.Generator], SiteModel]

pytestmark = pytest.mark.usefixtures("few_points")


def with_experts(model: SiteModel, **changes: object) -> SiteModel:
    return replace(model, mixture=replace(model.mixture, experts=replace(model.mixture.experts, **changes)))


def random_model(model: SiteModel, rng: np.random.Generator) -> SiteModel:
    B = 5.0 * rng.normal(size=model.mixture.experts.B.shape)
    alpha = rng.normal(size=model.mixture.gate.alpha.shape)
    gate = SoftmaxGate(alpha - alpha.mean(axis=0))
    return replace(model, mixture=replace(model.mixture, gate=gate, experts=replace(model.mixture.experts, B=B)))


def ten_times(model: SiteModel, rng: np.random.Generator) -> SiteModel:
    return with_experts(model, B=10 * model.mixture.experts.B)


def other_sign(model: SiteModel, rng: np.random.Generator) -> SiteModel:
    return with_experts(model, B=-model.mixture.experts.B)


def too_sure(model: SiteModel, rng: np.random.Generator) -> SiteModel:
    return with_experts(model, covariance=1e-4 * model.mixture.experts.covariance)


def one_expert_for_all(model: SiteModel, rng: np.random.Generator) -> SiteModel:
    alpha = np.zeros_like(model.mixture.gate.alpha)
    alpha[:, 0] = [20.0, -10.0, -10.0]
    return replace(model, mixture=replace(model.mixture, gate=SoftmaxGate(alpha)))


def one_wrong_expert(model: SiteModel, rng: np.random.Generator) -> SiteModel:
    B = model.mixture.experts.B.copy()
    B[int(rng.integers(3))] += 4.0
    return with_experts(model, B=B)


ATTACKS: dict[str, Attack] = {
    "a random model": random_model,
    "coefficients ten times too large": ten_times,
    "coefficients of the other sign": other_sign,
    "variances of next to nothing": too_sure,
    "a gate that knows one expert": one_expert_for_all,
}


def attacked(
    models: dict[str, SiteModel], attack: Attack, bad: int = BAD, seed: int = 0
) -> tuple[dict[str, SiteModel], set[str]]:
    """The models with those of ``bad`` sites, any of them, replaced; and the names of these sites."""
    rng = np.random.default_rng(seed)
    chosen = {str(name) for name in rng.choice(list(models), bad, replace=False)}
    return {name: attack(model, rng) if name in chosen else model for name, model in models.items()}, chosen


def combined(models: dict[str, SiteModel]) -> Combination:
    return combine_models(models, 3, design=Design.raw(4))


def distance(combination: Combination, reference: Mixture) -> float:
    ours = combination.mixture.permuted(alignment(combination.mixture, reference)).in_coordinates(reference.design)
    return float(np.abs(ours.experts.B - reference.experts.B).max())


# ---------------------------------------------------------------------- bad sites


@pytest.mark.slow
@pytest.mark.parametrize("apart", [0.0, 1.0], ids=["like patients", "other patients"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_bad_sites_are_named_and_honest_ones_are_not(attack: str, apart: float) -> None:
    models, bad = attacked(honest_models(SITES, 600, apart=apart), ATTACKS[attack])
    combination = combined(models)
    assert set(combination.set_aside) == bad
    assert distance(combination, soft_truth()) < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 6))])
@pytest.mark.parametrize("attack", ATTACKS)
def test_bad_sites_are_named_whoever_they_are(attack: str, seed: int) -> None:
    models, bad = attacked(honest_models(SITES, 600, seed=seed, apart=0.5), ATTACKS[attack], seed=seed)
    combination = combined(models)
    assert set(combination.set_aside) == bad


@pytest.mark.slow
def test_the_mixture_is_the_one_of_the_honest_sites_alone() -> None:
    models = honest_models(SITES, 600)
    with_bad, bad = attacked(models, random_model)
    here = combined(with_bad)
    alone = combined({name: model for name, model in models.items() if name not in bad})
    order = alignment(here.mixture, alone.mixture)
    np.testing.assert_allclose(here.mixture.permuted(order).experts.B, alone.mixture.experts.B, atol=1e-9)
    np.testing.assert_allclose(here.mixture.permuted(order).gate.alpha, alone.mixture.gate.alpha, atol=0.02)
    assert here.weight == alone.weight == 14 * 600


def test_of_one_wrong_expert_only_that_one_is_left_out() -> None:
    models, bad = attacked(honest_models(SITES, 600), one_wrong_expert, bad=4)
    combination = combined(models)
    assert set(combination.set_aside) == bad
    for site in combination.sites:
        assert sum(site.experts) == (2 if site.name in bad else 3)
        assert site.status == ("used in part" if site.name in bad else "used")
        if site.name in bad:
            assert "1 of its 3 experts are far from all experts of the other sites" in str(site)
            assert np.sum(combination.plan[site.name] == -1) == 1
            assert not site.gate


def test_a_gate_is_left_out_and_its_experts_are_used() -> None:
    models, bad = attacked(honest_models(SITES, 600), one_expert_for_all)
    for site in combined(models).sites:
        assert all(site.experts)
        assert site.gate == (site.name not in bad)
        assert site.reasons == (("its gate is far from those of the other sites",) if site.name in bad else ())


def test_a_false_model_sent_by_many_is_one_voice() -> None:
    models = honest_models(SITES, 600)
    false = ten_times(models["site 03"], np.random.default_rng(0))
    bad = {f"site {i:02d}" for i in range(3, 12)}  # nine of twenty
    combination = combined({name: false if name in bad else model for name, model in models.items()})
    assert set(combination.set_aside) == bad
    assert distance(combination, soft_truth()) < 0.3


def test_copies_of_an_honest_model_count_once() -> None:
    models = honest_models(SITES, 600)
    copied = {f"site {i:02d}" for i in range(6, 12)}
    sent = {name: models["site 05"] if name in copied else model for name, model in models.items()}
    combination = combined(sent)
    assert set(combination.named) == copied | {"site 05"}
    (kept,) = set(combination.named) - set(combination.set_aside)
    assert kept in copied | {"site 05"}
    alone = combined({name: model for name, model in sent.items() if name not in (copied | {"site 05"}) - {kept}})
    np.testing.assert_allclose(np.sort(combination.shares), np.sort(alone.shares))


def test_copies_are_found_by_their_experts_in_any_order() -> None:
    models = [to_common_coordinates(model, Design.raw(4)) for model in honest_models(SITES, 600).values()][:5]
    nearly = with_experts(models[1], B=models[1].mixture.experts.B * (1 + 1e-12))
    moved = with_experts(models[1], B=models[1].mixture.experts.B * (1 + 1e-6))
    pool = Pool(tuple("abcdefg"), (*models, nearly, moved), Design.raw(4), ())
    assert copies(pool) == {5: 1}
    pool = Pool(tuple("abcdef"), (models[0], nearly, *models[1:]), Design.raw(4), ())
    assert copies(pool) == {2: 1}


def test_a_poor_optimum_is_said_to_be_one() -> None:
    models = dict(honest_models(SITES, 600))
    poor = other_sign(models["site 07"], np.random.default_rng(0))
    models["site 07"] = replace(poor, log_likelihood=poor.log_likelihood - 600)
    assert "a poor optimum?" in combined(models).set_aside["site 07"]


def test_without_a_majority_there_is_no_verdict() -> None:
    models = dict(list(honest_models(SITES, 600).items())[:2])
    models["site 00"] = ten_times(models["site 00"], np.random.default_rng(0))
    design = Design.raw(4)
    pool = Pool(tuple(models), tuple(to_common_coordinates(m, design) for m in models.values()), design, ())
    assert judge_sites(pool, {}, 2).agrees.all()


def test_one_bad_site_of_three_is_named() -> None:
    models = dict(list(honest_models(SITES, 600).items())[:3])
    models["site 01"] = ten_times(models["site 01"], np.random.default_rng(0))
    assert set(combined(models).set_aside) == {"site 01"}


@pytest.mark.slow
@pytest.mark.parametrize(("family", "gate", "shift"), [("poisson", "softmax", 1.0), ("gaussian", "constant", 3.0)])
def test_other_families_and_constant_gates_are_judged_too(family: str, gate: str, shift: float) -> None:
    case = simulated(family, gate=gate, n=10 * 600, seed=3)
    models = {name: fitted_model(rows, case.specification, case.truth) for name, rows in parted(case.rows, 10).items()}
    assert combine_models(models, 2, design=Design.raw(2)).set_aside == {}
    bad = {"site 2", "site 5", "site 8"}
    sent = {name: with_experts(m, B=m.mixture.experts.B + shift) if name in bad else m for name, m in models.items()}
    assert set(combine_models(sent, 2, design=Design.raw(2)).set_aside) == bad


# ---------------------------------------------------------------------- honest sites


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_nobody_is_named_where_all_are_honest_and_patients_differ(seed: int) -> None:
    assert combined(honest_models(SITES, 600, seed=seed, apart=1.0)).set_aside == {}


@pytest.mark.long
@pytest.mark.parametrize(("n", "apart"), [(600, 0.0), (600, 1.0), (2_000, 2.0)])
def test_over_many_truths_hardly_any_honest_site_is_named(n: int, apart: float) -> None:
    named = [len(combined(soft_models(SITES, n, seed=seed, apart=apart)).set_aside) for seed in range(4, 24)]
    assert sum(named) <= 0.005 * SITES * len(named)


def test_nobody_is_named_where_sizes_differ() -> None:
    parts, truth = soft_sites(12, 3_000, seed=2, apart=0.5), soft_truth(seed=2)
    sizes = np.geomspace(150, 3_000, 12).astype(int)
    models = {
        name: fitted_model(Rows(rows.X[:n], rows.Y[:n]), Specification(K=3), truth)
        for n, (name, rows) in zip(sizes, parts.items(), strict=True)
    }
    assert combined(models).set_aside == {}


def test_nobody_is_named_where_one_site_lacks_an_expert() -> None:
    models = dict(honest_models(SITES, 600))
    parts, truth = soft_sites(SITES, 600), soft_truth()
    rows = parts["site 04"]
    label = truth.responsibilities(rows).argmax(axis=1)
    fewer = Mixture(truth.design, ConstantGate(np.full(2, 0.5)), truth.experts.permuted(np.array([0, 1])))
    start = replace(fewer, gate=SoftmaxGate(np.zeros((2, 5))))
    models["site 04"] = fitted_model(rows.take(np.flatnonzero(label < 2)), Specification(K=2), start)
    combination = combined(models)
    assert "experts" not in combination.set_aside.get("site 04", "")
    assert set(combination.set_aside) <= {"site 04"}


@pytest.mark.parametrize("known", [21, 60])
def test_a_cost_a_hundred_times_the_usual_is_far_however_the_honest_ones_fall(known: int) -> None:
    rng, draws, parameters = np.random.default_rng(0), 1000, 5
    missed = named = 0.0
    for _ in range(draws):
        cost = np.append(rng.chisquare(parameters, known) / 2, 100 * parameters / 2)
        far = is_far(cost, np.arange(known + 1) < known, 5.0, parameters)
        missed += not far[-1]
        named += far[:-1].mean()
    assert missed / draws < 0.02  # two quantiles missed 0.036
    assert named / draws < 0.01
