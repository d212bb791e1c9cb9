"""The commands that write and read notices: a site withdraws, and a coordinator states that files were destroyed."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from consilience.cli.catalogue import CommandError, CommandFault, report_as, report_missing_extra
from consilience.cli.options import Decider, NoInput, Overwrite, Quiet, SiteName, StudyPath, Where
from consilience.cli.output import Output, check_free, folder_of, is_confirmed, study_of, write_bytes
from consilience.files.json_text import read_text
from consilience.files.noisy_file import AnySiteFile, NoisyFile, read_sent_file
from consilience.files.site_file import SiteFile
from consilience.kit.folder import SiteFolder
from consilience.kit.notices import (
    Retraction,
    Withdrawal,
    check_notices,
    coordinator_key,
    is_notice,
    keep_withdrawal,
    read_notice,
    write_retraction,
    write_withdrawal,
)
from consilience.kit.release import LastFit, still_replaced
from consilience.kit.roster import Roster, Signed, check_signature
from consilience.kit.study import Study
from consilience.kit.table_letter import is_table_letter

Notice = Withdrawal | Retraction
KeyPath = Annotated[Path, typer.Option("--key", help="Key of the coordinator, in PEM; it is made if there is none.")]


# ---------------------------------------------------------------- at the site


def withdraw_site(  # noqa: PLR0917 - typer makes options of them
    name: SiteName,
    study: StudyPath,
    reason: Annotated[str, typer.Option(help="Why, in words that the coordinator reads.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Notice to write.")],
    by: Decider = None,
    no_input: NoInput = False,
    overwrite: Overwrite = False,
    where: Where = Path(),
    quiet: Quiet = False,
) -> None:
    """Withdraw the site from a study, for good: write the signed notice that 'combine' honours."""
    folder, wanted = folder_of(name, where), study_of(study)
    check_free(out, overwrite=overwrite)
    with report_as(CommandFault.RELEASE):
        notice = write_withdrawal(folder, wanted.identity, reason)
    asked = f"Withdraw {folder.name} from {wanted.name}? Nothing of it leaves for this study any more."
    if not no_input and not is_confirmed(asked):
        raise CommandError(CommandFault.DECLINED, "the site has not withdrawn")
    with report_as(CommandFault.FOLDER):
        data = keep_withdrawal(folder, notice, by or getpass.getuser())
    write_bytes(out, data, overwrite=overwrite)
    Output(quiet=quiet).say(f"{out} written: send it to the coordinator, who passes it to 'consilience combine'.")


def retractions_of(
    folder: SiteFolder, last: LastFit, replaces: Sequence[int], paths: Sequence[Path]
) -> list[Retraction]:
    """Read the notices for a release that replaces others; raise an error if one lacks, or if others are named."""
    if sorted(set(replaces)) != list(last.entry.details.get("replaces", ())):
        listed = ", ".join(map(str, last.entry.details.get("replaces", ()))) or "nothing"
        raise CommandError(
            CommandFault.REFUSED,
            f"the last fit replaces {listed}: run 'consilience site fit' and 'site release' with the same --replaces",
        )
    found = [Retraction.from_text(read_text(path, "a notice of the coordinator")) for path in paths]
    check_notices(folder, still_replaced(folder, last), found)
    return found


# ---------------------------------------------------------------- at the coordinator


def print_coordinator_key(
    key: Annotated[Path, typer.Argument(metavar="KEY", help="File of the key, such as coordinator.pem.")],
) -> None:
    """Print the public key of the coordinator, which sites put into their policy; make a key first if there is none."""
    with report_as(CommandFault.FILE), report_missing_extra():
        public = coordinator_key(key).public_key
    Output().data({"key": public}, public)


def retract_files(  # noqa: PLR0917 - typer makes options of them
    files: Annotated[list[Path], typer.Argument(metavar="FILES...", help="Files of sites; they are deleted.")],
    key: KeyPath,
    out: Annotated[Path, typer.Option("-o", "--out", help="Notice to write, for the sites.")],
    no_input: NoInput = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Delete files of sites, and write the signed notice that they were destroyed and not combined."""
    check_free(out, overwrite=overwrite)
    sent = [_site_file(path) for path in files]
    listed = ", ".join(map(str, files))
    asked = (
        f"{listed}: these files are deleted now. Do you state, signed with {key}, that all other copies were destroyed "
        "and that no result was made of them?"
    )
    if not no_input and not is_confirmed(asked):
        raise CommandError(CommandFault.DECLINED, "nothing was deleted, and no notice was written")
    with report_as(CommandFault.FILE), report_missing_extra():
        notice = write_retraction(sent, coordinator_key(key))
    write_bytes(out, notice.to_text().encode(), overwrite=overwrite)
    for path in files:
        path.unlink()
    Output(quiet=quiet).say(f"{out} written: send it to {', '.join(sorted({each.site for each in sent}))}.")


