"""Bad input: a right answer, or a named error that says what to do; never a parameter that is not finite."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from consilience import GaussianMixture, MixtureOfExpertsClassifier, MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.errors import (
    ConsilienceWarning,
    ConvergenceWarning,
    DegenerateFitWarning,
    InvalidInputError,
    RankDeficientWarning,
    TooFewRowsError,
)
from consilience.model import ConstantGate, Design, GaussianExperts, Mixture

QUIET = pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
RNG = np.random.default_rng(0)
N = 60
X = RNG.normal(size=(N, 2))
Y = X[:, 0] * np.where(np.arange(N) % 2, 2.0, -2.0) + 0.3 * RNG.normal(size=N)
COUNTS = np.round(np.exp(np.abs(Y) / 2))

FITS: dict[str, Callable[..., Any]] = {
    "regressor": lambda X, y=Y, **m: MixtureOfExpertsRegressor(2, random_state=0, n_init=1).fit(X, y, **m),
    "poisson": lambda X, y=COUNTS, **m: MixtureOfExpertsRegressor(2, family="poisson", random_state=0, n_init=1).fit(
        X, np.round(np.abs(y)), **m
    ),
    "regressions": lambda X, y=Y, **m: MixtureOfRegressions(2, random_state=0, n_init=1).fit(X, y, **m),
    "classifier": lambda X, y=Y, **m: MixtureOfExpertsClassifier(2, random_state=0, n_init=1).fit(X, y > 0, **m),
    "mixture": lambda X, y=None, **m: GaussianMixture(2, random_state=0, n_init=1).fit(X, **m),
}
every_kind = pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
with_y = pytest.mark.parametrize("fit", list(FITS.values())[:-1], ids=list(FITS)[:-1])


def assert_finite(model: Any) -> None:
    """Every fitted number is finite, and so is every prediction."""
    for name, value in vars(model).items():
        if name.endswith("_") and isinstance(value, np.ndarray | float):
            assert np.all(np.isfinite(value)), name
    assert np.all(np.isfinite(model.inference_.estimates.flat()))
    assert np.all(model.weights_ >= 0)


# ---------------------------------------------------------------------- values that cannot be


@every_kind
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_missing_and_infinite_covariates_are_named(fit, value: float) -> None:
    bad = X.copy()
    bad[3, 1] = value
    with pytest.raises(ValueError, match=r"contains (NaN or missing|infinite) values"):
        fit(bad)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_missing_and_infinite_responses_are_named(value: float) -> None:
    bad = Y.copy()
    bad[3] = value
    with pytest.raises(ValueError, match=r"contains (NaN or missing|infinite) values"):
        FITS["regressor"](X, bad)


@every_kind
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-np.ones(N), "Negative values"),
        (np.zeros(N), "at least one non-zero number|all weights are zero"),
        (np.full(N, np.nan), "contains NaN"),
        (np.ones(N - 1), "expected"),
    ],
)
def test_weights_that_cannot_be_are_named(fit, weight: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(X, sample_weight=weight)


@every_kind
@pytest.mark.parametrize(
    "groups",
    [
        np.zeros(N - 1),
        np.zeros((N // 2, 2)),
        np.where(np.arange(N) % 2, np.nan, 1.0),
        np.array([None, "a"] * (N // 2), dtype=object),
    ],
    ids=["short", "matrix", "nan", "none"],
)
def test_groups_that_cannot_be_are_named(fit, groups: np.ndarray) -> None:
    with pytest.raises(InvalidInputError, match="groups"):
        fit(X, groups=groups)


@pytest.mark.parametrize("groups", [np.array(["b", "a"] * (N // 2)), [["x"], ["y"]] * (N // 2), np.arange(N) // 2])
@QUIET
def test_groups_of_any_sortable_kind_are_welcome(groups: Any) -> None:
    assert_finite(FITS["regressor"](X, groups=groups))


@pytest.mark.parametrize("exposure", [np.zeros(N), -np.ones(N), np.full(N, np.inf), np.ones(N - 1), np.ones((N, 2))])
def test_exposures_that_cannot_be_are_named(exposure: np.ndarray) -> None:
    with pytest.raises(
        InvalidInputError, match=r"^exposure( has shape|: expected one positive| contains (NaN|infinite))"
    ):
        FITS["poisson"](X, exposure=exposure)


def test_exposure_is_for_counts() -> None:
    with pytest.raises(InvalidInputError, match="exposure is for family='poisson'"):
        MixtureOfExpertsRegressor().fit(X, Y, exposure=np.ones(N))
    fitted = FITS["classifier"](X)
    with pytest.raises(InvalidInputError, match="exposure is for family='poisson'"):
        fitted.aic(X, Y > 0, exposure=np.ones(N))
    with pytest.raises(InvalidInputError, match="exposure is for family='poisson'"):
        FITS["mixture"](X).aic(X, exposure=np.ones(N))


@pytest.mark.parametrize("y", [-COUNTS, COUNTS + 0.5, np.column_stack([COUNTS, COUNTS])])
def test_counts_are_whole_and_one_column(y: np.ndarray) -> None:
    with pytest.raises(InvalidInputError, match="one column of counts"):
        MixtureOfExpertsRegressor(family="poisson").fit(X, y)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (MixtureOfExpertsRegressor(family="poison"), "[Ee]xpected one of gaussian, poisson"),
        (MixtureOfExpertsRegressor(covariance_type="wide"), "expected one of full, diag, spherical, tied"),
        (MixtureOfRegressions(covariance_type="wide"), "expected one of full, diag, spherical, tied"),
        (GaussianMixture(covariance_type="wide"), "expected one of full, diag, spherical, tied"),
        (MixtureOfExpertsClassifier(gate="hard"), "gate 'hard': expected one of softmax, constant"),
        (MixtureOfExpertsRegressor(0), "n_experts=0: expected a whole number of at least 1"),
        (MixtureOfExpertsRegressor(2.0), "n_experts=2.0"),
        (GaussianMixture(True), "n_components=True"),
        (MixtureOfRegressions(n_init=0), "n_init=0"),
        (MixtureOfRegressions(n_jobs=0), "n_jobs=0"),
        (MixtureOfRegressions(n_jobs="all"), "n_jobs='all'"),
        (MixtureOfRegressions(max_iter=-1), "max_iter=-1"),
        (MixtureOfRegressions(tol=-1e-3), "tol=-0.001: expected a finite number of at least 0"),
        (MixtureOfExpertsRegressor(gate_ridge=np.nan), "gate_ridge=nan"),
        (MixtureOfExpertsClassifier(expert_ridge=-1.0), "expert_ridge=-1.0"),
        (GaussianMixture(reg_covar="much"), "reg_covar='much'"),
        (GaussianMixture(mixture_init={"K": 2}), "expected a Mixture of 2 experts"),
        (GaussianMixture(random_state="dice"), "cannot be used to seed"),
    ],
)
def test_constructor_arguments_that_cannot_be_are_named(estimator: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimator.fit(X, Y > 0 if isinstance(estimator, MixtureOfExpertsClassifier) else Y)


def test_a_start_of_another_kind_is_named() -> None:
    softmax = FITS["regressor"](X).mixture_
    constant = FITS["regressions"](X).mixture_
    wide = np.column_stack([X, X[:, 0] ** 2])
    regressor = MixtureOfExpertsRegressor(2, mixture_init=softmax)
    cases = [
        (lambda: MixtureOfRegressions(2, mixture_init=softmax).fit(X, Y), "another gate"),
        (lambda: MixtureOfExpertsRegressor(2, mixture_init=constant).fit(X, Y), "another gate"),
        (lambda: clone(regressor).fit(wide, Y), "another number of coefficients"),
        (lambda: clone(regressor).fit(X, np.column_stack([Y, Y**2])), "another number of coefficients"),
        (lambda: clone(regressor).set_params(family="poisson").fit(X, COUNTS), "another family"),
        (lambda: clone(regressor).set_params(fit_intercept=False).fit(X, Y), "another intercept"),
        (lambda: clone(regressor).set_params(covariance_type="tied").fit(X, Y), "another covariance"),
        (lambda: MixtureOfExpertsClassifier(2, mixture_init=softmax).fit(X, Y > 0), "another family"),
        (lambda: MixtureOfExpertsRegressor(3, mixture_init=softmax).fit(X, Y), "a Mixture of 3 experts"),
    ]
    for call, message in cases:
        with pytest.raises(InvalidInputError, match=message):
            call()


def test_a_start_that_is_not_finite_is_named() -> None:
    mixture = FITS["regressor"](X).mixture_
    B = mixture.experts.B.copy()
    B[0, 0, 0] = np.nan
    broken = Mixture(mixture.design, mixture.gate, GaussianExperts(B, mixture.experts.covariance))
    with pytest.raises(InvalidInputError, match="not finite"):
        MixtureOfExpertsRegressor(2, mixture_init=broken).fit(X, Y)


@QUIET
def test_a_start_below_the_variance_floor_is_lifted() -> None:
    mixture = FITS["regressor"](X).mixture_
    tiny = Mixture(mixture.design, mixture.gate, GaussianExperts(mixture.experts.B, np.full((2, 1, 1), 1e-14)))
    model = MixtureOfExpertsRegressor(2, mixture_init=tiny).fit(X, Y)
    assert_finite(model)
    assert np.all(model.variances_ >= 1e-6 * Y.var())


# ---------------------------------------------------------------------- columns that say nothing, or too much


@pytest.mark.slow
@QUIET
@with_y
@pytest.mark.parametrize("value", [0.0, 3.0, 1e9])
def test_constant_columns_change_nothing_and_get_slope_zero(fit, value: float) -> None:
    plain, wide = fit(X), fit(np.column_stack([X, np.full(N, value)]))
    assert_finite(wide)
    assert np.allclose(wide.coef_[..., 2], 0)
    assert wide.log_likelihood_ == pytest.approx(plain.log_likelihood_, abs=0.05)


@pytest.mark.parametrize("columns", [np.column_stack([X, X[:, 0]]), np.column_stack([X, np.ones(N)])])
def test_dependent_columns_are_warned_of_where_the_user_called(columns: np.ndarray) -> None:
    with pytest.warns(RankDeficientWarning, match="x2 is .* not identified, .* drop those columns") as record:
        model = MixtureOfRegressions(2, random_state=0, n_init=2).fit(columns, Y)
    assert record[0].filename == __file__
    assert_finite(model)
    assert set(model.inference_.withheld) == {"shapes"}


@QUIET
@with_y
def test_the_first_of_duplicate_columns_has_the_slope(fit) -> None:
    model = fit(np.column_stack([X[:, 0], X[:, 0], X[:, 1]]))
    assert_finite(model)
    assert np.all(model.coef_[..., 1] == 0)


def test_constant_response_is_named() -> None:
    for fit in (FITS["regressor"], FITS["regressions"]):
        with pytest.raises(InvalidInputError, match=r"column\(s\) \[0\] are constant"):
            fit(X, np.full(N, 3.0))
    with pytest.raises(InvalidInputError, match=r"column\(s\) \[1\] are constant"):
        FITS["mixture"](np.column_stack([X[:, 0], np.ones(N)]))


@QUIET
@pytest.mark.parametrize("count", [0.0, 4.0])
def test_constant_counts_are_a_rate(count: float) -> None:
    model = FITS["poisson"](X, np.full(N, count))
    assert_finite(model)
    assert np.allclose(model.predict(X), count, atol=0.05)


def test_one_class_is_named() -> None:
    with pytest.raises(InvalidInputError, match="at least 2 classes"):
        FITS["classifier"](X, np.ones(N))


def test_an_unknown_class_is_named() -> None:
    model = FITS["classifier"](X)
    with pytest.raises(InvalidInputError, match="classes that were not in the fit"):
        model.log_density(X, np.full(N, 7))


# ---------------------------------------------------------------------- too few rows


@every_kind
def test_more_experts_than_rows_is_named(fit) -> None:
    with pytest.raises(ValueError, match=r"1 rows for 2 experts|at least 2 classes"):
        fit(X[:1], Y[:1])


def test_more_experts_than_groups_is_named() -> None:
    with pytest.raises(InvalidInputError, match="1 groups for 2 experts"):
        FITS["regressor"](X, groups=np.zeros(N))


@pytest.mark.slow
@QUIET
@every_kind
def test_more_experts_than_distinct_rows_is_finite(fit) -> None:
    few = np.repeat(X[:2], 12, axis=0)
    model = fit(few, np.repeat([3.0, -2.0], 12))
    assert_finite(model)


@pytest.mark.slow
@QUIET
@pytest.mark.parametrize("name", FITS)
def test_three_experts_on_two_distinct_rows_predict_them(name: str) -> None:
    few, y = np.repeat(X[:2], 12, axis=0), np.repeat([3.0, 0.0], 12)
    model = FITS[name](few, y).set_params(max_iter=50)
    model.set_params(**{model.order_name: 3})
    target = y > 0 if name == "classifier" else y
    model.fit(few) if name == "mixture" else model.fit(few, target)
    assert_finite(model)
    if name in ("regressor", "poisson"):
        assert np.allclose(model.predict(few), y, atol=0.05)
    if name == "classifier":
        assert model.score(few, target) == 1


WIDE, FEW = RNG.normal(size=(12, 20)), RNG.normal(size=12)


@every_kind
def test_fewer_rows_than_parameters_is_refused_with_what_to_do(fit) -> None:
    with pytest.raises(
        TooFewRowsError, match=r"more than the .* observed responses: use fewer (covariates|columns), or"
    ):
        fit(WIDE, FEW)


@pytest.mark.slow
@QUIET
@pytest.mark.parametrize(
    ("estimator", "y"),
    [
        (MixtureOfExpertsRegressor(2, expert_ridge=1e-3), FEW),
        (MixtureOfExpertsRegressor(2, family="poisson", expert_ridge=1e-3), np.round(np.abs(FEW))),
        (MixtureOfRegressions(2, expert_ridge=1e-3), FEW),
        (MixtureOfExpertsClassifier(2, expert_ridge=1e-3), FEW > 0),
    ],
)
def test_fewer_rows_than_columns_is_finite_with_a_ridge(estimator, y) -> None:
    assert_finite(clone(estimator).set_params(random_state=0, n_init=1).fit(WIDE, y))


def test_fewer_rows_than_columns_is_warned_of() -> None:
    rng = np.random.default_rng(0)
    with pytest.warns((DegenerateFitWarning, RankDeficientWarning)) as record:
        MixtureOfRegressions(1).fit(rng.normal(size=(10, 30)), rng.normal(size=10))
    said = [str(warning.message) for warning in record]
    assert sum("variance of expert 1, with 10 rows, is at its floor" in message for message in said) == 1
    assert sum("11 parameters on 10 rows" in message for message in said) == 1
    assert sum("so are 17 more columns" in message for message in said) == 1
    assert {warning.filename for warning in record} == {__file__}


# ---------------------------------------------------------------------- scales


@pytest.mark.slow
@QUIET
@every_kind
@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_columns_of_any_scale_give_the_same_fit(fit, scale: float) -> None:
    plain, scaled = fit(X), fit(X * [1.0, scale])
    assert_finite(scaled)
    if hasattr(plain, "means_"):
        assert np.allclose(scaled.means_, plain.means_ * [1.0, scale], rtol=0.01, atol=0.01 * scale)
        return
    assert scaled.log_likelihood_ == pytest.approx(plain.log_likelihood_, rel=1e-6, abs=1e-6)
    assert np.allclose(scaled.coef_ * [1.0, scale], plain.coef_, rtol=1e-3, atol=1e-3)
    assert np.allclose(scaled.predict(X * [1.0, scale]), plain.predict(X), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_responses_of_any_scale_give_the_same_fit(scale: float) -> None:
    plain, scaled = FITS["regressor"](X), FITS["regressor"](X, Y * scale)
    assert np.allclose(scaled.coef_ / scale, plain.coef_, atol=1e-4)
    assert np.allclose(scaled.variances_ / scale**2, plain.variances_, rtol=1e-3)
    assert scaled.log_likelihood_ == pytest.approx(plain.log_likelihood_ - N * np.log(scale), abs=1e-4)


@every_kind
def test_squares_that_overflow_are_named(fit) -> None:
    with pytest.raises(InvalidInputError, match="squares overflow: rescale"):
        fit(X * [1.0, 1e200])


def test_responses_whose_squares_overflow_are_named() -> None:
    with pytest.raises(InvalidInputError, match="squares overflow: rescale"):
        FITS["regressor"](X, Y * 1e200)


@pytest.mark.parametrize("place", ["X", "y"])
def test_rows_without_weight_whose_squares_overflow_are_named(place: str) -> None:
    data, weight = {"X": X.copy(), "y": Y.copy()}, np.ones(N)
    data[place][0], weight[0] = np.finfo(float).max, 0.0
    with pytest.raises(InvalidInputError, match="leave these rows out"):
        MixtureOfExpertsRegressor(2, random_state=0).fit(**data, sample_weight=weight)


# ---------------------------------------------------------------------- separation, empty experts, early stops


@QUIET
def test_perfect_separation_is_classified_with_finite_coefficients() -> None:
    for labels in (X[:, 0] > 0, (X[:, 0] > 0).astype(int) + (X[:, 0] > 1)):
        model = MixtureOfExpertsClassifier(2, random_state=0, n_init=1, max_iter=100).fit(X, labels)
        assert_finite(model)
        assert model.score(X, labels) == 1
        assert "gate" in model.inference_.withheld


def test_an_expert_that_empties_is_warned_of_and_finite() -> None:
    experts = GaussianExperts(np.array([[[0.0, 0.0, 0.0]], [[1e4, 0.0, 0.0]]]), np.ones((2, 1, 1)))
    far = Mixture(Design.raw(2), ConstantGate(np.array([0.5, 0.5])), experts)
    with pytest.warns(
        DegenerateFitWarning,
        match="expert 2 has less than one row for 3 coefficients, at least 8 are needed: refit with fewer experts",
    ) as record:
        model = MixtureOfRegressions(2, mixture_init=far).fit(X, Y)
    assert record[0].filename == __file__
    assert_finite(model)
    assert model.weights_[1] < 1e-6
    one = MixtureOfRegressions(1).fit(X, Y)
    assert np.allclose(model.predict(X), one.predict(X), atol=1e-6)


def test_stopping_early_is_a_warning_not_an_error() -> None:
    with pytest.warns(ConvergenceWarning, match="stopped: max_iter was reached"):
        model = MixtureOfExpertsRegressor(2, random_state=0, n_init=1, max_iter=1).fit(X, Y)
    assert not model.converged_
    assert_finite(model)


# ---------------------------------------------------------------------- at prediction


@every_kind
def test_another_number_of_columns_at_prediction_is_named(fit) -> None:
    model = fit(X)
    with pytest.raises(ValueError, match=r"3 features, but .* is expecting 2"):
        model.predict(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="contains NaN"):
        model.predict_gate(np.full((4, 2), np.nan))


@every_kind
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_other_columns_at_prediction_are_named(fit, frame) -> None:
    model = fit(frame({"a": X[:, 0], "b": X[:, 1]}))
    with pytest.raises(ValueError, match=r"feature names should match|pass those, in that order"):
        model.predict(frame({"b": X[:, 1], "a": X[:, 0]}))


# ---------------------------------------------------------------------- anything at all


@st.composite
def nasty(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Small data with every vice at once: ties, duplicates, constants, huge and tiny scales, empty weights."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d = draw(st.integers(2, 25)), draw(st.integers(1, 5))
    X = rng.normal(size=(n, d))
    if draw(st.booleans()):
        X = np.round(X)  # ties
    vices = st.lists(st.sampled_from(["constant", "duplicate", "huge", "tiny", "shifted", "outlier"]), max_size=3)
    for vice in draw(vices):
        j = int(rng.integers(d))
        match vice:
            case "constant":
                X[:, j] = draw(st.sampled_from([0.0, 1.0, -1e6]))
            case "duplicate":
                X[:, j] = X[:, int(rng.integers(d))]
            case "huge":
                X[:, j] *= 1e8
            case "tiny":
                X[:, j] *= 1e-8
            case "shifted":
                X[:, j] += 1e6
            case "outlier":
                X[int(rng.integers(n)), j] = 1e5
    signal = draw(st.sampled_from(["noise", "exact", "ties", "skewed"]))
    y = {
        "noise": rng.normal(size=n),
        "exact": X @ rng.normal(size=d),
        "ties": np.round(rng.normal(size=n)),
        "skewed": np.exp(3 * rng.normal(size=n)),
    }[signal] * draw(st.sampled_from([1.0, 1e-6, 1e6]))
    weight = rng.integers(0, 3, n).astype(float) if draw(st.booleans()) else None
    groups = rng.integers(0, max(n // 2, 1), n) if draw(st.booleans()) else None
    return X, y, weight, groups


@st.composite
def problems(draw: st.DrawFn) -> tuple[Any, tuple[np.ndarray, ...], dict[str, Any]]:
    """An estimator of any kind, what to fit it to, and its metadata."""
    X, y, weight, groups = draw(nasty())
    options = {"n_init": 1, "max_iter": 30, "random_state": 0}
    metadata = {"sample_weight": weight, "groups": groups}
    K, structure = draw(st.integers(1, 3)), draw(st.sampled_from(["full", "diag", "spherical", "tied"]))
    match draw(st.sampled_from(["gaussian", "poisson", "categorical", "mixture"])):
        case "gaussian":
            options |= {"covariance_type": structure, "fit_intercept": draw(st.booleans())}
            return MixtureOfExpertsRegressor(K, **options), (X, y), metadata
        case "poisson":
            return MixtureOfExpertsRegressor(K, family="poisson", **options), (X, np.round(np.abs(y))), metadata
        case "categorical":
            gate, C = draw(st.sampled_from(["softmax", "constant"])), draw(st.integers(2, 4))
            classes = np.argsort(np.argsort(y, kind="stable"), kind="stable") * C // len(y)
            return MixtureOfExpertsClassifier(K, gate=gate, **options), (X, classes), metadata
        case _:
            return GaussianMixture(K, covariance_type=structure, **options), (X,), metadata


KNOWN = ("n_samples", "constant", "non-zero", "overflow", "classes", "parameters, more than the")
"""What the errors say that a fit may end with."""


def assert_fitted_or_named(problem: tuple[Any, tuple[np.ndarray, ...], dict[str, Any]]) -> None:
    """The fit is finite, or the error is one of ours or of scikit-learn's validation, with a message to act on."""
    model, data, metadata = problem
    message = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConsilienceWarning)
        try:
            model.fit(*data, **metadata)
        except ValueError as error:
            message = str(error)
    if message is not None:
        assert any(word in message for word in KNOWN), message
        return
    assert_finite(model)
    if isinstance(model, GaussianMixture):
        assert np.all(np.isfinite(model.score_samples(data[0])))
    else:
        assert np.all(np.isfinite(model.predict(data[0])))
        assert np.all(np.isfinite(model.log_density(*data)))


