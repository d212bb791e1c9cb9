"""The model of a study: estimators for its numbers of experts, and the task of the method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from consilience.estimators import MixtureOfExpertsClassifier, MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.estimators.estimator import MixtureEstimator
from consilience.estimators.federated import set_columns, specification_of
from consilience.files.study import Study
from consilience.methods.task import Task
from consilience.model.families.registry import FAMILIES
from consilience.model.gates import GATES


def estimators_of(study: Study) -> list[MixtureEstimator]:
    """Return one estimator for each number of experts of a study, with its columns, not fitted.

    Examples
    --------
    >>> study = Study.from_text('''
    ... format = "consilience-study"
    ... version = 1
    ... name = "stay"
    ... seed = 1
    ... model = {response = "days", experts = [1, 2]}
    ... columns = [{name = "days", kind = "number"}, {name = "age", kind = "number"}]
    ... ''')
    >>> estimators_of(study)
    [MixtureOfExpertsRegressor(n_experts=1, random_state=1), MixtureOfExpertsRegressor(random_state=1)]
    """
    return [_estimator(study, K) for K in study.model.experts]


def _estimator(study: Study, K: int) -> MixtureEstimator:
    model, covariates = study.model, study.covariates
    chosen: dict[str, Any] = {"random_state": study.seed}
    if model.gate_columns is not None:
        chosen["gate_features"] = model.gate_columns
    if model.expert_columns is not None:
        chosen["expert_features"] = model.expert_columns
    reads = GATES[model.gate].reads_covariates
    if FAMILIES[model.family].classes:
        found: MixtureEstimator = MixtureOfExpertsClassifier(
            K, **(chosen if reads else {**chosen, "gate_features": []})
        )
    elif not reads:
        found = MixtureOfRegressions(K, family=model.family, **_without(chosen, "gate_features"))
    else:
        found = MixtureOfExpertsRegressor(K, family=model.family, **chosen)
    set_columns(found, covariates.names, study.classes, covariates)
    return found


def _without(chosen: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in chosen.items() if key != name}


def task_of(study: Study, models: Sequence[MixtureEstimator] | None = None) -> Task:
    """Return the task of a study: the same at every site and at the coordinator.

    Examples
    --------
    >>> study = Study.from_text('''
    ... format = "consilience-study"
    ... version = 1
    ... name = "stay"
    ... seed = 1
    ... model = {response = "days", experts = [1, 2]}
    ... columns = [{name = "days", kind = "number"}, {name = "age", kind = "number"}]
    ... ''')
    >>> task_of(study).fit_site(describe=True).orders
    (1, 2)
    """
    models = estimators_of(study) if models is None else models
    first = models[0]
    terms = first.columns_.terms
    return Task(
        tuple(specification_of(model) for model in models),
        len(terms),
        1,
        seed=study.seed,
        n_init=first.n_init,
        tol=first.tol,
        max_iter=first.max_iter,
        names=terms,
    )
