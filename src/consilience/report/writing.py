"""Write a report to a file, in the format of its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from consilience.errors import InvalidInputError
from consilience.files.json_text import write_text
from consilience.report.card import model_card
from consilience.report.document import html_report


def write_report(result: Any, path: str | Path, *, title: str = "", **known: Any) -> None:
    """Write a report as HTML, or as a model card if the name of the file ends in ``.md``.

    Parameters
    ----------
    result : fitted estimator, FederatedFit or FederatedOrders
    path : str or Path
    title : str
    **known
        As in :func:`html_report`.

    Examples
    --------
    >>> import tempfile
    >>> from consilience import MixtureOfExpertsRegressor
    >>> from consilience.datasets import soft
    >>> data = soft(2000, n_experts=2, n_features=3, random_state=0)
    >>> model = MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y)
    >>> path = Path(tempfile.mkdtemp()) / "MODEL_CARD.md"
    >>> write_report(model, path)
    >>> path.read_text().splitlines()[1]
    'library_name: consilience'
    """
    suffix = Path(path).suffix.lower()
    if suffix not in (".html", ".htm", ".md"):
        raise InvalidInputError(f"{Path(path).name}: expected a name that ends in .html or .md")
    write_text(path, (model_card if suffix == ".md" else html_report)(result, title=title, **known))
