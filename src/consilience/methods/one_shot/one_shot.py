"""One-shot aggregation: every site fits its own mixture and sends it once; the coordinator combines them.

Optional refinement takes steps on the likelihood of all rows from the combined mixture, each evaluated by a round. The
first makes the estimate as good as the pooled one if sites are alike and have enough rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain, islice
from typing import Any

import numpy as np

from consilience.aggregate import Combination, SiteEvidence, SiteModel, combine_orders
from consilience.aggregate.combine.combiner import PlanKind
from consilience.aggregate.combine.points import SupportKind, check_support
from consilience.errors import InvalidInputError
from consilience.fit import (
    Ascent,
    Expect,
    Fit,
    Inference,
    InferredFit,
    Parameters,
    Specification,
    StartEnds,
    StopReason,
)
from consilience.fit.fitting import finish_fit
from consilience.fit.inference import infer_coefficients, inference_from_fit, widen_inference
from consilience.fit.influence import left_out_by_scores, left_out_of_experts
from consilience.fit.left_out import LeftOut
from consilience.fit.specification import check_fittable, check_start
from consilience.fit.survey import Survey
from consilience.messages import (
    Dialogue,
    Each,
    FitSite,
    LocalFit,
    LogLikelihood,
    ScoreProducts,
    ScoreSums,
    together,
)
from consilience.methods.one_shot.refinement import Contest, Opening, Rivals, opening, refine, unrefined_rivals
from consilience.methods.one_shot.site_gates import (
    Covariates,
    NormalCovariates,
    site_mixtures,
    unrefined_gates_fit,
    with_reports,
)
from consilience.methods.own_gates import (
    OwnGatesEnd,
    OwnGatesFit,
    ask_own_meats,
    check_own_gates,
    check_per_site,
    climb_own_gates,
    own_gates_fit,
    own_parameters,
)
from consilience.methods.score_steps import ask_meats_and_scores
from consilience.methods.site_reports import compare_sites, survey_sites, total_summary
from consilience.methods.task import Method, QuestionKind, Task, check_whole
from consilience.model import ColumnSummary, Mixture, Penalty
from consilience.model.expectation import Meat
from consilience.numerics.arrays import Array
from consilience.numerics.linalg import solve_symmetric

FAR_FROM_ZERO = (
    "the sites' models cannot be combined in double precision: a column is far from zero compared with its spread; "
    "subtract the same constant from it at all sites, or use FederatedEM"
)


@dataclass(frozen=True, repr=False, eq=False)
class OneShot(Method):
    """One-shot aggregation: local fits are combined by optimal transport, then refined in rounds.

    Parameters
    ----------
    refine : int
        Maximum number of refinement steps on the likelihood of all rows, from the combined mixture. Each step is
        evaluated by a round and kept only if it raises the likelihood, so ``refine`` steps take up to ``refine + 1``
        rounds, and one more for standard errors as of one table. With 0, only the local fits are used: the gate has no
        standard errors, and those of the experts are right if the model is right. If sites are alike and have some
        thousand rows, one step is enough; sites that differ, as real ones do, need up to 10. Refinement ends early at
        the maximum.
    plan : {"expert", "row"}
        Whether each expert of a site is assigned to one combined expert as a whole, or anew at every point of the
        support (the paper's plan, which is inaccurate for sharp gates).
    support : "summaries", mapping of str to (n, d) array, or (n, d) array
        Points at which gates are compared: drawn from the small mixtures that summarise the sites' covariates (no row
        leaves a site), covariates of each site, or public covariates.
    per_site : {None, "gate", "shares"}
        Whether each site has a gate of its own with the common experts, or its own shares of the experts
        (:class:`OwnGatesFit`), as in :class:`FederatedEM`. Without refinement these are the gates of the sites' own
        fits, without intervals.

    Examples
    --------
    >>> from consilience import Federation, MixtureOfExpertsRegressor, OneShot
    >>> from consilience.datasets import soft
    >>> data = soft(6000, n_experts=2, n_features=3, random_state=0)
    >>> sites = Federation({name: (data.X[i::3], data.y[i::3]) for i, name in enumerate(["north", "south", "east"])})
    >>> result = sites.fit(MixtureOfExpertsRegressor(2, random_state=0), method=OneShot(refine=1))
    >>> len(result.record.rounds), result.fit.combination.set_aside
    (4, {})
    """

    refine: int = 1
    plan: PlanKind = "expert"
    support: SupportKind = "summaries"
    per_site: str | None = None

    def __post_init__(self) -> None:
        check_per_site(self.per_site)
        check_whole("refine", self.refine, "a whole number of steps, 0 or more", least=0)
        if self.plan not in ("expert", "row"):
            raise InvalidInputError(f"plan={self.plan!r}: expected 'expert' or 'row'")
        if isinstance(self.support, str) and self.support != "summaries":
            raise InvalidInputError(f"support={self.support!r}: expected 'summaries', or covariates as arrays")

    def __repr__(self) -> str:
        where = "" if self.per_site is None else f", per_site={self.per_site!r}"
        return f"OneShot(refine={self.refine}, plan={self.plan!r}, support={_named(self.support)}{where})"

    def question_kinds(self, task: Task) -> Sequence[QuestionKind]:
        """Return the site's own fit, and for refinement sums at common models."""
        found = [QuestionKind(FitSite, "first", 1)]
        if self.refine:
            found += [
                QuestionKind(LogLikelihood, "second, for the models of at most twenty sites", 1),
                QuestionKind(
                    Expect, "second, and in each step of refinement; for a gate of this site alone also after"
                ),
            ]
            if task.sandwich:
                found += [QuestionKind(ScoreProducts, "last", 1), QuestionKind(ScoreSums, "last", 1)]
        return found

    def dialogue(self, task: Task) -> Dialogue[tuple[CombinedFit | OwnGatesFit | None, ...]]:
        """Return one fit for each number of experts; each site selects one of these numbers for its own fit.

        A fit is None if the sites have too few experts for its number.
        """
        if task.start is not None and task.start.K in (each.K for each in task.specifications):
            wanted = task.specifications[0].with_order(task.start.K)
            check_start(task.start, wanted.blank(ColumnSummary.unit(task.d, task.q)))
        check_support(self.support, (), task.d)
        if self.per_site is not None:
            own_parameters(task.specifications[0].blank(ColumnSummary.unit(task.d, task.q)), self.per_site)  # or error
        fits: Mapping[str, LocalFit] = yield Each(task.fit_site(describe=isinstance(self.support, str)))
        summaries = {site: fit.summary for site, fit in fits.items()}
        summary = total_summary(summaries)
        check_fittable(task.specifications[0], summary)
        try:
            combinations = self._combined(task.specifications, fits, summary, task.seed)
        except np.linalg.LinAlgError as error:
            raise InvalidInputError(FAR_FROM_ZERO) from error
        penalty = task.specifications[0].penalty(summary)
        survey = survey_sites(task, summaries)
        found = [combination for combination in combinations if combination is not None]
        done: Sequence[CombinedFit | OwnGatesFit]
        if self.refine == 0:
            columns = task.specifications[0].expert_columns
            combined = [
                replace(
                    unrefined_fit(each, penalty), survey=survey, rivals=unrefined_rivals(each, summary, fits, columns)
                )
                for each in found
            ]
            combined = [with_plan_changes(fit, task.institutions) for fit in combined]
            done = [self._with_gates(*each, fits, task.seed) for each in zip(combined, found, strict=True)]
        else:
            one = task.specifications[0].with_order(1).blank(summary)
            own = [self._mixtures(each, fits, penalty, task.seed) for each in found]
            opened = yield from opening(found, fits, one, penalty, gates=own[-1])
            sites = tuple(fits) if opened.members is None else opened.members
            gates = together([self._climb_gates(*each, sites, penalty) for each in zip(found, own, strict=True)])
            refined = self._refined(found, opened, one, penalty, survey, task=task, gates=own[-1])
            both: list[Dialogue[Any]] = [refined, gates]  # in the same rounds
            combined, ends = yield from together(both)
            done = yield from self._with_ends(combined, ends, task)
        rest = iter(done)
        return tuple(None if combination is None else next(rest) for combination in combinations)

    def _refined(
        self,
        found: Sequence[Combination],
        opened: Opening,
        one: Mixture,
        penalty: Penalty,
        survey: Survey,
        *,
        task: Task,
        gates: Mapping[str, Mixture],
    ) -> Dialogue[list[CombinedFit]]:
        """Refine all combinations, and one regression for all rows as a rival, in the same rounds."""
        contests = [Contest.of(c.mixture, at, opened) for c, at in zip(found, opened.firsts, strict=True)]
        climbs = [contest.climbs(penalty, self.refine, opened.members) for contest in contests]
        single = refine(one, opened.one, penalty, self.refine, opened.members)
        ends = iter((yield from together([*chain(*climbs), single])))
        by_order = [list(islice(ends, len(each))) for each in climbs]
        (of_one,) = ends
        ended = [contest.ended(mine, of_one) for contest, mine in zip(contests, by_order, strict=True)]
        meats, last = yield from ask_meats_and_scores([best for best, _ in ended], task, opened.members)
        done: list[CombinedFit] = []
        for place, ((best, rivals), meat, c, joint) in enumerate(zip(ended, meats, found, opened.each, strict=True)):
            fit = refined_fit(best, penalty, c, opened.members, meat=meat)
            asked = penalty if c is found[-1] else None  # a smaller order may explain no site
            witnessed = yield from compare_sites(
                survey, opened.cross, joint, c.mixture, penalty=asked, starts=gates, covariances=c.covariances()
            )
            before = None if rivals.from_site else opened.scores[place]
            scores = before if last[place] is None else last[place]
            fit = replace(fit, rivals=rivals, survey=witnessed)
            done.append(with_sampling_errors(fit, left_out_by_scores(fit, scores, task.institutions)))
        return done

    def _mixtures(
        self, combination: Combination, fits: Mapping[str, LocalFit], penalty: Penalty, seed: int
    ) -> dict[str, Mixture]:
        """Return the combined experts with the gate of each site that was used."""
        models = {site: fit.model for site, fit in fits.items() if fit.model is not None}
        covariates = {site: _covariates_of(fits[site]) for site in models}
        return site_mixtures(
            combination, models, covariates, per_site=self.per_site or "gate", penalty=penalty, seed=seed
        )

    def _with_gates(
        self, common: CombinedFit, combination: Combination, fits: Mapping[str, LocalFit], seed: int
    ) -> CombinedFit | OwnGatesFit:
        """Return the fit of one exchange with a gate of each site, if it is asked for."""
        if self.per_site is None:
            return common
        mixtures = self._mixtures(combination, fits, common.penalty, seed)
        models = {site: fit.model for site, fit in fits.items() if fit.model is not None}

        def infer_site(fit: Fit) -> Inference:
            return with_sites(summed_inference(fit, combination.precision), common.combination)

        own = unrefined_gates_fit(common, combination, mixtures, models, per_site=self.per_site, infer_site=infer_site)
        return with_reports(own, common.combination.sites, common.doubts_at(own.log_likelihood))

    def _climb_gates(
        self, combination: Combination, found: Mapping[str, Mixture], sites: Sequence[str], penalty: Penalty
    ) -> Dialogue[OwnGatesEnd | None]:
        """Take the steps of refinement with a gate of each site, from the gates of their own fits."""
        if self.per_site is None:
            return None
        check_own_gates(combination.mixture)
        starts = {site: found.get(site, combination.mixture) for site in sites}
        own = own_parameters(combination.mixture, self.per_site)
        end = yield from climb_own_gates(starts, own, penalty, self.refine, shift=0.0)
        return replace(end, stop=StopReason.REFINED) if end.stop is StopReason.MAX_ITER else end

    def _with_ends(
        self, combined: Sequence[CombinedFit], ends: Sequence[OwnGatesEnd | None], task: Task
    ) -> Dialogue[list[CombinedFit | OwnGatesFit]]:
        """Return the refined fits, with a gate of each site where it was climbed."""
        meats = iter((yield from together([ask_own_meats(end, task) for end in ends if end is not None])))
        done: list[CombinedFit | OwnGatesFit] = []
        for common, end in zip(combined, ends, strict=True):
            if end is None:
                done.append(common)
                continue
            own = own_gates_fit([end], common, next(meats), institutions=task.institutions)
            done.append(with_reports(own, common.combination.sites, common.doubts_at(own.log_likelihood)))
        return done

    def _combined(
        self, specifications: Sequence[Specification], fits: Mapping[str, LocalFit], summary: ColumnSummary, seed: int
    ) -> tuple[Combination | None, ...]:
        specification, penalty = specifications[0], specifications[0].penalty(summary)
        design, gate_design = specification.designs(summary)
        found = combine_orders(
            usable_models(fits, specification),
            tuple(each.K for each in specifications),
            design=design,
            gate_design=gate_design,
            penalty=penalty,
            plan=self.plan,
            support=self.support,
            seed=seed,
        )
        return tuple(None if each is None else with_all_sites(each, fits) for each in found)


