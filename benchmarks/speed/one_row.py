"""CPU of what an analyst waits for each time: the imports, a first fit, and the prediction of one row.

Imports and a first fit of 500 rows with two experts are taken in new processes, beside the imports
of scikit-learn that anyone who uses it has; the median of five each, one after the other. One row is predicted 500
times, from an array and from pandas frames, beside scikit-learn's linear regression on the same
numbers. Aims: imports and first fit together at most 2.5 s beside
scikit-learn's own import in the same run, one row at most 3 ms.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LinearRegression

from benchmarks.lib.study import Record, Study, rounded, table
from consilience import MixtureOfExpertsRegressor
from consilience.datasets import soft
from consilience.errors import ConsilienceWarning

STARTS = {
    "import numpy": "import numpy",
    "import scikit-learn's mixtures and linear models": "import sklearn.mixture, sklearn.linear_model",
    "import consilience": "import consilience",
    "import consilience, first fit": """
from consilience import MixtureOfExpertsRegressor
from consilience.datasets import soft
data = soft(500, random_state=0)
MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y)
""",
}
TIMES, PREDICTIONS = 5, 500


def cpu_of(code: str) -> float:
    """CPU seconds of a new process that runs the code."""
    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"{code}\nimport time; print(time.process_time())"],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(said.stdout.split()[-1])


def milliseconds(predict: Callable[[], Any]) -> float:
    """Median CPU of one call."""
    found = []
    for _ in range(PREDICTIONS):
        started = time.process_time()
        predict()
        found.append(time.process_time() - started)
    return 1000 * statistics.median(found)


def rows_of_starts(times: int) -> list[Record]:
    taken: dict[str, list[float]] = {name: [] for name in STARTS}
    for _ in range(times):
        for name, code in STARTS.items():
            taken[name].append(cpu_of(code))
    return [{"in a new process": name, "CPU s": rounded(statistics.median(each), 3)} for name, each in taken.items()]


def rows_of_predictions() -> list[Record]:
    data = soft(500, random_state=0)
    X, y, names = data.X, data.y, [f"x{j}" for j in range(data.X.shape[1])]
    numbers = pd.DataFrame(X, columns=names)
    frame = numbers.assign(kind=pd.Categorical(np.where(X[:, 0] > 0, "u", "v")))
    given = {}
    for ours, rows in {"array": X, "frame of numbers": numbers, "frame with a category": frame}.items():
        model = MixtureOfExpertsRegressor(2, random_state=0).fit(rows, y)
        given[f"mixture of experts, {ours}"] = partial(model.predict, rows[:1])
    for theirs, rows in {"array": X, "frame of numbers": numbers}.items():
        linear = LinearRegression().fit(rows, y)
        given[f"linear regression of scikit-learn, {theirs}"] = partial(linear.predict, rows[:1])
    return [{"one row": name, "CPU ms": rounded(milliseconds(call), 3)} for name, call in given.items()]


def main() -> None:
    study = Study(__file__, __doc__)
    warnings.simplefilter("ignore", ConsilienceWarning)
    study.save(
        table("From nothing to a fit", rows_of_starts(1 if study.quick else TIMES)),
        table("The prediction of one row", rows_of_predictions()),
    )


if __name__ == "__main__":
    main()
