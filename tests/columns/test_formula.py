"""Formulas: what they mean, and that nothing in them is evaluated."""

import builtins
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.interpolate import CubicSpline

from consilience.columns.derived import Derivation, spline_terms
from consilience.columns.formula import FUNCTIONS, Formula, parse_formula
from consilience.errors import InvalidInputError

COLUMNS = ["los", "age", "admission", "crp", "severity", "lab.crp", "class"]


def labels(formula: Formula) -> tuple[list[str], list[str] | None]:
    sides = [
        None if side is None else [":".join(factor.label for factor in term) for term in side]
        for side in (formula.experts, formula.gate)
    ]
    return sides[0] or [], sides[1]


@pytest.mark.parametrize(
    ("text", "experts", "gate"),
    [
        ("los ~ age", ["age"], None),
        ("los ~ age + crp | severity", ["age", "crp"], ["severity"]),
        ("los ~ age * admission", ["age", "admission", "age:admission"], None),
        ("los ~ age + age:crp", ["age", "age:crp"], None),
        ("los ~ age * crp + crp:age", ["age", "crp", "age:crp"], None),
        ("los ~ age * age", ["age"], None),
        ("los ~ (age + crp) : severity", ["age:severity", "crp:severity"], None),
        ("los ~ (age + crp) * severity - crp:severity", ["age", "crp", "severity", "age:severity"], None),
        ("los ~ . - class - `lab.crp`", ["age", "admission", "crp", "severity"], None),
        ("los ~ log(crp) + log1p(age) + sqrt(severity)", ["log(crp)", "log1p(age)", "sqrt(severity)"], None),
        ("los ~ spline(crp) + spline(age, df=3)", ["spline(crp)", "spline(age, df=3)"], None),
        ("los ~ category(class) | 1", ["category(class)"], []),
        ("los ~ 1 | age", [], ["age"]),
        ("los ~ class", ["class"], None),
        ("los~age\n  +crp", ["age", "crp"], None),
    ],
)
def test_a_formula_means_its_terms(text: str, experts: list[str], gate: list[str] | None) -> None:
    formula = parse_formula(text, COLUMNS)
    assert formula.response == "los"
    assert labels(formula) == (experts, gate)


ATTACKS = {
    "los ~ __import__('os').system('id')": '"\'" at character 18 is no part of a formula: it has no text in quotes',
    "los ~ __import__(age)": r"a call of __import__\(…\) is no part of a formula",
    "los ~ age.__class__": "the attribute age.__class__ is no part of a formula",
    "los ~ age.__class__.__bases__[0]": "'\\[' at character 30 is no part of a formula: it has no Python",
    "los ~ os.system": "the attribute os.system is no part of a formula",
    "los ~ np.log(age)": "the attribute np.log is no part of a formula",
    "los ~ `age`.real": "the attribute age.real is no part of a formula",
    "los ~ .age": "the attribute .age is no part of a formula",
    "los ~ (lambda: age)()": "lambda is no part of a formula: it is a word of Python",
    "los ~ lambda x: x": "lambda is no part of a formula",
    "los ~ import os": "import is no part of a formula",
    "los ~ eval(age)": r"a call of eval\(…\) is no part of a formula",
    "los ~ exec(crp)": r"a call of exec\(…\) is no part of a formula",
    "los ~ open(crp)": r"a call of open\(…\) is no part of a formula",
    "los ~ I(age)": r"a call of I\(…\) is no part of a formula",
    "eval(los) ~ age": r"eval\(…\) as the response is no part of a formula",
    "log(los) ~ age": r"log\(…\) as the response is no part of a formula: make a column of it",
    "los ~ log(eval(age))": r"eval\(…\) as the column of log\(…\) is no part of a formula",
    "los ~ 'age'": '"\'" at character 7 is no part',
    'los ~ "age"': "'\"' at character 7 is no part",
    "los ~ f'{age}'": "no part of a formula: it has no text in quotes",
    "los ~ {age}": "'{' at character 7 is no part",
    "los ~ age; import os": "';' at character 10 is no part",
    "los ~ @age": "'@' at character 7 is no part",
    "los ~ age if crp else age": "expected a sign between two terms, or the end, got 'if' at character 11",
    "los ~ (age := crp)": r"expected '\)' after '\(', got ':'|expected a column, got '='",
    "los ~ [age for age in crp]": "'\\[' at character 7 is no part",
    "los ~ age\\x5f": "no part of a formula: it has no Python",
    "los ~ __builtins__": "__builtins__ is no part of a formula",
    "los ~ `__import__`": "the data have no column '__import__'",
    "los ~ spline(age, df=__import__)": r"df of spline\(age\): expected a whole number",
    "los ~ spline(age, df=99999999999999999999)": r"df of spline\(age\): expected a whole number from 2 to 20",
    "los ~ " + "(" * 1000 + "age" + ")" * 900: "expected a text of at most 2,000|more than 20 parentheses",
    "los ~ " + "(" * 30 + "age" + ")" * 30: "more than 20 parentheses inside each other",
    "los ~ " + "*".join(["."] * 9): "more than 500 terms",
    "los ~ " + "age + " * 1000 + "age": "expected a text of at most 2,000 characters",
}


