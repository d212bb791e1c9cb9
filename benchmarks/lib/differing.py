"""What the studies of sites that differ share: simulations, local fits that are kept, and the baselines.

The simulation is that of Y. Tian, H. Weng and Y. Feng (arXiv:2310.15330, appendix B.1): five components in ten
dimensions at ``θ_r + h z / ‖z‖`` in each site, shares from Dirichlet(5, …, 5), and sites of noise. The baselines are
vectorised over sites and over settings; they take covariances (or the noise) as known to be 1, as their authors do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage

from benchmarks.lib.sites import kept_answers
from benchmarks.lib.study import stopwatch
from consilience.fit import Specification
from consilience.messages import FitSite, LocalFit, decode, encode
from consilience.messages.questions import question_for
from consilience.methods.per_site.local_fits import relabel, typical
from consilience.model import ConstantGate, GaussianExperts, Mixture, Rows
from consilience.model.summary import column_summary
from consilience.runs import Reply
from consilience.site import Site, answer, respond

K, D = 5, 10
THETA = np.array(
    [
        [1, 0, 3, -1, 1, -1, 0, 1, 1, 1],
        [0, 1, -1, -3, 2, -1, 2, -1, 1, 1],
        [-3, -1, 2, -1, 2, -1, 1, -3, -1, -2],
        [1, -2, 0, -1, -2, 2, 1, 3, 1, -1],
        [3, 1, 2, -1, -2, 1, 2, -1, -1, 2],
    ],
    dtype=float,
)
PERMUTATIONS = np.array(list(permutations(range(K))))
STEPS = (0.55, 0.75, 0.95, 1.15, 1.35)
"""``C_η`` of FedGrEM."""
PAPER_STEP = 0.95
DECAY, STRENGTH, ITERATIONS, TOL = 0.1, 2.0, 1000, 1e-5


@dataclass(frozen=True)
class Simulated:
    """Rows of each site, what they were drawn from (None for a site of noise), and the model to fit."""

    rows: list[Rows]
    theta: list[np.ndarray | None]
    shares: list[np.ndarray | None]
    specification: Specification

    @property
    def honest(self) -> list[int]:
        return [m for m, theta in enumerate(self.theta) if theta is not None]

    @property
    def columns(self) -> tuple[int, int]:
        return self.rows[0].X.shape[1], self.rows[0].Y.shape[1]


def simulated(model: str, h: float, seed: int, *, M: int = 10, n: int = 150, outliers: int = 1) -> Simulated:
    """Sites of a Gaussian mixture (``"gmm"``) or a mixture of regressions (``"mor"``); the last are noise.

    A site of noise is as in the authors' code: N(2.5, 4 I), or one regression on (-3, …, -3).
    """
    rng = np.random.default_rng([{"gmm": 0, "mor": 1}[model], round(100 * h), seed])
    rows, truth, shares = [], [], []
    for m in range(M):
        good = m < M - outliers
        z = rng.normal(size=(K, D))
        theta = THETA + h * z / np.linalg.norm(z, axis=1, keepdims=True)
        w = rng.dirichlet(np.full(K, 5.0))
        labels = rng.choice(K, n, p=w)
        if model == "gmm":
            Y = theta[labels] + rng.normal(size=(n, D)) if good else rng.normal(2.5, 2.0, (n, D))
            rows.append(Rows(np.empty((n, 0)), Y))
        else:
            X = rng.normal(size=(n, D))
            B = theta[labels] if good else np.full((n, D), -3.0)
            rows.append(Rows(X, (np.sum(X * B, axis=1) + rng.normal(size=n))[:, None]))
        truth.append(theta if good else None)
        shares.append(w if good else None)
    return Simulated(rows, truth, shares, specification(model))


def specification(model: str) -> Specification:
    """One covariance (or noise) for all components, as in mclust's EEE."""
    return Specification(K=K, gate="constant", structure="tied", intercept=model == "gmm")


def ward(rows: Rows, specification: Specification) -> Mixture:
    """A start from Ward's clusters: the nearest to the hierarchical start of mclust."""
    labels = fcluster(linkage(rows.Y, "ward"), K, "maxclust") - 1
    blank = specification.blank(column_summary(rows))
    means = np.array([rows.Y[labels == k].mean(axis=0) for k in range(K)])
    within = np.cov((rows.Y - means[labels]).T, bias=True)
    shares = np.bincount(labels, minlength=K) / len(labels)
    return replace(blank, gate=ConstantGate(shares), experts=GaussianExperts(means[:, :, None], within, "tied"))


