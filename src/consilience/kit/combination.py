"""The combination of the files of sites into one model, and studies run on tables or files of one owner."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import PurePosixPath

import pyarrow as pa

from consilience.data import Shard
from consilience.engines.inprocess import InProcess
from consilience.engines.protocol import Engine
from consilience.errors import InvalidInputError
from consilience.federation.data_source import Shards
from consilience.federation.federated_fit import FederatedFit, FederatedOrders, build_models, compare_orders, warn_of
from consilience.files.json_text import content_hash
from consilience.files.noisy_file import AnySiteFile, NoisyFile
from consilience.files.site_file import SiteFile
from consilience.kit.policy.policy import Policy
from consilience.kit.private_rows import private_rows
from consilience.kit.site_comparison import ColumnFinding, compare_files
from consilience.kit.site_fit import columns_of, site_file, validate_rows
from consilience.kit.study import Study
from consilience.kit.study_model import estimators_of, method_of, task_of
from consilience.messages import Failure, FailureCode, FitSite, PrivateSteps, decode, encode
from consilience.methods import Method, OneShot, PrivateScoring
from consilience.model import Mixture
from consilience.numerics.budget import Budget
from consilience.runs import EngineOverSites, Limits, Reply, RunOptions, digest, run
from consilience.site import Site
from consilience.site.account import Account


class SiteFiles:
    """Engine whose sites have answered before, by a file each.

    Every site answers a :class:`~consilience.messages.FitSite` with the fit in its file, or a
    :class:`~consilience.messages.PrivateSteps` with its noisy sums, and no other question: there is nobody to ask. The
    coordinator checks these answers as those of any engine.

    Parameters
    ----------
    files : mapping of str to SiteFile or NoisyFile
        File of each site, in the order of the sites; all of one kind.
    """

    def __init__(self, files: Mapping[str, AnySiteFile]) -> None:
        if not files:
            raise InvalidInputError("expected the file of at least one site")
        self._answers = {
            name: encode(file.fit if isinstance(file, SiteFile) else file.steps, file_fingerprint(file))
            for name, file in files.items()
        }
        self._answered = FitSite if isinstance(next(iter(files.values())), SiteFile) else PrivateSteps

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in the order of summation."""
        return tuple(self._answers)

    def ask(
        self, number: int, question: bytes, sites: Sequence[str], *, total: bool, timeout: float | None
    ) -> Iterator[list[Reply]]:
        """Yield the stored answers; a failure for a question that files cannot answer."""
        answers = self._answers if isinstance(decode(question), self._answered) and not total else {}
        refused = encode(Failure(FailureCode.NO_ANSWER_TO_KIND))
        replies = [(name, answers.get(name, refused)) for name in sites]
        yield [Reply(number, (name,), message, (digest(message),), 0.0) for name, message in replies]

    def close(self) -> None:
        """Do nothing: there is nothing to end."""


def file_fingerprint(file: AnySiteFile) -> int:
    """Return the fingerprint of a file's rows: that of its fit, so that one fit under two names is seen."""
    own = {key: value for key, value in file.content.items() if key not in ("site", "evidence")}
    return int(content_hash(own).removeprefix("sha256:")[:15], 16)


# ---------------------------------------------------------------- combination


def combine_files(
    study: Study,
    files: Iterable[AnySiteFile],
    institutions: Mapping[str, str] | None = None,
    *,
    mixed_waves: bool = False,
) -> FederatedOrders:
    """Combine the files of the sites by one-shot aggregation; compare the study's numbers of experts by BIC.

    Files with noise are explained by one mixture (:mod:`consilience.fit.noisy_totals`).

    Parameters
    ----------
    study : Study
    files : iterable of SiteFile or NoisyFile
    institutions : mapping of str to str, optional
        Institution of sites, as in :func:`run_study`.
    mixed_waves : bool
        Whether files of different waves may be combined.

    Raises
    ------
    InvalidInputError
        If a file is of another study, two files are of one site, sites state different waves, or files with noise have
        other starts.
    """
    if not study.is_one_file:
        raise InvalidInputError("the study is answered in rounds: there are no files to combine; use 'consilience run'")
    by_site: dict[str, AnySiteFile] = {}
    for file in files:
        if file.study != study.identity:
            raise InvalidInputError(
                f"the file of {file.site} is for another study, or for another version of it ({file.study[:15]}..., "
                f"this is {study.identity[:15]}...): use the study file that was sent to the sites, or ask the site to "
                "fit again"
            )
        if file.site in by_site:
            raise InvalidInputError(f"there are two files of site {file.site}: pass one")
        by_site[file.site] = file
    in_order = dict(sorted(by_site.items()))
    if study.is_noisy_file:
        start = start_in(in_order.values())
        return run_study(study, SiteFiles(in_coordinates_of_run(study, start, in_order)), start=start)
    fitted = {site: file for site, file in in_order.items() if isinstance(file, SiteFile)}
    if len(fitted) < len(in_order):
        raise InvalidInputError("the study is without noise, and some of the files have noise")
    if not mixed_waves:
        check_waves(fitted)
    questions = compare_files(study, list(fitted.values()))
    return run_study(study, SiteFiles(fitted), OneShot(refine=0), institutions=institutions, questions=questions)


