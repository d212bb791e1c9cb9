"""Mixture of experts for classification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from consilience.columns import frames
from consilience.errors import InvalidInputError
from consilience.estimators import validation
from consilience.estimators.conditional import ConditionalMixture
from consilience.fit import Specification
from consilience.model import Mixture, Rows
from consilience.numerics.arrays import Array


class MixtureOfExpertsClassifier(ClassifierMixin, ConditionalMixture):
    r"""Mixture of logistic (softmax) regressions whose weights depend on the covariates.

    .. math:: P(y = c \mid x) = \sum_k \pi_k(x)\,
              \frac{\exp(b_{kc0} + x^\top b_{kc})}{\sum_e \exp(b_{ke0} + x^\top b_{ke})}

    Parameters
    ----------
    n_experts : int
        Number of experts K.
    gate : {"softmax", "constant"}
        Whether the weights depend on the covariates; ``"constant"`` gives a latent class regression.
    fit_intercept, categorical_features, reference_levels, unknown_levels, formula, gate_features, expert_features
    n_init, max_iter, tol, gate_ridge, mixture_init, random_state, n_jobs, verbose
        As in :class:`MixtureOfExpertsRegressor`.
    expert_ridge : float, optional
        Total ridge penalty on the experts' slopes, in standardised coordinates. By default a penalty of 0.001 on the
        variance of each expert's log odds, which does not depend on how covariates are coded.

    Attributes
    ----------
    classes_ : (C,) array
    coef_ : (K, d) array for two classes (log odds of ``classes_[1]``), else (K, C, d), summing to zero over classes
    intercept_ : (K,) or (K, C) array
    mixture_, gate_coef_, gate_intercept_, weights_, log_likelihood_, inference_
        As in :class:`MixtureOfExpertsRegressor`.
    n_iter_, converged_, stop_reason_, trace_
        As in :class:`MixtureOfExpertsRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import MixtureOfExpertsClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2))
    >>> y = np.where(X[:, 0] > 0, X[:, 1] > 0, X[:, 1] < 0)
    >>> model = MixtureOfExpertsClassifier(2, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    title = "Mixture of experts, classification"
    order_name = "n_experts"
    family = "categorical"
    n_experts: int
    gate: str
    gate_features: Sequence[str | int] | None
    expert_features: Sequence[str | int] | None

    @validation.keep_parameters
    def __init__(
        self,
        n_experts: int = 2,
        *,
        gate: str = "softmax",
        fit_intercept: bool = True,
        categorical_features: Any = "from_dtype",
        reference_levels: Mapping[str, Any] | None = None,
        unknown_levels: str = "error",
        formula: str | None = None,
        gate_features: Sequence[str | int] | None = None,
        expert_features: Sequence[str | int] | None = None,
        n_init: int = 6,
        max_iter: int = 500,
        tol: float = 1e-9,
        gate_ridge: float = 1e-3,
        expert_ridge: float | None = None,
        mixture_init: Mixture | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None: ...

    def _specification(self) -> Specification:
        """Return the specification of the mixture to fit, with its penalties."""
        return self._specified(self.gate, n_classes=len(self.classes_))

    def _rows(self, X: Any, y: Any, *, reset: bool, min_rows: int = 1, **metadata: Any) -> Rows:
        X, y = validation.validate_columns(self, X, y, reset=reset, ensure_min_samples=min_rows)
        if reset:
            check_classification_targets(y)
            self.classes_, codes = np.unique(y, return_inverse=True)
            if len(self.classes_) < 2:
                raise InvalidInputError("y has one class: a classifier needs at least 2 classes in y")
        else:
            codes = self._codes(y)
        Y = codes.reshape(-1, 1).astype(np.float64)
        return validation.build_rows(X, Y, self.family, **metadata)

    def _classes_of(self, sites: Sequence[Mapping[str, Any]]) -> np.ndarray:
        if any(site.get("y") is None for site in sites):
            raise InvalidInputError("a classifier needs y at every site")
        y = np.concatenate([np.asarray(frames.as_array(site["y"])).ravel() for site in sites])
        classes = np.unique(y)
        if len(classes) < 2:
            raise InvalidInputError("y has one class over all sites: a classifier needs at least 2 classes in y")
        return classes

    def _codes(self, y: Array) -> np.ndarray:
        codes = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
        if np.any(self.classes_[codes] != y):
            raise InvalidInputError(f"y has classes that were not in the fit: expected {self.classes_.tolist()}")
        return codes

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None, clusters: Any = None) -> Self:
        """Fit the mixture.

        Parameters
        ----------
        X : (n, d) array or frame
        y : (n,) array
            Class labels.
        sample_weight : (n,) array, optional
            Frequency weights: weight 2 counts the row twice.
        groups : (n,) array, optional
            Groups of rows that share one latent label; the gate then reads the group's mean covariates.
        clusters : (n,) array, optional
            Rows that are not independent, such as those of a patient: standard errors then count clusters, not rows.
        """
        return self._fit(X, y, sample_weight=sample_weight, groups=groups, clusters=clusters)

    def predict_proba(self, X: Any) -> Array:
        """Compute class probabilities ``(n, C)``, in the order of ``classes_``."""
        X = self.covariates(X)
        share = self.mixture_.mean(X)
        normalised: Array = share / share.sum(axis=1, keepdims=True)  # rounding: a sum over experts may exceed 1
        return normalised

    def predict(self, X: Any) -> Any:
        """Predict the most probable class of each row, ``(n,)``."""
        probable = self.predict_proba(X).argmax(axis=1)
        return self.classes_[probable]

    def _decode(self, Y: Array) -> Any:
        return self.classes_[Y[:, 0].astype(np.intp)]
