"""The study file: what the coordinator asks of the sites, in TOML that people read.

It names columns, a closed list of families and transforms, and numbers. It cannot name code, a path or an expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import ConfigDict, Field, StringConstraints, model_validator

from consilience.columns import Column, Dictionary, Rule
from consilience.columns.derived import Derivation
from consilience.columns.dictionary import MOST_LEVELS
from consilience.columns.formula import LONGEST
from consilience.errors import InvalidInputError
from consilience.files.documents import Finite, Part, Text, Visible
from consilience.files.json_text import content_hash
from consilience.kit.study_terms import check_formula, check_shared_names, derivation_of
from consilience.kit.study_words import Governance, WordsText, check_words
from consilience.kit.toml_file import TomlFile, check_name, write_toml
from consilience.messages.site_names import looks
from consilience.model import FAMILIES, GATES
from consilience.model.families.registry import ELSEWHERE
from consilience.numerics.arrays import Array, Mask
from consilience.numerics.budget import check_delta, rho_of

Trust = Literal["coordinator", "limits", "noise"]
"""Ways between owners, named by whom a site has to trust: the coordinator, limits on one file, or nobody."""

MOST_EXPERTS = 20
MOST_COLUMNS = 500
MOST_RULES = 50
FORMULA = "=+-@"
"""First characters by which a spreadsheet takes a text for a formula."""
Shown = Annotated[Text, Visible]
Level = bool | int | Finite | Shown
Use = Literal["cohort"]
"""What a column is for, if not for the model."""


def check_columns(names: Sequence[str]) -> None:
    """Raise an error for names of columns that people, or a spreadsheet, could take for something else."""
    seen: dict[str, str] = {}
    for name in names:
        if name[0] in FORMULA:
            raise ValueError(f"columns: {name!a} begins like a formula of a spreadsheet: rename it")
        other = seen.setdefault(looks(name), name)
        if names.count(name) > 1:
            raise ValueError(f"columns: {name} is listed twice")
        if other != name:
            raise ValueError(f"columns: {other!a} and {name!a} look alike: rename one of them")


class CohortRule(Part):
    """A condition that the rows of the cohort meet: a comparison of one column. There are no expressions.

    Parameters
    ----------
    column : str
    at_least, at_most, above, below : float, optional
        Bounds of a number; all that are stated hold.
    one_of : list of level, optional
        Levels of a category, or numbers.

    Examples
    --------
    >>> print(CohortRule(column="age", at_least=18, below=90))
    age at least 18 and below 90
    """

    column: Text
    at_least: Finite | None = None
    at_most: Finite | None = None
    above: Finite | None = None
    below: Finite | None = None
    one_of: Annotated[list[Level], Field(min_length=1, max_length=MOST_LEVELS)] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        """Check that it says something, and one thing."""
        if bool(self.bounds) == (self.one_of is not None):
            raise ValueError(f"{self.column}: give one_of, or some of at_least, at_most, above and below")
        return self

    @property
    def bounds(self) -> dict[str, float]:
        """The bounds that are stated, by name."""
        found = {name: getattr(self, name) for name in COMPARISONS}
        return {name: bound for name, bound in found.items() if bound is not None}

    @property
    def text(self) -> str:
        """The rule in words."""
        said = [f"{name.replace('_', ' ')} {bound:g}" for name, bound in self.bounds.items()]
        return f"{self.column} {' and '.join(said) or 'one of ' + ', '.join(map(str, self.one_of or ()))}"

    def __str__(self) -> str:
        return self.text

    def holds(self, numbers: Array) -> Mask:
        """Return which numbers meet the rule, ``(n,)``; NaN does not."""
        found = np.isfinite(numbers)
        for name, bound in self.bounds.items():
            found &= COMPARISONS[name](numbers, bound)
        return found if self.one_of is None else found & np.isin(numbers, np.array(self.one_of, dtype=float))


COMPARISONS: dict[str, Callable[[Array, float], Any]] = {
    "at_least": np.greater_equal, "at_most": np.less_equal, "above": np.greater, "below": np.less,
}  # fmt: skip
"""The closed list of comparisons with a bound."""


class NumberColumn(Part):
    """A column of numbers."""

    name: Text
    kind: Literal["number"]
    use: Use | None = None
    unit: Annotated[str, StringConstraints(max_length=100), Visible] = ""
    low: Finite | None = None
    high: Finite | None = None
    missing: Literal["refuse", "drop", "fill"] = "refuse"
    fill: Finite | None = None
    transform: Literal["none", "log", "log1p", "sqrt"] = "none"
    centre: Finite = 0.0
    scale: Finite = 1.0
    about: Annotated[str, StringConstraints(max_length=1000), Visible] = ""

    def column(self) -> Column:
        """Return the column as the library reads it."""
        rule = Rule(self.unit, self.low, self.high, self.missing, self.fill, self.transform, self.centre, self.scale)
        return Column(self.name, rule=rule)


class CategoryColumn(Part):
    """A column of categories: its levels are listed, so that no site has to disclose them."""

    name: Text
    kind: Literal["category"]
    use: Use | None = None
    levels: Annotated[list[Level], Field(min_length=2, max_length=MOST_LEVELS)]
    reference: Level | None = None
    missing: Literal["refuse", "drop"] = "refuse"
    about: Annotated[str, StringConstraints(max_length=1000), Visible] = ""

    def column(self) -> Column:
        """Return the column as the library reads it."""
        if len({isinstance(level, str) for level in self.levels}) > 1:
            raise InvalidInputError(f"{self.name} has levels of text and of numbers: use one kind")
        return Column(self.name, tuple(self.levels), self.reference, Rule(missing=self.missing))


AnyColumn = Annotated[NumberColumn | CategoryColumn, Field(discriminator="kind")]


class Model(Part):
    """The mixture that is fitted.

    Parameters
    ----------
    response : str
        Name of the column of responses; it may be left out beside a formula, which names it.
    formula : str, optional
        Terms of the experts and of the gate in one line, such as ``"los ~ age * admission | severity"``.
    knots : mapping of str to list of float
        Knots of each ``spline(...)`` of the formula, by its name: one more than it has terms.
    family : str
        Name of a family of experts, as in :data:`~consilience.model.FAMILIES`; the first by default.
    gate : str
        Name of a gate, as in :data:`~consilience.model.GATES`; the first by default.
    experts : list of int
        Candidate numbers of experts.
    gate_columns, expert_columns : list of str, optional
        Columns that the gate and the experts read; all but the response by default.
    shared : list of str, optional
        Covariates, or terms of the formula, whose coefficients are equal in all experts; for ``FederatedEM``.
    exposure : str, optional
        Column of exposures of counts, or of trials.
    clients : str, optional
        Column of the names of clients, for a method with one label per client; it is not among the study's columns.
    """

    response: Text
    family: Text = next(iter(FAMILIES))
    gate: Text = next(iter(GATES))
    experts: Annotated[list[Annotated[int, Field(ge=1, le=MOST_EXPERTS)]], Field(min_length=1, max_length=MOST_EXPERTS)]
    formula: Annotated[Text, StringConstraints(max_length=LONGEST), Visible] | None = None
    knots: Annotated[dict[Text, list[Finite]], Field(max_length=MOST_COLUMNS)] | None = None
    gate_columns: list[Text] | None = None
    expert_columns: list[Text] | None = None
    shared: list[Text] | None = None
    exposure: Text | None = None
    clients: Text | None = None

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        """Take the response from the formula if only this names it."""
        formula = given.get("formula") if isinstance(given, Mapping) else None
        if not isinstance(formula, str) or "response" in given:
            return given
        return {**given, "response": formula.partition("~")[0].strip().strip("`")}

    @model_validator(mode="after")
    def _known(self) -> Self:
        """Check that family and gate are among those of the library."""
        for chosen, known, more in ((self.family, FAMILIES, ELSEWHERE), (self.gate, GATES, "")):
            if chosen not in known:
                raise ValueError(f"{chosen!a} is not one of {', '.join(known)}{more}")
        return self


class MethodOf(Part):
    """The method of a study, by its name, with settings that are numbers or words.

    Its settings are those of the class of this name in :mod:`consilience`. Without a method a study is one exchange of
    files: ``OneShot`` with ``refine = 0``.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    __pydantic_extra__: dict[str, bool | int | Finite | Text]

    name: Literal["OneShot", "FederatedEM", "SharedCentre", "ClusteredClients", "PrivateScoring"]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name."""
        return dict(self.__pydantic_extra__)

    @property
    def is_one_file(self) -> bool:
        """Whether a site sends its own fit and nothing else, as without a method."""
        return self.name == "OneShot" and self.settings.get("refine", 1) == 0


class PersonUnit(Part):
    """Persons as what is protected.

    Parameters
    ----------
    column : str
        Column of the tables that tells persons apart. It is read at the site, and nothing of it leaves.
    rows : int
        Number of rows of a person that count, the first in the order of the table.
    """

    column: Shown
    rows: Annotated[int, Field(ge=1, le=10_000)] = 1


UNNAMED = "unnamed"
"""Start of a draft, until the hash of a model file stands there."""


class PrivacyTerms(Part):
    """What a study with noise may disclose at each site: (ε, δ)-differential privacy.

    Parameters
    ----------
    epsilon, delta : float
    unit : {"row"} or PersonUnit
        What is protected: one row, added or removed, or all rows of one person.
    exchange : {"rounds", "file"}, optional
        Whether sites answer in rounds, as without the word, or send one file.
    rounds : int
        Number of steps of a study in rounds. For one file each site takes as many as the start needs.
    start : str, optional
        ``sha256:...`` of the model file from which the run starts; any file if it is not stated. One file needs it.
        ``"unnamed"`` in a draft, until there is one: no site answers such a study.
        ``"private"`` finds a start from sums with noise, for two Gaussian experts and a response with ``low`` and
        ``high``.
    sums : {"masked"}, optional
        Masked sums, of which only the total over sites is read; each site's own sums with its own noise otherwise.
    colluding : int, optional
        For masked sums, how many sites may tell the coordinator what they know; 1 if it is not stated.
    """

    epsilon: Annotated[Finite, Field(gt=0)]
    delta: Annotated[Finite, Field(gt=0)] = 1e-6
    unit: Literal["row"] | PersonUnit = "row"
    exchange: Literal["rounds", "file"] | None = None
    rounds: Annotated[int, Field(ge=1, le=100)] = 5
    start: Annotated[str, StringConstraints(pattern=r"^(sha256:[0-9a-f]{64}|private|unnamed)$")] | None = None
    sums: Literal["masked"] | None = None
    colluding: Annotated[int, Field(ge=0, le=10_000)] | None = None

    @property
    def persons(self) -> PersonUnit | None:
        """The persons that are protected; None if rows are."""
        return self.unit if isinstance(self.unit, PersonUnit) else None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        """Check that there is a budget for these numbers, and what one file needs."""
        if self.exchange == "file" and self.start is None:
            raise ValueError("one file needs its start: name the model file from which each site starts by its hash")
        if self.exchange == "file" and (self.start == "private" or self.sums == "masked"):
            raise ValueError(
                'one file has no start = "private" and no sums = "masked", which need rounds: name the model file from '
                "which each site starts by its hash, and let each site add its own noise"
            )
        if self.exchange == "file" and self.rounds != type(self).model_fields["rounds"].default:
            raise ValueError("rounds are not for one file: each site takes as many steps as the start needs")
        try:
            check_delta(self.delta)
            rho_of(self.epsilon, self.delta)
        except InvalidInputError as error:
            raise ValueError(str(error)) from error
        if self.colluding is not None and self.sums is None:
            raise ValueError('privacy: colluding is for sums = "masked"')
        return self


class Minimum(Part):
    """Rules that the study asks of every site; a site's own policy may be stricter, never looser."""

    rows: Annotated[int, Field(ge=1, le=10**9)] = 50
    rows_per_level: Annotated[int, Field(ge=1, le=10**6)] = 5
    rows_per_expert: Annotated[int, Field(ge=1, le=10**6)] = 10
    require_signatures: bool = False


