import json
from pathlib import Path

import numpy as np

model = json.loads(Path("model.json").read_text(encoding="utf-8"))
X = np.loadtxt("rows.csv", delimiter=",", skiprows=1)  # (n, d), the columns of the model in their order
design = np.hstack([np.ones((len(X), 1)), X]) if model["mixture"]["intercept"] else X  # (n, p)
logits = design @ np.array(model["mixture"]["gate"]["alpha"]).T  # (n, K)
gate = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
means = np.einsum("np,kp->nk", design, np.array(model["mixture"]["experts"]["B"])[:, 0])  # (n, K)
np.savetxt("predicted.csv", np.column_stack([(gate * means).sum(axis=1), gate]), delimiter=",", header="mean,gate")
