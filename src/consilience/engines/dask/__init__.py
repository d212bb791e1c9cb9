"""Dask engine: sites are files, workers read them, and sums are returned."""

from consilience.engines.dask.cluster import DaskCluster

__all__ = ["DaskCluster"]