class Study(TomlFile):
    """A study: columns, model, minimum rules, seed, and the words in which people read its result."""

    called = "study"
    kind = "consilience-study"
    format: Literal["consilience-study"]
    version: Literal[1]
    name: Text
    title: Annotated[str, StringConstraints(max_length=1000), Visible] = ""
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    max_rows: Annotated[int, Field(ge=1, le=10**12)] = 10**7
    trust: Trust | None = None
    model: Model
    method: MethodOf | None = None
    privacy: PrivacyTerms | None = None
    minimum: Minimum = Minimum()
    cohort: Annotated[list[CohortRule], Field(min_length=1, max_length=MOST_RULES)] | None = None
    columns: Annotated[list[AnyColumn], Field(min_length=1, max_length=MOST_COLUMNS)]
    governance: Governance | None = None
    words: WordsText | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Check what single entries cannot tell; errors carry sentences."""
        names = [column.name for column in self.columns]
        for name in [self.name, *names]:
            check_name(name)
        check_columns(names)
        read = {"model.response": [self.model.response], "model.exposure": [self.model.exposure or names[0]]}
        read |= {f"model.{part}": getattr(self.model, part) or [] for part in ("gate_columns", "expert_columns")}
        for place, wanted in read.items():
            for name in wanted:
                if name not in names:
                    raise ValueError(f"{place}: there is no column {name!a}; the columns are {', '.join(names)}")
        self._check_response()
        if self.model.clients in names:
            raise ValueError(f"model.clients: {self.model.clients} is listed among the columns: leave it out there")
        if self.persons is not None and self.persons.column in names:
            raise ValueError(f"privacy.unit: {self.persons.column} is listed among the columns: leave it out there")
        for column in self.columns:
            column.column()
        self._check_cohort()
        check_formula(self)
        check_shared_names(self)
        self._check_way()
        check_words(self)
        return self

    @property
    def is_one_file(self) -> bool:
        """Whether a site sends one file; otherwise it answers in rounds."""
        return self.method is None or self.method.is_one_file or self.is_noisy_file

    @property
    def persons(self) -> PersonUnit | None:
        """The persons that a study with noise protects; None if it protects rows, or has no noise."""
        return None if self.privacy is None else self.privacy.persons

    @property
    def is_noisy_file(self) -> bool:
        """Whether a site sends one file with noise."""
        return self.privacy is not None and self.privacy.exchange == "file"

    @property
    def lacks_start(self) -> bool:
        """Whether the model file from which the study starts is still to be named."""
        return self.privacy is not None and self.privacy.start == UNNAMED

    @property
    def way(self) -> Trust:
        """Whom a site has to trust: as stated, otherwise what the rest of the study needs."""
        if self.trust is not None:
            return self.trust
        if self.privacy is not None:
            return "noise"
        return "limits" if self.is_one_file else "coordinator"

    def _check_cohort(self) -> None:
        """Check that rules are on columns of the study, of their kind, and that they leave something to fit."""
        model, named = self.model, {rule.column for rule in self.cohort or ()}
        read = [model.response, model.exposure, *(model.gate_columns or ()), *(model.expert_columns or ())]
        for column in self.columns:
            if column.use is not None and (column.name not in named or column.name in read):
                raise ValueError(f'columns: {column.name} has use = "cohort": the cohort, and no other part, names it')
        known = {column.name: column.column() for column in self.columns}
        for rule in self.cohort or ():
            read_as = known.get(rule.column)
            if read_as is None:
                raise ValueError(f"cohort: there is no column {rule.column!a}; list it, with use = \"cohort\" if the "
                                 "model does not read it")  # fmt: skip
            if read_as.is_category and (rule.bounds or not set(rule.one_of or ()) <= set(read_as.levels)):
                raise ValueError(f"cohort: {rule.column} is a category: give one_of, with some of its levels")
            if not read_as.is_category and any(isinstance(each, str | bool) for each in rule.one_of or ()):
                raise ValueError(f"cohort: {rule.column} is a number: one_of lists numbers")
        for part in self.columns:
            if isinstance(part, CategoryColumn) and part.use is None and len(self._modelled(part).levels) < 2:
                raise ValueError(f'cohort: {part.name} has fewer than two levels in the cohort: give it use = "cohort"')

    def _modelled(self, part: NumberColumn | CategoryColumn) -> Column:
        """Return a column as the model reads it: of a category, with the levels that the cohort can have."""
        column = part.column()
        allowed = [rule.one_of for rule in self.cohort or () if rule.column == part.name and rule.one_of is not None]
        if not column.is_category or not allowed:
            return column
        return replace(column, levels=tuple(each for each in column.levels if all(each in some for some in allowed)))

    def _check_way(self) -> None:
        private = self.method is not None and self.method.name == "PrivateScoring"
        if (self.way == "noise") != (self.privacy is not None):
            raise ValueError(
                'trust: a study with trust = "noise", and no other, has a table [privacy] with its epsilon'
            )
        if private != (self.way == "noise"):
            raise ValueError("method: a study with noise, and no other, has the method PrivateScoring")
        if private and self.method is not None and self.method.settings:
            raise ValueError("method: PrivateScoring has its settings in the table [privacy]")
        if self.way == "limits" and not self.is_one_file:
            raise ValueError(
                'trust: limits are for one file; rounds need trust = "coordinator" (a contract), or trust = "noise"'
            )
        if private:
            self._check_noise()

    def _check_noise(self) -> None:
        """Check what private scoring cannot do."""
        if len(self.model.experts) > 1:
            raise ValueError("model.experts: private scoring fits one number of experts; choose it in advance")
        if self.privacy is not None and self.privacy.start == "private":
            self._check_private_start()
        if self.model.exposure is not None:
            raise ValueError("model.exposure: private scoring is not offered with exposures")
        if self.model.clients is not None:
            raise ValueError(
                "model.clients: a study with noise has no clients, since its dictionary does not say what their rows "
                "have in common; protect persons by privacy.unit = {column = ..., rows = ...}, which have no one label"
            )

    def _check_private_start(self) -> None:
        """Check that there is a private start for the model."""
        if self.model.experts != [2] or not FAMILIES[self.model.family].squares_tell:
            raise ValueError(
                'privacy.start: "private" is for two Gaussian experts; other models start from a file, such as the fit '
                "of a site that may release it"
            )
        if self.response_range is None:
            raise ValueError(
                f'privacy.start: "private" needs the range of the response: low and high of {self.model.response}'
            )

    @property
    def response_range(self) -> tuple[float, float] | None:
        """Public range of the response as it is modelled; None if the study states none."""
        rule = self.response.rule
        if rule.low is None or rule.high is None:
            return None
        low, high = rule.values(np.array([rule.low, rule.high]))
        return float(low), float(high)

    def _check_response(self) -> None:
        family = FAMILIES[self.model.family]
        is_category = isinstance(self._column(self.model.response), CategoryColumn)
        if is_category != family.classes:
            fitting = [name for name, kind in FAMILIES.items() if kind.classes == is_category]
            raise ValueError(
                f"model.response: a response of kind {'category' if is_category else 'number'} does not fit family "
                f"{self.model.family!r}; use {' or '.join(fitting)}"
            )
        others = {self.model.response, self.model.exposure}
        read = [*(self.model.gate_columns or ()), *(self.model.expert_columns or ())]
        if others & set(read):
            raise ValueError("model: the response or the exposure is among gate_columns or expert_columns")
        if self.model.exposure is not None and family.size_name is None:
            raise ValueError(f"model.exposure: family {self.model.family!r} has none; leave it out")
        self._check_read_as_they_are()

    def _check_read_as_they_are(self) -> None:
        real = [name for name, kind in FAMILIES.items() if kind.link == "identity" and not kind.classes]
        for name in filter(None, (self.model.response, self.model.exposure)):
            rule, is_response = self._column(name).column().rule, name == self.model.response
            if rule.transform != "none" and not (is_response and self.model.family in real):
                families = " or ".join(map(repr, real))
                raise ValueError(f"columns: {name} has a transform: only a response of family {families} may have one")
            if rule.centre != 0 or rule.scale != 1 or rule.fill is not None:
                raise ValueError(
                    f"columns: {name} is the response or the exposure, which has no centre, scale and fill"
                )

    def _column(self, name: str) -> NumberColumn | CategoryColumn:
        return next(column for column in self.columns if column.name == name)

    @property
    def covariates(self) -> Dictionary:
        """Dictionary of the covariates of the model: the terms of its formula, otherwise :attr:`sources`."""
        known = {column.name: column for column in self.sources.columns}
        names = known if self.derivation is None else self.derivation.columns
        return Dictionary(tuple(known.get(name, Column(name)) for name in names))

    @cached_property
    def derivation(self) -> Derivation | None:
        """The terms of the formula; None without a formula."""
        return derivation_of(self)

    @property
    def sources(self) -> Dictionary:
        """Columns that covariates are read from: all but the response, the exposure and those for the cohort alone."""
        others = {self.model.response, self.model.exposure}
        others |= {column.name for column in self.columns if column.use is not None}
        return Dictionary(tuple(self._modelled(column) for column in self.columns if column.name not in others))

    @property
    def response(self) -> Column:
        """Column of the response."""
        return self._modelled(self._column(self.model.response))

    @property
    def response_term(self) -> str:
        """Name of what is modelled: of the column of the response, with its transform."""
        return self.response.name if self.response.is_category else self.response.terms[0]

    @property
    def classes(self) -> tuple[Any, ...] | None:
        """Sorted classes of a categorical response; None for numbers."""
        levels: tuple[Any, ...] = self.response.levels
        return tuple(sorted(levels)) if levels else None

    @property
    def identity(self) -> str:
        """Hash of all that the study says but its words, in canonical form, as ``sha256:...``."""
        return content_hash(self.model_dump(exclude_none=True, exclude={"words"}))

    def to_text(self, comments: dict[str, str] | None = None) -> str:
        """Return the study as TOML text."""
        return write_toml(self.model_dump(exclude_none=True), comments)
