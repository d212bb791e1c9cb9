"""Write a file of each kind as a release writes it: ``python tests/release_files.py FOLDER``, once per release.

``tests/files/test_release_files.py`` reads what is stored in ``tests/files/release-*``. Two sites take part in a study
by one file each, in one under contract and in one with noise; all is done by the commands that people use. Private
keys are left out, but for that of the coordinator, with which sealed answers can be opened: it is known to all.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import warnings
from base64 import b64decode, b64encode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pcsv
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from typer.testing import CliRunner

import consilience
from consilience import MixtureOfExpertsRegressor
from consilience._version import __version__
from consilience.cli.app import app
from consilience.datasets.hospitals import STUDY, hospitals
from consilience.files.noisy_file import NoisyFile, read_sent_file
from consilience.kit.enrolment import Enrolment
from consilience.kit.folder import SiteIdentity
from consilience.kit.ledger import verify
from consilience.kit.letters import QuestionLetter, RunFile
from consilience.kit.mail_folder import is_over
from consilience.kit.mail_run import check_signed
from consilience.kit.mandate import Mandate
from consilience.kit.mapping import TableMapping
from consilience.kit.notices import Retraction, read_notice
from consilience.kit.policy.policy import Policy, RunRules
from consilience.kit.release import FitReport
from consilience.kit.row_tags import RowTags
from consilience.kit.sealed_answers import SealedAnswer, open_answer
from consilience.kit.stored_evidence import StoredEvidence
from consilience.kit.study import Study
from consilience.kit.study_notes import StudyNotes
from consilience.kit.table_letter import TableLetter
from consilience.messages.table import decode_question
from saved_models import CASES, N, covariates, fitted, frame, regression, response

SITES = ("ash", "birch")
MODELS = ("binomial", "gamma", "gaussian", "hurdle_poisson", "negative_binomial", "poisson", "student",
          "zero_inflated_poisson", "classes-of-text", "categories-reference", "grouped", "mixture-full")  # fmt: skip
"""Cases of ``saved_models``; families without a case of another name."""
STATED = """cohort = [{ column = "age", at_least = 18, below = 100 }]
[governance]
purpose = "How long patients stay"
controller = "each hospital for its patients"
contact = "study@example.org"
recipients = "the coordinator of the study"
retention = "the files are deleted a year after publication"
legal_basis = "approval 2026/17 of the ethics board"
[model]
formula = "log_days ~ age + spline(severity, df=2) + sex * admission | age + severity"
knots = { "spline(severity, df=2)" = [1, 4, 8] }
experts = [2]
"""
MODEL = STUDY[STUDY.index("[model]") : STUDY.index("[minimum]")]
ONE_FILE = STUDY.replace(MODEL, STATED).replace("centre = 4\nscale = 2\n", "")
CONTRACT = STUDY.replace("[model]", 'trust = "coordinator"\nmethod = { name = "OneShot", refine = 0 }\n[model]')
NOISE = """trust = "noise"
method = { name = "PrivateScoring" }
privacy = { epsilon = 3.0, exchange = "file", start = "START" }
[model]"""


def command(text: str, answer: str | None = None, *, ends: int = 0) -> str:
    """Give a command, and return what it prints."""
    found = CliRunner().invoke(app, text.split(), input=answer)
    assert found.exit_code in (0, ends), f"{text}: {found.output} {found.exception!r}"
    return str(found.stdout)


# ---------------------------------------------------------------- models


def formula_model() -> Any:
    data = frame().assign(y=response())
    return MixtureOfExpertsRegressor.from_formula("y ~ age * new + dose | age", data, n_experts=2, random_state=0)


def shared_model() -> Any:
    model, X, y, _ = regression(response(), frame()[["age", "dose"]], shared=["dose"])
    return model.fit(X, y)


def model_with_size_column() -> Any:
    data = frame()[["age", "dose"]].assign(years=np.linspace(0.5, 2, N))
    y = np.random.default_rng(5).poisson(np.exp(0.5 * covariates()[:, 0]) * data["years"]).astype(float)
    return MixtureOfExpertsRegressor(2, family="poisson", random_state=0).fit(data, y, exposure="years")


OTHERS: dict[str, Callable[[], Any]] = {
    "formula": formula_model,
    "shared": shared_model,
    "size-column": model_with_size_column,
}


def write_models(folder: Path) -> None:
    """Write a model of each family and with each entry that a file may have, and what they predict."""
    folder.mkdir()
    expected = {}
    for name in [*MODELS, *OTHERS]:
        model = fitted(name)[0] if name in CASES else OTHERS[name]()
        model.save(folder / f"{name}.json")
        expected[name] = predictions(name, model)
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


def predictions(name: str, model: Any) -> dict[str, Any]:
    """What a model says of five rows, and its standard errors."""
    X = rows(name, model)
    found = {"gate": model.predict_gate(X), "predict": model.predict(X), "std_error": model.to_frame()["std_error"]}
    return {name: np.asarray(values).tolist() for name, values in found.items()}


def rows(name: str, model: Any) -> Any:
    """Five rows with the columns that a model reads."""
    if not hasattr(model, "feature_names_in_"):
        return np.linspace(-1, 1, 5 * model.n_features_in_).reshape(5, -1)
    return frame().assign(years=np.linspace(0.5, 2, N)).head(5)[READ.get(name, list(model.feature_names_in_))]


READ = {"formula": ["age", "new", "dose"], "size-column": ["age", "dose", "years"]}
"""Columns of models that read others than their covariates."""


# ---------------------------------------------------------------- studies


def write_studies() -> str:
    """Carry out three studies in the folder that is current; the private key of their coordinator, in base64."""
    Path("study.toml").write_text(ONE_FILE)
    Path("contract.toml").write_text(CONTRACT)
    roster = 'format = "consilience-roster"\nversion = 1\n'
    for site in SITES:
        roster += f'\n[[sites]]\nname = "{site}"\nkey = "{begin_site(site)}"\n'
    Path("roster.toml").write_text(roster)
    for site in SITES:
        command(f"site check {site} study.toml {site}.csv --share {site}-columns.json", "y\n")
        command(f"site fit {site} study.toml {site}.csv --no-input")
        command(f"site release {site} -o {site}.json --by officer", "y\n")
    command("combine study.toml ash.json birch.json -o model.json --roster roster.toml")
    run_contract()
    one_noisy_file()
    write_notices()
    pem = load_pem_private_key(Path("own/coordinator.pem").read_bytes(), None)
    assert isinstance(pem, Ed25519PrivateKey)
    return b64encode(pem.private_bytes_raw()).decode()


def begin_site(site: str) -> str:
    """Make a site with its export, in which the response has another name; its public key."""
    table = hospitals()[site].slice(0, 400)
    names = ["stay" if name == "log_days" else name for name in table.column_names]
    pcsv.write_csv(table.rename_columns(names), f"{site}.csv")
    command(f"site init {site}")
    policy = Path(site, "policy.toml")
    agreed = policy.read_text().replace('["noise", "limits"]', '["noise", "limits", "coordinator"]')
    policy.write_text(agreed)
    command(f"site map {site} study.toml {site}.csv --column log_days=stay --no-input")
    return command(f"site key {site}").split()[-1]


def run_contract() -> None:
    """Run the study under contract by files."""
    given = "run contract.toml --mailbox mail --own own --roster roster.toml --days 14 -o rounds.json"
    command(given, ends=6)
    while not Path("rounds.json").exists():
        for site in SITES:
            command(f"site answer {site} mail --table {site}.csv", "y\n")
        command(given, ends=6)


def one_noisy_file() -> None:
    """Let a site send the one file of a study with noise."""
    digest = sha256(Path("rounds.json").read_bytes()).hexdigest()
    Path("noise.toml").write_text(STUDY.replace("[model]", NOISE.replace("START", f"sha256:{digest}")))
    command("site fit ash noise.toml ash.csv --start rounds.json --by officer", "y\n")
    command("site release ash -o ash-noise.json --by officer", "y\n")


def write_notices() -> None:
    """Write what people write beside a study: a mandate, an enrolment, a withdrawal, a retraction."""
    coordinator = command("study key own/coordinator.pem").split()[-1]
    command(f"site mandate ash contract.toml --coordinator {coordinator}")
    command("live enrol mail --roster roster.toml --url https://letters.example.org --own own")
    shutil.copy("birch.json", "destroyed.json")  # the command destroys it
    command("study retract destroyed.json --key own/coordinator.pem -o retraction.json", "y\n")
    command("site withdraw birch study.toml --reason moved -o withdrawal.json", "y\n")


# ---------------------------------------------------------------- what is in the files


def read_studies(coordinator: str) -> dict[str, Any]:
    """What the files of the folder that is current say, read by today's library."""
    identity = SiteIdentity(Ed25519PrivateKey.from_private_bytes(b64decode(coordinator)))
    found = {"models": {name: coefficients(Path(name)) for name in ("model.json", "rounds.json")}}
    command("combine study.toml ash.json birch.json -o again.json --roster roster.toml")
    found["combined"] = coefficients(Path("again.json"))
    command("report model.json -o again.html --quiet")
    return {**found, **identities(identity), **letters(identity), **at_the_site()}


