"""The command that rehearses a study at a site: what would be read, sent and spent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from consilience.cli.catalogue import CommandError, CommandFault, report_as
from consilience.cli.mapping_commands import MappingPath, mapped_table, mapping_of
from consilience.cli.options import AsJson, Quiet, SiteName, StudyPath, TablePath, Where
from consilience.cli.output import Output, check_start_file, folder_of, model_of, study_of
from consilience.cli.preview import WAYS, text_of_report
from consilience.cli.study_commands import StartPath, read_sizes
from consilience.kit.forecast import outlook
from consilience.kit.rehearsal import Rehearsal, noise_lines, rehearse
from consilience.kit.site_fit import MisfitError
from consilience.kit.study import Study

NOTHING = "Nothing was written, charged or sent."


def rehearse_study(  # noqa: PLR0917 - typer makes options of them
    name: SiteName,
    study: StudyPath,
    table: TablePath,
    start: StartPath = None,
    rows: Annotated[str, typer.Option("--rows", help="Rows of the other sites, if they are known: 350,600.")] = "",
    mapping: MappingPath = None,
    where: Where = Path(),
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Rehearse a study: what fits, what would leave, what it would cost, and what the result would be worth.

    Nothing is written, charged or sent. What is printed has counts of the table, and stays at the site.
    """
    folder, wanted, output = folder_of(name, where), study_of(study), Output(as_json, quiet)
    begins = None if start is None else model_of(start).mixture_
    check_start_file(wanted, start)
    made, others = mapping_of(name, where, mapping), read_sizes(rows) if rows else ()
    read = mapped_table(table, wanted, made, as_text=wanted.way == "noise")
    with report_as(CommandFault.POLICY), output.working(f"{folder.name} rehearses"):
        try:
            found = rehearse(folder, wanted, read, start=begins, others=others, mapping=made)
        except MisfitError as error:
            findings = f"run 'consilience site check {name} {study} {table}' for the findings"
            raise CommandError(CommandFault.MISFIT, findings) from error
    output.data(rehearsal_document(wanted, found), rehearsal_text(wanted, folder.name, found))
    if found.refusal:
        raise CommandError(CommandFault.REFUSED, found.refusal)


def rehearsal_text(study: Study, site: str, found: Rehearsal) -> str:
    """Return a rehearsal as text."""
    lines = [f"Rehearsal of {study.name} at {site}, with {found.rows:,} rows. {NOTHING}", WAYS[found.way], *found.told]
    if found.noise is not None:
        lines += noise_lines(found.noise)
    if found.report is not None:
        lines += ["", text_of_report(found.report)]
    answers = "releases" if found.way == "limits" else "answers"
    lines += ["", "This site WOULD REFUSE." if found.refusal else f"This site {answers}, if a person approves."]
    return "\n".join(lines)


def rehearsal_document(study: Study, found: Rehearsal) -> dict[str, Any]:
    """Return a rehearsal as a JSON object; it has counts and stays at the site."""
    document: dict[str, Any] = {
        "study": study.identity,
        "trust": found.way,
        "rows": found.rows,
        "refusal": found.refusal,
        "said": list(found.told),
    }
    if found.noise is not None:
        noise = found.noise
        n, sites = sum(noise.sites), len(noise.sites)
        document |= {
            "budget": {"before": noise.before, "after": noise.after, "max_epsilon_ever": noise.most},
            "forecast": {
                "rows": list(noise.sites),
                "ratio": noise.forecast.ratio(n, sites),
                "outlook": outlook(noise.forecast, noise.sites),
                "start": "guess" if noise.forecast.guessed else "public",
            },
            "start_is_away": noise.away,
        }
    if found.report is not None:
        document["bytes_about"] = len(found.report.file.to_text())
        document["steps"] = list(found.report.steps)
    return document
