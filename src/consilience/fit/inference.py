"""Standard errors and confidence intervals, and the conditions under which they are withheld."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from consilience.errors import InvalidInputError
from consilience.fit.checks import on_floor
from consilience.fit.degrees import coefficients_per_row, corrected, degrees_of_freedom, effective_rows, quantile
from consilience.fit.fitting import Fit
from consilience.fit.newton import newton_step
from consilience.fit.parameters import Parameters, coded_jacobian, identified, jacobian, parameters, to_raw
from consilience.model.expectation import expect, score_products
from consilience.model.information import coefficient_slice, gate_slice, is_informable, ridge
from consilience.model.missing import has_short_scores
from consilience.model.mixture import Mixture
from consilience.model.penalty import Penalty
from consilience.model.rows import Rows
from consilience.model.statistics import Statistics
from consilience.numerics.arrays import Array
from consilience.numerics.linalg import cholesky_or_none, cholesky_solve, symmetrised
from consilience.numerics.threads import one_blas_thread

RIDGE_SHARE = 0.05
"""Maximum fraction of the information of the gate, or of the experts, that may come from the ridge."""
LOOSEST_DIRECTION = 0.5
"""Maximum standard error of a gate slope, over all directions, per standard deviation of the covariates."""
SPREAD_PER_COEFFICIENT = 10.0
"""Minimum of ``Σ_i π_k (1 - π_k)`` per gate coefficient."""
GATE_DECREMENT = 0.01
EXPERT_DECREMENT = 0.1
ROWS_PER_COEFFICIENT = 2.5
"""Minimum of an expert's effective rows per coefficient."""
ROWS_PER_COEFFICIENT_OF_SHAPES = 5.0
"""The same for intervals of its shapes, whose bias is of the order of coefficients over rows."""
ROWS_OF_SHAPES = 100.0
"""Minimum of an expert's effective rows for intervals of its shapes in a mixture.

Their standard errors need fourth moments of the residuals. With fewer rows they are too small if the variance depends
on the covariates, and nothing in the data shows that it does.
"""
ROWLESS = ("observed", "simulated")
"""Kinds of standard errors that need no pass over the rows."""
SANDWICH_UP_TO = 20_000
"""Number of labels up to which the standard errors of a fit are compared with the sandwich: one more pass."""


MOST_OPERATIONS = 1e10
"""Number of operations up to which a fit ends with standard errors: about a second."""


@dataclass(frozen=True, eq=False)
class Between:
    """Heterogeneity between sites of each reported parameter; NaN where it is not known.

    Parameters
    ----------
    I2 : Parameters
        Fraction of the variation over sites that sampling does not explain.
    tau2 : Parameters
        Variance between sites; of log odds for a gate.
    """

    I2: Parameters
    tau2: Parameters


