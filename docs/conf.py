"""Sphinx configuration. Builds without network: no intersphinx."""

import doctest
import json
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from consilience import __version__
from consilience.files.model_document import ModelDocument
from consilience.files.site_file import SiteDocument

project = "Consilience"
author = "The Consilience developers"
copyright = author  # noqa: A001 (Sphinx's name)
version = release = __version__

sys.path += [str(Path(__file__).parent / "_ext"), str(Path(__file__).parents[1])]  # pages use benchmarks.lib
extensions = [
    "numpydoc",
    "catalogue",  # ours, in _ext
    "claims",  # ours, in _ext
    "results",  # ours, in _ext
    "structure",  # ours, in _ext
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # formulas without a network
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery"]  # the gallery's pages are made from its scripts
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "generated/gallery",
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "write_computation_times": False,
    "abort_on_example_error": True,
    "parallel": 2,
    "reset_modules": ("matplotlib", "gallery_order.show_plain_warnings"),  # ours, in _ext
    "remove_config_comments": True,  # such as the number of the thumbnail
    "within_subsection_order": "gallery_order.ReadingOrder",  # ours, in _ext
}
templates_path = ["_templates"]
default_role = "code"

autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"  # a class's name before each method fills the column beside its page
autodoc_typehints = "none"  # the numpydoc sections say types and shapes
autosummary_generate = True
numpydoc_show_class_members = False  # the class template lists them
doctest_default_flags = doctest.ELLIPSIS | doctest.DONT_ACCEPT_TRUE_FOR_1  # messages of errors are compared too
doctest_test_doctest_blocks = ""  # examples in docstrings are run by pytest; here only the pages' own
# Files that a page writes are in a folder of its own; nothing else is there before its first line.
doctest_global_setup = f"""
CHECKOUT = {str(Path(__file__).parents[1])!r}
__import__("os").chdir(__import__("tempfile").mkdtemp())
"""
doctest_global_cleanup = "__import__('os').chdir(CHECKOUT)"

html_theme = "pydata_sphinx_theme"
html_title = f"Consilience {version}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_show_sourcelink = False

SCHEMAS = Path(__file__).parent / "generated" / "schemas"
SCHEMAS.mkdir(parents=True, exist_ok=True)
for name, document in (("model-1", ModelDocument), ("site-1", SiteDocument)):
    text = json.dumps(document.model_json_schema(), indent=2)
    (SCHEMAS / f"{name}.schema.json").write_text(text + "\n", encoding="utf-8")
html_extra_path = ["generated/schemas"]  # published beside the start page
SINGLE_PAGES = ("index", "start-here", "for-r-users", "reference")
html_sidebars = {page: [] for page in SINGLE_PAGES}  # the others list the pages of their section
html_theme_options: dict[str, Any] = {
    "logo": {"text": project},  # with its version the title runs into the search button of a phone
    "show_prev_next": False,
    "navbar_align": "left",
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}


def inherited_from_elsewhere(_app: Sphinx, _what: str, _name: str, member: Any, skip: bool, _options: Any) -> bool:
    """Leave out what our classes only inherit, such as scikit-learn's get_params: it is documented there."""
    home = getattr(getattr(member, "fget", member), "__module__", None) or ""
    return skip or (callable(member) and not home.startswith("consilience"))


def setup(app: Sphinx) -> None:
    app.connect("autodoc-skip-member", inherited_from_elsewhere)
