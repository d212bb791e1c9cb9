"""A fit in words: what is said is what the intervals support, and no more."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from benchmarks.lib.datasets import DataNotFoundError, load_table
from consilience import (
    Federation,
    GaussianMixture,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    MixtureOfRegressions,
    plot,
)
from consilience.errors import OneExpertWarning
from consilience.fit import StopReason
from consilience.fitted.effects import (
    covariate_steps,
    effect_count,
    expert_effects,
    gate_effects,
    mean_distances,
    means_at_centre,
    select_supported,
)
from consilience.fitted.words import _with_interval
from simulated import simulated


def said(model: object, **options: object) -> str:
    """The description without its line breaks."""
    return re.sub(r"\s+", " ", model.describe(**options))


def claims(text: str) -> int:
    """Number of effects that a text states with figures or by name."""
    figures = len(re.findall(r" by [\d.,e+-]+ \([^)]+ to [^)]+\)", text))
    named = sum(len(re.split(r", | and ", names)) for names in re.findall(r"also goes with ([^.]*)\.", text))
    return figures + named


def clear_gate(seed: int = 0, n: int = 800) -> MixtureOfExpertsRegressor:
    """Two experts with known coefficients, of covariates with known spread; x2 has no effect anywhere."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {"age": rng.normal(60, 10, n), "sex": (rng.random(n) < 0.4).astype(float), "bmi": rng.normal(25, 4, n)}
    )
    z = rng.random(n) < 1 / (1 + np.exp(-0.15 * (X["age"] - 60)))
    y = np.where(z, 20 + 0.5 * (X["age"] - 60), 2 + 3 * X["sex"]) + rng.normal(size=n)
    return MixtureOfExpertsRegressor(2, random_state=0, n_init=2).fit(X, y)


MODEL = clear_gate()


def test_what_is_true_is_said_in_the_units_of_the_covariates() -> None:
    text = said(MODEL)
    old = int(np.argmax(MODEL.intercept_ + MODEL.coef_ @ [60, 0, 25]))
    paragraphs = dict(zip((0, 1), re.split(r"(?=Expert \d holds)", text)[1:], strict=True))
    assert "experts on 800 rows. Brackets hold 95 % intervals. Standard deviations: age 10" in text
    assert "bmi 4" in text
    assert "sex 0." not in text, "a column of 0 and 1 has no standard deviation to speak of"
    assert re.search(r"y is higher by [45]\.\d* \([\d.]+ to [\d.]+\) per standard deviation of age\.", paragraphs[old])
    assert re.search(r"y is higher by [23]\.?\d* \(.*\) where sex is 1 rather than 0\.", paragraphs[1 - old])
    assert f"the {'higher' if old == 0 else 'lower'} age is: its odds against expert 2" in paragraphs[0]
    assert "The data do not show whether where it holds goes with" in paragraphs[0]
    assert "It is likelier where expert 1 is less likely." in paragraphs[1]
    assert "of the 9 effects that were looked at" in text


def test_figures_are_those_of_the_table() -> None:
    frame = MODEL.to_frame().set_index(["part", "expert", "term"])
    scale = {step.name: step.size for step in covariate_steps(MODEL, MODEL.coordinates_[0])}
    assert scale["sex"] == 1
    for k in (0, 1):
        for effect in expert_effects(MODEL, k, 0.95):
            row = frame.loc[("expert", k, effect.step.name)]
            expected = scale[effect.step.name] * row[["estimate", "lower", "upper"]].to_numpy(dtype=float)
            assert np.allclose([effect.estimate, effect.lower, effect.upper], expected)
    contrast, errors = MODEL.inference_.gate_contrasts(1)
    for effect in gate_effects(MODEL, 0, 0.95):
        assert effect.estimate == pytest.approx(scale[effect.step.name] * contrast[0, effect.step.place])
        span = 1.959964 * scale[effect.step.name] * errors[0, effect.step.place]
        assert (effect.upper - effect.lower) / 2 == pytest.approx(span)


def test_an_effect_whose_interval_contains_none_is_not_stated() -> None:
    for level in (0.5, 0.95, 0.9999999):
        text = said(MODEL, level=level)
        effects = [gate_effects(MODEL, 0, level), *(expert_effects(MODEL, k, level) for k in (0, 1))]
        assert claims(text) == sum(len(select_supported(part)) for part in effects)


