"""Sections of a report: the model in words and figures, its sites, and the run."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from scipy.special import ndtri

from consilience import plot
from consilience._version import __version__
from consilience.errors import InvalidInputError
from consilience.files.documents import MixtureDocument
from consilience.files.json_text import content_hash
from consilience.fit.survey import SiteReport
from consilience.fitted.protocols import (
    FederatedResult,
    FittedMixture,
    noun,
    parameter_table,
    response_names,
    term_names,
    terms_read,
)
from consilience.methods import OwnGatesFit
from consilience.plot.drawing import around_mean
from consilience.plot.federated_results import site_forest
from consilience.report.page import Picture, Section, Table, format_percent, format_value, row_band
from consilience.report.privacy import privacy_section
from consilience.report.subject import Subject
from consilience.report.verdict import columns_in_doubt, site_reason, site_status

TERMS_DRAWN = 15
"""Maximum number of terms in a picture of coefficients; the table has all of them."""
CURVES = 2
"""Maximum number of covariates along which the gate is drawn."""


def words_section(subject: Subject, _draw: Any) -> Section:
    """Return the experts in plain words."""
    paragraphs = [" ".join(part.split()) for part in subject.model.describe().split("\n\n")]
    return Section(f"Who is in which {noun(subject.model)}, in words", tuple(paragraphs))


def coefficient_section(subject: Subject, draw: Any) -> Section:
    """Return all parameters with intervals, and a picture of the experts' coefficients."""
    model, table = subject.model, parameter_table(subject.model, 0.95)
    outputs = response_names(model)
    header = (noun(model), "part", *(("response",) if len(outputs) > 1 else ()), "term", "estimate", "standard error",
              "lower 95 %", "upper 95 %")  # fmt: skip
    rows = []
    for i, part in enumerate(table["part"]):
        of = (table["response"][i],) if len(outputs) > 1 else ()
        figures = (format_value(table[name][i]) for name in ("estimate", "std_error", "lower", "upper"))
        rows.append((str(table["expert"][i]), part.replace("_", " "), *of, table["term"][i], *figures))
    first = len(header) - 4
    numbers = Table("All parameters with 95 % intervals", header, tuple(rows), tuple(range(first, first + 4)))
    terms = [name for name in _strongest_terms(model) if name != "(intercept)"][:TERMS_DRAWN]
    alt = f"Coefficients of each {noun(model)} with 95 % intervals"
    alt += f": the {len(terms)} largest in standard errors" if len(_strongest_terms(model)) > TERMS_DRAWN + 1 else ""
    if not terms:
        return Section("Effects", (), (numbers,))
    response = outputs[0] if len(outputs) > 1 else None
    make = partial(plot.coefficients, model, terms, response=response)
    return Section("Effects", (), (*draw(alt, make, None), numbers))


def _strongest_terms(model: FittedMixture) -> list[str]:
    """Return the terms of the experts, the largest in standard errors first; by size where these are not known."""
    table = parameter_table(model, 0.0)
    strength: dict[str, float] = {}
    for part, term, estimate, error in zip(
        table["part"], table["term"], table["estimate"], table["std_error"], strict=True
    ):
        if part == "expert":
            size = abs(estimate) / error if np.isfinite(error) and error > 0 else abs(estimate)
            strength[term] = max(strength.get(term, 0.0), size)
    return sorted(strength, key=lambda term: -strength[term])


def gate_section(subject: Subject, draw: Any) -> Section | None:
    """Return where each expert holds: shares, and the gate along the covariates that move it most."""
    model = subject.model
    K, name = model.mixture_.K, noun(model)
    if K == 1:
        return None
    rows = tuple((f"{name} {k}", f"{100 * share:.1f} %") for k, share in enumerate(model.weights_))
    shares = Table(f"Share of each {name} in all rows", (name, "share"), rows, (1,))
    if not model.mixture_.gate.reads_covariates:
        said = f"Every row belongs to a {name} with the same probabilities, whatever its columns."
        return Section(f"Where each {name} holds", (said,), (shares,))
    pictures: list[Picture] = []
    for term in _moving_covariates(model)[:CURVES]:
        alt = f"Probability of each {name} along {term}, with all other columns at their means"
        pictures += draw(alt, partial(plot.gate, model, feature=term), _gate_table(model, term))
    return Section(f"Where each {name} holds", (), (shares, *pictures))


