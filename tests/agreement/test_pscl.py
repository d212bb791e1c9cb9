"""Agreement with R pscl: a hurdle regression of counts; ``pscl/README.md`` tells of the values."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from consilience import MixtureOfExpertsRegressor

THEIRS = json.loads((Path(__file__).parent / "pscl" / "values.json").read_text())


def test_a_hurdle_regression_agrees_with_pscl() -> None:
    X, y = np.array(THEIRS["X"], dtype=float), np.array(THEIRS["y"], dtype=float)
    model = MixtureOfExpertsRegressor(1, family="hurdle_poisson", expert_ridge=0.0, tol=1e-12).fit(X, y)
    found = [*model.intercept_.ravel(), *model.coef_.ravel()]
    np.testing.assert_allclose(found, THEIRS["coefficients"], rtol=0, atol=1e-6)
    share = model.zero_shares_[0]
    assert np.log((1 - share) / share) == pytest.approx(THEIRS["zero_intercept"], abs=1e-6)
    assert model.log_likelihood_ == pytest.approx(THEIRS["loglik"], abs=1e-6)
    np.testing.assert_allclose(model.predict(X[:10]), THEIRS["fitted"], rtol=0, atol=1e-6)
    errors = model.infer(X, y, kind="observed").standard_errors().experts[0, 0]
    corrected = np.sqrt(len(y) / (len(y) - len(found)))  # for the degrees of freedom, as pscl's are not
    np.testing.assert_allclose(errors, corrected * np.array(THEIRS["standard_errors"]), rtol=5e-4)
