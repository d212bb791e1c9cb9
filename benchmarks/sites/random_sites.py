"""Random configurations of sites: SharedCentre against each site alone, OneShot against one regression.

200 configurations of 3 to 12 sites with 30 to 3,000 rows each, 2 or 3 regressions on 1 to 6 covariates, constant or
softmax gate; covariates centred elsewhere at each site, coefficients that differ between sites, sites that lack an
expert or have their own noise, and fits with an expert more than the truth. Aims: with SharedCentre no site is worse
than its own fit by more than 0.02 a row, on 4,000 new rows of the site (on its own rows, to which its own fit adapts,
any shrinkage loses); OneShot(refine=1) is never below one regression for all rows without saying so.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from benchmarks.lib.remembering import Remembering, digest_of
from benchmarks.lib.study import Record, Study, rounded, table
from consilience import Federation, MixtureOfExpertsRegressor, MixtureOfRegressions, OneShot, SharedCentre
from consilience.errors import SetAsideWarning, UntrustedWarning
from consilience.federation import FederatedFit
from consilience.messages import LocalFit
from consilience.model import Mixture, Rows

CONFIGURATIONS, NEW_ROWS, MOST = 200, 4_000, 0.02


@dataclass(frozen=True)
class Configuration:
    """One configuration of sites: what is drawn at random."""

    d: int
    K: int
    fitted: int
    softmax: bool
    rows: tuple[int, ...]
    shift: float
    h: float
    lacking: bool
    noise: bool

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Configuration:
        K, M = int(rng.integers(2, 4)), int(rng.integers(3, 13))
        return cls(
            d=int(rng.integers(1, 7)),
            K=K,
            fitted=min(3, K + int(rng.random() < 0.25)),
            softmax=bool(rng.random() < 0.5),
            rows=tuple(int(n) for n in np.exp(rng.uniform(np.log(30), np.log(3000), M))),
            shift=float(rng.choice([0.0, 0.0, 1.0, 5.0])),
            h=float(rng.choice([0.0, 0.1, 0.3, 1.0])),
            lacking=bool(rng.random() < 0.3),
            noise=bool(rng.random() < 0.3),
        )


Part = tuple[np.ndarray, np.ndarray]


def simulated(made: Configuration, rng: np.random.Generator) -> tuple[dict[str, Part], dict[str, Rows]]:
    """Rows of each site, and new rows of each site."""
    common = rng.normal(0, 1.5, (made.K, made.d + 1))
    gate = rng.normal(0, 1.0, (made.K, made.d + 1)) * made.softmax
    parts, new = {}, {}
    for m, n in enumerate(made.rows):
        B = common + made.h * rng.normal(size=common.shape)
        centre, sd = made.shift * rng.normal(size=made.d), float(rng.choice([0.5, 1.0, 2.0])) if made.noise else 1.0
        there = np.ones(made.K, dtype=bool)
        there[rng.integers(made.K)] = not (made.lacking and rng.random() < 0.4)
        X = centre + rng.normal(size=(n + NEW_ROWS, made.d))
        design = np.column_stack([np.ones(len(X)), X])
        score = np.where(there, (design - np.r_[0.0, centre]) @ gate.T, -np.inf) + rng.gumbel(size=(len(X), made.K))
        y = np.einsum("nd,nd->n", design, B[np.argmax(score, axis=1)]) + sd * rng.normal(size=len(X))
        parts[f"site {m}"], new[f"site {m}"] = (X[:n], y[:n]), Rows(X[n:], y[n:, None])
    return parts, new


def per_row(mixture: Mixture, rows: Rows) -> float:
    return float(mixture.log_density(rows).mean())


def replication(key: str) -> Record:
    """``seed``."""
    rng = np.random.default_rng([int(key), 15])
    made = Configuration.drawn(rng)
    parts, new = simulated(made, rng)
    estimator = MixtureOfExpertsRegressor if made.softmax else MixtureOfRegressions
    engine = Remembering()
    sites, model = Federation(parts, engine=engine), estimator(made.fitted, random_state=0)
    combined, said = warned(lambda: sites.fit(model, method=OneShot(refine=1), on_drop="continue"))
    shared, _ = warned(lambda: sites.fit(model, method=SharedCentre(), on_drop="continue"))
    X, y = (np.concatenate([part[i] for part in parts.values()]) for i in (0, 1))
    rows = Rows(X, y[:, None])
    alone = {digest: fit for (digest, _), fit in engine.fits.items()}
    fits = {name: alone[digest_of(Rows(part[0], part[1][:, None]))] for name, part in parts.items()}
    one = estimator(1, random_state=0).fit(X, y)
    value = float(combined.fit.mixture.log_density(rows).sum())
    return {
        "made": {**vars(made)},
        "sites": [of_site(site, fits[site.name], shared, new[site.name]) for site in shared.sites],
        "trusted": shared.fit.trusted,
        "rounds": len(shared.record.rounds),
        "one shot": {
            "shown": float(combined.fit.log_likelihood),
            "all rows": value,
            "one regression": float(one.log_likelihood_),
            "said": said,
        },
    }


def of_site(site: object, fit: LocalFit, shared: FederatedFit, new: Rows) -> Record:
    if fit.model is None or site.name not in shared.fit.fits:
        return {"name": site.name, "alone": None}
    alone, own = fit.model.mixture, shared.fit.fits[site.name]
    return {
        "name": site.name,
        "rows": float(fit.model.weight),
        "parameters": alone.parameter_count,
        "alone": per_row(alone, new),
        "shared": per_row(own.mixture, new),
        "own rows, alone": float(fit.model.log_likelihood),
        "own rows, shared": float(own.log_likelihood),
        "shrinkage": float(np.mean(site.shrinkage)),
        "guarded": site.own,
    }


def warned(fit: object) -> tuple[FederatedFit, bool]:
    """A fit, and whether it warned that one regression is better, or named sites that it did not use."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = fit()
    untrusted = any(
        issubclass(each.category, UntrustedWarning) and "one regression" in str(each.message) for each in caught
    )
    return found, untrusted or any(issubclass(each.category, SetAsideWarning) for each in caught)


