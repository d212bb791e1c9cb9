"""Write Parquet files to try a cluster on: 20 with a response, and 5 without."""

from pathlib import Path

import pandas as pd

from consilience.datasets import soft

data = soft(50_000, random_state=0)
rows = pd.DataFrame(data.X, columns=[f"x{j}" for j in range(20)])
rows = rows.assign(y=data.y, id=range(50_000)).sample(frac=1, random_state=0)
for i in range(25):
    path = Path(f"data/part-{i}.parquet") if i < 20 else Path(f"new/part-{i}.parquet")
    path.parent.mkdir(exist_ok=True)
    part = rows.iloc[i::25]
    (part if i < 20 else part.drop(columns="y")).to_parquet(path)
