"""Regions: coordinators that are sites of another run, with the bits of one run over all sites."""

from __future__ import annotations

import json
import time
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from consilience.cli.catalogue import CommandError
from consilience.cli.relay_commands import relay_run
from consilience.cli.run_page import COORDINATOR_KEY
from consilience.couriers.letter_stores import FolderStore
from consilience.couriers.post import Post
from consilience.errors import AwaitedError, InvalidInputError, RefusedError
from consilience.kit.folder import KEY as KEY_FILE
from consilience.kit.folder import SiteFolder, SiteIdentity
from consilience.kit.letters import RunFile
from consilience.kit.mail_folder import END, STUDY, MailFolder, answer_name
from consilience.kit.mail_run import (
    advance_by_files,
    begin_by_files,
    draft_answer,
    finish_answer,
    is_answered,
    open_question,
    read_mail,
)
from consilience.kit.relay import ROWS, Relay, RelayServing, check_relayed
from consilience.kit.roster import Roster
from consilience.kit.sealed_answers import SealedAnswer, open_answer
from consilience.kit.serving import FINISHED, NO_RUN, STATE
from consilience.messages import Failure, decode
from letter_servers import roster_of
from mail_office import PRIVATE, TABLES, Office, start, study_with

LEAVES = ("ash", "birch", "elm", "oak")
FEW = {name: TABLES[name].slice(0, 250) for name in LEAVES}
TOTALS = study_with('name = "FederatedEM", n_climbs = 1, totals_only = true')
KEY = SiteIdentity.new()


class Regions:
    """Two regions of two sites, and a coordinator above them."""

    def __init__(self, path: Path, study: Any = TOTALS, begins: Any = None) -> None:
        self.path, self.study, self.start = path, study, begins
        self.leaves = Office(path, study, tables=FEW, start=begins).folders
        self.relays = [
            Relay(
                f"r{i}",
                path / "upper",
                KEY.public_key,
                path / f"r{i}" / "mail",
                path / f"r{i}" / "own",
                {name: str(self.leaves[name].public_key) for name in LEAVES[2 * i : 2 * i + 2]},
                SiteIdentity.new(),
            )
            for i in range(2)
        ]

    def advance(self) -> Any:
        keys = {relay.name: relay.identity.public_key for relay in self.relays}
        upper, own = self.path / "upper", self.path / "own"
        run = begin_by_files(self.study, upper, own, sites=list(keys), keys=keys, start=self.start, identity=KEY)
        try:
            return advance_by_files(self.study, upper, own, run, identity=KEY).best
        except AwaitedError:
            return None

    def answer_below(self, relay: Relay, name: str) -> None:
        mail, run = MailFolder(relay.mail), RunFile.read(relay.mail)
        letter = open_question(mail, run, name)
        assert letter is not None
        folder = SiteFolder.open(self.leaves[name].path)
        if not is_answered(folder, mail, letter):
            text = finish_answer(folder, draft_answer(folder, self.study, FEW[name], run, letter))
            (relay.mail / answer_name(letter.number, name)).write_text(text)

    def relayed(self, relay: Relay) -> tuple[str, str] | None:
        try:
            return relay.step()
        except AwaitedError:
            for name in relay.sites:
                self.answer_below(relay, name)
            return relay.step()

    def to_the_end(self) -> Any:
        for _ in range(200):
            if (done := self.advance()) is not None:
                return done
            for relay in self.relays:
                found = self.relayed(relay)
                assert found is not None
                (relay.upper / found[0]).write_text(found[1])
        raise AssertionError("the run does not end")


@pytest.mark.slow
def test_two_regions_have_the_bits_of_one_run(tmp_path: Path) -> None:
    flat, regions = Office(tmp_path / "flat", TOTALS, tables=FEW), Regions(tmp_path / "regions")
    one, two = flat.to_the_end(), regions.to_the_end()
    assert one.model.mixture_.to_vector().tolist() == two.model.mixture_.to_vector().tolist()
    assert len(one.record.rounds) == len(two.record.rounds)
    for folder in regions.leaves.values():
        kinds = [entry.kind for entry in SiteFolder.open(folder.path).entries]
        assert kinds.count("answer") == len(two.record.rounds)
    upper = RunFile.read(regions.path / "upper")
    assert {RunFile.read(relay.mail).parent for relay in regions.relays} == {(upper.identity, KEY.public_key)}
    names = "".join(each.read_text() for each in (regions.path / "upper").glob("*.json"))
    assert not any(f'"{name}"' in names for name in LEAVES)


def test_a_region_signs_seals_and_sends_the_same_bytes_again(tmp_path: Path) -> None:
    regions = Regions(tmp_path)
    assert regions.advance() is None
    relay = regions.relays[0]
    with pytest.raises(AwaitedError, match="ash, birch"):
        relay.step()
    found = regions.relayed(relay)
    assert found is not None
    assert relay.step() == found
    assert found[0] == answer_name(1, "r0")
    text = found[1]
    answer = open_answer(SealedAnswer.from_text(text), KEY)
    assert answer.site == "r0"
    with pytest.raises(InvalidInputError, match="does not open"):
        open_answer(SealedAnswer.from_text(text), relay.identity)


