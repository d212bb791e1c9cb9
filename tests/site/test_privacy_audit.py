"""An audit of private answers: what the best attack on the worst row shows of ε, at the site's own code.

The attacker knows all other rows, the question and the row of the canary, whose contribution is as long as any can be.
A lower bound of ε follows from how often the attack is right with and without the canary (Clopper and Pearson).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from random import Random

import numpy as np
import pytest
from scipy.stats import norm

from consilience.fit.private_step import PublicStep
from consilience.messages import PrivateScores
from consilience.model import Design, GaussianExperts, Mixture, Rows, SoftmaxGate
from consilience.model.contributions import COUNTED, contributions, private_total, sensitivity
from consilience.numerics.budget import noise_variance, rho_of
from consilience.numerics.discrete_gaussian import discrete_gaussian
from consilience.site import Site, answer
from guessing import lower_bound

EPSILON, DELTA = 1.0, 1e-6
CANARY = (1e3, 1e6)


def problem() -> tuple[PrivateScores, Rows, Rows]:
    """A question, 40 rows, and the same rows with the canary."""
    rng = np.random.default_rng(3)
    mixture = Mixture(
        Design.raw(1), SoftmaxGate(np.zeros((1, 2))), GaussianExperts(np.array([[[0.0, 0.5]]]), np.ones((1, 1, 1)))
    )
    X = rng.normal(size=(40, 1))
    step = PublicStep.at(mixture, rng.normal(size=(1500, 1)))
    rows = Rows(X, mixture.sample(X, rng)[0])
    more = Rows(np.vstack([X, [[CANARY[0]]]]), np.vstack([rows.Y, [[CANARY[1]]]]))
    return PrivateScores(mixture, step.factor, step.clip, place=0), rows, more


@cache
def known(n: int) -> tuple[int, ...]:
    """The sums over the rows without the canary, or with it."""
    question, rows, more = problem()
    data = rows if rows.n == n else more
    return tuple(private_total(question.mixture, data, question.factor, question.clip))


def attacked(runs: int) -> tuple[np.ndarray, np.ndarray]:
    """The attack's statistic with and without the canary, each in so many releases of a site."""
    question, rows, more = problem()
    k = contributions(question.mixture, more, question.factor, question.clip)[-1]
    assert 0.9999 * sensitivity(3) ** 2 < sum(int(x) ** 2 for x in k) <= sensitivity(3) ** 2
    direction = np.append(k, COUNTED).astype(float)

    def released(data: Rows) -> np.ndarray:
        rho = rho_of(EPSILON, DELTA)
        given = [answer(question, Site("north", data).private(rho, 1)).values for _ in range(runs)]
        return np.array(given, dtype=float) @ direction

    return released(more), released(rows)


def check(runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = attacked(runs)
    assert lower_bound(*found, DELTA) <= EPSILON
    auc = float(np.mean(found[0][:2000, None] > found[1][None, :2000]))
    limit = norm.cdf(np.sqrt(float(rho_of(EPSILON, DELTA))))
    assert abs(auc - limit) < 5 / np.sqrt(min(runs, 2000))  # the canary is as visible as a row can be, and no more

    def too_small(sensitivity: int, rho: object) -> int:
        real: Callable[..., int] = noise_variance
        return real(sensitivity, rho) // 16

    monkeypatch.setattr(sys.modules["consilience.site.answer"], "noise_variance", too_small)
    assert lower_bound(*attacked(runs), DELTA) > EPSILON


def test_an_attack_shows_no_more_than_the_budget_and_catches_noise_divided_by_four(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sums are computed once; the site draws the noise of each release, here from a source with a seed."""
    source = Random(1).randrange
    sums = sys.modules["consilience.site.answer"]
    monkeypatch.setattr(sums, "total_over", lambda question, site: list(known(site.data.n)))
    monkeypatch.setattr(sums, "discrete_gaussian", lambda variance, size: discrete_gaussian(variance, size, source))
    check(4000, monkeypatch)


@pytest.mark.long
@pytest.mark.system_noise
def test_ten_thousand_attacks_show_no_more_than_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums are computed once; the noise is the operating system's."""
    sums = sys.modules["consilience.site.answer"]
    monkeypatch.setattr(sums, "total_over", lambda question, site: list(known(site.data.n)))
    check(10_000, monkeypatch)
