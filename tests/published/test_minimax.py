"""The minimax method: its steps over any partition, where it ends, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from answering import Calls
from consilience import Federation, GaussianMixture, MinimaxRegression, MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.engines import InProcess
from consilience.errors import ConvergenceWarning, InvalidInputError, MessageError, RoundStoppedError
from consilience.fit import Specification, fit_mixture
from consilience.fit.climb import StopReason
from consilience.fit.fitting import Fit
from consilience.messages import Failure, FailureCode, decode, encode
from consilience.messages.table import receive
from consilience.methods import FederatedEM, Task
from consilience.model import ConstantGate, Design, GaussianExperts, Mixture, Rows, SoftmaxGate
from consilience.model.mixture import alignment
from consilience.numerics.linalg import whitening
from consilience.published.critic import CriticSums, MinimaxSums, minimax_sums
from consilience.published.minimax import Game, Stand
from consilience.published.spectral import SquaredMoments, SquaredResponses, spectral_start
from consilience.runs import run
from consilience.site import Site, respond

TIED = Specification(K=2, gate="constant", structure="tied")
PAIR = replace(TIED, intercept=False)


def simulated(K: int, n: int = 1500, d: int = 3, seed: int = 0) -> Rows:
    """A mixture of K regressions with noise 1, shares 1 : 2 : ..., that overlap a little."""
    rng = np.random.default_rng([seed, K])
    X, B = rng.normal(size=(n, d)), 2.5 * rng.normal(size=(K, d))
    label = rng.choice(K, n, p=np.arange(1, K + 1) / np.arange(1, K + 1).sum())
    return Rows(X, (1 + np.einsum("nd,nd->n", X, B[label]) + rng.normal(size=n))[:, None])


def mirrored(n: int = 1500, d: int = 4, snr: float = 2.0, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    X, b = rng.normal(size=(n, d)), rng.normal(size=d)
    b *= snr / np.linalg.norm(b)
    return Rows(X, (rng.choice([-1, 1], n) * (X @ b) + rng.normal(size=n))[:, None])


def sites(rows: Rows, owner: np.ndarray | None = None) -> Any:
    owner = np.arange(rows.n) % 3 if owner is None else owner
    return InProcess().over([Site(str(i), rows.take(np.flatnonzero(owner == i))) for i in range(owner.max() + 1)])


def fitted(
    method: MinimaxRegression, rows: Rows, specification: Specification, engine: Any = None, **options: Any
) -> Fit:
    dialogue = method.dialogue(Task([specification], rows.X.shape[1], 1, **options))
    (fit,) = run(dialogue, sites(rows) if engine is None else engine).value
    return fit


def pair_em(rows: Rows, b: np.ndarray, sigma2: float, steps: int = 3000) -> tuple[np.ndarray, float]:
    """EM for ``y = ± xᵀ b + σ ε``, in three lines."""
    X, y = rows.X, rows.Y[:, 0]
    for _ in range(steps):
        g = X.T @ (np.tanh(y * (X @ b) / sigma2) * y)
        b = np.linalg.solve(X.T @ X, g)
        sigma2 = float(np.mean(y**2) - b @ g / len(y))
    return b, sigma2


def near(truth: Mixture, rng: np.random.Generator) -> Mixture:
    experts = truth.experts
    assert isinstance(experts, GaussianExperts)
    return replace(truth, experts=replace(experts, B=experts.B + 0.3 * rng.normal(size=experts.B.shape)))


# ---------------------------------------------------------------------- where it ends


@pytest.mark.slow
@pytest.mark.parametrize("K", [1, 2, 3])
def test_a_reference_that_is_refreshed_leads_to_the_maximum_of_the_likelihood(K: int) -> None:
    rows, specification = simulated(K), replace(TIED, K=K)
    best = fit_mixture(rows, specification, rng=np.random.default_rng(0)).mixture
    fit = fitted(MinimaxRegression(), rows, specification)
    found = fit.mixture.permuted(alignment(fit.mixture, best))
    assert fit.ascent.stop is StopReason.SETTLED
    np.testing.assert_allclose(found.experts.B, best.experts.B, atol=1e-3)
    np.testing.assert_allclose(found.experts.variances, best.experts.variances, atol=1e-3)
    np.testing.assert_allclose(found.gate.probabilities, best.gate.probabilities, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("snr", [1.0, 2.0, 10.0])
def test_a_pair_that_is_refreshed_leads_to_the_maximum_of_its_likelihood(snr: float) -> None:
    rows = mirrored(snr=snr)
    fit = fitted(MinimaxRegression(symmetric=True), rows, PAIR)
    first, second = fit.mixture.experts.B[:, 0]
    b, sigma2 = pair_em(rows, first, float(fit.mixture.experts.variances[0, 0]))
    np.testing.assert_allclose(first, b, atol=1e-3)
    np.testing.assert_allclose(second, -first, atol=1e-12)
    np.testing.assert_allclose(fit.mixture.experts.variances, sigma2, atol=1e-3)
    np.testing.assert_allclose(fit.mixture.gate.probabilities, 0.5)
    assert fit.ascent.stop is StopReason.SETTLED


@pytest.mark.slow
def test_a_fixed_reference_is_a_method_of_moments_near_the_maximum() -> None:
    rows = mirrored()
    fit = fitted(MinimaxRegression(symmetric=True, refresh=None), rows, PAIR)
    first = fit.mixture.experts.B[0, 0]
    b, _ = pair_em(rows, first, 1.0)
    assert fit.ascent.stop is StopReason.SETTLED
    assert 1e-3 < np.abs(first - b).max() < 0.1


@pytest.mark.slow
def test_where_it_settles_both_critics_stand_at_the_reference() -> None:
    """Stationary points: ``γ = γ' = γ̃``, and data and mixture have the same moments with these instruments."""
    rows = mirrored(400)
    game, stand = pair_game(rows, refresh=False)
    for _ in range(600):
        stand = game.stepped(stand, minimax_sums(game.mixture(stand), *game.critic(stand), rows))
    np.testing.assert_allclose(stand.above, stand.reference, atol=1e-9)
    np.testing.assert_allclose(stand.below, stand.reference, atol=1e-9)
    sums = minimax_sums(game.mixture(stand), *game.critic(stand), rows)
    np.testing.assert_allclose((sums.above - sums.above[::-1]) / rows.n, 0.0, atol=1e-9)


