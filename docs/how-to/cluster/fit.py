"""Fit a model to all rows of the files in the folder data."""

import logging

from consilience import DaskCluster, Federation, MixtureOfExpertsRegressor

if __name__ == "__main__":
    log = logging.getLogger("consilience")
    log.setLevel(logging.INFO)  # a line per round
    log.addHandler(logging.StreamHandler())
    features = [f"x{j}" for j in range(20)]
    with DaskCluster(n_workers=4, memory_limit="1GB") as cluster:
        table = Federation.from_parquet(
            "data/*.parquet",
            target="y",
            features=features,
            engine=cluster,
        )
        result = table.fit(MixtureOfExpertsRegressor(4, random_state=0), journal="fit.journal")
        result.model.save("model.json")
        scores = table.predict(result.model, "scores", keep="id")
    print(result)  # an overview; result.record says what was asked
    print(scores)
    print(result.model.summary())
