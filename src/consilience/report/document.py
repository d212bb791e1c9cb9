"""A report as one HTML file."""

from __future__ import annotations

from typing import Any

from consilience._version import __version__
from consilience.report.contents import sections
from consilience.report.html import page
from consilience.report.subject import Subject
from consilience.report.verdict import judged

FOOTER = f"Made by consilience {__version__}. This page has no script, loads nothing, and has no row of any site."


def html_report(result: Any, *, title: str = "", **known: Any) -> str:
    """Return a report as the text of one HTML page.

    Parameters
    ----------
    result : fitted estimator, FederatedFit or FederatedOrders
    title : str
        Title of the page; by default the kind of model.
    **known
        Fields of :class:`~consilience.report.subject.Subject`: ``orders``, ``X``, ``y``, ``origin``, ``policies``.

    Examples
    --------
    >>> from consilience import MixtureOfExpertsRegressor
    >>> from consilience.datasets import soft
    >>> data = soft(2000, n_experts=2, n_features=3, random_state=0)
    >>> page = html_report(MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y))
    >>> "This result can be used." in page, "<script" in page
    (True, False)
    """
    subject = Subject.of(result, **known)
    return page(title or subject.model.title, judged(subject), sections(subject), FOOTER)
