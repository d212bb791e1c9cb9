"""The membership attack: what is said of it against the likelihood-ratio attack itself, on simulated sites."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy.stats import rankdata

from consilience.fit import Specification
from consilience.kit.policy.refit import membership_test
from consilience.messages import FitSite, LocalFit
from consilience.model import Rows
from consilience.model.summary import ColumnSummary
from consilience.site import Site, answer

REFERENCE, OUTSIDE = 20_000, 2_000


def population(n: int, d: int, seed: int) -> Rows:
    """Rows of two regressions on dependent covariates."""
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(5).normal(size=(d, d)) / np.sqrt(d)
    B = np.random.default_rng(6).normal(size=(2, d)) / np.sqrt(d)
    X = rng.normal(size=(n, d)) @ mixing + 0.5 * rng.normal(size=(n, d))
    y = np.where(rng.random(n) < 0.5, 2 + X @ B[0], X @ B[1] - 2) + 0.7 * rng.normal(size=n)
    return Rows(X, y[:, None])


def fitted(rows: Rows, K: int) -> LocalFit:
    gate = "softmax" if K > 1 else "constant"
    return answer(FitSite(Specification(K=K, gate=gate), (K,), seed=0, n_init=2), Site("north", rows))


@cache
def reference(d: int, K: int) -> LocalFit:
    """What the attacker knows of such rows elsewhere."""
    return fitted(population(REFERENCE, d, 1), K)


def log_density(fit: LocalFit, rows: Rows) -> np.ndarray:
    covariates = fit.model.covariates
    return fit.model.mixture.log_density(rows) + (0 if covariates is None else covariates.log_density(rows.X))


def attack(fit: LocalFit, K: int, inside: Rows, outside: Rows) -> float:
    """The probability that a row of the fit has a higher likelihood ratio than another row."""
    known = reference(inside.X.shape[1], K)
    mine, others = (log_density(fit, rows) - log_density(known, rows) for rows in (inside, outside))
    ranks = rankdata(np.concatenate([mine, others]))
    m = len(mine)
    return float((ranks[:m].sum() - m * (m + 1) / 2) / (m * len(others)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "K", "n"), [(5, 2, 200), (5, 2, 1000), pytest.param(20, 2, 1000, marks=pytest.mark.long), (20, 2, 3000)]
)
def test_the_likelihood_ratio_attack_achieves_what_is_said(d: int, K: int, n: int) -> None:
    measured, said = [], []
    for draw in range(2):
        rows = population(n, d, 100 + draw)
        fit = fitted(rows, K)
        measured.append(attack(fit, K, rows, population(OUTSIDE, d, 900 + draw)))
        said.append(membership_test(fit).auc)
    assert np.mean(measured) == pytest.approx(np.mean(said), abs=0.05)


def test_it_says_how_much_the_moments_of_the_columns_tell() -> None:
    """Measured by an independent review with exact moments: 0.59, 0.55 and 0.63 for one regression."""
    found = {(n, d): membership_test(fitted(population(n, d, 0), 1)).auc for n, d in ((200, 5), (1000, 5), (1000, 20))}
    assert found == pytest.approx({(200, 5): 0.59, (1000, 5): 0.55, (1000, 20): 0.63}, abs=0.025)


def test_more_rows_for_the_same_numbers_are_told_less() -> None:
    few, many = (membership_test(fitted(population(n, 5, 0), 1)) for n in (100, 5000))
    assert few.numbers == many.numbers == 34
    assert (few.rows, many.rows) == (100, 5000)
    assert few.auc > 0.6 > 0.53 > many.auc
    assert few.hits > 0.02 > many.hits > 0.01
    assert "50 % is guessing" in str(few)


def test_a_file_without_a_model_has_no_attack() -> None:
    assert membership_test(LocalFit(ColumnSummary.unit(1, 1), None, None)) is None
