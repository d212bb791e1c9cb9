"""Sections on the run: the choice of the number of experts, what left each site, and provenance."""

from __future__ import annotations

import platform
from collections import Counter
from functools import partial
from typing import Any

from consilience import plot
from consilience._version import __version__
from consilience.estimators.table import unit
from consilience.files.canonical import content_hash
from consilience.files.documents import MixtureDocument
from consilience.report.parts import Section, Table, number
from consilience.report.subject import Subject


def orders(subject: Subject, draw: Any) -> Section | None:
    """Return the criteria of the numbers of experts that were compared."""
    found = subject.orders
    if found is None or len(found.orders) < 2:
        return None
    scores = found.scores
    rows = tuple(
        (str(K), *(number(scores[name][i], 8) for name in scores), found.set_aside.get(K, ""))
        for i, K in enumerate(found.orders)
    )
    named = tuple(name.replace("_", "-") if "_" in name else name.upper() for name in scores)
    name = unit(subject.model)
    table = Table(f"Number of {name}s", (f"{name}s", *named, "set aside"), rows, tuple(range(1, len(named) + 1)))
    said = f"{found.criterion.upper()} prefers {found.best_order}; less is better for AIC, BIC and ICL."
    pictures = draw(f"Criteria by the number of {name}s", partial(plot.orders, found), table)
    return Section(f"Choice of the number of {name}s", (said,), tuple(pictures))


def rounds(subject: Subject, _draw: Any) -> Section | None:
    """Return what was asked, what left each site, and bytes."""
    if subject.result is None:
        return None
    record = subject.result.record
    kinds = Counter((each.question, each.request, each.discloses) for each in record.rounds)
    asked = Table(
        "Questions, and what an answer discloses",
        ("question", "times", "what the coordinator sees", "what an answer has"),
        tuple(
            (question, str(times), "only the sum over sites" if request == "Total" else "the answer of each site", said)
            for (question, request, said), times in kinds.items()
        ),
        (1,),
    )
    bytes_of: dict[str, list[float]] = {}
    for row in record.to_rows():
        entry = bytes_of.setdefault(row["site"], [0, 0.0, 0.0])
        entry[0] += 1
        entry[1] += row["bytes_received"]
        entry[2] += row["bytes_sent"]
    left = Table(
        "What left each site",
        ("site", "answers", "bytes that left it", "bytes it received"),
        tuple((site, f"{e[0]:.0f}", f"{e[1]:,.0f}", f"{e[2]:,.0f}") for site, e in sorted(bytes_of.items())),
        (1, 2, 3),
    )
    said = f"{len(record.rounds)} rounds; {record.bytes_received:,} bytes came from sites. No row has left a site."
    limits = tuple(f"Limit of the run: {each}." for each in record.limits.sentences())
    return Section("What left each site", (said, *limits), (asked, left))


def provenance(subject: Subject, _draw: Any) -> Section:
    """Return versions, hashes and seeds."""
    model = subject.model
    own = {
        "library": f"consilience {__version__}, Python {platform.python_version()}",
        "kind of model": type(model).__name__,
        "hash of its parameters": content_hash(MixtureDocument.of(model.mixture_)),
        "seed": str(getattr(model, "random_state", None)),
        **{name.replace("_", " "): str(value) for name, value in getattr(model, "provenance_", {}).items()},
    }
    rows = tuple({**own, **subject.origin}.items())
    return Section("Provenance", (), (Table("Where this result comes from", ("what", "value"), rows),))
