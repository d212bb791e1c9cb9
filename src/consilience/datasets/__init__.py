"""Simulated mixtures with known truth, and loaders of public data sets."""

from consilience.datasets.generators import Simulation, paper, soft
from consilience.datasets.loaders import (
    DataError,
    DataNotFoundError,
    DigestMismatchError,
    Images,
    load_images,
    load_table,
)
from consilience.datasets.registry import DataFile, Origin, available
from consilience.datasets.simulated_clients import ClientSimulation, clients

__all__ = [
    "ClientSimulation",
    "DataError",
    "DataFile",
    "DataNotFoundError",
    "DigestMismatchError",
    "Images",
    "Origin",
    "Simulation",
    "available",
    "clients",
    "load_images",
    "load_table",
    "paper",
    "soft",
]
