"""The engine of a Dask cluster: sites are files, workers read them where they run, sums come back."""

from consilience.engines.dask.cluster import DaskCluster

__all__ = ["DaskCluster"]
