"""Gradient EM: short messages, the maximum of federated EM, and for a pair of mirrored regressions exact EM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience import Federation, GradientEM, MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.datasets import soft
from consilience.engines import InProcess
from consilience.errors import InvalidInputError
from consilience.fit import Expect, Specification, fit_mixture, infer
from consilience.fit.climb import StopReason
from consilience.fit.inference import InferredFit
from consilience.messages import Each
from consilience.messages.questions import ScoreSums
from consilience.messages.table import encode
from consilience.methods import FederatedEM, Task
from consilience.model import Groups, Mixture, Penalty, Rows, expect, multinomial
from consilience.model.expectation import score_sums
from consilience.model.information import score
from consilience.model.mixture import layout_of, score_layout
from consilience.model.summary import column_summary
from consilience.numerics.arrays import Array, unpack
from consilience.published.gradient_em import SHORT, Preconditioner, mirror
from consilience.published.spectral import symmetric_mixture
from consilience.runs import Run, run
from consilience.site import Site, answer
from simulated import Simulated, simulated
from strategies import FAMILIES, GATES, SUM_TOLERANCE, Shape, contributions, label_count, shapes, take_labels

# ---------------------------------------------------------------------- statistics without second moments


@pytest.mark.slow
@given(shape=shapes())
def test_a_score_is_the_pass_without_second_moments(shape: Shape) -> None:
    mixture, rows = shape.problem()
    short, whole = score_sums(mixture, rows), expect(mixture, rows)
    assert short.information is None
    for part in ("gate", "experts"):
        ours, theirs = getattr(short, part), getattr(whole, part)
        assert ours.second.shape == (0, theirs.second.shape[1])
    bare = replace(
        whole,
        gate=replace(whole.gate, second=whole.gate.second[:0]),
        experts=replace(whole.experts, second=whole.experts.second[:0]),
    )
    layout, scale = layout_of(mixture), contributions(mixture, rows)
    gate, experts = layout.gate.size, layout.experts.size
    kept = np.r_[
        0 : 3 + gate - bare.gate.second.shape[1] * layout.gate.h,
        3 + gate : 3 + gate + experts - bare.experts.second.shape[1] * layout.experts.h,
    ]
    assert np.all(np.abs(short.to_array() - bare.to_array()) <= SUM_TOLERANCE * scale[kept])
    assert len(short.to_array()) == score_layout(mixture).size(information=False)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("labels", ["row", "group"])
def test_it_has_the_gradient_of_the_likelihood(family: str, gate: str, labels: str) -> None:
    mixture, rows = Shape(family=family, gate=gate, labels=labels, n=30, weights="positive").problem()
    short, whole = score_sums(mixture, rows), expect(mixture, rows)
    np.testing.assert_allclose(score(mixture, short), score(mixture, whole), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("gate", "K"), [("constant", 2), ("constant", 5), ("softmax", 3)])
def test_a_message_has_a_few_numbers_for_each_column(gate: str, K: int) -> None:
    """``K (p + 2)`` for the experts, a few for the gate and the likelihood; no ``p²``."""
    sizes = {}
    for d in (5, 50):
        mixture, rows = Shape(gate=gate, K=K, d=d, n=60).problem()
        p = d + 1
        of_gate = K if gate == "constant" else 2 * K + (K - 1) * p
        size = len(encode(answer(ScoreSums(mixture), Site("here", rows))))
        assert abs(size - 8 * (K * (p + 2) + of_gate)) < 200
        sizes[d] = size
        whole = len(encode(answer(Expect(mixture), Site("here", rows))))
        assert whole - size == pytest.approx(8 * K * p * (p + 1) / 2, rel=0.35) or gate == "softmax"
    assert sizes[50] < 11 * sizes[5]


# ---------------------------------------------------------------------- runs of the method


def partition(rows: Rows, sites: int, seed: int = 0) -> list[Site]:
    owner = np.random.default_rng(seed).integers(0, sites, label_count(rows))
    return [Site(f"site {i}", take_labels(rows, owner == i)) for i in range(sites)]


def study(
    rows: Rows, specification: Specification, sites: int = 3, method: GradientEM | None = None, **options: Any
) -> Run[tuple[InferredFit]]:
    d, q = rows.X.shape[1], rows.Y.shape[1]
    dialogue = (method or GradientEM()).dialogue(Task([specification], d, q, **options))
    return run(dialogue, InProcess().over(partition(rows, sites)))


def asked_for(rows: Rows, dialogue: Any, respond: Callable[[Any], Any] | None = None) -> tuple[list[Mixture], Any]:
    """The mixtures at which a dialogue asks for scores, over one site, and what it returns."""
    site, asked = Site("all", rows), []
    request = next(dialogue)
    try:
        while True:
            parts = getattr(request.question, "questions", (request.question,))
            asked += [part.mixture for part in parts if isinstance(part, ScoreSums)]
            said = answer(request.question, site)
            request = dialogue.send({"all": said} if isinstance(request, Each) else said)
    except StopIteration as finished:
        return asked, finished.value[0]


CASES = [(gate, size) for gate in GATES for size in (1, 3)]


@pytest.mark.slow
@pytest.mark.parametrize(("gate", "group_size"), CASES)
def test_the_end_is_the_maximum_of_federated_em(gate: str, group_size: int) -> None:
    case = simulated(gate=gate, n=450, group_size=group_size, seed=2)
    exact = fit_mixture(case.rows, case.specification, rng=np.random.default_rng(0), start=case.truth)
    (fit,) = study(case.rows, case.specification, start=case.truth, tol=1e-13, max_iter=5000).value
    assert abs(fit.log_likelihood - exact.log_likelihood) <= 1e-6 * case.rows.n
    assert np.all(np.diff(fit.ascent.trace) >= -1e-12 * fit.ascent.statistics.scale)
    assert fit.ascent.stop is StopReason.CONVERGED_EM
    se = infer(exact, case.rows).standard_errors().experts
    assert np.abs((fit.mixture.experts.B - exact.mixture.experts.B) / se).max() < 1e-2


@pytest.mark.parametrize("structure", ["diag", "spherical", "tied"])
def test_every_structure_of_variances_has_its_maximum(structure: str) -> None:
    case = simulated(gate="constant", n=400, structure=structure, weights=True, seed=3)
    exact = fit_mixture(case.rows, case.specification, rng=np.random.default_rng(0), start=case.truth)
    (fit,) = study(case.rows, case.specification, start=case.truth, tol=1e-13, max_iter=5000).value
    assert abs(fit.log_likelihood - exact.log_likelihood) <= 1e-6 * case.rows.n


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [MixtureOfRegressions(2, random_state=0), MixtureOfExpertsRegressor(2, random_state=0)],
    ids=["constant", "softmax"],
)
def test_from_starts_of_its_own_it_ends_where_federated_em_ends(model: Any) -> None:
    case = simulated(gate=model.gate_kind, n=900, seed=4)
    sites = {f"site {i}": (case.X[i::3], case.y[i::3]) for i in range(3)}
    exact = Federation(sites).fit(model, method=FederatedEM())
    done = Federation(sites).fit(model, method=GradientEM())
    assert done.fit.log_likelihood == pytest.approx(exact.fit.log_likelihood, abs=1e-6 * 900)
    short = [r for r in done.record.rounds if r.question == "ScoreSums"]
    assert len(short) == len(done.record.rounds) - 4
    sent, full = short[-1].exchanges[0].bytes_received, exact.record.rounds[-2].exchanges[0].bytes_received
    assert sent < full


@pytest.mark.slow
def test_covariates_that_differ_between_experts_take_longer_and_end_there() -> None:
    """Steps by a common ``Σ x xᵀ`` are then too long for some experts: refused, halved, and never wrong at the end."""
    rng = np.random.default_rng(0)
    z = np.arange(600) % 2
    X = rng.normal(size=(600, 2)) * np.where(z, 3.0, 0.5)[:, None]
    y = np.sum(X * np.array([[2.0, -1.0], [-1.0, 1.0]])[z], axis=1) + 0.5 * rng.normal(size=600)
    rows, specification = Rows(X, y[:, None]), Specification(K=2, gate="constant", intercept=False)
    exact = fit_mixture(rows, specification, rng=np.random.default_rng(0))
    start = exact.mixture
    start = replace(start, experts=replace(start.experts, B=start.experts.B + 0.3))
    (fit,) = study(rows, specification, start=start, tol=1e-12, max_iter=2000).value
    assert abs(fit.log_likelihood - exact.log_likelihood) <= 1e-6 * 600
    assert np.all(np.diff(fit.ascent.trace) >= -1e-12 * fit.ascent.statistics.scale)
    assert fit.ascent.passes == len(fit.ascent.trace) + fit.ascent.halvings


def test_too_long_steps_are_halved() -> None:
    case = simulated(gate="constant", n=300, seed=1)
    summary = column_summary(case.rows)
    start = case.truth.in_coordinates(summary.design(True))
    dialogue = GradientEM().dialogue(Task([case.specification], 2, 1, start=case.truth, max_iter=60))
    site, asked = Site("all", case.rows), []
    request = next(dialogue)
    with pytest.raises(StopIteration) as finished:  # noqa: PT012 - the loop is what ends
        while True:
            said = answer(request.question, site)
            if isinstance(request.question, ScoreSums):
                asked.append(request.question.mixture)
                said = replace(said, log_likelihood=-1e9)  # no step is ever good enough
            request = dialogue.send({"all": said} if isinstance(request, Each) else said)
    (fit,) = finished.value.value
    assert fit.ascent.stop is StopReason.STALLED
    assert (len(fit.ascent.trace), fit.ascent.halvings) == (1, 9)
    steps = np.array([np.linalg.norm(mixture.coefficients - start.coefficients) for mixture in asked])
    np.testing.assert_allclose(steps[:-1] / steps[1:], 2.0, rtol=1e-9)
    np.testing.assert_allclose(fit.ascent.mixture.coefficients, start.coefficients)


# ---------------------------------------------------------------------- sites


@pytest.mark.slow
@pytest.mark.parametrize(("gate", "group_size"), CASES)
@settings(max_examples=12)
@given(sites=st.integers(1, 7), seed=st.integers(0, 2**32 - 1))
def test_one_iteration_is_the_pooled_one(gate: str, group_size: int, sites: int, seed: int) -> None:
    case = simulated(gate=gate, n=60, group_size=group_size, weights=True, seed=seed)
    dialogue = GradientEM().dialogue(Task([case.specification], 2, 1, start=case.truth, max_iter=1))
    apart = run(dialogue, InProcess(threads=1).over(partition(case.rows, sites, seed))).value[0].ascent
    dialogue = GradientEM().dialogue(Task([case.specification], 2, 1, start=case.truth, max_iter=1))
    _, pooled = asked_for(case.rows, dialogue)
    ours, theirs = (
        np.concatenate([m.gate.contrasts().ravel(), m.experts.B.ravel(), m.experts.variances.ravel()])
        for m in (apart.mixture, pooled.ascent.mixture)
    )
    assert np.all(np.abs(ours - theirs) <= 1e-10 * np.maximum(np.abs(theirs), 1 / np.sqrt(60)))
    assert apart.trace == pytest.approx(pooled.ascent.trace, rel=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(("gate", "group_size"), CASES)
def test_twenty_iterations_are_the_pooled_ones(gate: str, group_size: int) -> None:
    case = simulated(gate=gate, n=300, group_size=group_size, seed=5)
    options = {"start": case.truth, "tol": -1.0, "max_iter": 20}
    one, many = (study(case.rows, case.specification, sites, **options).value[0].ascent for sites in (1, 6))
    assert (many.passes, many.halvings) == (one.passes, one.halvings)
    assert many.penalised == pytest.approx(one.penalised, rel=1e-11)
    np.testing.assert_allclose(many.mixture.experts.B, one.mixture.experts.B, atol=1e-8)
    np.testing.assert_allclose(many.mixture.gate.contrasts(), one.mixture.gate.contrasts(), atol=1e-8)


def test_groups_of_one_are_rows() -> None:
    case = simulated(gate="constant", n=200, seed=6)
    grouped = replace(case.rows, groups=Groups.of(np.arange(200)))
    one, two = (
        study(rows, case.specification, start=case.truth, max_iter=10).value[0] for rows in (case.rows, grouped)
    )
    np.testing.assert_allclose(two.mixture.experts.B, one.mixture.experts.B, atol=1e-10)


# ---------------------------------------------------------------------- two regressions that are mirrored


def mirrored_data(n: int = 300, *, intercept: bool = False, group_size: int = 1, seed: int = 0) -> tuple[Rows, Array]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) @ np.array([[1.0, 0.3, 0.0], [0.0, 1.0, -0.2], [0.0, 0.0, 2.0]])
    b = np.array([*([0.7] if intercept else []), 1.0, -0.5, 0.4])
    panel = np.column_stack([*([np.ones(n)] if intercept else []), X])
    signs = rng.choice([-1.0, 1.0], n)[np.arange(n) // group_size]
    y = signs * (panel @ b) + 0.6 * rng.normal(size=n)
    groups = Groups.of(np.arange(n) // group_size) if group_size > 1 else None
    return Rows(X, y[:, None], groups=groups), b


def textbook(rows: Rows, b: Array, sigma2: float, steps: int, *, intercept: bool = False) -> list[tuple[Array, float]]:
    """``b ← (XᵀX)⁻¹ Σ tanh(y xᵀb / σ²) y x``, then ``σ²``; with groups the sign is that of all rows of a group."""
    X = np.column_stack([*([np.ones(rows.n)] if intercept else []), rows.X])
    y, found = rows.Y[:, 0], []
    codes = np.arange(rows.n) if rows.groups is None else rows.groups.codes
    for _ in range(steps):
        evidence = np.bincount(codes, y * (X @ b) / sigma2)[codes]
        b = np.linalg.solve(X.T @ X, X.T @ (np.tanh(evidence) * y))
        sigma2 = float(np.mean(y**2) - b @ (X.T @ X) @ b / rows.n)
        found.append((b, sigma2))
    return found


SYMMETRIC = Specification(K=2, gate="constant", intercept=False)


@pytest.mark.parametrize("structure", ["full", "diag", "spherical", "tied"])
@pytest.mark.parametrize(("intercept", "group_size"), [(False, 1), (False, 4), (True, 1)])
def test_steps_of_a_mirrored_pair_are_those_of_exact_em(structure: str, intercept: bool, group_size: int) -> None:
    rows, _ = mirrored_data(intercept=intercept, group_size=group_size)
    specification = replace(SYMMETRIC, structure=structure, intercept=intercept)
    dialogue = GradientEM(symmetric=True).dialogue(Task([specification], 3, 1, tol=-1.0, max_iter=12))
    asked, fit = asked_for(rows, dialogue)
    start = asked[0].raw()
    steps = textbook(rows, start.coefficients[0], float(start.experts.variances[0, 0]), 12, intercept=intercept)
    assert len(asked) == 13
    assert fit.ascent.halvings == 0
    for mixture, (b, sigma2) in zip(asked[1:], steps, strict=True):
        raw = mixture.raw()
        np.testing.assert_allclose(raw.coefficients, [b, -b], atol=1e-10)
        np.testing.assert_allclose(raw.experts.variances, sigma2, rtol=1e-10)
        np.testing.assert_array_equal(mixture.coefficients[1], -mixture.coefficients[0])
        np.testing.assert_array_equal(raw.gate.probabilities, [0.5, 0.5])


def test_a_mirrored_pair_is_found_from_its_spectrum() -> None:
    rows, b = mirrored_data(3000, seed=1)
    done = study(rows, SYMMETRIC, 4, GradientEM(symmetric=True))
    (fit,) = done.value
    assert [r.question for r in done.record.rounds[:3]] == ["Summarise", "Several", "ScoreSums"]
    assert all(r.request == "Total" for r in done.record.rounds[1:-1])
    found = fit.mixture.coefficients[0] * np.sign(fit.mixture.coefficients[0] @ b)
    assert np.abs(found - b).max() < 0.06
    again = textbook(rows, fit.mixture.coefficients[0], float(fit.mixture.experts.variances[0, 0]), 300)[-1]
    np.testing.assert_allclose(np.abs(again[0]), np.abs(found), atol=1e-3)
    assert fit.ascent.stop.converged


def test_a_start_is_made_a_mirrored_pair() -> None:
    rows, b = mirrored_data()
    summary = column_summary(rows)
    design = summary.design(False)
    pair = symmetric_mixture(design, b, 0.5)
    uneven = replace(
        pair,
        gate=replace(pair.gate, probabilities=np.array([0.8, 0.2])),
        experts=replace(
            pair.experts, B=np.array([[b + 0.5], [-b + 0.2]]), covariance=np.array([0.3, 0.9]).reshape(2, 1, 1)
        ),
    )
    dialogue = GradientEM(symmetric=True).dialogue(Task([SYMMETRIC], 3, 1, start=uneven, max_iter=3))
    for mixture in asked_for(rows, dialogue)[0]:
        np.testing.assert_allclose(mixture.coefficients[1], -mixture.coefficients[0], atol=1e-12)
        assert mixture.experts.variances[0] == mixture.experts.variances[1]
        np.testing.assert_array_equal(mixture.gate.probabilities, [0.5, 0.5])


@given(seed=st.integers(0, 2**32 - 1))
def test_mirrored_statistics_are_a_mean_of_the_data_and_of_their_mirror_image(seed: int) -> None:
    mixture, rows = Shape(gate="constant", n=20, seed=seed, intercept=False).problem()
    pair = symmetric_mixture(mixture.design, mixture.coefficients[0], 0.7)
    whole = score_sums(pair, rows)
    swapped = score_sums(pair, replace(rows, Y=-rows.Y))  # what the second expert sees has the sign turned
    both = mirror(whole)
    np.testing.assert_allclose(both.experts.first, (whole.experts.first + swapped.experts.first) / 2, atol=1e-10)
    np.testing.assert_allclose(both.experts.plain, (whole.experts.plain + swapped.experts.plain) / 2, atol=1e-10)
    np.testing.assert_allclose(mirror(both).to_array(), both.to_array(), atol=1e-12)
    assert both.log_likelihood == whole.log_likelihood


# ---------------------------------------------------------------------- steps


@pytest.mark.parametrize("gate", GATES)
def test_a_step_is_the_gradient_times_a_share_of_all_second_moments(gate: str) -> None:
    mixture, rows = Shape(gate=gate, K=3, n=90, weights="positive").problem()
    short = score_sums(mixture, rows)
    panel = mixture.design.panel(rows.X)
    Sxx = (panel * rows.weight) @ panel.T
    preconditioner = Preconditioner(Sxx, Penalty(), symmetric=False, of_gate=Sxx)
    for length in (1.0, 0.25):
        step = preconditioner.step(mixture, short, length)
        n = short.experts.plain[:3]
        for k in range(3):
            expected = length * (n.sum() / n[k]) * np.linalg.solve(Sxx, short.experts.first[k])
            np.testing.assert_allclose(step.coefficients[k] - mixture.coefficients[k], expected, rtol=1e-8)


def test_the_bound_of_the_gate_is_above_its_curvature() -> None:
    for seed in range(20):
        for labels in ("row", "group"):
            mixture, rows = Shape(K=3, n=60, labels=labels, seed=seed).problem()
            panel = mixture.design.panel(rows.X)
            Sxx = panel @ panel.T
            preconditioner = Preconditioner(Sxx, Penalty(), symmetric=False, of_gate=Sxx)
            bound = preconditioner.completed(mixture, score_sums(mixture, rows), 1.0).gate.second
            exact = expect(mixture, rows).gate.second
            apart = unpack(bound - exact)  # blocks (1, 1), (1, 2), (2, 2) of the curvature in K - 1 coordinates
            J = np.block([[apart[0], apart[1]], [apart[1], apart[2]]])
            assert np.linalg.eigvalsh(J).min() > -1e-9


@pytest.mark.parametrize(("K", "d"), [(3, 760), (40, 39)])
def test_steps_of_a_wide_gate_climb(K: int, d: int) -> None:
    """Above 1,500 parameters the curvature of a gate is one block for each class."""
    mixture, rows = Shape(K=K, d=d, n=100).problem()
    assert not multinomial.is_full(K, mixture.design.p)
    panel = mixture.design.panel(rows.X)
    Sxx = panel @ panel.T + np.eye(len(panel))  # fewer rows than covariates
    short = score_sums(mixture, rows)
    gate = Preconditioner(Sxx, Penalty(), symmetric=False, of_gate=Sxx).step(mixture, short, 1.0).gate
    assert score_sums(replace(mixture, gate=gate), rows).log_likelihood > short.log_likelihood + 0.1


@pytest.mark.parametrize("columns", [{"gate_features": [0, 1]}, {"expert_features": [0, 1]}])
def test_gate_and_experts_may_read_different_covariates(columns: dict[str, list[int]]) -> None:
    case = soft(600, n_features=4, random_state=0)
    sites = Federation({"a": (case.X[:300], case.y[:300]), "b": (case.X[300:], case.y[300:])})
    model = MixtureOfExpertsRegressor(2, random_state=0, max_iter=3000, **columns)
    short, whole = (sites.fit(model, method=method).model for method in (GradientEM(), FederatedEM()))
    assert short.log_likelihood_ == pytest.approx(whole.log_likelihood_, abs=0.05)


# ---------------------------------------------------------------------- what it has, and what it has not


def test_there_are_no_standard_errors_and_the_reason_is_given() -> None:
    case = simulated(gate="constant", n=300, seed=1)
    done = Federation({"a": (case.X, case.y)}).fit(MixtureOfRegressions(2, random_state=0), method=GradientEM())
    assert isinstance(done.fit, InferredFit)
    assert dict(done.model.inference_.withheld) == {"gate": SHORT, "experts": SHORT}
    assert np.all(np.isnan(done.model.inference_.standard_errors().flat()))
    again = MixtureOfRegressions(2, mixture_init=done.model.mixture_)
    exact = Federation({"a": (case.X, case.y)}).fit(again, method=FederatedEM())
    assert np.all(np.isfinite(exact.model.inference_.standard_errors().experts))


def test_a_fit_without_standard_errors_is_the_same_fit() -> None:
    case: Simulated = simulated(n=200)
    fit = fit_mixture(case.rows, case.specification, rng=np.random.default_rng(0), start=case.truth)
    bare = InferredFit.without(fit, "nobody asked")
    for name, value in vars(fit).items():
        assert getattr(bare, name) is value
    assert set(bare.inference.withheld.values()) == {"nobody asked"}
    np.testing.assert_array_equal(bare.inference.estimates.experts, infer(fit, case.rows).estimates.experts)


def refused(specification: Specification, q: int = 1, *, symmetric: bool = False) -> None:
    next(GradientEM(symmetric=symmetric).dialogue(Task([specification], 2, q)))


def test_other_families_and_several_responses_are_refused() -> None:
    for specification, q in ((Specification(K=2, family="poisson"), 1), (Specification(K=2), 2)):
        with pytest.raises(InvalidInputError, match="GradientEM needs Gaussian experts with one response"):
            refused(specification, q)


@pytest.mark.parametrize("specification", [Specification(K=3, gate="constant"), Specification(K=2)])
def test_a_mirrored_pair_is_two_regressions_with_constant_shares(specification: Specification) -> None:
    with pytest.raises(
        InvalidInputError, match=r"symmetric=True is for two regressions: use MixtureOfRegressions\(2\)"
    ):
        refused(specification, symmetric=True)


def test_several_orders_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="GradientEM fits one number of experts at a time"):
        next(GradientEM().dialogue(Task([Specification(K=2), Specification(K=3)], 2, 1)))


def test_a_given_start_needs_no_starts_of_sites() -> None:
    case = simulated(gate="constant", n=200)
    done = study(case.rows, case.specification, start=case.truth, max_iter=2)
    assert [r.question for r in done.record.rounds] == ["Summarise", "Several", "ScoreSums", "ScoreSums", "ScoreSums"]
    assert isinstance(next(GradientEM().dialogue(Task([case.specification], 2, 1))), Each)
