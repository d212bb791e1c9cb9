"""Attacks by differences of releases after withdrawals and corrections: pairs and triples rest on crowds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from consilience.errors import RefusedError
from consilience.files.site_file import SiteFile
from consilience.kit.folder import SiteFolder, SiteIdentity
from consilience.kit.notices import record_retractions, write_retraction
from consilience.kit.policy.policy import Policy
from consilience.kit.release import crowds_of, earlier_of, release_fit
from consilience.kit.site_fit import Statement, consider_fit, fit_at_site, site_file
from consilience.kit.study import Study

LIMIT = 50
TEXT = """
format = "consilience-study"
version = 1
name = "stay"
seed = 1
model = {response = "days", experts = [1]}

[[columns]]
name = "days"
kind = "number"

[[columns]]
name = "age"
kind = "number"
centre = 60
scale = 15
"""
CRP = '\n[[columns]]\nname = "crp"\nkind = "number"\nmissing = "drop"\n'
STUDY = Study.from_text(TEXT)
OLDER = Study.from_text(TEXT.replace("model =", 'cohort = [{column = "age", at_least = 45}]\nmodel ='))
OTHER_COLUMNS = Study.from_text(TEXT.replace('"stay"', '"crp"') + CRP)
NEXT_YEAR = Study.from_text(TEXT.replace('"stay"', '"stay, 2026"'))


def patients(n: int, seed: int, first: int = 0) -> pa.Table:
    """Rows of patients, of whom the first is very old and stayed for long; a third of them has no CRP."""
    rng = np.random.default_rng([seed, first])
    age, days = rng.uniform(20, 95, n), rng.gamma(3.0, 2.0, n)
    if not first:
        age[0], days[0] = 111.0, 90.0
    crp = pa.array(rng.uniform(1, 50, n), mask=rng.random(n) < 1 / 3)
    named = [f"p{i}" for i in range(first, first + n)]
    return pa.table({"days": days, "age": age, "crp": crp, "patient": named})


def without(table: pa.Table, *names: str) -> pa.Table:
    """The table after people withdrew."""
    return table.filter(pc.invert(pc.is_in(table["patient"], pa.array(names))))


def sums(data: bytes) -> np.ndarray:
    """Number of rows, and the sums of the response and of age, which a released file discloses."""
    columns = json.loads(data)["content"]["columns"]
    means = np.array([columns["response_means"][0], 60 + 15 * columns["covariate_means"][0]])
    return columns["rows"] * np.r_[1.0, means]


@dataclass
class Releasing:
    """A site that releases under the hospital profile, and a record of whose rows each release used."""

    folder: SiteFolder
    used: list[set[str]] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)

    def __call__(self, study: Study, table: pa.Table, *, crowd: bool = False) -> set[str]:
        stated = Statement(leave_out_crowd=crowd)
        found = consider_fit(self.folder, study, table, stated=stated)
        fit_at_site(self.folder, study, table, stated=stated)
        self.sent.append(release_fit(self.folder, "A. Person"))
        self.used.append(set(table.filter(pa.array(found.used.kept))["patient"].to_pylist()))
        assert sums(self.sent[-1])[0] == len(self.used[-1])
        return self.used[-1]


@pytest.fixture(params=["", "patient"], ids=["by row", "by person"])
def site(request, tmp_path: Path) -> Releasing:
    tables = {"format": "consilience-policy", "version": 1, "profile": "hospital", "people": {"column": request.param}}
    return Releasing(SiteFolder.init("north", Policy.from_tables(tables).to_text(), tmp_path))


def membership(used: list[set[str]]) -> np.ndarray:
    """Who is in which release, (people, releases), from the record and not from the ledger."""
    everybody = sorted(set.union(*used))
    return np.array([[name in each for each in used] for name in everybody], dtype=float)


def fewest(U: np.ndarray) -> float:
    """The fewest people on whom any linear combination of releases rests, as the inverse of the largest leverage."""
    left, singular, _ = np.linalg.svd(U, full_matrices=False)
    return float(1 / np.max(np.sum(left[:, singular > 1e-9] ** 2, axis=1)))


def differences(U: np.ndarray) -> Iterator[int]:
    """On how many people each combination of releases with coefficients from -2 to 2 rests."""
    for c in product(range(-2, 3), repeat=U.shape[1]):
        if np.any(c):
            yield int(np.count_nonzero(U @ np.array(c)))


def check_all(used: list[set[str]]) -> None:
    """Carry out the attack on all pairs and triples, and on all releases together."""
    U = membership(used)
    for many in (2, 3):
        for chosen in combinations(range(len(used)), many):
            part = U[:, chosen]
            assert fewest(part) >= LIMIT - 1e-6
            assert min(each for each in differences(part) if each) >= LIMIT
    assert fewest(U) >= LIMIT - 1e-6


# ---------------------------------------------------------------------- one person withdraws


def test_the_difference_is_the_person_without_the_rule() -> None:
    table = patients(700, 0)
    before, after = (sums(site_file(STUDY, "north", each).to_text().encode()) for each in (table, without(table, "p0")))
    np.testing.assert_allclose(before - after, [1, 90.0, 111.0], rtol=1e-8)


def test_the_difference_is_a_crowd_with_the_rule_and_says_little_about_the_person(site: Releasing) -> None:
    table = patients(700, 0)
    site(STUDY, table)
    with pytest.raises(RefusedError, match="--leave-out-crowd"):
        site(STUDY, without(table, "p0"))
    site(STUDY, without(table, "p0"), crowd=True)
    rows, days, _ = sums(site.sent[0]) - sums(site.sent[1])
    assert rows >= LIMIT + 1
    everybody = sums(site.sent[0])
    guess = days - (rows - 1) * everybody[1] / everybody[0]  # who knows the mean takes the others to be average
    spread = float(np.std(table["days"].to_numpy()))
    others = site.used[0] - site.used[1] - {"p0"}
    assert abs(guess - 90.0) > spread
    assert len(others) == rows - 1
    check_all(site.used)


def test_a_fit_is_repeated_with_the_same_crowd_and_another_secret_has_another_one(site: Releasing, tmp_path) -> None:
    table = patients(700, 1)
    site(STUDY, table)
    for _ in range(2):
        fit_at_site(site.folder, STUDY, without(table, "p3"), stated=Statement(leave_out_crowd=True))
    fits = [entry.details for entry in site.folder.entries if entry.kind == "fit"]
    assert fits[1] == fits[2]
    assert "crowd" in fits[1]
    order = np.random.default_rng(0).permutation(table.num_rows - 1)
    gone = site(STUDY, without(table, "p3").take(order), crowd=True)
    assert [entry.details["crowd"] for entry in site.folder.entries if "crowd" in entry.details] == [
        fits[1]["crowd"]
    ] * 4
    other = Releasing(SiteFolder.init("south", site.folder.policy, tmp_path))
    other(STUDY, table)
    assert other(STUDY, without(table, "p3"), crowd=True) != gone


# ---------------------------------------------------------------------- the years of a site


@pytest.mark.slow
def test_two_withdrawals_a_subgroup_a_substudy_and_a_second_wave_rest_on_crowds(site: Releasing) -> None:
    table = patients(900, 2)
    everybody = site(STUDY, table)
    table = without(table, "p0")
    first = site(STUDY, table, crowd=True)
    table = without(table, *sorted(first)[:2])  # who is in the crowd has left before
    second = site(STUDY, table, crowd=True)
    assert len(everybody - first) >= LIMIT
    assert len(first - second) >= LIMIT
    assert not second & (everybody - first)  # who was left out stays out
    assert len(crowds_of(site.folder)) == 2
    older = site(OLDER, table)
    assert not older & (everybody - second)
    crp = site(OTHER_COLUMNS, table)
    assert not crp & (everybody - second)
    wave = site(NEXT_YEAR, pa.concat_tables([table, patients(200, 2, first=900)]))
    assert len(wave - second) == 200
    check_all(site.used)


def test_who_was_left_out_comes_back_and_is_a_difference_without_the_record(site: Releasing) -> None:
    """The crowd of a withdrawal, subtracted: it is why who was left out stays out of every later release."""
    table = patients(700, 3)
    everybody = site(STUDY, table)
    left = site(STUDY, without(table, "p0"), crowd=True)
    back = set(without(table, "p0")["patient"].to_pylist())  # what a later study would use without the record
    assert fewest(membership([everybody, left, back])) < 2
    assert site(NEXT_YEAR, without(table, "p0")) == left


@pytest.mark.slow
def test_many_people_one_after_the_other(site: Releasing) -> None:
    table = patients(900, 4)
    left = site(STUDY, table)
    for _ in range(4):
        table = without(table, min(left))
        left = site(STUDY, table, crowd=True)
    assert len(set(map(frozenset, site.used))) == len(site.used)
    check_all(site.used)


def test_a_crowd_that_is_too_small_a_part_of_few_rows_is_refused(site: Releasing) -> None:
    table = patients(80, 5, first=1000)
    site(STUDY, table)
    with pytest.raises(RefusedError, match=r"the limit of min_rows is 50|no crowd of the rows that are left"):
        site(STUDY, without(table, "p1000"), crowd=True)
    assert len(site.sent) == 1


def test_a_table_without_the_columns_by_which_a_crowd_is_known_is_refused(site: Releasing) -> None:
    table = patients(700, 6)
    site(OTHER_COLUMNS, table)
    lost = [name for name in table["patient"].to_pylist() if table["crp"][int(name[1:])].is_valid][:1]
    site(OTHER_COLUMNS, without(table, *lost), crowd=True)
    fewer = without(table, *lost).drop_columns("crp")
    if 'column = "patient"' in site.folder.policy:
        assert consider_fit(site.folder, STUDY, fewer, other_people="they are not").used.n < fewer.num_rows
    else:
        with pytest.raises(RefusedError, match="columns by which the crowd is known: 'crp'"):
            consider_fit(site.folder, STUDY, fewer)


# ---------------------------------------------------------------------- a few corrected rows


def with_key(folder: SiteFolder, identity: SiteIdentity) -> None:
    path = folder.path / "policy.toml"
    path.write_text(path.read_text().replace('coordinator = ""', f'coordinator = "{identity.public_key}"'))


def corrected(table: pa.Table) -> pa.Table:
    age = table["age"].to_numpy().copy()
    age[0] = 61.0  # for 111
    return table.set_column(1, "age", pa.array(age))


def test_a_correction_leaves_after_a_signed_notice_only_and_is_the_risk_that_is_stated(site: Releasing) -> None:
    coordinator, stranger, table = SiteIdentity.new(), SiteIdentity.new(), patients(700, 7)
    stated = Statement(replaces=(3,))
    site(STUDY, table)
    assert site.folder.entries[-1].number == 3
    with pytest.raises(RefusedError, match="replaces nothing"):
        fit_at_site(site.folder, STUDY, corrected(table), stated=stated)
    with_key(site.folder, coordinator)
    fit_at_site(site.folder, STUDY, corrected(table), stated=stated)
    wrong = SiteFile.from_text(site.sent[0].decode())
    with pytest.raises(RefusedError, match="--notice FILE"):
        release_fit(site.folder, "A. Person")
    for bad in ([], [write_retraction([wrong], stranger)], [write_retraction([replace(wrong, site="s")], coordinator)]):
        with pytest.raises(RefusedError, match=r"not signed with the key|no notice says"):
            record_retractions(site.folder, [3], bad)
    assert len(earlier_of(site.folder)) == 1
    record_retractions(site.folder, [3], [write_retraction([wrong], coordinator)])
    assert sums(release_fit(site.folder, "A. Person"))[0] == table.num_rows
    before, after = (sums(site_file(STUDY, "n", each).to_text().encode()) for each in (table, corrected(table)))
    np.testing.assert_allclose(
        before - after, [0, 0, 50], atol=1e-6
    )  # the risk, if the file was kept, but for rounding
    assert [each.entry for each in earlier_of(site.folder)] == [site.folder.entries[-1].number]


def test_releases_after_a_correction_rest_on_crowds_among_those_that_were_not_retracted(site: Releasing) -> None:
    coordinator, table = SiteIdentity.new(), patients(800, 8)
    with_key(site.folder, coordinator)
    site(STUDY, table)
    wrong, table = SiteFile.from_text(site.sent[0].decode()), corrected(table)
    record_retractions(site.folder, [3], [write_retraction([wrong], coordinator)])
    site(STUDY, table)
    site(OLDER, table)
    left = site(STUDY, without(table, "p0"), crowd=True)
    site(OTHER_COLUMNS, without(table, "p0"))
    assert len(left) <= table.num_rows - LIMIT - 1
    check_all(site.used[1:])
    with pytest.raises(RefusedError):
        site(STUDY, patients(800, 8))  # the mistake does not come back