def _covariates_of(fit: LocalFit) -> Covariates:
    """Return the distribution of a site's covariates: the summary that it sent, or a normal one."""
    model = fit.model
    if model is not None and model.covariates is not None and model.covariates.d == len(fit.summary.x_mean):
        return model.covariates
    return NormalCovariates(fit.summary)


def usable_models(fits: Mapping[str, LocalFit], specification: Specification) -> dict[str, SiteModel]:
    """Return the models of sites; for families other than Gaussian, only those with one label per row."""
    models = {site: fit.model for site, fit in fits.items() if fit.model is not None}
    if specification.has_moments:
        return models
    by_row = {site: model for site, model in models.items() if _by_row(model)}
    if models and not by_row:
        raise InvalidInputError("OneShot combines grouped rows for Gaussian experts only: use FederatedEM")
    return by_row


def with_all_sites(combination: Combination, fits: Mapping[str, LocalFit]) -> Combination:
    """Add evidence on sites without a usable model, and remarks on local fits that did not converge."""
    known = {site.name: site for site in combination.sites}
    sites = [known.get(name) or _left_out(name, fit) for name, fit in fits.items()]
    return replace(combination, sites=tuple(_with_stop(site, fits[site.name].stop) for site in sites))


def _left_out(name: str, fit: LocalFit) -> SiteEvidence:
    if fit.model is None:
        return SiteEvidence.without_model(name, fit.summary.weight)
    return SiteEvidence.without_model(
        name, fit.summary.weight, "its labels belong to groups, those of other sites to rows"
    )