def _moving_covariates(model: FittedMixture) -> list[str]:
    """Return the numeric covariates that move the gate most per standard deviation, the first one first."""
    names = list(model.columns_.terms)
    design, reads = model.coordinates_
    slopes = model.mixture_.in_coordinates(design, reads).gate.read()[:, int(reads.intercept) :]
    columns = range(len(names)) if reads.columns is None else reads.columns
    size = np.ptp(slopes, axis=0)
    found = [names[columns[j]] for j in np.argsort(-size, kind="stable") if size[j] > 0]
    return [name for name in found if model.columns_.category_of(name) is None]


def _gate_table(model: FittedMixture, term: str) -> Table:
    """Return the gate at five places along a covariate."""
    low, high = around_mean(model)
    at = np.tile((low + high) / 2, (5, 1))
    j = list(model.columns_.terms).index(term)
    at[:, j] = np.linspace(low[j], high[j], 5)
    found = model.mixture_.gate_weights(at)
    header = (term, *(f"{noun(model)} {k}" for k in range(found.shape[1])))
    rows = tuple((format_value(x), *(f"{p:.3f}" for p in line)) for x, line in zip(at[:, j], found, strict=True))
    return Table(f"Probability of each {noun(model)} along {term}", header, rows, tuple(range(1, len(header))))


def convergence_section(subject: Subject, draw: Any) -> Section:
    """Return how the computation ended."""
    model = subject.model
    said = {
        "end": str(model.stop_reason_),
        "iterations": f"{model.n_iter_}",
        "log-likelihood": format_value(model.log_likelihood_, 8),
        "parameters": f"{model.n_parameters_}",
        "rows or groups": format_value(model.n_labels_, 10),
        "searches": str(model.starts_),
    }
    facts = Table("The fit", ("what", "value"), tuple(said.items()))
    if len(model.trace_) < 2:
        return Section("Convergence", (), (facts,))
    rows = tuple((str(i), f"{value:.6g}") for i, value in enumerate(model.trace_))
    trace = Table("Penalised log-likelihood by iteration", ("iteration", "value"), rows, (1,))
    alt = "Penalised log-likelihood at each iteration over all rows"
    make = partial(plot.convergence, model if subject.result is None else subject.result)
    return Section("Convergence", (), (facts, *draw(alt, make, trace)))


def row_section(subject: Subject, draw: Any) -> Section | None:
    """Return how well the model fits the rows that were passed, and how well it separates them."""
    if subject.X is None:
        return None
    model, y = subject.model, subject.y
    alt = f"Responsibilities of each {noun(model)}: peaks at 1 mean that rows are clearly told apart"
    pictures = draw(alt, partial(plot.posteriors, model, subject.X, y), None)
    one = model.mixture_.experts.classes == 0 or len(model.classes_) == 2
    if one and len(response_names(model)) == 1 and model.mixture_.design.d:
        alt = "Calibration of the predictions: points on the line mean that the model predicts as it should"
        pictures += draw(alt, partial(plot.calibration, model, subject.X, y), None)
    return Section("The model on the rows", (), tuple(pictures))


# ---------------------------------------------------------------------- sites


FORESTS = 4
"""Maximum number of coefficients with a forest plot: those in which sites differ most."""
SITES_DRAWN = 60
"""Maximum number of sites in a picture; the tables have all of them."""


