"""Protocols of fitted models and of results over sites, and the names and table of a model's parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import getattr_static
from itertools import cycle
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from sklearn.utils import check_random_state

from consilience.columns import Column, Dictionary
from consilience.columns.derived import Derivation
from consilience.errors import InvalidInputError
from consilience.fit import Fit, Inference, Specification, StartEnds, StopReason, bic
from consilience.fit.inference import part_in_words
from consilience.model import Design, Mixture, Rows
from consilience.numerics.arrays import Array

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from consilience.runs.record import Record


class FittedMixture(Protocol):
    """What text, pictures, reports, files and federations use of a fitted estimator.

    ``specification_`` is what was fitted, ``coordinates_`` are those of experts and gate in which the fit was made:
    with an intercept, centred, of unit variance. ``single_bic_`` is the BIC of one expert on the same rows; None for
    one expert, a federated fit, or more than 20,000 rows. ``degeneracy_`` is the reason why the fit is degenerate, and
    ``doubts_`` are reasons not to trust it as a whole; empty if there are none. Only a classifier has ``classes_``.
    """

    title: str
    order_name: str
    random_state: Any
    verbose: Any

    mixture_: Mixture
    inference_: Inference
    columns_: Dictionary
    classes_: np.ndarray
    response_names_: tuple[str, ...]
    derivation_: Derivation | None
    n_features_in_: int
    specification_: Specification
    coordinates_: tuple[Design, Design]
    weights_: Array
    log_likelihood_: float
    n_parameters_: int
    effective_parameters_: float
    n_labels_: float
    n_rows_: float
    single_bic_: float | None
    trace_: Array
    n_iter_: int
    converged_: bool
    stop_reason_: StopReason
    starts_: StartEnds
    starts_agree_: bool
    unidentified_: list[str]
    degeneracy_: str
    doubts_: tuple[str, ...]

    def covariates(self, X: Any) -> Array: ...  # noqa: D102 - documented by estimators

    def rows(self, X: Any, y: Any = None, **metadata: Any) -> Rows: ...  # noqa: D102

    def predict(self, X: Any) -> Any: ...  # noqa: D102

    def predict_gate(self, X: Any) -> Array: ...  # noqa: D102

    def summary(self, *, reference: int | None = None, level: float = 0.95) -> str: ...  # noqa: D102

    def describe(self, *, level: float = 0.95) -> str: ...  # noqa: D102


class FederatedResult(Protocol):
    """What pictures and reports use of the result of ``Federation.fit``."""

    @property
    def model(self) -> FittedMixture: ...  # noqa: D102 - documented by FederatedFit

    @property
    def record(self) -> Record: ...  # noqa: D102

    @property
    def fit(self) -> Fit: ...  # noqa: D102

    @property
    def models(self) -> Mapping[str, FittedMixture]: ...  # noqa: D102


class OrderComparison(Protocol):
    """What pictures and reports use of a comparison of numbers of experts."""

    @property
    def orders(self) -> tuple[int, ...]: ...  # noqa: D102 - documented by OrderSelection

    @property
    def criterion(self) -> str: ...  # noqa: D102

    @property
    def scores(self) -> Mapping[str, Sequence[float]]: ...  # noqa: D102

    @property
    def set_aside(self) -> Mapping[int, str]: ...  # noqa: D102

    @property
    def best_order(self) -> int: ...  # noqa: D102


class LocalComparison(OrderComparison, Protocol):
    """A comparison by ``select_order``."""

    @property
    def estimators(self) -> Sequence[FittedMixture]: ...  # noqa: D102

    def preferred(self, criterion: str) -> int: ...  # noqa: D102


class FederatedComparison(OrderComparison, Protocol):
    """A comparison by ``Federation.select_order``."""

    @property
    def fits(self) -> Sequence[FederatedResult]: ...  # noqa: D102

    @property
    def best(self) -> FederatedResult: ...  # noqa: D102


def is_federated_result(value: object) -> TypeIs[FederatedResult]:
    """Whether a value is the result of ``Federation.fit``."""
    return _has_members(value, FederatedResult)


def is_local_comparison(value: object) -> TypeIs[LocalComparison]:
    """Whether a value is the result of ``select_order``."""
    return _has_members(value, LocalComparison)


def is_federated_comparison(value: object) -> TypeIs[FederatedComparison]:
    """Whether a value is the result of ``Federation.select_order``."""
    return _has_members(value, FederatedComparison)


def _has_members(value: object, protocol: object) -> bool:
    """Whether a value has the members of a protocol; none of them is evaluated, since a property may raise an error."""
    absent = object()
    names = [name for name in dir(protocol) if not name.startswith("_")]
    return all(getattr_static(value, name, absent) is not absent for name in names)


# ---------------------------------------------------------------------- arguments


def check_level(level: float) -> None:
    """Raise an error for an invalid confidence level."""
    if not 0 < level < 1:
        raise InvalidInputError(f"level={level!r}: expected a number strictly between 0 and 1")


def generator(random_state: Any) -> np.random.Generator:
    """Return a numpy Generator for scikit-learn's ``random_state``."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))


