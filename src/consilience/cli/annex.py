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
     "rows are compared with each earlier release by keyed tags; sets that differ by few rows are refused"),
    ("The same with a column recoded, so that rows are not recognised",
     "sets with nearly as many rows and none in common are refused, unless people state that these are other people"),
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
    "A second folder of the same site knows nothing of what the first released.",
    "People at the site may state that rows are those of other people, where they cannot be compared; it is recorded.",
    "A group of whom all have a property discloses it of each of them: the file has exact counts of pairs of levels.",
    "A site that asks for other levels because a group is too small tells that the group is small.",
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
            "## Releases for this study",
            "",
            *_releases(folder, study),
            "",
            "## Limits that the file keeps",
            "",
            *_limits(policy.stricter(study.minimum), "site", "experts", "covariates"),
            "",
            "## Settings of a release",
            "",
            *_limits(policy.stricter(study.minimum), "release"),
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


def _releases(folder: SiteFolder, study: Study) -> Iterator[str]:
    found = [entry for entry in folder.entries if entry.kind == "release" and entry.details["study"] == study.identity]
    for entry in found:
        who, rows, file = (entry.details.get(name) for name in ("approved_by", "rows", "file"))
        yield f"- Entry {entry.number} of the ledger, {entry.time}: {rows} rows, approved by {who}, file {file}"
    if not found:
        yield "None yet."


def _limits(policy: Policy, *parts: str) -> Iterator[str]:
    tables = policy.model_dump()
    for part in parts:
        for name, limit in tables[part].items():
            said = COMMENTS[name].replace("\n", " ").removesuffix(", ...").removeprefix("... ").rstrip(".")
            yield f"- `{name}` = {str(limit).lower() if isinstance(limit, bool) else limit}: {said}."
