"""Masks of sites: the sum is exact, one message says nothing, without one site it is not opened, and no mask twice."""

from __future__ import annotations

import copy
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

from consilience.errors import RefusedError
from consilience.fit.private_step import PublicStep
from consilience.messages import Failure, FailureCode, Masked, MaskedSums, NoisySums, PrivateScores, Several, Summarise
from consilience.messages import encode as encoded
from consilience.messages.table import receive
from consilience.model import Mixture, Rows
from consilience.model.contributions import private_total, total_sensitivity
from consilience.numerics.budget import LEAST_SHARE, noise_variance, shared_variance
from consilience.site import Site, respond
from consilience.site.masks import MOST_TOTAL, Masks, in_one_process, masked, new_key
from contributing import drawn_rows, mixture_of

RHO = Fraction(1, 20)
NAMES = ("ash", "elm", "fir", "oak")


def masks_of(sites: tuple[str, ...] = NAMES, colluding: int = 1) -> dict[str, Masks]:
    return dict(zip(sites, in_one_process(sites, colluding), strict=True))


def problem(parts: int = 1) -> tuple[Mixture, dict[str, Rows], dict[str, Site], Masked]:
    """A question, and sites with masks."""
    rng = np.random.default_rng(1)
    mixture = mixture_of("gaussian-full", rng)
    step = PublicStep.at(mixture, rng.normal(size=(1500, 2)))
    rows = {name: drawn_rows("gaussian-full", mixture, 40, rng) for name in NAMES}
    masks = masks_of()
    sites = {name: replace(Site(name, rows[name]).private(RHO, parts), masks=masks[name]) for name in NAMES}
    return mixture, rows, sites, Masked(PrivateScores(mixture, step.factor, step.clip, place=0), NAMES)


def asked(site: Site, question: object) -> object:
    return receive(respond(encoded(question), site), question)  # type: ignore[arg-type]


# ---------------------------------------------------------------- masks


def test_sums_of_masked_integers_are_exact():
    rng = np.random.default_rng(0)
    for sites in (("a", "b"), NAMES, tuple(f"site {i:03d}" for i in range(30))):
        masks, size = masks_of(sites), 17
        values = {site: rng.integers(-(2**55), 2**55, size=size).tolist() for site in sites}
        parts = [
            MaskedSums(masked(values[site], masks[site].drawn(size, sites, b"question"), len(sites)), 1.0, 1)
            for site in sites
        ]
        exact = tuple(sum(each) for each in zip(*values.values(), strict=True))
        assert MaskedSums.opened(parts).values == exact
        without = tuple(sum(each) for each in zip(*list(values.values())[:-1], strict=True))
        opened = MaskedSums.opened(parts[:-1]).values
        assert not set(opened) & set(without)  # a sum without one site is not opened
        assert min(map(abs, np.subtract(opened, without, dtype=float))) > 2**40


def test_integers_are_cut_so_that_no_sum_overflows():
    sites = NAMES
    masks = masks_of()
    parts = [
        MaskedSums(masked([2**62, -(2**62), 5], masks[site].drawn(3, sites, b"q"), len(sites)), 1.0, 1)
        for site in sites
    ]
    assert MaskedSums.opened(parts).values == (MOST_TOTAL, -MOST_TOTAL, 20)


def test_a_masked_message_is_uniform_whatever_it_hides():
    """Chi-square of the bytes of one site's messages, for zeros and for large sums; without masks it is huge."""
    masks = masks_of()["elm"]

    def statistic(value: int, *, hidden: bool) -> float:
        counts = np.zeros(256)
        for i in range(300):
            drawn = masks.drawn(16, NAMES, b"question %d" % i) * np.uint64(hidden)
            words = np.array(masked([value] * 16, drawn, len(NAMES)), dtype="<i8")
            counts += np.bincount(np.frombuffer(words.tobytes(), dtype=np.uint8), minlength=256)
        expected = counts.sum() / 256
        return float(np.sum((counts - expected) ** 2 / expected))

    for value in (0, 12345, -(2**59)):
        assert chi2.cdf(statistic(value, hidden=True), 255) < 0.9999
        assert statistic(value, hidden=False) > 1e5


