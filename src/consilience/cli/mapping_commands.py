"""The command that drafts the mapping of a site's export to a study, and reading tables through it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from consilience.cli.catalogue import CommandError, CommandFault, report_as, report_missing_extra
from consilience.cli.options import AsJson, NoInput, Overwrite, Quiet, SiteName, StudyPath, TablePath, Where
from consilience.cli.output import Output, end_piped_line, printable, study_of, write
from consilience.columns import Column
from consilience.data.foreign_files import sheets_of
from consilience.kit.examination import Finding
from consilience.kit.folder import MAPPING
from consilience.kit.mapping import FileFormat, MappedColumn, TableMapping, read_mapped
from consilience.kit.mapping_draft import (
    ColumnDraft,
    file_format,
    propose_columns,
    propose_rule,
    read_export,
    unknown_values,
    with_changes,
)
from consilience.kit.private_files import slug
from consilience.kit.site_fit import examine_for_study
from consilience.kit.study import Study

MOST_NAMES = 20
"""Maximum number of sheets that are named."""
Pairs = list[str] | None
MappingPath = Annotated[
    Path | None, typer.Option("--mapping", help="Mapping of the table; the one in the folder of the site by default.")
]


def mapping_of(name: str, where: Path, given: Path | None) -> TableMapping | None:
    """Read the mapping that is given, or that of the site's folder; None if there is none."""
    path = given or where / slug(name) / MAPPING
    if given is None and not path.is_file():
        return None
    with report_as(CommandFault.MAPPING):
        return TableMapping.read(path)


def mapped_table(path: Path, study: Study, mapping: TableMapping | None, *, as_text: bool = False) -> pa.Table:
    """Read the table of a site through its mapping."""
    with report_as(CommandFault.TABLE), report_missing_extra():
        return read_mapped(path, study, mapping, as_text=as_text)


