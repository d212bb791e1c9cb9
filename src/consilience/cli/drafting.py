"""A draft of a study from a table: names, kinds, levels, and ranges that the coordinator has to widen or confirm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from consilience.columns.arrow import is_category, levels_of
from consilience.errors import InvalidInputError
from consilience.kit.row_tags import whole_column
from consilience.kit.study import UNNAMED, Study, Trust
from consilience.kit.toml_file import write_toml
from consilience.model import FAMILIES, GATES

MOST_LEVELS = 30
"""A text column with more levels is an identifier or free text, and is left out of the draft."""
LEAST_ROWS = 10
"""A level with fewer rows is left out: the study goes to everybody."""
FAMILY_NAMES = ", ".join(FAMILIES)
GATE_NAMES = "; ".join(
    f"{name}: shares of experts {'depend' if gate.reads_covariates else 'do not depend'} on covariates"
    for name, gate in GATES.items()
)
TRUST = """\
Whom a site has to trust. "limits": one file, within limits that are no guarantee. "noise": nobody; the site adds noise,
and [privacy] says how much. "coordinator": exact sums in rounds, under a contract."""
PRIVACY = """\
How much may become known of one row: smaller is stricter. 'consilience study forecast' says what it costs, before
anything is spent. exchange = "file": each site sends one file; "rounds": it answers several times."""
START = """\
The public model from which each site starts: the fit of one site that may release it, or of earlier or public rows.
'consilience study start STUDY MODEL' writes its hash here."""
COMMENTS = {
    "name": "A short name, public.",
    "seed": "Any whole number: every site uses it, so that a fit can be repeated.",
    "max_rows": "A site that states more rows is refused.",
    "trust": TRUST,
    "model": f"What is fitted. Families: {FAMILY_NAMES}. Gates: {', '.join(GATES)}.",
    "experts": "Candidate numbers of experts, of which BIC chooses; one number with noise.",
    "privacy": PRIVACY,
    "start": START,
    "minimum": "Rules for every site. A site's own policy may be stricter, never looser.",
    "columns": (
        "The data dictionary. Ranges were read from your table and rounded outwards: set them to what is possible,\n"
        "not to what you have seen. Add units. A value outside its range fails the check at the site."
    ),
}
EXAMPLE = f"""\
# A study: what every site is asked to fit. Complete it, and send the same file to all sites.
format = "consilience-study"
version = 1
# A short name, public.
name = "my-study"
title = ""
# Any whole number: every site uses it, so that a fit can be repeated.
seed = 1
# {TRUST.replace(chr(10), chr(10) + "# ")}
trust = "TRUST"

[model]
# Name of the column of responses.
response = "outcome"
# One of {FAMILY_NAMES}
family = "{next(iter(FAMILIES))}"
# {GATE_NAMES}
gate = "{next(iter(GATES))}"
# {COMMENTS["experts"]}
experts = EXPERTS

METHOD# Rules for every site. A site's own policy may be stricter, never looser.
[minimum]
rows = 50

[[columns]]
name = "outcome"
kind = "number"
unit = ""
low = 0
high = 100

[[columns]]
name = "age"
kind = "number"
unit = "years"
low = 18
high = 110
# A covariate is (transform(x) - centre) / scale: public constants, the same at every site.
centre = 60
scale = 15

[[columns]]
name = "sex"
kind = "category"
levels = ["female", "male"]
reference = "female"
# refuse: a missing value is an error; drop: the row is left out
missing = "refuse"
"""


def answered_as(trust: Trust) -> dict[str, Any]:
    """Return the number of experts, the method and the budget of a draft, by whom a site has to trust."""
    if trust == "limits":
        return {"experts": [1, 2, 3]}
    if trust == "coordinator":
        return {"experts": [1, 2, 3], "method": {"name": "OneShot", "refine": 1}}
    privacy = {"epsilon": 3.0, "delta": 1e-6, "exchange": "file", "start": UNNAMED}
    return {"experts": [2], "method": {"name": "PrivateScoring"}, "privacy": privacy}


def example_study(trust: Trust = "noise") -> str:
    """Return the text of a study to complete, which has other columns than anybody's."""
    more = answered_as(trust)
    tables: dict[str, Any] = {name: value for name, value in more.items() if name != "experts"}
    said = {name: COMMENTS[name] for name in ("privacy", "start")}
    method = f"{write_toml(tables, said).strip()}\n\n" if tables else ""
    text = EXAMPLE.replace("TRUST", trust, 1).replace("EXPERTS", str(more["experts"]), 1)
    return text.replace("METHOD", method, 1)


