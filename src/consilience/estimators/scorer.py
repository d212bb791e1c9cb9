"""Scorer for scikit-learn's cross-validation: the mean log predictive density."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import UNUSED

from consilience.estimators.pipelines import final_step, transform_before
from consilience.fit import criteria

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from consilience.estimators.estimator import MixtureEstimator


class LogDensityScorer(BaseEstimator):
    r"""Mean log predictive density of held-out rows, for ``scoring=`` in scikit-learn; larger is better.

    .. math:: \frac{1}{\sum_i w_i} \sum_i w_i \log p(y_i \mid x_i)

    R² sees the predicted mean only and hardly changes with the number of experts; the density also sees which expert a
    row follows and how far it scatters. The estimator is a mixture of this library, alone or as the last step of a
    ``Pipeline``. With metadata routing, ``exposure`` and ``trials`` reach the scorer by default, ``sample_weight`` and
    ``groups`` by ``LogDensityScorer().set_score_request(groups=True)``; the density is then that of whole groups.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import GridSearchCV
    >>> from consilience import MixtureOfRegressions, log_density_scorer
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (300, 1))
    >>> y = np.where(rng.random(300) < 0.5, 3, -3) * x[:, 0] + 0.3 * rng.normal(size=300)
    >>> search = GridSearchCV(
    ...     MixtureOfRegressions(n_init=2, random_state=0), {"n_components": [1, 2]}, scoring=log_density_scorer, cv=3
    ... )
    >>> search.fit(x, y).best_params_
    {'n_components': 2}
    """

    __metadata_request__score: ClassVar[dict[str, Any]] = {"estimator": UNUSED, "exposure": True, "trials": True}

    def score(
        self,
        estimator: MixtureEstimator | Pipeline,
        X: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
        groups: Any = None,
        exposure: Any = None,
        trials: Any = None,
    ) -> float:
        """Compute the mean log density of rows, or of groups of rows, at a fitted estimator.

        Parameters
        ----------
        estimator : estimator of this library, or Pipeline that ends with one
        X, y
            Data; ``y`` is ignored for :class:`GaussianMixture`.
        sample_weight, groups, exposure, trials : (n,) array, optional
            As in ``fit``.
        """
        metadata = {"sample_weight": sample_weight, "groups": groups, "exposure": exposure, "trials": trials}
        final = final_step(estimator)
        rows = final.rows(transform_before(estimator, X), y, **metadata)
        return criteria.log_likelihood(final.mixture_, rows) / criteria.label_count(rows)

    __call__ = score


log_density_scorer = LogDensityScorer()
