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
for name in ("ash", "cedar"):
    file = site_file(Study.from_text(STUDY), name, hospitals()[name], Policy.of_profile("hospital"))
    print(hashlib.sha256(canonical_bytes(file.content)).hexdigest())
"""
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def content(threads: int) -> str:
    variables = {**os.environ, **dict.fromkeys(THREADS, str(threads))}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_content_is_the_same_to_the_byte_twice_and_for_one_and_two_threads():
    assert content(1) == content(1) == content(2)