@dataclass(frozen=True, eq=False)
class Inference:
    """Estimates with their covariance, and the parts whose intervals are withheld.

    Parameters
    ----------
    estimates : Parameters
    covariance : (D, D) array
        Covariance of ``estimates.flat()``, exactly symmetric; NaN where it is not available.
    kind : str
        ``"observed"``, ``"sandwich"``, ``"larger"`` (of these two) or ``"bootstrap"``; ``"simulated"`` from the
        mixture; ``"summed"`` over sites; ``"between sites"``.
    decrement : float
        Newton decrement at the estimates: an estimate of the log-likelihood still to be gained.
    withheld : mapping of str to str
        Reason for each part (``"gate"``, ``"experts"``, ``"shapes"``) without intervals; ``"experts"`` includes their
        shapes.
    degrees : (D,) array or None
        Residual degrees of freedom of each parameter, for the quantiles of intervals; None for normal quantiles.
    between : Between or None
        Heterogeneity between sites, where sites sent fits of their own.
    identified : Parameters or None
        1 for each parameter that is identified and NaN for the others
        (:func:`~consilience.fit.parameters.identified`); None if all are.

    Examples
    --------
    >>> from consilience.fit import Specification, fit_mixture
    >>> rng = np.random.default_rng(0)
    >>> rows = Rows(np.empty((400, 0)), rng.normal(size=(400, 1)))
    >>> inference = infer(fit_mixture(rows, Specification(K=1, gate="constant"), rng=rng), rows)
    >>> inference.standard_errors().experts.round(2), inference.withheld
    (array([[[0.05]]]), {})
    >>> lower, upper = inference.interval(0.95)
    >>> bool(lower.experts[0, 0, 0] < 0 < upper.experts[0, 0, 0])
    True
    """

    estimates: Parameters
    covariance: Array
    kind: str
    decrement: float
    withheld: Mapping[str, str] = field(default_factory=dict)
    degrees: Array | None = None
    between: Between | None = None
    identified: Parameters | None = None

    def standard_errors(self) -> Parameters:
        """Return standard errors; NaN for withheld parts and for coefficients that are not identified."""
        known = 1.0 if self.identified is None else self.identified.flat()
        se = self.estimates.like(known * np.sqrt(np.maximum(np.diagonal(self.covariance), 0.0)))
        shapes = {"experts", "shapes"} & set(self.withheld)
        return Parameters(
            np.full_like(se.gate, np.nan) if "gate" in self.withheld else se.gate,
            np.full_like(se.experts, np.nan) if "experts" in self.withheld else se.experts,
            np.full_like(se.log_shapes, np.nan) if shapes else se.log_shapes,
        )

    def degrees_of_freedom(self) -> Parameters:
        """Return the residual degrees of freedom of each parameter; infinite for normal quantiles."""
        flat = self.estimates.flat()
        return self.estimates.like(np.full(len(flat), np.inf) if self.degrees is None else self.degrees)

    def interval(self, level: float = 0.95) -> tuple[Parameters, Parameters]:
        """Return lower and upper bounds at a confidence level; NaN for withheld parts."""
        reach = quantile(level, self.degrees_of_freedom().flat()) * self.standard_errors().flat()
        flat = self.estimates.flat()
        return self.estimates.like(flat - reach), self.estimates.like(flat + reach)

    def gate_contrasts(self, reference: int) -> tuple[Array, Array]:
        """Return gate coefficients relative to expert ``reference`` with standard errors, both ``(K, p)``."""
        K, p = self.estimates.gate.shape
        A = np.kron(np.eye(K) - np.eye(K)[reference], np.eye(p))
        covariance = A @ self.covariance[: K * p, : K * p] @ A.T
        se = np.sqrt(np.maximum(np.diagonal(covariance), 0.0)).reshape(K, p)
        if "gate" in self.withheld:
            se = np.full_like(se, np.nan)
        elif self.identified is not None:
            se = se * self.identified.gate
        return self.estimates.gate - self.estimates.gate[reference], se


