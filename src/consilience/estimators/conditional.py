"""Base class of the estimators of ``y`` given ``X``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from consilience.columns.dictionary import chosen_names
from consilience.estimators.estimator import MixtureEstimator, split_intercept
from consilience.estimators.validation import (
    check_names_shared,
    check_places_shared,
    requested_order,
    take_sizes,
    validate_sizes,
)
from consilience.fit import Specification
from consilience.fit.inference import expert_means, mean_errors
from consilience.fit.parameters import parameters
from consilience.fitted.protocols import generator
from consilience.model import Mixture
from consilience.numerics.arrays import Array, IntArray

OF_ROWS = ("sample_weight", "groups", "clusters", "exposure", "trials")
"""Arguments of ``fit`` that are neither covariates nor responses."""


class ConditionalMixture(MixtureEstimator):
    """Base class of the mixtures of regressions and of experts."""

    fit_intercept: bool
    categorical_features: Any
    reference_levels: Mapping[str, Any] | None
    unknown_levels: str
    gate_ridge: float
    expert_ridge: float | None

    @classmethod
    def from_formula(cls, formula: str, data: Any, **parameters: Any) -> Self:
        """Fit a mixture that a formula describes.

        Parameters
        ----------
        formula : str
            Such as ``"los ~ age * admission + spline(crp) | age + severity"``: the response, what the experts read,
            and after ``|`` what the gate reads; without it both read the same. See :doc:`/how-to/formulas`.
        data : (n, d) frame
            With the columns that the formula names.
        **parameters
            Constructor parameters, such as ``n_experts``, and the weights, groups, clusters and sizes of ``fit``.

        Returns
        -------
        estimator
            The fitted estimator, which predicts from frames with the same columns.
        """
        fitted = {name: parameters.pop(name) for name in OF_ROWS if name in parameters}
        model: Any = cls(formula=formula, **parameters)
        found: Self = model.fit(data, None, **fitted)
        return found

    def _specified(self, gate: str, **of_experts: Any) -> Specification:
        """Return the specification of a mixture with this gate, and with what else its experts need."""
        return Specification(
            K=requested_order(self),
            family=self.family,
            gate=gate,
            intercept=self.fit_intercept,
            gate_ridge=self.gate_ridge,
            expert_ridge=self.expert_ridge,
            expert_columns=self._terms_read("expert_features"),
            gate_columns=self._terms_read("gate_features"),
            shared=self._terms_shared(),
            **of_experts,
        )

    def _terms_read(self, name: str) -> tuple[int, ...] | None:
        """Return the places among the terms of the columns that a parameter or a formula names; None for all."""
        features = getattr(self, name, None)
        formula = None if self.derivation_ is None else self.derivation_.formula
        if self.derivation_ is not None and formula is not None and formula.gate is not None:
            features = self.derivation_.read_by(formula.gate if name == "gate_features" else formula.experts)
        return None if features is None else self._places_of(chosen_names(features, self.columns_.names, name))

    def _places_of(self, chosen: set[str]) -> tuple[int, ...]:
        """Return the places among the terms of those of the chosen columns."""
        owners = [column.name for column in self.columns_.columns for _ in column.terms]
        return tuple(i for i, owner in enumerate(owners) if owner in chosen)

    def _terms_shared(self) -> tuple[int, ...]:
        """Return the places among the terms of those whose coefficients are equal in all experts."""
        shared = getattr(self, "shared", None)
        if shared is None:
            return ()
        check_names_shared(shared, self.columns_.names)
        if self.derivation_ is not None:
            shared = self.derivation_.named(shared)
        places = self._places_of(chosen_names(shared, self.columns_.names, "shared"))
        return check_places_shared(self, places, self._terms_read("expert_features"))

    def _set_attributes(self, mixture: Mixture) -> None:
        coefficients = parameters(mixture).experts  # (K, c, p)
        intercept, coef = split_intercept(coefficients, mixture.design.intercept)
        self.intercept_ = intercept[:, 0] if intercept.shape[1] == 1 else intercept
        self.coef_ = coef[:, 0] if coef.shape[1] == 1 else coef
        for name, value in mixture.experts.attributes().items():
            setattr(self, name, value)

    def responsibilities(
        self, X: Any, y: Any, *, groups: Any = None, exposure: Any = None, trials: Any = None
    ) -> Array:
        """Compute the posterior probabilities ``P(expert k | x, y)`` of each row, or of the row's group.

        Parameters
        ----------
        X : (n, d) array or frame
        y : (n,) or (n, q) array
        groups : (n,) array, optional
        exposure, trials : (n,) array, optional
            As in ``fit``.

        Returns
        -------
        (n, K) array
        """
        rows = self.rows(X, y, groups=groups, exposure=exposure, trials=trials)
        resp = self.mixture_.responsibilities(rows)
        return resp if rows.groups is None else resp[rows.groups.codes]

    def log_density(self, X: Any, y: Any, *, exposure: Any = None, trials: Any = None) -> Array:
        """Compute the log density ``log p(y | x)`` of each row, ``(n,)``.

        Parameters
        ----------
        X : (n, d) array or frame
        y : (n,) or (n, q) array
        exposure, trials : (n,) array, optional
            Size of each row; necessary if the model was fitted with it.
        """
        rows = self.rows(X, y, exposure=exposure, trials=trials)
        return self.mixture_.log_density(rows)

    def predict_experts(
        self, X: Any, *, exposure: Any = None, trials: Any = None, return_std_error: bool = False
    ) -> Array | tuple[Array, Array]:
        """Predict the mean response ``E[y | x, k]``, or the class probabilities, of each expert.

        Parameters
        ----------
        X : (n, d) array or frame
        exposure, trials : (n,) array, optional
            Size of each row, as in ``fit``; by default 1, so that the prediction is a rate or a probability.
        return_std_error : bool
            Whether to return standard errors as well. They are those of the mean response, by the delta method from
            ``inference_``, and NaN where the intervals of the experts are withheld; a new response also scatters
            around its mean (``predict_quantiles``).

        Returns
        -------
        mean : (n, K), (n, K, q) or, for classes, (n, K, C) array
        std_error : array of the same shape
            With ``return_std_error=True``.
        """
        X, sizes = take_sizes(X, {"exposure": exposure, "trials": trials})
        X = self.covariates(X)
        size = validate_sizes(self.family, sizes, len(X))
        factor = 1.0 if size is None else size[:, None, None]
        mean = self._of_experts(factor * expert_means(self.mixture_, X))
        if not return_std_error:
            return mean
        return mean, self._of_experts(factor * mean_errors(self.mixture_, self.inference_, X))

    def _of_experts(self, values: Array) -> Array:
        return values if values.shape[2] > 1 else values[:, :, 0]

    def sample(
        self, X: Any, random_state: Any = None, *, exposure: Any = None, trials: Any = None
    ) -> tuple[Any, IntArray]:
        """Draw responses at the rows of ``X``.

        Parameters
        ----------
        X : (n, d) array or frame
        random_state : int, RandomState, Generator or None
        exposure, trials : (n,) array, optional
            Size of each row, as in ``fit``; 1 by default.

        Returns
        -------
        y : (n,) or (n, q) array
        labels : (n,) array of int
            The expert that generated each response.
        """
        X, sizes = take_sizes(X, {"exposure": exposure, "trials": trials})
        X = self.covariates(X)
        size = validate_sizes(self.family, sizes, len(X))
        Y, labels = self.mixture_.sample(X, generator(random_state), exposure=size)
        return self._decode(Y), labels

    def _decode(self, Y: Array) -> Array:
        return Y[:, 0] if Y.shape[1] == 1 else Y


def as_columns(y: Array) -> Array:
    """Return the responses as a matrix ``(n, q)``."""
    return np.asarray(y, dtype=np.float64).reshape(len(y), -1)
