"""A malicious coordinator: rows of one site, taken out through questions in rounds.

Every attack is a function of ``ask``, which sends a question to the site and returns its answer. It returns the largest
error of what it recovered, in standard deviations of the columns, or raises ``Refused``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zlib import crc32

import numpy as np

from consilience.fit import Expect, Specification
from consilience.kit.policy.policy import Policy
from consilience.kit.site_rounds import answer_contract
from consilience.messages.failures import Failure
from consilience.messages.questions import (
    Clients,
    FitSite,
    LogLikelihood,
    Pairs,
    ProposeStart,
    Sample,
    ScoreSums,
    Summarise,
)
from consilience.messages.table import decode, encode
from consilience.model import ConstantGate, Design, GaussianExperts, Mixture, Rows, SoftmaxGate
from consilience.model.families.registry import FAMILIES
from consilience.model.rows import Groups
from consilience.numerics.arrays import unpack
from consilience.published.client_steps import Anchors, LocalSteps
from consilience.published.critic import CriticSums
from consilience.published.spectral import SquaredResponses
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


def counts(seed: int = 1, n: int = 1000) -> Site:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(60, 12, n), rng.normal(27, 4, n), rng.integers(0, 2, n)]).astype(float)
    return Site("north", Rows(X, rng.poisson(3, (n, 1)).astype(float)))


def classes(seed: int = 1, n: int = 1000) -> Site:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(60, 12, n), rng.normal(27, 4, n), rng.integers(0, 2, n)]).astype(float)
    return Site("north", Rows(X, (rng.random((n, 1)) < 0.3).astype(float)))


def few_rows() -> Site:
    rng = np.random.default_rng(3)
    return Site("north", Rows(rng.normal(size=(20, 20)), rng.normal(size=(20, 1)) + 3))


def clusters() -> Site:
    return Site("north", Rows(np.empty((60, 0)), np.random.default_rng(0).normal(size=(60, 3))))


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


def exponential(ask: Ask, site: Site) -> float:
    """Poisson weights ``exp(b x)`` without a gate, one expert that has all rows: an extreme row's covariates."""
    b = np.append(0.0, 60 * np.array([1 / 12, 0.1 / 4, 0.05]))
    b[0] = -float(b[1:] @ CENTRE[:3]) - 180
    mixture = Mixture(Design.raw(3), ConstantGate(np.ones(1)), FAMILIES["poisson"](b[None]))
    S = unpack(ask(Expect(mixture)).experts.second[0])
    return error(site, S[0, 1:] / S[0, 0], covariates=True)


def crafted_start(ask: Ask, site: Site) -> float:
    """A site's own fit from a start whose gate singles out rows in the tails, and one iteration."""
    K, m, t = 60, float(DIRECTION @ CENTRE), np.sqrt(1.25)
    edges = m + t * np.append(np.linspace(-4.0, -2.2, 30), np.linspace(2.2, 4.0, K - 31))
    start = Mixture(Design.raw(D), bins(edges, DIRECTION, 1e6), gaussians(K, D, variance=1e4))
    question = FitSite(Specification(K=K), (K,), 0, 1, 1e9, 1, start, (D, 1), describe=False)
    model = ask(question).model
    rows = []
    for k in np.flatnonzero(np.abs(model.label_counts - 1) < 1e-6):
        S = unpack(model.second[k])
        x = S[0, 1:] / S[0, 0]
        rows.append(np.append(x, model.mixture.experts.B[k, 0] @ np.append(1, x)))
    assert rows
    return max(error(site, row) for row in rows)


def as_many_experts_as_rows(ask: Ask, site: Site) -> float:
    n = site.data.n
    summary = ask(Summarise(0, 3))
    specification = Specification(K=n, gate="constant", structure="spherical", reg_covar=1e-12)
    means = ask(ProposeStart(specification, summary, 0, 4)).mixtures[0].experts.B[:, :, 0]
    errors = [np.abs((site.data.Y - m) / site.data.Y.std(axis=0)).max(axis=1).min() for m in means]
    return float(max(errors))


def local_steps(ask: Ask, site: Site) -> float:
    """400 parallel regressions: clusters with one client of one row give the row."""
    levels = np.linspace(1, 12, 400)
    experts = gaussians(400, D, variance=1.0, intercepts=levels)
    found = ask(LocalSteps(Mixture(Design.raw(D), ConstantGate(np.full(400, 1 / 400)), experts), 1, 1e-6))
    rows = []
    for k in np.flatnonzero((found.clients == 1) & (found.rows == 1)):
        g = found.moved[k] / 1e-6
        rows.append(np.append(g[1:] / g[0], levels[k] + g[0]))
    assert len(rows) > 5
    return max(error(site, row) for row in rows)


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


def class_boundary(ask: Ask, site: Site) -> float:
    """One categorical expert, no gate: the boundary between two classes moved past one row."""
    w = np.array([1 / 12, 0.3 / 4, 0.1])

    def at(t: float) -> Any:
        v = np.append(-t, w) * 1e6
        experts = FAMILIES["categorical"](np.array([[v / 2, -v / 2]]))
        return ask(Expect(Mixture(Design.raw(3), ConstantGate(np.ones(1)), experts))).experts.first[0]

    low, high = 6.0, 8.0
    a, b = at(low), at(high)
    while abs(b[0] - a[0]) > 1.5:
        t = (low + high) / 2
        c = at(t)
        low, a, high, b = (t, c, high, b) if abs(b[0] - c[0]) >= 0.5 else (low, a, t, c)
    return error(site, (b - a)[1:] / (b - a)[0], covariates=True)


