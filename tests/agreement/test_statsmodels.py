"""Agreement with statsmodels: marginal effects of one regression, tests; ``statsmodels/README.md`` tells how."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from consilience import (
    MixtureOfExpertsClassifier,
    MixtureOfRegressions,
    average_marginal_effects,
    likelihood_ratio_test,
    wald_test,
)

VALUES = json.loads((Path(__file__).parent / "statsmodels" / "values.json").read_text(encoding="utf-8"))
ESTIMATORS = {
    "logit": MixtureOfExpertsClassifier(1, gate="constant", expert_ridge=0.0, tol=1e-14),
    "poisson": MixtureOfRegressions(1, family="poisson", expert_ridge=0.0, tol=1e-14),
    "linear": MixtureOfRegressions(1),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_average_marginal_effects_agree(name: str) -> None:
    theirs, X = VALUES[name], pd.DataFrame(VALUES["X"], columns=["x", "arm"])
    model = ESTIMATORS[name].fit(X, np.array(theirs["y"]))
    model.inference_ = model.infer(X, np.array(theirs["y"]), kind="observed")
    found = average_marginal_effects(model, X)
    found = found[found["response"] == found["response"].iloc[-1]]  # of two classes the second
    assert found["contrast"].tolist() == ["dy/dx", "1 - 0"]
    np.testing.assert_allclose(found["estimate"], theirs["effects"], rtol=1e-6)
    np.testing.assert_allclose(found["std_error"], theirs["standard_errors"], rtol=1e-6)


@pytest.mark.parametrize("name", ["logit", "poisson"])
def test_tests_of_a_covariate_agree(name: str) -> None:
    theirs, X = VALUES[name], pd.DataFrame(VALUES["X"], columns=["x", "arm"])
    y = np.array(theirs["y"])
    model = ESTIMATORS[name].fit(X, y)
    model.inference_ = model.infer(X, y, kind="observed")
    assert wald_test(model, "arm").statistic == pytest.approx(theirs["wald"], rel=1e-6)
    assert likelihood_ratio_test(model, X, y, "arm").statistic == pytest.approx(theirs["likelihood_ratio"], rel=1e-6)