def test_gates_of_more_experts_are_odds_against_the_mean_of_the_others() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 1))
    z = np.array([rng.choice(3, p=p) for p in softmax(np.outer(X[:, 0], [1.5, 0, -1.5]))])
    model = MixtureOfExpertsRegressor(3, random_state=0, n_init=2).fit(X, 10 * z + rng.normal(size=900))
    A = model.gate_coef_[:, 0]
    for k in range(3):
        (effect,) = gate_effects(model, k, 0.95)
        others = np.delete(A, k).mean()
        assert effect.estimate == pytest.approx((A[k] - others) * X.std())
    assert "its odds against the others are multiplied by" in said(model)


def softmax(scores: np.ndarray) -> np.ndarray:
    e = np.exp(scores)
    return e / e.sum(axis=1, keepdims=True)


def test_withheld_parts_are_said_to_be_withheld() -> None:
    model = clear_gate()
    model.inference_ = replace(model.inference_, withheld={"gate": "a reason for the gate"})
    text = said(model)
    assert "(no interval) per standard deviation" in text
    assert "Intervals of the gate are withheld: a reason for the gate." in text
    assert "odds against" in text
    assert "higher by" in text
    model.inference_ = replace(model.inference_, withheld={"gate": "one", "experts": "another"})
    text = said(model)
    assert claims(text) == 0
    assert "(no interval)" in text
    assert "Intervals of the experts are withheld: another." in text
    assert "effects that were looked at" not in text


def test_single_intervals_that_are_missing_are_named() -> None:
    model = clear_gate()
    covariance = model.inference_.covariance.copy()
    bmi = model.inference_.estimates.gate.size + 3  # of expert 0
    covariance[bmi, bmi] = np.nan
    model.inference_ = replace(model.inference_, covariance=covariance)
    assert "Nothing is said of bmi: no interval is known." in said(model)


def test_doubts_are_said() -> None:
    model = clear_gate()
    model.stop_reason_, model.converged_ = StopReason.MAX_ITER, False
    assert "The fit has not converged" in said(model)
    data = simulated(gate="constant", n=120)
    parts = {"a": (data.X[:60], data.y[:60]), "b": (data.X[60:], data.y[60:])}
    found = Federation(parts).fit(MixtureOfRegressions(2, mixture_init=data.truth, random_state=0)).model
    assert "Whether one component would do as well was not examined: see select_order." in said(found)


def test_a_single_start_is_said_to_be_one() -> None:
    rng = np.random.default_rng(0)
    y = 7.0 * (rng.random(120) < 0.5) + rng.normal(size=120)
    alone = MixtureOfRegressions(2, random_state=0, n_init=1).fit(rng.normal(size=(120, 1)), y)
    assert "Only one start was climbed: other experts may describe the data better." in said(alone)
    assert "Only one start was climbed" not in said(MODEL)


# ---------------------------------------------------------------------- families


def test_counts_are_ratios_of_rates() -> None:
    data = simulated("poisson", gate="constant", n=400, exposure=True)
    model = MixtureOfRegressions(2, family="poisson", mixture_init=data.truth)
    text = said(model.fit(data.X, data.y, exposure=data.rows.exposure))
    ratio = np.exp(model.coef_[0, 1] * data.X[:, 1].std())
    assert f"The rate is multiplied by {ratio:.3g} (" in text
    assert "at exposure 1." in text
    assert "higher by" not in text


@pytest.mark.parametrize("family", ["gamma", "binomial", "negative_binomial", "student"])
def test_other_families_have_words(family: str) -> None:
    data = simulated(family, gate="constant", n=400, exposure=True)
    name = {"binomial": "trials", "negative_binomial": "exposure"}.get(family)
    sizes = {} if name is None else {name: data.rows.exposure}
    text = said(MixtureOfRegressions(2, family=family, mixture_init=data.truth).fit(data.X, data.y, **sizes))
    phrase = {
        "gamma": "The mean is multiplied by",
        "binomial": "The odds of a success are multiplied by",
        "negative_binomial": "The rate is multiplied by",
        "student": "y is higher by",
    }[family]
    assert phrase in text
    assert claims(text) == 4


def test_figures_are_as_fine_as_their_interval_supports() -> None:
    assert _with_interval(0.0206, 0.0102, 0.031) == "0.021 (0.010 to 0.031)"  # as many decimals each
    assert _with_interval(123.4, 20.1, 226.3) == "120 (20 to 230)"
    assert _with_interval(7.12, 6.85, 7.39) == "7.12 (6.85 to 7.39)"
    assert _with_interval(15.5493, 15.2, 15.9) == "15.5 (15.2 to 15.9)"  # rounded once
    assert _with_interval(0.17, 0.004, 0.35) == "0.170 (0.004 to 0.350)"  # an end above 0 is not said to be 0
    assert _with_interval(0.0206, np.nan, np.nan) == "0.0206 (no interval)"


