"""Rivals of the mixture that a site shares: simpler models, and the site's own fit.

They are compared by the log-likelihood of the site's rows, less a cost for the parameters that come from these rows.
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

OWN_COST = 2.0
"""Cost in log-likelihood of a parameter that a site's rows determine; twice Akaike's."""
LOCAL_COST = 4.0
"""The same for a local mixture: components of a few rows, with little variance, gain up to 3 for each parameter."""
CENTRE_COST = 1.0
"""Cost of the centre for each parameter of the shrunk mixture that it does without: shrinkage has allowed for noise."""
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
    cost : float
        Log-likelihood that its parameters are expected to gain on these rows only.
    """

    kind: Kind
    mixture: Mixture
    log_likelihood: float
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
        """Return that regressions explain the rows better than the sites' mixtures, if they do."""
        values: dict[Kind, float] = {kind: value - cost for kind, (value, cost) in self.totals.items() if kind != "own"}
        best: Kind = max(values, key=lambda kind: values[kind], default="shared")
        if best not in ("one", "regression"):
            return ()
        got = f"{self.given.get('one', 0) + self.given.get('regression', 0)} of {sum(self.given.values())}"
        said = f"{WORDS[best]} explains the rows better than mixtures do: log-likelihood less the cost of parameters"
        return (f"{said} {values[best]:.6g} against {values['shared']:.6g}; {got} sites get one regression",)


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
    mixtures: Mapping[Kind, Mixture], values: tuple[Likelihood, ...], borrowed: float, share: float
) -> dict[Kind, Rival]:
    """Return the rivals at a site that has evaluated them.

    A parameter of the site costs 2; one that comes from all sites costs the site's share of all rows. The centre costs
    1 for each parameter of the site that it does without, so that small differences between sites are kept.

    Parameters
    ----------
    mixtures : mapping of str to Mixture
    values : tuple of Likelihood
        Answers of the site, in the same order.
    borrowed : float
        Fraction of the shared mixture that comes from other sites.
    share : float
        Rows of the site as a fraction of all rows.
    """
    found = {}
    for (kind, mixture), value in zip(mixtures.items(), values, strict=True):
        of_site = {"shared": 1 - borrowed, "regression": 1.0}.get(kind, 0.0)
        cost = mixture.parameter_count * (OWN_COST * of_site + share * (1 - of_site))
        cost += CENTRE_COST * (1 - borrowed) * mixture.parameter_count * (kind == "centre")
        found[kind] = Rival(kind, mixture, value.log_likelihood, float(cost))
    return found


def local_rival(own: Mixture, log_likelihood: float) -> Rival:
    """Return a site's local fit as a rival."""
    return Rival("own", own, log_likelihood, LOCAL_COST * own.parameter_count)


def best_rival(rivals: Mapping[Kind, Rival]) -> Rival:
    """Return the rival of the largest value; the shared mixture if it is as good."""
    return max(rivals.values(), key=lambda rival: (rival.value, rival.kind == "shared"))


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