def test_other_questions_sites_and_runs_have_other_masks():
    masks = masks_of()["ash"]
    first = masks.drawn(8, NAMES, b"question")
    assert np.array_equal(masks.drawn(8, NAMES, b"question"), first)
    for other in (
        masks.drawn(8, NAMES, b"another"),
        masks.drawn(8, NAMES[:3], b"question"),
        replace(masks, context="another run, or round").drawn(8, NAMES, b"question"),
        masks_of()["ash"].drawn(8, NAMES, b"question"),  # other keys
    ):
        assert not np.any(other == first)
    pairs = masks.drawn(8, NAMES[:2], b"question") + masks.drawn(8, (NAMES[0], NAMES[2]), b"question")
    assert not np.any(pairs == masks.drawn(8, NAMES[:3], b"question"))  # each pair has other masks in another sum


def test_keys_that_are_not_those_of_the_run_are_refused():
    masks = masks_of()["ash"]
    other = new_key().public_key().public_bytes_raw()
    with pytest.raises(RefusedError, match="another key"):
        replace(masks, keys={**masks.keys, "ash": other})
    for sites in (("ash",), ("elm", "fir"), ("ash", "ash"), ("ash", "nobody")):
        with pytest.raises(Exception, match="other sites"):
            masks.drawn(3, sites, b"question")
    with pytest.raises(Exception, match="no secret"):
        replace(masks, keys={**masks.keys, "elm": bytes(32)}).drawn(3, NAMES, b"question")
    with pytest.raises(TypeError, match="private key"):
        copy.copy(masks)


# ---------------------------------------------------------------- answers of a site


def test_the_noise_of_all_sites_together_is_that_of_the_budget():
    """All but the colluding shares are enough; the sum is that without masks, up to this noise."""
    mixture, rows, sites, question = problem(parts=30)
    score = question.question
    exact = np.sum([private_total(mixture, each, score.factor, score.clip) for each in rows.values()], axis=0)
    noise, P = [], mixture.parameter_count
    share = shared_variance(total_sensitivity(P), RHO, 4, 1)
    for place in range(30):
        one = replace(question, question=replace(score, place=place))
        given = [asked(site, one) for site in sites.values()]
        assert all(isinstance(each, MaskedSums) and each.variance == share for each in given)
        found = MaskedSums.opened(given)  # type: ignore[arg-type]
        noise.append(np.subtract(found.values, exact.tolist(), dtype=float))
        assert found.variance == 4 * share
    z = np.array(noise) / np.sqrt(4 * share)
    assert abs(np.mean(z**2) - 1) < 4.5 * np.sqrt(2 / z.size)
    whole = noise_variance(total_sensitivity(P), RHO)
    assert 3 * share >= whole
    assert 3 * share == pytest.approx(whole, rel=1e-5)
    assert shared_variance(10, Fraction(10**6), 4, 1) == LEAST_SHARE
    assert shared_variance(2**20, RHO, 4, 9) == noise_variance(2**20 + 1, RHO)


def test_a_site_with_masks_answers_nothing_else():
    _, _, sites, question = problem(parts=2)
    site = sites["ash"]
    for other in (
        question.question,
        Summarise(2, 1),
        Several((question, replace(question.question, place=1))),
        replace(question, sites=("elm", "fir")),
        replace(question, sites=("ash", "elm", "nobody")),
        replace(question, sites=("elm", "ash")),
        replace(question, sites=("ash",)),
    ):
        found = asked(site, other)
        assert isinstance(found, Failure)
        assert found.code in (FailureCode.REFUSED, FailureCode.UNREADABLE_QUESTION)
    assert site.account is not None
    assert site.account.spent == 0
    plain = replace(site, masks=None)
    assert isinstance(asked(plain, question), Failure)
    assert isinstance(asked(plain, question.question), NoisySums)


def test_the_same_masked_question_is_answered_once_and_among_other_sites_charged_again():
    _, _, sites, question = problem(parts=2)
    site = sites["ash"]
    first = asked(site, question)
    assert asked(site, question) == first
    fewer = replace(question, sites=NAMES[:3])
    assert isinstance(asked(site, fewer), Failure)  # this part of the budget is spent
    again = asked(site, replace(fewer, question=replace(question.question, place=1)))
    assert isinstance(again, MaskedSums)
    assert again.values != first.values  # type: ignore[attr-defined]
    assert site.account is not None
    assert site.account.spent == 2 * RHO
