import numpy as np
import pytest

from consilience.model import GaussianExperts, Moments, Penalty, expect
from families import GAUSSIAN
from strategies import Shape


def renamed(experts: GaussianExperts, moments: Moments, order: np.ndarray) -> Moments:
    return experts.relabelled(moments, order)


@pytest.mark.parametrize("family", GAUSSIAN)
@pytest.mark.parametrize("q", [1, 3])
def test_relabelled_moments_lead_to_the_same_experts_under_other_names(family: str, q: int) -> None:
    mixture, rows = Shape(family=family, K=3, q=q, n=80).problem()
    experts, moments = mixture.experts, expect(mixture, rows).experts
    order = np.array([2, 0, 1])
    here = experts.step(moments, Penalty(), intercept=True, fraction=1.0)
    there = experts.step(renamed(experts, moments, order), Penalty(), intercept=True, fraction=1.0)
    np.testing.assert_allclose(there.B, here.B[order], rtol=1e-9)
    np.testing.assert_allclose(there.variances, here.variances[order], rtol=1e-9)
    back = renamed(experts, renamed(experts, moments, order), np.argsort(order))
    np.testing.assert_allclose(back.to_array(), moments.to_array(), rtol=1e-9, atol=1e-9)
