"""Standard errors and confidence intervals, bootstrap, and the conditions under which intervals are withheld."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from consilience.errors import DegenerateFitWarning, InvalidInputError
from consilience.fit.climb import newton_step
from consilience.fit.fitting import Fit, fit_mixture
from consilience.fit.parameters import Parameters, coded_jacobian, identification_mask, jacobian, parameters, to_raw
from consilience.fit.specification import Specification, coefficients_per_row, is_at_bound
from consilience.model import Mixture, Penalty, Rows, Statistics, expect
from consilience.model.expectation import Meat, has_short_scores, score_products
from consilience.model.information import (
    coefficient_slice,
    complete_information,
    free_map,
    gate_slice,
    is_informable,
    ridge,
    share_curvature,
)
from consilience.model.mixture import matching
from consilience.numerics.arrays import Array, IntArray, Mask
from consilience.numerics.linalg import cholesky_or_none, cholesky_solve, inverse_bounded, solve_symmetric, symmetrise
from consilience.numerics.threads import one_blas_thread


def effective_rows_of_experts(mixture: Mixture, statistics: Statistics, inverse: Array, penalty: Penalty) -> Array:
    """Compute the number of labelled rows that would inform each expert as well as its rows do, ``(K,)``.

    ``n_k r_k`` with ``n_k = Σ_i w_i τ_ik`` and ``r_k``, the mean fraction of the complete-data information on the
    expert's coefficients, shared ones included, that is left when the labels are not known.

    Parameters
    ----------
    mixture : Mixture
    statistics : Statistics
        At ``mixture``.
    inverse : (P, P) array
        Inverse of the observed information.
    penalty : Penalty
        With the shared coefficients.
    """
    C, at = complete_information(mixture, statistics), coefficient_slice(mixture)
    f = (at.stop - at.start) // mixture.K
    kept, known = np.ones(mixture.K), _inverse_of_shared(C, mixture, penalty)
    for k in range(mixture.K if f else 0):
        own = slice(at.start + k * f, at.start + (k + 1) * f)
        marginal, _ = solve_symmetric(inverse[own, own], np.eye(f))
        left = solve_symmetric(C[own, own], marginal)[0] if known is None else known[own, own] @ marginal
        kept[k] = np.trace(left) / f
    return np.asarray(statistics.experts.plain[: mixture.K] * np.clip(kept, 0.0, 1.0))


def coefficients_of_experts(mixture: Mixture, rows: Array, penalty: Penalty) -> Array:
    """Return how many coefficients the rows of each expert determine, ``(K,)``: of a shared one their share of rows."""
    shared = coefficients_per_row(mixture) - own_coefficients(mixture, penalty)
    return np.asarray(own_coefficients(mixture, penalty) + shared * rows / max(float(rows.sum()), 1.0))


def own_coefficients(mixture: Mixture, penalty: Penalty) -> int:
    """Return how many coefficients an expert has that are not shared, of those that one observed number informs."""
    return coefficients_per_row(mixture, len(penalty.shared) if mixture.K > 1 else 0)


def correct_covariance(covariance: Array, estimates: Parameters, rows: Array, p: Array) -> Array:
    """Return the covariance of the reported parameters, corrected for the coefficients that each expert has.

    Maximum likelihood divides the residuals of expert ``k`` by its rows ``n``, not by ``n - p``. Standard errors of its
    coefficients and of its shapes are multiplied by ``√(n / (n - p))``; those of log shapes, which are biased by about
    ``log(n / (n - p))``, are root mean square errors. An expert without an estimated shape has no residual variance to
    correct: one of a family without shapes, or of counts whose dispersion is at its bound (NaN).

    Parameters
    ----------
    covariance : (D, D) array
    estimates : Parameters
    rows : (K,) array
        Effective rows of each expert; the result is NaN for an expert with no more than ``p``.
    p : (K,) array
    """
    s = estimates.log_shapes.shape[1]
    if s == 0:
        return covariance
    shapes = np.arange(len(covariance) - estimates.log_shapes.size, len(covariance))
    estimated = np.asarray(np.isfinite(covariance[shapes, shapes]).reshape(-1, s).any(axis=1))
    inflation = _inflations(rows, p, estimated)
    scale = _of_experts(estimates, np.sqrt(inflation), 1.0)
    found = covariance * np.outer(scale, scale)
    found[shapes, shapes] += np.repeat(np.log(inflation) ** 2, s)
    return found


def _inflations(rows: Array, p: Array, estimated: Mask) -> Array:
    """Return the factors ``n / (n - p)`` of the variances, ``(K,)``; 1 for experts without an estimated shape."""
    rows = np.where(rows > p, rows, np.nan)
    return np.where(estimated, rows / (rows - p), 1.0)


def _pooled_correction(mixture: Mixture, rows: Array, p: Array, penalty: Penalty) -> Array:
    """Return factors ``(P,)`` that give shared coefficients the mean correction of all experts, weighted by rows.

    A shared coefficient has one standard error, whatever expert it is read from; :func:`correct_covariance` corrects it
    in each expert by that of the expert. ``rows`` and ``p``, both ``(K,)``, are in the order of ``mixture``.
    """
    factor, experts = np.ones(mixture.parameter_count), mixture.experts
    s = experts.log_shapes().shape[1]
    if not (penalty.shared and s):
        return factor
    estimated = np.asarray(np.isfinite(experts.log_shapes_jacobian()).all(axis=1).reshape(-1, s).any(axis=1))
    each = _inflations(rows, p, estimated)
    known = np.isfinite(each)
    pooled = float(rows[known] @ each[known]) / max(float(rows[known].sum()), 1.0)
    of_coefficients = np.ones((experts.K, experts.channels, experts.p))
    of_coefficients[:, :, list(penalty.shared)] = np.sqrt(pooled / each)[:, None, None]
    factor[coefficient_slice(mixture)] = of_coefficients.ravel()
    return factor


def _pooled_degrees(degrees: Array, estimates: Parameters, mixture: Mixture, left: float, penalty: Penalty) -> Array:
    """Return the degrees of freedom ``(D,)`` with those that are ``left`` over all experts for shared coefficients."""
    found, first = estimates.like(degrees.copy()), int(mixture.design.intercept)
    columns = [first + mixture.design.read[place - first] for place in penalty.shared]
    found.experts[:, :, columns] = max(left, 1.0)
    return found.flat()


def degrees_of_freedom(estimates: Parameters, rows: Array, p: Array | float) -> Array:
    """Return the residual degrees of freedom of each reported parameter, ``(D,)``; infinite for the gate."""
    return _of_experts(estimates, np.maximum(rows - p, 1.0), np.inf)


def quantile(level: float, degrees: Array) -> Array:
    """Return the half-width of an interval in standard errors, from Student's distribution."""
    upper = 0.5 + level / 2
    finite = np.isfinite(degrees)
    return np.where(finite, stdtrit(np.where(finite, degrees, 1.0), upper), ndtri(upper))