def pair_game(rows: Rows, *, refresh: bool) -> tuple[Game, Stand]:
    design = Design.raw(rows.X.shape[1], intercept=False)
    game = Game(design, "full", whitening(rows.X.T @ rows.X / rows.n), 0.41, 0.0, symmetric=True)
    start = run(spectral_start(design), sites(rows)).value.mixture
    stand = game.standing(start.experts.B[:, 0], np.full(2, 0.5), float(start.experts.variances[0, 0]))
    reference = stand.reference if refresh else stand.U / np.linalg.norm(stand.U, axis=1, keepdims=True)
    return game, stand.facing(reference)


def test_a_pair_is_the_general_game_on_data_that_mirror() -> None:
    """With every row there twice, once with the other sign, the general steps stay symmetric, and are the pair's."""
    rows = mirrored(n=400)
    both = Rows(np.r_[rows.X, rows.X], np.r_[rows.Y, -rows.Y])
    pair, stand = pair_game(rows, refresh=True)
    general, other = replace(pair, symmetric=False), stand
    for _ in range(15):
        stand = pair.stepped(stand, minimax_sums(pair.mixture(stand), *pair.critic(stand), rows))
        other = general.stepped(other, minimax_sums(general.mixture(other), *general.critic(other), both))
        for name in ("U", "above", "below", "pi"):
            np.testing.assert_allclose(getattr(other, name), getattr(stand, name), atol=1e-9)
        assert other.sigma2 == pytest.approx(stand.sigma2)


# ---------------------------------------------------------------------- what must not matter


