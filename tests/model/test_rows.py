"""Blocks cover the rows once and in order; groups are never split."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from consilience.model import Design, Groups, Rows
from strategies import Shape, label_count, shapes, take_labels

names = st.lists(st.integers(-3, 9), max_size=30).map(lambda labels: np.array(labels, dtype=int))


def read(rows, design, size):
    """All blocks put together again; blocks are valid until the next one only."""
    blocks = [
        (b.panel.copy(), b.Y.copy(), b.weight, b.exposure, b.groups and b.groups.sizes)
        for b in rows.blocks(design, size)
    ]
    return [list(column) for column in zip(*blocks, strict=True)] if blocks else [[], [], [], [], []]


@given(shape=shapes(labels="row", family="poisson", weights="positive"), size=st.integers(1, 20))
def test_blocks_of_rows_cover_them_once_and_in_order(shape, size):
    mixture, rows = shape.problem()
    panels, Y, weight, exposure, _ = read(rows, mixture.design, size)
    assert [panel.shape[1] for panel in panels] == [min(size, rows.n - i) for i in range(0, rows.n, size)]
    assert np.array_equal(np.hstack(panels), mixture.design.panel(rows.X))
    assert np.array_equal(np.hstack(Y), rows.Y.T)
    assert np.array_equal(np.concatenate(weight), rows.weight)
    np.testing.assert_allclose(np.concatenate(exposure), rows.exposure)


@given(labels=names, size=st.integers(1, 20))
def test_blocks_of_groups_cover_the_rows_once_and_split_no_group(labels, size):
    n = len(labels)
    rows = Rows(np.arange(n, dtype=float)[:, None], labels[:, None].astype(float), groups=Groups.of(labels))
    panels, Y, _, _, sizes = read(rows, Design.raw(1, intercept=False), size)
    seen = np.hstack([np.empty((1, 0)), *panels])[0].astype(int)
    assert np.array_equal(np.sort(seen), np.arange(n))
    homes = [np.unique(part) for part in Y]  # which groups a block has
    assert sum(len(home) for home in homes) == len(np.unique(labels))
    assert all(part.shape[1] <= size or len(home) == 1 for part, home in zip(Y, homes, strict=True))
    assert all(part.shape[1] == held.sum() for part, held in zip(Y, sizes, strict=True))


@given(labels=names)
def test_groups_are_an_index_that_keeps_the_order_within_a_group(labels):
    groups = Groups.of(labels)
    distinct = np.unique(labels)
    assert np.array_equal(distinct[groups.codes], labels)
    for g, name in enumerate(distinct):
        members = groups.order[groups.bounds[g] : groups.bounds[g + 1]]
        assert np.array_equal(members, np.flatnonzero(labels == name))
    assert groups.bounds[-1] == len(labels)


@given(shape=shapes(labels="group"), size=st.integers(1, 20))
def test_a_gate_reads_the_weighted_mean_of_each_group(shape, size):
    mixture, rows = shape.problem()
    weight = np.ones(rows.n) if rows.weight is None else rows.weight
    panel, codes = mixture.design.panel(rows.X), rows.groups.codes
    mass = np.bincount(codes, weight)
    blocks = [block.groups for block in rows.blocks(mixture.design, size)]
    means, present = np.hstack([b.panel for b in blocks]), np.concatenate([b.present for b in blocks])
    assert np.array_equal(present, mass > 0)
    for g in np.flatnonzero(mass > 0):
        direct = (panel * weight)[:, codes == g].sum(axis=1) / mass[g]
        np.testing.assert_allclose(means[:, g], direct, rtol=1e-10, atol=1e-12)
    assert np.all(np.isfinite(means))


@given(shape=shapes(family="poisson", weights="positive"))
def test_taking_rows_takes_all_that_belongs_to_them(shape):
    _, rows = shape.problem()
    index = np.random.default_rng(shape.seed).integers(0, rows.n, 5)
    part = rows.take(index)
    assert part.n == 5
    for ours, theirs in [
        (part.X, rows.X),
        (part.Y, rows.Y),
        (part.weight, rows.weight),
        (part.exposure, rows.exposure),
    ]:
        assert np.array_equal(ours, theirs[index])
    if rows.groups is not None:
        codes = rows.groups.codes[index]
        assert np.array_equal(part.groups.codes[:, None] == part.groups.codes, codes[:, None] == codes)


def test_taking_labels_takes_whole_groups():
    _, rows = Shape(labels="group", n=12).problem()
    parts = [take_labels(rows, np.array([g])) for g in range(label_count(rows))]
    assert [part.n for part in parts] == list(np.diff(rows.groups.bounds))
    assert all(label_count(part) == 1 for part in parts)


@given(labels=names, size=st.integers(1, 7))
def test_pieces_name_the_labels_of_their_blocks(labels, size):
    rows = Rows(np.zeros((len(labels), 1)), np.zeros((len(labels), 1)), groups=Groups.of(labels))
    pieces = list(rows.pieces(size))
    assert [i for piece in pieces for i in range(piece.labels.start, piece.labels.stop)] == list(
        range(len(np.unique(labels)))
    )
    assert all(len(piece.bounds) - 1 == piece.labels.stop - piece.labels.start for piece in pieces)