def two_sided(statistic: Array, degrees: Array) -> Array:
    """Return the two-sided P of estimates over their standard errors; NaN stays NaN.

    Examples
    --------
    >>> two_sided(np.array([1.96, -2.0]), np.array([np.inf, 10.0])).round(3)
    array([0.05 , 0.073])
    """
    finite, below = np.isfinite(degrees), -np.abs(statistic)
    return 2 * np.where(finite, stdtr(np.where(finite, degrees, 1.0), below), ndtr(below))


def _of_experts(estimates: Parameters, values: Array, gate: float) -> Array:
    """Return one number per reported parameter: that of its expert, or ``gate``."""
    K = len(values)
    parts = [np.repeat(values, part.size // K) for part in (estimates.experts, estimates.log_shapes)]
    return np.concatenate([np.full(estimates.gate.size, gate), *parts])


# ---------------------------------------------------------------- inference

RIDGE_SHARE = 0.05
"""Maximum fraction of the information of the gate, or of an expert, that may come from the ridge."""
SPREAD_PER_COEFFICIENT = 1.0
"""Minimum of ``Σ_i π_k (1 - π_k)`` per gate coefficient."""
GATE_DECREMENT = 0.01
EXPERT_DECREMENT = 0.1
EFFECTIVE = "effective rows (a row counts less where its expert is unclear)"
EFFECTIVE_ROWS = 5.0
"""Minimum of an expert's effective rows per coefficient, for its intervals."""
ROWS_OF_SHAPES = 100.0
"""Minimum of an expert's effective rows for intervals of its shapes in a mixture.

Their standard errors need fourth moments of the residuals. With fewer rows they are too small if the variance depends
on the covariates, and nothing in the data shows that it does.
"""
TWO_OUTCOMES = (
    "a response of 0 or 1 says little about which expert a row has, and intervals cover less than they say: use groups "
    "of rows, or counts of several trials"
)
"""Reason why a mixture of two-valued responses has no intervals: other maxima of its likelihood are as high."""
SANDWICH_UP_TO = 20_000
"""Number of labels up to which the standard errors of a fit are compared with the sandwich: one more pass."""
BETWEEN_SITES = "between sites"
"""Kind of standard errors of a centre of sites, whose degrees of freedom count sites."""
BY_SITE = "clustered by site"
"""Kind of standard errors for which the rows of a site are one cluster."""
FEWEST_SITES = 20
"""Minimum number of sites for it."""
FEW_CLUSTERS = 10
"""Number of clusters below which standard errors are said to be rough."""

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
        ``"observed"``, ``"sandwich"``, ``"larger"`` (of these two) or ``"bootstrap"``; ``"summed"`` over sites;
        ``"between sites"``; ``"clustered by site"``; ``"private"`` from noisy sums. A file may also
        have ``"simulated"``, from the mixture.
    decrement : float
        Newton decrement at the estimates: an estimate of the log-likelihood still to be gained.
    withheld : mapping of str to str
        Reason for each part without intervals: ``"gate"``, ``"experts"`` with their shapes, ``"expert 1"`` with its
        shapes, or ``"shapes"``.
    degrees : (D,) array or None
        Residual degrees of freedom of each parameter, for the quantiles of intervals; None for normal quantiles.
    between : Between or None
        Heterogeneity between sites, where sites sent fits of their own.
    identified : Parameters or None
        1 for each parameter that is identified and NaN for the others
        (:func:`~consilience.fit.parameters.identification_mask`); None if all are.
    clusters : int
        Number of clusters that the sandwich counts; 0 if it counts rows or groups, or if there is none.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.fit import infer
    >>> from consilience.model import Rows
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
    clusters: int = 0

    def standard_errors(self) -> Parameters:
        """Return standard errors; NaN for withheld parts and for coefficients that are not identified."""
        se = self.estimates.like(self.deviations())
        gate, experts, shapes = se.gate.copy(), se.experts.copy(), se.log_shapes.copy()
        silent = [k for k in range(len(experts)) if not self.shows_expert(k)]
        experts[silent], shapes[silent] = np.nan, np.nan
        if "gate" in self.withheld:
            gate[:] = np.nan
        if "shapes" in self.withheld:
            shapes[:] = np.nan
        return Parameters(gate, experts, shapes)

    def shows_expert(self, k: int) -> bool:
        """Whether the intervals of expert ``k`` are shown."""
        return not {"experts", expert_part(k)} & set(self.withheld)

    def reason(self, k: int) -> str:
        """Return the reason why the intervals of expert ``k`` are withheld; empty if they are shown."""
        return self.withheld.get("experts", self.withheld.get(expert_part(k), ""))

    def deviations(self) -> Array:
        """Return the standard deviation of each estimate, ``(D,)``, also of parts whose intervals are withheld."""
        known = 1.0 if self.identified is None else self.identified.flat()
        return np.asarray(known * np.sqrt(np.maximum(np.diagonal(self.covariance), 0.0)))

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


def expert_part(k: int) -> str:
    """Return the name of expert ``k`` among the parts whose intervals may be withheld."""
    return f"expert {k}"


def part_in_words(part: str) -> str:
    """Return what people read for such a part: its name counts experts as arrays do, and people count from 1."""
    name, _, k = part.partition(" ")
    return f"{name} {int(k) + 1}" if k else name


def infer(fit: Fit, rows: Rows | None = None, *, kind: str = "observed") -> Inference:
    """Compute standard errors from the observed information, or the sandwich ``(J + R)⁻¹ (Σ w s sᵀ) (J + R)⁻¹``.

    Both are corrected for the residual degrees of freedom of each expert
    (:func:`~consilience.fit.inference.correct_covariance`), the sandwich also for the leverage of single rows (HC3,
    :func:`~consilience.model.expectation.score_products`), and intervals take the quantiles of Student's distribution.
    With G clusters of rows, scores are summed within clusters instead, the products are multiplied by ``G / (G - 1)``,
    and intervals have at most ``G - 1`` degrees of freedom.

    Parameters
    ----------
    fit : Fit
    rows : Rows or None
        The rows of the fit; used for the sandwich, unless the fit has its products of scores, and if the fit ended
        without the information.
    kind : {"observed", "sandwich", "larger", "clustered by site"}
        ``"larger"`` takes for each parameter (for the intercept at the mean of the covariates) the larger of the two
        standard errors: the observed information is exact for few rows but wrong if the variance depends on the
        covariates, and the sandwich the other way round. ``"clustered by site"`` is the sandwich whose clusters are
        the sites, from 20 sites on.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.fit import infer
    >>> from consilience.model import Rows
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
    rowless = kind in ("observed", BY_SITE) or fit.meat is not None
    if rows is None and (not rowless or (statistics.information is None and is_informable(mixture))):
        raise InvalidInputError(f"kind={kind!r} standard errors of this fit need its rows: pass them")
    if not is_informable(mixture):
        reason = f"{mixture.parameter_count} parameters: too many for the full information"
        return withhold_inference(estimates, kind, reason)
    if statistics.information is None and rows is not None:
        with one_blas_thread():
            statistics = expect(mixture, rows, information=True)
    if statistics.information is not None and is_at_bound(mixture, fit.penalty):
        statistics = replace(statistics, information=_with_held_shapes(mixture, statistics.information, fit.penalty))
    step = newton_step(mixture, statistics, fit.penalty)
    inverse = inverse_information(mixture, statistics, fit.penalty)
    if step is None or inverse is None:
        reason = "the information is not positive definite: the likelihood is flat in some direction"
        return withhold_inference(estimates, kind, reason)
    n = effective_rows_of_experts(mixture, statistics, inverse, fit.penalty)
    p, own = coefficients_of_experts(mixture, n, fit.penalty), own_coefficients(mixture, fit.penalty)
    factor = _pooled_correction(mixture, n, p, fit.penalty)
    n, p = n[fit.permutation], p[fit.permutation]
    labels = statistics.gate.plain[: mixture.K][fit.permutation]
    withheld = withholding_reasons(fit, inverse, step.decrement) | crowding_reasons(mixture, n, labels, own)
    if mixture.K > 1 and fit.two_outcomes and not _has_groups(statistics, mixture.K):
        withheld = dict.fromkeys(("gate", "experts"), TWO_OUTCOMES)
    meat = None if kind == "observed" else products_of_scores(fit, statistics, rows, kind)
    clusters = 0 if meat is None else int(meat.clusters)
    if clusters == 1:
        withheld = dict.fromkeys(("gate", "experts"), "all rows are in one cluster, which says nothing about another")
    few = clusters / (clusters - 1) if clusters > 1 else 1.0
    sandwich = None if meat is None else few * (inverse @ meat.products @ inverse)
    pooled = np.outer(factor, factor)
    covariance = _reported(fit, pooled * inverse, None if sandwich is None else pooled * sandwich, kind)
    known = identification_mask(mixture)
    if "experts" in withheld:  # the correction may not exist, and is not shown
        return Inference(estimates, covariance, kind, step.decrement, withheld, identified=known, clusters=clusters)
    shown, degrees = correct_covariance(covariance, estimates, n, p), degrees_of_freedom(estimates, n, p)
    degrees = _pooled_degrees(degrees, estimates, mixture, float(np.sum(n - p)), fit.penalty)
    degrees = np.minimum(degrees, clusters - 1) if clusters else degrees
    return Inference(estimates, shown, kind, step.decrement, withheld, degrees, identified=known, clusters=clusters)


def _has_groups(statistics: Statistics, K: int) -> bool:
    """Whether several rows share a label."""
    return bool(statistics.gate.plain[:K].sum() < (1 - 1e-9) * statistics.experts.plain[:K].sum())


def _with_held_shapes(mixture: Mixture, information: Array, penalty: Penalty) -> Array:
    """Return the information as if the shapes at a bound were known, so that those of other experts are estimable."""
    first, held = coefficient_slice(mixture).stop, information.copy()
    s = mixture.experts.shape_parameters // (1 if mixture.experts.ties_shapes else mixture.K)
    for k in range(1 if mixture.experts.ties_shapes else mixture.K):
        if is_at_bound(mixture, penalty, k):
            own = slice(first + k * s, first + (k + 1) * s)
            held[own, :] = held[:, own] = 0.0
            held[own, own] = np.diag(np.maximum(np.diagonal(information[own, own]), 1.0))
    return held


def products_of_scores(fit: Fit, statistics: Statistics, rows: Rows | None, kind: str) -> Meat:
    """Return the meat of the sandwich: from rows, from the sums that sites sent, or from the scores of sites."""
    if kind != BY_SITE:
        found = fit.meat if rows is None else score_products(fit.ascent.mixture, rows, statistics.experts.second)
        assert found is not None  # noqa: S101 - for the type checker: the caller has looked
        return found
    S = np.array(list((fit.site_scores or {}).values()))
    if len(S) < FEWEST_SITES:
        raise InvalidInputError(
            f"kind={kind!r}: the scores of {len(S)} sites are known, and at least {FEWEST_SITES} are needed; fit at "
            "least as many sites with FederatedEM() or use kind='larger'"
        )
    return Meat(S.T @ S, statistics.weight, float(len(S)))


def infer_after_fit(fit: Fit, rows: Rows, labels: float) -> Inference:
    """Compute the standard errors that a fit on one machine ends with, unless they would take far longer than the fit.

    The information of P parameters takes n P² operations for n rows, where no shorter products are known
    (:func:`~consilience.model.expectation.has_short_scores`): a Gaussian mixture with 8 components and 20 columns has
    1,847 parameters.
    """
    mixture, kind = fit.ascent.mixture, default_kind(labels, clustered=rows.clusters is not None)
    work = labels * mixture.parameter_count**2
    known = fit.ascent.statistics.information is not None or has_short_scores(mixture)
    if work <= MOST_OPERATIONS or known or not is_informable(mixture):
        return infer(fit, rows, kind=kind)
    size = f"{mixture.parameter_count} parameters takes {work:.0e} operations on {labels:,.10g} rows"
    return withhold_inference(parameters(fit.mixture), kind, f"the information of {size}: infer() computes it")


def withhold_needless(inference: Inference, one: float | None, own: float) -> Inference:
    """Return the inference without intervals if one expert has a BIC ``one`` that is not above that of the mixture.

    The labels may then follow the noise, and intervals that take them for real do not cover.
    """
    if one is None or own < one:
        return inference
    K = len(inference.estimates.experts)
    reason = f"one expert describes the rows as well as {K} (BIC {one:,.1f}, against {own:,.1f}; less is better)"
    return replace(inference, withheld=dict.fromkeys(("gate", "experts"), reason))


def default_kind(labels: float, *, clustered: bool = False) -> str:
    """Return the kind of standard errors of a fit to this number of labels, on one machine or over sites."""
    return "larger" if clustered or labels <= SANDWICH_UP_TO else "observed"


def _reported(fit: Fit, inverse: Array, sandwich: Array | None, kind: str) -> Array:
    """Return the covariance ``(D, D)`` of the reported parameters from those ``(P, P)`` of the ascent."""
    mixture = fit.ascent.mixture
    if kind != "larger" or sandwich is None:
        D = jacobian(mixture, fit.permutation)
        return symmetrise(D @ (inverse if sandwich is None else sandwich) @ D.T)
    # in centred coordinates: an intercept far from the rows is a combination of parameters that must cancel
    D = coded_jacobian(mixture, fit.permutation)
    D = to_raw(mixture, widening(D, inverse, sandwich)[:, None] * D)
    return symmetrise(D @ inverse @ D.T)


def widening(D: Array, one: Array, other: Array) -> Array:
    """Return factors ``(D,)`` of the standard errors of ``D θ``: the larger by two covariances, over the first."""
    a, b = (np.sum((D @ covariance) * D, axis=1) for covariance in (one, other))
    return np.asarray(np.sqrt(np.maximum(a, b) / np.where(a > 0, a, 1.0)))


def crowding_reasons(mixture: Mixture, rows: Array, labels: Array, p: int) -> dict[str, str]:
    """Return the reasons why intervals of experts with too few effective rows ``(K,)`` per coefficient are withheld.

    The labels of such an expert follow the noise, and no correction of the standard errors helps. If rows share labels,
    half as many ``labels (K,)`` are needed. A single expert has no labels, and the correction is exact.
    """
    several, found = mixture.K > 1, {}
    needed = EFFECTIVE_ROWS * p if several else p + 1.0
    for k in range(mixture.K):
        if rows[k] < needed:
            have = f"{rows[k]:.0f} {EFFECTIVE} for {p} coefficients, at least {needed:.0f} are needed"
        elif several and labels[k] < needed / 2:
            have = f"{labels[k]:.0f} groups for {p} coefficients, at least {needed / 2:.0f} are needed"
        else:
            continue
        found[expert_part(k)] = f"{have}: use fewer experts or covariates"
    needed = max(EFFECTIVE_ROWS * p, ROWS_OF_SHAPES if several else 0.0)
    if mixture.experts.shapes and rows.min() < needed:
        have = f"{rows.min():.0f} {EFFECTIVE} for the {p} coefficients of an expert"
        found["shapes"] = f"{have}, at least {needed:.0f} are needed"
    return found


def infer_coefficients(fit: Fit, covariance: Array, kind: str, withheld: Mapping[str, str]) -> Inference:
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
    shown = symmetrise(D @ of_all @ D.T)
    unknown = np.r_[0 : estimates.gate.size, estimates.gate.size + estimates.experts.size : len(shown)]
    shown[unknown], shown[:, unknown] = np.nan, np.nan
    return Inference(estimates, shown, kind, np.nan, withheld, identified=identification_mask(mixture))


def withhold_inference(estimates: Parameters, kind: str, reason: str) -> Inference:
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
    >>> import numpy as np
    >>> from consilience.fit import InferredFit
    >>> from consilience.model import Rows
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
        return cls(**vars(fit), inference=withhold_inference(parameters(fit.mixture), kind, reason))


def inference_from_fit(fit: Fit) -> Inference:
    """Return the standard errors that a fit brings along, else those from the sums of its last pass."""
    if isinstance(fit, InferredFit):
        return fit.inference
    return infer(fit, kind="observed" if fit.meat is None else "larger")


def inverse_information(mixture: Mixture, statistics: Statistics, penalty: Penalty) -> Array | None:
    """Compute ``(J + R)⁻¹ (P, P)``, or None if ``J + R`` is not positive definite.

    With shared coefficients it is the covariance of all parameters if the free ones have ``(J + R)⁻¹``.
    """
    if statistics.information is None:
        return None
    J = statistics.information + ridge(mixture, penalty)
    if penalty.shared:
        return _inverse_of_shared(J, mixture, penalty)
    L = cholesky_or_none(J)
    return None if L is None else cholesky_solve(L, np.eye(len(L)))


def _inverse_of_shared(J: Array, mixture: Mixture, penalty: Penalty) -> Array | None:
    """Compute ``T (Tᵀ J T)⁻¹ Tᵀ (P, P)`` of the map ``T`` from free parameters to all; None if it does not exist."""
    if not penalty.shared:
        return None
    T, L = free_map(mixture, penalty), cholesky_or_none(share_curvature(J, mixture, penalty))
    return None if L is None else np.asarray(T @ cholesky_solve(L, T.T))


def coefficient_covariances(mixture: Mixture, statistics: Statistics, penalty: Penalty) -> Array:
    """Compute the covariance of the coefficients of each expert, ``(K, f, f)``.

    It is that of known labels if the information is not known, or not positive definite.
    """
    at, inverse = coefficient_slice(mixture), inverse_information(mixture, statistics, penalty)
    f = (at.stop - at.start) // mixture.K
    if inverse is None:
        complete = mixture.experts.complete(statistics.experts)[:, :f, :f]
        return np.array([inverse_bounded(own)[0] for own in complete])
    blocks = inverse[at, at].reshape(mixture.K, f, mixture.K, f)
    return np.asarray(np.einsum("kfkg->kfg", blocks))


def withholding_reasons(fit: Fit, inverse: Array, decrement: float) -> dict[str, str]:
    """Return the reason why the intervals of each part are withheld; empty if none is."""
    mixture, penalty, found = fit.ascent.mixture, fit.penalty, {}
    bounded = is_at_bound(mixture, penalty)
    for place, k in enumerate(fit.permutation):
        share = expert_ridge_share(mixture, penalty, inverse, int(k))
        if bounded and is_at_bound(mixture, penalty, int(k)):
            name = mixture.experts.shape_name
            found[expert_part(place)] = f"its {name} is at its bound: it may fit a few rows exactly"
        elif share > RIDGE_SHARE:
            found[expert_part(place)] = f"its coefficients are shrunk towards 0: {_from_penalty(share)}"
    late = f"the fit has not converged: another step would raise the log-likelihood by about {decrement:.2g}, at most "
    settled = bounded and fit.ascent.stop.converged  # the score of a shape at its bound is not 0
    if decrement >= EXPERT_DECREMENT and not settled:
        found["experts"] = f"{late}{EXPERT_DECREMENT}"
    if mixture.gate.reads_covariates and mixture.K > 1:
        share = ridge_share(mixture, penalty, inverse)
        if decrement >= GATE_DECREMENT and not settled:
            found["gate"] = f"{late}{GATE_DECREMENT}"
        elif share > RIDGE_SHARE:
            found["gate"] = (
                f"the gate is nearly separated, its probabilities are close to 0 or 1: {_from_penalty(share)}"
            )
        elif (spread := gate_spread(mixture, fit.ascent.statistics)) < SPREAD_PER_COEFFICIENT * mixture.reads.p:
            needed = f"at least {SPREAD_PER_COEFFICIENT * mixture.reads.p:.0f} are needed"
            found["gate"] = (
                f"too few rows may be of one expert or another: p(1-p) of the gate sums to {spread:.1f}, {needed}"
            )
    return found


def _from_penalty(share: float) -> str:
    return (
        f"{100 * min(share, 1.0):.0f} % of what is known of a coefficient is the penalty and not the data, at most "
        f"{100 * RIDGE_SHARE:.0f} % may be"
    )


def gate_spread(mixture: Mixture, statistics: Statistics) -> float:
    """Compute ``min_k Σ_i w_i π_k (1 - π_k)``."""
    return float(statistics.gate.plain[mixture.K :].min())


def ridge_share(mixture: Mixture, penalty: Penalty, inverse: Array) -> float:
    """Compute ``λ_max(R (J + R)⁻¹)`` over the gate: the largest fraction of information due to the ridge."""
    return _largest_share(gate_slice(mixture), ridge(mixture, penalty), inverse)


def expert_ridge_share(mixture: Mixture, penalty: Penalty, inverse: Array, k: int) -> float:
    """Compute ``λ_max(R (J + R)⁻¹)`` over the coefficients of expert ``k``."""
    if penalty.expert_ridge == 0:
        return 0.0
    at = coefficient_slice(mixture)
    f = (at.stop - at.start) // mixture.K
    return _largest_share(slice(at.start + k * f, at.start + (k + 1) * f), ridge(mixture, penalty), inverse)


def _largest_share(part: slice, R: Array, inverse: Array) -> float:
    values, vectors = np.linalg.eigh(R[part, part])
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return float(np.linalg.eigvalsh(root.T @ inverse[part, part] @ root).max(initial=0.0))


# ---------------------------------------------------------------- between


def widen_inference(
    inference: Inference, I2: Parameters, tau2: Parameters, variance: Parameters, df: Parameters
) -> Inference:
    """Return standard errors that include the variance between sites, with I² and τ² of each parameter.

    ``variance`` is what differences between sites add to that of each estimate, zero where they are not significant,
    estimated with ``df`` degrees of freedom. Those of the sum are Satterthwaite's,
    ``(v + u)² / (v² / ν + u² / df)`` for a sampling variance ``v`` with ``ν`` degrees of freedom.
    """
    v, u = np.diagonal(inference.covariance), np.nan_to_num(variance.flat())
    nu, few = inference.degrees_of_freedom().flat(), np.maximum(np.nan_to_num(df.flat()), 1.0)
    slack = np.nan_to_num(v) ** 2 / nu + u**2 / few
    total = np.nan_to_num(v) + u
    degrees = np.where(u > 0, total**2 / np.where(slack > 0, slack, 1.0), nu)
    covariance: Array = inference.covariance + np.diag(u)
    return replace(inference, covariance=covariance, degrees=degrees, between=Between(I2, tau2))


# ---------------------------------------------------------------- bootstrap

DOUBTFUL_SHARE = 0.05
"""Largest share of refits with unclear labels or an expert at its bound, for which standard errors are shown."""


def simulate(mixture: Mixture, rows: Rows, rng: np.random.Generator) -> Rows:
    """Draw responses from ``mixture`` for the covariates, exposures and groups of ``rows``."""
    labels = None if rows.groups is None else _group_labels(mixture, rows, rng)[rows.groups.codes]
    Y, _ = mixture.sample(rows.X, rng, labels, rows.exposure)
    return Rows(rows.X, Y, rows.weight, rows.exposure, rows.groups, rows.clusters)


def _group_labels(mixture: Mixture, rows: Rows, rng: np.random.Generator) -> IntArray:
    pi = np.concatenate([np.broadcast_to(at.pi, at.tau.shape).T for _, at in mixture.posteriors(rows)])  # (G, K)
    below = np.cumsum(pi, axis=1) < rng.random((len(pi), 1))
    return np.asarray(np.minimum(below.sum(axis=1), mixture.K - 1))


def bootstrap(
    fit: Fit, rows: Rows, specification: Specification, *, rng: np.random.Generator, draws: int = 50
) -> Inference:
    """Estimate the covariance of the estimates from ``draws`` data sets simulated from the fit.

    Each refit starts at the estimates. Its experts are matched to those of the fit by their responsibilities on
    ``rows``. Standard errors are withheld where :func:`infer` withholds them, and if more than 5 % of the refits have
    experts that cannot be matched clearly or a shape at its bound.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.fit import bootstrap
    >>> from consilience.model import Rows
    >>> from consilience.fit import Specification, fit_mixture
    >>> rng = np.random.default_rng(0)
    >>> rows = Rows(np.empty((400, 0)), rng.normal(size=(400, 1)))
    >>> one = Specification(K=1, gate="constant")
    >>> fit = fit_mixture(rows, one, rng=rng)
    >>> se = bootstrap(fit, rows, one, rng=rng).standard_errors().experts
    >>> bool(0.03 < se[0, 0, 0] < 0.07)  # 1 / sqrt(400) = 0.05
    True
    """
    check_unweighted(rows)
    reference = fit.mixture.responsibilities(rows)
    drawn, unclear, at_bound = [], 0, 0
    for _ in range(draws):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateFitWarning)  # counted below
            again = fit_mixture(simulate(fit.mixture, rows, rng), specification, rng=rng, start=fit.mixture)
        matched = matching(again.mixture, reference, rows)
        drawn.append(parameters(again.mixture.permuted(matched.permutation)).flat())
        unclear += not matched.clear
        at_bound += is_at_bound(again.ascent.mixture, again.penalty)
    withheld = _withheld(fit, rows)
    if max(unclear, at_bound) > DOUBTFUL_SHARE * draws:
        reason = (
            f"of {draws} refits, {unclear} have experts without a clear match and {at_bound} an expert at its bound"
        )
        withheld |= dict.fromkeys(("gate", "experts"), reason)
    covariance = np.atleast_2d(np.cov(np.array(drawn).T))
    known = identification_mask(fit.ascent.mixture)
    return Inference(parameters(fit.mixture), covariance, "bootstrap", np.nan, withheld, identified=known)


def check_unweighted(rows: Rows) -> None:
    """Raise an error if rows have weights: data cannot be simulated for a part of a row."""
    if rows.weight is not None and not np.all(rows.weight == 1.0):
        raise InvalidInputError("the parametric bootstrap takes no weights: repeat rows instead of weighting them")


def _withheld(fit: Fit, rows: Rows) -> dict[str, str]:
    """Return the reasons for which :func:`infer` withholds; none if there are too many parameters to ask it."""
    return dict(infer(fit, rows).withheld) if is_informable(fit.ascent.mixture) else {}


# ---------------------------------------------------------------- expert means

LARGEST_ROUNDING = 0.01
"""Maximum rounding error of a variance, as a fraction of it: beyond, the standard error is NaN."""


def expert_means(mixture: Mixture, X: Array) -> Array:
    """Compute the mean response or class probabilities of each expert, ``E[y | x_i, k]``, ``(n, K, m)``."""
    return np.concatenate([mixture.experts.mean(panel).transpose(2, 0, 1) for panel, _ in mixture.panels(X)])


def mean_errors(mixture: Mixture, inference: Inference, X: Array) -> Array:
    """Compute the standard errors of :func:`expert_means`, ``(n, K, m)``; NaN where those of the experts are withheld.

    A mean response ``μ(η)`` of linear predictors ``η = B x̃`` has the variance ``μ'(η) Cov(B x̃) μ'(η)ᵀ``; that of counts
    with zeros of another kind also depends on their share.

    Parameters
    ----------
    mixture : Mixture
        In the coordinates of the reported coefficients, as ``Fit.mixture``.
    inference : Inference
    X : (n, d) array
    """
    parts = []
    for panel, _ in mixture.panels(X):
        slopes = mixture.experts.mean_slopes(panel)  # (K, m, c, n)
        variance = np.einsum("kmcn,kcdn,kmdn->nkm", slopes, predictor_covariance(inference, panel), slopes)
        variance += _variance_of_shapes(inference, panel, slopes, mixture.experts.mean_shape_slopes(panel))
        parts.append(np.sqrt(np.maximum(variance, 0.0)))
    return np.concatenate(parts)


def _variance_of_shapes(inference: Inference, panel: Array, slopes: Array, of_shapes: Array) -> Array:
    """Compute what shapes add to the variance of mean responses that depend on them, ``(n, K, m)``.

    ``slopes (K, m, c, n)`` and ``of_shapes (K, m, s, n)`` are derivatives of the means. Shapes at a bound add nothing.
    """
    K, c, p = inference.estimates.experts.shape
    s, (of_gate, of_experts) = of_shapes.shape[2], (inference.estimates.gate.size, inference.estimates.experts.size)
    found = np.zeros((panel.shape[1], K, slopes.shape[1]))
    if not of_shapes.any():
        return found
    V = np.where(np.isfinite(inference.covariance), inference.covariance, 0.0)
    for k in range(K):
        own, shapes = of_gate + k * c * p + np.arange(c * p), of_gate + of_experts + k * s + np.arange(s)
        both = V[np.ix_(own, shapes)].reshape(c, p, s)
        found[:, k] = 2 * np.einsum("mcn,cps,pn,msn->nm", slopes[k], both, panel, of_shapes[k], optimize=True)
        found[:, k] += np.einsum("msn,st,mtn->nm", of_shapes[k], V[np.ix_(shapes, shapes)], of_shapes[k], optimize=True)
    return found


def predictor_covariance(inference: Inference, panel: Array) -> Array:
    """Compute the covariance of each expert's linear predictors at a panel ``(p, n)``, ``(K, c, c, n)``.

    It is NaN where the intervals of the experts are withheld, and where rounding makes up more than 1 % of a variance:
    far from the origin, in standard deviations of the covariates, large terms cancel.
    """
    K, c, p = inference.estimates.experts.shape
    first = inference.estimates.gate.size
    own = [slice(first + k * c * p, first + (k + 1) * c * p) for k in range(K)]
    blocks = np.array([inference.covariance[at, at] for at in own]).reshape(K, c, p, c, p)
    covariance: Array = np.einsum("pn,kcpdq,qn->kcdn", panel, blocks, panel, optimize=True)
    size = np.einsum("pn,kcpcq,qn->kcn", np.abs(panel), np.abs(blocks), np.abs(panel), optimize=True)
    variance = np.einsum("kccn->kcn", covariance)
    lost = (np.finfo(float).eps * size > LARGEST_ROUNDING * variance) & (size > 0)
    lost[[k for k in range(K) if not inference.shows_expert(k)]] = True
    return np.where((lost[:, :, None] | lost[:, None]), np.nan, covariance)
