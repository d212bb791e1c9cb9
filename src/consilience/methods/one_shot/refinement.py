"""Rounds of refinement, and the rivals of their result.

Rivals of a combined mixture are simpler models of the same rows than which a result must not be worse: the combined
mixture before refinement, the model of the best site carried over to all rows, and one regression for all rows. The
first is where refinement starts, so that no refined fit is below it. The second has been evaluated in the opening
round; where it is better than the combined mixture, refinement starts from it as well, and the better end is returned.
One regression cannot replace a mixture of several experts: a fit below it is not to be trusted, and says so. Without
refinement none of them is known, and the mixture is held against the distribution of the responses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from types import MappingProxyType

import numpy as np

from consilience.aggregate import Combination, SiteModel
from consilience.aggregate.disagreement import CrossLikelihood
from consilience.fit import Ascent, Expect, StopReason, climb
from consilience.messages import Answers, Dialogue, Each, LocalFit, LogLikelihood, Several, Total
from consilience.methods.own_gates import climb_gates
from consilience.methods.site_reports import NOISIER, cross_likelihood, has_same_coefficients
from consilience.model import ColumnSummary, Mixture, Penalty, Statistics
from consilience.model.information import is_informable, score
from consilience.model.mixture import alignment
from consilience.numerics.arrays import Array, unpack
from consilience.numerics.linalg import solve_symmetric

DECREMENT = 1e-10
"""Newton decrement per row at which refinement ends: one step below that of other climbs, as steps near the maximum
gain many digits each."""
COMPARED = 10
"""Maximum number of sites whose models are compared on the rows of all sites, of those that were used and of others."""
EXPLAINED = 0.25
"""Tolerance in log-likelihood per row. A site whose model was not fully used takes part in refinement if the combined
mixture explains its rows as well as its own model does, up to this tolerance: its rows are then like the others'."""


@dataclass(frozen=True, eq=False)
class Opening:
    """Result of the first round of refinement.

    Parameters
    ----------
    members : tuple of str or None
        Sites that take part in refinement; None for all.
    firsts : list of Statistics
        Sums over the members, for each mixture.
    each : list of mapping of str to Statistics
        Statistics of each site whose model was fully used or that takes part, for each mixture.
    cross : CrossLikelihood or None
        Likelihoods of the sites' models on each other's rows.
    one : Statistics
        Sums over the members, for one regression for all rows.
    compared : dict of str to SiteModel
        The models of sites that were evaluated on all rows.
    totals : dict of str to float
        Log-likelihood of each of these models over the members.
    scores : list of mapping of str to (P,) array
        Score of each member, for each mixture.
    explains : bool
        Whether the combined mixture explains the rows of at least one site.
    """

    members: tuple[str, ...] | None
    firsts: list[Statistics]
    each: list[dict[str, Statistics]]
    cross: CrossLikelihood | None
    one: Statistics
    compared: dict[str, SiteModel]
    totals: dict[str, float]
    scores: list[dict[str, Array]]
    explains: bool = True


def opening(
    combinations: Sequence[Combination],
    fits: Mapping[str, LocalFit],
    one: Mixture,
    penalty: Penalty,
    *,
    gates: Mapping[str, Mixture] = MappingProxyType({}),
) -> Dialogue[Opening]:
    """Run the first round of refinement for all mixtures, in which each site answers on its own.

    ``gates`` has the last mixture with the gate of a site, where it is known.

    Sites also compute the likelihoods of the models of at most ten sites that were used, which tell sites that
    disagree, and of at most ten others, which are judged by them if they take part. If all models were used, all sites
    take part in refinement. Otherwise a site whose model was not fully used takes part if its rows are like the
    others': the combined experts, at a gate of its own, explain them as well as the site's own model does, and no worse
    than they explain the rows of the sites that were used; or its rows are noisier, and the coefficients are the same
    up to chance. Sites without a model take part.
    """
    mixtures = [combination.mixture for combination in combinations]
    models = {site: fit.model for site, fit in fits.items() if fit.model is not None}
    doubted = _doubted(combinations)
    used = [site for site in models if site not in doubted] or list(models)
    asked = _spread(used)
    owners = [*asked, *_spread([site for site in models if site not in used])]
    comparisons = [LogLikelihood(models[site].mixture) for site in owners]
    expectations = [*(Expect(mixture, information=is_informable(mixture)) for mixture in mixtures), Expect(one)]
    answers: Mapping[str, Answers] = yield Each(Several((*expectations, *comparisons)))
    each = {site: found.items[: len(mixtures)] for site, found in answers.items()}
    heard = {site: found.items[len(expectations) :] for site, found in answers.items()}
    cross = cross_likelihood(owners, heard, max((models[site].mixture.parameter_count for site in owners), default=0))
    members = yield from _members(combinations, models, each, penalty, gates)
    taking = each if members is None else members
    firsts = [reduce(add, (each[site][i] for site in taking)) for i in range(len(mixtures))]
    of_one = reduce(add, (answers[site].items[len(mixtures)] for site in taking))
    totals = {site: sum(heard[by][i].log_likelihood for by in taking) for i, site in enumerate(asked)}
    heeded = {site: items for site, items in each.items() if site not in doubted or site in (members or ())} or each
    by_mixture = [{site: items[i] for site, items in heeded.items()} for i in range(len(mixtures))]
    compared = {site: models[site] for site in asked}
    of_members = [{site: score(at, each[site][i]) for site in taking} for i, at in enumerate(mixtures)]
    explains = members is not None or not doubted
    return Opening(members, firsts, by_mixture, cross, of_one, compared, totals, of_members, explains)