# ---------------------------------------------------------------------- the table of parameters


ROUNDING = 1e-9
"""Relative error up to which sums of responsibilities are equal."""


def labelled(estimator: FittedMixture) -> str:
    """Return what has a label: rows, which are a sum of responsibilities and rounded, or groups of them."""
    return "rows" if estimator.n_rows_ <= estimator.n_labels_ * (1 + ROUNDING) else "groups"


def follows_noise(estimator: FittedMixture) -> bool:
    """Whether a fit has more parameters of its own than observed responses."""
    return bool(estimator.effective_parameters_ > estimator.n_rows_ * estimator.mixture_.experts.q)


def is_needless(estimator: FittedMixture) -> bool:
    """Whether one expert describes the rows as well as the mixture, by BIC; False if it was not examined."""
    own = bic(estimator.log_likelihood_, estimator.n_parameters_, estimator.n_labels_)
    return estimator.single_bic_ is not None and estimator.single_bic_ <= own


def term_names(estimator: FittedMixture) -> list[str]:
    """Return the names of the coefficients: the intercept and the covariates."""
    design = estimator.mixture_.design
    features = estimator.columns_.terms if design.d else ()
    return ["(intercept)", *features] if design.intercept else [*features]


def terms_read(estimator: FittedMixture) -> tuple[list[int], list[int]]:
    """Return the places of the terms that the gate and the experts read, the intercept included."""
    chosen = estimator.specification_
    return _places(estimator, chosen.gate_columns), _places(estimator, chosen.expert_columns)


def shared_places(estimator: FittedMixture) -> set[int]:
    """Return the places of the terms whose coefficients are equal in all experts."""
    shared = estimator.specification_.shared if estimator.mixture_.K > 1 else ()
    return {j + int(estimator.mixture_.design.intercept) for j in shared}


def shared_columns(estimator: FittedMixture) -> list[str]:
    """Return the names of the columns of these terms."""
    intercept, columns = int(estimator.mixture_.design.intercept), estimator.columns_.columns
    owners = [column.name for column in columns for _ in column.terms]
    return list(dict.fromkeys(owners[place - intercept] for place in sorted(shared_places(estimator))))


def expert_term_names(estimator: FittedMixture) -> list[str]:
    """Return the names of the experts' coefficients, with a mark on those that are equal in all experts."""
    shared = shared_places(estimator)
    return [f"{name} (shared)" if i in shared else name for i, name in enumerate(term_names(estimator))]


def _places(estimator: FittedMixture, columns: tuple[int, ...] | None) -> list[int]:
    intercept, p = int(estimator.mixture_.design.intercept), len(term_names(estimator))
    return list(range(p)) if columns is None else [*range(intercept), *(j + intercept for j in columns)]


def source_columns(estimator: FittedMixture) -> tuple[Column, ...]:
    """Return the columns of a table that a model reads, with their rules: those of its formula, or those of X."""
    columns, derivation = estimator.columns_.columns, estimator.derivation_
    if derivation is None:
        return columns
    known = {column.name: column for column in (*columns, *derivation.factors)}
    return tuple(known.get(name, Column(name)) for name in derivation.sources)


