"""Result of methods that fit one model per site: the centre, each site's model, and its shrinkage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from consilience.aggregate import Camps, Sharing
from consilience.fit import Ascent, Fit, Inference, InferredFit, StartEnds, StopReason
from consilience.fit.inference import (
    BETWEEN_SITES,
    degrees_of_freedom,
    infer_coefficients,
    withhold_inference,
)
from consilience.fit.parameters import parameters
from consilience.fit.specification import coefficients_per_row
from consilience.fit.survey import SiteInfluence
from consilience.methods.per_site.rivals import Kind, Rival, SharedRivals
from consilience.model import Mixture, Penalty, Statistics
from consilience.numerics.arrays import Array, IntArray, Mask

ENOUGH = 0.6
"""Fraction of the sites that must agree for the result to be trusted."""
GETS: dict[Kind, str] = {
    "own": "its own fit explains its rows better than the shared mixture: it keeps its own",
    "centre": "the common mixture explains its rows as well with fewer parameters: it gets that",
    "one": "one regression for all rows explains its rows as well with fewer parameters: it gets that",
    "regression": "one regression explains its rows as well with fewer parameters: it gets one of its own rows",
}
"""Remarks on a site that gets another model than the shared mixture."""
NOTHING = "it was not asked, has too few rows for a fit, or sent values that are not usable"
ROWS_AT_A_SITE = 5.0
"""Minimum of an expert's rows per coefficient at a typical site, for intervals of the centre."""
OF_A_SITE = "no standard errors for the mixture of a site: its shrinkage towards the centre is not accounted for"


@dataclass(frozen=True, eq=False)
class SiteShare:
    """How one site was used, and its shrinkage towards the centre.

    Parameters
    ----------
    name : str
    weight : float
        As reported by the site.
    shrinkage : (K,) array
        Shrinkage of each expert's coefficients towards the centre, from 0 to 1; empty for a site without answer.
    kept : (K,) array of bool
        Which of its experts define the centre. Not kept are experts far from those of other sites, which are hardly
        shrunk, and experts with too few rows, which are shrunk fully.
    gate_shrinkage : float
        Shrinkage of the slopes of its gate; NaN if the gate has none.
    reasons : tuple of str
        Reasons why it was not used as a whole.
    remarks : tuple of str
        Other remarks on the site.
    model : {"shared", "centre", "one", "regression", "own"}
        What the site gets: the shared mixture, or a rival that explains its rows better.
    influence : SiteInfluence or None
        The coefficient of the centre that would change most without it.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.methods import SiteShare
    >>> site = SiteShare("north", 150.0, np.array([0.8, 0.7]), np.array([True, True]), np.nan)
    >>> print(site)
    north: shared: shrinkage 75 %
    """

    name: str
    weight: float
    shrinkage: Array
    kept: Mask
    gate_shrinkage: float
    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    model: Kind = "shared"
    influence: SiteInfluence | None = None

    @classmethod
    def gone(cls, name: str, reason: str) -> SiteShare:
        """Return the entry of a site without a usable answer."""
        return cls(name, np.nan, np.zeros(0), np.zeros(0, dtype=bool), np.nan, (reason,))

    def with_model(self, model: Kind) -> SiteShare:
        """Return the entry of a site that gets a rival of the shared mixture."""
        if model == "shared":
            return self
        found = replace(self, model=model, remarks=(*self.remarks, GETS[model]))
        if model != "own":
            return found
        return replace(found, shrinkage=np.zeros_like(self.shrinkage), gate_shrinkage=self.gate_shrinkage * 0)

    @property
    def own(self) -> bool:
        """Whether the site keeps its own fit."""
        return self.model == "own"

    @property
    def borrowed(self) -> float:
        """Return the fraction of its model that comes from other sites."""
        return {"centre": 1.0, "one": 1.0, "regression": 0.0}.get(self.model, float(self.shrinkage.mean()))

    @property
    def agreement(self) -> float:
        """Return the fraction of its experts, of those with rows, that define the centre; 0 without an answer."""
        own = self.kept | (self.shrinkage < 1)
        return float(self.kept[own].mean()) if np.any(own) else 0.0

    @property
    def status(self) -> str:
        """Return how the site was used, such as ``"shared"``, ``"one regression"`` or ``"on its own"``.

        The others are ``"shared in part"``, ``"borrows all"`` and ``"no answer"``.
        """
        if not len(self.kept):
            return "no answer"
        if self.model in ("one", "regression"):
            return "one regression"
        if np.all(~self.kept & (self.shrinkage == 1)):
            return "borrows all"
        if self.own or self.agreement == 0:
            return "on its own"
        return "shared" if self.agreement == 1 else "shared in part"

    def __str__(self) -> str:
        shrinkage = (f"shrinkage {self.shrinkage.mean():.0%}".replace("%", " %"),) if len(self.shrinkage) else ()
        return f"{self.name}: {self.status}: " + "; ".join((*shrinkage, *self.reasons, *self.remarks))