def parameters(fit: Fit) -> np.ndarray:
    mixture = fit.mixture
    return np.concatenate([mixture.experts.B.ravel(), mixture.experts.variances.ravel(), mixture.gate.probabilities])


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 20])
@pytest.mark.parametrize("symmetric", [False, True], ids=["general", "pair"])
@settings(max_examples=8)
@given(owner=st.lists(st.integers(0, 5), min_size=300, max_size=300), refresh=st.sampled_from([None, 7]))
def test_any_partition_of_the_rows_gives_the_same_steps(
    symmetric: bool, rounds: int, owner: list[int], refresh: int | None
) -> None:
    rows = mirrored(300) if symmetric else simulated(2, 300)
    specification = PAIR if symmetric else TIED
    method = MinimaxRegression(symmetric=symmetric, rounds=rounds, refresh=refresh)
    start = near(fit_mixture(rows, specification, rng=np.random.default_rng(0)).mixture, np.random.default_rng(1))
    whole, parted = (
        parameters(fitted(method, rows, specification, sites(rows, each), start=start))
        for each in (np.zeros(300, dtype=int), np.array(owner))
    )
    unit = np.maximum(np.abs(whole), 1 / np.sqrt(300)) if rounds == 1 else 1 / np.sqrt(300)
    assert np.all(np.abs(whole - parted) <= (1e-10 if rounds == 1 else 1e-6) * unit)


@pytest.mark.slow
@pytest.mark.parametrize("symmetric", [False, True], ids=["general", "pair"])
def test_a_weight_is_a_repetition(symmetric: bool) -> None:
    plain = mirrored(300) if symmetric else simulated(2, 300)
    weight = np.random.default_rng(0).integers(0, 3, 300).astype(float)
    twice = plain.take(np.repeat(np.arange(300), weight.astype(int)))
    method, specification = MinimaxRegression(symmetric=symmetric, rounds=12), PAIR if symmetric else TIED
    start = fit_mixture(plain, specification, rng=np.random.default_rng(0)).mixture
    fits = [fitted(method, rows, specification, start=start) for rows in (replace(plain, weight=weight), twice)]
    np.testing.assert_allclose(parameters(fits[0]), parameters(fits[1]), atol=1e-9)
    assert fits[0].ascent.statistics.weight == weight.sum()


