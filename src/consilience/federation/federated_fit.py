"""Results of a federation: the fitted model, the record of the run, and diagnostics of each site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from consilience import errors
from consilience.estimators.estimator import MixtureEstimator
from consilience.estimators.federated import adopt_fit, frame_like
from consilience.estimators.order import CRITERIA
from consilience.fit import Fit, Inference, StopReason, criteria, infer
from consilience.fit.inference import BY_SITE, SANDWICH_UP_TO
from consilience.fit.selection import html_table, least_order, score_lines, set_aside_sentences
from consilience.fit.survey import SiteReport
from consilience.fitted.protocols import labelled, parameter_keys
from consilience.fitted.site_influence import influence_in_errors, site_influences, unit_influences, with_influences
from consilience.methods import OwnGatesFit, Privacy, PrivateFit
from consilience.runs import Record, Run

NAMES_SHOWN = 6
REMARKS_SHOWN = 5
LONGEST = 160
NAME = "padding:2px 10px;text-align:left"


def list_some(names: Sequence[str]) -> str:
    """List names; of many, the first and the last."""
    shown = names if len(names) <= NAMES_SHOWN else [*names[: NAMES_SHOWN // 2], "…", names[-1]]
    return ", ".join(shown)


def fit_lines(fitted: FederatedFit) -> list[tuple[str, str]]:
    """Return labels and texts of the overview of a fit; sites that were left out come first."""
    fit, record, sites = fitted.fit, fitted.record, fitted.sites
    left_out = [site for site in sites if getattr(site, "status", "") == "set aside"]
    lines = [("left out", f"{site.name}: {'; '.join(site.reasons)}") for site in left_out]
    lines += [
        ("model", f"{type(fitted.model).__name__}, {fitted.model.order_name}={fit.mixture.K}"),
        ("sites", _sites(sites, record.sites)),
        (labelled(fitted.model), f"{fit.ascent.statistics.weight:,.10g}"),
        ("rounds", f"{len(record.rounds):,}, {record.bytes_sent:,} bytes sent, {record.bytes_received:,} received"),
        ("log-likelihood", _likelihood(fitted)),
        ("end", str(fit.ascent.stop)),
    ]
    if fitted.privacy is not None:
        lines.append(("privacy", str(fitted.privacy)))
    if fitted.models:
        lines.append(("models", f"one for each of {len(fitted.models)} sites: {list_some(list(fitted.models))}"))
    if isinstance(fit, OwnGatesFit):
        lines.append(("gates", f"one of each site, common experts; {fit.test}. Shares by site: .shares()"))
    lines += [("doubt", _cut(doubt)) for doubt in fit.doubts]
    lines += lines_on_influence(fitted)
    noted = [site for site in sites if (site.reasons or site.remarks) and site not in left_out]
    lines += [("site", _cut(str(site))) for site in noted[:REMARKS_SHOWN]]
    if len(noted) > REMARKS_SHOWN:
        lines.append(("", f"… and {len(noted) - REMARKS_SHOWN} more sites with remarks"))
    return lines


def _likelihood(fitted: FederatedFit) -> str:
    """Return the log-likelihood and BIC, if they are known."""
    if np.isnan(fitted.fit.log_likelihood):
        return "not known: no site was asked for it"
    return f"{fitted.fit.log_likelihood:.3f}" + (f", BIC {fitted.bic:.3f}" if fitted.has_criteria else "")


def lines_on_influence(fitted: FederatedFit) -> list[tuple[str, str]]:
    """Return the institutions on which the result depends; if there are none, the one that has most influence."""
    found = unit_influences(fitted.model, fitted.fit)
    if not found:
        return []
    large = [("influence", str(each)) for each in found if each.large]
    return large or [("influence", f"largest: {max(found, key=lambda each: abs(each.change.change))}")]


def _sites(reports: Sequence[SiteReport], names: Sequence[str]) -> str:
    """Return the number of sites by status, and some of their names."""
    statuses = Counter(getattr(report, "status", "used") for report in reports)
    said = ", ".join(f"{number} {status}" for status, number in statuses.items())
    return f"{len(names)}" + (f" ({said})" if len(statuses) > 1 else "") + f": {list_some(names)}"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


# ---------------------------------------------------------------- federated fit

UNKNOWN = (
    "how the coefficients would change without a site is not known here: FederatedEM, OneShot, SharedCentre and "
    "ClusteredClients know it of two or more sites (ClusteredClients of three or more), unless only totals over sites "
    "were asked for, or the information is not positive definite"
)
KINDS = ("observed", "sandwich", "larger", BY_SITE)
"""Kinds of standard errors that the answers of sites give."""


@dataclass(frozen=True, eq=False, repr=False)
class FederatedFit:
    """A model fitted over sites, with the record of the run.

    Parameters
    ----------
    model : estimator
        The fitted estimator.
    record : Record
        Questions of each round, and what each site disclosed.
    fit : Fit
    models : mapping of str to estimator
        Model of each site, for methods that fit one per site (:class:`SharedCentre`, :class:`FedGrEM`); ``model`` is
        then the model of the centre. Empty for other methods.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import Federation, GaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (200, 1)), rng.normal(8, 1, (100, 1))])
    >>> sites = Federation({"north": (X[::2],), "south": (X[1::2],)})
    >>> result = sites.fit(GaussianMixture(2, random_state=0))
    >>> result.model.weights_.round(2), result.record.rounds[0].question
    (array([0.67, 0.33]), 'Summarise')
    """

    model: MixtureEstimator
    record: Record
    fit: Fit
    models: Mapping[str, MixtureEstimator] = field(default_factory=dict)

    @property
    def sites(self) -> Sequence[SiteReport]:
        """Return a report on each site: how it was used, what is suspect about its data, and its influence."""
        return with_influences(self.fit.evidence(), site_influences(self.model, self.fit))

    @property
    def aic(self) -> float:
        """Return Akaike's criterion over the rows of all sites that were not dropped."""
        self.check_one_mixture("AIC")
        return criteria.aic(self.fit.log_likelihood, self.fit.parameter_count)

    @property
    def bic(self) -> float:
        """Return Schwarz's criterion over the rows of all sites that were not dropped."""
        self.check_one_mixture("BIC")
        weight = self.fit.ascent.statistics.weight
        return criteria.bic(self.fit.log_likelihood, self.fit.parameter_count, weight)

    @property
    def icl(self) -> float:
        """Return BIC plus twice the entropy of the responsibilities; NaN if the answers of sites do not state it.

        They do for a constant gate with Gaussian or Student-t experts, if the likelihood was computed at the sites.
        """
        entropy = None if self.models else criteria.entropy_of_sums(self.fit.ascent.mixture, self.fit.ascent.statistics)
        return self.bic + 2 * (np.nan if entropy is None else entropy)

    @property
    def privacy(self) -> Privacy | None:
        """Return what a run with noise may have disclosed about a row; None for a fit without noise."""
        return self.fit.privacy if isinstance(self.fit, PrivateFit) else None

    @property
    def settled(self) -> bool:
        """Whether the fit has converged; with noise, whether the last total was no more than noise and chance."""
        return self.fit.settled if isinstance(self.fit, PrivateFit) else self.fit.ascent.stop.converged

    def infer(self, kind: str) -> Inference:
        """Compute standard errors of another kind from what the sites have sent, without the variance between sites.

        Parameters
        ----------
        kind : {"observed", "sandwich", "larger", "clustered by site"}
            As in ``infer`` of the model; the sandwich whose clusters are the sites needs 20 of them.

        Returns
        -------
        Inference
            Assign it to ``model.inference_`` to use it in ``model.summary()``.
        """
        if self.models:
            raise errors.InvalidInputError(
                f"kind={kind!r} is for one mixture of all sites: fit with FederatedEM or OneShot"
            )
        if kind not in KINDS:
            raise errors.InvalidInputError(f"kind={kind!r}: expected one of {', '.join(map(repr, KINDS))}")
        if kind in ("sandwich", "larger") and self.fit.meat is None:
            raise errors.InvalidInputError(
                f"kind={kind!r}: the sites were not asked for products of scores; FederatedEM and OneShot(refine=1) "
                f"ask for them if all sites together have at most {SANDWICH_UP_TO:,} rows or groups, or have clusters"
            )
        return infer(self.fit, kind=kind)

    def __repr__(self) -> str:
        lines = [f"  {label:<16}{text}" for label, text in fit_lines(self)]
        rest = "Coefficients: .model.summary(). What sites disclosed: print(.record). Each site: .sites"
        return "\n".join(["FederatedFit", *lines, rest])

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><td style="{NAME}">{label}</td><td style="{NAME}">{escape(text)}</td></tr>'
            for label, text in fit_lines(self)
        )
        return f"<div><strong>FederatedFit</strong><table>{rows}</table>{self.model._repr_html_()}</div>"

    def report(self, path: str | Path, *, title: str = "") -> None:
        """Write a report for people: an HTML file, or a model card if the name ends in ``.md``.

        Parameters
        ----------
        path : str or Path
        title : str
            Title of the report; by default the kind of model.
        """
        from consilience.report import write_report  # only here: it imports much

        write_report(self, path, title=title)

    def shares(self, level: float = 0.95) -> Any:
        """Return a table of the experts' shares at each site with intervals, for a fit with a gate of each site.

        Parameters
        ----------
        level : float
            Confidence level.
        """
        if not isinstance(self.fit, OwnGatesFit):
            raise errors.InvalidInputError(
                'shares by site need a gate of each site: pass method=FederatedEM(per_site="gate")'
            )
        return frame_like(self.model, self.fit.shares(level))

    def influence(self) -> Any:
        """Return a table of how each coefficient would change without each site, in its standard errors.

        All sites of an institution are left out together. The change is computed by combining the models again for
        :class:`OneShot` without refinement and by computing the centre again for :class:`SharedCentre`; it is estimated
        by one step from the scores of the sites for :class:`FederatedEM`, :class:`OneShot` with refinement and
        :class:`ClusteredClients`. It is NaN for parameters without standard errors.
        """
        if self.fit.left_out is None:
            raise errors.InvalidInputError(UNKNOWN)
        keys = parameter_keys(self.model)
        rows = [
            (unit, *key, float(change))
            for unit, changes in influence_in_errors(self.model, self.fit).items()
            for key, change in zip(keys, changes, strict=True)
            if key is not None
        ]
        names = ("site", "part", "expert", "response", "term", "change")
        return frame_like(self.model, {name: [row[i] for row in rows] for i, name in enumerate(names)})

    @property
    def influential(self) -> dict[str, str]:
        """Return the institutions without which a coefficient would change by more than two errors and chance."""
        found = unit_influences(self.model, self.fit)
        return {each.unit: str(each).removeprefix(f"{each.unit}: ") for each in found if each.large}

    @property
    def has_criteria(self) -> bool:
        """Whether AIC and BIC are defined: the result is the maximum of one likelihood of all rows."""
        return not self.models or isinstance(self.fit, OwnGatesFit)

    def check_one_mixture(self, criterion: str) -> None:
        """Raise an error if the method fits one mixture per site, of which no criterion is defined."""
        if not self.has_criteria:
            raise errors.InvalidInputError(
                f"{criterion} is not defined for a method that fits one mixture per site: choose the number of experts "
                "with FederatedEM or OneShot"
            )


