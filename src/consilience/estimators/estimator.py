"""Base class of the estimators: parameters, fitting, fitted attributes and tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from consilience.columns import Dictionary, frames
from consilience.columns.derived import Derivation
from consilience.display import show_passes
from consilience.errors import (
    ConvergenceWarning,
    DegenerateFitWarning,
    InvalidInputError,
    OneExpertWarning,
    RankDeficientWarning,
    StartsDisagreeWarning,
    warn,
)
from consilience.estimators import validation
from consilience.estimators.onnx_export import write_onnx
from consilience.files import SavedFit
from consilience.files.json_text import write_text
from consilience.fit import Fit, Inference, Specification, bootstrap, criteria, fit_mixture, infer
from consilience.fit.climb import Stop
from consilience.fit.inference import infer_after_fit, withhold_needless
from consilience.fit.selection import single_bic
from consilience.fit.specification import check_size
from consilience.fit.starts import Each, End, StartTask
from consilience.fitted.protocols import check_level, follows_noise, generator, is_needless, parameter_table
from consilience.fitted.summaries import summarise_fit
from consilience.fitted.tidy import glance_row, tidy_table
from consilience.fitted.typeset import Summary
from consilience.fitted.words import describe_fit
from consilience.model import Mixture, Rows
from consilience.model.summary import column_summary
from consilience.numerics.arrays import Array
from consilience.numerics.threads import jobs


class MixtureEstimator(BaseEstimator):
    """Base class of the estimators: everything that does not depend on the type of response."""

    title = "Mixture"
    order_name = "n_experts"
    family: str = "gaussian"
    n_init: int
    max_iter: int
    tol: float
    mixture_init: Mixture | None
    random_state: Any
    n_jobs: int | None
    verbose: bool

    mixture_: Mixture
    inference_: Inference
    stop_reason_: Stop
    columns_: Dictionary
    classes_: np.ndarray
    n_features_in_: int
    response_names_: tuple[str, ...] = ()
    derivation_: Derivation | None = None
    _backend: str | None = None
    _size_of_fit: str | None = None
    _size_column: str | None = None

    # ------------------------------------------------------------------ defined by subclasses

    def predict(self, X: Any) -> Any:
        """Predict the mean response, the class or the component of each row, ``(n,)``."""
        raise NotImplementedError

    def _specification(self) -> Specification:
        """Return the specification of the mixture to fit, with its penalties."""
        raise NotImplementedError

    def _rows(self, X: Any, y: Any, *, reset: bool, min_rows: int = 1, **metadata: Any) -> Rows:
        """Return validated rows; ``metadata`` as in ``fit``: weights, groups, clusters and sizes."""
        raise NotImplementedError

    def _set_attributes(self, mixture: Mixture) -> None:
        """Set the fitted attributes of the experts."""
        raise NotImplementedError

    def _classes_of(self, sites: Sequence[Mapping[str, Any]]) -> np.ndarray | None:
        """Return the classes of the responses of all sites; None if the response is no class."""
        return None

    def _roles(self, features: tuple[str, ...], target: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the covariate columns and the response columns of a table."""
        if not target:
            raise InvalidInputError("target: name the column of the response")
        return features, target

    def _covariates_in(self, mixture: Mixture) -> int:
        """Return the number of covariates in the columns of ``X`` that a mixture describes."""
        return mixture.design.d

    # ------------------------------------------------------------------ parameters

    def set_params(self, **params: Any) -> Self:
        """Set parameters; an error names the right one if the estimator does not have one of them."""
        validation.check_keywords(self, (name.partition("__")[0] for name in params), self._get_param_names())
        super().set_params(**params)
        return self

    # ------------------------------------------------------------------ fit

    def _fit(self, X: Any, y: Any, **metadata: Any) -> Self:
        validation.check_parameters(self)
        self._size_column = validation.size_column(metadata)
        X, metadata = validation.take_sizes(X, metadata)
        self.derivation_ = validation.learn_derivation(self, [X])
        if self.derivation_ is not None:
            y = self.derivation_.response(X) if y is None else y
            X = self.derivation_.apply(X)
        names, self._backend = frames.frame_names(X), frames.backend_of(X)
        self.response_names_ = frames.response_labels(y, X)
        with validation.name_columns({"X": X, "y": y, **metadata}, classes=is_classifier(self)):
            rows = self._rows(X, y, reset=True, **metadata)
        if names is not None:
            self.feature_names_in_ = names
        specification = self._specification()
        threads = validation.thread_count(self.n_jobs)
        with show_passes(bool(self.verbose), type(self).__name__) as progress, jobs(threads):
            summary, start = column_summary(rows), self.mixture_init
            if start is None:
                check_size(specification, rows, summary)
            rng, budget = generator(self.random_state), validation.budget_of(self)
            budget |= {"progress": progress, "summary": summary, "each": in_processes(threads)}
            fit = fit_mixture(rows, specification, rng=rng, start=start, **budget)
            n, one = criteria.label_count(rows), single_bic(rows, specification)
            own = criteria.bic(fit.log_likelihood, fit.parameter_count, n)
            self._set_fit(fit, withhold_needless(infer_after_fit(fit, rows, n), one, own), n, one)
        return self

    def _set_fit(self, fit: Fit, inference: Inference, n: float, one: float | None = None) -> None:
        self.mixture_, self._fit_result = fit.mixture, fit
        shares = fit.ascent.statistics.gate.plain[: fit.mixture.K][fit.permutation]
        unidentified = validation.unidentified_covariates(self._specification(), self.columns_, fit.ascent.mixture)
        kept = SavedFit(
            log_likelihood=fit.log_likelihood,
            n_parameters=fit.parameter_count,
            effective_parameters=fit.effective_parameters,
            n_labels=n,
            n_rows=max(n, float(fit.ascent.statistics.experts.plain[: fit.mixture.K].sum())),
            weights=shares / shares.sum(),
            stop=fit.ascent.stop,
            n_iter=max(fit.ascent.n_iter, 1),
            trace=np.array(fit.ascent.trace),
            starts=fit.starts,
            unidentified=tuple(unidentified),
            degeneracy=fit.degeneracy,
            single_bic=one,
            coordinates=(fit.ascent.mixture.design, fit.ascent.mixture.reads),
            doubts=fit.doubts,
        )
        self._set_results(fit.mixture, inference, kept)
        self._warn_of_fit()

    def _set_results(self, mixture: Mixture, inference: Inference, kept: SavedFit) -> None:
        """Set the fitted attributes, from a fit or from a file."""
        self.mixture_, self.inference_, self._kept = mixture, inference, kept
        self.specification_ = self._specification()
        self.n_parameters_, self.effective_parameters_ = kept.n_parameters, kept.effective_parameters
        self.log_likelihood_ = kept.log_likelihood
        self.trace_ = kept.trace
        self.n_iter_ = kept.n_iter
        self.stop_reason_, self.converged_ = kept.stop, kept.stop.converged
        self.starts_, self.starts_agree_ = kept.starts, kept.starts.agree
        self.n_labels_, self.n_rows_ = kept.n_labels, kept.n_rows
        self.weights_ = kept.weights
        self.unidentified_, self.doubts_ = list(kept.unidentified), kept.doubts
        self.coordinates_, self.single_bic_ = kept.coordinates, kept.single_bic
        noise = f"{self.n_parameters_} parameters on {self.n_rows_:g} rows" if follows_noise(self) else ""
        self.degeneracy_ = kept.degeneracy or noise
        if mixture.gate.reads_covariates:
            self.gate_intercept_, self.gate_coef_ = split_intercept(mixture.gate.read(), mixture.design.intercept)
        self._set_attributes(mixture)

    def _warn_of_fit(self) -> None:
        """Warn of a fit that has not converged, has unidentified coefficients, follows the noise, or is in doubt."""
        if not (self.converged_ or self.stop_reason_.by_choice):
            warn(f"{self.stop_reason_}; raise max_iter or tol, and look at trace_", ConvergenceWarning)
        if self.unidentified_:
            warn(
                f"{'; '.join(self.unidentified_)}. Their coefficients are not identified, are set to 0 and are not "
                "counted in AIC and BIC: drop those columns",
                RankDeficientWarning,
            )
        if follows_noise(self):
            warn(
                f"{self.n_parameters_} parameters on {self.n_rows_:,.10g} rows: the fit follows the noise; use "
                "fewer experts or covariates, or a ridge",
                DegenerateFitWarning,
            )
        elif is_needless(self):
            K = self.mixture_.K
            said = f"one expert describes the rows as well as {K} by BIC: fit one, or compare numbers with select_order"
            warn(said, OneExpertWarning)
        elif not (self.starts_agree_ or self.degeneracy_):
            said = f"the starts do not agree: {self.starts_}; raise n_init, or use fewer experts"
            warn(said, StartsDisagreeWarning)

    # ------------------------------------------------------------------ prediction

    def covariates(self, X: Any) -> Array:
        """Return data as covariates of the fitted model, ``(n, d)``: one column for each term but the intercept."""
        check_is_fitted(self)
        if frames.has_column(X, self._size_column):
            X = frames.take_columns(X, [str(self._size_column)])[0]
        X_valid: Array = validation.validate_columns(self, X, reset=False)
        return X_valid

    def predict_gate(self, X: Any) -> Array:
        """Compute the gate probabilities ``π_k(x)``.

        Parameters
        ----------
        X : (n, d) array or frame

        Returns
        -------
        (n, K) array
        """
        X = self.covariates(X)
        return self.mixture_.gate_weights(X)

    def rows(self, X: Any, y: Any = None, **metadata: Any) -> Rows:
        """Return data as rows of the fitted model; ``metadata`` are ``sample_weight``, ``groups`` and sizes."""
        check_is_fitted(self)
        return self._rows(X, y, reset=False, **metadata)

    def _evidence(self, X: Any, y: Any, **metadata: Any) -> tuple[Rows, float, int]:
        rows = self.rows(X, y, **metadata)
        return rows, criteria.log_likelihood(self.mixture_, rows), self.n_parameters_

    def aic(self, X: Any, y: Any = None, **metadata: Any) -> float:
        """Compute Akaike's information criterion, ``-2 ll + 2 P``; smaller is better.

        Parameters
        ----------
        X, y
            Data.
        **metadata
            ``sample_weight``, ``groups``, ``exposure``, ``trials``, as in ``fit``.
        """
        _, ll, P = self._evidence(X, y, **metadata)
        return criteria.aic(ll, P)

    def bic(self, X: Any, y: Any = None, **metadata: Any) -> float:
        """Compute the Bayesian information criterion, ``-2 ll + P log n``; n is the total weight or number of groups.

        Parameters
        ----------
        X, y, **metadata
            As in :meth:`aic`.
        """
        rows, ll, P = self._evidence(X, y, **metadata)
        return criteria.bic(ll, P, criteria.label_count(rows))

    def icl(self, X: Any, y: Any = None, **metadata: Any) -> float:
        """Compute the integrated completed likelihood criterion: BIC plus twice the entropy of the responsibilities.

        Parameters
        ----------
        X, y, **metadata
            As in :meth:`aic`.
        """
        rows, ll, P = self._evidence(X, y, **metadata)
        return criteria.bic(ll, P, criteria.label_count(rows)) + 2 * criteria.entropy(self.mixture_, rows)

    # ------------------------------------------------------------------ tables

    def infer(
        self,
        X: Any,
        y: Any = None,
        *,
        kind: str = "sandwich",
        sample_weight: Any = None,
        groups: Any = None,
        exposure: Any = None,
        trials: Any = None,
        clusters: Any = None,
        draws: int = 50,
    ) -> Inference:
        """Compute standard errors of another kind from the data of the fit.

        Parameters
        ----------
        X, y, sample_weight, groups, exposure, trials, clusters
            The data the model was fitted on; clusters of rows may be others than those of the fit.
        kind : {"observed", "sandwich", "larger", "bootstrap"}
            Inverse observed information, sandwich, the larger of the two for each parameter, or parametric bootstrap.
        draws : int
            Number of bootstrap data sets.

        Returns
        -------
        Inference
            Has ``standard_errors()`` and ``interval(level)``. Assign it to ``inference_`` to use it in ``summary()``.
        """
        labels = {"groups": groups, "clusters": clusters}
        rows = self.rows(X, y, sample_weight=sample_weight, exposure=exposure, trials=trials, **labels)
        if not hasattr(self, "_fit_result"):
            raise InvalidInputError(
                "this model was loaded from a file, which has its parameters and not its fit: standard errors of "
                "another kind need the fit. Fit again, with mixture_init=model.mixture_ to start from these parameters"
            )
        if kind == "bootstrap":
            return bootstrap(
                self._fit_result, rows, self._specification(), rng=generator(self.random_state), draws=draws
            )
        if kind not in ("observed", "sandwich", "larger"):
            raise InvalidInputError(f"kind={kind!r}: expected 'observed', 'sandwich', 'larger' or 'bootstrap'")
        return infer(self._fit_result, rows, kind=kind)

    def to_frame(self, level: float = 0.95) -> Any:
        """Return all parameters as a tidy table, one row per parameter.

        Columns: ``part`` (gate, expert, log_variance or weight), ``expert``, ``response``, ``term``, ``estimate``,
        ``std_error``, ``lower``, ``upper``. It is a frame of the library that ``X`` came from, else a pandas frame if
        pandas is installed, else a ``pyarrow.Table``.
        """
        check_is_fitted(self)
        check_level(level)
        return frames.to_frame(parameter_table(self, level), self._backend)

    def tidy(self, *, reference: int | None = None, level: float = 0.95) -> Any:
        """Return the parameters as papers report them, one row each; :meth:`to_frame` has them as they are estimated.

        Parameters
        ----------
        reference : int, optional
            State gate coefficients as contrasts to this expert (0 is the first) instead of centred; the second of two
            centred experts has no rows, because its coefficients are those of the first with the opposite signs.
        level : float
            Confidence level of the intervals.

        Returns
        -------
        frame
            Of the library that ``X`` came from, else of pandas if it is installed, else a ``pyarrow.Table``. ``part``
            is ``"share"``, ``"gate"``, ``"expert"`` or ``"shape"``; experts are counted from 1. ``statistic`` and
            ``p_value`` are those of the hypothesis that a coefficient is 0. ``effect`` with its bounds is the factor by
            which odds, rates or means are multiplied; it is missing where a coefficient adds to the mean. Odds of
            centred coefficients are those against the geometric mean of the other experts, or classes. Shapes, such
            as variances, and shares are on their natural scale. ``withheld`` is the reason why an interval is missing.

        Examples
        --------
        >>> import numpy as np
        >>> from consilience import MixtureOfRegressions
        >>> rng = np.random.default_rng(0)
        >>> x = rng.uniform(-1, 1, 400)
        >>> y = np.where(rng.random(400) < 0.7, 3 * x, 2 - 3 * x) + 0.1 * rng.normal(size=400)
        >>> table = MixtureOfRegressions(2, random_state=0).fit(x[:, None], y).tidy()
        >>> table[["part", "expert", "term", "estimate", "p_value"]].round(2).iloc[[0, 3, 6]]
            part       expert      term  estimate  p_value
        0  share  component 1                0.70      NaN
        3  expert  component 1        x0      3.00      0.0
        6  shape  component 1  variance      0.01      NaN
        """
        check_is_fitted(self)
        check_level(level)
        self._check_reference(reference)
        return frames.to_frame(tidy_table(self, reference, level), self._backend)

    def glance(self) -> Any:
        """Return one row on the fit as a whole: its size, likelihood, criteria, convergence, and what is in doubt.

        ``rows_or_groups`` is the number of labels, by which BIC penalises; ``bic_of_one`` that of one expert on the
        same rows. ``withheld`` names the parts without intervals, ``in_doubt`` the reasons not to trust the fit.
        """
        check_is_fitted(self)
        return frames.to_frame({name: [value] for name, value in glance_row(self).items()}, self._backend)

    def _check_reference(self, reference: int | None) -> None:
        if reference is not None and reference not in range(self.mixture_.K):
            raise InvalidInputError(f"reference={reference!r}: expected an expert from 0 to {self.mixture_.K - 1}")

    def summary(self, *, reference: int | None = None, level: float = 0.95) -> Summary:
        """Return a one-screen summary: likelihood, experts with standard errors and intervals, gate.

        Parameters
        ----------
        reference : int, optional
            Print gate coefficients as contrasts to this expert (0 is the first) instead of centred.
        level : float
            Confidence level of the intervals.

        Returns
        -------
        Summary
            A text, whose ``to_html()``, ``to_latex()`` and ``to_markdown()`` have the same facts, tables and notes.
        """
        check_is_fitted(self)
        check_level(level)
        self._check_reference(reference)
        return summarise_fit(self, reference=reference, level=level)

    def describe(self, *, level: float = 0.95) -> str:
        """Return in plain sentences what each expert is: its share, where it holds, what goes with its response.

        Effects are per standard deviation of the covariate, as odds against the other experts for the gate, and as
        ratios for counts, positive responses and classes. Only effects whose interval excludes no effect are stated,
        the three strongest of each part with figures. What is withheld or not identified is said to be so.

        Parameters
        ----------
        level : float
            Confidence level of the intervals. Each interval holds for itself, not all of them together.
        """
        check_is_fitted(self)
        check_level(level)
        return describe_fit(self, level)

    # ------------------------------------------------------------------ files

    def save(self, path: str | Path, *, site_names: bool = False) -> None:
        """Write the fitted model to a JSON file, which :func:`consilience.load` reads.

        The file has the columns, the parameters in raw coordinates, their covariance, and where the model comes from;
        no rows. Its schema is published in :doc:`/how-to/saving-models`.

        Parameters
        ----------
        path : str or Path
        site_names : bool
            Whether to write the names of the sites of a federated fit; by default their number only.
        """
        from consilience.estimators.saving import model_text  # here, because it knows all estimators

        check_is_fitted(self)
        write_text(path, model_text(self, site_names=site_names))

    def report(self, path: str | Path, X: Any = None, y: Any = None, *, title: str = "") -> None:
        """Write a report for people: an HTML file, or a model card if the name ends in ``.md``.

        Parameters
        ----------
        path : str or Path
        X, y : array or frame, optional
            Rows for pictures of how well the model fits and separates them. No row is written.
        title : str
            Title of the report; by default the kind of model.
        """
        from consilience.report import write_report  # only here: it imports much

        write_report(self, path, X=X, y=y, title=title)

    def to_onnx(self, path: str | Path) -> None:
        """Write the predictions as an ONNX file, for runtimes without Python.

        The input is ``X (n, d)``, doubles; if some columns are categories, an input ``(n, 1)`` for each column by its
        name: doubles, or strings, int64 or bool for levels. Outputs are ``gate (n, K)``, and ``prediction`` of a
        regression at size 1, or ``label`` and ``probabilities`` as in ``predict`` and ``predict_proba``.

        Parameters
        ----------
        path : str or Path
        """
        check_is_fitted(self)
        if self.derivation_ is not None:
            raise InvalidInputError("formula: an ONNX file has columns as they are: fit those of the terms")
        write_onnx(self, path)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """Return what notebooks show: they ask for this first, and scikit-learn answers with its own diagram."""
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        return bundle | {"text/html": self._repr_html_()} if "text/html" in bundle else bundle

    def _repr_html_(self) -> str:
        if not hasattr(self, "mixture_"):
            return str(super()._repr_html_())
        from consilience.report.notebook import notebook_html  # only here: the reports import much

        return notebook_html(self)


def split_intercept(coef: Array, intercept: bool) -> tuple[Array, Array]:
    """Split coefficients ``(..., p)`` into intercepts ``(...)`` and slopes ``(..., d)``."""
    if intercept:
        return coef[..., 0].copy(), coef[..., 1:].copy()
    return np.zeros(coef.shape[:-1]), coef.copy()


# ---------------------------------------------------------------- processes

WORTH_A_PROCESS = 0.2
"""Seconds that the first start takes above which the others are climbed in processes of their own."""


def in_processes(number: int) -> Each:
    """Return a function like ``map`` that computes in so many processes, if the first item takes long enough."""

    def each(function: Callable[[StartTask], End], items: Iterable[StartTask]) -> Iterator[End]:
        left, began = iter(items), time.perf_counter()
        for item in islice(left, 1):
            yield function(item)
        if time.perf_counter() - began < WORTH_A_PROCESS:
            yield from map(function, left)
        else:
            yield from Parallel(number, return_as="generator", pre_dispatch=number)(delayed(function)(i) for i in left)

    return map if number == 1 else each
