"""The estimators, the task and the method that a study describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from consilience.errors import ConsilienceError, InvalidInputError
from consilience.estimators import MixtureOfExpertsClassifier, MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.estimators.estimator import MixtureEstimator
from consilience.estimators.federated import set_columns, set_response, specification_of
from consilience.estimators.validation import budget_of
from consilience.kit.study import PrivacyTerms, Study
from consilience.kit.study_terms import draw_terms
from consilience.methods import ClusteredClients, FederatedEM, Method, OneShot, PrivateScoring, SharedCentre, Task
from consilience.model import FAMILIES, GATES, Mixture


def estimators_of(study: Study) -> list[MixtureEstimator]:
    """Return one estimator for each number of experts of a study, with its columns, not fitted."""
    return [_estimator(study, K) for K in study.model.experts]


def _estimator(study: Study, K: int) -> MixtureEstimator:
    model, covariates = study.model, study.covariates
    reads = GATES[model.gate].reads_covariates
    of_experts = {} if model.expert_columns is None else {"expert_features": model.expert_columns}
    of_experts |= {} if model.shared is None else {"shared": model.shared}
    chosen: dict[str, Any] = {"random_state": study.seed, "formula": model.formula, **of_experts}
    if FAMILIES[model.family].classes:
        gate_features = model.gate_columns if reads else []
        found: MixtureEstimator = MixtureOfExpertsClassifier(K, gate_features=gate_features, **chosen)
    elif reads:
        found = MixtureOfExpertsRegressor(K, family=model.family, gate_features=model.gate_columns, **chosen)
    else:
        found = MixtureOfRegressions(K, family=model.family, **chosen)
    found.derivation_ = study.derivation
    set_response(found, (study.response_term,))
    set_columns(found, covariates.names, study.classes, covariates)
    return found


def task_of(
    study: Study,
    models: Sequence[MixtureEstimator] | None = None,
    *,
    start: Mixture | None = None,
    institutions: Mapping[str, str] | None = None,
    sites: tuple[str, ...] = (),
) -> Task:
    """Return the task of a study: what it asks is the same at every site and at the coordinator."""
    models = estimators_of(study) if models is None else models
    terms, budget = models[0].columns_.terms, budget_of(models[0])
    specifications = tuple(specification_of(model) for model in models)
    given: dict[str, Any] = {"start": start, "seed": study.seed, "names": terms, "sites": sites}
    given |= {"institutions": institutions or {}, "responses": (study.response_term,)}
    return Task(specifications, len(terms), 1, **given, **budget, sandwich=False)  # no policy lists ScoreProducts


# ---------------------------------------------------------------- methods

COVARIATES = 4_000
"""Rows of covariates that are drawn for a study with noise."""
METHODS: dict[str, type[Any]] = {each.__name__: each for each in (OneShot, FederatedEM, SharedCentre, ClusteredClients)}
"""Methods that a study can name."""


def method_of(study: Study) -> Method:
    """Return the method of a study; one exchange of files without refinement if it names none.

    Raises
    ------
    InvalidInputError
        If the method does not have a setting, or not with this value.
    """
    if study.privacy is not None:
        return private_method(study, study.privacy)
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


def private_method(study: Study, privacy: PrivacyTerms) -> PrivateScoring:
    """Return the method of a study with noise, with covariates that are drawn from its dictionary."""
    X = draw_terms(study, COVARIATES, np.random.default_rng([study.seed, 2]))
    stated: dict[str, Any] = {name: getattr(privacy, name) for name in ("exchange", "sums", "colluding")}
    more = {name: value for name, value in stated.items() if value is not None}
    if privacy.start == "private":
        more |= {"start": "private", "response": study.response_range}
    if privacy.persons is not None:
        more |= {"unit": "person", "rows_each": privacy.persons.rows}
    return PrivateScoring(privacy.epsilon, privacy.delta, rounds=privacy.rounds, covariates=X, **more)


def _is_alike(value: Any, default: Any) -> bool:
    """Whether a value of a file has the type of a setting: a whole number may stand for a number, None is a word."""
    if default is None:
        return isinstance(value, str)
    if isinstance(default, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is type(default)
