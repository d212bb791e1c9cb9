import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from consilience import Federation, OneShot
from consilience.columns import Dictionary
from consilience.columns.frames import encode_columns
from consilience.errors import InvalidInputError, RoundStoppedError
from consilience.files.site_file import SiteFile
from consilience.kit.combination import SiteFiles, combine_files, simulate_study
from consilience.kit.site_fit import site_file
from consilience.kit.study import Study
from consilience.kit.study_model import estimators_of
from consilience.messages import LogLikelihood, Summarise, encode
from consilience.messages.table import decode

STUDY = """
format = "consilience-study"
version = 1
name = "stay"
seed = 7
[model]
response = "days"
experts = [2]
gate_columns = ["age"]
[minimum]
rows = 100
[[columns]]
name = "days"
kind = "number"
low = -50
high = 100
[[columns]]
name = "age"
kind = "number"
unit = "years"
low = 18
high = 110
centre = 60
scale = 15
[[columns]]
name = "dose"
kind = "number"
low = 0.1
transform = "log"
missing = "drop"
[[columns]]
name = "ward"
kind = "category"
levels = ["icu", "medical", "surgical"]
reference = "medical"
"""
FAMILIES = {
    "gaussian": STUDY,
    "poisson": STUDY.replace('response = "days"', 'response = "days"\nfamily = "poisson"').replace(
        "low = -50", "low = 0"
    ),
    "constant": STUDY.replace('gate_columns = ["age"]', 'gate = "constant"'),
    "categorical": STUDY.replace('response = "days"', 'response = "days"\nfamily = "categorical"').replace(
        'kind = "number"\nlow = -50\nhigh = 100', 'kind = "category"\nlevels = ["short", "long"]'
    ),
}


def table(n: int, seed: int, kind: str = "gaussian") -> pa.Table:
    rng = np.random.default_rng(seed)
    age, dose = rng.integers(20, 100, n), np.exp(rng.normal(1, 0.5, n))
    ward = rng.choice(["icu", "medical", "surgical"], n)
    frail = rng.random(n) < 1 / (1 + np.exp(-(age - 60) / 5))
    mean = np.where(frail, 14 + 2 * (ward == "icu"), 4 + np.log(dose))
    days = mean + rng.normal(size=n)
    found = {"gaussian": days, "constant": days, "poisson": rng.poisson(mean).astype(float)}
    response = found.get(kind, np.where(rng.random(n) < 1 / (1 + np.exp(9 - days)), "long", "short"))
    dose = np.where(rng.random(n) < 0.02, np.nan, dose)
    frame = pd.DataFrame({"days": response, "age": age, "dose": dose, "ward": ward, "id": range(n)})
    return pa.Table.from_pandas(frame, preserve_index=False)


def tables(kind: str = "gaussian") -> dict[str, pa.Table]:
    return {name: table(n, seed, kind) for seed, (name, n) in enumerate({"ash": 600, "birch": 500, "elm": 700}.items())}


@pytest.fixture(scope="module")
def study() -> Study:
    return Study.from_text(STUDY)


@pytest.fixture(scope="module")
def files(study: Study) -> list[SiteFile]:
    return [SiteFile.from_text(site_file(study, name, each).to_text()) for name, each in tables().items()]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.SetAsideWarning")  # few rows of two classes tell little
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.long if kind == "constant" else ()) for kind in FAMILIES]
)
def test_files_and_simulation_give_the_same_model_to_the_bit(kind: str) -> None:
    chosen = Study.from_text(FAMILIES[kind])
    sent = [SiteFile.from_text(site_file(chosen, name, each).to_text()) for name, each in tables(kind).items()]
    by_files, in_process = (
        combine_files(chosen, reversed(sent)).best.model,
        simulate_study(chosen, tables(kind)).best.model,
    )
    assert by_files.summary() == in_process.summary()
    np.testing.assert_array_equal(by_files.inference_.covariance, in_process.inference_.covariance)
    assert by_files.mixture_.parameter_count == in_process.mixture_.parameter_count


@pytest.mark.slow
def test_the_python_interface_gives_the_same_model(study: Study, files: list[SiteFile]) -> None:
    (estimator,) = estimators_of(study)
    parts = {}
    for name, each in tables().items():
        frame = each.to_pandas().dropna()
        covariates = encode_columns(frame[list(study.covariates.names)], study.covariates)
        parts[name] = (pd.DataFrame(covariates, columns=study.covariates.terms), frame["days"])
    plain = type(estimator)(2, gate_features=["(age - 60)/15"], random_state=7)
    by_hand = Federation(parts).fit(plain, method=OneShot(refine=0)).model
    ours = combine_files(study, files).best.model
    np.testing.assert_allclose(ours.coef_, by_hand.coef_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(ours.gate_coef_, by_hand.gate_coef_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(ours.inference_.covariance, by_hand.inference_.covariance, rtol=0, atol=1e-10)


def test_the_model_reads_raw_tables_by_the_rules_of_the_study(study: Study, files: list[SiteFile]) -> None:
    model = combine_files(study, files).best.model
    assert model.columns_ == study.covariates
    new = pd.DataFrame({"age": [40, 80], "dose": [2.0, 3.0], "ward": ["icu", "medical"]})
    assert model.predict(new).shape == (2,)
    assert isinstance(model.columns_, Dictionary)
    with pytest.raises(InvalidInputError, match="18 to 110 years"):
        model.predict(new.assign(age=[4, 8]))


@pytest.mark.slow
def test_the_content_is_the_same_twice(study: Study, files: list[SiteFile]) -> None:
    again = site_file(study, "ash", tables()["ash"])
    assert again.hash == files[0].hash


def test_a_file_of_another_study_is_refused(files: list[SiteFile]) -> None:
    other = Study.from_text(STUDY.replace("seed = 7", "seed = 8"))
    with pytest.raises(InvalidInputError, match="for another study, or for another version of it"):
        combine_files(other, files)


def test_two_files_of_a_site_are_refused(study: Study, files: list[SiteFile]) -> None:
    with pytest.raises(InvalidInputError, match="two files of site ash"):
        combine_files(study, [*files, files[0]])


def test_one_fit_under_two_names_is_refused(study: Study, files: list[SiteFile]) -> None:
    copied = SiteFile(study.identity, "oak", files[0].terms, files[0].fit)
    with pytest.raises(RoundStoppedError, match="same rows as another site"):
        combine_files(study, [*files, copied])


def test_a_table_that_does_not_fit_is_refused_with_its_findings(study: Study) -> None:
    wrong = tables()["ash"].to_pandas().assign(age=1.0)
    with pytest.raises(InvalidInputError, match="column 'age': 600 of 600 rows are outside the range 18 to 110 years"):
        site_file(study, "ash", pa.Table.from_pandas(wrong))


def test_files_answer_no_other_question(files: list[SiteFile]) -> None:
    engine = SiteFiles({"ash": files[0]})
    mixture = files[0].fit.model.mixture
    for question in (Summarise(d=5, q=1), LogLikelihood(mixture)):
        ((reply,),) = engine.ask(1, encode(question), ["ash"], total=False, timeout=None)
        assert decode(reply.message).code.name == "NO_ANSWER_TO_KIND"
