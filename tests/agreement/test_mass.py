"""Agreement with R MASS: a negative binomial regression and a Student t; ``mass/README.md`` tells of the values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.fit import Fit, Specification, fit_mixture, infer
from consilience.model import Rows

VALUES = json.loads((Path(__file__).parent / "mass" / "values.json").read_text())


def fit(rows: Rows, family: str) -> Fit:
    specification = Specification(K=1, family=family, gate="constant", expert_ridge=0.0)
    return fit_mixture(rows, specification, rng=np.random.default_rng(0))


@pytest.mark.parametrize("name", ["quine", "epil"])
def test_negative_binomial_regressions_agree_with_glm_nb(name: str) -> None:
    theirs: dict[str, Any] = VALUES[name]
    exposure = None if theirs["exposure"] is None else np.array(theirs["exposure"], dtype=float)
    rows = Rows(np.array(theirs["X"], dtype=float), np.array(theirs["y"], dtype=float)[:, None], None, exposure)
    found = fit(rows, "negative_binomial")
    experts, errors = found.mixture.experts, np.array(theirs["standard_errors"])
    assert found.log_likelihood == pytest.approx(theirs["loglik"], abs=1e-6)
    assert np.abs((experts.B[0] - theirs["coefficients"]) / errors).max() < 1e-3
    assert abs(experts.theta[0] - theirs["theta"]) < 1e-3 * theirs["theta_error"]
    shown = infer(found, rows).standard_errors()
    np.testing.assert_allclose(shown.experts[0, 0], errors, rtol=0.15)
    assert shown.log_shapes[0, 0] == pytest.approx(theirs["theta_error"] / theirs["theta"], rel=0.15)


@pytest.mark.parametrize("name", ["speed_of_light", "newcomb"])
def test_student_t_agrees_with_fitdistr(name: str) -> None:
    theirs = VALUES[name]
    rows = Rows(np.empty((len(theirs["y"]), 0)), np.array(theirs["y"], dtype=float)[:, None])
    found = fit(rows, "student")
    experts = found.mixture.experts
    assert found.log_likelihood == pytest.approx(theirs["loglik"], abs=1e-5)
    assert abs(experts.B[0, 0] - theirs["location"]) < 0.01 * theirs["location_error"]
    assert experts.scale[0] == pytest.approx(theirs["scale"], rel=2e-3)
    assert np.log(experts.nu[0]) == pytest.approx(np.log(theirs["degrees"]), abs=0.02)
    shown = infer(found, rows).standard_errors()
    assert shown.experts[0, 0, 0] == pytest.approx(theirs["location_error"], rel=0.01)
