"""Heart rate of 22 people with what tells them apart, beside Table 1 of arXiv:2312.09877.

The printed RMSE of one model for all rows, 8.58, is near that of a model of each user (8.71 in ``mmash``), and far
from that of one model with the accelerometer and the clock alone (13.67). The paper does not name its covariates; the
data set also has weight, height, age and questionnaires of each user. Here every tenth second is used, split as in
``mmash``. Columns that are constant in a user can at most tell users apart, as an indicator of each user does: with
22 users, weight, height, age and 19 scores give the same linear predictors as 21 indicators. So the tries are weight,
height and age; the indicators; the indicators with twice as many experts; one regression of each user; and a mixture
of experts of each user.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable

import numpy as np

from benchmarks.lib.datasets import DataError, load_table
from benchmarks.lib.study import Record, Study, stopwatch, table
from benchmarks.one_shot.mmash import PAPER_ROWS, STARTS, K, Measurements, errors, figures, read, split
from consilience import MixtureOfExpertsRegressor
from consilience.errors import ConsilienceWarning

Columns = Callable[[Measurements], np.ndarray]
ONE_MODEL = {"accelerometer, posture, clock": K, "with weight, height, age": K, "with indicators of users": K}
MORE_EXPERTS = {"with indicators of users": 2 * K}


def described(measured: Measurements) -> np.ndarray:
    """The covariates, and weight, height and age of the user; the age 0 of one user counts as missing: the mean."""
    source = load_table("mmash_user_info")
    known = np.column_stack([source[name].to_numpy() for name in ("Weight", "Height", "Age")]).astype(float)
    known[known == 0] = np.nan
    known = np.where(np.isnan(known), np.nanmean(known, axis=0), known)
    return np.column_stack([measured.X, known[measured.user - 1]])


def indicated(measured: Measurements) -> np.ndarray:
    """The covariates, and an indicator of each user but the first."""
    return np.column_stack([measured.X, measured.user[:, None] == np.arange(2, 23)]).astype(float)


COLUMNS: dict[str, Columns] = {
    "accelerometer, posture, clock": lambda measured: measured.X,
    "with weight, height, age": described,
    "with indicators of users": indicated,
}


def mixture(train: Measurements, test: Measurements, columns: Columns, experts: int) -> Record:
    """One mixture for all users."""
    model = MixtureOfExpertsRegressor(n_experts=experts, n_init=STARTS, random_state=0)
    with stopwatch() as watch:
        model.fit(columns(train), train.y)
    seen = Measurements(columns(test), test.y, test.user)
    return figures(model.mixture_, seen) | {"cpu": watch.cpu, "converged": bool(model.converged_)}


def regression(train: Measurements, test: Measurements, columns: Columns) -> Record:
    """One regression for all users."""
    return errors(predicted(train, test, columns), test.y)


def regressions(train: Measurements, test: Measurements) -> Record:
    """A regression of each user."""
    found = np.empty(len(test.y))
    for user in np.unique(test.user):
        own = test.user == user
        found[own] = predicted(train.at(train.user == user), test.at(own), COLUMNS["accelerometer, posture, clock"])
    return errors(found, test.y)


def predicted(train: Measurements, test: Measurements, columns: Columns) -> np.ndarray:
    """Least squares."""
    A, B = (np.column_stack([np.ones(len(part.y)), columns(part)]) for part in (train, test))
    return B @ np.linalg.lstsq(A, train.y, rcond=None)[0]


def mixtures(train: Measurements, test: Measurements, experts: int) -> Record:
    """A mixture of each user."""
    found, log_likelihood = np.empty(len(test.y)), 0.0
    with stopwatch() as watch:
        for user in np.unique(test.user):
            own, part = test.user == user, train.at(train.user == user)
            model = MixtureOfExpertsRegressor(n_experts=experts, n_init=STARTS, random_state=0).fit(part.X, part.y)
            found[own] = model.predict(test.X[own])
            log_likelihood += figures(model.mixture_, test.at(own))["log-likelihood"] * int(own.sum())
    return errors(found, test.y) | {"log-likelihood": log_likelihood / len(test.y), "cpu": watch.cpu}


def tried(train: Measurements, test: Measurements, key: str) -> Record:
    """``model/covariates/experts``."""
    model, name, experts = key.split("/")
    if model == "one regression":
        return regression(train, test, COLUMNS[name])
    if model == "a regression of each user":
        return regressions(train, test)
    if model == "a mixture of each user":
        return mixtures(train, test, int(experts))
    return mixture(train, test, COLUMNS[name], int(experts))


def row(record: Record) -> Record:
    model, covariates, experts = record["key"].split("/")
    density = record.get("log-likelihood")
    return {
        "model": model,
        "covariates": covariates,
        "experts": int(experts),
        "RMSE": f"{record['RMSE']:.2f}",
        "RPE": f"{record['RPE']:.2%}",
        "R2": f"{record['R2']:.3f}",
        "log-likelihood per row": None if density is None else f"{density:.3f}",
    }


def printed_row() -> Record:
    _, _, rpe, rmse, _, _ = PAPER_ROWS[0]
    named = {"model": "one mixture, printed", "covariates": "not named", "experts": "not stated"}
    return named | {"RMSE": f"{rmse}", "RPE": f"{rpe:.2f}%", "R2": None, "log-likelihood per row": None}


def main() -> None:
    study = Study(__file__, __doc__)
    warnings.simplefilter("ignore", ConsilienceWarning)
    try:
        train, test = split(read(*((4, 400) if study.quick else (22, 10))))
    except DataError as missing:
        sys.exit(f"this study needs data that are not there: {missing}")
    first = next(iter(COLUMNS))
    keys = [
        *(f"one regression/{name}/1" for name in COLUMNS),
        *(f"one mixture/{name}/{experts}" for part in (ONE_MODEL, MORE_EXPERTS) for name, experts in part.items()),
        f"a regression of each user/{first}/1",
        f"a mixture of each user/{first}/{K}",
    ]
    records = study.replicate(keys, lambda key: tried(train, test, key))
    title = f"Heart rate of {len(test.y)} test rows, from {len(train.y)} rows: with and without what tells users apart"
    study.save(table(title, [*map(row, records), printed_row()]))


if __name__ == "__main__":
    main()
