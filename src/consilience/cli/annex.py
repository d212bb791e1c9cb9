"""The annex on disclosure: a page for the data-protection file of a site, for the way between owners of its study."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from consilience._version import __version__
from consilience.cli.preview import FIELDS, WAYS, mapping_lines
from consilience.errors import ConsilienceError
from consilience.kit.folder import MAPPING, SiteFolder
from consilience.kit.forecast import forecast_study
from consilience.kit.mapping import TableMapping, mapped_by
from consilience.kit.policy.policy import COMMENTS, Policy
from consilience.kit.spending import budget_document, budget_text, spent_in
from consilience.kit.study import Study, Trust
from consilience.kit.study_model import method_of
from consilience.numerics.budget import epsilon_of

THREATS = (
    ("A row is computed from the file", "sums rest on enough rows, none of which dominates; see the limits"),
    ("A row is computed from two files (rows added, removed or swapped between them)",
     "rows are compared with each earlier release by keyed tags; sets that differ by few rows are refused"),
    ("A row is computed from sums and differences of several files",
     "no combination of all releases may rest on fewer rows than the limit"),
    ("A property of everybody is computed from the digits of several files",
     "numbers are rounded to a hundredth of their standard errors, or to what two rows move them"),
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
    "No noise is added. The limits are no guarantee of anonymity.",
    "Whoever knows all rows but one learns of that row what rounding leaves: an unusual row moves sums by more.",
    (
        "Whoever has the values of a person can guess better than by chance whether the person is among the rows; "
        "'consilience site preview' states how much better, measured at the site."
    ),
    "The file states means, variances and group sizes of the site: they describe its patients as a whole.",
    "Without a column of people in the policy, a part of the rows that was recoded counts as new rows.",
    "A second folder of the same site, or one restored from an older copy, knows nothing of what else was released.",
    "People at the site may state that rows are those of other people, where they cannot be compared; it is recorded.",
    "A group of whom all have a property discloses it of each: counts of pairs of levels are within two rows.",
    "A site that asks for other levels because a group is too small tells that the group is small.",
    "The policy, the secret of the tags and the ledger are files of the site: who can write them can change the rules.",
)


UNPROTECTED_BY_CONTRACT = (
    "The coordinator could compute single rows from the sums; a contract forbids it, and nothing else prevents it.",
    "Whoever reads the answers on their way, or at the coordinator, could do the same.",
    "The limits on files do not apply: only the number of rows, the questions and their cost are limited.",
)
UNPROTECTED_BY_NOISE = (
    "The guarantee is for what is named above, at one site. For a person with more rows, here or there, ε is larger.",
    "What left this site without noise is not covered; 'consilience site budget' lists it.",
    "That the site takes part, its columns, the study, and when it answers are not covered.",
    "What the group as a whole is like is learned: that is the purpose, and it tells something of each of its people.",
    "The folder of this site has one budget: another folder over the same people has another, and the two add.",
    "The policy and the ledger are files of the site: who can write them can change the budget.",
)
EPSILON = (
    "Think of one patient, and of two worlds: in one the row of this patient is in the table, in the other it was left "
    "out. Epsilon says how well anybody can tell the two worlds apart from all that leaves with noise, even if they "
    "know every other row, choose every question and have any computer. The smaller it is, the more this is like "
    "tossing a coin: of 100 guesses at whether the row is in the table, at most about 54 are right at epsilon 1, 62 at "
    "epsilon 3 and 77 at epsilon 8, where tossing a coin has 50. That is for the most unusual row that there could be; "
    "for most rows the guesses are hardly better than the coin. Delta, such as one in a million, is a chance that this "
    "account leaves out."
)
"""What ε means, without a formula: right guesses are at most Φ(√(ρ / 2)) for discrete Gaussian noise."""


def annex_of(folder: SiteFolder, study: Study) -> str:
    """Return the page as Markdown."""
    policy, way = Policy.from_text(folder.policy), study.way
    made = f"Made by consilience {__version__}; no network connection was opened."
    allowed = "allows" if way in policy.privacy.allow else "does NOT allow"
    sections = {
        "What is read": [*_columns(study), *_cohort(study), *_mapping(folder, study)],
        "What leaves, and what it means": [WAYS[way], f"The policy of this site {allowed} this way."],
        **_OF_WAY[way](folder, study, policy),
    }
    head = [
        f"# Annex on disclosure: {study.name} at {folder.name}",
        f"Study {study.identity}. Policy {policy.identity}, profile {policy.profile_text}. {made}",
    ]
    return "\n\n".join([*head, *("\n".join([f"## {title}", "", *lines]) for title, lines in sections.items())])


def _of_limits(folder: SiteFolder, study: Study, policy: Policy) -> dict[str, Iterable[str]]:
    """Return the sections of one file under limits."""
    applied = policy.stricter(study.minimum)
    return {
        "The file": [
            "One JSON file, after a person approved it. It has no row. Its fields:",
            "",
            *(f"- `{name}`: {meaning}." for name, meaning in FIELDS.items()),
            "- `envelope`: time of release, place in the ledger, version of the kit, signature (if it has a key).",
        ],
        "Releases for this study": _releases(folder, study),
        "Limits that the file keeps": _limits(applied, "site", "experts", "covariates"),
        "Settings of a release": _limits(applied, "release"),
        "Threats and what is done against them": (f"- {threat}: {answer}." for threat, answer in THREATS),
        "What is not protected": (f"- {each}" for each in UNPROTECTED),
    }


def _of_contract(folder: SiteFolder, study: Study, policy: Policy) -> dict[str, Iterable[str]]:
    """Return the sections of rounds under contract."""
    return {
        "The answers": [
            f"One file for each round of `{method_of(study)!r}`, after a person approved it.",
            "It has no row: it has sums over rows, or the site's own fit, with all digits.",
        ],
        "Answers for this study": _answers(folder, study),
        "What this site answers": _limits(policy.stricter(study.minimum), "contract"),
        "What is not protected": (f"- {each}" for each in UNPROTECTED_BY_CONTRACT),
    }


def _of_noise(folder: SiteFolder, study: Study, policy: Policy) -> dict[str, Iterable[str]]:
    """Return the sections of answers with noise."""
    privacy, budget = study.privacy, method_of(study).budget
    parts, unit = (0, "row") if budget is None else (budget.parts, budget.unit)
    said = "" if privacy is None else f"ε = {privacy.epsilon:g}, δ = {privacy.delta:g} for each {unit}"
    sent = "in one file" if study.is_noisy_file else "in one file for each round"
    return {
        "The answers": [
            f"At most {parts} sums with noise, {sent}, after a person approved it.",
            f"Together they have {said}.",
            "A row that does not fit the study counts as zeros; only this site is told.",
        ],
        "What epsilon means": [EPSILON],
        "Budget of this site": [budget_text(budget_document(folder, policy.privacy)), *_cost(folder, study, policy)],
        "What the result would be worth": _worth(study),
        "Answers for this study": _releases(folder, study) if study.is_noisy_file else _answers(folder, study),
        "Limits of the policy": _limits(policy, "privacy"),
        "What is not protected": (f"- {each}" for each in UNPROTECTED_BY_NOISE),
    }


_OF_WAY: Mapping[Trust, Callable[[SiteFolder, Study, Policy], dict[str, Iterable[str]]]] = {
    "limits": _of_limits,
    "coordinator": _of_contract,
    "noise": _of_noise,
}


def _cost(folder: SiteFolder, study: Study, policy: Policy) -> Iterator[str]:
    """Yield what a whole run of the study would spend."""
    budget, delta, spent = method_of(study).budget, policy.privacy.max_delta, spent_in(folder)
    if budget is not None:
        after = epsilon_of(spent + budget[0] * budget[1], delta)
        yield f"A whole run of this study would bring it from ε = {epsilon_of(spent, delta):.3g} to {after:.3g}."


SIZES = (500, 2000, 10_000)
"""Numbers of rows in all for which the annex has a forecast."""
SITES = 4


def _worth(study: Study) -> Iterator[str]:
    """Yield a forecast from the study alone; the start and the rows of other sites are not known here."""
    try:
        found = forecast_study(study)
    except ConsilienceError:
        yield "It depends on the start of the run: 'consilience study forecast' and 'consilience site rehearse' say it."
        return
    yield f"Standard errors in units of those of all rows without noise, at {SITES} sites, by a guess of the start:"
    yield ""
    yield f"| rows in all | {' | '.join(f'ε = {epsilon:g}' for epsilon in found.epsilons)} |"
    yield f"|---:|{'---:|' * len(found.epsilons)}"
    for n in SIZES:
        ratios = (f"{found.ratio(n, SITES, epsilon):.2f}" for epsilon in found.epsilons)
        yield f"| {n:,} | {' | '.join(ratios)} |"


def _answers(folder: SiteFolder, study: Study) -> Iterator[str]:
    found = [entry for entry in folder.entries if entry.kind == "answer" and entry.details["study"] == study.identity]
    for entry in found:
        number, who = entry.details.get("number"), entry.details.get("approved_by")
        yield f"- Entry {entry.number} of the ledger, {entry.time}: round {number}, approved by {who}"
    if not found:
        yield "None yet."


def _columns(study: Study) -> Iterator[str]:
    for column in study.columns:
        kind = ", ".join(["category", *map(str, column.levels)]) if column.kind == "category" else "number"
        about = f": {column.about}" if column.about else ""
        yield f"- `{column.name}` ({kind}){about}"


def _cohort(study: Study) -> list[str]:
    """Return the rules of the cohort."""
    rules = [f"- {rule.text}" for rule in study.cohort or ()]
    return ["", "Rows are used that meet all of these rules, at the site and before anything else:", "", *rules] * bool(
        rules
    )


def _mapping(folder: SiteFolder, study: Study) -> list[str]:
    """Return what the mapping in the folder does with the export, if it is for this study."""
    path = folder.path / MAPPING
    if not path.is_file() or (found := TableMapping.read(path)).study != study.name:
        return []
    return ["", *mapping_lines(mapped_by(found))]


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
