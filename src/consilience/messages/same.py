"""Whether two encoded questions are the same, up to rounding on another machine."""

from __future__ import annotations

import numpy as np

from consilience.messages.codec import Message

SAME = 1e-9
"""Relative tolerance, per value, within which two questions are equal."""


def is_same_question(one: bytes, other: bytes) -> bool:
    """Whether two encoded questions agree in type and shape, and in every value to ``SAME``.

    Examples
    --------
    >>> from consilience.messages import Summarise, encode
    >>> is_same_question(encode(Summarise(1, 1)), encode(Summarise(2, 1)))
    False
    """
    a, b = Message.from_bytes(one), Message.from_bytes(other)
    if a.kind != b.kind or not np.array_equal(a.head, b.head) or a.body.shape != b.body.shape:
        return False
    return bool(np.allclose(a.body, b.body, rtol=SAME, atol=SAME))
