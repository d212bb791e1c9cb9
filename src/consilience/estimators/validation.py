"""Validation of arguments and data, and sentences on what is wrong with them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import check_array, check_X_y
from sklearn.utils.validation import _check_sample_weight, validate_data

from consilience.columns import Dictionary, frames
from consilience.columns.column_kinds import check_kinds, column_kinds, is_missing
from consilience.columns.derived import Derivation
from consilience.columns.dictionary import FROM_DTYPE
from consilience.columns.frames import encode_columns, frame_dictionary, frame_names, number_dictionary
from consilience.errors import InvalidInputError, UnknownParameterError
from consilience.fit import Specification
from consilience.model import FAMILIES, ColumnSummary, Design, Groups, Mixture, Rows
from consilience.model.families.covariance import STRUCTURES
from consilience.model.families.registry import family_of
from consilience.numerics.arrays import Array, Mask
from consilience.numerics.threads import processors

if TYPE_CHECKING:
    from consilience.estimators.estimator import MixtureEstimator

SIZES = ("exposure", "trials")
"""Names of the size of a row, such as ``exposure``."""


def check_parameters(estimator: MixtureEstimator) -> None:
    """Raise an error for invalid constructor arguments."""
    order = requested_order(estimator)
    whole = {"n_init": estimator.n_init, "max_iter": estimator.max_iter, estimator.order_name: order}
    for name, value in whole.items():
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
            raise InvalidInputError(f"{name}={value!r}: expected a whole number of at least 1")
    for name in ("tol", "gate_ridge", "expert_ridge", "reg_covar"):
        real = getattr(estimator, name, 0.0)
        if name == "expert_ridge" and real is None:
            continue
        if not (isinstance(real, int | float | np.number) and real >= 0 and np.isfinite(real)):
            raise InvalidInputError(f"{name}={real!r}: expected a finite number of at least 0")
    ratio = getattr(estimator, "shape_ratio", 1.0)
    if not (isinstance(ratio, int | float | np.number) and 1 <= ratio < np.inf):
        raise InvalidInputError(f"shape_ratio={ratio!r}: expected a finite number of at least 1")
    unknown = getattr(estimator, "unknown_levels", "error")
    if unknown not in UNKNOWN_LEVELS:
        raise InvalidInputError(f"unknown_levels={unknown!r}: expected one of {', '.join(UNKNOWN_LEVELS)}")
    if unknown == "average" and not getattr(estimator, "fit_intercept", True):
        raise InvalidInputError("unknown_levels='average' needs fit_intercept=True: choose 'reference', or 'error'")
    thread_count(estimator.n_jobs)
    start = estimator.mixture_init
    if start is not None and not (isinstance(start, Mixture) and order == start.K):
        raise InvalidInputError(f"mixture_init: expected a Mixture of {order} experts, as in mixture_")


def requested_order(estimator: MixtureEstimator) -> int:
    """Return the requested number of experts."""
    order: int = getattr(estimator, estimator.order_name)
    return order


def budget_of(estimator: MixtureEstimator) -> dict[str, Any]:
    """Return how long an estimator searches: its starts, tolerance and iterations."""
    return {"n_init": estimator.n_init, "tol": estimator.tol, "max_iter": estimator.max_iter}


def thread_count(n_jobs: Any) -> int:
    """Return the number of threads for scikit-learn's ``n_jobs``."""
    if n_jobs is None:
        return 1
    if not isinstance(n_jobs, int | np.integer) or isinstance(n_jobs, bool) or (n_jobs < 1 and n_jobs != -1):
        raise InvalidInputError(
            f"n_jobs={n_jobs!r}: expected None, a whole number of at least 1, or -1 for all processors"
        )
    return processors() if n_jobs == -1 else int(n_jobs)


