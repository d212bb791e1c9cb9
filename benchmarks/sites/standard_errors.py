"""Coverage of 95 % intervals of the experts' coefficients, in one table and over four sites alike.

Two regressions, 800 rows in all. The model is right (normal), its variance depends on a covariate (heteroscedastic),
40 clusters of 20 rows share an effect and one covariate (clustered, with ``clusters=``), or errors are Student's with
3 degrees of freedom (t3). Where the model is wrong, estimates tend to a maximum of the likelihood of 200,000 rows. For
heteroscedastic rows it has two: the regressions, and a narrow expert beside a wide one, which is higher by 0.041 per
row; of 800 rows either can be the higher one. Coverage is that of the maximum which the estimate tends to, found by a
climb from the estimate on the 200,000 rows, and beside it that of the highest. Seeds are those of ``protocol.toml``:
the development draws, or with ``--hold-out`` those on which the result is judged. Aim: at least 0.90 where intervals
are shown.
"""

from __future__ import annotations

import tomllib
import warnings
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.em.coverage import mean_and_error
from benchmarks.lib.study import Record, Study, rounded, table
from consilience import FederatedEM, Federation, MixtureOfRegressions, OneShot
from consilience.fit import Inference
from consilience.model import ConstantGate, Design, GaussianExperts, Mixture

PROTOCOL = tomllib.loads((Path(__file__).parent / "protocol.toml").read_text())["standard_errors"]
B = np.array([[0.0, 1.5, -1.0], [3.0, -1.0, 1.0]])  # intercept, x0, x1
SHARES = np.array([0.65, 0.35])
ROWS, SITES, CLUSTER, MANY = 800, 4, 20, 200_000
SAME = 0.1
"""Largest difference of coefficients at the same maximum."""
WAYS = {"FederatedEM": FederatedEM(), "OneShot(0)": OneShot(refine=0), "OneShot(1)": OneShot(refine=1)}


def draw(regime: str, n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Rows of a regime; clustered ones with the labels of their clusters."""
    X, code = rng.standard_normal((n, 2)), np.arange(n) // CLUSTER
    noise = 0.8 * rng.standard_normal(n)
    if regime == "heteroscedastic":
        noise = np.exp(0.8 * X[:, 0] - 0.64) * rng.standard_normal(n)
    elif regime == "t3":
        noise = rng.standard_t(3, n) / np.sqrt(3)
    elif regime == "clustered":
        X[:, 0] = rng.standard_normal(n)[code]
        noise += 0.6 * rng.standard_normal(n)[code]
    label = (rng.random(n) > SHARES[0]).astype(int)
    data = {"X": X, "y": np.sum(np.column_stack([np.ones(n), X]) * B[label], axis=1) + noise}
    return data | ({"clusters": code} if regime == "clustered" else {})


@cache
def many_rows(regime: str) -> dict[str, np.ndarray]:
    return draw(regime, MANY, np.random.default_rng(77))


@cache
def truth(regime: str) -> Mixture:
    """The mixture of the highest maximum that estimates tend to."""
    made = Mixture(Design.raw(2), ConstantGate(SHARES), GaussianExperts(B[:, None], np.full((2, 1, 1), 0.64)))
    if regime == "normal":
        return made
    data = many_rows(regime)
    return MixtureOfRegressions(2, mixture_init=made).fit(data["X"], data["y"]).mixture_


def ordered(B: np.ndarray, like: np.ndarray) -> np.ndarray:
    """The coefficients of two experts in the order in which they are nearer to others."""
    return B if np.abs(B - like).sum() <= np.abs(B[::-1] - like).sum() else B[::-1]


def limit(regime: str, fitted: Mixture, near: np.ndarray) -> np.ndarray:
    """The coefficients that an estimate tends to, given those of the draw's maximum next to the highest one."""
    highest = truth(regime).experts.B[:, 0]
    if regime == "normal" or np.abs(ordered(fitted.experts.B[:, 0], near) - near).max() < SAME:
        return highest
    data = many_rows(regime)
    return MixtureOfRegressions(2, mixture_init=fitted).fit(data["X"], data["y"]).mixture_.experts.B[:, 0]


def share_inside(inference: Inference, expected: np.ndarray) -> float | None:
    """The share of the coefficients inside their intervals; None if intervals are withheld."""
    lower, upper = (each.experts[:, 0] for each in inference.interval())
    expected = ordered(expected, inference.estimates.experts[:, 0])
    return float(np.mean((lower <= expected) & (expected <= upper))) if np.all(np.isfinite(lower)) else None


def figures(model: Any, regime: str, near: np.ndarray) -> Record:
    """What is shown of a fit, and the share of the coefficients inside their intervals."""
    inference = model.inference_
    lower, upper = (each.experts[:, 0] for each in inference.interval())
    covered = share_inside(inference, limit(regime, model.mixture_, near))
    return {
        "kind": inference.kind,
        "covered": covered,
        "highest covered": share_inside(inference, truth(regime).experts.B[:, 0]),
        "width": None if covered is None else float(np.median(upper - lower)),
    }


def replication(key: str) -> Record:
    regime, seed = key.split("/")
    data = draw(regime, ROWS, np.random.default_rng(int(seed)))
    model = MixtureOfRegressions(2, random_state=0, n_init=2)
    home = np.arange(ROWS) // CLUSTER % SITES  # clusters stay whole
    parts = {f"site {m}": {name: values[home == m] for name, values in data.items()} for m in range(SITES)}
    rest = {name: data[name] for name in data if name not in ("X", "y")}
    one = model.fit(data["X"], data["y"], **rest)
    near = MixtureOfRegressions(2, mixture_init=truth(regime)).fit(data["X"], data["y"]).mixture_.experts.B[:, 0]
    found: dict[str, Any] = {"one table": figures(one, regime, near)}
    for way, method in WAYS.items():
        found[way] = figures(Federation(parts).fit(model, method=method).model, regime, near)
    return found


def summary(regime: str, way: str, records: list[Record]) -> Record:
    drawn = [record for record in records if record["key"].startswith(f"{regime}/")]
    own = [record[way] for record in drawn]
    shown = [each for each in own if each["covered"] is not None]
    return {
        "errors": regime,
        "way": way,
        "draws": len(own),
        "kind": ", ".join(sorted({each["kind"] for each in own})),
        "shown": f"{len(shown) / len(own):.0%}",
        "coverage where shown": mean_and_error([each["covered"] for each in shown]),
        "of the highest maximum": mean_and_error([each["highest covered"] for each in shown]),
        "median width": rounded(float(np.median([each["width"] for each in shown]))) if shown else None,
    }


def main() -> None:
    study = Study(__file__, __doc__, {"hold-out": "the draws on which the result is judged"})
    draws = PROTOCOL["hold_out" if study.options["hold-out"] else "development"]
    seeds = range(draws["first_seed"], draws["first_seed"] + (2 if study.quick else draws["draws"]))
    warnings.simplefilter("ignore")
    records = study.replicate((f"{regime}/{seed}" for seed, regime in product(seeds, PROTOCOL["regimes"])), replication)
    rows = [summary(regime, way, records) for regime in PROTOCOL["regimes"] for way in ("one table", *WAYS)]
    study.save(table("Coverage of 95 % intervals of the experts' coefficients, mean over draws ± its error", rows))


if __name__ == "__main__":
    main()
