"""docs/develop/dependencies.rst says what pyproject.toml declares and what the code imports."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "develop" / "dependencies.rst").read_text(encoding="utf-8")
SOURCE = ROOT / "src" / "consilience"


def rows(section: str) -> list[tuple[str, str, str]]:
    """Return package, lower bound and third column of the table in a section of the page."""
    text = re.search(rf"^{section}\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert text, f"the page has no section {section}"
    return re.findall(r"^   \* - `(.+)`\n     - (.+)\n     - (.+)$", text[1], flags=re.MULTILINE)


def bounds(requirements: list[str]) -> list[tuple[str, str]]:
    """Split requirements, each of which must be ``name>=version`` and nothing more."""
    found = [re.fullmatch(r"([\w-]+(?:\[\w+\])?)>=([\d.]+)", requirement) for requirement in requirements]
    assert all(found), requirements
    return [match.groups() for match in found]


def importers(package: str) -> set[str]:
    """Return the top packages of the library whose code imports ``package``."""
    module = {"dask[distributed]": "distributed", "scikit-learn": "sklearn"}.get(package, package)
    imports = re.compile(rf'^\s*(import|from) {module}\b|import_module\("{module}"\)', flags=re.MULTILINE)
    files = [path for path in SOURCE.rglob("*.py") if imports.search(path.read_text(encoding="utf-8"))]
    return {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in files}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("section", "requirements"),
    [
        ("Required", PYPROJECT["project"]["dependencies"]),
        ("Extras", [one for extra in PYPROJECT["project"]["optional-dependencies"].values() for one in extra]),
    ],
    ids=["required", "extras"],
)
def test_every_dependency_has_a_row_with_its_lower_bound_and_its_importers(section, requirements):
    table = rows(section)
    assert [row[:2] for row in table] == sorted(set(bounds(requirements)))  # two extras may need one package
    layers = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    for package, _, named in table:
        listed = layers - set(named.removeprefix("all but ").split(", "))
        assert (listed if named.startswith("all but ") else set(named.split(", "))) == importers(package), package


def test_every_tool_of_development_has_a_row_with_its_lower_bound_and_its_group():
    groups = {"build": PYPROJECT["build-system"]["requires"], **PYPROJECT["dependency-groups"]}
    declared = {
        (*bound, group)
        for group, requirements in groups.items()
        for bound in bounds([one for one in requirements if isinstance(one, str)])  # else it includes a group
    }
    assert sorted(rows("Development")) == sorted(declared)