@dataclass(frozen=True, eq=False, repr=False)
class FederatedOrders:
    """Fits with several numbers of experts, computed in the same messages.

    Parameters
    ----------
    orders : tuple of int
    fits : tuple of FederatedFit
        One per order.
    criterion : {"bic", "aic", "icl"}
        The criterion used for the choice.
    set_aside : mapping of int to str
        Orders that are not compared, with the reason: the fit is degenerate, or could not be made (such orders have no
        place in ``orders``). If all fits are degenerate, all are compared.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import Federation, GaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (200, 1)), rng.normal(8, 1, (100, 1))])
    >>> sites = Federation({"north": (X[::2],), "south": (X[1::2],)})
    >>> chosen = sites.select_order(GaussianMixture(random_state=0), orders=[1, 2])
    >>> chosen.best_order
    2
    >>> print(chosen)
               order             aic             bic             icl  log_likelihood
                   1         1661.99          1669.4          1669.4        -828.995
                   2         1249.31         1267.82         1267.83        -619.653
    Selected by bic: 2.
    """

    orders: tuple[int, ...]
    fits: tuple[FederatedFit, ...]
    criterion: str
    set_aside: Mapping[int, str] = field(default_factory=dict)

    @property
    def scores(self) -> dict[str, list[float]]:
        """Return AIC, BIC, ICL (NaN where it is not known) and the log-likelihood of each order."""
        found = {name: [float(getattr(fitted, name)) for fitted in self.fits] for name in CRITERIA}
        return {**found, "log_likelihood": [fitted.fit.log_likelihood for fitted in self.fits]}

    @property
    def best(self) -> FederatedFit:
        """Return the fit with the least criterion among those that are not set aside."""
        return self.fits[self.orders.index(self.best_order)]

    @property
    def best_order(self) -> int:
        """Return the number of experts of the best fit."""
        if len(self.orders) == 1:
            return self.orders[0]
        values = [float(getattr(fitted, self.criterion)) for fitted in self.fits]
        return least_order(self.orders, values, self.set_aside)

    def to_frame(self) -> Any:
        """Return a table with one row per order: criteria, convergence, and why it is set aside.

        It is a frame of the library that the data came from, else of pandas or pyarrow.
        """
        columns: dict[str, list[Any]] = {
            "order": list(self.orders),
            **self.scores,
            "converged": [fitted.model.converged_ for fitted in self.fits],
            "set_aside": [self.set_aside.get(K, "") for K in self.orders],
        }
        return frame_like(self.fits[0].model, columns)

    def report(self, path: str | Path, *, title: str = "") -> None:
        """Write a report on the best fit and on the comparison, as :meth:`FederatedFit.report` does."""
        from consilience.report import write_report  # only here: it imports much

        write_report(self, path, title=title)

    def summary(self) -> str:
        """Return the criteria of each order and the orders that are set aside as text."""
        chosen = f"Selected by {self.criterion}: {self.best_order}."
        return "\n".join([*score_lines(self.orders, self.scores), *set_aside_sentences(self.set_aside), chosen])

    def __repr__(self) -> str:
        """Return the summary."""
        return self.summary()

    def _repr_html_(self) -> str:
        said = [*set_aside_sentences(self.set_aside), f"Selected by {self.criterion}: {self.best_order}."]
        return html_table(self.orders, self.scores, said)


