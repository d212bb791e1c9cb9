r"""Columns of a site that look wrong beside those of the other sites: other units, a shuffled column, swapped levels.

The files have means and covariances of the covariates, mean and variance of the response, and the fitted mixture. Each
site is compared with the medians of the others, and sites may differ: a difference counts in units of

.. math:: v = \frac{\nu_0 \tau_0^2 + \sum_m d_m^2}{\nu_0 + M - 2} + \text{sampling variance},

and at least :math:`\tau_0^2`, where :math:`d_m` are the differences of the other sites from their median and
:math:`\tau_0` is a usual one. An error
is a hypothesis of what the site would then have sent; it is named if it explains the site's numbers better than no
error does, by a difference of half the sums of squares above a threshold:

- *units*: mean and standard deviation of a number are those of the others after a factor of a closed list;
- *shuffled*: correlations with the other columns, and the effect on the predicted response, are 0;
- *swapped*: shares of two levels, their correlations and effects are exchanged.

A column that is far from the others, and that no factor mends, is a question to the site.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import ndtri

from consilience.columns import Column, Rule
from consilience.columns.dictionary import INVERSES, TRANSFORMS
from consilience.files.site_file import SiteFile
from consilience.kit.examination import factors_to
from consilience.kit.study import Study
from consilience.kit.study_terms import place_of
from consilience.numerics.arrays import Array

PRIOR = 4.0
"""Degrees of freedom of the usual difference."""
MEANS, SPREADS = 0.35, 0.2
"""Usual difference of means, in standard deviations, and of logarithms of standard deviations."""
RELATIONS, SHARES = 0.08, 0.5
"""Usual difference of correlations and standardised effects, and of logits of shares."""
LARGEST = 16.0
"""Largest square of a difference of correlations or effects that counts."""
UNITS, RELATED = 4.5, 3.0
"""Thresholds for a factor of units, and for a shuffled column or swapped levels."""
MENDED, FAR = 3.0, 9.0
"""Distance up to which a factor mends a column, and from which one that none mends is a question to the site."""
TIE = 4.0
"""Difference of squared distances that does not tell factors apart."""
NODES = ndtri((np.arange(99) + 1) / 100)
"""Quantiles of the normal distribution, at which a column in other units is computed."""
POINTS = 400
MOST_LEVELS = 8
"""Largest number of levels of a category whose exchanges are considered."""


@dataclass(frozen=True)
class ColumnFinding:
    """A column of a site that may be wrong.

    Parameters
    ----------
    site, column : str
    what : {"units", "shuffled", "swapped", "far"}
    text : str
        What is found, as a question to the site.
    factor : float, optional
        Factor that mends the units.
    """

    site: str
    column: str
    what: str
    text: str
    factor: float | None = None

    def __str__(self) -> str:
        return f"{self.site}: {self.text}"


@dataclass(frozen=True, eq=False)
class Relations:
    """Correlations and effects of a site, between numbers, levels and the response.

    Parameters
    ----------
    columns : list of str
        Column of each of the D quantities: a number, or a level. Of a category of two levels it is the coded one.
    values : (D, D + 1) array
        Correlations, then the standardised effect on the response; NaN within a column, and if it is not known.
    errors : (D, D + 1) array
        Sampling variance of each.
    shares : (D,) array
        Shares of levels; NaN for numbers.
    share_errors : (D,) array
        Sampling variance of the logit of each.
    """

    columns: list[str]
    values: Array
    errors: Array
    shares: Array
    share_errors: Array


@dataclass(frozen=True, eq=False)
class SiteColumns:
    """What a site has sent about its columns.

    Parameters
    ----------
    name : str
        Name of the site.
    moments : mapping of str to array
        Mean and standard deviation ``(2,)`` of each number that is known, after its transform.
    errors : mapping of str to array
        Sampling variance ``(2,)`` of the mean in standard deviations, and of the logarithm of the standard deviation.
    relations : Relations
    """

    name: str
    moments: Mapping[str, Array]
    errors: Mapping[str, Array]
    relations: Relations


def compare_columns(columns: Sequence[Column], sites: Sequence[SiteColumns]) -> list[ColumnFinding]:
    """Compare the columns of the sites; return what may be wrong, by site and column.

    Parameters
    ----------
    columns : sequence of Column
        Those of the study, the response first.
    sites : sequence of SiteColumns
        At least two; with two, nobody can tell which of them is wrong, and both are named.
    """
    if len(sites) < 2:
        return []
    found: list[ColumnFinding] = []
    for site in sites:
        others = [other for other in sites if other is not site]
        units = list(_units(columns, site, others))
        found += units
        if len(sites) > 2 and (related := _related(columns, site, others, {each.column for each in units})):
            found.append(related)
    return found


def compare_files(study: Study, files: Sequence[SiteFile]) -> list[ColumnFinding]:
    """Compare the columns of sites by their files, as :func:`compare_columns` does."""
    return compare_columns((study.response, *study.sources.columns), [describe_file(study, each) for each in files])


# ---------------------------------------------------------------- a file


def describe_file(study: Study, file: SiteFile) -> SiteColumns:
    """Return what a file says of the columns of its site."""
    summary = file.fit.summary
    n = max(float(summary.weight), 1.0)
    covariance = summary.x_products / n
    moments = {}
    if not study.response.is_category:
        moments[study.model.response] = np.array([summary.y_mean[0], np.sqrt(summary.y_covariance[0, 0])])
    for column in study.sources.columns:
        j, rule = place_of(study, column), column.rule
        if not column.is_category and j is not None:
            spread = np.sqrt(max(covariance[j, j], 0.0))
            moments[column.name] = np.array([summary.x_mean[j] * rule.scale + rule.centre, spread * rule.scale])
    relations = _relations(study, file, covariance, n)
    return SiteColumns(file.site, moments, {name: np.full(2, 1 / n) for name in moments}, relations)


def _effects(study: Study, file: SiteFile, covariance: Array) -> Array | None:
    """Return standardised slopes of the predicted response, ``(d,)``, at normal points; None if not known."""
    model, summary = file.fit.model, file.fit.summary
    spread = float(np.sqrt(summary.y_covariance[0, 0]))
    if model is None or model.mixture.design.d != len(summary.x_mean) or not spread > 0:
        return None
    normal = np.random.default_rng(0).standard_normal((POINTS, len(summary.x_mean)))
    values, vectors = np.linalg.eigh(covariance)
    X = normal @ (vectors * np.sqrt(np.maximum(values, 0.0))).T + summary.x_mean
    mean = model.mixture.mean(X)
    if study.classes is not None:
        share = np.clip(mean[:, -1] / mean.sum(axis=1), 1e-6, 1 - 1e-6)
        predicted, unit = np.log(share / (1 - share)), 2.0  # a logit has about this spread
    elif study.response.rule.is_positive and np.all(mean > 0):
        predicted, unit = np.log(mean[:, 0]), spread / float(summary.y_mean[0])
    else:
        predicted, unit = mean[:, 0], spread
    slopes = np.linalg.lstsq(np.column_stack([np.ones(POINTS), X]), predicted, rcond=None)[0][1:]
    return np.asarray(slopes / unit)  # for one unit of a covariate


# ---------------------------------------------------------------- relations that a file states


def _relations(study: Study, file: SiteFile, covariance: Array, n: float) -> Relations:
    """Return the relations that a file states; of a category of two levels the coded one counts, of others each."""
    covariates, summary, names = study.covariates, file.fit.summary, []
    rows, shares, at = list[Array](), list[float](), 0
    for column in covariates.columns:
        part = slice(at, at + len(column.terms))
        at = part.stop
        several = column.is_category and len(column.levels) > 2
        for i in range(len(column.levels)) if several else column.coded if column.is_category else (None,):
            row = np.zeros(len(covariates.terms))
            row[part] = 1.0 if i is None else [place == i for place in column.coded] if i in column.coded else -1.0
            rows.append(row)
            shares.append(np.nan if i is None else float(row @ summary.x_mean) + (i not in column.coded))
            names.append(column.name)
    A = np.array(rows).reshape(len(rows), len(covariates.terms))
    between = A @ covariance @ A.T
    spread = np.sqrt(np.maximum(np.diagonal(between), 1e-300))
    correlation = between / np.outer(spread, spread)
    same = np.array([[one == other for other in names] for one in names], dtype=bool).reshape(correlation.shape)
    correlation = np.where(same, np.nan, np.arctanh(np.clip(correlation, -0.99, 0.99)))
    slopes = _slopes(study, summary.x_mean, _effects(study, file, covariance), (A, spread))
    values = np.column_stack([correlation, slopes])
    p = np.array(shares)
    return Relations(names, values, np.full(values.shape, 1 / n), p, 1 / (n * np.maximum(p * (1 - p), 1e-3)))


def _slopes(study: Study, mean: Array, effects: Array | None, quantities: tuple[Array, Array]) -> Array:
    """Return the standardised effect of each quantity; that of a level against the mean of its column."""
    A, spread = quantities
    if effects is None:
        return np.full(len(A), np.nan)
    base, at = np.zeros(len(A)), 0
    for column in study.covariates.columns:
        part = slice(at, at + len(column.terms))
        at = part.stop
        if column.is_category and len(column.levels) > 2:
            centre = float(effects[part] @ mean[part])
            mine = np.any(A[:, part] != 0, axis=1)
            coded = np.max(A[:, part], axis=1) > 0
            base[mine] = -centre
            base[mine & ~coded] = -centre + float(np.sum(effects[part]))  # a reference level has effect 0
    return np.asarray((A @ effects + base) * spread)


# ---------------------------------------------------------------- units


def _usual(others: Array, usual: float) -> tuple[Array, Array]:
    """Return the median of the numbers of other sites ``(M, ...)``, and the variance of differences from it."""
    middle = np.median(others, axis=0)
    scatter = (PRIOR * usual**2 + np.sum((others - middle) ** 2, axis=0)) / (PRIOR + len(others) - 1)
    return middle, np.maximum(scatter, usual**2)  # few sites that happen to be alike do not make others wrong


@dataclass(frozen=True, eq=False)
class _Number:
    """A column of numbers at a site, and at the others."""

    rule: Rule
    own: Array  # mean and standard deviation
    middle: Array  # of the others
    variance: Array  # of differences of means in standard deviations, and of logarithms of standard deviations

    def distance(self, factor: float = 1.0) -> float:
        """Return the squared distance of the site from the others in units that this factor mends."""
        mean, spread = _in_units(self.rule, self.middle, factor)
        apart = np.array([(self.own[0] - mean) / spread, np.log(self.own[1] / spread)])
        return float(np.sum(apart**2 / self.variance))


def _units(columns: Sequence[Column], site: SiteColumns, others: Sequence[SiteColumns]) -> Iterator[ColumnFinding]:
    """Yield the columns of numbers of a site that are in other units, or far from those of the others."""
    for column in columns:
        if any(column.name not in each.moments for each in (site, *others)):
            continue
        own, found = site.moments[column.name], np.array([other.moments[column.name] for other in others])
        if not (own[1] > 0 and np.all(found[:, 1] > 0)):
            continue
        middle = np.median(found, axis=0)
        variance = [_usual(found[:, 0] / middle[1], MEANS)[1], _usual(np.log(found[:, 1]), SPREADS)[1]]
        number = _Number(column.rule, own, middle, np.array(variance) + site.errors[column.name])
        factors = factors_to(column.rule.unit)
        name = _likeliest(number, factors)
        as_is, mended = number.distance(), number.distance(factors[name])
        if (as_is - mended) / 2 > UNITS and mended < MENDED**2:
            yield _of_units(site.name, column, name, factors[name])
        elif as_is > FAR**2:
            text = (
                f"{column.name} is far from that of the other sites, and no change of units explains it: is it right?"
            )
            yield ColumnFinding(site.name, column.name, "far", text)


def _likeliest(number: _Number, factors: Mapping[str, float]) -> str:
    """Return the factor that makes a site most like the others; of those that are hardly apart, one of times."""
    apart = {name: number.distance(factor) for name, factor in factors.items()}
    least = min(apart.values())
    return min(apart, key=lambda name: (apart[name] > least + TIE, "(from" not in name, apart[name]))


def _in_units(rule: Rule, moments: Array, factor: float) -> tuple[float, float]:
    """Return mean and standard deviation after the transform, if values were divided by a factor before it."""
    if factor == 1.0:
        return float(moments[0]), float(moments[1])
    if rule.transform == "none":
        return float(moments[0] / factor), float(moments[1] / factor)
    low = -np.inf if rule.low is None else rule.low
    high = np.inf if rule.high is None else rule.high
    values = np.clip(INVERSES[rule.transform](moments[0] + moments[1] * NODES), low, high) / factor
    with np.errstate(all="ignore"):
        changed = TRANSFORMS[rule.transform](values)
    return float(np.mean(changed)), max(float(np.std(changed)), 1e-12)


def _of_units(site: str, column: Column, name: str, factor: float) -> ColumnFinding:
    times, way = (factor, "lower") if factor > 1 else (1 / factor, "higher")
    there = name.partition("(from ")[2].rstrip(")") or "other units"
    unit = column.rule.unit or "that of the study"
    text = (
        f"{column.name} is about {times:.3g} times {way} than elsewhere; multiplied by {factor:.4g} it would be like "
        f"that of the other sites. Is it in {there}, and not in {unit}?"
    )
    return ColumnFinding(site, column.name, "units", text, factor)


# ---------------------------------------------------------------- relations


def _related(
    columns: Sequence[Column], site: SiteColumns, others: Sequence[SiteColumns], known: set[str]
) -> ColumnFinding | None:
    """Return the likeliest shuffled column or swapped levels of a site; None if no error explains its relations."""
    own, found = site.relations, [other.relations for other in others]
    middle, variance = _usual(np.array([each.values for each in found]), RELATIONS)
    variance = variance + own.errors
    as_is = _squares(own.values - middle, variance)
    best: tuple[float, ColumnFinding | None] = (RELATED, None)
    for column in (*columns[1:], columns[0]):
        if column.name in known:
            continue
        is_response = column is columns[0]
        mine = [i for i, name in enumerate(own.columns) if name == column.name]
        part = (slice(None), [-1]) if is_response else (mine, slice(None))
        gain = float(np.nansum(as_is[part]) - np.nansum(_squares(own.values, variance)[part])) / 2
        if gain > best[0]:
            best = (gain, _shuffled(site.name, column))
        if not is_response and column.is_category and len(column.levels) <= MOST_LEVELS:
            for gain, pair in _exchanges(own, found, (middle, variance), mine, column):
                if gain > best[0]:
                    best = (gain, _swapped(site.name, column, pair))
    return best[1]


def _squares(difference: Array, variance: Array) -> Array:
    return np.asarray(np.minimum(difference**2 / variance, LARGEST))


def _exchanges(
    own: Relations,
    found: Sequence[Relations],
    usual: tuple[Array, Array],
    mine: Sequence[int],
    column: Column,
) -> Iterator[tuple[float, tuple[int, int]]]:
    """Yield how much better each exchange of two levels explains a site, and the levels."""
    middle, variance = usual
    logits = np.array([_logit(each.shares[mine]) for each in found])
    share = _logit(own.shares[mine])
    expected, spread = _usual(logits, SHARES)
    spread = spread + own.share_errors[mine]
    as_is = np.nansum(_squares(own.values[mine] - middle[mine], variance[mine]))
    as_is += np.sum(_squares(share - expected, spread))
    for one, other in combinations(range(len(column.levels)), 2):
        if len(mine) == 1:
            there, shares = -own.values[mine], -share
        else:
            order = list(range(len(mine)))
            order[one], order[other] = other, one
            there, shares = own.values[mine][order], share[order]
        changed = np.nansum(_squares(there - middle[mine], variance[mine]))
        changed += np.sum(_squares(shares - expected, spread))
        yield float(as_is - changed) / 2, (one, other)


def _logit(share: Array) -> Array:
    p = np.clip(share, 1e-3, 1 - 1e-3)
    return np.asarray(np.log(p / (1 - p)))


def _shuffled(site: str, column: Column) -> ColumnFinding:
    text = (
        f"{column.name} is related to the other columns elsewhere and hardly here: is this so, or were its cells "
        "sorted, or joined, apart from the rows?"
    )
    return ColumnFinding(site, column.name, "shuffled", text)


def _swapped(site: str, column: Column, pair: tuple[int, int]) -> ColumnFinding:
    one, other = (column.levels[i] for i in pair)
    text = f"{column.name} is related to the other columns as if {one} and {other} were exchanged: are they?"
    return ColumnFinding(site, column.name, "swapped", text)
