"""A fitted estimator as a file, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from consilience._version import __version__
from consilience.errors import InvalidInputError
from consilience.estimators.classifier import MixtureOfExpertsClassifier
from consilience.estimators.estimator import MixtureEstimator
from consilience.estimators.federated import set_columns
from consilience.estimators.gaussian_mixture import GaussianMixture
from consilience.estimators.mixture_of_regressions import MixtureOfRegressions
from consilience.estimators.regressor import MixtureOfExpertsRegressor
from consilience.estimators.validation import check_parameters, check_size_name
from consilience.files import SavedFit, SavedModel
from consilience.files.json_text import read_text
from consilience.fit.parameters import parameters
from consilience.fitted.protocols import term_names
from consilience.model import ColumnSummary, Mixture

FRAMES = ("pandas", "polars", "pyarrow", "modin.pandas", "cudf")
"""Libraries of frames that a file may name."""
UNNAMED = "sites disagree, whose names were not saved"


def model_text(estimator: MixtureEstimator, *, site_names: bool, kits: str = "") -> str:
    """Return a fitted estimator as JSON text, after a check that it can be read.

    ``kits`` are the versions of the library at the sites, as far as they stated them.
    """
    text = as_saved_model(estimator, site_names=site_names, kits=kits).to_text()
    again = SavedModel.from_text(text)
    restore_fit(type(estimator)(**again.parameters), again)
    return text


def as_saved_model(estimator: MixtureEstimator, *, site_names: bool = False, kits: str = "") -> SavedModel:
    """Return a fitted estimator as a value."""
    inference = estimator.inference_
    if not np.array_equal(inference.estimates.flat(), parameters(estimator.mixture_).flat(), equal_nan=True):
        raise InvalidInputError("inference_ is not that of mixture_: assign the one that infer() of this model returns")
    frame = estimator._backend
    return SavedModel(
        estimator=type(estimator).__name__,
        parameters=_constructor_parameters(estimator),
        columns=estimator.columns_,
        terms=tuple(term_names(estimator)),
        mixture=estimator.mixture_,
        inference=inference,
        fit=_saved_fit(estimator, site_names),
        provenance={**_provenance(estimator, site_names), **({"kits": kits} if kits else {})},
        named=hasattr(estimator, "feature_names_in_"),
        frame=frame if frame in FRAMES else None,
        classes=getattr(estimator, "classes_", None),
        size=estimator._size_of_fit,
        responses=estimator.response_names_,
        derivation=estimator.derivation_,
        size_column=estimator._size_column,
    )


def _constructor_parameters(estimator: MixtureEstimator) -> dict[str, Any]:
    """Return the constructor parameters as JSON values, without start, threads and the state of a generator."""
    given = estimator.get_params(deep=False).items()
    found = {name: to_json_value(value) for name, value in given if name not in ("mixture_init", "n_jobs")}
    seed = found["random_state"]
    found["random_state"] = seed if isinstance(seed, int) and not isinstance(seed, bool) else None
    found["verbose"] = bool(found["verbose"])
    return found


def to_json_value(value: Any) -> Any:
    """Return a value without numpy's types, tuples and other collections."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): to_json_value(each) for key, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [to_json_value(each) for each in value]
    return value


def _saved_fit(estimator: MixtureEstimator, site_names: bool) -> SavedFit:
    """Return the results of the fit; without names of sites, doubts that name some are written without them."""
    names = () if site_names else _sites(estimator).get("site_names", ())
    doubts = tuple(UNNAMED if any(name in doubt for name in names) else doubt for doubt in estimator.doubts_)
    return replace(estimator._kept, single_bic=estimator.single_bic_, doubts=doubts)


def _provenance(estimator: MixtureEstimator, site_names: bool) -> dict[str, Any]:
    sites = _sites(estimator)
    if site_names and "site_names" not in sites:
        raise InvalidInputError(
            "site_names=True: the names of sites are not known; the model is not of a federated fit"
        )
    found = {"library": __version__, "saved": datetime.now(UTC).isoformat(timespec="seconds"), **sites}
    return {name: value for name, value in found.items() if site_names or name != "site_names"}


