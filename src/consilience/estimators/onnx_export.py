"""Predictions of a fitted estimator as an ONNX graph."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from consilience._version import __version__
from consilience.columns import Column, Rule
from consilience.errors import InvalidInputError
from consilience.fitted.protocols import FittedMixture
from consilience.model import Mixture
from consilience.numerics.arrays import Array

INVERSE_LINKS: dict[str, Callable[[Array], Array]] = {
    "identity": np.asarray,
    "log": np.exp,
    "logit": expit,
    "multinomial logit": lambda eta: softmax(eta, axis=1),
}
OPSET, ML_OPSET, IR_VERSION = 17, 3, 8
"""Versions of the operators and of the format: old ones, so that old runtimes read the file."""


class Graph:
    """Nodes, constants, inputs and outputs of an ONNX graph, in double precision."""

    def __init__(self) -> None:
        try:
            self._onnx = import_module("onnx")
        except ImportError as error:
            raise ImportError("to_onnx needs onnx: pip install 'consilience[onnx]'") from error
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, kind: str, width: int) -> str:
        """Add an input ``(n, width)`` of doubles, int64, bool or strings."""
        self._inputs.append(self._value(name, kind, ["n", width]))
        return name

    def constant(self, value: Any) -> str:
        """Add an array as a constant; integers are int64, text is a string tensor."""
        name, array = f"c{len(self._constants)}", np.asarray(value)
        kept = array.astype(object) if array.dtype.kind in "UO" else array
        self._constants.append(self._onnx.numpy_helper.from_array(kept, name))
        return name

    def node(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        name = f"t{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, [name], domain=domain, **attributes))
        return name

    def output(self, name: str, value: str, kind: str, *widths: int) -> None:
        """Name a value as an output ``(n, *widths)``."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name]))
        self._outputs.append(self._value(name, kind, ["n", *widths]))

    def _value(self, name: str, kind: str, shape: list[Any]) -> Any:
        return self._onnx.helper.make_tensor_value_info(name, getattr(self._onnx.TensorProto, kind), shape)

    def write(self, path: str | Path, title: str) -> None:
        """Check the graph and write it."""
        helper = self._onnx.helper
        graph = helper.make_graph(self._nodes, "consilience", self._inputs, self._outputs, self._constants)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        model = helper.make_model(
            graph,
            opset_imports=opsets,
            ir_version=IR_VERSION,
            producer_name="consilience",
            producer_version=__version__,
            doc_string=title,
        )
        self._onnx.checker.check_model(model)
        Path(path).write_bytes(model.SerializeToString())

    # ------------------------------------------------------------------ mathematics

    def affine(self, X: str, W: Array, b: Array) -> str:
        """Add ``X W + b`` for ``W (d, m)``, ``b (m,)``."""
        return self.node("Add", self.node("MatMul", X, self.constant(W)), self.constant(b))

    def reshape(self, value: str, *shape: int) -> str:
        """Add the value in another shape ``(n, ...)``."""
        return self.node("Reshape", value, self.constant(np.array([-1, *shape], dtype=np.int64)))

    def sum(self, value: str, axis: int) -> str:
        """Add the sum over an axis, which is dropped."""
        return self.node("ReduceSum", value, self.constant(np.array([axis], dtype=np.int64)), keepdims=0)


def write_onnx(estimator: FittedMixture, path: str | Path) -> None:
    """Write the predictions of a fitted estimator as an ONNX file."""
    graph = Graph()
    X = _covariates(graph, estimator)
    mixture = estimator.mixture_
    if mixture.design.d == 0:  # a Gaussian mixture: all columns are responses
        probabilities = _responsibilities(graph, mixture, X)
        _add_classes(graph, probabilities, np.arange(mixture.K), mixture.K)
        gate = _constant(graph, X, mixture.gate_weights(np.empty((1, 0)))[0], estimator.n_features_in_)
    else:
        gate = _gate(graph, mixture, X)
        mean, m = _mean(graph, mixture, X, gate)
        if mixture.experts.classes:
            total = graph.node("Unsqueeze", graph.sum(mean, 1), graph.constant(np.array([1])))
            _add_classes(graph, graph.node("Div", mean, total), estimator.classes_, m)
        elif m == 1:
            graph.output("prediction", graph.node("Squeeze", mean, graph.constant(np.array([1]))), "DOUBLE")
        else:
            graph.output("prediction", mean, "DOUBLE", m)
    graph.output("gate", gate, "DOUBLE", mixture.K)
    graph.write(path, estimator.title)


