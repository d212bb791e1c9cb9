import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import consilience

LAZY = sorted(set(consilience.__all__) - {"__version__"})


def test_import_loads_no_numerical_library():
    code = """
import sys, consilience
assert "consilience.errors" not in sys.modules
print(",".join(sorted({"numpy", "scipy", "sklearn", "pyarrow", "rich", "matplotlib"} & set(sys.modules))))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == ""


@pytest.mark.slow
def test_estimators_add_little_to_the_import_of_scikit_learn():
    code = """
import sys, sklearn.base, sklearn.utils.parallel
before, slow = set(sys.modules), {"sklearn.pipeline", "sklearn.metrics", "rich", "numba", "pyarrow", "pydantic"}
import consilience
consilience.MixtureOfExpertsRegressor
ours = {"consilience.messages", "consilience.aggregate", "consilience.site", "consilience.cli"}
print(",".join(sorted((slow | ours) & set(sys.modules) - before)))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == ""


@pytest.mark.slow
def test_a_fit_opens_no_socket_and_writes_no_file(tmp_path):
    code = """
import sys
import numpy as np
from consilience import MixtureOfExpertsRegressor
seen, watched = [], False
def audit(event, arguments):
    if watched and (event.startswith("socket.") or event == "open" and not str(arguments[1]).startswith("r")):
        seen.append(f"{event} {arguments[:2]}")
sys.addaudithook(audit)
rng = np.random.default_rng(0)
X = rng.normal(size=(200, 2))
watched = True
model = MixtureOfExpertsRegressor(2, random_state=0, n_init=2).fit(X, np.where(X[:, 0] > 0, 3, -3) * X[:, 1])
model.predict(X), model.summary()
fitted = list(seen)
model.save("asked_for.json")
print(len(fitted), len(seen) > 0, fitted)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert out.stdout.split()[:2] == ["0", "True"], out.stdout


def test_lazy_names_resolve():
    values = {name: getattr(consilience, name) for name in LAZY}
    expected = {name: f"consilience.{name}" if name in consilience._SUBPACKAGES else name for name in LAZY}
    names = {name: getattr(value, "__name__", expected[name]) for name, value in values.items()}
    assert names == expected  # the scorer is a value, not a class or function, and has no name
    assert [name for name in LAZY if name not in dir(consilience)] == []
    kept = vars(consilience)  # the second access is a plain attribute
    assert [name for name, value in values.items() if kept[name] is not value] == []


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"'consilience' has no attribute 'GausianMixture'"):
        consilience.GausianMixture  # noqa: B018


def test_lazy_table_public_names_and_type_checker_agree():
    assert sorted([*consilience._HOME, *consilience._SUBPACKAGES]) == LAZY
    tree = ast.parse(Path(consilience.__file__).read_text(encoding="utf-8"))
    seen_by_type_checker = {
        alias.name
        for block in tree.body
        if isinstance(block, ast.If)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert sorted(seen_by_type_checker) == LAZY


def test_version_is_pep440():
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|a\d+|b\d+|rc\d+)?", consilience.__version__)


def test_package_ships_its_types():
    assert Path(consilience.__file__).with_name("py.typed").exists()