def coefficients(path: Path) -> list[Any]:
    return np.asarray(consilience.load(path).mixture_.experts.B).tolist()


def identities(identity: SiteIdentity) -> dict[str, Any]:
    """Identities of what people wrote, and what notices say."""
    withdrawal, retraction = (read_notice(Path(f"{name}.json").read_text()) for name in ("withdrawal", "retraction"))
    assert isinstance(retraction, Retraction)
    retraction.check_signed(identity.public_key)
    return {
        "studies": [Study.read(f"{name}.toml").identity for name in ("study", "contract", "noise")],
        "policy": Policy.read("ash/policy.toml").identity,
        "mandate": Mandate.read(Path("ash/mandate.toml")).identity,
        "mapping": TableMapping.read("ash/mapping.toml").sentences,
        "withdrawal": str(withdrawal),
        "retraction": list(map(list, retraction.files)),
        "enrolment": Enrolment.read(Path("own/enrol/ash.json")).address,
        "evidence": StoredEvidence.from_text(Path("model.evidence.json").read_text()).model,
    }


def letters(identity: SiteIdentity) -> dict[str, Any]:
    """The run by files, its question, the sealed answers, the letters on columns and the file with noise."""
    run, mail = RunFile.read(Path("mail")), Path("mail")
    question = QuestionLetter.from_text((mail / "round-01.question.json").read_text())
    check_signed(RunRules(signed_by=identity.public_key, allow_unsigned=False), run, question)
    sealed = [SealedAnswer.from_text((mail / f"round-01.answer.{site}.json").read_text()) for site in SITES]
    noisy = read_sent_file(Path("ash-noise.json").read_text())
    assert isinstance(noisy, NoisyFile)
    return {
        "run": run.identity,
        "is over": is_over(mail, run),
        "question": type(decode_question(question.question)).__name__,
        "answers": [sha256(open_answer(each, identity).answer).hexdigest() for each in sealed],
        "columns": [TableLetter.from_text(Path(f"{site}-columns.json").read_text()).rows for site in SITES],
        "noise": [noisy.hash, list(noisy.steps.shares)],
    }