def response_names(estimator: FittedMixture) -> list[str]:
    """Return the names of an expert's linear predictors: classes, components of x, or responses."""
    count = estimator.inference_.estimates.experts.shape[1]
    if estimator.mixture_.experts.classes:
        classes = [str(c) for c in estimator.classes_]
        return classes[1:] if count == 1 else classes
    if not estimator.mixture_.gate.reads_covariates and estimator.mixture_.design.d == 0:  # a Gaussian mixture
        names = getattr(estimator, "feature_names_in_", [f"x{j}" for j in range(count)])
        return [str(name) for name in names]
    named = estimator.response_names_
    return [*named] if len(named) == count else ["y"] if count == 1 else [f"y{j}" for j in range(count)]


def model_title(estimator: FittedMixture) -> str:
    """Return the title of a model with the names of its responses, if the data had them."""
    names = estimator.response_names_
    return f"{estimator.title} of {join_words(names)}" if 0 < len(names) <= TITLE_NAMES else estimator.title


TITLE_NAMES = 3
"""Maximum number of responses that a title names."""


def noun(estimator: FittedMixture) -> str:
    """Return the name of a mixture component: expert or component."""
    return "component" if estimator.order_name == "n_components" else "expert"


def expert_label(estimator: FittedMixture, k: int) -> str:
    """Return what people read for component ``k`` of the arrays: they are counted from 1, such as ``expert 1``."""
    return f"{noun(estimator)} {k + 1}"


def withheld_part(estimator: FittedMixture, part: str) -> str:
    """Return what people read for a part whose intervals are withheld, such as ``expert 1`` or ``variance``."""
    return estimator.mixture_.experts.shape_name if part == "shapes" else part_in_words(part)


def join_words(parts: Sequence[str]) -> str:
    """Return a list in words: ``a, b and c``."""
    return " and ".join(parts) if len(parts) < 3 else ", ".join(parts[:-1]) + " and " + parts[-1]


def parameter_table(estimator: FittedMixture, level: float) -> dict[str, list[Any]]:
    """Return the columns of the tidy table: one entry per parameter."""
    inference = estimator.inference_
    keys = parameter_keys(estimator)
    lower, upper = inference.interval(level)
    kept = [i for i, key in enumerate(keys) if key is not None]
    columns: dict[str, list[Any]] = {
        name: [keys[j][i] for j in kept]  # type: ignore[index]
        for i, name in enumerate(("part", "expert", "response", "term"))
    }
    between = inference.between
    for name, values in (
        ("estimate", inference.estimates),
        ("std_error", inference.standard_errors()),
        ("lower", lower),
        ("upper", upper),
        *(() if between is None else (("I2", between.I2), ("tau2", between.tau2))),
    ):
        columns[name] = values.flat()[kept].tolist()
    return columns


Key = tuple[str, int, str, str]


def parameter_keys(estimator: FittedMixture) -> list[Key | None]:
    """Return part, expert, response and term of each parameter; None for those of terms that are not read."""
    K, names, outputs = estimator.mixture_.K, term_names(estimator), response_names(estimator)
    part, (read, expert_read) = estimator.mixture_.gate.part, map(set, terms_read(estimator))
    of_gate = [name if i in read else None for i, name in enumerate(names)]
    of_gate = of_gate if estimator.mixture_.gate.reads_covariates else [""]
    of_expert = [name if i in expert_read else None for i, name in enumerate(names)]
    gate: list[Key | None] = [None if term is None else (part, k, "", term) for k in range(K) for term in of_gate]
    experts: list[Key | None] = [
        None if term is None else ("expert", k, response, term)
        for k in range(K)
        for response in outputs
        for term in of_expert
    ]
    shapes = list(zip(estimator.mixture_.experts.shape_names, cycle(outputs), strict=False))
    return [*gate, *experts, *((f"log_{name}", k, response, "") for k in range(K) for name, response in shapes)]
