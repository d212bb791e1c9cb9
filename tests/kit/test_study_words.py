"""Words of a study change nothing but what people read; what they agree to is part of the study."""

from __future__ import annotations

import pytest

from consilience.datasets.hospitals import STUDY
from consilience.errors import InvalidInputError
from consilience.kit.study import Study
from consilience.kit.study_words import governance_of, words_of

BARE = STUDY[: STUDY.index("# How people read the result")]
BEFORE = "sha256:7235518fe5f08bad8159633c98ea6ffedac7f270cc12329d62862aeb8512c7b3"
"""Identity of the study of the demonstration before studies had words."""


def test_words_are_outside_of_the_identity() -> None:
    assert Study.from_text(BARE).identity == Study.from_text(STUDY).identity == BEFORE
    assert Study.from_text(STUDY).words is not None


def test_what_people_agree_to_is_part_of_the_identity() -> None:
    stated = Study.from_text(BARE + '[governance]\npurpose = "Research on stays"\nlegal_basis = "consent"\n')
    other = Study.from_text(BARE + '[governance]\npurpose = "Marketing"\nlegal_basis = "consent"\n')
    assert len({stated.identity, other.identity, BEFORE}) == 3
    assert governance_of(stated)["purpose"] == "Research on stays"
    assert governance_of(stated)["retention"] == ""


def test_a_study_with_words_is_written_and_read_again() -> None:
    typical = '[words]\ntypical = [{ age = 40, severity = 2 }, { age = 80, admission = "emergency" }]\n'
    for text in (STUDY, BARE + typical):
        study = Study.from_text(text)
        assert Study.from_text(study.to_text()) == study


def test_what_is_not_said_follows_from_the_columns() -> None:
    words = words_of(Study.from_text(BARE))
    assert words.title == "Length of stay of two kinds of patients (simulated)"
    assert (words.response.label, words.rows) == ("log_days", ("row", "rows"))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("[words.columns.colour]\nper = 2", "there is no covariate 'colour'"),
        ("[words.columns.age]\nper = 0", "words.columns.age.per"),
        ('[words.columns.age]\nper = "doubling"', 'is for a column with transform = "log"'),
        ("[words.columns.age]\nper = 10\ncompare = [40, 80]", "state one of them"),
        ("[words.columns.age]\ncompare = [80, 40]", "put the lower value first"),
        ("[words.columns.age]\ncompare = [4, 80]", "a value is outside the range"),
        ('[words.columns.sex]\nlevels = { other = "others" }', "there is no level 'other'"),
        ("[words]\ntypical = [{ age = 400 }]", "400 is not a value of age"),
        ('[words]\ntypical = [{ sex = "x" }]', "sex has no level 'x'"),
        ("[words]\ntypical = [{ log_days = 1 }]", "there is no covariate 'log_days'"),
        ('[words.response]\nback = "eval"', "words.response.back"),
        (f'[words]\ntitle = "{"x" * 1001}"', "words.title"),
        (f'[governance]\npurpose = "{"x" * 1001}"', "governance.purpose"),
        ('[words]\nrows = ["stay"]', "words.rows"),
    ],
)
def test_words_of_what_the_study_does_not_have_are_refused(more: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match="study is not valid") as error:
        Study.from_text(f"{BARE}{more}\n")
    assert said in str(error.value)