def infer(fit: Fit, rows: Rows | None = None, *, kind: str = "observed") -> Inference:
    """Compute standard errors from the observed information, or the sandwich ``(J + R)⁻¹ (Σ w s sᵀ) (J + R)⁻¹``.

    Both are corrected for the residual degrees of freedom of each expert
    (:func:`~consilience.fit.degrees.corrected`), the sandwich also for the leverage of single rows (HC3,
    :func:`~consilience.model.expectation.score_products`), and intervals take the quantiles of Student's distribution.

    Parameters
    ----------
    fit : Fit
    rows : Rows or None
        The rows of the fit; used for the sandwich, and if the fit ended without the information.
    kind : {"observed", "sandwich", "larger", "simulated"}
        ``"larger"`` takes for each parameter (for the intercept at the mean of the covariates) the larger of the two
        standard errors: the observed information is exact for few rows but wrong if the variance depends on the
        covariates, and the sandwich the other way round. ``"simulated"`` is for statistics whose information was
        simulated from the mixture (:mod:`consilience.fit.scoring`); convergence is then not judged by the decrement.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> from consilience.fit import Specification, fit_mixture
    >>> data = soft(3000, random_state=0)
    >>> rows = Rows(data.X, data.y[:, None])
    >>> fit = fit_mixture(rows, Specification(K=4), rng=np.random.default_rng(0))
    >>> infer(fit, rows).standard_errors().experts.shape
    (4, 1, 21)
    """
    mixture, statistics = fit.ascent.mixture, fit.ascent.statistics
    estimates = parameters(fit.mixture)
    if rows is None and (kind not in ROWLESS or (statistics.information is None and is_informable(mixture))):
        raise InvalidInputError(f"kind={kind!r} standard errors of this fit need its rows: pass them")
    if not is_informable(mixture):
        return refused(estimates, kind, f"{mixture.parameter_count} parameters: too many for the full information")
    if statistics.information is None and rows is not None:
        with one_blas_thread():
            statistics = expect(mixture, rows, information=True)
    step = newton_step(mixture, statistics, fit.penalty)
    inverse = inverse_information(mixture, statistics, fit.penalty)
    if step is None or inverse is None:
        return refused(
            estimates, kind, "the information is not positive definite: the likelihood is flat in some direction"
        )
    decrement = np.nan if kind == "simulated" else step.decrement
    n, p = effective_rows(mixture, statistics, inverse), coefficients_per_row(mixture)
    withheld = reasons(mixture, statistics, fit.penalty, inverse, decrement) | crowded(mixture, n, p)
    meat = None if kind in ROWLESS or rows is None else score_products(mixture, rows, by_leverage=True)
    scores = None if meat is None else inverse @ meat @ inverse
    covariance = _reported(fit, inverse, scores, kind)
    known = identified(mixture)
    if "experts" in withheld:  # the correction may not exist, and is not shown
        return Inference(estimates, covariance, kind, decrement, withheld, identified=known)
    n = n[fit.permutation]
    shown, degrees = corrected(covariance, estimates, n, p), degrees_of_freedom(estimates, n, p)
    return Inference(estimates, shown, kind, decrement, withheld, degrees, identified=known)


def infer_after_fit(fit: Fit, rows: Rows, labels: float) -> Inference:
    """Compute the standard errors that a fit on one machine ends with, unless they would take far longer than the fit.

    The information of P parameters takes n P² operations for n rows, where no shorter products are known
    (:func:`~consilience.model.missing.has_short_scores`): a Gaussian mixture with 8 components and 20 columns has 1,847
    parameters.
    """
    mixture, kind = fit.ascent.mixture, default_kind(labels)
    work = labels * mixture.parameter_count**2
    known = fit.ascent.statistics.information is not None or has_short_scores(mixture)
    if work <= MOST_OPERATIONS or known or not is_informable(mixture):
        return infer(fit, rows, kind=kind)
    size = f"{mixture.parameter_count} parameters takes {work:.0e} operations on {labels:,.10g} rows"
    return refused(parameters(fit.mixture), kind, f"the information of {size}: infer() computes it")


def default_kind(labels: float) -> str:
    """Return the kind of standard errors of a fit on one machine to this number of labels.

    Examples
    --------
    >>> default_kind(300), default_kind(1_000_000)
    ('larger', 'observed')
    """
    return "larger" if labels <= SANDWICH_UP_TO else "observed"


def _reported(fit: Fit, inverse: Array, sandwich: Array | None, kind: str) -> Array:
    """Return the covariance ``(D, D)`` of the reported parameters from those ``(P, P)`` of the ascent."""
    mixture = fit.ascent.mixture
    if kind != "larger" or sandwich is None:
        D = jacobian(mixture, fit.permutation)
        return symmetrised(D @ (inverse if sandwich is None else sandwich) @ D.T)
    # in centred coordinates: an intercept far from the rows is a combination of parameters that must cancel
    D = coded_jacobian(mixture, fit.permutation)
    D = to_raw(mixture, widening(D, inverse, sandwich)[:, None] * D)
    return symmetrised(D @ inverse @ D.T)


