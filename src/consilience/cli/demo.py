"""The demonstration: five simulated hospitals, from their tables to one model."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from consilience.cli.catalogue import Problem, reported_as
from consilience.cli.output import Output, write
from consilience.cli.reporting import report_on
from consilience.datasets.hospitals import STUDY, hospitals
from consilience.files.file_names import slug
from consilience.files.json_text import read_text
from consilience.files.site_file import SiteFile
from consilience.files.study import Study
from consilience.fitted.protocols import FittedMixture
from consilience.model.families.requirement import gaussian
from consilience.site.approval import released
from consilience.site.folder import SiteFolder
from consilience.site.policy import Policy
from consilience.site.tables import read_table
from consilience.studies import combined, examined_for, fit_at_site, simulated


def toured(folder: Path, output: Output) -> tuple[FittedMixture, float, Path | None]:
    """Run the whole tour in a folder; return the model, its largest difference from the pooled fit, and the report."""
    with reported_as(Problem.OUTPUT):
        tables = _tables(folder)
    output.say(f"1. {len(tables)} hospitals, one table each, and a study that all of them got: {folder}/study.toml")
    study = Study.read(folder / "study.toml")
    for name in tables:
        found = examined_for(study, read_table(folder / f"{name}.parquet"))
        output.say(f"   {name}: the table fits the study, {found.used:,} rows")
    output.say("2. Each hospital fits its own model under its own policy, and releases one file that people can read.")
    for name, table in tables.items():
        with output.working(f"   {name} fits"):
            data = _released(folder / "sites", study, name, table)
        write(folder / f"{name}.json", data.decode(), overwrite=True)
    output.say("3. The coordinator combines the five files. No row has left a hospital.")
    files = [SiteFile.from_text(read_text(folder / f"{name}.json", "a site file")) for name in tables]
    with output.working("   combining"):
        orders = combined(study, files)
    model, report = orders.best.model, folder / "report.html"
    model.save(folder / "model.json")
    if find_spec("matplotlib") is None:
        output.say("   no report: it needs the extra, pip install 'consilience[report]'")
    else:
        report_on(orders, study, report, Output(quiet=True), files)
    with output.working("   for comparison, all rows in one table"):
        pooled = simulated(study, {"all": pa.concat_tables(tables.values())}).best.model
    return model, difference(model, pooled), report if report.exists() else None


def _released(parent: Path, study: Study, name: str, table: pa.Table) -> bytes:
    """Fit and release at a hospital, with a folder of its own; the second time it releases the same bytes."""
    place = parent / slug(name)
    if place.exists():
        site = SiteFolder.open(place)
    else:
        site = SiteFolder.init(name, Policy.of_profile("hospital").to_text(), parent)
    fit_at_site(site, study, table)
    return released(site, "demonstration")


def difference(model: FittedMixture, pooled: FittedMixture) -> float:
    """Return the largest difference of a coefficient from the pooled fit, in standard errors of the latter."""
    errors = pooled.inference_.standard_errors().experts[..., 1:]
    ours, theirs = (gaussian(each.mixture_.experts).B for each in (model, pooled))
    by_level, pooled_by_level = (np.argsort(each[:, 0, 0]) for each in (ours, theirs))
    return float(np.max(np.abs(ours[by_level, :, 1:] - theirs[pooled_by_level, :, 1:]) / errors[pooled_by_level]))


def _tables(folder: Path) -> dict[str, pa.Table]:
    folder.mkdir(parents=True, exist_ok=True)
    tables = hospitals()
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    write(folder / "study.toml", STUDY, overwrite=True)
    return tables
