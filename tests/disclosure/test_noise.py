"""Attacks on sums with noise: none shows more of a row than (ε, δ) allows, and each succeeds where noise is missing.

The attacker chooses every question, knows all other rows, and knows what each answer would be without noise, with the
row and without it: the statistic is the length of the answers along their difference, the best there is for Gaussian
noise. The noise and the charge are the site's own. What an attack shows of ε has 95 % confidence (Clopper and Pearson).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import round_attacks as attacks
from consilience.fit.private_step import PublicStep
from consilience.messages import PrivateScores
from consilience.model import Mixture, Rows, SoftmaxGate
from consilience.model.contributions import contributions, private_total, sensitivity
from consilience.numerics.arrays import Array
from consilience.numerics.budget import epsilon_of, rho_of
from consilience.site import Site, answer
from contributing import drawn_rows, hostile_factor, hostile_mixture, mixture_of
from guessing import area, lower_bound

EPSILON, DELTA = 1.0, 1e-6
RHO = rho_of(EPSILON, DELTA)
HARDLY_ANY = Fraction(10**6)
N = 300
TARGET = 7
Asked = tuple[PrivateScores, Rows]


@dataclass(frozen=True, eq=False)
class Attack:
    """What is asked of a table with the row, and of the same table without it; the parts share the budget.

    ``changed`` is 2 where the row is replaced by another one, and not removed.
    """

    with_it: Sequence[Asked]
    without: Sequence[Asked]
    changed: int = 1

    @property
    def allowed(self) -> float:
        """ε that the budget allows: replacing a row is removing one and adding one."""
        return epsilon_of(RHO * self.changed**2, DELTA)


def both(question: PrivateScores, whole: Rows, rest: Rows, times: int = 1) -> Attack:
    return Attack([(question, whole)] * times, [(question, rest)] * times)


def table(d: int = attacks.D) -> tuple[Rows, Rows]:
    """The rows of a hospital, and the same without the target."""
    rows = attacks.hospital(N, seed=2, d=d).data
    return rows, rows.take(np.delete(np.arange(N), TARGET))


# ---------------------------------------------------------------------- questions of an attacker


def through(rows: Rows, column: int) -> PrivateScores:
    """A gate with a bin in which the target is alone, and a factor that reads one coefficient of its expert.

    ``column`` is 0 for the intercept and j for the covariate j - 1: all other rows contribute zeros.
    """
    w = np.random.default_rng(3).normal(size=rows.X.shape[1]) / (rows.X.std(axis=0) + 1e-9)
    along = rows.X @ w
    gap = 0.4 * np.min(np.abs(np.delete(along, TARGET) - along[TARGET]))
    return reading(attacks.gated([along[TARGET] - gap, along[TARGET] + gap], w, 1e3 / gap), column)


def reading(mixture: Mixture, column: int) -> PrivateScores:
    """A question about a mixture of three, whose factor reads one coefficient of the second expert."""
    P, p = mixture.parameter_count, mixture.design.p
    W = np.zeros((P, P))
    at = 2 * p + p + column  # two contrasts of the gate, the first expert, then the coefficient of the second
    W[at, at] = 1e12
    return PrivateScores(mixture, W, 1.0, place=0)


def rare_attribute() -> Attack:
    """Does the target have a rare property? All its other columns are known, and the gate reads those alone."""
    rows, _ = table()
    tables = []
    for value in (1.0, 0.0):
        X = rows.X.copy()
        X[TARGET, 3] = value
        tables.append(Rows(X, rows.Y))
    others = through(Rows(np.delete(rows.X, 3, axis=1), rows.Y), 0)
    alpha = np.insert(others.mixture.gate.alpha, 4, 0.0, axis=1)
    mixture = replace(attacks.gated([0.0, 1.0], np.ones(4), 1.0), gate=SoftmaxGate(alpha))
    asked = reading(mixture, 4)
    return Attack([(asked, tables[0])], [(asked, tables[1])], changed=2)


def needle() -> Attack:
    """The target alone moves the sum, by weights far below the digits of the others."""
    whole, rest = table()
    return both(through(whole, 0), whole, rest)


def added_column() -> Attack:
    """Two studies, of which the second reads one more column; what is counted does not start again."""
    whole, rest = table()
    wider, narrower = table(5)
    asked = [(through(whole, 0), whole, rest), (through(wider, 1), wider, narrower)]
    return Attack([(q, rows) for q, rows, _ in asked], [(q, rows) for q, _, rows in asked])


@cache
def ordinary() -> tuple[PrivateScores, Rows]:
    """A question as a run asks it, and rows from its mixture."""
    rng = np.random.default_rng(6)
    mixture = mixture_of("gaussian-full", rng)
    step = PublicStep.at(mixture, rng.normal(size=(1500, 2)))
    return PrivateScores(mixture, step.factor, step.clip, place=0), drawn_rows("gaussian-full", mixture, N, rng)


def longest(question: PrivateScores, rows: Rows) -> int:
    """The row that contributes most."""
    k = contributions(question.mixture, rows, question.factor, question.clip).astype(float)
    return int(np.argmax(np.sum(k**2, axis=1)))


def likelihood_ratio() -> Attack:
    """Is the row in the table? The ratio of likelihoods of the answers, with everything else known."""
    question, rows = ordinary()
    row = longest(question, rows)
    return both(question, rows, rows.take(np.delete(np.arange(N), row)))


def differencing() -> Attack:
    """Two runs, before and after the row was removed: the difference of their answers."""
    question, rows = ordinary()
    rest = rows.take(np.delete(np.arange(N), longest(question, rows)))
    return Attack([(question, rows), (question, rest)], [(question, rest), (question, rest)])


def averaging() -> Attack:
    """The same question in all eight parts of the budget."""
    question, rows = ordinary()
    return both(question, rows, rows.take(np.delete(np.arange(N), longest(question, rows))), times=8)


def hostile(seed: int) -> Callable[[], Attack]:
    """A mixture, a factor and a bound of any size, and the row that moves that sum most."""

    def made() -> Attack:
        rng = np.random.default_rng(seed)
        mixture = hostile_mixture("gaussian-full", rng)
        rows = drawn_rows("gaussian-full", mixture_of("gaussian-full", rng), N, rng)
        clip = float(rng.choice([1e-9, 1e-3, 1e6]))
        question = PrivateScores(mixture, hostile_factor(mixture.parameter_count, rng), clip, place=0)
        return both(question, rows, rows.take(np.delete(np.arange(N), longest(question, rows))))

    return made


def known_to_round(row: float) -> Callable[[], Attack]:
    """A row far outside, and a bound so wide that all other rows round to zeros."""

    def made() -> Attack:
        question, rows = ordinary()
        X, Y = rows.X.copy(), rows.Y.copy()
        X[TARGET], Y[TARGET] = row, row**2
        asked = replace(question, clip=1e-3 * row**3)
        return both(asked, Rows(X, Y), Rows(X, Y).take(np.delete(np.arange(N), TARGET)))

    return made


ATTACKS: dict[str, Callable[[], Attack]] = {
    "rare attribute": rare_attribute,
    "needle": needle,
    "one more column": added_column,
    "likelihood ratio": likelihood_ratio,
    "differencing over runs": differencing,
    "averaging": averaging,
    "one row beside zeros": known_to_round(1e4),
    **{f"hostile question {seed}": hostile(seed) for seed in (0, 3, 5)},
}

# ---------------------------------------------------------------------- guesses


def exact(asked: Sequence[Asked]) -> list[Array]:
    return [np.array(private_total(q.mixture, rows, q.factor, q.clip), dtype=float) for q, rows in asked]


def statistics(attack: Attack, rho: Fraction, runs: int, patch: pytest.MonkeyPatch) -> tuple[Array, Array]:
    """The statistic of so many transcripts with the row, and without it. Sums are computed once, noise each time."""
    sums: dict[int, dict[int, list[int]]] = {}
    directions = [one - other for one, other in zip(exact(attack.with_it), exact(attack.without), strict=True)]
    for q, rows in (*attack.with_it, *attack.without):
        known = sums.setdefault(id(rows), {})
        if id(q) not in known:
            known[id(q)] = private_total(q.mixture, rows, q.factor, q.clip)
    patch.setattr(sys.modules["consilience.site.answer"], "total_over", lambda q, site: sums[id(site.data)][id(q)])

    def one(asked: Sequence[Asked]) -> float:
        found = 0.0
        for (question, rows), direction in zip(asked, directions, strict=True):
            if np.any(direction):
                given: Any = answer(question, Site("north", rows).private(rho / len(asked), 1))
                found += float(np.array(given.values, dtype=float) @ direction) / given.variance
        return found

    return np.array([one(attack.with_it) for _ in range(runs)]), np.array([one(attack.without) for _ in range(runs)])


def check(name: str, runs: int, patch: pytest.MonkeyPatch) -> None:
    attack = ATTACKS[name]()
    found = statistics(attack, RHO, runs, patch)
    assert lower_bound(*found, DELTA) <= attack.allowed
    most = norm.cdf(attack.changed * np.sqrt(float(RHO)))  # of any attack on ρ-zCDP by Gaussian noise
    assert area(*found) < most + 4 * np.sqrt(1 / (6 * runs))
    open_ = statistics(attack, HARDLY_ANY, 200, patch)
    assert area(*open_) > 0.99
    assert lower_bound(*open_, DELTA) > attack.allowed


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_shows_more_than_the_budget_and_each_succeeds_without_noise(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(name, 300, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_shows_more_than_the_budget_in_ten_thousand_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(name, 10_000, monkeypatch)


def test_attacks_move_the_sum_as_far_as_a_row_can() -> None:
    """The attacks are strong: most targets contribute as much as the bound allows."""
    for name, least in {"needle": 0.99, "one row beside zeros": 0.99, "likelihood ratio": 0.9}.items():
        attack = ATTACKS[name]()
        one, other = exact(attack.with_it[:1])[0], exact(attack.without[:1])[0]
        P = len(one) - 1
        assert np.linalg.norm((one - other)[:-1]) > least * sensitivity(P), name
