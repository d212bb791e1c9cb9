"""A study of shards that can be interrupted: fits and scores the files of a folder, on either engine.

Run as ``python shard_study.py ENGINE FOLDER``; FOLDER has ``data/*.parquet`` and gets a journal, ``scores`` and the
coefficients. The log of the rounds goes to the error output.
"""

from __future__ import annotations

import logging
import signal
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from consilience import DaskCluster, Federation, MixtureOfExpertsRegressor


def main(engine: str, folder: Path) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what a shell starts in the background
    log = logging.getLogger("consilience")
    log.setLevel(logging.INFO)
    log.addHandler(logging.StreamHandler())
    with DaskCluster(n_workers=2, memory_limit="1GB") if engine == "dask" else nullcontext() as cluster:
        features = ["x0", "x1", "x2"]
        table = Federation.from_parquet(f"{folder}/data/*.parquet", target="y", features=features, engine=cluster)
        result = table.fit(MixtureOfExpertsRegressor(2, random_state=0, n_init=2), journal=folder / "fit.journal")
        scores = table.predict(result.model, folder / "scores", keep="id")
    np.save(folder / "coef.npy", np.concatenate([result.model.coef_, result.model.gate_coef_]))
    sys.stdout.write(f"{result}\n{scores}\n{result.model.summary()}\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
