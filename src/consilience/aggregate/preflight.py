"""Compare the columns of sites before a fit: a column in other units, shifted or constant at one site, an empty site.

Only the sites' means and variances are needed. Sites may truly differ, so a column is compared with how much the other
sites, and the other columns, differ: a site is named if the gap to the others is several times that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from consilience.fit.survey import Survey, SurveyedSite
from consilience.model import ColumnSummary
from consilience.numerics.arrays import Array, IntArray, Mask

FEWEST = 10.0
"""Weight below which a site's columns are not compared: their variances are too uncertain."""
PRIOR = 3.0
"""Degrees of freedom of the differences that other columns show, beside those of the column itself."""
GAP = 5.0
"""Least gap between a site and the others, in standard deviations of the others, for a large ratio of spreads."""
WIDE_GAP = 12.0
"""The same for a small ratio."""
GAP_OF_MEANS = 6.0
"""The same for means, in which sites may truly differ more."""
TIMES, LEAST_TIMES = 6.0, 1.7
"""Ratio of spreads from which a site is suspect, and from which it may be if mean and spread have the same ratio."""
SAME_RATIO = 0.25
"""Tolerance in the logarithm for the ratio of means to be that of the spreads, as after a change of units."""
INFORMATIVE = 0.3
"""Least mean, in standard deviations, whose ratio can be compared."""
FAR = 3.0
"""Distance of a constant from the mean of the others, in standard deviations, from which it is not plausible."""
SHIFT = 10.0
"""Distance of a mean from those of the others, in standard deviations of the rows, from which a site is suspect."""
UNUSUAL_SHIFT = 2.0
"""The same for a remark."""
ABOUT = 0.2
"""Tolerance in the logarithm for a ratio to be shown as a power of ten."""
OUTWEIGHS = 7.0
"""Multiple of the rows of the next site from which the largest of at least three sites is asked whether it counted rows
twice; for the k largest, fewer than half, the k-th power of it. If sizes of honest sites are lognormal with a standard
deviation of 1 in the logarithm, one is asked in 2 % of the studies with ten sites and in 8 % of those with three."""
SKEWEST = 6.0
"""Largest ``1 + (sd / mean)²`` for which the uncertainty of a spread is computed."""


@dataclass(frozen=True, eq=False)
class _Columns:
    """Means, standard deviations and weights of all columns at the sites with rows; names of sites and columns."""

    sites: tuple[str, ...]
    names: tuple[str, ...]
    mean: Array  # (M, C)
    sd: Array  # (M, C)
    weight: Array  # (M,)

    @classmethod
    def of(cls, summaries: Mapping[str, ColumnSummary], names: Sequence[str], compared: Mask) -> _Columns:
        kept = {site: summary for site, summary in summaries.items() if summary.weight >= FEWEST}
        shape = (len(kept), len(names))
        mean = np.array([np.concatenate([s.x_mean, s.y_mean]) for s in kept.values()]).reshape(shape)
        variance = [np.concatenate([s.x_variance, np.diagonal(s.y_covariance)]) for s in kept.values()]
        sd = np.sqrt(np.maximum(np.array(variance).reshape(shape), 0.0))
        compared = compared & np.all(np.isfinite(mean) & np.isfinite(sd), axis=0)  # a fit refuses those that overflow
        chosen = tuple(name for name, use in zip(names, compared, strict=True) if use)
        weight = np.array([summary.weight for summary in kept.values()])
        return cls(tuple(kept), chosen, mean[:, compared], sd[:, compared], weight)

    @property
    def constant(self) -> Mask:
        """Return where a column is constant up to rounding, ``(M, C)``."""
        return np.asarray(self.sd <= 1e-9 * np.abs(self.mean))

    def noise(self, j: int) -> Array:
        """Return the sampling variance of the logarithm of column ``j``'s standard deviation, ``(M,)``.

        It is that of a lognormal column with the ratio of standard deviation and mean seen here, because skew columns
        have far less certain spreads; a column about 0 counts as normal.
        """
        mean, sd = np.abs(np.median(self.mean[:, j])), np.median(self.sd[:, j])
        w = min(1 + (sd / mean) ** 2, SKEWEST) if mean >= INFORMATIVE * sd else 1.0
        return np.asarray((w**4 + 2 * w**3 + 3 * w**2 - 4) / 4 / self.weight)

    def indicates(self, j: int) -> bool:
        """Return whether column ``j`` is 0 or 1 in every row of every site, by its mean and variance."""
        p, v = self.mean[:, j], self.sd[:, j] ** 2
        return bool(np.all((p >= 0) & (p <= 1) & (np.abs(v - p * (1 - p)) <= 1e-9)))


@dataclass(frozen=True, eq=False)
class Split:
    """Sites apart from the others in one number.

    Parameters
    ----------
    apart : (M,) array of bool
        The smaller part, or if ``tied`` one of two equal parts.
    tied : bool
    distance : (M,) array
        Distance from the median of the larger part.
    gap : float
        Smallest gap between the parts, in standard deviations within the larger part.
    """

    apart: Mask
    tied: bool
    distance: Array
    gap: float