def draft_study(table: pa.Table, response: str, name: str, trust: Trust = "noise") -> tuple[str, list[str]]:
    """Return the text of a study with the columns of a table, and remarks on what was left out.

    Levels with few rows, identifiers, free text and dates are left out: the study goes to everybody.
    """
    if response not in table.column_names:
        raise InvalidInputError(f"the table has no column {response!r}; it has {', '.join(table.column_names)}")
    if twice := sorted({each for each in table.column_names if table.column_names.count(each) > 1}):
        raise InvalidInputError(f"the table has two columns {', '.join(twice)}: rename one of each")
    columns: list[dict[str, Any]] = []
    remarks: list[str] = []
    for each in table.column_names:
        try:
            column, more = _column(table, each, scaled=each != response)
            columns.append(column)
            remarks += more
        except InvalidInputError as error:
            remarks.append(f"column {each} is left out: {error}")
    kinds = {column["name"]: column["kind"] for column in columns}
    if response not in kinds:
        raise InvalidInputError(f"column {response!r} cannot be the response. " + "; ".join(remarks))
    family = next(name for name, kind in FAMILIES.items() if kind.classes == (kinds[response] == "category"))
    way = answered_as(trust)
    study: dict[str, Any] = {
        "format": Study.kind,
        "version": Study.newest,
        "name": name,
        "seed": 1,
        "max_rows": 10**7,
        "trust": trust,
        "model": {"response": response, "family": family, "gate": next(iter(GATES)), "experts": way.pop("experts")},
        **way,
        "minimum": {"rows": 50},
        "columns": columns,
    }
    return Study.model_validate(study).to_text(COMMENTS), remarks


def _column(table: pa.Table, name: str, *, scaled: bool) -> tuple[dict[str, Any], list[str]]:
    """Return a column of the draft, and remarks; raise an error that says why there is none."""
    values = whole_column(table, name)
    missing = "drop" if values.null_count else "refuse"
    if is_category(values.type):
        levels, remarks = _levels(values, name)
        return {"name": name, "kind": "category", "levels": levels, "missing": missing}, remarks
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_decimal(values.type)):
        raise InvalidInputError(f"it is of type {values.type}; for a date, compute a number, such as days, first")
    numbers = np.asarray(values.drop_null().cast(pa.float64()).to_numpy(zero_copy_only=False))
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        raise InvalidInputError("it has no values")
    if scaled and pa.types.is_integer(values.type) and len(np.unique(numbers)) == len(numbers) > MOST_LEVELS:
        raise InvalidInputError("every row has another whole number: it looks like an identifier")
    low, high = _outwards(float(numbers.min()), float(numbers.max()))
    found = {"name": name, "kind": "number", "unit": "", "low": low, "high": high, "missing": missing}
    return found | (_scaling(numbers) if scaled else {}), []


def _levels(values: pa.Array, name: str) -> tuple[list[Any], list[str]]:
    """Return the levels that enough rows have, and a remark on the others, without naming them."""
    counts = {each["values"]: each["counts"] for each in values.drop_null().value_counts().to_pylist()}
    common = {level for level, rows in counts.items() if rows >= LEAST_ROWS}
    levels = [level for level in levels_of([values]) if level is not None and level in common]
    if len(levels) > MOST_LEVELS:
        raise InvalidInputError(f"it has more than {MOST_LEVELS} levels: free text, or an identifier")
    if len(levels) < 2:
        if counts and all(isinstance(level, str) and _is_decimal_comma(level) for level in counts):
            raise InvalidInputError("its numbers have decimal commas: export it with points")
        raise InvalidInputError(f"it has fewer than 2 levels with {LEAST_ROWS} rows each")
    rare = len(counts) - len(levels)
    return levels, [f"column {name}: {rare} rare levels are left out; add or merge them"] if rare else []


def _is_decimal_comma(text: str) -> bool:
    return "," in text and text.strip().lstrip("+-").replace(",", "", 1).isdigit()


def _scaling(numbers: np.ndarray) -> dict[str, float]:
    """Return round constants near the mean and the spread, so that none of them is an exact statistic of the table."""
    spread = float(numbers.std())
    if spread == 0:
        return {"centre": 0.0, "scale": 1.0}
    step = 10.0 ** np.floor(np.log10(spread))
    return {
        "centre": float(np.round(numbers.mean() / step) * step),
        "scale": float(max(np.round(spread / step), 1) * step),
    }


def _outwards(low: float, high: float) -> tuple[float, float]:
    """Return round numbers below and above, so that no smallest or largest value of the table is published."""
    step = 10.0 ** np.floor(np.log10(max(high - low, 1e-9)))
    below, above = (np.floor(low / step) - 1) * step, (np.ceil(high / step) + 1) * step
    return float(max(below, 0.0) if low >= 0 else below), float(above)
