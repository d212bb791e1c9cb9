"""The budget of a site for answers with noise: one for the whole folder, in the ledger, charged before noise is drawn.

All answers with noise that a site gives add up, whatever the study, the columns, the round or the table: one row, or
one person, may be in all of them. Each is ρ-zCDP and the ρ of several answers add (:mod:`consilience.numerics.budget`);
the sum is compared with the limits of the policy before an answer is charged. What is compared depends on no row.

A charge is on disk before the noise is drawn. Whatever fails later costs the charge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from consilience.errors import InvalidInputError, RefusedError
from consilience.kit import ledger
from consilience.kit.folder import SiteFolder
from consilience.kit.policy.policy import PrivacyRules
from consilience.kit.study import PrivacyTerms, Trust
from consilience.numerics.budget import epsilon_of, rho_of


@dataclass(frozen=True)
class Charge:
    """One charge, as an entry of the ledger states it.

    Parameters
    ----------
    entry : Entry
    rho : Fraction
    """

    entry: ledger.Entry
    rho: Fraction


def charges_in(folder: SiteFolder) -> list[Charge]:
    """Return all charges in the ledger of a site."""
    return [Charge(entry, _rho_of(entry)) for entry in folder.entries if entry.kind == "charge"]


def spent_in(folder: SiteFolder) -> Fraction:
    """Return the ρ of all answers with noise that a site has charged."""
    return sum((each.rho for each in charges_in(folder)), Fraction(0))


def charge(folder: SiteFolder, rules: PrivacyRules, rho: Fraction, what: Mapping[str, Any]) -> ledger.Entry:
    """Charge an answer with noise to the budget of a site; the entry is on disk when the function returns.

    Parameters
    ----------
    folder : SiteFolder
    rules : PrivacyRules
        Those of the site's policy.
    rho : Fraction
    what : mapping
        What the answer is for, such as study, run, place, hash of the question, sensitivity and variance of the noise.

    Raises
    ------
    RefusedError
        If all charges together would be more than the policy allows, or if this part of the run was charged by another
        program in the meantime; nothing is charged then.
    """
    entries = folder.entries
    spent = sum((_rho_of(entry) for entry in entries if entry.kind == "charge"), Fraction(0))
    check_spending(rules, spent, rho)
    part = (what.get("run"), what.get("place"))
    if None not in part and part in {(e.details.get("run"), e.details.get("place")) for e in entries}:
        raise RefusedError(
            f"part {part[1]} of the budget of this run was charged before: another program answers too. Wait until it "
            "has ended, and run the command again"
        )
    details = {**what, "rho": fraction_text(rho), "spent": fraction_text(spent + rho)}
    return folder.record("charge", details, head=ledger.head_of(entries))


def check_spending(rules: PrivacyRules, spent: Fraction, more: Fraction) -> None:
    """Raise an error if a site may not spend so much more."""
    if more <= 0:
        raise InvalidInputError(f"a charge of {more}: expected a positive number")
    if spent + more > rho_of(rules.max_epsilon_ever, rules.max_delta):
        raise RefusedError(
            f"answers with noise have spent ε = {epsilon_of(spent, rules.max_delta):.3g} at this site, and with this "
            f"it would be {epsilon_of(spent + more, rules.max_delta):.3g}: more than max_epsilon_ever = "
            f"{rules.max_epsilon_ever:g} in [privacy] of policy.toml. Ask the coordinator for a smaller epsilon, or "
            "let who may decide this for the site raise the limit; 'consilience site budget' shows what was spent"
        )


def cost_line(folder: SiteFolder, rules: PrivacyRules, rho: Fraction) -> str:
    """Return what answers with noise of this ρ cost, and what is spent with them."""
    spent = spent_in(folder)
    return (
        f"With it, answers with noise at this site have spent ε = {epsilon_of(spent + rho, rules.max_delta):.3g} of "
        f"{rules.max_epsilon_ever:g} (δ = {rules.max_delta:g}); before, {epsilon_of(spent, rules.max_delta):.3g}. The "
        "charge is kept whatever happens to the answer."
    )


def check_study(rules: PrivacyRules, privacy: PrivacyTerms) -> None:
    """Raise an error if a study with noise wants more than a site gives to one study."""
    for name, wanted, most in (
        ("epsilon", privacy.epsilon, rules.max_epsilon),
        ("delta", privacy.delta, rules.max_delta),
    ):
        if wanted > most:
            raise RefusedError(
                f"the study has {name} = {wanted:g} and the policy of this site allows at most {most:g}. Ask the "
                f"coordinator for a smaller one, or let who may decide this for the site raise max_{name} in [privacy] "
                "of policy.toml"
            )


def _rho_of(entry: ledger.Entry) -> Fraction:
    try:
        found = Fraction(entry.details["rho"])
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise InvalidInputError(
            f"entry {entry.number} of the ledger does not say what it charges: restore it"
        ) from error
    if found <= 0:
        raise InvalidInputError(f"entry {entry.number} of the ledger charges {found}: restore it")
    return found


def fraction_text(rho: Fraction) -> str:
    """Return ρ as a fraction of whole numbers."""
    return f"{rho.numerator}/{rho.denominator}"


# ---------------------------------------------------------------- what was spent

NOISE: Trust = "noise"
"""How the entry of an answer, or of a file, says that it has noise."""
NOT_COVERED = "These releases are not covered by the budget: they have no noise, and no ε holds for them."


def uncovered_in(folder: SiteFolder) -> list[ledger.Entry]:
    """Return the entries by which something left a site without noise: files, and exact answers in rounds."""
    return [
        entry for entry in folder.entries if entry.kind in ("release", "answer") and entry.details.get("way") != NOISE
    ]


def budget_document(folder: SiteFolder, rules: PrivacyRules) -> dict[str, Any]:
    """Return what was spent, on what, what is left, and what left without noise, as a JSON object."""
    charges = charges_in(folder)
    spent = sum((each.rho for each in charges), Fraction(0))
    runs: dict[tuple[str, str], list[Charge]] = {}
    for each in charges:
        runs.setdefault((str(each.entry.details.get("study")), str(each.entry.details.get("run"))), []).append(each)
    of_runs = [
        {
            "study": study,
            "run": run,
            "answers": len(found),
            "first": found[0].entry.time,
            "last": found[-1].entry.time,
            "rho": fraction_text(total := sum((each.rho for each in found), Fraction(0))),
            "epsilon": epsilon_of(total, rules.max_delta),
        }
        for (study, run), found in runs.items()
    ]
    return {
        "delta": rules.max_delta,
        "rho": fraction_text(spent),
        "epsilon": epsilon_of(spent, rules.max_delta),
        "max_epsilon_ever": rules.max_epsilon_ever,
        "left": left_of(rules, spent),
        "spent_on": of_runs,
        "not_covered": [
            {"entry": each.number, "time": each.time, "kind": each.kind, "study": each.details.get("study")}
            | {name: each.details[name] for name in ("file", "bytes") if name in each.details}
            for each in uncovered_in(folder)
        ],
    }


def left_of(rules: PrivacyRules, spent: Fraction) -> float:
    """Return the largest ε of one more study that the budget allows, at the largest δ of the policy."""
    return epsilon_of(max(rho_of(rules.max_epsilon_ever, rules.max_delta) - spent, Fraction(0)), rules.max_delta)


def say_spent(found: Mapping[str, Any]) -> str:
    """Say what was spent in all, and what is left, by the document of a budget."""
    return (
        f"Spent: ε = {found['epsilon']:.3g} of {found['max_epsilon_ever']:g}, at δ = {found['delta']:g}. One more "
        f"study may have ε = {found['left']:.3g} at most. All answers with noise of this folder count, over any table."
    )


def budget_text(found: Mapping[str, Any]) -> str:
    """Return the document of a budget in words."""
    lines = [say_spent(found), *map(_run_line, found["spent_on"])]
    if found["not_covered"]:
        lines += [NOT_COVERED]
        lines += [
            f"  entry {each['entry']}, {each['time']}: {each['kind']} for study {str(each['study'])[:23]}..."
            + (f", {each['bytes']:,} bytes, SHA-256 {each['file'].removeprefix('sha256:')}" if "bytes" in each else "")
            for each in found["not_covered"]
        ]
    return "\n".join(lines)


def _run_line(each: Mapping[str, Any]) -> str:
    return (
        f"  study {each['study'][:23]}..., run {each['run'][:23]}...: {each['answers']} answers from {each['first']} "
        f"to {each['last']}, ε = {each['epsilon']:.3g} alone"
    )
