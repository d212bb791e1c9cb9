"""The table of planted defects is about today's code: each edit has its place, and each test is there."""

from __future__ import annotations

from planted import DEFECTS, PACKAGE, ROOT


def test_each_defect_has_its_one_place() -> None:
    found = {each.name: (ROOT / PACKAGE / each.file).read_text(encoding="utf-8").count(each.old) for each in DEFECTS}
    assert {name: count for name, count in found.items() if count != 1} == {}
    assert [each.name for each in DEFECTS if each.new == each.old] == []


def test_defects_are_named_apart_and_their_tests_are_there() -> None:
    assert len({each.name for each in DEFECTS}) == len(DEFECTS)
    files = {test.split("::")[0] for each in DEFECTS for test in each.selected}
    assert [file for file in sorted(files) if not (ROOT / file).exists()] == []
