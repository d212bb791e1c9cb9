"""Newton steps after convergence, so that a fit does not depend on the path of its climb."""

from __future__ import annotations

from dataclasses import replace

from consilience.fit.climb import ROUNDING, Ascent, Climb, Expect, is_over_same_data
from consilience.fit.newton import Quadratic
from consilience.fit.stop import StopReason
from consilience.model.penalty import Penalty

STEPS = 3
"""Maximum number of steps."""
EXACT = 1e-20
"""Newton decrement per unit of weight below which a further step changes nothing but rounding."""


def polish(end: Ascent, penalty: Penalty) -> Climb:
    """Take Newton steps, usually one, from the end of a climb that converged by them, up to rounding.

    A climb ends where nothing of statistical interest is left to gain; two climbs to the same maximum then differ by up
    to a thousandth of a standard error. Newton's method squares the error, and they differ by rounding.

    Parameters
    ----------
    end : Ascent
    penalty : Penalty

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> from consilience.fit.climb import climb, drive
    >>> from consilience.fit.newton import newton_step
    >>> from consilience.model import Rows, expect
    >>> data = soft(1000, random_state=0)
    >>> rows, penalty = Rows(data.X, data.y[:, None]), Penalty()
    >>> def respond(question):
    ...     return expect(question.mixture, rows, information=question.information)
    >>> end = drive(climb(data.truth, penalty), respond)
    >>> last = drive(polish(end, penalty), respond)
    >>> newton_step(last.mixture, last.statistics, penalty).decrement < 1e-12
    True
    """
    for _ in range(STEPS if end.stop is StopReason.CONVERGED_NEWTON else 0):
        model = Quadratic.at(end.mixture, end.statistics, penalty)
        found = None if model is None else model.proposal(0.0, penalty)
        if found is None or found[1].shift > 0 or found[1].decrement < EXACT * end.statistics.weight:
            break
        statistics = yield Expect(found[0], information=True)
        value, least = found[0].penalised(statistics, penalty), end.penalised - ROUNDING * statistics.scale
        if not (is_over_same_data(statistics, end.statistics) and value >= least):
            break
        passes, informed, trace = end.passes + 1, end.informed_passes + 1, (*end.trace, value)
        end = replace(
            end, mixture=found[0], statistics=statistics, trace=trace, passes=passes, informed_passes=informed
        )
    return end