def _spread(sites: Sequence[str]) -> list[str]:
    """Return at most ten of the sites, spread over all."""
    if len(sites) <= COMPARED:
        return list(sites)
    return [sites[i] for i in np.linspace(0, len(sites) - 1, COMPARED).astype(int)]


def _doubted(combinations: Sequence[Combination]) -> set[str]:
    """Return the sites whose models were not fully used."""
    return {site.name for each in combinations for site in each.sites if site.status in ("set aside", "used in part")}


def _members(
    combinations: Sequence[Combination],
    models: Mapping[str, SiteModel],
    each: Mapping[str, Sequence[Statistics]],
    penalty: Penalty,
    gates: Mapping[str, Mixture],
) -> Dialogue[tuple[str, ...] | None]:
    """Return the sites that take part in refinement; None for all, also if none of them would."""
    doubted = _doubted(combinations)
    if not doubted:
        return None
    copied = {site.name for site in combinations[0].sites if site.copy_of is not None}
    reached = {site: _best_per_row(answer) for site, answer in each.items()}
    believed = {site.name for site in combinations[0].sites if site.status == "used"} - doubted
    lowest = min((reached[site] for site in believed if site in reached), default=-np.inf)

    def is_unlike(site: str) -> bool:
        own = max(lowest, models[site].log_likelihood_per_row) if site in models else lowest
        return site in doubted and (site in copied or reached[site] < own - EXPLAINED)

    common = combinations[-1].mixture
    asked = [site for site in each if is_unlike(site) and site not in copied]
    if asked and common.K > 1:
        found = yield from climb_gates({site: gates.get(site, common) for site in asked}, penalty)
        reached |= {site: max(reached[site], _best_per_row([answer])) for site, (_, answer) in found.items()}
    asked = [site for site in asked if is_unlike(site) and site in models]
    noisier = set()
    if asked and common.experts.shapes:
        found = yield from climb_gates({site: gates.get(site, common) for site in asked}, penalty, shapes=True)
        noisier = {
            site
            for site, at in found.items()
            if _best_per_row(at[1:]) >= lowest - NOISIER - EXPLAINED
            and has_same_coefficients(*at, models[site].log_likelihood_per_row, combinations[-1].covariances())
        }
    members = tuple(site for site in each if not is_unlike(site) or site in noisier)
    return members or None


def _best_per_row(found: Sequence[Statistics]) -> float:
    """Return the highest log-likelihood per row of several mixtures on the rows of a site."""
    return float(max(item.log_likelihood / max(item.weight, 1.0) for item in found))


def refine(
    start: Mixture,
    first: Statistics | None,
    penalty: Penalty,
    steps: int,
    members: tuple[str, ...] | None,
) -> Dialogue[Ascent]:
    """Take at most ``steps`` steps from ``start``; each is evaluated by a round.

    ``first`` are the statistics of the start, if the opening round has brought them; otherwise one more round asks for
    them. The result is the last accepted mixture, with its own statistics.
    """
    end = yield from _by_newton(start, first, penalty, steps, members)
    return replace(end, stop=StopReason.REFINED) if end.stop is StopReason.MAX_ITER else end


def _by_newton(
    start: Mixture, first: Statistics | None, penalty: Penalty, steps: int, members: tuple[str, ...] | None
) -> Dialogue[Ascent]:
    """Take Newton steps with the information of all rows."""
    ascending = climb(start, penalty, max_iter=steps, near=True, decrement=DECREMENT)
    question = replace(next(ascending), information=is_informable(start))
    try:
        question = ascending.send(first if first is not None else (yield Total(question, members)))
        while True:
            question = ascending.send((yield Total(question, members)))
    except StopIteration as reached:
        end: Ascent = reached.value
        return end


# ---------------------------------------------------------------- rivals


