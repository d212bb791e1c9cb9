"""Fits by scores: near the pooled maximum, with its standard errors, and never silent where they cannot be."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience import FederatedEM, Federation, MixtureOfExpertsRegressor, MixtureOfRegressions, OneShot, load
from consilience.aggregate.combine.site_model import covariate_summary
from consilience.datasets import soft
from consilience.engines import InProcess
from consilience.errors import InvalidInputError
from consilience.federation import FederatedFit
from consilience.fit import Specification, infer
from consilience.fit.climb import StopReason
from consilience.fit.simulated_information import SimulatedInformation
from consilience.messages import LogLikelihood, ScoreSums, Several
from consilience.methods.score_steps import simulated_inference
from consilience.methods.task import Task
from consilience.model import Rows
from consilience.model.rows import Groups
from consilience.runs import run
from consilience.site import Site

SCORES = OneShot(refine=1, information="simulated")
TOTALS = FederatedEM(totals_only=True, information="simulated")


@cache
def sites(n: int = 2_000, M: int = 3, d: int = 3) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    data = soft(M * n, n_experts=2, n_features=d, random_state=1)
    return {f"site {m}": (data.X[m::M], data.y[m::M]) for m in range(M)}


@cache
def fitted(method: Any, start: Any = None) -> FederatedFit:
    model = MixtureOfExpertsRegressor(2, random_state=0, mixture_init=start)
    return Federation(sites()).fit(model, method=method)


def standard_errors_apart(one: FederatedFit, other: FederatedFit) -> np.ndarray:
    a, b = one.fit.inference, other.fit.inference
    gap, errors = a.estimates.flat() - b.estimates.flat(), np.sqrt(np.diag(b.covariance))
    return np.abs(gap[errors > 0] / errors[errors > 0])


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, pytest.param(3, marks=pytest.mark.long)])
def test_refinement_by_scores_ends_near_the_pooled_maximum(steps: int) -> None:
    pooled = fitted(OneShot(refine=8))
    found = fitted(OneShot(refine=steps, information="simulated"))
    apart, before = standard_errors_apart(found, pooled), standard_errors_apart(fitted(OneShot(refine=1)), pooled)
    assert before.max() < 0.05
    assert apart.max() < 0.1
    assert found.fit.log_likelihood > pooled.fit.log_likelihood - 0.05
    assert found.fit.log_likelihood >= found.fit.rivals.unrefined
    own, theirs = (np.sqrt(np.diag(each.covariance)) for each in (found.fit.inference, infer(pooled.fit)))
    np.testing.assert_allclose(own, theirs, rtol=0.05)
    assert found.fit.inference.kind == "simulated"
    assert not found.fit.inference.withheld


def test_the_summary_says_where_standard_errors_come_from_and_files_keep_it(tmp_path: Path) -> None:
    model = fitted(SCORES).model
    assert "Standard errors: information simulated from the mixture" in str(model.summary())
    assert model.describe()
    model.save(tmp_path / "model.json")
    assert str(load(tmp_path / "model.json").summary()) == str(model.summary())


def test_shares_and_order_of_experts_are_those_of_the_rows() -> None:
    found, pooled = fitted(SCORES), fitted(OneShot(refine=8))
    np.testing.assert_allclose(found.model.weights_, pooled.model.weights_, atol=0.002)


@pytest.mark.slow
def test_totals_by_scores_end_near_the_maximum() -> None:
    start = fitted(OneShot(refine=0)).model.mixture_
    found, pooled = fitted(TOTALS, start), fitted(OneShot(refine=8))
    assert standard_errors_apart(found, pooled).max() < 0.1
    assert found.model.converged_
    assert len(found.record.rounds) <= 4
    assert "normal distribution" in found.fit.inference.withheld["experts"]


def watched(dialogue: Any, seen: list[Any]) -> Any:
    """Run a dialogue, and keep its questions."""
    request = next(dialogue)
    try:
        while True:
            question = request.question
            seen += question.questions if isinstance(question, Several) else (question,)
            request = dialogue.send((yield request))
    except StopIteration as done:
        return done.value


def test_sites_are_asked_for_no_products_of_covariates_at_a_mixture() -> None:
    rows = [Site(name, Rows(X, y[:, None])) for name, (X, y) in sites().items()]
    seen: list[Any] = []
    run(watched(SCORES.dialogue(Task([Specification(K=2)], 3, 1)), seen), InProcess().over(rows))
    mixtures = [question for question in seen if hasattr(question, "mixture") and question.mixture.K > 1]
    assert sum(isinstance(question, ScoreSums) for question in mixtures) == 1
    assert all(isinstance(question, ScoreSums | LogLikelihood) for question in mixtures)


def test_intervals_are_withheld_after_a_long_step() -> None:
    fit = fitted(SCORES).fit
    X = np.concatenate([X for X, _ in sites().values()])
    summary = covariate_summary(X, np.ones(len(X)), np.random.default_rng(0))
    simulation = SimulatedInformation((float(len(X)),), (summary,), seed=0)
    assert not simulated_inference(fit, simulation).withheld
    long = replace(fit, ascent=replace(fit.ascent, trace=(fit.ascent.trace[-1] - 100.0, fit.ascent.trace[-1])))
    assert "the last step had a length" in simulated_inference(long, simulation).withheld["experts"]
    none = replace(fit, ascent=replace(fit.ascent, trace=fit.ascent.trace[-1:], stop=StopReason.REFINED))
    assert "no step" in simulated_inference(none, simulation).withheld["gate"]
    elsewhere = SimulatedInformation(
        (float(len(X)),), (covariate_summary(3 * X, np.ones(len(X)), np.random.default_rng(0)),), seed=0
    )
    assert "not like the sites'" in simulated_inference(fit, elsewhere).withheld["gate"]


def test_summaries_of_covariates_give_the_observed_standard_errors() -> None:
    found, pooled = fitted(SCORES).fit.inference, infer(fitted(OneShot(refine=8)).fit)
    own, theirs = (np.sqrt(np.diag(each.covariance)) for each in (found, pooled))
    np.testing.assert_allclose(own, theirs, rtol=0.05)


def test_what_cannot_be_simulated_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="information='exact'"):
        OneShot(information="exact")
    for wrong in ({}, {"totals_only": True, "newton": False}):
        with pytest.raises(InvalidInputError, match="totals_only=True"):
            FederatedEM(information="simulated", **wrong)
    with pytest.raises(InvalidInputError, match="mixture_init"):
        Federation(sites()).fit(MixtureOfExpertsRegressor(2), method=TOTALS)
    counts = {name: (X, np.abs(y).round()) for name, (X, y) in sites().items()}
    with pytest.raises(InvalidInputError, match="Gaussian experts"):
        Federation(counts).fit(MixtureOfRegressions(2, family="poisson"), method=SCORES)


def test_labels_of_groups_are_an_error() -> None:
    rows = [
        Site(name, Rows(X, y[:, None], groups=Groups.of(np.arange(len(y)) // 4))) for name, (X, y) in sites().items()
    ]
    with pytest.raises(InvalidInputError, match="one label per row"):
        run(SCORES.dialogue(Task([Specification(K=2, gate="constant")], 3, 1)), InProcess().over(rows))


def test_the_method_names_its_information_only_where_it_is_not_the_usual() -> None:
    assert "information" not in repr(OneShot())
    assert "information='simulated'" in repr(SCORES)
