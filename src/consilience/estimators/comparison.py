"""Fitted models beside each other: size, likelihood, criteria, and what is in doubt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.errors import InvalidInputError
from consilience.estimators.estimator import MixtureEstimator
from consilience.estimators.federated import frame_like
from consilience.estimators.pipelines import final_step
from consilience.fitted.protocols import FederatedResult, is_federated_result, labelled
from consilience.fitted.summaries import format_count
from consilience.fitted.tidy import glance_row
from consilience.fitted.typeset import Summary, TextTable

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

Models = Mapping[str, "MixtureEstimator | Pipeline | FederatedResult"]


class ModelComparison(Summary):
    """A table of fitted models, as text, HTML, LaTeX, Markdown or a frame; :func:`compare` makes it.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import GaussianMixture, compare
    >>> X = np.random.default_rng(0).normal(size=(200, 1))
    >>> print(compare({"normal": GaussianMixture(1).fit(X)}))
    200 rows
              family  experts  parameters  log-lik.    AIC    BIC  +BIC  starts agree
    normal  gaussian        1           2    -275.9  555.7  562.3   0.0           yes
    BIC prefers normal; criteria compare models of the same responses only.
    """

    __slots__ = ("figures", "first")

    figures: Mapping[str, list[Any]]
    first: MixtureEstimator

    def to_frame(self) -> Any:
        """Return one row per model: its name, what ``glance()`` says, and its BIC above the least."""
        return frame_like(self.first, self.figures)


def compare(models: Models | Sequence[MixtureEstimator | Pipeline | FederatedResult]) -> ModelComparison:
    """Compare models that were fitted to the same responses: size, likelihood, criteria, and what is in doubt.

    Parameters
    ----------
    models : mapping of str to fitted model, or sequence of them
        Estimators of this library, pipelines that end with one, or results of ``Federation.fit``. Models of a sequence
        are named by their place.

    Returns
    -------
    ModelComparison
        A text with a line for each model, in the order given, and a note on which BIC prefers among those whose fit is
        not degenerate. ``to_frame()``, ``to_html()``, ``to_latex()`` and ``to_markdown()`` have the same.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import MixtureOfRegressions, compare
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, 400)
    >>> y = np.where(rng.random(400) < 0.7, 3 * x, 2 - 3 * x) + 0.1 * rng.normal(size=400)
    >>> fits = {f"K = {K}": MixtureOfRegressions(K, random_state=0).fit(x[:, None], y) for K in (1, 2)}
    >>> compare(fits).to_frame()[["name", "parameters", "bic_above_least"]].round(1)
        name  parameters  bic_above_least
    0  K = 1           3           1872.2
    1  K = 2           7              0.0
    """
    named = dict(models) if isinstance(models, Mapping) else {f"model {i + 1}": each for i, each in enumerate(models)}
    fits = {name: final_step(each.model if is_federated_result(each) else each) for name, each in named.items()}
    if not fits:
        raise InvalidInputError("no model was given: expected at least one fitted model")
    unfitted = [name for name, fit in fits.items() if not hasattr(fit, "mixture_")]
    if unfitted:
        raise InvalidInputError(f"{', '.join(unfitted)}: not fitted; call fit first")
    rows = {name: glance_row(fit) for name, fit in fits.items()}
    _check_same_rows(rows)
    least = min(row["bic"] for row in rows.values())
    figures: dict[str, list[Any]] = {"name": list(rows)}
    for column in next(iter(rows.values())):
        figures[column] = [row[column] for row in rows.values()]
    figures["bic_above_least"] = [row["bic"] - least for row in rows.values()]
    return _comparison(figures, fits)


def _check_same_rows(rows: Mapping[str, Mapping[str, Any]]) -> None:
    counts = {name: row["rows_or_groups"] for name, row in rows.items()}
    if not np.allclose(list(counts.values()), next(iter(counts.values())), rtol=1e-9):
        said = ", ".join(f"{name} {format_count(count)}" for name, count in counts.items())
        raise InvalidInputError(f"the models were fitted to different numbers of rows or groups ({said}): their "
                                "likelihoods and criteria cannot be compared")  # fmt: skip


def _comparison(figures: Mapping[str, list[Any]], fits: Mapping[str, MixtureEstimator]) -> ModelComparison:
    header = ["", "family", "experts", "parameters", "log-lik.", "AIC", "BIC", "+BIC", "starts agree"]
    names = ("log_likelihood", "aic", "bic", "bic_above_least")
    lines = [
        [name, family, str(K), str(P), *(f"{figures[each][i]:.1f}" for each in names), "yes" if agree else "no"]
        for i, (name, family, K, P, agree) in enumerate(
            zip(*(figures[each] for each in ("name", "family", "experts", "parameters", "starts_agree")), strict=True)
        )
    ]
    count, counted = format_count(figures["rows_or_groups"][0]), labelled(next(iter(fits.values())))
    table = TextTable(f"{count} {counted}", header, lines)
    sound = [i for i, fit in enumerate(fits.values()) if not fit.degeneracy_] or range(len(fits))
    best = figures["name"][min(sound, key=lambda i: figures["bic"][i])]
    notes = [f"BIC prefers {best}; criteria compare models of the same responses only."]
    notes += [f"{name}: {doubt}." for name, doubt in zip(figures["name"], figures["in_doubt"], strict=True) if doubt]
    found = ModelComparison("\n".join([table.text(), *notes]), "Comparison of models", (), [table], notes)
    found.figures, found.first = figures, next(iter(fits.values()))
    return found
