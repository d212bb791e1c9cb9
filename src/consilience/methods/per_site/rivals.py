"""Rivals of the mixture that a site shares: simpler models, and the site's own fit.

They are compared by the log-likelihood of the site's rows, less the cost of the parameters in Schwarz's criterion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Literal

import numpy as np

from consilience.fit import Expect, climb
from consilience.messages import Likelihood, LogLikelihood, Several
from consilience.model import Mixture, Penalty, Statistics

LOCAL_TIMES = 2.0
"""How often a parameter of a local fit is counted, because its labels are estimated from the same few rows."""
SETTLED_GAIN = 1e-4
"""Gain in log-likelihood per row at which one regression for all rows counts as found."""

Kind = Literal["shared", "centre", "one", "regression", "own"]
WORDS: dict[Kind, str] = {
    "shared": "the mixture of each site",
    "centre": "the common mixture at all sites",
    "one": "one regression for all rows",
    "regression": "one regression at each site",
    "own": "the own fit of each site",
}


@dataclass(frozen=True, eq=False)
class Rival:
    """A model for the rows of one site.

    Parameters
    ----------
    kind : {"shared", "centre", "one", "regression", "own"}
        The shrunk mixture, the centre as it is, one regression for the rows of all sites, one for those of this site,
        or the site's local fit.
    mixture : Mixture
    log_likelihood : float
        Of the rows of the site.
    of_site : float
        Number of parameters that the rows of the site determine.
    cost : float
        Cost of all parameters, in log-likelihood.
    """

    kind: Kind
    mixture: Mixture
    log_likelihood: float
    of_site: float
    cost: float

    @property
    def value(self) -> float:
        """Return the log-likelihood less the cost."""
        return self.log_likelihood - self.cost


@dataclass(frozen=True)
class SharedRivals:
    """Log-likelihoods and costs of the rivals over all sites that evaluated them.

    Parameters
    ----------
    totals : mapping of str to (float, float)
        Log-likelihood and cost of each kind of rival.
    given : mapping of str to int
        Number of sites that got each kind.
    """

    totals: Mapping[Kind, tuple[float, float]] = field(default_factory=dict)
    given: Mapping[Kind, int] = field(default_factory=dict)

    @property
    def shown(self) -> tuple[tuple[str, float], ...]:
        """Return names and log-likelihoods, less the costs."""
        return tuple((f"{WORDS[kind]}, less its cost", value - cost) for kind, (value, cost) in self.totals.items())

    @property
    def doubts(self) -> tuple[str, ...]:
        """Return that most sites get one regression, if they do; what a minority of sites states cannot change that."""
        single, sites = self.given.get("one", 0) + self.given.get("regression", 0), sum(self.given.values())
        if 2 * single <= sites:
            return ()
        return (f"at {single} of {sites} sites one regression explains the rows better than a mixture does",)


class RegressionRivals:
    """One regression for all rows, and one for each site, from answers to a question that the rounds carry along.

    Parameters
    ----------
    start : Mixture
        Any mixture of one expert.
    penalty : Penalty
    exact : bool
        Whether one answer of each site is enough, because the statistics are the same at every mixture.

    Attributes
    ----------
    mixture : Mixture
        One regression for all rows: the best so far.
    of_sites : dict of str to Mixture
        One step from it on the rows of each site.
    """

    def __init__(self, start: Mixture, penalty: Penalty, *, exact: bool) -> None:
        self.penalty, self.exact = penalty, exact
        self.mixture, self.settled = start, False
        self.of_sites: dict[str, Mixture] = {}
        self._answers: dict[str, Statistics] = {}
        self._best = -np.inf
        self._climb = climb(start, penalty, tol=SETTLED_GAIN, newton=False)
        self._asked = next(self._climb)

    def beside(self, questions: Mapping[str, Expect]) -> Mapping[str, Expect | Several]:
        """Return the questions to sites, with that for the regressions as long as it is needed."""
        if self.settled and all(site in self.of_sites for site in questions):
            return questions
        return {site: Several((question, self._asked)) for site, question in questions.items()}

    def take(self, answers: Mapping[str, Statistics]) -> None:
        """Take a step to the regressions; answers that overflow are ignored."""
        asked = self._asked.mixture
        with np.errstate(over="ignore", invalid="ignore"):
            finite = {site: each for site, each in answers.items() if np.all(np.isfinite(each.to_array()))}
            steps = {site: asked.maximise(each, self.penalty) for site, each in finite.items()}
            self.of_sites |= {site: step for site, step in steps.items() if not step.experts.invalid()}
            self._answers = {**self._answers, **finite} if self.exact else finite
            if self._answers and (self.exact or not self.settled):
                self._step(asked, reduce(add, self._answers.values()))

    def _step(self, asked: Mixture, total: Statistics) -> None:
        if self.exact:
            step, self.settled = asked.maximise(total, self.penalty), True
            self.mixture = self.mixture if step.experts.invalid() else step
            return
        per_row = total.log_likelihood / max(total.weight, 1.0)
        if per_row > self._best:
            self.mixture, self._best = asked, per_row
        try:
            self._asked = self._climb.send(total)
        except StopIteration:
            self.settled = True

    def candidates(self, site: str) -> dict[Kind, Mixture]:
        """Return the regressions that a site evaluates in the last round."""
        return {"one": self.mixture, "regression": self.of_sites.get(site, self.mixture)}


def final_question(mixtures: Mapping[Kind, Mixture]) -> Several:
    """Return the question of the last round: the likelihood of a site's rows under each mixture."""
    return Several(tuple(LogLikelihood(mixture) for mixture in mixtures.values()))


