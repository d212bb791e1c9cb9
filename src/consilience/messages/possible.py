"""What no data can give, in answers other than statistics; each function returns it, or an empty string."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.fit.spectral import SquaredMoments
from consilience.messages.client_questions import Pairs
from consilience.messages.questions import Identity, Likelihood, LocalFit, LogLikelihood, Sample
from consilience.model.clients.moments import ClientMoments
from consilience.model.clients.pairs import PairSums
from consilience.model.critic import MinimaxSums
from consilience.model.cross_products import CrossProducts, products_of_summary
from consilience.model.impossible import impossible
from consilience.model.statistics import Statistics
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array, unpack
from consilience.numerics.linalg import is_semidefinite

ROUNDING = 1e-9
MOST_ROWS = 1e15
"""Weight above which an answer is not about rows of a table."""
LARGEST_MEAN = 1e154
"""Mean above which squares overflow."""


def weight_problem(weight: float) -> str:
    """Return what is wrong with the weight of rows."""
    return "a negative weight" if weight < 0 else "more rows than any table has" if weight > MOST_ROWS else ""


def in_statistics(asked: Any, given: Statistics) -> str:
    """Check the statistics of a pass, or of a sample."""
    mixture = asked.question.mixture if isinstance(asked, Sample) else asked.mixture
    return weight_problem(given.weight) or impossible(mixture, given)


def in_summary(_: Any, given: ColumnSummary) -> str:
    """Check the weight and the means of the columns."""
    if any(bool(np.any(np.abs(mean) > LARGEST_MEAN)) for mean in (given.x_mean, given.y_mean)):
        return "means whose squares overflow: rescale those columns"
    return weight_problem(given.weight)


def in_fit(asked: Any, given: LocalFit) -> str:
    """Check the summary of a site's own fit."""
    return in_summary(asked, given.summary)


def in_likelihood(asked: LogLikelihood, given: Likelihood) -> str:
    """Check a log-likelihood: probabilities of discrete responses are at most 1."""
    if asked.mixture.experts.discrete and given.log_likelihood > ROUNDING * given.weight:
        return "a log-likelihood above its bound"
    return weight_problem(given.weight)


def in_identity(_: Any, given: Identity) -> str:
    """Check the weight of the rows."""
    return weight_problem(given.weight)


def in_pairs(asked: Pairs, given: PairSums) -> str:
    """Check sums over pairs of rows."""
    if asked.basis is None and not _is_symmetric(given.product):
        return "products of pairs that are not symmetric"
    return weight_problem(given.pairs)


def in_clients(_: Any, given: ClientMoments) -> str:
    """Check the moments of each client: products of covariates and residuals are positive semidefinite."""
    joint = np.block([[unpack(given.S), given.b[:, :, None]], [given.b[:, None], given.c[:, None, None]]])
    if not is_semidefinite(joint):
        return "moments of a client that are not positive semidefinite"
    return weight_problem(float(given.n.sum()))


def in_squares(_: Any, given: SquaredMoments) -> str:
    """Check weighted second moments."""
    if not is_semidefinite(given.second):
        return "second moments that are not positive semidefinite"
    return weight_problem(given.weight)


def in_critic(_: Any, given: MinimaxSums) -> str:
    """Check the sums of a critic."""
    if np.any(given.shares < 0) or abs(given.shares.sum() - given.weight) > ROUNDING * given.weight:
        return "masses that are negative, or do not add up to the number of rows"
    return "a negative sum of squares" if given.squares < 0 else weight_problem(given.weight)


def products_of_fit(_: Any, given: LocalFit) -> CrossProducts:
    """Return what a site's own fit states about its rows."""
    products = products_of_summary(given.summary)
    labels = CrossProducts.counted(labels=np.nan if given.model is None else given.model.weight)
    return products.joined(labels)


def _is_symmetric(matrix: Array) -> bool:
    return bool(np.all(np.abs(matrix - matrix.T) <= ROUNDING * np.abs(matrix).max(initial=0.0)))
