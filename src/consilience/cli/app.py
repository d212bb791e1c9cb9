"""The commands of ``consilience``: study, combination, predictions, demonstration and checks of an installation."""

from __future__ import annotations

import io
import json
import os
import platform
import stat
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer

from consilience._version import __version__
from consilience.cli.catalogue import CommandError, CommandFault, report_as
from consilience.cli.drafting import draft_study, example_study
from consilience.cli.notice_commands import check_signatures, leave_out, part_notices
from consilience.cli.options import AsJson, NoInput, Overwrite, Quiet, ReportPath, StudyPath, TablesPath, Where
from consilience.cli.output import (
    Output,
    check_free,
    console,
    is_confirmed,
    model_of,
    printable,
    study_of,
    table_of,
    write,
)
from consilience.cli.post_commands import live
from consilience.cli.relay_commands import relay_run
from consilience.cli.reporting import (
    characteristics_of,
    check_model,
    check_report,
    commands_again,
    describe_model,
    report,
    report_on,
    say_names,
    say_noise,
    sent_file,
    write_predictions,
)
from consilience.cli.run_commands import run_command, status
from consilience.cli.site_commands import site
from consilience.cli.study_commands import study_app
from consilience.cli.tour import run_noisy_tour, run_tour
from consilience.errors import ConsilienceError
from consilience.estimators.saving import model_text
from consilience.federation.federated_fit import FederatedOrders
from consilience.files.json_text import content_hash, read_text, write_text
from consilience.files.noisy_file import AnySiteFile, read_sent_file
from consilience.files.site_file import SiteFile
from consilience.kit.combination import combine_files
from consilience.kit.folder import KEY, LOST, SECRET_FILE, SiteFolder
from consilience.kit.notices import Withdrawal
from consilience.kit.policy.policy import Policy
from consilience.kit.private_files import slug
from consilience.kit.release import verify_ledger
from consilience.kit.roster import verify_signature
from consilience.kit.stored_evidence import evidence_path
from consilience.kit.study import Study, Trust
from consilience.kit.table_one import table_one
from consilience.kit.versions import distinct_kits, kits_of, say_kits

PACKAGES = ("numpy", "scipy", "scikit-learn", "pyarrow", "narwhals", "pydantic", "typer", "rich")
EXTRAS = {
    "secure": "cryptography",
    "excel": "openpyxl",
    "statistics": "pyreadstat",
    "plot": "matplotlib",
    "dask": "distributed",
}


@dataclass(frozen=True)
class InstallationCheck:
    """Result of one check.

    Parameters
    ----------
    what, said : str
    is_problem : bool
        Whether something does not work that a site needs.
    """

    what: str
    said: str
    is_problem: bool = False


def findings(where: Path, site: str | None = None) -> Iterator[InstallationCheck]:
    """Yield the result of each check."""
    yield InstallationCheck("consilience", __version__)
    yield InstallationCheck("python", f"{platform.python_version()} on {platform.system()}", sys.version_info < (3, 11))
    for name in PACKAGES:
        found = _version(name)
        yield InstallationCheck(name, found or "missing: run 'pip install consilience' again", found is None)
    for extra, name in EXTRAS.items():
        yield InstallationCheck(
            name, _version(name) or f"not installed: pip install 'consilience[{extra}]' if you need it"
        )
    yield _encoding()
    yield _writable(where)
    if site is not None:
        yield from _site(site, where)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _encoding() -> InstallationCheck:
    found = sys.getfilesystemencoding()
    said = found if found == "utf-8" else f"{found}: set PYTHONUTF8=1, so that names of files are UTF-8"
    return InstallationCheck("names of files", said, found != "utf-8")


def _writable(where: Path) -> InstallationCheck:
    try:
        with tempfile.TemporaryFile(dir=where) as file:
            file.write(bytes(1024))
    except OSError as error:
        return InstallationCheck("folder", f"{where.resolve()} cannot be written: {error.strerror}", True)
    return InstallationCheck("folder", f"{where.resolve()} can be written")


