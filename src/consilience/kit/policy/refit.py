"""Fits that keep the policy: every check of a release, fewer experts where one fails, and the membership attack."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from consilience.errors import InvalidInputError
from consilience.kit.policy import rules
from consilience.kit.policy.policy import Policy
from consilience.kit.policy.rounding import round_fit
from consilience.kit.study import Study
from consilience.messages import FitSite, LocalFit
from consilience.model import Mixture, Rows
from consilience.model.summary import column_summary
from consilience.site import Site
from consilience.site.local_fit import local_fit


def regression_leverage(mixture: Mixture, rows: Rows) -> float:
    """Compute the largest leverage of a row in the weighted regression of an expert.

    The leverage of row i in expert k is ``τ_ik x_iᵀ (Σ_j τ_jk x_j x_jᵀ)⁻¹ x_i``, between 0 and 1. At 1 the expert's
    regression passes through the row, and its coefficients disclose the response.
    """
    panel, largest = mixture.design.panel(rows.X), 0.0
    for tau in rules.weighted_rows(mixture, rows).tau:
        weighted = panel * np.sqrt(tau)
        scale = np.sqrt(np.sum(weighted**2, axis=1, keepdims=True))
        weighted = np.divide(weighted, scale, out=np.zeros_like(weighted), where=scale > 0)
        values, vectors = np.linalg.eigh(weighted @ weighted.T)
        kept = values > len(values) * np.finfo(float).eps * max(values[-1], 0.0)
        scores = (vectors[:, kept].T @ weighted) / np.sqrt(values[kept, None])
        largest = max(largest, float(np.max(np.sum(scores**2, axis=0), initial=0.0)))
    return min(largest, 1.0)


# ---------------------------------------------------------------- release


@dataclass(frozen=True)
class ReleaseVerdict:
    """Every check of a file. It has counts and stays at the site; :func:`release_evidence` is what leaves.

    Parameters
    ----------
    checks : tuple of Check
    policy : Policy
        The site's own policy.
    applied : Policy
        The policy that was applied, tightened by what the study asks.
    """

    checks: tuple[rules.Check, ...]
    policy: Policy
    applied: Policy

    @property
    def kept(self) -> bool:
        """Whether all rules are kept."""
        return all(check.kept for check in self.checks)

    @property
    def failed(self) -> tuple[rules.Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if not check.kept)


def check_release(fit: LocalFit, rows: Rows, study: Study, policy: Policy) -> ReleaseVerdict:
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
    """
    if rows.X.shape[1] != len(study.covariates.terms):
        raise InvalidInputError(
            f"the rows have {rows.X.shape[1]} covariates and the study {len(study.covariates.terms)}: pass rows of it"
        )
    applied, model = policy.stricter(study.minimum), fit.model
    checks = rules.site_rules(rows, None if model is None else model.mixture, study, applied)
    checks += rules.level_rules(rows, study, applied)
    if model is not None:
        weights = rules.weighted_rows(model.mixture, rows)
        checks += rules.expert_rules(rows, model.mixture, weights, study, applied)
        checks += rules.precision_rules(rows, model, weights, applied)
        checks += rules.covariate_rules(rows, model.covariates, study, applied)
    return ReleaseVerdict(tuple(checks), policy, applied)


def release_evidence(verdict: ReleaseVerdict) -> dict[str, Any]:
    """Return what the file says of the rules: the policy, and rule, scope, limit and result of each; no counts."""
    return {
        "policy": verdict.policy.identity,
        "profile": verdict.policy.profile_text,
        "rules": [{**check.stated, "result": "kept" if check.kept else "failed"} for check in verdict.checks],
    }


# ---------------------------------------------------------------- refit

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
COARSENED: tuple[rules.Part, rules.Part] = ("precision", "covariates")
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
    verdict: ReleaseVerdict
    steps: tuple[str, ...] = ()
    refusal: str = ""