@pytest.mark.slow
def test_a_start_with_its_experts_in_another_order_gives_the_same_fit() -> None:
    rows, specification = simulated(3, 600), replace(TIED, K=3)
    start = near(fit_mixture(rows, specification, rng=np.random.default_rng(0)).mixture, np.random.default_rng(1))
    method = MinimaxRegression(rounds=15)
    fits = [
        fitted(method, rows, specification, start=start.permuted(np.array(order))) for order in ([0, 1, 2], [2, 0, 1])
    ]
    np.testing.assert_allclose(parameters(fits[0]), parameters(fits[1]), atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("symmetric", [False, True], ids=["general", "pair"])
def test_units_of_columns_do_not_matter(symmetric: bool) -> None:
    rows = mirrored(500) if symmetric else simulated(2, 500)
    shift = 0.0 if symmetric else 7.0
    scaled = Rows(rows.X * [10.0, 0.1, 3.0, 1.0][: rows.X.shape[1]] + shift, 100 * rows.Y)
    method, specification = MinimaxRegression(symmetric=symmetric), PAIR if symmetric else TIED
    start = fit_mixture(rows, specification, rng=np.random.default_rng(0)).mixture
    other = fit_mixture(scaled, specification, rng=np.random.default_rng(0)).mixture
    fits = [fitted(method, part, specification, start=at) for part, at in ((rows, start), (scaled, other))]
    means = [
        np.sort(fit.mixture.experts.mean(fit.mixture.design.panel(part.X))[:, 0], axis=0)
        for fit, part in zip(fits, (rows, scaled), strict=True)
    ]
    np.testing.assert_allclose(means[1], 100 * means[0], atol=0.02 * 100 / np.sqrt(500))  # each settled on its own


@pytest.mark.slow
def test_a_column_that_is_there_twice_is_no_trouble() -> None:
    rows = mirrored()
    double = Rows(np.column_stack([rows.X, rows.X[:, 0]]), rows.Y)
    plain = fitted(MinimaxRegression(symmetric=True), rows, PAIR).mixture
    twice = fitted(MinimaxRegression(symmetric=True), double, PAIR).mixture
    np.testing.assert_allclose(np.abs(twice.mean(double.X)), np.abs(plain.mean(rows.X)), atol=1e-6)
    np.testing.assert_allclose(
        np.sort(twice.experts.mean(double.X.T)[:, 0], axis=0),
        np.sort(plain.experts.mean(rows.X.T)[:, 0], axis=0),
        atol=1e-6,
    )


# ---------------------------------------------------------------------- what is asked, and how it stops


def test_the_questions_are_a_start_the_rounds_and_a_last_pass() -> None:
    rows = simulated(2, 600)
    method = MinimaxRegression(rounds=3)
    done = run(method.dialogue(Task([TIED], 3, 1, n_init=1)), sites(rows))
    asked = [(r.request, r.question) for r in done.record.rounds]
    assert asked[:2] == [("Each", "Summarise"), ("Each", "ProposeStart")]
    assert asked[2:] == [("Total", "Several"), *[("Total", "CriticSums")] * 3, ("Total", "Expect")]
    pair = run(MinimaxRegression(symmetric=True, rounds=2).dialogue(Task([PAIR], 3, 1)), sites(rows))
    asked = [(r.request, r.question) for r in pair.record.rounds]
    assert asked[0] == ("Each", "Summarise")
    assert asked[1:] == [("Total", q) for q in ("Several", "CriticSums", "CriticSums", "Expect")]


def test_a_given_start_needs_no_fits_at_sites() -> None:
    rows = simulated(2, 600)
    start = fit_mixture(rows, TIED, rng=np.random.default_rng(0)).mixture
    done = run(MinimaxRegression(rounds=1).dialogue(Task([TIED], 3, 1, start=start)), sites(rows))
    assert [r.question for r in done.record.rounds] == ["Summarise", "Expect", "CriticSums", "Expect"]


def test_rounds_that_are_too_few_are_a_warning() -> None:
    rows = mirrored()
    federation = Federation({"north": (rows.X, rows.Y[:, 0])})
    model = MixtureOfRegressions(2, fit_intercept=False)
    with pytest.warns(ConvergenceWarning, match="raise rounds"):
        fit = federation.fit(model, MinimaxRegression(symmetric=True, rounds=3))
    assert fit.fit.ascent.stop is StopReason.ROUNDS
    assert not fit.model.converged_


@pytest.mark.slow
def test_a_site_that_drops_out_is_left_out_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = mirrored(900)

    def failing(question: Any, site: Site) -> bytes:
        return encode(Failure(FailureCode.INTERNAL, 1))

    Calls(monkeypatch).misbehave("0", failing, time=5)
    done = run(MinimaxRegression(symmetric=True).dialogue(Task([PAIR], 4, 1)), sites(rows), on_drop="continue")
    (fit,) = done.value
    stayed = rows.take(np.flatnonzero(np.arange(900) % 3 != 0))
    b, _ = pair_em(stayed, fit.mixture.experts.B[0, 0], 1.0)
    assert fit.ascent.statistics.weight == 600
    np.testing.assert_allclose(fit.mixture.experts.B[0, 0], b, atol=2e-3)


@pytest.mark.slow
def test_standard_errors_are_those_of_the_likelihood_where_the_fit_is_its_maximum() -> None:
    rows = simulated(2)
    data = {str(i): (rows.X[i::3], rows.Y[i::3, 0]) for i in range(3)}
    model = MixtureOfRegressions(2, covariance_type="tied", random_state=0)
    ours, exact = (
        Federation(data).fit(model, method).model.inference_ for method in (MinimaxRegression(), FederatedEM())
    )
    assert ours.withheld == {}
    np.testing.assert_allclose(ours.standard_errors().experts, exact.standard_errors().experts, rtol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "structure", "reason"),
    [
        (MinimaxRegression(refresh=None), "tied", "fixed reference"),
        (MinimaxRegression(symmetric=True), "tied", "a pair with opposite coefficients"),
        (MinimaxRegression(), "full", "covariance_type='tied'"),
    ],
    ids=["fixed", "pair", "variances of their own"],
)
def test_standard_errors_that_would_not_be_true_are_withheld(
    method: MinimaxRegression, structure: str, reason: str
) -> None:
    rows = mirrored()
    data = {str(i): (rows.X[i::3], rows.Y[i::3, 0]) for i in range(3)}
    model = MixtureOfRegressions(2, covariance_type=structure, fit_intercept=False, random_state=0)
    inference = Federation(data).fit(model, method).model.inference_
    assert reason in inference.withheld["experts"]
    assert np.all(np.isnan(inference.standard_errors().flat()))


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "specification",
    [
        Specification(K=2),
        Specification(K=2, family="poisson", gate="constant"),
        Specification(K=2, family="categorical", gate="constant", n_classes=3),
    ],
    ids=["softmax", "poisson", "categorical"],
)
def test_other_models_are_refused(specification: Specification) -> None:
    with pytest.raises(InvalidInputError, match="use FederatedEM"):
        next(MinimaxRegression().dialogue(Task([specification], 2, 1)))


