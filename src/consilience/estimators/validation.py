"""Validation of arguments and data."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import check_array, check_random_state, check_X_y
from sklearn.utils.validation import _check_sample_weight, validate_data

from consilience.columns import Dictionary
from consilience.columns.dictionary import FROM_DTYPE
from consilience.errors import InvalidInputError
from consilience.estimators import frames
from consilience.estimators.coding import coded, dictionary_of, numbers_of
from consilience.fit.specification import Specification
from consilience.model import FAMILIES, Groups, Mixture, Rows
from consilience.model.families.registry import family_of
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array
from consilience.numerics.threads import processors

SIZES = ("exposure", "trials")
"""Names of the size of a row, such as ``exposure``."""


def check_parameters(estimator: Any) -> None:
    """Raise an error for invalid constructor arguments."""
    whole = {"n_init": estimator.n_init, "max_iter": estimator.max_iter, estimator.order_name: estimator.order()}
    for name, value in whole.items():
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
            raise InvalidInputError(f"{name}={value!r}: expected a whole number of at least 1")
    for name in ("tol", "gate_ridge", "expert_ridge", "reg_covar"):
        value = getattr(estimator, name, 0.0)
        if name == "expert_ridge" and value is None:
            continue
        if not (isinstance(value, int | float | np.number) and value >= 0 and np.isfinite(value)):
            raise InvalidInputError(f"{name}={value!r}: expected a finite number of at least 0")
    thread_count(estimator.n_jobs)
    start = estimator.mixture_init
    if start is not None and not (isinstance(start, Mixture) and estimator.order() == start.K):
        raise InvalidInputError(f"mixture_init: expected a Mixture of {estimator.order()} experts, as in mixture_")


def thread_count(n_jobs: Any) -> int:
    """Return the number of threads for scikit-learn's ``n_jobs``.

    Examples
    --------
    >>> thread_count(None), thread_count(3)
    (1, 3)
    """
    if n_jobs is None:
        return 1
    if not isinstance(n_jobs, int | np.integer) or isinstance(n_jobs, bool) or (n_jobs < 1 and n_jobs != -1):
        raise InvalidInputError(
            f"n_jobs={n_jobs!r}: expected None, a whole number of at least 1, or -1 for all processors"
        )
    return processors() if n_jobs == -1 else int(n_jobs)


def check_level(level: float) -> None:
    """Raise an error for an invalid confidence level."""
    if not 0 < level < 1:
        raise InvalidInputError(f"level={level!r}: expected a number strictly between 0 and 1")


def generator(random_state: Any) -> np.random.Generator:
    """Return a numpy Generator for scikit-learn's ``random_state``."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def validated(estimator: Any, X: Any, y: Any = "no_validation", *, reset: bool, **options: Any) -> Any:
    """Convert arrays or frames to float64 arrays, with scikit-learn's checks; column names are kept.

    Categories become indicators, and rules are applied, by the data dictionary ``columns_`` of the estimator, which
    ``reset`` reads from X.
    """
    names, given = frames.column_names(X), {"dtype": np.float64, "ensure_all_finite": "allow-nan", **options}
    if reset:
        estimator.columns_ = _columns_of(estimator, X)
    if not estimator.columns_.is_plain:
        check_columns(estimator, X, names, reset=reset)
        found = _checked(coded(X, estimator.columns_), y, **given)
    elif names is not None and not hasattr(X, "iloc"):  # scikit-learn itself reads the names of pandas frames
        if not reset:
            check_names(estimator, names)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X does not have valid feature names")  # they were checked here
            found = validate_data(estimator, frames.as_array(X), y, reset=reset, **given)
    else:
        found = validate_data(estimator, X, y, reset=reset, **given)
    matrix = found if isinstance(y, str) else found[0]
    if not estimator.columns_.columns:  # an array, whose columns have no names
        estimator.columns_ = Dictionary.of_numbers([f"x{j}" for j in range(matrix.shape[1])])
    check_missing(matrix, estimator.columns_)
    return found


def _columns_of(estimator: Any, X: Any) -> Dictionary:
    """Return the data dictionary of a frame, or of an array with chosen categories; else an empty one."""
    given = getattr(estimator, "categorical_features", FROM_DTYPE)
    by_type = isinstance(given, str) and given == FROM_DTYPE
    if frames.is_frame(X) or not (by_type or issparse(X) or np.ndim(X) != 2):
        return read_dictionary(estimator, [X])
    return Dictionary(())