# ---------------------------------------------------------------- outcome


def compare_orders(orders: Sequence[int], fits: Sequence[FederatedFit | None], criterion: str) -> FederatedOrders:
    """Return the comparison of the fits, with degenerate ones and orders without a fit set aside."""
    reasons = {
        K: "the sites have too few experts for it" if fit is None else fit.model.degeneracy_
        for K, fit in zip(orders, fits, strict=True)
    }
    set_aside = {K: reason for K, reason in reasons.items() if reason}
    found = [(K, fit) for K, fit in zip(orders, fits, strict=True) if fit is not None]
    return FederatedOrders(tuple(K for K, _ in found), tuple(fit for _, fit in found), criterion, set_aside)


def build_models(models: Sequence[MixtureEstimator], done: Run[Sequence[Fit | None]]) -> list[FederatedFit | None]:
    """Return the models of a run over several orders; None where an order could not be fitted."""
    pairs = zip(models, done.value, strict=True)
    return [None if fit is None else build_model(model, fit, done.record) for model, fit in pairs]


def build_model(model: MixtureEstimator, fit: Fit, record: Record) -> FederatedFit:
    """Return the fitted model, and a copy of it for each site that has its own fit."""
    fit = fit.with_dropped(record.dropped)
    orders = {site: {model.order_name: own.mixture.K} for site, own in fit.site_fits().items()}  # 1 at some sites
    models = {s: adopt_fit(copy(model).set_params(**orders[s]), own) for s, own in fit.site_fits().items()}
    return FederatedFit(adopt_fit(model, fit), record, fit, models)


