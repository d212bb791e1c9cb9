"""The demonstration: five simulated hospitals, from their tables to a report, under limits or with noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from consilience.cli.catalogue import CommandFault, report_as
from consilience.cli.output import Output, write
from consilience.cli.reporting import characteristics_of, commands_again, report_on, say_noise, sent_file
from consilience.cli.site_page import write_page
from consilience.data.tables import read_table
from consilience.datasets.hospitals import STUDY, hospitals
from consilience.estimators.saving import model_text
from consilience.files.json_text import bytes_hash, read_text
from consilience.files.noisy_file import AnySiteFile, read_sent_file
from consilience.files.site_file import SiteFile
from consilience.fitted.protocols import FittedMixture
from consilience.kit.combination import combine_files, simulate_study
from consilience.kit.folder import SiteFolder
from consilience.kit.policy.policy import Policy
from consilience.kit.private_files import slug
from consilience.kit.release import release_fit
from consilience.kit.site_fit import examine_for_study, fit_at_site, flow_of
from consilience.kit.site_noise import draft_steps
from consilience.kit.study import Study
from consilience.kit.study_notes import keep_reading
from consilience.kit.table_one import table_one
from consilience.model import Mixture
from consilience.model.families.registry import gaussian

EARLIER = 1
"""Random state of the tables of an earlier study, whose model is the public start of the one with noise."""
NOISE = """\
[method]
name = "PrivateScoring"

[privacy]
epsilon = 3.0
exchange = "file"
start = "START"

"""


def run_tour(folder: Path, output: Output) -> tuple[FittedMixture, float, Path]:
    """Run the whole tour in a folder; return the model, its largest difference from the pooled fit, and the report."""
    with report_as(CommandFault.OUTPUT):
        tables = _tables(folder)
        write(folder / "study.toml", STUDY, overwrite=True)
    output.say(f"1. {len(tables)} hospitals, one table each, and a study that all of them got: {folder}/study.toml")
    study = Study.read(folder / "study.toml")
    for name in tables:
        found = examine_for_study(study, read_table(folder / f"{name}.parquet"))
        output.say(f"   {name}: the table fits the study, {found.used:,} rows")
    output.say("2. Each hospital fits its own model under its own policy, and releases one file that people can read.")
    for name, table in tables.items():
        with output.working(f"   {name} fits"):
            data = _released(folder / "sites", study, name, table)
        write(folder / f"{name}.json", data.decode(), overwrite=True)
    output.say("3. The coordinator combines the five files. No row has left a hospital.")
    files = [SiteFile.from_text(read_text(folder / f"{name}.json", "a site file")) for name in tables]
    with output.working("   combining"):
        orders = combine_files(study, files)
    model, report = orders.best.model, folder / "report.html"
    model.save(folder / "model.json")
    sent = tuple(sent_file(folder / f"{file.site}.json", file) for file in files)
    names = [f"{name}.json" for name in tables]
    again = commands_again("combine", "study.toml", *names, "-o", "model.json", "--report", "report.html")
    known: dict[str, Any] = {"files": sent, "invited": tuple(tables), "commands": again}
    known["characteristics"] = characteristics_of(study, table_one(study, files))
    report_on(orders, study, report, Output(quiet=True), model=folder / "model.json", **known)
    with output.working("   for comparison, all rows in one table"):
        pooled = simulate_study(study, {"all": pa.concat_tables(tables.values())}).best.model
    return model, pooled_difference(model, pooled), report


def _released(parent: Path, study: Study, name: str, table: pa.Table) -> bytes:
    """Fit and release at a hospital, with a folder of its own; the second time it releases the same bytes."""
    site = _site_of(parent, name)
    paths, lines = (Path("study.toml"), Path(f"{name}.parquet")), flow_of(study, table).lines
    keep_reading(site, study, table, paths, entry=len(site.entries), lines=lines)
    fit_at_site(site, study, table)
    data = release_fit(site, "demonstration")
    write_page(site, " --in sites")
    return data


def run_noisy_tour(folder: Path, output: Output) -> tuple[FittedMixture, float, Path]:
    """Run the whole tour with noise, from the model of an earlier study; return as :func:`run_tour`."""
    with report_as(CommandFault.OUTPUT):
        tables = _tables(folder)
    with output.working("1. An earlier study of the same hospitals left a model, which is public"):
        begin = simulate_study(Study.from_text(STUDY), {"earlier": pa.concat_tables(hospitals(EARLIER).values())})
    start = model_text(begin.best.model, site_names=False)
    write(folder / "start.json", start, overwrite=True)
    write(folder / "study.toml", noisy_study(bytes_hash((folder / "start.json").read_bytes())), overwrite=True)
    output.say(f"   {folder}/start.json; the study names it by its hash, {folder}/study.toml")
    study, files = Study.read(folder / "study.toml"), dict[str, AnySiteFile]()
    output.say("2. Each hospital takes steps on its own rows, adds noise, and releases one file with noisy sums.")
    for name, table in tables.items():
        with output.working(f"   {name} sums"), report_as(CommandFault.POLICY, refused=CommandFault.REFUSED):
            data = _released_sums(folder / "sites", study, name, table, begin.best.model.mixture_)
        write(folder / f"{name}.json", data.decode(), overwrite=True)
        files[name] = read_sent_file(read_text(folder / f"{name}.json", "a site file"))
    output.say("3. The coordinator finds the mixture that explains the sums of the five files.")
    with output.working("   combining"):
        orders = combine_files(study, list(files.values()))
    model, report = orders.best.model, folder / "report.html"
    model.save(folder / "model.json")
    say_noise(orders.best, output)
    again = commands_again(
        "combine", "study.toml", *(f"{name}.json" for name in tables), "-o", "model.json", "--report", "report.html"
    )
    sent = tuple(sent_file(folder / f"{name}.json", file) for name, file in files.items())
    known: dict[str, Any] = {"files": sent, "invited": tuple(tables)}
    report_on(orders, study, report, Output(quiet=True), model=folder / "model.json", commands=again, **known)
    with output.working("   for comparison, all rows in one table"):
        pooled = simulate_study(Study.from_text(STUDY), {"all": pa.concat_tables(tables.values())}).best.model
    return model, pooled_difference(model, pooled), report


def noisy_study(start: str) -> str:
    """Return the text of the study with noise, which starts from the model file of this hash."""
    text = STUDY.replace("\n# Two kinds of patients:", 'trust = "noise"\n\n# Two kinds of patients:', 1)
    return text.replace("[minimum]", f"{NOISE.replace('START', start)}[minimum]", 1)


def _released_sums(parent: Path, study: Study, name: str, table: pa.Table, start: Mixture) -> bytes:
    """Draw and release noisy sums at a hospital; the second time they are the same bytes, and cost nothing."""
    site = _site_of(parent, name)
    paths, entry = (Path("study.toml"), Path(f"{name}.parquet")), len(site.entries)
    draft = draft_steps(site, study, table, start, approved_by="demonstration")
    keep_reading(site, study, table, paths, entry=entry, lines=draft.said)
    draft.fit()
    data = release_fit(site, "demonstration")
    write_page(site, " --in sites")
    return data


def _site_of(parent: Path, name: str) -> SiteFolder:
    """Open the folder of a hospital; make it the first time."""
    if (parent / slug(name)).exists():
        return SiteFolder.open(parent / slug(name))
    return SiteFolder.init(name, Policy.of_profile("hospital").to_text(), parent)


def pooled_difference(model: FittedMixture, pooled: FittedMixture) -> float:
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
    return tables
