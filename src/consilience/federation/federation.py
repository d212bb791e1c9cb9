"""Federation: the data of many sites, an engine that carries questions to them, and fits over all sites."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from difflib import get_close_matches
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from consilience import methods
from consilience.data import Shard
from consilience.data.file_columns import is_number
from consilience.data.predict_files import Scored, score_file
from consilience.data.shards import column_types
from consilience.display import count_files, show_rounds
from consilience.engines import Engine, InProcess
from consilience.errors import DegenerateFitWarning, InvalidInputError, warn
from consilience.estimators.calibrated_intervals import CalibratedIntervals, check_calibrable
from consilience.estimators.estimator import MixtureEstimator
from consilience.estimators.federated import specification_of
from consilience.estimators.order import CRITERIA
from consilience.estimators.validation import budget_of
from consilience.federation.data_source import Arrays, DataSource, Shards
from consilience.federation.federated_fit import FederatedFit, FederatedOrders, build_models, compare_orders, warn_of
from consilience.federation.scores import Scores, collect_scores, plan_scores, sites_of_model
from consilience.fit.criteria import has_entropy_of_sums
from consilience.fit.left_out import check_institutions
from consilience.fit.specification import validate_orders
from consilience.messages import CountTails, Dialogue, Each, Failure, FailureCode, LogLikelihood, SiteError, encode
from consilience.methods import FederatedEM, Method, Task
from consilience.model import Mixture, Rows
from consilience.model.contributions import refusal
from consilience.model.tails import TailCounts
from consilience.numerics.budget import Budget
from consilience.runs import EngineOverSites, Journal, Run, RunOptions, run
from consilience.runs.run import RunKeywords
from consilience.site import Site
from consilience.site.masks import in_one_process
from consilience.site.site import check_label_count

ESTIMATORS = "MixtureOfExpertsRegressor, MixtureOfExpertsClassifier, MixtureOfRegressions or GaussianMixture"


def check_sites(sites: Any) -> None:
    """Raise an error if ``sites`` is not a mapping from names to data."""
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
    """Raise an error if ``engine`` is not an engine: an object with ``over``, ``each`` and ``close``."""
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
    """Raise an error if ``method`` is not an instance of a federated method."""
    if isinstance(method, Method):
        return
    expected = "expected a method such as FederatedEM()"
    if isinstance(method, type) and issubclass(method, Method):
        raise InvalidInputError(f"method: got the class {method.__name__}, {expected}; pass {method.__name__}()")
    if isinstance(method, str):
        raise InvalidInputError(f"method: got the text {method!r}, {expected}; {_meant(method)}")
    raise InvalidInputError(f"method: got {_kind(method)}, {expected}; a method of your own is a subclass of Method")


def check_estimator(estimator: object) -> None:
    """Raise an error if ``estimator`` is not an estimator of this library."""
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


# ---------------------------------------------------------------- explanations

OF_FILES = {
    FailureCode.OTHER_COLUMNS,
    FailureCode.NOT_NUMBERS,
    FailureCode.MISSING_VALUES,
    FailureCode.UNKNOWN_CLASS,
    FailureCode.BAD_WEIGHTS,
    FailureCode.DATA_NOT_FOUND,
    FailureCode.DATA_UNREADABLE,
}
"""Failures that a file shows to whoever reads it."""


def explain_failure(name: str, failure: Failure, sites: Sequence[Site]) -> Failure:
    """Return the failure of a site with its reason, or with the place of its traceback.

    A site of this process has kept the reason. A file that a worker could not read is read here, up to the error.

    Parameters
    ----------
    name : str
        Name of the site.
    failure : Failure
    sites : sequence of Site
        All sites of the run.
    """
    if not failure.reference or failure.detail:
        return failure
    site = next(each for each in sites if each.name == name)
    kept = dict(site.reasons).get(failure.reference)
    if kept is None:
        reason = _read_here(site, failure.code) or (
            f"the traceback is in the log of the worker that read it (reference {failure.reference})"
        )
    elif failure.code is FailureCode.INTERNAL:
        reason = f"{kept}; the traceback is in Federation.traces[{name!r}]"
    else:
        reason = kept or f"the traceback is in Federation.traces[{name!r}]"
    return replace(failure, detail=reason + _other_types(site, failure.code, sites))


def _read_here(site: Site, code: FailureCode) -> str:
    """Read the file of a site up to its error; return the reason if the code is the same."""
    if code in OF_FILES:
        try:
            for _ in site.chunks():
                pass
        except SiteError as error:
            return error.detail if error.code is code else ""
    return ""


def _other_types(site: Site, code: FailureCode, sites: Sequence[Site]) -> str:
    """Say which type a column without numbers has in another file, if it has numbers there."""
    other = next((each for each in sites if each is not site), site)
    if code is not FailureCode.NOT_NUMBERS or not (isinstance(site.data, Shard) and isinstance(other.data, Shard)):
        return ""
    with suppress(SiteError):
        here, there = column_types(site.data.uri), column_types(other.data.uri)
        both = (column for column in site.data.columns.numeric if column in here and column in there)
        for column in both:
            if not is_number(here[column]) and is_number(there[column]):
                return f", but of type {there[column]} in {other.name}: write it as numbers in all files"
    return ""


# ---------------------------------------------------------------- federation

R = TypeVar("R")


class Federation:
    """A set of sites over which models are fitted.

    In a ``with`` statement the federation closes its engine at the end. Without one, and for an engine that several
    federations share, close the engine where it was opened, as in ``with DaskCluster() as cluster:``.

    Parameters
    ----------
    sites : mapping of str to (X, y) or to a mapping, or Shards
        Data of each site: ``(X, y)``, ``(X,)`` for a Gaussian mixture, or a mapping with ``X``, ``y``,
        ``sample_weight``, ``groups``, ``exposure``, ``trials``, ``clusters``. A group or cluster belongs to one site.
    engine : Engine
        Engine that carries the questions to the sites: :class:`InProcess` (the default), :class:`DaskCluster` or one of
        your own (:class:`Engine`).
    in_memory : bool
        Whether to keep the rows of shards in memory after they have been read.
    institutions : mapping of str to str, optional
        Institution of the sites that share one: they are left out together where the influence of a site is computed
        (:meth:`FederatedFit.influence`). Other sites stand for themselves.

    Examples
    --------
    >>> from consilience import Federation, MixtureOfExpertsRegressor
    >>> from consilience.datasets import soft
    >>> data = soft(2000, random_state=0)
    >>> sites = Federation({"north": (data.X[:900], data.y[:900]), "south": (data.X[900:], data.y[900:])})
    >>> result = sites.fit(MixtureOfExpertsRegressor(4, random_state=0))
    >>> result.model.coef_.shape, result.record.sites
    ((4, 20), ('north', 'south'))
    """

    def __init__(
        self,
        sites: Mapping[str, Any] | Shards,
        engine: Engine | None = None,
        *,
        in_memory: bool = False,
        institutions: Mapping[str, str] | None = None,
    ) -> None:
        if not isinstance(sites, Shards):
            check_sites(sites)
        self._source: DataSource = sites if isinstance(sites, Shards) else Arrays.of(sites)
        self._engine: Engine = InProcess() if engine is None else engine
        check_engine(self._engine)
        self._in_memory = in_memory
        self._sites: list[Site] = []
        self._institutions = dict(institutions or {})
        check_institutions(self._institutions, self._source.names)

    @classmethod
    def from_parquet(
        cls,
        pattern: str | Sequence[str],
        *,
        target: str | Sequence[str] | None = None,
        features: Sequence[str] | None = None,
        weight: str | None = None,
        groups: str | None = None,
        clusters: str | None = None,
        exposure: str | None = None,
        trials: str | None = None,
        engine: Engine | None = None,
        in_memory: bool = False,
    ) -> Federation:
        """Build a federation from the shards of one table: Parquet or CSV files, local or on S3; each file is a site.

        This is for a table with one owner: this process reads column names, classes of a classifier's target and
        labels of groups before any question is asked.

        Parameters
        ----------
        pattern : str or sequence of str
            Path, address (``s3://``, ``gs://``, ``abfs://``) or pattern with ``*``, or a list of addresses.
        target : str or sequence of str
            Column(s) of the response; None for a Gaussian mixture.
        features : sequence of str, optional
            Columns of the covariates, in order; by default all columns without another role.
        weight, groups, clusters, exposure, trials : str, optional
            Columns with these roles. The rows of a group, or of a cluster, must be in one shard.
        engine : Engine
        in_memory : bool
            Whether to keep the rows in memory instead of reading the files again in every round.

        Examples
        --------
        >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
        >>> from consilience import Federation, MixtureOfRegressions
        >>> from consilience.datasets import soft
        >>> data = soft(1000, random_state=0)
        >>> folder = tempfile.TemporaryDirectory()
        >>> for i in range(2):
        ...     part = slice(500 * i, 500 * i + 500)
        ...     columns = {"a": data.X[part, 0], "b": data.X[part, 1], "y": data.y[part]}
        ...     pq.write_table(pa.table(columns), f"{folder.name}/part-{i}.parquet")
        >>> table = Federation.from_parquet(f"{folder.name}/*.parquet", target="y")
        >>> result = table.fit(MixtureOfRegressions(2, random_state=0))
        >>> result.record.sites, list(result.model.feature_names_in_)
        (('part-0.parquet', 'part-1.parquet'), ['a', 'b'])
        >>> folder.cleanup()
        """
        roles = {"weight": weight, "groups": groups, "clusters": clusters, "exposure": exposure, "trials": trials}
        shards = Shards.of(pattern, target=target, features=features, **roles)
        return cls(shards, engine, in_memory=in_memory)

    def __repr__(self) -> str:
        return f"Federation of {self._source.description}, engine {type(self._engine).__name__}"

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def _over(self, sites: Sequence[Site]) -> Iterator[EngineOverSites]:
        """Open the engine over the sites of a run, and close what it opened."""
        over = self._engine.over(sites, in_memory=self._in_memory)
        check_over(self._engine, over)
        try:
            yield over
        finally:
            over.close()

    @property
    def traces(self) -> dict[str, list[str]]:
        """Return the tracebacks of failures at sites of this process in the last run; only failure codes are sent."""
        return {site.name: list(site.traces) for site in self._sites if site.traces}

    def _explained(self, site: str, failure: Failure) -> Failure:
        return explain_failure(site, failure, self._sites)

    def run(self, dialogue: Dialogue[R], **options: Unpack[RunKeywords]) -> Run[R]:
        """Run a custom dialogue over the sites; their columns are used without conversion.

        Sites given as ``(X,)`` have responses only, as for a Gaussian mixture.

        Parameters
        ----------
        dialogue : Dialogue
        **options
            ``journal``, ``deadline``, ``on_drop``, ``limits`` and others, as in :class:`RunOptions`.

        Returns
        -------
        Run
            ``value``, the return value of the dialogue, and ``record``.
        """
        self._sites = self._source.sites(None)
        asked = RunOptions(**options)
        with self._over(self._sites) as engine:
            return run(dialogue, engine, asked, explain=asked.explain or self._explained)

    def fit(
        self,
        estimator: MixtureEstimator,
        method: Method | None = None,
        *,
        start: MixtureEstimator | None = None,
        **options: Unpack[RunKeywords],
    ) -> FederatedFit:
        """Fit a copy of ``estimator`` over all sites.

        Parameters
        ----------
        estimator : estimator of this library
        method : FederatedEM, OneShot, SharedCentre, ClusteredClients or another
            Federated method; exact EM by default. SharedCentre and FedGrEM fit one model per site
            (:attr:`FederatedFit.models`).
        start : estimator of this library, optional
            A fitted model from which the fit starts, in place of the ``mixture_init`` of ``estimator``.
        **options
            ``journal``, ``deadline``, ``on_drop``, ``limits`` and others, as in :class:`RunOptions`.

        Returns
        -------
        FederatedFit
        """
        if start is not None:
            check_fitted(start)
            estimator = clone(estimator).set_params(mixture_init=start.mixture_)
        (fitted,) = self._fits(estimator, None, method, RunOptions(**options))
        assert fitted is not None  # a single fit that is not possible raises an error  # noqa: S101
        warn_of(fitted)
        return fitted

    def select_order(
        self,
        estimator: MixtureEstimator,
        orders: Iterable[int] = range(1, 7),
        *,
        criterion: str = "bic",
        method: Method | None = None,
        **options: Unpack[RunKeywords],
    ) -> FederatedOrders:
        """Fit models with several numbers of experts in the same rounds, and compare them by a criterion.

        Parameters
        ----------
        estimator : estimator of this library
        orders : iterable of int
            Numbers of experts.
        criterion : {"bic", "aic", "icl"}
            ICL needs the entropy of the responsibilities, which the answers of sites state for a constant gate with
            Gaussian or Student-t experts.
        method, **options
            As in :meth:`fit`.

        Returns
        -------
        FederatedOrders
            Degenerate fits, and orders that could not be fitted, are set aside and named.
        """
        orders = validate_orders(orders)
        if criterion not in CRITERIA:
            raise InvalidInputError(f"criterion={criterion!r}: expected one of {', '.join(CRITERIA)}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateFitWarning)  # such fits are set aside
            fits = self._fits(estimator, orders, method, RunOptions(**options), icl=criterion == "icl")
        for fitted in fits:
            if fitted is not None:
                fitted.check_one_mixture(criterion.upper())
        chosen = compare_orders(orders, fits, criterion)
        warn_of(chosen.best)
        if reason := chosen.set_aside.get(chosen.best_order):
            warn(f"the fits of all orders are degenerate ({reason}): try fewer experts", DegenerateFitWarning)
        return chosen

    def predict(
        self, model: MixtureEstimator, out: str | Path, *, keep: str | Sequence[str] = (), overwrite: bool = False
    ) -> Scores:
        """Score all shards with a fitted model, on the same engine: one Parquet file for each shard, rows in its order.

        Columns of a file of scores: those of ``keep``; ``prediction``, the mean response or the class (of several
        responses ``prediction_0``, ...; none for a Gaussian mixture); for classes ``probability_CLASS``; ``expert``,
        the most probable expert; and the probabilities of experts: ``responsibility_0``, ... given the response if the
        federation has a ``target``, else ``gate_0``, ... given the covariates alone.

        A file gets its name when it is complete. Scores that are there, of the same model and the same unchanged file,
        are kept: after an interrupt or an error the same call scores the rest.

        Parameters
        ----------
        model : estimator
            A fitted estimator, as ``FederatedFit.model``; its columns are found by name.
        out : path
            Folder for the files, local or in a store; created if missing. A folder with inputs is refused.
        keep : str or sequence of str
            Columns that are copied, such as a key; as text from a CSV file.
        overwrite : bool
            Whether to write files again that are there.

        Returns
        -------
        Scores

        Examples
        --------
        >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
        >>> from consilience import Federation, MixtureOfRegressions
        >>> from consilience.datasets import soft
        >>> data = soft(1000, random_state=0)
        >>> folder = tempfile.TemporaryDirectory()
        >>> columns = {"id": range(1000), "a": data.X[:, 0], "b": data.X[:, 1], "y": data.y}
        >>> pq.write_table(pa.table(columns), f"{folder.name}/part.parquet")
        >>> table = Federation.from_parquet(f"{folder.name}/*.parquet", target="y", features=["a", "b"])
        >>> result = table.fit(MixtureOfRegressions(2, random_state=0))
        >>> scores = table.predict(result.model, f"{folder.name}/scores", keep="id")
        >>> pq.read_table(scores.files[0]).column_names
        ['id', 'prediction', 'expert', 'responsibility_0', 'responsibility_1']
        >>> folder.cleanup()
        """
        shards = self._source
        if not isinstance(shards, Shards):
            raise InvalidInputError("predict scores files, and these rows are in memory: use model.predict(X)")
        check_fitted(model)
        keep = (keep,) if isinstance(keep, str) else tuple(keep)
        tasks = plan_scores(shards, model, str(out), keep, overwrite=overwrite)
        shared = encode(LogLikelihood(model.mixture_))
        outcomes: dict[int, Scored | None] = {}
        try:
            with count_files(bool(model.verbose), "predict", len(tasks)) as advance:
                for i, outcome in self._engine.each(score_file, tasks, shared):
                    outcomes[i] = outcome
                    advance(len(outcomes))
        except KeyboardInterrupt as interrupt:
            interrupt.args = (
                f"interrupted after {len(outcomes)} of {len(tasks)} files: the same call scores the rest",
            )
            raise
        return collect_scores(shards.names, tasks, outcomes)

    def calibrate(self, model: MixtureEstimator, **options: Unpack[RunKeywords]) -> CalibratedIntervals:
        """Calibrate the prediction intervals of a fitted model on the rows of these sites, in one round.

        The sites should hold rows that the fit has not seen. Each site sends how many of its rows are in each class of
        tail probabilities; the coverage at each site follows from the same answers.

        Parameters
        ----------
        model : estimator
            A fitted estimator, as ``FederatedFit.model``, with one response that is a number.
        **options
            ``journal``, ``deadline``, ``on_drop``, ``limits`` and others, as in :class:`RunOptions`.

        Returns
        -------
        CalibratedIntervals

        Examples
        --------
        >>> from consilience import Federation, MixtureOfRegressions
        >>> from consilience.datasets import soft
        >>> data = soft(2000, random_state=0)
        >>> model = MixtureOfRegressions(1).fit(data.X[:1000], data.y[:1000])
        >>> north, south = slice(1000, 1500), slice(1500, 2000)
        >>> others = Federation({"north": (data.X[north], data.y[north]), "south": (data.X[south], data.y[south])})
        >>> intervals = others.calibrate(model)
        >>> list(intervals.coverage(0.9)["site"])
        ['north', 'south', 'all']
        """
        check_fitted(model)
        check_calibrable(model)
        self._sites = sites_of_model(self._source, model)
        asked = RunOptions(**options)
        with self._over(self._sites) as engine:
            done = run(_count_tails(model.mixture_), engine, asked, explain=asked.explain or self._explained)
        return CalibratedIntervals(model, dict(done.value))

    def _fits(
        self,
        estimator: MixtureEstimator,
        orders: Sequence[int] | None,
        method: Method | None,
        options: RunOptions,
        *,
        icl: bool = False,
    ) -> list[FederatedFit | None]:
        method = FederatedEM() if method is None else method
        check_method(method)
        check_estimator(estimator)
        if options.on_drop == "skip" and not method.partial:
            raise InvalidInputError(
                f"on_drop='skip': {type(method).__name__} needs the same sites in all rounds; use 'stop' or 'continue'"
            )
        first = clone(estimator)
        sites = self._source.sites(first)  # sets the columns of the estimator
        if method.by_client:
            sites = [site.by_client() for site in sites]
        if method.budget is not None:
            sites = with_budgets(sites, method.budget, options)
        if method.masked is not None:
            sites = with_masks(sites, method.masked, self._engine)
        self._sites = sites
        models = [first] if orders is None else [_with_order(first, K) for K in orders]
        task = replace(_task(models, sites, options.journal), institutions=self._institutions)
        method.check_shared(task.specifications)
        if icl and not all(has_entropy_of_sums(each) for each in task.specifications):
            raise InvalidInputError(
                f"criterion='icl': the answers of sites do not state the entropy of the responsibilities of "
                f"{first.family} experts behind this gate; use 'bic', or pool the rows"
            )
        journal = options.journal
        if journal is not None and not isinstance(journal, Journal):
            journal = Journal(journal, _study(method, task, sites))
        with show_rounds(bool(estimator.verbose), type(estimator).__name__) as progress, self._over(sites) as engine:
            done = run(
                method.dialogue(task),
                engine,
                options,
                journal=journal,
                progress=options.progress or progress,
                most_rounds=options.most_rounds or method.most_rounds(task),
                explain=options.explain or self._explained,
            )
        return build_models(models, done)


def _count_tails(mixture: Mixture) -> Dialogue[Mapping[str, TailCounts]]:
    """Ask each site how far out its responses are."""
    counts: Mapping[str, TailCounts] = yield Each(CountTails(mixture))
    return counts


def with_budgets(sites: Sequence[Site], budget: Budget, options: RunOptions) -> list[Site]:
    """Return the sites with an account each, for one run; raise an error for rows that cannot have one.

    On another engine each answer is drawn where the site is, and the account goes there with the question: a run asks
    for each part of the budget once, and takes one answer.
    """
    if options.journal is not None:
        raise InvalidInputError(
            "a method with noise keeps no journal: a run that is resumed would spend its budget again"
        )
    of_persons = budget.rows_each is not None
    for site in sites:
        columns = site.data if isinstance(site.data, Rows) else site.data.columns
        sized = "rows have exposures or trials, which are not simulated: leave them out"
        reason = refusal(columns, of_persons=of_persons, of_groups=budget.of_groups)
        if reason := reason or sized * (columns.exposure is not None):
            raise InvalidInputError(f"this method does not serve these rows: {reason}")
    return [site.private(budget.rho, budget.parts, budget.rows_each) for site in sites]


def with_masks(sites: Sequence[Site], colluding: int, engine: Engine) -> list[Site]:
    """Return the sites with keys for masks, for one run; raise an error where masks would hide nothing."""
    if not isinstance(engine, InProcess):
        raise InvalidInputError(
            "sums='masked' hides what a site sends from who adds it up, and on a cluster that is the owner of all "
            "files: use sums='each', or a study by files"
        )
    masks = in_one_process([site.name for site in sites], colluding)
    return [replace(site, masks=each) for site, each in zip(sites, masks, strict=True)]


def _with_order(estimator: MixtureEstimator, K: int) -> MixtureEstimator:
    """Return a copy of the estimator, with its columns, for another number of experts."""
    return copy(estimator).set_params(**{estimator.order_name: K})


def _task(models: Sequence[MixtureEstimator], sites: Sequence[Site], journal: object) -> Task:
    """Return the task of the method."""
    first = models[0]
    seed = first.random_state
    if not isinstance(seed, int | np.integer):
        if journal is not None:
            raise InvalidInputError("a journal needs random_state as a whole number, so that the run can be repeated")
        seed = _drawn(seed)
    specifications = tuple(specification_of(model) for model in models)
    check_label_count(sites, max(specification.K for specification in specifications))
    names, budget = first.columns_.terms if hasattr(first, "feature_names_in_") else (), budget_of(first)
    d, q = sites[0].shape
    asked: dict[str, Any] = {"start": first.mixture_init, "seed": int(seed), "names": names, **budget}
    asked["responses"] = first.response_names_
    of_sites: dict[str, Any] = {"clustered": sites[0].clustered, "sites": tuple(site.name for site in sites)}
    return Task(specifications, d, q, **asked, **of_sites)


def _drawn(random_state: Any) -> int:
    """Draw a seed from a generator of either kind, or from a new one."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    return int(check_random_state(random_state).randint(2**31 - 1))


def _study(method: Method, task: Task, sites: Sequence[Site]) -> str:
    """Return a digest of everything that determines a run, except the data."""
    text = repr((method, replace(task, start=None), [site.name for site in sites]))
    digest = blake2b(text.encode(), digest_size=16)
    if task.start is not None:
        digest.update(encode(LogLikelihood(task.start)))
    return digest.hexdigest()
