"""One exchange with bad sites among twenty: whether each of them is named, and what they cost.

N = 100,000 rows over M = 20 sites, K = 4, d = 20. Six sites (30 %) are bad, one kind after the other: stuck in a poor
local optimum (a converged fit in which one expert stands for two), a random model,
coefficients times 10, their sign flipped, variances of 1e-4, copies of one another, a gate collapsed to one expert.
What a site says of its rows (counts, moments, likelihood) stays as it was, so that nothing but the model gives it away.
Aims: the deficit to the truth at most 1.3 times that of the honest sites alone; each bad site named; with no bad site
and covariates that differ between sites nobody named, in 20 of 20 draws.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from benchmarks.lib.metrics import mean_log_likelihood
from benchmarks.lib.sites import GENERATORS, LocalFits, local_fits, simulated, split, split_skewed
from benchmarks.lib.study import Record, Study, rounded, table
from consilience.aggregate import Combination, combine_models
from consilience.aggregate.combine.site_model import SiteModel
from consilience.errors import ConsilienceWarning
from consilience.fit import Specification
from consilience.messages import FitSite
from consilience.model import GaussianExperts, Mixture, Rows, SoftmaxGate
from consilience.site import Site, answer

M, BAD = 20, 6
TEST_ROWS = 1_000_000


def stuck(model: SiteModel, rows: Rows, rng: np.random.Generator) -> SiteModel:
    """A fit that ended in a poor optimum: starts in which an expert stands for two are tried until one does."""
    while True:
        question = FitSite(Specification(K=4), (4,), seed=0, start=merged(model.mixture, rows, rng))
        found = answer(question, Site("stuck", rows)).model
        if found is not None and found.log_likelihood_per_row < model.log_likelihood_per_row - 0.05:
            return found


def merged(mixture: Mixture, rows: Rows, rng: np.random.Generator) -> Mixture:
    """A mixture in which one expert stands for two, and another is there twice."""
    B, variance, alpha = mixture.experts.B.copy(), mixture.experts.covariance.copy(), mixture.gate.alpha.copy()
    keep, lost, twice = rng.permutation(mixture.K)[:3]
    B[keep], variance[keep] = (B[keep] + B[lost]) / 2, rows.Y.var()
    B[lost], variance[lost], alpha[lost] = B[twice] + 0.01, variance[twice], alpha[twice]
    return Mixture(mixture.design, SoftmaxGate(alpha - alpha.mean(axis=0)), GaussianExperts(B, variance))


def with_mixture(model: SiteModel, B=None, variance=None, alpha=None) -> SiteModel:
    """The same words about other parameters."""
    old = model.mixture
    experts = GaussianExperts(
        old.experts.B if B is None else B, old.experts.covariance if variance is None else variance
    )
    return replace(model, mixture=Mixture(old.design, SoftmaxGate(old.gate.alpha if alpha is None else alpha), experts))


def random_model(model: SiteModel, rng: np.random.Generator) -> SiteModel:
    alpha = rng.uniform(-5, 5, model.mixture.gate.alpha.shape)
    return with_mixture(model, rng.uniform(-5, 5, model.mixture.experts.B.shape), alpha=alpha - alpha.mean(axis=0))


def collapsed(model: SiteModel) -> SiteModel:
    alpha = np.zeros_like(model.mixture.gate.alpha)
    alpha[:, 0], alpha[0, 0] = -5.0, 15.0
    return with_mixture(model, alpha=alpha)


ATTACKS = (
    "stuck in a local optimum",
    "random model",
    "coefficients × 10",
    "sign flipped",
    "tiny variance",
    "copies of one another",
    "gate collapsed",
)


def attacked(attack: str, model: SiteModel, first: SiteModel, rows: Rows, rng: np.random.Generator) -> SiteModel:
    """What a bad site sends in place of ``model``; ``first`` is the model of the first bad site."""
    experts = model.mixture.experts
    if attack == "stuck in a local optimum":
        return stuck(model, rows, rng)
    sent = {
        "random model": random_model(model, rng),
        "coefficients × 10": with_mixture(model, 10 * experts.B),
        "sign flipped": with_mixture(model, -experts.B),
        "tiny variance": with_mixture(model, variance=np.full_like(experts.covariance, 1e-4)),
        "copies of one another": first,
        "gate collapsed": collapsed(model),
    }
    return sent[attack]


def combined(models: dict[str, SiteModel], fits: LocalFits) -> Combination:
    penalty = Specification(K=4).penalty(fits.summary)
    return combine_models(models, 4, design=fits.summary.design(True), penalty=penalty)


def replication(key: str) -> Record:
    name, n, seed = key.split("/")
    data = simulated(name, int(n), int(seed))
    sites = split(data, M)
    fits = local_fits(f"trust-{name}-{n}-{seed}", sites, seed=int(seed))
    models = {site: fit.model for site, fit in fits.named().items()}
    test = GENERATORS[name](TEST_ROWS, random_state=10_000 + int(seed), truth_state=int(seed))
    rows = Rows(test.X, test.y[:, None])
    best = mean_log_likelihood(data.truth, rows)
    rng = np.random.default_rng([int(seed), 5])
    bad = sorted(rng.choice(M, BAD, replace=False).tolist())
    names = list(models)
    honest = combined({s: m for i, (s, m) in enumerate(models.items()) if i not in bad}, fits)
    all_honest = combined(models, fits)
    base = best - mean_log_likelihood(honest.mixture, rows)
    record: Record = {
        "base": base,
        "alike": honest_named(all_honest, dict(zip(models, sites, strict=True)), models, data.truth),
        "skewed": skewed(name, int(n), int(seed)),
    }
    for attack in ATTACKS:
        sent = dict(models)
        for i in bad:
            sent[names[i]] = attacked(attack, models[names[i]], models[names[bad[0]]], sites[i], rng)
        result = combined(sent, fits)
        named = set(result.named)
        record[attack] = {
            "ratio": (best - mean_log_likelihood(result.mixture, rows)) / base,
            "bad named": sum(names[i] in named for i in bad),
            "honest named": sum(names[i] in named for i in range(M) if i not in bad),
        }
    return record


def skewed(name: str, n: int, seed: int) -> Record:
    """Honest sites that are named where covariates differ between sites."""
    data = simulated(name, n, seed)
    sites = split_skewed(data, M, seed)
    fits = local_fits(f"trust-skewed-{name}-{n}-{seed}", sites, seed=seed)
    rows = dict(zip(fits.named(), sites, strict=True))
    models = {site: fit.model for site, fit in fits.named().items() if fit.model is not None}
    return honest_named(combined(models, fits), rows, models, data.truth)


def honest_named(result: Combination, rows: dict[str, Rows], models: dict[str, SiteModel], truth: Mixture) -> Record:
    """How many sites are named, and how many of these are stuck: a start at the truth ends at least 5 higher."""
    stuck_too = 0
    for site in result.named:
        question = FitSite(Specification(K=4), (4,), seed=0, start=truth)
        better = answer(question, Site(site, rows[site])).model
        stuck_too += better is not None and better.log_likelihood > models[site].log_likelihood + 5
    return {"named": len(result.named), "stuck": stuck_too}


def summary(attack: str, name: str, records: list[Record]) -> Record:
    found = [r[attack] for r in records]
    ratios = [f["ratio"] for f in found]
    return {
        "data": name,
        "bad sites": attack,
        "draws": len(found),
        "deficit / honest alone": rounded(float(np.median(ratios))),
        "largest": rounded(float(np.max(ratios))),
        "bad sites named": f"{sum(f['bad named'] for f in found)} of {BAD * len(found)}",
        "honest sites named": sum(f["honest named"] for f in found),
    }


def quiet(kind: str, name: str, records: list[Record]) -> Record:
    found = [r[kind] for r in records]
    return {
        "data": name,
        "covariates of sites": kind,
        "nobody named": f"{sum(f['named'] == 0 for f in found)} of {len(found)} draws",
        "sites named": sum(f["named"] for f in found),
        "of these stuck": sum(f["stuck"] for f in found),
    }


def main() -> None:
    study = Study(__file__, __doc__)
    warnings.simplefilter("ignore", ConsilienceWarning)
    n, repeats = (20_000, 1) if study.quick else (100_000, 10)
    names = ["soft"] if study.quick else list(GENERATORS)
    records = study.replicate((f"{name}/{n}/{seed}" for seed in range(repeats) for name in names), replication)
    of = {name: [r for r in records if r["key"].startswith(name)] for name in names}
    study.save(
        table("Six bad sites of twenty", [summary(attack, name, of[name]) for name in names for attack in ATTACKS]),
        table(
            "No bad site: draws in which nobody is named, and sites whose fit is stuck in a poor optimum by itself",
            [quiet(kind, name, of[name]) for name in names for kind in ("alike", "skewed")],
        ),
    )


if __name__ == "__main__":
    main()
