"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print data as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but data, warnings and errors.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the output if it exists.")]
NoInput = Annotated[bool, typer.Option("--no-input", help="Do not ask.")]
StudyPath = Annotated[Path, typer.Argument(metavar="STUDY", help="Study file, such as study.toml.")]
TablePath = Annotated[Path, typer.Argument(metavar="TABLE", help="Parquet or CSV file of the site.")]
MailPath = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run by files.")]
SiteName = Annotated[str, typer.Argument(metavar="SITE", help="Name of the site.")]
Approver = Annotated[str | None, typer.Option(help="Who approves, for the ledger; the user's name if not given.")]
Decider = Annotated[str | None, typer.Option(help="Who decides, for the ledger; the user's name if not given.")]
Where = Annotated[Path, typer.Option("--in", help="Folder in which the site's folder is.")]
ReportPath = Annotated[Path | None, typer.Option("--report", help="Report to write, .html or .md.")]
TablesPath = Annotated[Path | None, typer.Option("--tables", help="Folder for the tables of the report, as CSV.")]
WITHOUT_A_PERSON = (
    "without the question to a person: leave --no-input out, or let who may decide this set allow_no_input = true in "
    "[release] of policy.toml"
)
"""End of the sentence by which a command refuses to go on unasked."""
