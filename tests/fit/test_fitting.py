"""A whole fit: starts, the best of them, order of experts, named errors and warnings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from consilience.datasets import soft
from consilience.errors import DegenerateFitWarning, InvalidInputError, RankDeficientWarning
from consilience.fit import Specification, StopReason, fit_mixture, infer
from consilience.fit import starts as search_module
from consilience.fit.fitting import Fit, rank_ascents
from consilience.fit.specification import is_at_bound
from consilience.model import ConstantGate, Design, GaussianExperts, Groups, Mixture, Rows
from consilience.model.families.covariance import STRUCTURES
from consilience.model.mixture import alignment
from simulated import FAMILIES, simulated

QUIET = pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")


def fitted(rows: Rows, specification: Specification, seed: int = 0, **options: object) -> Fit:
    return fit_mixture(rows, specification, rng=np.random.default_rng(seed), **options)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("gate", ["softmax", "constant"])
def test_default_fit_reaches_the_fit_from_the_truth(family: str, gate: str) -> None:
    data = simulated(family, gate=gate, group_size=4, n=400)
    found = fitted(data.rows, data.specification)
    from_truth = fitted(data.rows, data.specification, start=data.truth)
    assert found.ascent.stop.converged
    assert found.ascent.penalised >= from_truth.ascent.penalised - 0.005 * 100


def test_default_fit_reaches_the_truth_started_optimum_on_soft() -> None:
    simulation = soft(1500, n_experts=3, n_features=4, random_state=2)
    rows = Rows(simulation.X, simulation.y[:, None])
    found = fitted(rows, Specification(K=3))
    from_truth = fitted(rows, Specification(K=3), start=simulation.truth)
    assert found.log_likelihood >= from_truth.log_likelihood - 0.005 * rows.n
    matched = found.mixture.permuted(alignment(found.mixture, simulation.truth))
    assert np.allclose(matched.experts.B, simulation.truth.experts.B, atol=0.6)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_covariances_of_every_structure_come_near_the_truth(structure: str) -> None:
    data = simulated(q=2, structure=structure, n=3000, gate="constant")
    found = fitted(data.rows, data.specification, start=data.truth)
    matched = found.mixture.permuted(alignment(found.mixture, data.truth))
    assert matched.experts.structure == structure
    assert matched.experts.covariance.shape == data.truth.experts.covariance.shape
    assert np.allclose(matched.experts.covariance, data.truth.experts.covariance, atol=0.1)


def test_experts_come_by_decreasing_share_in_raw_coordinates() -> None:
    data = simulated(gate="constant", n=400)
    for start in (data.truth, data.truth.permuted(np.array([1, 0]))):
        fit = fitted(data.rows, data.specification, start=start)
        assert fit.mixture.design.is_raw
        assert np.all(np.diff(fit.mixture.gate.probabilities) <= 0)
        mass = fit.ascent.mixture.responsibilities(data.rows).sum(axis=0)
        assert np.array_equal(fit.permutation, np.argsort(-mass))
        assert fit.log_likelihood == pytest.approx(float(fit.mixture.log_density(data.rows).sum()), rel=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("gate", ["softmax", "constant"])
@pytest.mark.parametrize("intercept", [True, False])
def test_one_expert_is_plain_regression_and_needs_no_starts(family: str, gate: str, intercept: bool) -> None:
    data = simulated(family, gate=gate, n=100, intercept=intercept)
    fit = fitted(data.rows, data.specification.with_order(1))
    assert fit.ascent.stop.converged
    assert fit.starts.count == 0
    assert fit.starts_agree
    assert np.all(fit.mixture.gate_weights(data.X) == 1)


def test_several_starts_are_ranked_and_agree_on_easy_data() -> None:
    data = simulated(gate="constant", n=300)
    fit = fitted(data.rows, data.specification, n_init=6)
    assert fit.starts.count == fit.starts.meeting == fit.starts.kinds_meeting == 6  # no more are tried
    assert list(fit.starts.values) == sorted(fit.starts.values, reverse=True)
    assert fit.starts_agree
    assert fitted(data.rows, data.specification, n_init=1).starts.count == 1
    assert fitted(data.rows, data.specification, start=data.truth).starts.count == 0


def clusters(rng: np.random.Generator, centres: tuple[float, ...], n: int) -> Rows:
    return Rows(np.empty((n * len(centres), 0)), np.concatenate([rng.normal(c, 0.3, (n, 1)) for c in centres]))


@QUIET
def test_moves_repair_a_start_that_gives_two_experts_to_one_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = clusters(np.random.default_rng(0), (0.0, 10.0, 20.0, 30.0), 40)
    bad = np.repeat([0, 2, 3, 3], 40)
    bad[:40:2] = 1  # starts see rows in the order of their values: experts 0 and 1 share the first cluster
    worse = (lambda ground, rng: bad, lambda ground, rng: bad[::-1])
    monkeypatch.setattr(search_module, "KINDS_WITHOUT_COVARIATES", worse)
    specification = Specification(K=4, gate="constant")
    repaired = fitted(rows, specification, n_init=2)
    monkeypatch.setattr(search_module, "MOVES", 0)
    left = fitted(rows, specification, n_init=2)
    assert repaired.log_likelihood > left.log_likelihood + 10
    assert sorted(repaired.mixture.experts.B.ravel().round(0)) == [0.0, 10.0, 20.0, 30.0]
    assert not repaired.starts_agree  # no start of another kind ended there


def spike_and_clusters() -> tuple[Rows, Mixture, Mixture]:
    """Two clusters and a value that occurs twice; a start on the clusters and one that sits on the value."""
    rows = clusters(np.random.default_rng(0), (0.0, 6.0), 30)
    rows = replace(rows, X=np.empty((62, 0)), Y=np.vstack([rows.Y, [[3.0], [3.0]]]))

    def start(means: tuple[float, float], variances: tuple[float, float]) -> Mixture:
        experts = GaussianExperts(np.array(means)[:, None, None], np.array(variances)[:, None, None])
        return Mixture(Design.raw(0), ConstantGate(np.array([0.5, 0.5])), experts)

    return rows, start((0.0, 6.0), (0.1, 0.1)), start((3.0, 3.0), (9.0, 1e-3))


def test_an_end_on_the_variance_floor_ranks_behind_the_others() -> None:
    rows, sound, spike = spike_and_clusters()
    specification = Specification(K=2, gate="constant")
    good = fitted(rows, specification, start=sound)
    with pytest.warns(DegenerateFitWarning, match="expert 2 has 2 rows for 1 coefficients"):
        spurious = fitted(rows, replace(specification, shape_ratio=1e9), start=spike)
    assert is_at_bound(spurious.ascent.mixture, spurious.penalty)
    assert not is_at_bound(good.ascent.mixture, good.penalty)
    assert rank_ascents([spurious.ascent, good.ascent], good.penalty)[0] is good.ascent


def test_no_floor_nothing_on_the_floor() -> None:
    data = simulated(gate="constant", n=100)
    fit = fitted(data.rows, replace(data.specification, reg_covar=0.0))
    assert not is_at_bound(fit.ascent.mixture, fit.penalty)


def test_progress_is_told_of_every_pass() -> None:
    data = simulated(n=100)
    claim: list[tuple[str, float]] = []
    fit = fitted(data.rows, data.specification, n_init=2, progress=lambda phase, value: claim.append((phase, value)))
    assert {phase for phase, _ in claim} == {"starts", "all rows"}
    assert sum(phase == "all rows" for phase, _ in claim) == fit.ascent.passes
    assert np.all(np.isfinite([value for _, value in claim]))
    assert claim[-1][1] == pytest.approx(fit.log_likelihood / 100)


def test_the_sample_is_small_and_the_fit_is_on_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "SAMPLE", 60)
    data = simulated(gate="constant", n=500)
    fit = fitted(data.rows, data.specification)
    assert fit.ascent.statistics.weight == 500
    assert fit.ascent.stop is StopReason.CONVERGED_NEWTON


# ---------------------------------------------------------------------- errors and warnings


def test_fewer_rows_or_groups_than_experts_is_an_error() -> None:
    data = simulated(n=40)
    with pytest.raises(InvalidInputError, match="3 rows for 4 experts"):
        fitted(data.rows.take(np.arange(3)), Specification(K=4))
    grouped = replace(data.rows, groups=Groups.of(np.arange(40) % 3))
    with pytest.raises(InvalidInputError, match="3 groups for 4 experts"):
        fitted(grouped, Specification(K=4))


def test_no_weight_at_all_is_an_error() -> None:
    data = simulated(n=40)
    with pytest.raises(InvalidInputError, match="all weights are zero"):
        fitted(replace(data.rows, weight=np.zeros(40)), data.specification)


def test_constant_response_is_an_error_that_names_the_column() -> None:
    data = simulated(q=2, n=40)
    rows = replace(data.rows, Y=np.column_stack([data.rows.Y[:, 0], np.full(40, 7.0)]))
    with pytest.raises(InvalidInputError, match=r"column\(s\) \[1\] are constant"):
        fitted(rows, data.specification)


def test_an_expert_without_rows_is_a_warning() -> None:
    rows = clusters(np.random.default_rng(0), (0.0,), 50)
    far = Mixture(
        Design.raw(0),
        ConstantGate(np.array([0.5, 0.5])),
        GaussianExperts(np.array([[[0.0]], [[1e3]]]), np.ones((2, 1, 1))),
    )
    with pytest.warns(DegenerateFitWarning, match="expert 2 has less than one row for 1 coefficients"):
        fit = fitted(rows, Specification(K=2, gate="constant"), start=far)
    assert np.all(np.isfinite(fit.mixture.experts.B))
    assert np.all(np.isfinite(fit.mixture.experts.covariance))


@pytest.mark.slow
def test_duplicate_columns_are_not_read() -> None:
    data = simulated(n=200)
    twice = replace(data.rows, X=np.column_stack([data.X[:, 0], data.X[:, 0], data.X[:, 1]]))
    fit, once = fitted(twice, data.specification), fitted(data.rows, data.specification)
    assert fit.ascent.mixture.design.unread == (1,)
    assert fit.parameter_count == once.parameter_count
    B = fit.mixture.permuted(alignment_of_means(fit, once, data.X, twice.X)).experts.B
    assert np.all(B[..., 2] == 0)
    np.testing.assert_allclose(B[..., [0, 1, 3]], once.mixture.experts.B, atol=1e-8)


def test_an_expert_whose_rows_leave_a_direction_open_is_warned_of() -> None:
    """A column is constant among the rows of one expert: its slope there is not identified."""
    rng = np.random.default_rng(0)
    second = np.repeat([0.0, 1.0], 100)
    X = np.column_stack([rng.normal(size=200), second * rng.normal(size=200)])
    rows = Rows(X, (X[:, 0] + 100 * second + rng.normal(size=200))[:, None])
    experts = GaussianExperts(np.array([[[0.0, 1, 0]], [[100.0, 1, 0]]]), np.ones((2, 1, 1)))
    truth = Mixture(Design.raw(2), ConstantGate(np.full(2, 0.5)), experts)
    with pytest.warns(RankDeficientWarning, match="linearly dependent among the rows of an expert"):
        fit = fitted(rows, Specification(K=2, gate="constant"), start=truth)
    assert "not positive definite" in infer(fit, rows).withheld["experts"]


def alignment_of_means(fit: Fit, other: Fit, X: np.ndarray, wide: np.ndarray) -> np.ndarray:
    """Order of ``fit``'s experts whose means are nearest to those of ``other``."""
    ours = fit.mixture.experts.mean(fit.mixture.design.panel(wide))[:, 0]
    theirs = other.mixture.experts.mean(other.mixture.design.panel(X))[:, 0]
    return np.array([np.abs(ours - mean).sum(axis=1).argmin() for mean in theirs])


@QUIET
@pytest.mark.parametrize("family", FAMILIES)
def test_no_group_need_be_in_one_piece(family: str) -> None:
    data = simulated(family, n=90, group_size=3)
    shuffled = np.random.default_rng(0).permutation(90)
    rows = data.rows.take(shuffled)
    a, b = (fitted(some, data.specification, start=data.truth) for some in (data.rows, rows))
    assert a.log_likelihood == pytest.approx(b.log_likelihood, rel=1e-11)
