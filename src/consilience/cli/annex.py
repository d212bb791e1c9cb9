"""The annex on disclosure: what a privacy officer signs, from the study, its method, the policy and the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Any

from consilience._version import __version__
from consilience.cli.answer_fields import KINDS, fields_of_kind
from consilience.cli.preview import (
    ENVELOPE,
    FIELDS,
    HEAD,
    LETTER,
    NOISY_FIELDS,
    SEALED,
    WAYS,
    attack_lines,
    mapping_lines,
)
from consilience.errors import ConsilienceError
from consilience.kit import ledger
from consilience.kit.folder import MAPPING, SiteFolder
from consilience.kit.forecast import forecast_study
from consilience.kit.mapping import TableMapping, mapped_by
from consilience.kit.policy.policy import COMMENTS, Policy
from consilience.kit.release import last_fit
from consilience.kit.spending import budget_document, budget_text, spent_in
from consilience.kit.study import Study, Trust
from consilience.kit.study_model import method_of, task_of
from consilience.kit.study_terms import say_formula
from consilience.kit.study_words import governance_of
from consilience.methods.task import QuestionKind
from consilience.numerics.budget import epsilon_of, rho_of
from consilience.report.page import (
    Block,
    Bullets,
    Facts,
    Head,
    Section,
    Table,
    escape_markdown,
    numbered,
    render_page,
    section_markdown,
)

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
ATTACKS: Mapping[str, tuple[tuple[str, str, float], ...]] = {
    "FitSite": (("a start that singles out rows in the site's own fit", "crafted start", 1e-6),),
    "ProposeStart": (("as many experts as rows", "as many experts as rows", 1e-6),),
    "LogLikelihood": (("log-likelihoods alone, two numbers an answer", "likelihoods", 1e-6),),
    "Expect": (
        ("a gate with bins that hold one row", "histogram", 1e-5),
        ("thin parallel experts that hold one row", "thin experts", 1e-9),
        ("a hyperplane that is moved past one row", "moved past one row", 1e-9),
    ),
    "ScoreSums": (("sums of scores in bins of one row", "sums of scores", 1e-4),),
    "Sample": (("a sample with a seed by which it has one row", "chosen draw", 1e-9),),
    "Pairs": (("products over pairs of rows", "pairs", 1e-4),),
    "Clients": (("clients of one row", "clients of one row", 1e-9),),
}
"""Attacks that computed rows from exact answers: in words, as a case of ``tests/disclosure/test_rounds.py``, and the
largest error in standard deviations of the columns."""


@dataclass(frozen=True)
class Annex:
    """The page for the data-protection file of a site, for one study."""

    head: Head
    sections: tuple[Section, ...]
    footer: str

    @property
    def html(self) -> str:
        """The page as HTML, which a browser prints or saves as PDF."""
        return render_page(self.head, None, self.sections, self.footer)

    @property
    def markdown(self) -> str:
        """The page as Markdown."""
        say = escape_markdown
        lines = [f"# {say(self.head.title)}", "", *(f"- {say(a)}: {say(b)}" for a, b in self.head.facts), ""]
        lines += [line for each in numbered(self.sections) for line in section_markdown(each)]
        return "\n".join([*lines, say(self.footer)])


def annex_of(folder: SiteFolder, study: Study) -> Annex:
    """Return the annex of a site to a study."""
    policy, way = Policy.from_text(folder.policy), study.way
    parts: dict[str, Iterable[Block]] = {
        "Who is responsible, and what for": _governance(study),
        "What is read": [*_columns(study), *_cohort(study), *_mapping(folder, study)],
        "What leaves, and how often": [*_ways(study, policy), *_exchanges(study)],
        "The parts of each file": _fields(study),
        "Who approves": _approvers(policy),
        "What has left for this study": _left(folder, study),
        **_OF_WAY[way](folder, study, policy),
    }
    head = Head(
        "Annex on disclosure",
        f"{study.title or study.name} at {folder.name}",
        "",
        (
            ("Study", f"{study.name}, {study.identity}"),
            ("Site", folder.name),
            ("Policy", f"profile {policy.profile_text}, {policy.identity}"),
            ("Made", f"by consilience {__version__} at the site; no network connection was opened"),
        ),
    )
    sections = tuple(Section(title, f"part-{i}", tuple(blocks)) for i, (title, blocks) in enumerate(parts.items(), 1))
    return Annex(head, sections, f"Study and policy are named by hashes of what they say. {SAYS_FILE_HASH}")


SAYS_FILE_HASH = "The SHA-256 of a file is that of its bytes on disk, as sha256sum prints it."


# ---------------------------------------------------------------- what holds for every way


def _governance(study: Study) -> Iterator[Block]:
    stated = governance_of(study)
    yield Facts(tuple((name, said or "not stated") for name, said in stated.items()))
    missing = ", ".join(name for name, said in stated.items() if not said)
    if missing:
        yield (
            f"The study does not state: {missing}. Ask the coordinator to state it in [governance] before the first "
            "file leaves: it is part of what sites agree to, and a study that states it is another study."
        )


def _columns(study: Study) -> Iterator[Block]:
    rows = []
    for column in study.columns:
        kind = f"one of {', '.join(map(str, column.levels))}" if column.kind == "category" else column.unit or "number"
        use = "cohort only" if column.use else "response" if column.name == study.model.response else "covariate"
        rows.append((column.name, use, kind, column.about))
    if study.model.clients is not None:
        rows.append((study.model.clients, "tells clients apart; its values do not leave", "", ""))
    if study.persons is not None:
        rows.append((study.persons.column, "tells persons apart; its values do not leave", "", ""))
    yield Table("Columns that the site reads.", ("column", "use", "values", "meaning"), tuple(rows))
    yield from say_formula(study)


def _cohort(study: Study) -> Iterator[Block]:
    """Yield the rules of the cohort."""
    if study.cohort:
        yield "Rows are used that meet all of these rules, at the site and before anything else:"
        yield Bullets(tuple(("", rule.text) for rule in study.cohort))


def _mapping(folder: SiteFolder, study: Study) -> Iterator[Block]:
    """Yield what the mapping in the folder does with the export, if it is for this study."""
    path = folder.path / MAPPING
    if path.is_file() and (found := TableMapping.read(path)).study == study.name:
        first, *rest = mapping_lines(mapped_by(found))
        yield first
        yield Bullets(tuple(("", line.strip()) for line in rest))


def _ways(study: Study, policy: Policy) -> Iterator[Block]:
    allowed = "allows" if study.way in policy.privacy.allow else "does NOT allow"
    yield WAYS[study.way]
    yield f"The policy of this site {allowed} this way."


def _exchanges(study: Study) -> Iterator[Block]:
    """Yield how many files leave, and the kinds of questions that they answer."""
    method = method_of(study)
    if study.is_one_file:
        yield f"One JSON file{_noisy_sums(study)}, after a person approved it. It has no row."
        return
    most = f"a run that has not ended after {method.most_rounds(task_of(study)):,} rounds is stopped"
    yield (
        f"In each round of {_method(study)} one JSON file{_noisy_sums(study)}, after a person approved it: {most}. It "
        "has no row. 'consilience site show-answer' prints an answer that has left in words and numbers."
    )
    rows = tuple((KINDS[each.question.__name__], str(each)) for each in kinds_asked(study))
    yield Table("What the coordinator asks.", ("asked for", "how often"), rows)


def _method(study: Study) -> str:
    """Return the name of the method of a study, with the settings that it states."""
    if study.method is None:
        return type(method_of(study)).__name__
    settings = [f"{name} = {value}" for name, value in study.method.settings.items()]
    return f"{study.method.name}{' with ' if settings else ''}{', '.join(settings)}"


def _noisy_sums(study: Study) -> str:
    budget = method_of(study).budget
    if budget is None:
        return ""
    return f" with sums with noise, at most {budget.parts} sums {'in all' if study.is_one_file else 'in all files'}"


def kinds_asked(study: Study) -> Sequence[QuestionKind]:
    """Return the kinds of questions of the method of a study."""
    return method_of(study).question_kinds(task_of(study))


def _fields(study: Study) -> Iterator[Block]:
    """Yield the parts of the files that leave."""
    if study.is_one_file:
        content = NOISY_FIELDS if study.is_noisy_file else FIELDS
        yield Table("The content.", ("part", "meaning"), tuple(content.items()), long=True)
        yield Table("The rest of the file.", ("part", "meaning"), (*HEAD.items(), *ENVELOPE.items()))
        return
    for each in kinds_asked(study):
        said = tuple(fields_of_kind(each.question).items())
        yield Table(f"An answer: {KINDS[each.question.__name__]}.", ("part", "meaning"), said, long=True)
    yield Table("The rest of each file.", ("part", "meaning"), (*HEAD.items(), *LETTER.items(), *ENVELOPE.items()))
    yield "If the coordinator has a key for it, the file is encrypted for the coordinator, and others see this of it:"
    yield Table("The outside of an encrypted file.", ("part", "meaning"), tuple(SEALED.items()))


def _approvers(policy: Policy) -> Iterator[Block]:
    """Yield who approves what leaves, by the policy."""
    rules = policy.approval
    if not rules.apply:
        yield "Whoever runs the command at the site is asked and approves, also if they fitted; the ledger names them."
        return
    who = f"of {', '.join(rules.approvers)}" if rules.approvers else "accounts that can use the folder of the site"
    yield f"{rules.approvals} {who} must approve, and never the account that fitted. The ledger has their names."
    yield (
        "These are accounts of the operating system: its administrator can become any of them, and whoever may write "
        "to the folder can change the policy."
    )


def _left(folder: SiteFolder, study: Study) -> Iterator[Block]:
    """Yield what has left for a study, as the ledger says it."""
    rows = []
    for entry in folder.entries:
        found = entry.details
        if entry.kind in ledger.LEFT and found.get("study") == study.identity:
            what = ledger.what_left(entry)
            who = str(found.get("approved_by") or "not stated")
            size = f"{found['bytes']:,}" if "bytes" in found else ""
            digest = str(found.get("file", "")).removeprefix("sha256:")
            rows.append((str(entry.number), entry.time, what, who, size, digest))
    if not rows:
        yield "None yet."
        return
    header = ("entry", "time", "what", "approved by", "bytes", "SHA-256")
    yield Table("Files, by their entries in the ledger.", header, tuple(rows), (4,))


# ---------------------------------------------------------------- what differs between the ways

Parts = dict[str, Iterable[Block]]


def _of_limits(folder: SiteFolder, study: Study, policy: Policy) -> Parts:
    """Return the sections of one file under limits."""
    applied = policy.stricter(study.minimum)
    return {
        "Limits that the file keeps": [_limits(applied, "site", "experts", "covariates")],
        "Settings of a release": [_limits(applied, "release")],
        "Attacks, and the risk that is left": [
            Bullets(tuple((f"{a}:", b) for a, b in THREATS)),
            *_measured(folder, study),
        ],
        "What is not protected": [_listed(UNPROTECTED)],
    }


def _measured(folder: SiteFolder, study: Study) -> Iterator[Block]:
    """Yield what the attacks on the last fit for a study achieve at the site."""
    try:
        last = last_fit(folder, study.identity)
    except ConsilienceError:
        yield "No attack was measured here yet: fit first ('consilience site fit'), then write this page again."
        return
    yield f"Measured at the site, on the fit of entry {last.entry.number} of the ledger:"
    yield Bullets(tuple(("", line) for line in attack_lines(last.report)))


def _of_contract(_: SiteFolder, study: Study, policy: Policy) -> Parts:
    """Return the sections of rounds under contract."""
    attacks = [(KINDS[kind], *found) for kind in map(_name, kinds_asked(study)) for found in ATTACKS.get(kind, ())]
    untried = [KINDS[kind] for kind in map(_name, kinds_asked(study)) if kind not in ATTACKS]
    table = Table(
        "Attacks that computed rows from such answers.",
        ("asked for", "attack", "largest error"),
        tuple((kind, attack, f"{error:.0e}") for kind, attack, _, error in attacks),
        (2,),
        "Errors are in standard deviations of the columns, on simulated sites.",
    )
    none = f"No attack by these alone was tried: {', '.join(untried)}."
    left = (
        "The risk that is left: a coordinator who breaks the contract can compute any row. What an honest coordinator "
        "receives can show single rows, too: those that change their expert between two rounds."
    )
    applied = policy.stricter(study.minimum)
    return {
        "What this site answers": [
            f"Nothing leaves if fewer than {applied.site.min_rows} rows are used.",
            _limits(applied, "contract"),
        ],
        "Attacks, and the risk that is left": [table, *([none] if untried else []), left],
        "What is not protected": [_listed(UNPROTECTED_BY_CONTRACT)],
    }


def _name(kind: QuestionKind) -> str:
    return kind.question.__name__


def _of_noise(folder: SiteFolder, study: Study, policy: Policy) -> Parts:
    """Return the sections of answers with noise."""
    privacy, budget, unit = study.privacy, method_of(study).budget, "row"
    together: list[Block] = []
    if privacy is not None and budget is not None:
        unit = budget.unit
        together.append(
            f"All answers of a run together have ε = {privacy.epsilon:g}, δ = {privacy.delta:g} for each {unit}."
        )
    return {
        "What epsilon means": [EPSILON],
        "Budget of this site": [
            *together,
            *budget_text(budget_document(folder, policy.privacy)).splitlines(),
            *_cost(folder, study, policy),
            "A row that does not fit the study counts as zeros; only this site is told.",
        ],
        "What the result would be worth": _worth(study),
        "Limits of the policy": [_limits(policy, "privacy")],
        "Attacks, and the risk that is left": _guesses(study, policy),
        "What is not protected": [_listed(UNPROTECTED_BY_NOISE)],
    }


def right_guesses(epsilon: float, delta: float) -> float:
    """Return how many of 100 guesses at whether a row is in the table can be right, with discrete Gaussian noise."""
    return 100 * NormalDist().cdf(sqrt(rho_of(epsilon, delta) / 2))


def _guesses(study: Study, policy: Policy) -> Iterator[Block]:
    """Yield the risk that is left with noise, for this study and for all that the policy allows."""
    rules = policy.privacy
    most = right_guesses(rules.max_epsilon_ever, rules.max_delta)
    if study.privacy is not None:
        own = right_guesses(study.privacy.epsilon, study.privacy.delta)
        yield (
            f"Of 100 guesses at whether the most unusual row is in the table, at most {own:.0f} are right after all "
            f"answers of one run of this study, and at most {most:.0f} after all that the policy ever allows "
            f"(ε = {rules.max_epsilon_ever:g}). Tossing a coin has 50."
        )
    yield (
        "The attacks that were tried (rare properties, one row beside zeros, ratios of likelihoods, differences of "
        "runs, averages) found no more than this; the tests of the library repeat them."
    )


_OF_WAY: Mapping[Trust, Callable[[SiteFolder, Study, Policy], Parts]] = {
    "limits": _of_limits,
    "coordinator": _of_contract,
    "noise": _of_noise,
}


def _cost(folder: SiteFolder, study: Study, policy: Policy) -> Iterator[Block]:
    """Yield what a whole run of the study would spend."""
    budget, delta, spent = method_of(study).budget, policy.privacy.max_delta, spent_in(folder)
    if budget is not None:
        after = epsilon_of(spent + budget[0] * budget[1], delta)
        yield f"A whole run of this study would bring it from ε = {epsilon_of(spent, delta):.3g} to {after:.3g}."


SIZES = (500, 2000, 10_000)
"""Numbers of rows in all for which the annex has a forecast."""
SITES = 4


def _worth(study: Study) -> Iterator[Block]:
    """Yield a forecast from the study alone; the start and the rows of other sites are not known here."""
    try:
        found = forecast_study(study)
    except ConsilienceError:
        yield "It depends on the start of the run: 'consilience study forecast' and 'consilience site rehearse' say it."
        return
    rows = [(f"{n:,}", *(f"{found.ratio(n, SITES, epsilon):.2f}" for epsilon in found.epsilons)) for n in SIZES]
    header = ("rows in all", *(f"ε = {epsilon:g}" for epsilon in found.epsilons))
    yield Table(
        f"Standard errors in units of those of all rows without noise, at {SITES} sites, by a guess of the start.",
        header,
        tuple(rows),
        tuple(range(1, len(header))),
    )


def _limits(policy: Policy, *parts: str) -> Table:
    tables, rows = policy.model_dump(), []
    for part in parts:
        for name, limit in tables[part].items():
            said = COMMENTS[name].replace("\n", " ").removesuffix(", ...").removeprefix("... ").rstrip(".")
            rows.append((name, _shown(limit), f"{said}."))
    return Table("As in policy.toml, or stricter if the study asks for it.", ("limit", "value", "meaning"), tuple(rows))


def _shown(limit: Any) -> str:
    if isinstance(limit, list):
        return ", ".join(limit)
    return str(limit).lower() if isinstance(limit, bool) else f"{limit:g}" if isinstance(limit, float) else str(limit)


def _listed(sentences: Iterable[str]) -> Bullets:
    return Bullets(tuple(("", each) for each in sentences))
