"""All rules on one file: a verdict with every check, and the evidence that goes into the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from consilience.errors import InvalidInputError
from consilience.files.study import Study
from consilience.messages.questions import LocalFit
from consilience.model.rows import Rows
from consilience.site.policy.check import Check
from consilience.site.policy.covariate_rules import covariate_rules
from consilience.site.policy.expert_rules import expert_rules
from consilience.site.policy.level_rules import level_rules
from consilience.site.policy.policy import Policy
from consilience.site.policy.precision_rules import precision_rules
from consilience.site.policy.site_rules import site_rules
from consilience.site.policy.weighted_rows import weighted_rows


@dataclass(frozen=True)
class Verdict:
    """Every check of a file. It has counts and stays at the site; :func:`evidence` is what leaves.

    Parameters
    ----------
    checks : tuple of Check
    policy : Policy
        The site's own policy.
    applied : Policy
        The policy that was applied, tightened by what the study asks.
    """

    checks: tuple[Check, ...]
    policy: Policy
    applied: Policy

    @property
    def kept(self) -> bool:
        """Whether all rules are kept."""
        return all(check.kept for check in self.checks)

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if not check.kept)


def checked(fit: LocalFit, rows: Rows, study: Study, policy: Policy) -> Verdict:
    """Hold everything in a site's file against its policy, tightened by the study's minimum rules.

    Parameters
    ----------
    fit : LocalFit
        What would leave.
    rows : Rows
        The rows of the fit, with covariates by the rules of the study.
    study : Study
    policy : Policy
        The site's own.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.fit.specification import Specification
    >>> from consilience.messages.questions import FitSite
    >>> from consilience.site.local_fit import local_fit
    >>> from consilience.site.site import Site
    >>> study = Study.from_text('''
    ... format = "consilience-study"
    ... version = 1
    ... name = "stay"
    ... seed = 1
    ... model = {response = "days", experts = [1]}
    ... columns = [{name = "days", kind = "number"}, {name = "age", kind = "number"}]
    ... ''')
    >>> rng = np.random.default_rng(0)
    >>> rows = Rows(rng.normal(size=(40, 1)), rng.normal(size=(40, 1)))
    >>> fit = local_fit(FitSite(Specification(K=1), (1,), seed=1), Site("north", rows))
    >>> [check.rule for check in checked(fit, rows, study, Policy.of_profile()).failed]
    ['min_rows']
    """
    if rows.X.shape[1] != len(study.covariates.terms):
        raise InvalidInputError(
            f"the rows have {rows.X.shape[1]} covariates and the study {len(study.covariates.terms)}: pass rows of it"
        )
    applied, model = policy.stricter(study.minimum), fit.model
    checks = site_rules(rows, None if model is None else model.mixture, study, applied)
    checks += level_rules(rows, study, applied)
    if model is not None:
        weights = weighted_rows(model.mixture, rows)
        checks += expert_rules(rows, model.mixture, weights, study, applied)
        checks += precision_rules(rows, model, weights, applied)
        checks += covariate_rules(rows, model.covariates, study, applied)
    return Verdict(tuple(checks), policy, applied)


def evidence(verdict: Verdict) -> dict[str, Any]:
    """Return what the file says of the rules: the policy, and rule, scope, limit and result of each; no counts.

    Examples
    --------
    >>> policy = Policy.of_profile("open")
    >>> verdict = Verdict((Check.at_least("site", "min_rows", "site", 50, 61, detail="only here"),), policy, policy)
    >>> evidence(verdict)["rules"]
    [{'rule': 'min_rows', 'scope': 'site', 'limit': 50.0, 'result': 'kept'}]
    """
    return {
        "policy": verdict.policy.identity,
        "profile": verdict.policy.profile_text,
        "rules": [
            {
                "rule": check.rule,
                "scope": check.scope,
                "limit": check.limit,
                "result": "kept" if check.kept else "failed",
            }
            for check in verdict.checks
        ],
    }
