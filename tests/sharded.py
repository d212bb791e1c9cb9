"""Simulated sites in Parquet files, as a cluster reads them, and a dialogue with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from consilience.data import Columns, Shard
from consilience.datasets import soft
from consilience.fit import Expect
from consilience.messages import Total, encode
from consilience.messages.dialogue import Dialogue
from consilience.model import Mixture
from consilience.site import Site
from simulated import Simulated


def write_sites(
    directory: Path, number: int, n: int, *, n_experts: int = 3, n_features: int = 3
) -> tuple[list[Site], Mixture]:
    """``number`` sites of unequal size with ``n`` rows in all, and the mixture that made them."""
    data = soft(n, n_experts=n_experts, n_features=n_features, random_state=0)
    names = tuple(f"x{j}" for j in range(n_features))
    cuts = np.linspace(0, 1, number + 1)[1:-1] ** 1.5 * n
    sites = []
    for i, index in enumerate(np.split(np.arange(n), cuts.astype(int))):
        path = directory / f"site-{i:02d}.parquet"
        table = pa.table({**dict(zip(names, data.X[index].T, strict=True)), "y": data.y[index]})
        parquet.write_table(table, path)
        sites.append(Site(f"site-{i:02d}", Shard(str(path), Columns(names, ("y",)))))
    return sites, data.truth


def write_rows(directory: Path, data: Simulated, number: int) -> list[Site]:
    """The rows of ``data`` in ``number`` files of unequal size, whole groups in each."""
    rows, features = data.rows, tuple(f"x{j}" for j in range(data.rows.X.shape[1]))
    labels = np.arange(rows.n) if rows.groups is None else rows.groups.codes
    present = {"weight": rows.weight, "exposure": rows.exposure, "groups": None if rows.groups is None else labels}
    extra = {name: values for name, values in present.items() if values is not None}
    classes = tuple(range(data.specification.n_classes)) if data.specification.family == "categorical" else None
    columns = Columns(features, ("y",), **{name: name for name in extra}, classes=classes)
    table = pa.table({**dict(zip(features, rows.X.T, strict=True)), "y": rows.Y[:, 0], **extra})
    cuts = np.linspace(0, 1, number + 1)[1:-1] ** 1.5 * (labels.max() + 1)
    home = np.searchsorted(cuts.astype(int), labels, side="right")
    sites = []
    for i in range(number):
        path = directory / f"site-{i:02d}.parquet"
        parquet.write_table(table.filter(home == i), path)
        sites.append(Site(f"site-{i:02d}", Shard(str(path), columns)))
    return sites


def totals(mixture: Mixture, rounds: int = 2, information: bool = False) -> Dialogue[list[bytes]]:
    """The same sum, asked for several times, as bytes."""
    sums = []
    for _ in range(rounds):
        statistics = yield Total(Expect(mixture, information))
        sums.append(encode(statistics))
    return sums
