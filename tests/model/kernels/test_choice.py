"""Which kernel a pass takes, and that both give the same sums for every family and gate."""

import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from consilience import MixtureOfExpertsRegressor
from consilience.datasets import soft
from consilience.model import Rows, expect
from consilience.model.kernels import NUMPY, kernel_for, panels
from consilience.model.kernels import panels as choice
from consilience.numerics.threads import jobs
from simulated import FAMILIES, simulated
from strategies import contributions

AGREEMENT = 1e-11


@pytest.fixture
def compiled(monkeypatch):
    """Compile every pass, also over few rows, in blocks that do not end with a whole vector."""
    pytest.importorskip("numba")
    monkeypatch.setattr(choice, "COMPILED_FROM", 0)
    monkeypatch.setattr(panels, "BLOCK_ROWS", 61)


def both_ways(mixture, rows, monkeypatch, **options):
    assert kernel_for(rows.n, mixture.design.p).name == "numba"
    fast = expect(mixture, rows, **options)
    with monkeypatch.context() as patch:
        patch.setattr(choice, "COMPILED_FROM", sys.maxsize)
        return fast, expect(mixture, rows, **options)


@pytest.mark.parametrize("gate", ["softmax", "constant"])
@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_agree_for_every_family_and_gate(family, gate, compiled, monkeypatch):
    data = simulated(family, gate=gate, n=150, d=3, seed=1)
    fast, slow = both_ways(data.truth, data.rows, monkeypatch, information=True)
    assert np.all(np.abs(fast.to_array() - slow.to_array()) <= AGREEMENT * contributions(data.truth, data.rows))


@pytest.mark.parametrize(
    "options",
    [
        {"weights": True},
        {"group_size": 3},
        {"group_size": 3, "weights": True},
        {"q": 2, "structure": "diag"},
        {"intercept": False},
        {"family": "poisson", "exposure": True},
        {"family": "categorical", "C": 4},
    ],
    ids=str,
)
def test_kernels_agree_for_weights_groups_and_sizes(options, compiled, monkeypatch):
    data = simulated(n=150, **options)
    fast, slow = both_ways(data.truth, data.rows, monkeypatch, information=True)
    assert np.all(np.abs(fast.to_array() - slow.to_array()) <= AGREEMENT * contributions(data.truth, data.rows))


@pytest.mark.parametrize("information", [False, True])
@pytest.mark.parametrize("kernel", ["numpy", "numba"])
def test_sums_have_the_same_bits_for_any_number_of_threads(kernel, information, monkeypatch):
    monkeypatch.setattr(panels, "BLOCK_ROWS", 61)
    if kernel == "numba":
        pytest.importorskip("numba")
        monkeypatch.setattr(choice, "COMPILED_FROM", 0)
    data = simulated(n=1000, d=4, group_size=2, weights=True)
    alone = expect(data.truth, data.rows, information=information).to_array()
    for number in (2, 3, 8):
        with jobs(number):
            np.testing.assert_array_equal(expect(data.truth, data.rows, information=information).to_array(), alone)


@pytest.mark.parametrize("group_size", [1, 3])
def test_given_responsibilities_are_those_of_their_labels_in_threads(group_size, monkeypatch):
    monkeypatch.setattr(panels, "BLOCK_ROWS", 50)
    data = simulated(n=400, group_size=group_size)
    given = data.truth.responsibilities(data.rows).T
    with jobs(2):
        shared = expect(data.truth, data.rows, given=given)
    np.testing.assert_array_equal(shared.to_array(), expect(data.truth, data.rows, given=given).to_array())


def test_few_rows_and_many_features_are_left_to_numpy():
    assert kernel_for(choice.COMPILED_FROM - 1, 21) is NUMPY
    assert kernel_for(10**9, panels.SHARED_PRODUCTS_UP_TO + 1) is NUMPY


@pytest.mark.slow
@pytest.mark.parametrize(
    "hidden",
    ["sys.modules['numba'] = None", "import os; os.environ['NUMBA_DISABLE_JIT'] = '1'"],
    ids=["not installed", "not compiling"],
)
def test_without_numba_a_large_pass_is_one_of_numpy(hidden):
    code = f"""
import sys
{hidden}
from consilience.datasets import soft
from consilience.model import Rows, expect
from consilience.model.kernels import kernel_for, panels as choice
data = soft(choice.COMPILED_FROM, random_state=0)
assert expect(data.truth, Rows(data.X, data.y[:, None])).weight == choice.COMPILED_FROM
print(kernel_for(choice.COMPILED_FROM, 21).name)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "numpy"


@pytest.mark.slow
def test_machine_code_that_cannot_be_kept_leaves_passes_to_numpy(tmp_path):
    pytest.importorskip("numba")
    pytest.importorskip("resource")
    code = """
import os, resource, sys
os.environ["NUMBA_CACHE_DIR"] = sys.argv[1]
import numba
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
from consilience.model.kernels import kernel_for, panels
os.write(1, kernel_for(panels.COMPILED_FROM, 21).name.encode())
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "numpy"


@pytest.mark.parametrize("name", ["compiled.py", "compiled_residuals.py"])
def test_a_file_of_cached_functions_changes_with_those_that_are_compiled_into_it(name):
    folder = Path(choice.__file__).parent
    source = (folder / name).read_text(encoding="utf-8")
    other, stamp = re.search(r'^BUILT_FROM = \("(\w+\.py)", "(\w+)"\)$', source, re.MULTILINE).groups()
    assert sha256((folder / other).read_text(encoding="utf-8").encode()).hexdigest()[:16] == stamp


@pytest.mark.slow
def test_a_small_fit_does_not_load_numba():
    code = """
import sys
from consilience import MixtureOfExpertsRegressor
from consilience.datasets import soft
data = soft(500, random_state=0)
MixtureOfExpertsRegressor(4, random_state=0, n_init=1, max_iter=3).fit(data.X, data.y)
print("numba" in sys.modules)
"""
    out = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


@pytest.mark.slow
def test_a_fit_with_threads_is_the_fit_without():
    data = soft(40_000, random_state=0)
    models = [MixtureOfExpertsRegressor(4, random_state=0, n_init=2, n_jobs=n).fit(data.X, data.y) for n in (None, 2)]
    np.testing.assert_array_equal(models[0].trace_, models[1].trace_)
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


@pytest.mark.slow
def test_compiled_passes_over_blocks_of_many_sizes_add_up(compiled, monkeypatch):
    data = soft(603, random_state=0)
    rows = Rows(data.X, data.y[:, None])
    scale = contributions(data.truth, rows)
    for size in (16, 255, 256, 603):
        monkeypatch.setattr(panels, "BLOCK_ROWS", size)
        fast, slow = both_ways(data.truth, rows, monkeypatch, information=True)
        assert np.all(np.abs(fast.to_array() - slow.to_array()) <= AGREEMENT * scale)