def validate_columns(
    estimator: MixtureEstimator, X: Any, y: Any = "no_validation", *, reset: bool, **options: Any
) -> Any:
    """Convert arrays or frames to float64 arrays, with scikit-learn's checks; column names are kept.

    Categories become indicators, and rules are applied, by the data dictionary ``columns_`` of the estimator, which
    ``reset`` reads from X.
    """
    if not reset and estimator.derivation_ is not None:
        y = estimator.derivation_.response(X) if y is None else y
        X = estimator.derivation_.apply(X, _stand_ins(estimator))
    table, given = frames.wrap_once(X), {"dtype": np.float64, "ensure_all_finite": False, **options}
    names, has_objects = frames.frame_names(table), check_kinds("X", table)
    if not isinstance(y, str):
        check_values("y", y)
    if reset:
        estimator.columns_ = _read_columns(estimator, X)
    if not estimator.columns_.is_plain or has_objects:
        check_column_count(estimator, X, names, reset=reset)
        encoded = encode_columns(table, estimator.columns_, None if reset else stand_in(estimator))
        found = _check_arrays(encoded, y, **given)
    elif names is not None and not hasattr(X, "iloc"):  # scikit-learn itself reads the names of pandas frames
        if not reset:
            check_feature_names(estimator, names)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X does not have valid feature names")  # they were checked here
            found = validate_data(estimator, frames.as_array(table), y, reset=reset, **given)
    else:
        found = validate_data(estimator, X, y, reset=reset, **given)
    matrix = found if isinstance(y, str) else found[0]
    if not estimator.columns_.columns:  # an array, whose columns have no names
        estimator.columns_ = Dictionary.of_numbers([f"x{j}" for j in range(matrix.shape[1])])
    check_missing(matrix, estimator.columns_)
    return found


def _read_columns(estimator: MixtureEstimator, X: Any) -> Dictionary:
    """Return the data dictionary of a frame, or of an array with chosen categories; else an empty one."""
    given = getattr(estimator, "categorical_features", FROM_DTYPE)
    by_type = isinstance(given, str) and given == FROM_DTYPE
    if frames.is_frame(X) or not (by_type or issparse(X) or np.ndim(X) != 2):
        return read_dictionary(estimator, [X])
    return Dictionary(())


UNKNOWN_LEVELS = ("error", "reference", "average")
"""What an estimator does with a level that was not in the fit."""


def stand_in(estimator: MixtureEstimator) -> Array | None:
    """Return the values of the indicators of a level that was not in the fit, ``(terms,)``; None for an error."""
    chosen = getattr(estimator, "unknown_levels", "error")
    if chosen == "error" or not hasattr(estimator, "mixture_"):
        return None
    means = np.zeros(len(estimator.columns_.terms))
    for design in estimator.coordinates_ if chosen == "average" else ():
        means[list(design.read)] = design.centre
        if design.others is not None:
            means[list(design.unread)] = design.others[:, 0]
    return means


def _stand_ins(estimator: MixtureEstimator) -> dict[str, float] | None:
    """Return the values of the indicators of a level that was not in the fit, by their terms."""
    values = stand_in(estimator)
    return None if values is None else dict(zip(estimator.columns_.terms, values, strict=True))


def learn_derivation(estimator: MixtureEstimator, parts: Sequence[Any]) -> Derivation | None:
    """Return the columns that the formula of an estimator derives from one or several tables; None without formula."""
    formula = getattr(estimator, "formula", None)
    if formula is None:
        return None
    named = ("gate_features", "expert_features")
    for name in (*(each for each in named if getattr(estimator, each, None) is not None), "categorical_features"):
        if name in named or estimator.get_params()[name] != FROM_DTYPE:
            raise InvalidInputError(
                f"{name} beside a formula: write it in the formula, as in 'y ~ age + category(ward) | age'"
            )
    found = Derivation.learn(formula, parts, getattr(estimator, "reference_levels", None))
    if found.formula.gate is not None and not hasattr(estimator, "gate_features"):
        raise InvalidInputError("formula: the gate of a MixtureOfRegressions is constant: leave out '|' and its terms")
    return found


