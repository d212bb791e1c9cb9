"""Reports on sites that every method gives, from what its rounds have asked anyway."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from types import MappingProxyType

import numpy as np

from consilience.aggregate import camps
from consilience.aggregate.disagreement import (
    CrossLikelihood,
    SiteAgreement,
    is_chance,
    judge_agreement,
    majority,
    own_components,
    unlikely_sites,
)
from consilience.aggregate.preflight import preflight
from consilience.fit.survey import Survey
from consilience.messages import Dialogue, Likelihood
from consilience.methods.own_gates import OTHER_CASES, climb_gates, climb_shapes
from consilience.methods.task import Task
from consilience.model import ColumnSummary, Mixture, Penalty, Statistics
from consilience.model.families.registry import gaussian
from consilience.numerics.arrays import Array
from consilience.numerics.linalg import inverse_bounded

OTHER_NOISE = "the joint coefficients explain its rows, but with other residual variances than the joint mixture has"
"""Remark on a site whose rows are noisier, or less noisy, than those of the other sites."""
NOT_ONLY_NOISE = (
    "its residual variances are others than those of the joint mixture, and even with these the joint coefficients do "
    "not explain its rows up to chance: some of its rows may be wrong"
)
"""Suspicion of a site that looks noisier, as one does of which a part of the rows is wrong."""
DISAGREE = "the sites disagree, and the data cannot tell which are wrong"
UNEXPLAINED = f"{DISAGREE}: the joint coefficients do not explain the rows of a site, whatever its noise"
STRANGE = 3.5
"""Standard deviations of chance by which own coefficients of a site must gain for it to be suspect beside its noise."""
NOISIER = float(np.log(3))
"""Log-likelihood per row by which the rows of a noisier site may be explained worse than those of all others: residuals
three times as large."""
UNLIKE = 0.25
"""Loss per row from which a site that a majority does not resemble may be set aside; real sites differ by less."""

WORSE = "the joint mixture explains its rows worse than its own model"
"""Remark on a site whose own model is better."""
HARMS = "the experts of the other sites do not explain its rows, at a gate of its own either, and with it they change"
"""Remark on a site that takes an expert of the joint mixture for itself."""


def survey_sites(task: Task, summaries: Mapping[str, ColumnSummary]) -> Survey:
    """Compare the columns of the sites; classes of a response are not compared."""
    compared = np.ones(task.d + task.q, dtype=bool)
    compared[task.d :] = not task.specifications[0].experts.classes
    return preflight(summaries, parameter_columns(task), compared)


def total_summary(summaries: Mapping[str, ColumnSummary]) -> ColumnSummary:
    """Return the summary of the rows of all sites."""
    with np.errstate(over="ignore", invalid="ignore"):  # check_fittable names the columns that overflow
        return reduce(add, summaries.values())


def parameter_columns(task: Task) -> tuple[str, ...]:
    """Return the names of covariates and responses, as tables of parameters have them."""
    of_X = task.names or tuple(f"x{j}" for j in range(task.d or task.q))
    if task.d == 0:
        return of_X if len(of_X) == task.q else tuple(f"y{j}" for j in range(task.q))
    without = ("y",) if task.q == 1 else tuple(f"y{j}" for j in range(task.q))
    return (*of_X, *(task.responses if len(task.responses) == task.q else without))


def cross_likelihood(
    owners: Sequence[str], answers: Mapping[str, Sequence[Likelihood]], parameters: int, most: float = np.inf
) -> CrossLikelihood | None:
    """Return the likelihoods of the models of sites on each other's rows; None for fewer than two sites.

    Parameters
    ----------
    owners : sequence of str, (C,)
        Site that fitted each model; of several models of a site, the best on its own rows counts.
    answers : mapping of str to sequence of Likelihood
        Likelihoods of the C models on the rows of each site.
    parameters : int
    most : float
        Largest number of rows to which a model was fitted.
    """
    per_row = {site: [each.log_likelihood / max(each.weight, 1.0) for each in found] for site, found in answers.items()}
    best: dict[str, int] = {}
    for place, site in enumerate(owners):
        if site in per_row and (site not in best or per_row[site][place] > per_row[site][best[site]]):
            best[site] = place
    if len(best) < 2:
        return None
    values = np.array([[per_row[b][best[a]] for b in best] for a in best])
    rows = np.array([max(min(answers[site][0].weight, most), 1.0) for site in best])
    return CrossLikelihood(tuple(best), values, rows, parameters)


def compare_sites(
    survey: Survey,
    cross: CrossLikelihood | None,
    joint: Mapping[str, Statistics],
    mixture: Mixture,
    *,
    penalty: Penalty | None = None,
    columns: tuple[str, ...] = (),
    starts: Mapping[str, Mixture] = MappingProxyType({}),
    covariances: Array | None = None,
) -> Dialogue[Survey]:
    """Add what the statistics of each site at a joint mixture say about the sites.

    A site that the joint mixture does not explain is asked again at a gate of its own with the joint experts: if they
    explain it then, it has other cases and not other experts.

    Parameters
    ----------
    survey : Survey
    cross : CrossLikelihood or None
    joint : mapping of str to Statistics
        Statistics of each site at the mixture.
    mixture : Mixture
    penalty : Penalty or None
        None for a method whose messages are too short for a gate of a site: no site is asked again.
    columns : tuple of str
        Names of the terms of the experts, to name the coefficient that differs; empty if it is not named.
    starts : mapping of str to Mixture
        The mixture with a gate of the site, where one is known: its own gate is then found in fewer rounds.
    covariances : (K, f, f) array or None
        Covariance of the coefficients of each expert of the mixture; None if no site is asked again.
    """
    if cross is not None:
        cross = cross.taken(np.array([site in joint for site in cross.sites]))
        found = judge_agreement(cross, np.array([_per_row(joint[site]) for site in cross.sites]))
        if found.unexplained and mixture.K > 1 and penalty is not None and covariances is not None:
            mixtures = {site: starts.get(site, mixture) for site in cross.sites}
            common = _Common(mixture, penalty, covariances, mixtures, columns)
            survey = yield from _judge_at_own_gates(survey, cross, found, joint, common)
        else:
            survey = _with_disagreement(survey, found, {})
    alone = own_components(tuple(joint), np.array([each.gate.plain[: mixture.K] for each in joint.values()]))
    return survey.with_suspicions({site: (_own(*own),) for site, own in alone.items()})


@dataclass(frozen=True, eq=False)
class _Common:
    """A joint mixture, with a gate of the site where one is known; covariance and names of its coefficients."""

    mixture: Mixture
    penalty: Penalty
    covariances: Array  # (K, f, f)
    mixtures: Mapping[str, Mixture]
    columns: tuple[str, ...]


def _judge_at_own_gates(
    survey: Survey,
    cross: CrossLikelihood,
    found: SiteAgreement,
    joint: Mapping[str, Statistics],
    common: _Common,
) -> Dialogue[Survey]:
    """Judge the sites that the joint mixture does not explain at gates of their own, and at noise of their own."""
    asked = [site for site in cross.sites if site in {*found.unexplained, *found.outside}]
    found_own = yield from climb_gates({site: common.mixtures[site] for site in asked}, common.penalty)
    own = {site: at for site, (_, at) in found_own.items()}
    reached = np.array([_per_row(own.get(site, joint[site])) for site in cross.sites])
    fitted = np.array([common.mixture.gate.parameter_count * (site in own) for site in cross.sites])
    again = judge_agreement(cross, reached, cross.parameters - fitted)
    cases = set(found.unexplained) - set(again.unexplained)
    survey = survey.with_notes(dict.fromkeys(cases, (OTHER_CASES,)))
    noisier = yield from noisier_sites(
        cross, again.unexplained, reached, common.mixtures, common.covariances, penalty=common.penalty
    )
    if noisier:
        at_own = {site: _per_row(statistics) for site, (_, statistics) in noisier.items()}
        reached = np.array([at_own.get(site, value) for site, value in zip(cross.sites, reached, strict=True)])
        fitted += common.mixture.experts.shape_parameters * np.array([site in noisier for site in cross.sites])
        again = judge_agreement(cross, reached, cross.parameters - fitted)
        survey = yield from _judge_noisier(survey, cross, noisier, common, named=bool(again.named))
    differs = {site: _differs(common.mixture, own[site], common.columns) for site in again.unexplained if site in own}
    survey = _with_disagreement(survey, again, differs)
    if again.harmed:  # a site that is not compared, since its own model is degenerate, may be the cause as well
        harming = {*found.outside, *(site for site in joint if site not in cross.sites)} - noisier.keys()
        survey = survey.with_unlike({site: HARMS for site in harming if site not in again.named})
    return survey


def _judge_noisier(
    survey: Survey,
    cross: CrossLikelihood,
    noisier: Mapping[str, tuple[Mixture, Statistics]],
    common: _Common,
    *,
    named: bool,
) -> Dialogue[Survey]:
    """Add remarks on the sites that are noisier, and a suspicion on the strangest of them or a doubt."""
    strange = None
    if not named:  # otherwise the joint mixture is between the site that is named and the others
        strange = yield from strangest_site(cross, noisier, common.mixture, common.covariances, common.penalty)
    said = {strange: (NOT_ONLY_NOISE,)} if strange is not None and majority(cross) is not None else {}
    survey = survey.with_notes({site: (OTHER_NOISE,) for site in noisier if site not in said})
    return survey.with_suspicions(said, (UNEXPLAINED,) if strange is not None and not said else ())


def noisier_sites(
    cross: CrossLikelihood,
    unexplained: Collection[str],
    reached: Array,
    mixtures: Mapping[str, Mixture],
    covariances: Array,
    *,
    penalty: Penalty,
) -> Dialogue[dict[str, tuple[Mixture, Statistics]]]:
    """Return the unexplained sites that the joint coefficients explain up to chance, with a gate and shapes of its own.

    Each comes with its mixture and its statistics there. Rows that are far worse explained than those of all other
    sites are not noisier but wrong: a code for missing values widens any expert. ``mixtures`` has the joint one for
    each site, with a gate of its own where that is known.
    """
    if not (unexplained and all(mixtures[site].experts.shapes for site in unexplained)):
        return {}
    found = yield from climb_gates({site: mixtures[site] for site in unexplained}, penalty, shapes=True)
    own = dict(zip(cross.sites, np.diagonal(cross.values), strict=True))
    pairs = zip(cross.sites, reached, strict=True)
    least = min((float(value) for site, value in pairs if site not in unexplained), default=-np.inf) - NOISIER
    same = {site: at for site, at in found.items() if has_same_coefficients(*at, own[site], covariances)}
    return {site: at for site, at in same.items() if _per_row(at[1]) >= least}


def strangest_site(
    cross: CrossLikelihood,
    noisier: Mapping[str, tuple[Mixture, Statistics]],
    mixture: Mixture,
    covariances: Array,
    penalty: Penalty,
) -> Dialogue[str | None]:
    """Return the noisier site that the joint mixture explains worst, if it is worse than by chance.

    A site has shapes of its own, and a gate of its own if that gains more than chance: its cases may be others, too.
    Otherwise it has the joint gate, which tells more, as a gate of its own takes up a part of what is wrong. Only the
    worst site is returned: the joint mixture is between it and the others, and explains those badly as well.
    """
    found = yield from climb_shapes(dict.fromkeys(noisier, mixture), penalty)
    own = dict(zip(cross.sites, np.diagonal(cross.values), strict=True))
    beyond = {}
    for site, at_joint in found.items():
        n, of_gate = max(at_joint[1].weight, 1.0), np.ones(mixture.gate.parameter_count)
        other_cases = not is_chance(_per_row(noisier[site][1]) - _per_row(at_joint[1]), of_gate, n)
        at = noisier[site] if other_cases else at_joint
        usual = np.r_[of_gate[: 0 if other_cases else None], usual_gains(*at, covariances)]
        gain = gain_of_coefficients(*at, own[site])
        beyond[site] = (2 * n * gain - usual.sum()) / np.sqrt(2 * usual @ usual)
    worst = max(beyond, key=lambda site: beyond[site], default=None)
    return worst if worst is not None and beyond[worst] > STRANGE else None


def has_same_coefficients(mixture: Mixture, statistics: Statistics, per_row: float, covariances: Array) -> bool:
    """Whether coefficients of its own would gain a site no more than chance (:func:`gain_of_coefficients`)."""
    gain = gain_of_coefficients(mixture, statistics, per_row)
    return is_chance(gain, usual_gains(mixture, statistics, covariances), max(statistics.weight, 1.0))


def usual_gains(mixture: Mixture, statistics: Statistics, covariances: Array) -> Array:
    r"""Compute what is usual of twice the gain of coefficients of its own for a site, ``(K f,)``.

    It is :math:`1 + \lambda_i` with the eigenvalues of :math:`J V` for each expert: precise rows tell that coefficients
    from noisier rows are not exact.

    Parameters
    ----------
    mixture : Mixture
        With the joint coefficients and the shapes of the site.
    statistics : Statistics
        Of the site at that mixture, whose information ``J`` is that with known labels.
    covariances : (K, f, f) array
        Covariance ``V`` of the joint coefficients of each expert.
    """
    f = covariances.shape[1]
    J = mixture.experts.complete(statistics.experts)[:, :f, :f]
    return np.asarray(1 + np.linalg.eigvals(J @ covariances).real).ravel()


def gain_of_coefficients(mixture: Mixture, statistics: Statistics, per_row: float) -> float:
    """Compute what coefficients of its own would gain a site, in log-likelihood per row.

    It is the gain of the site's own model, as far as it is true, or that of a step from the site's sums.

    Parameters
    ----------
    mixture : Mixture
        With common coefficients.
    statistics : Statistics
        Of the site.
    per_row : float
        Log-likelihood per row that the site states of its own model.
    """
    coefficients, _ = mixture.experts.score(statistics.experts)
    step = 0.0
    for g, C in zip(coefficients.reshape(mixture.K, -1), mixture.experts.complete(statistics.experts), strict=True):
        step += 0.5 * float(g @ inverse_bounded(C[: len(g), : len(g)])[0] @ g)
    return max(per_row - _per_row(statistics), step / max(statistics.weight, 1.0))


def _per_row(statistics: Statistics) -> float:
    return statistics.log_likelihood / max(statistics.weight, 1.0)


def _differs(mixture: Mixture, statistics: Statistics, columns: tuple[str, ...]) -> str:
    """Return the coefficient in which the experts differ most at a site, by one step in units of its standard error."""
    coefficients, _ = mixture.experts.score(statistics.experts)
    names = (*(("the intercept",) if mixture.design.intercept else ()), *columns)
    largest, which = 0.0, ""
    for g, C in zip(coefficients.reshape(mixture.K, -1), mixture.experts.complete(statistics.experts), strict=True):
        inverse, _ = inverse_bounded(C[: len(g), : len(g)])
        z = np.abs(inverse @ g) / np.sqrt(np.maximum(np.diagonal(inverse), np.finfo(float).tiny))
        j = int(np.argmax(z)) % mixture.design.p
        if len(names) == mixture.design.p and z.max() > largest:
            largest, which = float(z.max()), f", above all in the coefficient of {names[j]}"
    return which.replace("coefficient of the intercept", "intercept")


def with_unlikely(survey: Survey, per_row: Mapping[str, float]) -> Survey:
    """Add the sites whose rows the joint mixture explains far worse than those of most others.

    Parameters
    ----------
    survey : Survey
    per_row : mapping of str to float
        Log-likelihood per row of each site under the joint mixture.
    """
    found = unlikely_sites(per_row)
    said = "the joint mixture explains its rows worse than those of most sites, by {:.2g} in log-likelihood per row"
    return survey.with_suspicions({site: (said.format(loss),) for site, loss in found.items()})


def with_camps(survey: Survey, mixture: Mixture, joint: Mapping[str, Statistics]) -> Survey:
    """Add a doubt if the sites form two camps, by the regressions of each site at the labels of the joint mixture.

    A joint mixture between two camps of nearly the same size explains both alike: their likelihoods do not show it.

    Parameters
    ----------
    survey : Survey
    mixture : Mixture
        The joint mixture, of Gaussian experts with one response.
    joint : mapping of str to Statistics
        Statistics of each site at the joint mixture.
    """
    experts = gaussian(mixture.experts)
    found = [experts.solution(statistics.experts) for statistics in joint.values()]
    known = np.array([solution.n for solution in found]) > experts.p  # (M, K)
    points = np.where(known[:, :, None], [solution.B[:, 0] for solution in found], np.nan)
    covariances = np.tile(np.eye(experts.p), (*known.shape, 1, 1))
    for m, k in np.argwhere(known):
        covariances[m, k] = experts.variances[k, 0] * inverse_bounded(found[m].S[k])[0]
    test = camps(list(np.swapaxes(points, 0, 1)), list(np.swapaxes(covariances, 0, 1)))
    return survey.with_suspicions({}, (test.text,)) if test.found else survey


def _with_disagreement(survey: Survey, found: SiteAgreement, differs: Mapping[str, str]) -> Survey:
    """Add the sites that the joint mixture does not explain."""
    alone = "also at a gate of its own, and the experts of other sites do not fit it"
    named = {site: f"{_worse(loss)}, {alone}{differs.get(site, '')}" for site, loss in found.named.items()}
    rest = {
        site: (_worse(loss) + differs.get(site, ""),) for site, loss in found.unexplained.items() if site not in named
    }
    doubts = (_undecided(max(found.unexplained.values())),) if found.undecided else ()
    suspect = {site: (said,) for site, said in named.items()}
    return survey.with_unlike(named).with_suspicions(suspect, doubts).with_notes(rest)


def _worse(loss: float) -> str:
    return f"{WORSE}, by {loss:.2g} in log-likelihood per row"


def _undecided(loss: float) -> str:
    return (
        f"{DISAGREE}: the joint mixture explains the rows of a site worse than its own model, by {loss:.2g} in "
        "log-likelihood per row"
    )


def _own(share: float, count: int) -> str:
    what = "a component" if count == 1 else f"{count} components"
    return f"{share:.0%} of its rows form {what} of their own: an error in its data?".replace("%", " %")
