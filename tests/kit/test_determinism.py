"""The content of a site file is a function of study, policy and rows: not of the run, or the number of threads."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
from consilience.datasets.hospitals import STUDY, hospitals
from consilience.files.json_text import canonical_bytes
from consilience.kit.study import Study
from consilience.kit.policy.policy import Policy
from consilience.kit.site_fit import site_file
import hashlib
import sys
name = sys.argv[1]
file = site_file(Study.from_text(STUDY), name, hospitals()[name], Policy.of_profile("hospital"))
print(hashlib.sha256(canonical_bytes(file.content)).hexdigest())
"""
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def content(name: str, threads: int) -> str:
    variables = {**os.environ, **dict.fromkeys(THREADS, str(threads))}
    command = [sys.executable, "-c", SCRIPT, name]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cedar", pytest.param("ash", marks=pytest.mark.long)])
def test_content_is_the_same_to_the_byte_twice_and_for_one_and_two_threads(name):
    assert content(name, 1) == content(name, 1) == content(name, 2)
