"""What a report says of a fit with noise: what it may have disclosed of a row, and what the noise costs."""

from __future__ import annotations

from typing import Any

from consilience.report.page import Section, Table
from consilience.report.subject import Subject

MEANING = (
    "Each site added noise to what it sent. However much else is known, and whatever the coordinator asked, what left "
    "a site says little of any one row: the smaller ε, the less. The number of rows is known up to noise, too."
)
"""What the noise is for, for a reader without statistics."""


def privacy_section(subject: Subject, _draw: Any) -> Section | None:
    """Return budget, rounds and forecast of a fit with noise; None without noise."""
    said = subject.privacy
    if not said:
        return None
    facts = {"guarantee": said}
    fit: Any = None if subject.result is None else subject.result.fit
    if fit is not None:
        privacy, forecast = fit.privacy, fit.forecast
        total = float(privacy.rho)
        rounds = (f"{float(rho) / total:.0%}".replace("%", " %") for rho in privacy.rhos)
        facts |= {
            "spent at each site": f"ε = {privacy.epsilon:g} at δ = {privacy.delta:g} (ρ = {total:.4f})",
            "rounds": f"{len(privacy.rhos)}, with {', '.join(rounds)} of the budget",
            "what is protected": f"one {privacy.unit} of a site, added or removed",
            "standard errors, as forecast at the start": f"{forecast.ratio:.2f} times those of all rows without noise",
            "end": "settled: the last total is no more than noise and chance" if fit.settled else fit.unsettled,
            "totals by round, 1 is noise and chance": ", ".join(f"{each:.2g}" for each in fit.surprises),
        }
    return Section("What noise protects, and what it costs", (MEANING,), (
        Table("Noise", ("what", "value"), tuple(facts.items())),
    ))  # fmt: skip
