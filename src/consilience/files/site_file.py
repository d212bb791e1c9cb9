"""The one file that leaves a site: its fit, readable, with a content hash, and an envelope around it.

The *content* is a function of the study and of the rows: it is the same to the byte whenever and wherever it is
computed. The *envelope* says when it was released, where in the site's ledger, and who signed it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from consilience.aggregate.combine.site_model import CovariateSummary, SiteModel
from consilience.errors import InvalidInputError, MessageError
from consilience.files import schema
from consilience.files.canonical import content_hash
from consilience.files.json_text import parsed, written
from consilience.files.numbers import array, listed, vector
from consilience.files.saved_mixture import mixture_document, mixture_of
from consilience.fit.stop import StopReason
from consilience.messages.questions import LocalFit
from consilience.messages.record_checks import check_covariates, check_fit, check_site_model, check_summary
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array, pack, unpack

FORMAT = "consilience site file"
VERSION = 1
"""Version of the format that is written; all versions up to it are read."""
UNPROTECTED = {"mechanism": "none"}
"""What is said of noise: there is none. Thresholds are no guarantee."""


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

    Examples
    --------
    >>> nothing = LocalFit(ColumnSummary.unit(1, 1), None, None)
    >>> file = SiteFile("sha256:" + 64 * "0", "north", ("(intercept)", "age"), nothing)
    >>> SiteFile.from_text(file.to_text()).hash == file.hash
    True
    """

    study: str
    site: str
    terms: tuple[str, ...]
    fit: LocalFit
    evidence: Mapping[str, Any] = field(default_factory=dict)
    envelope: Mapping[str, Any] = field(default_factory=dict)

    @property
    def content(self) -> dict[str, Any]:
        """The content as a JSON object."""
        model = self.fit.model
        return {
            "study": self.study,
            "site": self.site,
            "terms": list(self.terms),
            "privacy": dict(UNPROTECTED),
            "evidence": dict(self.evidence),
            "columns": _summary_document(self.fit.summary),
            **({} if model is None else {"model": _model_document(model)}),
            **({} if self.fit.stop is None else {"stop_reason": self.fit.stop.name.lower()}),
        }

    @property
    def hash(self) -> str:
        """Hash of the content's canonical bytes, ``sha256:...``."""
        return content_hash(self.content)

    def to_text(self) -> str:
        """Return the file as JSON text."""
        head = {"format": FORMAT, "version": VERSION, "hash": self.hash}
        return written({**head, "content": self.content, "envelope": dict(self.envelope)})

    @classmethod
    def from_text(cls, text: str) -> SiteFile:
        """Read a file from JSON text; raise an error if it is damaged, was changed, or is no site file."""
        document = parsed(text, "a site file")
        _check_version(document)
        if problem := schema.problem(document, schema.published(VERSION, "site")):
            raise InvalidInputError(f"not a valid site file: {problem}")
        if content_hash(document["content"]) != document["hash"]:
            raise InvalidInputError(
                "the content does not have the hash that the file states: it was changed or damaged"
            )
        try:
            with np.errstate(all="ignore"):
                return cls(**_fields(document))
        except MessageError as error:
            raise InvalidInputError(f"not a valid site file: {error}") from error


def _check_version(document: Any) -> None:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InvalidInputError(f'not a site file: expected an object with "format": "{FORMAT}"')
    version = document.get("version")
    if type(version) is int and version > VERSION:
        raise InvalidInputError(
            f"the site file has format {version}; this version of the library reads formats up to {VERSION}: "
            "upgrade consilience"
        )


def _fields(document: Mapping[str, Any]) -> dict[str, Any]:
    content = document["content"]
    terms = tuple(content["terms"])
    model = None if "model" not in content else _model_of(content["model"])
    if model is not None and model.mixture.design.p != len(terms):
        raise InvalidInputError(
            f"the file has {len(terms)} terms for {model.mixture.design.p} coefficients of an expert"
        )
    stop = None if "stop_reason" not in content else StopReason[content["stop_reason"].upper()]
    fit = LocalFit(_summary_of(content["columns"]), model, stop)
    check_fit(fit)
    return {
        "study": content["study"],
        "site": content["site"],
        "terms": terms,
        "fit": fit,
        "evidence": content["evidence"],
        "envelope": document["envelope"],
    }


# ---------------------------------------------------------------- columns


