"""The commands of a site, as its data manager and privacy officer run them."""

import json
import re
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import hospital_exports
from consilience.cli.app import app
from consilience.cli.catalogue import CommandFault
from consilience.cli.preview import FIELDS, RULES, fields_of
from consilience.datasets.hospitals import STUDY, hospitals
from consilience.files.site_file import SiteFile
from consilience.kit import site_fit as local
from consilience.kit.combination import simulate_study
from consilience.kit.folder import SiteFolder
from consilience.kit.policy.policy import Policy
from consilience.kit.release import last_fit
from consilience.kit.site_fit import site_file
from consilience.kit.study import Study

RUNNER = CliRunner()
TABLES = hospitals()


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a study and the table of one hospital, in which commands run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    pq.write_table(TABLES["ash"], tmp_path / "ash.parquet")
    return tmp_path


def run(*arguments: object, answer: str | None = None):
    return RUNNER.invoke(app, [str(each) for each in arguments], input=answer)


def done(*arguments: object, answer: str | None = None):
    found = run(*arguments, answer=answer)
    assert found.exit_code == 0, found.output + repr(found.exception)
    return found


def code(found) -> str:
    return found.exception.problem.value.code


def fitted(*options: object) -> None:
    done("site", "init", "ash", *options)
    done("site", "fit", "ash", "study.toml", "ash.parquet")


def test_an_export_is_mapped_by_options_or_by_answers_and_read_through_the_mapping(place):
    (place / "stays.toml").write_text(hospital_exports.STUDY)
    path = hospital_exports.export("adlershof", place)
    done("site", "init", "adlershof")
    german = ("--column", "los_days=Liegedauer", "--column", "age=Alter", "--missing", "k.A.")
    levels = ("--level", "sex.männlich=male", "--level", "sex.weiblich=female")
    left = run("site", "map", "adlershof", "stays.toml", path, *german, *levels, "--no-input")
    assert code(left) == "CSL-111"
    assert "not found: admission; say which column it is with --column admission=..." in left.stdout
    answers = "1\n1\n1\n2\n1\n"  # three columns, and the levels of two words
    by_hand = done("site", "map", "adlershof", "stays.toml", path, *german, *levels, "--overwrite", answer=answers)
    assert "Which level of admission is 'Notfall'?\n  1  planned\n  2  emergency\n" in by_hand.stderr
    assert "sex from 'Geschlecht', with 2 values recoded" in by_hand.stdout
    assert "admission from 'Aufnahmeart', with 2 values recoded" in by_hand.stdout
    assert "747 of 820 rows can be used" in done("site", "check", "adlershof", "stays.toml", path).stdout
    assert code(run("site", "check", "adlershof", "study.toml", path)) == "CSL-110"  # it is for another study
    (place / "adlershof" / "mapping.toml").write_text("columns = 3")
    assert code(run("site", "check", "adlershof", "stays.toml", path)) == "CSL-118"


def test_a_draft_names_the_sheets_that_it_did_not_read(place):
    (place / "stays.toml").write_text(hospital_exports.STUDY)
    path = hospital_exports.export("boston", place)
    done("site", "init", "boston")
    said = " ".join(run("site", "map", "boston", "stays.toml", path, "--no-input").stderr.split())
    assert "boston.xlsx: sheet 'Notes' is read; --sheet reads another: 'Stays'" in said
    said = run("site", "map", "boston", "stays.toml", path, "--sheet", "Stays", "--no-input", "--overwrite").stderr
    assert "--sheet reads another" not in said


def test_the_way_of_a_site_from_its_folder_to_the_file(place):
    fitted()
    shown = done("site", "preview", "ash").stdout
    file = done("site", "release", "ash", "-o", "ash.json", "--by", "A. Person", answer="y\n")
    assert shown.strip() in file.stderr  # the person who is asked has seen what leaves
    sent = SiteFile.from_text((place / "ash.json").read_text())
    assert sent.site == "ash"
    assert all(rule["result"] == "kept" for rule in sent.evidence["rules"])
    kinds = [entry["kind"] for entry in json.loads(done("site", "log", "show", "ash", "--json").stdout)["entries"]]
    assert kinds == ["init", "fit", "preview", "release"]
    assert "A. Person" in done("site", "log", "show", "ash").stdout
    assert "A. Person" not in (place / "ash.json").read_text()
    assert "whole" in done("site", "log", "verify", "ash", "ash.json").stdout


