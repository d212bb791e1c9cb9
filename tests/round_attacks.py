"""A malicious coordinator: rows of one site, taken out through questions in rounds.

Every attack is a function of ``ask``, which sends a question to the site and returns its answer. It returns the largest
error of what it recovered, in standard deviations of the columns, or raises ``Refused``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zlib import crc32

import numpy as np

from consilience.fit import Expect
from consilience.kit.policy.policy import Policy
from consilience.kit.site_rounds import answer_contract
from consilience.messages.failures import Failure
from consilience.messages.questions import (
    Clients,
    LogLikelihood,
    Sample,
    ScoreSums,
)
from consilience.messages.table import decode, encode
from consilience.model import ConstantGate, Design, GaussianExperts, Mixture, Rows, SoftmaxGate
from consilience.model.rows import Groups
from consilience.numerics.arrays import unpack
from consilience.site import Site
from consilience.site.answer import respond

D = 4
CENTRE = np.array([60.0, 27.0, 0.5, 0.01])
Ask = Callable[[Any], Any]


class Refused(Exception):  # noqa: N818 - a word of the attacker
    """The site refused."""


def contract_ask(site: Site, policy: Policy) -> Ask:
    """Return what asks a site under contract, by the rules of its policy."""

    def ask(question: Any) -> Any:
        given = answer_contract(encode(question), site, policy.contract)
        found = decode(given.reply)
        if isinstance(found, Failure):
            raise Refused(given.reason or found.code.name)
        return found

    return ask


def free_ask(site: Site) -> Ask:
    """Return what asks a site as its coordinator does in one process; a site with a budget answers with noise only."""

    def ask(question: Any) -> Any:
        found = decode(respond(question, site))
        if isinstance(found, Failure):
            raise Refused(found.code.name)
        return found

    return ask


# ---------------------------------------------------------------------- sites


def hospital(n: int = 1000, seed: int = 0, groups: np.ndarray | None = None, d: int = D) -> Site:
    rng = np.random.default_rng(seed)
    columns = [rng.normal(60, 12, n), rng.normal(27, 4, n), rng.integers(0, 2, n), rng.random(n) < 0.01]
    X = np.column_stack(columns + [rng.normal(size=n) for _ in range(d - 4)])[:, :d].astype(float)
    y = 0.05 * X[:, 0] + 0.1 * X[:, 1] + rng.normal(0, 1, n)
    return Site("north", Rows(X, y[:, None], groups=None if groups is None else Groups.of(groups)), key=b"site secret")


def error(site: Site, found: np.ndarray, *, covariates: bool = False) -> float:
    """Largest error of a recovered row, in standard deviations, for the nearest row of the site."""
    R = site.data.X if covariates else np.column_stack([site.data.X, site.data.Y])
    return float(np.abs((R - found) / (R.std(axis=0) + 1e-9)).max(axis=1).min())


# ---------------------------------------------------------------------- mixtures


def gaussians(K: int, d: int, *, variance: float = 1e6, intercepts: Any = None) -> GaussianExperts:
    B = np.zeros((K, 1, d + 1))
    if intercepts is not None:
        B[:, 0, 0] = intercepts
    return GaussianExperts(B, np.full((K, 1, 1), variance))


def bins(edges: Any, w: np.ndarray, sharp: float) -> SoftmaxGate:
    """A softmax gate with a bin between each pair of edges along ``w x``."""
    k, c = np.arange(len(edges) + 1), np.append(0, np.cumsum(edges))
    alpha = np.column_stack([-c * sharp, np.outer(k, w) * sharp])
    return SoftmaxGate(alpha - alpha.mean(axis=0))


def gated(edges: Any, w: np.ndarray, sharp: float) -> Mixture:
    return Mixture(Design.raw(len(w)), bins(edges, w, sharp), gaussians(len(edges) + 1, len(w)))


def one(d: int) -> Mixture:
    return Mixture(Design.raw(d), ConstantGate(np.ones(1)), gaussians(1, d, variance=1.0))


def row_of(first: np.ndarray, second: np.ndarray, mass: float = 1.0, level: float = 0.0) -> np.ndarray:
    """The row behind sums over one row, from ``Σ r x̃`` with ``r = y - level`` and ``Σ x̃ x̃ᵀ``."""
    S = unpack(second) / mass
    return np.append(S[0, 1:], level + first[0] / mass)


DIRECTION = np.array([1 / 12, 0.5 / 4, 0.1, 0.1])


# ---------------------------------------------------------------------- one question


def histogram(ask: Ask, site: Site, question: Any = Expect) -> float:
    """A softmax gate with 60 bins in the tails: bins with one row give the row."""
    K, m, t = 60, float(DIRECTION @ CENTRE), np.sqrt(1.25)
    edges = m + t * np.append(np.linspace(-4.0, -1.8, 30), np.linspace(1.8, 4.0, K - 31))
    found = ask(question(gated(edges, DIRECTION, 1e5))).experts
    alone = np.flatnonzero(np.abs(found.plain[:K] - 1) < 1e-6)
    if question is ScoreSums:
        rows = [np.append(found.first[k, 1:] / found.first[k, 0], found.first[k, 0]) for k in alone]
    else:
        rows = [row_of(found.first[k], found.second[k]) for k in alone]
    assert len(rows) > 5
    return max(error(site, row) for row in rows)


def thin_experts(ask: Ask, site: Site) -> float:
    """A constant gate and 40 thin parallel experts: those with one row give it."""
    levels = np.linspace(2, 10, 40)
    experts = gaussians(40, D, variance=1e-8, intercepts=levels)
    found = ask(Expect(Mixture(Design.raw(D), ConstantGate(np.full(40, 1 / 40)), experts))).experts
    alone = np.flatnonzero(np.abs(found.plain[:40] - 1) < 1e-9)
    assert len(alone) > 2
    return max(error(site, row_of(found.first[k], found.second[k], level=levels[k])) for k in alone)


def clients_of_one(ask: Ask, site: Site) -> float:
    found = ask(Clients(Design.raw(D), np.zeros(D + 1)))
    alone = np.flatnonzero(found.n == 1)
    return max(error(site, np.append(unpack(found.S[i])[0, 1:], found.b[i, 0])) for i in alone)


# ---------------------------------------------------------------------- differences of large sets


def moved_past_one_row(ask: Ask, site: Site) -> float:
    """Two hyperplanes with one row between them; both sides have hundreds of rows."""
    m = float(DIRECTION @ CENTRE)

    def below(t: float) -> Any:
        return ask(Expect(gated([t], DIRECTION, 1e7))).experts

    low, high = m - 0.3, m + 0.3
    a, b = below(low), below(high)
    while b.plain[0] - a.plain[0] > 1.5:
        t = (low + high) / 2
        c = below(t)
        low, a, high, b = (t, c, high, b) if b.plain[0] - c.plain[0] >= 0.5 else (low, a, t, c)
    return error(site, row_of((b.first - a.first)[0], (b.second - a.second)[0]))


def likelihoods(ask: Ask, site: Site, far: float = 0.0) -> float:
    """Two numbers an answer: differences of log-likelihoods of two sharp experts are functions of one row.

    With ``far``, the log densities have a large common part, beside which the differences are small.
    """
    w = np.random.default_rng(3).normal(size=D) / np.array([12, 4, 0.5, 0.1])
    scale = 10.0**-far

    def at(t: float, b: np.ndarray | None = None, v: float = 1.0) -> float:
        B = np.zeros((2, 1, D + 1))
        B[0, 0] = 0 if b is None else b
        experts = GaussianExperts(B, np.array([[[v]], [[1.0]]]) / scale)
        return float(ask(LogLikelihood(Mixture(Design.raw(D), bins([t], w, 1e7), experts))).log_likelihood) / scale

    def count(t: float) -> float:
        base = at(t)
        A = scale * np.array([[0.5 * np.log(2) / scale, -0.25], [0.5 * np.log(4) / scale, -0.375]])
        return float(np.linalg.solve(A, [scale * (base - at(t, v=2.0)), scale * (base - at(t, v=4.0))])[0])

    low = float(w @ CENTRE) - 0.5
    high = low + 1
    a, b = count(low), count(high)
    while b - a > 1.5:
        t = (low + high) / 2
        c = count(t)
        low, a, high, b = (t, c, high, b) if b - c >= 0.5 else (low, a, t, c)

    def squares(beta: np.ndarray) -> float:
        return -2 * ((at(high, beta) - at(low, beta)) - (at(high) - at(low)))

    h = 0.03
    once = np.array([squares(h * e) for e in np.eye(D + 1)])
    twice = np.array([squares(2 * h * e) for e in np.eye(D + 1)])
    yx = (once - (twice - 2 * once) / 2) / (-2 * h)
    return error(site, np.append(yx[1:] / yx[0], yx[0]))


# ---------------------------------------------------------------------- moments


# ---------------------------------------------------------------------- draws, codes, refusals


def chosen_draw(ask: Ask, site: Site) -> float:
    """A sample whose seed is chosen so that it has one row, if the draw follows from the seed and the site's name."""
    n, seed = site.data.n, 5
    u = np.sort(np.random.default_rng([seed, crc32(site.name.encode())]).random(n))
    share = float((u[0] + u[1]) / 2)
    found = ask(Sample(Expect(one(D)), share, seed)).scaled(share)
    return error(site, row_of(found.experts.first[0], found.experts.second[0], found.weight))