def local_fits(name: str, data: Simulated, *, seed: int, start: str = "own") -> dict[str, LocalFit]:
    """The sites' own fits, kept in ``scratch``; from the library's starts, or from Ward's clusters."""

    def make() -> tuple[list[bytes], list[float]]:
        messages, seconds = [], []
        for m, rows in enumerate(data.rows):
            begin = ward(rows, data.specification) if start == "ward" else None
            question = FitSite(data.specification, (K,), seed, start=begin, columns=data.columns, describe=False)
            with stopwatch() as watch:
                messages.append(encode(answer(question, Site(str(m), rows))))
            seconds.append(watch.cpu)
        return messages, seconds

    return {str(m): decode(message) for m, message in enumerate(kept_answers(name, make)[0])}


class KeptFits:
    """An engine of this process whose sites have their own fits at hand."""

    def __init__(self, rows: Sequence[Rows], fits: Mapping[str, LocalFit]) -> None:
        self._sites = {name: Site(name, part) for name, part in zip(fits, rows, strict=True)}
        self._fits = {name: encode(fit, self._sites[name].watched().fingerprint) for name, fit in fits.items()}
        self.sites = tuple(fits)

    def ask(
        self, number: int, question: bytes, sites: Sequence[str], *, total: bool, timeout: float | None
    ) -> Iterator[list[Reply]]:
        asked = decode(question)
        for name in sites:
            mine = question_for(asked, self.sites.index(name))
            message = self._fits[name] if isinstance(mine, FitSite) else respond(mine, self._sites[name])
            yield [Reply(number, (name,), message, (b"",), 0.0)]


# ---------------------------------------------------------------------- errors


def max_errors(
    data: Simulated, theta: Mapping[int, np.ndarray], shares: Mapping[int, np.ndarray]
) -> tuple[float, float]:
    """``max_m min_σ max_k`` of ``‖θ_mσ(k) - θ*_mk‖`` and of ``|w_mσ(k) - w*_mk|``, each with its own σ."""
    of_theta = [_bottleneck(_distances(theta[m], data.theta[m])) for m in data.honest]
    of_shares = [_bottleneck(np.abs(shares[m][:, None] - data.shares[m])) for m in data.honest]
    return max(of_theta), max(of_shares)


def _distances(a: np.ndarray, b: Any) -> np.ndarray:
    return np.linalg.norm(a[:, None] - b, axis=2)


def _bottleneck(cost: np.ndarray) -> float:
    return float(cost[PERMUTATIONS, np.arange(K)].max(axis=1).min())


def parameters_of(mixture: Mixture) -> tuple[np.ndarray, np.ndarray]:
    """``θ (K, D)`` and the shares ``(K,)``; one regression is K equal ones."""
    raw = mixture.raw()
    return np.broadcast_to(raw.experts.B.reshape(-1, D), (K, D)), np.broadcast_to(
        raw.gate.probabilities / (K / raw.K), K
    )


# ---------------------------------------------------------------------- the baselines


