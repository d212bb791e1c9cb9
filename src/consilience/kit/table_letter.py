"""A letter on the columns of a site, before any model leaves: counts of rows in public bands, with noise.

It is Table 1 in coarse bands, for a coordinator who wants to find other units and exchanged levels before anybody fits.
A site may send it before its table is clean and send its file, or another letter, after a few rows were corrected. The
difference must not show these rows. Bands alone would not do, since a count at the edge of a band moves by one row, so
that each count has noise. The letter is ρ-zCDP for one row, or one person, whatever the way of the study is: it is
charged to the budget of the site, and no other release is compared with it.

- *Bands.* A row is in one band of each column. With the number of rows the counts have the squared sensitivity
  ``columns + 1``.
- *Pairs.* Of two columns that have a middle, numbers and categories of two levels, the rows on the same side of both
  less those on different sides; a row moves each by one at most. The middle of a number is the edge nearest to its mean
  by the bands, which have their noise already.

Half of ρ is for each.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import combinations
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from consilience.columns import Column
from consilience.errors import InvalidInputError, RefusedError
from consilience.kit import ledger
from consilience.kit.bands import band_labels, banded, edges_of, fit_bands, places_in_bands
from consilience.kit.cohort import criteria_of, in_cohort
from consilience.kit.folder import SiteFolder
from consilience.kit.letters import SealedText, as_hash, as_mapping, as_name, format_of
from consilience.kit.mapping import TableMapping, mapped_by
from consilience.kit.policy.policy import Policy
from consilience.kit.private_rows import first_rows
from consilience.kit.release import MOST_BYTES, check_not_withdrawn, envelope_of, keep_bytes, read_kept_bytes
from consilience.kit.row_tags import row_tags, whole_column
from consilience.kit.site_fit import NO_KEY, wanted_of
from consilience.kit.spending import NOISE, charge, check_spending, cost_line, fraction_text, spent_in
from consilience.kit.study import PersonUnit, Study
from consilience.numerics.budget import rho_of
from consilience.numerics.discrete_gaussian import Uniform, discrete_gaussian

EPSILON, DELTA = 1.0, 1e-6
RHO = rho_of(EPSILON, DELTA)
"""What one letter costs."""
LETTERS = "letters"
"""Folder of the letters that left."""
MOST_PAIRS = 300
"""With more pairs of columns than this, only those with the response are counted."""
MOST_COLUMNS, MOST_BANDS, MOST_COUNT = 500, 300, 2**40
UNITS = ("row", "person")
"""What a letter protects."""


# ---------------------------------------------------------------- what is counted


def letter_columns(study: Study) -> tuple[Column, ...]:
    """Return the columns of a study that have bands, the response first, as their bands read them."""
    found = (banded(column) for column in (study.response, *study.sources.columns))
    return tuple(column for column in found if column is not None)


def has_sides(column: Column) -> bool:
    """Whether a column has a middle: a number, or a category of two levels."""
    return len(column.levels) in (0, 2)


def letter_pairs(study: Study) -> list[tuple[str, str]]:
    """Return the pairs of columns that are counted."""
    names = [column.name for column in letter_columns(study) if has_sides(column)]
    found = list(combinations(names, 2))
    return found if len(found) <= MOST_PAIRS else [pair for pair in found if study.model.response in pair]


def letter_variances(columns: int, pairs: int) -> tuple[int, int]:
    """Return the variances of the noise in counts of bands and in those of pairs, so that both together cost ρ.

    Examples
    --------
    >>> letter_variances(6, 15), letter_variances(1, 0)
    ((288, 616), (42, 0))
    """
    part = RHO / 2 if pairs else RHO
    return _variance(columns + 1, part), _variance(pairs, part) if pairs else 0


def _variance(square: int, rho: Fraction) -> int:
    """Return the least integer variance with ``square / (2 variance) ≤ rho``."""
    return -(-square * rho.denominator // (2 * rho.numerator))


@dataclass(frozen=True, eq=False)
class CountedRows:
    """The rows of a site that a letter counts, by the places of their bands.

    Parameters
    ----------
    columns : tuple of Column
    places : mapping of str to array
        Place ``(n,)`` of the band of each row.
    """

    columns: tuple[Column, ...]
    places: Mapping[str, NDArray[np.int64]]

    @classmethod
    def of(cls, study: Study, table: pa.Table, persons: str = "") -> CountedRows:
        """Return the rows of the cohort, the first one of each person if a column tells persons apart.

        Raises
        ------
        InvalidInputError
            If the table lacks a column. Nothing is refused for a value of a row.
        """
        columns, criteria = letter_columns(study), criteria_of(study)
        for name in {column.name for column in (*columns, *(each.column for each in criteria))} | {persons} - {""}:
            if table.column_names.count(name) != 1:
                raise InvalidInputError(f"the table has no column {name!r}, or several: export it once, by this name")
        kept = in_cohort(table, criteria)
        kept = first_rows(table, PersonUnit(column=persons) if persons else None, kept)
        rows = table.filter(pa.array(kept))
        return cls(columns, {each.name: places_in_bands(each, whole_column(rows, each.name)) for each in columns})

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(next(iter(self.places.values())))

    def counts(self, column: Column) -> list[int]:
        """Return the number of rows in each band of a column."""
        found = np.bincount(self.places[column.name], minlength=len(band_labels(column)))
        return [int(each) for each in found]

    def excess(self, pair: tuple[str, str], middles: Mapping[str, int]) -> int:
        """Return how many more rows are on the same side of both columns than on different sides."""
        one, other = (self._sides(name, middles[name]) for name in pair)
        return int(one @ other)

    def _sides(self, name: str, middle: int) -> NDArray[np.int64]:
        """Return 1 for bands above the middle, -1 for those below, 0 for a row without a value."""
        column, places = next(each for each in self.columns if each.name == name), self.places[name]
        return np.where(places >= len(band_labels(column)) - 2, 0, np.where(places >= middle, 1, -1))


# ---------------------------------------------------------------- the letter


@dataclass(frozen=True, eq=False)
class TableLetter(SealedText):
    """Counts with noise of a site's rows in public bands.

    Parameters
    ----------
    site : str
    study : str
        Identity of the study, ``sha256:...``.
    unit : {"row", "person"}
        What is protected.
    rho : Fraction
        What the letter costs.
    variances : (int, int)
        Variances of the noise in counts of bands and in those of pairs.
    rows : int
        Number of rows, with noise.
    bands : mapping of str to tuple of (str, int)
        Bands of each column in words, and the rows in each, with noise.
    middles : mapping of str to int
        For each column that has sides, the number of bands below its middle.
    pairs : mapping of (str, str) to int
        Rows on the same side of both columns less those on different sides, with noise.
    """

    kind: ClassVar[str] = "consilience table letter"
    site: str
    study: str
    unit: str
    rho: Fraction
    variances: tuple[int, int]
    rows: int
    bands: Mapping[str, tuple[tuple[str, int], ...]]
    middles: Mapping[str, int]
    pairs: Mapping[tuple[str, str], int]

    @property
    def content(self) -> dict[str, Any]:
        """The content as a JSON object."""
        said = "Counts of rows in public bands. Each has noise, so that none tells about a few people."
        noise = {"rho": fraction_text(self.rho), "bands": self.variances[0], "pairs": self.variances[1]}
        columns = [
            {"name": name, "middle": self.middles.get(name), "bands": [{"of": of, "rows": n} for of, n in bands]}
            for name, bands in self.bands.items()
        ]
        pairs = [{"columns": list(pair), "excess": excess} for pair, excess in self.pairs.items()]
        head = {"site": self.site, "study": self.study, "said": said, "unit": self.unit, "noise": noise}
        return {**head, "rows": self.rows, "columns": columns, "pairs": pairs}

    @classmethod
    def _of(cls, content: Mapping[str, Any], envelope: Any) -> Self:
        noise, columns, pairs = content["noise"], content["columns"], content["pairs"]
        if set(content) != {"site", "study", "said", "unit", "noise", "rows", "columns", "pairs"}:
            raise ValueError
        if len(columns) > MOST_COLUMNS or len(pairs) > MOST_COLUMNS + MOST_PAIRS or content["unit"] not in UNITS:
            raise ValueError
        return cls(
            as_name(content["site"]),
            as_hash(content["study"]),
            content["unit"],
            Fraction(as_name(noise["rho"])),
            (_as_count(noise["bands"]), _as_count(noise["pairs"])),
            _as_count(content["rows"]),
            {as_name(each["name"]): _as_bands(each["bands"]) for each in columns},
            {each["name"]: _as_count(each["middle"]) for each in columns if each["middle"] is not None},
            {(as_name(one), as_name(other)): _as_count(each["excess"])
             for each in pairs for one, other in [each["columns"]]},
            envelope=as_mapping(envelope),
        )  # fmt: skip


def is_table_letter(text: str) -> bool:
    """Return whether a text is a letter on columns, by the format that it states."""
    return format_of(text) == TableLetter.kind


def _as_count(value: Any) -> int:
    if type(value) is not int or abs(value) > MOST_COUNT:
        raise ValueError
    return value


def _as_bands(value: Any) -> tuple[tuple[str, int], ...]:
    if len(value) > MOST_BANDS:
        raise ValueError
    return tuple((as_name(each["of"]), _as_count(each["rows"])) for each in value)


def draw_letter(
    study: Study, site: str, rows: CountedRows, unit: str, randbelow: Uniform = secrets.randbelow
) -> TableLetter:
    """Return a letter, without an envelope: counts with noise of a site's rows.

    Only studies of the method replace the source of the noise.
    """
    pairs = letter_pairs(study)
    of_bands, of_pairs = letter_variances(len(rows.columns), len(pairs))
    bands, middles = {}, {}
    for column in rows.columns:
        labels, exact = band_labels(column), rows.counts(column)
        noisy = [n + noise for n, noise in zip(exact, discrete_gaussian(of_bands, len(exact), randbelow), strict=True)]
        bands[column.name] = tuple(zip(labels, noisy, strict=True))
        if has_sides(column):
            middles[column.name] = 1 if column.is_category else _middle(column, noisy, of_bands)
    noise = discrete_gaussian(of_pairs, len(pairs), randbelow) if pairs else []
    found = {pair: rows.excess(pair, middles) + each for pair, each in zip(pairs, noise, strict=True)}
    total = rows.n + discrete_gaussian(of_bands, 1, randbelow)[0]
    return TableLetter(site, study.identity, unit, RHO, (of_bands, of_pairs), total, bands, middles, found)


def _middle(column: Column, counts: Sequence[int], variance: int) -> int:
    """Return the number of bands below the edge nearest to the mean of a column by its counts with noise."""
    moments, _ = fit_bands(column, np.array(counts, dtype=float), variance)
    mean = (moments[0] - column.rule.centre) / column.rule.scale
    return int(np.argmin(np.abs(edges_of(column) - mean))) + 1


# ---------------------------------------------------------------- at the site


@dataclass(frozen=True, eq=False)
class LetterDraft:
    """A letter that has not left: nothing is charged or drawn yet.

    Parameters
    ----------
    said : tuple of str
        What the people at the site are told before they approve.
    write : callable
        Charges, draws, records and returns the bytes of the letter.
    is_new : bool
        Whether anything will be charged; otherwise the same rows were counted for the study before.
    """

    said: tuple[str, ...]
    write: Callable[[], bytes]
    is_new: bool = True


def draft_letter(
    folder: SiteFolder, study: Study, table: pa.Table, *, approved_by: str = "", mapping: TableMapping | None = None
) -> LetterDraft:
    """Prepare the letter of a site on its columns. Nothing is refused for a value of a row.

    Parameters
    ----------
    folder : SiteFolder
    study : Study
    table : pyarrow.Table
        Columns of text are read cell by cell.
    approved_by : str
        Who approves, for the ledger.
    mapping : TableMapping, optional
        Through which the table was read; recorded.

    Raises
    ------
    InvalidInputError
        If the table lacks a column, or no column of the study has bands.
    RefusedError
        If the policy does not allow noise, if the letter would spend more than is left, or if the site withdrew.
    """
    policy = Policy.from_text(folder.policy)
    check_not_withdrawn(folder, study.identity)
    if NOISE not in policy.privacy.allow:
        raise RefusedError(NO_LETTER)
    if policy.stricter(study.minimum).release.require_signatures and folder.public_key is None:
        raise RefusedError(NO_KEY)
    if not letter_columns(study):
        raise InvalidInputError("no column of the study has bands: it states neither centre and scale nor low and high")
    persons = study.persons.column if study.persons is not None else policy.people.column
    rows = CountedRows.of(study, table, persons)
    read = {column.name for column in wanted_of(study).read} | {persons} - {""}
    tags = row_tags(table, read, folder.secret).hash
    if (before := _kept(folder, study, tags)) is not None:
        said = f"These rows were counted for this study before (entry {before.number}): the same letter leaves again."
        named = str(before.details["letter"])
        return LetterDraft((said,), lambda: read_kept_bytes(folder.path / LETTERS, named, MOST_BYTES), is_new=False)
    check_spending(policy.privacy, spent_in(folder), RHO)
    told = (*mapped_by(mapping)[1:], *_said(study, rows.columns, persons), cost_line(folder, policy.privacy, RHO))
    details = {"study": study.identity, "tags": tags, "approved_by": approved_by[:200], "way": NOISE}
    details |= {"mapping": mapping.identity} if mapping is not None else {}
    return LetterDraft(told, partial(_write, folder, study, rows, "person" if persons else "row", details))


NO_LETTER = (
    'the letter has noise, and is charged to the budget of the site; its policy does not allow "noise". Let who may '
    'decide this for the site add "noise" to allow in [privacy] of policy.toml'
)


def _kept(folder: SiteFolder, study: Study, tags: str) -> ledger.Entry | None:
    """Return the entry by which a letter on these rows left for a study; None if there is none."""
    wanted = ("check", study.identity, tags)
    found = [
        each for each in folder.entries if (each.kind, each.details.get("study"), each.details.get("tags")) == wanted
    ]
    return found[-1] if found else None


def _said(study: Study, columns: Sequence[Column], persons: str) -> list[str]:
    """Return what would leave, in words."""
    pairs = letter_pairs(study)
    bands, of_pairs = letter_variances(len(columns), len(pairs))
    numbers = 1 + len(pairs) + sum(len(band_labels(column)) for column in columns)
    known = {column.name for column in columns}
    left_out = [each.name for each in (study.response, *study.sources.columns) if each.name not in known]
    head = (
        f"What would leave: one letter with {numbers:,} counts of rows in bands that follow from the study. No row is "
        f"in it, and no exact count: each has noise with a standard deviation of {bands**0.5:.0f} rows."
    )
    of_both = (
        f"  and of {len(pairs)} pairs of columns, how many more rows are on the same side of the middles of both than "
        f"on different sides, with noise of {of_pairs**0.5:.0f} rows."
    )
    unit = f"person, by the first row of each in column {persons!r}" if persons else "row"
    return [
        head,
        *(f"  {column.name}: {_bands_text(column)}" for column in columns),
        *[of_both] * bool(pairs),
        *(f"  {name} is not in it: the study states neither centre and scale nor low and high." for name in left_out),
        f"What leaves is (ε, δ)-differentially private for one {unit}: ε = {EPSILON:g}, δ = {DELTA:g}.",
    ]


def _bands_text(column: Column) -> str:
    labels = band_labels(column)
    if column.is_category:
        return f"{len(labels)} counts: {', '.join(labels)}"
    unit = f" {column.rule.unit}" if column.rule.unit else ""
    return f"{len(labels)} counts: {labels[0]}, {labels[1]}, ..., {labels[-3]}{unit}, {labels[-2]}, {labels[-1]}"


def _write(folder: SiteFolder, study: Study, rows: CountedRows, unit: str, details: Mapping[str, Any]) -> bytes:
    """Charge the letter, draw its noise, and record it; return its bytes."""
    rules = Policy.from_text(folder.policy).privacy
    what = {name: details[name] for name in ("study", "tags", "approved_by")}
    charge(folder, rules, RHO, {**what, "run": "letter on columns", "unit": unit})
    letter = draw_letter(study, folder.name, rows, unit)
    data = replace(letter, envelope=envelope_of(folder, letter.hash)).to_text().encode()
    path = folder.path / LETTERS
    path.mkdir(mode=0o700, exist_ok=True)
    folder.record("check", {**details, "letter": keep_bytes(path, data), "bytes": len(data)})
    return data
