import pytest

from consilience.errors import InvalidInputError
from consilience.kit.study import Study
from consilience.kit.toml_file import MOST_BYTES, parse_toml, read_toml, write_toml

TEXT = """
format = "consilience-study"
version = 1
name = "stay"
title = "Length of stay"
seed = 20261116
max_rows = 1_000_000

[model]
response = "days"
family = "gaussian"
gate = "softmax"
experts = [1, 2, 3]
gate_columns = ["age", "sex"]

[minimum]
rows = 200

[[columns]]
name = "days"
kind = "number"
unit = "days"
low = 0
high = 400

[[columns]]
name = "age"
kind = "number"
unit = "years"
low = 18
high = 110
centre = 60
scale = 15

[[columns]]
name = "sex"
kind = "category"
levels = ["f", "m"]
reference = "m"
missing = "drop"
"""


def changed(old: str, new: str) -> str:
    assert old in TEXT
    return TEXT.replace(old, new)


def test_a_study_gives_the_dictionary_that_estimators_read_through():
    study = Study.from_text(TEXT)
    assert study.covariates.terms == ("(age - 60)/15", "sex[f]")
    assert study.covariates.columns[1].rule.missing == "drop"
    assert study.response.rule.range_text == "0 to 400 days"
    assert study.minimum.rows == 200
    assert study.minimum.rows_per_level == 5


def test_text_and_file_round_trip(tmp_path):
    study = Study.from_text(TEXT)
    path = tmp_path / "study.toml"
    path.write_text(study.to_text({"model": "The mixture.", "name": "Public."}), encoding="utf-8")
    assert Study.read(path) == study
    assert Study.read(path).identity == study.identity


def test_identity_depends_on_what_is_said_and_not_on_how():
    study = Study.from_text(TEXT)
    assert Study.from_text(changed("low = 18\n", "# a comment\nlow = 18.0\n")).identity == study.identity
    assert Study.from_text(changed("low = 18\n", "low = 19\n")).identity != study.identity


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('family = "gaussian"', "family = \"__import__('os').system('id')\"", "is not one of gaussian"),
        ('response = "days"', 'response = "../../etc/passwd"', "model.response: there is no column"),
        ("experts = [1, 2, 3]", "experts = [1000000000]", "model.experts.0 is a number; expected at most 20"),
        ("experts = [1, 2, 3]", f"experts = {[2] * 1000}", "model.experts has 1000 items; expected at most 20 items"),
        ("experts = [1, 2, 3]", "experts = []", "model.experts"),
        ("experts = [1, 2, 3]", "experts = [true]", "model.experts.0"),
        (
            'gate = "softmax"',
            'gate = "softmax"\ntransform = "eval"',
            "model has 'transform', which is not a field",
        ),
        ("centre = 60", 'transform = "exp"', "columns.1.transform"),
        ("centre = 60", 'transform = "(a+)+$"', "columns.1.transform"),
        ("centre = 60", "centre = nan", "columns.1.centre"),
        ("centre = 60", "centre = inf", "columns.1.centre"),
        ("scale = 15", "scale = -1", "scale a positive"),
        ("low = 18", "low = 200", "low=200 is not below high=110"),
        ('name = "age"', 'name = "days"', "days is listed twice"),
        ('name = "age"', 'name = "a\\u200bge"', "characters that cannot be seen"),
        ('name = "age"', 'name = "a\\u202ege"', "characters that cannot be seen"),
        ('name = "age"', 'name = "a\\ne"', "characters that cannot be seen"),
        ('name = "age"', 'name = "ag\\u0065\\u0301"', "not in normal form"),
        ('name = "age"', 'name = " age"', "not in normal form"),
        ('name = "age"', f'name = "{"a" * 300}"', "at most 200 characters"),
        ('levels = ["f", "m"]', 'levels = ["f", 1]', "levels of text and of numbers"),
        ('levels = ["f", "m"]', 'levels = ["f", "f", "m"]', "listed twice"),
        ('levels = ["f", "m"]', 'levels = ["m"]', "at least 2 items"),
        ('reference = "m"', 'reference = "x"', "no level 'x'"),
        ('response = "days"', 'response = "sex"', "use categorical"),
        ('gate_columns = ["age", "sex"]', 'gate_columns = ["days"]', "the response or the exposure is among"),
        ('gate_columns = ["age", "sex"]', 'exposure = "age"', "family 'gaussian' has none"),
        ("high = 400", "high = 400\ncentre = 5", "days is the response or the exposure"),
        ("high = 400", 'high = 400\nmissing = "fill"\nfill = 3', "days is the response or the exposure"),
        ("seed = 20261116", "seed = -1", "seed"),
        ("seed = 20261116", 'seed = "1"', "seed"),
        ("version = 1", "version = 2", "version 2, and this library reads up to 1: install a newer one"),
        ("version = 1", "version = 0", "version"),
        ('format = "consilience-study"', 'format = "other"', "format"),
        ("rows = 200", "rows = 0", "minimum.rows"),
        ("max_rows = 1_000_000", "max_rows = 10000000000000", "max_rows"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(old, new, said):
    with pytest.raises(InvalidInputError) as error:
        Study.from_text(changed(old, new))
    assert said in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "a = 1\na = 2",
        "a = [" * 5000,
        "[a" + ".b" * 3000 + "]\nx = [",
        "a = 1979-13-45",
        "a = 1e",
        "\x00",
        'a = "\ud800"'.encode("utf-16", "surrogatepass").decode("latin-1"),
        "a = " + "9" * 5000,
    ],
)
def test_text_that_is_not_toml_is_refused(text):
    with pytest.raises(InvalidInputError):
        parse_toml(text)


def test_files_are_read_with_a_cap(tmp_path):
    path = tmp_path / "study.toml"
    with pytest.raises(InvalidInputError, match="cannot be read: No such file"):
        read_toml(path)
    path.write_bytes(b"#" * (MOST_BYTES + 1))
    with pytest.raises(InvalidInputError, match="more than 1,048,576 bytes"):
        read_toml(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInputError, match="not text in UTF-8"):
        read_toml(path)


@pytest.mark.parametrize("text", ['a "quote" \\ and \t tab', "é\x7f\x1f", "", "a.b c", "#"])
def test_text_is_written_so_that_it_is_read_again(text):
    tables = {text or "empty": text, "numbers": [1, -2.5, 1e300], "yes": True, "table": {"x": [text]}}
    assert parse_toml(write_toml(tables)) == tables
