"""Clustered clients: the regressions that known clusters would have, in few rounds, however clients lie on sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from consilience import ClusteredClients, Federation, GaussianMixture, MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.datasets import clients
from consilience.engines import InProcess
from consilience.errors import InfluentialSiteWarning, InvalidInputError, SuspectDataWarning, UntrustedWarning
from consilience.federation import FederatedFit
from consilience.fit import Expect, Fit, Specification, climb, drive, fit_mixture, infer
from consilience.fit.climb import Ascent, decrement_bound
from consilience.fit.problem import Problem
from consilience.messages import Each
from consilience.messages.questions import Clients, Pairs
from consilience.methods import FederatedEM, Task
from consilience.methods.client_subspace import (
    MOST_STARTS,
    SAME_END,
    centre,
    distinct_ends,
    iterate_directions,
    leading_directions,
)
from consilience.methods.clustered import RACE, ClusteredFit, race_starts
from consilience.model import ConstantGate, Groups, Mixture, Rows, expect
from consilience.model.clients import PairSums
from consilience.model.families.covariance import STRUCTURES
from consilience.model.mixture import alignment
from consilience.model.summary import column_summary
from consilience.numerics.arrays import unpack
from consilience.numerics.linalg import orthonormalise
from consilience.runs import run
from consilience.site import Site, answer

K, D = 3, 6


class Fleet:
    """Clients of three regressions, as rows and as sites."""

    def __init__(
        self, sizes: Any = (10,) * 60, *, noise: float = 0.3, d: int = D, n_clusters: int = K, seed: int = 1
    ) -> None:
        drawn = clients(list(sizes), n_clusters=n_clusters, n_features=d, noise=noise, random_state=seed)
        self.X, self.y, self.groups, self.labels = drawn.X, drawn.y, drawn.groups, drawn.labels
        self.theta, self.truth = drawn.theta, drawn.truth

    @property
    def G(self) -> int:
        return len(self.labels)

    @property
    def rows(self) -> Rows:
        return Rows(self.X, self.y[:, None], groups=Groups.of(self.groups))

    def part(self, chosen: np.ndarray) -> dict[str, np.ndarray]:
        rows = np.isin(self.groups, chosen)
        return {"X": self.X[rows], "y": self.y[rows], "groups": self.groups[rows]}

    def sites(self, number: int) -> dict[str, dict[str, np.ndarray]]:
        """Clients dealt out to sites."""
        return {f"site {i}": self.part(np.arange(i, self.G, number)) for i in range(number)}

    def alone(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Each client a site, without groups."""
        return {f"client {g}": (self.X[self.groups == g], self.y[self.groups == g]) for g in range(self.G)}

    def oracle(self) -> np.ndarray:
        """Least squares with known clusters."""
        label = self.labels[self.groups]
        return np.array([np.linalg.lstsq(self.X[label == k], self.y[label == k], rcond=None)[0] for k in range(K)])


def regressions(k: int = K, **options: Any) -> MixtureOfRegressions:
    return MixtureOfRegressions(k, **{"fit_intercept": False, "random_state": 0, **options})


def fitted(sites: Mapping[str, Any], method: ClusteredClients | None = None, model: Any = None) -> FederatedFit:
    return Federation(sites).fit(model or regressions(), method=method or ClusteredClients())


def aligned(fit: Fit, to: Mixture) -> Mixture:
    return fit.mixture.permuted(alignment(fit.mixture, to))


def in_errors(one: Fit, two: Fit) -> float:
    """Largest difference of parameters, in standard errors of the second."""
    order = alignment(one.mixture, two.mixture)
    inferred = infer(two)
    difference = (
        inferred.estimates.flat()
        - infer(replace(one, permutation=one.permutation[order], mixture=aligned(one, two.mixture))).estimates.flat()
    )
    return float(np.nanmax(np.abs(difference) / inferred.standard_errors().flat()))


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture(scope="module")
def whole(fleet: Fleet) -> FederatedFit:
    return fitted(fleet.sites(1))


# ---------------------------------------------------------------------- the fit


