"""The formula of a study: its terms are computed at each site, from columns and knots that the study states."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from consilience.columns import Column, Rule
from consilience.columns.derived import Derivation, check_main_effects
from consilience.columns.formula import Formula, TermFactor, parse_formula
from consilience.errors import InvalidInputError
from consilience.kit.public_covariates import draw_covariates
from consilience.model import FAMILIES, GATES
from consilience.numerics.arrays import Array

if TYPE_CHECKING:
    from consilience.kit.study import Study

MOST_TERMS = 500
"""Maximum number of columns that a formula derives in a study."""


def derivation_of(study: Study) -> Derivation | None:
    """Return the terms of the formula of a study, with its levels, rules and knots; None without a formula."""
    model, sources = study.model, study.sources
    if model.formula is None:
        return None
    knots = {name: tuple(values) for name, values in (model.knots or {}).items()}
    return Derivation(model.formula, (model.response, *sources.names), sources.columns, knots)


def check_formula(study: Study) -> None:
    """Raise an error for a formula that the columns and the knots of the study do not answer."""
    model = study.model
    if model.formula is None:
        if model.knots is not None:
            raise ValueError("model.knots: they are those of the splines of a formula, and there is none")
        return
    if model.gate_columns is not None or model.expert_columns is not None:
        raise ValueError("model.formula: it names what gate and experts read; leave out gate_columns, expert_columns")
    try:
        formula = parse_formula(model.formula, (model.response, *study.sources.names))
    except InvalidInputError as error:
        raise ValueError(f"model.{error}") from error
    _check_sides(study, formula)
    _check_factors(study, formula)
    for side in (formula.experts, formula.gate or ()):
        check_main_effects(side, {column.name for column in study.sources.columns if column.is_category})
    _check_columns(study, formula)


def check_shared_names(study: Study) -> None:
    """Raise an error for shared coefficients that the method does not fit, or of covariates that the study lacks."""
    model, method, derivation = study.model, study.method, study.derivation
    if model.shared is None:
        return
    if method is None or method.name != "FederatedEM" or "per_site" in method.settings:
        raise ValueError('model.shared: state method = {name = "FederatedEM"}, without per_site, or leave shared out')
    if FAMILIES[model.family].classes:
        raise ValueError(f"model.shared: experts of family {model.family!a} share none; leave it out")
    known = study.covariates.names
    for name in model.shared if derivation is None else derivation.named(model.shared):
        if name not in known:
            raise ValueError(f"model.shared: there is no covariate {name!a}; the covariates are {', '.join(known)}")


def _check_sides(study: Study, formula: Formula) -> None:
    if formula.response != study.model.response:
        raise ValueError(f"model.response: the response of the formula is {formula.response!a}; leave one out")
    if not formula.terms:
        raise ValueError("model.formula: it has no term but the intercept")
    if formula.gate and not GATES[study.model.gate].reads_covariates:
        raise ValueError(f"model.formula: the gate {study.model.gate!a} reads no covariates: leave out '|'")


def _check_factors(study: Study, formula: Formula) -> None:
    """Check that functions are of numbers as they are, and that each spline has its knots."""
    known = {column.name: column for column in study.sources.columns}
    factors = dict.fromkeys(factor for term in formula.terms for factor in term)
    for factor in factors:
        if factor.function == "category":
            raise ValueError(f"model.formula: list {factor.name!a} as a column of kind category, without category()")
        if factor.function:
            _check_function(factor, known[factor.name])
    splines = {factor.label: factor.df + 1 for factor in factors if factor.function == "spline"}
    knots = study.model.knots or {}
    if unknown := sorted(knots.keys() - splines.keys()):
        raise ValueError(f"model.knots: the formula has no {unknown[0]!a}")
    for label, number in splines.items():
        if len(knots.get(label, ())) != number or np.any(np.diff(knots[label]) <= 0):
            raise ValueError(
                f"model.knots: {label} needs {number} numbers in increasing order, such as quantiles from the "
                "literature: no site's rows are looked at for them"
            )


def _check_function(factor: TermFactor, column: Column) -> None:
    rule = column.rule
    if column.is_category or (rule.transform, rule.centre, rule.scale) != ("none", 0.0, 1.0):
        raise ValueError(
            f"model.formula: {factor.label} is a function of a number as it is: {factor.name} is a category, or has a "
            "transform, a centre or a scale"
        )
    if factor.function != "spline":
        try:
            Rule(low=rule.low, high=rule.high, transform=factor.function)
        except InvalidInputError as error:
            raise ValueError(f"columns: {factor.name}, for {factor.label} in the formula: {error}") from error


def _check_columns(study: Study, formula: Formula) -> None:
    """Check that each column is in a term, and that no two covariates have one name."""
    read = {factor.name for term in formula.terms for factor in term}
    if unread := [name for name in study.sources.names if name not in read]:
        raise ValueError(f'columns: {unread[0]} is in no term of the formula: leave it out, or give it use = "cohort"')
    derivation = study.derivation
    if derivation is None or derivation.width > MOST_TERMS:
        raise ValueError(f"model.formula: more than {MOST_TERMS} columns")
    alone = {term[0].name for term in formula.terms if len(term) == 1 and not term[0].function}
    names = [*derivation.columns, *(set(study.sources.names) - alone), study.model.response]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"columns: {twice[0]!a} is also the name of a term of the formula: rename it")


def say_formula(study: Study) -> list[str]:
    """Return what people at a site are told of the formula; nothing without one."""
    if study.derivation is None:
        return []
    read = ", ".join(study.derivation.sources)
    return [f"The terms of the formula {study.derivation.text!r} are computed here, from the columns {read}."]


# ---------------------------------------------------------------- rows


def term_matrix(study: Study, read: Callable[[Column], Array]) -> Array:
    """Return the covariates of the model ``(n, terms)``, computed from those of the columns.

    Parameters
    ----------
    study : Study
    read : function
        Returns the covariates ``(n, t)`` of a column of the study.
    """
    found = {} if study.derivation is None else dict(study.derivation.computed(lambda _, column: read(column)))
    parts = [
        found[column.name][:, None] if column.name in found else read(column) for column in study.covariates.columns
    ]
    return np.concatenate(parts, axis=1)


def draw_terms(study: Study, m: int, rng: np.random.Generator) -> Array:
    """Draw rows of covariates of the model ``(m, terms)``, from columns as the study describes them."""
    X = draw_covariates(study.sources, m, rng)
    ends = np.cumsum([len(column.terms) for column in study.sources.columns])
    places = {
        column.name: slice(end - len(column.terms), end)
        for column, end in zip(study.sources.columns, ends, strict=True)
    }
    return term_matrix(study, lambda column: X[:, places[column.name]])


def place_of(study: Study, column: Column) -> int | None:
    """Return the place of a column among the covariates of the model; None if these have only functions of it."""
    names = {column.terms[0]}
    for term in () if study.derivation is None else study.derivation.formula.terms:
        if len(term) == 1 and (term[0].name, term[0].function) == (column.name, "spline"):
            names.add(f"{term[0].label}[1]")  # the first term of a spline is the column itself
    return next((j for j, term in enumerate(study.covariates.terms) if term in names), None)
