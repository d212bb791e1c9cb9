"""A fitted model as JSON: the parts of its file as pydantic models, from which the published schema is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import ConfigDict, Field, StringConstraints, create_model

from consilience.columns import Column, Dictionary, Rule
from consilience.columns.derived import Derivation
from consilience.columns.dictionary import MOST_LEVELS, PLAIN, Missing
from consilience.columns.formula import LONGEST, MOST_DEGREES
from consilience.errors import InvalidInputError
from consilience.files import documents
from consilience.files.documents import WHOLE, Finite, NotNegative, Number, Part, Real, Vector, Words, jsonable
from consilience.files.saved_model import FORMAT, VERSION, SavedFit, SavedModel
from consilience.fit import StartEnds
from consilience.fit.inference import Between, Inference
from consilience.fit.parameters import Parameters, parameters
from consilience.model import Design, Mixture
from consilience.model.families.covariance import Structure
from consilience.model.received import check_design
from consilience.numerics.arrays import Array

WHOLE_UP_TO = 1_500
"""Number of parameters up to which the whole covariance is written; above, that of the gate and of each expert."""
LARGEST = 20_000
"""Number of parameters up to which a covariance is read."""

Level = Annotated[Words | bool | documents.Integer | Finite, documents.expecting("text, a number, true or false")]
Place = Annotated[int, Field(ge=0, le=10**6), WHOLE]
Features = Annotated[
    list[Annotated[Words | Place, documents.expecting("the name or the index of a column")]], Field(max_length=100_000)
]
Names = Annotated[list[Words], Field(max_length=10**6)]
Sentences = Annotated[list[Words], Field(max_length=1000)]
Count = Annotated[int, Field(ge=1, le=10**9), WHOLE]
Natural = Annotated[int, Field(ge=0, le=10**9), WHOLE]

# ---------------------------------------------------------------- estimators


class ClimbParameters(Part):
    """Constructor parameters of every estimator."""

    n_init: Count
    max_iter: Count
    tol: NotNegative
    random_state: Annotated[int, Field(ge=0, le=2**32 - 1), WHOLE] | None
    verbose: bool


class ConditionalParameters(ClimbParameters):
    """Those of estimators with covariates."""

    fit_intercept: bool
    categorical_features: Annotated[
        Literal["from_dtype"] | Features, documents.expecting('"from_dtype" or a list of names or indices of columns')
    ]
    reference_levels: dict[str, Level] | None
    unknown_levels: Literal["error", "reference", "average"] = "error"
    formula: Annotated[str, StringConstraints(max_length=LONGEST)] | None = None
    gate_ridge: NotNegative
    expert_ridge: NotNegative | None


class ShapeParameters(Part):
    """Those of estimators with several families, of which the mixture names one."""

    family: Words
    covariance_type: Structure
    degrees_of_freedom: NotNegative | None
    shared: Features | None = None
    reg_covar: NotNegative
    shape_ratio: NotNegative = 100.0


class ExpertParameters(ConditionalParameters):
    """Those of estimators with a gate on covariates."""

    n_experts: Annotated[int, Field(ge=1, le=10**6), WHOLE]
    gate_features: Features | None
    expert_features: Features | None


class RegressorParameters(ExpertParameters, ShapeParameters):
    """Those of a mixture of experts for regression."""


class ClassifierParameters(ExpertParameters):
    """Those of a mixture of experts for classes."""

    gate: Words


class RegressionsParameters(ConditionalParameters, ShapeParameters):
    """Those of a mixture of regressions."""

    n_components: Annotated[int, Field(ge=1, le=10**6), WHOLE]


class GaussianParameters(ClimbParameters):
    """Those of a Gaussian mixture."""

    n_components: Annotated[int, Field(ge=1, le=10**6), WHOLE]
    covariance_type: Structure
    reg_covar: NotNegative
    shape_ratio: NotNegative = 100.0


PARAMETERS: dict[str, type[Part]] = {
    "MixtureOfExpertsRegressor": RegressorParameters,
    "MixtureOfExpertsClassifier": ClassifierParameters,
    "MixtureOfRegressions": RegressionsParameters,
    "GaussianMixture": GaussianParameters,
}


@cache
def _estimator(name: str) -> type[Part]:
    if name not in PARAMETERS:
        raise InvalidInputError(f"class {name[:40]!r}: expected one of {', '.join(PARAMETERS)}")
    fields: dict[str, Any] = {"class": (Literal[name], ...), "parameters": (PARAMETERS[name], ...)}
    return create_model(name, __base__=Part, **fields)


# ---------------------------------------------------------------- columns and classes


class RuleDocument(Part):
    """What a study asks of the column. A covariate is (transform(x) - centre) / scale."""

    unit: Annotated[str, StringConstraints(max_length=100)] = PLAIN.unit
    low: Real | None = None
    high: Real | None = None
    missing: Missing = PLAIN.missing
    fill: Real | None = None
    transform: Literal["none", "log", "log1p", "sqrt"] = "none"
    centre: Real = PLAIN.centre
    scale: Real = PLAIN.scale


class ColumnDocument(Part):
    """A column of X. A category has an indicator for each level but the reference, the first one by default."""

    name: Words
    levels: Annotated[list[Level], Field(min_length=1, max_length=MOST_LEVELS)] | None = None
    reference: Level | None = None
    rule: RuleDocument | None = None

    @classmethod
    def of(cls, column: Column) -> dict[str, Any]:
        """Return a column as JSON, without what is as by default."""
        rule = {name: value for name, value in asdict(column.rule).items() if value != getattr(PLAIN, name)}
        return documents.document_of(column, cls, levels=column.levels or None, rule=rule or None)

    def value(self) -> Column:
        """Return the column."""
        levels = tuple(self.levels or ())
        if len({isinstance(level, str) for level in levels}) > 1:
            raise InvalidInputError(f"column {self.name[:40]!r} has levels of text and of numbers")
        rule = PLAIN if self.rule is None else Rule(**self.rule.model_dump())
        return Column(self.name, levels, self.reference, rule)


class DerivationDocument(Part):
    """Columns that a formula derives from the names of a table: levels and rules of its factors, and knots."""

    formula: Annotated[str, StringConstraints(min_length=1, max_length=LONGEST)]
    names: Names
    factors: Annotated[list[ColumnDocument], Field(max_length=1000)]
    knots: dict[Words, Annotated[list[Real], Field(min_length=3, max_length=MOST_DEGREES + 1)]]

    @classmethod
    def of(cls, derivation: Derivation) -> dict[str, Any]:
        """Return a derivation as JSON."""
        return {
            "formula": derivation.text,
            "names": list(derivation.names),
            "factors": [ColumnDocument.of(column) for column in derivation.factors],
            "knots": {label: list(knots) for label, knots in derivation.knots.items()},
        }

    def value(self) -> Derivation:
        """Return the derivation; raise an error if its parts contradict each other."""
        factors = tuple(column.value() for column in self.factors)
        knots = {str(label): tuple(map(float, each)) for label, each in self.knots.items()}
        return Derivation(self.formula, tuple(map(str, self.names)), factors, knots).checked()


class ClassesDocument(Part):
    """Classes of a categorical response, with their numpy type."""

    type: Literal[
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "str",
        "object",
    ]  # fmt: skip
    values: Annotated[list[Level], Field(min_length=2, max_length=10_000)]

    @classmethod
    def of(cls, classes: np.ndarray) -> dict[str, Any]:
        """Return classes as JSON."""
        return {"type": "str" if classes.dtype.kind == "U" else classes.dtype.name, "values": classes.tolist()}

    def value(self) -> np.ndarray:
        """Return the classes; raise an error if they are not of their type, or not in order."""
        values: list[Any] = self.values
        try:
            classes = np.array(values, dtype=self.type)
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidInputError(f"the classes are not of type {self.type}") from error
        if classes.tolist() != values:
            raise InvalidInputError(f"the classes are not of type {self.type}")
        if len({isinstance(value, str) for value in values}) > 1 or any(a >= b for a, b in pairwise(values)):
            raise InvalidInputError("the classes are of several types, or not in increasing order")
        return classes


# ---------------------------------------------------------------- fit


class DesignDocument(Part):
    """Coordinates: centre and scale of the covariates that are read.

    If some are linear functions of others, columns are those that are read, and others the coefficients.
    """

    centre: Vector
    scale: Vector
    columns: Annotated[list[Place], Field(max_length=10**6)] | None = None
    others: documents.Matrix | None = None

    def value(self, name: str, mixture: Mixture) -> Design:
        """Return the coordinates, of as many covariates as the mixture has."""
        columns = None if self.columns is None else tuple(self.columns)
        scale = documents.shaped(self.scale, self.centre.shape, f"{name}.scale")
        design = Design(self.centre, scale, mixture.design.intercept, columns, self.others)
        check_design(design)
        if design.d != mixture.design.d:
            raise InvalidInputError(f"{name} has {design.d} covariates; the mixture has {mixture.design.d}")
        return design


class CoordinatesDocument(Part):
    """Location and scale of the covariates, in which describe() states effects."""

    experts: DesignDocument
    gate: DesignDocument


class StartsDocument(Part):
    """Penalised log-likelihood at the ends of the starts, and how these were made."""

    values: Vector
    kinds: Annotated[list[Words], Field(max_length=100_000)]


class FitDocument(Part):
    """What is kept of the fit besides its parameters.

    The effective parameters are those that the rows determine: fewer if some are borrowed from other sites. The number
    of labels is the total weight of the rows, or the number of groups.
    """

    log_likelihood: Number
    n_parameters: Natural
    effective_parameters: NotNegative
    n_labels: NotNegative
    n_rows: NotNegative
    weights: Vector
    stop_reason: documents.StopEntry
    n_iter: Count
    trace: Vector
    starts: StartsDocument
    starts_agree: bool
    single_bic: Number
    coordinates: CoordinatesDocument
    doubts: Sentences
    unidentified: Sentences
    degeneracy: Words

    @classmethod
    def of(cls, fit: SavedFit) -> dict[str, Any]:
        """Return a fit as JSON."""
        experts, gate = (documents.document_of(design, DesignDocument) for design in fit.coordinates)
        return documents.document_of(
            fit,
            cls,
            stop_reason=fit.stop.name.lower(),
            starts=documents.document_of(fit.starts, StartsDocument),
            starts_agree=fit.starts.agree,
            single_bic=np.nan if fit.single_bic is None else fit.single_bic,
            coordinates={"experts": experts, "gate": gate},
        )

    def value(self, mixture: Mixture) -> SavedFit:
        """Return the fit of a mixture."""
        kinds = tuple(self.starts.kinds)
        values = documents.shaped(self.starts.values, (len(kinds),), "fit.starts.values")
        starts = StartEnds(tuple(values.tolist()), kinds)
        if starts.agree != self.starts_agree:
            raise InvalidInputError("fit.starts_agree contradicts fit.starts")
        same = ("log_likelihood", "n_parameters", "effective_parameters", "n_labels", "n_rows", "n_iter", "trace")
        return SavedFit(
            **{name: getattr(self, name) for name in (*same, "degeneracy")},
            weights=documents.shaped(self.weights, (mixture.K,), "fit.weights"),
            stop=self.stop_reason,
            starts=starts,
            coordinates=(
                self.coordinates.experts.value("fit.coordinates.experts", mixture),
                self.coordinates.gate.value("fit.coordinates.gate", mixture),
            ),
            single_bic=None if np.isnan(self.single_bic) else self.single_bic,
            doubts=tuple(self.doubts),
            unidentified=tuple(self.unidentified),
        )


# ---------------------------------------------------------------- standard errors


class UnidentifiedDocument(Part):
    """Terms without an identified coefficient."""

    gate: Names
    experts: Names

    @classmethod
    def of(cls, known: Parameters | None, terms: Sequence[str]) -> dict[str, list[str]]:
        """Return the terms whose coefficients are not identified."""
        if known is None:
            return {"gate": [], "experts": []}
        missing = {"gate": np.isnan(known.gate).all(axis=0), "experts": np.isnan(known.experts).all(axis=(0, 1))}
        return {part: [terms[int(i)] for i in np.flatnonzero(none)] for part, none in missing.items()}

    def value(self, estimates: Parameters, terms: Sequence[str]) -> Parameters | None:
        """Return 1 for parameters that are identified, NaN for others; None if all are."""
        if not self.gate and not self.experts:
            return None
        ones = estimates.like(np.ones(len(estimates.flat())))
        place = {term: i for i, term in enumerate(terms)}
        for part, names, values in (("gate", self.gate, ones.gate), ("experts", self.experts, ones.experts)):
            unknown = [term for term in names if place.get(term, len(terms)) >= values.shape[-1]]
            if unknown:
                raise InvalidInputError(f"inference.not_identified.{part} has {unknown[0][:40]!r}, which is not a term")
            values[..., [place[term] for term in names]] = np.nan
        return ones


class BlockDocument(Part):
    """A block on the diagonal of the covariance as lower triangle: row i has i + 1 numbers."""

    first: Natural
    rows: Annotated[list[Vector], Field(min_length=1, max_length=LARGEST)]

    @classmethod
    def of(cls, inference: Inference) -> list[dict[str, Any]]:
        """Return the blocks that are known as JSON."""
        blocks = ((first, inference.covariance[first:end, first:end]) for first, end in _blocks(inference.estimates))
        return [
            {"first": first, "rows": [jsonable(row[: i + 1]) for i, row in enumerate(block)]}
            for first, block in blocks
            if not np.all(np.isnan(block))
        ]


def _blocks(estimates: Parameters) -> Iterator[tuple[int, int]]:
    """Yield first and last place of the blocks of the covariance that are written."""
    gate, experts, K = estimates.gate.size, estimates.experts.size, len(estimates.experts)
    D = gate + experts + estimates.log_shapes.size
    if D <= WHOLE_UP_TO:
        yield 0, D
        return
    yield 0, gate
    for k in range(K):
        yield gate + k * experts // K, gate + (k + 1) * experts // K
    for i in range(gate + experts, D):
        yield i, i + 1


def _covariance(blocks: Sequence[BlockDocument], D: int) -> Array:
    """Return the covariance ``(D, D)`` of blocks, NaN elsewhere."""
    if not blocks:
        return np.broadcast_to(np.nan, (D, D))
    if D > LARGEST:
        raise InvalidInputError(f"the mixture has {D} parameters; a covariance is read for at most {LARGEST}")
    covariance = np.full((D, D), np.nan)
    end = 0
    for b, block in enumerate(blocks):
        first, rows = block.first, block.rows
        if not end <= first <= D - len(rows):
            raise InvalidInputError(f"inference.covariance[{b}] overlaps another block, or is beyond {D} parameters")
        for i, row in enumerate(rows):
            values = documents.shaped(row, (i + 1,), f"inference.covariance[{b}].rows[{i}]")
            covariance[first + i, first : first + i + 1] = covariance[first : first + i + 1, first + i] = values
        end = first + len(rows)
    if np.any(np.isinf(covariance)) or np.any(np.diagonal(covariance) < 0):
        raise InvalidInputError("inference.covariance has variances that are negative or infinite")
    return covariance


class BetweenDocument(Part):
    """Heterogeneity between sites of each reported parameter."""

    I2: Vector
    tau2: Vector


class InferenceDocument(Part):
    """Standard errors of the reported parameters: gate (K, p) or (K, 1), experts (K, c, p), log shapes (K, s).

    The covariance is of all of them, row by row; what is in no block is not known. A part of which intervals are not
    shown has a reason in withheld.
    """

    kind: Literal[
        "observed",
        "sandwich",
        "larger",
        "bootstrap",
        "simulated",
        "summed",
        "between sites",
        "clustered by site",
        "private",
    ]
    decrement: Number
    withheld: dict[Annotated[str, StringConstraints(pattern=r"^(gate|experts|shapes|expert \d{1,6})$")], Words]
    not_identified: UnidentifiedDocument
    covariance: Annotated[list[BlockDocument], Field(max_length=100_000)]
    degrees_of_freedom: Vector | None = None
    between_sites: BetweenDocument | None = None
    clusters: Count | None = None

    @classmethod
    def of(cls, inference: Inference, terms: Sequence[str]) -> dict[str, Any]:
        """Return standard errors as JSON; ``terms`` are the names of the coefficients."""
        between = inference.between
        return documents.document_of(
            inference,
            cls,
            withheld=dict(inference.withheld),
            not_identified=UnidentifiedDocument.of(inference.identified, terms),
            covariance=BlockDocument.of(inference),
            degrees_of_freedom=inference.degrees,
            between_sites=between and {"I2": jsonable(between.I2.flat()), "tau2": jsonable(between.tau2.flat())},
            clusters=inference.clusters or None,
        )

    def value(self, estimates: Parameters, terms: Sequence[str]) -> Inference:
        """Return the standard errors of known estimates."""
        shape, between = estimates.flat().shape, self.between_sites
        degrees = self.degrees_of_freedom
        return Inference(
            estimates,
            _covariance(self.covariance, shape[0]),
            self.kind,
            self.decrement,
            {str(part): reason for part, reason in self.withheld.items()},
            None if degrees is None else documents.shaped(degrees, shape, "inference.degrees_of_freedom"),
            None if between is None else Between(
                estimates.like(documents.shaped(between.I2, shape, "inference.between_sites.I2")),
                estimates.like(documents.shaped(between.tau2, shape, "inference.between_sites.tau2")),
            ),
            self.not_identified.value(estimates, terms),
            self.clusters or 0,
        )  # fmt: skip


# ---------------------------------------------------------------- the file


class ProvenanceDocument(Part):
    """Library that wrote the file, date and time (ISO 8601, UTC); of a federated fit its sites, noise and kits."""

    library: Words
    saved: Words
    n_sites: Count | None = None
    site_names: Annotated[list[Words], Field(min_length=1, max_length=10**6)] | None = None
    privacy: Words | None = None
    kits: Words | None = None


class ModelDocument(Part):
    """A fitted mixture model. Numbers that are not finite are null (NaN), "Infinity" and "-Infinity"."""

    model_config = ConfigDict(
        title="Consilience model, version 1",
        json_schema_extra={"$schema": "https://json-schema.org/draft/2020-12/schema"},
    )

    format: Literal["consilience model"]
    version: Literal[1]
    provenance: ProvenanceDocument
    estimator: Annotated[Any, documents.TaggedUnion("class", PARAMETERS, _estimator)]
    columns: Annotated[list[ColumnDocument], Field(min_length=1, max_length=100_000)]
    named: bool
    frame: Literal["pandas", "polars", "pyarrow", "modin.pandas", "cudf"] | None = None
    classes: ClassesDocument | None = None
    size: Literal["exposure", "trials"] | None = None
    responses: Names | None = None
    derivation: DerivationDocument | None = None
    size_column: Words | None = None
    terms: Annotated[list[Words], Field(min_length=1, max_length=10**6)]
    mixture: documents.MixtureDocument
    fit: FitDocument
    inference: InferenceDocument

    @classmethod
    def of(cls, saved: SavedModel) -> dict[str, Any]:
        """Return a model as JSON."""
        return documents.document_of(
            saved,
            cls,
            format=FORMAT,
            version=VERSION,
            provenance=dict(saved.provenance),
            estimator={"class": saved.estimator, "parameters": dict(saved.parameters)},
            columns=[ColumnDocument.of(column) for column in saved.columns.columns],
            classes=None if saved.classes is None else ClassesDocument.of(saved.classes),
            responses=list(saved.responses) or None,
            derivation=None if saved.derivation is None else DerivationDocument.of(saved.derivation),
            mixture=documents.MixtureDocument.of(saved.mixture),
            fit=FitDocument.of(saved.fit),
            inference=InferenceDocument.of(saved.inference, saved.terms),
        )

    def value(self, chosen: Mapping[str, Any]) -> SavedModel:
        """Return the model, with its constructor parameters as they were read; raise an error if parts contradict."""
        terms, mixture = tuple(self.terms), self.mixture.value()
        if len(terms) != mixture.design.p:
            raise InvalidInputError(
                f"the model has {len(terms)} terms for {mixture.design.p} coefficients of an expert"
            )
        return SavedModel(
            getattr(self.estimator, "class"),
            chosen,
            Dictionary(tuple(column.value() for column in self.columns)),
            terms,
            mixture,
            self.inference.value(parameters(mixture), terms),
            self.fit.value(mixture),
            self.provenance.model_dump(exclude_none=True),
            self.named,
            self.frame,
            None if self.classes is None else self.classes.value(),
            self.size,
            tuple(self.responses or ()),
            None if self.derivation is None else self.derivation.value(),
            self.size_column,
        )
