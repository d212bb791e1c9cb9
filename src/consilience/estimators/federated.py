"""What a federation needs of an estimator: its columns, rows of sites in its form, and a fit made elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from sklearn.base import is_classifier

from consilience.columns import Dictionary, frames
from consilience.columns.dictionary import chosen_categories
from consilience.errors import InvalidInputError
from consilience.estimators import validation
from consilience.estimators.estimator import MixtureEstimator
from consilience.fit import Fit, Specification
from consilience.fit.inference import inference_from_fit
from consilience.model import Rows

M = TypeVar("M", bound=MixtureEstimator)


def specification_of(estimator: MixtureEstimator) -> Specification:
    """Return the specification of the mixture to fit, with its penalties."""
    return estimator._specification()


def site_rows(estimator: MixtureEstimator, sites: Mapping[str, Mapping[str, Any]]) -> list[Rows]:
    """Return the validated rows of each site (may be empty); each site is a mapping of the arguments of ``fit``.

    The columns of the estimator are set to those of the sites.
    """
    estimator._size_column = next(filter(None, map(validation.size_column, sites.values())), None)
    sites = _derive(estimator, {name: _take_sizes(site) for name, site in sites.items()})
    parts = list(sites.values())
    validation.check_same_tables({name: site["X"] for name, site in sites.items()})
    first = parts[0]["X"]
    names, estimator._backend = frames.frame_names(first), frames.backend_of(first)
    set_columns(
        estimator,
        np.shape(first)[1] if names is None else names,
        classes=estimator._classes_of(parts),
        dictionary=validation.read_dictionary(estimator, [site["X"] for site in parts]),
    )
    estimator.response_names_ = frames.response_labels(parts[0].get("y"), first)
    sizes = (name for name in validation.SIZES for site in parts if site.get(name) is not None)
    estimator._size_of_fit = next(sizes, None)
    return [_rows_of_site(estimator, name, site) for name, site in sites.items()]


def _take_sizes(site: Mapping[str, Any]) -> dict[str, Any]:
    """Return a site with the values of a size that is a column of its table."""
    X, taken = validation.take_sizes(site["X"], site)
    return {**taken, "X": X}


def _derive(estimator: MixtureEstimator, sites: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    """Return the sites with the columns and the responses that the formula of the estimator names, if it has one."""
    derivation = estimator.derivation_ = validation.learn_derivation(estimator, [site["X"] for site in sites.values()])
    if derivation is None:
        return sites
    return {
        name: {"y": derivation.response(site["X"]), **site, "X": derivation.apply(site["X"])}
        for name, site in sites.items()
    }


def _rows_of_site(estimator: MixtureEstimator, name: str, site: Mapping[str, Any]) -> Rows:
    others = {part: value for part, value in site.items() if part != "X"}
    with validation.name_columns(site, classes=is_classifier(estimator), site=name):
        return estimator._rows(site["X"], **{"y": None, **others}, reset=False, min_rows=0)


def fitted_rows(model: MixtureEstimator, sites: Mapping[str, Mapping[str, Any]]) -> list[Rows]:
    """Return the validated rows of each site, in the columns of a fitted model."""
    rows = []
    for name, site in sites.items():
        others = {part: value for part, value in site.items() if part != "X"}
        with validation.name_columns(site, classes=is_classifier(model), site=name):
            rows.append(model.rows(site["X"], **others))
    return rows


def set_columns(
    estimator: MixtureEstimator,
    names: int | Sequence[str] | np.ndarray,
    classes: Sequence[Any] | np.ndarray | None = None,
    dictionary: Dictionary | None = None,
) -> None:
    """Set the columns of ``X`` (names or number, and their dictionary) and the classes of ``y`` before a fit."""
    validation.check_parameters(estimator)
    labels = [f"x{j}" for j in range(names)] if isinstance(names, int) else [str(name) for name in names]
    estimator.columns_ = Dictionary.of_numbers(labels) if dictionary is None else dictionary
    if isinstance(names, int):
        estimator.n_features_in_ = names
    else:
        estimator.n_features_in_, estimator.feature_names_in_ = len(names), np.asarray(names, dtype=object)
    if classes is not None:
        estimator.classes_ = np.asarray(classes)


def chosen_coding(estimator: MixtureEstimator, names: Sequence[str]) -> tuple[set[str] | None, Mapping[str, Any]]:
    """Return which columns are categories (None if their types decide), and reference levels."""
    chosen = chosen_categories(getattr(estimator, "categorical_features", ()), names)
    return chosen, getattr(estimator, "reference_levels", None) or {}


def column_roles(
    estimator: MixtureEstimator, features: tuple[str, ...], target: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the covariate columns and the response columns of a table; a Gaussian mixture has responses only."""
    return estimator._roles(features, target)


def set_response(estimator: MixtureEstimator, names: Sequence[str]) -> None:
    """Set the names of the responses before a fit, or none."""
    estimator.response_names_ = tuple(names)


def check_no_formula(estimator: MixtureEstimator) -> None:
    """Raise an error if a formula derives the columns of an estimator: files do not say its levels and knots."""
    if getattr(estimator, "formula", None) is not None:
        raise InvalidInputError(
            "formula: files do not say its levels and knots; state them in a study with a formula, for "
            "consilience.kit.combination.run_over_files, or write the columns that derivation_.apply(frame) of a "
            "fitted model returns"
        )


def size_of_fit(estimator: MixtureEstimator) -> str | None:
    """Return the name of the row size of the fit (``exposure``, ``trials`` or None)."""
    return estimator._size_of_fit


def set_size(estimator: MixtureEstimator, name: str | None) -> None:
    """Set the name of the row size (``exposure``, ``trials`` or None); raise an error if the family has no such."""
    if name is not None:
        validation.check_size_name(estimator.family, name)
    estimator._size_of_fit = name


def adopt_fit(estimator: M, fit: Fit) -> M:
    """Set the fitted attributes from a fit made elsewhere; standard errors come from its information matrix."""
    estimator._set_fit(fit, inference_from_fit(fit), fit.ascent.statistics.weight)
    return estimator


def frame_like(estimator: MixtureEstimator, columns: Mapping[str, Sequence[Any]]) -> Any:
    """Return columns as a frame of the library that ``X`` came from, as ``to_frame`` does."""
    return frames.to_frame(columns, estimator._backend)
