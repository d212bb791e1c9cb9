import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

from consilience import GaussianMixture, plot
from consilience.errors import InvalidInputError
from consilience.plot.drawing import mark


def heights(panel):
    return np.array([bar.get_height() for bar in panel.patches])


def test_bars_count_the_responsibilities_that_are_not_negligible(regressor):
    model, X, y = regressor
    resp = model.responsibilities(X, y)
    panels = plot.posteriors(model, X, y)
    assert panels.shape == (3,)
    for k, panel in enumerate(panels):
        expected, _ = np.histogram(resp[resp[:, k] >= 1e-4, k], 20, (0, 1))
        np.testing.assert_array_equal(heights(panel), expected)
        assert heights(panel).sum() == np.sum(resp[:, k] >= 1e-4) < len(y)
        assert to_hex(panel.patches[0].get_facecolor()).upper() == mark(k).colour
        assert panel.get_title() == f"expert {k}"


def test_counts_are_on_a_square_root_scale_that_all_panels_share(regressor):
    panels = plot.posteriors(*regressor)
    top = max(heights(panel).max() for panel in panels)
    for panel in panels:
        assert panel.get_ylim() == (0, 1.05 * top)
        low, quarter, whole = (panel.transData.transform((0, y))[1] for y in (0, 25, 100))
        assert quarter - low == pytest.approx((whole - low) / 2)


def test_a_group_counts_once(lines):
    model, X, y = lines
    panels = plot.posteriors(model, X, y, groups=np.arange(300) // 3)
    resp = model.responsibilities(X, y, groups=np.arange(300) // 3)[::3]
    assert heights(panels[0]).sum() == np.sum(resp[:, 0] >= 1e-4)
    assert panels[0].get_ylabel() == "groups"


def test_panels_may_be_given(lines):
    _, given = plt.subplots(2, 1)
    found = plot.posteriors(*lines, ax=given)
    assert list(found) == list(given)
    with pytest.raises(InvalidInputError, match="ax has 1 Axes: expected 2, one for each component"):
        plot.posteriors(*lines, ax=given[0])


@pytest.mark.slow
@pytest.mark.parametrize("K", [1, 4, 5])
def test_any_number_of_components(K):
    X = np.random.default_rng(0).normal(size=(300, 1)) + 20 * (np.arange(300) % K)[:, None]
    panels = plot.posteriors(GaussianMixture(K, random_state=0).fit(X), X)
    assert len(panels) == len(panels[0].figure.axes) == K
    assert [heights(panel)[-1] for panel in panels] == [300 / K] * K
    assert [panel.get_xlabel() for panel in panels][-1] == "responsibility"
