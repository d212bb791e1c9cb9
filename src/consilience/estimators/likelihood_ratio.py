"""Parametric bootstrap likelihood-ratio test of K experts against K + 1."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.parallel import Parallel, delayed

from consilience.display import display_progress
from consilience.errors import ConsilienceWarning, InvalidInputError
from consilience.estimators.estimator import MixtureEstimator
from consilience.estimators.validation import budget_of
from consilience.fit import Specification, fit_mixture
from consilience.fit.inference import check_unweighted, simulate
from consilience.fitted.protocols import generator
from consilience.model import Mixture, Rows
from consilience.numerics.arrays import Array


@dataclass(frozen=True, eq=False, repr=False)
class OrderTest:
    """Result of :func:`order_test`.

    Parameters
    ----------
    K : int
        Number of experts of the null hypothesis.
    statistic : float
        ``2 (ll_{K+1} - ll_K)``.
    draws : (B,) array
        The statistic of each data set simulated from the fit with K experts.
    null, alternative : estimator
        Fits with K and with K + 1 experts.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.estimators import OrderTest
    >>> OrderTest(1, 5.0, np.array([1.0, 6.0, 2.0]), None, None).p_value
    0.5
    """

    K: int
    statistic: float
    draws: Array
    null: MixtureEstimator
    alternative: MixtureEstimator

    @property
    def p_value(self) -> float:
        """Compute ``(1 + #{draws ≥ statistic}) / (1 + B)``."""
        return float((1 + np.sum(self.draws >= self.statistic)) / (1 + len(self.draws)))

    def __repr__(self) -> str:
        """Return the result as one line."""
        return (
            f"{self.K} against {self.K + 1} experts: 2 log likelihood ratio {self.statistic:.2f}, "
            f"p = {self.p_value:.3g} from {len(self.draws)} bootstrap data sets"
        )


def order_test(
    estimator: MixtureEstimator,
    X: Any,
    y: Any = None,
    K: int = 1,
    *,
    draws: int = 99,
    n_jobs: int | None = None,
    verbose: bool = False,
    **fit_params: Any,
) -> OrderTest:
    """Test K experts against K + 1 by the parametric bootstrap of the likelihood ratio (McLachlan, 1987).

    The likelihood ratio of two mixtures has no χ² distribution. Its distribution under K experts is simulated: draw
    responses from the fit with K experts at the covariates of the data, and fit both numbers of experts to them.

    Each draw costs two fits with all ``n_init`` starts: 99 draws cost about 100 times the two fits to the data. Fits
    that miss the maximum of K + 1 experts make the test reject too often, so that ``n_init`` should not be reduced.
    The test takes the family for granted: with heavier tails than those of the family it rejects K for that reason.

    Parameters
    ----------
    estimator : estimator of this library
        Cloned for each number of experts.
    X, y
        Data; omit ``y`` for :class:`GaussianMixture`.
    K : int
        Number of experts of the null hypothesis.
    draws : int
        Number of simulated data sets B; the smallest p-value is ``1 / (1 + B)``.
    n_jobs : int, optional
        Number of processes, as in scikit-learn. The result does not depend on it.
    verbose : bool
        Whether to show progress.
    **fit_params
        Passed to ``fit`` (``groups``, ``exposure``, ``trials``); weights are not supported.

    Returns
    -------
    OrderTest

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import GaussianMixture, order_test
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (60, 1)), rng.normal(6, 1, (40, 1))])
    >>> test = order_test(GaussianMixture(n_init=2, random_state=0), X, K=1, draws=9)
    >>> test.p_value
    0.1
    """
    _check_mixture(estimator)
    for name, value in (("K", K), ("draws", draws)):
        if not isinstance(value, int | np.integer) or value < 1:
            raise InvalidInputError(f"{name}={value!r}: expected a whole number of at least 1")
    null, alternative = (clone(estimator).set_params(**{estimator.order_name: order}) for order in (K, K + 1))
    rows = null.fit(X, y, **fit_params).rows(X, y, **fit_params)
    check_unweighted(rows)
    alternative.fit(X, y, **fit_params)
    specifications = null.specification_, alternative.specification_
    budget = budget_of(null)
    seeds = generator(estimator.random_state).spawn(draws)
    parallel = Parallel(n_jobs=n_jobs, return_as="generator")
    values = parallel(delayed(_draw_statistic)(null.mixture_, rows, specifications, budget, seed) for seed in seeds)
    found = []
    with display_progress("order test", verbose=verbose) as show:
        for value in values:
            found.append(value)
            show("simulated data sets", len(found), draws)
    statistic = 2 * (alternative.log_likelihood_ - null.log_likelihood_)
    return OrderTest(K, statistic, np.array(found), null, alternative)


def _check_mixture(estimator: object) -> None:
    """Raise an error if ``estimator`` is not a mixture of this library."""
    if not isinstance(estimator, MixtureEstimator):
        kind = f"the class {estimator.__name__}" if isinstance(estimator, type) else f"a {type(estimator).__name__}"
        advice = "pass an estimator such as MixtureOfExpertsRegressor()"
        if hasattr(estimator, "steps"):
            advice = "transform X first, as in order_test(pipeline[-1], pipeline[:-1].fit_transform(X), y, K)"
        raise InvalidInputError(f"got {kind}, expected a mixture of this library; {advice}")


def _draw_statistic(
    null: Mixture,
    rows: Rows,
    specifications: tuple[Specification, Specification],
    budget: dict[str, Any],
    rng: np.random.Generator,
) -> float:
    """Compute the statistic of one data set simulated from the null hypothesis."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConsilienceWarning)  # the fits to the data have warned
        drawn = simulate(null, rows, rng)
        first, second = (fit_mixture(drawn, each, rng=rng, **budget) for each in specifications)
        again = fit_mixture(drawn, specifications[0], rng=rng, start=null, tol=budget["tol"])
    return 2 * (second.log_likelihood - max(first.log_likelihood, again.log_likelihood))