def test_several_responses_and_several_orders_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="MinimaxRegression needs Gaussian experts with one response"):
        next(MinimaxRegression().dialogue(Task([TIED], 2, 2)))
    with pytest.raises(InvalidInputError, match="MinimaxRegression fits one number of experts at a time"):
        next(MinimaxRegression().dialogue(Task([TIED, replace(TIED, K=3)], 2, 1)))
    with pytest.raises(InvalidInputError, match="symmetric=True is for two regressions, got 3"):
        next(MinimaxRegression(symmetric=True).dialogue(Task([replace(TIED, K=3)], 2, 1)))


def test_estimators_of_other_models_are_refused() -> None:
    rows = mirrored(90)
    with pytest.raises(InvalidInputError, match="use FederatedEM"):
        Federation({"a": (rows.X, rows.Y[:, 0])}).fit(MixtureOfExpertsRegressor(2, random_state=0), MinimaxRegression())
    with pytest.raises(InvalidInputError, match="use FederatedEM"):
        Federation({"a": (rows.X,)}).fit(GaussianMixture(2, random_state=0), MinimaxRegression())


@pytest.mark.parametrize(
    "arguments",
    [
        {"rounds": 0},
        {"rounds": 2.5},
        {"rounds": True},
        {"rounds": None},
        {"refresh": 0},
        {"refresh": False},
        {"refresh": 1.5},
        {"penalty": 0.0},
        {"penalty": -1.0},
        {"penalty": np.nan},
        {"penalty": np.inf},
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(arguments))):
        MinimaxRegression(**arguments)


@pytest.mark.parametrize("symmetric", [False, True])
def test_steps_that_run_away_are_an_error_with_the_reason(symmetric: bool) -> None:
    with pytest.raises(InvalidInputError, match=r"penalty=0\.05: the steps diverge; raise it, or use FederatedEM"):
        fitted(MinimaxRegression(symmetric=symmetric, penalty=0.05), mirrored(), PAIR, n_init=1)


