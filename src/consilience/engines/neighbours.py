"""Small sites of one process that are neighbours in the order of summation answer for a sum in one call.

A site of few rows costs mostly the call itself. If there are many such sites, the rows of a subtree of the sum are
joined, and one answer over all of them takes the place of the sum of their answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from consilience.messages.failures import Failure
from consilience.messages.questions import Question
from consilience.messages.table import encode, receive
from consilience.model.rows import Rows
from consilience.runs.consistency import sum_of
from consilience.runs.tree_sum import Span, tree_blocks
from consilience.site.answer import answer, is_sum
from consilience.site.site import Site, joined

MANY = 100
"""Number of sites up to which each answers for itself."""
SMALL = 256
"""Maximum number of rows of a site that answers together with others."""
ROWS = 8_192
"""Number of rows that are answered for in one call."""
MOST = 512
"""Maximum number of sites that answer in one call."""


def neighbourhoods(sites: Sequence[Site]) -> list[Span]:
    """Return the subtrees whose sites may answer in one call; their size depends on the sites alone.

    Their rows are in memory and have the same columns. A site with the rows of another one answers for itself, so that
    it is found.

    Examples
    --------
    >>> import numpy as np
    >>> sites = [Site(str(i), Rows(np.zeros((40, 1)), np.full((40, 1), i))) for i in range(300)]
    >>> neighbourhoods(sites)[:2], neighbourhoods(sites[:100])
    ([(0, 128), (128, 256)], [])
    """
    if len(sites) <= MANY or not any(map(_is_small, sites)):
        return []
    rows = [site.data.n for site in sites if isinstance(site.data, Rows) and _is_small(site)]
    usual = max(sum(rows) // len(rows), ROWS // MOST)
    size = 1 << (ROWS // usual).bit_length() - 1
    times = Counter(site.fingerprint for site in sites if _is_small(site))

    def may_join(span: Span) -> bool:
        own = sites[slice(*span)]
        small = all(_is_small(site) and times[site.fingerprint] == 1 for site in own)
        return small and len({_columns(site) for site in own}) == 1

    return [span for span in tree_blocks(len(sites), size) if span[1] - span[0] > 1 and may_join(span)]


def _is_small(site: Site) -> bool:
    return isinstance(site.data, Rows) and 0 < site.data.n <= SMALL


def _columns(site: Site) -> tuple[int, int, bool, bool, bool]:
    """Return what the rows of sites that answer together have in common."""
    rows, (d, q) = next(site.chunks()), site.shape
    return d, q, rows.weight is None, rows.exposure is None, rows.groups is None


def respond_together(question: Question, sites: Sequence[Site]) -> bytes | None:
    """Answer for the sum over some sites; None if that is no valid answer, so that each must answer for itself.

    Questions that are not sums over rows are for single sites: a sample, for example, is drawn by each on its own.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.messages import Summarise, decode
    >>> sites = [Site(str(i), Rows(np.zeros((2, 1)), np.full((2, 1), i))) for i in range(4)]
    >>> decode(respond_together(Summarise(d=1, q=1), sites)).y_mean
    array([1.5])
    """
    if not is_sum(question):
        return None
    try:
        rows = joined([part for site in sites for part in site.chunks()])
        message = encode(answer(question, Site("", rows)), sum_of(site.fingerprint for site in sites))
        return None if isinstance(receive(message, question), Failure) else message
    except Exception:  # noqa: BLE001 - which site it is, and why, is seen where each answers for itself
        return None
