"""Say which column of the data has text where numbers are needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from consilience.errors import InvalidInputError
from consilience.estimators import frames

NUMERIC = ("X", "y", "sample_weight", "exposure", "trials")
"""Arguments of ``fit`` that hold numbers; ``y`` of a classifier holds labels."""


@contextmanager
def named_columns(parts: Mapping[str, Any], *, classes: bool, site: str | None = None) -> Iterator[None]:
    """Name the site of an error in its data and, if a column has text instead of numbers, the column and the row.

    Parameters
    ----------
    parts : mapping of str to array or frame
        The data, by the names of the arguments of ``fit``.
    classes : bool
        Whether ``y`` holds labels.
    site : str or None

    Examples
    --------
    >>> with named_columns({"X": np.array([["1.5"], ["21,64"]])}, classes=False, site="north"):
    ...     np.array(["21,64"]).astype(float)
    Traceback (most recent call last):
    ...
    consilience.errors.InvalidInputError: site north: column 0 of X has the text '21,64' in row 1, expected numbers:
    convert the column, or leave it out
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
        found = next((said for name in names if (said := text_in(name, parts[name])) is not None), None)
        if found is None and not where:
            raise
        raise InvalidInputError(f"{where}{found or error}") from error


def text_in(name: str, data: Any) -> str | None:
    """Describe the first text in ``data`` that is not a number; None if there is none."""
    columns = frames.column_names(data)
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
