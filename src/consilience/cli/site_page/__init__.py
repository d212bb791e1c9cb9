"""The local page of a site: what is asked, what was read, what would leave and what has left, on one static page.

The page is written into the folder of the site again after each command of the site. It has no script, loads nothing
and decides nothing: approval stays with the command line. It shows more than what leaves, and is for the people there.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from consilience._version import __version__
from consilience.cli.output import PAGE, page_stops_nothing
from consilience.cli.site_page.next_step import opening_of, standings
from consilience.cli.site_page.parts import page_sections
from consilience.cli.site_page.state import SiteState
from consilience.kit.folder import SiteFolder
from consilience.kit.private_files import slug
from consilience.kit.study_notes import replace_private
from consilience.report.page import Head, render_page


def site_page(state: SiteState) -> str:
    """Return the local page of a site as HTML."""
    found = standings(state)
    made = f"{state.time[:10]}, {state.time[11:16]} UTC"
    banner = (
        "This page decides nothing: it has no script and loads nothing. It is written again after each command, and "
        "it shows more than what leaves: do not send it."
    )
    head = Head(f"Local page of a site · {made}", f"{state.name}: what is here, is asked, has left", banner, ())
    footer = f"Made by consilience {__version__} for the people of {state.name}. Do not send this page."
    return render_page(head, opening_of(state, found[0] if found else None), page_sections(state, found), footer)


def write_page(folder: SiteFolder, there: str = "") -> Path:
    """Write the page of a site into its folder, for its owner alone; return its path."""
    path = folder.path / PAGE
    replace_private(path, site_page(SiteState.read(folder, there)).encode())
    return path


class PagedCommand(TyperCommand):
    """A command of a site, after which its page is written again, also if the command ends with an error."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command, then write the page."""
        try:
            return super().invoke(ctx)
        finally:
            rewrite_page(str(ctx.params["name"]), Path(ctx.params.get("where") or "."))


def rewrite_page(name: str, where: Path) -> None:
    """Write the page of a site that has a folder; a page that cannot be written stops nothing."""
    path = where / slug(name)
    if not path.is_dir():
        return
    with page_stops_nothing():
        write_page(SiteFolder.open(path), option_of(where))


def option_of(where: Path) -> str:
    """Return the option by which commands find the folder of a site."""
    return "" if where == Path() else f" --in {shlex.quote(str(where))}"
