"""Write one table per hospital, tables/cleveland.parquet and so on, from the public file."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

whole = csv.read_csv(Path(os.environ["CONSILIENCE_DATA"], "heart_disease", "heart_disease_4sites.csv"))
table = pa.table(
    {
        "disease": pc.if_else(pc.greater(whole["num"], 0), "yes", "no"),
        "age": whole["age"],
        "sex": pc.if_else(pc.equal(whole["sex"], 1), "male", "female"),
        "chol": whole["chol"],
        "thalach": whole["thalach"],
        "exang": pc.if_else(pc.equal(whole["exang"], 1), "yes", "no"),
        "oldpeak": whole["oldpeak"],
    }
)
Path("tables").mkdir(exist_ok=True)
for site in pc.unique(whole["site"]).to_pylist():
    parquet.write_table(table.filter(pc.equal(whole["site"], site)), f"tables/{site}.parquet")