def _sites(estimator: MixtureEstimator) -> dict[str, Any]:
    """Return the number and the names of the sites and what noise protects, as far as they are known."""
    fit = getattr(estimator, "_fit_result", None)
    if fit is None:
        stored = getattr(estimator, "provenance_", {})
        return {name: stored[name] for name in ("n_sites", "site_names", "privacy", "kits") if name in stored}
    names = [site.name for site in fit.evidence()]
    noise = getattr(fit, "privacy", None)
    found: dict[str, Any] = {} if noise is None else {"privacy": str(noise)}
    return found | ({"n_sites": len(names), "site_names": names} if names else {})


# ---------------------------------------------------------------- reading


def restore_fit(estimator: MixtureEstimator, saved: SavedModel) -> None:
    """Set the fitted attributes of an estimator from a saved model; raise an error if they contradict each other."""
    names = saved.columns.names
    set_columns(estimator, names if saved.named else len(names), saved.classes, saved.columns)
    if is_classifier(estimator) != (saved.classes is not None):
        raise InvalidInputError(f"{saved.estimator} with the classes of a response, or without: expected the contrary")
    check_parameters(estimator)
    _restore_derivation(estimator, saved)
    _check_mixture(estimator, saved.mixture)
    if saved.size is not None:
        check_size_name(estimator.family, saved.size)
    estimator._set_results(saved.mixture, saved.inference, saved.fit)
    estimator._size_of_fit, estimator._size_column = saved.size, saved.size_column
    estimator.response_names_ = saved.responses
    estimator._backend = saved.frame if saved.frame and find_spec(saved.frame.split(".")[0]) else None
    if tuple(term_names(estimator)) != saved.terms:
        raise InvalidInputError("the terms of the model are not those of its columns")
    estimator.provenance_ = dict(saved.provenance)


def _restore_derivation(estimator: MixtureEstimator, saved: SavedModel) -> None:
    """Set the columns that a formula derives; raise an error if they are not those of the model."""
    formula = getattr(estimator, "formula", None)
    derivation = saved.derivation
    if formula != (None if derivation is None else derivation.text):
        raise InvalidInputError("the formula of the model is not that of its parameters")
    if derivation is not None and derivation.columns != saved.columns.names:
        raise InvalidInputError("the columns of the model are not those of its formula")
    estimator.derivation_ = derivation


def _check_mixture(estimator: MixtureEstimator, mixture: Mixture) -> None:
    """Raise an error if the mixture is not one that the estimator fits to its columns."""
    found, terms = estimator._covariates_in(mixture), len(estimator.columns_.terms)
    if found != terms:
        raise InvalidInputError(f"the mixture has {found} covariates; the columns have {terms}")
    specification, experts = estimator._specification(), mixture.experts
    if specification.K != mixture.K:
        raise InvalidInputError(f"the mixture has {mixture.K} experts; the parameters say {specification.K}")
    unit = ColumnSummary.unit(0, experts.q)
    blank = specification.experts.blank(mixture.K, mixture.design.p, unit, specification.options)
    for part, got, expected in (
        ("gate", mixture.gate.kind, specification.gate_type.kind),
        ("family", experts.family, specification.family),
        ("covariance or degrees of freedom", experts.form, blank.form),
        ("intercept", mixture.design.intercept, specification.intercept),
        ("number of responses or classes", experts.channels, blank.channels),
    ):
        if got != expected:
            raise InvalidInputError(f"{part} of the mixture: {got}; the parameters say {expected}")


ESTIMATORS: dict[str, type[MixtureEstimator]] = {
    each.__name__: each
    for each in (GaussianMixture, MixtureOfExpertsClassifier, MixtureOfExpertsRegressor, MixtureOfRegressions)
}


def load(path: str | Path) -> MixtureEstimator:
    """Read a fitted model that :meth:`~MixtureOfExpertsRegressor.save` wrote.

    The file is checked as a whole before anything is built from it; it cannot run code.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    estimator
        A fitted estimator of the saved class, with the same predictions, tables and summary. ``provenance_`` has the
        version of the library that wrote the file and the date. The file has no rows and no record of the
        optimisation: ``infer`` needs a new fit.

    Raises
    ------
    InvalidInputError
        If the file is not a valid model, or of a newer format.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import consilience
    >>> from consilience.datasets import soft
    >>> data = soft(500, random_state=0)
    >>> model = consilience.MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(Path(folder) / "model.json")
    ...     again = consilience.load(Path(folder) / "model.json")
    >>> bool((again.predict(data.X) == model.predict(data.X)).all())
    True
    """
    try:
        saved = SavedModel.from_text(read_text(path))
        model = ESTIMATORS[saved.estimator](**saved.parameters)
        restore_fit(model, saved)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from error
    return model