@dataclass(frozen=True, eq=False)
class ShrunkFit(InferredFit):
    """The fit of one site, without standard errors, of which a fraction comes from the other sites.

    Parameters
    ----------
    borrowed : float
        Mean shrinkage of its experts.
    """

    borrowed: float

    @property
    def effective_parameters(self) -> float:
        """Number of parameters that the site's own rows determine."""
        return (1 - self.borrowed) * self.parameter_count


@dataclass(frozen=True, eq=False)
class SharedFit(InferredFit):
    """A centre and each site's own mixture, with the shrinkage of each.

    Its mixture is the centre's. Its likelihood is the sum over sites of the likelihood of each site's rows under its
    own mixture, at the last question.

    Parameters
    ----------
    inference : Inference
        Standard errors of the centre's coefficients: from sampling error at sites and differences between sites.
    sharing : Sharing
    fits : mapping of str to Fit
        Fit of each site.
    sites : tuple of SiteShare
    camps : Camps or None
        Whether the sites form two camps; None if not tested.
    rivals : SharedRivals
        Simpler models of the same rows.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import Federation, GaussianMixture, SharedCentre
    >>> rng = np.random.default_rng(0)
    >>> def rows(shift):
    ...     return np.r_[rng.normal(0 + shift, 1, (60, 2)), rng.normal(6 + shift, 1, (40, 2))]
    >>> sites = Federation({name: (rows(shift),) for name, shift in zip("abcde", (0.0, 0.1, -0.1, 0.05, 40.0))})
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):  # e is not used
    ...     result = sites.fit(GaussianMixture(2, random_state=0), method=SharedCentre())
    >>> result.fit.trusted, [site.status for site in result.sites]
    (True, ['shared', 'shared', 'shared', 'shared', 'on its own'])
    """

    sharing: Sharing
    fits: Mapping[str, Fit]
    sites: tuple[SiteShare, ...]
    camps: Camps | None = None
    rivals: SharedRivals = field(default=SharedRivals(), kw_only=True)

    def evidence(self) -> tuple[SiteShare, ...]:
        """Return how each site was used, and its shrinkage."""
        return self.survey.added_to(self.sites)

    def site_fits(self) -> Mapping[str, ShrunkFit]:
        """Return each site's own fit, without standard errors."""
        borrowed = {site.name: site.borrowed for site in self.sites if len(site.shrinkage)}
        return {
            site: ShrunkFit(
                **vars(fit),
                inference=withhold_inference(parameters(fit.mixture), BETWEEN_SITES, OF_A_SITE),
                borrowed=borrowed[site],
            )
            for site, fit in self.fits.items()
        }

    @property
    def trusted(self) -> bool:
        """Whether there are no :attr:`doubts`: most sites agree, form no groups, and mixtures beat regressions."""
        return not self.doubts

    @property
    def doubts(self) -> tuple[str, ...]:
        """Return the reasons not to trust the centre; empty if it is trusted."""
        agreeing, all_sites = self.agreeing, len(self.sites)
        found = []
        if agreeing < ENOUGH * all_sites:
            found.append(
                f"only {agreeing} of {all_sites} sites agree; the centre is robust if fewer than half are outlying"
            )
        silent = float(np.mean(~self.sharing.kept & (self.sharing.shrinkage == 1), axis=0).max(initial=0.0))
        if silent > 1 - ENOUGH:
            found.append(f"{silent:.0%} of the sites have too few rows of one of the experts".replace("%", " %"))
        if self.camps is not None and self.camps.found:
            found.append(self.camps.text)
        elif self.sharing.division > 1:
            found.append(
                "the sites form groups: their differences have a common direction beyond sampling error, and the "
                "centre lies between the groups"
            )
        return (*found, *self.rivals.doubts, *self.survey.doubts)

    @property
    def agreeing(self) -> int:
        """Return the number of sites whose experts, of those with rows, all define the centre."""
        return sum(site.agreement == 1 and not site.reasons for site in self.sites)

    def with_dropped(self, dropped: Mapping[str, str]) -> SharedFit:
        """Return the fit with the sites that the run dropped, and the reasons."""
        known = {site.name: site for site in self.sites}
        sites = [replace(known[n], reasons=(*known[n].reasons, why)) for n, why in dropped.items() if n in known]
        gone = [SiteShare.gone(name, why) for name, why in dropped.items() if name not in known]
        rest = [site for site in self.sites if site.name not in dropped]
        return replace(self, sites=(*rest, *sites, *gone))


