"""Sections on sites: how each was used, how they differ, what was combined with what, and simpler models."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from scipy.special import ndtri

from consilience import plot
from consilience.errors import InvalidInputError
from consilience.estimators.table import places_read, responses, terms, unit
from consilience.plot.sites import forest_of
from consilience.report.parts import Picture, Section, Table, band, number, percent
from consilience.report.site_words import columns_in_doubt, reason_of, status_of
from consilience.report.subject import Subject

FORESTS = 4
"""Maximum number of coefficients with a forest plot: those in which sites differ most."""
SITES_DRAWN = 60
"""Maximum number of sites in a picture; the tables have all of them."""


def site_table(subject: Subject, _draw: Any) -> Section | None:
    """Return how each site was used, and what is in doubt about it."""
    sites = subject.sites
    if not sites:
        return None
    weights = np.array([getattr(site, "weight", np.nan) for site in sites], dtype=float)
    total = np.nansum(weights)
    columns: list[tuple[str, list[str]]] = [
        ("site", [site.name for site in sites]),
        ("rows", [band(weight) for weight in weights]),
        ("share of all rows", [percent(weight / total) if total else "—" for weight in weights]),
        ("status", [status_of(site) for site in sites]),
    ]
    for title, name in (
        ("log-likelihood of its own model, per row", "log_likelihood_per_row"),
        ("loss per row under the combined model", "distance"),
        ("influence, in standard errors", "influence"),
    ):
        if any(hasattr(site, name) for site in sites):
            columns.append((title, [number(getattr(site, name, np.nan), 3) for site in sites]))
    if any(hasattr(site, "shrinkage") for site in sites):
        columns.append(("taken from the others", [_shrinkage(site) for site in sites]))
    if subject.policies:
        columns.append(("policy", [subject.policies.get(site.name, "—") for site in sites]))
    columns.append(("why, and what is in doubt", [_why(subject, site) for site in sites]))
    table = Table(
        "Sites",
        tuple(title for title, _ in columns),
        tuple(zip(*(values for _, values in columns), strict=True)),
        tuple(j for j, (title, _) in enumerate(columns) if title.startswith(("share", "log-", "loss", "influence"))),
    )
    said = "Rows are given in bands. Loss is how much worse the combined model explains a site than its own model."
    return Section("Sites", (said,) if subject.combination is not None else ("Rows are given in bands.",), (table,))


def _shrinkage(site: Any) -> str:
    found = getattr(site, "shrinkage", np.zeros(0))
    return percent(float(np.mean(found))) if len(found) else "—"


def _why(subject: Subject, site: Any) -> str:
    """Return the reason in words, and the remarks of the method."""
    columns = columns_in_doubt(subject, site.name)
    said = [reason_of(subject, site), *site.reasons, *(each for each in site.remarks if each not in columns), *columns]
    return "; ".join(dict.fromkeys(each for each in said if each))


# ---------------------------------------------------------------------- differences between sites


def between_sites(subject: Subject, draw: Any) -> Section | None:
    """Return I² and τ² of each coefficient, and forest plots of those in which sites differ most."""
    if subject.result is None or not (subject.combination is not None or subject.result.models):
        return None
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


def _heterogeneity(subject: Subject, between: Any) -> Table:
    model = subject.model
    names, outputs = terms(model), responses(model)
    rows = [
        (str(k), f"{names[t]}{f', {outputs[c]}' if len(outputs) > 1 else ''}", percent(I2), number(tau2, 3))
        for (k, c, t), I2, tau2 in _each(between)
        if np.isfinite(I2)
    ]
    return Table("Differences between sites by coefficient", (unit(model), "term", "I²", "τ²"), tuple(rows), (2, 3))


def _each(between: Any) -> list[tuple[tuple[int, int, int], float, float]]:
    I2, tau2 = between.I2.experts, between.tau2.experts
    return [((k, c, t), I2[k, c, t], tau2[k, c, t]) for k, c, t in np.ndindex(I2.shape)]


def _most_different(subject: Subject) -> list[tuple[int, int, int]]:
    """Return the coefficients with the largest I²; the first ones where it is not known."""
    model = subject.model
    read = [t for t in places_read(model)[1] if t or not model.mixture_.design.intercept]
    if model.inference_.between is None:
        return [(k, 0, t) for t in read[:2] for k in range(model.mixture_.K)][:FORESTS]
    known = [(place, I2) for place, I2, _ in _each(model.inference_.between) if np.isfinite(I2) and place[2] in read]
    return [place for place, _ in sorted(known, key=lambda each: -each[1])[:FORESTS]]


def _forest(subject: Subject, draw: Any, k: int, c: int, t: int) -> list[Picture]:
    model, outputs = subject.model, responses(subject.model)
    assert subject.result is not None  # noqa: S101 - there is no forest without sites
    found = forest_of(subject.result, k, c, t)
    inference = model.inference_
    reach = ndtri(0.975) * np.sqrt(found.variances)
    lines = zip(found.names, found.estimates, found.estimates - reach, found.estimates + reach, strict=True)
    rows = [(name, *(number(value) for value in figures)) for name, *figures in lines]
    joint = (part.experts[k, c, t] for part in (inference.estimates, *inference.interval(0.95)))
    rows.append(("all sites", *(number(value) for value in joint)))
    term = f"{terms(model)[t]}{f' on {outputs[c]}' if len(outputs) > 1 else ''}"
    alt = f"{term} of {unit(model)} {k} at each site and in all of them, with 95 % intervals"
    table = Table(alt, ("site", "estimate", "lower 95 %", "upper 95 %"), tuple(rows), (1, 2, 3))
    if len(found.names) > SITES_DRAWN:
        return [Picture("", f"{alt}: {len(found.names)} sites are too many to draw", table)]
    response = outputs[c] if len(outputs) > 1 else None
    drawn: list[Picture] = draw(alt, partial(plot.sites, subject.result, t, k, response=response), table)
    return drawn


# ---------------------------------------------------------------------- the combination


def plan(subject: Subject, draw: Any) -> Section | None:
    """Return which expert of a site became which combined expert."""
    combination = subject.combination
    if subject.result is None or combination is None or subject.rivals.from_site:
        return None
    name, K = unit(subject.model), subject.model.mixture_.K
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


def rivals(subject: Subject, _draw: Any) -> Section | None:
    """Return the log-likelihood of the result beside those of simpler models."""
    found, model = subject.rivals, subject.model
    own = [("this result", model.log_likelihood_)]
    if found is not None:
        own += [
            ("before refinement", found.unrefined),
            ("one regression for all rows", found.one_regression),
            (f"model of {found.best_site} for all sites", found.carried_over),
            ("one normal distribution without covariates", found.constant),
        ]
    elif model.single_bic is not None:
        P = model.n_parameters_
        table = Table(
            "BIC, less is better",
            ("model", "BIC"),
            (
                ("this result", number(-2 * model.log_likelihood_ + P * np.log(model.n_labels_), 8)),
                (f"one {unit(model)} for all rows", number(model.single_bic, 8)),
            ),
            (1,),
        )
        return Section("Against simpler models", (), (table,))
    known = [(name, value) for name, value in own if np.isfinite(value)]
    if len(known) < 2:
        return None
    n = model.n_labels_
    rows = tuple((name, number(value, 8), number((value - known[0][1]) / n, 3)) for name, value in known)
    header = ("model", "log-likelihood", "difference per row")
    return Section("Against simpler models", (), (Table("Log-likelihood of all rows", header, rows, (1, 2)),))
