"""What a report reads of a run over sites, as a value of plain numbers and words: it can be stored beside the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self, TypeVar

import numpy as np
from pydantic import Field

from consilience.aggregate import SiteEvidence
from consilience.errors import InvalidInputError
from consilience.files.documents import Matrix, Number, Numbers, Part, Vector, Words, jsonable, validated
from consilience.fit.survey import SiteReport
from consilience.fitted.protocols import FederatedComparison, FederatedResult, FittedMixture
from consilience.fitted.site_influence import site_influences, unit_influences, with_influences
from consilience.methods import CombinedFit, OwnGatesFit, PrivateFit
from consilience.methods.per_site.shared_fit import SiteShare
from consilience.plot.federated_results import site_forest

P = TypeVar("P", bound=Part)
MOST = 100_000
"""Maximum number of sites, and of items of a list."""
NOT_SHOWN_ELSEWHERE = "its data follow patterns that no other site shows"
Sentences = Annotated[list[Words], Field(max_length=MOST)]
Count = Annotated[int, Field(ge=0)]


class SiteAccount(Part):
    """What is known of one site.

    Parameters
    ----------
    name : str
    rows : float
        NaN if it is not known.
    status : str
        Such as ``"used"`` or ``"set aside"``.
    why : str
        Why it was not used as a whole, in words; empty if it was.
    reasons, remarks, suspicions : list of str
        As the method and the survey of the columns say them.
    question : str
        What the site is to be asked.
    """

    name: Words
    rows: Number
    status: Words
    why: Words
    reasons: Sentences
    remarks: Sentences
    suspicions: Sentences
    question: Words


class EstimatesAtSites(Part):
    """Estimates of each site and their variances, ``(M, K, C, p)``, in the order of the sites; NaN if not known."""

    estimates: Annotated[Any, Numbers((4,))]
    variances: Annotated[Any, Numbers((4,))]


class BetweenSites(Part):
    """How far the sites differ: Cochran's Q with its degrees and p-value, I² and τ², ``(K, C p)``."""

    Q: Matrix
    df: Matrix
    I2: Matrix
    tau2: Matrix
    p_value: Matrix


class WithoutUnits(Part):
    """Change of each reported parameter without each institution, ``(U, D)``, and errors to measure it in, ``(D,)``."""

    units: Sentences
    changes: Matrix
    errors: Vector | None = None


class LargestChange(Part):
    """The largest change of an effect without an institution, in standard errors, and whether it is large."""

    unit: Words
    change: Number
    large: bool


class AskedOfSites(Part):
    """A kind of question: how often it was asked, how its answers are added, and what an answer discloses."""

    request: Words
    discloses: Words
    times: Count


class AnswersOfSite(Part):
    """Number and bytes of the answers of a site."""

    site: Words
    answers: Number
    size: Number


class Exchanged(Part):
    """What was asked and answered in a run."""

    rounds: Count
    received: Count
    limits: Sentences
    asked: Annotated[list[AskedOfSites], Field(max_length=MOST)]
    answered: Annotated[list[AnswersOfSite], Field(max_length=MOST)]


class ShareAtSite(Part):
    """Share of an expert at a site that has a gate of its own."""

    site: Words
    expert: Count
    share: Number
    lower: Number
    upper: Number


class OwnShares(Part):
    """Shares of the experts at each site, and the test of whether they differ."""

    rows: Annotated[list[ShareAtSite], Field(max_length=MOST)]
    test: Words


class NoiseSpent(Part):
    """Budget, end and forecast of a fit with noise."""

    guarantee: Words
    by_file: bool
    epsilon: Number
    delta: Number
    rho: Number
    shares: Vector
    unit: Words
    ratio: Number
    surprises: Vector
    settled: bool
    unsettled: Words


class OrdersCompared(Part):
    """Numbers of experts that were compared by a criterion, and the best."""

    orders: Annotated[list[Count], Field(max_length=MOST)]
    values: Vector
    criterion: Words
    best: Count
    set_aside: dict[str, Words]

    @classmethod
    def of(cls, found: FederatedComparison) -> OrdersCompared:
        """Return a comparison as a value."""
        several = len(found.orders) > 1  # of one there may be no criterion
        scores = found.scores.get(found.criterion, found.scores.get("bic", [])) if several else []
        return _as_part(
            cls,
            orders=list(found.orders),
            values=list(scores),
            criterion=found.criterion,
            best=found.best_order,
            set_aside={str(K): why for K, why in found.set_aside.items()},
        )


class SimplerModel(Part):
    """A simpler model and its log-likelihood; NaN if it was not evaluated."""

    name: Words
    log_likelihood: Number


