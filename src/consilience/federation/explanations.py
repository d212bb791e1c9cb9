"""Reasons of failures at sites whose data are the caller's own: the file, the column and its types."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from consilience.messages.failures import Failure, FailureCode, SiteError
from consilience.site.columns import is_number
from consilience.site.shards import Shard, column_types
from consilience.site.site import Site

OF_FILES = frozenset(
    {
        FailureCode.OTHER_COLUMNS,
        FailureCode.NOT_NUMBERS,
        FailureCode.MISSING_VALUES,
        FailureCode.UNKNOWN_CLASS,
        FailureCode.BAD_WEIGHTS,
        FailureCode.DATA_NOT_FOUND,
        FailureCode.DATA_UNREADABLE,
    }
)
"""Failures that a file shows to whoever reads it."""


def explained(name: str, failure: Failure, sites: Sequence[Site]) -> Failure:
    """Return the failure of a site with its reason, or with the place of its traceback.

    A site of this process has kept the reason. A file that a worker could not read is read here, up to the error.

    Parameters
    ----------
    name : str
        Name of the site.
    failure : Failure
    sites : sequence of Site
        All sites of the run.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import Rows
    >>> site = Site("north", Rows(np.zeros((2, 1)), np.zeros((2, 1))))
    >>> reference = site.keep_trace(SiteError(FailureCode.MISSING_VALUES, "column 'dose'"))
    >>> print(explained("north", Failure(FailureCode.MISSING_VALUES, reference), [site]))
    a column has missing or infinite values: fill or drop those rows: column 'dose'
    """
    if not failure.reference or failure.detail:
        return failure
    site = next(each for each in sites if each.name == name)
    kept = dict(site.reasons).get(failure.reference)
    if kept is None:
        reason = _read_here(site, failure.code) or (
            f"the traceback is in the log of the worker that read it (reference {failure.reference})"
        )
    elif failure.code is FailureCode.INTERNAL:
        reason = f"{kept}; the traceback is in Federation.traces[{name!r}]"
    else:
        reason = kept or f"the traceback is in Federation.traces[{name!r}]"
    return replace(failure, detail=reason + _other_types(site, failure.code, sites))


def _read_here(site: Site, code: FailureCode) -> str:
    """Read the file of a site up to its error; return the reason if the code is the same."""
    if code in OF_FILES:
        try:
            for _ in site.chunks():
                pass
        except SiteError as error:
            return error.detail if error.code is code else ""
    return ""


def _other_types(site: Site, code: FailureCode, sites: Sequence[Site]) -> str:
    """Say which type a column without numbers has in another file, if it has numbers there."""
    other = next((each for each in sites if each is not site), site)
    if code is not FailureCode.NOT_NUMBERS or not (isinstance(site.data, Shard) and isinstance(other.data, Shard)):
        return ""
    with suppress(SiteError):
        here, there = column_types(site.data.uri), column_types(other.data.uri)
        both = (column for column in site.data.columns.numeric if column in here and column in there)
        for column in both:
            if not is_number(here[column]) and is_number(there[column]):
                return f", but of type {there[column]} in {other.name}: write it as numbers in all files"
    return ""