def of_sharing(records: list[Record]) -> Record:
    found = [site for record in records for site in record["sites"] if site["alone"] is not None]
    loss = np.array([site["alone"] - site["shared"] for site in found])
    guarded = np.array([site["guarded"] for site in found])
    return {
        "configurations": len(records),
        "sites": len(found),
        "largest loss a row": rounded(float(loss.max())),
        "sites that lose more than 0.02": int(np.sum(loss > MOST)),
        "median gain a row": rounded(float(np.median(-loss))),
        "mean": rounded(float(np.mean(-loss))),
        "sites that gain more than 0.02": int(np.sum(loss < -MOST)),
        "guarded": rounded(float(guarded.mean())),
        "trusted": rounded(float(np.mean([record["trusted"] for record in records]))),
        "aim": "no site loses more than 0.02",
    }


def without_optimism(records: list[Record]) -> Record:
    """The same if a site kept its own fit wherever that is better on its own rows by more than 0.02 a row."""
    found = [site for record in records for site in record["sites"] if site["alone"] is not None]
    gap = np.array([(site["own rows, alone"] - site["own rows, shared"]) / site["rows"] for site in found])
    loss = np.where(gap > MOST, 0.0, [site["alone"] - site["shared"] for site in found])
    return {
        "sites": len(found),
        "largest loss a row": rounded(float(loss.max())),
        "sites that lose more than 0.02": int(np.sum(loss > MOST)),
        "mean gain a row": rounded(float(np.mean(-loss))),
    }


def of_combining(records: list[Record]) -> Record:
    found = [record["one shot"] for record in records]
    below = [each for each in found if each["all rows"] < each["one regression"]]
    return {
        "configurations": len(found),
        "below one regression": len(below),
        "of these without a warning": sum(not each["said"] for each in below),
        "largest deficit": rounded(max((e["one regression"] - e["all rows"] for e in below), default=0.0)),
        "aim": "none without a warning",
    }


def main() -> None:
    study = Study(__file__, __doc__)
    records = study.replicate(map(str, range(5 if study.quick else CONFIGURATIONS)), replication)
    study.save(
        table("SharedCentre: each site against its own fit, on new rows", [of_sharing(records)]),
        table("The same with a guard that allows no optimism", [without_optimism(records)]),
        table("OneShot(refine=1) against one regression, log-likelihood of all rows", [of_combining(records)]),
    )


if __name__ == "__main__":
    main()
