"""What one could do with the models of sites instead of reducing them: estimators that serve comparison only.

All take site models in common coordinates (:func:`common`). Names as in Chamroukhi and Pham, arXiv:2312.09877v2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logit, logsumexp

from consilience.aggregate import SupportComponents, SupportPart
from consilience.aggregate.combine.components import joined_experts
from consilience.aggregate.combine.pool import to_common_coordinates
from consilience.aggregate.combine.site_model import SiteModel
from consilience.aggregate.robust.estimate import consistent_labels
from consilience.model import Design, GaussianExperts, Mixture, Rows, SoftmaxGate, multinomial
from consilience.model.families.categorical import CategoricalExperts
from consilience.model.kernels import Workspace, second_moments
from consilience.numerics.arrays import log_sum_exp, unpack

BLOCK = 2**23
"""Most numbers of a table of divergences that is held at once."""

# ---------------------------------------------------------------- one set of labels


def common(models: Sequence[SiteModel], design: Design) -> list[SiteModel]:
    """The models in the coordinates of ``design``, their experts in an order on which most sites agree."""
    moved = [to_common_coordinates(model, design) for model in models]
    K = moved[0].mixture.K
    points = np.array([model.mixture.experts.free_coefficients().reshape(K, -1) for model in moved])
    orders = consistent_labels(points).permutations
    return [reordered(model, order) for model, order in zip(moved, orders, strict=True)]


def by_intercept(models: Sequence[SiteModel]) -> list[SiteModel]:
    """The same with experts in the order of their intercepts on raw covariates, as the paper's identifiability asks."""
    return [reordered(model, np.argsort(model.mixture.raw().experts.B[:, 0, 0])) for model in models]


def reordered(model: SiteModel, order: np.ndarray) -> SiteModel:
    return replace(
        model,
        mixture=model.mixture.permuted(order),
        label_counts=model.label_counts[order],
        mass=model.mass[order],
        second=model.second[order],
        precision=model.precision[order] if len(model.precision) else model.precision,
    )


def shares(models: Sequence[SiteModel]) -> np.ndarray:
    """``λ_m``, the sites' shares of all rows, ``(M,)``."""
    weight = np.array([model.weight for model in models])
    return weight / weight.sum()


# ---------------------------------------------------------------- averages


def average(models: Sequence[SiteModel]) -> Mixture:
    """W: every parameter averaged over sites, label by label, with weights ``λ_m``."""
    weight = shares(models)

    def mean(arrays: list[np.ndarray]) -> np.ndarray:
        return np.tensordot(weight, np.array(arrays), axes=1)

    experts = GaussianExperts(
        mean([m.mixture.experts.B for m in models]), mean([m.mixture.experts.matrices for m in models])
    )
    return Mixture(models[0].mixture.design, SoftmaxGate(mean([m.mixture.gate.alpha for m in models])), experts)


def fisher(models: Sequence[SiteModel], X: np.ndarray, ridge: float) -> Mixture:
    """Averages weighted by information: ``(Σ J_m)⁻¹ Σ J_m θ_m`` for the coefficients of each expert and for the gate.

    Experts have the information that sites send; a gate has that of known labels, on the support ``X (S, d)``.
    Variances are averaged by mass.
    """
    first = models[0].mixture
    K, q, p = first.experts.B.shape
    informed = [model for model in models if len(model.precision)]
    J = np.array([unpack(model.precision) for model in informed])  # (M, K, f, f)
    b = np.array([model.mixture.experts.free_coefficients().reshape(K, -1) for model in informed])
    B = np.array([np.linalg.solve(J[:, k].sum(axis=0), np.einsum("mab,mb->a", J[:, k], b[:, k])) for k in range(K)])
    mass = np.array([model.mass for model in models])
    matrices = np.array([model.mixture.experts.matrices for model in models])
    covariance = np.einsum("mk,mkab->kab", mass / mass.sum(axis=0), matrices)
    return Mixture(first.design, fisher_gate(models, X, ridge), GaussianExperts(B.reshape(K, q, p), covariance))


def slope_ridge(design: Design, ridge: float) -> np.ndarray:
    """Second derivative of a ridge on all coefficients but the intercept, (p, p)."""
    return ridge * np.diag((np.arange(design.p) >= design.intercept).astype(float))


def fisher_gate(models: Sequence[SiteModel], X: np.ndarray, ridge: float) -> SoftmaxGate:
    design, K = models[0].mixture.design, models[0].mixture.K
    panel, workspace = design.panel(X), Workspace()
    R = multinomial.ridge_matrix(K, slope_ridge(design, ridge))
    total, right = R.copy(), np.zeros((K - 1) * design.p)
    for model in models:
        pi = model.mixture.gate.evaluate(panel)[1]
        mass = np.full(len(X), model.weight / len(X))
        curvature = second_moments(panel, multinomial.curvature_rows(pi, mass, design.p), workspace)
        H = multinomial.blocks_to_matrix(curvature, K - 1, design.p)
        total += H
        right += H @ multinomial.contrasts(model.mixture.gate.alpha).ravel()
    return SoftmaxGate(multinomial.centre_coefficients(np.linalg.solve(total, right).reshape(K - 1, design.p)))


# ---------------------------------------------------------------- one of the sites, all of the sites