def _with_stop(site: SiteEvidence, stop: StopReason | None) -> SiteEvidence:
    if stop is None or stop.converged:
        return site
    return replace(site, remarks=(*site.remarks, f"its own fit {stop}"))


def _by_row(model: SiteModel) -> bool:
    """Whether the labels of a site belong to rows, not to groups."""
    return bool(np.isclose(model.label_counts.sum(), model.mass.sum()))


def _named(support: SupportKind) -> str:
    """Return a text that identifies the support."""
    if isinstance(support, str):
        return repr(support)
    parts = support if isinstance(support, Mapping) else {"public": support}
    digest = blake2b(digest_size=8)
    for name, X in parts.items():
        digest.update(name.encode() + np.ascontiguousarray(X, dtype=np.float64).tobytes())
    return f"<{len(parts)} arrays, {digest.hexdigest()}>"


@dataclass(frozen=True, eq=False)
class CombinedFit(InferredFit):
    """A fit combined from the models of sites, with evidence on each site.

    Parameters
    ----------
    inference : Inference
        Standard errors: from the information summed over sites, or from the last round of refinement.
    combination : Combination
        The mixture before refinement, how each site was used, and the heterogeneity of sites.
    members : tuple of str or None
        Sites that took part in refinement; None for all.
    rivals : Rivals
        Simpler models that the fit is held against.

    Examples
    --------
    >>> from consilience import Federation, MixtureOfExpertsRegressor, OneShot
    >>> from consilience.datasets import soft
    >>> data = soft(6000, n_experts=2, n_features=3, random_state=0)
    >>> sites = Federation({str(i): (data.X[i::3], data.y[i::3]) for i in range(3)})
    >>> fit = sites.fit(MixtureOfExpertsRegressor(2, random_state=0), method=OneShot(refine=0)).fit
    >>> fit.inference.withheld["gate"][:24], fit.combination.heterogeneity.I2.shape
    ('without a round of refin', (2, 4))
    """

    combination: Combination
    members: tuple[str, ...] | None
    rivals: Rivals = field(default=Rivals(), kw_only=True)

    def evidence(self) -> tuple[SiteEvidence, ...]:
        """Return how each site's model was used, and why."""
        return self.survey.added_to(self.combination.sites)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Return the reasons not to trust the combined mixture: sites that disagree or form two camps, and rivals."""
        return (*super().doubts, *self.doubts_at(self.log_likelihood))

    def doubts_at(self, log_likelihood: float) -> tuple[str, ...]:
        """Return the doubts about a mixture of these sites with another likelihood."""
        camps = self.combination.camps
        of_camps = (camps.text,) if camps is not None and camps.found else ()
        return (*of_camps, *self.rivals.doubts(log_likelihood))


def unrefined_fit(combination: Combination, penalty: Penalty) -> CombinedFit:
    """Return the combination as a fit; its likelihood is an estimate, because no site computed it."""
    mixture = combination.mixture
    ascent = Ascent.without_steps(
        mixture,
        combination.shares,
        log_likelihood=combination.log_likelihood,
        weight=combination.weight,
        penalty=penalty,
        passes=0,
        stop=StopReason.COMBINED,
    )
    permutation = np.argsort(-combination.shares, kind="stable")
    fit = Fit(mixture.permuted(permutation).raw(), ascent, permutation, penalty, StartEnds())
    evidence = combination.permuted(permutation)
    inference = with_sites(summed_inference(fit, combination.precision), evidence)
    return CombinedFit(**vars(fit), inference=inference, combination=evidence, members=None)


def refined_fit(
    end: Ascent,
    penalty: Penalty,
    combination: Combination,
    members: tuple[str, ...] | None,
    *,
    meat: Meat | None = None,
) -> CombinedFit:
    """Return the refined fit, with the likelihood and the information of its own mixture."""
    fit = replace(finish_fit(end, penalty, StartEnds()), meat=meat)
    sites = tuple(as_refined(site) if members is None or site.name in members else site for site in combination.sites)
    evidence = replace(combination.permuted(fit.permutation), sites=sites)
    inference = with_sites(inference_from_fit(fit), evidence)
    return CombinedFit(**vars(fit), inference=inference, combination=evidence, members=members)


def as_refined(site: SiteEvidence) -> SiteEvidence:
    """Return the report on a site that took part in refinement: its rows were used, whatever its model was used for."""
    if site.status not in ("used in part", "set aside"):
        return site
    said = f"its rows were used, its own model was not the start as a whole: {'; '.join(site.reasons)}"
    return replace(site, experts=(True,) * len(site.experts), gate=True, reasons=(), remarks=(said, *site.remarks))


# ---------------------------------------------------------------- standard errors without refinement


REFINE = "use OneShot(refine=1) or more"


def summed_inference(fit: Fit, precision: Array) -> Inference:
    """Compute standard errors of the experts' coefficients from their precision ``(K, f, f)``."""
    withheld = {"gate": f"without a round of refinement the gate has no standard errors: {REFINE}"}
    if not precision.any(axis=(1, 2)).all():
        withheld["experts"] = (
            "most of what informs an expert comes from sites with too few rows per coefficient, or that sent no "
            f"precision: {REFINE}"
        )
    elif fit.mixture.experts.shapes:
        withheld["shapes"] = f"without a round of refinement the shapes have no standard errors: {REFINE}"
    solved = [solve_symmetric(own, np.eye(len(own)))[0] for own in precision]
    return infer_coefficients(fit, np.array(solved), "summed", withheld)


