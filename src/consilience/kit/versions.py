"""The version of the library at each site, as its file or its answers state it in their envelopes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from consilience.federation.federated_fit import list_some
from consilience.kit.ledger import KIT
from consilience.kit.roster import Signed

LONGEST = 50
"""Maximum length of a version that is shown."""
NOT_STATED = "not stated"


def kits_of(files: Iterable[Signed]) -> dict[str, str]:
    """Return the version of the kit of each site, by name; several of a site that was upgraded between its answers.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> files = [SimpleNamespace(site="ash", envelope={"kit": "0.2.0"}), SimpleNamespace(site="birch", envelope={})]
    >>> kits_of(files)
    {'ash': '0.2.0', 'birch': 'not stated'}
    """
    found: dict[str, set[str]] = {}
    for file in files:
        stated = file.envelope.get(KIT)
        found.setdefault(file.site, set()).add(stated[:LONGEST] if isinstance(stated, str) else NOT_STATED)
    return {site: " and ".join(sorted(found[site])) for site in sorted(found)}


def kits_text(kits: Mapping[str, str]) -> str:
    """Return the versions with the sites that have them; a single one without.

    Examples
    --------
    >>> kits_text({"ash": "0.1.0", "birch": "0.1.0"})
    '0.1.0'
    >>> kits_text({"ash": "0.1.0", "birch": "0.2.0", "cedar": "0.1.0"})
    '0.1.0 (ash, cedar); 0.2.0 (birch)'
    """
    sites: dict[str, list[str]] = {}
    for site, kit in kits.items():
        sites.setdefault(kit, []).append(site)
    if len(sites) < 2:
        return "".join(sites)
    return "; ".join(f"{kit} ({list_some(sites[kit])})" for kit in sorted(sites))


def distinct_kits(kits: Mapping[str, str]) -> str:
    """Return the versions without the sites that have them."""
    return ", ".join(sorted(set(kits.values())))


def say_kits(kits: Mapping[str, str]) -> str:
    """Return a sentence if the sites have different versions of the library; empty if all have the same."""
    if len(set(kits.values())) < 2 and not any(" and " in kit for kit in kits.values()):
        return ""
    return (
        f"The sites used different versions of consilience: {kits_text(kits)}. Its changelog says whether "
        "fits differ between them."
    )
