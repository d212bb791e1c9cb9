"""A study over the files of one owner: the same study file from a laptop to a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import PurePosixPath

from consilience.engines.inprocess import InProcess
from consilience.engines.protocol import Engine
from consilience.federation.data_source import Shards
from consilience.federation.federated_fit import FederatedOrders
from consilience.files.study import Study
from consilience.model.mixture import Mixture
from consilience.runs.run import RunOptions
from consilience.site import Shard, Site
from consilience.studies.combination import ran
from consilience.studies.local import columns_of
from consilience.studies.methods import method_of


def sites_in(study: Study, pattern: str | Sequence[str]) -> list[Site]:
    """Return a site for each file of one owner, with the columns and rules of a study, by name.

    Sites are named as their files, without the ending if the names are distinct then.

    Parameters
    ----------
    study : Study
    pattern : str or sequence of str
        Path, ``s3://`` address or pattern with ``*``, or a list of addresses.
    """
    model = study.model
    shards = Shards.of(
        pattern,
        target=model.response,
        features=list(study.covariates.names),
        weight=None,
        groups=model.clients,
        exposure=model.exposure,
        trials=None,
    )
    short = [PurePosixPath(name).name.split(".")[0] for name in shards.names]
    names = short if len(set(short)) == len(short) else shards.names
    sites = [Site(name, Shard(uri, columns_of(study))) for name, uri in sorted(zip(names, shards.uris, strict=True))]
    return [site.by_client() for site in sites] if method_of(study).by_client else sites


def ran_over(
    study: Study,
    pattern: str | Sequence[str],
    engine: Engine | None = None,
    *,
    start: Mixture | None = None,
    options: RunOptions | None = None,
) -> FederatedOrders:
    """Run a study over files of one owner; no policy applies.

    Parameters
    ----------
    study : Study
    pattern : str or sequence of str
        As in :func:`sites_in`.
    engine : Engine, optional
        In this process by default.
    start : Mixture, optional
        Public start of the run.
    options : RunOptions, optional
        The study states the limits.

    Examples
    --------
    >>> import tempfile
    >>> from pyarrow import parquet
    >>> from consilience.datasets.hospitals import STUDY, hospitals
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, table in hospitals().items():
    ...         parquet.write_table(table, f"{folder}/{name}.parquet")
    ...     found = ran_over(Study.from_text(STUDY), f"{folder}/*.parquet").best
    >>> found.model.n_experts, found.record.sites
    (2, ('ash', 'birch', 'cedar', 'elm', 'oak'))
    """
    with closing((InProcess() if engine is None else engine).over(sites_in(study, pattern))) as over:
        return ran(study, over, start=start, options=options)
