"""Score new files, which have no response, on a cluster of Dask that runs."""

from distributed import LocalCluster

import consilience
from consilience import DaskCluster, Federation

if __name__ == "__main__":
    model = consilience.load("model.json")
    with LocalCluster(n_workers=2, threads_per_worker=1) as local:
        new = Federation.from_parquet("new/*.parquet", engine=DaskCluster(local))
        print(new.predict(model, "scores-of-new", keep="id"))