@pytest.mark.slow
def test_the_flow_is_shown_in_full_and_the_file_says_it_in_steps_with_wave_and_data_cut(place):
    text = STUDY.replace("[model]", 'cohort = [{ column = "age", at_least = 45 }]\n[model]')
    (place / "study.toml").write_text(text)
    done("site", "init", "ash")
    flow = ["900 rows were read.", "271 are not in the cohort: age at least 45 does not hold.", "629 are used."]
    checked = done("site", "check", "ash", "study.toml", "ash.parquet")
    assert "\n".join(flow) in checked.stdout
    assert json.loads(done("site", "check", "ash", "study.toml", "ash.parquet", "--json").stdout)["flow"] == flow
    refused = run("site", "fit", "ash", "study.toml", "ash.parquet", "--data-cut", "30.6.2026")
    assert refused.exit_code == 2
    done("site", "fit", "ash", "study.toml", "ash.parquet", "--wave", "2026", "--data-cut", "2026-06-30")
    shown = done("site", "preview", "ash").stdout
    assert "\n".join(flow) in shown
    assert "the day until which the data reach" in shown
    logged = done("site", "log", "show", "ash").stdout
    assert "data_cut 2026-06-30" in logged
    assert "wave 2026" in logged
    done("site", "release", "ash", "-o", "ash.json", answer="y\n")
    sent = json.loads((place / "ash.json").read_text())["content"]
    assert (sent["wave"], sent["data_cut"]) == ("2026", "2026-06-30")
    assert sent["flow"]["excluded"][0]["of"] == "age at least 45"
    assert sent["flow"]["excluded"][0]["rows"] in (250, 300)
    assert "271" not in json.dumps(sent["flow"])
    assert "- age at least 45" in done("site", "annex", "ash", "study.toml").stdout


def test_a_fit_examines_its_table_once_and_builds_its_question_once(place, monkeypatch):
    done("site", "init", "ash")
    calls = []
    for function in (local.examine_table, local.task_of):
        counted = partial(lambda function, *given: [calls.append(function.__name__), function(*given)][1], function)
        monkeypatch.setattr(local, function.__name__, counted)
    done("site", "fit", "ash", "study.toml", "ash.parquet")
    assert calls == ["examine_table", "task_of"]


def test_a_fit_to_a_table_that_does_not_fit_the_study_points_to_the_check(place):
    done("site", "init", "ash")
    pq.write_table(TABLES["ash"].drop_columns("age"), "other.parquet")
    found = run("site", "fit", "ash", "study.toml", "other.parquet")
    assert found.exception.problem is CommandFault.MISFIT
    assert "site check ash study.toml other.parquet" in str(found.exception)


def test_a_preview_names_every_field_and_every_rule(place):
    fitted()
    report = last_fit(SiteFolder.open(place / "ash")).report
    shown = done("site", "preview", "ash").stdout
    assert {name for name, _, _ in fields_of(report.file)} <= set(FIELDS)
    for name, meaning, _ in fields_of(report.file):
        assert name in shown
        assert meaning in shown
    assert {check.rule for check in report.checks} <= set(RULES)
    assert shown.count("\n  kept ") == len(report.checks)
    assert "Largest leverage" in shown
    assert re.search(r"in about \d\d % of all cases", shown)
    found = json.loads(done("site", "preview", "ash", "--json").stdout)
    assert 0.5 < found["membership_auc"] < 0.7
    assert 0 < found["leverage"] < 0.2


def test_nothing_leaves_without_a_yes(place):
    fitted()
    refused = run("site", "release", "ash", "-o", "ash.json", answer="n\n")
    assert code(refused) == "CSL-116"
    assert not (place / "ash.json").exists()
    assert [entry.kind for entry in SiteFolder.open(place / "ash").entries] == ["init", "fit", "decline"]
    assert code(run("site", "release", "ash", "-o", "ash.json", "--no-input")) == "CSL-115"  # the policy wants a person


def test_a_program_may_release_where_the_policy_allows_it(place):
    fitted("--profile", "research")
    done("site", "release", "ash", "-o", "ash.json", "--no-input")
    assert (place / "ash.json").exists()