@dataclass(frozen=True, eq=False)
class LastRound:
    """State of a method after its last round, in the coordinates and labels of its rounds.

    Parameters
    ----------
    sharing : Sharing
    asked : mapping of str to Mixture
        Mixture of the last question to each site.
    statistics : mapping of str to Statistics
        Answer of each site to its last question.
    weights : mapping of str to float
    remarks : mapping of str to sequence of str
        Reasons to distrust a site, other than its distance from the centre.
    rounds : int
    stop : StopReason
    best : mapping of str to Rival
        Best model of each site; a site that is missing gets its shared mixture, with the log-likelihood of the last
        question.
    undetermined : mapping of str to int
        Number of directions of a site's coefficients that its rows do not determine.
    camps : Camps or None
        Whether the sites form two camps.
    rivals : SharedRivals
    """

    sharing: Sharing
    asked: Mapping[str, Mixture]
    statistics: Mapping[str, Statistics]
    weights: Mapping[str, float]
    remarks: Mapping[str, Sequence[str]]
    rounds: int
    stop: StopReason
    best: Mapping[str, Rival] = field(default_factory=dict)
    undetermined: Mapping[str, int] = field(default_factory=dict)
    camps: Camps | None = None
    rivals: SharedRivals = field(default_factory=SharedRivals)

    def fit(self, penalty: Penalty) -> SharedFit:
        """Return the fit, with experts by decreasing weight in the centre."""
        sites = tuple(self.sharing.mixtures)
        labels = np.array([self.statistics[site].gate.plain[: self.sharing.centre.K] for site in sites])
        permutation = np.argsort(-np.median(labels / labels.sum(axis=1, keepdims=True), axis=0), kind="stable")
        rows = np.array([self.statistics[site].experts.plain[: self.sharing.centre.K] for site in sites])
        value = sum(self._mixture(site)[1] for site in sites)
        weight = sum(self.statistics[site].weight for site in sites)
        ascent = Ascent.without_steps(
            self.sharing.centre,
            labels.sum(axis=0),
            log_likelihood=float(value),
            weight=float(weight),
            penalty=penalty,
            passes=self.rounds,
            stop=self.stop,
        )
        centre = Fit(self.sharing.centre.permuted(permutation).raw(), ascent, permutation, penalty, StartEnds())
        return SharedFit(
            **vars(centre),
            inference=centre_inference(centre, self.sharing, rows, self.rivals),
            sharing=self.sharing.permuted(permutation),
            fits={site: self._site_fit(site, permutation, penalty) for site in sites},
            sites=self._shares(sites, permutation),
            camps=self.camps,
            rivals=self.rivals,
        )

    def _site_fit(self, site: str, permutation: IntArray, penalty: Penalty) -> Fit:
        mixture, value = self._mixture(site)
        statistics = replace(self.statistics[site], log_likelihood=value)
        if len(permutation) > mixture.K:  # one regression
            weight, permutation = statistics.weight, np.zeros(1, dtype=np.intp)
            ascent = Ascent.without_steps(
                mixture,
                np.array([weight]),
                log_likelihood=value,
                weight=weight,
                penalty=penalty,
                passes=self.rounds,
                stop=self.stop,
            )
        else:
            trace = (mixture.penalised(statistics, penalty),)
            ascent = Ascent(self.asked[site], statistics, trace, self.rounds, 0, 0, self.stop)
        return Fit(mixture.permuted(permutation).raw(), ascent, permutation, penalty, StartEnds())

    def _mixture(self, site: str) -> tuple[Mixture, float]:
        """Return the mixture that a site gets, and its log-likelihood."""
        if site in self.best:
            return self.best[site].mixture, self.best[site].log_likelihood
        return self.sharing.mixtures[site], self.statistics[site].log_likelihood

    def _shares(self, sites: tuple[str, ...], permutation: IntArray) -> tuple[SiteShare, ...]:
        sharing = self.sharing
        found = []
        for m, name in enumerate(sites):
            kept, shrinkage = sharing.kept[m][permutation], sharing.shrinkage[m][permutation]
            weight = self.weights[name]
            gate = float(sharing.gate_shrinkage[m]) if sharing.centre.gate.reads_covariates else np.nan
            reasons = (*self.remarks.get(name, ()), *_reasons(kept, shrinkage))
            remarks = tuple(_remarks(kept, shrinkage, self.undetermined.get(name, 0)))
            site = SiteShare(name, weight, shrinkage, kept, gate, reasons, remarks)
            found.append(site.with_model(self.best[name].kind) if name in self.best else site)
        found += [SiteShare.gone(name, NOTHING) for name in self.weights if name not in sites]
        return tuple(found)


