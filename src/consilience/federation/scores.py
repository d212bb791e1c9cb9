"""Scores of the shards of a table: what is read, where it is written, and what became of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from sklearn.base import is_classifier

from consilience.columns import Dictionary
from consilience.data import Columns, Shard
from consilience.data.predict_files import Scored, Scoring
from consilience.data.shards import column_names_in
from consilience.data.stores import absolute_uri, is_remote, open_store, show_address
from consilience.errors import InvalidInputError, RoundStoppedError
from consilience.estimators.estimator import MixtureEstimator
from consilience.estimators.federated import column_roles, fitted_rows, set_size, size_of_fit
from consilience.federation.data_source import Arrays, DataSource, Shards, check_file_columns
from consilience.messages import LogLikelihood, encode
from consilience.site import Site

FAILURES_SHOWN = 3


@dataclass(frozen=True)
class Scores:
    """Files of scores, one for each shard.

    Parameters
    ----------
    files : tuple of str
        Addresses of the files, in the order of the shards.
    rows : int
        Number of rows written in this run.
    were_there : int
        Number of files that were there, complete, from an earlier run.

    Examples
    --------
    >>> from consilience.federation import Scores
    >>> Scores(("scores/a.parquet", "scores/b.parquet"), 2_000_000, 0)
    2 files of scores, from scores/a.parquet on: 2,000,000 rows written now
    """

    files: tuple[str, ...]
    rows: int
    were_there: int

    def __repr__(self) -> str:
        there = f", {self.were_there:,} files were there" if self.were_there else ""
        return f"{len(self.files):,} files of scores, from {self.files[0]} on: {self.rows:,} rows written now{there}"


def plan_scores(
    shards: Shards, model: MixtureEstimator, out: str, keep: Sequence[str], *, overwrite: bool
) -> list[Scoring]:
    """Return what to do for each shard; raise an error if it would write among the inputs."""
    columns = model_columns(shards, model)
    check_file_columns(shards.uris[0], column_names_in(shards.uris[0]), {"model": columns.names, "keep": keep})
    labels = tuple(model.classes_.tolist()) if is_classifier(model) else ()
    outputs = _outputs(shards.uris, out)
    _check_keep(keep, labels, model)
    digest = blake2b(encode(LogLikelihood(model.mixture_)), digest_size=16)
    digest.update(repr((columns.dictionary, labels)).encode())
    return [
        Scoring(Shard(absolute_uri(uri), columns), target, tuple(keep), labels, digest.hexdigest(), overwrite)
        for uri, target in zip(shards.uris, outputs, strict=True)
    ]


def collect_scores(names: Sequence[str], tasks: Sequence[Scoring], outcomes: dict[int, Scored | None]) -> Scores:
    """Return the scores; raise an error that names the files that could not be scored."""
    lost = Scored(failure="its workers were lost again and again: out of memory, killed, or unreachable")
    found = [outcomes.get(i) or lost for i in range(len(tasks))]
    failed = [i for i, each in enumerate(found) if each.failure]
    if failed:
        said = "; ".join(f"{names[i]}: {found[i].failure}" for i in failed[:FAILURES_SHOWN])
        more = f"; and {len(failed) - FAILURES_SHOWN} more" if len(failed) > FAILURES_SHOWN else ""
        raise RoundStoppedError(
            f"{len(failed)} of {len(tasks)} files were not scored: {said}{more}. The others are written: the same call "
            "scores the rest",
            tuple(names[i] for i in failed),
            None,
        )
    return Scores(
        tuple(task.out for task in tasks), sum(each.rows for each in found), sum(each.was_there for each in found)
    )


def sites_of_model(source: DataSource, model: MixtureEstimator) -> list[Site]:
    """Return the sites with their rows in the columns of a fitted model."""
    if isinstance(source, Arrays):
        rows = fitted_rows(model, source.parts)
        return [Site(name, each) for name, each in zip(source.names, rows, strict=True)]
    if not isinstance(source, Shards) or not source.columns.target:
        raise InvalidInputError("the rows have no response: name its column, as in from_parquet(..., target=...)")
    columns = model_columns(source, model)
    check_file_columns(source.uris[0], column_names_in(source.uris[0]), {"model": columns.names})
    return [Site(name, Shard(uri, columns)) for name, uri in zip(source.names, source.uris, strict=True)]


def model_columns(shards: Shards, model: MixtureEstimator) -> Columns:
    """Return the columns to read: those of the model by name, and the target if the table has one."""
    names = tuple(map(str, getattr(model, "feature_names_in_", shards.columns.features)))
    if len(names) != model.n_features_in_:
        raise InvalidInputError(
            f"the table has {len(names)} features, the model was fitted on {model.n_features_in_} without names: pass "
            "the same columns as features"
        )
    _check_size(shards, model)
    target = shards.columns.target
    responses_only = model.mixture_.design.d == 0
    features, target = column_roles(model, names, target) if target or responses_only else (names, ())
    classes = tuple(model.classes_.tolist()) if is_classifier(model) and target else None
    coded = zip(model.columns_.columns, features, strict=True) if features else ()
    dictionary = Dictionary(tuple(replace(column, name=name) for column, name in coded)) if features else None
    groups = shards.columns.groups if target else None
    exposure, derivation = shards.columns.exposure, model.derivation_
    return Columns(features, target, None, exposure, groups, classes, dictionary, derivation=derivation)


def _check_size(shards: Shards, model: MixtureEstimator) -> None:
    """Raise an error if the family takes no such size, or if responses come without the size of the fit."""
    set_size(copy(model), shards.size_name)
    of_fit = size_of_fit(model)
    if of_fit is not None and shards.size_name is None and shards.columns.target:
        raise InvalidInputError(
            f"the model was fitted with {of_fit}: name its column, as in from_parquet(..., {of_fit}=...), or leave out "
            "the target"
        )


def _check_keep(keep: Sequence[str], labels: Sequence[Any], model: MixtureEstimator) -> None:
    written = {"prediction", "expert", *(f"probability_{label}" for label in labels)}
    written |= {f"{name}_{k}" for name in ("responsibility", "gate") for k in range(model.mixture_.K)}
    written |= {f"prediction_{j}" for j in range(model.mixture_.experts.q)}
    taken = [name for name in keep if name in written]
    if taken:
        raise InvalidInputError(f"keep={taken}: a column of the scores has this name; rename it in the table")


def _outputs(uris: Sequence[str], out: str) -> list[str]:
    """Return the file of scores of each shard: its path below the folder that all shards share."""
    inputs = [_path(uri) for uri in uris]
    shared = os.path.commonpath([path.parent for path in inputs])
    inner = [path.relative_to(shared).as_posix() for path in inputs]
    base, _, query = out.partition("?") if is_remote(out) else (str(_path(out)), "", "")
    names = [name if name.endswith(".parquet") else f"{name}.parquet" for name in inner]
    outputs = [f"{base.rstrip('/')}/{name}" + (f"?{query}" if query else "") for name in names]
    folders = {path.parent for path in inputs}
    for output in outputs:
        if _path(output).parent in folders:
            raise InvalidInputError(
                f"out={show_address(out)!r}: {show_address(output)} would be among the inputs; pass a folder of its own"
            )
    return outputs


def _path(uri: str) -> PurePath:
    """Return the path of a file in its store, in one form for all ways to write it."""
    if is_remote(uri):
        return PurePosixPath("/", show_address(uri).replace("://", "/"))
    return Path(open_store(uri)[1]).resolve()