def map_export(  # noqa: PLR0917 - typer makes options of them
    name: SiteName,
    study: StudyPath,
    table: TablePath,
    column: Annotated[Pairs, typer.Option(help="A column of the study and yours: age=Alter. Repeatable.")] = None,
    level: Annotated[Pairs, typer.Option(help="A value here and its level: sex.w=female. Repeatable.")] = None,
    missing: Annotated[Pairs, typer.Option(help="A code of missing values: -99, or crp=-99. Repeatable.")] = None,
    multiply: Annotated[Pairs, typer.Option(help="Factor to the unit of the study: crp=10. Repeatable.")] = None,
    add: Annotated[Pairs, typer.Option(help="Number that is added after that: temperature=-273.15.")] = None,
    until: Annotated[Pairs, typer.Option(help="Later date, a column or YYYY-MM-DD: los_days=discharged.")] = None,
    unit: Annotated[Pairs, typer.Option(help="Unit of the time between two dates: los_days=days.")] = None,
    dates: Annotated[Pairs, typer.Option(help="How dates are written: los_days=DD.MM.YYYY.")] = None,
    encoding: Annotated[str, typer.Option(help="Encoding of a CSV file; found out if not given.")] = "",
    delimiter: Annotated[str, typer.Option(help="Between the cells of a CSV file; found out if not given.")] = "",
    decimal: Annotated[str, typer.Option(help="Decimal point or comma; found out if not given.")] = "",
    sheet: Annotated[str, typer.Option(help="Sheet of a workbook; the first if not given.")] = "",
    out: Annotated[Path | None, typer.Option("-o", "--out", help="File to write; mapping.toml of the site.")] = None,
    overwrite: Overwrite = False,
    no_input: NoInput = False,
    where: Where = Path(),
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Draft mapping.toml: how the export of a site becomes the table of the study. It stays at the site.

    Names and levels that are alike are proposed; what cannot be decided is asked on a terminal, or left to options.
    """
    wanted, output = study_of(study), Output(as_json, quiet)
    said = [_pairs(each, kind) for each, kind in (
        (column, "column"), (level, "level"), (missing, "missing"), (multiply, "multiply"), (add, "add"),
        (until, "until"), (unit, "unit"), (dates, "dates"))]  # fmt: skip
    with report_as(CommandFault.MAPPING), report_missing_extra():
        if not sheet and len(sheets := sheets_of(table)) > 1:
            output.say(f"{table.name}: sheet {sheets[0]!r} is read; --sheet reads another: {_listed(sheets[1:])}")
        written = {"encoding": encoding, "delimiter": delimiter, "decimal": decimal, "sheet": sheet}
        file = _file(table, written, said[2])
        export = read_export(table, file)
        sources = _sources(export, wanted, dict(said[0]), asks=not no_input)
        rules = [
            propose_rule(export, sources[each.name], each, file) for each in _columns(wanted) if each.name in sources
        ]
        rules = [with_changes(rule, _changes(rule.name, said)) for rule in rules]
        if not no_input:
            rules = [_with_levels(rule, export, wanted, file) for rule in rules]
        needed = [rule for rule in rules if rule != MappedColumn(name=rule.name, source=rule.name)]
        mapping = TableMapping(study=wanted.name, file=file, columns=needed)
        found = examine_for_study(wanted, read_mapped(table, wanted, mapping))
    target = out or where / slug(name) / MAPPING
    write(target, mapping.to_text(), overwrite=overwrite)
    _tell(
        output, target, mapping, [each for each in found.findings if each.is_error], missing=_missing(wanted, sources)
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(map(repr, names[:MOST_NAMES]))}{more}"


def _columns(study: Study) -> list[Column]:
    return [column.column() for column in study.columns]


def _missing(study: Study, sources: dict[str, str]) -> list[str]:
    return [column.name for column in _columns(study) if column.name not in sources]


def _pairs(given: Sequence[str] | None, option: str) -> list[tuple[str, str]]:
    """Return the parts of ``name=value``; of a code of missing values alone, with an empty name."""
    found = []
    for each in given or ():
        name, equals, value = each.partition("=")
        if not equals and option == "missing":
            name, value = "", each
        elif not equals or not value:
            raise typer.BadParameter(f"--{option} {each}: expected NAME=VALUE")
        found.append((name.strip(), value))
    return found


def _file(path: Path, said: Mapping[str, str], codes: Sequence[tuple[str, str]]) -> FileFormat:
    """Return how the file is written: as the options say, otherwise as it looks."""
    found = file_format(path, said["sheet"]).model_dump() | {name: value for name, value in said.items() if value}
    return FileFormat.model_validate(found | {"missing": [code for name, code in codes if not name]})


def _sources(export: pa.Table, study: Study, said: dict[str, str], *, asks: bool) -> dict[str, str]:
    """Return the column of the export for each column of the study, as far as it is known or said."""
    found: dict[str, str] = {}
    for draft in propose_columns(export, _columns(study)):
        name = draft.column.name
        if name in said:
            found[name] = said[name]
        elif draft.is_sure:
            found[name] = draft.candidates[0]
        elif asks and draft.candidates and (chosen := _ask(draft, taken={*found.values(), *said.values()})):
            found[name] = chosen
    return found


def _ask(draft: ColumnDraft, taken: Collection[str]) -> str:
    """Ask which column is meant, those that are taken last; empty if none is."""
    column = draft.column
    shown = sorted(draft.candidates, key=lambda name: name in taken)[:9]
    unit = f" ({column.rule.unit})" if column.rule.unit else ""
    kind = f", one of {', '.join(map(str, column.levels[:6]))}" if column.is_category else ""
    answer = _ask_which(f"Which column is {column.name}{unit}{kind}?", shown, default=1)
    return shown[answer - 1] if answer else ""


def _with_levels(rule: MappedColumn, export: pa.Table, study: Study, file: FileFormat) -> MappedColumn:
    """Return the rule of a category with the levels that a person names for the values that are none."""
    column = next(each for each in _columns(study) if each.name == rule.name)
    named = {}
    for value in unknown_values(export, rule, column, file.missing):
        shown = column.levels[:9]
        if answer := _ask_which(f"Which level of {column.name} is {value!r}?", [*map(str, shown)], default=0):
            named[value] = shown[answer - 1]
    return with_changes(rule, {"levels": named}) if named else rule


def _ask_which(question: str, shown: Sequence[str], default: int) -> int:
    """Ask which of several is meant, by its number from 1; 0 if none is."""
    lines = [f"  {number}  {name}" for number, name in enumerate(shown, start=1)]
    typer.echo(printable("\n".join([question, *lines, "  0  none of these"])), err=True)
    answer = -1
    while not 0 <= answer <= len(shown):
        answer = typer.prompt(f"Number from 0 to {len(shown)}", type=int, default=default, err=True)
        end_piped_line()
    return answer


def _changes(name: str, said: Sequence[Sequence[tuple[str, str]]]) -> dict[str, Any]:
    """Return what the options say of a column."""
    _, levels, codes, multiply, add, until, unit, dates = said
    found: dict[str, Any] = {}
    mine = {value.removeprefix(f"{name}."): level for value, level in levels if value.startswith(f"{name}.")}
    if mine:
        found["levels"] = {value: _level(level) for value, level in mine.items()}
    if own := [code for column, code in codes if column == name]:
        found["missing"] = own
    said_once = (("multiply", multiply), ("add", add), ("until", until), ("unit", unit), ("dates", dates))
    for key, pairs in said_once:
        for column, value in pairs:
            if column == name:
                found[key] = _number(value, key) if key in ("multiply", "add") else value
    return found


def _level(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def _number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise typer.BadParameter(f"--{option} {text}: expected a number") from error


def _tell(
    output: Output, path: Path, mapping: TableMapping, errors: Sequence[Finding], *, missing: Sequence[str]
) -> None:
    lines = [f"{path} written. Read it: it is yours, and it stays here.", *(f"  {each}" for each in mapping.sentences)]
    lines += [f"not found: {name}; say which column it is with --column {name}=..." for name in missing]
    lines += [f"still to do: {each}" for each in errors if each.column not in missing]
    document = {
        "file": str(path), "mapping": mapping.identity, "columns": [rule.name for rule in mapping.columns],
        "not_found": list(missing), "still_to_do": [{"code": each.code, "column": each.column} for each in errors],
    }  # fmt: skip
    output.data(document, "\n".join(lines))
    if errors:
        raise CommandError(
            CommandFault.MISFIT, f"{len(errors)} findings are left: complete {path}, or give the options"
        )