@pytest.mark.parametrize("method", [ClusteredClients(), ClusteredClients(moments="clients")], ids=repr)
def test_an_easy_fleet_has_the_regressions_of_known_clusters_in_five_rounds(method: ClusteredClients) -> None:
    easy = Fleet(np.tile([10, 20, 30], 30), noise=0.2, d=10)
    done = fitted(easy.sites(5), method)
    found = done.fit.mixture.coefficients[alignment(done.fit.mixture, easy.truth)]
    np.testing.assert_allclose(found, easy.oracle(), atol=1e-8)  # labels are clear
    assert len(done.record.rounds) <= 5
    assert done.model.converged_
    assert done.fit.gap_order == 3


def test_rounds_ask_for_directions_then_clients_then_sums(fleet: Fleet, whole: FederatedFit) -> None:
    asked = [(r.request, r.question) for r in whole.record.rounds]
    assert asked[:2] == [("Each", "Several"), ("Each", "Clients")]
    assert set(asked[2:]) == {("Total", "Expect")}
    assert whole.fit.ascent.informed_passes == whole.fit.ascent.passes - 1  # a start that is near: all but the first
    once = fitted(fleet.sites(1), ClusteredClients(moments="clients"))
    assert [r.question for r in once.record.rounds] == ["Several", "Clients"]


@pytest.mark.slow
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("moments", ["sums", "clients"])
def test_the_end_is_the_maximum_that_rows_in_one_place_have(structure: str, moments: str, fleet: Fleet) -> None:
    specification = Specification(K=K, gate="constant", structure=structure, intercept=False)
    experts = fleet.truth.experts
    covariance = {"full": experts.covariance, "tied": experts.covariance[0]}.get(structure, experts.variances)
    start = replace(
        fleet.truth,
        experts=replace(
            experts, covariance=covariance[:, 0] if structure == "spherical" else covariance, structure=structure
        ),
    )
    pooled = fit_mixture(fleet.rows, specification, rng=np.random.default_rng(0), start=start)
    done = fitted(fleet.sites(4), ClusteredClients(moments=moments), regressions(covariance_type=structure))
    bound = decrement_bound(fleet.G)
    assert abs(done.fit.log_likelihood - pooled.log_likelihood) <= 2 * bound
    assert in_errors(done.fit, pooled) <= np.sqrt(2 * bound) * 2


@pytest.mark.slow
def test_clients_of_any_partition_have_the_same_fit(fleet: Fleet, whole: FederatedFit) -> None:
    for sites in (fleet.sites(20), fleet.sites(7), fleet.alone()):
        done = fitted(sites)
        compares = len(done.record.sites) >= 3  # in a last round
        assert len(done.record.rounds) == len(whole.record.rounds) + compares
        assert done.fit.log_likelihood == pytest.approx(whole.fit.log_likelihood, rel=1e-11)
        np.testing.assert_allclose(
            aligned(done.fit, whole.fit.mixture).coefficients, whole.fit.mixture.coefficients, atol=1e-8
        )
        assert in_errors(done.fit, whole.fit) <= 1e-6
        np.testing.assert_allclose(done.fit.spectrum, whole.fit.spectrum, atol=1e-12)


