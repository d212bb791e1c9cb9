"""Gaussian mixture model."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from consilience.errors import InvalidInputError
from consilience.estimators import validation
from consilience.estimators.estimator import MixtureEstimator
from consilience.fit import Specification
from consilience.fitted.protocols import generator
from consilience.model import Mixture, Rows
from consilience.model.families.registry import gaussian
from consilience.numerics.arrays import Array, IntArray


class GaussianMixture(DensityMixin, MixtureEstimator):
    r"""Gaussian mixture with scikit-learn's names, plus case weights, groups and standard errors.

    .. math:: p(x) = \sum_k \pi_k\, N(x;\; \mu_k, \Sigma_k)

    Parameters
    ----------
    n_components : int
        Number of components K.
    covariance_type : {"full", "diag", "spherical", "tied"}
    n_init, max_iter, tol, mixture_init, random_state, n_jobs, verbose
        As in :class:`MixtureOfExpertsRegressor`.
    reg_covar : float
        Lower bound of the variances, as a fraction of the covariance of ``X``.
    shape_ratio : float
        Largest ratio of the variances of two components; in any direction its square, if ``covariance_type`` is
        ``"full"``. Without a bound, the likelihood is highest for a component that fits a few rows exactly.

    Attributes
    ----------
    means_ : (K, d) array
    covariances_ : array
        ``(K, d, d)`` full, ``(K, d)`` diag, ``(K,)`` spherical, ``(d, d)`` tied.
    weights_ : (K,) array
    mixture_, log_likelihood_, inference_, n_iter_, converged_, stop_reason_, trace_
        As in :class:`MixtureOfExpertsRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import GaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (300, 2)), rng.normal(6, 1, (100, 2))])
    >>> model = GaussianMixture(2, random_state=0).fit(X)
    >>> model.means_[1].round(0), model.weights_.round(2)
    (array([6., 6.]), array([0.75, 0.25]))
    """

    title = "Gaussian mixture"
    order_name = "n_components"
    n_components: int
    covariance_type: str
    reg_covar: float
    shape_ratio: float

    @validation.keep_parameters
    def __init__(
        self,
        n_components: int = 2,
        *,
        covariance_type: str = "full",
        n_init: int = 6,
        max_iter: int = 500,
        tol: float = 1e-9,
        reg_covar: float = 1e-6,
        shape_ratio: float = 100.0,
        mixture_init: Mixture | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None: ...

    def _specification(self) -> Specification:
        """Return the specification of the mixture to fit, with its penalties."""
        validation.check_structure(self.covariance_type)
        K = validation.requested_order(self)
        return Specification(
            K,
            gate="constant",
            structure=self.covariance_type,
            reg_covar=self.reg_covar,
            shape_ratio=self.shape_ratio,
        )

    def _rows(self, X: Any, y: Any, *, reset: bool, min_rows: int = 1, **metadata: Any) -> Rows:
        X = validation.validate_columns(self, X, reset=reset, ensure_min_samples=min_rows)
        return validation.build_rows(np.empty((len(X), 0)), X, self.family, **metadata)

    def _roles(self, features: tuple[str, ...], target: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the columns of a table by role: all columns are responses."""
        if target:
            raise InvalidInputError("target: a Gaussian mixture has no target; name its columns in features")
        return (), features

    def _covariates_in(self, mixture: Mixture) -> int:
        """Return the number of columns that a mixture describes: all are responses."""
        return 0 if mixture.design.d else mixture.experts.q

    def _set_attributes(self, mixture: Mixture) -> None:
        experts = gaussian(mixture.experts)
        self.means_ = experts.B[:, :, 0].copy()
        self.covariances_ = experts.covariance

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None, clusters: Any = None) -> Self:
        """Fit the mixture.

        Parameters
        ----------
        X : (n, d) array or frame
        y : None
            Ignored.
        sample_weight : (n,) array, optional
            Frequency weights: weight 2 counts the row twice.
        groups : (n,) array, optional
            Groups of rows that share one latent label.
        clusters : (n,) array, optional
            Rows that are not independent, such as those of a patient: standard errors then count clusters, not rows.
        """
        self._fit(X, None, sample_weight=sample_weight, groups=groups, clusters=clusters)
        return self

    def responsibilities(self, X: Any, *, groups: Any = None) -> Array:
        """Compute the posterior probabilities ``P(component k | x)`` ``(n, K)`` of each row, or of the row's group."""
        rows = self.rows(X, None, groups=groups)
        resp = self.mixture_.responsibilities(rows)
        return resp if rows.groups is None else resp[rows.groups.codes]

    def predict_proba(self, X: Any) -> Array:
        """Compute the posterior probabilities ``P(component k | x)`` of each row, ``(n, K)``."""
        return self.responsibilities(X)

    def predict(self, X: Any) -> Any:
        """Predict the most probable component of each row, ``(n,)``."""
        return self.responsibilities(X).argmax(axis=1)

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit the mixture, and predict the most probable component of each row, ``(n,)``."""
        return self.fit(X, sample_weight=sample_weight).predict(X)

    def predict_gate(self, X: Any) -> Array:
        """Return the mixture weights, repeated for each row: ``(n, K)``."""
        n = len(self.covariates(X))
        return self.mixture_.gate_weights(np.empty((n, 0)))

    def score_samples(self, X: Any) -> Array:
        """Compute the log density ``log p(x)`` of each row, ``(n,)``."""
        rows = self.rows(X, None)
        return self.mixture_.log_density(rows)

    def score(self, X: Any, y: Any = None) -> float:
        """Compute the mean log density."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[Array, IntArray]:
        """Draw points ``(n_samples, d)`` from the mixture, and return them with their components ``(n_samples,)``."""
        check_is_fitted(self)
        return self.mixture_.sample(np.empty((n_samples, 0)), generator(random_state))