def critic(ask: Ask, site: Site) -> float:
    """A threshold on the response moved past one row: the response, by the number of rows below it."""

    def below(t: float) -> float:
        B = np.array([np.zeros(D + 1), np.append(2 * t, np.zeros(D))])
        experts = GaussianExperts(B[:, None], np.full((2, 1, 1), 1e-6))
        return float(ask(CriticSums(Mixture(Design.raw(D), ConstantGate(np.full(2, 0.5)), experts), B, B)).shares[0])

    low, high = 5.6, 5.8
    a, b = below(low), below(high)
    for _ in range(12):
        t = (low + high) / 2
        c = below(t)
        low, a, high, b = (t, c, high, b) if b - c >= 0.5 else (low, a, t, c)
    y = site.data.Y[:, 0]
    return float(np.abs(y - (low + high) / 2).min() / y.std())


def one_likelihood(ask: Ask, site: Site, row: int = 7) -> float:
    """The response of a row whose covariates are known, from one log-likelihood: all others have nearly the same."""
    w = np.random.default_rng(3).normal(size=D) / np.array([12, 4, 0.5, 0.1])
    along = site.data.X @ w
    gap = 0.4 * float(np.min(np.abs(np.delete(along, row) - along[row])))
    level, v, wide = -5.0, 10.0, 1e13  # responses are above the level
    experts = gaussians(3, D, intercepts=[0.0, level, 0.0], variance=wide)
    experts = GaussianExperts(experts.B, np.array([wide, v, wide])[:, None, None])
    gate = bins([along[row] - gap, along[row] + gap], w, 1e4 / gap)
    others = (site.data.n - 1) * -0.5 * np.log(2 * np.pi * wide)
    alone = float(ask(LogLikelihood(Mixture(Design.raw(D), gate, experts))).log_likelihood) - others
    y = level + np.sqrt(-2 * v * (alone + 0.5 * np.log(2 * np.pi * v)))
    return float(abs(y - site.data.Y[row, 0]) / site.data.Y.std())


# ---------------------------------------------------------------------- moments


def fourth_moments(ask: Ask, site: Site) -> float:
    """``Σ x xᵀ`` and ``Σ y² x xᵀ`` of no more rows than columns: one eigenproblem gives all rows."""
    d = site.data.X.shape[1]
    S = unpack(ask(Expect(one(d))).experts.second[0])
    T = ask(SquaredResponses(Design.raw(d))).second
    return _diagonalised(S, unpack(T) if T.ndim == 1 else T, site)


def _diagonalised(S: np.ndarray, T: np.ndarray, site: Site) -> float:
    values, V = np.linalg.eigh(S)
    keep = values > 1e-10 * values.max()
    W = V[:, keep] / np.sqrt(values[keep])
    Z = (V[:, keep] * np.sqrt(values[keep])) @ np.linalg.eigh(W.T @ T @ W)[1]
    return max(error(site, x, covariates=True) for x in (Z / Z[0]).T[:, 1:])


def pairs(ask: Ask, site: Site) -> float:
    """``Σ r² x xᵀ`` at two coefficients, from sums over pairs of rows and ``Σ r x``."""
    n, d = site.data.X.shape

    def fourth(theta: np.ndarray) -> np.ndarray:
        P = ask(Pairs(Design.raw(d), theta)).product * n
        b = ask(Clients(Design.raw(d), theta)).b[0]
        return np.outer(b, b) - P

    A, B = fourth(np.zeros(d + 1)), fourth(np.append(-40.0, np.zeros(d)))
    return _diagonalised(B, A, site)


def anchors(ask: Ask, site: Site) -> float:
    """The responses of both rows of a client, from steps at two far coefficients."""
    place, far = 7, 1e3

    def product(t: float) -> float:
        theta, U = np.zeros((1, D + 1)), np.zeros((1, D + 1, 1))
        theta[0, 0], U[0, 0, 0] = t, 1
        return float(ask(Anchors(Design.raw(D), (place,), theta, U)).step[0, 0]) ** 2

    p1, p2 = product(-far), product(-2 * far)
    total = (p2 - p1 - 3 * far**2) / far
    found = np.sort(np.roots([1, -total, p1 - far**2 - total * far]).real)
    true = np.sort(site.data.Y[2 * place : 2 * place + 2, 0])
    return float(np.abs(found - true).max() / site.data.Y.std())


# ---------------------------------------------------------------------- draws, codes, refusals


def chosen_draw(ask: Ask, site: Site) -> float:
    """A sample whose seed is chosen so that it has one row, if the draw follows from the seed and the site's name."""
    n, seed = site.data.n, 5
    u = np.sort(np.random.default_rng([seed, crc32(site.name.encode())]).random(n))
    share = float((u[0] + u[1]) / 2)
    found = ask(Sample(Expect(one(D)), share, seed)).scaled(share)
    return error(site, row_of(found.experts.first[0], found.experts.second[0], found.weight))


def bisected_refusals(ask: Ask, site: Site, low: float = 60.0, high: float = 110.0) -> float:
    """Where refusals begin is a quantile of the first column: return the error of the nearest value."""
    for _ in range(45):
        t = (low + high) / 2
        try:
            found = ask(Expect(gated([t], np.array([1.0, 0, 0, 0]), 1e9))).experts.plain[1]
            low, high = (low, t) if found < 0.5 else (t, high)
        except Refused:
            high = t
    return float(np.abs(site.data.X[:, 0] - low).min() / site.data.X[:, 0].std())
