"""Checks of the arguments of a federation: each error says what was passed, what is expected and what to write."""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from consilience import methods
from consilience.errors import InvalidInputError
from consilience.estimators.estimator import MixtureEstimator
from consilience.methods.task import Method

ESTIMATORS = "MixtureOfExpertsRegressor, MixtureOfExpertsClassifier, MixtureOfRegressions or GaussianMixture"


def check_sites(sites: Any) -> None:
    """Raise an error if ``sites`` is not a mapping from names to data.

    Examples
    --------
    >>> check_sites("data/*.parquet")
    Traceback (most recent call last):
    ...
    consilience.errors.InvalidInputError: sites: got the text 'data/*.parquet', expected a mapping from names to data;
    for files use Federation.from_parquet('data/*.parquet', target=...)
    """
    if isinstance(sites, Mapping):
        return
    expected = "expected a mapping from names to data"
    if isinstance(sites, str | os.PathLike):
        path = os.fspath(sites)
        what = "text" if isinstance(sites, str) else "path"
        raise InvalidInputError(
            f"sites: got the {what} {path!r}, {expected}; for files use Federation.from_parquet({path!r}, target=...)"
        )
    files = isinstance(sites, list | tuple) and sites and all(isinstance(each, str | os.PathLike) for each in sites)
    advice = (
        "for files use Federation.from_parquet([...], target=...)"
        if files
        else "give each site a name, as in Federation({'north': (X1, y1), 'south': (X2, y2)})"
    )
    raise InvalidInputError(f"sites: got {_kind(sites)}, {expected}; {advice}")


def check_engine(engine: Any) -> None:
    """Raise an error if ``engine`` is not an engine: an object with ``over``, ``each`` and ``close``.

    Examples
    --------
    >>> check_engine("dask")
    Traceback (most recent call last):
    ...
    consilience.errors.InvalidInputError: engine: got the text 'dask', expected an engine; pass InProcess() or
    DaskCluster(...)
    """
    lacking = [name for name in ("over", "each", "close") if not callable(getattr(engine, name, None))]
    if not isinstance(engine, type) and not lacking:
        return
    advice = "pass InProcess() or DaskCluster(...)"
    if type(engine).__module__.split(".")[0] == "distributed":
        advice = "wrap it, as in DaskCluster(client)"
    elif not isinstance(engine, type) and "over" not in lacking:
        advice = f"it lacks the method {' and '.join(lacking)} (see consilience.Engine)"
    raise InvalidInputError(f"engine: got {_kind(engine)}, expected an engine; {advice}")


def check_over(engine: Any, over: Any) -> None:
    """Raise an error if what an engine returned for the sites of a run cannot ask them, or cannot be closed."""
    lacking = [name for name in ("sites", "ask", "close") if not hasattr(over, name)]
    if lacking:
        raise InvalidInputError(
            f"engine: over() of a {type(engine).__name__} returned {_kind(over)} without {' and '.join(lacking)}; "
            "expected an object with sites, ask and close (see consilience.runs.EngineOverSites)"
        )


def check_method(method: Any) -> None:
    """Raise an error if ``method`` is not an instance of a federated method.

    Examples
    --------
    >>> check_method("one_shot")
    Traceback (most recent call last):
    ...
    consilience.errors.InvalidInputError: method: got the text 'one_shot', expected a method such as FederatedEM(); did
    you mean method=OneShot()?
    """
    if isinstance(method, Method):
        return
    expected = "expected a method such as FederatedEM()"
    if isinstance(method, type) and issubclass(method, Method):
        raise InvalidInputError(f"method: got the class {method.__name__}, {expected}; pass {method.__name__}()")
    if isinstance(method, str):
        raise InvalidInputError(f"method: got the text {method!r}, {expected}; {_meant(method)}")
    raise InvalidInputError(f"method: got {_kind(method)}, {expected}; a method of your own is a subclass of Method")


def check_estimator(estimator: object) -> None:
    """Raise an error if ``estimator`` is not an estimator of this library.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> check_estimator(LinearRegression())
    Traceback (most recent call last):
    ...
    consilience.errors.InvalidInputError: estimator: got a LinearRegression; expected
    MixtureOfExpertsRegressor, MixtureOfExpertsClassifier, MixtureOfRegressions or GaussianMixture
    """
    if isinstance(estimator, type) and issubclass(estimator, MixtureEstimator):
        raise InvalidInputError(f"estimator: got the class {estimator.__name__}; pass {estimator.__name__}()")
    if isinstance(estimator, MixtureEstimator):
        return
    advice = ""
    if hasattr(estimator, "steps"):
        advice = ": transform the columns at each site before the fit, and pass the mixture alone"
    raise InvalidInputError(f"estimator: got {_kind(estimator)}; expected {ESTIMATORS}{advice}")


def check_fitted(model: object) -> None:
    """Raise an error if ``model`` is not a fitted estimator of this library."""
    if hasattr(model, "model") and hasattr(model, "record"):
        raise InvalidInputError(f"model: got a {type(model).__name__}; pass its .model")
    check_estimator(model)
    if not hasattr(model, "mixture_"):
        raise InvalidInputError(f"model: this {type(model).__name__} is not fitted; pass the .model of a fit")


def _meant(text: str) -> str:
    """Return advice on a method that was named by a text."""
    names = {name.lower(): name for name in methods.__all__ if _is_method(name)}
    close = get_close_matches("".join(letter for letter in text.lower() if letter.isalnum()), names, 1)
    return f"did you mean method={names[close[0]]}()?" if close else f"choose one of {', '.join(names.values())}"


def _is_method(name: str) -> bool:
    value = getattr(methods, name)
    return isinstance(value, type) and issubclass(value, Method) and value is not Method


def _kind(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, str):
        return f"the text {value!r}"
    return f"a {type(value).__name__}"