def check_names_shared(shared: Any, names: Sequence[str]) -> None:
    """Raise an error unless ``shared`` is a list, and for the intercept, which is no covariate."""
    if not isinstance(shared, Iterable) or isinstance(shared, str):
        raise InvalidInputError(f"shared={shared!r}: expected a list of names or indices of columns")
    if {"intercept", "(intercept)"}.difference(names).intersection(map(str, shared)):
        raise InvalidInputError(
            "shared: each expert has an intercept of its own; to share it, set fit_intercept=False and add a column of "
            "ones to X, which can be shared"
        )


def check_places_shared(
    estimator: MixtureEstimator, shared: tuple[int, ...], read: tuple[int, ...] | None
) -> tuple[int, ...]:
    """Return the places of the terms that experts share; raise an error for those that they do not read, and for all.

    Parameters
    ----------
    estimator : estimator
        With its columns.
    shared, read : tuple of int
        Places among the terms; None for all.
    """
    terms = estimator.columns_.terms
    of_experts = tuple(range(len(terms))) if read is None else read
    unread = [terms[j] for j in shared if j not in of_experts]
    if unread:
        known = ", ".join(terms[j] for j in of_experts)
        raise InvalidInputError(f"shared: the experts do not read {', '.join(unread)}; they read {known}")
    if not estimator.get_params()["fit_intercept"] and shared == of_experts:
        raise InvalidInputError(
            "shared names all coefficients of the experts, whose means would be the same: leave one out, or set "
            "fit_intercept=True"
        )
    return shared


def read_dictionary(estimator: MixtureEstimator, parts: Sequence[Any]) -> Dictionary:
    """Return the data dictionary of one or several frames or arrays, as the estimator reads them."""
    if not hasattr(estimator, "categorical_features"):
        return number_dictionary(parts)
    return frame_dictionary(parts, estimator.categorical_features, estimator.reference_levels)


def _check_arrays(X: Array, y: Any, **options: Any) -> Any:
    """Apply scikit-learn's checks to coded covariates."""
    if isinstance(y, str):
        return check_array(X, **options)
    return check_X_y(X, y, **options)


def check_column_count(estimator: MixtureEstimator, X: Any, names: np.ndarray | None, *, reset: bool) -> None:
    """Raise an error if the columns of data with categories are not those of the fit; ``reset`` keeps them."""
    if reset:
        estimator.n_features_in_ = np.shape(X)[1]
        return
    if names is not None:
        check_feature_names(estimator, names)
    if np.shape(X)[1:] != (estimator.n_features_in_,):
        raise InvalidInputError(
            f"X has shape {np.shape(X)}, the model was fitted on {estimator.n_features_in_} columns: pass those"
        )


NOT_FINITE = MappingProxyType({"NaN or missing": np.isnan, "infinite": np.isinf})
IMPUTE = "Impute them before the fit, for instance with SimpleImputer in a Pipeline, or drop those rows"
CORRECT = "Correct them, or drop those rows: is one the logarithm of 0, or a division by 0?"
ROWS_SHOWN = 3
"""Maximum number of rows that an error lists."""


def check_missing(X: Array, columns: Dictionary) -> None:
    """Raise an error that names the columns with missing or infinite values, how many each has, and their rows."""
    if np.isfinite(X).all():
        return
    owners = np.array([column.name for column in columns.columns for _ in column.terms])
    for kind, test in NOT_FINITE.items():
        found = test(X)
        if found.any():
            wrong: dict[str, Any] = {name: found[:, owners == name].any(axis=1) for name in columns.names}
            said = ", ".join(f"{name} in {rows_text(rows)}" for name, rows in wrong.items() if rows.any())
            raise InvalidInputError(f"X contains {kind} values: {said}. {CORRECT if kind == 'infinite' else IMPUTE}")


