"""BIC of one expert alone, against which the experts of a mixture have to stand."""

from __future__ import annotations

import warnings

import numpy as np

from consilience.errors import ConsilienceWarning
from consilience.fit.criteria import bic, label_count
from consilience.fit.fitting import fit_mixture
from consilience.fit.specification import Specification
from consilience.model.rows import Rows

EXAMINED_UP_TO = 20_000
"""Number of labels up to which a fit of several experts is compared with one expert: one more fit, of a few passes."""


def single_bic(rows: Rows, specification: Specification) -> float | None:
    """Compute the BIC of one expert of the same family; None for a single expert, or more than 20,000 labels.

    If it is not above that of the mixture, nothing shows that there are several experts: the labels may follow the
    noise, and intervals that take them for real do not cover.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = Rows(np.empty((100, 0)), rng.normal(size=(100, 1)))
    >>> round(single_bic(rows, Specification(K=2, gate="constant")), 1)
    285.3
    >>> single_bic(rows, Specification(K=1)) is None
    True
    """
    n = label_count(rows)
    if specification.K == 1 or n > EXAMINED_UP_TO:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConsilienceWarning)  # of a fit that is compared, not shown
        fit = fit_mixture(rows, specification.with_order(1), rng=np.random.default_rng(0), n_init=1)
    return bic(fit.log_likelihood, fit.parameter_count, n)
