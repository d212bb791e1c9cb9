"""FedGrEM: against its formulas, written out here row by row and with another solver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import softmax

from answering import Calls, failing
from consilience import Federation, FedGrEM, GaussianMixture
from consilience.engines import InProcess
from consilience.errors import InvalidInputError, RoundStoppedError
from consilience.fit import Specification
from consilience.fit.climb import StopReason
from consilience.messages import FitSite
from consilience.methods import Task
from consilience.methods.per_site.local_fits import local_fits
from consilience.methods.per_site.shared_fit import SharedFit
from consilience.model import ConstantGate, Design, GaussianExperts, Mixture, Rows
from consilience.runs import Run, run
from consilience.site import Site

NAMES = ("east", "north", "south", "west")


class Study:
    """Sites with rows of a mixture with unit noise, and a start for their fits."""

    def __init__(
        self, B: np.ndarray, *, sizes: Sequence[int], h: float = 0.0, intercept: bool = False, seed: int = 0
    ) -> None:
        rng = np.random.default_rng(seed)
        K, q, p = B.shape
        d = p - intercept
        self.rows: dict[str, Rows] = {}
        for name, n in zip(NAMES, sizes, strict=False):
            X = rng.normal(size=(n, d))
            own, labels = B + h * rng.normal(size=B.shape), rng.choice(K, n, p=np.arange(K, 0, -1) / (K * (K + 1) / 2))
            panel = np.column_stack([np.ones((n, int(intercept))), X])
            self.rows[name] = Rows(X, np.einsum("nqp,np->nq", own[labels], panel) + rng.normal(size=(n, q)))
        self.specification = Specification(K=K, gate="constant", intercept=bool(intercept))
        experts = GaussianExperts(B, np.tile(np.eye(q), (K, 1, 1)))
        self.truth = Mixture(Design.raw(d, bool(intercept)), ConstantGate(np.full(K, 1 / K)), experts)
        self.shape = d, q

    @property
    def sites(self) -> list[Site]:
        return [Site(name, rows) for name, rows in self.rows.items()]

    def run(self, method: FedGrEM, **options: Any) -> Run[tuple[SharedFit]]:
        dialogue = method.dialogue(Task([self.specification], *self.shape, start=self.truth))
        return run(dialogue, InProcess().over(self.sites), **options)

    def start(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Shares ``(K,)`` and coefficients ``(K, q, p)`` of the local fits, in common labels."""
        question = FitSite(self.specification, (self.truth.K,), 0, start=self.truth, columns=self.shape, describe=False)
        fits = run(local_fits(question), InProcess().over(self.sites)).value.mixtures
        return {name: (fit.gate.probabilities, fit.raw().experts.B) for name, fit in fits.items()}


def mixture_study(**options: Any) -> Study:
    return Study(np.array([[[0.0], [0.0]], [[5.0], [2.0]]]), intercept=True, **options)


def regression_study(**options: Any) -> Study:
    return Study(np.array([[[3.0, -1.0, 2.0]], [[-2.0, 2.0, 0.0]]]), **options)


STUDIES = {"mixture": mixture_study, "regressions": regression_study}


# ---------------------------------------------------------------------- the formulas


def huber(points: np.ndarray, tau: np.ndarray, n: np.ndarray) -> np.ndarray:
    """``argmin_v Σ_m n_m ρ_τ(‖z_m - v‖)`` by a general solver, from the mean."""

    def loss(v: np.ndarray) -> tuple[float, np.ndarray]:
        gap = v - points
        r = np.linalg.norm(gap, axis=1)
        value = np.where(r <= tau, 0.5 * r**2, tau * (r - 0.5 * tau))
        pull = np.minimum(1.0, tau / np.maximum(r, 1e-300))
        return float(n @ value / n.sum()), (n * pull) @ gap / n.sum()

    found = minimize(loss, points.mean(axis=0), jac=True, method="BFGS", options={"gtol": 1e-12})
    return found.x


