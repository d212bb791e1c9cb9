"""Sites that are unlike a majority are set aside by name; sites that claim most rows are named or refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from consilience import FederatedEM, Federation, GradientEM, Limits, MixtureOfRegressions
from consilience.errors import InvalidInputError, RoundStoppedError, SetAsideWarning, SuspectDataWarning
from consilience.model.mixture import alignment

B = np.array([[0, 2.0, -1, 0.5], [3, -1, 1, 0], [-3, 0, 1, 2.0]])
SHARES = [0.4, 0.35, 0.25]
N = 400
ERRORS = np.array([[0.7 / np.sqrt(10 * N * share)] * 4 for share in SHARES]) * 1.1
Data = dict[str, tuple[np.ndarray, np.ndarray]]
Lie = Callable[[np.ndarray, np.ndarray, np.random.Generator], tuple[np.ndarray, np.ndarray]]


def honest(M: int = 10) -> Data:
    parts = {}
    for m in range(M):
        rng = np.random.default_rng([3, m])
        X, label = rng.normal(size=(N, 3)), rng.choice(3, N, p=SHARES)
        parts[f"s{m}"] = (X, np.sum(np.c_[np.ones(N), X] * B[label], axis=1) + 0.7 * rng.normal(size=N))
    return parts


def lying(lie: Lie, many: int) -> Data:
    rng = np.random.default_rng(5)
    return {site: lie(X, y, rng) if int(site[1:]) < many else (X, y) for site, (X, y) in honest().items()}


LIES: dict[str, Lie] = {
    "sign flip": lambda X, y, rng: (X, -y),
    "another data set": lambda X, y, rng: (rng.normal(size=X.shape), 5 + 3 * rng.normal(size=len(y))),
    "a target": lambda X, y, rng: (X, X @ [5.0, 5.0, 5.0] + 0.1 * rng.normal(size=len(y))),
}


def fit(data: Data, method: Any = None, **options: Any) -> Any:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = Federation(data).fit(MixtureOfRegressions(3, random_state=0, n_init=2), method=method, **options)
    return result, said


@cache
def fit_of_all() -> Any:
    """The fit to honest sites, with which three tests compare."""
    return fit(honest())


def harm(result: Any, pooled: Any) -> float:
    """The largest change of a coefficient, in standard errors of the pooled fit."""
    found, truth = result.model.mixture_, pooled.model.mixture_
    gap = found.permuted(alignment(found, truth)).experts.B[:, 0] - truth.experts.B[:, 0]
    return float(np.abs(gap / ERRORS).max())


@pytest.mark.slow
@pytest.mark.parametrize("lie", LIES.values(), ids=list(LIES))
def test_a_liar_is_set_aside_by_name_and_does_no_harm(lie: Lie) -> None:
    pooled, quiet = fit_of_all()
    assert not quiet
    result, said = fit(lying(lie, 1))
    assert {site.name for site in result.sites if site.status == "set aside"} == {"s0"}
    assert any(issubclass(each.category, SetAsideWarning) for each in said)
    assert harm(result, pooled) < 3
    assert result.fit.ascent.statistics.weight == N * 9


@pytest.mark.long
@pytest.mark.parametrize("lie", LIES.values(), ids=list(LIES))
def test_four_liars_of_ten_are_named_and_no_honest_site_is(lie: Lie) -> None:
    result, said = fit(lying(lie, 4))  # some of them may be used: an expert of their own, or one leaves after another
    assert {site.name for site in result.sites if site.status != "used"} == {"s0", "s1", "s2", "s3"}
    assert any(issubclass(each.category, SetAsideWarning | SuspectDataWarning) for each in said)


@pytest.mark.slow
def test_without_screening_they_are_named_and_used() -> None:
    result, said = fit(lying(LIES["sign flip"], 1), FederatedEM(screen=False))
    assert [site.name for site in result.sites if site.status == "suspect"] == ["s0"]
    assert any(issubclass(each.category, SuspectDataWarning) for each in said)
    assert result.fit.ascent.statistics.weight == 10 * N


@pytest.mark.published
def test_gradient_em_names_them() -> None:
    result, _ = fit(lying(LIES["sign flip"], 1), GradientEM())
    assert [site.name for site in result.sites if site.status == "suspect"] == ["s0"]


def weighted(times: float) -> dict[str, dict[str, np.ndarray]]:
    """Three sites, of which the first claims more rows than it has."""
    parts = {}
    for i, (site, (X, y)) in enumerate(list(honest(3).items())):
        parts[site] = {"X": X, "y": y + 0.05 * (i == 0), "sample_weight": np.full(N, times if i == 0 else 1.0)}
    return parts


@pytest.mark.slow
def test_a_site_that_claims_nearly_all_rows_is_named() -> None:
    result, said = fit(weighted(1e6))  # type: ignore[arg-type]
    asked = "s0: used: it has 100 % of all rows, 1e+06 times those of the next site: ask whether"
    assert str(result.sites[0]).startswith(asked)
    assert not any(issubclass(each.category, SuspectDataWarning) for each in said)
    result, said = fit(weighted(2.0))  # type: ignore[arg-type]
    assert not said
    assert result.fit.survey.questions == {}


@pytest.mark.slow
@pytest.mark.parametrize("limits", [Limits(max_rows=1e6), Limits(max_share=0.9)], ids=["rows", "share"])
def test_limits_refuse_a_site_that_claims_more(limits: Limits) -> None:
    with pytest.raises(RoundStoppedError, match="s0: the site states more rows, or a larger share"):
        fit(weighted(1e6), limits=limits)  # type: ignore[arg-type]
    result, _ = fit(weighted(1e6), limits=limits, on_drop="continue")  # type: ignore[arg-type]
    assert result.record.dropped.keys() == {"s0"}
    assert result.record.limits == limits
    assert "allowed: at most" in str(result.record)


def test_limits_that_make_no_sense_are_refused() -> None:
    for bad in ({"max_rows": 0}, {"max_share": 0.0}, {"max_share": 1.5}, {"max_rows": np.nan}):
        with pytest.raises(InvalidInputError, match="expected max_rows above 0"):
            Limits(**bad)
