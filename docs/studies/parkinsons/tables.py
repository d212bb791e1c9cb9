"""Write one table per made-up hospital, tables/hospital0.parquet to tables/hospital4.parquet, from the public file."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

whole = csv.read_csv(Path(os.environ["CONSILIENCE_DATA"], "parkinsons", "parkinsons_updrs.csv.gz"))
table = whole.select(
    ["total_UPDRS", "age", "sex", "test_time", "Jitter(%)", "Shimmer", "NHR", "HNR", "RPDE", "DFA", "PPE"]
)
home = whole["subject#"].to_numpy() % 5  # all recordings of a patient are at one hospital
Path("tables").mkdir(exist_ok=True)
for k in np.unique(home):
    parquet.write_table(table.filter(pa.array(home == k)), f"tables/hospital{k}.parquet")
