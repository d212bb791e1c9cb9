"""A membership test at the site: how well someone tells from released parameters whether a row was in the fit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import rankdata

from consilience.messages.questions import FitSite, LocalFit
from consilience.model.rows import Rows
from consilience.numerics.arrays import Array
from consilience.site.local_fit import local_fit
from consilience.site.site import Site

FALSE_ALARMS = 0.01
"""Rate of false alarms at which the rate of hits is reported."""


@dataclass(frozen=True)
class MembershipTest:
    """Result of the attack; it stays at the site.

    Parameters
    ----------
    auc : float
        Probability that a row of the fit gets a higher score than another row; 0.5 is guessing, 1 is certainty.
    hits : float
        Fraction of the rows of the fit that are told at 1 % false alarms; 0.01 is guessing.
    inside, outside : int
        Rows in the fit, and held out.
    """

    auc: float
    hits: float
    inside: int
    outside: int

    def __str__(self) -> str:
        return (
            f"An attacker who has the parameters and two rows, one of them from the fit, picks that one in "
            f"{self.auc:.0%} of all cases (50% is guessing). This was measured with half of the rows, which is harder "
            "to protect than all of them."
        )


def self_test(question: FitSite, rows: Rows, seed: int, experts: int | None = None) -> MembershipTest | None:
    """Fit a random half of the rows with the same question, and attack it with both halves.

    The score of a row is its log density under what a file has: the mixture, and the summary of the covariates.

    Parameters
    ----------
    question : FitSite
        The study's question.
    rows : Rows
        All rows of the site.
    seed : int
        Seed of the study, which draws the half.
    experts : int, optional
        Number of experts of the fit that would leave, if it differs from what the study asks.

    Returns
    -------
    MembershipTest or None
        None if half of the rows are too few for a fit.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> from consilience.fit.specification import Specification
    >>> data = soft(800, n_experts=2, n_features=2, random_state=0)
    >>> question = FitSite(Specification(K=2), (2,), seed=1)
    >>> found = self_test(question, Rows(data.X, data.y[:, None]), seed=1)
    >>> found.inside, 0.4 < found.auc < 0.6
    (400, True)
    """
    order = np.random.default_rng([seed, 0x5E1F]).permutation(rows.n)
    inside, outside = (rows.take(np.sort(part)) for part in np.array_split(order, 2))
    orders = question.orders if experts is None else (experts,)
    fit = local_fit(replace(question, start=None, orders=orders), Site("half", inside))
    if fit.model is None or not outside.n:
        return None
    mine, others = attack_scores(fit, inside), attack_scores(fit, outside)
    threshold = np.quantile(others, 1 - FALSE_ALARMS, method="higher")
    return MembershipTest(attack_auc(mine, others), float(np.mean(mine > threshold)), inside.n, outside.n)


def attack_scores(fit: LocalFit, rows: Rows) -> Array:
    """Compute the log density of rows under the parameters of a file, ``(n,)``."""
    if fit.model is None:
        raise ValueError("a file without a model has no density")
    scores = fit.model.mixture.log_density(rows)
    return scores if fit.model.covariates is None else scores + fit.model.covariates.log_density(rows.X)


def attack_auc(members: Array, others: Array) -> float:
    """Compute the probability that a member has a higher score than another row; ties count half.

    Examples
    --------
    >>> attack_auc(np.array([2.0, 3.0]), np.array([1.0, 2.0]))
    0.875
    """
    ranks = rankdata(np.concatenate([members, others]))
    m = len(members)
    return float((ranks[:m].sum() - m * (m + 1) / 2) / (m * len(others)))
