"""Starts that are found privately: a run without a model to begin from, and what has no such start."""

from __future__ import annotations

import numpy as np
import pytest

from consilience import Federation, MixtureOfExpertsRegressor
from consilience.errors import InvalidInputError
from consilience.fit.private_squares import PublicSquares
from consilience.messages import Answers, NoisySums
from consilience.methods import PrivateScoring
from consilience.methods.private_start import COMPARED, START_PARTS, best_of, exchanged
from consilience.methods.private_sums import Purse
from consilience.model import ConstantGate, Design, GaussianExperts, Mixture, Rows, mixture_of_experts
from consilience.model.contributions import COUNTED
from consilience.model.likelihoods import likelihood_total
from consilience.model.squares import square_total
from consilience.numerics.budget import rho_of

RANGE = (-6.0, 8.0)


def truth() -> Mixture:
    B = np.array([[-1.5, 0.8, -0.4], [1.5, -0.2, 0.6]])
    alpha = np.array([[0.1, 0.5, -0.2], [-0.1, -0.5, 0.2]])
    return mixture_of_experts(alpha, B, 0.4)


def drawn(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, truth().sample(X, rng)[0][:, 0]


def method(**how: object) -> PrivateScoring:
    known = {"covariates": drawn(1500, 3)[0], "start": "private", "response": RANGE}
    return PrivateScoring(8, **(known | how))  # type: ignore[arg-type]


def sites(n: int = 6000) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    X, y = drawn(n, 2)
    return {f"site {i}": (X[i::2], y[i::2]) for i in range(2)}


def test_squared_residuals_show_the_direction_between_two_experts():
    X, y = drawn(6000, 4)
    fit = np.linalg.lstsq(np.c_[np.ones(len(X)), X], y, rcond=None)
    one = Mixture(
        Design.raw(2),
        ConstantGate(np.ones(1)),
        GaussianExperts(fit[0].reshape(1, 1, 3), np.full((1, 1, 1), fit[1][0] / len(X))),
    )
    asked = PublicSquares.at(one, drawn(1500, 5)[0])
    total = square_total(one, Rows(X, y[:, None]), asked.factor, asked.clip)
    ends = asked.ends(np.array(total[:-1], dtype=float), total[-1] / COUNTED)
    away, true = ends[0] - ends[1], np.array([3.0, -1.0, 1.0])
    cosine = away @ true / np.linalg.norm(away) / np.linalg.norm(true)
    assert abs(cosine) > 0.8
    assert 0.1 < np.linalg.norm(away) / np.linalg.norm(true) < 1.6  # the gate hides a part of it: EM goes on


@pytest.mark.slow
@pytest.mark.parametrize("sums", ["each", "masked"])
def test_a_run_from_a_private_start_settles_near_the_fit_without_noise(sums: str):
    found = Federation(sites()).fit(MixtureOfExpertsRegressor(2, random_state=0), method(sums=sums))
    assert found.settled
    assert found.privacy.rho == rho_of(8, 1e-6)
    assert {each.question for each in found.record.rounds} <= {
        "PrivateScores",
        "PrivateSquares",
        "PrivateLikelihoods",
        "Several",
        "Masked",
    }
    assert len(found.record.rounds) == len(found.privacy.rhos)
    near = MixtureOfExpertsRegressor(2, random_state=0, mixture_init=truth())
    pooled = Federation(sites()).fit(near).model
    B = np.sort(found.model.coef_[:, 0]), np.sort(pooled.coef_[:, 0])
    assert np.abs(B[0] - B[1]).max() < 0.15


def test_the_better_of_two_candidates_is_taken():
    X, y = drawn(4000, 6)
    better = truth()
    worse = Mixture(better.design, better.gate, better.experts.transformed(np.diag([1.0, -1.0, 1.0])))
    for found in ([worse, better], [better, worse]):
        purse = Purse(COMPARED)
        talk = best_of(found, purse)
        asked = next(talk).question.questions[0]
        total = likelihood_total(asked.mixtures, Rows(X, y[:, None]), asked.clip)
        with pytest.raises(StopIteration) as ended:
            talk.send(Answers((NoisySums(tuple(total), asked.clip, 1),) * COMPARED))
        assert ended.value.value is better
        assert purse.left == 0


def test_experts_are_exchanged_where_a_covariate_is_high():
    X = np.array([[0.0, 1.5], [1.0, 1.5], [0.0, -1.5], [1.0, -1.5]])
    mixture, other = truth(), exchanged(truth(), X)[0]
    low, high = (np.array([[value, 0.0]]) for value in (0.0, 1.0))
    for here, turned in ((low, slice(None)), (high, slice(None, None, -1))):
        rows = Rows(here, np.zeros((1, 1)))
        assert np.allclose(other.gate_weights(here), mixture.gate_weights(here)[:, turned])
        assert np.allclose(means(other, rows), means(mixture, rows)[turned])
    back = exchanged(other, X)[0]
    assert np.allclose(back.to_vector(), mixture.to_vector())
    assert exchanged(truth(), np.ones((5, 2))) == []


def means(mixture: Mixture, rows: Rows) -> np.ndarray:
    """Means of the experts at one row, ``(K,)``."""
    return mixture.experts.B[:, 0] @ mixture.design.panel(rows.X)[:, 0]


def test_the_budget_of_a_private_start_is_a_part_of_the_whole():
    budget = method().budget
    assert budget.parts == 8 + START_PARTS
    assert budget.whole == rho_of(8, 1e-6)


def test_what_has_no_private_start_is_refused_by_a_sentence():
    with pytest.raises(InvalidInputError, match=r"two experts, not for 3.*start=a model"):
        Federation(sites(60)).fit(MixtureOfExpertsRegressor(3, random_state=0), method())
    with pytest.raises(InvalidInputError, match="Gaussian"):
        Federation(sites(60)).fit(MixtureOfExpertsRegressor(2, family="student", random_state=0), method())
    for how in ({"response": None}, {"response": (1.0, 1.0)}, {"response": (0.0, np.inf)}):
        with pytest.raises(InvalidInputError, match="range of the response"):
            method(**how)
    with pytest.raises(InvalidInputError, match="expected a model"):
        method(start="spectral")