def _reasons(kept: Mask, shrinkage: Array) -> Iterator[str]:
    far = int(np.sum(~kept & (shrinkage < 1)))
    if far:
        yield (
            f"{far} of its {len(kept)} experts are further from those of the other sites than sampling error and the "
            "usual differences explain: they are shrunk less, and excluded from the centre"
        )
    if np.all(~kept & (shrinkage == 1)):
        yield "it has too few rows, or too large standard errors, for every expert: it gets those of the centre"


def _remarks(kept: Mask, shrinkage: Array, undetermined: int) -> Iterator[str]:
    silent = int(np.sum(~kept & (shrinkage == 1)))
    if 0 < silent < len(kept):
        rest = f"{silent} of the {len(kept)} experts"
        yield f"it has too few rows, or too large standard errors, for {rest}: it gets those of the centre"
    if undetermined:
        yield (
            f"its rows do not determine {undetermined} of the directions of its experts' coefficients: there it gets "
            "the centre's"
        )


def centre_inference(fit: Fit, sharing: Sharing, rows: Array, rivals: SharedRivals) -> Inference:
    """Compute standard errors of the centre's coefficients, with one degree of freedom less than sites if they differ.

    Those of gate and variances are not known. All are withheld if a typical site has too few rows of an expert, or if
    regressions explain the rows better: labels then follow the noise, and the sites' standard errors are too small.

    Parameters
    ----------
    fit : Fit
        Fit of the centre.
    sharing : Sharing
        In the order of experts of ``fit.ascent``.
    rows : (M, K) array
        Number of rows of each expert at each site.
    rivals : SharedRivals
    """
    withheld = {"gate": "the centre of the sites' gates has no standard errors"}
    mixture, p = sharing.centre, coefficients_per_row(sharing.centre)
    fewest = float(np.median(rows, axis=0).min())
    if not np.all(np.isfinite(sharing.covariance)):
        withheld["experts"] = "this method does not compute standard errors"
    elif mixture.K > 1 and fewest < ROWS_AT_A_SITE * p:
        have = f"{fewest:.0f} rows of an expert at a typical site for its {p} coefficients"
        withheld["experts"] = f"{have}, at least {ROWS_AT_A_SITE * p:.0f} are needed: use fewer covariates or experts"
    elif rivals.doubts:
        withheld["experts"] = "one regression explains the rows better than a mixture: its experts are not determined"
    found = infer_coefficients(fit, sharing.covariance, BETWEEN_SITES, withheld)
    sites = np.where(sharing.between > 0, np.maximum(sharing.kept.sum(axis=0), 2.0), np.inf)
    return replace(found, degrees=degrees_of_freedom(found.estimates, sites[fit.permutation], 1))
