"""Private answers of a site: the noise is that of its own budget, each part of it is spent once, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from consilience.engines.inprocess import neighbourhoods
from consilience.fit.private_step import PublicStep
from consilience.messages import (
    Failure,
    FailureCode,
    NoisySums,
    PrivateLikelihoods,
    PrivateScores,
    Several,
    Summarise,
    decode,
    encode,
)
from consilience.messages.codec import message_fingerprint
from consilience.messages.questions import Identify
from consilience.messages.table import receive
from consilience.model import Groups, Mixture, Rows
from consilience.model.contributions import COUNTED, private_total, total_sensitivity
from consilience.model.group_contributions import GroupedCovariates, Seen, group_total
from consilience.numerics.budget import noise_variance
from consilience.site import Site, respond
from consilience.site.account import Account
from consilience.site.answer import total_over
from contributing import drawn_rows, mixture_of
from grouped import drawn_groups, grouped_rows

RHO = Fraction(1, 20)


def problem(n: int = 80, name: str = "gaussian-full") -> tuple[Mixture, Rows, PrivateScores]:
    rng = np.random.default_rng(1)
    mixture = mixture_of(name, rng)
    step = PublicStep.at(mixture, rng.normal(size=(1500, 2)))
    return mixture, drawn_rows(name, mixture, n, rng), PrivateScores(mixture, step.factor, step.clip, place=0)


def asked(site: Site, question: object) -> object:
    """The answer to encoded bytes, as it leaves the site."""
    return receive(respond(encode(question), site), question)  # type: ignore[arg-type]


def test_an_answer_is_the_sum_of_contributions_with_the_noise_of_the_budget():
    mixture, rows, question = problem()
    exact = np.array(private_total(mixture, rows, question.factor, question.clip), dtype=float)
    variance = noise_variance(total_sensitivity(mixture.parameter_count), RHO)
    given = [asked(Site("north", rows).private(RHO, 1), question) for _ in range(150)]
    assert all(isinstance(each, NoisySums) and each.variance == variance for each in given)
    noise = np.array([each.values for each in given], dtype=float) - exact
    z = noise / np.sqrt(variance)
    assert np.abs(np.mean(z**2, axis=0) - 1).max() < 4.5 * np.sqrt(2 / 150)
    assert abs(np.mean(z**2) - 1) < 4.5 * np.sqrt(2 / z.size)
    assert np.abs(z.mean(axis=0)).max() < 4.5 / np.sqrt(150)
    assert exact[-1] == COUNTED * rows.n


def test_the_sensitivity_counts_the_number_of_rows():
    mixture, rows, question = problem()
    P = mixture.parameter_count
    whole = private_total(mixture, rows, question.factor, question.clip)
    for i in range(0, rows.n, 7):
        rest = private_total(mixture, rows.take(np.delete(np.arange(rows.n), i)), question.factor, question.clip)
        assert sum((a - b) ** 2 for a, b in zip(whole, rest, strict=True)) <= total_sensitivity(P) ** 2


def test_each_part_of_the_budget_is_spent_once():
    _mixture, rows, question = problem()
    site = Site("north", rows).private(RHO, 2)
    first = asked(site, question)
    assert asked(site, question) == first  # no new noise, which could be averaged
    other = replace(question, clip=2 * question.clip)
    for refused in (other, replace(question, place=2), replace(question, place=9999)):
        found = asked(site, refused)
        assert isinstance(found, Failure)
        assert found.code is FailureCode.REFUSED
    assert site.account is not None
    assert site.account.spent == RHO
    second = asked(site, replace(question, place=1))
    assert isinstance(second, NoisySums)
    assert second.values != first.values
    assert site.account.spent == 2 * RHO


def test_a_part_is_charged_before_anything_is_drawn():
    account = Account(RHO, 1)

    def draw(rho: Fraction) -> NoisySums:
        assert rho == RHO
        assert account.spent == RHO
        raise RuntimeError("the power fails")

    with pytest.raises(RuntimeError):
        account.answer(0, b"question", draw)
    assert account.spent == RHO
    for question in (b"question", b"other"):
        with pytest.raises(Exception, match=r"spent|charged"):
            account.answer(0, question, lambda rho: NoisySums((1,), 1.0, 1))


def test_a_site_with_a_budget_answers_nothing_without_noise():
    _mixture, rows, question = problem()
    site = Site("north", rows).private(RHO, 4)
    for other in (Summarise(2, 1), Identify(), Several((question, Summarise(2, 1)))):
        found = asked(site, other)
        assert isinstance(found, Failure)
        assert found.code is FailureCode.REFUSED
    without = asked(Site("north", rows), question)
    assert isinstance(without, Failure)
    assert without.code is FailureCode.REFUSED
    both = asked(site, Several((question, replace(question, place=1))))
    assert len(both.items) == 2
    assert both.items[0].values != both.items[1].values


def test_what_rows_hold_does_not_decide_whether_a_site_answers():
    """Cells out of range, and a site without a single valid row, change nothing but the sums."""
    mixture, rows, question = problem(name="poisson")
    spoilt = Rows(np.full(rows.X.shape, np.nan), np.full(rows.Y.shape, -0.5), exposure=rows.exposure)
    for data in (rows, spoilt, rows.take(np.arange(0))):
        found = asked(Site("north", data).private(RHO, 1), question)
        assert isinstance(found, NoisySums)
        assert found.variance == noise_variance(total_sensitivity(mixture.parameter_count), RHO)
    grouped = replace(rows, groups=Groups.of(np.arange(rows.n)))
    compared = PrivateLikelihoods((mixture, mixture), 1.0, place=0)
    assert asked(Site("north", grouped).private(RHO, 1), compared).code is FailureCode.GROUPED
    clustered = replace(grouped, clusters=grouped.groups)
    assert asked(Site("north", clustered).private(RHO, 1), question).code is FailureCode.REFUSED
    weighted = replace(rows, weight=np.ones(rows.n))
    assert asked(Site("north", weighted).private(RHO, 1), question).code is FailureCode.REFUSED


def test_whole_groups_are_answered_with_the_noise_of_one_group():
    """A group counts once, whatever its rows hold and however many they are; hostile cells change nothing else."""
    rng = np.random.default_rng(2)
    mixture, _, question = problem(name="poisson")
    rows = grouped_rows("poisson", mixture, 30, rng)
    spoilt = replace(rows, X=np.full(rows.X.shape, np.inf), Y=np.full(rows.Y.shape, -0.5))
    variance = noise_variance(total_sensitivity(mixture.parameter_count), RHO)
    for data in (rows, spoilt, rows.take(np.arange(0))):
        exact = group_total(mixture, data, question.factor, question.clip, Seen())
        assert exact[-1] == COUNTED * (len(data.groups.bounds) - 1)
        found = asked(Site("north", data).private(RHO, 1), question)
        assert isinstance(found, NoisySums)
        assert found.variance == variance
        z = (np.array(found.values, dtype=float) - np.array(exact, dtype=float)) / np.sqrt(variance)
        assert np.abs(z).max() < 6


def test_equal_groups_are_counted_through_the_pieces_of_a_file(monkeypatch: pytest.MonkeyPatch):
    """Where a file is cut depends on its rows: a group fewer would else change the draws of many."""
    rng = np.random.default_rng(3)
    mixture = mixture_of("binomial", rng, d=1)
    X = GroupedCovariates(rng.integers(0, 2, size=(80, 1)).astype(float), np.full(40, 2))
    rows, P = drawn_groups(mixture, X, rng), mixture.parameter_count
    question = PrivateScores(mixture, np.eye(P), 1.0, place=0)
    whole = group_total(mixture, rows, question.factor, question.clip, Seen())
    assert total_over(question, Site("north", rows)) == whole
    for cut in (2, 30, 50):
        parts = [rows.take(np.arange(cut)), rows.take(np.arange(cut, rows.n))]
        monkeypatch.setattr(Site, "chunks", lambda _, parts=parts: iter(parts))
        assert total_over(question, Site("north", rows)) == whole


def test_fingerprints_of_private_sites_have_secrets_of_their_own():
    _, rows, _ = problem()
    one, other = (Site("north", rows).private(RHO, 1).fingerprint for _ in range(2))
    assert one != other
    assert Site("north", rows).fingerprint not in (one, other)


def test_what_a_site_with_noise_says_of_its_rows_is_a_random_number_without_its_key():
    """A fingerprint is a sum over rows: 0 without rows, and even if all rows are in pairs, whatever the key is."""
    _, rows, question = problem()
    pairs = rows.take(np.repeat(np.arange(rows.n), 2))
    sites = {"none": rows.take(np.arange(0)), "pairs": pairs, "one more": pairs.take(np.arange(pairs.n - 1))}
    plain, sent = (
        {name: [each(Site("north", data, key=bytes([i]) * 32)) for i in range(64)] for name, data in sites.items()}
        for each in (
            lambda site: site.fingerprint,
            lambda site: message_fingerprint(respond(encode(question), replace(site, account=Account(RHO, 1)))),
        )
    )
    assert set(plain["none"]) == {0}
    assert {each % 2 for each in plain["pairs"]} == {0}
    assert {each % 2 for each in plain["one more"]} == {0, 1}
    for found in sent.values():
        assert len(set(found)) == 64
        assert 16 < sum(each % 2 for each in found) < 48
    changed = Site("north", pairs, key=b"key", account=Account(RHO, 1)).fingerprint
    assert changed != Site("north", sites["one more"], key=b"key", account=Account(RHO, 1)).fingerprint


def test_many_small_sites_with_noise_do_not_answer_together_without_it():
    """Neighbours answer for a sum in one call if they may; sites with an account never do."""
    _, rows, _question = problem()
    parts = [rows.take(np.array([i % rows.n])) for i in range(120)]
    plain = [Site(f"site {i:03d}", data) for i, data in enumerate(parts)]
    plain = [replace(site, data=replace(site.data, X=site.data.X + i)) for i, site in enumerate(plain)]
    assert neighbourhoods(plain)
    assert not neighbourhoods([site.private(RHO, 1) for site in plain])


def test_questions_that_do_not_fit_are_refused_before_they_are_charged():
    _mixture, rows, question = problem()
    for bad in (
        replace(question, factor=question.factor[:-1]),
        replace(question, clip=0.0),
        replace(question, clip=-1.0),
        replace(question, clip=float("inf")),
        replace(question, factor=np.full_like(question.factor, np.nan)),
    ):
        site = Site("north", rows).private(RHO, 1)
        assert isinstance(decode(respond(encode(bad), site)), Failure)
        assert site.account is not None
        assert site.account.spent == 0


def test_sums_of_sites_add_on_one_grid_only():
    total = NoisySums((1, 2), 1.0, 5) + NoisySums((3, -4), 1.0, 6)
    assert total == NoisySums((4, -2), 1.0, 11)
    with pytest.raises(ValueError, match="grid"):
        total + NoisySums((1, 2), 2.0, 5)
