"""Engines that carry questions to sites: in this process, or on the workers of a Dask cluster."""

from consilience.engines.dask import DaskCluster
from consilience.engines.inprocess import InProcess
from consilience.engines.protocol import Engine

__all__ = ["DaskCluster", "Engine", "InProcess"]
