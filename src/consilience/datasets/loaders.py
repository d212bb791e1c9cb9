"""Load public data sets from a data directory; each file is checked against its sha256 before it is parsed.

Errors::

    InvalidInputError
    └── DataError
        ├── DataNotFoundError      no data directory, or the file is not in it
        └── DigestMismatchError    the file is not the one the registry describes
"""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from consilience.datasets.registry import IMAGES, TABLES, DataFile
from consilience.errors import InvalidInputError

if TYPE_CHECKING:
    from pyarrow import Table

ENVIRONMENT = "CONSILIENCE_DATA"

Entry = TypeVar("Entry")


class DataError(InvalidInputError):
    """Raised if a data file cannot be used.

    Examples
    --------
    >>> from consilience.datasets import DataError, load_table
    >>> try:
    ...     load_table("tonedata", directory="no/such/place")
    ... except DataError as error:
    ...     print(type(error).__name__)
    DataNotFoundError
    """


class DataNotFoundError(DataError):
    """Raised if there is no data directory or the file is not in it; the message says where to get the file.

    Examples
    --------
    >>> from consilience.datasets import DataNotFoundError, load_table
    >>> try:
    ...     load_table("tonedata", directory="no/such/place")
    ... except DataNotFoundError as error:
    ...     print("https://cran.r-project.org/package=mixtools" in str(error))
    True
    """


class DigestMismatchError(DataError):
    """Raised if a file differs from the one in the registry; the message gives both digests.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from consilience.datasets import DigestMismatchError, load_table
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     file = pathlib.Path(directory, "classic_mixtures", "tonedata.csv")
    ...     file.parent.mkdir()
    ...     _ = file.write_text("stretchratio,tuned")
    ...     try:
    ...         load_table("tonedata", directory)
    ...     except DigestMismatchError as error:
    ...         print("expected 26836b79" in str(error))
    True
    """


@dataclass(frozen=True, eq=False)
class Images:
    """Greyscale images with class labels, split as published.

    Parameters
    ----------
    X_train : (n, height, width) array of uint8
    y_train : (n,) array of uint8
    X_test : (m, height, width) array of uint8
    y_test : (m,) array of uint8

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.datasets import Images
    >>> images, labels = np.zeros((6, 28, 28), np.uint8), np.zeros(6, np.uint8)
    >>> Images(images, labels, images[:2], labels[:2]).X_train.reshape(6, -1).shape
    (6, 784)
    """

    X_train: NDArray[np.uint8]
    y_train: NDArray[np.uint8]
    X_test: NDArray[np.uint8]
    y_test: NDArray[np.uint8]


def load_table(name: str, directory: str | os.PathLike[str] | None = None) -> Table:
    """Load a table of a data directory as published: no cleaning, no dropped rows.

    Parameters
    ----------
    name : str
        A name listed by :func:`available`.
    directory : path, optional
        The data directory; by default the one named by the environment variable ``CONSILIENCE_DATA``.

    Returns
    -------
    pyarrow.Table
        ``n`` rows and the columns of the file; ``table.to_pandas()`` and ``polars.from_arrow(table)`` convert it.

    Raises
    ------
    DataNotFoundError
        If there is no data directory, or no such file in it.
    DigestMismatchError
        If ``sha256(file)`` is not that of the registry.
    InvalidInputError
        If the name is unknown.

    Examples
    --------
    >>> from consilience.datasets import load_table
    >>> load_table("tone")
    Traceback (most recent call last):
        ...
    consilience.errors.InvalidInputError: no table is named 'tone'; did you mean 'tonedata'?
    """
    path = _checked(_look_up(TABLES, name, "table"), name, directory)
    if path.suffix == ".parquet":
        from pyarrow import parquet

        return parquet.read_table(path)
    from pyarrow import csv

    return csv.read_csv(path)


def load_images(name: str, directory: str | os.PathLike[str] | None = None) -> Images:
    """Load a set of labelled images of a data directory.

    Parameters
    ----------
    name : {"mnist", "fashion_mnist"}
        The set.
    directory : path, optional
        The data directory; by default the one named by the environment variable ``CONSILIENCE_DATA``.

    Returns
    -------
    Images
        ``X_train (60000, 28, 28)``, ``y_train (60000,)``, ``X_test (10000, 28, 28)``, ``y_test (10000,)``, all uint8.

    Raises
    ------
    DataNotFoundError
        If there is no data directory, or no such file in it.
    DigestMismatchError
        If ``sha256(file)`` is not that of the registry.
    InvalidInputError
        If the name is unknown.

    Examples
    --------
    >>> from consilience.datasets import load_images
    >>> load_images("minst")
    Traceback (most recent call last):
        ...
    consilience.errors.InvalidInputError: no set of images is named 'minst'; did you mean 'mnist'?
    """
    paths = [_checked(file, name, directory) for file in _look_up(IMAGES, name, "set of images")]
    if paths[0].suffix == ".npz":
        with np.load(paths[0], allow_pickle=False) as arrays:
            return Images(arrays["x_train"], arrays["y_train"], arrays["x_test"], arrays["y_test"])
    return Images(*(_read_idx(path) for path in paths))


def _look_up(registry: Mapping[str, Entry], name: str, kind: str) -> Entry:
    if name in registry:
        return registry[name]
    from difflib import get_close_matches

    near = get_close_matches(str(name), registry, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(sorted(registry))}"
    raise InvalidInputError(f"no {kind} is named {name!r}; {hint}")


def _checked(file: DataFile, name: str, directory: str | os.PathLike[str] | None) -> Path:
    """Return the path of a file after checking its digest."""
    place = os.environ.get(ENVIRONMENT) if directory is None else directory
    source = f"{file.origin.address} ({file.origin.form})"
    if not place:
        raise DataNotFoundError(
            f"{name}: no data directory; get the file from {source}, save it as {file.path} in a directory of yours, "
            f"and pass directory= or set the environment variable {ENVIRONMENT}"
        )
    path = Path(place) / file.path
    if not path.is_file():
        raise DataNotFoundError(
            f"{name}: there is no file {file.path} in the data directory {os.fspath(place)}; get it from {source}"
        )
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != file.sha256:
        raise DigestMismatchError(
            f"{name}: {file.path} is damaged or of another version: expected {file.sha256}, got {digest} (sha256); "
            f"get it again from {source}"
        )
    return path


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an array of bytes in the IDX format: two zeros, type 8, number of axes, big-endian lengths, values."""
    content = gzip.decompress(path.read_bytes())
    axes = content[3]
    shape = np.frombuffer(content, ">u4", count=axes, offset=4).astype(int)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape).copy()
