"""The one file that leaves a site: its fit, readable, with a content hash, and an envelope around it.

The *content* is a function of the study and of the rows: it is the same to the byte whenever and wherever it is
computed. The *envelope* says when it was fitted, where in the site's ledger, and who signed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import ConfigDict, Field, StringConstraints

from consilience.aggregate import CovariateSummary, SiteModel
from consilience.errors import InvalidInputError, MessageError
from consilience.files import documents
from consilience.files.documents import Finite, MixtureDocument, NotNegative, Numbers, Part, StopEntry, Text
from consilience.files.json_text import content_hash, parse_json, write_json
from consilience.messages import LocalFit
from consilience.messages.checks import check_covariates, check_fit, check_site_model, check_summary
from consilience.model import ColumnSummary
from consilience.numerics.arrays import Array, pack, unpack

FORMAT = "consilience site file"
VERSION = 1
"""Version of the format that is written; all versions up to it are read."""
UNPROTECTED = {"mechanism": "none"}
"""What is said of noise: there is none. Thresholds are no guarantee."""
LONGEST = 100_000
"""Maximum length of a list."""


@dataclass(frozen=True, eq=False)
class SiteFile:
    """What a site sends: its own fit for a study.

    Parameters
    ----------
    study : str
        Identity of the study, ``sha256:...``.
    site : str
        Name of the site.
    terms : tuple of str
        Names of the coefficients of an expert, in order.
    fit : LocalFit
    evidence : mapping
        Which policy was applied, and the result of each of its rules; no counts.
    envelope : mapping
        Time, position in the ledger and signature; not part of the content.
    flow : FlowDocument, optional
        About how many rows were left out, and why.
    wave, data_cut : str, optional
        Wave of the study, and the day ``YYYY-MM-DD`` until which the data reach, as the site states them.
    """

    study: str
    site: str
    terms: tuple[str, ...]
    fit: LocalFit
    evidence: Mapping[str, Any] = field(default_factory=dict)
    envelope: Mapping[str, Any] = field(default_factory=dict)
    flow: FlowDocument | None = None
    wave: str | None = None
    data_cut: str | None = None

    @property
    def content(self) -> dict[str, Any]:
        """The content as a JSON object."""
        return ContentDocument.of(self)

    @property
    def hash(self) -> str:
        """Hash of the content's canonical bytes, ``sha256:...``."""
        return content_hash(self.content)

    def to_text(self) -> str:
        """Return the file as JSON text."""
        return write_hashed(FORMAT, VERSION, self.content, self.envelope)

    @classmethod
    def from_text(cls, text: str) -> SiteFile:
        """Read a file from JSON text; raise an error if it is damaged, was changed, or is no site file."""
        found, fit = read_hashed(text, SiteDocument, FORMAT, VERSION, "site file")
        content = found.content
        head = (content.study, content.site, tuple(content.terms))
        stated = (content.flow, content.wave, content.data_cut)
        return cls(*head, fit, content.evidence, found.envelope, *stated)


# ---------------------------------------------------------------- content with its hash


def write_hashed(form: str, version: int, content: Mapping[str, Any], envelope: Mapping[str, Any]) -> str:
    """Return a file that states the hash of its content, as JSON text."""
    head = {"format": form, "version": version, "hash": content_hash(content)}
    return write_json({**head, "content": dict(content), "envelope": dict(envelope)})


def read_hashed(text: str, kind: type[Any], form: str, version: int, name: str) -> tuple[Any, Any]:
    """Return the document of a file, and the value of its content.

    Raises
    ------
    InvalidInputError
        If the file is damaged, was changed, or is no such file.
    """
    document = parse_json(text, "a site file")
    documents.check_version(document, form, version, name)
    found = documents.validated(kind, document, name)
    if content_hash(document["content"]) != found.hash:
        raise InvalidInputError("the content does not have the hash that the file states: it was changed or damaged")
    try:
        with np.errstate(all="ignore"):
            return found, found.content.value()
    except MessageError as error:
        raise InvalidInputError(f"not a valid {name}: {error}") from error


# ---------------------------------------------------------------- the parts of the file

