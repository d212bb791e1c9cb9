"""A platform engineer: a folder of Parquet files, a Dask cluster, a journal, and scores."""

import logging
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from consilience import DaskCluster, Federation, MixtureOfExpertsRegressor


def write_shards(folder, files=8, rows=2000):
    """Write simulated claims, with two columns of text, unless they are there."""
    if folder.exists():
        return
    folder.mkdir()
    for i in range(files):
        rng = np.random.default_rng(i)
        age, km = rng.uniform(0, 20, rows), rng.uniform(1, 40, rows)
        fuel = rng.choice(["diesel", "gas", "petrol"], rows)
        region = rng.choice(["east", "north", "west"], rows)
        total_loss = rng.random(rows) < np.where(region == "north", 0.6, 0.2)
        small, large = 5 + 0.2 * km + 3 * (fuel == "diesel"), 40 - age
        cost = np.where(total_loss, large, small) + rng.normal(0, 2, rows)
        columns = {"age": age, "km": km, "fuel": fuel, "region": region, "cost": cost}
        table = pa.table({"id": np.arange(rows) + i * rows, **columns})
        pq.write_table(table, folder / f"claims-{i:02d}.parquet")


# Workers are processes that import this file: what they must not repeat stands below this line.
if __name__ == "__main__":
    write_shards(Path("claims"))

    # A line per round. Without these lines the run is silent.
    log = logging.getLogger("consilience")
    log.setLevel(logging.INFO)
    log.addHandler(logging.StreamHandler(sys.stdout))

    # Answers are kept in the journal. After Ctrl-C, or a crash, the same command goes on from
    # there. Each file gets a Parquet file of scores; what is scored already is not scored again.
    model = MixtureOfExpertsRegressor(n_experts=2, random_state=0)
    columns = {"target": "cost", "features": ["age", "km", "fuel", "region"]}
    with DaskCluster(n_workers=2, memory_limit="1GB") as cluster:
        claims = Federation.from_parquet("claims/*.parquet", **columns, engine=cluster)
        result = claims.fit(model, journal="fit.journal")
        scores = claims.predict(result.model, out="scores", keep="id")

    print(result)
    print(result.model.summary())
    print(scores)
    print(pq.read_table(scores.files[0]).slice(0, 5).to_pandas().round(3).to_string())
