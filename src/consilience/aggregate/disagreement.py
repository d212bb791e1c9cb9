r"""Find out which sites disagree with the others, and whether sites form two camps.

Sites are compared by the likelihoods of their models on each other's rows. For sites :math:`a, b` with models
:math:`p_a, p_b` fitted to their own rows, the sum of what each loses if it takes the other's model estimates Jeffreys'
divergence per row:

.. math::
    J_{ab} = \ell_a(p_a) - \ell_a(p_b) + \ell_b(p_b) - \ell_b(p_a) - P (1 / n_a + 1 / n_b)

with :math:`\ell_a` the log-likelihood per row of the rows of :math:`a`; the last term is its expectation for equal
sites. A poor local maximum at one site cancels. The divergence also counts how a model continues outside the
covariates of its site, so it decides only *who* is wrong; *that* something is wrong is seen from the joint mixture,
which must explain the rows of each site about as well as the site's own model does. A site is wrong only if the models
of the majority do not fit its rows either: one that lacks a level of a category, or part of the range of a covariate,
has a model that is far from the others' where it has no rows.

Camps are two groups of estimates with a gap between them, of which neither is the outlier. A centre between two camps
represents none of them, and no rule can tell which camp is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from consilience.numerics.arrays import Array, Mask

LOSS = 0.03
"""Loss per row under the joint mixture, beyond sampling error, from which a site is not explained."""
NEAR, FAR = 0.1, 5.0
"""Divergence per row up to which sites agree, and multiple of the usual divergence above which a site is far."""
SIGMAS = 4.0
"""Tolerance for sampling error, in standard deviations."""
ROWS_PER_PARAMETER = 5.0
"""Least number of rows per parameter of a site's model for the site to be judged."""
ALONE = 0.9
"""Fraction of a component's rows from one site from which it is that site's own."""
MOSTLY = 0.5
"""Fraction of a site's rows in components of its own from which the site is suspect."""
MINORITY = 0.5
"""Fraction of all rows from which a site may well have components of its own."""
GROUPED, GROUPS_APART = 6, 6.0
"""Least number of sites of which some may be a group, and its least distance from the others in units of the scatter
within both; of ten sites that scatter normally, one time in 200 some are this far."""
UNLIKELY = 0.25
"""Log-likelihood per row below that of the median site from which a site is unlikely, if it also stands out."""


@dataclass(frozen=True, eq=False)
class CrossLikelihood:
    """Log-likelihoods per row of the models of sites on each other's rows.

    Parameters
    ----------
    sites : tuple of str
    values : (M, M) array
        Entry ``[a, b]``: of the rows of site ``b`` under the model of site ``a``.
    rows : (M,) array
        Number of rows to which each model was fitted.
    parameters : int
    """

    sites: tuple[str, ...]
    values: Array
    rows: Array
    parameters: int

    def divergence(self) -> Array:
        """Compute the corrected divergence of all pairs of sites, ``(M, M)``."""
        own = np.diagonal(self.values)
        J = own[:, None] + own - self.values - self.values.T
        J = J - self.parameters * (1 / self.rows[:, None] + 1 / self.rows)
        np.fill_diagonal(J, 0.0)
        return np.asarray(J)

    def misfit(self) -> Array:
        """Compute what the rows of site ``b`` lose per row under the model of site ``a``, corrected, ``(M, M)``."""
        lost = np.diagonal(self.values) - self.values - self.parameters * (1 / self.rows[:, None] + 1 / self.rows) / 2
        np.fill_diagonal(lost, 0.0)
        return np.asarray(lost)

    def tolerance(self) -> Array:
        """Compute the divergence of pairs of sites that sampling error may cause, ``(M, M)``."""
        error = SIGMAS * np.sqrt(2 * self.parameters)
        return np.asarray(error * (1 / self.rows[:, None] + 1 / self.rows))

    def losses(self, joint: Array, shared: Array | int | None = None) -> Array:
        """Compute what each site loses per row under a joint mixture, beyond the optimism of its own fit, ``(M,)``.

        ``shared`` is the number of parameters of the joint mixture that were not fitted to the site's rows, all by
        default.
        """
        shared = self.parameters if shared is None else shared
        return np.asarray(np.diagonal(self.values) - joint - shared / (2 * self.rows))

    def taken(self, kept: Mask) -> CrossLikelihood:
        """Return the sites ``kept``."""
        sites = tuple(site for site, keep in zip(self.sites, kept, strict=True) if keep)
        return CrossLikelihood(sites, self.values[np.ix_(kept, kept)], self.rows[kept], self.parameters)


