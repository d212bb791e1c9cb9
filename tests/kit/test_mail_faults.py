"""Random faults in runs by files; ``just mail-faults`` runs more of them."""

from __future__ import annotations

import pytest

from mail_faults import scheduled


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 30))])
def test_a_schedule_of_faults_ends_with_the_right_model(seed: int) -> None:
    assert scheduled(seed).total() > 0
