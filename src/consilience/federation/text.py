"""Short texts of a federation and its results: one screen, whatever the number of sites and rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from consilience.fit.survey import SiteReport

if TYPE_CHECKING:
    from consilience.federation.federated_fit import FederatedFit

NAMES_SHOWN = 6
REMARKS_SHOWN = 5
LONGEST = 160
NAME = "padding:2px 10px;text-align:left"


def some(names: Sequence[str]) -> str:
    """List names; of many, the first and the last.

    Examples
    --------
    >>> some(["a", "b"]), some([f"part-{i}" for i in range(200)])
    ('a, b', 'part-0, part-1, part-2, …, part-199')
    """
    shown = names if len(names) <= NAMES_SHOWN else [*names[: NAMES_SHOWN // 2], "…", names[-1]]
    return ", ".join(shown)


def fit_lines(fitted: FederatedFit) -> list[tuple[str, str]]:
    """Return labels and texts of the overview of a fit."""
    fit, record = fitted.fit, fitted.record
    lines = [
        ("model", f"{type(fitted.model).__name__}, {fitted.model.order_name}={fit.mixture.K}"),
        ("sites", _sites(fitted.sites, record.sites)),
        ("rows or groups", f"{fit.ascent.statistics.weight:,.10g}"),
        ("rounds", f"{len(record.rounds):,}, {record.bytes_sent:,} bytes sent, {record.bytes_received:,} received"),
        ("log-likelihood", f"{fit.log_likelihood:.3f}" + ("" if fitted.models else f", BIC {fitted.bic:.3f}")),
        ("end", str(fit.ascent.stop)),
    ]
    if fitted.models:
        lines.append(("models", f"one for each of {len(fitted.models)} sites: {some(list(fitted.models))}"))
    lines += [("doubt", _cut(doubt)) for doubt in fit.doubts]
    noted = [site for site in fitted.sites if site.reasons or site.remarks]
    lines += [("site", _cut(str(site))) for site in noted[:REMARKS_SHOWN]]
    if len(noted) > REMARKS_SHOWN:
        lines.append(("", f"… and {len(noted) - REMARKS_SHOWN} more sites with remarks"))
    return lines


def fit_text(fitted: FederatedFit) -> str:
    """Format the overview of a fit, and where to look for the rest."""
    lines = [f"  {label:<16}{text}" for label, text in fit_lines(fitted)]
    rest = "Coefficients: .model.summary(). What sites disclosed: print(.record). Each site: .sites"
    return "\n".join(["FederatedFit", *lines, rest])


def fit_html(fitted: FederatedFit) -> str:
    """Render the overview of a fit, and its model."""
    rows = "".join(
        f'<tr><td style="{NAME}">{label}</td><td style="{NAME}">{escape(text)}</td></tr>'
        for label, text in fit_lines(fitted)
    )
    return f"<div><strong>FederatedFit</strong><table>{rows}</table>{fitted.model._repr_html_()}</div>"


def _sites(reports: Sequence[SiteReport], names: Sequence[str]) -> str:
    """Return the number of sites by status, and some of their names."""
    statuses = Counter(getattr(report, "status", "used") for report in reports)
    said = ", ".join(f"{number} {status}" for status, number in statuses.items())
    return f"{len(names)}" + (f" ({said})" if len(statuses) > 1 else "") + f": {some(names)}"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
