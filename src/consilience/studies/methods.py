"""The method of a study: a closed list of names, each with the settings of its class."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from consilience.errors import ConsilienceError, InvalidInputError
from consilience.files.study import Study
from consilience.methods.clustered import ClusteredClients
from consilience.methods.federated_em import FederatedEM
from consilience.methods.one_shot import OneShot
from consilience.methods.per_site.shared_centre import SharedCentre
from consilience.methods.task import Method

METHODS: dict[str, type[Any]] = {each.__name__: each for each in (OneShot, FederatedEM, SharedCentre, ClusteredClients)}
"""Methods that a study can name."""


def method_of(study: Study) -> Method:
    """Return the method of a study; one exchange of files without refinement if it names none.

    Raises
    ------
    InvalidInputError
        If the method does not have a setting, or not with this value.

    Examples
    --------
    >>> study = Study.from_text('''
    ... format = "consilience-study"
    ... version = 1
    ... name = "stay"
    ... seed = 1
    ... model = {response = "days", experts = [2]}
    ... method = {name = "OneShot", refine = 2}
    ... columns = [{name = "days", kind = "number"}, {name = "age", kind = "number"}]
    ... ''')
    >>> method_of(study).refine
    2
    """
    if study.method is None:
        return OneShot(refine=0)
    chosen, settings = METHODS[study.method.name], study.method.settings
    known = {each.name: each.default for each in fields(chosen)}
    for name, value in settings.items():
        if name not in known:
            raise InvalidInputError(f"method: {chosen.__name__} has no setting {name!a}; it has {', '.join(known)}")
        if not _is_alike(value, known[name]):
            raise InvalidInputError(f"method.{name}: a value of another type than the default, {known[name]!r}")
    try:
        found: Method = chosen(**settings)
    except ConsilienceError as error:
        raise InvalidInputError(f"method: {error}") from error
    if found.by_client and study.model.clients is None:
        raise InvalidInputError(f"method: {chosen.__name__} has one label per client: name their column, model.clients")
    return found


def _is_alike(value: Any, default: Any) -> bool:
    """Whether a value of a file has the type of a setting: a whole number may stand for a number."""
    if isinstance(default, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is type(default)
