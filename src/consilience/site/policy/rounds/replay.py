"""The replay check: a site that is shown the totals of the earlier rounds computes itself what comes next.

A dialogue is a function of its arguments, which the study states, and of the answers. For a method that asks for totals
only, a site can run it and answer its own next question. A coordinator who wants to ask anything else must show false
totals. The check does not change what an honest run discloses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from consilience.messages.codec import is_same_question
from consilience.messages.dialogue import Dialogue, Total
from consilience.messages.questions import Question
from consilience.messages.table import decode, encode
from consilience.site.policy.rounds.refusal import RefusedQuestionError

MakeDialogue = Callable[[], Dialogue[Any]]
"""Begins the dialogue of the study."""


def own_question(make: MakeDialogue, totals: Sequence[bytes], site: str) -> Question:
    """Return what the study asks a site after some rounds with these totals.

    Examples
    --------
    >>> from consilience.messages import Summarise
    >>> def mean():
    ...     return (yield Total(Summarise(d=0, q=1))).y_mean
    >>> own_question(mean, [], "north")
    Summarise(d=0, q=1)
    """
    dialogue = make()
    request = next(dialogue)
    try:
        for total in totals:
            request = dialogue.send(decode(total))
    except StopIteration as end:
        raise RefusedQuestionError(
            "replay_check", "the run of the study has ended, and nothing more is asked in it"
        ) from end
    if not isinstance(request, Total) or (request.sites is not None and site not in request.sites):
        raise RefusedQuestionError("replay_check", "the study does not ask this site for a part of a total now")
    return request.question


def checked_question(question: Question, make: MakeDialogue, totals: Sequence[bytes], site: str) -> Question:
    """Return the site's own next question, if the question that arrived is the same up to rounding.

    Parameters
    ----------
    question : Question
        The question that arrived.
    make : callable
        Begins the dialogue of the study.
    totals : sequence of bytes
        Encoded totals of all earlier rounds of the run.
    site : str
        Name of the site.
    """
    wanted = own_question(make, totals, site)
    if not is_same_question(encode(wanted), encode(question)):
        raise RefusedQuestionError(
            "replay_check", "this is not what the study asks after these totals: ask the coordinator why"
        )
    return wanted