ASK = "; a round of refinement finds out"


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
    explains : bool
        Whether the combined mixture explains the rows of at least one site.
    """

    unrefined: float = float("nan")
    one_regression: float = float("nan")
    best_site: str = ""
    carried_over: float = float("nan")
    from_site: bool = False
    constant: float = float("nan")
    explains: bool = True

    @property
    def shown(self) -> tuple[tuple[str, float], ...]:
        """Return names and log-likelihoods."""
        return (
            ("before refinement", self.unrefined),
            ("one regression for all rows", self.one_regression),
            (f"model of {self.best_site} for all sites", self.carried_over),
            ("one normal distribution without covariates", self.constant),
        )

    def doubts(self, log_likelihood: float) -> tuple[str, ...]:
        """Return the reasons not to trust a fit with this log-likelihood."""
        found = []
        if not self.explains:
            found.append("the sites' models were combined into one that explains the rows of no site: try FederatedEM")
        if log_likelihood < self.one_regression:
            figures = f"log-likelihood {self.one_regression:.6g} against {log_likelihood:.6g}"
            known = np.isnan(self.constant)  # without refinement the likelihood of the mixture is estimated
            said = "one regression for all rows explains them better than this mixture"
            found.append(
                f"{said}: {figures}" if known else f"as far as the sites' answers tell, {said}: {figures}{ASK}"
            )
        if self.from_site:
            found.append(
                f"the combined mixture explains the rows of all sites worse than the model of site {self.best_site} "
                "alone; the result is that model, refined"
            )
        if log_likelihood < self.constant:
            found.append(
                "as far as the sites' answers tell, this mixture explains the rows worse than one normal distribution "
                f"without covariates: log-likelihood {log_likelihood:.6g} against {self.constant:.6g}{ASK}"
            )
        return tuple(found)


def unrefined_rivals(
    combination: Combination,
    summary: ColumnSummary,
    fits: Mapping[str, LocalFit] = MappingProxyType({}),
    columns: Sequence[int] | None = None,
) -> Rivals:
    """Return what a combination without refinement is held against, from means, products and moments of sites alone.

    It is one distribution for all rows, with the moments of the responses, and one regression for all rows, over the
    rows that the combination stands for. ``columns`` are those that the experts read; None for all.
    """
    if combination.mixture.K == 1:
        return Rivals()
    return Rivals(
        constant=combination.weight * combination.mixture.experts.constant_log_density(summary),
        one_regression=combination.weight * regression_of_moments(fits, columns),
    )


def regression_of_moments(fits: Mapping[str, LocalFit], columns: Sequence[int] | None = None) -> float:
    """Return the log-likelihood per row of one Gaussian regression for the rows of all sites; NaN if it is not known.

    At a site's maximum ``Σ_k S_k b_k = Σ w x y`` over the columns that experts read, with ``S_k = Σ w τ_k x xᵀ``.
    Products are centred at each site, so that numbers that were rounded before they left a site lose little.

    Examples
    --------
    >>> regression_of_moments({})
    nan
    """
    models = [fit.model for fit in fits.values() if fit.model is not None]
    if not models or len(models) < len(fits) or not all(map(_has_products, models)):
        return float("nan")
    total = reduce(add, (fit.summary for fit in fits.values()))
    read = np.arange(len(total.x_mean)) if columns is None else np.asarray(columns, dtype=int)
    Sxy = np.zeros(len(read))
    for fit, model in zip(fits.values(), models, strict=True):
        moments, b = unpack(model.second), model.mixture.experts.free_coefficients().reshape(model.mixture.K, -1)
        products, sums = np.einsum("kij,kj->i", moments, b), moments[:, 0].sum(axis=0)  # Σ w x̃ y, Σ w x̃
        within = products[read + 1] / sums[0] - sums[read + 1] * products[0] / sums[0] ** 2
        apart = fit.summary.x_mean[read] - total.x_mean[read]
        Sxy += fit.summary.weight * (within + apart * (fit.summary.y_mean[0] - total.y_mean[0]))
    slopes, _ = solve_symmetric(total.x_products[np.ix_(read, read)], Sxy[:, None])
    residual = (total.y_products[0, 0] - slopes[:, 0] @ Sxy) / total.weight
    return float(-0.5 * (np.log(2 * np.pi * residual) + 1)) if residual > 0 else float("nan")


def _has_products(model: SiteModel) -> bool:
    """Whether the products of covariates and one response follow from a site's model."""
    mixture = model.mixture
    one = mixture.experts.channels == 1 and mixture.design.intercept and mixture.design.d > 0
    return one and len(model.second) > 0


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
        rivals = Rivals(first.log_likelihood, best_site=site, carried_over=value, explains=opened.explains)
        starts: list[tuple[Mixture, Statistics | None]] = [(combined, first)]
        if value > first.log_likelihood:
            own = opened.compared[site].mixture.in_coordinates_of(combined)
            starts.append((own.permuted(alignment(own, combined)), None))  # what is known of sites is in this order
        return cls(starts, rivals)

    def climbs(self, penalty: Penalty, steps: int, members: tuple[str, ...] | None) -> list[Dialogue[Ascent]]:
        """Return the climbs; each takes as many rounds as ``steps`` of the first."""
        return [refine(at, first, penalty, steps - (first is None), members) for at, first in self.starts]

    def ended(self, ends: Sequence[Ascent], one: Ascent) -> tuple[Ascent, Rivals]:
        """Return the better end, and the rivals that it is held against."""
        best = max(ends, key=lambda end: end.penalised)
        rivals = replace(self.rivals, one_regression=one.statistics.log_likelihood, from_site=best is not ends[0])
        return best, rivals
