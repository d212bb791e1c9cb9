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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from scipy.special import ndtri

from consilience.columns import Column, Rule
from consilience.columns.dictionary import TRANSFORMS
from consilience.files.site_file import SiteFile
from consilience.kit.examination import factors_to
from consilience.kit.study import Study
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


def compare_columns(study: Study, files: Sequence[SiteFile]) -> list[ColumnFinding]:
    """Compare the columns of the sites; return what may be wrong, by site and column.

    Parameters
    ----------
    study : Study
    files : sequence of SiteFile
        At least two; with two, nobody can tell which of them is wrong, and both are named.
    """
    if len(files) < 2:
        return []
    sites = [_Site(study, file) for file in files]
    found: list[ColumnFinding] = []
    for site in sites:
        others = [other for other in sites if other is not site]
        units = list(_units(study, site, others))
        found += units
        if len(sites) > 2 and (related := _related(study, site, others, {each.column for each in units})):
            found.append(related)
    return found


# ---------------------------------------------------------------- a site


class _Site:
    """Moments of a site, in the scale of the transforms of the study."""

    def __init__(self, study: Study, file: SiteFile) -> None:
        self.name, self.study, self.file = file.site, study, file
        summary = file.fit.summary
        self.n = max(float(summary.weight), 1.0)
        self.covariance = summary.x_products / self.n

    def moments(self, column: Column) -> tuple[float, float]:
        """Return mean and standard deviation of a number, after its transform and before centre and scale."""
        summary = self.file.fit.summary
        if column.name == self.study.model.response:
            return float(summary.y_mean[0]), float(np.sqrt(summary.y_covariance[0, 0]))
        j = self.study.covariates.terms.index(column.terms[0])
        rule = column.rule
        spread = float(np.sqrt(max(self.covariance[j, j], 0.0)))
        return float(summary.x_mean[j]) * rule.scale + rule.centre, spread * rule.scale

    @cached_property
    def effects(self) -> Array | None:
        """Standardised slopes of the predicted response, ``(d,)``, at normal points of the site; None if not known."""
        model, summary = self.file.fit.model, self.file.fit.summary
        spread = float(np.sqrt(summary.y_covariance[0, 0]))
        if model is None or model.mixture.design.d != len(summary.x_mean) or not spread > 0:
            return None
        normal = np.random.default_rng(0).standard_normal((POINTS, len(summary.x_mean)))
        values, vectors = np.linalg.eigh(self.covariance)
        X = normal @ (vectors * np.sqrt(np.maximum(values, 0.0))).T + summary.x_mean
        mean = model.mixture.mean(X)
        if self.study.classes is not None:
            share = np.clip(mean[:, -1] / mean.sum(axis=1), 1e-6, 1 - 1e-6)
            predicted, unit = np.log(share / (1 - share)), 2.0  # a logit has about this spread
        elif self.study.response.rule.is_positive and np.all(mean > 0):
            predicted, unit = np.log(mean[:, 0]), spread / float(summary.y_mean[0])
        else:
            predicted, unit = mean[:, 0], spread
        slopes = np.linalg.lstsq(np.column_stack([np.ones(POINTS), X]), predicted, rcond=None)[0][1:]
        return np.asarray(slopes / unit)  # for one unit of a covariate


def _usual(others: Array, usual: float) -> tuple[Array, Array]:
    """Return the median of the numbers of other sites ``(M, ...)``, and the variance of differences from it."""
    middle = np.median(others, axis=0)
    scatter = (PRIOR * usual**2 + np.sum((others - middle) ** 2, axis=0)) / (PRIOR + len(others) - 1)
    return middle, np.maximum(scatter, usual**2)  # few sites that happen to be alike do not make others wrong


# ---------------------------------------------------------------- units


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


def _units(study: Study, site: _Site, others: Sequence[_Site]) -> Iterator[ColumnFinding]:
    """Yield the columns of numbers of a site that are in other units, or far from those of the others."""
    for column in (study.response, *study.covariates.columns):
        if column.is_category:
            continue
        own, found = np.array(site.moments(column)), np.array([other.moments(column) for other in others])
        if not (own[1] > 0 and np.all(found[:, 1] > 0)):
            continue
        middle = np.median(found, axis=0)
        variance = [_usual(found[:, 0] / middle[1], MEANS)[1], _usual(np.log(found[:, 1]), SPREADS)[1]]
        number = _Number(column.rule, own, middle, np.array(variance) + 1 / site.n)
        factors = factors_to(column.rule.unit)
        name = min(factors, key=lambda each: number.distance(factors[each]))
        as_is, mended = number.distance(), number.distance(factors[name])
        if (as_is - mended) / 2 > UNITS and mended < MENDED**2:
            yield _of_units(site.name, column, name, factors[name])
        elif as_is > FAR**2:
            text = (
                f"{column.name} is far from that of the other sites, and no change of units explains it: is it right?"
            )
            yield ColumnFinding(site.name, column.name, "far", text)


