"""Whole fits by other programs, each with the search that its documentation proposes.

Ten tables for each model: a Gaussian mixture with full covariances (1,000 rows, four columns, K = 3), a mixture of
regressions, and one with a gate on the covariates (500 rows, three covariates, K = 3). Every program chooses its own
starts and its own end: scikit-learn with its defaults, and with ``n_init=6, tol=1e-6``; mclust from model-based
hierarchical clustering; StepMix with six starts by k-means; pomegranate, which has one start, with a tolerance of 1e-4;
flexmix by ``initFlexmix``, the best of three starts; ours by default, standard errors included, which no other one
computes in these fits. Medians of CPU time in one thread, libraries loaded before; the log-likelihood is compared with
the highest that any program found on the table. Seeds of the hold-out tables of ``small_fits``. Programs that are not
installed are named: ``pip install pomegranate stepmix``, R with ``r-cran-flexmix`` and ``r-cran-mclust``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from scipy.special import softmax
from sklearn.mixture import GaussianMixture as SklearnMixture
from threadpoolctl import threadpool_limits

from benchmarks.lib.study import Record, Study, rounded, stopwatch, table
from benchmarks.speed.small_fits import FIRST_SEED, TABLES, clusters
from consilience import GaussianMixture, MixtureOfExpertsRegressor, MixtureOfRegressions

K = 3
NEAR = 0.1
"""A fit is at the highest log-likelihood if it is lower by no more."""
SCRIPT = Path(__file__).with_suffix(".R")
Array = np.ndarray
Found = tuple[float | None, float, str]
"""Log-likelihood, or None if no fit ended; CPU seconds; version."""
Table = tuple[Array, Array]
Program = Callable[[Table, int], Found]


def regressions(n: int, seed: int, *, gate: bool) -> Table:
    """Three regressions on three covariates, with equal shares or with a gate on the covariates."""
    rng = np.random.default_rng([seed, n, int(gate)])
    X, B = rng.standard_normal((n, 3)), 1.5 * rng.standard_normal((K, 4))
    design = np.c_[np.ones(n), X]
    shares = softmax(design @ (gate * 1.5 * rng.standard_normal((K, 4))).T, axis=1)
    z = (shares.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return X, np.sum(design * B[z], axis=1) + 0.7 * rng.standard_normal(n)


def timed(package: str, fit: Callable[[], float]) -> Found:
    """Run a fit in one thread."""
    with warnings.catch_warnings(), threadpool_limits(1), stopwatch() as watch:
        warnings.simplefilter("ignore")
        value = fit()
    return value, watch.cpu, version(package)


def by_r(program: str) -> Program:
    """A fit in a process of R."""

    def run(data: Table, seed: int) -> Found:
        X, y = data
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "rows.bin"
            np.concatenate([X.T.ravel(), y]).astype("<f8").tofile(file)
            command = ["Rscript", str(SCRIPT), str(file), *map(str, X.shape), str(K), program, str(seed)]
            one_thread = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
            done = subprocess.run(command, env=os.environ | one_thread, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        return found["loglik"], found["cpu_seconds"], found["version"]

    return run


def sklearn(**search: float) -> Program:
    def run(data: Table, seed: int) -> Found:
        X = data[0]
        rival = SklearnMixture(K, random_state=seed, **search)
        return timed("scikit-learn", lambda: float(rival.fit(X).score(X) * len(X)))

    return run


def stepmix(data: Table, seed: int) -> Found:
    from stepmix import StepMix  # `pip install stepmix`

    X = data[0]
    rival = StepMix(K, measurement="gaussian_full", n_init=6, init_params="kmeans", random_state=seed, progress_bar=0)
    return timed("stepmix", lambda: float(rival.fit(X).score(X) * len(X)))


def pomegranate(data: Table, seed: int) -> Found:
    import torch
    from pomegranate.distributions import Normal
    from pomegranate.gmm import GeneralMixtureModel

    torch.set_num_threads(1)
    rows = torch.tensor(data[0])
    rival = GeneralMixtureModel([Normal() for _ in range(K)], tol=1e-4, random_state=seed)
    return timed("pomegranate", lambda: float(rival.fit(rows).log_probability(rows).sum()))


def ours(make: Callable[..., GaussianMixture | MixtureOfRegressions | MixtureOfExpertsRegressor]) -> Program:
    def run(data: Table, seed: int) -> Found:
        def fit() -> float:
            model = make(K, random_state=seed)
            model.fit(data[0]) if isinstance(model, GaussianMixture) else model.fit(*data)
            model.inference_.standard_errors()
            return model.log_likelihood_

        return timed("consilience", fit)

    return run


def installed(name: str) -> bool:
    """Whether a module of Python or a package of R is here."""
    if name not in ("flexmix", "mclust"):
        return find_spec(name) is not None
    if shutil.which("Rscript") is None:
        return False
    asked = ["Rscript", "-e", f"quit(status = !requireNamespace('{name}', quietly = TRUE))"]
    return subprocess.run(asked, check=False).returncode == 0


MODELS: dict[str, dict[str, tuple[str, Program]]] = {
    "Gaussian mixture": {
        "Consilience, with standard errors": ("consilience", ours(GaussianMixture)),
        "scikit-learn, defaults": ("sklearn", sklearn()),
        "scikit-learn, n_init=6, tol=1e-6": ("sklearn", sklearn(n_init=6, tol=1e-6, max_iter=1000)),
        "mclust": ("mclust", by_r("mclust")),
        "StepMix, six starts": ("stepmix", stepmix),
        "pomegranate": ("pomegranate", pomegranate),
    },
    "mixture of regressions": {
        "Consilience, with standard errors": ("consilience", ours(MixtureOfRegressions)),
        "flexmix": ("flexmix", by_r("flexmix")),
    },
    "mixture of experts": {
        "Consilience, with standard errors": ("consilience", ours(MixtureOfExpertsRegressor)),
        "flexmix, FLXPmultinom": ("flexmix", by_r("flexmix-gate")),
    },
}


def table_of(model: str, seed: int) -> Table:
    if model == "Gaussian mixture":
        X = clusters(1000, 4, K, seed)
        return X, X[:, 0]
    return regressions(500, seed, gate=model == "mixture of experts")


def compared(model: str, seeds: range) -> list[Record]:
    """Rows of the table of one model."""
    found: dict[str, list[Found]] = {name: [] for name, (needs, _) in MODELS[model].items() if installed(needs)}
    for seed in seeds:
        data = table_of(model, seed)
        for name, each in found.items():
            each.append(MODELS[model][name][1](data, seed))
    ends = {name: np.array([np.nan if ll is None else ll for ll, _, _ in each]) for name, each in found.items()}
    best = np.nanmax([*ends.values()], axis=0)
    rows = [
        {
            "program": name,
            "version": each[0][2],
            "CPU s": rounded(float(np.median([cpu for _, cpu, _ in each])), 2),
            "at the highest log-likelihood": f"{np.sum(ends[name] >= best - NEAR)} of {len(each)}",
            "largest gap": rounded(float(np.nanmax(best - ends[name]))),
        }
        for name, each in found.items()
    ]
    return rows + [{"program": name, "version": "not installed"} for name in MODELS[model] if name not in found]


def main() -> None:
    study = Study(__file__, __doc__)
    seeds = range(FIRST_SEED[True], FIRST_SEED[True] + (1 if study.quick else TABLES))
    for model, programs in MODELS.items():  # libraries are loaded
        for needs, run in programs.values():
            if installed(needs):
                run(table_of(model, 0), 0)
    study.save(*[table(model, compared(model, seeds)) for model in MODELS])


if __name__ == "__main__":
    main()
