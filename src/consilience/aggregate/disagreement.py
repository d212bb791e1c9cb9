r"""Find out which sites disagree with the others, from the likelihoods of their models on each other's rows.

For sites :math:`a, b` with models :math:`p_a, p_b` fitted to their own rows, the sum of what each loses if it takes the
other's model estimates Jeffreys' divergence per row:

.. math::
    J_{ab} = \ell_a(p_a) - \ell_a(p_b) + \ell_b(p_b) - \ell_b(p_a) - P (1 / n_a + 1 / n_b)

with :math:`\ell_a` the log-likelihood per row of the rows of :math:`a`; the last term is its expectation for equal
sites. A poor local maximum at one site cancels. The divergence also counts how a model continues outside the
covariates of its site, so it decides only *who* is wrong; *that* something is wrong is seen from the joint mixture,
which must explain the rows of each site about as well as the site's own model does. A site is wrong only if the models
of the majority do not fit its rows either: one that lacks a level of a category, or part of the range of a covariate,
has a model that is far from the others' where it has no rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    Examples
    --------
    >>> values = np.array([[-1.0, -1.02, -3.0], [-1.02, -1.0, -3.0], [-2.0, -2.0, -1.5]])
    >>> cross = CrossLikelihood(("north", "east", "south"), values, np.full(3, 1e6), parameters=5)
    >>> cross.divergence().round(2)
    array([[0.  , 0.04, 2.5 ],
           [0.04, 0.  , 2.5 ],
           [2.5 , 2.5 , 0.  ]])
    >>> judge_agreement(cross, np.array([-1.2, -1.2, -2.5])).named
    {'south': 1.0}
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

    def losses(self, joint: Array) -> Array:
        """Compute what each site loses per row under a joint mixture, beyond the optimism of its own fit, ``(M,)``."""
        return np.asarray(np.diagonal(self.values) - joint - self.parameters / (2 * self.rows))

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
    """

    named: Mapping[str, float]
    undecided: bool
    unexplained: Mapping[str, float]


def judge_agreement(cross: CrossLikelihood, joint: Array) -> SiteAgreement:
    """Judge the sites, given the log-likelihood per row of each under the joint mixture, ``joint (M,)``."""
    enough = cross.rows >= ROWS_PER_PARAMETER * cross.parameters
    cross, joint = cross.taken(enough), joint[enough]
    M = len(cross.sites)
    loss = cross.losses(joint)
    allowed = LOSS + SIGMAS * np.sqrt(cross.parameters / 2) / cross.rows
    unexplained = {cross.sites[m]: round(float(loss[m]), 3) for m in np.flatnonzero(loss > allowed)}
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
    far = np.flatnonzero(~agree & far & (misfit > NEAR / 2))
    return SiteAgreement({cross.sites[m]: round(float(loss[m]), 3) for m in far}, False, unexplained)


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

    Examples
    --------
    >>> own_components(["north", "east", "south"], np.array([[50.0, 50.0, 0.0], [60.0, 40.0, 1.0], [5.0, 0.0, 95.0]]))
    {'south': (0.95, 1)}
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

    Examples
    --------
    >>> unlikely_sites({"a": -1.4, "b": -1.5, "c": -1.45, "d": -4.0})
    {'d': 2.525}
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
