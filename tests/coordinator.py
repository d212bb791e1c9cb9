"""A coordinator that can be killed: fits over six sites with a journal, and logs every answer that is asked for.

Run as ``python coordinator.py JOURNAL LOG RESULT``; the log has a line "digest of the question, site" for each call of
``answer``, the result is the encoded mixture.
"""

from __future__ import annotations

import importlib
import sys
import time
from hashlib import blake2b
from pathlib import Path

import numpy as np

from consilience.engines import InProcess
from consilience.fit import Expect, Specification
from consilience.messages import encode
from consilience.messages.questions import Identify
from consilience.methods import FederatedEM, Task
from consilience.model import Rows
from consilience.runs import Journal, run
from consilience.site import Site

answers = importlib.import_module("consilience.site.answer")  # the module, not the function of the same name
SITES = tuple("abcdef")


def sites() -> list[Site]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 2))
    label = rng.random(1200) < 0.5
    y = np.where(label, X @ [1.0, 2.0], X @ [-1.0, 0.5]) + 0.5 * rng.normal(size=1200)
    return [Site(name, Rows(X[i::6], y[i::6, None])) for i, name in enumerate(SITES)]


def main(journal: str, log: str, result: str) -> None:
    plain = answers.answer
    with Path(log).open("a", buffering=1) as file:

        def logged(question, site):
            if isinstance(question, Identify):  # asked when a journal is resumed
                return plain(question, site)
            file.write(f"{blake2b(encode(question), digest_size=8).hexdigest()} {site.name}\n")
            time.sleep(0.02)
            return plain(question, site)

        answers.answer = logged
        dialogue = FederatedEM(newton=False).dialogue(Task([Specification(K=2)], 2, 1, seed=0, n_init=2, max_iter=40))
        (fit,) = run(dialogue, InProcess().over(sites()), journal=Journal(journal, "a fit")).value
        Path(result).write_bytes(encode(Expect(fit.ascent.mixture)))


if __name__ == "__main__":
    main(*sys.argv[1:])