def fit_releasable(question: FitSite, rows: Rows, study: Study, policy: Policy) -> Release:
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
    """
    applied = policy.stricter(study.minimum)
    orders = tuple(K for K in question.orders if applied.site.max_experts >= K)
    tried = ", ".join(map(str, orders))
    steps = () if orders == question.orders else (f"only {tried} experts were tried: more are not allowed",)
    if not orders:
        orders = (applied.site.max_experts,)
        steps = (f"the study asks for more experts than the policy allows: {orders[0]} were fitted instead",)
    return _search(replace(question, start=None, orders=orders), (rows, study, policy), steps)


def table_refusal(rows: Rows, study: Study, policy: Policy) -> str:
    """Return why no fit to these rows may leave, and what to do; empty if the rows alone break no rule."""
    return _refusal(_of_table((rows, study, policy)).failed)


def _of_table(held: tuple[Rows, Study, Policy]) -> ReleaseVerdict:
    """Return the checks of the rows alone, before a fit."""
    return check_release(LocalFit(column_summary(held[0]), None, None), *held)


def _search(question: FitSite, held: tuple[Rows, Study, Policy], steps: tuple[str, ...]) -> Release:
    """Fit with fewer and fewer experts until all rules are kept, or one fails that no number of experts cures."""
    rows, verdict = held[0], _of_table(held)
    while verdict.kept or any(check.part == "experts" for check in verdict.failed):
        fit = local_fit(question, Site("site", rows))
        K = min(question.orders) if fit.model is None else fit.model.mixture.K
        if fit.model is not None:
            fit, verdict, coarser = _coarsened(fit, held)
            if verdict.kept:
                return Release(round_fit(fit), verdict, (*steps, *coarser))
        if K == 1:
            break
        steps = (*steps, _fewer_text(K, fit, verdict))
        question = replace(question, orders=(K - 1,))
    return Release(
        None, verdict, steps, _refusal(verdict.failed) or f"No mixture can be fitted to the rows: {MORE_ROWS}."
    )


def _coarsened(fit: LocalFit, held: tuple[Rows, Study, Policy]) -> tuple[LocalFit, ReleaseVerdict, tuple[str, ...]]:
    """Coarsen precision matrices and the covariates' summary until they keep the rules, if that can be."""
    verdict, steps = check_release(fit, *held), []
    while fit.model is not None:
        model, covariates = fit.model, fit.model.covariates
        experts, classes = ([check for check in verdict.failed if check.part == part] for part in COARSENED)
        if experts:
            places = [k for k in range(model.mixture.K) if any(check.place in (k, None) for check in experts)]
            fit = replace(fit, model=rules.flatten_precision(model, places))
            steps.append(FLATTENED)
        elif classes and covariates is not None and len(covariates.weights) > 1:
            merged = rules.with_merged_classes(covariates, classes[0].place or 0)
            fit = replace(fit, model=replace(model, covariates=merged))
            steps.append(MERGED)
        else:
            break
        verdict = check_release(fit, *held)
    return fit, verdict, tuple(dict.fromkeys(steps))


def _fewer_text(K: int, fit: LocalFit, verdict: ReleaseVerdict) -> str:
    """Say why a fit with K experts is not released."""
    if fit.model is None:
        return f"there are too few rows for {K} experts: {K - 1} were fitted"
    failed = dict.fromkeys(f"{check.scope} ({check.rule})" for check in verdict.failed if check.part == "experts")
    return f"with {K} experts the rules failed for {', '.join(failed)}: {K - 1} were fitted"


def _refusal(failed: Iterable[rules.Check]) -> str:
    """Say which rules failed, where, and what to do; no counts."""
    lines = []
    for check in failed:
        where = check.scope if not check.detail else f"{check.scope}: {check.detail}"
        bound = f"the limit of {check.rule} is {check.limit:g}"
        lines.append(f"  {where}: {bound}. To do: {REMEDIES.get(check.rule, MORE_ROWS)}.")
    return "\n".join(["Nothing can be released:", *dict.fromkeys(lines)]) if lines else ""


# ---------------------------------------------------------------- membership

FALSE_ALARMS = 0.01
"""Rate of false alarms at which the rate of hits is reported."""


@dataclass(frozen=True)
class MembershipTest:
    """How well somebody with a file and a row tells whether the row was in the fit; it stays at the site.

    Parameters
    ----------
    auc : float
        Probability that a row of the fit gets a higher score than another row; 0.5 is guessing, 1 is certainty.
    hits : float
        Fraction of the rows of the fit that are told at 1 % false alarms; 0.01 is guessing.
    numbers : int
        Numbers in the file that were estimated from the rows.
    rows : int
        Rows of the fit.
    """

    auc: float
    hits: float
    numbers: int
    rows: int

    def __str__(self) -> str:
        return (
            f"An attacker who has the file, knows what such rows are like elsewhere, and has two rows, one of them from"
            f" the fit, picks that one in about {100 * self.auc:.0f} % of all cases (50 % is guessing): the file has "
            f"{self.numbers:,} numbers from {self.rows:,} rows."
        )


def membership_test(fit: LocalFit) -> MembershipTest | None:
    """Compute what the likelihood-ratio attack on a file achieves on average; None for a file without a model.

    The attack compares the density of a row under the ``P`` parameters of the file with that under the population's.
    The logarithm of the ratio of a row in the fit is higher by ``P / n`` in the mean than that of another one, and the
    variance of both is ``P / n``, as for the score of ``P`` sums over ``n`` rows. So the attack tells them apart with

        AUC = Φ(√(P / 2n)),    hits = Φ(√(P / n) - z),

    where ``z`` is the quantile of the false alarms. Files of simulated sites came within 0.04 of it, with a population
    of 20,000 rows (``tests/kit/policy/test_membership.py``).

    Parameters
    ----------
    fit : LocalFit
        What the file has: moments of all columns, the mixture, and a summary of the covariates.
    """
    if fit.model is None:
        return None
    m, n = len(fit.summary.x_mean) + len(fit.summary.y_mean), float(fit.summary.weight)
    covariates = fit.model.covariates
    P = m * (m + 3) // 2 + fit.model.mixture.parameter_count + (0 if covariates is None else covariates.parameter_count)
    apart = np.sqrt(P / n)
    return MembershipTest(float(ndtr(apart / np.sqrt(2))), float(ndtr(apart + ndtri(FALSE_ALARMS))), P, round(n))
