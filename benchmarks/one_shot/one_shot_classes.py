"""One exchange for classification: accuracy and log-loss beside the pooled fit.

Covariates and a soft gate as in ``soft`` (three experts, d = 10), experts that are logistic regressions of two or three
classes with coefficients from N(0, 1); N = 64,000 rows over M = 16 sites; 200,000 test rows. Aim: accuracy and log-loss
within 1 % relative of the pooled fit.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from sklearn.base import clone

from benchmarks.lib.sites import answered, local_fits
from benchmarks.lib.study import Record, Study, rounded, stopwatch, table
from consilience import MixtureOfExpertsClassifier, OneShot
from consilience.datasets import soft
from consilience.errors import ConsilienceWarning
from consilience.estimators.federated import adopt_fit, set_columns
from consilience.methods import Task
from consilience.model import CategoricalExperts, Mixture, Rows

M, K, D = 16, 3, 10


def simulated(n: int, classes: int, seed: int, *, stream: int) -> tuple[np.ndarray, np.ndarray, Mixture]:
    """Rows ``stream`` of truth ``seed``."""
    data = soft(n, n_experts=K, n_features=D, random_state=1000 * stream + seed, truth_state=seed)
    B = np.random.default_rng([seed, 8]).standard_normal((K, classes, D + 1))
    B -= B.mean(axis=1, keepdims=True)
    truth = Mixture(data.truth.design, data.truth.gate, CategoricalExperts(B))
    y, _ = truth.sample(data.X, np.random.default_rng([seed, stream, 9]))
    return data.X, y.ravel().astype(int), truth


def scores(model: MixtureOfExpertsClassifier, X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    probability = model.predict_proba(X)
    return float(np.mean(probability.argmax(axis=1) == y)), -float(np.mean(np.log(probability[np.arange(len(y)), y])))


def replication(key: str, rounds: Sequence[int]) -> Record:
    classes, n, seed = (int(part) for part in key.split("/"))
    X, y, truth = simulated(n, classes, seed, stream=1)
    X_test, y_test, _ = simulated(200_000, classes, seed, stream=2)
    pooled = MixtureOfExpertsClassifier(K, random_state=seed)
    with stopwatch() as alone:
        pooled.fit(X, y)
    at_truth = truth.mean(X_test)[np.arange(len(y_test)), y_test]
    record: Record = {
        "pooled": (*scores(pooled, X_test, y_test), alone.cpu),
        "truth": -float(np.mean(np.log(at_truth))),
    }
    specification, sites = pooled.specification(), [Rows(X[m::M], y[m::M, None].astype(float)) for m in range(M)]
    fits = local_fits(f"classes-{classes}-{n}-{seed}", sites, K=K, seed=seed, specification=specification)
    local = fits.named()
    for refine in rounds:
        with stopwatch() as more:
            dialogue = OneShot(refine=refine).dialogue(Task([specification], D, 1))
            (fit,), _ = answered(dialogue, local, sites, Rows(X, y[:, None].astype(float)))
        model = clone(pooled)
        set_columns(model, D, classes=range(classes))
        adopt_fit(model, fit)
        record[f"refine {refine}"] = (*scores(model, X_test, y_test), float(fits.seconds.sum()) + more.cpu)
        record[f"named {refine}"] = len(fit.combination.set_aside)
    return record


def summary(classes: int, records: list[Record], rounds: Sequence[int]) -> list[Record]:
    rows = []
    for method in ("pooled", *(f"refine {refine}" for refine in rounds)):
        accuracy, loss, seconds = (np.array([r[method][i] for r in records]) for i in range(3))
        base = [np.array([r["pooled"][i] for r in records]) for i in range(2)]
        rows.append(
            {
                "classes": classes,
                "method": method,
                "draws": len(records),
                "accuracy": rounded(float(np.median(accuracy)), 4),
                "log-loss": rounded(float(np.median(loss)), 4),
                "accuracy, worst change": f"{np.min(accuracy / base[0] - 1):+.2%}",
                "log-loss, worst change": f"{np.max(loss / base[1] - 1):+.2%}",
                "CPU s": rounded(float(np.median(seconds))),
            }
        )
    return rows


def main() -> None:
    study = Study(__file__, __doc__)
    warnings.simplefilter("ignore", ConsilienceWarning)
    n, repeats, kinds, rounds = (8_000, 1, (2,), (0,)) if study.quick else (64_000, 3, (2, 3), (0, 1, 2, 4))
    keys = [f"{c}/{n}/{seed}" for seed in range(repeats) for c in kinds]
    records = study.replicate(keys, lambda key: replication(key, rounds))
    rows = [row for c in kinds for row in summary(c, [r for r in records if r["key"].startswith(f"{c}/")], rounds)]
    study.save(table("Classification: one exchange beside the pooled fit", rows))


if __name__ == "__main__":
    main()
