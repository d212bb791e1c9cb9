"""Evidence of a result, stored beside its model: with both the report can be made again, without the sites' files.

It has what the report shows of the sites and of the study, and the models of sites from their files; no row. It names
the model by the hash of its file, and is refused beside another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from consilience.errors import InvalidInputError
from consilience.files.documents import MixtureDocument, Part, Words, check_version, validated
from consilience.files.json_text import bytes_hash, parse_json, read_capped, read_text, write_json, write_text
from consilience.fitted.protocols import FittedMixture
from consilience.kit.study import Study
from consilience.report.run_evidence import MOST, OrdersCompared, RunEvidence, Sentences, as_plain
from consilience.report.subject import Made, SentFile, Subject

FORMAT = "consilience evidence"
VERSION = 1
MOST_BYTES = 2**28
"""Maximum size of a model of which the evidence is."""
Count = Annotated[int, Field(ge=0)]


class SentFileNote(Part):
    """A file that a site sent, as a report shows it."""

    site: Words
    name: Words
    size: Count
    digest: Words
    numbers: Count
    policy: Words
    released: Words
    kit: Words
    mixture: MixtureDocument | None = None

    @classmethod
    def of(cls, file: SentFile) -> dict[str, Any]:
        """Return a file as JSON values."""
        mixture = {} if file.mixture is None else {"mixture": MixtureDocument.of(file.mixture)}
        return {name: getattr(file, name) for name in cls.model_fields if name != "mixture"} | mixture

    def value(self) -> SentFile:
        """Return the file as a report reads it."""
        mixture = None if self.mixture is None else self.mixture.value()
        return SentFile(**{name: getattr(self, name) for name in SentFileNote.model_fields} | {"mixture": mixture})


class MadeBy(Part):
    """When a result was made, and with what."""

    day: Words
    version: Words
    python: Words
    system: Words


class StoredEvidence(Part):
    """What a report shows of a result besides its model.

    Parameters
    ----------
    model : str
        Hash of the file of the model, ``sha256:...``.
    study : str
        Text of the study.
    made : MadeBy
    run : RunEvidence
    orders : OrdersCompared, optional
    files : list of SentFileNote
    invited : list of str, optional
    withdrawn : mapping of str to str
    characteristics : list of list of str
        Table 1 by site, its header first.
    kits : mapping of str to str
        Version of the library at each site.
    commands : list of str
    """

    format: Literal["consilience evidence"]
    version: Literal[1]
    model: Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
    study: Annotated[str, StringConstraints(max_length=2**21)]
    made: MadeBy
    run: RunEvidence
    orders: OrdersCompared | None = None
    files: Annotated[list[SentFileNote], Field(max_length=MOST)]
    invited: Sentences | None = None
    withdrawn: dict[Words, Words]
    characteristics: Annotated[list[Sentences], Field(max_length=MOST)]
    kits: dict[Words, Words]
    commands: Sentences

    @classmethod
    def of(cls, model: bytes, study: Study, subject: Subject, kits: Mapping[str, str]) -> StoredEvidence:
        """Return the evidence of a result.

        Parameters
        ----------
        model : bytes
            The file of the model.
        study : Study
        subject : Subject
            What the report is about.
        kits : mapping of str to str
            Version of the library at each site.
        """
        if subject.evidence is None:
            raise InvalidInputError("there is evidence of runs over sites only")
        optional = {
            "orders": None if subject.orders is None else subject.orders.model_dump(),
            "invited": None if subject.invited is None else list(subject.invited),
        }
        document = {
            "format": FORMAT,
            "version": VERSION,
            "model": bytes_hash(model),
            "study": study.to_text(),
            "made": vars(subject.made),
            "run": subject.evidence.model_dump(exclude_none=True),
            "files": [SentFileNote.of(file) for file in subject.files],
            "withdrawn": dict(subject.withdrawn),
            "characteristics": [list(row) for row in subject.characteristics],
            "kits": dict(kits),
            "commands": list(subject.commands),
            **{name: value for name, value in optional.items() if value is not None},
        }
        return validated(cls, as_plain(document), "evidence")

    def to_text(self) -> str:
        """Return the evidence as JSON text."""
        return write_json(as_plain(self.model_dump(exclude_none=True)))

    @classmethod
    def from_text(cls, text: str) -> StoredEvidence:
        """Read evidence from JSON text; raise an error if it is not valid."""
        document = parse_json(text, "evidence")
        check_version(document, FORMAT, VERSION, "file of evidence")
        return validated(cls, document, "evidence")

    def known(self, model: FittedMixture) -> dict[str, Any]:
        """Return what a report shows of the result, as fields of its subject; raise an error if it does not fit."""
        self.run.check_fits(model)
        return {
            "evidence": self.run,
            "orders": self.orders,
            "made": Made(**self.made.model_dump()),
            "files": tuple(each.value() for each in self.files),
            "invited": None if self.invited is None else tuple(self.invited),
            "withdrawn": self.withdrawn,
            "characteristics": tuple(map(tuple, self.characteristics)),
            "commands": tuple(self.commands),
        }


def evidence_path(model: Path) -> Path:
    """Return the file of the evidence of a model.

    Examples
    --------
    >>> evidence_path(Path("results/model.json")).name
    'model.evidence.json'
    """
    return model.with_name(f"{model.stem}.evidence.json")


def write_evidence(path: Path, study: Study, subject: Subject, kits: Mapping[str, str]) -> None:
    """Write the evidence of a result beside its model, which is there."""
    found = StoredEvidence.of(read_capped(path, MOST_BYTES), study, subject, kits)
    write_text(evidence_path(path), found.to_text())


def read_evidence(path: Path) -> StoredEvidence | None:
    """Return the evidence beside a model; None if there is none.

    Raises
    ------
    InvalidInputError
        If it is not valid, or of another model.
    """
    beside = evidence_path(path)
    if not beside.exists():
        return None
    found = StoredEvidence.from_text(read_text(beside, "evidence"))
    if found.model != bytes_hash(read_capped(path, MOST_BYTES)):
        raise InvalidInputError(
            f"{beside.name} is the evidence of another model than {path.name}: restore the model, or move the evidence "
            "away for a report on the model alone"
        )
    return found