def test_classes_are_named() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(600, 2)), columns=["age", "bmi"])
    ill = rng.random(600) < 1 / (1 + np.exp(-1.5 * X["age"]))
    two = MixtureOfExpertsClassifier(1).fit(X, np.where(ill, "ill", "fine"))
    assert "The odds of class ill are multiplied by" in said(two)
    assert "it gives class ill a probability of 0." in said(two)
    three = MixtureOfExpertsClassifier(1).fit(X, np.where(ill, np.where(X["bmi"] > 0, "ill", "dead"), "fine"))
    text = said(three)
    assert "The odds of class dead are multiplied by" in text or "The odds of class ill are multiplied by" in text


def test_the_level_is_that_of_the_experts_at_the_mean_covariates() -> None:
    for family in ("gaussian", "poisson", "binomial"):
        data = simulated(family, gate="constant", n=300, exposure=True)
        name = {"binomial": "trials", "poisson": "exposure"}.get(family)
        sizes = {} if name is None else {name: data.rows.exposure}
        model = MixtureOfRegressions(2, family=family, mixture_init=data.truth).fit(data.X, data.y, **sizes)
        centre = data.X.mean(axis=0, keepdims=True)
        mean, lower, upper = means_at_centre(model, 0.95)
        value, error = model.predict_experts(centre, return_std_error=True)
        assert np.allclose(mean[:, 0], value[0])
        assert np.all((lower < mean) & (mean < upper))
        assert np.allclose(upper - lower, 2 * 1.96 * error.T, rtol=0.1)


def test_several_responses_are_named() -> None:
    data = simulated(q=2, gate="constant", n=400)
    text = said(MixtureOfRegressions(2, mixture_init=data.truth).fit(data.X, data.y))
    assert "y0" in text
    assert "y1 is higher by" in text


def test_without_an_intercept_effects_are_per_unit() -> None:
    data = simulated(intercept=False, gate="constant", n=400)
    model = MixtureOfRegressions(2, mixture_init=data.truth, fit_intercept=False).fit(data.X, data.y)
    text = said(model)
    assert f"higher by {model.coef_[0].max():.3g}" in text
    assert "per unit of x1" in text
    assert "standard deviation" not in text
    assert "At the mean" not in text


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_components_of_points_are_means_against_the_overall_mean(covariance_type: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    X[:400] -= X[:400].mean(axis=0)
    X[400:] -= X[400:].mean(axis=0)  # the means of a and c are equal
    X[:400, 1] += 8
    model = GaussianMixture(2, covariance_type=covariance_type, random_state=0, n_init=2)
    text = said(model.fit(pd.DataFrame(X, columns=["a", "b", "c"])))
    assert f"b is higher in it, with a mean of {model.means_[0, 1]:.2f} (" in text
    assert f"against {model.weights_ @ model.means_[:, 1]:.3g} overall" in text
    assert mean_distances(model, 0, 0.95)[1].tolist() == [False, True, False]
    assert "Its mean of a and c cannot be told from the overall mean." in text


def test_one_component_has_means() -> None:
    X = np.random.default_rng(0).normal(5, 1, size=(100, 2))
    assert re.search(r"Its means are x0 [45].* to .*\) and x1 [45]", said(GaussianMixture(1).fit(X)))


def test_experts_of_few_rows_or_groups_have_no_intervals() -> None:
    data = simulated(gate="constant", n=120, group_size=8, d=2)
    model = MixtureOfRegressions(2, mixture_init=data.truth).fit(data.X, data.y, groups=data.rows.groups.codes)
    text = said(model)
    assert "on 15 groups" in text
    assert re.search("[0-9] groups for 3 coefficients, at least 8 are needed", text)


def test_a_sum_of_responsibilities_that_is_rounded_up_makes_no_groups() -> None:
    data = simulated(gate="constant", n=200, d=1)
    model = MixtureOfRegressions(2, random_state=0, n_init=2).fit(data.X, data.y)
    model.n_rows_ = np.nextafter(200.0, 300.0) + 1e-12
    assert "on 200 rows" in said(model)


def test_a_single_effect_is_not_one_of_many() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 1))
    text = said(MixtureOfRegressions(1).fit(x, 2 * x[:, 0] + rng.normal(size=100)))
    assert "per standard deviation of x0" in text
    assert "looked at" not in text