def rivals_of_site(
    mixtures: Mapping[Kind, Mixture], values: tuple[Likelihood, ...], borrowed: float, all_rows: float
) -> dict[Kind, Rival]:
    """Return the rivals at a site that has evaluated them.

    A parameter costs half the logarithm of the number of rows that determine it (Schwarz's criterion): those of the
    site, or all rows, of which the site bears its share.

    Parameters
    ----------
    mixtures : mapping of str to Mixture
    values : tuple of Likelihood
        Answers of the site, in the same order.
    borrowed : float
        Fraction of the shared mixture that comes from other sites.
    all_rows : float
        Number of rows of all sites.
    """
    found = {}
    for (kind, mixture), value in zip(mixtures.items(), values, strict=True):
        of_site = mixture.parameter_count * {"shared": 1 - borrowed, "regression": 1.0}.get(kind, 0.0)
        common = (mixture.parameter_count - of_site) * value.weight / all_rows
        cost = of_site * parameter_cost(value.weight) + common * parameter_cost(all_rows)
        found[kind] = Rival(kind, mixture, value.log_likelihood, float(of_site), float(cost))
    return found


def local_rival(own: Mixture, log_likelihood: float, rows: float) -> Rival:
    """Return a site's local fit to this number of rows as a rival."""
    P = own.parameter_count
    return Rival("own", own, log_likelihood, P, LOCAL_TIMES * P * parameter_cost(rows))


def parameter_cost(rows: float) -> float:
    """Return the cost in log-likelihood of a parameter that so many rows determine: half their logarithm, at least 1.

    Examples
    --------
    >>> round(parameter_cost(100.0), 2), parameter_cost(2.0)
    (2.3, 1.0)
    """
    return max(0.5 * float(np.log(max(rows, 1.0))), 1.0)


def best_rival(rivals: Mapping[Kind, Rival]) -> Rival:
    """Return the rival of the largest value; the shared mixture if it is as good.

    Whether there is a mixture is a question of which model is true, how much a site borrows is one of prediction. Where
    the centre is best, the shared mixture is therefore compared with it by Akaike's criterion.
    """
    best, shared = max(rivals.values(), key=lambda rival: (rival.value, rival.kind == "shared")), rivals["shared"]
    if best.kind == "centre" and shared.log_likelihood - best.log_likelihood >= shared.of_site:
        return shared
    return best


def sum_rivals(rivals: Mapping[str, Mapping[Kind, Rival]]) -> SharedRivals:
    """Add up the rivals over sites; a site without a local fit counts there with its shared mixture."""
    if not rivals:
        return SharedRivals()
    totals: dict[Kind, tuple[float, float]] = {}
    for kind in WORDS:
        each = [own.get(kind, own["shared"]) for own in rivals.values()]
        totals[kind] = (sum(rival.log_likelihood for rival in each), sum(rival.cost for rival in each))
    best = [best_rival(own).kind for own in rivals.values()]
    return SharedRivals(totals, {kind: best.count(kind) for kind in WORDS if kind in best})