def middle(models: Sequence[SiteModel], X: np.ndarray) -> Mixture:
    """Mid: the local model with the least weighted sum of (relaxed) transport divergences from the others, on ``X``."""
    return models[int(np.argmin(shares(models) @ divergences(models, X)))].mixture


def divergences(models: Sequence[SiteModel], X: np.ndarray) -> np.ndarray:
    """Relaxed transport divergence from each model to each, ``(M, M)``, averaged over ``X (S, d)``."""
    M, K = len(models), models[0].mixture.K
    experts = joined_experts([model.mixture.experts for model in models])
    panel = models[0].mixture.design.panel(X)
    pi = np.concatenate([model.mixture.gate.evaluate(panel)[1] for model in models])  # (M K, S)
    total, size = np.zeros((M * K, M)), max(BLOCK // (M * K) ** 2, 1)
    for i in range(0, len(X), size):
        cost = experts.divergence(experts, panel[:, i : i + size])
        nearest = cost.reshape(M * K, M, K, -1).min(axis=2)
        total += np.einsum("ls,lms->lm", pi[:, i : i + size], nearest)
    return total.reshape(M, K, M).sum(axis=1) / len(X)


@dataclass(frozen=True)
class Everyone:
    """All M K experts as they are: ``Σ_m λ_m f_m(y | x)``, the mixture that reduction starts from."""

    models: Sequence[SiteModel]

    def log_likelihood(self, rows: Rows) -> float:
        """Per row."""
        parts = np.array([model.mixture.log_density(rows) for model in self.models])
        return float(np.mean(logsumexp(parts + np.log(shares(self.models))[:, None], axis=0)))

    def mean(self, X: np.ndarray) -> np.ndarray:
        """``E[y | x]``, ``(n, q)``."""
        each = zip(shares(self.models), self.models, strict=True)
        return np.sum([share * model.mixture.mean(X) for share, model in each], axis=0)


# ---------------------------------------------------------------- the plan per row


def shared_part(models: Sequence[SiteModel], X: np.ndarray) -> SupportPart:
    """All experts of all sites on the support ``X (S, d)``, with the mass that ``λ_m`` and the gates give them."""
    panel = models[0].mixture.design.panel(X)
    weights = [model.weight / len(X) for model in models]
    mass = [w * model.mixture.gate.evaluate(panel)[1] for w, model in zip(weights, models, strict=True)]
    return SupportPart(joined_experts([model.mixture.experts for model in models]), panel, np.concatenate(mass))


def gate_by_responses(
    models: Sequence[SiteModel], reduced: Mixture, X: np.ndarray, y: np.ndarray, ridge: float
) -> Mixture:
    """The reduced experts with the gate of the authors' public code.

    There the gate is fitted to posterior labels of the support, for which its responses are used: an EM step of these
    rows. The text of the paper fits it to the plan, without responses.
    """
    part = shared_part(models, X)
    labels, _ = part.row_plan(reduced.experts)
    prior = np.array([np.where(labels == k, part.mass, 0.0).sum(axis=0) for k in range(reduced.K)])
    gap = y - reduced.experts.mean(part.panel)[:, 0]
    variance = reduced.experts.variances
    log_density = -0.5 * (np.log(variance) + gap**2 / variance)
    joint = np.log(np.maximum(prior, 1e-300)) + log_density
    _, tau = log_sum_exp(joint)
    start = average(models).gate.alpha[matched(reduced.experts, models)]
    alpha = multinomial.fit_softmax(start, part.panel, tau, ridge=slope_ridge(reduced.design, ridge))
    return replace(reduced, gate=SoftmaxGate(alpha))


def matched(experts: GaussianExperts, models: Sequence[SiteModel]) -> np.ndarray:
    """For each expert the label among the sites' that is nearest."""
    centre = np.mean([model.mixture.experts.B for model in models], axis=0)
    distance = np.sum((experts.B[:, None] - centre) ** 2, axis=(2, 3))
    return np.argmin(distance, axis=1)


# ---------------------------------------------------------------- logistic experts

Update = Callable[[SupportPart, np.ndarray, CategoricalExperts], CategoricalExperts]


def logit_update(part: SupportPart, labels: np.ndarray, current: CategoricalExperts) -> CategoricalExperts:
    """(S14): least squares, without weights, on the logits of mean probabilities; points without mass are left out."""
    mass, mean, _ = part.gathered(labels, current.K)
    B = current.B.copy()
    for k in range(current.K):
        there = mass[k] > 0
        target = logit(np.clip(mean[k, 1, there], 1e-12, 1 - 1e-12))
        b = np.linalg.lstsq(part.panel[:, there].T, target, rcond=None)[0]
        B[k] = [-b / 2, b / 2]
    return CategoricalExperts(B)


def newton_update(part: SupportPart, labels: np.ndarray, current: CategoricalExperts) -> CategoricalExperts:
    """Ours: the minimiser of (S13), a logistic regression on soft labels."""
    return SupportComponents((part,), per_row=True).barycentres(labels, current)


def descent(part: SupportPart, start: CategoricalExperts, update: Update, iterations: int = 40) -> list[float]:
    """The objective of the plan per row over iterations with an update, until the plan stays."""
    experts = start
    labels, value = part.row_plan(experts)
    trace = [value]
    for _ in range(iterations):
        experts, before = update(part, labels, experts), labels
        labels, value = part.row_plan(experts)
        trace.append(value)
        if np.array_equal(before, labels):
            break
    return trace
