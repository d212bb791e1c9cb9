"""Families as decoded from a message: what no expert can have is refused, for every family and field."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from consilience.errors import InvalidInputError, MessageError
from consilience.fit import Specification
from consilience.messages import LogLikelihood, decode, encode
from families import CASES
from strategies import GATES, Shape


def arrays_of(value: object) -> list[str]:
    return [field.name for field in fields(value) if isinstance(getattr(value, field.name), np.ndarray)]


def sent(mixture: object) -> object:
    return decode(encode(LogLikelihood(mixture)))


CHANGES = {
    "NaN": lambda array: np.where(np.arange(array.size).reshape(array.shape) == 0, np.nan, array),
    "infinite": lambda array: np.where(np.arange(array.size).reshape(array.shape) == 0, np.inf, array),
    "one expert more": lambda array: np.concatenate([array, array[:1]]),
}


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("family", CASES)
def test_arrays_that_no_experts_have_are_refused(family: str, change: str, gate: str) -> None:
    mixture, _ = Shape(family=family, gate=gate, K=2, q=2).problem()
    assert sent(mixture).mixture.K == 2
    for part in ("experts", "gate"):
        for name in arrays_of(getattr(mixture, part)):
            broken = replace(getattr(mixture, part), **{name: CHANGES[change](getattr(getattr(mixture, part), name))})
            with pytest.raises(MessageError):
                sent(replace(mixture, **{part: broken}))


@pytest.mark.parametrize("family", [name for name, case in CASES.items() if name != "categorical"])
def test_shapes_that_are_not_positive_are_refused(family: str) -> None:
    mixture, _ = Shape(family=family, gate="constant", K=2).problem()
    for name in arrays_of(mixture.experts):
        if name != "B":
            for factor in (-1.0, 0.0):
                broken = replace(mixture.experts, **{name: factor * getattr(mixture.experts, name)})
                with pytest.raises(MessageError, match="invalid mixture"):
                    sent(replace(mixture, experts=broken))


@pytest.mark.parametrize(("field", "value"), [("family", "poison"), ("gate", "typo"), ("structure", "wide")])
def test_unknown_names_are_refused_where_a_specification_is_made(field: str, value: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{value!r}: .*[Ee]xpected one of"):
        Specification(K=2, **{field: value})
