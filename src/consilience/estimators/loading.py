"""Reading of saved models."""

from __future__ import annotations

from pathlib import Path

from consilience.errors import InvalidInputError
from consilience.estimators.base import MixtureEstimator
from consilience.estimators.classifier import MixtureOfExpertsClassifier
from consilience.estimators.gaussian_mixture import GaussianMixture
from consilience.estimators.regressions import MixtureOfRegressions
from consilience.estimators.regressor import MixtureOfExpertsRegressor
from consilience.estimators.saving import restore
from consilience.files import SavedModel
from consilience.files.json_text import read_text

ESTIMATORS: dict[str, type[MixtureEstimator]] = {
    each.__name__: each
    for each in (GaussianMixture, MixtureOfExpertsClassifier, MixtureOfExpertsRegressor, MixtureOfRegressions)
}


def load(path: str | Path) -> MixtureEstimator:
    """Read a fitted model that :meth:`~MixtureOfExpertsRegressor.save` wrote.

    The file is checked as a whole before anything is built from it; it cannot run code.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    estimator
        A fitted estimator of the saved class, with the same predictions, tables and summary. ``provenance_`` has the
        version of the library that wrote the file and the date. The file has no rows and no record of the
        optimisation: ``infer`` needs a new fit.

    Raises
    ------
    InvalidInputError
        If the file is not a valid model, or of a newer format.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import consilience
    >>> from consilience.datasets import soft
    >>> data = soft(500, random_state=0)
    >>> model = consilience.MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(Path(folder) / "model.json")
    ...     again = consilience.load(Path(folder) / "model.json")
    >>> bool((again.predict(data.X) == model.predict(data.X)).all())
    True
    """
    try:
        saved = SavedModel.from_text(read_text(path))
        model = ESTIMATORS[saved.estimator](**saved.parameters)
        restore(model, saved)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from error
    return model