def test_a_site_may_be_empty(fleet: Fleet, whole: FederatedFit) -> None:
    none = fleet.rows.take(np.empty(0, dtype=np.intp))
    dialogue = ClusteredClients().dialogue(Task([Specification(K=K, gate="constant", intercept=False)], D, 1))
    (fit,) = run(dialogue, InProcess().over([Site("none", none), Site("all", fleet.rows)])).value
    assert fit.log_likelihood == pytest.approx(whole.fit.log_likelihood, rel=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("moments", ["sums", "clients"])
def test_clients_with_one_row_take_part_without_spoiling_the_fit(moments: str) -> None:
    """An expert that fits a few of them exactly has a high likelihood, and is not what was looked for."""
    mixed = Fleet([1] * 30 + [12] * 30, noise=0.5)
    done = fitted(mixed.sites(3), ClusteredClients(moments))
    assert done.fit.ascent.statistics.weight == 60
    found = done.fit.mixture.coefficients[alignment(done.fit.mixture, mixed.truth)]
    assert np.abs(found - mixed.theta).max() < 0.4


@pytest.mark.slow
@pytest.mark.parametrize("structure", STRUCTURES)
def test_moments_of_clients_lead_where_sums_lead(structure: str, fleet: Fleet) -> None:
    model = regressions(covariance_type=structure)
    sums, once = (fitted(fleet.sites(3), ClusteredClients(moments=m), model) for m in ("sums", "clients"))
    assert in_errors(once.fit, sums.fit) <= 1e-6
    assert once.fit.log_likelihood == pytest.approx(sums.fit.log_likelihood, rel=1e-11)
    ours, theirs = (done.model.inference_.standard_errors() for done in (once, sums))
    np.testing.assert_allclose(ours.flat(), theirs.flat(), rtol=1e-6)
    assert np.all(np.isfinite(ours.experts))


def test_weights_are_frequencies(fleet: Fleet) -> None:
    """A row of weight 2 is the row twice: for pairs, for clients and for sums."""
    rng = np.random.default_rng(0)
    weight = rng.integers(1, 3, len(fleet.y))
    parts = fleet.sites(2)
    for part in parts.values():
        part["sample_weight"] = weight[np.isin(fleet.groups, part["groups"])].astype(float)
    doubled = {
        name: {key: np.repeat(part[key], part["sample_weight"].astype(int), axis=0) for key in ("X", "y", "groups")}
        for name, part in parts.items()
    }
    for moments in ("sums", "clients"):
        one, two = (fitted(sites, ClusteredClients(moments=moments)) for sites in (parts, doubled))
        assert one.fit.log_likelihood == pytest.approx(two.fit.log_likelihood, rel=1e-11)
        np.testing.assert_allclose(one.fit.spectrum, two.fit.spectrum, atol=1e-12)
        assert in_errors(one.fit, two.fit) <= 1e-6


def test_one_cluster_is_one_regression(fleet: Fleet) -> None:
    with pytest.warns(InfluentialSiteWarning, match="site 2"):  # the sites have other shares of the three clusters
        done = fitted(fleet.sites(3), model=regressions(1))
    np.testing.assert_allclose(done.model.coef_.ravel(), np.linalg.lstsq(fleet.X, fleet.y, rcond=None)[0], atol=1e-9)


# ---------------------------------------------------------------------- directions


def test_orthogonal_iteration_finds_the_same_maximum_with_shorter_messages() -> None:
    wide = Fleet([10] * 60, d=20, noise=0.3)
    sum_, rounds = (fitted(wide.sites(3), ClusteredClients(iterations=n)) for n in (0, 4))
    bound = decrement_bound(wide.G)
    assert abs(rounds.fit.log_likelihood - sum_.fit.log_likelihood) <= 2 * bound
    assert in_errors(rounds.fit, sum_.fit) <= np.sqrt(2 * bound) * 2
    asked = [r.question for r in rounds.record.rounds]
    assert asked[:6] == ["Several", "Pairs", "Pairs", "Pairs", "Pairs", "Clients"]
    received = rounds.record.rounds[1].exchanges[0].bytes_received
    assert abs(received - 8 * 20 * K) < 200
    assert len(rounds.fit.spectrum) == K


def test_iterated_directions_are_the_leading_ones() -> None:
    rng = np.random.default_rng(0)
    V = orthonormalise(rng.normal(size=(5, 5)))
    A = (V * [4.0, 2.0, 0.1, 0.05, -0.1]) @ V.T
    W = np.diag([1.0, 0.5, 2.0, 1.0, 1.0])
    Y = np.linalg.inv(W) @ A @ np.linalg.inv(W)  # so that Wᵀ Y W = A
    values, vectors = leading_directions(PairSums(7.0 * Y, 7.0), W, 2)
    np.testing.assert_allclose(values[:2], [4.0, 2.0], rtol=1e-12)
    np.testing.assert_allclose(vectors @ vectors.T, V[:, :2] @ V[:, :2].T, atol=1e-12)
    dialogue = iterate_directions(
        Pairs(Fleet().truth.design, np.zeros(5)), W, orthonormalise(rng.normal(size=(5, 2))), 12
    )
    request = next(dialogue)
    for _ in range(11):
        request = dialogue.send(PairSums(7.0 * Y @ request.question.basis, 7.0))
    with pytest.raises(StopIteration) as reached:
        dialogue.send(PairSums(7.0 * Y @ request.question.basis, 7.0))
    found, U = reached.value.value
    np.testing.assert_allclose(found, [4.0, 2.0], rtol=1e-12)
    np.testing.assert_allclose(U @ U.T, vectors @ vectors.T, atol=1e-9)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_in_the_directions_covariates_have_unit_variance_whatever_their_units(intercept: bool, shift: float) -> None:
    plain = Fleet(d=4)
    X = (plain.X + (shift if intercept else 0.0)) * np.array([1e-6, 10.0, 1.0, 1e6])
    site = Site("all", replace(plain.rows, X=X))
    dialogue = ClusteredClients().dialogue(Task([Specification(K=K, gate="constant", intercept=intercept)], 4, 1))
    request = next(dialogue)
    while not isinstance(request.question, Clients):
        said = answer(request.question, site)
        request = dialogue.send({"all": said} if isinstance(request, Each) else said)
    moments = answer(request.question, site)
    second = unpack(moments.S).sum(axis=0) / moments.n.sum()
    np.testing.assert_allclose(second, np.eye(K), atol=1e-9)


@pytest.mark.parametrize("n_clusters", [1, 2, 4])
def test_as_many_values_stand_out_as_there_are_regressions(n_clusters: int) -> None:
    easy = Fleet([20] * 200, noise=0.2, d=10, n_clusters=n_clusters, seed=1)
    done = fitted(easy.sites(2), model=regressions(1))  # the fit itself does not use it
    assert done.fit.gap_order == n_clusters
    assert len(done.fit.spectrum) == 10
    assert isinstance(done.fit, ClusteredFit)


@pytest.mark.slow
def test_the_number_of_clusters_is_chosen_by_its_criterion() -> None:
    easy = Fleet([12] * 60, noise=0.3)
    for method in (ClusteredClients(), ClusteredClients(moments="clients")):
        chosen = Federation(easy.sites(3)).select_order(regressions(), range(1, 5), method=method)
        assert chosen.best_order == K
        assert chosen.best.bic == pytest.approx(fitted(easy.sites(3), method).bic, rel=1e-9)


# ---------------------------------------------------------------------- units


@pytest.mark.slow
@pytest.mark.parametrize("method", [ClusteredClients(), ClusteredClients("clients"), ClusteredClients(iterations=5)])
def test_units_and_origins_do_not_matter(method: ClusteredClients) -> None:
    """Columns far from centred cost one round more; parameters and standard errors map back."""
    plain = Fleet([14] * 60, d=4, noise=0.3)
    plain.y = plain.y + np.array([1.0, -1.0, 0.5])[plain.labels[plain.groups]]
    scale, shift = np.array([1e-3, 10.0, 1.0, 1e4]), np.array([0.5, -4e3, 0.0, 1e7])
    moved = Fleet([14] * 60, d=4, noise=0.3)
    moved.X, moved.y = plain.X * scale + shift, 100.0 * plain.y + 1e4
    model = regressions(fit_intercept=True)
    one, two = (fitted(each.sites(3), method, model) for each in (plain, moved))
    back = aligned(two.fit, two.fit.mixture)
    B = two.fit.mixture.coefficients / 100.0
    slopes = B[:, 1:] * scale
    intercepts = B[:, 0] - 100.0 + B[:, 1:] @ shift
    order = alignment(
        replace(back, experts=replace(back.experts, B=np.column_stack([intercepts, slopes])[:, None])), one.fit.mixture
    )
    se = one.model.inference_.standard_errors().experts[:, 0]
    found = np.column_stack([intercepts, slopes])[order]
    bound = np.sqrt(2 * decrement_bound(plain.G)) * 2
    assert np.abs((found - one.fit.mixture.coefficients) / se).max() <= bound
    their_se = two.model.inference_.standard_errors().experts[:, 0, 1:][order] * scale / 100.0
    np.testing.assert_allclose(their_se, se[:, 1:], rtol=1e-4)
    assert two.fit.log_likelihood == pytest.approx(one.fit.log_likelihood - len(plain.y) * np.log(100.0), abs=1e-5)
    questions = [[r.question for r in done.record.rounds] for done in (one, two)]
    assert questions[0].count("Several") == 1
    assert questions[1].count("Several") + questions[1].count("Expect") > questions[0].count("Expect") + 1
    assert two.fit.gap_order == one.fit.gap_order


@pytest.mark.parametrize("method", [ClusteredClients(), ClusteredClients(iterations=3)], ids=["sum", "iterated"])
def test_units_change_neither_the_directions_nor_the_rounds(method: ClusteredClients, fleet: Fleet) -> None:
    scaled = Fleet()
    scaled.X = scaled.X * 10.0 ** np.arange(-6.0, 6.0, 2.0)
    one, two = (fitted(each.sites(2), method) for each in (fleet, scaled))
    np.testing.assert_allclose(two.fit.spectrum, one.fit.spectrum, atol=1e-9)
    assert len(two.record.rounds) == len(one.record.rounds)
    assert two.fit.log_likelihood == pytest.approx(one.fit.log_likelihood, abs=1e-6)


def test_far_off_columns_cost_one_round_of_directions() -> None:
    plain = Fleet([14] * 60, d=4, noise=0.3)
    done = fitted(plain.sites(2), model=regressions(1, fit_intercept=True))
    plain.X = plain.X + 50.0
    far = fitted(plain.sites(2), model=regressions(1, fit_intercept=True))
    assert [r.question for r in done.record.rounds][:2] == ["Several", "Clients"]
    assert [r.question for r in far.record.rounds][:3] == ["Several", "Several", "Clients"]
    without = fitted(
        plain.sites(2), model=regressions(1)
    )  # without an intercept experts meet at 0: nothing is taken off
    assert [r.question for r in without.record.rounds][:2] == ["Several", "Clients"]


def test_the_centre_is_the_intercept_alone() -> None:
    done = fitted(Fleet().sites(1), model=regressions(fit_intercept=True))
    design = done.fit.ascent.mixture.design

    class Means:
        y_mean = np.array([7.0])

    np.testing.assert_array_equal(centre(Means, design), [7.0, *[0.0] * D])  # type: ignore[arg-type]
    np.testing.assert_array_equal(centre(Means, replace(design, intercept=False)), np.zeros(D))  # type: ignore[arg-type]


def test_constant_and_duplicate_columns_are_survived(fleet: Fleet) -> None:
    parts = fleet.sites(2)
    for part in parts.values():
        part["X"] = np.column_stack([part["X"], part["X"][:, 0]])
    with pytest.warns(UserWarning, match="x6 is a linear function of x0"):
        done = fitted(parts)
    assert done.fit.log_likelihood == pytest.approx(fitted(fleet.sites(2)).fit.log_likelihood, abs=1e-5)


# ---------------------------------------------------------------------- starts


def test_a_given_start_is_climbed(fleet: Fleet, whole: FederatedFit) -> None:
    for moments in ("sums", "clients"):
        done = fitted(fleet.sites(2), ClusteredClients(moments), regressions(mixture_init=fleet.truth))
        assert len(done.fit.starts.values) == 1
        assert abs(done.fit.log_likelihood - whole.fit.log_likelihood) <= 2 * decrement_bound(fleet.G)
    dialogue = ClusteredClients().dialogue(
        Task([Specification(K=2, gate="constant", intercept=False)], D, 1, start=fleet.truth)
    )
    with pytest.raises(InvalidInputError, match="the start has another number of coefficients"):
        run(dialogue, InProcess().over([Site("here", fleet.rows)]))


def test_a_softmax_gate_is_fitted_from_the_start_without_one(fleet: Fleet) -> None:
    model = MixtureOfExpertsRegressor(K, fit_intercept=False, random_state=0)
    done = fitted(fleet.sites(3), model=model)
    again = Federation(fleet.sites(3)).fit(
        MixtureOfExpertsRegressor(K, fit_intercept=False, mixture_init=done.model.mixture_), method=FederatedEM()
    )
    assert abs(done.fit.log_likelihood - again.fit.log_likelihood) <= 2 * decrement_bound(fleet.G)
    assert done.model.converged_
    assert done.fit.mixture.gate.reads_covariates


def end_at(value: float) -> Ascent:
    """The end of a climb with a likelihood, over ten clients."""
    mixture = Fleet().truth
    rows = Fleet([2] * 10).rows
    statistics = expect(mixture, rows)
    return Ascent(mixture, statistics, (value,), 1, 0, 0, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ([0.0, -SAME_END, -2.0], [0.0, -2.0]),  # the second is the first
        ([0.0, -2.0, -2.001, -4.0, -5.0], [0.0, -2.0, -4.0]),
        ([0.0, -11.0], [0.0]),  # too far below: 10 clients
        ([0.0], [0.0]),
    ],
)
def test_starts_are_climbed_that_are_about_as_good_and_not_the_same(values: list[float], kept: list[float]) -> None:
    assert [end.penalised for end in distinct_ends([end_at(value) for value in values])] == kept
    assert len(kept) <= MOST_STARTS