def check_values(name: str, values: Any) -> None:
    """Raise an error if numbers of rows are dates, missing or infinite, with what and where; text is not looked at."""
    check_kinds(name, values)
    numbers = np.asarray(frames.as_array(values))
    if numbers.dtype == object:
        numbers = np.where(is_missing(numbers), np.nan, 0.0)
    if numbers.dtype.kind != "f" or numbers.ndim not in (1, 2) or not numbers.size:
        return
    for kind, test in NOT_FINITE.items():
        wrong = test(numbers.reshape(len(numbers), -1)).any(axis=1)
        if wrong.any():
            remedy = CORRECT if kind == "infinite" else "Drop those rows, or pass their values"
            raise InvalidInputError(f"{name} contains {kind} values in {rows_text(wrong)}. {remedy}")


def rows_text(wrong: Mask) -> str:
    """Say how many rows are wrong, and which are the first of them, counted from 0."""
    places = np.flatnonzero(wrong)
    shown = ", ".join(map(str, places[:ROWS_SHOWN]))
    more = ", …" if len(places) > ROWS_SHOWN else ""
    return f"{len(places):,} of {len(wrong):,} rows ({shown}{more})"


def check_feature_names(estimator: MixtureEstimator, names: np.ndarray) -> None:
    """Raise an error if the columns are not those of the fit, in the same order."""
    fitted = getattr(estimator, "feature_names_in_", None)
    if fitted is not None and not np.array_equal(fitted, names):
        raise InvalidInputError(
            f"X has columns {list(names)}, the model was fitted on {list(fitted)}: pass those, in that order"
        )


def build_rows(X: Array, Y: Array, family: str, **metadata: Any) -> Rows:
    """Return rows with validated weights, groups, clusters and sizes; ``metadata`` as in ``fit``."""
    sample_weight, groups = metadata.get("sample_weight"), metadata.get("groups")
    weight = None
    if sample_weight is not None:
        check_values("sample_weight", sample_weight)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if groups is not None:
        groups = Groups.of(validate_labels("groups", groups, len(Y)))
    clusters = metadata.get("clusters")
    if clusters is not None:
        clusters = Groups.of(validate_labels("clusters", clusters, len(Y)))
        if groups is not None and len(np.unique(np.c_[groups.codes, clusters.codes], axis=0)) >= len(groups.bounds):
            raise InvalidInputError("a group has rows in two clusters: pass clusters that hold whole groups")
    return Rows(X, Y, weight, validate_sizes(family, metadata, len(Y)), groups, clusters)


def validate_sizes(family: str, metadata: Mapping[str, Any], n: int) -> Array | None:
    """Return the sizes of rows ``(n,)``: exposure or trials, depending on the family."""
    found = None
    for name in SIZES:
        if metadata.get(name) is None:
            continue
        check_size_name(family, name)
        check_values(name, metadata[name])
        found = np.asarray(metadata[name], dtype=np.float64)
        if found.shape != (n,):
            raise InvalidInputError(f"{name} has shape {found.shape} for {n} rows: expected one number per row")
        wrong = np.less_equal(found, 0)
        if wrong.any():
            said = rows_text(wrong)
            raise InvalidInputError(f"{name}: expected one positive finite number per row, got 0 or less in {said}")
    return found


