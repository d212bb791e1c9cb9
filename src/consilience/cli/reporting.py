"""Reports, model descriptions and predictions by commands."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from pyarrow import csv

from consilience.cli.catalogue import report_missing_extra
from consilience.cli.options import Overwrite, Quiet
from consilience.cli.output import Output, check_free, model_of, write
from consilience.errors import InvalidInputError
from consilience.files.noisy_file import SentFile
from consilience.fitted.protocols import FittedMixture, parameter_table
from consilience.kit.study import Study
from consilience.report import html_report, model_card, verdict


def describe_model(model: FittedMixture) -> dict[str, Any]:
    """Return a fitted model as a JSON object: columns, parameters with intervals, and fit."""
    table = parameter_table(model, 0.95)
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    return {
        "model": type(model).__name__,
        "columns": list(model.columns_.names),
        "log_likelihood": model.log_likelihood_,
        "parameters": [{name: _finite(value) for name, value in row.items()} for row in rows],
    }


def _finite(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value


def write_predictions(model: FittedMixture, table: pa.Table, out: Path) -> None:
    """Write a table with predictions and the probability of each expert, given the covariates, as new columns."""
    names = list(model.columns_.names)
    lacking = [name for name in names if name not in table.column_names]
    if lacking:
        raise InvalidInputError(f"the table has no column {', '.join(lacking)}")
    X = table.select(names)
    predicted = model.predict(X)
    found = table.append_column("prediction", pa.array(np.asarray(predicted)))
    for k, probability in enumerate(model.predict_gate(X).T):
        found = found.append_column(f"gate_{k}", pa.array(probability))
    if out.suffix == ".parquet":
        pq.write_table(found, out)
    elif out.suffix == ".csv":
        csv.write_csv(found, out)
    else:
        raise InvalidInputError(f"{out.name}: expected a name that ends in .parquet or .csv")


# ---------------------------------------------------------------- reporting

FORMATS = {"html": html_report, "md": model_card}


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
    write_report_file(model_of(model), target, form, title=title)
    output.say(f"{target} written.")


def check_report(path: Path | None, *, overwrite: bool) -> None:
    """Raise an error, before work is done, if a report cannot be written."""
    if path is not None:
        if path.suffix.lstrip(".") not in FORMATS:
            raise typer.BadParameter(f"--report {path.name}: expected a name that ends in .html or .md")
        check_free(path, overwrite=overwrite)


def report_on(result: Any, study: Study, path: Path | None, output: Output, files: Iterable[SentFile] = ()) -> None:
    """Write the report on the result of a study, if one is wanted, and say its verdict."""
    if path is None:
        return
    sent = list(files)
    known = {
        "origin": {"study": f"{study.name}, {study.identity}", **{f"file of {f.site}": f.hash for f in sent}},
        "policies": {f.site: str(f.evidence["profile"]) for f in sent if "profile" in f.evidence},
    }
    write_report_file(result, path, path.suffix.lstrip("."), title=study.name, **known)
    output.say(f"{path} written. It says:\n{verdict(result)}")


def say_noise(result: Any, output: Output) -> None:
    """Say what a result with noise may have disclosed, and whether it has settled."""
    if result.privacy is not None:
        output.say(f"With noise: {result.privacy}. The run has {'settled' if result.settled else 'NOT settled'}.")


def write_report_file(result: Any, path: Path, form: str, **known: Any) -> None:
    """Write a report; an error names the extra that is missing."""
    with report_missing_extra():
        text = FORMATS[form](result, **known)
    write(path, text, overwrite=True)
