"""Pictures of federated results: sites, transport plan, shrinkage."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_hex
from scipy.stats import norm

from consilience import Federation, MixtureOfExpertsClassifier, MixtureOfRegressions, OneShot, plot
from consilience.errors import InvalidInputError
from consilience.federation import FederatedFit
from consilience.methods import SiteShare
from consilience.plot.drawing import GREY, mark

USED = ["north", "south", "east", "west"]


def labels(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def test_squares_and_bars_are_the_estimates_of_the_sites(combined):
    ax = plot.sites(combined, "x1", expert=1, level=0.9)
    assert labels(ax) == [*USED, "far", "tiny", "all sites"]
    found = combined.fit.combination.coefficients
    place = [found.sites.index(name) for name in USED]
    estimates, variances = found.estimates[1, place, 2], found.variances[1, place, 2]
    squares = ax.collections[1].get_offsets()
    np.testing.assert_allclose(squares, np.column_stack([estimates, range(4)]), rtol=0, atol=1e-12)
    bars = np.array([segment[:, 0] for segment in ax.collections[0].get_segments()])
    reach = norm.ppf(0.95) * np.sqrt(variances)
    np.testing.assert_allclose(bars, np.column_stack([estimates - reach, estimates + reach]), rtol=0, atol=1e-12)
    assert to_hex(ax.collections[1].get_facecolor()[0]).upper() == mark(1).colour


def test_the_diamond_is_the_interval_of_the_joint_model(combined):
    table = combined.model.to_frame()
    row = table[(table["part"] == "expert") & (table["expert"] == 0) & (table["term"] == "x0")].iloc[0]
    ax = plot.sites(combined, "x0")
    corners = ax.patches[0].get_xy()
    np.testing.assert_allclose(
        corners[:4, 0], row[["lower", "estimate", "upper", "estimate"]].astype(float), atol=1e-12
    )
    assert ax.get_xlabel() == f"x0, expert 1\nI² = {row['I2']:.0%}, τ² = {row['tau2']:.2g}".replace("%", " %")


def test_sites_without_an_estimate_keep_their_line(combined):
    ax = plot.sites(combined, 0)
    assert [(text.get_text(), text.xy[1]) for text in ax.texts] == [("no estimate", 4), ("no estimate", 5)]


def test_the_mean_of_the_sites_by_precision_is_near_the_joint_estimate(combined):
    found = combined.fit.combination.coefficients
    for k in range(2):
        b, v = found.estimates[k], found.variances[k]
        mean = np.nansum(b / v, axis=0) / np.nansum(1 / v, axis=0)
        joint = np.r_[combined.model.intercept_[k], combined.model.coef_[k]]
        assert np.all(np.abs(mean - joint) < 0.5 / np.sqrt(np.nansum(1 / v, axis=0)))


def test_after_a_shared_centre_the_estimates_are_those_of_the_models_of_the_sites(shared):
    ax = plot.sites(shared, "x0", expert=1)
    names = [site.name for site in shared.sites]
    assert labels(ax) == [*names, "centre"]
    points = ax.collections[2].get_offsets()
    np.testing.assert_allclose(points[:, 0], [shared.models[name].coef_[1, 0] for name in names], rtol=0, atol=1e-12)
    assert "shrunk towards the centre" in ax.get_xlabel()


def test_the_sign_is_that_of_the_log_odds_of_the_second_class():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 1))
    y = np.where(rng.random(1200) < 1 / (1 + np.exp(-2 * X[:, 0])), "yes", "no")
    sites = Federation({name: (X[i::3], y[i::3]) for i, name in enumerate("abc")})
    result = sites.fit(MixtureOfExpertsClassifier(1, random_state=0), method=OneShot(refine=0))
    points = plot.sites(result, "x0").collections[1].get_offsets()
    assert len(points) == 3
    np.testing.assert_allclose(points[:, 0], 2, atol=0.6)


def test_unknown_arguments_are_errors(combined):
    with pytest.raises(InvalidInputError, match=r"term='x9': expected one of '\(intercept\)', 'x0', 'x1', or a number"):
        plot.sites(combined, "x9")
    with pytest.raises(InvalidInputError, match="expert=2: expected a number from 0 to 1"):
        plot.sites(combined, "x0", expert=2)
    with pytest.raises(InvalidInputError, match="result is a MixtureOfExpertsRegressor: expected the result of Feder"):
        plot.sites(combined.model, "x0")


def test_a_term_that_the_experts_do_not_read_is_an_error(cars):
    result = FederatedFit(cars.model, None, None, {"north": cars.model})
    with pytest.raises(
        InvalidInputError, match=r"term='city\[True\]': the experts do not read it; expected one of '\(int"
    ):
        plot.sites(result, "city[True]")


def test_a_method_without_estimates_of_sites_is_an_error(federation):
    with warnings.catch_warnings(action="ignore"):  # far is unlike the others
        pooled = federation.fit(MixtureOfRegressions(1, random_state=0))
    with pytest.raises(
        InvalidInputError, match="gets no estimates of single sites: use OneShot, SharedCentre or FedGrE"
    ):
        plot.sites(pooled, "x0")


@pytest.mark.parametrize("draw", [lambda result: plot.sites(result, "x0"), plot.transport], ids=["sites", "transport"])
def test_a_fit_that_was_refined_from_one_site_is_an_error(combined, draw):
    fit = combined.fit
    other = replace(fit, rivals=replace(fit.rivals, from_site=True, best_site="north"))
    with pytest.raises(InvalidInputError, match="the result was refined from the model of site north"):
        draw(FederatedFit(combined.model, combined.record, other))


def cells(ax):
    """Return the text of each cell, by row and column."""
    return {(text.get_position()[1], text.get_position()[0]): text.get_text() for text in ax.texts}


def test_cells_hold_the_experts_of_each_site_in_the_column_of_their_combined_expert(combined):
    ax = plot.transport(combined)
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == [site.name for site in combined.sites]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["expert 1", "expert 2", "not used"]
    found = cells(ax)
    for m, name in enumerate(names):
        plan = combined.fit.combination.plan.get(name)
        if plan is None:
            assert found.pop((m, 2)) == "no model"
            continue
        for k in np.unique(plan):
            assert found.pop((m, 2 if k < 0 else k)) == ", ".join(map(str, 1 + np.flatnonzero(plan == k)))
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


def test_markers_are_at_the_shrinkage_of_each_expert(shared):
    ax = plot.sharing(shared)
    assert [label.get_text() for label in ax.get_yticklabels()] == [site.name for site in shared.sites]
    for k in range(2):
        own = [line for line in ax.lines if to_hex(line.get_color()).upper() == mark(k).colour]
        kept, others = own
        assert others.get_markerfacecolor() == "white"
        for line, chosen in ((kept, True), (others, False)):
            expected = [site.shrinkage[k] for site in shared.sites if site.kept[k] == chosen]
            np.testing.assert_allclose(line.get_xdata(), expected, rtol=0, atol=1e-12)
            rows = [m for m, site in enumerate(shared.sites) if site.kept[k] == chosen]
            np.testing.assert_array_equal(np.rint(line.get_ydata()), rows)


def test_crosses_are_at_the_shrinkage_of_the_gate(shared):
    (crosses,) = [line for line in plot.sharing(shared).lines if line.get_marker() == "x"]
    np.testing.assert_allclose(crosses.get_xdata(), [site.gate_shrinkage for site in shared.sites])


def test_each_expert_has_one_entry_in_the_legend(shared):
    texts = [text.get_text() for text in plot.sharing(shared).get_legend().get_texts()]
    assert texts == ["expert 1", "expert 2", "gate"]


def test_a_site_without_an_answer_is_named(shared):
    fit = replace(shared.fit, sites=(*shared.fit.sites, SiteShare.gone("lost", "it did not answer")))
    ax = plot.sharing(FederatedFit(shared.model, shared.record, fit, shared.models))
    (text,) = ax.texts
    assert (text.get_text(), text.get_position()[1]) == ("no answer", len(shared.fit.sites))


def test_other_results_have_no_shrinkage(combined, lines):
    with pytest.raises(InvalidInputError, match=r"result is the result of another method: .* method=SharedCentre"):
        plot.sharing(combined)
    with pytest.raises(
        InvalidInputError, match=r"result is a MixtureOfRegressions: expected the result of Federation.fit"
    ):
        plot.sharing(lines.model)
