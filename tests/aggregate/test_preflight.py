"""The comparison of sites' columns: what is wrong is named, and what is only different is not."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.aggregate.preflight import preflight
from consilience.fit.survey import Survey
from consilience.model import Rows
from consilience.model.summary import column_summary

NAMES = ("age", "dose", "time", "y")


def columns(rng: np.random.Generator, n: int = 500) -> np.ndarray:
    """Three covariates and a response: about 0, far from 0, skew, and about 0."""
    return np.c_[rng.normal(size=n), rng.normal(50, 5, n), rng.gamma(2, 3, n), rng.normal(size=n)]


def surveyed(sites: dict[str, np.ndarray]) -> Survey:
    return preflight({name: column_summary(Rows(Z[:, :-1], Z[:, -1:])) for name, Z in sites.items()}, NAMES)


def honest(M: int, seed: int = 0, n: int = 500) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {f"site {m}": columns(rng, n) for m in range(M)}


def with_error(M: int, column: int, times: float, seed: int = 0) -> dict[str, np.ndarray]:
    sites = honest(M, seed)
    sites["site 1"][:, column] *= times
    return sites


@pytest.mark.parametrize("M", [3, 4, 8])
@pytest.mark.parametrize("column", range(4))
@pytest.mark.parametrize("times", [10.0, 0.1, 1000.0])
def test_a_column_in_other_units_is_named_with_its_site(M: int, column: int, times: float) -> None:
    (said,) = surveyed(with_error(M, column, times)).suspicions.items()
    assert said == ("site 1", (f"{NAMES[column]} is about {times:,.6g} times the others': units?",))


@pytest.mark.parametrize("M", [3, 5])
def test_a_halved_response_is_named(M: int) -> None:
    (said,) = surveyed(with_error(M, 3, 0.5)).suspicions.items()
    assert said[0] == "site 1"
    assert said[1][0].startswith("y is about 0.")


def test_halves_are_not_named_if_the_sites_differ_as_much() -> None:
    sites = honest(4)
    for name, times in zip(sites, (1.0, 0.5, 1.6, 0.8), strict=True):
        sites[name][:, 3] *= times
    assert surveyed(sites).suspicions == {}


def test_two_wrong_sites_of_five_are_both_named_whatever_their_factors() -> None:
    sites = honest(5)
    sites["site 1"][:, 0] *= 10
    sites["site 3"][:, 0] *= 1000
    assert surveyed(sites).suspicions == {
        "site 1": ("age is about 10 times the others': units?",),
        "site 3": ("age is about 1,000 times the others': units?",),
    }


@pytest.mark.parametrize("M", [2, 4])
def test_equal_parts_are_undecided(M: int) -> None:
    sites = honest(M)
    for m in range(M // 2):
        sites[f"site {m}"][:, 0] *= 10
    survey = surveyed(sites)
    assert survey.suspicions == {}
    (doubt,) = survey.doubts
    assert "the data cannot tell which is wrong" in doubt
    assert all(name in doubt for name in sites)
    assert all(doubt in site.remarks for site in survey.sites)


def test_an_empty_site_is_named() -> None:
    survey = surveyed(honest(3) | {"empty": np.empty((0, 4))})
    assert [site.status for site in survey.sites] == ["used", "used", "used", "empty"]
    assert survey.sites[-1].reasons == ("it has no rows",)


def test_a_constant_column_is_named_unless_it_is_a_rare_event() -> None:
    sites = honest(3)
    sites["site 1"][:, 1] = 0.0
    rare = {name: np.where(Z[:, :1] > 1.8, 1.0, 0.0) for name, Z in sites.items()}
    for name, Z in sites.items():
        Z[:, 0] = 0.0 if name == "site 2" else rare[name][:, 0]
    survey = surveyed(sites)
    assert survey.suspicions == {"site 1": ("dose is constant here, and not at the other sites",)}
    assert survey.sites[2].notes == ("age is constant here, and not at the other sites",)


def test_a_large_shift_is_suspect_and_a_smaller_one_is_a_remark() -> None:
    sites = honest(4)
    sites["site 1"][:, 0] += 273.15
    sites["site 2"][:, 1] += 20.0
    survey = surveyed(sites)
    assert list(survey.suspicions) == ["site 1"]
    assert survey.sites[2].notes[0].startswith("the mean of dose is ")


def test_different_populations_are_not_suspect() -> None:
    rng, sites = np.random.default_rng(1), {}
    for m, centre in enumerate((-6.0, -3.0, 0.0, 3.0, 6.0)):
        Z = columns(rng)
        Z[:, 0] += centre
        Z[:, 3] += 2 * Z[:, 0]
        sites[f"site {m}"] = Z
    survey = surveyed(sites)
    assert survey.suspicions == {}
    assert survey.doubts == ()


def test_sites_that_divide_a_column_into_regions_are_not_suspect() -> None:
    Z = columns(np.random.default_rng(2), 3000)
    Z = Z[np.argsort(Z[:, 0])]
    for M in (3, 4, 6):
        survey = surveyed({f"site {m}": part for m, part in enumerate(np.array_split(Z, M))})
        assert survey.suspicions == {}, M
        assert survey.doubts == ()


@pytest.mark.parametrize("n", [30, 300])
def test_honest_sites_raise_hardly_any_alarm(n: int) -> None:
    alarms = 0
    for seed in range(60):
        rng = np.random.default_rng([seed, n])
        sites = {
            f"site {m}": columns(rng, n) * np.exp(0.1 * rng.normal(size=4)) + rng.normal(0, 0.3, 4) for m in range(3)
        }
        survey = surveyed(sites)
        alarms += bool(survey.suspicions or survey.doubts)
    assert alarms <= 3


def test_columns_that_overflow_and_sites_with_few_rows_are_not_compared() -> None:
    sites = with_error(3, 1, 1e200)
    sites["site 2"] = 100 * sites["site 2"][:5]
    with np.errstate(over="ignore", invalid="ignore"):
        assert surveyed(sites).suspicions == {}
