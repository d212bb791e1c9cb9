"""The commands of ``consilience``."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from consilience._version import __version__
from consilience.cli.catalogue import CommandError, Problem, reported_as
from consilience.cli.demo import toured
from consilience.cli.doctor import findings
from consilience.cli.drafting import EMPTY, drafted
from consilience.cli.options import AsJson, NoInput, Overwrite, Quiet, StudyPath, Where, study_of, table_of
from consilience.cli.output import Output, check_free, console, write
from consilience.cli.reporting import ReportPath, check_report, report, report_on
from consilience.cli.run_commands import run, status
from consilience.cli.scoring import described, scored
from consilience.cli.site_commands import site
from consilience.errors import ConsilienceError
from consilience.estimators.saving import load
from consilience.files.json_text import read_text
from consilience.files.roster import Roster, checked
from consilience.files.site_file import SiteFile
from consilience.files.study import Study
from consilience.studies import combined

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
demo = typer.Typer(no_args_is_help=True, help="Demonstrations on simulated data.")
app.add_typer(site, name="site")
app.add_typer(demo, name="demo")
app.command()(run)
app.command()(report)
app.command()(status)


def _print_version(wanted: bool) -> None:
    if wanted:
        Output().data({}, f"consilience {__version__}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Fit one interpretable mixture model from data in many places. No command opens a network connection."""


