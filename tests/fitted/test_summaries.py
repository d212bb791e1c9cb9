"""The summary: one screen, the numbers of the fit, and why something is missing."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from consilience import (
    Federation,
    GaussianMixture,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    MixtureOfRegressions,
    OneShot,
)
from consilience.datasets import soft
from consilience.errors import ConvergenceWarning, InvalidInputError
from simulated import simulated


def regressor(n: int = 300, **options: object) -> MixtureOfExpertsRegressor:
    data = simulated(n=n)
    X = pd.DataFrame(data.X, columns=["age", "dose"])
    return MixtureOfExpertsRegressor(2, random_state=0, n_init=2, **options).fit(X, data.y)


def numbers(line: str) -> list[float]:
    """The numbers of a line, after its label."""
    return [float(word) for word in line.split()[1:]]


def test_head_tells_size_likelihood_criteria_and_why_it_stopped() -> None:
    model = regressor()
    text = model.summary()
    assert text.startswith("Mixture of experts, regression\n=")
    for word in ("Experts", "300", "11", f"{model.log_likelihood_:.3f}", "AIC", "BIC", str(model.stop_reason_)):
        assert word in text
    data = simulated(n=300)
    assert f"{model.bic(pd.DataFrame(data.X, columns=['age', 'dose']), data.y):.3f}" in text


def test_each_coefficient_has_error_z_p_and_interval() -> None:
    model = regressor(n=2000)
    text = model.summary()
    line = next(line for line in text.splitlines() if line.startswith("dose"))
    estimate, se, z, p, lower, upper = numbers(line)
    inference = model.inference_
    assert estimate == pytest.approx(inference.estimates.experts[0, 0, 2], rel=1e-3)
    assert se == pytest.approx(inference.standard_errors().experts[0, 0, 2], rel=1e-3)
    assert z == pytest.approx(estimate / se, rel=1e-2)
    assert p == 0
    assert lower == pytest.approx(estimate - 1.96 * se, abs=2e-3)
    assert upper == pytest.approx(estimate + 1.96 * se, abs=2e-3)
    assert f"Expert 1: share {model.weights_[0]:.3f}, variance {model.variances_[0]:.4g}" in text
    assert "standard error of its log" in text


def test_level_moves_the_bounds() -> None:
    model = regressor(n=2000)
    narrow, wide = (
        numbers(next(line for line in model.summary(level=level).splitlines() if line.startswith("dose")))
        for level in (0.5, 0.99)
    )
    assert wide[4] < narrow[4] < narrow[0] < narrow[5] < wide[5]
    assert "[0.25" in model.summary(level=0.5)


def test_contrasts_have_the_errors_of_the_delta_method() -> None:
    model = regressor(n=2000)
    text = model.summary(reference=0)
    assert "Gate (against expert 1), expert 2" in text
    assert "expert 1\n" not in text.split("Gate (against")[1]
    gate = text.split("Gate (against expert 1), expert 2")[1]
    estimate, se, *_ = numbers(next(line for line in gate.splitlines() if line.startswith("dose")))
    assert estimate == pytest.approx(model.gate_coef_[1, 1] - model.gate_coef_[0, 1], rel=1e-3)
    V = model.inference_.covariance
    i, j = 2, 5  # slopes of dose of experts 0 and 1 in the gate
    assert se == pytest.approx(np.sqrt(V[i, i] + V[j, j] - 2 * V[i, j]), rel=1e-3)


def test_the_gate_of_two_experts_is_shown_once() -> None:
    model = regressor(n=2000)
    (gate,) = (line for line in model.summary().splitlines() if line.startswith("Gate"))
    assert gate == "Gate (centred: sums to zero over experts; expert 2 has the opposite signs), expert 1"
    assert np.allclose(model.gate_coef_[0], -model.gate_coef_[1])
    assert f"{model.gate_coef_[0, 1]:.4g}" in model._repr_html_()
    assert f"{model.gate_coef_[1, 1]:.4g} (" not in model._repr_html_()


@pytest.mark.parametrize("reference", [-1, 2, 0.5, "first"])
def test_reference_must_be_an_expert(reference: object) -> None:
    with pytest.raises(InvalidInputError, match="expected an expert from 0 to 1"):
        regressor().summary(reference=reference)


def test_default_size_fits_on_one_screen() -> None:
    simulation = soft(2000, random_state=0)
    model = MixtureOfExpertsRegressor(4, mixture_init=simulation.truth).fit(simulation.X, simulation.y)
    for text in (model.summary(), model.summary(reference=2)):
        lines = text.splitlines()
        assert len(lines) <= 60
        assert max(len(line) for line in lines) <= 120
        assert "x19" in text
        assert "(share)" in text
        assert "(variance)" in text
    gate = model.summary(reference=2).split("Gate (against expert 3)")[1]
    assert gate.splitlines()[1].split() == ["1", "2", "4"]
    assert "0 (0)" not in gate


def test_columns_never_touch_and_rows_are_written_out() -> None:
    simulation = soft(2000, random_state=0)
    X = simulation.X * np.r_[1e5, np.ones(19)]  # coefficients such as -1.036e-05 (4.623e-07)
    model = MixtureOfExpertsRegressor(4, random_state=0, n_init=2).fit(X, simulation.y)
    text = model.summary()
    assert "2,000" in text
    assert not re.search(r"\)[-\d]", text)
    for line in text.splitlines():
        if line.startswith("x"):
            assert len(re.findall(r"\S+ \(\S+\)", line)) == 4


def test_an_overflowing_z_does_not_touch_its_neighbour() -> None:
    model = regressor(n=2000)
    covariance = model.inference_.covariance * 1e-12
    model.inference_ = replace(model.inference_, covariance=covariance)
    line = next(line for line in model.summary().splitlines() if line.startswith("dose"))
    assert len(numbers(line)) == 6


def test_the_modelled_class_of_two_is_named() -> None:
    data = simulated(n=300)
    labels = np.where(data.y > np.median(data.y), "yes", "no")
    model = MixtureOfExpertsClassifier(2, random_state=0, n_init=2).fit(data.X, labels)
    assert "Expert 1: share" in model.summary()
    assert ", log odds of class yes" in model.summary()
    assert "log odds of class yes" in model._repr_html_()


def test_more_than_a_screen_is_cut_and_says_where_the_rest_is() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 30))
    y = np.where(np.arange(900) % 2, 5, -5) * X[:, 0] + rng.normal(size=900)
    text = MixtureOfRegressions(2, random_state=0, max_iter=3000).fit(X, y).summary()
    assert "31 terms of 2 experts in all: see to_frame()" in text
    assert len(text.splitlines()) <= 60


def test_withheld_intervals_are_dashes_with_the_reason() -> None:
    model = regressor(n=80)
    model.inference_ = replace(model.inference_, withheld={"gate": "a reason"})
    text = model.summary()
    assert "Intervals withheld (gate): a reason." in text
    gate = text.split("Gate (centred")[1]
    assert "—" in next(line for line in gate.splitlines() if line.startswith("dose"))


def test_a_fit_cut_short_says_stopped() -> None:
    with pytest.warns(ConvergenceWarning, match="raise max_iter") as record:
        model = regressor(max_iter=1)
    assert record[0].filename == __file__
    assert "stopped: max_iter was reached" in model.summary()


def one_shot(refine: int) -> MixtureOfExpertsRegressor:
    """A model that was combined from the answers of sites, then refined."""
    data = simulated(n=900, seed=3)
    parts = {f"site {i}": (data.X[i::3], data.y[i::3]) for i in range(3)}
    estimator = MixtureOfExpertsRegressor(2, mixture_init=data.truth, random_state=0)
    return Federation(parts).fit(estimator, method=OneShot(refine=refine)).model


ESTIMATED = "The log-likelihood is estimated from the sites' answers; a refinement round computes it exactly."


def test_what_noise_does_not_tell_is_a_dash_and_a_noisy_number_of_rows_is_whole() -> None:
    model = regressor(n=1200)
    model.log_likelihood_, model.n_labels_, model.n_rows_ = np.nan, 1199.5274, 1199.5274
    text = model.summary()
    for label in ("Log-likelihood", "AIC", "BIC"):
        assert re.search(rf"{label} +—$", text, re.MULTILINE)
    assert re.search(r"^Rows +1,200 ", text, re.MULTILINE)
    assert "nan" not in text


@pytest.mark.usefixtures("few_points")
def test_a_log_likelihood_that_nobody_measured_is_said_to_be_an_estimate() -> None:
    model = one_shot(0)
    lines = model.summary().splitlines()
    (head,) = (line for line in lines if "Log-likelihood" in line)
    assert head.split("Log-likelihood ≈")[1].strip() == f"{model.log_likelihood_:.3f}"
    assert ESTIMATED in " ".join(model.summary().split())
    assert "stopped: combined from one answer of each site" in model.summary()
    assert "Log-likelihood ≈" in model._repr_html_()
    assert "The log-likelihood is estimated" in model._repr_html_()


@pytest.mark.usefixtures("few_points")
@pytest.mark.parametrize("refine", [1, 5])
def test_a_log_likelihood_that_was_measured_is_not_said_to_be_an_estimate(refine: int) -> None:
    model = one_shot(refine)
    for text in (model.summary(), model._repr_html_(), regressor().summary()):
        assert "Log-likelihood" in text
        assert "≈" not in text
        assert "estimated from the sites" not in text


@pytest.mark.usefixtures("few_points")
def test_the_head_of_an_estimate_is_as_wide_as_any_other() -> None:
    for refine in (0, 1):
        head = one_shot(refine).summary().split("=\n")[1].splitlines()[:3]
        assert len({len(line) for line in head}) == 1


def test_disagreeing_starts_are_noted() -> None:
    model = regressor()
    assert "disagree" not in model.summary()
    model.starts_agree_ = False
    assert "Starts do not agree" in model.summary()


@pytest.mark.slow
def test_other_kinds_have_their_own_words() -> None:
    classes = simulated("categorical", n=200)
    names = np.array(["red", "green", "blue"])[classes.y.astype(int)]
    text = MixtureOfExpertsClassifier(2, random_state=0, n_init=2).fit(classes.X, names).summary()
    assert "Mixture of experts, classification" in text
    assert "green: x1" in text
    two = simulated(q=2, n=200, gate="constant")
    joint = MixtureOfRegressions(2, random_state=0, n_init=2).fit(two.X, two.y).summary()
    assert "y1: (intercept)" in joint
    assert "Gate" not in joint
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(100, 2)), columns=["u", "v"])
    mixture = GaussianMixture(1).fit(X).summary()
    assert "Components" in mixture
    assert [line.split()[0] for line in mixture.splitlines() if line.startswith(("u", "v"))] == ["u", "v"]
    six = GaussianMixture(1).fit(np.random.default_rng(0).normal(size=(100, 40))).summary()
    assert "Means: coefficient (standard error)" in six
    assert "40 terms of 1" in six
    many = simulated(q=3, d=6, n=400, gate="constant")
    wide = MixtureOfRegressions(2, random_state=0, n_init=2).fit(many.X, many.y).summary()
    assert "Components, y2: coefficient (standard error)" in wide
    assert "Gate" not in MixtureOfExpertsRegressor(1).fit(two.X, two.y[:, 0]).summary()


def test_html_has_the_numbers_escaped_and_before_the_fit_is_scikit_learns() -> None:
    data = simulated(n=200)
    X = pd.DataFrame(data.X, columns=["a<b", "c&d"])
    model = MixtureOfExpertsRegressor(2, random_state=0, n_init=2).fit(X, data.y)
    html = model._repr_html_()
    assert f"{model.coef_[1, 0]:.4g}" in html
    assert f"{model.gate_coef_[0, 0]:.4g}" in html
    assert f"{model.variances_[1]:.4g}" in html
    assert str(model.stop_reason_) in html
    assert "a&lt;b" in html
    assert "c&amp;d" in html
    assert "a<b" not in html
    assert "MixtureOfExpertsRegressor" in MixtureOfExpertsRegressor()._repr_html_()


# ---------------------------------------------------------------------- differences between sites


def noisy_sites(noise: tuple[float, ...]) -> MixtureOfRegressions:
    """A one-shot fit of two regressions on sites with these standard deviations of the noise."""
    rng = np.random.default_rng(0)
    sites = {}
    for i, scale in enumerate(noise):
        X, label = rng.normal(size=(500, 2)), rng.random(500) < 0.4
        y = np.where(label, 20 + 2 * X[:, 0], -X[:, 1]) + scale * rng.normal(size=500)
        sites[f"site {i}"] = (X, y)
    return Federation(sites).fit(MixtureOfRegressions(2, random_state=0, n_init=2), method=OneShot(refine=0)).model


def test_sites_that_are_alike_show_that_they_are() -> None:
    frame = noisy_sites((1.0, 1.0, 1.0)).to_frame()
    assert frame["I2"].max() < 0.8
    assert set(frame.loc[frame["I2"].notna(), "part"]) == {"weight", "expert", "log_variance"}


def test_noise_that_differs_between_sites_is_shown_by_name() -> None:
    model = noisy_sites((0.3, 1.0, 4.0))
    frame = model.to_frame()
    variances = frame[frame["part"] == "log_variance"]
    assert variances["I2"].min() > 0.95
    assert variances["tau2"].min() > 1.0
    text = model.summary()
    assert "Between sites: I² (τ²)" in text
    assert any(line.startswith("(log variance)") for line in text.splitlines())
    assert any(line.startswith("(gate, log odds)") for line in text.splitlines())
    assert "I² (τ²)" in model._repr_html_()


def test_a_fit_on_one_machine_has_no_differences_between_sites() -> None:
    model = regressor()
    assert "I2" not in model.to_frame()
    assert "Between sites" not in model.summary()
