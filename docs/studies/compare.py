"""Print the log-likelihood of models on the rows of all sites: python compare.py RESPONSE MODEL...

Of a method with a model for each site, each site's rows are explained by its own model.
"""

import sys
from pathlib import Path

from pyarrow import parquet

from consilience import load

response, *names = sys.argv[1:]
tables = {path.stem: parquet.read_table(path).to_pandas().dropna() for path in sorted(Path("tables").glob("*.parquet"))}
n = sum(map(len, tables.values()))
for name in names:
    total = 0.0
    for site, table in tables.items():
        own = Path(f"{Path(name).stem}.{site.lower()}.json")
        model = load(own if own.exists() else name)
        total += model.log_density(table[list(model.feature_names_in_)], table[response]).sum()
    print(f"{name:<16} {total:>12,.0f} {total / n:>8.4f} a row")
