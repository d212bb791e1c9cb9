"""Arguments and options that commands share, and how their files are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from consilience.cli.catalogue import Problem, reported_as
from consilience.files.file_names import slug
from consilience.files.study import Study
from consilience.site.folder import SiteFolder
from consilience.site.tables import read_table

AsJson = Annotated[bool, typer.Option("--json", help="Print data as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but data, warnings and errors.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the output if it exists.")]
NoInput = Annotated[bool, typer.Option("--no-input", help="Do not ask.")]
StudyPath = Annotated[Path, typer.Argument(metavar="STUDY", help="Study file, such as study.toml.")]
TablePath = Annotated[Path, typer.Argument(metavar="TABLE", help="Parquet or CSV file of the site.")]
MailPath = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run by files.")]
SiteName = Annotated[str, typer.Argument(metavar="SITE", help="Name of the site.")]
Where = Annotated[Path, typer.Option("--in", help="Folder in which the site's folder is.")]


def study_of(path: Path) -> Study:
    """Read a study file."""
    with reported_as(Problem.STUDY):
        return Study.read(path)


def table_of(path: Path) -> pa.Table:
    """Read a table."""
    with reported_as(Problem.TABLE):
        return read_table(path)


def folder_of(name: str, where: Path) -> SiteFolder:
    """Open the folder of a site; the error says how to make one."""
    with reported_as(Problem.FOLDER):
        return SiteFolder.open(where / slug(name))
