"""Forecasts of studies with noise: what a run says of itself, in the words of the study, and what would help."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from consilience.datasets.hospitals import STUDY
from consilience.errors import InvalidInputError
from consilience.kit.combination import simulate_study
from consilience.kit.forecast import (
    DOUBTFUL,
    HOPELESS,
    forecast_study,
    guess_start,
    outlook,
    profile_refusals,
    runs_allowed,
    say_outlook,
)
from consilience.kit.policy.policy import Policy
from consilience.kit.study import Study
from consilience.model import FAMILIES, GATES, ConstantGate, Design, Mixture
from consilience.model.families.binomial import BinomialExperts
from mail_office import PRIVATE, TABLES, start, study_with, with_noise

ROWS = tuple(table.num_rows for table in TABLES.values())


def model_study(family: str, gate: str, experts: int = 2) -> Study:
    """A study of a family and a gate, with a category."""
    if FAMILIES[family].classes:
        response = 'kind = "category"\nlevels = ["a", "b", "c"]'
    else:
        top = 1.0 if family == "binomial" else 40.0
        response = f'kind = "number"\nlow = {0.01 if family == "gamma" else 0.0}\nhigh = {top}'
    return Study.from_text(
        'format = "consilience-study"\nversion = 1\nname = "each"\nseed = 1\n'
        'method = {name = "PrivateScoring"}\nprivacy = {epsilon = 3.0}\n'
        f'[model]\nresponse = "y"\nfamily = "{family}"\ngate = "{gate}"\nexperts = [{experts}]\n'
        f'[[columns]]\nname = "y"\n{response}\n'
        '[[columns]]\nname = "age"\nkind = "number"\ncentre = 60\nscale = 15\n'
        '[[columns]]\nname = "sex"\nkind = "category"\nlevels = ["f", "m"]\n'
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
def test_the_forecast_is_that_of_the_run() -> None:
    done: Any = simulate_study(PRIVATE, TABLES, start=start()).best
    found = forecast_study(PRIVATE, start())
    far = len(done.privacy.rhos) == found.rounds(far=True) != found.rounds()
    n = done.fit.ascent.statistics.weight
    assert found.ratio(n, len(ROWS), far=far) == pytest.approx(done.fit.forecast.ratio, rel=1e-3)
    errors = done.model.inference_.standard_errors().flat()
    errors = errors[np.isfinite(errors)]
    assert found.errors(sum(ROWS), len(ROWS), far=far) == pytest.approx(errors, rel=0.5)


def test_coefficients_have_the_words_of_the_study() -> None:
    found = forecast_study(PRIVATE, start())
    parts = [key[0] for key in found.parameters]
    assert len(parts) == len(found.errors(1000, 2)) == len(found.pooled(1000))
    assert {"gate", "expert", "log_variance"} == set(parts)
    assert "sex[male]" in {key[3] for key in found.parameters}
    assert not found.guessed


def test_what_would_help_is_what_the_forecast_says() -> None:
    found = forecast_study(PRIVATE, start())
    few = (35, 40, 45, 50, 55)
    n, sites = sum(few), len(few)
    assert found.ratio(n, sites) > DOUBTFUL
    more, larger = found.rows_needed(DOUBTFUL, sites), found.epsilon_needed(DOUBTFUL, n, sites)
    assert n < more < 10 * n
    assert found.ratio(more, sites) == pytest.approx(DOUBTFUL, rel=1e-6)
    assert found.ratio(n, sites, larger) == pytest.approx(DOUBTFUL, rel=1e-3)
    assert found.rows_needed(0.9, sites) == found.epsilon_needed(0.9, n, sites) == np.inf  # the clip alone costs more
    said = say_outlook(found, few)
    assert f"epsilon = {np.ceil(larger * 10) / 10:.1f}" in said
    assert "fewer experts or columns" in said
    assert found.ratio(n, 1) < found.ratio(n, sites)  # each site adds noise
    assert found.ratio(n, sites, far=True) > found.ratio(n, sites)
    assert (found.rounds(), found.rounds(far=True)) == (5, 7)


def test_a_study_that_cannot_succeed_is_said_to_be_so() -> None:
    found = forecast_study(PRIVATE, start())
    assert outlook(found, ROWS) == "good"
    assert "cannot" not in say_outlook(found, ROWS)
    few = (20, 20, 20, 20, 20)
    assert sum(few) < found.smallest
    assert outlook(found, few, 8.0) == "hopeless"
    assert "too few for" in say_outlook(found, few)
    enough = (60,) * 5
    assert found.ratio(sum(enough), 5, 0.5) > HOPELESS
    assert say_outlook(found, enough, 0.5).startswith("This study cannot succeed: with noise")


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_forecast_without_a_start_or_says_that_it_needs_one(family: str, gate: str) -> None:
    study = model_study(family, gate)
    if family in ("categorical", "binomial"):
        with pytest.raises(InvalidInputError, match="--start"):
            forecast_study(study)
        return
    found = forecast_study(study)
    assert (found.guessed, found.lost) == (True, 0)
    assert 1.0 < found.ratio(20_000, 1, 8.0) < found.ratio(20_000, 4) < found.ratio(2_000, 4) < 3


def test_three_experts_need_a_start() -> None:
    with pytest.raises(InvalidInputError, match="three and more experts"):
        forecast_study(model_study("gaussian", "softmax", 3))


def test_parameters_that_rows_cannot_tell_apart_are_said_to_be_so() -> None:
    """Two experts with two outcomes and the same shares everywhere are one expert, however many rows there are."""
    experts = BinomialExperts(np.array([[0.2, 0.4, -0.3], [-0.2, 0.4, -0.3]]))
    same = Mixture(Design.raw(2), ConstantGate(np.array([0.5, 0.5])), experts)
    found = forecast_study(model_study("binomial", "constant"), same)
    assert found.lost > 0
    assert outlook(found, (10**6,), 8.0) == "hopeless"
    assert "rows say nothing of" in say_outlook(found, (10**6,))


def test_one_expert_and_a_guess_near_a_start() -> None:
    one = forecast_study(model_study("gaussian", "softmax", 1))
    assert 1.0 < one.ratio(5000, 2) < 2
    known, guess = forecast_study(PRIVATE, start()), forecast_study(PRIVATE)
    for epsilon in known.epsilons:
        assert guess.ratio(sum(ROWS), 5, epsilon) == pytest.approx(known.ratio(sum(ROWS), 5, epsilon), rel=0.15)
    assert guess_start(PRIVATE).to_vector() == pytest.approx(guess_start(PRIVATE).to_vector(), abs=0)


def test_profiles_say_what_they_refuse_and_how_many_runs_they_allow() -> None:
    assert profile_refusals(PRIVATE) == {"hospital": "", "research": ""}
    five = profile_refusals(with_noise("epsilon = 5.0"))
    assert "max_epsilon" in five["hospital"]
    assert not five["research"]
    assert all("max_delta" in said for said in profile_refusals(with_noise("epsilon = 1.0, delta = 1e-5")).values())
    contract = profile_refusals(study_with('name = "OneShot", refine = 1'))
    assert all('trust = "coordinator"' in said for said in contract.values())
    rules = Policy.of_profile("hospital").privacy
    assert PRIVATE.privacy is not None
    assert runs_allowed(rules, PRIVATE.privacy) == 5  # ρ of ε = 3 is 0.185, that of 8 is 1.052
    assert PRIVATE.privacy.epsilon == 3.0


def test_studies_without_noise_have_no_forecast() -> None:
    with pytest.raises(InvalidInputError, match="studies with noise"):
        forecast_study(Study.from_text(STUDY))
