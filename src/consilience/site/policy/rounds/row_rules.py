"""Rules on the rows that a question is about: their number, and the leverage of each in all answers so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from consilience.messages.questions import Pairs, Question, Sample
from consilience.site.policy.check import dominance
from consilience.site.policy.policy import Policy
from consilience.site.policy.rounds.leverage import Chunks, Span, extended, largest_leverage
from consilience.site.policy.rounds.question_rules import order_of, parts_of
from consilience.site.policy.rounds.refusal import RefusedQuestionError
from consilience.site.policy.rounds.weightings import Weighting

INSTEAD = (
    "To do: use one exchange instead (the one file, combined by OneShot(refine=0)), for which the site chooses its own "
    "weights; or wait for more rows, or ask the other sites for sums over more rows in all. Noise, which would allow "
    "more rounds, is not in this version"
)
"""What to do where rounds weigh single rows too much."""


def check_numbers(question: Question, n: int, columns: int, policy: Policy) -> None:
    """Raise an error if there are too few rows: in all, for fourth moments, for pairs, or for a sample.

    Parameters
    ----------
    question : Question
    n : int
        Rows of the site.
    columns : int
        Covariates, with the intercept: p.
    policy : Policy

    Examples
    --------
    >>> from consilience.messages import Pairs
    >>> from consilience.model.design import Design
    >>> try:
    ...     check_numbers(Pairs(Design.raw(20), np.zeros(21)), 100, 21, Policy.of_profile())
    ... except RefusedQuestionError as refusal:
    ...     print(refusal)
    fourth moments of 21 columns need 210 rows: use fewer columns
    """
    limits = policy.rounds
    if n < policy.site.min_rows:
        raise RefusedQuestionError("min_rows", f"the policy asks for at least {policy.site.min_rows} rows")
    if order_of(question) == 4 and n < limits.rows_per_column * columns:
        least = limits.rows_per_column * columns
        raise RefusedQuestionError(
            "rows_per_column", f"fourth moments of {columns} columns need {least:g} rows: use fewer columns"
        )
    for part in parts_of(question):
        if isinstance(part, Pairs) and limits.rows_per_column > 0 and n < columns**2:
            raise RefusedQuestionError(
                "rows_per_column", f"pairs of rows with {columns} columns need {columns**2} rows"
            )
        if isinstance(part, Sample) and part.share * n < policy.site.min_rows:
            raise RefusedQuestionError("min_rows", "the sample would have too few rows")


def check_weights(span: Span, weightings: Sequence[Weighting], chunks: Chunks, policy: Policy) -> Span:
    """Return the span with the vectors of a question; raise an error if they rest on few rows, alone or together.

    Products of responsibilities, which the observed information needs, are held to the limit of the one file on the few
    rows that dominate them; whether they also count in the span is the policy's choice.
    """
    if not weightings or not weighs(policy):
        return span
    counted = weightings
    if not policy.rounds.count_information:
        check_information(weightings, chunks, policy)
        counted = [replace(each, information=False) for each in weightings]
    wider, thin = extended(span, counted, chunks, policy.experts.effective_rows)
    if thin.effective < policy.experts.effective_rows:
        raise RefusedQuestionError(
            "effective_rows",
            f"the {thin.name} rest on few rows: the limit of effective_rows is {policy.experts.effective_rows}, as "
            f"happens with a sharp gate or a small expert. {INSTEAD}",
        )
    if (h := largest_leverage(wider, chunks)) > policy.rounds.max_leverage:
        raise RefusedQuestionError(
            "max_leverage",
            f"all answers so far and this one together would rest on single rows, with a leverage of {h:.2f}: the "
            f"limit of max_leverage is {policy.rounds.max_leverage:g}; a sharp gate, many rounds or few rows "
            f"exceed it. {INSTEAD}",
        )
    return wider


def weighs(policy: Policy) -> bool:
    """Whether a policy limits the weights of rows at all."""
    return policy.rounds.max_leverage < 1 or policy.experts.effective_rows > 1


def check_information(weightings: Sequence[Weighting], chunks: Chunks, policy: Policy) -> None:
    """Raise an error if few rows dominate a product of responsibilities of two experts."""
    limits = policy.experts
    for each in weightings:
        if not each.information:
            continue
        tau = np.concatenate([each.mixture.responsibilities(rows) for rows in chunks()])  # (n, K)
        for k in range(each.mixture.K):
            for m in range(k):
                share = dominance(tau[:, k] * tau[:, m], limits.dominance_rows)
                if share > limits.missing_information_percent:
                    raise RefusedQuestionError(
                        "missing_information_percent",
                        f"few rows lie between experts {m + 1} and {k + 1}, and standard errors would show them. "
                        f"{INSTEAD}",
                    )