def site_section(subject: Subject, _draw: Any) -> Section | None:
    """Return how each site was used, and what is in doubt about it."""
    sites = subject.sites
    if not sites:
        return None
    weights = np.array([getattr(site, "weight", np.nan) for site in sites], dtype=float)
    total = np.nansum(weights)
    columns: list[tuple[str, list[str]]] = [
        ("site", [site.name for site in sites]),
        ("rows", [row_band(weight) for weight in weights]),
        ("share of all rows", [format_percent(weight / total) if total else "—" for weight in weights]),
        ("status", [site_status(site) for site in sites]),
    ]
    for title, name in (
        ("log-likelihood of its own model, per row", "log_likelihood_per_row"),
        ("loss per row under the combined model", "distance"),
    ):
        if any(hasattr(site, name) for site in sites):
            columns.append((title, [format_value(getattr(site, name, np.nan), 3) for site in sites]))
    if any(site.influence is not None for site in sites):
        columns.append(("largest change without it, in standard errors", [_influence(site) for site in sites]))
    if any(hasattr(site, "shrinkage") for site in sites):
        columns.append(("taken from the others", [_shrinkage(site) for site in sites]))
    if subject.policies:
        columns.append(("policy", [subject.policies.get(site.name, "—") for site in sites]))
    columns.append(("why, and what is in doubt", [_why(subject, site) for site in sites]))
    table = Table(
        "Sites",
        tuple(title for title, _ in columns),
        tuple(zip(*(values for _, values in columns), strict=True)),
        tuple(j for j, (title, _) in enumerate(columns) if title.startswith(("share", "log-", "loss"))),
    )
    said = "Rows are given in bands. Loss is how much worse the combined model explains a site than its own model."
    return Section("Sites", (said,) if subject.combination is not None else ("Rows are given in bands.",), (table,))


def _influence(site: SiteReport) -> str:
    return "—" if site.influence is None else f"{abs(site.influence.change):.1f}, of {site.influence.of}"


def _shrinkage(site: SiteReport) -> str:
    found = getattr(site, "shrinkage", np.zeros(0))
    return format_percent(float(np.mean(found))) if len(found) else "—"


def _why(subject: Subject, site: SiteReport) -> str:
    """Return the reason in words, and the remarks of the method."""
    columns = columns_in_doubt(subject, site.name)
    remarks = [each for each in site.remarks if each not in columns]
    said = [site_reason(subject, site), *site.reasons, *remarks, *columns]
    return "; ".join(dict.fromkeys(each for each in said if each))


# ---------------------------------------------------------------------- differences between sites


def difference_section(subject: Subject, draw: Any) -> Section | None:
    """Return I² and τ² of each coefficient, and forest plots of those in which sites differ most."""
    if subject.result is None or not (subject.combination is not None or subject.result.models):
        return None
    if isinstance(subject.result.fit, OwnGatesFit):
        return _share_section(subject.result, subject.result.fit, draw)
    model, chosen = subject.model, _most_different(subject)
    found: list[Table | Picture] = []
    between = model.inference_.between
    if between is not None:
        found.append(_heterogeneity(subject, between))
    for k, c, t in chosen:
        with suppress(InvalidInputError):  # of several classes, or of a fit that was refined from a site's model
            found += _forest(subject, draw, k, c, t)
    said = (
        "I² is the share of the variation between sites that chance does not explain, τ² the variance between sites.",
    )
    return Section("Differences between sites", said, tuple(found)) if found else None


def _share_section(result: FederatedResult, fit: OwnGatesFit, draw: Any) -> Section:
    """Return the shares of the experts at each site, and the test of equal gates."""
    columns, kind = fit.shares(0.95), noun(result.model)
    alt = f"Share of each {kind} at each site, with 95 % intervals"
    header = ("site", kind, "share", "lower 95 %", "upper 95 %")
    rows = [
        (str(site), str(k), *map(format_value, figures)) for site, k, *figures in zip(*columns.values(), strict=True)
    ]
    table = Table(alt, header, tuple(rows), (2, 3, 4))
    said = (f"The {kind}s are common to all sites; each site has a gate of its own; {fit.test}.",)
    drawn = draw(alt, partial(plot.shares, result), table) if len(fit.fits) <= SITES_DRAWN else [table]
    return Section("Differences between sites", said, tuple(drawn))


def _heterogeneity(subject: Subject, between: Any) -> Table:
    model = subject.model
    names, outputs = term_names(model), response_names(model)
    of = [f", {output}" if len(outputs) > 1 else "" for output in outputs]
    rows = [
        (str(k), f"{names[t]}{of[c]}", format_percent(I2), format_value(tau2, 3))
        for (k, c, t), I2, tau2 in _coefficients_between(between)
        if np.isfinite(I2)
    ]
    return Table("Differences between sites by coefficient", (noun(model), "term", "I²", "τ²"), tuple(rows), (2, 3))


