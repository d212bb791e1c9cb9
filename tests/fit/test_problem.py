"""The end of a fit: a pass at any mixture, with a reason of its own, and with or without standard errors."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.fit import InferredFit, MethodStop, Problem, StopReason, drive, fit_mixture, infer
from consilience.fit.inference import inference_from_fit
from consilience.model import expect
from consilience.model.summary import column_summary
from simulated import simulated

CASE = simulated(n=600)
PROBLEM = Problem(CASE.specification, column_summary(CASE.rows))


def evaluated(stop, **options):
    at = PROBLEM.from_start(CASE.truth)
    answer = lambda question: expect(question.mixture, CASE.rows, information=question.information)  # noqa: E731
    return drive(PROBLEM.evaluate(at, stop, **options), answer)


def test_one_pass_states_the_likelihood_of_a_mixture_and_no_iterations() -> None:
    end = evaluated(MethodStop("medians of something"))
    assert end.statistics.log_likelihood == pytest.approx(CASE.truth.log_density(CASE.rows).sum())
    assert (end.n_iter, end.passes, end.informed_passes) == (0, 1, 0)
    assert str(end.stop) == "stopped: medians of something"
    assert not end.stop.converged
    assert end.stop.by_choice
    assert StopReason[end.stop.name] is StopReason.METHOD
    assert str(MethodStop("it settled", converged=True)) == "converged: it settled"


def test_a_fit_without_standard_errors_states_the_reason() -> None:
    fit = PROBLEM.fit(evaluated(StopReason.METHOD), without="nobody asked")
    assert isinstance(fit, InferredFit)
    assert fit.inference.withheld == {"gate": "nobody asked", "experts": "nobody asked"}
    assert np.isnan(inference_from_fit(fit).standard_errors().flat()).all()


def test_a_fit_with_the_information_has_the_standard_errors_of_any_fit() -> None:
    best = fit_mixture(CASE.rows, CASE.specification, rng=np.random.default_rng(0), start=CASE.truth)
    at = PROBLEM.from_start(best.mixture)
    answer = lambda question: expect(question.mixture, CASE.rows, information=question.information)  # noqa: E731
    fit = PROBLEM.fit(drive(PROBLEM.evaluate(at, StopReason.METHOD, information=True), answer))
    expected = infer(best, CASE.rows).standard_errors()
    np.testing.assert_allclose(inference_from_fit(fit).standard_errors().experts, expected.experts, rtol=1e-6)
