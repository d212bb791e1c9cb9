"""The phrasebook for users of flexmix: both sides run as they are shown, and give the same numbers."""

from __future__ import annotations

import csv
import doctest
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = DOCS / "r" / "phrasebook.R"
FLAGS = doctest.ELLIPSIS | doctest.DONT_ACCEPT_TRUE_FOR_1

pytestmark = pytest.mark.slow

Numbers = dict[tuple[str, str], float]


@pytest.fixture(scope="module")
def python() -> Iterator[dict[str, Any]]:
    """Names that the examples of the page define."""
    page = (DOCS / "for-r-users.rst").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    test = doctest.DocTestParser().get_doctest(page, names, "for-r-users.rst", "docs/for-r-users.rst", 0)
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    said: list[str] = []
    runner.run(test, out=said.append, clear_globs=False)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)
    yield test.globs
    shutil.rmtree(test.globs["folder"])


@pytest.fixture(scope="module")
def r(python: dict[str, Any]) -> Numbers:
    """Numbers that the script of the page writes, for the table that the examples have written."""
    if shutil.which("Rscript") is None:
        pytest.skip("needs R, with flexmix")
    folder = python["folder"]
    done = subprocess.run(["Rscript", SCRIPT], cwd=folder, capture_output=True, text=True, check=False)
    if "no package called" in done.stderr:
        pytest.skip("needs flexmix in R")
    assert done.returncode == 0, done.stderr
    with (folder / "numbers.csv").open(encoding="utf-8", newline="") as stream:
        return {(row["fit"], row["name"]): float(row["value"]) for row in csv.DictReader(stream)}


def by_slope(model: Any) -> np.ndarray:
    """The order of the components in which the script writes their numbers."""
    return np.argsort(model.coef_[:, 0])


DATA = {
    "m": ("X", "y", {}),
    "alike": ("X", "y", {}),
    "counts": ("one", "count", {"exposure": "years"}),
    "shares": ("one", "hits", {"trials": "tries"}),
    "gated": ("both", "y", {}),
    "grouped": ("one", "y", {"groups": "id"}),
}
"""Covariates, response and further columns of each fit."""


def data_of(python: dict[str, Any], fit: str) -> tuple[Any, Any, dict[str, Any]]:
    covariates, response, further = DATA[fit]
    visits = python["visits"]
    return python[covariates], visits[response], {name: visits[column] for name, column in further.items()}


@pytest.mark.parametrize("fit", DATA)
def test_fits_end_at_the_same_maximum(fit: str, python: dict[str, Any], r: Numbers) -> None:
    model = python[fit]
    assert model.log_likelihood_ == pytest.approx(r[fit, "loglik"], abs=0.01)
    assert model.log_likelihood_ > r[fit, "loglik"] - 1e-4  # flexmix stops earlier, with other variances
    X, y, further = data_of(python, fit)
    assert model.aic(X, y, **further) == pytest.approx(r[fit, "aic"], abs=0.02)
    if fit != "grouped":
        assert model.bic(X, y, **further) == pytest.approx(r[fit, "bic"], abs=0.02)


@pytest.mark.parametrize("fit", DATA)
def test_coefficients_agree(fit: str, python: dict[str, Any], r: Numbers) -> None:
    model = python[fit]
    for place, k in enumerate(by_slope(model)):
        assert model.intercept_[k] == pytest.approx(r[fit, f"coef.(Intercept) {place}"], abs=0.002)
        assert model.coef_[k, 0] == pytest.approx(r[fit, f"coef.x {place}"], abs=0.002)
        assert model.weights_[k] == pytest.approx(r[fit, f"prior {place}"], abs=0.001)
        if (fit, "sigma 0") in r:
            assert np.sqrt(model.variances_[k]) == pytest.approx(r[fit, f"sigma {place}"], rel=0.01)
        if fit in ("m", "alike"):
            assert model.coef_[k, 1] == pytest.approx(r[fit, f"coef.armdrug {place}"], abs=0.002)


def test_the_gate_agrees_as_a_contrast(python: dict[str, Any], r: Numbers) -> None:
    model = python["gated"]
    low, high = by_slope(model)
    assert model.gate_intercept_[high] - model.gate_intercept_[low] == pytest.approx(
        r["gate", "(Intercept)"], abs=0.002
    )
    assert model.gate_coef_[high, 1] - model.gate_coef_[low, 1] == pytest.approx(r["gate", "z"], abs=0.002)


def test_standard_errors_are_those_of_refit_up_to_degrees_of_freedom(python: dict[str, Any], r: Numbers) -> None:
    errors = python["observed"].standard_errors().experts[by_slope(python["m"]), 0]
    for place, own in enumerate(errors):
        name = f"model.1_Comp.{r['component', str(place)]:.0f}_coef."
        theirs = np.array([r["errors", name + term] for term in ("(Intercept)", "x", "armdrug")])
        assert np.all((own / theirs > 1.0) & (own / theirs < 1.02))


def test_predictions_posteriors_and_orders_agree(python: dict[str, Any], r: Numbers) -> None:
    predicted = [r["predicted", str(i)] for i in range(3)]
    assert python["gated"].predict(python["new"]) == pytest.approx(predicted, abs=0.005)
    tau = python["tau"][:3, by_slope(python["m"])[0]]
    assert tau == pytest.approx([r["posterior", str(i)] for i in range(3)], abs=0.005)
    assert python["orders"].best_order == r["orders", "best"]


def test_differences_in_criteria_are_those_that_the_page_names(python: dict[str, Any], r: Numbers) -> None:
    assert python["icl_of_flexmix"] == pytest.approx(r["m", "icl"], abs=1.0)  # variances of flexmix are larger
    assert python["m"].icl(python["X"], python["y"]) > python["icl_of_flexmix"]
    rows, groups = 400, 100
    assert python["bic"] + python["grouped"].n_parameters_ * np.log(rows / groups) == pytest.approx(
        r["grouped", "bic"], abs=0.02
    )