@pytest.mark.parametrize("near", [False, True])
def test_a_climb_from_near_the_top_asks_for_the_information_at_once(fleet: Fleet, near: bool) -> None:
    asked = []

    def respond(question: Expect) -> Any:
        asked.append(question.information)
        return expect(question.mixture, fleet.rows, information=question.information)

    start = fleet.truth.in_coordinates(fleet.truth.design)
    specification = Specification(K=K, gate="constant", intercept=False)
    done = drive(climb(start, fit_mixture_penalty(fleet, specification), near=near), respond)
    assert asked[0] is False
    assert asked[1] is near
    assert done.stop.converged
    if near:
        no_newton = drive(climb(start, fit_mixture_penalty(fleet, specification), near=True, newton=False), respond)
        assert no_newton.informed_passes == 0


def fit_mixture_penalty(fleet: Fleet, specification: Specification) -> Any:
    return fit_mixture(fleet.rows, specification, rng=np.random.default_rng(0), start=fleet.truth, max_iter=1).penalty


# ---------------------------------------------------------------------- files


def test_shards_need_a_column_that_tells_clients_apart(tmp_path: Path, fleet: Fleet, whole: FederatedFit) -> None:
    for i, part in enumerate(fleet.sites(3).values()):
        columns = {f"x{j}": part["X"][:, j] for j in range(D)}
        parquet.write_table(pa.table({**columns, "y": part["y"], "client": part["groups"]}), tmp_path / f"{i}.parquet")
    table = Federation.from_parquet(str(tmp_path / "*.parquet"), target="y", groups="client")
    done = table.fit(regressions(), method=ClusteredClients())
    assert done.fit.log_likelihood == pytest.approx(whole.fit.log_likelihood, rel=1e-9)
    rows = Federation.from_parquet(str(tmp_path / "*.parquet"), target="y", features=[f"x{j}" for j in range(D)])
    with pytest.raises(InvalidInputError, match="pass the column of client names as groups"):
        rows.fit(regressions(), method=ClusteredClients())


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("moments", ["client", None, 3])
def test_moments_must_be_named(moments: Any) -> None:
    with pytest.raises(InvalidInputError, match="moments="):
        ClusteredClients(moments=moments)


