"""Attacks: each tells exactly the lie it is named for, and what a border can see is refused there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from answering import small_sites
from consilience.datasets import attacks
from consilience.datasets.attacks import Attack, Attacked, Blown, Claim, Collusion, Drill, MoreRows, Replay
from consilience.engines import InProcess
from consilience.errors import InvalidInputError, RoundStoppedError
from consilience.fit import Expect
from consilience.messages import Each, FailureCode, FitSite, PerSite, Several, Summarise, Total, decode, encode
from consilience.messages.questions import LocalFit
from consilience.model import ConstantGate, GaussianExperts, Mixture, Penalty, Rows, expect
from consilience.model.statistics import Statistics
from consilience.numerics.arrays import unpack
from consilience.runs import run
from consilience.site import Site, answer
from simulated import Simulated, simulated

STRUCTURES = ("full", "tied", "diag", "spherical")
KINDS = [
    pytest.param({"structure": structure, "q": q, "d": d, "gate": gate}, id=f"{structure}-{q}-{d}-{gate}")
    for structure in STRUCTURES
    for q, d, gate in ((1, 2, "constant"), (2, 2, "softmax"), (2, 0, "constant"))
]


def free(q: int) -> Penalty:
    """No floor that could hide a lie."""
    return Penalty(0.0, 0.0, np.zeros((q, q)))


def case_of(kind: dict[str, Any], **more: Any) -> Simulated:
    return simulated(n=240, seed=4, **kind, **more)


def moved(case: Simulated) -> Mixture:
    """A mixture near the truth, so that residuals and the step are not zero."""
    experts = case.truth.experts
    rng = np.random.default_rng(7)
    return replace(case.truth, experts=replace(experts, B=experts.B + 0.1 * rng.normal(size=experts.B.shape)))


def sites_of(case: Simulated) -> list[Site]:
    """The liar and an honest site, with other rows."""
    return [Site("liar", case.rows.take(np.arange(160))), Site("honest", case.rows.take(np.arange(160, 240)))]


def asked(request: Any) -> Any:
    """A dialogue of one request."""
    return (yield request)


def sent_by(engine: Attacked, question: Any, number: int = 1) -> dict[str, Any]:
    """What sites send, before a run looks at it."""
    replies = engine.ask(number, encode(question), engine.sites, total=False, timeout=None)
    return {reply.sites[0]: decode(reply.message) for some in replies for reply in some}


def lie(attack: Attack, question: Any, site: Site) -> Any:
    """What a liar sends that is asked something."""
    return sent_by(Drill({site.name: attack}).over([site]), question)[site.name]


def experts_of(mixture: Mixture, statistics: Statistics) -> GaussianExperts:
    """The experts to which statistics lead."""
    return mixture.maximise(statistics, free(mixture.experts.q)).experts


def assert_same_experts(one: GaussianExperts, two: GaussianExperts) -> None:
    np.testing.assert_allclose(one.B, two.B, atol=1e-8)
    np.testing.assert_allclose(one.covariance, two.covariance, rtol=1e-7, atol=1e-9)


def assert_same_sums(one: Statistics, two: Statistics) -> None:
    np.testing.assert_allclose(one.to_array(), two.to_array(), rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------------- the sums of a round


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("information", [False, True])
def test_who_changes_nothing_sends_the_honest_sums(kind: dict[str, Any], information: bool) -> None:
    case = case_of(kind)
    site, question = sites_of(case)[0], Expect(moved(case), information=information)
    assert_same_sums(lie(lambda claim: claim, question, site), answer(question, site))


@pytest.mark.parametrize("gate", ["constant", "softmax"])
def test_who_changes_nothing_sends_the_honest_sums_of_groups(gate: str) -> None:
    case = simulated(gate=gate, n=240, group_size=4, seed=4)
    site, question = Site("liar", case.rows), Expect(moved(case))
    assert_same_sums(lie(lambda claim: claim, question, site), answer(question, site))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("attack", "factor"), [(attacks.sign_flip, -1.0), (Blown(), 1e3), (Blown(7.0), 7.0)])
def test_sums_lead_to_other_coefficients_and_the_same_covariances(
    kind: dict[str, Any], attack: Attack, factor: float
) -> None:
    case = case_of(kind)
    site, mixture = sites_of(case)[0], moved(case)
    honest = experts_of(mixture, answer(Expect(mixture), site))
    found = experts_of(mixture, lie(attack, Expect(mixture), site))
    np.testing.assert_allclose(found.B, factor * honest.B, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found.covariance, honest.covariance, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_label_flip_names_every_expert_by_the_label_of_the_next(kind: dict[str, Any]) -> None:
    case = case_of(kind)
    site, mixture = sites_of(case)[0], moved(case)
    honest, sent = answer(Expect(mixture), site), lie(attacks.label_flip, Expect(mixture), site)
    assert_same_experts(experts_of(mixture, sent), experts_of(mixture, honest).permuted(np.array([1, 0])))
    np.testing.assert_allclose(sent.experts.plain[:2], honest.experts.plain[:2][::-1])
    if kind["gate"] == "constant":
        np.testing.assert_allclose(sent.gate.plain, honest.gate.plain[::-1])


def test_a_label_flip_of_three_is_a_cycle() -> None:
    rng = np.random.default_rng(0)
    claim = Claim(np.arange(3.0), rng.normal(size=(3, 1, 1)), rng.normal(size=(3, 2, 1)), rng.normal(size=(3, 2)))
    found = attacks.label_flip(claim)
    for name in ("n", "S", "B", "scatter"):
        np.testing.assert_array_equal(getattr(found, name), getattr(claim, name)[[1, 2, 0]])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times", [1.0, 3.0])
def test_collusion_moves_every_coefficient_by_so_many_standard_errors(kind: dict[str, Any], times: float) -> None:
    case = case_of(kind)
    site, mixture = sites_of(case)[0], moved(case)
    statistics = answer(Expect(mixture), site)
    honest = experts_of(mixture, statistics)
    found = experts_of(mixture, lie(Collusion(times), Expect(mixture), site))
    S, tau = unpack(statistics.experts.second), mixture.responsibilities(site.data)  # labels as they were told
    panel = mixture.design.panel(site.data.X)
    errors = np.empty_like(honest.B)
    for k in range(2):
        residuals = site.data.Y - (honest.B[k] @ panel).T
        variances = tau[:, k] @ residuals**2 / tau[:, k].sum()
        errors[k] = np.sqrt(np.outer(variances, np.diagonal(np.linalg.inv(S[k]))))
    np.testing.assert_allclose(np.abs(found.B - honest.B), times * errors, rtol=1e-6)
    np.testing.assert_allclose(found.covariance, honest.covariance, rtol=1e-6, atol=1e-9)


def test_colluders_agree_on_a_direction_by_their_seed() -> None:
    case = simulated(gate="constant", n=240, d=5)
    mixture = moved(case)

    def direction(attack: Collusion, site: Site) -> np.ndarray:
        honest = experts_of(mixture, answer(Expect(mixture), site))
        return np.sign(experts_of(mixture, lie(attack, Expect(mixture), site)).B - honest.B)

    one, two = sites_of(case)
    np.testing.assert_array_equal(direction(Collusion(1.0), one), direction(Collusion(3.0), two))
    assert np.any(direction(Collusion(1.0), one) != direction(Collusion(1.0, seed=1), one))


@pytest.mark.parametrize("kind", KINDS)
def test_more_rows_are_the_same_rows_many_times(kind: dict[str, Any]) -> None:
    case = case_of(kind)
    site, mixture = sites_of(case)[0], moved(case)
    question = Expect(mixture, information=True)
    honest, sent = answer(question, site), lie(MoreRows(), question, site)
    assert sent.weight == pytest.approx(1e9)
    np.testing.assert_allclose(sent.to_array(), 1e9 / 160 * honest.to_array(), rtol=1e-8, atol=1e-2)
    assert_same_experts(experts_of(mixture, sent), experts_of(mixture, honest))


def test_more_rows_are_literally_rows_that_are_repeated() -> None:
    case = simulated(gate="softmax", n=80, q=2)
    site, question = Site("liar", case.rows), Expect(moved(case), information=True)
    thrice = expect(question.mixture, Rows(case.X, case.rows.Y, np.full(80, 3.0)), information=True)
    assert_same_sums(lie(MoreRows(240.0), question, site), thrice)


def test_a_replay_sends_the_sums_of_the_first_round_again() -> None:
    case = simulated(gate="constant", n=240)
    site = sites_of(case)[0]
    first, second = Expect(case.truth), Expect(moved(case), information=True)
    engine = Drill({"liar": Replay()}).over([site])
    one, two, three = (
        sent_by(engine, question, number)["liar"] for number, question in enumerate((first, second, first), 1)
    )
    assert encode(one) == encode(answer(first, site)) == encode(three)
    assert encode(replace(two, information=None)) == encode(one)
    np.testing.assert_allclose(two.information, answer(second, site).information, rtol=1e-9, atol=1e-9)


def test_each_replay_has_a_memory_of_its_own() -> None:
    case = simulated(gate="constant", n=240)
    sites = sites_of(case)
    found = sent_by(Drill({site.name: Replay() for site in sites}).over(sites), Expect(case.truth))
    assert {name: encode(sums) for name, sums in found.items()} == {
        site.name: encode(answer(Expect(case.truth), site)) for site in sites
    }


# ---------------------------------------------------------------------- the sites' own fits


def fit_question(case: Simulated, *, describe: bool = False) -> FitSite:
    d, q = case.X.shape[1], case.rows.Y.shape[1]
    return FitSite(case.specification, (2,), 0, start=case.truth, columns=(d, q), describe=describe)


PASSING = {
    "same": (lambda claim: claim),
    "label flip": attacks.label_flip,
    "sign flip": attacks.sign_flip,
    "blown": Blown(),
    "collusion": Collusion(3.0),
    "more rows": MoreRows(),
}


@pytest.mark.slow
@pytest.mark.parametrize("attack", PASSING.values(), ids=list(PASSING))
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_told_of_a_fit_passes_the_border(kind: dict[str, Any], attack: Attack) -> None:
    case = case_of(kind)
    assert isinstance(lie(attack, fit_question(case), sites_of(case)[0]), LocalFit)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_is_told_with_other_coefficients_and_all_else_as_it_is(kind: dict[str, Any]) -> None:
    case = case_of(kind)
    site, question = sites_of(case)[0], fit_question(case)
    honest, sent = answer(question, site).model, lie(attacks.sign_flip, question, site).model
    np.testing.assert_array_equal(sent.mixture.experts.B, -honest.mixture.experts.B)
    np.testing.assert_allclose(sent.mixture.experts.covariance, honest.mixture.experts.covariance)
    for name in ("label_counts", "mass", "second", "precision", "weight", "log_likelihood"):
        np.testing.assert_allclose(getattr(sent, name), getattr(honest, name))
    np.testing.assert_allclose(sent.mixture.gate.contrasts(), honest.mixture.gate.contrasts(), atol=1e-5)


def test_a_flipped_fit_has_the_labels_of_the_next() -> None:
    case = simulated(gate="constant", n=240, q=2, seed=4)
    site, question = Site("liar", case.rows), fit_question(case)
    honest, sent = answer(question, site).model, lie(attacks.label_flip, question, site).model
    order = np.array([1, 0])
    assert_same_experts(sent.mixture.experts, honest.mixture.experts.permuted(order))
    np.testing.assert_allclose(sent.mixture.gate.probabilities, honest.mixture.gate.probabilities[order], atol=1e-5)
    for name in ("label_counts", "mass", "second", "precision"):
        np.testing.assert_allclose(getattr(sent, name), getattr(honest, name)[order])


def test_a_fit_of_more_rows_is_the_same_fit() -> None:
    case = simulated(gate="constant", n=240, q=2, seed=4)
    site, question = Site("liar", case.rows), fit_question(case)
    honest, sent = answer(question, site), lie(MoreRows(), question, site)
    times = 1e9 / 240
    assert_same_experts(sent.model.mixture.experts, honest.model.mixture.experts)
    for name in ("label_counts", "mass", "second", "precision", "weight", "log_likelihood"):
        np.testing.assert_allclose(getattr(sent.model, name), times * np.asarray(getattr(honest.model, name)))
    assert sent.summary.weight == pytest.approx(1e9)
    np.testing.assert_allclose(sent.summary.y_covariance, honest.summary.y_covariance)
    np.testing.assert_allclose(sent.summary.x_variance, honest.summary.x_variance)
    np.testing.assert_array_equal(sent.summary.y_mean, honest.summary.y_mean)


def test_a_site_without_a_fit_has_nothing_to_lie_about() -> None:
    case = simulated(gate="constant", n=5)
    site, question = Site("liar", case.rows), fit_question(case)
    assert encode(lie(attacks.sign_flip, question, site)) == encode(answer(question, site))


# ---------------------------------------------------------------------- what the border sees


@pytest.mark.parametrize(
    ("attack", "code"),
    [(attacks.not_a_number, FailureCode.NOT_FINITE), (attacks.fewer_experts, FailureCode.WRONG_SHAPE)],
    ids=["not a number", "fewer experts"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_sums_that_cannot_be_used_are_refused_and_the_site_named(
    kind: dict[str, Any], attack: Attack, code: FailureCode
) -> None:
    case = case_of(kind)
    engine, request = Drill({"liar": attack}).over(sites_of(case)), Each(Expect(case.truth))
    with pytest.raises(RoundStoppedError, match=f"liar: {code}") as stopped:
        run(asked(request), engine)
    assert stopped.value.sites == ("liar",)
    done = run(asked(request), engine, on_drop="continue")
    assert list(done.value) == ["honest"]
    assert done.record.dropped == {"liar": str(code)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attack", "troubles"),
    [
        (attacks.not_a_number, {FailureCode.NOT_FINITE}),
        (
            attacks.fewer_experts,
            {FailureCode.WRONG_SHAPE, FailureCode.UNREADABLE_ANSWER},
        ),  # its rows do not add up either
    ],
    ids=["not a number", "fewer experts"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_fits_that_cannot_be_used_are_refused_and_the_site_named(
    kind: dict[str, Any], attack: Attack, troubles: set[FailureCode]
) -> None:
    case = case_of(kind)
    done = run(asked(Each(fit_question(case))), Drill({"liar": attack}).over(sites_of(case)), on_drop="continue")
    assert list(done.value) == ["honest"]
    assert done.record.dropped.keys() == {"liar"}
    assert done.record.dropped["liar"] in {str(code) for code in troubles}


INCONSISTENT = {name: PASSING[name] for name in ("label flip", "sign flip", "blown", "collusion")}


@pytest.mark.parametrize("attack", INCONSISTENT.values(), ids=list(INCONSISTENT))
@pytest.mark.parametrize("information", [False, True])
def test_sums_of_no_data_do_not_survive_the_round(attack: Attack, information: bool) -> None:
    case = simulated(gate="softmax", n=240, q=2)

    def talk() -> Any:
        yield Each(Summarise(2, 2))
        yield Each(Expect(moved(case), information=information))

    done = run(talk(), Drill({"liar": attack}).over(sites_of(case)), on_drop="continue")
    assert done.record.dropped.keys() == {"liar"}
    assert done.record.dropped["liar"].startswith(
        (str(FailureCode.IMPOSSIBLE), str(FailureCode.CONTRADICTORY)),
    )


# ---------------------------------------------------------------------- the drill


def test_a_total_has_the_lie_of_the_liar_and_the_truth_of_the_others() -> None:
    case = simulated(gate="constant", n=240)
    sites, question = sites_of(case), Expect(moved(case), information=True)
    total = run(asked(Total(question)), Drill({"liar": MoreRows()}).over(sites)).value
    expected = lie(MoreRows(), question, sites[0]) + answer(question, sites[1])
    assert_same_sums(total, expected)
    assert np.abs(total.to_array() - (answer(question, sites[0]) + answer(question, sites[1])).to_array()).max() > 1


def test_an_engine_that_adds_on_the_way_is_asked_for_single_answers() -> None:
    case = simulated(gate="constant", n=240)
    inner = InProcess().over(sites_of(case))
    asked_for: list[bool] = []

    class Adding:
        sites = inner.sites

        def ask(self, *arguments: Any, total: bool, timeout: float | None) -> Any:
            asked_for.append(total)
            return inner.ask(*arguments, total=total, timeout=timeout)

    run(asked(Total(Expect(case.truth))), Attacked(Adding(), {"liar": MoreRows()}))
    assert asked_for == [False]


def test_who_does_not_attack_is_left_alone() -> None:
    case = simulated(gate="constant", n=240)
    sites, question = sites_of(case), Expect(case.truth)
    found = sent_by(Drill({"liar": Blown()}).over(sites), question)
    assert encode(found["honest"]) == encode(answer(question, sites[1]))
    assert encode(found["liar"]) != encode(answer(question, sites[0]))


def test_each_liar_answers_its_own_question() -> None:
    case = simulated(gate="constant", n=240)
    sites = sites_of(case)
    questions = {"liar": Expect(case.truth), "honest": Expect(moved(case))}
    found = run(asked(PerSite(questions)), Drill(dict.fromkeys(questions, MoreRows())).over(sites)).value
    for site in sites:
        assert encode(found[site.name]) == encode(lie(MoreRows(), questions[site.name], site))


def both_questions(case: Simulated, mixture: Mixture) -> Several:
    """The sums at a mixture of two experts, and at one of its experts alone."""
    one = replace(mixture, gate=ConstantGate(np.ones(1)), experts=replace(mixture.experts, B=mixture.experts.B[:1]))
    one = replace(one, experts=replace(one.experts, covariance=one.experts.covariance[:1]))
    return Several((Expect(mixture), Expect(one)))


@pytest.mark.parametrize("attack", [attacks.sign_flip, Blown(), Collusion(3.0), MoreRows()])
def test_each_of_several_answers_is_attacked(attack: Attack) -> None:
    case = simulated(gate="constant", n=240)
    site, question = sites_of(case)[0], both_questions(case, case.truth)
    told, honest = lie(attack, question, site), answer(question, site)
    for asked_for, sent, true in zip(question.questions, told.items, honest.items, strict=True):
        assert encode(sent) == encode(lie(attack, asked_for, site))
        assert encode(sent) != encode(true)


def test_a_replay_repeats_each_of_several_answers() -> None:
    case = simulated(gate="constant", n=240)
    site = sites_of(case)[0]
    engine = Drill({"liar": Replay()}).over([site])
    first, second = both_questions(case, case.truth), both_questions(case, moved(case))
    one, two = (sent_by(engine, question, number)["liar"] for number, question in enumerate((first, second), 1))
    assert encode(one) == encode(answer(first, site)) == encode(two)
    assert encode(two) != encode(answer(second, site))


@pytest.mark.parametrize("attack", [attacks.sign_flip, Replay()], ids=["sign flip", "replay"])
def test_answers_that_say_nothing_of_experts_are_not_changed(attack: Attack) -> None:
    (site,) = small_sites(("liar",))
    assert encode(lie(attack, Summarise(2, 1), site)) == encode(answer(Summarise(2, 1), site))


def test_a_site_that_is_not_there_cannot_lie() -> None:
    with pytest.raises(InvalidInputError, match="attacks: unknown sites nobody, west"):
        Drill({"west": attacks.sign_flip, "north": attacks.sign_flip, "nobody": Replay()}).over(small_sites())


@pytest.mark.parametrize("family", ["categorical", "poisson"])
def test_other_experts_are_refused(family: str) -> None:
    case = simulated(family, n=60)
    site = Site("liar", case.rows)
    for question in (Expect(case.truth), FitSite(case.specification, (2,), 0, start=case.truth)):
        with pytest.raises(InvalidInputError, match="expected Gaussian experts, got"):
            lie(attacks.sign_flip, question, site)


def test_the_sites_keep_their_order() -> None:
    sites = small_sites()
    assert Drill({}).over(sites).sites == tuple(site.name for site in sites)


def test_standard_errors_are_those_of_weighted_least_squares() -> None:
    rng = np.random.default_rng(2)
    X, Y, w = rng.normal(size=(50, 3)), rng.normal(size=(50, 2)), rng.uniform(size=50)
    S = X.T @ (w[:, None] * X)
    B = np.linalg.solve(S, X.T @ (w[:, None] * Y)).T
    R = Y - X @ B.T
    scatter = R.T @ (w[:, None] * R)
    expected = np.sqrt(np.outer(np.diagonal(scatter) / w.sum(), np.diagonal(np.linalg.inv(S))))
    for kept in (scatter, np.diagonal(scatter)):
        claim = Claim(np.array([w.sum()]), S[None], B[None], kept[None])
        np.testing.assert_allclose(claim.standard_errors()[0], expected)


def test_an_expert_without_rows_has_no_infinite_standard_error() -> None:
    claim = Claim(np.zeros(1), np.zeros((1, 1, 1)), np.ones((1, 1, 1)), np.zeros((1, 1, 1)))
    assert np.all(np.isfinite(Collusion(3.0)(claim).B))