@dataclass(frozen=True)
class SiteAgreement:
    """Sites that disagree with a majority and what the joint mixture costs them, or that there is no majority.

    Parameters
    ----------
    named : mapping of str to float
        Loss per row of each site that the majority does not explain.
    undecided : bool
        Whether sites disagree without a majority.
    unexplained : mapping of str to float
        Loss per row of every site that the joint mixture does not explain.
    outside : tuple of str
        Sites far from a majority: one of them may have taken an expert of the joint mixture for itself.
    harmed : bool
        Whether the joint mixture does not explain a site of the majority.
    """

    named: Mapping[str, float]
    undecided: bool
    unexplained: Mapping[str, float]
    outside: tuple[str, ...] = ()
    harmed: bool = False


def is_chance(gain: float, usual: Array, rows: float) -> bool:
    """Whether a site's own values of common parameters gain no more log-likelihood per row than chance, nearly.

    Parameters
    ----------
    gain : float
        Of the site's own model over one in which these parameters are common.
    usual : (P,) array
        Expected value of twice the gain of all rows by chance, for each of these parameters: 1 if the common one is
        exact.
    rows : float
    """
    return bool(gain - usual.sum() / (2 * rows) <= LOSS + SIGMAS * np.sqrt(usual @ usual / 2) / rows)


def judge_agreement(cross: CrossLikelihood, joint: Array, shared: Array | None = None) -> SiteAgreement:
    """Judge the sites, given the log-likelihood per row of each under the joint mixture, ``joint (M,)``.

    A site far from the majority is named if the joint mixture does not explain it.

    Parameters
    ----------
    cross : CrossLikelihood
    joint : (M,) array
    shared : (M,) array or None
        Number of parameters of the joint mixture that were not fitted to the rows of each site, all by default; fewer
        for a site that is judged at a gate of its own.
    """
    shared = np.full(len(joint), cross.parameters) if shared is None else shared
    enough = cross.rows >= ROWS_PER_PARAMETER * cross.parameters
    cross, joint, shared = cross.taken(enough), joint[enough], shared[enough]
    M = len(cross.sites)
    loss = cross.losses(joint, shared)
    allowed = LOSS + SIGMAS * np.sqrt(shared / 2) / cross.rows
    lost = loss > allowed
    unexplained = {cross.sites[m]: round(float(loss[m]), 3) for m in np.flatnonzero(lost)}
    if M < 2 or not unexplained:
        return SiteAgreement({}, False, {})
    agree = majority(cross)
    if agree is None:
        return SiteAgreement({}, True, unexplained)
    J, slack = cross.divergence(), cross.tolerance()
    inside = J[np.ix_(agree, agree)][np.triu_indices(int(agree.sum()), 1)]
    usual = max(NEAR, FAR * float(np.median(inside)))
    far = np.array([np.median((J - slack)[m, agree]) > usual for m in range(len(J))])
    misfit = np.median((cross.misfit() - slack / 2)[agree], axis=0)  # a model may be far off only where it has no rows
    far = ~agree & far & (misfit > NEAR / 2)
    named = {cross.sites[m]: round(float(loss[m]), 3) for m in np.flatnonzero(far & lost)}
    outside = tuple(cross.sites[m] for m in np.flatnonzero(far))
    return SiteAgreement(named, False, unexplained, outside, bool(np.any(lost & agree)))


