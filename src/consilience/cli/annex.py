"""One page for the data-protection file of a site: what leaves, limits, threats, and what is not protected."""

from __future__ import annotations

from collections.abc import Iterator

from consilience._version import __version__
from consilience.cli.preview import FIELDS
from consilience.files.study import Study
from consilience.site.folder import SiteFolder
from consilience.site.policy import Policy
from consilience.site.policy.policy import COMMENTS

THREATS = (
    ("A row is computed from the file", "sums rest on enough rows, none of which dominates; see the limits"),
    ("A row is computed from two files (rows added, removed or swapped between them)",
     "rows are compared with all earlier releases by keyed tags; sets that differ by few rows are refused"),
    ("A rare group is identified", "every level and pair of levels has no row or enough of them"),
    ("The coordinator chooses a model that follows single rows",
     "the site makes its own starts; an expert that fails is merged away; the number of experts is limited"),
    ("The file is changed on its way, or somebody else sends one", "content hash; signature, if the site has a key"),
    ("Later denial of what left", "the ledger: hash-chained, and its position stands in each file"),
)  # fmt: skip
"""Threats and what is done against each."""

UNPROTECTED = (
    "No noise is added (privacy mechanism: none). The limits are no guarantee of anonymity.",
    "Whoever knows all rows but one can compute that row from the file.",
    (
        "Whoever has the values of a person can guess better than by chance whether the person is among the rows; "
        "'consilience site preview' states how much better, measured at the site."
    ),
    "The file states means, variances and group sizes of the site: they describe its patients as a whole.",
    "Rows are compared with one earlier release at a time, not with combinations of several.",
    "The policy, the secret of the tags and the ledger are files of the site: who can write them can change the rules.",
)


def annex_of(folder: SiteFolder, study: Study) -> str:
    """Return the page as Markdown.

    Examples
    --------
    >>> import tempfile
    >>> from consilience.datasets.hospitals import STUDY
    >>> folder = SiteFolder.init("north", Policy.of_profile().to_text(), tempfile.mkdtemp())
    >>> print(annex_of(folder, Study.from_text(STUDY)).splitlines()[0])
    # Annex on disclosure: hospital-stay at north
    """
    policy = Policy.from_text(folder.policy)
    made = f"Made by consilience {__version__}; no network connection was opened."
    return "\n".join(
        [
            f"# Annex on disclosure: {study.name} at {folder.name}",
            "",
            f"Study {study.identity}. Policy {policy.identity}, profile {policy.profile_text}. {made}",
            "",
            "## What is read",
            "",
            *_columns(study),
            "",
            "## What leaves",
            "",
            "One JSON file, after a person approved it. It has no row. Its fields:",
            "",
            *(f"- `{name}`: {meaning}." for name, meaning in FIELDS.items()),
            "- `envelope`: time of release, place in the ledger, and the signature, if the site has a key.",
            "",
            "## Limits that the file keeps",
            "",
            *_limits(policy.stricter(study.minimum)),
            "",
            "## Threats and what is done against them",
            "",
            *(f"- {threat}: {answer}." for threat, answer in THREATS),
            "",
            "## What is not protected",
            "",
            *(f"- {each}" for each in UNPROTECTED),
        ]
    )


def _columns(study: Study) -> Iterator[str]:
    for column in study.columns:
        kind = ", ".join(["category", *map(str, column.levels)]) if column.kind == "category" else "number"
        about = f": {column.about}" if column.about else ""
        yield f"- `{column.name}` ({kind}){about}"


def _limits(policy: Policy) -> Iterator[str]:
    tables = policy.model_dump()
    for part in ("site", "experts", "covariates", "release"):
        for name, limit in tables[part].items():
            said = COMMENTS[name].replace("\n", " ").rstrip(".")
            yield f"- `{name}` = {str(limit).lower() if isinstance(limit, bool) else limit}: {said}."