@dataclass(frozen=True)
class Batch:
    """Data of all sites as arrays; ``y`` is None for Gaussian mixtures."""

    X: np.ndarray  # (M, n, D)
    y: np.ndarray | None  # (M, n)

    @classmethod
    def of(cls, data: Simulated) -> Batch:
        if data.columns[0] == 0:
            return cls(np.array([rows.Y for rows in data.rows]), None)
        return cls(np.array([rows.X for rows in data.rows]), np.array([rows.Y[:, 0] for rows in data.rows]))

    def step(self, theta: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """E-step at ``theta (S, M, K, D)``, ``w (S, M, K)``: the mean gradient, and the new shares."""
        product = theta @ self.X.transpose(0, 2, 1)  # (S, M, K, n)
        if self.y is None:
            log = product - 0.5 * np.sum(theta**2, axis=-1)[..., None]
        else:
            residual = self.y[:, None] - product
            log = -0.5 * residual**2
        log += np.log(np.maximum(w, 1e-300))[..., None]
        log -= log.max(axis=2, keepdims=True)
        gamma = np.exp(log)
        gamma /= gamma.sum(axis=2, keepdims=True)
        shares = gamma.mean(axis=-1)
        n = self.X.shape[1]
        if self.y is None:
            return gamma @ self.X / n - theta * shares[..., None], shares
        return (gamma * residual) @ self.X / n, shares


def gradient_em(batch: Batch, theta: np.ndarray, w: np.ndarray, eta: np.ndarray, centre) -> tuple[Any, Any, int]:
    """Gradient EM from ``theta (S, M, K, D)`` with steps ``eta (S, M, K)`` and a central step, until nothing moves."""
    lam, n, M = 1.0, batch.X.shape[1], theta.shape[1]
    for t in range(1, ITERATIONS + 1):  # noqa: B007 - the number of rounds is returned
        gradient, w = batch.step(theta, w)
        lam = DECAY * lam + STRENGTH * np.sqrt(theta.shape[-1] + np.log(M))
        with np.errstate(over="ignore", invalid="ignore"):
            moved = centre(np.clip(theta + eta[..., None] * gradient, -1e4, 1e4), lam / np.sqrt(n))
        change, theta = np.nanmax(np.abs(moved - theta)), moved
        if change <= TOL:
            break
    return theta, w, t


def alone(theta: np.ndarray, _: float) -> np.ndarray:
    """No central step."""
    return theta


def one_sweep(theta: np.ndarray, threshold: float) -> np.ndarray:
    """The central step as in the authors' code: mean, threshold, mean of what is left, threshold."""
    centre = theta.mean(axis=1, keepdims=True)
    for _ in range(2):
        gap = theta - centre
        size = np.linalg.norm(gap, axis=-1, keepdims=True)
        kept = np.maximum(0.0, 1 - threshold / np.maximum(size, 1e-300)) * gap
        after, centre = centre + kept, (theta - kept).mean(axis=1, keepdims=True)
    return after


def converged(theta: np.ndarray, threshold: float) -> np.ndarray:
    """The central step solved to convergence, ``theta (S, M, K, D)``: the Huber centre by reweighting."""
    centre = np.median(theta, axis=1, keepdims=True)
    for _ in range(500):
        size = np.linalg.norm(theta - centre, axis=-1, keepdims=True)
        share = threshold / np.maximum(size, threshold)
        before, centre = centre, (share * theta).sum(axis=1, keepdims=True) / share.sum(axis=1, keepdims=True)
        if np.abs(centre - before).max() <= 1e-9:
            break
    gap = theta - centre
    size = np.linalg.norm(gap, axis=-1, keepdims=True)
    return centre + np.maximum(0.0, 1 - threshold / np.maximum(size, 1e-300)) * gap


def fed_em(batch: Batch, theta: np.ndarray, w: np.ndarray) -> tuple[Any, Any, int]:
    """FedEM: full local M-steps, components averaged over sites; ``theta (M, K, D)``."""
    theta, w = theta[None], w[None]
    for t in range(1, ITERATIONS + 1):  # noqa: B007 - the number of rounds is returned
        _, shares = batch.step(theta, w)
        own = _m_step(batch, theta, w)
        moved, w = np.broadcast_to(own.mean(axis=1, keepdims=True), theta.shape), shares
        change, theta = np.abs(moved - theta).max(), moved
        if change <= TOL:
            break
    return theta[0], w[0], t


def _m_step(batch: Batch, theta: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The maximiser of each site, by one full step: mean of the rows, or weighted least squares."""
    gradient, shares = batch.step(theta, w)
    if batch.y is None:
        return theta + gradient / np.maximum(shares, 1e-12)[..., None]
    product = theta @ batch.X.transpose(0, 2, 1)
    log = -0.5 * (batch.y[:, None] - product) ** 2 + np.log(np.maximum(w, 1e-300))[..., None]
    gamma = np.exp(log - log.max(axis=2, keepdims=True))
    gamma /= gamma.sum(axis=2, keepdims=True)
    S = np.einsum("smkn,mna,mnb->smkab", gamma, batch.X, batch.X, optimize=True) / batch.X.shape[1]
    return theta + np.linalg.solve(S + 1e-8 * np.eye(theta.shape[-1]), gradient[..., None])[..., 0]


def baselines(data: Simulated, fits: Mapping[str, LocalFit]) -> dict[str, tuple[Any, Any, int]]:
    """Local-GrEM, FedEM and FedGrEM with one sweep, from the sites' own fits in common labels."""
    batch = Batch.of(data)
    design = typical([fit.summary for fit in fits.values()]).design(data.specification.intercept)
    common = relabel([fit.model.mixture.in_coordinates(design) for fit in fits.values()])
    raw = [mixture.raw() for mixture in common]
    theta = np.array([parameters_of(mixture)[0] for mixture in raw])
    w = np.array([parameters_of(mixture)[1] for mixture in raw])
    S = len(STEPS)
    eta = np.array(STEPS)[:, None, None] / np.maximum(w, 1e-3)
    found = gradient_em(batch, np.repeat(theta[None], S, 0), np.repeat(w[None], S, 0), eta, one_sweep)
    ours = PAPER_STEP / np.maximum(w, 1e-3)[None]
    exact = gradient_em(batch, theta[None], w[None], ours, converged)
    local = gradient_em(batch, theta[None], w[None], np.full((1, *w.shape), 0.1), alone)
    methods = {
        f"FedGrEM, one sweep, C_η = {step}": (found[0][i], found[1][i], found[2]) for i, step in enumerate(STEPS)
    }
    alone_and_exact = {"Local-GrEM": local, "FedGrEM": exact}
    return {
        **{name: (a[0], b[0], t) for name, (a, b, t) in alone_and_exact.items()},
        "FedEM": fed_em(batch, theta, w),
        **methods,
    }
