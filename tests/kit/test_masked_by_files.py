"""Runs with masked sums by files: only the total is read, keys are those of the sites, and a lost site is out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.datasets.hospitals import STUDY
from consilience.errors import AwaitedError, InvalidInputError, RefusedError
from consilience.kit.combination import simulate_study
from consilience.kit.folder import SiteFolder, SiteIdentity
from consilience.kit.letters import RunFile
from consilience.kit.mail_run import advance_by_files, begin_by_files, draft_answer, finish_answer
from consilience.kit.mailbox import read_run
from consilience.kit.mask_keys import fingerprint_of, keys_of_run, public_mask_key, verified_mask_key
from consilience.kit.roster import Roster
from consilience.kit.site_fit import site_file
from consilience.kit.spending import charges_in, spent_in
from consilience.kit.study import Study
from consilience.messages import Masked, MaskedSums, decode
from consilience.model.contributions import COUNTED, total_sensitivity
from consilience.numerics.budget import rho_of, shared_variance
from mail_office import TABLES, Office

NOISE = (
    'trust = "noise"\nmethod = {name = "PrivateScoring"}\n'
    'privacy = {epsilon = 3.0, rounds = 4, sums = "masked", colluding = 1}\n'
)
MASKED = Study.from_text(STUDY.replace("[model]", NOISE + "[model]", 1))


@cache
def start() -> Any:
    model = site_file(Study.from_text(STUDY), "oak", TABLES["oak"]).fit.model
    assert model is not None
    return model.mixture


class MaskedOffice(Office):
    """The people of a run with masked sums."""

    def masks(self) -> dict[str, str]:
        return {name: public_mask_key(name, key) for name, each in self.folders.items() if (key := each.identity)}

    def begin(self) -> RunFile:
        keys = self.wanted().keys
        return begin_by_files(
            self.study,
            self.mail,
            self.own,
            sites=self.names,
            keys=keys,
            start=self.start,
            masks=self.masks(),
            identity=self.identity,
        )

    def advance(self) -> Any:
        notice = lambda name, why: self.notices.append((name, why))  # noqa: E731
        try:
            return advance_by_files(
                self.study,
                self.mail,
                self.own,
                self.begin(),
                on_drop=self.on_drop,
                days=self.days,
                notice=notice,
                identity=self.identity,
            ).best
        except AwaitedError:
            return None

    def draft(self, name: str) -> Any:
        letter, run = self.latest(name), RunFile.read(self.mail)
        return draft_answer(self.folders[name], self.study, self.tables[name], run, letter)


@pytest.fixture
def office(tmp_path: Path) -> MaskedOffice:
    found = MaskedOffice(tmp_path, MASKED, "hospital", start=start())
    assert found.advance() is None
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
def test_a_run_by_files_with_masked_sums_gives_the_model(office: MaskedOffice) -> None:
    done = office.to_the_end()
    assert done.fit.settled
    pooled = simulate_study(Study.from_text(STUDY), TABLES).best
    assert np.abs(done.fit.mixture.coefficients - pooled.fit.mixture.coefficients).max() < 0.15
    assert {spent_in(folder) for folder in office.folders.values()} == {rho_of(3.0, 1e-6)}
    assert done.fit.privacy.sums == "masked"
    answers = [office.opened(path) for path in office.mail.glob("round-01.*answer*.json")]
    given = [decode(each.answer) for each in answers]
    rows = MaskedSums.opened(given).values[-1] / COUNTED
    assert abs(rows - sum(table.num_rows for table in TABLES.values())) < 200
    for each in given:  # nobody's own number of rows can be read
        assert abs(each.values[-1]) / COUNTED > 1e7


def test_what_is_charged_says_that_the_noise_is_a_share(office: MaskedOffice) -> None:
    draft = office.draft("ash")
    assert any("compare it with two other sites" in said for said in draft.said)
    assert any(fingerprint_of(RunFile.read(office.mail)) in said for said in draft.said)
    finish_answer(office.folders["ash"], draft)
    entry = charges_in(office.folders["ash"])[0].entry
    question = decode(office.latest("ash").question)
    assert isinstance(question, Masked)
    Delta = total_sensitivity(question.question.mixture.parameter_count)
    assert entry.details["sites"] == list(office.names)
    assert entry.details["colluding"] == 1
    assert entry.details["variance"] == shared_variance(Delta, rho_of(3.0, 1e-6) / 9, 5, 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
def test_the_others_go_on_without_a_site_and_are_charged_again(tmp_path: Path) -> None:
    office = MaskedOffice(tmp_path, MASKED, "hospital", start=start(), on_drop="continue")
    office.advance()
    for name in office.names:
        if name != "elm":
            office.answer(name)
    office.days = 0.0  # the question of the first round stays open; the coordinator closes it
    first = office.latest("elm")
    path = office.own / "questions" / "round-01.question.json"
    assert path.exists()
    from datetime import UTC, datetime

    run = read_run(office.mail, office.own)
    with pytest.raises(AwaitedError):
        advance_by_files(
            MASKED,
            office.mail,
            office.own,
            run,
            on_drop="continue",
            until=datetime(2020, 1, 1, tzinfo=UTC),
            identity=office.identity,
        )
    again = office.latest("ash")
    assert again.number == 2
    question = decode(again.question)
    assert isinstance(question, Masked)
    assert question.sites == tuple(name for name in office.names if name != "elm")
    assert question.place == decode(first.question).place + 1
    office.answer("ash")
    assert len(charges_in(office.folders["ash"])) == 2
    assert [decode(each.question).sites for each in (first, again)] == [office.names, question.sites]


# ---------------------------------------------------------------- keys


def test_keys_for_masks_are_signed_by_the_site() -> None:
    identity, other = SiteIdentity.new(), SiteIdentity.new()
    text = public_mask_key("ash", identity)
    assert text == public_mask_key("ash", identity)  # the same in each run: the folder has one secret
    key = verified_mask_key("ash", identity.public_key, text)
    assert len(key) == 32
    swapped = public_mask_key("ash", other)
    for name, public, given in (
        ("elm", identity.public_key, text),
        ("ash", other.public_key, text),
        ("ash", identity.public_key, swapped),
        ("ash", identity.public_key, text[:-4]),
        ("ash", identity.public_key, "x25519:"),
        ("ash", identity.public_key, "ed25519:" + text.removeprefix("x25519:")),
        ("ash", identity.public_key, "x25519:not base64"),
    ):
        with pytest.raises(RefusedError, match="not signed"):
            verified_mask_key(name, public, given)


def test_a_roster_has_keys_for_masks() -> None:
    identity = SiteIdentity.new()
    line = public_mask_key("ash", identity)
    text = f'format = "consilience-roster"\nversion = 1\n[[sites]]\nname = "ash"\nkey = "{identity.public_key}"\n'
    assert Roster.from_text(text).masks == {}
    assert Roster.from_text(f'{text}masks = "{line}"\n').masks == {"ash": line}


FALSE: dict[str, Callable[[RunFile, MaskedOffice], RunFile]] = {
    "another key for masks": lambda run, office: replace(
        run, masks={**run.masks, "elm": public_mask_key("elm", SiteIdentity.new())}
    ),
    "no key for masks": lambda run, office: replace(
        run, masks={name: key for name, key in run.masks.items() if name != "elm"}
    ),
    "another key for this site": lambda run, office: made_up(run, "ash"),
}


def made_up(run: RunFile, name: str) -> RunFile:
    """The run with keys of a site that somebody else has made."""
    identity = SiteIdentity.new()
    return replace(
        run,
        keys={**run.keys, name: identity.public_key},
        masks={**run.masks, name: public_mask_key(name, identity)},
    )


@pytest.mark.parametrize("case", FALSE)
def test_a_run_with_other_keys_is_not_answered(case: str, office: MaskedOffice) -> None:
    run = FALSE[case](RunFile.read(office.mail), office)
    run = replace(run, signature=office.identity.sign(run.identity))
    letter = office.signed(replace(office.latest("ash"), run=run.identity))
    with pytest.raises((RefusedError, InvalidInputError)):
        draft_answer(office.folders["ash"], MASKED, TABLES["ash"], run, letter)
    assert spent_in(office.folders["ash"]) == 0


def test_a_coordinator_who_makes_up_all_other_sites_shows_another_fingerprint(office: MaskedOffice) -> None:
    """Nothing else stands against it: such a coordinator opens the sum, with this site's share of the noise."""
    run = RunFile.read(office.mail)
    false = run
    for name in office.names:
        false = false if name == "ash" else made_up(false, name)
    false = replace(false, signature=office.identity.sign(false.identity))
    letter = office.signed(replace(office.latest("ash"), run=false.identity))
    draft = draft_answer(office.folders["ash"], MASKED, TABLES["ash"], false, letter)
    said = " ".join(draft.said)
    assert fingerprint_of(false) in said
    assert fingerprint_of(run) not in said


def test_a_run_without_keys_for_masks_does_not_begin(tmp_path: Path) -> None:
    office = MaskedOffice(tmp_path, MASKED, "hospital", start=start())
    with pytest.raises(InvalidInputError, match="lacks key or masks"):
        begin_by_files(MASKED, tmp_path / "box", tmp_path / "own", sites=office.names, start=start())
    folder: SiteFolder = office.folders["ash"]
    assert set(keys_of_run(office.begin())) == set(office.names)
    assert folder.identity is not None


def test_colluding_is_for_masked_sums() -> None:
    with pytest.raises(InvalidInputError, match="colluding"):
        Study.from_text(MASKED.to_text().replace('sums = "masked"\n', ""))
