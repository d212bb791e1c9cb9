"""A fitted mixture in words: what each expert is, and how sure that is."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from math import floor, log10

import numpy as np

from consilience.fit import bic
from consilience.fitted import effects
from consilience.fitted.protocols import (
    FittedMixture,
    expert_label,
    is_needless,
    join_words,
    labelled,
    model_title,
    noun,
    response_names,
    shared_places,
    withheld_part,
)

SHOWN = 3
"""Maximum number of effects of a part that are stated with figures."""
NAMED = 5
"""Maximum number of further covariates that are named."""
WIDTH = 100


def describe_fit(estimator: FittedMixture, level: float) -> str:
    """Return the fit in words: one paragraph for each expert, and one of reservations."""
    paragraphs = [_opening(estimator, level), _needless(estimator)]
    if not paragraphs[1]:
        paragraphs += [*_experts(estimator, level), _reservations(estimator, level)]
    return "\n\n".join(textwrap.fill(text, WIDTH, break_long_words=False) for text in paragraphs if text)


def _opening(estimator: FittedMixture, level: float) -> str:
    K, n = estimator.mixture_.K, estimator.n_labels_
    text = f"{model_title(estimator)}: {K} {noun(estimator)}{'s' if K > 1 else ''} on {n:,.0f} {labelled(estimator)}."
    text += f" Brackets hold {_percent(level)} intervals."
    designs = estimator.coordinates_
    every = dict.fromkeys(step for design in designs for step in effects.covariate_steps(estimator, design))
    scales = [f"{step.name} {_number(step.size)}" for step in every if step.standardised]
    return f"{text} Standard deviations: {_name_some(scales, 2 * NAMED)}." if scales else text


def _needless(estimator: FittedMixture) -> str:
    """Say that one expert describes the rows as well, where BIC does not prefer the mixture; otherwise empty."""
    if not is_needless(estimator):
        return ""
    one, own = estimator.single_bic_, bic(estimator.log_likelihood_, estimator.n_parameters_, estimator.n_labels_)
    name, K = noun(estimator), estimator.mixture_.K
    return (
        f"One {name} alone describes these {labelled(estimator)} as well (BIC {one:,.1f}, against {own:,.1f} of {K} "
        f"{name}s; less is better). The data do not show that there are several, so that nothing is said of them: fit "
        f"one {name}, or compare numbers with select_order."
    )


def _experts(estimator: FittedMixture, level: float) -> list[str]:
    paragraphs = []
    for k in range(estimator.mixture_.K):
        parts = [_share(estimator, k, level)]
        if effects.is_of_points(estimator):
            parts += [_means(estimator, k, level)]
        else:
            parts += [_place(estimator, k, level), _level(estimator, k, level), _slopes(estimator, k, level)]
        paragraphs.append(" ".join(part for part in [*parts, _scatter(estimator, k, level)] if part))
    return [*paragraphs, _shared_slopes(estimator, level)]


# ---------------------------------------------------------------------- the gate


def _share(estimator: FittedMixture, k: int, level: float) -> str:
    name, share = expert_label(estimator, k).capitalize(), f"{100 * estimator.weights_[k]:.0f} %"
    if estimator.mixture_.K == 1:
        return f"{name} is the only one."
    text = f"{name} holds for {share} of the {labelled(estimator)}"
    if estimator.mixture_.gate.reads_covariates:
        return f"{text}."
    lower, upper = (100 * np.clip(bound.gate[k, 0], 0, 1) for bound in estimator.inference_.interval(level))
    return f"{text} ({lower:.0f} to {upper:.0f} %)." if np.isfinite(lower) else f"{text} (no interval)."


def _place(estimator: FittedMixture, k: int, level: float) -> str:
    """Say where the gate puts an expert, by its odds against the others."""
    K = estimator.mixture_.K
    if K == 1 or not estimator.mixture_.gate.reads_covariates:
        return ""
    if K == 2 and k == 1:
        return "It is likelier where expert 1 is less likely."
    found = effects.gate_effects(estimator, k, level)
    rivals = "expert 2" if K == 2 else "the others"
    told = effects.select_supported(found)[:SHOWN]
    places = join_words([each.step.more if each.estimate > 0 else each.step.less for each in told])
    odds = join_words([f"by {_ratio(each)} {each.step.words}" for each in told])
    sentence = f"It is likelier {places}: its odds against {rivals} are multiplied {odds}." if told else ""
    return " ".join([sentence, *_rest(found, "where it holds")]).strip()


# ---------------------------------------------------------------------- the experts


def _level(estimator: FittedMixture, k: int, level: float) -> str:
    """Say what an expert predicts at the mean of the covariates."""
    if not effects.is_standardised(estimator):
        return ""
    mean, lower, upper = (values[k] for values in effects.means_at_centre(estimator, level))
    experts = estimator.mixture_.experts
    names = _outcomes(estimator)
    order = np.argsort(-mean, kind="stable") if experts.classes else range(len(names))
    told = [f"{names[i]} {_with_interval(mean[i], lower[i], upper[i])}" for i in list(order)[:SHOWN]]
    size = f" at {experts.size_name} 1" if experts.size_name else ""
    return f"At the mean of the covariates it {'gives' if experts.classes else 'predicts'} {join_words(told)}{size}."


def _outcomes(estimator: FittedMixture) -> list[str]:
    if not estimator.mixture_.experts.classes:
        return response_names(estimator)
    classes = [f"class {name} a probability of" for name in map(str, estimator.classes_)]
    return classes[1:] if len(classes) == 2 else classes


def _slopes(estimator: FittedMixture, k: int, level: float) -> str:
    """Say what goes with the response of an expert, and not alike with that of all others."""
    shared = shared_places(estimator)
    found = [each for each in effects.expert_effects(estimator, k, level) if each.step.place not in shared]
    return _stated(found)


def _shared_slopes(estimator: FittedMixture, level: float) -> str:
    """Say what goes with the response alike in all experts; empty if there is no such covariate."""
    shared = shared_places(estimator)
    found = [each for each in effects.expert_effects(estimator, 0, level) if each.step.place in shared]
    return f"Alike in all {noun(estimator)}s: {_stated(found)}" if found else ""


def _stated(found: Sequence[effects.Effect]) -> str:
    """State the strongest effects on the response, and name the others."""
    shown = effects.select_supported(found)[:SHOWN]
    told = [_state_effect(each, before) for each, before in zip(shown, [None, *shown], strict=False)]
    return " ".join([f"{join_words(told)}." if told else "", *_rest(found, "its response")]).strip()


def _state_effect(effect: effects.Effect, before: effects.Effect | None) -> str:
    """State an effect; what changes is not repeated if the effect before was on the same."""
    if effect.ratio:
        verb = "are" if effect.of.startswith("odds") else "is"
        subject = f"{'The' if before is None else 'the'} {effect.of} {verb} multiplied by "
        return f"{subject if before is None or before.of != effect.of else 'by '}{_ratio(effect)} {effect.step.words}"
    subject = f"{effect.of} is " if before is None or before.of != effect.of else ""
    change, sign = ("higher", 1) if effect.estimate > 0 else ("lower", -1)
    figures = _with_interval(
        *(sign * each for each in (effect.estimate, *sorted((effect.lower, effect.upper), key=abs)))
    )
    return f"{subject}{change} by {figures} {effect.step.words}"


def _scatter(estimator: FittedMixture, k: int, level: float) -> str:
    """State the shapes of an expert with a single response."""
    experts, inference = estimator.mixture_.experts, estimator.inference_
    if experts.q > 1 or not experts.shape_names:
        return ""
    parts = (inference.estimates, *inference.interval(level))
    told = [
        f"{name.replace('_', ' ')} {_with_interval(*(np.exp(part.log_shapes[k, j]) for part in parts))}"
        for j, name in enumerate(experts.shape_names)
    ]
    return f"It has {join_words(told)}."


# ---------------------------------------------------------------------- Gaussian mixtures


def _means(estimator: FittedMixture, k: int, level: float) -> str:
    """State the means that differ most from the overall mean, in standard deviations of the columns."""
    names, inference = response_names(estimator), estimator.inference_
    bounds = [part.experts[k, :, 0] for part in (inference.estimates, *inference.interval(level))]
    if estimator.mixture_.K == 1:
        told = [f"{name} {_with_interval(*(part[j] for part in bounds))}" for j, name in enumerate(names[: 2 * NAMED])]
        return f"Its means are {join_words(told)}."
    overall = estimator.weights_ @ inference.estimates.experts[:, :, 0]
    distance, clear = effects.mean_distances(estimator, k, level)
    order = [j for j in np.argsort(-np.abs(distance), kind="stable") if clear[j]]
    told = [
        f"{names[j]} is {'higher' if distance[j] > 0 else 'lower'} in it, with a mean of "
        f"{_with_interval(*(part[j] for part in bounds))} against {_number(overall[j])} overall"
        for j in order[:SHOWN]
    ]
    further, same = [names[j] for j in order[SHOWN:]], [names[j] for j in np.flatnonzero(~clear)]
    sentences = [
        f"{join_words(told)}." if told else "",
        f"It also differs from the overall mean in {_name_some(further)}." if further else "",
        f"Its mean of {_name_some(same)} cannot be told from the overall mean." if same else "",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


# ---------------------------------------------------------------------- reservations


def _reservations(estimator: FittedMixture, level: float) -> str:
    """Say what is withheld, not converged or in doubt, and how many effects were looked at."""
    told = []
    if not (estimator.converged_ or estimator.stop_reason_.by_choice):
        told.append(f"The fit has not converged ({estimator.stop_reason_}).")
    if estimator.degeneracy_:
        told.append(f"The fit is degenerate: {estimator.degeneracy_}.")
    told += [f"The fit as a whole is in doubt: {doubt}." for doubt in estimator.doubts_]
    if not estimator.starts_agree_ and estimator.starts_.count > 1:
        told.append(f"The starts do not agree ({estimator.starts_}): other experts may describe the data as well.")
    if estimator.mixture_.K > 1 and estimator.starts_.count == 1:
        told.append("Only one start was climbed: other experts may describe the data better.")
    for part, reason in estimator.inference_.withheld.items():
        name = withheld_part(estimator, part)
        told.append(f"Intervals of the {name} are withheld: {reason}.")
    looked_at = effects.effect_count(estimator)
    if estimator.mixture_.K > 1 and estimator.single_bic_ is None:
        told.append(f"Whether one {noun(estimator)} would do as well was not examined: see select_order.")
    if looked_at > 1:
        told.append(
            f"Each interval is for one statement by itself: if nothing had any effect, about {_percent(1 - level)} of "
            f"the {looked_at} effects that were looked at would be stated by chance."
        )
    return " ".join(told)


# ---------------------------------------------------------------------- phrases


def _rest(found: Sequence[effects.Effect], what: str) -> list[str]:
    """Name the further effects on ``what``, those that may be none, and those without an interval.

    If none has one, the reason is given at the end.
    """
    if not any(each.known for each in found):
        return []
    supported = effects.select_supported(found)
    shown, clear = _unique(supported[:SHOWN]), _unique(supported)
    further = [name for name in _unique(supported[SHOWN:]) if name not in shown]
    unclear = [name for name in _unique([each for each in found if each.known]) if name not in clear]
    unknown = _unique([each for each in found if not each.known])
    return [
        *([f"{what[0].upper()}{what[1:]} also goes with {_name_some(further)}."] if further else []),
        *([f"The data do not show whether {what} goes with {_name_some(unclear)}."] if unclear else []),
        *([f"Nothing is said of {_name_some(unknown)}: no interval is known."] if unknown else []),
    ]


def _unique(found: Sequence[effects.Effect]) -> list[str]:
    return list(dict.fromkeys(each.step.name for each in found))


def _with_interval(value: float, lower: float, upper: float) -> str:
    """State a value with its interval, as finely as the interval supports."""
    if not (np.isfinite(lower) and np.isfinite(upper)):
        return f"{_number(value)} (no interval)"
    decimals = effects.supported_decimals(lower, upper)
    said, low, high = (_number(each, decimals) for each in (value, lower, upper))
    return f"{said} ({low} to {high})"


def _ratio(effect: effects.Effect) -> str:
    return _with_interval(*np.exp((effect.estimate, effect.lower, effect.upper)))


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _name_some(names: Sequence[str], most: int = NAMED) -> str:
    if len(names) > most + 1:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return join_words(names)


def _number(value: float, decimals: int | None = None) -> str:
    """Format with three significant digits, or at most so many decimals, without an exponent for everyday sizes."""
    if not np.isfinite(value):
        return "—"
    if decimals is None:
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"
    most = 0 if abs(value) >= 1000 else 2 - floor(log10(abs(value) or 1.0))
    kept = min(decimals, most)
    rounded = round(float(value), kept) + 0.0
    return f"{rounded:.3g}" if abs(rounded) >= 1e7 or kept > 6 else f"{rounded:,.{max(kept, 0)}f}"
