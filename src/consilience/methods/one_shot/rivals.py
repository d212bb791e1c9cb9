"""Rivals of a combined mixture: simpler models of the same rows that a result must not be worse than.

They are the combined mixture before refinement, the model of the best site carried over to all rows, and one regression
for all rows. The first is where refinement starts, so that no refined fit is below it. The second has been evaluated in
the opening round; where it is better than the combined mixture, refinement starts from it as well, and the better end
is returned. One regression cannot replace a mixture of several experts: a fit below it is not to be trusted, and says
so. Without refinement none of them is known, and the mixture is held against the distribution of the responses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from consilience.aggregate.combine.combiner import Combination
from consilience.fit.climb import Ascent
from consilience.fit.scoring import Simulation
from consilience.fit.specification import Specification
from consilience.messages.dialogue import Dialogue
from consilience.methods.one_shot.refinement import Opening, refine
from consilience.model.alignment import alignment
from consilience.model.mixture import Mixture
from consilience.model.penalty import Penalty
from consilience.model.statistics import Statistics
from consilience.model.summary import ColumnSummary


@dataclass(frozen=True)
class Rivals:
    """Log-likelihoods of the rivals, over the rows that the fit used; NaN for one that was not evaluated.

    Parameters
    ----------
    unrefined : float
        The combined mixture before refinement.
    one_regression : float
        One regression for all rows.
    best_site : str
        The site whose own model explains all rows best.
    carried_over : float
        That model.
    from_site : bool
        Whether the fit was refined from that model, not from the combined mixture.
    constant : float
        One normal distribution of the responses, without covariates; known without refinement.

    Examples
    --------
    >>> Rivals(-90.0, -80.0, "north", -95.0).doubts(-85.0)[0]
    'one regression for all rows explains them better than this mixture: log-likelihood -80 against -85'
    """

    unrefined: float = float("nan")
    one_regression: float = float("nan")
    best_site: str = ""
    carried_over: float = float("nan")
    from_site: bool = False
    constant: float = float("nan")

    def doubts(self, log_likelihood: float) -> tuple[str, ...]:
        """Return the reasons not to trust a fit with this log-likelihood."""
        found = []
        if log_likelihood < self.one_regression:
            figures = f"log-likelihood {self.one_regression:.6g} against {log_likelihood:.6g}"
            found.append(f"one regression for all rows explains them better than this mixture: {figures}")
        if self.from_site:
            found.append(
                f"the combined mixture explains the rows of all sites worse than the model of site {self.best_site} "
                "alone; the result is that model, refined"
            )
        if log_likelihood < self.constant:
            found.append(
                "as far as the sites' answers tell, this mixture explains the rows worse than one normal distribution "
                f"without covariates: log-likelihood {log_likelihood:.6g} against {self.constant:.6g}; a round of "
                "refinement finds out"
            )
        return tuple(found)


def unrefined_rivals(combination: Combination, summary: ColumnSummary) -> Rivals:
    """Return what a combination without refinement is held against, from the sites' means and products alone.

    It is one distribution for all rows, with the moments of the responses, over the rows that the combination stands
    for.
    """
    if combination.mixture.K == 1:
        return Rivals()
    return Rivals(constant=combination.weight * combination.mixture.experts.constant_log_density(summary))


def one_expert(specification: Specification, summary: ColumnSummary) -> Mixture:
    """Return the start of one regression for all rows."""
    return specification.with_order(1).blank(summary)


def best_model(opened: Opening, K: int) -> tuple[str, float]:
    """Return the site with K experts whose model has the highest likelihood over all members, and that likelihood."""
    totals = {site: total for site, total in opened.totals.items() if opened.compared[site].mixture.K == K}
    best = max(totals, key=lambda site: totals[site], default="")
    return best, totals.get(best, float("nan"))


@dataclass(frozen=True, eq=False)
class Contest:
    """The climbs of one order of a combination: from the combined mixture, and from a site's model if it is better.

    Parameters
    ----------
    starts : list of (Mixture, Statistics or None)
        The combined mixture with its statistics; the site's model, which a round has yet to evaluate with statistics.
    rivals : Rivals
        What is known before refinement.
    """

    starts: list[tuple[Mixture, Statistics | None]]
    rivals: Rivals

    @classmethod
    def of(cls, combined: Mixture, first: Statistics, opened: Opening) -> Contest:
        """Return the starts of an order, from what the opening round has brought."""
        site, value = best_model(opened, combined.K)
        rivals = Rivals(unrefined=first.log_likelihood, best_site=site, carried_over=value)
        starts: list[tuple[Mixture, Statistics | None]] = [(combined, first)]
        if value > first.log_likelihood:
            own = opened.compared[site].mixture.in_coordinates_of(combined)
            starts.append((own.permuted(alignment(own, combined)), None))  # what is known of sites is in this order
        return cls(starts, rivals)

    def climbs(
        self, penalty: Penalty, steps: int, members: tuple[str, ...] | None, simulation: Simulation | None
    ) -> list[Dialogue[Ascent]]:
        """Return the climbs; each takes as many rounds as ``steps`` of the first."""
        return [
            refine(at, first, penalty, steps - (first is None), members, simulation=simulation)
            for at, first in self.starts
        ]

    def ended(self, ends: Sequence[Ascent], one: Ascent) -> tuple[Ascent, Rivals]:
        """Return the better end, and the rivals that it is held against."""
        best = max(ends, key=lambda end: end.penalised)
        rivals = replace(self.rivals, one_regression=one.statistics.log_likelihood, from_site=best is not ends[0])
        return best, rivals
