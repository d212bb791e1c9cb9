"""A mixture alone, or as the last step of a scikit-learn ``Pipeline``."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from consilience.columns import frames
from consilience.errors import ConsilienceWarning, InvalidInputError
from consilience.estimators.estimator import MixtureEstimator
from consilience.estimators.federated import site_rows, specification_of
from consilience.estimators.validation import budget_of
from consilience.fit import fit_mixture
from consilience.fit.selection import HeldOut, label_densities
from consilience.fitted.protocols import generator
from consilience.model import Rows
from consilience.numerics.arrays import Array, IntArray

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline


def is_pipeline(estimator: object) -> TypeGuard[Pipeline]:
    """Whether the estimator is a pipeline."""
    from sklearn.pipeline import Pipeline  # here, because it imports all of sklearn.preprocessing

    return isinstance(estimator, Pipeline)


def final_step(estimator: MixtureEstimator | Pipeline) -> MixtureEstimator:
    """Return the mixture: the estimator itself, or the last step of a pipeline."""
    final = estimator.steps[-1][1] if is_pipeline(estimator) else estimator
    if not isinstance(final, MixtureEstimator):
        raise InvalidInputError(
            f"got {type(final).__name__}: expected a mixture of this library, alone or as the last step of a Pipeline"
        )
    return final


def steps_before(estimator: MixtureEstimator | Pipeline) -> Pipeline | None:
    """Return the steps of a pipeline before the last; None for a mixture alone, or a pipeline of one step."""
    return estimator[:-1] if is_pipeline(estimator) and len(estimator) > 1 else None


def transform_before(estimator: MixtureEstimator | Pipeline, X: Any) -> Any:
    """Return ``X`` as the last step of a fitted pipeline reads it; ``X`` itself for a mixture alone."""
    before = steps_before(estimator)
    return X if before is None else before.transform(X)


@dataclass(frozen=True, eq=False)
class Data:
    """The data of a fit, before any step: ``X (n, d)``, ``y`` or None, and metadata of ``fit`` by name."""

    X: Any
    y: Any
    metadata: Mapping[str, Any]

    def at(self, index: IntArray) -> Data:
        """Return the rows at ``index``."""
        y = None if self.y is None else _safe_indexing(self.y, index)
        metadata = {name: _take_rows(value, index) for name, value in self.metadata.items()}
        return Data(_safe_indexing(self.X, index), y, metadata)


def _take_rows(values: Any, index: IntArray) -> Any:
    return None if values is None else np.asarray(frames.as_array(values))[index]


def held_out_after(
    before: Pipeline, fits: Sequence[MixtureEstimator], data: Data, rows: Rows, folds: IntArray
) -> list[HeldOut]:
    """Compute the log density of each fold after steps and mixtures that are fitted to the other folds.

    Parameters
    ----------
    before : Pipeline
        Steps before the mixture.
    fits : sequence of estimators
        One per number of experts; each is fitted anew in each fold, from starts of its own.
    data : Data
    rows : Rows
        Of all data, for its labels.
    folds : (m,) array of int
        Fold of each row, or of each group.
    """
    of_rows = folds if rows.groups is None else folds[rows.groups.codes]
    found = [(np.zeros(len(folds)), np.zeros(len(folds))) for _ in fits]  # log-likelihood and weight of each label
    for fold in np.unique(folds):
        kept, left_out = (data.at(np.flatnonzero(chosen)) for chosen in (of_rows != fold, of_rows == fold))
        steps = clone(before)
        parts = [steps.fit_transform(kept.X, kept.y), steps.transform(left_out.X)]
        sites = [{"X": Z, "y": each.y, **each.metadata} for Z, each in zip(parts, (kept, left_out), strict=True)]
        for (log_likelihood, weight), fitted in zip(found, fits, strict=True):
            log_likelihood[folds == fold], weight[folds == fold] = _held_out_densities(clone(fitted), sites)
    return [HeldOut(*each) for each in found]


def _held_out_densities(estimator: MixtureEstimator, parts: Sequence[Mapping[str, Any]]) -> tuple[Array, Array]:
    """Fit to the first part; return the weighted log densities and weights of the second."""
    named = dict(zip(("other folds", "fold"), parts, strict=True))
    rows, left_out = site_rows(estimator, named)  # both parts have the same columns and classes
    rng = generator(estimator.random_state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConsilienceWarning)  # the fit to all rows has warned
        fit = fit_mixture(rows, specification_of(estimator), rng=rng, **budget_of(estimator))
    return label_densities(fit.mixture, left_out)
