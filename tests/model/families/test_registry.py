"""A family that an installed package registers is as good as one of the library; elsewhere the error says so."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import consilience
from consilience import FederatedEM, Federation, MixtureOfExpertsRegressor
from consilience.errors import InvalidInputError, MessageError
from consilience.fit import Specification
from consilience.fit.climb import Expect
from consilience.messages import FitSite, decode, encode
from consilience.model import FAMILIES
from consilience.model.families.registry import family_of

PAGE = Path(__file__).parents[3] / "docs" / "develop" / "write-your-own-family.rst"
SAID = "installed on this side and registered under consilience.families"


def code() -> str:
    """The family of the documentation."""
    block = PAGE.read_text(encoding="utf-8").split(".. testcode::\n")[1]
    lines = block.split("\nThe registry is")[0].splitlines()
    return "\n".join(line.removeprefix("   ") for line in lines)


def install(folder: Path, entries: str) -> None:
    (folder / "waiting_times.py").write_text(code(), encoding="utf-8")
    information = folder / "waiting_times-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: waiting-times\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[consilience.families]\n{entries}\n")


@pytest.fixture
def removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Install the package; what is returned removes it again."""
    install(tmp_path, "exponential = waiting_times:ExponentialExperts")
    monkeypatch.syspath_prepend(tmp_path)

    def remove() -> None:
        FAMILIES.pop("exponential", None)
        sys.modules.pop("waiting_times", None)
        if str(tmp_path) in sys.path:
            sys.path.remove(str(tmp_path))

    yield remove
    remove()


def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 600)
    slow = rng.random(600) < 0.3
    return x[:, None], rng.exponential(np.exp(np.where(slow, 3 + x, -1 - x)))


def test_a_registered_family_is_listed_and_imported_when_it_is_looked_up(removed: Callable[[], None]) -> None:
    assert list(FAMILIES)[-1] == "exponential"
    assert len(FAMILIES) == len(list(FAMILIES))
    assert "waiting_times" not in sys.modules
    assert family_of("exponential").__name__ == "ExponentialExperts"
    assert "waiting_times" in sys.modules


def test_a_registered_family_is_fitted_saved_and_loaded(removed: Callable[[], None], tmp_path: Path) -> None:
    X, y = rows()
    model = MixtureOfExpertsRegressor(2, family="exponential", random_state=0).fit(X, y)
    model.save(tmp_path / "model.json")
    assert np.array_equal(consilience.load(tmp_path / "model.json").predict(X), model.predict(X))
    removed()
    with pytest.raises(InvalidInputError, match=f"family 'exponential': expected one of .*{re.escape(SAID)}"):
        consilience.load(tmp_path / "model.json")
    with pytest.raises(InvalidInputError, match=f"family='exponential': .*{re.escape(SAID)}"):
        MixtureOfExpertsRegressor(2, family="exponential").fit(X, y)


def test_a_registered_family_is_fitted_over_sites(removed: Callable[[], None]) -> None:
    X, y = rows()
    estimator = MixtureOfExpertsRegressor(2, family="exponential", random_state=0)
    sites = Federation({f"site {i}": (X[i::3], y[i::3]) for i in range(3)})
    model = sites.fit(estimator, method=FederatedEM()).model
    assert model.log_likelihood_ == pytest.approx(estimator.fit(X, y).log_likelihood_, abs=1e-6)


def test_a_registered_family_travels_by_its_name(removed: Callable[[], None]) -> None:
    X, y = rows()
    mixture = MixtureOfExpertsRegressor(2, family="exponential", random_state=0).fit(X, y).mixture_
    question = FitSite(Specification(K=2, family="exponential"), (2,), seed=0)
    sent = [encode(Expect(mixture)), encode(question)]
    assert np.array_equal(decode(sent[0]).mixture.experts.B, mixture.experts.B)
    assert decode(sent[1]).specification == question.specification
    removed()
    for message in sent:
        with pytest.raises(MessageError, match=f"family 'exponential': expected one of .*{re.escape(SAID)}"):
            decode(message)


def test_a_class_that_is_not_registered_cannot_be_sent(removed: Callable[[], None]) -> None:
    X, y = rows()
    mixture = MixtureOfExpertsRegressor(2, family="exponential", random_state=0).fit(X, y).mixture_
    removed()
    with pytest.raises(MessageError, match="ExponentialExperts cannot be sent"):
        encode(Expect(mixture))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("waiting = waiting_times:ExponentialExperts", "not a class of experts whose family is 'waiting'"),
        ("waiting = waiting_times:FAMILIES", "not a class of experts"),
        ("waiting = waiting_times:Missing", "cannot be imported"),
        ("waiting = no_such_module:Experts", "cannot be imported"),
    ],
)
def test_what_is_not_a_family_is_refused(
    entry: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, entry)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidInputError, match=f"family 'waiting' is registered .*{said}"):
        family_of("waiting")
    sys.modules.pop("waiting_times", None)


def test_a_package_cannot_take_the_name_of_a_family_of_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "gaussian = waiting_times:ExponentialExperts")
    monkeypatch.syspath_prepend(tmp_path)
    assert family_of("gaussian").__name__ == "GaussianExperts"
    assert list(FAMILIES).count("gaussian") == 1
