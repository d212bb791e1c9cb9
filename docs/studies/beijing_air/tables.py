"""Write one table per station, tables/Aotizhongxin.parquet and so on, from the public file."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

whole = parquet.read_table(Path(os.environ["CONSILIENCE_DATA"], "beijing_air", "beijing_air_quality.parquet"))
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