def check_waves(files: Mapping[str, SiteFile]) -> None:
    """Raise an error if sites state different waves, or if only some of them state one."""
    waves: dict[str, list[str]] = {}
    for site, file in files.items():
        waves.setdefault(file.wave or "none stated", []).append(site)
    if len(waves) > 1:
        listed = "; ".join(f"{wave}: {', '.join(sites)}" for wave, sites in waves.items())
        raise InvalidInputError(
            f"the files are of different waves ({listed}): ask for files of one wave, or say that they may be mixed "
            "(--mixed-waves)"
        )


def in_coordinates_of_run(study: Study, start: Mixture, files: Mapping[str, AnySiteFile]) -> dict[str, AnySiteFile]:
    """Return files with noise whose mixtures are in the coordinates in which sums were asked; files have raw ones."""
    method, found = method_of(study), dict(files)
    for name, file in files.items():
        if isinstance(method, PrivateScoring) and isinstance(file, NoisyFile):
            problem, _, _ = method.public(task_of(study, start=start))
            mixtures = tuple(map(problem.from_start, file.steps.mixtures))
            found[name] = replace(file, steps=replace(file.steps, mixtures=mixtures))
    return found


def start_in(files: Iterable[AnySiteFile]) -> Mixture:
    """Return the start of files with noise; raise an error unless all have the same."""
    starts = {}
    for file in files:
        if not isinstance(file, NoisyFile):
            raise InvalidInputError(f"the study is with noise, and the file of {file.site} has none")
        starts[content_hash(file.content["steps"][0]["mixture"])] = file.steps.mixtures[0]
    if len(starts) > 1:
        raise InvalidInputError("the files start from different models: each site starts from the one of the study")
    return next(iter(starts.values()))


def simulate_study(
    study: Study, tables: Mapping[str, pa.Table], policy: Policy | None = None, *, start: Mixture | None = None
) -> FederatedOrders:
    """Run a study on tables in this process: the same result, to the bit, as by files.

    Parameters
    ----------
    study : Study
    tables : mapping of str to pyarrow.Table
        Table of each site.
    policy : Policy, optional
        Policy that every site applies, as ``consilience site`` does; no rules without one.
    start : Mixture, optional
        Public start of the run.
    """
    if policy is not None:
        policy.check_way(study.way)
        if study.way == "limits":
            return combine_files(study, [site_file(study, name, table, policy) for name, table in tables.items()])
    return run_study(study, InProcess().over(sites_of(study, tables)), start=start)


def sites_of(study: Study, tables: Mapping[str, pa.Table]) -> list[Site]:
    """Return the sites of a study from their tables, by name; with clients or with a budget if the method needs it."""
    method = method_of(study)
    if method.budget is not None:
        return [private_site(study, name, tables[name], method.budget) for name in sorted(tables)]
    sites = [Site(name, validate_rows(study, tables[name])) for name in sorted(tables)]
    return [site.by_client() for site in sites] if method.by_client else sites


def private_site(study: Study, name: str, table: pa.Table, budget: Budget) -> Site:
    """Return a site with a budget, of which the rows of each person that count are known."""
    account = Account(budget.rho, budget.parts, budget.rows_each or 1)
    return Site(name, private_rows(study, table).rows, key=secrets.token_bytes(32), account=account)