def reference(
    study: Study, rounds: int, *, gone: dict[str, int] | None = None, method: FedGrEM | None = None
) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], np.ndarray]:
    """The algorithm in words of one row: each site's shares and coefficients, and the centre ``(K, q p)``.

    ``gone`` says in which round a site gives no answer any more.
    """
    method, gone, stand = method or FedGrEM(), gone or {}, study.start()
    eta = {name: method.step / w for name, (w, _) in stand.items()}
    lam, centre = 1.0, np.empty(0)
    for t in range(1, rounds + 1):
        stand = {name: value for name, value in stand.items() if gone.get(name, rounds + 1) > t}
        theta, shares = {}, {}
        for name, (w, B) in stand.items():
            rows = study.rows[name]
            panel = np.column_stack([np.ones((rows.n, int(study.specification.intercept))), rows.X])
            residuals = rows.Y[:, None] - np.einsum("kqp,np->nkq", B, panel)
            gamma = softmax(np.log(w) - 0.5 * np.sum(residuals**2, axis=2), axis=1)
            gradient = np.einsum("nk,nkq,np->kqp", gamma, residuals, panel) / rows.n
            shares[name], theta[name] = gamma.mean(axis=0), B + eta[name][:, None, None] * gradient
        M, K, f = len(stand), len(study.truth.experts.B), study.truth.experts.B[0].size
        lam = method.decay * lam + method.strength * np.sqrt(f + np.log(M))
        n = np.array([study.rows[name].n for name in stand], dtype=float)
        n = np.minimum(n, 2 * np.median(n))
        tau, Z = lam / np.sqrt(n), np.array([value.reshape(K, f) for value in theta.values()])
        centre = np.array([huber(Z[:, k], tau, n) for k in range(K)])
        gap = Z - centre
        left = np.maximum(0, 1 - tau[:, None] / np.linalg.norm(gap, axis=2))
        nu = centre + left[:, :, None] * gap
        stand = {name: (shares[name], nu[m].reshape(study.truth.experts.B.shape)) for m, name in enumerate(stand)}
    return stand, centre


