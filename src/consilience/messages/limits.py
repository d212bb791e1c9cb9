"""Limits of the work and memory that a question may ask for, and of the size of its answer."""

from __future__ import annotations

from consilience.aggregate.combine.support import COMPONENTS, FEW_VALUES
from consilience.errors import MessageError
from consilience.fit.search import CONTENDERS
from consilience.fit.specification import Specification
from consilience.messages.questions import FitSite, ProposeStart
from consilience.numerics.arrays import triangle_size

MOST_WORK = 10**10
"""Maximum of starts × iterations × experts × products of covariates of a local fit, for each row."""
ITERATIONS = 500
"""Iterations of a start, where the question does not limit them."""
MOST_NUMBERS = 2**27
"""Maximum of numbers that the parameters of a local fit may take: 1 GB."""
MOST_ORDERS = 100
HEADS = 64
"""Upper bound of the integers of a record: shapes, choices and flags."""


class TooCostlyError(MessageError):
    """Error: a question asks for more work or memory than a site allows."""


def check_work(question: FitSite | ProposeStart, orders: tuple[int, ...], d: int, q: int) -> None:
    """Raise an error if a local fit of the given orders takes too much work or memory.

    Examples
    --------
    >>> check_work(FitSite(Specification(K=5), (5,), seed=0, n_init=10**4, max_iter=10**6), (5,), d=2, q=1)
    Traceback (most recent call last):
    ...
    consilience.messages.limits.TooCostlyError: the local fit takes 3e+11 operations for each row; at most 1e+10
    """
    if len(orders) > MOST_ORDERS or len(set(orders)) < len(orders):
        raise TooCostlyError(f"a local fit has at most {MOST_ORDERS} numbers of experts, each once")
    specification, p = question.specification, d + 1
    numbers = max(orders, default=1) * (p + specification.experts.numbers(p, q, specification.options))
    if numbers > MOST_NUMBERS:
        raise TooCostlyError(f"the local fit has {numbers} parameters; at most {MOST_NUMBERS}")
    iterations = question.max_iter if isinstance(question, FitSite) else ITERATIONS
    work = question.n_init * iterations * sum(orders) * triangle_size(p)
    if work > MOST_WORK:
        raise TooCostlyError(f"the local fit takes {work:.0e} operations for each row; at most {MOST_WORK:.0e}")


def numbers_of_mixture(specification: Specification, K: int, d: int, q: int) -> int:
    """Return an upper bound on the numbers of an encoded mixture."""
    p = d + 1
    design = 3 * d + p * p  # some columns may be functions of the others, for experts and for the gate
    return HEADS + 2 * design + K * (p + 1 + specification.experts.numbers(p, q, specification.options))


def numbers_of_candidates(question: ProposeStart) -> int:
    """Return an upper bound on the numbers of the proposed starts."""
    d, q = len(question.summary.x_mean), len(question.summary.y_mean)
    return HEADS + CONTENDERS * numbers_of_mixture(question.specification, question.specification.K, d, q)


def numbers_of_fit(question: FitSite) -> int | None:
    """Return an upper bound on the numbers of a site's own fit; None if its columns are not known."""
    if question.columns is None:
        return None
    (d, q), K, specification = question.columns, max(question.orders), question.specification
    p = d + 1
    coefficients = specification.experts.numbers(p, q, specification.options)
    model = numbers_of_mixture(specification, K, d, q) + K * (2 + triangle_size(p) + triangle_size(coefficients))
    covariates = COMPONENTS * (1 + d + triangle_size(d)) + (COMPONENTS + 1) * FEW_VALUES * d + 3 * d
    return HEADS + d + triangle_size(d) + q + q * q + model + covariates
