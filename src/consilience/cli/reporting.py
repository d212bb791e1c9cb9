"""Reports, model descriptions and predictions by commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from pyarrow import csv

from consilience._version import __version__
from consilience.cli.catalogue import CommandFault, report_as
from consilience.cli.options import Overwrite, Quiet, TablesPath
from consilience.cli.output import Output, check_free, model_of, study_of, write
from consilience.errors import InvalidInputError
from consilience.files.json_text import bytes_hash, content_hash, count_numbers
from consilience.files.noisy_file import AnySiteFile, NoisyFile
from consilience.fitted.protocols import FittedMixture, expert_label, parameter_table, source_columns
from consilience.kit.row_tags import missing_in, whole_column
from consilience.kit.stored_evidence import evidence_path, read_evidence, write_evidence
from consilience.kit.study import Study
from consilience.kit.study_words import governance_of, words_of
from consilience.kit.table_one import TableOne
from consilience.kit.versions import kits_of, kits_text
from consilience.methods import PrivateFit
from consilience.numerics.arrays import Mask
from consilience.report import SentFile, html_report, model_card, report_tables
from consilience.report.kinds import kinds_of
from consilience.report.subject import Subject
from consilience.report.verdict import judge


def describe_model(model: FittedMixture) -> dict[str, Any]:
    """Return a fitted model as a JSON object: columns, parameters with intervals, and fit."""
    table = parameter_table(model, 0.95)
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    return {
        "model": type(model).__name__,
        "columns": [column.name for column in source_columns(model)],
        "log_likelihood": model.log_likelihood_,
        "parameters": [{name: _finite(value) for name, value in row.items()} for row in rows],
    }


def _finite(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value


def write_predictions(model: FittedMixture, table: pa.Table, out: Path) -> int:
    """Write a table with predictions and, as ``gate_1``, ..., the probability of each expert given the covariates.

    A row without a value in a column of which the study drops missing values has no prediction; the column "unscored"
    says which column it is. Returns the number of such rows.
    """
    if out.suffix not in (".parquet", ".csv"):
        raise InvalidInputError(f"{out.name}: expected a name that ends in .parquet or .csv")
    names = [column.name for column in source_columns(model)]
    lacking = [name for name in names if name not in table.column_names]
    if lacking:
        raise InvalidInputError(f"the table has no column {', '.join(lacking)}")
    reason = _unscored(model, table)
    scored = np.array([each is None for each in reason], dtype=bool)
    X = table.select(names).filter(pa.array(scored, pa.bool_()))
    if not X.num_rows:
        raise InvalidInputError("no row has a value in all columns that the model reads: nothing is predicted")
    found = table.append_column("prediction", _at(scored, model.predict(X)))
    for k, probability in enumerate(model.predict_gate(X).T, start=1):
        found = found.append_column(f"gate_{k}", _at(scored, probability))
    if not scored.all():
        found = found.append_column("unscored", pa.array(reason, pa.string()))
    if out.suffix == ".parquet":
        pq.write_table(found, out)
    else:
        csv.write_csv(found, out)
    return int(np.sum(~scored))


def _unscored(model: FittedMixture, table: pa.Table) -> list[str | None]:
    """Return for each row the columns without a value that keep it from being scored, in words; None for others."""
    reason: list[str | None] = [None] * table.num_rows
    for column in source_columns(model):
        if column.rule.missing == "drop":
            for i in np.flatnonzero(missing_in(whole_column(table, column.name))):
                before = reason[i]
                reason[i] = f"no {column.name}" if before is None else f"{before}, no {column.name}"
    return reason


def _at(scored: Mask, values: Any) -> pa.Array:
    """Return values as a column, with null in the rows that were not scored."""
    places = np.cumsum(scored) - 1
    return pa.array(np.asarray(values)).take(pa.array(np.where(scored, places, 0), mask=~scored))


# ---------------------------------------------------------------- reporting

FORMATS = {"html": html_report, "md": model_card}


def report(  # noqa: PLR0917 - typer makes options of them
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model file.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="File to write; beside the model by default.")] = None,
    form: Annotated[str, typer.Option("--format", help="html, or md for a model card.")] = "html",
    title: Annotated[str, typer.Option(help="Title of the report.")] = "",
    study: Annotated[Path | None, typer.Option(help="Study file, for the words of the report.")] = None,
    tables: TablesPath = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Write a report on a model: one HTML file to read offline, or a model card.

    With the evidence that 'combine' and 'run' write beside the model, it is the report that they would have written.
    """
    if form not in FORMATS:
        raise typer.BadParameter(f"--format is {' or '.join(FORMATS)}")
    beside = model.with_name("MODEL_CARD.md") if form == "md" else model.with_suffix(".html")
    target, output = out or beside, Output(quiet=quiet)
    check_free(target, overwrite=overwrite)
    check_report(None, tables, overwrite=overwrite)
    fitted, given = model_of(model), None if study is None else study_of(study)
    with report_as(CommandFault.MODEL):
        known = _known_beside(model, fitted, given)
    if "evidence" not in known:
        output.say(f"There is no {evidence_path(model).name}: nothing is known of single sites.", style="yellow")
    write(target, FORMATS[form](fitted, title=title, **known), overwrite=True)
    output.say(f"{target} written.")
    _write_tables(fitted, tables, output, known)


def _known_beside(path: Path, model: FittedMixture, study: Study | None) -> dict[str, Any]:
    """Return what a report shows besides the model: the evidence beside it, with the words of a study if one is given.

    Raises
    ------
    InvalidInputError
        If the evidence is not valid, or not of this model or study.
    """
    found = read_evidence(path)
    if found is None:
        return {} if study is None else _of_study(study)
    stored = Study.from_text(found.study)
    if study is not None and study.identity != stored.identity:
        raise InvalidInputError(f"the model is of study {stored.name!a}, and the study that was given is another one")
    return _of_study(stored if study is None else study, found.kits) | found.known(model)