@pytest.mark.parametrize("symmetric", [False, True])
def test_rows_with_groups_are_refused_with_the_reason(symmetric: bool) -> None:
    rows = mirrored(120)
    data = {"X": rows.X, "y": rows.Y[:, 0], "groups": np.arange(120) // 4}
    model = MixtureOfRegressions(2, fit_intercept=False, random_state=0)
    with pytest.raises(RoundStoppedError, match="the rows have groups"):
        Federation({"north": data}).fit(model, MinimaxRegression(symmetric=symmetric))


def test_a_start_of_another_kind_is_refused() -> None:
    start = Mixture(
        Design.raw(4), ConstantGate(np.full(2, 0.5)), GaussianExperts(np.zeros((2, 1, 5)), np.ones((2, 1, 1)))
    )
    for method in (MinimaxRegression(), MinimaxRegression(symmetric=True)):
        with pytest.raises(InvalidInputError, match="the start has another"):
            fitted(method, mirrored(100), PAIR, start=start)


# ---------------------------------------------------------------------- messages


def comparison(K: int = 2, d: int = 2) -> CriticSums:
    design, B = Design.raw(d), np.arange(float(K * (d + 1))).reshape(K, 1, d + 1)
    mixture = Mixture(design, ConstantGate(np.full(K, 1 / K)), GaussianExperts(B, np.ones((K, 1, 1))))
    return CriticSums(mixture, B[:, 0], -B[:, 0])


def test_a_comparison_and_its_answer_keep_their_bits() -> None:
    question, rng = comparison(), np.random.default_rng(0)
    rows = Rows(rng.normal(size=(9, 2)), rng.normal(size=(9, 1)))
    again = decode(encode(question))
    answer = minimax_sums(again.mixture, again.above, again.below, rows)
    read = receive(encode(answer), question)
    assert isinstance(read, MinimaxSums)
    for name in ("above", "below", "B", "shares", "value", "squares", "log_likelihood", "weight"):
        np.testing.assert_array_equal(getattr(read, name), getattr(answer, name))


SOFTMAX = SoftmaxGate(np.zeros((2, 3)))
STRANGE: dict[str, tuple[Callable[[CriticSums], CriticSums], str]] = {
    "vectors of other columns": (lambda c: replace(c, above=np.zeros((2, 2))), "do not have the shape"),
    "vectors of other experts": (lambda c: replace(c, below=np.zeros((3, 3))), "do not have the shape"),
    "not finite": (lambda c: replace(c, below=np.full((2, 3), np.nan)), "not finite"),
    "overflow": (lambda c: replace(c, above=np.full((2, 3), 1e200)), "not finite"),
    "softmax": (
        lambda c: replace(c, mixture=replace(c.mixture, gate=SOFTMAX)),
        "expected regressions with one response",
    ),
    "two variances": (
        lambda c: replace(
            c,
            mixture=replace(
                c.mixture, experts=GaussianExperts(np.zeros((2, 1, 3)), np.array([1.0, 2.0])[:, None, None])
            ),
        ),
        "more than one variance",
    ),
    "two responses": (
        lambda c: replace(
            c, mixture=replace(c.mixture, experts=GaussianExperts(np.zeros((2, 2, 3)), np.tile(np.eye(2), (2, 1, 1))))
        ),
        "expected regressions with one response",
    ),
}


@pytest.mark.parametrize(("change", "said"), STRANGE.values(), ids=STRANGE)
def test_comparisons_that_make_no_sense_are_refused(change: Callable[[CriticSums], CriticSums], said: str) -> None:
    with pytest.raises(MessageError, match=said):
        decode(encode(change(comparison())))


def test_answers_hold_no_value_of_a_row() -> None:
    rows = mirrored(50, d=2)
    cells = [np.float64(value).tobytes() for value in np.c_[rows.X, rows.Y].ravel()]
    for question in (comparison(), SquaredResponses(Design.raw(2))):
        message = respond(encode(question), Site("north", rows))
        assert type(receive(message, question)) in (MinimaxSums, SquaredMoments)
        assert not [cell for cell in cells if cell in message]


@pytest.mark.parametrize("name", ["above", "below", "B", "shares"])
def test_answers_of_another_shape_are_failures(name: str) -> None:
    question = comparison()
    sums = MinimaxSums(*np.zeros((3, 2, 3)), 0.0, np.zeros(2), 0.0, 0.0, 0.0)
    assert isinstance(receive(encode(sums), question), MinimaxSums)
    strange = replace(sums, **{name: np.zeros(3) if name == "shares" else np.zeros((2, 4))})
    assert receive(encode(strange), question) == Failure(FailureCode.WRONG_SHAPE)


def test_squares_of_responses_of_another_shape_are_failures() -> None:
    question = SquaredResponses(Design.raw(2))
    assert isinstance(receive(encode(SquaredMoments(np.eye(3), 1.0)), question), SquaredMoments)
    assert receive(encode(SquaredMoments(np.eye(2), 1.0)), question) == Failure(FailureCode.WRONG_SHAPE)
    with pytest.raises(MessageError, match="parts of a design"):
        decode(encode(SquaredResponses(Design(np.zeros(2), np.zeros(2)))))


# ---------------------------------------------------------------------- the spectral start


@pytest.mark.parametrize("structure", ["full", "tied", "diag", "spherical"])
def test_the_spectral_start_is_that_of_all_rows_in_the_structure_asked_for(structure: Any) -> None:
    rows = mirrored(400)
    design = Design.raw(4, intercept=False)
    parted = run(spectral_start(design, structure), sites(rows)).value
    whole = run(spectral_start(design, structure), sites(rows, np.zeros(400, dtype=int))).value
    experts = parted.mixture.experts
    assert experts.structure == structure
    assert experts.variances.shape == (2, 1)
    np.testing.assert_allclose(experts.B, whole.mixture.experts.B, atol=1e-10)
    np.testing.assert_allclose(experts.B[0], -experts.B[1])
    np.testing.assert_allclose(parted.Sxx, rows.X.T @ rows.X, atol=1e-10)
    assert parted.Syy == pytest.approx(np.sum(rows.Y**2))
    assert parted.weight == 400
