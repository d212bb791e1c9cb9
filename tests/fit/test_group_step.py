"""What totals over groups say: their slope, their covariance and both informations, against those of drawn groups."""

from __future__ import annotations

import numpy as np

from consilience.fit.group_step import group_informations
from consilience.fit.private_step import PublicStep
from consilience.model import Mixture, Rows, expect
from consilience.model.contributions import GRID, Frame
from consilience.model.expectation import missing_information, observed_scores
from consilience.model.group_contributions import GroupedCovariates, group_contributions
from contributing import mixture_of
from grouped import drawn_groups, public_groups

CASES = (("gaussian-full", "softmax"), ("gamma", "constant"), ("poisson", "softmax"), ("categorical", "constant"))
G = 4000


def problem(name: str, gate: str) -> tuple[Mixture, GroupedCovariates, Rows]:
    rng = np.random.default_rng([1, *map(ord, name)])
    mixture = mixture_of(name, rng, d=3, gate=gate)
    X = public_groups(3, G, rng)
    return mixture, X, drawn_groups(mixture, X, rng)


def test_slope_and_covariance_are_those_of_contributions_of_other_groups():
    """``E[u sᵀ] W`` and ``Cov u`` over groups that were drawn again, within their Monte-Carlo errors."""
    for name, gate in CASES:
        mixture, X, rows = problem(name, gate)
        step = PublicStep.at(mixture, X[:1000])
        k = group_contributions(mixture, rows, step.factor, step.clip)
        u = k * (step.clip / GRID)
        scores = np.hstack([observed_scores(mixture, block, at) for block, at in mixture.posteriors(rows)])
        z = scores.T @ step.factor
        each = u[:, :, None] * z[:, None]
        assert np.abs(each.mean(axis=0) - step.slope).max() < 5 * each.std(axis=0).max() / np.sqrt(G), (name, gate)
        squares = u[:, :, None] * u[:, None]
        assert np.abs(squares.mean(axis=0) - step.spread).max() < 6 * squares.std(axis=0).max() / np.sqrt(G)
        assert np.linalg.eigvalsh(step.slope)[0] > 0.2
        assert np.allclose(step.slope, step.slope.T)


def test_informations_are_those_of_the_pass_over_rows():
    for name, gate in CASES:
        mixture, X, rows = problem(name, gate)
        I, C = (each / 1000 for each in group_informations(Frame(mixture), X[:1000]))
        observed = expect(mixture, rows, information=True).information / G
        missing = sum(missing_information(mixture, block, at) for block, at in mixture.posteriors(rows)) / G
        scale = np.sqrt(np.outer(np.diagonal(C), np.diagonal(C)))
        assert np.abs((I - observed) / scale).max() < 0.2, (name, gate)
        assert np.abs((C - I - missing) / scale).max() < 0.2, (name, gate)


def test_totals_without_noise_vanish_where_the_steps_lead():
    mixture, X, rows = problem("gaussian-full", "softmax")
    rng = np.random.default_rng(5)
    here = mixture.with_vector(mixture.to_vector() + 0.1 * rng.normal(size=mixture.parameter_count))
    surprises = []
    for damping in (0.3, 0.0, 0.0, 0.0):
        step = PublicStep.at(here, X[:700], damping)
        total = group_contributions(here, rows, step.factor, step.clip).sum(axis=0) * step.unit
        surprises.append(step.surprise(total, G, 0.0))
        here = step.move(total, G)
    assert surprises[0] > 10
    assert surprises[-1] < 0.1
    ended = PublicStep.at(mixture, X[:700])
    total = group_contributions(mixture, rows, ended.factor, ended.clip).sum(axis=0) * ended.unit
    assert ended.surprise(total, G, 0.0) < 2.5  # at the truth it is about 1