def test_nothing_is_described_before_fit() -> None:
    with pytest.raises(NotFittedError):
        MixtureOfExpertsRegressor().describe()


# ---------------------------------------------------------------------- noise


def test_experts_that_bic_does_not_prefer_are_not_described() -> None:
    rng = np.random.default_rng(0)
    model = MixtureOfRegressions(2, random_state=0, n_init=2).fit(rng.normal(size=(200, 2)), rng.normal(size=200))
    text = said(model)
    assert "One component alone describes these rows as well (BIC" in text
    assert "Component 1" not in text


def test_a_second_component_of_one_true_regression_has_no_intervals_anywhere() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 2))
    with pytest.warns(OneExpertWarning, match="one expert describes the rows as well as 2 by BIC: fit one"):
        model = MixtureOfRegressions(2, random_state=0).fit(X, 1 + X[:, 0] + rng.normal(size=300))
    assert "Intervals withheld (experts): one expert describes the rows as well as 2" in model.summary()
    assert "One component alone describes these rows as well (BIC" in said(model)
    table = model.to_frame()
    assert table[["std_error", "lower", "upper"]].isna().all(axis=None)
    assert not plot.coefficients(model).collections[0].get_segments()


NOISE = {
    "one expert": lambda X, rng: MixtureOfExpertsRegressor(1).fit(X, rng.normal(size=len(X))),
    "two experts without effects": lambda X, rng: MixtureOfExpertsRegressor(2, random_state=0, n_init=1).fit(
        X, 7.0 * (rng.random(len(X)) < 0.6) + rng.normal(size=len(X))
    ),
    "two experts of nothing": lambda X, rng: MixtureOfRegressions(2, random_state=0, n_init=2).fit(
        X, rng.normal(size=len(X))
    ),
    "counts": lambda X, rng: MixtureOfRegressions(2, family="poisson", random_state=0, n_init=4).fit(  # one start fails
        X, rng.poisson(np.where(rng.random(len(X)) < 0.6, 1.0, 15.0))
    ),
}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
@pytest.mark.parametrize("kind", NOISE)
def test_noise_is_described_no_more_often_than_the_level_allows(kind: str) -> None:
    stated, looked_at = 0, 0
    for seed in range(50):
        rng = np.random.default_rng(seed)
        model = NOISE[kind](rng.normal(size=(250, 4)), rng)
        stated += claims(said(model))
        looked_at += effect_count(model)
    spread = np.sqrt(0.05 * 0.95 * looked_at)
    assert stated <= 0.05 * looked_at + 2 * spread, (stated, looked_at)


# ---------------------------------------------------------------------- real data


def test_seizures_are_described_as_a_neurologist_would() -> None:
    try:
        table = load_table("seizure").to_pandas()
    except DataNotFoundError as missing:
        pytest.skip(str(missing))
    X = pd.DataFrame({"treated": (table["Treatment"] == "Yes").astype(float), "day": table["Day"]})
    model = MixtureOfRegressions(2, family="poisson", random_state=0)
    text = said(model.fit(X, table["Seizures"], exposure=table["Hours"]))
    assert re.search(r"The rate is multiplied by 0\.\d+ \([^)]*\) per standard deviation of day and by 0\.\d+", text)
    assert "where treated is 1 rather than 0" in text
    assert "The data do not show whether its response goes with treated." in text


def test_categories_and_columns_that_are_not_read_are_said_in_words():
    rng = np.random.default_rng(0)
    n = 800
    table = pd.DataFrame(
        {"dose": rng.normal(size=n), "arm": rng.choice(["drug", "placebo"], n), "age": rng.normal(size=n)}
    )
    first = rng.random(n) < 1 / (1 + np.exp(-2 * table.age))
    y = np.where(first, 5 + 3 * table.dose, -5 + 4 * (table.arm == "drug")) + rng.normal(size=n)
    model = MixtureOfExpertsRegressor(
        2,
        random_state=0,
        gate_features=["age"],
        expert_features=["dose", "arm"],
        reference_levels={"arm": "placebo"},
    ).fit(table, y)
    text = " ".join(model.describe().split())
    assert "where arm is drug rather than placebo" in text
    assert "the higher age is" in text or "the lower age is" in text
    assert "y goes with age" not in text
    assert "no interval is known" not in text
