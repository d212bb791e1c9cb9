"""Attacks on the flow of a file: studies that single out one person among the rows that are left out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from consilience.kit.cohort import Flow, criteria_of
from consilience.kit.study import Study
from hospital_exports import STUDY, hospital

WIDTH, SECRETS = 50, 400
AGE = 111.5
"""An age that one person has, whose CRP is missing: the studies use the same rows whether or not a rule names it."""


def world(*, present: bool) -> pa.Table:
    table = hospital(300, 0)
    for name, value in (("age", AGE), ("crp", None), ("los_days", 3.0), ("charlson", 1), ("sex", "male"),
                        ("admission", "planned")):  # fmt: skip
        if present:
            table[name].append(value)
    return pa.table(table)


def singling_out(bound: float) -> Study:
    """A study whose last rule leaves out the one person, if it is there, and nobody else."""
    rules = f'cohort = [{{ column = "age", below = {bound} }}]'
    return Study.from_text(STUDY.replace("[model]", f"{rules}\n[model]"))


def stated(table: pa.Table, study: Study, width: int, secret: bytes) -> int:
    flow = Flow.of(table, criteria_of(study), [study.response, *study.covariates.columns]).document(
        table, width, secret
    )
    assert flow is not None
    return flow.excluded[0].rows


def secrets() -> list[bytes]:
    return [i.to_bytes(32, "big") for i in range(SECRETS)]


def test_exact_numbers_would_tell_whether_a_person_is_there() -> None:
    found = [stated(world(present=here), singling_out(AGE), 1, bytes(32)) for here in (True, False)]
    assert found == [1, 0]


def test_rounded_numbers_tell_it_hardly_better_than_a_coin() -> None:
    hits = [stated(world(present=True), singling_out(AGE), WIDTH, secret) > 0 for secret in secrets()]
    assert not any(stated(world(present=False), singling_out(AGE), WIDTH, secret) for secret in secrets()[:20])
    right = 0.5 + np.mean(hits) / 2  # says "there" if the number is not 0, and tosses a coin otherwise
    assert right <= 0.5 + 1 / WIDTH


def test_more_studies_with_the_same_rows_tell_no_more_and_would_with_a_draw_for_each() -> None:
    table, bounds = world(present=True), np.linspace(111.05, AGE, 10)
    for secret in secrets()[:40]:
        assert len({stated(table, singling_out(bound), WIDTH, secret) for bound in bounds}) == 1
    fresh = iter(i.to_bytes(32, "big") for i in range(10**6, 10**6 + 400))
    found = [any(stated(table, singling_out(bound), WIDTH, next(fresh)) for bound in bounds) for _ in range(40)]
    assert np.mean(found) > 4 / WIDTH  # with a draw for each study, ten of them find the person five times as often