@pytest.mark.parametrize("iterations", [-1, 1.5, True, "3"])
def test_iterations_must_be_a_whole_number(iterations: Any) -> None:
    with pytest.raises(InvalidInputError, match="iterations="):
        ClusteredClients(iterations=iterations)


@pytest.mark.parametrize("participation", [0, -0.1, 1.01, np.nan])
def test_participation_must_be_a_share(participation: float) -> None:
    with pytest.raises(InvalidInputError, match="participation="):
        ClusteredClients(participation=participation)


def asked(specification: Specification, q: int = 1, method: ClusteredClients | None = None) -> None:
    next((method or ClusteredClients()).dialogue(Task([specification], 2, q)))


def test_other_families_and_several_responses_are_refused() -> None:
    for specification, q in ((Specification(K=2, family="poisson", gate="constant"), 1), (Specification(K=2), 2)):
        with pytest.raises(InvalidInputError, match="ClusteredClients needs Gaussian experts with one response"):
            asked(specification, q)
    points = {"X": np.random.default_rng(0).normal(size=(30, 2)), "groups": np.arange(30) // 3}
    with pytest.raises(InvalidInputError, match="Gaussian experts with one response"):
        fitted({"a": points}, model=GaussianMixture(2, random_state=0))


@pytest.mark.parametrize("method", [ClusteredClients(moments="clients"), ClusteredClients(participation=0.5)], ids=repr)
def test_a_gate_that_reads_covariates_needs_sums_over_all_clients(method: ClusteredClients) -> None:
    with pytest.raises(InvalidInputError, match="require a constant gate: use MixtureOfRegressions"):
        asked(Specification(K=2), method=method)


def test_fewer_clients_than_experts_are_too_few(fleet: Fleet) -> None:
    with pytest.raises(InvalidInputError, match="2 groups for 3 experts"):
        fitted({"a": fleet.part(np.array([0])), "b": fleet.part(np.array([1]))})
    with pytest.raises(InvalidInputError, match="2 groups for 3 experts"):
        fitted(dict(list(fleet.alone().items())[:2]))
    two = replace(fleet.rows.take(np.flatnonzero(fleet.groups < 2)))
    dialogue = ClusteredClients().dialogue(Task([Specification(K=K, gate="constant", intercept=False)], D, 1))
    with pytest.raises(InvalidInputError, match="2 clients are too few for 3 experts"):
        run(dialogue, InProcess().over([Site("here", two)]))


def test_a_response_that_is_constant_is_named(fleet: Fleet) -> None:
    with pytest.raises(InvalidInputError, match="constant"):
        fitted({"a": {**fleet.part(np.arange(9)), "y": np.ones(90)}})


def test_the_first_question_is_about_all_rows_of_all_sites() -> None:
    request = next(ClusteredClients().dialogue(Task([Specification(K=2, gate="constant")], 2, 1)))
    assert isinstance(request, Each)
    assert request.sites is None
    assert [type(part).__name__ for part in request.question.questions] == ["Summarise", "Expect", "Pairs"]
    request = next(ClusteredClients(iterations=2).dialogue(Task([Specification(K=2, gate="constant")], 2, 1)))
    assert [type(part).__name__ for part in request.question.questions] == ["Summarise", "Expect"]
    assert isinstance(request.question.questions[1].mixture.gate, ConstantGate)


def test_of_several_starts_the_best_after_a_few_steps_goes_on_alone(fleet: Fleet) -> None:
    site = Site("all", fleet.rows)
    problem = Problem(Specification(K, gate="constant", intercept=False), column_summary(fleet.rows), near=True)
    true = fleet.truth.in_coordinates(problem.summary.design(False))
    same = replace(true.experts, B=np.repeat(true.experts.B.mean(axis=0)[None], K, axis=0))
    done = run(race_starts(problem, [replace(true, experts=same), true], fleet.G), InProcess().over([site]))
    assert done.value is not None
    assert expect(done.value, fleet.rows).log_likelihood >= expect(true, fleet.rows).log_likelihood
    assert len(done.record.rounds) <= RACE + 1
    assert run(race_starts(problem, [true], fleet.G), InProcess().over([site])).record.rounds == ()


def two_camps(flipped: int, seed: int) -> dict[str, dict[str, np.ndarray]]:
    """Ten sites of 20 clients of three regressions; in ``flipped`` of them the response has the other sign."""
    B, sites = np.array([[0, 2.0, -1, 0.5], [3, -1, 1, 0], [-3, 0, 1, 2.0]]), {}
    for m in range(10):
        rng, groups = np.random.default_rng([seed, m]), np.arange(500) // 25
        X = rng.standard_normal((500, 3))
        label = rng.choice(3, 20, p=[0.4, 0.35, 0.25])[groups]
        y = np.sum(np.c_[np.ones(500), X] * B[label], axis=1) + 0.7 * rng.standard_normal(500)
        sites[f"site {m}"] = {"X": X, "y": -y if m < flipped else y, "groups": groups}
    return sites


@pytest.mark.parametrize("seed", [4, 5])
def test_four_of_ten_sites_with_other_signs_are_named_or_a_doubt(seed: int) -> None:
    with pytest.warns((UntrustedWarning, SuspectDataWarning, InfluentialSiteWarning)):
        done = fitted(two_camps(4, seed), model=MixtureOfRegressions(K, random_state=0))
    named = set(done.fit.survey.suspicions)
    assert named == {f"site {m}" for m in range(4)} or "two camps, 4 against 6" in done.fit.survey.doubts[0]


@pytest.mark.slow
def test_honest_sites_are_not_two_camps() -> None:
    for seed in range(10):
        done = fitted(two_camps(0, seed), model=MixtureOfRegressions(K, random_state=0))
        assert not done.fit.survey.doubts
        assert not done.fit.survey.suspicions