def warn_of(fitted: FederatedFit) -> None:
    """Warn if rounds were too few, if the fit has doubts, or if a site is suspect or was not used as a whole."""
    if fitted.fit.ascent.stop is StopReason.ROUNDS:
        errors.warn(f"{fitted.fit.ascent.stop}; raise rounds", errors.ConvergenceWarning)
    if fitted.fit.doubts:
        errors.warn(f"the result cannot be trusted: {'; '.join(fitted.fit.doubts)}", errors.UntrustedWarning)
    reasons = "; ".join(f"{site.name}: {reason}" for site in fitted.sites for reason in site.reasons)
    if reasons:
        errors.warn(f"some sites were not used as a whole: {reasons}. See FederatedFit.sites", errors.SetAsideWarning)
    explained = {site.name for site in fitted.sites if site.reasons}
    left = "; ".join(f"{site}: {why}" for site, why in fitted.record.dropped.items() if site not in explained)
    if left:
        errors.warn(f"some sites left the run: {left}. See FederatedFit.record", errors.SetAsideWarning)
    if influential := fitted.influential:
        listed = "; ".join(f"{site}: {said}" for site, said in influential.items())
        errors.warn(
            f"the result depends on single sites: {listed}. See FederatedFit.influence()", errors.InfluentialSiteWarning
        )
    suspicions = fitted.fit.survey.suspicions
    if suspicions:
        listed = "; ".join(f"{site}: {', '.join(said)}" for site, said in suspicions.items())
        used = [site for site in suspicions if site not in explained]
        end = "They" if len(used) == len(suspicions) else ", ".join(used)
        note = f"{end} were used as they are" if used else "They were not used as a whole"
        errors.warn(f"the data of some sites may be wrong: {listed}. {note}", errors.SuspectDataWarning)