def take_sizes(X: Any, metadata: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return ``X`` without the columns that a size names, and the metadata with the values of these columns."""
    named = {name: metadata[name] for name in SIZES if isinstance(metadata.get(name), str)}
    if not named:
        return X, dict(metadata)
    X, values = frames.take_columns(X, named.values())
    return X, {**metadata, **{name: values[column] for name, column in named.items()}}


def size_column(metadata: Mapping[str, Any]) -> str | None:
    """Return the column that a size names, if any does."""
    return next((metadata[name] for name in SIZES if isinstance(metadata.get(name), str)), None)


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


def check_structure(covariance_type: str) -> None:
    """Raise an error if there is no structure of covariance matrices of this name."""
    if covariance_type not in STRUCTURES:
        raise InvalidInputError(f"covariance_type={covariance_type!r}: expected one of {', '.join(STRUCTURES)}")


def validate_labels(name: str, given: Any, n: int) -> np.ndarray:
    """Return validated labels ``(n,)`` of groups or clusters: no missing values, one type."""
    labels = np.asarray(frames.as_array(given))
    if labels.shape not in ((n,), (n, 1)):
        raise InvalidInputError(f"{name} has shape {labels.shape} for {n} rows: pass one label per row")
    labels = labels.ravel()
    kinds = {type(label) for label in labels} if labels.dtype == object else set()
    if len(kinds) > 1 or not np.array_equal(labels, labels):  # NaN differs from itself
        raise InvalidInputError(f"{name}: expected labels of one type without missing values; fill or drop those rows")
    return labels


# ---------------------------------------------------------------------- names of parameters


P = ParamSpec("P")
S = TypeVar("S")
ORDERS = {"n_experts", "n_components", "n_clusters", "n_regressions", "n_groups", "K", "k"}
"""Names that other estimators and libraries give to the number of experts."""


def keep_parameters(init: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """Decorate a constructor: it keeps its arguments under their names, unchanged, and does nothing else.

    A keyword that it does not have is an error that names the right one. The signature, from which scikit-learn reads
    the parameters, stays that of ``init``.
    """
    signature = inspect.signature(init)
    known = tuple(signature.parameters)[1:]

    @wraps(init)
    def keep(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
        check_keywords(self, kwargs, known)
        init(self, *args, **kwargs)
        given = signature.bind(self, *args, **kwargs)
        given.apply_defaults()
        vars(self).update({name: given.arguments[name] for name in known})

    return keep


def check_keywords(estimator: object, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise an error for the first of the ``given`` names that is not ``known``."""
    known = tuple(known)
    for name in given:
        if name not in known:
            raise UnknownParameterError(f"{type(estimator).__name__} has no parameter {name!r}: {_advice(name, known)}")


def _advice(name: str, known: tuple[str, ...]) -> str:
    order = next((each for each in ("n_experts", "n_components") if each in known), None)
    if name in ORDERS and order is not None:
        return f"its number of {order.removeprefix('n_')} is {order}"
    close = get_close_matches(name, known, 1)
    return f"did you mean {close[0]}?" if close else f"expected one of {', '.join(known)}"


# ---------------------------------------------------------------------- text instead of numbers


NUMERIC = ("X", "y", "sample_weight", "exposure", "trials")
"""Arguments of ``fit`` that hold numbers; ``y`` of a classifier holds labels."""


@contextmanager
def name_columns(parts: Mapping[str, Any], *, classes: bool, site: str | None = None) -> Iterator[None]:
    """Name the site of an error in its data and, if a column has text instead of numbers, the column and the row.

    Parameters
    ----------
    parts : mapping of str to array or frame
        The data, by the names of the arguments of ``fit``.
    classes : bool
        Whether ``y`` holds labels.
    site : str or None
    """
    where = "" if site is None else f"site {site}: "
    try:
        yield
    except InvalidInputError as error:
        if not where:
            raise
        raise InvalidInputError(f"{where}{error}") from error
    except (ValueError, TypeError) as error:
        names = [name for name in NUMERIC if parts.get(name) is not None and not (classes and name == "y")]
        found = next((said for name in names if (said := find_text(name, parts[name])) is not None), None)
        if found is None and not where:
            raise
        raise InvalidInputError(f"{where}{found or error}") from error


def find_text(name: str, data: Any) -> str | None:
    """Describe the first text in ``data`` that is not a number; None if there is none."""
    columns = frames.frame_names(data)
    array = np.asarray(frames.as_array(data))
    if array.dtype.kind not in "OSU" or array.ndim not in (1, 2):
        return None
    for j, column in enumerate(array.reshape(len(array), -1).T):
        wrong = next((i for i, value in enumerate(column) if not _is_number(value)), None)
        if wrong is not None:
            label = j if columns is None else repr(str(columns[j]))
            what = name if array.ndim == 1 else f"column {label} of {name}"
            text = str(column[wrong])
            return f"{what} has the text {text!r} in row {wrong}, expected numbers: convert the column, or leave it out"
    return None


def _is_number(value: Any) -> bool:
    """Whether a value is not a text, or the text of a number."""
    try:
        return not isinstance(value, str | bytes) or bool(float(value) or True)
    except ValueError:
        return False


# ---------------------------------------------------------------------- tables of several sites


def check_same_tables(tables: Mapping[str, Any]) -> None:
    """Raise an error unless the tables of all sites have the columns of the first, with text where it has text.

    Parameters
    ----------
    tables : mapping of str to (n, d) array or frame
        Covariates of each site.
    """
    for name, X in tables.items():
        if len(np.shape(X)) != 2:
            raise InvalidInputError(f"X of site {name} has shape {np.shape(X)}: expected rows and columns")
    (first, reference), *others = tables.items()
    kinds = column_kinds(reference)
    for name, X in tables.items():
        check_kinds(f"X of site {name}", X)
    for name, X in others:
        _check_same_names(first, reference, name, X)
        if len(X) and len(reference):  # a table without rows has columns without a kind
            _check_same_kinds(first, kinds, name, column_kinds(X), frame_names(reference))


def _check_same_names(first: str, reference: Any, name: str, X: Any) -> None:
    mine, theirs = frame_names(X), frame_names(reference)
    if np.shape(X)[1] != np.shape(reference)[1] and (mine is None or theirs is None):
        raise InvalidInputError(
            f"X of site {name} has {np.shape(X)[1]} columns, that of site {first} {np.shape(reference)[1]}: pass the "
            "same columns"
        )
    if mine is not None and theirs is not None and list(mine) != list(theirs):
        raise InvalidInputError(
            f"X of site {name} has columns {list(mine)}, that of site {first} has {list(theirs)}: pass the same "
            "columns, in the same order"
        )


def _check_same_kinds(first: str, kinds: list[str], name: str, own: list[str], names: np.ndarray | None) -> None:
    for j, (mine, theirs) in enumerate(zip(own, kinds, strict=True)):
        if (mine == "text") != (theirs == "text"):
            column = f"x{j}" if names is None else names[j]
            raise InvalidInputError(
                f"column {column!r} is of kind {mine} at site {name} and of kind {theirs} at site {first}: write it in "
                "one way at all sites"
            )


# ---------------------------------------------------------------------- collinear covariates


NAMED = 4
"""Maximum number of columns that are named, and of columns that are named for each."""
NEGLIGIBLE = 1e-6
"""Fraction of the spread of a column below which another column has no part in it."""


def unidentified_covariates(specification: Specification, columns: Dictionary, mixture: Mixture) -> list[str]:
    """Return for each covariate that is a linear function of others a sentence that names these.

    A category with a single level has no covariate, and is said to be constant. ``mixture`` is in the coordinates of
    the fit, whose designs do not read such covariates.
    """
    parts = ((mixture.design, specification.expert_columns), (mixture.reads, specification.gate_columns))
    names = list(columns.terms if mixture.design.d else ())
    single = [f"{column.name} is constant" for column in columns.columns if not column.terms]
    dependent = dict.fromkeys(each for design, read in parts for each in _sentences(design, names, read))
    said = [*single, *dependent]
    return said if len(said) <= NAMED + 1 else [*said[:NAMED], f"so are {len(said) - NAMED} more columns"]


def _sentences(design: Design, names: list[str], columns: tuple[int, ...] | None) -> Iterator[str]:
    read = [names[j] for j in design.columns or ()]
    for j, row in zip(design.unread, () if design.others is None else design.others, strict=True):
        if columns is None or j in columns:
            yield _sentence(names[j], read, row, design)


def _sentence(name: str, read: list[str], row: Array, design: Design) -> str:
    slopes = np.abs(row[int(design.intercept) :])
    parts = [each for each, slope in zip(read, slopes, strict=True) if slope > NEGLIGIBLE * slopes.max(initial=0.0)]
    if not parts:
        return f"{name} is constant"
    more = f" and {len(parts) - NAMED} more" if len(parts) > NAMED else ""
    return f"{name} is a linear function of {', '.join(parts[:NAMED])}{more}"
