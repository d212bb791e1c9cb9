"""The one file that leaves a site in a study with noise: noisy sums of scores, and where each was asked.

Whoever has the file can compute what follows from it; nothing in it was computed from the rows without noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import ConfigDict, Field, StringConstraints

from consilience.errors import InvalidInputError
from consilience.files import documents
from consilience.files.documents import Finite, Integer, MixtureDocument, Part, Text
from consilience.files.json_text import content_hash, parse_json
from consilience.files.site_file import Digest, SiteFile, read_hashed, write_hashed
from consilience.messages import NoisySteps, NoisySums
from consilience.messages.checks import MOST_STEPS

FORMAT = "consilience noisy site file"
VERSION = 1
"""Version of the format that is written; all versions up to it are read."""


@dataclass(frozen=True, eq=False)
class NoisyFile:
    """What a site sends in a study with noise and one file.

    Parameters
    ----------
    study : str
        Identity of the study, ``sha256:...``.
    site : str
        Name of the site.
    terms : tuple of str
        Names of the coefficients of an expert, in order.
    steps : NoisySteps
    privacy : mapping
        ``epsilon``, ``delta``, ``unit``, and ``rho`` as a fraction, of all sums together.
    evidence : mapping
        Which policy was applied.
    envelope : mapping
        Time, position in the ledger and signature; not part of the content.
    """

    study: str
    site: str
    terms: tuple[str, ...]
    steps: NoisySteps
    privacy: Mapping[str, Any]
    evidence: Mapping[str, Any] = field(default_factory=dict)
    envelope: Mapping[str, Any] = field(default_factory=dict)

    @property
    def content(self) -> dict[str, Any]:
        """The content as a JSON object."""
        return NoisyContent.of(self)

    @property
    def hash(self) -> str:
        """Hash of the content's canonical bytes, ``sha256:...``."""
        return content_hash(self.content)

    def to_text(self) -> str:
        """Return the file as JSON text."""
        return write_hashed(FORMAT, VERSION, self.content, self.envelope)

    @classmethod
    def from_text(cls, text: str) -> NoisyFile:
        """Read a file from JSON text; raise an error if it is damaged, was changed, or is no such file."""
        found, steps = read_hashed(text, NoisyDocument, FORMAT, VERSION, "noisy site file")
        content = found.content
        privacy = content.privacy.model_dump(exclude={"mechanism"})
        return cls(content.study, content.site, tuple(content.terms), steps, privacy, content.evidence, found.envelope)


AnySiteFile = SiteFile | NoisyFile
"""What may leave a site as one file."""


def read_sent_file(text: str) -> AnySiteFile:
    """Read the one file of a site, of either kind."""
    document = parse_json(text, "a site file")
    is_noisy = isinstance(document, dict) and document.get("format") == FORMAT
    return NoisyFile.from_text(text) if is_noisy else SiteFile.from_text(text)


# ---------------------------------------------------------------- the parts of the file


class NoisePrivacy(Part):
    """Discrete Gaussian noise was added: what leaves is (ε, δ)-differentially private for one row of the site."""

    mechanism: Literal["discrete Gaussian noise"]
    epsilon: Finite
    delta: Finite
    unit: Annotated[str, StringConstraints(pattern=r"^(row|person with \d{1,5} rows?)$")]
    rho: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,100}/[0-9]{1,100}$")]


class NoisyStep(Part):
    """Sums with noise, and the mixture at which they were asked.

    The last value is the number of rows, times 2¹⁸; the others are in units of ``clip`` / 2²⁰. They are sums over
    several parts of the budget, each with noise of its own; the variance is that of the sums.
    """

    mixture: MixtureDocument
    damping: Annotated[float, Field(ge=0, le=1)]
    parts: Annotated[int, Field(ge=1, le=10_000)]
    clip: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    variance: Annotated[Integer, Field(ge=1, le=2**62)]
    values: Annotated[list[Annotated[Integer, Field(ge=-(2**62), le=2**62)]], Field(min_length=2, max_length=100_000)]


class NoisyContent(Part):
    """What was summed: a function of the study, of the site's rows and of the noise."""

    study: Digest
    site: Text
    terms: Annotated[
        list[Annotated[str, StringConstraints(min_length=1, max_length=1000)]], Field(min_length=1, max_length=10_000)
    ]
    privacy: NoisePrivacy
    evidence: dict[str, Any]
    steps: Annotated[list[NoisyStep], Field(min_length=1, max_length=MOST_STEPS)]

    @classmethod
    def of(cls, file: NoisyFile) -> dict[str, Any]:
        """Return the content of a file as JSON."""
        found = file.steps
        each = zip(found.mixtures, found.dampings, found.shares, found.sums, strict=True)
        steps = [
            {
                "mixture": MixtureDocument.of(mixture.raw()),
                "damping": float(damping),
                "parts": int(share),
                "clip": float(sums.clip),
                "variance": int(sums.variance),
                "values": [int(value) for value in sums.values],
            }
            for mixture, damping, share, sums in each
        ]
        privacy = {"mechanism": "discrete Gaussian noise", **file.privacy}
        return documents.document_of(file, cls, privacy=privacy, evidence=dict(file.evidence), steps=steps)

    def value(self) -> NoisySteps:
        """Return the steps; raise an error if their parts contradict each other."""
        mixtures = tuple(step.mixture.value() for step in self.steps)
        if any(mixture.design.p != len(self.terms) for mixture in mixtures):
            raise InvalidInputError(f"the file has {len(self.terms)} terms for other numbers of coefficients")
        if len({len(step.values) for step in self.steps}) > 1:
            raise InvalidInputError("the steps of the file have different numbers of sums")
        return NoisySteps(
            mixtures,
            np.array([step.damping for step in self.steps]),
            tuple(step.parts for step in self.steps),
            tuple(NoisySums(tuple(step.values), step.clip, step.variance) for step in self.steps),
        )


class NoisyDocument(Part):
    """The one file that leaves a site in a study with noise: sums of scores with noise, and no row.

    The envelope says when it was fitted, at which place of the site's ledger, and who signed the content.
    """

    model_config = ConfigDict(
        title="Consilience noisy site file, version 1",
        json_schema_extra={"$schema": "https://json-schema.org/draft/2020-12/schema"},
    )

    format: Literal["consilience noisy site file"]
    version: Literal[1]
    hash: Digest
    content: NoisyContent
    envelope: dict[str, Any]
