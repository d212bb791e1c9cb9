"""A fitted model as a value, and as JSON text with a published schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from consilience.columns import Dictionary
from consilience.errors import InvalidInputError, MessageError
from consilience.files import schema
from consilience.files.json_text import parsed, written
from consilience.files.numbers import array, listed, number, real, vector
from consilience.files.saved_columns import column_document, column_of
from consilience.files.saved_inference import inference_document, inference_of
from consilience.files.saved_mixture import mixture_document, mixture_of
from consilience.fit.inference import Inference
from consilience.fit.parameters import parameters
from consilience.fit.start_ends import StartEnds
from consilience.fit.stop import Stop, StopReason
from consilience.model.design import Design
from consilience.model.mixture import Mixture
from consilience.model.received import check_design
from consilience.numerics.arrays import Array

FORMAT = "consilience model"
VERSION = 1
"""Version of the format that is written; all versions up to it are read."""
PARTS = ("experts", "gate")


@dataclass(frozen=True, eq=False)
class SavedFit:
    """What is kept of the fit besides its parameters.

    Parameters
    ----------
    log_likelihood : float
    n_parameters : int
    effective_parameters : float
        Number of parameters that the rows determine: fewer if some are borrowed from other sites.
    n_labels, n_rows : float
        Total weight of the rows or number of groups, and number of rows.
    weights : (K,) array
        Mean weight of each expert.
    stop : StopReason or MethodStop
    n_iter : int
    trace : (n_iter,) array
        Log-likelihood at each iteration.
    starts : StartEnds
    coordinates : (Design, Design)
        Coordinates of experts and gate in which the fit was made.
    single_bic : float or None
        BIC of one expert on the same rows, if it is known.
    doubts : tuple of str
        Reasons not to trust the fit as a whole.
    unidentified : tuple of str
        Covariates that are linear functions of others, as sentences.
    degeneracy : str
        Why the fit is degenerate; empty if it is not.

    Examples
    --------
    >>> plane, one = Design.raw(2), np.ones(1)
    >>> fit = SavedFit(-3.0, 2, 2.0, 9.0, 9.0, one, StopReason.MAX_ITER, 1, -one, StartEnds(), (plane, plane))
    >>> fit.stop.converged, fit.degeneracy
    (False, '')
    """

    log_likelihood: float
    n_parameters: int
    effective_parameters: float
    n_labels: float
    n_rows: float
    weights: Array
    stop: Stop
    n_iter: int
    trace: Array
    starts: StartEnds
    coordinates: tuple[Design, Design]
    single_bic: float | None = None
    doubts: tuple[str, ...] = ()
    unidentified: tuple[str, ...] = ()
    degeneracy: str = ""


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A fitted model: what it was asked for, its columns, its parameters and how certain they are.

    Parameters
    ----------
    estimator : str
        Name of the class of the estimator.
    parameters : mapping
        Its constructor parameters, as JSON values.
    columns : Dictionary
        Columns of ``X``.
    terms : tuple of str
        Names of the coefficients.
    mixture : Mixture
        On raw covariates.
    inference : Inference
        Of the parameters of ``mixture``.
    fit : SavedFit
    provenance : mapping
        ``library`` and ``saved``, and of a federated fit ``n_sites`` and perhaps ``site_names``.
    named : bool
        Whether ``X`` had names.
    frame : str or None
        Library of the frame that ``X`` was.
    classes : (C,) array or None
    size : str or None
        Name of the size of the rows, ``"exposure"`` or ``"trials"``.

    Examples
    --------
    >>> from consilience.files import SavedModel
    >>> SavedModel.from_text('{"format": "consilience model", "version": 2}')
    Traceback (most recent call last):
    ...
    consilience.errors.InvalidInputError: the model has format 2; this version of the library reads formats up to 1: \
upgrade consilience
    """

    estimator: str
    parameters: Mapping[str, Any]
    columns: Dictionary
    terms: tuple[str, ...]
    mixture: Mixture
    inference: Inference
    fit: SavedFit
    provenance: Mapping[str, Any] = field(default_factory=dict)
    named: bool = False
    frame: str | None = None
    classes: np.ndarray | None = None
    size: str | None = None

    def to_text(self) -> str:
        """Return the model as JSON text."""
        optional = {"frame": self.frame, "classes": _classes_document(self.classes), "size": self.size}
        return written(
            {
                "format": FORMAT,
                "version": VERSION,
                "provenance": dict(self.provenance),
                "estimator": {"class": self.estimator, "parameters": dict(self.parameters)},
                "columns": [column_document(column) for column in self.columns.columns],
                "named": self.named,
                **{name: value for name, value in optional.items() if value is not None},
                "terms": list(self.terms),
                "mixture": mixture_document(self.mixture),
                "fit": _fit_document(self.fit),
                "inference": inference_document(self.inference, self.terms),
            }
        )

    @classmethod
    def from_text(cls, text: str) -> SavedModel:
        """Read a model from JSON text; raise an :class:`~consilience.errors.InvalidInputError` if it is not valid."""
        document = parsed(text)
        _check_version(document)
        if problem := schema.problem(document, schema.published(VERSION)):
            raise InvalidInputError(f"not a valid model: {problem}")
        try:
            with np.errstate(all="ignore"):
                return cls(**_fields(document))
        except MessageError as error:
            raise InvalidInputError(f"not a valid model: {error}") from error


