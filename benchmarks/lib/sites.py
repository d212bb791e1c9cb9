"""Local fits that several studies share, kept in ``scratch/fits``: what is done with them is then repeated at once."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np

from benchmarks.lib.study import SCRATCH, stopwatch
from consilience.datasets import paper, soft
from consilience.datasets.generators import Simulation
from consilience.fit import Specification, fit_mixture
from consilience.messages import Answers, Each, LogLikelihood, Several, decode, encode
from consilience.messages.questions import FitSite, Likelihood, LocalFit
from consilience.model import Mixture, Rows, expect
from consilience.model.summary import ColumnSummary
from consilience.numerics.kmeans import kmeans
from consilience.site import Site, answer

GENERATORS = {"soft": soft, "paper": paper}
FITS = SCRATCH / "fits"


@dataclass(frozen=True)
class LocalFits:
    """The answers of M sites and what each cost."""

    fits: tuple[LocalFit, ...]
    seconds: np.ndarray  # (M,) CPU

    @property
    def summary(self) -> ColumnSummary:
        """Of the columns of all sites."""
        return reduce(add, (fit.summary for fit in self.fits))

    def named(self) -> dict[str, LocalFit]:
        return {f"site {m + 1}": fit for m, fit in enumerate(self.fits)}


def simulated(name: str, n: int, seed: int) -> Simulation:
    """Data set ``seed`` of a generator, with a truth of its own."""
    return GENERATORS[name](n, random_state=seed, truth_state=seed)


def split(data: Simulation, M: int) -> list[Rows]:
    """M sites of equal size: the rows are in random order."""
    places = np.array_split(np.arange(len(data.y)), M)
    return [Rows(data.X[at[0] : at[-1] + 1], data.y[at[0] : at[-1] + 1, None]) for at in places]


def split_skewed(data: Simulation, M: int, seed: int, concentration: float = 0.5) -> list[Rows]:
    """M sites whose covariates differ: each has its own shares (Dirichlet) of four clusters of the covariates."""
    rng = np.random.default_rng([seed, 77])
    clusters = kmeans(data.X, 4, np.ones(len(data.y)), rng)
    shares = rng.dirichlet(np.full(M, concentration), 4)  # of each cluster, over sites
    site = np.empty(len(data.y), dtype=int)
    for g in range(4):
        mine = np.flatnonzero(clusters == g)
        site[mine] = rng.choice(M, len(mine), p=0.9 * shares[g] + 0.1 / M)
    return [Rows(data.X[site == m], data.y[site == m, None]) for m in range(M)]


def kept_answers(name: str, make) -> tuple[list[bytes], np.ndarray]:
    """Encoded answers and seconds from the file ``name``, made and written where it is not there."""
    path = FITS / f"{name}.npz"
    if not path.exists():
        messages, seconds = make()
        FITS.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part.npz")
        arrays = {f"m{i}": np.frombuffer(message, np.uint8) for i, message in enumerate(messages)}
        np.savez_compressed(part, seconds=np.array(seconds), **arrays)
        part.rename(path)
    with np.load(path) as file:
        return [file[f"m{i}"].tobytes() for i in range(len(file.files) - 1)], file["seconds"]


def local_fits(
    name: str,
    sites: Sequence[Rows],
    *,
    K: int | Sequence[int] = 4,
    seed: int = 0,
    start: Mixture | None = None,
    specification: Specification | None = None,
) -> LocalFits:
    """The fits of all sites, with ``K`` experts each (or one number of experts per site), or as specified."""

    def make() -> tuple[list[bytes], list[float]]:
        messages, seconds = [], []
        for m, rows in enumerate(sites):
            order = K if isinstance(K, int) else K[m]
            question = FitSite(specification or Specification(K=order), (order,), seed=seed, start=start)
            with stopwatch() as watch:
                messages.append(encode(answer(question, Site(f"site {m + 1}", rows))))
            seconds.append(watch.cpu)
        return messages, seconds

    messages, seconds = kept_answers(name, make)
    return LocalFits(tuple(decode(message) for message in messages), seconds)


def global_fit(
    name: str, rows: Rows, *, K: int = 4, seed: int = 0, start: Mixture | None = None
) -> tuple[Mixture, float]:
    """The fit to all rows, and its CPU seconds."""

    def make() -> tuple[list[bytes], list[float]]:
        with stopwatch() as watch:
            fit = fit_mixture(rows, Specification(K=K), rng=np.random.default_rng(seed), start=start)
        return [encode(LogLikelihood(fit.mixture))], [watch.cpu]

    messages, seconds = kept_answers(name, make)
    return decode(messages[0]).mixture, float(seconds[0])


def answered(dialogue, local: Mapping[str, LocalFit], sites: Sequence[Rows], pooled: Rows):
    """What a one-shot dialogue returns whose first question the fits ``local`` answer, and its number of rounds.

    Sums over all sites are taken as statistics of the ``pooled`` rows, which they are to rounding.
    """
    rounds, rows = 1, dict(zip(local, sites, strict=True))
    next(dialogue)
    try:
        request = dialogue.send(local)
        while True:
            rounds += 1
            if isinstance(request, Each):
                request = dialogue.send({name: _statistics(request.question, part) for name, part in rows.items()})
            elif request.sites is None:
                request = dialogue.send(_statistics(request.question, pooled))
            else:
                request = dialogue.send(reduce(add, (_statistics(request.question, rows[m]) for m in request.sites)))
    except StopIteration as finished:
        return finished.value, rounds


def _statistics(question, rows: Rows):
    parts = question.questions if isinstance(question, Several) else (question,)
    items = tuple(_answer(part, rows) for part in parts)
    return Answers(items) if isinstance(question, Several) else items[0]


def _answer(question, rows: Rows):
    if isinstance(question, LogLikelihood):
        return Likelihood(float(question.mixture.log_density(rows).sum()), float(rows.n))
    return expect(question.mixture, rows, information=question.information)


def prepare(keys: Sequence[str]) -> None:
    """Fit what ``generator/N/M/seed`` asks for."""
    for key in keys:
        name, n, M, seed = key.split("/")
        wanted = f"{name}-{n}-{M}-{seed}"
        if (FITS / f"{wanted}.npz").exists():
            continue
        data = simulated(name, int(n), int(seed))
        global_fit(f"{name}-{n}-global-{seed}", Rows(data.X, data.y[:, None]), seed=int(seed))
        local_fits(wanted, split(data, int(M)), seed=int(seed))


if __name__ == "__main__":
    prepare(Path(sys.argv[1]).read_text().split())
