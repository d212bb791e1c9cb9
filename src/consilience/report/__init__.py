"""Reports of fits for people: one offline HTML file, a model card in Markdown, or tables of numbers.

A report opens with a verdict: whether the result can be used, and what is in doubt, in plain words. It is made from
values of the fit alone, has no script, and loads nothing from elsewhere.
"""

from consilience.report.document import html_report, model_card, report_tables, write_report
from consilience.report.subject import SentFile
from consilience.report.verdict import ReportVerdict, Use, verdict
from consilience.report.wording import ColumnWords, ResponseWords, Words

__all__ = [
    "ColumnWords",
    "ReportVerdict",
    "ResponseWords",
    "SentFile",
    "Use",
    "Words",
    "html_report",
    "model_card",
    "report_tables",
    "verdict",
    "write_report",
]
