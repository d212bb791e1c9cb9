"""Checks of mixtures that came from a message or a file: consistent shapes, numbers in range."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from consilience.errors import MessageError
from consilience.model.design import Design
from consilience.model.mixture import Mixture
from consilience.numerics.arrays import Array

LARGEST = 1e100
"""Upper limit of parameters and moments, so that their squares do not overflow."""
LARGEST_PARAMETER = 1e50
"""Upper limit of the coefficients of a mixture and of the scales of its design, and of their inverses."""


def check_mixture(mixture: Mixture) -> None:
    """Raise an error if the parts of a mixture have inconsistent shapes or invalid values."""
    design, gate, experts = mixture.design, mixture.gate, mixture.experts
    same = mixture.reads.d == design.d and mixture.reads.intercept == design.intercept
    if not (gate.K == experts.K >= 1 and experts.p == design.p and same):
        raise MessageError("the parts of a mixture have inconsistent shapes")
    problem = gate.invalid(mixture.reads.p) or experts.invalid()
    if problem:
        raise MessageError(f"invalid mixture: {problem}")
    if not is_in_range(mixture):
        raise MessageError("a mixture has parameters that are too large or too small")


def is_in_range(mixture: Mixture) -> bool:
    """Whether the parameters are neither too large nor too small for a message.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> is_in_range(soft(10, random_state=0).truth)
    True
    """
    design, gate, experts = mixture.design, mixture.gate, mixture.experts
    numbers = (design.centre, design.scale, 1 / design.scale, gate.read(), experts.free_coefficients())
    with np.errstate(over="ignore"):
        shapes = np.exp(np.abs(np.where(np.isfinite(found := experts.log_shapes()), found, 0.0)))
    return all(bool(np.all(np.abs(each) < LARGEST_PARAMETER)) for each in (*numbers, np.sqrt(shapes)))


def check_design(design: Design) -> None:
    """Raise an error if the parts of a design have inconsistent shapes, or values that are not valid."""
    finite = is_moderate(design.centre) and np.all(np.isfinite(design.scale))
    if not (design.centre.shape == design.scale.shape and np.all(design.scale > 0) and finite):
        raise MessageError(
            "the parts of a design have inconsistent shapes, or values that are not finite or not positive"
        )
    if not ((design.columns is None) == (design.others is None) and (design.others is None or _reads_part(design))):
        raise MessageError("the columns of a design are not in increasing order, or the others have another shape")


def _reads_part(design: Design) -> bool:
    """Whether the columns of a design that reads some of the covariates are increasing, and the others fit them."""
    columns, others = design.columns or (), np.asarray(design.others)
    fits = others.shape[1] == design.p == len(columns) + design.intercept and is_moderate(others)
    return fits and all(a < b for a, b in pairwise((-1, *columns, design.d)))


def is_moderate(values: Array) -> bool:
    """Whether values are so small that sums of their squares over many sites are finite."""
    return bool(np.all(np.abs(values) < LARGEST))
