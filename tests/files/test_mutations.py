"""Mutated files of all kinds are read or refused with a sentence, quickly and in little memory."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from fuzzing import MOST_GROWTH, fuzz
from fuzzing_files import FILE_READERS
done = fuzz(2_000, readers=FILE_READERS)
assert sum(done.counts.values()) == 2_000
for reader in FILE_READERS:
    assert done.counts[f"{{reader.__name__}}: refused"] > 20, done.counts
    assert not done.counts[f"{{reader.__name__}}: refused without a sentence"]
assert done.growth < MOST_GROWTH, done.growth
assert not done.problems, done.problems
"""


@pytest.mark.slow
def test_two_thousand_mutated_files_are_read_or_refused_in_a_process_of_their_own() -> None:
    script = SCRIPT.format(tests=str(Path(__file__).parents[1]))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
