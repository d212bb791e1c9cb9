import warnings

import numpy as np
import pytest

from consilience import GaussianMixture, MixtureOfRegressions, plot, select_order
from consilience.errors import InvalidInputError
from consilience.federation import FederatedOrders

RINGS = 12


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(0, 1, (100, 1)), rng.normal(8, 1, (100, 1))])


@pytest.fixture(scope="module")
def selection(X):
    return select_order(GaussianMixture(random_state=0), X, orders=[1, 3, 2], folds=3)


def curves(ax):
    """Return the curve of each criterion by its label."""
    return {container.get_label(): container.lines[0].get_data() for container in ax.containers}


def rings(ax):
    return [(line.get_xdata()[0], line.get_ydata()[0]) for line in ax.lines if line.get_markersize() == RINGS]


@pytest.mark.slow
def test_curves_are_the_criteria_by_increasing_order(selection):
    ax = plot.orders(selection)
    found = curves(ax)
    assert list(found) == ["AIC", "BIC", "ICL", "cross-validation ± SE"]
    for name in ("aic", "bic", "icl"):
        x, y = found[name.upper()]
        np.testing.assert_array_equal(x, [1, 2, 3])
        np.testing.assert_allclose(y, np.array(selection.scores[name])[[0, 2, 1]], rtol=1e-12)
    np.testing.assert_allclose(found["cross-validation ± SE"][1], -400 * np.array(selection.scores["cv"])[[0, 2, 1]])
    bars = ax.containers[3].lines[2][0].get_segments()
    half = np.array([segment[1, 1] - segment[0, 1] for segment in bars]) / 2
    np.testing.assert_allclose(half, 400 * np.array(selection.scores["cv_std_error"])[[0, 2, 1]])
    assert ax.get_xlabel().startswith("number of components")


def test_rings_are_at_the_preferred_orders(selection):
    ax = plot.orders(selection)
    names = ("aic", "bic", "icl", "cv")
    assert [x for x, _ in rings(ax)] == [selection.preferred(name) for name in names]
    assert rings(ax)[1][1] == min(selection.scores["bic"])


def test_doubtful_fits_are_open_markers_and_are_explained(X):
    with warnings.catch_warnings(action="ignore"):  # one iteration is not enough
        doubtful = select_order(GaussianMixture(random_state=0, max_iter=1, n_init=1, tol=0), X, orders=[1, 4])
    assert not all(model.converged_ for model in doubtful.estimators)
    ax = plot.orders(doubtful)
    assert "open marker: not converged" in ax.get_xlabel()
    open_ = [line.get_xdata() for line in ax.lines if line.get_markerfacecolor() == "white"]
    expected = [K for K, model in zip((1, 4), doubtful.estimators, strict=True) if not model.converged_]
    np.testing.assert_array_equal(open_[0], expected)


@pytest.mark.slow
def test_a_federated_selection_has_aic_and_bic(federation):
    with warnings.catch_warnings(action="ignore"):  # far is unlike the others
        found = federation.select_order(MixtureOfRegressions(random_state=0, n_init=1), [1, 2])
    ax = plot.orders(found)
    np.testing.assert_allclose(curves(ax)["BIC"][1], [fit.bic for fit in found.fits], rtol=1e-12)
    np.testing.assert_allclose(curves(ax)["AIC"][1], [fit.aic for fit in found.fits], rtol=1e-12)
    assert rings(ax)[1][0] == found.best_order


def test_something_else_is_an_error(lines):
    with pytest.raises(
        InvalidInputError, match="selection is a MixtureOfRegressions: expected the result of select_or"
    ):
        plot.orders(lines.model)


def test_a_method_with_one_model_per_site_has_no_criteria(shared):
    with pytest.raises(InvalidInputError, match="AIC is not defined for a method that fits one mixture per site"):
        plot.orders(FederatedOrders((2,), (shared,), "bic"))
