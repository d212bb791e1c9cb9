"""What a federated fit ends with: the fitted model, the comparison of orders, and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from consilience.errors import ConvergenceWarning, SetAsideWarning, SuspectDataWarning, UntrustedWarning, warn
from consilience.estimators.estimator import MixtureEstimator
from consilience.estimators.federated import adopt_fit
from consilience.federation.federated_fit import FederatedFit, FederatedOrders
from consilience.fit.fitting import Fit
from consilience.fit.stop import StopReason
from consilience.runs.record import Record


def compared(orders: Sequence[int], fits: Sequence[FederatedFit | None], criterion: str) -> FederatedOrders:
    """Return the comparison of the fits, with degenerate ones and orders without a fit set aside."""
    reasons = {
        K: "the sites have too few experts for it" if fit is None else fit.model.degeneracy_
        for K, fit in zip(orders, fits, strict=True)
    }
    set_aside = {K: reason for K, reason in reasons.items() if reason}
    found = [(K, fit) for K, fit in zip(orders, fits, strict=True) if fit is not None]
    return FederatedOrders(tuple(K for K, _ in found), tuple(fit for _, fit in found), criterion, set_aside)


def fitted_model(model: MixtureEstimator, fit: Fit, record: Record) -> FederatedFit:
    """Return the fitted model, and a copy of it for each site that has its own fit."""
    fit = fit.with_dropped(record.dropped)
    models = {site: adopt_fit(copy(model), own) for site, own in fit.site_fits().items()}
    return FederatedFit(adopt_fit(model, fit), record, fit, models)


def warn_of(fitted: FederatedFit) -> None:
    """Warn if rounds were too few, if the fit has doubts, or if a site is suspect or was not used as a whole."""
    if fitted.fit.ascent.stop is StopReason.ROUNDS:
        warn(f"{fitted.fit.ascent.stop}; raise rounds", ConvergenceWarning)
    if fitted.fit.doubts:
        warn(f"the result cannot be trusted: {'; '.join(fitted.fit.doubts)}", UntrustedWarning)
    reasons = "; ".join(f"{site.name}: {reason}" for site in fitted.sites for reason in site.reasons)
    if reasons:
        warn(f"some sites were not used as a whole: {reasons}. See FederatedFit.sites", SetAsideWarning)
    explained = {site.name for site in fitted.sites if site.reasons}
    left = "; ".join(f"{site}: {why}" for site, why in fitted.record.dropped.items() if site not in explained)
    if left:
        warn(f"some sites left the run: {left}. See FederatedFit.record", SetAsideWarning)
    suspicions = fitted.fit.survey.suspicions
    if suspicions:
        listed = "; ".join(f"{site}: {', '.join(said)}" for site, said in suspicions.items())
        used = [site for site in suspicions if site not in explained]
        end = "They" if len(used) == len(suspicions) else ", ".join(used)
        note = f"{end} were used as they are" if used else "They were not used as a whole"
        warn(f"the data of some sites may be wrong: {listed}. {note}", SuspectDataWarning)