def _site(name: str, where: Path) -> Iterator[InstallationCheck]:
    """Check the folder, the policy and the ledger of a site."""
    try:
        folder = SiteFolder.open(where / slug(name))
        yield InstallationCheck("site", f"the folder of {folder.name} is complete")
        yield InstallationCheck("policy", f"profile {Policy.from_text(folder.policy).profile_text}")
        verdict = verify_ledger(folder)
        yield InstallationCheck("ledger", str(verdict), not verdict.is_whole)
        yield _key(folder)
        yield from _readable_by_others(folder)
    except ConsilienceError as error:
        yield InstallationCheck("site", str(error), True)


def _key(folder: SiteFolder) -> InstallationCheck:
    """Sign something, and verify it with the public key that the ledger names."""
    stated = folder.public_key
    if stated is None:
        needed = Policy.from_text(folder.policy).release.require_signatures
        said = "none: files are unsigned. Install consilience[secure], then run 'consilience site key NAME'"
        return InstallationCheck("key", said, needed)
    probe = content_hash("consilience doctor")
    try:
        identity = folder.identity
        works = identity is not None and verify_signature(stated, identity.sign(probe), probe)
    except (ConsilienceError, ImportError) as error:
        return InstallationCheck("key", str(error), True)
    said = f"{stated} signs" if works else f"{KEY} does not sign for {stated}. {LOST}"
    return InstallationCheck("key", said, not works)


def _readable_by_others(folder: SiteFolder) -> Iterator[InstallationCheck]:
    """Yield a problem for each secret that other users of the machine can read; Windows has other permissions."""
    shared = bool(folder.path.stat().st_mode & stat.S_IWGRP)
    others, mode = (0o007, "660") if shared else (0o077, "600")
    for name in (SECRET_FILE, KEY) if os.name == "posix" else ():
        path = folder.path / name
        if path.is_file() and path.stat().st_mode & others:
            yield InstallationCheck("permissions", f"others can read {name}: run 'chmod {mode} {path}'", True)


# ---------------------------------------------------------------- app

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
demo = typer.Typer(no_args_is_help=True, help="Demonstrations on simulated data.")
app.add_typer(study_app, name="study")
app.add_typer(site, name="site")
app.add_typer(demo, name="demo")
app.command("run")(run_command)
app.add_typer(live, name="live")
live.command("relay")(relay_run)
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
    """Fit one interpretable mixture model from data in many places.

    Only 'live', 'site serve' and tables in an object store open network connections.
    """