def divide_sites(values: Array, noise: Array, usual: float, allowed: float = 0.0) -> Split | None:
    """Divide sites at the largest gap between their values; None if there is no gap, or a part has no majority of two.

    Parameters
    ----------
    values, noise : (M,) array
        One number of each site, and its sampling variance.
    usual : float
        Standard deviation between sites of such numbers, as other columns show it.
    allowed : float
        Gap that is not counted.
    """
    if len(values) < 2:
        return None
    order = np.argsort(values, kind="stable")
    place = int(np.argmax(np.diff(values[order]))) + 1
    low, high = order[:place], order[place:]
    small, large = (low, high) if len(low) <= len(high) else (high, low)
    tied = len(low) == len(high)
    inside = [values[part] - values[part].mean() for part in ((small, large) if tied else (large,))]
    squares, freedom = sum(float(d @ d) for d in inside), sum(len(d) - 1 for d in inside)
    scatter = np.sqrt((PRIOR * usual**2 + squares) / (PRIOR + freedom) + noise.max())
    gap = (values[order[place]] - values[order[place - 1]] - allowed) / max(float(scatter), 1e-12)
    apart = np.zeros(len(values), dtype=bool)
    apart[small] = True
    return Split(apart, tied, values - np.median(values[large]), float(gap))


def preflight(summaries: Mapping[str, ColumnSummary], names: Sequence[str], compared: Mask | None = None) -> Survey:
    r"""Report on every site: how many rows it has, and columns unlike those of the other sites.

    Parameters
    ----------
    summaries : mapping of str to ColumnSummary
    names : sequence of str
        Names of the covariates, then of the responses.
    compared : array of bool, optional
        Which columns to compare; classes, for example, have no spread.

    Returns
    -------
    Survey
        Suspicions name site and column. A site that outweighs the others is asked a question. If the sites are divided
        equally, which part is wrong is undecided: this is one of the survey's doubts.
    """
    columns = _Columns.of(summaries, names, np.ones(len(names), dtype=bool) if compared is None else compared)
    suspicions: dict[str, list[str]] = {site: [] for site in summaries}
    notes: dict[str, list[str]] = {site: [] for site in summaries}
    doubts: list[str] = []
    if len(columns.sites) >= 2:
        for finding in (*_constants(columns), *_spreads(columns), *_shifts(columns)):
            if finding.tied:
                doubts.append(finding.text)
            for site in finding.sites:
                (suspicions if finding.suspect and not finding.tied else notes)[site].append(finding.text)
    questions, reports = _outweighing(summaries), []
    for site, summary in summaries.items():
        reasons = () if summary.weight > 0 else ("it has no rows",)
        said = tuple(suspicions[site]), tuple(notes[site])
        reports.append(SurveyedSite(site, summary.weight, reasons, *said, question=questions.get(site, "")))
    return Survey(tuple(reports), tuple(doubts))