def test_the_same_rows_and_study_are_the_same_bytes(place):
    fitted()
    done("site", "release", "ash", "-o", "one.json", answer="y\n")
    done("site", "release", "ash", "-o", "two.json", "--no-input")  # it left before
    again = done("site", "fit", "ash", "study.toml", "ash.parquet")
    assert "released for this study before" in again.stderr
    done("site", "release", "ash", "-o", "three.json", "--no-input")
    assert len({(place / f"{name}.json").read_bytes() for name in ("one", "two", "three")}) == 1


def test_one_row_less_is_refused_and_recorded(place):
    fitted()
    done("site", "release", "ash", "-o", "ash.json", answer="y\n")
    pq.write_table(TABLES["ash"].slice(1), place / "fewer.parquet")
    refused = run("site", "fit", "ash", "study.toml", "fewer.parquet")
    assert code(refused) == "CSL-115"
    assert SiteFolder.open(place / "ash").entries[-1].kind == "refusal"
    for command in (("preview",), ("release", "-o", "two.json")):  # nobody takes the fit before it for this one
        later = run("site", command[0], "ash", *command[1:], answer="y\n")
        assert code(later) == "CSL-115"
        assert "a later fit was refused" in str(later.exception)


@pytest.mark.slow
def test_a_recoded_table_needs_the_statement_that_these_are_other_people(place):
    fitted()
    done("site", "release", "ash", "-o", "ash.json", answer="y\n")
    older = TABLES["ash"].set_column(1, "age", pc.add(TABLES["ash"]["age"], 0.25)).slice(1)
    pq.write_table(older, place / "recoded.parquet")
    refused = run("site", "fit", "ash", "study.toml", "recoded.parquet")
    assert code(refused) == "CSL-115"
    assert "--other-people" in str(refused.exception)
    done("site", "fit", "ash", "study.toml", "recoded.parquet", "--other-people", "patients of the year before")
    assert "NOTE: stated: the rows are those of other people" in done("site", "preview", "ash").stdout
    assert "patients of the year before" in done("site", "log", "show", "ash").stdout


def test_a_file_that_the_ledger_does_not_name_is_found(place):
    fitted()
    done("site", "release", "ash", "-o", "ash.json", "--by", "A. Person", answer="y\n")
    assert "released in entry 3" in done("site", "log", "verify", "ash", "ash.json").stdout
    changed = json.loads((place / "ash.json").read_text())
    changed["envelope"]["time"] = "2020-01-01T00:00:00Z"
    (place / "changed.json").write_text(json.dumps(changed))
    found = run("site", "log", "verify", "ash", "changed.json")
    assert code(found) == "CSL-117"
    assert "NOT in this ledger" in found.stdout
    path = place / "ash" / "ledger.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))  # the release is cut off
    assert code(run("site", "log", "verify", "ash", "ash.json")) == "CSL-117"


def test_every_number_can_be_seen_before_it_leaves(place):
    fitted()
    shown = done("site", "preview", "ash", "--numbers").stdout
    report = last_fit(SiteFolder.open(place / "ash")).report
    for name, _, value in fields_of(report.file):
        assert f"{name} = {json.dumps(value)}" in shown


def test_nothing_is_approved_that_cannot_be_written(place):
    fitted()
    assert code(run("site", "release", "ash", "-o", "nowhere/ash.json", answer="y\n")) == "CSL-140"
    assert [entry.kind for entry in SiteFolder.open(place / "ash").entries] == ["init", "fit"]


def test_a_site_without_a_file_and_a_single_file_are_said(place):
    sent = site_file(Study.from_text(STUDY), "ash", TABLES["ash"])
    (place / "ash.json").write_text(sent.to_text())
    sites = "".join(f'[[sites]]\nname = "{name}"\n' for name in ("ash", "elm"))
    (place / "roster.toml").write_text(f'format = "consilience-roster"\nversion = 1\n{sites}')
    said = done("combine", "study.toml", "ash.json", "--roster", "roster.toml").stderr
    assert "without a file: elm" in said
    assert "one file" in said
    (place / "bad.json").write_text("{}")
    assert "bad.json" in str(run("combine", "study.toml", "bad.json", "-o", "two.json").exception)