def read_dictionary(estimator: Any, parts: Sequence[Any]) -> Dictionary:
    """Return the data dictionary of one or several frames or arrays, as the estimator reads them."""
    if not hasattr(estimator, "categorical_features"):
        return numbers_of(parts)
    return dictionary_of(parts, estimator.categorical_features, estimator.reference_levels)


def _checked(X: Array, y: Any, **options: Any) -> Any:
    """Apply scikit-learn's checks to coded covariates."""
    if isinstance(y, str):
        return check_array(X, **options)
    return check_X_y(X, y, **options)


def check_columns(estimator: Any, X: Any, names: np.ndarray | None, *, reset: bool) -> None:
    """Raise an error if the columns of data with categories are not those of the fit; ``reset`` keeps them."""
    if reset:
        estimator.n_features_in_ = np.shape(X)[1]
        return
    if names is not None:
        check_names(estimator, names)
    if np.shape(X)[1:] != (estimator.n_features_in_,):
        raise InvalidInputError(
            f"X has shape {np.shape(X)}, the model was fitted on {estimator.n_features_in_} columns: pass those"
        )


def check_missing(X: Array, columns: Dictionary) -> None:
    """Raise an error that names the columns with missing values, and how many each has."""
    missing = np.isnan(X).sum(axis=0)
    if not missing.any():
        return
    counts = dict.fromkeys(columns.names, 0)
    owners = [column.name for column in columns.columns for _ in column.terms]
    for name, count in zip(owners, missing, strict=True):
        counts[name] = max(counts[name], int(count))
    said = ", ".join(f"{name} ({count:,} of {len(X):,} rows)" for name, count in counts.items() if count)
    raise InvalidInputError(
        f"X contains NaN or missing values: {said}. Impute them before the fit, for instance "
        "with SimpleImputer in a Pipeline, or drop those rows"
    )


def check_names(estimator: Any, names: np.ndarray) -> None:
    """Raise an error if the columns are not those of the fit, in the same order."""
    fitted = getattr(estimator, "feature_names_in_", None)
    if fitted is not None and not np.array_equal(fitted, names):
        raise InvalidInputError(
            f"X has columns {list(names)}, the model was fitted on {list(fitted)}: pass those, in that order"
        )


def rows_of(X: Array, Y: Array, family: str, **metadata: Any) -> Rows:
    """Return rows with validated weights, groups and sizes; ``metadata`` as in ``fit``."""
    sample_weight, groups = metadata.get("sample_weight"), metadata.get("groups")
    weight = None
    if sample_weight is not None:
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if groups is not None:
        groups = Groups.of(group_labels(groups, len(Y)))
    return Rows(X, Y, weight, sizes(family, metadata, len(Y)), groups)


def sizes(family: str, metadata: Mapping[str, Any], n: int) -> Array | None:
    """Return the sizes of rows ``(n,)``: exposure or trials, depending on the family."""
    found = None
    for name in SIZES:
        if metadata.get(name) is None:
            continue
        check_size_name(family, name)
        found = np.asarray(metadata[name], dtype=np.float64)
        if found.shape != (n,) or not np.all(np.isfinite(found)) or np.any(found <= 0):
            raise InvalidInputError(f"{name}: expected one positive finite number per row")
    return found


def size_name(**given: Any) -> str | None:
    """Return the name of the row size that is given, if any."""
    return next((name for name, value in given.items() if value is not None), None)


def check_size_name(family: str, name: str) -> None:
    """Raise an error if the family does not take a row size of this name."""
    if family_of(family).size_name == name:
        return
    readers = [f"family={each!r}" for each, kind in FAMILIES.items() if kind.size_name == name]
    raise InvalidInputError(f"{name} is for {' or '.join(readers)}, got family={family!r}: leave {name} out")


def check_range(specification: Specification, rows: Rows) -> None:
    """Raise an error if responses are outside the range of their family."""
    d, q = rows.X.shape[1], rows.Y.shape[1]
    experts = specification.blank(ColumnSummary.unit(d, q)).experts
    if not experts.in_range(rows):
        raise InvalidInputError(f"family={specification.family!r}: {experts.range_sentence}")


def group_labels(groups: Any, n: int) -> np.ndarray:
    """Return validated group labels ``(n,)``: no missing values, one type."""
    labels = np.asarray(frames.as_array(groups))
    if labels.shape not in ((n,), (n, 1)):
        raise InvalidInputError(f"groups has shape {labels.shape} for {n} rows: pass one group label per row")
    labels = labels.ravel()
    kinds = {type(label) for label in labels} if labels.dtype == object else set()
    if len(kinds) > 1 or not np.array_equal(labels, labels):  # NaN differs from itself
        raise InvalidInputError("groups: expected labels of one type without missing values; fill or drop those rows")
    return labels