def _outweighing(summaries: Mapping[str, ColumnSummary]) -> dict[str, str]:
    """Return a question to the few sites that have far more rows than any other; their weight is not changed."""
    weights = {site: summary.weight for site, summary in summaries.items() if summary.weight > 0}
    names, total = sorted(weights, key=lambda site: -weights[site]), sum(weights.values())
    for k in range(1, (len(names) + 1) // 2):
        times = weights[names[k - 1]] / weights[names[k]]
        if times > OUTWEIGHS**k:
            share = f"{100 * sum(weights[site] for site in names[:k]) / total:.3g} % of all rows"
            have = f"it has {share}" if k == 1 else f"it and {k - 1} more have {share} together"
            said = f"{have}, {times:,.2g} times those of the next site: ask whether rows were counted twice"
            return dict.fromkeys(names[:k], said)
    return {}


@dataclass(frozen=True)
class _Finding:
    """A sentence about one column of some sites."""

    sites: tuple[str, ...]
    text: str
    suspect: bool = True
    tied: bool = False


def _constants(columns: _Columns) -> Iterator[_Finding]:
    """Find columns that are constant at fewer than half of the sites."""
    for j, name in enumerate(columns.names):
        constant = columns.constant[:, j]
        if not 0 < constant.sum() < len(constant) / 2:
            continue
        mean, sd = np.median(columns.mean[~constant, j]), np.median(columns.sd[~constant, j])
        for m in np.flatnonzero(constant):
            value = columns.mean[m, j]
            rare = columns.indicates(j) or (value == 0 and abs(mean) < 2 * sd)  # an event that is absent here
            plausible = rare or (constant.sum() > 1 and abs(value - mean) < FAR * sd)
            yield _Finding((columns.sites[m],), f"{name} is constant here, and not at the other sites", not plausible)


def _spreads(columns: _Columns) -> Iterator[_Finding]:
    """Find columns whose standard deviation stands out at some sites."""
    varied = [j for j in range(len(columns.names)) if not (columns.constant[:, j].any() or columns.indicates(j))]
    logs = np.log(columns.sd[:, varied])
    usual = _usual(logs)
    for values, j in zip(logs.T, varied, strict=True):
        at = np.arange(len(columns.sites))
        while True:  # sites apart are taken away, and the rest is looked at again
            found = divide_sites(values[at], columns.noise(j)[at], usual, _allowed(columns, at, j))
            if found is None or not _is_suspect(columns, at, found, j):
                break
            yield from _apart(columns, at, found, j)
            if found.tied:
                break
            at = at[~found.apart]


def _is_suspect(columns: _Columns, at: IntArray, found: Split, j: int) -> bool:
    times = float(np.exp(np.median(found.distance[found.apart])))
    return found.gap >= GAP and is_suspect_ratio(times, found.gap, _same_ratio(columns, at, found, j))


def _apart(columns: _Columns, at: IntArray, found: Split, j: int) -> Iterator[_Finding]:
    """Name the sites apart; if they are as many as the others, say that it is undecided."""
    name, times = columns.names[j], np.exp(found.distance)
    if not found.tied:
        for m, ratio in zip(at[found.apart], times[found.apart], strict=True):
            yield _Finding((columns.sites[m],), f"{name} is about {_rounded(ratio)} times the others': units?")
        return
    apart, rest = (tuple(columns.sites[m] for m in part) for part in (at[found.apart], at[~found.apart]))
    text = (
        f"{name} is about {_rounded(float(np.median(times[found.apart])))} times as large at {', '.join(apart)} as at "
        f"{', '.join(rest)}: units? the data cannot tell which is wrong"
    )
    yield _Finding((*apart, *rest), text, tied=True)


def _allowed(columns: _Columns, at: IntArray, j: int) -> float:
    """Return the gap in log spread that sites in different regions of a column may have: ``log(1 + δ)``.

    ``δ`` is the median distance between means in standard deviations of the rows. It is that of the closest half of
    the sites, so that a site in other units does not excuse itself.
    """
    means = np.sort(columns.mean[at, j])
    half = len(means) // 2 + 1
    if half < 2:
        return 0.0
    width = np.min(means[half - 1 :] - means[: len(means) - half + 1])
    return float(np.log1p(width / np.median(columns.sd[at, j])))


def _same_ratio(columns: _Columns, at: IntArray, found: Split, j: int) -> bool:
    """Return whether means have the ratio of the spreads, as after a change of units; True if they are near 0."""
    inside, outside = at[~found.apart], at[found.apart]
    mean, sd = np.median(columns.mean[inside, j]), np.median(columns.sd[inside, j])
    own, own_sd = np.median(columns.mean[outside, j]), np.median(columns.sd[outside, j])
    if abs(mean) < INFORMATIVE * sd:
        return bool(abs(own) < 2 * INFORMATIVE * own_sd)
    return bool(own * mean > 0 and abs(np.log((own / mean) / (own_sd / sd))) <= SAME_RATIO)


def is_suspect_ratio(times: float, gap: float, same: bool) -> bool:
    """Return whether a ratio of spreads suggests an error: large, or with a wide gap and the ratio of the means."""
    size = abs(np.log(times))
    return bool(size >= np.log(TIMES) or (same and size >= np.log(LEAST_TIMES) and gap >= WIDE_GAP))


def _rounded(times: float) -> str:
    tens = 10.0 ** round(float(np.log10(times)))
    shown = float(f"{tens if abs(np.log(times / tens)) <= ABOUT else times:.2g}")
    return f"{shown:,.6g}"


def _shifts(columns: _Columns) -> Iterator[_Finding]:
    """Find columns whose mean stands out at some sites, in standard deviations of the rows."""
    varied = [j for j in range(len(columns.names)) if not columns.indicates(j) and np.median(columns.sd[:, j]) > 0]
    if not varied:
        return
    sd = np.median(columns.sd[:, varied], axis=0)
    places = columns.mean[:, varied] / sd
    noise, usual = 1.0 / columns.weight, _usual(places)
    for place, j in enumerate(varied):
        found = divide_sites(places[:, place], noise, usual)
        if found is None or found.tied or found.gap < GAP_OF_MEANS:
            continue
        for m in np.flatnonzero(found.apart):
            if abs(np.log(max(columns.sd[m, j], 1e-300) / sd[place])) > np.log(LEAST_TIMES):
                continue  # its spread differs too: said there
            far = abs(float(found.distance[m]))
            if far >= UNUSUAL_SHIFT:
                text = f"the mean of {columns.names[j]} is {far:.2g} standard deviations from that of the others"
                yield _Finding((columns.sites[m],), text, suspect=far >= SHIFT)


def _usual(values: Array) -> float:
    """Return the usual scatter between sites of ``(M, C)`` numbers: the lower median of the columns' deviations."""
    if not values.size:
        return 0.0
    deviations = 1.4826 * np.sort(np.abs(values - np.median(values, axis=0)), axis=0)[(len(values) - 1) // 2]
    return float(np.sort(deviations)[(len(deviations) - 1) // 2])
