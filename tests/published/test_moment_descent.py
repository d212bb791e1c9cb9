"""Moment descent and local steps: against the algorithm written out on the pooled rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from answering import Calls
from consilience import Federation, FedMomentDescent, MixtureOfRegressions
from consilience.datasets import ClientSimulation, clients
from consilience.engines import InProcess
from consilience.errors import ConvergenceWarning, DegenerateFitWarning, InvalidInputError, MessageError
from consilience.fit import Specification
from consilience.fit.climb import StopReason
from consilience.messages import Failure, FailureCode, PerSite, Total, decode, encode
from consilience.messages.questions import Answers, Bundle, Several
from consilience.messages.table import is_additive, receive
from consilience.methods import Task
from consilience.model import ConstantGate, Design, GaussianExperts, Groups, Mixture, Rows, SoftmaxGate
from consilience.published import DescentFit
from consilience.published.client_steps import Anchors, AnchorSteps, ClientSizes, ClusterSums, LocalSteps, Sizes
from consilience.published.moment_descent import NEAR_ENOUGH, PASSES, anchor_clusters
from consilience.runs import Run, run
from consilience.site import Site, answer, respond

SIZES = np.r_[np.full(40, 6), np.full(20, 25)]


def fleet(seed: int = 0, **options: Any) -> ClientSimulation:
    return clients(SIZES, **({"n_clusters": 2, "n_features": 6, "random_state": seed} | options))


def specification_of(data: ClientSimulation, **options: Any) -> Specification:
    return Specification(**({"K": len(data.theta), "gate": "constant", "intercept": False} | options))


def sites_of(data: ClientSimulation, parts: int) -> list[Site]:
    """Neighbouring clients together."""
    of_client = np.arange(len(data.labels)) * parts // len(data.labels)
    rows = [np.flatnonzero(of_client[data.groups] == m) for m in range(parts)]
    return [
        Site(f"{m:03d}", Rows(data.X[own], data.y[own, None], groups=Groups.of(data.groups[own])))
        for m, own in enumerate(rows)
    ]


def fitted(
    data: ClientSimulation,
    method: FedMomentDescent,
    *,
    parts: int = 3,
    seed: int = 0,
    start: Mixture | None = None,
    **options: Any,
) -> Run[tuple[DescentFit]]:
    dialogue = method.dialogue(Task([specification_of(data)], data.X.shape[1], 1, start=start, seed=seed))
    return run(dialogue, InProcess().over(sites_of(data, parts)), **options)


def error(theta: np.ndarray, truth: np.ndarray) -> float:
    return float(np.linalg.norm(theta[:, None] - truth, axis=2).min(axis=0).max())


# ---------------------------------------------------------------------- the algorithm in words of one row


def other_rows(n: int) -> np.ndarray:
    """1 for each pair of distinct rows."""
    return 1 - np.eye(n)


class Reference:
    """Both phases on the pooled rows, covariates divided by their root mean square."""

    def __init__(self, data: ClientSimulation) -> None:
        self.scale = np.sqrt(np.mean(data.X**2, axis=0))
        self.X, self.y = data.X / self.scale, data.y
        self.own = [np.flatnonzero(data.groups == g) for g in range(len(data.labels))]
        self.K, self.p = len(data.theta), data.X.shape[1]

    def residual_vectors(self, theta: np.ndarray, g: int) -> np.ndarray:
        X, y = self.X[self.own[g]], self.y[self.own[g]]
        return X * (y - X @ theta)[:, None]

    def Y(self, theta: np.ndarray) -> np.ndarray:
        total = np.zeros((self.p, self.p))
        for g in range(len(self.own)):
            E = self.residual_vectors(theta, g)
            total += E.T @ other_rows(len(E)) @ E / len(E)
        return total

    def basis(self, theta: np.ndarray, U: np.ndarray) -> np.ndarray:
        for _ in range(PASSES):
            U = np.linalg.qr(self.Y(theta) @ U)[0]
        return U

    def step(self, theta: np.ndarray, U: np.ndarray, g: int) -> np.ndarray:
        E = self.residual_vectors(theta, g) @ U
        n = len(E)
        A = E.T @ other_rows(n) @ E / (n * (n - 1))
        values, vectors = np.linalg.eigh(A)
        sigma, b = np.sqrt(max(values[-1], 0)), vectors[:, -1]
        return sigma * np.sign(b @ E.sum(axis=0)) * U @ b

    def descended(self, anchors: list[int], theta: np.ndarray, U: np.ndarray, descents: int) -> np.ndarray:
        stand, bases = [theta] * len(anchors), [U] * len(anchors)
        for _ in range(descents):
            bases = [self.basis(at, V) for at, V in zip(stand, bases, strict=True)]
            stand = [at + self.step(at, V, g) / 2 for at, V, g in zip(stand, bases, anchors, strict=True)]
        return np.array(stand)

    def round(self, B: np.ndarray, *, steps: int, rate: float, prox: bool) -> np.ndarray:
        total = np.zeros_like(B)
        for own in self.own:
            X, y, n = self.X[own], self.y[own], len(own)
            k = int(np.argmin([np.sum((y - X @ theta) ** 2) for theta in B]))
            theta = B[k]
            if prox:
                theta = np.linalg.solve(X.T @ X / n + np.eye(self.p) / rate, X.T @ y / n + theta / rate)
            else:
                for _ in range(steps):
                    theta = theta - rate * X.T @ (X @ theta - y) / n
            for j in range(self.K):  # a client reports all regressions, and has changed one
                total[j] += n / len(self.y) * (theta if j == k else B[j])
        return total


def begun(data: ClientSimulation, seed: int) -> tuple[list[int], np.ndarray, np.ndarray]:
    """The anchors, start and basis that a dialogue draws, read from its first questions."""
    seen = watched(data, FedMomentDescent(descents=1, rounds=1), seed=seed)
    pairs = next(r.question for r in seen if isinstance(r, Total))
    before = np.cumsum([0, *(len(site.data.groups.bounds) - 1 for site in sites_of(data, 3))])
    asked = next(r for r in seen if isinstance(r, PerSite))
    anchors = [before[int(site)] + place for site, q in asked.questions.items() for place in q.places]
    return anchors, pairs.questions[0].theta, pairs.questions[0].basis


def watched(
    data: ClientSimulation, method: FedMomentDescent, *, seed: int = 0, seen: list[Any] | None = None
) -> list[Any]:
    """The requests of a dialogue."""
    seen = [] if seen is None else seen

    def looking():
        dialogue = method.dialogue(Task([specification_of(data)], data.X.shape[1], 1, seed=seed))
        try:
            request = next(dialogue)
            while True:
                seen.append(request)
                request = dialogue.send((yield request))
        except StopIteration as end:
            return end.value

    run(looking(), InProcess().over(sites_of(data, 3)))
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_first_phase_is_the_algorithm(seed: int) -> None:
    data = fleet(seed)
    anchors, theta, U = begun(data, seed)
    reference = Reference(data)
    stand = reference.descended(anchors, theta, U, 3)
    labels = anchor_clusters(stand, 2)
    expected = np.array([stand[labels == k].mean(axis=0) for k in range(2)]) / reference.scale
    (fit,) = fitted(data, FedMomentDescent(descents=3, rounds=1), seed=seed).value
    assert error(fit.coarse.coefficients, expected) < 1e-9


@pytest.mark.parametrize("how", [{"steps": 1}, {"steps": 4}, {"steps": 1, "prox": True}], ids=["one", "four", "prox"])
def test_the_second_phase_is_the_algorithm(how: dict[str, Any]) -> None:
    data = fleet()
    start = replace(data.truth, experts=replace(data.truth.experts, B=data.truth.experts.B + 0.2))
    method = FedMomentDescent(rate=0.2, rounds=7, tol=0.0, **how)
    fit, reference = fitted(data, method, start=start).value[0], Reference(data)
    B = start.experts.B[:, 0] * reference.scale
    for _ in range(7):
        B = reference.round(B, **({"rate": 0.2, "prox": False} | how))
    assert error(fit.mixture.coefficients, B / reference.scale) < 1e-10
    assert fit.anchors == {}
    assert fit.ascent.stop is StopReason.ROUNDS


# ---------------------------------------------------------------------- what is found


@pytest.mark.slow
@pytest.mark.parametrize("prox", [False, True])
def test_regressions_are_found_and_the_fit_settles(prox: bool) -> None:
    data = fleet(3)
    (fit,) = fitted(data, FedMomentDescent(prox=prox, rate=0.5)).value
    own = data.labels[data.groups]
    oracle = np.array([np.linalg.lstsq(data.X[own == k], data.y[own == k], rcond=None)[0] for k in range(2)])
    assert fit.ascent.stop is StopReason.SETTLED
    assert error(fit.mixture.coefficients, data.theta) < 2 * error(oracle, data.theta)
    np.testing.assert_allclose(np.sqrt(fit.mixture.experts.variances), 0.2, rtol=0.15)
    np.testing.assert_allclose(fit.mixture.gate.probabilities * 60, sorted(np.bincount(data.labels))[::-1])


@pytest.mark.slow
def test_a_partition_of_clients_into_sites_makes_no_difference() -> None:
    data, method = fleet(1), FedMomentDescent(rounds=10)
    one, *others = (fitted(data, method, parts=parts).value[0] for parts in (1, 4, 20))
    for other in others:
        np.testing.assert_allclose(other.coarse.coefficients, one.coarse.coefficients, rtol=0, atol=1e-9)
        np.testing.assert_allclose(other.mixture.coefficients, one.mixture.coefficients, rtol=0, atol=1e-9)
        assert other.log_likelihood == pytest.approx(one.log_likelihood, rel=1e-9)


def test_a_row_of_weight_two_is_a_row_twice() -> None:
    data, rng = fleet(1), np.random.default_rng(0)
    w = rng.integers(1, 3, len(data.y))
    twice = np.repeat(np.arange(len(data.y)), w)
    weighted = Rows(data.X, data.y[:, None], w.astype(float), groups=Groups.of(data.groups))
    plain = Rows(data.X[twice], data.y[twice, None], groups=Groups.of(data.groups[twice]))
    a, b = (
        run(
            FedMomentDescent(rounds=10).dialogue(Task([specification_of(data)], 6, 1)),
            InProcess().over([Site("all", rows)]),
        ).value[0]
        for rows in (weighted, plain)
    )
    np.testing.assert_allclose(a.mixture.coefficients, b.mixture.coefficients, rtol=0, atol=1e-9)
    assert a.log_likelihood == pytest.approx(b.log_likelihood, rel=1e-9)


@pytest.mark.slow
def test_other_units_of_columns_make_no_difference() -> None:
    data, scale = fleet(2), np.array([1e-3, 10.0, 1.0, 7.0, 1e4, 0.5])
    other = replace(data, X=data.X * scale, y=50 * data.y)
    (a,), (b,) = (fitted(each, FedMomentDescent(rounds=20)).value for each in (data, other))
    np.testing.assert_allclose(b.mixture.coefficients * scale / 50, a.mixture.coefficients, rtol=1e-6, atol=1e-9)


def test_an_intercept_is_a_coefficient_like_others() -> None:
    data = fleet(4)
    shifted = replace(data, X=data.X + 30.0, y=data.y + 500.0)
    method = FedMomentDescent(rate=0.5, rounds=300)
    with_it = specification_of(data, intercept=True)
    (fit,) = run(method.dialogue(Task([with_it], 6, 1)), InProcess().over(sites_of(shifted, 2))).value
    theta = fit.mixture.coefficients
    assert error(theta[:, 1:], data.theta) < 0.1
    np.testing.assert_allclose(theta[:, 0] + 30 * theta[:, 1:].sum(axis=1), 500, atol=0.1)


@pytest.mark.slow
def test_where_the_separation_is_known_anchors_stop_when_near() -> None:
    data = fleet(5)
    apart = float(np.linalg.norm(data.theta[0] - data.theta[1]))
    asked = [
        r for r in watched(data, FedMomentDescent(descents=8, rounds=1, separation=apart)) if isinstance(r, PerSite)
    ]
    counts = [sum(len(q.places) for q in request.questions.values()) for request in asked]
    assert counts[0] > counts[-1]
    assert counts == sorted(counts, reverse=True)
    (known,), (unknown,) = (
        fitted(data, FedMomentDescent(descents=8, separation=value)).value for value in (apart, None)
    )
    assert error(known.coarse.coefficients, data.theta) < apart / 2
    assert error(known.mixture.coefficients, unknown.mixture.coefficients) < 1e-3


def test_anchors_that_have_all_stopped_are_not_asked_any_more() -> None:
    data = fleet(5)
    seen: list[Any] = []
    with pytest.raises(InvalidInputError, match="pass a smaller separation"):  # all are still where they started
        watched(data, FedMomentDescent(descents=5, separation=10 / NEAR_ENOUGH), seen=seen)
    assert sum(isinstance(request, PerSite) for request in seen) == 1
    assert len(seen) == 1 + PASSES + 1


def test_rounds_are_what_the_text_says() -> None:
    data = fleet()
    seen = watched(data, FedMomentDescent(descents=2, rounds=3, tol=0.0))
    assert [type(r.question).__name__ for r in seen] == [
        "Several",
        *(["Several"] * PASSES + ["Anchors"]) * 2,
        *["LocalSteps"] * 3,
    ]
    assert len(seen[1].question.questions) == 1  # all stand alike
    assert len(seen[PASSES + 2].question.questions) == 5


# ---------------------------------------------------------------------- through a federation


def test_a_federation_fits_without_standard_errors_and_says_why() -> None:
    data = fleet(3)
    federation = Federation({"all": {"X": data.X, "y": data.y, "groups": data.groups}})
    model = MixtureOfRegressions(2, fit_intercept=False, random_state=0)
    result = federation.fit(model, method=FedMomentDescent(rate=0.5))
    assert error(result.model.coef_, data.theta) < 0.1
    assert result.model.converged_
    assert "ClusteredClients" in result.fit.inference.withheld["experts"]
    assert np.all(np.isnan(result.fit.inference.standard_errors().experts))
    discloses = " ".join(each.discloses for each in result.record.rounds)
    assert "the number of rows of each client" in discloses


@pytest.mark.slow
def test_sites_without_groups_are_one_client_each() -> None:
    data = fleet(3)
    parts = {f"{g}": (data.X[data.groups == g], data.y[data.groups == g]) for g in range(40, 60)}
    model = MixtureOfRegressions(2, fit_intercept=False, random_state=0)
    with pytest.warns(ConvergenceWarning, match="raise rounds"):
        result = Federation(parts).fit(model, method=FedMomentDescent(rate=0.5, rounds=6))
    assert result.fit.ascent.statistics.weight == 20
    assert error(result.model.coef_, data.theta) < 0.2


def test_a_site_that_leaves_takes_its_anchors_along(monkeypatch: pytest.MonkeyPatch) -> None:
    data = clients(np.full(60, 15), n_clusters=2, n_features=6, random_state=3)
    asked_for_steps = 1 + PASSES
    calls = Calls(monkeypatch)
    calls.misbehave("001", lambda question, site: encode(Failure(FailureCode.INTERNAL)), time=asked_for_steps)
    done = fitted(data, FedMomentDescent(anchors=12, rate=0.5), on_drop="continue", parts=2)
    (fit,) = done.value
    assert set(fit.anchors) == {"000", "001"}
    assert list(done.record.dropped) == ["001"]
    assert error(fit.mixture.coefficients, data.theta) < 0.1
    assert fit.ascent.statistics.weight == 30


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("specification", "q"),
    [
        (Specification(K=2), 1),
        (Specification(K=2, family="poisson", gate="constant"), 1),
        (Specification(K=2, gate="constant"), 2),
    ],
    ids=["softmax", "poisson", "two responses"],
)
def test_other_models_are_refused(specification: Specification, q: int) -> None:
    with pytest.raises(
        InvalidInputError, match="FedMomentDescent needs Gaussian experts with one response behind a constant gate"
    ):
        next(FedMomentDescent().dialogue(Task([specification], 2, q)))


def test_several_orders_are_refused() -> None:
    orders = [Specification(K=K, gate="constant") for K in (2, 3)]
    with pytest.raises(InvalidInputError, match="one number of experts at a time"):
        next(FedMomentDescent().dialogue(Task(orders, 2, 1)))


@pytest.mark.parametrize(
    "arguments",
    [
        {"anchors": 0},
        {"anchors": 2.5},
        {"descents": 0},
        {"steps": None},
        {"steps": True},
        {"rounds": 0},
        {"separation": 0.0},
        {"separation": np.inf},
        {"rate": -0.1},
        {"rate": np.nan},
        {"tol": -1.0},
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="expected"):
        FedMomentDescent(**arguments)


def test_too_few_anchors_are_an_error_with_the_reason() -> None:
    data = clients([1] * 30 + [9], n_clusters=2, n_features=2, random_state=0)
    with pytest.raises(InvalidInputError, match=r"1 anchors, .* form fewer than 2 clusters"):
        fitted(data, FedMomentDescent())
    with pytest.raises(InvalidInputError, match="0 anchors"):
        fitted(clients([1] * 30, n_clusters=2, n_features=2, random_state=0), FedMomentDescent())


def test_steps_that_run_away_are_an_error_with_the_reason() -> None:
    with pytest.raises(InvalidInputError, match="diverge with rate=50: pass a smaller rate"):
        fitted(fleet(), FedMomentDescent(rate=50.0))


def test_a_cluster_that_no_client_picks_is_named() -> None:
    data = fleet()
    B = data.truth.experts.B.copy()
    B[1] = 1e3
    start = replace(data.truth, experts=replace(data.truth.experts, B=B))
    with pytest.warns(DegenerateFitWarning, match="selected by no client"):
        (fit,) = fitted(data, FedMomentDescent(rounds=5), start=start).value
    assert fit.mixture.gate.probabilities[1] == 0


# ---------------------------------------------------------------------- messages


def question_to_anchors() -> Anchors:
    rng = np.random.default_rng(0)
    return Anchors(Design.raw(6, intercept=False), (0, 3), rng.normal(size=(2, 6)), rng.normal(size=(2, 6, 2)))


def test_questions_and_answers_survive_the_trip() -> None:
    data = fleet()
    (site,) = sites_of(data, 1)
    for question in (Sizes(), question_to_anchors(), LocalSteps(data.truth, 3, 0.1, prox=True)):
        given = answer(question, site)
        for value in (question, given):
            assert encode(decode(encode(value))) == encode(value)
            assert type(decode(encode(value))) is type(value)
        assert type(receive(respond(encode(question), site), question)) is type(given)
    assert encode(decode(encode(Bundle((2,), (question_to_anchors(),))))) == encode(
        Bundle((2,), (question_to_anchors(),))
    )
    assert isinstance(answer(Several((Sizes(), Sizes())), site), Answers)


def test_sums_over_clusters_add_and_lists_of_clients_do_not() -> None:
    assert is_additive(LocalSteps(fleet().truth, 1, 0.1))
    for question in (Sizes(), question_to_anchors()):
        with pytest.raises(InvalidInputError, match="do not add"):
            Total(question)


def test_a_client_that_a_site_does_not_have_is_a_question_that_cannot_be_read() -> None:
    (site,) = sites_of(fleet(), 1)
    question = replace(question_to_anchors(), places=(0, 60))
    assert receive(respond(question, site), question).code is FailureCode.UNREADABLE_QUESTION


def test_rows_with_other_columns_are_a_named_trouble() -> None:
    site = Site("other", Rows(np.zeros((4, 2)), np.zeros((4, 1))))
    for question in (question_to_anchors(), LocalSteps(fleet().truth, 1, 0.1)):
        assert decode(respond(question, site)).code is FailureCode.OTHER_COLUMNS


def mixture_with(**parts: Any) -> Mixture:
    truth = fleet().truth
    return replace(truth, **parts)


@pytest.mark.parametrize(
    "question",
    [
        replace(question_to_anchors(), theta=np.zeros((2, 5))),
        replace(question_to_anchors(), theta=np.full((2, 6), np.nan)),
        replace(question_to_anchors(), basis=np.zeros((1, 6, 2))),
        replace(question_to_anchors(), basis=np.zeros((2, 6, 0))),
        replace(question_to_anchors(), places=(1,)),
        LocalSteps(fleet().truth, 1, 0.0),
        LocalSteps(fleet().truth, 1, np.nan),
        LocalSteps(mixture_with(gate=SoftmaxGate(np.zeros((2, 6)))), 1, 0.1),
        LocalSteps(mixture_with(experts=GaussianExperts(np.zeros((2, 2, 6)), np.tile(np.eye(2), (2, 1, 1)))), 1, 0.1),
    ],
)
def test_questions_whose_parts_do_not_fit_are_not_read(question: object) -> None:
    with pytest.raises(MessageError):
        decode(encode(question))


SUMS = ClusterSums(np.zeros((2, 6)), np.ones(2), np.ones(2), np.ones(2), -1.0)


@pytest.mark.parametrize(
    ("question", "given"),
    [
        (Sizes(), ClientSizes(np.array([3.0, -1.0]))),
        (question_to_anchors(), AnchorSteps(np.zeros((1, 2)))),
        (question_to_anchors(), AnchorSteps(np.zeros((2, 3)))),
        (LocalSteps(fleet().truth, 1, 0.1), replace(SUMS, rows=np.ones(3))),
        (LocalSteps(fleet().truth, 1, 0.1), replace(SUMS, rows=-np.ones(2))),
        (LocalSteps(fleet().truth, 1, 0.1), replace(SUMS, moved=np.full((2, 6), 1e200))),
        (LocalSteps(fleet().truth, 1, 0.1), ClusterSums(np.zeros((3, 6)), np.ones(3), np.ones(3), np.ones(3), -1.0)),
    ],
)
def test_answers_of_another_shape_are_failures(question: Any, given: object) -> None:
    assert isinstance(receive(encode(given), question), Failure)


def test_constant_shares_may_be_zero_in_a_question() -> None:
    mixture = mixture_with(gate=ConstantGate(np.array([1.0, 0.0])))
    (site,) = sites_of(fleet(), 1)
    assert np.isfinite(answer(LocalSteps(mixture, 1, 0.1), site).log_likelihood)