def test_a_draft_has_no_value_of_few_rows(place):
    rows = 60
    table = pa.table(
        {
            "days": [float(i % 7) for i in range(rows)],
            "ward": [*(["a", "b"] * 29), "Hans Meier", "Hans Meier"],
            "surname": [f"name {i}" for i in range(rows)],
            "number": list(range(90_000, 90_000 + rows)),
            "born": pa.array(list(range(rows)), pa.date32()),
            "weight": [f"{i},5" for i in range(rows)],
            "age": [20.0 + i for i in range(rows)],
        }
    )
    pq.write_table(table, place / "table.parquet")
    said = done("init", "draft.toml", "--from", "table.parquet", "--response", "days").stderr
    study = Study.read(place / "draft.toml")
    assert [column.name for column in study.columns] == ["days", "ward", "age"]
    assert study.columns[1].levels == ["a", "b"]
    text = (place / "draft.toml").read_text()
    for value in ("Meier", "name 1", "90001", ",5"):
        assert value not in text
        assert value not in said
    for name in ("ward", "surname", "number", "born", "weight"):
        assert f"column {name}" in said
    assert "decimal commas" in said


def test_a_policy_changed_after_the_fit_needs_another_fit(place):
    fitted()
    path = place / "ash" / "policy.toml"
    path.write_text(path.read_text().replace("min_rows = 50", "min_rows = 60"))
    refused = run("site", "release", "ash", "-o", "ash.json", answer="y\n")
    assert code(refused) == "CSL-115"
    assert "policy was changed" in str(refused.exception)


@pytest.mark.slow
def test_a_fit_made_before_another_release_needs_another_fit(place):
    fitted()
    (place / "other.toml").write_text(STUDY.replace('name = "hospital-stay"', 'name = "other"'))
    done("site", "fit", "ash", "other.toml", "ash.parquet")
    folder = SiteFolder.open(place / "ash")
    done("site", "release", "ash", "-o", "other.json", answer="y\n")
    first = folder.entries[1]
    assert first.kind == "fit"
    done("site", "fit", "ash", "study.toml", "ash.parquet")  # a new fit is compared with the release
    done("site", "release", "ash", "-o", "ash.json", answer="y\n")


def test_check_says_what_the_policy_will_refuse(place):
    few = TABLES["ash"].slice(0, 230)
    pq.write_table(few, place / "few.parquet")
    assert "fits: 230 of 230 rows" in done("site", "check", "ash", "study.toml", "few.parquet").stdout  # no policy yet
    done("site", "init", "ash", "--in", "kept")
    policy = place / "kept" / "ash" / "policy.toml"
    policy.write_text(policy.read_text().replace("min_rows = 50", "min_rows = 500"))
    found = run("site", "check", "ash", "study.toml", "few.parquet", "--in", "kept")
    assert code(found) == "CSL-115"
    assert "the limit of min_rows is 500. To do: use more rows" in found.exception.said
    assert "fits: 230 of 230 rows" in found.stdout
    assert "fits: 900 of 900 rows" in done("site", "check", "ash", "study.toml", "ash.parquet", "--in", "kept").stdout


def test_too_few_rows_are_refused_with_what_to_do(place):
    pq.write_table(TABLES["ash"].slice(0, 60), place / "ash.parquet")
    (place / "study.toml").write_text(STUDY.replace("rows = 200", "rows = 20"))
    done("site", "init", "ash")
    path = place / "ash" / "policy.toml"
    path.write_text(path.read_text().replace("min_rows = 50", "min_rows = 100"))
    refused = run("site", "fit", "ash", "study.toml", "ash.parquet")
    assert code(refused) == "CSL-115"
    assert "use more rows" in str(refused.exception)


def test_signatures_are_checked_against_the_roster(place):
    pytest.importorskip("cryptography")
    fitted()
    done("site", "release", "ash", "-o", "ash.json", answer="y\n")
    key = json.loads(done("site", "key", "ash", "--json").stdout)["key"]
    roster = f'format = "consilience-roster"\nversion = 1\n[[sites]]\nname = "ash"\nkey = "{key}"\n'
    (place / "roster.toml").write_text(roster)
    assert "signed by 'ash'" in done("combine", "study.toml", "ash.json", "--roster", "roster.toml").stderr
    stripped = json.loads((place / "ash.json").read_text())
    stripped["envelope"]["signature"] = None
    (place / "stripped.json").write_text(json.dumps(stripped))
    refused = run("combine", "study.toml", "stripped.json", "--roster", "roster.toml", "-o", "two.json")
    assert code(refused) == "CSL-122"
    (place / "roster.toml").write_text(roster.replace('"ash"', '"elm"'))
    assert code(run("combine", "study.toml", "ash.json", "--roster", "roster.toml", "-o", "two.json")) == "CSL-122"


