"""One exchange and its refinement: as many rounds as said, the pooled fit in the end, and bad rows stay out of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from answering import Calls, Misbehaviour, failing, small_sites
from combining import parted, soft_sites, soft_truth, softly_categorical
from consilience import FederatedEM, Federation, MixtureOfExpertsRegressor, MixtureOfRegressions, OneShot
from consilience.aggregate import CovariateSummary, SiteModel
from consilience.aggregate.combine import points
from consilience.engines import InProcess, inprocess
from consilience.errors import InvalidInputError, JournalError, RoundStoppedError
from consilience.fit import Fit, Inference, Specification, fit_mixture, infer
from consilience.fit.climb import StopReason
from consilience.messages import (
    Each,
    FailureCode,
    FitSite,
    LogLikelihood,
    Several,
    Summarise,
    Total,
    decode,
    encode,
    together,
)
from consilience.messages.table import is_additive, receive
from consilience.methods import CombinedFit, Task
from consilience.model import Groups, Mixture, Rows
from consilience.runs import Journal, Run, run
from consilience.site import Site, answer, respond
from families import SIZED
from simulated import FAMILIES, simulated

SOFT = Specification(K=3)

pytestmark = pytest.mark.usefixtures("more_points")


def sites_of(parts: dict[str, Rows]) -> list[Site]:
    return [Site(name, rows, key=name.encode()) for name, rows in parts.items()]  # several may have the same rows


def joined(parts: dict[str, Rows]) -> Rows:
    return Rows(np.concatenate([r.X for r in parts.values()]), np.concatenate([r.Y for r in parts.values()]))


@cache
def soft_parts(sites: int = 4, n: int = 2_000, apart: float = 0.0) -> dict[str, Rows]:
    return soft_sites(sites, n, apart=apart)


@cache
def pooled(sites: int = 4, n: int = 2_000, apart: float = 0.0) -> tuple[Fit, Inference]:
    rows = joined(soft_parts(sites, n, apart))
    fit = fit_mixture(rows, SOFT, rng=np.random.default_rng(0), start=soft_truth())
    return fit, infer(fit, rows)


def one_shot(parts: dict[str, Rows], method: OneShot, **options: object) -> Run[tuple[CombinedFit, ...]]:
    dialogue = method.dialogue(Task([SOFT], 4, 1, start=soft_truth(), seed=0))
    return run(dialogue, InProcess().over(sites_of(parts)), **options)


def bits(mixture: Mixture) -> bytes:
    return encode(LogLikelihood(mixture))


def in_errors(inference: Inference, reference: Inference) -> float:
    gap = np.abs(inference.estimates.flat() - reference.estimates.flat())
    return float(np.max(gap / reference.standard_errors().flat()))


# ---------------------------------------------------------------------- rounds


def test_without_refinement_one_question_is_asked_of_each_site() -> None:
    done = one_shot(soft_parts(), OneShot(refine=0))
    (only,) = done.record.rounds
    assert (only.request, only.question) == ("Each", "FitSite")
    assert sorted(exchange.sites for exchange in only.exchanges) == [(name,) for name in soft_parts()]
    assert "a mixture of 3 experts fitted to all rows of the site" in only.discloses
    assert "Each(FitSite)" in str(done.record)


@pytest.mark.slow
@pytest.mark.parametrize("refine", [1, 2, 9])
def test_refinement_evaluates_each_step_and_takes_as_many_as_said_or_fewer(refine: int) -> None:
    done = one_shot(soft_parts(), OneShot(refine=refine))
    *questions, last = [r.question for r in done.record.rounds]
    assert last == "Several"  # products of scores for the sandwich, and scores of each site for its influence
    assert questions[:2] == ["FitSite", "Several"]
    assert len(questions) <= min(2 + refine, 5)
    assert done.record.rounds[1].request == "Each"
    assert {r.request for r in done.record.rounds[2:-1]} <= {"Total"}
    assert done.value[0].ascent.passes == len(questions) - 1


@pytest.mark.slow
def test_orders_side_by_side_share_their_rounds() -> None:
    specifications = [Specification(K=K) for K in (2, 3)]
    dialogue = OneShot(refine=3).dialogue(Task(specifications, 4, 1, seed=0, n_init=1, start=soft_truth()))
    done = run(dialogue, InProcess().over(sites_of(soft_parts(3, 600))))
    assert sum(each.request != "PerSite" for each in done.record.rounds) <= 5  # sites are asked for gates of their own
    assert [fit.mixture.K for fit in done.value] == [2, 3]


# ---------------------------------------------------------------------- the pooled fit


def test_one_answer_of_large_sites_is_nearly_the_pooled_fit_with_its_standard_errors() -> None:
    (fit,), (_, theirs) = one_shot(soft_parts(), OneShot(refine=0)).value, pooled()
    assert in_errors(fit.inference, theirs) < 0.5
    ours, errors = fit.inference.standard_errors(), theirs.standard_errors()
    np.testing.assert_allclose(ours.experts, errors.experts, rtol=0.1)
    assert np.isnan(ours.gate).all()
    assert np.isnan(ours.log_shapes).all()
    assert fit.inference.kind == "summed"
    assert fit.inference.withheld["gate"].startswith("without a round of refinement")
    assert (fit.ascent.stop, fit.ascent.passes) == (StopReason.COMBINED, 0)
    assert fit.log_likelihood == pytest.approx(pooled()[0].log_likelihood, abs=fit.mixture.parameter_count)


@pytest.mark.slow
def test_one_round_brings_it_nearer() -> None:
    none, one, two = (one_shot(soft_parts(), OneShot(refine=r)).value[0] for r in (0, 1, 2))
    _, theirs = pooled()
    distances = [in_errors(fit.inference, theirs) for fit in (none, one, two)]
    assert distances[0] > 10 * distances[1]
    assert distances[1] < 0.05
    assert distances[2] < 1e-3
    assert np.all(np.isfinite(one.inference.standard_errors().experts))


@pytest.mark.slow
@pytest.mark.parametrize("apart", [0.0, 1.0], ids=["like patients", "other patients"])
def test_in_the_end_it_is_the_pooled_fit(apart: float) -> None:
    parts = soft_parts(apart=apart)
    done = one_shot(parts, OneShot(refine=9))
    (fit,), (reference, theirs) = done.value, pooled(apart=apart)
    assert fit.ascent.stop is StopReason.CONVERGED_NEWTON
    assert fit.members is None
    assert in_errors(fit.inference, theirs) < 1e-3
    assert fit.log_likelihood == pytest.approx(reference.log_likelihood, abs=0.02)
    alike = infer(reference, joined(parts), kind="larger")  # what one table has by default
    np.testing.assert_allclose(fit.inference.standard_errors().flat(), alike.standard_errors().flat(), rtol=0.01)
    dialogue = FederatedEM().dialogue(Task([SOFT], 4, 1, start=soft_truth()))
    (exact,) = run(dialogue, InProcess().over(sites_of(parts))).value
    assert in_errors(fit.inference, infer(exact)) < 1e-3


LONG = {
    *(("negative_binomial", gate) for gate in ("softmax", "constant")),
    *((family, "constant") for family in ("student", "categorical", "zero_inflated_poisson")),
}
HARD_TO_DESCRIBE = {("negative_binomial", "summaries"), ("student", "summaries")}
"""They take most of the time of a test in which the other families do the same."""
CASES = [
    pytest.param(family, gate, marks=pytest.mark.long if (family, gate) in LONG else ())
    for family in FAMILIES
    for gate in ("softmax", "constant")
]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "gate"), CASES)
def test_every_model_ends_at_the_pooled_maximum(family: str, gate: str) -> None:
    case = softly_categorical(gate=gate, n=8_000)
    if family != "categorical":
        case = simulated(family, gate=gate, n=8_000, exposure=family in SIZED, seed=4)
    reference = fit_mixture(case.rows, case.specification, rng=np.random.default_rng(0), start=case.truth)
    dialogue = OneShot(refine=25).dialogue(Task([case.specification], 2, 1, start=case.truth, seed=0))
    (fit,) = run(dialogue, InProcess().over(sites_of(parted(case.rows, 4)))).value
    if family == "categorical":  # classes say little about experts: EM itself takes hundreds of rounds
        assert fit.log_likelihood > reference.log_likelihood - 0.5
    else:
        assert fit.ascent.stop is StopReason.CONVERGED_NEWTON
        assert fit.log_likelihood == pytest.approx(reference.log_likelihood, abs=0.05)


@pytest.mark.long
@pytest.mark.parametrize("gate", ["softmax", "constant"])
def test_classes_from_the_sites_own_starts_come_near_the_pooled_maximum_at_once(gate: str) -> None:
    case = softly_categorical(gate=gate, n=8_000)  # classes say little about experts: EM takes hundreds of rounds
    reference = fit_mixture(case.rows, case.specification, rng=np.random.default_rng(0), start=case.truth)
    near = 0
    for seed in range(4):  # a site's search may end below its best maximum
        dialogue = OneShot(refine=1).dialogue(Task([case.specification], 2, 1, seed=seed))
        (fit,) = run(dialogue, InProcess().over(sites_of(parted(case.rows, 4)))).value
        near += fit.log_likelihood > reference.log_likelihood - 0.5 * case.truth.parameter_count
    assert near >= 3


@pytest.mark.slow
@pytest.mark.parametrize("gate", ["softmax", "constant"])
def test_groups_are_combined_for_gaussian_experts(gate: str) -> None:
    case = simulated(gate=gate, n=6_000, group_size=3, seed=4)
    reference = fit_mixture(case.rows, case.specification, rng=np.random.default_rng(0), start=case.truth)
    dialogue = OneShot(refine=6).dialogue(Task([case.specification], 2, 1, start=case.truth, seed=0))
    done = run(dialogue, InProcess().over(sites_of(parted(case.rows, 4))))
    (fit,) = done.value
    assert fit.combination.weight == 2_000
    assert sum(each.request != "PerSite" for each in done.record.rounds) <= 5  # sites are asked for gates of their own
    assert in_errors(fit.inference, infer(reference, case.rows)) < 1e-3


def test_groups_of_other_families_are_refused_by_name() -> None:
    case = simulated("poisson", n=600, group_size=3)
    dialogue = OneShot().dialogue(Task([case.specification], 2, 1, start=case.truth, seed=0))
    with pytest.raises(InvalidInputError, match="grouped rows for Gaussian experts only: use FederatedEM"):
        run(dialogue, InProcess().over(sites_of(parted(case.rows, 2))))


@pytest.mark.slow
@pytest.mark.parametrize("refine", [0, 2])
def test_of_other_families_groups_are_left_without_a_model_where_others_have_rows(refine: int) -> None:
    by_row, grouped = (simulated("poisson", n=800, group_size=size, seed=1) for size in (1, 4))
    parts = {"groups": grouped.rows, **parted(by_row.rows, 2)}
    dialogue = OneShot(refine=refine).dialogue(Task([by_row.specification], 2, 1, start=by_row.truth, seed=0))
    (fit,) = run(dialogue, InProcess().over(sites_of(parts))).value
    assert [site.status for site in fit.combination.sites] == ["no model", "used", "used"]
    assert set(fit.combination.set_aside) == {"groups"}
    assert fit.combination.weight == 800
    alone = OneShot(refine=0).dialogue(Task([by_row.specification], 2, 1, start=by_row.truth, seed=0))
    (rows_only,) = run(alone, InProcess().over(sites_of(parted(by_row.rows, 2)))).value
    assert fit.combination.shares == pytest.approx(rows_only.combination.shares)
    if refine:  # its groups count there: 200 of them
        assert fit.ascent.statistics.weight == 1_000


@pytest.mark.parametrize("family", [pytest.param("categorical", marks=pytest.mark.slow), "poisson"])
def test_groups_of_one_row_each_are_rows(family: str) -> None:
    case = simulated(family, n=300, seed=1)
    single = replace(case.rows, groups=Groups.of(np.arange(300)))
    fits = []
    for rows in (case.rows, single):
        dialogue = OneShot(refine=0).dialogue(Task([case.specification], 2, 1, start=case.truth, seed=0))
        fits += run(dialogue, InProcess().over(sites_of(parted(rows, 2)))).value
    assert fits[1].combination.set_aside == {}
    np.testing.assert_allclose(fits[0].mixture.experts.B, fits[1].mixture.experts.B, atol=1e-6)


def test_the_estimator_takes_the_fit_without_a_warning() -> None:
    parts = {name: (rows.X, rows.Y[:, 0]) for name, rows in soft_parts(3, 1_000).items()}
    estimator = MixtureOfExpertsRegressor(3, mixture_init=soft_truth(), random_state=0)
    for refine in (0, 1, 4):
        result = Federation(parts).fit(estimator, method=OneShot(refine=refine))
        assert result.fit.ascent.stop.by_choice or result.fit.ascent.stop.converged
        assert result.fit.ascent.stop.by_choice or refine > 0
        assert result.model.predict(parts["site 00"][0][:3]).shape == (3,)
        assert np.isfinite(result.bic)


def test_the_summary_says_where_standard_errors_come_from() -> None:
    parts = {name: (rows.X, rows.Y[:, 0]) for name, rows in soft_parts(3, 1_000).items()}
    estimator = MixtureOfExpertsRegressor(3, mixture_init=soft_truth(), random_state=0)
    assert (
        "summed information of the sites, right if"
        in Federation(parts).fit(estimator, method=OneShot(refine=0)).model.summary()
    )


# ---------------------------------------------------------------------- sites that are small, doubted or foreign


def test_a_site_with_too_few_rows_takes_part_in_refinement_only() -> None:
    parts = {**soft_parts(3), "small": soft_parts(1, 2_000, 0.5)["site 00"].take(np.arange(9))}
    (none,), (fit,) = (one_shot(parts, OneShot(refine=r)).value for r in (0, 6))
    assert [site.name for site in none.combination.sites] == [site.name for site in fit.combination.sites]
    assert {site.name: site.status for site in fit.combination.sites}["small"] == "no model"
    assert set(fit.combination.set_aside) == {"small"}
    assert none.combination.weight == 6_000
    assert fit.ascent.statistics.weight == 6_009
    reference = fit_mixture(joined(parts), SOFT, rng=np.random.default_rng(0), start=soft_truth())
    assert in_errors(fit.inference, infer(reference, joined(parts))) < 1e-3


def unequal_parts() -> dict[str, Rows]:
    """Sites whose order is neither that of their names nor that of their sizes; one of them is too small."""
    large = soft_parts(4, 1_000)
    return {
        "small": large["site 03"].take(np.arange(9)),
        "west": large["site 00"].take(np.arange(400)),
        "east": large["site 01"],
        "north": large["site 02"].take(np.arange(700)),
    }


@pytest.mark.parametrize("refine", [0, 1])
def test_sites_are_named_in_the_order_they_were_given(refine: int) -> None:
    (fit,) = one_shot(unequal_parts(), OneShot(refine=refine)).value
    assert [site.name for site in fit.combination.sites] == list(unequal_parts())
    assert [site.status for site in fit.combination.sites] == ["no model", "used", "used", "used"]
    assert [site.weight for site in fit.combination.sites] == [9, 400, 1_000, 700]


def test_a_site_without_a_model_is_named_with_the_reason() -> None:
    (fit,) = one_shot(unequal_parts(), OneShot(refine=0)).value
    small = fit.combination.sites[0]
    assert (small.experts, small.gate, small.remarks) == ((), False, ())
    assert fit.combination.set_aside == {"small": "it has too few rows for a fit of its own, or the fit failed"}
    assert str(small) == "small: no model: it has too few rows for a fit of its own, or the fit failed"


@pytest.mark.slow
def test_a_site_without_a_model_is_asked_in_every_round_of_refinement(calls: Calls) -> None:
    done = one_shot(unequal_parts(), OneShot(refine=4))
    assert done.value[0].members is None
    assert calls.asked.count("small") == len(done.record.rounds) >= 2
    calls.misbehave("west", spoiled)  # who takes part is then decided site by site
    (fit,) = one_shot(unequal_parts(), OneShot(refine=1)).value
    assert "its own model was not the start" in fit.combination.sites[1].remarks[0]
    assert "small" in fit.members


def test_fits_that_stopped_early_are_remarked_and_used() -> None:
    dialogue = OneShot(refine=0).dialogue(Task([SOFT], 4, 1, start=soft_truth(), seed=0, max_iter=2))
    (fit,) = run(dialogue, InProcess().over(sites_of(unequal_parts()))).value
    small, *others = fit.combination.sites
    remark = f"its own fit {StopReason.MAX_ITER}"
    assert remark.startswith("its own fit stopped: max_iter was reached")
    assert small.remarks == ()
    assert [site.remarks for site in others] == [(remark,)] * 3
    assert [site.status for site in others] == ["used"] * 3
    assert set(fit.combination.set_aside) == {"small"}
    assert set(fit.combination.named) == set(unequal_parts())
    assert fit.combination.named["east"] == remark


def test_of_fits_that_converged_nothing_is_said() -> None:
    assert set(one_shot(unequal_parts(), OneShot(refine=0)).value[0].combination.named) == {"small"}


@pytest.mark.parametrize("rows", [0, 1])
def test_a_site_with_one_row_or_none_is_no_trouble(rows: int) -> None:
    parts = {**soft_parts(3), "small": soft_parts(1, 2_000, 0.5)["site 00"].take(np.arange(rows))}
    done = one_shot(parts, OneShot(refine=1))
    assert done.value[0].ascent.statistics.weight == 6_000 + rows


def test_where_no_site_has_enough_rows_it_is_said() -> None:
    parts = {name: rows.take(np.arange(12)) for name, rows in soft_parts(3).items()}
    with pytest.raises(InvalidInputError, match="no site has sent a model"):
        one_shot(parts, OneShot())


def spoiled(question: bytes, site: Site) -> bytes:
    """A site whose fit went wrong and whose rows are as those of others."""
    answer = decode(respond(question, site))
    if not hasattr(answer, "model"):
        return encode(answer)
    mixture = answer.model.mixture
    wrong = replace(mixture, experts=replace(mixture.experts, B=10 * mixture.experts.B))
    return encode(replace(answer, model=replace(answer.model, mixture=wrong)))


def test_a_doubted_site_whose_rows_are_as_the_others_rejoins(calls: Calls) -> None:
    calls.misbehave("site 02", spoiled)
    parts = soft_parts(6, 1_000)
    done = one_shot(parts, OneShot(refine=6))
    (fit,) = done.value
    assert [site.name for site in fit.combination.sites if site.remarks] == ["site 02"]
    assert fit.members == tuple(parts)
    assert [r.request for r in done.record.rounds[:2]] == ["Each", "Each"]
    assert fit.ascent.statistics.weight == 6_000
    assert in_errors(fit.inference, pooled(6, 1_000)[1]) < 1e-3


def foreign(n: int = 1_000) -> Rows:
    """Rows of another truth, at the covariates of the first."""
    rows = next(iter(soft_sites(1, n, seed=5).values()))
    return Rows(rows.X, soft_truth(seed=6).sample(rows.X, np.random.default_rng(0))[0])


@pytest.mark.slow
def test_a_foreign_site_is_named_and_stays_out() -> None:
    honest = soft_parts(6, 1_000)
    parts = {**honest, "elsewhere": foreign()}
    sites = sites_of(parts)
    dialogue = OneShot(refine=6).dialogue(Task([SOFT], 4, 1, seed=0, n_init=2))
    done = run(dialogue, InProcess().over(sites))
    (fit,) = done.value
    assert set(fit.combination.set_aside) == {"elsewhere"}
    assert "far from all experts of the other sites" in fit.combination.set_aside["elsewhere"]
    assert fit.members == tuple(honest)
    assert fit.ascent.statistics.weight == 6_000
    assert in_errors(fit.inference, pooled(6, 1_000)[1]) < 1e-3
    sums = [each for each in done.record.rounds[2:] if each.request != "PerSite"]
    assert "elsewhere" not in {site for r in sums for exchange in r.exchanges for site in exchange.sites}


def test_of_copies_one_takes_part_in_refinement(calls: Calls) -> None:
    parts = dict(soft_parts(5, 1_000))
    parts["copy"] = parts["site 03"]
    (fit,) = one_shot(parts, OneShot(refine=6)).value
    assert set(fit.combination.set_aside) == {"site 03"} or set(fit.combination.set_aside) == {"copy"}
    assert set(fit.combination.named) == {"copy", "site 03"}
    assert len(fit.members) == 5
    assert fit.ascent.statistics.weight == 5_000
    assert in_errors(fit.inference, pooled(5, 1_000)[1]) < 1e-3


def claimed(**changes: Callable[[SiteModel], object]) -> Misbehaviour:
    """A site that sends something else in place of parts of its model."""

    def answer(question: bytes, site: Site) -> bytes:
        fit = decode(respond(question, site))
        return encode(replace(fit, model=replace(fit.model, **{name: of(fit.model) for name, of in changes.items()})))

    return answer


def with_gate(model: SiteModel, alpha: np.ndarray) -> Mixture:
    return replace(model.mixture, gate=replace(model.mixture.gate, alpha=alpha))


def with_coefficients(model: SiteModel, B: np.ndarray) -> Mixture:
    return replace(model.mixture, experts=replace(model.mixture.experts, B=B))


def with_covariances(model: SiteModel, covariances: np.ndarray) -> CovariateSummary:
    return replace(model.covariates, covariances=covariances)


def with_means(model: SiteModel, means: np.ndarray) -> CovariateSummary:
    return replace(model.covariates, means=means)


HOSTILE = {
    "second moments that are none": claimed(second=lambda m: -m.second),
    "coefficients without measure": claimed(mixture=lambda m: with_coefficients(m, 1e200 * m.mixture.experts.B)),
    "a gate without measure": claimed(mixture=lambda m: with_gate(m, 1e200 * m.mixture.gate.alpha)),
    "covariances that are none": claimed(
        covariates=lambda m: with_covariances(
            m, np.sign(m.covariates.covariances) + 5.0 * (m.covariates.covariances < 1)
        )
    ),
    "covariates without measure": claimed(covariates=lambda m: with_means(m, 1e200 * m.covariates.means)),
    "more rows than it has": claimed(weight=lambda m: 1e15, label_counts=lambda m: 1e12 * m.label_counts),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("claim", HOSTILE)
def test_no_claim_of_one_site_stops_or_rules_the_others(claim: str, calls: Calls) -> None:
    calls.misbehave("site 02", HOSTILE[claim])
    done = one_shot(soft_parts(6, 1_000), OneShot(refine=0), on_drop="continue")
    (fit,) = done.value
    assert set(done.record.dropped) | set(fit.combination.set_aside) == {"site 02"}
    assert in_errors(fit.inference, pooled(6, 1_000)[1]) < 2


# ---------------------------------------------------------------------- the number of experts


def test_the_right_order_is_selected() -> None:
    case = simulated(n=1_200, seed=3)
    parts = {name: (rows.X, rows.Y[:, 0]) for name, rows in parted(case.rows, 3).items()}
    estimator = MixtureOfExpertsRegressor(n_init=1, mixture_init=case.truth, random_state=0)
    chosen = Federation(parts).select_order(estimator, orders=[1, 2], method=OneShot(refine=1))
    assert chosen.best_order == 2
    assert len(chosen.best.record.rounds) == 4
    assert chosen.best.fit.combination.set_aside == {}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::consilience.errors.DegenerateFitWarning")  # of an order that is too high
def test_the_right_order_is_selected_among_more(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[tuple[bytes, str], bytes] = {}

    def remembered(question: Any, site: Site) -> bytes:  # the sites' own fits take nearly all of the time
        key = (question if isinstance(question, bytes) else encode(question), site.name)
        if key not in answers:
            answers[key] = respond(question, site)
        return answers[key]

    monkeypatch.setattr(inprocess, "respond", remembered)
    parts = {name: (rows.X, rows.Y[:, 0]) for name, rows in soft_parts(8, 1_500).items()}
    estimator = MixtureOfExpertsRegressor(random_state=0)
    for refine in (0, 1, 3):
        chosen = Federation(parts).select_order(estimator, orders=[1, 2, 3, 4], method=OneShot(refine=refine))
        assert chosen.best_order == 3


def test_orders_that_the_sites_have_too_few_experts_for_do_not_stop_the_others() -> None:
    case = simulated(n=600, seed=3)
    parts = {"only": (case.X, case.y)}
    estimator = MixtureOfExpertsRegressor(n_init=1, mixture_init=case.truth, random_state=0)
    chosen = Federation(parts).select_order(estimator, orders=[2, 3], method=OneShot(refine=0))
    assert chosen.best_order == 2
    assert chosen.set_aside == {3: "the sites have too few experts for it"}


# ---------------------------------------------------------------------- interruptions


@pytest.mark.slow
def test_a_resumed_run_has_the_same_bits(tmp_path: Path, calls: Calls) -> None:
    parts, method = soft_parts(3, 600), OneShot(refine=3)
    whole = one_shot(parts, method)
    for time in (0, 1, 2):
        journal = tmp_path / f"run {time}.journal"
        calls.asked.clear()
        calls.misbehave("site 01", failing, time=time)
        with pytest.raises(RoundStoppedError, match="site 01"):
            one_shot(parts, method, journal=Journal(journal))
        calls._misbehaviour.clear()
        before = len(calls.asked)
        again = one_shot(parts, method, journal=Journal(journal))
        assert bits(again.value[0].mixture) == bits(whole.value[0].mixture)
        assert again.value[0].log_likelihood == whole.value[0].log_likelihood
        assert len(calls.asked) - before == 3 * (len(whole.record.rounds) - time) - 2
        replayed = one_shot(parts, method, journal=Journal(journal))
        assert bits(replayed.value[0].mixture) == bits(whole.value[0].mixture)


def test_the_journal_of_another_support_or_of_other_rounds_is_refused(tmp_path: Path) -> None:
    parts = {name: (rows.X, rows.Y[:, 0]) for name, rows in soft_parts(2, 300).items()}
    estimator = MixtureOfExpertsRegressor(3, mixture_init=soft_truth(), random_state=0)
    journal = tmp_path / "run.journal"
    X = np.random.default_rng(0).normal(size=(200, 4))
    Federation(parts).fit(estimator, method=OneShot(refine=0, support=X), journal=journal)
    for method in (OneShot(refine=1, support=X), OneShot(refine=0), OneShot(refine=0, support=X + 1e-9)):
        with pytest.raises(JournalError, match="another model, method or setting"):
            Federation(parts).fit(estimator, method=method, journal=journal)


@pytest.mark.parametrize("time", [0, 1])
def test_a_site_that_fails_is_left_out(calls: Calls, time: int) -> None:
    calls.misbehave("site 02", failing, time=time)
    done = one_shot(soft_parts(), OneShot(refine=6), on_drop="continue")
    (fit,) = done.value
    assert done.record.dropped.keys() == {"site 02"}
    assert fit.ascent.statistics.weight == 6_000
    assert {site.name for site in fit.combination.sites} == set(soft_parts()) - ({"site 02"} if time == 0 else set())
    rest = {name: rows for name, rows in soft_parts().items() if name != "site 02"}
    reference = fit_mixture(joined(rest), SOFT, rng=np.random.default_rng(0), start=soft_truth())
    assert in_errors(fit.inference, infer(reference, joined(rest))) < 1e-3


def test_a_site_that_fails_late_opens_a_segment(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "NUMBERS", 3_000)
    parts = soft_parts(4, 400)
    calls.misbehave("site 02", failing, time=2)
    (fit,) = one_shot(parts, OneShot(refine=8), on_drop="continue").value
    ascent = fit.ascent
    assert ascent.statistics.weight == 1_200
    starts = (*ascent.segments, len(ascent.trace))
    for first, last in pairwise(starts):
        assert np.all(np.diff(ascent.trace[first:last]) >= -1e-6)
        assert np.ptp(ascent.trace[first:last]) < 100  # values over other rows are not compared


def test_a_site_with_other_columns_is_named() -> None:
    parts = dict(soft_parts(3, 600))
    parts["wide"] = Rows(np.ones((300, 5)) * np.arange(300)[:, None], parts["site 00"].Y[:300])
    done = one_shot(parts, OneShot(refine=0), on_drop="continue")
    assert done.record.dropped.keys() == {"wide"}


def test_a_start_of_another_kind_is_refused_by_name() -> None:
    case = simulated(n=300)
    dialogue = OneShot().dialogue(Task([case.specification], 2, 1, start=simulated("poisson").truth))
    with pytest.raises(InvalidInputError, match="start"):
        run(dialogue, InProcess().over(sites_of(parted(case.rows, 2))))


# ---------------------------------------------------------------------- sums over some sites


def test_a_total_over_some_sites_is_the_sum_over_these() -> None:
    def dialogue():
        everyone = yield Total(Summarise(d=2, q=1))
        some = yield Total(Summarise(d=2, q=1), sites=("south", "east", "nowhere"))
        one = yield Total(Summarise(d=2, q=1), sites=("north",))
        each = yield Each(Summarise(d=2, q=1))
        return everyone, some, one, each

    sites = small_sites()
    done = run(dialogue(), InProcess().over(sites))
    everyone, some, one, each = done.value
    assert (everyone.weight, some.weight, one.weight) == (120.0, 80.0, 40.0)
    assert encode(some) == encode(each["east"] + each["south"])
    assert encode(one) == encode(each["north"])
    assert [exchange.sites for exchange in done.record.rounds[1].exchanges] == [("east",), ("south",)]


def test_totals_over_other_sites_do_not_share_a_message() -> None:
    def ask(sites: tuple[str, ...] | None):
        return (yield Total(Summarise(d=2, q=1), sites)).weight

    dialogues = [ask(None), ask(("east",)), ask(("east",)), ask(None)]
    done = run(together(dialogues), InProcess().over(small_sites()))
    assert done.value == (120.0, 40.0, 40.0, 120.0)
    assert [r.question for r in done.record.rounds] == ["Several", "Several"]


@pytest.mark.parametrize("sites", [None, ("north", "south")])
def test_a_total_over_some_sites_is_replayed(tmp_path: Path, calls: Calls, sites: tuple[str, ...] | None) -> None:
    def dialogue():
        first = yield Total(Summarise(d=2, q=1), sites)
        second = yield Total(Summarise(d=2, q=1))
        return encode(first), encode(second)

    one, two = (
        run(dialogue(), InProcess().over(small_sites()), journal=Journal(tmp_path / "journal")) for _ in range(2)
    )
    assert one.value == two.value
    assert len(calls.asked) == 3 + len(sites or "abc")


def test_the_journal_of_a_total_over_other_sites_is_refused(tmp_path: Path) -> None:
    def dialogue(sites: tuple[str, ...] | None):
        return (yield Total(Summarise(d=2, q=1), sites)).weight

    run(dialogue(("north",)), InProcess().over(small_sites()), journal=Journal(tmp_path / "journal"))
    with pytest.raises(JournalError):
        run(dialogue(None), InProcess().over(small_sites()), journal=Journal(tmp_path / "journal"))


# ---------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"refine": -1}, "refine=-1: expected a whole number"),
        ({"refine": 1.5}, "refine=1.5: expected a whole number"),
        ({"refine": None}, "refine=None"),
        ({"plan": "site"}, "plan='site': expected 'expert' or 'row'"),
        ({"support": "rows"}, "support='rows': expected 'summaries'"),
    ],
)
def test_arguments_out_of_range_are_refused_by_name(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        OneShot(**arguments)


X4 = np.random.default_rng(0).normal(size=(50, 4))
STRANGE_SUPPORTS = {
    "other columns": X4[:, :3],
    "one column": X4[:, 0],
    "no rows": X4[:0],
    "rows that are not finite": np.where(np.arange(50)[:, None] == 7, np.nan, X4),
    "other columns at one site": {"site 00": X4, "site 01": X4, "site 02": X4[:, :3]},
    "no rows at one site": {"site 00": X4[:0], "site 01": X4, "site 02": X4},
}


@pytest.mark.parametrize("refine", [0, 1])
@pytest.mark.parametrize("support", STRANGE_SUPPORTS.values(), ids=STRANGE_SUPPORTS)
def test_a_support_that_does_not_fit_is_refused_before_any_site_is_asked(
    support: np.ndarray | dict[str, np.ndarray], refine: int, calls: Calls
) -> None:
    with pytest.raises(InvalidInputError, match=r"a support of shape .*: expected rows of 4 finite covariates"):
        one_shot(soft_parts(3, 600), OneShot(refine=refine, support=support))
    assert calls.asked == []


def test_a_support_without_some_sites_names_them() -> None:
    given = {"site 00": X4, "elsewhere": X4}
    with pytest.raises(InvalidInputError, match=r"the support has no covariates of site 0[12], site 0[12]$"):
        one_shot(soft_parts(3, 600), OneShot(refine=0, support=given))


def test_a_site_without_a_model_needs_no_support() -> None:
    parts = unequal_parts()
    given = {name: rows.X for name, rows in parts.items() if name != "small"}
    (fit,) = one_shot(parts, OneShot(refine=0, support=given)).value
    assert [site.status for site in fit.combination.sites] == ["no model", "used", "used", "used"]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("gate", ["softmax", "constant"])
def test_covariates_are_described_where_they_are_asked_for_and_needed(family: str, gate: str) -> None:
    case = simulated(family, gate=gate, n=300, seed=1)
    needed = family != "gaussian" or gate == "softmax"
    for describe in (True, False):
        question = FitSite(case.specification, (2,), seed=0, start=case.truth, describe=describe)
        fit = receive(respond(encode(question), Site("here", case.rows)), question)
        assert (fit.model.covariates is not None) == (describe and needed)


@pytest.mark.slow
@pytest.mark.usefixtures("few_points")
@pytest.mark.parametrize(
    ("family", "support"),
    [
        pytest.param(family, support, marks=pytest.mark.long if (family, support) in HARD_TO_DESCRIBE else ())
        for family in FAMILIES
        for support in ("summaries", "given", "public")
    ],
)
def test_where_a_support_is_given_no_description_leaves_a_site(
    support: str, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bytes] = []

    def recorded(question: bytes, site: Site) -> bytes:
        sent.append(respond(question, site))
        return sent[-1]

    monkeypatch.setattr(inprocess, "respond", recorded)
    case = simulated(family, n=600, seed=1)
    parts = parted(case.rows, 2)
    supports = {"summaries": "summaries", "given": {name: rows.X for name, rows in parts.items()}, "public": case.X}
    dialogue = OneShot(refine=0, support=supports[support]).dialogue(Task([case.specification], 2, 1, start=case.truth))
    done = run(dialogue, InProcess().over(sites_of(parts)))
    described = support == "summaries"
    assert [decode(message).model.covariates is not None for message in sent] == [described] * 2
    (only,) = done.record.rounds
    assert ("summarises the covariates" in only.discloses) == described
    assert done.value[0].combination.set_aside == {}


def test_a_description_that_was_not_asked_for_is_a_failure(calls: Calls) -> None:
    def describing(question: FitSite, site: Site) -> bytes:
        return respond(replace(question, describe=True), site)

    calls.misbehave("site 02", describing)
    done = one_shot(soft_parts(4, 600), OneShot(refine=0, support=X4), on_drop="continue")
    assert done.record.dropped == {"site 02": str(FailureCode.WRONG_SHAPE)}


def test_supports_are_told_apart_in_text() -> None:
    X = np.arange(6.0).reshape(3, 2)
    methods = [
        OneShot(),
        OneShot(support=X),
        OneShot(support=X + 1e-12),
        OneShot(support={"a": X, "b": X}),
        OneShot(support={"a": X, "c": X}),
        OneShot(support={"a": X, "b": -X}),
        OneShot(plan="row"),
        OneShot(refine=2),
    ]
    assert len({repr(method) for method in methods}) == len(methods)
    assert repr(OneShot(support=X)) == repr(OneShot(support=X.copy(order="F")))
    assert repr(OneShot()) == "OneShot(refine=1, plan='expert', support='summaries')"


def test_a_fit_of_a_site_does_not_add_and_says_what_it_discloses() -> None:
    question = FitSite(SOFT, (2, 3), seed=0)
    assert not is_additive(question)
    with pytest.raises(InvalidInputError, match="FitSite do not add"):
        Total(question)
    with pytest.raises(InvalidInputError, match="do not add"):
        Total(Several((Summarise(1, 1), question)))
    assert "a mixture of at most 3 experts" in question.disclosed
    assert "a small mixture that summarises the covariates" in question.disclosed


def test_a_fit_without_a_description_discloses_less() -> None:
    more, less = (FitSite(SOFT, (3,), seed=0, describe=describe).disclosed for describe in (True, False))
    said = (
        "a small mixture that summarises the covariates, and for columns with at most 8 distinct values the shares of "
        "those that occur in at least 5 rows; "
    )
    assert said in more
    assert less == more.replace(said, "")
    assert "covariances of the covariates" in less  # of the coordinates, which every fit needs


def test_reasons_to_stop_are_sentences() -> None:
    assert not StopReason.COMBINED.converged
    assert not StopReason.REFINED.converged
    by_choice = {StopReason.COMBINED, StopReason.REFINED, StopReason.ROUNDS, StopReason.METHOD}
    assert {reason for reason in StopReason if reason.by_choice} == by_choice
    for reason in StopReason:
        assert ":" in str(reason)


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["expert", "row"])
@pytest.mark.parametrize("support", ["summaries", "given", "public"])
def test_every_plan_and_support_leads_to_the_pooled_fit(plan: str, support: str) -> None:
    parts = soft_parts(3, 1_000)
    supports = {
        "summaries": "summaries",
        "given": {name: rows.X for name, rows in parts.items()},
        "public": joined(parts).X[::7],
    }
    (fit,) = one_shot(parts, OneShot(refine=8, plan=plan, support=supports[support])).value
    assert fit.ascent.stop is StopReason.CONVERGED_NEWTON
    assert in_errors(fit.inference, pooled(3, 1_000)[1]) < 1e-3


@pytest.mark.slow
def test_the_sites_own_starts_lead_there_too() -> None:
    case = simulated(n=1_800, seed=5)
    dialogue = OneShot(refine=6).dialogue(Task([case.specification], 2, 1, seed=0, n_init=2))
    (fit,) = run(dialogue, InProcess().over(sites_of(parted(case.rows, 3)))).value
    reference = fit_mixture(case.rows, case.specification, rng=np.random.default_rng(0), start=case.truth)
    assert fit.log_likelihood == pytest.approx(reference.log_likelihood, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("sites", [1, 3])
def test_sites_with_the_same_classes_have_their_own_model_back(sites: int) -> None:
    case = softly_categorical(gate="softmax", n=1_500)
    rows = {f"site {i}": case.rows for i in range(sites)}
    dialogue = OneShot(refine=0).dialogue(Task([case.specification], 2, 1, start=case.truth, seed=0))
    (fit,) = run(dialogue, InProcess().over(sites_of(rows))).value
    own = answer(FitSite(case.specification, (2,), seed=0, start=case.truth), Site("own", case.rows)).model
    X = case.rows.X[:100]
    np.testing.assert_allclose(fit.mixture.mean(X), own.mixture.mean(X), atol=1e-7)


# ---------------------------------------------------------------------- standard errors without refinement


def site_of(n: int, labels: np.ndarray, rng: np.random.Generator, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(n, 2))
    y = np.where(labels, 4 + (2 + shift) * X[:, 0], -X[:, 1]) + rng.normal(size=n)
    return X, y


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.SetAsideWarning")
def test_a_site_without_an_expert_does_not_make_standard_errors_too_small() -> None:
    rng = np.random.default_rng(0)
    labels = [rng.random(1_500) < share for share in (0.0, 0.5, 0.5, 1.0)]
    sites = {f"site {i}": site_of(1_500, label, rng) for i, label in enumerate(labels)}
    estimator = MixtureOfRegressions(2, random_state=0, n_init=2, max_iter=100)
    inference = Federation(sites).fit(estimator, method=OneShot(refine=0)).model.inference_
    pooled = MixtureOfRegressions(2, random_state=0, n_init=2).fit(
        np.concatenate([X for X, _ in sites.values()]), np.concatenate([y for _, y in sites.values()])
    )
    ours, theirs = inference.standard_errors().experts, pooled.inference_.standard_errors().experts
    order = np.argsort(inference.estimates.experts[:, 0, 0]), np.argsort(pooled.inference_.estimates.experts[:, 0, 0])
    ratio = ours[order[0]] / theirs[order[1]]
    assert np.all(ratio > 0.8)
    assert np.nanmedian(ratio) < 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.SetAsideWarning")
@pytest.mark.parametrize("refine", [0, 8])
def test_where_sites_differ_standard_errors_are_those_of_random_effects(refine: int) -> None:
    rng = np.random.default_rng(0)
    sites = {f"site {i}": site_of(800, rng.random(800) < 0.5, rng, shift=0.25 * (i - 2)) for i in range(5)}
    estimator = MixtureOfRegressions(2, random_state=0, n_init=2)
    inference = Federation(sites).fit(estimator, method=OneShot(refine=refine)).model.inference_
    k = int(np.argmax(inference.estimates.experts[:, 0, 0]))
    assert inference.between is not None
    assert inference.between.I2.experts[k, 0, 1] > 0.9
    se = inference.standard_errors().experts
    assert se[k, 0, 1] > 0.1  # the slopes are 1.5, 1.75, … 2.5: their mean over sites like these is not known better
    assert se[k, 0, 2] < 0.1
    assert inference.degrees_of_freedom().experts[k, 0, 1] < 10
