import warnings

import numpy as np
import pytest
from matplotlib.colors import to_hex

from consilience import MixtureOfRegressions, plot
from consilience.errors import InvalidInputError
from consilience.plot.drawing import GREY, mark


def cells(ax):
    """Return the text of each cell, by row and column."""
    return {(text.get_position()[1], text.get_position()[0]): text.get_text() for text in ax.texts}


def test_cells_hold_the_experts_of_each_site_in_the_column_of_their_combined_expert(combined):
    ax = plot.transport(combined)
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == [site.name for site in combined.sites]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["expert 0", "expert 1", "not used"]
    found = cells(ax)
    for m, name in enumerate(names):
        plan = combined.fit.combination.plan.get(name)
        if plan is None:
            assert found.pop((m, 2)) == "no model"
            continue
        for k in np.unique(plan):
            assert found.pop((m, 2 if k < 0 else k)) == ", ".join(map(str, np.flatnonzero(plan == k)))
    assert not found


def test_cells_have_the_colour_of_their_expert(combined):
    for patch in plot.transport(combined).patches:
        column = round(patch.get_xy()[:4, 0].mean())
        expected = GREY if column == 2 else mark(column).colour
        assert to_hex(patch.get_facecolor()).upper() == expected


def test_experts_of_alike_sites_became_the_expert_whose_coefficients_they_have(combined):
    """The plan is in the order of the experts of the model."""
    found = combined.fit.combination.coefficients
    for k in range(2):
        joint = combined.model.coef_[k]
        known = np.isfinite(found.estimates[k, :, 0])
        np.testing.assert_allclose(found.estimates[k, known, 1:], np.tile(joint, (4, 1)), atol=0.5)


def test_other_results_are_errors(federation, shared, lines):
    with pytest.raises(InvalidInputError, match=r"result is the result of another method: .* method=OneShot"):
        plot.transport(shared)
    with pytest.raises(
        InvalidInputError, match=r"result is a MixtureOfRegressions: expected the result of Federation.fit"
    ):
        plot.transport(lines.model)
    with warnings.catch_warnings(action="ignore"):  # far is unlike the others
        pooled = federation.fit(MixtureOfRegressions(1, random_state=0))
    with pytest.raises(InvalidInputError, match="another method"):
        plot.transport(pooled)