def _check_version(document: Any) -> None:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InvalidInputError(f'not a saved model: expected an object with "format": "{FORMAT}"')
    version = document.get("version")
    if type(version) is int and version > VERSION:
        raise InvalidInputError(
            f"the model has format {version}; this version of the library reads formats up to {VERSION}: "
            "upgrade consilience"
        )


def _fields(document: dict[str, Any]) -> dict[str, Any]:
    terms, mixture = tuple(document["terms"]), mixture_of(document["mixture"])
    if len(terms) != mixture.design.p:
        raise InvalidInputError(f"the model has {len(terms)} terms for {mixture.design.p} coefficients of an expert")
    return {
        "estimator": document["estimator"]["class"],
        "parameters": document["estimator"]["parameters"],
        "columns": Dictionary(tuple(column_of(each) for each in document["columns"])),
        "terms": terms,
        "mixture": mixture,
        "inference": inference_of(document["inference"], parameters(mixture), terms),
        "fit": _fit_of(document["fit"], mixture),
        "provenance": document["provenance"],
        "named": document["named"],
        "frame": document.get("frame"),
        "classes": _classes_of(document.get("classes")),
        "size": document.get("size"),
    }


# ---------------------------------------------------------------- classes


def _classes_document(classes: np.ndarray | None) -> dict[str, Any] | None:
    if classes is None:
        return None
    kind = "str" if classes.dtype.kind == "U" else classes.dtype.name
    return {"type": kind, "values": classes.tolist()}


def _classes_of(document: dict[str, Any] | None) -> np.ndarray | None:
    if document is None:
        return None
    values, kind = document["values"], document["type"]
    try:
        classes = np.array(values, dtype=kind)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInputError(f"the classes are not of type {kind}") from error
    if classes.tolist() != values:
        raise InvalidInputError(f"the classes are not of type {kind}")
    if len({isinstance(value, str) for value in values}) > 1 or any(a >= b for a, b in pairwise(values)):
        raise InvalidInputError("the classes are of several types, or not in increasing order")
    return classes


# ---------------------------------------------------------------- fit


def _fit_document(fit: SavedFit) -> dict[str, Any]:
    return {
        "log_likelihood": number(fit.log_likelihood),
        "n_parameters": fit.n_parameters,
        "effective_parameters": fit.effective_parameters,
        "n_labels": fit.n_labels,
        "n_rows": fit.n_rows,
        "weights": listed(fit.weights),
        "stop_reason": fit.stop.name.lower(),
        "n_iter": fit.n_iter,
        "trace": listed(fit.trace),
        "starts": {"values": listed(np.array(fit.starts.values)), "kinds": list(fit.starts.kinds)},
        "starts_agree": fit.starts.agree,
        "single_bic": None if fit.single_bic is None else number(fit.single_bic),
        "coordinates": {part: _design_document(design) for part, design in zip(PARTS, fit.coordinates, strict=True)},
        "doubts": list(fit.doubts),
        "unidentified": list(fit.unidentified),
        "degeneracy": fit.degeneracy,
    }


def _design_document(design: Design) -> dict[str, Any]:
    found: dict[str, Any] = {"centre": listed(design.centre), "scale": listed(design.scale)}
    if design.columns is not None and design.others is not None:
        found |= {"columns": list(design.columns), "others": listed(design.others)}
    return found


def _design_of(document: dict[str, Any], part: str, mixture: Mixture) -> Design:
    """Return the coordinates in a JSON object, of as many covariates as the mixture has."""
    m, name = len(document["centre"]), f"fit.coordinates.{part}"
    columns, others = document.get("columns"), document.get("others")
    design = Design(
        vector(document["centre"], m, f"{name}.centre"),
        vector(document["scale"], m, f"{name}.scale"),
        mixture.design.intercept,
        None if columns is None else tuple(int(each) for each in columns),
        None if others is None else array(others, [2], f"{name}.others"),
    )
    check_design(design)
    if design.d != mixture.design.d:
        raise InvalidInputError(f"{name} has {design.d} covariates; the mixture has {mixture.design.d}")
    return design


def _fit_of(document: dict[str, Any], mixture: Mixture) -> SavedFit:
    kinds = tuple(document["starts"]["kinds"])
    starts = StartEnds(tuple(vector(document["starts"]["values"], len(kinds), "fit.starts.values").tolist()), kinds)
    if starts.agree != document["starts_agree"]:
        raise InvalidInputError("fit.starts_agree contradicts fit.starts")
    plain = ("effective_parameters", "n_labels", "n_rows", "degeneracy")
    return SavedFit(
        log_likelihood=real(document["log_likelihood"]),
        n_parameters=int(document["n_parameters"]),
        weights=vector(document["weights"], mixture.K, "fit.weights"),
        stop=StopReason[document["stop_reason"].upper()],
        n_iter=int(document["n_iter"]),
        trace=vector(document["trace"], len(document["trace"]), "fit.trace"),
        starts=starts,
        coordinates=(
            _design_of(document["coordinates"]["experts"], "experts", mixture),
            _design_of(document["coordinates"]["gate"], "gate", mixture),
        ),
        single_bic=None if document["single_bic"] is None else real(document["single_bic"]),
        doubts=tuple(document["doubts"]),
        unidentified=tuple(document["unidentified"]),
        **{name: document[name] for name in plain},
    )