def check_model(path: Path, *, overwrite: bool) -> None:
    """Raise an error, before work is done, if a model or its evidence exists and may not be replaced."""
    for each in (path, evidence_path(path)):
        check_free(each, overwrite=overwrite)


def check_report(path: Path | None, tables: Path | None, *, overwrite: bool) -> None:
    """Raise an error, before work is done, if a report or its tables cannot be written."""
    if path is not None:
        if path.suffix.lstrip(".") not in FORMATS:
            raise typer.BadParameter(f"--report {path.name}: expected a name that ends in .html or .md")
        check_free(path, overwrite=overwrite)
    if tables is not None:
        tables.mkdir(parents=True, exist_ok=True)
        if any(tables.glob("*.csv")) and not overwrite:
            raise typer.BadParameter(
                f"--tables {tables}: the folder has tables already; use --overwrite or another one"
            )


def sent_file(path: Path, file: AnySiteFile) -> SentFile:
    """Return what a report says of a file of a site, as it is on disk; one with noise has no model."""
    data = path.read_bytes()
    released, model = str(file.envelope.get("time", ""))[:10], None if isinstance(file, NoisyFile) else file.fit.model
    mixture = None if model is None else model.mixture
    profile = str(file.evidence.get("profile", ""))
    digest, numbers = bytes_hash(data).removeprefix("sha256:"), count_numbers(file.content)
    kit = kits_of([file])[file.site]
    return SentFile(file.site, path.name, len(data), digest, numbers, profile, released, mixture, kit)


def characteristics_of(study: Study, found: TableOne) -> tuple[tuple[str, ...], ...]:
    """Return Table 1 of a report, its header first: columns have the labels of the study."""
    words = words_of(study)
    own = words.response.label if words.response.back == "none" or study.response.rule.transform != "none" else ""
    labels = {study.response.name: own or study.response.name}
    rows = []
    for row, cells in zip(found.rows, found.cells, strict=True):
        first = cells[0].removeprefix(row.column) if row.column and cells[0].startswith(row.column) else None
        label = labels.get(row.column) or words.label(row.column)
        said = f"{words.rows[1]} used" if cells[0] == "rows used" else cells[0] if first is None else label + first
        rows.append((said, *cells[1:]))
    return ((*found.header[:-1], "largest SMD"), *rows)


def report_on(
    result: Any,
    study: Study,
    path: Path | None,
    output: Output,
    *,
    model: Path,
    tables: Path | None = None,
    kits: Mapping[str, str] | None = None,
    sizes: Mapping[str, Sequence[int]] | None = None,
    **known: Any,
) -> None:
    """Write the evidence of a result beside its model, and the report and its tables if they are wanted.

    ``model`` is the file of the model, which is there; ``kits`` are the versions of the library at the sites, and
    ``sizes`` the bytes of their answers as files; ``known`` are further fields of
    :class:`~consilience.report.subject.Subject`, such as ``files``.
    """
    known = _of_study(study, kits) | known
    subject = Subject.of(result, **known)
    if sizes and subject.evidence is not None:
        subject = replace(subject, evidence=subject.evidence.with_files(sizes))
    with report_as(CommandFault.OUTPUT):
        write_evidence(model, study, subject, kits or {})
    known |= {"evidence": subject.evidence, "orders": subject.orders, "made": subject.made}
    if path is not None:
        write(path, FORMATS[path.suffix.lstrip(".")](subject.model, **known), overwrite=True)
        output.say(f"{path} written. It says:\n{judge(subject)}")
    _write_tables(subject.model, tables, output, known)


def _of_study(study: Study, kits: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what a report says of a study, and of the versions of the library at the sites."""
    words = "" if study.words is None else content_hash(study.words.model_dump(exclude_none=True))
    origin = {"study": f"{study.name}, {study.identity}"} | ({"words of the study": words} if words else {})
    origin |= {"consilience at the sites": kits_text(kits)} if kits else {}
    return {
        "words": words_of(study),
        "study": study.name,
        "governance": governance_of(study),
        "origin": origin,
    }


def _write_tables(result: Any, folder: Path | None, output: Output, known: Mapping[str, Any]) -> None:
    """Write the tables of a report into a folder, if they are wanted."""
    if folder is None:
        return
    found = report_tables(result, **known)
    for name, text in found.items():
        write(folder / name, text, overwrite=True)
    output.say(f"{len(found)} tables written to {folder}.")


def say_names(model: FittedMixture, study: Study, output: Output) -> None:
    """Say what the report calls each expert of the summary, if there are several."""
    kinds = sorted(kinds_of(model, words_of(study)), key=lambda kind: kind.expert)
    if len(kinds) > 1:
        named = ", ".join(f"{expert_label(model, kind.expert)} is {kind.name!r}" for kind in kinds)
        output.say(f"In the words of the study and of its report, {named}.")


def commands_again(*parts: str) -> tuple[str, ...]:
    """Return the commands that give a result again, with names of files in place of paths."""
    return f"pip install consilience=={__version__}", f"consilience {' '.join(parts)}"


def say_noise(result: Any, output: Output) -> None:
    """Say what a result with noise may have disclosed, whether it has settled, and what was forecast."""
    if result.privacy is None:
        return
    output.say(f"With noise: {result.privacy}. The run has {'settled' if result.settled else 'NOT settled'}.")
    if isinstance(result.fit, PrivateFit):
        output.say(f"Forecast at its start: {result.fit.forecast.ratio:.2f} times the standard errors without noise.")