def assert_follows(fit: SharedFit, expected: dict[str, tuple[np.ndarray, np.ndarray]], centre: np.ndarray) -> None:
    assert list(fit.fits) == list(expected)
    for name, (shares, B) in expected.items():
        found = fit.fits[name].mixture
        np.testing.assert_allclose(found.experts.B, B[fit.permutation], atol=2e-6)
        np.testing.assert_allclose(found.gate.probabilities, shares[fit.permutation], atol=1e-6)
    np.testing.assert_allclose(fit.mixture.experts.B.reshape(len(centre), -1), centre[fit.permutation], atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("sizes", [(100, 100, 100, 100), (60, 80, 100, 900)], ids=["equal", "one is large"])
@pytest.mark.parametrize("h", [0.0, 1.0], ids=["alike", "differing"])
@pytest.mark.parametrize("study", STUDIES.values(), ids=list(STUDIES))
def test_rounds_follow_the_formulas(study: Any, h: float, sizes: tuple[int, ...], rounds: int) -> None:
    case = study(sizes=sizes, h=h)
    (fit,) = case.run(FedGrEM(rounds=rounds, tol=0.0)).value
    assert_follows(fit, *reference(case, rounds))
    assert (fit.ascent.stop, fit.ascent.passes) == (StopReason.ROUNDS, rounds)


def test_the_constants_are_those_of_the_formulas() -> None:
    method, case = FedGrEM(step=0.5, decay=0.4, strength=0.7, rounds=3, tol=0.0), regression_study(sizes=(90,) * 4, h=1)
    (fit,) = case.run(method).value
    assert_follows(fit, *reference(case, 3, method=method))


def test_what_is_borrowed_is_the_share_of_the_way_to_the_centre() -> None:
    case = mixture_study(sizes=(100,) * 4, h=1.0)
    (fit,) = case.run(FedGrEM(rounds=1, strength=0.5)).value
    lam = 0.1 + 0.5 * np.sqrt(2 + np.log(4))
    assert np.any((fit.sharing.shrinkage > 0) & (fit.sharing.shrinkage < 1))
    for site in fit.sites:
        gap = fit.fits[site.name].mixture.experts.B[:, :, 0] - fit.mixture.experts.B[:, :, 0]
        distance, tau = np.linalg.norm(gap, axis=1), lam / 10  # after the threshold, τ is gone from the distance
        expected = np.where(site.shrinkage == 1, 1.0, tau / (distance + tau))
        np.testing.assert_allclose(site.shrinkage, expected, rtol=1e-8)
        assert np.all(distance[site.shrinkage == 1] < 1e-9)


# ---------------------------------------------------------------------- where it ends


@pytest.mark.parametrize("study", STUDIES.values(), ids=list(STUDIES))
def test_sites_that_are_alike_are_fused(study: Any) -> None:
    done = study(sizes=(150,) * 4).run(FedGrEM())
    (fit,) = done.value
    for own in fit.fits.values():
        np.testing.assert_allclose(own.mixture.experts.B, fit.mixture.experts.B, atol=1e-9)
    assert np.all(fit.sharing.shrinkage == 1)
    assert fit.trusted
    assert [site.status for site in fit.sites] == ["shared"] * 4


def test_it_stops_when_nothing_moves() -> None:
    case = mixture_study(sizes=(150,) * 4)
    done = case.run(FedGrEM(tol=1e-4))
    (fit,) = done.value
    assert fit.ascent.stop is StopReason.SETTLED
    assert fit.ascent.passes == len(done.record.rounds) - 1 < 100
    before, after = (case.run(FedGrEM(rounds=fit.ascent.passes - i, tol=0.0)).value[0] for i in (1, 0))
    moved = [
        np.abs(after.fits[name].mixture.experts.B - before.fits[name].mixture.experts.B).max() for name in after.fits
    ]
    assert max(moved) <= 1e-4


def test_a_site_far_away_keeps_its_own_and_moves_the_centre_little() -> None:
    case, same = (mixture_study(sizes=(150,) * 4, seed=3) for _ in range(2))
    case.rows["west"] = Rows(case.rows["west"].X, case.rows["west"].Y + 100)
    (fit,), (plain,) = (study.run(FedGrEM()).value for study in (case, same))
    assert np.abs(fit.mixture.experts.B - plain.mixture.experts.B).max() < 0.5
    west = fit.sites[3]
    assert west.shrinkage.min() < 0.05
    assert np.abs(fit.fits["west"].mixture.experts.B).max() > 95


def test_the_rounds_are_questions_of_their_own() -> None:
    done = mixture_study(sizes=(100,) * 4).run(FedGrEM(rounds=2, tol=0.0))
    assert [(r.request, r.question) for r in done.record.rounds] == [("Each", "FitSite"), *[("PerSite", "Expect")] * 2]


def test_the_centre_has_no_standard_errors_and_says_so() -> None:
    (fit,) = mixture_study(sizes=(100,) * 4).run(FedGrEM()).value
    assert np.all(np.isnan(fit.inference.standard_errors().flat()))
    assert fit.inference.withheld["experts"] == "this method does not compute standard errors"


# ---------------------------------------------------------------------- sites that drop out


@pytest.mark.parametrize("study", STUDIES.values(), ids=list(STUDIES))
def test_a_site_that_drops_out_is_left_out_from_then_on(study: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    case = study(sizes=(60, 80, 100, 120), h=0.5)
    expected, centre = reference(case, 4, gone={"north": 3})
    Calls(monkeypatch).misbehave("north", failing, time=3)  # after its fit and two rounds
    done = case.run(FedGrEM(rounds=4, tol=0.0), on_drop="continue")
    assert_follows(done.value[0], expected, centre)
    assert done.record.dropped.keys() == {"north"}
    assert list(done.value[0].fits) == ["east", "south", "west"]


def test_a_site_that_drops_out_stops_a_run_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    Calls(monkeypatch).misbehave("north", failing, time=2)
    with pytest.raises(RoundStoppedError, match="round 3 stopped: north"):
        mixture_study(sizes=(100,) * 4).run(FedGrEM())


def test_the_site_that_dropped_out_is_named_in_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    case = mixture_study(sizes=(100,) * 4)
    Calls(monkeypatch).misbehave("north", failing, time=2)
    estimator = GaussianMixture(2, mixture_init=case.truth, random_state=0)
    with pytest.warns(UserWarning, match="north"):
        result = Federation({name: (rows.Y,) for name, rows in case.rows.items()}).fit(
            estimator, FedGrEM(), on_drop="continue"
        )
    assert [site.name for site in result.sites if site.reasons] == ["north"]
    assert sorted(result.models) == ["east", "south", "west"]


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "specification",
    [
        Specification(K=2),
        Specification(K=2, family="poisson", gate="constant"),
        Specification(K=2, family="categorical", gate="constant", n_classes=3),
    ],
    ids=["softmax", "poisson", "categorical"],
)
def test_other_families_are_refused(specification: Specification) -> None:
    with pytest.raises(InvalidInputError, match="FedGrEM needs Gaussian experts behind a constant gate; the model has"):
        next(FedGrEM().dialogue(Task([specification], 2, 1)))


def test_several_orders_are_refused() -> None:
    orders = [Specification(K=K, gate="constant") for K in (2, 3)]
    with pytest.raises(InvalidInputError, match="FedGrEM fits one number of experts at a time"):
        next(FedGrEM().dialogue(Task(orders, 0, 2)))


@pytest.mark.parametrize(
    "arguments",
    [
        {"rounds": 0},
        {"rounds": 1.5},
        {"rounds": True},
        {"step": 0.0},
        {"step": np.nan},
        {"decay": 1.0},
        {"decay": -0.1},
        {"strength": 0.0},
        {"tol": -1e-9},
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        FedGrEM(**arguments)


@pytest.mark.slow
def test_steps_that_run_away_are_an_error_with_the_reason() -> None:
    rng = np.random.default_rng(0)
    noisy = {name: Rows(1e3 * rng.normal(size=(50, 2)), 1e3 * rng.normal(size=(50, 1))) for name in NAMES}
    specification = Specification(K=2, gate="constant", intercept=False)
    with pytest.raises(InvalidInputError, match="FedGrEM assumes noise of variance 1"):
        run(
            FedGrEM().dialogue(Task([specification], 2, 1, n_init=1)),
            InProcess().over([Site(name, rows) for name, rows in noisy.items()]),
        )