def _coefficients_between(between: Any) -> list[tuple[tuple[int, int, int], float, float]]:
    I2, tau2 = between.I2.experts, between.tau2.experts
    return [((k, c, t), I2[k, c, t], tau2[k, c, t]) for k, c, t in np.ndindex(I2.shape)]


def _most_different(subject: Subject) -> list[tuple[int, int, int]]:
    """Return the coefficients with the largest I²; the first ones where it is not known."""
    model = subject.model
    read = [t for t in terms_read(model)[1] if t or not model.mixture_.design.intercept]
    if model.inference_.between is None:
        return [(k, 0, t) for t in read[:2] for k in range(model.mixture_.K)][:FORESTS]
    known = [
        (place, I2)
        for place, I2, _ in _coefficients_between(model.inference_.between)
        if np.isfinite(I2) and place[2] in read
    ]
    return [place for place, _ in sorted(known, key=lambda each: -each[1])[:FORESTS]]


def _forest(subject: Subject, draw: Any, k: int, c: int, t: int) -> list[Picture]:
    model, outputs = subject.model, response_names(subject.model)
    assert subject.result is not None  # noqa: S101 - there is no forest without sites
    found = site_forest(subject.result, k, c, t)
    inference = model.inference_
    reach = ndtri(0.975) * np.sqrt(found.variances)
    lines = zip(found.names, found.estimates, found.estimates - reach, found.estimates + reach, strict=True)
    rows = [(name, *(format_value(value) for value in figures)) for name, *figures in lines]
    joint = (part.experts[k, c, t] for part in (inference.estimates, *inference.interval(0.95)))
    rows.append(("all sites", *(format_value(value) for value in joint)))
    term = f"{term_names(model)[t]}{f' on {outputs[c]}' if len(outputs) > 1 else ''}"
    alt = f"{term} of {noun(model)} {k} at each site and in all of them, with 95 % intervals"
    table = Table(alt, ("site", "estimate", "lower 95 %", "upper 95 %"), tuple(rows), (1, 2, 3))
    if len(found.names) > SITES_DRAWN:
        return [Picture("", f"{alt}: {len(found.names)} sites are too many to draw", table)]
    response = outputs[c] if len(outputs) > 1 else None
    drawn: list[Picture] = draw(alt, partial(plot.sites, subject.result, t, k, response=response), table)
    return drawn


# ---------------------------------------------------------------------- the combination


def plan_section(subject: Subject, draw: Any) -> Section | None:
    """Return which expert of a site became which combined expert."""
    combination = subject.combination
    if subject.result is None or combination is None or subject.rivals.from_site:
        return None
    name, K = noun(subject.model), subject.model.mixture_.K
    header = ("site", *(f"{name} {k}" for k in range(K)), "not used")
    rows = []
    for site in subject.sites:
        labels = combination.plan.get(site.name)
        if labels is None:
            rows.append((site.name, *("" for _ in range(K)), "no model"))
            continue
        rows.append((site.name, *(", ".join(map(str, np.flatnonzero(labels == k))) for k in (*range(K), -1))))
    table = Table(f"Number of the site's own {name} that became each combined {name}", header, tuple(rows))
    said = f"Each site numbers its own {name}s by their rows, 0 has the most."
    alt = f"Which {name} of each site became which combined {name}"
    if len(rows) > SITES_DRAWN:
        return Section("From the sites' models to one", (said,), (table,))
    pictures = draw(alt, partial(plot.transport, subject.result), table)
    return Section("From the sites' models to one", (said,), tuple(pictures))