def at_the_site() -> dict[str, Any]:
    """What stays in the folder of a site: its ledger, tags of rows, report on a fit, notes on a study."""
    ledger = verify(Path("ash/ledger.jsonl"))
    assert ledger.is_whole, ledger
    fits, notes = ([path.read_text() for path in sorted(Path("ash", name).iterdir())] for name in ("fits", "studies"))
    return {
        "ledger": [ledger.head, [entry.kind for entry in ledger.entries]],
        "tags": sorted([RowTags.read(path).n, RowTags.read(path).hash] for path in Path("ash/tags").iterdir()),
        "fits": [FitReport.from_text(text).file.hash for text in fits],
        "notes": [Study.from_text(StudyNotes.model_validate_json(text).study).identity for text in notes],
    }


# ---------------------------------------------------------------- writing


def write_release(folder: Path) -> None:
    """Write the files of this version; tables and secrets of sites are left out."""
    write_models(folder / "models")
    kit = folder / "kit"
    kit.mkdir()
    with contextlib.chdir(kit):
        coordinator = write_studies()
        for name in LEFT_OUT:
            for path in sorted(Path().rglob(name)):
                path.unlink()
        shutil.rmtree("birch")
        found = read_studies(coordinator)
        for path in sorted(Path().glob("again.*")):
            path.unlink()
    (folder / "expected.json").write_text(
        json.dumps({"library": __version__, "coordinator": coordinator, "found": found}, indent=1) + "\n"
    )


LEFT_OUT = ("*.csv", "*.pem", "*.key", "*.html", "*.lock", "run.journal*", "*.map")

if __name__ == "__main__":
    warnings.simplefilter("ignore")  # small fits: not what this is about
    goal = Path(sys.argv[1]).resolve()
    goal.mkdir(parents=True)
    write_release(goal)