def test_a_region_does_not_serve_a_stranger(tmp_path: Path) -> None:
    regions = Regions(tmp_path)
    regions.advance()
    regions.relays[0].coordinator = SiteIdentity.new().public_key
    with pytest.raises(RefusedError, match="another coordinator"):
        regions.relays[0].step()


def test_what_a_leaf_refuses_and_rows_that_change_end_the_answer_of_the_region(tmp_path: Path) -> None:
    regions = Regions(tmp_path)
    regions.advance()
    relay = regions.relays[0]
    regions.relayed(relay)
    path = relay.own / ROWS
    path.write_text(path.read_text().replace('"ash": "', '"ash": "1'))
    for each in (relay.own / "sent").iterdir():
        each.unlink()
    found = relay.step()
    assert found is not None
    answer = open_answer(SealedAnswer.from_text(found[1]), KEY)
    assert isinstance(decode(answer.answer), Failure)


def test_only_methods_that_ask_for_sums_are_relayed() -> None:
    check_relayed(TOTALS)
    check_relayed(PRIVATE)
    for method in ('name = "OneShot", refine = 1', 'name = "FederatedEM"'):
        with pytest.raises(InvalidInputError, match="sums alone"):
            check_relayed(study_with(method))


@pytest.mark.slow
def test_sums_with_noise_go_through_regions(tmp_path: Path) -> None:
    done = Regions(tmp_path, PRIVATE, start()).to_the_end()
    assert done.privacy.epsilon <= 3.0


@pytest.mark.slow
def test_a_region_over_a_store_by_its_command_or_by_steps_ends_with_the_run_above(tmp_path: Path) -> None:
    regions = Regions(tmp_path, PRIVATE, start())
    store = FolderStore(tmp_path / "store")
    post = Post(tmp_path / "upper", store, ["r0", "r1"])
    by_command, by_steps = regions.relays
    by_command.identity.store(tmp_path / COORDINATOR_KEY)
    begin = {"mailbox": by_command.mail, "roster": tmp_path / "roster.toml", "own": by_command.own}
    begin["own"].mkdir(parents=True)
    (tmp_path / COORDINATOR_KEY).rename(begin["own"] / COORDINATOR_KEY)
    keys = {name: folder.path / KEY_FILE for name, folder in regions.leaves.items() if name in by_command.sites}
    begin["roster"].write_text(roster_of(keys).to_text())
    more = {"coordinator": KEY.public_key, "store": str(tmp_path / "store"), "poll": 0.05, "once": True}
    program = Thread(target=relay_run, args=("r0",), kwargs=begin | more, daemon=True)
    program.start()
    by_steps.upper = by_steps.own / "above"
    one, done = RelayServing(by_steps, store), None
    assert one.step().word == NO_RUN
    for _ in range(2000):
        if done is None and (done := regions.advance()) is not None:
            post.step()
        post.step()
        for relay in regions.relays:
            if list(relay.mail.glob("round-*.question.json")):
                for name in relay.sites:
                    regions.answer_below(relay, name)
        if (state := one.step().word) == FINISHED:
            break
        time.sleep(0.02)
    program.join(60)
    assert (state, program.is_alive()) == (FINISHED, False)
    assert done.privacy.epsilon <= 3.0
    assert all((relay.mail / END).exists() for relay in regions.relays)
    for folder in regions.leaves.values():
        kinds = [entry.kind for entry in SiteFolder.open(folder.path).entries]
        assert kinds.count("answer") == len(done.record.rounds)
    said = json.loads((by_command.own / STATE).read_text())
    assert said["state"] == FINISHED


def test_a_leaf_is_told_whom_its_region_serves(tmp_path: Path) -> None:
    regions = Regions(tmp_path)
    regions.advance()
    relay = regions.relays[0]
    with pytest.raises(AwaitedError):
        relay.step()
    run, upper = RunFile.read(relay.mail), RunFile.read(relay.upper)
    letter = open_question(MailFolder(relay.mail), run, "ash")
    assert letter is not None
    said = " ".join(draft_answer(regions.leaves["ash"], TOTALS, FEW["ash"], run, letter).said)
    assert f"whose coordinator has the key {KEY.public_key}" in said
    assert upper.identity[:19] in said
    assert relay.identity.public_key in said  # and who asks it


def test_letters_from_above_are_read_once_for_each_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    regions, read = Regions(tmp_path), list[Path]()
    regions.advance()
    region = regions.relays[0]

    def counted(folder: Path) -> Any:
        read.append(folder)
        return read_mail(folder)

    monkeypatch.setattr("consilience.kit.relay.read_mail", counted)
    for _ in range(3):
        with pytest.raises(AwaitedError):
            region.step()
    assert len(read) == 1
    (region.upper / STUDY).write_text(f"{TOTALS.to_text()}# a comment\n")
    with pytest.raises(AwaitedError):
        region.step()
    assert len(read) == 2


def test_a_roster_without_the_key_of_a_leaf_is_refused(tmp_path: Path) -> None:
    roster = Roster.from_tables({"format": Roster.kind, "version": 1, "sites": [{"name": "ash"}]})
    (tmp_path / "roster.toml").write_text(roster.to_text())
    with pytest.raises(CommandError, match="no public key of ash"):
        relay_run("r0", tmp_path / "mail", tmp_path / "roster.toml", KEY.public_key, store=str(tmp_path))
