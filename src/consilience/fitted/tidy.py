"""Tables for publication: the parameters on the scales that papers report, and one row on the fit as a whole."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from consilience.fit import bic
from consilience.fit.criteria import aic
from consilience.fit.inference import part_in_words, quantile, two_sided
from consilience.fitted.protocols import (
    FittedMixture,
    expert_label,
    join_words,
    noun,
    parameter_keys,
    response_names,
    shared_places,
    term_names,
)
from consilience.fitted.summaries import gate_part
from consilience.numerics.arrays import Array


class _Row(NamedTuple):
    """A parameter on the scale of its interval, and how it is reported.

    ``odds`` multiplies a coefficient before its exponential is taken, NaN for one that adds to the mean; ``scale`` is
    that of the parameter: ``"coefficient"``, ``"log shape"`` or ``"share"``.
    """

    part: str
    expert: str
    response: str
    term: str
    estimate: float
    std_error: float
    degrees: float
    withheld: str
    odds: float = np.nan
    scale: str = "coefficient"


def tidy_table(estimator: FittedMixture, reference: int | None, level: float) -> dict[str, list[Any]]:
    """Return the columns of the table of parameters as papers report them, each stated once."""
    rows = [*_share_rows(estimator), *_gate_rows(estimator, reference), *_expert_rows(estimator)]
    words = {name: [getattr(row, name) for row in rows] for name in ("part", "expert", "response", "term")}
    numbers = {name: values.tolist() for name, values in _numbers(rows, level).items()}
    return {**words, **numbers, "withheld": [row.withheld for row in rows]}


def _numbers(rows: list[_Row], level: float) -> dict[str, Array]:
    """Return the columns of numbers, on the scale that is reported."""
    estimate, se, degrees, odds = (
        np.array([getattr(row, name) for row in rows], dtype=float)
        for name in ("estimate", "std_error", "degrees", "odds")
    )
    coefficient, shape, share = (
        np.array([row.scale == scale for row in rows]) for scale in ("coefficient", "log shape", "share")
    )
    reach = quantile(level, degrees) * se
    bounds = estimate - reach, estimate + reach
    statistic = np.divide(estimate, se, out=np.full(len(rows), np.nan), where=coefficient & (se > 0))
    lower, upper = (np.where(shape, np.exp(end), np.where(share, np.clip(end, 0, 1), end)) for end in bounds)
    effects = (np.exp(odds * each) for each in (estimate, *bounds))
    return {
        "estimate": np.where(shape, np.exp(estimate), estimate),
        "std_error": np.where(shape, np.exp(estimate) * se, se),
        "statistic": statistic,
        "p_value": two_sided(statistic, degrees),
        "lower": lower,
        "upper": upper,
        **dict(zip(("effect", "effect_lower", "effect_upper"), effects, strict=True)),
    }


def _share_rows(estimator: FittedMixture) -> list[_Row]:
    """Return the share of each expert: with its error if the gate is constant, else the mean of the gate."""
    K, inference = estimator.mixture_.K, estimator.inference_
    if K == 1:
        return []
    if estimator.mixture_.gate.reads_covariates:
        values, errors, why = estimator.weights_, np.full(K, np.nan), "a mean of the gate over the rows of the fit"
    else:
        values, errors = inference.estimates.gate[:, 0], inference.standard_errors().gate[:, 0]
        why = inference.withheld.get("gate", "")
    return [
        _Row("share", expert_label(estimator, k), "", "", values[k], errors[k], np.inf, why, scale="share")
        for k in range(K)
    ]


def _gate_rows(estimator: FittedMixture, reference: int | None) -> list[_Row]:
    """Return the coefficients of a softmax gate, those of the second of two centred experts left out."""
    table, K = gate_part(estimator, reference), estimator.mixture_.K
    if table is None:
        return []
    odds = K / (K - 1) if reference is None else 1.0  # against the geometric mean of the others
    why = estimator.inference_.withheld.get("gate", "")
    return [
        _Row("gate", expert_label(estimator, k), "", name, table.estimate[k, j], table.se[k, j], np.inf, why, odds)
        for k in table.experts
        for j, name in enumerate(table.names)
    ]


def _expert_rows(estimator: FittedMixture) -> list[_Row]:
    """Return the coefficients and the shapes of the experts; one row for a coefficient that all of them share."""
    inference, experts = estimator.inference_, estimator.mixture_.experts
    estimates, errors = inference.estimates.flat(), inference.standard_errors().flat()
    degrees, several = inference.degrees_of_freedom().flat(), len(response_names(estimator))
    against = several / (several - 1) if experts.classes and several > 1 else 1.0  # summing to zero over classes
    odds = against if experts.multiplied else np.nan
    rows, names = [], term_names(estimator)
    shared = {names[place] for place in shared_places(estimator)}
    for i, key in enumerate(parameter_keys(estimator)):
        if key is None or key[0] == estimator.mixture_.gate.part:
            continue
        part, k, response, term = key
        of_all = part == "expert" and term in shared
        if of_all and k > 0:
            continue
        label = f"all {noun(estimator)}s" if of_all else expert_label(estimator, k)
        why, figures = inference.reason(k), (estimates[i], errors[i], degrees[i])
        if part == "expert":
            rows.append(_Row(part, label, response, term, *figures, why, odds))
        else:
            name, why = part.removeprefix("log_").replace("_", " "), why or inference.withheld.get("shapes", "")
            rows.append(_Row("shape", label, response, name, *figures, why, scale="log shape"))
    return rows


def glance_row(estimator: FittedMixture) -> dict[str, Any]:
    """Return the figures of the fit as a whole, by name."""
    ll, P, n = estimator.log_likelihood_, estimator.n_parameters_, estimator.n_labels_
    one = estimator.single_bic_
    return {
        "model": estimator.title,
        "family": estimator.specification_.family,
        "experts": estimator.mixture_.K,
        "rows_or_groups": n,
        "parameters": P,
        "log_likelihood": ll,
        "aic": aic(ll, P),
        "bic": bic(ll, P, n),
        "bic_of_one": np.nan if one is None else one,
        "converged": estimator.converged_,
        "starts_agree": estimator.starts_agree_,
        "withheld": join_words([part_in_words(part) for part in estimator.inference_.withheld]),
        "in_doubt": "; ".join([*([estimator.degeneracy_] if estimator.degeneracy_ else []), *estimator.doubts_]),
    }
