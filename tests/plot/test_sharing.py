from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_hex

from consilience import plot
from consilience.errors import InvalidInputError
from consilience.federation import FederatedFit
from consilience.methods import SiteShare
from consilience.plot.drawing import mark


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
    assert texts == ["expert 0", "expert 1", "gate"]


def test_a_site_without_an_answer_is_named(shared):
    fit = replace(shared.fit, sites=(*shared.fit.sites, SiteShare.gone("lost", "it did not answer")))
    ax = plot.sharing(FederatedFit(shared.model, shared.record, fit, shared.models))
    (text,) = ax.texts
    assert (text.get_text(), text.get_position()[1]) == ("no answer", len(shared.fit.sites))


def test_other_results_are_errors(combined, lines):
    with pytest.raises(InvalidInputError, match=r"result is the result of another method: .* method=SharedCentre"):
        plot.sharing(combined)
    with pytest.raises(
        InvalidInputError, match=r"result is a MixtureOfRegressions: expected the result of Federation.fit"
    ):
        plot.sharing(lines.model)