@pytest.mark.parametrize("text", ATTACKS)
def test_a_formula_cannot_run_code(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def ran(*_: Any, **__: Any) -> None:
        raise AssertionError("a formula was evaluated")

    def parse() -> None:
        with monkeypatch.context() as patched:
            for name in ("eval", "exec", "compile", "open", "__import__"):
                patched.setattr(builtins, name, ran)
            parse_formula(text, COLUMNS)

    with pytest.raises(InvalidInputError, match=ATTACKS[text]):
        parse()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("los ~ agee", "the data have no column 'agee'; did you mean 'age'"),
        ("los ~ bs(age)", r"did you mean spline\(…\)\?; the functions are log, log1p, sqrt, spline, category"),
        ("los ~ factor(class)", r"did you mean category\(…\)"),
        ("los ~ offset(age)", "pass exposure="),
        ("los ~ age - 1", "- 1 is no part of a formula: set fit_intercept=False"),
        ("los ~ 0 + age", "0 is no part of a formula: set fit_intercept=False"),
        ("los ~ age ^ 2", r"write the products, such as \(a \+ b\) \* c"),
        ("los ~ 2", "the number 2 is no part of a formula"),
        ("los ~ 1 * age", "1 is the intercept, and has no products"),
        ("los ~ age crp", "expected a sign between two terms, or the end, got 'crp' at character 11"),
        ("los ~ age | crp | age", r"or the end, got '\|' at character 17"),
        ("los ~", "expected a column at its end"),
        ("los", "expected '~' after the response at its end"),
        ("~ age", "expected the response, got '~' at character 1"),
        ("los ~ los + age", "the response 'los' is also a term"),
        ("los ~ log(age, df=3)", r"log\(…\) takes one column"),
        ("los ~ age ≈ crp", "'≈' at character 11 is no part of a formula"),
        ("", "expected a text of at most 2,000 characters, such as 'y ~ age"),
        (3, "expected a text"),
    ],
)
def test_a_mistake_in_a_formula_is_named(text: Any, said: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^formula: .*{said}"):
        parse_formula(text, COLUMNS)


def test_every_text_is_a_formula_or_a_sentence() -> None:
    rng = np.random.default_rng(0)
    parts = ["age", "crp", "los", *"~|+-*:(),=1. `", "df", *FUNCTIONS]
    read, refused = 0, []
    for _ in range(5000):
        text = "los ~ " + "".join(rng.choice(parts, size=rng.integers(1, 9)))
        try:
            read += isinstance(parse_formula(text, COLUMNS), Formula)
        except InvalidInputError as error:
            refused.append(str(error))
    assert read > 100
    assert all(said.startswith("formula: ") for said in refused)


@pytest.mark.parametrize("m", [3, 5, 8])
def test_a_spline_spans_the_natural_cubic_splines(m: int) -> None:
    rng = np.random.default_rng(m)
    knots = np.sort(rng.uniform(0, 10, m))
    x = np.linspace(knots[0], knots[-1], 200)
    basis = np.column_stack([np.ones(200), spline_terms(x, knots)])
    y = CubicSpline(knots, rng.normal(size=m), bc_type="natural")(x)
    fitted = basis @ np.linalg.lstsq(basis, y, rcond=None)[0]
    assert basis.shape[1] == m
    np.testing.assert_allclose(fitted, y, atol=1e-8)


def test_a_spline_is_linear_beyond_its_knots() -> None:
    knots = np.array([0.0, 1.0, 3.0, 4.0])
    for beyond in (np.array([-3.0, -2.0, -1.0]), np.array([4.0, 6.0, 8.0])):
        np.testing.assert_allclose(np.diff(spline_terms(beyond, knots), 2, axis=0), 0, atol=1e-12)


def test_a_product_of_a_category_needs_its_parts() -> None:
    table = pd.DataFrame({"y": [1.0, 2], "age": [3.0, 4], "arm": ["a", "b"]})
    for text in ("y ~ age:arm", "y ~ arm + age:arm", "y ~ age * arm | age:arm"):
        with pytest.raises(InvalidInputError, match=r"has a category, .*name its parts too, as in age \* arm"):
            Derivation.learn(text, [table])
