"""A biostatistician: one model for the patients of five hospitals, and which hospital differs."""

import numpy as np
import pandas as pd

import consilience
from consilience import FederatedEM, Federation, MixtureOfExpertsRegressor, OneShot

# Simulated patients, one CSV file per hospital. Some patients respond to the drug and others hardly
# do; the older they are, the fewer. Oak has swapped the names of drug and placebo.
rng = np.random.default_rng(0)
for hospital, effect in {"ash": 11.5, "birch": 12, "cedar": 12.5, "elm": 13, "oak": 12}.items():
    n = int(rng.integers(500, 1001))
    patients = pd.DataFrame(
        {
            "age": rng.normal(60, 12, n).round(),
            "sex": rng.choice(["female", "male"], n),
            "treatment": rng.choice(["drug", "placebo"], n),
        }
    )
    responds = rng.random(n) < 1 / (1 + np.exp(0.08 * (patients.age - 60)))
    drug = patients.treatment == ("placebo" if hospital == "oak" else "drug")
    change = 5 + 2 * (patients.sex == "male") + 5 * responds + np.where(responds, effect, 3) * drug
    patients["change"] = (change + rng.normal(0, 2, n)).round(1)
    patients.to_csv(f"{hospital}.csv", index=False)

# Exact federated EM: the hospitals answer with sums over their rows, in some dozen rounds.
hospitals = Federation.from_parquet("*.csv", target="change")
print(hospitals)
model = MixtureOfExpertsRegressor(2, reference_levels={"treatment": "placebo"}, random_state=0)
exact = hospitals.fit(model, method=FederatedEM())
print(exact.model.summary())

# Which hospital is odd? A warning names it, and so does the report on each of them.
print("\nFederated EM:", *exact.sites, sep="\n  ")

# One-shot aggregation: one answer from each hospital, and two steps of refinement.
once = hospitals.fit(model, method=OneShot(refine=2))
print("\nOne-shot aggregation:", *once.sites, sep="\n  ")
print("Rounds of the two:", len(exact.record.rounds), len(once.record.rounds))

# How much do the other hospitals differ? I² is the part of the variation that sampling does not
# explain. Where Cochran's Q has a p-value below 0.01, intervals include the variance between
# hospitals, τ².
table = once.model.to_frame()
shown = ["expert", "term", "estimate", "lower", "upper", "I2", "tau2"]
print(table.loc[table["part"] == "expert", shown].round(2).to_string(index=False))

# The model is saved as JSON, without any row, and predicts the same when it is read back.
once.model.save("model.json")
again = consilience.load("model.json")
patient = pd.DataFrame({"age": [50, 75], "sex": ["female", "male"], "treatment": ["drug", "drug"]})
print("\nPredicted from the file:", again.predict(patient).round(1))
print("The same as before:", np.array_equal(again.predict(patient), once.model.predict(patient)))
