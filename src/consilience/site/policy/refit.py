"""Make a site's fit releasable: parts that fail are coarsened, experts that fail are merged away, or it is refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from consilience.files.study import Study
from consilience.messages.questions import FitSite, LocalFit
from consilience.model.rows import Rows
from consilience.model.summary import column_summary
from consilience.site.local_fit import local_fit
from consilience.site.policy.check import Check, Part
from consilience.site.policy.covariate_rules import with_merged_classes
from consilience.site.policy.policy import Policy
from consilience.site.policy.precision_rules import flattened
from consilience.site.policy.release import Verdict, checked
from consilience.site.site import Site

REMEDIES = {
    "min_rows": "use more rows, such as those of a longer period",
    "rows_per_level": "merge rare levels, or leave them out, in the study for all sites; ask the coordinator",
    "rows_per_pair": "merge levels of one of the two columns, or leave a column out, in the study for all sites; ask "
    "the coordinator",
    "column_dominance": "look for wrong values in the column; if they are right, ask the coordinator for a transform "
    "of a covariate (such as log), or for a response on another scale, such as a column with its logarithm",
    "rows_per_parameter": "use more rows, or ask the coordinator for fewer columns",
    "max_experts": "ask the coordinator for fewer experts",
}
"""What to do if a rule fails whatever the number of experts."""
MORE_ROWS = "use more rows, or ask the coordinator for fewer columns"
COARSENED: tuple[Part, Part] = ("precision", "covariates")
FLATTENED = "the precision of some coefficients rests on few rows: one number for each expert is stated of it instead"
MERGED = "a class in the summary of the covariates rests on few rows: it was merged with another"


@dataclass(frozen=True, eq=False)
class Release:
    """A fit that may leave the site, or the reason why nothing may.

    Parameters
    ----------
    fit : LocalFit or None
        The fit; None if nothing may leave.
    verdict : Verdict
        All checks of the fit, or of the last one that was tried.
    steps : tuple of str
        What was changed to keep the rules, in sentences for the site.
    refusal : str
        Why nothing may leave and what to do, without counts; empty if the fit may leave.
    """

    fit: LocalFit | None
    verdict: Verdict
    steps: tuple[str, ...] = ()
    refusal: str = ""


def releasable(question: FitSite, rows: Rows, study: Study, policy: Policy) -> Release:
    """Fit the site's own mixture so that it keeps the policy, with fewer experts than asked if need be.

    Numbers of experts beyond the policy are not tried, and a coordinator's start is not used. A precision matrix or a
    class of the covariates' summary that fails is coarsened. If an expert fails, the site fits again with one expert
    fewer, from its own starts. Rare levels and a lack of rows end in a refusal.

    Parameters
    ----------
    question : FitSite
        The study's question to the site.
    rows : Rows
    study : Study
    policy : Policy

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.fit.specification import Specification
    >>> study = Study.from_text('''
    ... format = "consilience-study"
    ... version = 1
    ... name = "stay"
    ... seed = 1
    ... model = {response = "days", experts = [2]}
    ... columns = [{name = "days", kind = "number"}, {name = "age", kind = "number"}]
    ... ''')
    >>> rng = np.random.default_rng(0)
    >>> rows = Rows(rng.normal(size=(40, 1)), rng.normal(size=(40, 1)))
    >>> print(releasable(FitSite(Specification(K=2), (2,), seed=1), rows, study, Policy.of_profile()).refusal)
    Nothing can be released:
      site: the limit of min_rows is 50. To do: use more rows, such as those of a longer period.
    """
    applied = policy.stricter(study.minimum)
    orders = tuple(K for K in question.orders if applied.site.max_experts >= K)
    steps = () if orders == question.orders else (f"only {_listed(orders)} experts were tried: more are not allowed",)
    if not orders:
        orders = (applied.site.max_experts,)
        steps = (f"the study asks for more experts than the policy allows: {orders[0]} were fitted instead",)
    return _search(replace(question, start=None, orders=orders), (rows, study, policy), steps)


def table_refusal(rows: Rows, study: Study, policy: Policy) -> str:
    """Return why no fit to these rows may leave, and what to do; empty if the rows alone break no rule.

    Examples
    --------
    >>> from consilience.datasets.hospitals import STUDY, hospitals
    >>> from consilience.studies.local import checked_rows
    >>> study = Study.from_text(STUDY)
    >>> table_refusal(checked_rows(study, hospitals()["ash"]), study, Policy.of_profile())
    ''
    """
    return _refusal(_of_table((rows, study, policy)).failed)


def _of_table(held: tuple[Rows, Study, Policy]) -> Verdict:
    """Return the checks of the rows alone, before a fit."""
    return checked(LocalFit(column_summary(held[0]), None, None), *held)


def _search(question: FitSite, held: tuple[Rows, Study, Policy], steps: tuple[str, ...]) -> Release:
    """Fit with fewer and fewer experts until all rules are kept, or one fails that no number of experts cures."""
    rows, verdict = held[0], _of_table(held)
    while verdict.kept or any(check.part == "experts" for check in verdict.failed):
        fit = local_fit(question, Site("site", rows))
        K = min(question.orders) if fit.model is None else fit.model.mixture.K
        if fit.model is not None:
            fit, verdict, coarser = _coarsened(fit, held)
            if verdict.kept:
                return Release(fit, verdict, (*steps, *coarser))
        if K == 1:
            break
        steps = (*steps, _fewer_text(K, fit, verdict))
        question = replace(question, orders=(K - 1,))
    return Release(
        None, verdict, steps, _refusal(verdict.failed) or f"No mixture can be fitted to the rows: {MORE_ROWS}."
    )


def _coarsened(fit: LocalFit, held: tuple[Rows, Study, Policy]) -> tuple[LocalFit, Verdict, tuple[str, ...]]:
    """Coarsen precision matrices and the covariates' summary until they keep the rules, if that can be."""
    verdict, steps = checked(fit, *held), []
    while fit.model is not None:
        model, covariates = fit.model, fit.model.covariates
        experts, classes = ([check for check in verdict.failed if check.part == part] for part in COARSENED)
        if experts:
            places = [k for k in range(model.mixture.K) if any(check.place in (k, None) for check in experts)]
            fit = replace(fit, model=flattened(model, places))
            steps.append(FLATTENED)
        elif classes and covariates is not None and len(covariates.weights) > 1:
            merged = with_merged_classes(covariates, classes[0].place or 0)
            fit = replace(fit, model=replace(model, covariates=merged))
            steps.append(MERGED)
        else:
            break
        verdict = checked(fit, *held)
    return fit, verdict, tuple(dict.fromkeys(steps))


def _fewer_text(K: int, fit: LocalFit, verdict: Verdict) -> str:
    """Say why a fit with K experts is not released."""
    if fit.model is None:
        return f"there are too few rows for {K} experts: {K - 1} were fitted"
    rules = dict.fromkeys(f"{check.scope} ({check.rule})" for check in verdict.failed if check.part == "experts")
    return f"with {K} experts the rules failed for {', '.join(rules)}: {K - 1} were fitted"


def _refusal(failed: Iterable[Check]) -> str:
    """Say which rules failed, where, and what to do; no counts."""
    lines = []
    for check in failed:
        where = check.scope if not check.detail else f"{check.scope}: {check.detail}"
        bound = f"the limit of {check.rule} is {check.limit:g}"
        lines.append(f"  {where}: {bound}. To do: {REMEDIES.get(check.rule, MORE_ROWS)}.")
    return "\n".join(["Nothing can be released:", *dict.fromkeys(lines)]) if lines else ""


def _listed(orders: tuple[int, ...]) -> str:
    return ", ".join(map(str, orders))
