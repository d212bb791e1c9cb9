"""Codecs of the parts of questions and answers: designs, mixtures, summaries, specifications."""

from __future__ import annotations

from functools import cache
from typing import Any

from consilience.aggregate.combine.site_model import SiteModel
from consilience.aggregate.combine.support import CovariateSummary
from consilience.errors import InvalidInputError, MessageError
from consilience.fit.specification import Specification
from consilience.messages.checks import (
    check_covariates,
    check_site_model,
    check_specification,
    check_summary,
)
from consilience.messages.codec import (
    Choice,
    Flag,
    Floats,
    Maybe,
    Number,
    OneOf,
    Reader,
    Struct,
    Symmetric,
    Tuple,
    Whole,
    Writer,
)
from consilience.model.design import Design
from consilience.model.families.base import Experts
from consilience.model.families.covariance import STRUCTURES
from consilience.model.families.registry import FAMILIES, OWN, family_of
from consilience.model.gates import GATES, Gate
from consilience.model.mixture import Mixture
from consilience.model.moments import Moments
from consilience.model.received import check_design, check_mixture
from consilience.model.statistics import Statistics
from consilience.model.summary import ColumnSummary

MOST_EXPERTS = 200
MOST_CLASSES = 10_000
MOST_COLUMNS = 100_000
MOST_PARTS = 1_000
MOST_STARTS = 10**4
MOST_ITERATIONS = 10**6
OTHER = 255
"""Code of a family that a package registers, whose name follows."""
SEED = Whole(0, 2**62)
VECTOR, MATRIX, CUBE, NUMBER, FLAG = Floats((1,)), Floats((2,)), Floats((3,)), Number(), Flag()


@cache
def of_fields(kind: type[Experts] | type[Gate]) -> Struct:
    """Return the codec of a gate or a family, from its ``message_fields``."""
    return Struct(kind, {name: _field(form) for name, form in kind.message_fields.items()})


def _field(form: tuple[int, ...] | tuple[str, ...]) -> Floats | Choice:
    axes = tuple(each for each in form if isinstance(each, int))
    return Floats(axes) if axes else Choice(tuple(each for each in form if isinstance(each, str)))


class FamilyName:
    """Codec of the name of a family: its code among those of the library, or ``OTHER`` and the letters of its name.

    A family that a package registers is so the same one on both sides, whatever else is registered there.
    """

    codes = tuple(family.family for family in OWN)
    letters = Tuple(Whole(1, 127), 100)

    def write(self, value: str, to: Writer) -> None:
        """Append the code, or ``OTHER`` and the letters, to the head."""
        to.head.append(self.codes.index(value) if value in self.codes else OTHER)
        if value not in self.codes:
            self.letters.write(value.encode(), to)

    def read(self, source: Reader) -> str:
        """Read a name; raise an error if the family is not known on this side."""
        code = source.whole(0, OTHER)
        if code < len(self.codes):
            return self.codes[code]
        if code != OTHER:
            raise MessageError(f"message has a family with code {code}; this version of the library has none")
        name = bytes(self.letters.read(source)).decode()
        try:
            return family_of(name).family
        except InvalidInputError as error:
            raise MessageError(str(error)) from error


class ExpertsOfFamily:
    """Codec of experts: the name of their family, then its fields."""

    def write(self, value: Experts, to: Writer) -> None:
        """Write the name and the fields."""
        if FAMILIES.get(value.family) is not type(value):
            raise MessageError(f"{type(value).__name__} cannot be sent: expected one of {', '.join(FAMILIES)}")
        FAMILY.write(value.family, to)
        of_fields(type(value)).write(value, to)

    def read(self, source: Reader) -> Any:
        """Read a name, then the fields of that family."""
        return of_fields(FAMILIES[FAMILY.read(source)]).read(source)


FAMILY = FamilyName()
COLUMNS = Tuple(Whole(0, MOST_COLUMNS), MOST_COLUMNS)
DESIGN = Struct(
    Design,
    {
        "centre": VECTOR,
        "scale": VECTOR,
        "intercept": FLAG,
        "columns": Maybe(COLUMNS),
        "others": Maybe(MATRIX),
    },
    check_design,
)
GATE = OneOf(*(of_fields(gate) for gate in GATES.values()))
EXPERTS = ExpertsOfFamily()
MIXTURE = Struct(
    Mixture, {"design": DESIGN, "gate": GATE, "experts": EXPERTS, "gate_design": Maybe(DESIGN)}, check_mixture
)
SUMMARY = Struct(
    ColumnSummary,
    {"weight": NUMBER, "x_mean": VECTOR, "x_products": Symmetric(), "y_mean": VECTOR, "y_products": MATRIX},
    check_summary,
)
MOMENTS = Struct(Moments, {"plain": VECTOR, "first": MATRIX, "second": MATRIX})
STATISTICS = Struct(
    Statistics,
    {
        "gate": MOMENTS,
        "experts": MOMENTS,
        "log_likelihood": NUMBER,
        "absolute": NUMBER,
        "weight": NUMBER,
        "information": Maybe(Symmetric()),
    },
)
SPECIFICATION = Struct(
    Specification,
    {
        "K": Whole(1, MOST_EXPERTS),
        "family": FAMILY,
        "gate": Choice(tuple(GATES)),
        "structure": Choice(STRUCTURES),
        "n_classes": Whole(1, MOST_CLASSES),
        "intercept": FLAG,
        "gate_ridge": NUMBER,
        "expert_ridge": Maybe(NUMBER),
        "reg_covar": NUMBER,
        "degrees_of_freedom": Maybe(NUMBER),
        "expert_columns": Maybe(COLUMNS),
        "gate_columns": Maybe(COLUMNS),
    },
    check_specification,
)
COVARIATES = Struct(
    CovariateSummary,
    {
        "weights": VECTOR,
        "means": MATRIX,
        "covariances": MATRIX,
        "levels": Tuple(VECTOR, MOST_COLUMNS),
        "shares": Tuple(MATRIX, MOST_COLUMNS),
    },
    check_covariates,
)
SITE_MODEL = Struct(
    SiteModel,
    {
        "mixture": MIXTURE,
        "weight": NUMBER,
        "label_counts": VECTOR,
        "mass": VECTOR,
        "second": MATRIX,
        "log_likelihood": NUMBER,
        "precision": MATRIX,
        "covariates": Maybe(COVARIATES),
        "exposure": NUMBER,
    },
    check_site_model,
)
