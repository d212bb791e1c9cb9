"""Who carries the questions: the sites of this process, or the workers of a cluster."""

from consilience.engines.dask import DaskCluster
from consilience.engines.inprocess import InProcess

__all__ = ["DaskCluster", "InProcess"]
