"""Sites that a joint mixture explains worse than the others, and sites that outweigh the others together."""

import numpy as np

from consilience.aggregate.disagreement import unlikely_sites
from consilience.aggregate.preflight import preflight
from consilience.model.summary import ColumnSummary


def test_a_site_far_below_the_others_is_named_also_among_several():
    honest = {f"site {i}": -1.4 - 0.01 * i for i in range(6)}
    assert unlikely_sites(honest) == {}
    found = unlikely_sites({**honest, "east": -3.0, "west": -2.8, "south": -2.9, "north": -3.1})
    assert set(found) == {"east", "west", "south", "north"}


def test_a_group_of_nearly_half_of_the_sites_is_named_though_all_scatter():
    honest = (-1.84, -1.70, -1.55, -1.60, -1.65, -1.59)
    values = dict(zip("abcdefghij", (*honest, -2.30, -2.27, -2.26, -2.16), strict=True))
    assert set(unlikely_sites(values)) == set("ghij")
    assert unlikely_sites(dict(zip("abcdef", honest, strict=True))) == {}
    assert unlikely_sites(dict(zip("abcd", (-1.0, -1.01, -2.0, -2.01), strict=True))) == {}


def test_honest_sites_are_rarely_named():
    rng = np.random.default_rng(0)
    draws = [unlikely_sites({str(m): value for m, value in enumerate(rng.normal(size=10))}) for _ in range(1000)]
    assert sum(map(bool, draws)) <= 30


def test_sites_that_scatter_are_not_named():
    assert unlikely_sites(dict(zip("abcdef", (-1, -1.5, -2, -2.5, -3, -3.5), strict=True))) == {}
    assert unlikely_sites({"a": -1.0, "b": -9.0}) == {}


def summary(rows: float) -> ColumnSummary:
    return ColumnSummary(rows, np.zeros(1), rows * np.eye(1), np.zeros(1), rows * np.eye(1))


def test_a_few_sites_that_state_nearly_all_rows_are_named():
    sites = {f"site {i}": summary(1000.0 + i) for i in range(7)}
    liars = {name: summary(1e9) for name in ("x", "y", "z")}
    assert set(preflight({**sites, **liars}, ["age", "y"]).questions) == {"x", "y", "z"}
    assert preflight({**sites, "large": summary(6_900)}, ["age", "y"]).questions == {}
    found = preflight({**sites, "large": summary(60_000)}, ["age", "y"])
    assert found.questions["large"].endswith("ask whether rows were counted twice")
    assert found.suspicions == {}
    assert [site.status for site in found.sites] == ["used"] * 8
    spread = {str(n): summary(n) for n in (20, 50, 100, 300, 1000, 3000, 8000, 20000)}
    assert preflight(spread, ["age", "y"]).questions == {}
