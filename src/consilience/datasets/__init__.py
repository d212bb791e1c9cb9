"""Data to learn and test on: simulated mixtures with a known truth, and loaders of public data sets."""

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

__all__ = [
    "DataError",
    "DataFile",
    "DataNotFoundError",
    "DigestMismatchError",
    "Images",
    "Origin",
    "Simulation",
    "available",
    "load_images",
    "load_table",
    "paper",
    "soft",
]
