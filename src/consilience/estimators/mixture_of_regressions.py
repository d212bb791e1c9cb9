"""Mixture of regressions: a mixture of experts whose gate is constant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from consilience.estimators.regressor import RegressionMixture
from consilience.estimators.validation import keep_parameters
from consilience.model import Mixture


class MixtureOfRegressions(RegressionMixture):
    r"""Mixture of linear regressions with constant weights.

    .. math:: p(y \mid x) = \sum_k \pi_k\, N(y;\; b_{k0} + x^\top b_k,\; \sigma_k^2)

    Parameters
    ----------
    n_components : int
        Number of regressions K.
    family : str
        Distribution of the response, as in :class:`MixtureOfExpertsRegressor`.
    covariance_type : {"full", "diag", "spherical", "tied"}
        Covariance of several responses within a component.
    degrees_of_freedom, fit_intercept, categorical_features, reference_levels, unknown_levels, formula, shared, n_init
    max_iter, tol
    expert_ridge, reg_covar, shape_ratio, mixture_init, random_state, n_jobs, verbose
        As in :class:`MixtureOfExpertsRegressor`.
    gate_ridge : float
        No effect: a constant gate has no slopes. Kept so that estimators can be exchanged.

    Attributes
    ----------
    weights_ : (K,) array
        The mixture weights ``π_k``.
    mixture_, coef_, intercept_, variances_, log_likelihood_, inference_, n_iter_, converged_, stop_reason_, trace_
        As in :class:`MixtureOfExpertsRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import MixtureOfRegressions
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, 400)
    >>> y = np.where(rng.random(400) < 0.7, 3 * x, 2 - 3 * x) + 0.1 * rng.normal(size=400)
    >>> MixtureOfRegressions(2, random_state=0).fit(x[:, None], y).coef_.round(1).ravel()
    array([ 3., -3.])
    """

    title = "Mixture of regressions"
    order_name = "n_components"
    gate_kind = "constant"
    n_components: int

    @keep_parameters
    def __init__(
        self,
        n_components: int = 2,
        *,
        family: str = "gaussian",
        covariance_type: str = "full",
        degrees_of_freedom: float | None = None,
        fit_intercept: bool = True,
        categorical_features: Any = "from_dtype",
        reference_levels: Mapping[str, Any] | None = None,
        unknown_levels: str = "error",
        formula: str | None = None,
        shared: Sequence[str | int] | None = None,
        n_init: int = 6,
        max_iter: int = 500,
        tol: float = 1e-9,
        gate_ridge: float = 1e-3,
        expert_ridge: float | None = None,
        reg_covar: float = 1e-6,
        shape_ratio: float = 100.0,
        mixture_init: Mixture | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None: ...