@app.command("init")
def init_study(  # noqa: PLR0917 - typer makes options of them
    study: StudyPath,
    table: Annotated[Path | None, typer.Option("--from", help="Table whose columns the draft describes.")] = None,
    response: Annotated[str | None, typer.Option(help="Column of the response; needed with --from.")] = None,
    trust: Annotated[
        Trust, typer.Option(help="Whom a site has to trust: nobody (noise), limits, or the coordinator (a contract).")
    ] = "noise",
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Write a study file to complete: an example, or a draft with the columns of a table.

    Without another word it is one file of each site with noise, which needs a public model to start from.
    """
    remarks: list[str] = []
    if table is None:
        text = example_study(trust)
    else:
        if response is None:
            raise typer.BadParameter("--from needs --response, the column of the response")
        rows = table_of(table)
        with report_as(CommandFault.STUDY):
            text, remarks = draft_study(rows, response, study.stem, trust)
        remarks.append("The draft has levels and rounded ranges of your table: read it before you send it.")
    write(study, text, overwrite=overwrite)
    output = Output(quiet=quiet)
    for remark in remarks:
        output.say(remark)
    output.say(f"{study} written. Complete it, then send the same file to every site.")
    if trust == "noise":
        output.say(
            "It needs a public model to start from, such as the fit of a site that may release it: "
            f"'consilience study start {study} model.json'. '--trust limits' drafts one that needs none."
        )


@app.command()
def combine(  # noqa: PLR0917 - typer makes options of them
    study: StudyPath,
    files: Annotated[list[Path], typer.Argument(metavar="FILES...", help="The files that the sites released.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Model file to write.")] = Path("model.json"),
    roster: Annotated[Path | None, typer.Option(help="Roster with the sites' names and public keys.")] = None,
    report_to: ReportPath = None,
    tables: TablesPath = None,
    mixed_waves: Annotated[bool, typer.Option("--mixed-waves", help="Combine files of different waves.")] = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Combine the files of the sites into one model.

    Notices stand among the files: a site that withdrew is left out, and a file that was retracted is refused.
    """
    wanted, output = study_of(study), Output(as_json, quiet)
    check_model(out, overwrite=overwrite)
    check_report(report_to, tables, overwrite=overwrite)
    files, notices = part_notices(wanted, files, output)
    sent = [_sent_file_in(path) for path in files]
    withdrawals = [each for each in notices if isinstance(each, Withdrawal)]
    known = check_signatures(wanted, [*sent, *withdrawals], roster, output)
    files, sent = leave_out(files, sent, notices, output)
    if len(sent) == 1:
        output.say("There is one file: the model is that of this site.", style="yellow")
    with report_as(CommandFault.COMBINATION), output.working(f"Combining the files of {len(sent)} sites"):
        institutions = None if known is None else known.institutions
        orders = combine_files(wanted, sent, institutions, mixed_waves=mixed_waves)
    model, kits = orders.best.model, kits_of(sent)
    with report_as(CommandFault.OUTPUT):  # of noisy sums alone, nothing is known of each site
        write_text(out, model_text(model, site_names=bool(orders.best.sites), kits=distinct_kits(kits)))
    fitted = sorted((file for file in sent if isinstance(file, SiteFile)), key=lambda file: file.site)
    by_site = table_one(wanted, fitted) if fitted else None  # of files with noise there is none
    document: dict[str, Any] = {"file": str(out), "sites": [str(each) for each in orders.best.sites], "kits": kits}
    text: str = model.summary()
    if by_site is not None:
        document |= {
            "waves": {file.site: {"wave": file.wave, "data_cut": file.data_cut} for file in fitted},
            "table_one": {"header": by_site.header, "rows": by_site.cells},
        }
        text += f"\n\nTable 1. Rows of each site\n{by_site}"
    output.data(describe_model(model) | document, text)
    _say_combined(orders, wanted, fitted, kits, output)
    output.say(f"{out} written, and {evidence_path(out).name} beside it: 'consilience report {out}' needs both.")
    again = commands_again(
        "combine", study.name, *(path.name for path in files), "-o", out.name, "--report", "report.html"
    )
    read = tuple(map(sent_file, files, sent))
    for file in read:
        output.say(f"{file.name}: {file.size:,} bytes, SHA-256 {file.digest}")
    evidence: dict[str, Any] = {
        "files": read, "invited": None if known is None else tuple(known.names),
        "withdrawn": {each.site: each.day for each in withdrawals},
        "characteristics": () if by_site is None else characteristics_of(wanted, by_site),
    }  # fmt: skip
    report_on(orders, wanted, report_to, output, model=out, tables=tables, kits=kits, commands=again, **evidence)


def _sent_file_in(path: Path) -> AnySiteFile:
    try:
        return read_sent_file(read_text(path, "a site file"))
    except ConsilienceError as error:
        raise CommandError(CommandFault.SITE_FILE, f"{path}: {error}") from error


def _say_combined(
    orders: FederatedOrders, wanted: Study, fitted: list[SiteFile], kits: dict[str, str], output: Output
) -> None:
    """Say what is to be known of a result besides its model."""
    say_names(orders.best.model, wanted, output)
    for each in orders.best.sites:
        output.say(str(each))
    if len({file.wave for file in fitted}) > 1:
        output.say("Files of different waves were combined: Table 1 says which.", style="yellow")
    say_noise(orders.best, output)
    if differing := say_kits(kits):
        output.say(differing, style="yellow")


@app.command()
def show(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model file.")],
    words: Annotated[bool, typer.Option("--words", help="Describe the model in sentences.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print a model: columns, coefficients with intervals, and notes."""
    fitted = model_of(model)
    Output(as_json).data(describe_model(fitted), fitted.describe() if words else fitted.summary())


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model file.")],
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="Parquet or CSV file with new rows.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Parquet or CSV file to write.")],
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Add predictions and the probability of each expert to the rows of a table.

    Rows without a value that the study says to drop are kept, without a prediction and with the reason.
    """
    fitted, output = model_of(model), Output(quiet=quiet)
    rows = table_of(table)
    check_free(out, overwrite=overwrite)
    with report_as(CommandFault.PREDICTION), output.working(f"Scoring {rows.num_rows:,} rows"):
        unscored = write_predictions(fitted, rows, out)
    output.say(f"{out} written.")
    if unscored:
        output.say(
            f"{unscored:,} of {rows.num_rows:,} rows have no prediction, since a value is missing: column 'unscored' "
            "says which.",
            style="yellow",
        )


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
        raise CommandError(CommandFault.INSTALLATION, f"{sum(each.is_problem for each in found)} problems")


@demo.command("hospitals")
def demo_hospitals(
    folder: Annotated[Path, typer.Argument(help="Folder for tables, study, site files and model.")] = Path("hospitals"),
    trust: Annotated[
        Literal["limits", "noise"], typer.Option(help="Whom a hospital has to trust: its limits, or nobody (noise).")
    ] = "limits",
    no_input: NoInput = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run a study of five simulated hospitals: a file from each of them, combined into one model.

    With noise each file has ε = 3, and the hospitals start from the model of an earlier study.
    """
    if not no_input and not is_confirmed(f"Write tables, a study, five site files and a model into {folder}?"):
        raise typer.Abort
    output = Output(as_json, quiet)
    model, largest, written = (run_noisy_tour if trust == "noise" else run_tour)(folder, output)
    said = f"one exchange against pooled: max |Δcoef|/SE = {largest:.2f}"
    output.data({**describe_model(model), "largest_difference": largest}, f"{model.summary()}\n\n{said}")
    output.say(f"{folder}/ash.json is all that left a hospital; {folder}/sites/ash has its policy and its ledger.")
    output.say(f"The page that the people of a hospital read: {folder}/sites/ash/page.html")
    output.say(f"The report that people keep: {written}")
    output.say(f"Look closer: consilience site preview ash --in {folder}/sites; consilience show {folder}/model.json")


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
        _end(CommandError(CommandFault.FILE, f"{error.filename or 'a file'}: {error.strerror or type(error).__name__}"))
    except Exception as error:  # noqa: BLE001 - the text of an unforeseen error may have values of a table
        _end(CommandError(CommandFault.UNEXPECTED, type(error).__name__))
    except KeyboardInterrupt:
        console().print("interrupted", highlight=False)
        sys.exit(130)


def _end(error: CommandError) -> NoReturn:
    kind = error.problem.value
    if "--json" in sys.argv:  # one line, the last of standard error
        told = {"code": kind.code, "status": kind.status, "message": error.said, "to_do": kind.remedy}
        sys.stderr.write(f"{printable(json.dumps({'error': told}, ensure_ascii=False))}\n")
        sys.exit(kind.status)
    console().print(printable(f"error {kind.code}: {error.said}"), style="red", highlight=False, markup=False)
    console().print(f"{kind.title}. {kind.remedy}", highlight=False, markup=False)
    sys.exit(kind.status)
