"""What it costs to combine a thousand sites, beside one local fit.

M = 1,000 sites with K = 8 experts and d = 50 covariates: their models are drawn around one truth with the scatter that
10,000 rows each would have, and described covariates as a site would. Aims: CPU below that of ONE default local fit of
10,000 rows at that K and d, in the same run; less than 1 GB of memory for the combination and its answers.
"""

from __future__ import annotations

import resource
import sys
import warnings
from dataclasses import replace

import numpy as np

from benchmarks.lib.study import Record, Study, rounded, stopwatch, table
from consilience.aggregate import combine_models
from consilience.aggregate.combine.site_model import SiteModel
from consilience.datasets import soft
from consilience.errors import ConsilienceWarning
from consilience.fit import Specification
from consilience.messages import FitSite, decode, encode
from consilience.messages.questions import LocalFit
from consilience.model import Mixture, Rows, SoftmaxGate
from consilience.numerics.arrays import unpack
from consilience.site import Site, answer


def scattered(model: SiteModel, rng: np.random.Generator) -> SiteModel:
    """The model of another site with rows of the same kind: parameters moved by about their standard errors."""
    mixture = model.mixture
    B = mixture.experts.B.copy()
    for k, J in enumerate(unpack(model.precision)):
        B[k, 0] += np.linalg.solve(np.linalg.cholesky(J).T, rng.standard_normal(len(J)))
    alpha = mixture.gate.alpha + 0.02 * rng.standard_normal(mixture.gate.alpha.shape)
    return replace(
        model,
        mixture=Mixture(mixture.design, SoftmaxGate(alpha - alpha.mean(axis=0)), replace(mixture.experts, B=B)),
    )


def peak() -> float:
    """Largest memory of this process so far, in MB."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / 1024 if sys.platform != "darwin" else size / 1024**2


def measure(M: int, K: int, d: int, n: int) -> Record:
    data = soft(n, n_experts=K, n_features=d, random_state=0)
    question = FitSite(Specification(K=K), (K,), seed=0)
    with stopwatch() as local:
        fit = answer(question, Site("one", Rows(data.X, data.y[:, None])))
    summary, rng = fit.summary, np.random.default_rng(1)
    del data
    before = peak()
    messages = [encode(LocalFit(summary, scattered(fit.model, rng), fit.stop)) for _ in range(M)]
    models = {str(m): decode(message).model for m, message in enumerate(messages)}
    sent = sum(map(len, messages))
    del messages
    with stopwatch() as combining:
        result = combine_models(models, K, design=summary.design(True), penalty=question.specification.penalty(summary))
    return {
        "sites": M,
        "K": K,
        "d": d,
        "one local fit, CPU s": rounded(local.cpu),
        "combining, CPU s": rounded(combining.cpu),
        "ratio": rounded(combining.cpu / local.cpu),
        "memory, MB": round(peak()),
        "of which before": round(before),
        "answers, MB": round(sent / 1e6),
        "sites named": len(result.set_aside),
    }


def main() -> None:
    study = Study(__file__, __doc__)
    warnings.simplefilter("ignore", ConsilienceWarning)
    rows = [measure(50, 4, 10, 5_000)] if study.quick else [measure(1_000, 8, 50, 10_000)]
    study.save(table("Combining many sites", rows))


if __name__ == "__main__":
    main()