def _summary_document(summary: ColumnSummary) -> dict[str, Any]:
    """Return rows, means and centred products of covariates and responses."""
    return {
        "rows": summary.weight,
        "covariate_means": listed(summary.x_mean),
        "covariate_products": listed(summary.x_products),
        "response_means": listed(summary.y_mean),
        "response_products": listed(summary.y_products),
    }


def _summary_of(document: Mapping[str, Any]) -> ColumnSummary:
    summary = ColumnSummary(
        float(document["rows"]),
        _row(document["covariate_means"], "columns.covariate_means"),
        _square(document["covariate_products"], len(document["covariate_means"]), "columns.covariate_products"),
        _row(document["response_means"], "columns.response_means"),
        _square(document["response_products"], len(document["response_means"]), "columns.response_products"),
    )
    check_summary(summary)
    return summary


# ---------------------------------------------------------------- model


def _model_document(model: SiteModel) -> dict[str, Any]:
    """Return the mixture, its moments and the summary of the covariates."""
    found: dict[str, Any] = {
        "mixture": mixture_document(model.mixture),
        "weight": model.weight,
        "log_likelihood": model.log_likelihood,
        "exposure": model.exposure,
        "label_counts": listed(model.label_counts),
        "rows_of_experts": listed(model.mass),
    }
    for name, packed in (("second_moments", model.second), ("precision", model.precision)):
        if len(packed):
            found[name] = listed(unpack(packed))
    if model.covariates is not None:
        found["covariates"] = _covariates_document(model.covariates)
    return found


def _model_of(document: Mapping[str, Any]) -> SiteModel:
    mixture = mixture_of(document["mixture"])
    covariates = document.get("covariates")
    model = SiteModel(
        mixture,
        float(document["weight"]),
        vector(document["label_counts"], mixture.K, "model.label_counts"),
        vector(document["rows_of_experts"], mixture.K, "model.rows_of_experts"),
        _triangles(document.get("second_moments", []), "model.second_moments"),
        float(document["log_likelihood"]),
        _triangles(document.get("precision", []), "model.precision"),
        None if covariates is None else _covariates_of(covariates),
        float(document["exposure"]),
    )
    check_site_model(model)
    return model


def _covariates_document(summary: CovariateSummary) -> dict[str, Any]:
    return {
        "weights": listed(summary.weights),
        "means": listed(summary.means),
        "covariances": listed(unpack(summary.covariances)),
        "levels": [listed(values) for values in summary.levels],
        "shares": [listed(share) for share in summary.shares],
    }


def _covariates_of(document: Mapping[str, Any]) -> CovariateSummary:
    G = len(document["weights"])
    levels = tuple(_row(values, "covariates.levels") for values in document["levels"])
    if len(levels) != len(document["shares"]):
        raise InvalidInputError("model.covariates has levels and shares of different numbers of columns")
    shares = tuple(
        _table(part, (G, len(values)), "covariates.shares")
        for part, values in zip(document["shares"], levels, strict=True)
    )
    many = sum(not len(values) for values in levels)
    covariances = document["covariances"]
    if len(covariances) != G:
        raise InvalidInputError("model.covariates has covariances of another number of classes than weights")
    summary = CovariateSummary(
        _row(document["weights"], "covariates.weights"),
        _table(document["means"], (G, many), "covariates.means"),
        np.array([pack(_square(each, many, "covariates.covariances")) for each in covariances]),
        levels,
        shares,
    )
    check_covariates(summary)
    return summary


# ---------------------------------------------------------------- arrays


def _row(values: Sequence[Any], name: str) -> Array:
    return vector(values, len(values), name)


def _table(values: Sequence[Any], shape: tuple[int, int], name: str) -> Array:
    """Return a matrix of this shape, which may have no columns."""
    if len(values) != shape[0] or any(len(row) != shape[1] for row in values):
        raise InvalidInputError(f"{name} does not have the expected {shape[0]} × {shape[1]} numbers")
    return np.array(values, dtype=np.float64).reshape(shape)


def _square(values: Sequence[Any], size: int, name: str) -> Array:
    """Return a symmetric matrix."""
    found = _table(values, (size, size), name)
    if not np.array_equal(found, found.T):
        raise InvalidInputError(f"{name} is not symmetric")
    return found


def _triangles(values: Sequence[Any], name: str) -> Array:
    """Return packed symmetric matrices, of which there may be none."""
    if not len(values):
        return np.empty((0, 0))
    found = array(values, [3], name)
    if not np.array_equal(found, np.swapaxes(found, 1, 2)):
        raise InvalidInputError(f"{name} has a matrix that is not symmetric")
    return pack(found)
