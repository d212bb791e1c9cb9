"""Sites without rows: they read a question and answer with given bytes, signed and sealed with a key of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from consilience.kit.folder import SiteIdentity
from consilience.kit.letters import AnswerLetter, QuestionLetter, RunFile
from consilience.kit.mail_folder import question_name
from consilience.kit.release import COVERS
from consilience.kit.roster import signed_hash
from consilience.kit.sealed_answers import seal_answer


@dataclass(frozen=True)
class LightClient:
    """A site that answers with given bytes.

    Parameters
    ----------
    name : str
    identity : SiteIdentity
    entry : int
        Number of the last entry of its ledger, which its answers state.
    """

    name: str
    identity: SiteIdentity
    entry: int

    def question_in(self, names: dict[str, str], number: int) -> str:
        """Name of the question of a round among the names of letters: to this site, or to all."""
        own = question_name(number, self.name)
        return own if own in names else question_name(number)

    def answer(self, run: RunFile, question: QuestionLetter, answer: bytes) -> bytes:
        """The file of an answer."""
        letter = AnswerLetter(run.identity, run.study, question.number, self.name, question.hash, answer)
        head = {"entry": self.entry, "hash": f"sha256:{question.number * 10**6 + self.entry:064d}"}
        said = {"ledger": head, "covers": COVERS}
        signed = replace(letter, envelope={**said, "signature": self.identity.sign(signed_hash(letter.hash, said))})
        return seal_answer(signed, run.box).to_text().encode()
