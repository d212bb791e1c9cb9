"""A model that is saved and loaded gives the same bits, and says what it cannot do."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import consilience
from consilience import Federation, GaussianMixture, MixtureOfExpertsRegressor
from consilience.errors import InvalidInputError
from consilience.model import Design
from saved_models import CASES, covariates, fitted, frame, response

FAST = ("one-expert", "regressions", "categories-reference", "mixture-diag", "classes-of-booleans")
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in CASES if name not in FAST]


def same(one: Any, other: Any) -> bool:
    """Whether two results are equal to the bit, and of the same type."""
    if isinstance(one, tuple):
        return all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, Design):
        return all(same(getattr(one, part.name), getattr(other, part.name)) for part in fields(Design))
    if isinstance(one, np.ndarray):
        numbers = one.dtype.kind == "f"
        return bool(np.array_equal(one, other, equal_nan=numbers)) and one.dtype.kind == other.dtype.kind
    return type(one) is type(other) and (one.equals(other) if hasattr(one, "equals") else one == other)


def results(model: Any, X: Any, y: Any, metadata: dict[str, Any]) -> dict[str, Any]:
    """Everything that a fitted model can be asked for."""
    sizes = {name: value for name, value in metadata.items() if name != "groups"}
    found = {
        "gate": model.predict_gate(X),
        "summary": model.summary(level=0.9),
        "frame": model.to_frame(),
        "html": model._repr_html_(),
        "words": model.describe(),
        "doubts": model.doubts_,
        "degeneracy": model.degeneracy_,
        **{name: getattr(model, name)(X, y, **metadata) for name in ("aic", "bic", "icl")},
    }
    if model.mixture_.gate.reads_covariates:
        found["contrasts"] = model.summary(reference=0)
    if isinstance(model, GaussianMixture):
        return found | {
            "predict": model.predict(X),
            "probabilities": model.predict_proba(X),
            "density": model.score_samples(X),
            "sample": model.sample(9, random_state=3),
        }
    found |= {
        "predict": model.predict(X, **sizes),
        "experts": model.predict_experts(X, return_std_error=True, **sizes),
        "density": model.log_density(X, y, **sizes),
        "responsibilities": model.responsibilities(X, y, **metadata),
        "sample": model.sample(X, random_state=3, **sizes),
    }
    if hasattr(model, "predict_proba"):
        found["probabilities"] = model.predict_proba(X)
    elif model.mixture_.experts.q == 1:
        found["quantiles"] = model.predict_quantiles(X, **sizes)
    return found


@pytest.mark.parametrize("name", [*FAST, *OTHERS])
def test_everything_a_model_says_is_the_same_after_a_round_trip(name: str, tmp_path: Path) -> None:
    model, X, y, metadata = fitted(name)
    model.save(tmp_path / "model.json")
    again = consilience.load(tmp_path / "model.json")
    before, after = results(model, X, y, metadata), results(again, X, y, metadata)
    assert [key for key in before if not same(before[key], after[key])] == []


@pytest.mark.parametrize("name", [*FAST, *OTHERS])
def test_fitted_attributes_and_parameters_are_the_same_after_a_round_trip(name: str, tmp_path: Path) -> None:
    model, *_ = fitted(name)
    model.save(tmp_path / "model.json")
    again = consilience.load(tmp_path / "model.json")
    assert again.get_params().keys() == model.get_params().keys()
    assert {
        key: value
        for key, value in again.get_params().items()
        if value != model.get_params()[key] and list(value) != list(model.get_params()[key])
    } == {}
    public = [key for key in vars(model) if key.endswith("_") and key not in ("mixture_", "inference_")]
    assert len(public) > 14
    assert [key for key in public if not same(getattr(model, key), getattr(again, key))] == []
    C, loaded = model.inference_.covariance, again.inference_.covariance
    assert np.array_equal(C, loaded, equal_nan=True)


@pytest.mark.parametrize("name", FAST)
def test_a_loaded_model_is_saved_to_the_same_file_but_for_the_date(name: str, tmp_path: Path) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    fitted(name)[0].save(one)
    consilience.load(one).save(other)
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in (one, other)]
    for document in documents:
        assert document["provenance"].pop("saved")
    assert documents[0] == documents[1]
    assert not list(tmp_path.glob(".*"))  # nothing is left of the writing


def test_a_loaded_model_reads_frames_with_the_same_checks(tmp_path: Path) -> None:
    fitted("categories-reference")[0].save(tmp_path / "model.json")
    again = consilience.load(tmp_path / "model.json")
    with pytest.raises(InvalidInputError, match="'fuel' has levels that were not in the fit: 'coal'"):
        again.predict(frame().assign(fuel="coal"))
    with pytest.raises(InvalidInputError, match="pass those, in that order"):
        again.predict(frame()[["fuel", "age", "dose", "new"]])


def test_sizes_of_the_fit_are_remembered(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(60, 1))
    y = np.random.default_rng(1).poisson(2.0, 60)
    model = MixtureOfExpertsRegressor(1, family="poisson").fit(x, y, exposure=np.full(60, 2.0))
    model.save(tmp_path / "model.json")
    with pytest.raises(InvalidInputError, match="the model was fitted with exposure"):
        consilience.load(tmp_path / "model.json").bic(x, y)


def test_a_model_saved_without_a_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not fitted"):
        GaussianMixture(2).save(tmp_path / "model.json")


@pytest.mark.parametrize("kind", ["sandwich", "bootstrap"])
def test_standard_errors_of_another_kind_need_the_fit(kind: str, tmp_path: Path) -> None:
    model, X, y, _ = fitted("regressions")
    model.save(tmp_path / "model.json")
    with pytest.raises(InvalidInputError, match=r"loaded from a file.*Fit again"):
        consilience.load(tmp_path / "model.json").infer(X, y, kind=kind)


def test_a_fit_may_start_from_a_loaded_mixture(tmp_path: Path) -> None:
    model, X, y, _ = fitted("regressions")
    model.save(tmp_path / "model.json")
    again = consilience.load(tmp_path / "model.json")
    warm = again.set_params(mixture_init=again.mixture_).fit(X, y)
    assert warm.n_iter_ <= 3
    assert warm.log_likelihood_ == pytest.approx(model.log_likelihood_, abs=1e-6)
    assert warm.infer(X, y).kind == "sandwich"


def test_assigned_standard_errors_are_saved(tmp_path: Path) -> None:
    model = MixtureOfExpertsRegressor(1).fit(covariates(), response())
    model.inference_ = model.infer(covariates(), response(), kind="sandwich")
    model.save(tmp_path / "model.json")
    again = consilience.load(tmp_path / "model.json")
    assert again.summary() == model.summary()
    assert again.inference_.kind == "sandwich"


def test_standard_errors_of_another_model_are_refused(tmp_path: Path) -> None:
    model = MixtureOfExpertsRegressor(1).fit(covariates(), response())
    model.inference_ = MixtureOfExpertsRegressor(1).fit(covariates(), 2 * response()).inference_
    with pytest.raises(InvalidInputError, match="inference_ is not that of mixture_"):
        model.save(tmp_path / "model.json")


def test_parameters_that_were_changed_after_the_fit_are_refused(tmp_path: Path) -> None:
    model = MixtureOfExpertsRegressor(1).fit(covariates(), response())
    model.set_params(n_experts=2)
    with pytest.raises(InvalidInputError, match="the mixture has 1 experts; the parameters say 2"):
        model.save(tmp_path / "model.json")
    assert not list(tmp_path.iterdir())


def test_numpy_values_as_parameters_are_saved(tmp_path: Path) -> None:
    model = MixtureOfExpertsRegressor(
        np.int64(1), tol=np.float64(1e-8), gate_features=pd.Index(["x1"]), random_state=np.random.RandomState(0)
    ).fit(covariates(), response())
    model.save(tmp_path / "model.json")
    again = consilience.load(tmp_path / "model.json")
    assert (again.n_experts, again.tol, again.gate_features, again.random_state) == (1, 1e-8, ["x1"], None)


def test_names_of_sites_are_written_only_if_asked_for(tmp_path: Path) -> None:
    X, y, path = covariates(), response(), tmp_path / "model.json"
    sites = Federation({"ward seven": (X[:120], y[:120]), "ward nine": (X[120:], y[120:])})
    model = sites.fit(consilience.MixtureOfRegressions(1)).model
    model.save(path)
    assert "ward" not in path.read_text(encoding="utf-8")
    again = consilience.load(path)
    assert again.provenance_["n_sites"] == 2
    assert again.summary() == model.summary()
    with pytest.raises(InvalidInputError, match="the names of sites are not known"):
        again.save(path, site_names=True)
    model.save(path, site_names=True)
    assert consilience.load(path).provenance_["site_names"] == ["ward seven", "ward nine"]


def test_doubts_that_name_sites_are_saved_without_the_names(tmp_path: Path) -> None:
    X, y, path = covariates(), response(), tmp_path / "model.json"
    model = (
        Federation({"ward seven": (X[:120], y[:120]), "ward nine": (X[120:], y[120:])})
        .fit(consilience.MixtureOfRegressions(1))
        .model
    )
    model.doubts_ = ("ward nine disagrees", "the gate is a constant")
    model.save(path)
    assert "ward" not in path.read_text(encoding="utf-8")
    assert consilience.load(path).doubts_ == ("sites disagree, whose names were not saved", "the gate is a constant")
    model.save(path, site_names=True)
    assert consilience.load(path).doubts_ == model.doubts_


@pytest.mark.slow
@pytest.mark.parametrize("method", ["OneShot", "SharedCentre"])
def test_models_of_federated_methods_say_the_same_after_a_round_trip(method: str, tmp_path: Path) -> None:
    X, y = covariates(), response()
    sites = Federation({f"site {i}": (X[i::3], y[i::3]) for i in range(3)})
    estimator = consilience.MixtureOfRegressions(2, random_state=0)
    result = sites.fit(estimator, method=getattr(consilience, method)())
    for model in (result.model, *result.models.values()):
        model.save(tmp_path / "model.json")
        again = consilience.load(tmp_path / "model.json")
        assert again.summary() == model.summary()
        assert again.to_frame().equals(model.to_frame())
        assert again.degeneracy_ == model.degeneracy_


def test_the_covariance_of_many_parameters_is_saved_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.files.model_document.WHOLE_UP_TO", 10)
    model, X, y, _ = fitted("categories-reference")
    model.save(tmp_path / "model.json")
    again = consilience.load(tmp_path / "model.json")
    before, after = results(model, X, y, {}), results(again, X, y, {})
    assert [key for key in before if not same(before[key], after[key])] == []
    assert np.isnan(again.inference_.covariance).any()  # covariances of different experts are not written


def test_a_failed_writing_leaves_the_older_file(tmp_path: Path) -> None:
    model, *_ = fitted("regressions")
    with pytest.raises(InvalidInputError, match="cannot be written"):
        model.save(tmp_path / "missing" / "model.json")
