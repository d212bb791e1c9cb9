"""Data of a federation: arrays of each site, or shards of a table, from which the sites are built."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from sklearn.base import is_classifier

from consilience.columns import Column, Dictionary
from consilience.columns.arrow import is_category
from consilience.columns.column_kinds import REMEDIES, arrow_kind, say_kind
from consilience.columns.dictionary import check_chosen, check_references
from consilience.data import Columns, Shard
from consilience.data.file_columns import is_number
from consilience.data.shards import column_names_in, column_types, distinct_values
from consilience.data.stores import expand, is_remote, open_store, show_address
from consilience.errors import InvalidInputError
from consilience.estimators.estimator import MixtureEstimator
from consilience.estimators.federated import (
    check_no_formula,
    chosen_coding,
    column_roles,
    set_columns,
    set_response,
    set_size,
    site_rows,
)
from consilience.federation.federated_fit import list_some
from consilience.messages import SiteError
from consilience.messages.site_names import site_names
from consilience.model import Groups, Rows
from consilience.site import Site

COLUMNS_SHOWN = 20
PARTS = ("X", "y", "sample_weight", "groups", "exposure", "trials", "clusters")
LABELS = ("groups", "clusters")
"""Those that are labels of rows, not numbers."""


class DataSource(Protocol):
    """Interface of the data of a federation."""

    @property
    def names(self) -> list[str]:
        """Return the names of the sites."""
        ...

    @property
    def description(self) -> str:
        """Return the number and names of the sites in one line."""
        ...

    def sites(self, estimator: MixtureEstimator | None) -> list[Site]:
        """Return the sites, with rows in the form that ``estimator`` reads, or unchanged if it is None."""
        ...


@dataclass(frozen=True, eq=False)
class Arrays:
    """Arrays or data frames of each site, in memory."""

    parts: dict[str, dict[str, Any]]

    @classmethod
    def of(cls, sites: Mapping[str, Any]) -> Arrays:
        """Build from ``(X, y)`` or a mapping with ``X``, ``y``, ``sample_weight`` and other parts, for each site."""
        if not sites:
            raise InvalidInputError("a federation needs at least one site")
        names = site_names(sites)
        parts = {name: _part(name, data) for name, data in zip(names, sites.values(), strict=True)}
        for name in LABELS:
            if len({part.get(name) is None for part in parts.values()}) > 1:
                raise InvalidInputError(f"some sites have {name} and some do not: pass {name} for all sites")
        return cls(parts)

    @property
    def names(self) -> list[str]:
        """Return the names of the sites."""
        return list(self.parts)

    @property
    def description(self) -> str:
        """Return the number and names of the sites in one line."""
        return f"{len(self.parts)} sites in memory ({list_some(list(self.parts))})"

    def sites(self, estimator: MixtureEstimator | None) -> list[Site]:
        """Return one site for each name, in order."""
        rows = list(map(_plain, self.parts.values())) if estimator is None else site_rows(estimator, self.parts)
        return [Site(name, data) for name, data in zip(self.parts, rows, strict=True)]


def _part(name: str, data: Any) -> dict[str, Any]:
    if isinstance(data, Mapping):
        unknown = set(data) - set(PARTS)
        if unknown or "X" not in data:
            raise InvalidInputError(f"site {name}: expected X and any of {', '.join(PARTS[1:])}, got {sorted(data)}")
        return dict(data)
    if not isinstance(data, tuple) or not 1 <= len(data) <= 2:
        raise InvalidInputError(f"site {name}: expected (X, y), or a mapping with {', '.join(PARTS)}")
    return dict(zip(PARTS, data, strict=False))


def _plain(part: Mapping[str, Any]) -> Rows:
    """Convert unchanged arrays to rows; without ``y``, columns are responses, as for a Gaussian mixture."""
    arrays = {
        name: np.asarray(part[name], dtype=np.float64)
        for name in PARTS
        if part.get(name) is not None and name not in LABELS
    }
    if arrays["X"].ndim != 2 or not all(np.all(np.isfinite(array)) for array in arrays.values()):
        raise InvalidInputError("expected X with rows and columns, and finite numbers in all arrays")
    n = len(arrays["X"])
    X, Y = (np.empty((n, 0)), arrays["X"]) if "y" not in arrays else (arrays["X"], arrays["y"].reshape(n, -1))
    labels = [None if part.get(name) is None else Groups.of(np.asarray(part[name])) for name in LABELS]
    return Rows(X, Y, arrays.get("sample_weight"), arrays.get("exposure", arrays.get("trials")), *labels)


@dataclass(frozen=True)
class Shards:
    """Shards of a table; each shard is a site."""

    uris: tuple[str, ...]
    columns: Columns
    size_name: str | None

    @classmethod
    def of(
        cls,
        pattern: str | Sequence[str],
        *,
        target: str | Sequence[str] | None,
        features: Sequence[str] | None,
        weight: str | None = None,
        groups: str | None = None,
        exposure: str | None = None,
        trials: str | None = None,
        clusters: str | None = None,
    ) -> Shards:
        """Build from a pattern or a list of addresses; features are by default all columns without another role."""
        uris = expand(pattern)
        _check_files(uris)
        responses = () if target is None else (target,) if isinstance(target, str) else tuple(target)
        if exposure is not None and trials is not None:
            raise InvalidInputError("expected a column for exposure or for trials, not both")
        taken = {*responses, weight, groups, clusters, exposure, trials} - {None}
        known = column_names_in(uris[0])
        check_file_columns(uris[0], known, {"target": responses, "features": features or (), "other roles": taken})
        if features is None:
            features = [name for name in known if name not in taken]
        columns = Columns(tuple(features), responses, weight, exposure or trials, groups, clusters=clusters)
        for labels in filter(None, (groups, clusters)):
            _check_groups(uris, labels)
        return cls(uris, columns, "exposure" if exposure else "trials" if trials else None)

    @property
    def description(self) -> str:
        """Return the number and names of the files in one line, and their columns by role."""
        target = ", ".join(self.columns.target) or "none"
        features = list_some(self.columns.features)
        return f"{len(self.uris)} files ({list_some(self.names)}), target {target}, features {features}"

    def sites(self, estimator: MixtureEstimator | None) -> list[Site]:
        """Return one site for each shard, in the order of addresses."""
        columns = self.columns
        if estimator is not None:
            check_no_formula(estimator)
            set_size(estimator, self.size_name)
            names = columns.features
            features, target = column_roles(estimator, columns.features, columns.target)
            types = self._types()
            _check_types(types, columns.numeric)
            classes = self._levels(target[0]) if is_classifier(estimator) else None
            dictionary = self._dictionary(features, types, estimator) if features else None
            columns = replace(columns, features=features, target=target, classes=classes, dictionary=dictionary)
            set_columns(estimator, names, classes=classes, dictionary=dictionary)
            set_response(estimator, self.columns.target)
        return [Site(name, Shard(uri, columns)) for name, uri in zip(self.names, self.uris, strict=True)]

    @property
    def names(self) -> list[str]:
        """Return the file names if they are distinct, else the whole addresses."""
        names = [uri.split("?")[0].rsplit("/", 1)[-1] for uri in self.uris]
        return list(site_names(names if len(set(names)) == len(names) else self.uris))

    def _levels(self, column: str) -> tuple[Any, ...]:
        return tuple(sorted({value for uri in self.uris for value in distinct_values(uri, column)}))

    def _readable(self, column: str) -> tuple[Any, ...]:
        """Return the levels of a column in the shards that can be read."""
        found: set[Any] = set()
        for uri in self.uris:
            with suppress(SiteError):
                found |= set(distinct_values(uri, column))
        return tuple(sorted(found))

    def _types(self) -> dict[str, dict[str, Any]]:
        """Return the types of the columns of each shard; one that cannot be read is left to the run, which names it."""
        types = {}
        for uri in self.uris:
            with suppress(SiteError):
                types[uri] = column_types(uri)
        return types

    def _dictionary(
        self, features: tuple[str, ...], types: Mapping[str, Mapping[str, Any]], estimator: MixtureEstimator
    ) -> Dictionary:
        """Return the kinds of the features, by type or as chosen, with the levels that occur in any shard."""
        typed = _categories(types, features)
        chosen, references = chosen_coding(estimator, features)
        if chosen is not None:
            check_chosen(typed, chosen)
        check_references(references, features)
        levels = {name: (False, True) if typed.get(name) else self._readable(name) for name in chosen or typed}
        return Dictionary(tuple(Column(name, levels.get(name, ()), references.get(name)) for name in features))


def _check_types(types: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> None:
    """Raise an error for dates and other columns that are neither numbers nor categories."""
    for uri, of_file in types.items():
        for name in names:
            kind = arrow_kind(of_file[name]) if name in of_file else "number"
            if kind in REMEDIES:
                raise InvalidInputError(say_kind(f"column {name!r} of {show_address(uri)}", kind))


def _categories(types: Mapping[str, Mapping[str, Any]], features: Sequence[str]) -> dict[str, bool]:
    """Return which features are text, dictionaries or boolean, True for boolean; raise an error if files differ."""
    found: dict[str, bool] = {}
    for name in features:
        kinds = {uri: of_file[name] for uri, of_file in types.items() if name in of_file}
        text = [uri for uri, kind in kinds.items() if is_category(kind) and not is_number(kind)]
        numbers = [uri for uri, kind in kinds.items() if is_number(kind) and str(kind) != "null"]
        if text and numbers:
            a, b = text[0], numbers[0]
            raise InvalidInputError(
                f"column {name!r} is of type {kinds[a]} in {show_address(a)}, "
                f"but of type {kinds[b]} in {show_address(b)}: write "
                "it with one type in all files"
            )
        if any(is_category(kind) for kind in kinds.values()):
            found[name] = not text
    return found


def check_file_columns(uri: str, known: Sequence[str], asked: Mapping[str, Iterable[Any]]) -> None:
    """Raise an error if the first file does not have the columns that were asked for."""
    for role, names in asked.items():
        for name in names:
            if name not in known:
                raise InvalidInputError(
                    f"{role}: {show_address(uri)} has no column {name!r}; its columns are {_listed(known)}"
                )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:COLUMNS_SHOWN])
    return shown if len(names) <= COLUMNS_SHOWN else f"{shown} and {len(names) - COLUMNS_SHOWN} more"


def _check_files(uris: Sequence[str]) -> None:
    """Raise an error if two addresses are of one file."""
    files: dict[str, str] = {}
    for uri in uris:
        file = uri if is_remote(uri) else os.path.realpath(open_store(uri)[1])
        if file in files:
            raise InvalidInputError(
                f"{show_address(files[file])} and {show_address(uri)} are the same file: name it once"
            )
        files[file] = uri


def _check_groups(uris: Sequence[str], column: str) -> None:
    """Raise an error if the rows of a group are in two shards."""
    home: dict[str, str] = {}
    for uri in uris:
        for label in distinct_values(uri, column):
            if home.setdefault(str(label), uri) != uri:  # a CSV file may hold as text what another holds as numbers
                raise InvalidInputError(
                    f"a group of column {column!r} has rows in {home[str(label)]} and in {uri}: "
                    "write the rows of a group into one shard"
                )
