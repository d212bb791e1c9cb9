"""Letters on the columns of sites, before any model leaves: a site writes one, and the coordinator compares them."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated, Any

import typer

from consilience.cli.catalogue import CommandError, CommandFault, report_as
from consilience.cli.mapping_commands import mapped_table
from consilience.cli.notice_commands import check_signatures
from consilience.cli.options import WITHOUT_A_PERSON, AsJson, Quiet, StudyPath
from consilience.cli.output import Output, check_free, folder_of, is_confirmed, study_of, write_bytes
from consilience.files.json_text import read_text
from consilience.kit.letter_comparison import compare_letters, table_of_letters
from consilience.kit.mapping import TableMapping
from consilience.kit.policy.policy import Policy
from consilience.kit.study import Study
from consilience.kit.table_letter import TableLetter, draft_letter


def share_letter(  # noqa: PLR0917 - what the options of the command say
    site: tuple[str, Path],
    study: Study,
    table: Path,
    mapping: TableMapping | None,
    out: Path,
    by: str | None,
    output: Output,
    *,
    no_input: bool,
    overwrite: bool,
) -> None:
    """Show what a letter on the columns of a site would say and cost, ask for approval, and write it."""
    folder = folder_of(*site)
    check_free(out, overwrite=overwrite)
    rows, who = mapped_table(table, study, mapping, as_text=True), by or getpass.getuser()
    with report_as(CommandFault.POLICY, refused=CommandFault.REFUSED):
        draft = draft_letter(folder, study, rows, approved_by=who, mapping=mapping)
        allowed = Policy.from_text(folder.policy).release.allow_no_input
    if draft.is_new and no_input and not allowed:
        raise CommandError(CommandFault.REFUSED, f"the policy does not allow a letter {WITHOUT_A_PERSON}")
    Output(quiet=output.quiet and no_input).say("\n".join(draft.said))
    if draft.is_new and not no_input and not is_confirmed(f"Release this as {out}?"):
        folder.record("decline", {"study": study.identity, "declined_by": who[:200]})
        raise CommandError(
            CommandFault.DECLINED, "nothing has left, nor was anything charged; the ledger has your answer"
        )
    with report_as(CommandFault.POLICY, refused=CommandFault.REFUSED):
        data = draft.write()
    write_bytes(out, data, overwrite=overwrite)
    output.say(f"{out} written: send it to the coordinator, who passes it to 'consilience study compare'.")


def compare_command(
    study: StudyPath,
    letters: Annotated[list[Path], typer.Argument(metavar="LETTERS...", help="The letters that sites have sent.")],
    roster: Annotated[Path | None, typer.Option(help="Roster with the sites' names and public keys.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare the columns of sites by their letters, before anybody fits: Table 1, and what to ask which site."""
    wanted, output, sent = study_of(study), Output(as_json, quiet), list[TableLetter]()
    for path in letters:
        with report_as(CommandFault.SITE_FILE):
            sent.append(TableLetter.from_text(read_text(path, "a letter on columns")))
    check_signatures(wanted, sent, roster, output)
    with report_as(CommandFault.COMBINATION):
        found, table = compare_letters(wanted, sent), table_of_letters(wanted, sent)
    asked = [f"Ask {each}" for each in found] or ["No column of a site looks wrong beside those of the others."]
    document: dict[str, Any] = {
        "questions": [
            {"site": each.site, "column": each.column, "what": each.what, "factor": each.factor, "text": each.text}
            for each in found
        ],
        "table_one": {"header": table.header, "rows": table.cells},
    }
    text = f"Table 1. Rows of each site, from counts with noise\n{table}\n\n" + "\n".join([*asked, LIMITS])
    output.data(document, text)


LIMITS = (
    "Counts have noise: sites with fewer than 500 rows, columns that were shuffled, and what changes no band are seen "
    "in the files only, by 'consilience combine'."
)