class RunEvidence(Part):
    """What a report reads of the result of a run.

    Parameters
    ----------
    sites : list of SiteAccount
    asked : list of str
        Sites that took part.
    dropped : mapping of str to str
        Sites that left the run, and why.
    doubts : list of str
        Reasons not to trust the fit.
    plan : mapping of str to list of int
        The combined expert of each expert of a site; empty where the result is not of the combination.
    coefficients : EstimatesAtSites, optional
    between : BetweenSites, optional
        Of models of sites that were combined.
    without : WithoutUnits, optional
    influences : list of LargestChange
    rivals : list of SimplerModel, optional
        None for a method that has none.
    one_regression : float
        That of one regression for all rows.
    exchanged : Exchanged
    shares : OwnShares, optional
    noise : NoiseSpent, optional
    """

    sites: Annotated[list[SiteAccount], Field(max_length=MOST)]
    asked: Sentences
    dropped: dict[Words, Words]
    doubts: Sentences
    plan: dict[Words, Vector]
    coefficients: EstimatesAtSites | None = None
    between: BetweenSites | None = None
    without: WithoutUnits | None = None
    influences: Annotated[list[LargestChange], Field(max_length=MOST)]
    rivals: Annotated[list[SimplerModel], Field(max_length=MOST)] | None = None
    one_regression: Number
    exchanged: Exchanged
    shares: OwnShares | None = None
    noise: NoiseSpent | None = None

    @classmethod
    def of(cls, result: FederatedResult) -> Self:
        """Return the evidence of a result."""
        model, fit = result.model, result.fit
        rivals, combination = getattr(fit, "rivals", None), getattr(fit, "combination", None)
        reports = with_influences(fit.evidence(), site_influences(model, fit))
        changes = ((each.unit, each.change.change, each.large) for each in unit_influences(model, fit))
        return _as_part(
            cls,
            sites=[_account(result, each) for each in reports],
            asked=list(result.record.sites),
            dropped=dict(result.record.dropped),
            doubts=list(fit.doubts),
            plan=_plan(combination, rivals),
            coefficients=_coefficients(result),
            between=None if combination is None else _between(combination.heterogeneity),
            without=_without(result),
            influences=[dict(zip(LargestChange.model_fields, each, strict=True)) for each in changes],
            rivals=None
            if rivals is None
            else [{"name": name, "log_likelihood": value} for name, value in rivals.shown],
            one_regression=float(getattr(rivals, "one_regression", np.nan)),
            exchanged=_exchanged(result),
            shares=_shares(fit),
            noise=_noise(fit),
        )

    def with_files(self, sizes: Mapping[str, Sequence[int]]) -> Self:
        """Return the evidence of a run by files: the answers of each site count by the bytes of their files."""
        answered = [
            AnswersOfSite(site=site, answers=float(len(each)), size=float(sum(each)))
            for site, each in sorted(sizes.items())
        ]
        update = {"answered": answered, "received": sum(map(sum, sizes.values()))}
        return self.model_copy(update={"exchanged": self.exchanged.model_copy(update=update)})

    def check_fits(self, model: FittedMixture) -> None:
        """Raise an error unless arrays have the shapes, and numbers of experts the range, of the model."""
        K, C, p = model.inference_.estimates.experts.shape
        D, M = len(model.inference_.deviations()), len(self.sites)
        found, between, without = self.coefficients, self.between, self.without
        shapes: list[tuple[Any, tuple[int, ...]]] = []
        shapes += [] if found is None else [(found.estimates, (M, K, C, p)), (found.variances, (M, K, C, p))]
        if between is not None:
            shapes += [(getattr(between, name), (K, C * p)) for name in BetweenSites.model_fields]
        if without is not None:
            shapes += [(without.changes, (len(without.units), D))]
            shapes += [] if without.errors is None else [(without.errors, (D,))]
        labels = [k for plan in self.plan.values() for k in plan]
        labels += [] if self.shares is None else [each.expert for each in self.shares.rows]
        if any(array.shape != shape for array, shape in shapes) or any(not -1 <= k < K for k in labels):
            raise InvalidInputError("the evidence is not of this model: its arrays have other shapes")


def as_plain(value: Any) -> Any:
    """Return arrays, floats and what has them in objects as values of JSON."""
    if isinstance(value, Mapping):
        return {key: as_plain(each) for key, each in value.items()}
    return [as_plain(each) for each in value] if isinstance(value, list) else jsonable(value)


def _as_part(kind: type[P], **fields: Any) -> P:
    """Return a part as it would be read from a file."""
    return validated(kind, {name: as_plain(value) for name, value in fields.items() if value is not None}, "evidence")