Vector = Annotated[Any, Numbers((1,), finite=True, longest=LONGEST)]
Matrix = Annotated[Any, Numbers((2,), finite=True, longest=LONGEST)]
Cube = Annotated[Any, Numbers((3,), finite=True, longest=LONGEST)]
Count = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Digest = Annotated[str, StringConstraints(min_length=71, max_length=71)]


class PrivacyDocument(Part):
    """No noise was added: rules on counts are no guarantee."""

    mechanism: Literal["none"]


class SummaryDocument(Part):
    """Number of rows; means of covariates and responses; sums of products of their differences from the means."""

    rows: Count
    covariate_means: Vector
    covariate_products: Matrix
    response_means: Vector
    response_products: Matrix

    @classmethod
    def of(cls, summary: ColumnSummary) -> dict[str, Any]:
        """Return a summary as JSON."""
        return documents.document_of(
            summary,
            cls,
            rows=summary.weight,
            covariate_means=summary.x_mean,
            covariate_products=summary.x_products,
            response_means=summary.y_mean,
            response_products=summary.y_products,
        )

    def value(self) -> ColumnSummary:
        """Return the summary."""
        x, y = self.covariate_means, self.response_means
        summary = ColumnSummary(
            self.rows,
            x,
            symmetric(self.covariate_products, (len(x), len(x)), "columns.covariate_products"),
            y,
            symmetric(self.response_products, (len(y), len(y)), "columns.response_products"),
        )
        check_summary(summary)
        return summary


class CovariatesDocument(Part):
    """A small mixture that summarises the covariates.

    It is Gaussian in columns with many values, and has shares of the values in the others.
    """

    weights: Vector
    means: Matrix
    covariances: Cube
    levels: Annotated[list[Vector], Field(max_length=10_000)]
    shares: Annotated[list[Matrix], Field(max_length=10_000)]

    @classmethod
    def of(cls, summary: CovariateSummary) -> dict[str, Any]:
        """Return a summary of covariates as JSON."""
        return documents.document_of(summary, cls, covariances=unpack(summary.covariances))

    def value(self) -> CovariateSummary:
        """Return the summary of covariates."""
        G, many = len(self.weights), sum(not len(values) for values in self.levels)
        if len(self.levels) != len(self.shares):
            raise InvalidInputError("model.covariates has levels and shares of different numbers of columns")
        pairs = zip(self.shares, self.levels, strict=True)
        summary = CovariateSummary(
            self.weights,
            documents.shaped(self.means, (G, many), "covariates.means"),
            pack(symmetric(self.covariances, (G, many, many), "covariates.covariances")),
            tuple(self.levels),
            tuple(documents.shaped(share, (G, len(values)), "covariates.shares") for share, values in pairs),
        )
        check_covariates(summary)
        return summary


class SiteModelDocument(Part):
    """A mixture with its moments.

    Second moments are, for each Gaussian expert, the sum of responsibilities times products of terms. The precision is,
    for each expert, the inverse covariance of its coefficients.
    """

    mixture: MixtureDocument
    weight: Count
    log_likelihood: Finite
    exposure: NotNegative
    label_counts: Vector
    rows_of_experts: Vector
    second_moments: Cube | None = None
    precision: Cube | None = None
    covariates: CovariatesDocument | None = None

    @classmethod
    def of(cls, model: SiteModel) -> dict[str, Any]:
        """Return a model as JSON."""
        return documents.document_of(
            model,
            cls,
            mixture=MixtureDocument.of(model.mixture),
            rows_of_experts=model.mass,
            second_moments=unpack(model.second) if len(model.second) else None,
            precision=unpack(model.precision) if len(model.precision) else None,
            covariates=None if model.covariates is None else CovariatesDocument.of(model.covariates),
        )

    def value(self) -> SiteModel:
        """Return the model."""
        mixture = self.mixture.value()
        model = SiteModel(
            mixture,
            self.weight,
            documents.shaped(self.label_counts, (mixture.K,), "model.label_counts"),
            documents.shaped(self.rows_of_experts, (mixture.K,), "model.rows_of_experts"),
            _packed(self.second_moments, "model.second_moments"),
            self.log_likelihood,
            _packed(self.precision, "model.precision"),
            None if self.covariates is None else self.covariates.value(),
            self.exposure,
        )
        check_site_model(model)
        return model


