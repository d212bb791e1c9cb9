"""What a site answers to a coordinator under contract: the questions that its policy lists, within limits of cost.

The answers are exact sums. A coordinator who chooses the mixtures could compute rows from them, and has promised not
to: no rule on the weights of rows stands against that. Limits on work and memory keep a site's machine usable.
"""

from __future__ import annotations

from collections.abc import Iterator

from consilience.errors import RefusedError
from consilience.kit.policy.policy import ContractRules
from consilience.messages import Question, Sample, Several
from consilience.model import Mixture
from consilience.numerics.arrays import triangle_size

COSTLY = "ask the coordinator for fewer experts or columns, or raise the limit in [contract] of policy.toml"
"""What to do with a question that takes too much work or memory."""


def few_rows(least: int, n: int) -> str:
    """Say that a table has fewer rows than the policy asks for, and what to do."""
    return (
        f"the policy asks for at least {least} rows, and the table has {n:,}: use more rows, such as those of a longer "
        "period, or tell the coordinator that the site takes no part"
    )


def parts_of(question: Question) -> Iterator[Question]:
    """Yield the questions in a question, and itself unless it is several: batches count by what is in them."""
    if isinstance(question, Several):
        for part in question.questions:
            yield from parts_of(part)
        return
    yield question
    if isinstance(question, Sample):
        yield question.question


def check_question(question: Question, n: int, rules: ContractRules) -> None:
    """Raise an error if the policy does not list a question, or if it takes too much work or memory over n rows."""
    parts = list(parts_of(question))
    for part in parts:
        if type(part).__name__ not in rules.questions:
            raise RefusedError(
                f"the policy does not list {type(part).__name__} among the questions of [contract]: add it there, or "
                "ask the coordinator for another method"
            )
    numbers = [
        sums_of(mixture, informed=informed) for mixture, informed in map(mixture_in, parts) if mixture is not None
    ]
    work, memory = n * sum(numbers), 8 * sum(numbers) / 1e6
    if work > rules.max_operations:
        raise RefusedError(f"the question takes about {work:.0e} multiplications, more than max_operations: {COSTLY}")
    if memory > rules.max_memory:
        raise RefusedError(f"the sums of the question take about {memory:,.0f} MB, more than max_memory: {COSTLY}")


def mixture_in(question: Question) -> tuple[Mixture | None, bool]:
    """Return the mixture that a question asks about, and whether it asks for the observed information."""
    mixture = getattr(question, "mixture", None)
    return (mixture if isinstance(mixture, Mixture) else None), bool(getattr(question, "information", False))


def sums_of(mixture: Mixture, *, informed: bool) -> int:
    """Return about the number of sums at a mixture: of products of columns, for each weight of a row."""
    K, p = mixture.K, mixture.design.p
    gate = triangle_size(K - 1) if mixture.gate.reads_covariates else 0
    missing = triangle_size(2 * K) if informed else 0
    return (K * mixture.experts.channels + gate + missing) * triangle_size(p)
