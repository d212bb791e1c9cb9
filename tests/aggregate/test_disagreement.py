"""Who disagrees with whom, from the likelihoods of sites' models on each other's rows."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.aggregate.disagreement import CrossLikelihood, judge_agreement, own_components

APART = 0.5


def cross(groups: list[int], rows: float = 1e4, apart: float = APART) -> CrossLikelihood:
    """Sites of several kinds: models explain the rows of their own kind, and lose ``apart`` per row on others."""
    kind = np.array(groups)
    values = np.where(kind[:, None] == kind, -1.0, -1.0 - apart)
    return CrossLikelihood(tuple("abcdefgh"[: len(groups)]), values, np.full(len(groups), rows), parameters=10)


def joint(*losses: float) -> np.ndarray:
    return -1.0 - np.array(losses)


@pytest.mark.parametrize("groups", [[0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1, 2], [0, 0, 0, 0, 0, 1, 1, 1]])
def test_a_majority_names_the_others(groups: list[int]) -> None:
    losses = [0.1 if kind == 0 else 0.3 for kind in groups]
    verdict = judge_agreement(cross(groups), joint(*losses))
    assert set(verdict.named) == {"abcdefgh"[m] for m, kind in enumerate(groups) if kind}
    assert not verdict.undecided
    assert set(verdict.unexplained) == set("abcdefgh"[: len(groups)])


@pytest.mark.parametrize("groups", [[0, 1], [0, 0, 1, 1], [0, 1, 2], [0, 0, 0, 1, 1, 1]])
def test_without_a_majority_it_is_undecided(groups: list[int]) -> None:
    verdict = judge_agreement(cross(groups), joint(*[0.2] * len(groups)))
    assert verdict.undecided
    assert verdict.named == {}


def test_models_that_do_not_extrapolate_are_no_matter_if_the_joint_mixture_explains_all() -> None:
    verdict = judge_agreement(cross([0, 0, 1], apart=50.0), joint(0.01, 0.01, 0.02))
    assert not verdict.undecided
    assert verdict.named == verdict.unexplained == {}


def test_a_poor_local_maximum_of_one_site_does_not_name_it() -> None:
    honest = cross([0, 0, 0])
    values = honest.values.copy()
    values[2] -= 0.4  # the third model is worse everywhere, on its own rows too
    poor = CrossLikelihood(honest.sites, values, honest.rows, honest.parameters)
    np.testing.assert_allclose(poor.divergence(), honest.divergence(), atol=1e-12)
    assert judge_agreement(poor, joint(0.05, 0.05, -0.3)).named == {}


def test_a_model_that_is_wrong_where_its_site_has_no_rows_does_not_name_the_site() -> None:
    """A level of a category, or part of a range, is missing at the fourth site, and the fifth site is wrong."""
    sites = cross([0, 0, 0, 0, 1])
    values = sites.values.copy()
    values[3, :3] -= 5.0  # its model on rows of others; theirs explain its rows
    lacking = CrossLikelihood(sites.sites, values, sites.rows, sites.parameters)
    assert set(judge_agreement(lacking, joint(0.1, 0.1, 0.1, 0.3, 0.3)).named) == {"e"}


def test_sampling_error_and_sites_with_few_rows_are_not_judged() -> None:
    assert not judge_agreement(cross([0, 0, 1], rows=100, apart=0.1), joint(0.1, 0.1, 0.1)).named
    few = cross([0, 0, 0, 1])
    rows = few.rows.copy()
    rows[3] = 40
    assert judge_agreement(CrossLikelihood(few.sites, few.values, rows, 10), joint(0.1, 0.1, 0.1, 0.9)).named == {}


def test_a_component_is_a_sites_own_only_if_hardly_any_other_row_joins_it() -> None:
    mass = np.array([[60.0, 40.0, 2.0], [50.0, 45.0, 4.0], [3.0, 2.0, 95.0]])
    assert own_components("abc", mass) == {"c": (0.95, 1)}
    assert own_components("abc", mass + np.array([[0, 0, 20.0], [0, 0, 0], [0, 0, 0]])) == {}
    assert own_components("abc", mass * [[1], [1], [5]]) == {}  # most rows are its
