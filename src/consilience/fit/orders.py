"""Comparison of fits with several numbers of experts: the choice among them, and its text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import isnan

Scores = Mapping[str, Sequence[float]]
"""Values of each criterion, in the order of the numbers of experts."""


def competing(orders: Sequence[int], set_aside: Mapping[int, str]) -> list[int]:
    """Return the positions of the orders that are compared: all that are not set aside, or all if every one is.

    Examples
    --------
    >>> competing((1, 2, 3), {3: "a variance is at its floor"}), competing((3,), {3: "a variance is at its floor"})
    ([0, 1], [0])
    """
    kept = [i for i, K in enumerate(orders) if K not in set_aside]
    return kept or list(range(len(orders)))


def least(orders: Sequence[int], values: Sequence[float], set_aside: Mapping[int, str]) -> int:
    """Return the order with the smallest value among those that are compared.

    Examples
    --------
    >>> least((1, 2, 3), (9.0, 5.0, 4.0), {3: "a variance is at its floor"})
    2
    """
    return orders[min(competing(orders, set_aside), key=lambda i: values[i])]


def lines(orders: Sequence[int], scores: Scores) -> list[str]:
    r"""Return a table of the scores as lines of text; a dash for a score that is not known.

    Examples
    --------
    >>> print(*lines((1, 2), {"bic": (10.0, 9.5), "icl": (10.0, float("nan"))}), sep="\n")
               order             bic             icl
                   1              10              10
                   2             9.5               —
    """
    header = "".join(f"{name:>16}" for name in ("order", *scores))
    cells = {name: ["—" if isnan(value) else f"{value:.6g}" for value in values] for name, values in scores.items()}
    rows = [f"{K:>16}" + "".join(f"{column[i]:>16}" for column in cells.values()) for i, K in enumerate(orders)]
    return [header, *rows]


def html_table(orders: Sequence[int], scores: Scores, said: Sequence[str]) -> str:
    """Return a table of the scores, and sentences below it, as HTML.

    Examples
    --------
    >>> html_table((1,), {"bic": (10.0,)}, ["Selected by bic: 1."])
    '<div><table><tr><th>order</th><th>bic</th></tr><tr><td>1</td><td>10</td></tr></table>Selected by bic: 1.</div>'
    """
    head, *rows = (line.split() for line in lines(orders, scores))
    first = "".join(f"<th>{name}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div><table><tr>{first}</tr>{body}</table>{escape(' '.join(said))}</div>"


def left_out(set_aside: Mapping[int, str]) -> list[str]:
    """Return one sentence for each order that is set aside.

    Examples
    --------
    >>> left_out({3: "a variance is at its floor"})
    ['3 experts are set aside: a variance is at its floor.']
    """
    return [f"{K} expert{'s are' if K > 1 else ' is'} set aside: {reason}." for K, reason in set_aside.items()]