def majority(cross: CrossLikelihood) -> Mask | None:
    """Return the sites of a majority that agree with one another, ``(M,)``; None if there is none.

    The site nearest to more than half of all sites, itself included, is the centre of the majority.
    """
    J, slack = cross.divergence(), cross.tolerance()
    M = len(J)
    others = np.sort(np.where(np.eye(M, dtype=bool), -np.inf, J - slack), axis=1)
    radius = others[:, M // 2]  # M // 2 others and the site itself are more than half
    centre = int(np.argmin(radius))
    if M < 3 or radius[centre] > NEAR:
        return None
    agree: Mask = (J - slack)[centre] <= NEAR
    agree[centre] = True
    return agree


def own_components(sites: Sequence[str], mass: Array) -> dict[str, tuple[float, int]]:
    """Return the sites whose rows form components of their own: the fraction of their rows in them, and how many.

    Parameters
    ----------
    sites : sequence of str, (M,)
    mass : (M, K) array
        Number of labels of each component at each site.
    """
    total, rows = mass.sum(axis=0), mass.sum(axis=1)
    own = (mass >= ALONE * total) & (total > 0)
    share = np.sum(np.where(own, mass, 0.0), axis=1) / np.maximum(rows, 1.0)
    minority = rows < MINORITY * rows.sum()
    found = minority & (share > MOSTLY)
    return {site: (round(float(share[m]), 3), int(own[m].sum())) for m, site in enumerate(sites) if found[m]}


def unlikely_sites(per_row: Mapping[str, float]) -> dict[str, float]:
    """Return the sites whose rows a joint mixture explains far worse than those of most others, and by how much.

    It needs one number of each site, and no model of its own: a weaker test than :func:`judge_agreement`, for methods
    that ask for sums only. A site is far from the median in units of the scatter of all sites; or, among six sites and
    more, in a group of fewer than half of them that is far from the others in units of the scatter within both groups.

    Parameters
    ----------
    per_row : mapping of str to float
        Log-likelihood per row of each site under the joint mixture.
    """
    if len(per_row) < 3:
        return {}
    values = np.array(list(per_row.values()))
    median = float(np.median(values))
    scatter = float(np.median(np.abs(values - median))) / 0.6745  # that of a normal sample
    least = max(median - max(UNLIKELY, FAR * scatter), _lower_group(values))
    return {site: round(median - value, 3) for site, value in per_row.items() if value < least}


def _lower_group(values: Array) -> float:
    """Return a bound between a group below the others, fewer than half of them, and the rest; -inf if there is none."""
    ordered, M = np.sort(values), len(values)
    sizes = np.arange(1, (M - 1) // 2 + 1)
    gaps = ordered[sizes] - ordered[sizes - 1]
    size = int(sizes[gaps.argmax()])
    lower, upper = ordered[:size], ordered[size:]
    within = np.sqrt((lower.var() * size + upper.var() * (M - size)) / (M - 2))
    apart = upper.mean() - lower.mean()
    return float(upper[0]) if M >= GROUPED and apart > max(UNLIKELY, GROUPS_APART * within) else -np.inf


# ---------------------------------------------------------------- camps

SMALLER = 0.35
"""Minimum fraction of the sites in the smaller camp; fewer are outliers, which robust centres exclude."""
LEVEL, LEVEL_OF_SPREAD = 0.05, 0.01
"""P-values of the two tests below which sites form camps."""
DRAWS = 299
"""Number of simulations under the hypothesis of one group."""
UNSURE = 10.0
"""Multiple of the median variance above which a site is ignored."""
BY_PAIRS = 100
"""Number of sites up to which directions are found from the products of all pairs of sites."""
AT_ONCE = 2**22
"""Maximum size of an array of simulated estimates."""


@dataclass(frozen=True, eq=False)
class Camps:
    """Result of the test for two camps.

    Parameters
    ----------
    gap : float
        P-value of the gap between two groups along the direction in which sites differ most, if sites differ along it
        by a normal distribution of any variance.
    spread : float
        P-value of two groups against one with equal variance in all directions.
    members : (M,) array of bool
        Sites in the smaller camp of the best division.
    counted : (M,) array of bool
        Sites that took part in the test.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import Camps
    >>> Camps(0.01, 0.001, np.array([True, False]), np.array([True, True])).found
    True
    """

    gap: float
    spread: float
    members: Mask
    counted: Mask

    @property
    def found(self) -> bool:
        """Whether the sites form two camps."""
        return self.gap <= LEVEL and self.spread <= LEVEL_OF_SPREAD

    @property
    def text(self) -> str:
        """Return the finding as a sentence for the result."""
        return (
            f"the sites form two camps, {self.members.sum()} against {int(np.sum(self.counted & ~self.members))}: "
            "the data cannot tell which is right, and a centre between them represents neither"
        )


def camps(estimates: Sequence[Array], covariances: Sequence[Array], *, seed: int = 0) -> Camps:
    """Test whether the estimates of sites form two camps.

    Estimates of all experts are whitened by the median of their covariances and joined to one vector per site. Sites
    differ most along the first principal direction; they are divided there where the two groups differ most, neither
    below 35 % of the sites. Two statistics are compared with simulations of one group, ``N(v, τ² I + C_m)``, with the
    same covariances: the log-likelihood gained by two centres, with one within-group variance for all directions
    (``spread``), and with a variance of its own along this direction (``gap``). Sites form camps if both gain more than
    chance: the first alone would take sites that differ in one respect only, the second alone has little power.

    Parameters
    ----------
    estimates : sequence of (M, f) array
        Coefficients of each expert at M sites; rows of NaN for a site without the expert.
    covariances : sequence of (M, f, f) array
        Their covariances, positive definite.
    seed : int
        Seed of the simulations.

    Returns
    -------
    Camps

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import camps
    >>> rng = np.random.default_rng(0)
    >>> alike, C = rng.normal(size=(8, 4)), np.tile(np.eye(4), (8, 1, 1))
    >>> camps([alike], [C]).found
    False
    >>> camps([alike + 9 * (np.arange(8) < 4)[:, None]], [C]).found
    True
    """
    z, C = _joined(estimates, covariances)
    M = len(z)
    counted = _counted(z, C)
    z, C = z[counted], [own[counted] for own in C]
    if len(z) < 4:
        return Camps(1.0, 1.0, np.zeros(M, dtype=bool), counted)
    gap, spread, side = _gains(z[None])
    between = _between(z, C)
    null = _simulated(_draws(C, between, np.random.default_rng(seed)))
    members = np.zeros(M, dtype=bool)
    members[counted] = side[0] if 2 * side[0].sum() <= len(z) else ~side[0]
    along = _simulated(_normal(len(z), 1, np.random.default_rng([seed, 1])))[0]
    return Camps(max(_p(gap[0], null[0]), _p(gap[0], along)), _p(spread[0], null[1]), members, counted)


def _p(value: float, null: Array) -> float:
    return float((1 + np.sum(null >= value)) / (1 + len(null)))


def _joined(estimates: Sequence[Array], covariances: Sequence[Array]) -> tuple[Array, list[Array]]:
    """Return whitened vectors ``(M, D)`` over all experts, and the covariances ``(M, f, f)`` of each expert's part.

    An absent expert is at the median.
    """
    D, M = sum(each.shape[1] for each in estimates), len(estimates[0])
    z, C, at = np.zeros((M, D)), list[Array](), 0
    for theta, own in zip(estimates, covariances, strict=True):
        here, f = np.all(np.isfinite(theta), axis=1), theta.shape[1]
        whitened = np.tile(np.eye(f), (M, 1, 1))
        if here.any():
            scale = np.sqrt(np.median(np.diagonal(own[here], axis1=1, axis2=2), axis=0))
            z[here, at : at + f] = (theta[here] - np.median(theta[here], axis=0)) / scale
            whitened[here] = own[here] / scale[:, None] / scale
        C.append(whitened)
        at += f
    return z, C


def _traces(C: Sequence[Array]) -> Array:
    """Compute the sum of the variances of each site, ``(M,)``."""
    return np.asarray(np.concatenate([np.diagonal(own, axis1=1, axis2=2) for own in C], axis=1).sum(axis=1))


def _counted(z: Array, C: Sequence[Array]) -> Mask:
    """Return the sites whose mean variance is not far above the usual one."""
    variances = _traces(C)
    return np.asarray(np.isfinite(z).all(axis=1) & (variances <= UNSURE * np.median(variances)))


def _between(z: Array, C: Sequence[Array]) -> float:
    """Estimate the variance between sites of each coordinate, by moments."""
    total = np.sum((z - z.mean(axis=0)) ** 2) / (len(z) - 1)
    return max(0.0, float(total - _traces(C).mean()) / float(z.shape[1]))


def _draws(C: Sequence[Array], between: float, rng: np.random.Generator) -> Iterator[Array]:
    """Draw estimates of one group, ``(·, M, D)`` each, ``DRAWS`` in all."""
    factors = [np.linalg.cholesky(own + (between + 1e-9) * np.eye(own.shape[1])) for own in C]
    edges = np.cumsum([own.shape[1] for own in C])
    for drawn in _normal(len(C[0]), int(edges[-1]), rng):
        parts = zip(factors, np.split(drawn, edges[:-1], axis=2), strict=True)
        yield np.concatenate([np.einsum("mab,smb->sma", L, part, optimize=True) for L, part in parts], axis=2)


def _normal(M: int, D: int, rng: np.random.Generator) -> Iterator[Array]:
    """Draw standard normal vectors, ``(·, M, D)`` each, ``DRAWS`` in all."""
    size = max(AT_ONCE // (M * D), 1)
    return (rng.normal(size=(min(size, DRAWS - lo), M, D)) for lo in range(0, DRAWS, size))


def _simulated(samples: Iterable[Array]) -> tuple[Array, Array]:
    """Compute the two gains of all samples, ``(DRAWS,)`` each."""
    gains = [_gains(z)[:2] for z in samples]
    return np.concatenate([gap for gap, _ in gains]), np.concatenate([spread for _, spread in gains])


def _gains(z: Array) -> tuple[Array, Array, Mask]:
    """Compute the two gains ``(S,)`` of the best division of ``(S, M, D)`` samples, and its first side ``(S, M)``."""
    _, M, D = z.shape
    z = z - z.mean(axis=1, keepdims=True)
    along = _principal(z)
    order = np.argsort(along, axis=1)
    sums = np.cumsum(np.take_along_axis(along, order, axis=1), axis=1)
    least = max(2, int(np.ceil(SMALLER * M - 1e-9)))
    sizes = np.arange(least, M - least + 1)
    explained = sums[:, sizes - 1] ** 2 * M / (sizes * (M - sizes))  # between the two sides, along the direction
    best = np.argmax(explained, axis=1)
    side = np.argsort(order, axis=1) < sizes[best][:, None]
    total_along, tiny = np.sum(along**2, axis=1), np.finfo(float).tiny
    rest = np.maximum(total_along - explained.max(axis=1), 1e-12 * total_along) + tiny
    gap = 0.5 * M * np.log((total_along + tiny) / rest)
    total = np.einsum("smd,smd->s", z, z) + tiny
    moved = np.sum(np.matmul(side[:, None].astype(np.float64), z)[:, 0] ** 2, axis=1)
    within = np.maximum(total - moved * M / (sizes[best] * (M - sizes[best])), 1e-12 * total)
    return gap, 0.5 * M * D * np.log(total / within), side


def _principal(z: Array) -> Array:
    """Compute the first principal coordinate of centred samples ``(S, M, D)``, ``(S, M)``.

    It is found from the products of all pairs of few sites, or from those of all pairs of coordinates.
    """
    _, M, D = z.shape
    if max(D, BY_PAIRS) >= M:
        values, vectors = np.linalg.eigh(z @ np.swapaxes(z, 1, 2))
        return np.asarray(vectors[:, :, -1] * np.sqrt(np.maximum(values[:, -1:], 0.0)))
    directions = np.linalg.eigh(np.swapaxes(z, 1, 2) @ z)[1][:, :, -1:]
    return np.asarray((z @ directions)[:, :, 0])
