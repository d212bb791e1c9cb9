"""The kinds of rows that a mixture tells apart: their order, their names, and what each predicts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from consilience.fitted.effects import is_of_points, is_standardised, means_at_centre
from consilience.fitted.protocols import FittedMixture, response_names
from consilience.numerics.arrays import Array
from consilience.report.scale import read_back, response_name
from consilience.report.wording import Words

LEVEL = 0.95
APART = 1.25
"""Ratio of the extreme predictions from which kinds are named after them."""
APART_IN_DEVIATIONS = 0.5
"""The same for a response that is not read as a ratio, in standard deviations within a kind."""


@dataclass(frozen=True)
class RowKind:
    """One kind of rows.

    Parameters
    ----------
    expert : int
        Place of the expert in the arrays of the model, from 0.
    name : str
        In the middle of a sentence.
    share : float
    typical : (float, float, float)
        Prediction at the mean of the covariates as people read it, with the bounds of its interval; NaN if not known.
    """

    expert: int
    name: str
    share: float
    typical: tuple[float, float, float]

    @property
    def title(self) -> str:
        """The name at the beginning of a sentence."""
        return self.name[:1].upper() + self.name[1:]


def kinds_of(model: FittedMixture, words: Words) -> tuple[RowKind, ...]:
    """Return the kinds of a model by increasing prediction; by share if they have no single prediction."""
    typical = typical_responses(model, words)  # (K, 3)
    K = model.mixture_.K
    by = typical[:, 0] if np.isfinite(typical).all() else -np.asarray(model.weights_)
    order = np.argsort(by, kind="stable")
    names = words.names if len(words.names) == K else _names(model, words, typical[order])
    return tuple(
        RowKind(
            int(k), name, float(model.weights_[k]), (float(typical[k, 0]), float(typical[k, 1]), float(typical[k, 2]))
        )
        for k, name in zip(order, names, strict=True)
    )


NUMBERED = re.compile(r"\b(?:expert|component) (\d+)\b")


def name_experts(text: str, kinds: Sequence[RowKind]) -> str:
    """Return a sentence with names of kinds in place of numbers of experts, which a sentence counts from 1.

    Examples
    --------
    >>> name_experts("expert 2 has 5 rows", [RowKind(1, "longer stays", 0.5, (1.0, 1.0, 1.0))])
    'longer stays has 5 rows'
    """
    names = {kind.expert: kind.name for kind in kinds}
    return NUMBERED.sub(lambda found: names.get(int(found[1]) - 1, found[0]), text)


def typical_responses(model: FittedMixture, words: Words) -> Array:
    """Return the prediction of each expert at the mean of the covariates, and its interval, ``(K, 3)``."""
    K = model.mixture_.K
    if is_of_points(model) or not is_standardised(model) or len(response_names(model)) > 1:
        return np.full((K, 3), np.nan)
    found = np.column_stack([part[:, -1] for part in means_at_centre(model, LEVEL)])
    if model.mixture_.experts.classes or words.response.back == "none":
        return found
    return read_back(found, words)


def _names(model: FittedMixture, words: Words, typical: Array) -> list[str]:
    """Return names after the response, if the kinds differ in it; otherwise letters. ``typical`` is in their order."""
    K = len(typical)
    if K == 1:
        return [f"all {words.rows[1]}"]
    if not _are_apart(model, words, typical):
        return [f"kind {chr(ord('A') + i) if K <= 26 else i + 1}" for i in range(K)]
    if model.mixture_.experts.classes:
        ends = [f"{how} often {response_names(model)[0]}" for how in ("less", "more")]
        return ends if K == 2 else [f"group {i + 1} of {K}" for i in range(K)]
    response = words.response
    named = words.rows[1] if response.less and response.more else response_name(model, words)
    less, more = (f"{each} {named}" for each in (response.less or "lower", response.more or "higher"))
    if K <= 3:
        return [less, more] if K == 2 else [less, f"middle {named}", more]
    return [f"group {i + 1} of {K}" for i in range(K)]


def _are_apart(model: FittedMixture, words: Words, typical: Array) -> bool:
    """Whether the extreme predictions differ by enough to name kinds after them, and by more than chance."""
    lowest, highest = typical[0], typical[-1]
    if not np.isfinite(typical[:, 0]).all() or (np.isfinite(typical).all() and lowest[2] >= highest[1]):
        return False
    if model.mixture_.experts.classes:
        return bool(highest[0] - lowest[0] > 0.1)
    if words.response.back == "exp" or model.mixture_.experts.multiplied:
        return bool(highest[0] > APART * lowest[0] > 0)
    scale = scatter(model)
    return scale is None or bool(highest[0] - lowest[0] > APART_IN_DEVIATIONS * np.max(scale))


def scatter(model: FittedMixture) -> Array | None:
    """Return the standard deviation of the fitted response within each expert, ``(K,)``; None if it is not one."""
    names = model.mixture_.experts.shape_names
    if names != ("variance",) or model.mixture_.experts.q > 1:
        return None
    return np.asarray(np.exp(0.5 * model.inference_.estimates.log_shapes[:, 0]))


def spread_sentence(model: FittedMixture, words: Words, kind: RowKind) -> str:
    """Say within which range most rows of a kind lie; empty if it is not known."""
    deviations = scatter(model)
    if deviations is None:
        return ""
    reach = float(ndtri(0.9) * deviations[kind.expert])
    several = words.rows[1]
    if words.response.back == "exp":
        return (
            f"4 of 5 {several} have {np.exp(-reach):.2f} to {np.exp(reach):.2f} times the typical "
            f"{response_name(model, words)}."
        )
    if words.response.back != "none":
        return ""
    unit = f" {words.response.unit}" if words.response.unit else ""
    return f"4 of 5 {several} are within {reach:.3g}{unit} of the typical {response_name(model, words)}."
