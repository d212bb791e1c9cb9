"""A fitted model as a value, and as JSON text with a published schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from consilience.columns import Dictionary
from consilience.columns.derived import Derivation
from consilience.errors import InvalidInputError, MessageError
from consilience.files.json_text import parse_json, write_json
from consilience.fit import Inference, StartEnds
from consilience.fit.climb import Stop
from consilience.model import Design, Mixture
from consilience.numerics.arrays import Array

FORMAT = "consilience model"
VERSION = 1
"""Version of the format that is written; all versions up to it are read."""


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
    >>> import numpy as np
    >>> from consilience.files import SavedFit
    >>> from consilience.fit import StartEnds
    >>> from consilience.model import Design
    >>> from consilience.fit import StopReason
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
        ``library`` and ``saved``, and of a federated fit ``n_sites`` and perhaps ``site_names``; of one
        with noise ``privacy``; of one over institutions ``kits``, the versions of the library at its sites.
    named : bool
        Whether ``X`` had names.
    frame : str or None
        Library of the frame that ``X`` was.
    classes : (C,) array or None
    size : str or None
        Name of the size of the rows, ``"exposure"`` or ``"trials"``.
    responses : tuple of str
        Names of the responses in the data; empty if they had none.
    derivation : Derivation or None
        Columns that a formula derives.
    size_column : str or None
        Column of the size in the frame of the fit.

    Examples
    --------
    >>> from consilience.files import SavedModel
    >>> SavedModel.from_text('{"format": "consilience model", "version": 2}')
    Traceback (most recent call last):
    ...
    consilience.errors.InvalidInputError: the file has format 2; this version of the library reads formats up to 1: \
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
    responses: tuple[str, ...] = ()
    derivation: Derivation | None = None
    size_column: str | None = None

    def to_text(self) -> str:
        """Return the model as JSON text."""
        from consilience.files.model_document import ModelDocument

        return write_json(ModelDocument.of(self))

    @classmethod
    def from_text(cls, text: str) -> SavedModel:
        """Read a model from JSON text; raise an :class:`~consilience.errors.InvalidInputError` if it is not valid."""
        from consilience.files.documents import check_version, validated
        from consilience.files.model_document import ModelDocument

        document = parse_json(text)
        check_version(document, FORMAT, VERSION, "saved model")
        try:
            with np.errstate(all="ignore"):
                return validated(ModelDocument, document, "model").value(document["estimator"]["parameters"])
        except MessageError as error:
            raise InvalidInputError(f"not a valid model: {error}") from error
