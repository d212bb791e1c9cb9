"""Write values.json: effects of single regressions by statsmodels with their errors, and tests of a covariate.

pip install statsmodels
python make_values.py values.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import statsmodels
import statsmodels.api as sm

rng = np.random.default_rng(20261119)
n = 120
x, arm = rng.normal(size=n).round(3), rng.integers(2, size=n)
design = sm.add_constant(np.column_stack([x, arm]))
eta = 0.2 + 0.7 * x - 0.5 * arm
responses = {
    "logit": (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int),
    "poisson": rng.poisson(np.exp(eta)),
    "linear": (eta + rng.normal(size=n)).round(3),
}
found = {}
for name, y in responses.items():
    if name == "linear":
        fit = sm.OLS(y, design).fit()
        effects, errors = fit.params[1:], fit.bse[1:]
        tests = {}
    else:
        model = {"logit": sm.Logit, "poisson": sm.Poisson}[name](y, design)
        fit = model.fit(method="newton", tol=1e-14, maxiter=200, disp=False)
        margin = fit.get_margeff(at="overall", method="dydx", dummy=True)  # arm: the change from 0 to 1
        effects, errors = margin.margeff, margin.margeff_se
        null = type(model)(y, design[:, :2]).fit(method="newton", tol=1e-14, maxiter=200, disp=False)
        tests = {"likelihood_ratio": 2 * (fit.llf - null.llf), "wald": float(fit.wald_test(np.eye(3)[[2]]).statistic)}
    found[name] = {"y": y.tolist(), "effects": effects.tolist(), "standard_errors": errors.tolist(), **tests}
values = {"statsmodels": statsmodels.__version__, "X": np.column_stack([x, arm]).tolist(), **found}
Path(sys.argv[1]).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
