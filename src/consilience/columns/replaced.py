"""One column of a table read as it is, and replaced, in frames and arrays."""

from __future__ import annotations

from typing import Any

import narwhals.stable.v1 as nw
import numpy as np

from consilience.columns.frames import frame_names, is_frame


def as_table(X: Any) -> Any:
    """Return a frame whose columns have names as it is, anything else as an array ``(n, d)``."""
    if frame_names(X) is not None:
        return X
    return nw.from_native(X, eager_only=True).to_numpy() if is_frame(X) else np.asarray(X)


def column_values(X: Any, j: int) -> np.ndarray:
    """Return column ``j`` of a table as it is, ``(n,)``."""
    return np.asarray(nw.from_native(X, eager_only=True)[:, j].to_numpy()) if is_frame(X) else np.asarray(X[:, j])


def with_column(X: Any, j: int, values: np.ndarray) -> Any:
    """Return the table with other values in column ``j``.

    Examples
    --------
    >>> with_column(np.array([[1, 2], [3, 4]]), 1, np.array([0.5, 0.5]))
    array([[1. , 0.5],
           [3. , 0.5]])
    """
    if not is_frame(X):
        found = X.astype(
            np.result_type(X, values) if X.dtype.kind == values.dtype.kind or X.dtype.kind in "biuf" else object
        )
        found[:, j] = values
        return found
    frame = nw.from_native(X, eager_only=True)
    name, space = frame.columns[j], nw.get_native_namespace(frame)
    return frame.with_columns(nw.new_series(name, values, native_namespace=space)).to_native()
