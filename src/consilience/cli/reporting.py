"""Reports by commands: from a model file, or at the end of a combination or a run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from consilience.cli.catalogue import CommandError, Problem, reported_as
from consilience.cli.options import Overwrite, Quiet
from consilience.cli.output import Output, check_free, write
from consilience.estimators.saving import load
from consilience.files.site_file import SiteFile
from consilience.files.study import Study
from consilience.report import html_report, model_card, verdict

FORMATS = {"html": html_report, "md": model_card}
ReportPath = Annotated[Path | None, typer.Option("--report", help="Report to write, .html or .md.")]


def report(  # noqa: PLR0917 - typer makes options of them
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model file.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="File to write; beside the model by default.")] = None,
    form: Annotated[str, typer.Option("--format", help="html, or md for a model card.")] = "html",
    title: Annotated[str, typer.Option(help="Title of the report.")] = "",
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Write a report on a model: one HTML file to read offline, or a model card.

    A model file has no evidence on single sites: 'combine --report' and 'run --report' write a report that has it.
    """
    if form not in FORMATS:
        raise typer.BadParameter(f"--format is {' or '.join(FORMATS)}")
    beside = model.with_name("MODEL_CARD.md") if form == "md" else model.with_suffix(".html")
    target, output = out or beside, Output(quiet=quiet)
    check_free(target, overwrite=overwrite)
    with reported_as(Problem.MODEL):
        fitted = load(model)
    write_checked(fitted, target, form, title=title)
    output.say(f"{target} written.")


def check_report(path: Path | None, *, overwrite: bool) -> None:
    """Raise an error, before work is done, if a report cannot be written."""
    if path is not None:
        if path.suffix.lstrip(".") not in FORMATS:
            raise typer.BadParameter(f"--report {path.name}: expected a name that ends in .html or .md")
        check_free(path, overwrite=overwrite)


def report_on(result: Any, study: Study, path: Path | None, output: Output, files: Iterable[SiteFile] = ()) -> None:
    """Write the report on the result of a study, if one is wanted, and say its verdict."""
    if path is None:
        return
    sent = list(files)
    known = {
        "origin": {"study": f"{study.name}, {study.identity}", **{f"file of {f.site}": f.hash for f in sent}},
        "policies": {f.site: str(f.evidence["profile"]) for f in sent if "profile" in f.evidence},
    }
    write_checked(result, path, path.suffix.lstrip("."), title=study.name, **known)
    output.say(f"{path} written. It says:\n{verdict(result)}")


def write_checked(result: Any, path: Path, form: str, **known: Any) -> None:
    """Write a report; an error names the extra that is missing."""
    try:
        text = FORMATS[form](result, **known)
    except ImportError as error:
        raise CommandError(Problem.EXTRA, str(error)) from error
    write(path, text, overwrite=True)