def with_sites(inference: Inference, combination: Combination) -> Inference:
    """Return standard errors of the experts with the variance between sites; experts are in the order of the estimates.

    The gate's heterogeneity is computed from summaries of the covariates: it is shown, and not part of standard errors.
    """
    at = inference.estimates
    I2, tau2, variance, df = (_reported(at, combination, name) for name in ("I2", "tau2", "between_variance", "df"))
    of_experts = Parameters(np.zeros_like(at.gate), variance.experts, variance.log_shapes)
    return widen_inference(inference, I2, tau2, of_experts, df)


def with_plan_changes(fit: CombinedFit, institutions: Mapping[str, str]) -> CombinedFit:
    """Return the fit with its changes without each institution, by combining the others' experts at the same plan.

    Sites are not judged again: without an honest site, one that was set aside might pass, and its harm would be said to
    be due to the honest site.
    """
    sites = [site.name for site in fit.combination.sites if site.experts]
    return with_sampling_errors(fit, left_out_of_experts(fit, sites, institutions, fit.combination.fixed.without))


def with_sampling_errors(fit: CombinedFit, left_out: LeftOut | None) -> CombinedFit:
    """Return the fit with changes without institutions, in standard errors without the variance between sites."""
    if left_out is None:
        return fit
    at = fit.inference.estimates
    added = _reported(at, fit.combination, "between_variance")
    u = np.nan_to_num(np.concatenate([np.zeros(at.gate.size), added.experts.ravel(), added.log_shapes.ravel()]))
    errors = np.sqrt(np.maximum(fit.inference.deviations() ** 2 - u, 0.0))
    return replace(fit, left_out=replace(left_out, errors=errors))


def _reported(at: Parameters, combination: Combination, name: str) -> Parameters:
    """Return one quantity of the heterogeneity in the places of the reported parameters; NaN where it is not known."""
    gate, experts = np.full_like(at.gate, np.nan), np.full_like(at.experts, np.nan)
    shapes = np.full_like(at.log_shapes, np.nan)
    mixture = combination.mixture
    if mixture.design.intercept or not mixture.gate.reads_covariates:
        gate[:, 0] = getattr(combination.gate_heterogeneity, name)[:, 0]
    coefficients = getattr(combination.heterogeneity, name)
    if coefficients.size == experts.size:  # symmetric coding of classes has more coefficients than free contrasts
        experts = coefficients.reshape(experts.shape)
    of_shapes = getattr(combination.shape_heterogeneity, name)
    if of_shapes.shape == shapes.shape:
        shapes = of_shapes
    return Parameters(gate, experts, shapes)