# ---------------------------------------------------------------- inputs


def _covariates(graph: Graph, estimator: FittedMixture) -> str:
    """Return the covariates ``(n, terms)``, from one input ``X``, or one for each if any has levels or a rule."""
    columns = estimator.columns_
    if columns.is_plain:
        return graph.input("X", "DOUBLE", len(columns.columns))
    return graph.node("Concat", *(_column(graph, column) for column in columns.columns), axis=1)


def _column(graph: Graph, column: Column) -> str:
    if not column.is_category:
        return _apply_rule(graph, graph.input(column.name, "DOUBLE", 1), column.rule)
    if isinstance(column.levels[0], str):
        value, levels = graph.input(column.name, "STRING", 1), {"cats_strings": list(column.levels)}
    elif all(isinstance(level, bool) for level in column.levels):
        value = graph.node("Cast", graph.input(column.name, "BOOL", 1), to=7)  # int64
        levels = {"cats_int64s": [int(level) for level in column.levels]}
    elif all(isinstance(level, int) for level in column.levels):
        value, levels = graph.input(column.name, "INT64", 1), {"cats_int64s": [int(level) for level in column.levels]}
    else:
        raise InvalidInputError(
            f"column {column.name!r} has levels that are not text, whole numbers or booleans, which ONNX cannot code: "
            "convert it to text and fit again"
        )
    coded = graph.node("OneHotEncoder", value, domain="ai.onnx.ml", zeros=0, **levels)  # an unknown level is an error
    kept = graph.node("Gather", coded, graph.constant(np.array(column.coded, dtype=np.int64)), axis=2)
    return graph.reshape(graph.node("Cast", kept, to=11), len(column.coded))  # double


def _apply_rule(graph: Graph, value: str, rule: Rule) -> str:
    """Return the covariate of a column of numbers, by its rule; ranges are not checked."""
    if rule.fill is not None:
        value = graph.node("Where", graph.node("IsNaN", value), graph.constant(np.array(float(rule.fill))), value)
    if rule.transform == "log1p":
        value = graph.node("Add", value, graph.constant(np.array(1.0)))
    if rule.transform != "none":
        value = graph.node("Sqrt" if rule.transform == "sqrt" else "Log", value)
    if rule.centre:
        value = graph.node("Sub", value, graph.constant(np.array(float(rule.centre))))
    return value if rule.scale == 1 else graph.node("Div", value, graph.constant(np.array(float(rule.scale))))


# ---------------------------------------------------------------- outputs


def _gate(graph: Graph, mixture: Mixture, X: str) -> str:
    """Return ``π_k(x)``, ``(n, K)``."""
    if not mixture.gate.reads_covariates:
        return _constant(graph, X, mixture.gate.read()[:, 0], mixture.design.d)
    W, b = _split(mixture.gate.read(), mixture.design.intercept)
    return graph.node("Softmax", graph.affine(X, W, b), axis=1)


def _constant(graph: Graph, X: str, values: Array, d: int) -> str:
    """Return the same values for each row, ``(n, K)``."""
    return graph.affine(X, np.zeros((d, len(values))), values)


