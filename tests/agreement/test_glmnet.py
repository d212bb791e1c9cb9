"""Agreement with R glmnet: lasso paths of one regression; ``glmnet/README.md`` tells of the values."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from consilience import Federation, Lasso, MixtureOfRegressions

VALUES = json.loads((Path(__file__).parent / "glmnet" / "values.json").read_text())


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_a_path_agrees_with_glmnet(family: str) -> None:
    theirs = VALUES[family]
    sites = Federation({"all": (np.array(theirs["X"], dtype=float), np.array(theirs["y"], dtype=float))})
    model = MixtureOfRegressions(1, family=family, expert_ridge=0.0, tol=1e-15, max_iter=2000)
    path = sites.fit(model, Lasso(strengths=tuple(theirs["strengths"]))).fit.path
    expected = dict(zip(theirs["strengths"], theirs["coefficients"], strict=True))
    assert len(path) == 4
    for step in path:
        found = step.mixture.raw().coefficients[0]
        np.testing.assert_allclose(found, expected[step.strength], rtol=0, atol=1e-6)
        assert np.array_equal(found == 0, np.array(expected[step.strength]) == 0)
