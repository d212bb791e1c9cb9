"""The directive ``.. error-catalogue::``: the errors of the command line, from its code."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from consilience.cli.catalogue import CommandFault


class ErrorCatalogue(SphinxDirective):
    """Lists code, exit status, meaning and next step of every error."""

    def run(self) -> list[nodes.Node]:
        lines = [".. list-table::", "   :header-rows: 1", "   :widths: 12 8 35 45", ""]
        rows = [("Code", "Exit status", "Meaning", "What to do")]
        rows += [(p.value.code, str(p.value.status), p.value.title, p.value.remedy) for p in CommandFault]
        for row in rows:
            lines += [f"   {'*' if i == 0 else ' '} - {cell}" for i, cell in enumerate(row)]
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("error-catalogue", ErrorCatalogue)
    return {"parallel_read_safe": True}
