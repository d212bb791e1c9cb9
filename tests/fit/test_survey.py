"""Surveys: reports on sites that are extended, never forgotten."""

from __future__ import annotations

from math import isnan

from consilience.aggregate import SiteEvidence
from consilience.fit.survey import Survey, SurveyedSite

TWO = Survey((SurveyedSite("north", 9.0), SurveyedSite("south", 4.0, notes=("small",))), ("doubted",))


def test_suspicions_and_notes_are_added_to_those_of_their_site() -> None:
    survey = TWO.with_suspicions({"south": ["wrong"], "nowhere": ["?"]}, ["more"]).with_notes({"north": ["large"]})
    assert survey.suspicions == {"south": ("wrong",)}
    assert [site.remarks for site in survey.sites] == [("large",), ("wrong", "small")]
    assert [site.status for site in survey.sites] == ["used", "suspect"]
    assert survey.doubts == ("doubted", "more")


def test_sites_that_leave_are_reported_whether_they_answered_before_or_not() -> None:
    survey = TWO.with_dropped({"south": "no answer", "east": "no rows"})
    assert [str(site) for site in survey.sites] == [
        "north: used",
        "south: dropped: no answer; small",
        "east: dropped: no rows",
    ]
    assert isnan(survey.sites[2].weight)


def test_remarks_are_added_to_the_reports_of_a_method() -> None:
    own = [SiteEvidence(name, 9.0, -1.0, 0.0, 0.0, (True,), True, remarks=("its own",)) for name in ("north", "south")]
    north, south = TWO.added_to(own)
    assert north is own[0]
    assert south.remarks == ("its own", "small")
