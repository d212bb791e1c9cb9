"""Private scoring over groups of rows with one label: fits, what is protected, and what is not served."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from consilience import Federation, MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.errors import InvalidInputError
from consilience.fit.parameters import parameters
from consilience.methods import PrivateScoring
from consilience.model import Groups, Mixture, Rows, expect, mixture_of_experts
from consilience.model.group_contributions import GroupedCovariates
from consilience.model.mixture import alignment
from grouped import drawn_groups

SITES, EACH = 3, 400


def truth() -> Mixture:
    B = np.array([[0.0, 1.0, -0.5], [1.0, -1.0, 0.5]])
    alpha = np.array([[0.2, 0.5, -0.3], [-0.2, -0.5, 0.3]])
    return mixture_of_experts(alpha, B, 0.8)


def drawn(G: int, *seed: int) -> dict[str, np.ndarray]:
    """Groups of 1 to 6 rows: one covariate is equal in a group, one varies."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 7, size=G)
    X = np.column_stack([np.repeat(rng.normal(size=G), sizes), rng.normal(size=int(sizes.sum()))])
    groups = GroupedCovariates(X, sizes)
    return {"X": X, "y": drawn_groups(truth(), groups, rng).Y[:, 0], "groups": groups.labels}


@cache
def start() -> MixtureOfExpertsRegressor:
    return MixtureOfExpertsRegressor(2, random_state=0).fit(**drawn(200, 1))


def method(epsilon: float = 8, **how: object) -> PrivateScoring:
    public = drawn(800, 2)
    return PrivateScoring(epsilon, unit="group", covariates=public["X"], groups=public["groups"], **how)


def sites(*seed: int, each: int = EACH) -> dict[str, dict[str, np.ndarray]]:
    return {f"site {i}": drawn(each, *seed, i) for i in range(SITES)}


def pooled_rows(parts: dict[str, dict[str, np.ndarray]]) -> Rows:
    labels = [part["groups"] + 10**6 * i for i, part in enumerate(parts.values())]
    X, y = (np.concatenate([part[name] for part in parts.values()]) for name in ("X", "y"))
    return Rows(X, y[:, None], groups=Groups.of(np.concatenate(labels)))


def private(parts: dict[str, dict[str, np.ndarray]], epsilon: float = 8, **how: object):
    model = MixtureOfExpertsRegressor(2, random_state=0)
    return Federation(parts).fit(model, method(epsilon, **how), start=start())


def compared(mixture: Mixture, rows: Rows) -> np.ndarray:
    """Differences from the truth in standard errors of all groups without noise; experts by their first slope."""

    def ordered(found: Mixture) -> Mixture:
        return found.raw().permuted(np.argsort(-found.raw().experts.B[:, 0, 1]))

    here = ordered(truth())
    information = expect(here, rows, information=True).information
    errors = np.sqrt(np.diagonal(np.linalg.inv(information)))[:9]  # gate contrasts and coefficients
    return (ordered(mixture).to_vector()[:9] - here.to_vector()[:9]) / errors


def test_a_fit_of_groups_is_near_that_without_noise():
    parts = sites(3)
    found = private(parts)
    rows = pooled_rows(parts)
    without = MixtureOfExpertsRegressor(2, random_state=0).fit(rows.X, rows.Y[:, 0], groups=rows.groups.codes)
    assert found.settled
    apart = compared(found.model.mixture_, rows) - compared(without.mixture_, rows)
    assert np.sqrt(np.mean(apart**2)) < 1.5
    assert 1.0 < found.fit.forecast.ratio < 1.3
    assert abs(found.fit.ascent.statistics.weight - SITES * EACH) < 100  # groups, not rows
    assert str(found.privacy).startswith("ε = 8, δ = 1e-06 for each group of a site")
    estimated = found.model.inference_
    assert estimated is not None


def test_masked_sums_of_groups_are_opened_together():
    parts = sites(4, each=150)
    found = private(parts, sums="masked")
    assert abs(found.fit.ascent.statistics.weight - SITES * 150) < 60


def test_files_with_a_column_of_groups(tmp_path: Path):
    for i, (name, part) in enumerate(sites(5, each=150).items()):
        columns = {"a": part["X"][:, 0], "b": part["X"][:, 1], "y": part["y"], "who": part["groups"] + 1000 * i}
        parquet.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    found = Federation.from_parquet(str(tmp_path / "*.parquet"), target="y", features=["a", "b"], groups="who")
    fit = found.fit(MixtureOfExpertsRegressor(2, random_state=0), method(), start=start())
    assert abs(fit.fit.ascent.statistics.weight - SITES * 150) < 60
    assert fit.privacy.unit == "group"


@pytest.mark.parametrize(
    ("how", "part", "said"),
    [
        ({}, {"groups": None}, "rows have none"),
        ({}, {"clusters": drawn(300, 6)["groups"][:300]}, "leave clusters out"),
        ({"rows_each": 2}, {}, "of a group all rows count"),
        ({"exchange": "file"}, {}, "needs rounds and a public start"),
        ({"start": "private", "response": (0.0, 1.0)}, {}, "needs rounds and a public start"),
    ],
)
def test_what_is_not_served_is_said(how: dict, part: dict, said: str):
    whole = {name: value[:300] for name, value in drawn(300, 6).items()} | part
    given = {name: value for name, value in whole.items() if value is not None}
    with pytest.raises(InvalidInputError, match=said):
        Federation({"north": given}).fit(MixtureOfRegressions(2), method(**how), start=start())


def test_public_groups_need_a_label_for_each_row():
    with pytest.raises(InvalidInputError, match="pass groups=labels"):
        PrivateScoring(8, unit="group", covariates=np.zeros((4, 2)))
    with pytest.raises(InvalidInputError, match="pass groups=labels"):
        PrivateScoring(8, covariates=np.zeros((4, 2)), groups=np.zeros(4))
    short = PrivateScoring(8, unit="group", covariates=np.zeros((4, 2)), groups=np.zeros(3))
    with pytest.raises(InvalidInputError, match="a label for each of the 4 rows"):
        Federation(sites(7, each=20)).fit(MixtureOfExpertsRegressor(2), short, start=start())


@pytest.mark.long
def test_intervals_of_groups_cover_the_truth():
    """Errors and coverage over 20 draws at ε = 3, 1,200 groups at three sites: 260 intervals."""
    held, shown, errors, ratios = 0, 0, [], []
    for draw in range(20):
        parts = sites(8, draw)
        found = private(parts, 3)
        if found.settled:
            low, high = (each.flat() for each in found.model.inference_.interval(0.95))
            mixture = found.model.mixture_
            true = parameters(truth().permuted(alignment(truth(), mixture))).flat()
            inside = np.isfinite(low) & np.isfinite(high)
            held, shown = held + int(((low <= true) & (true <= high))[inside].sum()), shown + int(inside.sum())
            errors.append(np.sqrt(np.mean(compared(mixture, pooled_rows(parts)) ** 2)))
            ratios.append(found.fit.forecast.ratio)
    assert len(errors) >= 17
    assert np.median(errors) < 1.15 * np.median(ratios)
    assert 0.9 < held / shown < 0.99
