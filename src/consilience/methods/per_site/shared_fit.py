"""Result of methods that fit one model per site: the centre, each site's model, and its shrinkage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from consilience.aggregate.robust.sharing import Sharing
from consilience.fit.climb import Ascent
from consilience.fit.fitting import Fit
from consilience.fit.inference import Inference, InferredFit, of_coefficients
from consilience.fit.stop import StopReason
from consilience.model.mixture import Mixture
from consilience.model.penalty import Penalty
from consilience.model.statistics import Statistics
from consilience.numerics.arrays import Array, IntArray, Mask

ENOUGH = 0.6
"""Share of the sites that must agree before the result is called trusted."""
UNUSUAL = 10.0
"""Times the median number of rows from which on a site's own account of them is remarked on."""
NOTHING = "it was not asked, has too few rows for a fit, or has sent numbers that cannot be used"
OF_A_SITE = (
    "a site's mixture is drawn towards the centre by as much as the data say: intervals that know of it are not made"
)


@dataclass(frozen=True, eq=False)
class SiteShare:
    """How one site was used, and its shrinkage towards the centre.

    Parameters
    ----------
    name : str
    weight : float
        By the site's own account.
    shrinkage : (K,) array
        Share of its coefficients that comes from the other sites, for each expert; empty for a site without answer.
    kept : (K,) array of bool
        Which of its experts the centre is made of: not those far from the other sites', where it keeps (nearly) its
        own, nor those it has too few rows of, where it borrows all.
    gate_shrinkage : float
        The same for the slopes of its gate; NaN where the gate has none.
    reasons : tuple of str
        Why not all of it was used.
    remarks : tuple of str
        What else a reader should know of it.

    Examples
    --------
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

    @classmethod
    def gone(cls, name: str, reason: str) -> SiteShare:
        """A site that gave no answer that could be used."""
        return cls(name, np.nan, np.zeros(0), np.zeros(0, dtype=bool), np.nan, (reason,))

    @property
    def agreement(self) -> float:
        """Share of the experts it has rows of that the centre is made of; 0 for a site without answer."""
        own = self.kept | (self.shrinkage < 1)
        return float(self.kept[own].mean()) if np.any(own) else 0.0

    @property
    def status(self) -> str:
        """``"shared"``, ``"shared in part"``, ``"on its own"``, ``"borrows all"`` or ``"no answer"``."""
        if not len(self.kept):
            return "no answer"
        if np.all(~self.kept & (self.shrinkage == 1)):
            return "borrows all"
        if self.agreement == 0:
            return "on its own"
        return "shared" if self.agreement == 1 else "shared in part"

    def __str__(self) -> str:
        shrinkage = (f"shrinkage {self.shrinkage.mean():.0%}".replace("%", " %"),) if len(self.shrinkage) else ()
        return f"{self.name}: {self.status}: " + "; ".join((*shrinkage, *self.reasons, *self.remarks))


@dataclass(frozen=True, eq=False)
class SharedFit(InferredFit):
    """A centre and each site's own mixture, with the shrinkage of each.

    As a :class:`~consilience.fit.Fit` it is the centre's. Its likelihood is the sum over sites of each one's rows under
    its own mixture, where that was last asked.

    Parameters
    ----------
    inference : Inference
        Of the centre's coefficients: chance at the sites and differences between them.
    sharing : Sharing
    fits : mapping of str to Fit
        Each site's own.
    sites : tuple of SiteShare

    Examples
    --------
    >>> from consilience import Federation, GaussianMixture, SharedCentre
    >>> rng = np.random.default_rng(0)
    >>> def rows(shift):
    ...     return np.r_[rng.normal(0 + shift, 1, (60, 2)), rng.normal(6 + shift, 1, (40, 2))]
    >>> sites = Federation({name: (rows(shift),) for name, shift in zip("abcde", (0.0, 0.1, -0.1, 0.05, 40.0))})
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):  # that e is not used
    ...     result = sites.fit(GaussianMixture(2, random_state=0), method=SharedCentre())
    >>> result.fit.trusted, [site.status for site in result.sites]
    (True, ['shared', 'shared', 'shared', 'shared', 'on its own'])
    """

    sharing: Sharing
    fits: Mapping[str, Fit]
    sites: tuple[SiteShare, ...]

    def evidence(self) -> tuple[SiteShare, ...]:
        """Return how each site was used, and its shrinkage."""
        return self.sites

    def site_fits(self) -> Mapping[str, InferredFit]:
        """Return each site's own fit; it has no standard errors."""
        return {site: InferredFit.without(fit, OF_A_SITE, "between sites") for site, fit in self.fits.items()}

    @property
    def trusted(self) -> bool:
        """Whether most sites agree: at least 60 % of them, and not in two camps."""
        return not self.doubts

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why the centre is not to be trusted; empty where it is."""
        agreeing, all_sites = self.agreeing, len(self.sites)
        found = []
        if agreeing < ENOUGH * all_sites:
            found.append(
                f"only {agreeing} of {all_sites} sites agree, and a centre withstands less than half that are wrong"
            )
        silent = float(np.mean(~self.sharing.kept & (self.sharing.shrinkage == 1), axis=0).max(initial=0.0))
        if silent > 1 - ENOUGH:
            found.append(f"{silent:.0%} of the sites have no rows of one of the experts".replace("%", " %"))
        if self.sharing.division > 1:
            found.append(
                "the sites fall into camps that differ in one common direction, by more than chance: the centre lies "
                "between them, and which camp is right these data do not say"
            )
        return tuple(found)

    @property
    def agreeing(self) -> int:
        """Number of sites that the centre is made of, with all of their experts that they have rows of."""
        return sum(site.agreement == 1 and not site.reasons for site in self.sites)

    def with_dropped(self, dropped: Mapping[str, str]) -> SharedFit:
        """The same with the sites that a run dropped, whose answers could not be used."""
        known = {site.name: site for site in self.sites}
        sites = [replace(known[n], reasons=(*known[n].reasons, why)) for n, why in dropped.items() if n in known]
        gone = [SiteShare.gone(name, why) for name, why in dropped.items() if name not in known]
        rest = [site for site in self.sites if site.name not in dropped]
        return replace(self, sites=(*rest, *sites, *gone))


@dataclass(frozen=True, eq=False)
class LastRound:
    """Where the rounds of a method ended, in the coordinates and labels of its rounds.

    Parameters
    ----------
    sharing : Sharing
    asked : mapping of str to Mixture
        What each site was asked about last.
    statistics : mapping of str to Statistics
        Its answer.
    weights : mapping of str to float
    remarks : mapping of str to sequence of str
        Reasons not to believe a site, besides where it lies.
    rounds : int
    stop : StopReason
    """

    sharing: Sharing
    asked: Mapping[str, Mixture]
    statistics: Mapping[str, Statistics]
    weights: Mapping[str, float]
    remarks: Mapping[str, Sequence[str]]
    rounds: int
    stop: StopReason

    def fit(self, penalty: Penalty) -> SharedFit:
        """The fit, experts by decreasing share in the centre."""
        sites = tuple(self.sharing.mixtures)
        labels = np.array([self.statistics[site].gate.plain[: self.sharing.centre.K] for site in sites])
        permutation = np.argsort(-np.median(labels / labels.sum(axis=1, keepdims=True), axis=0), kind="stable")
        value = sum(self.statistics[site].log_likelihood for site in sites)
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
        centre = Fit(self.sharing.centre.permuted(permutation).raw(), ascent, permutation, penalty, ())
        return SharedFit(
            **vars(centre),
            inference=centre_inference(centre, self.sharing.covariance),
            sharing=self.sharing.permuted(permutation),
            fits={site: self._site_fit(site, permutation, penalty) for site in sites},
            sites=self._shares(sites, permutation),
        )

    def _site_fit(self, site: str, permutation: IntArray, penalty: Penalty) -> Fit:
        asked, statistics = self.asked[site], self.statistics[site]
        value = asked.penalised(statistics, penalty)
        ascent = Ascent(asked, statistics, (value,), self.rounds, 0, 0, self.stop)
        return Fit(self.sharing.mixtures[site].permuted(permutation).raw(), ascent, permutation, penalty, ())

    def _shares(self, sites: tuple[str, ...], permutation: IntArray) -> tuple[SiteShare, ...]:
        sharing, usual = self.sharing, float(np.median(list(self.weights.values())))
        found = []
        for m, name in enumerate(sites):
            kept, shrinkage, weight = (
                sharing.kept[m][permutation],
                sharing.shrinkage[m][permutation],
                self.weights[name],
            )
            gate = float(sharing.gate_shrinkage[m]) if sharing.centre.gate.reads_covariates else np.nan
            reasons = (*self.remarks.get(name, ()), *_reasons(kept, shrinkage))
            found.append(
                SiteShare(
                    name, weight, shrinkage, kept, gate, reasons, tuple(_remarks(kept, shrinkage, weight / usual))
                )
            )
        found += [SiteShare.gone(name, NOTHING) for name in self.weights if name not in sites]
        return tuple(found)


def _reasons(kept: Mask, shrinkage: Array) -> Iterator[str]:
    far = int(np.sum(~kept & (shrinkage < 1)))
    if far:
        yield (
            f"{far} of its {len(kept)} experts are further from the other sites' than chance and the usual differences "
            "allow: there it keeps more of its own, and has no say in the centre"
        )
    if np.all(~kept & (shrinkage == 1)):
        yield "it has too few rows of every expert, or is too unsure of them: it has the centre's"


def _remarks(kept: Mask, shrinkage: Array, times: float) -> Iterator[str]:
    silent = int(np.sum(~kept & (shrinkage == 1)))
    if 0 < silent < len(kept):
        yield f"it has too few rows of {silent} of the {len(kept)} experts, or is too unsure: there it has the centre's"
    if times > UNUSUAL:
        yield f"by its own account it has {times:.3g} times the usual number of rows"


def centre_inference(fit: Fit, covariance: Array) -> Inference:
    """Standard errors of the centre's coefficients ``(K, f, f)``; those of gate and variances are not made."""
    withheld = {"gate": "the centre of the sites' gates has no standard errors"}
    if not np.all(np.isfinite(covariance)):
        withheld["experts"] = "this method makes no standard errors"
    return of_coefficients(fit, covariance, "between sites", withheld)
