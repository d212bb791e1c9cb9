"""Reports of fits for people: one offline HTML file, or a model card in Markdown.

A report opens with a verdict: whether the result can be used, and what is in doubt, in plain words. It is made from
values of the fit alone, has no script, and loads nothing from elsewhere.
"""

from consilience.report.document import html_report, model_card, write_report
from consilience.report.verdict import ReportVerdict, Use, verdict

__all__ = ["ReportVerdict", "Use", "html_report", "model_card", "verdict", "write_report"]
