"""What a round over many small sites costs: a thousand sites of a thousand rows, in one process.

K = 4, d = 20. A round is one ``Total(Expect(mixture))``: the question is encoded, each site answers in a thread, each
answer is encoded, checked, decoded and added. The unit is the bare kernel, ``expect(mixture, rows)``, over the same
rows one site after the other. CPU time of all threads, rounds and bare loops in turn, medians. Aim: a round at most 3
units.
"""

from __future__ import annotations

import numpy as np

from benchmarks.lib.study import Record, Study, rounded, stopwatch, table
from consilience import InProcess
from consilience.datasets import soft
from consilience.fit import Expect
from consilience.messages import Total
from consilience.model import Mixture, Rows, expect
from consilience.model.summary import column_summary
from consilience.runs import run
from consilience.site import Site


def one_round(mixture: Mixture, information: bool):
    return (yield Total(Expect(mixture, information=information)))


def measure(sites: list[Site], mixture: Mixture, information: bool, repeats: int) -> Record:
    engine = InProcess().over(sites)
    bare, rounds, walls, record = [], [], [], None
    for repeat in range(repeats + 1):
        with stopwatch() as unit:
            for site in sites:
                expect(mixture, site.data, information=information)
        with stopwatch() as watch:
            record = run(one_round(mixture, information), engine).record
        if repeat:  # the first round warms up
            bare.append(unit.cpu)
            rounds.append(watch.cpu)
            walls.append(watch.wall)
    ratios = np.array(rounds) / np.array(bare)
    return {
        "sites": len(sites),
        "rows each": sites[0].data.n,
        "information": information,
        "CPU / bare kernel, median": rounded(float(np.median(ratios))),
        "smallest": rounded(float(ratios.min())),
        "largest": rounded(float(ratios.max())),
        "aim": "≤ 3",
        "wall s per round": rounded(float(np.median(walls))),
        "bytes to sites": record.bytes_sent,
        "bytes from sites": record.bytes_received,
    }


def main() -> None:
    study = Study(__file__, __doc__)
    count, repeats = (30, 2) if study.quick else (1000, 11)
    data = soft(count * 1000, random_state=0)
    parts = [slice(1000 * i, 1000 * i + 1000) for i in range(count)]
    sites = [Site(f"site {i}", Rows(data.X[part], data.y[part, None])) for i, part in enumerate(parts)]
    design = column_summary(Rows(data.X, data.y[:, None])).design(intercept=True)
    mixture = data.truth.in_coordinates(design)
    study.save(
        table("A round over many sites", [measure(sites, mixture, with_it, repeats) for with_it in (False, True)])
    )


if __name__ == "__main__":
    main()
