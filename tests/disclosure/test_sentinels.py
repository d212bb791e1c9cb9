"""No message that leaves a site contains a data value: sentinels in the data, looked for in all that leaves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from consilience.data import Columns, Shard
from consilience.engines import InProcess
from consilience.errors import RoundStoppedError
from consilience.fit import Expect
from consilience.messages import LogLikelihood, ProposeStart, Several, Summarise, Total, encode
from consilience.model import Groups, Rows
from consilience.model.summary import column_summary
from consilience.runs import run
from consilience.site import Site, respond
from simulated import FAMILIES, simulated

WORD = "SENTINEL-PATIENT-4711"
NUMBER = 8642097531.25


def cells(rows: Rows) -> list[bytes]:
    """The bytes of every value in the data."""
    values = np.concatenate([rows.X.ravel(), rows.Y.ravel()])
    return [np.float64(value).tobytes() for value in values]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_answers_hold_sums_and_no_single_value(family: str) -> None:
    case = simulated(family, n=60, seed=1)
    rng = np.random.default_rng(0)
    Y = case.rows.Y if family != "gaussian" else rng.normal(size=case.rows.Y.shape)
    rows = Rows(rng.normal(size=case.rows.X.shape), Y)
    site, summary = Site("north", rows), column_summary(rows)
    questions = (
        Summarise(2, 1),
        Expect(case.truth, information=True),
        LogLikelihood(case.truth),
        ProposeStart(case.specification, summary, seed=0, n_init=2),
    )
    covariates = [np.float64(value).tobytes() for value in rows.X.ravel()]
    for question in (*questions, Several(questions)):
        message = respond(encode(question), site)
        wanted = cells(rows) if family == "gaussian" else covariates  # a count or a class is any small whole number
        assert not [cell for cell in wanted if cell in message]


def broken_tables(folder: Path) -> dict[str, Site]:
    """Sites whose data hold the sentinels where they do not belong."""
    header, good = "a,y,w,g\n", "1.0,2.0,1.0,x\n2.0,1.0,1.0,x\n"
    bodies = {
        "a word for a number": good + f"{WORD},{NUMBER},1.0,x\n",
        "a missing value": good + f",{NUMBER},1.0,{WORD}\n",
        "an infinite value": good + f"inf,{NUMBER},1.0,{WORD}\n",
        "a negative weight": good + f"1.0,{NUMBER},-{NUMBER},{WORD}\n",
        "a line too long": good + f"1.0,{NUMBER},1.0,{WORD},{WORD}\n",
    }
    sites = {}
    for name, body in bodies.items():
        path = folder / f"{name.replace(' ', '-')}.csv"
        path.write_text(header + body)
        sites[name] = Site(name, Shard(str(path), Columns(("a",), ("y",), weight="w")))
    path = folder / "classes.csv"
    path.write_text(f"a,y\n1.0,yes\n2.0,{WORD}\n")
    sites["another class"] = Site("another class", Shard(str(path), Columns(("a",), ("y",), classes=("no", "yes"))))
    damaged = folder / "damaged.parquet"
    damaged.write_bytes(b"PAR1" + WORD.encode() * 9 + b"PAR1")
    sites["damaged"] = Site("damaged", Shard(str(damaged), Columns(("a",), ("y",))))
    return sites


def broken_arrays() -> dict[str, Site]:
    wrong = np.full((4, 1), NUMBER)
    groups = Groups.of(np.array([WORD] * 4))
    return {
        "other columns": Site("other columns", Rows(np.full((4, 3), NUMBER), wrong, groups=groups)),
        "words": Site("words", Rows(np.array([[WORD]] * 4, dtype=object), wrong)),  # type: ignore[arg-type]
        "ragged": Site("ragged", Rows(wrong, wrong[:3])),
    }


def test_failures_carry_no_data_value(tmp_path: Path) -> None:
    sites = broken_tables(tmp_path) | broken_arrays()
    patterns = [WORD.encode(), np.float64(NUMBER).tobytes(), str(NUMBER).encode(), b"8642097531"]
    for name, site in sites.items():
        message = respond(encode(Summarise(1, 1)), site)
        assert not [pattern for pattern in patterns if pattern in message], name
    with pytest.raises(RoundStoppedError) as stopped:
        run(_ask(), InProcess().over(sites.values()))
    assert set(stopped.value.sites) == set(sites)
    claim = str(stopped.value) + str(stopped.value.record) + repr(stopped.value.record.to_rows())
    assert WORD not in claim
    assert "8642097531" not in claim


def _ask():
    yield Total(Summarise(1, 1))


def test_the_trace_at_the_site_may_hold_what_the_message_must_not(tmp_path: Path) -> None:
    sites = broken_tables(tmp_path)
    site = sites["a word for a number"]
    respond(encode(Summarise(1, 1)), site)
    assert site.traces