@app.command()
def init(
    study: StudyPath,
    table: Annotated[Path | None, typer.Option("--from", help="Table whose columns the draft describes.")] = None,
    response: Annotated[str | None, typer.Option(help="Column of the response; needed with --from.")] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Write a study file to complete: an example, or a draft with the columns of a table."""
    remarks: list[str] = []
    if table is None:
        text = EMPTY
    else:
        if response is None:
            raise typer.BadParameter("--from needs --response, the column of the response")
        rows = table_of(table)
        with reported_as(Problem.STUDY):
            text, remarks = drafted(rows, response, study.stem)
        remarks.append("The draft has levels and rounded ranges of your table: read it before you send it.")
    write(study, text, overwrite=overwrite)
    for remark in remarks:
        Output(quiet=quiet).say(remark)
    Output(quiet=quiet).say(f"{study} written. Complete it, then send the same file to every site.")


@app.command()
def combine(  # noqa: PLR0917 - typer makes options of them
    study: StudyPath,
    files: Annotated[list[Path], typer.Argument(metavar="FILES...", help="The files that the sites released.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Model file to write.")] = Path("model.json"),
    roster: Annotated[Path | None, typer.Option(help="Roster with the sites' names and public keys.")] = None,
    report_to: ReportPath = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Combine the files of the sites into one model."""
    wanted, output, sent = study_of(study), Output(as_json, quiet), []
    check_free(out, overwrite=overwrite)
    check_report(report_to, overwrite=overwrite)
    for path in files:
        try:
            sent.append(SiteFile.from_text(read_text(path, "a site file")))
        except ConsilienceError as error:
            raise CommandError(Problem.SITE_FILE, f"{path}: {error}") from error
    if len(sent) == 1:
        output.say("There is one file: the model is that of this site.", style="yellow")
    _check_signatures(wanted, sent, roster, output)
    with reported_as(Problem.COMBINATION), output.working(f"Combining the files of {len(sent)} sites"):
        orders = combined(wanted, sent)
    model = orders.best.model
    with reported_as(Problem.OUTPUT):
        model.save(out, site_names=True)
    output.data(
        described(model) | {"file": str(out), "sites": [str(each) for each in orders.best.sites]}, model.summary()
    )
    for each in orders.best.sites:
        output.say(str(each))
    output.say(f"{out} written.")
    report_on(orders, wanted, report_to, output, sent)


@app.command()
def show(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model file.")],
    words: Annotated[bool, typer.Option("--words", help="Describe the model in sentences.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print a model: columns, coefficients with intervals, and notes."""
    fitted = _model(model)
    Output(as_json).data(described(fitted), fitted.describe() if words else fitted.summary())


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model file.")],
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="Parquet or CSV file with new rows.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Parquet or CSV file to write.")],
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Add predictions and the probability of each expert to the rows of a table."""
    fitted, output = _model(model), Output(quiet=quiet)
    rows = table_of(table)
    check_free(out, overwrite=overwrite)
    with reported_as(Problem.PREDICTION), output.working(f"Scoring {rows.num_rows:,} rows"):
        scored(fitted, rows, out)
    output.say(f"{out} written.")


@app.command()
def doctor(
    site_name: Annotated[str | None, typer.Option("--site", help="Site whose folder is checked too.")] = None,
    where: Where = Path(),
    as_json: AsJson = False,
) -> None:
    """Check the installation and, if named, the folder of a site."""
    found = list(findings(where, site_name))
    lines = [f"{'PROBLEM' if each.is_problem else 'ok':<8} {each.what:<16} {each.said}" for each in found]
    Output(as_json).data({"findings": [asdict(each) for each in found]}, "\n".join(lines))
    if any(each.is_problem for each in found):
        raise CommandError(Problem.INSTALLATION, f"{sum(each.is_problem for each in found)} problems")


@demo.command("hospitals")
def demo_hospitals(
    folder: Annotated[Path, typer.Argument(help="Folder for tables, study, site files and model.")] = Path("hospitals"),
    no_input: NoInput = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run a study of five simulated hospitals: a file from each of them, combined into one model."""
    if not no_input:
        typer.confirm(f"Write tables, a study, five site files and a model into {folder}?", abort=True, err=True)
    output = Output(as_json, quiet)
    model, largest, written = toured(folder, output)
    said = f"one exchange against pooled: max |Δcoef|/SE = {largest:.2f}"
    output.data({**described(model), "largest_difference": largest}, f"{model.summary()}\n\n{said}")
    output.say(f"{folder}/ash.json is all that left a hospital; {folder}/sites/ash has its policy and its ledger.")
    if written is not None:
        output.say(f"The report that people keep: {written}")
    output.say(f"Look closer: consilience site preview ash --in {folder}/sites; consilience show {folder}/model.json")


def _check_signatures(study: Study, files: Sequence[SiteFile], roster: Path | None, output: Output) -> None:
    """Check every file against the roster; unsigned files are named, or refused if the study requires signatures."""
    known = None
    if roster is not None:
        with reported_as(Problem.ROSTER):
            known = Roster.read(roster)
    absent = [] if known is None else sorted(set(known.names) - {file.site for file in files})
    if absent:
        output.say(f"In the roster, but without a file: {', '.join(absent)}", style="yellow")
    for file in files:
        try:
            found = checked(file, known, study.minimum.require_signatures)
        except ImportError as error:
            raise CommandError(Problem.EXTRA, str(error)) from error
        if found.status == "refused":
            raise CommandError(Problem.SIGNATURE, found.said)
        output.say(found.said)


def _model(path: Path) -> Any:
    with reported_as(Problem.MODEL):
        return load(path)


def main() -> None:
    """Run the command line; an error ends with a code and a next step, and without values of a table."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without some sign shows a question mark
    try:
        app()
    except CommandError as error:
        _end(error)
    except OSError as error:
        _end(CommandError(Problem.FILE, f"{error.filename or 'a file'}: {error.strerror or type(error).__name__}"))
    except Exception as error:  # noqa: BLE001 - the text of an unforeseen error may have values of a table
        _end(CommandError(Problem.UNEXPECTED, type(error).__name__))
    except KeyboardInterrupt:
        console().print("interrupted", highlight=False)
        sys.exit(130)


def _end(error: CommandError) -> NoReturn:
    kind = error.problem.value
    if "--json" in sys.argv:  # one line, the last of standard error
        told = {"code": kind.code, "status": kind.status, "message": error.said, "to_do": kind.remedy}
        sys.stderr.write(f"{json.dumps({'error': told}, ensure_ascii=False)}\n")
        sys.exit(kind.status)
    console().print(f"error {kind.code}: {error.said}", style="red", highlight=False, markup=False)
    console().print(f"{kind.title}. {kind.remedy}", highlight=False, markup=False)
    sys.exit(kind.status)
