"""Engines that carry questions to sites: in this process, on the workers of a Dask cluster, or as files."""

from consilience.engines.dask import DaskCluster
from consilience.engines.inprocess import InProcess
from consilience.engines.mailbox import Mailbox
from consilience.engines.protocol import Engine
from consilience.engines.site_files import SiteFiles

__all__ = ["DaskCluster", "Engine", "InProcess", "Mailbox", "SiteFiles"]