def _mean(graph: Graph, mixture: Mixture, X: str, gate: str) -> tuple[str, int]:
    """Return ``Σ_k π_k(x) E[y | x, k]``, ``(n, m)``, and ``m``."""
    experts: Any = mixture.experts
    if not hasattr(experts, "B"):
        raise InvalidInputError(f"family={experts.family!r} has no coefficients B, from which ONNX is written")
    B = experts.B.reshape(experts.K, -1, experts.p)
    m = B.shape[1]
    W, b = _split(B.reshape(-1, experts.p), mixture.design.intercept)
    each = _link(graph, graph.reshape(graph.affine(X, W, b), experts.K, m), experts)
    factors = _factors(experts, B)
    if np.any(factors != 1):
        each = graph.node("Mul", each, graph.constant(factors))
    return graph.sum(graph.node("Mul", graph.reshape(gate, experts.K, 1), each), 1), m


def _link(graph: Graph, eta: str, experts: Any) -> str:
    """Return the means of linear predictors ``(n, K, m)``."""
    if experts.link == "log":
        return graph.node("Exp", graph.node("Min", eta, graph.constant(float(experts.largest_predictor))))
    if experts.link == "logit":
        return graph.node("Sigmoid", eta)
    return graph.node("Softmax", eta, axis=2) if experts.link == "multinomial logit" else eta


def _factors(experts: Any, B: Array) -> Array:
    """Return the factors ``(K, m)`` of the means beside their link; raise an error if they depend on covariates."""
    panel = np.random.default_rng(0).normal(size=(experts.p, 5))
    panel /= 1 + np.abs(B @ panel).max()
    linked, mean = INVERSE_LINKS[experts.link](B @ panel), experts.mean(panel)
    factors: Array = np.sum(linked * mean, axis=2) / np.sum(linked**2, axis=2)
    if not np.allclose(factors[:, :, None] * linked, mean, rtol=1e-9, atol=1e-12):
        raise InvalidInputError(
            f"family={experts.family!r}: the mean is not a multiple of its {experts.link} link, which ONNX cannot write"
        )
    return np.where(np.isclose(factors, 1, rtol=1e-12, atol=0), 1.0, factors)


def _responsibilities(graph: Graph, mixture: Mixture, x: str) -> str:
    """Return ``P(component k | x)`` of a Gaussian mixture, ``(n, K)``, from whitened differences to the means."""
    experts: Any = mixture.experts
    K, q = experts.K, experts.q
    L, inverse = experts.factors
    W = np.broadcast_to(inverse, (K, q, q)).reshape(K * q, q).T
    z = graph.reshape(graph.affine(x, W, -np.einsum("kab,kb->ka", inverse, experts.B[:, :, 0]).ravel()), K, q)
    squares = graph.node("Mul", graph.sum(graph.node("Mul", z, z), 2), graph.constant(-0.5))
    log_det = np.log(np.diagonal(L, axis1=1, axis2=2)).sum(axis=1)
    prior = mixture.gate.evaluate(np.empty((1, 1)))[0][:, 0] - log_det
    return graph.node("Softmax", graph.node("Add", squares, graph.constant(prior)), axis=1)


def _add_classes(graph: Graph, probabilities: str, classes: np.ndarray, C: int) -> None:
    """Add the outputs of a classifier: the most probable class, and the probabilities."""
    kind = {"i": "INT64", "u": "INT64", "b": "BOOL", "f": "DOUBLE"}.get(classes.dtype.kind, "STRING")
    cast = {"INT64": np.int64, "BOOL": np.bool_, "DOUBLE": np.float64, "STRING": np.str_}[kind]
    code = graph.node("ArgMax", probabilities, axis=1, keepdims=0)
    graph.output("label", graph.node("Gather", graph.constant(classes.astype(cast)), code), kind)
    graph.output("probabilities", probabilities, "DOUBLE", C)


def _split(coefficients: Array, intercept: bool) -> tuple[Array, Array]:
    """Return slopes ``(d, m)`` and intercepts ``(m,)`` of coefficients ``(m, p)``."""
    b = coefficients[:, 0] if intercept else np.zeros(len(coefficients))
    return np.ascontiguousarray(coefficients[:, int(intercept) :].T), b
