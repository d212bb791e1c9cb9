"""How the gallery is made: the order of its pages, and how they show warnings."""

import textwrap
import warnings
from typing import Any

EXAMPLES = (  # one table first, then many sites, then the pages of pictures
    "countries",
    "patents",
    "motorcycle",
    "temperature",
    "power",
    "outliers",
    "claims",
    "centres",
    "flights",
    "hospitals",
    "stations",
    "fleet",
    "one_model",
    "sites",
)


class ReadingOrder:
    """Key of a gallery script for sorting: its place in `EXAMPLES`; a script that is not listed comes last."""

    def __init__(self, src_dir: str) -> None:
        self.src_dir = src_dir

    def __call__(self, filename: str) -> tuple[int, str]:
        name = filename.removeprefix("plot_").removesuffix(".py")
        return EXAMPLES.index(name) if name in EXAMPLES else len(EXAMPLES), name


def show_plain_warnings(_conf: dict[str, Any], _file: str) -> None:
    """Show a warning by its kind and text, without the folder in which the page was made."""

    def shown(message: Warning | str, category: type[Warning], *_: object) -> str:
        return textwrap.fill(f"{category.__name__}: {message}", 96) + "\n"

    warnings.formatwarning = shown