def _site_file(path: Path) -> SiteFile:
    with report_as(CommandFault.SITE_FILE):
        found = read_sent_file(read_text(path, "a site file"))
    if isinstance(found, NoisyFile):
        raise CommandError(CommandFault.SITE_FILE, f"{path} has noise: a site may send a new one without a notice")
    return found


# ---------------------------------------------------------------- combining


def check_signatures(study: Study, files: Sequence[Signed], roster: Path | None, output: Output) -> Roster | None:
    """Return the roster, after every file was checked against it.

    Unsigned files are named, or refused if the study requires signatures.
    """
    known = None
    if roster is not None:
        with report_as(CommandFault.ROSTER):
            known = Roster.read(roster)
    absent = [] if known is None else sorted(set(known.names) - {file.site for file in files})
    if absent:
        output.say(f"In the roster, but without a file: {', '.join(absent)}", style="yellow")
    for file in files:
        with report_missing_extra():
            found = check_signature(file, known, study.minimum.require_signatures)
        if found.status == "refused":
            raise CommandError(CommandFault.SIGNATURE, found.said)
        output.say(found.said)
    return known


def part_notices(study: Study, paths: Sequence[Path], output: Output) -> tuple[list[Path], list[Notice]]:
    """Part files of sites from notices, which stand beside them; raise an error for a notice of another study.

    Letters on columns may stand there too, and are left out.
    """
    files, notices = list[Path](), list[Notice]()
    for path in paths:
        with report_as(CommandFault.SITE_FILE):
            text = read_text(path, "a site file")
            found = read_notice(text) if is_notice(text) else None
        if is_table_letter(text):
            output.say(f"{path} is a letter on columns, which 'consilience study compare' reads: not used.")
            continue
        if isinstance(found, Withdrawal) and found.study != study.identity:
            raise CommandError(CommandFault.COMBINATION, f"{path}: {found} from another study")
        if found is None:
            files.append(path)
        else:
            notices.append(found)
    return files, notices


def leave_out(
    paths: Sequence[Path], files: Sequence[AnySiteFile], notices: Sequence[Notice], output: Output
) -> tuple[list[Path], list[AnySiteFile]]:
    """Leave out the files of sites that withdrew; raise an error for a file that the coordinator has retracted."""
    gone = {each.site: each for each in notices if isinstance(each, Withdrawal)}
    retracted = {named for each in notices if isinstance(each, Retraction) for named in each.files}
    for file in files:
        if (file.site, file.hash) in retracted:
            raise CommandError(
                CommandFault.COMBINATION, f"the file of {file.site} was retracted: destroy it, and use the newer one"
            )
    for notice in gone.values():
        output.say(f"{notice}: nothing of it is used.", style="yellow")
    kept = [(path, file) for path, file in zip(paths, files, strict=True) if file.site not in gone]
    return [path for path, _ in kept], [file for _, file in kept]
