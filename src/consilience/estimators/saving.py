"""A fitted estimator as a value that can be written to a file, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any

import numpy as np

from consilience._version import __version__
from consilience.errors import InvalidInputError
from consilience.estimators.table import terms
from consilience.estimators.validation import check_parameters, check_size_name
from consilience.files import SavedFit, SavedModel
from consilience.fit.parameters import parameters
from consilience.model.mixture import Mixture
from consilience.model.summary import ColumnSummary

FRAMES = ("pandas", "polars", "pyarrow", "modin.pandas", "cudf")
"""Libraries of frames that a file may name."""
UNNAMED = "sites disagree, whose names were not saved"


def saved_text(estimator: Any, *, site_names: bool) -> str:
    """Return a fitted estimator as JSON text, after a check that it can be read."""
    text = saved_model(estimator, site_names=site_names).to_text()
    again = SavedModel.from_text(text)
    restore(type(estimator)(**again.parameters), again)
    return text


def saved_model(estimator: Any, *, site_names: bool = False) -> SavedModel:
    """Return a fitted estimator as a value.

    Examples
    --------
    >>> from consilience import MixtureOfRegressions
    >>> x = np.linspace(0, 1, 50)
    >>> model = MixtureOfRegressions(1).fit(x[:, None], np.sin(9 * x))
    >>> saved_model(model).terms
    ('(intercept)', 'x0')
    """
    inference = estimator.inference_
    if not np.array_equal(inference.estimates.flat(), parameters(estimator.mixture_).flat(), equal_nan=True):
        raise InvalidInputError("inference_ is not that of mixture_: assign the one that infer() of this model returns")
    frame = getattr(estimator, "_backend", None)
    return SavedModel(
        estimator=type(estimator).__name__,
        parameters=_parameters(estimator),
        columns=estimator.columns_,
        terms=tuple(terms(estimator)),
        mixture=estimator.mixture_,
        inference=inference,
        fit=_fit(estimator, site_names),
        provenance=_provenance(estimator, site_names),
        named=hasattr(estimator, "feature_names_in_"),
        frame=frame if frame in FRAMES else None,
        classes=getattr(estimator, "classes_", None),
        size=getattr(estimator, "_size_of_fit", None),
    )


def _parameters(estimator: Any) -> dict[str, Any]:
    """Return the constructor parameters as JSON values, without start, threads and the state of a generator."""
    given = estimator.get_params(deep=False).items()
    found = {name: plain(value) for name, value in given if name not in ("mixture_init", "n_jobs")}
    seed = found["random_state"]
    found["random_state"] = seed if isinstance(seed, int) and not isinstance(seed, bool) else None
    found["verbose"] = bool(found["verbose"])
    return found


def plain(value: Any) -> Any:
    """Return a value without numpy's types, tuples and other collections.

    Examples
    --------
    >>> plain({"a": np.arange(2), "b": (np.float64(0.5), "text")})
    {'a': [0, 1], 'b': [0.5, 'text']}
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [plain(each) for each in value]
    return value


def _fit(estimator: Any, site_names: bool) -> SavedFit:
    """Return the results of the fit; without names of sites, doubts that name some are written without them."""
    kept: SavedFit = estimator._kept  # noqa: SLF001 - the other half of the estimator
    names = () if site_names else _sites(estimator).get("site_names", ())
    doubts = tuple(UNNAMED if any(name in doubt for name in names) else doubt for doubt in kept.doubts)
    return replace(kept, single_bic=estimator.single_bic, doubts=doubts)


def _provenance(estimator: Any, site_names: bool) -> dict[str, Any]:
    sites = _sites(estimator)
    if site_names and "site_names" not in sites:
        raise InvalidInputError(
            "site_names=True: the names of sites are not known; the model is not of a federated fit"
        )
    found = {"library": __version__, "saved": datetime.now(UTC).isoformat(timespec="seconds"), **sites}
    return {name: value for name, value in found.items() if site_names or name != "site_names"}


def _sites(estimator: Any) -> dict[str, Any]:
    """Return the number and the names of the sites, as far as they are known."""
    fit = getattr(estimator, "_fit_result", None)
    if fit is None:
        stored = getattr(estimator, "provenance_", {})
        return {name: stored[name] for name in ("n_sites", "site_names") if name in stored}
    names = [site.name for site in fit.evidence()]
    return {"n_sites": len(names), "site_names": names} if names else {}


# ---------------------------------------------------------------- reading


def restore(estimator: Any, saved: SavedModel) -> None:
    """Set the fitted attributes of an estimator from a saved model; raise an error if they contradict each other."""
    names = saved.columns.names
    estimator.set_columns(names if saved.named else len(names), saved.classes, saved.columns)
    if estimator.reads_classes != (saved.classes is not None):
        raise InvalidInputError(f"{saved.estimator} with the classes of a response, or without: expected the contrary")
    check_parameters(estimator)
    _check_mixture(estimator, saved.mixture)
    if saved.size is not None:
        check_size_name(estimator.family, saved.size)
    estimator._set_results(saved.mixture, saved.inference, saved.fit)  # noqa: SLF001 - the other half of the estimator
    estimator._size_of_fit, estimator._single_bic = saved.size, saved.fit.single_bic  # noqa: SLF001
    estimator._backend = saved.frame if saved.frame and find_spec(saved.frame.split(".")[0]) else None  # noqa: SLF001
    if tuple(terms(estimator)) != saved.terms:
        raise InvalidInputError("the terms of the model are not those of its columns")
    estimator.provenance_ = dict(saved.provenance)


def _check_mixture(estimator: Any, mixture: Mixture) -> None:
    """Raise an error if the mixture is not one that the estimator fits to its columns."""
    found, expected = estimator.covariates_in(mixture), len(estimator.columns_.terms)
    if found != expected:
        raise InvalidInputError(f"the mixture has {found} covariates; the columns have {expected}")
    specification, experts = estimator.specification(), mixture.experts
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
