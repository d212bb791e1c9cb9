"""Conversion from and to data frames of pandas, polars and others, through narwhals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import pyarrow as pa

from consilience.errors import InvalidInputError


def is_frame(X: object) -> bool:
    """Whether ``X`` is a data frame that narwhals supports; an error if two of its columns have one name."""
    _check_names_differ(X)
    return isinstance(nw.from_native(X, eager_only=True, pass_through=True), nw.DataFrame)


def _check_names_differ(X: object) -> None:
    given = getattr(X, "column_names", getattr(X, "columns", ()))  # of arrow, of pandas
    names = [name for name in given if isinstance(name, str)] if isinstance(given, Iterable) else []
    if len(set(names)) < len(names):
        twice = ", ".join(sorted({repr(name) for name in names if names.count(name) > 1}))
        raise InvalidInputError(f"X has two columns of the name {twice}: give each column its own name")


def column_names(X: object) -> np.ndarray | None:
    """Return the column names of a frame if all are strings, otherwise None."""
    if not is_frame(X):
        return None
    names = nw.from_native(X, eager_only=True).columns
    return np.asarray(names, dtype=object) if all(isinstance(name, str) for name in names) else None


def as_array(X: object) -> Any:
    """Convert a frame to a numpy array ``(n, d)``; return anything else unchanged."""
    if not is_frame(X):
        return X
    return nw.from_native(X, eager_only=True).to_numpy()


def backend_of(X: object) -> str | None:
    """Return the name of the module (``"pandas"``, ``"polars"``, …) of a frame, or None for an array."""
    if not is_frame(X):
        return None
    name: str = nw.get_native_namespace(nw.from_native(X, eager_only=True)).__name__
    return name


def to_frame(columns: Mapping[str, Sequence[Any]], backend: str | None = None) -> Any:
    """Build a frame from ``columns``: of the given backend, else pandas if installed, else ``pyarrow.Table``."""
    try:
        module = import_module(backend or "pandas")
    except ImportError:
        if backend is not None:
            raise
        return pa.table(dict(columns))
    return nw.from_dict(dict(columns), native_namespace=module).to_native()
