"""One wrong column at one of five hospitals: letters on columns, with noise, have to name it before any model leaves.

The hospitals and errors are those of ``planted_columns``. Each hospital writes a letter, and the coordinator compares
the letters; the check at the site, which would find some of these errors first, is left out. Columns that were shuffled
are not looked for in letters. An error is named if the site, the column and the factor (or that its levels are swapped)
are. An alarm is false if anything is said of an honest column.
"""

from __future__ import annotations

from random import Random

import numpy as np

from benchmarks.lib.study import HOLD_OUT, Record, Study, protocol, table
from benchmarks.sites.planted_columns import SITES, STUDY, Table, arrow, hospitals, with_error
from consilience.kit.letter_comparison import compare_letters
from consilience.kit.table_letter import CountedRows, TableLetter, draw_letter

FEW = 500
"""Number of rows below which a hospital is small."""


def letter(name: str, rows: Table, random: Random) -> TableLetter:
    return draw_letter(STUDY, name, CountedRows.of(STUDY, arrow(rows)), "row", random.randrange)


def said_by_letters(letters: dict[str, TableLetter]) -> list[tuple[str, str, str]]:
    """Site, column and error of what the comparison of letters names."""
    return [
        (each.site, each.column, each.what if each.factor is None else f"{each.factor:.4g}")
        for each in compare_letters(STUDY, list(letters.values()))
    ]


def replication(seed: str, regime: Record) -> Record:
    rng, random = np.random.default_rng([int(seed), 2]), Random(int(seed))  # noqa: S311 - noise of a study, not of a site
    kind = regime["kinds"][int(seed) % len(regime["kinds"])]
    tables = hospitals("related", int(seed))
    letters = {name: letter(name, rows, random) for name, rows in tables.items()}
    site = str(rng.choice(SITES))
    wrong, column, wanted = with_error(kind, tables[site], regime, rng)
    said = said_by_letters({**letters, site: letter(site, wrong, random)})
    return {
        "kind": kind,
        "rows": len(tables[site]["age"]),
        "named": (site, column, wanted) in said,
        "column named": (site, column) in [each[:2] for each in said],
        "false": said_by_letters(letters),
    }


def row(name: str, records: list[Record]) -> Record:
    return {
        "error": name,
        "draws": len(records),
        "site, column and error named": sum(each["named"] for each in records),
        "site and column named": sum(each["column named"] for each in records),
        "of the same draws without the error, with a false alarm": sum(bool(each["false"]) for each in records),
    }


def main() -> None:
    study = Study(__file__, __doc__, HOLD_OUT)
    regime, seeds = protocol(study, "planted_columns")
    records = study.replicate(map(str, seeds), lambda key: replication(key, regime))
    kinds = [kind for kind in regime["kinds"] if kind != "a shuffled column"]
    rows = [row(kind, [each for each in records if each["kind"] == kind]) for kind in kinds]
    looked_for = [each for each in records if each["kind"] in kinds]
    small, large = ([each for each in looked_for if (each["rows"] < FEW) == few] for few in (True, False))
    sizes = [row(f"any, at a hospital of fewer than {FEW} rows", small), row("any, at a larger one", large)]
    honest = row("a shuffled column (not looked for)", [each for each in records if each["kind"] not in kinds])
    study.save(
        table("One wrong column, by letters alone", [*rows, honest, row("all but shuffled", looked_for), *sizes])
    )


if __name__ == "__main__":
    main()
