"""Models of sites for tests of what is made of them: fitted to rows of a known truth, or computed at any mixture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from consilience.aggregate import Combination
from consilience.aggregate.combine.site_model import SiteModel, covariate_summary
from consilience.datasets import soft
from consilience.fit import Specification, fit_mixture, infer
from consilience.fit.criteria import log_likelihood
from consilience.fit.parameters import parameters
from consilience.messages import FitSite
from consilience.model import Design, Mixture, Rows
from consilience.model.mixture import alignment
from consilience.model.summary import column_summary
from consilience.numerics.arrays import Array, IntArray, pack
from consilience.site import Site, answer
from simulated import Simulated, simulated


def model_at(mixture: Mixture, rows: Rows, seed: int = 0) -> SiteModel:
    """What a site with these rows says of a mixture, fitted or not; the precision is any."""
    rng, mixture = np.random.default_rng(seed), mixture.raw()
    tau = mixture.responsibilities(rows).T
    panel = mixture.design.panel(rows.X)
    gaussian = mixture.experts.family == "gaussian"
    f = len(mixture.experts.free_coefficients()) // mixture.K
    A = rng.normal(size=(mixture.K, f, f))
    return SiteModel(
        mixture,
        float(rows.n),
        tau.sum(axis=1),
        tau.sum(axis=1),
        pack(np.einsum("kn,an,bn->kab", tau, panel, panel)) if gaussian else np.empty((0, 0)),
        log_likelihood(mixture, rows),
        pack(A @ A.transpose(0, 2, 1) + np.eye(f)),
        covariate_summary(rows.X, np.ones(rows.n), rng) if rows.X.shape[1] else None,
        1.0 if rows.exposure is None else float(rows.exposure.mean()),
    )


def fitted_model(rows: Rows, specification: Specification, start: Mixture | None = None) -> SiteModel:
    """A site's model of its rows, from a start so that it is quick."""
    found = answer(FitSite(specification, (specification.K,), seed=0, start=start), Site("a site", rows)).model
    assert found is not None
    return found


def parted(rows: Rows, sites: int) -> dict[str, Rows]:
    """The rows dealt out to sites; whole groups where there are groups."""
    labels = np.arange(rows.n) if rows.groups is None else rows.groups.codes
    return {f"site {i}": rows.take(np.flatnonzero(labels % sites == i)) for i in range(sites)}


def fitted_models(case: Simulated, sites: int) -> dict[str, SiteModel]:
    """The models of sites that share the rows of a case."""
    parts = parted(case.rows, sites)
    return {name: fitted_model(rows, case.specification, case.truth) for name, rows in parts.items()}


def soft_sites(sites: int, n: int, *, K: int = 3, d: int = 4, seed: int = 0, apart: float = 0.0) -> dict[str, Rows]:
    """Sites with rows of one soft truth; their covariates lie around places ``apart`` standard deviations apart."""
    rng = np.random.default_rng([seed, 7])
    found = {}
    for i in range(sites):
        data = soft(n, n_experts=K, n_features=d, random_state=1000 * seed + i, truth_state=seed)
        X = data.X + apart * data.X.std(axis=0) * rng.normal(size=d) if apart else data.X
        y = data.truth.sample(X, rng)[0] if apart else data.y[:, None]
        found[f"site {i:02d}"] = Rows(X, y)
    return found


def soft_truth(*, K: int = 3, d: int = 4, seed: int = 0) -> Mixture:
    """The mixture behind :func:`soft_sites`."""
    return soft(10, n_experts=K, n_features=d, random_state=0, truth_state=seed).truth


def soft_models(
    sites: int, n: int, *, K: int = 3, d: int = 4, seed: int = 0, apart: float = 0.0
) -> dict[str, SiteModel]:
    """Their models, fitted from the truth."""
    truth = soft_truth(K=K, d=d, seed=seed)
    parts = soft_sites(sites, n, K=K, d=d, seed=seed, apart=apart)
    return {name: fitted_model(rows, Specification(K=K), truth) for name, rows in parts.items()}


def softly_categorical(C: int = 3, gate: str = "softmax", n: int = 1_000) -> Simulated:
    """Classes that overlap: the experts of :func:`simulated` are nearly separated."""
    case = simulated("categorical", gate=gate, n=n, C=C, seed=2)
    truth = replace(case.truth, experts=replace(case.truth.experts, B=0.4 * case.truth.experts.B))
    Y, labels = truth.sample(case.X, np.random.default_rng(3))
    return Simulated(Rows(case.X, Y), truth, case.specification, labels)


def relabelled(model: SiteModel, order: IntArray) -> SiteModel:
    """The same model with its experts named in another order."""
    return replace(
        model,
        mixture=model.mixture.permuted(order),
        label_counts=model.label_counts[order],
        mass=model.mass[order],
        second=model.second[order] if len(model.second) else model.second,
        precision=model.precision[order] if len(model.precision) else model.precision,
    )


def common_design(parts: Mapping[str, Rows], specification: Specification) -> Design:
    """The coordinates in which the coordinator combines."""
    first, *others = (column_summary(rows) for rows in parts.values())
    return sum(others, first).design(specification.intercept)


def in_errors_of_pooled(combination: Combination, case: Simulated) -> tuple[Array, Array]:
    """Distance of the combined parameters from the pooled fit's, in its standard errors; and those errors."""
    pooled = fit_mixture(case.rows, case.specification, rng=np.random.default_rng(0), start=case.truth)
    se = np.sqrt(np.diagonal(infer(pooled, case.rows).covariance))
    ours = combination.mixture.permuted(alignment(combination.mixture, pooled.mixture))
    gap = np.abs(parameters(ours).flat() - parameters(pooled.mixture).flat())
    return gap / se, se
