"""Sections of a report: each module says one part of what was found, from values that were computed once."""

from collections.abc import Callable

from consilience.report.findings import Findings
from consilience.report.page import Section
from consilience.report.sections.found import effect_section, found_section, member_section, prediction_section
from consilience.report.sections.making import (
    again_section,
    left_section,
    noise_section,
    number_section,
    row_section,
)
from consilience.report.sections.paper import limit_section, paste_section
from consilience.report.sections.sources import agreement_section, site_section
from consilience.report.sections.supplement import checklist_section, parameter_section, supplement_section

SECTIONS: tuple[Callable[[Findings], Section | None], ...] = (
    found_section, site_section, member_section, effect_section, prediction_section, agreement_section, number_section,
    row_section, paste_section, limit_section, noise_section, left_section, again_section, parameter_section,
    supplement_section, checklist_section,
)  # fmt: skip
"""What makes the sections of a report, in their order; a section may have nothing to say."""


def make_sections(subject: Findings) -> list[Section]:
    """Return the sections of a report."""
    return [section for make in SECTIONS if (section := make(subject)) is not None]


__all__ = ["SECTIONS", "make_sections"]
