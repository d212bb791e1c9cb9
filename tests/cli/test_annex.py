"""The annex that a privacy officer signs, held against the study, its method, and what was measured."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from consilience.cli.annex import ATTACKS, EPSILON, annex_of, right_guesses
from consilience.cli.answer_fields import KINDS, fields_of_answer, fields_of_kind
from consilience.cli.preview import ENVELOPE, FIELDS, HEAD, LETTER, SEALED
from consilience.fit import Expect, Specification
from consilience.kit.folder import SiteFolder
from consilience.kit.policy.policy import Policy
from consilience.kit.release import last_fit
from consilience.kit.site_fit import fit_at_site
from consilience.kit.study import Study
from consilience.kit.study_model import METHODS, method_of, task_of
from consilience.messages import (
    Clients,
    FitSite,
    LogLikelihood,
    Pairs,
    ProposeStart,
    Sample,
    ScoreProducts,
    ScoreSums,
    Several,
    Summarise,
)
from consilience.messages.table import table
from consilience.model import Design, Rows
from consilience.model.rows import Groups
from consilience.site import Site
from consilience.site.answer import answer
from mail_office import TABLES, study_with, with_noise

ROUND_TESTS = Path(__file__).parents[1] / "disclosure" / "test_rounds.py"
GOVERNANCE = '\n[governance]\npurpose = "to learn <how> long patients stay"\ncontact = "Dr. A | Clinic_1"\n'


@pytest.fixture
def folder(tmp_path: Path) -> SiteFolder:
    """The folder of a new site."""
    return SiteFolder.init("ash", Policy.of_profile("hospital").to_text(), tmp_path)


def rounds_of(name: str) -> Study:
    """A study in rounds by a method of this name."""
    return study_with(f'name = "{name}"', 'clients = "clinic"' if METHODS[name].by_client else "")


@pytest.mark.parametrize("name", sorted(METHODS))
def test_the_annex_of_rounds_lists_what_the_method_asks_and_every_part_of_the_answers(
    folder: SiteFolder, name: str
) -> None:
    study = rounds_of(name)
    said = annex_of(folder, study).markdown
    assert "One JSON file" not in said
    assert f"In each round of {name} one JSON file" in said
    kinds = method_of(study).question_kinds(task_of(study))
    for each in kinds:
        assert f"| {KINDS[each.question.__name__]} | {each} |" in said
        for part, meaning in fields_of_kind(each.question).items():
            assert f"| {part} | {meaning} |" in said
    for part, meaning in [*HEAD.items(), *LETTER.items(), *ENVELOPE.items(), *SEALED.items()]:
        assert f"| {part} | {meaning} |" in said
    asked = {each.question.__name__ for each in kinds}
    for kind, attacks in ATTACKS.items():
        assert all((attack in said) == (kind in asked) for attack, _, _ in attacks)
    assert "could compute single rows" in said


def test_the_annex_of_a_file_lists_its_parts_its_limits_and_the_attack_that_was_measured(folder: SiteFolder) -> None:
    study = study_with()
    before = annex_of(folder, study).markdown
    assert "One JSON file" in before
    assert all(f"| {part} | " in before for part in {**HEAD, **FIELDS, **ENVELOPE})
    assert "| min_rows | 200 |" in before  # the study's, which is stricter
    assert "fit first" in before
    fit_at_site(folder, study, TABLES["ash"])
    measured = last_fit(folder).report
    after = annex_of(folder, study).markdown
    assert str(measured.membership) in after
    assert f"Largest leverage of a row in an expert: {measured.leverage:.3f}" in after
    assert "fit first" in annex_of(folder, with_governance()).markdown  # the fit is of another study


def with_governance() -> Study:
    return Study.from_text(study_with().to_text() + GOVERNANCE)


def test_the_annex_says_what_the_study_states_about_the_use_of_the_data_and_what_not(folder: SiteFolder) -> None:
    found = annex_of(folder, with_governance())
    assert r"- purpose: to learn \<how\> long patients stay" in found.markdown
    assert r"- contact: Dr. A \| Clinic_1" in found.markdown
    assert "does not state: controller, recipients, retention, legal basis." in found.markdown
    assert "<dt>purpose</dt><dd>to learn &lt;how&gt; long patients stay</dd>" in found.html
    assert "<script" not in found.html
    assert "default-src &#x27;none&#x27;" in found.html
    assert 'class="verdict' not in found.html


def test_the_annex_says_who_approves(folder: SiteFolder) -> None:
    assert "also if they fitted" in annex_of(folder, study_with()).markdown
    text = folder.policy.replace("approvers = []", 'approvers = ["one", "two"]').replace(
        "approvals = 1", "approvals = 2"
    )
    (folder.path / "policy.toml").write_text(text)
    assert "2 of one, two must approve, and never the account that fitted" in annex_of(folder, study_with()).markdown


@pytest.mark.parametrize("study", [study_with(), study_with('name = "OneShot", refine = 1'), with_noise()])
def test_the_page_and_the_text_have_the_same_words(folder: SiteFolder, study: Study) -> None:
    found = annex_of(folder, study)
    plain = re.sub(r"<style>.*?</style>|<nav.*?</nav>|<[^>]*>", " ", found.html, flags=re.DOTALL)
    words = set(re.findall(r"\w+", plain))
    assert set(re.findall(r"\w+", found.markdown)) <= words


def test_numbers_on_attacks_are_those_that_the_tests_of_the_attacks_ask_for() -> None:
    cases = ROUND_TESTS.read_text()
    for attacks in ATTACKS.values():
        for _, case, error in attacks:
            stated = re.search(rf'\("{case}", .*, (1e-\d+)\),', cases)
            assert stated is not None, case
            assert float(stated[1]) == error, case


def test_right_guesses_are_those_of_the_page_on_epsilon(folder: SiteFolder) -> None:
    for epsilon in (1, 3, 8):
        assert re.search(rf"{right_guesses(epsilon, 1e-6):.0f} (are right )?at epsilon {epsilon}\b", EPSILON)
    assert "at most 62 are right after all answers of one run" in annex_of(folder, with_noise()).markdown
    assert "at most 54 are right after all" in annex_of(folder, with_noise("epsilon = 1.0")).markdown
    assert "at most 77 after all that the policy ever allows" in annex_of(folder, with_noise()).markdown


def rows(*, of_clients: bool = False) -> Site:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = np.where(X[:, 0] > 0, 3 + X[:, 1], -3 - X[:, 1])[:, None] + rng.normal(size=(400, 1))
    return Site("north", Rows(X, y, groups=Groups.of(np.arange(400) // 10) if of_clients else None))


def test_every_part_of_an_answer_has_a_meaning_and_every_meaning_a_part() -> None:
    site, specification = rows(), Specification(K=2)
    fit = FitSite(specification, (2,), 0, columns=(2, 1))
    mixture, summary = answer(fit, site).model.mixture, answer(Summarise(2, 1), site)
    informed, second = Expect(mixture, information=True), answer(Expect(mixture), site).experts.second
    several = Several((Summarise(2, 1), LogLikelihood(mixture), informed))
    plain = (
        *several.questions,
        fit,
        ProposeStart(specification, summary, 0, 2),
        ScoreSums(mixture),
        ScoreProducts(mixture, second),
        Sample(informed, 0.5, 0),
    )
    clients = (Pairs(Design.raw(2), np.zeros(3)), Clients(Design.raw(2), np.zeros(3)))
    for where, questions in ((site, plain), (rows(of_clients=True), clients)):
        for question in questions:
            parts = {name for _, name, _, _ in fields_of_answer(answer(question, where))}
            assert parts == set(fields_of_kind(type(question))), question
    places = [place for place, *_ in fields_of_answer(answer(several, site))]
    assert list(dict.fromkeys(places)) == ["1. ", "2. ", "3. "]


def test_every_question_that_a_study_can_lead_to_has_a_name() -> None:
    library = {kind.__name__ for kind in table() if kind.__module__ == "consilience.messages.questions"}
    assert library - {"Identify"} <= set(KINDS)