# ---------------------------------------------------------------- from a result


def _account(result: FederatedResult, site: SiteReport) -> dict[str, Any]:
    survey = result.fit.survey
    return {
        "name": site.name,
        "rows": float(getattr(site, "weight", np.nan)),
        "status": str(getattr(site, "status", "used")),
        "why": _in_words(site),
        "reasons": list(site.reasons),
        "remarks": list(site.remarks),
        "suspicions": list(survey.suspicions.get(site.name, ())),
        "question": survey.questions.get(site.name, ""),
    }


def _in_words(site: SiteReport) -> str:
    """Return why a site was not used as a whole; empty if it was."""
    if isinstance(site, SiteEvidence):
        return _of_combined(site)
    status = str(getattr(site, "status", "used"))
    if isinstance(site, SiteShare):
        keeps = "its own model explains its rows better than the shared one, and it keeps it"
        return {"no answer": "it sent no answer", "on its own": keeps}.get(status, "; ".join(site.reasons))
    if status == "set aside":
        return "its data do not follow the pattern of the other sites"
    return "it has no rows" if status == "empty" else "; ".join(site.reasons)


def _of_combined(site: SiteEvidence) -> str:
    if site.copy_of is not None:
        return f"its model is the same as that of {site.copy_of}, so that one of them is a copy"
    if site.status == "no model":
        return "it has too few rows for a model of its own"
    if site.status == "set aside":
        return NOT_SHOWN_ELSEWHERE
    if not all(site.experts):
        return "a part of its rows follows a pattern that no other site shows; the other part was used"
    return "" if site.gate else "which of its rows follow which pattern is different from the other sites"


def _plan(combination: Any, rivals: Any) -> dict[str, list[int]]:
    """Return the combined expert of each expert of a site; nothing where the result was refined from one site."""
    if combination is None or (rivals is not None and getattr(rivals, "from_site", False)):
        return {}
    return {name: [int(k) for k in labels] for name, labels in combination.plan.items()}


def _coefficients(result: FederatedResult) -> dict[str, Any] | None:
    """Return the estimates of each site; nothing where a method gets none."""
    if not isinstance(result.fit, CombinedFit) and not result.models:
        return None
    K, C, p = result.model.inference_.estimates.experts.shape
    try:
        found = [[[site_forest(result, k, c, t) for t in range(p)] for c in range(C)] for k in range(K)]
    except (InvalidInputError, AttributeError):  # of several classes, or refined from a site's model
        return None
    estimates, variances = (
        np.moveaxis(np.array([[[getattr(each, name) for each in row] for row in part] for part in found]), -1, 0)
        for name in ("estimates", "variances")
    )
    return {"estimates": estimates, "variances": variances}


def _between(found: Any) -> dict[str, Any]:
    return {name: getattr(found, name) for name in BetweenSites.model_fields}


def _without(result: FederatedResult) -> dict[str, Any] | None:
    found = result.fit.left_out
    if found is None or not found.changes:
        return None
    errors = {} if found.errors is None else {"errors": found.errors}
    return {"units": list(found.changes), "changes": np.array(list(found.changes.values())), **errors}


def _exchanged(result: FederatedResult) -> dict[str, Any]:
    record = result.record
    kinds = Counter((each.question, each.request, each.discloses) for each in record.rounds)
    of: dict[str, list[float]] = {}
    for row in record.to_rows():
        entry = of.setdefault(row["site"], [0.0, 0.0])
        entry[0] += 1
        entry[1] += row["bytes_received"]
    return {
        "rounds": len(record.rounds),
        "received": record.bytes_received,
        "limits": list(record.limits.sentences()),
        "asked": [{"request": each[1], "discloses": each[2], "times": times} for each, times in kinds.items()],
        "answered": [{"site": name, "answers": n, "size": size} for name, (n, size) in sorted(of.items())],
    }


def _shares(fit: Any) -> dict[str, Any] | None:
    if not isinstance(fit, OwnGatesFit):
        return None
    columns = fit.shares(0.95)
    rows = [dict(zip(ShareAtSite.model_fields, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return {"rows": rows, "test": str(fit.test)}


def _noise(fit: Any) -> dict[str, Any] | None:
    if not isinstance(fit, PrivateFit):
        return None
    privacy = fit.privacy
    return {
        "guarantee": str(privacy),
        "by_file": privacy.exchange == "file",
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "rho": float(privacy.rho),
        "shares": [float(rho / privacy.rho) for rho in privacy.rhos],
        "unit": privacy.unit,
        "ratio": fit.forecast.ratio,
        "surprises": list(fit.surprises),
        "settled": fit.settled,
        "unsettled": fit.unsettled,
    }