def test_after_a_lost_key_the_content_that_left_is_signed_with_the_new_one(place):
    pytest.importorskip("cryptography")
    fitted()
    done("site", "release", "ash", "-o", "before.json", "--by", "A. Person", answer="y\n")
    (place / "ash" / "identity.pem").unlink()
    done("site", "key", "ash", "--new")
    key = json.loads(done("site", "key", "ash", "--json").stdout)["key"]
    roster = f'format = "consilience-roster"\nversion = 1\n[[sites]]\nname = "ash"\nkey = "{key}"\n'
    (place / "roster.toml").write_text(roster)
    assert code(run("combine", "study.toml", "before.json", "--roster", "roster.toml", "-o", "model.json")) == "CSL-122"
    said = done("site", "release", "ash", "-o", "after.json").stderr
    assert f"what entry 3 of the ledger released, signed with the new key {key}" in " ".join(said.split())
    before, after = (SiteFile.from_text((place / f"{name}.json").read_text()) for name in ("before", "after"))
    assert before.hash == after.hash
    assert "signed by 'ash'" in done("combine", "study.toml", "after.json", "--roster", "roster.toml").stderr
    done("site", "release", "ash", "-o", "again.json")
    assert (place / "again.json").read_bytes() == (place / "after.json").read_bytes()
    assert [entry.kind for entry in SiteFolder.open(place / "ash").entries][2:] == ["release", "key", "signature"]
    verified = done("site", "log", "verify", "ash", "before.json", "after.json").stdout
    assert "before.json: released in entry 3" in verified
    assert "after.json: signed with a new key in entry 5" in verified
    assert "file of entry 3, signed with a new key" in done("site", "annex", "ash", "study.toml").stdout
    done("site", "open", "ash")
    assert "file of entry 3, signed with a new key" in (place / "ash" / "page.html").read_text()


def test_a_study_that_requires_signatures_refuses_unsigned_files(place):
    (place / "study.toml").write_text(STUDY.replace("[minimum]\n", "[minimum]\nrequire_signatures = true\n"))
    sent = site_file(Study.read(place / "study.toml"), "ash", TABLES["ash"])
    (place / "ash.json").write_text(sent.to_text())
    assert code(run("combine", "study.toml", "ash.json")) == "CSL-122"


def test_a_tampered_ledger_is_named(place):
    fitted()
    path = place / "ash" / "ledger.jsonl"
    path.write_text(path.read_text().replace('"rows":900', '"rows":901'))
    found = run("site", "log", "verify", "ash")
    assert code(found) == "CSL-117"
    assert "line 2" in found.stdout
    assert code(run("site", "preview", "ash")) == "CSL-112"


def test_the_beginning_of_a_line_after_a_crash_is_dropped(place):
    done("site", "init", "ash")
    path = place / "ash" / "ledger.jsonl"
    path.write_bytes(path.read_bytes() + b'{"version":1')
    assert code(run("site", "log", "verify", "ash")) == "CSL-117"
    done("site", "log", "repair", "ash")
    done("site", "log", "verify", "ash")


@pytest.mark.parametrize(
    "command",
    [
        ("fit", "ash", "study.toml", "ash.parquet"),
        ("preview", "ash"),
        ("release", "ash", "-o", "x.json"),
        ("log", "show", "ash"),
        ("log", "verify", "ash"),
        ("annex", "ash", "study.toml"),
    ],
)
def test_a_site_without_a_folder_is_told_how_to_make_one(place, command):
    found = run("site", *command)
    assert code(found) == "CSL-112"
    assert "site init" in found.exception.problem.value.remedy


@pytest.mark.slow
def test_files_of_sites_and_a_simulation_under_the_same_policy_are_one_model(place):
    study, paths = Study.read(place / "study.toml"), []
    for name, table in TABLES.items():
        pq.write_table(table, place / f"{name}.parquet")
        done("site", "init", name)
        done("site", "fit", name, "study.toml", f"{name}.parquet")
        done("site", "release", name, "-o", f"{name}.json", answer="y\n")
        paths.append(f"{name}.json")
    done("combine", "study.toml", *paths, "-o", "model.json")
    by_files = json.loads(done("show", "model.json", "--json").stdout)
    model = simulate_study(study, TABLES, Policy.of_profile("hospital")).best.model
    model.save(place / "simulated.json")
    assert by_files == json.loads(done("show", "simulated.json", "--json").stdout)
