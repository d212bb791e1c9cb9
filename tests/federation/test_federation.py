"""Federations: arrays or shards in, one fitted model and its record out."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone

from answering import Calls, failing
from consilience import (
    FederatedEM,
    Federation,
    GaussianMixture,
    InProcess,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    MixtureOfRegressions,
    OneShot,
)
from consilience.errors import (
    ConvergenceWarning,
    DegenerateFitWarning,
    InvalidInputError,
    JournalError,
    RoundStoppedError,
    SetAsideWarning,
    UntrustedWarning,
)
from consilience.messages import Summarise, Total
from consilience.model import Rows
from consilience.site import respond
from families import SIZED
from simulated import Simulated, simulated

ESTIMATORS = {
    "gaussian": MixtureOfExpertsRegressor(2, random_state=0, n_init=2),
    "categorical": MixtureOfExpertsClassifier(2, random_state=0, n_init=2),
    "poisson": MixtureOfExpertsRegressor(2, family="poisson", random_state=0, n_init=2),
}


def split(case: Simulated, sites: int = 3) -> dict[str, dict[str, np.ndarray]]:
    """The rows of a case as sites: whole blocks of rows, so that groups of consecutive rows stay whole."""
    parts = {}
    for i, index in enumerate(np.array_split(np.arange(case.rows.n), sites)):
        data = {"X": case.X[index], "y": case.y[index]}
        if case.rows.weight is not None:
            data["sample_weight"] = case.rows.weight[index]
        if case.rows.exposure is not None:
            data["exposure"] = case.rows.exposure[index]
        if case.rows.groups is not None:
            data["groups"] = case.rows.groups.codes[index]
        parts[f"site {i}"] = data
    return parts


@pytest.mark.slow
@pytest.mark.parametrize("family", ESTIMATORS)
@pytest.mark.parametrize("group_size", [1, 5])
def test_the_federated_model_is_the_pooled_one(family: str, group_size: int) -> None:
    case = simulated(family, n=900, group_size=group_size, weights=True, exposure=family in SIZED, seed=2)
    metadata = {"sample_weight": case.rows.weight}
    if case.rows.exposure is not None:
        metadata["exposure"] = case.rows.exposure
    if case.rows.groups is not None:
        metadata["groups"] = case.rows.groups.codes
    estimator = clone(ESTIMATORS[family]).set_params(mixture_init=case.truth)
    pooled = clone(estimator).fit(case.X, case.y, **metadata)
    model = Federation(split(case)).fit(estimator).model
    assert model.log_likelihood_ == pytest.approx(pooled.log_likelihood_, rel=1e-9)
    np.testing.assert_allclose(model.coef_, pooled.coef_, atol=1e-4)
    np.testing.assert_allclose(model.weights_, pooled.weights_, atol=1e-5)
    np.testing.assert_allclose(
        model.inference_.standard_errors().flat(), pooled.inference_.standard_errors().flat(), rtol=1e-3
    )
    np.testing.assert_allclose(
        model.inference_.degrees_of_freedom().flat(), pooled.inference_.degrees_of_freedom().flat(), rtol=1e-3
    )
    assert model.n_labels_ == pytest.approx(pooled.n_labels_)
    assert model.summary() == pooled.summary()
    np.testing.assert_allclose(model.predict(case.X[:5]), pooled.predict(case.X[:5]), atol=1e-3)


@pytest.mark.slow
def test_a_gaussian_mixture_needs_no_response() -> None:
    rng = np.random.default_rng(0)
    X = rng.permutation(np.concatenate([rng.normal(0, 1, (300, 2)), rng.normal(6, 1, (100, 2))]))
    result = Federation({"a": (X[:150],), "b": {"X": X[150:]}}).fit(GaussianMixture(2, random_state=0))
    pooled = GaussianMixture(2, random_state=0).fit(X)
    np.testing.assert_allclose(result.model.means_, pooled.means_, atol=1e-5)
    assert result.bic == pytest.approx(pooled.bic(X), rel=1e-9)
    assert result.aic == pytest.approx(pooled.aic(X), rel=1e-9)


@pytest.mark.slow
def test_the_estimator_itself_is_left_as_it_was() -> None:
    estimator = MixtureOfExpertsRegressor(2, random_state=0)
    Federation(split(simulated(n=300))).fit(estimator)
    assert not hasattr(estimator, "mixture_")


@pytest.mark.slow
def test_sites_may_be_empty_or_lack_a_class() -> None:
    case = simulated("categorical", n=600, C=3, seed=1)
    order = np.argsort(case.y, kind="stable")
    X, y = case.X[order], np.array(["low", "middle", "top"])[case.y[order].astype(int)]
    sites = {"a": (X[:100], y[:100]), "none": (X[:0], y[:0]), "b": (X[100:], y[100:])}
    assert len(set(y[:100])) == 1
    with pytest.warns((SetAsideWarning, UntrustedWarning)) as caught:  # sites with other classes do disagree
        model = Federation(sites).fit(MixtureOfExpertsClassifier(2, random_state=0)).model
    assert any("none: it has no rows" in str(warning.message) for warning in caught)
    assert model.classes_.tolist() == ["low", "middle", "top"]
    assert set(model.predict(X)) <= {"low", "middle", "top"}


@pytest.mark.slow
def test_frames_keep_their_names() -> None:
    case = simulated(n=400)
    frames = {
        "pandas": (pd.DataFrame(case.X[:200], columns=["age", "dose"]), case.y[:200]),
        "polars": (pl.DataFrame(case.X[200:], schema=["age", "dose"]), case.y[200:]),
    }
    model = Federation(frames).fit(MixtureOfExpertsRegressor(2, random_state=0)).model
    assert model.feature_names_in_.tolist() == ["age", "dose"]
    assert "dose" in model.summary()
    assert isinstance(model.to_frame(), pd.DataFrame)


def test_a_given_start_needs_no_round_of_starts() -> None:
    case = simulated(n=400)
    estimator = MixtureOfExpertsRegressor(2, mixture_init=case.truth, random_state=0)
    record = Federation(split(case)).fit(estimator).record
    assert [r.question for r in record.rounds if r.question != "Expect"] == ["Summarise", "Several"]
    assert "products of the scores" in record.rounds[-1].discloses


@pytest.mark.slow
def test_orders_are_compared_in_one_run() -> None:
    case = simulated(n=900, seed=3)
    chosen = Federation(split(case)).select_order(MixtureOfExpertsRegressor(random_state=0, n_init=2), orders=[1, 2, 3])
    assert chosen.best_order == 2
    assert chosen.best.model.n_experts == 2
    assert len({id(fitted.record) for fitted in chosen.fits}) == 1


def clusters(centres: tuple[float, ...], n: int = 90) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.permutation(np.concatenate([rng.normal(c, 1, (n, 1)) for c in centres]))


@pytest.mark.slow
def test_criteria_of_orders_are_those_of_the_pooled_rows() -> None:
    X = clusters((0.0, 5.0))
    frame = pl.DataFrame({"a": X[:, 0]})
    chosen = Federation({"north": (frame[:80],), "south": (frame[80:],)}).select_order(
        GaussianMixture(random_state=0), orders=[1, 2], criterion="icl"
    )
    table = chosen.to_frame()
    assert isinstance(table, pl.DataFrame)
    assert table.columns == ["order", "aic", "bic", "icl", "log_likelihood", "converged", "set_aside"]
    for name in ("aic", "bic", "icl"):
        pooled = [getattr(fitted.model, name)(frame) for fitted in chosen.fits]
        assert table[name].to_list() == pytest.approx(pooled, rel=1e-9)
    assert chosen.best_order == 2
    assert chosen.best.model.n_components == 2
    assert len(repr(chosen)) < 500
    assert repr(chosen).endswith("Selected by icl: 2.")


def test_icl_that_sites_do_not_state_is_refused_before_the_run_and_shown_as_unknown() -> None:
    case = simulated(n=120)
    estimator = MixtureOfExpertsRegressor(mixture_init=case.truth, random_state=0)
    federation = Federation(split(case))
    with pytest.raises(InvalidInputError, match="do not state the entropy of the responsibilities of gaussian experts"):
        federation.select_order(estimator, orders=[2], criterion="icl")
    chosen = federation.select_order(estimator, orders=[2])
    assert np.isnan(chosen.to_frame()["icl"][0])
    assert np.isfinite(chosen.to_frame()["bic"][0])
    assert "—" in repr(chosen)


@pytest.mark.slow
def test_a_degenerate_order_is_set_aside() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 1))
    y = X[:, 0] + rng.normal(size=120)
    y[:20] = 3 - X[:20, 0]  # on an exact line
    order = rng.permutation(120)
    X, y = X[order], y[order]
    sites = Federation({"north": (X[:60], y[:60]), "south": (X[60:], y[60:])})
    chosen = sites.select_order(MixtureOfRegressions(random_state=0), orders=[1, 2])
    assert chosen.fits[1].bic < chosen.fits[0].bic, "the exact fit no longer wins: change the data"
    assert "is at its bound, 1/100 of the largest (set by shape_ratio)" in chosen.set_aside[2]
    assert chosen.best_order == 1
    assert "2 experts are set aside: the variance of expert 2, with 2" in repr(chosen)
    with pytest.warns(DegenerateFitWarning, match="fits of all orders are degenerate"):
        assert sites.select_order(MixtureOfRegressions(random_state=0), orders=[2]).best_order == 2


def test_a_dialogue_of_ones_own() -> None:
    def mean():
        return (yield Total(Summarise(d=2, q=1))).y_mean

    case = simulated(n=100)
    done = Federation(split(case)).run(mean())
    np.testing.assert_allclose(done.value, case.rows.Y.mean(axis=0))
    assert len(done.record.rounds) == 1


@pytest.mark.slow
def test_a_fit_that_did_not_converge_says_so() -> None:
    case = simulated(n=300)
    estimator = MixtureOfExpertsRegressor(2, max_iter=1, random_state=0)
    with pytest.warns(ConvergenceWarning) as caught:
        Federation(split(case)).fit(estimator)
    assert caught[0].filename == __file__


@pytest.mark.slow
def test_verbose_shows_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    Federation(split(simulated(n=200))).fit(MixtureOfExpertsRegressor(2, random_state=0, verbose=True))
    assert "round" in capsys.readouterr().err


# ---------------------------------------------------------------------- what is said of sites


ONE_SHOT = MixtureOfExpertsRegressor(2, mixture_init=simulated().truth, random_state=0)


def flipped(sites: dict[str, dict[str, np.ndarray]], name: str) -> dict[str, dict[str, np.ndarray]]:
    """The sites, of which one has the other sign of the response."""
    return {**sites, name: {**sites[name], "y": -sites[name]["y"]}}


@pytest.mark.usefixtures("few_points")
@pytest.mark.parametrize("refine", [0, 1])
def test_a_site_that_is_set_aside_is_warned_of_with_the_reason(refine: int) -> None:
    sites = flipped(split(simulated(n=2_000, seed=3), 5), "site 3")
    with pytest.warns(SetAsideWarning, match="some sites were not used as a whole: site 3: ") as caught:
        result = Federation(sites).fit(ONE_SHOT, method=OneShot(refine=refine))
    (warning,) = caught
    assert warning.filename == __file__
    assert "site 3: 2 of its 2 experts are far from all experts of the other sites" in str(warning.message)
    assert not any(f"site {i}:" in str(warning.message) for i in (0, 1, 2, 4))
    assert str(warning.message).endswith("See FederatedFit.sites")
    assert {site.name: site.status for site in result.sites} == {
        f"site {i}": "set aside" if i == 3 else "used" for i in range(5)
    }
    assert result.sites[3].reasons[0] in str(warning.message)


@pytest.mark.usefixtures("few_points")
def test_a_shifted_response_is_set_aside_too() -> None:
    sites = split(simulated(n=2_000, seed=3), 5)
    sites["site 1"]["y"] = sites["site 1"]["y"] + 5.0
    with pytest.warns(SetAsideWarning, match="site 1: 2 of its 2 experts"):
        result = Federation(sites).fit(ONE_SHOT, method=OneShot(refine=1))
    assert "site 1" not in result.fit.members


@pytest.mark.usefixtures("few_points")
def test_a_site_without_a_model_is_warned_of() -> None:
    case = simulated(n=1_200, seed=3)
    sites = {"small": (case.X[:6], case.y[:6]), **split(case)}
    with pytest.warns(SetAsideWarning, match="small: it has too few rows for a fit of its own"):
        result = Federation(sites).fit(ONE_SHOT, method=OneShot(refine=1))
    assert [site.status for site in result.sites] == ["no model", "used", "used", "used"]
    assert result.model.n_labels_ == 1_206


@pytest.mark.usefixtures("few_points")
@pytest.mark.parametrize("refine", [0, 1])
def test_where_all_sites_are_used_nobody_is_warned(refine: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = Federation(split(simulated(n=1_200, seed=3))).fit(ONE_SHOT, method=OneShot(refine=refine))
    assert [(site.name, site.status, site.weight) for site in result.sites] == [
        (f"site {i}", "used", 400.0) for i in range(3)
    ]
    assert [site.distance for site in result.sites] == [site.distance for site in result.fit.combination.sites]


@pytest.mark.usefixtures("few_points")
def test_a_site_with_most_of_the_rows_alone_is_no_warning() -> None:
    case = simulated(n=1_200, seed=3)
    sites = {"large": (case.X[:800], case.y[:800]), "a": (case.X[800:1000], case.y[800:1000])}
    sites["b"] = (case.X[1000:], case.y[1000:])
    result = Federation(sites).fit(ONE_SHOT, method=OneShot(refine=0))
    assert str(result.sites[0]) == "large: used"
    assert result.fit.combination.set_aside == {}


@pytest.mark.usefixtures("few_points")
def test_several_orders_warn_once() -> None:
    sites = flipped(split(simulated(n=2_000, seed=3), 5), "site 3")
    estimator = clone(ONE_SHOT).set_params(n_init=1)
    with pytest.warns(SetAsideWarning, match="site 3: ") as caught:
        Federation(sites).select_order(estimator, orders=[1, 2], method=OneShot(refine=1))
    assert [warning.category for warning in caught] == [SetAsideWarning]


# ---------------------------------------------------------------------- journals


@pytest.mark.slow
def test_a_fit_with_a_journal_is_replayed(tmp_path: Path) -> None:
    case, path = simulated(n=300), tmp_path / "fit.journal"
    sites, estimator = split(case), MixtureOfExpertsRegressor(2, random_state=0)
    first = Federation(sites).fit(estimator, journal=path)
    again = Federation(sites).fit(estimator, journal=path)
    assert again.model.log_likelihood_ == first.model.log_likelihood_
    with pytest.raises(JournalError, match="another run"):
        Federation(sites).fit(MixtureOfExpertsRegressor(2, random_state=1), journal=path)
    with pytest.raises(JournalError, match="another run"):
        Federation(sites).fit(estimator, FederatedEM(n_climbs=2), journal=path)


@pytest.mark.slow
def test_a_journal_needs_a_seed(tmp_path: Path) -> None:
    for seed in (None, np.random.default_rng(0)):
        with pytest.raises(InvalidInputError, match="random_state as a whole number"):
            Federation(split(simulated(n=100))).fit(
                MixtureOfExpertsRegressor(random_state=seed), journal=tmp_path / "j"
            )
    assert Federation(split(simulated(n=100))).fit(MixtureOfExpertsRegressor(random_state=np.random.default_rng(0)))


# ---------------------------------------------------------------------- shards


def written(case: Simulated, folder: Path, shards: int = 3, **extra: np.ndarray) -> str:
    columns = {"a": case.X[:, 0], "b": case.X[:, 1], "y": case.y, **extra}
    for i, index in enumerate(np.array_split(np.arange(case.rows.n), shards)):
        pq.write_table(
            pa.table({name: values[index] for name, values in columns.items()}), folder / f"part-{i}.parquet"
        )
    return str(folder / "*.parquet")


@pytest.mark.slow
@pytest.mark.parametrize("in_memory", [False, True])
def test_shards_are_sites(tmp_path: Path, in_memory: bool) -> None:
    case = simulated(n=900, seed=2)
    table = Federation.from_parquet(written(case, tmp_path), target="y", in_memory=in_memory)
    result = table.fit(ESTIMATORS["gaussian"])
    pooled = ESTIMATORS["gaussian"].fit(case.X, case.y)
    assert result.record.sites == ("part-0.parquet", "part-1.parquet", "part-2.parquet")
    assert result.model.feature_names_in_.tolist() == ["a", "b"]
    assert result.model.log_likelihood_ == pytest.approx(pooled.log_likelihood_, rel=1e-9)


@pytest.mark.slow
def test_shards_with_roles(tmp_path: Path) -> None:
    case = simulated("poisson", n=600, weights=True, exposure=True, group_size=5, seed=2)
    pattern = written(case, tmp_path, w=case.rows.weight, e=case.rows.exposure, g=case.rows.groups.codes)
    table = Federation.from_parquet(pattern, target="y", features=["b", "a"], weight="w", exposure="e", groups="g")
    model = table.fit(ESTIMATORS["poisson"]).model
    pooled = ESTIMATORS["poisson"].fit(
        case.X[:, ::-1],
        case.y,
        sample_weight=case.rows.weight,
        exposure=case.rows.exposure,
        groups=case.rows.groups.codes,
    )
    assert model.log_likelihood_ == pytest.approx(pooled.log_likelihood_, rel=1e-9)


@pytest.mark.slow
def test_columns_with_another_role_are_no_covariates(tmp_path: Path) -> None:
    case = simulated("poisson", n=300, weights=True, exposure=True, group_size=5, seed=2)
    pattern = written(case, tmp_path, w=case.rows.weight, e=case.rows.exposure, g=case.rows.groups.codes)
    table = Federation.from_parquet(pattern, target="y", weight="w", exposure="e", groups="g")
    assert table.fit(ESTIMATORS["poisson"]).model.feature_names_in_.tolist() == ["a", "b"]


@pytest.mark.slow
def test_shards_with_classes(tmp_path: Path) -> None:
    case = simulated("categorical", n=600, C=3, seed=1)
    words = np.array(["c", "a", "b"])[case.y.astype(int)]
    written(case, tmp_path)
    for i, index in enumerate(np.array_split(np.arange(600), 3)):
        columns = {"a": case.X[index, 0], "b": case.X[index, 1], "y": words[index]}
        pq.write_table(pa.table(columns), tmp_path / f"part-{i}.parquet")
    one = clone(ESTIMATORS["categorical"]).set_params(n_init=1)
    model = Federation.from_parquet(str(tmp_path / "*.parquet"), target="y").fit(one).model
    parts = np.array_split(np.arange(600), 3)
    arrays = Federation({str(i): (case.X[index], words[index]) for i, index in enumerate(parts)})
    assert model.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(model.coef_, arrays.fit(one).model.coef_, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_shards_without_a_response(tmp_path: Path) -> None:
    case = simulated(n=300)
    table = Federation.from_parquet(written(case, tmp_path), features=["a", "b"])
    assert table.fit(GaussianMixture(2, random_state=0)).model.means_.shape == (2, 2)
    with pytest.raises(InvalidInputError, match="name the column of the response"):
        table.fit(MixtureOfRegressions(2, random_state=0))
    with pytest.raises(InvalidInputError, match="a Gaussian mixture has no target"):
        Federation.from_parquet(written(case, tmp_path), target="y").fit(GaussianMixture(2))


def test_a_group_in_two_shards_is_refused(tmp_path: Path) -> None:
    case = simulated(n=30)
    pattern = written(case, tmp_path, g=np.arange(30) // 4)
    with pytest.raises(InvalidInputError, match=r"a group of column 'g' has rows in .*part-0.*part-1"):
        Federation.from_parquet(pattern, target="y", groups="g")


@pytest.mark.slow
def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    case = simulated(n=300)
    table = Federation.from_parquet(written(case, tmp_path), target="y")
    (tmp_path / "part-1.parquet").unlink()
    with pytest.raises(RoundStoppedError, match=r"part-1.parquet: the data were not found"):
        table.fit(ESTIMATORS["gaussian"])
    with pytest.warns(SetAsideWarning, match=r"some sites left the run: part-1\.parquet"):
        result = table.fit(ESTIMATORS["gaussian"], on_drop="continue")
    assert result.model.n_labels_ == 200
    assert "part-1.parquet" in result.record.dropped


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("sites", "said"),
    [
        ({}, "at least one site"),
        ({"a": [1, 2]}, r"site a: expected \(X, y\)"),
        ({"a": {"y": [1.0]}}, "site a: expected X"),
        ({"a": {"X": [[1.0]], "z": 1}}, "site a: expected X"),
    ],
)
def test_sites_that_are_none(sites: object, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        Federation(sites)  # type: ignore[arg-type]


def test_sites_with_other_columns_are_refused() -> None:
    case = simulated(n=60)
    with pytest.raises(ValueError, match="site b has 1 columns"):
        Federation({"a": (case.X, case.y), "b": (case.X[:, :1], case.y)}).fit(ESTIMATORS["gaussian"])
    with pytest.raises(InvalidInputError, match="rows and columns"):
        Federation({"a": (case.y, case.y)}).fit(ESTIMATORS["gaussian"])
    with pytest.raises(InvalidInputError, match="one class over all sites"):
        Federation({"a": (case.X, np.ones(60))}).fit(ESTIMATORS["categorical"])


def test_a_start_of_another_kind_is_refused() -> None:
    case = simulated("poisson", n=60)
    estimator = MixtureOfExpertsRegressor(2, mixture_init=case.truth, random_state=0)
    with pytest.raises(InvalidInputError, match="another family of experts"):
        Federation(split(simulated(n=60))).fit(estimator)


def test_an_order_must_be_asked_for() -> None:
    with pytest.raises(InvalidInputError, match="orders is empty"):
        Federation(split(simulated(n=60))).select_order(ESTIMATORS["gaussian"], orders=[])


@pytest.mark.slow
def test_the_number_of_threads_changes_no_bit() -> None:
    case = simulated(n=600)
    one, four = (Federation(split(case, 7), InProcess(threads)).fit(ESTIMATORS["gaussian"]).model for threads in (1, 4))
    np.testing.assert_array_equal(one.coef_, four.coef_)
    np.testing.assert_array_equal(one.gate_coef_, four.gate_coef_)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [400, 5000])
def test_streamed_and_kept_rows_give_the_same_fit_but_for_rounding(tmp_path: Path, rows: int) -> None:
    case = simulated(n=2 * rows, weights=True, seed=3)
    pattern = written(case, tmp_path, shards=2, w=case.rows.weight)
    streamed, kept = (
        Federation.from_parquet(pattern, target="y", weight="w", in_memory=in_memory).fit(ESTIMATORS["gaussian"])
        for in_memory in (False, True)
    )
    np.testing.assert_allclose(streamed.model.coef_, kept.model.coef_, rtol=1e-9, atol=1e-9)
    assert streamed.model.log_likelihood_ == pytest.approx(kept.model.log_likelihood_, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("times", [range(4, 14, 3), pytest.param(range(4, 14), marks=pytest.mark.long)], ids=str)
def test_orders_are_compared_over_the_same_rows_when_a_site_leaves(
    times: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = simulated(n=900, seed=3)
    calls = Calls(monkeypatch)
    sites = {"small": (case.X[:300], case.y[:300]), "large": (case.X[300:], case.y[300:])}
    for time in times:
        calls.asked.clear()
        calls.misbehave("large", failing, time=time)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SetAsideWarning)  # that a site left the run
            chosen = Federation(sites).select_order(
                MixtureOfExpertsRegressor(random_state=0), orders=[1, 2], on_drop="continue"
            )
        assert len({fitted.model.n_labels_ for fitted in chosen.fits}) == 1, time
        assert chosen.best_order == 2, time
        calls._misbehaviour.clear()


@pytest.mark.slow
def test_a_site_that_leaves_at_the_end_leaves_a_fit_of_those_that_stayed(monkeypatch: pytest.MonkeyPatch) -> None:
    case = simulated(n=900, seed=3)

    def refuses_information(question, site):
        return failing(question, site) if getattr(question, "information", False) else respond(question, site)

    Calls(monkeypatch).misbehave("large", refuses_information)
    sites = {"small": (case.X[:300], case.y[:300]), "large": (case.X[300:], case.y[300:])}
    with pytest.warns(SetAsideWarning, match="some sites left the run: large"):
        result = Federation(sites).fit(
            MixtureOfExpertsRegressor(2, random_state=0), FederatedEM(newton=False), on_drop="continue"
        )
    assert result.model.n_labels_ == 300
    assert len(result.fit.ascent.segments) == 2
    again = MixtureOfExpertsRegressor(2, mixture_init=result.model.mixture_, random_state=0)
    alone = again.fit(case.X[:300], case.y[:300])
    np.testing.assert_allclose(result.model.coef_, alone.coef_, atol=1e-3)
    assert result.model.inference_.decrement < 0.01


@pytest.mark.slow
def test_what_went_wrong_is_told_here_in_full(tmp_path: Path) -> None:
    table = Federation.from_parquet(written(simulated(n=90), tmp_path), target="y")
    (tmp_path / "part-1.parquet").unlink()
    with pytest.warns(SetAsideWarning):
        table.fit(ESTIMATORS["gaussian"], on_drop="continue")
    assert table.traces.keys() == {"part-1.parquet"}
    assert "Traceback" in table.traces["part-1.parquet"][0]


def test_more_experts_than_rows_are_refused() -> None:
    case = simulated(n=4)
    with pytest.raises(InvalidInputError, match="n_samples=4 rows for 5 experts"):
        Federation(split(case, 2)).fit(MixtureOfExpertsRegressor(5, random_state=0))


def test_groups_at_some_sites_only_are_refused() -> None:
    case = simulated(n=60)
    with pytest.raises(InvalidInputError, match="some sites have groups"):
        Federation({"a": (case.X, case.y), "b": {"X": case.X, "y": case.y, "groups": np.arange(60) // 3}})


def test_a_classifier_needs_classes_everywhere() -> None:
    with pytest.raises(InvalidInputError, match="needs y at every site"):
        Federation({"a": (simulated(n=30).X,)}).fit(ESTIMATORS["categorical"])


@pytest.mark.slow
def test_a_random_state_is_honoured() -> None:
    sites = split(simulated(n=300))
    one, two = (
        Federation(sites).fit(MixtureOfExpertsRegressor(2, random_state=np.random.RandomState(3))).model.coef_
        for _ in range(2)
    )
    np.testing.assert_array_equal(one, two)


def test_a_dialogue_over_responses_only_and_bad_arrays() -> None:
    def mean():
        return (yield Total(Summarise(d=0, q=2))).y_mean

    X = simulated(n=30).X
    np.testing.assert_allclose(Federation({"a": {"X": X, "sample_weight": [1] * 30}}).run(mean()).value, X.mean(axis=0))
    for bad in (X[:, 0], np.full((3, 2), np.nan)):
        with pytest.raises(InvalidInputError, match="finite numbers"):
            Federation({"a": (bad,)}).run(mean())


# ---------------------------------------------------------------------- what is opened is closed


class Counting(InProcess):
    """Counts what is open."""

    def __init__(self) -> None:
        super().__init__(threads=1)
        self.overs, self.open, self.closed = 0, 0, 0

    def over(self, sites, *, in_memory=False):
        found = super().over(sites, in_memory=in_memory)
        self.overs, self.open = self.overs + 1, self.open + 1
        found.close = self._ended
        return found

    def _ended(self) -> None:
        self.open -= 1

    def close(self) -> None:
        self.closed += 1


def counted(n: int = 200) -> tuple[Federation, Counting]:
    engine = Counting()
    return Federation(split(simulated(n=n)), engine), engine


def means():
    return (yield Total(Summarise(d=2, q=1))).y_mean


@pytest.mark.slow
def test_what_a_run_opened_is_closed_after_it() -> None:
    sites, engine = counted()
    sites.run(means())
    assert (engine.overs, engine.open) == (1, 0)
    sites.fit(ESTIMATORS["gaussian"])
    assert (engine.overs, engine.open) == (2, 0)
    sites.select_order(ESTIMATORS["gaussian"], orders=[1, 2])
    assert (engine.overs, engine.open) == (3, 0)
    assert engine.closed == 0  # the engine is that of who opened it


def test_what_a_run_opened_is_closed_after_an_error() -> None:
    def unasked():
        yield 1

    sites, engine = counted()
    for wrong in (unasked(), means):
        with pytest.raises(InvalidInputError, match="dialogue"):
            sites.run(wrong)
    assert (engine.overs, engine.open) == (2, 0)


def test_a_federation_in_a_with_statement_closes_its_engine() -> None:
    for_all, engine = counted()
    with for_all as sites:
        assert sites is for_all
        assert engine.closed == 0
        sites.run(means())
    assert (engine.open, engine.closed) == (0, 1)
    with pytest.raises(ZeroDivisionError), for_all:
        raise ZeroDivisionError
    assert engine.closed == 2
    with Federation(split(simulated(n=60))) as sites:  # an engine of its own
        sites.run(means())


def test_an_engine_that_lacks_a_method_is_refused() -> None:
    class Half:
        def over(self, sites, *, in_memory=False):
            return object()

    class Unable(InProcess):
        over = Half.over

    with pytest.raises(InvalidInputError, match=r"got a Half, expected an engine; it lacks the method each and close"):
        Federation(split(simulated(n=60)), Half())
    with pytest.raises(InvalidInputError, match=r"a Unable returned a object without sites and ask and close"):
        Federation(split(simulated(n=60)), Unable()).run(means())


@pytest.mark.slow
def test_options_of_a_run_are_honoured_or_refused() -> None:
    sites, _ = counted()
    shown = []
    sites.fit(ESTIMATORS["gaussian"], progress=lambda *what: shown.append(what))
    assert ("Summarise", 3, 3) in shown
    with pytest.raises(RoundStoppedError, match="stopped after 2 rounds"):
        sites.fit(ESTIMATORS["gaussian"], most_rounds=2)
    with pytest.raises(TypeError, match="dedline"):
        sites.fit(ESTIMATORS["gaussian"], dedline=3)
    with pytest.raises(InvalidInputError, match="on_drop='ask'"):
        sites.fit(ESTIMATORS["gaussian"], on_drop="ask")


@pytest.mark.parametrize("order", ["C", "F"])
def test_views_have_the_bits_of_their_copies(order: str) -> None:
    case = simulated(n=900, weights=True)
    X = np.asarray(case.X, order=order)
    views = {"X": X[::3], "y": case.y[::3], "sample_weight": case.rows.weight[::3]}
    copies = {name: np.array(view, order="C") for name, view in views.items()}
    model = clone(ESTIMATORS["gaussian"])
    one, two = (model.fit(*data.values()).coef_.copy() for data in (views, copies))
    np.testing.assert_array_equal(one, two)
    other = {"X": case.X[1::3], "y": case.y[1::3], "sample_weight": case.rows.weight[1::3]}
    one, two = (Federation({"a": data, "b": other}).fit(model).fit.mixture for data in (views, copies))
    np.testing.assert_array_equal(one.experts.B, two.experts.B)


def test_contiguous_arrays_are_not_copied() -> None:
    X = simulated(n=60).X
    for kept in (X, np.asfortranarray(X), X[10:30]):
        assert Rows(kept, np.zeros((len(kept), 1))).X is kept
