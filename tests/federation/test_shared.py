"""Federations whose sites have models of their own: what a user sees of them, and is warned of."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from answering import Calls, failing
from combining import softly_categorical
from consilience import (
    Federation,
    FedGrEM,
    GaussianMixture,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    MixtureOfRegressions,
    SharedCentre,
)
from consilience.errors import (
    ConsilienceWarning,
    ConvergenceWarning,
    DegenerateFitWarning,
    InvalidInputError,
    JournalError,
    RoundStoppedError,
    SetAsideWarning,
    UntrustedWarning,
)
from consilience.estimators.federated import adopt_fit, set_columns
from consilience.federation.federated_fit import FederatedFit
from consilience.messages import FailureCode
from consilience.methods.per_site.shared_fit import GETS, OF_A_SITE
from consilience.model import ConstantGate, Design, GaussianExperts, Mixture
from simulated import Simulated, simulated

METHODS = {"SharedCentre": SharedCentre(), "FedGrEM": FedGrEM(strength=0.3)}
MEANS = np.array([[0.0, 0.0, 0.0], [6.0, 0.0, 3.0]])
START = Mixture(
    Design.raw(0), ConstantGate(np.full(2, 0.5)), GaussianExperts(MEANS[:, :, None], np.tile(np.eye(3), (2, 1, 1)))
)
CLUSTERS = GaussianMixture(2, mixture_init=START, random_state=0)


def clusters(M: int = 5, n: int = 80, *, seed: int = 3, **shifts: float) -> dict[str, tuple[np.ndarray]]:
    """Sites a, b, .. with two clusters; some are shifted."""
    rng = np.random.default_rng(seed)
    found = {}
    for name in "abcdefghijkl"[:M]:
        labels = (rng.random(n) > 0.6).astype(int)
        found[name] = (MEANS[labels] + rng.normal(size=(n, 3)) + shifts.get(name, 0.0),)
    return found


def split(case: Simulated, sites: int = 4) -> dict[str, dict[str, np.ndarray]]:
    """The rows of a case as sites."""
    parts = {}
    for i in range(sites):
        data = {"X": case.X[i::sites], "y": case.y[i::sites]}
        if case.rows.exposure is not None:
            data["exposure"] = case.rows.exposure[i::sites]
        parts[f"site {i}"] = data
    return parts


@pytest.fixture(scope="module")
def shared() -> FederatedFit:
    return Federation(clusters()).fit(CLUSTERS, SharedCentre())


# ---------------------------------------------------------------------- models


CASES = {
    "regressions": (simulated(gate="constant", n=800, seed=3), MixtureOfRegressions(2, random_state=0)),
    "experts": (simulated(n=800, seed=3), MixtureOfExpertsRegressor(2, random_state=0)),
    "two responses": (simulated(n=800, q=2, seed=3), MixtureOfExpertsRegressor(2, random_state=0)),
    "classes": (softly_categorical(n=1_000), MixtureOfExpertsClassifier(2, random_state=0)),
    "counts": (
        simulated("poisson", n=800, exposure=True, seed=3),
        MixtureOfExpertsRegressor(2, family="poisson", random_state=0),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n == "classes" else ()) for n in CASES])
def test_every_estimator_has_a_model_for_each_site(name: str) -> None:
    case, estimator = CASES[name]
    estimator = clone(estimator).set_params(mixture_init=case.truth)
    result = Federation(split(case)).fit(estimator, SharedCentre())
    assert sorted(result.models) == [site.name for site in result.sites] == [f"site {i}" for i in range(4)]
    for model in (result.model, *result.models.values()):
        assert type(model) is type(estimator)
        assert model.converged_
        assert len(model.predict(case.X[:7])) == 7
    assert not hasattr(estimator, "mixture_")
    assert len({id(model) for model in (result.model, *result.models.values())}) == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "structure", ["full", "tied", *(pytest.param(s, marks=pytest.mark.slow) for s in ("diag", "spherical"))]
)
def test_gaussian_mixtures_of_every_structure(structure: str) -> None:
    stored = {
        "full": np.tile(np.eye(3), (2, 1, 1)),
        "diag": np.ones((2, 3)),
        "spherical": np.ones(2),
        "tied": np.eye(3),
    }
    start = Mixture(START.design, START.gate, GaussianExperts(MEANS[:, :, None], stored[structure], structure))
    estimator = GaussianMixture(2, covariance_type=structure, mixture_init=start, random_state=0)
    with warnings.catch_warnings(action="ignore", category=SetAsideWarning):  # chance names an expert now and then
        result = Federation(clusters()).fit(estimator, SharedCentre())
    for model in (result.model, *result.models.values()):
        np.testing.assert_allclose(model.means_, MEANS, atol=0.8)
        assert model.covariances_.shape == stored[structure].shape
        assert set(model.predict(MEANS)) == {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))
def test_a_sites_model_is_its_own_and_the_model_the_centres(method: Any) -> None:
    with warnings.catch_warnings(action="ignore", category=ConsilienceWarning):  # SharedCentre says that c is far
        result = Federation(clusters(c=1.5)).fit(CLUSTERS, method)
    moved = result.models["c"].means_ - result.model.means_
    others = result.models["a"].means_ - result.model.means_
    assert np.linalg.norm(moved) > 2 * np.linalg.norm(others)
    np.testing.assert_array_equal(result.model.means_, result.fit.mixture.experts.B[:, :, 0])
    np.testing.assert_array_equal(result.models["c"].means_, result.fit.fits["c"].mixture.experts.B[:, :, 0])


@pytest.mark.slow
def test_frames_keep_their_names() -> None:
    frames = {name: (pd.DataFrame(X, columns=["age", "dose", "time"]),) for name, (X,) in clusters().items()}
    result = Federation(frames).fit(CLUSTERS, SharedCentre())
    for model in (result.model, *result.models.values()):
        assert model.feature_names_in_.tolist() == ["age", "dose", "time"]
        assert "dose" in str(model.to_frame())


def test_a_method_without_models_of_sites_has_none() -> None:
    result = Federation(clusters(2)).fit(CLUSTERS)
    assert result.models == {}
    assert [site.status for site in result.sites] == ["used", "used"]


# ---------------------------------------------------------------------- standard errors and text


@pytest.mark.slow
def test_the_summary_of_the_centre_has_standard_errors_of_its_coefficients(shared: FederatedFit) -> None:
    errors = shared.model.inference_.standard_errors()
    assert np.all(errors.experts > 0)
    assert np.all(np.isnan(errors.gate))
    text = " ".join(shared.model.summary().split())
    assert "Intervals withheld (gate): the centre of the sites' gates has no standard errors." in text


@pytest.mark.slow
def test_the_centre_of_gated_experts_withholds_its_gate() -> None:
    case, estimator = CASES["experts"]
    result = Federation(split(case)).fit(clone(estimator).set_params(mixture_init=case.truth), SharedCentre())
    assert np.all(np.isnan(result.model.inference_.standard_errors().gate))
    assert np.all(np.isfinite(result.model.inference_.standard_errors().experts))
    assert "gate" in result.model.inference_.withheld
    assert "Intervals withheld (gate)" in result.model.summary()


def test_standard_errors_of_a_sites_model_are_withheld_with_the_reason(shared: FederatedFit) -> None:
    for model in shared.models.values():
        assert np.all(np.isnan(model.inference_.standard_errors().flat()))
        assert model.inference_.withheld == {"gate": OF_A_SITE, "experts": OF_A_SITE}
        assert OF_A_SITE in " ".join(model.summary().split())


def test_what_fedgrem_withholds_is_said() -> None:
    result = Federation(clusters()).fit(CLUSTERS, FedGrEM())
    assert np.all(np.isnan(result.model.inference_.standard_errors().flat()))
    assert "this method does not compute standard errors" in result.model.summary()


def test_sites_are_read_as_text(shared: FederatedFit) -> None:
    for site in shared.sites:
        assert str(site).startswith(f"{site.name}: shared: shrinkage ")
        assert str(site).endswith(" %" if site.model == "shared" else GETS[site.model])


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("criterion", ["aic", "bic"])
def test_criteria_of_one_mixture_are_refused(shared: FederatedFit, criterion: str) -> None:
    with pytest.raises(
        InvalidInputError, match=f"{criterion.upper()} is not defined for a method that fits one mixture per site"
    ):
        getattr(shared, criterion)


@pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))
def test_orders_are_chosen_by_another_method(method: Any) -> None:
    with pytest.raises(InvalidInputError, match="one number of experts at a time: choose it with"):
        Federation(clusters(2)).select_order(GaussianMixture(random_state=0), [1, 2], method=method)
    with pytest.raises(InvalidInputError, match="BIC is not defined for a method that fits one mixture per site"):
        Federation(clusters(2)).select_order(CLUSTERS, [2], method=method)


def test_fedgrem_is_not_for_gates() -> None:
    case, estimator = CASES["experts"]
    with pytest.raises(InvalidInputError, match="use SharedCentre"):
        Federation(split(case)).fit(estimator, FedGrEM())


# ---------------------------------------------------------------------- warnings


def test_sites_that_agree_are_no_reason_to_warn(shared: FederatedFit) -> None:
    assert shared.fit.trusted  # warnings are errors here
    assert [site.status for site in shared.sites] == ["shared"] * 5


@pytest.mark.slow
def test_a_site_that_is_not_used_is_warned_of_with_the_reason() -> None:
    with pytest.warns(SetAsideWarning, match="some sites were not used as a whole: d: .* further from") as caught:
        result = Federation(clusters(d=3.0)).fit(CLUSTERS, SharedCentre())
    assert caught[0].filename == __file__
    assert [warning.category for warning in caught] == [SetAsideWarning]
    assert [site.name for site in result.sites if site.reasons] == ["d"]
    assert result.fit.trusted


@pytest.mark.slow
def test_a_result_that_is_not_to_be_trusted_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    for name in "abc":
        calls.misbehave(name, failing)
    with pytest.warns((UntrustedWarning, SetAsideWarning)) as caught:
        result = Federation(clusters(7)).fit(CLUSTERS, SharedCentre(), on_drop="continue")
    said = {warning.category: str(warning.message) for warning in caught}
    assert said.keys() == {UntrustedWarning, SetAsideWarning}
    assert "the result cannot be trusted: only 4 of 7 sites agree" in said[UntrustedWarning]
    assert all(f"{name}: {FailureCode.INTERNAL}: the traceback is in" in said[SetAsideWarning] for name in "abc")
    assert not result.fit.trusted
    assert {site.name for site in result.sites if site.status == "no answer"} == {"a", "b", "c"}
    assert sorted(result.models) == ["d", "e", "f", "g"]


@pytest.mark.slow
def test_a_few_sites_without_answer_are_named_and_the_result_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    Calls(monkeypatch).misbehave("b", failing)
    with pytest.warns(SetAsideWarning, match=re.escape(f"b: {FailureCode.INTERNAL}: the traceback is in")) as caught:
        result = Federation(clusters()).fit(CLUSTERS, SharedCentre(), on_drop="continue")
    assert len(caught) == 1
    assert result.fit.trusted
    alone = Federation({name: data for name, data in clusters().items() if name != "b"}).fit(CLUSTERS, SharedCentre())
    np.testing.assert_allclose(result.model.means_, alone.model.means_, atol=1e-9)


@pytest.mark.filterwarnings("ignore::consilience.errors.UntrustedWarning")  # so early sites may seem to form groups
def test_rounds_that_are_too_few_are_warned_of() -> None:
    with pytest.warns(ConvergenceWarning, match="maximum number of rounds"):
        result = Federation(clusters()).fit(CLUSTERS, SharedCentre(rounds=1))
    assert not result.model.converged_


# ---------------------------------------------------------------------- sites with little to say


@pytest.mark.slow
def test_a_site_with_a_few_rows_has_a_model() -> None:
    sites = {**clusters(), "tiny": (clusters()["a"][0][:5],)}
    result = Federation(sites).fit(CLUSTERS, SharedCentre())
    np.testing.assert_allclose(result.models["tiny"].means_, result.model.means_, atol=0.5)
    assert [site.name for site in result.sites] == [*"abcde", "tiny"]
    assert "follows the noise" not in result.models["tiny"].summary()  # 19 parameters on 5 rows, but hardly its own


@pytest.mark.slow
def test_a_model_that_a_few_rows_determine_follows_the_noise() -> None:
    sites = {**clusters(), "tiny": (clusters()["a"][0][:5],)}
    fit = Federation(sites).fit(CLUSTERS, SharedCentre()).fit
    alone = replace(fit, sites=tuple(replace(site, shrinkage=np.zeros_like(site.shrinkage)) for site in fit.sites))
    model = clone(CLUSTERS)
    set_columns(model, sites["tiny"][0].shape[1])
    with pytest.warns(DegenerateFitWarning, match="parameters on 5 rows"):
        adopt_fit(model, alone.site_fits()["tiny"])


@pytest.mark.slow
def test_every_site_is_in_the_result_even_without_rows() -> None:
    sites = {**clusters(), "empty": (np.empty((0, 3)),)}
    with warnings.catch_warnings(action="ignore", category=SetAsideWarning):  # it may be said that it has no rows
        result = Federation(sites).fit(CLUSTERS, SharedCentre())
    assert {site.name for site in result.sites} == {*"abcde", "empty"}


# ---------------------------------------------------------------------- journals and seeds


@pytest.mark.slow
def test_a_journal_resumes_where_a_fit_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Federation(clusters()).fit(CLUSTERS, SharedCentre())
    with monkeypatch.context() as patch:
        Calls(patch).misbehave("c", failing, time=2)
        with pytest.raises(RoundStoppedError, match="c: "):
            Federation(clusters()).fit(CLUSTERS, SharedCentre(), journal=tmp_path / "journal")
    calls = Calls(monkeypatch)
    again = Federation(clusters()).fit(CLUSTERS, SharedCentre(), journal=tmp_path / "journal")
    for name, model in whole.models.items():
        np.testing.assert_array_equal(model.means_, again.models[name].means_)
        np.testing.assert_array_equal(model.covariances_, again.models[name].covariances_)
    assert calls.asked.count("a") < len(whole.record.rounds) - 2
    assert again.model.summary() == whole.model.summary()


def test_the_journal_of_another_method_is_refused(tmp_path: Path) -> None:
    Federation(clusters(2)).fit(CLUSTERS, SharedCentre(), journal=tmp_path / "journal")
    for method in (SharedCentre(rounds=49), SharedCentre(participation=0.5), FedGrEM()):
        with pytest.raises(JournalError):
            Federation(clusters(2)).fit(CLUSTERS, method, journal=tmp_path / "journal")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")  # two rounds are too few to settle
def test_a_random_state_draws_who_is_asked() -> None:
    def asked(seed: int) -> list[list[str]]:
        estimator = clone(CLUSTERS).set_params(random_state=seed)
        record = Federation(clusters(6)).fit(estimator, SharedCentre(rounds=2, participation=0.5)).record
        return [sorted(exchange.sites[0] for exchange in r.exchanges) for r in record.rounds]

    assert asked(1) == asked(1) != asked(2)
    *rounds, last = asked(1)
    assert [len(sites) for sites in rounds] == [6, 3, 3, 3]
    assert set(last) == {*rounds[2], *rounds[3]}  # all that have answered evaluate the mixtures that they get


def test_the_record_counts_what_was_sent(shared: FederatedFit) -> None:
    assert [r.question for r in shared.record.rounds[:2]] == ["FitSite", "Several"]  # with one regression
    assert all(exchange.bytes_sent > 0 for r in shared.record.rounds for exchange in r.exchanges)
    assert any("the observed information" in r.discloses for r in shared.record.rounds)
