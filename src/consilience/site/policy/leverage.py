"""How much one row can move the regression of an expert."""

from __future__ import annotations

import numpy as np

from consilience.model.mixture import Mixture
from consilience.model.rows import Rows
from consilience.site.policy.weighted_rows import weighted_rows


def regression_leverage(mixture: Mixture, rows: Rows) -> float:
    """Compute the largest leverage of a row in the weighted regression of an expert.

    The leverage of row i in expert k is ``τ_ik x_iᵀ (Σ_j τ_jk x_j x_jᵀ)⁻¹ x_i``, between 0 and 1. At 1 the expert's
    regression passes through the row, and its coefficients disclose the response.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> data = soft(500, n_experts=2, n_features=2, random_state=0)
    >>> 0 < regression_leverage(data.truth, Rows(data.X, data.y[:, None])) < 0.1
    True
    """
    panel, largest = mixture.design.panel(rows.X), 0.0
    for tau in weighted_rows(mixture, rows).tau:
        weighted = panel * np.sqrt(tau)
        scale = np.sqrt(np.sum(weighted**2, axis=1, keepdims=True))
        weighted = np.divide(weighted, scale, out=np.zeros_like(weighted), where=scale > 0)
        values, vectors = np.linalg.eigh(weighted @ weighted.T)
        kept = values > len(values) * np.finfo(float).eps * max(values[-1], 0.0)
        scores = (vectors[:, kept].T @ weighted) / np.sqrt(values[kept, None])
        largest = max(largest, float(np.max(np.sum(scores**2, axis=0), initial=0.0)))
    return min(largest, 1.0)
