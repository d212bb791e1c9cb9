"""Many covariates and many experts: seconds of a pass, and bytes of a site's answer.

Gaussian experts behind a softmax gate, 20,000 rows of standard normal covariates, up to d = 500 and K = 50; CPU time of
one thread, medians of three passes. Above 1,500 parameters of the gate its curvature is block-diagonal, and above 3,000
parameters in all no information is computed. The answer of ``FederatedEM`` is that of one climb, in its largest round
with the information; ``GradientEM`` sends scores only. From 16 MB on, ``FederatedEM`` warns before it starts.
"""

from __future__ import annotations

import numpy as np

from benchmarks.lib.study import Record, Study, rounded, stopwatch, table
from consilience.fit import Specification
from consilience.messages import encode
from consilience.methods.federated_em import LARGE, bytes_of_answer
from consilience.model import Rows, expect
from consilience.model.expectation import score_sums
from consilience.model.information import is_informable
from consilience.model.summary import column_summary

SIZES = ((20, 4), (100, 10), (200, 20), (500, 4), (500, 20), (500, 50))


def measured(d: int, K: int, n: int, repeats: int) -> Record:
    rng = np.random.default_rng(0)
    rows = Rows(rng.normal(size=(n, d)), rng.normal(size=(n, 1)))
    mixture = Specification(K=K).blank(column_summary(rows))
    spent = []
    for _ in range(repeats):
        with stopwatch() as watch:
            statistics = expect(mixture, rows)
        spent.append(watch.cpu)
    long, short = len(encode(statistics)), len(encode(score_sums(mixture, rows)))
    return {
        "d": d,
        "K": K,
        "CPU s of a pass": rounded(float(np.median(spent))),
        "µs a row": rounded(1e6 * float(np.median(spent)) / n),
        "FederatedEM, MB an answer": rounded(long / 1e6),
        "in its largest round": rounded(bytes_of_answer(mixture, climbs=1) / 1e6),
        "GradientEM, MB an answer": rounded(short / 1e6),
        "standard errors": is_informable(mixture),
        "warned": bytes_of_answer(mixture, climbs=1) >= LARGE,
    }


def main() -> None:
    study = Study(__file__, __doc__)
    sizes, n, repeats = (SIZES[:2], 2_000, 1) if study.quick else (SIZES, 20_000, 3)
    study.save(table(f"A pass over {n:,} rows", [measured(d, K, n, repeats) for d, K in sizes]))


if __name__ == "__main__":
    main()
