"""Reports on sites that every method gives, from what its rounds have asked anyway."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from consilience.aggregate.preflight import preflight
from consilience.fit.survey import Survey
from consilience.methods.task import Task
from consilience.model.summary import ColumnSummary


def surveyed(task: Task, summaries: Mapping[str, ColumnSummary]) -> Survey:
    """Compare the columns of the sites; classes of a response are not compared.

    Examples
    --------
    >>> from consilience.fit import Specification
    >>> empty = ColumnSummary(0.0, np.zeros(1), np.zeros(1), np.zeros(1), np.zeros((1, 1)))
    >>> print(*surveyed(Task([Specification(K=2)], d=1, q=1), {"north": empty}).sites)
    north: empty: it has no rows
    """
    compared = np.ones(task.d + task.q, dtype=bool)
    compared[task.d :] = not task.specifications[0].experts.classes
    return preflight(summaries, column_names(task), compared)


def column_names(task: Task) -> tuple[str, ...]:
    """Return the names of covariates and responses, as tables of parameters have them.

    Examples
    --------
    >>> from consilience.fit import Specification
    >>> column_names(Task([Specification(K=2)], d=2, q=1))
    ('x0', 'x1', 'y')
    """
    of_X = task.names or tuple(f"x{j}" for j in range(task.d or task.q))
    if task.d == 0:
        return of_X if len(of_X) == task.q else tuple(f"y{j}" for j in range(task.q))
    return (*of_X, *(("y",) if task.q == 1 else (f"y{j}" for j in range(task.q))))
