"""An audit of private answers: what the best attack on the worst row, or group of rows, shows of ε, at the site's code.

The attacker knows all other rows, the question and the canary, whose contribution is as long as any can be.
A lower bound of ε follows from how often the attack is right with and without the canary (Clopper and Pearson).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from random import Random

import numpy as np
import pytest
from scipy.stats import norm

from consilience.fit.private_step import PublicStep
from consilience.messages import PrivateScores
from consilience.model import Design, GaussianExperts, Groups, Mixture, Rows, SoftmaxGate
from consilience.model.contributions import COUNTED, contributions, private_total, sensitivity
from consilience.model.group_contributions import Seen, group_contributions, group_total
from consilience.numerics.budget import noise_variance, rho_of
from consilience.numerics.discrete_gaussian import discrete_gaussian
from consilience.site import Site, answer
from guessing import lower_bound

EPSILON, DELTA = 1.0, 1e-6
CANARY = (1e3, 1e6)


@cache
def problem(unit: str) -> tuple[PrivateScores, Rows, Rows]:
    """A question, 40 rows, and the same rows with the canary: a row, or a group of two rows."""
    rng = np.random.default_rng(3)
    mixture = Mixture(
        Design.raw(1), SoftmaxGate(np.zeros((1, 2))), GaussianExperts(np.array([[[0.0, 0.5]]]), np.ones((1, 1, 1)))
    )
    X = rng.normal(size=(40, 1))
    step, each = PublicStep.at(mixture, rng.normal(size=(1500, 1))), 2 if unit == "group" else 1
    rows = Rows(X, mixture.sample(X, rng)[0])
    more = Rows(*(np.vstack([a, *[[[own]]] * each]) for a, own in zip((X, rows.Y), CANARY, strict=True)))
    if unit == "group":
        rows, more = (replace(data, groups=Groups.of(np.arange(data.n) // 2)) for data in (rows, more))
    return PrivateScores(mixture, step.factor, step.clip, place=0), rows, more


@cache
def known(unit: str, n: int) -> tuple[int, ...]:
    """The sums over the rows without the canary, or with it."""
    question, rows, more = problem(unit)
    asked = question.mixture, rows if rows.n == n else more, question.factor, question.clip
    return tuple(private_total(*asked) if unit == "row" else group_total(*asked, Seen()))


def attacked(unit: str, runs: int) -> tuple[np.ndarray, np.ndarray]:
    """The attack's statistic with and without the canary, each in so many releases of a site."""
    question, rows, more = problem(unit)
    contributed = contributions if unit == "row" else group_contributions
    k = contributed(question.mixture, more, question.factor, question.clip)[-1]
    assert 0.9999 * sensitivity(3) ** 2 < sum(int(x) ** 2 for x in k) <= sensitivity(3) ** 2
    direction = np.append(k, COUNTED).astype(float)

    def released(data: Rows) -> np.ndarray:
        rho = rho_of(EPSILON, DELTA)
        given = [answer(question, Site("north", data).private(rho, 1)).values for _ in range(runs)]
        return np.array(given, dtype=float) @ direction

    return released(more), released(rows)


def check(unit: str, runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = attacked(unit, runs)
    assert lower_bound(*found, DELTA) <= EPSILON
    auc = float(np.mean(found[0][:2000, None] > found[1][None, :2000]))
    limit = norm.cdf(np.sqrt(float(rho_of(EPSILON, DELTA))))
    assert abs(auc - limit) < 5 / np.sqrt(min(runs, 2000))  # the canary is as visible as a row can be, and no more

    def too_small(sensitivity: int, rho: object) -> int:
        real: Callable[..., int] = noise_variance
        return real(sensitivity, rho) // 16

    monkeypatch.setattr(sys.modules["consilience.site.answer"], "noise_variance", too_small)
    assert lower_bound(*attacked(unit, runs), DELTA) > EPSILON


@pytest.mark.parametrize("unit", ["row", "group"])
def test_an_attack_shows_no_more_than_the_budget_and_catches_noise_divided_by_four(
    unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sums are computed once; the site draws the noise of each release, here from a source with a seed."""
    source = Random(1).randrange
    sums = sys.modules["consilience.site.answer"]
    monkeypatch.setattr(sums, "total_over", lambda question, site: list(known(unit, site.data.n)))
    monkeypatch.setattr(sums, "discrete_gaussian", lambda variance, size: discrete_gaussian(variance, size, source))
    check(unit, 4000, monkeypatch)


@pytest.mark.long
@pytest.mark.system_noise
@pytest.mark.parametrize("unit", ["row", "group"])
def test_ten_thousand_attacks_show_no_more_than_the_budget(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums are computed once; the noise is the operating system's."""
    sums = sys.modules["consilience.site.answer"]
    monkeypatch.setattr(sums, "total_over", lambda question, site: list(known(unit, site.data.n)))
    check(unit, 10_000, monkeypatch)