def rival_section(subject: Subject, _draw: Any) -> Section | None:
    """Return the log-likelihood of the result beside those of simpler models."""
    found, model = subject.rivals, subject.model
    own = [("this result", model.log_likelihood_)]
    if found is not None:
        own += found.shown
    elif model.single_bic_ is not None:
        bic = -2 * model.log_likelihood_ + model.n_parameters_ * np.log(model.n_labels_)
        both = (("this result", bic), (f"one {noun(model)} for all rows", model.single_bic_))
        scores = tuple((name, format_value(value, 8)) for name, value in both)
        return Section("Against simpler models", (), (Table("BIC, less is better", ("model", "BIC"), scores, (1,)),))
    known = [(name, value) for name, value in own if np.isfinite(value)]
    if len(known) < 2:
        return None
    n = model.n_labels_
    rows = tuple((name, format_value(value, 8), format_value((value - known[0][1]) / n, 3)) for name, value in known)
    header = ("model", "log-likelihood", "difference per row")
    return Section("Against simpler models", (), (Table("Log-likelihood of all rows", header, rows, (1, 2)),))


# ---------------------------------------------------------------------- the run


def order_section(subject: Subject, draw: Any) -> Section | None:
    """Return the criteria of the numbers of experts that were compared."""
    found = subject.orders
    if found is None or len(found.orders) < 2:
        return None
    scores = found.scores
    rows = tuple(
        (str(K), *(format_value(scores[name][i], 8) for name in scores), found.set_aside.get(K, ""))
        for i, K in enumerate(found.orders)
    )
    named = tuple(name.replace("_", "-") if "_" in name else name.upper() for name in scores)
    name = noun(subject.model)
    table = Table(f"Number of {name}s", (f"{name}s", *named, "set aside"), rows, tuple(range(1, len(named) + 1)))
    said = f"{found.criterion.upper()} prefers {found.best_order}; less is better for AIC, BIC and ICL."
    pictures = draw(f"Criteria by the number of {name}s", partial(plot.orders, found), table)
    return Section(f"Choice of the number of {name}s", (said,), tuple(pictures))


def round_section(subject: Subject, _draw: Any) -> Section | None:
    """Return what was asked, what left each site, and bytes."""
    if subject.result is None:
        return None
    record = subject.result.record
    kinds = Counter((each.question, each.request, each.discloses) for each in record.rounds)
    rows = tuple(
        (question, str(times), "only the sum over sites" if request == "Total" else "the answer of each site", said)
        for (question, request, said), times in kinds.items()
    )
    header = ("question", "times", "what the coordinator sees", "what an answer has")
    asked = Table("Questions, and what an answer discloses", header, rows, (1,))
    bytes_of: dict[str, list[float]] = {}
    for row in record.to_rows():
        entry = bytes_of.setdefault(row["site"], [0, 0.0, 0.0])
        entry[0] += 1
        entry[1] += row["bytes_received"]
        entry[2] += row["bytes_sent"]
    rows = tuple((site, f"{e[0]:.0f}", f"{e[1]:,.0f}", f"{e[2]:,.0f}") for site, e in sorted(bytes_of.items()))
    left = Table("What left each site", ("site", "answers", "bytes that left it", "bytes it received"), rows, (1, 2, 3))
    said = f"{len(record.rounds)} rounds; {record.bytes_received:,} bytes came from sites. No row has left a site."
    limits = tuple(f"Limit of the run: {each}." for each in record.limits.sentences())
    return Section("What left each site", (said, *limits), (asked, left))


def provenance_section(subject: Subject, _draw: Any) -> Section:
    """Return versions, hashes and seeds."""
    model = subject.model
    own = {
        "library": f"consilience {__version__}, Python {platform.python_version()}",
        "kind of model": type(model).__name__,
        "hash of its parameters": content_hash(MixtureDocument.of(model.mixture_)),
        "seed": str(getattr(model, "random_state", None)),
        **{name.replace("_", " "): str(value) for name, value in getattr(model, "provenance_", {}).items()},
    }
    rows = tuple({**own, **subject.origin}.items())
    return Section("Provenance", (), (Table("Where this result comes from", ("what", "value"), rows),))


SECTIONS: tuple[Callable[[Subject, Any], Section | None], ...] = (
    words_section, site_section, coefficient_section, gate_section, difference_section, plan_section, rival_section,
    order_section, convergence_section, row_section, privacy_section,
    round_section, provenance_section,
)  # fmt: skip
"""What makes the sections of a report, in their order; a section may have nothing to say of a subject."""
