"""Write one table per station, tables/Aotizhongxin.parquet and so on, from the public file."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from consilience.datasets import load_table

whole = load_table("beijing_air")  # from the folder that CONSILIENCE_DATA names
table = pa.table(
    {
        "log_dust": pc.ln(whole["PM2.5"]),
        "temperature": whole["TEMP"],
        "dryness": pc.subtract(whole["TEMP"], whole["DEWP"]),
        "wind": whole["WSPM"],
    }
)
Path("tables").mkdir(exist_ok=True)
for site in pc.unique(whole["station"]).to_pylist():
    parquet.write_table(table.filter(pc.equal(whole["station"], site)), f"tables/{site}.parquet")
