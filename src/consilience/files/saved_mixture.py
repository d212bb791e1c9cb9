"""A mixture in raw coordinates as a JSON object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from consilience.errors import InvalidInputError
from consilience.files.numbers import array, listed
from consilience.model.design import Design
from consilience.model.families.base import Experts
from consilience.model.families.registry import FAMILIES
from consilience.model.gates import GATES, Gate
from consilience.model.mixture import Mixture
from consilience.model.received import check_mixture

LARGEST_COVARIANCES = 2**27
"""Maximum number of covariances between responses, of all experts, in a mixture that is read."""


def mixture_document(mixture: Mixture) -> dict[str, Any]:
    """Return a mixture as a JSON object: its intercept, gate and experts, with their parameters as lists.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> sorted(mixture_document(soft(10, random_state=0).truth))
    ['experts', 'gate', 'intercept']
    """
    return {
        "intercept": mixture.design.intercept,
        "gate": {"kind": mixture.gate.kind, **_part_document(mixture.gate)},
        "experts": {"family": mixture.experts.family, **_part_document(mixture.experts)},
    }


def _part_document(part: Gate | Experts) -> dict[str, Any]:
    found = {name: getattr(part, name) for name in part.message_fields}
    return {name: value if isinstance(value, str) else listed(value) for name, value in found.items()}


def mixture_of(document: dict[str, Any]) -> Mixture:
    """Return the mixture of a JSON object; raise an error if it is not a mixture.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> mixture_of(mixture_document(soft(10, random_state=0).truth)).K
    4
    """
    gate = _part_of(document["gate"], "kind", GATES)
    experts = _part_of(document["experts"], "family", FAMILIES)
    intercept: bool = document["intercept"]
    if experts.K * experts.q**2 > LARGEST_COVARIANCES:
        raise InvalidInputError(f"the mixture has {experts.K} experts of {experts.q} responses, which are too many")
    mixture = Mixture(Design.raw(max(experts.p - intercept, 0), intercept), gate, experts)
    check_mixture(mixture)
    return mixture


def _part_of(document: dict[str, Any], key: str, known: Mapping[str, Callable[..., Any]]) -> Any:
    """Return a gate or experts from a JSON object; ``key`` has their name among the known ones."""
    kind: Any = known[document[key]]
    found = {}
    for name, form in kind.message_fields.items():
        axes = [each for each in form if isinstance(each, int)]
        found[name] = array(document[name], axes, f"mixture.{name}") if axes else document[name]
    return kind(**found)
