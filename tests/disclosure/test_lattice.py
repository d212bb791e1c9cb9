"""Attack by lattice reduction on exact sums: it reads a column of 0/1 from three files, or from six sums of scores.

It reads none if the files are rounded, or if the sums have noise.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import norm

from consilience.kit.policy import refit
from consilience.kit.policy.policy import Policy
from consilience.kit.site_fit import fit_release
from consilience.kit.study import Study
from consilience.messages import PrivateScores
from consilience.model import ColumnSummary, ConstantGate, Design, GaussianExperts, Mixture, Rows
from consilience.model.contributions import GRID, contributions, private_total
from consilience.numerics.arrays import Array
from consilience.numerics.budget import rho_of
from consilience.site import Site, answer

flint = pytest.importorskip("flint")

PEOPLE = 80
KNOWN = ("age", "bmi", "crp", "hb")
TRANSFORMS = {"log": np.log, "sqrt": np.sqrt, "log1p": np.log1p}
DIGITS, WIDE = 2**34, 16


def study(transform: str) -> Study:
    """Four columns, transformed, and one of two levels."""
    column = '[[columns]]\nname = "{}"\nkind = "number"\n'
    columns = [
        column.format("y"),
        *(column.format(name) + f'transform = "{transform}"\nlow = 0.05\n' for name in KNOWN),
    ]
    secret = '[[columns]]\nname = "secret"\nkind = "category"\nlevels = ["no", "yes"]\n'
    head = f'format = "consilience-study"\nversion = 1\nname = "by {transform}"\nseed = 1\n'
    return Study.from_text(head + '[model]\nresponse = "y"\nexperts = [1]\n' + "".join([*columns, secret]))


def people() -> tuple[dict[str, Array], Array]:
    """Columns that the attacker knows, with the digits of such measurements, and the secret."""
    rng = np.random.default_rng(21)
    columns = {
        "age": rng.normal(60, 12, PEOPLE).round(0).clip(20, 95),
        "bmi": rng.normal(27, 4, PEOPLE).round(1).clip(15, 50),
        "crp": (rng.gamma(2, 5, PEOPLE) + 0.5).round(1),
        "hb": rng.normal(13, 1.5, PEOPLE).round(1),
        "y": rng.gamma(2, 3, PEOPLE).round(1),
    }
    return columns, (rng.random(PEOPLE) < 0.3).astype(int)


def sums_of(summary: ColumnSummary) -> tuple[Array, float]:
    """Sums of the known columns over the people with the secret, and their number."""
    moments = summary.x_products + summary.weight * np.outer(summary.x_mean, summary.x_mean)
    return moments[4, :4], float(summary.weight * summary.x_mean[4])


def released(columns: dict[str, Array], secret: Array) -> tuple[Array, Array]:
    """What three files say: known columns ``(m, n)``, and their sums over the people with the secret ``(m,)``."""
    table = pa.table({**columns, "secret": np.where(secret, "yes", "no")})
    known, sums, count = [], [], 0.0
    for name, transform in TRANSFORMS.items():
        fit = fit_release(study(name), table, Policy.of_profile("hospital")).fit
        assert fit is not None
        found, count = sums_of(fit.summary)
        known += [transform(columns[each]) for each in KNOWN]
        sums += list(found)
    return np.array([*known, np.full(PEOPLE, 1 / 64)]), np.array([*sums, count / 64])


def reduced(known: Array, sums: Array) -> Array | None:
    """Look for a short vector of the lattice of differences: 0/1 for each person; None if there is none."""
    m, n = known.shape
    basis = [[0] * (n + 1 + m) for _ in range(n + 1)]
    for i in range(n):
        basis[i][i], basis[n][i] = 2 * WIDE, -WIDE
        basis[i][n + 1 :] = [round(float(value) * DIGITS) for value in known[:, i]]
    basis[n][n], basis[n][n + 1 :] = WIDE, [-round(float(value) * DIGITS) for value in sums]
    short = flint.fmpz_mat(basis).lll()
    for r in range(n + 1):
        row = [int(short[r, c]) for c in range(n + 1)]
        if all(abs(value) == WIDE for value in row):
            return np.array([(row[n] * value // WIDE**2 + 1) // 2 for value in row[:n]])
    return None


def test_exact_sums_disclose_a_secret_of_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refit, "round_fit", lambda fit: fit)
    columns, secret = people()
    found = reduced(*released(columns, secret))
    assert found is not None
    assert np.array_equal(found, secret)


def test_rounded_sums_disclose_none() -> None:
    columns, secret = people()
    assert reduced(*released(columns, secret)) is None


# ---------------------------------------------------------------------- sums of scores


SUMS = 6


def scored(columns: dict[str, Array]) -> tuple[list[PrivateScores], list[Rows]]:
    """Some questions, and the rows as they are if nobody has the secret, and if everybody has it."""
    rng = np.random.default_rng(5)
    X = np.column_stack([(columns[name] - columns[name].mean()) / columns[name].std() for name in KNOWN])
    rows = [Rows(np.column_stack([X, np.full(PEOPLE, s)]), columns["y"][:, None]) for s in (0.0, 1.0)]
    asked = []
    for place in range(SUMS):
        B = rng.normal(size=(1, 1, 6))
        mixture = Mixture(Design.raw(5), ConstantGate(np.ones(1)), GaussianExperts(B, np.full((1, 1, 1), 9.0)))
        asked.append(PrivateScores(mixture, np.eye(mixture.parameter_count), 5.0, place))
    return asked, rows


def directions(asked: list[PrivateScores], rows: list[Rows]) -> tuple[Array, Array]:
    """The sums if nobody has the secret ``(m,)``, and what each person adds who has it ``(n, m)``."""
    without, having = (
        np.hstack([contributions(q.mixture, each, q.factor, q.clip).astype(float) for q in asked]) for each in rows
    )
    return without.sum(axis=0) / GRID, (having - without) / GRID


@pytest.mark.slow
def test_sums_of_scores_disclose_a_secret_of_everybody_without_noise_and_none_with_it() -> None:
    columns, secret = people()
    asked, rows = scored(columns)
    mine = Rows(np.column_stack([rows[0].X[:, :4], secret]), rows[0].Y)
    base, gains = directions(asked, rows)
    exact = np.concatenate([private_total(q.mixture, mine, q.factor, q.clip)[:-1] for q in asked]) / GRID
    assert np.array_equal(reduced(gains.T, exact - base), secret)
    rho, wins = rho_of(3.0, 1e-6), []
    for draw in range(20):
        site = Site("north", mine).private(rho / SUMS, SUMS)
        left = np.concatenate([answer(q, site).values[:-1] for q in asked]) / GRID - base
        if draw == 0:
            assert reduced(gains.T, left) is None
        alone = (left - 0.3 * gains.sum(axis=0)) @ gains.T / np.sum(gains**2, axis=1)
        wins.append(np.mean(alone[secret == 1][:, None] > alone[secret == 0][None, :]))
    # who has the secret is told from who has not at most as often as two tables with another row in place of one
    assert np.mean(wins) < norm.cdf(2 * np.sqrt(float(rho)))