def _in_units(rule: Rule, moments: Array, factor: float) -> tuple[float, float]:
    """Return mean and standard deviation after the transform, if values were divided by a factor before it."""
    if factor == 1.0:
        return float(moments[0]), float(moments[1])
    if rule.transform == "none":
        return float(moments[0] / factor), float(moments[1] / factor)
    inverse = {"log": np.exp, "log1p": np.expm1, "sqrt": np.square}[rule.transform]
    low = -np.inf if rule.low is None else rule.low
    high = np.inf if rule.high is None else rule.high
    values = np.clip(inverse(moments[0] + moments[1] * NODES), low, high) / factor
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


@dataclass(frozen=True, eq=False)
class _Relations:
    """Correlations and effects of a site, between numbers, levels and the response.

    Parameters
    ----------
    columns : list of str
        Column of each of the D quantities.
    values : (D, D + 1) array
        Correlations, then the standardised effect on the response; NaN within a column, and if it is not known.
    shares : (D,) array
        Shares of levels; NaN for numbers.
    """

    columns: list[str]
    values: Array
    shares: Array


def _relations(study: Study, site: _Site) -> _Relations:
    """Return the relations of a site; of a category of two levels its second one counts, of others each."""
    covariates, names = study.covariates, []
    rows, shares, at = [], [], 0
    for column in covariates.columns:
        width = len(column.terms)
        if column.is_category:
            mean = site.file.fit.summary.x_mean[at : at + width]
            for i in range(len(column.levels)) if len(column.levels) > 2 else column.coded:
                row = np.zeros(len(covariates.terms))
                row[at : at + width] = [float(place == i) for place in column.coded] if i in column.coded else -1.0
                rows.append(row)
                shares.append(float(row[at : at + width] @ mean) + (i not in column.coded))
                names.append(column.name)
        else:
            row = np.zeros(len(covariates.terms))
            row[at] = 1.0
            rows.append(row)
            shares.append(np.nan)
            names.append(column.name)
        at += width
    A = np.array(rows).reshape(len(rows), len(covariates.terms))
    covariance = A @ site.covariance @ A.T
    spread = np.sqrt(np.maximum(np.diagonal(covariance), 1e-300))
    correlation = covariance / np.outer(spread, spread)
    same = np.array([[one == other for other in names] for one in names], dtype=bool).reshape(correlation.shape)
    correlation = np.where(same, np.nan, np.arctanh(np.clip(correlation, -0.99, 0.99)))
    return _Relations(names, np.column_stack([correlation, _slopes(study, site, A, spread)]), np.array(shares))


def _slopes(study: Study, site: _Site, A: Array, spread: Array) -> Array:
    """Return the standardised effect of each quantity; that of a level against the mean of its column."""
    if site.effects is None:
        return np.full(len(A), np.nan)
    effects, centred, at = site.effects, site.effects.copy(), 0
    base = np.zeros(len(A))
    for column in study.covariates.columns:
        part = slice(at, at + len(column.terms))
        at = part.stop
        if column.is_category and len(column.levels) > 2:
            centre = float(effects[part] @ site.file.fit.summary.x_mean[part])
            mine = np.any(A[:, part] != 0, axis=1)
            coded = np.max(A[:, part], axis=1) > 0
            base[mine] = -centre
            centred[part] = effects[part]
            base[mine & ~coded] = -centre + float(np.sum(effects[part]))  # a reference level has effect 0
    return np.asarray((A @ centred + base) * spread)


def _related(study: Study, site: _Site, others: Sequence[_Site], known: set[str]) -> ColumnFinding | None:
    """Return the likeliest shuffled column or swapped levels of a site; None if no error explains its relations."""
    own, found = _relations(study, site), [_relations(study, other) for other in others]
    middle, variance = _usual(np.array([each.values for each in found]), RELATIONS)
    variance = variance + 1 / site.n
    as_is = _squares(own.values - middle, variance)
    best: tuple[float, ColumnFinding | None] = (RELATED, None)
    for column in (*study.covariates.columns, study.response):
        if column.name in known:
            continue
        is_response = column.name == study.model.response
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
    own: _Relations,
    found: Sequence[_Relations],
    usual: tuple[Array, Array],
    mine: Sequence[int],
    column: Column,
) -> Iterator[tuple[float, tuple[int, int]]]:
    """Yield how much better each exchange of two levels explains a site, and the levels."""
    middle, variance = usual
    logits = np.array([_logit(each.shares[mine]) for each in found])
    share = _logit(own.shares[mine])
    expected, spread = _usual(logits, SHARES)
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
        f"{column.name} is related to the other columns everywhere but here: were its cells sorted, or joined, apart "
        "from the rows?"
    )
    return ColumnFinding(site, column.name, "shuffled", text)


def _swapped(site: str, column: Column, pair: tuple[int, int]) -> ColumnFinding:
    one, other = (column.levels[i] for i in pair)
    text = f"{column.name} is related to the other columns as if {one} and {other} were exchanged: are they?"
    return ColumnFinding(site, column.name, "swapped", text)
