"""Mixture of experts for regression: experts and gate depend on the covariates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from consilience.columns import frames
from consilience.errors import InvalidInputError
from consilience.estimators import validation
from consilience.estimators.conditional import ConditionalMixture, as_columns
from consilience.fit import Specification
from consilience.model import FAMILIES, Mixture, Rows
from consilience.model.families.registry import advise_family, regression_families
from consilience.numerics.arrays import Array


class RegressionMixture(RegressorMixin, ConditionalMixture):
    """Base class of the estimators with real or count responses."""

    gate_kind: Any = "softmax"
    covariance_type: str
    degrees_of_freedom: float | None
    shared: Sequence[str | int] | None
    reg_covar: float
    shape_ratio: float

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self.family in FAMILIES and FAMILIES[self.family].several_responses
        tags.target_tags.single_output = True
        return tags

    def _specification(self) -> Specification:
        """Return the specification of the mixture to fit, with its penalties."""
        if self.family not in FAMILIES or FAMILIES[self.family].classes:
            raise InvalidInputError(f"family={self.family!r}: {advise_family(self.family, regression_families())}")
        validation.check_structure(self.covariance_type)
        shape = {"structure": self.covariance_type, "degrees_of_freedom": self.degrees_of_freedom}
        return self._specified(self.gate_kind, **shape, reg_covar=self.reg_covar, shape_ratio=self.shape_ratio)

    def _rows(self, X: Any, y: Any, *, reset: bool, min_rows: int = 1, **metadata: Any) -> Rows:
        X, y = validation.validate_columns(
            self, X, y, reset=reset, multi_output=True, y_numeric=True, ensure_min_samples=min_rows
        )
        Y = as_columns(y)
        specification = self._specification()
        rows = validation.build_rows(X, Y, self.family, **metadata)
        validation.check_range(specification, rows)
        return rows

    def fit(  # noqa: PLR0917 - the data of a fit, in scikit-learn's order
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        exposure: Any = None,
        trials: Any = None,
        clusters: Any = None,
    ) -> Self:
        """Fit the mixture.

        Parameters
        ----------
        X : (n, d) array or frame
        y : (n,) or (n, q) array
        sample_weight : (n,) array, optional
            Frequency weights: weight 2 counts the row twice.
        groups : (n,) array, optional
            Groups of rows that share one latent label; a softmax gate then reads the group's mean covariates.
        exposure : (n,) array or str, optional
            Exposure of each count, for count families, or the name of its column in ``X``, which is then no covariate.
        trials : (n,) array or str, optional
            Number of trials of each row, for binomial families, or the name of its column; 1 by default.
        clusters : (n,) array, optional
            Rows that are not independent, such as those of a patient: standard errors then count clusters, not rows.
        """
        sizes = {"exposure": exposure, "trials": trials}
        self._fit(X, y, sample_weight=sample_weight, groups=groups, clusters=clusters, **sizes)
        self._size_of_fit = validation.size_name(exposure=exposure, trials=trials)
        return self

    def rows(self, X: Any, y: Any = None, **metadata: Any) -> Rows:
        """Return data as rows of the fitted model; ``metadata`` are ``sample_weight``, ``groups`` and sizes."""
        check_is_fitted(self)
        X, metadata = self._take_sizes(X, **metadata)
        self._check_size_of_fit(**metadata)
        return super().rows(X, y, **metadata)

    def _take_sizes(self, X: Any, **metadata: Any) -> tuple[Any, dict[str, Any]]:
        """Return data and metadata with the values of sizes that are columns, as in the fit unless others are given."""
        column = self._size_column
        if all(metadata.get(each) is None for each in validation.SIZES) and frames.has_column(X, column):
            metadata[str(self._size_of_fit)] = column
        return validation.take_sizes(X, metadata)

    def _check_size_of_fit(self, **metadata: Any) -> None:
        """Raise an error if responses come without the sizes that the model was fitted with."""
        name = getattr(self, "_size_of_fit", None)
        if name is not None and all(metadata.get(each) is None for each in validation.SIZES):
            raise InvalidInputError(
                f"the model was fitted with {name}: pass {name}= beside y, or rates are compared to counts. In "
                "cross-validation, enable scikit-learn's metadata routing and request it in fit and score"
            )

    def predict(self, X: Any, *, exposure: Any = None, trials: Any = None) -> Array:
        """Predict the mean response ``E[y | x] = Σ_k π_k(x) E[y | x, k]``.

        Parameters
        ----------
        X : (n, d) array or frame
        exposure, trials : (n,) array or str, optional
            Size of each row, as in ``fit``; by default 1, so that the prediction is a rate or a probability.

        Returns
        -------
        (n,) or (n, q) array
        """
        X, sizes = validation.take_sizes(X, {"exposure": exposure, "trials": trials})
        X = self.covariates(X)
        size = validation.validate_sizes(self.family, sizes, len(X))
        mean = self.mixture_.mean(X)
        return self._decode(mean if size is None else mean * size[:, None])

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, exposure: Any = None, trials: Any = None) -> float:
        """Compute the coefficient of determination R² of :meth:`predict`.

        Parameters
        ----------
        X : (n, d) array or frame
        y : (n,) or (n, q) array
        sample_weight : (n,) array, optional
        exposure, trials : (n,) array, optional
            Size of each row; necessary if the model was fitted with it.
        """
        from sklearn.metrics import r2_score  # only here: it takes a tenth of a second to import

        check_is_fitted(self)
        X, sizes = self._take_sizes(X, exposure=exposure, trials=trials)
        self._check_size_of_fit(**sizes)
        predicted = self.predict(X, **sizes)
        return float(r2_score(y, predicted, sample_weight=sample_weight))

    def predict_quantiles(
        self, X: Any, q: Any = (0.05, 0.5, 0.95), *, exposure: Any = None, trials: Any = None
    ) -> Array:
        """Compute quantiles of the predictive distribution ``p(y | x)`` of a single response.

        Parameters
        ----------
        X : (n, d) array or frame
        q : sequence of float
            Probabilities strictly between 0 and 1.
        exposure, trials : (n,) array, optional
            Size of each row, as in ``fit``; 1 by default.

        Returns
        -------
        (n, len(q)) array
        """
        X, sizes = validation.take_sizes(X, {"exposure": exposure, "trials": trials})
        X = self.covariates(X)
        probabilities = np.atleast_1d(np.asarray(q, dtype=float))
        if not np.all((probabilities > 0) & (probabilities < 1)):
            raise InvalidInputError(f"q={q!r}: expected probabilities strictly between 0 and 1")
        if self.mixture_.experts.channels != 1:
            raise InvalidInputError(
                f"{self.mixture_.experts.channels} responses have no joint quantile: fit a single response"
            )
        size = validation.validate_sizes(self.family, sizes, len(X))
        return np.column_stack([self.mixture_.quantile(X, float(p), size) for p in probabilities])


class MixtureOfExpertsRegressor(RegressionMixture):
    r"""Mixture of linear regressions whose weights depend on the covariates.

    .. math:: p(y \mid x) = \sum_k \pi_k(x)\, N(y;\; b_{k0} + x^\top b_k,\; \sigma_k^2), \qquad
              \pi_k(x) \propto \exp(a_{k0} + x^\top a_k)

    fitted by maximum penalised likelihood: EM with one safeguarded Newton step for the gate per pass over the data,
    then Newton on the observed information.

    Parameters
    ----------
    n_experts : int
        Number of experts K.
    family : str
        Distribution of the response: ``"gaussian"`` or, with outliers, ``"student"`` for real numbers; ``"poisson"``,
        with more scatter ``"negative_binomial"``, with zeros of another kind ``"zero_inflated_poisson"`` or
        ``"hurdle_poisson"`` for counts; ``"binomial"`` for successes in trials; ``"gamma"`` for positive numbers; or
        another regression family of :data:`consilience.model.FAMILIES`.
    covariance_type : {"full", "diag", "spherical", "tied"}
        Covariance of several responses within an expert; ``"tied"`` is shared by all experts.
    degrees_of_freedom : float, optional
        Degrees of freedom of ``family="student"``; by default those of each expert are estimated.
    fit_intercept : bool
        Whether gate and experts have an intercept.
    categorical_features : "from_dtype" or sequence of str or int
        Columns of ``X`` that are categories, by name or index; by default those of type text, category or boolean. A
        category has an indicator for each level but one, in terms named ``fuel[diesel]``.
    reference_levels : mapping of str to level, optional
        Level of a category against which the others are coded, by the name of its column; the first by default.
    unknown_levels : {"error", "reference", "average"}
        What a prediction does with a level that was not in the fit: raise an error, take the reference level for it,
        or take the average of the rows of the fit, each level with its share.
    formula : str, optional
        What the experts and the gate read, as in ``"los ~ age * admission | age"``, in terms of the columns of ``X``;
        ``y`` is then a column of ``X`` unless it is given. See :meth:`from_formula` and :doc:`/how-to/formulas`.
    gate_features, expert_features : sequence of str or int, optional
        Columns that the gate (concomitant variables) and the experts read, by name or index; all by default.
    shared : sequence of str or int, optional
        Covariates whose coefficients are equal in all experts, by name or index, as flexmix's ``FLXMRglmfix``: a
        category for all its levels, and a term of a formula for all its columns. None by default.
    n_init : int
        Number of starting points, of several kinds, that are climbed to the end on a sample of at most 6,000 rows: as
        many again if they do not agree.
    max_iter : int
        Maximum number of EM and Newton iterations over all rows.
    tol : float
        Convergence tolerance: increase of the penalised log-likelihood per unit of weight in a full EM step.
    gate_ridge : float
        Total ridge penalty on the variance of the gate's log odds over the rows; it does not depend on how covariates
        are coded.
    expert_ridge : float, optional
        Total ridge penalty on the experts' slopes, in standardised coordinates of the covariates and, for real
        responses, of the response: λ weighs about as much as λ rows. By default there is none for Gaussian and
        Student-t experts, and one of 0.001 on the variance of the linear predictors for the other families. Choose it
        by cross-validation; see :ref:`choosing-a-ridge`.
    reg_covar : float
        Lower bound of the variances, as a fraction of the variance of the response.
    shape_ratio : float
        Largest ratio of the variances of two Gaussian experts, of the squared scales of Student-t experts, or of the
        dispersions of gamma experts. Without a bound, the likelihood is highest for an expert that fits a few rows
        exactly; that of counts is bounded by itself. A fit at the bound has a warning; increase it if the noise of
        one expert is less than a tenth of another's.
    mixture_init : Mixture, optional
        Starting point, for instance the ``mixture_`` of an earlier fit; replaces the ``n_init`` starting points.
    random_state : int, RandomState, Generator or None
        Random state for the starting points.
    n_jobs : int, optional
        Number of threads of a pass over many rows, and of processes for the starts where these take long: 1 by
        default, -1 for all processors. The result does not depend on it. A federated fit has the threads of its engine
        instead.
    verbose : bool
        Whether to show progress.

    Attributes
    ----------
    mixture_ : Mixture
        The fitted mixture in raw coordinates, experts sorted by decreasing weight.
    coef_ : (K, d) or (K, q, d) array
    intercept_ : (K,) or (K, q) array
    variances_ : (K,) or (K, q) array
    gate_coef_ : (K, d) array
        Sums to zero over experts.
    gate_intercept_ : (K,) array
    weights_ : (K,) array
        Mean weight of each expert over the data.
    log_likelihood_ : float
        Log-likelihood without penalty.
    response_names_ : tuple of str
        Names of the responses in the data; empty if ``y`` had none.
    inference_ : Inference
        Standard errors and intervals, or the reason why they are withheld.
    starts_ : StartEnds
        Where the climbs from independent starts ended; ``starts_agree_`` is True if starts of at least four kinds
        ended within one unit of log-likelihood of the result.
    n_iter_, converged_, stop_reason_, trace_
        Number of iterations, convergence, reason for stopping, and log-likelihood at each iteration.
    degeneracy_, doubts_
        Reason why the fit is degenerate, empty if it is not; and reasons not to trust it as a whole, such as sites that
        disagree.
    single_bic_ : float or None
        BIC of one expert on the same rows; None for one expert, a federated fit, or more than 20,000 rows.

    Examples
    --------
    >>> from consilience import MixtureOfExpertsRegressor
    >>> from consilience.datasets import soft
    >>> data = soft(2000, random_state=0)
    >>> model = MixtureOfExpertsRegressor(n_experts=4, random_state=0).fit(data.X, data.y)
    >>> model.coef_.shape, model.predict_gate(data.X).shape, model.converged_
    ((4, 20), (2000, 4), True)
    >>> model.predict_quantiles(data.X[:2], q=[0.1, 0.9]).shape
    (2, 2)
    """

    title = "Mixture of experts, regression"
    order_name = "n_experts"
    n_experts: int
    gate_features: Sequence[str | int] | None
    expert_features: Sequence[str | int] | None

    @validation.keep_parameters
    def __init__(
        self,
        n_experts: int = 2,
        *,
        family: str = "gaussian",
        covariance_type: str = "full",
        degrees_of_freedom: float | None = None,
        fit_intercept: bool = True,
        categorical_features: Any = "from_dtype",
        reference_levels: Mapping[str, Any] | None = None,
        unknown_levels: str = "error",
        formula: str | None = None,
        gate_features: Sequence[str | int] | None = None,
        expert_features: Sequence[str | int] | None = None,
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
