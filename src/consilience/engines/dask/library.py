"""Dask, imported when it is first needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def distributed() -> Any:
    """Import ``distributed``, or raise an error with the command that installs it."""
    try:
        return import_module("distributed")
    except ImportError as error:
        raise ImportError("DaskCluster needs Dask: pip install 'consilience[dask]'") from error


def dask() -> Any:
    """Import ``dask``, for its configuration."""
    return import_module("dask")