def run_study(
    study: Study,
    engine: EngineOverSites,
    method: Method | None = None,
    *,
    start: Mixture | None = None,
    options: RunOptions | None = None,
    institutions: Mapping[str, str] | None = None,
    questions: Sequence[ColumnFinding] = (),
) -> FederatedOrders:
    """Run a study over an engine; compare its numbers of experts by BIC.

    Parameters
    ----------
    study : Study
    engine : EngineOverSites
    method : Method, optional
        The study's by default.
    start : Mixture, optional
        Public start of the run.
    options : RunOptions, optional
        The study states the limits.
    institutions : mapping of str to str, optional
        Institution of the sites that share one, as in :class:`~consilience.Federation`.
    questions : sequence of ColumnFinding
        Columns of sites that may be wrong; the result names them.
    """
    models = estimators_of(study)
    method = method or method_of(study)
    task = task_of(study, models, start=start, institutions=institutions, sites=engine.sites)
    method.check_shared(task.specifications)
    limits, most_rounds = Limits(max_rows=study.max_rows), method.most_rounds(task)
    done = run(method.dialogue(task), engine, options, limits=limits, most_rounds=most_rounds)
    fits = [None if fit is None else with_questions(fit, study, questions) for fit in build_models(models, done)]
    found = compare_orders(study.model.experts, fits, "bic")
    warn_of(found.best)
    return found


def with_questions(found: FederatedFit, study: Study, questions: Sequence[ColumnFinding]) -> FederatedFit:
    """Return a fit with columns of sites that may be wrong, in place of what else is suspected of these columns.

    Relations between columns differ at honest sites too: a column that looks shuffled, or its levels exchanged, is a
    question to the site and raises no suspicion.
    """
    terms = {column.name: column.terms for column in study.covariates.columns}
    terms[study.model.response] = (study.response_term,)
    sites = []
    for site in found.fit.survey.sites:
        mine = [each for each in questions if each.site == site.name]
        named = tuple(f"{term} " for each in mine for term in terms[each.column])
        kept = [said for said in site.suspicions if not said.removeprefix("the mean of ").startswith(named)]
        asked = [each.text for each in mine if each.what in ("shuffled", "swapped")]
        suspicions = (*kept, *(each.text for each in mine if each.text not in asked))
        sites.append(replace(site, suspicions=suspicions, question="; ".join(filter(None, [site.question, *asked]))))
    survey = replace(found.fit.survey, sites=tuple(sites))
    return replace(found, fit=replace(found.fit, survey=survey)) if questions else found


# ---------------------------------------------------------------- shards


def sites_in(study: Study, pattern: str | Sequence[str]) -> list[Site]:
    """Return a site for each file of one owner, with the columns and rules of a study, by name.

    Sites are named as their files, without the ending if the names are distinct then.

    Parameters
    ----------
    study : Study
    pattern : str or sequence of str
        Path, address (``s3://``, ``gs://``, ``abfs://``) or pattern with ``*``, or a list of addresses.
    """
    if study.way == "noise":
        raise InvalidInputError("files of one owner need no noise: take it out of the study, or run it by mailbox")
    if study.cohort:
        raise InvalidInputError("files of one owner are read as they are: leave the rows outside of the cohort out")
    roles = {"target": study.model.response, "groups": study.model.clients, "exposure": study.model.exposure}
    shards = Shards.of(pattern, features=study.sources.names, **roles)
    short = [PurePosixPath(name).name.split(".")[0] for name in shards.names]
    names = short if len(set(short)) == len(short) else shards.names
    sites = [Site(name, Shard(uri, columns_of(study))) for name, uri in sorted(zip(names, shards.uris, strict=True))]
    return [site.by_client() for site in sites] if method_of(study).by_client else sites


def run_over_files(
    study: Study,
    pattern: str | Sequence[str],
    engine: Engine | None = None,
    *,
    start: Mixture | None = None,
    options: RunOptions | None = None,
) -> FederatedOrders:
    """Run a study over files of one owner; no policy applies.

    Parameters
    ----------
    study : Study
    pattern : str or sequence of str
        As in :func:`sites_in`.
    engine : Engine, optional
        In this process by default.
    start : Mixture, optional
        Public start of the run.
    options : RunOptions, optional
        The study states the limits.
    """
    with closing((InProcess() if engine is None else engine).over(sites_in(study, pattern))) as over:
        return run_study(study, over, start=start, options=options)
