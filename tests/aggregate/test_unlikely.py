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


def test_sites_that_scatter_are_not_named():
    assert unlikely_sites(dict(zip("abcdef", (-1, -1.5, -2, -2.5, -3, -3.5), strict=True))) == {}
    assert unlikely_sites({"a": -1.0, "b": -9.0}) == {}


def summary(rows: float) -> ColumnSummary:
    return ColumnSummary(rows, np.zeros(1), rows * np.eye(1), np.zeros(1), rows * np.eye(1))


def test_a_few_sites_that_state_nearly_all_rows_are_named():
    sites = {f"site {i}": summary(1000.0 + i) for i in range(7)}
    liars = {name: summary(1e9) for name in ("x", "y", "z")}
    assert set(preflight({**sites, **liars}, ["age", "y"]).suspicions) == {"x", "y", "z"}
    assert preflight({**sites, "large": summary(60_000)}, ["age", "y"]).suspicions == {}
    spread = {str(n): summary(n) for n in (20, 50, 100, 300, 1000, 3000, 8000, 20000)}
    assert preflight(spread, ["age", "y"]).suspicions == {}
