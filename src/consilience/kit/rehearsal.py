"""A rehearsal at a site: what a study would read, send and spend, before anything is written, charged or sent.

What is said has counts of the site's rows and stays there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa

from consilience.errors import RefusedError
from consilience.kit.folder import SiteFolder
from consilience.kit.forecast import StudyForecast, forecast_study, say_outlook
from consilience.kit.mapping import TableMapping
from consilience.kit.policy.contract import few_rows
from consilience.kit.policy.policy import Policy
from consilience.kit.private_rows import PrivateRows, private_rows
from consilience.kit.public_covariates import unlike_columns
from consilience.kit.release import FitReport
from consilience.kit.site_fit import check_one_file, consider_fit, validate_rows
from consilience.kit.spending import check_spending, check_study, spent_in
from consilience.kit.study import Study, Trust
from consilience.kit.study_model import method_of
from consilience.kit.study_terms import draw_terms
from consilience.model import Mixture
from consilience.model.contributions import private_total, refusal
from consilience.numerics.budget import epsilon_of

DRAWN = 4000
"""Number of rows that are drawn to compare a site with."""


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """What a study would do at a site.

    Parameters
    ----------
    way : str
        Whom the site has to trust.
    rows : int
        Rows of the table that count.
    refusal : str
        Why the site would not answer; empty if it would.
    told : tuple of str
        Sentences for the people at the site.
    report : FitReport, optional
        The one file that would leave, with every check.
    noise : NoiseRehearsal, optional
        Budget and forecast of a study with noise.
    """

    way: Trust
    rows: int
    refusal: str = ""
    told: tuple[str, ...] = ()
    report: FitReport | None = None
    noise: NoiseRehearsal | None = None


@dataclass(frozen=True, eq=False)
class NoiseRehearsal:
    """Budget and forecast of a study with noise at a site.

    Parameters
    ----------
    before, after : float
        ε of all answers with noise of the site, before and after a whole run, at the largest δ of its policy.
    most : float
        ε that the policy allows of all of them.
    answers : int
        Number of sums of a run.
    forecast : StudyForecast
    sites : tuple of int
        Rows of each site of the forecast, this one first.
    away : float or None
        Distance of these rows' own total from 0 at the start, in standard errors of these rows; None without a start.
    """

    before: float
    after: float
    most: float
    answers: int
    forecast: StudyForecast
    sites: tuple[int, ...]
    away: float | None


def rehearse(
    folder: SiteFolder,
    study: Study,
    table: pa.Table,
    *,
    start: Mixture | None = None,
    others: Sequence[int] = (),
    mapping: TableMapping | None = None,
) -> Rehearsal:
    """Rehearse a study at a site; nothing is written, charged or sent.

    Parameters
    ----------
    folder : SiteFolder
    study : Study
    table : pyarrow.Table
        For noise with the columns of a CSV file as text, as they are read for an answer.
    start : Mixture, optional
        Public start of a run with noise.
    others : sequence of int
        Numbers of rows of the other sites, as far as they are known, for the forecast.
    mapping : TableMapping, optional
        Through which the table was read.

    Raises
    ------
    InvalidInputError
        If the table does not fit the study.
    """
    policy = Policy.from_text(folder.policy)
    if study.way == "noise":
        return _with_noise(folder, study, private_rows(study, table), policy, start=start, others=others)
    rows = validate_rows(study, table)
    if study.way == "coordinator":
        applied = policy.stricter(study.minimum)
        least = applied.site.min_rows
        why = _refusal(lambda: applied.check_way(study.way)) or (few_rows(least, rows.n) if rows.n < least else "")
        told = f"In each round of {method_of(study)!r} one file with exact sums, or the site's own fit, would leave."
        return Rehearsal(study.way, rows.n, why, (told,))
    try:
        check_one_file(study, policy)
        found = consider_fit(folder, study, table, mapping=mapping)
    except RefusedError as error:
        return Rehearsal(study.way, rows.n, str(error))
    if found.report is None:
        again = f"The same rows were released for this study (entry {found.stored}): the same file would leave again."
        return Rehearsal(study.way, rows.n, "", (again,))
    return Rehearsal(study.way, rows.n, "", (), found.report)


def _with_noise(
    folder: SiteFolder, study: Study, read: PrivateRows, policy: Policy, *, start: Mixture | None, others: Sequence[int]
) -> Rehearsal:
    rules, budget, spent = policy.privacy, method_of(study).budget, spent_in(folder)
    rho, parts = (Fraction(0), 0) if budget is None else (budget.rho, budget.parts)
    valid = read.rows.n - read.zeros
    forecast = forecast_study(study, start)
    away = None
    if start is not None and valid:
        step = forecast.step
        total = np.array(private_total(step.mixture, read.rows, step.factor, step.clip)[:-1], dtype=float) * step.unit
        away = float(np.sqrt(step.surprise(total, valid, 0.0)))
    why = _refusal(lambda: _check_noise(study, policy, spent, rho * parts)) or refusal(read.rows)
    before, after = (epsilon_of(each, rules.max_delta) for each in (spent, spent + rho * parts))
    sites = (max(valid, 1), *others)
    noise = NoiseRehearsal(before, after, rules.max_epsilon_ever, parts, forecast, sites, away)
    inside = read.rows.X[np.all(np.isfinite(read.rows.X), axis=1)]
    public = draw_terms(study, DRAWN, np.random.default_rng(0))
    told = (*(read.told or ("All cells fit the study.",)), *unlike_columns(study.covariates, inside, public))
    return Rehearsal(study.way, valid, why, told, None, noise)


def _check_noise(study: Study, policy: Policy, spent: Fraction, more: Fraction) -> None:
    policy.check_way(study.way)
    if study.privacy is not None:
        check_study(policy.privacy, study.privacy)
        check_spending(policy.privacy, spent, more)


def _refusal(check: Callable[[], None]) -> str:
    try:
        check()
    except RefusedError as error:
        return str(error)
    return ""


def noise_lines(noise: NoiseRehearsal) -> list[str]:
    """Return what a rehearsal says of budget and forecast, in sentences."""
    spent = f"answers with noise of this site have spent ε = {noise.before:.3g} of {noise.most:g}"
    lines = [f"Budget: {spent}; a whole run of {noise.answers} sums would make it {noise.after:.3g}."]
    own, all_sites = noise.sites[:1], noise.sites
    lines.append(f"Forecast with these {own[0]:,} rows alone: {say_outlook(noise.forecast, own)}")
    if len(all_sites) > 1:
        said = say_outlook(noise.forecast, all_sites)
        lines.append(f"Forecast with {sum(all_sites):,} rows at {len(all_sites)} sites: {said}")
    if noise.away is not None:
        lines.append(
            f"The start is {noise.away:.1f} standard errors of these rows away from what they say; a fit of the same "
            "people is about 1 away."
        )
    if noise.forecast.guessed:
        lines.append("The start of the run is not known here, and was guessed for the forecast: pass --start.")
    return lines
