"""The commands of a coordinator on a study: what it will know before it runs, and what becomes of its files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from consilience.cli.catalogue import CommandError, CommandFault, report_as
from consilience.cli.letter_commands import compare_command
from consilience.cli.notice_commands import print_coordinator_key, retract_files
from consilience.cli.options import AsJson, Quiet, StudyPath
from consilience.cli.output import Output, check_start_file, model_of, study_of, write
from consilience.files.json_text import bytes_hash, read_text
from consilience.kit.forecast import (
    SITE_PROFILES,
    StudyForecast,
    forecast_study,
    outlook,
    profile_refusals,
    runs_allowed,
    say_outlook,
)
from consilience.kit.policy.policy import Policy
from consilience.kit.study import UNNAMED, PrivacyTerms, Study
from consilience.kit.table_one import align_rows

RowsOfSites = Annotated[str, typer.Option("--rows", help="Rows of each site, as far as they are known: 350,600,1000.")]
StartPath = Annotated[
    Path | None, typer.Option("--start", help="Model file from which the run starts; a guess if none.")
]
GUESSED = (
    "No start was given: the mixture was guessed from the columns of the study. Pass --start model.json for the "
    "standard error of each coefficient"
)

study_app = typer.Typer(no_args_is_help=True, help="What a coordinator does beside the fit. No row is read.")
study_app.command("key")(print_coordinator_key)
study_app.command("retract")(retract_files)
study_app.command("compare")(compare_command)


@study_app.command("forecast")
def forecast_command(
    study: StudyPath,
    rows: RowsOfSites,
    epsilon: Annotated[str, typer.Option(help="Other values of epsilon than 1, 3, 8 and the study's.")] = "",
    start: StartPath = None,
    as_json: AsJson = False,
) -> None:
    """Forecast the standard errors of a study with noise, before anything is spent.

    They are those of a run that settles, from a start that is a fit of the same population.
    """
    wanted, sizes = study_of(study, draft=True), read_sizes(rows)
    begins = None if start is None else model_of(start).mixture_
    check_start_file(wanted, start)
    with report_as(CommandFault.STUDY):
        found = forecast_study(wanted, begins)
    chosen = tuple(sorted({*read_numbers(epsilon, "--epsilon"), found.terms.epsilon})) if epsilon else found.epsilons
    Output(as_json).data(forecast_document(wanted, found, sizes, chosen), forecast_text(wanted, found, sizes, chosen))


@study_app.command("start")
def name_start(
    study: StudyPath,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Public model file from which every site starts.")],
    quiet: Quiet = False,
) -> None:
    """Name the model from which a drafted study with noise starts: its hash is written into the study.

    It is public: every site gets the file. Another start is another study.
    """
    if not study_of(study, draft=True).lacks_start:
        raise CommandError(CommandFault.STUDY, f'{study}: there is no line start = "{UNNAMED}" to replace')
    model_of(model)
    named = bytes_hash(model.read_bytes())
    text, count = re.subn(rf'(?m)^start = "{UNNAMED}"', f'start = "{named}"', read_text(study, "a study"))
    if count != 1:
        raise CommandError(CommandFault.STUDY, f'{study}: write the start by hand, start = "{named}"')
    with report_as(CommandFault.STUDY):
        Study.from_text(text)
    write(study, text, overwrite=True)
    Output(quiet=quiet).say(f"{study} starts from {model.name}. Send both to every site.")


def read_sizes(text: str) -> tuple[int, ...]:
    """Read the numbers of rows of sites from an option."""
    found = read_numbers(text, "--rows")
    if any(each != int(each) for each in found):
        raise typer.BadParameter(f"--rows {text}: expected whole numbers, one for each site")
    return tuple(map(int, found))


def read_numbers(text: str, option: str) -> tuple[float, ...]:
    """Read positive numbers with commas between them."""
    try:
        found = tuple(float(each) for each in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"{option} {text}: expected numbers with commas between them") from error
    if not all(0 < each < 1e12 for each in found):
        raise typer.BadParameter(f"{option} {text}: expected positive numbers")
    return found


def forecast_document(
    study: Study, found: StudyForecast, rows: Sequence[int], epsilons: Sequence[float]
) -> dict[str, Any]:
    """Return a forecast as a JSON object."""
    n, sites = sum(rows), len(rows)
    return {
        "study": study.identity,
        "start": "guess" if found.guessed else "public",
        "rows": list(rows),
        "parameters": found.P,
        "rounds": {"near": found.rounds(), "far": found.rounds(far=True)},
        "epsilon": found.terms.epsilon,
        "delta": found.terms.delta,
        "forecasts": [
            {
                "epsilon": epsilon,
                "ratio": found.ratio(n, sites, epsilon),
                "ratio_from_far": found.ratio(n, sites, epsilon, far=True),
                "outlook": outlook(found, rows, epsilon),
            }
            for epsilon in epsilons
        ],
        "standard_errors": [] if found.guessed else _errors(found, n, sites, epsilons),
        "profiles": {name: profile_line(name, study, found.terms) for name in SITE_PROFILES},
        "said": say_outlook(found, rows),
    }


def _errors(found: StudyForecast, n: int, sites: int, epsilons: Sequence[float]) -> list[dict[str, Any]]:
    """Return the standard error of each coefficient, without noise and with each epsilon."""
    pooled, noisy = found.pooled(n), {f"{each:g}": found.errors(n, sites, each) for each in epsilons}
    return [
        {
            **dict(zip(("part", "expert", "response", "term"), key, strict=True)),
            "without_noise": float(pooled[i]),
            "with_noise": {epsilon: float(errors[i]) for epsilon, errors in noisy.items()},
        }
        for i, key in enumerate(found.parameters)
    ]


def forecast_text(study: Study, found: StudyForecast, rows: Sequence[int], epsilons: Sequence[float]) -> str:
    """Return a forecast in words and tables."""
    n, sites = sum(rows), len(rows)
    near, far = found.rounds(), found.rounds(far=True)
    more = f"; {far} if the first one finds that the start is far" if far != near else ""
    profiles = [f"  {name}: {profile_line(name, study, found.terms)}" for name in SITE_PROFILES]
    spent = f"epsilon = {found.terms.epsilon:g}, delta = {found.terms.delta:g}"
    parts = [
        f"Forecast for {study.name}: {n:,} rows at {sites} sites, {found.P} parameters, {spent}. No row was read.",
        "One file of each site." if found.terms.exchange == "file" else f"Rounds: {near}{more}.",
        "",
        say_outlook(found, rows),
        "",
        "Standard errors, in units of those of a fit to all rows without noise (root mean square)",
        *ratio_lines(found, n, sites, epsilons, several=far != near),
        "",
    ]
    if found.guessed:
        parts += [f"{GUESSED}.", ""]
    else:
        parts += ["Standard error of each coefficient", *error_lines(found, n, sites, epsilons), ""]
    return "\n".join([*parts, "Budgets of the shipped profiles", *profiles])


def ratio_lines(found: StudyForecast, n: int, sites: int, epsilons: Sequence[float], *, several: bool) -> list[str]:
    """Return the table of ratios."""
    ways = [f"{found.rounds(far=far)} rounds" for far in (False, True)[: 1 + several]]
    rows = [["epsilon", *(["one file"] if found.terms.exchange == "file" else ways)]]
    for epsilon in epsilons:
        label = f"{epsilon:g} (the study)" if epsilon == found.terms.epsilon else f"{epsilon:g}"
        cells = [f"{found.ratio(n, sites, epsilon, far=far):.2f}" for far in (False, True)[: 1 + several]]
        rows.append([label, *cells])
    return [f"  {line}" for line in align_rows(rows, 1)]


def error_lines(found: StudyForecast, n: int, sites: int, epsilons: Sequence[float]) -> list[str]:
    """Return the table of standard errors by coefficient."""
    by_epsilon = [found.errors(n, sites, epsilon) for epsilon in epsilons]
    rows = [["part", "expert", "term", "no noise", *(f"epsilon {epsilon:g}" for epsilon in epsilons)]]
    several = len({response for _, _, response, _ in found.parameters if response}) > 1
    for i, (part, expert, response, term) in enumerate(found.parameters):
        named = f"{response}: {term}" if several and response else term
        values = (each[i] for each in (found.pooled(n), *by_epsilon))
        rows.append([part.replace("_", " "), str(expert + 1), named, *(f"{value:.3g}" for value in values)])
    return [f"  {line}" for line in align_rows(rows, 3)]


def profile_line(name: str, study: Study, privacy: PrivacyTerms) -> str:
    """Return whether a profile for sites answers a study with noise, and how often."""
    if refusal := profile_refusals(study)[name]:
        return f"REFUSES: {refusal}"
    rules = Policy.of_profile(name).privacy
    runs = runs_allowed(rules, privacy)
    return (
        f"answers {runs} run{'s' if runs != 1 else ''} of this study, if nothing was spent before (epsilon up to "
        f"{rules.max_epsilon:g} for a study, {rules.max_epsilon_ever:g} for all)"
    )
