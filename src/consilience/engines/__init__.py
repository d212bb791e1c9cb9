"""Engines that carry questions to sites: in this process, or on the workers of a Dask cluster."""

from consilience.engines.dask import DaskCluster
from consilience.engines.inprocess import InProcess

__all__ = ["DaskCluster", "InProcess"]
