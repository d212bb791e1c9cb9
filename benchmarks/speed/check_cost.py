"""CPU of an iteration with and without the checks of answers, interleaved.

2,000,000 rows with 20 covariates in 16 sites of this process, four experts with a softmax gate; an iteration is one
round in which every site computes its statistics at a mixture and the coordinator adds them. The checks are those of
the site and of the coordinator: what no data can give, and what does not change between answers. Informed iterations
include the observed information. The fingerprint of rows in memory is computed once; of files, once for each change.
Aim: at most 3 % of the CPU.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from importlib import import_module
from unittest import mock

import numpy as np

from benchmarks.lib.study import Record, Study, rounded, table
from consilience.datasets import soft
from consilience.engines import InProcess
from consilience.fit import Expect
from consilience.messages import Total
from consilience.messages import table as messages
from consilience.model import Rows
from consilience.runs import run
from consilience.runs.consistency import Consistency
from consilience.site import Site

SITES = 16


@contextmanager
def unchecked():
    module = import_module("consilience.site.answer")  # the name in the package is the function
    with (
        mock.patch.object(messages, "impossible_part", return_value=""),
        mock.patch.object(module, "_checked", side_effect=lambda _, message: message),
        mock.patch.object(Consistency, "failure", return_value=None),
    ):
        yield


def rounds(mixture, information: bool, times: int):
    for _ in range(times):
        yield Total(Expect(mixture, information=information))


def seconds(engine, mixture, information: bool) -> float:
    began = time.process_time()
    run(rounds(mixture, information, 1), engine)
    return time.process_time() - began


def main() -> None:
    study = Study(__file__, __doc__)
    n, times = (200_000, 3) if study.quick else (2_000_000, 31)
    data = soft(n, random_state=0)
    parts = np.array_split(np.arange(n), SITES)
    sites = [Site(f"site {m}", Rows(data.X[part], data.y[part, None])) for m, part in enumerate(parts)]
    engine = InProcess(1).over(sites)
    began = time.process_time()
    for site in sites:
        _ = site.fingerprint
    once = time.process_time() - began
    shown: list[Record] = []
    for information in (False, True):
        with_checks, without = [], []
        for _ in range(times):
            with_checks.append(seconds(engine, data.truth, information))
            with unchecked():
                without.append(seconds(engine, data.truth, information))
        ratio = np.array(with_checks) / np.array(without)
        shown.append(
            {
                "iteration": "with information" if information else "plain",
                "median CPU without checks": rounded(float(np.median(without))),
                "median ratio": rounded(float(np.median(ratio))),
                "ratios from": rounded(float(ratio.min())),
                "to": rounded(float(ratio.max())),
                "fingerprint, once": rounded(once),
            }
        )
    study.save(table("cost of the checks", shown))


if __name__ == "__main__":
    main()
