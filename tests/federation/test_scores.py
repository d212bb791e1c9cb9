"""Scores of shards: the numbers of the model, whole files or none, resumed where they stopped."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal
from pyarrow import csv, parquet

from consilience import (
    Federation,
    GaussianMixture,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    MixtureOfRegressions,
)
from consilience.data import predict_files as scoring
from consilience.data import shards
from consilience.errors import InvalidInputError, RoundStoppedError
from simulated import simulated

N, FILES = 120, 3


def tables(**extra: Any) -> list[pa.Table]:
    data = simulated(n=N)
    columns = {"id": [f"{i:04d}" for i in range(N)], "a": data.X[:, 0], "b": data.X[:, 1], "y": data.y, **extra}
    return [pa.table({name: values[i::FILES] for name, values in columns.items()}) for i in range(FILES)]


def write(folder: Path, **extra: Any) -> list[Path]:
    folder.mkdir(exist_ok=True)
    paths = [folder / f"part-{i}.parquet" for i in range(FILES)]
    for path, table in zip(paths, tables(**extra), strict=True):
        parquet.write_table(table, path, row_group_size=7)
    return paths


def regressor() -> MixtureOfExpertsRegressor:
    data = simulated(n=N)
    frame = pa.table({"a": data.X[:, 0], "b": data.X[:, 1]})
    return MixtureOfExpertsRegressor(2, mixture_init=data.truth).fit(frame, data.y)


def frame(path: Path) -> pa.Table:
    return parquet.read_table(path).select(["a", "b"])


def federation(folder: Path, **roles: Any) -> Federation:
    return Federation.from_parquet(f"{folder}/*.parquet", **({"target": "y", "features": ["a", "b"]} | roles))


def test_scores_are_those_of_the_model_in_the_order_of_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "CHUNK", 16)  # several chunks, whose bounds are not those of the row groups
    paths, model = write(tmp_path / "in"), regressor()
    scores = federation(tmp_path / "in").predict(model, tmp_path / "out", keep=["id", "y"])
    assert scores.files == tuple(str(tmp_path / "out" / path.name) for path in paths)
    assert scores.rows == N
    for path, file in zip(paths, scores.files, strict=True):
        found, y = parquet.read_table(file), parquet.read_table(path)["y"].to_numpy()
        assert found.column_names == ["id", "y", "prediction", "expert", "responsibility_0", "responsibility_1"]
        assert found["id"].equals(parquet.read_table(path)["id"])
        assert np.allclose(found["prediction"].to_numpy(), model.predict(frame(path)), rtol=1e-13)
        resp = model.responsibilities(frame(path), y)
        assert np.allclose(found["responsibility_1"].to_numpy(), resp[:, 1], rtol=1e-12)
        assert_array_equal(found["expert"].to_numpy(), resp.argmax(axis=1))


def test_without_a_target_the_gate_is_written(tmp_path: Path) -> None:
    paths, model = write(tmp_path / "in"), regressor()
    scores = Federation.from_parquet(f"{tmp_path}/in/*.parquet").predict(model, tmp_path / "out")
    found = parquet.read_table(scores.files[1])
    assert found.column_names == ["prediction", "expert", "gate_0", "gate_1"]
    assert_array_equal(found["gate_0"].to_numpy(), model.predict_gate(frame(paths[1]))[:, 0])


def test_classes_have_probabilities_under_their_names(tmp_path: Path) -> None:
    data = simulated(n=N)
    labels = np.where(data.y > np.median(data.y), "yes", "no")
    paths = write(tmp_path / "in", y=labels)
    model = MixtureOfExpertsClassifier(2, random_state=0, n_init=1, max_iter=30, tol=1e-3)
    model.fit(pa.table({"a": data.X[:, 0], "b": data.X[:, 1]}), labels)
    for roles, last in (({}, "responsibility_1"), ({"target": None}, "gate_1")):
        out = tmp_path / last
        found = parquet.read_table(federation(tmp_path / "in", **roles).predict(model, out).files[0])
        assert found.column_names[:4] == ["prediction", "probability_no", "probability_yes", "expert"]
        assert found.column_names[-1] == last
        assert found["prediction"].to_pylist() == model.predict(frame(paths[0])).tolist()
        assert_array_equal(found["probability_yes"].to_numpy(), model.predict_proba(frame(paths[0]))[:, 1])


def test_components_of_a_gaussian_mixture_and_exposed_counts(tmp_path: Path) -> None:
    paths = write(tmp_path / "in")
    data = simulated(n=N)
    blobs = GaussianMixture(2, random_state=0, n_init=1).fit(pa.table({"a": data.X[:, 0], "b": data.X[:, 1]}))
    table = federation(tmp_path / "in", target=None)
    found = parquet.read_table(table.predict(blobs, tmp_path / "blobs").files[2])
    assert found.column_names == ["expert", "responsibility_0", "responsibility_1"]
    assert_array_equal(found["expert"].to_numpy(), blobs.predict(frame(paths[2])))

    counts, time_at_risk = np.arange(N) % 3, 1.0 + np.arange(N) % 5
    paths = write(tmp_path / "counts", y=counts, years=time_at_risk)
    rate = MixtureOfRegressions(1, family="poisson", random_state=0)
    rate.fit(pa.table({"a": data.X[:, 0], "b": data.X[:, 1]}), counts, exposure=time_at_risk)
    scores = federation(tmp_path / "counts", exposure="years").predict(rate, tmp_path / "rates")
    with pytest.raises(InvalidInputError, match=r"fitted with exposure: name its column, as in from_parq"):
        federation(tmp_path / "counts").predict(rate, tmp_path / "rates")
    assert rate._size_of_fit == "exposure"
    expected = rate.predict(frame(paths[0]), exposure=time_at_risk[::FILES])
    assert np.allclose(parquet.read_table(scores.files[0])["prediction"].to_numpy(), expected)


def test_categories_are_coded_as_in_the_fit(tmp_path: Path) -> None:
    fuel = np.array(["gas", "diesel", "petrol"])[np.arange(N) % 3]
    paths = write(tmp_path / "in", fuel=fuel)  # one level in each file
    data = simulated(n=N)
    columns = pa.table({"a": data.X[:, 0], "fuel": fuel})
    model = MixtureOfRegressions(1, random_state=0).fit(columns, data.y)
    scores = federation(tmp_path / "in", features=["fuel", "a"]).predict(model, tmp_path / "out")
    for path, file in zip(paths, scores.files, strict=True):
        expected = model.predict(parquet.read_table(path).select(["a", "fuel"]))
        assert np.allclose(parquet.read_table(file)["prediction"].to_numpy(), expected)


def test_a_csv_file_keeps_its_keys_as_text(tmp_path: Path) -> None:
    csv.write_csv(tables()[0], tmp_path / "a.csv")
    table = Federation.from_parquet(str(tmp_path / "a.csv"), target="y", features=["a", "b"])
    scores = table.predict(regressor(), tmp_path / "out", keep="id")
    assert scores.files[0].endswith("out/a.csv.parquet")
    assert parquet.read_table(scores.files[0])["id"].to_pylist()[:2] == ["0000", "0003"]


def test_a_file_without_rows_has_scores_without_rows(tmp_path: Path) -> None:
    paths = write(tmp_path / "in")
    parquet.write_table(parquet.read_table(paths[1]).slice(0, 0), paths[1])
    scores = federation(tmp_path / "in").predict(regressor(), tmp_path / "out", keep="id")
    full, empty = (parquet.read_table(file) for file in scores.files[:2])
    assert empty.num_rows == 0
    assert empty.schema.equals(full.schema)


# ---------------------------------------------------------------------- resumed


def changed(files: tuple[str, ...]) -> list[int]:
    return [Path(file).stat().st_mtime_ns for file in files]


def test_scores_that_are_there_are_kept_and_the_rest_is_written(tmp_path: Path) -> None:
    write(tmp_path / "in")
    table, model = federation(tmp_path / "in"), regressor()
    first = table.predict(model, tmp_path / "out")
    before = changed(first.files)
    Path(first.files[1]).unlink()
    again = table.predict(model, tmp_path / "out")
    assert (again.rows, again.were_there) == (N // FILES, 2)
    assert [a == b for a, b in zip(before, changed(again.files), strict=True)] == [True, False, True]
    assert "2 files were there" in repr(again)
    assert table.predict(model, tmp_path / "out", overwrite=True).rows == N


@pytest.mark.parametrize("what", ["model", "columns", "file", "stranger", "damaged"])
def test_other_scores_are_not_overwritten_unless_told(tmp_path: Path, what: str) -> None:
    paths = write(tmp_path / "in")
    table, model, keep = federation(tmp_path / "in"), regressor(), "id"
    first = Path(table.predict(model, tmp_path / "out", keep=keep).files[0])
    match what:
        case "model":
            data = simulated(n=N)
            columns = pa.table({"a": data.X[:, 0], "b": data.X[:, 1]})
            model = MixtureOfRegressions(1, random_state=0).fit(columns, data.y)
        case "columns":
            keep = "y"
        case "file":
            os.utime(paths[0], ns=(time.time_ns(), time.time_ns()))
        case "stranger":
            parquet.write_table(pa.table({"mine": [1.0]}), first)
        case "damaged":
            first.write_bytes(first.read_bytes()[:100])
    before = first.read_bytes()
    with pytest.raises(RoundStoppedError, match=r"part-0.parquet is there, and not of this model .* overwrite=True"):
        table.predict(model, tmp_path / "out", keep=keep)
    assert first.read_bytes() == before
    table.predict(model, tmp_path / "out", keep=keep, overwrite=True)
    assert first.read_bytes() != before or what == "file"


def test_a_file_that_fails_is_named_the_others_are_written_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write(tmp_path / "in")
    monkeypatch.setattr(shards, "CHUNK", 16)
    good = parquet.read_table(paths[1])
    a = good["a"].to_numpy().copy()
    a[-1] = np.nan  # in the last chunk: others have been written to the hidden file by then
    parquet.write_table(good.set_column(1, "a", pa.array(a)), paths[1])
    with pytest.raises(RoundStoppedError, match=r"1 of 3 files .* part-1.parquet: .* column 'a'. The others") as caught:
        federation(tmp_path / "in").predict(regressor(), tmp_path / "out")
    assert caught.value.sites == ("part-1.parquet",)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["part-0.parquet", "part-2.parquet"]
    parquet.write_table(good, paths[1])
    assert federation(tmp_path / "in").predict(regressor(), tmp_path / "out").were_there == 2


def test_an_unexpected_error_is_named_without_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a secret")

    write(tmp_path / "in")
    monkeypatch.setattr(scoring, "_predictions", broken)
    with pytest.raises(RoundStoppedError, match="an unexpected RuntimeError: its traceback is in the log") as caught:
        federation(tmp_path / "in").predict(regressor(), tmp_path / "out")
    assert "secret" not in str(caught.value)


def test_an_interrupt_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "in")
    table = federation(tmp_path / "in")

    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(table._engine, "each", interrupted)
    with pytest.raises(KeyboardInterrupt, match="after 0 of 3 files: the same call scores the rest"):
        table.predict(regressor(), tmp_path / "out")


# ---------------------------------------------------------------------- refused


def test_inputs_are_never_written_over(tmp_path: Path) -> None:
    paths = write(tmp_path / "in")
    table, model = federation(tmp_path / "in"), regressor()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    before = [path.read_bytes() for path in paths]
    for out in (tmp_path / "in", tmp_path / "out" / ".." / "in", tmp_path / "link", f"file://{tmp_path}/in"):
        with pytest.raises(InvalidInputError, match="would be among the inputs; pass a folder of its own"):
            table.predict(model, out, overwrite=True)
    assert [path.read_bytes() for path in paths] == before
    assert len(list((tmp_path / "in").iterdir())) == FILES


def test_folders_of_the_table_are_folders_of_the_scores(tmp_path: Path) -> None:
    for year in ("2024", "2025"):
        (tmp_path / "in" / f"year={year}").mkdir(parents=True)
        parquet.write_table(tables()[0], tmp_path / "in" / f"year={year}" / "part.parquet")
    table = Federation.from_parquet(f"{tmp_path}/in/*/*.parquet", target="y", features=["a", "b"])
    files = table.predict(regressor(), tmp_path / "out").files
    assert [file.removeprefix(f"{tmp_path}/out/") for file in files] == [
        "year=2024/part.parquet",
        "year=2025/part.parquet",
    ]


def test_mistakes_are_answered_before_anything_is_written(tmp_path: Path) -> None:
    write(tmp_path / "in", expert=np.zeros(N))
    table, model = federation(tmp_path / "in"), regressor()
    data = simulated(n=N)
    unnamed = MixtureOfRegressions(1, random_state=0).fit(np.column_stack([data.X, data.X[:, 0] ** 2]), data.y)
    fits = federation(tmp_path / "in").fit(MixtureOfRegressions(1, random_state=0))
    for arguments, said in (
        ((MixtureOfRegressions(), "out"), "this MixtureOfRegressions is not fitted; pass the .model of a fit"),
        ((fits, "out"), "got a FederatedFit; pass its .model"),
        ((unnamed, "out"), "2 features, the model was fitted on 3"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            table.predict(*arguments)
    with pytest.raises(InvalidInputError, match=r"keep: .* has no column 'key'; its columns are id, a, b, y"):
        table.predict(model, tmp_path / "out", keep="key")
    with pytest.raises(InvalidInputError, match=r"keep=\['expert'\]: a column of the scores has this name"):
        table.predict(model, tmp_path / "out", keep="expert")
    with pytest.raises(InvalidInputError, match=r"rows are in memory: use model.predict\(X\)"):
        Federation({"north": (data.X, data.y)}).predict(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()
