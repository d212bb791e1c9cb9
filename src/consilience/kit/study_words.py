"""The words of a study and what it states about the use of the data, as parts of the study file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, StringConstraints, model_validator

from consilience.files.documents import Finite, Part, Visible
from consilience.report.wording import Back, Change, ColumnWords, ResponseWords, Words

if TYPE_CHECKING:
    from consilience.kit.study import Study

MOST_TYPICAL = 30
BACK: Mapping[str, Back] = {"none": "none", "log": "exp", "log1p": "expm1", "sqrt": "square"}
"""What undoes each transform of the response by the study."""
Short = Annotated[str, StringConstraints(max_length=100), Visible]
Long = Annotated[str, StringConstraints(max_length=1000), Visible]
Value = bool | int | Finite | Short


class ResponseText(Part):
    """The response in words, and the scale on which effects are said."""

    label: Short = ""
    unit: Short = ""
    back: Back = "none"
    change: Change | None = None
    less: Short = ""
    more: Short = ""


class ColumnText(Part):
    """A covariate in words, and the difference for which its effects are said."""

    label: Short = ""
    unit: Short = ""
    per: Annotated[Finite, Field(gt=0)] | Literal["doubling"] | None = None
    compare: Annotated[list[Finite], Field(min_length=2, max_length=2)] | None = None
    levels: Annotated[dict[Short, Short], Field(max_length=255)] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Check that one difference is stated, and that it is one."""
        if self.per is not None and self.compare is not None:
            raise ValueError("per and compare: state one of them")
        if self.compare is not None and not self.compare[0] < self.compare[1]:
            raise ValueError("compare: put the lower value first")
        return self


class WordsText(Part):
    """What people call rows, sites, columns and kinds; it changes no fit, and is not part of the study's identity."""

    title: Long = ""
    question: Long = ""
    period: Short = ""
    rows: Annotated[list[Short], Field(min_length=2, max_length=2)] = Field(default_factory=lambda: ["row", "rows"])
    sites: Annotated[list[Short], Field(min_length=2, max_length=2)] = Field(default_factory=lambda: ["site", "sites"])
    simulated: bool = False
    names: Annotated[list[Short], Field(max_length=20)] = Field(default_factory=list)
    typical: Annotated[list[dict[Short, Value]], Field(max_length=MOST_TYPICAL)] = Field(default_factory=list)
    response: ResponseText = ResponseText()
    columns: Annotated[dict[Short, ColumnText], Field(max_length=500)] = Field(default_factory=dict)


class Governance(Part):
    """What people agree to when they take part; it is part of the study's identity."""

    purpose: Long | None = None
    controller: Long | None = None
    contact: Long | None = None
    recipients: Long | None = None
    retention: Long | None = None
    legal_basis: Long | None = None


def check_words(study: Study) -> None:
    """Raise an error for words of columns, levels or values that the study does not have."""
    words = study.words
    if words is None:
        return
    transform = study.response.rule.transform
    if transform != "none" and words.response.back not in ("none", BACK[transform]):
        raise ValueError(f'words.response.back: the study transforms the response by "{transform}": leave it out')
    columns = {column.name: column for column in (*study.covariates.columns, *study.sources.columns)}
    for name, said in words.columns.items():
        _check_column(columns, name, said)
    columns = {column.name: column for column in study.sources.columns}
    for row in words.typical:
        for name, value in row.items():
            _check_typical(columns, name, value)


def _check_column(columns: dict[str, Any], name: str, said: ColumnText) -> None:
    column = columns.get(name)
    if column is None:
        raise ValueError(f"words.columns: there is no covariate {name!a}")
    if unknown := sorted(set(said.levels) - set(map(str, column.levels))):
        raise ValueError(f"words.columns.{name}.levels: there is no level {unknown[0]!a}")
    if said.per == "doubling" and column.rule.transform != "log":
        raise ValueError(f'words.columns.{name}: per = "doubling" is for a column with transform = "log"')
    if said.per not in (None, "doubling") and column.rule.transform != "none":
        raise ValueError(f"words.columns.{name}: a transformed column has compare, not per")
    if said.compare is not None and not column.rule.contains(np.array(said.compare)).all():
        raise ValueError(f"words.columns.{name}.compare: a value is outside the range of the column")


def _check_typical(columns: dict[str, Any], name: str, value: Value) -> None:
    column = columns.get(name)
    if column is None:
        raise ValueError(f"words.typical: there is no covariate {name!a}")
    if column.is_category:
        if value not in column.levels:
            raise ValueError(f"words.typical: {name} has no level {value!a}")
    elif isinstance(value, str) or not column.rule.contains(np.array([float(value)])).all():
        raise ValueError(f"words.typical: {value!a} is not a value of {name}")


def words_of(study: Study) -> Words:
    """Return the words of a study for a report; what it does not say follows from its columns.

    Examples
    --------
    >>> from consilience.datasets.hospitals import STUDY
    >>> from consilience.kit.study import Study
    >>> words = words_of(Study.from_text(STUDY))
    >>> words.sites, words.response.unit
    (('hospital', 'hospitals'), 'days')
    """
    said, response = study.words or WordsText(), study.response
    own = said.response
    label = own.label or (f"{response.name} = {study.classes[-1]}" if study.classes else response.name)
    back = BACK[response.rule.transform] if own.back == "none" else own.back
    unit = own.unit or (response.rule.unit if back == BACK[response.rule.transform] else "")
    columns = {
        name: ColumnWords(
            each.label,
            each.unit,
            each.per,
            None if each.compare is None else (each.compare[0], each.compare[1]),
            each.levels,
        )
        for name, each in said.columns.items()
    }
    return Words(
        title=said.title or study.title or study.name,
        question=said.question,
        period=said.period,
        rows=(said.rows[0], said.rows[1]),
        sites=(said.sites[0], said.sites[1]),
        simulated=said.simulated,
        names=tuple(said.names),
        typical=tuple(said.typical),
        response=ResponseWords(label, unit, back, own.change, own.less, own.more),
        columns=columns,
    )


def governance_of(study: Study) -> dict[str, str]:
    """Return what a study states about the use of the data; empty where it says nothing."""
    said = study.governance or Governance()
    return {name.replace("_", " "): getattr(said, name) or "" for name in Governance.model_fields}