def symmetric(values: Array, shape: tuple[int, ...], name: str) -> Array:
    """Return symmetric matrices of this shape; raise an error if they are something else."""
    found = documents.shaped(values, shape, name)
    if not np.array_equal(found, np.swapaxes(found, -1, -2)):
        raise InvalidInputError(f"{name} has a matrix that is not symmetric")
    return found


def _packed(values: Array | None, name: str) -> Array:
    """Return symmetric matrices as triangles, of which there may be none."""
    if values is None or not values.size:
        return np.empty((0, 0))
    return pack(symmetric(values, (len(values), values.shape[-1], values.shape[-1]), name))


class CountDocument(Part):
    """A set of rows in words, and about how many they are."""

    of: Annotated[str, StringConstraints(min_length=1, max_length=10_000)]
    rows: Annotated[int, Field(ge=0, le=10**12)]


class FlowDocument(Part):
    """Rows that are not used: about how many each rule of the cohort leaves out, and how many lack a value.

    Numbers are multiples of the width, rounded up or down at random: the true one is less than the width away.
    """

    width: Annotated[int, Field(ge=1, le=10**12)]
    excluded: Annotated[list[CountDocument], Field(max_length=1000)]
    missing: Annotated[list[CountDocument], Field(max_length=1000)]
    left_out: Annotated[int, Field(ge=0, le=10**12)]


Wave = Annotated[str, StringConstraints(min_length=1, max_length=100), documents.Visible]
Day = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d{2}-\d{2}$")]


class ContentDocument(Part):
    """What was fitted: a function of the study and of the site's rows.

    Its hash is over canonical bytes: sorted keys, no spaces, UTF-8. The study is given by its identity, the SHA-256 of
    what it says. Terms are the names of the coefficients of an expert: the intercept and the covariates. The evidence
    is the policy that was applied, and the result of each rule, without counts.
    """

    study: Digest
    site: Text
    terms: Annotated[
        list[Annotated[str, StringConstraints(min_length=1, max_length=1000)]], Field(min_length=1, max_length=10_000)
    ]
    privacy: PrivacyDocument
    evidence: dict[str, Any]
    columns: SummaryDocument
    model: SiteModelDocument | None = None
    stop_reason: StopEntry | None = None
    flow: FlowDocument | None = None
    wave: Wave | None = None
    data_cut: Day | None = None

    @classmethod
    def of(cls, file: SiteFile) -> dict[str, Any]:
        """Return the content of a file as JSON."""
        fit = file.fit
        return documents.document_of(
            file,
            cls,
            privacy=dict(UNPROTECTED),
            evidence=dict(file.evidence),
            columns=SummaryDocument.of(fit.summary),
            model=None if fit.model is None else SiteModelDocument.of(fit.model),
            stop_reason=None if fit.stop is None else fit.stop.name.lower(),
            flow=None if file.flow is None else file.flow.model_dump(),
        )

    def value(self) -> LocalFit:
        """Return the fit; raise an error if its parts contradict each other."""
        model = None if self.model is None else self.model.value()
        if model is not None and model.mixture.design.p != len(self.terms):
            raise InvalidInputError(
                f"the file has {len(self.terms)} terms for {model.mixture.design.p} coefficients of an expert"
            )
        fit = LocalFit(self.columns.value(), model, self.stop_reason)
        check_fit(fit)
        return fit


class SiteDocument(Part):
    """The one file that leaves a site: its own fit for a study, without rows. All numbers are finite.

    The envelope says when it was fitted, at which place of the site's ledger, and who signed the content.
    """

    model_config = ConfigDict(
        title="Consilience site file, version 1",
        json_schema_extra={"$schema": "https://json-schema.org/draft/2020-12/schema"},
    )

    format: Literal["consilience site file"]
    version: Literal[1]
    hash: Digest
    content: ContentDocument
    envelope: dict[str, Any]
