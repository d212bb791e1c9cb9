"""CPU of a coordinator and its courier for one round over many sites by letters.

Each site has a key of its own and answers with 3,000 bytes, signed and sealed, as the light clients of this study do.
The store is a folder. A second round has one letter for each site, with the last entry of its ledger. What the clients
compute is not counted, nor is a server. No work may grow faster than the number of sites: 4,000 stand beside 1,000.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.lib.study import Record, Study, rounded, stopwatch, table
from consilience.couriers.letter_stores import FolderStore
from consilience.couriers.post import Post
from consilience.kit.folder import SiteIdentity
from consilience.kit.letters import AnswerLetter, QuestionLetter, RunFile
from consilience.kit.mail_folder import answer_name, question_name
from consilience.kit.mailbox import Mailbox, begin_folder
from consilience.kit.release import COVERS
from consilience.kit.roster import signed_hash
from consilience.kit.sealed_answers import seal_answer
from consilience.messages import Summarise, encode

SITES = (1000, 4000)
BYTES, ROUNDS = 3000, 2
QUESTION = encode(Summarise(10, 1))


def answer_all(store: FolderStore, run: RunFile, number: int, identities: dict[str, SiteIdentity]) -> None:
    """Write the answers of all sites into the store, as their programs do."""
    for entry, (name, identity) in enumerate(identities.items(), 1):
        sent = store.names(f"to/{name}")
        mine = question_name(number, name) if question_name(number, name) in sent else question_name(number)
        question = QuestionLetter.from_text(store.read(f"to/{name}", mine).decode())
        letter = AnswerLetter(run.identity, run.study, number, name, question.hash, os.urandom(BYTES))
        said = {"ledger": {"entry": entry, "hash": f"sha256:{number * 10**6 + entry:064d}"}, "covers": COVERS}
        signed = replace(letter, envelope={**said, "signature": identity.sign(signed_hash(letter.hash, said))})
        store.write(f"from/{name}", answer_name(number, name), seal_answer(signed, run.box).to_text().encode())


def begin(place: Path, names: Sequence[str]) -> tuple[RunFile, Mailbox, dict[str, SiteIdentity]]:
    identities = {name: SiteIdentity.new() for name in names}
    keys, mine = {name: each.public_key for name, each in identities.items()}, SiteIdentity.new()
    wanted = RunFile(f"sha256:{64 * '1'}", tuple(names), keys, "")
    run = begin_folder(place / "mail", place / "own", wanted, mine)
    (place / "mail" / "study.toml").write_text("# carried, and not read here\n")
    return run, Mailbox(place / "mail", place / "own", run, identity=mine), identities


def replication(key: str) -> Record:
    """``sites``."""
    names = [f"s{i:05d}" for i in range(int(key))]
    found: Record = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run, box, identities = begin(place, names)
        store = FolderStore(place / "store")
        post = Post(place / "mail", store, names)
        for number in range(1, ROUNDS + 1):
            cpu: dict[str, float] = {}
            with stopwatch() as watch:
                list(box.ask(number, QUESTION, names, total=True, timeout=0.0))
            cpu["write and sign"] = watch.cpu
            with stopwatch() as watch:
                post.step()
            cpu["send"] = watch.cpu
            answer_all(store, run, number, identities)
            with stopwatch() as watch:
                post.step()
            cpu["take"] = watch.cpu
            with stopwatch() as watch:
                got = sum(len(replies) for replies in box.ask(number, QUESTION, names, total=True, timeout=0.0))
            cpu["open and verify"] = watch.cpu
            with stopwatch() as watch:
                post.step()
            cpu["look, nothing new"] = watch.cpu
            if got != len(names):
                raise RuntimeError(f"{got} of {len(names)} answers arrived")
            found[f"round {number}"] = cpu
        found["run.json"] = (place / "mail" / "run.json").stat().st_size
    return found


def main() -> None:
    study = Study(__file__, __doc__)
    sizes = (100, 400) if study.quick else SITES
    records = {int(each["key"]): each for each in study.replicate(list(map(str, sizes)), replication)}
    rows = []
    for number in range(1, ROUNDS + 1):
        few, many = (records[size][f"round {number}"] for size in sizes)
        for name, value in [*few.items(), ("all", sum(few.values()))]:
            more = many.get(name, sum(many.values()))
            rows.append({
                "round": number,
                "work": name,
                f"CPU s, {sizes[0]:,} sites": rounded(value),
                f"CPU s, {sizes[1]:,} sites": rounded(more),
                "for each site, ratio": rounded(more / value * sizes[0] / sizes[1]),
            })  # fmt: skip
    bytes_of = {f"{size:,} sites": records[size]["run.json"] for size in sizes}
    study.save(table("One round by letters", rows), table("Size of the file of the run", [bytes_of]))


if __name__ == "__main__":
    main()
