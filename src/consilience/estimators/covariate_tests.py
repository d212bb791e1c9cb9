"""Tests of a covariate over all experts and the gate: Wald's, and of the likelihood ratio."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from scipy.special import chdtrc
from sklearn.utils.validation import check_is_fitted

from consilience.errors import ConsilienceWarning, InvalidInputError
from consilience.estimators.estimator import MixtureEstimator
from consilience.estimators.validation import budget_of
from consilience.fit import Fit, Specification, criteria, fit_mixture
from consilience.fit.mean_inference import hidden_parameters, parameter_parts, reasons_of_parts
from consilience.fitted.protocols import generator, join_words, shared_places, terms_read
from consilience.model import Rows
from consilience.numerics.arrays import IntArray

Part = Literal["both", "experts", "gate"]
SAME_DATA = 1e-6
"""Relative difference of two log-likelihoods of the same data, from rounding."""


@dataclass(frozen=True, repr=False)
class CovariateTest:
    """Result of :func:`wald_test` or :func:`likelihood_ratio_test`.

    Parameters
    ----------
    kind : str
    column : str
        The column that has no influence by the hypothesis.
    part : {"both", "experts", "gate"}
        Where it has none.
    statistic : float
        NaN where it is withheld.
    degrees : int
        Number of coefficients that are 0 by the hypothesis.
    withheld : str
        Reason why there is no statistic; empty if there is one.

    Examples
    --------
    >>> from consilience.estimators import CovariateTest
    >>> CovariateTest("Wald test", "age", "both", 9.0, 3)
    Wald test of age (experts and gate): χ²(3) = 9.00, P = 0.0293
    """

    kind: str
    column: str
    part: Part
    statistic: float
    degrees: int
    withheld: str = ""

    @property
    def p_value(self) -> float:
        """Probability of a statistic at least as large under the hypothesis."""
        return float(chdtrc(self.degrees, self.statistic))

    def __repr__(self) -> str:
        """Return the result as one line."""
        head = f"{self.kind} of {self.column} ({'experts and gate' if self.part == 'both' else self.part})"
        if self.withheld:
            return f"{head}: withheld ({self.withheld})"
        return f"{head}: χ²({self.degrees}) = {self.statistic:.2f}, P = {self.p_value:.3g}"


def wald_test(model: MixtureEstimator, column: str, part: Part = "both") -> CovariateTest:
    """Test that a covariate has no influence by Wald's statistic ``bᵀ Cov(b)⁻¹ b`` of its coefficients.

    All coefficients of the column are 0 by the hypothesis: those of each level of a category, in each expert and in the
    gate. The distribution is chi-square, for many rows; one that is the only difference between two experts cannot be
    tested so, since there would be fewer experts without it (:func:`consilience.order_test`).

    Parameters
    ----------
    model : fitted mixture of experts or of regressions
    column : str
        Name of the column, or of a single term such as ``arm[drug]``. A column of a formula is tested in all its terms.
    part : {"both", "experts", "gate"}
        Where the covariate has no influence by the hypothesis.

    Returns
    -------
    CovariateTest
        Withheld, with the reason, where intervals of a part that it tests are.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import MixtureOfExpertsRegressor, wald_test
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2))
    >>> first = rng.random(500) < 1 / (1 + np.exp(-X[:, 0]))
    >>> y = np.where(first, 4 + X[:, 0], -X[:, 0]) + rng.normal(size=500)
    >>> model = MixtureOfExpertsRegressor(2, random_state=0).fit(X, y)
    >>> wald_test(model, "x1")
    Wald test of x1 (experts and gate): χ²(3) = 1.07, P = 0.784
    """
    places, inference = _tested_places(model, column, part), model.inference_
    own = _parameter_places(model, places)
    kind = "Wald test"
    hidden = hidden_parameters(inference)[own]
    if np.any(hidden):
        reason = reasons_of_parts(inference, parameter_parts(inference)[own][hidden])
        return CovariateTest(kind, column, part, np.nan, len(own), reason)
    b, V = inference.estimates.flat()[own], inference.covariance[np.ix_(own, own)]
    return CovariateTest(kind, column, part, float(b @ np.linalg.solve(V, b)), len(own))


def likelihood_ratio_test(
    model: MixtureEstimator, X: Any, y: Any = None, column: str = "", part: Part = "both", **fit_params: Any
) -> CovariateTest:
    """Test that a covariate has no influence by the ratio of the likelihoods with and without it.

    The model without the covariate is fitted from starts of its own and from the model; the model is fitted again from
    it, so that neither stays at a lower maximum than the other has found. The distribution is as for :func:`wald_test`.

    Parameters
    ----------
    model : fitted mixture of experts or of regressions
    X, y
        The data of the fit; a model with a formula finds ``y`` in ``X``.
    column, part
        As in :func:`wald_test`.
    **fit_params
        ``sample_weight``, ``groups``, ``exposure``, ``trials`` of the fit. A likelihood does not know that rows of a
        cluster depend on each other: use :func:`wald_test` of a model with clusters.

    Returns
    -------
    CovariateTest
        Withheld if one of the two fits is degenerate.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import MixtureOfRegressions, likelihood_ratio_test
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> slope = np.where(rng.random(300) < 0.6, 3, -3)
    >>> y = slope * X[:, 0] + 0.2 * X[:, 1] + 0.3 * rng.normal(size=300)
    >>> model = MixtureOfRegressions(2, random_state=0).fit(X, y)
    >>> likelihood_ratio_test(model, X, y, "x1").p_value < 0.001
    True
    """
    if fit_params.get("clusters") is not None:
        raise InvalidInputError("clusters: a likelihood ratio takes rows as independent; use wald_test")
    places = _tested_places(model, column, part)
    rows = model.rows(X, y, **fit_params)
    found = criteria.log_likelihood(model.mixture_, rows)
    if abs(found - model.log_likelihood_) > SAME_DATA * max(abs(found), 1.0):
        raise InvalidInputError(
            f"these data have log-likelihood {found:.6g}, those of the fit {model.log_likelihood_:.6g}: pass the data "
            "of the fit, with its weights, groups and sizes"
        )
    null, alternative = _both_fits(model, rows, _without(model, places))
    degrees = model.n_parameters_ - null.parameter_count
    kind, reason = "Likelihood-ratio test", null.degeneracy or model.degeneracy_
    if reason:
        return CovariateTest(kind, column, part, np.nan, degrees, f"a fit is degenerate: {reason}")
    best = max(model.log_likelihood_, alternative.log_likelihood)
    return CovariateTest(kind, column, part, 2 * max(best - null.log_likelihood, 0.0), degrees)


def _both_fits(model: MixtureEstimator, rows: Rows, without: Specification) -> tuple[Fit, Fit]:
    """Return the best fit without the covariate, and the fit of the model that starts from it."""
    rng, budget = generator(model.random_state), budget_of(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConsilienceWarning)  # what is wrong with a fit is said in the result
        nulls = [fit_mixture(rows, without, rng=rng, start=start, **budget) for start in (None, model.mixture_)]
        null = max(nulls, key=lambda fit: (not fit.degeneracy, fit.log_likelihood))
        return null, fit_mixture(rows, model.specification_, rng=rng, start=null.mixture, **budget)


# ---------------------------------------------------------------------- what is tested


def _tested_places(model: MixtureEstimator, column: str, part: Part) -> Mapping[str, list[int]]:
    """Return the places of the tested terms among those of the gate and of the experts, without an intercept."""
    check_is_fitted(model)
    if part not in get_args(Part):
        raise InvalidInputError(f"part={part!r}: expected one of {', '.join(get_args(Part))}")
    columns = model.columns_.columns
    if not model.mixture_.design.d:
        raise InvalidInputError(f"a {type(model).__name__} has no covariates to test")
    derivation = model.derivation_
    names: tuple[str, ...] = (column,)
    if derivation is not None and column in derivation.sources:
        names = derivation.derived_from(column)
    own = [term for each in columns for term in each.terms if each.name in names or term == column]
    if not own:
        raise InvalidInputError(f"column: the model has no column {column!r}; it has {', '.join(model.columns_.names)}")
    intercept = int(model.mixture_.design.intercept)
    wanted = {model.columns_.terms.index(term) + intercept for term in own}
    of_gate, of_experts = terms_read(model)
    gated = model.mixture_.gate.reads_covariates and model.mixture_.K > 1
    found = {
        "gate": sorted(wanted.intersection(of_gate)) if part != "experts" and gated else [],
        "experts": sorted(wanted.intersection(of_experts)) if part != "gate" else [],
    }
    if not any(found.values()):
        reads = join_words(["experts", "gate"] if part == "both" else [part])
        raise InvalidInputError(f"{reads} of this model do not read {column!r}: there is nothing to test")
    return found


def _parameter_places(model: MixtureEstimator, places: Mapping[str, list[int]]) -> IntArray:
    """Return the places of the tested coefficients among the reported parameters, each free one once."""
    estimates, inference = model.inference_.estimates, model.inference_
    index = estimates.like(np.arange(len(estimates.flat()), dtype=float))
    centred = estimates.experts.shape[1] > 1 and model.mixture_.experts.classes  # sum to zero over classes
    of_experts, shared = index.experts[:, : -1 if centred else None], shared_places(model)
    own = [
        *index.gate[:-1][:, places["gate"]].ravel(),
        *of_experts[:, :, [j for j in places["experts"] if j not in shared]].ravel(),
        *of_experts[0][:, [j for j in places["experts"] if j in shared]].ravel(),
    ]
    found = np.array(own, dtype=np.intp)
    if inference.identified is None:
        return found
    known = np.isfinite(inference.identified.flat()[found])
    if not np.any(known):
        raise InvalidInputError("the coefficients of this column are not identified: see unidentified_")
    return found[known]


def _without(model: MixtureEstimator, places: Mapping[str, list[int]]) -> Specification:
    """Return the specification of the model whose parts do not read the tested terms."""
    intercept = int(model.mixture_.design.intercept)
    of_gate, of_experts = terms_read(model)

    def kept(read: list[int], tested: list[int]) -> tuple[int, ...]:
        return tuple(j - intercept for j in read if j >= intercept and j not in tested)

    gate_columns = kept(of_gate, places["gate"]) if model.mixture_.gate.reads_covariates else None
    return replace(model.specification_, expert_columns=kept(of_experts, places["experts"]), gate_columns=gate_columns)