def widening(D: Array, one: Array, other: Array) -> Array:
    """Return factors ``(D,)`` of the standard errors of ``D θ``: the larger of those by two covariances, by the first.

    Examples
    --------
    >>> widening(np.eye(2), np.array([[1.0, 0.5], [0.5, 1.0]]), np.diag([4.0, 0.1]))
    array([2., 1.])
    """
    a, b = (np.sum((D @ covariance) * D, axis=1) for covariance in (one, other))
    factors: Array = np.sqrt(np.maximum(a, b) / np.where(a > 0, a, 1.0))
    return factors


def crowded(mixture: Mixture, rows: Array, p: int) -> dict[str, str]:
    """Return the reasons why intervals are withheld if an expert has too few effective rows ``(K,)`` per coefficient.

    The likelihood of such a fit has its maximum far from the truth: labels follow the noise, and no correction of the
    standard errors helps. A single expert has no labels, and the correction is exact.
    """
    k = int(np.argmin(rows))
    have = f"{rows[k]:.0f} effective rows for the {p} coefficients of an expert"
    needed = ROWS_PER_COEFFICIENT * p if mixture.K > 1 else p + 1
    if rows[k] < needed:
        parts = ("gate", "experts") if mixture.K > 1 else ("experts",)
        return dict.fromkeys(parts, f"{have}, at least {needed:.0f} are needed: use fewer covariates")
    needed = max(ROWS_PER_COEFFICIENT_OF_SHAPES * p, ROWS_OF_SHAPES if mixture.K > 1 else 0.0)
    if mixture.experts.shapes and rows[k] < needed:
        return {"shapes": f"{have}, at least {needed:.0f} are needed"}
    return {}


def of_coefficients(fit: Fit, covariance: Array, kind: str, withheld: Mapping[str, str]) -> Inference:
    """Compute standard errors of the experts' coefficients from the covariance ``(K, f, f)`` of each expert's.

    The covariance is in the coordinates and order of the ascent; ``withheld`` has the reasons for the other parts.
    """
    mixture, estimates = fit.ascent.mixture, parameters(fit.mixture)
    of_all = np.zeros((mixture.parameter_count, mixture.parameter_count))
    at, f = coefficient_slice(mixture), covariance.shape[1]
    for k in range(mixture.K):
        own = slice(at.start + k * f, at.start + (k + 1) * f)
        of_all[own, own] = covariance[k]
    D = jacobian(mixture, fit.permutation)
    shown = symmetrised(D @ of_all @ D.T)
    unknown = np.r_[0 : estimates.gate.size, estimates.gate.size + estimates.experts.size : len(shown)]
    shown[unknown], shown[:, unknown] = np.nan, np.nan
    return Inference(estimates, shown, kind, np.nan, withheld, identified=identified(mixture))


def refused(estimates: Parameters, kind: str, reason: str) -> Inference:
    """Return estimates without standard errors, with the reason."""
    size = len(estimates.flat())
    return Inference(estimates, np.full((size, size), np.nan), kind, np.nan, {"gate": reason, "experts": reason})


@dataclass(frozen=True, eq=False)
class InferredFit(Fit):
    """A fit with its own standard errors, or the reason why it has none.

    Parameters
    ----------
    inference : Inference

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> from consilience.fit import Specification, fit_mixture
    >>> data = soft(500, random_state=0)
    >>> rng = np.random.default_rng(0)
    >>> fit = fit_mixture(Rows(data.X, data.y[:, None]), Specification(K=4), rng=rng, start=data.truth)
    >>> InferredFit.without(fit, "none were asked for").inference.withheld["experts"]
    'none were asked for'
    """

    inference: Inference

    @classmethod
    def without(cls, fit: Fit, reason: str, kind: str = "observed") -> InferredFit:
        """Return the fit without standard errors."""
        return cls(**vars(fit), inference=refused(parameters(fit.mixture), kind, reason))


def inference_of(fit: Fit) -> Inference:
    """Return the standard errors that a fit brings along, else those from the information of its last pass."""
    return fit.inference if isinstance(fit, InferredFit) else infer(fit)


def inverse_information(mixture: Mixture, statistics: Statistics, penalty: Penalty) -> Array | None:
    """Compute ``(J + R)⁻¹ (P, P)``, or None if ``J + R`` is not positive definite."""
    if statistics.information is None:
        return None
    L = cholesky_or_none(statistics.information + ridge(mixture, penalty))
    return None if L is None else cholesky_solve(L, np.eye(len(L)))


