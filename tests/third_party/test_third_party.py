"""A method, an engine and a family of another package, by nothing but the names of the reference."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FILES = sorted((HERE / "conmedian").glob("*.py"))

DATA = """
import warnings
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from consilience.datasets import soft

warnings.simplefilter("ignore")  # that starts disagree
data = soft(3000, random_state=0)
for i in range(3):
    here = slice(i, None, 3)
    columns = {f"x{j}": data.X[here, j] for j in range(3)}
    pq.write_table(pa.table({**columns, "y": data.y[here]}), f"part-{i}.parquet")
"""


def python(code: str, folder: Path, *paths: Path) -> str:
    """Run a program beside the library, in a folder of its own."""
    (folder / "program.py").write_text(dedent(code))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (HERE, *paths)))}
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def listed() -> set[str]:
    """Names of the reference, with their modules."""
    module, names = "", set()
    for line in (ROOT / "docs" / "reference.rst").read_text().splitlines():
        if line.startswith(".. currentmodule::"):
            module = line.split("::")[1].strip()
        elif re.fullmatch(r"   [\w.]+", line):
            names.add(f"{module}.{line.strip()}")
    return names


def imported(file: Path) -> set[str]:
    """Names of the library that a file imports."""
    tree = ast.walk(ast.parse(file.read_text()))
    found = [(each.module or "", each.names) for each in tree if isinstance(each, ast.ImportFrom)]
    return {f"{module}.{alias.name}" for module, names in found for alias in names if module.startswith("consilience")}


def test_the_package_imports_only_what_the_reference_lists() -> None:
    assert {name for file in FILES for name in imported(file)} - listed() == set()
    assert not any(re.search(r"^\s*import consilience", file.read_text(), re.MULTILINE) for file in FILES)
    assert len({file.name for file in FILES if imported(file)}) == 3


def test_the_page_on_engines_has_this_engine() -> None:
    page = (ROOT / "docs" / "develop" / "write-your-own-engine.rst").read_text()
    body = (HERE / "conmedian" / "pool.py").read_text().split('"""\n\n', 1)[1]
    assert re.sub(r"\s+", " ", body) in re.sub(r"\s+", " ", page)


@pytest.mark.slow
def test_the_method_runs_on_the_engine_with_the_bits_of_this_process(tmp_path: Path) -> None:
    code = (
        DATA
        + """
from conmedian.method import MedianOfSites
from conmedian.pool import ProcessPool
from consilience import Engine, Federation, MixtureOfRegressions, load

if __name__ == "__main__":
    def fit(sites):
        return sites.fit(MixtureOfRegressions(2, random_state=0), MedianOfSites())

    pool = ProcessPool()
    assert isinstance(pool, Engine)
    with Federation.from_parquet("part-*.parquet", target="y", engine=pool) as sites:
        result = fit(sites)
        scores = sites.predict(result.model, "scores")
    here = fit(Federation.from_parquet("part-*.parquet", target="y"))
    assert np.array_equal(result.model.coef_, here.model.coef_)
    assert result.fit.log_likelihood == here.fit.log_likelihood
    assert scores.rows == 3000
    try:
        pool._pool.submit(len, "")
    except RuntimeError:
        pass
    else:
        raise AssertionError("the pool is open")
    result.model.save("model.json")
    print(result.model.stop_reason_)
    print(load("model.json").stop_reason_)
    print(result.model.inference_.withheld["experts"])
    print(len(result.record.rounds), np.isnan(result.model.inference_.standard_errors().experts).all())
    result.report("report.html")
    assert "medians of the fits" in result.model.summary()
"""
    )
    assert python(code, tmp_path).splitlines() == [
        "stopped: medians of the fits of the sites, without iterations",
        "stopped: the method ended by a rule of its own",
        "medians of the fits of the sites have no standard errors",
        "3 True",
    ]


FAMILY = """
import warnings
import numpy as np
from consilience.model import FAMILIES
from conmedian.zero_inflated import ZeroInflatedPoissonExperts

{registered}
from consilience import Federation, MixtureOfRegressions

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
x = rng.uniform(-1, 1, (6000, 1))
rate = np.exp(np.where(rng.random(6000) < 0.5, 2 + x[:, 0], 0.5 - x[:, 0]))
y = np.where(rng.random(6000) < 0.2, 0, rng.poisson(rate)).astype(float)
model = MixtureOfRegressions(2, family="third_party_zip", random_state=0)
pooled = model.fit(x, y)
sites = Federation({{"north": (x[:2000], y[:2000]), "south": (x[2000:], y[2000:])}})
found = sites.fit(model).model
print(np.abs(found.coef_ - pooled.coef_).max() < 1e-6, pooled.converged_, found.zero_shares_.round(1)[0])
"""


@pytest.mark.long  # the test of its entry point runs the same program
def test_the_family_fits_here_and_over_sites(tmp_path: Path) -> None:
    code = FAMILY.format(registered='FAMILIES["third_party_zip"] = ZeroInflatedPoissonExperts')
    assert python(code, tmp_path) == "True True 0.2"


@pytest.mark.slow
def test_the_family_is_found_by_its_entry_point(tmp_path: Path) -> None:
    package = tmp_path / "conmedian-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: conmedian\nVersion: 1.0\n")
    point = "third_party_zip = conmedian.zero_inflated:ZeroInflatedPoissonExperts"
    (package / "entry_points.txt").write_text(f"[consilience.families]\n{point}\n")
    known = "from consilience.model import FAMILIES\nprint('third_party_zip' in FAMILIES)"
    if python(known, tmp_path, tmp_path) == "False":
        pytest.skip("families are not read from entry points yet: consilience.model.FAMILIES does not know this one")
    assert python(FAMILY.format(registered=""), tmp_path, tmp_path) == "True True 0.2"


@pytest.mark.slow
def test_the_engine_keeps_the_contracts_by_its_name() -> None:
    contracts = [sys.executable, "-m", "pytest", "tests/contracts", "--engine", "conmedian.pool:ProcessPool", "-q"]
    some = "order or digests or views or each or closed or stops_a_run or (bits_are and 2-streamed)"
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    command = [*contracts, "-p", "no:cacheprovider", "-k", some]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert re.search(r"\b1\d passed", done.stdout), done.stdout