@pytest.mark.slow
@settings(max_examples=60)
@given(problems())
def test_whatever_the_data_parameters_are_finite_or_the_error_is_named(problem) -> None:
    assert_fitted_or_named(problem)


@pytest.mark.long
@settings(max_examples=500)
@given(problems())
def test_whatever_the_data_and_however_often(problem) -> None:
    assert_fitted_or_named(problem)


def test_more_parameters_than_responses_are_refused_before_any_work() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 2)), rng.normal(size=400)
    with pytest.raises(TooFewRowsError, match="150 experts have 1,047 parameters, more than the 400"):
        MixtureOfExpertsRegressor(150).fit(X, y)
    with pytest.raises(TooFewRowsError, match="fit at most 29 experts"):
        MixtureOfExpertsRegressor(150).fit(X, y)
    with pytest.raises(TooFewRowsError, match="use fewer covariates, or a ridge"):
        MixtureOfExpertsRegressor(2).fit(rng.normal(size=(30, 20)), y[:30])


def test_nearly_as_many_parameters_as_responses_are_a_warning() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 1)), rng.normal(size=12)
    with pytest.warns(DegenerateFitWarning, match="2 experts have 8 parameters for 12 observed responses"):
        MixtureOfExpertsRegressor(2, random_state=0, n_init=1).fit(X, y)


@QUIET
def test_a_step_of_a_tied_covariance_that_overflows_is_refused_without_a_warning() -> None:
    """A column of size 1e8 stands beside two equal ones: the first Newton steps leave the floating-point numbers."""
    rng = np.random.default_rng(0)
    n = int(rng.integers(20, 120))
    x = rng.normal(size=n)
    model = GaussianMixture(3, covariance_type="tied", random_state=0, n_init=2)
    assert_finite(model.fit(np.column_stack([1e8 * rng.normal(size=n), x, x])))
