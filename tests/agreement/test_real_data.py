"""Fits to real data: they get to the top, say whether starts agree, and are not below their rivals in silence."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest

from benchmarks.lib.datasets import DataNotFoundError, load_table
from consilience import FederatedEM, Federation, MixtureOfExpertsRegressor, MixtureOfRegressions, OneShot

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")]
VOICE = ("age", "sex", "test_time", "Jitter(%)", "Shimmer", "NHR", "HNR", "RPDE", "DFA", "PPE")
POOLED_BEFORE = -19968.0
"""Best of three default fits to all rows of the Parkinson's data with three experts, before starts raced."""


@cache
def columns(name: str, *names: str) -> np.ndarray:
    try:
        table = load_table(name)
    except DataNotFoundError as missing:
        pytest.skip(str(missing))
    return np.column_stack([table[each].to_numpy().astype(float) for each in names])


@cache
def hospitals() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The 42 patients of the Parkinson's data in five hospitals."""
    Z = columns("parkinsons", *VOICE, "total_UPDRS", "subject#")
    home = Z[:, -1] % 5
    return {f"hospital {k:.0f}": (Z[home == k, :-2], Z[home == k, -2]) for k in np.unique(home)}


def density(model: Any) -> float:
    return float(sum(model.log_density(X, y).sum() for X, y in hospitals().values()))


def test_insurance_claims_converge_in_few_iterations() -> None:
    Z = columns("fremtpl2_frequency", "VehPower", "VehAge", "DrivAge", "BonusMalus", "Density", "ClaimNb", "Exposure")
    X = np.column_stack([Z[:, :3], np.log(Z[:, 3:5])])
    y, exposure = np.minimum(Z[:, 5], 4), np.minimum(Z[:, 6], 1)
    model = MixtureOfExpertsRegressor(2, family="poisson", random_state=0).fit(X, y, exposure=exposure)
    assert model.converged_
    assert model.n_iter_ < 60


@pytest.mark.parametrize(
    ("K", "gate"),
    [
        (2, MixtureOfExpertsRegressor),
        (2, MixtureOfRegressions),
        (3, MixtureOfExpertsRegressor),
        pytest.param(3, MixtureOfRegressions, marks=pytest.mark.long),
    ],
)
def test_seeds_end_at_the_same_maximum_or_do_not_claim_that_starts_agree(gate: type, K: int) -> None:
    Z = columns("tonedata", "stretchratio", "tuned")
    fits = [gate(K, random_state=seed).fit(Z[:, :1], Z[:, 1]) for seed in range(5)]
    best = max(fit.log_likelihood_ for fit in fits if not fit.degeneracy_)
    assert all(fit.log_likelihood_ > best - 2 or not fit.starts_agree_ for fit in fits)
    assert sum(fit.log_likelihood_ > best - 2 for fit in fits) >= 4


@pytest.mark.long
def test_federated_climbs_do_not_end_below_the_fit_to_all_rows() -> None:
    result = Federation(hospitals()).fit(MixtureOfExpertsRegressor(3, random_state=0), method=FederatedEM())
    assert result.fit.log_likelihood > POOLED_BEFORE
    assert result.fit.starts.count == 4
    assert density(result.model) == pytest.approx(result.fit.log_likelihood, rel=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("refine", [0, 1, 4])
def test_a_combined_fit_of_hospitals_is_above_one_regression_or_says_so(refine: int) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = Federation(hospitals()).fit(
            MixtureOfExpertsRegressor(2, random_state=0), method=OneShot(refine=refine)
        )
    X, y = (np.concatenate(parts) for parts in zip(*hospitals().values(), strict=True))
    one = MixtureOfExpertsRegressor(1).fit(X, y)
    assert density(result.model) > one.log_likelihood_ or said
    if refine:
        assert density(result.model) == pytest.approx(result.fit.log_likelihood, rel=1e-9)
        assert result.fit.rivals.one_regression == pytest.approx(one.log_likelihood_, rel=1e-9)
        assert result.fit.ascent.statistics.weight == len(y)
