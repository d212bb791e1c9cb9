"""A scikit-learn user: columns of text, a pipeline, cross-validation and predictions."""

import numpy as np
import pandas as pd
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from consilience import MixtureOfExpertsRegressor, log_density_scorer

# A simulated table of 2,000 homes. Some of them are heated with electricity, which no column says.
rng = np.random.default_rng(0)
n = 2000
homes = pd.DataFrame(
    {
        "area": rng.lognormal(4.5, 0.4, n).round(1),
        "persons": rng.integers(1, 6, n),
        "kind": rng.choice(["flat", "house", "terrace"], n),
        "region": rng.choice(["coast", "hills", "plain"], n),
    }
)
electric = rng.random(n) < np.where(homes.region == "hills", 0.7, 0.2)
heating = 4000 + 5000 * np.log(homes.area / 90) + 1500 * (homes.kind == "house")
power = 1500 + 500 * homes.persons + np.where(electric, heating, 0) + rng.normal(0, 400, n)
train, test, y_train, y_test = train_test_split(homes, power, random_state=0)


# A mixture is the last step of a pipeline. It reads columns of text without an encoder.
def with_log_area(table):
    return table.assign(area=np.log(table.area / 90))


pipeline = make_pipeline(
    FunctionTransformer(with_log_area),
    MixtureOfExpertsRegressor(n_experts=2, random_state=0),
).fit(train, y_train)
print(pipeline[-1].summary())

# How many experts? R² sees the mean only; the density of the held-out responses sees the mixture.
search = GridSearchCV(
    pipeline,
    {"mixtureofexpertsregressor__n_experts": [1, 2, 3]},
    scoring=log_density_scorer,
    cv=3,
).fit(train, y_train)
scores = search.cv_results_["mean_test_score"].round(2)
print("\nMean log density of held-out homes with 1, 2 and 3 experts:", *scores)
print("Chosen:", search.best_params_)

# Predictions for new homes: the mean, and for each of them the probability of either expert.
best = search.best_estimator_
gate = best[-1].predict_gate(best[:-1].transform(test))
print("\nR² on the test rows:", round(best.score(test, y_test), 2))
shown = test.assign(prediction=best.predict(test).round(-1), expert_1=gate[:, 1].round(2))
print(shown.head().to_string())