def reasons(
    mixture: Mixture, statistics: Statistics, penalty: Penalty, inverse: Array, decrement: float
) -> dict[str, str]:
    """Return the reason why the intervals of each part are withheld; empty if none is."""
    found = {}
    if on_floor(mixture, penalty):
        reason = f"an expert's {mixture.experts.shape_name} is at its floor: the maximum is on a boundary"
        return dict.fromkeys(("gate", "experts"), reason)
    if decrement >= EXPERT_DECREMENT:
        found["experts"] = f"the fit has not converged: Newton decrement {decrement:.2g}, at most {EXPERT_DECREMENT}"
    share = expert_ridge_share(mixture, penalty, inverse)
    if share > RIDGE_SHARE:
        part = f"{min(share, 1.0):.0%} of the information on an expert comes from the ridge"
        found.setdefault("experts", f"{part}, at most {RIDGE_SHARE:.0%}: its coefficients are shrunk towards 0")
    if mixture.gate.reads_covariates and mixture.K > 1:
        reason = gate_reason(mixture, statistics, penalty, inverse, decrement)
        if reason:
            found["gate"] = reason
    return found


def gate_reason(mixture: Mixture, statistics: Statistics, penalty: Penalty, inverse: Array, decrement: float) -> str:
    """Return the reason why the gate's intervals are withheld, or an empty string."""
    if decrement >= GATE_DECREMENT:
        return f"the fit has not converged: Newton decrement {decrement:.2g}, at most {GATE_DECREMENT}"
    loosest, share = loosest_direction(mixture, penalty, inverse), ridge_share(mixture, penalty, inverse)
    if share > RIDGE_SHARE:
        part = f"{min(share, 1.0):.0%} of its information comes from the ridge, at most {RIDGE_SHARE:.0%}"
        return f"the gate is nearly separated: {part}"
    if loosest > LOOSEST_DIRECTION:
        return (
            f"the gate is weakly identified: a direction of its slopes has standard error {loosest:.2g} per standard "
            f"deviation of the covariates, at most {LOOSEST_DIRECTION}"
        )
    spread, needed = gate_spread(mixture, statistics), SPREAD_PER_COEFFICIENT * mixture.reads.p
    if spread < needed:
        return f"experts overlap in too few rows: sum of π(1-π) is {spread:.0f}, at least {needed:.0f} are needed"
    return ""


def loosest_direction(mixture: Mixture, penalty: Penalty, inverse: Array) -> float:
    """Return the largest standard error over directions of the gate's slopes, per unit of the penalty's form."""
    gate = gate_slice(mixture)
    R = ridge(mixture, replace(penalty, gate_ridge=1.0))[gate, gate]
    values, vectors = np.linalg.eigh(R)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return float(np.sqrt(np.linalg.eigvalsh(root.T @ inverse[gate, gate] @ root).max(initial=0.0)))


def ridge_share(mixture: Mixture, penalty: Penalty, inverse: Array) -> float:
    """Compute ``λ_max(R (J + R)⁻¹)`` over the gate: the largest fraction of information due to the ridge."""
    return penalty.gate_ridge * loosest_direction(mixture, penalty, inverse) ** 2


def expert_ridge_share(mixture: Mixture, penalty: Penalty, inverse: Array) -> float:
    """Compute ``λ_max(R (J + R)⁻¹)`` over the experts' coefficients."""
    if penalty.expert_ridge == 0:
        return 0.0
    at = coefficient_slice(mixture)
    R = ridge(mixture, penalty)[at, at]
    values, vectors = np.linalg.eigh(R)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return float(np.linalg.eigvalsh(root.T @ inverse[at, at] @ root).max(initial=0.0))


def gate_spread(mixture: Mixture, statistics: Statistics) -> float:
    """Compute ``min_k Σ_i w_i π_k (1 - π_k)``."""
    return float(statistics.gate.plain[mixture.K :].min())
